#include "trainer/data/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/progress.h"
#include "trainer/data/loader_internal.h"

static const double window_seconds = 0.1; /* of one window of worker_control.h, at least */

/* ---- life ---- */

static FshStatus make_slot(const Loader *loader, LoaderSlot *slot, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    SlotShape shape = {.batch = options->batch,
                       .channels = options->augmentation.channels,
                       .pairs = loader_has_pairs(loader) && !options->inputs_alone,
                       .masks = options->kind == FSH_KIND_MASKS,
                       .mixes = mixing_is_on(&options->mixing),
                       .row_width = options->row_width,
                       .recipes = loader->source->type->recipes,
                       .files = loader->source->type->files,
                       .lent = options->lends};
    shape.operations = shape.recipes && sample_recipe_has_operations(&options->augmentation);
    shape.colours = shape.recipes && (shape.mixes || sample_recipe_has_colours(&options->augmentation));
    uint32_t largest = loader_has_whole_images(loader) ? 1 : 0;
    for (size_t i = 0; i < loader->augmentation_count && !loader_has_whole_images(loader); i++)
        largest = loader->augmentations[i].size > largest ? loader->augmentations[i].size : largest;
    memcpy(shape.fill, options->fill, sizeof shape.fill);
    FshStatus status = batch_slot_make(&slot->memory, &shape, largest, largest, error);
    slot->recipes = (PixelBatch){.count = shape.batch,
                                 .channels = shape.channels,
                                 .recipes = slot->memory.recipes,
                                 .operations = slot->memory.operations,
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
                             .mask_classes = loader->options.mask_classes,
                             .label_places = loader->options.label_places,
                             .labels = loader->options.labels,
                             .inputs_alone = loader->options.inputs_alone,
                             .seed = loader->options.seed};
    memcpy(options.fill, loader->options.fill, sizeof options.fill);
    return sample_loader_new(samples, &options, &loader->checksums, error);
}

static FshStatus make_worker(Loader *loader, int index, FshError *error)
{
    LoaderWorker *worker = &loader->workers[index];
    worker->index = index;
    worker->loader = loader;
    FshStatus status = make_samples(loader, &worker->samples, error);
    if (status)
        return status;
    int failure = pthread_create(&worker->thread, NULL, loader_worker_main, worker);
    if (failure)
        return fsh_error_system(error, failure, "cannot start %d loader threads; try fewer --workers",
                                loader->control.most);
    worker->started = true;
    return FSH_OK;
}

/* Makes an augmentation for each epoch that has a size of its own. */
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
    loader->join_made = pthread_cond_init(&loader->join, NULL) == 0;
    loader->ready_made = pthread_cond_init(&loader->ready, NULL) == 0;
    loader->slots = calloc(loader->slot_count, sizeof *loader->slots);
    loader->workers = calloc((size_t)loader->control.most, sizeof *loader->workers);
    loader->bad_seen = calloc(options->split->sample_count / 8 + 1, 1);
    loader->problems = calloc(LOADER_PROBLEMS_KEPT, sizeof *loader->problems);
    if (!loader->mutex_made || !loader->work_made || !loader->join_made || !loader->ready_made ||
        !loader->slots || !loader->workers || !loader->bad_seen || !loader->problems)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    FshStatus status = sample_checksums_make(&loader->checksums, options->split->sample_count, error);
    if (!status)
        status = make_augmentations(loader, error);
    if (!status && options->training && options->sampling.kind == SAMPLER_BALANCED) {
        status = class_order_make(&loader->classes, options->split, options->labels, error);
        loader->sampler.classes = &loader->classes;
    }
    for (size_t i = 0; !status && i < loader->slot_count; i++)
        status = make_slot(loader, &loader->slots[i], error);
    for (int i = 0; !status && i < loader->control.most; i++)
        status = make_worker(loader, i, error);
    return status;
}

