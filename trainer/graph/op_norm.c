#include "trainer/graph/ops.h"

TensorId graph_normalize(Graph *graph, TensorId x, const double *mean, const double *deviation)
{
    return graph_normalize_to(graph, x, mean, deviation, graph ? graph->compute_type : DATA_F32);
}

TensorId graph_normalize_to(Graph *graph, TensorId x, const double *mean, const double *deviation,
                            DataType type)
{
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image)
        return TENSOR_NONE;
    if (image->rank != 4 || image->type != DATA_U8 || image->shape[3] > GRAPH_CHANNELS_MAX)
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: normalize needs a u8 image [N, H, W, C] of at most %d channels, not %s [%s]",
                          image->name, GRAPH_CHANNELS_MAX, data_type_name(image->type),
                          tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_NORMALIZE, .inputs = {x}, .input_count = 1, .as.normalize.type = type};
    for (int64_t c = 0; c < image->shape[3]; c++) {
        if (!(deviation[c] > 0))
            return graph_fail(graph, FSH_ERR_USAGE, "%s: deviation %g of channel %lld; it must be positive",
                              image->name, deviation[c], (long long)c);
        node.as.normalize.mean[c] = (float)(mean[c] * 255);
        node.as.normalize.deviation[c] = (float)(deviation[c] * 255);
    }
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

void normalize_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, node->as.normalize.type, 4,
                 (int64_t[]){x->shape[0], x->shape[1], x->shape[2], x->shape[3]});
}

TensorId graph_batch_norm(Graph *graph, const char *name, TensorId x, const BatchNorm *batch_norm)
{
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image)
        return TENSOR_NONE;
    if ((image->rank != 4 && image->rank != 2) || !data_type_is_float(image->type))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: batch norm needs a float image [N, H, W, C] or matrix [N, C], not %s [%s]",
                          name, data_type_name(image->type), tensor_shape_text(image, shape, sizeof shape));
    const int64_t channels = image->shape[image->rank - 1];
    if (batch_norm->training && tensor_count(image) == channels)
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: batch norm in training needs more than one value for each channel, not [%s]; use "
            "a larger batch or larger images",
            name, tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_BATCH_NORM, .inputs = {x}, .input_count = 8};
    graph_set_name(graph, node.name, name);
    node.as.norm.options = *batch_norm;
    if (node.as.norm.options.epsilon == 0)
        node.as.norm.options.epsilon = 1e-5;
    if (node.as.norm.options.momentum == 0)
        node.as.norm.options.momentum = 0.1;
    const Initializer zeros = {INIT_ZEROS, 0}, ones = {INIT_ONES, 0};
    node.inputs[1] = graph_parameter(graph, name, "weight", 1, &channels, ones, false);
    node.inputs[2] = graph_parameter(graph, name, "bias", 1, &channels, zeros, false);
    node.inputs[3] = graph_buffer(graph, name, "running_mean", channels, zeros);
    node.inputs[4] = graph_buffer(graph, name, "running_var", channels, ones);
    node.inputs[5] = node.inputs[6] = node.inputs[7] = TENSOR_NONE; /* what graph_fuse may put there */
    return graph_append(graph, &node);
}

void batch_norm_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const int64_t channels = x->shape[x->rank - 1];
    int64_t shape[GRAPH_RANK_MAX];
    const int rank = x->rank;
    for (int i = 0; i < rank; i++)
        shape[i] = x->shape[i];
    graph_output(graph, node, 0, x->type, rank, shape);
    graph_output(graph, node, 1, DATA_F32, 1, &channels);
    graph_output(graph, node, 2, DATA_F32, 1, &channels);
    if (node->as.norm.options.training) {
        node->outputs[3] = node->inputs[3];
        node->outputs[4] = node->inputs[4];
        node->output_count = 5;
    }
}

void batch_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId addend = node->inputs[5];
    const bool gated_by_y = addend != TENSOR_NONE && node->as.norm.relu;
    Node backward = {.op = OP_BATCH_NORM_BACKWARD,
                     .inputs = {output_gradient, node->inputs[0], node->inputs[1], node->inputs[2],
                                node->outputs[1], node->outputs[2],
                                gated_by_y ? node->outputs[0] : TENSOR_NONE, TENSOR_NONE},
                     .input_count = 8};
    backward.as.norm = node->as.norm;
    const TensorId of[5] = {node->inputs[0], node->inputs[1], node->inputs[2],
                            gated_by_y ? addend : TENSOR_NONE, node->inputs[7]};
    graph_append_backward(graph, node, &backward, of, 5);
    if (addend == TENSOR_NONE || gated_by_y)
        return;
    const Tensor *y = graph_tensor(graph, node->outputs[0]);
    if (tensor_count(graph_tensor(graph, addend)) < tensor_count(y))
        crop_gradient(graph, node, 5, output_gradient);
    else
        graph_contribute_gradient(graph, addend, output_gradient);
}
