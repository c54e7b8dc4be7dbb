/* What convolutions of the CUDA backend choose from: ways that are timed, ReLUs and sums that cuDNN makes
 * beside them, what is refused; and plans that are kept for the next start. Their results: op_cases.h.
 *
 * Usage: cuda_support.h. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/trainer/cuda_support.h"

CUDA_TEST(test_convolutions_of_few_channels_are_our_own)
{
    FshError error = {0};
    Graph *graph = graph_new();
    State *weights = NULL;
    Program *program = NULL;
    size_t own = 0, convolutions = 0;
    graph_set_compute_type(graph, DATA_F16);
    TensorId x = graph_cast(graph, graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 8, 8, 3}), DATA_F16);
    x = conv(graph, "few", x, 16, 3, 1, 1, true);
    x = conv(graph, "more", x, 48, 3, 1, 1, true);
    graph_keep(graph, x, "y");
    assert_ok(graph_check(graph, &error), &error);
    assert_ok(state_new(&weights, backends[CUDA], graph, &error), &error);
    assert_ok(program_new(&program, weights, graph, &error), &error);
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const char *plan = program_node_plan(program, (NodeId)n);
        convolutions += graph_node(graph, (NodeId)n)->op == OP_CONV2D;
        own += plan && strstr(plan, "few channels");
    }
    assert_int_equal(convolutions, 2);
    assert_int_equal(own, 1);
    program_free(&program);
    state_free(&weights);
    graph_free(&graph);
}

/* Returns a convolution with a bias and a leaky ReLU in f16 or bf16; y is kept. */
static Graph *activated_graph(const Conv2d *options, const int64_t image[4], DataType type, float slope,
                              bool fused)
{
    FshError error = {0};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId x = graph_cast(graph, graph_input(graph, "x", DATA_F32, 4, image), type);
    x = graph_leaky_relu(graph, graph_conv2d(graph, "conv", x, options), slope);
    graph_keep(graph, graph_cast(graph, x, DATA_F32), "y");
    graph_fuse(graph, fused ? FUSE_CONV_BIAS_RELU : 0);
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(graph_node(graph, 1)->as.conv.relu, fused);
    return graph;
}

/* Starts a side, runs the graph on an image of its own making, and reads `count` values of y. */
static void run_on_image(Side *side, Backend *backend, Graph *graph, float *values, size_t count)
{
    FshError error = {0};
    const TensorId x = graph_find(graph, "x"), y = graph_find(graph, "y");
    const size_t pixels = (size_t)tensor_count(graph_tensor(graph, x));
    float *image = malloc(pixels * sizeof *image);
    assert_non_null(image);
    for (size_t i = 0; i < pixels; i++)
        image[i] = (float)((i * 2654435761U) % 1024) / 512 - 0.75F;
    side_start(side, backend, graph, &comparison);
    assert_ok(program_write(side->program, x, image, pixels * sizeof *image, &error), &error);
    assert_ok(program_run(side->program, &error), &error);
    assert_ok(program_read(side->program, y, values, count * sizeof *values, &error), &error);
    free(image);
}

/* Returns how the convolution was computed; good until the next call. */
static const char *run_activated(Graph *graph, float *values, size_t count)
{
    static char plan[160];
    Side side;
    run_on_image(&side, backends[CUDA_TIMED], graph, values, count);
    const char *told = program_node_plan(side.program, 1);
    (void)snprintf(plan, sizeof plan, "%s", told ? told : "");
    side_end(&side);
    graph_free(&graph);
    return plan;
}

/* Where ways are timed cuDNN compiles leaky ReLUs, too. */
CUDA_TEST(test_relus_of_timed_convolutions_are_right)
{
    static const struct {
        int64_t image[4], size_out;
        Conv2d options;
    } cases[] = {{{4, 64, 64, 64}, 64, {.channels = 64, .kernel = 3, .stride = 1, .padding = 1}},
                 {{4, 32, 32, 128}, 16, {.channels = 256, .kernel = 2, .stride = 2}},
                 {{4, 64, 64, 12}, 64, {.channels = 32, .kernel = 3, .stride = 1, .padding = 1}}};
    static const DataType types[] = {DATA_BF16, DATA_F16};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t t = 0; t < 2; t++)
            for (int leaky = 0; leaky < 2; leaky++) {
                Conv2d options = cases[i].options;
                options.bias = true;
                const size_t count =
                    (size_t)(cases[i].image[0] * cases[i].size_out * cases[i].size_out * options.channels);
                float *values[2] = {malloc(count * sizeof(float)), malloc(count * sizeof(float))};
                char what[64];
                const char *plan = "";
                for (int fused = 0; fused < 2; fused++)
                    plan = run_activated(
                        activated_graph(&options, cases[i].image, types[t], leaky ? 0.2F : 0, fused == 1),
                        values[fused], count);
                (void)snprintf(what, sizeof what, "convolution %zu and %sReLU, %s", i, leaky ? "leaky " : "",
                               data_type_name(types[t]));
                print_message("%s: %s\n", what, plan);
                /* a bias rounded to the type, and a result rounded twice */
                comparison.tolerance = 2 * epsilon_of(types[t]);
                compare_values(&comparison, what, values[1], values[0], count);
                comparison.tolerance = 0;
                free(values[0]);
                free(values[1]);
            }
}

