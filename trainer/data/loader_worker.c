/* The threads that fill batches. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/progress.h"
#include "trainer/data/loader_internal.h"

/* What a worker takes at a time: places first..first+count-1 of the batch with this number. */
typedef struct Chunk {
    uint64_t batch_number, first, count;
    LoaderSlot *slot;
} Chunk;

void loader_note_problem(Loader *loader, uint64_t sample, const FshError *error)
{
    uint8_t bit = (uint8_t)(1U << (sample % 8));
    if (loader->bad_seen[sample / 8] & bit)
        return;
    loader->bad_seen[sample / 8] |= bit;
    if (loader->problem_count < LOADER_PROBLEMS_KEPT)
        loader->problems[loader->problem_count] = strdup(error->message);
    loader->problem_count++;
}

static void note_failure(Loader *loader, const Chunk *chunk, uint64_t place, uint64_t sample,
                         const FshError *error)
{
    (void)pthread_mutex_lock(&loader->mutex);
    if (loader->options.skip_bad) {
        loader_note_problem(loader, sample, error);
    } else if (place < chunk->slot->bad_place) {
        chunk->slot->bad_place = place;
        chunk->slot->error = *error;
    }
    (void)pthread_mutex_unlock(&loader->mutex);
}

/* Leaves a place without a sample: padding, or a sample that cannot be used. A whole image gets no size. */
static void leave_out(const Loader *loader, BatchSlot *memory, uint64_t place)
{
    if (loader_has_whole_images(loader))
        memory->width = memory->height = 0;
    batch_slot_leave_out(memory, place);
}

void loader_take_row(const Loader *loader, BatchSlot *memory, uint64_t place)
{
    const LoaderOptions *options = &loader->options;
    if (memory->targets && options->labels && memory->valid[place] > 0)
        sample_labels_row(options->labels, memory->samples[place], options->label_places,
                          batch_slot_row(memory, place), options->row_width);
}

void loader_mix_pair(const Loader *loader, BatchSlot *memory, uint64_t batch_number, uint64_t first)
{
    const uint64_t seed = loader->options.seed;
    Random random;
    loader_take_row(loader, memory, first);
    loader_take_row(loader, memory, first + 1);
    if (loader->options.mixing.mode == MIXING_BATCH) /* the same on all ranks */
        sample_mixing_random(seed, batch_number / loader->step_count, batch_number % loader->step_count,
                             &random);
    else
        sample_mixing_random(seed, memory->turns[first], memory->samples[first], &random);
    batch_slot_mix(memory, &loader->options.mixing, &random, first);
}

static void mix_chunk(LoaderWorker *worker, const Chunk *chunk)
{
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place += 2)
        loader_mix_pair(worker->loader, &chunk->slot->memory, chunk->batch_number, place);
    sample_loader_stage(worker->samples, SAMPLE_AUGMENT);
}

static void fill_chunk(LoaderWorker *worker, const Chunk *chunk)
{
    const Loader *loader = worker->loader;
    const PixelSource *source = loader->source;
    BatchSlot *memory = &chunk->slot->memory;
    uint64_t epoch = chunk->batch_number / loader->step_count,
             step = chunk->batch_number % loader->step_count;
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place++) {
        const SamplerPick pick = sampler_at(&loader->sampler, epoch, step, place);
        memory->samples[place] = pick.sample;
        memory->turns[place] = pick.turn;
        if (memory->samples[place] != SAMPLER_PADDING && source->type->prefetch)
            source->type->prefetch(source, worker->samples, memory->samples[place]);
    }
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place++) {
        const uint64_t sample = memory->samples[place];
        const SampleView view = loader_view(loader, epoch, memory->turns[place]);
        FshError error = {0};
        if (sample == SAMPLER_PADDING) {
            leave_out(loader, memory, place);
        } else if (source->type->render(source, worker->samples, &view, sample, memory, place, &error)) {
            leave_out(loader, memory, place);
            note_failure(worker->loader, chunk, place, sample, &error);
        } else {
            loader_take_row(loader, memory, place);
        }
    }
    if (memory->shape.mixes)
        mix_chunk(worker, chunk);
    if (loader->options.filled)
        loader->options.filled(loader->options.filled_context, (size_t)(chunk->slot - loader->slots), memory,
                               chunk->first, chunk->count);
}

