/* The loss of masks and its gradient on the CUDA backend against the CPU backend. Sums are in float64 on
 * both, so only exp, log and the order of sums differ: 2e-6 of a tensor's size (rms) is allowed; classes
 * are the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/mask_case.h"

static const double tolerance = 2e-6;

static Graph *counted_graph(const MaskCase *c)
{
    Graph *graph = mask_loss_graph(c);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison.ran[graph_node(graph, (NodeId)n)->op] = true;
    return graph;
}

/* ---- inputs ---- */

typedef struct Inputs {
    float *x, *valid, dy;
    uint8_t *mask;
} Inputs;

/* Draws logits, some of them equal; a tenth of the pixels is ignored; every third image is left out, and
 * holds NaN. */
static Inputs draw_inputs(const MaskCase *c)
{
    const size_t images = (size_t)c->shape[0], pixels = (size_t)(c->shape[1] * c->shape[2]),
                 classes = (size_t)c->shape[3], count = images * pixels * classes;
    Inputs inputs = {.x = malloc(count * sizeof(float)),
                     .valid = malloc(images * sizeof(float)),
                     .mask = malloc(images * pixels),
                     .dy = 0.75F};
    Random random;
    assert_true(inputs.x && inputs.valid && inputs.mask);
    random_start(&random, comparison.seed, random_stream(count, classes));
    for (size_t n = 0; n < images; n++)
        inputs.valid[n] = n % 3 == 2 ? 0 : 1;
    for (size_t i = 0; i < images * pixels; i++)
        inputs.mask[i] =
            random_below(&random, 10) == 0 ? 255 : (uint8_t)random_below(&random, (uint32_t)classes);
    for (size_t i = 0; i < count; i++) {
        inputs.x[i] = random_normal(&random) * 3;
        if (i % 11 == 10)
            inputs.x[i] = inputs.x[i - 1];
        if (c->weighted && inputs.valid[i / (pixels * classes)] == 0)
            inputs.x[i] = NAN;
    }
    return inputs;
}

static void free_inputs(Inputs *inputs)
{
    free(inputs->x);
    free(inputs->valid);
    free(inputs->mask);
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

static void write_input(const Side *side, const Graph *graph, const char *name, const void *values)
{
    FshError error = {0};
    const TensorId id = graph_find(graph, name);
    if (id == TENSOR_NONE)
        return;
    const Tensor *tensor = graph_tensor(graph, id);
    assert_ok(program_write(side->program, id, values,
                            (size_t)tensor_count(tensor) * data_type_bytes(tensor->type), &error),
              &error);
}

static void run_poisoned(const Side *side, const Graph *graph, const Inputs *inputs)
{
    FshError error = {0};
    assert_ok(program_poison(side->program, &error), &error);
    write_input(side, graph, "x", inputs->x);
    write_input(side, graph, "mask", inputs->mask);
    write_input(side, graph, "valid", inputs->valid);
    write_input(side, graph, "dy", &inputs->dy);
    assert_ok(program_run(side->program, &error), &error);
}

static void *read_kept(const Side *side, const Graph *graph, const char *name, size_t *bytes_ret)
{
    FshError error = {0};
    const TensorId id = graph_find(graph, name);
    const Tensor *tensor = graph_tensor(graph, id);
    *bytes_ret = (size_t)tensor_count(tensor) * data_type_bytes(tensor->type);
    void *values = malloc(*bytes_ret);
    assert_non_null(values);
    assert_ok(program_read(side->program, id, values, *bytes_ret, &error), &error);
    return values;
}

/* Compares values, which must be NaN where theirs are: the loss of an image that is left out. */
static void compare_floats(const char *what, const float *ours, const float *theirs, size_t count)
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

static void compare_case(const MaskCase *c)
{
    static const char *const kept[] = {"y", "dx", "sums", "classes"};
    Graph *graph = counted_graph(c);
    Inputs inputs = draw_inputs(c);
    Side sides[] = {side_of(backends[CUDA], graph), side_of(backends[CPU], graph)};
    for (int i = 0; i < 2; i++)
        run_poisoned(&sides[i], graph, &inputs);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char what[160];
        size_t bytes = 0;
        void *ours = read_kept(&sides[0], graph, kept[i], &bytes),
             *theirs = read_kept(&sides[1], graph, kept[i], &bytes);
        (void)snprintf(what, sizeof what, "%d x %d x %d x %d%s, smoothing %g: %s", (int)c->shape[0],
                       (int)c->shape[1], (int)c->shape[2], (int)c->shape[3], c->weighted ? ", weighted" : "",
                       (double)c->smoothing, kept[i]);
        if (strcmp(kept[i], "classes") == 0)
            assert_memory_equal(ours, theirs, bytes);
        else
            compare_floats(what, ours, theirs, bytes / sizeof(float));
        /* and again: what the blocks count themselves in is as it was, and the order of sums, too */
        run_poisoned(&sides[0], graph, &inputs);
        void *again = read_kept(&sides[0], graph, kept[i], &bytes);
        assert_memory_equal(ours, again, bytes);
        free(ours);
        free(theirs);
        free(again);
    }
    side_end(&sides[0]);
    side_end(&sides[1]);
    free_inputs(&inputs);
    graph_free(&graph);
}

/* Of one pixel; of images that are a piece and less, several pieces, and a rest; of two to 255 classes. */
CUDA_TEST(test_losses_of_masks_agree)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 2},    {2, 5, 7, 3},   {3, 32, 64, 5},  {4, 41, 50, 21},
                                        {2, 16, 9, 150}, {1, 9, 9, 255}, {37, 12, 12, 4}, {1, 130, 129, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (int smooth = 0; smooth < 2; smooth++) {
                MaskCase c = {.weighted = weighted, .smoothing = smooth ? 0.1F : 0};
                memcpy(c.shape, shapes[i], sizeof c.shape);
                compare_case(&c);
            }
}

CUDA_TEST(test_large_masks_are_like_the_cpus)
{
    compare_case(&(MaskCase){.shape = {16, 128, 128, 21}});
    compare_case(&(MaskCase){.shape = {2, 512, 512, 19}, .weighted = true});
}

CUDA_TEST(test_a_mask_of_nothing_has_no_loss)
{
    const MaskCase c = {.shape = {2, 3, 3, 4}};
    size_t bytes;
    Graph *graph = counted_graph(&c);
    Inputs inputs = draw_inputs(&c);
    Side side = side_of(backends[CUDA], graph);
    memset(inputs.mask, 255, 18);
    run_poisoned(&side, graph, &inputs);
    float *y = read_kept(&side, graph, "y", &bytes), *dx = read_kept(&side, graph, "dx", &bytes);
    assert_true(*y == 0);
    for (size_t i = 0; i < bytes / sizeof *dx; i++)
        assert_true(dx[i] == 0);
    free(y);
    free(dx);
    side_end(&side);
    free_inputs(&inputs);
    graph_free(&graph);
}

CUDA_TEST(test_a_value_that_is_no_class_is_refused)
{
    const MaskCase c = {.shape = {2, 1, 2, 3}};
    const uint8_t mask[4] = {0, 255, 2, 3};
    FshError error = {0};
    Graph *graph = counted_graph(&c);
    Side side = side_of(backends[CUDA], graph);
    assert_int_equal(program_write(side.program, graph_find(graph, "mask"), mask, sizeof mask, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "mask: value 3 in the mask of sample 1; there are 3 classes");
    side_end(&side);
    graph_free(&graph);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
