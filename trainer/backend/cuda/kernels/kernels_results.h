/* kernels_results.h - what a run leaves for the host (results.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_RESULTS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_RESULTS_H

#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By value in the launch: packed f32 values that lie in several places. */
typedef struct ResultSources {
    const float *from[PROGRAM_RESULTS_MAX];
    int64_t first[PROGRAM_RESULTS_MAX], count[PROGRAM_RESULTS_MAX]; /* where they go, how many */
    int tensor_count;
} ResultSources;
/* slot[first[t] + i] = from[t][i] */
cudaError_t kernel_gather_results(const ResultSources *sources, float *slot, cudaStream_t stream);

/* In device memory; zeroed, it does nothing. */
typedef struct LossGuard {
    int32_t armed, tripped;
} LossGuard;
/* Armed, it remembers a loss [1] that was no number, and makes each later one NaN: an update that reads it
 * changes nothing. */
cudaError_t kernel_guard_loss(LossGuard *guard, float *loss, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
