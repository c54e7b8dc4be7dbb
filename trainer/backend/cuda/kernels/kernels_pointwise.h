/* kernels_pointwise.h - operations that pass over a tensor once (elementwise.cu, pointwise_sums.cu). Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_POINTWISE_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_POINTWISE_H

#include "trainer/backend/cuda/kernels/kernels.h"
#include "trainer/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes y = value everywhere. */
cudaError_t kernel_fill(const DeviceTensor *y, float value, cudaStream_t stream);
/* Computes y = x in y's type; any two of float32, bf16, f16. */
cudaError_t kernel_cast(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
/* Computes y = factor * x. */
cudaError_t kernel_scale(const DeviceTensor *x, float factor, const DeviceTensor *y, cudaStream_t stream);
/* Computes y[.., c] = (x[.., c] - mean[c]) / deviation[c]; x u8, at most 4 channels. */
cudaError_t kernel_normalize(const DeviceTensor *x, const float *mean, const float *deviation,
                             const DeviceTensor *y, cudaStream_t stream);
/* Computes y = x > 0 ? x : slope * x. */
cudaError_t kernel_relu(const DeviceTensor *x, float slope, const DeviceTensor *y, cudaStream_t stream);
/* Computes dx = y > 0 ? dy : slope * dy. */
cudaError_t kernel_relu_backward(const DeviceTensor *dy, const DeviceTensor *y, float slope,
                                 const DeviceTensor *dx, cudaStream_t stream);
/* Compute y = f(x) and dx = dy * f'(x); f: that of the op, or of the op that it is the backward one of
 * (pointwise_math.h). cudaErrorInvalidValue: it is none of them. */
cudaError_t kernel_pointwise(OpKind op, const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
cudaError_t kernel_pointwise_backward(OpKind op, const DeviceTensor *dy, const DeviceTensor *x,
                                      const DeviceTensor *dx, cudaStream_t stream);
/* Computes the same, narrow, and sums [C] f32, of dx over all rows, before it is rounded. dx may be dy or x.
 * scratch: kernel_column_scratch_bytes of dx. */
cudaError_t kernel_pointwise_backward_sums(OpKind op, const DeviceTensor *dy, const DeviceTensor *x,
                                           const DeviceTensor *dx, const DeviceTensor *sums, void *scratch,
                                           cudaStream_t stream);
cudaError_t kernel_add(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                       cudaStream_t stream);
/* Reorder [N, H, W, C] to [N, C * H * W] in the order C, H, W; and back, for the gradient. */
cudaError_t kernel_flatten(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
cudaError_t kernel_flatten_backward(const DeviceTensor *dy, const DeviceTensor *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
