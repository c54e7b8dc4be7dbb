/* kernels_convolution.h - convolutions for which cuDNN is slow: few channels at stride 2 (stem.cu), patches
 * of few channels (patches.cu), groups of few channels (groups.cu), one channel a group (depthwise.cu,
 * depthwise_weight.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CONVOLUTION_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_CONVOLUTION_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the stem ----
 *
 * A convolution of stride 2 over images of at most 4 channels is the same as one of stride 1 without padding
 * over images of half the size, whose 16 channels are squares of 2 x 2 pixels: ((row % 2) * 2 + column % 2) *
 * 4 + channel. Zeros in front, an even number of them, replace the padding, so the kernel begins with `lead`
 * taps that are 0. Kernel 7, padding 3: front 4, lead 1, 4 taps. The squares that a row of taps multiplies
 * are stored as channels of one pixel, so the kernel is `taps` high and 1 wide. */
enum { FOLD_CHANNELS_MAX = 4, FOLDED_CHANNELS = 16 };

typedef struct Fold {
    int64_t front, lead, taps;
} Fold;

static inline Fold fold_of(int64_t kernel, int64_t padding)
{
    const int64_t lead = padding % 2;
    return (Fold){padding + lead, lead, (kernel + lead + 1) / 2};
}

/* Computes folded [N, h, w, taps * 16] from x [N, H, W, at most 4], both narrow. Pixel i, j holds squares j
 * to j + taps - 1 of row i; square k has rows 2 i - front and the next one, columns 2 k - front and the next
 * one, with zeros outside x. */
cudaError_t kernel_fold_image(const DeviceTensor *x, const Fold *fold, const DeviceTensor *folded,
                              cudaStream_t stream);
/* Computes what kernel_normalize and kernel_fold_image make of bytes x [N, H, W, C at most 4], bit for bit:
 * the zeros outside x are zeros after normalising, too. mean and deviation as kernel_normalize's. Returns
 * cudaErrorNotSupported for kernels above 127. */
cudaError_t kernel_fold_bytes(const DeviceTensor *x, const float *mean, const float *deviation,
                              const Fold *fold, const DeviceTensor *folded, cudaStream_t stream);
/* Computes folded [O, taps, 1, taps * 16] from weight [O, k, k, at most 4], both narrow and padded in O. */
cudaError_t kernel_fold_weight(const DeviceTensor *weight, const Fold *fold, const DeviceTensor *folded,
                               cudaStream_t stream);
/* Does the inverse of kernel_fold_weight, for the gradient. */
cudaError_t kernel_unfold_weight(const DeviceTensor *folded, const Fold *fold, const DeviceTensor *weight,
                                 cudaStream_t stream);

/* ---- patches of few channels ----
 *
 * (im2col) A convolution is the same as one of kernel 1 over images whose pixels are what a kernel covers:
 * k * k * C channels, where C needs no padding, and zeros up to a multiple of PADDED_CHANNELS. */
typedef struct Patches {
    int64_t kernel, stride, padding;
} Patches;

/* Computes patches [N, h, w, k * k * C and zeros] of x [N, H, W, C], both narrow, with zeros outside x. */
cudaError_t kernel_cut_patches(const DeviceTensor *x, const Patches *of, const DeviceTensor *patches,
                               cudaStream_t stream);
/* Computes flat [O, 1, 1, k * k * C and zeros] from weight [O, k, k, C], both narrow and padded in O. */
cudaError_t kernel_flatten_filter(const DeviceTensor *weight, const DeviceTensor *flat, cudaStream_t stream);
/* Does the inverse of kernel_flatten_filter, for the gradient. */
cudaError_t kernel_unflatten_filter(const DeviceTensor *flat, const DeviceTensor *weight,
                                    cudaStream_t stream);

/* ---- groups of few channels ----
 *
 * A convolution in groups is the same as one in fewer, larger groups, whose weights are 0 where an output
 * channel meets an input channel of another group. */
enum { JOINED_CHANNELS = 16 };

/* Computes joined [O, k, k, J] from weight [O, k, k, I] of a convolution in `groups`, both narrow: J is a
 * multiple of I, O of groups, and groups of J / I. */
cudaError_t kernel_join_groups(const DeviceTensor *weight, int64_t groups, const DeviceTensor *joined,
                               cudaStream_t stream);
/* Does the inverse of kernel_join_groups, for the gradient: weight is f32. */
cudaError_t kernel_split_groups(const DeviceTensor *joined, int64_t groups, const DeviceTensor *weight,
                                cudaStream_t stream);

/* ---- depthwise ----
 *
 * y[n, h, w, c] = bias[c] + sum of x[n, h * stride - padding + i, w * stride - padding + j, c] * weight[c, i,
 * j]. x and y have one type; weight [C, k, k, 1], bias [C] and their gradients are float32. Kernels 3, 5, 7
 * at strides 1 and 2; else cudaErrorNotSupported. */
typedef struct Depthwise {
    int64_t kernel, stride, padding;
} Depthwise;

/* Returns whether there is a kernel for it. */
bool kernel_depthwise_fits(const Depthwise *depthwise);
/* Computes y; bias may be NULL. */
cudaError_t kernel_depthwise(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *bias,
                             const Depthwise *depthwise, const DeviceTensor *y, cudaStream_t stream);
cudaError_t kernel_depthwise_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                           const Depthwise *depthwise, const DeviceTensor *dx,
                                           cudaStream_t stream);
/* Returns the bytes of scratch that kernel_depthwise_backward_weight wants. */
uint64_t kernel_depthwise_scratch_bytes(const DeviceTensor *dy, const Depthwise *depthwise);
/* Computes dweight and dbias, which may be NULL. */
cudaError_t kernel_depthwise_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                             const Depthwise *depthwise, const DeviceTensor *dweight,
                                             const DeviceTensor *dbias, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
