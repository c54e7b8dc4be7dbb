/* kernels_narrow.h - narrow copies of float32 weights (narrow.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NARROW_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NARROW_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight and its copy. Both are rows of channels: packed in the weight, `pitch` apart in the copy. */
typedef struct NarrowCopy {
    const float *weight;
    void *copy; /* bf16 or f16 */
    int64_t rows, channels, pitch;
    ElementType element;
} NarrowCopy;

/* Rounds all weights to their copies in one launch, and writes zeros from channels to pitch. Rows after
 * `rows` are left alone. copies: in device memory; count: at most 65535. */
cudaError_t kernel_narrow_copies(const NarrowCopy *copies, int64_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
