/* Rewrites of the graph: each finds its pattern, and leaves alone what it must. That results stay is in
 * fusion_test. */
#include "trainer/graph/graph.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"

TEST(test_fusion_leaves_alone_what_is_needed_elsewhere)
{
    const BatchNorm norm = {.training = true};
    Graph *graph = graph_new();
    TensorId x = test_image(graph, 2, 4, 3), kept = graph_batch_norm(graph, "kept", x, &norm);
    graph_keep(graph, kept, "normalised");
    TensorId used_twice = graph_batch_norm(graph, "twice", graph_relu(graph, kept), &norm);
    TensorId sum = graph_add(graph, graph_relu(graph, used_twice), used_twice);
    TensorId relu_last = graph_batch_norm(graph, "relu_last", sum, &norm);
    sum = graph_add(graph, graph_add(graph, sum, relu_last), graph_relu(graph, relu_last));
    graph_relu(graph, graph_batch_norm(graph, "alone", sum, &norm));
    graph_fuse(graph, FUSE_ALL);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    assert_int_equal(test_count_ops(graph, OP_RELU), 3);
    assert_int_equal(test_count_ops(graph, OP_ADD), 3);
    assert_int_equal(graph_node(graph, (NodeId)graph_node_count(graph) - 1)->as.norm.activation, OP_RELU);
    graph_free(&graph);
}

TEST(test_fusions_can_be_chosen)
{
    for (unsigned fusions = 0; fusions < FUSE_BIAS_NORM; fusions++) {
        const BatchNorm norm = {.training = true};
        Graph *graph = graph_new();
        TensorId x = test_image(graph, 2, 4, 3);
        TensorId y = graph_relu(graph, graph_batch_norm(graph, "a", x, &norm));
        graph_relu(graph, graph_add(graph, y, graph_batch_norm(graph, "b", y, &norm)));
        graph_fuse(graph, fusions);
        assert_int_equal(test_count_ops(graph, OP_RELU),
                         !(fusions & FUSE_NORM_RELU) + !(fusions & FUSE_NORM_ADD_RELU));
        assert_int_equal(test_count_ops(graph, OP_ADD), !(fusions & (FUSE_NORM_ADD_RELU | FUSE_NORM_ADD)));
        graph_free(&graph);
    }
}

/* Not where the norm's result is read twice, is kept, or is added to before. */
TEST(test_functions_of_one_value_join_the_norm)
{
    static const struct {
        OpKind op;
        TensorId (*append)(Graph *graph, TensorId x);
    } functions[] = {{OP_GELU, graph_gelu}, {OP_SILU, graph_silu}, {OP_MISH, graph_mish}};
    const BatchNorm norm = {.training = true};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        for (int way = 0; way < 5; way++) {
            Graph *graph = graph_new();
            TensorId x = graph_batch_norm(graph, "norm", test_image(graph, 2, 4, 3), &norm);
            const TensorId y = functions[i].append(graph, way == 3 ? graph_add(graph, x, x) : x);
            if (way == 1)
                graph_add(graph, x, y);
            if (way == 2)
                graph_keep(graph, x, "normalised");
            graph_fuse(graph, way == 4 ? FUSE_NORM_RELU : FUSE_ALL);
            assert_int_equal(graph_check(graph, NULL), FSH_OK);
            assert_int_equal(test_count_ops(graph, functions[i].op), way != 0);
            const Node *maker = graph_node(graph, graph_tensor(graph, y)->producer);
            assert_int_equal(maker->op, way ? functions[i].op : OP_BATCH_NORM);
            if (way == 0)
                assert_int_equal(maker->as.norm.activation, functions[i].op);
            graph_free(&graph);
        }
}

/* With addition from either side and ReLU, with one of them, alone; not where the norm's result is read
 * elsewhere or kept, where the factors are of another image, or where none are made of a pool. */
