/* ftrain from outside: one run at a time in an output folder, and room for what it will write there. */
#include "tests/programs/ranks_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

static const char lock_name[] = ".ftrain-lock";

/* ---- one run at a time ---- */

#define SHORT_RUN "--jobs", "1", "--device", "cpu", "--model", "conv8", "--epochs", "3"

/* Starts a run that stops itself (SIGSTOP) when out/NAME gets its name, and waits for that. The stopped run
 * lives and keeps what it holds. */
static RunningProgram start_and_stop(const char *shards, const char *out, const char *name)
{
    char stop_at[64];
    (void)snprintf(stop_at, sizeof stop_at, "out/%s", name);
    const RunOptions options = {.stop_at = stop_at, .timeout_seconds = 120};
    const char *const arguments[] = {SHORT_RUN, shards, out, NULL};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    run_wait_until_stopped(&running);
    return running;
}

/* Asserts that a second run, however it is asked for, writes nothing and says who runs. */
static void refuse_a_second(const RunningProgram *first, const char *shards, const char *out)
{
    static const char *const ways[][2] = {
        {"--resume", "auto"}, {"--force", "--verbose"}, {"--verbose", NULL}};
    char who[128], host[65] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    (void)snprintf(who, sizeof who, "out: another ftrain is writing there (process %ld on %s, since 2",
                   (long)first->process, host);
    const uint64_t files = test_count_files(out);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *arguments[] = {SHORT_RUN, shards, out, ways[i][0], ways[i][1], NULL};
        RunResult result = expect_train(1, NULL, arguments);
        assert_contains(result.err, who);
        assert_string_equal(result.out, "");
        run_result_free(&result);
        assert_int_equal(test_count_files(out), files);
    }
}

TEST_IN_FOLDER(test_a_second_run_in_an_output_is_told_who_runs, folder)
{
    static const char *const moments[] = {"args.json",
                                          "checkpoint.safetensors"}; /* nothing saved yet; something */
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED(SHORT_RUN, shards, test_path(folder, "whole"));
    for (size_t i = 0; i < 2; i++) {
        RunningProgram running = start_and_stop(shards, out, moments[i]);
        refuse_a_second(&running, shards, out);
        run_go_on(&running, SIGCONT);
        RunResult result = run_wait(&running);
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
        assert_same_file(folder, "whole", "out", true);
        assert_false(file_exists(test_path(folder, "out/%s", lock_name)));
        RunResult removed = run_program(NULL, "/bin/rm", "-r", out, NULL);
        run_result_free(&removed);
    }
}

/* Whatever ends it, the output is free. */
TEST_IN_FOLDER(test_a_killed_run_holds_its_output_no_longer, folder)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGSEGV};
    static const int statuses[] = {128 + SIGKILL, 75, 128 + SIGSEGV};
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED(SHORT_RUN, shards, test_path(folder, "whole"));
    for (size_t i = 0; i < 3; i++) {
        RunningProgram running = start_and_stop(shards, out, "checkpoint.safetensors");
        assert_true(file_exists(test_path(folder, "out/%s", lock_name)));
        run_go_on(&running, signals[i]);
        RunResult result = run_wait(&running);
        if (result.exit_status != statuses[i] && i != 2) /* a sanitizer ends a SIGSEGV otherwise */
            fail_msg("exit status %d, not %d\n%s", result.exit_status, statuses[i], result.err);
        run_result_free(&result);
        if (signals[i] == SIGTERM)
            assert_false(file_exists(test_path(folder, "out/%s", lock_name)));
        SAYS(0, "goes on from", SHORT_RUN, "--resume", "auto", shards, out);
        assert_same_file(folder, "whole", "out", true);
        assert_false(file_exists(test_path(folder, "out/%s", lock_name)));
        RunResult removed = run_program(NULL, "/bin/rm", "-r", out, NULL);
        run_result_free(&removed);
    }
}

