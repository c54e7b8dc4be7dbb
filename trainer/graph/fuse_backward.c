#include "trainer/graph/graph_internal.h"

#include <string.h>

/* Returns which output of a norm's backward node is g; -1: it is none that adds two gradients. */
static int output_g(const Node *backward)
{
    return backward->op == OP_BATCH_NORM_BACKWARD  ? (int)NORM_BACK_G
           : backward->op == OP_NORM_GATE_BACKWARD ? (int)NORM_GATE_BACK_G
                                                   : -1;
}

/* Lets the backward node of a norm add the two gradients that `add` adds for it. The node writes their
 * sum, through the activation, as its output g: with an addend that is the addend's gradient anyhow, without
 * one it becomes the sum's tensor. Returns false where something else needs the sum. */
static bool take_in_sum(Graph *graph, const GraphUses *uses, Node *add, Node *backward)
{
    const TensorId sum = add->outputs[0];
    TensorId *g = &backward->outputs[output_g(backward)];
    const bool has_g = *g != TENSOR_NONE;
    /* Others that read the sum get it from the backward node, if that does not change it on the way and
     * stands before them. */
    if (graph->tensors[sum].tensor.keep || (uses->counts[sum] > 1 && (has_g || backward->as.norm.activation)))
        return false;
    for (const Node *other = add + 1; other < backward; other++)
        for (int k = 0; k < other->input_count; k++)
            if (other->inputs[k] == sum)
                return false;
    backward->inputs[NORM_BACK_DY] = add->inputs[ADD_A];
    backward->inputs[NORM_BACK_DY2] = add->inputs[ADD_B];
    if (!has_g)
        *g = sum;
    /* No node makes the sum any more, or the sum is what came through the activation. */
    if (has_g || backward->as.norm.activation) {
        const TensorId of = graph->tensors[sum].tensor.of;
        if (of != TENSOR_NONE && graph->tensors[of].gradient == sum)
            graph->tensors[of].gradient = TENSOR_NONE;
    }
    if (has_g)
        graph->tensors[sum].tensor.producer = NODE_NONE;
    graph_empty_node(add);
    return true;
}

static void add_gradients_in_norms(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *backward = &graph->nodes[i];
        if (output_g(backward) < 0 || backward->inputs[NORM_BACK_DY2] != TENSOR_NONE)
            continue;
        const NodeId producer = graph->tensors[backward->inputs[NORM_BACK_DY]].tensor.producer;
        if (producer != NODE_NONE && graph->nodes[producer].op == OP_ADD)
            take_in_sum(graph, uses, &graph->nodes[producer], backward);
    }
}

/* Makes the backward node of a batch norm add a second dy as it was before its last channels were cropped. */
static void add_before_cropping(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *backward = &graph->nodes[i];
        if (backward->op != OP_BATCH_NORM_BACKWARD || backward->inputs[NORM_BACK_DY2] == TENSOR_NONE ||
            backward->as.norm.activation)
            continue;
        static const int sides[2] = {NORM_BACK_DY2, NORM_BACK_DY};
        for (int k = 0; k < 2; k++) {
            const TensorId part = backward->inputs[sides[k]];
            const NodeId producer = graph->tensors[part].tensor.producer;
            Node *crop = producer != NODE_NONE ? &graph->nodes[producer] : NULL;
            if (!crop || crop->op != OP_CROP || !graph_pads_channels(graph, crop) ||
                uses->counts[part] != 1 || graph->tensors[part].tensor.keep)
                continue;
            backward->inputs[sides[k]] = backward->inputs[NORM_BACK_DY2];
            backward->inputs[NORM_BACK_DY2] = crop->inputs[0];
            graph->tensors[part].tensor.producer = NODE_NONE;
            graph_empty_node(crop);
            break;
        }
    }
}

/* Returns whether the node is the data gradient, in 16 bits, of a convolution of 1 x 1 that visits every
 * pixel. */
static bool is_pointwise_gradient(const Graph *graph, const Node *node)
{
    return node->op == OP_CONV2D_BACKWARD_DATA &&
           data_type_is_narrow(graph->tensors[node->outputs[0]].tensor.type) &&
           conv2d_is_pointwise(&node->as.conv.options);
}

/* Makes one node of a norm's backward node and of `data`, which makes its dy. Where g was not there it
 * becomes the tensor of that dy. */
