#include "trainer/graph/graph_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fusion_names[] = {
    "norm-relu",      "norm-add-relu",   "norm-add",       "bias-norm",     "conv-statistics",
    "gradient-add",   "pad-add",         "conv-bias-relu", "images-again",  "linear-add",
    "norm-function",  "norm-gate",       "gradient-conv",  "norm-signs",    "function-bias",
    "normalize-conv", "gradient-stride", "norm-pool",      "stem-gradient", "gate-mean",
    "pad-conv",       "cast-loss",       "linear-scale",   "norm-pair",     NULL};

/* Returns the bit of a name of this length; 0: there is none. */
static unsigned find_fusion(const char *name, size_t length)
{
    for (unsigned i = 0; fusion_names[i]; i++)
        if (strlen(fusion_names[i]) == length && memcmp(fusion_names[i], name, length) == 0)
            return 1U << i;
    return 0;
}

static const char *fusions_text(unsigned fusions, char *buffer, size_t buffer_bytes)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (unsigned i = 0; fusion_names[i] && length < buffer_bytes; i++)
        if (fusions >> i & 1)
            length += (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%s", length ? ", " : "",
                                       fusion_names[i]);
    return buffer;
}

FshStatus fusions_leave_out(unsigned *fusions, const char *names, const char *device, FshError *error)
{
    char known[320];
    const unsigned there = *fusions;
    for (const char *at = names; at && *at;) {
        const size_t length = strcspn(at, ",");
        const unsigned fusion = find_fusion(at, length);
        if (!fusion || !(there & fusion))
            return fsh_error_set(error, FSH_ERR_USAGE, "'%.*s' is %s; the %s backend has %s",
                                 (int)(length < 64 ? length : 64), at,
                                 fusion ? "for other devices" : "no fusion", device,
                                 fusions_text(there, known, sizeof known));
        *fusions &= ~fusion;
        at += length + (at[length] == ',');
    }
    if (!*fusions)
        *fusions = FUSE_NONE;
    return FSH_OK;
}

bool graph_find_uses(Graph *graph, GraphUses *uses)
{
    *uses = (GraphUses){calloc(graph->tensor_count + 1, sizeof *uses->counts),
                        calloc(graph->tensor_count + 1, sizeof *uses->consumers)};
    if (!uses->counts || !uses->consumers) {
        graph_fail(graph, FSH_ERR_MEMORY, "graph: no memory to fuse %zu tensors", graph->tensor_count);
        return false;
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++)
            if (graph->nodes[i].inputs[k] != TENSOR_NONE) {
                uses->counts[graph->nodes[i].inputs[k]]++;
                uses->consumers[graph->nodes[i].inputs[k]] = (NodeId)i;
            }
    return true;
}

void graph_uses_free(GraphUses *uses)
{
    free(uses->counts);
    free(uses->consumers);
    *uses = (GraphUses){NULL, NULL};
}

void graph_empty_node(Node *node)
{
    node->input_count = node->output_count = 0;
}

void graph_remove_empty_nodes(Graph *graph)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].input_count || graph->nodes[i].output_count)
            graph->nodes[count++] = graph->nodes[i];
    graph->node_count = count;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < graph->nodes[i].output_count; k++) {
            TensorId output = graph->nodes[i].outputs[k];
            if (output != TENSOR_NONE && graph->tensors[output].tensor.producer != NODE_NONE)
                graph->tensors[output].tensor.producer = (NodeId)i;
        }
}

Node *graph_only_consumer(const Graph *graph, const GraphUses *uses, TensorId tensor, OpKind op)
{
    if (uses->counts[tensor] != 1 || graph->tensors[tensor].tensor.keep)
        return NULL;
    Node *consumer = &graph->nodes[uses->consumers[tensor]];
    return consumer->op == op && consumer->output_count ? consumer : NULL; /* one that was fused is empty */
}

void graph_forget(Graph *graph, const Node *node)
{
    graph->tensors[node->outputs[0]].tensor.producer = NODE_NONE;
}

/* ---- linear layers ---- */

