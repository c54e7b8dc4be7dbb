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

enum { RESAMPLE_PRECISION_BITS = 32 - 8 - 2 }; /* Pillow's: 8 for the pixel, 2 for weights outside 0..1 */

/* How an axis is resampled. */
typedef struct ResampleScale {
    double begin;   /* of the box, in source pixels */
    double scale;   /* source pixels per output */
    double support; /* reach of the filter to each side, in source pixels */
    double step;    /* distance in the filter from one source pixel to the next */
    uint32_t source_size;
} ResampleScale;

/* Returns the scale of an axis. filter_support: at scale 1. begin and end are float, as in Pillow. */
FSH_HOST_DEVICE static inline ResampleScale resample_scale(float begin, float end, uint32_t source_size,
                                                           uint32_t target_size, double filter_support)
{
    ResampleScale axis;
    axis.scale = (double)(end - begin) / target_size;
    /* enlarging: the filter keeps its width and interpolates */
    const double filter_scale = axis.scale < 1.0 ? 1.0 : axis.scale;
    axis.begin = (double)begin;
    axis.support = filter_support * filter_scale;
    axis.step = 1.0 / filter_scale;
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

/* Returns the triangle filter at source pixel first + k. */
FSH_HOST_DEVICE static inline double resample_triangle(double first, double centre, double step, uint32_t k)
{
    const double x = fabs((k + first - centre + 0.5) * step);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Returns the cubic filter, whose a is -0.5, at source pixel first + k. */
FSH_HOST_DEVICE static inline double resample_cubic(double first, double centre, double step, uint32_t k)
{
    const double a = -0.5, x = fabs((k + first - centre + 0.5) * step);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
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
