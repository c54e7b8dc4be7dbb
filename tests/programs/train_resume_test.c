/* ftrain from outside: a run that was stopped goes on as if it had not been. */
#include "tests/programs/train_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"

/* 12 epochs of 20 steps with state in everything: two averages, a half-gathered gradient, a plateau, mixed
 * samples in several views, in an order by classes. Checkpoints fall between the two halves of an update,
 * too. */
#define RICH                                                                                                 \
    "--jobs", "1", "--model", "conv8", "--epochs", "12", "--batch-size", "2", "--opt", "adamw", "--lr",      \
        "0.003", "--grad-accum-steps", "2", "--model-ema", "--model-ema-decay", "0.9", "--lr-scheduler",     \
        "plateau", "--plateau-metric", "loss", "--plateau-patience", "0", "--plateau-factor", "0.5",         \
        "--mixup-alpha", "0.2", "--cutmix-alpha", "1", "--aug-repeats", "2", "--sampler", "balanced",        \
        "--sam", "0.1", "--sam-interval", "2"

static void assert_same_run(TestFolder *folder, const char *a, const char *b)
{
    static const char *const names[] = {"last.safetensors", "model_ema.safetensors",
                                        "model_best.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!same_bytes(test_path(folder, "%s/%s", a, names[i]), test_path(folder, "%s/%s", b, names[i])))
            fail_msg("%s of %s and %s differ", names[i], a, b);
    char *a_rows = summary_without_time(test_path(folder, "%s", a)),
         *b_rows = summary_without_time(test_path(folder, "%s", b));
    assert_string_equal(a_rows, b_rows);
    free(a_rows);
    free(b_rows);
}

/* Sends a run the signal at its first checkpoint, within an epoch; the run that goes on must end as one
 * without a stop. */
static void stop_within_an_epoch(TestFolder *folder, int signal_number, int exit_status)
{
    const char *shards = make_set(folder, &train_plain);
    const char *out = test_path(folder, "stopped");
    const char *const first[] = {RICH, "--checkpoint-interval", "3", shards, out, NULL};
    const char *const second[] = {RICH, "--resume", "auto", shards, out, NULL};
    TRAINED(RICH, shards, test_path(folder, "whole"));
    RunResult result = stop_train("stopped/checkpoint.safetensors", signal_number, exit_status, first);
    run_result_free(&result);
    result = run_program_arguments(NULL, "ftrain", second);
    if (result.exit_status != 0)
        fail_msg("going on: %s", result.err);
    assert_contains(result.err,
                    "checkpoint.safetensors: epoch 0, step "); /* 3, or those that were under way */
    run_result_free(&result);
    assert_same_run(folder, "whole", "stopped");
}

TEST_IN_FOLDER(test_a_run_asked_to_stop_goes_on_bit_for_bit, folder)
{
    stop_within_an_epoch(folder, SIGUSR1, 75);
}

TEST_IN_FOLDER(test_a_killed_run_goes_on_from_its_last_checkpoint_bit_for_bit, folder)
{
    stop_within_an_epoch(folder, SIGKILL, 128 + SIGKILL);
}

TEST_IN_FOLDER(test_a_run_stopped_before_its_evaluation_goes_on_with_it, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    const char *shard = test_path(folder, "set/val-00000-of-00002.fshard");
    size_t length = 0;
    char *whole = test_file_read(shard, &length);
    TRAINED("--model", "conv8", "--epochs", "2", "--model-ema", shards, test_path(folder, "whole"));
    spoil_sample(folder, "val", 1);
    SAYS(1, "val-00000-of-00002.fshard record 1", "--model", "conv8", "--epochs", "2", "--model-ema", shards,
         out);
    test_file_write(shard, whole, length);
    free(whole);
    SAYS(0, "epoch 0, step 5", "--model", "conv8", "--epochs", "2", "--model-ema", "--resume", "auto", shards,
         out);
    assert_same_run(folder, "whole", "stopped");
}

TEST_IN_FOLDER(test_a_bad_sample_in_training_does_not_cost_what_was_learnt, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    const char *shard = test_path(folder, "set/train-00000-of-00002.fshard");
    size_t length = 0;
    char *whole = test_file_read(shard, &length);
    TRAINED("--model", "conv8", "--epochs", "2", "--batch-size", "2", "--model-ema", shards,
            test_path(folder, "whole"));
    spoil_sample(folder, "train", 3);
    RunResult result =
        TRAIN(1, "--model", "conv8", "--epochs", "2", "--batch-size", "2", "--model-ema", shards, out);
    assert_contains(result.err, "train-00000-of-00002.fshard record 3");
    assert_contains(result.err,
                    "what was learnt before the error below is saved; --resume auto goes on from there, "
                    "with --on-error skip without what cannot be read");
    run_result_free(&result);
    test_file_write(shard, whole, length);
    free(whole);
    SAYS(0, "checkpoint.safetensors: epoch 0, step ", "--model", "conv8", "--epochs", "2", "--batch-size",
         "2", "--model-ema", "--resume", "auto", shards, out);
    assert_same_run(folder, "whole", "stopped");
}

static void goes_on_from_a_full_disk(TestFolder *folder, const char *shards, const char *name, uint64_t room)
{
    const char *out = test_path(folder, "%s", name);
    const RunOptions options = {.limit_disk = true, .disk_bytes = room};
    const char *const arguments[] = {"--model", "conv8", "--epochs", "4", "--model-ema", shards, out, NULL};
    RunResult result = expect_train(1, &options, arguments);
    assert_contains(result.err, "checkpoint.safetensors");
    assert_contains(result.err, "No space left on device");
    assert_contains(result.err, "the file before it, if any, is untouched, training goes on");
    assert_contains(result.err, "make room, then --resume auto");
    assert_contains(result.out, "4 epochs in");
    assert_contains_not(result.out, "last.safetensors"); /* what is there is not the newest */
    run_result_free(&result);
    SAYS(0, "goes on from", "--model", "conv8", "--epochs", "4", "--model-ema", "--resume", "auto", shards,
         out);
    assert_same_run(folder, "whole", name);
}

TEST_IN_FOLDER(test_a_full_disk_leaves_a_checkpoint_that_goes_on, folder)
{
    const char *shards = make_set(folder, &train_plain);
    TRAINED("--model", "conv8", "--epochs", "4", "--model-ema", shards, test_path(folder, "whole"));
    const uint64_t weights = test_file_size(test_path(folder, "whole/last.safetensors")),
                   checkpoint = test_file_size(test_path(folder, "whole/checkpoint.safetensors"));
    /* Room for what the first epoch leaves, and half of what the second does. */
    goes_on_from_a_full_disk(folder, shards, "later", 2 * (3 * weights + checkpoint));
    /* Or for a part of the first's: the checkpoint comes before all else that is learnt. */
    goes_on_from_a_full_disk(folder, shards, "first", 2 * weights + checkpoint);
}

/* Asserts what the link, FOLDER/stopped/model.safetensors, points to; NULL: that there is none. */
static void check_link(TestFolder *folder, const char *target)
{
    char text[64] = "";
    const ssize_t length = readlink(test_path(folder, "stopped/model.safetensors"), text, sizeof text - 1);
    assert_int_equal(length, target ? (ssize_t)strlen(target) : -1);
    assert_string_equal(text, target ? target : "");
    assert_true(!target || file_exists(test_path(folder, "stopped/model.safetensors")));
}

TEST_IN_FOLDER(test_no_link_to_the_best_weights_is_there_before_them, folder)
{
/* evaluated at the end alone: a thousand steps after the first checkpoint, which is written beside them */
#define INTERRUPTED "--model", "conv8", "--epochs", "50", "--val-interval", "50", "--batch-size", "2"
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    const char *const first[] = {INTERRUPTED, "--checkpoint-interval", "2", shards, out, NULL};
    RunResult result = stop_train("stopped/checkpoint.safetensors", SIGUSR1, 75, first);
    run_result_free(&result);
    check_link(folder, NULL);
    /* A link to nothing, as earlier versions left it, goes; the best weights make theirs. */
    assert_int_equal(symlink("model_best.safetensors", test_path(folder, "stopped/model.safetensors")), 0);
    TRAINED(INTERRUPTED, "--resume", "auto", shards, out);
    check_link(folder, "model_best.safetensors");
    /* Killed between the two. */
    assert_int_equal(unlink(test_path(folder, "stopped/model.safetensors")), 0);
    TRAINED(INTERRUPTED, "--resume", "auto", shards, out);
    check_link(folder, "model_best.safetensors");
    DatasetSpec spec = train_plain;
    spec.val_count = 0;
    dataset_make(test_path(folder, "alone"), &spec);
    TRAINED("--model", "conv8", "--epochs", "1", "--force", test_path(folder, "alone"), out);
    check_link(folder, "last.safetensors");
}

TEST_IN_FOLDER(test_resume_auto_begins_where_nothing_was_saved, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result =
        TRAIN(0, "--model", "conv8", "--epochs", "2", "--resume", "auto", shards, test_path(folder, "none"));
    assert_contains_not(result.err, "goes on");
    run_result_free(&result);

    /* Killed in its first epoch. */
    test_file_write_text(test_path(folder, "out/args.json"), "{\"version\": \"0\", \"chosen\": {}}");
    test_file_write_text(test_path(folder, "out/summary.csv"), "epoch,time\n");
    test_file_write_text(test_path(folder, "out/metrics.jsonl"), "{\"event\":\"step\"}\n");
    test_file_write_text(test_path(folder, "out/config.json"), "{}");
    assert_int_equal(symlink("model_best.safetensors", test_path(folder, "out/model.safetensors")), 0);
    TRAINED("--model", "conv8", "--epochs", "2", "--resume", "auto", shards, out);
    assert_same_file(folder, "none", "out", true);
    assert_true(summary_number(out, 1, "epoch") == 1);

    /* Weights without a checkpoint, or the user's own file, are not thrown away. */
    assert_int_equal(remove(test_path(folder, "out/checkpoint.safetensors")), 0);
    SAYS(1, "but no checkpoint to go on from", "--model", "conv8", "--epochs", "2", "--resume", "auto",
         shards, out);
    test_file_write_text(test_path(folder, "own/args.json"), "{\"version\": \"0\", \"chosen\": {}}");
    test_file_write_text(test_path(folder, "own/notes.txt"), "mine");
    SAYS(1, "exists and is not empty (notes.txt)", "--model", "conv8", "--epochs", "2", "--resume", "auto",
         shards, test_path(folder, "own"));
    /* Others have tables of the same names. */
    test_file_write_text(test_path(folder, "timm/args.json"), "{}");
    test_file_write_text(test_path(folder, "timm/summary.csv"), "epoch,train_loss\n");
    SAYS(1, "exists and is not empty", "--model", "conv8", "--epochs", "2", "--resume", "auto", shards,
         test_path(folder, "timm"));
    assert_int_equal(test_count_files(test_path(folder, "timm")), 2);
}

TEST_IN_FOLDER(test_a_run_begun_with_weights_goes_on, folder)
{
    const char *shards = make_set(folder, &train_plain), *weights = test_path(folder, "a/last.safetensors");
    const char *out = test_path(folder, "b");
    TRAINED("--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    /* The same command twice, as a batch system gives it: the second finds the run done. */
    TRAINED("--model", "conv8", "--epochs", "2", "--weights", weights, "--resume", "auto", shards, out);
    assert_int_equal(remove(weights), 0);
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "2", "--weights", weights, "--resume",
         "auto", shards, out);
    SAYS(2, "--weights begins a new run", "--model", "conv8", "--weights", weights, "--resume", out, shards,
         test_path(folder, "c"));
}

TEST_IN_FOLDER(test_a_finished_run_has_nothing_left_to_do, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--model", "conv8", "--epochs", "2", shards, out);
    const char *last = test_path(folder, "out/last.safetensors");
    size_t length = 0;
    char *before = test_file_read(last, &length);
    char *rows = summary_without_time(out);
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "2", "--resume", "auto", shards, out);
    assert_contains(result.err, "the run ended after 2 epochs; nothing is left to do");
    assert_contains_not(result.err, "Epoch: [");
    assert_contains(result.out, "best top-1");
    run_result_free(&result);
    char *after = test_file_read(last, NULL), *rows_after = summary_without_time(out);
    assert_memory_equal(before, after, length);
    assert_string_equal(rows, rows_after);
    free(before);
    free(after);
    free(rows);
    free(rows_after);
}

