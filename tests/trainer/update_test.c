/* The update against PyTorch, run by run (golden/make_golden_optim.py): every optimizer, and what stands
 * around it. Prints the worst relative error of each case; more than TOLERANCE fails. Then what PyTorch has
 * no number for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/golden_training.h"
#include "trainer/backend/cpu/cpu_internal.h"
#include "trainer/graph/graph_internal.h"

#define TOLERANCE 1e-4
/* ---- against PyTorch ---- */

/* Returns the error of the gradient norm that a run tells; infinite where the update or the scale is
 * another. */
static double run_error(const Training *training, const json_t *run)
{
    const float norm = training_number(training->program, "gradient_norm");
    const json_t *wanted = json_object_get(run, "gradient_norm");
    if (training_number(training->program, "updated") != (float)golden_integer(run, "updated"))
        return INFINITY;
    if (graph_find(training->graph, "scaler.scale") != TENSOR_NONE &&
        training_number(training->program, "scaler.scale") != (float)golden_real(run, "scale"))
        return INFINITY;
    if (json_is_null(wanted))
        return isfinite(norm) ? INFINITY : 0;
    if (json_number_value(wanted) == 0)
        return norm == 0 ? 0 : INFINITY;
    return fabs((double)norm / json_number_value(wanted) - 1);
}

static double state_error(const Training *training, json_t *summaries, const char *name)
{
    double worst = 0;
    size_t i;
    json_t *summary;
    json_array_foreach(summaries, i, summary)
    {
        const size_t count = golden_count(summary);
        float *values = malloc(count * sizeof *values);
        FshError error = {0};
        assert_non_null(values);
        assert_ok(state_read(training->state, golden_text(summary, "name"), values, count, &error), &error);
        const double relative = golden_error(summary, values, count);
        if (!(relative < TOLERANCE))
            print_error("%s: %s: relative error %.2e\n", name, golden_text(summary, "name"), relative);
        worst = fmax(worst, relative);
        free(values);
    }
    return worst;
}

static double case_error(json_t *document, json_t *c, const void *context)
{
    (void)context;
    const char *name = golden_text(c, "name"), *counter;
    const json_t *o = json_object_get(c, "optimizer");
    const Optimizer optimizer = training_optimizer(o);
    Training training = training_start_groups(document, &optimizer, o, 2);
    double worst = 0;
    size_t i;
    json_t *run, *value;
    json_array_foreach(json_object_get(c, "runs"), i, run)
    {
        const float momentum = (float)(json_object_get(run, "momentum") ? golden_real(run, "momentum") : 0);
        if (optimizer.cycles_momentum)
            training_write(training.program, "momentum", &momentum, sizeof momentum);
        training.perturbs = json_is_true(json_object_get(run, "perturbs"));
        training_run(&training, golden_real(run, "rate"), json_is_true(json_object_get(run, "overflows")));
        const double relative = run_error(&training, run);
        if (!(relative < TOLERANCE))
            print_error("%s: run %zu: relative error %.2e\n", name, i, relative);
        worst = fmax(worst, relative);
    }
    worst = fmax(worst, state_error(&training, json_object_get(c, "after"), name));
    json_object_foreach(json_object_get(c, "counters"), counter, value)
    {
        if ((double)training_number(training.program, counter) != json_number_value(value))
            fail_msg("%s: %s is %g", name, counter, (double)training_number(training.program, counter));
    }
    training_end(&training);
    return worst;
}

TEST(test_updates_agree_with_pytorch)
{
    golden_compare_cases("optimizers.json", 20, TOLERANCE, case_error, NULL);
}

TEST(test_muon_agrees_with_pytorch_and_timm)
{
    golden_compare_cases("muon.json", 5, TOLERANCE, case_error, NULL);
}

TEST(test_sgdw_and_nadam_agree_with_timm_and_pytorch)
{
    golden_compare_cases("optimizers_later.json", 8, TOLERANCE, case_error, NULL);
}

