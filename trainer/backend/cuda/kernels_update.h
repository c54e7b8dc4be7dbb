/* kernels_update.h - the update of the parameters (optimizer.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_UPDATE_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_UPDATE_H

#include "trainer/backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of a parameter with its gradient and momentum; SGD_PIECE elements at most. */
typedef struct SgdPiece {
    float *parameter, *momentum;
    const float *gradient;
    int32_t count;
    int32_t decays;
} SgdPiece;
enum { SGD_PIECE = 4096 };
typedef struct SgdConstants {
    float momentum, weight_decay;
    bool nesterov;
} SgdConstants;
/* What the update tells, f32 [1] each. */
typedef struct SgdResults {
    const DeviceTensor *gradient_norm, *updated; /* written: of all gradients together; 1 */
    const DeviceTensor *step;                    /* one more than before */
} SgdResults;
/* Bytes of scratch memory for kernel_sgd. */
uint64_t kernel_sgd_scratch_bytes(int64_t piece_count);
/* PyTorch's SGD over all pieces in one launch, and a small one for the results. pieces: in device memory. loss: NULL, or where
 * it is no number nothing is changed. */
cudaError_t kernel_sgd(const SgdPiece *pieces, int64_t piece_count, const SgdConstants *constants,
                       const DeviceTensor *learning_rate, const DeviceTensor *loss, const SgdResults *results,
                       void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
