/* Gradients against finite differences, through the whole of builder, autodiff, plan and backend: along the
 * gradient g of one parameter, (loss(w + h g) - loss(w - h g)) / 2 h must be ||g||^2. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/network_support.h"

enum { BATCH = 3, SIZE = 12 };

/* Ends a graph: the loss of five classes, kept and fused, and the nodes of the gradient. */
static void end_in_classes(Graph *graph, TensorId x, TensorId label)
{
    FshError error = {0};
    TensorId loss = graph_softmax_cross_entropy(graph, graph_linear(graph, "fc", x, 5, true), label,
                                                TENSOR_NONE, TENSOR_NONE, 0.2F);
    graph_keep(graph, loss, "loss");
    graph_fuse(graph, FUSE_ALL);
    graph_differentiate(graph, loss);
    graph_fuse_backward(graph, FUSE_ALL);
    test_check(graph_check(graph, &error), &error);
}

/* Returns a graph of every op of the classifiers that has a gradient; x is used twice. Activations are smooth
 * but for max pool and a leaky ReLU. */
static Graph *every_op(bool training)
{
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    const BatchNorm norm = {.training = training};
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){BATCH, SIZE, SIZE, 3});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){BATCH});
    TensorId x = graph_normalize(graph, image, mean, deviation);
    x = graph_conv2d(graph, "conv1", graph_reflection_pad(graph, x, 2),
                     &(Conv2d){.channels = 6, .kernel = 3, .stride = 1, .bias = true});
    x = graph_leaky_relu(graph, graph_batch_norm(graph, "bn1", x, &norm), 0.7F);
    x = graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
    TensorId y =
        graph_conv2d(graph, "conv2", x, &(Conv2d){.channels = 6, .kernel = 3, .stride = 1, .padding = 1});
    y = graph_batch_norm(graph, "bn2", y, &norm);
    x = graph_leaky_relu(graph, graph_add(graph, y, x), 0.6F);
    y = graph_batch_norm(graph, "bn6", x, &norm); /* becomes two nodes, with what follows */
    TensorId s = graph_linear_1x1(graph, "squeeze", graph_global_avg_pool(graph, y), 4, true);
    s = graph_linear_1x1(graph, "excite", graph_silu(graph, s), 6, true);
    s = graph_sigmoid(graph, graph_scale(graph, s, 3)); /* so that gradients are not small */
    x = graph_leaky_relu(graph, graph_add(graph, graph_channel_multiply(graph, y, s), x), 0.8F);
    y = graph_gelu(graph, graph_batch_norm(graph, "bn4", x, &norm));
    x = graph_add(graph, y, graph_mish(graph, graph_batch_norm(graph, "bn5", y, &norm)));
    x = graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
    TensorId wide = graph_linear(graph, "wide", graph_flatten(graph, x), 5, false);
    TensorId mean_pooled = graph_linear(graph, "pooled", graph_global_avg_pool(graph, x), 5, false);
    TensorId logits = graph_batch_norm(graph, "bn3", graph_add(graph, wide, mean_pooled), &norm);
    end_in_classes(graph, logits, label);
    return graph;
}

/* Returns a graph of the restoration networks' ops: a NAFNet block between boxes and shuffles, with x used
 * twice. */
