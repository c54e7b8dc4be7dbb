/* resample_weights.h - the arithmetic of one output's weights, written once for the processor and for CUDA
 * kernels. Internal.
 *
 * Pillow's precompute_coeffs and normalize_coeffs_8bpc: the order of operations decides the last bit, so the
 * compiler must not fuse a product and a sum (nvcc: --fmad=false). */
#ifndef FSHARD_IMAGING_RESAMPLE_WEIGHTS_H
#define FSHARD_IMAGING_RESAMPLE_WEIGHTS_H

#include <math.h>
#include <stdint.h>

#include "common/philox.h"
#include "imaging/resample.h"

enum { RESAMPLE_PRECISION_BITS = 32 - 8 - 2 }; /* Pillow's: 8 for the pixel, 2 for weights outside 0..1 */

/* ---- an axis ---- */

/* An angle, by its sine and cosine. */
typedef struct ResampleAngle {
    double sine, cosine;
} ResampleAngle;

/* Returns an angle of at most pi each way, to some 1e-15. The sines of libraries differ in their last bit,
 * CUDA's from glibc's; this one is sums and products: the series of a quarter of the angle, which is then
 * doubled twice. */
FSH_HOST_DEVICE static inline ResampleAngle resample_angle(double radians)
{
    const double quarter = radians / 4, square = quarter * quarter;
    ResampleAngle angle = {1, 1};
    for (int n = 16; n > 0; n -= 2) {
        angle.sine = 1 - square / (n * (n + 1)) * angle.sine;
        angle.cosine = 1 - square / (n * (n - 1)) * angle.cosine;
    }
    angle.sine *= quarter;
    for (int doubled = 0; doubled < 2; doubled++) {
        const double sine = angle.sine;
        angle.sine = 2 * sine * angle.cosine;
        angle.cosine = 1 - 2 * sine * sine;
    }
    return angle;
}

/* How an axis is resampled. */
typedef struct ResampleScale {
    double begin;       /* of the box, in source pixels */
    double scale;       /* source pixels per output */
    double support;     /* reach of the filter to each side, in source pixels */
    double step;        /* distance in the filter from one source pixel to the next */
    ResampleAngle turn; /* of Lanczos weights: pi / 3 times the step */
    uint32_t source_size;
} ResampleScale;

/* Returns the reach of a filter to each side, at scale 1. */
FSH_HOST_DEVICE static inline double resample_reach(ResampleFilter filter)
{
    switch (filter) {
    case RESAMPLE_BOX:
        return 0.5;
    case RESAMPLE_BICUBIC:
        return 2.0;
    case RESAMPLE_LANCZOS:
        return 3.0;
    default:
        return 1.0;
    }
}

/* Returns the scale of an axis. begin and end are float, as in Pillow. */
FSH_HOST_DEVICE static inline ResampleScale resample_scale(float begin, float end, uint32_t source_size,
                                                           uint32_t target_size, ResampleFilter filter)
{
    const ResampleAngle no_turn = {0, 1};
    ResampleScale axis;
    axis.scale = (double)(end - begin) / target_size;
    /* enlarging: the filter keeps its width and interpolates */
    const double filter_scale = axis.scale < 1.0 ? 1.0 : axis.scale;
    axis.begin = (double)begin;
    axis.support = resample_reach(filter) * filter_scale;
    axis.step = 1.0 / filter_scale;
    axis.turn = filter == RESAMPLE_LANCZOS ? resample_angle(M_PI / 3 * axis.step) : no_turn;
    axis.source_size = source_size;
    return axis;
}

/* Returns the largest number of weights that an output may have. */
FSH_HOST_DEVICE static inline uint64_t resample_taps_max(const ResampleScale *axis)
{
    return (uint64_t)ceil(axis->support) * 2 + 1;
}

/* An output is made from the source pixels first … first + length - 1; centre: its centre in source
 * pixels. */
typedef struct ResampleSpan {
    double centre;
    uint32_t first, length;
} ResampleSpan;

