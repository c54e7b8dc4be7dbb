/* pixel_operations.h - applies an image's operations by all threads of a block: what each of `threads` does,
 * phase after phase.
 *
 *   for (step of operations->steps)
 *       for (phase = 0; phase < pixel_operation_phases(step); phase++)
 *           pixel_operation_work(step, phase, &image, &shared, thread, threads); (all threads)
 *           pixel_operation_turn(step, &image);
 *   pixel_operation_end(&image, pixels, thread, threads);
 *
 * Written once for CUDA's threads and for the CPU's tests, where a loop is all threads. Values come out of
 * operation_math.h, as the loader's do (trainer/data/image_operations.h), so the bytes are the same. */
#ifndef FSHARD_TRAINER_BACKEND_PIXEL_OPERATIONS_H
#define FSHARD_TRAINER_BACKEND_PIXEL_OPERATIONS_H

#include "trainer/backend/operation_math.h"
#include "trainer/backend/pixel_walk.h"

enum { PIXEL_OPERATION_CHANNELS_MAX = 3 };

/* An image in work. */
typedef struct PixelOperationImage {
    uint8_t *from, *to; /* [height, width, channels] both: the image, and as much memory beside it */
    uint32_t width, height, channels;
    bool bicubic;
    uint8_t fill[4]; /* what comes in from outside, of each channel */
} PixelOperationImage;

/* What the threads of a block share. */
typedef struct PixelOperationShared {
    uint32_t histograms[PIXEL_OPERATION_CHANNELS_MAX][OPERATION_LEVELS];
    uint32_t luma_high, luma_low; /* of the sum: multiples of 65536, and what is left of each thread's */
    uint8_t tables[PIXEL_OPERATION_CHANNELS_MAX][OPERATION_LEVELS];
} PixelOperationShared;

/* Adds to a number that other threads add to. */
FSH_HOST_DEVICE static inline void pixel_operation_add(uint32_t *to, uint32_t value)
{
#ifdef __CUDA_ARCH__
    (void)atomicAdd(to, value);
#else
    *to += value;
#endif
}

/* ---- tables ---- */

FSH_HOST_DEVICE static inline void pixel_operation_clear(PixelOperationShared *shared, uint32_t thread,
                                                         uint32_t threads)
{
    for (uint32_t i = thread; i < PIXEL_OPERATION_CHANNELS_MAX * OPERATION_LEVELS; i += threads)
        shared->histograms[i / OPERATION_LEVELS][i % OPERATION_LEVELS] = 0;
    if (thread == 0)
        shared->luma_high = shared->luma_low = 0;
}

/* Counts the levels of each channel; callers pass channels as a constant. */
OPERATION_INLINE void pixel_operation_count(const PixelOperationImage *image, uint32_t channels,
                                            PixelOperationShared *shared, uint32_t thread, uint32_t threads)
{
    const uint32_t pixel_count = image->width * image->height;
    for (uint32_t i = thread; i < pixel_count; i += threads)
        for (uint32_t c = 0; c < channels; c++)
            pixel_operation_add(&shared->histograms[c][image->from[(size_t)i * channels + c]], 1);
}

OPERATION_INLINE void pixel_operation_sum_luma(const PixelOperationImage *image, uint32_t channels,
                                               PixelOperationShared *shared, uint32_t thread,
                                               uint32_t threads)
{
    const uint32_t pixel_count = image->width * image->height;
    uint64_t sum = 0;
    for (uint32_t i = thread; i < pixel_count; i += threads)
        sum += channels == 1 ? image->from[i] : colour_luma(image->from + (size_t)i * channels);
    pixel_operation_add(&shared->luma_high, (uint32_t)(sum >> 16));
    pixel_operation_add(&shared->luma_low, (uint32_t)(sum & 0xffff));
}

/* Returns ImageOps.equalize's value in an image of these levels. */
FSH_HOST_DEVICE static inline uint8_t pixel_operation_equalized(const uint32_t *histogram, uint32_t pixels,
                                                                int value)
{
    uint32_t below = 0, last = 0;
    for (int i = 0; i < OPERATION_LEVELS; i++) {
        const uint32_t count = histogram[i];
        below += i < value ? count : 0;
        last = count ? count : last;
    }
    const uint64_t step = operation_equal_step(pixels, last);
    return operation_equalized(step / 2 + below, step, value);
}

