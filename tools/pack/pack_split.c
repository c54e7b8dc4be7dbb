/* pack_split.c - which samples are taken, and which of them become the validation split.
 *
 * Choices go by a hash of seed and key, so that adding or removing images moves few others from one side to
 * the other, and the order of files has no say. */
#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/random.h"
#include "tools/pack/pack_split.h"

typedef struct Draw {
    uint64_t hash;
    uint64_t sample;
    uint64_t rank; /* among those of its split and class, by hash */
    uint32_t split;
    int32_t label;
} Draw;

static int compare_by_class(const void *a, const void *b)
{
    const Draw *left = a, *right = b;
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    if (left->label != right->label)
        return left->label < right->label ? -1 : 1;
    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return left->sample < right->sample ? -1 : left->sample > right->sample;
}

/* Orders one from each class, then the next from each class, … */
static int compare_by_turn(const void *a, const void *b)
{
    const Draw *left = a, *right = b;
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    if (left->rank != right->rank)
        return left->rank < right->rank ? -1 : 1;
    return left->label < right->label ? -1 : left->label > right->label;
}

static bool same_class(const Draw *a, const Draw *b)
{
    return a->split == b->split && a->label == b->label;
}

/* Returns all samples, class after class, each class in the order of the hashes. Owned by the caller; NULL:
 * out of memory. */
static Draw *draw_all(const PackSplit *split, uint64_t seed)
{
    Draw *draws = calloc(split->sample_count + 1, sizeof *draws);
    if (!draws)
        return NULL;
    for (uint64_t i = 0; i < split->sample_count; i++) {
        const PackSample *sample = &split->samples[i];
        draws[i] = (Draw){.hash = XXH3_64bits_withSeed(sample->key, sample->key_bytes, seed),
                          .sample = i,
                          .split = sample->split,
                          .label = sample->label};
    }
    qsort(draws, split->sample_count, sizeof *draws, compare_by_class);
    for (uint64_t i = 1; i < split->sample_count; i++)
        draws[i].rank = same_class(&draws[i - 1], &draws[i]) ? draws[i - 1].rank + 1 : 0;
    return draws;
}

static FshStatus apply_limit(PackSplit *split, FshError *error)
{
    const PackOptions *options = split->found->options;
    Draw *draws = draw_all(split, options->seed);
    uint8_t *keep = calloc(split->sample_count + 1, 1);
    FshStatus status = FSH_OK;
    if (!draws || !keep) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", split->found->root);
        goto done;
    }
    qsort(draws, split->sample_count, sizeof *draws, compare_by_turn);
    uint64_t taken[PACK_SPLITS] = {0}, kept = 0;
    for (uint64_t i = 0; i < split->sample_count; i++)
        keep[draws[i].sample] = taken[draws[i].split]++ < options->limit;
    for (uint64_t i = 0; i < split->sample_count; i++) {
        if (keep[i])
            split->samples[kept++] = split->samples[i];
    }
    split->sample_count = kept;
done:
    free(draws);
    free(keep);
    return status;
}

/* Moves a part of each training class to val: the rounded share, at least one and at most all but one of a
 * class that has two or more, none of a class of one. */
static FshStatus apply_split(PackSplit *split, FshError *error)
{
    const PackOptions *options = split->found->options;
    for (uint64_t i = 0; i < split->sample_count; i++) {
        if (split->samples[i].split == PACK_VAL)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--split: %s has a val split already; leave --split out, or move val away",
                                 split->found->root);
    }
    Draw *draws = draw_all(split, options->seed);
    if (!draws)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", split->found->root);
    uint64_t train_count = 0, val_count = 0;
    for (uint64_t begin = 0, end; begin < split->sample_count; begin = end) {
        for (end = begin + 1; end < split->sample_count && same_class(&draws[begin], &draws[end]);)
            end++;
        if (draws[begin].split != PACK_TRAIN)
            continue;
        train_count += end - begin;
        const uint64_t size = end - begin;
        uint64_t moved = (uint64_t)llround((double)size * options->val_fraction);
        if (moved == 0)
            moved = 1;
        if (moved > size - 1)
            moved = size - 1;
        for (uint64_t i = 0; i < moved; i++)
            split->samples[draws[begin + i].sample].split = PACK_VAL;
        val_count += moved;
    }
    free(draws);
    if (val_count)
        return FSH_OK;
    const char *reason = "no val split was made: every class has fewer than 2 images";
    if (train_count == 0)
        reason = "no val split was made: there is no train split to take it from";
    else if (split->found->kind == FSH_KIND_PAIRS)
        reason = "no val split was made: there are fewer than 2 samples";
    return notes_add(&split->found->notes->warnings, FSH_OK, "--split", reason, error);
}

/* Puts the samples split after split, and within a split in the order they have or, with --shuffle, permuted;
 * fills the ranges. */
static FshStatus put_in_order(PackSplit *split, FshError *error)
{
    const PackOptions *options = split->found->options;
    PackSample *ordered = calloc(split->sample_count + 1, sizeof *ordered);
    if (!ordered)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", split->found->root);
    uint64_t next = 0;
    for (uint32_t at = 0; at < PACK_SPLITS; at++) {
        SplitRange *range = &split->ranges[at];
        *range = (SplitRange){.first_sample = next};
        for (uint64_t i = 0; i < split->sample_count; i++) {
            if (split->samples[i].split == at)
                ordered[next++] = split->samples[i];
        }
        range->sample_count = next - range->first_sample;
        range->present = range->sample_count > 0;
    }
    while (split->main + 1 < PACK_SPLITS && !split->ranges[split->main].present)
        split->main++;
    for (uint32_t at = 0; at < PACK_SPLITS && options->shuffle; at++) {
        const SplitRange *range = &split->ranges[at];
        for (uint64_t i = 0; i < range->sample_count; i++) {
            uint64_t from = random_permute(i, range->sample_count, options->shuffle_seed, at);
            split->samples[range->first_sample + i] = ordered[range->first_sample + from];
        }
    }
    if (options->shuffle) {
        free(ordered);
    } else {
        free(split->samples);
        split->samples = ordered;
    }
    return FSH_OK;
}

FshStatus pack_split(PackKeyed *keyed, PackSplit *split, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    FshStatus status = FSH_OK;
    *split = (PackSplit){.found = keyed->found,
                         .keyed = keyed,
                         .samples = keyed->samples,
                         .sample_count = keyed->sample_count};
    keyed->samples = NULL;
    keyed->sample_count = 0;
    if (options->limit)
        status = apply_limit(split, error);
    if (!status && options->val_fraction > 0)
        status = apply_split(split, error);
    return status ? status : put_in_order(split, error);
}

void pack_split_free(PackSplit *split)
{
    free(split->samples);
    *split = (PackSplit){0};
}
