#include "trainer/backend/cuda/lowering/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/backend/cuda/kernels/kernels_narrow.h"
#include "trainer/backend/memory_advice.h"

/* What a State takes is the same for any batch. */
static const char no_batch_helps[] =
    "no batch size helps: use a smaller network, or an optimizer that keeps less (sgd)";

/* A narrow copy of a weight. Copies form a list, since their addresses are given out. */
typedef struct NarrowWeight {
    DeviceTensor tensor; /* owns data */
    const struct StateEntry *weight;
    struct NarrowWeight *next; /* made later */
} NarrowWeight;

typedef struct CudaState {
    State base;
    void *memory;
    /* [entry_count] the one list of what is in memory; names are the graph's */
    struct StateEntry {
        const char *name;
        DeviceTensor tensor;
    } * entries;
    size_t entry_count;
    NarrowWeight *narrow; /* in the order in which they were made */
    size_t narrow_count;
    size_t narrow_right;       /* that many of them, from the first on, are right */
    void *narrow_table;        /* device memory, NarrowCopy [narrow_table_count] */
    size_t narrow_table_count; /* narrow_count, or older */
    int64_t runs;              /* since the last update; -1: unknown */
    uint64_t memory_bytes;
    /* Of a copy: its reader's stream, which waits until the copy was taken, and the GPU; else NULL. */
    cudaStream_t reader;
    cudaEvent_t taken;
    int device;
} CudaState;

static cudaStream_t stream_of(const State *state)
{
    return ((const CudaBackend *)state->backend)->stream;
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
        if (!state_holds(tensor->role))
            continue;
        struct StateEntry *entry = &cuda->entries[cuda->entry_count++];
        *entry = (struct StateEntry){tensor->name, device_tensor_describe(graph, (TensorId)t)};
        bytes += device_tensor_room_bytes(&entry->tensor);
    }
    FshStatus status =
        cuda_memory_new(&cuda->memory, bytes, "parameters, buffers and optimizer state", error);
    if (status == FSH_ERR_MEMORY)
        (void)memory_advise(no_batch_helps, error);
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
    cuda->runs = -1;
    cuda->memory_bytes = bytes;
    /* vectors of channels are read up to the pitch of narrow images: what lies between tensors must be 0 */
    status =
        bytes ? CUDA_TRY(cudaMemsetAsync(cuda->memory, 0, bytes, stream_of(&cuda->base)), error) : FSH_OK;
    if (status) {
        cuda_state_free(&cuda->base);
        return status;
    }
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
    while (cuda->narrow) {
        NarrowWeight *first = cuda->narrow;
        cuda->narrow = first->next;
        cuda_memory_free(&first->tensor.data);
        free(first);
    }
    if (cuda->reader) {
        (void)cudaStreamSynchronize(cuda->reader);
        (void)cudaStreamDestroy(cuda->reader);
    }
    if (cuda->taken)
        (void)cudaEventDestroy(cuda->taken);
    cuda_memory_free(&cuda->narrow_table);
    cuda_memory_free(&cuda->memory);
    free(cuda->entries);
    free(cuda);
}

void cuda_state_memory(const State *state, MemoryUse *use)
{
    const CudaState *cuda = (const CudaState *)state;
    for (size_t i = 0; i < cuda->entry_count; i++)
        use->bytes[MEMORY_WEIGHTS] += device_tensor_room_bytes(&cuda->entries[i].tensor);
    for (const NarrowWeight *narrow = cuda->narrow; narrow; narrow = narrow->next)
        use->bytes[MEMORY_COPIES] += device_tensor_room_bytes(&narrow->tensor);
}

static const struct StateEntry *find_entry(const State *state, const char *name)
{
    const CudaState *cuda = (const CudaState *)state;
    for (size_t i = 0; i < cuda->entry_count; i++)
        if (strcmp(cuda->entries[i].name, name) == 0)
            return &cuda->entries[i];
    return NULL;
}

