#include "trainer/backend/cuda/lowering/program_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "trainer/backend/memory_advice.h"

/* Returns the number of classes that labels, or the values of masks, choose from; 0 for an input that is
 * neither. */
static int64_t classes_of(const Graph *graph, TensorId input)
{
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        if ((node->op == OP_SOFTMAX_CROSS_ENTROPY || node->op == OP_BINARY_CROSS_ENTROPY) &&
            (node->inputs[CLASS_LOSS_LABELS] == input || node->inputs[CLASS_LOSS_LABELS_MIXED] == input))
            return graph_tensor(graph, node->inputs[CLASS_LOSS_LOGITS])->shape[1];
        if (node->op == OP_MASK_LOSS && node->inputs[MASK_LOSS_MASK] == input)
            return graph_tensor(graph, node->inputs[MASK_LOSS_LOGITS])->shape[3];
    }
    return 0;
}

static FshStatus list_inputs(ProgramInputs *inputs, const Graph *graph, const DeviceTensor *tensors,
                             FshError *error)
{
    inputs->list = calloc(graph_tensor_count(graph) + 1, sizeof *inputs->list);
    if (!inputs->list)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for the list of inputs");
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        if (graph_tensor(graph, (TensorId)t)->role != TENSOR_INPUT)
            continue;
        inputs->list[inputs->count++] = (ProgramInput){.tensor = (TensorId)t,
                                                       .classes = classes_of(graph, (TensorId)t),
                                                       .offset_bytes = inputs->block_bytes,
                                                       .bytes = device_tensor_bytes(&tensors[t])};
        inputs->block_bytes += device_tensor_room_bytes(&tensors[t]);
    }
    return FSH_OK;
}

/* Makes an event on which a waiting thread sleeps: loader threads want the processor. */
static FshStatus event_new(cudaEvent_t *event, FshError *error)
{
    return CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync), error);
}

static FshStatus take_device(ProgramInputs *inputs, const Graph *graph, uint64_t held_bytes, FshError *error)
{
    const uint64_t bytes = inputs->block_bytes;
    FshStatus status = cuda_memory_new(&inputs->block, bytes, "inputs", error);
    if (!status)
        status = cuda_memory_new(&inputs->staging, bytes, "the next batch's inputs", error);
    if (status != FSH_ERR_MEMORY)
        return status;
    const BatchRoom room = {.use = memory_batch_use(graph),
                            .needed_bytes = held_bytes + 2 * bytes,
                            .held_bytes = held_bytes + (inputs->block ? bytes : 0),
                            .free_bytes = cuda_memory_left()};
    return memory_advise_batch(memory_batch_of(graph), &room, error);
}

static FshStatus take_pinned(ProgramInputs *inputs, const Graph *graph, FshError *error)
{
    const uint64_t bytes = inputs->block_bytes;
    FshStatus status = cuda_pinned_new(&inputs->pinned[0], bytes, "inputs", error);
    if (!status)
        status = cuda_pinned_new(&inputs->pinned[1], bytes, "the next batch's inputs", error);
    if (status != FSH_ERR_MEMORY)
        return status;
    const BatchRoom room = {.use = memory_batch_use(graph),
                            .needed_bytes = 2 * bytes,
                            .held_bytes = inputs->pinned[0] ? bytes : 0,
                            .free_bytes = cpu_memory_available()};
    return memory_advise_batch(memory_batch_of(graph), &room, error);
}

FshStatus program_inputs_make(ProgramInputs *inputs, const Graph *graph, DeviceTensor *tensors,
                              uint64_t held_bytes, FshError *error)
{
    *inputs = (ProgramInputs){0};
    FshStatus status = list_inputs(inputs, graph, tensors, error);
    if (status || inputs->count == 0)
        return status;
    status = take_device(inputs, graph, held_bytes, error);
    if (!status)
        status = take_pinned(inputs, graph, error);
    for (int i = 0; i < 2 && !status; i++)
        status = event_new(&inputs->copied[i], error);
    if (!status)
        status = event_new(&inputs->taken, error);
    if (!status)
        status = CUDA_TRY(cudaStreamCreateWithFlags(&inputs->stream, cudaStreamNonBlocking), error);
    for (size_t i = 0; i < inputs->count && !status; i++)
        tensors[inputs->list[i].tensor].data = (char *)inputs->block + inputs->list[i].offset_bytes;
    return status;
}

