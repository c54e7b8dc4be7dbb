/* The CUDA backend against the CPU backend, on every op, on whole networks, and on its own promises: the same bits in every run, whatever
 * shares memory.
 *
 * Needs a GPU; leaves with 77 where there is none.
 * usage: cuda_test [SEED [PATTERN]]     other inputs; only the tests whose name matches, as '*_agree' */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/trainer/backend_compare.h"
#include "trainer/models/models.h"

enum { CUDA, CPU, CUDA_TIMED, BACKENDS }; /* the last: with BackendOptions.benchmark */
static Backend *backends[BACKENDS];
static Comparison comparison = {.seed = 1};

static int begin_test(void **state)
{
    (void)state;
    comparison.largest = 0;
    comparison.mismatches = 0;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    if (comparison.largest > 0)
        print_message("largest relative difference %.1e\n", comparison.largest);
    return comparison.mismatches ? -1 : 0;
}

/* ---- one layer at a time ---- */

typedef TensorId (*Layers)(Graph *graph, TensorId x);

static TensorId conv(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t kernel,
                     int64_t stride, int64_t padding, bool bias)
{
    return graph_conv2d(
        graph, name, x,
        &(Conv2d){
            .channels = channels, .kernel = kernel, .stride = stride, .padding = padding, .bias = bias});
}

static TensorId convolutions(Graph *graph, TensorId x)
{
    x = conv(graph, "same", x, 5, 3, 1, 1, true);
    x = conv(graph, "strided", x, 16, 3, 2, 1, false);
    x = conv(graph, "pointwise", x, 8, 1, 1, 0, true);
    x = conv(graph, "wide", x, 13, 5, 1, 2, false);
    return conv(graph, "strided_pointwise", x, 7, 1, 2, 0, false);
}

static TensorId norms(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 7, 3, 1, 1, false);
    x = graph_batch_norm(graph, "odd", x, &(BatchNorm){.training = true});
    x = conv(graph, "between", x, 40, 3, 1, 1, false);
    return graph_batch_norm(graph, "even", x,
                            &(BatchNorm){.training = true, .momentum = 0.3, .epsilon = 1e-3});
}

static TensorId frozen_norms(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 12, 3, 1, 1, false);
    x = graph_relu(graph, graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = false}));
    x = conv(graph, "between", x, 9, 1, 1, 0, false);
    return graph_batch_norm(graph, "norm2", x, &(BatchNorm){.training = false});
}

/* norm, norm -> relu, norm -> add -> relu: what graph_fuse puts together. */
static TensorId fused_norms(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 12, 3, 1, 1, false);
    x = graph_leaky_relu(graph, graph_batch_norm(graph, "norm1", x, &(BatchNorm){.training = true}), 0.2F);
    TensorId shortcut = x;
    x = conv(graph, "conv2", x, 12, 3, 1, 1, false);
    x = graph_batch_norm(graph, "norm2", x, &(BatchNorm){.training = true});
    x = graph_relu(graph, graph_add(graph, x, shortcut));
    x = conv(graph, "conv3", x, 11, 1, 1, 0, false);
    return graph_relu(graph, graph_batch_norm(graph, "norm3", x, &(BatchNorm){.training = true}));
}

static TensorId activations(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 6, 3, 1, 1, true);
    TensorId shortcut = x;
    x = graph_leaky_relu(graph, x, 0.2F);
    x = graph_add(graph, conv(graph, "middle", x, 6, 1, 1, 0, true), shortcut);
    x = graph_add(graph, x, x);
    return graph_relu(graph, x);
}

/* A ReLU in front of one: windows full of equal maxima. */
static TensorId max_pools(Graph *graph, TensorId x)
{
    x = graph_relu(graph, conv(graph, "in", x, 6, 3, 1, 1, true));
    x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    x = conv(graph, "middle", x, 8, 3, 1, 1, true);
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 1});
}

static TensorId avg_pools(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 6, 3, 1, 1, true);
    x = graph_avg_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    x = conv(graph, "middle", x, 8, 3, 1, 1, true);
    return graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
}

static TensorId pads(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 6, 3, 1, 1, true);
    x = graph_reflection_pad(graph, x, 1);
    x = conv(graph, "middle", x, 5, 3, 1, 1, true);
    return graph_reflection_pad(graph, x, 3);
}