const DeviceTensor *cuda_state_tensor(const State *state, const char *name)
{
    const struct StateEntry *entry = find_entry(state, name);
    return entry ? &entry->tensor : NULL;
}

FshStatus cuda_state_read(State *state, const char *name, float *values, size_t count, FshError *error)
{
    (void)count; /* held against the tensor by state_read, which knows that it exists */
    const CudaState *cuda = (const CudaState *)state;
    const DeviceTensor *tensor = cuda_state_tensor(state, name);
    FshStatus status = FSH_OK;
    if (cuda->reader) /* perhaps on another thread, which begins with the first GPU */
        status = CUDA_TRY(cudaSetDevice(cuda->device), error);
    if (!status)
        status = device_tensor_download(tensor, DATA_F32, values,
                                        cuda->reader ? cuda->reader : stream_of(state), error);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}

FshStatus cuda_state_write(State *state, const char *name, const float *values, size_t count, FshError *error)
{
    (void)count;
    const DeviceTensor *tensor = cuda_state_tensor(state, name);
    CudaState *cuda = (CudaState *)state;
    cuda->narrow_right = 0;
    cuda->runs = -1;
    FshStatus status = device_tensor_upload(tensor, values, stream_of(state), error);
    return status ? fsh_error_prepend(error, "%s", name) : FSH_OK;
}

/* The copy lies in device memory: taking it costs training a copy there, and its reader alone waits for the
 * bus. */
FshStatus cuda_state_copy_new(State **copy_ret, State *state, FshError *error)
{
    State *base = NULL;
    FshStatus status = cuda_state_new(&base, state->backend, state->graph, error);
    CudaState *copy = (CudaState *)base;
    if (!status)
        status = CUDA_TRY(cudaGetDevice(&copy->device), error);
    if (!status)
        status = CUDA_TRY(cudaStreamCreateWithFlags(&copy->reader, cudaStreamNonBlocking), error);
    if (!status)
        status = CUDA_TRY(cudaEventCreateWithFlags(&copy->taken, cudaEventDisableTiming), error);
    if (status)
        cuda_state_free(base);
    else
        *copy_ret = base;
    return status;
}

FshStatus cuda_state_copy_take(State *copy, State *state, FshError *error)
{
    const CudaState *from = (const CudaState *)state;
    CudaState *to = (CudaState *)copy;
    cudaStream_t stream = stream_of(state);
    FshStatus status = CUDA_TRY(
        cudaMemcpyAsync(to->memory, from->memory, from->memory_bytes, cudaMemcpyDeviceToDevice, stream),
        error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(to->taken, stream), error);
    return status ? status : CUDA_TRY(cudaStreamWaitEvent(to->reader, to->taken, 0), error);
}

FshStatus cuda_state_runs(State *state, int64_t *runs_ret, FshError *error)
{
    CudaState *cuda = (CudaState *)state;
    float micro = 0;
    FshStatus status = cuda->runs < 0 ? cuda_state_read(state, "optimizer.micro", &micro, 1, error) : FSH_OK;
    if (!status && cuda->runs < 0)
        cuda->runs = (int64_t)fabsf(micro);
    *runs_ret = cuda->runs;
    return status;
}

void cuda_state_count_runs(State *state, int64_t runs)
{
    ((CudaState *)state)->runs = runs;
}

/* ---- narrow copies ---- */

static FshStatus make_narrow(CudaState *state, NarrowWeight *narrow, ElementType element, FshError *error)
{
    narrow->tensor = device_tensor_narrow(&narrow->weight->tensor, element);
    const uint64_t bytes = device_tensor_room_bytes(&narrow->tensor);
    FshStatus status = cuda_memory_new(&narrow->tensor.data, bytes, "a copy of weights in 16 bits", error);
    if (status == FSH_ERR_MEMORY)
        (void)memory_advise(no_batch_helps, error);
    if (!status) /* rows of padding stay as they are now */
        status = CUDA_TRY(cudaMemsetAsync(narrow->tensor.data, 0, bytes, stream_of(&state->base)), error);
    return status;
}

