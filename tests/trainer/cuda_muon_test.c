/* Muon on the CUDA backend against the CPU backend, whose float32 products the golden file holds to PyTorch's
 * in float64. Both begin each run with the CPU's state, so that no difference grows; what is compared is how
 * far a run moved each tensor. The products are of bf16: a matrix may move by 3 % of its step elsewhere, all
 * else by rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/trainer/cuda_support.h"
#include "trainer/graph/graph_internal.h"
#include "trainer/graph/muon.h"

enum { RUNS = 4 };
#define STEP_TOLERANCE 0.03
#define LEARNING_RATE  0.02F

enum { BATCH = 64, OUTPUTS = 48 };

/* Returns a network whose hidden layers are matrices of every kind: wide and tall, in groups, of one piece
 * and of several, with sides that eight divides and not. The output's gradient is an input, "dy", and the
 * loss another: gradients of as many directions as matrices have, since bf16 makes something of its own of a
 * direction that a gradient has not. */
static Graph *muon_graph(const Optimizer *wanted, DataType type)
{
    FshError error = {0};
    Optimizer optimizer = *wanted;
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId x = graph_input(graph, "image", DATA_F32, 4, (int64_t[]){BATCH, 5, 5, 3});
    graph_set_compute_type(graph, type);
    x = conv(graph, "first", x, 9, 3, 1, 1, true);
    x = conv(graph, "wide", x, 24, 3, 1, 1, false);
    x = conv(graph, "tall", x, 32, 1, 1, 0, false);
    x = graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true});
    x = graph_conv2d(graph, "groups", x,
                     &(Conv2d){.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 4});
    x = graph_linear(graph, "hidden", graph_flatten(graph, x), 33, true);
    x = graph_linear(graph, "tall_too", x, 71, true);
    x = graph_cast(graph, graph_linear(graph, "head", x, OUTPUTS, true), DATA_F32);
    if (optimizer.loss_scaling)
        graph_loss_scale(graph);
    const size_t forward_count = graph_node_count(graph);
    graph_contribute_gradient(graph, x, graph_input(graph, "dy", DATA_F32, 2, (int64_t[]){BATCH, OUTPUTS}));
    graph_append_backward_pass(graph, forward_count);
    graph->loss = graph_input(graph, "loss", DATA_F32, 1, (int64_t[]){1});
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_update(graph, &optimizer);
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(muon_parameter_count(graph), 24 * 81 + 32 * 24 + 32 * 72 + 33 * 800 + 71 * 33);
    return graph;
}

static void write_run(const Side *side, const Graph *graph, uint64_t run)
{
    static const char *const inputs[] = {"image", "dy", "loss", "learning_rate"};
    FshError error = {0};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const TensorId id = graph_find(graph, inputs[i]);
        const size_t count = (size_t)tensor_count(graph_tensor(graph, id));
        float *values = malloc(count * sizeof *values);
        Random random;
        assert_non_null(values);
        random_start(&random, comparison.seed, random_stream(i, run));
        for (size_t k = 0; k < count; k++)
            values[k] = random_normal(&random);
        if (i >= 2)
            values[0] = i == 2 ? 1 : LEARNING_RATE;
        assert_ok(program_write(side->program, id, values, count * sizeof *values, &error), &error);
        free(values);
    }
}

static void copy_state(const Graph *graph, const Side *from, const Side *to)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (!state_holds(tensor->role))
            continue;
        float *values = side_read_state(from, tensor);
        assert_ok(state_write(to->state, tensor->name, values, (size_t)tensor_count(tensor), &error), &error);
        free(values);
    }
}

/* Returns whether a tensor moves by an orthogonal step: a matrix, or what follows it. */
static bool follows_a_step(const Graph *graph, const Tensor *tensor)
{
    if (tensor->role == TENSOR_PARAMETER)
        return tensor->muon;
    return tensor->role == TENSOR_OPTIMIZER && graph_tensor(graph, tensor->of)->muon &&
           graph_optimizer_slot(graph, graph_find(graph, tensor->name)) != SLOT_MOMENTUM_BUFFER;
}

