/* unet.c - a U-Net (Ronneberger et al. 2015): four levels of pairs of padded 3x3
 * convolutions with leaky ReLU 0.2; channels are doubled by 2x2/2 convolutions downwards, and halved by 1x1
 * convolutions with pixel shuffle upwards; each level's own result is concatenated with what comes up.
 *
 *   unet                 adds to its input: the last convolution begins as zero, so that training starts from
 *                        the input itself
 *   unet_segmentation    makes logits of each pixel
 *
 * Any size: images are padded
 * with zeros to a multiple of 8, and cropped. */
#include "trainer/models/networks.h"

#include <inttypes.h>
#include <stdio.h>

static const ModelOption *const options[] = {&model_width, NULL};

enum { UNSHUFFLE = 2, DOWNS = 3, BASE_CHANNELS = 32, BASE_CHANNELS_MAX = 1024 };

/* Leaky: without norms, a step that is too long switches plain ReLUs off for good (deblurring at a learning
 * rate of 0.002 did). */
static const float slope = 0.2F;

/* Adds two 3x3 convolutions, each with a leaky ReLU: an nn.Sequential of conv, LeakyReLU, conv, LeakyReLU. */
static TensorId pair(Graph *graph, const char *prefix, TensorId x, int64_t channels)
{
    const Conv2d conv = {.channels = channels,
                         .kernel = 3,
                         .stride = 1,
                         .padding = 1,
                         .bias = true,
                         .init = CONV_INIT_KAIMING_FAN_OUT};
    char name[GRAPH_NAME_MAX];
    x = graph_leaky_relu(graph, graph_conv2d(graph, model_join(name, prefix, "0"), x, &conv), slope);
    return graph_leaky_relu(graph, graph_conv2d(graph, model_join(name, prefix, "2"), x, &conv), slope);
}

/* Doubles the size and halves the channels. */
static TensorId up(Graph *graph, const char *name, TensorId x, int64_t channels)
{
    x = graph_conv2d(
        graph, name, x,
        &(Conv2d){.channels = 2 * channels, .kernel = 1, .stride = 1, .init = CONV_INIT_KAIMING_FAN_OUT});
    return graph_pixel_shuffle(graph, x, 2);
}

/* Adds the network up to its last convolution, which makes `channels` values of each pixel. x is padded to a
 * multiple of the edge that can be halved at every level, and *x_ret is what it was padded to. */
static TensorId body(Graph *graph, TensorId x, const ModelSpec *spec, int64_t channels_of_pixel,
                     TensorId *x_ret)
{
    const int64_t edge = UNSHUFFLE << DOWNS;
    const int64_t height = (spec->height + edge - 1) / edge * edge;
    const int64_t width = (spec->width + edge - 1) / edge * edge;
    int64_t channels = model_integer(spec, &model_width, BASE_CHANNELS);
    TensorId levels[DOWNS];
    char name[GRAPH_NAME_MAX];
    if (channels < 1 || channels > BASE_CHANNELS_MAX)
        return graph_refuse(graph, "width %" PRId64 "; it must be 1 to %d", channels, (int)BASE_CHANNELS_MAX);
    if (height != spec->height || width != spec->width)
        x = graph_zero_pad(graph, x, height, width, spec->channels);
    *x_ret = x;
    x = graph_pixel_unshuffle(graph, x, UNSHUFFLE);
    for (int i = 0; i < DOWNS; i++) {
        (void)snprintf(name, sizeof name, "encoders.%d", i);
        levels[i] = pair(graph, name, x, channels);
        channels *= 2;
        (void)snprintf(name, sizeof name, "downs.%d", i);
        x = graph_conv2d(graph, name, levels[i],
                         &(Conv2d){.channels = channels, .kernel = 2, .stride = 2, .bias = true});
    }
    x = pair(graph, "middle", x, channels);
    for (int i = 0; i < DOWNS; i++) {
        (void)snprintf(name, sizeof name, "ups.%d.0", i);
        x = graph_concat(graph, up(graph, name, x, channels), levels[DOWNS - 1 - i]);
        channels /= 2;
        (void)snprintf(name, sizeof name, "decoders.%d", i);
        x = pair(graph, name, x, channels);
    }
    x = graph_conv2d(graph, "ending", x,
                     &(Conv2d){.channels = channels_of_pixel * UNSHUFFLE * UNSHUFFLE,
                               .kernel = 3,
                               .stride = 1,
                               .padding = 1,
                               .bias = true});
    return graph_pixel_shuffle(graph, x, UNSHUFFLE);
}

/* Cuts what was made of a padded image down to the image's own size. */
static TensorId cut(Graph *graph, TensorId y, const ModelSpec *spec)
{
    const int64_t edge = UNSHUFFLE << DOWNS;
    return spec->height % edge || spec->width % edge ? graph_crop(graph, y, spec->height, spec->width) : y;
}

static TensorId build(Graph *graph, TensorId x, const ModelSpec *spec)
{
    TensorId input = TENSOR_NONE;
    TensorId added = body(graph, x, spec, spec->channels, &input);
    graph_set_initializer(graph, "ending.weight", (Initializer){INIT_ZEROS, 0});
    graph_set_initializer(graph, "ending.bias", (Initializer){INIT_ZEROS, 0});
    return cut(graph, graph_add(graph, added, input), spec);
}

static TensorId build_segmentation(Graph *graph, TensorId x, const ModelSpec *spec)
{
    TensorId input = TENSOR_NONE;
    return cut(graph, body(graph, x, spec, spec->classes, &input), spec);
}

static uint32_t multiple(const ModelSpec *spec)
{
    (void)spec;
    return UNSHUFFLE << DOWNS;
}

static const char *const block_names[] = {"encoders.#", "downs.#", "middle", "ups.#", "decoders.#", NULL};

const Model unet_models[] = {
    {.name = "unet",
     .summary = "U-Net that adds to its input (Ronneberger et al. 2015), for pairs",
     .task = TASK_RESTORATION,
     .batch_norm = false,
     .build = build,
     .blocks = block_names,
     .multiple = multiple,
     .options = options},
    {.name = "unet_segmentation",
     .summary = "the same U-Net with logits of each pixel, for images and masks",
     .task = TASK_SEGMENTATION,
     .batch_norm = false,
     .build = build_segmentation,
     .blocks = block_names,
     .multiple = multiple,
     .options = options},
    {0},
};
