/* The CUDA backend against the CPU backend, on a few layers that train, on whole networks, and on its own
 * promises: the same bits in every run, whatever shares memory. Usage: cuda_support.h. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/trainer/cuda_support.h"
#include "tests/trainer/model_value.h"

/* ---- layers that train, in f32 ---- */

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

/* Appends what graph_fuse puts together: norm -> leaky ReLU, norm -> add -> ReLU, norm -> ReLU. */
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

/* Appends max pools, the first after a ReLU, so that its windows are full of equal maxima. */
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

static TensorId relus(Graph *graph, TensorId x)
{
    x = graph_relu(graph, conv(graph, "in", x, 13, 3, 1, 1, true));
    x = graph_conv2d(
        graph, "depthwise", x,
        &(Conv2d){.channels = 13, .kernel = 3, .stride = 1, .padding = 1, .bias = true, .groups = 13});
    x = graph_leaky_relu(graph, x, 0.2F);
    return graph_leaky_relu(graph, conv(graph, "out", x, 16, 1, 2, 0, true), 0.1F);
}

static TensorId grouped(Graph *graph, const char *name, TensorId x, int64_t channels, int64_t groups,
                        int64_t kernel, int64_t stride)
{
    return graph_conv2d(graph, name, x,
                        &(Conv2d){.channels = channels,
                                  .kernel = kernel,
                                  .stride = stride,
                                  .padding = kernel / 2,
                                  .bias = groups % 2 == 0,
                                  .groups = groups});
}

static TensorId depthwise(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 12, 3, 1, 1, false);
    x = grouped(graph, "three", x, 12, 12, 3, 1);
    x = grouped(graph, "five", x, 12, 12, 5, 1);
    x = conv(graph, "between", x, 7, 1, 1, 0, false);
    x = grouped(graph, "odd", x, 7, 7, 3, 2);
    return grouped(graph, "seven", x, 7, 7, 7, 1);
}

static TensorId groups(Graph *graph, TensorId x)
{
    x = conv(graph, "in", x, 12, 3, 1, 1, false);
    x = grouped(graph, "four", x, 8, 4, 3, 1);
    return grouped(graph, "two", x, 6, 2, 3, 2);
}

CUDA_TEST(test_convolutions_agree)
{
    compare_layers(convolutions, "convolutions", false);
}

CUDA_TEST(test_batch_norms_agree)
{
    compare_layers(norms, "norms", false);
}

CUDA_TEST(test_batch_norms_with_running_statistics_agree)
{
    compare_layers(frozen_norms, "frozen norms", false);
    compare_layers(frozen_norms, "frozen norms, fused", true);
}

CUDA_TEST(test_fused_batch_norms_agree)
{
    compare_layers(fused_norms, "fused norms", true);
}

CUDA_TEST(test_activations_and_sums_agree)
{
    compare_layers(activations, "activations", false);
}

CUDA_TEST(test_max_pools_agree)
{
    compare_layers(max_pools, "max pools", false);
}

CUDA_TEST(test_average_pools_agree)
{
    compare_layers(avg_pools, "average pools", false);
}

CUDA_TEST(test_reflection_pads_agree)
{
    compare_layers(pads, "pads", false);
}

CUDA_TEST(test_convolutions_with_relus_agree_in_f32)
{
    compare_layers(relus, "convolutions with ReLUs, fused", true);
}

CUDA_TEST(test_convolutions_in_groups_agree_in_f32)
{
    compare_layers(depthwise, "depthwise", false);
    compare_layers(groups, "groups", false);
}

/* ---- whole networks ---- */

/* resnet18 one step: in three of them, some of a million ReLUs nearly always lie within rounding. */
CUDA_TEST(test_networks_train_alike)
{
    compare_graph(&comparison, backends[CUDA], model("conv8", 16, 28, 1, true), "conv8", 3);
    compare_graph(&comparison, backends[CUDA], model("resnet18", 4, 40, 3, true), "resnet18", 1);
    compare_graph(&comparison, backends[CUDA], model("vit_tiny_patch8", 3, 40, 3, true), "vit_tiny_patch8",
                  2);
    compare_graph(&comparison, backends[CUDA], model("simplevit_tiny_patch16", 3, 64, 3, true),
                  "simplevit_tiny_patch16", 2);
}

