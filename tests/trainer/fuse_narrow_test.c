/* Rewrites of the graph that GPUs alone have, in 16 bits: each finds its pattern, and leaves alone what it
 * must. The others are in fuse_test. That results stay is in cuda_fusion_test. */
#include "trainer/graph/graph.h"

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"

/* Two norms in a row, with an addition and a convolution between them. */
typedef struct InARow {
    DataType type;
    BatchNorm first, second;
    bool gelu; /* behind the second */
    bool relu; /* behind the first */
    bool kept; /* what is between them; it is there anyway */
} InARow;

/* Checks the operands of a backward pair: those of the first norm, and of the one that reads its result. */
static void check_backward(const Graph *graph, const Node *node)
{
    const bool last = node->as.norm.activation == OP_RELU;
    assert_int_equal(node->inputs[NORM_BACK_WEIGHT],
                     graph_find(graph, last ? "third.weight" : "first.weight"));
    assert_int_equal(node->inputs[NORM_PAIR_BACK_WEIGHT],
                     graph_find(graph, last ? "fourth.weight" : "second.weight"));
    assert_int_equal(node->inputs[NORM_PAIR_BACK_BIAS],
                     graph_find(graph, last ? "fourth.bias" : "second.bias"));
    assert_int_equal(node->outputs[NORM_BACK_DWEIGHT],
                     graph_find(graph, last ? "third.weight.grad" : "first.weight.grad"));
    assert_int_equal(node->outputs[NORM_PAIR_BACK_DBIAS],
                     graph_find(graph, last ? "fourth.bias.grad" : "second.bias.grad"));
    assert_int_equal(node->inputs[NORM_BACK_DY2] != TENSOR_NONE,
                     !last); /* of the addition behind the third */
    assert_int_not_equal(node->outputs[NORM_BACK_G], TENSOR_NONE);
    const Node *forward = graph_node(graph, graph_tensor(graph, node->inputs[NORM_PAIR_BACK_Y])->producer);
    assert_int_equal(forward->op, OP_NORM_PAIR);
    assert_int_equal(forward->outputs[NORM_Y], node->inputs[NORM_PAIR_BACK_Y]);
    assert_int_equal(forward->inputs[NORM_X], node->inputs[NORM_BACK_X]);
    assert_int_equal(forward->outputs[NORM_PAIR_MEAN], node->inputs[NORM_PAIR_BACK_MEAN]);
}

/* Returns how many pairs there are, and checks that as many are backward. */
static size_t count_pairs(const InARow *of, unsigned fusions)
{
    const Conv2d conv = {.channels = 8, .kernel = 3, .stride = 1, .padding = 1};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    TensorId x = graph_conv2d(graph, "conv", test_image(graph, 2, 16, 3), &conv);
    x = graph_batch_norm(graph, "first", x, &of->first);
    if (of->relu)
        x = graph_relu(graph, x);
    if (of->kept)
        graph_keep(graph, x, "between");
    TensorId y = graph_batch_norm(graph, "second", x, &of->second);
    y = graph_conv2d(graph, "conv2", of->gelu ? graph_gelu(graph, y) : y, &conv);
    x = graph_add(graph, graph_batch_norm(graph, "third", y, &of->first), x);
    x = graph_relu(graph, graph_batch_norm(graph, "fourth", x, &of->second));
    test_finish(graph, graph_linear(graph, "fc", graph_global_avg_pool(graph, x), 4, true), fusions);
    const size_t count = test_count_ops(graph, OP_NORM_PAIR);
    assert_int_equal(test_count_ops(graph, OP_NORM_PAIR_BACKWARD), count);
    assert_int_equal(test_count_ops(graph, OP_BATCH_NORM), 4 - 2 * count);
    assert_int_equal(test_count_ops(graph, OP_BATCH_NORM_BACKWARD), 4 - 2 * count);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        for (int k = 0; k < node->output_count; k++)
            if (node->outputs[k] != TENSOR_NONE)
                assert_true(graph_tensor(graph, node->outputs[k])->producer == (NodeId)i ||
                            graph_tensor(graph, node->outputs[k])->role == TENSOR_BUFFER);
        if (node->op == OP_NORM_PAIR_BACKWARD)
            check_backward(graph, node);
        if (node->op != OP_NORM_PAIR)
            continue;
        const bool last = node->as.norm.activation == OP_RELU;
        const TensorId mean = graph_find(graph, last ? "fourth.running_mean" : "second.running_mean"),
                       var = graph_find(graph, last ? "fourth.running_var" : "second.running_var");
        assert_int_equal(node->inputs[NORM_PAIR_WEIGHT],
                         graph_find(graph, last ? "fourth.weight" : "second.weight"));
        assert_int_equal(node->inputs[NORM_PAIR_BIAS],
                         graph_find(graph, last ? "fourth.bias" : "second.bias"));
        assert_int_equal(node->inputs[NORM_PAIR_RUNNING_MEAN], mean);
        assert_int_equal(node->inputs[NORM_PAIR_RUNNING_VAR], var);
        assert_int_equal(node->outputs[NORM_PAIR_MOVED_MEAN], mean);
        assert_int_equal(node->outputs[NORM_PAIR_MOVED_VAR], var);
        assert_int_equal(node->inputs[NORM_ADDEND] != TENSOR_NONE, last);
    }
    graph_free(&graph);
    return count;
}