TEST(test_squeeze_and_excitation_joins_the_norm)
{
    enum { LEFT, RIGHT, ADD, RELU, ALONE, FOUND, ELSEWHERE = FOUND, KEPT, OTHER, GIVEN, WAYS };
    const BatchNorm norm = {.training = true};
    for (int way = 0; way < WAYS; way++) {
        Graph *graph = graph_new();
        const TensorId x = graph_conv2d(graph, "conv", test_image(graph, 2, 4, 3),
                                        &(Conv2d){.channels = 8, .kernel = 1, .stride = 1});
        const TensorId n = graph_batch_norm(graph, "norm", x, &norm);
        TensorId s = graph_global_avg_pool(graph, way == OTHER ? x : n);
        const TensorId pooled = s;
        s = graph_sigmoid(graph, graph_linear(graph, "excite", graph_relu(graph, s), 8, true));
        if (way == GIVEN)
            s = graph_input(graph, "factors", DATA_F32, 2, (int64_t[]){2, 8});
        TensorId y = graph_channel_multiply(graph, n, s);
        if (way != RELU && way != ALONE)
            y = graph_add(graph, way == LEFT ? x : y, way == LEFT ? y : x);
        if (way != ADD && way != ALONE)
            y = graph_leaky_relu(graph, y, 0.25F);
        if (way == ELSEWHERE)
            graph_add(graph, n, y);
        if (way == KEPT)
            graph_keep(graph, n, "normalised");
        graph_fuse(graph, FUSE_NORM_GATE);
        assert_int_equal(graph_check(graph, NULL), FSH_OK);
        assert_int_equal(test_count_ops(graph, OP_CHANNEL_MULTIPLY), way >= FOUND);
        assert_int_equal(test_count_ops(graph, OP_GLOBAL_AVG_POOL), way >= FOUND);
        if (way < FOUND) {
            const Node *gate = graph_node(graph, graph_tensor(graph, y)->producer),
                       *squeeze = graph_node(graph, graph_tensor(graph, pooled)->producer);
            assert_int_equal(gate->op, OP_NORM_GATE);
            assert_int_equal(squeeze->op, OP_NORM_SQUEEZE);
            assert_int_equal(test_count_ops(graph, OP_ADD), 0);
            assert_int_equal(gate->inputs[NORM_GATE_ADDEND], way <= ADD ? x : TENSOR_NONE);
            assert_int_equal(gate->as.norm.activation, way == ADD || way == ALONE ? 0 : OP_RELU);
            assert_int_equal(gate->inputs[NORM_GATE_MEAN], squeeze->outputs[NORM_MEAN]);
        }
        graph_free(&graph);
    }
}

/* A shortcut is trained though all is frozen that its block's other branch depends on. */
TEST(test_a_shortcut_beside_a_frozen_gate_keeps_its_gradient)
{
    static const char *const frozen[] = {"conv.weight", "norm.weight", "norm.bias", "excite.weight",
                                         "excite.bias"};
    const BatchNorm norm = {.training = true};
    const Conv2d plain = {.channels = 8, .kernel = 1, .stride = 1};
    const int64_t batch = 2;
    for (int activated = 0; activated < 2; activated++) {
        Graph *graph = graph_new();
        const TensorId x = test_image(graph, batch, 4, 3),
                       label = graph_input(graph, "label", DATA_I64, 1, &batch);
        const TensorId n = graph_batch_norm(graph, "norm", graph_conv2d(graph, "conv", x, &plain), &norm);
        const TensorId s = graph_linear(graph, "excite", graph_global_avg_pool(graph, n), 8, true);
        TensorId y = graph_channel_multiply(graph, n, graph_sigmoid(graph, s));
        y = graph_add(graph, y, graph_conv2d(graph, "shortcut", x, &plain));
        if (activated)
            y = graph_relu(graph, y);
        y = graph_linear(graph, "classes", graph_global_avg_pool(graph, y), 3, false);
        for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++)
            graph_freeze(graph, graph_find(graph, frozen[i]));
        graph_fuse(graph, FUSE_NORM_GATE);
        graph_differentiate(graph, graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0));
        assert_int_equal(graph_check(graph, NULL), FSH_OK);
        assert_int_equal(test_count_ops(graph, OP_NORM_GATE) + test_count_ops(graph, OP_CHANNEL_MULTIPLY), 1);
        assert_int_not_equal(graph_gradient(graph, graph_find(graph, "shortcut.weight")), TENSOR_NONE);
        graph_free(&graph);
    }
}