static uint64_t thread_page_reads(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* Fills a chunk and measures the thread's time. */
static void fill_measured(LoaderWorker *worker, const Chunk *chunk)
{
    double start = progress_now_seconds(), cpu_start = progress_thread_seconds();
    uint64_t reads_before = thread_page_reads();
    fill_chunk(worker, chunk);
    worker->busy_seconds = progress_now_seconds() - start;
    worker->cpu_seconds = progress_thread_seconds() - cpu_start;
    worker->page_reads = thread_page_reads() - reads_before;
}

/* Moves what the worker has counted to the loader. Called with the mutex held. */
static void collect_statistics(Loader *loader, LoaderWorker *worker)
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
    worker->busy_seconds = worker->cpu_seconds = 0;
    worker->page_reads = 0;
    *counted = (SampleStatistics){0};
}

/* Returns whether a slot is free for the next chunk. Called with the mutex held. */
static bool can_take(const Loader *loader)
{
    return loader->next_batch < loader->end_batch &&
           loader->next_batch < loader->consumed - loader->handed_out + loader->slot_count;
}

/* Takes the next chunk. Called with the mutex held, after can_take returned true. */
static Chunk take_chunk(Loader *loader)
{
    uint64_t batch = loader->options.batch;
    LoaderSlot *slot = &loader->slots[loader->next_batch % loader->slot_count];
    if (loader->next_place == 0) {
        slot->unfilled = batch;
        slot->bad_place = UINT64_MAX;
        slot->memory.width = slot->memory.height =
            loader_augmentation(loader, loader->next_batch / loader->step_count)->size;
    }
    uint64_t count = batch / ((uint64_t)loader->control.active * 2);
    const uint64_t most = loader->source->type->chunk;
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

void loader_note_waiting(Loader *loader, int more)
{
    const double now = progress_now_seconds();
    loader->window.workers_waited += loader->waiting * (now - loader->waiting_since);
    loader->waiting += more;
    loader->waiting_since = now;
}

/* Waits until there is a chunk for this worker, or it is time to stop. Called with the mutex held. */
static void wait_for_chunk(const LoaderWorker *worker)
{
    Loader *loader = worker->loader;
    while (!loader->stop) {
        if (worker->index >= loader->control.active) {
            (void)pthread_cond_wait(&loader->join, &loader->mutex);
        } else if (!can_take(loader)) {
            loader_note_waiting(loader, 1);
            (void)pthread_cond_wait(&loader->work, &loader->mutex);
            loader_note_waiting(loader, -1);
        } else {
            return;
        }
    }
}

void *loader_worker_main(void *argument)
{
    LoaderWorker *worker = argument;
    Loader *loader = worker->loader;
    (void)pthread_mutex_lock(&loader->mutex);
    for (;;) {
        wait_for_chunk(worker);
        if (loader->stop)
            break;
        Chunk chunk = take_chunk(loader);
        const bool measures = loader->measures;
        (void)pthread_mutex_unlock(&loader->mutex);
        sample_loader_measure(worker->samples, measures);
        if (measures)
            fill_measured(worker, &chunk);
        else
            fill_chunk(worker, &chunk);
        (void)pthread_mutex_lock(&loader->mutex);
        collect_statistics(loader, worker);
        chunk.slot->unfilled -= chunk.count;
        loader->in_flight--;
        const bool drained = loader->end_batch == 0 && loader->in_flight == 0; /* loader_start waits for it */
        if (chunk.slot->unfilled == 0 || drained)
            (void)pthread_cond_signal(&loader->ready);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}