TEST(test_norms_in_a_row_become_one)
{
    const unsigned all = FUSE_ALL | FUSE_NORM_PAIR | FUSE_PAD_ADD;
    const BatchNorm norm = {.training = true}, other = {.training = true, .epsilon = 1e-3};
    const InARow plain = {.type = DATA_F16, .first = norm, .second = norm};
    InARow of = plain;
    assert_int_equal(count_pairs(&of, all), 2);
    assert_int_equal(count_pairs(&of, all & ~(unsigned)FUSE_NORM_PAIR), 0);
    of.type = DATA_BF16;
    of.kept = true;
    assert_int_equal(count_pairs(&of, all), 2);
    of.type = DATA_F32;
    assert_int_equal(count_pairs(&of, all), 0);
    of = plain;
    of.second = other;
    assert_int_equal(count_pairs(&of, all), 0);
    of.second = (BatchNorm){.training = true, .momentum = 0.5};
    assert_int_equal(count_pairs(&of, all), 0);
    of.second = (BatchNorm){.training = true, .sync = true};
    assert_int_equal(count_pairs(&of, all), 0);
    of.first = of.second = (BatchNorm){.training = true, .sample = 2};
    assert_int_equal(count_pairs(&of, all), 0);
    of = plain;
    of.gelu = true; /* the last has a ReLU */
    assert_int_equal(count_pairs(&of, all), 1);
    of = plain;
    of.relu = true; /* of the first; the third has none */
    assert_int_equal(count_pairs(&of, all), 1);
}

/* What reads normalised images: two convolutions, and, with `elsewhere`, a sum of their pixels. */
typedef struct Stems {
    DataType type;
    Conv2d one, other;
    bool elsewhere, kept;
} Stems;

/* Returns how often a graph normalises its images. Checks that convolutions and their weight gradients read
 * one tensor, and, where it is the bytes, know their mean. */
static size_t count_normalized_for(const Stems *of, unsigned fusions)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    const TensorId pixels = test_image(graph, 2, 16, 3);
    TensorId x = graph_global_avg_pool(graph, graph_conv2d(graph, "one", pixels, &of->one));
    x = graph_add(graph, x, graph_global_avg_pool(graph, graph_conv2d(graph, "other", pixels, &of->other)));
    x = graph_linear(graph, "fc", x, 4, true);
    if (of->elsewhere)
        x = graph_add(graph, x, graph_linear(graph, "mean", graph_global_avg_pool(graph, pixels), 4, true));
    if (of->kept)
        graph_keep(graph, pixels, "pixels");
    test_finish(graph, x, fusions);
    const size_t count = test_count_ops(graph, OP_NORMALIZE);
    assert_int_equal(test_count_ops(graph, OP_CONV2D_BACKWARD_WEIGHT), 2);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        const bool backward = node->op == OP_CONV2D_BACKWARD_WEIGHT;
        if (node->op != OP_CONV2D && !backward)
            continue;
        assert_int_equal(node->inputs[backward ? (int)CONV_WEIGHT_X : (int)CONV_X],
                         count ? pixels : graph_find(graph, "image"));
        assert_int_equal(graph_product_type(graph, node), of->type);
        if (count == 0)
            assert_true(node->as.conv.pixels.mean[1] == 127.5F &&
                        node->as.conv.pixels.deviation[2] == 63.75F);
    }
    graph_free(&graph);
    return count;
}

