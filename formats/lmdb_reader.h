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
#include "formats/shard.h"

/* ---- our own ---- */

/* The tree that the newer meta page of a data.mdb in memory tells of. Read by our own code: liblmdb trusts
 * what it maps, and a hostile file makes it crash. */
typedef struct LmdbTree {
    const uint8_t *bytes; /* NULL: none */
    uint64_t length, page_bytes, page_count;
    uint64_t root, entry_count, transaction;
    unsigned depth;
} LmdbTree;

/* What is in one of our LMDBs. There are two ways to it: fsh_lmdb_parse walks all pages and makes a table of
 * where each value is; fsh_lmdb_open looks at a few, and fsh_lmdb_find goes down the tree for each record. */
typedef struct LmdbView {
    LmdbTree tree;
    /* of fsh_lmdb_parse: INDEX_ROW_BYTES each, offset and record_bytes filled, as in a shard's; owned */
    Buffer rows;
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
/* Does so without rows, by the meta pages and the tree's way to metadata, dictionary and last record: O(1).
 * What is wrong elsewhere is found by fsh_lmdb_find, or by fsh_lmdb_parse, which also gives the words where
 * these few do not agree. */
FshStatus fsh_lmdb_open(LmdbView *view, const uint8_t *bytes, uint64_t length, FshError *error);
/* Finds where a record is: *row_ret, with offset and record_bytes. Checks the pages on the way down: what it
 * gives lies within the file, and is the value of the record's key. Keeps nothing, so any number of threads
 * may look at a time. Fails as fsh_lmdb_parse does, with its words; *row_ret is zero then. */
FshStatus fsh_lmdb_find(const LmdbTree *tree, uint64_t record, IndexRow *row_ret, FshError *error);
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
