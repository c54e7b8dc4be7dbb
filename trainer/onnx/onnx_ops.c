#include "trainer/onnx/onnx_ops.h"

#include <math.h>
#include <string.h>

/* The axes of height and width, and that of the channels, in each order. */
static const int64_t image_axes[ONNX_ORDERS][2] = {[CHANNELS_FIRST] = {2, 3}, [CHANNELS_LAST] = {1, 2}};
static const int64_t channel_axis[ONNX_ORDERS] = {[CHANNELS_FIRST] = 1, [CHANNELS_LAST] = -1};

static const Tensor *operand(const OnnxGraph *onnx, const Node *node, int input)
{
    return graph_tensor(onnx->graph, node->inputs[input]);
}

static bool has(const Node *node, int input)
{
    return input < node->input_count && node->inputs[input] != TENSOR_NONE;
}

/* Writes a weight as it is in the graph. */
static const char *weight_as_is(OnnxGraph *onnx, TensorId weight)
{
    const Tensor *tensor = graph_tensor(onnx->graph, weight);
    return onnx_weight(onnx, weight, tensor->rank, tensor->shape, false);
}

/* Writes a weight of one number for each channel, so that it multiplies a value in this order. */
static const char *channel_weight(OnnxGraph *onnx, TensorId weight, OnnxOrder order)
{
    const int64_t count = tensor_count(graph_tensor(onnx->graph, weight));
    return onnx_weight(onnx, weight, order == CHANNELS_FIRST ? 3 : 1, (int64_t[]){count, 1, 1}, false);
}

/* ---- the image ---- */

/* The pixels come normalised: the result is what the ONNX graph takes. */
static void write_normalize(OnnxGraph *onnx, const Node *node)
{
    onnx->input = node->outputs[0];
    (void)onnx_give(onnx, CHANNELS_FIRST);
}

/* ---- convolutions and products ---- */