/* Compares a network of which a part is frozen. */
static void compare_part(const char *name, const char *freeze, bool head_only)
{
    FshError error = {0};
    Graph *graph = NULL;
    const ModelSpec spec = {
        .batch = 4, .height = 40, .width = 40, .channels = 3, .classes = 10, .training = true};
    const ModelRecipe recipe = {.deviation = {1, 1, 1},
                                .rules = {.freeze = freeze, .head_only = head_only, .rates = "*.bias=2"},
                                .optimizer = {.momentum = 0.9, .weight_decay = 0.01, .ema_decay = 0.9}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    compare_graph(&comparison, backends[CUDA], graph, name, 1);
}

CUDA_TEST(test_parts_of_networks_train_alike)
{
    compare_part("resnet18", NULL, true);
    compare_part("resnet18", "conv1,bn1,layer1", false);
    compare_part("resnet18", "*.weight", false);
    compare_part("resnet18", "*.bias,layer2", false);
    compare_part("convnext_atto", "stem,stages.0.blocks.0.conv_dw,*.norm.weight,*.gamma,*.fc1.weight", false);
    compare_part("convnextv2_atto", "stem.0,stem.1.bias,stages.0.blocks.0.mlp.grn.weight", false);
    compare_part("seresnet50", "layer*.conv1,*.fc1,*.bn2.bias", false);
}

CUDA_TEST(test_timed_convolutions_train_alike)
{
    compare_graph(&comparison, backends[CUDA_TIMED], model("conv8", 16, 28, 1, true), "conv8, timed", 3);
    compare_graph(&comparison, backends[CUDA_TIMED], model("resnet18", 4, 40, 3, true), "resnet18, timed", 1);
}

CUDA_TEST(test_networks_evaluate_alike)
{
    compare_graph(&comparison, backends[CUDA], model("conv8", 5, 28, 1, false), "conv8", 1);
    compare_graph(&comparison, backends[CUDA], model("resnet18", 3, 48, 3, false), "resnet18", 1);
}

/* Compares a small restoration network on sizes that it pads. The network begins as the identity, so all
 * gradients are nonzero only after two steps. */
static void compare_restoration(const char *name, int64_t batch, int64_t height, int64_t width,
                                uint64_t steps)
{
    FshError error = {0};
    Graph *graph = NULL;
    const bool has_blocks = strcmp(name, "nafnet") == 0;
    ModelSpec spec = {.batch = batch, .height = height, .width = width, .channels = 3, .training = true};
    model_value(&spec.options, "width")->integer = 8;
    model_value(&spec.options, "encoder-blocks")->text = has_blocks ? "1,2" : NULL;
    model_value(&spec.options, "middle-blocks")->text = has_blocks ? "1" : NULL;
    model_value(&spec.options, "decoder-blocks")->text = has_blocks ? "1,1" : NULL;
    const ModelRecipe recipe = {
        .deviation = {1, 1, 1}, .loss = LOSS_CHARBONNIER, .optimizer = {.momentum = 0.9}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    compare_graph(&comparison, backends[CUDA], graph, name, steps);
}

CUDA_TEST(test_unet_trains_alike)
{
    compare_restoration("unet", 2, 26, 37, 2);
}

CUDA_TEST(test_nafnet_trains_alike)
{
    compare_restoration("nafnet", 2, 26, 37, 3);
    compare_restoration("nafnet", 1, 16, 16, 2);
}

/* The evaluation graph reads what the training graph's program wrote. */
CUDA_TEST(test_training_and_evaluation_share_a_state)
{
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

CUDA_TEST(test_state_speaks_the_logical_layout)
{
    FshError error = {0};
    Graph *graph = network(convolutions, 2, 8, 8, 3, false, false, &plain_sgd);
    Side side;
    side_start(&side, backends[CUDA], graph, &comparison);
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (!state_holds(tensor->role))
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

/* A copy is read on another thread, as a checkpoint is written, while steps run. */
typedef struct Reading {
    State *state;
    const Graph *graph;
    float *values; /* of all tensors of the State, one after the other */
    FshError error;
} Reading;

static void *read_all(void *context)
{
    Reading *reading = context;
    size_t used = 0;
    for (size_t t = 0; t < graph_tensor_count(reading->graph); t++) {
        const Tensor *tensor = graph_tensor(reading->graph, (TensorId)t);
        if (!state_holds(tensor->role))
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        if (state_read(reading->state, tensor->name, reading->values + used, count, &reading->error))
            break;
        used += count;
    }
    return NULL;
}

CUDA_TEST(test_a_copy_keeps_what_the_state_held)
{
    FshError error = {0};
    Graph *graph = model("resnet18", 8, 64, 3, true);
    Side side;
    side_start(&side, backends[CUDA], graph, &comparison);
    side_write_inputs(&side, graph, 0, &comparison);
    size_t count = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        count += state_holds(graph_tensor(graph, (TensorId)t)->role)
                     ? (size_t)tensor_count(graph_tensor(graph, (TensorId)t))
                     : 0;
    Reading live = {side.state, graph, calloc(count + 1, sizeof(float)), {0}}, copied = live;
    copied.values = calloc(count + 1, sizeof(float));
    for (int i = 0; i < 3; i++)
        assert_ok(program_run(side.program, &error), &error);
    assert_ok(state_copy_new(&copied.state, side.state, &error), &error);
    assert_ok(state_copy_take(copied.state, side.state, &error), &error);
    (void)read_all(&live);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_all, &copied), 0);
    for (int i = 0; i < 20; i++)
        assert_ok(program_run(side.program, &error), &error);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(live.error.status, FSH_OK);
    assert_int_equal(copied.error.status, FSH_OK);
    assert_memory_equal(live.values, copied.values, count * sizeof(float));
    (void)read_all(&live);
    assert_memory_not_equal(live.values, copied.values, count * sizeof(float));
    free(live.values);
    free(copied.values);
    state_free(&copied.state);
    side_end(&side);
    graph_free(&graph);
}

/* Of these a program that is not profiled makes some in one lane and some in two (recorded_steps.h). */
enum { TRAINED_STEPS = 10 };

/* Returns the parameters of a network after TRAINED_STEPS, *count_ret values one after the other; the caller
 * frees them. */
static float *trained(const char *name, size_t *count_ret, bool profile, bool keep)
{
    FshError error = {0};
    Graph *graph = model(name, 8, 64, 3, true);
    if (keep)
        graph_keep_everything(graph);
    Side side;
    float *values = malloc((size_t)graph_parameter_count(graph) * sizeof *values);
    size_t used = 0;
    side_start(&side, backends[CUDA], graph, &comparison);
    if (profile)
        assert_ok(program_profile(side.program, true, NULL, 0, &error), &error);
    for (uint64_t step = 0; step < TRAINED_STEPS; step++) {
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

static void assert_same_bits(const char *name, bool profile, bool keep)
{
    size_t counts[2];
    float *first = trained(name, &counts[0], false, false),
          *second = trained(name, &counts[1], profile, keep);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++) /* NaN everywhere would be the same bits too */
        assert_true(isfinite(first[i]));
    assert_memory_equal(first, second, counts[0] * sizeof *first);
    free(first);
    free(second);
}

CUDA_TEST(test_two_runs_give_the_same_bits)
{
    assert_same_bits("resnet18", false, false);
}

/* Measured steps run one after the other, in one lane. */
CUDA_TEST(test_measured_steps_give_the_same_bits)
{
    assert_same_bits("resnet18", true, false);
    assert_same_bits("convnext_atto", true, false);
    assert_same_bits("vit_tiny_patch16", true, false);
}

/* Tensors that share bytes, or are written in place, against tensors that all have their own. */
CUDA_TEST(test_sharing_memory_changes_no_bit)
{
    assert_same_bits("resnet18", false, true);
}

/* ---- errors ---- */

CUDA_TEST(test_a_network_that_does_not_fit_is_told)
{
    const int64_t edge = INT64_C(1) << 20; /* 4 TiB of weights */
    FshError error = {0};
    State *state = NULL;
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, edge});
    graph_keep(graph, graph_linear(graph, "linear", x, edge, false), "y");
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(state_new(&state, backends[CUDA], graph, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "no memory for 4 TiB of parameters, buffers and optimizer state");
    assert_contains(error.message, "no batch size helps: use a smaller network");
    assert_null(state);
    graph_free(&graph);
}

CUDA_TEST(test_a_batch_that_does_not_fit_is_told)
{
    FshError error = {0};
    Graph *graph = network(convolutions, 8192, 1024, 1024, 1, false, false, &plain_sgd);
    Side side = {NULL, NULL};
    assert_ok(state_new(&side.state, backends[CUDA], graph, &error), &error);
    assert_int_equal(program_new(&side.program, side.state, graph, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "no memory for");
    assert_contains(error.message, "of activations");
    assert_contains(error.message, "use a smaller --batch-size: of 8192 samples, about ");
    /* and the device is still good */
    side_end(&side);
    graph_free(&graph);
    compare_graph(&comparison, backends[CUDA], model("conv8", 4, 28, 1, true), "conv8 after out of memory",
                  1);
}

CUDA_TEST(test_a_state_of_another_network_is_refused)
{
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

CUDA_TEST(test_a_label_out_of_range_is_refused)
{
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

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