/* Compares how far a tensor moved from `before`. */
static void compare_moves(const Graph *graph, const Tensor *tensor, const Side sides[2], const float *before,
                          double tolerance, const char *what)
{
    float *ours = side_read_state(&sides[0], tensor), *theirs = side_read_state(&sides[1], tensor);
    double difference = 0, moved = 0, size = 0;
    for (size_t i = 0; i < (size_t)tensor_count(tensor); i++) {
        difference += pow((double)ours[i] - (double)theirs[i], 2);
        moved += pow((double)theirs[i] - (double)before[i], 2);
        size += pow((double)theirs[i], 2);
    }
    /* what moves by rounding alone may be off by that of its size */
    const bool stepped = follows_a_step(graph, tensor);
    const double allowed =
        stepped ? STEP_TOLERANCE * sqrt(moved) : tolerance * sqrt(moved) + 1e-6 * sqrt(size);
    comparison.largest = fmax(comparison.largest, moved > 0 && stepped ? sqrt(difference / moved) : 0);
    if (!(sqrt(difference) <= allowed)) {
        print_error("%s: %s is off by %.2g of its move\n", what, tensor->name, sqrt(difference / moved));
        comparison.mismatches++;
    }
    free(ours);
    free(theirs);
}

/* tolerance: of what depends on gradients alone. */
static void compare_runs(const Optimizer *optimizer, DataType type, double tolerance, const char *name)
{
    FshError error = {0};
    Graph *graph = muon_graph(optimizer, type), *reference = muon_graph(optimizer, DATA_F32);
    const size_t tensors = graph_tensor_count(reference);
    Side sides[2];
    float **before = calloc(tensors, sizeof *before);
    assert_non_null(before);
    side_start(&sides[0], backends[CUDA], graph, &comparison);
    side_start(&sides[1], backends[CPU], reference, &comparison);
    for (uint64_t run = 0; run < RUNS; run++) {
        copy_state(reference, &sides[1], &sides[0]);
        for (size_t t = 0; t < tensors; t++)
            if (state_holds(graph_tensor(reference, (TensorId)t)->role))
                before[t] = side_read_state(&sides[1], graph_tensor(reference, (TensorId)t));
        for (int i = 0; i < 2; i++) {
            write_run(&sides[i], i ? reference : graph, run);
            assert_ok(program_poison(sides[i].program, &error), &error);
            assert_ok(program_run(sides[i].program, &error), &error);
        }
        for (size_t t = 0; t < tensors; t++) {
            const Tensor *tensor = graph_tensor(reference, (TensorId)t);
            if (before[t])
                compare_moves(reference, tensor, sides, before[t], tolerance, name);
            free(before[t]);
            before[t] = NULL;
        }
    }
    free(before);
    side_end(&sides[0]);
    side_end(&sides[1]);
    graph_free(&graph);
    graph_free(&reference);
}

static const Optimizer plain = {.kind = OPTIMIZER_MUON,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .weight_decay = 0.05,
                                .muon = {.rest = OPTIMIZER_ADAMW,
                                         .rest_rate = 0.5,
                                         .momentum = 0.95,
                                         .weight_decay = 0.1,
                                         .steps = 5,
                                         .nesterov = true}};

static Optimizer as_airbench(void)
{
    Optimizer optimizer = plain;
    optimizer.momentum = 0.85;
    optimizer.nesterov = true;
    optimizer.muon.rest = OPTIMIZER_SGD;
    optimizer.muon.steps = 3;
    optimizer.muon.scale = MUON_ORIGINAL;
    optimizer.muon.renorm = true;
    return optimizer;
}

static Optimizer with_everything(void)
{
    Optimizer optimizer = plain;
    optimizer.clip_norm = 0.3;
    optimizer.accumulation_steps = 2;
    optimizer.lookahead_steps = 2;
    optimizer.lookahead_alpha = 0.5;
    optimizer.ema_decay = 0.9;
    optimizer.loss_scaling = true;
    optimizer.scale_init = 1024;
    optimizer.scale_growth = 2;
    optimizer.scale_backoff = 0.5;
    optimizer.scale_interval = 2;
    return optimizer;
}

