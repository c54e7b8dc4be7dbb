/* ftrain from outside: what stops it or gets in its way - signals, a full disk, samples gone bad, numbers
 * that are none - and how it goes on. */
#include "tests/programs/train_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/progress.h"
#include "trainer/checkpoint/safetensors.h"

enum { SLOW_SECONDS = 300 };

TEST_IN_FOLDER(test_a_record_gone_bad_stops_with_its_name_or_is_skipped, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    spoil_sample(folder, "train", 3);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", "--batch-size", "20", shards, out);
    assert_contains(result.err, "train-00000-of-00002.fshard");
    assert_contains(result.err, "record 3");
    assert_contains(result.err, "train/class03/000003.png");
    run_result_free(&result);

    result = TRAIN(1, "--model", "conv8", "--epochs", "2", "--batch-size", "20", "--on-error", "skip",
                   "--force", shards, out);
    assert_contains(result.err, "warning: ");
    assert_contains(result.err, "train-00000-of-00002.fshard record 3");
    assert_contains(result.err, "skipped");
    assert_contains(result.err, "1 sample could not be read");
    assert_contains(result.out, "best top-1");
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
    run_result_free(&result);
}

/* Starts a run whose steps take many seconds, and which begins after a minute and more under a sanitizer
 * beside other tests. last: OUTPUT, or -n. */
static RunningProgram start_slow_steps(const char *shards, const char *last)
{
    const RunOptions options = {.timeout_seconds = SLOW_SECONDS};
    const char *const arguments[] = {
        "--jobs",       "1", "--device", "cpu", "--model", "resnet101", "--train-crop-size", "512",
        "--batch-size", "4", shards,     last,  NULL};
    return run_start(&options, "ftrain", arguments);
}

/* Waits for the end, which comes within two seconds of `begin`, by SIGINT. */
static RunResult wait_for_prompt_end(RunningProgram *running, double begin)
{
    const RunResult result = run_wait(running);
    assert_true(progress_now_seconds() - begin < 2);
    assert_int_equal(result.exit_status, 128 + SIGINT);
    return result;
}

TEST_IN_FOLDER(test_a_dry_run_ends_at_once, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunningProgram running = start_slow_steps(shards, "-n");
    run_wait_for_text(&running, "timing a step of 4 images, ");
    const double begin = progress_now_seconds();
    assert_int_equal(kill(running.process, SIGINT), 0);
    RunResult result = wait_for_prompt_end(&running, begin);
    assert_contains(result.out, "layer3  ");
    run_result_free(&result);
}

/* The answer does not wait for the step, and the second signal does not either. */
TEST_IN_FOLDER(test_training_says_at_once_what_a_signal_will_do, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunningProgram running = start_slow_steps(shards, out);
    assert_true(wait_for_file(test_path(folder, "out/report.html"), SLOW_SECONDS));
    const double begin = progress_now_seconds();
    assert_int_equal(kill(running.process, SIGINT), 0);
    run_wait_for_text(&running, "ftrain: ends after this step and saves its state; Ctrl-C again ends it at");
    assert_int_equal(kill(running.process, SIGINT), 0);
    RunResult result = wait_for_prompt_end(&running, begin);
    assert_contains_not(result.err, "interrupted in");
    run_result_free(&result);
}

/* Looked at before training for its size, too. */
TEST_IN_FOLDER(test_a_record_whose_header_is_bad_is_skipped, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *shard = test_path(folder, "set/train-00000-of-00002.fshard");
    size_t length = 0;
    char *bytes = test_file_read(shard, &length), *record = memmem(bytes, length, "FREC", 4);
    assert_non_null(record);
    record[0] = 'X';
    test_file_write(shard, bytes, length);
    free(bytes);
    SAYS(1, "train-00000-of-00002.fshard record 0", "--model", "conv8", "--epochs", "1", shards,
         test_path(folder, "stopped"));
    SAYS(1, "1 sample could not be read", "--model", "conv8", "--epochs", "1", "--on-error", "skip", shards,
         out);
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
}

