/* kernels_results.h - what a run tells the host (results.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_RESULTS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_RESULTS_H

#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Packed f32 values in several places. Passed by value in the launch. */
typedef struct ResultSources {
    const float *from[PROGRAM_RESULTS_MAX];
    int64_t first[PROGRAM_RESULTS_MAX], count[PROGRAM_RESULTS_MAX]; /* [tensor]: where its values go in the
                                                                     * slot, and how many they are */
    int tensor_count;
} ResultSources;
/* Copies all results to the slot: slot[first[t] + i] = from[t][i]. */
cudaError_t kernel_gather_results(const ResultSources *sources, float *slot, cudaStream_t stream);

/* State of the guard, in device memory; zeroed it does nothing. */
typedef struct LossGuard {
    int32_t armed, tripped;
} LossGuard;
/* Remembers a loss [1] that is not finite, if the guard is armed, and sets each later one to NaN, so that an
 * update that reads it changes nothing. */
cudaError_t kernel_guard_loss(LossGuard *guard, float *loss, cudaStream_t stream);

/* How many exchanges with other GPUs a GPU has come to, and how many it has ended. */
typedef struct ExchangeCounts {
    uint64_t reached, passed;
} ExchangeCounts;
/* Counts one up in device memory, and tells the host, in pinned memory. */
cudaError_t kernel_count_exchange(uint64_t *count, volatile uint64_t *told, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