/* Puts a linear layer in the place of the addition behind it. */
static void fuse_linears(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *linear = &graph->nodes[i];
        if (linear->op != OP_LINEAR || linear->inputs[LINEAR_ADDEND] != TENSOR_NONE)
            continue;
        Node *add = graph_only_consumer(graph, uses, linear->outputs[0], OP_ADD);
        if (!add)
            continue;
        Node fused = *linear;
        fused.inputs[LINEAR_ADDEND] =
            add->inputs[ADD_A] == linear->outputs[0] ? add->inputs[ADD_B] : add->inputs[ADD_A];
        graph_forget(graph, linear);
        fused.outputs[0] = add->outputs[0];
        graph_empty_node(linear);
        *add = fused;
    }
}

/* ---- losses ---- */

/* Makes losses of classes read scores before they are cast. A cast that nothing else reads goes. */
static void read_narrow_scores(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *loss = &graph->nodes[i];
        if (loss->op != OP_SOFTMAX_CROSS_ENTROPY && loss->op != OP_BINARY_CROSS_ENTROPY)
            continue;
        const TensorId scores = loss->inputs[CLASS_LOSS_LOGITS];
        const NodeId producer = graph->tensors[scores].tensor.producer;
        Node *cast = producer != NODE_NONE ? &graph->nodes[producer] : NULL;
        if (!cast || cast->op != OP_CAST || !data_type_is_narrow(graph->tensors[cast->inputs[0]].tensor.type))
            continue;
        loss->inputs[CLASS_LOSS_LOGITS] = cast->inputs[0];
        if (uses->counts[scores] == 1 && !graph->tensors[scores].tensor.keep) {
            graph_forget(graph, cast);
            graph_empty_node(cast);
        }
    }
}

/* ---- batch norm and what follows it ---- */

/* Puts the batch norm in the place of the last node of its pattern, so that all it reads is made before it.
 * The nodes before it become empty and are removed at the end of the pass. Either of add and activation may
 * be NULL. */
static void fuse_norm(Graph *graph, Node *norm, Node *add, Node *activation)
{
    Node fused = *norm, *last = activation ? activation : add;
    if (add)
        fused.inputs[NORM_ADDEND] =
            add->inputs[ADD_A] == norm->outputs[NORM_Y] ? add->inputs[ADD_B] : add->inputs[ADD_A];
    if (activation) {
        fused.as.norm.activation = activation->op;
        fused.as.norm.slope = activation->op == OP_RELU ? activation->as.relu.slope : 0;
    }
    graph_forget(graph, norm);
    if (add && activation)
        graph_forget(graph, add);
    fused.outputs[0] = last->outputs[0];
    graph_empty_node(norm);
    if (add && activation)
        graph_empty_node(add);
    *last = fused;
}

/* Returns the activation right behind a norm that the fusions allow to become part of it; else NULL. */
static Node *activation_behind(const Graph *graph, const GraphUses *uses, const Node *norm, unsigned fusions)
{
    static const OpKind functions[] = {OP_GELU, OP_SILU, OP_MISH};
    Node *found =
        fusions & FUSE_NORM_RELU ? graph_only_consumer(graph, uses, norm->outputs[0], OP_RELU) : NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && !found; i++)
        if (fusions & FUSE_NORM_FUNCTION)
            found = graph_only_consumer(graph, uses, norm->outputs[0], functions[i]);
    return found;
}

static void fuse_norms(Graph *graph, const GraphUses *uses, unsigned fusions)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *norm = &graph->nodes[i];
        if (norm->op != OP_BATCH_NORM || norm->as.norm.activation ||
            norm->inputs[NORM_ADDEND] != TENSOR_NONE || !norm->output_count)
            continue;
        Node *activation = activation_behind(graph, uses, norm, fusions);
        if (activation) {
            fuse_norm(graph, norm, NULL, activation);
            continue;
        }
        Node *add = graph_only_consumer(graph, uses, norm->outputs[0], OP_ADD);
        if (!add)
            continue;
        Node *relu = graph_only_consumer(graph, uses, add->outputs[0], OP_RELU);
        if (relu && (fusions & FUSE_NORM_ADD_RELU))
            fuse_norm(graph, norm, add, relu);
        else if (fusions & FUSE_NORM_ADD)
            fuse_norm(graph, norm, add, NULL);
    }
}

/* ---- batch norm and a max pool of its result ---- */

/* Returns whether the norm may follow a pool of its x: its result never falls where x rises, or never rises,
 * and its statistics are of all of x. */
static bool may_follow_pool(const Node *norm)
{
    const OpKind activation = norm->as.norm.activation;
    return norm->as.norm.options.training && norm->as.norm.options.sample <= 1 &&
           norm->inputs[NORM_ADDEND] == TENSOR_NONE && (!activation || activation == OP_RELU);
}

