/* FUSE_NORM_PAIR: two batch norms in a row, as in the blocks of PyramidNet, become one node, and their
 * backward nodes one, so that y between them is not read again for the second's statistics, and the gradient
 * between them is never in memory. */
#include "trainer/graph/graph_internal.h"

/* Returns whether the node is a training norm in 16 bits, or its backward node, whose statistics are of all
 * rows of this rank. */
static bool may_pair(const Graph *graph, const Node *node, OpKind op)
{
    const BatchNorm *options = &node->as.norm.options;
    return node->op == op && node->output_count && options->training && !options->sync &&
           options->sample <= 1 &&
           data_type_is_narrow(graph->tensors[node->inputs[0]].tensor.type); /* of x or dy */
}

static bool have_same_options(const Node *first, const Node *second)
{
    const BatchNorm *a = &first->as.norm.options, *b = &second->as.norm.options;
    return a->epsilon == b->epsilon && a->momentum == b->momentum;
}

/* Returns whether a norm, or its backward node, may be the second of a pair by its activation. */
static bool may_be_second(const Node *norm)
{
    return !norm->as.norm.activation || norm->as.norm.activation == OP_RELU;
}

/* Puts a norm that reads the result of another one into that one's place. What else the second reads are
 * parameters and buffers, which are there before. */
static void join_norms(Node *first, Node *second)
{
    static const int inputs[] = {NORM_WEIGHT, NORM_BIAS, NORM_RUNNING_MEAN, NORM_RUNNING_VAR};
    first->op = OP_NORM_PAIR;
    first->as.norm.activation = second->as.norm.activation;
    first->as.norm.slope = second->as.norm.slope;
    for (int k = 0; k < NORM_PAIR_INPUTS - NORM_PAIR_WEIGHT; k++)
        first->inputs[NORM_PAIR_WEIGHT + k] = second->inputs[inputs[k]];
    for (int k = 0; k < NORM_OUTPUTS; k++)
        first->outputs[NORM_PAIR_Z + k] = second->outputs[k];
    first->input_count = NORM_PAIR_INPUTS;
    first->output_count = NORM_PAIR_OUTPUTS;
    graph_empty_node(second);
}

static void pair_norms(Graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *second = &graph->nodes[i];
        if (!may_pair(graph, second, OP_BATCH_NORM) || !may_be_second(second) ||
            second->output_count != NORM_OUTPUTS || second->inputs[NORM_ADDEND] != TENSOR_NONE ||
            second->inputs[NORM_SUMS] != TENSOR_NONE || second->inputs[NORM_LAYER_BIAS] != TENSOR_NONE)
            continue;
        const NodeId producer = graph->tensors[second->inputs[NORM_X]].tensor.producer;
        Node *first = producer != NODE_NONE ? &graph->nodes[producer] : NULL;
        if (first && may_pair(graph, first, OP_BATCH_NORM) && first->output_count == NORM_OUTPUTS &&
            !first->as.norm.activation && have_same_options(first, second))
            join_norms(first, second);
    }
}

/* Returns whether a node between these two, without them, reads the tensor. */
static bool is_read_between(const Node *from, const Node *to, TensorId tensor)
{
    for (const Node *node = from + 1; node < to; node++)
        for (int k = 0; k < node->input_count; k++)
            if (node->inputs[k] == tensor)
                return true;
    return false;
}

/* Puts the backward node of a second norm into that of the first, which reads its dx as `side`. Nothing but
 * the update reads the second's dweight and dbias, so these may be made later. */
