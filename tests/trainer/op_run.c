#include "trainer/graph/graph_internal.h"

#include "tests/trainer/op_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"

enum { CPU_ELEMENTS_MAX = 1 << 16 };

/* ---- the graph ---- */

TensorId op_input(Graph *graph, const char *name, int rank, const int64_t *shape)
{
    const TensorId id = graph_input(graph, name, DATA_F32, rank, shape);
    if (id != TENSOR_NONE)
        graph->tensors[id].needs_gradient = true;
    return id;
}

void op_differentiate(Graph *graph, TensorId y, TensorId x, TensorId other, const char *other_gradient)
{
    FshError error = {0};
    const size_t forward_count = graph_node_count(graph);
    const Tensor result = *graph_tensor(graph, y);
    graph_contribute_gradient(graph, y, graph_input(graph, "dy", DATA_F32, result.rank, result.shape));
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    if (other != TENSOR_NONE && graph->tensors[other].needs_gradient)
        graph_keep(graph, graph_gradient(graph, other), other_gradient);
    assert_ok(graph_check(graph, &error), &error);
}

static int rank_of(const OpCase *c)
{
    int rank = 0;
    while (rank < 4 && c->x[rank] > 0)
        rank++;
    return rank;
}

/* Returns the input beside x, TENSOR_NONE for a row without one. */
static TensorId other_input(Graph *graph, const OpTest *row, const OpCase *c)
{
    const int rank = rank_of(c);
    int64_t shape[4];
    memcpy(shape, c->x, sizeof shape);
    switch (row->other) {
    case OTHER_LIKE_X:
        return op_input(graph, "other", rank, shape);
    case OTHER_WIDER:
        shape[rank - 1] += 3;
        return op_input(graph, "other", rank, shape);
    case OTHER_FACTORS:
        return op_input(graph, "other", 2, (int64_t[]){shape[0], shape[rank - 1]});
    case OTHER_NO_GRADIENT:
        return graph_input(graph, "other", DATA_F32, rank, shape);
    default:
        return TENSOR_NONE;
    }
}