static Graph *every_restoration_op(bool training)
{
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    const Initializer ones = {INIT_ONES, 0};
    (void)training; /* no batch statistics here */
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId image = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){BATCH, SIZE, SIZE, 3});
    TensorId label = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){BATCH});
    TensorId x = graph_conv2d(graph, "intro", graph_normalize(graph, image, mean, deviation),
                              &(Conv2d){.channels = 6, .kernel = 3, .stride = 1, .bias = true});
    x = graph_leaky_relu(graph, x, 0.7F); /* becomes part of the convolution */
    TensorId y = graph_conv2d(graph, "before", x, &(Conv2d){.channels = 6, .kernel = 1, .stride = 1});
    y = graph_zero_pad(graph, graph_layer_norm(graph, "norm", y, 1e-6), SIZE, SIZE, 8);
    y = graph_conv2d(
        graph, "wide", y,
        &(Conv2d){.channels = 12, .kernel = 1, .stride = 1, .bias = true, .init = CONV_INIT_KAIMING_FAN_OUT});
    y = graph_conv2d(graph, "depthwise", y,
                     &(Conv2d){.channels = 12, .kernel = 3, .stride = 1, .bias = true, .groups = 12});
    y = graph_gate(graph, graph_leaky_relu(graph, y, 0.9F));
    TensorId factors = graph_linear_1x1(graph, "attention", graph_global_avg_pool(graph, y), 6, true);
    y = graph_channel_multiply(graph, y, factors);
    y = graph_channel_scale(graph, "block", "beta", y, x);
    y = graph_channel_scale(graph, "alone", "gamma", y, TENSOR_NONE);
    graph_set_initializer(graph, "block.beta", ones);
    graph_set_initializer(graph, "alone.gamma", ones);
    y = graph_conv2d(graph, "grouped", graph_pixel_unshuffle(graph, y, 2),
                     &(Conv2d){.channels = 8, .kernel = 3, .stride = 1, .padding = 1, .groups = 2});
    y = graph_concat(graph, graph_pixel_shuffle(graph, y, 2), graph_crop(graph, x, SIZE - 2, SIZE - 2));
    y = graph_scale(graph, graph_crop(graph, y, 7, 9), 20); /* so that gradients are not small */
    y = graph_add(graph, graph_gelu(graph, y), graph_silu(graph, y));
    end_in_classes(graph, graph_global_avg_pool(graph, y), label);
    return graph;
}

static double loss_at(Program *program, const char *name, const float *w, const float *g, size_t count,
                      double h)
{
    FshError error = {0};
    float *moved = malloc((count + 1) * sizeof *moved), *loss;
    assert_non_null(moved);
    for (size_t i = 0; i < count; i++)
        moved[i] = (float)((double)w[i] + h * (double)g[i]);
    test_check(state_write(program->state, name, moved, count, &error), &error);
    test_run(program);
    loss = test_read(program, "loss", NULL);
    const double value = (double)*loss;
    free(loss);
    free(moved);
    return value;
}

static void check_parameter(Program *program, const char *name)
{
    FshError error = {0};
    char gradient_name[128];
    size_t count;
    (void)snprintf(gradient_name, sizeof gradient_name, "%s.grad", name);
    test_run(program);
    float *w = test_read(program, name, &count), *g = test_read(program, gradient_name, NULL);
    double square = 0;
    for (size_t i = 0; i < count; i++)
        square += (double)g[i] * (double)g[i];
    /* A bias in front of a batch norm has no gradient. */
    if (square > 1e-10) {
        /* The loss moves by about 0.01: well above float's rounding, well below where it bends. */
        const double h = 0.005 / square;
        const double slope =
            (loss_at(program, name, w, g, count, h) - loss_at(program, name, w, g, count, -h)) / (2 * h);
        if (!(fabs(slope / square - 1) < 0.02))
            fail_msg("%s: finite differences give %g, autodiff %g", name, slope, square);
    } else if (strcmp(name, "conv1.bias") != 0) {
        fail_msg("%s: its gradient vanishes", name);
    }
    test_check(state_write(program->state, name, w, count, &error), &error);
    free(w);
    free(g);
}

static void gradients_agree(Graph *(*make)(bool training), bool training, int parameters)
{
    FshError error = {0};
    State *state = NULL;
    Program *program = NULL;
    Backend *backend = test_backend(2);
    Graph *graph = make(training);
    test_check(state_new(&state, backend, graph, &error), &error);
    test_check(state_initialize(state, 11, &error), &error);
    test_check(program_new(&program, state, graph, &error), &error);
    test_write_batch(program);
    int64_t labels[BATCH] = {1, -1, 4};
    test_check(program_write(program, graph_find(graph, "label"), labels, sizeof labels, &error), &error);
    int checked = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (graph_tensor(graph, (TensorId)i)->role == TENSOR_PARAMETER) {
            check_parameter(program, graph_tensor(graph, (TensorId)i)->name);
            checked++;
        }
    assert_int_equal(checked, parameters);
    program_free(&program);
    state_free(&state);
    graph_free(&graph);
    backend_close(&backend);
}

TEST(test_training_gradients_agree_with_finite_differences)
{
    gradients_agree(every_op, true, 23);
}

TEST(test_gradients_through_frozen_norms_agree_with_finite_differences)
{
    gradients_agree(every_op, false, 23);
}

TEST(test_gradients_of_restoration_agree_with_finite_differences)
{
    gradients_agree(every_restoration_op, true, 16);
}
