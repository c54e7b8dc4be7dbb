#include "tests/trainer/fusion_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/fusion_graphs.h"
#include "tests/trainer/graph_support.h"
#include "tests/trainer/network_support.h"

enum { FIRST_SEED = 11, NARROW_SEEDS = 6 };

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
    if (graph_find(graph, "scaler.scale") != TENSOR_NONE) {
        const float scale = 1 << 14;
        test_check(state_write(run.state, "scaler.scale", &scale, 1, &error), &error);
    }
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

/* Returns whether the bias is of a norm whose result is read by norms alone: its gradient is 0, too, so it
 * must be small beside that of the norm's weight. */
static bool is_idle_behind(const Run *run, const char *name, const float *gradient, size_t count,
                           double tolerance)
{
    if (strcmp(name, "pair_c_norm.bias.grad") != 0)
        return false;
    float *weight = test_read(run->program, "pair_c_norm.weight.grad", NULL);
    assert_true(norm_of(gradient, count) < 10 * tolerance * norm_of(weight, count));
    free(weight);
    return true;
}

/* Returns whether the tensor is the same in both, and says so where it is not. */
static bool compare_tensor(const Run *ours, const Run *without, const char *name, unsigned fusions,
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
    const bool same = before_norm || is_idle_behind(ours, name, a, count, tolerance) ||
                      test_relative_error(a, b, count) <= tolerance;
    if (!same)
        print_message("fusions %u: %s differs by %.1e of %.1e\n", fusions, name,
                      test_relative_error(a, b, count), norm_of(b, count));
    free(a);
    free(b);
    return same;
}

/* Compares two runs, and ends them. */
static void compare_runs(Run *ours, Run *without, unsigned fusions, double tolerance)
{
    size_t differ = compare_tensor(ours, without, "loss", fusions, tolerance) ? 0 : 1;
    for (size_t t = 0; t < graph_tensor_count(without->graph); t++) {
        const Tensor *tensor = graph_tensor(without->graph, (TensorId)t);
        if (tensor->role == TENSOR_GRADIENT || tensor->role == TENSOR_BUFFER)
            differ += compare_tensor(ours, without, tensor->name, fusions, tolerance) ? 0 : 1;
    }
    if (differ)
        fail_msg("%zu tensors differ", differ);
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

void compare_paired(Backend *backend, int size, DataType type, unsigned fusions, unsigned others,
                    double tolerance)
{
    static const Pair pairs[] = {
        {.make = paired_graph}, {.make = middle_paired_graph}, {.make = large_paired_graph}};
    const Pair pair = pairs[size];
    Graph *graph = pair.make(fusions, type);
    assert_int_equal(test_count_ops(graph, OP_NORM_PAIR), 3);
    assert_int_equal(test_count_ops(graph, OP_NORM_PAIR_BACKWARD), 3);
    graph_free(&graph);
    print_message("size %d, %s\n", size, data_type_name(type)); /* which of them fails */
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
