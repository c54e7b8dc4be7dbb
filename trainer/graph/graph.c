#include "trainer/graph/graph_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most elements of one tensor: far above what fits in memory, and low enough that bytes never overflow
 * int64_t. */
#define TENSOR_ELEMENTS_MAX (INT64_C(1) << 48)

static const struct {
    const char *name;
    size_t bytes;
} data_types[] = {
    [DATA_F32] = {"f32", 4},   [DATA_U8] = {"u8", 1},   [DATA_I64] = {"i64", 8},
    [DATA_BF16] = {"bf16", 2}, [DATA_F16] = {"f16", 2},
};

size_t data_type_bytes(DataType type)
{
    return data_types[type].bytes;
}

const char *data_type_name(DataType type)
{
    return data_types[type].name;
}

bool data_type_is_float(DataType type)
{
    return type == DATA_F32 || data_type_is_narrow(type);
}

bool data_type_is_narrow(DataType type)
{
    return type == DATA_BF16 || type == DATA_F16;
}

int64_t tensor_count(const Tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

const char *tensor_shape_text(const Tensor *tensor, char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    if (buffer_bytes)
        buffer[0] = '\0';
    for (int i = 0; i < tensor->rank && used < buffer_bytes; i++) {
        int wrote =
            snprintf(buffer + used, buffer_bytes - used, i ? " x %lld" : "%lld", (long long)tensor->shape[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return buffer;
}

Graph *graph_new(void)
{
    Graph *graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->loss = TENSOR_NONE;
        graph->pool_least = NORM_POOL_LEAST;
    }
    return graph;
}

void graph_free(Graph **graph)
{
    if (!graph || !*graph)
        return;
    free((*graph)->nodes);
    free((*graph)->tensors);
    free(*graph);
    *graph = NULL;
}

void graph_set_compute_type(Graph *graph, DataType type)
{
    if (!graph || graph->failure.status)
        return;
    if (!data_type_is_float(type))
        graph_fail(graph, FSH_ERR_USAGE, "graph: a network computes in f32, bf16 or f16, not in %s",
                   data_type_name(type));
    graph->compute_type = type;
}

void graph_set_sync_norms(Graph *graph, bool sync)
{
    if (graph)
        graph->sync_norms = sync;
}

void graph_set_pool_least(Graph *graph, int64_t values)
{
    if (graph)
        graph->pool_least = values;
}

void graph_set_norm_sample(Graph *graph, int sample)
{
    if (graph)
        graph->norm_sample = sample;
}

FshStatus graph_check(const Graph *graph, FshError *error)
{
    if (!graph)
        return fsh_error_set(error, FSH_ERR_MEMORY, "graph: no memory");
    if (error && graph->failure.status)
        *error = graph->failure;
    return graph->failure.status;
}

static void record_failure(FshError *failure, FshStatus status, const char *format, va_list arguments)
{
    if (failure->status)
        return;
    (void)vsnprintf(failure->message, sizeof failure->message, format, arguments);
    failure->status = status;
}

TensorId graph_fail(Graph *graph, FshStatus status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record_failure(&graph->failure, status, format, arguments);
    va_end(arguments);
    return TENSOR_NONE;
}

TensorId graph_refuse(Graph *graph, const char *format, ...)
{
    va_list arguments;
    if (!graph)
        return TENSOR_NONE;
    va_start(arguments, format);
    record_failure(&graph->failure, FSH_ERR_USAGE, format, arguments);
    va_end(arguments);
    return TENSOR_NONE;
}

const Tensor *graph_operand(Graph *graph, TensorId id)
{
    if (!graph || graph->failure.status)
        return NULL;
    if (id < 0 || (size_t)id >= graph->tensor_count) {
        graph_fail(graph, FSH_ERR_USAGE, "graph: a layer was given no tensor");
        return NULL;
    }
    return &graph->tensors[id].tensor;
}

const Tensor *graph_image(Graph *graph, const char *layer, const char *what, TensorId id)
{
    const Tensor *tensor = graph_operand(graph, id);
    if (tensor && (tensor->rank != 4 || !data_type_is_float(tensor->type))) {
        char shape[96];
        graph_fail(graph, FSH_ERR_MISMATCH, "%s: %s needs a float image [N, H, W, C], not %s [%s]", layer,
                   what, data_type_name(tensor->type), tensor_shape_text(tensor, shape, sizeof shape));
        return NULL;
    }
    return tensor;
}

/* Makes room for one more element of `bytes`. Doubles the capacity, so that appending stays linear. Returns
 * false after a failure. */
static bool grow(Graph *graph, void **items, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *moved = realloc(*items, wanted * bytes);
    if (!moved) {
        graph_fail(graph, FSH_ERR_MEMORY, "graph: no memory for %zu entries", wanted);
        return false;
    }
    *items = moved;
    *capacity = wanted;
    return true;
}

static bool has_unique_name(const Tensor *tensor)
{
    return tensor->role != TENSOR_ACTIVATION || tensor->keep;
}

TensorId graph_find(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const Tensor *tensor = &graph->tensors[i].tensor;
        if (has_unique_name(tensor) && strcmp(tensor->name, name) == 0)
            return (TensorId)i;
    }
    return TENSOR_NONE;
}

void graph_set_name(Graph *graph, char target[GRAPH_NAME_MAX], const char *name)
{
    size_t length = strlen(name);
    if (length >= GRAPH_NAME_MAX) {
        graph_fail(graph, FSH_ERR_USAGE, "%s: a name of more than %d bytes", name, GRAPH_NAME_MAX - 1);
        length = GRAPH_NAME_MAX - 1;
    }
    memcpy(target, name, length);
    target[length] = '\0';
}

/* Writes "a.b", cut to the room there is: for activations, whose names are for people only. */
static void join_names(char target[GRAPH_NAME_MAX], const char *a, const char *b)
{
    char joined[2 * GRAPH_NAME_MAX];
    (void)snprintf(joined, sizeof joined, "%.95s.%.95s", a, b);
    joined[GRAPH_NAME_MAX - 1] = '\0';
    memcpy(target, joined, GRAPH_NAME_MAX);
}

void node_name_after(Node *node, const Tensor *input)
{
    join_names(node->name, input->name, op_name(node->op));
}

TensorId graph_add_tensor(Graph *graph, const Tensor *tensor)
{
    char text[96];
    if (graph->failure.status)
        return TENSOR_NONE;
    if (tensor->rank < 1 || tensor->rank > GRAPH_RANK_MAX)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: rank %d; a tensor has 1 to %d dimensions", tensor->name,
                          tensor->rank, GRAPH_RANK_MAX);
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 1)
            return graph_fail(graph, FSH_ERR_MISMATCH, "%s: shape %s has a dimension below 1", tensor->name,
                              tensor_shape_text(tensor, text, sizeof text));
        if (__builtin_mul_overflow(count, tensor->shape[i], &count) || count > TENSOR_ELEMENTS_MAX)
            return graph_fail(graph, FSH_ERR_MEMORY, "%s: shape %s is too large; use a smaller batch",
                              tensor->name, tensor_shape_text(tensor, text, sizeof text));
    }
    if (has_unique_name(tensor) && graph_find(graph, tensor->name) != TENSOR_NONE)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: the graph has a tensor of this name already",
                          tensor->name);
    void *items = graph->tensors;
    if (!grow(graph, &items, graph->tensor_count, &graph->tensor_capacity, sizeof *graph->tensors))
        return TENSOR_NONE;
    graph->tensors = items;
    graph->tensors[graph->tensor_count] = (TensorRecord){.tensor = *tensor, .gradient = TENSOR_NONE};
    return (TensorId)graph->tensor_count++;
}

