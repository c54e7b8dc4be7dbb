#include "tests/trainer/op_cases.h"

static TensorId activated(Graph *graph, const OpOptions *options, TensorId x)
{
    switch (options->function) {
    case OP_GELU:
        return graph_gelu(graph, x);
    case OP_SILU:
        return graph_silu(graph, x);
    case OP_MISH:
        return graph_mish(graph, x);
    default:
        return options->relu ? graph_leaky_relu(graph, x, options->slope) : x;
    }
}

TensorId build_conv2d(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return activated(graph, options, graph_conv2d(graph, "layer", x, &options->conv));
}

TensorId build_conv2d_relu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    return graph_relu(graph, build_conv2d(graph, options, x, other));
}

/* Appends a convolution and a steep leaky ReLU: where a pass of its own adds the bias to rounded values, a
 * sign near 0 may differ, which moves a gradient by little. */
TensorId build_conv2d_leaky_relu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    return graph_leaky_relu(graph, build_conv2d(graph, options, x, other), 0.9375F);
}

/* Appends a convolution whose weight is not trained. */
TensorId build_conv2d_frozen(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    x = build_conv2d(graph, options, x, other);
    graph_freeze(graph, graph_find(graph, "layer.weight"));
    return x;
}

TensorId build_linear(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear(graph, "layer", x, options->conv.channels, options->conv.bias);
}

TensorId build_linear_1x1(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear_1x1(graph, "layer", x, options->conv.channels, options->conv.bias);
}

/* Appends a linear layer of as many channels as x, whose result the other is added to, from either side. */
TensorId build_linear_add(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    const Tensor *tensor = graph_tensor(graph, x);
    const TensorId y = graph_linear(graph, "layer", x, tensor->shape[tensor->rank - 1], options->conv.bias);
    return options->conv.bias ? graph_add(graph, y, other) : graph_add(graph, other, y);
}

TensorId build_three_linears(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    x = graph_linear(graph, "hidden", x, 19, true);
    x = graph_linear(graph, "wide", x, 72, false);
    return graph_linear_1x1(graph, "layer", x, 3, true);
}

TensorId build_flatten_linear(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    return build_linear(graph, options, graph_flatten(graph, x), other);
}

TensorId build_batch_norm(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    TensorId y = graph_batch_norm(graph, "layer", x, &options->norm);
    if (other != TENSOR_NONE)
        y = graph_add(graph, y, other);
    return activated(graph, options, y);
}

/* Appends a batch norm and a max pool of its result, few values of which are enough for FUSE_NORM_POOL. */
TensorId build_norm_pool(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    graph_set_pool_least(graph, 1);
    return graph_max_pool(graph, build_batch_norm(graph, options, x, other), &options->pool);
}

/* Appends a batch norm whose weight is not trained. */
TensorId build_batch_norm_unscaled(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    x = build_batch_norm(graph, options, x, other);
    graph_freeze(graph, graph_find(graph, "layer.weight"));
    return x;
}

TensorId build_add_batch_norm(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    return graph_add(graph, other, graph_batch_norm(graph, "layer", x, &options->norm));
}

/* Appends a batch norm, squeeze and excitation of it, and what follows a block. */
TensorId build_norm_squeeze_excite(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    TensorId y = graph_batch_norm(graph, "layer", x, &options->norm);
    TensorId s = graph_linear(graph, "squeeze", graph_global_avg_pool(graph, y), 8, true);
    s = graph_linear(graph, "excite", graph_silu(graph, s), graph_tensor(graph, x)->shape[3], true);
    y = graph_channel_multiply(graph, y, graph_sigmoid(graph, s));
    if (other != TENSOR_NONE)
        y = graph_add(graph, other, y);
    return activated(graph, options, y);
}

TensorId build_layer_norm(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    TensorId y = graph_layer_norm(graph, "layer", x, options->norm.epsilon);
    return other == TENSOR_NONE ? y : graph_add(graph, y, other);
}

TensorId build_response_norm(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_response_norm(graph, "layer", x, options->norm.epsilon);
}

TensorId build_relu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_leaky_relu(graph, x, options->slope);
}

TensorId build_gelu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_gelu(graph, x);
}

TensorId build_silu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_silu(graph, x);
}

TensorId build_mish(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_mish(graph, x);
}

/* Appends what squeeze and excitation ends in. */
TensorId build_multiply_by_sigmoid(Graph *graph, const OpOptions *options, TensorId x, TensorId factors)
{
    (void)options;
    return graph_channel_multiply(graph, x, graph_sigmoid(graph, factors));
}

TensorId build_add(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    return graph_add(graph, graph_add(graph, x, other), x);
}

/* Appends the sum of x and x scaled, so that the gradient of x is a sum, too. */
TensorId build_add_scaled(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_add(graph, graph_scale(graph, x, options->slope), x);
}