/* Returns what becomes of a value of a channel. */
FSH_HOST_DEVICE static inline uint8_t pixel_operation_value(const PixelOperation *step, uint32_t pixel_count,
                                                            const PixelOperationShared *shared,
                                                            uint32_t channel, int value)
{
    int low, high;
    switch (step->operation) {
    case OPERATION_AUTO_CONTRAST:
        operation_find_ends(shared->histograms[channel], &low, &high);
        return operation_stretched(low, high, value);
    case OPERATION_EQUALIZE:
        return pixel_operation_equalized(shared->histograms[channel], pixel_count, value);
    case OPERATION_POSTERIZE:
        return operation_posterized(step->argument, value);
    case OPERATION_SOLARIZE_ADD:
        return operation_solarized_by_addition(step->argument, value);
    case OPERATION_CONTRAST:
        return colour_blend(colour_mean(((uint64_t)shared->luma_high << 16) + shared->luma_low, pixel_count),
                            value, (float)step->argument);
    case OPERATION_BRIGHTNESS:
        return colour_blend(0, value, (float)step->argument);
    default:
        return operation_solarized(step->operation == OPERATION_INVERT ? 0 : step->argument, value);
    }
}

FSH_HOST_DEVICE static inline void pixel_operation_fill_tables(const PixelOperation *step,
                                                               const PixelOperationImage *image,
                                                               PixelOperationShared *shared, uint32_t thread,
                                                               uint32_t threads)
{
    for (uint32_t i = thread; i < image->channels * OPERATION_LEVELS; i += threads) {
        const uint32_t channel = i / OPERATION_LEVELS, value = i % OPERATION_LEVELS;
        shared->tables[channel][value] =
            pixel_operation_value(step, image->width * image->height, shared, channel, (int)value);
    }
}

OPERATION_INLINE void pixel_operation_look_up(const PixelOperationImage *image, uint32_t channels,
                                              const PixelOperationShared *shared, uint32_t thread,
                                              uint32_t threads)
{
    const uint32_t pixel_count = image->width * image->height;
    for (uint32_t i = thread; i < pixel_count; i += threads)
        for (uint32_t c = 0; c < channels; c++) {
            uint8_t *value = image->from + (size_t)i * channels + c;
            *value = shared->tables[c][*value];
        }
}

/* ---- pixels that are made from others ---- */

FSH_HOST_DEVICE static inline void pixel_operation_saturate(const PixelOperation *step,
                                                            const PixelOperationImage *image, uint32_t thread,
                                                            uint32_t threads)
{
    const uint32_t pixel_count = image->width * image->height;
    for (uint32_t i = thread; i < pixel_count; i += threads)
        colour_saturate(image->from + (size_t)i * 3, (float)step->argument);
}

OPERATION_INLINE void pixel_operation_sharpen(const PixelOperation *step, const PixelOperationImage *image,
                                              uint32_t channels, uint32_t thread, uint32_t threads)
{
    const size_t stride = (size_t)image->width * channels;
    PixelWalk walk = pixel_walk(image->width, thread, threads);
    for (; walk.y < image->height; pixel_walk_on(&walk)) {
        const size_t place = walk.y * stride + (size_t)walk.x * channels;
        const bool inside =
            walk.x > 0 && walk.x + 1 < image->width && walk.y > 0 && walk.y + 1 < image->height;
        for (uint32_t c = 0; c < channels; c++) {
            const uint8_t *at = image->from + place + c;
            image->to[place + c] =
                inside ? operation_sharpened((float)step->argument, at - stride, at, at + stride, channels)
                       : *at;
        }
    }
}

OPERATION_INLINE void pixel_operation_move(const PixelOperation *step, const PixelOperationImage *image,
                                           int channels, bool bicubic, uint32_t thread, uint32_t threads)
{
    const int width = (int)image->width, height = (int)image->height;
    PixelWalk walk = pixel_walk(image->width, thread, threads);
    for (; walk.y < image->height; pixel_walk_on(&walk))
        operation_move(step->affine, image->from, width, height, channels, bicubic, image->fill, (int)walk.x,
                       (int)walk.y, image->to + ((size_t)walk.y * image->width + walk.x) * channels);
}

/* One box along rows, or along columns. */
OPERATION_INLINE void pixel_operation_blur(const PixelOperation *step, const PixelOperationImage *image,
                                           uint32_t channels, bool rows, uint32_t thread, uint32_t threads)
{
    const size_t stride = (size_t)image->width * channels;
    PixelWalk walk = pixel_walk(image->width, thread, threads);
    for (; walk.y < image->height; pixel_walk_on(&walk))
        for (uint32_t c = 0; c < channels; c++) {
            const uint8_t *line = image->from + (rows ? walk.y * stride : (size_t)walk.x * channels) + c;
            image->to[walk.y * stride + (size_t)walk.x * channels + c] =
                rows ? operation_box_at(&step->box, line, channels, (int)image->width, (int)walk.x)
                     : operation_box_at(&step->box, line, stride, (int)image->height, (int)walk.y);
        }
}

/* ---- phases ---- */

