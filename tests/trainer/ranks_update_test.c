/* Ranks that accumulate gradients, each in a process of its own: runs before the last exchange nothing, the
 * last takes the mean of the sums, and a loss that is no number on one rank is known to all.
 * usage: ranks_update_test [cuda]     on two GPUs; ends with 77 where there are fewer */
#include "tests/support/support.h"
#include "tests/trainer/rank_job.h"
#include "trainer/launch_gpus.h"
#include "trainer/session/ranks_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/progress.h"

enum { RANKS = RANK_JOBS, ACCUMULATED = 3, WEIGHTS = 5 * 3 * 3 * 3, PATIENCE_SECONDS = 60 };

/* What ranks leave for the test, in memory that all share. */
typedef struct Told {
    float loss[ACCUMULATED], norm[ACCUMULATED], weights[WEIGHTS], micro, step;
} Told;
typedef struct Shared {
    volatile int
        inner_runs;       /* that rank 1 has made before rank 0 makes its first; with sam: perturbing ones */
    Told told[RANKS + 1]; /* the last: of one process alone */
} Shared;

static const Optimizer accumulates = {.accumulation_steps = ACCUMULATED};
static const char *device = "cpu";
static float bound = 1e-6F; /* for weights and losses of ranks and of one process */

static float number(const Job *job, const char *name)
{
    FshError error = {0};
    float value = 0;
    check(program_read(job->program, graph_find(job->graph, name), &value, sizeof value, &error), &error);
    return value;
}

/* Makes run k and tells its loss and the gradient's norm. */
static void run(const Job *job, int k, Told *told)
{
    FshError error = {0};
    check(program_run(job->program, &error), &error);
    told->loss[k] = number(job, "loss");
    told->norm[k] = number(job, "gradient_norm");
}

static void tell_state(const Job *job, Told *told)
{
    FshError error = {0};
    check(state_read(job->state, "conv.weight", told->weights, WEIGHTS, &error), &error);
    check(state_read(job->state, "optimizer.micro", &told->micro, 1, &error), &error);
    check(state_read(job->state, "optimizer.step", &told->step, 1, &error), &error);
}

typedef void (*RankWork)(int rank, Shared *shared);

/* Runs the work in processes of their own, ranks 0 to count - 1, in shared memory that the caller unmaps. */
static Shared *run_ranks(int count, RankWork work)
{
    pid_t children[RANKS + 1];
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int rank = 0; rank < count; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            (void)alarm(PATIENCE_SECONDS); /* a rank that waits for another for ever */
            work(rank, shared);
            _exit(0);
        }
    }
    for (int rank = 0; rank < count; rank++) {
        int status = 1;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        if (status)
            fail_msg("rank %d ended with status 0x%x", rank, (unsigned)status);
    }
    return shared;
}

/* Ranks 0 and 1 take two samples in each run; process 2, alone, takes four. Rank 0 begins when rank 1 has
 * made all runs but the last. */
static void accumulate(int rank, Shared *shared)
{
    Told *told = &shared->told[rank];
    const int64_t batch = rank < RANKS ? 2 : 4;
    Job job = job_open(device, rank, "accumulate", batch, &accumulates, NULL);
    while (rank == 0 && shared->inner_runs < ACCUMULATED - 1)
        (void)usleep(1000);
    for (int k = 0; k < ACCUMULATED; k++) {
        write_samples(&job, k * 4 + (rank == 1 ? 2 : 0), true);
        run(&job, k, told);
        if (rank == 1)
            shared->inner_runs = k + 1;
    }
    tell_state(&job, told);
    job_close(&job);
}

TEST(test_runs_that_accumulate_wait_for_no_rank_and_the_update_is_that_of_one)
{
    Shared *shared = run_ranks(RANKS + 1, accumulate);
    const Told *first = &shared->told[0], *second = &shared->told[1], *alone = &shared->told[2];
    assert_memory_equal(first->weights, second->weights, sizeof first->weights);
    for (int k = 0; k < ACCUMULATED; k++) {
        const bool last = k == ACCUMULATED - 1;
        assert_true(last || first->loss[k] != second->loss[k]); /* each its own */
        assert_true(!last || first->loss[k] == second->loss[k]);
        assert_true(fabsf((first->loss[k] + second->loss[k]) / 2 - alone->loss[k]) < bound);
    }
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabsf(first->weights[i] - alone->weights[i]) < bound);
    assert_true(first->step == 1 && first->micro == 0);
    assert_true(fabsf(first->norm[ACCUMULATED - 1] - alone->norm[ACCUMULATED - 1]) < 10 * bound);
    (void)munmap(shared, sizeof *shared);
}

