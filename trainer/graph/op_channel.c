#include "trainer/graph/graph_internal.h"

#include <string.h>

/* ---- scale ---- */

TensorId graph_scale(Graph *graph, TensorId x, float factor)
{
    const Tensor *input = graph_operand(graph, x);
    if (!input)
        return TENSOR_NONE;
    if (!data_type_is_float(input->type))
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: scale needs floats, not %s", input->name,
                          data_type_name(input->type));
    Node node = {.op = OP_SCALE, .inputs = {x}, .input_count = 1};
    node.as.scale.factor = factor;
    node_name_after(&node, input);
    return graph_append(graph, &node);
}

static void scale_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_SCALE, .inputs = {output_gradient}, .input_count = 1};
    backward.as.scale = node->as.scale;
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- channel scale ---- */

TensorId graph_channel_scale(Graph *graph, const char *layer, const char *parameter, TensorId x,
                             TensorId addend)
{
    const Tensor *image = graph_image(graph, layer, "channel scale", x);
    if (!image)
        return TENSOR_NONE;
    if (addend != TENSOR_NONE) {
        const Tensor *other = graph_image(graph, layer, "channel scale", addend);
        char left[96], right[96];
        if (!other)
            return TENSOR_NONE;
        if (other->type != image->type || memcmp(other->shape, image->shape, sizeof image->shape) != 0)
            return graph_fail(graph, FSH_ERR_MISMATCH,
                              "%s: channel scale needs two images of one shape, not [%s] and [%s]", layer,
                              tensor_shape_text(image, left, sizeof left),
                              tensor_shape_text(other, right, sizeof right));
    }
    const int64_t shape[4] = {1, image->shape[3], 1, 1};
    Node node = {.op = OP_CHANNEL_SCALE, .input_count = 3};
    node_name_after(&node, image);
    node.inputs[CHANNEL_X] = x;
    node.inputs[CHANNEL_FACTORS] =
        graph_parameter(graph, layer, parameter, 4, shape, (Initializer){INIT_ZEROS, 0}, false);
    node.inputs[CHANNEL_ADDEND] = addend;
    return graph_append(graph, &node);
}

static void channel_scale_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_CHANNEL_SCALE_BACKWARD,
                     .inputs = {output_gradient, node->inputs[CHANNEL_X], node->inputs[CHANNEL_FACTORS]},
                     .input_count = 3};
    graph_append_backward(graph, node, &backward, node->inputs, 2);
    graph_contribute_gradient(graph, node->inputs[CHANNEL_ADDEND], output_gradient);
}

/* ---- channel multiply ---- */

TensorId graph_channel_multiply(Graph *graph, TensorId x, TensorId s)
{
    char left[96], right[96];
    if (!graph_operand(graph, x) || !graph_operand(graph, s))
        return TENSOR_NONE;
    s = graph_cast(graph, s, DATA_F32); /* factors, as a parameter would be */
    const Tensor *image = graph_operand(graph, x), *factors = graph_operand(graph, s);
    if (!image || !factors || !(image = graph_image(graph, image->name, "channel multiply", x)))
        return TENSOR_NONE;
    if (factors->rank != 2 || factors->shape[0] != image->shape[0] || factors->shape[1] != image->shape[3])
        return graph_fail(
            graph, FSH_ERR_MISMATCH,
            "%s: channel multiply needs an image [N, H, W, C] and a matrix [N, C], not [%s] and "
            "%s [%s]",
            image->name, tensor_shape_text(image, left, sizeof left), data_type_name(factors->type),
            tensor_shape_text(factors, right, sizeof right));
    Node node = {.op = OP_CHANNEL_MULTIPLY, .inputs = {x, s}, .input_count = 2};
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

static void channel_multiply_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_CHANNEL_MULTIPLY_BACKWARD,
                     .inputs = {output_gradient, node->inputs[CHANNEL_X], node->inputs[CHANNEL_FACTORS]},
                     .input_count = 3};
    graph_append_backward(graph, node, &backward, node->inputs, 2);
}

TensorId graph_drop_path(Graph *graph, const char *name, TensorId x, double rate)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || rate == 0)
        return x;
    if (!(rate > 0 && rate < 1))
        return graph_refuse(graph, "drop path of %g; it must be at least 0 and less than 1", rate);
    if (!(image = graph_image(graph, name, "drop path", x)))
        return TENSOR_NONE;
    const TensorId factors =
        graph_input(graph, name, DATA_F32, 2, (int64_t[]){image->shape[0], image->shape[3]});
    if (factors != TENSOR_NONE)
        graph->tensors[factors].tensor.drop_rate = (float)rate;
    return graph_channel_multiply(graph, x, factors);
}

