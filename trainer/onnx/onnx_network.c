#include "trainer/onnx/onnx_network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/onnx/onnx_ops.h"

const char onnx_input_name[] = "input";

/* ---- names ---- */

/* Returns room for a name of the row's. */
static char *name_room(OnnxGraph *onnx)
{
    FshError error = {0};
    if (onnx->name_count == ONNX_NAMES) {
        (void)fsh_error_set(&error, FSH_ERR_LIBRARY,
                            "%s: %s has too many names in ONNX; this is a fault of ftrain", onnx->node->name,
                            op_name(onnx->node->op));
        wire_fail(onnx->wire, &error);
        onnx->name_count = 0;
    }
    return onnx->names[onnx->name_count++];
}

/* Returns the order that a value has if it is asked for in this one. */
static OnnxOrder its_order(const OnnxGraph *onnx, TensorId tensor, OnnxOrder order)
{
    return graph_tensor(onnx->graph, tensor)->rank == GRAPH_RANK_MAX ? order : CHANNELS_FIRST;
}

/* Returns the name of a value in an order of its own. Names of values that are not kept need not be unique,
 * so the number is part of them. */
static const char *value_name(OnnxGraph *onnx, TensorId id, OnnxOrder order)
{
    const Tensor *tensor = graph_tensor(onnx->graph, id);
    char *name = name_room(onnx);
    const char *last = order == CHANNELS_LAST ? ".channels_last" : "";
    if (id == onnx->input || tensor->keep)
        (void)snprintf(name, ONNX_NAME_BYTES, "%s%s", id == onnx->input ? onnx_input_name : tensor->name,
                       last);
    else
        (void)snprintf(name, ONNX_NAME_BYTES, "%s.%" PRId32 "%s", tensor->name, id, last);
    return name;
}

const char *onnx_part(OnnxGraph *onnx, const char *suffix)
{
    const TensorId result = onnx->node->outputs[0];
    char *name = name_room(onnx);
    (void)snprintf(name, ONNX_NAME_BYTES, "%s.%" PRId32 ".%s", graph_tensor(onnx->graph, result)->name,
                   result, suffix);
    return name;
}

/* ---- values ---- */

const char *onnx_take(OnnxGraph *onnx, TensorId tensor, OnnxOrder order)
{
    static const int64_t orders[ONNX_ORDERS][GRAPH_RANK_MAX] = {{0, 3, 1, 2}, {0, 2, 3, 1}};
    order = its_order(onnx, tensor, order);
    const char *name = value_name(onnx, tensor, order);
    if (onnx->there[tensor][order])
        return name;
    const OnnxOrder other = onnx_order(onnx, tensor);
    onnx->there[tensor][order] = true;
    return onnx_listed(onnx, "Transpose", name, value_name(onnx, tensor, other), "perm", orders[order],
                       GRAPH_RANK_MAX);
}

OnnxOrder onnx_order(const OnnxGraph *onnx, TensorId tensor)
{
    return onnx->there[tensor][CHANNELS_FIRST] ? CHANNELS_FIRST : CHANNELS_LAST;
}

const char *onnx_give(OnnxGraph *onnx, OnnxOrder order)
{
    const TensorId result = onnx->node->outputs[0];
    order = its_order(onnx, result, order);
    onnx->there[result][order] = true;
    return value_name(onnx, result, order);
}

/* Sets values to those of the matrix with rows and columns exchanged. */
static void transpose(const float *matrix, size_t rows, size_t columns, float *values)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            values[k * rows + i] = matrix[i * columns + k];
}

const char *onnx_weight(OnnxGraph *onnx, TensorId id, int rank, const int64_t *shape, bool transposed)
{
    const Tensor *tensor = graph_tensor(onnx->graph, id);
    const size_t count = (size_t)tensor_count(tensor), columns = transposed ? (size_t)shape[0] : 0;
    FshError error = {0};
    if (onnx->there[id][CHANNELS_FIRST] || wire_check(onnx->wire, NULL))
        return tensor->name;
    onnx->there[id][CHANNELS_FIRST] = true;
    float *values = malloc(count * sizeof *values + 1);
    float *matrix = transposed ? malloc(count * sizeof *matrix + 1) : NULL;
    FshStatus status = values && (matrix || !transposed)
                           ? onnx->network->read(onnx->network->context, tensor, values, &error)
                           : fsh_error_set(&error, FSH_ERR_MEMORY, "out of memory for %s", tensor->name);
    if (!status && transposed)
        transpose(values, count / columns, columns, matrix);
    void *room = status ? NULL : onnx_floats(onnx->wire, tensor->name, rank, shape);
    if (room)
        memcpy(room, transposed ? matrix : values, count * sizeof *values);
    if (status)
        wire_fail(onnx->wire, &error);
    free(matrix);
    free(values);
    return tensor->name;
}

/* Returns the name of the next constant. */
static char *constant_name(OnnxGraph *onnx)
{
    char *name = name_room(onnx);
    (void)snprintf(name, ONNX_NAME_BYTES, "constant.%zu", onnx->constant_count++);
    return name;
}

const char *onnx_numbers(OnnxGraph *onnx, const int64_t *values, size_t count)
{
    const char *name = constant_name(onnx);
    void *room = onnx_integers(onnx->wire, name, count);
    if (room)
        memcpy(room, values, count * sizeof *values);
    return name;
}

