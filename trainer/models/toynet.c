/* toynet.c - Toy_Net of Lance0218/Pytorch-DistributedDataParallel-Training-Tricks: two pairs of unpadded 3x3
 * convolutions with batch norm and ReLU (64, 128, max pool, 256, 512, max pool), linear to 512, batch norm,
 * ReLU, linear. Images of at least 16 pixels. */
#include "trainer/models/networks.h"

#include <stdio.h>

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    static const struct {
        int64_t channels;
        bool pool;
    } layers[] = {{64, false}, {128, true}, {256, false}, {512, true}};
    char conv[GRAPH_NAME_MAX], norm[GRAPH_NAME_MAX];
    int module = 0; /* index within the nn.Sequential "conv": convolution, norm, ReLU, pool */
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        (void)snprintf(conv, sizeof conv, "conv.%d", module);
        (void)snprintf(norm, sizeof norm, "conv.%d", module + 1);
        x = model_conv_norm_relu(
            graph, conv, norm, x,
            &(Conv2d){.channels = layers[i].channels, .kernel = 3, .stride = 1, .bias = true},
            spec->training);
        module += 3;
        if (layers[i].pool) {
            x = graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
            module++;
        }
    }
    x = graph_linear(graph, "dense.1", graph_flatten(graph, x), 512, true);
    x = graph_relu(graph, graph_batch_norm(graph, "dense.2", x, &(BatchNorm){.training = spec->training}));
    return graph_linear(graph, "dense.4", x, spec->classes, true);
}

const Model toynet_models[] = {
    {.name = "toynet",
     .summary = "four 3x3 convolutions for MNIST (Lance0218's DDP training tricks)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build},
    {0},
};
