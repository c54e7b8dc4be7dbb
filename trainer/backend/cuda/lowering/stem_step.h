/* stem_step.h - a stem done by the kernel that reads bytes (kernels_stem.h), and what that takes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_STEM_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_STEM_STEP_H

#include "trainer/backend/cuda/lowering/cuda_program.h"

/* Returns whether the kernel can do a step: a convolution of bytes with its sums, without bias and
 * activation. */
bool stem_step_fits(const Step *step);
uint64_t stem_step_scratch_bytes(const Step *step);
FshStatus stem_step_run(const Step *step, void *scratch, cudaStream_t stream, FshError *error);
/* Sets *milliseconds_ret to the time of one run, as direct_step_milliseconds does. */
FshStatus stem_step_milliseconds(CudaBackend *backend, const Step *step, const char *pattern,
                                 double *milliseconds_ret, FshError *error);

#endif
