/* The graph: shapes, names, failures, gradients as nodes, and the memory plan. Its rewrites: fuse_test. */
#include "trainer/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"
#include "trainer/graph/memory_plan.h"
#include "trainer/models/models.h"

static TensorId image_input(Graph *graph, int64_t batch, int64_t size, int64_t channels)
{
    return graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, size, size, channels});
}

static void assert_shape(const Graph *graph, TensorId id, const char *wanted)
{
    char text[96];
    FshError error = {0};
    if (graph_check(graph, &error))
        fail_msg("%s", error.message);
    assert_string_equal(tensor_shape_text(graph_tensor(graph, id), text, sizeof text), wanted);
}

/* Asserts that the graph has failed with this status and message; frees the graph. */
static void assert_failure(Graph *graph, FshStatus status, const char *message)
{
    FshError error = {0};
    assert_int_equal(graph_check(graph, &error), status);
    assert_string_equal(error.message, message);
    assert_int_equal(graph_relu(graph, 0), TENSOR_NONE);
    graph_free(&graph);
}

static Graph *model(const char *name, int64_t batch, int64_t size, bool training, FshError *error)
{
    Graph *graph = NULL;
    const ModelSpec spec = {
        .batch = batch, .height = size, .width = size, .channels = 3, .classes = 10, .training = training};
    const ModelRecipe recipe = {.mean = {0.5, 0.5, 0.5},
                                .deviation = {0.25, 0.25, 0.25},
                                .optimizer = {.momentum = 0.9, .weight_decay = 1e-4}};
    FshStatus status = model_graph(model_find(name), &spec, &recipe, &graph, error);
    assert_int_equal(status != FSH_OK, graph == NULL);
    return graph;
}

static Graph *model_or_fail(const char *name, int64_t batch, int64_t size, bool training)
{
    FshError error = {0};
    Graph *graph = model(name, batch, size, training, &error);
    if (!graph)
        fail_msg("%s", error.message);
    return graph;
}

/* ---- shapes and names ---- */

TEST(test_every_op_has_a_row)
{
    for (int op = 0; op < OP_KIND_COUNT; op++) {
        if (!op_name((OpKind)op))
            fail_msg("op %d has no row in the op table", op);
        for (int other = 0; other < op; other++)
            assert_string_not_equal(op_name((OpKind)op), op_name((OpKind)other));
    }
}

TEST(test_shapes_follow_pytorch)
{
    Graph *graph = graph_new();
    TensorId x = test_image(graph, 2, 65, 3);
    x = graph_conv2d(graph, "conv", x, &(Conv2d){.channels = 8, .kernel = 7, .stride = 2, .padding = 3});
    assert_shape(graph, x, "2 x 33 x 33 x 8");
    assert_shape(graph, graph_find(graph, "conv.weight"), "8 x 3 x 7 x 7");
    assert_shape(graph, graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1}),
                 "2 x 17 x 17 x 8");
    assert_shape(graph, graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2}), "2 x 16 x 16 x 8");
    assert_shape(graph, graph_reflection_pad(graph, x, 2), "2 x 37 x 37 x 8");
    assert_shape(graph, graph_global_avg_pool(graph, x), "2 x 8");
    x = graph_flatten(graph, graph_avg_pool(graph, x, &(Pool2d){.kernel = 8, .stride = 8}));
    assert_shape(graph, x, "2 x 128");
    assert_shape(graph, graph_linear(graph, "fc", x, 5, true), "2 x 5");
    assert_shape(graph, graph_find(graph, "fc.weight"), "5 x 128");
    assert_shape(graph, graph_find(graph, "fc.bias"), "5");
    graph_free(&graph);
    assert_null(graph);
}

