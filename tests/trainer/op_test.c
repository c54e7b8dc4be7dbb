/* Every op of op_cases.h on the CPU: against PyTorch in float64 (golden/make_golden.py), fused against
 * unfused, in bf16 against f32, and its gradients against finite differences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden_program.h"
#include "tests/trainer/op_run.h"
#include "trainer/backend/cpu/onednn.h"

static Comparison comparison = {.seed = 1};

int test_group_setup(void **state)
{
    (void)state;
    comparison.theirs = golden_backend();
    return 0;
}

int test_group_teardown(void **state)
{
    (void)state;
    backend_close(&comparison.theirs);
    return 0;
}

/* ---- PyTorch ---- */

static int64_t number(const json_t *c, const char *key)
{
    return json_object_get(c, key) && !json_is_real(json_object_get(c, key)) ? golden_integer(c, key) : 0;
}

/* Returns the options that a golden case names. Boxes are told by their size, as x is. */
static OpOptions golden_options(json_t *c, const int64_t x[4])
{
    const int64_t kernel = number(c, "kernel"), stride = number(c, "stride"), padding = number(c, "padding");
    const bool pads = strcmp(golden_text(c, "op"), "zero_pad") == 0;
    const int64_t channels = number(c, "features");
    const char *const reals[] = {"slope", "smoothing", "factor"};
    OpOptions options = {
        .conv = {.channels = channels ? channels : number(c, "channels"),
                 .kernel = kernel,
                 .stride = stride,
                 .padding = padding,
                 .bias = number(c, "bias"),
                 .groups = number(c, "groups")},
        .pool = {kernel, stride, padding, json_is_true(json_object_get(c, "ceil"))},
        .norm = {.training = number(c, "training")},
        .factor = number(c, "factor"),
        .heads = number(c, "heads"),
        .relu = json_object_get(c, "slope") != NULL,
    };
    if (strstr(golden_text(c, "op"), "_norm") && strncmp(golden_text(c, "op"), "batch_norm", 10) != 0)
        options.norm.epsilon = 1e-6;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (json_object_get(c, reals[i]))
            options.slope = (float)golden_real(c, reals[i]);
    const char *const sides[] = {"height", "width", "channels"};
    for (int i = 0; i < 3; i++)
        options.box[i] = pads ? number(c, sides[i]) - x[i + 1] : x[i + 1] - number(c, sides[i]);
    return options;
}

static Graph *golden_graph(json_t *c, bool fuse)
{
    json_t *inputs = json_object_get(c, "inputs"), *addend = golden_find(inputs, "addend");
    json_t *other_spec = addend ? addend : golden_find(inputs, "other"),
           *labels = json_object_get(c, "labels");
    const OpTest *row = op_test_of_golden(golden_text(c, "op"));
    TensorId other = TENSOR_NONE;
    int64_t shape[4] = {0}, other_shape[4];
    Graph *graph = graph_new();
    assert_non_null(graph);
    if (!row)
        fail_msg("%s: no row of op_cases.c has this op as its golden one", golden_text(c, "op"));
    const int rank = golden_shape(golden_find(inputs, "x"), shape);
    const OpOptions options = golden_options(c, shape);
    const TensorId x = op_input(graph, "x", rank, shape);
    if (other_spec)
        other = op_input(graph, golden_text(other_spec, "name"), golden_shape(other_spec, other_shape),
                         other_shape);
    else if (labels)
        other = graph_input(graph, "labels", DATA_I64, 1, (int64_t[]){(int64_t)json_array_size(labels)});
    const TensorId y = row->build(graph, &options, x, other);
    graph_keep(graph, y, "y");
    if (fuse)
        graph_fuse(graph, FUSE_ALL);
    op_differentiate(graph, y, x, other, addend ? "daddend" : "dother");
    return graph;
}

/* Returns the worst relative error of a case. fuse: bool *. */
static double golden_case_error(json_t *document, json_t *c, const void *fuse)
{
    (void)document;
    const char *name = golden_text(c, "name");
    FshError error = {0};
    Graph *graph = golden_graph(c, *(const bool *)fuse);
    Side side;
    side_start(&side, comparison.theirs, graph, &comparison);
    golden_write_generated(side.state, side.program, json_object_get(c, "inputs"));
    if (json_object_get(c, "labels"))
        golden_write_labels(side.program, "labels", json_object_get(c, "labels"));
    golden_check(program_run(side.program, &error), name, &error);
    const double worst = golden_compare(side.state, side.program, json_object_get(c, "expected"), name);
    side_end(&side);
    graph_free(&graph);
    return worst;
}

