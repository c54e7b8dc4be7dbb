#include "trainer/data/decoded_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/pool.h"
#include "common/progress.h"

enum {
    MEASURED_AT_A_TIME = 256, /* samples */
    COPIED_BYTES = 4 << 20,   /* neighbours that travel together */
    HOST_BYTES = 256 << 10,   /* neighbours that a thread decodes into RAM at a time */
};

/* What a thread decodes into before it is put into a store. */
typedef struct CopyBuffer {
    uint8_t *bytes;
    uint64_t capacity;
} CopyBuffer;

/* One job: measuring or loading. */
typedef struct Task {
    DecodedSplit *split;
    const PixelSourceOptions *options;
    PixelStore *store;      /* NULL: into split->memory */
    SampleLoader **loaders; /* [threads] */
    CopyBuffer *buffers;    /* [threads] */
    uint64_t *first;        /* [task_count + 1] samples of each task */
    uint64_t task_count;
} Task;

/* ---- life ---- */

/* Returns the length to map: not of nothing, which cannot be mapped. */
static size_t memory_bytes(const DecodedSplit *split)
{
    return split->bytes ? (size_t)split->bytes : 1;
}

static void free_memory(DecodedSplit *split)
{
    if (split->memory)
        (void)munmap(split->memory, memory_bytes(split));
    split->memory = NULL;
}

void decoded_split_free(DecodedSplit *split)
{
    free_memory(split);
    for (uint64_t i = 0; split->problems && i < split->sample_count; i++)
        free(split->problems[i]);
    free(split->problems);
    free(split->images);
    free(split->labels);
    sample_checksums_free(&split->checksums);
    *split = (DecodedSplit){0};
}

static void close_task(Task *task)
{
    for (int i = 0; i < task->options->threads; i++) {
        if (task->loaders)
            sample_loader_free(&task->loaders[i]);
        if (task->buffers)
            free(task->buffers[i].bytes);
    }
    free(task->loaders);
    free(task->buffers);
    free(task->first);
}

static FshStatus open_task(Task *task, FshError *error)
{
    const size_t threads = (size_t)task->options->threads;
    FshStatus status = FSH_OK;
    task->loaders = calloc(threads, sizeof(SampleLoader *));
    task->buffers = calloc(threads, sizeof *task->buffers);
    task->first = calloc(task->split->sample_count + 2, sizeof *task->first);
    const bool made = task->loaders && task->buffers && task->first;
    for (size_t i = 0; made && !status && i < threads; i++)
        status =
            sample_loader_new(&task->loaders[i], &task->options->samples, &task->split->checksums, error);
    if (!status && !made)
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu threads that read a split", threads);
    return status;
}

/* Notes a sample that cannot be used and returns FSH_OK, or returns its failure. */
static FshStatus leave_out(const Task *task, uint64_t sample, const FshError *failure, FshError *error)
{
    DecodedSplit *split = task->split;
    if (!task->options->skip_bad || failure->status == FSH_ERR_MEMORY) {
        if (error)
            *error = *failure;
        return failure->status;
    }
    split->problems[sample] = strdup(failure->message);
    if (!split->problems[sample])
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a message");
    for (unsigned side = 0; side < split->sides; side++)
        split->images[sample * split->sides + side].offset_bytes = PIXELS_NONE;
    return FSH_OK;
}

/* ---- rows of pixels ---- */

static FshStatus measure_rows(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                              FshError *error)
{
    (void)error;
    const FshField *field = sample_loader_field(samples, side);
    image->width = field->width;
    image->height = field->height;
    image->channels = sample_loader_channels(samples, side, decoded);
    image->bytes = (uint64_t)image->width * image->height * image->channels;
    return FSH_OK;
}

/* Checks what a decoder tells against what the header did. */
static FshStatus check_view(const DecodedImage *image, const ImageView *view, FshError *error)
{
    if (view->width == image->width && view->height == image->height && view->channels == image->channels)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "it is %u x %u x %u, and its record says %u x %u x %u",
                         view->width, view->height, view->channels, image->width, image->height,
                         image->channels);
}

static FshStatus write_rows(SampleLoader *samples, unsigned side, uint32_t decoded, const DecodedImage *image,
                            uint8_t *to, FshError *error)
{
    ImageView view;
    FshStatus status = sample_loader_image(samples, side, decoded, &view, error);
    if (!status)
        status = check_view(image, &view, error);
    if (status)
        return status;
    const size_t row_bytes = (size_t)view.width * view.channels;
    for (uint32_t y = 0; y < view.height; y++)
        memcpy(to + y * row_bytes, view.pixels + y * view.stride_bytes, row_bytes);
    return FSH_OK;
}

const DecodedForm decoded_rows = {.measure = measure_rows, .write = write_rows};

/* ---- measuring ---- */

static FshStatus measure_sample(const Task *task, SampleLoader *loader, uint64_t sample, FshError *error)
{
    DecodedSplit *split = task->split;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < split->sides; side++)
        status = split->form->measure(loader, side, task->options->channels,
                                      &split->images[sample * split->sides + side], &failure);
    if (status)
        return leave_out(task, sample, &failure, error);
    if (split->labels)
        split->labels[sample] = info.label;
    return FSH_OK;
}

