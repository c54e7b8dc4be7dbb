/* Mixed precision on the CPU: a network in bf16 against itself in f32, and what a machine cannot do is said.
 * Single ops: op_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "trainer/backend/cpu/onednn.h"

/* Skips the test on a processor that oneDNN does not compute in bf16 on, or that is told to be one: there is
 * nothing to compare. */
static void need_bf16(void)
{
    if (dnn_check_type(DATA_BF16, NULL))
        skip();
}

typedef struct NetworkRun {
    Graph *graph;
    State *state;
    Program *program;
} NetworkRun;

static void network_run_free(NetworkRun *run)
{
    program_free(&run->program);
    state_free(&run->state);
    graph_free(&run->graph);
}

static double difference(const NetworkRun *run, const NetworkRun *reference, const char *name)
{
    size_t count;
    float *a = test_read(run->program, name, &count), *b = test_read(reference->program, name, NULL);
    const double error = test_relative_error(a, b, count);
    free(a);
    free(b);
    return error;
}

static Graph *network_graph(const char *model, int64_t batch, int64_t size, DataType type,
                            double rate_of_decay)
{
    Graph *graph = NULL;
    FshError error = {0};
    const ModelSpec spec = {.batch = batch,
                            .height = size,
                            .width = size,
                            .channels = 3,
                            .classes = TEST_CLASSES,
                            .training = true};
    const ModelRecipe recipe = {.mean = {0.5, 0.4, 0.3},
                                .deviation = {0.25, 0.3, 0.2},
                                .compute_type = type,
                                .optimizer = {.momentum = 0.9, .weight_decay = rate_of_decay}};
    test_check(model_graph(model_find(model), &spec, &recipe, &graph, &error), &error);
    return graph;
}

static void write_rate(Program *program, float rate)
{
    FshError error = {0};
    test_check(
        program_write(program, graph_find(program->graph, "learning_rate"), &rate, sizeof rate, &error),
        &error);
}

static NetworkRun start_network(Backend *backend, const char *model, int64_t batch, int64_t size,
                                DataType type)
{
    NetworkRun run = {.graph = network_graph(model, batch, size, type, 1e-4)};
    FshError error = {0};
    test_check(state_new(&run.state, backend, run.graph, &error), &error);
    test_check(state_initialize(run.state, 1, &error), &error);
    test_check(program_new(&run.program, run.state, run.graph, &error), &error);
    test_write_batch(run.program);
    write_rate(run.program, 0.01F);
    test_check(program_poison(run.program, &error), &error);
    return run;
}

/* Twenty layers round forward and back, so gradients of the first layers differ much from f32's. Those of
 * PyTorch 1.13 under autocast(dtype=bfloat16) do so too, on a batch like this: logits 0.040, fc 0.040,
 * layer4.1.conv2 0.17, layer1.0.conv1 0.37, conv1 0.37. */
TEST(test_resnet18_step_in_bf16_agrees_with_f32)
{
    need_bf16();
    static const struct {
        const char *name;
        double tolerance;
    } tensors[] = {{"loss", 0.01},
                   {"logits", 0.06},
                   {"fc.weight.grad", 0.06},
                   {"layer4.1.conv2.weight.grad", 0.25},
                   {"layer1.0.conv1.weight.grad", 0.5},
                   {"conv1.weight.grad", 0.5},
                   {"bn1.running_mean", 0.01},
                   {"layer4.1.bn2.running_var", 0.01}};
    Backend *backend = test_backend(2);
    NetworkRun reference = start_network(backend, "resnet18", 16, 64, DATA_F32);
    NetworkRun run = start_network(backend, "resnet18", 16, 64, DATA_BF16);
    int wrong = 0;
    test_run(reference.program);
    test_run(run.program);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const double error = difference(&run, &reference, tensors[i].name);
        print_message("  %-32s %.1e\n", tensors[i].name, error);
        wrong += !(error < tensors[i].tolerance);
    }
    network_run_free(&run);
    network_run_free(&reference);
    backend_close(&backend);
    assert_int_equal(wrong, 0);
}

static uint64_t arena_of(const NetworkRun *run)
{
    MemoryUse use = {{0}};
    program_memory(run->program, &use);
    return use.bytes[MEMORY_ACTIVATIONS];
}

TEST(test_bf16_activations_take_half_the_memory)
{
    need_bf16();
    Backend *backend = test_backend(2);
    NetworkRun wide = start_network(backend, "resnet18", 16, 64, DATA_F32);
    NetworkRun narrow = start_network(backend, "resnet18", 16, 64, DATA_BF16);
    const double share = (double)arena_of(&narrow) / (double)arena_of(&wide);
    print_message("  bf16 takes %.2f of the activations' bytes\n", share);
    /* Half, but for the pools' indices, which are bytes in both. */
    assert_true(share > 0.5 && share < 0.56);
    network_run_free(&narrow);
    network_run_free(&wide);
    backend_close(&backend);
}

