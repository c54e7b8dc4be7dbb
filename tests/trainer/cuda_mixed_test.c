/* Mixed precision on the CUDA backend: images normalised to bf16 and f16, how narrow tensors lie, narrow
 * copies of weights that follow their masters, and whole networks. Single ops: op_cases.h.
 *
 * Usage: cuda_support.h. */
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/model_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const DataType narrow_types[] = {DATA_BF16, DATA_F16};
enum { NARROW_TYPES = 2 };

/* ---- bytes to normalised images ---- */

static Graph *normalized(DataType type, const int64_t shape[4])
{
    FshError error = {0};
    const double mean[4] = {0.4, 0.5, 0.6, 0.3}, deviation[4] = {0.2, 0.3, 0.25, 0.5};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_normalize(graph, graph_input(graph, "image", DATA_U8, 4, shape), mean, deviation);
    graph_keep(graph, x, "x");
    graph_keep(graph, graph_scale(graph, graph_cast(graph, x, DATA_F32), 1), "y");
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

static float *normalized_values(Backend *backend, const Graph *graph, size_t count)
{
    FshError error = {0};
    Side side;
    float *values = malloc(count * sizeof *values);
    side_start(&side, backend, graph, &comparison);
    side_write_inputs(&side, graph, 0, &comparison);
    assert_ok(program_run(side.program, &error), &error);
    assert_ok(program_read(side.program, graph_find(graph, "y"), values, count * sizeof *values, &error),
              &error);
    side_end(&side);
    return values;
}

CUDA_TEST(test_normalized_images_agree)
{
    static const int64_t shapes[][4] = {
        {1, 1, 1, 3}, {3, 5, 7, 1}, {2, 31, 33, 3}, {1, 32, 32, 4}, {5, 37, 41, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = -1; t < NARROW_TYPES; t++) {
            const DataType type = t < 0 ? DATA_F32 : narrow_types[t];
            const size_t count = (size_t)(shapes[i][0] * shapes[i][1] * shapes[i][2] * shapes[i][3]);
            Graph *graph = normalized(type, shapes[i]), *reference = normalized(DATA_F32, shapes[i]);
            float *ours = normalized_values(backends[CUDA], graph, count);
            float *theirs = normalized_values(backends[CPU], reference, count);
            comparison.tolerance = t < 0 ? 1e-6 : epsilon_of(type);
            compare_values(&comparison, data_type_name(type), ours, theirs, count);
            comparison.tolerance = 0;
            free(ours);
            free(theirs);
            graph_free(&graph);
            graph_free(&reference);
        }
}

/* What is kept is read in the graph's type, without padding: as the CPU backend does it. */
CUDA_TEST(test_kept_narrow_tensors_are_read_packed)
{
    FshError error = {0};
    const int64_t shape[4] = {2, 3, 5, 3};
    Graph *graph = normalized(DATA_BF16, shape);
    Side side;
    uint16_t bits[90];
    float values[90];
    side_start(&side, backends[CUDA], graph, &comparison);
    side_write_inputs(&side, graph, 0, &comparison);
    assert_ok(program_run(side.program, &error), &error);
    assert_ok(program_read(side.program, graph_find(graph, "x"), bits, sizeof bits, &error), &error);
    assert_ok(program_read(side.program, graph_find(graph, "y"), values, sizeof values, &error), &error);
    for (size_t i = 0; i < 90; i++) {
        const uint32_t upper = (uint32_t)bits[i] << 16;
        assert_memory_equal(&upper, &values[i], sizeof upper);
    }
    side_end(&side);
    graph_free(&graph);
}

/* ---- narrow copies of weights ---- */

enum { BATCH = 5, CLASSES = 3 };

/* Returns image -> flatten -> linear -> linear -> logits, with an update in training. */
static Graph *classifier(DataType type, bool training)
{
    FshError error = {0};
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){BATCH, 6, 5, 3});
    x = graph_flatten(graph, graph_normalize(graph, x, mean, deviation));
    x = graph_linear(graph, "hidden", x, 19, true);
    x = graph_cast(graph, graph_linear(graph, "classes", x, CLASSES, true), DATA_F32);
    graph_keep(graph, x, "logits");
    if (training) {
        TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){BATCH});
        graph_differentiate(graph,
                            graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, 0.1F));
        Optimizer update = plain_sgd;
        update.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
        graph_update(graph, &update);
    }
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

