#include "tests/trainer/backend_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"

/* How far two tensors may be apart: rms of the difference, against rms of the reference. `rounding` is what
 * sums leave that nearly cancel; a tensor whose numbers are all below `nothing` is 0 but for rounding (the
 * gradient of a bias in front of a batch norm). */
static const double tolerance = 1e-4, rounding = 2e-8, nothing = 1e-7;
enum { DRAWS_MAX = 16 };

uint64_t drawn_seed(const Comparison *comparison)
{
    return comparison->seed + 1000 * comparison->draw;
}

void side_start(Side *side, Backend *backend, const Graph *graph, const Comparison *comparison)
{
    FshError error = {0};
    *side = (Side){NULL, NULL};
    assert_ok(state_new(&side->state, backend, graph, &error), &error);
    assert_ok(state_initialize(side->state, drawn_seed(comparison), &error), &error);
    assert_ok(program_new(&side->program, side->state, graph, &error), &error);
    assert_ok(program_poison(side->program, &error), &error);
}

void side_end(Side *side)
{
    program_free(&side->program);
    state_free(&side->state);
}

void side_write_inputs(Side *side, const Graph *graph, uint64_t step, const Comparison *comparison)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_INPUT)
            continue;
        Random random;
        random_start(&random, drawn_seed(comparison), random_stream(t, step));
        const size_t count = (size_t)tensor_count(tensor), bytes = count * data_type_bytes(tensor->type);
        void *values = malloc(bytes);
        assert_non_null(values);
        for (size_t i = 0; i < count; i++) {
            if (tensor->type == DATA_U8)
                ((uint8_t *)values)[i] = (uint8_t)random_below(&random, 256);
            else if (tensor->type == DATA_I64)
                ((int64_t *)values)[i] = i % 7 == 6 ? -1 : (int64_t)random_below(&random, 3);
            else
                ((float *)values)[i] = 0.05F;
        }
        assert_ok(program_write(side->program, (TensorId)t, values, bytes, &error), &error);
        free(values);
    }
}

float *side_read_state(const Side *side, const Tensor *tensor)
{
    FshError error = {0};
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_ok(state_read(side->state, tensor->name, values, count, &error), &error);
    return values;
}

void graph_keep_everything(Graph *graph)
{
    char name[32];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_ACTIVATION || tensor->producer == NODE_NONE || tensor->keep)
            continue;
        (void)snprintf(name, sizeof name, "tensor %zu", t);
        graph_keep(graph, (TensorId)t, name);
    }
}

double epsilon_of(DataType type)
{
    return ldexp(1, type == DATA_BF16 ? -8 : -11);
}

void compare_values(Comparison *comparison, const char *what, const float *ours, const float *theirs,
                    size_t count)
{
    double difference = 0, size = 0;
    size_t broken = 0;
    for (size_t i = 0; i < count; i++) {
        broken += !isfinite(ours[i]) || !isfinite(theirs[i]);
        difference += ((double)ours[i] - (double)theirs[i]) * ((double)ours[i] - (double)theirs[i]);
        size += (double)theirs[i] * (double)theirs[i];
    }
    difference = sqrt(difference / (double)count);
    size = sqrt(size / (double)count);
    if (!broken && size < nothing && difference < nothing)
        return;
    if (!broken && difference > rounding && difference > comparison->largest * size)
        comparison->largest = difference / size;
    const double allowed = (comparison->tolerance > 0 ? comparison->tolerance : tolerance) * size + rounding;
    if (!broken && difference <= allowed)
        return;
    comparison->excess = fmax(comparison->excess, broken ? INFINITY : difference / allowed);
    comparison->mismatches++;
    if (broken)
        print_error("%s: %zu of %zu elements are not finite\n", what, broken, count);
    else
        print_error("%s: differs by %.2g of its size (%.3g, rms of %zu)\n", what, difference / size, size,
                    count);
}

