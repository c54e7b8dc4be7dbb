/* The update on the CUDA backend against the CPU backend, run by run: every optimizer, and what stands around
 * it.
 *
 * The gradients are nearly the same bits on both: layers of one sample whose output's gradient is an input,
 * so that each is one product. What remains is a rounding less where the compiler joins a product and a sum:
 * 3e-6 of a tensor's size (rms) is allowed after ten runs; what a run counts must be equal. Narrow
 * gradients and copies: optimizer_kernel_test.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/trainer/cuda_support.h"
#include "trainer/graph/graph_internal.h"

enum { RUNS = 10, RUN_NAME = 160 };
static const double tolerance = 3e-6;

/* ---- the network ---- */

/* Makes an input, LAYER.dy, the gradient of y. */
static void drive(Graph *graph, TensorId y, const char *layer)
{
    char name[GRAPH_NAME_MAX];
    const Tensor *output = graph_tensor(graph, y);
    int64_t shape[4];
    const int rank = output->rank;
    memcpy(shape, output->shape, sizeof shape);
    (void)snprintf(name, sizeof name, "%s.dy", layer);
    graph_contribute_gradient(graph, y, graph_input(graph, name, DATA_F32, rank, shape));
}

/* Returns a graph of parameters to update: of one piece and of several, with rows that four divides and not,
 * filters, and those of a norm, which do not decay. "loss" is an input. */
static Graph *update_graph(const Optimizer *wanted)
{
    FshError error = {0};
    Optimizer optimizer = *wanted;
    Graph *graph = graph_new();
    assert_non_null(graph);
    TensorId wide = graph_input(graph, "wide.x", DATA_F32, 2, (int64_t[]){1, 301});
    TensorId small = graph_input(graph, "small.x", DATA_F32, 2, (int64_t[]){1, 3});
    TensorId image = graph_input(graph, "image.x", DATA_F32, 4, (int64_t[]){1, 3, 3, 5});
    TensorId pixels = graph_input(graph, "pixels.x", DATA_F32, 4, (int64_t[]){2, 3, 2, 7});
    TensorId outputs[] = {
        graph_linear(graph, "wide", wide, 70, true),
        graph_linear(graph, "small", small, 1, true),
        graph_conv2d(graph, "conv", image, &(Conv2d){.channels = 9, .kernel = 3, .stride = 1, .bias = true}),
        graph_batch_norm(graph, "norm", pixels, &(BatchNorm){.training = true}),
    };
    static const char *const layers[] = {"wide", "small", "conv", "norm"};
    if (optimizer.cycles_momentum)
        optimizer.momentum_of_run = graph_input(graph, "momentum", DATA_F32, 1, (int64_t[]){1});
    graph_set_factors(graph, graph_find(graph, "wide.weight"), 0.25, 3);
    graph_set_factors(graph, graph_find(graph, "norm.bias"), 2, 1);
    if (optimizer.loss_scaling)
        graph_loss_scale(graph);
    const size_t forward_count = graph_node_count(graph);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        drive(graph, outputs[i], layers[i]);
    graph_append_backward_pass(graph, forward_count);
    graph->loss = graph_input(graph, "loss", DATA_F32, 1, (int64_t[]){1});
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_update(graph, &optimizer);
    assert_ok(graph_check(graph, &error), &error);
    for (size_t n = 0; n < graph_node_count(graph); n++)
        comparison.ran[graph_node(graph, (NodeId)n)->op] = true;
    return graph;
}

/* ---- runs ---- */

/* What is out of the ordinary, a bit for each run. */
typedef struct Events {
    unsigned overflows;     /* a gradient is infinite */
    unsigned loss_is_lost;  /* the loss is NaN */
    unsigned gradient_zero; /* all gradients are 0 */
    unsigned perturbs;      /* program_perturb comes before it */
} Events;

