#include "trainer/backend/cuda/lowering/weight_copies.h"

#include "trainer/backend/cuda/kernels/kernels_convolution.h"

bool node_is_depthwise(const Graph *graph, const Node *node)
{
    const bool gradient = node->op == OP_CONV2D_BACKWARD_WEIGHT;
    if (!gradient && node->op != OP_CONV2D && node->op != OP_CONV2D_BACKWARD_DATA)
        return false;
    const Conv2d *conv = &node->as.conv.options;
    const Tensor *weight =
        graph_tensor(graph, gradient ? node->outputs[CONV_WEIGHT_DWEIGHT] : node->inputs[CONV_WEIGHT]);
    const Depthwise depthwise = {conv->kernel, conv->stride, conv->padding};
    return conv->groups > 1 && weight->shape[0] == conv->groups && weight->shape[1] == 1 &&
           kernel_depthwise_fits(&depthwise);
}

bool node_reads_copy(const Graph *graph, const Node *node, int input)
{
    if (node->op == OP_CONV_NORM_BACKWARD)
        return input == NORM_BACK_CONV_WEIGHT;
    const bool forward = node->op == OP_CONV2D || node->op == OP_LINEAR,
               backward = node->op == OP_CONV2D_BACKWARD_DATA || node->op == OP_LINEAR_BACKWARD_DATA;
    if ((!forward && !backward) || input >= node->input_count || node->inputs[input] == TENSOR_NONE ||
        graph_tensor(graph, node->inputs[input])->role != TENSOR_PARAMETER || node_is_depthwise(graph, node))
        return false;
    const bool makes_sums = node->output_count > CONV_SUMS && node->outputs[CONV_SUMS] != TENSOR_NONE;
    return input == CONV_WEIGHT || (input == CONV_BIAS && forward && !makes_sums);
}
