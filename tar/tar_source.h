/* tar_source.h - where the bytes of a tar come from, and what tells that they are a tar's. Internal to
 * fshard_tar.
 *
 * Threads: one source belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_SOURCE_H
#define FSHARD_TAR_TAR_SOURCE_H

#include <archive.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* A stretch of the file, or the content of the outer tar's entry in hand. */
typedef struct TarSource {
    int descriptor;
    uint64_t begin, end;   /* of the stretch in the file */
    uint64_t offset;       /* next to be read */
    size_t next_bytes;     /* small after a leap, then growing: who leaps over files reads little of them */
    struct archive *outer; /* not NULL: read from its entry */
    const uint8_t *start;  /* what was taken from there before: start_bytes, 0 when given on */
    size_t start_bytes;
    uint8_t *bytes;   /* MOST_READ_BYTES; owned */
    int failure;      /* errno of a read that failed, else 0 */
    bool outer_broke; /* so that it cannot go on */
} TarSource;

/* Opens the file and looks at its first bytes. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY;
 * FSH_ERR_UNSUPPORTED: no tar, or no regular file. The descriptor is the caller's to close; -1 on failure. */
FshStatus tar_source_open(const char *path, TarSource *source, FshError *error);

/* Reads the source through libarchive; support_format: archive_read_support_format_tar or _raw. The source
 * must stay where it is for as long as the archive is open, and its bytes are to be freed after that. NULL:
 * out of memory. What cannot be read says so at its first header. */
struct archive *tar_source_archive(TarSource *source, int (*support_format)(struct archive *));

#endif
