/* jpeg_guard.h - turns libjpeg's errors, which it reports by longjmp, into statuses. No other file uses
 * setjmp.
 *
 * A step is a function that calls libjpeg. jpeg_guard runs it and returns a status, whether the step returned
 * or libjpeg jumped out of it. A step keeps what it owns in its context, never in locals, so that nothing
 * leaks.
 *
 * Warnings of libjpeg are of two kinds: damage, which loses or invents pixels (the file ends early, bad
 * Huffman codes, restarts or scans out of step), and the rest (extraneous bytes between markers, odd JFIF
 * versions). In a strict decoder damage is an error at once. */
#ifndef FSHARD_IMAGING_JPEG_GUARD_H
#define FSHARD_IMAGING_JPEG_GUARD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* jpeglib.h needs FILE */

#include <jpeglib.h>

#include "common/error.h"

/* Signatures at the beginning of an APP1 marker; the rest of it is the block that ImageMetadata holds. */
#define JPEG_EXIF_SIGNATURE       "Exif\0"
#define JPEG_EXIF_SIGNATURE_BYTES sizeof JPEG_EXIF_SIGNATURE
#define JPEG_XMP_SIGNATURE        "http://ns.adobe.com/xap/1.0/"
#define JPEG_XMP_SIGNATURE_BYTES  sizeof JPEG_XMP_SIGNATURE

typedef struct JpegGuard {
    struct jpeg_error_mgr manager; /* first: libjpeg hands us a pointer to it */
    jmp_buf escape;
    FshError *error; /* of the call in progress */
    FshStatus status;
    bool strict;             /* damage is an error, not a warning */
    uint64_t warnings_count; /* of both kinds, since jpeg_guard_reset */
} JpegGuard;

/* Prepares the manager. Assign &guard->manager to cinfo.err before jpeg_create_*. */
void jpeg_guard_init(JpegGuard *guard);

/* Clears warnings and sets `strict`. Call it before each file. */
void jpeg_guard_reset(JpegGuard *guard, bool strict);

/* Runs step(context). Returns FSH_OK, or the status of libjpeg's error or of the step's own jpeg_guard_fail:
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY. After a failure the caller aborts the libjpeg
 * object. */
FshStatus jpeg_guard(JpegGuard *guard, void (*step)(void *context), void *context, FshError *error);

/* Counts a damage that we found ourselves; a strict decoder leaves its step with status and message. Call it
 * inside a step only. */
void jpeg_guard_warn(JpegGuard *guard, FshStatus status, const char *message);

/* Leaves the step with a status whose message is set already. Does not return. Call it inside a step only. */
_Noreturn void jpeg_guard_fail(JpegGuard *guard, FshStatus status);

#endif