TEST(test_sam_agrees_with_composers_rule_in_pytorch)
{
    golden_compare_cases("sam.json", 11, TOLERANCE, case_error, NULL);
}

/* ---- what a checkpoint carries ---- */

/* Returns every value of the State, *count_ret in one array that the caller frees. */
static float *state_values(const Training *training, size_t *count_ret)
{
    FshError error = {0};
    size_t total = 0;
    float *all = NULL;
    for (size_t i = 0; i < graph_tensor_count(training->graph); i++) {
        const Tensor *tensor = graph_tensor(training->graph, (TensorId)i);
        const size_t count = (size_t)tensor_count(tensor);
        if (!state_holds(tensor->role))
            continue;
        all = realloc(all, (total + count) * sizeof *all);
        assert_non_null(all);
        assert_ok(state_read(training->state, tensor->name, all + total, count, &error), &error);
        total += count;
    }
    *count_ret = total;
    return all;
}

static void write_state(const Training *training, const float *values)
{
    FshError error = {0};
    for (size_t i = 0; i < graph_tensor_count(training->graph); i++) {
        const Tensor *tensor = graph_tensor(training->graph, (TensorId)i);
        const size_t count = (size_t)tensor_count(tensor);
        if (!state_holds(tensor->role))
            continue;
        assert_ok(state_write(training->state, tensor->name, values, count, &error), &error);
        values += count;
    }
}

static Optimizer everything(OptimizerKind kind)
{
    return (Optimizer){.kind = kind,
                       .momentum = 0.9,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .epsilon = 1e-6,
                       .trust_coefficient = 0.01,
                       .weight_decay = 0.01,
                       .muon = {.rest = OPTIMIZER_ADAMW,
                                .rest_rate = 0.5,
                                .momentum = 0.9,
                                .weight_decay = 0.1,
                                .steps = 5,
                                .nesterov = true,
                                .renorm = true},
                       .clip_norm = 0.3,
                       .sam_rho = 0.2,
                       .lookahead_steps = 2,
                       .lookahead_alpha = 0.5,
                       .accumulation_steps = 2,
                       .ema_decay = 0.9,
                       .ema_warmup = true,
                       .loss_scaling = true,
                       .scale_init = 1024,
                       .scale_growth = 2,
                       .scale_backoff = 0.5,
                       .scale_interval = 2};
}

/* Makes runs until there were so many; those of every second update with sam. */
static void run_until(Training *training, uint64_t runs)
{
    enum { OVERFLOWING = 3 };
    while (training->runs < runs) {
        training->perturbs = training->runs % 4 >= 2;
        training_run(training, 0.01, training->runs == OVERFLOWING);
    }
}

TEST(test_a_run_goes_on_from_its_state_bit_for_bit)
{
    enum { RUNS = 9 };
    for (int kind = 0; kind < OPTIMIZER_KIND_COUNT; kind++) {
        json_t *document = golden_load(kind == OPTIMIZER_MUON ? "muon.json" : "optimizers.json");
        const Optimizer optimizer = everything((OptimizerKind)kind);
        Training whole = training_start(document, &optimizer, 2);
        size_t count;
        for (int stop = 1; stop < RUNS; stop += 3) { /* in the middle of an accumulation, and after one */
            Training first = training_start(document, &optimizer, 2);
            run_until(&first, (uint64_t)stop);
            float *saved = state_values(&first, &count);
            Training second = training_start(document, &optimizer, 2);
            write_state(&second, saved);
            second.runs = first.runs;
            run_until(&second, RUNS);
            run_until(&whole, RUNS);
            float *wanted = state_values(&whole, &count), *got = state_values(&second, &count);
            assert_memory_equal(got, wanted, count * sizeof *got);
            free(saved);
            free(wanted);
            free(got);
            training_end(&first);
            training_end(&second);
        }
        training_end(&whole);
        json_decref(document);
    }
}

