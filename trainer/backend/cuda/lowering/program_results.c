#include "trainer/backend/cuda/lowering/program_results.h"

/* Returns whether the update is guarded by the loss. With a loss scale it looks at the gradient instead, and
 * goes on. */
static bool wants_guard(const Node *node)
{
    return node->op == OP_UPDATE && node->inputs[UPDATE_LOSS] != TENSOR_NONE && !node->as.update.loss_scaling;
}

FshStatus result_ring_make(ResultRing *ring, const Graph *graph, cudaStream_t work, FshError *error)
{
    FshStatus status = FSH_OK;
    *ring = (ResultRing){0};
    for (size_t n = 0; n < graph_node_count(graph) && !status; n++)
        if (wants_guard(graph_node(graph, (NodeId)n)) && !ring->guard)
            status = cuda_memory_new(&ring->guard, sizeof(LossGuard), "the guard of the update", error);
    if (!status && ring->guard)
        status = CUDA_TRY(cudaMemsetAsync(ring->guard, 0, sizeof(LossGuard), work), error);
    return status;
}

/* Frees all but the guard, whose address stands in the recorded graph. */
static void free_slots(ResultRing *ring)
{
    if (ring->stream) {
        (void)cudaStreamSynchronize(ring->stream);
        (void)cudaStreamDestroy(ring->stream);
    }
    for (int i = 0; i < PROGRAM_DEPTH_MAX; i++) {
        if (ring->gathered[i])
            (void)cudaEventDestroy(ring->gathered[i]);
        if (ring->landed[i])
            (void)cudaEventDestroy(ring->landed[i]);
    }
    cuda_memory_free(&ring->device);
    cuda_pinned_free(&ring->host);
    *ring = (ResultRing){.guard = ring->guard};
}

void result_ring_free(ResultRing *ring)
{
    free_slots(ring);
    cuda_memory_free(&ring->guard);
}

static FshStatus make_slots(ResultRing *ring, const ProgramResults *results, FshError *error)
{
    const uint64_t bytes = (uint64_t)results->depth * results->slot_floats * sizeof(float);
    FshStatus status = cuda_memory_new(&ring->device, bytes, "results", error);
    if (!status)
        status = cuda_pinned_new(&ring->host, bytes, "results", error);
    if (!status)
        status = CUDA_TRY(cudaStreamCreateWithFlags(&ring->stream, cudaStreamNonBlocking), error);
    for (size_t i = 0; i < results->depth && !status; i++) {
        status = CUDA_TRY(cudaEventCreateWithFlags(&ring->gathered[i], cudaEventDisableTiming), error);
        if (!status) /* who waits for it sleeps: loader threads want the processor */
            status = CUDA_TRY(
                cudaEventCreateWithFlags(&ring->landed[i], cudaEventDisableTiming | cudaEventBlockingSync),
                error);
    }
    return status;
}

static FshStatus arm_guard(const ResultRing *ring, bool armed, cudaStream_t work, FshError *error)
{
    const LossGuard guard = {.armed = armed};
    FshStatus status =
        CUDA_TRY(cudaMemcpyAsync(ring->guard, &guard, sizeof guard, cudaMemcpyHostToDevice, work), error);
    return status ? status : CUDA_TRY(cudaStreamSynchronize(work), error); /* guard is on our stack */
}

FshStatus result_ring_set(ResultRing *ring, const Program *program, const DeviceTensor *tensors,
                          cudaStream_t work, FshError *error)
{
    const ProgramResults *results = &program->results;
    FshStatus status = CUDA_TRY(cudaStreamSynchronize(work), error);
    free_slots(ring);
    if (!status && ring->guard)
        status = arm_guard(ring, results->count > 0 && results->depth > 1, work, error);
    if (status || results->count == 0)
        return status;
    ring->sources.tensor_count = (int)results->count;
    for (size_t i = 0; i < results->count; i++) {
        const DeviceTensor *tensor = &tensors[results->tensors[i]];
        ring->sources.from[i] = tensor->data;
        ring->sources.first[i] = (int64_t)results->first_float[i];
        ring->sources.count[i] = device_tensor_count(tensor);
    }
    status = make_slots(ring, results, error);
    if (status)
        free_slots(ring);
    return status;
}

FshStatus result_ring_guard(const ResultRing *ring, const Node *node, const DeviceTensor *tensors,
                            cudaStream_t work, FshError *error)
{
    if (!ring->guard || !wants_guard(node))
        return FSH_OK;
    return CUDA_TRY(kernel_guard_loss(ring->guard, tensors[node->inputs[UPDATE_LOSS]].data, work), error);
}

FshStatus result_ring_send(ResultRing *ring, const Program *program, cudaStream_t work, FshError *error)
{
    const ProgramResults *results = &program->results;
    if (!ring->stream)
        return FSH_OK;
    const size_t slot = (size_t)(results->run_count % results->depth), first = slot * results->slot_floats;
    float *device = (float *)ring->device + first, *host = (float *)ring->host + first;
    FshStatus status = CUDA_TRY(cudaStreamWaitEvent(work, ring->landed[slot], 0), error);
    if (!status)
        status = CUDA_TRY(kernel_gather_results(&ring->sources, device, work), error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(ring->gathered[slot], work), error);
    if (!status)
        status = CUDA_TRY(cudaStreamWaitEvent(ring->stream, ring->gathered[slot], 0), error);
    if (!status)
        status = CUDA_TRY(cudaMemcpyAsync(host, device, results->slot_floats * sizeof *host,
                                          cudaMemcpyDeviceToHost, ring->stream),
                          error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(ring->landed[slot], ring->stream), error);
    return status ? fsh_error_prepend(error, "cuda: results") : FSH_OK;
}

FshStatus result_ring_collect(const ResultRing *ring, const Program *program, size_t slot,
                              const float **values, FshError *error)
{
    *values = (const float *)ring->host + slot * program->results.slot_floats;
    FshStatus status = CUDA_TRY(cudaEventSynchronize(ring->landed[slot]), error);
    return status ? fsh_error_prepend(error, "cuda: a run") : FSH_OK;
}
