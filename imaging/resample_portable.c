#include "imaging/resample_kernels.h"

enum { ROUNDING = 1 << (RESAMPLE_PRECISION_BITS - 1), COLUMNS_AT_ONCE = 256 };

static bool always(void)
{
    return true;
}

static void horizontal_gray(const ResampleAxis *axis, const uint8_t *row, uint8_t *target)
{
    for (uint32_t i = 0; i < axis->count; i++) {
        const int32_t *weights = axis->weights + (size_t)i * axis->stride;
        const uint8_t *pixels = row + axis->first[i];
        int32_t sum = ROUNDING;
        for (uint32_t k = 0; k < axis->length[i]; k++)
            sum += pixels[k] * weights[k];
        target[i] = resample_clamp(sum);
    }
}

static void horizontal_rgb(const ResampleAxis *axis, const uint8_t *row, uint8_t *target)
{
    for (uint32_t i = 0; i < axis->count; i++) {
        const int32_t *weights = axis->weights + (size_t)i * axis->stride;
        const uint8_t *pixels = row + (size_t)axis->first[i] * 3;
        int32_t red = ROUNDING, green = ROUNDING, blue = ROUNDING;
        for (uint32_t k = 0; k < axis->length[i]; k++) {
            red += pixels[3 * k] * weights[k];
            green += pixels[3 * k + 1] * weights[k];
            blue += pixels[3 * k + 2] * weights[k];
        }
        target[3 * (size_t)i] = resample_clamp(red);
        target[3 * (size_t)i + 1] = resample_clamp(green);
        target[3 * (size_t)i + 2] = resample_clamp(blue);
    }
}

static void horizontal(const ResampleAxis *axis, const uint8_t *source, size_t source_stride_bytes,
                       uint32_t rows, uint32_t channels, uint8_t *target, size_t target_stride_bytes)
{
    for (uint32_t y = 0; y < rows; y++) {
        const uint8_t *row = source + y * source_stride_bytes;
        if (channels == 1)
            horizontal_gray(axis, row, target + y * target_stride_bytes);
        else
            horizontal_rgb(axis, row, target + y * target_stride_bytes);
    }
}

/* Computes one output row. Sums stay in a small array while the source rows pass by, so that the compiler
 * vectorises along the row. */
static void vertical(const ResampleAxis *axis, uint32_t output, const uint8_t *source, size_t row_bytes,
                     uint8_t *target)
{
    const int32_t *weights = axis->weights + (size_t)output * axis->stride;
    uint32_t length = axis->length[output];
    int32_t sums[COLUMNS_AT_ONCE];
    for (size_t begin = 0; begin < row_bytes; begin += COLUMNS_AT_ONCE) {
        size_t count = row_bytes - begin < COLUMNS_AT_ONCE ? row_bytes - begin : COLUMNS_AT_ONCE;
        for (size_t x = 0; x < count; x++)
            sums[x] = ROUNDING;
        for (uint32_t k = 0; k < length; k++) {
            const uint8_t *row = source + k * row_bytes + begin;
            int32_t weight = weights[k];
            for (size_t x = 0; x < count; x++)
                sums[x] += row[x] * weight;
        }
        for (size_t x = 0; x < count; x++)
            target[begin + x] = resample_clamp(sums[x]);
    }
}

const ResampleKernels resample_kernels_portable = {
    .name = "portable", .supported = always, .horizontal = horizontal, .vertical = vertical};
