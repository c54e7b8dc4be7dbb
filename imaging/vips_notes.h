/* vips_notes.h - what libvips and the libraries below it say while an image is read or written: warnings,
 * errors that are no failure, reasons of failures. Internal to the plugin.
 *
 *   notes_begin();                                          // before each image
 *   if (vips_…) status = notes_failure(FSH_ERR_CORRUPT, "png", error);
 *   else if (notes_damage()[0]) …    // it went on, and what it made is not the picture
 *
 * Notes are this thread's own, but for the text of a failure: libvips writes that to one buffer for the whole
 * process. So image_vips.c runs what has failed a second time, alone, if notes_are_shared. */
#ifndef FSHARD_IMAGING_VIPS_NOTES_H
#define FSHARD_IMAGING_VIPS_NOTES_H

#include <stdbool.h>

#include "common/error.h"

/* Installs the handlers of GLib's log and of libtiff. Once, after libvips has started. */
void notes_start(void);

/* Forgets all notes of this thread. */
void notes_begin(void);

/* How many warnings there were. */
unsigned notes_warnings(void);

/* What was said of pixels that cannot be right, though reading went on; "" if nothing. This thread's, until
 * notes_begin. */
const char *notes_damage(void);

/* Returns status, with the reason as its message: what was said of damage, or else libvips' line of this
 * domain, or its first. Empties libvips' buffer. */
FshStatus notes_failure(FshStatus status, const char *domain, FshError *error);

/* Whether notes_failure has looked at the buffer that all threads share. */
bool notes_are_shared(void);

/* Undoes what an attempt that may fail has left in libvips' buffer. */
void notes_forget_failure(void);

#endif
