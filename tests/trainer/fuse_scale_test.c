/* Layer scales that become part of the weights in front of them: the rewrite finds its pattern, and leaves
 * alone what it must. That results stay is in cuda_fusion_test. */
#include "trainer/graph/graph.h"

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"

enum { CHANNELS = 16 };

/* A layer and the scale of its result, behind a convolution of so many channels. */
typedef struct Scaled {
    int64_t channels, out;          /* of the layer */
    int64_t kernel, stride, groups; /* 0: 1 */
    const char *frozen;             /* a parameter */
    DataType type;
    bool is_linear, bias;
    bool addend;
    bool relu;      /* between layer and scale */
    bool elsewhere; /* something else reads the layer's result */
} Scaled;

static const Scaled plain = {.type = DATA_BF16, .channels = CHANNELS, .out = CHANNELS, .bias = true};

static TensorId layer(Graph *graph, const Scaled *of, TensorId x)
{
    const int64_t kernel = of->kernel ? of->kernel : 1;
    const Conv2d conv = {.channels = of->out,
                         .kernel = kernel,
                         .stride = of->stride ? of->stride : 1,
                         .padding = kernel / 2,
                         .bias = of->bias,
                         .groups = of->groups};
    return of->is_linear ? graph_linear_1x1(graph, "layer", x, of->out, of->bias)
                         : graph_conv2d(graph, "layer", x, &conv);
}

/* Appends the layers and the loss, fuses and differentiates. */
static Graph *graph_of(const Scaled *of, unsigned fusions)
{
    const Conv2d front = {.channels = of->channels, .kernel = 3, .stride = 1, .padding = 1, .bias = true};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    const TensorId x = graph_conv2d(graph, "front", test_image(graph, 2, 6, 3), &front);
    const TensorId y = layer(graph, of, x);
    TensorId z = graph_channel_scale(graph, "scale", "gamma", of->relu ? graph_relu(graph, y) : y,
                                     of->addend ? x : TENSOR_NONE);
    if (of->elsewhere)
        z = graph_add(graph, z, y);
    if (of->frozen)
        graph_freeze(graph, graph_find(graph, of->frozen));
    test_finish(graph, graph_linear(graph, "fc", graph_global_avg_pool(graph, z), 4, true), fusions);
    return graph;
}

/* Returns whether the scale is part of the layer. */
static bool joins(const Scaled *of, unsigned fusions)
{
    Graph *graph = graph_of(of, fusions);
    const size_t joined = test_count_ops(graph, OP_SCALED_LINEAR);
    assert_int_equal(test_count_ops(graph, OP_CHANNEL_SCALE), 1 - joined);
    assert_int_equal(test_count_ops(graph, OP_CHANNEL_SCALE_BACKWARD), 1 - joined);
    assert_int_equal(test_count_ops(graph, OP_SCALED_LINEAR_BACKWARD_WEIGHT), joined);
    graph_free(&graph);
    return joined;
}

static void assert_gradient_is(const Graph *graph, const char *parameter, TensorId gradient)
{
    assert_int_equal(graph_gradient(graph, graph_find(graph, parameter)), gradient);
}

TEST(test_the_gradients_of_layer_and_scale_are_made_together)
{
    Scaled of = plain;
    of.addend = true;
    Graph *graph = graph_of(&of, FUSE_LINEAR_SCALE);
    const Node *forward = test_find_op(graph, OP_SCALED_LINEAR),
               *weight = test_find_op(graph, OP_SCALED_LINEAR_BACKWARD_WEIGHT);
    assert_non_null(forward);
    assert_non_null(weight);
    const Node *front = graph_node(graph, graph_tensor(graph, forward->inputs[CONV_X])->producer);
    assert_string_equal(forward->name, "layer");
    assert_string_equal(front->name, "front");
    assert_int_equal(forward->inputs[LINEAR_ADDEND], forward->inputs[CONV_X]);
    assert_int_equal(forward->inputs[LINEAR_FACTORS], graph_find(graph, "scale.gamma"));
    assert_gradient_is(graph, "layer.weight", weight->outputs[CONV_WEIGHT_DWEIGHT]);
    assert_gradient_is(graph, "layer.bias", weight->outputs[CONV_WEIGHT_DBIAS]);
    assert_gradient_is(graph, "scale.gamma", weight->outputs[SCALED_LINEAR_BACK_DFACTORS]);
    size_t data = 0; /* gradients through the scaled weight */
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        data += node->op == OP_LINEAR_BACKWARD_DATA &&
                node->inputs[CONV_DATA_WEIGHT] == forward->outputs[LINEAR_SCALED_WEIGHT];
    }
    assert_int_equal(data, 1);
    graph_free(&graph);
}

TEST(test_products_of_pixels_take_the_scale_behind_them)
{
    Scaled with[] = {plain, plain, plain, plain, plain};
    with[1].is_linear = true;
    with[2].type = DATA_F32;
    with[3].bias = false;
    with[4].channels = CHANNELS / 2;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        if (!joins(&with[i], FUSE_LINEAR_SCALE) || !joins(&with[i], FUSE_ALL | FUSE_LINEAR_SCALE))
            fail_msg("case %zu: the scale is not part of the layer", i);
        assert_false(joins(&with[i], FUSE_ALL));
    }
}

TEST(test_other_scales_stay_as_they_are)
{
    Scaled without[] = {plain, plain, plain, plain, plain, plain, plain, plain, plain, plain, plain};
    size_t count = 0;
    without[count++].type = DATA_F16; /* of small factors nothing would be left */
    without[count++].kernel = 3;
    without[count++].stride = 2;
    without[count++].groups = 2;
    without[count++].relu = true;
    without[count++].elsewhere = true;
    without[count++].channels = CHANNELS - 4;
    without[count++].out = CHANNELS - 4;
    without[count++].frozen = "layer.weight";
    without[count++].frozen = "layer.bias";
    without[count++].frozen = "scale.gamma";
    assert_int_equal(count, sizeof without / sizeof *without);
    for (size_t i = 0; i < count; i++)
        if (joins(&without[i], FUSE_ALL | FUSE_LINEAR_SCALE))
            fail_msg("case %zu: the scale is part of the layer", i);
}