static FshStatus check_options(const Loader *loader, FshError *error)
{
    const LoaderOptions *options = &loader->options;
    bool pairs = loader_has_pairs(loader), whole = loader_has_whole_images(loader);
    const bool masks = options->kind == FSH_KIND_MASKS;
    bool mode_of_pairs = whole || options->augmentation.mode == (masks ? CROP_SCALED : CROP_RANDOM);
    if (masks && !mode_of_pairs)
        return fsh_error_set(error, FSH_ERR_USAGE, "masks are resized and cropped, or taken whole");
    if (masks && loader->source->type->recipes)
        return fsh_error_set(error, FSH_ERR_USAGE, "masks are not made on the device");
    if (pairs != mode_of_pairs)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             pairs ? "pairs are cropped as they are, or taken whole, but not resized"
                                   : "classes are cropped to one size, not taken as they are");
    if (options->inputs_alone && options->training)
        return fsh_error_set(error, FSH_ERR_USAGE, "images without labels and targets teach nothing");
    if (pairs && (mixing_is_on(&options->mixing) || options->augmentation.erasing.probability > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "mixup, cutmix and random erasing are for classes, not for %s",
                             masks ? "masks" : "pairs");
    if (whole && !loader->source->type->whole)
        return fsh_error_set(error, FSH_ERR_USAGE, "whole images are not made on the device");
    if (whole && options->batch != 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "whole images come one to a batch, not %llu",
                             (unsigned long long)options->batch);
    if (options->lends && (whole || loader->source->type->recipes))
        return fsh_error_set(error, FSH_ERR_USAGE, "memory is lent for images of one size, made here");
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

/* Gives the sampler the order of several sets, where they are drawn by weights, or evaluated apart. */
static FshStatus order_sets(Loader *made, FshError *error)
{
    const LoaderOptions *options = &made->options;
    const bool several = fsh_member_count(options->split->dataset) > 1;
    FshStatus status = FSH_OK;
    if (!several || (options->training && !options->set_weights))
        return FSH_OK;
    status = options->training
                 ? set_order_weighted(&made->sets, options->split, options->set_weights, error)
                 : set_order_apart(&made->sets, options->split, options->batch * options->world_size, error);
    if (status)
        return status;
    made->sampler.sets = &made->sets;
    made->sampler.sample_count = made->sets.places[made->sets.count];
    return FSH_OK;
}

FshStatus loader_new(Loader **loader, const LoaderOptions *options, FshError *error)
{
    *loader = calloc(1, sizeof **loader);
    if (!*loader)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    Loader *made = *loader;
    made->options = *options;
    made->source = options->source ? options->source : pixel_source_plain();
    if (!made->options.kind)
        made->options.kind = FSH_KIND_CLASSES;
    made->sampler = (Sampler){.sample_count = options->split->sample_count,
                              .batch = options->batch,
                              .rank = options->rank,
                              .world_size = options->world_size,
                              .update_steps = options->update_steps,
                              .seed = options->seed,
                              .training = options->training,
                              .keep_last = options->keep_last};
    if (options->training && options->sampling.repeats > 1)
        made->sampler.repeats = (uint64_t)options->sampling.repeats;
    FshStatus status = order_sets(made, error);
    made->step_count = sampler_step_count(&made->sampler);
    made->slot_count = options->batches_ahead + 1;
    made->measures = options->measure;
    made->control = worker_control_start(options->workers, options->workers_most > options->workers
                                                               ? options->workers_most
                                                               : options->workers);
    if (!status)
        status = check_options(made, error);
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
    (void)pthread_cond_broadcast(&loader->join);
    (void)pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->control.most; i++) {
        LoaderWorker *worker = &loader->workers[i];
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
    for (size_t i = 0; freed->problems && i < LOADER_PROBLEMS_KEPT; i++)
        free(freed->problems[i]);
    if (freed->ready_made)
        (void)pthread_cond_destroy(&freed->ready);
    if (freed->work_made)
        (void)pthread_cond_destroy(&freed->work);
    if (freed->join_made)
        (void)pthread_cond_destroy(&freed->join);
    if (freed->mutex_made)
        (void)pthread_mutex_destroy(&freed->mutex);
    free(freed->problems);
    free(freed->bad_seen);
    free(freed->augmentations);
    class_order_free(&freed->classes);
    set_order_free(&freed->sets);
    sample_checksums_free(&freed->checksums);
    free(freed->slots);
    free(freed->workers);
    free(freed);
    *loader = NULL;
}

/* ---- the consumer ---- */

/* Sets *single_ret to the decoder of the consumer's thread, which is made at its first use. */
static FshStatus open_single(Loader *loader, SampleLoader **single_ret, FshError *error)
{
    FshStatus status = loader->single ? FSH_OK : make_samples(loader, &loader->single, error);
    *single_ret = loader->single;
    return status;
}

FshStatus loader_image(Loader *loader, const Batch *batch, uint64_t place, uint8_t *pixels, uint8_t *target,
                       FshError *error)
{
    SampleInfo info;
    if (batch->samples[place] == SAMPLER_PADDING)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "place %llu of the batch is empty",
                             (unsigned long long)place);
    SampleLoader *single = NULL;
    FshStatus status = open_single(loader, &single, error);
    if (!status)
        status = loader->source->type->open_sample(loader->source, single, batch->turns[place],
                                                   batch->samples[place], &info, error);
    return status ? status
                  : sample_loader_render(single, loader_augmentation(loader, batch->epoch), pixels, target,
                                         error);
}

