/* The CUDA backend against the CPU backend: the same graphs, the same state, fresh random inputs; every
 * tensor of every node is compared, and memory is poisoned before the first run, so that what is read before
 * it is written shows as NaN.
 *
 * Needs a GPU; leaves with 77 where there is none.
 * usage: cuda_test [SEED [PATTERN]]     other inputs; only the tests whose name matches, as '*_agree' */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

/* ||ours - theirs|| / ||theirs||; a tensor whose numbers are all about 0 (the gradient of a bias in front of
 * a batch norm) is rounding noise on both sides, and only has to be as small. */
static const double tolerance = 1e-4, about_zero = 1e-5, noise = 1e-6;

static uint64_t seed = 1;
static bool lowered[OP_KIND_COUNT]; /* the ops that were compared */

enum { CUDA, CPU, CUDA_TIMED, BACKENDS }; /* the last: with BackendOptions.benchmark */
static Backend *backends[BACKENDS];

/* A state and a program for a graph on one backend. */
typedef struct Side {
    State *state;
    Program *program;
} Side;

static void side_start(Side *side, Backend *backend, const Graph *graph)
{
    FshError error = {0};
    *side = (Side){NULL, NULL};
    assert_ok(state_new(&side->state, backend, graph, &error), &error);
    assert_ok(state_initialize(side->state, seed, &error), &error);
    assert_ok(program_new(&side->program, side->state, graph, &error), &error);
    assert_ok(program_poison(side->program, &error), &error);
}

static void side_end(Side *side)
{
    program_free(&side->program);
    state_free(&side->state);
}

/* ---- inputs and comparison ---- */

static void write_both(Side sides[2], TensorId id, const void *values, size_t bytes)
{
    FshError error = {0};
    for (int i = 0; i < 2; i++)
        if (sides[i].program)
            assert_ok(program_write(sides[i].program, id, values, bytes, &error), &error);
}

/* Bytes and labels at random, every seventh label -1 (a sample that does not count) but never the first;
 * learning rate 0.05. */
static void write_inputs(const Graph *graph, Side sides[2], uint64_t step)
{
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_INPUT)
            continue;
        Random random;
        random_start(&random, seed, random_stream(t, step));
        const size_t count = (size_t)tensor_count(tensor), bytes = count * data_type_bytes(tensor->type);
        void *values = malloc(bytes);
        assert_non_null(values);
        for (size_t i = 0; i < count; i++) {
            if (tensor->type == DATA_U8)
                ((uint8_t *)values)[i] = (uint8_t)random_below(&random, 256);
            else if (tensor->type == DATA_I64)
                ((int64_t *)values)[i] = i % 7 == 6 ? -1 : (int64_t)random_below(&random, 3);
            else
                ((float *)values)[i] = 0.05F;
        }
        write_both(sides, (TensorId)t, values, bytes);
        free(values);
    }
}

static double largest; /* relative difference met so far in the running test */
static int mismatches; /* in the running test: it goes on, so that all are told, and fails at its end */

#define MISMATCH(...) (print_error(__VA_ARGS__), mismatches++)

static void compare(const char *what, const float *ours, const float *theirs, size_t count)
{
    double difference = 0, size = 0;
    size_t broken = 0;
    for (size_t i = 0; i < count; i++) {
        broken += !isfinite(ours[i]) || !isfinite(theirs[i]);
        difference += ((double)ours[i] - (double)theirs[i]) * ((double)ours[i] - (double)theirs[i]);
        size += (double)theirs[i] * (double)theirs[i];
    }
    difference = sqrt(difference / (double)count);
    size = sqrt(size / (double)count);
    if (broken)
        MISMATCH("%s: %zu of %zu elements are not finite\n", what, broken, count);
    if (broken || (size < about_zero && difference < noise))
        return;
    if (difference > largest * size)
        largest = difference / size;
    if (difference > tolerance * size)
        MISMATCH("%s: differs by %.2g of its size (%.3g, rms of %zu)\n", what, difference / size, size,
                 count);
}

static int begin_test(void **state)
{
    (void)state;
    largest = 0;
    mismatches = 0;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    if (largest > 0)
        print_message("largest relative difference %.1e\n", largest);
    return mismatches ? -1 : 0;
}

