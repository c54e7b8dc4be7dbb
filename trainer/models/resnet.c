/* ResNets with timm's names, shapes and options (timm/models/resnet.py; resnet18 to resnet101 are
 * torchvision's, too), v1.5: the stride of a bottleneck is in its 3x3. A stem of 7x7/2, or of three 3x3
 * ("deep"), and max pool 3x3/2; four stages of basic blocks (18, 34) or bottlenecks (50, 101); global
 * average pool, "fc".
 *
 * First weights are timm's, with the last norm of each block at zero; those of resnet18 to resnet101 are
 * torchvision's, with it at one unless zero-init-last says otherwise. */
#include "trainer/models/networks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const ModelOption stem_type = {.row = {.name = "stem-type",
                                              .kind = OPTION_TEXT,
                                              .argument = "plain|deep",
                                              .help = "resnet: the stem is one 7x7, or three 3x3 (ResNet-C, "
                                                      "-D)"}};
static const ModelOption avg_down = {.row = {.name = "avg-down",
                                             .kind = OPTION_TEXT,
                                             .argument = "no|yes",
                                             .help = "resnet: shortcuts halve the image by averages before "
                                                     "their 1x1 convolution (ResNet-D)"}};
static const ModelOption attn_layer = {.row = {.name = "attn-layer",
                                               .kind = OPTION_TEXT,
                                               .argument = "none|se",
                                               .help = "resnet: each block ends in squeeze and excitation"}};
static const ModelOption blur_convs = {.row = {.name = "blur-convs",
                                               .kind = OPTION_TEXT,
                                               .argument = "no|yes",
                                               .help = "resnet: convolutions of blocks that halve the image "
                                                       "see it blurred (FFCV, Composer)"}};
static const ModelOption cardinality = {.row = {.name = "cardinality",
                                                .kind = OPTION_INTEGER,
                                                .argument = "N",
                                                .maximum = 1024,
                                                .help = "resnet50, resnet101: groups of the 3x3 "
                                                        "convolutions (ResNeXt)"}};
static const ModelOption base_width = {.row = {.name = "base-width",
                                               .kind = OPTION_INTEGER,
                                               .argument = "N",
                                               .maximum = 1024,
                                               .help = "resnet50, resnet101: channels of each group in the "
                                                       "first stage"}};
static const ModelOption zero_init_last = {.row = {.name = "zero-init-last",
                                                   .kind = OPTION_TEXT,
                                                   .argument = "no|yes",
                                                   .help = "resnet: training begins with the last norm of "
                                                           "each block at zero, not at one"},
                                           .trains_only = true};
static const ModelOption *const options[] = {
    &stem_type,   &avg_down,   &attn_layer,      &model_aa_layer, &blur_convs, &model_act_layer,
    &cardinality, &base_width, &model_drop_path, &zero_init_last, NULL};

enum { STAGES = 4, STEM_CHANNELS = 64, BASE_WIDTH = 64, REDUCTION = 16, REDUCED_MULTIPLE = 8 };

/* The depth of each stage, the kind of its blocks, and what else tells the networks apart. */
typedef struct Resnet {
    int blocks[STAGES];
    bool bottleneck;
    const char *stem_type, *avg_down, *attn_layer, *zero_init_last; /* NULL: the option's first value */
    int64_t cardinality, base_width;                                /* 0: 1 and BASE_WIDTH */
} Resnet;

/* A network that is being built. */
typedef struct Net {
    Graph *graph;
    const Resnet *resnet;
    ModelActivation activation;
    int64_t cardinality, base_width;
    bool deep, average_shortcut, squeeze, blur, blur_convs, zeros_last, training;
    double last_dropped; /* the probability that the last block is left out */
} Net;

/* One block of the network. */
typedef struct Block {
    const char *prefix; /* "layer1.0" */
    int64_t channels;   /* of the 3x3 convolutions of a plain ResNet */
    int64_t stride;
    bool project;   /* the shortcut has a 1x1/stride convolution */
    double dropped; /* the probability that the block is left out */
} Block;

