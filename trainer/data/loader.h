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
 * A batch is filled by all workers, a few samples each. What is in it follows from (seed, turn, sample)
 * alone, not from how many workers there are or which was faster.
 *
 * Records are read in place from the mapping; raw pixels are cropped from there without a copy in between.
 * Each record's checksum is tested until it has been right once, before the record is used: a JPEG with a
 * flipped byte may well decode. One that is wrong stays left out, in every epoch.
 *
 * Mixing (mixup, CutMix) is between places p and p ^ 1 of the total batch, drawn from the sample at the lower
 * one: the same for any number of ranks, but for repeats (sampler.h). A skipped sample is not mixed with.
 *
 * The crop's size may change from epoch to epoch. Whole images (CROP_WHOLE: evaluation of pairs) come one to
 * a batch, each in its own size, decoded in full.
 *
 * All memory is taken by loader_new, but for what decoders need for an image larger than any before, and for
 * whole images.
 *
 * Threads: one consumer. Workers sleep when the ring is full, and while they rest; nothing spins. */
#ifndef FSHARD_TRAINER_DATA_LOADER_H
#define FSHARD_TRAINER_DATA_LOADER_H

#include "formats/fshard.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"
#include "trainer/data/pixel_source.h"
#include "trainer/data/sample_labels.h"
#include "trainer/data/sampler.h"

typedef struct LoaderOptions {
    const FshSplit *split; /* borrowed, outlives the loader; not empty; of classes: every sample labelled,
                              but for inputs_alone */
    FshKind kind;          /* 0: FSH_KIND_CLASSES */
    unsigned input_field, target_field; /* of pairs and masks: TrainingData has them; classes: 0 */
    uint32_t mask_classes;              /* of masks: SampleOptions' */
    const int32_t *label_places;        /* as TrainingData's; borrowed, outlives the loader */
    const SampleLabels *labels;         /* of the split, in place of its records'; borrowed; NULL: none */
    size_t row_width;                   /* of rows of targets: the network's outputs; 0: labels */
    bool inputs_alone;                  /* no sample has a label or a target: evaluation alone */
    Augmentation augmentation; /* pairs: CROP_RANDOM or CROP_WHOLE; masks: CROP_SCALED or CROP_WHOLE */
    Mixing mixing;             /* classes; wants an even batch */
    /* The crop's edge in epoch e is epoch_sizes[e], after the last one epoch_sizes[epoch_size_count
     * - 1], the rest of the augmentation scaled with it; NULL and 0: augmentation.size in all. Copied. */
    const uint32_t *epoch_sizes;
    size_t epoch_size_count;
    uint64_t batch;            /* samples, > 0; CROP_WHOLE: 1 */
    uint64_t rank, world_size; /* 0 and 1 for one process */
    uint64_t update_steps;     /* of training: as Sampler's */
    Sampling sampling;         /* of training */
    /* Of training on several sets: how often each is drawn (set_order.h); borrowed; NULL: each sample once */
    const double *set_weights;
    uint64_t seed;
    bool training; /* shuffled and last incomplete batch dropped, or each sample once and padded */
    int workers;   /* threads that take part, > 0 */
    /* Threads that there are: they join, and rest again, by what is waited for (worker_control.h). Not more
     * than workers: those alone, all the time. */
    int workers_most;
    size_t batches_ahead; /* filled while the consumer has one; > 0 */
    bool skip_bad;        /* a sample that cannot be used: note it and go on, or fail */
    /* channels values: the pixels of a skipped sample, of padding and of what is erased; the mean is kind to
     * batch norm */
    uint8_t fill[4];
    bool keep_last; /* of training: as Sampler's */
    /* The consumer lends the memory of pixels and targets (loader_lend); not of whole images. */
    bool lends;
    /* Called by the thread that has finished places first..first+count-1 of the batch in a slot of the ring,
     * which are its own to read; NULL: nothing is called. */
    void (*filled)(void *context, size_t slot, const BatchSlot *memory, uint64_t first, uint64_t count);
    void *filled_context;
    bool measure; /* where the time goes, for loader_statistics, until loader_end_measuring */
    /* What samples are rendered from. Borrowed, of the same split; may be loaded later, before loader_start.
     * NULL: records. */
    const PixelSource *source;
} LoaderOptions;

