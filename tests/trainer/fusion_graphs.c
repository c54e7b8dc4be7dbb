#include "tests/trainer/fusion_graphs.h"

#include <stdio.h>

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"
#include "tests/trainer/network_support.h"

enum { BATCH = 6, SIZE = 12 };

static TensorId conv3x3(Graph *graph, const char *name, TensorId x, int64_t channels, bool bias)
{
    return graph_conv2d(
        graph, name, x,
        &(Conv2d){.channels = channels, .kernel = 3, .stride = 1, .padding = 1, .bias = bias});
}

/* Appends a convolution of 1 x 1 of 64 channels, NAME, and its norm, NAME_norm. */
static TensorId pointwise(Graph *graph, const char *name, TensorId x)
{
    const BatchNorm norm = {.training = true};
    char of_norm[32];
    (void)snprintf(of_norm, sizeof of_norm, "%s_norm", name);
    x = graph_conv2d(graph, name, x, &(Conv2d){.channels = 64, .kernel = 1, .stride = 1});
    return graph_batch_norm(graph, of_norm, x, &norm);
}

/* Appends two blocks of convolutions of 1 x 1, whose data gradients meet norms with and without an addend. */
static TensorId pointwise_blocks(Graph *graph, TensorId x)
{
    x = graph_relu(graph, pointwise(graph, "widen", x));
    for (int block = 0; block < 2; block++) {
        TensorId y = graph_relu(graph, pointwise(graph, block ? "c" : "a", x));
        x = graph_relu(graph, graph_add(graph, pointwise(graph, block ? "d" : "b", y), x));
    }
    return x;
}

/* Appends squeeze and excitation of x, with the layers NAME_squeeze and NAME_excite. */
static TensorId squeeze_excite(Graph *graph, const char *name, TensorId x)
{
    char first[32], second[32];
    (void)snprintf(first, sizeof first, "%s_squeeze", name);
    (void)snprintf(second, sizeof second, "%s_excite", name);
    TensorId s = graph_linear(graph, first, graph_global_avg_pool(graph, x), 8, true);
    s = graph_linear(graph, second, graph_silu(graph, s), graph_tensor(graph, x)->shape[3], true);
    return graph_channel_multiply(graph, x, graph_sigmoid(graph, s));
}

/* A network of images, as far as tests have appended to it, and the inputs that it begins with. */
typedef struct Begun {
    Graph *graph;
    TensorId image, label;
} Begun;

/* Begins a network of images of so many pixels across that computes in the type. */
static Begun begin(DataType type, int64_t size)
{
    Begun begun = {.graph = graph_new()};
    assert_non_null(begun.graph);
    begun.image = graph_input(begun.graph, "image", DATA_U8, 4, (int64_t[]){BATCH, size, size, 3});
    begun.label = graph_input(begun.graph, "label", DATA_I64, 1, (int64_t[]){BATCH});
    graph_set_compute_type(begun.graph, type);
    return begun;
}

/* Appends the normalised image. */
static TensorId normalized(const Begun *begun)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    return graph_normalize(begun->graph, begun->image, mean, deviation);
}

/* Appends the layer of classes, the loss and its gradients. Returns the graph. */
static Graph *finish(const Begun *begun, TensorId features, unsigned fusions)
{
    Graph *graph = begun->graph;
    FshError error = {0};
    TensorId x = graph_cast(graph, graph_linear(graph, "fc", features, TEST_CLASSES, true), DATA_F32);
    TensorId loss = graph_softmax_cross_entropy(graph, x, begun->label, TENSOR_NONE, TENSOR_NONE, 0.1F);
    graph_keep(graph, loss, "loss");
    graph_fuse(graph, fusions);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, fusions);
    test_check(graph_check(graph, &error), &error);
    return graph;
}