FSH_HOST_DEVICE static inline bool pixel_operation_has_geometry(uint32_t operation)
{
    return operation == OPERATION_ROTATE ||
           (operation >= OPERATION_SHEAR_X && operation <= OPERATION_TRANSLATE_Y);
}

/* Returns whether an operation's phases make the image anew, beside the old one. */
FSH_HOST_DEVICE static inline bool pixel_operation_makes_anew(uint32_t operation)
{
    return pixel_operation_has_geometry(operation) || operation == OPERATION_SHARPNESS ||
           operation == OPERATION_BLUR;
}

/* Returns whether an operation needs to know all of an image before it changes the first value. */
FSH_HOST_DEVICE static inline bool pixel_operation_has_statistics(uint32_t operation)
{
    return operation == OPERATION_AUTO_CONTRAST || operation == OPERATION_EQUALIZE ||
           operation == OPERATION_CONTRAST;
}

FSH_HOST_DEVICE static inline uint32_t pixel_operation_phases(const PixelOperation *step)
{
    const uint32_t operation = step->operation;
    if (operation == OPERATION_BLUR)
        return OPERATION_BOXES;
    if (operation == OPERATION_COLOUR || pixel_operation_makes_anew(operation))
        return 1;
    return pixel_operation_has_statistics(operation) ? 4 : 2;
}

/* Clears, counts, makes the table, looks up; without statistics the last two alone. */
OPERATION_INLINE void pixel_operation_tabulate(const PixelOperation *step, uint32_t phase,
                                               const PixelOperationImage *image, uint32_t channels,
                                               PixelOperationShared *shared, uint32_t thread,
                                               uint32_t threads)
{
    const uint32_t stage = phase + (pixel_operation_has_statistics(step->operation) ? 0 : 2);
    if (stage == 0)
        pixel_operation_clear(shared, thread, threads);
    else if (stage == 1 && step->operation == OPERATION_CONTRAST)
        pixel_operation_sum_luma(image, channels, shared, thread, threads);
    else if (stage == 1)
        pixel_operation_count(image, channels, shared, thread, threads);
    else if (stage == 2)
        pixel_operation_fill_tables(step, image, shared, thread, threads);
    else
        pixel_operation_look_up(image, channels, shared, thread, threads);
}

/* The work of images of 1 or 3 channels: a constant where it is called. */
OPERATION_INLINE void pixel_operation_work_of(const PixelOperation *step, uint32_t phase,
                                              const PixelOperationImage *image, uint32_t channels,
                                              PixelOperationShared *shared, uint32_t thread, uint32_t threads)
{
    const uint32_t operation = step->operation;
    if (pixel_operation_has_geometry(operation) && image->bicubic)
        pixel_operation_move(step, image, (int)channels, true, thread, threads);
    else if (pixel_operation_has_geometry(operation))
        pixel_operation_move(step, image, (int)channels, false, thread, threads);
    else if (operation == OPERATION_BLUR && phase < OPERATION_BOXES / 2)
        pixel_operation_blur(step, image, channels, true, thread, threads);
    else if (operation == OPERATION_BLUR)
        pixel_operation_blur(step, image, channels, false, thread, threads);
    else if (operation == OPERATION_SHARPNESS)
        pixel_operation_sharpen(step, image, channels, thread, threads);
    else if (operation != OPERATION_COLOUR)
        pixel_operation_tabulate(step, phase, image, channels, shared, thread, threads);
    else if (channels == 3) /* gray has no colour */
        pixel_operation_saturate(step, image, thread, threads);
}

/* Does a thread's share of a phase. */
FSH_HOST_DEVICE static inline void pixel_operation_work(const PixelOperation *step, uint32_t phase,
                                                        const PixelOperationImage *image,
                                                        PixelOperationShared *shared, uint32_t thread,
                                                        uint32_t threads)
{
    if (image->channels == 1)
        pixel_operation_work_of(step, phase, image, 1, shared, thread, threads);
    else
        pixel_operation_work_of(step, phase, image, 3, shared, thread, threads);
}

/* Exchanges the two memories after a phase that has made the image anew. */
FSH_HOST_DEVICE static inline void pixel_operation_turn(const PixelOperation *step,
                                                        PixelOperationImage *image)
{
    uint8_t *made = image->to;
    if (!pixel_operation_makes_anew(step->operation))
        return;
    image->to = image->from;
    image->from = made;
}

/* Brings the image to `pixels`, one of the two memories. */
FSH_HOST_DEVICE static inline void pixel_operation_end(const PixelOperationImage *image, uint8_t *pixels,
                                                       uint32_t thread, uint32_t threads)
{
    const size_t count = (size_t)image->width * image->height * image->channels;
    if (image->from == pixels)
        return;
    for (size_t i = thread; i < count; i += threads)
        pixels[i] = image->from[i];
}

#endif
