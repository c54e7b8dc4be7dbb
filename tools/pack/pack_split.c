/* pack_split.c - which samples are taken, and which of them become the validation split.
 *
 * Choices go by a hash of seed and key, so that adding or removing images moves few others from one side to
 * the other, and the order of files has no say. */
#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

#include "tools/pack/pack_plan.h"

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

/* One from each class, then the next from each class, … */
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

/* All samples, class after class, each class in the order of the hashes. Owned by the caller; NULL: out of
 * memory. */
static Draw *draw_all(const Plan *plan, uint64_t seed)
{
    Draw *draws = calloc(plan->sample_count + 1, sizeof *draws);
    if (!draws)
        return NULL;
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const PlanSample *sample = &plan->samples[i];
        draws[i] = (Draw){.hash = XXH3_64bits_withSeed(sample->key, sample->key_bytes, seed),
                          .sample = i,
                          .split = sample->split,
                          .label = sample->label};
    }
    qsort(draws, plan->sample_count, sizeof *draws, compare_by_class);
    for (uint64_t i = 1; i < plan->sample_count; i++)
        draws[i].rank = same_class(&draws[i - 1], &draws[i]) ? draws[i - 1].rank + 1 : 0;
    return draws;
}

static FshStatus apply_limit(Plan *plan, const PackOptions *options, FshError *error)
{
    Draw *draws = draw_all(plan, options->seed);
    uint8_t *keep = calloc(plan->sample_count + 1, 1);
    FshStatus status = FSH_OK;
    if (!draws || !keep) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    qsort(draws, plan->sample_count, sizeof *draws, compare_by_turn);
    uint64_t taken[PLAN_SPLITS] = {0}, kept = 0;
    for (uint64_t i = 0; i < plan->sample_count; i++)
        keep[draws[i].sample] = taken[draws[i].split]++ < options->limit;
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        if (keep[i])
            plan->samples[kept++] = plan->samples[i];
    }
    plan->sample_count = kept;
done:
    free(draws);
    free(keep);
    return status;
}

/* Moves a part of each training class to val: the rounded share, at least one and at most all but one of a
 * class that has two or more, none of a class of one. */
static FshStatus apply_split(Plan *plan, const PackOptions *options, FshError *error)
{
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        if (plan->samples[i].split == PLAN_VAL)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--split: %s has a val split already; leave --split out, or move val away",
                                 plan->root);
    }
    Draw *draws = draw_all(plan, options->seed);
    if (!draws)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    uint64_t train_count = 0, val_count = 0;
    for (uint64_t begin = 0, end; begin < plan->sample_count; begin = end) {
        for (end = begin + 1; end < plan->sample_count && same_class(&draws[begin], &draws[end]);)
            end++;
        if (draws[begin].split != PLAN_TRAIN)
            continue;
        train_count += end - begin;
        const uint64_t size = end - begin;
        uint64_t moved = (uint64_t)llround((double)size * options->val_fraction);
        if (moved == 0)
            moved = 1;
        if (moved > size - 1)
            moved = size - 1;
        for (uint64_t i = 0; i < moved; i++)
            plan->samples[draws[begin + i].sample].split = PLAN_VAL;
        val_count += moved;
    }
    free(draws);
    if (val_count)
        return FSH_OK;
    const char *reason = "no val split was made: every class has fewer than 2 images";
    if (train_count == 0)
        reason = "no val split was made: there is no train split to take it from";
    else if (plan->kind == FSH_KIND_PAIRS)
        reason = "no val split was made: there are fewer than 2 samples";
    return notes_add(&plan->warnings, FSH_OK, "--split", reason, error);
}

FshStatus plan_select(Plan *plan, const PackOptions *options, FshError *error)
{
    FshStatus status = FSH_OK;
    if (options->limit)
        status = apply_limit(plan, options, error);
    if (!status && options->val_fraction > 0)
        status = apply_split(plan, options, error);
    return status;
}