/* image -> normalize -> layers -> global average pool or flatten -> linear -> loss, differentiated, with its
 * update. */
static Graph *network(Layers layers, int64_t batch, int64_t height, int64_t width, int64_t channels,
                      bool flat, bool fuse, const Optimizer *sgd)
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

static const Optimizer plain_sgd = {.momentum = 0.9, .weight_decay = 5e-4};
static const Optimizer nesterov_sgd = {.momentum = 0.8, .weight_decay = 1e-2, .nesterov = true};

/* Several shapes, one sample and odd edges among them, pooled and flattened. */
static void compare_layers(Layers layers, const char *name, bool fuse)
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

static void test_convolutions_agree(void **state)
{
    (void)state;
    compare_layers(convolutions, "convolutions", false);
}

static void test_batch_norms_agree(void **state)
{
    (void)state;
    compare_layers(norms, "norms", false);
}

static void test_batch_norms_with_running_statistics_agree(void **state)
{
    (void)state;
    compare_layers(frozen_norms, "frozen norms", false);
    compare_layers(frozen_norms, "frozen norms, fused", true);
}

static void test_fused_batch_norms_agree(void **state)
{
    (void)state;
    compare_layers(fused_norms, "fused norms", true);
}

static void test_activations_and_sums_agree(void **state)
{
    (void)state;
    compare_layers(activations, "activations", false);
}

static void test_max_pools_agree(void **state)
{
    (void)state;
    compare_layers(max_pools, "max pools", false);
}

static void test_average_pools_agree(void **state)
{
    (void)state;
    compare_layers(avg_pools, "average pools", false);
}

static void test_reflection_pads_agree(void **state)
{
    (void)state;
    compare_layers(pads, "pads", false);
}

/* ---- whole networks ---- */

static Graph *model(const char *name, int64_t batch, int64_t size, int64_t channels, bool training)
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
                                .optimizer = {.momentum = 0.9, .weight_decay = 1e-4}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    return graph;
}

/* resnet18 one step: in three of them, some of a million ReLUs nearly always lie within rounding. */
static void test_networks_train_alike(void **state)
{
    (void)state;
    compare_graph(&comparison, backends[CUDA], model("conv8", 16, 28, 1, true), "conv8", 3);
    compare_graph(&comparison, backends[CUDA], model("resnet18", 4, 40, 3, true), "resnet18", 1);
}

static void test_timed_convolutions_train_alike(void **state)
{
    (void)state;
    compare_graph(&comparison, backends[CUDA_TIMED], model("conv8", 16, 28, 1, true), "conv8, timed", 3);
    compare_graph(&comparison, backends[CUDA_TIMED], model("resnet18", 4, 40, 3, true), "resnet18, timed", 1);
}

static void test_networks_evaluate_alike(void **state)
{
    (void)state;
    compare_graph(&comparison, backends[CUDA], model("conv8", 5, 28, 1, false), "conv8", 1);
    compare_graph(&comparison, backends[CUDA], model("resnet18", 3, 48, 3, false), "resnet18", 1);
}

/* The evaluation graph reads what the training graph's program wrote. */
static void test_training_and_evaluation_share_a_state(void **unused)
{
    (void)unused;
    FshError error = {0};
    Graph *train = model("conv8", 16, 28, 1, true), *evaluate = model("conv8", 4, 28, 1, false);
    Side sides[2];
    Program *evaluators[2] = {NULL, NULL};
    float logits[2][40];
    for (int i = 0; i < 2; i++) {
        side_start(&sides[i], backends[i], train, &comparison);
        assert_ok(program_new(&evaluators[i], sides[i].state, evaluate, &error), &error);
    }
    for (uint64_t step = 0; step < 5; step++) {
        for (int i = 0; i < 2; i++) {
            side_write_inputs(&sides[i], train, step, &comparison);
            assert_ok(program_run(sides[i].program, &error), &error);
        }
    }
    for (int i = 0; i < 2; i++) {
        Side evaluator = {.program = evaluators[i]};
        side_write_inputs(&evaluator, evaluate, 0, &comparison);
        assert_ok(program_run(evaluators[i], &error), &error);
        assert_ok(
            program_read(evaluators[i], graph_find(evaluate, "logits"), logits[i], sizeof logits[i], &error),
            &error);
        program_free(&evaluators[i]);
        side_end(&sides[i]);
    }
    compare_values(&comparison, "logits", logits[0], logits[1], 40);
    graph_free(&train);
    graph_free(&evaluate);
}

