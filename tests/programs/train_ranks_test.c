/* ftrain as several ranks, with the environment that torchrun gives them, on the CPU: the same result as one
 * process with the total batch, one voice, and an end for all when one of them ends. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/progress.h"

/* ---- the same weights ---- */

#define UNET RANKS_UNET("4")

/* Trains a network without norms in one process and in two ranks, and compares. The mean of the gradients of
 * two batches of 3 is the gradient of a batch of 6. */
static void compare_with_one_process(TestFolder *folder, const char *amp, const char *clip, double bound)
{
    const DatasetSpec pairs = rank_pairs(25, 5);
    const char *shards = make_set(folder, &pairs);
    const char *one = test_path(folder, "one"), *two = test_path(folder, "two"),
               *other = test_path(folder, "other");
    TRAINED("--device", "cpu", UNET, "--amp", amp, "--clip-grad", clip, "--batch-size", "6", shards, one);
    TRAINED("--device", "cpu", UNET, "--amp", amp, "--clip-grad", clip, "--batch-size", "3", shards, other);
    RANKS_TRAINED(2, UNET, "--amp", amp, "--clip-grad", clip, "--batch-size", "3", shards, two);
    const char *weights = test_path(folder, "one/last.safetensors");
    const double far = weights_distance(weights, test_path(folder, "two/last.safetensors")),
                 without = weights_distance(weights, test_path(folder, "other/last.safetensors"));
    if (!(far < bound))
        fail_msg("--amp %s: weights of two ranks are %g from those of one process", amp, far);
    assert_true(without > 10 * bound); /* the bound tells */
    for (size_t epoch = 0; epoch < 4; epoch++) {
        static const char *const columns[] = {"train_loss", "eval_loss", "eval_psnr", "eval_ssim"};
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            const double a = summary_number(one, epoch, columns[i]),
                         b = summary_number(two, epoch, columns[i]);
            if (fabs(a - b) > 100 * bound * fabs(a) + 2e-6)
                fail_msg("--amp %s, epoch %zu: %s %g and %g", amp, epoch, columns[i], a, b);
        }
    }
}

TEST_IN_FOLDER(test_two_ranks_train_as_one_with_twice_the_batch, folder)
{
    compare_with_one_process(folder, "off", "0", 2e-6);
}

TEST_IN_FOLDER(test_two_ranks_train_as_one_in_bf16, folder)
{
    if (!__builtin_cpu_supports("avx512bw")) { /* then oneDNN has no bf16 */
        puts("left out: this CPU cannot compute in bf16");
        return;
    }
    compare_with_one_process(folder, "bf16", "0", 2e-4);
}

/* The norm that clips is that of the mean. */
TEST_IN_FOLDER(test_two_ranks_clip_as_one, folder)
{
    compare_with_one_process(folder, "off", "0.01", 2e-6);
}

/* Each step takes the same views, dealt out in another way. */
TEST_IN_FOLDER(test_two_ranks_share_the_views_of_repeats, folder)
{
    DatasetSpec spec = rank_pairs(25, 5);
    spec.width = spec.height = 40;
    const char *shards = make_set(folder, &spec), *one = test_path(folder, "one"),
               *two = test_path(folder, "two"), *other = test_path(folder, "other");
#define REPEATED UNET, "--train-crop-size", "32"
    TRAINED("--device", "cpu", REPEATED, "--aug-repeats", "3", "--batch-size", "6", shards, one);
    RANKS_TRAINED(2, REPEATED, "--aug-repeats", "3", "--batch-size", "3", shards, two);
    TRAINED("--device", "cpu", REPEATED, "--batch-size", "6", shards, other);
    const char *weights = test_path(folder, "one/last.safetensors");
    assert_true(weights_distance(weights, test_path(folder, "two/last.safetensors")) < 2e-6);
    assert_true(weights_distance(weights, test_path(folder, "other/last.safetensors")) > 2e-5);
}

/* Two updates of each epoch take the sums of two runs; a fifth, which would be half of an update, is not
 * taken. 2 ranks of 3 and 3 of 2 are one process of 6, and all three tell the same loss. */
