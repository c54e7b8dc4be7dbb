/* What each layer and whole training steps compute, against PyTorch in float64 (golden/make_golden.py). Prints the worst
 * relative error of each; more than TOLERANCE fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "trainer/backend/backend.h"
#include "trainer/graph/graph_internal.h"
#include "trainer/models/models.h"

#define TOLERANCE 1e-4

/* ---- the graph of one layer ---------------------------------------------------------------------------------------- */

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

/* The layer on inputs x (and addend, other or labels), its result kept as "y", the gradients that follow from input "dy"
 * kept as "dx" and "daddend" or "dother". */
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

/* ---- running it ------------------------------------------------------------------------------------------------------ */

static void check(FshStatus status, const char *name, const FshError *error)
{
    if (status)
        fail_msg("%s: %s", name, error->message);
}

static void write_input(Program *program, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    check(program_write(program, graph_find(program->graph, name), values, bytes, &error), name, &error);
}

static void write_labels(Program *program, const char *name, const json_t *labels)
{
    int64_t values[64];
    const size_t count = json_array_size(labels);
    for (size_t i = 0; i < count && i < 64; i++)
        values[i] = json_integer_value(json_array_get(labels, i));
    write_input(program, name, values, count * sizeof *values);
}

/* Every spec goes to the parameter or buffer, else the input, of its name. */
static void write_generated(State *state, Program *program, json_t *specs)
{
    size_t i;
    json_t *spec;
    json_array_foreach(specs, i, spec)
    {
        const size_t count = golden_count(spec);
        const char *name = golden_text(spec, "name");
        float *values = malloc(count * sizeof *values);
        FshError error = {0};
        assert_non_null(values);
        golden_generate(spec, values);
        if (graph_tensor(program->graph, graph_find(program->graph, name))->role == TENSOR_INPUT)
            write_input(program, name, values, count * sizeof *values);
        else
            check(state_write(state, name, values, count, &error), name, &error);
        free(values);
    }
}

/* The worst error of the expected tensors; each that is too large is printed. */
static double compare(State *state, Program *program, json_t *expected, const char *name)
{
    double worst = 0;
    size_t i;
    json_t *summary;
    json_array_foreach(expected, i, summary)
    {
        const size_t count = golden_count(summary);
        const char *tensor_name = golden_text(summary, "name");
        float *values = malloc(count * sizeof *values);
        FshError error = {0};
        assert_non_null(values);
        const TensorId id = graph_find(program->graph, tensor_name);
        if (id == TENSOR_NONE)
            fail_msg("%s: no tensor %s", name, tensor_name);
        const TensorRole role = graph_tensor(program->graph, id)->role;
        if (role == TENSOR_ACTIVATION || role == TENSOR_GRADIENT || role == TENSOR_INPUT)
            check(program_read(program, id, values, count * sizeof *values, &error), tensor_name, &error);
        else
            check(state_read(state, tensor_name, values, count, &error), tensor_name, &error);
        const double relative = golden_error(summary, values, count);
        if (!(relative < TOLERANCE))
            print_error("%s: %s: relative error %.2e\n", name, tensor_name, relative);
        worst = fmax(worst, relative);
        free(values);
    }
    return worst;
}

static void open_backend(Backend **backend)
{
    FshError error = {0};
    check(backend_open(backend, "cpu", &(BackendOptions){.threads = 2}, &error), "cpu", &error);
}

static double layer_error(Backend *backend, json_t *c, bool fuse)
{
    const char *name = golden_text(c, "name");
    FshError error = {0};
    State *state = NULL;
    Program *program = NULL;
    Graph *graph = layer_graph(c, fuse);
    check(state_new(&state, backend, graph, &error), name, &error);
    check(program_new(&program, state, graph, &error), name, &error);
    write_generated(state, program, json_object_get(c, "inputs"));
    if (json_object_get(c, "labels"))
        write_labels(program, "labels", json_object_get(c, "labels"));
    check(program_poison(program, &error), name, &error);
    check(program_run(program, &error), name, &error);
    const double worst = compare(state, program, json_object_get(c, "expected"), name);
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
    open_backend(&backend);
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const double relative = layer_error(backend, c, fuse);
        print_message("  %-62s %.1e\n", golden_text(c, "name"), relative);
        worst = fmax(worst, relative);
    }
    assert_true(i > 80);
    backend_close(&backend);
    json_decref(document);
    if (!(worst < TOLERANCE))
        fail_msg("worst relative error %.2e, allowed %.0e", worst, TOLERANCE);
}