/* Kept activations and the gradients of parameters. */
static void compare_program(const Graph *graph, Side sides[2], const char *name)
{
    FshError error = {0};
    char what[256], shape[96];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor), bytes = count * data_type_bytes(tensor->type);
        const bool readable =
            (tensor->role == TENSOR_ACTIVATION && tensor->keep) || tensor->role == TENSOR_GRADIENT;
        if (!readable || tensor->producer == NODE_NONE)
            continue;
        void *values[2] = {malloc(bytes), malloc(bytes)};
        for (int i = 0; i < 2; i++)
            assert_ok(program_read(sides[i].program, (TensorId)t, values[i], bytes, &error), &error);
        (void)snprintf(what, sizeof what, "%s: %s of %s [%s]", name, tensor->name,
                       op_name(graph_node(graph, tensor->producer)->op),
                       tensor_shape_text(tensor, shape, sizeof shape));
        if (tensor->type == DATA_F32)
            compare(what, values[0], values[1], count);
        else if (memcmp(values[0], values[1], bytes) != 0)
            MISMATCH("%s: differs\n", what);
        free(values[0]);
        free(values[1]);
    }
}

static bool in_state(const Tensor *tensor)
{
    return tensor->role == TENSOR_PARAMETER || tensor->role == TENSOR_BUFFER ||
           tensor->role == TENSOR_OPTIMIZER;
}

static void compare_state(const Graph *graph, Side sides[2], const char *name)
{
    FshError error = {0};
    char what[256];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (!in_state(tensor))
            continue;
        float *values[2] = {malloc(count * sizeof(float)), malloc(count * sizeof(float))};
        for (int i = 0; i < 2; i++)
            assert_ok(state_read(sides[i].state, tensor->name, values[i], count, &error), &error);
        (void)snprintf(what, sizeof what, "%s: %s", name, tensor->name);
        compare(what, values[0], values[1], count);
        free(values[0]);
        free(values[1]);
    }
}

/* Makes every activation readable, gradients too. */
static void keep_everything(Graph *graph)
{
    char name[32];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_ACTIVATION || tensor->producer == NODE_NONE)
            continue;
        (void)snprintf(name, sizeof name, "tensor %zu", t);
        graph_keep(graph, (TensorId)t, name);
    }
}

/* Runs steps on both sides and compares after each. Frees the graph. */
static void compare_graph(Graph *graph, const char *name, uint64_t steps, int cuda)
{
    FshError error = {0};
    Side sides[2];
    assert_ok(graph_check(graph, &error), &error);
    side_start(&sides[0], backends[cuda], graph);
    side_start(&sides[1], backends[CPU], graph);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        lowered[graph_node(graph, (NodeId)n)->op] = true;
    for (uint64_t step = 0; step < steps; step++) {
        write_inputs(graph, sides, step);
        for (int i = 0; i < 2; i++)
            assert_ok(program_run(sides[i].program, &error), &error);
        compare_program(graph, sides, name);
    }
    compare_state(graph, sides, name);
    side_end(&sides[0]);
    side_end(&sides[1]);
    graph_free(&graph);
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

static TensorId max_pools(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 6, 3, 1, 1, true);
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
                      bool flat, bool fuse, const Sgd *sgd)
{
    const double mean[4] = {0.4, 0.5, 0.6, 0.3}, deviation[4] = {0.2, 0.3, 0.25, 0.5};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, height, width, channels});
    TensorId labels = graph_input(graph, "label", DATA_I64, 1, &batch);
    x = layers(graph, graph_normalize(graph, x, mean, deviation));
    x = flat ? graph_flatten(graph, x) : graph_global_avg_pool(graph, x);
    x = graph_linear(graph, "hidden", x, 19, true);
    x = graph_linear(graph, "classes", x, 3, false);
    TensorId loss = graph_softmax_cross_entropy(graph, x, labels, 0.1F);
    if (fuse)
        graph_fuse(graph, FUSE_ALL);
    graph_differentiate(graph, loss);
    Sgd update = *sgd;
    update.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_sgd(graph, &update);
    keep_everything(graph);
    return graph;
}

static const Sgd plain_sgd = {.momentum = 0.9, .weight_decay = 5e-4};
static const Sgd nesterov_sgd = {.momentum = 0.8, .weight_decay = 1e-2, .nesterov = true};

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
                network(layers, s[0], s[1], s[2], s[3], flat, fuse, flat ? &nesterov_sgd : &plain_sgd), label,
                3, CUDA);
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
                                .sgd = {.momentum = 0.9, .weight_decay = 1e-4}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    return graph;
}

