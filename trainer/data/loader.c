#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "common/progress.h"
#include "trainer/data/batch_recipes.h"
#include "trainer/data/batch_slot.h"
#include "trainer/data/sample_recipe.h"

enum {
    CHUNK_MAX =
        16, /* samples that a worker takes at a time: the lock is cheap beside them, the tail is short. Even: pairs to mix
               stay together */
    RECIPES_CHUNK_MAX = 256, /* the same of recipes, which are a third of a microsecond each */
    PROBLEMS_KEPT = 1000     /* messages; beyond that they are only counted */
};

/* One batch of the ring. */
typedef struct Slot {
    Batch batch;        /* what the consumer sees; its arrays are memory's */
    PixelBatch recipes; /* resident: batch.recipes */
    BatchSlot memory;
    uint64_t unfilled;  /* samples that no worker has finished yet */
    uint64_t bad_place; /* lowest place with a failure, UINT64_MAX: none */
    FshError error;     /* of bad_place */
} Slot;

typedef struct Worker {
    pthread_t thread;
    bool started;
    struct Loader *loader;
    SampleLoader *samples;
    double busy_seconds, cpu_seconds; /* as of the last chunk */
    uint64_t page_reads;
} Worker;

/* Samples first..first+count-1 of the batch with this number. */
typedef struct Chunk {
    uint64_t batch_number, first, count;
    Slot *slot;
} Chunk;

struct Loader {
    LoaderOptions options;
    Augmentation *augmentations; /* of epoch 0, 1, …; the last one of all behind */
    size_t augmentation_count;
    Sampler sampler;
    uint64_t step_count;
    SampleChecksums checksums;
    SampleLoader *single; /* of loader_image; made at its first call */
    size_t slot_count;
    Slot *slots;
    Worker *workers;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;   /* there is something to take, or it is time to stop */
    pthread_cond_t ready;  /* a batch is whole, or the last chunk in flight is back */
    bool mutex_made, work_made, ready_made;
    bool stop;
    bool handed_out;                 /* the consumer has batch `consumed` - 1 */
    uint64_t next_batch, next_place; /* the next chunk to take */
    uint64_t end_batch;              /* behind the last one */
    uint64_t consumed;               /* the next one that the consumer gets */
    uint64_t in_flight;              /* chunks taken and not finished */
    uint8_t *bad_seen;               /* a bit for each sample of the split */
    char **problems;                 /* owned */
    uint64_t problem_count;
    LoaderStatistics statistics;
    double wait_seconds; /* the consumer's own */
};

static bool is_whole_images(const Loader *loader)
{
    return loader->options.augmentation.mode == CROP_WHOLE;
}

static bool has_pairs(const Loader *loader)
{
    return loader->options.kind == FSH_KIND_PAIRS;
}

static const Augmentation *augmentation_of(const Loader *loader, uint64_t epoch)
{
    size_t last = loader->augmentation_count - 1;
    return &loader->augmentations[epoch < last ? epoch : last];
}

/* ---- workers ---- */

/* With the mutex held. */
static void note_problem(Loader *loader, uint64_t sample, const FshError *error)
{
    uint8_t bit = (uint8_t)(1U << (sample % 8));
    if (loader->bad_seen[sample / 8] & bit)
        return;
    loader->bad_seen[sample / 8] |= bit;
    if (loader->problem_count < PROBLEMS_KEPT)
        loader->problems[loader->problem_count] = strdup(error->message);
    loader->problem_count++;
}

static void note_failure(Loader *loader, const Chunk *chunk, uint64_t place, uint64_t sample,
                         const FshError *error)
{
    (void)pthread_mutex_lock(&loader->mutex);
    if (loader->options.skip_bad) {
        note_problem(loader, sample, error);
    } else if (place < chunk->slot->bad_place) {
        chunk->slot->bad_place = place;
        chunk->slot->error = *error;
    }
    (void)pthread_mutex_unlock(&loader->mutex);
}

