/* nafnet.c - NAFNet (Chen et al. 2022, megvii-research/NAFNet) with its keys and arithmetic, so that
 * published weights load. Takes any size, as its check_image_size does. */
#include "trainer/models/networks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const ModelOption encoder_blocks = {
    .row = {.name = "encoder-blocks",
            .alias = "enc-blk-nums",
            .kind = OPTION_TEXT,
            .argument = "N,N,...",
            .help = "nafnet: blocks of each level on the way down; 1,1,1,28 unless given"}};
static const ModelOption middle_blocks = {.row = {.name = "middle-blocks",
                                                  .alias = "middle-blk-num",
                                                  .kind = OPTION_TEXT,
                                                  .argument = "N",
                                                  .help = "nafnet: blocks at the bottom; 1 unless given"}};
static const ModelOption decoder_blocks = {
    .row = {.name = "decoder-blocks",
            .alias = "dec-blk-nums",
            .kind = OPTION_TEXT,
            .argument = "N,N,...",
            .help = "nafnet: blocks of each level on the way up; 1,1,1,1 unless given"}};
static const ModelOption *const options[] = {&model_width, &encoder_blocks, &middle_blocks, &decoder_blocks,
                                             NULL};

enum { LEVELS_MAX = 8, BLOCKS_MAX = 256, BASE_CHANNELS = 32, BASE_CHANNELS_MAX = 1024 };

typedef struct Blocks {
    int count; /* levels */
    int blocks[LEVELS_MAX];
} Blocks;

/* Parses "1,1,1,28". Returns false after graph_refuse. */
static bool parse_blocks(Graph *graph, const char *what, const char *text, Blocks *blocks)
{
    *blocks = (Blocks){0};
    for (const char *at = text;; at++) {
        char *end = NULL;
        const long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (!end || value > BLOCKS_MAX || blocks->count == LEVELS_MAX || (*end != ',' && *end != '\0')) {
            graph_refuse(graph,
                         "%s '%s'; it must be up to %d numbers of at most %d, with commas between them, like "
                         "1,1,1,28",
                         what, text, (int)LEVELS_MAX, (int)BLOCKS_MAX);
            return false;
        }
        blocks->blocks[blocks->count++] = (int)value;
        at = end;
        if (*at == '\0')
            return true;
    }
}

static TensorId conv(Graph *graph, const char *prefix, const char *suffix, TensorId x, const Conv2d *conv2d)
{
    char name[GRAPH_NAME_MAX];
    return graph_conv2d(graph, model_join(name, prefix, suffix), x, conv2d);
}

static TensorId pointwise(Graph *graph, const char *prefix, const char *suffix, TensorId x, int64_t channels)
{
    return conv(graph, prefix, suffix, x,
                &(Conv2d){.channels = channels, .kernel = 1, .stride = 1, .bias = true});
}

static TensorId layer_norm(Graph *graph, const char *prefix, const char *suffix, TensorId x)
{
    char name[GRAPH_NAME_MAX];
    return graph_layer_norm(graph, model_join(name, prefix, suffix), x, 1e-6);
}

/* Builds a NAFBlock: norm, 1x1, depthwise 3x3, gate, channel attention, 1x1; norm, 1x1, gate, 1x1; each half
 * is added to its input. */
static TensorId block(Graph *graph, const char *prefix, TensorId input, int64_t channels)
{
    char name[GRAPH_NAME_MAX];
    TensorId x = layer_norm(graph, prefix, "norm1", input);
    x = pointwise(graph, prefix, "conv1", x, 2 * channels);
    x = conv(graph, prefix, "conv2", x,
             &(Conv2d){.channels = 2 * channels,
                       .kernel = 3,
                       .stride = 1,
                       .padding = 1,
                       .bias = true,
                       .groups = 2 * channels});
    x = graph_gate(graph, x);
    TensorId attention = graph_linear_1x1(graph, model_join(name, prefix, "sca.1"),
                                          graph_global_avg_pool(graph, x), channels, true);
    x = pointwise(graph, prefix, "conv3", graph_channel_multiply(graph, x, attention), channels);
    const TensorId y = graph_channel_scale(graph, prefix, "beta", x, input);
    x = pointwise(graph, prefix, "conv4", layer_norm(graph, prefix, "norm2", y), 2 * channels);
    x = pointwise(graph, prefix, "conv5", graph_gate(graph, x), channels);
    return graph_channel_scale(graph, prefix, "gamma", x, y);
}

