#include "trainer/graph/graph_internal.h"

#include <math.h>
#include <string.h>

int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t padding)
{
    int64_t room = in + 2 * padding - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

bool conv2d_is_stem(const Conv2d *conv, int64_t in_channels)
{
    enum { KERNEL_MIN = 5, KERNEL_MAX = 127 }; /* most: of kernel_fold_bytes */
    return conv->groups <= 1 && conv->stride == 2 && conv->kernel >= KERNEL_MIN &&
           conv->kernel <= KERNEL_MAX && in_channels <= GRAPH_CHANNELS_MAX;
}

bool conv2d_is_pointwise(const Conv2d *conv)
{
    return conv->kernel == 1 && conv->stride == 1 && conv->padding == 0 && conv->groups <= 1;
}

bool conv2d_has_few_channels(const Graph *graph, const Node *conv)
{
    enum { CHANNELS_MOST = 32, KERNEL_MOST = 5, STRIDE_MOST = 2 };
    const Conv2d *of = &conv->as.conv.options;
    const Tensor *x = &graph->tensors[conv->inputs[CONV_X]].tensor,
                 *y = &graph->tensors[conv->outputs[CONV_Y]].tensor;
    const int64_t most = INT32_MAX / CHANNELS_MOST; /* pixels */
    return data_type_is_narrow(y->type) && of->groups <= 1 && of->kernel <= KERNEL_MOST &&
           of->stride <= STRIDE_MOST && x->shape[3] <= CHANNELS_MOST && of->channels <= CHANNELS_MOST &&
           x->shape[0] * x->shape[1] * x->shape[2] < most && y->shape[0] * y->shape[1] * y->shape[2] < most;
}

static Initializer conv_weight_initializer(const Conv2d *conv, int64_t in_channels)
{
    const double area = (double)(conv->kernel * conv->kernel);
    const double fan_in = (double)in_channels * area, fan_out = (double)conv->channels * area;
    switch (conv->init) {
    case CONV_INIT_KAIMING_FAN_OUT:
        return (Initializer){INIT_NORMAL, sqrt(2 / fan_out)};
    case CONV_INIT_XAVIER_NORMAL:
        return (Initializer){INIT_NORMAL, sqrt(2 / (fan_in + fan_out))};
    case CONV_INIT_DEFAULT:
        break;
    }
    return (Initializer){INIT_UNIFORM, 1 / sqrt(fan_in)};
}

TensorId graph_conv2d(Graph *graph, const char *name, TensorId x, const Conv2d *conv)
{
    const Tensor *image = graph_image(graph, name, "conv2d", x);
    if (!image)
        return TENSOR_NONE;
    x = graph_cast(graph, x, graph->compute_type);
    image = graph_operand(graph, x); /* casting moved the table */
    if (!image)
        return TENSOR_NONE;
    if (conv->channels < 1 || conv->kernel < 1 || conv->stride < 1 || conv->padding < 0)
        return graph_fail(
            graph, FSH_ERR_USAGE,
            "%s: conv2d with %lld channels, kernel %lld, stride %lld, padding %lld; all but the "
            "padding must be positive",
            name, (long long)conv->channels, (long long)conv->kernel, (long long)conv->stride,
            (long long)conv->padding);
    const int64_t groups = conv->groups ? conv->groups : 1;
    if (groups < 1 || image->shape[3] % groups || conv->channels % groups)
        return graph_fail(
            graph, FSH_ERR_USAGE,
            "%s: conv2d in %lld groups of %lld channels in and %lld out; both must be multiples "
            "of the groups",
            name, (long long)groups, (long long)image->shape[3], (long long)conv->channels);
    const int64_t in_channels = image->shape[3] / groups; /* of one group */
    const int64_t weight_shape[4] = {conv->channels, in_channels, conv->kernel, conv->kernel};
    Node node = {.op = OP_CONV2D, .input_count = 3, .as.conv.options = *conv};
    node.as.conv.options.groups = groups;
    graph_set_name(graph, node.name, name);
    node.inputs[CONV_X] = x;
    node.inputs[CONV_WEIGHT] = graph_parameter(graph, name, "weight", 4, weight_shape,
                                               conv_weight_initializer(conv, in_channels), true);
    node.inputs[CONV_BIAS] = TENSOR_NONE;
    if (conv->bias) {
        Initializer initializer = {INIT_UNIFORM,
                                   1 / sqrt((double)(in_channels * conv->kernel * conv->kernel))};
        if (conv->init == CONV_INIT_XAVIER_NORMAL)
            initializer = (Initializer){INIT_ZEROS, 0};
        node.inputs[CONV_BIAS] = graph_parameter(graph, name, "bias", 1, &conv->channels, initializer, false);
    }
    return graph_append(graph, &node);
}

static void conv2d_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[CONV_X]);
    const Conv2d *conv = &node->as.conv.options;
    const int64_t height = window_count(x->shape[1], conv->kernel, conv->stride, conv->padding);
    const int64_t width = window_count(x->shape[2], conv->kernel, conv->stride, conv->padding);
    if (height < 1 || width < 1) {
        graph_fail(graph, FSH_ERR_MISMATCH,
                   "%s: kernel %lld with padding %lld does not fit a %lld x %lld input; use larger images",
                   node->name, (long long)conv->kernel, (long long)conv->padding, (long long)x->shape[1],
                   (long long)x->shape[2]);
        return;
    }
    graph_output(graph, node, 0, x->type, 4, (int64_t[]){x->shape[0], height, width, conv->channels});
}

