#include "imaging/resample.h"

#include <stdlib.h>
#include <string.h>

#include "imaging/resample_axis.h"
#include "imaging/resample_kernels.h"

const char *const resample_filter_names[] = {"box", "bilinear", "bicubic", "lanczos", NULL};

const ResampleKernels *const resample_kernels_all[] = {
#ifdef FSHARD_RESAMPLE_X86
    &resample_kernels_avx512,
    &resample_kernels_avx2,
#endif
    &resample_kernels_portable,
    NULL,
};

const ResampleKernels *resample_kernels_best(void)
{
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if ((*kernels)->supported())
            return *kernels;
    }
    return &resample_kernels_portable;
}

struct Resampler {
    const ResampleKernels *kernels;
    ResampleAxisCache columns, rows;
    Image between;       /* the result of the horizontal pass */
    uint8_t *padded_row; /* a row followed by slack */
    size_t padded_capacity;
};

FshStatus resampler_new(Resampler **resampler, FshError *error)
{
    *resampler = calloc(1, sizeof **resampler);
    if (!*resampler)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a resampler");
    (*resampler)->kernels = resample_kernels_best();
    return FSH_OK;
}

void resampler_free(Resampler **resampler)
{
    if (!*resampler)
        return;
    resample_axis_cache_clear(&(*resampler)->columns);
    resample_axis_cache_clear(&(*resampler)->rows);
    image_free(&(*resampler)->between);
    free((*resampler)->padded_row);
    free(*resampler);
    *resampler = NULL;
}

void resampler_use_kernels(Resampler *resampler, const ResampleKernels *kernels)
{
    resample_axis_cache_clear(&resampler->columns);
    resample_axis_cache_clear(&resampler->rows);
    resampler->kernels = kernels;
}

/* Resamples rows first..first+rows-1 of source in width into target, rows without padding. */
static FshStatus horizontal_pass(Resampler *resampler, const ResampleAxis *axis, const ImageView *source,
                                 uint32_t first, uint32_t rows, uint8_t *target, FshError *error)
{
    size_t row_bytes = (size_t)source->width * source->channels, stride = source->stride_bytes;
    size_t needed = row_bytes + RESAMPLE_SLACK_BYTES;
    if (needed > resampler->padded_capacity) {
        uint8_t *row = realloc(resampler->padded_row, needed);
        if (!row)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a row of pixels");
        memset(row, 0, needed);
        resampler->padded_row = row;
        resampler->padded_capacity = needed;
    }
    /* Kernels may read a little beyond a row. Nothing may be read beyond the source's last row, so the last
     * rows are copied to padded_row first. */
    uint32_t detour = 0;
    while (detour < rows && (source->height - first - rows + detour) * stride < RESAMPLE_SLACK_BYTES)
        detour++;
    size_t target_stride = (size_t)axis->count * source->channels;
    const uint8_t *from = source->pixels + first * stride;
    resampler->kernels->horizontal(axis, from, stride, rows - detour, source->channels, target,
                                   target_stride);
    for (uint32_t y = rows - detour; y < rows; y++) {
        memcpy(resampler->padded_row, from + y * stride, row_bytes);
        resampler->kernels->horizontal(axis, resampler->padded_row, row_bytes, 1, source->channels,
                                       target + y * target_stride, target_stride);
    }
    return FSH_OK;
}

/* Resamples in height. source begins with row first_row; rows of row_bytes, without padding. */
static void vertical_pass(const Resampler *resampler, const ResampleAxis *axis, const uint8_t *source,
                          size_t row_bytes, uint32_t first_row, uint8_t *target)
{
    for (uint32_t y = 0; y < axis->count; y++)
        resampler->kernels->vertical(axis, y, source + (axis->first[y] - first_row) * row_bytes, row_bytes,
                                     target + y * row_bytes);
}

static void copy_rows(const ImageView *source, uint32_t first, uint32_t rows, uint8_t *target)
{
    size_t row_bytes = (size_t)source->width * source->channels;
    for (uint32_t y = 0; y < rows; y++)
        memcpy(target + y * row_bytes, source->pixels + (first + y) * source->stride_bytes, row_bytes);
}

