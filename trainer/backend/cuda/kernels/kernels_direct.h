/* kernels_direct.h - convolutions of few channels, up to 32 in and out (direct.cu, direct_weight.cu), for
 * which cuDNN's kernels take some ten times what the memory needs. How they became fast: docs/kernels.md.
 * Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_DIRECT_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_DIRECT_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DIRECT_CHANNELS_MAX = 32, DIRECT_KERNEL_MAX = 5 };

/* y[n, h, w, o] = sum of x[n, h * stride - padding + i, w * stride - padding + j, c] * weight[o, i, j, c].
 * What lies outside x is 0, or, where it reflects, the pixel of the mirrored image: x[-1] is x[1] (PyTorch's
 * padding_mode "reflect"). */
typedef struct Direct {
    int64_t kernel, stride, padding;
    bool reflects;
    /* x may be bytes u8 [N, H, W, C at most 4]: then these are what kernel_normalize gets, and its numbers
     * are what is multiplied. Not used else. */
    const float *mean, *deviation;
} Direct;

/* Returns whether the kernels below accept the tensors (or their gradients): one narrow type, 8 to 32 padded
 * channels, fewer than 2^31 elements; kernel 1 to 5, stride 1 or 2; no groups; weights and a tile, where it
 * reflects of whole images, padded, in 94 KiB of shared memory, which a few kernels of 5 x 5 and 32 channels
 * have not. Bytes have no gradient. Otherwise they return cudaErrorNotSupported. */
bool kernel_direct_fits(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y,
                        const Direct *direct);
/* Returns the bytes of scratch that kernel_direct wants for the sums. */
uint64_t kernel_direct_sums_scratch_bytes(const DeviceTensor *x, const DeviceTensor *y, const Direct *direct);
/* Computes v = the sum above + bias, then y = v > 0 ? v : slope * v; slope 1: no activation. bias: f32 [C of
 * y], or NULL. sums: f32 [2, pitch of y], set to the sums of y and of its squares with the help of scratch;
 * NULL: neither. */
cudaError_t kernel_direct(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *bias,
                          float slope, const Direct *direct, const DeviceTensor *y, const DeviceTensor *sums,
                          void *scratch, cudaStream_t stream);
/* Computes the gradient of x. Where it reflects, what meets the mirrored pixels is rounded to the narrow type
 * before it is added up in float32, as a pad of its own would have it. */
cudaError_t kernel_direct_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                        const Direct *direct, const DeviceTensor *dx, cudaStream_t stream);
uint64_t kernel_direct_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x, const Direct *direct);
cudaError_t kernel_direct_backward_weight(const DeviceTensor *dy, const DeviceTensor *x, const Direct *direct,
                                          const DeviceTensor *dweight, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
