/* norm_step.h - a batch norm's operands as its kernels take them (lowering_norm.c). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_NORM_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_NORM_STEP_H

#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/lowering/lowering.h"

NormActivation norm_step_activation(const Step *step);
/* Returns the operands of the backward node of a norm or gate. */
NormTensors norm_step_backward_tensors(const Step *step);
/* Returns the gradient that an OP_BATCH_NORM_BACKWARD or OP_CONV_NORM_BACKWARD makes, all parts, with dy as
 * the gradient of the norm's result; of an OP_NORM_PAIR_BACKWARD that of the first norm, dy being NULL. */
NormGradient norm_step_gradient(const Step *step, const DeviceTensor *dy);

#endif
