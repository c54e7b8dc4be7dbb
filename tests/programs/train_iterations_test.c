/* ftrain from outside: a run that is counted in iterations. */
#include "tests/programs/train_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

/* 40 samples are 5 updates of 8. */
#define CONV8 "--model", "conv8", "--batch-size", "8"

/* A whole number of epochs is the same run, however it is counted. */
TEST_IN_FOLDER(test_iterations_of_whole_epochs_are_those_epochs, folder)
{
    const char *shards = make_set(folder, &train_plain);
    TRAINED(CONV8, "--epochs", "3", shards, test_path(folder, "epochs"));
    TRAINED(CONV8, "--iters", "15", shards, test_path(folder, "iters"));
    TRAINED(CONV8, "--epochs", "3", "--val-every", "5", shards, test_path(folder, "every"));
    assert_same_file(folder, "epochs", "iters", true);
    assert_same_file(folder, "epochs", "every", true);
    static const char *const columns[] = {"epoch", "train_loss", "eval_loss", "eval_top1", "lr"};
    for (size_t row = 0; row < 3; row++) {
        assert_int_equal((int)summary_number(test_path(folder, "iters"), row, "iteration"), 5 * (row + 1));
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            assert_true(summary_number(test_path(folder, "iters"), row, columns[c]) ==
                        summary_number(test_path(folder, "epochs"), row, columns[c]));
    }
}

/* Evaluations fall into the middle of epochs, the last stretch is a shorter one, and log, tables, page and
 * result count iterations. */
TEST_IN_FOLDER(test_evaluations_fall_within_epochs, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, CONV8, "--iters", "18", "--val-every", "7", "--lr-scheduler", "linear",
                             "--lr", "0.01", "--lr-warmup-iters", "3", "--log-interval", "4", shards, out);
    static const char *const said[] = {
        "split train: 40 samples, 5 steps of 8 (0 samples left out of each epoch)",
        "training: 18 iterations (3.6 epochs), evaluated every 7, cross-entropy",
        "linear, warm-up 3 steps",
        "Iteration: [ 1/18]",
        "Iteration: [ 4/18]",
        "Iteration: [ 7/18]",
        "Iteration: [16/18]",
        "Iteration: [18/18]",
        "iteration 7 of 18: loss ",
        "iteration 14 of 18: loss ",
        "iteration 18 of 18: loss ",
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_contains(result.err, said[i]);
    assert_contains_not(result.err, "Epoch: ");
    assert_contains_not(result.err, "epoch 0");
    assert_contains(result.out, " (iteration ");
    assert_contains(result.out, "18 iterations in ");
    run_result_free(&result);
    char *table = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_int_equal(count_lines(table), 4);
    assert_contains(table, "epoch,iteration,time,train_loss,eval_loss,");
    free(table);
    static const int iterations[] = {7, 14, 18};
    for (size_t row = 0; row < 3; row++) {
        assert_int_equal((int)summary_number(out, row, "iteration"), iterations[row]);
        assert_true(summary_number(out, row, "eval_top1") >= 0);
        /* of the last step of the stretch, number n - 1: 0.01 (1 - (n - 1 - 3) / 15) */
        const double rate = 0.01 * (1 - (iterations[row] - 4) / 15.0);
        assert_true(summary_number(out, row, "lr") > 0.9999 * rate &&
                    summary_number(out, row, "lr") < 1.0001 * rate);
    }
    char *page = test_file_read(test_path(folder, "out/report.html"), NULL);
    assert_contains(page, "</b>: 18 of 18 iterations");
    assert_contains(page, "<th class=\"n\">iteration");
    assert_contains_not(page, "Epochs");
    free(page);
}

/* Updates of several batches are iterations, too. */
TEST_IN_FOLDER(test_an_iteration_is_an_update, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--model", "conv8", "--batch-size", "4", "--grad-accum-steps", "2", "--iters",
                             "7", "--val-every", "3", "--json", shards, out);
    assert_contains(result.err, "training: 7 iterations (1.4 epochs), evaluated every 3");
    json_t *object = read_json(result.out);
    assert_int_equal((int)number_of(object, "epochs"), 3);
    json_decref(object);
    run_result_free(&result);
    assert_int_equal((int)summary_number(out, 2, "iteration"), 7);
}

static void assert_same_run(TestFolder *folder)
{
    static const char *const names[] = {"last.safetensors", "model_best.safetensors"};
    for (size_t i = 0; i < 2; i++)
        assert_true(
            same_bytes(test_path(folder, "whole/%s", names[i]), test_path(folder, "stopped/%s", names[i])));
    char *whole = summary_without_time(test_path(folder, "whole")),
         *stopped = summary_without_time(test_path(folder, "stopped"));
    assert_string_equal(whole, stopped);
    free(whole);
    free(stopped);
}

