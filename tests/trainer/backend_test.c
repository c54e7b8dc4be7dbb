/* States and programs of the CPU backend: what goes in comes out, the same run gives the same bits, mistakes
 * are named. */
#include "trainer/backend/backend.h"

#include <pthread.h>
#include <malloc.h>
#include <signal.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "trainer/backend/initial_values.h"

/* ---- opening ---- */

TEST(test_unknown_device_names_the_choices)
{
    Backend *backend = NULL;
    FshError error = {0};
    assert_int_equal(backend_open(&backend, "tpu", &(BackendOptions){0}, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "device 'tpu': unknown; choose one of cpu, cuda");
    assert_null(backend);
    backend_close(&backend);
}

TEST(test_description_names_library_and_threads)
{
    Backend *backend = test_backend(2);
    assert_contains(backend_description(backend), "oneDNN");
    assert_contains(backend_description(backend), "2 threads");
    backend_close(&backend);
    assert_null(backend);
}

/* ---- state ---- */

/* resnet18 has more numbers than are drawn together. */
TEST(test_a_state_begins_with_the_values_of_each_tensor)
{
    enum { SEED = 11 };
    Backend *backend = test_backend(3);
    TestNetwork network = test_network(backend, "resnet18", 2, 64);
    FshError error = {0};
    test_check(state_initialize(network.state, SEED, &error), &error);
    for (size_t i = 0; i < graph_tensor_count(network.graph); i++) {
        const Tensor *tensor = graph_tensor(network.graph, (TensorId)i);
        if (!state_holds(tensor->role))
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        const InitialValues alone = {tensor, malloc(count * sizeof(float))};
        assert_non_null(alone.values);
        test_check(initial_values_draw(&alone, 1, SEED, 1, &error), &error);
        float *read = test_read(network.program, tensor->name, NULL);
        assert_memory_equal(read, alone.values, count * sizeof *read);
        free(alone.values);
        free(read);
    }
    interrupt_simulate(SIGINT);
    assert_int_equal(state_initialize(network.state, SEED, &error), FSH_ERR_INTERRUPTED);
    interrupt_simulate(0);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_state_gives_back_what_was_written)
{
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "resnet18", 2, 64);
    FshError error = {0};
    int checked = 0;
    for (size_t i = 0; i < graph_tensor_count(network.graph); i++) {
        const Tensor *tensor = graph_tensor(network.graph, (TensorId)i);
        if (!state_holds(tensor->role))
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        float *written = malloc(count * sizeof *written);
        assert_non_null(written);
        for (size_t k = 0; k < count; k++)
            written[k] = (float)(k * 7 % 1009) - (float)i;
        test_check(state_write(network.state, tensor->name, written, count, &error), &error);
        float *read = test_read(network.program, tensor->name, NULL);
        assert_memory_equal(read, written, count * sizeof *read);
        free(written);
        free(read);
        checked++;
    }
    assert_int_equal(checked, 62 + 40 + 62 + 1);
    test_network_free(&network);
    backend_close(&backend);
}

