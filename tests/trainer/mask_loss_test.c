/* The cross-entropy of pixels and its gradient against PyTorch in float64 (golden/make_mask_losses.py), and
 * what it refuses and leaves out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/mask_case.h"
#include "trainer/backend/backend.h"

#define TOLERANCE 1e-5

typedef struct Loss {
    Backend *backend;
    Graph *graph;
    State *state;
    Program *program;
} Loss;

static Loss loss_of(const MaskCase *c)
{
    FshError error = {0};
    Loss loss = {.graph = mask_loss_graph(c)};
    assert_ok(backend_open(&loss.backend, "cpu", &(BackendOptions){.threads = 2}, &error), &error);
    assert_ok(state_new(&loss.state, loss.backend, loss.graph, &error), &error);
    assert_ok(program_new(&loss.program, loss.state, loss.graph, &error), &error);
    return loss;
}

static void loss_free(Loss *loss)
{
    program_free(&loss->program);
    state_free(&loss->state);
    graph_free(&loss->graph);
    backend_close(&loss->backend);
}

static void write_input(const Loss *loss, const char *name, const void *values, size_t bytes)
{
    FshError error = {0};
    assert_ok(program_write(loss->program, graph_find(loss->graph, name), values, bytes, &error), &error);
}

static FshStatus run(const Loss *loss, FshError *error)
{
    assert_ok(program_poison(loss->program, error), error);
    return program_run(loss->program, error);
}

/* Returns a kept tensor as floats, bytes too. */
static float *read_kept(const Loss *loss, const char *name, size_t count)
{
    FshError error = {0};
    const TensorId id = graph_find(loss->graph, name);
    const size_t bytes = data_type_bytes(graph_tensor(loss->graph, id)->type);
    float *values = malloc(count * sizeof *values);
    uint8_t *raw = malloc(count * bytes);
    assert_true(values && raw);
    assert_ok(program_read(loss->program, id, raw, count * bytes, &error), &error);
    for (size_t i = 0; i < count; i++)
        values[i] = bytes == 1 ? (float)raw[i] : ((float *)(void *)raw)[i];
    free(raw);
    return values;
}

/* ---- against PyTorch ---- */

static void write_golden(const Loss *loss, const json_t *c, int64_t classes)
{
    const json_t *inputs = json_object_get(c, "inputs"), *mask = json_array_get(inputs, 1);
    static const struct {
        size_t place;
        const char *name;
    } reals[] = {{0, "x"}, {2, "dy"}};
    for (size_t i = 0; i < 2; i++) {
        const json_t *spec = json_array_get(inputs, reals[i].place);
        float *values = malloc(golden_count(spec) * sizeof *values);
        assert_non_null(values);
        golden_generate(spec, values);
        write_input(loss, reals[i].name, values, golden_count(spec) * sizeof *values);
        free(values);
    }
    uint8_t *values = malloc(golden_count(mask));
    assert_non_null(values);
    golden_generate_bytes(mask, values);
    for (size_t i = 0; i < golden_count(mask); i++) {
        const int64_t value =
            values[i] % (json_is_true(json_object_get(c, "ignored")) ? classes + 1 : classes);
        values[i] = (uint8_t)(value == classes ? GRAPH_MASK_IGNORED : value);
    }
    write_input(loss, "mask", values, golden_count(mask));
    free(values);
    const json_t *valid = json_object_get(c, "valid");
    float weights[8];
    for (size_t i = 0; i < json_array_size(valid) && i < 8; i++)
        weights[i] = (float)json_number_value(json_array_get(valid, i));
    if (valid)
        write_input(loss, "valid", weights, json_array_size(valid) * sizeof *weights);
}

static double case_error(const json_t *c)
{
    MaskCase made = {.weighted = json_object_get(c, "valid") != NULL,
                     .smoothing = (float)golden_real(c, "smoothing")};
    FshError error = {0};
    double worst = 0;
    size_t i;
    const json_t *summary;
    (void)golden_shape(json_array_get(json_object_get(c, "inputs"), 0), made.shape);
    Loss loss = loss_of(&made);
    write_golden(&loss, c, made.shape[3]);
    assert_ok(run(&loss, &error), &error);
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
    assert_int_equal(i, 4);
    loss_free(&loss);
    return worst;
}

TEST(test_cross_entropy_of_pixels_agrees_with_pytorch)
{
    json_t *document = golden_load("mask_losses.json"), *c;
    double worst = 0;
    size_t i;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const double relative = case_error(c);
        print_message("  %-40s %.1e\n", golden_text(c, "name"), relative);
        worst = fmax(worst, relative);
    }
    assert_true(i >= 11);
    json_decref(document);
    if (!(worst < TOLERANCE))
        fail_msg("worst relative error %.2e, allowed %.0e", worst, TOLERANCE);
}

/* ---- what is left out ---- */

