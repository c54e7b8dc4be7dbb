/* operation_math.h - the operations of RandAugment and its kin, a value at a time, written once for the
 * processor (trainer/data/image_operations.h) and for CUDA kernels (pixel_operations.h): Pillow's arithmetic.
 *
 * Which steps are in single and which in double precision decides the last bit; whoever compiles this lets no
 * compiler join a product and a sum (nvcc: --fmad=false). Callers pass channels as a constant, so that loops
 * vanish. */
#ifndef FSHARD_TRAINER_BACKEND_OPERATION_MATH_H
#define FSHARD_TRAINER_BACKEND_OPERATION_MATH_H

#include <stddef.h>

#include "trainer/backend/colour_math.h"
#include "trainer/backend/pixel_recipe.h"

typedef enum ImageOperation {
    OPERATION_AUTO_CONTRAST, /* each channel's darkest and brightest value become 0 and 255; no argument */
    OPERATION_EQUALIZE,      /* each channel's histogram is made even; no argument */
    OPERATION_INVERT,        /* no argument */
    OPERATION_ROTATE,        /* by so many degrees, counterclockwise, around the centre */
    OPERATION_POSTERIZE,     /* so many of the highest bits are kept; 8 and more: all, 0 and less: none */
    OPERATION_SOLARIZE,      /* values from this one on are inverted */
    OPERATION_SOLARIZE_ADD,  /* so much, a whole number >= 0, is added to values below 128 */
    OPERATION_COLOUR,        /* blend with the gray image: 0 is gray, 1 the image */
    OPERATION_CONTRAST,      /* blend with the mean luma */
    OPERATION_BRIGHTNESS,    /* blend with black */
    OPERATION_SHARPNESS,     /* blend with the smoothed image */
    /* The next four: what lies at x, y comes from x + argument * y; from y + argument * x; from argument
       pixels further to the right; further down. */
    OPERATION_SHEAR_X,
    OPERATION_SHEAR_Y,
    OPERATION_TRANSLATE_X,
    OPERATION_TRANSLATE_Y,
    OPERATION_BLUR, /* ImageFilter.GaussianBlur of this deviation, pixels, > 0: three boxes each way */
    OPERATION_COUNT
} ImageOperation;

enum { OPERATION_LEVELS = 256, OPERATION_BOXES = 6 /* of a blur: half of them along rows */ };

/* A function that must become part of its caller, whose constants decide what is left of it. */
#define OPERATION_INLINE FSH_HOST_DEVICE static inline __attribute__((always_inline))

/* ---- tables: each value becomes another ---- */

/* Returns what becomes of a value below threshold, and of one from there on. */
FSH_HOST_DEVICE static inline uint8_t operation_solarized(double threshold, int value)
{
    return (uint8_t)(value < threshold ? value : 255 - value);
}

FSH_HOST_DEVICE static inline uint8_t operation_solarized_by_addition(double added, int value)
{
    return value < 128 ? colour_clip(value + (int)added) : (uint8_t)value;
}

FSH_HOST_DEVICE static inline uint8_t operation_posterized(double bits, int value)
{
    const int kept = bits < 0 ? 0 : bits > 8 ? 8 : (int)bits;
    return (uint8_t)(value >> (8 - kept) << (8 - kept));
}

/* Returns ImageOps.autocontrast's value of a channel whose darkest and brightest are low and high. */
FSH_HOST_DEVICE static inline uint8_t operation_stretched(int low, int high, int value)
{
    const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    return colour_clip((int)(value * scale + offset));
}

/* Sets *low_ret and *high_ret to a histogram's first and last level that is there. */
FSH_HOST_DEVICE static inline void operation_find_ends(const uint32_t *histogram, int *low_ret, int *high_ret)
{
    int low = 0, high = OPERATION_LEVELS - 1;
    while (low < OPERATION_LEVELS - 1 && !histogram[low])
        low++;
    while (high > 0 && !histogram[high])
        high--;
    *low_ret = low;
    *high_ret = high;
}

/* Returns how many pixels ImageOps.equalize gives each level, of `pixels`, `last` of which have the brightest
 * one. */
FSH_HOST_DEVICE static inline uint64_t operation_equal_step(uint64_t pixels, uint64_t last)
{
    return (pixels - last) / 255;
}

/* Returns ImageOps.equalize's value. reached: half a step and the pixels of the levels below. */
FSH_HOST_DEVICE static inline uint8_t operation_equalized(uint64_t reached, uint64_t step, int value)
{
    const uint64_t level = step ? reached / step : (uint64_t)value;
    return (uint8_t)(level > 255 ? 255 : level);
}

/* ---- neighbours ---- */