static void read_logits(Program *program, float logits[BATCH * CLASSES])
{
    FshError error = {0};
    assert_ok(program_run(program, &error), &error);
    assert_ok(program_read(program, graph_find(program->graph, "logits"), logits,
                           BATCH * CLASSES * sizeof *logits, &error),
              &error);
    for (int i = 0; i < BATCH * CLASSES; i++)
        assert_true(isfinite(logits[i]));
}

/* Writes what is there: every narrow copy is made anew from its master. */
static void rewrite_state(State *state, const Graph *graph, float factor)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        float *values = malloc(count * sizeof *values);
        assert_ok(state_read(state, tensor->name, values, count, &error), &error);
        for (size_t i = 0; i < count; i++)
            values[i] *= factor;
        assert_ok(state_write(state, tensor->name, values, count, &error), &error);
        free(values);
    }
}

CUDA_TEST(test_written_weights_are_seen_by_the_next_run)
{
    for (int t = 0; t < NARROW_TYPES; t++) {
        Graph *graph = classifier(narrow_types[t], false);
        Side side;
        float before[BATCH * CLASSES], after[BATCH * CLASSES];
        side_start(&side, backends[CUDA], graph, &comparison);
        side_write_inputs(&side, graph, 0, &comparison);
        read_logits(side.program, before);
        rewrite_state(side.state, graph, 0);
        read_logits(side.program, after);
        for (int i = 0; i < BATCH * CLASSES; i++) {
            assert_true(before[i] != 0);
            assert_true(after[i] == 0);
        }
        side_end(&side);
        graph_free(&graph);
    }
}

/* What an evaluation computes after updates is what it computes from the masters. The other type's copies are
 * those that no update knows: its program is made after the training program. */
CUDA_TEST(test_evaluation_sees_what_the_update_left)
{
    FshError error = {0};
    for (int t = 0; t < NARROW_TYPES; t++) {
        Graph *train = classifier(narrow_types[t], true), *evaluate[2];
        Program *evaluators[2] = {NULL, NULL};
        Side side;
        float first[BATCH * CLASSES], updated[BATCH * CLASSES], rewritten[BATCH * CLASSES];
        side_start(&side, backends[CUDA], train, &comparison);
        for (int k = 0; k < 2; k++) {
            evaluate[k] = classifier(narrow_types[k == 0 ? t : 1 - t], false);
            assert_ok(program_new(&evaluators[k], side.state, evaluate[k], &error), &error);
            Side evaluator = {.program = evaluators[k]};
            side_write_inputs(&evaluator, evaluate[k], 0, &comparison);
        }
        for (int k = 0; k < 2; k++) {
            read_logits(evaluators[k], first);
            for (uint64_t step = 0; step < 3; step++) {
                side_write_inputs(&side, train, step, &comparison);
                assert_ok(program_run(side.program, &error), &error);
            }
            read_logits(evaluators[k], updated);
            rewrite_state(side.state, train, 1);
            read_logits(evaluators[k], rewritten);
            assert_memory_not_equal(first, updated, sizeof first);
            assert_memory_equal(updated, rewritten, sizeof updated);
        }
        for (int k = 0; k < 2; k++) {
            program_free(&evaluators[k]);
            graph_free(&evaluate[k]);
        }
        side_end(&side);
        graph_free(&train);
    }
}

/* ---- whole networks ---- */

enum { TRAINING_STEPS = 8 };

static Graph *mixed_model(const char *name, int64_t batch, int64_t size, int64_t channels, DataType type)
{
    FshError error = {0};
    Graph *graph = NULL;
    const Model *model = model_find(name);
    const bool restores = model->task == TASK_RESTORATION;
    const bool pyramid = strcmp(name, "pyramidnet") == 0; /* odd channels in every block */
    ModelSpec spec = {.batch = batch,
                      .height = size,
                      .width = size,
                      .channels = channels,
                      .classes = restores ? 0 : 10,
                      .training = true};
    model_value(&spec.options, "depth")->integer = pyramid ? 38 : 0;
    model_value(&spec.options, "alpha")->integer = pyramid ? 47 : 0;
    const ModelRecipe recipe = {.mean = {0.5, 0.5, 0.5},
                                .deviation = {0.25, 0.25, 0.25},
                                .loss = restores ? LOSS_CHARBONNIER : LOSS_CROSS_ENTROPY,
                                .compute_type = type,
                                .fusions = FUSE_ALL | (type == DATA_F32 ? 0 : FUSE_LINEAR_SCALE),
                                .optimizer = {.momentum = 0.9,
                                              .weight_decay = 1e-4,
                                              .loss_scaling = type == DATA_F16,
                                              .scale_init = 1024,
                                              .scale_growth = 2,
                                              .scale_backoff = 0.5,
                                              .scale_interval = 2000}};
    assert_ok(model_graph(model, &spec, &recipe, &graph, &error), &error);
    return graph;
}