/* Returns the first norm of this name. */
static const Node *norm_named(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_BATCH_NORM && strcmp(node->name, name) == 0)
            return node;
    }
    fail_msg("no norm %s", name);
    return NULL;
}

TEST(test_a_bias_moves_into_the_norm_behind_it)
{
    const BatchNorm trains = {.training = true}, frozen = {.training = false};
    const Conv2d with_bias = {.channels = 4, .kernel = 1, .stride = 1, .bias = true};
    Graph *graph = graph_new();
    TensorId x = test_image(graph, 2, 4, 3);
    x = graph_batch_norm(graph, "moves", graph_conv2d(graph, "a", x, &with_bias), &trains);
    x = graph_batch_norm(graph, "stays", graph_conv2d(graph, "b", x, &with_bias), &frozen);
    TensorId kept = graph_conv2d(graph, "c", x, &with_bias);
    graph_keep(graph, kept, "looked at");
    x = graph_batch_norm(graph, "of a kept one", kept, &trains);
    TensorId twice = graph_conv2d(graph, "d", x, &with_bias);
    x = graph_add(graph, graph_batch_norm(graph, "of one read twice", twice, &trains), twice);
    x = graph_flatten(graph, x);
    graph_batch_norm(graph, "of a matrix", graph_linear(graph, "e", x, 5, true), &trains);
    graph_fuse(graph, FUSE_BIAS_NORM);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    assert_int_equal(norm_named(graph, "moves")->inputs[7], graph_find(graph, "a.bias"));
    assert_int_equal(norm_named(graph, "of a matrix")->inputs[7], graph_find(graph, "e.bias"));
    assert_int_equal(norm_named(graph, "stays")->inputs[7], TENSOR_NONE);
    assert_int_equal(norm_named(graph, "of a kept one")->inputs[7], TENSOR_NONE);
    assert_int_equal(norm_named(graph, "of one read twice")->inputs[7], TENSOR_NONE);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_CONV2D || node->op == OP_LINEAR)
            assert_int_equal(node->inputs[2] == TENSOR_NONE,
                             strcmp(node->name, "a") == 0 || strcmp(node->name, "e") == 0);
    }
    graph_free(&graph);
}

TEST(test_a_relu_joins_a_convolution_with_a_bias)
{
    static const struct {
        bool bias, keep, twice, joins;
        float slope;
    } cases[] = {{true, false, false, true, 0},
                 {true, false, false, true, 0.25F},
                 {false, false, false, false, 0},
                 {true, true, false, false, 0},
                 {true, false, true, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = graph_new();
        graph_set_compute_type(graph, DATA_F16);
        const Conv2d options = {.channels = 4, .kernel = 1, .stride = 1, .bias = cases[i].bias};
        TensorId conv = graph_conv2d(graph, "a", test_image(graph, 2, 4, 3), &options);
        if (cases[i].keep)
            graph_keep(graph, conv, "looked at");
        TensorId x = graph_leaky_relu(graph, conv, cases[i].slope);
        x = cases[i].twice ? graph_add(graph, x, conv) : x;
        const TensorId read = x;
        graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true});
        graph_fuse(graph, FUSE_ALL | FUSE_CONV_STATISTICS);
        assert_int_equal(graph_check(graph, NULL), FSH_OK);
        const Node *node = graph_node(graph, 1), *norm = norm_named(graph, "norm");
        assert_int_equal(node->op, OP_CONV2D);
        assert_int_equal(node->as.conv.relu, cases[i].joins);
        assert_int_equal(test_count_ops(graph, OP_RELU), !cases[i].joins);
        if (cases[i].joins) {
            assert_true(node->as.conv.slope == cases[i].slope);
            assert_int_equal(node->outputs[0], read);
            assert_int_equal(graph_tensor(graph, read)->producer, 1);
        }
        /* what comes after the activation is none of the convolution's */
        assert_int_equal(norm->inputs[6], TENSOR_NONE);
        assert_int_equal(norm->inputs[7], TENSOR_NONE);
        assert_int_equal(node->inputs[2] == TENSOR_NONE, !cases[i].bias);
        graph_free(&graph);
    }
}