/* 1 was the default once; what 0 comes to is the same run. */
TEST_IN_FOLDER(test_an_interval_that_comes_to_the_same_is_the_same, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--model", "conv8", "--epochs", "2", "--val-interval", "1", shards, out);
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "2", "--resume", "auto", shards, out);
    SAYS(1, "--val-interval 2 (was 1)", "--model", "conv8", "--epochs", "2", "--val-interval", "2",
         "--resume", "auto", shards, out);
}

/* --force would empty the folder that the checkpoint was just read from. */
TEST_IN_FOLDER(test_a_run_goes_on_in_its_folder_by_whatever_path, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *last = test_path(folder, "out/last.safetensors");
    TRAINED("--model", "conv8", "--epochs", "2", shards, out);
    const int files = test_count_files(out);
    (void)sleep(1); /* events files have the second in their names */
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "2", "--resume",
         test_path(folder, "out/."), shards, out);
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "2", "--force", "--resume", out, shards,
         test_path(folder, "set/../out"));
    assert_int_equal(test_count_files(out), files);
    assert_true(test_file_size(last) > 1000);
}

TEST_IN_FOLDER(test_a_dry_run_reads_what_a_run_would_go_on_from, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *checkpoint = test_path(folder, "out/checkpoint.safetensors");
#define FORESEEN "--dry-run", "--model", "conv8", "--epochs", "2"
    SAYS(0, "training: 2 epochs", FORESEEN, "--resume", "auto", shards, out);
    SAYS(0, "training: 2 epochs", FORESEEN, "--resume", "auto", shards); /* no OUTPUT */
    SAYS(1, "out/checkpoint.safetensors: ", FORESEEN, "--resume", checkpoint, shards);
    TRAINED("--model", "conv8", "--epochs", "2", "--batch-size", "8", shards, out);
    SAYS(0, "out/checkpoint.safetensors: the run ended after 2 epochs", FORESEEN, "--batch-size", "8",
         "--resume", "auto", shards, out);
    SAYS(1, "each update of the run took 8 images", FORESEEN, "--batch-size", "10", "--resume", out, shards);
    test_file_flip_byte(checkpoint, 9);
    SAYS(1, "out/checkpoint.safetensors: ", FORESEEN, "--batch-size", "8", "--resume", "auto", shards, out);
#undef FORESEEN
}

