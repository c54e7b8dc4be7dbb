/* What each layer computes, against PyTorch in float64 (golden/make_golden.py). Prints the worst
 * relative error of each; more than GOLDEN_TOLERANCE fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden_program.h"
#include "trainer/graph/graph_internal.h"

/* ---- the graph of one layer ---- */

static TensorId make_conv2d(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_conv2d(graph, "layer", x,
                        &(Conv2d){.channels = golden_integer(c, "channels"),
                                  .kernel = golden_integer(c, "kernel"),
                                  .stride = golden_integer(c, "stride"),
                                  .padding = golden_integer(c, "padding"),
                                  .bias = golden_integer(c, "bias"),
                                  .groups = json_integer_value(json_object_get(c, "groups"))});
}

static TensorId make_linear(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear(graph, "layer", x, golden_integer(c, "features"), golden_integer(c, "bias"));
}

static TensorId make_batch_norm(Graph *graph, const json_t *c, TensorId x, TensorId addend)
{
    TensorId y = graph_batch_norm(graph, "layer", x, &(BatchNorm){.training = golden_integer(c, "training")});
    if (addend != TENSOR_NONE)
        y = graph_add(graph, y, addend);
    return json_object_get(c, "slope") ? graph_leaky_relu(graph, y, (float)golden_real(c, "slope")) : y;
}

static TensorId make_relu(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_leaky_relu(graph, x, (float)golden_real(c, "slope"));
}

static TensorId make_gelu(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_gelu(graph, x);
}

static TensorId make_silu(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_silu(graph, x);
}

static TensorId make_add_twice(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_add(graph, x, x);
}

static TensorId make_add_thrice(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_add(graph, graph_add(graph, x, graph_relu(graph, x)), x);
}

static Pool2d pool_of(const json_t *c)
{
    return (Pool2d){golden_integer(c, "kernel"), golden_integer(c, "stride"), golden_integer(c, "padding")};
}

static TensorId make_max_pool(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    const Pool2d pool = pool_of(c);
    (void)other;
    return graph_max_pool(graph, x, &pool);
}

static TensorId make_avg_pool(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    const Pool2d pool = pool_of(c);
    (void)other;
    return graph_avg_pool(graph, x, &pool);
}

static TensorId make_global_avg_pool(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_global_avg_pool(graph, x);
}

static TensorId make_reflection_pad(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_reflection_pad(graph, x, golden_integer(c, "padding"));
}

static TensorId make_flatten(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_flatten(graph, x);
}

static TensorId make_linear_1x1(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_linear_1x1(graph, "layer", x, golden_integer(c, "features"), golden_integer(c, "bias"));
}

static TensorId make_zero_pad(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_zero_pad(graph, x, golden_integer(c, "height"), golden_integer(c, "width"),
                          golden_integer(c, "channels"));
}

static TensorId make_crop(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_crop(graph, x, golden_integer(c, "height"), golden_integer(c, "width"));
}

static TensorId make_concat(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    return graph_concat(graph, x, other);
}

static TensorId make_pixel_shuffle(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_pixel_shuffle(graph, x, golden_integer(c, "factor"));
}

static TensorId make_pixel_unshuffle(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_pixel_unshuffle(graph, x, golden_integer(c, "factor"));
}

static TensorId make_scale(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)other;
    return graph_scale(graph, x, (float)golden_real(c, "factor"));
}

static TensorId make_channel_scale(Graph *graph, const json_t *c, TensorId x, TensorId addend)
{
    (void)c;
    /* Scaled, so that the addend's gradient is not dy itself. */
    return graph_channel_scale(graph, "layer", "beta", x,
                               addend == TENSOR_NONE ? addend : graph_scale(graph, addend, 0.5F));
}

static TensorId make_channel_multiply(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    return graph_channel_multiply(graph, x, other);
}

static TensorId make_gate(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_gate(graph, x);
}

static TensorId make_layer_norm(Graph *graph, const json_t *c, TensorId x, TensorId other)
{
    (void)c;
    (void)other;
    return graph_layer_norm(graph, "layer", x, 1e-6);
}

static TensorId make_softmax_cross_entropy(Graph *graph, const json_t *c, TensorId x, TensorId labels)
{
    return graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE,
                                       (float)golden_real(c, "smoothing"));
}