static TensorId blocks_of(Graph *graph, const char *list, int level, int count, TensorId x, int64_t channels)
{
    char prefix[GRAPH_NAME_MAX];
    for (int i = 0; i < count; i++) {
        if (level < 0)
            (void)snprintf(prefix, sizeof prefix, "%s.%d", list, i);
        else
            (void)snprintf(prefix, sizeof prefix, "%s.%d.%d", list, level, i);
        x = block(graph, prefix, x, channels);
    }
    return x;
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    Blocks encoders, middle, decoders;
    int64_t channels = model_integer(spec, &model_width, BASE_CHANNELS);
    if (!parse_blocks(graph, "encoder blocks", model_text(spec, &encoder_blocks, "1,1,1,28"), &encoders) ||
        !parse_blocks(graph, "middle blocks", model_text(spec, &middle_blocks, "1"), &middle) ||
        !parse_blocks(graph, "decoder blocks", model_text(spec, &decoder_blocks, "1,1,1,1"), &decoders))
        return TENSOR_NONE;
    if (encoders.count != decoders.count || middle.count != 1)
        return graph_refuse(graph,
                            "blocks of %d encoder, %d middle and %d decoder levels; as many decoders as "
                            "encoders, and one number for the middle",
                            encoders.count, middle.count, decoders.count);
    if (channels < 1 || channels > BASE_CHANNELS_MAX)
        return graph_refuse(graph, "width %" PRId64 "; it must be 1 to %d", channels, (int)BASE_CHANNELS_MAX);
    const int64_t multiple = INT64_C(1) << encoders.count;
    const int64_t height = (spec->height + multiple - 1) / multiple * multiple;
    const int64_t width = (spec->width + multiple - 1) / multiple * multiple;
    const bool padded = height != spec->height || width != spec->width;
    TensorId levels[LEVELS_MAX];
    char name[GRAPH_NAME_MAX];
    if (padded)
        x = graph_zero_pad(graph, x, height, width, spec->channels);
    const TensorId input = x;
    const Conv2d full = {.kernel = 3, .stride = 1, .padding = 1, .bias = true};
    Conv2d intro = full, ending = full;
    intro.channels = channels;
    ending.channels = spec->channels;
    x = graph_conv2d(graph, "intro", x, &intro);
    for (int i = 0; i < encoders.count; i++) {
        levels[i] = blocks_of(graph, "encoders", i, encoders.blocks[i], x, channels);
        channels *= 2;
        (void)snprintf(name, sizeof name, "downs.%d", i);
        x = graph_conv2d(graph, name, levels[i],
                         &(Conv2d){.channels = channels, .kernel = 2, .stride = 2, .bias = true});
    }
    x = blocks_of(graph, "middle_blks", -1, middle.blocks[0], x, channels);
    for (int i = 0; i < decoders.count; i++) {
        (void)snprintf(name, sizeof name, "ups.%d.0", i);
        x = graph_conv2d(graph, name, x, &(Conv2d){.channels = 2 * channels, .kernel = 1, .stride = 1});
        x = graph_pixel_shuffle(graph, x, 2);
        channels /= 2;
        x = graph_add(graph, x, levels[encoders.count - 1 - i]);
        x = blocks_of(graph, "decoders", i, decoders.blocks[i], x, channels);
    }
    x = graph_add(graph, graph_conv2d(graph, "ending", x, &ending), input);
    return padded ? graph_crop(graph, x, spec->height, spec->width) : x;
}

/* Returns Model.multiple; at least 16, so that tiles are few and large. */
static uint32_t multiple_of_levels(const ModelSpec *spec)
{
    enum { LEVELS_LEAST = 4 };
    uint32_t levels = 1;
    for (const char *at = model_text(spec, &encoder_blocks, ""); *at; at++)
        levels += *at == ',';
    levels = levels < LEVELS_LEAST ? LEVELS_LEAST : levels > LEVELS_MAX ? LEVELS_MAX : levels;
    return 1U << levels;
}

static const char *const block_names[] = {"encoders.#.#", "downs.#",      "middle_blks.#",
                                          "ups.#",        "decoders.#.#", NULL};

const Model nafnet_models[] = {
    {.name = "nafnet",
     .summary = "NAFNet (Chen et al. 2022, megvii-research), for pairs",
     .task = TASK_RESTORATION,
     .batch_norm = false,
     .build = build,
     .blocks = block_names,
     .multiple = multiple_of_levels,
     .options = options},
    {0},
};