TEST_IN_FOLDER(test_a_run_of_iterations_goes_on_bit_for_bit, folder)
{
#define RUN                                                                                                  \
    "--jobs", "1", "--model", "conv8", "--batch-size", "4", "--iters", "47", "--val-every", "13",            \
        "--grad-accum-steps", "2", "--aug-repeats", "2", "--lr", "0.003"
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "stopped");
    const char *const first[] = {RUN, "--checkpoint-interval", "7", shards, out, NULL};
    TRAINED(RUN, shards, test_path(folder, "whole"));
    RunResult result = stop_train("stopped/checkpoint.safetensors", SIGUSR1, 75, first);
    assert_contains(result.err, "interrupted in iteration ");
    run_result_free(&result);
    SAYS(0, "checkpoint.safetensors: iteration ", RUN, "--resume", "auto", shards, out);
    assert_same_run(folder);
    SAYS(0, "the run ended after 47 iterations; nothing is left to do", RUN, "--resume", "auto", shards, out);
}

TEST_IN_FOLDER(test_pairs_are_counted_in_iterations, folder)
{
    const char *shards = make_set(folder, &train_negatives), *out = test_path(folder, "out");
    TRAINED("--model", "unet", "--width", "8", "--batch-size", "4", "--iters", "13", "--val-every", "5",
            shards, out); /* an epoch is 6 */
    static const int iterations[] = {5, 10, 13};
    for (size_t row = 0; row < 3; row++) {
        assert_int_equal((int)summary_number(out, row, "iteration"), iterations[row]);
        assert_true(summary_number(out, row, "eval_psnr") > 0);
    }
}

TEST_IN_FOLDER(test_what_is_counted_in_epochs_is_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(2, "--epochs: does nothing here; it is for runs without --iters", out, CONV8, "--iters", "10",
            "--epochs", "2", shards);
    REFUSED(2, "--val-interval: does nothing here; it is for runs without --val-every", out, CONV8,
            "--val-every", "10", "--val-interval", "2", shards);
    REFUSED(2, "--lr-warmup-epochs: does nothing here; it is for runs without --lr-warmup-iters", out, CONV8,
            "--lr-warmup-iters", "3", "--lr-warmup-epochs", "1", shards);
    REFUSED(2, "--lr-warmup-iters: 10 leaves nothing of 10 iterations", out, CONV8, "--lr-warmup-iters", "10",
            "--iters", "10", shards);
    REFUSED(2, "--lr-warmup-iters: with --lr-unit epoch the warm-up is in whole epochs", out, CONV8,
            "--lr-warmup-iters", "3", "--lr-unit", "epoch", shards);
    REFUSED(2, "--lr-unit: does nothing here; it is for runs that are counted in epochs", out, CONV8,
            "--iters", "10", "--lr-unit", "epoch", shards);
    REFUSED(2, "--progressive: does nothing here; it is for runs that are counted in epochs", out, "--model",
            "resnet9", "--iters", "10", "--progressive", "16:32", shards);
    REFUSED(2, "--lr-step-size: give the iterations between two drops", out, CONV8, "--iters", "10",
            "--lr-scheduler", "step", shards);
}

/* What a recipe says of epochs gives way to iterations that are asked for. */
TEST_IN_FOLDER(test_a_recipe_is_run_for_iterations, folder)
{
    RunResult result =
        TRAIN(0, "--recipe", "convnext", "--model", "convnext_atto", "--train-crop-size", "32",
              "--val-crop-size", "32", "--crop-pct", "0.9", "--batch-size", "8", "--grad-accum-steps", "1",
              "--iters", "12", "--lr-warmup-iters", "3", "--dry-run", make_set(folder, &train_plain));
    assert_contains(result.err, "training: 12 iterations (2.4 epochs), ");
    assert_contains(result.err, "cosine, warm-up 3 steps");
    assert_contains(result.err, "short edge to 35, centre 32 pixels");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_rates_drop_after_iterations, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED(CONV8, "--iters", "12", "--val-every", "3", "--lr", "0.01", "--lr-scheduler", "step",
            "--lr-step-size", "4", "--lr-gamma", "0.5", "--lr-warmup-epochs", "0", shards, out);
    static const double rates[] = {0.01, 0.005, 0.0025, 0.0025}; /* of steps 2, 5, 8 and 11 */
    for (size_t row = 0; row < 4; row++)
        assert_true(summary_number(out, row, "lr") == rates[row]);
#define STEPS                                                                                                \
    "--val-every", "3", "--lr", "0.01", "--lr-scheduler", "step", "--lr-gamma", "0.5", "--lr-warmup-epochs", \
        "0", "--force"
    TRAINED(CONV8, "--iters", "12", STEPS, "--lr-milestones", "4,8", shards, out);
    for (size_t row = 0; row < 4; row++)
        assert_true(summary_number(out, row, "lr") == rates[row]);
    const char *none = test_path(folder, "none");
    REFUSED(2, "--lr-milestones: the run ends before iteration 12", none, CONV8, "--iters", "12", STEPS,
            "--lr-milestones", "4,12", shards);
    REFUSED(2, "is not a list of whole numbers, each larger", none, CONV8, "--iters", "12", STEPS,
            "--lr-milestones", "4,4", shards);
    REFUSED(2, "--lr-step-size: does nothing here; it is for runs without --lr-milestones", none, CONV8,
            "--iters", "12", STEPS, "--lr-milestones", "4", "--lr-step-size", "3", shards);
    REFUSED(2, "--lr-milestones: does nothing here", none, CONV8, "--lr-milestones", "4", shards);
}
