/* Mixed precision on the CPU: every layer and a network in bf16 against themselves in f32, and what a machine cannot do is said. */
#include "trainer/graph/graph_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "trainer/backend/cpu/onednn.h"

/* bf16 has eight significant bits: what is rounded is wrong by 2^-9 at most, 1.1e-3 in the mean square. */
static const double forward_tolerance = 1e-2, gradient_tolerance = 3e-2;

/* ---- layers ------------------------------------------------------------------------------------------------------------ */

typedef struct Layer {
    const char *name;
    int rank;
    int64_t shape[4];
    TensorId (*make)(Graph *graph, const struct Layer *layer, TensorId x, TensorId other);
    Conv2d conv;
    Pool2d pool;
    bool has_other;            /* a second input, shaped like x */
    double gradient_tolerance; /* 0: the usual one */
} Layer;

static TensorId make_conv2d(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_conv2d(graph, "layer", x, &layer->conv);
}

static TensorId make_linear(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear(graph, "layer", x, layer->conv.channels, layer->conv.bias);
}

static TensorId make_linear_1x1(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear_1x1(graph, "layer", x, layer->conv.channels, layer->conv.bias);
}

static TensorId make_batch_norm(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_batch_norm(graph, "layer", x, &(BatchNorm){.training = true});
}

static TensorId make_batch_norm_relu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_relu(graph, graph_batch_norm(graph, "layer", x, &(BatchNorm){.training = true}));
}

static TensorId make_batch_norm_add_relu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    return graph_relu(
        graph, graph_add(graph, graph_batch_norm(graph, "layer", x, &(BatchNorm){.training = true}), other));
}

static TensorId make_relu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_leaky_relu(graph, x, 0.2F);
}

static TensorId make_add(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    return graph_add(graph, graph_add(graph, x, other), x);
}

static TensorId make_max_pool(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_max_pool(graph, x, &layer->pool);
}

static TensorId make_avg_pool(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_avg_pool(graph, x, &layer->pool);
}

static TensorId make_global_avg_pool(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_global_avg_pool(graph, x);
}

static TensorId make_reflection_pad(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_reflection_pad(graph, x, layer->pool.padding);
}

static TensorId make_flatten(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_flatten(graph, x);
}

static TensorId make_scale(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_scale(graph, x, 0.125F);
}

static TensorId make_pad_crop_concat(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    const int64_t height = layer->shape[1], width = layer->shape[2], channels = layer->shape[3];
    const TensorId padded = graph_zero_pad(graph, x, height + 2, width + 1, channels + 3);
    return graph_concat(graph, graph_crop(graph, padded, height, width), other);
}

static TensorId make_pixel_shuffle(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_pixel_unshuffle(graph, graph_relu(graph, graph_pixel_shuffle(graph, x, 2)), 2);
}

static TensorId make_channel_scale(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    return graph_channel_scale(graph, "layer", "beta", x, other);
}

static TensorId make_channel_multiply(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    return graph_channel_multiply(graph, x, graph_global_avg_pool(graph, other));
}

static TensorId make_gate(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_gate(graph, x);
}

static TensorId make_layer_norm(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_layer_norm(graph, "layer", x, 1e-6);
}

