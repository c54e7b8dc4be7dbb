/* Boxes, shuffles, gates, channel scales and layer norms on the CUDA backend against the CPU's, alone and
 * between layer norms, which add up over the padding of narrow images; unet and nafnet as whole networks.
 *
 * Inputs have eight significant bits, so they are the same in every type. The CPU computes in f32: of f32,
 * 1e-5 of a tensor's size (rms) is allowed, the order of sums; of a narrow type, whose numbers are off by
 * epsilon / 2 at most each time they are stored, one epsilon for an op alone (its result and its gradient are
 * stored once) and four between norms (four times, amplified by up to 2). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/trainer/cuda_support.h"
#include "trainer/graph/graph_internal.h"

static const DataType types[] = {DATA_F32, DATA_BF16, DATA_F16};

static double tolerance(DataType type, bool between_norms)
{
    static const double epsilon[] = {[DATA_BF16] = 1.0 / 256, [DATA_F16] = 1.0 / 2048};
    return type == DATA_F32 ? 1e-5 : epsilon[type] * (between_norms ? 4 : 1);
}

/* ---- the ops, on an image of about [n, h, w, c] ---- */

typedef struct ChannelOp {
    const char *name;
    TensorId (*append)(Graph *graph, TensorId x, TensorId z);
    int64_t size_factor, channel_factor; /* x is [n, size_factor h, size_factor w, channel_factor c] */
    enum { Z_NONE, Z_LIKE_X, Z_OTHER_CHANNELS, Z_FACTORS } z;
} ChannelOp;

static const int64_t *shape_of(const Graph *graph, TensorId id)
{
    return graph_tensor(graph, id)->shape;
}

static TensorId pad_channels(Graph *graph, TensorId x, TensorId z)
{
    const int64_t *s = shape_of(graph, x);
    (void)z;
    return graph_zero_pad(graph, x, s[1], s[2], s[3] + 5);
}

static TensorId pad_size(Graph *graph, TensorId x, TensorId z)
{
    const int64_t *s = shape_of(graph, x);
    (void)z;
    return graph_zero_pad(graph, x, s[1] + 3, s[2] + 2, s[3]);
}

static TensorId pad_all(Graph *graph, TensorId x, TensorId z)
{
    const int64_t *s = shape_of(graph, x);
    (void)z;
    return graph_zero_pad(graph, x, s[1] + 1, s[2] + 4, s[3] + 8);
}

static TensorId crop(Graph *graph, TensorId x, TensorId z)
{
    const int64_t *s = shape_of(graph, x);
    (void)z;
    return graph_crop(graph, x, s[1] - (s[1] > 1), s[2] - (s[2] > 2 ? 2 : 0));
}

static TensorId scale(Graph *graph, TensorId x, TensorId z)
{
    return graph_channel_scale(graph, "scale", "beta", x, z);
}

static TensorId gate(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_gate(graph, x);
}

static TensorId norm(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_layer_norm(graph, "norm", x, 1e-2);
}

/* What comes back beside the norm is added in its backward pass. */
static TensorId norm_and_add(Graph *graph, TensorId x, TensorId z)
{
    return graph_add(graph, norm(graph, x, z), x);
}

static TensorId shuffle_two(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_pixel_shuffle(graph, x, 2);
}

static TensorId shuffle_three(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_pixel_shuffle(graph, x, 3);
}

static TensorId unshuffle_two(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_pixel_unshuffle(graph, x, 2);
}

static TensorId unshuffle_three(Graph *graph, TensorId x, TensorId z)
{
    (void)z;
    return graph_pixel_unshuffle(graph, x, 3);
}

static const ChannelOp ops[] = {
    {"zero pad of channels", pad_channels, 1, 1, Z_NONE},
    {"zero pad of sides", pad_size, 1, 1, Z_NONE},
    {"zero pad of all", pad_all, 1, 1, Z_NONE},
    {"crop", crop, 1, 1, Z_NONE},
    {"concat", graph_concat, 1, 1, Z_LIKE_X},
    {"concat of others", graph_concat, 1, 1, Z_OTHER_CHANNELS},
    {"channel scale", scale, 1, 1, Z_NONE},
    {"channel scale and add", scale, 1, 1, Z_LIKE_X},
    {"channel multiply", graph_channel_multiply, 1, 1, Z_FACTORS},
    {"gate", gate, 1, 2, Z_NONE},
    {"layer norm", norm, 1, 1, Z_NONE},
    {"layer norm beside its input", norm_and_add, 1, 1, Z_NONE},
    {"shuffle by 2", shuffle_two, 1, 4, Z_NONE},
    {"shuffle by 3", shuffle_three, 1, 9, Z_NONE},
    {"unshuffle by 2", unshuffle_two, 2, 1, Z_NONE},
    {"unshuffle by 3", unshuffle_three, 3, 1, Z_NONE},
};
enum { OPS = sizeof ops / sizeof *ops };

/* ---- a graph of one op ---- */

typedef struct Case {
    const ChannelOp *op;
    int64_t shape[4]; /* n, h, w, c of ChannelOp */
    /* a layer norm before and one behind; results may lie in the bytes of operands then */
    bool between_norms;
    DataType type;
} Case;