static FshStatus measure_some(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    FshStatus status = FSH_OK;
    const uint64_t first = item * MEASURED_AT_A_TIME, end = first + MEASURED_AT_A_TIME;
    for (uint64_t i = first; !status && i < end && i < task->split->sample_count; i++)
        status = measure_sample(task, task->loaders[thread], i, error);
    return status;
}

static FshStatus place_images(DecodedSplit *split, FshError *error)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < split->sample_count * split->sides; i++) {
        DecodedImage *image = &split->images[i];
        if (image->offset_bytes == PIXELS_NONE)
            continue;
        image->offset_bytes = bytes;
        if (__builtin_add_overflow(bytes, image->bytes, &bytes))
            return fsh_error_set(error, FSH_ERR_MEMORY, "the pixels of the split do not fit in any memory");
    }
    split->bytes = bytes;
    return FSH_OK;
}

FshStatus decoded_split_measure(DecodedSplit *split, const PixelSourceOptions *options,
                                const DecodedForm *form, FshError *error)
{
    const double start = progress_now_seconds();
    const bool pairs = options->samples.kind == FSH_KIND_PAIRS;
    const uint64_t count = options->samples.split->sample_count;
    Task task = {.split = split, .options = options};
    *split = (DecodedSplit){.form = form, .sample_count = count, .sides = pairs ? 2 : 1};
    split->images = calloc((size_t)count * split->sides + 1, sizeof *split->images);
    split->problems = calloc((size_t)count + 1, sizeof *split->problems);
    split->labels = pairs ? NULL : calloc((size_t)count + 1, sizeof *split->labels);
    FshStatus status = sample_checksums_make(&split->checksums, count, error);
    if (!status && (!split->images || !split->problems || (!pairs && !split->labels)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the places of %llu images",
                               (unsigned long long)count);
    if (!status)
        status = open_task(&task, error);
    if (!status)
        status = pool_run(options->threads, (count + MEASURED_AT_A_TIME - 1) / MEASURED_AT_A_TIME,
                          measure_some, &task, error);
    if (!status)
        status = place_images(split, error);
    close_task(&task);
    if (status)
        decoded_split_free(split);
    split->seconds = progress_now_seconds() - start;
    return status;
}

/* ---- loading ---- */

static const DecodedImage *image_of(const DecodedSplit *split, uint64_t sample, unsigned side)
{
    return &split->images[sample * split->sides + side];
}

/* Returns what lies between sample and the next: those that are left out take nothing. */
static uint64_t sample_bytes(const DecodedSplit *split, uint64_t sample)
{
    uint64_t bytes = 0;
    for (unsigned side = 0; side < split->sides; side++)
        if (image_of(split, sample, side)->offset_bytes != PIXELS_NONE)
            bytes += image_of(split, sample, side)->bytes;
    return bytes;
}

/* Makes tasks of neighbours of most_bytes together; a sample that is larger goes alone. */
static void divide(Task *task, uint64_t most_bytes)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < task->split->sample_count; i++) {
        const uint64_t own = sample_bytes(task->split, i);
        if (i == 0 || bytes + own > most_bytes) {
            task->first[task->task_count++] = i;
            bytes = 0;
        }
        bytes += own;
    }
    task->first[task->task_count] = task->split->sample_count;
}

/* Returns the thread's buffer with room for bytes; NULL: there is no memory. */
static uint8_t *reserve_buffer(CopyBuffer *buffer, uint64_t bytes)
{
    if (bytes <= buffer->capacity)
        return buffer->bytes;
    free(buffer->bytes);
    buffer->bytes = malloc(bytes);
    buffer->capacity = buffer->bytes ? bytes : 0;
    return buffer->bytes;
}

/* Decodes the images of a sample. Offset `begin` of the split is at `to`. */
static FshStatus load_sample(const Task *task, SampleLoader *loader, uint64_t sample, uint8_t *to,
                             uint64_t begin, FshError *error)
{
    const DecodedSplit *split = task->split;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < split->sides; side++) {
        const DecodedImage *image = image_of(split, sample, side);
        status = split->form->write(loader, side, task->options->channels, image,
                                    to + (image->offset_bytes - begin), &failure);
    }
    return status ? leave_out(task, sample, &failure, error) : FSH_OK;
}

/* Loads the samples of one task. One copy brings all of them into a store. */
static FshStatus load_some(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    const DecodedSplit *split = task->split;
    const uint64_t first = task->first[item], end = task->first[item + 1];
    uint64_t begin = 0, bytes = 0;
    for (uint64_t i = first; i < end; i++) { /* those that are left out lie nowhere */
        if (bytes == 0)
            begin = image_of(split, i, 0)->offset_bytes;
        bytes += sample_bytes(split, i);
    }
    if (bytes == 0)
        return FSH_OK;
    uint8_t *to = split->memory ? split->memory + begin : reserve_buffer(&task->buffers[thread], bytes);
    if (!to)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for images of %llu bytes",
                             (unsigned long long)bytes);
    FshStatus status = FSH_OK;
    for (uint64_t i = first; i < end && !status; i++)
        if (image_of(split, i, 0)->offset_bytes != PIXELS_NONE)
            status = load_sample(task, task->loaders[thread], i, to, begin, error);
    return status || split->memory ? status : pixel_store_put(task->store, begin, to, (size_t)bytes, error);
}

