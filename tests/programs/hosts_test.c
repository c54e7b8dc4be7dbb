/* ftrain on two hosts, which are processes of this machine on its loopback address: the same result as on one
 * host, an end for all when one ends, and a clear word on every host where they do not fit together. */
#include "tests/programs/hosts_support.h"
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"

#define UNET RANKS_UNET("3"), "--batch-size", "2"

static const char *make_pairs(TestFolder *folder)
{
    const DatasetSpec pairs = rank_pairs(25, 5);
    return make_set(folder, &pairs);
}

/* ---- the same weights ---- */

TEST_IN_FOLDER(test_two_hosts_of_a_rank_train_as_two_ranks_of_a_host, folder)
{
    const char *shards = make_pairs(folder);
    const Hosts hosts = hosts_on_loopback(2, 1);
    RANKS_TRAINED(2, UNET, shards, test_path(folder, "one"));
    HOSTS_TRAINED(&hosts, UNET, shards, test_path(folder, "two"));
    assert_same_file(folder, "one", "two", true);
}

/* Sums of four are added in another order: (a + b) + (c + d). */
TEST_IN_FOLDER(test_two_hosts_of_two_ranks_train_as_four_ranks_of_a_host, folder)
{
    const char *shards = make_pairs(folder);
    const char *one = test_path(folder, "one"), *two = test_path(folder, "two");
    const Hosts hosts = hosts_on_loopback(2, 2);
    RANKS_TRAINED(4, UNET, shards, one);
    HOSTS_TRAINED(&hosts, UNET, shards, two);
    const double far = weights_distance(test_path(folder, "one/last.safetensors"),
                                        test_path(folder, "two/last.safetensors"));
    if (!(far < 1e-6))
        fail_msg("weights of two hosts are %g from those of one", far);
    for (size_t epoch = 0; epoch < 3; epoch++) {
        const double a = summary_number(one, epoch, "eval_loss"), b = summary_number(two, epoch, "eval_loss");
        assert_true(fabs(a - b) <= 1e-5 * fabs(a));
    }
}

/* Each host decodes for itself, its ranks a share each. */
TEST_IN_FOLDER(test_each_host_decodes_once_for_its_ranks, folder)
{
    const char *shards = make_set(folder, &train_plain);
    Hosts hosts = hosts_on_loopback(2, 2);
    HOSTS_TRAINED(&hosts, "--model", "conv8", "--epochs", "2", "--batch-size", "2", shards,
                  test_path(folder, "records"));
    hosts = hosts_on_loopback(2, 2);
    HOSTS_TRAINED(&hosts, "--model", "conv8", "--epochs", "2", "--batch-size", "2", "--cache", "pixels",
                  shards, test_path(folder, "pixels"));
    assert_same_file(folder, "records", "pixels", true);
}

/* ---- by hand ---- */

/* Starts a process for each host with --nnodes, and its ranks with --gpus, as a person does; or with a
 * PyTorch job's variables. */
static void train_by_hand(TestFolder *folder, bool by_variables)
{
    const char *shards = make_pairs(folder), *out = test_path(folder, "by_hand");
    const Hosts hosts = hosts_on_loopback(2, 2);
    RunningProgram running[2];
    char port[8], rank[8], variables[5][64];
    (void)snprintf(port, sizeof port, "%u", (unsigned)hosts.port + 1);
    HOSTS_TRAINED(&hosts, UNET, shards, test_path(folder, "torchrun"));
    for (int host = 0; host < 2; host++) {
        const char *none[] = {NULL};
        const char *const set[] = {variables[0], variables[1], variables[2],
                                   variables[3], variables[4], NULL};
        (void)snprintf(rank, sizeof rank, "%d", host);
        (void)snprintf(variables[0], sizeof variables[0], "PET_NNODES=2");
        (void)snprintf(variables[1], sizeof variables[1], "PET_NODE_RANK=%d", host);
        (void)snprintf(variables[2], sizeof variables[2], "PET_NPROC_PER_NODE=2");
        (void)snprintf(variables[3], sizeof variables[3], "PET_MASTER_ADDR=localhost");
        (void)snprintf(variables[4], sizeof variables[4], "PET_MASTER_PORT=%s", port);
        running[host] =
            by_variables ? start_on_host(&hosts, host, set, (const char *const[]){UNET, shards, out, NULL})
                         : start_on_host(&hosts, host, none,
                                         (const char *const[]){"--nnodes", "2", "--node-rank", rank,
                                                               "--master-addr", "localhost", "--master-port",
                                                               port, "--gpus", "2", UNET, shards, out, NULL});
    }
    for (int host = 0; host < 2; host++) {
        RunResult result = run_wait(&running[host]);
        if (result.exit_status != 0)
            fail_msg("host %d: exit status %d\n%s", host, result.exit_status, result.err);
        if (host == 0)
            assert_contains(result.err, "ranks: 4 on 2 hosts (ftrain --gpus)");
        run_result_free(&result);
    }
    assert_same_file(folder, "torchrun", "by_hand", true);
}