static TensorId input_with_gradient(Graph *graph, const char *name, int rank, const int64_t *shape)
{
    TensorId id = graph_input(graph, name, DATA_F32, rank, shape);
    graph->tensors[id].needs_gradient = true;
    return id;
}

static Graph *case_graph(const Case *c)
{
    FshError error = {0};
    Graph *graph = graph_new();
    const int64_t *s = c->shape;
    const int64_t x_shape[4] = {s[0], s[1] * c->op->size_factor, s[2] * c->op->size_factor,
                                s[3] * c->op->channel_factor};
    int64_t z_shape[4] = {x_shape[0], x_shape[1], x_shape[2],
                          c->op->z == Z_OTHER_CHANNELS ? x_shape[3] + 3 : x_shape[3]};
    const int64_t factors_shape[2] = {x_shape[0], x_shape[3]};
    TensorId x = input_with_gradient(graph, "x", 4, x_shape), z = TENSOR_NONE, y, dy;
    if (c->op->z == Z_FACTORS)
        z = input_with_gradient(graph, "z", 2, factors_shape);
    else if (c->op->z != Z_NONE)
        z = graph_cast(graph, input_with_gradient(graph, "z", 4, z_shape), c->type);
    y = graph_cast(graph, x, c->type);
    if (c->between_norms)
        y = graph_layer_norm(graph, "before", y, 1);
    y = c->op->append(graph, y, z);
    if (c->between_norms)
        y = graph_layer_norm(graph, "after", y, 1);
    y = graph_cast(graph, y, DATA_F32);
    assert_ok(graph_check(graph, &error), &error);
    graph_keep(graph, y, "y");
    const size_t forward_count = graph_node_count(graph);
    dy = graph_input(graph, "dy", DATA_F32, 4, shape_of(graph, y));
    graph_contribute_gradient(graph, y, dy);
    graph_append_backward_pass(graph, forward_count);
    graph_keep(graph, graph_gradient(graph, x), "dx");
    if (c->op->z != Z_NONE)
        graph_keep(graph, graph_gradient(graph, graph_find(graph, "z")), "dz");
    assert_ok(graph_check(graph, &error), &error);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison.ran[graph_node(graph, (NodeId)n)->op] |= graph_node(graph, (NodeId)n)->op != OP_CAST;
    return graph;
}

/* Eight significant bits, -2 to 2. The same for a tensor of the same name and size. */
static float *draw(const Tensor *tensor)
{
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    Random random;
    assert_non_null(values);
    uint64_t stream = count;
    for (const char *c = tensor->name; *c; c++)
        stream = random_stream(stream, (uint64_t)*c);
    random_start(&random, comparison.seed, stream);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((int)random_below(&random, 257) - 128) / 64;
    return values;
}

static Side run(Backend *backend, const Graph *graph)
{
    FshError error = {0};
    Side side = {NULL, NULL};
    assert_ok(state_new(&side.state, backend, graph, &error), &error);
    assert_ok(program_new(&side.program, side.state, graph, &error), &error);
    assert_ok(program_poison(side.program, &error), &error);
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        if (tensor->role != TENSOR_INPUT && tensor->role != TENSOR_PARAMETER)
            continue;
        float *values = draw(tensor);
        if (tensor->role == TENSOR_INPUT)
            assert_ok(program_write(side.program, (TensorId)t, values, count * sizeof *values, &error),
                      &error);
        else
            assert_ok(state_write(side.state, tensor->name, values, count, &error), &error);
        free(values);
    }
    assert_ok(program_run(side.program, &error), &error);
    return side;
}

/* ---- results ---- */

static float *read_values(const Side *side, const Graph *graph, TensorId id)
{
    FshError error = {0};
    const size_t bytes = (size_t)tensor_count(graph_tensor(graph, id)) * sizeof(float);
    float *values = malloc(bytes);
    assert_non_null(values);
    assert_ok(program_read(side->program, id, values, bytes, &error), &error);
    return values;
}

static void compare_case_tensor(const Case *c, const char *name, const float *ours, const float *theirs,
                                size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += pow((double)ours[i] - (double)theirs[i], 2);
        size += pow((double)theirs[i], 2);
    }
    /* in front of a norm over one channel gradients are 0 */
    const double relative = size > 0 ? sqrt(difference / size) : difference;
    if (c->type == DATA_F32)
        comparison.largest = fmax(comparison.largest, relative);
    if (relative <= tolerance(c->type, c->between_norms))
        return;
    print_error("%s of %d x %d x %d x %d%s in %s: %s differs by %.2g of its size\n", c->op->name,
                (int)c->shape[0], (int)c->shape[1], (int)c->shape[2], (int)c->shape[3],
                c->between_norms ? " between norms" : "", data_type_name(c->type), name, relative);
    comparison.mismatches++;
}

