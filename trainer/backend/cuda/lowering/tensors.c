#include "trainer/backend/cuda/lowering/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ElementType element_of[] = {[DATA_F32] = ELEMENT_F32,
                                         [DATA_U8] = ELEMENT_U8,
                                         [DATA_I64] = ELEMENT_I64,
                                         [DATA_BF16] = ELEMENT_BF16,
                                         [DATA_F16] = ELEMENT_F16};
static const size_t element_bytes[ELEMENT_TYPE_COUNT] = {
    [ELEMENT_F32] = 4, [ELEMENT_U8] = 1, [ELEMENT_I64] = 8, [ELEMENT_BF16] = 2, [ELEMENT_F16] = 2};

ElementType element_of_type(DataType type)
{
    return element_of[type];
}

/* Returns true for parameters and what is shaped like them. A gradient that is a sum of two is an activation
 * to the graph; `of` tells. */
static bool is_weight(const Graph *graph, const Tensor *tensor)
{
    return tensor->role == TENSOR_PARAMETER ||
           (tensor->of != TENSOR_NONE && graph_tensor(graph, tensor->of)->role == TENSOR_PARAMETER);
}

/* Returns the type in which the gradient of a weight lies: that in which it is computed. */
static ElementType gradient_element(const Graph *graph, TensorId id)
{
    const Tensor *tensor = graph_tensor(graph, id);
    if (tensor->producer == NODE_NONE)
        return ELEMENT_F32;
    const Node *node = graph_node(graph, tensor->producer);
    const bool convolution = node->op == OP_CONV2D_BACKWARD_WEIGHT && node->as.conv.options.groups <= 1;
    if ((convolution || node->op == OP_LINEAR_BACKWARD_WEIGHT || node->op == OP_STEM_BACKWARD_WEIGHT) &&
        node->outputs[0] == id)
        return element_of[graph_tensor(graph, node->inputs[0])->type];
    return node->op == OP_ADD ? gradient_element(graph, node->inputs[0]) : ELEMENT_F32;
}

DeviceTensor device_tensor_narrow(const DeviceTensor *weight, ElementType element)
{
    DeviceTensor narrow = *weight;
    narrow.data = NULL;
    narrow.element = element;
    narrow.pitch = padded_channels(device_tensor_channels(weight));
    if (weight->rank > 1) /* else one row: a bias */
        narrow.rows = device_tensor_rows(weight) / weight->shape[0] * padded_channels(weight->shape[0]);
    return narrow;
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
        described.pitch = padded_channels(described.pitch);
    else if (tensor->role != TENSOR_PARAMETER && is_weight(graph, tensor)) {
        const ElementType element = gradient_element(graph, id);
        if (element_is_narrow(element))
            described = device_tensor_narrow(&described, element);
    }
    return described;
}

DeviceTensor device_tensor_loose(ElementType element, int64_t outermost, int64_t height, int64_t width,
                                 int64_t channels)
{
    return (DeviceTensor){.element = element,
                          .rank = 4,
                          .shape = {outermost, height, width, channels},
                          .pitch = channels,
                          .rows = outermost * height * width};
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

/* A row of memory in logical layout: its first element, and the step from one channel to
 * the next. Rows of a filter are those of [O, h, w]. */
typedef struct LogicalRow {
    int64_t first, step;
} LogicalRow;

static LogicalRow logical_row(const DeviceTensor *tensor, int64_t row)
{
    const int64_t channels = device_tensor_channels(tensor);
    const int64_t pixels = tensor->is_filter ? tensor->shape[1] * tensor->shape[2] : 1;
    return (LogicalRow){row / pixels * channels * pixels + row % pixels, pixels};
}

/* Copies one element; the size that nearly all have is known to the compiler. */
static void copy_element(unsigned char *to, const unsigned char *from, size_t bytes)
{
    if (bytes == sizeof(float))
        memcpy(to, from, sizeof(float));
    else
        memcpy(to, from, bytes);
}

static bool is_logical(const DeviceTensor *tensor)
{
    return tensor->pitch == device_tensor_channels(tensor) &&
           (!tensor->is_filter || tensor->shape[1] * tensor->shape[2] == 1);
}

static float half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                 : ldexpf((float)mantissa, -24);
    return bits & 0x8000 ? -value : value;
}

static float narrow_value(ElementType element, const unsigned char *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    if (element == ELEMENT_F16)
        return half_value(bits);
    const uint32_t upper = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &upper, sizeof value);
    return value;
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
    const size_t bytes = device_tensor_bytes(tensor), each = element_bytes[tensor->element];
    const int64_t rows = device_tensor_rows(tensor), channels = device_tensor_channels(tensor);
    if (is_logical(tensor))
        return copy(tensor->data, values, bytes, cudaMemcpyHostToDevice, stream, error);
    unsigned char *stored = calloc(bytes, 1);
    if (!stored)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu bytes on their way to the device",
                             bytes);
    for (int64_t row = 0; row < rows; row++) {
        const LogicalRow logical = logical_row(tensor, row);
        for (int64_t channel = 0; channel < channels; channel++)
            copy_element(stored + (size_t)(row * tensor->pitch + channel) * each,
                         (const unsigned char *)values +
                             (size_t)(logical.first + channel * logical.step) * each,
                         each);
    }
    FshStatus status = copy(tensor->data, stored, bytes, cudaMemcpyHostToDevice, stream, error);
    free(stored);
    return status;
}

FshStatus device_tensor_download(const DeviceTensor *tensor, DataType type, void *values, cudaStream_t stream,
                                 FshError *error)
{
    const size_t bytes = device_tensor_bytes(tensor), each = element_bytes[tensor->element];
    const int64_t rows = device_tensor_rows(tensor), channels = device_tensor_channels(tensor);
    const bool widens = element_of[type] != tensor->element;
    if (!widens && is_logical(tensor))
        return copy(values, tensor->data, bytes, cudaMemcpyDeviceToHost, stream, error);
    unsigned char *stored = malloc(bytes);
    if (!stored)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %zu bytes on their way from the device",
                             bytes);
    FshStatus status = copy(stored, tensor->data, bytes, cudaMemcpyDeviceToHost, stream, error);
    for (int64_t row = 0; row < rows && !status; row++) {
        const LogicalRow logical = logical_row(tensor, row);
        for (int64_t channel = 0; channel < channels; channel++) {
            const unsigned char *from = stored + (size_t)(row * tensor->pitch + channel) * each;
            const size_t to = (size_t)(logical.first + channel * logical.step);
            if (widens)
                ((float *)values)[to] = narrow_value(tensor->element, from);
            else
                copy_element((unsigned char *)values + to * each, from, each);
        }
    }
    free(stored);
    return status;
}