/* Returns how many steps long --dry-run, with --json, expects the run to be that goes on by these arguments;
 * *done_ret: the steps of epochs of 20 that it says are behind it. */
static double steps_foreseen(const char *const *arguments, int *done_ret)
{
    int epoch = 0, step = 0;
    RunResult result = expect_train(0, NULL, arguments);
    const char *place = strstr(result.err, "checkpoint.safetensors: epoch ");
    if (place)
        assert_int_equal(sscanf(place, "checkpoint.safetensors: epoch %d, step %d", &epoch, &step), 2);
    *done_ret = 20 * epoch + step;
    json_t *object = read_json(result.out);
    const double steps = number_of(object, "expected_seconds") / number_of(object, "step_seconds");
    json_decref(object);
    run_result_free(&result);
    return steps;
}

TEST_IN_FOLDER(test_a_dry_run_expects_what_is_left_of_a_run, folder)
{
#define LONG_RUN "--model", "conv8", "--epochs", "50", "--batch-size", "2"
    DatasetSpec spec = train_plain;
    spec.val_count = 0; /* whose time is another */
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "stopped");
    const char *const first[] = {LONG_RUN, "--checkpoint-interval", "7", shards, out, NULL};
    const char *const second[] = {LONG_RUN, "--dry-run", "--json", "--resume", "auto", shards, out, NULL};
    int done = 0;
    double steps = steps_foreseen(second, &done);
    assert_true(steps > 999 && steps < 1001);
    RunResult result = stop_train("stopped/checkpoint.safetensors", SIGUSR1, 75, first);
    run_result_free(&result);
    steps = steps_foreseen(second, &done);
    assert_true(done > 0);
    if (!(steps > 999 - done && steps < 1001 - done))
        fail_msg("%g steps are left after %d of 1000", steps, done);
    TRAINED(LONG_RUN, "--resume", "auto", shards, out);
    assert_true(steps_foreseen(second, &done) == 0);
