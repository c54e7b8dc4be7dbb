/* cpu_kernels_channel.h - loops over pixels with one coefficient for each channel: the restoration networks'
 * own.
 *
 * Compiled for each instruction set and type of activations like cpu_kernels.c and reached through
 * CpuKernels.channel; what cpu_kernels.h says of bits and of memory that is input and output holds here, too.
 * A matrix is rows x width: pixels x channels. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_CHANNEL_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_CHANNEL_H

#include <stdint.h>

typedef struct LayerNormRows {
    const void *x;              /* [rows, width] */
    const float *weight, *bias; /* [width]; bias: forward only */
    void *y;                    /* [rows, width]; may be x */
    float *mean, *inverse;      /* [rows]: written forward, read backward */
    float epsilon;
    const void *dy;     /* [rows, width] */
    const void *addend; /* [rows, width] or NULL: part of dx */
    void *dx;           /* [rows, width] or NULL; may be dy, x or addend */
} LayerNormRows;

typedef struct CpuChannelKernels {
    /* Computes y = x * weight[c] + addend; addend may be NULL; y may be x or addend. */
    void (*scale)(const void *x, const float *weight, const void *addend, void *y, int64_t rows,
                  int64_t width);
    /* Computes y = x * weight[c] + shift[c]; y may be x. */
    void (*scale_shift)(const void *x, const float *weight, const float *shift, void *y, int64_t rows,
                        int64_t width);
    /* Computes dx = dy * weight[c] unless dx is NULL, and adds to sums[width] the columns' sums of dy * x.
     * block: width values of scratch. */
    void (*scale_backward)(const void *dy, const void *x, const float *weight, void *dx, int64_t rows,
                           int64_t width, float *block, double *sums);
    /* Multiplies the halves of each row: x [rows, 2 width] -> y [rows, width]. */
    void (*gate)(const void *x, void *y, int64_t rows, int64_t width);
    /* Computes dx [rows, 2 width] from dy [rows, width] and x [rows, 2 width]; dx may be x. */
    void (*gate_backward)(const void *dy, const void *x, void *dx, int64_t rows, int64_t width);
    void (*layer_norm)(const LayerNormRows *norm, int64_t first, int64_t rows, int64_t width);
    /* Adds to sums[0..width) the columns' sums of dy * normalised x, to sums[width..2 width) those of dy.
     * block: 2 * width values of scratch. */
    void (*layer_norm_backward)(const LayerNormRows *norm, int64_t first, int64_t rows, int64_t width,
                                float *block, double *sums);

    /* Makes of each row of scores [rows, width] its softmax, in place, and log_sums[rows], the logarithm of
     * the sum of their exponentials. */
    void (*softmax)(float *scores, int64_t rows, int64_t width, float *log_sums);
    /* Makes the same softmax of scores whose log_sums are known. */
    void (*softmax_again)(float *scores, int64_t rows, int64_t width, const float *log_sums);
    /* Makes of the gradient of the shares, which a softmax has made, that of the scores, in place. */
    void (*softmax_backward)(const float *shares, float *gradient, int64_t rows, int64_t width);
} CpuChannelKernels;

#endif
