/* sampler.h - which sample stands at which place of which batch.
 *
 * The order of an epoch is a permutation of the whole split, computed by random_permute(seed, epoch) and
 * never stored: a split of a billion samples costs nothing, and any place of any epoch is known without
 * those before it (resume).
 *
 * One step takes batch * world_size places; rank r has the r-th run of `batch` of them. So the samples of
 * a step depend on the total batch alone, not on how many ranks share it.
 *
 * With repeats (repeated augmentation, Hoffer et al. 2020) the first part of the permutation fills the epoch,
 * each sample `repeats` times in a row, and each time in another view. Ranks take places in turn, as timm's
 * RepeatAugSampler deals them out, so that the views of a sample are spread over the ranks; and neighbours in
 * a batch, which mixing mixes, are different samples. An epoch is as long as without: timm's is cut to a
 * multiple of 256 samples first.
 *
 * With classes (balanced sampling) the epoch goes round the classes, each round in an order of its own, and
 * every class goes through a permutation of its samples again and again, over the epochs: each class comes
 * equally often to within one, and so do the samples of a class. WeightedRandomSampler of PyTorch draws with
 * weights instead, so that both hold in the mean alone.
 *
 * With sets and weights (set_order.h) an epoch has as many places for a set as its weight says, all in one
 * permutation; each set goes through a permutation of its samples again and again, over the epochs.
 *
 * Training drops the samples left over when the split is no multiple of the total batch (others in each
 * epoch), and of the steps of an update: an epoch is a whole number of updates, however ranks and steps
 * share the images of one. Evaluation takes the samples as they are stored, each exactly once; places
 * after the last one are SAMPLER_PADDING; of several sets each begins with a step of its own.
 *
 * Threads: a Sampler is constant; any number of threads may ask. */
#ifndef FSHARD_TRAINER_DATA_SAMPLER_H
#define FSHARD_TRAINER_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"
#include "trainer/data/class_order.h"
#include "trainer/data/set_order.h"

#define SAMPLER_PADDING UINT64_MAX

typedef enum SamplerKind {
    SAMPLER_SHUFFLE,  /* a permutation of the split */
    SAMPLER_BALANCED, /* each class equally often */
} SamplerKind;

/* The options of what an epoch of training consists of. */
typedef struct Sampling {
    int kind;        /* SamplerKind */
    int64_t repeats; /* how often a sample stands in a row; 0: 1 */
} Sampling;

typedef struct Sampler {
    uint64_t sample_count; /* of the split; with sets their places in an epoch */
    uint64_t batch;        /* per rank, > 0 */
    uint64_t rank, world_size;
    uint64_t update_steps;     /* of training: whose gradients make one update; 0: 1 */
    uint64_t repeats;          /* of training: as Sampling's */
    const ClassOrder *classes; /* of training: balanced; borrowed; NULL: a permutation */
    /* Training with weights, or evaluation: borrowed; NULL: the split is one set. Not with classes. */
    const SetOrder *sets;
    uint64_t seed;
    bool training;  /* shuffled, last incomplete step dropped; else as stored, padded */
    bool keep_last; /* of training: the last incomplete step is there, padded */
} Sampler;

/* What stands at a place. */
typedef struct SamplerPick {
    uint64_t sample; /* or SAMPLER_PADDING */
    /* Counts how often the sample comes, over all epochs: chance keyed by (sample, turn) is new each time. A
     * permutation without repeats: the epoch. */
    uint64_t turn;
} SamplerPick;

/* Returns the steps of one epoch; 0 in training with fewer samples than one step takes. An epoch that is
 * shorter than an update keeps all its steps: updates then reach over its end. */
uint64_t sampler_step_count(const Sampler *sampler);

/* Returns what stands at place `slot` (0..batch-1) of this rank's batch in step `step` of `epoch`. */
SamplerPick sampler_at(const Sampler *sampler, uint64_t epoch, uint64_t step, uint64_t slot);

/* Returns a number for the log that tells whether two runs saw the same order: the sum of the XXH3-64 hashes
 * of (place, sample) over all places of an epoch. The same for every world size, batch and thread count. */
uint64_t sampler_order_digest(const Sampler *sampler, uint64_t epoch);

/* Returns what the options below say unless given: a permutation. */
Sampling sampling_default(void);
/* Writes the rows of the options that set fields of *sampling, and returns their number. */
size_t sampling_rows(Sampling *sampling, Option *rows);

#endif
