/* group_step.h - steps of convolutions in groups: our own kernels for one channel a group, and the passes
 * that make few large groups of many small ones, which cuDNN then computes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_GROUP_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_GROUP_STEP_H

#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/lowering/lowering.h"

/* Enqueues the kernel of OP_CONV2D or one of its gradients; of OP_CONV2D_BACKWARD_WEIGHT on the step's
 * scratch memory. */
FshStatus depthwise_run(const Step *step, const Depthwise *depthwise, cudaStream_t stream, FshError *error);

/* Returns how many channels the groups of a convolution of x to y are joined to where they have fewer than
 * JOINED_CHANNELS and lie in 16 bits; 0: they stay as they are. */
int64_t groups_joined_channels(const Conv2d *conv, const DeviceTensor *x, const DeviceTensor *y);
/* Enqueues what makes `joined` of the weight that the step reads, of OP_CONV2D or OP_CONV2D_BACKWARD_DATA. */
FshStatus groups_join(const Step *step, const DeviceTensor *joined, cudaStream_t stream, FshError *error);
/* Enqueues what makes the gradient that OP_CONV2D_BACKWARD_WEIGHT writes of that of `joined`. */
FshStatus groups_split(const Step *step, const DeviceTensor *joined, cudaStream_t stream, FshError *error);

#endif