TEST(test_convolutions_in_f16_make_the_sums_of_the_norm)
{
    static const DataType types[] = {DATA_F32, DATA_BF16, DATA_F16};
    for (size_t i = 0; i < 3; i++)
        for (int bias = 0; bias < 2; bias++) {
            Graph *graph = graph_new();
            graph_set_compute_type(graph, types[i]);
            TensorId x = test_image(graph, 2, 4, 3);
            x = graph_conv2d(graph, "a", x,
                             &(Conv2d){.channels = 13, .kernel = 1, .stride = 1, .bias = bias});
            graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true});
            graph_fuse(graph, FUSE_CONV_STATISTICS);
            assert_int_equal(graph_check(graph, NULL), FSH_OK);
            const Node *norm = norm_named(graph, "norm");
            const bool found = types[i] == DATA_F16 && !bias;
            assert_int_equal(norm->inputs[6] != TENSOR_NONE, found);
            if (found) {
                const Tensor *sums = graph_tensor(graph, norm->inputs[6]);
                assert_int_equal(graph_node(graph, sums->producer)->op, OP_CONV2D);
                assert_int_equal(sums->type, DATA_F32);
                assert_int_equal(sums->shape[0], 2);
                assert_int_equal(sums->shape[1], 16);
            }
            graph_free(&graph);
        }
}

/* Returns how many sums of gradients fusion leaves in the graph of a norm, with OP_RELU, OP_GELU or, for 0,
 * without activation, whose result is read `readers` times. */
static int gradient_sums_left(OpKind activation, int readers, bool keeps)
{
    const BatchNorm norm = {.training = true};
    Graph *graph = graph_new();
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    TensorId x = graph_conv2d(graph, "a", test_image(graph, 2, 4, 3),
                              &(Conv2d){.channels = 4, .kernel = 1, .stride = 1});
    x = graph_batch_norm(graph, "norm", x, &norm);
    x = activation == OP_RELU ? graph_relu(graph, x) : activation == OP_GELU ? graph_gelu(graph, x) : x;
    TensorId sum = TENSOR_NONE;
    for (int i = 0; i < readers; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "reader%d", i);
        TensorId y = graph_conv2d(graph, name, x, &(Conv2d){.channels = 4, .kernel = 1, .stride = 1});
        sum = i ? graph_concat(graph, sum, y) : y;
    }
    sum = graph_linear(graph, "fc", graph_global_avg_pool(graph, sum), 3, false);
    TensorId loss = graph_softmax_cross_entropy(graph, sum, label, TENSOR_NONE, TENSOR_NONE, 0);
    graph_fuse(graph, FUSE_NORM_RELU | FUSE_NORM_FUNCTION);
    graph_differentiate(graph, loss);
    for (size_t t = 0; keeps && t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->producer != NODE_NONE && graph_node(graph, tensor->producer)->op == OP_ADD)
            graph_keep(graph, (TensorId)t, "sum of gradients");
    }
    graph_fuse_backward(graph, FUSE_GRADIENT_ADD);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    const int left = test_count_ops(graph, OP_ADD);
    graph_free(&graph);
    return left;
}

TEST(test_sums_of_gradients_join_the_norm)
{
    static const OpKind activations[] = {OP_RELU, OP_GELU};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(gradient_sums_left(activations[i], 1, false), 0);
        assert_int_equal(gradient_sums_left(activations[i], 2, false), 0);
        assert_int_equal(gradient_sums_left(activations[i], 3, false), 1);
        assert_int_equal(gradient_sums_left(activations[i], 2, true), 1);
    }
    assert_int_equal(gradient_sums_left(0, 2, false), 0);
}

TEST(test_fusing_is_refused_at_the_wrong_time)
{
    Graph *graph = graph_new();
    test_image(graph, 2, 4, 3);
    graph_fuse_backward(graph, FUSE_ALL);
    assert_int_equal(graph_check(graph, NULL), FSH_ERR_USAGE);
    graph_free(&graph);
}

/* Channels of padding that a sum adds nothing to are neither written nor cropped again; anything else is left
 * alone. */