static void join_data_gradient(Graph *graph, Node *data, Node *backward)
{
    const TensorId dy = data->outputs[0], of = graph->tensors[dy].tensor.of;
    const NodeId at = (NodeId)(backward - graph->nodes);
    const bool has_g = backward->outputs[NORM_BACK_G] != TENSOR_NONE;
    backward->op = OP_CONV_NORM_BACKWARD;
    backward->inputs[NORM_BACK_DY] = data->inputs[CONV_DATA_DY];
    backward->inputs[NORM_BACK_CONV_WEIGHT] = data->inputs[CONV_DATA_WEIGHT];
    backward->input_count = CONV_NORM_BACK_INPUTS;
    if (!has_g)
        backward->outputs[NORM_BACK_G] = dy;
    if (of != TENSOR_NONE && graph->tensors[of].gradient == dy)
        graph->tensors[of].gradient = TENSOR_NONE;
    graph->tensors[dy].tensor.producer = has_g ? NODE_NONE : at;
    graph_empty_node(data);
}

static void join_data_gradients(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *backward = &graph->nodes[i];
        const BatchNorm *options = &backward->as.norm.options;
        if (backward->op != OP_BATCH_NORM_BACKWARD || options->sync || options->sample > 1 ||
            (backward->as.norm.activation && backward->as.norm.activation != OP_RELU))
            continue;
        static const int sides[2] = {NORM_BACK_DY, NORM_BACK_DY2};
        const int64_t count = tensor_count(&graph->tensors[backward->inputs[NORM_BACK_X]].tensor);
        for (int k = 0; k < 2; k++) {
            const TensorId dy = backward->inputs[sides[k]], other = backward->inputs[sides[1 - k]];
            const NodeId producer = dy != TENSOR_NONE ? graph->tensors[dy].tensor.producer : NODE_NONE;
            if (producer == NODE_NONE || tensor_count(&graph->tensors[dy].tensor) != count ||
                uses->counts[dy] != 1 || graph->tensors[dy].tensor.keep ||
                !is_pointwise_gradient(graph, &graph->nodes[producer]) ||
                (other != TENSOR_NONE && tensor_count(&graph->tensors[other].tensor) != count))
                continue;
            backward->inputs[NORM_BACK_DY2] = other;
            join_data_gradient(graph, &graph->nodes[producer], backward);
            break;
        }
    }
}

/* Returns whether the node is the data gradient, in 16 bits, of a convolution of 1 x 1 that visits every
 * second row and column, from the first on. */
static bool is_strided_gradient(const Graph *graph, const Node *node)
{
    const Conv2d *conv = &node->as.conv.options;
    return node->op == OP_CONV2D_BACKWARD_DATA &&
           data_type_is_narrow(graph->tensors[node->outputs[0]].tensor.type) && conv->kernel == 1 &&
           conv->stride == 2 && conv->padding == 0 && conv->groups <= 1;
}

/* Makes `data` the gradient of the pixels that its convolution visits: that of a convolution of stride 1. */
static void leave_out_zeros(Graph *graph, Node *data)
{
    const TensorId dx = data->outputs[0];
    const Tensor *dy = &graph->tensors[data->inputs[CONV_DATA_DY]].tensor;
    Tensor *tensor = &graph->tensors[dx].tensor;
    tensor->shape[1] = dy->shape[1];
    tensor->shape[2] = dy->shape[2];
    data->as.conv.options.stride = 1;
    if (tensor->of != TENSOR_NONE && graph->tensors[tensor->of].gradient == dx)
        graph->tensors[tensor->of].gradient = TENSOR_NONE;
}

/* Makes the backward nodes of norms add second parts that have no zeros between their pixels. */
static void add_strided_gradients(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *backward = &graph->nodes[i];
        const bool joined = backward->op == OP_CONV_NORM_BACKWARD;
        if ((backward->op != OP_BATCH_NORM_BACKWARD && !joined) ||
            backward->inputs[NORM_BACK_DY2] == TENSOR_NONE ||
            (backward->as.norm.activation && backward->as.norm.activation != OP_RELU))
            continue;
        const Tensor *x = &graph->tensors[backward->inputs[NORM_BACK_X]].tensor;
        const int64_t count = tensor_count(x);
        static const int sides[2] = {NORM_BACK_DY2, NORM_BACK_DY};
        for (int k = 0; k < (joined ? 1 : 2); k++) {
            const TensorId part = backward->inputs[sides[k]], other = backward->inputs[sides[1 - k]];
            const NodeId producer = graph->tensors[part].tensor.producer;
            if (producer == NODE_NONE || uses->counts[part] != 1 || graph->tensors[part].tensor.keep ||
                !is_strided_gradient(graph, &graph->nodes[producer]) ||
                tensor_count(&graph->tensors[part].tensor) != count ||
                (!joined && tensor_count(&graph->tensors[other].tensor) != count) ||
                count / x->shape[x->rank - 1] > INT32_MAX)
                continue;
            if (k == 1)
                backward->inputs[NORM_BACK_DY] = other;
            backward->inputs[NORM_BACK_DY2] = part;
            leave_out_zeros(graph, &graph->nodes[producer]);
            break;
        }
    }
}