TEST_IN_FOLDER(test_ranks_accumulate_as_one_with_the_total_batch, folder)
{
    static const char *const batches[] = {"6", "3", "2"};
    const DatasetSpec spec = rank_pairs(30, 5);
    const char *shards = make_set(folder, &spec), *one = test_path(folder, "one"),
               *without = test_path(folder, "without"), *several[RANKS_MOST] = {one};
    TRAINED("--device", "cpu", UNET, "--grad-accum-steps", "2", "--batch-size", "6", shards, one);
    TRAINED("--device", "cpu", UNET, "--batch-size", "6", shards, without);
    assert_true(weights_distance(test_path(folder, "one/last.safetensors"),
                                 test_path(folder, "without/last.safetensors")) > 2e-5);
    for (int ranks = 2; ranks <= 3; ranks++) { /* that divide 6 */
        several[ranks - 1] = test_path(folder, "ranks%d", ranks);
        RANKS_TRAINED(ranks, UNET, "--grad-accum-steps", "2", "--batch-size", batches[ranks - 1], shards,
                      several[ranks - 1]);
        const double far = weights_distance(test_path(folder, "one/last.safetensors"),
                                            test_path(folder, "ranks%d/last.safetensors", ranks));
        if (!(far < 2e-6))
            fail_msg("weights of %d ranks are %g from those of one process", ranks, far);
        for (size_t epoch = 0; epoch < 4; epoch++)
            assert_true(fabs(summary_number(one, epoch, "train_loss") -
                             summary_number(several[ranks - 1], epoch, "train_loss")) < 2e-6);
    }
}

/* Gathered gradients, loss scaling's decisions and averages come out alike on all ranks: they end, with one
 * result. */
TEST_IN_FOLDER(test_ranks_share_every_kind_of_update, folder)
{
    DatasetSpec spec = train_plain;
    const char *shards = make_set(folder, &spec);
    RANKS_TRAINED(3, "--model", "conv8", "--epochs", "2", "--batch-size", "2", "--grad-accum-steps", "2",
                  "--opt", "lamb", "--model-ema", "--lookahead", "2", "--mixup-alpha", "0.2", shards,
                  test_path(folder, "out"));
    assert_true(test_file_size(test_path(folder, "out/model_ema.safetensors")) > 1000);
    assert_true(test_file_size(test_path(folder, "out/report.html")) > 1000);
    char *arguments = test_file_read(test_path(folder, "out/args.json"), NULL);
    assert_contains(arguments, "\"ranks\": 3");
    free(arguments);
    char *summary = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_int_equal(count_lines(summary), 3);
    free(summary);
}

/* ---- evaluation ---- */

static json_t *evaluate_with(int ranks, const char *weights, const char *shards)
{
    RanksResult result = {0};
    json_t *object = NULL;
    if (ranks == 1) {
        RunResult one = TRAIN(0, "--device", "cpu", "--val-batch-size", "4", "--evaluate", "--json",
                              "--weights", weights, shards);
        object = read_json(one.out);
        run_result_free(&one);
        return object;
    }
    result = RANKS(ranks, 0, "--val-batch-size", "4", "--evaluate", "--json", "--weights", weights, shards);
    object = read_json(result.of[0].out);
    free_ranks(&result);
    return object;
}

/* 23 samples in batches of 4: the last step of two ranks, and of three, has batches that are half full or
 * empty. */
TEST_IN_FOLDER(test_evaluation_counts_every_sample_once, folder)
{
    static const char *const names[] = {"samples", "top1", "top5", "loss"};
    DatasetSpec spec = train_plain;
    spec.val_count = 23;
    spec.class_count = 7;
    const char *shards = make_set(folder, &spec), *weights = test_path(folder, "out/last.safetensors");
    TRAINED("--device", "cpu", "--model", "conv8", "--epochs", "1", shards, test_path(folder, "out"));
    json_t *one = evaluate_with(1, weights, shards);
    assert_true(number_of(one, "samples") == 23);
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        json_t *several = evaluate_with(ranks, weights, shards);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const double a = number_of(one, names[i]), b = number_of(several, names[i]);
            if (fabs(a - b) > 1e-12 * fabs(a))
                fail_msg("%d ranks: %s is %.17g, not %.17g", ranks, names[i], b, a);
        }
        /* Each class's numbers are those of all ranks, too. */
        assert_int_equal(json_array_size(json_object_get(several, "classes")), 7);
        assert_true(json_equal(json_object_get(one, "classes"), json_object_get(several, "classes")));
        json_decref(several);
    }
    json_decref(one);
}

