/* tensors.h - how the graph's tensors lie in device memory, and how they travel between there and the graph's
 * logical layout.
 *
 * Activations lie as they are logically, NHWC; f32 ones packed, narrow ones with their channels padded
 * (kernels.h). Convolution weights, their gradients and their momentum are OIHW logically and OHWI in memory,
 * which is what cuDNN calls KRSC and wants beside NHWC. The gradient of a weight whose convolution or product
 * computes in a narrow type is f32 to the graph and narrow in memory, padded in O and I like the weight's
 * narrow copy (state.h); those of grouped convolutions, of layers that scale their weights, of biases and of
 * norms are f32. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_TENSORS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_TENSORS_H

#include "trainer/backend/cuda/device/device.h"
#include "trainer/backend/cuda/kernels/kernels.h"

/* Tensors begin at multiples of this: any vector access and any library is content. */
enum { TENSOR_ALIGNMENT_BYTES = 256 };

/* Returns how numbers of this type are stored. */
ElementType element_of_type(DataType type);
/* Describes a tensor in device memory: everything but the address. */
DeviceTensor device_tensor_describe(const Graph *graph, TensorId id);
/* Describes a narrow copy of an f32 weight: [O, h, w, I] or [O, I], padded in O and I, or a bias [O]. */
DeviceTensor device_tensor_narrow(const DeviceTensor *weight, ElementType element);
/* Describes a tensor of this type whose channels have no padding. */
DeviceTensor device_tensor_loose(ElementType element, int64_t outermost, int64_t height, int64_t width,
                                 int64_t channels);
uint64_t device_tensor_bytes(const DeviceTensor *tensor);
/* Returns device_tensor_bytes, rounded up to TENSOR_ALIGNMENT_BYTES. */
uint64_t device_tensor_room_bytes(const DeviceTensor *tensor);

/* Copy between logical layout and device memory, in stream order; both return when the copy is done.
 * FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
/* Uploads values of memory's type. Padding becomes 0. */
FshStatus device_tensor_upload(const DeviceTensor *tensor, const void *values, cudaStream_t stream,
                               FshError *error);
/* Downloads values of a type: the graph's for this tensor, which is memory's, or f32 where a gradient lies
 * narrow. */
FshStatus device_tensor_download(const DeviceTensor *tensor, DataType type, void *values, cudaStream_t stream,
                                 FshError *error);

#endif