/* Returns whether windows of the pool begin at every second pixel and reach at most one pixel back. */
static bool is_halving(const Pool2d *pool)
{
    return pool->stride == 2 &&
           ((pool->kernel == 2 && pool->padding == 0) || (pool->kernel == 3 && pool->padding == 1));
}

/* Makes one node of a norm and the pool of its result, in the place of the norm. Producers are counted anew
 * at the end of the pass. */
static void join_pool(Graph *graph, Node *norm, Node *pool)
{
    const TensorId y = pool->outputs[MAX_POOL_Y], index = pool->outputs[MAX_POOL_INDEX];
    const Tensor like = graph->tensors[y].tensor; /* a copy: graph_output moves the table */
    graph_output(graph, norm, NORM_POOL_EXTREME, like.type, like.rank, like.shape);
    if (graph->failure.status)
        return;
    graph_forget(graph, norm);
    norm->op = OP_NORM_POOL;
    norm->as.norm.pool = pool->as.pool;
    norm->outputs[NORM_Y] = y;
    norm->outputs[NORM_POOL_INDEX] = index;
    norm->output_count = NORM_POOL_OUTPUTS;
    graph_empty_node(pool);
}

/* Joins norms, which have their activations by now, and pools. */
static void fuse_pools(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count && !graph->failure.status; i++) {
        Node *norm = &graph->nodes[i];
        if (norm->op != OP_BATCH_NORM || !norm->output_count || !may_follow_pool(norm))
            continue;
        const Tensor *y = &graph->tensors[norm->outputs[NORM_Y]].tensor;
        Node *pool = graph_only_consumer(graph, uses, norm->outputs[NORM_Y], OP_MAX_POOL);
        if (pool && is_halving(&pool->as.pool) && tensor_count(y) >= graph->pool_least &&
            y->shape[y->rank - 1] % STATISTICS_MULTIPLE == 0)
            join_pool(graph, norm, pool);
    }
}

/* ---- batch norm, squeeze and excitation, and what follows them ---- */

/* Returns the pool of x that the factors are computed from, through ops of one operand; NULL: none. */
static Node *squeeze_of(Graph *graph, TensorId factors, TensorId x)
{
    NodeId at = graph->tensors[factors].tensor.producer;
    while (at != NODE_NONE && graph->nodes[at].input_count > 0) {
        Node *node = &graph->nodes[at];
        if (node->op == OP_GLOBAL_AVG_POOL)
            return node->inputs[0] == x ? node : NULL;
        at = graph->tensors[node->inputs[0]].tensor.producer;
    }
    return NULL;
}

/* Puts the multiplication, with the norm whose result it reads, in the place of the last node of its
 * pattern. */
static void fuse_gate(Graph *graph, const GraphUses *uses, const Node *norm, Node *multiply)
{
    Node gate = {.op = OP_NORM_GATE,
                 .inputs = {[NORM_GATE_X] = norm->inputs[NORM_X],
                            [NORM_GATE_WEIGHT] = norm->inputs[NORM_WEIGHT],
                            [NORM_GATE_BIAS] = norm->inputs[NORM_BIAS],
                            [NORM_GATE_MEAN] = norm->outputs[NORM_MEAN],
                            [NORM_GATE_INVERSE_DEVIATION] = norm->outputs[NORM_INVERSE_DEVIATION],
                            [NORM_GATE_FACTORS] = multiply->inputs[CHANNEL_FACTORS],
                            [NORM_GATE_ADDEND] = TENSOR_NONE},
                 .input_count = NORM_GATE_INPUTS,
                 .output_count = 1,
                 .as.norm.options = norm->as.norm.options};
    Node *last = multiply, *add = graph_only_consumer(graph, uses, multiply->outputs[0], OP_ADD);
    memcpy(gate.name, norm->name, sizeof gate.name);
    if (add) {
        gate.inputs[NORM_GATE_ADDEND] =
            add->inputs[ADD_A] == multiply->outputs[0] ? add->inputs[ADD_B] : add->inputs[ADD_A];
        graph_forget(graph, last);
        graph_empty_node(last);
        last = add;
    }
    Node *relu = graph_only_consumer(graph, uses, last->outputs[0], OP_RELU);
    if (relu) {
        gate.as.norm.activation = OP_RELU;
        gate.as.norm.slope = relu->as.relu.slope;
        graph_forget(graph, last);
        graph_empty_node(last);
        last = relu;
    }
    gate.outputs[0] = last->outputs[0];
    *last = gate;
}