TEST(test_padding_of_channels_is_part_of_the_sum)
{
    static const struct {
        int64_t size, channels;
        bool relu, relu_before, keep;
        size_t pads, crops;
    } cases[] = {{4, 6, false, false, false, 0, 0},
                 {5, 6, false, false, false, 1, 1}, /* the image grows, too */
                 {4, 6, true, false, false, 1, 0},
                 {4, 6, false, true, false, 0, 1},
                 {4, 6, false, false, true, 1, 0}};
    const BatchNorm norm = {.training = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = graph_new();
        TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
        TensorId x = graph_batch_norm(graph, "before", test_image(graph, 2, 4, 3), &norm);
        x = cases[i].relu_before ? graph_relu(graph, x) : x;
        TensorId y = graph_batch_norm(graph, "behind", x, &norm);
        y = graph_conv2d(
            graph, "conv", y,
            &(Conv2d){.channels = 6, .kernel = 1, .stride = 1, .padding = (cases[i].size - 4 + 1) / 2});
        y = graph_crop(graph, y, cases[i].size, cases[i].size);
        TensorId padded = graph_zero_pad(graph, x, cases[i].size, cases[i].size, cases[i].channels);
        if (cases[i].keep)
            graph_keep(graph, padded, "padded");
        y = graph_add(graph, graph_batch_norm(graph, "sum", y, &norm), padded);
        y = cases[i].relu ? graph_relu(graph, y) : y;
        y = graph_linear(graph, "fc", graph_flatten(graph, y), 3, true);
        TensorId loss = graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0);
        const size_t crops = test_count_ops(graph, OP_CROP);
        graph_fuse(graph, FUSE_ALL | FUSE_PAD_ADD);
        assert_int_equal(test_count_ops(graph, OP_ZERO_PAD), cases[i].pads);
        graph_differentiate(graph, loss);
        graph_fuse_backward(graph, FUSE_ALL | FUSE_PAD_ADD);
        assert_int_equal(graph_check(graph, NULL), FSH_OK);
        assert_int_equal(test_count_ops(graph, OP_CROP) - crops, cases[i].crops);
        graph_free(&graph);
    }
}

/* From either side of the addition; not where the layer's result is read elsewhere, too. */
TEST(test_linear_layers_are_fused_with_what_is_added_to_them)
{
    for (int i = 0; i < 4; i++) {
        const bool is_left = i % 2, is_read_twice = i >= 2;
        Graph *graph = graph_new();
        const TensorId x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, 8});
        const TensorId y = graph_linear(graph, "fc", x, 8, true);
        TensorId sum = is_left ? graph_add(graph, y, x) : graph_add(graph, x, y);
        if (is_read_twice)
            sum = graph_add(graph, graph_gelu(graph, sum), y);
        graph_fuse(graph, FUSE_LINEAR_ADD);
        assert_int_equal(graph_check(graph, NULL), FSH_OK);
        assert_int_equal(test_count_ops(graph, OP_ADD), is_read_twice ? 2 : 0);
        const Node *linear = graph_node(graph, graph_tensor(graph, is_read_twice ? y : sum)->producer);
        assert_int_equal(linear->op, OP_LINEAR);
        assert_int_equal(linear->inputs[LINEAR_ADDEND], is_read_twice ? TENSOR_NONE : x);
        graph_free(&graph);
    }
}

/* "norm-add-relu" is not "norm-add", though it begins with it. */
TEST(test_fusions_are_left_out_by_their_whole_names)
{
    FshError error = {0};
    unsigned fusions = FUSE_ALL;
    assert_ok(fusions_leave_out(&fusions, "norm-add-relu,gradient-add", "cpu", &error), &error);
    assert_int_equal(fusions, FUSE_ALL & ~(FUSE_NORM_ADD_RELU | FUSE_GRADIENT_ADD));
    assert_ok(fusions_leave_out(&fusions, NULL, "cpu", &error), &error);
    assert_ok(fusions_leave_out(
                  &fusions,
                  "norm-relu,norm-add,bias-norm,conv-bias-relu,linear-add,norm-function,norm-gate,norm-pool,"
                  "gate-mean",
                  "cpu", &error),
              &error);
    assert_int_equal(fusions, FUSE_NONE);
    fusions = FUSE_NORM_RELU | FUSE_NORM_ADD;
    assert_int_equal(fusions_leave_out(&fusions, "norm-add,pad-add", "cpu", &error), FSH_ERR_USAGE);
    assert_string_equal(error.message,
                        "'pad-add' is for other devices; the cpu backend has norm-relu, norm-add");
    fusions = FUSE_ALL;
    assert_int_equal(fusions_leave_out(&fusions, "norm", "cpu", NULL), FSH_ERR_USAGE);
}

