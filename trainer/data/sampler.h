/* sampler.h - which sample stands at which place of which batch.
 *
 * The order of an epoch is a permutation of the whole split, computed by random_permute(seed, epoch) and
 * never stored: a split of a billion samples costs nothing, and any place of any epoch is known without
 * those before it (resume).
 *
 * One step takes batch * world_size places; rank r has the r-th run of `batch` of them. So the samples of
 * a step depend on the total batch alone, not on how many ranks share it.
 *
 * Training drops the samples left over when the split is no multiple of the total batch (others in each
 * epoch), and of the steps of an update: an epoch is a whole number of updates, however ranks and steps
 * share the images of one. Evaluation takes the samples as they are stored, each exactly once; places
 * after the last one are SAMPLER_PADDING.
 *
 * Threads: a Sampler is constant; any number of threads may ask. */
#ifndef FSHARD_TRAINER_DATA_SAMPLER_H
#define FSHARD_TRAINER_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_PADDING UINT64_MAX

typedef struct Sampler {
    uint64_t sample_count; /* of the split */
    uint64_t batch;        /* per rank, > 0 */
    uint64_t rank, world_size;
    uint64_t update_steps; /* of training: whose gradients make one update; 0: 1 */
    uint64_t seed;
    bool training; /* shuffled, last incomplete step dropped; else as stored, padded */
} Sampler;

/* Returns the steps of one epoch; 0 in training with fewer samples than one step takes. An epoch that is
 * shorter than an update keeps all its steps: updates then reach over its end. */
uint64_t sampler_step_count(const Sampler *sampler);

/* Returns the sample at place `slot` (0..batch-1) of this rank's batch in step `step` of `epoch`, or
 * SAMPLER_PADDING. */
uint64_t sampler_at(const Sampler *sampler, uint64_t epoch, uint64_t step, uint64_t slot);

/* Returns a number for the log that tells whether two runs saw the same order: the sum of the XXH3-64 hashes
 * of (place, sample) over the whole permutation of an epoch. The same for every world size, batch and thread
 * count. */
uint64_t sampler_order_digest(const Sampler *sampler, uint64_t epoch);

#endif