static FshStatus load_sample(Worker *worker, BatchSlot *memory, uint64_t place, uint64_t epoch,
                             uint64_t sample, FshError *error)
{
    const Loader *loader = worker->loader;
    SampleInfo info;
    FshStatus status = sample_loader_open(worker->samples, epoch, sample, &info, error);
    if (!status && is_whole_images(loader))
        status = batch_slot_resize(memory, info.width, info.height, error);
    if (!status)
        status =
            sample_loader_render(worker->samples, augmentation_of(loader, epoch),
                                 batch_slot_pixels(memory, place), batch_slot_target(memory, place), error);
    if (!status)
        batch_slot_take(memory, place, info.label);
    return status;
}

/* The same for pixels that lie in the backend's memory. */
static FshStatus draw_sample(const Loader *loader, BatchSlot *memory, uint64_t place, uint64_t epoch,
                             uint64_t sample, FshError *error)
{
    const ResidentDraw draw = {.split = loader->options.split,
                               .augmentation = augmentation_of(loader, epoch),
                               .fill = loader->options.fill,
                               .seed = loader->options.seed,
                               .epoch = epoch};
    int64_t label = FSH_NO_LABEL;
    FshStatus status = resident_split_draw(loader->options.resident, &draw, sample, &memory->recipes[place],
                                           memory->colours ? &memory->colours[place] : NULL, &label, error);
    if (!status)
        batch_slot_take(memory, place, label);
    return status;
}

static FshStatus fill_place(Worker *worker, BatchSlot *memory, uint64_t place, uint64_t epoch,
                            uint64_t sample, FshError *error)
{
    const Loader *loader = worker->loader;
    if (loader->options.resident)
        return draw_sample(loader, memory, place, epoch, sample, error);
    if (!loader->options.files_store)
        return load_sample(worker, memory, place, epoch, sample, error);
    FshStatus status = batch_recipes_read(memory, place, worker->samples, augmentation_of(loader, epoch),
                                          loader->options.fill, epoch, sample, error);
    sample_loader_stage(worker->samples, SAMPLE_DECODE);
    return status;
}

/* Padding, or a sample that cannot be used. A whole image has no size then. */
static void leave_out(const Loader *loader, BatchSlot *memory, uint64_t place)
{
    if (is_whole_images(loader))
        memory->width = memory->height = 0;
    batch_slot_leave_out(memory, place);
}

static void mix_chunk(Worker *worker, const Chunk *chunk, uint64_t epoch)
{
    const LoaderOptions *options = &worker->loader->options;
    BatchSlot *memory = &chunk->slot->memory;
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place += 2) {
        Random random;
        sample_mixing_random(options->seed, epoch, memory->samples[place], &random);
        batch_slot_mix(memory, &options->mixing, &random, place);
    }
    sample_loader_stage(worker->samples, SAMPLE_AUGMENT);
}

static void fill_chunk(Worker *worker, const Chunk *chunk)
{
    const Loader *loader = worker->loader;
    BatchSlot *memory = &chunk->slot->memory;
    uint64_t epoch = chunk->batch_number / loader->step_count,
             step = chunk->batch_number % loader->step_count;
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place++) {
        memory->samples[place] = sampler_at(&loader->sampler, epoch, step, place);
        if (memory->samples[place] != SAMPLER_PADDING && !loader->options.resident)
            sample_loader_expect(worker->samples, memory->samples[place]);
    }
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place++) {
        uint64_t sample = memory->samples[place];
        FshError error = {0};
        if (sample == SAMPLER_PADDING) {
            leave_out(loader, memory, place);
        } else if (fill_place(worker, memory, place, epoch, sample, &error)) {
            leave_out(loader, memory, place);
            note_failure(worker->loader, chunk, place, sample, &error);
        }
    }
    if (memory->shape.mixes)
        mix_chunk(worker, chunk, epoch);
}