TEST(test_resnet18_is_torchvisions)
{
    Graph *graph = model_or_fail("resnet18", 1, 224, true);
    /* torchvision's resnet18 has 11,689,512 parameters with 1000 classes, and 1.814 G multiply-adds. */
    assert_int_equal(graph_parameter_count(graph), 11689512 - 990 * 513);
    assert_int_equal(graph_forward_flops(graph), INT64_C(2) * (INT64_C(1814073344) - 990 * 512));
    static const char *const names[] = {"conv1.weight",
                                        "bn1.running_var",
                                        "layer1.0.conv1.weight",
                                        "layer2.0.downsample.0.weight",
                                        "layer2.0.downsample.1.running_mean",
                                        "layer4.1.bn2.bias",
                                        "fc.weight",
                                        "fc.weight.grad",
                                        "fc.weight.momentum_buffer",
                                        "logits",
                                        "loss",
                                        "learning_rate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (graph_find(graph, names[i]) == TENSOR_NONE)
            fail_msg("%s is missing", names[i]);
    assert_int_equal(graph_find(graph, "conv1.bias"), TENSOR_NONE);
    assert_true(graph_tensor(graph, graph_find(graph, "conv1.weight"))->decays);
    assert_false(graph_tensor(graph, graph_find(graph, "bn1.weight"))->decays);
    assert_false(graph_tensor(graph, graph_find(graph, "fc.bias"))->decays);
    graph_free(&graph);
}

TEST(test_conv8_is_its_sources)
{
    Graph *graph = NULL;
    const ModelSpec spec = {
        .batch = 4, .height = 28, .width = 28, .channels = 1, .classes = 10, .training = true};
    const ModelRecipe recipe = {.mean = {0.5}, .deviation = {0.5}, .optimizer = {.momentum = 0.9}};
    FshError error = {0};
    assert_int_equal(model_graph(model_find("conv8"), &spec, &recipe, &graph, &error), FSH_OK);
    assert_shape(graph, graph_find(graph, "model.33.weight"), "10 x 128");
    assert_shape(graph, graph_find(graph, "model.29.weight"), "32 x 32 x 3 x 3");
    assert_shape(graph, graph_find(graph, "model.30.running_mean"), "32");
    assert_shape(graph, graph_find(graph, "model.1.bias"), "3");
    graph_free(&graph);
}

TEST(test_models_are_found_by_name)
{
    assert_null(model_find("resnet19"));
    assert_string_equal(model_find("resnet18")->name, "resnet18");
}

/* ---- failures ---- */

TEST(test_kernel_that_does_not_fit_names_layer_and_shapes)
{
    Graph *graph = graph_new();
    graph_conv2d(graph, "layer3.0.conv1", test_image(graph, 2, 1, 3),
                 &(Conv2d){.channels = 8, .kernel = 3, .stride = 1});
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "layer3.0.conv1: kernel 3 with padding 0 does not fit a 1 x 1 input; use larger images");
    graph = graph_new(); /* one pixel short, and a stride that would round it away */
    graph_conv2d(graph, "conv", test_image(graph, 2, 2, 3),
                 &(Conv2d){.channels = 8, .kernel = 3, .stride = 2});
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "conv: kernel 3 with padding 0 does not fit a 2 x 2 input; use larger images");
    graph = graph_new();
    graph_max_pool(graph, test_image(graph, 2, 2, 3), &(Pool2d){.kernel = 5, .stride = 1, .padding = 1});
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "image.normalize.max_pool: kernel 5 with padding 1 does not fit a 2 x 2 input; use larger images");
    graph = graph_new();
    graph_reflection_pad(graph, test_image(graph, 2, 2, 3), 2);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize.reflection_pad: a reflection pad of 2 does not fit a 2 x 2 input; use "
                   "larger images");
}

TEST(test_first_failure_stays)
{
    Graph *graph = graph_new();
    TensorId x = test_image(graph, 2, 8, 3);
    x = graph_conv2d(graph, "a", x, &(Conv2d){.channels = 0, .kernel = 3, .stride = 1});
    assert_int_equal(x, TENSOR_NONE);
    x = graph_batch_norm(graph, "b", x, &(BatchNorm){.training = true});
    graph_keep(graph, graph_linear(graph, "c", graph_flatten(graph, x), 10, true), "logits");
    assert_failure(
        graph, FSH_ERR_USAGE,
        "a: conv2d with 0 channels, kernel 3, stride 1, padding 0; all but the padding must be positive");
}