/* A filter for each of the 24 channels passes it on; the others are drawn, within 1 / sqrt(9 * 24). */
TEST(test_first_filters_pass_channels_on)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "airbench94", 2, 32);
    size_t count;
    float *weight = test_read(network.program, "layers.1.conv1.weight", &count), largest = 0;
    assert_int_equal(count, 64 * 24 * 9);
    for (size_t i = 0; i < count; i++) {
        const size_t filter = i / (24 * 9);
        if (filter < 24)
            assert_true(weight[i] == (i % (24 * 9) == filter * 9 + 4 ? 1.0F : 0.0F));
        else
            largest = fmaxf(largest, fabsf(weight[i]));
    }
    assert_true((double)largest <= 1 / sqrt(9 * 24.0) && (double)largest > 0.95 / sqrt(9 * 24.0));
    free(weight);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_initial_weights_follow_seed_and_initializer)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "resnet18", 2, 64);
    FshError error = {0};
    size_t count;
    float *first = test_read(network.program, "layer3.0.conv1.weight", &count);
    double square = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)first[i];
        square += (double)first[i] * (double)first[i];
    }
    const double wanted = sqrt(2.0 / (256 * 9)); /* kaiming_normal, fan_out */
    assert_true(fabs(sum / (double)count) < 4 * wanted / sqrt((double)count));
    assert_true(fabs(sqrt(square / (double)count) / wanted - 1) < 0.01);
    test_check(state_initialize(network.state, 1, &error), &error);
    float *again = test_read(network.program, "layer3.0.conv1.weight", NULL);
    assert_memory_equal(first, again, count * sizeof *first);
    test_check(state_initialize(network.state, 2, &error), &error);
    float *other = test_read(network.program, "layer3.0.conv1.weight", NULL);
    assert_true(test_relative_error(other, first, count) > 1);
    free(first);
    free(again);
    free(other);

    float *fc = test_read(network.program, "fc.bias", &count), largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(fc[i]));
    assert_true(largest > 0 && (double)largest <= 1 / sqrt(512.0)); /* PyTorch's default */
    free(fc);
    float *var = test_read(network.program, "bn1.running_var", NULL),
          *mean = test_read(network.program, "bn1.running_mean", NULL);
    float *momentum = test_read(network.program, "bn1.weight.momentum_buffer", NULL);
    assert_true(var[5] == 1 && mean[5] == 0 && momentum[5] == 0);
    free(var);
    free(mean);
    free(momentum);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_state_refuses_wrong_names_and_counts)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    FshError error = {0};
    float values[100] = {0};
    assert_int_equal(state_read(network.state, "model.99.weight", values, 3, &error), FSH_ERR_NOT_FOUND);
    assert_string_equal(error.message,
                        "model.99.weight: the network has no parameter or buffer of this name");
    assert_int_equal(state_write(network.state, "model.2.weight", values, 4, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "model.2.weight: 4 values given, but its shape is [3]");
    assert_int_equal(state_read(network.state, "loss", values, 1, &error), FSH_ERR_NOT_FOUND);
    test_network_free(&network);
    backend_close(&backend);
}

/* Reads the State's first parameter into values, on a thread of its own. */
typedef struct Reading {
    State *state;
    float values[512];
    FshStatus status;
} Reading;

static void *read_on_a_thread(void *context)
{
    Reading *reading = context;
    reading->status = state_read(reading->state, "model.1.weight", reading->values, 81, NULL);
    return NULL;
}

