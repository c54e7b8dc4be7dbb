/* The table of a profile: what a node moves and computes at least, and how times are held against that. */
#include "trainer/report/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

enum { N = 4, EDGE = 8, IN = 3, OUT = 16, CLASSES = 10 };

/* Returns conv 3x3 (3 to 16 channels), ReLU, pool, linear, loss, SGD with momentum. */
static Graph *small_network(DataType type)
{
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    FshError error = {0};
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){N, EDGE, EDGE, IN});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){N});
    TensorId rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_set_compute_type(graph, type);
    TensorId x = graph_normalize(graph, image, mean, deviation);
    x = graph_conv2d(graph, "conv", x, &(Conv2d){.channels = OUT, .kernel = 3, .stride = 1, .padding = 1});
    x = graph_global_avg_pool(graph, graph_relu(graph, x));
    x = graph_cast(graph, graph_linear(graph, "fc", x, CLASSES, false), DATA_F32);
    TensorId loss = graph_softmax_cross_entropy(graph, x, label, TENSOR_NONE, TENSOR_NONE, 0);
    graph_keep(graph, loss, "loss");
    graph_differentiate(graph, loss);
    graph_update(graph, &(Optimizer){.kind = OPTIMIZER_SGD, .momentum = 0.9, .learning_rate = rate});
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

static NodeId find_op(const Graph *graph, OpKind op)
{
    for (size_t n = 0; n < graph_node_count(graph); n++)
        if (graph_node(graph, (NodeId)n)->op == op)
            return (NodeId)n;
    fail_msg("no %s", op_name(op));
    return 0;
}

TEST(test_a_node_moves_inputs_and_outputs_once)
{
    const double pixels = N * EDGE * EDGE, weights = OUT * IN * 9;
    const double parameters = weights + CLASSES * OUT;
    Graph *graph = small_network(DATA_F32);
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_CONV2D)) ==
                4 * (pixels * IN + weights + pixels * OUT));
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_NORMALIZE)) == pixels * IN * 5);
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_RELU)) == 2 * 4 * pixels * OUT);
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_CONV2D_BACKWARD_WEIGHT)) ==
                4 * (pixels * OUT + pixels * IN + weights));
    /* Weights and momentum read and written, gradients read: 20 bytes for each parameter, and a few
     * numbers. */
    const double update = (double)graph_node_bytes(graph, find_op(graph, OP_UPDATE));
    assert_true(update >= 20 * parameters && update < 20 * parameters + 64);
    graph_free(&graph);
}

TEST(test_weights_of_narrow_products_are_narrow)
{
    const double pixels = N * EDGE * EDGE, weights = OUT * IN * 9;
    Graph *graph = small_network(DATA_BF16);
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_CONV2D)) ==
                2 * (pixels * IN + weights + pixels * OUT));
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_CONV2D_BACKWARD_WEIGHT)) ==
                2 * (pixels * OUT + pixels * IN + weights));
    graph_free(&graph);
}

TEST(test_stems_that_read_bytes_move_bytes)
{
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    const double pixels = N * EDGE * EDGE, weights = OUT * IN * 49;
    Graph *graph = graph_new();
    assert_non_null(graph);
    graph_set_compute_type(graph, DATA_F16);
    const TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){N, EDGE, EDGE, IN});
    graph_conv2d(graph, "stem", graph_normalize(graph, image, mean, deviation),
                 &(Conv2d){.channels = OUT, .kernel = 7, .stride = 2, .padding = 3});
    graph_fuse(graph, FUSE_NORMALIZE_CONV);
    assert_ok(graph_check(graph, NULL), NULL);
    assert_true((double)graph_node_bytes(graph, find_op(graph, OP_CONV2D)) ==
                pixels * IN + 2 * (weights + pixels / 4 * OUT));
    graph_free(&graph);
}

TEST(test_gradients_cost_what_the_product_costs)
{
    Graph *graph = small_network(DATA_F32);
    const double conv = 2.0 * N * EDGE * EDGE * OUT * IN * 9, linear = 2.0 * N * OUT * CLASSES;
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_CONV2D)) == conv);
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_CONV2D_BACKWARD_WEIGHT)) == conv);
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_LINEAR)) == linear);
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_LINEAR_BACKWARD_DATA)) == linear);
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_LINEAR_BACKWARD_WEIGHT)) == linear);
    assert_true((double)graph_node_flops(graph, find_op(graph, OP_RELU)) == 0);
    graph_free(&graph);
}

TEST(test_the_floor_is_the_longer_of_memory_and_products)
{
    Graph *graph = small_network(DATA_F32);
    FshError error = {0};
    Profile profile;
    const size_t count = graph_node_count(graph);
    const NodeId conv = find_op(graph, OP_CONV2D), relu = find_op(graph, OP_RELU);
    double *seconds = calloc(count, sizeof *seconds);
    assert_non_null(seconds);
    for (size_t n = 0; n < count; n++)
        seconds[n] = 0.5;
    seconds[conv] = 8;
    seconds[relu] = 4;
    const BackendRates rates = {.bytes_per_second = 1e6, .product_flops_per_second = 1e6};
    assert_ok(profile_make(&profile, graph, seconds, 2, &rates, &error), &error);
    assert_int_equal(profile.nodes[0].node, conv); /* longest first */
    assert_int_equal(profile.nodes[1].node, relu);
    assert_true(profile.nodes[0].seconds == 4);
    assert_true(profile.nodes[0].floor_seconds == (double)graph_node_flops(graph, conv) / 1e6);
    assert_true(profile.nodes[1].floor_seconds == (double)graph_node_bytes(graph, relu) / 1e6);
    assert_true(fabs(profile.seconds - (12 + 0.5 * (double)(count - 2)) / 2) < 1e-9);

    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    profile_print(&profile, stream);
    assert_int_equal(fclose(stream), 0);
    assert_contains(text, "       1  conv2d\n");
    assert_contains(text, "conv2d                  conv [4 x 8 x 8 x 16]");
    assert_contains(text, "  all\n");
    free(text);
    char line[256];
    assert_contains(profile_summary(&profile, line, sizeof line), "; conv2d 4000.00 ms, relu 2000.00 ms");
    profile_free(&profile);
    free(seconds);
    graph_free(&graph);
}