TEST(test_wrong_operands_are_refused)
{
    Graph *graph = graph_new();
    graph_add(graph, test_image(graph, 2, 8, 3), graph_input(graph, "other", DATA_F32, 2, (int64_t[]){2, 8}));
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "image.normalize.add: add needs two float tensors of one shape, not f32 [2 x 8 x 8 x 3] and "
        "f32 [2 x 8]");
    graph = graph_new();
    graph_linear(graph, "fc", graph_input(graph, "cube", DATA_F32, 3, (int64_t[]){2, 8, 3}), 10, true);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "fc: linear needs a float matrix [N, C] or image [N, H, W, C], not f32 [2 x 8 x 3]");
    graph = graph_new();
    graph_conv2d(graph, "conv", image_input(graph, 2, 8, 3),
                 &(Conv2d){.channels = 4, .kernel = 1, .stride = 1});
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "conv: conv2d needs a float image [N, H, W, C], not u8 [2 x 8 x 8 x 3]");
    graph = graph_new();
    graph_batch_norm(graph, "bn",
                     graph_conv2d(graph, "c", test_image(graph, 1, 1, 3),
                                  &(Conv2d){.channels = 4, .kernel = 1, .stride = 1}),
                     &(BatchNorm){.training = true});
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "bn: batch norm in training needs more than one value for each channel, not [1 x 1 x 1 x 4]; use a "
        "larger batch or larger images");
    graph = graph_new();
    graph_softmax_cross_entropy(graph, graph_input(graph, "x", DATA_F32, 2, (int64_t[]){4, 10}),
                                graph_input(graph, "label", DATA_I64, 1, (int64_t[]){5}), TENSOR_NONE,
                                TENSOR_NONE, 0);
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "x: cross-entropy needs f32 logits [N, K] and i64 labels [N], not f32 [4 x 10] and i64 [5]");
    graph = graph_new();
    graph_leaky_relu(graph, test_image(graph, 1, 2, 3), -0.1F);
    assert_failure(graph, FSH_ERR_USAGE,
                   "image.normalize: leaky ReLU with slope -0.1; it must not be negative");
    graph = graph_new();
    graph_max_pool(graph, test_image(graph, 1, 20, 3), &(Pool2d){.kernel = 16, .stride = 1});
    assert_failure(graph, FSH_ERR_UNSUPPORTED, "image.normalize: max pool with kernel 16; at most 15");
}

TEST(test_restoration_layers_refuse_what_does_not_fit)
{
    Graph *graph = graph_new();
    graph_crop(graph, test_image(graph, 2, 8, 3), 8, 9);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize: crop of [2 x 8 x 8 x 3] to 8 x 9 x 3; it must not grow");
    graph = graph_new();
    graph_zero_pad(graph, test_image(graph, 2, 8, 3), 8, 8, 2);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize: zero_pad of [2 x 8 x 8 x 3] to 8 x 8 x 2; it must not shrink");
    graph = graph_new();
    TensorId x = test_image(graph, 2, 8, 3);
    graph_concat(graph, x, graph_crop(graph, x, 7, 8));
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "image.normalize: concat needs two images of one size, not [2 x 8 x 8 x 3] and [2 x 7 x 8 x "
        "3]");
    graph = graph_new();
    graph_gate(graph, test_image(graph, 2, 8, 3));
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize: a gate needs an even number of channels, not [2 x 8 x 8 x 3]");
    graph = graph_new();
    graph_pixel_shuffle(graph, test_image(graph, 2, 8, 3), 2);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize: pixel_shuffle by 2 does not divide [2 x 8 x 8 x 3]");
    graph = graph_new();
    graph_pixel_unshuffle(graph, test_image(graph, 2, 8, 3), 3);
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "image.normalize: pixel_unshuffle by 3 does not divide [2 x 8 x 8 x 3]");
    graph = graph_new();
    x = test_image(graph, 2, 8, 3);
    graph_channel_multiply(graph, x, graph_input(graph, "s", DATA_F32, 2, (int64_t[]){2, 4}));
    assert_failure(
        graph, FSH_ERR_MISMATCH,
        "image.normalize: channel multiply needs an image [N, H, W, C] and a matrix [N, C], not [2 x "
        "8 x 8 x 3] and f32 [2 x 4]");
    graph = graph_new();
    x = test_image(graph, 2, 8, 3);
    graph_channel_scale(graph, "block", "beta", x, graph_crop(graph, x, 4, 4));
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "block: channel scale needs two images of one shape, not [2 x 8 x 8 x 3] and [2 x 4 x 4 x "
                   "3]");
    graph = graph_new();
    graph_conv2d(graph, "conv", test_image(graph, 2, 8, 3),
                 &(Conv2d){.channels = 4, .kernel = 1, .stride = 1, .groups = 2});
    assert_failure(
        graph, FSH_ERR_USAGE,
        "conv: conv2d in 2 groups of 3 channels in and 4 out; both must be multiples of the groups");
    graph = graph_new();
    graph_layer_norm(graph, "norm", test_image(graph, 2, 8, 3), 0);
    assert_failure(graph, FSH_ERR_USAGE, "norm: layer norm with epsilon 0; it must be positive");
}