/* Returns how often a graph normalises its `batch` images of 256 x 256. Two convolutions read them; with
 * `elsewhere` a sum does too. */
static int count_normalized(int64_t batch, bool elsewhere, unsigned fusions)
{
    FshError error = {0};
    int count = 0;
    Graph *graph = graph_new();
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){batch, 256, 256, 3});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){batch});
    const Conv2d conv = {.channels = 3, .kernel = 3, .stride = 1, .padding = 1};
    const TensorId pixels =
        graph_normalize(graph, image, (double[]){0.5, 0.5, 0.5}, (double[]){0.25, 0.25, 0.25});
    TensorId x = graph_add(graph, graph_conv2d(graph, "one", pixels, &conv),
                           graph_conv2d(graph, "other", pixels, &conv));
    if (elsewhere)
        x = graph_add(graph, x, pixels);
    x = graph_linear(graph, "fc", graph_global_avg_pool(graph, x), 4, true);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, x, label, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    assert_ok(graph_check(graph, &error), &error);
    TensorId made = TENSOR_NONE;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_NORMALIZE) {
            made = node->outputs[0];
            assert_int_equal(graph_tensor(graph, made)->producer, i);
            count++;
        }
        if (node->op == OP_CONV2D_BACKWARD_WEIGHT) /* of the last ones that were made, in front of it */
            assert_int_equal(node->inputs[1], made);
        if (node->op == OP_CONV2D)
            assert_int_equal(node->inputs[0], pixels);
    }
    graph_free(&graph);
    return count;
}

TEST(test_many_images_are_normalized_again_for_the_weight_gradient)
{
    assert_int_equal(count_normalized(86, false, FUSE_IMAGES_AGAIN), 2);
    assert_int_equal(count_normalized(85, false, FUSE_IMAGES_AGAIN), 1); /* fewer than 2^24 elements */
    assert_int_equal(count_normalized(86, true, FUSE_IMAGES_AGAIN), 1);
    assert_int_equal(count_normalized(86, false, FUSE_ALL), 1);
}

/* Returns how many nodes make a norm's gradient of a convolution's dy where a convolution of this kernel
 * and stride stands behind a norm and a ReLU. way 1: the ReLU's result is read twice; 2: statistics are of
 * several ranks; 3: another activation. */
static size_t count_joined(DataType type, int64_t kernel, int64_t stride, int way, unsigned fusions)
{
    const BatchNorm norm = {.training = true, .sync = way == 2};
    const Conv2d conv = {.channels = 8, .kernel = kernel, .stride = stride, .padding = kernel / 2};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_conv2d(graph, "first", test_image(graph, 2, 8, 3), &conv);
    x = graph_batch_norm(graph, "norm", x, &norm);
    x = way == 3 ? graph_gelu(graph, x) : graph_relu(graph, x);
    TensorId y = graph_conv2d(graph, "second", x, &conv);
    if (way == 1)
        y = graph_add(graph, graph_conv2d(graph, "third", x, &conv), y);
    y = graph_cast(graph, graph_global_avg_pool(graph, y), DATA_F32);
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    TensorId loss = graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0);
    graph_fuse(graph, fusions);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, fusions);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    const size_t count = test_count_ops(graph, OP_CONV_NORM_BACKWARD),
                 first = test_count_ops(graph, OP_CONV2D_BACKWARD_DATA);
    assert_int_equal(count + first, way == 1 ? 2 : 1);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op != OP_CONV_NORM_BACKWARD)
            continue;
        assert_int_equal(graph_tensor(graph, node->outputs[NORM_BACK_G])->producer, i);
        assert_int_equal(node->inputs[NORM_BACK_DY2] != TENSOR_NONE, way == 1);
    }
    graph_free(&graph);
    return count;
}

