/* Three training steps of each network, from the same weights on the same batch, against PyTorch in
 * float64 (golden/golden_networks.py): losses, results and gradients of the first, all of the state after
 * the last. Prints the worst relative error of each; more than golden_tolerance fails.
 * `network_parity_test NAME` runs one. FSHARD_GOLDEN_DEVICE=cuda: on a GPU, left out where there is none.
 * A maximum of a pool, or a sign before a ReLU, that a rounding turns over is told apart by its size, some
 * 1e-3 of a momentum; golden_networks.py says how the batches of pyramidnet, airbench96 and resnet50d were
 * chosen to have none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden_program.h"
#include "tests/trainer/model_value.h"
#include "trainer/graph/graph_internal.h"
#include "trainer/models/models.h"

static ModelSpec spec_of(const json_t *document)
{
    const json_t *options = json_object_get(document, "options");
    int64_t shape[4];
    golden_shape(json_object_get(document, "image"), shape);
    ModelSpec spec = {.batch = shape[0],
                      .height = shape[1],
                      .width = shape[2],
                      .channels = shape[3],
                      .classes = json_integer_value(json_object_get(document, "classes")),
                      .training = true};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)options, name, value)
    {
        ModelValue *own = model_value(&spec.options, strcmp(name, "base_channels") == 0 ? "width" : name);
        assert_non_null(own);
        if (json_is_string(value))
            own->text = json_string_value(value);
        else if (json_is_real(value))
            own->real = json_real_value(value);
        else
            own->integer = json_integer_value(value);
    }
    return spec;
}

static Optimizer optimizer_of(const json_t *document)
{
    return (Optimizer){.kind = OPTIMIZER_SGD,
                       .momentum = golden_real(document, "momentum"),
                       .weight_decay = golden_real(document, "weight_decay"),
                       .nesterov = true};
}

static Graph *classification_graph(const json_t *document, const Backend *backend)
{
    const json_t *mean = json_object_get(document, "mean"),
                 *deviation = json_object_get(document, "deviation");
    const ModelSpec spec = spec_of(document);
    ModelRecipe recipe = {.label_smoothing = (float)golden_real(document, "smoothing"),
                          .optimizer = optimizer_of(document),
                          .fusions = backend_fusions(backend)};
    FshError error = {0};
    Graph *graph = NULL;
    for (size_t c = 0; c < json_array_size(mean); c++) {
        recipe.mean[c] = json_number_value(json_array_get(mean, c));
        recipe.deviation[c] = json_number_value(json_array_get(deviation, c));
    }
    const char *name = golden_text(document, "model");
    golden_check(model_graph(model_find(name), &spec, &recipe, &graph, &error), name, &error);
    return graph;
}

/* Returns the network and its gradient of factor / 2 * ||restored - target||^2; the squares are added up
 * outside. */
static Graph *restoration_graph(const json_t *document, const Backend *backend)
{
    static const double zeros[3] = {0}, ones[3] = {1, 1, 1};
    const ModelSpec spec = spec_of(document);
    const int64_t shape[4] = {spec.batch, spec.height, spec.width, spec.channels};
    const char *name = golden_text(document, "model");
    FshError error = {0};
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId x = graph_normalize(graph, graph_input(graph, "image", DATA_U8, 4, shape), zeros, ones);
    TensorId y = model_find(name)->build(graph, x, &spec);
    graph_keep(graph, y, "restored");
    graph_fuse(graph, backend_fusions(backend));
    const size_t forward_count = graph_node_count(graph);
    TensorId target = graph_input(graph, "target", DATA_F32, 4, shape);
    TensorId difference = graph_add(graph, y, graph_scale(graph, target, -1));
    graph_keep(graph, difference, "difference");
    graph_contribute_gradient(graph, y,
                              graph_scale(graph, difference, (float)golden_real(document, "factor")));
    graph_append_backward_pass(graph, forward_count);
    Optimizer optimizer = optimizer_of(document);
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_update(graph, &optimizer);
    golden_check(graph_check(graph, &error), name, &error);
    return graph;
}

static double loss_of(Program *program, const json_t *document)
{
    FshError error = {0};
    if (!json_object_get(document, "target")) {
        float loss = 0;
        const TensorId id = graph_find(program->graph, "loss");
        golden_check(program_read(program, id, &loss, sizeof loss, &error), "loss", &error);
        return (double)loss;
    }
    const size_t count = golden_count(json_object_get(document, "target"));
    float *difference = malloc(count * sizeof *difference);
    double sum = 0;
    assert_non_null(difference);
    golden_check(program_read(program, graph_find(program->graph, "difference"), difference,
                              count * sizeof *difference, &error),
                 "difference", &error);
    for (size_t i = 0; i < count; i++)
        sum += (double)difference[i] * (double)difference[i];
    free(difference);
    return golden_real(document, "factor") / 2 * sum;
}