static void write_conv2d(OnnxGraph *onnx, const Node *node)
{
    const Conv2d *conv = &node->as.conv.options;
    const char *x = onnx_take(onnx, node->inputs[CONV_X], CHANNELS_FIRST);
    const char *weight = weight_as_is(onnx, node->inputs[CONV_WEIGHT]);
    const char *bias = has(node, CONV_BIAS) ? weight_as_is(onnx, node->inputs[CONV_BIAS]) : NULL;
    const size_t place = ONNX_BEGIN(onnx, "Conv", onnx_give(onnx, CHANNELS_FIRST), x, weight, bias);
    const int64_t pad = conv->padding;
    onnx_node_integers(onnx->wire, "kernel_shape", (int64_t[]){conv->kernel, conv->kernel}, 2);
    onnx_node_integers(onnx->wire, "strides", (int64_t[]){conv->stride, conv->stride}, 2);
    onnx_node_integers(onnx->wire, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    onnx_node_integer(onnx->wire, "group", conv->groups ? conv->groups : 1);
    wire_close(onnx->wire, place);
}

static void write_linear(OnnxGraph *onnx, const Node *node)
{
    const Tensor *tensor = operand(onnx, node, CONV_WEIGHT);
    const bool matrix = operand(onnx, node, CONV_X)->rank == 2;
    const int64_t rows = tensor->shape[0], columns = tensor->shape[1];
    const char *x = onnx_take(onnx, node->inputs[CONV_X], CHANNELS_LAST);
    const char *bias = has(node, CONV_BIAS) ? weight_as_is(onnx, node->inputs[CONV_BIAS]) : NULL;
    const char *y = onnx_give(onnx, CHANNELS_LAST);
    if (matrix) {
        const char *weight =
            onnx_weight(onnx, node->inputs[CONV_WEIGHT], 2, (int64_t[]){rows, columns}, false);
        const size_t place = ONNX_BEGIN(onnx, "Gemm", y, x, weight, bias);
        onnx_node_integer(onnx->wire, "transB", 1);
        wire_close(onnx->wire, place);
        return;
    }
    const char *weight = onnx_weight(onnx, node->inputs[CONV_WEIGHT], 2, (int64_t[]){columns, rows}, true);
    const char *product = ONNX_PLAIN(onnx, "MatMul", bias ? onnx_part(onnx, "product") : y, x, weight);
    if (bias)
        (void)ONNX_PLAIN(onnx, "Add", y, product, bias);
}

/* ---- norms ---- */

static void write_batch_norm(OnnxGraph *onnx, const Node *node)
{
    const char *x = onnx_take(onnx, node->inputs[NORM_X], CHANNELS_FIRST);
    const char *weight = weight_as_is(onnx, node->inputs[NORM_WEIGHT]);
    const char *bias = weight_as_is(onnx, node->inputs[NORM_BIAS]);
    const char *mean = weight_as_is(onnx, node->inputs[NORM_RUNNING_MEAN]);
    const char *variance = weight_as_is(onnx, node->inputs[NORM_RUNNING_VAR]);
    const char *y = onnx_give(onnx, CHANNELS_FIRST);
    const size_t place = ONNX_BEGIN(onnx, "BatchNormalization", y, x, weight, bias, mean, variance);
    onnx_node_float(onnx->wire, "epsilon", (float)node->as.norm.options.epsilon);
    wire_close(onnx->wire, place);
}

static void write_layer_norm(OnnxGraph *onnx, const Node *node)
{
    const char *x = onnx_take(onnx, node->inputs[LAYER_NORM_X], CHANNELS_LAST);
    const char *weight = weight_as_is(onnx, node->inputs[LAYER_NORM_WEIGHT]);
    const char *bias = weight_as_is(onnx, node->inputs[LAYER_NORM_BIAS]);
    const size_t place =
        ONNX_BEGIN(onnx, "LayerNormalization", onnx_give(onnx, CHANNELS_LAST), x, weight, bias);
    onnx_node_integer(onnx->wire, "axis", -1);
    onnx_node_float(onnx->wire, "epsilon", node->as.layer_norm.epsilon);
    wire_close(onnx->wire, place);
}

static void write_response_norm(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[RESPONSE_NORM_X]);
    const char *x = onnx_take(onnx, node->inputs[RESPONSE_NORM_X], order);
    const char *weight = channel_weight(onnx, node->inputs[RESPONSE_NORM_WEIGHT], order);
    const char *bias = channel_weight(onnx, node->inputs[RESPONSE_NORM_BIAS], order);
    const char *epsilon = onnx_scalar(onnx, node->as.layer_norm.epsilon), *one = onnx_scalar(onnx, 1);
    const char *norms =
        onnx_listed(onnx, "ReduceL2", onnx_part(onnx, "norms"), x, "axes", image_axes[order], 2);
    const char *mean =
        onnx_listed(onnx, "ReduceMean", onnx_part(onnx, "mean"), norms, "axes", &channel_axis[order], 1);
    mean = ONNX_PLAIN(onnx, "Add", onnx_part(onnx, "mean_above_0"), mean, epsilon);
    const char *share = ONNX_PLAIN(onnx, "Div", onnx_part(onnx, "share"), norms, mean);
    share = ONNX_PLAIN(onnx, "Mul", onnx_part(onnx, "weighed"), share, weight);
    share = ONNX_PLAIN(onnx, "Add", onnx_part(onnx, "factor"), share, one);
    const char *product = ONNX_PLAIN(onnx, "Mul", onnx_part(onnx, "product"), x, share);
    (void)ONNX_PLAIN(onnx, "Add", onnx_give(onnx, order), product, bias);
}

/* ---- functions of one value ---- */

/* Writes a function of one value that ONNX has, and returns the result's name. */
static const char *write_function(OnnxGraph *onnx, const Node *node, const char *type)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    return ONNX_PLAIN(onnx, type, onnx_give(onnx, order), x);
}