/* Each rank measures another time: they agree, or would wait for each other without end. */
TEST_IN_FOLDER(test_ranks_agree_on_how_often_to_evaluate, folder)
{
    const DatasetSpec spec = rank_pairs(8, 600);
    RanksResult result = RANKS(2, 0, "--model", "unet", "--width", "8", "--epochs", "9", "--batch-size", "2",
                               make_set(folder, &spec), test_path(folder, "out"));
    assert_contains(result.of[0].err, ": evaluated ");
    assert_contains(result.of[0].err, "from here on");
    free_ranks(&result);
}

/* ---- ends ---- */

#define LONG_RUN                                                                                             \
    "--model", "conv8", "--batch-size", "2", "--epochs", "100000", "--lr-base", "0.01", "--val-interval",    \
        "100000", "--checkpoint-interval", "3"

/* A rank of a long run is killed: the others end soon, with a failure and its name, which the first of them
 * tells. */
TEST_IN_FOLDER(test_a_rank_that_is_killed_ends_the_run, folder)
{
    enum { RANKS = 3 };
    const char *shards = make_set(folder, &train_plain);
    for (int victim = 0; victim < 2; victim++) {
        const char *out = test_path(folder, "out%d", victim);
        const char *const arguments[] = {LONG_RUN, shards, out, NULL};
        RunningProgram running[RANKS];
        char name[40];
        for (int rank = 0; rank < RANKS; rank++)
            running[rank] = start_rank(rank, RANKS, 50 + victim, NULL, arguments);
        assert_true(wait_for_file(test_path(folder, "out%d/checkpoint.safetensors", victim), 30));
        assert_int_equal(kill(running[victim].process, SIGKILL), 0);
        const double start = progress_now_seconds();
        (void)snprintf(name, sizeof name, "rank %d of 3 (host ", victim);
        for (int rank = 0; rank < RANKS; rank++) {
            RunResult result = run_wait(&running[rank]);
            assert_int_equal(result.exit_status, rank == victim ? 128 + SIGKILL : 1);
            if (rank == !victim) {
                assert_contains(result.err, name);
                assert_contains(result.err, "--resume auto goes on from the last checkpoint");
            } else if (rank != victim) {
                assert_string_equal(result.err, "");
            }
            run_result_free(&result);
        }
        assert_true(progress_now_seconds() - start < 10);
    }
}

/* Stops a rank as a debugger or a frozen host does, lets rank 0 notice and rank 1 go on again. Sends rank 0
 * signal_number meanwhile, if it is not 0. Both must end with exit_status, and rank 0 say so. */
static void stop_a_rank(TestFolder *folder, int signal_number, const char *timeout, int exit_status,
                        const char *says)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out%d", signal_number);
    const char *const arguments[] = {LONG_RUN, "--timeout", timeout, shards, out, NULL};
    RunningProgram running[2];
    RunResult results[2];
    for (int rank = 0; rank < 2; rank++)
        running[rank] = start_rank(rank, 2, 52 + (signal_number != 0), NULL, arguments);
    assert_true(wait_for_file(test_path(folder, "out%d/checkpoint.safetensors", signal_number), 30));
    assert_int_equal(kill(running[1].process, SIGSTOP), 0);
    const double start = progress_now_seconds();
    if (signal_number) {
        sleep_seconds(1);
        assert_int_equal(kill(running[0].process, signal_number), 0);
    }
    results[0] = run_wait(&running[0]);
    assert_true(progress_now_seconds() - start < 20);
    assert_int_equal(kill(running[1].process, SIGCONT), 0);
    results[1] = run_wait(&running[1]);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].exit_status, exit_status);
        assert_string_equal(rank ? results[rank].err : "", "");
    }
    assert_contains(results[0].err, "rank 1 of 2 (host ");
    assert_contains(results[0].err, says);
    assert_contains(results[0].err, "; --resume auto goes on from the last checkpoint");
    run_result_free(&results[0]);
    run_result_free(&results[1]);
}

TEST_IN_FOLDER(test_a_rank_that_is_stopped_ends_the_run, folder)
{
    stop_a_rank(folder, 0, "2", 1, "has not moved for 2 s (--timeout)");
}

