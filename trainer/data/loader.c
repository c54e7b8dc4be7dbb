#include "trainer/data/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/decode.h"

enum {
    RING_ALIGNMENT = 64,
    CHUNK_MAX =
        16, /* samples that a worker takes at a time: the lock is cheap beside them, the tail is short */
    PROBLEMS_KEPT = 1000 /* messages; beyond that they are only counted */
};

/* One batch of the ring. */
typedef struct Slot {
    Batch batch; /* what the consumer sees; its arrays are owned here */
    uint8_t *pixels;
    int64_t *labels;
    uint64_t *samples;
    uint64_t unfilled;  /* samples that no worker has finished yet */
    uint64_t bad_place; /* lowest place with a failure, UINT64_MAX: none */
    FshError error;     /* of bad_place */
} Slot;

typedef struct Worker {
    pthread_t thread;
    bool started;
    struct Loader *loader;
    FshUnpacker *unpacker;
    ImageDecoder *decoder;
    Augmenter *augmenter;
    Image image;
} Worker;

/* Samples first..first+count-1 of the batch with this number. */
typedef struct Chunk {
    uint64_t batch_number, first, count;
    Slot *slot;
} Chunk;

struct Loader {
    LoaderOptions options;
    Sampler sampler;
    uint64_t step_count;
    int64_t class_count;
    size_t sample_pixels_bytes;
    /* A bit for each sample of the split: its checksum is right. Two workers may test a sample twice, at the turn of an
     * epoch; that is harmless. */
    atomic_uchar *verified;
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
    double wait_seconds; /* the consumer's own */
};

/* ---- one sample ---- */

/* A view of raw pixels, in the mapping or in the unpacker; never written through. */
static FshStatus raw_image(const FshField *field, Image *image, FshError *error)
{
    uint64_t bytes = (uint64_t)field->width * field->height;
    if (bytes == 0 || (field->channels != 1 && field->channels != 3) || bytes > SIZE_MAX / field->channels ||
        bytes * field->channels != field->bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%zu bytes are no raw image of %u x %u pixels with %u channels", field->bytes,
                             field->width, field->height, field->channels);
    *image = (Image){.width = field->width, .height = field->height, .channels = field->channels};
    memcpy(&image->pixels, &field->data,
           sizeof image->pixels); /* drops const: an Image has no read-only form */
    return FSH_OK;
}

static FshStatus decode_field(Worker *worker, const FshField *field, const Augmentation *augmentation,
                              const CropPlan *plan, FshError *error)
{
    ImageDecodeOptions options = {.channels = augmentation->channels};
    /* Evaluation decodes in full: its numbers are compared with those of others. */
    if (augmentation->mode == CROP_RESIZED)
        augment_least_size(augmentation, plan, field->width, field->height, &options.least_width,
                           &options.least_height);
    return image_decode(worker->decoder, field->data, field->bytes, &options, &worker->image, NULL, error);
}

static FshStatus render_field(Worker *worker, const FshField *field, uint64_t epoch, uint64_t sample,
                              uint8_t *pixels, FshError *error)
{
    const LoaderOptions *options = &worker->loader->options;
    if (field->width == 0 || field->height == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "an image without pixels");
    Random random;
    random_start(&random, options->seed, random_stream(epoch, sample));
    CropPlan plan;
    augment_plan(&options->augmentation, field->width, field->height, &random, &plan);
    Image raw;
    const Image *image = &worker->image;
    FshStatus status;
    if (field->codec == FSH_CODEC_RAW) {
        status = raw_image(field, &raw, error);
        image = &raw;
    } else {
        status = decode_field(worker, field, &options->augmentation, &plan, error);
    }
    if (status)
        return status;
    return augment_render(worker->augmenter, &options->augmentation, &plan, field->width, field->height,
                          image, pixels, error);
}

/* Tests a record's checksum until it has been right once. A bad one is tested, and found bad, in every epoch. */
static FshStatus verify_once(const Loader *loader, uint64_t index, FshError *error)
{
    const unsigned char bit = (unsigned char)(1U << (index % 8));
    if (atomic_load_explicit(&loader->verified[index / 8], memory_order_relaxed) & bit)
        return FSH_OK;
    FshStatus status = fsh_sample_verify(loader->options.split, index, error);
    if (!status)
        (void)atomic_fetch_or_explicit(&loader->verified[index / 8], bit, memory_order_relaxed);
    return status;
}