FSH_HOST_DEVICE static inline int operation_clip_index(int at, int size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

/* Returns a value's blend with what ImageFilter.SMOOTH makes of it, whose weights are thirteenths: 5 in the
 * middle, 1 around. Pillow sums in single precision and rounds; a sum of thirteenths is never near enough to
 * a half for that to matter. above, at, below: the value's places in three rows. */
FSH_HOST_DEVICE static inline uint8_t operation_sharpened(float factor, const uint8_t *above,
                                                          const uint8_t *at, const uint8_t *below,
                                                          size_t channels)
{
    const int around = *(above - channels) + *above + above[channels] + *(at - channels) + at[channels] +
                       *(below - channels) + *below + below[channels];
    return colour_blend((2 * (around + 5 * *at) + 13) / 26, *at, factor);
}

/* ---- geometry: Pillow's Image.transform(AFFINE) ---- */

/* Splits a place >= -0.5 into the pixel before it and what is left. */
FSH_HOST_DEVICE static inline int operation_split_place(double at, double *part)
{
    const int whole = at < 0 ? -1 : (int)at;
    *part = at - whole;
    return whole;
}

FSH_HOST_DEVICE static inline double operation_mix_linear(double a, double b, double part)
{
    return a + (b - a) * part;
}

OPERATION_INLINE void operation_take_bilinear(const uint8_t *source, int width, int height, int channels,
                                              double x, double y, uint8_t *target)
{
    double part_x, part_y;
    const int left = operation_split_place(x - 0.5, &part_x), top = operation_split_place(y - 0.5, &part_y);
    const uint8_t *above = source + (ptrdiff_t)operation_clip_index(top, height) * width * channels,
                  *below = source + (ptrdiff_t)operation_clip_index(top + 1, height) * width * channels;
    const int first = operation_clip_index(left, width) * channels,
              second = operation_clip_index(left + 1, width) * channels;
    /* Between two pixels of a row or of a column, as sheared and moved images are, half of it is enough. */
    if (part_y == 0)
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)operation_mix_linear(above[first + c], above[second + c], part_x);
    else if (part_x == 0)
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)operation_mix_linear(above[first + c], below[first + c], part_y);
    else
        for (int c = 0; c < channels; c++)
            target[c] = (uint8_t)operation_mix_linear(
                operation_mix_linear(above[first + c], above[second + c], part_x),
                operation_mix_linear(below[first + c], below[second + c], part_x), part_y);
}

FSH_HOST_DEVICE static inline double operation_mix_cubic(double a, double b, double c, double d, double part)
{
    const double p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + part * (p2 + part * (p3 + part * p4));
}

OPERATION_INLINE void operation_take_bicubic(const uint8_t *source, int width, int height, int channels,
                                             double x, double y, uint8_t *target)
{
    double part_x, part_y;
    const int left = operation_split_place(x - 0.5, &part_x), top = operation_split_place(y - 0.5, &part_y);
    const uint8_t *rows[4];
    int at[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = source + (ptrdiff_t)operation_clip_index(top - 1 + i, height) * width * channels;
        at[i] = operation_clip_index(left - 1 + i, width) * channels;
    }
    for (int c = 0; c < channels; c++) {
        double v[4] = {(double)rows[0][at[1] + c], (double)rows[1][at[1] + c], (double)rows[2][at[1] + c],
                       (double)rows[3][at[1] + c]};
        if (part_x != 0)
            for (int i = part_y == 0; i < (part_y == 0 ? 2 : 4); i++)
                v[i] = operation_mix_cubic(rows[i][at[0] + c], rows[i][at[1] + c], rows[i][at[2] + c],
                                           rows[i][at[3] + c], part_x);
        const double value = part_y == 0 ? v[1] : operation_mix_cubic(v[0], v[1], v[2], v[3], part_y);
        target[c] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
    }
}

/* Makes the pixel at column, row from where m, PixelOperation.affine, says it comes from; from outside comes
 * the fill. */
OPERATION_INLINE void operation_move(const double *m, const uint8_t *source, int width, int height,
                                     int channels, bool bicubic, const uint8_t *fill, int column, int row,
                                     uint8_t *target)
{
    const double x = m[0] * (column + 0.5) + m[1] * (row + 0.5) + m[2],
                 y = m[3] * (column + 0.5) + m[4] * (row + 0.5) + m[5];
    if (!(x >= 0 && x < width && y >= 0 && y < height))
        for (int c = 0; c < channels; c++)
            target[c] = fill[c];
    else if (bicubic)
        operation_take_bicubic(source, width, height, channels, x, y, target);
    else
        operation_take_bilinear(source, width, height, channels, x, y, target);
}

/* ---- blur: Pillow's BoxBlur.c ---- */

/* Returns the mean of a box. sum: of the values that weigh all; before, behind: the two at its ends. */
FSH_HOST_DEVICE static inline uint8_t operation_box_mean(const PixelBox *box, uint32_t sum, uint32_t before,
                                                         uint32_t behind)
{
    return (uint8_t)((sum * box->weight + (before + behind) * box->at_ends + (1U << 23)) >> 24);
}

/* Returns the mean of the box around value `at` of count values that lie step apart; beyond the ends are
 * those at the ends. */
FSH_HOST_DEVICE static inline uint8_t operation_box_at(const PixelBox *box, const uint8_t *source,
                                                       size_t step, int count, int at)
{
    const int radius = box->radius;
    uint32_t sum = 0;
    for (int i = at - radius; i <= at + radius; i++)
        sum += source[(size_t)operation_clip_index(i, count) * step];
    return operation_box_mean(box, sum, source[(size_t)operation_clip_index(at - radius - 1, count) * step],
                              source[(size_t)operation_clip_index(at + radius + 1, count) * step]);
}

#endif