/* Everything that the f32 graph keeps, and its gradients of parameters. Twice: the same bits. */
static void compare_case(const Case *wanted)
{
    Case reference = *wanted;
    reference.type = DATA_F32;
    Graph *graph = case_graph(wanted), *theirs_graph = case_graph(&reference);
    Side ours = run(backends[CUDA], graph), again = run(backends[CUDA], graph);
    Side theirs = run(backends[CPU], theirs_graph);
    int compared = 0;
    for (size_t t = 0; t < graph_tensor_count(theirs_graph); t++) {
        const Tensor *tensor = graph_tensor(theirs_graph, (TensorId)t);
        const size_t count = (size_t)tensor_count(tensor);
        /* the gradient of an addend is dy itself */
        if (tensor->producer == NODE_NONE || (tensor->role != TENSOR_GRADIENT && !tensor->keep))
            continue;
        const TensorId id = graph_find(graph, tensor->name);
        float *a = read_values(&ours, graph, id), *b = read_values(&again, graph, id);
        float *c = read_values(&theirs, theirs_graph, (TensorId)t);
        assert_memory_equal(a, b, count * sizeof *a);
        compare_case_tensor(wanted, tensor->name, a, c, count);
        compared++;
        free(a);
        free(b);
        free(c);
    }
    assert_true(compared >= 2);
    side_end(&ours);
    side_end(&again);
    side_end(&theirs);
    graph_free(&graph);
    graph_free(&theirs_graph);
}

static void compare_op(const ChannelOp *op, DataType type, const int64_t shape[4])
{
    /* what a norm leaves of the gradients of a few channels is mostly rounding */
    for (int between = 0; between < (shape[3] > 3 ? 2 : 1); between++)
        compare_case(&(Case){.op = op,
                             .shape = {shape[0], shape[1], shape[2], shape[3]},
                             .between_norms = between,
                             .type = type});
}

/* One pixel; channels that are no whole vectors of either type; whole ones; odd sides; a batch. */
static void compare_small(DataType type)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},  {1, 3, 5, 3},  {2, 6, 3, 11}, {3, 5, 7, 8},
                                        {2, 7, 4, 12}, {2, 6, 9, 20}, {3, 4, 5, 32}};
    for (int i = 0; i < OPS; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            compare_op(&ops[i], type, shapes[s]);
}

CUDA_TEST(test_ops_in_f32_agree)
{
    compare_small(DATA_F32);
}

CUDA_TEST(test_ops_in_bf16_agree)
{
    compare_small(DATA_BF16);
}

CUDA_TEST(test_ops_in_f16_agree)
{
    compare_small(DATA_F16);
}

/* Each size of a group of lanes, pixels that a group does not hold, blocks that do not hold a row. */
CUDA_TEST(test_all_numbers_of_channels_agree)
{
    static const int64_t channels[] = {40, 70, 128, 136, 250, 256, 264, 512, 520, 1024, 1032, 1100, 2100};
    for (size_t type = 0; type < sizeof types / sizeof *types; type++)
        for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
            for (int op = 0; op < OPS; op++)
                if (ops[op].append == norm || ops[op].append == norm_and_add || ops[op].append == scale ||
                    ops[op].z == Z_FACTORS)
                    compare_op(&ops[op], types[type], (int64_t[]){2, 3, 3, channels[i]});
}

/* Many strips, many rows for each thread, more than one round of the grid. */
CUDA_TEST(test_large_images_are_like_the_cpus)
{
    for (size_t type = 0; type < sizeof types / sizeof *types; type++)
        for (int op = 0; op < OPS; op++) {
            compare_op(&ops[op], types[type], (int64_t[]){2, 70, 66, 16});
            if (ops[op].append == norm || ops[op].append == norm_and_add || ops[op].append == scale ||
                ops[op].z == Z_FACTORS)
                compare_op(&ops[op], types[type], (int64_t[]){2, 201, 256, 32});
        }
}

/* ---- whole networks ---- */

/* A network that begins as the identity, so that it takes two steps before all gradients are something. Sizes
 * that it pads. */
static void compare_restoration(const char *name, int64_t batch, int64_t height, int64_t width,
                                uint64_t steps)
{
    FshError error = {0};
    Graph *graph = NULL;
    const bool has_blocks = strcmp(name, "nafnet") == 0;
    ModelSpec spec = {.batch = batch, .height = height, .width = width, .channels = 3, .training = true};
    model_value(&spec.options, "width")->integer = 8;
    model_value(&spec.options, "encoder-blocks")->text = has_blocks ? "1,2" : NULL;
    model_value(&spec.options, "middle-blocks")->text = has_blocks ? "1" : NULL;
    model_value(&spec.options, "decoder-blocks")->text = has_blocks ? "1,1" : NULL;
    const ModelRecipe recipe = {
        .deviation = {1, 1, 1}, .loss = LOSS_CHARBONNIER, .optimizer = {.momentum = 0.9}};
    assert_ok(model_graph(model_find(name), &spec, &recipe, &graph, &error), &error);
    compare_graph(&comparison, backends[CUDA], graph, name, steps);
}

CUDA_TEST(test_unet_trains_alike)
{
    compare_restoration("unet", 2, 26, 37, 2);
}

CUDA_TEST(test_nafnet_trains_alike)
{
    compare_restoration("nafnet", 2, 26, 37, 3);
    compare_restoration("nafnet", 1, 16, 16, 2);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