CUDA_TEST(test_narrow_groups_that_are_padded_inside_are_refused)
{
    FshError error = {0};
    Graph *graph = graph_new();
    State *weights = NULL;
    Program *program = NULL;
    graph_set_compute_type(graph, DATA_BF16);
    TensorId x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){2, 8, 8, 12});
    graph_conv2d(graph, "layer7", graph_cast(graph, x, DATA_BF16),
                 &(Conv2d){.channels = 12, .kernel = 3, .stride = 1, .padding = 1, .groups = 3});
    assert_ok(graph_check(graph, &error), &error);
    assert_ok(state_new(&weights, backends[CUDA], graph, &error), &error);
    assert_int_equal(program_new(&program, weights, graph, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "layer7");
    assert_contains(error.message, "3 groups of 4 channels");
    state_free(&weights);
    graph_free(&graph);
}

/* ---- what cuDNN does after a convolution ---- */

/* Returns a training norm after a convolution in f16, which takes its sums from the convolution or makes them
 * in a pass of its own; y is kept. */
static Graph *normed_graph(int64_t size, int64_t in, int64_t channels, int64_t kernel, int64_t stride,
                           bool sums)
{
    FshError error = {0};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, DATA_F16);
    TensorId x = graph_input(graph, "x", DATA_F32, 4, (int64_t[]){4, size, size, in});
    x = conv(graph, "conv", graph_cast(graph, x, DATA_F16), channels, kernel, stride, kernel / 2, false);
    x = graph_batch_norm(graph, "norm", x, &(BatchNorm){.training = true});
    graph_keep(graph, graph_cast(graph, x, DATA_F32), "y");
    graph_fuse(graph, sums ? FUSE_CONV_STATISTICS : 0);
    assert_ok(graph_check(graph, &error), &error);
    const Node *node = graph_node(graph, 1);
    assert_int_equal(node->op, OP_CONV2D);
    assert_int_equal(node->output_count > 1 && node->outputs[1] != TENSOR_NONE, sums);
    if (sums)
        graph_keep(graph, node->outputs[1], "sums");
    return graph;
}

/* Reads into values the normed y, then the running mean and variance; frees the graph. */
static void run_normed(Backend *backend, Graph *graph, float *values, size_t count, int64_t channels)
{
    FshError error = {0};
    Side side;
    run_on_image(&side, backend, graph, values, count);
    assert_ok(state_read(side.state, "norm.running_mean", values + count, (size_t)channels, &error), &error);
    assert_ok(state_read(side.state, "norm.running_var", values + count + channels, (size_t)channels, &error),
              &error);
    side_end(&side);
    graph_free(&graph);
}

/* Compares the results with sums and those without. c: image, channels in and out, kernel, stride. */
static void compare_sums(const int64_t c[5], Backend *backend, const char *name)
{
    const int64_t size = (c[0] - 1) / c[4] + 1;
    const size_t count = (size_t)(4 * size * size * c[2]), all = count + 2 * (size_t)c[2];
    float *values[2] = {malloc(all * sizeof(float)), malloc(all * sizeof(float))};
    char what[80];
    for (int sums = 0; sums < 2; sums++)
        run_normed(backend, normed_graph(c[0], c[1], c[2], c[3], c[4], sums == 1), values[sums], count, c[2]);
    (void)snprintf(what, sizeof what, "normed, %d to %d channels, kernel %d%s", (int)c[1], (int)c[2],
                   (int)c[3], name);
    /* sums of what is rounded, or of what is about to be: 2^-11 of one of very many */
    comparison.tolerance = epsilon_of(DATA_F16);
    compare_values(&comparison, what, values[1], values[0], all);
    comparison.tolerance = 0;
    free(values[0]);
    free(values[1]);
}

