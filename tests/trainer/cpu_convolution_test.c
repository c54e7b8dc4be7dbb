/* Convolutions of 1 x 1 on the CPU, whose gradients are one matrix product each where that is faster: against
 * plain sums in float64, twice to the bit, and which of the two ways was taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "tests/trainer/op_run.h"

static Comparison comparison = {.seed = 1};

int test_group_setup(void **state)
{
    (void)state;
    comparison.theirs = test_backend(2);
    return 0;
}

int test_group_teardown(void **state)
{
    (void)state;
    backend_close(&comparison.theirs);
    return 0;
}

typedef struct PixelCase {
    int64_t x[4]; /* N, H, W, C */
    int64_t channels;
    bool bias, weight_by_product, data_by_product;
} PixelCase;

static const PixelCase cases[] = {
    /* one image and many, odd sides and channels, with bias and without */
    {{1, 8, 8, 96}, 96, true, true, true},
    {{1, 9, 7, 96}, 96, true, false, false}, /* 63 pixels */
    {{16, 3, 3, 100}, 299, true, true, true},
    {{16, 3, 3, 299}, 100, false, true, true},
    {{3, 5, 7, 131}, 97, true, true, true},
    {{2, 11, 13, 25}, 71, true, true, false}, /* few channels */
    {{2, 11, 13, 71}, 25, false, true, false},
    {{2, 11, 13, 23}, 71, true, false, false},
    {{70, 1, 1, 96}, 240, true, true, true},
    /* rows that collide in the cache, of either side, where oneDNN does not copy them; and where it does */
    {{4, 5, 5, 512}, 128, false, false, false},
    {{4, 5, 5, 128}, 512, true, false, false},
    {{2, 6, 6, 768}, 2048, true, true, false},
    {{5, 9, 8, 1024}, 384, true, true, true},
};

/* A case under way, and what it has computed: y, dx, the gradients of weight and bias. */
enum { RESULTS = 4 };
typedef struct PixelRun {
    Graph *graph;
    float *results[RESULTS]; /* of bias: NULL where there is none */
    size_t counts[RESULTS];
} PixelRun;

static Graph *pixel_graph(const PixelCase *c)
{
    const OpTest row = {.name = "convolution of 1 x 1", .build = build_conv2d};
    OpCase op = {.options.conv = {.channels = c->channels, .kernel = 1, .stride = 1, .bias = c->bias}};
    memcpy(op.x, c->x, sizeof op.x);
    return op_graph(&row, &op, (OpWay){.type = DATA_F32});
}

/* Returns the gradient of the parameter whose name ends so, TENSOR_NONE where there is no such parameter. */
static TensorId gradient_of(Graph *graph, const char *suffix)
{
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t length = strlen(tensor->name), tail = strlen(suffix);
        if (tensor->role == TENSOR_PARAMETER && length >= tail &&
            strcmp(tensor->name + length - tail, suffix) == 0)
            return graph_gradient(graph, (TensorId)t);
    }
    return TENSOR_NONE;
}

static float *read_tensor(const Side *side, TensorId id, size_t *count_ret)
{
    FshError error = {0};
    *count_ret = (size_t)tensor_count(graph_tensor(side->program->graph, id));
    float *values = malloc(*count_ret * sizeof *values);
    assert_non_null(values);
    assert_ok(program_read(side->program, id, values, *count_ret * sizeof *values, &error), &error);
    return values;
}

static void read_results(const Side *side, PixelRun *run)
{
    const TensorId ids[RESULTS] = {graph_find(run->graph, "y"), graph_find(run->graph, "dx"),
                                   gradient_of(run->graph, "weight"), gradient_of(run->graph, "bias")};
    for (int i = 0; i < RESULTS; i++)
        run->results[i] = ids[i] == TENSOR_NONE ? NULL : read_tensor(side, ids[i], &run->counts[i]);
}

static void run_free(PixelRun *run)
{
    for (int i = 0; i < RESULTS; i++)
        free(run->results[i]);
}

/* Prints, and returns whether, a node was not computed by the way that the case says. */
static bool goes_another_way(const Program *program, OpKind op, bool by_product, const char *text)
{
    for (size_t n = 0; n < graph_node_count(program->graph); n++)
        if (graph_node(program->graph, (NodeId)n)->op == op) {
            const char *engine = program_node_engine(program, (NodeId)n);
            const bool other = (strcmp(engine, "onednn inner-product") == 0) != by_product;
            if (other)
                print_message("%s: %s by %s\n", text, op_name(op), engine);
            return other;
        }
    return true;
}