/* The first rank holds it; of a second run the first rank says who, and the others end with it, silently. */
TEST_IN_FOLDER(test_two_runs_of_several_ranks_do_not_share_an_output, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {"--model", "conv8", "--epochs", "3", "--force", shards, out, NULL};
    RunningProgram first[2], second[2];
    char who[64];
    for (int rank = 0; rank < 2; rank++)
        first[rank] = start_rank(rank, 2, 80, rank == 0 ? "out/checkpoint.safetensors" : NULL, arguments);
    run_wait_until_stopped(&first[0]);
    (void)snprintf(who, sizeof who, "(process %ld on ", (long)first[0].process);
    for (int rank = 0; rank < 2; rank++)
        second[rank] = start_rank(rank, 2, 81, NULL, arguments);
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&second[rank]);
        assert_int_equal(result.exit_status, 1);
        if (rank == 0)
            assert_contains(result.err, who);
        else
            assert_string_equal(result.err, "");
        run_result_free(&result);
    }
    run_go_on(&first[0], SIGCONT);
    for (int rank = 0; rank < 2; rank++) {
        RunResult result = run_wait(&first[rank]);
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
    }
    assert_false(file_exists(test_path(folder, "out/%s", lock_name)));
}

/* --predict has a folder of its own: two at a time with different weights would leave images of both. */
TEST_IN_FOLDER(test_two_do_not_predict_into_one_folder, folder)
{
    DatasetSpec spec = train_plain;
    spec.kind = FSH_KIND_PAIRS;
    TRAINED("--model", "unet", "--width", "8", "--epochs", "1", make_set(folder, &spec),
            test_path(folder, "run"));
    (void)pack_colours(folder, 6, 2);
    const char *weights = test_path(folder, "run/last.safetensors"), *out = test_path(folder, "restored");
    const char *const arguments[] = {"--jobs", "1",         "--force", "--weights",
                                     weights,  "--predict", out,       test_path(folder, "images/train/red"),
                                     NULL};
    const RunOptions options = {.stop_at = "restored/002.jpg"};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    char who[64];
    run_wait_until_stopped(&running);
    (void)snprintf(who, sizeof who, "writing there (process %ld on ", (long)running.process);
    RunResult result = expect_train(1, NULL, arguments);
    assert_contains(result.err, who);
    run_result_free(&result);
    run_go_on(&running, SIGCONT);
    result = run_wait(&running);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_int_equal(test_count_files(out), 6 + 1); /* .ftrain-restored */
}

/* What is there already is not restored again: it must be what would come of it. */
TEST_IN_FOLDER(test_images_of_other_weights_are_not_gone_on_with, folder)
{
    DatasetSpec spec = train_plain;
    spec.kind = FSH_KIND_PAIRS;
    const char *shards = make_set(folder, &spec);
    TRAINED("--model", "unet", "--width", "8", "--epochs", "1", shards, test_path(folder, "a"));
    TRAINED("--model", "unet", "--width", "8", "--epochs", "1", "--seed", "5", shards,
            test_path(folder, "b"));
    (void)pack_colours(folder, 4, 2);
    const char *a = test_path(folder, "a/last.safetensors"), *b = test_path(folder, "b/last.safetensors"),
               *out = test_path(folder, "restored"), *in = test_path(folder, "images/train/red"),
               *second = test_path(folder, "restored/001.jpg");
    TRAINED("--weights", a, "--predict", out, in);
    const char *first = test_path(folder, "first.jpg"); /* what a makes of it */
    assert_int_equal(rename(second, first), 0);
    SAYS(1, "restored: holds images that ", "--weights", b, "--predict", out, in);
    SAYS(1, "a/last.safetensors has restored", "--weights", b, "--predict", out, in);
    SAYS(1, "--force to restore all anew", "--weights", a, "--flip-tta", "--predict", out, in);
    assert_false(file_exists(second));
    /* The same weights under another name go on. */
    RunResult copied = run_program(NULL, "/bin/cp", a, test_path(folder, "copy.safetensors"), NULL);
    run_result_free(&copied);
    TRAINED("--weights", test_path(folder, "copy.safetensors"), "--predict", out, in);
    assert_true(same_bytes(first, second));
    /* Beside images of other inputs they would be taken for the same weights' later. */
    SAYS(1, "copy.safetensors has restored", "--weights", b, "--predict", out,
         test_path(folder, "images/train"));
    TRAINED("--weights", b, "--predict", out, "--force", in);
    assert_false(same_bytes(first, second));
    RunResult all = TRAIN(0, "--weights", b, "--predict", out, in);
    assert_contains(all.out, "4 were there already");
    run_result_free(&all);
    RunResult emptied = run_program(NULL, "/bin/sh", "-c", "rm \"$0\"/*", out, NULL);
    assert_int_equal(emptied.exit_status, 0);
    run_result_free(&emptied);
    TRAINED("--weights", a, "--predict", out, in); /* nothing is there to be mixed with */
}

