#include "trainer/data/resident_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/pool.h"
#include "common/progress.h"

enum {
    MEASURED_AT_A_TIME = 256,    /* samples */
    COPIED_BYTES = 4 << 20,      /* neighbours that travel together */
    HOST_BYTES = 256 << 10,      /* neighbours that a thread decodes into RAM at a time */
    KEPT_FREE_BYTES = 256 << 20, /* programs for other sizes, libraries' own, a run's own on the host */
};

/* One job: measuring or loading. */
typedef struct Task {
    ResidentSplit *resident;
    const ResidentOptions *options;
    SampleLoader **loaders; /* [threads] */
    uint8_t **buffers;      /* [threads] of COPIED_BYTES, for loading into a store */
    uint64_t *first;        /* [task_count + 1] samples of each task */
    uint64_t task_count;
} Task;

/* ---- life ---- */

/* Not of nothing, which cannot be mapped. */
static size_t arena_bytes(const ResidentSplit *resident)
{
    return resident->bytes ? (size_t)resident->bytes : 1;
}

static void free_arena(ResidentSplit *resident)
{
    if (resident->pixels)
        (void)munmap(resident->pixels, arena_bytes(resident));
    resident->pixels = NULL;
}

void resident_split_free(ResidentSplit *resident)
{
    pixel_store_free(&resident->store);
    free_arena(resident);
    for (uint64_t i = 0; resident->problems && i < resident->sample_count; i++)
        free(resident->problems[i]);
    free(resident->problems);
    free(resident->images);
    free(resident->labels);
    sample_checksums_free(&resident->checksums);
    *resident = (ResidentSplit){0};
}

static void close_task(Task *task)
{
    for (int i = 0; i < task->options->threads; i++) {
        if (task->loaders)
            sample_loader_free(&task->loaders[i]);
        if (task->buffers)
            free(task->buffers[i]);
    }
    free(task->loaders);
    free(task->buffers);
    free(task->first);
}

static FshStatus open_task(Task *task, bool buffers, FshError *error)
{
    const size_t threads = (size_t)task->options->threads;
    FshStatus status = FSH_OK;
    task->loaders = calloc(threads, sizeof(SampleLoader *));
    task->buffers = calloc(threads, sizeof(uint8_t *));
    task->first = calloc(task->resident->sample_count + 2, sizeof *task->first);
    bool made = task->loaders && task->buffers && task->first;
    for (size_t i = 0; made && !status && i < threads; i++) {
        status =
            sample_loader_new(&task->loaders[i], &task->options->samples, &task->resident->checksums, error);
        if (buffers)
            made = (task->buffers[i] = malloc(COPIED_BYTES)) != NULL;
    }
    if (!status && !made)
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu threads that read a split", threads);
    return status;
}

/* A sample that cannot be used: noted, or the failure. */
static FshStatus leave_out(const Task *task, uint64_t sample, const FshError *failure, FshError *error)
{
    ResidentSplit *resident = task->resident;
    if (!task->options->skip_bad || failure->status == FSH_ERR_MEMORY) {
        if (error)
            *error = *failure;
        return failure->status;
    }
    resident->problems[sample] = strdup(failure->message);
    if (!resident->problems[sample])
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a message");
    for (unsigned side = 0; side < resident->sides; side++)
        resident->images[sample * resident->sides + side].offset_bytes = PIXELS_NONE;
    return FSH_OK;
}

/* ---- measuring ---- */

static FshStatus measure_sample(const Task *task, SampleLoader *loader, uint64_t sample, FshError *error)
{
    ResidentSplit *resident = task->resident;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    if (status)
        return leave_out(task, sample, &failure, error);
    if (resident->labels)
        resident->labels[sample] = info.label;
    for (unsigned side = 0; side < resident->sides; side++)
        resident->images[sample * resident->sides + side] =
            (ResidentImage){.width = info.width,
                            .height = info.height,
                            .channels = sample_loader_channels(loader, side, task->options->channels)};
    return FSH_OK;
}

static FshStatus measure_some(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    FshStatus status = FSH_OK;
    const uint64_t first = item * MEASURED_AT_A_TIME, end = first + MEASURED_AT_A_TIME;
    for (uint64_t i = first; !status && i < end && i < task->resident->sample_count; i++)
        status = measure_sample(task, task->loaders[thread], i, error);
    return status;
}

static uint64_t image_bytes(const ResidentImage *image)
{
    return (uint64_t)image->width * image->height * image->channels;
}

