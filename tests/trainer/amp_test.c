/* Mixed precision on the CPU: every layer and a network in bf16 against themselves in f32, and what a machine
 * cannot do is said. */
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

/* Skips the test on a processor that oneDNN does not compute in bf16 on, or that is told to be one: there is
 * nothing to compare. */
static void need_bf16(void)
{
    if (dnn_check_type(DATA_BF16, NULL))
        skip();
}

/* ---- layers ---- */

typedef struct Layer {
    const char *name;
    int64_t shape[4]; /* of x; 0 behind its last axis */
    TensorId (*make)(Graph *graph, const struct Layer *layer, TensorId x, TensorId other);
    Conv2d conv;
    Pool2d pool;
    bool has_other;            /* a second input, shaped like x */
    double gradient_tolerance; /* 0: the usual one */
} Layer;

static int rank_of(const Layer *layer)
{
    int rank = 0;
    while (rank < 4 && layer->shape[rank] > 0)
        rank++;
    return rank;
}

static TensorId make_conv2d(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_conv2d(graph, "layer", x, &layer->conv);
}

static TensorId make_conv2d_relu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)other;
    return graph_leaky_relu(graph, graph_conv2d(graph, "layer", x, &layer->conv), 0.5F);
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

static TensorId make_gelu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_gelu(graph, x);
}

static TensorId make_silu(Graph *graph, const Layer *layer, TensorId x, TensorId other)
{
    (void)layer;
    (void)other;
    return graph_silu(graph, x);
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
     {4, 9, 7, 32},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 3x3/2 bias",
     {4, 10, 8, 64},
     make_conv2d,
     .conv = {.channels = 48, .kernel = 3, .stride = 2, .padding = 1, .bias = true}},
    {"conv2d 7x7/2 of an image",
     {2, 20, 22, 3},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 7, .stride = 2, .padding = 3}},
    {"conv2d 3x3 of an image",
     {2, 16, 16, 3},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 1x1", {3, 5, 6, 40}, make_conv2d, .conv = {.channels = 24, .kernel = 1, .stride = 1}},
    {"conv2d 1x1/2", {3, 8, 8, 64}, make_conv2d, .conv = {.channels = 128, .kernel = 1, .stride = 2}},
    {"conv2d 3x3 to an image",
     {2, 9, 9, 16},
     make_conv2d,
     .conv = {.channels = 3, .kernel = 3, .stride = 1, .padding = 1, .bias = true}},
    {"conv2d 3x3 of small images",
     {16, 2, 2, 128},
     make_conv2d,
     .conv = {.channels = 96, .kernel = 3, .stride = 1, .padding = 1}},
    {"conv2d 3x3/2 of small images",
     {16, 4, 4, 64},
     make_conv2d,
     .conv = {.channels = 128, .kernel = 3, .stride = 2, .padding = 1}},
    {"conv2d 5x5/3 bias of small images",
     {6, 10, 10, 64},
     make_conv2d,
     .conv = {.channels = 72, .kernel = 5, .stride = 3, .padding = 2, .bias = true}},
    {"conv2d 2x2 of small images",
     {4, 5, 6, 64},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 2, .stride = 1}},
    {"conv2d 3x3/2 of odd images",
     {32, 7, 7, 64},
     make_conv2d,
     .conv = {.channels = 64, .kernel = 3, .stride = 2, .padding = 1}},
    {"conv2d 3x3 depthwise",
     {2, 9, 8, 32},
     make_conv2d,
     .conv = {.channels = 32, .kernel = 3, .stride = 1, .padding = 1, .groups = 32, .bias = true}},
    {"conv2d 2x2/2",
     {2, 8, 8, 16},
     make_conv2d,
     .conv = {.channels = 32, .kernel = 2, .stride = 2, .bias = true}},
    {"conv2d 3x3 bias, leaky ReLU",
     {4, 9, 7, 32},
     make_conv2d_relu,
     .conv = {.channels = 40, .kernel = 3, .stride = 1, .padding = 1, .bias = true}},
    {"conv2d 3x3 bias of small images, leaky ReLU",
     {16, 4, 4, 64},
     make_conv2d_relu,
     .conv = {.channels = 72, .kernel = 3, .stride = 1, .padding = 1, .bias = true}},
    {"conv2d 5x5 depthwise, leaky ReLU",
     {2, 9, 8, 24},
     make_conv2d_relu,
     .conv = {.channels = 24, .kernel = 5, .stride = 1, .padding = 2, .groups = 24, .bias = true}},
    {"linear", {32, 100}, make_linear, .conv = {.channels = 10, .bias = true}},
    {"linear without bias", {5, 64}, make_linear, .conv = {.channels = 33}},
    {"linear of one row", {1, 24}, make_linear, .conv = {.channels = 12, .bias = true}},
    {"linear 1x1", {3, 24}, make_linear_1x1, .conv = {.channels = 12, .bias = true}},
    {"batch norm", {4, 5, 7, 24}, .make = make_batch_norm},
    {"batch norm of few channels", {3, 5, 7, 3}, .make = make_batch_norm},
    {"batch norm, ReLU", {4, 5, 6, 64}, .make = make_batch_norm_relu},
    {"batch norm, add, ReLU", {4, 6, 6, 80}, make_batch_norm_add_relu, .has_other = true},
    {"leaky ReLU", {2, 3, 5, 7}, .make = make_relu},
    {"GELU", {2, 3, 5, 7}, .make = make_gelu},
    {"SiLU", {2, 3, 5, 7}, .make = make_silu},
    {"add", {2, 3, 5, 7}, make_add, .has_other = true},
    /* Pixels that rounding makes equal send the gradient to the first of them. */
    {"max pool 3x3/2", {2, 9, 7, 70}, make_max_pool, .pool = {3, 2, 1}, .gradient_tolerance = 0.2},
    {"avg pool 2x2/2", {2, 8, 6, 70}, make_avg_pool, .pool = {2, 2, 0}},
    {"global avg pool", {3, 7, 5, 20}, .make = make_global_avg_pool},
    {"reflection pad", {2, 5, 6, 9}, make_reflection_pad, .pool = {.padding = 3}},
    {"flatten", {2, 3, 4, 5}, .make = make_flatten},
    {"scale", {2, 3, 4, 5}, .make = make_scale},
    {"pad, crop, concat", {2, 3, 4, 5}, make_pad_crop_concat, .has_other = true},
    {"pixel shuffle", {2, 3, 4, 8}, .make = make_pixel_shuffle},
    {"channel scale", {2, 5, 4, 24}, make_channel_scale, .has_other = true},
    {"channel multiply", {2, 5, 4, 24}, make_channel_multiply, .has_other = true},
    {"gate", {2, 3, 4, 10}, .make = make_gate},
    {"layer norm", {2, 5, 4, 40}, .make = make_layer_norm},
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
    const TensorId x = input_with_gradient(graph, "x", rank_of(layer), layer->shape);
    const TensorId other =
        layer->has_other ? input_with_gradient(graph, "other", rank_of(layer), layer->shape) : TENSOR_NONE;
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

