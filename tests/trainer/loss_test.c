/* The losses and their gradients against PyTorch in float64 (golden/make_golden_optim.py), and what they
 * refuse and leave out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/loss_case.h"
#include "trainer/backend/backend.h"

#define TOLERANCE 1e-4

static void check(FshStatus status, const FshError *error)
{
    if (status)
        fail_msg("%s", error->message);
}

/* A program of one loss: x (with a gradient), what stands beside it, and dy for the gradient of the loss. */
typedef struct Loss {
    Backend *backend;
    Graph *graph;
    State *state;
    Program *program;
} Loss;

static void write_input(const Loss *loss, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    check(program_write(loss->program, graph_find(loss->graph, name), values, bytes, &error), &error);
}

static float *read_kept(const Loss *loss, const char *name, size_t count)
{
    FshError error = {0};
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    check(program_read(loss->program, graph_find(loss->graph, name), values, count * sizeof *values, &error),
          &error);
    return values;
}

static FshStatus run(const Loss *loss, FshError *error)
{
    check(program_poison(loss->program, error), error);
    return program_run(loss->program, error);
}

static LossKind kind_of(const char *name)
{
    int kind = 0;
    while (kind < LOSS_KIND_COUNT && strcmp(loss_names[kind], name) != 0)
        kind++;
    return (LossKind)kind;
}

/* Makes a program of a loss and its gradient. */
static Loss loss_of(const LossCase *c)
{
    FshError error = {0};
    Loss loss = {.graph = loss_graph(c)};
    check(backend_open(&loss.backend, "cpu", &(BackendOptions){.threads = 2}, &error), &error);
    check(state_new(&loss.state, loss.backend, loss.graph, &error), &error);
    check(program_new(&loss.program, loss.state, loss.graph, &error), &error);
    return loss;
}

static void loss_free(Loss *loss)
{
    program_free(&loss->program);
    state_free(&loss->state);
    graph_free(&loss->graph);
    backend_close(&loss->backend);
}

/* ---- against PyTorch ---- */

static void write_integers(const Loss *loss, const char *name, const json_t *array)
{
    int64_t values[16];
    for (size_t i = 0; i < json_array_size(array) && i < 16; i++)
        values[i] = json_integer_value(json_array_get(array, i));
    if (array)
        write_input(loss, name, values, json_array_size(array) * sizeof *values);
}

static void write_reals(const Loss *loss, const char *name, const json_t *array)
{
    float values[16];
    for (size_t i = 0; i < json_array_size(array) && i < 16; i++)
        values[i] = (float)json_number_value(json_array_get(array, i));
    if (array)
        write_input(loss, name, values, json_array_size(array) * sizeof *values);
}

static void write_spec(const Loss *loss, const json_t *spec, const char *name)
{
    float *values = malloc(golden_count(spec) * sizeof *values);
    assert_non_null(values);
    golden_generate(spec, values);
    write_input(loss, name, values, golden_count(spec) * sizeof *values);
    free(values);
}

/* Writes what each spec stands for to the input of the name at the same place. */
static void write_specs(const Loss *loss, json_t *specs, const char *const *names, size_t count)
{
    size_t i;
    assert_int_equal(json_array_size(specs), count);
    json_t *spec;
    json_array_foreach(specs, i, spec)
    {
        if (i >= count)
            break;
        write_spec(loss, spec, names[i]);
    }
}