uint64_t loader_step_count(const Loader *loader)
{
    return loader->step_count;
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

void loader_lend(Loader *loader, size_t slot, uint8_t *pixels, uint8_t *target)
{
    BatchSlot *memory = &loader->slots[slot].memory;
    memory->pixels = pixels;
    memory->target = target;
}

size_t loader_lent_bytes(const Loader *loader)
{
    return loader->slots[0].memory.pixels_bytes;
}

/* Begins to measure the next window. Called with the mutex held. */
static void begin_window(Loader *loader, double now)
{
    loader_note_waiting(loader, 0);
    loader->window = (WorkerWindow){0};
    loader->window_batches = 0;
    loader->window_start = now;
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
    loader->asked_at = 0;
    loader->handed_out_at = progress_now_seconds();
    begin_window(loader, loader->handed_out_at);
    worker_control_restart(&loader->control);
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* Returns whether batch `consumed` is whole. Called with the mutex held. */
static bool is_whole(const Loader *loader)
{
    bool begun = loader->next_batch > loader->consumed ||
                 (loader->next_batch == loader->consumed && loader->next_place > 0);
    return begun && loader->slots[loader->consumed % loader->slot_count].unfilled == 0;
}

/* Gives back the batch in hand. Called with the mutex held. */
static void give_back(Loader *loader)
{
    if (!loader->handed_out)
        return;
    loader->handed_out = false;
    (void)pthread_cond_broadcast(&loader->work);
}

bool loader_wait(Loader *loader, double seconds)
{
    struct timespec until;
    const double now = progress_now_seconds(), whole_seconds = floor(seconds);
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)whole_seconds;
    until.tv_nsec += (long)((seconds - whole_seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    (void)pthread_mutex_lock(&loader->mutex);
    give_back(loader);
    if (!(loader->asked_at > 0))
        loader->asked_at = now;
    int failure = 0;
    while (!failure && loader->consumed < loader->end_batch && !is_whole(loader))
        failure = pthread_cond_clockwait(&loader->ready, &loader->mutex, CLOCK_MONOTONIC, &until);
    const bool there = loader->consumed >= loader->end_batch || is_whole(loader);
    (void)pthread_mutex_unlock(&loader->mutex);
    return there;
}

/* Gives back the last batch and returns the next, for which it waits; NULL after the last one. Called with
 * the mutex held. */
static LoaderSlot *take_slot(Loader *loader)
{
    give_back(loader);
    if (loader->consumed >= loader->end_batch)
        return NULL;
    while (!is_whole(loader))
        (void)pthread_cond_wait(&loader->ready, &loader->mutex);
    loader->handed_out = true;
    return &loader->slots[loader->consumed++ % loader->slot_count];
}

/* Counts a batch that the consumer has asked for at `before` and got now; at the end of a window, lets
 * workers join or rest. Called with the mutex held. */
static void watch(Loader *loader, double before, double now)
{
    WorkerWindow *window = &loader->window;
    const double pause = before - loader->handed_out_at;
    loader->handed_out_at = now;
    window->consumer_waited += now - before;
    window->longest_pause = pause > window->longest_pause ? pause : window->longest_pause;
    window->samples += loader->options.batch;
    window->seconds = now - loader->window_start;
    if (++loader->window_batches < 2 * loader->slot_count || window->seconds < window_seconds)
        return;
    loader_note_waiting(loader, 0);
    const int active = loader->control.active;
    if (worker_control_step(&loader->control, window) && loader->control.active > active)
        (void)pthread_cond_broadcast(&loader->join);
    begin_window(loader, now);
}

/* Completes the recipes of a batch whose places are all rendered. */
static void finish_recipes(const Loader *loader, LoaderSlot *slot)
{
    if (loader->source->type->finish)
        slot->recipes.stored_bytes = loader->source->type->finish(&slot->memory);
}

FshStatus loader_next(Loader *loader, const Batch **batch, FshError *error)
{
    const double before = loader->asked_at > 0 ? loader->asked_at : progress_now_seconds();
    loader->asked_at = 0;
    *batch = NULL;
    (void)pthread_mutex_lock(&loader->mutex);
    uint64_t number = loader->consumed;
    LoaderSlot *slot = take_slot(loader);
    const double now = progress_now_seconds();
    if (slot)
        watch(loader, before, now);
    (void)pthread_mutex_unlock(&loader->mutex);
    loader->wait_seconds += now - before;
    if (!slot)
        return FSH_OK;
    if (slot->bad_place != UINT64_MAX) {
        if (error)
            *error = slot->error;
        return slot->error.status;
    }
    BatchSlot *memory = &slot->memory;
    finish_recipes(loader, slot);
    slot->recipes.width = memory->width;
    slot->recipes.height = memory->height;
    slot->batch = (Batch){.epoch = number / loader->step_count,
                          .step = number % loader->step_count,
                          .slot = number % loader->slot_count,
                          .height = memory->height,
                          .width = memory->width,
                          .pixels = memory->pixels,
                          .target = memory->target,
                          .recipes = memory->shape.recipes ? &slot->recipes : NULL,
                          .store = loader->source->store,
                          .labels = loader_has_pairs(loader) || memory->targets ? NULL : memory->labels,
                          .targets = memory->targets,
                          .labels_mixed = memory->labels_mixed,
                          .mix = memory->mix,
                          .valid = memory->valid,
                          .samples = memory->samples,
                          .turns = memory->turns,
                          .valid_count = batch_slot_valid_count(memory)};
    *batch = &slot->batch;
    return FSH_OK;
}

/* Renders a place again, whose file the backend has refused. Returns FSH_OK also if the sample is left
 * out. */
static FshStatus render_refused(Loader *loader, LoaderSlot *slot, uint64_t epoch, uint64_t place,
                                SampleLoader *single, FshError *error)
{
    BatchSlot *memory = &slot->memory;
    const uint64_t sample = memory->samples[place];
    const SampleView view = loader_view(loader, epoch, memory->turns[place]);
    FshError failure = {0};
    loader->source->type->refuse(loader->source, sample);
    FshStatus status =
        loader->source->type->render(loader->source, single, &view, sample, memory, place, &failure);
    if (!status)
        return FSH_OK;
    if (!loader->options.skip_bad || status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    batch_slot_leave_out(memory, place);
    (void)pthread_mutex_lock(&loader->mutex);
    loader_note_problem(loader, sample, &failure);
    (void)pthread_mutex_unlock(&loader->mutex);
    return FSH_OK;
}

FshStatus loader_decode_refused(Loader *loader, const uint64_t *places, size_t count, FshError *error)
{
    const uint64_t number = loader->consumed - 1, epoch = number / loader->step_count;
    LoaderSlot *slot = &loader->slots[number % loader->slot_count];
    SampleLoader *single = NULL;
    FshStatus status = open_single(loader, &single, error);
    for (size_t i = 0; i < count && !status; i++) {
        status = render_refused(loader, slot, epoch, places[i], single, error);
        if (!status && slot->memory.shape.mixes)
            loader_mix_pair(loader, &slot->memory, number, places[i] / 2 * 2);
    }
    finish_recipes(loader, slot);
    slot->batch.valid_count = batch_slot_valid_count(&slot->memory);
    return status;
}

bool loader_problem(Loader *loader, uint64_t number, char *message, size_t message_bytes)
{
    (void)pthread_mutex_lock(&loader->mutex);
    bool there = number < loader->problem_count && number < LOADER_PROBLEMS_KEPT;
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

int loader_active_workers(Loader *loader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    const int active = loader->control.active;
    (void)pthread_mutex_unlock(&loader->mutex);
    return active;
}

void loader_end_measuring(Loader *loader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->measures = false;
    (void)pthread_mutex_unlock(&loader->mutex);
}

void loader_statistics(Loader *loader, LoaderStatistics *statistics)
{
    (void)pthread_mutex_lock(&loader->mutex);
    *statistics = loader->statistics;
    (void)pthread_mutex_unlock(&loader->mutex);
}