/* Ranks 0 and 1 perturb by two samples each, rank 0 when rank 1 has; process 2 accumulates over two runs,
 * which perturb by the same samples. */
static void perturb(int rank, Shared *shared)
{
    enum { UPDATES = 2 };
    Told *told = &shared->told[rank];
    FshError error = {0};
    const bool alone = rank == RANKS;
    const Optimizer update = {.sam_rho = 0.5, .accumulation_steps = alone ? RANKS : 1};
    Job job = job_open(device, rank, "perturb", 2, &update, NULL);
    while (rank == 0 && shared->inner_runs < 1)
        (void)usleep(1000);
    for (int k = 0; k < UPDATES; k++)
        for (int part = alone ? 0 : rank; part < (alone ? RANKS : rank + 1); part++) {
            write_samples(&job, k * 4 + part * 2, true);
            check(program_perturb(job.program, &error), &error);
            shared->inner_runs += rank == 1;
            run(&job, k, told);
        }
    check(state_read(job.state, "conv.weight", told->weights, WEIGHTS, &error), &error);
    check(state_read(job.state, "optimizer.step", &told->step, 1, &error), &error);
    job_close(&job);
}

TEST(test_ranks_perturb_by_their_own_images_as_runs_that_accumulate_do)
{
    Shared *shared = run_ranks(RANKS + 1, perturb);
    const Told *first = &shared->told[0], *second = &shared->told[1], *alone = &shared->told[2];
    assert_memory_equal(first->weights, second->weights, sizeof first->weights);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabsf(first->weights[i] - alone->weights[i]) < bound);
    assert_true(first->step == 2 && alone->step == 2);
    (void)munmap(shared, sizeof *shared);
}

/* The first run of rank 1 has no loss. */
static void lose_number(int rank, Shared *shared)
{
    Told *told = &shared->told[rank];
    Job job = job_open(device, rank, "number", 2, &accumulates, NULL);
    for (int k = 0; k < ACCUMULATED; k++) {
        write_samples(&job, k, rank != 1 || k > 0);
        run(&job, k, told);
    }
    tell_state(&job, told);
    job_close(&job);
}

TEST(test_a_loss_that_is_no_number_is_known_to_all_ranks_at_the_update)
{
    Shared *shared = run_ranks(RANKS, lose_number);
    for (int rank = 0; rank < RANKS; rank++) {
        const Told *told = &shared->told[rank];
        for (int k = 0; k < ACCUMULATED - 1; k++)
            assert_true(told->norm[k] == 0); /* nothing to stop for yet */
        assert_true(isnan(told->loss[ACCUMULATED - 1]) && isnan(told->norm[ACCUMULATED - 1]));
        assert_true(told->step == 0);
    }
    assert_true(isnan(shared->told[1].loss[0]) && isfinite(shared->told[0].loss[0]));
    assert_memory_equal(shared->told[0].weights, shared->told[1].weights, sizeof shared->told[0].weights);
    (void)munmap(shared, sizeof *shared);
}

/* Both ranks go on from rank 0's state, as from a checkpoint that was made between two updates. */
static void go_on(int rank, Shared *shared)
{
    Told *told = &shared->told[rank];
    FshError error = {0};
    const int64_t batch = rank < RANKS ? 2 : 4;
    float sum[WEIGHTS] = {0};
    Job job = job_open(device, rank, "go-on", batch, &accumulates, NULL);
    for (int k = 0; k < ACCUMULATED; k++) {
        write_samples(&job, k * 4 + (rank == 1 ? 2 : 0), true);
        if (k == 1) {
            check(ranks_share_accumulated(job.communicator, job.state, job.graph, &error), &error);
            check(state_read(job.state, "conv.weight.accumulated", sum, WEIGHTS, &error), &error);
            if (rank < RANKS)
                check(communicator_broadcast(job.communicator, 0, sum, sizeof sum, &error), &error);
            check(state_write(job.state, "conv.weight.accumulated", sum, WEIGHTS, &error), &error);
        }
        run(&job, k, told);
    }
    tell_state(&job, told);
    job_close(&job);
}