Graph *op_graph(const OpTest *row, const OpCase *c, OpWay way)
{
    FshError error = {0};
    Graph *graph = graph_new();
    assert_non_null(graph);
    graph_set_compute_type(graph, way.type);
    const TensorId x = op_input(graph, "x", rank_of(c), c->x), other = other_input(graph, row, c);
    TensorId y = graph_cast(graph, x, way.type), z = other;
    if (way.between_norms)
        y = graph_layer_norm(graph, "before", y, 1);
    if (row->other == OTHER_X)
        z = y;
    else if (other != TENSOR_NONE && row->other != OTHER_FACTORS)
        z = graph_cast(graph, other, way.type);
    y = row->build(graph, &c->options, y, z);
    assert_ok(graph_check(graph, &error), &error);
    if (graph_tensor(graph, y)->type != way.type)
        fail_msg("%s: computes in %s, not in %s", row->name, data_type_name(graph_tensor(graph, y)->type),
                 data_type_name(way.type));
    if (way.between_norms)
        y = graph_layer_norm(graph, "after", y, 1);
    y = graph_scale(graph, graph_cast(graph, y, DATA_F32), 1); /* what is kept would not be fused */
    graph_keep(graph, y, "y");
    if (way.fused)
        graph_fuse(graph, FUSE_ALL);
    op_differentiate(graph, y, x, other, "dother");
    graph->differentiated = true;
    if (way.fused)
        graph_fuse_backward(graph, FUSE_ALL);
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

const char *op_text(const OpTest *row, const OpCase *c, int i, OpWay way, char *text, size_t size)
{
    int used = snprintf(text, size, "%s of", row->name);
    for (int d = 0; d < rank_of(c); d++)
        used += snprintf(text + used, size - (size_t)used, "%s %d", d ? " x" : "", (int)c->x[d]);
    (void)snprintf(text + used, size - (size_t)used, " (case %d), %s%s%s", i, data_type_name(way.type),
                   way.between_norms ? ", between norms" : "", way.fused ? ", fused" : "");
    return text;
}

/* ---- its numbers ---- */

static float to_eight_bits(float value)
{
    int exponent;
    const float fraction = frexpf(value, &exponent);
    return ldexpf(rintf(fraction * 256) / 256, exponent);
}

/* Returns what a tensor begins with, from its name and size: normal inputs and buffers, parameters as they
 * are initialised; of parameters that are all the same then, -2 to 2. */
static float *op_values(const Tensor *tensor, State *state, const Comparison *comparison, bool rounded)
{
    FshError error = {0};
    const size_t count = (size_t)tensor_count(tensor), length = strlen(tensor->name);
    const int kind = tensor->initializer.kind;
    float *values = malloc(count * sizeof *values);
    Random random;
    assert_non_null(values);
    uint64_t stream = count;
    for (const char *c = tensor->name; *c; c++)
        stream = random_stream(stream, (uint64_t)*c);
    random_start(&random, drawn_seed(comparison), stream);
    const bool is_drawn = tensor->role == TENSOR_PARAMETER && (kind == INIT_NORMAL || kind == INIT_UNIFORM);
    const bool is_variance = length > 11 && strcmp(tensor->name + length - 11, "running_var") == 0;
    if (is_drawn)
        assert_ok(state_read(state, tensor->name, values, count, &error), &error);
    for (size_t i = 0; i < count; i++) {
        if (tensor->role == TENSOR_PARAMETER && !is_drawn)
            values[i] = (float)((int)random_below(&random, 257) - 128) / 64;
        else if (!is_drawn)
            values[i] = is_variance ? 0.5F + random_uniform(&random) : random_normal(&random);
        if (rounded)
            values[i] = to_eight_bits(values[i]);
    }
    return values;
}

void op_write(Side *side, const Graph *graph, const Comparison *comparison, bool rounded)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (tensor->role != TENSOR_INPUT && tensor->role != TENSOR_PARAMETER && tensor->role != TENSOR_BUFFER)
            continue;
        float *values = op_values(tensor, side->state, comparison, rounded);
        if (tensor->role == TENSOR_INPUT)
            assert_ok(program_write(side->program, (TensorId)t, values, count * sizeof *values, &error),
                      &error);
        else
            assert_ok(state_write(side->state, tensor->name, values, count, &error), &error);
        free(values);
    }
}

/* ---- two backends ---- */

/* One case on both; the graphs' tensors have the same names. */
typedef struct OpPair {
    Graph *graphs[2];
    Side sides[2];
    float *
        *first; /* [tensor_count] of graphs[1]: results of the first run of ours; NULL where there is none */
} OpPair;

static OpPair open_pair(Comparison *comparison, Backend *ours, const OpTest *row, const OpCase *c, OpWay way)
{
    const OpWay reference = {.type = DATA_F32, .between_norms = way.between_norms};
    OpPair pair = {.graphs = {op_graph(row, c, way), op_graph(row, c, reference)}};
    for (size_t n = 0; n < graph_node_count(pair.graphs[0]); n++)
        comparison->ran[graph_node(pair.graphs[0], (NodeId)n)->op] = true;
    for (int i = 0; i < 2; i++) {
        side_start(&pair.sides[i], i ? comparison->theirs : ours, pair.graphs[i], comparison);
        op_write(&pair.sides[i], pair.graphs[i], comparison, true);
    }
    pair.first = calloc(graph_tensor_count(pair.graphs[1]), sizeof *pair.first);
    assert_non_null(pair.first);
    return pair;
}

static void close_pair(OpPair *pair)
{
    for (size_t t = 0; t < graph_tensor_count(pair->graphs[1]); t++)
        free(pair->first[t]);
    free(pair->first);
    for (int i = 0; i < 2; i++) {
        side_end(&pair->sides[i]);
        graph_free(&pair->graphs[i]);
    }
}

static float *read_named(const Side *side, const Graph *graph, const char *name)
{
    FshError error = {0};
    const TensorId id = graph_find(graph, name);
    const Tensor *tensor = graph_tensor(graph, id);
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    if (state_holds(tensor->role))
        assert_ok(state_read(side->state, name, values, count, &error), &error);
    else
        assert_ok(program_read(side->program, id, values, count * sizeof *values, &error), &error);
    return values;
}

