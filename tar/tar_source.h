/* tar_source.h - the bytes of a tar by their offset: in memory, a stretch of a file, a stretch of another
 * source, or what a decompressor makes of another source. Internal to tar/; formats/ makes sources of memory.
 *
 * Offsets only grow: no call may ask for bytes before those that an earlier call asked for. What is passed
 * over is not read, except by a decompressor.
 *
 * Threads: one source belongs to one thread at a time, with those that it reads from. */
#ifndef FSHARD_TAR_TAR_SOURCE_H
#define FSHARD_TAR_TAR_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "common/file.h"

struct ArchivePlugin;
struct Decompressor;

/* Ends a message about a tar that ends too early: what it is, and what to do about it. */
#define TAR_CUT_SHORT "cut short; copy or download it again"
/* Warns of so many tars without an end marker; %s: the plural's ending. */
#define TAR_UNMARKED                                                                                         \
    "tar%s without an end marker: either the writer makes none, or something was cut short between two "     \
    "members, and is to be copied again"

/* Made by the functions below; tar_source.c alone looks inside, but for length. */
typedef struct TarSource {
    uint64_t length;        /* in bytes; of what a decompressor makes UINT64_MAX until the end was met */
    const uint8_t *window;  /* window_bytes bytes from window_offset on, in memory or in buffer */
    uint64_t window_offset; /* where it ends, the next read begins */
    size_t window_bytes;
    Buffer buffer;          /* owned */
    size_t next_bytes;      /* of the next read: few after a leap, then growing, so that leaps read little */
    int descriptor;         /* of the file, not owned; read without base and plugin */
    uint64_t begin;         /* of the stretch, in the file or in base */
    struct TarSource *base; /* the source that this one reads from; not owned */
    const struct ArchivePlugin *plugin; /* set: base is compressed */
    struct Decompressor *decompressor;  /* owned */
    uint64_t taken_bytes;               /* of base, by the decompressor */
} TarSource;

/* Returns a source of bytes in memory, which it neither copies nor owns. It never fails, and needs no close.
 */
TarSource tar_source_memory(const uint8_t *bytes, uint64_t length);
/* Returns a source of the first length bytes of an open file. */
TarSource tar_source_file(int descriptor, uint64_t length);
/* Returns a source of a part of another one; bytes beyond the other's end are left out. */
TarSource tar_source_stretch(TarSource *base, uint64_t offset, uint64_t bytes);

/* Sets *bytes_ret to the bytes at offset, until the next call (never to NULL), and *available_ret to how
 * many there are: at least `wanted`, or all up to the end. Decompressed bytes only go on: an offset before
 * that of the last call is FSH_ERR_CORRUPT there. FSH_ERR_SYSTEM: reading failed; FSH_ERR_CORRUPT:
 * decompressing did; FSH_ERR_MEMORY. */
FshStatus tar_source_at(TarSource *source, uint64_t offset, size_t wanted, const uint8_t **bytes_ret,
                        size_t *available_ret, FshError *error);
/* Copies length bytes at offset; *got_ret is less at the end, and tells how many were copied on failure.
 * Statuses are those of tar_source_at. */
FshStatus tar_source_read(TarSource *source, uint64_t offset, uint8_t *bytes, size_t length, size_t *got_ret,
                          FshError *error);
/* Returns up to which byte the source was read. */
uint64_t tar_source_position(const TarSource *source);
/* Frees what it owns; a zeroed source is fine. */
void tar_source_close(TarSource *source);

#endif
