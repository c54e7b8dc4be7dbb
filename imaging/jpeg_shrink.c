#include "imaging/jpeg_shrink.h"

#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/resample_axis.h"
#include "imaging/y4m.h"

enum {
    STRIP_ROWS = 8, /* rows between the two passes: kernels take two or four at once */
    ROW_ALIGNMENT = 64,
};

/* One colour plane on its way. The vertical pass comes first: it runs along rows as they lie in memory,
 * several times faster for each sample than the horizontal pass, which then has fewer rows to do. */
typedef struct Plane {
    JpegPlane source;
    uint32_t width, height; /* of the target */
    const ResampleAxis *columns, *rows;
    size_t stride_bytes; /* of a row in window and strip */
    Buffer window;       /* window_rows source rows from window_first on; room for window_capacity */
    uint32_t window_first, window_rows, window_capacity;
    Buffer strip; /* strip_rows rows that have passed vertically, still as wide as the source */
    uint32_t strip_rows;
    Buffer target;
    size_t target_stride_bytes;
    uint32_t next_row; /* first row of the target that is not yet in target or strip */
} Plane;

struct JpegShrinker {
    const ResampleKernels *kernels;
    ResampleAxisCache axes; /* for both directions: portrait photographs reuse the axes of landscape ones */
    Plane planes[JPEG_PLANES_MAX];
};

FshStatus jpeg_shrinker_new(JpegShrinker **shrinker, FshError *error)
{
    *shrinker = calloc(1, sizeof **shrinker);
    if (!*shrinker)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for shrinking JPEGs");
    (*shrinker)->kernels = resample_kernels_best();
    return FSH_OK;
}

void jpeg_shrinker_free(JpegShrinker **shrinker)
{
    if (!*shrinker)
        return;
    resample_axis_cache_clear(&(*shrinker)->axes);
    for (size_t i = 0; i < JPEG_PLANES_MAX; i++) {
        buffer_free(&(*shrinker)->planes[i].window);
        buffer_free(&(*shrinker)->planes[i].strip);
        buffer_free(&(*shrinker)->planes[i].target);
    }
    free(*shrinker);
    *shrinker = NULL;
}

void jpeg_shrinker_use_kernels(JpegShrinker *shrinker, const ResampleKernels *kernels)
{
    resample_axis_cache_clear(&shrinker->axes);
    shrinker->kernels = kernels;
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static uint32_t choose_scale(const JpegDecoder *decoder, uint32_t index, uint32_t width, uint32_t height,
                             uint32_t margin)
{
    for (uint32_t eighths = 1; margin && eighths < 8; eighths *= 2) {
        JpegPlane plane;
        jpeg_decoder_plane(decoder, index, eighths, &plane);
        if (plane.covered_width >= (double)width * margin && plane.covered_height >= (double)height * margin)
            return eighths;
    }
    return 8;
}

/* Finds the weights of one direction. divisor 2: a halved plane, whose last sample reaches beyond an odd
 * edge. */
static FshStatus find_axis(JpegShrinker *shrinker, uint32_t source_size, double covered, uint32_t image_size,
                           uint32_t target_size, uint32_t divisor, ResampleFilter filter,
                           const ResampleAxis **axis, FshError *error)
{
    double end = covered * ((double)target_size * divisor / image_size);
    ResampleAxisKey key = {source_size, target_size, 0, (float)end, filter, 0, 0, false};
    return resample_axis_get(&shrinker->axes, &key, shrinker->kernels, axis, error);
}

static uint32_t longest(const ResampleAxis *axis)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < axis->count; i++)
        most = axis->length[i] > most ? axis->length[i] : most;
    return most;
}