TensorId graph_input(Graph *graph, const char *name, DataType type, int rank, const int64_t *shape)
{
    if (!graph || graph->failure.status)
        return TENSOR_NONE;
    Tensor tensor = {
        .role = TENSOR_INPUT, .type = type, .rank = rank, .producer = NODE_NONE, .of = TENSOR_NONE};
    graph_set_name(graph, tensor.name, name);
    for (int i = 0; i < rank && i < GRAPH_RANK_MAX; i++)
        tensor.shape[i] = shape[i];
    return graph_add_tensor(graph, &tensor);
}

/* Writes LAYER.SUFFIX, without a layer SUFFIX; a name that is too long is a failure of the graph. */
static void set_layer_name(Graph *graph, char target[GRAPH_NAME_MAX], const char *layer, const char *suffix)
{
    char name[2 * GRAPH_NAME_MAX];
    int length = snprintf(name, sizeof name, "%s%s%s", layer, *layer ? "." : "", suffix);
    if (length < 0 || length >= GRAPH_NAME_MAX)
        graph_fail(graph, FSH_ERR_USAGE, "%s.%s: a name of more than %d bytes", layer, suffix,
                   GRAPH_NAME_MAX - 1);
    else
        graph_set_name(graph, target, name);
}

TensorId graph_parameter(Graph *graph, const char *layer, const char *suffix, int rank, const int64_t *shape,
                         Initializer initializer, bool decays)
{
    Tensor tensor = {.role = TENSOR_PARAMETER,
                     .type = DATA_F32,
                     .rank = rank,
                     .producer = NODE_NONE,
                     .of = TENSOR_NONE,
                     .decays = decays,
                     .rate = 1,
                     .decay = 1,
                     .initializer = initializer};
    memcpy(tensor.shape, shape, (size_t)rank * sizeof *shape);
    set_layer_name(graph, tensor.name, layer, suffix);
    TensorId id = graph_add_tensor(graph, &tensor);
    if (id != TENSOR_NONE)
        graph->tensors[id].needs_gradient = true;
    return id;
}