TEST(test_self_attention_refuses_what_does_not_fit)
{
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 4, 4, 12});
    graph_self_attention(graph, "sa", x, graph_spectral_norm(graph, "sa.conv", 12, 12, true));
    assert_failure(graph, FSH_ERR_MISMATCH, "sa: self-attention needs a multiple of 8 channels, not 12");
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 4, 4, 16});
    graph_self_attention(graph, "sa", x, graph_spectral_norm(graph, "sa.conv", 16, 8, true));
    assert_failure(graph, FSH_ERR_MISMATCH,
                   "sa: self-attention of 16 channels needs a weight [C, C, 1] in f32, not f32 [16 x 8 x 1]");
    graph = graph_new();
    graph_spectral_norm(graph, "sa.conv", 0, 8, true);
    assert_failure(graph, FSH_ERR_USAGE, "sa.conv: spectral norm of a matrix of 0 x 8");
}

/* u and v move in training alone, as the outputs of their own norm. */
TEST(test_spectral_norm_moves_its_directions_in_training_alone)
{
    for (int training = 0; training < 2; training++) {
        Graph *graph = graph_new();
        const TensorId weight = graph_spectral_norm(graph, "layer", 6, 10, training);
        assert_shape(graph, weight, "6 x 10 x 1");
        assert_shape(graph, graph_find(graph, "layer.weight_u"), "6");
        assert_shape(graph, graph_find(graph, "layer.weight_v"), "10");
        const Node *node = graph_node(graph, graph_tensor(graph, weight)->producer);
        assert_int_equal(node->output_count, training ? SPECTRAL_NORM_MOVED_V + 1 : SPECTRAL_NORM_SIGMA + 1);
        if (training)
            assert_int_equal(node->outputs[SPECTRAL_NORM_MOVED_V], graph_find(graph, "layer.weight_v"));
        graph_free(&graph);
    }
}

TEST(test_names_are_unique)
{
    const Conv2d conv = {.channels = 4, .kernel = 1, .stride = 1};
    Graph *graph = graph_new();
    graph_conv2d(graph, "conv", graph_conv2d(graph, "conv", test_image(graph, 1, 2, 3), &conv), &conv);
    assert_failure(graph, FSH_ERR_USAGE, "conv.weight: the graph has a tensor of this name already");
    graph = graph_new();
    char name[200];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    graph_conv2d(graph, name, test_image(graph, 1, 2, 3), &conv);
    FshError error = {0};
    assert_int_equal(graph_check(graph, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "a name of more than 95 bytes");
    graph_free(&graph);
}

TEST(test_sizes_are_checked)
{
    Graph *graph = graph_new();
    graph_input(graph, "x", DATA_F32, 4, (int64_t[]){INT64_MAX / 2, 8, 8, 3});
    FshError error = {0};
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "too large");
    graph_free(&graph);
    graph = graph_new();
    graph_input(graph, "x", DATA_F32, 2, (int64_t[]){4, 0});
    assert_failure(graph, FSH_ERR_MISMATCH, "x: shape 4 x 0 has a dimension below 1");
}