/* Few channels, but for the last two, whose sums are left out. */
CUDA_TEST(test_sums_of_convolutions_agree)
{
    static const int64_t cases[][5] = {{15, 16, 24, 3, 2}, {9, 5, 13, 1, 1}, {28, 1, 3, 3, 2},
                                       {37, 3, 8, 3, 1},   {8, 8, 32, 5, 1}, {16, 64, 64, 3, 1},
                                       {28, 32, 128, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare_sums(cases[i], backends[CUDA], "");
        compare_sums(cases[i], backends[CUDA_TIMED], ", timed");
    }
}

/* Asserts whether the convolution made the sums. They stay as poisoned where the norm is one launch that
 * makes its own. */
static void expect_sums(const int64_t c[5], Backend *backend, bool made)
{
    FshError error = {0};
    Side side;
    Graph *graph = normed_graph(c[0], c[1], c[2], c[3], c[4], true);
    const TensorId x = graph_find(graph, "x"), sums = graph_find(graph, "sums");
    const size_t pixels = (size_t)tensor_count(graph_tensor(graph, x)),
                 count = (size_t)tensor_count(graph_tensor(graph, sums));
    float *image = calloc(pixels, sizeof *image), *values = malloc(count * sizeof *values);
    assert_non_null(image);
    assert_non_null(values);
    side_start(&side, backend, graph, &comparison);
    assert_ok(program_write(side.program, x, image, pixels * sizeof *image, &error), &error);
    assert_ok(program_run(side.program, &error), &error);
    assert_ok(program_read(side.program, sums, values, count * sizeof *values, &error), &error);
    for (size_t k = 0; k < count; k++)
        assert_int_equal(!isnan(values[k]), made);
    side_end(&side);
    graph_free(&graph);
    free(image);
    free(values);
}

/* By our own pass, and, where ways are timed, by cuDNN; the last one is folded. */
CUDA_TEST(test_sums_of_large_images_are_right)
{
    static const int64_t cases[][5] = {{250, 64, 64, 3, 1}, {800, 3, 24, 7, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare_sums(cases[i], backends[CUDA], "");
        compare_sums(cases[i], backends[CUDA_TIMED], ", timed");
        expect_sums(cases[i], backends[CUDA_TIMED], true);
    }
}

CUDA_TEST(test_sums_of_small_images_are_left_out)
{
    static const struct {
        int64_t shape[5];
        bool made;
    } cases[] = {{{16, 64, 64, 3, 1}, false}, {{16, 8, 16, 3, 1}, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_sums(cases[i].shape, backends[CUDA_TIMED], cases[i].made);
}

/* ---- plans that are kept ---- */

/* Changes with every file that is written or replaced. */
static uint64_t fingerprint(const char *folder)
{
    uint64_t sum = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        struct stat status;
        (void)snprintf(path, sizeof path, "%s/%.200s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && !stat(path, &status))
            sum += (uint64_t)status.st_ino * 31 + (uint64_t)status.st_mtim.tv_nsec + 1;
    }
    (void)closedir(directory);
    return sum;
}

static void train_a_step(const char *folder, float *loss)
{
    FshError error = {0};
    Backend *backend = NULL;
    Graph *graph = model("conv8", 16, 28, 1, true);
    Side side;
    assert_ok(backend_open(&backend, "cuda",
                           &(BackendOptions){.benchmark = true, .deterministic = true, .plan_cache = folder},
                           &error),
              &error);
    side_start(&side, backend, graph, &comparison);
    side_write_inputs(&side, graph, 0, &comparison);
    assert_ok(program_run(side.program, &error), &error);
    assert_ok(program_read(side.program, graph_find(graph, "loss"), loss, sizeof *loss, &error), &error);
    side_end(&side);
    backend_close(&backend);
    graph_free(&graph);
}

CUDA_TEST(test_the_second_start_takes_the_plans_of_the_first)
{
    TestFolder folder;
    float losses[2] = {0, 1};
    test_folder_make(&folder);
    train_a_step(folder.path, &losses[0]);
    const uint64_t files = test_count_files(folder.path), first = fingerprint(folder.path);
    assert_true(files > 3);
    train_a_step(folder.path, &losses[1]);
    assert_int_equal(test_count_files(folder.path), files);
    assert_true(fingerprint(folder.path) == first);
    assert_true(losses[0] == losses[1]);
    test_folder_remove(&folder);
}