/* Returns whether the node is the weight gradient of a stem of bytes, as FUSE_STEM_GRADIENT takes it. */
static bool is_stem_gradient(const Graph *graph, const Node *node)
{
    enum { KERNEL = 7, PADDING = 3, CHANNELS = 64 };
    const Conv2d *conv = &node->as.conv.options;
    if (node->op != OP_CONV2D_BACKWARD_WEIGHT || node->outputs[CONV_WEIGHT_DWEIGHT] == TENSOR_NONE ||
        (node->output_count > CONV_WEIGHT_DBIAS && node->outputs[CONV_WEIGHT_DBIAS] != TENSOR_NONE))
        return false;
    return graph->tensors[node->inputs[CONV_WEIGHT_X]].tensor.type == DATA_U8 && conv->kernel == KERNEL &&
           conv->stride == 2 && conv->padding == PADDING && conv->channels == CHANNELS && conv->groups <= 1;
}

/* Makes weight gradients of stems read what their norms' pools leave. */
static void join_stem_gradients(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *weight = &graph->nodes[i];
        if (!is_stem_gradient(graph, weight))
            continue;
        const TensorId dy = weight->inputs[CONV_WEIGHT_DY], pixels = weight->inputs[CONV_WEIGHT_X];
        Tensor *tensor = &graph->tensors[dy].tensor;
        Node *pool = tensor->producer != NODE_NONE ? &graph->nodes[tensor->producer] : NULL;
        if (!pool || pool->op != OP_NORM_POOL_BACKWARD || pool->as.norm.pool.kernel != 3 ||
            !data_type_is_narrow(tensor->type) || uses->counts[dy] != 1 || tensor->keep)
            continue;
        weight->op = OP_STEM_BACKWARD_WEIGHT;
        memcpy(weight->inputs, pool->inputs, sizeof weight->inputs);
        weight->inputs[STEM_BACK_PIXELS] = pixels;
        weight->input_count = STEM_BACK_INPUTS;
        weight->output_count = 1;
        if (tensor->of != TENSOR_NONE && graph->tensors[tensor->of].gradient == dy)
            graph->tensors[tensor->of].gradient = TENSOR_NONE;
        tensor->producer = NODE_NONE;
        graph_empty_node(pool);
    }
}

/* Lets the norm that made y leave the signs of y, and its backward node read them. */
static void leave_signs(Graph *graph, Node *backward)
{
    const TensorId y = backward->inputs[NORM_BACK_Y];
    const Tensor like = graph->tensors[y].tensor; /* a copy: the table moves */
    Node *norm = &graph->nodes[like.producer];
    int64_t shape[GRAPH_RANK_MAX];
    memcpy(shape, like.shape, sizeof shape);
    shape[like.rank - 1] /= SIGNS_IN_BYTE;
    graph_output(graph, norm, NORM_SIGNS, DATA_U8, like.rank, shape);
    if (graph->failure.status)
        return;
    graph->tensors[norm->outputs[NORM_SIGNS]].tensor.producer = like.producer;
    backward->inputs[NORM_BACK_Y] = norm->outputs[NORM_SIGNS];
}

static void read_signs_in_norms(Graph *graph)
{
    for (size_t i = 0; i < graph->node_count && !graph->failure.status; i++) {
        Node *backward = &graph->nodes[i];
        if ((backward->op != OP_BATCH_NORM_BACKWARD && backward->op != OP_CONV_NORM_BACKWARD) ||
            backward->inputs[NORM_BACK_Y] == TENSOR_NONE || backward->outputs[NORM_BACK_G] == TENSOR_NONE ||
            backward->as.norm.activation != OP_RELU)
            continue;
        const Tensor *y = &graph->tensors[backward->inputs[NORM_BACK_Y]].tensor;
        if (data_type_is_narrow(y->type) && y->shape[y->rank - 1] % SIGNS_IN_BYTE == 0 &&
            graph->nodes[y->producer].op == OP_BATCH_NORM)
            leave_signs(graph, backward);
    }
}

