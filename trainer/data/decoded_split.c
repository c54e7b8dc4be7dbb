#include "trainer/data/decoded_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/progress.h"
#include "common/text.h"

static void free_memory(DecodedMemory *memory)
{
    if (memory->bytes)
        (void)munmap(memory->bytes, memory->length);
    *memory = (DecodedMemory){0};
}

void decoded_split_free(DecodedSplit *split)
{
    free_memory(&split->pixels);
    free_memory(&split->tables);
    for (uint64_t i = 0; split->problems && i < split->sample_count; i++)
        free(split->problems[i]);
    free(split->problems);
    sample_checksums_free(&split->checksums);
    *split = (DecodedSplit){0};
}

void decoded_split_drop_pixels(DecodedSplit *split)
{
    free_memory(&split->pixels);
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

/* ---- samples ---- */

FshStatus decoded_split_find(const DecodedSplit *split, uint64_t sample, const DecodedImage **sides_ret,
                             FshError *error)
{
    if (!split->loaded)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "the split was not loaded before its batches were asked for");
    if (split->problems[sample])
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s", split->problems[sample]);
    *sides_ret = decoded_image(split, sample, 0);
    return FSH_OK;
}

int64_t decoded_split_label(const DecodedSplit *split, uint64_t sample)
{
    return split->labels ? split->labels[sample] : FSH_NO_LABEL;
}

/* ---- of a source's row ---- */

PixelExtent decoded_source_extent(const PixelSource *source)
{
    const DecodedSplit *split = decoded_split_of(source);
    PixelExtent extent = {.bytes = split->bytes};
    for (uint64_t i = 0; split->images && i < split->sample_count * split->sides; i++) {
        const DecodedImage *image = &split->images[i];
        const uint32_t edge = image->width < image->height ? image->width : image->height;
        extent.short_edge = edge > extent.short_edge ? edge : extent.short_edge;
    }
    return extent;
}

uint64_t decoded_source_ram_bytes(const PixelSource *source)
{
    return decoded_split_of(source)->bytes;
}

FshStatus decoded_source_open_sample(const PixelSource *source, SampleLoader *samples, uint64_t turn,
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
        sides[side] = (SampleImage){.view = {.pixels = split->pixels.bytes + image->offset_bytes,
                                             .stride_bytes = (size_t)image->width * image->channels,
                                             .width = image->width,
                                             .height = image->height,
                                             .channels = image->channels},
                                    .expand = image->expands ? split->form->expand : NULL};
    }
    *info = (SampleInfo){
        .label = decoded_split_label(split, sample), .width = images[0].width, .height = images[0].height};
    sample_loader_open_decoded(samples, turn, sample, sides);
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

/* Writes how many images are in a form of their own: "", ", as planes", ", 290 of 300 as planes". */
static const char *tell_form(const DecodedSplit *split, char *text, size_t text_bytes)
{
    uint64_t expanded = 0, count = 0;
    for (uint64_t i = 0; i < split->sample_count * split->sides; i++) {
        const bool is_there = split->images[i].offset_bytes != PIXELS_NONE;
        count += is_there;
        expanded += is_there && split->images[i].expands;
    }
    text[0] = '\0';
    if (expanded && expanded == count)
        (void)snprintf(text, text_bytes, ", as planes");
    else if (expanded)
        (void)snprintf(text, text_bytes, ", %" PRIu64 " of %" PRIu64 " images as planes", expanded, count);
    return text;
}

FshStatus decoded_source_tell(const PixelSource *source, char *line, size_t line_bytes, FshError *error)
{
    char bytes[32], ranks[48] = "", form[80];
    const DecodedSplit *split = decoded_split_of(source);
    (void)error;
    if (split->team && split->team->count > 1)
        (void)snprintf(ranks, sizeof ranks, ", %s for %" PRIu64 " ranks",
                       split->divided ? "a part on each" : "once", split->team->count);
    (void)snprintf(line, line_bytes, "%s: %" PRIu64 " sample%s, %s of pixels %s%s%s, in %.1f s",
                   source->options.samples.split->info->name, split->sample_count,
                   text_plural(split->sample_count), progress_format_bytes(bytes, sizeof bytes, split->bytes),
                   source->type->loaded, tell_form(split, form, sizeof form), ranks, split->seconds);
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
    if (!split->pixels.bytes)
        return;
    const DecodedImage *image = decoded_image(split, sample, 0);
    const uint64_t bytes = image->offset_bytes == PIXELS_NONE ? 0 : image->bytes;
    for (uint64_t i = 0; i < (uint64_t)LINES * LINE_BYTES && i < bytes; i += LINE_BYTES)
        __builtin_prefetch(split->pixels.bytes + image->offset_bytes + i);
}
