/* kernels_norm_pool.h - a batch norm whose result goes to a max pool alone (norm_pool.cu). Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_POOL_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_POOL_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the pool makes, all of one shape [N, H', W', C]. */
typedef struct NormPooled {
    const DeviceTensor *y;       /* the largest results of the norm, through the activation */
    const DeviceTensor *extreme; /* the values of x that they were made of */
    const DeviceTensor *index;   /* u8: where in its window each lay, row * kernel + column */
} NormPooled;

/* Computes mean and inverse_deviation from the sums of x, as kernel_batch_norm_apply_sums does, and nothing
 * else. */
cudaError_t kernel_batch_norm_sum_statistics(const NormTensors *tensors, const NormRunning *running,
                                             const DeviceTensor *sums, cudaStream_t stream);

/* Computes what is pooled, with tensors' mean and inverse_deviation: of each window the largest x, or where
 * weight * inverse_deviation is below 0 the smallest; of equals the first. activation: OP_RELU or none. For
 * pools of 3 x 3 with a padding of 1 and of 2 x 2 without, stride 2, and channels in multiples of 8; else
 * cudaErrorNotSupported. */
cudaError_t kernel_norm_pool(const NormTensors *tensors, const NormActivation *activation,
                             const PoolShape *pool, const NormPooled *pooled, cudaStream_t stream);

/* Computes dx of x, as OP_NORM_POOL_BACKWARD says, with g, the gradient of extreme through the activation. dx
 * may be x. Shapes as for kernel_norm_pool. */
cudaError_t kernel_norm_pool_backward(const DeviceTensor *g, const DeviceTensor *index,
                                      const NormTensors *tensors, const DeviceTensor *dweight,
                                      const DeviceTensor *dbias, const PoolShape *pool,
                                      const DeviceTensor *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