static FshStatus place_images(ResidentSplit *resident, FshError *error)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < resident->sample_count * resident->sides; i++) {
        ResidentImage *image = &resident->images[i];
        if (image->offset_bytes == PIXELS_NONE)
            continue;
        image->offset_bytes = bytes;
        if (__builtin_add_overflow(bytes, image_bytes(image), &bytes))
            return fsh_error_set(error, FSH_ERR_MEMORY, "the pixels of the split do not fit in any memory");
    }
    resident->bytes = bytes;
    return FSH_OK;
}

FshStatus resident_split_measure(ResidentSplit *resident, const ResidentOptions *options, FshError *error)
{
    const bool pairs = options->samples.kind == FSH_KIND_PAIRS;
    const uint64_t count = options->samples.split->sample_count;
    Task task = {.resident = resident, .options = options};
    *resident = (ResidentSplit){.sample_count = count, .sides = pairs ? 2 : 1};
    resident->images = calloc((size_t)count * resident->sides + 1, sizeof *resident->images);
    resident->problems = calloc((size_t)count + 1, sizeof *resident->problems);
    resident->labels = pairs ? NULL : calloc((size_t)count + 1, sizeof *resident->labels);
    FshStatus status = sample_checksums_make(&resident->checksums, count, error);
    if (!status && (!resident->images || !resident->problems || (!pairs && !resident->labels)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the places of %llu images",
                               (unsigned long long)count);
    if (!status)
        status = open_task(&task, false, error);
    if (!status)
        status = pool_run(options->threads, (count + MEASURED_AT_A_TIME - 1) / MEASURED_AT_A_TIME,
                          measure_some, &task, error);
    if (!status)
        status = place_images(resident, error);
    close_task(&task);
    if (status)
        resident_split_free(resident);
    return status;
}

/* ---- loading ---- */

/* Where sample i's pixels end and sample i + 1's begin: those that are left out take none. */
static uint64_t sample_bytes(const ResidentSplit *resident, uint64_t sample)
{
    uint64_t bytes = 0;
    for (unsigned side = 0; side < resident->sides; side++)
        if (resident_image(resident, sample, side)->offset_bytes != PIXELS_NONE)
            bytes += image_bytes(resident_image(resident, sample, side));
    return bytes;
}

/* Neighbours that fit into a buffer together; a sample that is too large for it goes alone. */
static void divide(Task *task, uint64_t most_bytes)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < task->resident->sample_count; i++) {
        const uint64_t own = sample_bytes(task->resident, i);
        if (i == 0 || bytes + own > most_bytes) {
            task->first[task->task_count++] = i;
            bytes = 0;
        }
        bytes += own;
    }
    task->first[task->task_count] = task->resident->sample_count;
}

static void copy_view(const ImageView *view, uint8_t *to)
{
    const size_t row_bytes = (size_t)view->width * view->channels;
    for (uint32_t y = 0; y < view->height; y++)
        memcpy(to + y * row_bytes, view->pixels + y * view->stride_bytes, row_bytes);
}

/* A decoder tells what the header did not. */
static FshStatus check_view(const ResidentImage *image, const ImageView *view, FshError *error)
{
    if (view->width == image->width && view->height == image->height && view->channels == image->channels)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "it is %u x %u x %u, and its record says %u x %u x %u",
                         view->width, view->height, view->channels, image->width, image->height,
                         image->channels);
}

/* buffer: holds the pixels from buffer_offset on; NULL: the image goes straight. */
static FshStatus place_image(const ResidentSplit *resident, const ResidentImage *image, const ImageView *view,
                             uint8_t *buffer, uint64_t buffer_offset, FshError *error)
{
    const size_t row_bytes = (size_t)view->width * view->channels;
    if (buffer) {
        copy_view(view, buffer + (image->offset_bytes - buffer_offset));
        return FSH_OK;
    }
    if (view->stride_bytes == row_bytes)
        return pixel_store_put(resident->store, image->offset_bytes, view->pixels, row_bytes * view->height,
                               error);
    FshStatus status = FSH_OK;
    for (uint32_t y = 0; !status && y < view->height; y++)
        status = pixel_store_put(resident->store, image->offset_bytes + y * row_bytes,
                                 view->pixels + y * view->stride_bytes, row_bytes, error);
    return status;
}

static FshStatus load_sample(const Task *task, SampleLoader *loader, uint64_t sample, uint8_t *buffer,
                             uint64_t buffer_offset, FshError *error)
{
    const ResidentSplit *resident = task->resident;
    SampleInfo info;
    FshError failure = {0};
    FshStatus status = sample_loader_open(loader, 0, sample, &info, &failure);
    for (unsigned side = 0; !status && side < resident->sides; side++) {
        const ResidentImage *image = resident_image(resident, sample, side);
        ImageView view;
        status = sample_loader_image(loader, side, task->options->channels, &view, &failure);
        if (!status)
            status = check_view(image, &view, &failure);
        if (!status && place_image(resident, image, &view, buffer, buffer_offset, error))
            return error ? error->status : FSH_ERR_LIBRARY; /* the device's failure, not the sample's */
    }
    return status ? leave_out(task, sample, &failure, error) : FSH_OK;
}