static void write_relu(OnnxGraph *onnx, const Node *node)
{
    if (node->as.relu.slope == 0) {
        (void)write_function(onnx, node, "Relu");
        return;
    }
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const size_t place = ONNX_BEGIN(onnx, "LeakyRelu", onnx_give(onnx, order), x);
    onnx_node_float(onnx->wire, "alpha", node->as.relu.slope);
    wire_close(onnx->wire, place);
}

static void write_sigmoid(OnnxGraph *onnx, const Node *node)
{
    (void)write_function(onnx, node, "Sigmoid");
}

/* Writes x * factor, where factor is a function of x. */
static void write_times(OnnxGraph *onnx, OnnxOrder order, const char *x, const char *factor)
{
    (void)ONNX_PLAIN(onnx, "Mul", onnx_give(onnx, order), x, factor);
}

/* x * (1 + erf(x / sqrt 2)) / 2, which runtimes find and compute as one op. */
static void write_gelu(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const char *root = onnx_scalar(onnx, (float)M_SQRT2), *one = onnx_scalar(onnx, 1);
    const char *half = onnx_scalar(onnx, 0.5F);
    const char *part = ONNX_PLAIN(onnx, "Div", onnx_part(onnx, "scaled"), x, root);
    part = ONNX_PLAIN(onnx, "Erf", onnx_part(onnx, "erf"), part);
    part = ONNX_PLAIN(onnx, "Add", onnx_part(onnx, "above_0"), part, one);
    part = ONNX_PLAIN(onnx, "Mul", onnx_part(onnx, "product"), x, part);
    write_times(onnx, order, part, half);
}

static void write_silu(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    write_times(onnx, order, x, ONNX_PLAIN(onnx, "Sigmoid", onnx_part(onnx, "sigmoid"), x));
}

static void write_mish(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const char *part = ONNX_PLAIN(onnx, "Softplus", onnx_part(onnx, "softplus"), x);
    write_times(onnx, order, x, ONNX_PLAIN(onnx, "Tanh", onnx_part(onnx, "tanh"), part));
}

static void write_scale(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    write_times(onnx, order, x, onnx_scalar(onnx, node->as.scale.factor));
}

/* ---- sums and products of values ---- */

static void write_add(OnnxGraph *onnx, const Node *node)
{
    const TensorId a = node->inputs[ADD_A], b = node->inputs[ADD_B];
    const OnnxOrder order = onnx_order(onnx, a) == onnx_order(onnx, b) ? onnx_order(onnx, a) : CHANNELS_FIRST;
    const char *left = onnx_take(onnx, a, order), *right = onnx_take(onnx, b, order);
    (void)ONNX_PLAIN(onnx, "Add", onnx_give(onnx, order), left, right);
}

static void write_channel_scale(OnnxGraph *onnx, const Node *node)
{
    const bool adds = has(node, CHANNEL_ADDEND);
    const OnnxOrder order = onnx_order(onnx, node->inputs[CHANNEL_X]);
    const char *x = onnx_take(onnx, node->inputs[CHANNEL_X], order);
    const char *addend = adds ? onnx_take(onnx, node->inputs[CHANNEL_ADDEND], order) : NULL;
    const char *weight = channel_weight(onnx, node->inputs[CHANNEL_FACTORS], order);
    const char *y = onnx_give(onnx, order);
    const char *product = ONNX_PLAIN(onnx, "Mul", adds ? onnx_part(onnx, "product") : y, x, weight);
    if (adds)
        (void)ONNX_PLAIN(onnx, "Add", y, product, addend);
}

static void write_channel_multiply(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[CHANNEL_X]);
    const char *x = onnx_take(onnx, node->inputs[CHANNEL_X], order);
    const char *factors = onnx_take(onnx, node->inputs[CHANNEL_FACTORS], order);
    const char *axes = onnx_numbers(onnx, image_axes[order], 2);
    write_times(onnx, order, x, ONNX_PLAIN(onnx, "Unsqueeze", onnx_part(onnx, "factors"), factors, axes));
}

