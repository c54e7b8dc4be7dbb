#include "tools/verify/verify_thumbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "tools/verify/verify_pixels.h"

typedef struct ThumbJob {
    Thumb *items;
    const ThumbOptions *options;
    PixelReader *readers; /* one for each thread */
} ThumbJob;

/* Cuts the middle out of the decoded image, at most edge x edge. */
static FshStatus cut_middle(const Image *from, uint32_t edge, Image *crop, FshError *error)
{
    const uint32_t width = from->width < edge ? from->width : edge,
                   height = from->height < edge ? from->height : edge;
    const size_t left = (from->width - width) / 2, top = (from->height - height) / 2;
    FshStatus status = image_reserve(crop, width, height, from->channels, error);
    for (size_t y = 0; y < height && !status; y++)
        memcpy(crop->pixels + y * width * from->channels,
               from->pixels + ((top + y) * from->width + left) * from->channels,
               (size_t)width * from->channels);
    return status;
}

static FshStatus make_field(const ThumbJob *job, PixelReader *reader, Thumb *thumb, unsigned index,
                            FshError *failure)
{
    const FshField *field = &thumb->sample.fields[index];
    const uint32_t edge = job->options->edge;
    const void *data = NULL;
    size_t bytes = 0;
    FshStatus status = pixel_reader_bytes(reader, thumb->split, field, &data, &bytes, failure);
    if (!status && fsh_is_mask(fsh_manifest(thumb->split->dataset)->kind, index))
        status =
            pixel_reader_colour_mask(reader, data, bytes, (uint64_t)field->width * field->height, failure);
    else if (!status)
        status = pixel_reader_decode(reader, field, data, bytes, job->options->with_crops ? 0 : edge, NULL,
                                     failure);
    if (!status && job->options->with_crops)
        status = cut_middle(&reader->decoded, edge, &thumb->crop[index], failure);
    return status ? status : pixel_reader_shrink(reader, edge, false, &thumb->images[index], failure);
}

static FshStatus make_thumb(uint64_t item, int thread, void *context, FshError *error)
{
    const ThumbJob *job = context;
    Thumb *thumb = &job->items[item];
    FshError failure = {0};
    FshStatus status = fsh_sample_get(thumb->split, thumb->index, &thumb->sample, &failure);
    if (status)
        thumb->sample = (FshSample){.label = FSH_NO_LABEL};
    for (unsigned i = 0; i < thumb->sample.field_count && status != FSH_ERR_MEMORY; i++) {
        failure = (FshError){0};
        status = make_field(job, &job->readers[thread], thumb, i, &failure);
        if (fsh_sample_check_read(thumb->split, &thumb->sample, &failure))
            status = FSH_ERR_SYSTEM;
        if (status)
            thumb->images[i].width = 0;
        if (status && !thumb->reason[0])
            (void)snprintf(thumb->reason, sizeof thumb->reason, "%.255s", failure.message);
    }
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    if (!thumb->sample.field_count)
        (void)snprintf(thumb->reason, sizeof thumb->reason, "%.255s", failure.message);
    return FSH_OK;
}

/* Fills items with split and index, `count` at most in all but for splits that get none. */
static size_t choose(const FshDataset *dataset, size_t count, Thumb *items, size_t capacity)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    uint64_t total = 0;
    size_t chosen = 0;
    for (size_t i = 0; i < manifest->split_count; i++)
        total += manifest->splits[i].sample_count;
    for (size_t i = 0; i < manifest->split_count && total; i++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[i].name);
        uint64_t own = (uint64_t)((double)split->sample_count / (double)total * (double)count);
        own = own ? own : 1;
        own = own < split->sample_count ? own : split->sample_count;
        for (uint64_t j = 0; j < own && chosen < capacity; j++) {
            const double at = ((double)j + 0.5) / (double)own * (double)split->sample_count;
            items[chosen++] = (Thumb){.split = split, .index = (uint64_t)at};
        }
    }
    return chosen;
}

FshStatus thumbs_fill(Thumbs *thumbs, const ThumbOptions *options, const char *where, FshError *error)
{
    ThumbJob job = {.items = thumbs->items,
                    .options = options,
                    .readers = calloc((size_t)options->jobs, sizeof *job.readers)};
    FshStatus status = job.readers ? pool_run(options->jobs, thumbs->count, make_thumb, &job, error)
                                   : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", where);
    for (int i = 0; i < options->jobs && job.readers; i++)
        pixel_reader_free(&job.readers[i]);
    free(job.readers);
    return status;
}

FshStatus thumbs_make(const FshDataset *dataset, const ThumbOptions *options, Thumbs *thumbs, FshError *error)
{
    const size_t capacity = options->count + fsh_manifest(dataset)->split_count;
    *thumbs = (Thumbs){.items = calloc(capacity, sizeof *thumbs->items)};
    if (!thumbs->items)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", fsh_path(dataset));
    thumbs->count = choose(dataset, options->count, thumbs->items, capacity);
    return thumbs_fill(thumbs, options, fsh_path(dataset), error);
}

void thumbs_free(Thumbs *thumbs)
{
    for (size_t i = 0; i < thumbs->count; i++) {
        for (unsigned j = 0; j < FSH_FIELDS_MAX; j++) {
            image_free(&thumbs->items[i].images[j]);
            image_free(&thumbs->items[i].crop[j]);
        }
    }
    free(thumbs->items);
    *thumbs = (Thumbs){0};
}