Graph *fusion_graph(unsigned fusions, DataType type)
{
    const BatchNorm norm = {.training = true};
    const Begun begun = begin(type, SIZE);
    Graph *graph = begun.graph;
    const TensorId pixels = normalized(&begun);
    TensorId x = conv3x3(graph, "conv1", pixels, 12, true);
    x = graph_relu(graph, graph_batch_norm(graph, "bn1", x, &norm));
    x = conv3x3(graph, "conv12", pointwise_blocks(graph, x), 12, false);
    x = graph_relu(graph, graph_batch_norm(graph, "bn15", x, &norm)); /* read twice, without an addend */
    TensorId y = graph_batch_norm(graph, "bn2", conv3x3(graph, "conv2", x, 12, false), &norm);
    x = graph_relu(graph, graph_add(graph, y, x)); /* read twice, with one */
    y = graph_batch_norm(graph, "bn12", conv3x3(graph, "conv10", x, 12, false), &norm);
    x = graph_relu(graph, graph_add(graph, squeeze_excite(graph, "a", y), x)); /* read twice */
    y = graph_batch_norm(graph, "bn13", conv3x3(graph, "conv11", x, 12, false), &norm);
    x = graph_add(graph, x, squeeze_excite(graph, "b", y)); /* no activation; its gradient goes two ways */
    y = conv3x3(graph, "conv3", graph_batch_norm(graph, "bn3", x, &norm), 12, false);
    x = graph_add(graph, graph_batch_norm(graph, "bn4", y, &norm),
                  x); /* no activation; its gradient goes two ways */
    y = conv3x3(graph, "conv4", graph_batch_norm(graph, "bn5", x, &norm), 21, false);
    x = graph_add(graph, graph_batch_norm(graph, "bn6", y, &norm), graph_zero_pad(graph, x, SIZE, SIZE, 21));
    x = graph_gelu(graph, graph_batch_norm(graph, "bn9", conv3x3(graph, "conv8", x, 18, false), &norm));
    y = graph_batch_norm(graph, "bn10", conv3x3(graph, "conv9", x, 18, false), &norm); /* x is read twice */
    x = graph_mish(graph, graph_add(graph, y, x));
    x = graph_silu(graph, graph_batch_norm(graph, "bn11", x, &norm));
    x = squeeze_excite(graph, "c", graph_batch_norm(graph, "bn14", x, &norm)); /* read once, by conv5 */
    x = graph_batch_norm(graph, "bn7", conv3x3(graph, "conv5", x, 9, false), &norm);
    x = graph_global_avg_pool(graph, graph_leaky_relu(graph, x, 0.3F));
    y = graph_leaky_relu(graph, conv3x3(graph, "conv6", pixels, 14, true), 0.25F); /* beside all that */
    y = graph_relu(graph, conv3x3(graph, "conv7", y, 9, true));
    x = graph_add(graph, x, graph_global_avg_pool(graph, y));
    y = graph_conv2d(graph, "stem", normalized(&begun),
                     &(Conv2d){.channels = 9, .kernel = 7, .stride = 2, .padding = 3});
    y = graph_relu(graph, graph_batch_norm(graph, "bn16", y, &norm)); /* beside that, too */
    x = graph_add(graph, x, graph_global_avg_pool(graph, y));
    x = graph_linear(graph, "hidden", graph_linear(graph, "wide", x, 24, false), 20, true);
    x = graph_leaky_relu(graph, graph_batch_norm(graph, "bn8", x, &norm), 0.5F);
    return finish(&begun, x, fusions);
}

/* Appends a convolution of 3 x 3 or 1 x 1, LAYER.WHICH, and its norm. */
static TensorId convolved(Graph *graph, const char *layer, const char *which, TensorId x, int64_t kernel,
                          int64_t stride)
{
    char name[32], of_norm[32];
    (void)snprintf(name, sizeof name, "%s.%s", layer, which);
    (void)snprintf(of_norm, sizeof of_norm, "%s.%s_norm", layer, which);
    const Conv2d conv = {.channels = 64, .kernel = kernel, .stride = stride, .padding = kernel / 2};
    return graph_batch_norm(graph, of_norm, graph_conv2d(graph, name, x, &conv),
                            &(BatchNorm){.training = true});
}

Graph *strided_graph(unsigned fusions, DataType type)
{
    static const char *const layers[] = {"a", "b", "c"};
    const Begun begun = begin(type, SIZE);
    Graph *graph = begun.graph;
    TensorId x = graph_relu(graph, convolved(graph, "first", "conv", normalized(&begun), 3, 1));
    for (int i = 0; i < 3; i++) {
        TensorId y = graph_relu(graph, convolved(graph, layers[i], "conv1", x, i == 1 ? 1 : 3, 1));
        y = convolved(graph, layers[i], "conv2", y, 3, 2);
        x = graph_relu(graph, graph_add(graph, y, convolved(graph, layers[i], "shortcut", x, 1, 2)));
    }
    return finish(&begun, graph_global_avg_pool(graph, x), fusions);
}

enum { POOLED_SIZE = 105, POOLED_CHANNELS = 64 }; /* 2^22 values and some */

/* Appends a convolution, NAME, and a norm whose weights are of both signs. */
static TensorId normed(Graph *graph, const char *name, TensorId x, bool bias)
{
    const BatchNorm norm = {.training = true};
    char of_norm[32], weight[48];
    (void)snprintf(of_norm, sizeof of_norm, "%s_norm", name);
    (void)snprintf(weight, sizeof weight, "%s.weight", of_norm);
    x = graph_batch_norm(graph, of_norm, conv3x3(graph, name, x, POOLED_CHANNELS, bias), &norm);
    graph_set_initializer(graph, weight, (Initializer){INIT_NORMAL, 1});
    return x;
}