TEST(test_models_refuse_images_that_are_too_small)
{
    FshError error = {0};
    assert_null(model("conv8", 8, 16, true, &error));
    assert_int_equal(error.status, FSH_ERR_MISMATCH);
    assert_string_equal(error.message,
                        "conv8: model.26.relu.reflection_pad: a reflection pad of 1 does not fit a 1 x 1 "
                        "input; use larger images");
    Graph *graph = model_or_fail("conv8", 8, 17, true);
    graph_free(&graph);
    assert_null(model("resnet18", 1, 1, true, &error));
    assert_contains(error.message, "resnet18: bn1: batch norm in training needs more than one value");
    assert_null(model("resnet18", 0, 64, true, &error));
    assert_int_equal(error.status, FSH_ERR_USAGE);
}

TEST(test_only_a_trained_number_is_differentiated)
{
    Graph *graph = graph_new();
    TensorId x = graph_conv2d(graph, "conv", test_image(graph, 2, 4, 3),
                              &(Conv2d){.channels = 4, .kernel = 1, .stride = 1});
    graph_differentiate(graph, x);
    assert_failure(
        graph, FSH_ERR_USAGE,
        "conv: only one number that depends on a parameter can be differentiated, not [2 x 4 x 4 x 4]");
    graph = graph_new();
    graph_update(graph,
                 &(Optimizer){.learning_rate = graph_input(graph, "rate", DATA_F32, 1, (int64_t[]){1})});
    assert_failure(graph, FSH_ERR_USAGE, "sgd: no parameter has a gradient; call graph_differentiate first");
}

/* ---- gradients and fusion ---- */

TEST(test_every_parameter_gets_a_gradient_like_it)
{
    Graph *graph = model_or_fail("resnet18", 2, 64, true);
    size_t parameters = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        parameters++;
        TensorId gradient = graph_gradient(graph, (TensorId)i);
        if (gradient == TENSOR_NONE)
            fail_msg("%s has no gradient", tensor->name);
        assert_int_equal(graph_tensor(graph, gradient)->role, TENSOR_GRADIENT);
        assert_int_equal(graph_tensor(graph, gradient)->of, i);
        assert_memory_equal(graph_tensor(graph, gradient)->shape, tensor->shape, sizeof tensor->shape);
    }
    assert_int_equal(parameters, 62);
    /* Pixels need no gradient, so the first convolution passes none back. */
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_DATA), test_count_ops(graph, OP_CONV2D) - 1);
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_WEIGHT), test_count_ops(graph, OP_CONV2D));
    graph_free(&graph);
}

/* The filters that whiten patches, and the scales of norms, are not trained; the bias of the filters is. */
TEST(test_frozen_parameters_have_no_gradient_and_no_state)
{
    Graph *graph = model_or_fail("airbench94", 2, 32, true);
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        const bool norm = strstr(tensor->name, ".norm") != NULL;
        const bool is_weight =
            strcmp(strrchr(tensor->name, '.') ? strrchr(tensor->name, '.') : "", ".weight") == 0;
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        assert_int_equal(tensor->frozen, is_weight && (norm || strcmp(tensor->name, "whiten.weight") == 0));
        assert_int_equal(graph_gradient(graph, (TensorId)i) == TENSOR_NONE, tensor->frozen);
    }
    assert_int_equal(test_count_ops(graph, OP_BIAS_BACKWARD), 1);
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_WEIGHT), test_count_ops(graph, OP_CONV2D) - 1);
    assert_int_equal(graph_find(graph, "whiten.weight.momentum_buffer"), TENSOR_NONE);
    graph_free(&graph);
}

