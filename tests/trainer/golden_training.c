#include "tests/trainer/golden_training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"

Backend *training_backend(int threads)
{
    Backend *backend = NULL;
    FshError error = {0};
    assert_ok(backend_open(&backend, "cpu", &(BackendOptions){.threads = threads}, &error), &error);
    return backend;
}

void training_write(Program *program, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    assert_ok(program_write(program, graph_find(program->graph, name), values, bytes, &error), &error);
}

float training_number(Program *program, const char *name)
{
    const TensorId id = graph_find(program->graph, name);
    FshError error = {0};
    float value = 0;
    if (id == TENSOR_NONE)
        fail_msg("no tensor %s", name);
    else if (graph_tensor(program->graph, id)->role == TENSOR_ACTIVATION)
        assert_ok(program_read(program, id, &value, sizeof value, &error), &error);
    else
        assert_ok(state_read(program->state, name, &value, 1, &error), &error);
    return value;
}

/* ---- the golden network ---- */

/* Gives the parameters the factors that a case names, and freezes those that it names. */
static void train_as(Graph *graph, const json_t *o)
{
    const json_t *rates = json_object_get(o, "factors"), *decays = json_object_get(o, "decays");
    size_t i;
    const json_t *name;
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const json_t *rate = json_object_get(rates, tensor->name),
                     *decay = json_object_get(decays, tensor->name);
        if (rate || decay)
            graph_set_factors(graph, (TensorId)t, rate ? json_number_value(rate) : 1,
                              decay ? json_number_value(decay) : 1);
    }
    json_array_foreach(json_object_get(o, "frozen"), i, name)
        graph_freeze(graph, graph_find(graph, json_string_value(name)));
}

/* Appends what the network has for muon in place of its last convolution: wide and tall matrices, also in
 * groups, a depthwise convolution, and an output. */
static TensorId hidden_layers(Graph *graph, TensorId x)
{
    x = graph_conv2d(graph, "conv2", x, &(Conv2d){.channels = 12, .kernel = 3, .stride = 1, .padding = 1});
    x = graph_conv2d(graph, "conv3", x, &(Conv2d){.channels = 24, .kernel = 1, .stride = 1});
    x = graph_conv2d(graph, "wide", x,
                     &(Conv2d){.channels = 24, .kernel = 3, .stride = 1, .padding = 1, .groups = 4});
    x = graph_conv2d(graph, "tall", x, &(Conv2d){.channels = 24, .kernel = 1, .stride = 1, .groups = 6});
    x = graph_conv2d(graph, "conv4", x,
                     &(Conv2d){.channels = 24, .kernel = 3, .stride = 1, .padding = 1, .groups = 24});
    return graph_conv2d(graph, "conv5", x, &(Conv2d){.channels = 3, .kernel = 1, .stride = 1, .bias = true});
}

