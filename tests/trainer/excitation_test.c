/* The layers of squeeze and excitation as one node (FUSE_EXCITATION): where it is made and where not, its
 * gradients, and what else depends on which layers a graph has. Its numbers: excite_kernel_test,
 * cuda_fusion_test. */
#include <string.h>

#include "tests/support/support.h"
#include "trainer/graph/lanes.h"
#include "trainer/models/models.h"

enum { BATCH = 4, CHANNELS = 32, HIDDEN = 8 };

/* What of the pattern is otherwise. PLAIN, FIRST_FROZEN: the pattern is there. */
typedef enum Way {
    PLAIN,
    FIRST_FROZEN, /* the first layer's weight and the second's bias */
    ALL_FROZEN,   /* the layers, but not what is before them */
    FOUND,
    LEAKY = FOUND,
    WITHOUT_BIAS,
    READ_TWICE,
    KEPT,
    OF_AN_IMAGE,
    OF_AN_INPUT, /* nothing needs its gradient */
    LARGE,
    WAYS
} Way;

static TensorId layer(Graph *graph, const char *name, TensorId x, int64_t channels, bool bias)
{
    return graph_linear_1x1(graph, name, x, channels, bias);
}

static void freeze(Graph *graph, const char *name)
{
    graph_freeze(graph, graph_find(graph, name));
}

/* Returns a network that ends in squeeze and excitation and a layer, fused and differentiated. */
static Graph *network(Way way, DataType type, TensorId (*activate)(Graph *, TensorId), unsigned fusions)
{
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    const BatchNorm norm = {.training = true};
    const int64_t batch = way == LARGE ? 1 << 18 : BATCH;
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, 2, 2, 3});
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, &batch),
                   given = graph_input(graph, "given", DATA_F32, 2, (int64_t[]){batch, CHANNELS});
    x = graph_conv2d(graph, "conv", graph_normalize(graph, x, mean, deviation),
                     &(Conv2d){.channels = CHANNELS, .kernel = 1, .stride = 1});
    x = graph_batch_norm(graph, "norm", x, &norm);
    TensorId s = way == OF_AN_INPUT   ? graph_cast(graph, given, type)
                 : way == OF_AN_IMAGE ? x
                                      : graph_global_avg_pool(graph, x);
    const TensorId sums = layer(graph, "squeeze", s, HIDDEN, way != WITHOUT_BIAS);
    s = way == LEAKY ? graph_leaky_relu(graph, sums, 0.5F) : activate(graph, sums);
    if (way == READ_TWICE)
        s = graph_add(graph, s, sums);
    if (way == KEPT)
        graph_keep(graph, s, "hidden");
    s = graph_sigmoid(graph, layer(graph, "excite", s, CHANNELS, true));
    if (way == OF_AN_IMAGE)
        s = graph_global_avg_pool(graph, s);
    x = graph_global_avg_pool(graph, graph_channel_multiply(graph, x, s));
    x = graph_cast(graph, graph_linear(graph, "classes", x, 3, true), DATA_F32);
    if (way == FIRST_FROZEN || way == ALL_FROZEN) {
        freeze(graph, "squeeze.weight");
        freeze(graph, "excite.bias");
    }
    if (way == ALL_FROZEN) {
        freeze(graph, "squeeze.bias");
        freeze(graph, "excite.weight");
    }
    graph_fuse(graph, fusions);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, x, label, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    return graph;
}

/* Returns the one node of this kind; NULL: there is none. */
static const Node *node_of(const Graph *graph, OpKind op)
{
    const Node *found = NULL;
    for (size_t n = 0; n < graph_node_count(graph); n++)
        if (graph_node(graph, (NodeId)n)->op == op) {
            assert_null(found);
            found = graph_node(graph, (NodeId)n);
        }
    return found;
}

TEST(test_both_layers_and_their_activations_become_one_node)
{
    static const struct {
        OpKind op;
        TensorId (*append)(Graph *graph, TensorId x);
    } functions[] = {
        {OP_RELU, graph_relu}, {OP_GELU, graph_gelu}, {OP_SILU, graph_silu}, {OP_MISH, graph_mish}};
    for (int i = 0; i < 8; i++) {
        const DataType type = i % 2 ? DATA_F16 : DATA_F32;
        Graph *graph = network(PLAIN, type, functions[i / 2].append, FUSE_ALL | FUSE_EXCITATION);
        const Node *excite = node_of(graph, OP_EXCITE), *gate = node_of(graph, OP_NORM_GATE),
                   *squeeze = node_of(graph, OP_NORM_SQUEEZE), *last = node_of(graph, OP_LINEAR);
        assert_true(excite && gate && squeeze && last);
        assert_int_equal(excite->as.excite.activation, functions[i / 2].op);
        assert_string_equal(excite->name, "squeeze");
        assert_string_equal(last->name, "classes");
        assert_int_equal(excite->inputs[EXCITE_X], squeeze->outputs[NORM_Y]);
        assert_int_equal(excite->outputs[EXCITE_GATES], gate->inputs[NORM_GATE_FACTORS]);
        assert_null(node_of(graph, functions[i / 2].op));
        assert_null(node_of(graph, OP_SIGMOID));
        assert_null(node_of(graph, OP_SIGMOID_BACKWARD));
        for (int k = 0; k < excite->output_count; k++) {
            const Tensor *output = graph_tensor(graph, excite->outputs[k]);
            assert_ptr_equal(graph_node(graph, output->producer), excite);
            assert_int_equal(output->type, k == EXCITE_GATES ? DATA_F32 : type);
            assert_int_equal(output->shape[1], k == EXCITE_GATES ? CHANNELS : HIDDEN);
        }
        graph_free(&graph);
    }
}