FSH_HOST_DEVICE static inline ResampleSpan resample_span(const ResampleScale *axis, uint32_t output)
{
    ResampleSpan span;
    span.centre = axis->begin + (output + 0.5) * axis->scale;
    const double low = span.centre - axis->support + 0.5, high = span.centre + axis->support + 0.5;
    const uint32_t first = low > 0 ? (uint32_t)low : 0;
    const uint32_t last = high < axis->source_size ? (uint32_t)high : axis->source_size;
    span.first = first;
    span.length = last - first;
    if (first >= last) { /* the axis ends beyond its last source pixel: use that pixel alone */
        span.first = axis->source_size - 1;
        span.length = 1;
    }
    return span;
}

/* ---- the weights of an output ---- */

/* Going from weight to weight. */
typedef struct ResampleWalk {
    double first, centre, step;
    ResampleAngle angle, turn; /* of Lanczos weights: pi / 3 times the place in the filter; ResampleScale's */
} ResampleWalk;

/* Returns a walk from a span's first source pixel on. */
FSH_HOST_DEVICE static inline ResampleWalk resample_walk(const ResampleScale *axis, const ResampleSpan *span,
                                                         ResampleFilter filter)
{
    ResampleWalk walk;
    walk.first = (double)span->first;
    walk.centre = span->centre;
    walk.step = axis->step;
    walk.turn = axis->turn;
    walk.angle = filter == RESAMPLE_LANCZOS
                     ? resample_angle(M_PI / 3 * (walk.first - walk.centre + 0.5) * walk.step)
                     : walk.turn;
    return walk;
}

/* Returns the triangle filter at x. */
FSH_HOST_DEVICE static inline double resample_triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Returns the cubic filter, whose a is -0.5, at x. */
FSH_HOST_DEVICE static inline double resample_cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

/* Returns the Lanczos filter at x, sinc(x) sinc(x / 3) = sin(pi x) sin(pi x / 3) * 3 / (pi x)^2 on
 * -3 <= x < 3, and turns *angle, which is pi / 3 times x, on. Two sines for each weight took 6 % of the time
 * of resizing a photograph. So sin(pi x) is computed from s = sin(pi x / 3) as 3 s - 4 s^3, and s is rotated
 * from weight to weight by a constant angle. The error, some 1e-16 for each step, is far below the weights'
 * 22 bits. */
FSH_HOST_DEVICE static inline double resample_lanczos(double x, ResampleAngle *angle,
                                                      const ResampleAngle *turn)
{
    const double s = angle->sine, c = angle->cosine;
    angle->sine = s * turn->cosine + c * turn->sine;
    angle->cosine = c * turn->cosine - s * turn->sine;
    if (fabs(x) < 1e-5) /* the quotient would magnify the error */
        return 1.0;
    return -3.0 <= x && x < 3.0 ? (3 - 4 * s * s) * s * s * 3 / (M_PI * M_PI * x * x) : 0.0;
}

/* Returns weight k of a walk with its filter, before it is divided by the sum of them all; to be called for
 * k = 0, 1, … in turn. */
FSH_HOST_DEVICE static inline double resample_weight(ResampleWalk *walk, ResampleFilter filter, uint32_t k)
{
    const double x = (k + walk->first - walk->centre + 0.5) * walk->step;
    switch (filter) {
    case RESAMPLE_BOX:
        return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case RESAMPLE_BICUBIC:
        return resample_cubic(x);
    case RESAMPLE_LANCZOS:
        return resample_lanczos(x, &walk->angle, &walk->turn);
    default:
        return resample_triangle(x);
    }
}

/* Returns value / sum as a weight in fixed point. */
FSH_HOST_DEVICE static inline int32_t resample_fixed(double value, double sum)
{
    const double weight = value / sum * (1 << RESAMPLE_PRECISION_BITS);
    return (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
}

/* Returns the pixel for a sum of weight * pixel that includes a half for rounding. */
FSH_HOST_DEVICE static inline uint8_t resample_clamp(int32_t sum)
{
    const int32_t value = sum >> RESAMPLE_PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#endif