/* Returns sqrt(sum (a - b)^2 / sum b^2) of count results, b = plain sums. */
static double error_of(const float *a, const double *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference / size);
}

/* Returns the worst error of the results, beside sums over x [pixels, in], weight [out, in], dy [pixels, out]
 * in float64. */
static double worst_error(const PixelCase *c, const PixelRun *run, const float *x, const float *weight,
                          const float *bias, const float *dy)
{
    const size_t pixels = (size_t)(c->x[0] * c->x[1] * c->x[2]), in = (size_t)c->x[3],
                 out = (size_t)c->channels;
    double *sums[RESULTS], worst = 0;
    const size_t counts[RESULTS] = {pixels * out, pixels * in, out * in, out};
    for (int i = 0; i < RESULTS; i++) {
        sums[i] = calloc(counts[i], sizeof *sums[i]);
        assert_non_null(sums[i]);
    }
    for (size_t p = 0; p < pixels; p++)
        for (size_t o = 0; o < out; o++) {
            double y = bias ? (double)bias[o] : 0;
            const double slope = (double)dy[p * out + o];
            for (size_t k = 0; k < in; k++) {
                y += (double)x[p * in + k] * (double)weight[o * in + k];
                sums[1][p * in + k] += slope * (double)weight[o * in + k];
                sums[2][o * in + k] += slope * (double)x[p * in + k];
            }
            sums[0][p * out + o] = y;
            sums[3][o] += slope;
        }
    for (int i = 0; i < RESULTS; i++) {
        if (run->results[i]) {
            assert_int_equal(run->counts[i], counts[i]);
            const double error = error_of(run->results[i], sums[i], counts[i]);
            if (isnan(error) || error > worst) /* NaN stays */
                worst = error;
        }
        free(sums[i]);
    }
    return worst;
}

/* Returns the values of the parameter "layer.weight" or "layer.bias". */
static float *read_parameter(const Side *side, const Graph *graph, const char *name)
{
    const TensorId id = graph_find(graph, name);
    return id == TENSOR_NONE ? NULL : side_read_state(side, graph_tensor(graph, id));
}

static bool case_is_wrong(const PixelCase *c)
{
    FshError error = {0};
    PixelRun run = {.graph = pixel_graph(c)}, again = {.graph = run.graph};
    char text[80];
    bool wrong = false;
    (void)snprintf(text, sizeof text, "%lld x %lld x %lld x %lld to %lld", (long long)c->x[0],
                   (long long)c->x[1], (long long)c->x[2], (long long)c->x[3], (long long)c->channels);
    for (int k = 0; k < 2; k++) { /* a program of its own each time, in memory that is poisoned */
        Side side;
        size_t count;
        side_start(&side, comparison.theirs, run.graph, &comparison);
        op_write(&side, run.graph, &comparison, false);
        assert_ok(program_run(side.program, &error), &error);
        read_results(&side, k ? &again : &run);
        if (k == 0) {
            float *x = read_tensor(&side, graph_find(run.graph, "x"), &count),
                  *dy = read_tensor(&side, graph_find(run.graph, "dy"), &count),
                  *weight = read_parameter(&side, run.graph, "layer.weight"),
                  *bias = read_parameter(&side, run.graph, "layer.bias");
            const double worst = worst_error(c, &run, x, weight, bias, dy);
            print_message("  %-24s %.1e\n", text, worst);
            wrong |= !(worst < 2e-6) || (bias != NULL) != c->bias;
            wrong |= goes_another_way(side.program, OP_CONV2D_BACKWARD_WEIGHT, c->weight_by_product, text);
            wrong |= goes_another_way(side.program, OP_CONV2D_BACKWARD_DATA, c->data_by_product, text);
            free(x);
            free(dy);
            free(weight);
            free(bias);
        }
        side_end(&side);
    }
    for (int i = 0; i < RESULTS; i++)
        wrong |= run.results[i] &&
                 memcmp(run.results[i], again.results[i], run.counts[i] * sizeof *run.results[i]) != 0;
    run_free(&run);
    run_free(&again);
    graph_free(&run.graph);
    return wrong;
}

TEST(test_convolutions_of_one_pixel_agree_with_plain_sums_and_give_the_same_bits_twice)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wrong += case_is_wrong(&cases[i]);
    assert_int_equal(wrong, 0);
}