TEST(test_what_ranks_have_accumulated_is_saved_with_one_of_them)
{
    Shared *shared = run_ranks(RANKS + 1, go_on);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabsf(shared->told[0].weights[i] - shared->told[2].weights[i]) < bound);
    (void)munmap(shared, sizeof *shared);
}

/* The calls on the state of rank 1 until one fails. */
static int calls_left;
static const BackendInterface *device_interface;

static FshStatus fail_in_time(FshError *error)
{
    return calls_left-- == 0 ? fsh_error_set(error, FSH_ERR_NO_SPACE, "that call") : FSH_OK;
}

static FshStatus read_in_time(State *state, const char *name, float *values, size_t count, FshError *error)
{
    FshStatus status = fail_in_time(error);
    return status ? status : device_interface->state_read(state, name, values, count, error);
}

static FshStatus write_in_time(State *state, const char *name, const float *values, size_t count,
                               FshError *error)
{
    FshStatus status = fail_in_time(error);
    return status ? status : device_interface->state_write(state, name, values, count, error);
}

static FshStatus compare_weights(Communicator *communicator, State *state, const Graph *graph,
                                 FshError *error)
{
    return ranks_check_weights(communicator, state, graph, "", error);
}

/* Makes the exchange with rank 1 failing at call `calls`. Both ranks must hear of it, and be at the same
 * place after it. */
static void fail_at(const Job *job, int rank, int calls,
                    FshStatus (*exchange)(Communicator *, State *, const Graph *, FshError *))
{
    FshError error = {0};
    uint64_t sum = (uint64_t)rank + 1;
    calls_left = rank == 1 ? calls : -1;
    const FshStatus status = exchange(job->communicator, job->state, job->graph, &error);
    calls_left = -1;
    check(communicator_sum_u64(job->communicator, &sum, 1, &error), &error);
    if (status == (rank == 1 ? FSH_ERR_NO_SPACE : FSH_ERR_PEER) && sum == 3)
        return;
    (void)fprintf(stderr, "rank %d, call %d: status %d, sum %d\n", rank, calls, (int)status, (int)sum);
    _exit(3);
}

/* Rank 1 fails at each call on its state: reads and writes of the counter and of the sum. */
static void fail_alone(int rank, Shared *shared)
{
    FshError error = {0};
    const float micro = 1;
    Job job = job_open(device, rank, "alone", 2, &accumulates, NULL);
    device_interface = job.backend->interface;
    BackendInterface in_time = *device_interface;
    in_time.state_read = read_in_time;
    in_time.state_write = write_in_time;
    calls_left = -1;
    job.backend->interface = &in_time;
    (void)shared;
    check(state_write(job.state, "optimizer.micro", &micro, 1, &error), &error);
    for (int calls = 0; calls < 4; calls++)
        fail_at(&job, rank, calls, ranks_share_accumulated);
    fail_at(&job, rank, 0, compare_weights);
    check(ranks_share_accumulated(job.communicator, job.state, job.graph, &error), &error);
    job.backend->interface = device_interface;
    job_close(&job);
}

TEST(test_a_rank_that_fails_between_exchanges_leaves_all_at_the_same_place)
{
    (void)munmap(run_ranks(RANKS, fail_alone), sizeof(Shared));
}

int test_program_arguments(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "cuda") != 0)
        return test_take_pattern(argc, argv);
    device = argv[1];
    bound = 2e-6F;
    return TEST_RUN;
}

int test_program_begin(void)
{
    FshError error = {0};
    int count = RANKS;
    FshStatus status = strcmp(device, "cpu") == 0 ? FSH_OK : launch_count_gpus(NULL, &count, &error);
    if (!status && count >= RANKS)
        return TEST_RUN;
    (void)printf("left out: two GPUs are wanted, %d are here%s%s\n", status ? 0 : count, status ? ": " : "",
                 status ? error.message : "");
    return TEST_SKIP_ALL;
}
