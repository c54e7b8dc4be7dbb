/* pixel_math.h - one pixel of a recipe, written once: CUDA kernels call this for every pixel at a time, the
 * CPU's test in a loop. What it gives is held against trainer/data's rendering, byte for byte.
 *
 * Compile without joining products and sums (nvcc: --fmad=false). */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_MATH_H
#define FSHARD_TRAINER_BACKEND_PIXEL_MATH_H

#include <stddef.h>

#include "imaging/resample_weights.h"
#include "trainer/backend/pixel_recipe.h"
#include "trainer/backend/colour_math.h"

enum { PIXEL_CHANNELS_MAX = 3 };

/* Mirrors a place outside of 0..size-1, less than size away, at the edge. */
FSH_HOST_DEVICE static inline size_t pixel_mirrored(int64_t at, int64_t size)
{
    if (at < 0)
        at = -at;
    if (at >= size)
        at = 2 * (size - 1) - at;
    return at < 0 ? 0 : (size_t)at; /* size 1 has nothing to mirror */
}

/* ---- geometry ---- */

typedef struct PixelPlace {
    uint32_t x, y;
} PixelPlace;

/* Returns where in the window pixel (x, y) of a width x height image of the batch comes from. */
FSH_HOST_DEVICE static inline PixelPlace pixel_origin(const PixelRecipe *recipe, uint32_t width,
                                                      uint32_t height, uint32_t x, uint32_t y)
{
    const uint32_t taken_width = recipe->transpose ? height : width,
                   taken_height = recipe->transpose ? width : height;
    const uint32_t column = recipe->transpose ? y : x, row = recipe->transpose ? x : y;
    PixelPlace place;
    place.x = (uint32_t)pixel_mirrored(
        (int64_t)(recipe->flip ? taken_width - 1 - column : column) + recipe->shift_x, taken_width);
    place.y = (uint32_t)pixel_mirrored(
        (int64_t)(recipe->vertical_flip ? taken_height - 1 - row : row) + recipe->shift_y, taken_height);
    return place;
}

FSH_HOST_DEVICE static inline bool pixel_is_resampled(const PixelRecipe *recipe)
{
    return recipe->resized_width != recipe->part_width || recipe->resized_height != recipe->part_height;
}

/* The weights of one axis: those of output i are weights[k * outputs + i]: neighbours lie side by side. */
typedef struct PixelAxis {
    uint32_t *first, *length; /* [outputs] */
    int32_t *weights;         /* [taps][outputs] */
    uint32_t outputs;
} PixelAxis;

/* Returns the size of an axis in 32-bit words. */
FSH_HOST_DEVICE static inline size_t pixel_axis_words(uint32_t outputs, uint32_t taps)
{
    return (size_t)outputs * (2 + (size_t)taps);
}

FSH_HOST_DEVICE static inline PixelAxis pixel_axis_at(uint32_t *words, uint32_t outputs)
{
    PixelAxis axis;
    axis.first = words;
    axis.length = words + outputs;
    axis.weights = (int32_t *)(words + 2 * (size_t)outputs);
    axis.outputs = outputs;
    return axis;
}

/* Returns how many weights an output needs at most where `part` pixels are resized to `resized`. */
FSH_HOST_DEVICE static inline uint64_t pixel_taps(uint32_t part, uint32_t resized)
{
    const ResampleScale scale = resample_scale(0, (float)part, part, resized, 1.0);
    return resample_taps_max(&scale);
}

/* Computes the weights of output i of the window, on an axis where `part` pixels are resized to `resized`. */
FSH_HOST_DEVICE static inline void pixel_axis_fill(const PixelAxis *axis, uint32_t part, uint32_t resized,
                                                   uint32_t window, uint32_t i)
{
    const ResampleScale scale = resample_scale(0, (float)part, part, resized, 1.0);
    const ResampleSpan span = resample_span(&scale, window + i);
    double sum = 0.0;
    for (uint32_t k = 0; k < span.length; k++)
        sum += resample_triangle((double)span.first, span.centre, scale.step, k);
    axis->first[i] = span.first;
    axis->length[i] = span.length;
    for (uint32_t k = 0; k < span.length; k++) {
        double value = resample_triangle((double)span.first, span.centre, scale.step, k);
        if (sum == 0.0)
            value = k == 0 ? 1.0 : value;
        axis->weights[(size_t)k * axis->outputs + i] = resample_fixed(value, sum == 0.0 ? 1.0 : sum);
    }
}

/* Resamples one pixel of channels values from the part that begins at `part`, in rows of stride bytes: across
 * in fixed point, rounded to a byte, then down. Callers pass channels as a constant, so that the loops
 * vanish. */
