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

/* Kernels that compute y [N, T, 1, C] of x [N, T, 1, 3 C], queries, keys and values, and log_sums [N, heads,
 * T, 1] f32; and dx from dy. Where they do not fit they return cudaErrorNotSupported. */
typedef struct AttentionWay {
    const char *name;
    bool (*fits)(const DeviceTensor *x, int64_t heads);
    cudaError_t (*forward)(const DeviceTensor *x, int64_t heads, const DeviceTensor *y,
                           const DeviceTensor *log_sums, cudaStream_t stream);
    cudaError_t (*backward)(const AttentionGradient *gradient, const DeviceTensor *dx, void *scratch,
                            cudaStream_t stream);
} AttentionWay;

/* plain: a warp for each query, then for each key (attention.cu), of any type: cudaErrorNotSupported with
 * more than 6,000 tokens. The others are on the matrix units, in 16 bits. tiles: for heads of 32 and 64
 * channels (attention_tiles.cu). warpgroup: on Hopper, for up to 4,096 tokens and heads of 64 channels
 * (attention_warpgroup.cu). */
extern const AttentionWay attention_plain, attention_tiles, attention_warpgroup;

/* Returns the fastest that fits. */
const AttentionWay *kernel_attention_way(const DeviceTensor *x, int64_t heads);
/* Returns the scratch bytes of every backward. */
uint64_t kernel_attention_scratch_bytes(const DeviceTensor *log_sums);

#ifdef __cplusplus
}
#endif
#endif
