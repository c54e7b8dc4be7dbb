#include "tools/verify/verify_likeness.h"

#include <math.h>
#include <string.h>

/* For each size: the deviation in pixels of the Gaussian neighbourhood that a gradient is normalised by,
 * and what chance reaches. */
static const struct {
    double deviation, chance;
} sizes[LIKENESS_SIZES] = {{4, 0.30}, {3, 0.40}, {1.5, 0.58}};

enum { RADIUS_MAX = 12 }; /* three deviations */

/* In levels of 0..255: gradients below this are rounding, not edges. */
#define GRADIENT_FLOOR 1.0F
/* The mean square of all gradients, in levels, below which an image is of one colour. */
#define FLAT_BELOW 0.0625
/* So much better must gradients agree elsewhere: blur's ridges agree along themselves nearly as well as in
 * place. */
#define SHIFT_MARGIN 1.3

/* Returns the index that i, left or right of 0..count - 1, has in the mirror of its end. */
static size_t mirrored(int i, int count)
{
    while (i < 0 || i >= count)
        i = i < 0 ? -1 - i : 2 * count - 1 - i;
    return (size_t)i;
}

/* Blurs count x count values in rows of edge by a Gaussian, in place; other is as large. */
static void blur(float *values, float *other, int edge, int count, double deviation)
{
    float weights[RADIUS_MAX + 1], sum = 0;
    const int radius = (int)ceil(3 * deviation);
    for (int i = 0; i <= radius; i++) {
        weights[i] = (float)exp(-i * i / (2 * deviation * deviation));
        sum += i ? 2 * weights[i] : weights[i];
    }
    for (int pass = 0; pass < 2; pass++) { /* along the rows of values into other, along its columns back */
        const float *from = pass ? other : values;
        float *to = pass ? values : other;
        const int along = pass ? edge : 1, across = pass ? 1 : edge;
        for (int line = 0; line < count; line++) {
            for (int i = 0; i < count; i++) {
                float total = 0;
                for (int k = -radius; k <= radius; k++)
                    total += weights[k < 0 ? -k : k] *
                             from[(size_t)(line * across) + mirrored(i + k, count) * (size_t)along];
                to[line * across + i * along] = total / sum;
            }
        }
    }
}

/* Fills side's gradients of one size from edge x edge luminances. Returns their mean square before they
 * are normalised. */
static double normalised_gradients(LikenessSide *side, int size, const float *luminance, int edge)
{
    float *x = side->x[size], *y = side->y[size], *energy = side->scratch[1];
    const int count = edge - 1;
    double total = 0, strength = 0;
    for (int row = 0; row < count; row++) {
        for (int column = 0; column < count; column++) {
            const int i = row * edge + column;
            const float a = luminance[i], b = luminance[i + 1], c = luminance[i + edge],
                        d = luminance[i + edge + 1];
            x[i] = (b + d - a - c) / 2;
            y[i] = (c + d - a - b) / 2;
            energy[i] = x[i] * x[i] + y[i] * y[i];
            total += (double)energy[i];
        }
    }
    blur(energy, side->scratch[2], edge, count, sizes[size].deviation);
    for (int row = 0; row < count; row++) {
        for (int column = 0; column < count; column++) {
            const int i = row * edge + column;
            const float scale = 1 / sqrtf(energy[i] + GRADIENT_FLOOR * GRADIENT_FLOOR);
            x[i] *= scale;
            y[i] *= scale;
            strength += (double)(x[i] * x[i] + y[i] * y[i]);
        }
    }
    side->strength[size] = strength;
    return total / (count * count);
}

/* Writes to luminance the luma of ITU-R 601, in levels of 0..255. */
static void luminances(const Image *image, float *luminance)
{
    for (size_t i = 0; i < (size_t)LIKENESS_EDGE * LIKENESS_EDGE; i++) {
        const uint8_t *at = image->pixels + i * image->channels;
        luminance[i] = image->channels == 1
                           ? (float)at[0]
                           : 0.299F * (float)at[0] + 0.587F * (float)at[1] + 0.114F * (float)at[2];
    }
}