TEST(test_a_copy_keeps_what_the_state_held)
{
    FshError error = {0};
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    float before[512], after[512];
    State *copy = NULL;
    assert_int_equal(tensor_count(graph_tensor(network.graph, graph_find(network.graph, "model.1.weight"))),
                     81);
    test_check(state_copy_new(&copy, network.state, &error), &error);
    (void)test_step(&network);
    test_check(state_read(network.state, "model.1.weight", before, 81, &error), &error);
    test_check(state_copy_take(copy, network.state, &error), &error);
    const uint64_t changes = state_changes(network.state);
    assert_int_equal(state_changes(network.state), changes);
    Reading reading = {.state = copy};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_on_a_thread, &reading), 0);
    (void)test_step(&network);
    assert_int_equal(pthread_join(thread, NULL), 0);
    test_check(reading.status, &error);
    assert_memory_equal(reading.values, before, 81 * sizeof(float));
    test_check(state_read(network.state, "model.1.weight", after, 81, &error), &error);
    assert_memory_not_equal(after, before, 81 * sizeof(float));
    assert_true(state_changes(network.state) > changes);
    test_check(state_read(copy, "model.1.weight.momentum_buffer", after, 81, &error), &error);
    assert_int_equal(state_read(copy, "model.1.weight", after, 4, &error), FSH_ERR_MISMATCH);
    state_free(&copy);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_program_of_another_network_is_refused)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    FshError error = {0};
    Program *program = NULL;
    Graph *other = test_model("resnet18", 2, 64, true);
    assert_int_equal(program_new(&program, network.state, other, &error), FSH_ERR_MISMATCH);
    assert_string_equal(
        error.message, "conv1.weight: the graph has it, and the parameters were made for a graph without it");
    assert_null(program);
    graph_free(&other);
    other = test_model("conv8", 2, 64, true); /* a larger image: more features at the end */
    assert_int_equal(program_new(&program, network.state, other, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message,
                        "model.33.weight: the graph has it as [10 x 512], unlike the graph that the "
                        "parameters were made for");
    graph_free(&other);

    /* A State for evaluation has no momentum. */
    State *frozen = NULL;
    Graph *evaluation = test_model("conv8", 2, 28, false);
    test_check(state_new(&frozen, backend, evaluation, &error), &error);
    assert_int_equal(program_new(&program, frozen, network.graph, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "model.1.weight.momentum_buffer: the graph has it");
    state_free(&frozen);
    graph_free(&evaluation);
    test_network_free(&network);
    backend_close(&backend);
}

/* ---- programs ---- */

/* Activations beyond what is free are refused when the program is made: filling them would have the system
 * end the process. What a program took is free again after it. */
TEST(test_program_that_memory_does_not_hold_is_refused)
{
    Backend *backend = test_backend(1);
    FshError error = {0};
    State *state = NULL;
    Program *program = NULL;
    Graph *large = test_model("conv8", 1 << 26, 28, true);
    test_check(state_new(&state, backend, large, &error), &error);
    assert_int_equal(program_new(&program, state, large, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "cpu: activations and gradients take ");
    assert_contains(error.message,
                    " of memory are free; use a smaller --batch-size: of 67108864 samples, about ");
    assert_null(program);
    Graph *small = test_model("conv8", 2, 28, true);
    for (int i = 0; i < 2; i++) {
        test_check(program_new(&program, state, small, &error), &error);
        program_free(&program);
    }
    graph_free(&small);
    state_free(&state);
    graph_free(&large);
    backend_close(&backend);
}

TEST(test_program_refuses_wrong_tensors_and_sizes)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    FshError error = {0};
    char bytes[64] = {0};
    assert_int_equal(program_write(network.program, graph_find(network.graph, "label"), bytes, 17, &error),
                     FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "label: 17 bytes given, but it is i64 [2]");
    assert_int_equal(program_write(network.program, graph_find(network.graph, "loss"), bytes, 4, &error),
                     FSH_ERR_USAGE);
    assert_int_equal(program_write(network.program, TENSOR_NONE, bytes, 4, &error), FSH_ERR_USAGE);
    TensorId hidden = 0;
    while (graph_tensor(network.graph, hidden)->role != TENSOR_ACTIVATION ||
           graph_tensor(network.graph, hidden)->keep)
        hidden++;
    const size_t hidden_bytes = (size_t)tensor_count(graph_tensor(network.graph, hidden)) * sizeof(float);
    assert_int_equal(program_read(network.program, hidden, bytes, hidden_bytes, &error), FSH_ERR_USAGE);
    assert_contains(error.message, ": is not kept after a run; mark it with graph_keep");
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_label_out_of_range_is_named)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    FshError error = {0};
    static const int64_t bad[][2] = {{0, TEST_CLASSES}, {-2, 0}};
    static const char *const messages[] = {"label 10 of sample 1; there are 10 classes",
                                           "label -2 of sample 0; there are 10 classes"};
    for (int i = 0; i < 2; i++) {
        test_check(
            program_write(network.program, graph_find(network.graph, "label"), bad[i], sizeof bad[i], &error),
            &error);
        assert_int_equal(program_run(network.program, &error), FSH_ERR_MISMATCH);
        assert_contains(error.message, messages[i]);
    }
    test_network_free(&network);
    backend_close(&backend);
}

/* Returns all of the State, *count_ret values in the graph's order, in one array that the caller frees. */
static float *read_state(TestNetwork *network, size_t *count_ret)
{
    size_t total = 0;
    float *all = NULL;
    for (size_t i = 0; i < graph_tensor_count(network->graph); i++) {
        const Tensor *tensor = graph_tensor(network->graph, (TensorId)i);
        if (!state_holds(tensor->role))
            continue;
        size_t count;
        float *values = test_read(network->program, tensor->name, &count);
        all = realloc(all, (total + count) * sizeof *all);
        assert_non_null(all);
        memcpy(all + total, values, count * sizeof *all);
        total += count;
        free(values);
    }
    *count_ret = total;
    return all;
}

/* Returns the state after some steps, *count_ret values that the caller frees; with poison, the memory is
 * poisoned before each step. */
static float *train(const char *model, int threads, int64_t batch, int64_t size, bool poison,
                    size_t *count_ret)
{
    FshError error = {0};
    Backend *backend = test_backend(threads);
    TestNetwork network = test_network(backend, model, batch, size);
    for (int i = 0; i < 3; i++) {
        if (poison)
            test_check(program_poison(network.program, &error), &error);
        assert_true(isfinite(test_step(&network)));
    }
    float *all = read_state(&network, count_ret);
    test_network_free(&network);
    backend_close(&backend);
    return all;
}