static double thread_cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t thread_page_reads(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* The same, with the thread's own time. */
static void fill_measured(Worker *worker, const Chunk *chunk)
{
    double start = progress_now_seconds(), cpu_start = thread_cpu_seconds();
    uint64_t reads_before = thread_page_reads();
    fill_chunk(worker, chunk);
    worker->busy_seconds = progress_now_seconds() - start;
    worker->cpu_seconds = thread_cpu_seconds() - cpu_start;
    worker->page_reads = thread_page_reads() - reads_before;
}

/* With the mutex held: what the worker has counted moves to the loader. */
static void collect_statistics(Loader *loader, Worker *worker)
{
    SampleStatistics *counted = sample_loader_statistics(worker->samples);
    LoaderStatistics *all = &loader->statistics;
    all->samples.images += counted->images;
    all->samples.stored_bytes += counted->stored_bytes;
    all->samples.pixel_bytes += counted->pixel_bytes;
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++)
        all->samples.seconds[stage] += counted->seconds[stage];
    all->busy_seconds += worker->busy_seconds;
    all->cpu_seconds += worker->cpu_seconds;
    all->page_reads += worker->page_reads;
    *counted = (SampleStatistics){0};
}

/* With the mutex held. */
static bool can_take(const Loader *loader)
{
    return loader->next_batch < loader->end_batch &&
           loader->next_batch < loader->consumed - loader->handed_out + loader->slot_count;
}

/* With the mutex held, where can_take. */
static Chunk take_chunk(Loader *loader)
{
    uint64_t batch = loader->options.batch;
    Slot *slot = &loader->slots[loader->next_batch % loader->slot_count];
    if (loader->next_place == 0) {
        slot->unfilled = batch;
        slot->bad_place = UINT64_MAX;
        slot->memory.width = slot->memory.height =
            augmentation_of(loader, loader->next_batch / loader->step_count)->size;
    }
    uint64_t count = batch / ((uint64_t)loader->options.workers * 2);
    const uint64_t most = loader->options.resident ? RECIPES_CHUNK_MAX : CHUNK_MAX;
    count = count < 1 ? 1 : count > most ? most : count;
    if (slot->memory.shape.mixes && count % 2)
        count++;
    if (count > batch - loader->next_place)
        count = batch - loader->next_place;
    Chunk chunk = {
        .batch_number = loader->next_batch, .first = loader->next_place, .count = count, .slot = slot};
    loader->next_place += count;
    if (loader->next_place == batch) {
        loader->next_place = 0;
        loader->next_batch++;
    }
    loader->in_flight++;
    return chunk;
}

