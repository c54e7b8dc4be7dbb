/* Which parameters are trained, and with what part of the learning rate: layers and factors as timm has them
 * (golden/make_golden_optim.py), patterns, and what is computed for what is frozen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/network_support.h"
#include "trainer/models/models.h"

static FshStatus make(const char *name, const ParameterRules *rules, Graph **graph_ret, FshError *error)
{
    const ModelSpec spec = {
        .batch = 2, .height = 64, .width = 64, .channels = 3, .classes = TEST_CLASSES, .training = true};
    const Model *model = model_find(name);
    assert_non_null(model);
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1},
                                .loss = model->task == TASK_RESTORATION ? LOSS_L1 : LOSS_CROSS_ENTROPY,
                                .rules = *rules,
                                .optimizer = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .ema_decay = 0.9}};
    return model_graph(model, &spec, &recipe, graph_ret, error);
}

static Graph *graph_with(const char *name, const ParameterRules *rules)
{
    Graph *graph = NULL;
    FshError error = {0};
    if (make(name, rules, &graph, &error))
        fail_msg("%s", error.message);
    return graph;
}

static const Tensor *parameter(const Graph *graph, const char *name)
{
    const TensorId id = graph_find(graph, name);
    if (id == TENSOR_NONE)
        fail_msg("no parameter %s", name);
    return graph_tensor(graph, id);
}

static bool has_gradient(const Graph *graph, const char *name)
{
    return graph_gradient(graph, graph_find(graph, name)) != TENSOR_NONE;
}

static int count_nodes(const Graph *graph, OpKind op)
{
    int count = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++)
        count += graph_node(graph, (NodeId)i)->op == op;
    return count;
}

/* ---- layers ---- */

TEST(test_layers_and_their_decay_are_timms)
{
    json_t *document = golden_load("parameter_groups.json"), *network, *row;
    const double decay = golden_real(document, "layer_decay");
    size_t i, k;
    json_array_foreach(json_object_get(document, "networks"), i, network)
    {
        const char *name = golden_text(network, "name");
        const json_t *rows = json_object_get(network, "layers");
        Graph *graph = graph_with(name, &(ParameterRules){.layer_decay = decay});
        int *layers = calloc(graph_tensor_count(graph), sizeof *layers), parameters = 0;
        assert_non_null(layers);
        (void)parameter_layers(graph, model_find(name)->blocks, layers);
        for (size_t t = 0; t < graph_tensor_count(graph); t++)
            parameters += layers[t] >= 0;
        assert_int_equal(parameters, json_array_size(rows));
        json_array_foreach(rows, k, row)
        {
            const char *of = json_string_value(json_array_get(row, 0));
            const double factor = json_number_value(json_array_get(row, 2));
            const Tensor *tensor = parameter(graph, of);
            const json_int_t layer = json_integer_value(json_array_get(row, 1));
            if (layers[graph_find(graph, of)] != layer || fabs(tensor->rate / factor - 1) > 1e-6)
                fail_msg("%s: %s is in layer %d with factor %g, not %lld with %g", name, of,
                         layers[graph_find(graph, of)], tensor->rate, (long long)layer, factor);
        }
        free(layers);
        graph_free(&graph);
    }
    assert_true(i >= 5);
    json_decref(document);
}