TEST(test_two_runs_give_the_same_bits)
{
    for (int i = 0; i < 2; i++) {
        const char *model = i ? "resnet18" : "conv8";
        size_t count;
        float *a = train(model, 2, 5, 64, false, &count), *b = train(model, 2, 5, 64, false, &count);
        assert_memory_equal(a, b, count * sizeof *a);
        free(a);
        free(b);
    }
}

TEST(test_no_step_reads_what_it_did_not_write)
{
    for (int i = 0; i < 2; i++) {
        const char *model = i ? "resnet18" : "conv8";
        size_t count;
        float *clean = train(model, 2, 3, 70, false, &count),
              *poisoned = train(model, 2, 3, 70, true, &count);
        assert_memory_equal(clean, poisoned, count * sizeof *clean);
        free(clean);
        free(poisoned);
    }
}

TEST(test_threads_change_results_by_rounding_only)
{
    size_t count;
    float *one = train("conv8", 1, 7, 33, false, &count);
    for (int threads = 2; threads <= 3; threads++) {
        float *more = train("conv8", threads, 7, 33, false, &count);
        assert_true(test_relative_error(more, one, count) < 1e-4);
        free(more);
    }
    free(one);
}

TEST(test_odd_sizes_and_single_images_train)
{
    static const struct {
        const char *model;
        int64_t batch, size;
    } cases[] = {
        {"conv8", 1, 17}, {"conv8", 3, 45}, {"resnet18", 1, 33}, {"resnet18", 2, 51}, {"resnet18", 7, 32}};
    Backend *backend = test_backend(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TestNetwork network = test_network(backend, cases[i].model, cases[i].batch, cases[i].size);
        assert_true(isfinite(test_step(&network)));
        assert_true(isfinite(test_step(&network)));
        test_network_free(&network);
    }
    backend_close(&backend);
}

TEST(test_a_batch_is_learned_by_heart)
{
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "resnet18", 8, 32);
    const float first = test_step(&network);
    float last = first;
    for (int i = 0; i < 10; i++)
        last = test_step(&network);
    /* With label smoothing 0.1 and 10 classes the loss cannot go below 0.5. */
    assert_true(first > 2 && last > 0.49F && last < 0.8F);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_training_and_evaluation_share_the_state)
{
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "resnet18", 4, 64);
    FshError error = {0};
    Graph *four = test_model("resnet18", 4, 64, false), *one = test_model("resnet18", 1, 64, false);
    Program *program_four = NULL, *program_one = NULL;
    test_check(program_new(&program_four, network.state, four, &error), &error);
    test_check(program_new(&program_one, network.state, one, &error), &error);
    test_write_batch(program_four);
    test_write_batch(program_one); /* the first image of the four */
    test_run(program_four);
    float *before = test_read(program_four, "logits", NULL);
    test_step(&network);
    test_run(program_four);
    test_run(program_one);
    float *after = test_read(program_four, "logits", NULL), *alone = test_read(program_one, "logits", NULL);
    assert_true(test_relative_error(after, before, 4 * TEST_CLASSES) > 1e-2);
    /* Running statistics: an image's logits do not depend on the batch it is in. */
    assert_true(test_relative_error(alone, after, TEST_CLASSES) < 1e-5);
    free(before);
    free(after);
    free(alone);
    program_free(&program_four);
    program_free(&program_one);
    graph_free(&four);
    graph_free(&one);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_a_batch_without_labels_changes_only_by_decay)
{
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    const int64_t none[2] = {-1, -1};
    FshError error = {0};
    test_check(program_write(network.program, graph_find(network.graph, "label"), none, sizeof none, &error),
               &error);
    float *before = test_read(network.program, "model.33.weight", NULL);
    assert_true(test_step(&network) == 0);
    size_t count;
    float *gradient = test_read(network.program, "model.33.weight.grad", &count);
    float *after = test_read(network.program, "model.33.weight", NULL);
    for (size_t i = 0; i < count; i++) {
        assert_true(gradient[i] == 0);
        assert_true(fabsf(after[i] - before[i] * (1 - 0.01F * 0.01F)) <= 1e-6F * fabsf(before[i]));
    }
    free(before);
    free(gradient);
    free(after);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_runs_leave_nothing_allocated)
{
    Backend *backend = test_backend(2);
    TestNetwork network = test_network(backend, "resnet18", 2, 64);
    for (int i = 0; i < 2; i++)
        test_run(network.program);
    const struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 3; i++)
        test_run(network.program);
    const struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.uordblks, before.uordblks);
    assert_int_equal(after.hblkhd, before.hblkhd);
    test_network_free(&network);
    backend_close(&backend);
}

