/* patch_step.h - steps of convolutions over few channels, and of their weight gradients, that cuDNN computes
 * as convolutions of kernel 1 over patches (kernels_convolution.h). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PATCH_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PATCH_STEP_H

#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/backend/cuda/lowering/cudnn_convolution.h"

/* Returns whether patches are worth a try; where plans are not timed, whether they are taken untried. */
bool patch_step_fits(const Step *step, bool timed);
/* Sets *convolution, the step's, to the one of kernel 1; x and weight have no address. Returns the patches
 * that it reads. */
Patches patch_step_convolution(const Step *step, Convolution *convolution);
/* Enqueues what makes the image of patches. */
FshStatus patch_step_image(const Step *step, const Patches *patches, const DeviceTensor *image,
                           cudaStream_t stream, FshError *error);
/* Sets *milliseconds_ret to what that takes, measured now or at an earlier start. The step's tensors have
 * addresses. */
FshStatus patch_step_milliseconds(CudaBackend *backend, const Step *step, const Patches *patches,
                                  const DeviceTensor *image, double *milliseconds_ret, FshError *error);

#endif
