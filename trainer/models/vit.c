/* Vision transformers (Dosovitskiy et al. 2021) as timm has them, with its names, shapes and first weights
 * (timm/models/vision_transformer.py): weights of timm's vit_*_224 and deit_*_224 load at any image size, and
 * timm loads ours. Patches of the image become tokens by one convolution; 12 blocks, each of norm and
 * attention, then of norm and a layer to four times the channels, GELU and one back, both added to their
 * input; a norm; a linear layer from the class token, or from the mean of all tokens.
 *
 * DeiT (Touvron et al. 2021) is the same network by the name under which its weights are known. SimpleViT
 * (Beyer et al. 2022, "Better plain ViT baselines") has fixed sines for positions, the mean in place of the
 * class token, and takes any size without a change of its weights. */
#include "trainer/models/networks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const ModelOption global_pool = {
    .row = {.name = "global-pool",
            .kind = OPTION_TEXT,
            .argument = "token|avg",
            .help = "vit, deit, simplevit: classes come from a class token, or from the mean of the tokens, "
                    "with no class token; token, of simplevit avg, unless given"}};
static const ModelOption pos_embed = {
    .row = {.name = "pos-embed",
            .kind = OPTION_TEXT,
            .argument = "learned|sincos",
            .help = "vit, deit, simplevit: positions of tokens are learned, or fixed sines and cosines; "
                    "learned, of simplevit sincos, unless given"}};
static const ModelOption layer_scale = {
    .row = {.name = "layer-scale",
            .alias = "init-values",
            .kind = OPTION_REAL,
            .argument = "X",
            .maximum = 10,
            .help = "vit, deit, simplevit: what each block adds is multiplied by a trained factor for each "
                    "channel, which begins at X; 0: it is not"}};
static const ModelOption *const options[] = {&global_pool, &pos_embed, &layer_scale, &model_drop_path, NULL};

enum { BLOCKS = 12, HEAD_CHANNELS = 64, EXPANSION = 4 };
static const double epsilon = 1e-6, deviation = 0.02;

/* The sizes of a network, and, once the options are read, its parts. */
typedef struct Vit {
    int64_t channels, patch;
    bool simple; /* SimpleViT's defaults */
    bool mean, sines;
    double layer_scale;
} Vit;

/* A linear layer with timm's first weights. */
static TensorId linear(Graph *graph, const char *name, TensorId x, int64_t features)
{
    char parameter[GRAPH_NAME_MAX];
    x = graph_linear(graph, name, x, features, true);
    graph_set_initializer(graph, model_join(parameter, name, "weight"),
                          (Initializer){INIT_NORMAL, deviation});
    graph_set_initializer(graph, model_join(parameter, name, "bias"), (Initializer){INIT_ZEROS, 0});
    return x;
}

/* Adds the branch x to input. half: 1 or 2, of the block; dropped: the probability that it is left out. */
static TensorId join(Graph *graph, const Vit *net, const char *prefix, int half, TensorId x, TensorId input,
                     double dropped)
{
    char suffix[24], name[GRAPH_NAME_MAX], layer[GRAPH_NAME_MAX];
    if (net->layer_scale > 0) {
        (void)snprintf(suffix, sizeof suffix, "ls%d", half);
        x = graph_channel_scale(graph, model_join(layer, prefix, suffix), "gamma", x,
                                dropped > 0 ? TENSOR_NONE : input);
        graph_set_initializer(graph, model_join(name, layer, "gamma"),
                              (Initializer){INIT_CONSTANT, net->layer_scale});
        graph_save_without_ones(graph, name);
        if (dropped <= 0)
            return x;
    }
    (void)snprintf(suffix, sizeof suffix, "drop_path%d", half);
    return graph_add(graph, graph_drop_path(graph, model_join(name, prefix, suffix), x, dropped), input);
}

/* first_only: behind the attention nothing but the first token is of use. */
static TensorId block(Graph *graph, const Vit *net, const char *prefix, TensorId input, double dropped,
                      bool first_only)
{
    char name[GRAPH_NAME_MAX];
    TensorId x = graph_layer_norm(graph, model_join(name, prefix, "norm1"), input, epsilon);
    x = linear(graph, model_join(name, prefix, "attn.qkv"), x, 3 * net->channels);
    x = graph_attention(graph, x, net->channels / HEAD_CHANNELS);
    if (first_only) {
        x = graph_crop(graph, x, 1, 1);
        input = graph_crop(graph, input, 1, 1);
    }
    x = linear(graph, model_join(name, prefix, "attn.proj"), x, net->channels);
    const TensorId middle = join(graph, net, prefix, 1, x, input, dropped);
    x = graph_layer_norm(graph, model_join(name, prefix, "norm2"), middle, epsilon);
    x = graph_gelu(graph, linear(graph, model_join(name, prefix, "mlp.fc1"), x, EXPANSION * net->channels));
    x = linear(graph, model_join(name, prefix, "mlp.fc2"), x, net->channels);
    return join(graph, net, prefix, 2, x, middle, dropped);
}

