/* fastai's XResNets (fastai/vision/models/xresnet.py), with its names and first weights: a stem of three
 * 3x3 and max pool 3x3/2; four stages of blocks, whose shortcuts are averaged before their 1x1
 * convolution; global average pool, linear layer "11". xse_resnext50 is the network of the Imagenette
 * board's entries, which have --act-layer mish, --aa-layer blur and --self-attention yes (sa=True). */
#include "trainer/models/networks.h"

#include <math.h>
#include <stdio.h>

static const ModelOption self_attention = {.row = {.name = "self-attention",
                                                   .kind = OPTION_TEXT,
                                                   .argument = "no|yes",
                                                   .help = "xresnet: the last block of the first stage ends "
                                                           "in self-attention (fastai's sa)"}};
static const ModelOption *const options[] = {&model_aa_layer, &model_act_layer, &self_attention, NULL};

enum { STAGES = 4, STEM = 3, FIRST_CHANNELS = 64, GROUPS = 32, GROUP_CHANNELS = 4, REDUCTION = 16 };

typedef struct Xresnet {
    int blocks[STAGES];
    int64_t expansion;  /* 1: blocks of two 3x3; 4: bottlenecks */
    bool squeeze_group; /* bottlenecks in groups, with squeeze and excitation */
} Xresnet;

/* A network that is being built. */
typedef struct Net {
    Graph *graph;
    const Xresnet *xresnet;
    ModelActivation activation;
    bool blur, self_attention, training;
} Net;

typedef struct Block {
    const char *prefix;       /* "4.0" */
    int64_t channels, stride; /* channels: before the expansion */
    bool self_attention;      /* its branch ends in it */
} Block;

/* Gives a layer fastai's first weights: normal by fan_in. */
static void set_weight(Graph *graph, const char *layer, int64_t fan_in)
{
    char name[GRAPH_NAME_MAX];
    graph_set_initializer(graph, model_join(name, layer, "weight"),
                          (Initializer){INIT_NORMAL, sqrt(2 / (double)fan_in)});
}

/* Gives a layer with a bias fastai's first weights. */
static void set_weight_and_bias(Graph *graph, const char *layer, int64_t fan_in)
{
    char name[GRAPH_NAME_MAX];
    set_weight(graph, layer, fan_in);
    graph_set_initializer(graph, model_join(name, layer, "bias"), (Initializer){INIT_ZEROS, 0});
}

/* Builds a ConvLayer without its activation: convolution "0" of half its kernel as padding, and norm "1". */
static TensorId conv_norm(const Net *net, const char *prefix, TensorId x, Conv2d conv)
{
    char name[GRAPH_NAME_MAX];
    if (x == TENSOR_NONE)
        return x;
    const int64_t groups = conv.groups ? conv.groups : 1;
    const int64_t fan_in = graph_tensor(net->graph, x)->shape[3] / groups * conv.kernel * conv.kernel;
    conv.padding = conv.kernel / 2;
    x = graph_conv2d(net->graph, model_join(name, prefix, "0"), x, &conv);
    set_weight(net->graph, name, fan_in);
    return graph_batch_norm(net->graph, model_join(name, prefix, "1"), x,
                            &(BatchNorm){.training = net->training});
}

static TensorId conv_norm_act(const Net *net, const char *prefix, TensorId x, Conv2d conv)
{
    return model_activate(net->graph, net->activation, conv_norm(net, prefix, x, conv));
}

static TensorId shortcut_of(const Net *net, const Block *block, TensorId x, int64_t channels)
{
    char name[GRAPH_NAME_MAX];
    const bool halves = block->stride != 1;
    if (x == TENSOR_NONE || graph_tensor(net->graph, x)->shape[3] == channels)
        return x;
    if (halves)
        x = graph_avg_pool(net->graph, x,
                           &(Pool2d){.kernel = block->stride, .stride = block->stride, .ceil = true});
    return conv_norm(net, model_join(name, block->prefix, halves ? "idpath.1" : "idpath.0"), x,
                     (Conv2d){.channels = channels, .kernel = 1, .stride = 1});
}

/* Builds fastai's SEModule. */
static TensorId squeeze(const Net *net, const char *prefix, TensorId x, int64_t channels)
{
    char first[GRAPH_NAME_MAX], second[GRAPH_NAME_MAX];
    const int64_t reduced = (channels / REDUCTION + 7) / 8 * 8;
    model_join(first, prefix, "convpath.3.layers.1.0");
    model_join(second, prefix, "convpath.3.layers.2.0");
    x = model_squeeze_excite(net->graph, first, second, x, reduced, net->activation);
    set_weight_and_bias(net->graph, first, channels);
    set_weight_and_bias(net->graph, second, reduced);
    return x;
}