/* ---- state, runs ---- */

static void test_state_speaks_the_logical_layout(void **unused)
{
    (void)unused;
    FshError error = {0};
    Graph *graph = network(convolutions, 2, 8, 8, 3, false, false, &plain_sgd);
    Side side;
    side_start(&side, backends[CUDA], graph, &comparison);
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (!tensor_is_in_state(tensor))
            continue;
        float *wrote = malloc(count * sizeof(float)), *read = malloc(count * sizeof(float));
        for (size_t i = 0; i < count; i++)
            wrote[i] = (float)i + 0.25F;
        assert_ok(state_write(side.state, tensor->name, wrote, count, &error), &error);
        assert_ok(state_read(side.state, tensor->name, read, count, &error), &error);
        assert_memory_equal(wrote, read, count * sizeof(float));
        free(wrote);
        free(read);
    }
    side_end(&side);
    graph_free(&graph);
}

/* Parameters after some steps, one behind the other; free them. */
static float *trained(size_t *count_ret, bool profile, bool keep)
{
    FshError error = {0};
    Graph *graph = model("resnet18", 8, 64, 3, true);
    if (keep)
        graph_keep_everything(graph);
    Side side;
    float *values = malloc((size_t)graph_parameter_count(graph) * sizeof *values);
    size_t used = 0;
    side_start(&side, backends[CUDA], graph, &comparison);
    if (profile)
        assert_ok(program_profile(side.program, true, NULL, 0, &error), &error);
    for (uint64_t step = 0; step < 4; step++) {
        side_write_inputs(&side, graph, step, &comparison);
        assert_ok(program_run(side.program, &error), &error);
    }
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        assert_ok(state_read(side.state, tensor->name, values + used, (size_t)tensor_count(tensor), &error),
                  &error);
        used += (size_t)tensor_count(tensor);
    }
    if (profile) {
        double *seconds = calloc(graph_node_count(graph), sizeof *seconds), total = 0;
        assert_ok(program_profile(side.program, false, seconds, graph_node_count(graph), &error), &error);
        for (size_t n = 0; n < graph_node_count(graph); n++) {
            assert_true(seconds[n] > 0);
            total += seconds[n];
        }
        assert_true(total < 10);
        free(seconds);
    }
    side_end(&side);
    graph_free(&graph);
    *count_ret = used;
    return values;
}

static void assert_same_bits(bool profile, bool keep)
{
    size_t counts[2];
    float *first = trained(&counts[0], false, false), *second = trained(&counts[1], profile, keep);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++) /* NaN everywhere would be the same bits too */
        assert_true(isfinite(first[i]));
    assert_memory_equal(first, second, counts[0] * sizeof *first);
    free(first);
    free(second);
}

static void test_two_runs_give_the_same_bits(void **state)
{
    (void)state;
    assert_same_bits(false, false);
}

static void test_measured_steps_give_the_same_bits(void **state)
{
    (void)state;
    assert_same_bits(true, false);
}

/* Tensors that share bytes, or are written in place, against tensors that all have their own. */
static void test_sharing_memory_changes_no_bit(void **state)
{
    (void)state;
    assert_same_bits(false, true);
}

/* ---- errors ---- */

