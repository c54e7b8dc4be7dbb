/* kernels_channel.h - images moved about (boxes.cu), multiplied channel by channel (channel.cu), and
 * normalised pixel by pixel (layer_norm.cu): what restoration networks and pyramidnet are made of. Rules:
 * kernels.h.
 *
 * Images are [N, H, W, C] of one storage type in one call. Where the graph lets a result lie in the bytes of
 * an operand (OpRow.overwrites), these kernels may be called with the same address for both. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CHANNEL_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CHANNEL_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- boxes.cu ---- */

/* y[n, h, w, first_channel + c] = x[n, h, w, c], zeros elsewhere */
cudaError_t kernel_zero_pad(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                            cudaStream_t stream);
/* y[n, h, w, c] = x[n, h, w, first_channel + c] */
cudaError_t kernel_crop(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                        cudaStream_t stream);
/* The channels of a, then those of b. */
cudaError_t kernel_concat(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                          cudaStream_t stream);
/* y[n, h * r + i, w * r + j, c] = x[n, h, w, (c * r + i) * r + j] */
cudaError_t kernel_pixel_shuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                 cudaStream_t stream);
/* y[n, h, w, (c * r + i) * r + j] = x[n, h * r + i, w * r + j, c] */
cudaError_t kernel_pixel_unshuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                   cudaStream_t stream);

/* ---- channel.cu ---- */

/* y[.., c] = x[.., c] * x[.., C + c]; x has 2 C channels */
cudaError_t kernel_gate(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream);
/* dx may be x. */
cudaError_t kernel_gate_backward(const DeviceTensor *dy, const DeviceTensor *x, const DeviceTensor *dx,
                                 cudaStream_t stream);

/* y = x * factors + addend. factors f32: [C] for all images, or [N, C]. addend may be NULL. */
cudaError_t kernel_channel_scale(const DeviceTensor *x, const DeviceTensor *factors,
                                 const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream);
/* dx = dy * factors; dfactors = the sums over pixels of dy * x, shaped like factors. Each may be NULL. dx may
 * be dy or x. */
cudaError_t kernel_channel_scale_backward(const DeviceTensor *dy, const DeviceTensor *x,
                                          const DeviceTensor *factors, const DeviceTensor *dx,
                                          const DeviceTensor *dfactors, void *scratch, cudaStream_t stream);
/* Of kernel_channel_scale_backward. */
uint64_t kernel_channel_scale_scratch_bytes(const DeviceTensor *x, const DeviceTensor *factors);

/* ---- layer_norm.cu ---- */

/* What a layer norm works with: over the channels of each pixel x^ = (x - mean) * inverse_deviation. */
typedef struct LayerNormTensors {
    const DeviceTensor *x;
    const DeviceTensor *weight;                   /* [C] f32 */
    const DeviceTensor *mean, *inverse_deviation; /* [N, H, W, 1] f32: made by kernel_layer_norm */
} LayerNormTensors;

/* y = x^ * weight + bias, inverse_deviation = 1 / sqrt(variance + epsilon); bias [C] f32. y may be x. */
cudaError_t kernel_layer_norm(const LayerNormTensors *tensors, const DeviceTensor *bias, float epsilon,
                              const DeviceTensor *y, cudaStream_t stream);
/* With g = dy * weight: dx = inverse_deviation * (g - mean(g) - x^ * mean(g * x^)) + addend, dweight = sum of
 * dy * x^, dbias = sum of dy over pixels. Each may be NULL, and addend. dx may be dy, x or addend. */
cudaError_t kernel_layer_norm_backward(const DeviceTensor *dy, const LayerNormTensors *tensors,
                                       const DeviceTensor *addend, const DeviceTensor *dx,
                                       const DeviceTensor *dweight, const DeviceTensor *dbias, void *scratch,
                                       cudaStream_t stream);
/* Of kernel_layer_norm_backward. */
uint64_t kernel_layer_norm_scratch_bytes(const DeviceTensor *x);

#ifdef __cplusplus
}
#endif
#endif
