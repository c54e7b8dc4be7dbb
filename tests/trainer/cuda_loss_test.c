/* Every loss and its gradient on the CUDA backend against the CPU backend, and what both leave out. Inputs
 * and sums are the same numbers on both, so only exp, log and the order of sums differ: 2e-6 of a tensor's
 * size (rms) is allowed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/loss_case.h"

static const double tolerance = 2e-6;

/* Returns the graph of a case; where it binarizes, above 0.3. */
static Graph *counted_graph(const LossCase *c)
{
    LossCase made = *c;
    made.threshold = 0.3F;
    Graph *graph = loss_graph(&made);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison.ran[graph_node(graph, (NodeId)n)->op] = true;
    return graph;
}

/* ---- inputs ---- */

enum { X, BESIDE_X, LABELS, LABELS_MIXED, SHARES, WEIGHTS, POSITIVES, DY, INPUT_COUNT };
static const char *const input_names[][INPUT_COUNT] = {
    {"x", "target", NULL, NULL, "valid", NULL, NULL, "dy"},
    {"x", NULL, "labels", "labels_mixed", "mix", "weights", NULL, "dy"},
    {"x", "targets", NULL, NULL, "valid", "weights", "positive_weights", "dy"}};

typedef struct Inputs {
    void *values[INPUT_COUNT];
} Inputs;

static float *draw_floats(Random *random, size_t count, float scale)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(random) * scale;
    return values;
}

/* Draws inputs with every fifth sample left out. Every third mixed sample has its own label alone. An image
 * that is left out holds NaN; in the others every seventh value is its target's. */
static Inputs draw_inputs(const LossCase *c)
{
    const size_t samples = (size_t)c->shape[0];
    const uint32_t classes = (uint32_t)c->shape[1];
    size_t count = 1;
    Random random;
    Inputs inputs;
    for (int i = 0; i < c->rank; i++)
        count *= (size_t)c->shape[i];
    random_start(&random, comparison.seed, random_stream(count, (uint64_t)c->kind));
    float *x = inputs.values[X] = draw_floats(&random, count, 3);
    float *target = inputs.values[BESIDE_X] = draw_floats(&random, count, 1);
    float *shares = inputs.values[SHARES] = draw_floats(&random, samples, 1);
    float *dy = inputs.values[DY] = draw_floats(&random, 1, 1);
    float *weights = inputs.values[WEIGHTS] = draw_floats(&random, classes, 1);
    float *positives = inputs.values[POSITIVES] = draw_floats(&random, classes, 1);
    int64_t *labels = inputs.values[LABELS] = malloc(samples * sizeof *labels);
    int64_t *others = inputs.values[LABELS_MIXED] = malloc(samples * sizeof *others);
    assert_true(labels && others);
    *dy = 0.75F;
    for (uint32_t k = 0; k < classes; k++) /* one class may count nothing */
        weights[k] = k % 5 == 3 ? 0 : 0.1F + fabsf(weights[k]);
    for (uint32_t k = 0; k < classes; k++)
        positives[k] = 0.1F + fabsf(positives[k]);
    for (size_t n = 0; n < samples; n++) {
        const bool left_out = n % 5 == 4, whole = n % 3 == 2;
        labels[n] = left_out ? -1 : (int64_t)random_below(&random, classes);
        others[n] = whole ? -1 : (int64_t)random_below(&random, classes);
        shares[n] = whole ? 1 : random_uniform(&random);
        if (c->rank == 4 || c->rows)
            shares[n] = left_out ? 0 : 1;
    }
    for (size_t i = 0; (c->rank == 4 || c->rows) && i < count; i++) {
        if (c->rows && c->kind == LOSS_BCE)
            target[i] = fminf(fabsf(target[i]), 1);
        if ((c->beside || c->rows) && i / (count / samples) % 5 == 4)
            x[i] = NAN;
        else if (i % 7 == 6)
            x[i] = target[i];
    }
    return inputs;
}

static void free_inputs(Inputs *inputs)
{
    for (int i = 0; i < INPUT_COUNT; i++)
        free(inputs->values[i]);
}

static FshStatus write_inputs(const Side *side, const Graph *graph, const Inputs *inputs, FshError *error)
{
    const int rank = graph_tensor(graph, graph_find(graph, "x"))->rank;
    const int kind = rank == 4 ? 0 : graph_find(graph, "targets") == TENSOR_NONE ? 1 : 2;
    FshStatus status = FSH_OK;
    for (int i = 0; i < INPUT_COUNT && !status; i++) {
        const char *name = input_names[kind][i];
        const TensorId id = name ? graph_find(graph, name) : TENSOR_NONE;
        if (id == TENSOR_NONE)
            continue;
        const Tensor *tensor = graph_tensor(graph, id);
        status = program_write(side->program, id, inputs->values[i],
                               (size_t)tensor_count(tensor) * data_type_bytes(tensor->type), error);
    }
    return status;
}

/* ---- runs ---- */

