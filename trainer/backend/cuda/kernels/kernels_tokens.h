/* kernels_tokens.h - tokens (tokens.cu) and attention. Rules: kernels.h.
 *
 * Tokens are [N, T, 1, C]; C is a multiple of PADDED_CHANNELS in tokens.cu, so that rows have no padding. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_TOKENS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_TOKENS_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokens.cu ---- */

/* Computes y [N, T, 1, C] of x [N, H, W, C]: its pixels, behind class_token [1, 1, C] f32 where that is not
 * NULL; each plus its row of positions [1, T, C] f32 or, where that is NULL, the sines of its pixel
 * (graph_tokens). */
cudaError_t kernel_tokens(const DeviceTensor *x, const DeviceTensor *class_token,
                          const DeviceTensor *positions, const DeviceTensor *y, cudaStream_t stream);
/* Computes from dy: dx, the gradient of the pixels; dpositions [1, T, C], its sums over the samples; and
 * dclass [1, 1, C], the first of these. Each may be NULL; first: 1 where there is a class token, else 0. */
cudaError_t kernel_tokens_backward(const DeviceTensor *dy, int64_t first, const DeviceTensor *dx,
                                   const DeviceTensor *dclass, const DeviceTensor *dpositions, void *scratch,
                                   cudaStream_t stream);
/* Returns the scratch bytes of kernel_tokens_backward. */
uint64_t kernel_tokens_scratch_bytes(const DeviceTensor *dy);

/* ---- attention ---- */

/* What the gradient of an attention reads. */
typedef struct AttentionGradient {
    const DeviceTensor *dy, *x, *y; /* dy and y: [N, T, 1, C] */
    const DeviceTensor *log_sums;
    int64_t heads;
} AttentionGradient;

/* Returns the scratch bytes of both gradients below. */
uint64_t kernel_attention_scratch_bytes(const DeviceTensor *log_sums);

/* Each computes y [N, T, 1, C] of x [N, T, 1, 3 C], queries, keys and values, and log_sums [N, heads, T, 1]
 * f32; or dx from dy. The first two are the plain version, a warp for each query, then for each key
 * (attention.cu): cudaErrorNotSupported with more than 6,000 tokens. The others, on the matrix units, are for
 * heads of 32 and 64 channels in 16 bits (attention_tiles.cu). */
cudaError_t kernel_attention(const DeviceTensor *x, int64_t heads, const DeviceTensor *y,
                             const DeviceTensor *log_sums, cudaStream_t stream);
cudaError_t kernel_attention_backward(const AttentionGradient *gradient, const DeviceTensor *dx,
                                      void *scratch, cudaStream_t stream);
bool kernel_attention_tiles_fit(const DeviceTensor *x, int64_t heads);
cudaError_t kernel_attention_tiles(const DeviceTensor *x, int64_t heads, const DeviceTensor *y,
                                   const DeviceTensor *log_sums, cudaStream_t stream);
cudaError_t kernel_attention_tiles_backward(const AttentionGradient *gradient, const DeviceTensor *dx,
                                            void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