TEST_IN_FOLDER(test_hosts_by_hand_start_their_ranks_themselves, folder)
{
    train_by_hand(folder, false);
}

TEST_IN_FOLDER(test_hosts_of_a_pytorch_job_start_their_ranks_themselves, folder)
{
    train_by_hand(folder, true);
}

/* Two shells, as PyTorch's examples are started. On a loopback address they are the ranks of one host. */
TEST_IN_FOLDER(test_processes_by_hand_are_ranks, folder)
{
    const char *shards = make_pairs(folder);
    const Hosts hosts = hosts_on_loopback(2, 1);
    RunningProgram running[2];
    char port[8], rank[8];
    (void)snprintf(port, sizeof port, "%u", (unsigned)hosts.port + 1);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(rank, sizeof rank, "%d", i);
        running[i] = start_on_host(&hosts, 0, NULL,
                                   (const char *const[]){"--world-size", "2", "--rank", rank, "--master-addr",
                                                         "127.0.0.1", "--master-port", port, UNET, shards,
                                                         test_path(folder, "out"), NULL});
    }
    expect_well(running, 2);
}

/* ---- ends ---- */

#define LONG_RUN                                                                                             \
    "--model", "conv8", "--batch-size", "2", "--epochs", "100000", "--lr-base", "0.01", "--val-interval",    \
        "100000", "--checkpoint-interval", "3"

/* Starts a run without an end on two hosts of two ranks, and waits until it has trained. */
static void start_long_run(TestFolder *folder, const char *shards, const char *name, RunningProgram *running,
                           const char *timeout)
{
    const Hosts hosts = hosts_on_loopback(2, 2);
    start_hosts(
        &hosts, running,
        (const char *const[]){LONG_RUN, "--timeout", timeout, shards, test_path(folder, "%s", name), NULL});
    assert_true(wait_for_file(test_path(folder, "%s/checkpoint.safetensors", name), 60));
}

/* A plain rank, the first of the second host, the first of all. */
TEST_IN_FOLDER(test_a_rank_that_is_killed_ends_the_run_on_all_hosts, folder)
{
    static const int victims[] = {3, 2, 0};
    const char *shards = make_set(folder, &train_plain);
    for (size_t i = 0; i < 3; i++) {
        const int victim = victims[i];
        RunningProgram running[4];
        char name[40], out[8];
        (void)snprintf(out, sizeof out, "out%d", victim);
        (void)snprintf(name, sizeof name, "rank %d of 4 (host ", victim);
        start_long_run(folder, shards, out, running, "60");
        assert_int_equal(kill(running[victim].process, SIGKILL), 0);
        const double start = progress_now_seconds();
        for (int rank = 0; rank < 4; rank++) {
            RunResult result = run_wait(&running[rank]);
            const bool speaks = rank % 2 == 0 || rank - 1 == victim; /* the first of its host that lives */
            assert_int_equal(result.exit_status, rank == victim ? 128 + SIGKILL : 1);
            if (rank != victim && speaks != (strstr(result.err, name) != NULL))
                fail_msg("rank %d of a run whose rank %d was killed: %s", rank, victim, result.err);
            run_result_free(&result);
        }
        assert_true(progress_now_seconds() - start < 10);
    }
}

TEST_IN_FOLDER(test_a_host_that_is_frozen_is_lost_after_the_timeout, folder)
{
    RunningProgram running[4];
    start_long_run(folder, make_set(folder, &train_plain), "out", running, "2");
    assert_int_equal(kill(running[2].process, SIGSTOP), 0);
    assert_int_equal(kill(running[3].process, SIGSTOP), 0);
    const double start = progress_now_seconds();
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 1);
        if (rank == 0)
            assert_contains(result.err, "rank 2 of 4 (host ");
        if (rank == 0)
            assert_contains(result.err, "has not been heard of for 2 s (--timeout)");
        run_result_free(&result);
    }
    assert_true(progress_now_seconds() - start < 20);
    for (int rank = 2; rank < 4; rank++) {
        run_go_on(&running[rank], SIGCONT);
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 1);
        run_result_free(&result);
    }
}

/* 60 epochs of 5 steps for four ranks: long enough to be disturbed after its first checkpoint. */
#define RICH                                                                                                 \
    "--model", "conv8", "--epochs", "60", "--batch-size", "2", "--opt", "adamw", "--lr", "0.003",            \
        "--val-interval", "20", "--model-ema", "--model-ema-decay", "0.9", "--mixup-alpha", "0.2"

TEST_IN_FOLDER(test_a_signal_to_one_rank_stops_all_hosts_and_the_run_goes_on, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    Hosts hosts = hosts_on_loopback(2, 2);
    RunningProgram running[4];
    HOSTS_TRAINED(&hosts, RICH, shards, test_path(folder, "whole"));
    hosts = hosts_on_loopback(2, 2);
    start_hosts(&hosts, running,
                (const char *const[]){RICH, "--checkpoint-interval", "3", shards, out, NULL});
    assert_true(wait_for_file(test_path(folder, "stopped/checkpoint.safetensors"), 60));
    assert_int_equal(kill(running[3].process, SIGTERM), 0);
    for (int rank = 0; rank < 4; rank++) {
        RunResult result = run_wait(&running[rank]);
        if (result.exit_status != 75)
            fail_msg("rank %d: exit status %d\n%s", rank, result.exit_status, result.err);
        run_result_free(&result);
    }
    hosts = hosts_on_loopback(2, 2);
    HOSTS_TRAINED(&hosts, RICH, "--resume", "auto", shards, out);
    assert_same_file(folder, "whole", "stopped", true);
}