/* Where nothing in front of a layer is trained, nothing is passed back. */
TEST(test_nothing_is_passed_back_to_frozen_layers)
{
    const Conv2d conv = {.channels = 8, .kernel = 3, .stride = 1, .padding = 1};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 8, 8, 4});
    const TensorId labels = graph_input(graph, "labels", DATA_I64, 1, (int64_t[]){2});
    x = graph_relu(graph, graph_conv2d(graph, "first", x, &conv));
    x = graph_global_avg_pool(graph, graph_conv2d(graph, "second", x, &conv));
    graph_freeze(graph, graph_find(graph, "first.weight"));
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, 0));
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_WEIGHT), 1);
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_DATA), 0);
    assert_int_equal(test_count_ops(graph, OP_RELU_BACKWARD), 0);
    graph_free(&graph);
}

/* What comes back beside a layer norm is an operand of its backward pass: no addition stands for it. */
TEST(test_a_branchs_gradient_goes_through_its_layer_norm)
{
    FshError error = {0};
    Graph *graph = graph_new();
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    TensorId x = graph_conv2d(graph, "conv", test_image(graph, 2, 4, 3),
                              &(Conv2d){.channels = 5, .kernel = 1, .stride = 1});
    TensorId y = graph_add(graph, graph_layer_norm(graph, "norm", x, 1e-6), x);
    TensorId loss = graph_softmax_cross_entropy(graph, graph_global_avg_pool(graph, y), label, TENSOR_NONE,
                                                TENSOR_NONE, 0);
    graph_differentiate(graph, loss);
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(test_count_ops(graph, OP_ADD), 1);
    const TensorId dx = graph_gradient(graph, x);
    const Node *backward = graph_node(graph, graph_tensor(graph, dx)->producer);
    assert_int_equal(backward->op, OP_LAYER_NORM_BACKWARD);
    assert_int_equal(backward->inputs[5], graph_gradient(graph, y));
    graph_free(&graph);
}

TEST(test_nodes_stand_in_execution_order)
{
    Graph *graph = model_or_fail("resnet18", 2, 64, true);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        for (int k = 0; k < node->input_count; k++)
            if (node->inputs[k] != TENSOR_NONE &&
                graph_tensor(graph, node->inputs[k])->role == TENSOR_ACTIVATION)
                assert_in_range(graph_tensor(graph, node->inputs[k])->producer, 0, i - 1);
    }
    graph_free(&graph);
}

TEST(test_norms_are_fused_with_what_follows)
{
    Graph *graph = model_or_fail("resnet18", 2, 64, true);
    /* 20 norms: the three of the shortcuts stand alone, since the block's second norm has taken the
     * addition. */
    size_t fused = 0, with_addend = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_BATCH_NORM) {
            fused += node->as.norm.activation == OP_RELU;
            with_addend += node->inputs[5] != TENSOR_NONE;
        }
    }
    assert_int_equal(test_count_ops(graph, OP_BATCH_NORM), 20);
    assert_int_equal(fused, 17);
    assert_int_equal(with_addend, 8);
    assert_int_equal(test_count_ops(graph, OP_RELU), 0);
    assert_int_equal(test_count_ops(graph, OP_RELU_BACKWARD), 0);
    graph_free(&graph);
}

/* ---- memory plan ---- */

static uint64_t packed_bytes(const Graph *graph, TensorId id, void *context)
{
    const Tensor *tensor = graph_tensor(graph, id);
    (void)context;
    return (uint64_t)tensor_count(tensor) * data_type_bytes(tensor->type);
}

/* Sets *first and *last to the first and last node that touch the tensor; *last is node_count for a kept
 * one. */
static void lifetime(const Graph *graph, TensorId id, size_t *first, size_t *last)
{
    *first = SIZE_MAX;
    *last = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        bool touches = false;
        for (int k = 0; k < node->input_count; k++)
            touches |= node->inputs[k] == id;
        for (int k = 0; k < node->output_count; k++)
            touches |= node->outputs[k] == id;
        if (touches && *first == SIZE_MAX)
            *first = i;
        if (touches)
            *last = i;
    }
    if (graph_tensor(graph, id)->keep)
        *last = graph_node_count(graph);
}

