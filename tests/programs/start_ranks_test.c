/* ftrain --gpus N --device cpu: the program starts its ranks itself, and they train as those that another
 * launcher starts. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cpu.h"

/* Three epochs of five steps for two ranks. */
#define SHORT_RUN "--model", "conv8", "--epochs", "3", "--batch-size", "4", "--seed", "3"
#define TWO_RANKS "--device", "cpu", "--gpus", "2"
/* LeakSanitizer falls over OpenMP's threads, which other tests do without (--jobs 1). */
#define NO_LEAKS "LSAN_OPTIONS=detect_leaks=0"

TEST_IN_FOLDER(test_ranks_on_the_cpu_train_as_those_of_torchrun, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RANKS_TRAINED(2, SHORT_RUN, shards, test_path(folder, "torchrun"));
    RunResult result = TRAIN(0, TWO_RANKS, SHORT_RUN, shards, test_path(folder, "own"));
    assert_contains(result.err, "ranks: 2 (ftrain --gpus)");
    run_result_free(&result);
    assert_same_file(folder, "torchrun", "own", true);
}

/* Each rank has half of the cores; --jobs would say otherwise. */
TEST_IN_FOLDER(test_ranks_on_the_cpu_share_its_cores, folder)
{
    const char *const arguments[] = {TWO_RANKS, SHORT_RUN, make_set(folder, &train_plain),
                                     test_path(folder, "out"), NULL};
    const char *const environment[] = {NO_LEAKS, NULL};
    const RunOptions options = {.environment = environment};
    RunResult result = run_program_arguments(&options, "ftrain", arguments);
    const int cores = cpu_count_available(), share = cores < 2 ? 1 : cores / 2;
    char says[40];
    (void)snprintf(says, sizeof says, ", %d thread%s; loader: ", share, share == 1 ? "" : "s");
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, says);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_ranks_that_a_launcher_has_started_start_none, folder)
{
    const char *const arguments[] = {
        "--gpus", "2", SHORT_RUN, make_set(folder, &train_plain), test_path(folder, "out"), NULL};
    RunningProgram running = start_rank(1, 2, 1, NULL, arguments);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "--gpus: starts processes, and torchrun has started 2 already");
    run_result_free(&result);
}

/* Starts a rank of two as torchrun does, which a launcher has bound to these cores. */
static RunningProgram start_bound(int rank, const char *cores, const char *const *arguments)
{
    char texts[5][40];
    const char *environment[7] = {[5] = NO_LEAKS};
    (void)snprintf(texts[0], sizeof texts[0], "RANK=%d", rank);
    (void)snprintf(texts[1], sizeof texts[1], "WORLD_SIZE=2");
    (void)snprintf(texts[2], sizeof texts[2], "LOCAL_RANK=%d", rank);
    (void)snprintf(texts[3], sizeof texts[3], "LOCAL_WORLD_SIZE=2");
    (void)snprintf(texts[4], sizeof texts[4], "MASTER_PORT=%ld55", (long)getpid());
    for (int i = 0; i < 5; i++)
        environment[i] = texts[i];
    const RunOptions options = {.environment = environment, .timeout_seconds = 120, .cores = cores};
    return run_start(&options, "ftrain", arguments);
}

TEST_IN_FOLDER(test_ranks_that_are_bound_to_cores_keep_them, folder)
{
    if (!isinf(cpu_quota_cores()))
        skip(); /* the quota of this container is less than the cores of the test */
    const char *const arguments[] = {
        "--device", "cpu", SHORT_RUN, make_set(folder, &train_plain), test_path(folder, "out"), NULL};
    RunningProgram running[] = {start_bound(0, "0-3", arguments), start_bound(1, "4-7", arguments)};
    RunResult first = run_wait(&running[0]), second = run_wait(&running[1]);
    if (first.exit_status || second.exit_status)
        fail_msg("exit status %d and %d\n%s", first.exit_status, second.exit_status, second.err);
    assert_contains(first.err, ", 4 threads; loader: 2 threads");
    run_result_free(&first);
    run_result_free(&second);
}

/* ---- one total batch ---- */

