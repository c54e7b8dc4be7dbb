#include "tests/trainer/fusion_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"
#include "tests/trainer/network_support.h"

enum { BATCH = 6, SIZE = 12, FIRST_SEED = 11, NARROW_SEEDS = 6 };

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

/* Returns a network of three blocks with shortcuts of stride 2. Images of 12 pixels become 6, 3 and 2. The
 * second block's first convolution is one of 1 x 1. */
static Graph *strided_graph(unsigned fusions, DataType type)
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

/* Returns a network of norms and max pools. What reads the pools: a sum and a convolution of 3 x 3; one
 * convolution of 1 x 1, of many channels or few; two of them, of which one has a stride. Activations: a ReLU,
 * a leaky one, none. */
static Graph *pooled_graph(unsigned fusions, DataType type)
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

/* Returns a network that begins as resnets do. */
static Graph *stem_graph(unsigned fusions, DataType type)
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

/* Returns a network of the gates of NAFNet, with a bias in front of each rewrite that makes its gradient: a
 * gate whose results are multiplied by factors of their means, one without, and channel scales. */
static Graph *gated_graph(unsigned fusions, DataType type)
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

/* Layer scales behind convolutions and a linear layer, of few channels and of more than a warp reads at once,
 * with an addend and without, with a bias and without. */
static Graph *scaled_graph(unsigned fusions, DataType type)
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

/* Convolutions of few channels behind reflection pads, at both strides, the first of the images. */
static Graph *padded_graph(unsigned fusions, DataType type)
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

typedef struct Run {
    Graph *graph;
    State *state;
    Program *program;
} Run;

static Run run_of(Backend *backend, Graph *graph, uint64_t seed)
{
    FshError error = {0};
    Run run = {.graph = graph};
    test_check(state_new(&run.state, backend, run.graph, &error), &error);
    test_check(state_initialize(run.state, seed, &error), &error);
    test_check(program_new(&run.program, run.state, run.graph, &error), &error);
    test_check(program_poison(run.program, &error), &error);
    test_write_batch(run.program);
    test_run(run.program);
    return run;
}

static Run run_fused(Backend *backend, DataType type, unsigned fusions, uint64_t seed)
{
    return run_of(backend, fusion_graph(fusions, type), seed);
}

static void end_run(Run *run)
{
    program_free(&run->program);
    state_free(&run->state);
    graph_free(&run->graph);
}

