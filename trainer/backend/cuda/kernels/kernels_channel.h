/* kernels_channel.h - kernels of restoration networks and pyramidnet: images moved (boxes.cu), multiplied
 * half by half (gate.cu) and channel by channel (channel.cu), normalised pixel by pixel (layer_norm.cu) and
 * channel by channel (response_norm.cu). Rules: kernels.h.
 *
 * Images are [N, H, W, C], of one storage type in one call. If the graph lets a result share the bytes of an
 * operand (OpRow.overwrites), both may have the same address. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CHANNEL_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CHANNEL_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- boxes.cu ---- */

/* Computes y[n, h, w, first_channel + c] = x[n, h, w, c], with zeros elsewhere. */
cudaError_t kernel_zero_pad(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                            cudaStream_t stream);
/* Computes y[n, h, w, c] = x[n, h, w, first_channel + c]. */
cudaError_t kernel_crop(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                        cudaStream_t stream);
/* Writes the channels of a, then those of b. */
cudaError_t kernel_concat(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                          cudaStream_t stream);
/* Computes y[n, h * r + i, w * r + j, c] = x[n, h, w, (c * r + i) * r + j]. */
cudaError_t kernel_pixel_shuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                 cudaStream_t stream);
/* Computes y[n, h, w, (c * r + i) * r + j] = x[n, h * r + i, w * r + j, c]. */
cudaError_t kernel_pixel_unshuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                   cudaStream_t stream);

/* ---- gate.cu ---- */

/* Computes y[.., c] = x[.., c] * x[.., C + c]; x has 2 C channels. means, [N, C] of y's type, or NULL: those
 * of the products over the pixels of each image, before they are rounded to y; C in multiples of 8. scratch:
 * for means. */
cudaError_t kernel_gate(const DeviceTensor *x, const DeviceTensor *y, const DeviceTensor *means,
                        void *scratch, cudaStream_t stream);
/* Returns the scratch bytes of kernel_gate with means. */
uint64_t kernel_gate_scratch_bytes(const DeviceTensor *y);

/* Operands of the gradient of a gate. Any of the last three may be NULL; C in multiples of 8 with any, and 16
 * bits with sums. */
typedef struct GateGradient {
    const DeviceTensor *dy, *x, *dx; /* dx may be x */
    const DeviceTensor *factors;     /* [N, C] f32, by which dy is multiplied */
    const DeviceTensor *dmeans;      /* [N, C] of dy's type: the gradient of the means */
    const DeviceTensor *sums;        /* [2 C] f32: those of dx over all pixels */
} GateGradient;

/* Computes dx, and the sums if wanted, where y has the gradient dy * factors + dmeans / pixels. */
cudaError_t kernel_gate_backward(const GateGradient *of, void *scratch, cudaStream_t stream);
/* Returns the scratch bytes of kernel_gate_backward. */
uint64_t kernel_gate_backward_scratch_bytes(const GateGradient *of);

/* ---- channel.cu ---- */

/* Computes y = x * factors + addend. factors f32: [C] for all images, or [N, C]. addend may be NULL. */
cudaError_t kernel_channel_scale(const DeviceTensor *x, const DeviceTensor *factors,
                                 const DeviceTensor *addend, const DeviceTensor *y, cudaStream_t stream);
/* Computes y = x * factors + shift; shift [C] f32 for all images. */
cudaError_t kernel_channel_scale_shift(const DeviceTensor *x, const DeviceTensor *factors,
                                       const DeviceTensor *shift, const DeviceTensor *y, cudaStream_t stream);
/* Computes y = x * factors + addend * addend_factors; both factors f32 and of one shape. y may be x or
 * addend. */
cudaError_t kernel_channel_scale_both(const DeviceTensor *x, const DeviceTensor *factors,
                                      const DeviceTensor *addend, const DeviceTensor *addend_factors,
                                      const DeviceTensor *y, cudaStream_t stream);