static double case_error(json_t *document, json_t *c, const void *context)
{
    (void)document;
    (void)context;
    static const char *const names[][3] = {{"x", "dy"}, {"x", "target", "dy"}, {"x", "targets", "dy"}};
    enum { OF_CLASSES, OF_IMAGES, OF_ROWS };
    const LossKind kind = kind_of(golden_text(c, "loss"));
    json_t *inputs = json_object_get(c, "inputs"), *summary;
    FshError error = {0};
    double worst = 0;
    size_t i;
    json_t *weights = json_object_get(c, "weights");
    LossCase made = {.kind = kind,
                     .beside = json_object_get(c, "mix") || json_object_get(c, "valid"),
                     .weighted = weights != NULL};
    const int rank = made.rank = golden_shape(json_array_get(inputs, 0), made.shape);
    made.rows = rank == 2 && json_array_size(inputs) == 3;
    made.positive = json_object_get(c, "positive_weights") != NULL;
    made.smoothing = rank == 2 ? (float)golden_real(c, "smoothing") : 0;
    const json_t *threshold = json_object_get(c, "threshold");
    made.binarizes = threshold != NULL;
    made.threshold = (float)json_number_value(threshold);
    made.sums = json_is_true(json_object_get(c, "sums"));
    Loss loss = loss_of(&made);
    if (weights)
        write_spec(&loss, weights, "weights");
    if (made.positive)
        write_spec(&loss, json_object_get(c, "positive_weights"), "positive_weights");
    write_specs(&loss, inputs,
                names[made.rows   ? OF_ROWS
                      : rank == 2 ? OF_CLASSES
                                  : OF_IMAGES],
                rank == 2 && !made.rows ? 2 : 3);
    write_integers(&loss, "labels", json_object_get(c, "labels"));
    write_integers(&loss, "labels_mixed", json_object_get(c, "labels_mixed"));
    write_reals(&loss, "mix", json_object_get(c, "mix"));
    write_reals(&loss, "valid", json_object_get(c, "valid"));
    check(run(&loss, &error), &error);
    json_array_foreach(json_object_get(c, "expected"), i, summary)
    {
        float *values = read_kept(&loss, golden_text(summary, "name"), golden_count(summary));
        const double relative = golden_error(summary, values, golden_count(summary));
        if (!(relative < TOLERANCE))
            print_error("%s: %s: relative error %.2e\n", golden_text(c, "name"), golden_text(summary, "name"),
                        relative);
        worst = fmax(worst, relative);
        free(values);
    }
    loss_free(&loss);
    return worst;
}

TEST(test_losses_agree_with_pytorch)
{
    golden_compare_cases("losses.json", 41, TOLERANCE, case_error, NULL);
}

TEST(test_losses_of_rows_of_targets_agree_with_pytorch)
{
    golden_compare_cases("target_losses.json", 21, TOLERANCE, case_error, NULL);
}

/* ---- what is left out ---- */

TEST(test_images_left_out_may_hold_anything)
{
    enum { COUNT = 2 * 2 * 2 };
    const float valid[2] = {1, 0}, dy = 1, none[2] = {0, 0};
    float x[COUNT], target[COUNT] = {0};
    FshError error = {0};
    for (int i = 0; i < COUNT; i++)
        x[i] = i < COUNT / 2 ? 0.5F : NAN;
    for (LossKind kind = LOSS_L1; kind <= LOSS_PSNR; kind++) {
        Loss loss = loss_of(&(LossCase){.kind = kind, .rank = 4, .shape = {2, 2, 2, 1}, .beside = true});
        write_input(&loss, "x", x, sizeof x);
        write_input(&loss, "target", target, sizeof target);
        write_input(&loss, "valid", valid, sizeof valid);
        write_input(&loss, "dy", &dy, sizeof dy);
        check(run(&loss, &error), &error);
        float *y = read_kept(&loss, "y", 1), *dx = read_kept(&loss, "dx", COUNT);
        assert_true(isfinite(*y) && isfinite(dx[0]) && dx[0] != 0);
        for (int i = COUNT / 2; i < COUNT; i++)
            assert_true(dx[i] == 0);
        free(y);
        free(dx);
        write_input(&loss, "valid", none, sizeof none); /* a whole batch of padding */
        check(run(&loss, &error), &error);
        y = read_kept(&loss, "y", 1);
        dx = read_kept(&loss, "dx", COUNT);
        assert_true(*y == 0 && dx[0] == 0);
        free(y);
        free(dx);
        loss_free(&loss);
    }
}

