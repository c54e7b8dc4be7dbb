/* kernels_loss.h - losses (loss.cu). Rules: kernels.h. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_LOSS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_LOSS_H

#include "trainer/backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch memory for kernel_softmax_cross_entropy. */
uint64_t kernel_softmax_cross_entropy_scratch_bytes(const DeviceTensor *logits);
/* loss [1] f32: the mean over samples whose label is not -1 of -sum target * log(probability), target = (1 -
 * smoothing) at the label plus smoothing / K everywhere; probabilities [N, K] f32. */
cudaError_t kernel_softmax_cross_entropy(const DeviceTensor *logits, const DeviceTensor *labels,
                                         float smoothing, const DeviceTensor *loss,
                                         const DeviceTensor *probabilities, void *scratch,
                                         cudaStream_t stream);
/* dlogits = dloss * (probabilities - target) / samples that count; 0 for the others. */
cudaError_t kernel_softmax_cross_entropy_backward(const DeviceTensor *dloss,
                                                  const DeviceTensor *probabilities,
                                                  const DeviceTensor *labels, float smoothing,
                                                  const DeviceTensor *dlogits, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
