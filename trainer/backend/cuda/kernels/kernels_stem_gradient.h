/* kernels_stem_gradient.h - the weight gradient of a stem whose norm and max pool are one node
 * (stem_gradient.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_STEM_GRADIENT_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_STEM_GRADIENT_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stem: bytes become numbers, (byte - mean[c]) / deviation[c], a convolution of 7 x 7, stride 2 and padding
 * 3 makes x of them, and a norm and a max pool of 3 x 3, stride 2 and padding 1 follow. */
typedef struct StemGradient {
    const DeviceTensor *pixels;          /* u8 [N, H, W, C at most 4] */
    const float *mean, *deviation;       /* [C], of the host */
    NormTensors norm;                    /* of the norm; x [N, h, w, 64], narrow */
    const DeviceTensor *g, *index;       /* [N, h', w', 64] of the pool: OP_NORM_POOL_BACKWARD */
    const DeviceTensor *dweight, *dbias; /* of the norm, f32 */
    const DeviceTensor *filter;          /* [64, 7, 7, C], narrow: is set to the gradient of the weight */
} StemGradient;

/* Returns whether there is a kernel for these shapes on the current device. */
bool kernel_stem_gradient_fits(const StemGradient *stem);
/* Returns the scratch bytes of kernel_stem_gradient. */
uint64_t kernel_stem_gradient_scratch_bytes(void);
/* Computes the gradient of the weight. It makes dx as kernel_norm_pool_backward does, bit for bit, and
 * multiplies it by the pixels; neither is in device memory. Sums have one order on all cards but Hopper, and
 * another on all of Hopper. Returns cudaErrorNotSupported where it does not fit. */
cudaError_t kernel_stem_gradient(const StemGradient *stem, void *scratch, cudaStream_t stream);
/* Computes it on any card as others than Hopper do that have shared memory for so many stages, 1 or 2: for
 * tests. */
cudaError_t kernel_stem_gradient_by_warps(const StemGradient *stem, int stages, void *scratch,
                                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
