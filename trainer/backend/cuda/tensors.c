#include "trainer/backend/cuda/tensors.h"

#include <stdlib.h>
#include <string.h>

static const ElementType element_of[] = {[DATA_F32] = ELEMENT_F32,
                                         [DATA_U8] = ELEMENT_U8,
                                         [DATA_I64] = ELEMENT_I64,
                                         [DATA_BF16] = ELEMENT_BF16,
                                         [DATA_F16] = ELEMENT_F16};
static const size_t element_bytes[ELEMENT_TYPE_COUNT] = {
    [ELEMENT_F32] = 4, [ELEMENT_U8] = 1, [ELEMENT_I64] = 8, [ELEMENT_BF16] = 2, [ELEMENT_F16] = 2};

/* Parameters, and what is shaped like them. A gradient that is a sum of two is an activation to the graph;
 * `of` tells. */
static bool is_weight(const Graph *graph, const Tensor *tensor)
{
    return tensor->role == TENSOR_PARAMETER ||
           (tensor->of != TENSOR_NONE && graph_tensor(graph, tensor->of)->role == TENSOR_PARAMETER);
}

DeviceTensor device_tensor_describe(const Graph *graph, TensorId id)
{
    const Tensor *tensor = graph_tensor(graph, id);
    DeviceTensor described = {.element = element_of[tensor->type], .rank = tensor->rank};
    memcpy(described.shape, tensor->shape, (size_t)tensor->rank * sizeof tensor->shape[0]);
    if (tensor->rank == 4 && is_weight(graph, tensor)) {
        described.is_filter = true;
        described.shape[1] = tensor->shape[2];
        described.shape[2] = tensor->shape[3];
        described.shape[3] = tensor->shape[1];
    }
    described.pitch = device_tensor_channels(&described);
    described.rows = device_tensor_rows(&described);
    if (element_is_narrow(described.element))
        described.pitch = (described.pitch + PADDED_CHANNELS - 1) / PADDED_CHANNELS * PADDED_CHANNELS;
    return described;
}

uint64_t device_tensor_bytes(const DeviceTensor *tensor)
{
    return (uint64_t)device_tensor_stored(tensor) * element_bytes[tensor->element];
}

uint64_t device_tensor_room_bytes(const DeviceTensor *tensor)
{
    const uint64_t mask = TENSOR_ALIGNMENT_BYTES - 1;
    return (device_tensor_bytes(tensor) + mask) & ~mask;
}

/* A filter's OIHW values to OHWI ones, or back. */
static void permute_filter(const DeviceTensor *filter, const float *from, float *to, bool to_memory)
{
    const int64_t O = filter->shape[0], H = filter->shape[1], W = filter->shape[2], I = filter->shape[3];
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++)
            for (int64_t h = 0; h < H; h++)
                for (int64_t w = 0; w < W; w++) {
                    const int64_t logical = ((o * I + i) * H + h) * W + w,
                                  memory = ((o * H + h) * W + w) * I + i;
                    if (to_memory)
                        to[memory] = from[logical];
                    else
                        to[logical] = from[memory];
                }
}

static FshStatus copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream,
                      FshError *error)
{
    FshStatus status = CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, stream), error);
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    return status;
}

FshStatus device_tensor_upload(const DeviceTensor *tensor, const void *values, cudaStream_t stream,
                               FshError *error)
{
    const size_t bytes = device_tensor_bytes(tensor);
    if (!tensor->is_filter)
        return copy(tensor->data, values, bytes, cudaMemcpyHostToDevice, stream, error);
    float *permuted = malloc(bytes);
    if (!permuted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu bytes of weights", bytes);
    permute_filter(tensor, values, permuted, true);
    FshStatus status = copy(tensor->data, permuted, bytes, cudaMemcpyHostToDevice, stream, error);
    free(permuted);
    return status;
}

FshStatus device_tensor_download(const DeviceTensor *tensor, void *values, cudaStream_t stream,
                                 FshError *error)
{
    const size_t bytes = device_tensor_bytes(tensor);
    if (!tensor->is_filter)
        return copy(values, tensor->data, bytes, cudaMemcpyDeviceToHost, stream, error);
    float *permuted = malloc(bytes);
    if (!permuted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu bytes of weights", bytes);
    FshStatus status = copy(permuted, tensor->data, bytes, cudaMemcpyDeviceToHost, stream, error);
    if (!status)
        permute_filter(tensor, permuted, values, false);
    free(permuted);
    return status;
}