static void write_gate(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const char *halves[] = {onnx_part(onnx, "first"), onnx_part(onnx, "second")};
    const size_t place = onnx_begin_node(onnx->wire, "Split", onnx_part(onnx, "split"), &x, 1, halves, 2);
    onnx_node_integer(onnx->wire, "axis", channel_axis[order]);
    wire_close(onnx->wire, place);
    write_times(onnx, order, halves[0], halves[1]);
}

static void write_concat(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[CONCAT_A]);
    const char *a = onnx_take(onnx, node->inputs[CONCAT_A], order);
    const char *b = onnx_take(onnx, node->inputs[CONCAT_B], order);
    const size_t place = ONNX_BEGIN(onnx, "Concat", onnx_give(onnx, order), a, b);
    onnx_node_integer(onnx->wire, "axis", channel_axis[order]);
    wire_close(onnx->wire, place);
}

/* ---- pools ---- */

/* Begins a pool of squares. */
static size_t begin_pool(OnnxGraph *onnx, const Node *node, const char *type)
{
    const Pool2d *pool = &node->as.pool;
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    const size_t place = ONNX_BEGIN(onnx, type, onnx_give(onnx, CHANNELS_FIRST), x);
    const int64_t pad = pool->padding;
    onnx_node_integers(onnx->wire, "kernel_shape", (int64_t[]){pool->kernel, pool->kernel}, 2);
    onnx_node_integers(onnx->wire, "strides", (int64_t[]){pool->stride, pool->stride}, 2);
    onnx_node_integers(onnx->wire, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    return place;
}

static void write_max_pool(OnnxGraph *onnx, const Node *node)
{
    wire_close(onnx->wire, begin_pool(onnx, node, "MaxPool"));
}

/* Padding counts in the divisor; pixels beyond the image that `ceil` adds do not. */
static void write_avg_pool(OnnxGraph *onnx, const Node *node)
{
    const Pool2d *pool = &node->as.pool;
    const size_t place = begin_pool(onnx, node, "AveragePool");
    onnx_node_integer(onnx->wire, "count_include_pad", pool->padding > 0);
    onnx_node_integer(onnx->wire, "ceil_mode", pool->ceil);
    wire_close(onnx->wire, place);
}

static void write_global_avg_pool(OnnxGraph *onnx, const Node *node)
{
    const OnnxOrder order = onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const size_t place = ONNX_BEGIN(onnx, "ReduceMean", onnx_give(onnx, order), x);
    onnx_node_integers(onnx->wire, "axes", image_axes[order], 2);
    onnx_node_integer(onnx->wire, "keepdims", 0);
    wire_close(onnx->wire, place);
}

/* ---- shapes ---- */

static void write_reflection_pad(OnnxGraph *onnx, const Node *node)
{
    const int64_t pad = node->as.pad.padding;
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    const char *pads = onnx_numbers(onnx, (int64_t[]){0, 0, pad, pad, 0, 0, pad, pad}, 8);
    const size_t place = ONNX_BEGIN(onnx, "Pad", onnx_give(onnx, CHANNELS_FIRST), x, pads);
    onnx_node_text(onnx->wire, "mode", "reflect");
    wire_close(onnx->wire, place);
}

static void write_flatten(OnnxGraph *onnx, const Node *node)
{
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    (void)ONNX_PLAIN(onnx, "Flatten", onnx_give(onnx, CHANNELS_FIRST), x); /* axis 1 */
}

/* Writes the height and width of a value as two numbers, which only its runtime knows. */
static const char *image_size(OnnxGraph *onnx, const char *x)
{
    const char *size = onnx_part(onnx, "size");
    const size_t place = ONNX_BEGIN(onnx, "Shape", size, x);
    onnx_node_integer(onnx->wire, "start", 2);
    onnx_node_integer(onnx->wire, "end", GRAPH_RANK_MAX);
    wire_close(onnx->wire, place);
    return size;
}

/* Writes the pads of an image of any size, to multiples of those that an image of one pixel is padded to. */
static const char *pads_to_multiple(OnnxGraph *onnx, const Node *node, const char *x)
{
    const char *begin = onnx_numbers(onnx, (int64_t[]){0, 0, 0, 0, 0, 0}, 6);
    const char *multiple = onnx_numbers(onnx, (int64_t[]){node->as.box.height, node->as.box.width}, 2);
    const char *end = ONNX_PLAIN(onnx, "Neg", onnx_part(onnx, "minus_size"), image_size(onnx, x));
    end = ONNX_PLAIN(onnx, "Mod", onnx_part(onnx, "missing"), end, multiple); /* has the divisor's sign */
    const char *pads = onnx_part(onnx, "pads");
    const size_t place = ONNX_BEGIN(onnx, "Concat", pads, begin, end);
    onnx_node_integer(onnx->wire, "axis", 0);
    wire_close(onnx->wire, place);
    return pads;
}

static void write_zero_pad(OnnxGraph *onnx, const Node *node)
{
    const Tensor *image = operand(onnx, node, 0);
    const int64_t first = node->as.box.first_channel;
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    const char *pads =
        onnx->network->any_size
            ? pads_to_multiple(onnx, node, x)
            : onnx_numbers(onnx,
                           (int64_t[]){0, first, 0, 0, 0, node->as.box.channels - first - image->shape[3],
                                       node->as.box.height - image->shape[1],
                                       node->as.box.width - image->shape[2]},
                           8);
    (void)ONNX_PLAIN(onnx, "Pad", onnx_give(onnx, CHANNELS_FIRST), x, pads);
}

/* A crop of an image of any size is that of the padding. */
static void write_crop(OnnxGraph *onnx, const Node *node)
{
    const bool open = onnx->network->any_size;
    const int64_t first = node->as.box.first_channel;
    const OnnxOrder order = open ? CHANNELS_FIRST : onnx_order(onnx, node->inputs[0]);
    const char *x = onnx_take(onnx, node->inputs[0], order);
    const char *begin = onnx_numbers(onnx, (int64_t[]){0, 0, first}, open ? 2 : 3);
    const char *end =
        open ? image_size(onnx, onnx_input_name)
             : onnx_numbers(
                   onnx, (int64_t[]){node->as.box.height, node->as.box.width, first + node->as.box.channels},
                   3);
    const char *axes = onnx_numbers(
        onnx, (int64_t[]){image_axes[order][0], image_axes[order][1], channel_axis[order]}, open ? 2 : 3);
    (void)ONNX_PLAIN(onnx, "Slice", onnx_give(onnx, order), x, begin, end, axes);
}

static void write_pixel_shuffle(OnnxGraph *onnx, const Node *node)
{
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    const size_t place = ONNX_BEGIN(onnx, "DepthToSpace", onnx_give(onnx, CHANNELS_FIRST), x);
    onnx_node_integer(onnx->wire, "blocksize", node->as.shuffle.factor);
    onnx_node_text(onnx->wire, "mode", "CRD");
    wire_close(onnx->wire, place);
}

/* ONNX counts the places of a square first, and the channels in them; PyTorch the other way round. */
static void write_pixel_unshuffle(OnnxGraph *onnx, const Node *node)
{
    const int64_t places = node->as.shuffle.factor * node->as.shuffle.factor;
    const int64_t channels = operand(onnx, node, 0)->shape[3];
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_FIRST);
    const char *order = onnx_part(onnx, "order"), *blocks = onnx_part(onnx, "blocks");
    char *room = onnx_integers(onnx->wire, order, (size_t)(places * channels));
    for (int64_t i = 0; room && i < places * channels; i++) {
        const int64_t from = i % places * channels + i / places;
        memcpy(room + (size_t)i * sizeof from, &from, sizeof from);
    }
    size_t place = ONNX_BEGIN(onnx, "SpaceToDepth", blocks, x);
    onnx_node_integer(onnx->wire, "blocksize", node->as.shuffle.factor);
    wire_close(onnx->wire, place);
    place = ONNX_BEGIN(onnx, "Gather", onnx_give(onnx, CHANNELS_FIRST), blocks, order);
    onnx_node_integer(onnx->wire, "axis", 1);
    wire_close(onnx->wire, place);
}

