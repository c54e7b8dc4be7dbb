#include "trainer/models/networks.h"

#include <stdio.h>
#include <string.h>

const char *model_join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix)
{
    (void)snprintf(name, GRAPH_NAME_MAX, "%.48s.%.40s", prefix, suffix);
    return name;
}

TensorId model_conv_norm_relu(Graph *graph, const char *conv_name, const char *norm_name, TensorId x,
                              const Conv2d *conv, bool training)
{
    x = graph_conv2d(graph, conv_name, x, conv);
    x = graph_batch_norm(graph, norm_name, x, &(BatchNorm){.training = training});
    return graph_relu(graph, x);
}

TensorId model_activate(Graph *graph, ModelActivation activation, TensorId x)
{
    static TensorId (*const functions[])(Graph *, TensorId) = {[MODEL_RELU] = graph_relu,
                                                               [MODEL_SILU] = graph_silu,
                                                               [MODEL_GELU] = graph_gelu,
                                                               [MODEL_MISH] = graph_mish};
    return functions[activation](graph, x);
}

TensorId model_squeeze_excite(Graph *graph, const char *first, const char *second, TensorId x,
                              int64_t reduced, ModelActivation activation)
{
    if (x == TENSOR_NONE)
        return x;
    const int64_t channels = graph_tensor(graph, x)->shape[3];
    TensorId s = graph_linear_1x1(graph, first, graph_global_avg_pool(graph, x), reduced, true);
    s = graph_linear_1x1(graph, second, model_activate(graph, activation, s), channels, true);
    return graph_channel_multiply(graph, x, graph_sigmoid(graph, s));
}

TensorId model_blur_pool(Graph *graph, TensorId x)
{
    x = graph_avg_pool(graph, graph_reflection_pad(graph, x, 1), &(Pool2d){.kernel = 2, .stride = 1});
    return graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
}

TensorId model_blur(Graph *graph, TensorId x)
{
    x = graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 1, .padding = 1});
    return graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 1});
}

TensorId model_stem_pool(Graph *graph, TensorId x, bool blur)
{
    x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = blur ? 1 : 2, .padding = 1});
    return blur ? model_blur_pool(graph, x) : x;
}

TensorId model_image_maximum(Graph *graph, TensorId x)
{
    enum { KERNEL_MAX = 15 };
    for (;;) {
        if (x == TENSOR_NONE)
            return x;
        const int64_t height = graph_tensor(graph, x)->shape[1], width = graph_tensor(graph, x)->shape[2];
        const int64_t smaller = height < width ? height : width;
        if (smaller == 1)
            return graph_global_avg_pool(graph, x);
        if (smaller <= KERNEL_MAX)
            x = graph_max_pool(graph, x, &(Pool2d){.kernel = smaller, .stride = smaller});
        else /* of an odd size: padding has no values, so windows at the edge are smaller */
            x = graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2, .padding = smaller % 2});
    }
}

const ModelOption model_act_layer = {.row = {.name = "act-layer",
                                             .kind = OPTION_TEXT,
                                             .argument = "NAME",
                                             .help = "resnet, xresnet: activation: relu, silu, gelu, mish"}};
const ModelOption model_aa_layer = {
    .row = {.name = "aa-layer",
            .kind = OPTION_TEXT,
            .argument = "none|blur",
            .help = "resnet: images are halved by blur pools, not by strides; xresnet: that of the stem"}};
const ModelOption model_drop_path = {
    .row = {.name = "drop-path",
            .alias = "drop-path-rate",
            .kind = OPTION_REAL,
            .argument = "P",
            .maximum = 0.99,
            .help =
                "resnet, convnext, vit: probability that training leaves the last block out for a sample; it "
                "grows along the blocks from 0"},
    .trains_only = true};

bool model_activation(Graph *graph, const ModelSpec *spec, ModelActivation *activation_ret)
{
    static const char *const names[] = {"relu", "silu", "gelu", "mish"};
    const char *name = model_text(spec, &model_act_layer, names[MODEL_RELU]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *activation_ret = (ModelActivation)i;
            return true;
        }
    graph_refuse(graph, "--act-layer is \"%.32s\"; it must be relu, silu, gelu or mish", name);
    return false;
}

bool model_is_chosen(Graph *graph, const ModelSpec *spec, const ModelOption *option, const char *fallback,
                     bool *is_second_ret)
{
    const char *values = option->row.argument, *second = strchr(values, '|') + 1;
    const size_t first_bytes = (size_t)(second - 1 - values);
    const char *value = model_text(spec, option, fallback);
    *is_second_ret = value && strcmp(value, second) == 0;
    if (!value || *is_second_ret || (strlen(value) == first_bytes && memcmp(value, values, first_bytes) == 0))
        return true;
    graph_refuse(graph, "--%s is \"%.32s\"; it must be %.*s or %s", option->row.name, value, (int)first_bytes,
                 values, second);
    return false;
}

const ModelOption model_width = {.row = {.name = "width",
                                         .kind = OPTION_INTEGER,
                                         .argument = "N",
                                         .maximum = 1024,
                                         .help = "unet, nafnet: channels of the first level; 0: 32"}};
