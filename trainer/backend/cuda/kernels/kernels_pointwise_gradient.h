/* kernels_pointwise_gradient.h - the data gradient of a 1 x 1 convolution together with the sums of the norm
 * in front of it (pointwise_gradient.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_POINTWISE_GRADIENT_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_POINTWISE_GRADIENT_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether kernel_pointwise_gradient accepts the gradient dy [.., K] of the result of a convolution of
 * x [.., C], which has stride 1 and no padding or groups: one narrow type; K a multiple of 64 up to 1024; x's
 * pitch a multiple of 64; a weight [K, 1, 1, C] whose part for a block fits in the current device's shared
 * memory. From K = 512 on the matrix units, not the memory, set the time. */
bool kernel_pointwise_gradient_fits(const DeviceTensor *dy, const DeviceTensor *weight,
                                    const DeviceTensor *x);

/* Returns the bytes of scratch that kernel_pointwise_gradient wants, for any dy. */
uint64_t kernel_pointwise_gradient_scratch_bytes(const DeviceTensor *x);

/* Computes d = dy * weight, the gradient of the convolution's input, and does with it what
 * kernel_batch_norm_backward does in NORM_GRADIENT_SUMS with gradient->dy = d: writes g, dweight, dbias and
 * zero. d is not rounded to the narrow type in between, and is not stored. Of gradient, dy and dx are not
 * read, and g must not be NULL; it may be y or a dy2 of x's shape, but not x or dy. Returns
 * cudaErrorNotSupported for operands that do not fit, a dy2 of other channels than x, sampled rows, peers,
 * and activations other than OP_RELU. */
cudaError_t kernel_pointwise_gradient(const DeviceTensor *dy, const DeviceTensor *weight,
                                      const NormGradient *gradient, const NormTensors *tensors,
                                      const NormActivation *activation, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
