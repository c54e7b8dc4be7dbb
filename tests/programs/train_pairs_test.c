/* ftrain from outside: pairs of images, restored, measured and written out. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "imaging/encode.h"

#define UNET "--model", "unet", "--width", "8"

static void train_pairs(TestFolder *folder, const char *shards, const char *epochs)
{
    TRAINED(UNET, "--epochs", epochs, "--batch-size", "4", "--lr", "0.004", shards, test_path(folder, "out"));
}

/* Returns what --evaluate --json prints with one more option. The weights know their network and its
 * width. */
static json_t *evaluate(TestFolder *folder, const char *shards, const char *option, const char *value)
{
    const char *weights = test_path(folder, "out/last.safetensors");
    const char *const arguments[] = {"--evaluate", "--json", "--weights",           weights,
                                     shards,       option,   option ? value : NULL, NULL};
    RunResult result = expect_train(0, NULL, arguments);
    json_t *object = read_json(result.out);
    run_result_free(&result);
    return object;
}

TEST_IN_FOLDER(test_pairs_come_out_better_than_they_went_in, folder)
{
    const char *shards = make_set(folder, &train_negatives), *out = test_path(folder, "out");
    RunResult result =
        TRAIN(0, UNET, "--epochs", "12", "--batch-size", "4", "--lr", "0.004", "--json", shards, out);
    json_t *trained = read_json(result.out);
    const double psnr = number_of(trained, "best_psnr"), input = number_of(trained, "best_input_psnr");
    if (psnr < input + 6)
        fail_msg("PSNR %g, of the input %g\n%s", psnr, input, result.err);
    assert_contains(result.err, "charbonnier");
    run_result_free(&result);
    const size_t best = (size_t)number_of(trained, "best_epoch");
    assert_true(fabs(summary_number(out, best, "eval_psnr") - psnr) < 1e-3);

    /* The best weights alone give what was reported, and so does the best epoch's row. */
    result = TRAIN(0, "--width", "8", "--evaluate", "--json", "--weights",
                   test_path(folder, "out/model_best.safetensors"), shards);
    json_t *evaluated = read_json(result.out);
    assert_true(number_of(evaluated, "psnr") == psnr);
    assert_true(number_of(evaluated, "ssim") == number_of(trained, "best_ssim"));
    assert_true(number_of(evaluated, "input_psnr") == input);
    assert_true(fabs(number_of(evaluated, "loss") - summary_number(out, best, "eval_loss")) < 1e-5);
    assert_int_equal((int)number_of(evaluated, "samples"), 5);
    json_decref(evaluated);
    json_decref(trained);
    run_result_free(&result);
}

/* Reads width and height of a PNG file. */
static void read_png_size(const char *path, uint32_t *width, uint32_t *height)
{
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    assert_true(length > 33);
    assert_memory_equal(bytes, "\x89PNG\r\n\x1a\n", 8);
    *width = (uint32_t)bytes[18] << 8 | bytes[19];
    *height = (uint32_t)bytes[22] << 8 | bytes[23];
    free(bytes);
}

/* Returns the number of rows of a CSV below its head. *mean_ret is the mean of column `number`. */
static size_t read_csv(const char *path, const char *head, int number, double *mean_ret)
{
    char *text = test_file_read(path, NULL);
    size_t rows = 0;
    double sum = 0;
    assert_memory_equal(text, head, strlen(head));
    for (const char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1, rows++) {
        const char *value = at;
        for (int i = 0; i < number; i++)
            value = strchr(value, ',') + 1;
        sum += strtod(value, NULL);
    }
    free(text);
    *mean_ret = sum / (double)rows;
    return rows;
}

TEST_IN_FOLDER(test_predictions_are_written_beside_their_inputs, folder)
{
    const char *shards = make_set(folder, &train_negatives), *images = test_path(folder, "images");
    const char *weights = test_path(folder, "out/last.safetensors");
    train_pairs(folder, shards, "2");
    TRAINED(UNET, "--weights", weights, "--predict", images, shards);
    assert_int_equal(test_count_files(images), 2 * 5 + 1);
    for (uint64_t i = 0; i < train_negatives.val_count; i++) {
        static const char *const kinds[] = {"restored", "input"};
        for (int k = 0; k < 2; k++) {
            uint32_t width = 0, height = 0;
            read_png_size(
                test_path(folder, "images/class%02u/%06u.%s.png", (unsigned)(i % 4), (unsigned)i, kinds[k]),
                &width, &height);
            assert_int_equal(width, dataset_width(&train_negatives, i));
            assert_int_equal(height, dataset_height(&train_negatives, i));
        }
    }
    /* Its table agrees with what is reported. */
    double psnr = 0, input = 0;
    json_t *object = evaluate(folder, shards, NULL, NULL);
    const char *table = test_path(folder, "images/predictions.csv");
    assert_int_equal(read_csv(table, "key,psnr,ssim,input_psnr\nclass00/000000,", 1, &psnr), 5);
    (void)read_csv(table, "key,", 3, &input);
    assert_true(fabs(psnr - number_of(object, "psnr")) < 1e-3);
    assert_true(fabs(input - number_of(object, "input_psnr")) < 1e-3);
    json_decref(object);
}