static void test_a_batch_that_does_not_fit_is_told(void **unused)
{
    (void)unused;
    FshError error = {0};
    Graph *graph = network(convolutions, 8192, 1024, 1024, 1, false, false, &plain_sgd);
    Side side = {NULL, NULL};
    assert_ok(state_new(&side.state, backends[CUDA], graph, &error), &error);
    assert_int_equal(program_new(&side.program, side.state, graph, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "no memory for");
    assert_contains(error.message, "of activations");
    assert_contains(error.message, "smaller batch");
    /* and the device is still good */
    side_end(&side);
    graph_free(&graph);
    compare_graph(&comparison, backends[CUDA], model("conv8", 4, 28, 1, true), "conv8 after out of memory",
                  1);
}

static void test_a_state_of_another_network_is_refused(void **unused)
{
    (void)unused;
    FshError error = {0};
    Graph *graph = model("conv8", 4, 28, 1, true), *other = model("conv8", 4, 28, 3, true);
    Side side = {NULL, NULL};
    assert_ok(state_new(&side.state, backends[CUDA], graph, &error), &error);
    assert_int_equal(program_new(&side.program, side.state, other, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "model.1.weight");
    side_end(&side);
    graph_free(&graph);
    graph_free(&other);
}

static void test_a_label_out_of_range_is_refused(void **unused)
{
    (void)unused;
    FshError error = {0};
    Graph *graph = model("conv8", 4, 28, 1, true);
    const int64_t labels[4] = {0, -1, 10, 9};
    Side side;
    side_start(&side, backends[CUDA], graph, &comparison);
    assert_int_equal(program_write(side.program, graph_find(graph, "label"), labels, sizeof labels, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "label 10 of sample 2; there are 10 classes");
    side_end(&side);
    graph_free(&graph);
}

/* What this backend does not know yet: it refuses them by name. Whoever lowers one takes it out here. */
static const OpKind not_lowered[] = {
    OP_BINARY_CROSS_ENTROPY,
    OP_BINARY_CROSS_ENTROPY_BACKWARD,
    OP_CAST,
    OP_CHANNEL_MULTIPLY,
    OP_CHANNEL_MULTIPLY_BACKWARD,
    OP_CHANNEL_SCALE,
    OP_CHANNEL_SCALE_BACKWARD,
    OP_CONCAT,
    OP_CROP,
    OP_GATE,
    OP_GATE_BACKWARD,
    OP_LAYER_NORM,
    OP_LAYER_NORM_BACKWARD,
    OP_PIXEL_LOSS,
    OP_PIXEL_LOSS_BACKWARD,
    OP_PIXEL_SHUFFLE,
    OP_PIXEL_UNSHUFFLE,
    OP_SCALE,
    OP_ZERO_PAD,
};

static bool is_lowered(OpKind op)
{
    for (size_t i = 0; i < sizeof not_lowered / sizeof *not_lowered; i++)
        if (not_lowered[i] == op)
            return false;
    return true;
}

static void test_every_op_was_compared(void **state)
{
    (void)state;
    for (int op = 0; op < OP_KIND_COUNT; op++)
        if (comparison.ran[op] != is_lowered((OpKind)op))
            fail_msg("%s %s",
                     is_lowered((OpKind)op) ? "no test ran"
                                            : "is lowered, and stands among those that are not:",
                     op_name((OpKind)op));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin_test, end_test)

int main(int argc, char **argv)
{
    static const struct {
        const char *device;
        BackendOptions options;
    } wanted[BACKENDS] = {
        [CUDA] = {"cuda", {0}}, [CPU] = {"cpu", {0}}, [CUDA_TIMED] = {"cuda", {.benchmark = true}}};
    if (argc > 1)
        comparison.seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (int i = 0; i < BACKENDS; i++) {
        FshError error = {0};
        FshStatus status = backend_open(&backends[i], wanted[i].device, &wanted[i].options, &error);
        if (i == CUDA && status == FSH_ERR_UNSUPPORTED) {
            printf("left out: %s\n", error.message);
            return 77;
        }
        if (status) {
            printf("%s\n", error.message);
            return 1;
        }
    }
    comparison.theirs = backends[CPU];
    printf("%s; seed %llu\n", backend_description(backends[CUDA]), (unsigned long long)comparison.seed);
    const struct CMUnitTest tests[] = {
        TEST(test_convolutions_agree),
        TEST(test_batch_norms_agree),
        TEST(test_batch_norms_with_running_statistics_agree),
        TEST(test_fused_batch_norms_agree),
        TEST(test_activations_and_sums_agree),
        TEST(test_max_pools_agree),
        TEST(test_average_pools_agree),
        TEST(test_reflection_pads_agree),
        TEST(test_networks_train_alike),
        TEST(test_timed_convolutions_train_alike),
        TEST(test_networks_evaluate_alike),
        TEST(test_training_and_evaluation_share_a_state),
        TEST(test_state_speaks_the_logical_layout),
        TEST(test_two_runs_give_the_same_bits),
        TEST(test_measured_steps_give_the_same_bits),
        TEST(test_sharing_memory_changes_no_bit),
        TEST(test_a_batch_that_does_not_fit_is_told),
        TEST(test_a_state_of_another_network_is_refused),
        TEST(test_a_label_out_of_range_is_refused),
        TEST(test_every_op_was_compared),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < BACKENDS; i++)
        backend_close(&backends[i]);
    return failed;
}
