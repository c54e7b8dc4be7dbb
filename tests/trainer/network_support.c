#include "tests/trainer/network_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"

void test_check(FshStatus status, const FshError *error)
{
    if (status)
        fail_msg("%s: %s", fsh_strerror(status), error->message);
}

Backend *test_backend(int threads)
{
    Backend *backend = NULL;
    FshError error = {0};
    test_check(backend_open(&backend, "cpu", &(BackendOptions){.threads = threads}, &error), &error);
    return backend;
}

Graph *test_model(const char *name, int64_t batch, int64_t size, bool training)
{
    Graph *graph = NULL;
    FshError error = {0};
    const ModelSpec spec = {.batch = batch,
                            .height = size,
                            .width = size,
                            .channels = 3,
                            .classes = TEST_CLASSES,
                            .training = training};
    const ModelRecipe recipe = {.mean = {0.5, 0.4, 0.3},
                                .deviation = {0.25, 0.3, 0.2},
                                .label_smoothing = 0.1F,
                                .optimizer = {.momentum = 0.9, .weight_decay = 0.01}};
    test_check(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    return graph;
}

bool test_model_is_large(const Model *model)
{
    enum { PARAMETERS_MAX = 100000000 };
    if (model->task != TASK_CLASSIFICATION) /* those have a few million */
        return false;
    Graph *graph = test_model(model->name, 1, 64, false);
    const bool large = graph_parameter_count(graph) > PARAMETERS_MAX;
    graph_free(&graph);
    return large;
}

static void write_input(Program *program, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    test_check(program_write(program, graph_find(program->graph, name), values, bytes, &error), &error);
}

void test_write_batch(Program *program)
{
    const Tensor *image = graph_tensor(program->graph, graph_find(program->graph, "image"));
    const size_t bytes = (size_t)tensor_count(image), batch = (size_t)image->shape[0];
    uint8_t *pixels = malloc(bytes);
    int64_t *labels = malloc(batch * sizeof *labels);
    assert_true(pixels && labels);
    Random random;
    random_start(&random, 7, 0);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)random_below(&random, 256);
    for (size_t i = 0; i < batch; i++)
        labels[i] = (int64_t)(i % TEST_CLASSES);
    write_input(program, "image", pixels, bytes);
    write_input(program, "label", labels, batch * sizeof *labels);
    free(pixels);
    free(labels);
}

TestNetwork test_network(Backend *backend, const char *name, int64_t batch, int64_t size)
{
    TestNetwork network = {.backend = backend, .graph = test_model(name, batch, size, true)};
    const float rate = 0.01F;
    FshError error = {0};
    test_check(state_new(&network.state, backend, network.graph, &error), &error);
    test_check(state_initialize(network.state, 1, &error), &error);
    test_check(program_new(&network.program, network.state, network.graph, &error), &error);
    test_write_batch(network.program);
    write_input(network.program, "learning_rate", &rate, sizeof rate);
    return network;
}

void test_network_free(TestNetwork *network)
{
    program_free(&network->program);
    state_free(&network->state);
    graph_free(&network->graph);
}

void test_run(Program *program)
{
    FshError error = {0};
    test_check(program_run(program, &error), &error);
}

float test_step(TestNetwork *network)
{
    test_run(network->program);
    float *loss = test_read(network->program, "loss", NULL), value = *loss;
    free(loss);
    return value;
}

float *test_read(Program *program, const char *name, size_t *count_ret)
{
    const TensorId id = graph_find(program->graph, name);
    FshError error = {0};
    if (id == TENSOR_NONE)
        fail_msg("no tensor %s", name);
    const Tensor *tensor = graph_tensor(program->graph, id);
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    if (tensor->role == TENSOR_ACTIVATION || tensor->role == TENSOR_GRADIENT)
        test_check(program_read(program, id, values, count * sizeof *values, &error), &error);
    else
        test_check(state_read(program->state, name, values, count, &error), &error);
    if (count_ret)
        *count_ret = count;
    return values;
}

double test_relative_error(const float *a, const float *b, size_t count)
{
    double difference = 0, norm = 1e-60;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return isfinite(difference) ? sqrt(difference / norm) : INFINITY;
}