TEST_IN_FOLDER(test_predictions_replace_nothing_without_force, folder)
{
    const char *shards = make_set(folder, &train_negatives), *images = test_path(folder, "images");
    const char *weights = test_path(folder, "out/last.safetensors"), *csv = test_path(folder, "all.csv");
    const char *restored = test_path(folder, "images/class01/000001.restored.png");
    train_pairs(folder, shards, "1");
    TRAINED(UNET, "--weights", weights, "--export", csv, shards);
    double psnr = 0;
    assert_int_equal(read_csv(csv, "key,psnr,ssim,input_psnr\n", 1, &psnr), 5);
    SAYS(1, "all.csv", UNET, "--weights", weights, "--export", csv, shards);
    TRAINED(UNET, "--weights", weights, "--export", csv, "--force", shards);

    test_file_write_text(restored, "mine");
    SAYS(1, "000001.restored.png", UNET, "--weights", weights, "--predict", images, shards);
    char *text = test_file_read(restored, NULL);
    assert_string_equal(text, "mine");
    free(text);
    assert_false(file_exists(test_path(folder, "images/predictions.csv"))); /* of half a run: none */
    TRAINED(UNET, "--weights", weights, "--predict", images, "--force", shards);
    assert_true(test_file_size(restored) > 100);

    SAYS(2, "--predict needs --weights", "--predict", images, shards);
    SAYS(2, "trains nothing; leave OUTPUT out", UNET, "--weights", weights, "--predict", images, shards,
         test_path(folder, "other"));
}

TEST_IN_FOLDER(test_how_pairs_are_measured_can_be_chosen, folder)
{
    const char *shards = make_set(folder, &train_negatives);
    train_pairs(folder, shards, "3");
    json_t *plain = evaluate(folder, shards, NULL, NULL);
    json_t *border = evaluate(folder, shards, "--crop-border", "4");
    json_t *luma = evaluate(folder, shards, "--y-channel", NULL);
    json_t *twice = evaluate(folder, shards, "--flip-tta", NULL);
    assert_true(number_of(border, "psnr") != number_of(plain, "psnr"));
    assert_true(number_of(border, "input_psnr") != number_of(plain, "input_psnr"));
    /* Noise of three channels averages in luma: ITU-R 601's range is 16..235 of 255, too. */
    assert_true(number_of(luma, "input_psnr") > number_of(plain, "input_psnr"));
    /* The mean of two estimates is nearer than they are, and the input is what it was. */
    assert_true(number_of(twice, "psnr") > number_of(plain, "psnr"));
    assert_true(number_of(twice, "input_psnr") == number_of(plain, "input_psnr"));
    /* The mirror image is compared with the target's. */
    assert_true(fabs(number_of(twice, "loss") / number_of(plain, "loss") - 1) < 0.1);
    json_decref(plain);
    json_decref(border);
    json_decref(luma);
    json_decref(twice);
}

TEST_IN_FOLDER(test_pairs_without_val_are_trained_and_average, folder)
{
    DatasetSpec spec = train_negatives;
    spec.val_count = 0;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    SAYS(0, "training without evaluation", UNET, "--epochs", "2", "--model-ema", "--noise", "8", "--loss",
         "psnr", shards, out);
    assert_true(test_file_size(test_path(folder, "out/model_ema.safetensors")) > 1000);
    assert_false(same_bytes(test_path(folder, "out/model_ema.safetensors"),
                            test_path(folder, "out/last.safetensors")));
}

TEST_IN_FOLDER(test_what_pairs_cannot_do_is_refused, folder)
{
    const char *shards = make_set(folder, &train_negatives), *out = test_path(folder, "out");
    REFUSED(1, "too small for a crop of 64 x 64", out, UNET, "--train-crop-size", "64", shards);
    REFUSED(2, "--loss: cross-entropy is for classes, and this dataset holds pairs", out, UNET, "--loss",
            "cross-entropy", shards);
    static const char *const useless[][2] = {{"--val-crop-size", "16"},    {"--val-resize-size", "16"},
                                             {"--val-batch-size", "2"},    {"--mixup-alpha", "0.2"},
                                             {"--label-smoothing", "0.1"}, {"--train-crop-mode", "rrc"},
                                             {"--random-erase", "0.5"},    {"--auto-augment", "ra"},
                                             {"--flip", "alternating"},    {"--scale", "0.5:1"}};
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
        REFUSED(2, "does nothing here; it is for ", out, UNET, useless[i][0], useless[i][1], shards);
    REFUSED(1, "--crop-border: 11 leaves too little of images of 32 pixels; use 10 or less", out, UNET,
            "--crop-border", "11", shards);
    DatasetSpec tiny = train_negatives;
    tiny.width = tiny.height = 10;
    tiny.grow = 0;
    dataset_make(test_path(folder, "tiny"), &tiny);
    REFUSED(1, "has images of 10 pixels; SSIM, by which pairs are evaluated, wants 11", out, UNET,
            "--train-crop-size", "8", test_path(folder, "tiny"));
    REFUSED(2, "--early-stop-metric: top1 is measured on classes", out, UNET, "--early-stop-patience", "1",
            "--early-stop-metric", "top1", shards);
}

