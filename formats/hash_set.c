#include "formats/hash_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/internal.h"

bool hash_is_known(const FshHash128 *hash)
{
    static const FshHash128 none;
    return !fsh_hash_equal(hash, &none);
}

/* Its entry, or the free one where it would be. capacity is not 0. */
static HashSetEntry *locate(const HashSet *set, const FshHash128 *hash)
{
    size_t start = 0;
    memcpy(&start, hash->bytes, sizeof start);
    for (size_t i = start & (set->capacity - 1);; i = (i + 1) & (set->capacity - 1)) {
        HashSetEntry *entry = &set->entries[i];
        if (!hash_is_known(&entry->hash) || fsh_hash_equal(&entry->hash, hash))
            return entry;
    }
}

FshStatus hash_set_reserve(HashSet *set, uint64_t more, FshError *error)
{
    size_t capacity = set->capacity ? set->capacity : 64;
    while (capacity / 2 < set->count + more)
        capacity *= 2;
    if (capacity == set->capacity)
        return FSH_OK;
    HashSet grown = {
        .entries = calloc(capacity, sizeof *grown.entries), .capacity = capacity, .count = set->count};
    if (!grown.entries)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: hashes of %" PRIu64 " samples",
                             set->count + more);
    for (size_t i = 0; i < set->capacity; i++) {
        if (hash_is_known(&set->entries[i].hash))
            *locate(&grown, &set->entries[i].hash) = set->entries[i];
    }
    free(set->entries);
    *set = grown;
    return FSH_OK;
}

const HashSetEntry *hash_set_meet(HashSet *set, const FshHash128 *hash, uint64_t record, size_t file)
{
    HashSetEntry *entry = locate(set, hash);
    if (hash_is_known(&entry->hash))
        return entry;
    *entry = (HashSetEntry){.hash = *hash, .record = record, .file = file};
    set->count++;
    return NULL;
}

const HashSetEntry *hash_set_find(const HashSet *set, const FshHash128 *hash)
{
    if (!set->capacity)
        return NULL;
    const HashSetEntry *entry = locate(set, hash);
    return hash_is_known(&entry->hash) ? entry : NULL;
}

void hash_set_free(HashSet *set)
{
    free(set->entries);
    *set = (HashSet){0};
}
