/* pixel_math.h - one pixel of a recipe, written once for CUDA kernels and the CPU's tests, which hold what it
 * gives against trainer/data's rendering, byte for byte. Many pixels that are made from the same stored ones:
 * pixel_tiles.h.
 *
 * Compile without joining products and sums (nvcc: --fmad=false). */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_MATH_H
#define FSHARD_TRAINER_BACKEND_PIXEL_MATH_H

#include <stddef.h>

#include "imaging/planes_math.h"
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

/* Recipes turn a picture before they mirror it: a pixel's column and row are those that it had before rows
 * became columns. Return how many there are in a width x height image of the batch. */
FSH_HOST_DEVICE static inline uint32_t pixel_columns(const PixelRecipe *recipe, uint32_t width,
                                                     uint32_t height)
{
    return recipe->transpose ? height : width;
}

FSH_HOST_DEVICE static inline uint32_t pixel_rows(const PixelRecipe *recipe, uint32_t width, uint32_t height)
{
    return recipe->transpose ? width : height;
}

/* Return where in the window the column of `columns`, or the row of `rows`, comes from. */
FSH_HOST_DEVICE static inline uint32_t pixel_place_x(const PixelRecipe *recipe, uint32_t columns,
                                                     uint32_t column)
{
    const uint32_t from = recipe->flip ? columns - 1 - column : column;
    return recipe->shift_x ? (uint32_t)pixel_mirrored((int64_t)from + recipe->shift_x, columns) : from;
}

