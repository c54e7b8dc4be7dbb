/* ftrain --gpus 2: two GPUs train as one with twice the batch, and end together. Left out (77) where there
 * are fewer than two. */
#include "tests/programs/hosts_support.h"
#include "tests/programs/ranks_support.h"
#include "tests/programs/sync_bn_support.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "common/progress.h"
#include "trainer/launch_gpus.h"

#define UNET "--jobs", "4", "--device", "cuda", RANKS_UNET("4"), "--deterministic"
static const char *make_pairs(TestFolder *folder)
{
    const DatasetSpec pairs = rank_pairs(49, 7);
    return make_set(folder, &pairs);
}

/* Trains a network without norms on one GPU and on two, both updating after each `accumulated` batches, and
 * asserts that their weights differ by less than `bound`. They differ by roundings: of sums in another order
 * (float32: 2^-24 each, grown by the steps), and of activations and gradients (bf16: 2^-8, fp16: 2^-11),
 * where a weight's sum falls on the other side of a rounding. */
static void compare_with_one_gpu(TestFolder *folder, const char *amp, const char *accumulated, double bound)
{
    const char *shards = make_pairs(folder);
    TRAINED(UNET, "--amp", amp, "--grad-accum-steps", accumulated, "--batch-size", "12", shards,
            test_path(folder, "one"));
    TRAINED(UNET, "--amp", amp, "--grad-accum-steps", accumulated, "--batch-size", "6", shards,
            test_path(folder, "other"));
    TRAINED(UNET, "--amp", amp, "--grad-accum-steps", accumulated, "--batch-size", "6", "--gpus", "2", shards,
            test_path(folder, "two"));
    const char *weights = test_path(folder, "one/last.safetensors");
    const double far = weights_distance(weights, test_path(folder, "two/last.safetensors")),
                 without = weights_distance(weights, test_path(folder, "other/last.safetensors"));
    print_message("--amp %s: two GPUs %.3g from one, a step of half the batch %.3g\n", amp, far, without);
    if (!(far < bound))
        fail_msg("--amp %s: weights of two GPUs are %g from those of one, more than %g", amp, far, bound);
    assert_true(without > 5 * far); /* it is rounding, and no other training */
    const double a = summary_number(test_path(folder, "one"), 3, "eval_psnr"),
                 b = summary_number(test_path(folder, "two"), 3, "eval_psnr");
    if (fabs(a - b) > 100 * bound * fabs(a))
        fail_msg("--amp %s: PSNR %g and %g", amp, a, b);
}

TEST_IN_FOLDER(test_two_gpus_train_as_one_with_twice_the_batch, folder)
{
    compare_with_one_gpu(folder, "off", "1", 5e-6);
}

TEST_IN_FOLDER(test_two_gpus_train_as_one_in_bf16, folder)
{
    compare_with_one_gpu(folder, "bf16", "1", 2e-3);
}

TEST_IN_FOLDER(test_two_gpus_train_as_one_in_fp16, folder)
{
    compare_with_one_gpu(folder, "fp16", "1", 5e-4);
}

/* Two hosts of a GPU each, which are processes of this machine: the hosts meet over TCP, NCCL joins the GPUs.
 * */
TEST_IN_FOLDER(test_two_hosts_of_a_gpu_train_as_two_gpus_of_a_host, folder)
{
    const char *shards = make_pairs(folder), *out = test_path(folder, "hosts");
    const Hosts hosts = hosts_on_loopback(2, 1);
    RunningProgram running[2];
    char port[8];
    (void)snprintf(port, sizeof port, "%u", (unsigned)hosts.port + 1);
    TRAINED(UNET, "--batch-size", "6", "--gpus", "2", shards, test_path(folder, "two"));
    for (int host = 0; host < 2; host++) {
        const char *const arguments[] = {UNET,
                                         "--batch-size",
                                         "6",
                                         "--nnodes",
                                         "2",
                                         "--node-rank",
                                         host ? "1" : "0",
                                         "--master-addr",
                                         "127.0.0.1",
                                         "--master-port",
                                         port,
                                         "--gpus",
                                         host ? "1," : "0,",
                                         shards,
                                         out,
                                         NULL};
        running[host] = run_start(&(RunOptions){.timeout_seconds = 120}, "ftrain", arguments);
    }
    expect_well(running, 2);
    const double far = weights_distance(test_path(folder, "two/last.safetensors"),
                                        test_path(folder, "hosts/last.safetensors"));
    print_message("two hosts of a GPU: %.3g from two GPUs of a host\n", far);
    assert_true(far < 5e-6);
}

