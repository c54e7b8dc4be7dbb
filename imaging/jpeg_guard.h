/* jpeg_guard.h - libjpeg reports errors by longjmp; this is the only place where we meet that.
 *
 * A step is a function that calls libjpeg. jpeg_guard runs it and returns a status, whether the step came
 * back or libjpeg jumped out of it. A step keeps what it owns in its context, never in locals, so that
 * nothing leaks.
 *
 * Warnings of libjpeg fall into two kinds: those that lose or invent pixels (the file ends early, bad Huffman
 * codes, restarts or scans out of step), and those that do not (extraneous bytes between markers, odd JFIF
 * versions). In a strict decoder the first kind is an error at once. */
#ifndef FSHARD_IMAGING_JPEG_GUARD_H
#define FSHARD_IMAGING_JPEG_GUARD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* jpeglib.h needs FILE */

#include <jpeglib.h>

#include "common/error.h"

/* What an APP1 marker begins with; the rest of it is the block that ImageMetadata holds. */
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

/* Prepares the manager; assign &guard->manager to cinfo.err before jpeg_create_*. */
void jpeg_guard_init(JpegGuard *guard);

/* Before each file. */
void jpeg_guard_reset(JpegGuard *guard, bool strict);

/* Runs step(context). Returns FSH_OK, or what libjpeg's error or the step's own jpeg_guard_fail means:
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY. After a failure the caller aborts the libjpeg object.
 */
FshStatus jpeg_guard(JpegGuard *guard, void (*step)(void *context), void *context, FshError *error);

/* For use inside a step: counts a warning of our own, of the first kind, which leaves a strict decoder's step
 * with status and message. */
void jpeg_guard_warn(JpegGuard *guard, FshStatus status, const char *message);

/* For use inside a step: leaves it with a status whose message is set already. Does not return. */
_Noreturn void jpeg_guard_fail(JpegGuard *guard, FshStatus status);

#endif
