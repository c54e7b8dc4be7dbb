#include "tests/trainer/golden_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

void golden_check(FshStatus status, const char *name, const FshError *error)
{
    if (status)
        fail_msg("%s: %s", name, error->message);
}

const char *golden_device(void)
{
    const char *device = getenv("FSHARD_GOLDEN_DEVICE");
    return device ? device : "cpu";
}

double golden_tolerance(void)
{
    return strcmp(golden_device(), "cpu") == 0 ? GOLDEN_TOLERANCE : GOLDEN_TOLERANCE_GPU;
}

Backend *golden_backend(void)
{
    FshError error = {0};
    Backend *backend = NULL;
    golden_check(backend_open(&backend, golden_device(), &(BackendOptions){.threads = 2}, &error),
                 golden_device(), &error);
    return backend;
}

void golden_write_input(Program *program, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    golden_check(program_write(program, graph_find(program->graph, name), values, bytes, &error), name,
                 &error);
}

void golden_write_labels(Program *program, const char *name, const json_t *labels)
{
    int64_t values[64];
    const size_t count = json_array_size(labels);
    for (size_t i = 0; i < count && i < 64; i++)
        values[i] = json_integer_value(json_array_get(labels, i));
    golden_write_input(program, name, values, count * sizeof *values);
}

void golden_write_bytes(Program *program, const json_t *spec)
{
    const size_t count = golden_count(spec);
    uint8_t *values = malloc(count);
    assert_non_null(values);
    golden_generate_bytes(spec, values);
    golden_write_input(program, golden_text(spec, "name"), values, count);
    free(values);
}

void golden_write_generated(State *state, Program *program, json_t *specs)
{
    size_t i;
    json_t *spec;
    json_array_foreach(specs, i, spec)
    {
        const size_t count = golden_count(spec);
        const char *name = golden_text(spec, "name");
        const TensorId id = graph_find(program->graph, name);
        float *values = malloc(count * sizeof *values);
        FshError error = {0};
        assert_non_null(values);
        if (id == TENSOR_NONE)
            fail_msg("no tensor %s", name);
        golden_generate(spec, values);
        if (graph_tensor(program->graph, id)->role == TENSOR_INPUT)
            golden_write_input(program, name, values, count * sizeof *values);
        else
            golden_check(state_write(state, name, values, count, &error), name, &error);
        free(values);
    }
}

double golden_compare(State *state, Program *program, json_t *expected, const char *name)
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
            golden_check(program_read(program, id, values, count * sizeof *values, &error), tensor_name,
                         &error);
        else
            golden_check(state_read(state, tensor_name, values, count, &error), tensor_name, &error);
        const double relative = golden_error(summary, values, count);
        if (!(relative < golden_tolerance()))
            print_error("%s: %s: relative error %.2e\n", name, tensor_name, relative);
        worst = fmax(worst, relative);
        free(values);
    }
    return worst;
}
