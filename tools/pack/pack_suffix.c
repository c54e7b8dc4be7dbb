/* pack_suffix.c - which ends of names would pair up what has no counterpart: 0001x2.png and 0001.png,
 * a_blur.png and a_gt.png.
 *
 * The names of such a side all end alike. Of the ends that all of a side share ("_outdoor_hazy" and what
 * is shorter), and those of the other, each two are tried. It is told, not done: a name that ends alike by
 * chance would be paired up wrongly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pack/pack_keyed.h"

enum { ENDS_MAX = 20, TRIED_MAX = 200 };

typedef struct Side {
    const SideImage **images; /* in order of split and key */
    size_t count;
    size_t shared; /* so many bytes at the end of every key are the same, ENDS_MAX at most */
} Side;

typedef struct Ends {
    size_t bytes[2], pairs;
} Ends;

static int compare_keys(uint32_t split, const char *key, size_t key_bytes, const SideImage *image)
{
    if (split != image->split)
        return split < image->split ? -1 : 1;
    const int order = memcmp(key, image->key, key_bytes < image->key_bytes ? key_bytes : image->key_bytes);
    return order ? order : (key_bytes > image->key_bytes) - (key_bytes < image->key_bytes);
}

static bool has_key(const Side *side, uint32_t split, const char *key, size_t key_bytes)
{
    size_t low = 0, high = side->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_keys(split, key, key_bytes, side->images[middle]);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

/* Returns the bytes of the file's own name at the end of a key: no end is longer. */
static size_t name_bytes(const SideImage *image)
{
    const char *slash = memrchr(image->key, '/', image->key_bytes);
    return slash ? image->key_bytes - (size_t)(slash + 1 - image->key) : image->key_bytes;
}

/* Fills side->shared. */
static void find_shared(Side *side)
{
    const SideImage *first = side->images[0];
    side->shared = ENDS_MAX;
    for (size_t i = 0; i < side->count; i++) {
        const SideImage *image = side->images[i];
        const size_t name = name_bytes(image);
        size_t shared = 0;
        while (shared < side->shared && shared + 1 < name && shared < first->key_bytes &&
               image->key[image->key_bytes - 1 - shared] == first->key[first->key_bytes - 1 - shared])
            shared++;
        side->shared = shared;
    }
}

/* Returns how many of a's first `most` images have a counterpart in b when each loses its end. key: room
 * for one. */
static size_t count_pairs(const Side *a, const Side *b, size_t a_end, size_t b_end, size_t most, char *key)
{
    const SideImage *example = b->images[0];
    const char *end = example->key + example->key_bytes - b_end;
    size_t pairs = 0;
    for (size_t i = 0; i < a->count && i < most; i++) {
        const SideImage *image = a->images[i];
        const size_t stem = image->key_bytes - a_end;
        memcpy(key, image->key, stem);
        memcpy(key + stem, end, b_end);
        pairs += has_key(b, image->split, key, stem + b_end);
    }
    return pairs;
}

/* Returns the ends that pair up most, and of those the shortest: longer ones would cut off what the names
 * are about. */
static Ends find_ends(const Side sides[2], char *key)
{
    Ends best = {0};
    for (size_t a = 0; a <= sides[0].shared; a++) {
        for (size_t b = 0; b <= sides[1].shared; b++) {
            const size_t pairs = a + b ? count_pairs(&sides[0], &sides[1], a, b, TRIED_MAX, key) : 0;
            if (pairs > best.pairs || (pairs && pairs == best.pairs && a + b < best.bytes[0] + best.bytes[1]))
                best = (Ends){.bytes = {a, b}, .pairs = pairs};
        }
    }
    return best;
}

/* Takes a sign before both ends, if it is the same, into them: "_hazy" rather than "hazy". */
static void take_sign(const Side sides[2], Ends *ends)
{
    char signs[2] = {0};
    for (size_t side = 0; side < 2; side++) {
        const SideImage *image = sides[side].images[0];
        if (ends->bytes[side] < sides[side].shared)
            signs[side] = image->key[image->key_bytes - 1 - ends->bytes[side]];
    }
    if (ends->bytes[0] && ends->bytes[1] && signs[0] && signs[0] == signs[1] && strchr("_-.", signs[0])) {
        ends->bytes[0]++;
        ends->bytes[1]++;
    }
}

/* Fills keyed->pair_hint. */
static void tell(PackKeyed *keyed, const Side sides[2], const Ends *ends)
{
    char rules[2][96] = {"", ""};
    for (size_t side = 0; side < 2; side++) {
        const SideImage *image = sides[side].images[0];
        if (ends->bytes[side])
            (void)snprintf(rules[side], sizeof rules[side], "%.60s=%.*s", keyed->found->field_names[side],
                           (int)ends->bytes[side], image->key + image->key_bytes - ends->bytes[side]);
    }
    (void)snprintf(keyed->pair_hint, sizeof keyed->pair_hint,
                   "--pair-suffix %s%s%s would pair %zu of %zu images of '%.60s' that have no counterpart",
                   rules[0], rules[0][0] && rules[1][0] ? ":" : "", rules[1], ends->pairs, sides[0].count,
                   keyed->found->field_names[0]);
}

FshStatus key_hint_suffix(PackKeyed *keyed, const SideImage *orphans, size_t count, FshError *error)
{
    Side sides[2] = {{0}};
    size_t longest = 0;
    char *key = NULL;
    FshStatus status = FSH_OK;
    sides[0].images = calloc(count + 1, sizeof(const SideImage *));
    sides[1].images = calloc(count + 1, sizeof(const SideImage *));
    if (!sides[0].images || !sides[1].images) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        Side *side = orphans[i].field ? &sides[1] : &sides[0];
        side->images[side->count++] = &orphans[i];
        longest = orphans[i].key_bytes > longest ? orphans[i].key_bytes : longest;
    }
    if (sides[0].count && sides[1].count) {
        key = malloc(longest + ENDS_MAX + 1);
        if (!key)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    }
    if (key) {
        find_shared(&sides[0]);
        find_shared(&sides[1]);
        Ends ends = find_ends(sides, key);
        const size_t tried = sides[0].count < TRIED_MAX ? sides[0].count : TRIED_MAX;
        if (ends.pairs * 2 >= tried && ends.pairs) {
            take_sign(sides, &ends);
            ends.pairs = count_pairs(&sides[0], &sides[1], ends.bytes[0], ends.bytes[1], SIZE_MAX, key);
            tell(keyed, sides, &ends);
        }
    }
done:
    free(key);
    free(sides[0].images);
    free(sides[1].images);
    return status;
}