/* Writes a batch of noise; an image of class k is brighter in its k-th stripe. */
static void write_striped_batch(Program *program, uint64_t seed)
{
    const Tensor *image = graph_tensor(program->graph, graph_find(program->graph, "image"));
    const int64_t batch = image->shape[0], size = image->shape[1];
    uint8_t *pixels = malloc((size_t)tensor_count(image));
    int64_t labels[64];
    FshError error = {0};
    Random random;
    assert_true(pixels && batch <= 64);
    random_start(&random, seed, 0);
    for (int64_t n = 0; n < batch; n++) {
        labels[n] = (int64_t)random_below(&random, TEST_CLASSES);
        for (int64_t i = 0; i < size * size * 3; i++) {
            const int64_t stripe = i / 3 / size * TEST_CLASSES / size;
            const int noise = (int)random_below(&random, 160);
            pixels[n * size * size * 3 + i] = (uint8_t)(noise + (stripe == labels[n] ? 80 : 0));
        }
    }
    test_check(program_write(program, graph_find(program->graph, "image"), pixels,
                             (size_t)tensor_count(image), &error),
               &error);
    test_check(program_write(program, graph_find(program->graph, "label"), labels,
                             (size_t)batch * sizeof *labels, &error),
               &error);
    free(pixels);
}

/* Returns the mean loss of the last steps of a short training. */
static double learn(Backend *backend, DataType type)
{
    enum { STEPS = 60, LAST = 10 };
    NetworkRun run = start_network(backend, "conv8", 32, 20, type);
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        write_striped_batch(run.program, (uint64_t)step);
        write_rate(run.program, 0.02F);
        test_run(run.program);
        float *loss = test_read(run.program, "loss", NULL);
        assert_true(isfinite(*loss));
        if (step >= STEPS - LAST)
            sum += (double)*loss / LAST;
        free(loss);
    }
    network_run_free(&run);
    return sum;
}

TEST(test_bf16_learns_as_f32_does)
{
    need_bf16();
    Backend *backend = test_backend(2);
    const double wide = learn(backend, DATA_F32), narrow = learn(backend, DATA_BF16);
    print_message("  loss after 60 steps: f32 %.3f, bf16 %.3f\n", wide, narrow);
    assert_true(wide < 0.8); /* of 2.3 at the beginning */
    assert_true(fabs(narrow - wide) < 0.25);
    backend_close(&backend);
}

TEST(test_same_bf16_run_gives_the_same_bits)
{
    need_bf16();
    Backend *backend = test_backend(2);
    float *first = NULL;
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
        NetworkRun run = start_network(backend, "resnet18", 16, 64, DATA_BF16);
        test_run(run.program);
        test_run(run.program);
        float *weights = test_read(run.program, "layer4.0.conv1.weight", &count);
        if (first)
            assert_memory_equal(first, weights, count * sizeof *weights);
        free(first);
        first = weights;
        network_run_free(&run);
    }
    free(first);
    backend_close(&backend);
}

/* ---- refusals ---- */

TEST(test_fp16_is_refused_with_what_to_do)
{
    Backend *backend = test_backend(1);
    Graph *graph = network_graph("conv8", 2, 20, DATA_F16, 0);
    State *parameters = NULL;
    FshError error = {0};
    assert_int_equal(state_new(&parameters, backend, graph, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "the CPU cannot compute in fp16 (oneDNN ");
    assert_contains(error.message, "use --amp bf16, or a GPU (--device cuda)");
    assert_null(parameters);
    graph_free(&graph);
    backend_close(&backend);
}

static void assert_failure(Graph *graph, FshStatus status, const char *message)
{
    FshError error = {0};
    assert_int_equal(graph_check(graph, &error), status);
    assert_string_equal(error.message, message);
    graph_free(&graph);
}

TEST(test_types_that_do_not_fit_are_refused)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, DATA_U8);
    assert_failure(graph, FSH_ERR_USAGE, "graph: a network computes in f32, bf16 or f16, not in u8");
    graph = graph_new();
    graph_cast(graph, graph_input(graph, "x", DATA_BF16, 2, (int64_t[]){2, 2}), DATA_F16);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "x: a cast is between f32 and another float type, not from bf16 to f16");
}

/* oneDNN keeps its instruction set from its first use on: amp_test_AVX2 runs this. */
TEST(test_bf16_without_avx512_is_refused)
{
    if (dnn_check_type(DATA_BF16, NULL) == FSH_OK)
        skip();
    Backend *backend = test_backend(1);
    Graph *graph = network_graph("conv8", 2, 20, DATA_BF16, 0);
    State *parameters = NULL;
    FshError error = {0};
    assert_int_equal(state_new(&parameters, backend, graph, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "this CPU cannot compute in bf16 (oneDNN ");
    assert_contains(error.message, "use float32 (--amp off), or a GPU (--device cuda)");
    assert_null(parameters);
    graph_free(&graph);
    backend_close(&backend);
}