/* Appends the backward node of the activation that is part of the convolution. Returns the gradient before
 * it. The tensor before the activation is gone, so the result stands for it here, and keeps its gradient. */
static TensorId through_activation(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId y = node->outputs[CONV_Y];
    Node backward = {.op = OP_RELU_BACKWARD,
                     .inputs = {output_gradient, y},
                     .input_count = 2,
                     .as.relu.slope = node->as.conv.slope};
    graph->tensors[y].gradient = TENSOR_NONE;
    graph_append_backward(graph, node, &backward, &y, 1);
    graph->tensors[y].gradient = output_gradient;
    return backward.outputs[0];
}

/* Appends `backward`, which makes the gradients of weight and bias; of a frozen weight, what makes that of
 * the bias alone. */
static void append_weight_gradient(Graph *graph, const Node *node, Node *backward)
{
    const TensorId *of = &node->inputs[CONV_WEIGHT];
    Node bias = {.op = OP_BIAS_BACKWARD, .inputs = {backward->inputs[CONV_WEIGHT_DY]}, .input_count = 1};
    if (graph_tensor(graph, of[0])->frozen)
        graph_append_backward(graph, node, &bias, &of[1], 1);
    else
        graph_append_backward(graph, node, backward, of, 2);
}

static void conv2d_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    if (node->as.conv.relu)
        output_gradient = through_activation(graph, node, output_gradient);
    Node weight = {.op = OP_CONV2D_BACKWARD_WEIGHT,
                   .inputs = {output_gradient, node->inputs[CONV_X]},
                   .input_count = 2,
                   .as.conv = {.options = node->as.conv.options, .pixels = node->as.conv.pixels}};
    append_weight_gradient(graph, node, &weight);
    Node data = {.op = OP_CONV2D_BACKWARD_DATA,
                 .inputs = {output_gradient, node->inputs[CONV_WEIGHT]},
                 .input_count = 2,
                 .as.conv.options = node->as.conv.options};
    graph_append_backward(graph, node, &data, &node->inputs[CONV_X], 1);
}