void likeness_side(const Image *thumbnail, LikenessSide *side)
{
    float *luminance = side->scratch[0];
    luminances(thumbnail, luminance);
    side->flat = normalised_gradients(side, 0, luminance, LIKENESS_EDGE) < FLAT_BELOW;
    for (int size = 1, edge = LIKENESS_EDGE / 2; size < LIKENESS_SIZES; size++, edge /= 2) {
        for (int y = 0; y < edge; y++) { /* in place: what is written has been read */
            for (int x = 0; x < edge; x++) {
                const float *at = luminance + (ptrdiff_t)2 * y * 2 * edge + (ptrdiff_t)2 * x;
                luminance[y * edge + x] = (at[0] + at[1] + at[2 * edge] + at[2 * edge + 1]) / 4;
            }
        }
        (void)normalised_gradients(side, size, luminance, edge);
    }
}

/* Returns the correlation of the gradients of one size, the second's read dx, dy further on. */
static double correlation(const LikenessSide *first, const LikenessSide *second, int size, int dx, int dy)
{
    const int edge = LIKENESS_EDGE >> size, count = edge - 1;
    const int left = dx < 0 ? -dx : 0, right = dx > 0 ? count - dx : count;
    const int top = dy < 0 ? -dy : 0, bottom = dy > 0 ? count - dy : count;
    double sum = 0;
    for (int row = top; row < bottom; row++) {
        const float *ax = first->x[size] + (ptrdiff_t)row * edge,
                    *ay = first->y[size] + (ptrdiff_t)row * edge;
        const float *bx = second->x[size] + (ptrdiff_t)(row + dy) * edge + dx;
        const float *by = second->y[size] + (ptrdiff_t)(row + dy) * edge + dx;
        float line = 0;
        for (int i = left; i < right; i++)
            line += ax[i] * bx[i] + ay[i] * by[i];
        sum += (double)line;
    }
    const double strength = first->strength[size] * second->strength[size];
    return strength > 0 ? sum / sqrt(strength) : 0;
}

/* Puts a correlation of one size on the scale of that at 32 x 32: what chance reaches becomes the same,
 * and 1 stays 1. */
static double on_scale(double value, int size)
{
    return 1 - (1 - value) * (1 - sizes[1].chance) / (1 - sizes[size].chance);
}

Likeness likeness_of(const LikenessSide *first, const LikenessSide *second)
{
    Likeness result = {0};
    if (first->flat || second->flat) {
        result.likeness = first->flat && second->flat ? 1 : 0;
        return result;
    }
    double near = -1, far = -1;
    int far_x = 0, far_y = 0;
    for (int dy = -LIKENESS_SHIFT_MAX; dy <= LIKENESS_SHIFT_MAX; dy++) {
        for (int dx = -LIKENESS_SHIFT_MAX; dx <= LIKENESS_SHIFT_MAX; dx++) {
            const double value = correlation(first, second, 0, dx, dy);
            if (dx >= -1 && dx <= 1 && dy >= -1 && dy <= 1) {
                near = value > near ? value : near;
            } else if (value > far) {
                far = value;
                far_x = dx;
                far_y = dy;
            }
        }
    }
    result.likeness = on_scale(correlation(first, second, 0, 0, 0), 0);
    result.shifted = far >= sizes[0].chance && far > SHIFT_MARGIN * near;
    if (result.shifted) {
        result.shift_x = (double)far_x / LIKENESS_EDGE;
        result.shift_y = (double)far_y / LIKENESS_EDGE;
        result.likeness_there = on_scale(far, 0);
    }
    for (int size = 1; size < LIKENESS_SIZES && !result.shifted; size++) {
        const double value = on_scale(correlation(first, second, size, 0, 0), size);
        result.likeness = value > result.likeness ? value : result.likeness;
    }
    result.likeness = result.likeness < -1 ? -1 : result.likeness > 1 ? 1 : result.likeness;
    return result;
}