TEST(test_data_gradients_of_pointwise_convolutions_join_the_norms_gradient)
{
    const unsigned all = FUSE_ALL | FUSE_GRADIENT_CONV;
    assert_int_equal(count_joined(DATA_F16, 1, 1, 0, all), 1);
    assert_int_equal(count_joined(DATA_BF16, 1, 1, 0, all), 1);
    assert_int_equal(count_joined(DATA_F16, 1, 1, 1, all), 1); /* one of the two, to the other's sum */
    assert_int_equal(count_joined(DATA_F32, 1, 1, 0, all), 0);
    assert_int_equal(count_joined(DATA_F16, 3, 1, 0, all), 0);
    assert_int_equal(count_joined(DATA_F16, 1, 2, 0, all), 0);
    assert_int_equal(count_joined(DATA_F16, 1, 1, 2, all), 0);
    assert_int_equal(count_joined(DATA_F16, 1, 1, 3, all), 0);
    assert_int_equal(count_joined(DATA_F16, 1, 1, 0, FUSE_ALL), 0);
}

/* The second part of a norm's gradient may have more channels than the norm (FUSE_PAD_ADD): it stays. */
TEST(test_wider_data_gradients_stay_beside_the_norms_gradient)
{
    enum { SIZE = 8, NARROW = 8, WIDE = 16 };
    const BatchNorm norm = {.training = true};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, DATA_F16);
    TensorId x = graph_conv2d(graph, "first", test_image(graph, 2, SIZE, 3),
                              &(Conv2d){.channels = NARROW, .kernel = 3, .stride = 1, .padding = 1});
    x = graph_batch_norm(graph, "norm", x, &norm);
    const TensorId wide = graph_zero_pad(graph, x, SIZE, SIZE, WIDE);
    TensorId y = graph_add(
        graph,
        graph_conv2d(graph, "second", x, &(Conv2d){.channels = WIDE, .kernel = 3, .stride = 1, .padding = 1}),
        graph_conv2d(graph, "third", wide, &(Conv2d){.channels = WIDE, .kernel = 1, .stride = 1}));
    y = graph_cast(graph, graph_global_avg_pool(graph, y), DATA_F32);
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    const unsigned fusions = FUSE_ALL | FUSE_PAD_ADD | FUSE_GRADIENT_CONV;
    graph_fuse(graph, fusions);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    assert_int_equal(test_count_ops(graph, OP_CONV_NORM_BACKWARD), 0);
    assert_int_equal(test_count_ops(graph, OP_CROP), 0); /* the norm's gradient has a wider part */
    graph_free(&graph);
}

TEST(test_every_fusion_has_a_name)
{
    unsigned known = 0;
    for (int i = 0; fusion_names[i]; i++)
        known |= 1U << i;
    assert_int_equal(known, FUSE_ALL | FUSE_CONV_STATISTICS | FUSE_PAD_ADD | FUSE_IMAGES_AGAIN |
                                FUSE_GRADIENT_CONV | FUSE_NORM_SIGNS | FUSE_FUNCTION_BIAS |
                                FUSE_NORMALIZE_CONV | FUSE_GRADIENT_STRIDE | FUSE_STEM_GRADIENT |
                                FUSE_PAD_CONV | FUSE_CAST_LOSS | FUSE_LINEAR_SCALE | FUSE_NORM_PAIR);
}

/* Returns how many norms of a network with an addition behind a norm of so many channels leave signs. Checks
 * that the norm's gradient reads them, and no value. */