/* Makes the norm pool its result in place of writing it. */
static void fuse_squeeze(Graph *graph, size_t at, Node *pool)
{
    Node squeeze = graph->nodes[at];
    const Tensor x = graph->tensors[squeeze.inputs[NORM_X]].tensor; /* a copy: graph_output moves the table */
    squeeze.op = OP_NORM_SQUEEZE;
    squeeze.input_count = NORM_RUNNING_VAR + 1;
    if (!squeeze.as.norm.options.training)
        squeeze.outputs[NORM_MOVED_MEAN] = squeeze.outputs[NORM_MOVED_VAR] = TENSOR_NONE;
    graph_output(graph, &squeeze, NORM_IMAGE_MEANS, DATA_F32, 2, (int64_t[]){x.shape[0], x.shape[3]});
    if (graph->failure.status)
        return;
    graph->tensors[squeeze.outputs[NORM_IMAGE_MEANS]].tensor.producer = (NodeId)at;
    graph_forget(graph, &squeeze);
    squeeze.outputs[NORM_Y] = pool->outputs[0];
    graph->tensors[pool->outputs[0]].tensor.producer = (NodeId)at;
    graph_empty_node(pool);
    graph->nodes[at] = squeeze;
}

static void fuse_gates(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count && !graph->failure.status; i++) {
        Node *multiply = &graph->nodes[i];
        if (multiply->op != OP_CHANNEL_MULTIPLY)
            continue;
        const TensorId x = multiply->inputs[CHANNEL_X];
        const NodeId at = graph->tensors[x].tensor.producer;
        Node *pool = squeeze_of(graph, multiply->inputs[CHANNEL_FACTORS], x);
        if (!pool || at == NODE_NONE || uses->counts[x] != 2 || graph->tensors[x].tensor.keep ||
            graph->nodes[at].op != OP_BATCH_NORM || graph->nodes[at].as.norm.activation ||
            graph->nodes[at].inputs[NORM_ADDEND] != TENSOR_NONE)
            continue;
        fuse_gate(graph, uses, &graph->nodes[at], multiply);
        fuse_squeeze(graph, (size_t)at, pool);
    }
}

/* ---- gates and the means of their results ---- */

/* Makes gates whose results are multiplied by factors computed from their means write those means. */
static void fuse_means(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const Node *multiply = &graph->nodes[i];
        if (multiply->op != OP_CHANNEL_MULTIPLY)
            continue;
        const TensorId y = multiply->inputs[CHANNEL_X];
        const NodeId at = graph->tensors[y].tensor.producer;
        Node *pool = squeeze_of(graph, multiply->inputs[CHANNEL_FACTORS], y);
        if (!pool || at == NODE_NONE || graph->nodes[at].op != OP_GATE || uses->counts[y] != 2 ||
            graph->tensors[y].tensor.shape[3] % GATE_MULTIPLE)
            continue;
        Node *gate = &graph->nodes[at];
        gate->outputs[GATE_MEANS] = pool->outputs[0];
        gate->output_count = GATE_MEANS + 1;
        graph->tensors[pool->outputs[0]].tensor.producer = at;
        graph_empty_node(pool);
    }
}

bool graph_pads_channels(const Graph *graph, const Node *box)
{
    const bool pads = box->op == OP_ZERO_PAD;
    if ((!pads && box->op != OP_CROP) || box->as.box.first_channel != 0)
        return false;
    const Tensor *x = &graph->tensors[box->inputs[0]].tensor, *y = &graph->tensors[box->outputs[0]].tensor;
    return x->shape[1] == y->shape[1] && x->shape[2] == y->shape[2];
}

/* Makes a norm add what its addend was before its channels were padded. */
static void add_without_padding(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *norm = &graph->nodes[i];
        const TensorId addend =
            norm->op == OP_BATCH_NORM && norm->output_count ? norm->inputs[NORM_ADDEND] : TENSOR_NONE;
        if (addend == TENSOR_NONE || norm->as.norm.activation || uses->counts[addend] != 1 ||
            graph->tensors[addend].tensor.keep || graph->tensors[addend].tensor.producer == NODE_NONE)
            continue;
        Node *pad = &graph->nodes[graph->tensors[addend].tensor.producer];
        if (pad->op != OP_ZERO_PAD || !graph_pads_channels(graph, pad))
            continue;
        norm->inputs[NORM_ADDEND] = pad->inputs[0];
        graph_forget(graph, pad);
        graph_empty_node(pad);
    }
}