TEST_IN_FOLDER(test_a_refused_folder_gets_no_lock, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "out/note.txt"), "mine");
    SAYS(1, "out: exists and is not empty (note.txt)", SHORT_RUN, shards, out);
    assert_int_equal(test_count_files(out), 1);
}

/* ---- what is there already ---- */

TEST_IN_FOLDER(test_an_output_with_a_run_names_resume, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunningProgram running = start_and_stop(shards, out, "args.json");
    run_go_on(&running, SIGKILL);
    RunResult result = run_wait(&running);
    run_result_free(&result);
    SAYS(1, "out: exists and is not empty: it holds a run; --resume auto begins it again", SHORT_RUN, shards,
         out);
    TRAINED(SHORT_RUN, "--resume", "auto", shards, out);
    SAYS(1, "out: exists and is not empty: it holds a run; --resume auto goes on with it", SHORT_RUN, shards,
         out);
}

/* ---- room for what a run leaves ---- */

static uint64_t bytes_of_files(TestFolder *folder, const char *run)
{
    static const char *const names[] = {"checkpoint", "last", "model_best", "model_ema", "checkpoint-0"};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (file_exists(test_path(folder, "%s/%s.safetensors", run, names[i])))
            bytes += test_file_size(test_path(folder, "%s/%s.safetensors", run, names[i]));
    return bytes;
}

/* Trains on a disk that has plenty of room but tells `free_bytes`. */
static RunResult train_with_room(int exit_status, uint64_t free_bytes, const char *const *arguments)
{
    const RunOptions options = {
        .limit_disk = true, .disk_bytes = UINT64_C(1) << 40, .told_free_bytes = free_bytes};
    return expect_train(exit_status, &options, arguments);
}

TEST_IN_FOLDER(test_a_disk_too_small_is_refused_before_anything_is_decoded, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {SHORT_RUN, "--cache", "pixels", "--model-ema", shards, out, NULL, NULL};
    RunResult result = train_with_room(1, 300000, arguments);
    assert_contains(result.err, "out: the run needs ");
    assert_contains(result.err, "3 files of weights of ");
    assert_contains(result.err, "and 293 KiB are free; make room");
    assert_contains(result.err, "--force to train all the same");
    assert_contains_not(result.err, "in memory, decoded");
    assert_contains_not(result.err, "with the files that it replaces");
    assert_false(file_exists(out));
    run_result_free(&result);

    const char *const forced[] = {SHORT_RUN, "--force", "--model-ema", shards, out, NULL};
    result = train_with_room(0, 300000, forced);
    assert_contains(result.err, "warning: ");
    assert_contains(result.err, "and 293 KiB are free; training begins all the same (--force)");
    assert_contains(result.out, "3 epochs in");
    run_result_free(&result);
}

/* What --dry-run tells is what a run takes: no less, and not much more. With a byte less it does not
 * begin. */