TEST(test_layers_that_are_otherwise_are_left_alone)
{
    for (int way = 0; way < WAYS; way++)
        for (int type = 0; type < 2; type++) {
            Graph *graph =
                network((Way)way, type ? DATA_BF16 : DATA_F32, graph_silu, FUSE_ALL | FUSE_EXCITATION);
            if ((node_of(graph, OP_EXCITE) != NULL) != (way < FOUND))
                fail_msg("way %d: one node is%s made", way, way < FOUND ? " not" : "");
            graph_free(&graph);
            graph = network((Way)way, type ? DATA_BF16 : DATA_F32, graph_silu, FUSE_ALL);
            assert_null(node_of(graph, OP_EXCITE));
            graph_free(&graph);
        }
}

TEST(test_every_trained_weight_has_its_gradient_and_a_frozen_one_none)
{
    static const char *const names[] = {"squeeze.weight", "squeeze.bias", "excite.weight", "excite.bias"};
    for (int way = 0; way < FOUND; way++) {
        Graph *graph = network((Way)way, DATA_F16, graph_mish, FUSE_ALL | FUSE_EXCITATION);
        const Node *weights = node_of(graph, OP_EXCITE_BACKWARD_WEIGHT),
                   *backward = node_of(graph, OP_EXCITE_BACKWARD);
        assert_non_null(backward);
        assert_int_equal(weights != NULL, way != ALL_FROZEN);
        for (int i = 0; i < 4; i++) {
            const bool frozen = way == ALL_FROZEN || (way == FIRST_FROZEN && (i == 0 || i == 3));
            const TensorId gradient = graph_gradient(graph, graph_find(graph, names[i]));
            assert_int_equal(gradient == TENSOR_NONE, frozen);
            if (weights)
                assert_int_equal(weights->outputs[i], gradient);
        }
        assert_int_equal(graph_tensor(graph, backward->outputs[EXCITE_BACK_DLOGITS])->type, DATA_F16);
        assert_int_equal(graph_tensor(graph, backward->outputs[EXCITE_BACK_DSUMS])->shape[1], HIDDEN);
        assert_int_not_equal(graph_gradient(graph, graph_find(graph, "conv.weight")), TENSOR_NONE);
        graph_free(&graph);
    }
}

TEST(test_the_operations_are_those_of_the_layers)
{
    Graph *fused = network(PLAIN, DATA_F32, graph_relu, FUSE_ALL | FUSE_EXCITATION),
          *apart = network(PLAIN, DATA_F32, graph_relu, FUSE_ALL);
    int64_t sums[2] = {0, 0};
    assert_true(graph_forward_flops(fused) == graph_forward_flops(apart));
    for (int i = 0; i < 2; i++) {
        const Graph *graph = i ? apart : fused;
        for (size_t n = 0; n < graph_node_count(graph); n++)
            sums[i] += graph_node_flops(graph, (NodeId)n);
    }
    assert_true(sums[0] == sums[1]);
    graph_free(&fused);
    graph_free(&apart);
}

TEST(test_the_gradients_of_weights_lie_beside)
{
    Graph *graph = network(PLAIN, DATA_F16, graph_relu, FUSE_ALL | FUSE_EXCITATION);
    FshError error = {0};
    LanePlan lanes;
    assert_ok(lane_plan_make(graph, 4, &lanes, &error), &error);
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const OpKind op = graph_node(graph, (NodeId)n)->op;
        if (op == OP_EXCITE_BACKWARD_WEIGHT || op == OP_EXCITE_BACKWARD)
            assert_int_equal(lanes.beside[n], op == OP_EXCITE_BACKWARD_WEIGHT);
    }
    lane_plan_free(&lanes);
    graph_free(&graph);
}

static Graph *muon_network(unsigned fusions)
{
    FshError error = {0};
    Graph *graph = NULL;
    const ModelSpec spec = {
        .batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10, .training = true};
    const ModelRecipe recipe = {
        .deviation = {1, 1, 1},
        .fusions = fusions,
        .optimizer = {.kind = OPTIMIZER_MUON,
                      .beta1 = 0.9,
                      .beta2 = 0.999,
                      .epsilon = 1e-8,
                      .muon = {.rest = OPTIMIZER_ADAMW, .momentum = 0.95, .steps = 5}}};
    assert_ok(model_graph(model_find("seresnet50"), &spec, &recipe, &graph, &error), &error);
    return graph;
}

TEST(test_muon_moves_the_same_matrices)
{
    Graph *fused = muon_network(FUSE_ALL | FUSE_EXCITATION), *apart = muon_network(FUSE_ALL);
    size_t of_layers = 0;
    for (size_t t = 0; t < graph_tensor_count(apart); t++) {
        const Tensor *tensor = graph_tensor(apart, (TensorId)t);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        if (graph_tensor(fused, graph_find(fused, tensor->name))->muon != tensor->muon)
            fail_msg("%s is Muon's with one set of fusions", tensor->name);
        of_layers += tensor->muon && strstr(tensor->name, ".se.") != NULL;
    }
    assert_int_equal(of_layers, 2 * 16);
    graph_free(&fused);
    graph_free(&apart);
}