/* Appends a linear layer. weight_rank: 2, or 4 for the shape of a 1x1 convolution's weight. */
static TensorId append_linear(Graph *graph, const char *name, TensorId x, int64_t features, bool bias,
                              int weight_rank)
{
    const Tensor *matrix = graph_operand(graph, x);
    char shape[96];
    if (!matrix)
        return TENSOR_NONE;
    if ((matrix->rank != 2 && matrix->rank != 4) || !data_type_is_float(matrix->type))
        return graph_fail(graph, FSH_ERR_MISMATCH,
                          "%s: linear needs a float matrix [N, C] or image [N, H, W, C], not %s [%s]", name,
                          data_type_name(matrix->type), tensor_shape_text(matrix, shape, sizeof shape));
    x = graph_cast(graph, x, graph->compute_type);
    matrix = graph_operand(graph, x); /* casting moved the table */
    if (!matrix)
        return TENSOR_NONE;
    if (features < 1)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: linear with %lld features; at least 1", name,
                          (long long)features);
    const int64_t in = matrix->shape[matrix->rank - 1];
    const Initializer initializer = {INIT_UNIFORM, 1 / sqrt((double)in)};
    Node node = {.op = OP_LINEAR, .input_count = 4};
    graph_set_name(graph, node.name, name);
    node.inputs[LINEAR_ADDEND] = TENSOR_NONE;
    node.inputs[CONV_X] = x;
    node.inputs[CONV_WEIGHT] = graph_parameter(graph, name, "weight", weight_rank,
                                               (int64_t[]){features, in, 1, 1}, initializer, true);
    node.inputs[CONV_BIAS] =
        bias ? graph_parameter(graph, name, "bias", 1, &features, initializer, false) : TENSOR_NONE;
    return graph_append(graph, &node);
}

TensorId graph_linear(Graph *graph, const char *name, TensorId x, int64_t features, bool bias)
{
    return append_linear(graph, name, x, features, bias, 2);
}

TensorId graph_linear_1x1(Graph *graph, const char *name, TensorId x, int64_t channels, bool bias)
{
    return append_linear(graph, name, x, channels, bias, 4);
}

static void linear_infer(Graph *graph, Node *node)
{
    const Tensor *x = graph_tensor(graph, node->inputs[CONV_X]),
                 *weight = graph_tensor(graph, node->inputs[CONV_WEIGHT]);
    int64_t shape[GRAPH_RANK_MAX];
    const int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    shape[rank - 1] = weight->shape[0];
    graph_output(graph, node, 0, x->type, rank, shape);
}

static void linear_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    Node weight = {
        .op = OP_LINEAR_BACKWARD_WEIGHT, .inputs = {output_gradient, node->inputs[CONV_X]}, .input_count = 2};
    append_weight_gradient(graph, node, &weight);
    Node data = {.op = OP_LINEAR_BACKWARD_DATA,
                 .inputs = {output_gradient, node->inputs[CONV_WEIGHT]},
                 .input_count = 2};
    graph_append_backward(graph, node, &data, &node->inputs[CONV_X], 1);
    graph_contribute_gradient(graph, node->inputs[LINEAR_ADDEND], output_gradient);
}

static void scaled_linear_differentiate(Graph *graph, const Node *node, TensorId output_gradient)
{
    const TensorId *inputs = node->inputs;
    Node weight = {.op = OP_SCALED_LINEAR_BACKWARD_WEIGHT,
                   .inputs = {[CONV_WEIGHT_DY] = output_gradient,
                              [CONV_WEIGHT_X] = inputs[CONV_X],
                              [SCALED_LINEAR_BACK_WEIGHT] = inputs[CONV_WEIGHT],
                              [SCALED_LINEAR_BACK_BIAS] = inputs[CONV_BIAS],
                              [SCALED_LINEAR_BACK_FACTORS] = inputs[LINEAR_FACTORS]},
                   .input_count = SCALED_LINEAR_BACK_INPUTS};
    const TensorId of[] = {[CONV_WEIGHT_DWEIGHT] = inputs[CONV_WEIGHT],
                           [CONV_WEIGHT_DBIAS] = inputs[CONV_BIAS],
                           [SCALED_LINEAR_BACK_DFACTORS] = inputs[LINEAR_FACTORS]};
    graph_append_backward(graph, node, &weight, of, SCALED_LINEAR_BACK_OUTPUTS);
    Node data = {
        .op = OP_LINEAR_BACKWARD_DATA,
        .inputs =
            {[CONV_DATA_DY] = output_gradient, [CONV_DATA_WEIGHT] = node->outputs[LINEAR_SCALED_WEIGHT]},
        .input_count = 2};
    graph_append_backward(graph, node, &data, &inputs[CONV_X], 1);
    graph_contribute_gradient(graph, inputs[LINEAR_ADDEND], output_gradient);
}

/* ---- what convolutions and linear layers cost ---- */

/* Returns the operations of a product: each element of y, or of its gradient, meets the weights of its
 * channel once. A weight gradient that nobody asks for costs nothing. */
