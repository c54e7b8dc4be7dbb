/* pack_keys.c - every sample of a split gets a key of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tools/pack/pack_keyed.h"
#include "common/text.h"

/* Samples by split and key: slots hold a sample's index plus one. */
typedef struct KeyTable {
    const PackKeyed *keyed;
    uint64_t *slots;
    uint64_t slot_count; /* a power of two, at least twice the samples */
    uint32_t *numbers;   /* the last number given to the key in this slot; NULL before the first clash */
} KeyTable;

static bool table_make(KeyTable *table, const PackKeyed *keyed)
{
    *table = (KeyTable){.keyed = keyed, .slot_count = 16};
    while (table->slot_count < 2 * keyed->sample_count)
        table->slot_count *= 2;
    table->slots = calloc(table->slot_count, sizeof *table->slots);
    return table->slots != NULL;
}

static bool same_key(const PackSample *a, const PackSample *b)
{
    return a->split == b->split && text_is_same(a->key, a->key_bytes, b->key, b->key_bytes);
}

/* Returns the slot that holds a sample of this key, or the empty one where it belongs. */
static uint64_t *table_find(const KeyTable *table, const PackSample *sample)
{
    const uint64_t mask = table->slot_count - 1;
    uint64_t slot = XXH3_64bits_withSeed(sample->key, sample->key_bytes, sample->split) & mask;
    while (table->slots[slot] && !same_key(&table->keyed->samples[table->slots[slot] - 1], sample))
        slot = (slot + 1) & mask;
    return &table->slots[slot];
}

/* Marks every sample whose key another sample of its split has; returns how many there are. */
static uint64_t mark_clashes(KeyTable *table, uint8_t *clashes)
{
    uint64_t marked = 0;
    memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    memset(clashes, 0, table->keyed->sample_count);
    for (uint64_t i = 0; i < table->keyed->sample_count; i++) {
        uint64_t *slot = table_find(table, &table->keyed->samples[i]);
        if (*slot) {
            clashes[i] = clashes[*slot - 1] = 1;
            marked++;
        } else {
            *slot = i + 1;
        }
    }
    return marked;
}

/* Gives keys that clash their extensions: x.jpg and x.png in one folder would share the key x. Longer keys
 * may clash with others in turn ("x.jpg" and "x.jpg.png"), so it is repeated, until nothing can be made
 * longer. */
static void keep_extensions(PackKeyed *keyed, KeyTable *table, uint8_t *clashes)
{
    for (bool changed = true; changed && mark_clashes(table, clashes);) {
        changed = false;
        for (uint64_t i = 0; i < keyed->sample_count; i++) {
            const uint32_t length = clashes[i] ? (uint32_t)strlen(keyed->samples[i].key) : 0;
            changed = changed || length > keyed->samples[i].key_bytes;
            keyed->samples[i].key_bytes = clashes[i] ? length : keyed->samples[i].key_bytes;
        }
    }
}

/* Gives a sample whose key another has KEY~2, or the next number that is free. */
static FshStatus number_key(PackKeyed *keyed, KeyTable *table, PackSample *sample, FshError *error)
{
    enum { NUMBER_BYTES = 24 };
    const PackSample before = *sample;
    const uint64_t slot = (uint64_t)(table_find(table, sample) - table->slots);
    if (!table->numbers)
        table->numbers = calloc(table->slot_count, sizeof *table->numbers);
    char *key = malloc((size_t)before.key_bytes + NUMBER_BYTES);
    if (!table->numbers || !key || before.key_bytes > UINT16_MAX - NUMBER_BYTES) {
        free(key);
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no room for a longer key", keyed->found->root);
    }
    FshStatus status = names_take(&keyed->made_keys, key, error);
    if (status)
        return status;
    memcpy(key, before.key, before.key_bytes);
    sample->key = key;
    /* From the last one on: tars that all count from 0 have a thousand samples of each key. */
    uint32_t number = table->numbers[slot] ? table->numbers[slot] : 1;
    do {
        number++;
        sample->key_bytes =
            before.key_bytes + (uint32_t)snprintf(key + before.key_bytes, NUMBER_BYTES, "~%u", number);
    } while (*table_find(table, sample));
    table->numbers[slot] = number;
    return FSH_OK;
}

/* Numbers the keys that clash still: of two splits that became one, of tars whose keys are not unique, of
 * val/x and valid/x in a list. */
static FshStatus number_keys(PackKeyed *keyed, KeyTable *table, FshError *error)
{
    memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    uint64_t count = 0;
    const PackSample *example = NULL;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        PackSample *sample = &keyed->samples[i];
        if (*table_find(table, sample)) {
            status = number_key(keyed, table, sample, error);
            example = example ? example : sample;
            count++;
        }
        if (!status)
            *table_find(table, sample) = i + 1;
    }
    if (status || !count)
        return status;
    return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, keyed->found->root,
                      "numbered %llu key%s that another sample of the split has, such as %.*s",
                      (unsigned long long)count, text_plural(count), (int)example->key_bytes, example->key);
}

FshStatus key_mend(PackKeyed *keyed, FshError *error)
{
    KeyTable table;
    FshStatus status = FSH_OK;
    uint8_t *clashes = calloc(keyed->sample_count + 1, 1);
    if (!table_make(&table, keyed) || !clashes)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    else if (!keyed->found->from.dataset) /* whose keys are whole */
        keep_extensions(keyed, &table, clashes);
    if (!status)
        status = number_keys(keyed, &table, error);
    free(table.slots);
    free(table.numbers);
    free(clashes);
    return status;
}