FSH_HOST_DEVICE static inline void pixel_resample(const uint8_t *part, size_t stride, uint32_t channels,
                                                  const PixelAxis *columns, const PixelAxis *rows,
                                                  PixelPlace place, uint8_t *pixel)
{
    const int32_t half = 1 << (RESAMPLE_PRECISION_BITS - 1);
    const uint32_t first = columns->first[place.x], length = columns->length[place.x],
                   first_row = rows->first[place.y], row_count = rows->length[place.y];
    int32_t down[PIXEL_CHANNELS_MAX] = {half, half, half};
    for (uint32_t j = 0; j < row_count; j++) {
        const uint8_t *from = part + (first_row + j) * stride + (size_t)first * channels;
        int32_t across[PIXEL_CHANNELS_MAX] = {half, half, half};
        for (uint32_t k = 0; k < length; k++, from += channels) {
            const int32_t weight = columns->weights[(size_t)k * columns->outputs + place.x];
            for (uint32_t c = 0; c < channels; c++)
                across[c] += from[c] * weight;
        }
        const int32_t weight = rows->weights[(size_t)j * rows->outputs + place.y];
        for (uint32_t c = 0; c < channels; c++)
            down[c] += resample_clamp(across[c]) * weight;
    }
    for (uint32_t c = 0; c < channels; c++)
        pixel[c] = resample_clamp(down[c]);
}

/* Renders pixel (x, y) of an image of the batch, in the batch's channels. image: where the source's pixels
 * lie. The axes may be empty unless pixel_is_resampled. */
FSH_HOST_DEVICE static inline void pixel_render(const PixelRecipe *recipe, const uint8_t *image,
                                                uint32_t source_channels, uint32_t width, uint32_t height,
                                                uint32_t channels, const PixelAxis *columns,
                                                const PixelAxis *rows, uint32_t x, uint32_t y, uint8_t *pixel)
{
    const PixelPlace place = pixel_origin(recipe, width, height, x, y);
    const size_t stride = (size_t)recipe->width * source_channels;
    const uint8_t *part = image + recipe->part_top * stride + (size_t)recipe->part_left * source_channels;
    uint8_t found[PIXEL_CHANNELS_MAX] = {0, 0, 0};
    if (!pixel_is_resampled(recipe)) {
        const uint8_t *from = part + ((size_t)recipe->window_top + place.y) * stride +
                              ((size_t)recipe->window_left + place.x) * source_channels;
        for (uint32_t c = 0; c < source_channels; c++)
            found[c] = from[c];
    } else if (source_channels == 1) {
        pixel_resample(part, stride, 1, columns, rows, place, found);
    } else {
        pixel_resample(part, stride, 3, columns, rows, place, found);
    }
    /* Pillow's convert("L") and convert("RGB") */
    const uint8_t luma = source_channels == 1 ? found[0] : colour_luma(found);
    for (uint32_t c = 0; c < channels; c++)
        pixel[c] = channels == source_channels ? found[c] : luma;
}

/* ---- colours ---- */

/* Returns the normal number at index, counted from where the random sequence stands. */
FSH_HOST_DEVICE static inline float pixel_normal(uint64_t seed, const PixelRandom *random, uint64_t index)
{
    const uint64_t place = random->drawn + index / 2 * 2;
    float normals[2];
    philox_normals(philox_at(seed, random->stream, place), philox_at(seed, random->stream, place + 1),
                   normals);
    return normals[index % 2];
}

/* Applies what comes after the jitter: noise, then erasing. deviation: PixelBatch.erased_deviation. */
FSH_HOST_DEVICE static inline void pixel_finish(const PixelColours *colours, uint64_t seed,
                                                const double *deviation, uint32_t width, uint32_t channels,
                                                uint32_t x, uint32_t y, uint8_t *pixel)
{
    const uint64_t index = ((uint64_t)y * width + x) * channels;
    for (uint32_t c = 0; c < channels && colours->noise > 0; c++)
        pixel[c] = colour_add_noise(pixel[c], (float)colours->noise,
                                    pixel_normal(seed, &colours->noise_random, index + c));
    /* unsigned: left of or above the rectangle is far beyond it */
    const uint32_t column = x - colours->erased_left, row = y - colours->erased_top;
    if (column >= colours->erased_width || row >= colours->erased_height)
        return;
    const uint64_t erased = ((uint64_t)row * colours->erased_width + column) * channels;
    for (uint32_t c = 0; c < channels; c++)
        pixel[c] = colours->erased_noise
                       ? colour_around(colours->erased_colour[c], deviation[c],
                                       pixel_normal(seed, &colours->erasing_random, erased + c))
                       : colours->erased_colour[c];
}

/* Mixes a value at (x, y) with the neighbour's. */
FSH_HOST_DEVICE static inline uint8_t pixel_mixed(const PixelColours *colours, uint32_t x, uint32_t y,
                                                  uint8_t own, uint8_t other)
{
    if (colours->share >= 1)
        return own;
    if (!colours->cut)
        return colour_nearest((float)own * colours->share + (float)other * (1 - colours->share));
    const bool inside =
        x >= colours->cut_left && x < colours->cut_right && y >= colours->cut_top && y < colours->cut_bottom;
    return inside ? other : own;
}

#endif
