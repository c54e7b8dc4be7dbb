#include "tests/trainer/cuda_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Backend *backends[BACKENDS];
Comparison comparison = {.seed = 1};

/* Which program compares an op. What stands here by no name is not lowered. */
static const char *const compared_by[OP_KIND_COUNT] = {
    [OP_ADD] = "cuda_op_test",
    [OP_ATTENTION] = "cuda_op_test",
    [OP_ATTENTION_BACKWARD] = "cuda_op_test",
    [OP_AVG_POOL] = "cuda_op_test",
    [OP_AVG_POOL_BACKWARD] = "cuda_op_test",
    [OP_BATCH_NORM] = "cuda_op_test",
    [OP_BATCH_NORM_BACKWARD] = "cuda_op_test",
    [OP_BIAS_BACKWARD] = "cuda_op_test",
    [OP_BINARY_CROSS_ENTROPY] = "cuda_loss_test",
    [OP_BINARY_CROSS_ENTROPY_BACKWARD] = "cuda_loss_test",
    [OP_CAST] = "cuda_op_test",
    [OP_CHANNEL_MULTIPLY] = "cuda_op_test",
    [OP_CHANNEL_MULTIPLY_BACKWARD] = "cuda_op_test",
    [OP_CHANNEL_SCALE] = "cuda_op_test",
    [OP_CHANNEL_SCALE_BACKWARD] = "cuda_op_test",
    [OP_CONCAT] = "cuda_op_test",
    [OP_CONV2D] = "cuda_op_test",
    [OP_CONV2D_BACKWARD_DATA] = "cuda_op_test",
    [OP_CONV2D_BACKWARD_WEIGHT] = "cuda_op_test",
    [OP_CONV_NORM_BACKWARD] = "cuda_fusion_test",
    [OP_CROP] = "cuda_op_test",
    [OP_FILL] = "cuda_test",
    [OP_FLATTEN] = "cuda_op_test",
    [OP_FLATTEN_BACKWARD] = "cuda_op_test",
    [OP_GATE] = "cuda_op_test",
    [OP_GATE_BACKWARD] = "cuda_op_test",
    [OP_GELU] = "cuda_op_test",
    [OP_GELU_BACKWARD] = "cuda_op_test",
    [OP_GLOBAL_AVG_POOL] = "cuda_op_test",
    [OP_GLOBAL_AVG_POOL_BACKWARD] = "cuda_op_test",
    [OP_LAYER_NORM] = "cuda_op_test",
    [OP_LAYER_NORM_BACKWARD] = "cuda_op_test",
    [OP_LINEAR] = "cuda_op_test",
    [OP_LINEAR_BACKWARD_DATA] = "cuda_op_test",
    [OP_LINEAR_BACKWARD_WEIGHT] = "cuda_op_test",
    [OP_MASK_LOSS] = "cuda_mask_loss_test",
    [OP_MASK_LOSS_BACKWARD] = "cuda_mask_loss_test",
    [OP_MAX_POOL] = "cuda_op_test",
    [OP_MAX_POOL_BACKWARD] = "cuda_op_test",
    [OP_MISH] = "cuda_op_test",
    [OP_MISH_BACKWARD] = "cuda_op_test",
    [OP_NORMALIZE] = "cuda_test",
    [OP_NORM_GATE] = "cuda_op_test",
    [OP_NORM_GATE_BACKWARD] = "cuda_op_test",
    [OP_NORM_PAIR] = "cuda_fusion_test",
    [OP_NORM_PAIR_BACKWARD] = "cuda_fusion_test",
    [OP_NORM_POOL] = "cuda_fusion_test",
    [OP_NORM_POOL_BACKWARD] = "cuda_fusion_test",
    [OP_NORM_SQUEEZE] = "cuda_op_test",
    [OP_NORM_SQUEEZE_BACKWARD] = "cuda_op_test",
    [OP_PIXEL_LOSS] = "cuda_loss_test",
    [OP_PIXEL_LOSS_BACKWARD] = "cuda_loss_test",
    [OP_PIXEL_SHUFFLE] = "cuda_op_test",
    [OP_PIXEL_UNSHUFFLE] = "cuda_op_test",
    [OP_REFLECTION_PAD] = "cuda_op_test",
    [OP_REFLECTION_PAD_BACKWARD] = "cuda_op_test",
    [OP_RELU] = "cuda_op_test",
    [OP_RELU_BACKWARD] = "cuda_op_test",
    [OP_RESPONSE_NORM] = "cuda_op_test",
    [OP_RESPONSE_NORM_BACKWARD] = "cuda_op_test",
    [OP_SCALE] = "cuda_op_test",
    [OP_SCALED_LINEAR] = "cuda_fusion_test",
    [OP_SCALED_LINEAR_BACKWARD_WEIGHT] = "cuda_fusion_test",
    [OP_SELF_ATTENTION] = "cuda_op_test",
    [OP_SELF_ATTENTION_BACKWARD] = "cuda_op_test",
    [OP_SIGMOID] = "cuda_op_test",
    [OP_SIGMOID_BACKWARD] = "cuda_op_test",
    [OP_SILU] = "cuda_op_test",
    [OP_SILU_BACKWARD] = "cuda_op_test",
    [OP_SOFTMAX_CROSS_ENTROPY] = "cuda_loss_test",
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = "cuda_loss_test",
    [OP_SPECTRAL_NORM] = "cuda_op_test",
    [OP_SPECTRAL_NORM_BACKWARD] = "cuda_op_test",
    [OP_STEM_BACKWARD_WEIGHT] = "cuda_fusion_test",
    [OP_TARGET_LOSS] = "cuda_loss_test",
    [OP_TARGET_LOSS_BACKWARD] = "cuda_loss_test",
    [OP_TOKENS] = "cuda_op_test",
    [OP_TOKENS_BACKWARD] = "cuda_op_test",
    [OP_UPDATE] = "cuda_update_test",
    [OP_ZERO_PAD] = "cuda_op_test",
};