/* ---- gate ---- */

TensorId graph_gate(Graph *graph, TensorId x)
{
    const Tensor *image = graph_operand(graph, x);
    char shape[96];
    if (!image || !(image = graph_image(graph, image->name, "gate", x)))
        return TENSOR_NONE;
    if (image->shape[3] % 2)
        return graph_fail(graph, FSH_ERR_MISMATCH, "%s: a gate needs an even number of channels, not [%s]",
                          image->name, tensor_shape_text(image, shape, sizeof shape));
    Node node = {.op = OP_GATE, .inputs = {x}, .input_count = 1};
    node_name_after(&node, image);
    return graph_append(graph, &node);
}

static void gate_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    graph_output(graph, node, 0, x->type, 4,
                 (int64_t[]){x->shape[0], x->shape[1], x->shape[2], x->shape[3] / 2});
}

static void gate_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const bool has_means = node->output_count > GATE_MEANS;
    Node backward = {.op = OP_GATE_BACKWARD,
                     .inputs = {[GATE_BACK_DY] = output_gradient,
                                [GATE_BACK_X] = node->inputs[0],
                                [GATE_BACK_FACTORS] = TENSOR_NONE,
                                [GATE_BACK_DMEANS] = has_means
                                                         ? graph_gradient(graph, node->outputs[GATE_MEANS])
                                                         : TENSOR_NONE},
                     .input_count = GATE_BACK_INPUTS};
    graph_append_backward(graph, node, &backward, &node->inputs[0], 1);
}

/* ---- layer norm ---- */

TensorId graph_layer_norm(Graph *graph, const char *name, TensorId x, double epsilon)
{
    const Tensor *image = graph_operand(graph, x);
    if (!image || (image->rank != 2 && !graph_image(graph, name, "layer norm", x)))
        return TENSOR_NONE;
    if (!(epsilon > 0))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: layer norm with epsilon %g; it must be positive", name,
                          epsilon);
    const int64_t channels = image->shape[image->rank - 1];
    Node node = {.op = OP_LAYER_NORM, .inputs = {x}, .input_count = 3};
    graph_set_name(graph, node.name, name);
    node.as.layer_norm.epsilon = (float)epsilon;
    node.inputs[LAYER_NORM_WEIGHT] =
        graph_parameter(graph, name, "weight", 1, &channels, (Initializer){INIT_ONES, 0}, false);
    node.inputs[LAYER_NORM_BIAS] =
        graph_parameter(graph, name, "bias", 1, &channels, (Initializer){INIT_ZEROS, 0}, false);
    return graph_append(graph, &node);
}

static void layer_norm_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[0]);
    const int rank = x->rank;
    int64_t shape[GRAPH_RANK_MAX];
    memcpy(shape, x->shape, sizeof shape);
    shape[rank - 1] = 1;
    same_shape_infer(graph, node);
    graph_output(graph, node, LAYER_NORM_MEAN, DATA_F32, rank, shape);
    graph_output(graph, node, LAYER_NORM_INVERSE_DEVIATION, DATA_F32, rank, shape);
}

static void layer_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    /* A norm stands at the head of a branch whose input goes on beside it: what has come back there is added
     * in the same pass. */
    const TensorId x = node->inputs[LAYER_NORM_X], addend = graph->tensors[x].gradient;
    Node backward = {
        .op = OP_LAYER_NORM_BACKWARD,
        .inputs = {[LAYER_NORM_BACK_DY] = output_gradient,
                   [LAYER_NORM_BACK_X] = x,
                   [LAYER_NORM_BACK_WEIGHT] = node->inputs[LAYER_NORM_WEIGHT],
                   [LAYER_NORM_BACK_MEAN] = node->outputs[LAYER_NORM_MEAN],
                   [LAYER_NORM_BACK_INVERSE_DEVIATION] = node->outputs[LAYER_NORM_INVERSE_DEVIATION],
                   [LAYER_NORM_BACK_ADDEND] = addend},
        .input_count = 6};
    backward.as.layer_norm = node->as.layer_norm;
    graph->tensors[x].gradient = TENSOR_NONE;
    graph_append_backward(graph, node, &backward, node->inputs, 3);
}

/* ---- response norm ---- */