TEST(test_stems_and_few_channels_read_the_bytes_of_images_that_nothing_else_reads)
{
    const unsigned all = FUSE_ALL | FUSE_NORMALIZE_CONV;
    const Conv2d seven = {.channels = 8, .kernel = 7, .stride = 2, .padding = 3},
                 five = {.channels = 8, .kernel = 5, .stride = 2, .padding = 0, .bias = true},
                 three = {.channels = 8, .kernel = 3, .stride = 1, .padding = 1},
                 wide = {.channels = 33, .kernel = 3, .stride = 2, .padding = 1},
                 whole = {.channels = 8, .kernel = 7, .stride = 1, .padding = 3};
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, seven, five, false, false}, all), 0);
    assert_int_equal(count_normalized_for(&(Stems){DATA_BF16, five, seven, false, false}, all), 0);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F32, seven, five, false, false}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, seven, three, false, false}, all), 0);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F32, three, three, false, false}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, wide, wide, false, false}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, whole, seven, false, false}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, seven, five, true, false}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, seven, five, false, true}, all), 1);
    assert_int_equal(count_normalized_for(&(Stems){DATA_F16, seven, five, false, false}, FUSE_ALL), 1);
}

/* A reflection pad of an image of so many channels, and the convolution of it. */
typedef struct Padded {
    DataType type;
    int64_t size, in, padding;
    Conv2d conv;
    bool elsewhere; /* the padded image is read once more */
} Padded;

/* Returns how many pads a graph has, forward and backward. Checks that convolutions without one mirror their
 * images, in all directions, and that their results have the same sizes. */
static size_t count_pads(const Padded *of, unsigned fusions)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    const Conv2d first = {.channels = of->in, .kernel = 1, .stride = 1};
    const TensorId padded = graph_reflection_pad(
        graph, graph_conv2d(graph, "first", test_image(graph, 2, of->size, 3), &first), of->padding);
    const TensorId y = graph_conv2d(graph, "conv", padded, &of->conv);
    const int64_t height = graph_tensor(graph, y)->shape[1];
    TensorId x = graph_linear(graph, "fc", graph_global_avg_pool(graph, y), 4, true);
    if (of->elsewhere)
        x = graph_add(graph, x, graph_linear(graph, "other", graph_global_avg_pool(graph, padded), 4, true));
    test_finish(graph, x, fusions);
    const size_t count =
        test_count_ops(graph, OP_REFLECTION_PAD) + test_count_ops(graph, OP_REFLECTION_PAD_BACKWARD);
    size_t mirrored = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        const bool of_conv = node->op == OP_CONV2D || node->op == OP_CONV2D_BACKWARD_DATA ||
                             node->op == OP_CONV2D_BACKWARD_WEIGHT;
        if (of_conv && node->as.conv.options.reflects) {
            assert_int_equal(node->as.conv.options.padding, of->padding);
            mirrored++;
        }
        if (node->op == OP_CONV2D && node->as.conv.options.kernel == of->conv.kernel)
            assert_int_equal(graph_tensor(graph, node->outputs[0])->shape[1], height);
    }
    assert_int_equal(mirrored, count ? 0 : 3);
    graph_free(&graph);
    return count;
}

TEST(test_convolutions_of_few_channels_pad_by_reflection)
{
    const unsigned all = FUSE_ALL | FUSE_PAD_CONV;
    const Conv2d three = {.channels = 8, .kernel = 3, .stride = 2, .bias = true},
                 five = {.channels = 32, .kernel = 5, .stride = 1},
                 wide = {.channels = 33, .kernel = 3, .stride = 1},
                 padded = {.channels = 8, .kernel = 3, .stride = 1, .padding = 1};
    assert_int_equal(count_pads(&(Padded){DATA_F16, 16, 3, 1, three, false}, all), 0);
    assert_int_equal(count_pads(&(Padded){DATA_BF16, 8, 32, 2, five, false}, all), 0);
    assert_int_equal(count_pads(&(Padded){DATA_F16, 16, 3, 1, three, false}, FUSE_ALL), 2);
    assert_int_equal(count_pads(&(Padded){DATA_F32, 16, 3, 1, three, false}, all), 2);
    assert_int_equal(count_pads(&(Padded){DATA_F16, 16, 3, 1, three, true}, all), 2);
    assert_int_equal(count_pads(&(Padded){DATA_F16, 16, 3, 1, wide, false}, all), 2);
    assert_int_equal(count_pads(&(Padded){DATA_F16, 16, 3, 1, padded, false}, all), 2);
    assert_int_equal(count_pads(&(Padded){DATA_F16, 64, 32, 1, three, false}, all), 2);
}