/* ---- how often pairs are evaluated ---- */

/* Evaluation takes several times as long as training. */
#define HEAVY UNET, "--epochs", "12", "--batch-size", "4"

static const char *make_heavy(TestFolder *folder)
{
    DatasetSpec spec = train_negatives;
    spec.train_count = 8;
    spec.val_count = 80;
    return make_set(folder, &spec);
}

/* Asserts that the first epoch, every interval-th and the last were evaluated, as the log promises, and no
 * others. */
static void assert_evaluated_every(const char *output, unsigned interval)
{
    enum { EPOCHS = 12 };
    char path[512], *rest = NULL;
    (void)snprintf(path, sizeof path, "%s/summary.csv", output);
    char *text = test_file_read(path, NULL);
    unsigned epoch = 0;
    assert_true(interval > 0);
    if (interval == 0)
        return; /* for the analyzer, which does not know that an assertion ends the test */
    (void)strtok_r(text, "\n", &rest); /* the head: epoch,time,train_loss,eval_loss,… */
    for (char *row = strtok_r(NULL, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest), epoch++) {
        const bool due = epoch == 0 || (epoch + 1) % interval == 0 || epoch + 1 == EPOCHS;
        const char *at = row;
        for (int comma = 0; comma < 3; comma++)
            at = strchr(at, ',') + 1;
        if ((*at != ',') != due)
            fail_msg("every %u: epoch %u: %s", interval, epoch, row);
    }
    assert_int_equal(epoch, EPOCHS);
    free(text);
}

/* Returns N of "evaluated every N epochs from here on", or 12 where only the last epoch is evaluated. */
static unsigned told_interval(const char *log)
{
    unsigned interval = 0;
    const char *told = strstr(log, ": evaluated ");
    if (!told)
        fail_msg("the log tells no interval\n%s", log);
    else if (strstr(told, "after the last epoch alone from here on"))
        return 12;
    else if (sscanf(told, ": evaluated every %u epochs from here on, and after the last", &interval) != 1)
        fail_msg("%s", told);
    assert_true(told && !strstr(told + 1, ": evaluated ")); /* once */
    assert_in_range(interval, 2, 11);
    return interval;
}

TEST_IN_FOLDER(test_an_evaluation_that_takes_long_becomes_seldom, folder)
{
    const char *shards = make_heavy(folder), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, HEAVY, shards, out);
    assert_evaluated_every(out, told_interval(result.err));
    run_result_free(&result);

    result = TRAIN(0, HEAVY, "--val-interval", "1", shards, test_path(folder, "each"));
    assert_contains_not(result.err, "evaluated every");
    assert_contains_not(result.err, "from here on");
    assert_evaluated_every(test_path(folder, "each"), 1);
    run_result_free(&result);
    assert_same_file(folder, "out", "each", true); /* of training it changes nothing */
}

/* What decides by the number of evaluations hangs on no clock. */
TEST_IN_FOLDER(test_early_stopping_has_every_epoch_evaluated, folder)
{
    RunResult result =
        TRAIN(0, HEAVY, "--early-stop-patience", "12", make_heavy(folder), test_path(folder, "out"));
    assert_contains_not(result.err, "from here on");
    assert_evaluated_every(test_path(folder, "out"), 1);
    run_result_free(&result);
}

/* The interval is chosen once: a run that goes on keeps it and is silent. */
TEST_IN_FOLDER(test_a_run_that_goes_on_keeps_its_interval, folder)
{
    const char *shards = make_heavy(folder), *out = test_path(folder, "out");
    const char *const arguments[] = {"--jobs", "1", HEAVY, shards, out, NULL};
    const RunOptions options = {.stop_at = "out/last.safetensors"}; /* after the first evaluation */
    RunningProgram running = run_start(&options, "ftrain", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, SIGTERM);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 75);
    const unsigned interval = told_interval(result.err);
    run_result_free(&result);
    result = TRAIN(0, HEAVY, "--resume", "auto", shards, out);
    assert_contains(result.err, "goes on from");
    assert_contains_not(result.err, "from here on");
    run_result_free(&result);
    assert_evaluated_every(out, interval);
}

/* Epochs of which nothing is known are not among the best, whatever their number. */
TEST_IN_FOLDER(test_kept_epochs_were_evaluated, folder)
{
    enum { EPOCHS = 30, EVERY = 5 };
    DatasetSpec spec = train_negatives;
    spec.train_count = 8;
    TRAINED(UNET, "--epochs", "30", "--batch-size", "4", "--val-interval", "5", "--checkpoint-hist", "3",
            make_set(folder, &spec), test_path(folder, "out"));
    int kept = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        if (!file_exists(test_path(folder, "out/checkpoint-%d.safetensors", epoch)))
            continue;
        kept++;
        if ((epoch + 1) % EVERY != 0)
            fail_msg("checkpoint-%d.safetensors: that epoch was not evaluated", epoch);
    }
    assert_int_equal(kept, 3);
}
