/* kernels_norm_pair.h - two batch norms in a row, in 16 bits (norm_pair.cu). Rules: kernels.h.
 *
 * The first norm makes y of x and an addend, the second z of y. Both have statistics of the batch, of all its
 * rows, of one rank. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_PAIR_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_NORM_PAIR_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands of both norms. No signs. */
typedef struct NormPair {
    NormTensors first;         /* x [.., C] */
    NormTensors second;        /* its x is y, of the shape of the first's */
    NormActivation activation; /* of the second: OP_RELU or none; the first has none */
} NormPair;

/* Returns scratch bytes that are enough for both functions below, on a tensor of x's shape. */
uint64_t kernel_norm_pair_scratch_bytes(const DeviceTensor *x);

/* Computes mean and inverse_deviation of x, and y = norm(x) + addend, then those of y, and z =
 * activation(norm(y)); moves the running statistics of both. For small images it is one launch
 * (rows_pair.cuh). sums: of x, as kernel_batch_norm_apply_sums reads them, or NULL. addend: as in
 * kernel_batch_norm_apply. y and z are tensors of their own. cudaErrorNotSupported, and nothing is done, for
 * f32 and for other activations. */
cudaError_t kernel_norm_pair_forward(const NormPair *pair, const NormRunning *first_running,
                                     const NormRunning *second_running, const DeviceTensor *sums,
                                     const DeviceTensor *addend, const DeviceTensor *y, const DeviceTensor *z,
                                     void *scratch, cudaStream_t stream);

/* Computes the gradients of both, with dz the gradient of z: dweight and dbias of the second; g = dy + dy2,
 * where dy is the second's gradient of y; dweight, dbias and dx of the first. first has dy2, or NULL, as wide
 * as x or wider, g, dx, dweight, dbias and zero, as NormGradient says, and no more. dx may be x, dz, or a dy2
 * of as many channels; g may be dz or such a dy2. cudaErrorNotSupported as above. */
cudaError_t kernel_norm_pair_backward(const NormPair *pair, const DeviceTensor *dz, const NormGradient *first,
                                      const DeviceTensor *second_dweight, const DeviceTensor *second_dbias,
                                      void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
