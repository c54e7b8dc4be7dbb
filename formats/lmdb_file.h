/* lmdb_file.h - an LMDB that is being written: folder/data.mdb under a hidden name, renamed when it is whole,
 * so that it is the old one or the new one at every moment. For lmdb_writer.c and basicsr_writer.c.
 *
 * The size of the map is never guessed: it begins small, and a transaction that meets MDB_MAP_FULL is dropped
 * and made again in a map of twice the size. The result depends on the entries only. */
#ifndef FSHARD_FORMATS_LMDB_FILE_H
#define FSHARD_FORMATS_LMDB_FILE_H

#include <lmdb.h>

#include "common/file.h"
#include "formats/fshard.h"
#include "formats/xxh3.h"

typedef struct LmdbFile {
    MDB_env *environment;
    MDB_dbi database;
    size_t map_bytes;
    char *folder;        /* owned */
    bool folder_is_ours; /* made here: goes again if nothing is finished */
    AtomicFile file;
} LmdbFile;

/* Begins an LMDB in folder, which is made if need be. On failure and after finish only fsh_lmdb_file_close is
 * left. */
FshStatus fsh_lmdb_file_open(LmdbFile *file, const char *folder, bool force, FshError *error);

/* Puts what a transaction holds; is called again after the map has grown. Returns a code of LMDB. */
typedef int (*LmdbPut)(LmdbFile *file, MDB_txn *transaction, void *context);
/* Runs put in one transaction; about `bytes` are put. */
FshStatus fsh_lmdb_file_put(LmdbFile *file, LmdbPut put, void *context, uint64_t bytes, FshError *error);

/* Syncs, writes the file's hash to hash, and renames the file; *bytes_ret grows by the size of data.mdb. */
FshStatus fsh_lmdb_file_finish(LmdbFile *file, XXH3_state_t *hash, uint64_t *bytes_ret, FshError *error);
/* Closes the file. What was not finished is removed. A zeroed file is fine. */
void fsh_lmdb_file_close(LmdbFile *file);

#endif
