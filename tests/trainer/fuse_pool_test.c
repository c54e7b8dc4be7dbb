/* FUSE_NORM_POOL, and FUSE_STEM_GRADIENT behind it: each finds its pattern, leaves alone what it must, and
 * what the first makes has its gradients. That results stay is in fusion_test and cuda_fusion_test. */
#include "trainer/graph/graph.h"

#include "tests/support/support.h"
#include "tests/trainer/graph_support.h"

/* A convolution, its norm, an activation and a pool, of two images. */
typedef struct Pattern {
    int64_t size, channels;
    Pool2d pool;
    bool no_relu, gelu, evaluated, bias;
    float slope;
    bool kept, read_twice; /* the result of the activation */
    bool pooled_twice;     /* what comes of the pool is read twice */
    bool addend;           /* in front of the activation */
    int frozen;            /* of weight and bias of the norm: 1: the weight, 3: both */
    int sample;            /* of the norm's statistics */
    bool frozen_layer;     /* the convolution */
} Pattern;

static const Pool2d three = {.kernel = 3, .stride = 2, .padding = 1}, two = {.kernel = 2, .stride = 2};

/* Returns the graph, differentiated; the caller frees it. */
static Graph *graph_of(const Pattern *of, unsigned fusions)
{
    Graph *graph = graph_new();
    const TensorId pixels = test_image(graph, 2, of->size, 3);
    const Conv2d conv = {.channels = of->channels, .kernel = 3, .stride = 1, .padding = 1, .bias = of->bias};
    const BatchNorm norm = {.training = !of->evaluated, .sample = of->sample};
    TensorId x = graph_batch_norm(graph, "norm", graph_conv2d(graph, "conv", pixels, &conv), &norm);
    if (of->addend)
        x = graph_add(graph, x, graph_conv2d(graph, "other", pixels, &conv));
    if (of->gelu)
        x = graph_gelu(graph, x);
    else if (!of->no_relu)
        x = of->slope != 0 ? graph_leaky_relu(graph, x, of->slope) : graph_relu(graph, x);
    if (of->kept)
        graph_keep(graph, x, "kept");
    TensorId y = graph_max_pool(graph, x, &of->pool);
    TensorId features = graph_global_avg_pool(graph, y);
    if (of->read_twice)
        features = graph_add(graph, features, graph_global_avg_pool(graph, x));
    if (of->pooled_twice)
        features = graph_add(graph, features, graph_global_avg_pool(graph, graph_relu(graph, y)));
    features = graph_linear(graph, "fc", features, 4, true);
    if (of->frozen & 1)
        graph_freeze(graph, graph_find(graph, "norm.weight"));
    if (of->frozen & 2)
        graph_freeze(graph, graph_find(graph, "norm.bias"));
    if (of->frozen_layer)
        graph_freeze(graph, graph_find(graph, "conv.weight"));
    test_finish(graph, features, fusions);
    return graph;
}

/* Returns whether norm and pool are joined; else both must be there. */
static bool joins(const Pattern *of, unsigned fusions)
{
    Graph *graph = graph_of(of, fusions);
    const size_t joined = test_count_ops(graph, OP_NORM_POOL);
    assert_int_equal(joined + test_count_ops(graph, OP_BATCH_NORM), 1);
    assert_int_equal(joined + test_count_ops(graph, OP_MAX_POOL), 1);
    assert_int_equal(joined + test_count_ops(graph, OP_MAX_POOL_BACKWARD), 1);
    graph_free(&graph);
    return joined == 1;
}

TEST(test_norms_join_pools_that_halve)
{
    static const Pattern with[] = {
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}},
        {.size = 512, .channels = 8, .pool = {2, 2, 0, false}},
        {.size = 300, .channels = 24, .pool = {3, 2, 1, false}, .bias = true},
        {.size = 512, .channels = 8, .pool = {2, 2, 0, false}, .no_relu = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .slope = 0.2F},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .pooled_twice = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .frozen = 1},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .frozen = 2},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .frozen_layer = true},
    };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        if (!joins(&with[i], FUSE_ALL))
            fail_msg("pattern %zu is left alone", i);
        assert_false(joins(&with[i], FUSE_ALL & ~(unsigned)FUSE_NORM_POOL));
    }
}