TensorId graph_buffer(Graph *graph, const char *layer, const char *suffix, int64_t count,
                      Initializer initializer)
{
    Tensor tensor = {.role = TENSOR_BUFFER,
                     .type = DATA_F32,
                     .rank = 1,
                     .shape = {count},
                     .producer = NODE_NONE,
                     .of = TENSOR_NONE,
                     .initializer = initializer};
    set_layer_name(graph, tensor.name, layer, suffix);
    return graph_add_tensor(graph, &tensor);
}

void graph_output(Graph *graph, Node *node, int slot, DataType type, int rank, const int64_t *shape)
{
    Tensor tensor = {.role = TENSOR_ACTIVATION,
                     .type = type,
                     .rank = rank,
                     .producer = (NodeId)graph->node_count,
                     .of = TENSOR_NONE};
    memcpy(tensor.name, node->name, sizeof tensor.name);
    memcpy(tensor.shape, shape, (size_t)rank * sizeof *shape);
    node->outputs[slot] = graph_add_tensor(graph, &tensor);
    if (slot >= node->output_count)
        node->output_count = slot + 1;
}

/* Appends a node whose outputs exist. Returns false after a failure. */
static bool push_node(Graph *graph, const Node *node)
{
    void *items = graph->nodes;
    if (graph->failure.status ||
        !grow(graph, &items, graph->node_count, &graph->node_capacity, sizeof *graph->nodes))
        return false;
    graph->nodes = items;
    graph->nodes[graph->node_count++] = *node;
    return true;
}

TensorId graph_append(Graph *graph, Node *node)
{
    if (!graph || graph->failure.status)
        return TENSOR_NONE;
    for (int i = 0; i < NODE_OUTPUTS_MAX; i++)
        node->outputs[i] = TENSOR_NONE;
    bool needs_gradient = false;
    for (int i = 0; i < node->input_count; i++)
        needs_gradient |= node->inputs[i] != TENSOR_NONE && graph->tensors[node->inputs[i]].needs_gradient;
    op_row(node->op)->infer(graph, node);
    if (!push_node(graph, node))
        return TENSOR_NONE;
    if (node->output_count && op_row(node->op)->differentiate)
        graph->tensors[node->outputs[0]].needs_gradient = needs_gradient;
    return node->outputs[0];
}

