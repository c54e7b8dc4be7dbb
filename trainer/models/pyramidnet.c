/* pyramidnet.c - PyramidNet (Han et al. 2016) as in dnddnjs/pytorch-multigpu for CIFAR-10: 3x3 to 16 channels
 * and batch norm, then three stages of (depth - 2) / 6 - 1 blocks (17 of depth 110: one less than the
 * paper's) BN-conv-BN-ReLU-conv-BN, each with alpha / (3 * (depth - 2) / 6) channels more than the one before
 * it; the shortcut is padded with zeros and, at stride 2, average pooled. Height and width must be multiples
 * of 4. */
#include "trainer/models/networks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const ModelOption depth_option = {
    .row = {.name = "depth",
            .kind = OPTION_INTEGER,
            .argument = "N",
            .maximum = 1202,
            .help = "pyramidnet: layers, 2 more than a multiple of 6; 0: 110"}};
static const ModelOption alpha_option = {
    .row = {.name = "alpha",
            .kind = OPTION_INTEGER,
            .argument = "N",
            .maximum = 1000,
            .help = "pyramidnet: channels added from the first block to the last; 0: 270"}};
static const ModelOption *const options[] = {&depth_option, &alpha_option, NULL};

enum { STAGES = 3, DEPTH = 110, ALPHA = 270, FIRST_CHANNELS = 16, SIZE_MULTIPLE = 4 };

static TensorId conv3x3(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t stride)
{
    return graph_conv2d(graph, name, x,
                        &(Conv2d){.channels = channels,
                                  .kernel = 3,
                                  .stride = stride,
                                  .padding = 1,
                                  .init = CONV_INIT_KAIMING_FAN_OUT});
}

static TensorId block(Graph *graph, const char *prefix, TensorId input, int64_t channels, int64_t stride,
                      bool training)
{
    const BatchNorm norm = {.training = training};
    char name[GRAPH_NAME_MAX];
    TensorId x = graph_batch_norm(graph, model_join(name, prefix, "bn1"), input, &norm);
    x = conv3x3(graph, model_join(name, prefix, "conv1"), x, channels, stride);
    x = graph_relu(graph, graph_batch_norm(graph, model_join(name, prefix, "bn2"), x, &norm));
    x = conv3x3(graph, model_join(name, prefix, "conv2"), x, channels, 1);
    x = graph_batch_norm(graph, model_join(name, prefix, "bn3"), x, &norm);
    /* The source pads and then pools; zeros stay zeros. */
    TensorId shortcut =
        stride == 2 ? graph_avg_pool(graph, input, &(Pool2d){.kernel = 2, .stride = 2}) : input;
    if (x == TENSOR_NONE)
        return x;
    const Tensor *result = graph_tensor(graph, x);
    shortcut = graph_zero_pad(graph, shortcut, result->shape[1], result->shape[2], channels);
    return graph_add(graph, x, shortcut);
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    const int64_t depth = model_integer(spec, &depth_option, DEPTH);
    const int64_t alpha = model_integer(spec, &alpha_option, ALPHA);
    const int64_t layers = (depth - 2) / 6;
    if (depth < 14 || (depth - 2) % 6 || alpha < 1)
        return graph_refuse(graph,
                            "depth %" PRId64 ", alpha %" PRId64
                            "; the depth must be 6 n + 2 and at least 14, "
                            "alpha at least 1",
                            depth, alpha);
    if (spec->height % SIZE_MULTIPLE || spec->width % SIZE_MULTIPLE)
        return graph_refuse(graph, "height and width must be multiples of %d, not %" PRId64 " x %" PRId64,
                            (int)SIZE_MULTIPLE, spec->height, spec->width);
    const double growth = (double)alpha / (double)(STAGES * layers);
    double channels = FIRST_CHANNELS;
    char name[GRAPH_NAME_MAX];
    x = conv3x3(graph, "conv1", x, FIRST_CHANNELS, 1);
    x = graph_batch_norm(graph, "bn1", x, &(BatchNorm){.training = spec->training});
    for (int stage = 0; stage < STAGES; stage++)
        for (int64_t i = 0; i < layers - 1; i++) {
            channels += growth;
            (void)snprintf(name, sizeof name, "layer%d.%" PRId64, stage + 1, i);
            /* rint rounds as Python's round: halves to even. */
            x = block(graph, name, x, (int64_t)rint(channels), stage > 0 && i == 0 ? 2 : 1, spec->training);
        }
    x = graph_batch_norm(graph, "bn_out", x, &(BatchNorm){.training = spec->training});
    x = graph_global_avg_pool(graph, graph_relu(graph, x)); /* the source's 8 x 8 is all of a 32 x 32 image */
    return graph_linear(graph, "fc_out", x, spec->classes, true);
}

static const char *const block_names[] = {"layer#.#", NULL};

const Model pyramidnet_models[] = {
    {.name = "pyramidnet",
     .summary = "PyramidNet, depth 110, alpha 270 (Han et al. 2016, dnddnjs/pytorch-multigpu), for CIFAR-10",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build,
     .blocks = block_names,
     .options = options},
    {0},
};