static bool decisions_agree(const Node *node, DataType type, const void *ours, const void *theirs,
                            size_t count)
{
    const float *a = ours, *b = theirs;
    if (type == DATA_U8)
        return memcmp(ours, theirs, count) == 0;
    if (type == DATA_F32 &&
        (node->op == OP_RELU ||
         ((node->op == OP_BATCH_NORM || node->op == OP_NORM_GATE) && node->as.norm.activation == OP_RELU) ||
         (node->op == OP_CONV2D && node->as.conv.relu)))
        for (size_t i = 0; i < count; i++)
            if ((a[i] > 0) != (b[i] > 0))
                return false;
    return true;
}

/* Compares the kept activations and the gradients of parameters. Returns false where a decision differs:
 * later values say nothing then. */
static bool compare_program(Comparison *comparison, const Graph *graph, Side sides[2], const char *name)
{
    FshError error = {0};
    char what[256], shape[96];
    bool agree = true;
    for (size_t t = 0; t < graph_tensor_count(graph) && agree; t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor), bytes = count * data_type_bytes(tensor->type);
        if (tensor->producer == NODE_NONE || (tensor->role != TENSOR_GRADIENT && !tensor->keep))
            continue;
        const Node *node = graph_node(graph, tensor->producer);
        void *values[2] = {malloc(bytes), malloc(bytes)};
        for (int i = 0; i < 2; i++)
            assert_ok(program_read(sides[i].program, (TensorId)t, values[i], bytes, &error), &error);
        (void)snprintf(what, sizeof what, "%s: %s of %s [%s]", name, tensor->name, op_name(node->op),
                       tensor_shape_text(tensor, shape, sizeof shape));
        if (tensor->type == DATA_F32)
            compare_values(comparison, what, values[0], values[1], count);
        agree = decisions_agree(node, tensor->type, values[0], values[1], count);
        free(values[0]);
        free(values[1]);
    }
    return agree;
}

static void compare_state(Comparison *comparison, const Graph *graph, Side sides[2], const char *name)
{
    FshError error = {0};
    char what[256];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (!state_holds(tensor->role))
            continue;
        float *values[2] = {malloc(count * sizeof(float)), malloc(count * sizeof(float))};
        for (int i = 0; i < 2; i++)
            assert_ok(state_read(sides[i].state, tensor->name, values[i], count, &error), &error);
        (void)snprintf(what, sizeof what, "%s: %s", name, tensor->name);
        compare_values(comparison, what, values[0], values[1], count);
        free(values[0]);
        free(values[1]);
    }
}

/* Compares the steps and the state after them. Returns false where a decision differs. */
static bool compare_steps(Comparison *comparison, Backend *ours, const Graph *graph, const char *name,
                          uint64_t steps)
{
    FshError error = {0};
    Side sides[2];
    bool agree = true;
    side_start(&sides[0], ours, graph, comparison);
    side_start(&sides[1], comparison->theirs, graph, comparison);
    for (uint64_t step = 0; step < steps && agree; step++) {
        for (int i = 0; i < 2; i++) {
            side_write_inputs(&sides[i], graph, step, comparison);
            assert_ok(program_run(sides[i].program, &error), &error);
        }
        agree = compare_program(comparison, graph, sides, name);
    }
    if (agree)
        compare_state(comparison, graph, sides, name);
    side_end(&sides[0]);
    side_end(&sides[1]);
    return agree;
}

void compare_graph(Comparison *comparison, Backend *ours, Graph *graph, const char *name, uint64_t steps)
{
    FshError error = {0};
    bool decided = false;
    const int before = comparison->mismatches;
    graph_keep_everything(graph);
    assert_ok(graph_check(graph, &error), &error);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison->ran[graph_node(graph, (NodeId)n)->op] = true;
    for (comparison->draw = 0; comparison->draw < DRAWS_MAX && !decided && comparison->mismatches == before;
         comparison->draw++)
        decided = compare_steps(comparison, ours, graph, name, steps);
    if (!decided && comparison->mismatches == before) {
        comparison->mismatches++;
        print_error("%s: %d draws, and each met a decision within rounding\n", name, DRAWS_MAX);
    }
    if (comparison->draw > 1)
        print_message("%s: draw %d\n", name, (int)comparison->draw);
    comparison->draw = 0;
    graph_free(&graph);
}