TEST(test_profile_measures_every_node)
{
    Backend *backend = test_backend(1);
    TestNetwork network = test_network(backend, "conv8", 2, 28);
    FshError error = {0};
    const size_t nodes = graph_node_count(network.graph);
    double *seconds = calloc(nodes, sizeof *seconds);
    assert_non_null(seconds);
    test_run(network.program);
    assert_int_equal(program_profile(network.program, true, seconds, nodes, &error), FSH_ERR_UNSUPPORTED);
    test_check(program_profile(network.program, true, NULL, 0, &error), &error);
    test_run(network.program);
    assert_int_equal(program_profile(network.program, true, seconds, nodes - 1, &error), FSH_ERR_MISMATCH);
    test_check(program_profile(network.program, false, seconds, nodes, &error), &error);
    for (size_t i = 0; i < nodes; i++)
        assert_true(seconds[i] > 0 && seconds[i] < 60);
    double *again = calloc(nodes, sizeof *again);
    assert_non_null(again);
    test_run(network.program);
    test_check(program_profile(network.program, false, again, nodes, &error), &error);
    assert_memory_equal(again, seconds, nodes * sizeof *again);
    free(seconds);
    free(again);
    MemoryUse use = {0};
    program_memory(network.program, &use);
    assert_true(use.bytes[MEMORY_ACTIVATIONS] > 0 && use.bytes[MEMORY_SCRATCH] > 0);
    test_network_free(&network);
    backend_close(&backend);
}

/* ---- fusion ---- */

/* Returns resnet18 with chosen fusions and its logits kept. */
static Graph *fused_graph(unsigned fusions)
{
    const ModelSpec spec = {
        .batch = 4, .height = 64, .width = 64, .channels = 3, .classes = TEST_CLASSES, .training = true};
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    FshError error = {0};
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){4, 64, 64, 3});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){4});
    TensorId logits =
        model_find("resnet18")->build(graph, graph_normalize(graph, image, mean, deviation), &spec);
    TensorId loss = graph_softmax_cross_entropy(graph, logits, label, TENSOR_NONE, TENSOR_NONE, 0);
    graph_keep(graph, logits, "logits");
    graph_fuse(graph, fusions);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, fusions);
    test_check(graph_check(graph, &error), &error);
    return graph;
}

TEST(test_fusion_does_not_change_results)
{
    static const char *const names[] = {"logits",
                                        "conv1.weight.grad",
                                        "bn1.weight.grad",
                                        "layer2.0.bn2.bias.grad",
                                        "layer2.0.downsample.1.weight.grad",
                                        "layer3.1.conv1.weight.grad"};
    Backend *backend = test_backend(2);
    float *reference[6] = {NULL};
    for (unsigned fusions = 0; fusions <= 3; fusions++) {
        Graph *graph = fused_graph(fusions);
        State *weights = NULL;
        Program *program = NULL;
        FshError error = {0};
        test_check(state_new(&weights, backend, graph, &error), &error);
        test_check(state_initialize(weights, 3, &error), &error);
        test_check(program_new(&program, weights, graph, &error), &error);
        test_write_batch(program);
        test_run(program);
        for (int i = 0; i < 6; i++) {
            size_t count;
            float *values = test_read(program, names[i], &count);
            if (fusions == 0) {
                reference[i] = values;
                continue;
            }
            const double relative = test_relative_error(values, reference[i], count);
            if (!(relative < 1e-5))
                fail_msg("fusions %u: %s differs by %.1e", fusions, names[i], relative);
            free(values);
        }
        program_free(&program);
        state_free(&weights);
        graph_free(&graph);
    }
    for (int i = 0; i < 6; i++)
        free(reference[i]);
    backend_close(&backend);
}