static const char *usual_positions(const Vit *net)
{
    return net->simple ? "sincos" : "learned";
}

static bool has_learned_positions(const ModelSpec *spec, const Vit *net)
{
    return strcmp(model_text(spec, &pos_embed, usual_positions(net)), "learned") == 0;
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec, Vit net)
{
    const double last_dropped = spec->training ? model_real(spec, &model_drop_path, 0) : 0;
    char prefix[GRAPH_NAME_MAX];
    net.layer_scale = model_real(spec, &layer_scale, 0);
    if (!model_is_chosen(graph, spec, &global_pool, net.simple ? "avg" : "token", &net.mean) ||
        !model_is_chosen(graph, spec, &pos_embed, usual_positions(&net), &net.sines))
        return TENSOR_NONE;
    if (spec->height % net.patch || spec->width % net.patch)
        return graph_refuse(graph,
                            "%" PRId64 " x %" PRId64 " pixels are no whole patches of %" PRId64
                            "; set --train-crop-size and --val-crop-size to multiples of it",
                            spec->height, spec->width, net.patch);
    x = graph_conv2d(
        graph, "patch_embed.proj", x,
        &(Conv2d){.channels = net.channels, .kernel = net.patch, .stride = net.patch, .bias = true});
    x = graph_tokens(graph, x, !net.mean, net.sines);
    for (int i = 0; i < BLOCKS; i++) {
        (void)snprintf(prefix, sizeof prefix, "blocks.%d", i);
        x = block(graph, &net, prefix, x, last_dropped * i / (BLOCKS - 1), !net.mean && i == BLOCKS - 1);
    }
    x = graph_global_avg_pool(graph, graph_layer_norm(graph, "norm", x, epsilon));
    return linear(graph, "head", x, spec->classes);
}

/* timm's group_matcher. */
static const char *const block_names[] = {"blocks.#", "<norm", NULL};

#define TINY  .channels = 192
#define SMALL .channels = 384

#define BUILDER(name, ...)                                                                                   \
    static TensorId build_##name(Graph *graph, TensorId x, const ModelSpec *spec)                            \
    {                                                                                                        \
        return build(graph, x, spec, (Vit){__VA_ARGS__});                                                    \
    }                                                                                                        \
    static bool name##_learns_positions(const ModelSpec *spec)                                               \
    {                                                                                                        \
        return has_learned_positions(spec, &(Vit){__VA_ARGS__});                                             \
    }
BUILDER(tiny_patch16, TINY, .patch = 16)
BUILDER(tiny_patch8, TINY, .patch = 8)
BUILDER(small_patch16, SMALL, .patch = 16)
BUILDER(small_patch8, SMALL, .patch = 8)
BUILDER(simple_tiny_patch16, TINY, .patch = 16, .simple = true)
BUILDER(simple_small_patch16, SMALL, .patch = 16, .simple = true)

#define ROW(id, builder, name_of_recipe, text)                                                               \
    {                                                                                                        \
        .name = #id, .summary = (text), .task = TASK_CLASSIFICATION, .build = build_##builder,               \
        .options = options, .blocks = block_names, .learns_positions = builder##_learns_positions,           \
        .recipe = (name_of_recipe)                                                                           \
    }
const Model vit_models[] = {
    ROW(vit_tiny_patch16, tiny_patch16, "deit-s",
        "ViT, 5.7 M parameters (timm's vit_tiny_patch16_224 at any size)"),
    ROW(vit_tiny_patch8, tiny_patch8, "deit-s", "ViT of smaller patches, 5.7 M parameters"),
    ROW(vit_small_patch16, small_patch16, "deit-s",
        "ViT, 22 M parameters (timm's vit_small_patch16_224 at any size)"),
    ROW(vit_small_patch8, small_patch8, "deit-s",
        "ViT, 22 M parameters (timm's vit_small_patch8_224 at any size)"),
    ROW(deit_tiny_patch16, tiny_patch16, "deit-s", "DeiT, 5.7 M parameters (Touvron et al. 2021, timm's)"),
    ROW(deit_small_patch16, small_patch16, "deit-s", "DeiT, 22 M parameters (Touvron et al. 2021, timm's)"),
    ROW(simplevit_tiny_patch16, simple_tiny_patch16, "simplevit-s",
        "SimpleViT, 5.6 M parameters (Beyer et al. 2022)"),
    ROW(simplevit_small_patch16, simple_small_patch16, "simplevit-s",
        "SimpleViT, 22 M parameters (Beyer et al. 2022)"),
    {0},
};
