/* kernels_self_attention.h - what self-attention between channels has beside its products, which are
 * cuBLASLt's, and spectral norm (self_attention.cu). Rules: kernels.h.
 *
 * Matrices are [.., C, C], C a multiple of PADDED_CHANNELS, so that nothing has padding. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_SELF_ATTENTION_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_SELF_ATTENTION_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- spectral norm: of a matrix [rows, columns, 1], f32 like all else ---- */

typedef struct SpectralNormTensors {
    const DeviceTensor *weight, *u, *v; /* weight: the one before division, or y */
    const DeviceTensor *sigma;
} SpectralNormTensors;

/* Returns the scratch bytes of both. */
uint64_t kernel_spectral_norm_scratch_bytes(const DeviceTensor *weight);
/* Computes y = weight / sigma, and sigma = u' weight v; with `moves` v and u are made first, of u and v, by
 * one step of power iteration. */
cudaError_t kernel_spectral_norm(const SpectralNormTensors *tensors, bool moves, const DeviceTensor *y,
                                 void *scratch, cudaStream_t stream);
/* Computes dweight = (dy - (sum of dy * y) u v') / sigma; tensors->weight is y. */
cudaError_t kernel_spectral_norm_backward(const DeviceTensor *dy, const SpectralNormTensors *tensors,
                                          const DeviceTensor *dweight, void *scratch, cudaStream_t stream);

/* ---- self-attention ---- */

/* Computes result, of any float type, = gamma * mixing f32. */
cudaError_t kernel_mixing_scale(const DeviceTensor *mixing, const DeviceTensor *gamma,
                                const DeviceTensor *result, cudaStream_t stream);
/* Computes dgamma, the sum of dmixing * mixing, and makes dmixing gamma * dmixing; all f32. dgamma may be
 * NULL. */
cudaError_t kernel_mixing_backward(const DeviceTensor *dmixing, const DeviceTensor *mixing,
                                   const DeviceTensor *gamma, const DeviceTensor *dgamma, void *scratch,
                                   cudaStream_t stream);
/* Returns its scratch bytes. */
uint64_t kernel_mixing_scratch_bytes(const DeviceTensor *mixing);
/* Computes result, of any float type, = matrix f32 [N, C, C] + the same, transposed. */
cudaError_t kernel_add_transposed(const DeviceTensor *matrix, const DeviceTensor *result,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
