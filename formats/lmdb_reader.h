/* lmdb_reader.h - LMDBs, ours and of any making, read without liblmdb.
 *
 * Parsers are pure functions of (bytes, length): they never read outside, keep no state, and can be fuzzed.
 * Their messages name no file: the caller prepends it. Pointers in their results lie in the bytes they were
 * given. */
#ifndef FSHARD_FORMATS_LMDB_READER_H
#define FSHARD_FORMATS_LMDB_READER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"

/* ---- our own ---- */

/* data.mdb in memory, read by our own walk over its pages: liblmdb trusts what it maps, and a hostile file
 * makes it crash. The walk is also what makes reads O(1), zero-copy and lock-free: it ends in a table of
 * where each value is. */
typedef struct LmdbView {
    Buffer rows; /* INDEX_ROW_BYTES each, offset and record_bytes filled, as in a shard's index; owned */
    uint64_t record_count;
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
} LmdbView;

#define LMDB_DATA_NAME      "data.mdb"
#define LMDB_METADATA_KEY   "~fshard"
#define LMDB_DICTIONARY_KEY "~fshard-dictionary"
enum { LMDB_KEY_DIGITS = 10 };

bool fsh_lmdb_sniff(const uint8_t *bytes, uint64_t length);
/* Writes to data_path the path of an LMDB's file: data.mdb in the folder path, or path itself, as liblmdb's
 * MDB_NOSUBDIR has it. */
FshStatus fsh_lmdb_data_path(char data_path[PATH_MAX], const char *path, FshError *error);
/* Fills *view with the entries of one of our LMDBs. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED (an LMDB that is
 * none of ours), FSH_ERR_MEMORY. On failure *view is empty. */
FshStatus fsh_lmdb_parse(LmdbView *view, const uint8_t *bytes, uint64_t length, FshError *error);
void fsh_lmdb_free(LmdbView *view);

/* ---- of any making ---- */

typedef struct LmdbEntry {
    const char *key;
    size_t key_bytes;
    uint64_t offset, bytes; /* of the value, in the file */
} LmdbEntry;
typedef FshStatus (*LmdbVisit)(const LmdbEntry *entry, void *context, FshError *error);
/* Visits every entry of the unnamed database, keys in byte order, each checked to be after the one before;
 * all values together are no longer than the file. Ends with the first visit that fails. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED. */
FshStatus fsh_lmdb_walk(const uint8_t *bytes, uint64_t length, LmdbVisit visit, void *context,
                        FshError *error);

#endif