/* What can make the sums of its first result in 16 bits, for the bias in front. */
typedef struct Summing {
    OpKind op;
    int place;        /* of the sums among its outputs, which end there until it makes them */
    int64_t multiple; /* of which the result has channels */
} Summing;

static const Summing summing[] = {
    {OP_GELU_BACKWARD, POINTWISE_BACK_DBIAS, 1},
    {OP_SILU_BACKWARD, POINTWISE_BACK_DBIAS, 1},
    {OP_MISH_BACKWARD, POINTWISE_BACK_DBIAS, 1},
    {OP_GATE_BACKWARD, GATE_BACK_DBIAS, 2 * GATE_MULTIPLE},
    {OP_CHANNEL_SCALE_BACKWARD, CHANNEL_BACK_DBIAS, 1},
};

/* Returns how the maker of this gradient can make its sums; NULL: it cannot, or does already. */
static const Summing *summing_of(const Graph *graph, TensorId gradient)
{
    const Tensor *tensor = &graph->tensors[gradient].tensor;
    const Node *node = tensor->producer != NODE_NONE ? &graph->nodes[tensor->producer] : NULL;
    if (!node || !data_type_is_narrow(tensor->type) || node->outputs[0] != gradient)
        return NULL;
    for (size_t i = 0; i < sizeof summing / sizeof *summing; i++)
        if (summing[i].op == node->op)
            return node->output_count == summing[i].place &&
                           tensor->shape[tensor->rank - 1] % summing[i].multiple == 0
                       ? &summing[i]
                       : NULL;
    return NULL;
}

/* Returns whether the weight gradient sums dy on the way, as those of depthwise convolutions do. */
static bool sums_by_itself(const Graph *graph, const Node *weight)
{
    const int64_t groups = weight->op == OP_CONV2D_BACKWARD_WEIGHT ? weight->as.conv.options.groups : 1;
    return groups > 1 && groups == graph->tensors[weight->inputs[CONV_WEIGHT_X]].tensor.shape[3];
}

/* Lets what makes the gradient of a layer's result make that of its bias, too, which the weight gradient
 * made. */
static void sum_in_gradients(Graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *weight = &graph->nodes[i];
        if ((weight->op != OP_CONV2D_BACKWARD_WEIGHT && weight->op != OP_LINEAR_BACKWARD_WEIGHT) ||
            weight->outputs[CONV_WEIGHT_DBIAS] == TENSOR_NONE || sums_by_itself(graph, weight))
            continue;
        const TensorId dy = weight->inputs[CONV_WEIGHT_DY], sums = weight->outputs[CONV_WEIGHT_DBIAS];
        const Summing *how = summing_of(graph, dy);
        if (!how)
            continue;
        const NodeId maker = graph->tensors[dy].tensor.producer;
        graph->nodes[maker].outputs[how->place] = sums;
        graph->nodes[maker].output_count = how->place + 1;
        weight->outputs[CONV_WEIGHT_DBIAS] = TENSOR_NONE;
        graph->tensors[sums].tensor.producer = maker;
    }
}

/* Makes gradients of gates multiply by the factors that the gates' results were multiplied by. */
static void multiply_in_gates(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *gate = &graph->nodes[i];
        if (gate->op != OP_GATE_BACKWARD || gate->inputs[GATE_BACK_FACTORS] != TENSOR_NONE)
            continue;
        const TensorId dy = gate->inputs[GATE_BACK_DY];
        Tensor *tensor = &graph->tensors[dy].tensor;
        Node *multiply = tensor->producer != NODE_NONE ? &graph->nodes[tensor->producer] : NULL;
        if (!multiply || multiply->op != OP_CHANNEL_MULTIPLY_BACKWARD || uses->counts[dy] != 1 ||
            tensor->keep || tensor->shape[3] % GATE_MULTIPLE)
            continue;
        gate->inputs[GATE_BACK_DY] = multiply->inputs[CHANNEL_BACK_DY];
        gate->inputs[GATE_BACK_FACTORS] = multiply->inputs[CHANNEL_BACK_FACTORS];
        multiply->outputs[CHANNEL_BACK_DX] = TENSOR_NONE;
        if (multiply->outputs[CHANNEL_BACK_DFACTORS] == TENSOR_NONE)
            graph_empty_node(multiply);
        if (tensor->of != TENSOR_NONE && graph->tensors[tensor->of].gradient == dy)
            graph->tensors[tensor->of].gradient = TENSOR_NONE;
        tensor->producer = NODE_NONE;
    }
}

