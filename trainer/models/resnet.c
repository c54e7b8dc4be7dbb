/* resnet.c - torchvision's ResNets, v1.5 (the stride of a bottleneck is in its 3x3): stem 7x7/2 and max pool
 * 3x3/2, four stages of basic blocks (18, 34) or bottlenecks (50, 101), global average pool, "fc". */
#include "trainer/models/networks.h"

#include <stdio.h>

enum { STAGES = 4 };

/* The depth of each stage, and the kind of its blocks. */
typedef struct Resnet {
    int blocks[STAGES];
    bool bottleneck;
} Resnet;

static TensorId conv_norm(Graph *graph, const char *prefix, const char *conv, const char *norm, TensorId x,
                          const Conv2d *options, bool training)
{
    char name[GRAPH_NAME_MAX];
    Conv2d with_init = *options;
    with_init.init = CONV_INIT_KAIMING_FAN_OUT;
    x = graph_conv2d(graph, model_join(name, prefix, conv), x, &with_init);
    return graph_batch_norm(graph, model_join(name, prefix, norm), x, &(BatchNorm){.training = training});
}

/* One block of the network. */
typedef struct Block {
    const char *prefix; /* "layer1.0" */
    int64_t channels;   /* of the 3x3 convolutions */
    int64_t stride;
    bool project; /* the shortcut has a 1x1/stride convolution */
    bool training;
} Block;

static TensorId shortcut_of(Graph *graph, const Block *block, TensorId x, int64_t channels)
{
    if (!block->project)
        return x;
    return conv_norm(graph, block->prefix, "downsample.0", "downsample.1", x,
                     &(Conv2d){.channels = channels, .kernel = 1, .stride = block->stride}, block->training);
}

/* Builds torchvision's BasicBlock: 3x3/stride, 3x3, and the shortcut added. */
static TensorId basic_block(Graph *graph, const Block *block, TensorId input)
{
    const int64_t channels = block->channels;
    TensorId x = conv_norm(
        graph, block->prefix, "conv1", "bn1", input,
        &(Conv2d){.channels = channels, .kernel = 3, .stride = block->stride, .padding = 1}, block->training);
    x = graph_relu(graph, x);
    x = conv_norm(graph, block->prefix, "conv2", "bn2", x,
                  &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1}, block->training);
    return graph_relu(graph, graph_add(graph, x, shortcut_of(graph, block, input, channels)));
}

/* Builds torchvision's Bottleneck: 1x1, 3x3/stride, 1x1 to four times the channels, and the shortcut
 * added. */
static TensorId bottleneck(Graph *graph, const Block *block, TensorId input)
{
    const int64_t channels = block->channels;
    TensorId x = conv_norm(graph, block->prefix, "conv1", "bn1", input,
                           &(Conv2d){.channels = channels, .kernel = 1, .stride = 1}, block->training);
    x = graph_relu(graph, x);
    x = conv_norm(graph, block->prefix, "conv2", "bn2", x,
                  &(Conv2d){.channels = channels, .kernel = 3, .stride = block->stride, .padding = 1},
                  block->training);
    x = graph_relu(graph, x);
    x = conv_norm(graph, block->prefix, "conv3", "bn3", x,
                  &(Conv2d){.channels = 4 * channels, .kernel = 1, .stride = 1}, block->training);
    return graph_relu(graph, graph_add(graph, x, shortcut_of(graph, block, input, 4 * channels)));
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, const Resnet *resnet)
{
    char prefix[GRAPH_NAME_MAX];
    x = model_conv_norm_relu(
        graph, "conv1", "bn1", x,
        &(Conv2d){.channels = 64, .kernel = 7, .stride = 2, .padding = 3, .init = CONV_INIT_KAIMING_FAN_OUT},
        spec->training);
    x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < resnet->blocks[stage]; i++) {
            (void)snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, i);
            const Block block = {.prefix = prefix,
                                 .channels = INT64_C(64) << stage,
                                 .stride = i == 0 && stage > 0 ? 2 : 1,
                                 .project = i == 0 && (stage > 0 || resnet->bottleneck),
                                 .training = spec->training};
            x = resnet->bottleneck ? bottleneck(graph, &block, x) : basic_block(graph, &block, x);
        }
    x = graph_global_avg_pool(graph, x);
    return graph_linear(graph, "fc", x, spec->classes, true);
}

static TensorId build_18(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Resnet){{2, 2, 2, 2}, false});
}

static TensorId build_34(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Resnet){{3, 4, 6, 3}, false});
}

static TensorId build_50(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Resnet){{3, 4, 6, 3}, true});
}

static TensorId build_101(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Resnet){{3, 4, 23, 3}, true});
}

const Model resnet_models[] = {
    {.name = "resnet18",
     .summary = "ResNet-18 (He et al. 2015, torchvision's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_18},
    {.name = "resnet34",
     .summary = "ResNet-34 (He et al. 2015, torchvision's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_34},
    {.name = "resnet50",
     .summary = "ResNet-50 v1.5 (He et al. 2015, torchvision's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_50},
    {.name = "resnet101",
     .summary = "ResNet-101 v1.5 (He et al. 2015, torchvision's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_101},
    {0},
};