/* ---- tokens ---- */

/* Writes the fixed positions of the tokens and returns their name. */
static const char *sines(OnnxGraph *onnx, const Node *node)
{
    const Tensor *image = operand(onnx, node, TOKENS_X);
    const int64_t height = image->shape[1], width = image->shape[2], channels = image->shape[3];
    const int64_t first = node->as.tokens.class_token, shape[] = {height * width + first, 1, channels};
    const char *name = onnx_part(onnx, "sines");
    char *room = onnx_floats(onnx->wire, name, 3, shape);
    if (room)
        memset(room, 0, (size_t)(first * channels) * sizeof(float));
    for (int64_t i = 0; room && i < height * width * channels; i++) {
        const int64_t pixel = i / channels;
        const float value = tokens_sine(pixel / width, pixel % width, i % channels, channels);
        memcpy(room + (size_t)(first * channels + i) * sizeof value, &value, sizeof value);
    }
    return name;
}

/* Writes the class token, once for each image of the batch, in front of the tokens. */
static const char *with_class_token(OnnxGraph *onnx, const Node *node, const char *tokens)
{
    const int64_t channels = operand(onnx, node, TOKENS_X)->shape[3], shape[] = {1, 1, 1, channels};
    const char *token = onnx_weight(onnx, node->inputs[TOKENS_CLASS], GRAPH_RANK_MAX, shape, false);
    const char *one = onnx_numbers(onnx, shape + 1, 3);
    const char *batch = onnx_part(onnx, "batch"), *wanted = onnx_part(onnx, "class_shape");
    const char *joined = onnx_part(onnx, "with_class");
    size_t place = ONNX_BEGIN(onnx, "Shape", batch, tokens);
    onnx_node_integer(onnx->wire, "end", 1);
    wire_close(onnx->wire, place);
    place = ONNX_BEGIN(onnx, "Concat", wanted, batch, one);
    onnx_node_integer(onnx->wire, "axis", 0);
    wire_close(onnx->wire, place);
    token = ONNX_PLAIN(onnx, "Expand", onnx_part(onnx, "class"), token, wanted);
    place = ONNX_BEGIN(onnx, "Concat", joined, token, tokens);
    onnx_node_integer(onnx->wire, "axis", 1);
    wire_close(onnx->wire, place);
    return joined;
}