/* Builds fastai's SimpleSelfAttention, layer `number` of a branch. */
static TensorId attend(const Net *net, const char *prefix, int number, TensorId x, int64_t channels)
{
    static const char *const layers[] = {"convpath.2", "convpath.3", "convpath.4"};
    char name[GRAPH_NAME_MAX], conv[GRAPH_NAME_MAX];
    model_join(name, prefix, layers[number - 2]);
    const TensorId weight =
        graph_spectral_norm(net->graph, model_join(conv, name, "conv"), channels, channels, net->training);
    return graph_self_attention(net->graph, name, x, weight);
}

/* Builds the branch of a block; its last norm begins at zero. */
static TensorId branch(const Net *net, const Block *block, TensorId x, int64_t channels)
{
    char name[GRAPH_NAME_MAX], last[GRAPH_NAME_MAX], weight[GRAPH_NAME_MAX];
    const bool groups = net->xresnet->squeeze_group, bottleneck = net->xresnet->expansion > 1;
    int layer = 0;
    const int64_t inner =
        groups ? block->channels * GROUP_CHANNELS / FIRST_CHANNELS * GROUPS : block->channels;
    if (bottleneck) {
        x = conv_norm_act(net, model_join(name, block->prefix, "convpath.0"), x,
                          (Conv2d){.channels = inner, .kernel = 1, .stride = 1});
        layer++;
    }
    x = conv_norm_act(
        net, model_join(name, block->prefix, layer ? "convpath.1" : "convpath.0"), x,
        (Conv2d){.channels = inner, .kernel = 3, .stride = block->stride, .groups = groups ? GROUPS : 0});
    model_join(last, block->prefix, layer ? "convpath.2" : "convpath.1");
    x = conv_norm(net, last, x, (Conv2d){.channels = channels, .kernel = bottleneck ? 1 : 3, .stride = 1});
    graph_set_initializer(net->graph, model_join(weight, model_join(name, last, "1"), "weight"),
                          (Initializer){INIT_ZEROS, 0});
    layer += 2;
    if (groups) {
        x = squeeze(net, block->prefix, x, channels);
        layer++;
    }
    return block->self_attention ? attend(net, block->prefix, layer, x, channels) : x;
}

static TensorId build_block(const Net *net, const Block *block, TensorId input)
{
    const int64_t channels = block->channels * net->xresnet->expansion;
    const TensorId x = branch(net, block, input, channels);
    return model_activate(net->graph, net->activation,
                          graph_add(net->graph, x, shortcut_of(net, block, input, channels)));
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, const Xresnet *xresnet)
{
    static const char *const stem[STEM] = {"0", "1", "2"};
    static const int64_t stem_channels[STEM] = {32, 32, FIRST_CHANNELS};
    Net net = {.graph = graph, .xresnet = xresnet, .training = spec->training};
    char prefix[GRAPH_NAME_MAX];
    if (!model_is_chosen(graph, spec, &model_aa_layer, NULL, &net.blur) ||
        !model_is_chosen(graph, spec, &self_attention, NULL, &net.self_attention) ||
        !model_activation(graph, spec, &net.activation))
        return TENSOR_NONE;
    for (int i = 0; i < STEM; i++)
        x = conv_norm_act(&net, stem[i], x,
                          (Conv2d){.channels = stem_channels[i], .kernel = 3, .stride = i ? 1 : 2});
    x = model_stem_pool(graph, x, net.blur);
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < xresnet->blocks[stage]; i++) {
            (void)snprintf(prefix, sizeof prefix, "%d.%d", STEM + 1 + stage, i);
            const Block block = {prefix, INT64_C(64) << stage, stage && !i ? 2 : 1,
                                 net.self_attention && !stage && i == xresnet->blocks[stage] - 1};
            x = build_block(&net, &block, x);
        }
    x = graph_linear(graph, "11", graph_global_avg_pool(graph, x), spec->classes, true);
    set_weight_and_bias(graph, "11", (INT64_C(64) << (STAGES - 1)) * xresnet->expansion);
    return x;
}

static TensorId build_18(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Xresnet){{2, 2, 2, 2}, 1, false});
}

static TensorId build_50(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Xresnet){{3, 4, 6, 3}, 4, false});
}

static TensorId build_xse_resnext50(Graph *graph, TensorId x, const ModelSpec *spec)
{
    return build(graph, x, spec, &(Xresnet){{3, 4, 6, 3}, 4, true});
}

static const char *const block_names[] = {"4.#", "5.#", "6.#", "7.#", NULL};

const Model xresnet_models[] = {
    {.name = "xresnet18",
     .summary = "XResNet-18 (He et al. 2018, fastai's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_18,
     .blocks = block_names,
     .options = options},
    {.name = "xresnet50",
     .summary = "XResNet-50 (He et al. 2018, fastai's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_50,
     .blocks = block_names,
     .options = options},
    {.name = "xse_resnext50",
     .summary = "XResNeXt-50 with squeeze and excitation (fastai's)",
     .task = TASK_CLASSIFICATION,
     .batch_norm = true,
     .build = build_xse_resnext50,
     .blocks = block_names,
     .options = options},
    {0},
};