static TensorId activate(const Net *net, TensorId x)
{
    return model_activate(net->graph, net->activation, x);
}

static TensorId conv_norm(const Net *net, const char *prefix, const char *conv, const char *norm, TensorId x,
                          const Conv2d *conv2d)
{
    char name[GRAPH_NAME_MAX];
    Conv2d with_init = *conv2d;
    with_init.init = CONV_INIT_KAIMING_FAN_OUT;
    x = graph_conv2d(net->graph, model_join(name, prefix, conv), x, &with_init);
    return graph_batch_norm(net->graph, model_join(name, prefix, norm), x,
                            &(BatchNorm){.training = net->training});
}

/* Returns what a convolution of the block with its stride sees of x. */
static TensorId seen_of(const Net *net, const Block *block, TensorId x)
{
    return net->blur_convs && block->stride > 1 ? model_blur(net->graph, x) : x;
}

/* Returns the shortcut of a block to an image of so many channels. seen: seen_of x. */
static TensorId shortcut_of(const Net *net, const Block *block, TensorId x, TensorId seen, int64_t channels)
{
    if (!block->project)
        return x;
    if (!net->average_shortcut)
        return conv_norm(net, block->prefix, "downsample.0", "downsample.1", seen,
                         &(Conv2d){.channels = channels, .kernel = 1, .stride = block->stride});
    if (block->stride > 1)
        x = graph_avg_pool(net->graph, x,
                           &(Pool2d){.kernel = block->stride, .stride = block->stride, .ceil = true});
    return conv_norm(net, block->prefix, "downsample.1", "downsample.2", x,
                     &(Conv2d){.channels = channels, .kernel = 1, .stride = 1});
}

/* Builds timm's squeeze and excitation, "se". */
static TensorId squeeze(const Net *net, const char *prefix, TensorId x, int64_t channels)
{
    char first[GRAPH_NAME_MAX], second[GRAPH_NAME_MAX], name[GRAPH_NAME_MAX];
    int64_t reduced = (channels / REDUCTION + REDUCED_MULTIPLE / 2) / REDUCED_MULTIPLE * REDUCED_MULTIPLE;
    reduced = reduced < REDUCED_MULTIPLE ? REDUCED_MULTIPLE : reduced;
    model_join(first, prefix, "se.fc1");
    model_join(second, prefix, "se.fc2");
    x = model_squeeze_excite(net->graph, first, second, x, reduced, MODEL_RELU);
    graph_set_initializer(net->graph, model_join(name, first, "weight"),
                          (Initializer){INIT_NORMAL, sqrt(2 / (double)reduced)});
    graph_set_initializer(net->graph, model_join(name, second, "weight"),
                          (Initializer){INIT_NORMAL, sqrt(2 / (double)channels)});
    return x;
}

/* Ends a block whose branch is x: squeeze and excitation, stochastic depth, the shortcut, the activation.
 * seen: seen_of the input. */
static TensorId end_of_block(const Net *net, const Block *block, const char *last_norm, TensorId x,
                             TensorId input, TensorId seen, int64_t channels)
{
    char name[GRAPH_NAME_MAX], weight[GRAPH_NAME_MAX];
    if (net->zeros_last)
        graph_set_initializer(net->graph,
                              model_join(weight, model_join(name, block->prefix, last_norm), "weight"),
                              (Initializer){INIT_ZEROS, 0});
    if (net->squeeze)
        x = squeeze(net, block->prefix, x, channels);
    x = graph_drop_path(net->graph, model_join(name, block->prefix, "drop_path"), x, block->dropped);
    return activate(net, graph_add(net->graph, x, shortcut_of(net, block, input, seen, channels)));
}

/* Builds a 3x3/stride with norm and activation, the stride in a blur pool behind it where there is one. */
static TensorId halving_conv(const Net *net, const Block *block, const char *conv, const char *norm,
                             TensorId x, int64_t channels, int64_t groups)
{
    const bool blurs = net->blur && block->stride == 2;
    x = conv_norm(net, block->prefix, conv, norm, x,
                  &(Conv2d){.channels = channels,
                            .kernel = 3,
                            .stride = blurs ? 1 : block->stride,
                            .padding = 1,
                            .groups = groups});
    x = activate(net, x);
    return blurs ? model_blur_pool(net->graph, x) : x;
}