void graph_contribute_gradient(Graph *graph, TensorId of, TensorId gradient)
{
    if (of == TENSOR_NONE || gradient == TENSOR_NONE || graph->failure.status ||
        !graph->tensors[of].needs_gradient)
        return;
    TensorId earlier = graph->tensors[of].gradient;
    if (earlier == TENSOR_NONE) {
        graph->tensors[of].gradient = gradient;
        return;
    }
    Node add = {.op = OP_ADD, .inputs = {earlier, gradient}, .input_count = 2};
    join_names(add.name, graph->tensors[of].tensor.name, "grad");
    TensorId sum = graph_append(graph, &add);
    if (sum != TENSOR_NONE) {
        graph->tensors[sum].tensor.of = of;
        graph->tensors[of].gradient = sum;
    }
}

/* Adds the gradient of a tensor, as an output of the next node. Returns its id. */
static TensorId add_gradient(Graph *graph, TensorId of)
{
    Tensor gradient = graph->tensors[of].tensor;
    gradient.role = gradient.role == TENSOR_PARAMETER ? TENSOR_GRADIENT : TENSOR_ACTIVATION;
    gradient.of = of;
    gradient.producer = (NodeId)graph->node_count;
    gradient.keep = gradient.decays = gradient.frozen = false;
    gradient.initializer = (Initializer){INIT_ZEROS, 0};
    if (gradient.role == TENSOR_GRADIENT)
        set_layer_name(graph, gradient.name, graph->tensors[of].tensor.name, "grad");
    else
        join_names(gradient.name, graph->tensors[of].tensor.name, "grad");
    return graph_add_tensor(graph, &gradient);
}

static bool needs_gradient(const Graph *graph, TensorId id)
{
    return id != TENSOR_NONE && graph->tensors[id].needs_gradient;
}

void graph_append_backward(Graph *graph, const Node *forward, Node *backward, const TensorId *of,
                           int of_count)
{
    bool needed = false;
    if (graph->failure.status)
        return;
    for (int i = 0; i < NODE_OUTPUTS_MAX; i++)
        backward->outputs[i] = TENSOR_NONE;
    for (int i = 0; i < of_count; i++)
        needed |= needs_gradient(graph, of[i]);
    if (!needed)
        return;
    memcpy(backward->name, forward->name, sizeof backward->name);
    backward->output_count = of_count;
    for (int i = 0; i < of_count; i++) {
        const bool optional = op_row(backward->op)->optional >> i & 1;
        if (of[i] != TENSOR_NONE && (needs_gradient(graph, of[i]) || !optional))
            backward->outputs[i] = add_gradient(graph, of[i]);
    }
    if (!push_node(graph, backward))
        return;
    for (int i = 0; i < of_count; i++)
        graph_contribute_gradient(graph, of[i], backward->outputs[i]);
}

void graph_keep(Graph *graph, TensorId tensor, const char *name)
{
    if (!graph_operand(graph, tensor))
        return;
    Tensor *kept = &graph->tensors[tensor].tensor;
    if (name && kept->role == TENSOR_ACTIVATION) {
        if (graph_find(graph, name) != TENSOR_NONE) {
            graph_fail(graph, FSH_ERR_USAGE, "%s: the graph has a tensor of this name already", name);
            return;
        }
        graph_set_name(graph, kept->name, name);
    } else if (kept->role == TENSOR_ACTIVATION && !kept->keep) {
        graph_fail(graph, FSH_ERR_USAGE, "%s: a kept activation needs a name", kept->name);
        return;
    }
    kept->keep = true;
}

/* Returns the parameter of this name; NULL after a failure. */
static Tensor *find_parameter(Graph *graph, const char *name)
{
    if (!graph || graph->failure.status)
        return NULL;
    const TensorId id = graph_find(graph, name);
    if (id != TENSOR_NONE && graph->tensors[id].tensor.role == TENSOR_PARAMETER)
        return &graph->tensors[id].tensor;
    graph_fail(graph, FSH_ERR_USAGE, "%s: the graph has no parameter of this name", name);
    return NULL;
}

