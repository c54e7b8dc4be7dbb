#include "trainer/graph/graph_internal.h"

#include "tests/trainer/cuda_narrow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/random.h"

static int significant_bits(DataType type)
{
    return type == DATA_BF16 ? 8 : 11;
}

double epsilon_of(DataType type)
{
    return ldexp(1, -significant_bits(type));
}

void round_to(DataType type, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int exponent;
        const float fraction = frexpf(values[i], &exponent), scale = ldexpf(1, significant_bits(type));
        values[i] = ldexpf(rintf(fraction * scale) / scale, exponent);
    }
}

/* f32 outside, the layers in type. */
static Graph *layer_graph(Layers layers, DataType type, int rank, const int64_t *shape)
{
    FshError error = {0};
    Graph *graph = graph_new();
    assert_non_null(graph);
    graph_set_compute_type(graph, type);
    const TensorId x = graph_input(graph, "x", DATA_F32, rank, shape);
    assert_true(x != TENSOR_NONE);
    graph->tensors[x].needs_gradient = true; /* as no input of a network does */
    TensorId y = layers(graph, graph_cast(graph, x, type));
    y = graph_scale(graph, graph_cast(graph, y, DATA_F32), 1);
    graph_keep(graph, y, "y");
    graph_fuse(graph, FUSE_ALL);
    assert_ok(graph_check(graph, &error), &error);
    const size_t forward_count = graph_node_count(graph);
    const Tensor result = *graph_tensor(graph, y);
    graph_contribute_gradient(graph, y, graph_input(graph, "dy", DATA_F32, result.rank, result.shape));
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

/* Weights as drawn, but rounded; likewise the inputs. */
static void write_rounded(Side *side, const Graph *graph, DataType type)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (tensor->role != TENSOR_INPUT && tensor->role != TENSOR_PARAMETER)
            continue;
        float *values = malloc(count * sizeof *values);
        assert_non_null(values);
        if (tensor->role == TENSOR_PARAMETER) {
            assert_ok(state_read(side->state, tensor->name, values, count, &error), &error);
            round_to(type, values, count);
            assert_ok(state_write(side->state, tensor->name, values, count, &error), &error);
        } else {
            Random random;
            random_start(&random, comparison.seed, (uint64_t)tensor->name[0]);
            for (size_t i = 0; i < count; i++)
                values[i] = random_normal(&random);
            round_to(type, values, count);
            assert_ok(program_write(side->program, (TensorId)t, values, count * sizeof *values, &error),
                      &error);
        }
        free(values);
    }
}

/* The tensor of the same name in both, by program or state. */
static void compare_named(const Graph *graph, const Graph *reference, Side sides[2], const char *case_name,
                          const char *name)
{
    FshError error = {0};
    char what[256], shape[96];
    const TensorId ids[2] = {graph_find(graph, name), graph_find(reference, name)};
    const Tensor *tensor = graph_tensor(reference, ids[1]);
    const size_t count = (size_t)tensor_count(tensor), bytes = count * sizeof(float);
    float *values[2] = {malloc(bytes), malloc(bytes)};
    for (int i = 0; i < 2; i++)
        if (tensor_is_in_state(tensor))
            assert_ok(state_read(sides[i].state, name, values[i], count, &error), &error);
        else
            assert_ok(program_read(sides[i].program, ids[i], values[i], bytes, &error), &error);
    (void)snprintf(what, sizeof what, "%s: %s [%s]", case_name, name,
                   tensor_shape_text(tensor, shape, sizeof shape));
    compare_values(&comparison, what, values[0], values[1], count);
    free(values[0]);
    free(values[1]);
}

static void compare_type(Layers layers, const char *name, DataType type, int rank, const int64_t *shape)
{
    FshError error = {0};
    Graph *graphs[2] = {layer_graph(layers, type, rank, shape), layer_graph(layers, DATA_F32, rank, shape)};
    Backend *const sides_of[2] = {backends[CUDA], backends[CPU]};
    Side sides[2];
    for (size_t n = 0; n < graph_node_count(graphs[0]); n++)
        comparison.ran[graph_node(graphs[0], (NodeId)n)->op] = true;
    for (int i = 0; i < 2; i++) {
        side_start(&sides[i], sides_of[i], graphs[i], &comparison);
        write_rounded(&sides[i], graphs[i], type);
    }
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 2; i++) {
            assert_ok(program_poison(sides[i].program, &error), &error);
            assert_ok(program_run(sides[i].program, &error), &error);
        }
        for (size_t t = 0; t < graph_tensor_count(graphs[1]); t++) {
            const Tensor *tensor = graph_tensor(graphs[1], (TensorId)t);
            if (tensor->keep || tensor->role == TENSOR_GRADIENT || tensor->role == TENSOR_BUFFER)
                compare_named(graphs[0], graphs[1], sides, name, tensor->name);
        }
    }
    for (int i = 0; i < 2; i++) {
        side_end(&sides[i]);
        graph_free(&graphs[i]);
    }
}

void compare_narrow(Layers layers, const char *name, int rank, const int64_t *shape, double roundings)
{
    static const DataType types[] = {DATA_BF16, DATA_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char label[128];
        int used = snprintf(label, sizeof label, "%s, %s of", name, data_type_name(types[i]));
        for (int d = 0; d < rank; d++)
            used +=
                snprintf(label + used, sizeof label - (size_t)used, "%s %d", d ? " x" : "", (int)shape[d]);
        comparison.tolerance = roundings * epsilon_of(types[i]);
        compare_type(layers, label, types[i], rank, shape);
    }
    comparison.tolerance = 0;
}