TEST(test_networks_with_blocks_have_each_block_as_a_layer)
{
    static const struct {
        const char *name;
        int layers; /* stem, blocks, head */
    } cases[] = {{"resnet18", 1 + 8 + 1},
                 {"resnet9", 1 + 3 + 1},
                 {"xresnet18", 1 + 8 + 1},
                 {"unet", 1 + 4 * 3 + 1 + 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = graph_with(cases[i].name, &(ParameterRules){0});
        int *layers = calloc(graph_tensor_count(graph), sizeof *layers);
        assert_non_null(layers);
        const int count = parameter_layers(graph, model_find(cases[i].name)->blocks, layers);
        if (count != cases[i].layers)
            fail_msg("%s: %d layers, not %d", cases[i].name, count, cases[i].layers);
        free(layers);
        graph_free(&graph);
    }
}

/* ---- patterns ---- */

TEST(test_the_first_pattern_that_matches_sets_the_rate)
{
    Graph *graph =
        graph_with("resnet18", &(ParameterRules){.rates = "layer1=0.25,layer?.0.conv1.weight=3,*.bias=0.5"});
    assert_true(parameter(graph, "layer1.0.conv1.weight")->rate == 0.25);
    assert_true(parameter(graph, "layer1.1.bn2.bias")->rate == 0.25);
    assert_true(parameter(graph, "layer2.0.conv1.weight")->rate == 3);
    assert_true(parameter(graph, "layer2.1.bn1.bias")->rate == 0.5);
    assert_true(parameter(graph, "fc.bias")->rate == 0.5);
    assert_true(parameter(graph, "fc.weight")->rate == 1);
    graph_free(&graph);
    graph = graph_with("resnet18", &(ParameterRules){.rates = "fc=10", .layer_decay = 0.5});
    assert_true(parameter(graph, "fc.weight")->rate == 10);
    assert_true(parameter(graph, "layer4.1.conv1.weight")->rate == 0.5);
    assert_true(parameter(graph, "conv1.weight")->rate == pow(0.5, 9));
    graph_free(&graph);
}

static void assert_refused(const char *network, const ParameterRules *rules, const char *message)
{
    Graph *graph = NULL;
    FshError error = {0};
    assert_int_equal(make(network, rules, &graph, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, message);
}

TEST(test_patterns_that_match_nothing_are_refused_with_what_is_near)
{
    assert_refused("resnet18", &(ParameterRules){.freeze = "conv1,layr1"},
                   "resnet18: --freeze: 'layr1' matches no parameter; did you mean layer1? the network has "
                   "conv1, bn1, layer1, layer2, layer3, layer4, fc");
    assert_refused("resnet18", &(ParameterRules){.rates = "stages.*=0.1"},
                   "resnet18: --lr-of: 'stages.*' matches no parameter; the network has conv1, bn1, layer1, "
                   "layer2, layer3, layer4, fc");
    assert_refused("conv8", &(ParameterRules){.freeze = "backbone"}, /* whose names all begin with model */
                   "conv8: --freeze: 'backbone' matches no parameter; the network has model.1, model.2, "
                   "model.5, model.6, model.9, model.10, model.13, model.14 and 9 more up to model.33");
    assert_refused("resnet18", &(ParameterRules){.rates = "fc"},
                   "resnet18: --lr-of: 'fc' is not PATTERN=FACTOR, with a factor of 0 to 1e6");
    assert_refused("resnet18", &(ParameterRules){.rates = "fc=ten"},
                   "resnet18: --lr-of: 'fc=ten' is not PATTERN=FACTOR, with a factor of 0 to 1e6");
    assert_refused("resnet18", &(ParameterRules){.freeze = "*"},
                   "resnet18: --freeze: '*' leaves no parameter to train");
    assert_refused("conv8", &(ParameterRules){.layer_decay = 0.5},
                   "conv8: --layer-decay: the network has no blocks to tell layers by; --lr-of gives layers "
                   "their own learning rates");
    assert_refused("unet", &(ParameterRules){.head_only = true},
                   "unet: --head-only: the network ends in no linear layer; --freeze names what stays");
}

/* ---- what is frozen ---- */

TEST(test_nothing_is_computed_for_a_frozen_front)
{
    Graph *graph = graph_with("resnet18", &(ParameterRules){.head_only = true});
    assert_int_equal(graph_trained_count(graph), 512 * TEST_CLASSES + TEST_CLASSES);
    assert_int_equal(graph_parameter_count(graph), 11176512 + 512 * TEST_CLASSES + TEST_CLASSES);
    assert_int_equal(count_nodes(graph, OP_LINEAR_BACKWARD_WEIGHT), 1);
    assert_int_equal(count_nodes(graph, OP_LINEAR_BACKWARD_DATA), 0);
    assert_int_equal(count_nodes(graph, OP_CONV2D_BACKWARD_WEIGHT), 0);
    assert_int_equal(count_nodes(graph, OP_BATCH_NORM_BACKWARD), 0);
    assert_true(has_gradient(graph, "fc.weight") && has_gradient(graph, "fc.bias"));
    assert_false(has_gradient(graph, "layer4.1.conv2.weight"));
    assert_true(graph_find(graph, "layer4.1.conv2.weight.momentum_buffer") == TENSOR_NONE);
    assert_true(graph_find(graph, "layer4.1.conv2.weight.ema") == TENSOR_NONE);
    graph_free(&graph);

    graph = graph_with("resnet18", &(ParameterRules){.freeze = "conv1,bn1,layer1"});
    assert_int_equal(count_nodes(graph, OP_CONV2D_BACKWARD_WEIGHT), 20 - 1 - 4);
    assert_int_equal(count_nodes(graph, OP_CONV2D_BACKWARD_DATA), 20 - 1 - 4 - 2); /* two read layer1's y */
    graph_free(&graph);
}

TEST(test_norms_of_frozen_layers_stand_still)
{
    Graph *graph = graph_with("resnet18", &(ParameterRules){.freeze = "layer2,bn1.weight"});
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_BATCH_NORM || node->op == OP_BATCH_NORM_BACKWARD)
            assert_int_equal(node->as.norm.options.training, strncmp(node->name, "layer2.", 7) != 0);
    }
    graph_free(&graph);
}