TEST_IN_FOLDER(test_two_gpus_accumulate_as_one, folder)
{
    compare_with_one_gpu(folder, "off", "2", 5e-6);
}

TEST_IN_FOLDER(test_two_gpus_accumulate_as_one_in_fp16, folder)
{
    compare_with_one_gpu(folder, "fp16", "2", 5e-4);
}

/* A network with norms, which are each rank's own: nothing to compare with, but all parts of a run work. */
TEST_IN_FOLDER(test_a_network_with_norms_trains_on_two_gpus, folder)
{
    DatasetSpec spec = train_plain;
    spec.train_count = 256;
    spec.val_count = 37;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--jobs", "4", "--model", "resnet18", "--epochs", "3", "--batch-size", "16",
                             "--model-ema", "--gpus", "all", "--json", shards, out);
    json_t *object = read_json(result.out);
    assert_true(number_of(object, "epochs") == 3);
    assert_contains(result.err, "ranks: ");
    assert_contains(result.err, "NCCL ");
    assert_true(test_file_size(test_path(folder, "out/model_ema.safetensors")) > 1000);
    json_decref(object);
    run_result_free(&result);
    /* Every sample of the evaluation once. */
    result = TRAIN(0, "--jobs", "4", "--device", "cuda", "--gpus", "2", "--evaluate", "--json",
                   "--val-batch-size", "8", "--weights", test_path(folder, "out/last.safetensors"), shards);
    object = read_json(result.out);
    assert_true(number_of(object, "samples") == 37);
    json_decref(object);
    run_result_free(&result);
}

/* In float32 the sums of norms are exchanged in float64. */
TEST_IN_FOLDER(test_two_gpus_with_sync_bn_make_one_update_as_one_does, folder)
{
    (void)make_set(folder, &sync_bn_set);
    compare_sync_update(folder, "cuda", "resnet18", 2, 1e-5);
    compare_sync_update(folder, "cuda", "resnet9", 2, 1e-5);
}

/* As where GPUs do not reach each other's memory: through NCCL. */
TEST_IN_FOLDER(test_two_gpus_with_sync_bn_do_without_each_others_memory, folder)
{
    (void)make_set(folder, &sync_bn_set);
    assert_int_equal(setenv("NCCL_P2P_DISABLE", "1", 1), 0);
    compare_sync_update(folder, "cuda", "resnet9", 2, 1e-5);
    const double share = sync_update_share(folder, "cuda", "resnet9", "fp16");
    assert_int_equal(unsetenv("NCCL_P2P_DISABLE"), 0);
    assert_true(share < 0.5);
}

/* In fp16 convolutions make the sums that are exchanged. */
TEST_IN_FOLDER(test_two_gpus_with_sync_bn_train_in_16_bits, folder)
{
    (void)make_set(folder, &sync_bn_set);
    assert_true(sync_update_share(folder, "cuda", "resnet18", "fp16") < 0.5);
    assert_true(sync_update_share(folder, "cuda", "resnet18", "bf16") < 0.5);
    DatasetSpec spec = train_plain;
    spec.train_count = 256;
    const char *shards = test_path(folder, "more"), *out = test_path(folder, "out");
    dataset_make(shards, &spec);
    RunResult result = TRAIN(0, "--jobs", "4", "--device", "cuda", "--model", "resnet18", "--epochs", "3",
                             "--batch-size", "4", "--sync-bn", "--gpus", "2", "--json", shards, out);
    assert_contains(result.err, "batch norms: statistics of the batches of all ranks");
    run_result_free(&result);
}

/* Waits until a file of that name has taken the place of `before`. */
static void wait_for_another(const char *path, const struct stat *before)
{
    const double start = progress_now_seconds();
    struct stat now = *before;
    while (now.st_ino == before->st_ino && now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == before->st_mtim.tv_nsec) {
        assert_true(progress_now_seconds() - start < 60);
        sleep_seconds(0.05);
        assert_int_equal(stat(path, &now), 0);
    }
}

#define LONG_RUN                                                                                             \
    "--jobs", "4", "--device", "cuda", "--gpus", "2", "--model", "conv8", "--batch-size", "2", "--epochs",   \
        "100000", "--lr-base", "0.01", "--val-interval", "100000", "--checkpoint-interval", "3"

/* Waits until rank 1 has begun to connect to the other GPU, as NCCL's log says. Returns its process; 0 if
 * that does not come. */
