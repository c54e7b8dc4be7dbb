/* kernels_stem.h - a stem on Hopper: a convolution of 7 x 7, stride 2 and padding 3 to 64 channels, straight
 * from bytes (stem_forward.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_STEM_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_STEM_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stem's operands: bytes become numbers, (byte - mean[c]) / deviation[c], rounded to y's type, and y is
 * their convolution with the weight. */
typedef struct Stem {
    const DeviceTensor *pixels;    /* u8 [N, H, W, C at most 4] */
    const float *mean, *deviation; /* [C], of the host */
    const DeviceTensor *weight;    /* [64, 7, 7, C], narrow, of y's type */
    const DeviceTensor *y;         /* [N, h, w, 64], narrow */
    const DeviceTensor *sums; /* f32 [2, 64]: is set to the sums of y and of its squares; NULL: not wanted */
} Stem;

/* Returns whether the card in use has a kernel for these shapes. */
bool kernel_stem_fits(const Stem *stem);
/* Returns the bytes of scratch that kernel_stem wants for the sums. */
uint64_t kernel_stem_scratch_bytes(void);
/* Computes y, and the sums of it as written: of blocks in float32, of all in float64, in an order that shapes
 * alone decide. Returns cudaErrorNotSupported
 * where it does not fit. */
cudaError_t kernel_stem(const Stem *stem, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