FSH_HOST_DEVICE static inline uint32_t pixel_place_y(const PixelRecipe *recipe, uint32_t rows, uint32_t row)
{
    const uint32_t from = recipe->vertical_flip ? rows - 1 - row : row;
    return recipe->shift_y ? (uint32_t)pixel_mirrored((int64_t)from + recipe->shift_y, rows) : from;
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

/* Returns the scale of an axis where `part` pixels are resized to `resized`. */
FSH_HOST_DEVICE static inline ResampleScale pixel_scale(uint32_t part, uint32_t resized,
                                                        ResampleFilter filter)
{
    return resample_scale(0, (float)part, part, resized, filter);
}

/* Returns how many weights an output needs at most. */
FSH_HOST_DEVICE static inline uint64_t pixel_taps(uint32_t part, uint32_t resized, ResampleFilter filter)
{
    const ResampleScale scale = pixel_scale(part, resized, filter);
    return resample_taps_max(&scale);
}

/* Computes the weights of output i of the window, on an axis where `part` pixels are resized to `resized`. */
FSH_HOST_DEVICE static inline void pixel_axis_fill(const PixelAxis *axis, uint32_t part, uint32_t resized,
                                                   uint32_t window, ResampleFilter filter, uint32_t i)
{
    const ResampleScale scale = pixel_scale(part, resized, filter);
    const ResampleSpan span = resample_span(&scale, window + i);
    const ResampleWalk begin = resample_walk(&scale, &span, filter);
    ResampleWalk walk = begin;
    double sum = 0.0;
    for (uint32_t k = 0; k < span.length; k++)
        sum += resample_weight(&walk, filter, k);
    axis->first[i] = span.first;
    axis->length[i] = span.length;
    walk = begin;
    for (uint32_t k = 0; k < span.length; k++) {
        double value = resample_weight(&walk, filter, k);
        if (sum == 0.0)
            value = k == 0 ? 1.0 : value;
        axis->weights[(size_t)k * axis->outputs + i] = resample_fixed(value, sum == 0.0 ? 1.0 : sum);
    }
}

/* ---- stored images ---- */

/* An image in a store, and what a batch makes of it. */
typedef struct PixelImage {
    const PixelRecipe *recipe;
    const uint8_t *stored;
    uint32_t stored_channels;
    bool planes;
    uint32_t width, height, channels; /* of the batch */
    PixelAxis columns, rows;          /* empty unless pixel_is_resampled */
} PixelImage;

/* A pixel's values lie in one word, the first in its lowest byte. */
FSH_HOST_DEVICE static inline uint32_t pixel_packed(uint32_t red, uint32_t green, uint32_t blue)
{
    return red | green << 8 | blue << 16;
}

FSH_HOST_DEVICE static inline uint32_t pixel_of_planes(int32_t y, int32_t cb, int32_t cr)
{
    return planes_red(y, cr) >> 16 | (planes_green(y, cb, cr) >> 8 & 0xff00) |
           (planes_blue(y, cb) & 0xff0000);
}

/* Returns the sample of the chroma plane [halved(height), halved(width)] at pixel (x, y). */
FSH_HOST_DEVICE static inline int pixel_chroma(const uint8_t *plane, uint32_t width, uint32_t height,
                                               uint32_t x, uint32_t y)
{
    const uint32_t columns = planes_halved(width), rows = planes_halved(height), column = x / 2, row = y / 2;
    const uint32_t beside = x % 2 ? column + (column + 1 < columns) : column - (column > 0),
                   far = y % 2 ? row + (row + 1 < rows) : row - (row > 0);
    const uint8_t *near_row = plane + (size_t)row * columns, *far_row = plane + (size_t)far * columns;
    const int own = planes_sum(near_row[column], far_row[column]),
              other = planes_sum(near_row[beside], far_row[beside]);
    return x % 2 ? planes_right(own, other) : planes_left(own, other);
}

/* Returns pixel (x, y) of the stored image. */
FSH_HOST_DEVICE static inline uint32_t pixel_at(const PixelImage *image, uint32_t x, uint32_t y)
{
    const uint32_t width = image->recipe->width, height = image->recipe->height;
    const size_t index = (size_t)y * width + x;
    if (image->planes) {
        const uint8_t *blue = image->stored + (size_t)width * height,
                      *red = blue + (size_t)planes_halved(width) * planes_halved(height);
        return pixel_of_planes(image->stored[index], pixel_chroma(blue, width, height, x, y),
                               pixel_chroma(red, width, height, x, y));
    }
    if (image->stored_channels == 1)
        return image->stored[index];
    return pixel_packed(image->stored[3 * index], image->stored[3 * index + 1], image->stored[3 * index + 2]);
}

/* ---- resampling ---- */

/* The sums of a pixel's values, in fixed point. */
typedef struct PixelSums {
    int32_t values[PIXEL_CHANNELS_MAX];
} PixelSums;

FSH_HOST_DEVICE static inline PixelSums pixel_sums(void)
{
    const int32_t half = 1 << (RESAMPLE_PRECISION_BITS - 1);
    const PixelSums sums = {{half, half, half}};
    return sums;
}

/* Returns value c of a pixel. */
FSH_HOST_DEVICE static inline int32_t pixel_value(uint32_t pixel, uint32_t c)
{
#ifdef __CUDA_ARCH__
    return (int32_t)__byte_perm(pixel, 0, 0x4440 + c); /* one instruction */
#else
    return (int32_t)(pixel >> 8 * c & 255);
#endif
}

/* Adds a pixel times its weight. Callers pass channels as a constant, so that the loop vanishes. */
FSH_HOST_DEVICE static inline void pixel_add(PixelSums *sums, uint32_t channels, uint32_t pixel,
                                             int32_t weight)
{
    for (uint32_t c = 0; c < channels; c++)
        sums->values[c] += pixel_value(pixel, c) * weight;
}

/* Returns the pixel of the sums. few: of less than 16,000 weights, which are not negative and sum up to 1 but
 * for their rounding, so that nothing has to be cut off. */
FSH_HOST_DEVICE static inline uint32_t pixel_rounded(const PixelSums *sums, uint32_t channels, bool few)
{
    uint32_t pixel = 0;
    for (uint32_t c = 0; c < channels; c++)
        pixel |=
            (few ? (uint32_t)sums->values[c] >> RESAMPLE_PRECISION_BITS : resample_clamp(sums->values[c]))
            << 8 * c;
    return pixel;
}

/* Resamples the pixel at (x, y) of the window, each stored one for itself: across, rounded to bytes, then
 * down. */
FSH_HOST_DEVICE static inline uint32_t pixel_resample(const PixelImage *image, uint32_t channels, uint32_t x,
                                                      uint32_t y)
{
    const PixelAxis *columns = &image->columns, *rows = &image->rows;
    const uint32_t left = image->recipe->part_left + columns->first[x],
                   top = image->recipe->part_top + rows->first[y];
    PixelSums down = pixel_sums();
    for (uint32_t j = 0; j < rows->length[y]; j++) {
        PixelSums across = pixel_sums();
        for (uint32_t k = 0; k < columns->length[x]; k++)
            pixel_add(&across, channels, pixel_at(image, left + k, top + j),
                      columns->weights[(size_t)k * columns->outputs + x]);
        pixel_add(&down, channels, pixel_rounded(&across, channels, false),
                  rows->weights[(size_t)j * rows->outputs + y]);
    }
    return pixel_rounded(&down, channels, false);
}

/* Gives a pixel of the stored image's channels the batch's, as Pillow's convert("L") and convert("RGB"). */
FSH_HOST_DEVICE static inline void pixel_take(const PixelImage *image, uint32_t pixel, uint8_t *values)
{
    const uint8_t found[PIXEL_CHANNELS_MAX] = {(uint8_t)pixel, (uint8_t)(pixel >> 8), (uint8_t)(pixel >> 16)};
    const bool gray = image->stored_channels == 1;
    if (image->channels == 1) {
        values[0] = gray ? found[0] : colour_luma(found);
        return;
    }
    values[0] = found[0];
    values[1] = gray ? found[0] : found[1];
    values[2] = gray ? found[0] : found[2];
}

/* Renders one pixel of the batch's image, by itself. */
FSH_HOST_DEVICE static inline void pixel_render(const PixelImage *image, uint32_t column, uint32_t row,
                                                uint8_t *values)
{
    const PixelRecipe *recipe = image->recipe;
    const uint32_t x = pixel_place_x(recipe, pixel_columns(recipe, image->width, image->height), column),
                   y = pixel_place_y(recipe, pixel_rows(recipe, image->width, image->height), row);
    uint32_t pixel;
    if (!pixel_is_resampled(recipe))
        pixel = pixel_at(image, recipe->part_left + recipe->window_left + x,
                         recipe->part_top + recipe->window_top + y);
    else if (image->stored_channels == 1)
        pixel = pixel_resample(image, 1, x, y);
    else
        pixel = pixel_resample(image, 3, x, y);
    pixel_take(image, pixel, values);
}

/* Returns which pixel of the batch's image, row after row, is at a column and a row. */
FSH_HOST_DEVICE static inline uint32_t pixel_index(const PixelImage *image, uint32_t column, uint32_t row)
{
    return image->recipe->transpose ? column * image->width + row : row * image->width + column;
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
