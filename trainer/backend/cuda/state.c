#include "trainer/backend/cuda/state.h"

#include <stdlib.h>
#include <string.h>

typedef struct CudaState {
    State base;
    void *memory;
    /* [entry_count] the one list of what is in memory; names are the graph's */
    struct StateEntry {
        const char *name;
        DeviceTensor tensor;
    } * entries;
    size_t entry_count;
} CudaState;

static cudaStream_t stream_of(const State *state)
{
    return ((const CudaBackend *)state->backend)->stream;
}

bool cuda_state_holds(TensorRole role)
{
    return role == TENSOR_PARAMETER || role == TENSOR_BUFFER || role == TENSOR_OPTIMIZER;
}

FshStatus cuda_state_new(State **state, Backend *backend, const Graph *graph, FshError *error)
{
    const size_t tensor_total = graph_tensor_count(graph);
    uint64_t bytes = 0;
    CudaState *cuda = calloc(1, sizeof *cuda);
    if (cuda)
        cuda->entries = calloc(tensor_total, sizeof *cuda->entries);
    if (!cuda || !cuda->entries) {
        cuda_state_free(cuda ? &cuda->base : NULL);
        return fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for a list of %zu tensors",
                             tensor_total);
    }
    for (size_t t = 0; t < tensor_total; t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (!cuda_state_holds(tensor->role))
            continue;
        struct StateEntry *entry = &cuda->entries[cuda->entry_count++];
        *entry = (struct StateEntry){tensor->name, device_tensor_describe(graph, (TensorId)t)};
        bytes += device_tensor_room_bytes(&entry->tensor);
    }
    FshStatus status =
        cuda_memory_new(&cuda->memory, bytes, "parameters, buffers and optimizer state", error);
    if (status) {
        cuda_state_free(&cuda->base);
        return status;
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < cuda->entry_count; i++) {
        cuda->entries[i].tensor.data = (char *)cuda->memory + offset;
        offset += device_tensor_room_bytes(&cuda->entries[i].tensor);
    }
    cuda->base.backend = backend;
    cuda->base.graph = graph;
    *state = &cuda->base;
    return FSH_OK;
}

void cuda_state_free(State *state)
{
    CudaState *cuda = (CudaState *)state;
    if (!cuda)
        return;
    if (cuda->base.backend)
        (void)cudaStreamSynchronize(stream_of(state));
    cuda_memory_free(&cuda->memory);
    free(cuda->entries);
    free(cuda);
}

const DeviceTensor *cuda_state_tensor(const State *state, const char *name)
{
    const CudaState *cuda = (const CudaState *)state;
    for (size_t i = 0; i < cuda->entry_count; i++)
        if (strcmp(cuda->entries[i].name, name) == 0)
            return &cuda->entries[i].tensor;
    return NULL;
}

FshStatus cuda_state_read(State *state, const char *name, float *values, size_t count, FshError *error)
{
    (void)count; /* held against the tensor by state_read, which knows that it exists */
    const DeviceTensor *tensor = cuda_state_tensor(state, name);
    FshStatus status = device_tensor_download(tensor, values, stream_of(state), error);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}

FshStatus cuda_state_write(State *state, const char *name, const float *values, size_t count, FshError *error)
{
    (void)count;
    const DeviceTensor *tensor = cuda_state_tensor(state, name);
    FshStatus status = device_tensor_upload(tensor, values, stream_of(state), error);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}
