#include "formats/hash_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(FshHash128) == 2 * sizeof(uint64_t), "a hash is two numbers");

/* The hash as two numbers: there are some for every record, and a call of memcmp costs more than comparing
 * them. */
typedef struct Halves {
    uint64_t first, second;
} Halves;

static Halves halves_of(const FshHash128 *hash)
{
    Halves halves;
    memcpy(&halves, hash->bytes, sizeof halves);
    return halves;
}

bool hash_is_known(const FshHash128 *hash)
{
    const Halves halves = halves_of(hash);
    return halves.first | halves.second;
}

size_t hash_low_bits(const FshHash128 *hash)
{
    return (size_t)halves_of(hash).first;
}

int hash_compare(const void *a, const void *b)
{
    const Halves left = halves_of(a), right = halves_of(b);
    if (left.first != right.first)
        return left.first < right.first ? -1 : 1;
    return (left.second > right.second) - (left.second < right.second);
}

/* Returns the entry of the hash, or the free one where it would be. The capacity is not 0. */
static HashSetEntry *locate(const HashSet *set, const FshHash128 *hash)
{
    const Halves wanted = halves_of(hash);
    for (size_t i = (size_t)wanted.first & (set->capacity - 1);; i = (i + 1) & (set->capacity - 1)) {
        HashSetEntry *entry = &set->entries[i];
        const Halves found = halves_of(&entry->hash);
        if (!(found.first | found.second) || (found.first == wanted.first && found.second == wanted.second))
            return entry;
    }
}

/* Returns zeroed entries, or NULL. Each page of a large table is written once: left alone, looking at it
 * would be one fault and writing it another, and a fault costs as much as some keys. */
static HashSetEntry *make_entries(size_t capacity)
{
    enum { PAGE_BYTES = 4096 };
    HashSetEntry *entries = calloc(capacity, sizeof *entries);
    for (size_t at = 0; entries && at < capacity; at += PAGE_BYTES / sizeof *entries)
        ((volatile HashSetEntry *)entries)[at].record = 0;
    return entries;
}

FshStatus hash_set_reserve(HashSet *set, uint64_t more, FshError *error)
{
    size_t capacity = set->capacity ? set->capacity : 64;
    while (capacity / 2 < set->count + more)
        capacity *= 2;
    if (capacity == set->capacity)
        return FSH_OK;
    HashSet grown = {.entries = make_entries(capacity), .capacity = capacity, .count = set->count};
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

void hash_set_prefetch(const HashSet *set, const FshHash128 *hash)
{
    if (set->capacity)
        __builtin_prefetch(&set->entries[(size_t)halves_of(hash).first & (set->capacity - 1)], 1);
}

void hash_set_free(HashSet *set)
{
    free(set->entries);
    *set = (HashSet){0};
}
