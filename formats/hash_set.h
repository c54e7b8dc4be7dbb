/* hash_set.h - which record came first with a key, or a content: known by its 128-bit hash, which no two of a
 * dataset share by chance. Internal to fsh_check. */
#ifndef FSHARD_FORMATS_HASH_SET_H
#define FSHARD_FORMATS_HASH_SET_H

#include "formats/fshard.h"

typedef struct HashSetEntry {
    FshHash128 hash; /* zero: free */
    uint64_t record; /* row in its file */
    size_t file;     /* among all files checked */
} HashSetEntry;

/* Open addressing; capacity is a power of two, at most half full. Zeroed: empty. */
typedef struct HashSet {
    HashSetEntry *entries;
    size_t capacity, count;
} HashSet;

/* Returns whether the hash is not zero, which stands for "not known" wherever hashes are kept. */
bool hash_is_known(const FshHash128 *hash);
/* Compares two FshHash128, for qsort and bsearch: the same order on this machine, and no other sense in
 * it. */
int hash_compare(const void *a, const void *b);

/* Returns 64 bits of the hash. */
size_t hash_low_bits(const FshHash128 *hash);

/* Makes room for so many more hashes. FSH_ERR_MEMORY. */
FshStatus hash_set_reserve(HashSet *set, uint64_t more, FshError *error);
/* Returns the entry of this hash if it is there; else puts it there with record and file, and returns NULL.
 * The hash is known and there is room. */
const HashSetEntry *hash_set_meet(HashSet *set, const FshHash128 *hash, uint64_t record, size_t file);
/* Returns the entry of this hash, or NULL. The set may be empty. */
const HashSetEntry *hash_set_find(const HashSet *set, const FshHash128 *hash);
/* Brings the place of a hash nearer that hash_set_meet is going to ask for, HASH_SET_AHEAD calls later: the
 * set of a million keys is in no cache. */
enum { HASH_SET_AHEAD = 8 };
void hash_set_prefetch(const HashSet *set, const FshHash128 *hash);
void hash_set_free(HashSet *set);

#endif