CUDA_TEST(test_matrices_move_alike_agree)
{
    const Optimizer airbench = as_airbench();
    compare_runs(&plain, DATA_F32, 1e-4, "muon, adamw");
    compare_runs(&airbench, DATA_F32, 1e-4, "muon, sgd, renorm, three steps");
}

CUDA_TEST(test_matrices_move_alike_with_everything_around_agree)
{
    const Optimizer everything = with_everything();
    compare_runs(&everything, DATA_F32, 1e-4, "muon, everything");
}

/* Returns all of a state, *count_ret values that the caller frees. */
static float *all_values(const Graph *graph, const Side *side, size_t *count_ret)
{
    float *all = NULL;
    size_t total = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (!state_holds(tensor->role))
            continue;
        float *values = side_read_state(side, tensor);
        const size_t count = (size_t)tensor_count(tensor);
        all = realloc(all, (total + count) * sizeof *all);
        assert_non_null(all);
        memcpy(all + total, values, count * sizeof *all);
        total += count;
        free(values);
    }
    *count_ret = total;
    return all;
}

static void run_on(const Graph *graph, Side *side, uint64_t from, uint64_t to)
{
    FshError error = {0};
    for (uint64_t run = from; run < to; run++) {
        write_run(side, graph, run);
        assert_ok(program_run(side->program, &error), &error);
    }
}

/* Run, save, load into another program, run on: the same bits as without, in float32 and with narrow
 * gradients and copies. */
CUDA_TEST(test_a_run_with_muon_goes_on_from_its_state_bit_for_bit)
{
    enum { STOP = 3, END = 7 };
    const Optimizer everything = with_everything();
    static const DataType types[] = {DATA_F32, DATA_BF16, DATA_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Graph *graph = muon_graph(&everything, types[i]);
        size_t count;
        Side whole, first, second;
        side_start(&whole, backends[CUDA], graph, &comparison);
        side_start(&first, backends[CUDA], graph, &comparison);
        side_start(&second, backends[CUDA], graph, &comparison);
        run_on(graph, &whole, 0, END);
        run_on(graph, &first, 0, STOP);
        copy_state(graph, &first, &second);
        run_on(graph, &second, STOP, END);
        float *wanted = all_values(graph, &whole, &count), *got = all_values(graph, &second, &count);
        assert_memory_equal(got, wanted, count * sizeof *got);
        for (size_t k = 0; k < count; k++)
            assert_true(isfinite(got[k]));
        free(wanted);
        free(got);
        side_end(&whole);
        side_end(&first);
        side_end(&second);
        graph_free(&graph);
    }
}

/* Steps whose gradient came as 16 bits are as orthogonal as others: all directions of a matrix have a length
 * between 0.6 and 1.3, and so has their mean. */
CUDA_TEST(test_steps_of_narrow_gradients_are_orthogonal)
{
    static const DataType types[] = {DATA_F32, DATA_BF16, DATA_F16};
    static const char *const names[] = {"wide.weight", "tall.weight", "hidden.weight"};
    Optimizer optimizer = plain;
    optimizer.muon.scale = MUON_ORIGINAL;
    optimizer.muon.weight_decay = 0;
    for (size_t i = 0; i < 9; i++) {
        Graph *graph = muon_graph(&optimizer, types[i / 3]);
        const Tensor *weight = graph_tensor(graph, graph_find(graph, names[i % 3]));
        Side side;
        side_start(&side, backends[CUDA], graph, &comparison);
        float *before = side_read_state(&side, weight);
        run_on(graph, &side, 0, 1);
        float *after = side_read_state(&side, weight);
        double moved = 0;
        for (size_t k = 0; k < (size_t)tensor_count(weight); k++)
            moved += pow((double)after[k] - (double)before[k], 2);
        const int64_t rows = muon_rows(weight), columns = muon_columns(weight);
        const double directions = (double)(rows < columns ? rows : columns),
                     length = sqrt(moved / directions) /
                              ((double)LEARNING_RATE * muon_scale(&optimizer.muon, weight));
        print_message("  %s, %s: %.3f\n", names[i % 3], data_type_name(types[i / 3]), length);
        assert_true(length > 0.6 && length < 1.3);
        free(before);
        free(after);
        side_end(&side);
        graph_free(&graph);
    }
}