TEST(test_ops_agree_with_pytorch)
{
    golden_compare_cases("layers.json", 89, GOLDEN_TOLERANCE, golden_case_error, &(bool){false});
}

TEST(test_fused_ops_agree_with_pytorch)
{
    golden_compare_cases("layers.json", 89, GOLDEN_TOLERANCE, golden_case_error, &(bool){true});
}

/* ---- other ways of the CPU's ---- */

static void compare_with_plain_f32(DataType type)
{
    comparison.mismatches = 0;
    assert_true(compare_ops(&comparison, comparison.theirs, type, OP_CASES_OF_CPU) > 0);
    assert_int_equal(comparison.mismatches, 0);
}

TEST(test_fused_ops_agree_with_unfused_ones)
{
    compare_with_plain_f32(DATA_F32);
}

/* The test is left out on a processor on which oneDNN does not compute in bf16, or that is told to be one. */
TEST(test_ops_in_bf16_agree_with_f32)
{
    if (dnn_check_type(DATA_BF16, NULL))
        skip();
    compare_with_plain_f32(DATA_BF16);
}

/* ---- finite differences ---- */

enum { GRADIENT_ELEMENTS_MAX = 1 << 12 };

/* Returns sum(y * dy) after a run. */
static double run_loss(const Side *side, const Graph *graph)
{
    FshError error = {0};
    const TensorId ids[] = {graph_find(graph, "y"), graph_find(graph, "dy")};
    const size_t count = (size_t)tensor_count(graph_tensor(graph, ids[0]));
    float *values[2];
    double sum = 0;
    assert_ok(program_run(side->program, &error), &error);
    for (int i = 0; i < 2; i++) {
        values[i] = malloc(count * sizeof(float));
        assert_non_null(values[i]);
        assert_ok(program_read(side->program, ids[i], values[i], count * sizeof(float), &error), &error);
    }
    for (size_t i = 0; i < count; i++)
        sum += (double)values[0][i] * (double)values[1][i];
    free(values[0]);
    free(values[1]);
    return sum;
}

/* Writes an input or a parameter, whichever the tensor is. */
static void write_variable(Side *side, TensorId id, const float *values, size_t count)
{
    FshError error = {0};
    const Tensor *tensor = graph_tensor(side->program->graph, id);
    if (tensor->role == TENSOR_INPUT)
        assert_ok(program_write(side->program, id, values, count * sizeof *values, &error), &error);
    else
        assert_ok(state_write(side->state, tensor->name, values, count, &error), &error);
}

static float *read_variable(const Side *side, const Graph *graph, TensorId id)
{
    FshError error = {0};
    const Tensor *tensor = graph_tensor(graph, id);
    const size_t count = (size_t)tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    if (tensor->role == TENSOR_PARAMETER)
        assert_ok(state_read(side->state, tensor->name, values, count, &error), &error);
    else
        assert_ok(program_read(side->program, id, values, count * sizeof *values, &error), &error);
    return values;
}

static double square_of(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

/* Returns (loss(w + h d) - loss(w - h d)) / 2 h, with w written again. */
static double slope_along(Side *side, const Graph *graph, TensorId id, const float *w, const float *d,
                          double h)
{
    const size_t count = (size_t)tensor_count(graph_tensor(graph, id));
    double losses[2];
    float *moved = malloc(count * sizeof *moved);
    assert_non_null(moved);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < count; k++)
            moved[k] = (float)((double)w[k] + (i ? -h : h) * (double)d[k]);
        write_variable(side, id, moved, count);
        losses[i] = run_loss(side, graph);
    }
    write_variable(side, id, w, count);
    free(moved);
    return (losses[0] - losses[1]) / (2 * h);
}

/* Returns whether the gradient g of w agrees with finite differences: along g the loss must rise by ||g||^2.
 * A step moves w by a thousandth of its size, well above float's rounding and well below where the loss
 * bends. */
static bool gradient_agrees(Side *side, const Graph *graph, TensorId id, TensorId gradient, const char *text)
{
    const size_t count = (size_t)tensor_count(graph_tensor(graph, id));
    (void)run_loss(side, graph);
    float *w = read_variable(side, graph, id), *g = read_variable(side, graph, gradient);
    const double square = square_of(g, count), size = sqrt(square_of(w, count));
    double slope = 0;
    if (square > 1e-10) {
        slope = slope_along(side, graph, id, w, g, 0.001 * size / sqrt(square));
    } else { /* no gradient: the loss must be flat */
        for (size_t i = 0; i < count; i++)
            g[i] = i % 2 ? -1 : 1;
        slope = slope_along(side, graph, id, w, g, 0.001 * size / sqrt((double)count));
    }
    const bool agrees = fabs(slope - square) <= 0.02 * square + 1e-3;
    if (!agrees)
        print_message("%s: %s: finite differences give %g, autodiff %g\n", text,
                      graph_tensor(graph, id)->name, slope, square);
    free(w);
    free(g);
    return agrees;
}

