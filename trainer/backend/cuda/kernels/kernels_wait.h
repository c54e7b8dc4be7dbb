/* kernels_wait.h - a pause on the device (wait.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_WAIT_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_WAIT_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the stream pause this long, so that what is enqueued after it meanwhile runs without gaps. */
cudaError_t kernel_wait(uint64_t nanoseconds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