TEST_IN_FOLDER(test_what_is_needed_is_what_is_written, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const uint64_t tables = UINT64_C(2) << 20, slack = UINT64_C(700) << 10;
    RunResult result =
        TRAIN(0, SHORT_RUN, "--model-ema", "--checkpoint-hist", "1", "--dry-run", "--json", shards);
    json_t *object = read_json(result.out);
    const uint64_t needed = (uint64_t)number_of(object, "disk_bytes");
    json_decref(object);
    run_result_free(&result);
    const char *const arguments[] = {SHORT_RUN, "--model-ema", "--checkpoint-hist", "1", shards, out, NULL};
    result = train_with_room(1, needed - 1, arguments);
    assert_contains(result.err, "4 files of weights");
    run_result_free(&result);
    result = train_with_room(0, needed, arguments);
    run_result_free(&result);
    const uint64_t written =
        bytes_of_files(folder, "out") + test_file_size(test_path(folder, "out/checkpoint.safetensors"));
    assert_in_range(needed, written + tables, written + tables + slack);
}

/* A run that goes on, or takes an earlier one's place, writes over what is there. */
TEST_IN_FOLDER(test_files_that_are_replaced_count_as_room, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const uint64_t tables = UINT64_C(2) << 20;
    RunningProgram running = start_and_stop(shards, out, "model_best.safetensors");
    run_go_on(&running, SIGKILL);
    RunResult result = run_wait(&running);
    run_result_free(&result);
    const char *const arguments[] = {SHORT_RUN, "--resume", "auto", shards, out, NULL};
    result = train_with_room(1, tables, arguments);
    assert_contains(result.err, "are free with the files that it replaces; make room");
    run_result_free(&result);
    assert_true(file_exists(test_path(folder, "out/checkpoint.safetensors")));

    result = TRAIN(0, SHORT_RUN, "--dry-run", "--json", shards);
    json_t *object = read_json(result.out);
    const uint64_t needed = (uint64_t)number_of(object, "disk_bytes");
    json_decref(object);
    run_result_free(&result);
    result = train_with_room(0, needed - bytes_of_files(folder, "out"), arguments);
    run_result_free(&result);
    /* A run that is done writes nothing. */
    result = train_with_room(0, 1, arguments);
    assert_contains(result.err, "nothing is left to do");
    run_result_free(&result);
}

/* ---- epochs that are shorter than the writing of their files ---- */

/* Returns how often a file has got this name, by the events of a folder. */
static int count_named(const char *buffer, ssize_t bytes, const char *name)
{
    int count = 0;
    for (ssize_t at = 0; at < bytes;) {
        const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
        count += event->len > 0 && strcmp(event->name, name) == 0;
        at += (ssize_t)(sizeof *event + event->len);
    }
    return count;
}

/* Trains with epochs of a few milliseconds, whose checkpoint takes a second, or three. Returns what watches
 * the folder; the caller closes it. */
static int train_on_slow_disk(const char *out, bool slower, const char *const *arguments)
{
    const char *const slow[] = {slower ? "FSHARD_STOP_SECONDS=3" : "FSHARD_STOP_SECONDS=1", NULL};
    const RunOptions options = {.stop_at = "out/checkpoint.safetensors", .environment = slow};
    assert_int_equal(mkdir(out, 0777), 0);
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(watch >= 0 && inotify_add_watch(watch, out, IN_MOVED_TO) >= 0);
    RunResult result = expect_train(0, &options, arguments);
    run_result_free(&result);
    return watch;
}