/* Checks the gradients of x, of the other operand and of every parameter. Returns how many are wrong. */
static int check_gradients(const OpTest *row, const OpCase *c, const char *text)
{
    static const char *const inputs[][2] = {{"x", "dx"}, {"other", "dother"}};
    Side side;
    Graph *graph = op_graph(row, c, (OpWay){.type = DATA_F32, .fused = true});
    int wrong = 0;
    side_start(&side, comparison.theirs, graph, &comparison);
    op_write(&side, graph, &comparison, false);
    for (int k = 0; k < 2; k++)
        if (graph_find(graph, inputs[k][1]) != TENSOR_NONE)
            wrong += !gradient_agrees(&side, graph, graph_find(graph, inputs[k][0]),
                                      graph_find(graph, inputs[k][1]), text);
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        if (graph_tensor(graph, (TensorId)t)->role == TENSOR_PARAMETER &&
            !graph_tensor(graph, (TensorId)t)->frozen)
            wrong += !gradient_agrees(&side, graph, (TensorId)t, graph_gradient(graph, (TensorId)t), text);
    side_end(&side);
    graph_free(&graph);
    return wrong;
}

/* There are two draws: where a step takes a value over a kink in one, it does not in the other. */
TEST(test_gradients_agree_with_finite_differences)
{
    enum { DRAWS = 2 };
    char text[160];
    OpCase c;
    int checked = 0, wrong = 0;
    for (const OpTest *row = op_tests; row < op_tests + op_test_count; row++)
        for (int i = 0; !row->has_no_cpu_way && op_case(row, false, i, &c); i++) {
            const OpWay way = {.type = DATA_F32, .fused = true};
            if (op_elements(&c) > GRADIENT_ELEMENTS_MAX)
                continue;
            (void)op_text(row, &c, i, way, text, sizeof text);
            int draw = 0;
            for (; draw < DRAWS; draw++) {
                comparison.seed = 1 + (uint64_t)draw;
                if (check_gradients(row, &c, text) == 0)
                    break;
            }
            wrong += draw == DRAWS;
            checked++;
        }
    comparison.seed = 1;
    print_message("  %d cases\n", checked);
    assert_true(checked > 100);
    assert_int_equal(wrong, 0);
}

/* ---- the table ---- */

/* The ops without a row have tests of their own (losses, normalisation, the update, and what only GPUs have:
 * pointwise_gradient_test, cuda_fusion_test), or are made by autodiff alone (fill). */
TEST(test_every_op_has_a_row)
{
    static const OpKind others[] = {OP_FILL,
                                    OP_NORMALIZE,
                                    OP_SOFTMAX_CROSS_ENTROPY,
                                    OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
                                    OP_BINARY_CROSS_ENTROPY,
                                    OP_BINARY_CROSS_ENTROPY_BACKWARD,
                                    OP_TARGET_LOSS,
                                    OP_TARGET_LOSS_BACKWARD,
                                    OP_PIXEL_LOSS,
                                    OP_PIXEL_LOSS_BACKWARD,
                                    OP_MASK_LOSS,
                                    OP_MASK_LOSS_BACKWARD,
                                    OP_CONV_NORM_BACKWARD,
                                    OP_NORM_PAIR,
                                    OP_NORM_PAIR_BACKWARD,
                                    OP_STEM_BACKWARD_WEIGHT,
                                    OP_SCALED_LINEAR,
                                    OP_SCALED_LINEAR_BACKWARD_WEIGHT,
                                    OP_UPDATE};
    bool found[OP_KIND_COUNT] = {false};
    OpCase c;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        found[others[i]] = true;
    for (int row = 0; row < op_test_count; row++)
        if (op_case(&op_tests[row], false, 0, &c) || op_case(&op_tests[row], true, 0, &c)) {
            for (int fused = 0; fused < 2; fused++) {
                Graph *graph = op_graph(&op_tests[row], &c, (OpWay){.type = DATA_BF16, .fused = fused});
                for (size_t n = 0; n < graph_node_count(graph); n++)
                    found[graph_node(graph, (NodeId)n)->op] = true;
                graph_free(&graph);
            }
        }
    for (int op = 0; op < OP_KIND_COUNT; op++)
        if (!found[op])
            fail_msg("%s has no row in op_cases.c", op_name((OpKind)op));
}
