/* seeds_lmdb.h - an LMDB of pages of 256 bytes, which liblmdb would not write: all kinds of pages in a few
 * kilobytes, so that most mutations hit something. */
#ifndef FSHARD_TESTS_FUZZ_SEEDS_LMDB_H
#define FSHARD_TESTS_FUZZ_SEEDS_LMDB_H

#include <stdbool.h>
#include <stddef.h>

typedef struct SeedEntry {
    const char *key;
    const void *value;
    size_t bytes;
    bool overflow; /* in pages of its own, as values that do not fit into a leaf are in any case */
} SeedEntry;

/* Writes an LMDB as a seed: at most 8 entries in byte order of their keys, each in its own leaf below one
 * branch. */
void seed_write_lmdb(const char *root, const char *target, const char *name, const SeedEntry *entries,
                     size_t count);

#endif
