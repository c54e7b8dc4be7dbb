/* Which parameters of a network are Muon's (trainer/graph/muon.h), and what it says of them. The numbers of
 * its update: update_test.c, cuda_muon_test.c. */
#include <math.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"
#include "trainer/graph/muon.h"
#include "trainer/models/models.h"

static const Optimizer muon = {
    .kind = OPTIMIZER_MUON,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .epsilon = 1e-8,
    .muon = {.rest = OPTIMIZER_ADAMW, .rest_rate = 0.25, .momentum = 0.95, .steps = 5, .nesterov = true}};

static Graph *fused_network(const char *name, const char *freeze, unsigned fusions)
{
    FshError error = {0};
    Graph *graph = NULL;
    const Model *model = model_find(name);
    const ModelSpec spec = {
        .batch = 2, .height = 32, .width = 32, .channels = 3, .classes = 10, .training = true};
    const ModelRecipe recipe = {
        .deviation = {1, 1, 1}, .optimizer = muon, .rules = {.freeze = freeze}, .fusions = fusions};
    assert_non_null(model);
    assert_ok(model_graph(model, &spec, &recipe, &graph, &error), &error);
    return graph;
}

static Graph *network(const char *name, const char *freeze)
{
    return fused_network(name, freeze, FUSE_ALL);
}

static bool is_muons(const Graph *graph, const char *name)
{
    const TensorId id = graph_find(graph, name);
    if (id == TENSOR_NONE)
        fail_msg("no tensor %s", name);
    return graph_tensor(graph, id)->muon;
}

TEST(test_hidden_convolutions_are_muons_and_first_and_last_layer_are_not)
{
    Graph *graph = network("resnet18", NULL);
    assert_true(is_muons(graph, "layer1.0.conv1.weight"));
    assert_true(is_muons(graph, "layer2.0.downsample.0.weight"));
    assert_true(is_muons(graph, "layer4.1.conv2.weight"));
    assert_false(is_muons(graph, "conv1.weight"));
    assert_false(is_muons(graph, "fc.weight"));
    assert_false(is_muons(graph, "layer1.0.bn1.weight"));
    assert_int_equal(muon_parameter_count(graph), graph_parameter_count(graph) - 64 * 147 - 512 * 10 - 10 -
                                                      2 * (64 * 5 + 128 * 5 + 256 * 5 + 512 * 5));
    graph_free(&graph);
}

TEST(test_matrices_keep_a_momentum_and_the_rest_two_moments)
{
    Graph *graph = network("resnet18", NULL);
    assert_true(graph_find(graph, "layer1.0.conv1.weight.momentum_buffer") != TENSOR_NONE);
    assert_true(graph_find(graph, "layer1.0.conv1.weight.exp_avg") == TENSOR_NONE);
    assert_true(graph_find(graph, "fc.weight.exp_avg_sq") != TENSOR_NONE);
    assert_true(graph_find(graph, "fc.weight.momentum_buffer") == TENSOR_NONE);
    graph_free(&graph);
}

TEST(test_the_rest_learns_at_its_own_rate)
{
    Graph *graph = network("resnet18", NULL);
    assert_true(graph_tensor(graph, graph_find(graph, "layer1.0.conv1.weight"))->rate == 1);
    assert_true(graph_tensor(graph, graph_find(graph, "fc.weight"))->rate == 0.25);
    assert_true(graph_tensor(graph, graph_find(graph, "bn1.bias"))->rate == 0.25);
    graph_free(&graph);
}

TEST(test_depthwise_filters_are_the_rests)
{
    Graph *graph = network("convnext_atto", NULL);
    assert_false(is_muons(graph, "stages.0.blocks.0.conv_dw.weight"));
    assert_true(is_muons(graph, "stages.0.blocks.0.mlp.fc1.weight"));
    assert_false(is_muons(graph, "stem.0.weight"));
    assert_false(is_muons(graph, "head.fc.weight"));
    graph_free(&graph);
}

TEST(test_weights_that_a_layer_scales_are_muons)
{
    for (int scaled = 0; scaled < 2; scaled++) {
        Graph *graph = fused_network("convnext_atto", NULL, FUSE_ALL | (scaled ? FUSE_LINEAR_SCALE : 0));
        assert_int_equal(test_count_ops(graph, OP_SCALED_LINEAR), scaled ? 12 : 0); /* one in each block */
        assert_true(is_muons(graph, "stages.0.blocks.0.mlp.fc2.weight"));
        assert_false(is_muons(graph, "stages.0.blocks.0.gamma"));
        graph_free(&graph);
    }
}

TEST(test_frozen_matrices_are_not_moved)
{
    Graph *graph = network("resnet18", "conv1,bn1,layer1,layer2");
    assert_false(is_muons(graph, "layer2.0.conv1.weight"));
    assert_true(is_muons(graph, "layer3.0.conv1.weight"));
    graph_free(&graph);
}

TEST(test_a_network_without_hidden_matrices_is_refused)
{
    FshError error = {0};
    Graph *graph = NULL;
    const ModelSpec spec = {
        .batch = 2, .height = 32, .width = 32, .channels = 3, .classes = 10, .training = true};
    const ModelRecipe recipe = {.deviation = {1, 1, 1}, .optimizer = muon, .rules = {.head_only = true}};
    assert_int_equal(model_graph(model_find("resnet18"), &spec, &recipe, &graph, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message,
                        "resnet18: muon moves the matrices of hidden layers, and it trains none: "
                        "take --opt adamw");
}

TEST(test_scales_are_those_of_torch_and_timm)
{
    const Tensor wide = {.rank = 4, .shape = {16, 4, 3, 3}}, tall = {.rank = 2, .shape = {64, 16}};
    MuonRule rule = {.scale = MUON_ORIGINAL};
    assert_true(muon_scale(&rule, &wide) == 1 && muon_scale(&rule, &tall) == 2);
    rule.scale = MUON_SPECTRAL_UNCLAMPED;
    assert_true(muon_scale(&rule, &wide) == sqrt(16.0 / 36) && muon_scale(&rule, &tall) == 2);
    rule.scale = MUON_MATCH_RMS_ADAMW;
    assert_true(muon_scale(&rule, &wide) == 0.2 * 6 && muon_scale(&rule, &tall) == 0.2 * 8);
}

TEST(test_the_updates_operations_are_those_of_the_products)
{
    Graph *graph = network("resnet18", NULL);
    const Tensor *weight = graph_tensor(graph, graph_find(graph, "layer1.0.conv1.weight"));
    const NodeId update = (NodeId)graph_node_count(graph) - 1;
    assert_int_equal(muon_step_flops(weight), 4LL * 64 * 64 * 576 + 2LL * 64 * 64 * 64);
    assert_true(graph_node_flops(graph, update) > 5 * 16 * muon_step_flops(weight));
    assert_true(graph_forward_flops(graph) < graph_node_flops(graph, update));
    graph_free(&graph);
}