/* Trains on one batch at that learning rate. Returns the network's first result, *count_ret values that the
 * caller frees; losses has the loss of each step. */
static float *train_on_one_batch(Backend *backend, const Graph *graph, float rate,
                                 float losses[TRAINING_STEPS], size_t *count_ret)
{
    FshError error = {0};
    Side side;
    const TensorId found = graph_find(graph, "logits");
    const TensorId result = found == TENSOR_NONE ? graph_find(graph, "restored") : found;
    const size_t count = (size_t)tensor_count(graph_tensor(graph, result));
    float *values = malloc(count * sizeof *values);
    side_start(&side, backend, graph, &comparison);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison.ran[graph_node(graph, (NodeId)n)->op] = true;
    for (int step = 0; step < TRAINING_STEPS; step++) {
        side_write_inputs(&side, graph, 0, &comparison);
        assert_ok(program_write(side.program, graph_find(graph, "learning_rate"), &rate, sizeof rate, &error),
                  &error);
        assert_ok(program_run(side.program, &error), &error);
        if (step == 0)
            assert_ok(program_read(side.program, result, values, count * sizeof *values, &error), &error);
        assert_ok(program_read(side.program, graph_find(graph, "loss"), &losses[step], sizeof(float), &error),
                  &error);
    }
    side_end(&side);
    *count_ret = count;
    return values;
}

/* Compares a network in 16 bits with f32: its result for a batch, within `roundings` epsilons of its size,
 * and the loss of training at that rate, which must fall by as much. The rate is one at which the loss falls
 * in each step: where it bounces, roundings decide where it ends. */
static void compare_network(const char *name, int64_t batch, int64_t size, int64_t channels, float rate,
                            double roundings)
{
    float losses[2][TRAINING_STEPS];
    size_t count;
    Graph *reference = mixed_model(name, batch, size, channels, DATA_F32);
    float *theirs = train_on_one_batch(backends[CPU], reference, rate, losses[1], &count);
    for (int t = 0; t < NARROW_TYPES; t++) {
        char label[64];
        Graph *graph = mixed_model(name, batch, size, channels, narrow_types[t]);
        float *ours = train_on_one_batch(backends[CUDA], graph, rate, losses[0], &count);
        (void)snprintf(label, sizeof label, "%s, %s", name, data_type_name(narrow_types[t]));
        comparison.tolerance = roundings * epsilon_of(narrow_types[t]);
        compare_values(&comparison, label, ours, theirs, count);
        comparison.tolerance = 0;
        const float start = losses[1][0], end = losses[1][TRAINING_STEPS - 1],
                    ours_end = losses[0][TRAINING_STEPS - 1];
        print_message("%s: loss %g to %g, in f32 %g to %g\n", label, (double)losses[0][0], (double)ours_end,
                      (double)start, (double)end);
        assert_true(end < start);
        assert_true(fabsf(ours_end - end) < 0.1F * (start - end));
        free(ours);
        graph_free(&graph);
    }
    free(theirs);
    graph_free(&reference);
}

CUDA_TEST(test_networks_train_in_narrow_types_as_in_f32)
{
    compare_network("conv8", 16, 28, 1, 0.05F, 4);
    compare_network("toynet", 16, 28, 3, 0.05F, 8);
    compare_network("resnet9", 16, 32, 3, 0.05F, 8);
    compare_network("resnet18", 8, 40, 3, 0.05F, 16);
    compare_network("pyramidnet", 8, 32, 3, 0.05F, 16);
    compare_network("nafnet", 2, 32, 3, 0.05F, 2);
    compare_network("unet", 2, 32, 3, 0.05F, 4);
    compare_network("vit_tiny_patch8", 4, 40, 3, 0.005F, 16);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
