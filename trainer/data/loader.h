/* loader.h - mapped shards to a ring of batches, decoded and augmented by worker threads ahead of the
 * consumer.
 *
 *   Loader *loader = NULL;
 *   loader_new(&loader, &options, &error);
 *   loader_start(loader, 0, epochs * loader_step_count(loader));
 *   const Batch *batch;
 *   while (!(status = loader_next(loader, &batch, &error)) && batch)
 *       use(batch->pixels, batch->labels);               // until the next call
 *   loader_free(&loader);                                // at any time
 *
 * Batches are numbered through the epochs: number b is step b % steps of epoch b / steps. So the workers are
 * already busy with the next epoch while the last one is evaluated, and a run goes on anywhere.
 *
 * A batch is filled by all workers, a few samples each. What is in it follows from (seed, epoch, sample)
 * alone, not from how many workers there are or which was faster.
 *
 * Records are read in place from the mapping; raw pixels are cropped from there without a copy in between.
 * Each record's checksum is tested until it has been right once, before the record is used: a JPEG with a
 * flipped byte may well decode. One that is wrong stays left out, in every epoch.
 *
 * All memory is taken by loader_new, but for what decoders need for an image larger than any before.
 *
 * Threads: one consumer. Workers sleep when the ring is full; nothing spins. */
#ifndef FSHARD_TRAINER_DATA_LOADER_H
#define FSHARD_TRAINER_DATA_LOADER_H

#include "formats/fshard.h"
#include "trainer/data/augment.h"
#include "trainer/data/sampler.h"

typedef struct LoaderOptions {
    const FshSplit *split; /* borrowed, outlives the loader; not empty, every sample labelled */
    Augmentation augmentation;
    uint64_t batch;            /* samples, > 0 */
    uint64_t rank, world_size; /* 0 and 1 for one process */
    uint64_t seed;
    bool training;        /* shuffled and last incomplete batch dropped, or each sample once and padded */
    int workers;          /* > 0 */
    size_t batches_ahead; /* filled while the consumer has one; > 0 */
    bool skip_bad;        /* a sample that cannot be used: note it and go on, or fail */
    uint8_t fill[4]; /* channels values: the pixels of a skipped sample and of padding; the mean is kind to
                        batch norm */
} LoaderOptions;

typedef struct Batch {
    uint64_t epoch, step;
    const uint8_t *pixels;   /* [batch, size, size, channels] u8, 64-byte aligned */
    const int64_t *labels;   /* [batch]; -1: padding, or a skipped sample */
    const uint64_t *samples; /* [batch] index in the split; SAMPLER_PADDING */
    uint64_t valid_count;    /* labels that are not -1 */
} Batch;

typedef struct Loader Loader;

FshStatus loader_new(Loader **loader, const LoaderOptions *options, FshError *error);
/* Stops the workers where they are, frees, sets to NULL; NULL is fine. */
void loader_free(Loader **loader);

/* Steps of one epoch. */
uint64_t loader_step_count(const Loader *loader);
/* The order that it follows. */
const Sampler *loader_sampler(const Loader *loader);
/* Bytes of the ring. */
uint64_t loader_ring_bytes(const Loader *loader);

/* From now on loader_next gives the batches first..first+count-1. What was under way is dropped. */
void loader_start(Loader *loader, uint64_t first, uint64_t count);

/* The next batch; it stays valid until the next call of loader_next or loader_start. NULL after the last.
 * Without skip_bad, fails at the batch that holds a bad sample, with the message of the one that stands first
 * in it: shard, record, key, source, reason. */
FshStatus loader_next(Loader *loader, const Batch **batch, FshError *error);

/* A bad sample that was skipped, each named once however many epochs meet it. Copies the message of problem
 * `number` and returns true, or returns false if there are no more so far. */
bool loader_problem(Loader *loader, uint64_t number, char *message, size_t message_bytes);
/* Different bad samples so far. */
uint64_t loader_problem_count(Loader *loader);

/* Seconds spent in loader_next since loader_new: what the consumer has waited for data. */
double loader_wait_seconds(const Loader *loader);

#endif
