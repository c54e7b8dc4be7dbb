/* Batches and results of the CUDA backend while several runs are under way: nothing overtakes, each run has
 * its own. Usage: cuda_support.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/cuda_support.h"

enum { BATCH = 8, SIZE = 28, CLASSES = 10, RUNS = 12, IMAGE_BYTES = BATCH * SIZE * SIZE };

typedef struct Job {
    Graph *graph;
    State *state;
    Program *program;
} Job;

static void check(FshStatus status, const FshError *error)
{
    if (status)
        fail_msg("%s", error->message);
}

static Job open_job(void)
{
    Job job = {.graph = model("conv8", BATCH, SIZE, 1, true)};
    FshError error = {0};
    check(state_new(&job.state, backends[CUDA], job.graph, &error), &error);
    check(state_initialize(job.state, 5, &error), &error);
    check(program_new(&job.program, job.state, job.graph, &error), &error);
    return job;
}

static void close_job(Job *job)
{
    program_free(&job->program);
    state_free(&job->state);
    graph_free(&job->graph);
}

/* Writes a batch that belongs to this run alone, from memory that is overwritten at once. */
static void write_run(const Job *job, uint64_t run)
{
    static uint8_t image[IMAGE_BYTES];
    int64_t label[BATCH];
    const float rate = 0.001F * (float)(1 + run % 5);
    Random random;
    FshError error = {0};
    random_start(&random, 11, run);
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)random_below(&random, 256);
    for (size_t i = 0; i < BATCH; i++)
        label[i] = (int64_t)random_below(&random, CLASSES);
    const struct {
        const char *name;
        const void *values;
        size_t bytes;
    } inputs[] = {{"image", image, sizeof image},
                  {"label", label, sizeof label},
                  {"learning_rate", &rate, sizeof rate}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        check(program_write(job->program, graph_find(job->graph, inputs[i].name), inputs[i].values,
                            inputs[i].bytes, &error),
              &error);
}

/* Stores the loss and logits of each run, when the device is waited for after each. */
static void run_one_by_one(float losses[RUNS], float logits[RUNS][BATCH * CLASSES])
{
    Job job = open_job();
    FshError error = {0};
    for (uint64_t run = 0; run < RUNS; run++) {
        write_run(&job, run);
        check(program_run(job.program, &error), &error);
        check(program_read(job.program, graph_find(job.graph, "loss"), &losses[run], sizeof losses[run],
                           &error),
              &error);
        check(program_read(job.program, graph_find(job.graph, "logits"), logits[run], sizeof logits[run],
                           &error),
              &error);
    }
    close_job(&job);
}

CUDA_TEST(test_runs_ahead_and_runs_one_by_one_agree)
{
    static float losses[RUNS], logits[RUNS][BATCH * CLASSES];
    run_one_by_one(losses, logits);
    assert_true(losses[0] != losses[1]);
    assert_true(backend_runs_ahead(backends[CUDA]));
    for (size_t depth = 1; depth <= PROGRAM_DEPTH_MAX; depth += 3) {
        Job job = open_job();
        FshError error = {0};
        const TensorId wanted[2] = {graph_find(job.graph, "logits"), graph_find(job.graph, "loss")};
        const float *values[2];
        check(program_results(job.program, wanted, 2, depth, &error), &error);
        for (uint64_t run = 0; run < RUNS + depth - 1; run++) {
            if (run < RUNS) {
                write_run(&job, run);
                check(program_run(job.program, &error), &error);
            }
            if (run + 1 < depth)
                continue;
            const uint64_t oldest = run + 1 - depth;
            check(program_collect(job.program, oldest, values, &error), &error);
            assert_memory_equal(values[0], logits[oldest], sizeof logits[oldest]);
            assert_memory_equal(values[1], &losses[oldest], sizeof losses[oldest]);
        }
        close_job(&job);
    }
}

/* What is not written again stays. */
CUDA_TEST(test_inputs_stay_until_they_are_written)
{
    Job job = open_job();
    FshError error = {0};
    const TensorId logits = graph_find(job.graph, "logits");
    const float none = 0;
    float first[BATCH * CLASSES], again[BATCH * CLASSES];
    write_run(&job, 0);
    check(program_write(job.program, graph_find(job.graph, "learning_rate"), &none, sizeof none, &error),
          &error);
    check(program_run(job.program, &error), &error);
    check(program_read(job.program, logits, first, sizeof first, &error), &error);
    for (int run = 0; run < 3; run++) {
        if (run > 0)
            check(program_write(job.program, graph_find(job.graph, "learning_rate"), &none, sizeof none,
                                &error),
                  &error);
        check(program_run(job.program, &error), &error);
        check(program_read(job.program, logits, again, sizeof again, &error), &error);
        assert_memory_equal(again, first, sizeof first);
    }
    close_job(&job);
}

static float *read_weights(const Job *job, const char *name, size_t *count_ret)
{
    FshError error = {0};
    const size_t count = (size_t)tensor_count(graph_tensor(job->graph, graph_find(job->graph, name)));
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    check(state_read(job->state, name, values, count, &error), &error);
    *count_ret = count;
    return values;
}

/* Sets *first and *last to the names of the network's first parameter and of its last, a bias that poisons
 * every logit. */
static void name_parameters(const Job *job, const char **first, const char **last)
{
    *first = NULL;
    for (size_t t = 0; t < graph_tensor_count(job->graph); t++) {
        const Tensor *tensor = graph_tensor(job->graph, (TensorId)t);
        if (tensor->role != TENSOR_PARAMETER)
            continue;
        *first = *first ? *first : tensor->name;
        *last = tensor->name;
    }
}

CUDA_TEST(test_runs_behind_a_loss_that_is_no_number_change_nothing)
{
    Job job = open_job();
    FshError error = {0};
    const TensorId loss = graph_find(job.graph, "loss");
    const float *value = NULL;
    const char *first = NULL, *last = NULL;
    size_t count, last_count;
    name_parameters(&job, &first, &last);
    float *bias = read_weights(&job, last, &last_count), *poisoned = calloc(last_count, sizeof *poisoned);
    assert_non_null(poisoned);
    for (size_t i = 0; i < last_count; i++)
        poisoned[i] = NAN;
    check(program_results(job.program, &loss, 1, 2, &error), &error);
    write_run(&job, 0);
    check(state_write(job.state, last, poisoned, last_count, &error), &error);
    float *before = read_weights(&job, first, &count);
    check(program_run(job.program, &error), &error);
    /* The next one would be fine, and has been enqueued already. */
    check(state_write(job.state, last, bias, last_count, &error), &error);
    check(program_run(job.program, &error), &error);
    for (uint64_t run = 0; run < 2; run++) {
        check(program_collect(job.program, run, &value, &error), &error);
        assert_true(isnan(*value));
    }
    float *after = read_weights(&job, first, &count);
    assert_memory_equal(after, before, count * sizeof *after);
    free(after);
    /* Anew. */
    check(program_results(job.program, &loss, 1, 2, &error), &error);
    check(program_run(job.program, &error), &error);
    check(program_collect(job.program, 0, &value, &error), &error);
    assert_true(isfinite(*value));
    after = read_weights(&job, first, &count);
    assert_memory_not_equal(after, before, count * sizeof *after);
    free(after);
    free(before);
    free(bias);
    free(poisoned);
    close_job(&job);
}