static double norm_of(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* Returns whether the bias is in front of a norm, where its gradient is 0 but for rounding. */
static bool is_idle_bias(const char *name)
{
    static const char *const idle[] = {"conv1.bias.grad", "hidden.bias.grad", "a.bias.grad", "c.bias.grad"};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (strcmp(name, idle[i]) == 0)
            return true;
    return false;
}

static void compare_tensor(const Run *ours, const Run *without, const char *name, unsigned fusions,
                           double tolerance)
{
    size_t count;
    float *a = test_read(ours->program, name, &count), *b = test_read(without->program, name, NULL);
    const bool before_norm = is_idle_bias(name);
    if (before_norm && (fusions & FUSE_BIAS_NORM))
        for (size_t i = 0; i < count; i++)
            assert_true(a[i] == 0);
    else if (before_norm)
        assert_true(norm_of(a, count) < 100 * tolerance);
    else if (!(test_relative_error(a, b, count) <= tolerance))
        fail_msg("fusions %u: %s differs by %.1e", fusions, name, test_relative_error(a, b, count));
    free(a);
    free(b);
}

/* Compares two runs, and ends them. */
static void compare_runs(Run *ours, Run *without, unsigned fusions, double tolerance)
{
    compare_tensor(ours, without, "loss", fusions, tolerance);
    for (size_t t = 0; t < graph_tensor_count(without->graph); t++) {
        const Tensor *tensor = graph_tensor(without->graph, (TensorId)t);
        if (tensor->role == TENSOR_GRADIENT || tensor->role == TENSOR_BUFFER)
            compare_tensor(ours, without, tensor->name, fusions, tolerance);
    }
    end_run(ours);
    end_run(without);
}

void compare_fusions(Backend *backend, DataType type, unsigned fusions, double tolerance)
{
    Run ours = run_fused(backend, type, fusions, FIRST_SEED),
        without = run_fused(backend, type, 0, FIRST_SEED);
    compare_runs(&ours, &without, fusions, tolerance);
}

/* A comparison of a network with the one set of fusions and the other. */
typedef struct Pair {
    Graph *(*make)(unsigned fusions, DataType type);
    OpKind op, other; /* what so many nodes of each must be */
    size_t count;
} Pair;

static void compare_pair(const Pair *pair, Backend *backend, DataType type, unsigned fusions, unsigned others,
                         double tolerance)
{
    Run ours = run_of(backend, pair->make(fusions, type), FIRST_SEED),
        without = run_of(backend, pair->make(others, type), FIRST_SEED);
    if (pair->count) {
        assert_int_equal(test_count_ops(ours.graph, pair->op), pair->count);
        assert_int_equal(test_count_ops(without.graph, pair->other), pair->count);
    }
    compare_runs(&ours, &without, fusions, tolerance);
}

void compare_strided(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    compare_pair(&(Pair){.make = strided_graph}, backend, type, fusions, others, tolerance);
}

void compare_pooled(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    const Pair pair = {pooled_graph, OP_NORM_POOL_BACKWARD, OP_MAX_POOL_BACKWARD, 5};
    compare_pair(&pair, backend, type, fusions, others, tolerance);
}

void compare_gated(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    compare_pair(&(Pair){.make = gated_graph}, backend, type, fusions, others, tolerance);
}

void compare_scaled(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    const Pair pair = {scaled_graph, OP_SCALED_LINEAR_BACKWARD_WEIGHT, OP_CHANNEL_SCALE_BACKWARD, 3};
    compare_pair(&pair, backend, type, fusions, others, tolerance);
}

void compare_padded(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    compare_pair(&(Pair){.make = padded_graph}, backend, type, fusions, others, tolerance);
}

void compare_stem(Backend *backend, DataType type, unsigned fusions, unsigned others, double tolerance)
{
    const Pair pair = {stem_graph, OP_STEM_BACKWARD_WEIGHT, OP_NORM_POOL_BACKWARD, 1};
    compare_pair(&pair, backend, type, fusions, others, tolerance);
}

void compare_bits_of_fusions(Backend *backend, DataType type, unsigned fusions, unsigned others)
{
    Run ours = run_fused(backend, type, fusions, FIRST_SEED),
        theirs = run_fused(backend, type, others, FIRST_SEED);
    size_t compared = 0;
    for (size_t t = 0; t < graph_tensor_count(theirs.graph); t++) {
        const Tensor *tensor = graph_tensor(theirs.graph, (TensorId)t);
        size_t count;
        if (tensor->role != TENSOR_GRADIENT && tensor->role != TENSOR_BUFFER)
            continue;
        float *a = test_read(ours.program, tensor->name, &count),
              *b = test_read(theirs.program, tensor->name, NULL);
        if (memcmp(a, b, count * sizeof *a) != 0)
            fail_msg("%s differs with the fusions %u and %u", tensor->name, fusions, others);
        free(a);
        free(b);
        compared++;
    }
    assert_true(compared > 0);
    end_run(&ours);
    end_run(&theirs);
}

/* Returns ||difference||^2 / ||exact||^2 over all gradients. With `tell` prints what each tensor has of
 * it. */
static double squared_distance(const Run *run, const Run *exact, bool tell)
{
    double differences = 0, sizes = 0;
    for (size_t t = 0; t < graph_tensor_count(exact->graph); t++) {
        const Tensor *tensor = graph_tensor(exact->graph, (TensorId)t);
        size_t count;
        if (tensor->role != TENSOR_GRADIENT || is_idle_bias(tensor->name))
            continue;
        float *a = test_read(run->program, tensor->name, &count),
              *b = test_read(exact->program, tensor->name, NULL);
        const double size = pow(norm_of(b, count), 2);
        for (size_t i = 0; i < count; i++)
            a[i] -= b[i];
        const double difference = pow(norm_of(a, count), 2);
        if (tell)
            print_message("    %-28s %.2e of %.2e\n", tensor->name, sqrt(difference), sqrt(size));
        sizes += size;
        differences += difference;
        free(a);
        free(b);
    }
    return differences / sizes;
}

/* Over several first weights: a sign that turns over in one of so small networks is a large difference. */
void compare_narrow_fusions(Backend *backend, DataType type, unsigned fusions)
{
    double plain[NARROW_SEEDS], fused[NARROW_SEEDS], plain_sum = 0, fused_sum = 0;
    for (int tell = 0; tell < 2; tell++) {
        for (int i = 0; i < NARROW_SEEDS; i++) {
            const uint64_t seed = FIRST_SEED + (uint64_t)i;
            Run exact = run_fused(backend, DATA_F32, 0, seed), without = run_fused(backend, type, 0, seed),
                ours = run_fused(backend, type, fusions, seed);
            plain[i] = squared_distance(&without, &exact, tell);
            fused[i] = squared_distance(&ours, &exact, tell);
            end_run(&exact);
            end_run(&without);
            end_run(&ours);
            if (!tell) {
                plain_sum += plain[i];
                fused_sum += fused[i];
            }
        }
        if (fused_sum <= 4 * plain_sum)
            return;
    }
    for (int i = 0; i < NARROW_SEEDS; i++)
        print_message("seed %d: %.4f with the fusions, %.4f without\n", FIRST_SEED + i, sqrt(fused[i]),
                      sqrt(plain[i]));
    fail_msg("fusions %u in %s: gradients are %.3f of their size from float32's, without fusions %.3f",
             fusions, data_type_name(type), sqrt(fused_sum / NARROW_SEEDS), sqrt(plain_sum / NARROW_SEEDS));
}

enum { LARGE = 2368 }; /* edge of an image of 2^24 elements and some */

static float *large_gradient(Backend *backend, DataType type, unsigned fusions, size_t *count)
{
    FshError error = {0};
    Graph *graph = graph_new();
    State *state = NULL;
    Program *program = NULL;
    const size_t bytes = (size_t)3 * LARGE * LARGE;
    uint8_t *pixels = malloc(bytes);
    const int64_t label = 1;
    assert_non_null(pixels);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)(i * 2654435761U >> 23);
    graph_set_compute_type(graph, type);
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){1, LARGE, LARGE, 3});
    const TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){1});
    image = graph_normalize(graph, image, (double[]){0.5, 0.5, 0.5}, (double[]){0.25, 0.25, 0.25});
    TensorId x = graph_conv2d(graph, "conv", image,
                              &(Conv2d){.channels = 8, .kernel = 7, .stride = 8, .padding = 3, .bias = true});
    x = graph_linear(graph, "fc", graph_global_avg_pool(graph, graph_relu(graph, x)), 4, true);
    x = graph_cast(graph, x, DATA_F32);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    test_check(graph_check(graph, &error), &error);
    test_check(state_new(&state, backend, graph, &error), &error);
    test_check(state_initialize(state, 5, &error), &error);
    test_check(program_new(&program, state, graph, &error), &error);
    test_check(program_poison(program, &error), &error);
    test_check(program_write(program, graph_find(graph, "image"), pixels, bytes, &error), &error);
    test_check(program_write(program, graph_find(graph, "label"), &label, sizeof label, &error), &error);
    test_run(program);
    float *gradient = test_read(program, "conv.weight.grad", count);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    free(pixels);
    return gradient;
}

