/* kernels_implicit_gemm.h - convolutions of 3 x 3 at stride 1, with or without zeros around the images, as
 * products of warp groups (implicit_gemm.cu, implicit_gemm_weight.cu), on Hopper. For channels that are no
 * multiple of 64, of which cuDNN's tiles leave much empty, and for images that are few or small, where its
 * kernels reach a fifth of the card. Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_IMPLICIT_GEMM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_IMPLICIT_GEMM_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether the kernels below accept the tensors x [N, H, W, C], weight [O, 3, 3, C],
 * y [N, H + 2 p - 2, W + 2 p - 2, O] (or their gradients) on the card in use: p, the padding that these sizes
 * tell, is 0, 1 or 2; one narrow type, no groups, fewer than 2^31 elements each, at multiples of 16 bytes.
 * Otherwise they return cudaErrorNotSupported. */
bool kernel_implicit_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y);
/* Returns the bytes of scratch that kernel_implicit_gemm wants for the sums. */
uint64_t kernel_implicit_gemm_sums_scratch_bytes(const DeviceTensor *y);
/* Computes y[n, h, w, o] = sum of x[n, h + i - p, w + j - p, c] * weight[o, i, j, c]: sums in float32, in an
 * order that shapes alone decide. sums: f32 [2, pitch of y], set to the sums of y and of its squares over all
 * pixels with the help of scratch; or NULL. */
cudaError_t kernel_implicit_gemm(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y,
                                 const DeviceTensor *sums, void *scratch, cudaStream_t stream);
/* Computes dx[n, h, w, c] = sum of dy[n, h + p - i, w + p - j, o] * weight[o, i, j, c], alike. */
cudaError_t kernel_implicit_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                               const DeviceTensor *dx, cudaStream_t stream);
/* Returns the bytes of scratch that kernel_implicit_gemm_backward_weight wants. */
uint64_t kernel_implicit_gemm_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x);
/* Computes dweight[o, i, j, c] = sum of dy[n, h, w, o] * x[n, h + i - p, w + j - p, c], alike. */
cudaError_t kernel_implicit_gemm_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                 const DeviceTensor *dweight, void *scratch,
                                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
