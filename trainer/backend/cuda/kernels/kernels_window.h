/* kernels_window.h - pools and pads: windows that slide over an image (window.cu, max_pool.cu). Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_WINDOW_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_WINDOW_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PoolShape {
    int kernel, stride, padding;
    bool ceil; /* see Pool2d */
} PoolShape;

/* Computes maxima. index u8, shaped like y, is set to the place of each in its window, row * kernel + column,
 * of equal values the first; kernel at most 16. */
cudaError_t kernel_max_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                            const DeviceTensor *index, cudaStream_t stream);
cudaError_t kernel_max_pool_backward(const DeviceTensor *dy, const DeviceTensor *index, const PoolShape *pool,
                                     const DeviceTensor *dx, cudaStream_t stream);
/* Computes means; the divisor is kernel * kernel, padding included, or with ceil the pixels inside. */
cudaError_t kernel_avg_pool(const DeviceTensor *x, const PoolShape *pool, const DeviceTensor *y,
                            cudaStream_t stream);
cudaError_t kernel_avg_pool_backward(const DeviceTensor *dy, const PoolShape *pool, const DeviceTensor *dx,
                                     cudaStream_t stream);
/* Computes the mean over pixels: [N, H, W, C] to [N, C]. */
cudaError_t kernel_global_avg_pool(const DeviceTensor *x, const DeviceTensor *y, void *scratch,
                                   cudaStream_t stream);
/* Returns the scratch bytes of kernel_global_avg_pool. */
uint64_t kernel_global_avg_pool_scratch_bytes(const DeviceTensor *x);
cudaError_t kernel_global_avg_pool_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                            cudaStream_t stream);
/* Pad by reflection with `padding` pixels on each side, fewer than height and width. */
cudaError_t kernel_reflection_pad(const DeviceTensor *x, int padding, const DeviceTensor *y,
                                  cudaStream_t stream);
cudaError_t kernel_reflection_pad_backward(const DeviceTensor *dy, int padding, const DeviceTensor *dx,
                                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