static void write_tokens(OnnxGraph *onnx, const Node *node)
{
    const Tensor *image = operand(onnx, node, TOKENS_X);
    const int64_t channels = image->shape[3];
    const int64_t count = image->shape[1] * image->shape[2] + node->as.tokens.class_token;
    const char *x = onnx_take(onnx, node->inputs[TOKENS_X], CHANNELS_LAST);
    const char *shape = onnx_numbers(onnx, (int64_t[]){0, -1, 1, channels}, GRAPH_RANK_MAX);
    const char *tokens = ONNX_PLAIN(onnx, "Reshape", onnx_part(onnx, "pixels"), x, shape);
    const char *positions = node->as.tokens.sines ? sines(onnx, node)
                                                  : onnx_weight(onnx, node->inputs[TOKENS_POSITIONS], 3,
                                                                (int64_t[]){count, 1, channels}, false);
    if (node->as.tokens.class_token)
        tokens = with_class_token(onnx, node, tokens);
    (void)ONNX_PLAIN(onnx, "Add", onnx_give(onnx, CHANNELS_LAST), tokens, positions);
}

/* Writes queries, keys and values, [batch, heads, tokens, channels of a head], and sets their names. */
static void write_heads(OnnxGraph *onnx, const Node *node, const char *names[3])
{
    const int64_t heads = node->as.attention.heads, channels = operand(onnx, node, 0)->shape[3] / 3;
    const char *x = onnx_take(onnx, node->inputs[0], CHANNELS_LAST);
    const char *shape = onnx_numbers(onnx, (int64_t[]){0, 0, 3, heads, channels / heads}, 5);
    const char *first = onnx_numbers(onnx, (int64_t[]){0}, 1);
    const char *parts[] = {onnx_part(onnx, "q1"), onnx_part(onnx, "k1"), onnx_part(onnx, "v1")};
    const char *all = ONNX_PLAIN(onnx, "Reshape", onnx_part(onnx, "qkv"), x, shape);
    all = onnx_listed(onnx, "Transpose", onnx_part(onnx, "by_head"), all, "perm", (int64_t[]){2, 0, 3, 1, 4},
                      5);
    const size_t place = onnx_begin_node(onnx->wire, "Split", onnx_part(onnx, "split"), &all, 1, parts, 3);
    onnx_node_integer(onnx->wire, "axis", 0);
    wire_close(onnx->wire, place);
    names[0] = ONNX_PLAIN(onnx, "Squeeze", onnx_part(onnx, "queries"), parts[0], first);
    names[1] = ONNX_PLAIN(onnx, "Squeeze", onnx_part(onnx, "keys"), parts[1], first);
    names[2] = ONNX_PLAIN(onnx, "Squeeze", onnx_part(onnx, "values"), parts[2], first);
}