static Side side_of(Backend *backend, const Graph *graph)
{
    FshError error = {0};
    Side side = {NULL, NULL};
    assert_ok(state_new(&side.state, backend, graph, &error), &error);
    assert_ok(program_new(&side.program, side.state, graph, &error), &error);
    return side;
}

static void run_poisoned(const Side *side, const Graph *graph, const Inputs *inputs)
{
    FshError error = {0};
    assert_ok(program_poison(side->program, &error), &error);
    assert_ok(write_inputs(side, graph, inputs, &error), &error);
    assert_ok(program_run(side->program, &error), &error);
}

static float *read_kept(const Side *side, const Graph *graph, const char *name, size_t *count_ret)
{
    FshError error = {0};
    const TensorId id = graph_find(graph, name);
    *count_ret = (size_t)tensor_count(graph_tensor(graph, id));
    float *values = malloc(*count_ret * sizeof *values);
    assert_non_null(values);
    assert_ok(program_read(side->program, id, values, *count_ret * sizeof *values, &error), &error);
    return values;
}

/* Compares values, which must be NaN where theirs are: the error of an image that is left out. */
static void compare_kept(const char *what, const float *ours, const float *theirs, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(ours[i]) != isnan(theirs[i]))
            fail_msg("%s: element %zu is %g, not %g", what, i, (double)ours[i], (double)theirs[i]);
        if (isnan(theirs[i]))
            continue;
        difference += pow((double)ours[i] - (double)theirs[i], 2);
        size += pow((double)theirs[i], 2);
    }
    const double relative = size > 0 ? sqrt(difference / size) : difference;
    comparison.largest = fmax(comparison.largest, relative);
    if (!(relative <= tolerance)) {
        print_error("%s: differs by %.2g of its size\n", what, relative);
        comparison.mismatches++;
    }
}

static void compare_loss(const LossCase *c)
{
    const char *const kept[] = {"y", "dx", c->rank == 2 ? "probabilities" : "error"};
    char what[160];
    size_t count;
    Graph *graph = counted_graph(c);
    Inputs inputs = draw_inputs(c);
    Side sides[] = {side_of(backends[CUDA], graph), side_of(backends[CPU], graph)};
    for (int i = 0; i < 2; i++)
        run_poisoned(&sides[i], graph, &inputs);
    for (size_t i = 0; i < (c->rows ? 2 : 3); i++) {
        float *ours = read_kept(&sides[0], graph, kept[i], &count);
        float *theirs = read_kept(&sides[1], graph, kept[i], &count);
        (void)snprintf(what, sizeof what, "%s%s, %d x %d, rank %d%s%s, smoothing %g: %s", loss_names[c->kind],
                       c->rows ? " of rows" : "", (int)c->shape[0], (int)c->shape[1], c->rank,
                       c->beside ? ", mixed or weighted" : "", c->weighted ? ", weights of classes" : "",
                       (double)c->smoothing, kept[i]);
        compare_kept(what, ours, theirs, count);
        /* and again: what the blocks count themselves in is as it was, and the order of sums, too */
        run_poisoned(&sides[0], graph, &inputs);
        float *again = read_kept(&sides[0], graph, kept[i], &count);
        assert_memory_equal(ours, again, count * sizeof *again);
        free(ours);
        free(theirs);
        free(again);
    }
    side_end(&sides[0]);
    side_end(&sides[1]);
    free_inputs(&inputs);
    graph_free(&graph);
}

/* ---- classes ---- */