/* ---- batch norm and what is before it ---- */

/* Returns the layer that makes the x of a training norm and adds at most a bias to its sums; else NULL. */
static Node *layer_before(Graph *graph, const Node *norm)
{
    const NodeId producer = graph->tensors[norm->inputs[0]].tensor.producer;
    const bool trains =
        (norm->op == OP_BATCH_NORM || norm->op == OP_NORM_POOL) && norm->as.norm.options.training;
    Node *layer = trains && producer != NODE_NONE ? &graph->nodes[producer] : NULL;
    const bool is_plain =
        layer && (layer->op == OP_LINEAR || (layer->op == OP_CONV2D && !layer->as.conv.relu));
    return is_plain ? layer : NULL;
}

/* Moves the bias of a layer before a training norm to the norm, which would subtract it with the mean. */
static void move_biases(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *norm = &graph->nodes[i], *layer = layer_before(graph, norm);
        if (!layer || layer->inputs[CONV_BIAS] == TENSOR_NONE ||
            !graph_only_consumer(graph, uses, layer->outputs[0], norm->op))
            continue;
        norm->inputs[NORM_LAYER_BIAS] = layer->inputs[CONV_BIAS];
        layer->inputs[CONV_BIAS] = TENSOR_NONE;
    }
}

/* Lets convolutions with f16 results make the sums of the norm that follows: cuDNN has kernels that do so. */
static void sum_in_convolutions(Graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *layer = layer_before(graph, &graph->nodes[i]);
        /* A convolution sums all images: a norm that samples takes less time over its few itself. */
        if (!layer || graph->nodes[i].as.norm.options.sample > 1 || layer->op != OP_CONV2D ||
            layer->inputs[CONV_BIAS] != TENSOR_NONE || layer->output_count > 1 ||
            layer->as.conv.options.groups > 1)
            continue;
        const Tensor y = graph->tensors[layer->outputs[0]].tensor; /* a copy: graph_output moves the table */
        if (y.type != DATA_F16)
            continue;
        graph_output(graph, layer, CONV_SUMS, DATA_F32, 2,
                     (int64_t[]){2, (y.shape[3] + STATISTICS_MULTIPLE - 1) / STATISTICS_MULTIPLE *
                                        STATISTICS_MULTIPLE});
        if (graph->failure.status)
            return;
        graph->tensors[layer->outputs[CONV_SUMS]].tensor.producer = y.producer;
        graph->nodes[i].inputs[NORM_SUMS] = layer->outputs[CONV_SUMS];
    }
}

void graph_fuse(Graph *graph, unsigned fusions)
{
    GraphUses uses = {0};
    if (!graph || graph->failure.status)
        return;
    if (graph->differentiated) {
        graph_fail(graph, FSH_ERR_USAGE, "graph: fuse before differentiating");
        return;
    }
    if (!graph_find_uses(graph, &uses))
        goto done;
    if (fusions & FUSE_NORM_GATE)
        fuse_gates(graph, &uses);
    if (fusions & FUSE_GATE_MEAN)
        fuse_means(graph, &uses);
    fuse_norms(graph, &uses, fusions);
    if (fusions & FUSE_PAD_ADD)
        add_without_padding(graph, &uses);
    if (fusions & FUSE_NORM_POOL)
        fuse_pools(graph, &uses);
    graph_fuse_convolutions(graph, &uses, fusions);
    if (fusions & FUSE_LINEAR_ADD)
        fuse_linears(graph, &uses);
    if (fusions & FUSE_CAST_LOSS)
        read_narrow_scores(graph, &uses);
    graph_remove_empty_nodes(graph);
    graph_uses_free(&uses);
    if (!graph_find_uses(graph, &uses))
        goto done;
    if (fusions & FUSE_BIAS_NORM)
        move_biases(graph, &uses);
    if (fusions & FUSE_CONV_STATISTICS)
        sum_in_convolutions(graph);
done:
    graph_uses_free(&uses);
}
