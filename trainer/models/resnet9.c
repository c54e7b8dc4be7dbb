/* resnet9.c - the CIFAR-10 speed net of davidcpage/cifar10-fast (dawn.py): 3x3 convolutions with batch norm
 * and ReLU of 64, 128, 256, 512 channels, the last three max pooled, a residual pair after the second and the
 * fourth; then the maximum over the remaining image (4 x 4 for 32 x 32), and a linear layer without bias,
 * times 0.125. */
#include "trainer/models/networks.h"

#include <stdio.h>

/* Adds convolution PREFIX_conv, norm PREFIX_bn, ReLU. */
static TensorId conv_bn(Graph *graph, const char *prefix, TensorId x, int64_t channels, bool training)
{
    char conv[GRAPH_NAME_MAX], norm[GRAPH_NAME_MAX];
    (void)snprintf(conv, sizeof conv, "%.64s_conv", prefix);
    (void)snprintf(norm, sizeof norm, "%.64s_bn", prefix);
    return model_conv_norm_relu(graph, conv, norm, x,
                                &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1},
                                training);
}

static TensorId residual(Graph *graph, const char *layer, TensorId input, int64_t channels, bool training)
{
    char prefix[GRAPH_NAME_MAX];
    (void)snprintf(prefix, sizeof prefix, "%.48s_residual_res1", layer);
    TensorId x = conv_bn(graph, prefix, input, channels, training);
    (void)snprintf(prefix, sizeof prefix, "%.48s_residual_res2", layer);
    return graph_add(graph, input, conv_bn(graph, prefix, x, channels, training));
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    static const struct {
        const char *name;
        int64_t channels;
        bool residual;
    } layers[] = {{"layer1", 128, true}, {"layer2", 256, false}, {"layer3", 512, true}};
    x = conv_bn(graph, "prep", x, 64, spec->training);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        x = conv_bn(graph, layers[i].name, x, layers[i].channels, spec->training);
        x = graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
        if (layers[i].residual)
            x = residual(graph, layers[i].name, x, layers[i].channels, spec->training);
    }
    x = graph_linear(graph, "linear", model_image_maximum(graph, x), spec->classes, false);
    return graph_scale(graph, x, 0.125F);
}

static const char *const block_names[] = {"layer#", NULL};

const Model resnet9_models[] = {
    {.name = "resnet9",
     .summary = "the CIFAR-10 speed net (davidcpage/cifar10-fast)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build,
     .blocks = block_names},
    {0},
};