TEST_IN_FOLDER(test_a_signal_is_heeded_while_a_rank_is_stopped, folder)
{
    stop_a_rank(folder, SIGTERM, "60", 75, ", and a signal ends the run without it");
}

/* 12 epochs of 10 steps for two ranks, with state in everything. Not with sums of an update, which a
 * checkpoint rounds where it is made (ranks_resume_test): where a run stops is chance. */
#define RICH                                                                                                 \
    "--model", "conv8", "--epochs", "12", "--batch-size", "2", "--opt", "adamw", "--lr", "0.003",            \
        "--model-ema", "--model-ema-decay", "0.9", "--mixup-alpha", "0.2"

/* Sends the signal to one rank, `signalled`. All ranks must stop after the same step, and the run that goes
 * on must end as one without a stop. */
static void stop_and_go_on(TestFolder *folder, int signal_number, int signalled)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    RANKS_TRAINED(2, RICH, "--checkpoint-interval", "3", shards, test_path(folder, "whole"));
    const char *const arguments[] = {RICH, "--checkpoint-interval", "3", shards, out, NULL};
    RunningProgram running[2];
    for (int rank = 0; rank < 2; rank++)
        running[rank] =
            start_rank(rank, 2, 60, rank == 0 ? "stopped/checkpoint.safetensors" : NULL, arguments);
    run_wait_until_stopped(&running[0]); /* the first rank; the others wait for it */
    assert_int_equal(kill(running[signalled].process, signal_number), 0);
    run_go_on(&running[0], SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&running[rank]);
        if (result.exit_status != 75)
            fail_msg("rank %d: exit status %d\n%s", rank, result.exit_status, result.err);
        if (rank == 0)
            assert_contains(result.err, "; --resume auto goes on");
        else
            assert_string_equal(result.err, "");
        run_result_free(&result);
    }
    RanksResult result = RANKS(2, 0, RICH, "--checkpoint-interval", "3", "--resume", "auto", shards, out);
    assert_contains(result.of[0].err, "goes on from ");
    free_ranks(&result);
    assert_same_file(folder, "whole", "stopped", true);
    char *a = summary_without_time(test_path(folder, "whole")),
         *b = summary_without_time(test_path(folder, "stopped"));
    assert_string_equal(a, b);
    free(a);
    free(b);
}

TEST_IN_FOLDER(test_a_signal_to_one_rank_stops_all_and_the_run_goes_on, folder)
{
    stop_and_go_on(folder, SIGTERM, 1);
}

TEST_IN_FOLDER(test_a_signal_to_the_first_rank_stops_all, folder)
{
    stop_and_go_on(folder, SIGUSR1, 0);
}

/* ---- one voice ---- */

/* Each rank names the samples that it skips; the first has the sum. */
TEST_IN_FOLDER(test_a_skipped_sample_is_told_by_the_rank_that_met_it, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    spoil_sample(folder, "train", 3);
    spoil_sample(folder, "val", 5);
    const char *const arguments[] = {
        "--model", "conv8", "--epochs", "3", "--batch-size", "2", "--val-batch-size", "1", "--on-error",
        "skip",    shards,  out,        NULL};
    RanksResult result = run_ranks(2, arguments);
    assert_int_equal(result.of[0].exit_status, 1);
    assert_int_equal(result.of[1].exit_status, 1);
    assert_contains(result.of[1].err, "warning: rank 1: ");
    assert_contains(result.of[1].err, "val-00001-of-00002.fshard record 1");
    assert_contains(result.of[0].err, "could not be read, skipped");
    assert_contains_not(result.of[0].err, "rank 1");
    assert_string_equal(result.of[1].out, "");
    free_ranks(&result);
}

/* What no rank can do is said once. */
TEST_IN_FOLDER(test_a_failure_of_all_is_told_once, folder)
{
    RanksResult result =
        RANKS(2, 1, "--model", "conv8", test_path(folder, "nothing"), test_path(folder, "out"));
    assert_contains(result.of[0].err, "ftrain: rank 0: ");
    free_ranks(&result);
}