const char *onnx_scalar(OnnxGraph *onnx, float value)
{
    const char *name = constant_name(onnx);
    void *room = onnx_floats(onnx->wire, name, 0, NULL);
    if (room)
        memcpy(room, &value, sizeof value);
    return name;
}

/* ---- nodes ---- */

size_t onnx_begin(OnnxGraph *onnx, const char *type, const char *output, const char *const *inputs)
{
    size_t count = 0;
    while (inputs[count])
        count++;
    return onnx_begin_node(onnx->wire, type, output, inputs, count, &output, 1);
}

const char *onnx_plain(OnnxGraph *onnx, const char *type, const char *output, const char *const *inputs)
{
    wire_close(onnx->wire, onnx_begin(onnx, type, output, inputs));
    return output;
}

const char *onnx_listed(OnnxGraph *onnx, const char *type, const char *output, const char *input,
                        const char *attribute, const int64_t *values, size_t count)
{
    const size_t node = ONNX_BEGIN(onnx, type, output, input);
    onnx_node_integers(onnx->wire, attribute, values, count);
    wire_close(onnx->wire, node);
    return output;
}

/* ---- the graph ---- */

/* Marks the nodes on which the output depends: the loss, and what it compares with, are not among them. */
static void mark(const Graph *graph, TensorId output, bool *wanted)
{
    wanted[graph_tensor(graph, output)->producer] = true;
    for (size_t i = graph_node_count(graph); i-- > 0;) {
        const Node *node = graph_node(graph, (NodeId)i);
        for (int k = 0; wanted[i] && k < node->input_count; k++) {
            const TensorId input = node->inputs[k];
            const NodeId producer = input == TENSOR_NONE ? NODE_NONE : graph_tensor(graph, input)->producer;
            if (producer != NODE_NONE)
                wanted[producer] = true;
        }
    }
}

static void write_node(OnnxGraph *onnx, const Node *node)
{
    const OnnxWrite write = onnx_row(node->op);
    FshError error = {0};
    onnx->node = node;
    onnx->name_count = 0;
    if (write) {
        write(onnx, node);
        return;
    }
    (void)fsh_error_set(&error, FSH_ERR_UNSUPPORTED, "%s: there is no way to write %s in ONNX", node->name,
                        op_name(node->op));
    wire_fail(onnx->wire, &error);
}

/* Writes input or output, a tensor of the graph in the order that ONNX has. */
static void write_value(OnnxGraph *onnx, OnnxPlace place, TensorId id, const char *about)
{
    const Tensor *tensor = graph_tensor(onnx->graph, id);
    const bool open = onnx->network->any_size;
    OnnxSide sides[GRAPH_RANK_MAX] = {{.name = "batch"}, {.length = tensor->shape[tensor->rank - 1]}};
    if (tensor->rank == GRAPH_RANK_MAX) {
        sides[2] = (OnnxSide){.length = open ? 0 : tensor->shape[1], .name = "height"};
        sides[3] = (OnnxSide){.length = open ? 0 : tensor->shape[2], .name = "width"};
    }
    onnx_value(onnx->wire, place, value_name(onnx, id, CHANNELS_FIRST), tensor->rank, sides, about);
}

/* Makes room for the whole network; refuses one of more bytes than a file may have. */
static FshStatus make_room(OnnxWire *wire, const OnnxNetwork *network, FshError *error)
{
    enum { ROW_BYTES = 4096 }; /* more than what a tensor takes beside its numbers */
    const Graph *graph = network->graph;
    uint64_t bytes = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        bytes += ROW_BYTES + (tensor_is_weight(tensor) ? (uint64_t)tensor_count(tensor) * sizeof(float) : 0);
    }
    if (bytes <= ONNX_BYTES_MAX)
        return buffer_reserve(&wire->bytes, wire->bytes.length + (size_t)bytes, error);
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "%s has weights of %" PRIu64 " MiB; a file of ONNX holds less than 2 GiB",
                         network->name, bytes >> 20);
}

FshStatus onnx_network(OnnxWire *wire, const OnnxNetwork *network, FshError *error)
{
    const Graph *graph = network->graph;
    const size_t node_count = graph_node_count(graph);
    const TensorId output = graph_find(graph, network->output);
    FshStatus status = make_room(wire, network, error);
    if (!status && output == TENSOR_NONE)
        status = fsh_error_set(error, FSH_ERR_LIBRARY, "%s has no tensor '%s'; this is a fault of ftrain",
                               network->name, network->output);
    if (status)
        return status;
    OnnxGraph onnx = {.wire = wire, .network = network, .graph = graph, .input = TENSOR_NONE};
    bool *wanted = calloc(node_count + 1, sizeof *wanted);
    onnx.there = calloc(graph_tensor_count(graph) + 1, sizeof *onnx.there);
    if (!wanted || !onnx.there) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", network->name);
        goto done;
    }
    mark(graph, output, wanted);
    const size_t place = onnx_begin_graph(wire, network->name);
    for (size_t i = 0; i < node_count && !wire_check(wire, NULL); i++)
        if (wanted[i])
            write_node(&onnx, graph_node(graph, (NodeId)i));
    if (!wire_check(wire, NULL)) {
        (void)onnx_take(&onnx, output, CHANNELS_FIRST);
        write_value(&onnx, ONNX_INPUT, onnx.input, network->about_input);
        write_value(&onnx, ONNX_OUTPUT, output, network->about_output);
    }
    wire_close(wire, place);
    status = wire_check(wire, error);
done:
    free(onnx.there);
    free(wanted);
    return status;
}