/* Returns whether a ReLU decides in the graph. */
static bool has_relu(const Graph *graph)
{
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        if (node->op == OP_RELU || (node->op == OP_BATCH_NORM && node->as.norm.activation == OP_RELU) ||
            (node->op == OP_CONV2D && node->as.conv.relu))
            return true;
    }
    return false;
}

/* Returns whether no more than sixteen elements are all that is apart, as where a ReLU met a value that is 0
 * but for rounding: its gradient, and the sum of its channel, differ for good. */
static bool few_are_apart(const Comparison *comparison, const float *ours, const float *theirs, size_t count)
{
    enum { FEW = 16 };
    double most[FEW] = {0}, sum = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = ((double)ours[i] - theirs[i]) * ((double)ours[i] - theirs[i]);
        sum += difference;
        size += (double)theirs[i] * theirs[i];
        for (int m = 0; m < FEW; m++) {
            const double larger = fmax(most[m], difference);
            difference = fmin(most[m], difference);
            most[m] = larger;
        }
    }
    for (int m = 0; m < FEW; m++)
        sum -= most[m];
    return sum <= comparison->tolerance * comparison->tolerance * size;
}

/* Compares a tensor of both sides, and of ours with the first run. */
static void compare_tensor(Comparison *comparison, OpPair *pair, TensorId t, const char *text,
                           bool moves_buffers)
{
    char what[320];
    const Tensor *tensor = graph_tensor(pair->graphs[1], t);
    const size_t count = (size_t)tensor_count(tensor);
    float *ours = read_named(&pair->sides[0], pair->graphs[0], tensor->name);
    float *theirs = read_named(&pair->sides[1], pair->graphs[1], tensor->name);
    (void)snprintf(what, sizeof what, "%s: %s", text, tensor->name);
    const int before = comparison->mismatches;
    compare_values(comparison, what, ours, theirs, count);
    if (comparison->mismatches > before)
        comparison->decided_apart &=
            has_relu(pair->graphs[1]) && few_are_apart(comparison, ours, theirs, count);
    if (pair->first[t] && !moves_buffers && memcmp(pair->first[t], ours, count * sizeof *ours) != 0) {
        comparison->mismatches++;
        comparison->excess = INFINITY;
        comparison->decided_apart = false;
        print_error("%s: a second run gives other bits\n", what);
    }
    free(pair->first[t]);
    pair->first[t] = ours;
    free(theirs);
}

/* Runs the case twice on both sides, and compares what is kept, gradients and buffers. */
static void compare_way(Comparison *comparison, Backend *ours, const OpTest *row, const OpCase *c,
                        const char *text, OpWay way)
{
    FshError error = {0};
    OpPair pair = open_pair(comparison, ours, row, c, way);
    const Graph *reference = pair.graphs[1];
    bool moves_buffers = false;
    for (size_t t = 0; t < graph_tensor_count(reference); t++)
        moves_buffers |= graph_tensor(reference, (TensorId)t)->role == TENSOR_BUFFER;
    int compared = 0;
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 2; i++) {
            assert_ok(program_poison(pair.sides[i].program, &error), &error);
            assert_ok(program_run(pair.sides[i].program, &error), &error);
        }
        for (size_t t = 0; t < graph_tensor_count(reference); t++) {
            const Tensor *tensor = graph_tensor(reference, (TensorId)t);
            if (tensor->keep || tensor->role == TENSOR_GRADIENT || tensor->role == TENSOR_BUFFER) {
                const double tolerance = comparison->tolerance;
                if (row->turns && way.type != DATA_F32 && tensor->of != TENSOR_NONE)
                    comparison->tolerance = 0.7 * sqrt(epsilon_of(way.type));
                if (row->cancels && strcmp(tensor->name, row->cancels) == 0)
                    comparison->tolerance *= 2;
                compare_tensor(comparison, &pair, (TensorId)t, text, moves_buffers);
                comparison->tolerance = tolerance;
                compared++;
            }
        }
    }
    assert_true(compared >= 4); /* y and dx, twice */
    close_pair(&pair);
}

