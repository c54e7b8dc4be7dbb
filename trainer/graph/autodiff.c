#include "trainer/graph/graph_internal.h"

/* Goes from the last forward node to the first (reverse mode): each whose output has a gradient appends its
 * own backward nodes. All consumers of a tensor stand after its producer, so when the producer's turn comes,
 * the gradient of its output is complete. */
void graph_append_backward_pass(Graph *graph, size_t forward_count)
{
    for (size_t i = forward_count; i-- > 0 && !graph->failure.status;) {
        const Node node = graph->nodes[i]; /* a copy: appending moves the array */
        TensorId gradient = node.output_count ? graph_gradient(graph, node.outputs[0]) : TENSOR_NONE;
        if (gradient != TENSOR_NONE)
            op_row(node.op)->differentiate(graph, &node, gradient);
    }
}

/* ---- which parameters are trained ---- */

/* Returns the parameter; NULL after a failure, and where the graph is differentiated already. */
static Tensor *trainable(Graph *graph, TensorId parameter)
{
    if (!graph_operand(graph, parameter))
        return NULL;
    Tensor *tensor = &graph->tensors[parameter].tensor;
    if (tensor->role == TENSOR_PARAMETER && !graph->differentiated)
        return tensor;
    graph_fail(graph, FSH_ERR_USAGE, "%s: %s", tensor->name,
               graph->differentiated ? "the graph is differentiated already" : "it is no parameter");
    return NULL;
}

void graph_set_factors(Graph *graph, TensorId parameter, double rate, double decay)
{
    Tensor *tensor = trainable(graph, parameter);
    if (!tensor)
        return;
    if (!(rate >= 0 && decay >= 0))
        graph_fail(graph, FSH_ERR_USAGE, "%s: factors %g and %g; none may be below 0", tensor->name, rate,
                   decay);
    tensor->rate = rate;
    tensor->decay = decay;
}

/* Makes a norm without trained parameters use its running statistics alone. */
static void still_norm(const Graph *graph, Node *node)
{
    if (node->op != OP_BATCH_NORM || !graph->tensors[node->inputs[NORM_WEIGHT]].tensor.frozen ||
        !graph->tensors[node->inputs[NORM_BIAS]].tensor.frozen)
        return;
    node->as.norm.options.training = node->as.norm.options.sync = false;
    node->outputs[NORM_MOVED_MEAN] = node->outputs[NORM_MOVED_VAR] = TENSOR_NONE;
    node->output_count = NORM_INVERSE_DEVIATION + 1;
}

void graph_freeze(Graph *graph, TensorId parameter)
{
    Tensor *tensor = trainable(graph, parameter);
    if (!tensor)
        return;
    tensor->frozen = true;
    graph->tensors[parameter].needs_gradient = false;
    for (size_t i = 0; i < graph->node_count; i++) {
        Node *node = &graph->nodes[i];
        bool needed = false;
        still_norm(graph, node);
        for (int k = 0; k < node->input_count; k++)
            needed |= node->inputs[k] != TENSOR_NONE && graph->tensors[node->inputs[k]].needs_gradient;
        if (node->output_count && op_row(node->op)->differentiate)
            graph->tensors[node->outputs[0]].needs_gradient = needed;
    }
}

/* ---- gradients ---- */

void graph_loss_scale(Graph *graph)
{
    if (!graph || graph->failure.status)
        return;
    if (graph->differentiated)
        graph_fail(graph, FSH_ERR_USAGE, "%s: the graph is differentiated already", loss_scale_name);
    else
        graph_counter(graph, loss_scale_name, 1);
}

void graph_differentiate(Graph *graph, TensorId loss)
{
    const Tensor *end = graph_operand(graph, loss);
    if (!end)
        return;
    if (graph->differentiated) {
        graph_fail(graph, FSH_ERR_USAGE, "%s: the graph is differentiated already", end->name);
        return;
    }
    if (tensor_count(end) != 1 || !graph->tensors[loss].needs_gradient) {
        char shape[96];
        graph_fail(graph, FSH_ERR_USAGE,
                   "%s: only one number that depends on a parameter can be differentiated, not [%s]",
                   end->name, tensor_shape_text(end, shape, sizeof shape));
        return;
    }
    graph->differentiated = true;
    graph->loss = loss;
    const size_t forward_count = graph->node_count;
    /* d loss / d loss: 1, or the loss scale. */
    const TensorId scale = graph_find(graph, loss_scale_name);
    if (scale != TENSOR_NONE) {
        graph_contribute_gradient(graph, loss, scale);
    } else {
        Node named = {.op = OP_FILL}, seed = {.op = OP_FILL, .as.fill.value = 1};
        node_name_after(&named, end);
        graph_append_backward(graph, &named, &seed, &loss, 1);
    }
    graph_append_backward_pass(graph, forward_count);
}
