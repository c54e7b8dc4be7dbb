/* cpu_kernels_pool.h - loops of pools, each over one row of one image.
 *
 * Compiled for each instruction set and type of activations like cpu_kernels.c and reached through
 * CpuKernels.pool; what cpu_kernels.h says of bits and of results in place holds here, too. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_POOL_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct PoolShape {
    int64_t channels, in_height, in_width, out_height, out_width, kernel, stride, padding;
    bool ceil;
} PoolShape;

/* A norm and an activation, [channels]: n = (x - mean) * scale + bias, then n < 0 ? slope * n : n. */
typedef struct NormPool {
    const float *mean, *scale, *bias;
    float slope; /* 1: there is no activation */
} NormPool;

/* dx = from_g * G + from_x * (x - mean) + constant, [channels]; G: OP_NORM_POOL_BACKWARD. */
typedef struct NormPoolGradient {
    const float *mean, *from_g, *from_x, *constant;
} NormPoolGradient;

typedef struct CpuPoolKernels {
    /* Computes one output row of one image: x [in_height, in_width, channels] -> y, index [out_width,
     * channels]. */
    void (*max_pool)(const PoolShape *shape, const void *x, int64_t out_row, void *y, uint8_t *index);
    /* Computes one input row of one image: dy, index [out_height, out_width, channels] -> dx [in_width,
     * channels]. */
    void (*max_pool_backward)(const PoolShape *shape, const void *dy, const uint8_t *index, int64_t in_row,
                              void *dx);
    /* Computes one output row of OP_NORM_POOL, as max_pool does, with extreme [out_width, channels]. */
    void (*norm_pool)(const PoolShape *shape, const NormPool *norm, const void *x, int64_t out_row, void *y,
                      void *extreme, uint8_t *index);
    /* Computes one input row of OP_NORM_POOL_BACKWARD: g, index [out_height, out_width, channels], x
     * [in_width, channels] -> dx, which may be x. */
    void (*norm_pool_backward)(const PoolShape *shape, const NormPoolGradient *norm, const void *g,
                               const uint8_t *index, int64_t in_row, const void *x, void *dx);
    void (*avg_pool)(const PoolShape *shape, const void *x, int64_t out_row, void *y);
    void (*avg_pool_backward)(const PoolShape *shape, const void *dy, int64_t in_row, void *dx);
} CpuPoolKernels;

#endif