/* Appends a convolution of 1 x 1 and the means of its result. */
static TensorId pointwise_means(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t stride)
{
    const Conv2d conv = {.channels = channels, .kernel = 1, .stride = stride};
    x = graph_global_avg_pool(graph, graph_relu(graph, graph_conv2d(graph, name, x, &conv)));
    char means[32];
    (void)snprintf(means, sizeof means, "%s_means", name);
    return graph_linear(graph, means, x, 16, false);
}

Graph *pooled_graph(unsigned fusions, DataType type)
{
    const Pool2d wide = {.kernel = 3, .stride = 2, .padding = 1}, narrow = {.kernel = 2, .stride = 2};
    const Begun begun = begin(type, POOLED_SIZE);
    Graph *graph = begun.graph;
    const TensorId pixels = normalized(&begun);
    TensorId x = graph_max_pool(graph, graph_relu(graph, normed(graph, "a", pixels, true)), &wide);
    x = graph_add(graph, x, conv3x3(graph, "after", x, POOLED_CHANNELS, false));
    TensorId sum = graph_linear(graph, "a_means", graph_global_avg_pool(graph, x), 16, false);
    x = graph_max_pool(graph, graph_leaky_relu(graph, normed(graph, "b", pixels, false), 0.25F), &narrow);
    sum = graph_add(graph, sum, pointwise_means(graph, "b_one", x, 64, 1));
    x = graph_max_pool(graph, normed(graph, "c", pixels, true), &wide);
    sum = graph_add(graph, sum, pointwise_means(graph, "c_one", x, 24, 1));
    x = graph_max_pool(graph, graph_relu(graph, normed(graph, "d", pixels, false)), &wide);
    sum = graph_add(graph, sum, pointwise_means(graph, "d_one", x, 64, 1));
    sum = graph_add(graph, sum, pointwise_means(graph, "d_two", x, 64, 2));
    x = graph_max_pool(graph, graph_relu(graph, normed(graph, "e", pixels, false)), &wide);
    sum = graph_add(graph, sum, pointwise_means(graph, "e_one", x, 64, 1));
    sum = graph_add(graph, sum, pointwise_means(graph, "e_two", x, 128, 1));
    return finish(&begun, sum, fusions);
}

Graph *stem_graph(unsigned fusions, DataType type)
{
    enum { STEM_SIZE = 77 }; /* x has 39 pixels across, the pool 20: no multiples of a tile */
    const Conv2d stem = {.channels = 64, .kernel = 7, .stride = 2, .padding = 3};
    const Begun begun = begin(type, STEM_SIZE);
    Graph *graph = begun.graph;
    TensorId x = graph_conv2d(graph, "stem", normalized(&begun), &stem);
    x = graph_batch_norm(graph, "stem_norm", x, &(BatchNorm){.training = true});
    graph_set_initializer(graph, "stem_norm.weight", (Initializer){INIT_NORMAL, 1});
    graph_set_pool_least(graph, 1);
    x = graph_max_pool(graph, graph_relu(graph, x), &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    x = graph_relu(graph, conv3x3(graph, "after", x, 16, true));
    return finish(&begun, graph_global_avg_pool(graph, x), fusions);
}

Graph *gated_graph(unsigned fusions, DataType type)
{
    const Conv2d back = {.channels = 12, .kernel = 1, .stride = 1, .bias = true};
    const Begun begun = begin(type, SIZE);
    Graph *graph = begun.graph;
    TensorId y = graph_gate(graph, conv3x3(graph, "widen", normalized(&begun), 32, true));
    y = graph_channel_multiply(graph, y,
                               graph_linear_1x1(graph, "means", graph_global_avg_pool(graph, y), 16, true));
    const TensorId x =
        graph_channel_scale(graph, "narrow", "beta", graph_conv2d(graph, "narrow", y, &back), TENSOR_NONE);
    y = graph_gate(graph, conv3x3(graph, "widen2", x, 48, true));
    y = graph_channel_scale(graph, "narrow2", "beta", graph_conv2d(graph, "narrow2", y, &back), x);
    graph_set_initializer(graph, "narrow.beta", (Initializer){INIT_NORMAL, 1});
    graph_set_initializer(graph, "narrow2.beta", (Initializer){INIT_NORMAL, 1});
    return finish(&begun, graph_global_avg_pool(graph, conv3x3(graph, "last", y, 16, true)), fusions);
}

Graph *scaled_graph(unsigned fusions, DataType type)
{
    static const char *const layers[] = {"first", "second", "third"};
    const Conv2d first = {.channels = 16, .kernel = 1, .stride = 1, .bias = true},
                 second = {.channels = 16, .kernel = 1, .stride = 1};
    const Begun begun = begin(type, SIZE);
    Graph *graph = begun.graph;
    TensorId x = graph_gelu(graph, conv3x3(graph, "widen", normalized(&begun), 136, true));
    x = graph_channel_scale(graph, layers[0], "gamma", graph_conv2d(graph, layers[0], x, &first),
                            TENSOR_NONE);
    x = graph_channel_scale(graph, layers[1], "gamma", graph_conv2d(graph, layers[1], x, &second), x);
    x = graph_channel_scale(graph, layers[2], "gamma", graph_linear_1x1(graph, layers[2], x, 16, true), x);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s.gamma", layers[i]);
        graph_set_initializer(graph, name, (Initializer){INIT_NORMAL, 1});
    }
    return finish(&begun, graph_global_avg_pool(graph, conv3x3(graph, "last", x, 16, true)), fusions);
}