static FshStatus prepare_plane(JpegShrinker *shrinker, Plane *plane, const JpegShrinkOptions *options,
                               bool halved, FshError *error)
{
    const JpegPlane *source = &plane->source;
    uint32_t divisor = halved ? 2 : 1;
    FshStatus status = find_axis(shrinker, source->width, source->covered_width, options->width, plane->width,
                                 divisor, options->filter, &plane->columns, error);
    if (!status)
        status = find_axis(shrinker, source->height, source->covered_height, options->height, plane->height,
                           divisor, options->filter, &plane->rows, error);
    if (status)
        return status;
    plane->stride_bytes = round_up(source->row_bytes, ROW_ALIGNMENT);
    plane->target_stride_bytes = round_up(plane->width, ROW_ALIGNMENT);
    /* with twice the filter's reach, the rows kept when the window is full are moved only once */
    uint32_t reach = longest(plane->rows);
    plane->window_capacity = reach + (reach > 2 * source->group_rows ? reach : 2 * source->group_rows);
    plane->window_first = plane->window_rows = plane->strip_rows = plane->next_row = 0;
    status = buffer_reserve(&plane->window, plane->window_capacity * plane->stride_bytes, error);
    if (!status)
        status =
            buffer_reserve(&plane->strip, STRIP_ROWS * plane->stride_bytes + RESAMPLE_SLACK_BYTES, error);
    if (!status)
        status = buffer_reserve(&plane->target,
                                round_up(plane->height, STRIP_ROWS) * plane->target_stride_bytes, error);
    return status;
}

/* Returns where the next group of rows is to be decoded. Drops rows that no output needs any more. */
static uint8_t *make_room(Plane *plane)
{
    if (plane->window_rows + plane->source.group_rows > plane->window_capacity) {
        uint32_t end = plane->window_first + plane->window_rows, keep_from = end;
        if (plane->next_row < plane->height && plane->rows->first[plane->next_row] < end)
            keep_from = plane->rows->first[plane->next_row];
        memmove(plane->window.bytes,
                plane->window.bytes + (keep_from - plane->window_first) * plane->stride_bytes,
                (end - keep_from) * plane->stride_bytes);
        plane->window_first = keep_from;
        plane->window_rows = end - keep_from;
    }
    return plane->window.bytes + plane->window_rows * plane->stride_bytes;
}

/* Resamples the strip's rows in width into target, as its next rows. */
static void finish_strip(const ResampleKernels *kernels, Plane *plane)
{
    uint8_t *target =
        plane->target.bytes + (plane->next_row - plane->strip_rows) * plane->target_stride_bytes;
    /* the whole strip even if it is not full: kernels are fastest with whole groups of rows */
    kernels->horizontal(plane->columns, plane->strip.bytes, plane->stride_bytes, STRIP_ROWS, 1, target,
                        plane->target_stride_bytes);
    size_t padding = round_up(plane->width, 8) - plane->width;
    for (uint32_t y = 0; padding && y < plane->strip_rows; y++) {
        uint8_t *end = target + y * plane->target_stride_bytes + plane->width;
        memset(end, end[-1], padding);
    }
    plane->strip_rows = 0;
}

/* Takes the group of rows just decoded, and computes all outputs whose source rows are now there. */
static void take_group(const ResampleKernels *kernels, Plane *plane)
{
    uint32_t end = plane->window_first + plane->window_rows, rest = plane->source.height - end;
    uint32_t rows = plane->source.group_rows < rest ? plane->source.group_rows : rest;
    plane->window_rows += rows;
    end += rows;
    const ResampleAxis *axis = plane->rows;
    while (plane->next_row < plane->height &&
           axis->first[plane->next_row] + axis->length[plane->next_row] <= end) {
        size_t row = axis->first[plane->next_row] - plane->window_first;
        kernels->vertical(axis, plane->next_row, plane->window.bytes + row * plane->stride_bytes,
                          plane->stride_bytes, plane->strip.bytes + plane->strip_rows * plane->stride_bytes);
        plane->next_row++;
        if (++plane->strip_rows == STRIP_ROWS || plane->next_row == plane->height)
            finish_strip(kernels, plane);
    }
}

/* Decodes all planes from first row to last and resamples them into their targets. */
static FshStatus fill_targets(JpegShrinker *shrinker, JpegDecoder *decoder, uint32_t count,
                              const uint32_t eighths[JPEG_PLANES_MAX], JpegShrinkReport *report,
                              double *start_seconds, FshError *error)
{
    uint8_t *rows[JPEG_PLANES_MAX] = {0};
    size_t strides[JPEG_PLANES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++)
        strides[i] = shrinker->planes[i].stride_bytes;
    FshStatus status = jpeg_decoder_planes_start(decoder, eighths, true, error);
    uint32_t groups = status ? 0 : jpeg_decoder_groups_count(decoder);
    for (uint32_t group = 0; !status && group < groups; group++) {
        for (uint32_t i = 0; i < count; i++)
            rows[i] = make_room(&shrinker->planes[i]);
        status = jpeg_decoder_planes_next(decoder, rows, strides, &report->quirks, error);
        report->decode_seconds += progress_lap_seconds(start_seconds);
        for (uint32_t i = 0; !status && i < count; i++)
            take_group(shrinker->kernels, &shrinker->planes[i]);
        report->resample_seconds += progress_lap_seconds(start_seconds);
    }
    return status;
}