int cuda_begin_test(void **state)
{
    (void)state;
    comparison.largest = 0;
    comparison.mismatches = 0;
    return 0;
}

int cuda_end_test(void **state)
{
    (void)state;
    if (comparison.largest > 0)
        print_message("largest relative difference %.1e\n", comparison.largest);
    return comparison.mismatches ? -1 : 0;
}

void expect_every_op_was_compared(void)
{
    for (int op = 0; op < OP_KIND_COUNT; op++) {
        if (comparison.ran[op] && !compared_by[op])
            fail_msg("%s is lowered, and has no row in compared_by", op_name((OpKind)op));
        if (!comparison.ran[op] && compared_by[op] &&
            strcmp(compared_by[op], program_invocation_short_name) == 0)
            fail_msg("no test ran %s", op_name((OpKind)op));
    }
}

int test_program_arguments(int argc, char **argv)
{
    if (argc > 1)
        comparison.seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return TEST_RUN;
}

int test_program_begin(void)
{
    static const struct {
        const char *device;
        BackendOptions options;
    } wanted[BACKENDS] = {[CUDA] = {"cuda", {.deterministic = true}},
                          [CPU] = {"cpu", {0}},
                          [CUDA_TIMED] = {"cuda", {.benchmark = true}}};
    for (int i = 0; i < BACKENDS; i++) {
        FshError error = {0};
        FshStatus status = backend_open(&backends[i], wanted[i].device, &wanted[i].options, &error);
        if (i == CUDA && status == FSH_ERR_UNSUPPORTED) {
            printf("left out: %s\n", error.message);
            return TEST_SKIP_ALL;
        }
        if (status) {
            printf("%s\n", error.message);
            return 1;
        }
    }
    comparison.theirs = backends[CPU];
    printf("%s; seed %llu\n", backend_description(backends[CUDA]), (unsigned long long)comparison.seed);
    return TEST_RUN;
}

int test_group_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < BACKENDS; i++)
        backend_close(&backends[i]);
    return 0;
}

/* ---- graphs ---- */

TensorId conv(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t kernel, int64_t stride,
              int64_t padding, bool bias)
{
    return graph_conv2d(
        graph, name, x,
        &(Conv2d){
            .channels = channels, .kernel = kernel, .stride = stride, .padding = padding, .bias = bias});
}

Graph *network(Layers layers, int64_t batch, int64_t height, int64_t width, int64_t channels, bool flat,
               bool fuse, const Optimizer *sgd)
{
    const double mean[4] = {0.4, 0.5, 0.6, 0.3}, deviation[4] = {0.2, 0.3, 0.25, 0.5};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, height, width, channels});
    TensorId labels = graph_input(graph, "label", DATA_I64, 1, &batch);
    x = layers(graph, graph_normalize(graph, x, mean, deviation));
    x = flat ? graph_flatten(graph, x) : graph_global_avg_pool(graph, x);
    x = graph_linear(graph, "hidden", x, 19, true);
    x = graph_linear(graph, "classes", x, 3, false);
    TensorId loss = graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, 0.1F);
    if (fuse)
        graph_fuse(graph, FUSE_ALL);
    graph_differentiate(graph, loss);
    Optimizer update = *sgd;
    update.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_update(graph, &update);
    return graph;
}

const Optimizer plain_sgd = {.momentum = 0.9, .weight_decay = 5e-4};
const Optimizer nesterov_sgd = {.momentum = 0.8, .weight_decay = 1e-2, .nesterov = true};

void compare_layers(Layers layers, const char *name, bool fuse)
{
    static const int64_t shapes[][4] = {{1, 9, 11, 3}, {3, 8, 8, 1}, {5, 17, 13, 3}, {32, 12, 12, 4}};
    char label[96];
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int flat = 0; flat < 2; flat++) {
            const int64_t *s = shapes[i];
            (void)snprintf(label, sizeof label, "%s, batch %d, %d x %d x %d%s", name, (int)s[0], (int)s[1],
                           (int)s[2], (int)s[3], flat ? ", flat" : "");
            compare_graph(
                &comparison, backends[CUDA],
                network(layers, s[0], s[1], s[2], s[3], flat, fuse, flat ? &nesterov_sgd : &plain_sgd), label,
                3);
        }
}

Graph *model(const char *name, int64_t batch, int64_t size, int64_t channels, bool training)
{
    FshError error = {0};
    Graph *graph = NULL;
    const ModelSpec spec = {.batch = batch,
                            .height = size,
                            .width = size,
                            .channels = channels,
                            .classes = 10,
                            .training = training};
    const ModelRecipe recipe = {.mean = {0.5, 0.5, 0.5},
                                .deviation = {0.25, 0.25, 0.25},
                                .label_smoothing = 0.1F,
                                .fusions =
                                    FUSE_ALL & backend_fusions(backends[CUDA]), /* as ftrain has them */
                                .optimizer = {.momentum = 0.9, .weight_decay = 1e-4}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    return graph;
}
