/* ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s") as timm has it, with its names, shapes and first
 * weights (timm/models/convnext.py): weights of timm load, and timm loads ours. A stem of 4x4/4 convolution
 * and norm; four stages, each but the first after a norm and a 2x2/2 convolution; global average pool,
 * "head.norm", "head.fc". A block is a depthwise 7x7, a norm over the channels, 1x1 to four times the
 * channels, GELU, 1x1 back, times "gamma", added to its input; that of V2 (Woo et al. 2023) has a response
 * norm behind the GELU in place of "gamma". Images of at least 32 pixels. */
#include "trainer/models/networks.h"

#include <stdio.h>

static const ModelOption *const options[] = {&model_drop_path, NULL};

enum { STAGES = 4, EXPANSION = 4 };
static const double epsilon = 1e-6, deviation = 0.02, first_gamma = 1e-6;

/* The channels and blocks of each stage. */
typedef struct Convnext {
    int64_t channels[STAGES];
    int blocks[STAGES];
    bool second; /* V2: a response norm in each block, no gamma */
    bool linear; /* the 1x1 convolutions are nn.Linear there: files have their weights as matrices */
} Convnext;

/* Appends a convolution with timm's first weights. */
static TensorId conv(Graph *graph, const char *name, TensorId x, const Conv2d *conv2d)
{
    char parameter[GRAPH_NAME_MAX];
    x = graph_conv2d(graph, name, x, conv2d);
    graph_set_initializer(graph, model_join(parameter, name, "weight"),
                          (Initializer){INIT_NORMAL, deviation});
    graph_set_initializer(graph, model_join(parameter, name, "bias"), (Initializer){INIT_ZEROS, 0});
    return x;
}

static TensorId pointwise(Graph *graph, const Convnext *net, const char *prefix, const char *suffix,
                          TensorId x, int64_t channels)
{
    char name[GRAPH_NAME_MAX], weight[GRAPH_NAME_MAX];
    model_join(name, prefix, suffix);
    x = conv(graph, name, x, &(Conv2d){.channels = channels, .kernel = 1, .stride = 1, .bias = true});
    if (net->linear)
        graph_save_without_ones(graph, model_join(weight, name, "weight"));
    return x;
}

/* Appends a block. dropped: the probability that it is left out. */
static TensorId block(Graph *graph, const Convnext *net, const char *prefix, TensorId input, int64_t channels,
                      double dropped)
{
    char name[GRAPH_NAME_MAX];
    TensorId x = conv(
        graph, model_join(name, prefix, "conv_dw"), input,
        &(Conv2d){
            .channels = channels, .kernel = 7, .stride = 1, .padding = 3, .bias = true, .groups = channels});
    x = graph_layer_norm(graph, model_join(name, prefix, "norm"), x, epsilon);
    x = graph_gelu(graph, pointwise(graph, net, prefix, "mlp.fc1", x, EXPANSION * channels));
    if (net->second)
        x = graph_response_norm(graph, model_join(name, prefix, "mlp.grn"), x, epsilon);
    x = pointwise(graph, net, prefix, "mlp.fc2", x, channels);
    if (net->second)
        return graph_add(graph, graph_drop_path(graph, model_join(name, prefix, "drop_path"), x, dropped),
                         input);
    x = graph_channel_scale(graph, prefix, "gamma", x, dropped > 0 ? TENSOR_NONE : input);
    graph_set_initializer(graph, model_join(name, prefix, "gamma"),
                          (Initializer){INIT_CONSTANT, first_gamma});
    graph_save_without_ones(graph, name);
    if (dropped > 0)
        x = graph_add(graph, graph_drop_path(graph, model_join(name, prefix, "drop_path"), x, dropped),
                      input);
    return x;
}