typedef struct Batch {
    uint64_t epoch, step;
    size_t slot; /* where it stands in the ring: 0..batches_ahead */
    /* of each image: the crop's edge in this epoch; CROP_WHOLE: the image's own, 0 if it was skipped */
    uint32_t height, width;
    const uint8_t *pixels; /* [batch, height, width, channels] u8, 64-byte aligned; recipes: NULL */
    /* pairs: the same for what shall come out; masks: [batch, height, width, 1]; classes, inputs_alone,
     * recipes: NULL */
    const uint8_t *target;
    /* of sources that leave the pixels to a backend: what pixels and target are to be made from, with store;
     * else NULL */
    const PixelBatch *recipes;
    PixelStore *store;
    const int64_t
        *labels;          /* [batch]; -1: padding, or a skipped sample; pairs, masks, rows of targets: NULL */
    const float *targets; /* [batch, row_width] rows of targets, mixed where the images are; else NULL */
    /* With mixing, else NULL: the label of the sample at place p ^ 1, and the share of the image (0..1) that
     * is labels'. What is not mixed has its own label in both, and share 1. */
    const int64_t *labels_mixed; /* [batch] */
    const float *mix;            /* [batch] */
    const float *valid;          /* [batch] 1, or 0: padding, or a skipped sample */
    const uint64_t *samples;     /* [batch] index in the split; SAMPLER_PADDING */
    const uint64_t *turns;       /* [batch] SamplerPick's */
    uint64_t valid_count;        /* samples that are neither padding nor skipped */
} Batch;

typedef struct Loader Loader;

/* Makes a loader and starts its threads. FSH_ERR_MISMATCH: training with fewer samples than the total batch.
 * FSH_ERR_USAGE: options that contradict each other (an odd batch to mix, whole images in batches, a kind of
 * crop that is not for this kind of data). FSH_ERR_MEMORY, FSH_ERR_SYSTEM. On failure *loader is NULL. */
FshStatus loader_new(Loader **loader, const LoaderOptions *options, FshError *error);
/* Stops the workers where they are, frees the loader and sets *loader to NULL; NULL is fine. */
void loader_free(Loader **loader);

/* Renders the image at a place of the batch in hand as the batch has it, but for mixing: [height, width,
 * channels], target too for pairs (else NULL). It is rendered anew, for batches of recipes from its record: a
 * few at a time. */
FshStatus loader_image(Loader *loader, const Batch *batch, uint64_t place, uint8_t *pixels, uint8_t *target,
                       FshError *error);

/* Renders these places of the batch in hand again, whose files the store's backend has refused
 * (pixel_store_refused): as pixels, now and whenever their samples come again. Then the batch can be written
 * again. A file that cannot be decoded here either is left out with a problem, valid_count less by one
 * (skip_bad), or is the failure, named. */
FshStatus loader_decode_refused(Loader *loader, const uint64_t *places, size_t count, FshError *error);

/* Returns the steps of one epoch, > 0. */
uint64_t loader_step_count(const Loader *loader);
/* Returns the order that the loader follows. */
const Sampler *loader_sampler(const Loader *loader);
/* Returns the bytes of the ring; of CROP_WHOLE those that it takes so far. */
uint64_t loader_ring_bytes(const Loader *loader);

/* Lends a slot of the ring memory for its pixels, and for targets (pairs; else NULL): loader_lent_bytes each,
 * 64-byte aligned, the caller's to free after the loader. All slots before the first loader_start; later that
 * of the batch in hand, whose pixels and target are the caller's again from then on. */
void loader_lend(Loader *loader, size_t slot, uint8_t *pixels, uint8_t *target);
/* Returns the bytes that a batch's pixels take at the largest size. */
size_t loader_lent_bytes(const Loader *loader);

/* Lets loader_next give the batches first..first+count-1 from now on. Drops what was under way. */
void loader_start(Loader *loader, uint64_t first, uint64_t count);

/* Waits so long for the next batch. Returns whether loader_next has not to wait: the batch is there, or there
 * are no more. Gives back the batch in hand, as loader_next does. */
bool loader_wait(Loader *loader, double seconds);

/* Sets *batch to the next batch, valid until the next call of loader_next or loader_start; NULL after the
 * last. Without skip_bad, fails at the batch that holds a bad sample, with the message of the one that stands
 * first in it: shard, record, key, source, reason. */
FshStatus loader_next(Loader *loader, const Batch **batch, FshError *error);

/* Copies the message of problem `number` and returns true; returns false if there are no more so far. A
 * problem is a sample that was skipped, named once however many epochs meet it. */
bool loader_problem(Loader *loader, uint64_t number, char *message, size_t message_bytes);
/* Returns how many different samples were skipped so far. */
uint64_t loader_problem_count(Loader *loader);

/* Returns the seconds that the consumer has spent in loader_next since loader_new. */
double loader_wait_seconds(const Loader *loader);
/* Returns how many workers take part now. */
int loader_active_workers(Loader *loader);

/* What the workers have done since loader_new, in chunks that are finished. */
typedef struct LoaderStatistics {
    SampleStatistics samples;
    double busy_seconds; /* of all workers together, at work (measure) */
    double cpu_seconds;  /* of them on a processor: the rest waited, for a disk or for its turn (measure) */
    uint64_t page_reads; /* pages that a worker waited for (major faults; measure) */
} LoaderStatistics;

/* Measures no longer where the time goes. */
void loader_end_measuring(Loader *loader);
/* Copies the statistics. */
void loader_statistics(Loader *loader, LoaderStatistics *statistics);

#endif