TEST(test_samples_left_out_may_hold_anything)
{
    const float x[4] = {0.5F, -0.5F, NAN, NAN}, dy = 1;
    const int64_t labels[2] = {1, -1};
    FshError error = {0};
    for (LossKind kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++) {
        Loss loss = loss_of(&(LossCase){.kind = kind, .rank = 2, .shape = {2, 2}});
        write_input(&loss, "x", x, sizeof x);
        write_input(&loss, "labels", labels, sizeof labels);
        write_input(&loss, "dy", &dy, sizeof dy);
        check(run(&loss, &error), &error);
        float *y = read_kept(&loss, "y", 1), *dx = read_kept(&loss, "dx", 4);
        assert_true(isfinite(*y) && dx[0] > 0 && dx[1] < 0);
        assert_true(dx[2] == 0 && dx[3] == 0);
        free(y);
        free(dx);
        loss_free(&loss);
    }
}

TEST(test_rows_left_out_may_hold_anything)
{
    static const LossKind kinds[] = {LOSS_BCE, LOSS_MSE, LOSS_L1, LOSS_HUBER};
    const float x[4] = {0.5F, -0.5F, NAN, NAN}, targets[4] = {0, 1, NAN, 0}, valid[2] = {1, 0},
                none[2] = {0, 0};
    const float dy = 1;
    FshError error = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        Loss loss = loss_of(&(LossCase){.kind = kinds[i], .rank = 2, .rows = true, .shape = {2, 2}});
        write_input(&loss, "x", x, sizeof x);
        write_input(&loss, "targets", targets, sizeof targets);
        write_input(&loss, "valid", valid, sizeof valid);
        write_input(&loss, "dy", &dy, sizeof dy);
        check(run(&loss, &error), &error);
        float *y = read_kept(&loss, "y", 1), *dx = read_kept(&loss, "dx", 4);
        assert_true(isfinite(*y) && dx[0] > 0 && dx[1] < 0);
        assert_true(dx[2] == 0 && dx[3] == 0);
        free(y);
        free(dx);
        write_input(&loss, "valid", none, sizeof none); /* a whole batch of padding */
        check(run(&loss, &error), &error);
        y = read_kept(&loss, "y", 1);
        dx = read_kept(&loss, "dx", 4);
        assert_true(*y == 0 && dx[0] == 0);
        free(y);
        free(dx);
        loss_free(&loss);
    }
}

TEST(test_large_logits_do_not_overflow)
{
    const float x[3] = {5000, -5000, 0}, dy = 1;
    const int64_t label = 1;
    FshError error = {0};
    for (LossKind kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++) {
        Loss loss = loss_of(&(LossCase){.kind = kind, .rank = 2, .shape = {1, 3}});
        write_input(&loss, "x", x, sizeof x);
        write_input(&loss, "labels", &label, sizeof label);
        write_input(&loss, "dy", &dy, sizeof dy);
        check(run(&loss, &error), &error);
        float *y = read_kept(&loss, "y", 1);
        /* 10000; and (5000 + 5000 + log 2) / 3 */
        assert_true(fabs((double)*y / (kind == LOSS_BCE ? (10000 + log(2)) / 3 : 10000) - 1) < 1e-6);
        free(y);
        loss_free(&loss);
    }
}

/* ---- mistakes ---- */

