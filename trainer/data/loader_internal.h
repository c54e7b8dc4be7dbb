/* loader_internal.h - what loader.c (life, the consumer) and loader_worker.c (the threads that fill batches)
 * share.
 *
 * Threads: as at each member. */
#ifndef FSHARD_TRAINER_DATA_LOADER_INTERNAL_H
#define FSHARD_TRAINER_DATA_LOADER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/data/batch_slot.h"
#include "trainer/data/loader.h"
#include "trainer/data/worker_control.h"

enum { LOADER_PROBLEMS_KEPT = 1000 }; /* messages; beyond that they are only counted */

/* A batch of the ring. */
typedef struct LoaderSlot {
    Batch batch;        /* what the consumer sees; its arrays are memory's */
    PixelBatch recipes; /* batch.recipes, where the source has them */
    BatchSlot memory;
    uint64_t unfilled;  /* samples that no worker has finished yet */
    uint64_t bad_place; /* lowest place with a failure, UINT64_MAX: none */
    FshError error;     /* of bad_place */
} LoaderSlot;

typedef struct LoaderWorker {
    pthread_t thread;
    bool started;
    int index; /* it takes part while that is less than control.active */
    struct Loader *loader;
    SampleLoader *samples;
    double busy_seconds, cpu_seconds; /* as of the last chunk */
    uint64_t page_reads;
} LoaderWorker;

struct Loader {
    LoaderOptions options;
    const PixelSource *source;   /* options.source, or that of records */
    Augmentation *augmentations; /* of epoch 0, 1, …; the last one serves all later epochs */
    size_t augmentation_count;
    SetOrder sets; /* of the sampler, where it has some */
    Sampler sampler;
    ClassOrder classes; /* of a balanced sampler, else empty */
    uint64_t step_count;
    SampleChecksums checksums;
    SampleLoader *single; /* of the consumer's thread; NULL before its first use */
    size_t slot_count;
    LoaderSlot *slots;
    LoaderWorker *workers;

    pthread_mutex_t mutex; /* guards every field below it */
    pthread_cond_t work;   /* there is something to take, or it is time to stop */
    pthread_cond_t join;   /* more workers take part, or it is time to stop */
    /* signalled when a batch is whole, and when the last chunk in flight is back while loader_start waits */
    pthread_cond_t ready;
    bool mutex_made, work_made, join_made, ready_made;
    bool stop;
    bool measures;                   /* until loader_end_measuring */
    bool handed_out;                 /* the consumer has batch `consumed` - 1 */
    uint64_t next_batch, next_place; /* the next chunk to take */
    uint64_t end_batch;              /* one more than the last batch */
    uint64_t consumed;               /* number of the next batch that the consumer gets */
    uint64_t in_flight;              /* chunks taken and not finished */
    uint8_t *bad_seen;               /* a bit for each sample of the split */
    char **problems;                 /* owned */
    uint64_t problem_count;
    LoaderStatistics statistics;
    WorkerControl control;
    WorkerWindow window; /* measured so far, but for .seconds */
    uint64_t window_batches;
    double window_start;  /* seconds of the clock, as all that follow */
    int waiting;          /* workers that take part and wait for room */
    double waiting_since; /* when that number changed */
    double asked_at;      /* when loader_wait was called for the next batch; 0: it was not; its own */
    double handed_out_at; /* when the consumer got its last batch; its own, as wait_seconds */
    double wait_seconds;
};

static inline bool loader_has_whole_images(const Loader *loader)
{
    return loader->options.augmentation.mode == CROP_WHOLE;
}

/* Returns whether each image has another side: it is a pair, or has a mask. */
static inline bool loader_has_pairs(const Loader *loader)
{
    return loader->options.kind != FSH_KIND_CLASSES;
}

static inline const Augmentation *loader_augmentation(const Loader *loader, uint64_t epoch)
{
    size_t last = loader->augmentation_count - 1;
    return &loader->augmentations[epoch < last ? epoch : last];
}

/* Returns how the sample of a turn is to look in an epoch. */
static inline SampleView loader_view(const Loader *loader, uint64_t epoch, uint64_t turn)
{
    return (SampleView){.augmentation = loader_augmentation(loader, epoch),
                        .fill = loader->options.fill,
                        .seed = loader->options.seed,
                        .turn = turn};
}

/* Counts a sample that is left out, and keeps its message, once. Called with the mutex held. */
void loader_note_problem(Loader *loader, uint64_t sample, const FshError *error);
/* Writes the row of targets of the sample at a place; does nothing where there are none, or it was left
 * out. */
void loader_take_row(const Loader *loader, BatchSlot *memory, uint64_t place);
/* Mixes places first and first + 1 of the batch with this number. Recipes may be mixed again: nothing of the
 * first time stays. */
void loader_mix_pair(const Loader *loader, BatchSlot *memory, uint64_t batch_number, uint64_t first);

/* Notes that so many more workers wait for room, or fewer (-1). Called with the mutex held. */
void loader_note_waiting(Loader *loader, int more);

/* Fills batches in a worker's thread until loader->stop. argument: its LoaderWorker. Returns NULL. */
void *loader_worker_main(void *argument);

#endif