TEST(test_ignored_pixels_and_images_left_out_may_hold_anything)
{
    enum { IMAGE = 2 * 2, CLASSES = 2, COUNT = 2 * IMAGE * CLASSES };
    const float dy = 1, valid[2] = {1, 0};
    float x[COUNT] = {0.5F, -0.5F, NAN, NAN, 0.25F, 1};
    const uint8_t mask[2 * IMAGE] = {1, 255, 0, 1, 0, 1, 0, 1};
    FshError error = {0};
    for (int i = IMAGE * CLASSES; i < COUNT; i++)
        x[i] = NAN;
    Loss loss = loss_of(&(MaskCase){.shape = {2, 2, 2, CLASSES}, .weighted = true});
    write_input(&loss, "x", x, sizeof x);
    write_input(&loss, "mask", mask, sizeof mask);
    write_input(&loss, "valid", valid, sizeof valid);
    write_input(&loss, "dy", &dy, sizeof dy);
    assert_ok(run(&loss, &error), &error);
    float *y = read_kept(&loss, "y", 1), *dx = read_kept(&loss, "dx", COUNT),
          *sums = read_kept(&loss, "sums", 6);
    assert_true(isfinite(*y) && *y > 0);
    assert_true(sums[MASK_SUM_PIXELS] == 3 && sums[MASK_SUM_RIGHT] == 0);
    for (int i = 0; i < COUNT; i++) {
        const bool counts = i < IMAGE * CLASSES && i / CLASSES != 1;
        assert_true(isfinite(dx[i]) && (dx[i] != 0) == counts);
    }
    free(y);
    free(dx);
    free(sums);
    loss_free(&loss);
}

TEST(test_a_mask_of_nothing_has_no_loss_and_no_gradient)
{
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, dy = 1;
    const uint8_t mask[4] = {255, 255, 255, 255};
    FshError error = {0};
    Loss loss = loss_of(&(MaskCase){.shape = {1, 2, 2, 2}});
    write_input(&loss, "x", x, sizeof x);
    write_input(&loss, "mask", mask, sizeof mask);
    write_input(&loss, "dy", &dy, sizeof dy);
    assert_ok(run(&loss, &error), &error);
    float *y = read_kept(&loss, "y", 1), *dx = read_kept(&loss, "dx", 8);
    assert_true(*y == 0);
    for (int i = 0; i < 8; i++)
        assert_true(dx[i] == 0);
    free(y);
    free(dx);
    loss_free(&loss);
}

/* Of equal logits the lower class; NaN is below every number, and makes the loss none. */
TEST(test_classes_are_those_of_the_highest_logits)
{
    const float x[12] = {1, 1, 0, NAN, -5, -7, 0, 2, 2, NAN, NAN, NAN}, dy = 1;
    const uint8_t mask[4] = {0, 1, 1, 255};
    FshError error = {0};
    Loss loss = loss_of(&(MaskCase){.shape = {1, 2, 2, 3}});
    write_input(&loss, "x", x, sizeof x);
    write_input(&loss, "mask", mask, sizeof mask);
    write_input(&loss, "dy", &dy, sizeof dy);
    assert_ok(run(&loss, &error), &error);
    float *classes = read_kept(&loss, "classes", 4), *y = read_kept(&loss, "y", 1);
    static const float expected[] = {0, 1, 1, 0};
    assert_memory_equal(classes, expected, sizeof expected);
    assert_true(isnan(*y));
    free(classes);
    free(y);
    loss_free(&loss);
}

/* ---- mistakes ---- */

TEST(test_a_value_that_is_no_class_is_named)
{
    const float x[16] = {0}, dy = 1;
    const uint8_t mask[8] = {0, 1, 1, 0, 1, 2, 255, 0};
    FshError error = {0};
    Loss loss = loss_of(&(MaskCase){.shape = {2, 2, 2, 2}});
    write_input(&loss, "x", x, sizeof x);
    write_input(&loss, "mask", mask, sizeof mask);
    write_input(&loss, "dy", &dy, sizeof dy);
    assert_int_equal(run(&loss, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "value 2 in the mask of sample 1; there are 2 classes");
    loss_free(&loss);
}

static void expect_refusal(const int64_t logits[4], const int64_t mask[4], DataType type, float smoothing,
                           const char *message)
{
    FshError error = {0};
    Graph *graph = graph_new();
    graph_mask_loss(graph, graph_input(graph, "x", DATA_F32, 4, logits),
                    graph_input(graph, "mask", type, 4, mask), TENSOR_NONE, smoothing);
    assert_int_not_equal(graph_check(graph, &error), FSH_OK);
    assert_contains(error.message, message);
    graph_free(&graph);
}

TEST(test_shapes_that_do_not_fit_are_refused)
{
    const int64_t logits[4] = {2, 4, 5, 3}, mask[4] = {2, 4, 5, 1};
    expect_refusal(logits, (int64_t[]){2, 4, 4, 1}, DATA_U8, 0,
                   "and a mask u8 [N, H, W, 1], not [2 x 4 x 5 x 3]");
    expect_refusal(logits, (int64_t[]){2, 4, 5, 3}, DATA_U8, 0, "u8 [2 x 4 x 5 x 3]");
    expect_refusal(logits, mask, DATA_F32, 0, "f32 [2 x 4 x 5 x 1]");
    expect_refusal((int64_t[]){2, 4, 5, 256}, mask, DATA_U8, 0, "K at most 255");
    expect_refusal(logits, mask, DATA_U8, 1, "label smoothing 1; it must be at least 0 and below 1");
}