Graph *padded_graph(unsigned fusions, DataType type)
{
    static const Conv2d layers[] = {{.channels = 3, .kernel = 3, .stride = 2},
                                    {.channels = 8, .kernel = 3, .stride = 1},
                                    {.channels = 24, .kernel = 5, .stride = 2},
                                    {.channels = 32, .kernel = 3, .stride = 1}};
    const Begun begun = begin(type, SIZE);
    TensorId x = normalized(&begun);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char name[GRAPH_NAME_MAX];
        (void)snprintf(name, sizeof name, "conv%zu", i);
        x = graph_conv2d(begun.graph, name, graph_reflection_pad(begun.graph, x, layers[i].kernel / 2),
                         &layers[i]);
        (void)snprintf(name, sizeof name, "norm%zu", i);
        x = graph_relu(begun.graph, graph_batch_norm(begun.graph, name, x, &(BatchNorm){.training = true}));
    }
    return finish(&begun, graph_global_avg_pool(begun.graph, x), fusions);
}

/* Appends a convolution of 3 x 3, NAME, and its norm, NAME_norm, whose weights and biases are of both
 * signs: a mean of 0 behind it would be nothing but rounding. */
static TensorId paired(Graph *graph, const char *name, TensorId x, int64_t channels)
{
    char norm[32], weight[48], bias[48];
    (void)snprintf(norm, sizeof norm, "%s_norm", name);
    (void)snprintf(weight, sizeof weight, "%s.weight", norm);
    (void)snprintf(bias, sizeof bias, "%s.bias", norm);
    x = graph_batch_norm(graph, norm, conv3x3(graph, name, x, channels, false),
                         &(BatchNorm){.training = true});
    graph_set_initializer(graph, weight, (Initializer){INIT_NORMAL, 1});
    graph_set_initializer(graph, bias, (Initializer){INIT_NORMAL, 1});
    return x;
}

/* Returns a network of pairs of norms, of images of so many pixels across, of so many channels at first and
 * of `more` behind that. */
static Graph *pair_graph(unsigned fusions, DataType type, int64_t size, int64_t channels, int64_t more)
{
    const BatchNorm norm = {.training = true};
    const Begun begun = begin(type, size);
    Graph *graph = begun.graph;
    TensorId x = paired(graph, "pair_first", normalized(&begun), channels);
    TensorId y = paired(graph, "pair_a", graph_batch_norm(graph, "a_before", x, &norm), more);
    y = paired(graph, "pair_b", graph_relu(graph, y), more);
    x = graph_add(graph, y, graph_zero_pad(graph, x, size, size, more));
    y = paired(graph, "pair_c", graph_relu(graph, graph_batch_norm(graph, "c_before", x, &norm)), more);
    graph_loss_scale(graph); /* float16 does not hold the gradients of means over so many pixels */
    y = graph_leaky_relu(graph, graph_batch_norm(graph, "last", graph_add(graph, y, x), &norm), 0.3F);
    y = graph_global_avg_pool(graph, y);
    /* what no norm is behind, or the biases of all norms in front would have no gradient */
    x = graph_global_avg_pool(graph, graph_relu(graph, conv3x3(graph, "beside", x, more, false)));
    return finish(&begun, graph_add(graph, x, y), fusions);
}

Graph *paired_graph(unsigned fusions, DataType type)
{
    return pair_graph(fusions, type, SIZE, 20, 29);
}

Graph *middle_paired_graph(unsigned fusions, DataType type)
{
    return pair_graph(fusions, type, 97, 244, 250); /* 28.9 MB in 16 bits */
}

Graph *large_paired_graph(unsigned fusions, DataType type)
{
    return pair_graph(fusions, type, 106, 244, 250); /* 33 MB */
}
