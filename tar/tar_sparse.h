/* tar_sparse.h - where the bytes of a file with holes lie, as tars say it: GNU's old header (kind 'S') and
 * its three pax formats 0.0, 0.1 and 1.0 (GNU tar's manual, "Storing Sparse Files"). Internal to tar/. */
#ifndef FSHARD_TAR_TAR_SPARSE_H
#define FSHARD_TAR_TAR_SPARSE_H

#include <stdbool.h>

#include "tar/tar_source.h"

typedef struct TarPart {
    uint64_t offset, bytes; /* in the file; parts are stored one after another, the holes between them not */
} TarPart;

/* Its parts are untrusted: they may overlap, or reach beyond the file. */
typedef struct TarSparse {
    bool given;           /* the member has a map */
    bool map_in_content;  /* format 1.0 */
    uint64_t bytes;       /* of the file, with its holes */
    uint64_t next_offset; /* format 0.0: of the part whose size comes next */
    Buffer parts;         /* TarPart each; owned */
} TarSparse;

/* Forgets the map, and keeps the memory. */
void tar_sparse_reset(TarSparse *sparse);

/* Takes a record of a pax header; keys that do not belong to a map are passed over, and a map of Solaris is
 * taken for a wrong one, so that its file is not given without its holes. FSH_ERR_CORRUPT: it holds no
 * numbers; FSH_ERR_MEMORY. */
FshStatus tar_sparse_record(TarSparse *sparse, const char *key, size_t key_bytes, const char *value,
                            size_t value_bytes, FshError *error);
/* Reads the map of a header of kind 'S' and of the blocks after it, at offset; *taken_ret is set to the size
 * of these blocks. FSH_ERR_CORRUPT, FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus tar_sparse_header(TarSparse *sparse, const uint8_t *header, TarSource *source, uint64_t offset,
                            uint64_t *taken_ret, FshError *error);
/* Reads the map of format 1.0, which stands before the content, at offset, within `bytes` bytes; *taken_ret
 * is set to its size. Statuses are those of tar_sparse_header. */
FshStatus tar_sparse_content(TarSparse *sparse, TarSource *source, uint64_t offset, uint64_t bytes,
                             uint64_t *taken_ret, FshError *error);

#endif