void compare_images_again(Backend *backend, DataType type)
{
    size_t count, same_count;
    float *kept = large_gradient(backend, type, FUSE_NONE, &count),
          *again = large_gradient(backend, type, FUSE_IMAGES_AGAIN, &same_count);
    assert_int_equal(count, same_count);
    assert_true(norm_of(kept, count) > 0);
    assert_memory_equal(kept, again, count * sizeof *kept);
    free(kept);
    free(again);
}

/* Returns how many results are no number where those of a middle pixel of the first image should be. */
static size_t count_no_numbers(Backend *backend, DataType type, const int64_t image[4], const Conv2d *conv,
                               float slope)
{
    FshError error = {0};
    Graph *graph = graph_new();
    State *state = NULL;
    Program *program = NULL;
    const size_t count = (size_t)(image[0] * image[1] * image[2] * image[3]);
    float *pixels = malloc(count * sizeof *pixels);
    assert_non_null(pixels);
    for (size_t i = 0; i < count; i++)
        pixels[i] = (float)(i * 2654435761U % 1024) / 512 - 1;
    pixels[(image[1] / 2 * image[2] + image[2] / 2) * image[3]] = NAN;
    graph_set_compute_type(graph, type);
    const TensorId x = graph_input(graph, "x", DATA_F32, 4, image);
    TensorId y = graph_conv2d(graph, "conv", type == DATA_F32 ? x : graph_cast(graph, x, type), conv);
    y = graph_leaky_relu(graph, y, slope);
    graph_keep(graph, type == DATA_F32 ? y : graph_cast(graph, y, DATA_F32), "y");
    graph_fuse(graph, FUSE_CONV_BIAS_RELU);
    test_check(graph_check(graph, &error), &error);
    test_check(state_new(&state, backend, graph, &error), &error);
    test_check(state_initialize(state, 5, &error), &error);
    test_check(program_new(&program, state, graph, &error), &error);
    test_check(program_write(program, x, pixels, count * sizeof *pixels, &error), &error);
    test_run(program);
    size_t result_count, found = 0;
    float *result = test_read(program, "y", &result_count);
    for (size_t i = 0; i < result_count; i++)
        found += isnan(result[i]) != 0;
    free(result);
    free(pixels);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    return found;
}

void check_no_number_passes(Backend *backend, DataType type)
{
    static const struct {
        int64_t image[4];
        Conv2d conv;
        size_t expected;
    } cases[] = {
        {{2, 9, 9, 64}, {.channels = 64, .kernel = 3, .stride = 1, .padding = 1, .bias = true}, 9 * 64},
        {{4, 4, 4, 64}, {.channels = 72, .kernel = 3, .stride = 1, .padding = 1, .bias = true}, 9 * 72},
        {{2, 9, 9, 3}, {.channels = 24, .kernel = 3, .stride = 1, .padding = 1, .bias = true}, 9 * 24},
        {{2, 8, 8, 32}, {.channels = 40, .kernel = 1, .stride = 1, .bias = true}, 40},
        {{2, 9, 9, 16},
         {.channels = 16, .kernel = 3, .stride = 1, .padding = 1, .groups = 16, .bias = true},
         9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int leaky = 0; leaky < 2; leaky++) {
            const size_t found =
                count_no_numbers(backend, type, cases[i].image, &cases[i].conv, leaky ? 0.2F : 0);
            if (found < cases[i].expected) /* more, where a way reads neighbours for weights of 0 */
                fail_msg("case %zu in %s, %s: %zu results are no number, fewer than %zu", i,
                         data_type_name(type), leaky ? "leaky" : "ReLU", found, cases[i].expected);
        }
}