TEST(test_a_loss_that_is_no_number_changes_nothing)
{
    enum { FIRST_LAYER = 17 * 3 * 3 * 3 }; /* numbers of conv1.weight */
    json_t *document = golden_load("optimizers.json");
    const Optimizer optimizers[] = {
        {.kind = OPTIMIZER_SGD, .momentum = 0.9},
        {.kind = OPTIMIZER_SGD, .clip_norm = 1},
        {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .accumulation_steps = 2}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        Training training = training_start(document, &optimizers[i], 2);
        size_t count, count_after;
        float *before = state_values(&training, &count);
        training_run(&training, 0.1, true);
        float *after = state_values(&training, &count_after);
        assert_true(training_number(training.program, "updated") == 0);
        assert_true(isnan(training_number(training.program, "gradient_norm")));
        assert_int_equal(count, count_after);
        /* The running statistics of the norm have seen the batch; the first layer's weights come first. */
        assert_memory_equal(before, after, FIRST_LAYER * sizeof *before);
        assert_true(training_number(training.program, "optimizer.step") == 0);
        free(before);
        free(after);
        training_end(&training);
    }
    json_decref(document);
}

/* ---- sam ---- */

/* Asserts that the State's numbers of this name are the given ones, or that they are not. */
static void assert_state(const Training *training, const char *name, const float *wanted, size_t count,
                         bool same)
{
    FshError error = {0};
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_ok(state_read(training->state, name, values, count, &error), &error);
    assert_true((memcmp(values, wanted, count * sizeof *values) == 0) == same);
    free(values);
}

/* A loss that is no number, in the first run as in the second, leaves weights to the bit; the statistics of
 * the norm move once. */
TEST(test_sam_puts_weights_back_where_the_loss_is_no_number)
{
    enum { CONV = 17 * 3 * 3 * 3, CHANNELS = 17 };
    json_t *document = golden_load("sam.json");
    const Optimizer plain = {.kind = OPTIMIZER_SGD, .momentum = 0.9};
    Optimizer optimizer = plain;
    float weights[CONV], once[CHANNELS];
    FshError error = {0};
    optimizer.sam_rho = 0.5;
    Training training = training_start(document, &optimizer, 2), other = training_start(document, &plain, 2);
    assert_ok(state_read(training.state, "conv1.weight", weights, CONV, &error), &error);
    training.perturbs = true;
    training_run(&training, 0.1, true);
    training_run(&other, 0.1, true);
    assert_true(training_number(training.program, "updated") == 0);
    assert_true(training_number(training.program, "optimizer.perturbed") == 0);
    assert_state(&training, "conv1.weight", weights, CONV, true);
    assert_ok(state_read(other.state, "bn.running_mean", once, CHANNELS, &error), &error);
    assert_state(&training, "bn.running_mean", once, CHANNELS, true);
    training_end(&training);
    training_end(&other);
    json_decref(document);
}

TEST(test_a_perturbed_run_leaves_what_it_started_from_beside_the_weights)
{
    enum { CONV = 17 * 3 * 3 * 3 };
    json_t *document = golden_load("sam.json");
    const Optimizer optimizer = {.kind = OPTIMIZER_SGD, .sam_rho = 0.5}, plain = {.kind = OPTIMIZER_SGD};
    Training training = training_start(document, &optimizer, 2), other = training_start(document, &plain, 2);
    float weights[CONV];
    FshError error = {0};
    training_run(&training, 0.1, false);
    assert_ok(state_read(training.state, "conv1.weight", weights, CONV, &error), &error);
    assert_ok(program_perturb(training.program, &error), &error);
    assert_true(training_number(training.program, "optimizer.perturbed") == 1);
    assert_state(&training, "conv1.weight", weights, CONV, false);
    assert_state(&training, "conv1.weight.unperturbed", weights, CONV, true);
    assert_int_equal(program_perturb(other.program, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "program: its update perturbs nothing (Optimizer.sam_rho)");
    training_end(&training);
    training_end(&other);
    json_decref(document);
}

/* ---- threads ---- */

/* Starts a linear layer of one sample whose output gradient is an input, so that what reaches the update does
 * not depend on threads. The inputs are "x", "dy" and "learning_rate". */
static Training linear_start(int threads, const Optimizer *wanted, int64_t in, int64_t out)
{
    FshError error = {0};
    Optimizer optimizer = *wanted;
    Training training = {.backend = training_backend(threads), .graph = graph_new()};
    Graph *graph = training.graph;
    assert_non_null(graph);
    TensorId input = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){1, in});
    TensorId output = graph_linear(graph, "fc", input, out, true);
    if (optimizer.loss_scaling)
        graph_loss_scale(graph);
    const size_t forward_count = graph_node_count(graph);
    graph_contribute_gradient(graph, output, graph_input(graph, "dy", DATA_F32, 2, (int64_t[]){1, out}));
    graph_append_backward_pass(graph, forward_count);
    optimizer.learning_rate = graph_input(graph, "learning_rate", DATA_F32, 1, (int64_t[]){1});
    graph_update(graph, &optimizer);
    assert_ok(graph_check(graph, &error), &error);
    assert_ok(state_new(&training.state, training.backend, graph, &error), &error);
    assert_ok(state_initialize(training.state, 5, &error), &error);
    assert_ok(program_new(&training.program, training.state, graph, &error), &error);
    return training;
}