/* Ranks have not met when their options are looked at: each tells what is wrong with its own. */
TEST_IN_FOLDER(test_what_is_wrong_with_a_ranks_options_is_told_by_it, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const uses[] = {"--predict", "x", "--weights", "y", shards, NULL};
    const char *const third[] = {"--model", "conv8", "--shards", shards, "--output", out, "third", NULL};
    const char *const unknown[] = {"--model", "conv8", "--no-such-option", shards, out, NULL};
    const char *const *const cases[] = {uses, third, unknown};
    static const char *const says[] = {"ftrain: rank 1: --predict: is for one process",
                                       "ftrain: rank 1: 'third': one argument too many",
                                       "ftrain: rank 1: --no-such-option: no such option"};
    for (int i = 0; i < 3; i++) { /* rank 0 need not be there */
        RunningProgram running = start_rank(1, 2, 90 + i, NULL, cases[i]);
        RunResult result = run_wait(&running);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, says[i]);
        assert_contains(result.err, "Try 'ftrain --help'.");
        run_result_free(&result);
    }
}

/* The first speaks for those that fail as it does, and for no others. */
TEST_IN_FOLDER(test_failures_that_differ_are_all_told, folder)
{
    const char *out = test_path(folder, "out");
    const char *const a_arguments[] = {"--model", "conv8", test_path(folder, "here"), out, NULL};
    const char *const b_arguments[] = {"--model", "conv8", test_path(folder, "there"), out, NULL};
    RunningProgram running[2] = {start_rank(0, 2, 95, NULL, a_arguments),
                                 start_rank(1, 2, 95, NULL, b_arguments)};
    RunResult a = run_wait(&running[0]), b = run_wait(&running[1]);
    assert_int_equal(a.exit_status, 1);
    assert_int_equal(b.exit_status, 1);
    assert_contains(a.err, "ftrain: rank 0: ");
    assert_contains(a.err, "/here");
    assert_contains(b.err, "ftrain: rank 1: ");
    assert_contains(b.err, "/there");
    run_result_free(&a);
    run_result_free(&b);
}

/* The others cannot know. */
TEST_IN_FOLDER(test_a_failure_of_one_is_told_by_it, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const well[] = {"--model", "conv8", "--cache", "pixels", shards, out, NULL};
    const char *const nowhere[] = {"--model", "conv8", "--cache", "pixels", test_path(folder, "nowhere"),
                                   out,       NULL};
    RunResult copied = run_program(NULL, "/bin/cp", "-r", shards, test_path(folder, "copy"), NULL);
    run_result_free(&copied);
    const char *const damaged[] = {"--model", "conv8", "--cache", "pixels", test_path(folder, "copy"),
                                   out,       NULL};
    /* In sample 4: of 40 rank 1 measures 3 to 5, 9 to 11, …, and rank 0 the others, from a whole copy. */
    test_file_flip_byte(test_path(folder, "copy/train-00000-of-00002.fshard"), 14000);
    const struct {
        const char *const *arguments;
        const char *says;
    } cases[] = {{nowhere, "nowhere: "}, {damaged, "copy/train-00000-of-00002.fshard record "}};
    for (int i = 0; i < 2; i++) {
        RunningProgram running[2] = {start_rank(0, 2, 71 + i, NULL, well),
                                     start_rank(1, 2, 71 + i, NULL, cases[i].arguments)};
        RunResult a = run_wait(&running[0]), b = run_wait(&running[1]);
        assert_int_equal(a.exit_status, 1);
        assert_int_equal(b.exit_status, 1);
        assert_contains(a.err, "another rank has failed, and says why");
        assert_contains(b.err, cases[i].says);
        assert_int_equal(test_count_files(out), 0);
        run_result_free(&a);
        run_result_free(&b);
    }
}

/* Expects two ranks with these arguments to find out that they differ, to say so once, and to write
 * nothing into out. */
static void expect_unlike(const char *const *first, const char *const *second, const char *says,
                          const char *out)
{
    RunningProgram running[2] = {start_rank(0, 2, 70, NULL, first), start_rank(1, 2, 70, NULL, second)};
    RunResult a = run_wait(&running[0]), b = run_wait(&running[1]);
    assert_int_equal(a.exit_status, 2);
    assert_int_equal(b.exit_status, 2);
    assert_contains(a.err, "the ranks were not started alike: ");
    assert_contains(a.err, says);
    assert_string_equal(b.err, "");
    assert_int_equal(test_count_files(out), 0);
    run_result_free(&a);
    run_result_free(&b);
}