/* The samples of one task; buffer as place_image. */
static FshStatus load_samples(const Task *task, uint64_t item, int thread, uint8_t *buffer,
                              uint64_t buffer_offset, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = task->first[item]; i < task->first[item + 1] && !status; i++)
        if (resident_image(task->resident, i, 0)->offset_bytes != PIXELS_NONE)
            status = load_sample(task, task->loaders[thread], i, buffer, buffer_offset, error);
    return status;
}

static FshStatus load_into_ram(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    return load_samples(task, item, thread, task->resident->pixels, 0, error);
}

/* One copy for all of them. */
static FshStatus load_into_store(uint64_t item, int thread, void *context, FshError *error)
{
    const Task *task = context;
    const ResidentSplit *resident = task->resident;
    uint64_t begin = 0, bytes = 0;
    for (uint64_t i = task->first[item]; i < task->first[item + 1];
         i++) { /* those that are left out lie nowhere */
        if (bytes == 0)
            begin = resident_image(resident, i, 0)->offset_bytes;
        bytes += sample_bytes(resident, i);
    }
    uint8_t *buffer = bytes <= COPIED_BYTES ? task->buffers[thread] : NULL;
    FshStatus status = load_samples(task, item, thread, buffer, begin, error);
    if (status || !buffer || bytes == 0)
        return status;
    return pixel_store_put(resident->store, begin, buffer, (size_t)bytes, error);
}

static FshStatus check_fits(const ResidentSplit *resident, Backend *backend, const FshSplit *split,
                            FshError *error)
{
    uint64_t free_bytes = 0;
    char needed[32], available[32];
    FshStatus status = backend_free_memory(backend, &free_bytes, error);
    free_bytes = free_bytes > KEPT_FREE_BYTES ? free_bytes - KEPT_FREE_BYTES : 0;
    if (status || resident->bytes <= free_bytes)
        return status;
    return fsh_error_set(
        error, FSH_ERR_MEMORY,
        "%s: --cache gpu: the pixels of split '%s' take %s, and %s of the GPU's memory are free; "
        "pack smaller images (fpack --max-size), lower --batch-size, or use --cache pixels",
        fsh_path(split->dataset), split->info->name,
        progress_format_bytes(needed, sizeof needed, resident->bytes),
        progress_format_bytes(available, sizeof available, free_bytes));
}

/* Into memory that is there. */
static FshStatus load_all(ResidentSplit *resident, const ResidentOptions *options, FshError *error)
{
    Task task = {.resident = resident, .options = options};
    const bool copies = resident->store != NULL;
    FshStatus status = open_task(&task, copies, error);
    if (!status) {
        divide(&task, copies ? COPIED_BYTES : HOST_BYTES);
        status = pool_run(options->threads, task.task_count, copies ? load_into_store : load_into_ram, &task,
                          error);
    }
    close_task(&task);
    return status;
}

FshStatus resident_split_load(ResidentSplit *resident, Backend *backend, const ResidentOptions *options,
                              FshError *error)
{
    FshStatus status = check_fits(resident, backend, options->samples.split, error);
    if (!status)
        status = pixel_store_new(&resident->store, backend, resident->bytes, error);
    if (!status)
        status = load_all(resident, options, error);
    if (status)
        pixel_store_free(&resident->store);
    return status;
}

FshStatus resident_split_load_host(ResidentSplit *resident, const ResidentOptions *options, FshError *error)
{
    char bytes[32];
    const size_t length = arena_bytes(resident);
    void *arena = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        return fsh_error_set(error, FSH_ERR_MEMORY,
                             "%s: --cache pixels: the system does not give %s of memory for the decoded "
                             "images; use --cache ram",
                             fsh_path(options->samples.split->dataset),
                             progress_format_bytes(bytes, sizeof bytes, resident->bytes));
#ifdef MADV_HUGEPAGE
    (void)madvise(arena, length, MADV_HUGEPAGE); /* samples are read in no order */
#endif
    resident->pixels = arena;
    FshStatus status = load_all(resident, options, error);
    if (status)
        free_arena(resident);
    return status;
}