static float *updated_weights(int threads, OptimizerKind kind, size_t *count_ret)
{
    enum { IN = 300, OUT = 70 };
    float x[IN], dy[OUT];
    const float rate = 0.1F;
    double uniform[IN];
    FshError error = {0};
    Optimizer optimizer = everything(kind);
    optimizer.loss_scaling = false;
    Training training = linear_start(threads, &optimizer, IN, OUT);
    training_write(training.program, "learning_rate", &rate, sizeof rate);
    for (int run = 0; run < 5; run++) {
        char name[16];
        (void)snprintf(name, sizeof name, "run%d", run);
        golden_uniform(name, uniform, IN);
        for (int i = 0; i < IN; i++)
            x[i] = (float)uniform[i];
        for (int i = 0; i < OUT; i++)
            dy[i] = (float)uniform[IN - 1 - i];
        training_write(training.program, "x", x, sizeof x);
        training_write(training.program, "dy", dy, sizeof dy);
        if (run % 2)
            assert_ok(program_perturb(training.program, &error), &error);
        assert_ok(program_run(training.program, &error), &error);
    }
    float *values = state_values(&training, count_ret);
    training_end(&training);
    return values;
}

TEST(test_threads_do_not_change_a_bit)
{
    for (int kind = 0; kind < OPTIMIZER_KIND_COUNT; kind++) {
        size_t count;
        float *one = updated_weights(1, (OptimizerKind)kind, &count);
        for (int threads = 2; threads < 6; threads++) {
            float *many = updated_weights(threads, (OptimizerKind)kind, &count);
            assert_memory_equal(one, many, count * sizeof *one);
            free(many);
        }
        free(one);
    }
}

/* ---- mistakes ---- */

static void assert_refused(Optimizer optimizer, bool scales, FshStatus status, const char *message)
{
    FshError error = {0};
    Graph *graph = graph_new();
    TensorId x = graph_input(graph, "x", DATA_F32, 2, (int64_t[]){2, 3});
    TensorId labels = graph_input(graph, "label", DATA_I64, 1, (int64_t[]){2});
    TensorId loss = graph_softmax_cross_entropy(graph, graph_linear(graph, "fc", x, 4, true), labels,
                                                TENSOR_NONE, TENSOR_NONE, 0);
    optimizer.learning_rate = graph_input(graph, "rate", DATA_F32, 1, (int64_t[]){1});
    if (scales)
        graph_loss_scale(graph);
    graph_differentiate(graph, loss);
    graph_update(graph, &optimizer);
    assert_int_equal(graph_check(graph, &error), status);
    assert_string_equal(error.message, message);
    graph_free(&graph);
}

