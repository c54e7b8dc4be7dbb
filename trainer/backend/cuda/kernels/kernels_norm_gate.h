/* kernels_norm_gate.h - batch norm before squeeze and excitation, whose result is not written
 * (norm_gate.cu). Rules: kernels.h; norms: kernels_norm.h.
 *
 * With n = x^ * weight + bias, x^ = (x - mean) * inverse_deviation: forward
 *
 *   kernel_image_sums; kernel_image_statistics, or kernel_image_means and kernel_batch_norm_statistics, or
 *   kernel_batch_norm_running; kernel_norm_squeeze          the mean of n over each image, for the gate
 *   kernel_norm_gate                                        activation(n * gate + addend)
 *
 * and backward kernel_norm_gate_backward, then kernel_norm_squeeze_backward. x is [N, H, W, C]; factors,
 * their gradient and image_means are [N, C] f32. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_GATE_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_GATE_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns scratch bytes that are enough for any function below, on a tensor of x's shape. */
uint64_t kernel_image_scratch_bytes(const DeviceTensor *x);

/* Computes the sums over each image of x and of its square, in scratch, for the next three. */
cudaError_t kernel_image_sums(const DeviceTensor *x, void *scratch, cudaStream_t stream);
/* Computes mean and inverse_deviation of the batch, and moves the running statistics, as
 * kernel_batch_norm_forward does. */
cudaError_t kernel_image_statistics(const NormTensors *tensors, const NormRunning *running,
                                    const void *scratch, cudaStream_t stream);
/* Computes what kernel_batch_norm_means does. */
cudaError_t kernel_image_means(const DeviceTensor *x, int64_t sampled_rows, double *means,
                               const void *scratch, cudaStream_t stream);
/* Computes image_means, those of x over the pixels of each image, and y [N, C], those of n. */
cudaError_t kernel_norm_squeeze(const NormTensors *tensors, const DeviceTensor *y,
                                const DeviceTensor *image_means, const void *scratch, cudaStream_t stream);

/* Computes y = activation(n * factors + addend). addend may be NULL; the activation is OP_RELU or none; y may
 * be x or addend. */
cudaError_t kernel_norm_gate(const NormTensors *tensors, const NormActivation *activation,
                             const DeviceTensor *factors, const DeviceTensor *addend, const DeviceTensor *y,
                             cudaStream_t stream);

/* Computes g = dy + dy2 through the activation, its sums [2, N, C] f32 over the pixels of each image, times 1
 * and times x - mean, and dfactors = sum g * n. Of the gradient it reads dy, dy2 and, with OP_RELU, y; it
 * writes g, which is NULL only without activation and dy2. */
cudaError_t kernel_norm_gate_backward(const NormGradient *gradient, const NormTensors *tensors,
                                      const NormActivation *activation, const DeviceTensor *dfactors,
                                      const DeviceTensor *sums, void *scratch, cudaStream_t stream);

/* The gradient of n is g * factors + dy / pixels; dweight, dbias and dx follow from it as NormGradient's. */
typedef struct NormSqueezeGradient {
    const DeviceTensor *dy; /* [N, C], of kernel_norm_squeeze's y */
    const DeviceTensor *g, *factors, *sums, *image_means;
    const DeviceTensor *dx; /* or NULL; may be g or x */
    const DeviceTensor *dweight, *dbias;
    bool batch_statistics;
    int64_t sampled_rows; /* as in NormRunning; with batch_statistics */
    NormGradientPart part;
} NormSqueezeGradient;
/* tensors->bias is not read. */
cudaError_t kernel_norm_squeeze_backward(const NormSqueezeGradient *gradient, const NormTensors *tensors,
                                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
