/* pack_split.h - the third phase of a plan: which samples are packed, in which split, in which order.
 *
 *   PackSplit split;
 *   FshStatus status = pack_split(&keyed, &split, &error);  // takes the samples out of keyed
 *   pack_split_free(&split);                                          // after a failure, too */
#ifndef FSHARD_PACK_SPLIT_H
#define FSHARD_PACK_SPLIT_H

#include "tools/pack/pack_keyed.h"

typedef struct SplitRange {
    bool present;                        /* has at least one sample */
    uint64_t first_sample, sample_count; /* its samples are neighbours */
} SplitRange;

/* All fields are written by pack_split, and by nothing after it. */
typedef struct PackSplit {
    const PackFound *found;
    const PackKeyed *keyed;
    PackSample *samples; /* in packing order, split after split; owned */
    uint64_t sample_count;
    SplitRange ranges[PACK_SPLITS];
    uint32_t main; /* the split that statistics and dictionary come from: train, or the first that is there */
} PackSplit;

/* Takes the samples out of *keyed, which must stay where it is, and applies --limit, --split and --shuffle.
 * FSH_ERR_USAGE: --split where a val split is there already. FSH_ERR_MEMORY. */
FshStatus pack_split(PackKeyed *keyed, PackSplit *split, FshError *error);

/* Frees what pack_split took, and empties *split. */
void pack_split_free(PackSplit *split);

#endif