/* Sums dy * x, and dy, over the pixels of each image: products and sums_of_dy [N, C] f32. dy NULL: x takes
 * its place. sums_of_dy may be NULL. */
cudaError_t kernel_product_sums(const DeviceTensor *dy, const DeviceTensor *x, const DeviceTensor *products,
                                const DeviceTensor *sums_of_dy, void *scratch, cudaStream_t stream);
/* Returns the scratch bytes of kernel_product_sums. */
uint64_t kernel_product_sums_scratch_bytes(const DeviceTensor *x);
/* Computes dx = dy * factors, and dfactors, shaped like factors, as the sums over pixels of dy * x; with
 * factors [C] and in 16 bits dbias [C] f32, the sums of dx. Each may be NULL. dx may be dy or x. */
cudaError_t kernel_channel_scale_backward(const DeviceTensor *dy, const DeviceTensor *x,
                                          const DeviceTensor *factors, const DeviceTensor *dx,
                                          const DeviceTensor *dfactors, const DeviceTensor *dbias,
                                          void *scratch, cudaStream_t stream);
/* Returns the scratch bytes of kernel_channel_scale_backward; bias: with dbias. */
uint64_t kernel_channel_scale_scratch_bytes(const DeviceTensor *x, const DeviceTensor *factors, bool bias);

/* ---- layer_norm.cu ---- */

/* Operands of a layer norm, which computes x^ = (x - mean) * inverse_deviation over the channels of each
 * pixel. */
typedef struct LayerNormTensors {
    const DeviceTensor *x;
    const DeviceTensor *weight;                   /* [C] f32 */
    const DeviceTensor *mean, *inverse_deviation; /* [N, H, W, 1] f32: written by kernel_layer_norm, read by
                                                   * its gradient */
} LayerNormTensors;

/* Computes y = x^ * weight + bias with inverse_deviation = 1 / sqrt(variance + epsilon); bias [C] f32. y may
 * be x. */
cudaError_t kernel_layer_norm(const LayerNormTensors *tensors, const DeviceTensor *bias, float epsilon,
                              const DeviceTensor *y, cudaStream_t stream);
/* Computes, with g = dy * weight: dx = inverse_deviation * (g - mean(g) - x^ * mean(g * x^)) + addend, and
 * over pixels dweight = sum of dy * x^, dbias = sum of dy. Each result, and addend, may be NULL. dx may be
 * dy, x or addend. */
cudaError_t kernel_layer_norm_backward(const DeviceTensor *dy, const LayerNormTensors *tensors,
                                       const DeviceTensor *addend, const DeviceTensor *dx,
                                       const DeviceTensor *dweight, const DeviceTensor *dbias, void *scratch,
                                       cudaStream_t stream);
/* Returns the scratch bytes of kernel_layer_norm_backward. */
uint64_t kernel_layer_norm_scratch_bytes(const DeviceTensor *x);

/* ---- response_norm.cu ---- */

/* Computes y = x * (1 + weight * norms / (mean of norms + epsilon)) + bias and norms, [N, C] f32: of each
 * channel over the pixels of a sample. weight and bias: [C] f32. y may be x. */
cudaError_t kernel_response_norm(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *bias,
                                 float epsilon, const DeviceTensor *y, const DeviceTensor *norms,
                                 void *scratch, cudaStream_t stream);

/* What the gradient of a response norm reads. */
typedef struct ResponseNormTensors {
    const DeviceTensor *dy, *x, *weight, *norms;
} ResponseNormTensors;

/* Computes the gradients; each may be NULL. dx may be dy. */
cudaError_t kernel_response_norm_backward(const ResponseNormTensors *tensors, float epsilon,
                                          const DeviceTensor *dx, const DeviceTensor *dweight,
                                          const DeviceTensor *dbias, void *scratch, cudaStream_t stream);
/* Returns the scratch bytes of both. */
uint64_t kernel_response_norm_scratch_bytes(const DeviceTensor *x);

#ifdef __cplusplus
}
#endif
#endif