TensorId build_add_twice(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_add(graph, x, x);
}

TensorId build_add_thrice(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_add(graph, graph_add(graph, x, graph_relu(graph, x)), x);
}

TensorId build_max_pool(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_max_pool(graph, x, &options->pool);
}

/* Appends a max pool after a ReLU, so that windows are full of equal maxima. */
TensorId build_max_pool_of_relu(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    return build_max_pool(graph, options, graph_relu(graph, x), other);
}

TensorId build_avg_pool(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_avg_pool(graph, x, &options->pool);
}

TensorId build_global_avg_pool(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_global_avg_pool(graph, x);
}

TensorId build_reflection_pad(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_reflection_pad(graph, x, options->pool.padding);
}

TensorId build_flatten(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_flatten(graph, x);
}

TensorId build_zero_pad(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    const int64_t *s = graph_tensor(graph, x)->shape, *by = options->box;
    (void)other;
    return graph_zero_pad(graph, x, s[1] + by[0], s[2] + by[1], s[3] + by[2]);
}

/* Crops x by the box, where at least one row and one column stay. */
TensorId build_crop(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    const int64_t *s = graph_tensor(graph, x)->shape, *by = options->box;
    (void)other;
    return graph_crop(graph, x, s[1] > by[0] ? s[1] - by[0] : s[1], s[2] > by[1] ? s[2] - by[1] : s[2]);
}

TensorId build_concat(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    return graph_concat(graph, x, other);
}

/* Appends tokens whose parameters are drawn. */
static TensorId tokens_of(Graph *graph, TensorId x, bool class_token, bool sines)
{
    x = graph_tokens(graph, x, class_token, sines);
    if (class_token)
        graph_set_initializer(graph, "cls_token", (Initializer){INIT_ZEROS, 0});
    if (!sines)
        graph_set_initializer(graph, "pos_embed", (Initializer){INIT_ZEROS, 0});
    return x;
}

TensorId build_tokens(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return tokens_of(graph, x, true, false);
}

TensorId build_tokens_of_frozen_class(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    const TensorId y = build_tokens(graph, options, x, other);
    graph_freeze(graph, graph_find(graph, "cls_token"));
    return y;
}

TensorId build_tokens_without_class(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return tokens_of(graph, x, false, false);
}

TensorId build_tokens_of_sines(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return tokens_of(graph, x, false, true);
}

TensorId build_tokens_of_sines_with_class(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return tokens_of(graph, x, true, true);
}

TensorId build_attention(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_attention(graph, x, options->heads);
}

TensorId build_self_attention(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    const int64_t channels = graph_tensor(graph, x)->shape[3];
    const TensorId weight =
        graph_spectral_norm(graph, "layer.conv", channels, channels, options->norm.training);
    return graph_self_attention(graph, "layer", x, weight);
}

TensorId build_self_attention_of_frozen_weight(Graph *graph, const OpOptions *options, TensorId x,
                                               TensorId other)
{
    x = build_self_attention(graph, options, x, other);
    graph_freeze(graph, graph_find(graph, "layer.conv.weight_orig"));
    return x;
}

TensorId build_pixel_shuffle(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_pixel_shuffle(graph, x, options->factor);
}

TensorId build_pixel_unshuffle(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_pixel_unshuffle(graph, x, options->factor);
}

TensorId build_scale(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)other;
    return graph_scale(graph, x, options->slope);
}

/* Appends a channel scale whose addend is scaled, so that the addend's gradient is not dy itself. */
TensorId build_channel_scale(Graph *graph, const OpOptions *options, TensorId x, TensorId addend)
{
    (void)options;
    return graph_channel_scale(graph, "layer", "beta", x,
                               addend == TENSOR_NONE ? addend : graph_scale(graph, addend, 0.5F));
}

TensorId build_channel_multiply(Graph *graph, const OpOptions *options, TensorId x, TensorId factors)
{
    (void)options;
    return graph_channel_multiply(graph, x, factors);
}

TensorId build_gate(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    return graph_gate(graph, x);
}

TensorId build_gate_of_means(Graph *graph, const OpOptions *options, TensorId x, TensorId other)
{
    (void)options;
    (void)other;
    x = graph_gate(graph, x);
    const TensorId s =
        graph_linear(graph, "layer", graph_global_avg_pool(graph, x), graph_tensor(graph, x)->shape[3], true);
    return graph_channel_multiply(graph, x, s);
}

TensorId build_gate_of_factors(Graph *graph, const OpOptions *options, TensorId x, TensorId factors)
{
    (void)options;
    return graph_channel_multiply(graph, graph_gate(graph, graph_concat(graph, x, x)), factors);
}

TensorId build_softmax_cross_entropy(Graph *graph, const OpOptions *options, TensorId x, TensorId labels)
{
    return graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, options->slope);
}