static bool has_a_gradient(const TestNetwork *network, const Tensor *tensor)
{
    char name[GRAPH_NAME_MAX + 8];
    size_t count;
    bool any = false;
    (void)snprintf(name, sizeof name, "%s.grad", tensor->name);
    float *values = test_read(network->program, name, &count);
    for (size_t i = 0; i < count; i++)
        any = any || values[i] != 0;
    free(values);
    return any;
}

/* Checks a parameter against what it was before a run, and what is kept of it. */
static void check_part(const TestNetwork *network, TensorId id, const float *before, const char *what)
{
    static const char *const kept[] = {"momentum_buffer", "ema"};
    const Tensor *tensor = graph_tensor(network->graph, id);
    size_t count;
    float *after = test_read(network->program, tensor->name, &count);
    bool same = true, finite = true;
    for (size_t i = 0; i < count; i++) {
        same = same && before[i] == after[i];
        finite = finite && isfinite(after[i]);
    }
    if (!finite || same != (tensor->frozen || !has_a_gradient(network, tensor)))
        fail_msg("%s: %s %s", what, tensor->name, finite ? same ? "does not move" : "moves" : "is no number");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char name[GRAPH_NAME_MAX + 24];
        (void)snprintf(name, sizeof name, "%s.%s", tensor->name, kept[i]);
        assert_int_equal(graph_find(network->graph, name) == TENSOR_NONE, tensor->frozen);
    }
    free(after);
}

/* Trains a network for a step, of which a part is frozen. */
static void train_part(Backend *backend, const char *name, const char *freeze)
{
    FshError error = {0};
    TestNetwork network = {.backend = backend,
                           .graph = graph_with(name, &(ParameterRules){.freeze = freeze})};
    const Graph *graph = network.graph;
    const size_t tensors = graph_tensor_count(graph);
    const float rate = 0.05F;
    char what[256];
    float **before = calloc(tensors, sizeof *before);
    assert_non_null(before);
    (void)snprintf(what, sizeof what, "%s without %s", name, freeze);
    test_check(state_new(&network.state, backend, graph, &error), &error);
    test_check(state_initialize(network.state, 3, &error), &error);
    test_check(program_new(&network.program, network.state, graph, &error), &error);
    test_write_batch(network.program);
    test_check(program_write(network.program, graph_find(graph, "learning_rate"), &rate, sizeof rate, &error),
               &error);
    for (size_t t = 0; t < tensors; t++)
        if (graph_tensor(graph, (TensorId)t)->role == TENSOR_PARAMETER)
            before[t] = test_read(network.program, graph_tensor(graph, (TensorId)t)->name, NULL);
    test_check(program_poison(network.program, &error), &error);
    test_run(network.program);
    for (size_t t = 0; t < tensors; t++)
        if (before[t])
            check_part(&network, (TensorId)t, before[t], what);
    for (size_t t = 0; t < tensors; t++)
        free(before[t]);
    free(before);
    test_network_free(&network);
}

TEST(test_parts_of_networks_are_trained_alone)
{
    Backend *backend = test_backend(2);
    train_part(backend, "resnet18", "conv1,bn1,layer1");
    train_part(backend, "resnet18", "*.weight"); /* biases alone: BitFit */
    train_part(backend, "resnet18", "*.bias");
    train_part(backend, "convnext_atto", "stem,stages.0.blocks.0.conv_dw,*.norm.weight,*.gamma,*.fc1.weight");
    train_part(backend, "seresnet50", "layer*.conv1,*.fc1,*.bn2.bias");
    train_part(backend, "vit_tiny_patch16", "pos_embed,blocks.0.norm1.bias,blocks.0.attn.qkv.weight");
    train_part(backend, "vit_tiny_patch16", "patch_embed,cls_token,blocks.0.norm1");
    train_part(backend, "convnextv2_atto", "stem.0,stem.1.bias,stages.0.blocks.0.mlp.grn.weight");
    backend_close(&backend);
}
