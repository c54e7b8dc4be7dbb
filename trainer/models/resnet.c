#include "trainer/models/networks.h"

#include <stdio.h>

/* PREFIX.SUFFIX into name. */
static const char *join(char name[GRAPH_NAME_MAX], const char *prefix, const char *suffix)
{
    (void)snprintf(name, GRAPH_NAME_MAX, "%.48s.%.40s", prefix, suffix);
    return name;
}

static TensorId conv_norm(Graph *graph, const char *prefix, const char *conv, const char *norm, TensorId x,
                          const Conv2d *options, bool training)
{
    char name[GRAPH_NAME_MAX];
    Conv2d with_init = *options;
    with_init.init = CONV_INIT_KAIMING_FAN_OUT;
    x = graph_conv2d(graph, join(name, prefix, conv), x, &with_init);
    return graph_batch_norm(graph, join(name, prefix, norm), x, &(BatchNorm){.training = training});
}

/* torchvision's BasicBlock: 3x3/stride, 3x3, and the input (through a 1x1/stride where the shape changes)
 * added. */
static TensorId basic_block(Graph *graph, const char *prefix, TensorId x, int64_t channels, int64_t stride,
                            bool project, bool training)
{
    TensorId shortcut = x;
    x = conv_norm(graph, prefix, "conv1", "bn1", x,
                  &(Conv2d){.channels = channels, .kernel = 3, .stride = stride, .padding = 1}, training);
    x = graph_relu(graph, x);
    x = conv_norm(graph, prefix, "conv2", "bn2", x,
                  &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1}, training);
    if (project)
        shortcut = conv_norm(graph, prefix, "downsample.0", "downsample.1", shortcut,
                             &(Conv2d){.channels = channels, .kernel = 1, .stride = stride}, training);
    return graph_relu(graph, graph_add(graph, x, shortcut));
}

TensorId resnet18_build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    enum { STAGES = 4, BLOCKS = 2 };
    char name[GRAPH_NAME_MAX];
    x = graph_conv2d(
        graph, "conv1", x,
        &(Conv2d){.channels = 64, .kernel = 7, .stride = 2, .padding = 3, .init = CONV_INIT_KAIMING_FAN_OUT});
    x = graph_batch_norm(graph, "bn1", x, &(BatchNorm){.training = spec->training});
    x = graph_relu(graph, x);
    x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    for (int stage = 0; stage < STAGES; stage++)
        for (int block = 0; block < BLOCKS; block++) {
            const bool first = block == 0 && stage > 0;
            (void)snprintf(name, sizeof name, "layer%d.%d", stage + 1, block);
            x = basic_block(graph, name, x, INT64_C(64) << stage, first ? 2 : 1, first, spec->training);
        }
    x = graph_global_avg_pool(graph, x);
    return graph_linear(graph, "fc", x, spec->classes, true);
}