TEST_IN_FOLDER(test_a_bad_sample_in_evaluation_does_not_cost_what_was_learnt, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    spoil_sample(folder, "val", 3);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", shards, out);
    assert_contains(result.err, "val-00000-of-00002.fshard record 3");
    run_result_free(&result);
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
}

TEST_IN_FOLDER(test_an_epoch_without_samples_is_no_result, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    for (uint64_t i = 0; i < train_plain.train_count; i++)
        spoil_sample(folder, "train", i);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", "--batch-size", "20", "--on-error",
                             "skip", shards, out);
    assert_contains(result.err, "epoch 0: of the 40 samples that it took from split 'train' none could be");
    assert_contains_not(result.err, "loss 0.0000, Acc");
    assert_string_equal(result.out, "");
    assert_false(file_exists(test_path(folder, "out/last.safetensors")));
    run_result_free(&result);
}

TEST_IN_FOLDER(test_an_evaluation_of_nothing_is_no_result, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 2;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    spoil_sample(folder, "val", 0);
    spoil_sample(folder, "val", 1);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", "--on-error", "skip", shards, out);
    assert_contains(result.err, "no sample of split 'val' could be read");
    assert_string_equal(result.out, "");
    run_result_free(&result);
}

/* Returns the number of steps in the weights: num_batches_tracked of conv8's first norm. */
static int64_t steps_of(const char *path)
{
    Safetensors *file = NULL;
    FshError error = {0};
    int64_t steps;
    assert_ok(safetensors_open(&file, path, &error), &error);
    const SafetensorsEntry *entry = safetensors_find(file, "model.2.num_batches_tracked");
    assert_non_null(entry);
    memcpy(&steps, entry->data, sizeof steps);
    safetensors_close(&file);
    return steps;
}

/* Sends the signal to a long run of 40 steps an epoch. What the run says and what it has saved must agree to
 * the step. */
static void stop_with(TestFolder *folder, const char *shards, int signal_number, int exit_status,
                      uint64_t files)
{
    const char *out = test_path(folder, "out%d", signal_number);
    const char *weights = test_path(folder, "out%d/last.safetensors", signal_number);
    const char *const arguments[] = {"--jobs",  "1",        "--model", "conv8",     "--batch-size",
                                     "1",       "--epochs", "1000000", "--lr-base", "0.01",
                                     "--quiet", shards,     out,       NULL};
    RunningProgram running = run_start(NULL, "ftrain", arguments);
    assert_true(wait_for_file(weights, 30));
    char *live = test_file_read(test_path(folder, "out%d/report.html", signal_number), NULL);
    assert_contains(live, "<b>Running</b>: epoch ");
    assert_contains(live, " of 1000000), step ");
    assert_contains(live, "http-equiv=\"refresh\"");
    free(live);
    assert_int_equal(kill(running.process, signal_number), 0);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, exit_status);
    unsigned long long epoch, step;
    const char *message = strstr(result.err, "interrupted in epoch ");
    assert_non_null(message);
    assert_int_equal(sscanf(message, "interrupted in epoch %llu after %llu steps", &epoch, &step), 2);
    assert_contains_not(result.err, "ends after this step"); /* --quiet */
    assert_int_equal(steps_of(weights), epoch * 40 + step);
    run_result_free(&result);
    result = TRAIN(0, "--model", "conv8", "--evaluate", "--val-split", "train", "--weights", weights, shards);
    run_result_free(&result);
    assert_int_equal(test_count_files(out), files); /* no temporary file among them */
    char *page = test_file_read(test_path(folder, "out%d/report.html", signal_number), NULL);
    assert_contains(page, "Stopped</b> in epoch ");
    assert_contains(page, "--resume auto goes on");
    assert_contains_not(page, "http-equiv=\"refresh\""); /* nothing comes any more */
    free(page);
}