const DeviceTensor *cuda_state_narrow(State *state, const char *name, ElementType element, FshError *error)
{
    CudaState *cuda = (CudaState *)state;
    const struct StateEntry *weight = find_entry(state, name);
    NarrowWeight **end = &cuda->narrow;
    if (!weight) {
        (void)fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: the state's network has no such tensor", name);
        return NULL;
    }
    for (; *end; end = &(*end)->next)
        if ((*end)->weight == weight && (*end)->tensor.element == element)
            return &(*end)->tensor;
    NarrowWeight *narrow = calloc(1, sizeof *narrow);
    if (!narrow) {
        (void)fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for a narrow copy", name);
        return NULL;
    }
    narrow->weight = weight;
    if (make_narrow(cuda, narrow, element, error)) {
        (void)fsh_error_prepend(error, "%s", name);
        cuda_memory_free(&narrow->tensor.data);
        free(narrow);
        return NULL;
    }
    *end = narrow;
    cuda->narrow_count++;
    return &narrow->tensor;
}

int cuda_state_narrow_copies(const State *state, const char *name,
                             const DeviceTensor *copies[NARROW_COPIES_MAX])
{
    int count = 0;
    for (const NarrowWeight *narrow = ((const CudaState *)state)->narrow; narrow; narrow = narrow->next)
        if (strcmp(narrow->weight->name, name) == 0)
            copies[count++] = &narrow->tensor;
    return count;
}

size_t cuda_state_narrow_count(const State *state)
{
    return ((const CudaState *)state)->narrow_count;
}

void cuda_state_updated(State *state, size_t known)
{
    CudaState *cuda = (CudaState *)state;
    if (cuda->narrow_right > known)
        cuda->narrow_right = known;
}

/* Makes the table of all copies in device memory. */
static FshStatus list_narrow(CudaState *state, FshError *error)
{
    const size_t bytes = state->narrow_count * sizeof(NarrowCopy);
    cudaStream_t stream = stream_of(&state->base);
    NarrowCopy *copies = calloc(state->narrow_count, sizeof *copies), *copy = copies;
    if (!copies)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a list of %zu weights",
                             state->narrow_count);
    for (const NarrowWeight *narrow = state->narrow; narrow; narrow = narrow->next)
        *copy++ = (NarrowCopy){.weight = narrow->weight->tensor.data,
                               .copy = narrow->tensor.data,
                               .rows = device_tensor_rows(&narrow->tensor),
                               .channels = device_tensor_channels(&narrow->tensor),
                               .pitch = narrow->tensor.pitch,
                               .element = narrow->tensor.element};
    /* a launch may read the old one still */
    FshStatus status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    if (!status) {
        cuda_memory_free(&state->narrow_table);
        state->narrow_table_count = 0;
        status = cuda_memory_new(&state->narrow_table, bytes, "the table of narrow weights", error);
    }
    if (!status)
        status = CUDA_TRY(cudaMemcpyAsync(state->narrow_table, copies, bytes, cudaMemcpyHostToDevice, stream),
                          error);
    if (!status)
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    if (!status)
        state->narrow_table_count = state->narrow_count;
    free(copies);
    return status;
}

FshStatus cuda_state_refresh(State *state, FshError *error)
{
    CudaState *cuda = (CudaState *)state;
    FshStatus status = FSH_OK;
    if (cuda->narrow_right == cuda->narrow_count)
        return FSH_OK;
    if (cuda->narrow_table_count != cuda->narrow_count)
        status = list_narrow(cuda, error);
    if (!status)
        status = CUDA_TRY(
            kernel_narrow_copies(cuda->narrow_table, (int64_t)cuda->narrow_count, stream_of(state)), error);
    if (!status)
        cuda->narrow_right = cuda->narrow_count;
    return status ? fsh_error_prepend(error, "narrow copies of weights") : FSH_OK;
}