/* Returns how many casts a graph has, of scores and of their gradient. Checks that the loss reads scores, and
 * makes a gradient, of `of_scores`, and probabilities in f32. */
static size_t count_casts(DataType type, bool kept, unsigned fusions, DataType of_scores)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_linear(graph, "fc", graph_global_avg_pool(graph, test_image(graph, 2, 8, 3)), 4, true);
    if (kept)
        graph_keep(graph, x = graph_cast(graph, x, DATA_F32), "scores");
    test_finish(graph, x, fusions);
    const size_t count = test_count_ops(graph, OP_CAST);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if (node->op == OP_SOFTMAX_CROSS_ENTROPY) {
            assert_int_equal(graph_tensor(graph, node->inputs[CLASS_LOSS_LOGITS])->type, of_scores);
            assert_int_equal(graph_tensor(graph, node->outputs[CLASS_LOSS_PROBABILITIES])->type, DATA_F32);
        } else if (node->op == OP_SOFTMAX_CROSS_ENTROPY_BACKWARD) {
            assert_int_equal(graph_tensor(graph, node->outputs[0])->type, of_scores);
            assert_int_equal(node_may_overwrite(graph, node, 0, CLASS_LOSS_BACK_PROBABILITIES),
                             of_scores == DATA_F32);
        }
    }
    graph_free(&graph);
    return count;
}

TEST(test_losses_read_scores_before_they_are_cast)
{
    const unsigned all = FUSE_ALL | FUSE_CAST_LOSS;
    assert_int_equal(count_casts(DATA_F16, false, all, DATA_F16), 0);
    assert_int_equal(count_casts(DATA_BF16, false, all, DATA_BF16), 0);
    assert_int_equal(count_casts(DATA_F16, true, all, DATA_F16), 1); /* what is kept is cast */
    assert_int_equal(count_casts(DATA_F16, false, FUSE_ALL, DATA_F32), 2);
}

/* A block behind a norm and its activation: a convolution of `kernel`, one of stride 2, and a shortcut
 * around them. */
typedef struct Block {
    DataType type;
    int64_t size, kernel;
    Conv2d shortcut;
    bool last;     /* the shortcut is appended after the convolutions */
    int reads;     /* 3: the norm's result is read once more, 1: by the shortcut alone */
    bool function; /* the activation is a GELU */
} Block;

static TensorId norm_of(Graph *graph, const char *name, TensorId x)
{
    return graph_batch_norm(graph, name, x, &(BatchNorm){.training = true});
}

static TensorId around(Graph *graph, const Block *of, TensorId x)
{
    return norm_of(graph, "shortcut_norm", graph_conv2d(graph, "shortcut", x, &of->shortcut));
}

static TensorId block_of(Graph *graph, const Block *of)
{
    const Conv2d start_of = {.channels = 16, .kernel = 3, .stride = 1, .padding = 1};
    const Conv2d first = {.channels = 16, .kernel = of->kernel, .stride = 1, .padding = of->kernel / 2};
    const Conv2d second = {.channels = 16, .kernel = 3, .stride = 2, .padding = 1};
    TensorId x =
        norm_of(graph, "norm", graph_conv2d(graph, "start", test_image(graph, 2, of->size, 3), &start_of));
    x = of->function ? graph_gelu(graph, x) : graph_relu(graph, x);
    TensorId y = of->last ? TENSOR_NONE : around(graph, of, x);
    if (of->reads > 1) {
        TensorId z = graph_relu(graph, norm_of(graph, "first_norm", graph_conv2d(graph, "first", x, &first)));
        z = norm_of(graph, "second_norm", graph_conv2d(graph, "second", z, &second));
        y = graph_add(graph, z, of->last ? around(graph, of, x) : y);
    }
    y = graph_global_avg_pool(graph, graph_relu(graph, y));
    if (of->reads > 2)
        y = graph_add(graph, y, graph_global_avg_pool(graph, x));
    return graph_linear(graph, "fc", y, 4, true);
}

