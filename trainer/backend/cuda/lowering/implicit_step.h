/* implicit_step.h - a step done by the kernels of 3 x 3 convolutions, and what that takes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_IMPLICIT_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_IMPLICIT_STEP_H

#include "trainer/backend/cuda/lowering/cuda_program.h"

/* IMPLICIT_TILES: a product over each tile of an image (kernels_implicit_gemm.h); IMPLICIT_PIXELS: over the
 * images, for each pixel (kernels_pixel_gemm.h). */
typedef enum ImplicitKernel { IMPLICIT_TILES, IMPLICIT_PIXELS, IMPLICIT_KERNELS } ImplicitKernel;

/* Returns whether the kernel can do a step: a convolution with its sums, without bias and activation, or one
 * of its gradients without the bias gradient. */
bool implicit_step_fits(const Step *step, ImplicitKernel kernel);
uint64_t implicit_step_scratch_bytes(const Step *step, ImplicitKernel kernel);
FshStatus implicit_step_run(const Step *step, ImplicitKernel kernel, void *scratch, cudaStream_t stream,
                            FshError *error);
/* Sets *milliseconds_ret to the time of one run, as direct_step_milliseconds does. */
FshStatus implicit_step_milliseconds(CudaBackend *backend, const Step *step, ImplicitKernel kernel,
                                     const char *pattern, double *milliseconds_ret, FshError *error);

#endif