/* other: the addend, the second input, the labels of a loss, or TENSOR_NONE. */
static const struct {
    const char *op;
    TensorId (*make)(Graph *graph, const json_t *c, TensorId x, TensorId other);
} makers[] = {
    {"conv2d", make_conv2d},
    {"linear", make_linear},
    {"batch_norm", make_batch_norm},
    {"relu", make_relu},
    {"gelu", make_gelu},
    {"silu", make_silu},
    {"add_twice", make_add_twice},
    {"add_thrice", make_add_thrice},
    {"max_pool", make_max_pool},
    {"avg_pool", make_avg_pool},
    {"global_avg_pool", make_global_avg_pool},
    {"reflection_pad", make_reflection_pad},
    {"flatten", make_flatten},
    {"linear_1x1", make_linear_1x1},
    {"zero_pad", make_zero_pad},
    {"crop", make_crop},
    {"concat", make_concat},
    {"pixel_shuffle", make_pixel_shuffle},
    {"pixel_unshuffle", make_pixel_unshuffle},
    {"scale", make_scale},
    {"channel_scale", make_channel_scale},
    {"channel_multiply", make_channel_multiply},
    {"gate", make_gate},
    {"layer_norm", make_layer_norm},
    {"softmax_cross_entropy", make_softmax_cross_entropy},
};

/* An f32 input that gets a gradient, as no input of a model does. */
static TensorId input_with_gradient(Graph *graph, const json_t *spec)
{
    int64_t shape[4];
    const int rank = golden_shape(spec, shape);
    TensorId id = graph_input(graph, golden_text(spec, "name"), DATA_F32, rank, shape);
    if (id != TENSOR_NONE)
        graph->tensors[id].needs_gradient = true;
    return id;
}

/* The layer on inputs x (and addend, other or labels), its result kept as "y", the gradients that follow from
 * input "dy" kept as "dx" and "daddend" or "dother". */
static Graph *layer_graph(json_t *c, bool fuse)
{
    Graph *graph = graph_new();
    json_t *inputs = json_object_get(c, "inputs"), *other_spec = golden_find(inputs, "addend");
    const char *other_gradient = other_spec ? "daddend" : "dother";
    const json_t *labels = json_object_get(c, "labels");
    assert_non_null(graph);
    if (!other_spec)
        other_spec = golden_find(inputs, "other");
    TensorId x = input_with_gradient(graph, golden_find(inputs, "x")), other = TENSOR_NONE, y = TENSOR_NONE;
    if (other_spec)
        other = input_with_gradient(graph, other_spec);
    else if (labels)
        other = graph_input(graph, "labels", DATA_I64, 1, (int64_t[]){(int64_t)json_array_size(labels)});
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(makers[i].op, golden_text(c, "op")) == 0)
            y = makers[i].make(graph, c, x, other);
    graph_keep(graph, y, "y");
    if (fuse)
        graph_fuse(graph, FUSE_ALL);
    const size_t forward_count = graph_node_count(graph);
    TensorId dy = input_with_gradient(graph, golden_find(inputs, "dy"));
    graph_contribute_gradient(graph, y, dy);
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    if (other_spec)
        graph_keep(graph, graph_gradient(graph, other), other_gradient);
    FshError error = {0};
    if (graph_check(graph, &error))
        fail_msg("%s: %s", golden_text(c, "name"), error.message);
    return graph;
}

/* ---- running it ---- */

static double layer_error(Backend *backend, json_t *c, bool fuse)
{
    const char *name = golden_text(c, "name");
    FshError error = {0};
    State *state = NULL;
    Program *program = NULL;
    Graph *graph = layer_graph(c, fuse);
    golden_check(state_new(&state, backend, graph, &error), name, &error);
    golden_check(program_new(&program, state, graph, &error), name, &error);
    golden_write_generated(state, program, json_object_get(c, "inputs"));
    if (json_object_get(c, "labels"))
        golden_write_labels(program, "labels", json_object_get(c, "labels"));
    golden_check(program_poison(program, &error), name, &error);
    golden_check(program_run(program, &error), name, &error);
    const double worst = golden_compare(state, program, json_object_get(c, "expected"), name);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    return worst;
}

static void layers_agree(bool fuse)
{
    json_t *document = golden_load("layers.json"), *c;
    Backend *backend = NULL;
    double worst = 0;
    size_t i;
    backend = golden_backend();
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const double relative = layer_error(backend, c, fuse);
        print_message("  %-62s %.1e\n", golden_text(c, "name"), relative);
        worst = fmax(worst, relative);
    }
    assert_true(i > 80);
    backend_close(&backend);
    json_decref(document);
    if (!(worst < GOLDEN_TOLERANCE))
        fail_msg("worst relative error %.2e, allowed %.0e", worst, GOLDEN_TOLERANCE);
}

TEST(test_layers_agree_with_pytorch)
{
    layers_agree(false);
}

TEST(test_fused_layers_agree_with_pytorch)
{
    layers_agree(true);
}