static pid_t wait_for_connecting(TestFolder *folder, pid_t launcher)
{
    const double start = progress_now_seconds();
    while (progress_now_seconds() - start < 60) {
        const pid_t process = started_rank(launcher, 1);
        const char *log = test_path(folder, "nccl.%ld", (long)process);
        char *text = access(log, R_OK) == 0 ? test_file_read(log, NULL) : NULL;
        const bool begun = text && strstr(text, "Init START");
        free(text);
        if (begun)
            return process;
        sleep_seconds(0.002);
    }
    return 0;
}

/* Sends the signal to rank 1 of a run with one more option, or NULL: while NCCL connects, or later, when the
 * run has made its first checkpoint. The run must end soon, with that status, and tell what has become of
 * rank 1. */
static void lose_second(TestFolder *folder, const char *option, int signal_number, bool connecting,
                        int exit_status, const char *says)
{
    char log[PATH_MAX + 32];
    const char *out = test_path(folder, "out%s", option ? option : "");
    (void)snprintf(log, sizeof log, "NCCL_DEBUG_FILE=%s.%%p", test_path(folder, "nccl"));
    const char *const environment[] = {"NCCL_DEBUG=INFO", log, NULL};
    const char *const arguments[] = {LONG_RUN, "--timeout", "3", test_path(folder, "set"), out, option, NULL};
    const RunOptions options = {.timeout_seconds = 120, .environment = connecting ? environment : NULL};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    if (!connecting)
        assert_true(
            wait_for_file(test_path(folder, "out%s/checkpoint.safetensors", option ? option : ""), 60));
    const pid_t victim =
        connecting ? wait_for_connecting(folder, running.process) : started_rank(running.process, 1);
    assert_true(victim > 0);
    assert_int_equal(kill(victim, signal_number), 0);
    const double start = progress_now_seconds();
    if (signal_number == SIGSTOP) { /* the launcher would wait for it longer than for the first, which ends */
        while (started_rank(running.process, 0) != victim && progress_now_seconds() - start < 15)
            sleep_seconds(0.05);
        assert_int_equal(kill(victim, SIGCONT), 0);
    }
    RunResult result = run_wait(&running);
    print_message("%s%s: the end came after %.1f s\n%s", strsignal(signal_number),
                  connecting ? " while NCCL connects" : "", progress_now_seconds() - start, result.err);
    assert_true(progress_now_seconds() - start < 20);
    assert_int_equal(result.exit_status, exit_status);
    assert_contains(result.err, "rank 1 of 2 (host ");
    assert_contains(result.err, says);
    run_result_free(&result);
}

/* NCCL's kernel on the first GPU waits for the second, or with --sync-bn that of a norm, and is set free. */
TEST_IN_FOLDER(test_a_rank_that_is_killed_ends_the_run, folder)
{
    (void)make_set(folder, &train_plain);
    lose_second(folder, NULL, SIGKILL, false, 128 + SIGKILL, ") has ended");
    lose_second(folder, "--sync-bn", SIGKILL, false, 128 + SIGKILL, ") has ended");
}