/* Builds a BasicBlock: 3x3/stride, 3x3, and the shortcut added. */
static TensorId basic_block(const Net *net, const Block *block, TensorId input)
{
    const int64_t channels = block->channels;
    const TensorId seen = seen_of(net, block, input);
    TensorId x = halving_conv(net, block, "conv1", "bn1", seen, channels, 0);
    x = conv_norm(net, block->prefix, "conv2", "bn2", x,
                  &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1});
    return end_of_block(net, block, "bn2", x, input, seen, channels);
}

/* Builds a Bottleneck: 1x1, 3x3/stride, perhaps in groups, 1x1 to four times the channels, and the shortcut
 * added. */
static TensorId bottleneck(const Net *net, const Block *block, TensorId input)
{
    const int64_t width = block->channels * net->base_width / BASE_WIDTH * net->cardinality;
    TensorId x = conv_norm(net, block->prefix, "conv1", "bn1", input,
                           &(Conv2d){.channels = width, .kernel = 1, .stride = 1});
    x = seen_of(net, block, activate(net, x));
    x = halving_conv(net, block, "conv2", "bn2", x, width, net->cardinality);
    x = conv_norm(net, block->prefix, "conv3", "bn3", x,
                  &(Conv2d){.channels = 4 * block->channels, .kernel = 1, .stride = 1});
    return end_of_block(net, block, "bn3", x, input, seen_of(net, block, input), 4 * block->channels);
}

static TensorId stem(const Net *net, TensorId x)
{
    static const char *const convs[] = {"0", "3"}, *const norms[] = {"1", "4"};
    Conv2d conv = {
        .channels = STEM_CHANNELS, .kernel = 7, .stride = 2, .padding = 3, .init = CONV_INIT_KAIMING_FAN_OUT};
    if (net->deep) {
        conv = (Conv2d){.channels = STEM_CHANNELS / 2,
                        .kernel = 3,
                        .stride = 2,
                        .padding = 1,
                        .init = CONV_INIT_KAIMING_FAN_OUT};
        for (int i = 0; i < 2; i++) {
            x = activate(net, conv_norm(net, "conv1", convs[i], norms[i], x, &conv));
            conv.stride = 1;
        }
        conv.channels = STEM_CHANNELS;
    }
    x = graph_conv2d(net->graph, net->deep ? "conv1.6" : "conv1", x, &conv);
    x = activate(net, graph_batch_norm(net->graph, "bn1", x, &(BatchNorm){.training = net->training}));
    return model_stem_pool(net->graph, x, net->blur);
}