static void *worker_main(void *argument)
{
    Worker *worker = argument;
    Loader *loader = worker->loader;
    (void)pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (!loader->stop && !can_take(loader))
            (void)pthread_cond_wait(&loader->work, &loader->mutex);
        if (loader->stop)
            break;
        Chunk chunk = take_chunk(loader);
        (void)pthread_mutex_unlock(&loader->mutex);
        if (loader->options.measure)
            fill_measured(worker, &chunk);
        else
            fill_chunk(worker, &chunk);
        (void)pthread_mutex_lock(&loader->mutex);
        collect_statistics(loader, worker);
        chunk.slot->unfilled -= chunk.count;
        loader->in_flight--;
        if (chunk.slot->unfilled == 0 || loader->in_flight == 0)
            (void)pthread_cond_signal(&loader->ready);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- life ---- */

static FshStatus make_slot(const Loader *loader, Slot *slot, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    SlotShape shape = {.batch = options->batch,
                       .channels = options->augmentation.channels,
                       .pairs = has_pairs(loader),
                       .mixes = mixing_is_on(&options->mixing),
                       .recipes = options->resident || options->files_store,
                       .files = options->files_store != NULL};
    shape.colours = shape.recipes && (shape.mixes || sample_recipe_has_colours(&options->augmentation));
    uint32_t largest = is_whole_images(loader) ? 1 : 0;
    for (size_t i = 0; i < loader->augmentation_count && !is_whole_images(loader); i++)
        largest = loader->augmentations[i].size > largest ? loader->augmentations[i].size : largest;
    memcpy(shape.fill, options->fill, sizeof shape.fill);
    FshStatus status = batch_slot_make(&slot->memory, &shape, largest, largest, error);
    slot->recipes = (PixelBatch){.count = shape.batch,
                                 .channels = shape.channels,
                                 .recipes = slot->memory.recipes,
                                 .colours = slot->memory.colours,
                                 .files = {slot->memory.files[0], slot->memory.files[1]},
                                 .samples = slot->memory.samples,
                                 .seed = options->seed};
    memcpy(slot->recipes.fill, options->fill, sizeof slot->recipes.fill);
    memcpy(slot->recipes.erased_deviation, options->augmentation.erasing.deviation,
           sizeof slot->recipes.erased_deviation);
    return status;
}

static FshStatus make_samples(const Loader *loader, SampleLoader **samples, FshError *error)
{
    SampleOptions options = {.split = loader->options.split,
                             .kind = loader->options.kind,
                             .input_field = loader->options.input_field,
                             .target_field = loader->options.target_field,
                             .seed = loader->options.seed,
                             .measure = loader->options.measure};
    memcpy(options.fill, loader->options.fill, sizeof options.fill);
    return sample_loader_new(samples, &options, &loader->checksums, error);
}

static FshStatus make_worker(Loader *loader, Worker *worker, FshError *error)
{
    worker->loader = loader;
    FshStatus status = make_samples(loader, &worker->samples, error);
    if (status)
        return status;
    int failure = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failure)
        return fsh_error_system(error, failure, "cannot start %d loader threads; try fewer --workers",
                                loader->options.workers);
    worker->started = true;
    return FSH_OK;
}

/* An augmentation for each epoch that has a size of its own. */
static FshStatus make_augmentations(Loader *loader, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    loader->augmentation_count = options->epoch_size_count ? options->epoch_size_count : 1;
    loader->augmentations = calloc(loader->augmentation_count, sizeof *loader->augmentations);
    if (!loader->augmentations)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    loader->augmentations[0] = options->augmentation;
    for (size_t i = 0; i < options->epoch_size_count; i++)
        loader->augmentations[i] = augment_at_size(&options->augmentation, options->epoch_sizes[i]);
    loader->options.epoch_sizes = NULL; /* the caller's */
    return FSH_OK;
}

static FshStatus make_loader(Loader *loader, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    loader->mutex_made = pthread_mutex_init(&loader->mutex, NULL) == 0;
    loader->work_made = pthread_cond_init(&loader->work, NULL) == 0;
    loader->ready_made = pthread_cond_init(&loader->ready, NULL) == 0;
    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    loader->workers = calloc((size_t)options->workers, sizeof *loader->workers);
    loader->bad_seen = calloc(options->split->sample_count / 8 + 1, 1);
    loader->problems = calloc(PROBLEMS_KEPT, sizeof *loader->problems);
    if (!loader->mutex_made || !loader->work_made || !loader->ready_made || !loader->slots ||
        !loader->workers || !loader->bad_seen || !loader->problems)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    FshStatus status = sample_checksums_make(&loader->checksums, options->split->sample_count, error);
    if (!status)
        status = make_augmentations(loader, error);
    for (size_t i = 0; !status && i < loader->slot_count; i++)
        status = make_slot(loader, &loader->slots[i], error);
    for (int i = 0; !status && i < options->workers; i++)
        status = make_worker(loader, &loader->workers[i], error);
    return status;
}

