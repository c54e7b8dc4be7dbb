/* direct_step.h - a step done by the kernels for few channels (kernels_direct.h), and what that takes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DIRECT_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_DIRECT_STEP_H

#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"

/* Returns whether the kernels can do a step, and describes it in *direct: a convolution with its bias,
 * activation and sums, or one of its gradients without the bias gradient. */
bool direct_step_fits(const Step *step, Direct *direct);
uint64_t direct_step_scratch_bytes(const Step *step, const Direct *direct);
FshStatus direct_step_run(const Step *step, const Direct *direct, void *scratch, cudaStream_t stream,
                          FshError *error);
/* Sets *milliseconds_ret to the time of one run, measured now or at an earlier start (the plan cache of the
 * backend keeps it, under the pattern of cuDNN's plan for the same step). The tensors of the step have
 * addresses; its result is overwritten. */
FshStatus direct_step_milliseconds(CudaBackend *backend, const Step *step, const Direct *direct,
                                   const char *pattern, double *milliseconds_ret, FshError *error);

#endif