TEST(test_norms_and_other_pools_stay_apart)
{
    static const Pattern without[] = {
        {.size = 511, .channels = 8, .pool = {3, 2, 1, false}}, /* few values */
        {.size = 600, .channels = 12, .pool = {3, 2, 1, false}},
        {.size = 512, .channels = 8, .pool = {3, 1, 1, false}},
        {.size = 512, .channels = 8, .pool = {3, 2, 0, false}},
        {.size = 512, .channels = 8, .pool = {3, 3, 0, false}},
        {.size = 512, .channels = 8, .pool = {2, 2, 1, false}},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .gelu = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .evaluated = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .kept = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .read_twice = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .addend = true},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .frozen = 3},
        {.size = 512, .channels = 8, .pool = {3, 2, 1, false}, .sample = 2},
    };
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (joins(&without[i], FUSE_ALL))
            fail_msg("pattern %zu is joined", i);
}

/* Returns the only node of the op. */
static const Node *only_node(const Graph *graph, OpKind op)
{
    const Node *found = NULL;
    for (size_t n = 0; n < graph_node_count(graph); n++)
        if (graph_node(graph, (NodeId)n)->op == op) {
            assert_null(found);
            found = graph_node(graph, (NodeId)n);
        }
    assert_non_null(found);
    return found;
}

/* The layer in front keeps what norms give it: its bias, and, where asked, the sums. */
TEST(test_what_is_joined_is_still_a_norm)
{
    const Pattern of = {.size = 512, .channels = 8, .pool = three, .bias = true, .pooled_twice = true};
    Graph *graph = graph_of(&of, FUSE_ALL);
    const Node *forward = only_node(graph, OP_NORM_POOL), *sums = only_node(graph, OP_BATCH_NORM_BACKWARD),
               *backward = only_node(graph, OP_NORM_POOL_BACKWARD);
    const Tensor *g = graph_tensor(graph, sums->outputs[NORM_BACK_G]);
    assert_true(forward->inputs[NORM_LAYER_BIAS] == graph_find(graph, "conv.bias"));
    assert_int_equal(forward->as.norm.activation, OP_RELU);
    assert_int_equal(graph_tensor(graph, forward->outputs[NORM_Y])->shape[1], 256);
    assert_true(sums->inputs[NORM_BACK_X] == forward->outputs[NORM_POOL_EXTREME]);
    assert_true(sums->inputs[NORM_BACK_DY2] !=
                TENSOR_NONE); /* both readers' gradients: none adds them before */
    assert_true(sums->outputs[NORM_BACK_DX] == TENSOR_NONE);
    assert_int_equal(test_count_ops(graph, OP_ADD), 1); /* of features */
    assert_true(g->rank == 4 && g->shape[1] == 256 && g->shape[3] == 8);
    assert_true(backward->inputs[NORM_POOL_BACK_G] == sums->outputs[NORM_BACK_G]);
    assert_true(backward->inputs[NORM_POOL_BACK_DWEIGHT] == graph_find(graph, "norm.weight.grad"));
    assert_true(backward->inputs[NORM_POOL_BACK_DBIAS] == graph_find(graph, "norm.bias.grad"));
    assert_int_equal(graph_tensor(graph, backward->outputs[0])->shape[1], 512);
    graph_free(&graph);
}

/* Nothing in front of the norm is trained: its own gradients are all that is made. */
TEST(test_no_gradient_passes_to_what_is_frozen)
{
    const Pattern of = {.size = 512, .channels = 8, .pool = two, .frozen_layer = true};
    Graph *graph = graph_of(&of, FUSE_ALL);
    assert_int_equal(test_count_ops(graph, OP_NORM_POOL_BACKWARD), 0);
    assert_true(only_node(graph, OP_BATCH_NORM_BACKWARD)->outputs[NORM_BACK_G] == TENSOR_NONE);
    graph_free(&graph);
}