static FshStatus check_options(const Loader *loader, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    bool pairs = has_pairs(loader), whole = is_whole_images(loader);
    bool mode_of_pairs = whole || options->augmentation.mode == CROP_RANDOM;
    if (pairs != mode_of_pairs)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             pairs ? "pairs are cropped as they are, or taken whole, but not resized"
                                   : "classes are cropped to one size, not taken as they are");
    if (pairs && (mixing_is_on(&options->mixing) || options->augmentation.erasing.probability > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "mixup, cutmix and random erasing are for classes, not for pairs");
    if (whole && (options->resident || options->files_store))
        return fsh_error_set(error, FSH_ERR_USAGE, "whole images are not made on the device");
    if (whole && options->batch != 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "whole images come one to a batch, not %llu",
                             (unsigned long long)options->batch);
    for (size_t i = 0; i < options->epoch_size_count; i++)
        if (whole || options->epoch_sizes[i] == 0)
            return fsh_error_set(error, FSH_ERR_USAGE, "the crop of epoch %zu cannot be %u pixels", i,
                                 options->epoch_sizes[i]);
    if (mixing_is_on(&options->mixing) && options->batch % 2)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "mixup and cutmix mix images two by two: --batch-size must be even, not %llu",
                             (unsigned long long)options->batch);
    if (loader->step_count == 0)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: split '%s' has %llu samples, fewer than a batch of %llu; lower --batch-size",
            fsh_path(options->split->dataset), options->split->info->name,
            (unsigned long long)options->split->sample_count,
            (unsigned long long)(options->batch * options->world_size));
    return FSH_OK;
}

FshStatus loader_new(Loader **loader, const LoaderOptions *options, FshError *error)
{
    *loader = calloc(1, sizeof **loader);
    if (!*loader)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    Loader *made = *loader;
    made->options = *options;
    if (!made->options.kind)
        made->options.kind = FSH_KIND_CLASSES;
    made->sampler = (Sampler){.sample_count = options->split->sample_count,
                              .batch = options->batch,
                              .rank = options->rank,
                              .world_size = options->world_size,
                              .seed = options->seed,
                              .training = options->training};
    made->step_count = sampler_step_count(&made->sampler);
    made->slot_count = options->batches_ahead + 1;
    FshStatus status = check_options(made, error);
    if (!status)
        status = make_loader(made, error);
    if (status)
        loader_free(loader);
    return status;
}

static void stop_workers(Loader *loader)
{
    if (!loader->mutex_made || !loader->workers)
        return;
    (void)pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->options.workers; i++) {
        Worker *worker = &loader->workers[i];
        if (worker->started)
            (void)pthread_join(worker->thread, NULL);
        sample_loader_free(&worker->samples);
    }
}

void loader_free(Loader **loader)
{
    Loader *freed = *loader;
    if (!freed)
        return;
    stop_workers(freed);
    sample_loader_free(&freed->single);
    for (size_t i = 0; freed->slots && i < freed->slot_count; i++)
        batch_slot_free(&freed->slots[i].memory);
    for (size_t i = 0; freed->problems && i < PROBLEMS_KEPT; i++)
        free(freed->problems[i]);
    if (freed->ready_made)
        (void)pthread_cond_destroy(&freed->ready);
    if (freed->work_made)
        (void)pthread_cond_destroy(&freed->work);
    if (freed->mutex_made)
        (void)pthread_mutex_destroy(&freed->mutex);
    free(freed->problems);
    free(freed->bad_seen);
    free(freed->augmentations);
    sample_checksums_free(&freed->checksums);
    free(freed->slots);
    free(freed->workers);
    free(freed);
    *loader = NULL;
}

/* ---- the consumer ---- */

FshStatus loader_image(Loader *loader, const Batch *batch, uint64_t place, uint8_t *pixels, uint8_t *target,
                       FshError *error)
{
    SampleInfo info;
    FshStatus status = FSH_OK;
    if (batch->samples[place] == SAMPLER_PADDING)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "place %llu of the batch is empty",
                             (unsigned long long)place);
    if (!loader->single)
        status = make_samples(loader, &loader->single, error);
    if (!status)
        status = sample_loader_open(loader->single, batch->epoch, batch->samples[place], &info, error);
    return status ? status
                  : sample_loader_render(loader->single, augmentation_of(loader, batch->epoch), pixels,
                                         target, error);
}

uint64_t loader_step_count(const Loader *loader)
{
    return loader->step_count;
}

uint32_t loader_epoch_size(const Loader *loader, uint64_t epoch)
{
    return augmentation_of(loader, epoch)->size;
}

