/* conv8.c - the net of suiyizhao/Pytorch-speedup (src/train.py): eight times reflection pad 1, convolution
 * 3x3, batch norm, leaky ReLU 0.2; channels 3, 3, 8, 8, 16, 16, 32, 32; strides 2, 1, 2, 1, 2, 1, 2, 1; then
 * a linear layer. It is one nn.Sequential named "model", so the convolutions are "model.1", "model.5", …, the
 * norms "model.2", "model.6", …, and the linear layer "model.33". Images have at least 17 pixels; from 17 to
 * 32 pixels the linear layer has 128 inputs. */
#include "trainer/models/networks.h"

#include <stdio.h>

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    static const struct {
        int64_t channels, stride;
    } layers[] = {{3, 2}, {3, 1}, {8, 2}, {8, 1}, {16, 2}, {16, 1}, {32, 2}, {32, 1}};
    char name[GRAPH_NAME_MAX];
    int module = 0; /* index within the nn.Sequential: pad, convolution, norm, activation */
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++, module += 4) {
        x = graph_reflection_pad(graph, x, 1);
        (void)snprintf(name, sizeof name, "model.%d", module + 1);
        x = graph_conv2d(graph, name, x,
                         &(Conv2d){.channels = layers[i].channels,
                                   .kernel = 3,
                                   .stride = layers[i].stride,
                                   .bias = true,
                                   .init = CONV_INIT_XAVIER_NORMAL});
        (void)snprintf(name, sizeof name, "model.%d", module + 2);
        x = graph_batch_norm(graph, name, x, &(BatchNorm){.training = spec->training});
        x = graph_leaky_relu(graph, x, 0.2F);
    }
    x = graph_flatten(graph, x);
    x = graph_linear(graph, "model.33", x, spec->classes, true);
    graph_set_initializer(graph, "model.33.weight", (Initializer){INIT_NORMAL, 0.01});
    graph_set_initializer(graph, "model.33.bias", (Initializer){INIT_ZEROS, 0});
    return x;
}

const Model conv8_models[] = {
    {.name = "conv8",
     .summary =
         "eight 3x3 convolutions with reflection padding (suiyizhao/Pytorch-speedup), for small images",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build},
    {0},
};