static int64_t product_flops(const Graph *graph, TensorId y, TensorId weight)
{
    if (weight == TENSOR_NONE)
        return 0;
    const Tensor *w = graph_tensor(graph, weight);
    return 2 * tensor_count(graph_tensor(graph, y)) * (tensor_count(w) / w->shape[0]);
}

static int64_t forward_flops(const Graph *graph, const Node *node)
{
    return product_flops(graph, node->outputs[CONV_Y], node->inputs[CONV_WEIGHT]);
}

static int64_t backward_data_flops(const Graph *graph, const Node *node)
{
    return product_flops(graph, node->inputs[CONV_DATA_DY], node->inputs[CONV_DATA_WEIGHT]);
}

static int64_t backward_weight_flops(const Graph *graph, const Node *node)
{
    return product_flops(graph, node->inputs[CONV_WEIGHT_DY], node->outputs[CONV_WEIGHT_DWEIGHT]);
}

static int64_t stem_backward_weight_flops(const Graph *graph, const Node *node)
{
    return product_flops(graph, node->inputs[NORM_POOL_BACK_X], node->outputs[0]);
}

DataType graph_product_type(const Graph *graph, const Node *node)
{
    const DataType type = graph_tensor(graph, node->inputs[0])->type;
    return type == DATA_U8 ? node->as.conv.pixels.type : type;
}

/* Returns the bytes of all operands. In a product of narrow activations the weight and its gradient count as
 * narrow too, whatever type the graph gives them; that a scaled layer reads and writes them in f32 is small
 * beside its activations. */
static int64_t product_bytes(const Graph *graph, const Node *node)
{
    const DataType type = graph_product_type(graph, node);
    const bool narrow = data_type_is_narrow(type);
    int64_t bytes = 0;
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        const TensorId id = i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        if (id == TENSOR_NONE)
            continue;
        const Tensor *tensor = graph_tensor(graph, id);
        const bool of_weight = tensor->role == TENSOR_PARAMETER || tensor->role == TENSOR_GRADIENT;
        bytes += tensor_count(tensor) * (int64_t)data_type_bytes(of_weight && narrow ? type : tensor->type);
    }
    return bytes;
}

const OpRow op_rows_convolution[] = {
    {.op = OP_CONV2D,
     .name = "conv2d",
     .infer = conv2d_infer,
     .differentiate = conv2d_differentiate,
     .flops = forward_flops,
     .bytes = product_bytes},
    {.op = OP_CONV2D_BACKWARD_DATA,
     .name = "conv2d_backward_data",
     .flops = backward_data_flops,
     .bytes = product_bytes},
    {.op = OP_CONV2D_BACKWARD_WEIGHT,
     .name = "conv2d_backward_weight",
     .optional = 1 << CONV_WEIGHT_DBIAS,
     .flops = backward_weight_flops,
     .bytes = product_bytes},
    {.op = OP_STEM_BACKWARD_WEIGHT,
     .name = "stem_backward_weight",
     .flops = stem_backward_weight_flops,
     .bytes = product_bytes},
    {.op = OP_BIAS_BACKWARD, .name = "bias_backward"},
    {.op = OP_LINEAR,
     .name = "linear",
     .infer = linear_infer,
     .differentiate = linear_differentiate,
     .flops = forward_flops,
     .bytes = product_bytes},
    {.op = OP_LINEAR_BACKWARD_DATA,
     .name = "linear_backward_data",
     .flops = backward_data_flops,
     .bytes = product_bytes},
    {.op = OP_LINEAR_BACKWARD_WEIGHT,
     .name = "linear_backward_weight",
     .optional = 1 << CONV_WEIGHT_DBIAS,
     .flops = backward_weight_flops,
     .bytes = product_bytes},
    {.op = OP_SCALED_LINEAR,
     .name = "scaled_linear",
     .differentiate = scaled_linear_differentiate,
     .flops = forward_flops,
     .bytes = product_bytes},
    {.op = OP_SCALED_LINEAR_BACKWARD_WEIGHT,
     .name = "scaled_linear_backward_weight",
     .flops = backward_weight_flops,
     .bytes = product_bytes},
    {.name = NULL},
};