/* Loads into memory that is there. */
static FshStatus load_all(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                          FshError *error)
{
    const double start = progress_now_seconds();
    Task task = {.split = split, .options = options, .store = store};
    FshStatus status = open_task(&task, error);
    if (!status) {
        divide(&task, store ? COPIED_BYTES : HOST_BYTES);
        status = pool_run(options->threads, task.task_count, load_some, &task, error);
    }
    close_task(&task);
    split->loaded = !status;
    split->seconds += progress_now_seconds() - start;
    return status;
}

FshStatus decoded_split_load_store(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                                   FshError *error)
{
    return load_all(split, options, store, error);
}

FshStatus decoded_split_load_ram(DecodedSplit *split, const PixelSource *source, FshError *error)
{
    char bytes[32];
    const size_t length = memory_bytes(split);
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fsh_error_set(error, FSH_ERR_MEMORY,
                             "%s: %s: the system does not give %s of memory for the decoded images; use %s",
                             fsh_path(source->options.samples.split->dataset), source->type->option,
                             progress_format_bytes(bytes, sizeof bytes, split->bytes), source->type->instead);
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, length, MADV_HUGEPAGE); /* samples are read in no order */
#endif
    split->memory = memory;
    FshStatus status = load_all(split, &source->options, NULL, error);
    if (status)
        free_memory(split);
    return status;
}

/* ---- samples ---- */

FshStatus decoded_split_find(const DecodedSplit *split, uint64_t sample, const DecodedImage **sides_ret,
                             FshError *error)
{
    if (!split->loaded)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "the split was not loaded before its batches were asked for");
    if (split->problems[sample])
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s", split->problems[sample]);
    *sides_ret = image_of(split, sample, 0);
    return FSH_OK;
}

int64_t decoded_split_label(const DecodedSplit *split, uint64_t sample)
{
    return split->labels ? split->labels[sample] : FSH_NO_LABEL;
}

/* ---- of a source's row ---- */

uint64_t decoded_source_ram_bytes(const PixelSource *source)
{
    return decoded_split_of(source)->bytes;
}

FshStatus decoded_source_open_sample(const PixelSource *source, SampleLoader *samples, uint64_t epoch,
                                     uint64_t sample, SampleInfo *info, FshError *error)
{
    const DecodedSplit *split = decoded_split_of(source);
    const DecodedImage *images = NULL;
    SampleImage sides[2];
    FshStatus status = decoded_split_find(split, sample, &images, error);
    if (status)
        return status;
    for (unsigned side = 0; side < split->sides; side++) {
        const DecodedImage *image = &images[side];
        sides[side] = (SampleImage){.view = {.pixels = split->memory + image->offset_bytes,
                                             .stride_bytes = (size_t)image->width * image->channels,
                                             .width = image->width,
                                             .height = image->height,
                                             .channels = image->channels},
                                    .expand = image->expands ? split->form->expand : NULL};
    }
    *info = (SampleInfo){
        .label = decoded_split_label(split, sample), .width = images[0].width, .height = images[0].height};
    sample_loader_open_decoded(samples, epoch, sample, sides);
    return FSH_OK;
}

FshStatus decoded_source_load_ram(PixelSource *source, FshError *error)
{
    return decoded_split_load_ram(&((DecodedSource *)source)->split, source, error);
}

FshStatus decoded_source_measure(PixelSource *source, FshError *error)
{
    return decoded_split_measure(&((DecodedSource *)source)->split, &source->options, &decoded_rows, error);
}

FshStatus decoded_source_tell(const PixelSource *source, char *line, size_t line_bytes, FshError *error)
{
    char bytes[32];
    const DecodedSplit *split = decoded_split_of(source);
    (void)error;
    (void)snprintf(line, line_bytes, "%s: %" PRIu64 " samples, %s of pixels %s, in %.1f s",
                   source->options.samples.split->info->name, split->sample_count,
                   progress_format_bytes(bytes, sizeof bytes, split->bytes), source->type->loaded,
                   split->seconds);
    return FSH_OK;
}

void decoded_source_close(PixelSource *source)
{
    decoded_split_free(&((DecodedSource *)source)->split);
}

void decoded_source_prefetch(const PixelSource *source, const SampleLoader *samples, uint64_t sample)
{
    enum { LINE_BYTES = 64, LINES = 8 }; /* the processor sees by itself how it goes on */
    const DecodedSplit *split = decoded_split_of(source);
    (void)samples;
    if (!split->memory)
        return;
    const DecodedImage *image = image_of(split, sample, 0);
    const uint64_t bytes = image->offset_bytes == PIXELS_NONE ? 0 : image->bytes;
    for (uint64_t i = 0; i < (uint64_t)LINES * LINE_BYTES && i < bytes; i += LINE_BYTES)
        __builtin_prefetch(split->memory + image->offset_bytes + i);
}
