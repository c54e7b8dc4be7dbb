#include "trainer/data/pixel_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"

/* ---- the rows ---- */

extern const PixelSourceType source_records, source_pixels, source_planes, source_gpu,
    source_nvjpeg; /* a file each */

static const PixelSourceType *const types[] = {&source_records, &source_pixels, &source_planes,
                                               &source_gpu,     &source_nvjpeg, NULL};

const char *const pixel_source_caches[] = {"none", "ram", "lock", "pixels", "planes", "gpu", NULL};
const char pixel_source_caches_help[] =
    "auto: as soon as the first steps tell that the run wins by it, decode into memory; "
    "else, before the first step: none, bring the dataset into memory (ram), "
    "lock it there too (lock), or decode it "
    "into memory as RGB (pixels), as a JPEG's 4:2:0 in half of that (planes), or as that into the GPU's "
    "(gpu)";

const PixelSourceType *pixel_source_type(const char *name)
{
    const PixelSourceType *const *type = types;
    while (*type && strcmp((*type)->name, name) != 0)
        type++;
    return *type;
}

const PixelSourceType *pixel_source_of_option(const char *option, const char *value)
{
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "--%s %s", option, value);
    const PixelSourceType *const *type = types;
    while (*type && !((*type)->option && strcmp((*type)->option, wanted) == 0))
        type++;
    return *type;
}

const PixelSource *pixel_source_plain(void)
{
    static const PixelSource plain = {.type = &source_records};
    return &plain;
}

/* ---- life ---- */

FshStatus pixel_source_new(PixelSource **source, const PixelSourceType *type,
                           const PixelSourceOptions *options, FshError *error)
{
    PixelSource *made = *source = calloc(1, type->bytes);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a source of pixels");
    made->type = type;
    made->options = *options;
    FshStatus status = type->open ? type->open(made, error) : FSH_OK;
    if (status)
        pixel_source_free(source);
    return status;
}

void pixel_source_free(PixelSource **source)
{
    PixelSource *freed = *source;
    if (!freed)
        return;
    pixel_store_free(&freed->store);
    if (freed->type->close)
        freed->type->close(freed);
    free(freed);
    *source = NULL;
}

FshStatus pixel_source_measure(PixelSource *source, FshError *error)
{
    return source->type->measure ? source->type->measure(source, error) : FSH_OK;
}

FshStatus pixel_source_load(PixelSource *source, FshError *error)
{
    return source->type->load ? source->type->load(source, error) : FSH_OK;
}

FshStatus pixel_source_tell(const PixelSource *source, char *line, size_t line_bytes, FshError *error)
{
    line[0] = '\0';
    return source->type->tell ? source->type->tell(source, line, line_bytes, error) : FSH_OK;
}

/* ---- memory ---- */

FshStatus pixel_source_check_room(const PixelSource *source, uint64_t bytes, uint64_t processes,
                                  uint64_t free_bytes, FshError *error)
{
    enum { KEPT_FREE_BYTES = 256 << 20 }; /* for the run itself */
    char needed[32], available[32], ranks[64] = "";
    free_bytes = free_bytes > KEPT_FREE_BYTES ? free_bytes - KEPT_FREE_BYTES : 0;
    if (bytes <= free_bytes / processes)
        return FSH_OK;
    if (processes > 1)
        (void)snprintf(ranks, sizeof ranks, " in each of %llu ranks", (unsigned long long)processes);
    return fsh_error_set(
        error, FSH_ERR_MEMORY,
        "%s: %s: the decoded images take %s%s, and %s of memory are free; pack smaller images "
        "(fpack --max-size)%s, or use %s",
        fsh_path(source->options.samples.split->dataset), source->type->option,
        progress_format_bytes(needed, sizeof needed, bytes), ranks,
        progress_format_bytes(available, sizeof available, free_bytes),
        processes > 1 ? ", start fewer ranks" : "", source->type->instead);
}

PixelExtent pixel_source_extent(const PixelSource *source)
{
    return source && source->type->extent ? source->type->extent(source) : (PixelExtent){0};
}

uint64_t pixel_source_ram_bytes(const PixelSource *source)
{
    return source && source->type->ram_bytes ? source->type->ram_bytes(source) : 0;
}

void pixel_source_device_memory(const PixelSource *source, MemoryUse *use)
{
    if (source && source->store)
        pixel_store_memory(source->store, use);
}

/* ---- what sources share ---- */

FshStatus pixel_source_render_here(const PixelSource *source, SampleLoader *samples, const SampleView *view,
                                   uint64_t sample, BatchSlot *slot, uint64_t place, FshError *error)
{
    SampleInfo info;
    FshStatus status = source->type->open_sample(source, samples, view->turn, sample, &info, error);
    if (!status && view->augmentation->mode == CROP_WHOLE)
        status = batch_slot_resize(slot, info.width, info.height, error);
    if (!status)
        status = sample_loader_render(samples, view->augmentation, batch_slot_pixels(slot, place),
                                      batch_slot_target(slot, place), error);
    if (!status)
        batch_slot_take(slot, place, info.label);
    return status;
}

FshStatus pixel_source_open_record(const PixelSource *source, SampleLoader *samples, uint64_t turn,
                                   uint64_t sample, SampleInfo *info, FshError *error)
{
    (void)source;
    return sample_loader_open(samples, turn, sample, info, error);
}

void pixel_source_prefetch_record(const PixelSource *source, const SampleLoader *samples, uint64_t sample)
{
    (void)source;
    sample_loader_expect(samples, sample);
}

static FshStatus fail_to_cache(const FshSplit *split, FshError *error)
{
    return fsh_error_prepend(error, "%s: --cache", fsh_path(split->dataset));
}

FshStatus pixel_source_cache_files(PixelSource *source, FshError *error)
{
    const PixelSourceOptions *options = &source->options;
    const FshSplit *split = options->samples.split;
    if (options->cache == FSH_CACHE_NONE)
        return FSH_OK;
    FshStatus status = fsh_split_cache(split, options->cache, options->threads, error);
    return status ? fail_to_cache(split, error) : FSH_OK;
}

FshStatus pixel_source_tell_files(const PixelSource *source, char *line, size_t line_bytes, FshError *error)
{
    const FshSplit *split = source->options.samples.split;
    const char *locked = source->options.cache == FSH_CACHE_LOCK ? ", locked" : "";
    FshResidency residency;
    char resident[32], whole[32];
    if (source->options.cache == FSH_CACHE_NONE)
        return FSH_OK;
    if (fsh_split_residency(split, &residency, error))
        return fail_to_cache(split, error);
    (void)progress_format_bytes(whole, sizeof whole, residency.bytes);
    if (residency.known)
        (void)snprintf(line, line_bytes, "%s: %s of %s resident%s", split->info->name,
                       progress_format_bytes(resident, sizeof resident, residency.resident_bytes), whole,
                       locked);
    else
        (void)snprintf(line, line_bytes,
                       "%s: %s read into memory%s; how much of it stays is not told, for the files are not "
                       "yours",
                       split->info->name, whole, locked);
    return FSH_OK;
}