/* Reads the options into net. Returns false for values that do not fit: the graph has failed then. */
static bool read_options(Net *net, const ModelSpec *spec)
{
    const Resnet *resnet = net->resnet;
    net->cardinality = model_integer(spec, &cardinality, resnet->cardinality ? resnet->cardinality : 1);
    net->base_width = model_integer(spec, &base_width, resnet->base_width ? resnet->base_width : BASE_WIDTH);
    net->last_dropped = spec->training ? model_real(spec, &model_drop_path, 0) : 0;
    if (!resnet->bottleneck && (net->cardinality != 1 || net->base_width != BASE_WIDTH)) {
        graph_refuse(net->graph,
                     "cardinality %" PRId64 ", base width %" PRId64
                     "; its blocks have no bottleneck: 1 and %d, or resnet50",
                     net->cardinality, net->base_width, (int)BASE_WIDTH);
        return false;
    }
    return model_is_chosen(net->graph, spec, &stem_type, resnet->stem_type, &net->deep) &&
           model_is_chosen(net->graph, spec, &avg_down, resnet->avg_down, &net->average_shortcut) &&
           model_is_chosen(net->graph, spec, &attn_layer, resnet->attn_layer, &net->squeeze) &&
           model_is_chosen(net->graph, spec, &model_aa_layer, NULL, &net->blur) &&
           model_is_chosen(net->graph, spec, &blur_convs, NULL, &net->blur_convs) &&
           model_is_chosen(net->graph, spec, &zero_init_last, resnet->zero_init_last, &net->zeros_last) &&
           model_activation(net->graph, spec, &net->activation);
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, const Resnet *resnet)
{
    Net net = {.graph = graph, .resnet = resnet, .training = spec->training};
    char prefix[GRAPH_NAME_MAX];
    int blocks = 0, made = 0;
    if (!read_options(&net, spec))
        return TENSOR_NONE;
    for (int stage = 0; stage < STAGES; stage++)
        blocks += resnet->blocks[stage];
    x = stem(&net, x);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < resnet->blocks[stage]; i++, made++) {
            (void)snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, i);
            const Block block = {.prefix = prefix,
                                 .channels = INT64_C(64) << stage,
                                 .stride = i == 0 && stage > 0 ? 2 : 1,
                                 .project = i == 0 && (stage > 0 || resnet->bottleneck),
                                 .dropped = net.last_dropped * made / (blocks - 1)};
            x = resnet->bottleneck ? bottleneck(&net, &block, x) : basic_block(&net, &block, x);
        }
    x = graph_global_avg_pool(graph, x);
    return graph_linear(graph, "fc", x, spec->classes, true);
}

#define DEPTH_18  .blocks = {2, 2, 2, 2}
#define DEPTH_34  .blocks = {3, 4, 6, 3}
#define DEPTH_50  .blocks = {3, 4, 6, 3}, .bottleneck = true
#define DEPTH_101 .blocks = {3, 4, 23, 3}, .bottleneck = true
#define ZEROS     .zero_init_last = "yes"
#define D         ZEROS, .stem_type = "deep", .avg_down = "yes"

#define BUILDER(name, ...)                                                                                   \
    static TensorId build_##name(Graph *graph, TensorId x, const ModelSpec *spec)                            \
    {                                                                                                        \
        return build(graph, x, spec, &(Resnet){__VA_ARGS__});                                                \
    }
BUILDER(resnet18, DEPTH_18)
BUILDER(resnet34, DEPTH_34)
BUILDER(resnet50, DEPTH_50)
BUILDER(resnet101, DEPTH_101)
BUILDER(resnet18d, DEPTH_18, D)
BUILDER(resnet34d, DEPTH_34, D)
BUILDER(resnet50d, DEPTH_50, D)
BUILDER(seresnet50, DEPTH_50, ZEROS, .attn_layer = "se")
BUILDER(resnext50_32x4d, DEPTH_50, ZEROS, .cardinality = 32, .base_width = 4)

static const char *const block_names[] = {"layer#.#", NULL};

#define ROW(id, text)                                                                                        \
    {                                                                                                        \
        .name = #id, .summary = (text), .task = TASK_CLASSIFICATION, .batch_norm = true,                     \
        .build = build_##id, .options = options, .blocks = block_names                                       \
    }
const Model resnet_models[] = {
    ROW(resnet18, "ResNet-18 (He et al. 2015, torchvision's)"),
    ROW(resnet34, "ResNet-34 (He et al. 2015, torchvision's)"),
    ROW(resnet50, "ResNet-50 v1.5 (He et al. 2015, torchvision's)"),
    ROW(resnet101, "ResNet-101 v1.5 (He et al. 2015, torchvision's)"),
    ROW(resnet18d, "ResNet-18-D: deep stem, average shortcuts (He et al. 2018, timm's)"),
    ROW(resnet34d, "ResNet-34-D (He et al. 2018, timm's)"),
    ROW(resnet50d, "ResNet-50-D (He et al. 2018, timm's)"),
    ROW(seresnet50, "SE-ResNet-50: squeeze and excitation (Hu et al. 2017, timm's)"),
    ROW(resnext50_32x4d, "ResNeXt-50, 32 groups (Xie et al. 2016, timm's and torchvision's)"),
    {0},
};