TensorId graph_response_norm(Graph *graph, const char *name, TensorId x, double epsilon)
{
    const Tensor *image = graph_image(graph, name, "response norm", x);
    if (!image)
        return TENSOR_NONE;
    if (!(epsilon > 0))
        return graph_fail(graph, FSH_ERR_USAGE, "%s: response norm with epsilon %g; it must be positive",
                          name, epsilon);
    const int64_t channels = image->shape[3];
    Node node = {.op = OP_RESPONSE_NORM, .inputs = {x}, .input_count = 3};
    graph_set_name(graph, node.name, name);
    node.as.layer_norm.epsilon = (float)epsilon;
    node.inputs[RESPONSE_NORM_WEIGHT] =
        graph_parameter(graph, name, "weight", 1, &channels, (Initializer){INIT_ZEROS, 0}, false);
    node.inputs[RESPONSE_NORM_BIAS] =
        graph_parameter(graph, name, "bias", 1, &channels, (Initializer){INIT_ZEROS, 0}, false);
    return graph_append(graph, &node);
}

static void response_norm_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[RESPONSE_NORM_X]);
    const int64_t shape[2] = {x->shape[0], x->shape[3]};
    same_shape_infer(graph, node);
    graph_output(graph, node, RESPONSE_NORM_NORMS, DATA_F32, 2, shape);
}

static void response_norm_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node backward = {.op = OP_RESPONSE_NORM_BACKWARD,
                     .inputs = {[RESPONSE_NORM_BACK_DY] = output_gradient,
                                [RESPONSE_NORM_BACK_X] = node->inputs[RESPONSE_NORM_X],
                                [RESPONSE_NORM_BACK_WEIGHT] = node->inputs[RESPONSE_NORM_WEIGHT],
                                [RESPONSE_NORM_BACK_NORMS] = node->outputs[RESPONSE_NORM_NORMS]},
                     .input_count = 4};
    backward.as.layer_norm = node->as.layer_norm;
    graph_append_backward(graph, node, &backward, node->inputs, 3);
}

const OpRow op_rows_channel[] = {
    {.op = OP_SCALE,
     .name = "scale",
     .infer = same_shape_infer,
     .differentiate = scale_differentiate,
     .overwrites = {1}},
    {.op = OP_CHANNEL_SCALE,
     .name = "channel_scale",
     .infer = same_shape_infer,
     .differentiate = channel_scale_differentiate,
     .overwrites = {1 << CHANNEL_X | 1 << CHANNEL_ADDEND}},
    {.op = OP_CHANNEL_SCALE_BACKWARD,
     .name = "channel_scale_backward",
     .overwrites = {[CHANNEL_BACK_DX] = 1 << CHANNEL_BACK_DY | 1 << CHANNEL_BACK_X}},
    {.op = OP_CHANNEL_MULTIPLY,
     .name = "channel_multiply",
     .infer = same_shape_infer,
     .differentiate = channel_multiply_differentiate,
     .overwrites = {1}},
    {.op = OP_CHANNEL_MULTIPLY_BACKWARD,
     .name = "channel_multiply_backward",
     .optional = 1 << CHANNEL_BACK_DX | 1 << CHANNEL_BACK_DFACTORS,
     .overwrites = {[CHANNEL_BACK_DX] = 1 << CHANNEL_BACK_DY | 1 << CHANNEL_BACK_X}},
    {.op = OP_GATE, .name = "gate", .infer = gate_infer, .differentiate = gate_differentiate},
    {.op = OP_GATE_BACKWARD, .name = "gate_backward", .overwrites = {1 << GATE_BACK_X}},
    {.op = OP_LAYER_NORM,
     .name = "layer_norm",
     .infer = layer_norm_infer,
     .differentiate = layer_norm_differentiate,
     .overwrites = {[LAYER_NORM_Y] = 1 << LAYER_NORM_X}},
    {.op = OP_LAYER_NORM_BACKWARD,
     .name = "layer_norm_backward",
     .overwrites = {[LAYER_NORM_BACK_DX] =
                        1 << LAYER_NORM_BACK_DY | 1 << LAYER_NORM_BACK_X | 1 << LAYER_NORM_BACK_ADDEND}},
    {.op = OP_RESPONSE_NORM,
     .name = "response_norm",
     .infer = response_norm_infer,
     .differentiate = response_norm_differentiate,
     .overwrites = {[RESPONSE_NORM_Y] = 1 << RESPONSE_NORM_X}},
    {.op = OP_RESPONSE_NORM_BACKWARD,
     .name = "response_norm_backward",
     .overwrites = {[RESPONSE_NORM_BACK_DX] = 1 << RESPONSE_NORM_BACK_DY}},
    {.name = NULL},
};