static void test_networks_train_alike(void **state)
{
    (void)state;
    compare_graph(model("conv8", 16, 28, 1, true), "conv8", 3, CUDA);
    compare_graph(model("resnet18", 8, 64, 3, true), "resnet18", 3, CUDA);
}

static void test_timed_convolutions_train_alike(void **state)
{
    (void)state;
    compare_graph(model("conv8", 16, 28, 1, true), "conv8, timed", 3, CUDA_TIMED);
    compare_graph(model("resnet18", 8, 64, 3, true), "resnet18, timed", 3, CUDA_TIMED);
}

static void test_networks_evaluate_alike(void **state)
{
    (void)state;
    compare_graph(model("conv8", 5, 28, 1, false), "conv8", 1, CUDA);
    compare_graph(model("resnet18", 3, 48, 3, false), "resnet18", 1, CUDA);
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
        side_start(&sides[i], backends[i], train);
        assert_ok(program_new(&evaluators[i], sides[i].state, evaluate, &error), &error);
    }
    for (uint64_t step = 0; step < 5; step++) {
        write_inputs(train, sides, step);
        for (int i = 0; i < 2; i++)
            assert_ok(program_run(sides[i].program, &error), &error);
    }
    for (int i = 0; i < 2; i++) {
        Side evaluator[2] = {{.program = evaluators[i]}};
        write_inputs(evaluate, evaluator, 0);
        assert_ok(program_run(evaluators[i], &error), &error);
        assert_ok(
            program_read(evaluators[i], graph_find(evaluate, "logits"), logits[i], sizeof logits[i], &error),
            &error);
        program_free(&evaluators[i]);
        side_end(&sides[i]);
    }
    compare("logits", logits[0], logits[1], 40);
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
    side_start(&side, backends[CUDA], graph);
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (!in_state(tensor))
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
static float *trained(size_t *count_ret, bool profile)
{
    FshError error = {0};
    Graph *graph = model("resnet18", 8, 64, 3, true);
    Side sides[2] = {{NULL, NULL}, {NULL, NULL}};
    float *values = malloc((size_t)graph_parameter_count(graph) * sizeof *values);
    size_t used = 0;
    side_start(&sides[0], backends[CUDA], graph);
    if (profile)
        assert_ok(program_profile(sides[0].program, true, NULL, 0, &error), &error);
    for (uint64_t step = 0; step < 4; step++) {
        write_inputs(graph, sides, step);
        assert_ok(program_run(sides[0].program, &error), &error);
    }
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        assert_ok(
            state_read(sides[0].state, tensor->name, values + used, (size_t)tensor_count(tensor), &error),
            &error);
        used += (size_t)tensor_count(tensor);
    }
    if (profile) {
        double *seconds = calloc(graph_node_count(graph), sizeof *seconds), total = 0;
        assert_ok(program_profile(sides[0].program, false, seconds, graph_node_count(graph), &error), &error);
        for (size_t n = 0; n < graph_node_count(graph); n++) {
            assert_true(seconds[n] > 0);
            total += seconds[n];
        }
        assert_true(total < 10);
        free(seconds);
    }
    side_end(&sides[0]);
    graph_free(&graph);
    *count_ret = used;
    return values;
}

static void test_two_runs_give_the_same_bits(void **state)
{
    (void)state;
    size_t counts[2];
    float *first = trained(&counts[0], false), *second = trained(&counts[1], false);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(first, second, counts[0] * sizeof *first);
    free(first);
    free(second);
}

static void test_measured_steps_give_the_same_bits(void **state)
{
    (void)state;
    size_t counts[2];
    float *first = trained(&counts[0], false), *second = trained(&counts[1], true);
    assert_memory_equal(first, second, counts[0] * sizeof *first);
    free(first);
    free(second);
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
    compare_graph(model("conv8", 4, 28, 1, true), "conv8 after out of memory", 1, CUDA);
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
    side_start(&side, backends[CUDA], graph);
    assert_int_equal(program_write(side.program, graph_find(graph, "label"), labels, sizeof labels, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "label 10 of sample 2; there are 10 classes");
    side_end(&side);
    graph_free(&graph);
}

static void test_every_op_was_compared(void **state)
{
    (void)state;
    for (int op = 0; op < OP_KIND_COUNT; op++)
        if (!lowered[op])
            fail_msg("no test ran %s", op_name((OpKind)op));
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
        seed = strtoull(argv[1], NULL, 10);
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
    printf("%s; seed %llu\n", backend_description(backends[CUDA]), (unsigned long long)seed);
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