Graph *training_graph(const int64_t shape[4], const Optimizer *wanted, const json_t *groups)
{
    FshError error = {0};
    Optimizer optimizer = *wanted;
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId x = graph_input(graph, "x", DATA_F32, 4, shape);
    TensorId target = graph_input(graph, "target", DATA_F32, 4, shape);
    TensorId valid = graph_input(graph, "valid", DATA_F32, 1, shape);
    x = graph_conv2d(graph, "conv1", x, &(Conv2d){.channels = 17, .kernel = 3, .stride = 1, .padding = 1});
    x = graph_batch_norm(graph, "bn", x, &(BatchNorm){.training = true});
    x = wanted->kind == OPTIMIZER_MUON
            ? hidden_layers(graph, x)
            : graph_conv2d(graph, "conv2", x,
                           &(Conv2d){.channels = 3, .kernel = 3, .stride = 1, .padding = 1, .bias = true});
    TensorId loss = graph_pixel_loss(graph, x, target, valid, LOSS_MSE);
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    if (optimizer.cycles_momentum)
        optimizer.momentum_of_run = graph_input(graph, "momentum", DATA_F32, 1, (int64_t[]){1});
    train_as(graph, groups);
    if (optimizer.loss_scaling)
        graph_loss_scale(graph);
    graph_differentiate(graph, loss);
    graph_update(graph, &optimizer);
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

static double optional(const json_t *object, const char *key)
{
    return json_object_get(object, key) ? golden_real(object, key) : 0;
}

/* Returns the place in names of the text that an object has by a key. */
static int place_in(const char *const *names, const json_t *object, const char *key)
{
    int place = 0;
    while (names[place] && strcmp(names[place], golden_text(object, key)) != 0)
        place++;
    return place;
}

static MuonRule muon_of(const json_t *m)
{
    if (!m)
        return (MuonRule){0};
    return (MuonRule){.rest = (OptimizerKind)place_in(optimizer_names, m, "rest"),
                      .rest_rate = golden_real(m, "rest_rate"),
                      .momentum = golden_real(m, "momentum"),
                      .weight_decay = golden_real(m, "weight_decay"),
                      .steps = golden_integer(m, "steps"),
                      .scale = (MuonScale)place_in(muon_scale_names, m, "scale"),
                      .nesterov = json_is_true(json_object_get(m, "nesterov")),
                      .renorm = json_is_true(json_object_get(m, "renorm"))};
}

Optimizer training_optimizer(const json_t *o)
{
    return (Optimizer){.kind = (OptimizerKind)place_in(optimizer_names, o, "kind"),
                       .muon = muon_of(json_object_get(o, "muon")),
                       .momentum = optional(o, "momentum"),
                       .nesterov = json_is_true(json_object_get(o, "nesterov")),
                       .beta1 = optional(o, "beta1"),
                       .beta2 = optional(o, "beta2"),
                       .epsilon = optional(o, "epsilon"),
                       .trust_coefficient = optional(o, "trust_coefficient"),
                       .weight_decay = optional(o, "weight_decay"),
                       .clip_norm = optional(o, "clip_norm"),
                       .sam_rho = optional(o, "sam_rho"),
                       .lookahead_steps = (int64_t)optional(o, "lookahead_steps"),
                       .lookahead_alpha = optional(o, "lookahead_alpha"),
                       .accumulation_steps = (int64_t)optional(o, "accumulation_steps"),
                       .ema_decay = optional(o, "ema_decay"),
                       .ema_warmup = json_is_true(json_object_get(o, "ema_warmup")),
                       .loss_scaling = json_is_true(json_object_get(o, "loss_scaling")),
                       .cycles_momentum = json_is_true(json_object_get(o, "cycles_momentum")),
                       .scale_init = optional(o, "scale_init"),
                       .scale_growth = optional(o, "scale_growth"),
                       .scale_backoff = optional(o, "scale_backoff"),
                       .scale_interval = (int64_t)optional(o, "scale_interval")};
}

static void write_specs(State *state, json_t *specs)
{
    FshError error = {0};
    size_t i;
    json_t *spec;
    json_array_foreach(specs, i, spec)
    {
        const size_t count = golden_count(spec);
        float *values = malloc(count * sizeof *values);
        assert_non_null(values);
        golden_generate(spec, values);
        assert_ok(state_write(state, golden_text(spec, "name"), values, count, &error), &error);
        free(values);
    }
}

Training training_start_groups(const json_t *document, const Optimizer *optimizer, const json_t *groups,
                               int threads)
{
    FshError error = {0};
    Training training = {.backend = training_backend(threads)};
    for (size_t i = 0; i < 4; i++)
        training.shape[i] = json_integer_value(json_array_get(json_object_get(document, "image"), i));
    training.graph = training_graph(training.shape, optimizer, groups);
    assert_ok(state_new(&training.state, training.backend, training.graph, &error), &error);
    assert_ok(state_initialize(training.state, 1, &error), &error);
    write_specs(training.state, json_object_get(document, "specs"));
    assert_ok(program_new(&training.program, training.state, training.graph, &error), &error);
    return training;
}

Training training_start(const json_t *document, const Optimizer *optimizer, int threads)
{
    return training_start_groups(document, optimizer, NULL, threads);
}

void training_end(Training *training)
{
    program_free(&training->program);
    state_free(&training->state);
    graph_free(&training->graph);
    backend_close(&training->backend);
}

void training_run(Training *training, double rate, bool overflows)
{
    static const char *const names[] = {"x", "target"};
    const size_t count =
        (size_t)(training->shape[0] * training->shape[1] * training->shape[2] * training->shape[3]);
    const float rate_f32 = (float)rate;
    float valid[8] = {1, 1, 1, 1, 1, 1, 1, 1}, *values = malloc(count * sizeof *values);
    double *uniform = malloc(count * sizeof *uniform);
    FshError error = {0};
    assert_true(values && uniform);
    for (int i = 0; i < 2; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s%llu", names[i], (unsigned long long)training->runs);
        golden_uniform(name, uniform, count);
        for (size_t k = 0; k < count; k++)
            values[k] = (float)uniform[k];
        training_write(training->program, names[i], values, count * sizeof *values);
    }
    valid[0] = overflows ? INFINITY : 1;
    training_write(training->program, "valid", valid, (size_t)training->shape[0] * sizeof *valid);
    training_write(training->program, "learning_rate", &rate_f32, sizeof rate_f32);
    if (training->perturbs) {
        assert_ok(program_poison(training->program, &error), &error);
        assert_ok(program_perturb(training->program, &error), &error);
    }
    assert_ok(program_poison(training->program, &error), &error);
    assert_ok(program_run(training->program, &error), &error);
    training->runs++;
    free(values);
    free(uniform);
}