/* Fewer elements are not worth a node. */
enum { IMAGES_AGAIN_LEAST = 1 << 24 }; /* elements */

/* Returns the first node that reads the tensor for a weight gradient if only convolutions read it; else
 * node_count. */
static size_t find_weight_gradient(const Graph *graph, TensorId tensor)
{
    size_t first = graph->node_count;
    for (size_t i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++) {
            if (graph->nodes[i].inputs[k] != tensor)
                continue;
            if (graph->nodes[i].op == OP_CONV2D_BACKWARD_WEIGHT)
                first = i < first ? i : first;
            else if (graph->nodes[i].op != OP_CONV2D)
                return graph->node_count;
        }
    return first;
}

/* Moves the last node to the place before node `at`. */
static void move_last_node(Graph *graph, size_t at)
{
    const Node last = graph->nodes[graph->node_count - 1];
    memmove(&graph->nodes[at + 1], &graph->nodes[at], (graph->node_count - 1 - at) * sizeof last);
    graph->nodes[at] = last;
    graph_remove_empty_nodes(graph); /* producers are counted anew */
}

static void normalize_again(Graph *graph)
{
    const size_t node_count = graph->node_count;
    for (size_t i = 0; i < node_count && !graph->failure.status; i++) {
        Node again = graph->nodes[i];
        if (again.op != OP_NORMALIZE)
            continue;
        const TensorId images = again.outputs[0];
        const Tensor *tensor = &graph->tensors[images].tensor;
        const size_t reader = find_weight_gradient(graph, images);
        if (tensor->keep || tensor_count(tensor) < IMAGES_AGAIN_LEAST || reader == node_count)
            continue;
        const TensorId copy = graph_append(graph, &again);
        for (size_t j = reader; j < node_count && copy != TENSOR_NONE; j++)
            for (int k = 0; k < graph->nodes[j].input_count; k++)
                if (graph->nodes[j].inputs[k] == images)
                    graph->nodes[j].inputs[k] = copy;
        if (copy != TENSOR_NONE)
            move_last_node(graph, reader);
        return; /* of a network's one input */
    }
}

void graph_fuse_backward(Graph *graph, unsigned fusions)
{
    GraphUses uses = {0};
    if (!graph || graph->failure.status)
        return;
    if (!graph->differentiated) {
        graph_fail(graph, FSH_ERR_USAGE, "graph: differentiate before fusing what came of it");
        return;
    }
    if ((fusions & FUSE_GRADIENT_ADD) && graph_find_uses(graph, &uses)) {
        add_gradients_in_norms(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_PAD_ADD) && !graph->failure.status && graph_find_uses(graph, &uses)) {
        add_before_cropping(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_GRADIENT_CONV) && !graph->failure.status && graph_find_uses(graph, &uses)) {
        join_data_gradients(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_GRADIENT_STRIDE) && !graph->failure.status && graph_find_uses(graph, &uses))
        add_strided_gradients(graph, &uses);
    graph_uses_free(&uses);
    if ((fusions & FUSE_STEM_GRADIENT) && !graph->failure.status && graph_find_uses(graph, &uses)) {
        join_stem_gradients(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_GATE_MEAN) && !graph->failure.status && graph_find_uses(graph, &uses)) {
        multiply_in_gates(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_NORM_PAIR) && !graph->failure.status && graph_find_uses(graph, &uses)) {
        graph_pair_norms(graph, &uses);
        graph_remove_empty_nodes(graph);
    }
    graph_uses_free(&uses);
    if ((fusions & FUSE_NORM_SIGNS) && !graph->failure.status)
        read_signs_in_norms(graph);
    if ((fusions & FUSE_FUNCTION_BIAS) && !graph->failure.status)
        sum_in_gradients(graph);
    if ((fusions & FUSE_IMAGES_AGAIN) && !graph->failure.status)
        normalize_again(graph);
}