/* The field as its codec knows it: the sample's own, or in the worker's unpacker. */
static FshStatus unpack_field(Worker *worker, const FshField *stored, FshField *field, FshError *error)
{
    *field = *stored;
    field->compression = FSH_COMPRESSION_NONE;
    return fsh_field_unpack(worker->unpacker, worker->loader->options.split, stored, &field->data,
                            &field->bytes, error);
}

/* Tars and LMDBs of others do not say how large an image is: its header does. */
static FshStatus find_size(Worker *worker, FshField *field, FshError *error)
{
    ImageInfo info;
    if ((field->width && field->height) || field->codec == FSH_CODEC_RAW)
        return FSH_OK;
    FshStatus status = image_probe(worker->decoder, field->data, field->bytes, &info, error);
    if (!status) {
        field->width = info.width;
        field->height = info.height;
    }
    return status;
}

static FshStatus load_sample(Worker *worker, uint64_t epoch, uint64_t index, uint8_t *pixels, int64_t *label,
                             FshError *error)
{
    const Loader *loader = worker->loader;
    const FshSplit *split = loader->options.split;
    FshSample sample;
    FshField field;
    FshStatus status = fsh_sample_get(split, index, &sample, error);
    if (status)
        return status; /* names file and record itself */
    status = verify_once(loader, index, error);
    if (!status)
        status = unpack_field(worker, &sample.fields[0], &field, error);
    if (status) { /* the message has file and record already */
        size_t length = strlen(error->message);
        (void)snprintf(error->message + length, sizeof error->message - length, " (packed from %.*s)",
                       (int)sample.fields[0].source_bytes, sample.fields[0].source);
        return status;
    }
    if (sample.label < 0 || sample.label >= loader->class_count)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld, but the dataset has %lld classes",
                               (long long)sample.label, (long long)loader->class_count);
    else
        status = find_size(worker, &field, error);
    if (!status)
        status = render_field(worker, &field, epoch, index, pixels, error);
    if (status) {
        char where[256];
        status = fsh_error_prepend(error, "%s: %s (key %.*s, packed from %.*s)", fsh_path(split->dataset),
                                   fsh_sample_where(split, index, where, sizeof where), (int)sample.key_bytes,
                                   sample.key, (int)sample.fields[0].source_bytes, sample.fields[0].source);
    }
    *label = sample.label;
    return status;
}