/* Writes the inputs of a run and perturbs, where it does. */
static void write_run(const Side *side, const Graph *graph, int run, const Events *events)
{
    FshError error = {0};
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_INPUT)
            continue;
        const size_t count = (size_t)tensor_count(tensor);
        const bool is_gradient = strstr(tensor->name, ".dy") != NULL;
        float *values = malloc(count * sizeof *values);
        Random random;
        assert_non_null(values);
        random_start(&random, comparison.seed, random_stream(t, (uint64_t)run));
        for (size_t i = 0; i < count; i++)
            values[i] = is_gradient && (events->gradient_zero >> run & 1) ? 0 : random_normal(&random);
        if (strcmp(tensor->name, "learning_rate") == 0)
            values[0] = 0.05F / (float)(run + 1);
        else if (strcmp(tensor->name, "momentum") == 0)
            values[0] = 0.95F - 0.03F * (float)run;
        else if (strcmp(tensor->name, "loss") == 0)
            values[0] = events->loss_is_lost >> run & 1 ? NAN : 1;
        else if (strcmp(tensor->name, "wide.dy") == 0 && (events->overflows >> run & 1))
            values[count - 1] = INFINITY;
        assert_ok(program_write(side->program, (TensorId)t, values, count * sizeof *values, &error), &error);
        free(values);
    }
    if (events->perturbs >> run & 1)
        assert_ok(program_perturb(side->program, &error), &error);
}

static void make_run(const Side *side, const Graph *graph, int run, const Events *events)
{
    FshError error = {0};
    write_run(side, graph, run, events);
    assert_ok(program_run(side->program, &error), &error);
}

static float read_number(const Side *side, const Graph *graph, const char *name)
{
    FshError error = {0};
    const TensorId id = graph_find(graph, name);
    float value = 0;
    if (state_holds(graph_tensor(graph, id)->role))
        assert_ok(state_read(side->state, name, &value, 1, &error), &error);
    else
        assert_ok(program_read(side->program, id, &value, sizeof value, &error), &error);
    return value;
}

static void compare_numbers(const Graph *graph, const Side sides[2], const char *what)
{
    static const char *const exact[] = {"updated",      "optimizer.step", "optimizer.micro",
                                        "scaler.scale", "scaler.tracker", "optimizer.perturbed"};
    const float norm = read_number(&sides[0], graph, "gradient_norm"),
                wanted = read_number(&sides[1], graph, "gradient_norm");
    const bool same = isfinite(wanted) ? fabsf(norm - wanted) <= (float)tolerance * wanted : !isfinite(norm);
    if (!same) {
        print_error("%s: gradient_norm is %g, not %g\n", what, (double)norm, (double)wanted);
        comparison.mismatches++;
    }
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        if (graph_find(graph, exact[i]) == TENSOR_NONE)
            continue;
        const float ours = read_number(&sides[0], graph, exact[i]),
                    theirs = read_number(&sides[1], graph, exact[i]);
        if (ours != theirs) {
            print_error("%s: %s is %g, not %g\n", what, exact[i], (double)ours, (double)theirs);
            comparison.mismatches++;
        }
    }
}

/* Compares values. Where theirs are not finite (an accumulated gradient that overflowed), ours must not be
 * either. */
static void compare_close(const char *what, const float *ours, const float *theirs, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(ours[i]) != isfinite(theirs[i])) {
            print_error("%s: element %zu is %g, not %g\n", what, i, (double)ours[i], (double)theirs[i]);
            comparison.mismatches++;
            return;
        }
        if (!isfinite(theirs[i]))
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

static void compare_states(const Graph *graph, const Side sides[2], const char *name)
{
    char what[2 * RUN_NAME];
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (!state_holds(tensor->role))
            continue;
        float *ours = side_read_state(&sides[0], tensor), *theirs = side_read_state(&sides[1], tensor);
        (void)snprintf(what, sizeof what, "%s: %s", name, tensor->name);
        compare_close(what, ours, theirs, (size_t)tensor_count(tensor));
        free(ours);
        free(theirs);
    }
}

static void compare_update(const Optimizer *optimizer, const Events *events, const char *name)
{
    FshError error = {0};
    char what[RUN_NAME];
    Graph *graph = update_graph(optimizer);
    Side sides[2];
    side_start(&sides[0], backends[CUDA], graph, &comparison);
    side_start(&sides[1], backends[CPU], graph, &comparison);
    for (int run = 0; run < RUNS; run++) {
        (void)snprintf(what, sizeof what, "%s%s, %s, run %d", optimizer_names[optimizer->kind],
                       optimizer->nesterov ? " nesterov" : "", name, run);
        for (int i = 0; i < 2; i++) {
            assert_ok(program_poison(sides[i].program, &error), &error);
            write_run(&sides[i], graph, run, events);
        }
        if (events->perturbs >> run & 1)
            compare_states(graph, sides, what);
        for (int i = 0; i < 2; i++)
            assert_ok(program_run(sides[i].program, &error), &error);
        compare_numbers(graph, sides, what);
        if (run == 0 || run == RUNS - 1)
            compare_states(graph, sides, what);
    }
    side_end(&sides[0]);
    side_end(&sides[1]);
    graph_free(&graph);
}

