/* Whatever graph_fuse leaves to the kernels for few channels alone, mirrored images and bytes, they accept:
 * kernel_direct_fits of each convolution that was fused, and of its gradients. Needs no GPU. */
#include <stdio.h>

#include "tests/support/support.h"
#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/graph/graph.h"

static DeviceTensor tensor_of(const Graph *graph, TensorId id)
{
    const Tensor *tensor = graph_tensor(graph, id);
    const bool bytes = tensor->type == DATA_U8;
    DeviceTensor made = {.element = bytes ? ELEMENT_U8 : ELEMENT_F16, .rank = 4, .rows = 1};
    for (int i = 0; i < 4; i++)
        made.shape[i] = tensor->shape[i];
    made.pitch = bytes ? made.shape[3] : padded_channels(made.shape[3]);
    made.rows = made.shape[0] * made.shape[1] * made.shape[2];
    return made;
}

/* Asserts that the kernels accept a fused convolution. Returns whether it mirrors its images. */
static bool check_convolution(const Graph *graph, const Node *node)
{
    const Conv2d *conv = &node->as.conv.options;
    const DeviceTensor x = tensor_of(graph, node->inputs[CONV_X]),
                       y = tensor_of(graph, node->outputs[CONV_Y]);
    const int64_t shape[4] = {conv->channels, conv->kernel, conv->kernel, x.shape[3]};
    DeviceTensor weight = {.element = ELEMENT_F16,
                           .rank = 4,
                           .shape = {shape[0], shape[1], shape[2], shape[3]},
                           .pitch = padded_channels(shape[3]),
                           .rows = padded_channels(shape[0]) * shape[1] * shape[2]};
    const Direct direct = {conv->kernel,
                           conv->stride,
                           conv->padding,
                           conv->reflects,
                           node->as.conv.pixels.mean,
                           node->as.conv.pixels.deviation};
    const bool alone = conv->reflects ||
                       (x.element == ELEMENT_U8 && !conv2d_is_stem(conv, x.shape[3])); /* those are folded */
    if (alone && !kernel_direct_fits(&x, &weight, &y, &direct))
        fail_msg("%lld x %lld x %lld x %lld to %lld, kernel %lld, stride %lld, padding %lld%s%s: no kernel",
                 (long long)x.shape[0], (long long)x.shape[1], (long long)x.shape[2], (long long)x.shape[3],
                 (long long)conv->channels, (long long)conv->kernel, (long long)conv->stride,
                 (long long)conv->padding, conv->reflects ? ", mirrored" : "",
                 x.element == ELEMENT_U8 ? ", bytes" : "");
    return conv->reflects;
}

typedef struct Shape {
    int64_t batch, height, width, in, padding; /* padding: of a reflection pad, or, without one, of conv */
    bool reflects;
    Conv2d conv;
} Shape;

/* Fuses a network of one convolution, and asserts that the kernels accept what it became. Returns whether it
 * mirrors its images. */
static bool try_shape(const Shape *s)
{
    static const double mean[4] = {0.5, 0.5, 0.5, 0.5}, deviation[4] = {0.25, 0.25, 0.25, 0.25};
    Conv2d conv = s->conv;
    bool mirrors = false;
    Graph *graph = graph_new();
    assert_non_null(graph);
    graph_set_compute_type(graph, DATA_F16);
    const bool images = s->in <= 4;
    TensorId x = graph_input(graph, "image", DATA_U8, 4,
                             (int64_t[]){s->batch, s->height, s->width, images ? s->in : 3});
    x = graph_normalize(graph, x, mean, deviation);
    if (!images)
        x = graph_conv2d(graph, "first", x, &(Conv2d){.channels = s->in, .kernel = 1, .stride = 1});
    if (s->reflects)
        x = graph_reflection_pad(graph, x, s->padding);
    else
        conv.padding = s->padding;
    graph_keep(graph, graph_conv2d(graph, "conv", x, &conv), "y");
    graph_fuse(graph, FUSE_ALL | FUSE_PAD_CONV | FUSE_NORMALIZE_CONV);
    FshError error = {0};
    assert_ok(graph_check(graph, &error), &error);
    for (size_t i = 0; i < graph_node_count(graph); i++)
        if (graph_node(graph, (NodeId)i)->op == OP_CONV2D)
            mirrors |= check_convolution(graph, graph_node(graph, (NodeId)i));
    graph_free(&graph);
    return mirrors;
}

static const int64_t channels[] = {1, 3, 8, 16, 20, 32};
enum { CHANNELS = sizeof channels / sizeof *channels, KERNEL_MAX = 5, SIZES = 90 };

TEST(test_mirrored_images_fit_wherever_pads_are_fused)
{
    int fused = 0, left = 0;
    for (int64_t size = 2; size < SIZES; size += 1 + size / 12)
        for (int i = 0; i < CHANNELS * CHANNELS; i++)
            for (int64_t kernel = 1; kernel <= KERNEL_MAX; kernel++)
                for (int64_t stride = 1; stride <= 2; stride++)
                    for (int64_t padding = 1; padding <= 2 * kernel && padding < size; padding++) {
                        const Shape s = {
                            2048,
                            size,
                            size + size % 5,
                            channels[i / CHANNELS],
                            padding,
                            true,
                            {.channels = channels[i % CHANNELS], .kernel = kernel, .stride = stride}};
                        if (size + 2 * padding < kernel)
                            continue;
                        if (try_shape(&s))
                            fused++;
                        else
                            left++;
                    }
    assert_true(fused > 1000);
    assert_true(left > 1000);
}

TEST(test_bytes_fit_wherever_normalising_is_fused)
{
    static const int64_t sizes[] = {2, 7, 28, 33, 224, 1000};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int i = 0; i < CHANNELS; i++)
            for (int64_t kernel = 1; kernel <= KERNEL_MAX; kernel++)
                for (int64_t stride = 1; stride <= 2; stride++)
                    for (int64_t in = 1; in <= 4; in++) {
                        const Shape s = {in == 2 ? 1 : 512,
                                         sizes[n],
                                         sizes[n] + 3,
                                         in,
                                         kernel / 2,
                                         false,
                                         {.channels = channels[i], .kernel = kernel, .stride = stride}};
                        if (sizes[n] + kernel / 2 * 2 >= kernel)
                            (void)try_shape(&s);
                    }
}
