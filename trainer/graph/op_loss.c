#include "trainer/graph/ops.h"

TensorId graph_softmax_cross_entropy(Graph *graph, TensorId logits, TensorId labels, float smoothing)
{
    const Tensor *scores = graph_operand(graph, logits), *classes = graph_operand(graph, labels);
    char left[96], right[96];
    if (!scores || !classes)
        return TENSOR_NONE;
    if (scores->rank != 2 || scores->type != DATA_F32 || classes->rank != 1 || classes->type != DATA_I64 ||
        classes->shape[0] != scores->shape[0])
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: cross-entropy needs f32 logits [N, K] and i64 labels [N], not %s [%s] and %s [%s]",
            scores->name, data_type_name(scores->type), tensor_shape_text(scores, left, sizeof left),
            data_type_name(classes->type), tensor_shape_text(classes, right, sizeof right));
    if (!(smoothing >= 0 && smoothing < 1))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: label smoothing %g; it must be at least 0 and below 1",
                          scores->name, (double)smoothing);
    Node node = {.op = OP_SOFTMAX_CROSS_ENTROPY,
                 .inputs = {logits, labels},
                 .input_count = 2,
                 .as.loss.smoothing = smoothing};
    node_name_after(&node, scores);
    return graph_append(graph, &node);
}

void softmax_cross_entropy_infer(Graph *graph, Node *node)
{
    const Tensor *logits = graph_tensor(graph, node->inputs[0]);
    const int64_t shape[2] = {logits->shape[0], logits->shape[1]};
    graph_output(graph, node, 0, DATA_F32, 1, (int64_t[]){1});
    graph_output(graph, node, 1, DATA_F32, 2, shape);
}

void softmax_cross_entropy_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
                     .inputs = {output_gradient, node->outputs[1], node->inputs[1]},
                     .input_count = 3,
                     .as.loss = node->as.loss};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}