TEST(test_numbers_that_make_no_sense_are_refused)
{
    assert_refused((Optimizer){.nesterov = true}, false, FSH_ERR_USAGE,
                   "sgd: momentum 0; it must be at least 0 and below 1 (above 0 for nesterov)");
    assert_refused((Optimizer){.kind = OPTIMIZER_LARS, .momentum = 1}, false, FSH_ERR_USAGE,
                   "lars: momentum 1; it must be at least 0 and below 1 (above 0 for nesterov)");
    assert_refused((Optimizer){.kind = OPTIMIZER_LARS, .momentum = 0.9}, false, FSH_ERR_USAGE,
                   "lars: trust coefficient 0; it must be above 0");
    assert_refused(
        (Optimizer){.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 1, .epsilon = 1e-8}, false, FSH_ERR_USAGE,
        "adam: betas 0.9 and 1, epsilon 1e-08; betas must be at least 0 and below 1, epsilon above 0");
    assert_refused((Optimizer){.clip_norm = -1}, false, FSH_ERR_USAGE,
                   "sgd: weight decay 0, clipping at -1, accumulation over 0 runs; none may be below 0");
    assert_refused((Optimizer){.lookahead_steps = 5}, false, FSH_ERR_USAGE,
                   "lookahead: every 5 steps by 0; the share must be above 0 and at most 1");
    assert_refused((Optimizer){.sam_rho = -0.1}, false, FSH_ERR_USAGE,
                   "sam: rho -0.1; it must be at least 0");
    assert_refused((Optimizer){.ema_decay = 1}, false, FSH_ERR_USAGE,
                   "ema: decay 1; it must be at least 0 and below 1");
    Optimizer scaled = everything(OPTIMIZER_SGD);
    assert_refused(scaled, false, FSH_ERR_USAGE,
                   "sgd: loss scaling needs graph_loss_scale before graph_differentiate");
    scaled.loss_scaling = false;
    assert_refused(scaled, true, FSH_ERR_USAGE,
                   "sgd: gradients are scaled, and the optimizer does not know it");
    scaled.loss_scaling = true;
    scaled.scale_backoff = 1;
    assert_refused(scaled, true, FSH_ERR_USAGE,
                   "loss scaling: from 1024, times 2 after 2 updates, times 1 where one overflows; the first "
                   "must be above "
                   "0, growth and interval at least 1, backoff between 0 and 1");
}

TEST(test_only_the_networks_tensors_are_weights)
{
    const Optimizer optimizer = everything(OPTIMIZER_ADAM);
    Graph *graph = training_graph((int64_t[]){2, 6, 5, 3}, &optimizer, NULL);
    int weights = 0, counters = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        weights += tensor_is_weight(tensor);
        counters += tensor->role == TENSOR_BUFFER && !tensor_is_weight(tensor);
        if (tensor->role == TENSOR_OPTIMIZER)
            assert_string_equal(strrchr(tensor->name, '.') + 1,
                                optimizer_slot_names[graph_optimizer_slot(graph, (TensorId)i)]);
    }
    assert_int_equal(weights, 5 + 2);
    assert_int_equal(counters, 5);
    graph_free(&graph);
}

/* ---- timing: update_test time ---- */

enum { TIMED_EDGE = 3420, TIMED_RUNS = 40 }; /* 3420 x 3420 + 3420: resnet18's 11.7 million parameters */

typedef struct Stream {
    const CpuKernels *kernels;
    float *a, *b;
} Stream;

static void stream_part(void *context, int part, int64_t begin, int64_t end)
{
    const Stream *stream = context;
    (void)part;
    stream->kernels->add(stream->a + begin, stream->b + begin, stream->a + begin, end - begin);
}

/* Returns the seconds of this thread, which other programs on the machine do not touch. */
static double processor_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the seconds of the update's node on one thread; *stream_seconds_ret is that of a += b on as many
 * values, run in turn with it. Both are the best of some runs. */