/* ---- every optimizer ---- */

static const Optimizer optimizers[] = {
    {.kind = OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.01},
    {.kind = OPTIMIZER_SGD, .momentum = 0.8, .weight_decay = 0.02, .nesterov = true},
    {.kind = OPTIMIZER_SGD},
    {.kind = OPTIMIZER_SGDW, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
    {.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.01},
    {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.05},
    {.kind = OPTIMIZER_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust_coefficient = 0.02},
    {.kind = OPTIMIZER_LAMB, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.02},
    {.kind = OPTIMIZER_NADAMW, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.05},
    {.kind = OPTIMIZER_NADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.05},
    /* rectified from the sixth update on */
    {.kind = OPTIMIZER_RADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.01},
    {.kind = OPTIMIZER_RADAMW, .beta1 = 0.9, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.05},
    {.kind = OPTIMIZER_RANGER, .beta1 = 0.95, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.01},
};

/* Compares each optimizer with the options of `around` added: clipping, accumulation, lookahead, EMA and loss
 * scale. */
static void compare_all(const Optimizer *around, const Events *events, const char *name)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        Optimizer optimizer = optimizers[i];
        optimizer.clip_norm = around->clip_norm;
        optimizer.accumulation_steps = around->accumulation_steps;
        optimizer.lookahead_steps = around->lookahead_steps;
        optimizer.lookahead_alpha = around->lookahead_alpha;
        optimizer.ema_decay = around->ema_decay;
        optimizer.ema_warmup = around->ema_warmup;
        optimizer.loss_scaling = around->loss_scaling;
        optimizer.scale_init = around->scale_init;
        optimizer.scale_growth = around->scale_growth;
        optimizer.scale_backoff = around->scale_backoff;
        optimizer.scale_interval = around->scale_interval;
        optimizer.cycles_momentum = around->cycles_momentum;
        optimizer.sam_rho = around->sam_rho;
        compare_update(&optimizer, events, name);
    }
}

static const Events nothing_happens = {0};

CUDA_TEST(test_plain_updates_agree)
{
    compare_all(&(Optimizer){0}, &nothing_happens, "plain");
}

CUDA_TEST(test_clipped_updates_agree)
{
    compare_all(&(Optimizer){.clip_norm = 0.5}, &(Events){.gradient_zero = 1U << 3}, "clipped");
    compare_all(&(Optimizer){.clip_norm = 1e6}, &nothing_happens, "never clipped");
}

CUDA_TEST(test_accumulated_updates_agree)
{
    compare_all(&(Optimizer){.accumulation_steps = 3}, &nothing_happens, "accumulated");
    compare_all(&(Optimizer){.accumulation_steps = 2, .clip_norm = 0.5}, &nothing_happens,
                "accumulated, clipped");
}

CUDA_TEST(test_updates_with_a_momentum_of_each_run_agree)
{
    compare_all(&(Optimizer){.cycles_momentum = true}, &nothing_happens, "momentum of each run");
    compare_all(&(Optimizer){.cycles_momentum = true, .clip_norm = 0.5}, &nothing_happens,
                "momentum of each run, clipped");
}

CUDA_TEST(test_lookaheads_agree)
{
    compare_all(&(Optimizer){.lookahead_steps = 2, .lookahead_alpha = 0.4}, &nothing_happens, "lookahead");
}

CUDA_TEST(test_averages_of_weights_agree)
{
    compare_all(&(Optimizer){.ema_decay = 0.6}, &nothing_happens, "average");
    compare_all(&(Optimizer){.ema_decay = 0.9, .ema_warmup = true, .accumulation_steps = 2}, &nothing_happens,
                "average that warms up, accumulated");
}