static void join_gradients(Graph *graph, Node *second, Node *first, int side)
{
    const TensorId dy = first->inputs[side], of = graph->tensors[dy].tensor.of;
    const TensorId other = first->inputs[side == NORM_BACK_DY ? NORM_BACK_DY2 : NORM_BACK_DY];
    static const int inputs[] = {NORM_BACK_X, NORM_BACK_WEIGHT, NORM_BACK_BIAS, NORM_BACK_MEAN,
                                 NORM_BACK_INVERSE_DEVIATION};
    if (first->outputs[NORM_BACK_G] == TENSOR_NONE) { /* there is no other part */
        first->outputs[NORM_BACK_G] = dy;
    } else {
        if (of != TENSOR_NONE && graph->tensors[of].gradient == dy)
            graph->tensors[of].gradient = TENSOR_NONE;
        graph->tensors[dy].tensor.producer = NODE_NONE;
    }
    first->op = OP_NORM_PAIR_BACKWARD;
    first->as.norm.activation = second->as.norm.activation;
    first->as.norm.slope = second->as.norm.slope;
    first->inputs[NORM_BACK_DY] = second->inputs[NORM_BACK_DY];
    first->inputs[NORM_BACK_DY2] = other;
    for (int k = 0; k < NORM_PAIR_BACK_INPUTS - NORM_PAIR_BACK_Y; k++)
        first->inputs[NORM_PAIR_BACK_Y + k] = second->inputs[inputs[k]];
    first->outputs[NORM_PAIR_BACK_DWEIGHT] = second->outputs[NORM_BACK_DWEIGHT];
    first->outputs[NORM_PAIR_BACK_DBIAS] = second->outputs[NORM_BACK_DBIAS];
    first->input_count = NORM_PAIR_BACK_INPUTS;
    first->output_count = NORM_PAIR_BACK_OUTPUTS;
    graph_empty_node(second);
}

/* Returns the backward node that makes this part of the gradient of the first norm's result, and that may be
 * joined with the first's; else NULL. */
static Node *second_gradient(Graph *graph, const GraphUses *uses, const Node *first, int side)
{
    const TensorId part = first->inputs[side];
    const Tensor *tensor = part != TENSOR_NONE ? &graph->tensors[part].tensor : NULL;
    Node *second = tensor && tensor->producer != NODE_NONE ? &graph->nodes[tensor->producer] : NULL;
    const bool is_alone = first->inputs[NORM_BACK_DY2] == TENSOR_NONE;
    if (!second || !may_pair(graph, second, OP_BATCH_NORM_BACKWARD) || !may_be_second(second) ||
        second->outputs[NORM_BACK_DX] != part || second->outputs[NORM_BACK_G] != TENSOR_NONE ||
        second->inputs[NORM_BACK_Y] != TENSOR_NONE || second->inputs[NORM_BACK_DY2] != TENSOR_NONE ||
        second->outputs[NORM_BACK_DLAYER_BIAS] != TENSOR_NONE || !have_same_options(first, second) ||
        tensor->keep ||
        tensor_count(tensor) != tensor_count(&graph->tensors[first->inputs[NORM_BACK_X]].tensor))
        return NULL;
    /* Where it is the whole gradient, others get it from the joined node, which writes it as g. */
    if (uses->counts[part] == 1)
        return second;
    return is_alone && first->outputs[NORM_BACK_G] == TENSOR_NONE && !is_read_between(second, first, part)
               ? second
               : NULL;
}

static void pair_gradients(Graph *graph, const GraphUses *uses)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *first = &graph->nodes[i];
        if (!may_pair(graph, first, OP_BATCH_NORM_BACKWARD) || first->as.norm.activation ||
            first->outputs[NORM_BACK_DX] == TENSOR_NONE)
            continue;
        const TensorId dy2 = first->inputs[NORM_BACK_DY2];
        const int64_t count = tensor_count(&graph->tensors[first->inputs[NORM_BACK_X]].tensor),
                      second_count = dy2 != TENSOR_NONE ? tensor_count(&graph->tensors[dy2].tensor) : count;
        static const int sides[2] = {NORM_BACK_DY, NORM_BACK_DY2};
        if (second_count < count) /* FUSE_GRADIENT_STRIDE */
            continue;
        for (int k = 0; k < (second_count > count ? 1 : 2); k++) {
            Node *second = second_gradient(graph, uses, first, sides[k]);
            if (!second)
                continue;
            join_gradients(graph, second, first, sides[k]);
            break;
        }
    }
}

void graph_pair_norms(Graph *graph, const GraphUses *uses)
{
    pair_norms(graph);
    pair_gradients(graph, uses);
}
