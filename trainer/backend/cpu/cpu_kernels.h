/* cpu_kernels.h - the CPU backend's own loops, everything that is not a convolution or a matrix product.
 *
 * kernels.c is plain C and is compiled once for each instruction set (kernels_*: baseline, AVX2, AVX-512) and
 * each type in which activations are stored (f32, bf16: kernels_value.h shows how a loop is written for
 * both); a table of its functions is chosen at run time. Activations are void *, of the table's type; all
 * else has its own. Every function works on a part of a tensor, on the calling thread; who splits the work
 * over threads is cpu_parallel (cpu.h). All variants give the same bits: they run over channels side by side
 * and never change the order in which one channel is summed, and the compiler may not contract a * b + c. The
 * bf16 tables compute what the f32 ones do, and round what they write.
 *
 * A "matrix" here is rows x width, row-major, with one coefficient for each column: an NHWC image is [N * H *
 * W, C]. Where C is small, several pixels are taken as one row and the coefficients repeated (NormShape in
 * cpu_norm.c).
 *
 * In place: an output may be the same memory as an input of the same type, unless said; it may not overlap
 * otherwise. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/backend/cpu/cpu_kernels_channel.h"
#include "trainer/backend/cpu/cpu_kernels_depthwise.h"
#include "trainer/backend/cpu/cpu_kernels_pool.h"
#include "trainer/backend/cpu/cpu_kernels_update.h"
#include "trainer/graph/graph.h"

/* y = activation((x - mean) * scale + bias + addend) */
typedef struct NormForward {
    const void *x;                    /* [rows, width] */
    const void *addend;               /* [rows, width] or NULL */
    void *y;                          /* [rows, width]; may be x or addend */
    const float *mean, *scale, *bias; /* [width] */
    OpKind activation;                /* as.norm.activation of the node */
    float slope;                      /* of OP_RELU */
} NormForward;

/* With OP_RELU, g = dy where the activation was on, slope * dy where it was off. It was on where y > 0, or,
 * without y, where (x - mean) * scale + bias > 0. With another activation, g is dy times its slope at (x -
 * mean) * scale + bias. */
typedef struct NormBackward {
    const void *dy, *x; /* [rows, width] */
    const void *dy2;    /* [rows, width] or NULL: added to dy; with it g has a place */
    const void *y;      /* [rows, width] or NULL */
    /* [rows, width] or, without activation or with OP_RELU, NULL: where the first pass leaves g, and the
     * second finds it; may be dy, dy2 or y */
    void *g;
    void *dx;                         /* [rows, width], of the second pass; may be any of the others but g */
    const float *mean, *scale, *bias; /* [width] */
    OpKind activation;                /* as.norm.activation of the node */
    float slope;                      /* of OP_RELU */
    /* Second pass: dx = from_g * g + from_x * (x - mean) + constant, [width] each. */
    const float *from_g, *from_x, *constant;
} NormBackward;

typedef struct CpuKernels {
    const char *name; /* "baseline", "avx2", "avx512" */

    /* Computes y = x * scale + shift, [rows, width]. */
    void (*normalize)(const uint8_t *x, const float *scale, const float *shift, void *y, int64_t rows,
                      int64_t width);
    /* Convert between the table's type and f32. */
    void (*from_f32)(const float *x, void *y, int64_t count);
    void (*to_f32)(const void *x, float *y, int64_t count);
    /* Transposes x [rows, columns] to y [columns, rows]; not in place. */
    void (*transpose)(const void *x, int64_t rows, int64_t columns, void *y);
    void (*add)(const void *a, const void *b, void *y, int64_t count);
    /* Computes y = x[0] + … + x[terms - 1], summed in float. */
    void (*sum)(const void *const *x, int terms, void *y, int64_t count);
    /* Computes y = x < 0 ? slope * x : x, with 0 * x taken as 0. */
    void (*relu)(const void *x, void *y, int64_t count, float slope);
    /* Computes dx = y > 0 ? dy : slope * dy. */
    void (*relu_backward)(const void *dy, const void *y, void *dx, int64_t count, float slope);

    /* Computes y = f(x); pointwise_backward dx = dy * f'(x). f is the function of op, a forward op or its
     * backward op (pointwise_math.h). */
    void (*pointwise)(OpKind op, const void *x, void *y, int64_t count);
    void (*pointwise_backward)(OpKind op, const void *dy, const void *x, void *dx, int64_t count);

    /* Adds to sums[0..width) the columns' sums of x - shift, to sums[width..2 width) those of its square.
     * Sums 32 rows in float (block, 2 * width values of scratch), blocks in double. */
    void (*norm_sums)(const void *x, const float *shift, int64_t rows, int64_t width, float *block,
                      double *sums);
    /* Normalizes rows first..first + rows. width: of a row in memory and of the coefficients. */
    void (*norm_forward)(const NormForward *norm, int64_t first, int64_t rows, int64_t width);
    /* Adds to sums the columns' sums of g and of g * (x - mean), and stores g if it has a place: the first
     * pass. */
    void (*norm_backward_sums)(const NormBackward *norm, int64_t first, int64_t rows, int64_t width,
                               float *block, double *sums);
    /* Computes dx: the second pass. */
    void (*norm_backward_apply)(const NormBackward *norm, int64_t first, int64_t rows, int64_t width);

    /* Computes y[c] = sum over rows / rows; x [rows, width]. */
    void (*row_mean)(const void *x, int64_t rows, int64_t width, void *y);
    /* Computes y = factor * x. */
    void (*scale)(const void *x, float factor, void *y, int64_t count);

    const CpuChannelKernels *channel;
    const CpuDepthwiseKernels *depthwise;
    const CpuPoolKernels *pool;
    const CpuUpdateKernels *update;
} CpuKernels;

/* Returns the fastest variant that this machine runs, for activations of type DATA_F32 or DATA_BF16. */
const CpuKernels *cpu_kernels_choose(DataType type);
/* Returns variant i that this machine runs, from baseline up; NULL at the end. */
const CpuKernels *cpu_kernels_variant(DataType type, int i);

#endif