static void fill_blank(const Loader *loader, uint8_t *pixels, int64_t *label)
{
    *label = FSH_NO_LABEL;
    uint32_t channels = loader->options.augmentation.channels;
    for (size_t i = 0; i < loader->sample_pixels_bytes; i++)
        pixels[i] = loader->options.fill[i % channels];
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

static void fill_chunk(Worker *worker, const Chunk *chunk)
{
    Loader *loader = worker->loader;
    uint64_t epoch = chunk->batch_number / loader->step_count,
             step = chunk->batch_number % loader->step_count;
    for (uint64_t place = chunk->first; place < chunk->first + chunk->count; place++) {
        uint64_t sample = sampler_at(&loader->sampler, epoch, step, place);
        uint8_t *pixels = chunk->slot->pixels + place * loader->sample_pixels_bytes;
        int64_t *label = &chunk->slot->labels[place];
        chunk->slot->samples[place] = sample;
        if (sample == SAMPLER_PADDING) {
            fill_blank(loader, pixels, label);
            continue;
        }
        FshError error = {0};
        if (load_sample(worker, epoch, sample, pixels, label, &error)) {
            fill_blank(loader, pixels, label);
            note_failure(loader, chunk, place, sample, &error);
        }
    }
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
    }
    uint64_t count = batch / ((uint64_t)loader->options.workers * 2);
    count = count < 1 ? 1 : count > CHUNK_MAX ? CHUNK_MAX : count;
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
        fill_chunk(worker, &chunk);
        (void)pthread_mutex_lock(&loader->mutex);
        chunk.slot->unfilled -= chunk.count;
        loader->in_flight--;
        if (chunk.slot->unfilled == 0 || loader->in_flight == 0)
            (void)pthread_cond_signal(&loader->ready);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- life ---- */

static FshStatus make_slot(Loader *loader, Slot *slot, FshError *error)
{
    uint64_t batch = loader->options.batch;
    size_t bytes = 0;
    if (__builtin_mul_overflow(batch, loader->sample_pixels_bytes, &bytes) ||
        bytes > SIZE_MAX - RING_ALIGNMENT)
        return fsh_error_set(error, FSH_ERR_MEMORY, "a batch of %llu images does not fit in memory",
                             (unsigned long long)batch);
    bytes = (bytes + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    slot->pixels = aligned_alloc(RING_ALIGNMENT, bytes);
    slot->labels = calloc(batch, sizeof *slot->labels);
    slot->samples = calloc(batch, sizeof *slot->samples);
    if (!slot->pixels || !slot->labels || !slot->samples)
        return fsh_error_set(
            error, FSH_ERR_MEMORY, "out of memory for a batch of %llu images of %u x %u pixels",
            (unsigned long long)batch, loader->options.augmentation.size, loader->options.augmentation.size);
    return FSH_OK;
}

static FshStatus make_worker(Loader *loader, Worker *worker, FshError *error)
{
    worker->loader = loader;
    FshStatus status = fsh_unpacker_new(&worker->unpacker, error);
    if (!status)
        status = image_decoder_new(&worker->decoder, error);
    if (!status)
        status = augmenter_new(&worker->augmenter, error);
    if (status)
        return status;
    int failure = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failure)
        return fsh_error_system(error, failure, "cannot start %d loader threads; try fewer --workers",
                                loader->options.workers);
    worker->started = true;
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
    loader->verified = calloc(options->split->sample_count / 8 + 1, sizeof *loader->verified);
    loader->problems = calloc(PROBLEMS_KEPT, sizeof *loader->problems);
    if (!loader->mutex_made || !loader->work_made || !loader->ready_made || !loader->slots ||
        !loader->workers || !loader->bad_seen || !loader->verified || !loader->problems)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    FshStatus status = FSH_OK;
    for (size_t i = 0; !status && i < loader->slot_count; i++)
        status = make_slot(loader, &loader->slots[i], error);
    for (int i = 0; !status && i < options->workers; i++)
        status = make_worker(loader, &loader->workers[i], error);
    return status;
}

FshStatus loader_new(Loader **loader, const LoaderOptions *options, FshError *error)
{
    *loader = calloc(1, sizeof **loader);
    if (!*loader)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a loader");
    Loader *made = *loader;
    made->options = *options;
    made->sampler = (Sampler){.sample_count = options->split->sample_count,
                              .batch = options->batch,
                              .rank = options->rank,
                              .world_size = options->world_size,
                              .seed = options->seed,
                              .training = options->training};
    made->step_count = sampler_step_count(&made->sampler);
    made->class_count = (int64_t)fsh_manifest(options->split->dataset)->class_count;
    made->sample_pixels_bytes =
        (size_t)options->augmentation.size * options->augmentation.size * options->augmentation.channels;
    made->slot_count = options->batches_ahead + 1;
    FshStatus status = make_loader(made, error);
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
        fsh_unpacker_free(&worker->unpacker);
        image_decoder_free(&worker->decoder);
        augmenter_free(&worker->augmenter);
        image_free(&worker->image);
    }
}

void loader_free(Loader **loader)
{
    Loader *freed = *loader;
    if (!freed)
        return;
    stop_workers(freed);
    for (size_t i = 0; freed->slots && i < freed->slot_count; i++) {
        free(freed->slots[i].pixels);
        free(freed->slots[i].labels);
        free(freed->slots[i].samples);
    }
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
    free(freed->verified);
    free(freed->slots);
    free(freed->workers);
    free(freed);
    *loader = NULL;
}

/* ---- the consumer ---- */

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
    return loader->slot_count * loader->options.batch *
           (loader->sample_pixels_bytes + sizeof(int64_t) + sizeof(uint64_t));
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

static uint64_t count_valid(const int64_t *labels, uint64_t count)
{
    uint64_t valid = 0;
    for (uint64_t i = 0; i < count; i++)
        valid += labels[i] != FSH_NO_LABEL;
    return valid;
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
    slot->batch = (Batch){.epoch = number / loader->step_count,
                          .step = number % loader->step_count,
                          .pixels = slot->pixels,
                          .labels = slot->labels,
                          .samples = slot->samples,
                          .valid_count = count_valid(slot->labels, loader->options.batch)};
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