/* Decodes and resamples all planes; *count_ret: how many. */
static FshStatus make_planes(JpegShrinker *shrinker, JpegDecoder *decoder, const JpegShrinkOptions *options,
                             uint32_t *count_ret, JpegShrinkReport *report, double *start_seconds,
                             FshError *error)
{
    uint32_t count = *count_ret = jpeg_decoder_planes_count(decoder);
    if (!count)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "a JPEG without planes of gray or YCbCr cannot be shrunk");
    if (!options->width || !options->height)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "cannot shrink a JPEG to %u x %u", options->width,
                             options->height);
    uint32_t eighths[JPEG_PLANES_MAX] = {0};
    FshStatus status = FSH_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        Plane *plane = &shrinker->planes[i];
        bool halved = i > 0 && options->subsampling == IMAGE_SUBSAMPLING_420;
        plane->width = halved ? (options->width - 1) / 2 + 1 : options->width;
        plane->height = halved ? (options->height - 1) / 2 + 1 : options->height;
        eighths[i] = choose_scale(decoder, i, plane->width, plane->height, options->margin);
        jpeg_decoder_plane(decoder, i, eighths[i], &plane->source);
        status = prepare_plane(shrinker, plane, options, halved, error);
    }
    report->resample_seconds = progress_lap_seconds(start_seconds);
    return status ? status : fill_targets(shrinker, decoder, count, eighths, report, start_seconds, error);
}

FshStatus jpeg_shrink(JpegShrinker *shrinker, JpegDecoder *decoder, JpegEncoder *encoder,
                      const JpegShrinkOptions *options, Buffer *out, JpegShrinkReport *report,
                      FshError *error)
{
    *report = (JpegShrinkReport){0};
    double start_seconds = progress_now_seconds();
    uint32_t count = 0;
    FshStatus status = make_planes(shrinker, decoder, options, &count, report, &start_seconds, error);
    JpegSamples samples[JPEG_PLANES_MAX] = {{0}};
    for (uint32_t i = 0; i < count; i++)
        samples[i] = (JpegSamples){shrinker->planes[i].target.bytes, shrinker->planes[i].target_stride_bytes};
    if (!status)
        status =
            jpeg_encoder_encode_planes(encoder, samples, count, options->width, options->height,
                                       options->quality, options->subsampling, options->metadata, out, error);
    report->encode_seconds = progress_lap_seconds(&start_seconds);
    return status;
}

FshStatus jpeg_shrink_planes(JpegShrinker *shrinker, JpegDecoder *decoder, const JpegShrinkOptions *options,
                             Buffer *out, JpegShrinkReport *report, FshError *error)
{
    *report = (JpegShrinkReport){0};
    double start_seconds = progress_now_seconds();
    uint32_t count = 0;
    uint8_t *to = NULL;
    JpegShrinkOptions expandable = *options;
    if (!planes_expandable(PLANES_420, options->width, options->height))
        expandable.subsampling = IMAGE_SUBSAMPLING_444;
    FshStatus status = make_planes(shrinker, decoder, &expandable, &count, report, &start_seconds, error);
    const PlanesChroma chroma = count == 1                                        ? PLANES_GRAY
                                : expandable.subsampling == IMAGE_SUBSAMPLING_420 ? PLANES_420
                                                                                  : PLANES_444;
    if (!status)
        status = y4m_begin(out, chroma, options->width, options->height, &to, error);
    for (uint32_t i = 0; !status && i < count; i++) {
        const Plane *plane = &shrinker->planes[i];
        for (uint32_t y = 0; y < plane->height; y++, to += plane->width)
            memcpy(to, plane->target.bytes + y * plane->target_stride_bytes, plane->width);
    }
    report->encode_seconds = progress_lap_seconds(&start_seconds);
    return status;
}