static TensorId downsample(Graph *graph, int stage, TensorId x, int64_t channels)
{
    char name[GRAPH_NAME_MAX];
    (void)snprintf(name, sizeof name, "stages.%d.downsample.0", stage);
    x = graph_layer_norm(graph, name, x, epsilon);
    (void)snprintf(name, sizeof name, "stages.%d.downsample.1", stage);
    return conv(graph, name, x, &(Conv2d){.channels = channels, .kernel = 2, .stride = 2, .bias = true});
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, const Convnext *net)
{
    const double last_dropped = spec->training ? model_real(spec, &model_drop_path, 0) : 0;
    int blocks = 0, made = 0;
    char prefix[GRAPH_NAME_MAX];
    for (int stage = 0; stage < STAGES; stage++)
        blocks += net->blocks[stage];
    x = conv(graph, "stem.0", x,
             &(Conv2d){.channels = net->channels[0], .kernel = 4, .stride = 4, .bias = true});
    x = graph_layer_norm(graph, "stem.1", x, epsilon);
    for (int stage = 0; stage < STAGES; stage++) {
        if (stage)
            x = downsample(graph, stage, x, net->channels[stage]);
        for (int i = 0; i < net->blocks[stage]; i++, made++) {
            (void)snprintf(prefix, sizeof prefix, "stages.%d.blocks.%d", stage, i);
            x = block(graph, net, prefix, x, net->channels[stage], last_dropped * made / (blocks - 1));
        }
    }
    x = graph_layer_norm(graph, "head.norm", graph_global_avg_pool(graph, x), epsilon);
    x = graph_linear(graph, "head.fc", x, spec->classes, true);
    graph_set_initializer(graph, "head.fc.weight", (Initializer){INIT_NORMAL, deviation});
    graph_set_initializer(graph, "head.fc.bias", (Initializer){INIT_ZEROS, 0});
    return x;
}

#define SMALL(...) .channels = {__VA_ARGS__}, .blocks = {2, 2, 6, 2}
#define NANO       .channels = {80, 160, 320, 640}, .blocks = {2, 2, 8, 2}
#define TINY       .channels = {96, 192, 384, 768}, .blocks = {3, 3, 9, 3}, .linear = true
#define LARGE(...) .channels = {__VA_ARGS__}, .blocks = {3, 3, 27, 3}, .linear = true

#define BUILDER(name, ...)                                                                                   \
    static TensorId build_##name(Graph *graph, TensorId x, const ModelSpec *spec)                            \
    {                                                                                                        \
        return build(graph, x, spec, &(Convnext){__VA_ARGS__});                                              \
    }
BUILDER(convnext_atto, SMALL(40, 80, 160, 320))
BUILDER(convnext_femto, SMALL(48, 96, 192, 384))
BUILDER(convnext_pico, SMALL(64, 128, 256, 512))
BUILDER(convnext_nano, NANO)
BUILDER(convnext_tiny, TINY)
BUILDER(convnext_small, LARGE(96, 192, 384, 768))
BUILDER(convnext_base, LARGE(128, 256, 512, 1024))
BUILDER(convnext_large, LARGE(192, 384, 768, 1536))
BUILDER(convnext_xlarge, LARGE(256, 512, 1024, 2048))
BUILDER(convnextv2_atto, SMALL(40, 80, 160, 320), .second = true)
BUILDER(convnextv2_femto, SMALL(48, 96, 192, 384), .second = true)
BUILDER(convnextv2_pico, SMALL(64, 128, 256, 512), .second = true)
BUILDER(convnextv2_nano, NANO, .second = true)
BUILDER(convnextv2_tiny, TINY, .second = true)
BUILDER(convnextv2_small, LARGE(96, 192, 384, 768), .second = true)
BUILDER(convnextv2_base, LARGE(128, 256, 512, 1024), .second = true)
BUILDER(convnextv2_large, LARGE(192, 384, 768, 1536), .second = true)
BUILDER(convnextv2_huge, LARGE(352, 704, 1408, 2816), .second = true)

static const char *const block_names[] = {"stages.#.blocks.#", NULL};

#define ROW(id, text)                                                                                        \
    {                                                                                                        \
        .name = #id, .summary = (text), .task = TASK_CLASSIFICATION, .build = build_##id,                    \
        .options = options, .blocks = block_names, .recipe = "convnext"                                      \
    }
const Model convnext_models[] = {
    ROW(convnext_atto, "ConvNeXt, 3.7 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_femto, "ConvNeXt, 5.2 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_pico, "ConvNeXt, 9.0 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_nano, "ConvNeXt, 15.6 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_tiny, "ConvNeXt, 28.6 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_small, "ConvNeXt, 50.2 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_base, "ConvNeXt, 88.6 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_large, "ConvNeXt, 197.8 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnext_xlarge, "ConvNeXt, 350.2 M parameters (Liu et al. 2022, timm's)"),
    ROW(convnextv2_atto, "ConvNeXt V2, 3.7 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_femto, "ConvNeXt V2, 5.2 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_pico, "ConvNeXt V2, 9.1 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_nano, "ConvNeXt V2, 15.6 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_tiny, "ConvNeXt V2, 28.6 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_small, "ConvNeXt V2, 50.3 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_base, "ConvNeXt V2, 88.7 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_large, "ConvNeXt V2, 198.0 M parameters (Woo et al. 2023, timm's)"),
    ROW(convnextv2_huge, "ConvNeXt V2, 660.3 M parameters (Woo et al. 2023, timm's)"),
    {0},
};