/* Returns whether the node that uses a for the last time makes b and may write b over a. */
static bool may_take_over(const Graph *graph, TensorId a, size_t a_last, TensorId b)
{
    const Node *node = graph_node(graph, graph_tensor(graph, b)->producer);
    if (a_last != (size_t)graph_tensor(graph, b)->producer)
        return false;
    for (int i = 0; i < node->input_count; i++)
        for (int o = 0; o < node->output_count; o++)
            if (node->inputs[i] == a && node->outputs[o] == b && node_may_overwrite(graph, node, o, i))
                return true;
    return false;
}

static void check_plan(const Graph *graph)
{
    MemoryPlan plan;
    FshError error = {0};
    const size_t count = graph_tensor_count(graph);
    assert_int_equal(memory_plan_make(graph, packed_bytes, NULL, NULL, &plan, &error), FSH_OK);
    assert_true(plan.arena_bytes < plan.unshared_bytes);
    size_t *first = calloc(count, sizeof *first), *last = calloc(count, sizeof *last);
    assert_true(first && last);
    for (size_t t = 0; t < count; t++)
        if (plan.offset_bytes[t] != UINT64_MAX)
            lifetime(graph, (TensorId)t, &first[t], &last[t]);
    for (size_t a = 0; a < count; a++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)a);
        const bool planned = tensor->role == TENSOR_ACTIVATION && tensor->producer != NODE_NONE;
        assert_int_equal(plan.offset_bytes[a] != UINT64_MAX, planned);
        if (!planned)
            continue;
        const uint64_t a_end = plan.offset_bytes[a] + packed_bytes(graph, (TensorId)a, NULL);
        assert_int_equal(plan.offset_bytes[a] % MEMORY_PLAN_ALIGNMENT, 0);
        assert_true(a_end <= plan.arena_bytes);
        for (size_t b = 0; b < count; b++) {
            if (a == b || plan.offset_bytes[b] == UINT64_MAX)
                continue;
            const bool share =
                plan.offset_bytes[b] < a_end &&
                plan.offset_bytes[a] < plan.offset_bytes[b] + packed_bytes(graph, (TensorId)b, NULL);
            const bool together = first[a] <= last[b] && first[b] <= last[a];
            if (share && together && !may_take_over(graph, (TensorId)a, last[a], (TensorId)b) &&
                !may_take_over(graph, (TensorId)b, last[b], (TensorId)a))
                fail_msg("%s and %s live at the same time in the same bytes", tensor->name,
                         graph_tensor(graph, (TensorId)b)->name);
        }
    }
    free(first);
    free(last);
    memory_plan_free(&plan);
}

TEST(test_no_two_live_tensors_share_bytes)
{
    static const struct {
        const char *name;
        int64_t batch, size;
        bool training;
    } cases[] = {{"conv8", 8, 28, true},
                 {"conv8", 1, 17, false},
                 {"resnet18", 4, 64, true},
                 {"resnet18", 3, 97, true},
                 {"resnet18", 4, 64, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = model_or_fail(cases[i].name, cases[i].batch, cases[i].size, cases[i].training);
        check_plan(graph);
        graph_free(&graph);
    }
}

TEST(test_inference_needs_little_memory)
{
    Graph *train = model_or_fail("resnet18", 8, 64, true),
          *evaluate = model_or_fail("resnet18", 8, 64, false);
    MemoryPlan of_train, of_evaluation;
    assert_int_equal(memory_plan_make(train, packed_bytes, NULL, NULL, &of_train, NULL), FSH_OK);
    assert_int_equal(memory_plan_make(evaluate, packed_bytes, NULL, NULL, &of_evaluation, NULL), FSH_OK);
    /* Evaluation holds the first convolution's result and at most two of a quarter of its size; the norm
     * works in place. */
    const uint64_t largest = UINT64_C(8) * 32 * 32 * 64 * 4;
    assert_in_range(of_evaluation.arena_bytes, largest, largest * 3 / 2);
    assert_true(of_train.arena_bytes > 3 * of_evaluation.arena_bytes);
    assert_true(of_train.arena_bytes < of_train.unshared_bytes / 2);
    memory_plan_free(&of_train);
    memory_plan_free(&of_evaluation);
    graph_free(&train);
    graph_free(&evaluate);
}