static double update_seconds(const Optimizer *optimizer, double *stream_seconds_ret)
{
    FshError error = {0};
    Training training = linear_start(1, optimizer, TIMED_EDGE, TIMED_EDGE);
    const CpuProgram *program = (const CpuProgram *)training.program;
    CpuStep *update = &program->steps[graph_node_count(training.graph) - 1];
    const int64_t count = (int64_t)TIMED_EDGE * (TIMED_EDGE + 1);
    const float rate = 1e-3F;
    static float ones[TIMED_EDGE];
    Stream stream = {program->backend->kernels, cpu_memory_new((uint64_t)count * 4),
                     cpu_memory_new((uint64_t)count * 4)};
    double best = INFINITY;
    assert_true(stream.a && stream.b);
    memset(stream.a, 0, (size_t)count * 4); /* else all its pages are one of zeros */
    memset(stream.b, 0, (size_t)count * 4);
    *stream_seconds_ret = INFINITY;
    for (int i = 0; i < TIMED_EDGE; i++)
        ones[i] = 1;
    training_write(training.program, "x", ones, sizeof ones);
    training_write(training.program, "dy", ones, sizeof ones);
    training_write(training.program, "learning_rate", &rate, sizeof rate);
    assert_ok(program_run(training.program, &error), &error);
    for (int i = 0; i < TIMED_RUNS; i++) {
        const double start = processor_seconds();
        assert_ok(update->run(update, &error), &error);
        const double middle = processor_seconds();
        stream_part(&stream, 0, 0, count);
        *stream_seconds_ret = fmin(*stream_seconds_ret, processor_seconds() - middle);
        if (training_number(training.program, "updated") == 1)
            best = fmin(best, middle - start);
    }
    cpu_memory_free(stream.a);
    cpu_memory_free(stream.b);
    training_end(&training);
    return best;
}

static void time_updates(void)
{
    const double parameters = (double)TIMED_EDGE * (TIMED_EDGE + 1);
    const Optimizer sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-4};
    const Optimizer adam = {
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    struct {
        const char *name;
        Optimizer optimizer;
        int bytes; /* for a parameter: cpu_update.c */
    } cases[] = {
        {"sgd", sgd, 20},          {"sgd, clipped", sgd, 24},
        {"sgd, average", sgd, 28}, {"sgd, accumulation", sgd, 24},
        {"adamw", adam, 28},       {"lars", sgd, 28},
        {"lamb", adam, 40},        {"adamw, scaled, clipped, average", adam, 40},
        {"nadamw", adam, 28},      {"radam", adam, 28},
    };
    cases[1].optimizer.clip_norm = 1;
    cases[2].optimizer.ema_decay = 0.999;
    cases[3].optimizer.accumulation_steps = 2;
    cases[5].optimizer.kind = OPTIMIZER_LARS;
    cases[5].optimizer.trust_coefficient = 0.001;
    cases[6].optimizer.kind = OPTIMIZER_LAMB;
    cases[8].optimizer.kind = OPTIMIZER_NADAMW;
    cases[9].optimizer.kind = OPTIMIZER_RADAM;
    cases[7].optimizer.clip_norm = 1;
    cases[7].optimizer.ema_decay = 0.999;
    cases[7].optimizer.loss_scaling = true;
    cases[7].optimizer.scale_init = cases[7].optimizer.scale_growth = 2;
    cases[7].optimizer.scale_backoff = 0.5;
    cases[7].optimizer.scale_interval = 2000;
    print_message("%.1f M parameters, one thread; floor: bytes at the rate of a += b in the same run\n",
                  parameters / 1e6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double stream_seconds; /* of 12 bytes for a value */
        const double seconds = update_seconds(&cases[i].optimizer, &stream_seconds);
        const double floor_seconds = stream_seconds * cases[i].bytes / 12,
                     bandwidth = 12 * parameters / stream_seconds;
        print_message("  %-34s %7.2f ms  floor %7.2f ms (%d B at %5.1f GB/s)  %.2f of it\n", cases[i].name,
                      1e3 * seconds, 1e3 * floor_seconds, cases[i].bytes, bandwidth / 1e9,
                      seconds / floor_seconds);
    }
}

int test_program_arguments(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "time") != 0)
        return test_take_pattern(argc, argv);
    time_updates();
    return 0;
}
