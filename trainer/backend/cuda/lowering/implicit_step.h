/* implicit_step.h - a step done by the kernels of 3 x 3 convolutions (kernels_implicit_gemm.h), and what that
 * takes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_IMPLICIT_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_IMPLICIT_STEP_H

#include "trainer/backend/cuda/lowering/cuda_program.h"

/* Returns whether the kernels can do a step: a convolution with its sums, without bias and activation, or one
 * of its gradients without the bias gradient. */
bool implicit_step_fits(const Step *step);
uint64_t implicit_step_scratch_bytes(const Step *step);
FshStatus implicit_step_run(const Step *step, void *scratch, cudaStream_t stream, FshError *error);
/* Sets *milliseconds_ret to the time of one run, as direct_step_milliseconds does. */
FshStatus implicit_step_milliseconds(CudaBackend *backend, const Step *step, const char *pattern,
                                     double *milliseconds_ret, FshError *error);

#endif