TEST(test_layers_in_bf16_agree_with_f32)
{
    need_bf16();
    Backend *backend = test_backend(2);
    int wrong = 0;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        wrong += !layer_agrees(backend, &layers[i]);
    backend_close(&backend);
    assert_int_equal(wrong, 0);
}

/* ---- a network ---- */

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

static LayerRun start_network(Backend *backend, const char *model, int64_t batch, int64_t size, DataType type)
{
    LayerRun run = {.graph = network_graph(model, batch, size, type, 1e-4)};
    FshError error = {0};
    test_check(state_new(&run.state, backend, run.graph, &error), &error);
    test_check(state_initialize(run.state, 1, &error), &error);
    test_check(program_new(&run.program, run.state, run.graph, &error), &error);
    test_write_batch(run.program);
    write_rate(run.program, 0.01F);
    test_check(program_poison(run.program, &error), &error);
    return run;
}

/* Twenty layers forward and back, each of which rounds: gradients of the first ones differ much from f32's.
 * So do those of PyTorch 1.13 under autocast(dtype=bfloat16), on a batch like this: logits 0.040, fc 0.040,
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
    LayerRun reference = start_network(backend, "resnet18", 16, 64, DATA_F32);
    LayerRun run = start_network(backend, "resnet18", 16, 64, DATA_BF16);
    int wrong = 0;
    test_run(reference.program);
    test_run(run.program);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const double error = difference(&run, &reference, tensors[i].name);
        print_message("  %-32s %.1e\n", tensors[i].name, error);
        wrong += !(error < tensors[i].tolerance);
    }
    layer_run_free(&run);
    layer_run_free(&reference);
    backend_close(&backend);
    assert_int_equal(wrong, 0);
}

static uint64_t arena_of(const LayerRun *run)
{
    MemoryUse use = {{0}};
    program_memory(run->program, &use);
    return use.bytes[MEMORY_ACTIVATIONS];
}

TEST(test_bf16_activations_take_half_the_memory)
{
    need_bf16();
    Backend *backend = test_backend(2);
    LayerRun wide = start_network(backend, "resnet18", 16, 64, DATA_F32);
    LayerRun narrow = start_network(backend, "resnet18", 16, 64, DATA_BF16);
    const double share = (double)arena_of(&narrow) / (double)arena_of(&wide);
    print_message("  bf16 takes %.2f of the activations' bytes\n", share);
    /* Half, but for the pools' indices, which are bytes in both. */
    assert_true(share > 0.5 && share < 0.56);
    layer_run_free(&narrow);
    layer_run_free(&wide);
    backend_close(&backend);
}

/* Images of class k are darker and lighter in their k-th stripe, under noise. */
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

/* The mean loss of the last steps of a short training. */
static double learn(Backend *backend, DataType type)
{
    enum { STEPS = 60, LAST = 10 };
    LayerRun run = start_network(backend, "conv8", 32, 20, type);
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
    layer_run_free(&run);
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
        LayerRun run = start_network(backend, "resnet18", 16, 64, DATA_BF16);
        test_run(run.program);
        test_run(run.program);
        float *weights = test_read(run.program, "layer4.0.conv1.weight", &count);
        if (first)
            assert_memory_equal(first, weights, count * sizeof *weights);
        free(first);
        first = weights;
        layer_run_free(&run);
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
