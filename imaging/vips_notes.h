/* vips_notes.h - collects what libvips and the libraries below it report while an image is read or written:
 * warnings, errors that do not stop them, reasons of failures. Internal to the plugin.
 *
 *   notes_begin();                                          // before each image
 *   if (vips_…) status = notes_failure(FSH_ERR_CORRUPT, "png", error);
 *   else if (notes_damage()[0]) …    // it went on, and what it made is not the picture
 *
 * Notes belong to their thread, except the text of a failure, which libvips writes to one buffer for the
 * whole process. So if notes_are_shared, image_vips.c repeats a failed call while no other runs. */
#ifndef FSHARD_IMAGING_VIPS_NOTES_H
#define FSHARD_IMAGING_VIPS_NOTES_H

#include <stdbool.h>

#include "common/error.h"

/* Installs handlers for GLib's log and for libtiff. Call it once, after libvips has started. */
void notes_start(void);

/* Forgets all notes of this thread. */
void notes_begin(void);

/* Returns how many warnings this thread has noted. */
unsigned notes_warnings(void);

/* Returns what was said about pixels that cannot be right although reading went on; "" if nothing. The text
 * is this thread's, until notes_begin. */
const char *notes_damage(void);

/* Returns status and sets the reason as its message: the noted damage, else the line of this domain in
 * libvips' buffer, else its first line. Empties the buffer. */
FshStatus notes_failure(FshStatus status, const char *domain, FshError *error);

/* Returns whether notes_failure has used the buffer that all threads share. */
bool notes_are_shared(void);

/* Empties libvips' buffer after an attempt that was allowed to fail. */
void notes_forget_failure(void);

#endif