static void write_batch(State *state, Program *program, const json_t *document)
{
    const float rate = (float)golden_real(document, "rate");
    golden_write_bytes(program, json_object_get(document, "image"));
    if (json_object_get(document, "labels")) {
        golden_write_labels(program, "label", json_object_get(document, "labels"));
    } else {
        json_t *targets = json_pack("[O]", json_object_get(document, "target"));
        golden_write_generated(state, program, targets);
        json_decref(targets);
    }
    golden_write_input(program, "learning_rate", &rate, sizeof rate);
}

/* Asserts that every parameter and buffer of the network is in the golden file. */
static void assert_all_are_given(const Graph *graph, json_t *inputs)
{
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (tensor_is_weight(tensor) && !golden_find(inputs, tensor->name))
            fail_msg("%s is no tensor of PyTorch's network", tensor->name);
    }
}

/* Compares the steps of the golden file NAME.json with PyTorch's; *test_state is NAME. */
static void steps_agree_with_pytorch(void **test_state)
{
    const char *name = *test_state;
    char file[64];
    (void)snprintf(file, sizeof file, "%s.json", name);
    json_t *document = golden_load(file);
    const json_t *losses = json_object_get(document, "losses");
    FshError error = {0};
    Backend *backend = golden_backend();
    State *state = NULL;
    Program *program = NULL;
    double of_first = 0, of_loss = 0;
    Graph *graph = json_object_get(document, "labels") ? classification_graph(document, backend)
                                                       : restoration_graph(document, backend);
    golden_check(state_new(&state, backend, graph, &error), name, &error);
    golden_check(program_new(&program, state, graph, &error), name, &error);
    golden_check(state_initialize(state, 1, &error), name, &error); /* momentum: zero */
    assert_all_are_given(graph, json_object_get(document, "inputs"));
    golden_write_generated(state, program, json_object_get(document, "inputs"));
    write_batch(state, program, document);
    for (size_t step = 0; step < json_array_size(losses); step++) {
        golden_check(program_poison(program, &error), name, &error);
        golden_check(program_run(program, &error), name, &error);
        const double wanted = json_number_value(json_array_get(losses, step));
        of_loss = fmax(of_loss, fabs(loss_of(program, document) - wanted) / wanted);
        if (step == 0)
            of_first = golden_compare(state, program, json_object_get(document, "first"), name);
    }
    const double of_last = golden_compare(state, program, json_object_get(document, "after"), name);
    print_message(
        "  %s: losses of 3 steps %.1e; results and gradients %.1e; weights, momentum, running statistics "
        "after 3 steps %.1e\n",
        name, of_loss, of_first, of_last);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    backend_close(&backend);
    json_decref(document);
    const double tolerance = golden_tolerance();
    assert_true(of_loss < tolerance && of_first < tolerance && of_last < tolerance);
}

int test_program_begin(void)
{
    static char names[][32] = {"conv8",
                               "toynet",
                               "resnet9",
                               "resnet18",
                               "resnet34",
                               "resnet50",
                               "resnet101",
                               "pyramidnet",
                               "unet",
                               "nafnet",
                               "pyramidnet-38-47",
                               "convnext_atto",
                               "convnextv2_atto",
                               "vit_tiny_patch16",
                               "vit_small_patch8",
                               "deit_tiny_patch16",
                               "simplevit_tiny_patch16",
                               "resnet18d",
                               "resnet50d",
                               "resnet50-blur",
                               "resnet50-blur-convs",
                               "resnet18-blur-convs",
                               "seresnet50",
                               "resnext50_32x4d",
                               "resnet18-options",
                               "xresnet18",
                               "xse_resnext50",
                               "xresnet18-self-attention",
                               "xse_resnext50-self-attention",
                               "airbench94",
                               "airbench96"};
    enum { COUNT = sizeof names / sizeof *names };
    static TestRecord records[COUNT];
    FshError error = {0};
    Backend *backend = NULL;
    if (backend_open(&backend, golden_device(), &(BackendOptions){0}, &error) == FSH_ERR_UNSUPPORTED) {
        print_message("left out: %s\n", error.message);
        return TEST_SKIP_ALL;
    }
    backend_close(&backend);
    for (int i = 0; i < COUNT; i++) {
        records[i] = (TestRecord){
            {names[i], steps_agree_with_pytorch, NULL, NULL, names[i]}, __FILE__, __LINE__, NULL};
        test_register(&records[i]);
    }
    return TEST_RUN;
}