TEST_IN_FOLDER(test_a_signal_ends_it_with_weights_on_disk, folder)
{
    stop_with(folder, make_set(folder, &train_plain), SIGINT, 130, 8 + REPORT_FILES);
}

TEST_IN_FOLDER(test_a_signal_ends_training_without_evaluation_too, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 0;
    stop_with(folder, make_set(folder, &spec), SIGTERM, 75, 5 + REPORT_FILES);
}

TEST_IN_FOLDER(test_a_full_disk_costs_a_warning_and_not_the_run, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    /* Room for the tables, the first epoch's checkpoint and two or three times the 85 kB that conv8's weights
     * take. */
    const RunOptions options = {.limit_disk = true, .disk_bytes = 420000};
    const char *const arguments[] = {"--model",   "conv8", "--epochs", "4", "--no-tensorboard",
                                     "--no-html", shards,  out,        NULL};
    RunResult result = expect_train(1, &options, arguments);
    assert_contains(result.err, "No space left on device");
    assert_contains(result.err, "training goes on");
    assert_contains(result.err, "could not be saved");
    assert_contains(result.out, "4 epochs in");
    run_result_free(&result);
    /* What is there is whole. */
    result = TRAIN(0, "--model", "conv8", "--evaluate", "--weights",
                   test_path(folder, "out/last.safetensors"), shards);
    run_result_free(&result);
    assert_true(test_count_files(out) <= 8 + REPORT_FILES);
}

TEST_IN_FOLDER(test_a_disk_that_is_full_from_the_start_leaves_nothing, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "was"));
    run_result_free(&result);
    /* Full at once, and full after args.json. */
    const uint64_t rooms[] = {100, test_file_size(test_path(folder, "was/args.json")) + 10};
    for (size_t i = 0; i < 2; i++) {
        const RunOptions options = {.limit_disk = true, .disk_bytes = rooms[i]};
        const char *const arguments[] = {"--model", "conv8", "--epochs", "1", shards, out, NULL};
        result = expect_train(1, &options, arguments);
        assert_contains(result.err, "No space left on device");
        assert_false(file_exists(out));
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_a_loss_that_is_no_number_stops_with_advice, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(1, "--model", "conv8", "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs",
                             "50", shards, test_path(folder, "out"));
    assert_contains(result.err, "training has diverged; lower --lr");
    assert_contains(result.err, "samples: ");
    assert_true(test_file_size(test_path(folder, "out/diverged.safetensors")) > 1000);
    char *text = test_file_read(test_path(folder, "out/diverged.json"), NULL);
    json_t *object = read_json(text);
    const json_t *samples = json_object_get(object, "samples");
    assert_int_equal(json_array_size(samples), 8); /* a batch */
    for (size_t i = 0; i < 8; i++) {
        char key[32];
        const json_t *sample = json_array_get(samples, i);
        const unsigned index = (unsigned)number_of(sample, "index");
        (void)snprintf(key, sizeof key, "class%02u/%06u", index % 4, index);
        assert_string_equal(json_string_value(json_object_get(sample, "key")), key);
    }
    assert_true(number_of(object, "steps_done") ==
                number_of(object, "epoch") * 5 + number_of(object, "step"));
    assert_non_null(json_string_value(json_object_get(object, "loss")));
    json_decref(object);
    free(text);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_divergence_on_a_full_disk_does_not_say_that_it_is_saved, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const RunOptions options = {.limit_disk = true, .disk_bytes = 60000}; /* the tables; not conv8's state */
    const char *const arguments[] = {
        "--model",   "conv8", "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs", "50", "--no-tensorboard",
        "--no-html", shards,  out,    NULL};
    RunResult result = expect_train(1, &options, arguments);
    assert_contains(result.err, "training has diverged; lower --lr");
    assert_contains(result.err, "the state could NOT be saved to ");
    assert_null(strstr(result.err, "holds the state"));
    run_result_free(&result);
}