void graph_set_initializer(Graph *graph, const char *parameter, Initializer initializer)
{
    Tensor *tensor = find_parameter(graph, parameter);
    if (tensor)
        tensor->initializer = initializer;
}

void graph_save_without_ones(Graph *graph, const char *parameter)
{
    Tensor *tensor = find_parameter(graph, parameter);
    if (tensor)
        tensor->saved_without_ones = true;
}

size_t graph_node_count(const Graph *graph)
{
    return graph->node_count;
}

const Node *graph_node(const Graph *graph, NodeId id)
{
    return &graph->nodes[id];
}

size_t graph_tensor_count(const Graph *graph)
{
    return graph->tensor_count;
}

const Tensor *graph_tensor(const Graph *graph, TensorId id)
{
    return &graph->tensors[id].tensor;
}

TensorId graph_gradient(const Graph *graph, TensorId tensor)
{
    return tensor == TENSOR_NONE ? TENSOR_NONE : graph->tensors[tensor].gradient;
}

static int64_t count_parameters(const Graph *graph, bool with_frozen)
{
    int64_t count = 0;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const Tensor *tensor = &graph->tensors[i].tensor;
        if (tensor->role == TENSOR_PARAMETER && (with_frozen || !tensor->frozen))
            count += tensor_count(tensor);
    }
    return count;
}

int64_t graph_parameter_count(const Graph *graph)
{
    return count_parameters(graph, true);
}

int64_t graph_trained_count(const Graph *graph)
{
    return count_parameters(graph, false);
}

int64_t graph_node_flops(const Graph *graph, NodeId id)
{
    const Node *node = &graph->nodes[id];
    const OpRow *row = op_row(node->op);
    return row->flops ? row->flops(graph, node) : 0;
}

int64_t node_operand_bytes(const Graph *graph, const Node *node)
{
    int64_t bytes = 0;
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        const TensorId id = i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        if (id != TENSOR_NONE)
            bytes += tensor_count(graph_tensor(graph, id)) *
                     (int64_t)data_type_bytes(graph_tensor(graph, id)->type);
    }
    return bytes;
}

int64_t graph_node_bytes(const Graph *graph, NodeId id)
{
    const Node *node = &graph->nodes[id];
    const OpRow *row = op_row(node->op);
    return row->bytes ? row->bytes(graph, node) : node_operand_bytes(graph, node);
}

int64_t graph_forward_flops(const Graph *graph)
{
    int64_t flops = 0;
    for (size_t i = 0; i < graph->node_count; i++)
        if (op_row(graph->nodes[i].op)->infer && graph->nodes[i].op != OP_UPDATE) /* backward ops have none */
            flops += graph_node_flops(graph, (NodeId)i);
    return flops;
}

const OpRow *op_row(OpKind op)
{
    static const OpRow *const families[] = {op_rows_pointwise,
                                            op_rows_convolution,
                                            op_rows_norm,
                                            op_rows_channel,
                                            op_rows_box,
                                            op_rows_tokens,
                                            op_rows_self_attention,
                                            op_rows_pool,
                                            op_rows_loss,
                                            op_rows_optimizer,
                                            NULL};
    for (const OpRow *const *family = families; *family; family++)
        for (const OpRow *row = *family; row->name; row++)
            if (row->op == op)
                return row;
    return NULL;
}

const char *op_name(OpKind op)
{
    const OpRow *row = op_row(op);
    return row ? row->name : NULL;
}

bool node_may_overwrite(const Graph *graph, const Node *node, int output, int input)
{
    const OpRow *row = op_row(node->op);
    return (row->overwrites[output] >> input & 1) &&
           tensor_count(graph_tensor(graph, node->outputs[output])) ==
               tensor_count(graph_tensor(graph, node->inputs[input])) &&
           (!row->overwrites_if || row->overwrites_if(graph, node));
}