#undef LONG_RUN
}

TEST_IN_FOLDER(test_other_options_are_listed, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--model", "conv8", "--epochs", "2", shards, out);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "3", "--lr", "0.25", "--mixup-alpha", "0.5",
                             "--resume", "auto", shards, out);
    assert_contains(result.err, "out/checkpoint.safetensors: the run had other options: ");
    assert_contains(result.err, "--epochs 3 (was 2)");
    assert_contains(result.err, "--lr 0.25 (was 0.00625, the default)");
    assert_contains(result.err, "--mixup-alpha 0.5 (was 0, the default)");
    assert_contains_not(result.err, "--seed");
    assert_contains_not(result.err, "--lr-warmup-epochs"); /* which follows from --epochs */
    SAYS(1, "out/checkpoint.safetensors: the run had other options: --epochs 3 (was 2)", "--dry-run",
         "--model", "conv8", "--epochs", "3", "--resume", "auto", shards, out);
    const char *last = test_path(folder, "out/last.safetensors"), *way = strstr(result.err, "--weights ");
    assert_non_null(way); /* the way on that it names is one */
    assert_memory_equal(way + strlen("--weights "), last, strlen(last));
    run_result_free(&result);
    /* How it is shown and how fast it is made may change. */
    TRAINED("--model", "conv8", "--epochs", "2", "--log-interval", "1", "--workers", "2", "--val-batch-size",
            "3", "--resume", "auto", shards, out);
}