static void compare_classes(LossKind kind)
{
    static const int64_t shapes[][2] = {{1, 3}, {7, 2}, {33, 10}, {300, 31}, {64, 255}, {5, 256}, {70, 1000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int mixed = 0; mixed < 2; mixed++)
            for (int weighted = 0; weighted < 2; weighted++)
                for (int smooth = 0; smooth < 2; smooth++)
                    compare_loss(&(LossCase){.kind = kind,
                                             .rank = 2,
                                             .shape = {shapes[i][0], shapes[i][1]},
                                             .beside = mixed,
                                             .weighted = weighted,
                                             .smoothing = smooth ? 0.1F : 0});
}

CUDA_TEST(test_softmax_cross_entropies_agree)
{
    compare_classes(LOSS_CROSS_ENTROPY);
}

CUDA_TEST(test_binary_cross_entropies_agree)
{
    compare_classes(LOSS_BCE);
    for (int sums = 0; sums < 2; sums++)
        for (int mixed = 0; mixed < 2; mixed++)
            compare_loss(&(LossCase){.kind = LOSS_BCE,
                                     .rank = 2,
                                     .shape = {33, sums ? 300 : 10},
                                     .beside = mixed,
                                     .weighted = sums,
                                     .smoothing = 0.1F,
                                     .binarizes = mixed,
                                     .sums = sums});
}

CUDA_TEST(test_large_batches_of_classes_are_like_the_cpus)
{
    compare_loss(&(LossCase){.kind = LOSS_CROSS_ENTROPY, .rank = 2, .shape = {2048, 10}, .smoothing = 0.1F});
    compare_loss(&(LossCase){.kind = LOSS_CROSS_ENTROPY, .rank = 2, .shape = {512, 1000}, .beside = true});
    compare_loss(&(LossCase){.kind = LOSS_BCE, .rank = 2, .shape = {512, 1000}, .smoothing = 0.1F});
}

/* Sets *loss_ret and gradient to the loss and its gradient after a change to the inputs. */
static void run_changed(LossKind kind, float *loss_ret, float gradient[6],
                        void (*change)(float *x, int64_t *labels, int64_t *others, float *shares))
{
    const LossCase c = {.kind = kind, .rank = 2, .shape = {2, 3}, .beside = true};
    size_t count;
    Graph *graph = counted_graph(&c);
    Inputs inputs = draw_inputs(&c);
    Side side = side_of(backends[CUDA], graph);
    change(inputs.values[X], inputs.values[LABELS], inputs.values[LABELS_MIXED], inputs.values[SHARES]);
    run_poisoned(&side, graph, &inputs);
    float *y = read_kept(&side, graph, "y", &count), *dx = read_kept(&side, graph, "dx", &count);
    *loss_ret = *y;
    memcpy(gradient, dx, 6 * sizeof *dx);
    free(y);
    free(dx);
    side_end(&side);
    free_inputs(&inputs);
    graph_free(&graph);
}

static void leave_all_out(float *x, int64_t *labels, int64_t *others, float *shares)
{
    (void)others;
    (void)shares;
    x[0] = NAN;
    labels[0] = labels[1] = -1;
}

static void share_too_much(float *x, int64_t *labels, int64_t *others, float *shares)
{
    (void)x;
    labels[0] = others[0] = 1;
    shares[0] = 1.5F;
}

static void share_with_none(float *x, int64_t *labels, int64_t *others, float *shares)
{
    (void)x;
    labels[0] = 1;
    others[0] = -1;
    shares[0] = 0.5F;
}

CUDA_TEST(test_a_batch_that_is_all_left_out_has_no_loss)
{
    for (int kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++) {
        float loss, gradient[6];
        run_changed((LossKind)kind, &loss, gradient, leave_all_out);
        assert_true(loss == 0);
        for (int i = 0; i < 6; i++)
            assert_true(gradient[i] == 0);
    }
}

CUDA_TEST(test_shares_that_make_no_sense_make_the_loss_no_number)
{
    for (int kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++) {
        float loss, gradient[6];
        run_changed((LossKind)kind, &loss, gradient, share_too_much);
        assert_true(isnan(loss) && isnan(gradient[0]) && isfinite(gradient[3]));
        run_changed((LossKind)kind, &loss, gradient, share_with_none);
        assert_true(isnan(loss) && isnan(gradient[0]) && isfinite(gradient[3]));
    }
}

CUDA_TEST(test_labels_of_no_class_are_refused)
{
    static const char *const names[] = {"labels", "labels_mixed"};
    static const int64_t bad[2] = {0, 3};
    for (int kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++)
        for (int i = 0; i < 2; i++) {
            FshError error = {0};
            Graph *graph = counted_graph(
                &(LossCase){.kind = (LossKind)kind, .rank = 2, .shape = {2, 3}, .beside = true});
            Side side = side_of(backends[CUDA], graph);
            assert_int_equal(
                program_write(side.program, graph_find(graph, names[i]), bad, sizeof bad, &error),
                FSH_ERR_MISMATCH);
            assert_contains(error.message, names[i]);
            assert_contains(error.message, "label 3 of sample 1; there are 3 classes");
            side_end(&side);
            graph_free(&graph);
        }
}

/* ---- rows of targets ---- */

CUDA_TEST(test_losses_of_rows_of_targets_agree)
{
    static const LossKind kinds[] = {LOSS_BCE, LOSS_MSE, LOSS_L1, LOSS_HUBER};
    static const int64_t shapes[][2] = {{1, 1}, {7, 2}, {33, 10}, {300, 31}, {64, 255}, {5, 256}, {70, 1000}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int weighted = 0; weighted < 2; weighted++)
                for (int other = 0; other < 2; other++) {
                    const bool binary = kinds[k] == LOSS_BCE;
                    compare_loss(&(LossCase){.kind = kinds[k],
                                             .rank = 2,
                                             .rows = true,
                                             .shape = {shapes[i][0], shapes[i][1]},
                                             .weighted = weighted,
                                             .positive = binary && other,
                                             .smoothing = binary && weighted ? 0.1F : 0,
                                             .binarizes = binary && weighted && other,
                                             .sums = other});
                }
}

/* ---- images ---- */

/* Of one value; of images whose values are a multiple of four, and not; cut into several pieces, with a
 * rest. */
CUDA_TEST(test_losses_of_images_agree)
{
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {2, 5, 7, 3}, {6, 16, 16, 4}, {5, 40, 35, 3}, {17, 64, 66, 3}};
    for (int kind = LOSS_L1; kind <= LOSS_PSNR; kind++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int weighted = 0; weighted < 2; weighted++) {
                LossCase c = {.kind = (LossKind)kind, .rank = 4, .beside = weighted};
                memcpy(c.shape, shapes[i], sizeof c.shape);
                compare_loss(&c);
            }
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