void program_inputs_free(ProgramInputs *inputs)
{
    enum { EVENTS = 3 };
    const cudaEvent_t events[EVENTS] = {inputs->copied[0], inputs->copied[1], inputs->taken};
    if (inputs->stream) {
        (void)cudaStreamSynchronize(inputs->stream);
        (void)cudaStreamDestroy(inputs->stream);
    }
    for (size_t i = 0; i < EVENTS; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    for (int i = 0; i < 2; i++)
        cuda_pinned_free(&inputs->pinned[i]);
    cuda_memory_free(&inputs->staging);
    cuda_memory_free(&inputs->block);
    free(inputs->list);
    *inputs = (ProgramInputs){0};
}

/* Checks labels here rather than on the device, which could tell only by stopping. */
static FshStatus check_labels(const int64_t *labels, size_t count, int64_t classes, FshError *error)
{
    for (size_t i = 0; i < count; i++)
        if (labels[i] < -1 || labels[i] >= classes)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld of sample %zu; there are %lld classes",
                                 (long long)labels[i], i, (long long)classes);
    return FSH_OK;
}

static FshStatus check_masks(const uint8_t *masks, size_t count, int64_t classes, size_t image_pixels,
                             FshError *error)
{
    for (size_t i = 0; i < count; i++)
        if (masks[i] >= classes && masks[i] != GRAPH_MASK_IGNORED)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "value %d in the mask of sample %zu; there are %lld classes", masks[i],
                                 i / image_pixels, (long long)classes);
    return FSH_OK;
}

FshStatus program_inputs_write(ProgramInputs *inputs, const Graph *graph, TensorId id, const void *values,
                               size_t bytes, FshError *error)
{
    ProgramInput *input = inputs->list;
    FshStatus status = FSH_OK;
    while (input->tensor != id) /* program_write has seen that it is one */
        input++;
    const Tensor *tensor = graph_tensor(graph, id);
    if (input->classes && tensor->type == DATA_U8)
        status = check_masks(values, bytes, input->classes, bytes / (size_t)tensor->shape[0], error);
    else if (input->classes)
        status = check_labels(values, bytes / sizeof(int64_t), input->classes, error);
    if (!status && !inputs->any_written)
        status = CUDA_TRY(cudaEventSynchronize(inputs->copied[inputs->next]), error);
    if (status)
        return fsh_error_prepend(error, "%s", graph_tensor(graph, id)->name);
    memcpy((char *)inputs->pinned[inputs->next] + input->offset_bytes, values, bytes);
    input->written = inputs->any_written = true;
    return FSH_OK;
}

/* Copies inputs first..end-1, with the gaps between them. */
static FshStatus copy_range(const ProgramInputs *inputs, size_t first, size_t end, void *to, const void *from,
                            enum cudaMemcpyKind kind, cudaStream_t stream, FshError *error)
{
    const ProgramInput *last = &inputs->list[end - 1];
    const uint64_t begin = inputs->list[first].offset_bytes;
    return CUDA_TRY(cudaMemcpyAsync((char *)to + begin, (const char *)from + begin,
                                    last->offset_bytes + last->bytes - begin, kind, stream),
                    error);
}

/* Copies what was written, neighbours together. */
static FshStatus copy_written(const ProgramInputs *inputs, void *to, const void *from,
                              enum cudaMemcpyKind kind, cudaStream_t stream, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < inputs->count && !status; i++) {
        const size_t first = i;
        while (i < inputs->count && inputs->list[i].written)
            i++;
        if (i > first)
            status = copy_range(inputs, first, i, to, from, kind, stream, error);
    }
    return status;
}

FshStatus program_inputs_send(ProgramInputs *inputs, cudaStream_t work, FshError *error)
{
    if (!inputs->any_written)
        return FSH_OK;
    const cudaEvent_t copied = inputs->copied[inputs->next];
    FshStatus status = CUDA_TRY(cudaStreamWaitEvent(inputs->stream, inputs->taken, 0), error);
    if (!status)
        status = copy_written(inputs, inputs->staging, inputs->pinned[inputs->next], cudaMemcpyHostToDevice,
                              inputs->stream, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(copied, inputs->stream), error);
    if (!status)
        status = CUDA_TRY(cudaStreamWaitEvent(work, copied, 0), error);
    if (!status)
        status = copy_written(inputs, inputs->block, inputs->staging, cudaMemcpyDeviceToDevice, work, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(inputs->taken, work), error);
    if (status)
        return fsh_error_prepend(error, "cuda: inputs");
    for (size_t i = 0; i < inputs->count; i++)
        inputs->list[i].written = false;
    inputs->any_written = false;
    inputs->next = 1 - inputs->next;
    return FSH_OK;
}