TEST_IN_FOLDER(test_a_total_batch_is_shared_by_the_ranks, folder)
{
    const char *shards = make_set(folder, &train_plain);
    TRAINED(TWO_RANKS, SHORT_RUN, "--val-batch-size", "2", shards, test_path(folder, "each"));
    RunResult result =
        TRAIN(0, TWO_RANKS, "--model", "conv8", "--epochs", "3", "--seed", "3", "--batch-size", "8",
              "--val-batch-size", "4", "--parallel", "dp", shards, test_path(folder, "total"));
    assert_contains(result.err, "8 images in a step, which they share (--parallel dp)");
    run_result_free(&result);
    assert_same_file(folder, "each", "total", true);
}

/* 40 samples: one process would take 8, of which three ranks take 2 each. */
TEST_IN_FOLDER(test_a_total_batch_is_chosen_as_for_one_process, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, TWO_RANKS, "--model", "conv8", "--epochs", "1", "--parallel", "dp", shards,
                             test_path(folder, "two"));
    assert_contains(result.err, "8 images in a step, chosen as for one process, which they share (--parallel "
                                "dp), 4 on each;");
    run_result_free(&result);
    result = TRAIN(0, "--device", "cpu", "--gpus", "3", "--model", "conv8", "--epochs", "1", "--parallel",
                   "dp", shards, test_path(folder, "three"));
    assert_contains(result.err, "6 images in a step, chosen as for one process, which they share (--parallel "
                                "dp), 2 on each;");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_what_all_ranks_would_warn_of_is_said_once, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, TWO_RANKS, "--model", "conv8", "--epochs", "1", "--batch-size", "2",
                             "--train-split", "val", "--val-split", "val", shards, test_path(folder, "out"));
    assert_contains(result.err, "warning: split 'val' is trained on and evaluated");
    assert_contains_not(result.err, "rank 1");
    run_result_free(&result);
}

/* ---- what several ranks would do ---- */

/* No rank is started, and none need come. */
TEST_IN_FOLDER(test_what_ranks_would_do_is_told_without_them, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, "--dry-run", "--device", "cpu", "--gpus", "4", "--model", "conv8", "--epochs",
                             "3", "--batch-size", "2", shards);
    assert_contains(result.err, "ranks: 4 (ftrain --gpus), one device each: 8 images in a step, 2 on each;");
    assert_contains(result.out, "3 epochs of 5 steps: 15 steps in all");
    assert_contains(result.out, "a step takes 8 images: 2 on each of 4 ranks");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--json", "--device", "cpu", "--nnodes", "2", "--node-rank", "0",
                   "--master-addr", "127.0.0.1", "--gpus", "2", "--sync-bn", "--model", "conv8",
                   "--batch-size", "2", shards);
    assert_contains(result.err, "ranks: 4 on 2 hosts (ftrain --gpus)");
    assert_contains(result.out, "\"total_batch_size\": 8");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--device", "cpu", "--nnodes", "2", "--node-rank", "1", "--master-addr",
                   "127.0.0.1", "--gpus", "2", "--model", "conv8", "--batch-size", "2", shards);
    assert_string_equal(result.out, "");
    assert_contains(result.err, "rank 2: rank 0 says what the run would do (--dry-run)");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_total_batch_that_cannot_be_shared_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(2, "--batch-size: 8 is the total (--parallel dp), which 3 ranks cannot share alike; 6 and 9 are",
            out, "--device", "cpu", "--gpus", "3", "--parallel", "dp", "--batch-size", "8", shards);
    REFUSED(2, "--val-batch-size: 1 is the total (--parallel dp), and there are 2 ranks; give 2", out,
            TWO_RANKS, "--parallel", "dp", "--batch-size", "8", "--val-batch-size", "1", shards);
    dataset_make(test_path(folder, "pairs"), &train_negatives);
    REFUSED(2, "it is for classes; pairs and masks are evaluated one by one", out, TWO_RANKS, "--parallel",
            "dp", "--batch-size", "8", "--val-batch-size", "3", test_path(folder, "pairs"));
    REFUSED(2, "--parallel: dp shares a batch between ranks, and there is one", out, "--parallel", "dp",
            "--batch-size", "8", shards);
}