static size_t count_signs(DataType type, int64_t channels, bool frozen, unsigned fusions)
{
    const BatchNorm norm = {.training = true};
    const Conv2d conv = {.channels = channels, .kernel = 1, .stride = 1};
    size_t count = 0;
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    const TensorId x = graph_conv2d(graph, "first", test_image(graph, 2, 8, 3), &conv);
    TensorId y = graph_batch_norm(graph, "norm", graph_conv2d(graph, "second", x, &conv), &norm);
    if (frozen)
        graph_freeze(graph, graph_find(graph, "first.weight"));
    y = graph_conv2d(graph, "third", graph_relu(graph, graph_add(graph, y, x)), &conv);
    y = graph_cast(graph, graph_global_avg_pool(graph, y), DATA_F32);
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    graph_fuse(graph, fusions);
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op != OP_BATCH_NORM_BACKWARD && node->op != OP_CONV_NORM_BACKWARD)
            continue;
        const Tensor *read = graph_tensor(graph, node->inputs[NORM_BACK_Y]);
        const Node *made = graph_node(graph, read->producer);
        assert_int_equal(made->op, OP_BATCH_NORM);
        if (read->type != DATA_U8)
            continue;
        count++;
        assert_int_equal(read->shape[3], channels / 8);
        assert_int_equal(made->outputs[NORM_SIGNS], node->inputs[NORM_BACK_Y]);
    }
    graph_free(&graph);
    return count;
}

/* Returns how many gradients of functions make bias gradients, in a network of a convolution and a linear
 * layer, each with a bias and a function behind it, and one without a function. Checks that each bias has
 * one gradient. */
static size_t count_sums(DataType type, unsigned fusions)
{
    const Conv2d conv = {.channels = 16, .kernel = 3, .stride = 1, .padding = 1, .bias = true};
    size_t count = 0, biases = 0;
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId y = graph_gelu(graph, graph_conv2d(graph, "conv", test_image(graph, 2, 8, 3), &conv));
    y = graph_conv2d(graph, "plain", y, &conv);
    y = graph_silu(graph, graph_linear(graph, "linear", graph_global_avg_pool(graph, y), 24, true));
    y = graph_cast(graph, graph_linear(graph, "last", y, 8, true), DATA_F32);
    const TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    graph_differentiate(graph, graph_softmax_cross_entropy(graph, y, label, TENSOR_NONE, TENSOR_NONE, 0));
    graph_fuse_backward(graph, fusions);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        const bool function = node->op == OP_GELU_BACKWARD || node->op == OP_SILU_BACKWARD;
        const bool weight = node->op == OP_CONV2D_BACKWARD_WEIGHT || node->op == OP_LINEAR_BACKWARD_WEIGHT;
        const int output = function ? (int)POINTWISE_BACK_DBIAS : (int)CONV_WEIGHT_DBIAS;
        if ((!function && !weight) || node->output_count <= output || node->outputs[output] == TENSOR_NONE)
            continue;
        assert_int_equal(graph_tensor(graph, node->outputs[output])->producer, (NodeId)i);
        biases++;
        count += function;
    }
    assert_int_equal(biases, 4);
    graph_free(&graph);
    return count;
}

TEST(test_gradients_of_functions_make_those_of_biases)
{
    assert_int_equal(count_sums(DATA_BF16, FUSE_FUNCTION_BIAS), 2);
    assert_int_equal(count_sums(DATA_F16, FUSE_FUNCTION_BIAS), 2);
    assert_int_equal(count_sums(DATA_F32, FUSE_FUNCTION_BIAS), 0);
    assert_int_equal(count_sums(DATA_BF16, FUSE_ALL), 0);
}

TEST(test_norms_leave_the_signs_that_their_gradients_read)
{
    const unsigned all = FUSE_ALL | FUSE_GRADIENT_CONV | FUSE_NORM_SIGNS;
    assert_int_equal(count_signs(DATA_F16, 16, false, all), 1);
    assert_int_equal(count_signs(DATA_BF16, 16, false, FUSE_NORM_ADD_RELU | FUSE_NORM_SIGNS), 1);
    assert_int_equal(count_signs(DATA_F16, 12, false, all), 0);
    assert_int_equal(count_signs(DATA_F32, 16, false, all), 0);
    assert_int_equal(count_signs(DATA_F16, 16, true, FUSE_ALL | FUSE_NORM_SIGNS),
                     0); /* the addend's gradient is not wanted */
    assert_int_equal(count_signs(DATA_F16, 16, false, FUSE_ALL), 0);
}