TEST_IN_FOLDER(test_short_epochs_leave_their_files_to_the_next, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {"--jobs", "1",  "--device",       "cpu", "--model", "conv8", "--epochs",
                                     "30",     "-q", "--val-interval", "30",  shards,    out,     NULL};
    const int watch = train_on_slow_disk(out, false, arguments);
    char buffer[1 << 16] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t bytes = read(watch, buffer, sizeof buffer); /* at once: all has happened */
    const int count = count_named(buffer, bytes, "checkpoint.safetensors");
    if (count < 2 || count > 20)
        fail_msg("%d checkpoints in 30 epochs", count);
    (void)close(watch);
    /* what is there in the end is the end, as of a run on a fast disk */
    const char *fast = test_path(folder, "fast");
    TRAINED("--jobs", "1", "--device", "cpu", "--model", "conv8", "--epochs", "30", "--val-interval", "30",
            shards, fast);
    assert_same_file(folder, "out", "fast", true);
    /* and the checkpoint is that of the end: nothing is left to train */
    RunResult result = TRAIN(0, "--jobs", "1", "--device", "cpu", "--model", "conv8", "--epochs", "30",
                             "--val-interval", "30", "--resume", "auto", shards, out);
    assert_contains(result.out, "out/last.safetensors");
    assert_null(strstr(result.err, "epoch 29 (30 of 30)"));
    assert_null(strstr(result.out, "epoch 29 (30 of 30)"));
    run_result_free(&result);
    assert_same_file(folder, "out", "fast", true);
}

TEST_IN_FOLDER(test_a_quiet_run_prints_its_result_alone, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, SHORT_RUN, "-q", shards, out);
    assert_string_equal(result.err, "");
    assert_int_equal(strncmp(result.out, "best ", 5), 0);
    assert_contains(result.out, "out/last.safetensors\n");
    assert_contains_not(result.out, "verdict:");
    assert_contains_not(result.out, "images/s");
    run_result_free(&result);
}

/* On a machine that is busy enough the run may be long enough for the other verdicts. */
TEST_IN_FOLDER(test_the_verdict_knows_how_long_the_steps_took, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, "--model", "resnet18", "--epochs", "2", "--batch-size", "8", shards,
                             test_path(folder, "out"));
    const char *verdict = strstr(result.out, "verdict: ");
    assert_non_null(verdict);
    assert_true(strstr(verdict, " bound: ") ||
                strstr(verdict, "the run is too short to tell what bounds it"));
    assert_contains_not(verdict, "took 0.0 s");
    run_result_free(&result);
}

/* Returns the time of an epoch in summary.csv. */
static double seconds_at(TestFolder *folder, int epoch)
{
    char *table = test_file_read(test_path(folder, "out/summary.csv"), NULL), start[16];
    (void)snprintf(start, sizeof start, "\n%d,", epoch);
    const char *row = strstr(table, start);
    assert_non_null(row);
    const double seconds = strtod(row + strlen(start), NULL);
    free(table);
    return seconds;
}

/* Epoch 0 gives the disk a checkpoint, the weights and another checkpoint; the best weights of epoch 1 wait
 * for those of epoch 0, which are behind the first checkpoint, and not for the second, which has its own
 * copy. */
TEST_IN_FOLDER(test_the_best_weights_do_not_wait_for_an_earlier_checkpoint, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *const arguments[] = {"--jobs",   "1", "--device", "cpu",  "--model", "conv8",
                                     "--epochs", "2", "-q",       shards, out,       NULL};
    (void)close(train_on_slow_disk(out, true, arguments));
    const double seconds = seconds_at(folder, 1);
    if (seconds < 2.9 || seconds > 5.8)
        fail_msg("epoch 1 ended after %.1f s", seconds);
}

/* The average of weights is left out with the checkpoint, and holds up none by itself. */
TEST_IN_FOLDER(test_averages_of_short_epochs_keep_to_the_checkpoints, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 0;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    const char *const arguments[] = {"--jobs", "1",  "--device",    "cpu",  "--model", "conv8", "--epochs",
                                     "30",     "-q", "--model-ema", shards, out,       NULL};
    const int watch = train_on_slow_disk(out, false, arguments);
    char buffer[1 << 16] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t bytes = read(watch, buffer, sizeof buffer);
    const int checkpoints = count_named(buffer, bytes, "checkpoint.safetensors"),
              averages = count_named(buffer, bytes, "model_ema.safetensors");
    (void)close(watch);
    /* one checkpoint more stands before the first weights */
    if (checkpoints > 20 || averages < 1 || abs(checkpoints - averages) > 1)
        fail_msg("%d checkpoints and %d averages in 30 epochs", checkpoints, averages);
}