const Sampler *loader_sampler(const Loader *loader)
{
    return &loader->sampler;
}

uint64_t loader_ring_bytes(const Loader *loader)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < loader->slot_count; i++)
        bytes += batch_slot_bytes(&loader->slots[i].memory);
    return bytes;
}

void loader_start(Loader *loader, uint64_t first, uint64_t count)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->end_batch = 0; /* nothing more to take */
    while (loader->in_flight > 0)
        (void)pthread_cond_wait(&loader->ready, &loader->mutex);
    loader->handed_out = false;
    loader->next_place = 0;
    loader->next_batch = loader->consumed = first;
    loader->end_batch = first + count;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* With the mutex held: is batch `consumed` whole? */
static bool is_whole(const Loader *loader)
{
    bool begun = loader->next_batch > loader->consumed ||
                 (loader->next_batch == loader->consumed && loader->next_place > 0);
    return begun && loader->slots[loader->consumed % loader->slot_count].unfilled == 0;
}

/* With the mutex held: gives back the last batch, waits for the next; NULL behind the last one. */
static Slot *take_slot(Loader *loader)
{
    if (loader->handed_out) {
        loader->handed_out = false;
        (void)pthread_cond_broadcast(&loader->work);
    }
    if (loader->consumed >= loader->end_batch)
        return NULL;
    while (!is_whole(loader))
        (void)pthread_cond_wait(&loader->ready, &loader->mutex);
    loader->handed_out = true;
    return &loader->slots[loader->consumed++ % loader->slot_count];
}

FshStatus loader_next(Loader *loader, const Batch **batch, FshError *error)
{
    double before = progress_now_seconds();
    *batch = NULL;
    (void)pthread_mutex_lock(&loader->mutex);
    uint64_t number = loader->consumed;
    Slot *slot = take_slot(loader);
    (void)pthread_mutex_unlock(&loader->mutex);
    loader->wait_seconds += progress_now_seconds() - before;
    if (!slot)
        return FSH_OK;
    if (slot->bad_place != UINT64_MAX) {
        if (error)
            *error = slot->error;
        return slot->error.status;
    }
    BatchSlot *memory = &slot->memory;
    if (loader->options.files_store)
        slot->recipes.stored_bytes = batch_recipes_place_files(memory);
    slot->recipes.width = memory->width;
    slot->recipes.height = memory->height;
    slot->batch = (Batch){.epoch = number / loader->step_count,
                          .step = number % loader->step_count,
                          .height = memory->height,
                          .width = memory->width,
                          .pixels = memory->pixels,
                          .target = memory->target,
                          .recipes = memory->shape.recipes ? &slot->recipes : NULL,
                          .store = loader->options.resident ? loader->options.resident->store
                                                            : loader->options.files_store,
                          .labels = has_pairs(loader) ? NULL : memory->labels,
                          .labels_mixed = memory->labels_mixed,
                          .mix = memory->mix,
                          .valid = memory->valid,
                          .samples = memory->samples,
                          .valid_count = batch_slot_valid_count(memory)};
    *batch = &slot->batch;
    return FSH_OK;
}

bool loader_problem(Loader *loader, uint64_t number, char *message, size_t message_bytes)
{
    (void)pthread_mutex_lock(&loader->mutex);
    bool there = number < loader->problem_count && number < PROBLEMS_KEPT;
    if (there) {
        const char *text = loader->problems[number];
        (void)snprintf(message, message_bytes, "%s", text ? text : "out of memory for the message");
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return there;
}

uint64_t loader_problem_count(Loader *loader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    uint64_t count = loader->problem_count;
    (void)pthread_mutex_unlock(&loader->mutex);
    return count;
}

double loader_wait_seconds(const Loader *loader)
{
    return loader->wait_seconds;
}

void loader_statistics(Loader *loader, LoaderStatistics *statistics)
{
    (void)pthread_mutex_lock(&loader->mutex);
    *statistics = loader->statistics;
    (void)pthread_mutex_unlock(&loader->mutex);
}