/* The scale grows, and falls twice in a row at the start and once later. */
CUDA_TEST(test_loss_scales_agree)
{
    const Optimizer scaled = {.loss_scaling = true,
                              .scale_init = 65536,
                              .scale_growth = 2,
                              .scale_backoff = 0.5,
                              .scale_interval = 2};
    compare_all(&scaled, &(Events){.overflows = 1U | 1U << 1 | 1U << 5}, "scaled");
}

CUDA_TEST(test_lost_losses_agree)
{
    const Events lost = {.loss_is_lost = 1U | 1U << 4};
    compare_all(&(Optimizer){0}, &lost, "lost loss");
    compare_all(&(Optimizer){.clip_norm = 0.5, .accumulation_steps = 2, .ema_decay = 0.9}, &lost,
                "lost loss, clipped, accumulated, averaged");
}

CUDA_TEST(test_updates_with_sam_agree)
{
    const Optimizer scaled = {.sam_rho = 0.2,
                              .loss_scaling = true,
                              .scale_init = 1024,
                              .scale_growth = 2,
                              .scale_backoff = 0.5,
                              .scale_interval = 2};
    compare_all(&(Optimizer){.sam_rho = 0.5}, &(Events){.perturbs = 0x3FF}, "sam");
    compare_all(&(Optimizer){.sam_rho = 0.5, .accumulation_steps = 2, .clip_norm = 0.5, .ema_decay = 0.9},
                &(Events){.perturbs = 0x0CC, .loss_is_lost = 1U << 3, .gradient_zero = 1U << 6},
                "sam, accumulated, clipped, averaged");
    compare_all(&scaled, &(Events){.perturbs = 0x2AA, .overflows = 1U << 3}, "sam, scaled");
}

static const Optimizer all_around = {.clip_norm = 0.3,
                                     .accumulation_steps = 2,
                                     .lookahead_steps = 2,
                                     .lookahead_alpha = 0.5,
                                     .ema_decay = 0.9,
                                     .ema_warmup = true,
                                     .loss_scaling = true,
                                     .scale_init = 1024,
                                     .scale_growth = 2,
                                     .scale_backoff = 0.5,
                                     .scale_interval = 2};

CUDA_TEST(test_updates_with_everything_agree)
{
    compare_all(&all_around, &(Events){.overflows = 1U << 3}, "everything");
}

/* A NaN loss is the gradient's affair then. */
CUDA_TEST(test_scaled_runs_with_lost_losses_agree)
{
    compare_all(&all_around, &(Events){.loss_is_lost = 1U << 2}, "everything, lost loss");
}

/* ---- what a checkpoint carries ---- */

/* Run, save, load into another program, run on: the same bits as without. Also: the order of all sums is
 * fixed. */
CUDA_TEST(test_a_run_goes_on_from_its_state_bit_for_bit)
{
    enum { STOP = 3 };
    const Events events = {.overflows = 1U << 4, .perturbs = 0x0CC};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        FshError error = {0};
        Optimizer optimizer = all_around;
        optimizer.kind = optimizers[i].kind;
        optimizer.momentum = 0.9;
        optimizer.beta1 = 0.9;
        optimizer.beta2 = 0.99;
        optimizer.epsilon = 1e-6;
        optimizer.trust_coefficient = 0.02;
        optimizer.sam_rho = 0.2;
        Graph *graph = update_graph(&optimizer);
        Side whole, first, second;
        side_start(&whole, backends[CUDA], graph, &comparison);
        side_start(&first, backends[CUDA], graph, &comparison);
        side_start(&second, backends[CUDA], graph, &comparison);
        for (int run = 0; run < STOP; run++)
            make_run(&first, graph, run, &events);
        for (size_t t = 0; t < graph_tensor_count(graph); t++) {
            const Tensor *tensor = graph_tensor(graph, (TensorId)t);
            if (!state_holds(tensor->role))
                continue;
            float *values = side_read_state(&first, tensor);
            assert_ok(state_write(second.state, tensor->name, values, (size_t)tensor_count(tensor), &error),
                      &error);
            free(values);
        }
        for (int run = 0; run < RUNS; run++)
            make_run(&whole, graph, run, &events);
        for (int run = STOP; run < RUNS; run++)
            make_run(&second, graph, run, &events);
        for (size_t t = 0; t < graph_tensor_count(graph); t++) {
            const Tensor *tensor = graph_tensor(graph, (TensorId)t);
            if (!state_holds(tensor->role))
                continue;
            float *wanted = side_read_state(&whole, tensor), *got = side_read_state(&second, tensor);
            assert_memory_equal(wanted, got, (size_t)tensor_count(tensor) * sizeof *got);
            free(wanted);
            free(got);
        }
        side_end(&whole);
        side_end(&first);
        side_end(&second);
        graph_free(&graph);
    }
}