TEST_IN_FOLDER(test_a_run_goes_on_with_what_it_chose_and_no_other_value, folder)
{
#define CHOSEN_BY "--model", "conv8", "--epochs", "2"
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED(CHOSEN_BY, shards, out);
    SAYS(0, "nothing is left to do", CHOSEN_BY, "--lr", "0.00625", "--batch-size", "8", "--opt", "sgd",
         "--loss", "cross-entropy", "--weight-decay", "5e-4", "--lr-warmup-epochs", "0.4", "--amp", "off",
         "--train-crop-size", "32", "--train-crop-mode", "pad", "--crop-padding", "4", "--resume", "auto",
         shards, out);
    SAYS(1, ": --crop-padding 2 (was 4, the default); give", CHOSEN_BY, "--crop-padding", "2", "--resume",
         "auto", shards, out);
    /* muon's momentum is another than 0.9, the table's. */
    const char *muon = test_path(folder, "muon");
    TRAINED(CHOSEN_BY, "--opt", "muon", shards, muon);
    SAYS(0, "nothing is left to do", CHOSEN_BY, "--opt", "muon", "--momentum", "0.95", "--resume", "auto",
         shards, muon);
    SAYS(1, ": --momentum 0.9 (was 0.95, the default); give", CHOSEN_BY, "--opt", "muon", "--momentum", "0.9",
         "--resume", "auto", shards, muon);
    TRAINED(CHOSEN_BY, "--opt", "muon", "--momentum", "0.9", "--force", shards, muon);
    SAYS(1, ": --momentum 0.95, the default (was 0.9); give", CHOSEN_BY, "--opt", "muon", "--resume", "auto",
         shards, muon);
    /* Versions that noted no such choices compared what was given. */
    const char *checkpoint = test_path(folder, "out/checkpoint.safetensors");
    forget_checksums(checkpoint);
    replace_in_file(checkpoint, "\\\"chosen\\\":", "\\\"chozen\\\":");
    SAYS(0, "nothing is left to do", CHOSEN_BY, "--resume", "auto", shards, out);
    SAYS(1, ": --lr 0.00625 (was 0, the default); give", CHOSEN_BY, "--lr", "0.00625", "--resume", "auto",
         shards, out);
#undef CHOSEN_BY
}

/* What is chosen for a machine may be another number on the next one: 9 stands for that. */
TEST_IN_FOLDER(test_a_run_keeps_the_batch_that_it_began_with, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--model", "conv8", "--epochs", "2", "--batch-size", "9", shards, out);
    SAYS(0, "nothing is left to do", "--model", "conv8", "--epochs", "2", "--resume", "auto", shards, out);
    SAYS(1, "start with --batch-size 9", "--model", "conv8", "--epochs", "2", "--batch-size", "8", "--resume",
         "auto", shards, out);
}

