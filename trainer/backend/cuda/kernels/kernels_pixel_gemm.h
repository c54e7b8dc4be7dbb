/* kernels_pixel_gemm.h - convolutions of 3 x 3 at stride 1 of many small images, as a product for each pixel
 * (pixel_gemm.cu, pixel_gemm_weight.cu), on Hopper: its rows are the images, so a tap that meets the zeros
 * around them is left out, where other kernels multiply by zeros. That is 36 % of a data gradient from 8 x 8
 * to 10 x 10, 25 % of a convolution of 5 x 5 with a pixel of padding, 13 % of one of 10 x 10. Rules:
 * kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXEL_GEMM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_PIXEL_GEMM_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PIXEL_GEMM_PIXELS_MAX = 256 };

/* Returns whether kernel_pixel_gemm accepts these tensors: those of kernel_implicit_gemm, where y has at most
 * PIXEL_GEMM_PIXELS_MAX pixels an image. Otherwise it returns cudaErrorNotSupported. */
bool kernel_pixel_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y);
/* The same for kernel_pixel_gemm_backward_data, where dx is what is written. */
bool kernel_pixel_gemm_backward_fits(const DeviceTensor *dy, const DeviceTensor *weight,
                                     const DeviceTensor *dx);
/* Returns the bytes of scratch that kernel_pixel_gemm wants for the sums. */
uint64_t kernel_pixel_gemm_sums_scratch_bytes(const DeviceTensor *y);
/* Compute what kernel_implicit_gemm and its gradients do (kernels_implicit_gemm.h). */
cudaError_t kernel_pixel_gemm(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y,
                              const DeviceTensor *sums, void *scratch, cudaStream_t stream);
cudaError_t kernel_pixel_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                            const DeviceTensor *dx, cudaStream_t stream);
/* Returns whether kernel_pixel_gemm_backward_weight accepts these tensors: those of the kernel of tiles, with
 * multiples of 256 channels on both sides, where a 66th of all steps, each of 64 images of a pixel of a tap
 * and of 256 by 256 channels, is no more than the steps of any one tap. Otherwise it returns
 * cudaErrorNotSupported. */
bool kernel_pixel_gemm_weight_fits(const DeviceTensor *dy, const DeviceTensor *x,
                                   const DeviceTensor *dweight);
/* Returns the bytes of scratch that it wants, of any tensors. */
uint64_t kernel_pixel_gemm_weight_scratch_bytes(void);
cudaError_t kernel_pixel_gemm_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                              const DeviceTensor *dweight, void *scratch,
                                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