static void write_attention(OnnxGraph *onnx, const Node *node)
{
    const int64_t heads = node->as.attention.heads, channels = operand(onnx, node, 0)->shape[3] / 3;
    const char *parts[3];
    write_heads(onnx, node, parts);
    const char *scale = onnx_scalar(onnx, (float)(1 / sqrt((double)channels / (double)heads)));
    const char *shape = onnx_numbers(onnx, (int64_t[]){0, 0, 1, channels}, GRAPH_RANK_MAX);
    const char *keys = onnx_listed(onnx, "Transpose", onnx_part(onnx, "keys_turned"), parts[1], "perm",
                                   (int64_t[]){0, 1, 3, 2}, GRAPH_RANK_MAX);
    const char *queries = ONNX_PLAIN(onnx, "Mul", onnx_part(onnx, "scaled"), parts[0], scale);
    const char *products = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "products"), queries, keys);
    const char *shares = onnx_part(onnx, "shares");
    const size_t place = ONNX_BEGIN(onnx, "Softmax", shares, products);
    onnx_node_integer(onnx->wire, "axis", -1);
    wire_close(onnx->wire, place);
    const char *taken = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "taken"), shares, parts[2]);
    taken = onnx_listed(onnx, "Transpose", onnx_part(onnx, "by_token"), taken, "perm",
                        (int64_t[]){0, 2, 1, 3}, GRAPH_RANK_MAX);
    (void)ONNX_PLAIN(onnx, "Reshape", onnx_give(onnx, CHANNELS_LAST), taken, shape);
}

/* ---- self-attention ---- */

/* Writes the weight as a matrix, divided by u' weight v. */
static void write_spectral_norm(OnnxGraph *onnx, const Node *node)
{
    const Tensor *tensor = operand(onnx, node, SPECTRAL_NORM_WEIGHT);
    const int64_t rows = tensor->shape[0], columns = tensor_count(tensor) / rows;
    const char *weight =
        onnx_weight(onnx, node->inputs[SPECTRAL_NORM_WEIGHT], 2, (int64_t[]){rows, columns}, false);
    const char *u = weight_as_is(onnx, node->inputs[SPECTRAL_NORM_U]);
    const char *v = weight_as_is(onnx, node->inputs[SPECTRAL_NORM_V]);
    const char *sigma = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "weight_v"), weight, v);
    sigma = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "sigma"), u, sigma);
    (void)ONNX_PLAIN(onnx, "Div", onnx_give(onnx, CHANNELS_FIRST), weight, sigma);
}

