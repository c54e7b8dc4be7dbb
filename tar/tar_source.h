/* tar_source.h - where the bytes of a tar come from: a stretch of a file, or an entry of an outer tar.
 * Internal to fshard_tar.
 *
 * Threads: one source belongs to one thread at a time. */
#ifndef FSHARD_TAR_TAR_SOURCE_H
#define FSHARD_TAR_TAR_SOURCE_H

#include <archive.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* A stretch of the file, or the content of the outer tar's current entry. */
typedef struct TarSource {
    int descriptor;
    uint64_t begin, end;   /* of the stretch in the file */
    uint64_t offset;       /* next to be read */
    size_t next_bytes;     /* small after a skip, then growing, so that skipping over files reads little of
                            * them */
    struct archive *outer; /* not NULL: read from its current entry */
    const uint8_t *start;  /* bytes that were taken from there before: start_bytes of them, 0 when passed
                            * on */
    size_t start_bytes;
    uint8_t *bytes;   /* MOST_READ_BYTES; owned */
    int failure;      /* errno of a read that failed, else 0 */
    bool outer_broke; /* the outer tar broke, and cannot go on */
} TarSource;

/* Opens the file and checks its first bytes. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY;
 * FSH_ERR_UNSUPPORTED: no tar, or no regular file. The caller closes the descriptor; -1 on failure. */
FshStatus tar_source_open(const char *path, TarSource *source, FshError *error);

/* Returns an archive that reads the source through libarchive; support_format:
 * archive_read_support_format_tar or _raw. The source must not move while the archive is open; free its bytes
 * after that. NULL: out of memory. An unreadable source shows at its first header. */
struct archive *tar_source_archive(TarSource *source, int (*support_format)(struct archive *));

#endif