TEST_IN_FOLDER(test_ranks_that_were_started_differently_do_not_train, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    /* Two words for each rank, "" for none, and the difference. */
    static const char *const rows[][5] = {
        {"--seed", "1", "--seed", "2", "alike: --seed is 2 on rank 1 and 1 on rank 0;"},
        {"--weight-decay", "0", "--weight-decay", "0.5",
         "alike: --weight-decay is 0.5 on rank 1 and 0 on rank 0;"},
        {"", "", "--label-smoothing", "0.2", "alike: --label-smoothing is 0.2 on rank 1 and 0.1 on rank 0;"},
        {"--clip-grad", "1", "", "", "alike: --clip-grad is 0 on rank 1 and 1 on rank 0;"},
        {"", "", "--mixup-alpha", "0.2", "alike: --mixup-alpha is 0.2 on rank 1 and 0 on rank 0;"},
        {"", "", "--lr-scheduler", "step", "alike: --lr-scheduler is step on rank 1 and cosine on rank 0;"},
        {"", "", "--lookahead", "5", "alike: --lookahead is 5 on rank 1 and 0 on rank 0;"},
        {"", "", "--early-stop-patience", "3",
         "alike: --early-stop-patience is 3 on rank 1 and 0 on rank 0;"},
        {"", "", "--no-fuse", "norm-relu",
         "alike: --no-fuse is norm-relu on rank 1 and not given on rank 0;"},
        {"", "", "--model-ema", "", "alike: --model-ema is true on rank 1 and false on rank 0;"},
        {"--width", "16", "--width", "8", "alike: --width is 8 on rank 1 and 16 on rank 0;"},
        {"", "", "--opt", "lars", "alike: --opt is lars on rank 1 and auto on rank 0;"},
        {"--batch-size", "4", "--batch-size", "2", "alike: --batch-size is 2 on rank 1 and 4 on rank 0;"},
        {"--epochs", "2", "--epochs", "3", "alike: --epochs is 3 on rank 1 and 2 on rank 0;"},
        {"--log-interval", "1", "", "", "alike: --log-interval is 50 on rank 1 and 1 on rank 0;"},
        {"", "", "--checkpoint-interval", "2",
         "alike: --checkpoint-interval is 2 on rank 1 and 0 on rank 0;"},
        {"", "", "--val-batch-size", "2", "alike: --val-batch-size is 2 on rank 1 and 0 on rank 0;"},
        {"", "", "--cache", "pixels", "alike: --cache is pixels on rank 1 and auto on rank 0;"},
        {"", "", "--on-error", "skip", "alike: --on-error is skip on rank 1 and stop on rank 0;"},
        {"", "", "--profile", "2", "alike: --profile is 2 on rank 1 and 0 on rank 0;"},
        {"--amp", "bf16", "--flip-tta", "",
         "alike: --amp is auto on rank 1 and bf16 on rank 0, --flip-tta is true on rank 1 and false "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *first[8] = {"--model", "conv8", shards, out},
                   *second[8] = {"--model", "conv8", shards, out};
        for (int word = 0, a = 4, b = 4; word < 2; word++) {
            if (*rows[i][word])
                first[a++] = rows[i][word];
            if (*rows[i][2 + word])
                second[b++] = rows[i][2 + word];
        }
        expect_unlike(first, second, rows[i][4], out);
    }
}

/* The lowest rank that differs speaks. */
TEST_IN_FOLDER(test_the_first_rank_that_differs_is_named, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const char *const seeds[] = {"1", "1", "3"};
    RunningProgram running[3];
    for (int rank = 0; rank < 3; rank++) {
        const char *const arguments[] = {"--model", "conv8", "--seed", seeds[rank], shards, out, NULL};
        running[rank] = start_rank(rank, 3, 69, NULL, arguments);
    }
    for (int rank = 0; rank < 3; rank++) {
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 2);
        if (rank == 0)
            assert_contains(result.err, "--seed is 3 on rank 2 and 1 on rank 0;");
        run_result_free(&result);
    }
}