TEST_IN_FOLDER(test_a_checkpoint_of_something_else_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "b");
    const char *checkpoint = test_path(folder, "a/checkpoint.safetensors");
    TRAINED("--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    REFUSED(1, "checkpoint.safetensors: is of a run of conv8, not of resnet9", out, "--model", "resnet9",
            "--epochs", "1", "--resume", checkpoint, shards);
    REFUSED(1, "holds weights and no state of a run", out, "--model", "conv8", "--epochs", "1", "--resume",
            test_path(folder, "a/last.safetensors"), shards);
    REFUSED(1, "No such file", out, "--model", "conv8", "--resume", test_path(folder, "none"), shards);
    REFUSED(1, "--resume: 'auot' is no checkpoint or output folder that exists; did you mean auto?", out,
            "--model", "conv8", "--resume", "auot", shards);
    /* A folder for its checkpoint, and a run that goes on in another folder. */
    TRAINED("--model", "conv8", "--epochs", "1", "--resume", test_path(folder, "a"), shards,
            test_path(folder, "c"));
    /* Another dataset, though names and sizes are those of this one. */
    DatasetSpec spec = train_plain;
    spec.other_byte = true;
    dataset_make(test_path(folder, "other"), &spec);
    REFUSED(1, "is of a run on another dataset than", out, "--model", "conv8", "--epochs", "1", "--resume",
            checkpoint, test_path(folder, "other"));
    forget_checksums(checkpoint);
    /* One epoch of five steps: six are none of its places. */
    replace_in_file(checkpoint, "\\\"steps_done\\\":5", "\\\"steps_done\\\":6");
    REFUSED(1, "6 steps in all: no place in this run", out, "--model", "conv8", "--epochs", "1", "--resume",
            checkpoint, shards);
    replace_in_file(checkpoint, "steps_done", "steps_dime");
    REFUSED(1, "'steps_done' in its notes is missing", out, "--model", "conv8", "--epochs", "1", "--resume",
            checkpoint, shards);
    test_file_truncate(checkpoint, -7);
    REFUSED(1, "checkpoint.safetensors: ", out, "--model", "conv8", "--epochs", "1", "--resume", checkpoint,
            shards);
}

/* Epochs of earlier versions, which noted no steps, ended where the images did: here amid an update. */
TEST_IN_FOLDER(test_a_run_whose_epochs_were_counted_otherwise_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out"),
               *checkpoint = test_path(folder, "a/checkpoint.safetensors");
    TRAINED("--model", "conv8", "--epochs", "1", "--grad-accum-steps", "2", shards, test_path(folder, "a"));
    forget_checksums(checkpoint);
    replace_in_file(checkpoint, "\\\"steps\\\":", "\\\"stepz\\\":");
    REFUSED(1, "ended amid an update; this version's end with one; end the run with that version, or", out,
            "--model", "conv8", "--epochs", "1", "--grad-accum-steps", "2", "--resume", checkpoint, shards);
}

TEST_IN_FOLDER(test_the_best_epochs_are_kept, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    enum { EPOCHS = 8, KEPT = 3 };
    TRAINED("--model", "conv8", "--epochs", "8", "--lr", "0.02", "--checkpoint-hist", "3", shards, out);
    double values[EPOCHS];
    size_t there = 0, best = 0;
    for (size_t i = 0; i < EPOCHS; i++) {
        values[i] = summary_number(out, i, "eval_top1");
        best = values[i] > values[best] ? i : best;
    }
    for (size_t i = 0; i < EPOCHS; i++) {
        size_t better = 0; /* or as good, and later */
        for (size_t k = 0; k < EPOCHS; k++)
            better += values[k] > values[i] || (values[k] == values[i] && k > i);
        const bool kept = file_exists(test_path(folder, "out/checkpoint-%zu.safetensors", i));
        there += kept;
        if (kept != (better < KEPT))
            fail_msg("epoch %zu: top-1 %g, %zu are better, %s", i, values[i], better, kept ? "kept" : "left");
    }
    assert_int_equal(there, KEPT);
    SAYS(2, "--checkpoint-hist", "--checkpoint-hist", "101", shards, test_path(folder, "more"));
}

/* Fewer are kept from where the run goes on: the others leave. */
TEST_IN_FOLDER(test_a_run_may_go_on_with_fewer_epochs_kept, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 0; /* the newest are the best */
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    const char *const first[] = {
        "--jobs", "1",    "--model", "conv8", "--epochs", "1000000", "--checkpoint-hist",
        "100",    "--lr", "0.001",   shards,  out,        NULL};
    const char *const second[] = {
        "--jobs", "1",        "--model", "conv8", "--epochs", "1000000", "--checkpoint-hist", "2", "--lr",
        "0.001",  "--resume", "auto",    shards,  out,        NULL};
    /* After a hundred epochs, and after one more. */
    RunResult result = stop_train("out/checkpoint-99.safetensors", SIGTERM, 75, first);
    run_result_free(&result);
    assert_true(test_count_files(out) > 100);
    result = stop_train("out/last.safetensors", SIGTERM, 75, second);
    run_result_free(&result);
    assert_int_equal(test_count_files(out),
                     5 + 2 + REPORT_FILES + 1); /* tables, last, checkpoint; the two; two event files */
}
