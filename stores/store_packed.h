/* store_packed.h - one file that was packed: what proves that it is what was packed, and what is given back
 * to the disk when it was sent.
 *
 * Threads: any, on different files. */
#ifndef FSHARD_STORES_STORE_PACKED_H
#define FSHARD_STORES_STORE_PACKED_H

#include <limits.h>

#include "common/file.h"
#include "formats/names.h"
#include "formats/shard.h"

typedef struct StorePacked {
    char path[PATH_MAX];
    FileMapping mapping;
    bool is_shard;
    ShardView shard; /* its header and footer, which stay when its records are gone */
    char identity[FSH_HASH_TEXT_BYTES];
} StorePacked;

/* Opens a packed file. A shard is known by its name; all else is read for its identity. */
FshStatus store_packed_open(StorePacked *packed, const char *path, FshError *error);
/* Proves a shard by its footer: what would be sent is what was packed. FSH_ERR_CORRUPT. */
FshStatus store_packed_prove(const StorePacked *packed, FshError *error);
/* Gives the room of a shard's records back to the disk. Where the file system cannot do that, they stay. */
void store_packed_drop(const StorePacked *packed);
/* Safe twice, and on a zeroed struct. */
void store_packed_close(StorePacked *packed);

#endif
