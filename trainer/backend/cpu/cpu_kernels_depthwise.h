/* cpu_kernels_depthwise.h - loops of depthwise convolutions, in which each channel has a kernel of its own.
 *
 * Compiled for each instruction set and type of activations like cpu_kernels.c and reached through
 * CpuKernels.depthwise; what cpu_kernels.h says of bits holds here, too. Activations are images of NHWC, the
 * weight is f32, [kernel, kernel, channels]. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_DEPTHWISE_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_DEPTHWISE_H

#include <stdbool.h>
#include <stdint.h>

/* A tap of the kernel along one axis, and the place of the source that it meets. */
typedef struct DepthwiseMeeting {
    int32_t tap, source;
} DepthwiseMeeting;

/* All that a place of the result is made of along one axis: meetings[place * kernel + 0..counts[place]). The
 * forward pass and the gradient of its input differ in these alone. */
typedef struct DepthwiseAxis {
    const DepthwiseMeeting *meetings;
    const int32_t *counts;
} DepthwiseAxis;

/* The places first..end of a row of dy whose meeting with a tap of the columns lies in the image: of one
 * convolution they follow each other, and their sources are a stride apart. */
typedef struct DepthwiseRun {
    int64_t first, end, source, stride; /* source: of the first */
} DepthwiseRun;

/* Places of a row that gather computes side by side where they are alike. */
enum { DEPTHWISE_PLACES = 6 };

typedef struct DepthwiseShape {
    int64_t channels, kernel, source_width, result_width;
    DepthwiseAxis rows, columns; /* by place of the result */
    const bool *alike;           /* [result_width] for gather: cpu_depthwise_are_alike from there on */
    const DepthwiseRun *runs;    /* [kernel] for add_gradient */
} DepthwiseShape;

/* Returns the run of a tap, found in the columns of the shape (cpu_depthwise.c). */
DepthwiseRun cpu_depthwise_run(const DepthwiseShape *shape, int32_t tap);
/* Returns whether DEPTHWISE_PLACES places of a row from this one on are made of the same taps, each of the
 * source's next place, as the columns of the shape have it (cpu_depthwise.c). */
bool cpu_depthwise_are_alike(const DepthwiseShape *shape, int64_t place);

typedef struct CpuDepthwiseKernels {
    /* Computes row `row` of an image: result = bias + the sum of weight * source over all meetings. source:
     * the image; result: its row; bias may be NULL. */
    void (*gather)(const DepthwiseShape *shape, const void *source, const float *weight, const float *bias,
                   int64_t row, void *result);
    /* Adds to dweight what row `row` of dy and an image x give, by the forward pass's meetings, and to dbias,
     * unless it is NULL, the sums of dy. dy: the row; x: the image. */
    void (*add_gradient)(const DepthwiseShape *shape, const void *x, const void *dy, int64_t row,
                         float *dweight, float *dbias);
} CpuDepthwiseKernels;

#endif
