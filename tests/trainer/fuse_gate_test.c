/* Rewrites of gates, their means and the factors behind them: each finds its pattern, and leaves alone what
 * it must. That results stay is in fusion_test, op_test and cuda_fusion_test. */
#include "trainer/graph/graph.h"

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"

/* A convolution, a gate, factors for its results, a convolution behind them. */
typedef struct Gated {
    DataType type;
    int64_t channels; /* of the gate's result */
    bool given;       /* the factors are an input */
    bool elsewhere;   /* something else reads the gate's result, */
    bool other;       /* or the means are of the image instead */
    bool frozen;      /* nothing in front of the gate is trained */
    int64_t groups;   /* of the convolution in front */
} Gated;

/* Appends the layers and the loss, fuses and differentiates. */
static Graph *graph_of(const Gated *of, unsigned fusions)
{
    const Conv2d front = {.channels = 2 * of->channels, .kernel = 1, .stride = 1, .bias = true};
    const Conv2d grouped = {.channels = 2 * of->channels,
                            .kernel = 3,
                            .stride = 1,
                            .padding = 1,
                            .bias = true,
                            .groups = of->groups};
    const Conv2d back = {.channels = 8, .kernel = 1, .stride = 1, .bias = true};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    TensorId x = graph_conv2d(graph, "front", test_image(graph, 2, 6, 3), &front);
    if (of->groups)
        x = graph_conv2d(graph, "grouped", x, &grouped);
    const TensorId y = graph_gate(graph, x);
    TensorId s = graph_global_avg_pool(graph, of->other ? x : y);
    s = graph_linear(graph, "factors", s, of->channels, true);
    if (of->given)
        s = graph_input(graph, "given", DATA_F32, 2, (int64_t[]){2, of->channels});
    TensorId z = graph_conv2d(graph, "back", graph_channel_multiply(graph, y, s), &back);
    z = graph_channel_scale(graph, "back", "beta", z, TENSOR_NONE);
    z = graph_linear(graph, "fc", graph_global_avg_pool(graph, z), 4, true);
    if (of->elsewhere)
        z = graph_add(graph, z, graph_linear(graph, "also", graph_flatten(graph, y), 4, false));
    if (of->frozen) {
        graph_freeze(graph, graph_find(graph, "front.weight"));
        graph_freeze(graph, graph_find(graph, "front.bias"));
    }
    test_finish(graph, z, fusions);
    return graph;
}

/* Returns whether the output is there, and says that this node makes it. */
static bool makes(const Graph *graph, const Node *node, int output)
{
    if (node->output_count <= output || node->outputs[output] == TENSOR_NONE)
        return false;
    assert_ptr_equal(graph_node(graph, graph_tensor(graph, node->outputs[output])->producer), node);
    return true;
}

TEST(test_a_gate_makes_the_means_that_factors_come_from)
{
    const Gated plain = {.type = DATA_F32, .channels = 16};
    Graph *graph = graph_of(&plain, FUSE_GATE_MEAN);
    const Node *gate = test_find_op(graph, OP_GATE), *back = test_find_op(graph, OP_GATE_BACKWARD),
               *multiply = test_find_op(graph, OP_CHANNEL_MULTIPLY_BACKWARD);
    assert_true(makes(graph, gate, GATE_MEANS));
    assert_int_equal(test_count_ops(graph, OP_GLOBAL_AVG_POOL), 1); /* the one before the classes */
    assert_int_equal(test_count_ops(graph, OP_GLOBAL_AVG_POOL_BACKWARD), 1);
    assert_int_equal(test_count_ops(graph, OP_ADD), 0);
    assert_int_equal(multiply->outputs[CHANNEL_BACK_DX], TENSOR_NONE);
    assert_true(makes(graph, multiply, CHANNEL_BACK_DFACTORS));
    assert_int_equal(back->inputs[GATE_BACK_DY], multiply->inputs[CHANNEL_BACK_DY]);
    assert_int_equal(back->inputs[GATE_BACK_FACTORS], multiply->inputs[CHANNEL_BACK_FACTORS]);
    assert_int_equal(back->inputs[GATE_BACK_DMEANS], graph_gradient(graph, gate->outputs[GATE_MEANS]));
    assert_int_not_equal(back->inputs[GATE_BACK_DMEANS], TENSOR_NONE);
    graph_free(&graph);
}

/* Returns whether the gate makes the means; its gradient has as many operands as `operands` says. */
static bool makes_means(const Gated *of, unsigned fusions, int operands)
{
    Graph *graph = graph_of(of, fusions);
    const Node *back = test_find_op(graph, OP_GATE_BACKWARD);
    const bool found = makes(graph, test_find_op(graph, OP_GATE), GATE_MEANS);
    int count = 0;
    for (int k = 0; back && k < back->input_count; k++)
        count += back->inputs[k] != TENSOR_NONE;
    assert_int_equal(count, operands);
    assert_int_equal(test_count_ops(graph, OP_GLOBAL_AVG_POOL), found ? 1 : 2);
    graph_free(&graph);
    return found;
}

TEST(test_other_gates_stay_as_they_are)
{
    const Gated plain = {.type = DATA_BF16, .channels = 16};
    Gated of = plain;
    assert_true(makes_means(&of, FUSE_GATE_MEAN, 4));
    assert_false(makes_means(&of, FUSE_ALL & ~(unsigned)FUSE_GATE_MEAN, 2));
    of.channels = 12;
    assert_false(makes_means(&of, FUSE_ALL, 2));
    of = plain;
    of.elsewhere = true;
    assert_false(makes_means(&of, FUSE_ALL, 2));
    of = plain;
    of.other = true; /* factors join the gate's gradient all the same */
    assert_false(makes_means(&of, FUSE_ALL, 3));
    of = plain;
    of.given = true;
    assert_false(makes_means(&of, FUSE_ALL, 3));
    of = plain;
    of.frozen = true; /* no gradient goes through the gate, nor through its means */
    assert_true(makes_means(&of, FUSE_ALL, 0));
}

TEST(test_a_multiplication_by_given_factors_leaves_no_gradient_node)
{
    Graph *graph = graph_of(&(Gated){.type = DATA_F32, .channels = 8, .given = true}, FUSE_ALL);
    assert_int_equal(test_count_ops(graph, OP_CHANNEL_MULTIPLY_BACKWARD), 0);
    graph_free(&graph);
}

TEST(test_gradients_of_gates_and_scales_make_those_of_biases)
{
    for (int type = 0; type < 2; type++)
        for (int grouped = 0; grouped < 2; grouped++) {
            const Gated of = {.type = type ? DATA_F32 : DATA_BF16, .channels = 8, .groups = grouped ? 16 : 0};
            Graph *graph = graph_of(&of, FUSE_ALL | FUSE_FUNCTION_BIAS);
            assert_int_equal(makes(graph, test_find_op(graph, OP_CHANNEL_SCALE_BACKWARD), CHANNEL_BACK_DBIAS),
                             !type);
            assert_int_equal(makes(graph, test_find_op(graph, OP_GATE_BACKWARD), GATE_BACK_DBIAS),
                             !type && !grouped); /* a depthwise one's own kernel makes its sums */
            graph_free(&graph);
        }
}