/* Compares a case. Where it is apart by less than twice what is allowed, or where a ReLU met a value that is
 * 0 but for rounding, other draws are compared too, of which one must agree: in one of very many a
 * gradient is a sum that nearly cancels, and a ReLU that decides otherwise changes the gradients for good. */
static void compare_drawn(Comparison *comparison, Backend *ours, const OpTest *row, const OpCase *c,
                          const char *text, OpWay way)
{
    enum { DRAWS = 3, DRAWS_OF_RELU = 10 };
    const int before = comparison->mismatches;
    bool again = true;
    for (comparison->draw = 0; again; comparison->draw++) {
        comparison->mismatches = before;
        comparison->excess = 0;
        comparison->decided_apart = true;
        compare_way(comparison, ours, row, c, text, way);
        const uint64_t draws = comparison->decided_apart ? DRAWS_OF_RELU : DRAWS;
        again = comparison->mismatches > before && (comparison->excess < 2 || comparison->decided_apart) &&
                comparison->draw + 1 < draws;
    }
    comparison->draw = 0;
}

/* Returns whether graph_fuse finds something. */
static bool is_fused(const OpTest *row, const OpCase *c)
{
    Graph *plain = op_graph(row, c, (OpWay){.type = DATA_F32}),
          *fused = op_graph(row, c, (OpWay){.type = DATA_F32, .fused = true});
    const bool differs = graph_node_count(plain) != graph_node_count(fused);
    graph_free(&plain);
    graph_free(&fused);
    return differs;
}

static double tolerance_of(const OpTest *row, OpWay way)
{
    const double roundings = row->roundings > 0 ? row->roundings : 1;
    if (way.type == DATA_F32)
        return row->f32 > 0 ? row->f32 : 1e-4;
    return roundings * epsilon_of(way.type) * (way.between_norms ? 4 : 1);
}

int64_t op_elements(const OpCase *c)
{
    int64_t elements = 1;
    for (int d = 0; d < rank_of(c); d++)
        elements *= c->x[d];
    return elements;
}

/* Returns whether this process compares the row: FSHARD_OP_PART=2/5 leaves it rows 2, 7, 12, …, so that
 * several processes share what takes minutes on a GPU, where each case makes plans. */
static bool is_our_row(const OpTest *row)
{
    const char *text = getenv("FSHARD_OP_PART");
    unsigned part = 0, parts = 1;
    char after;
    if (text && (sscanf(text, "%u/%u%c", &part, &parts, &after) != 2 || part >= parts))
        fail_msg("FSHARD_OP_PART is '%s', and not PART/PARTS", text);
    return (size_t)(row - op_tests) % parts == part;
}

int compare_ops(Comparison *comparison, Backend *ours, DataType type, OpCases cases)
{
    char text[160];
    OpCase c;
    int compared = 0;
    for (const OpTest *row = op_tests; row < op_tests + op_test_count; row++)
        for (int i = 0; is_our_row(row) && (!row->types || row->types >> type & 1) &&
                        op_case(row, cases == OP_CASES_LARGE, i, &c);
             i++) {
            if (cases == OP_CASES_OF_CPU && (row->has_no_cpu_way || op_elements(&c) > CPU_ELEMENTS_MAX))
                continue;
            const bool can_fuse = is_fused(row, &c);
            /* what a norm leaves of the gradients of a few channels is mostly rounding */
            const int64_t factor = row->channel_factor ? row->channel_factor : 1;
            const int between_count = row->between_norms && c.x[3] / factor > 3 ? 2 : 1;
            for (int between = 0; between < between_count; between++)
                /* what is rounded between two narrow ops flips signs of a ReLU: these are fused where they
                 * can be */
                for (int fused = type == DATA_F32 ? 0 : can_fuse; fused <= can_fuse; fused++) {
                    const OpWay way = {.type = type, .between_norms = between, .fused = fused};
                    if (ours == comparison->theirs && type == DATA_F32 && !fused)
                        continue; /* with itself */
                    comparison->tolerance = tolerance_of(row, way);
                    compare_drawn(comparison, ours, row, &c, op_text(row, &c, i, way, text, sizeof text),
                                  way);
                    compared++;
                }
        }
    comparison->tolerance = 0;
    return compared;
}