static void test_layers_agree_with_pytorch(void **state)
{
    (void)state;
    layers_agree(false);
}

static void test_fused_layers_agree_with_pytorch(void **state)
{
    (void)state;
    layers_agree(true);
}

/* ---- whole steps ----------------------------------------------------------------------------------------------------- */

static Graph *step_graph(const json_t *document)
{
    const json_t *mean = json_object_get(document, "mean"),
                 *deviation = json_object_get(document, "deviation");
    int64_t shape[4];
    FshError error = {0};
    Graph *graph = NULL;
    golden_shape(json_object_get(document, "image"), shape);
    const ModelSpec spec = {.batch = shape[0],
                            .height = shape[1],
                            .width = shape[2],
                            .channels = shape[3],
                            .classes = golden_integer(document, "classes"),
                            .training = true};
    ModelRecipe recipe = {.label_smoothing = (float)golden_real(document, "smoothing"),
                          .optimizer = {.momentum = golden_real(document, "momentum"),
                                        .weight_decay = golden_real(document, "weight_decay"),
                                        .nesterov = true}};
    for (size_t c = 0; c < json_array_size(mean); c++) {
        recipe.mean[c] = json_number_value(json_array_get(mean, c));
        recipe.deviation[c] = json_number_value(json_array_get(deviation, c));
    }
    const char *name = golden_text(document, "model");
    check(model_graph(model_find(name), &spec, &recipe, &graph, &error), name, &error);
    return graph;
}

static void step_agrees(const char *file)
{
    json_t *document = golden_load(file);
    const json_t *losses = json_object_get(document, "losses"), *image = json_object_get(document, "image");
    const char *name = golden_text(document, "model");
    const float rate = (float)golden_real(document, "rate");
    FshError error = {0};
    Backend *backend = NULL;
    State *state = NULL;
    Program *program = NULL;
    double of_first = 0, of_loss = 0;
    open_backend(&backend);
    Graph *graph = step_graph(document);
    check(state_new(&state, backend, graph, &error), name, &error);
    check(program_new(&program, state, graph, &error), name, &error);
    check(state_initialize(state, 1, &error), name, &error); /* momentum: zero */
    write_generated(state, program, json_object_get(document, "inputs"));
    uint8_t *pixels = malloc(golden_count(image));
    assert_non_null(pixels);
    golden_generate_bytes(image, pixels);
    write_input(program, "image", pixels, golden_count(image));
    write_labels(program, "label", json_object_get(document, "labels"));
    write_input(program, "learning_rate", &rate, sizeof rate);
    for (size_t step = 0; step < json_array_size(losses); step++) {
        float loss = 0;
        check(program_poison(program, &error), name, &error);
        check(program_run(program, &error), name, &error);
        check(program_read(program, graph_find(graph, "loss"), &loss, sizeof loss, &error), name, &error);
        const double wanted = json_number_value(json_array_get(losses, step));
        of_loss = fmax(of_loss, fabs((double)loss - wanted) / wanted);
        if (step == 0)
            of_first = compare(state, program, json_object_get(document, "first"), name);
    }
    const double of_last = compare(state, program, json_object_get(document, "after"), name);
    print_message("  %s: losses of 3 steps %.1e; logits and gradients %.1e; weights, momentum, running "
                  "statistics after "
                  "3 steps %.1e\n",
                  name, of_loss, of_first, of_last);
    free(pixels);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    backend_close(&backend);
    json_decref(document);
    assert_true(of_loss < TOLERANCE && of_first < TOLERANCE && of_last < TOLERANCE);
}

static void test_conv8_steps_agree_with_pytorch(void **state)
{
    (void)state;
    step_agrees("conv8.json");
}

static void test_resnet18_steps_agree_with_pytorch(void **state)
{
    (void)state;
    step_agrees("resnet18.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_agree_with_pytorch),
        cmocka_unit_test(test_fused_layers_agree_with_pytorch),
        cmocka_unit_test(test_conv8_steps_agree_with_pytorch),
        cmocka_unit_test(test_resnet18_steps_agree_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