/* As the first waits for the second in NCCL: its failure is that of the second, and both begin again. */
TEST_IN_FOLDER(test_a_rank_that_is_killed_while_the_other_waits_is_started_again, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *checkpoint = test_path(folder, "out/checkpoint.safetensors");
    const char *const arguments[] = {LONG_RUN, "--max-restarts", "1", shards, out, NULL};
    RunningProgram running = run_start(&(RunOptions){.timeout_seconds = 240}, "ftrain", arguments);
    assert_true(wait_for_file(checkpoint, 60));
    const pid_t first = started_rank(running.process, 0), second = started_rank(running.process, 1);
    struct stat before;
    assert_true(second > 0);
    assert_int_equal(kill(second, SIGKILL), 0);
    const double start = progress_now_seconds();
    for (pid_t now = 0; now <= 0 || now == second || started_rank(running.process, 0) == first;
         now = started_rank(running.process, 1)) {
        assert_true(progress_now_seconds() - start < 60);
        sleep_seconds(0.05);
    }
    assert_int_equal(stat(checkpoint, &before), 0);
    wait_for_another(checkpoint, &before);
    assert_int_equal(kill(running.process, SIGTERM), 0);
    RunResult result = run_wait(&running);
    print_message("%s", result.err);
    assert_int_equal(result.exit_status, 75);
    assert_contains(result.err, "restart 1 of 1: all ranks go on from step ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_rank_that_is_stopped_ends_the_run, folder)
{
    (void)make_set(folder, &train_plain);
    lose_second(folder, NULL, SIGSTOP, false, 1, ") has not moved for 3 s (--timeout)");
}

/* The first waits for the second in NCCL, and hears that it is gone. */
TEST_IN_FOLDER(test_a_rank_that_is_killed_while_nccl_connects_ends_the_run, folder)
{
    (void)make_set(folder, &train_plain);
    lose_second(folder, NULL, SIGKILL, true, 128 + SIGKILL, ") has ended");
}

TEST_IN_FOLDER(test_a_rank_that_is_stopped_while_nccl_connects_ends_the_run, folder)
{
    (void)make_set(folder, &train_plain);
    lose_second(folder, NULL, SIGSTOP, true, 1, ") has not moved for 3 s (--timeout)");
}

/* The order of a list is that of the ranks; on cards of one kind the result is the same. */
TEST_IN_FOLDER(test_a_list_says_which_gpus_are_taken, folder)
{
    const char *shards = make_pairs(folder);
    TRAINED(UNET, "--batch-size", "6", "--gpus", "0,1", shards, test_path(folder, "order"));
    TRAINED(UNET, "--batch-size", "6", "--gpus", "1,0", shards, test_path(folder, "other"));
    TRAINED(UNET, "--batch-size", "6", "--gpus", "1,", shards, test_path(folder, "second"));
    TRAINED(UNET, "--batch-size", "6", shards, test_path(folder, "first"));
    assert_same_file(folder, "order", "other", true);
    assert_same_file(folder, "first", "second", true);
    SAYS(1, "--gpus: GPU 9 is wanted (the first is 0)", UNET, "--gpus", "0,9", shards,
         test_path(folder, "none"));
}

/* --elastic looks at both GPUs, finds them well, and both go on. */
TEST_IN_FOLDER(test_ranks_that_are_killed_are_started_again, folder)
{
    const char *shards = make_pairs(folder), *out = test_path(folder, "killed");
    TRAINED(UNET, "--batch-size", "6", "--gpus", "2", shards, test_path(folder, "whole"));
    const char *const arguments[] = {
        UNET, "--batch-size", "6",    "--gpus", "2", "--checkpoint-interval", "1", "--max-restarts",
        "2",  "--elastic",    shards, out,      NULL};
    const RunOptions options = {.timeout_seconds = 240, .stop_at = "killed/model_best.safetensors"};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    assert_true(wait_for_file(test_path(folder, "killed/model_best.safetensors"), 60));
    const pid_t victim = started_rank(running.process, 1);
    if (!victim)
        skip();
    const double start = progress_now_seconds();
    assert_int_equal(kill(victim, SIGKILL), 0);
    for (siginfo_t ended = {0}; ended.si_pid == 0;) { /* the new first rank stops itself too */
        sleep_seconds(0.1);
        (void)kill(-running.process, SIGCONT);
        assert_int_equal(waitid(P_PID, (id_t)running.process, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        assert_true(progress_now_seconds() - start < 200);
    }
    RunResult result = run_wait(&running);
    print_message("%s", result.err);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "restart 1 of 2: all ranks go on from step ");
    assert_contains_not(result.err, "(--elastic)");
    run_result_free(&result);
    assert_same_file(folder, "whole", "killed", true);
}

TEST_IN_FOLDER(test_a_signal_stops_both_and_the_run_goes_on, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {LONG_RUN, shards, out, NULL};
    const RunOptions options = {.timeout_seconds = 120};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    assert_true(wait_for_file(test_path(folder, "out/checkpoint.safetensors"), 60));
    assert_int_equal(kill(running.process, SIGTERM), 0);
    RunResult result = run_wait(&running);
    struct stat before;
    if (result.exit_status != 75)
        fail_msg("exit status %d\n%s", result.exit_status, result.err);
    assert_contains(result.err, "; --resume auto goes on");
    run_result_free(&result);
    assert_int_equal(stat(test_path(folder, "out/checkpoint.safetensors"), &before), 0);
    const char *const again[] = {LONG_RUN, "--resume", "auto", shards, out, NULL};
    running = run_start(&options, "ftrain", again);
    wait_for_another(test_path(folder, "out/checkpoint.safetensors"), &before);
    assert_int_equal(kill(running.process, SIGINT), 0);
    result = run_wait(&running);
    assert_int_equal(result.exit_status, 130);
    assert_contains(result.err, "goes on from ");
    run_result_free(&result);
}

int test_program_begin(void)
{
    FshError error = {0};
    int count = 0;
    FshStatus status = launch_count_gpus(NULL, &count, &error);
    if (!status && count >= 2)
        return TEST_RUN;
    (void)printf("left out: two GPUs are wanted, %d are here%s%s\n", status ? 0 : count, status ? ": " : "",
                 status ? error.message : "");
    return TEST_SKIP_ALL;
}
