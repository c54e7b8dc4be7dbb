#include "tools/verify/verify_thumbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "imaging/encode.h"
#include "tools/verify/verify_pixels.h"

enum {
    SHEET_GAP_PX = 4,
    SHEET_BACKGROUND = 32,
    SHEET_QUALITY = 85,
};

typedef struct ThumbJob {
    Thumb *items;
    const ThumbOptions *options;
    PixelReader *readers; /* one for each thread */
} ThumbJob;

/* The middle of the decoded image, at most edge x edge. */
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
    if (!status)
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

FshStatus thumbs_make(const FshDataset *dataset, const ThumbOptions *options, Thumbs *thumbs, FshError *error)
{
    const size_t capacity = options->count + fsh_manifest(dataset)->split_count;
    *thumbs = (Thumbs){.items = calloc(capacity, sizeof *thumbs->items)};
    ThumbJob job = {.items = thumbs->items,
                    .options = options,
                    .readers = calloc((size_t)options->jobs, sizeof *job.readers)};
    FshStatus status = FSH_OK;
    if (!thumbs->items || !job.readers)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", fsh_path(dataset));
    if (!status) {
        thumbs->count = choose(dataset, options->count, thumbs->items, capacity);
        status = pool_run(options->jobs, thumbs->count, make_thumb, &job, error);
    }
    for (int i = 0; i < options->jobs && job.readers; i++)
        pixel_reader_free(&job.readers[i]);
    free(job.readers);
    return status;
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

/* ---- the sheet ---- */

static void paste(const Image *from, Image *sheet, size_t left, size_t top)
{
    for (size_t y = 0; y < from->height; y++) {
        uint8_t *to = sheet->pixels + ((top + y) * sheet->width + left) * 3;
        const uint8_t *at = from->pixels + y * from->width * from->channels;
        for (size_t x = 0; x < from->width; x++, at += from->channels, to += 3) {
            to[0] = at[0];
            to[1] = at[from->channels == 3 ? 1 : 0];
            to[2] = at[from->channels == 3 ? 2 : 0];
        }
    }
}

static FshStatus draw_sheet(const Thumbs *thumbs, uint32_t edge, Image *sheet, FshError *error)
{
    size_t sides = 1, columns = 1;
    for (size_t i = 0; i < thumbs->count; i++)
        sides = thumbs->items[i].sample.field_count > sides ? thumbs->items[i].sample.field_count : sides;
    while (columns * columns * sides < thumbs->count)
        columns++;
    const size_t rows = (thumbs->count + columns - 1) / columns, step = edge + SHEET_GAP_PX;
    const size_t width = columns * sides * step + SHEET_GAP_PX,
                 height = (rows ? rows : 1) * step + SHEET_GAP_PX;
    FshStatus status = image_reserve(sheet, (uint32_t)width, (uint32_t)height, 3, error);
    if (status)
        return status;
    memset(sheet->pixels, SHEET_BACKGROUND, width * height * 3);
    for (size_t i = 0; i < thumbs->count; i++) {
        for (size_t j = 0; j < thumbs->items[i].sample.field_count; j++) {
            const Image *image = &thumbs->items[i].images[j];
            if (image->width && image->width <= edge && image->height <= edge)
                paste(image, sheet,
                      SHEET_GAP_PX + (i % columns * sides + j) * step + (edge - image->width) / 2,
                      SHEET_GAP_PX + i / columns * step + (edge - image->height) / 2);
        }
    }
    return FSH_OK;
}

FshStatus thumbs_write_sheet(const Thumbs *thumbs, uint32_t edge, const char *path, bool force,
                             FshError *error)
{
    const ImageEncodeOptions options = {.format = image_name_format(path), .quality = SHEET_QUALITY};
    ImageEncoder *encoder = NULL;
    Image sheet = {0};
    Buffer file = {0};
    if (options.format != IMAGE_JPEG && options.format != IMAGE_PNG && options.format != IMAGE_WEBP)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sheet: %s should end in .jpg, .png or .webp", path);
    FshStatus status = draw_sheet(thumbs, edge, &sheet, error);
    if (!status)
        status = image_encoder_new(&encoder, error);
    if (!status)
        status = image_encode(encoder, &sheet, &options, &file, error);
    if (!status)
        status = file_write_atomic(path, file.bytes, file.length, force, false, error);
    image_encoder_free(&encoder);
    image_free(&sheet);
    buffer_free(&file);
    return status;
}