static void write_self_attention(OnnxGraph *onnx, const Node *node)
{
    const int64_t turn[] = {0, 2, 1}, channels = operand(onnx, node, SELF_ATTENTION_X)->shape[3];
    const char *x = onnx_take(onnx, node->inputs[SELF_ATTENTION_X], CHANNELS_LAST);
    const char *weight = onnx_take(onnx, node->inputs[SELF_ATTENTION_WEIGHT], CHANNELS_FIRST);
    const char *gamma = weight_as_is(onnx, node->inputs[SELF_ATTENTION_GAMMA]);
    const char *shape = onnx_numbers(onnx, (int64_t[]){0, -1, channels}, 3);
    const char *image = ONNX_PLAIN(onnx, "Shape", onnx_part(onnx, "shape"), x);
    const char *pixels = ONNX_PLAIN(onnx, "Reshape", onnx_part(onnx, "pixels"), x, shape);
    const char *turned = onnx_listed(onnx, "Transpose", onnx_part(onnx, "turned"), pixels, "perm", turn, 3);
    const char *part = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "products"), turned, pixels);
    part = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "mixing"), part, weight);
    part = onnx_listed(onnx, "Transpose", onnx_part(onnx, "mixing_turned"), part, "perm", turn, 3);
    part = ONNX_PLAIN(onnx, "MatMul", onnx_part(onnx, "attended"), pixels, part);
    part = ONNX_PLAIN(onnx, "Mul", onnx_part(onnx, "scaled"), part, gamma);
    part = ONNX_PLAIN(onnx, "Reshape", onnx_part(onnx, "image"), part, image);
    (void)ONNX_PLAIN(onnx, "Add", onnx_give(onnx, CHANNELS_LAST), part, x);
}

/* ---- the table ---- */

static const OnnxWrite rows[OP_KIND_COUNT] = {
    [OP_NORMALIZE] = write_normalize,
    [OP_CONV2D] = write_conv2d,
    [OP_LINEAR] = write_linear,
    [OP_BATCH_NORM] = write_batch_norm,
    [OP_LAYER_NORM] = write_layer_norm,
    [OP_RESPONSE_NORM] = write_response_norm,
    [OP_RELU] = write_relu,
    [OP_GELU] = write_gelu,
    [OP_SILU] = write_silu,
    [OP_MISH] = write_mish,
    [OP_SIGMOID] = write_sigmoid,
    [OP_SCALE] = write_scale,
    [OP_ADD] = write_add,
    [OP_CHANNEL_SCALE] = write_channel_scale,
    [OP_CHANNEL_MULTIPLY] = write_channel_multiply,
    [OP_GATE] = write_gate,
    [OP_CONCAT] = write_concat,
    [OP_MAX_POOL] = write_max_pool,
    [OP_AVG_POOL] = write_avg_pool,
    [OP_GLOBAL_AVG_POOL] = write_global_avg_pool,
    [OP_REFLECTION_PAD] = write_reflection_pad,
    [OP_FLATTEN] = write_flatten,
    [OP_ZERO_PAD] = write_zero_pad,
    [OP_CROP] = write_crop,
    [OP_PIXEL_SHUFFLE] = write_pixel_shuffle,
    [OP_PIXEL_UNSHUFFLE] = write_pixel_unshuffle,
    [OP_TOKENS] = write_tokens,
    [OP_ATTENTION] = write_attention,
    [OP_SPECTRAL_NORM] = write_spectral_norm,
    [OP_SELF_ATTENTION] = write_self_attention,
};

OnnxWrite onnx_row(OpKind op)
{
    return rows[op];
}