/* Runs the passes that are needed. columns, rows: NULL for an axis that stays as it is. */
static FshStatus run_passes(Resampler *resampler, const ImageView *source, const ResampleAxis *columns,
                            const ResampleAxis *rows, uint8_t *target, FshError *error)
{
    if (!rows && !columns) {
        copy_rows(source, 0, source->height, target);
        return FSH_OK;
    }
    if (!rows)
        return horizontal_pass(resampler, columns, source, 0, source->height, target, error);
    size_t row_bytes = (size_t)source->width * source->channels;
    if (!columns && source->stride_bytes == row_bytes) {
        vertical_pass(resampler, rows, source->pixels, row_bytes, 0, target);
        return FSH_OK;
    }
    /* only the rows that the vertical pass reads */
    uint32_t first_row = rows->first[0];
    uint32_t rows_count = rows->first[rows->count - 1] + rows->length[rows->count - 1] - first_row;
    uint32_t width = columns ? columns->count : source->width;
    FshStatus status = image_reserve(&resampler->between, width, rows_count, source->channels, error);
    if (!status && columns)
        status = horizontal_pass(resampler, columns, source, first_row, rows_count, resampler->between.pixels,
                                 error);
    else if (!status)
        copy_rows(source, first_row, rows_count, resampler->between.pixels);
    if (!status)
        vertical_pass(resampler, rows, resampler->between.pixels, (size_t)width * source->channels, first_row,
                      target);
    return status;
}

static bool within(uint32_t first, uint32_t count, uint32_t size)
{
    return count > 0 && first <= size && count <= size - first;
}

FshStatus resample_view(Resampler *resampler, const ImageView *source, const ResampleBox *box, uint32_t width,
                        uint32_t height, ResampleFilter filter, const ResampleWindow *window, bool mirrored,
                        uint8_t *target, FshError *error)
{
    const ResampleBox whole = {0, 0, source->width, source->height};
    const ResampleWindow all = {0, 0, width, height};
    if (!box)
        box = &whole;
    if (!window)
        window = &all;
    bool inside =
        box->left >= 0 && box->top >= 0 && box->right <= source->width && box->bottom <= source->height;
    /* float, from which the weights are computed */
    float left = (float)box->left, top = (float)box->top, right = (float)box->right,
          bottom = (float)box->bottom;
    if (!inside || !(left < right) || !(top < bottom) || !within(window->left, window->width, width) ||
        !within(window->top, window->height, height))
        return fsh_error_set(
            error, FSH_ERR_MISMATCH, "cannot resample the box (%g, %g, %g, %g) of %u x %u pixels to %u x %u",
            box->left, box->top, box->right, box->bottom, source->width, source->height, width, height);
    bool change_width = mirrored || width != source->width || left != 0 || right != (float)source->width ||
                        window->width != width;
    bool change_height =
        height != source->height || top != 0 || bottom != (float)source->height || window->height != height;
    const ResampleAxis *columns = NULL, *rows = NULL;
    FshStatus status = FSH_OK;
    if (change_width) {
        ResampleAxisKey key = {source->width, width,        left,          right,
                               filter,        window->left, window->width, mirrored};
        status = resample_axis_get(&resampler->columns, &key, resampler->kernels, &columns, error);
    }
    if (!status && change_height) {
        ResampleAxisKey key = {source->height, height,         top,  bottom, filter,
                               window->top,    window->height, false};
        status = resample_axis_get(&resampler->rows, &key, resampler->kernels, &rows, error);
    }
    return status ? status : run_passes(resampler, source, columns, rows, target, error);
}

FshStatus resample(Resampler *resampler, const Image *source, const ResampleBox *box, uint32_t width,
                   uint32_t height, ResampleFilter filter, Image *target, FshError *error)
{
    if (width == 0 || height == 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "cannot resample %u x %u pixels to %u x %u",
                             source->width, source->height, width, height);
    const ImageView view = image_view(source);
    FshStatus status = image_reserve(target, width, height, source->channels, error);
    if (!status)
        status =
            resample_view(resampler, &view, box, width, height, filter, NULL, false, target->pixels, error);
    return status;
}

/* Returns edge * max_size / reference, rounded; exactly a half goes to the even number, as in Python's
 * round. */
static uint32_t scale_edge(uint32_t edge, uint32_t max_size, uint32_t reference)
{
    const uint64_t product = (uint64_t)edge * max_size, rest = product % reference;
    uint64_t scaled = product / reference;
    if (rest * 2 > reference || (rest * 2 == reference && scaled % 2 == 1))
        scaled++;
    return scaled ? (uint32_t)scaled : 1;
}

bool resample_fit(uint32_t width, uint32_t height, uint32_t max_size, bool long_edge, uint32_t *width_ret,
                  uint32_t *height_ret)
{
    bool by_width = (width < height) != long_edge;
    uint32_t reference = by_width ? width : height;
    *width_ret = width;
    *height_ret = height;
    if (reference <= max_size)
        return false;
    *width_ret = by_width ? max_size : scale_edge(width, max_size, reference);
    *height_ret = by_width ? scale_edge(height, max_size, reference) : max_size;
    return true;
}