/* Starts ftrain on each of two hosts by hand, with arguments. */
static void start_by_hand(RunningProgram *running, const char *const *arguments)
{
    const Hosts hosts = hosts_on_loopback(2, 2);
    char port[8];
    (void)snprintf(port, sizeof port, "%u", (unsigned)hosts.port + 1);
    for (int host = 0; host < 2; host++) {
        const char *all[40] = {"--nnodes",      "2",         "--node-rank",   host ? "1" : "0",
                               "--master-addr", "127.0.0.1", "--master-port", port,
                               "--gpus",        "2"};
        for (size_t i = 0; arguments[i]; i++)
            all[10 + i] = arguments[i];
        running[host] = start_on_host(&hosts, host, NULL, all);
    }
}

/* Each host starts its own ranks again, and they meet as they did before. */
TEST_IN_FOLDER(test_hosts_restart_when_a_rank_is_killed, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunningProgram running[2];
    if (!started_ranks_are_told())
        skip();
    start_by_hand(running, (const char *const[]){RICH, shards, test_path(folder, "whole"), NULL});
    expect_well(running, 2);
    start_by_hand(running, (const char *const[]){RICH, "--max-restarts", "2", "--checkpoint-interval", "3",
                                                 shards, test_path(folder, "restarted"), NULL});
    assert_true(wait_for_file(test_path(folder, "restarted/checkpoint.safetensors"), 60));
    assert_int_equal(kill(started_rank(running[1].process, 1), SIGKILL), 0);
    for (int host = 0; host < 2; host++) {
        RunResult result = run_wait(&running[host]);
        if (result.exit_status != 0 || !strstr(result.err, "restart 1 of 2"))
            fail_msg("host %d: exit status %d\n%s", host, result.exit_status, result.err);
        run_result_free(&result);
    }
    assert_same_file(folder, "whole", "restarted", true);
}

/* ---- hosts that do not fit together ---- */

/* Starts a rank on each of two hosts with arguments of its own. */
static void start_two(RunningProgram *running, const char *const *first, const char *const *second)
{
    const Hosts hosts = hosts_on_loopback(2, 1);
    running[0] = start_host_rank(&hosts, 0, first);
    running[1] = start_host_rank(&hosts, 1, second);
}

/* Waits for the end of both; each must say the part. */
static void expect_both(RunningProgram *running, int exit_status, const char *part)
{
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&running[rank]);
        if (result.exit_status != exit_status || !strstr(result.err, part))
            fail_msg("rank %d: exit status %d, '%s' does not say '%s'", rank, result.exit_status, result.err,
                     part);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_other_options_and_other_data_are_told_on_both_hosts, folder)
{
    DatasetSpec more = train_plain;
    const char *shards = test_path(folder, "first"), *out = test_path(folder, "out");
    RunningProgram running[2];
    assert_int_equal(rename(make_set(folder, &train_plain), shards), 0);
    more.val_count++;
    const char *others = make_set(folder, &more);
    start_two(running, (const char *const[]){RICH, shards, out, NULL},
              (const char *const[]){RICH, "--weight-decay", "0.25", shards, out, NULL});
    expect_both(running, 2, "--weight-decay");
    start_two(running, (const char *const[]){RICH, shards, out, NULL},
              (const char *const[]){RICH, others, out, NULL});
    expect_both(running, 2, "dataset");
}

/* As where the data's file system is not mounted on a host: its ranks all fail, and the first says it. */
TEST_IN_FOLDER(test_what_fails_on_all_ranks_of_a_host_is_told_once_there, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *nowhere = test_path(folder, "nowhere");
    const Hosts hosts = hosts_on_loopback(2, 2);
    static const char *const says[] = {"another rank has failed, and says why", "", "/nowhere", ""};
    RunningProgram running[4];
    for (int rank = 0; rank < 4; rank++)
        running[rank] = start_host_rank(
            &hosts, rank, (const char *const[]){"--model", "conv8", rank < 2 ? shards : nowhere, out, NULL});
    for (int rank = 0; rank < 4; rank++) {
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, says[rank]);
        assert_int_equal(result.err_bytes == 0, !*says[rank]);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_ranks_of_other_runs_are_told_on_both_hosts, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    Hosts hosts = hosts_on_loopback(2, 1), more = hosts;
    RunningProgram running[2];
    more.hosts = 3;
    running[0] = start_host_rank(&hosts, 0, (const char *const[]){RICH, shards, out, NULL});
    running[1] = start_host_rank(&more, 1, (const char *const[]){RICH, shards, out, NULL});
    expect_both(running, 2, "was started with 3 ranks in all, and the first host with 2");
}