TEST(test_labels_and_shares_out_of_range_are_named)
{
    static const struct {
        int64_t labels[2], mixed[2];
        float mix[2];
        const char *message;
    } cases[] = {
        {{0, 3}, {0, 0}, {1, 1}, "label 3 of sample 1; there are 3 classes"},
        {{-2, 0}, {0, 0}, {1, 1}, "label -2 of sample 0; there are 3 classes"},
        {{0, 1}, {0, 3}, {1, 0.5F}, "label 3 of sample 1; there are 3 classes"},
        {{0, 1}, {-1, 0}, {0.5F, 1}, "label -1 of sample 0; there are 3 classes"},
        {{0, 1}, {1, 0}, {0.5F, 1.5F}, "share 1.5 of sample 1's label; it must be 0 to 1"},
        {{0, 1}, {1, 0}, {NAN, 1}, "of sample 0's label; it must be 0 to 1"},
    };
    const float x[6] = {0}, dy = 1;
    for (LossKind kind = LOSS_CROSS_ENTROPY; kind <= LOSS_BCE; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            FshError error = {0};
            Loss loss = loss_of(&(LossCase){.kind = kind, .rank = 2, .shape = {2, 3}, .beside = true});
            write_input(&loss, "x", x, sizeof x);
            write_input(&loss, "labels", cases[i].labels, sizeof cases[i].labels);
            write_input(&loss, "labels_mixed", cases[i].mixed, sizeof cases[i].mixed);
            write_input(&loss, "mix", cases[i].mix, sizeof cases[i].mix);
            write_input(&loss, "dy", &dy, sizeof dy);
            assert_int_equal(run(&loss, &error), FSH_ERR_MISMATCH);
            assert_contains(error.message, cases[i].message);
            loss_free(&loss);
        }
}

TEST(test_shapes_that_do_not_fit_are_refused)
{
    FshError error = {0};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 4, 4, 3});
    graph_pixel_loss(graph, x, graph_input(graph, "t", DATA_F32, 4, (int64_t[]){2, 4, 5, 3}), TENSOR_NONE,
                     LOSS_L1);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message,
                        "x: l1 needs images of one shape, not [2 x 4 x 4 x 3] and [2 x 4 x 5 x 3]");
    graph_free(&graph);
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 4, 4, 3});
    graph_pixel_loss(graph, x, x, graph_input(graph, "v", DATA_F32, 1, (int64_t[]){3}), LOSS_PSNR);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "x: psnr needs f32 weights [N] of the images, not f32 [3]");
    graph_free(&graph);
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 4, 4, 3});
    graph_pixel_loss(graph, x, x, TENSOR_NONE, LOSS_BCE);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "x: bce is no loss of images");
    graph_free(&graph);
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, 4});
    RowTargetsOf rows = {.targets = graph_input(graph, "t", DATA_F32, 2, (int64_t[]){2, 3}),
                         .valid = graph_input(graph, "v", DATA_F32, 1, (int64_t[]){2}),
                         .weights = TENSOR_NONE,
                         .positive_weights = TENSOR_NONE,
                         .loss.kind = LOSS_BCE};
    graph_target_loss(graph, x, &rows);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message,
                        "x: bce needs f32 targets [N, K] like the outputs, and valid [N], not f32 "
                        "[2 x 4] and f32 [2 x 3]");
    graph_free(&graph);
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, 4});
    rows.loss.kind = LOSS_PSNR;
    rows.targets = x;
    rows.valid = graph_input(graph, "v", DATA_F32, 1, (int64_t[]){2});
    graph_target_loss(graph, x, &rows);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "x: psnr is no loss of rows of targets");
    graph_free(&graph);
    graph = graph_new();
    x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, 4});
    TensorId labels = graph_input(graph, "l", DATA_I64, 1, (int64_t[]){2});
    const ClassTargetsOf targets = {
        .labels = labels, .labels_mixed = labels, .mix = TENSOR_NONE, .weights = TENSOR_NONE};
    graph_class_loss(graph, LOSS_BCE, x, &targets);
    assert_int_equal(graph_check(graph, &error), FSH_ERR_MISMATCH);
    assert_string_equal(
        error.message,
        "x: binary cross-entropy of mixed samples needs the other label i64 [N] and its share f32 [N]");
    graph_free(&graph);
}