/* ---- mixed precision ---- */

/* Returns image -> flatten -> linear -> linear -> loss, in type; f32 has no loss scale. */
static Graph *classifier(DataType type, double scale_init)
{
    FshError error = {0};
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    Optimizer optimizer = {.momentum = 0.9,
                           .weight_decay = 0.01,
                           .loss_scaling = type != DATA_F32,
                           .scale_init = scale_init,
                           .scale_growth = 2,
                           .scale_backoff = 1.0 / 256,
                           .scale_interval = 1000};
    Graph *graph = graph_new();
    graph_set_compute_type(graph, type);
    TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){5});
    TensorId x = graph_input(graph, "image", DATA_U8, 4, (int64_t[]){5, 6, 5, 3});
    x = graph_flatten(graph, graph_normalize(graph, x, mean, deviation));
    x = graph_linear(graph, "classes", graph_linear(graph, "hidden", x, 19, true), 3, true);
    TensorId loss = graph_softmax_cross_entropy(graph, x, labels, TENSOR_NONE, TENSOR_NONE, 0.1F);
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    if (optimizer.loss_scaling)
        graph_loss_scale(graph);
    graph_differentiate(graph, loss);
    graph_update(graph, &optimizer);
    assert_ok(graph_check(graph, &error), &error);
    return graph;
}

static float *read_weights(const Side *side, const Graph *graph)
{
    return side_read_state(side, graph_tensor(graph, graph_find(graph, "hidden.weight")));
}

/* In f16, from a scale at which nothing fits: nothing moves but the scale, until gradients are finite; then
 * the update is that of f32 to rounding. Inputs are the same in each run. */
CUDA_TEST(test_a_scale_that_is_too_large_falls_until_gradients_fit)
{
    FshError error = {0};
    const double scale_init = 0x1p40;
    Graph *graph = classifier(DATA_F16, scale_init), *reference = classifier(DATA_F32, 0);
    const size_t bytes = 19 * 90 * sizeof(float);
    Side ours, theirs;
    int overflows = 0;
    side_start(&ours, backends[CUDA], graph, &comparison);
    side_start(&theirs, backends[CPU], reference, &comparison);
    float *before = read_weights(&ours, graph);
    for (;; overflows++) {
        side_write_inputs(&ours, graph, 0, &comparison);
        assert_ok(program_run(ours.program, &error), &error);
        if (read_number(&ours, graph, "updated") == 1)
            break;
        float *after = read_weights(&ours, graph);
        assert_memory_equal(before, after, bytes);
        free(after);
        assert_true(overflows < 5);
        assert_false(isfinite(read_number(&ours, graph, "gradient_norm")));
        assert_true(read_number(&ours, graph, "scaler.scale") ==
                    (float)ldexp(scale_init, -8 * (overflows + 1)));
        assert_true(read_number(&ours, graph, "optimizer.step") == 0);
    }
    assert_true(overflows >= 2);
    side_write_inputs(&theirs, reference, 0, &comparison);
    assert_ok(program_run(theirs.program, &error), &error);
    const double norm = (double)read_number(&ours, graph, "gradient_norm"),
                 wanted = (double)read_number(&theirs, reference, "gradient_norm");
    assert_true(fabs(norm / wanted - 1) < 0.01);
    float *updated = read_weights(&ours, graph), *like = read_weights(&theirs, reference);
    double difference = 0, moved = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        difference += pow((double)updated[i] - (double)like[i], 2);
        moved += pow((double)updated[i] - (double)before[i], 2);
    }
    assert_true(moved > 0 && sqrt(difference / moved) < 0.02);
    free(before);
    free(updated);
    free(like);
    side_end(&ours);
    side_end(&theirs);
    graph_free(&graph);
    graph_free(&reference);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