static const Layer layers[] = {
    {"conv2d 3x3",
     4,
     {4, 9, 7, 32},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 3x3/2 bias",
     4,
     {4, 10, 8, 64},
     make_conv2d,
     .conv = {.channels = 48, .kernel = 3, .stride = 2, .padding = 1, .bias = true}},
    {"conv2d 7x7/2 of an image",
     4,
     {2, 20, 22, 3},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 7, .stride = 2, .padding = 3}},
    {"conv2d 3x3 of an image",
     4,
     {2, 16, 16, 3},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 1x1", 4, {3, 5, 6, 40}, make_conv2d, .conv = {.channels = 24, .kernel = 1, .stride = 1}},
    {"conv2d 1x1/2", 4, {3, 8, 8, 64}, make_conv2d, .conv = {.channels = 128, .kernel = 1, .stride = 2}},
    {"conv2d 3x3 to an image",
     4,
     {2, 9, 9, 16},
     make_conv2d,
     .conv = {.channels = 3, .kernel = 3, .stride = 1, .padding = 1, .bias = true}},
    {"conv2d 3x3 of small images",
     4,
     {16, 2, 2, 128},
     make_conv2d,
     .conv = {.channels = 96, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 3x3/2 of small images",
     4,
     {16, 4, 4, 64},
     make_conv2d,
     .conv = {.channels = 128, .kernel = 3, .stride = 2, .padding = 1}},
    {"conv2d 3x3 depthwise",
     4,
     {2, 9, 8, 32},
     make_conv2d,
     .conv = {.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 32, .bias = true}},
    {"conv2d 2x2/2",
     4,
     {2, 8, 8, 16},
     make_conv2d,
     .conv = {.channels = 32, .kernel = 2, .stride = 2, .bias = true}},
    {"linear", 2, {32, 100}, make_linear, .conv = {.channels = 10, .bias = true}},
    {"linear without bias", 2, {5, 64}, make_linear, .conv = {.channels = 33}},
    {"linear of one row", 2, {1, 24}, make_linear, .conv = {.channels = 12, .bias = true}},
    {"linear 1x1", 2, {3, 24}, make_linear_1x1, .conv = {.channels = 12, .bias = true}},
    {"batch norm", 4, {4, 5, 7, 24}, .make = make_batch_norm},
    {"batch norm of few channels", 4, {3, 5, 7, 3}, .make = make_batch_norm},
    {"batch norm, ReLU", 4, {4, 5, 6, 64}, .make = make_batch_norm_relu},
    {"batch norm, add, ReLU", 4, {4, 6, 6, 80}, make_batch_norm_add_relu, .has_other = true},
    {"leaky ReLU", 4, {2, 3, 5, 7}, .make = make_relu},
    {"add", 4, {2, 3, 5, 7}, make_add, .has_other = true},
    /* Pixels that rounding makes equal send the gradient to the first of them. */
    {"max pool 3x3/2", 4, {2, 9, 7, 70}, make_max_pool, .pool = {3, 2, 1}, .gradient_tolerance = 0.2},
    {"avg pool 2x2/2", 4, {2, 8, 6, 70}, make_avg_pool, .pool = {2, 2, 0}},
    {"global avg pool", 4, {3, 7, 5, 20}, .make = make_global_avg_pool},
    {"reflection pad", 4, {2, 5, 6, 9}, make_reflection_pad, .pool = {.padding = 3}},
    {"flatten", 4, {2, 3, 4, 5}, .make = make_flatten},
    {"scale", 4, {2, 3, 4, 5}, .make = make_scale},
    {"pad, crop, concat", 4, {2, 3, 4, 5}, make_pad_crop_concat, .has_other = true},
    {"pixel shuffle", 4, {2, 3, 4, 8}, .make = make_pixel_shuffle},
    {"channel scale", 4, {2, 5, 4, 24}, make_channel_scale, .has_other = true},
    {"channel multiply", 4, {2, 5, 4, 24}, make_channel_multiply, .has_other = true},
    {"gate", 4, {2, 3, 4, 10}, .make = make_gate},
    {"layer norm", 4, {2, 5, 4, 40}, .make = make_layer_norm},
};

static TensorId input_with_gradient(Graph *graph, const char *name, int rank, const int64_t *shape)
{
    const TensorId id = graph_input(graph, name, DATA_F32, rank, shape);
    if (id != TENSOR_NONE)
        graph->tensors[id].needs_gradient = true; /* as no input of a network does */
    return id;
}

/* y, from x and other, and the gradients that follow from dy; all f32 outside, the layer in type. */
static Graph *layer_graph(const Layer *layer, DataType type)
{
    Graph *graph = graph_new();
    FshError error = {0};
    graph_set_compute_type(graph, type);
    const TensorId x = input_with_gradient(graph, "x", layer->rank, layer->shape);
    const TensorId other =
        layer->has_other ? input_with_gradient(graph, "other", layer->rank, layer->shape) : TENSOR_NONE;
    TensorId y = layer->make(graph, layer, graph_cast(graph, x, type),
                             layer->has_other ? graph_cast(graph, other, type) : TENSOR_NONE);
    test_check(graph_check(graph, &error), &error);
    if (graph_tensor(graph, y)->type != type)
        fail_msg("%s: computes in %s, not in %s", layer->name, data_type_name(graph_tensor(graph, y)->type),
                 data_type_name(type));
    y = graph_scale(graph, graph_cast(graph, y, DATA_F32), 1);
    graph_keep(graph, y, "y");
    graph_fuse(graph, FUSE_ALL);
    const size_t forward_count = graph_node_count(graph);
    const Tensor result = *graph_tensor(graph, y);
    graph_contribute_gradient(graph, y, graph_input(graph, "dy", DATA_F32, result.rank, result.shape));
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    if (layer->has_other)
        graph_keep(graph, graph_gradient(graph, other), "dother");
    test_check(graph_check(graph, &error), &error);
    return graph;
}

static void write_normal(Program *program, const char *name, uint64_t seed)
{
    const TensorId id = graph_find(program->graph, name);
    if (id == TENSOR_NONE)
        return;
    const size_t count = (size_t)tensor_count(graph_tensor(program->graph, id));
    float *values = malloc(count * sizeof *values);
    FshError error = {0};
    Random random;
    assert_non_null(values);
    random_start(&random, seed, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(&random) + 0.25F;
    test_check(program_write(program, id, values, count * sizeof *values, &error), &error);
    free(values);
}

/* So that no factor is 0 or 1. */
static void move_parameters(State *state)
{
    FshError error = {0};
    for (size_t i = 0; i < graph_tensor_count(state->graph); i++) {
        const Tensor *tensor = graph_tensor(state->graph, (TensorId)i);
        if (tensor->role != TENSOR_PARAMETER || tensor->initializer.kind == INIT_UNIFORM)
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        float *values = malloc(count * sizeof *values);
        assert_non_null(values);
        for (size_t k = 0; k < count; k++)
            values[k] = 0.7F + 0.1F * (float)(k % 7);
        test_check(state_write(state, tensor->name, values, count, &error), &error);
        free(values);
    }
}

typedef struct LayerRun {
    Graph *graph;
    State *state;
    Program *program;
} LayerRun;

static LayerRun run_layer(Backend *backend, const Layer *layer, DataType type)
{
    LayerRun run = {.graph = layer_graph(layer, type)};
    FshError error = {0};
    test_check(state_new(&run.state, backend, run.graph, &error), &error);
    test_check(state_initialize(run.state, 3, &error), &error);
    move_parameters(run.state);
    test_check(program_new(&run.program, run.state, run.graph, &error), &error);
    write_normal(run.program, "x", 1);
    write_normal(run.program, "other", 2);
    write_normal(run.program, "dy", 3);
    test_check(program_poison(run.program, &error), &error);
    test_run(run.program);
    return run;
}

static void layer_run_free(LayerRun *run)
{
    program_free(&run->program);
    state_free(&run->state);
    graph_free(&run->graph);
}

static double difference(const LayerRun *run, const LayerRun *reference, const char *name)
{
    if (graph_find(run->graph, name) == TENSOR_NONE)
        return 0;
    size_t count;
    float *a = test_read(run->program, name, &count), *b = test_read(reference->program, name, NULL);
    const double error = test_relative_error(a, b, count);
    free(a);
    free(b);
    return error;
}

static bool layer_agrees(Backend *backend, const Layer *layer)
{
    static const char *const gradients[] = {"dx", "dother", "layer.weight.grad", "layer.bias.grad",
                                            "layer.beta.grad"};
    LayerRun reference = run_layer(backend, layer, DATA_F32), run = run_layer(backend, layer, DATA_BF16);
    const double forward = difference(&run, &reference, "y");
    const double allowed = layer->gradient_tolerance > 0 ? layer->gradient_tolerance : gradient_tolerance;
    double backward = 0;
    for (size_t i = 0; i < sizeof gradients / sizeof *gradients; i++)
        backward = fmax(backward, difference(&run, &reference, gradients[i]));
    print_message("  %-32s %.1e %.1e\n", layer->name, forward, backward);
    layer_run_free(&run);
    layer_run_free(&reference);
    return forward < forward_tolerance && backward < allowed;
}

static void test_layers_in_bf16_agree_with_f32(void **state)
{
    Backend *backend = test_backend(2);
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        wrong += !layer_agrees(backend, &layers[i]);
    backend_close(&backend);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_in_bf16_agree_with_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