FshStatus resident_split_check_room(const FshSplit *split, uint64_t bytes, uint64_t processes,
                                    uint64_t free_bytes, FshError *error)
{
    char needed[32], available[32], ranks[64] = "";
    free_bytes = free_bytes > KEPT_FREE_BYTES ? free_bytes - KEPT_FREE_BYTES : 0;
    if (bytes <= free_bytes / processes)
        return FSH_OK;
    if (processes > 1)
        (void)snprintf(ranks, sizeof ranks, " in each of %llu ranks", (unsigned long long)processes);
    return fsh_error_set(error, FSH_ERR_MEMORY,
                         "%s: --cache pixels: the decoded images take %s%s, and %s of memory are free; pack "
                         "smaller images (fpack --max-size)%s, or use --cache ram",
                         fsh_path(split->dataset), progress_format_bytes(needed, sizeof needed, bytes), ranks,
                         progress_format_bytes(available, sizeof available, free_bytes),
                         processes > 1 ? ", start fewer ranks" : "");
}

/* ---- samples in RAM ---- */

static FshStatus check_usable(const ResidentSplit *resident, uint64_t sample, FshError *error)
{
    if (!resident->store && !resident->pixels)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "the split was not loaded before its batches were asked for");
    if (resident->problems[sample])
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s", resident->problems[sample]);
    return FSH_OK;
}

FshStatus resident_split_open(const ResidentSplit *resident, SampleLoader *loader, uint64_t epoch,
                              uint64_t sample, SampleInfo *info, FshError *error)
{
    ImageView views[2];
    FshStatus status = check_usable(resident, sample, error);
    if (status)
        return status;
    for (unsigned side = 0; side < resident->sides; side++) {
        const ResidentImage *image = resident_image(resident, sample, side);
        views[side] = (ImageView){.pixels = resident->pixels + image->offset_bytes,
                                  .stride_bytes = (size_t)image->width * image->channels,
                                  .width = image->width,
                                  .height = image->height,
                                  .channels = image->channels};
    }
    *info = (SampleInfo){.label = resident->labels ? resident->labels[sample] : FSH_NO_LABEL,
                         .width = views[0].width,
                         .height = views[0].height};
    sample_loader_open_decoded(loader, epoch, sample, views);
    return FSH_OK;
}

void resident_split_expect(const ResidentSplit *resident, uint64_t sample)
{
    enum { LINE_BYTES = 64, LINES = 8 }; /* the processor sees by itself how it goes on */
    if (!resident->pixels)
        return;
    const ResidentImage *image = resident_image(resident, sample, 0);
    const uint64_t bytes = image->offset_bytes == PIXELS_NONE ? 0 : image_bytes(image);
    for (uint64_t i = 0; i < (uint64_t)LINES * LINE_BYTES && i < bytes; i += LINE_BYTES)
        __builtin_prefetch(resident->pixels + image->offset_bytes + i);
}

/* ---- recipes ---- */

static FshStatus fail_too_small(const ResidentDraw *draw, uint64_t sample, const ResidentImage *image,
                                FshError *error)
{
    char where[256];
    const uint32_t size = draw->augmentation->size;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: %s: it is %u x %u pixels, too small for a crop of %u x %u; use a smaller "
                         "--train-crop-size",
                         fsh_path(draw->split->dataset),
                         fsh_sample_where(draw->split, sample, where, sizeof where), image->width,
                         image->height, size, size);
}

FshStatus resident_split_draw(const ResidentSplit *resident, const ResidentDraw *draw, uint64_t sample,
                              PixelRecipe *recipe, PixelColours *colours, int64_t *label_ret, FshError *error)
{
    const Augmentation *augmentation = draw->augmentation;
    SampleRecipe drawn;
    FshStatus status = check_usable(resident, sample, error);
    if (status)
        return status;
    const ResidentImage *image = resident_image(resident, sample, 0);
    if (augmentation->mode == CROP_RANDOM &&
        (image->width < augmentation->size || image->height < augmentation->size))
        return fail_too_small(draw, sample, image, error);
    sample_recipe_draw(&drawn, augmentation, draw->seed, draw->epoch, sample, image->width, image->height);
    sample_recipe_pixels(&drawn, augmentation, image->width, image->height, recipe);
    for (unsigned side = 0; side < 2; side++) {
        const ResidentImage *stored = side < resident->sides ? resident_image(resident, sample, side) : NULL;
        recipe->offset_bytes[side] = stored ? stored->offset_bytes : PIXELS_NONE;
        recipe->channels[side] = stored ? stored->channels : 0;
    }
    if (colours)
        sample_recipe_colours(&drawn, augmentation, draw->fill, colours);
    *label_ret = resident->labels ? resident->labels[sample] : FSH_NO_LABEL;
    return FSH_OK;
}