/* Returns how many gradients of norms have a second part of every second row and column. Checks that these
 * come from convolutions of stride 1. */
static size_t count_strided(const Block *of, unsigned fusions)
{
    size_t count = 0;
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    test_finish(graph, block_of(graph, of), fusions);
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, (NodeId)i);
        if ((node->op != OP_BATCH_NORM_BACKWARD && node->op != OP_CONV_NORM_BACKWARD) ||
            node->inputs[NORM_BACK_DY2] == TENSOR_NONE)
            continue;
        const Tensor *x = graph_tensor(graph, node->inputs[NORM_BACK_X]),
                     *dy = graph_tensor(graph, node->inputs[NORM_BACK_DY]),
                     *dy2 = graph_tensor(graph, node->inputs[NORM_BACK_DY2]);
        assert_int_equal(dy->shape[1], x->shape[1]);
        if (dy2->shape[1] == x->shape[1])
            continue;
        const Node *data = graph_node(graph, dy2->producer);
        assert_int_equal(dy2->shape[1], (of->size + 1) / 2);
        assert_int_equal(dy2->shape[2], (of->size + 1) / 2);
        assert_int_equal(dy2->shape[3], 16);
        assert_int_equal(data->op, OP_CONV2D_BACKWARD_DATA);
        assert_int_equal(data->as.conv.options.stride, 1);
        assert_int_equal(graph_node_flops(graph, dy2->producer),
                         2 * 2 * dy2->shape[1] * dy2->shape[2] * 16 * 16);
        count++;
    }
    graph_free(&graph);
    return count;
}

TEST(test_shortcuts_of_stride_2_pass_on_the_pixels_that_they_read)
{
    const unsigned all = FUSE_ALL | FUSE_GRADIENT_CONV | FUSE_NORM_SIGNS | FUSE_GRADIENT_STRIDE;
    const Conv2d shortcut = {.channels = 16, .kernel = 1, .stride = 2};
    Block of = {.type = DATA_F16, .size = 8, .kernel = 3, .shortcut = shortcut, .reads = 2};
    for (of.size = 2; of.size <= 9; of.size++)
        for (of.kernel = 1; of.kernel <= 3; of.kernel += 2) {
            of.type = of.size % 2 ? DATA_BF16 : DATA_F16;
            of.last = of.size % 4 > 1;
            assert_int_equal(count_strided(&of, all), 1);
            assert_int_equal(count_strided(&of, all & ~(unsigned)FUSE_GRADIENT_CONV), 1);
            assert_int_equal(count_strided(&of, all & ~(unsigned)FUSE_GRADIENT_STRIDE), 0);
            assert_int_equal(count_strided(&of, all & ~(unsigned)FUSE_GRADIENT_ADD), 0);
        }
}

TEST(test_other_gradients_keep_their_zeros)
{
    const unsigned all = FUSE_ALL | FUSE_GRADIENT_CONV | FUSE_NORM_SIGNS | FUSE_GRADIENT_STRIDE;
    const Conv2d shortcut = {.channels = 16, .kernel = 1, .stride = 2};
    const Block plain = {.type = DATA_F16, .size = 8, .kernel = 1, .shortcut = shortcut, .reads = 2};
    Block of = plain;
    of.type = DATA_F32;
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.function = true; /* no kernel of theirs adds it */
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.shortcut.groups = 2;
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.reads = 1; /* nothing is added */
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.shortcut.kernel = 3;
    of.shortcut.padding = 1;
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.size = 1; /* there are no other pixels */
    assert_int_equal(count_strided(&of, all), 0);
    of = plain;
    of.reads = 3; /* a sum of three, whose last part it is, or not */
    of.kernel = 3;
    assert_int_equal(count_strided(&of, all), 1);
    of.last = true;
    assert_int_equal(count_strided(&of, all), 0);
}