/* Where files are and how much is told is each rank's own affair. */
TEST_IN_FOLDER(test_ranks_may_differ_in_what_decides_nothing, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const first[] = {"--model", "conv8", "--epochs", "1", "--quiet", shards, out, NULL};
    const char *const second[] = {"--model",   "conv8",     "--epochs",
                                  "1",         "--workers", "2",
                                  "--no-html", shards,      test_path(folder, "elsewhere"),
                                  NULL};
    RunningProgram running[2] = {start_rank(0, 2, 68, NULL, first), start_rank(1, 2, 68, NULL, second)};
    expect_well(running, 2);
}

TEST_IN_FOLDER(test_ranks_on_other_bytes_do_not_train, folder)
{
    DatasetSpec spec = train_plain;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    const char *other = test_path(folder, "other");
    spec.other_byte = true; /* all names and sizes are the same */
    dataset_make(other, &spec);
    const char *const first[] = {"--model", "conv8", shards, out, NULL};
    const char *const second[] = {"--model", "conv8", other, out, NULL};
    expect_unlike(first, second, "/other (id ", out);
    expect_unlike(first, second, " on rank 1 and /", out);
}

/* Where OUTPUT is not the same folder on all hosts. */
TEST_IN_FOLDER(test_ranks_that_would_go_on_from_other_places_do_not_train, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {RICH, "--checkpoint-interval", "3", "--resume", "auto", shards, out,
                                     NULL};
    const char *const elsewhere[] = {RICH,   "--checkpoint-interval",        "3", "--resume", "auto",
                                     shards, test_path(folder, "elsewhere"), NULL};
    RunningProgram running[2] = {start_rank(0, 2, 66, "out/checkpoint.safetensors", arguments),
                                 start_rank(1, 2, 66, NULL, arguments)};
    run_wait_until_stopped(&running[0]);
    assert_int_equal(kill(running[1].process, SIGTERM), 0);
    run_go_on(&running[0], SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 75);
        run_result_free(&result);
    }
    running[0] = start_rank(0, 2, 65, NULL, arguments);
    running[1] = start_rank(1, 2, 65, NULL, elsewhere);
    RunResult a = run_wait(&running[0]), b = run_wait(&running[1]);
    assert_int_equal(a.exit_status, 2);
    assert_int_equal(b.exit_status, 2);
    assert_contains(a.err, "alike: the step to go on from is 0 on rank 1 and ");
    assert_string_equal(b.err, "");
    run_result_free(&a);
    run_result_free(&b);
}

TEST_IN_FOLDER(test_ranks_with_other_first_weights_do_not_train, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const weights[] = {test_path(folder, "w0/last.safetensors"),
                                   test_path(folder, "w1/last.safetensors")};
    for (int i = 0; i < 2; i++)
        TRAINED("--device", "cpu", "--model", "conv8", "--epochs", "1", "--seed", i ? "1" : "2", shards,
                test_path(folder, "w%d", i));
    RunningProgram running[2];
    for (int rank = 0; rank < 2; rank++) {
        const char *const arguments[] = {"--model", "conv8", "--weights", weights[rank], shards, out, NULL};
        running[rank] = start_rank(rank, 2, 67, NULL, arguments);
    }
    RunResult a = run_wait(&running[0]), b = run_wait(&running[1]);
    assert_int_equal(a.exit_status, 1);
    assert_int_equal(b.exit_status, 1);
    assert_contains(
        a.err, "the weights of rank 1 are not those of rank 0 at the start; --weights must name the same");
    assert_string_equal(b.err, "");
    run_result_free(&a);
    run_result_free(&b);
}

TEST_IN_FOLDER(test_half_an_environment_is_refused, folder)
{
    const char *environment[] = {"WORLD_SIZE=2", NULL};
    const RunOptions options = {.environment = environment};
    RunResult result =
        run_program(&options, "ftrain", make_set(folder, &train_plain), test_path(folder, "out"), NULL);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "RANK is not set, though WORLD_SIZE is");
    run_result_free(&result);
}

/* Nobody else knows: rank 0 waits for a rank that never comes. */
TEST_IN_FOLDER(test_a_rank_that_cannot_be_is_told_by_itself, folder)
{
    const char *const arguments[] = {"--model", "conv8", make_set(folder, &train_plain),
                                     test_path(folder, "out"), NULL};
    RunningProgram running = start_rank(3, 2, 99, NULL, arguments);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 2);
    assert_contains(result.err, "RANK is 3, which is no rank of WORLD_SIZE 2");
    run_result_free(&result);
}