TEST(test_convolutions_in_f16_make_the_sums_of_a_joined_norm)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, DATA_F16);
    TensorId x = graph_conv2d(graph, "conv", test_image(graph, 2, 512, 3),
                              &(Conv2d){.channels = 8, .kernel = 3, .stride = 1, .padding = 1});
    (void)graph_max_pool(
        graph, graph_relu(graph, graph_batch_norm(graph, "n", x, &(BatchNorm){.training = true})), &three);
    graph_fuse(graph, FUSE_ALL | FUSE_CONV_STATISTICS);
    assert_int_equal(graph_check(graph, NULL), FSH_OK);
    const Node *forward = only_node(graph, OP_NORM_POOL), *conv = only_node(graph, OP_CONV2D);
    assert_true(forward->inputs[NORM_SUMS] != TENSOR_NONE);
    assert_true(forward->inputs[NORM_SUMS] == conv->outputs[CONV_SUMS]);
    graph_free(&graph);
}

/* A stem of bytes, its norm, a ReLU and a pool. */
typedef struct Stem {
    Conv2d conv;
    Pool2d pool;
    DataType type;
    bool read_twice; /* the images */
} Stem;

/* Returns whether the stem's weight gradient reads what the pool leaves; else the pool's gradient must be
 * there. */
static bool joins_stem(const Stem *of, unsigned fusions)
{
    Graph *graph = graph_new();
    graph_set_compute_type(graph, of->type);
    graph_set_pool_least(graph, 1);
    const TensorId pixels = test_image(graph, 2, 40, 3);
    TensorId x = graph_conv2d(graph, "conv", pixels, &of->conv);
    x = graph_relu(graph, graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true}));
    x = graph_linear(graph, "fc", graph_global_avg_pool(graph, graph_max_pool(graph, x, &of->pool)), 4, true);
    if (of->read_twice)
        x = graph_add(graph, x, graph_linear(graph, "mean", graph_global_avg_pool(graph, pixels), 4, true));
    test_finish(graph, x, fusions);
    const size_t joined = test_count_ops(graph, OP_STEM_BACKWARD_WEIGHT);
    assert_int_equal(joined + test_count_ops(graph, OP_NORM_POOL_BACKWARD), 1);
    assert_int_equal(joined + test_count_ops(graph, OP_CONV2D_BACKWARD_WEIGHT), 1);
    if (joined) {
        const Node *node = only_node(graph, OP_STEM_BACKWARD_WEIGHT);
        assert_true(node->inputs[STEM_BACK_PIXELS] == graph_find(graph, "image"));
        assert_true(node->outputs[0] == graph_find(graph, "conv.weight.grad"));
        assert_true(node->as.conv.pixels.mean[1] == 127.5F);
        assert_int_equal(graph_product_type(graph, node), of->type);
        assert_int_equal(graph_node_flops(graph, graph_tensor(graph, node->outputs[0])->producer),
                         2LL * 2 * 20 * 20 * 64 * 7 * 7 * 3);
    }
    graph_free(&graph);
    return joined == 1;
}

TEST(test_stems_read_what_their_pools_leave)
{
    const unsigned all = FUSE_ALL | FUSE_NORMALIZE_CONV | FUSE_STEM_GRADIENT;
    const Conv2d resnet = {.channels = 64, .kernel = 7, .stride = 2, .padding = 3},
                 biased = {.channels = 64, .kernel = 7, .stride = 2, .padding = 3, .bias = true},
                 narrow = {.channels = 32, .kernel = 7, .stride = 2, .padding = 3},
                 five = {.channels = 64, .kernel = 5, .stride = 2, .padding = 2},
                 shifted = {.channels = 64, .kernel = 7, .stride = 2, .padding = 2};
    const Stem with[] = {{resnet, three, DATA_F16, false}, {biased, three, DATA_BF16, false}},
               without[] = {{resnet, three, DATA_F32, false},  {resnet, two, DATA_F16, false},
                            {narrow, three, DATA_F16, false},  {five, three, DATA_F16, false},
                            {shifted, three, DATA_F16, false}, {resnet, three, DATA_F16, true}};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        assert_true(joins_stem(&with[i], all));
        assert_false(joins_stem(&with[i], all & ~(unsigned)FUSE_STEM_GRADIENT));
        assert_false(joins_stem(&with[i], all & ~(unsigned)FUSE_NORMALIZE_CONV));
    }
    assert_false(joins_stem(&with[1], all & ~(unsigned)FUSE_BIAS_NORM)); /* the gradient of its bias */
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (joins_stem(&without[i], all))
            fail_msg("stem %zu is joined", i);
}
