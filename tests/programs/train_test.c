/* ftrain from outside: what it learns and what it leaves. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/progress.h"
#include "trainer/checkpoint/safetensors.h"

static void check_records(TestFolder *folder, size_t epochs)
{
    char *text = test_file_read(test_path(folder, "out/args.json"), NULL);
    json_t *object = read_json(text);
    assert_string_equal(json_string_value(json_object_get(json_object_get(object, "options"), "model")),
                        "conv8");
    assert_int_equal((int)number_of(json_object_get(object, "chosen"), "classes"), COLOURS);
    json_decref(object);
    free(text);

    text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    assert_contains(text, "epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr\n0,");
    assert_int_equal(count_lines(text), epochs + 1);
    free(text);

    text = test_file_read(test_path(folder, "out/metrics.jsonl"), NULL);
    size_t epoch_rows = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        object = read_json(line);
        epoch_rows += strcmp(json_string_value(json_object_get(object, "event")), "epoch") == 0;
        json_decref(object);
    }
    assert_int_equal(epoch_rows, epochs);
    free(text);
}

/* Asserts the table of the last evaluation and what --evaluate --json says of the best weights: all 63
 * samples, 21 of each class. */
static void check_classes(const char *path, const json_t *classes)
{
    char *text = test_file_read(path, NULL);
    assert_contains(text,
                    "index,class,samples,correct,predicted,recall,precision,f1,confused_with,confused_count\n"
                    "0,blue,21,");
    assert_contains(text, "\n1,green,21,");
    assert_int_equal(count_lines(text), COLOURS + 1);
    free(text);
    assert_int_equal(json_array_size(classes), COLOURS);
    double predicted = 0;
    for (size_t i = 0; i < COLOURS; i++) {
        const json_t *row = json_array_get(classes, i);
        assert_int_equal((int)number_of(row, "samples"), 21);
        assert_true(number_of(row, "recall") == 100 * number_of(row, "correct") / 21);
        predicted += number_of(row, "predicted");
    }
    assert_int_equal((int)predicted, 63);
}

/* Returns the first epoch with the highest eval_top1 in summary.csv. */
static int best_epoch_of(TestFolder *folder)
{
    char *text = test_file_read(test_path(folder, "out/summary.csv"), NULL);
    int epoch = 0, best = -1;
    double top1, highest = -1;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'), epoch++) {
        assert_int_equal(sscanf(line + 1, "%*d,%*f,%*f,%*f,%lf", &top1), 1);
        if (top1 > highest) {
            highest = top1;
            best = epoch;
        }
    }
    free(text);
    return best;
}

TEST_IN_FOLDER(test_folders_of_images_are_packed_and_learnt, folder)
{
    const char *shards = pack_colours(folder, 60, 21), *output = test_path(folder, "out");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "8", "--json", shards, output);
    json_t *object = read_json(result.out);
    double top1 = number_of(object, "best_top1");
    if (top1 <= 95)
        fail_msg("top-1 is %g\n%s", top1, result.err);
    assert_contains(result.err, "Epoch: [0][");
    assert_contains(result.err, "Acc@1");
    assert_contains(result.err, "32 pixels, moved by up to 4 pixels, flip 0.5");
    check_records(folder, 8);
    assert_int_equal((int)number_of(object, "best_epoch"), best_epoch_of(folder));
    run_result_free(&result);

    /* The best weights give what was reported when they are evaluated alone; all 63 samples counted. */
    result =
        TRAIN(0, "--model", "conv8", "--evaluate", "--weights",
              test_path(folder, "out/model_best.safetensors"), "--json", "--val-batch-size", "50", shards);
    json_t *evaluated = read_json(result.out);
    assert_true(number_of(evaluated, "top1") == top1);
    assert_int_equal((int)number_of(evaluated, "samples"), 63);
    check_classes(test_path(folder, "out/per_class_best.csv"), json_object_get(evaluated, "classes"));
    json_decref(evaluated);
    char *page = test_file_read(test_path(folder, "out/report.html"), NULL);
    assert_contains(page, "Finished</b>: 8 of 8 epochs");
    /* The rate is the one that the run tells at its end. */
    const char *tile = strstr(page, "</b><span>images/s in training");
    assert_non_null(tile);
    while (tile && tile[-1] != '>')
        tile--;
    const double rate = number_of(object, "images_per_second");
    if (!tile || fabs(atof(tile) - rate) > 0.51)
        fail_msg("the page's images/s are %.8s, the log's %g", tile ? tile : "", rate);
    assert_contains_not(page, "http-equiv=\"refresh\"");
    json_decref(object);
    free(page);
    run_result_free(&result);
    assert_int_equal(test_count_files(output), 8 + REPORT_FILES); /* five tables, best, last, checkpoint */
}

TEST_IN_FOLDER(test_resnet18_trains_and_leaves_torchvisions_names, folder)
{
    const DatasetSpec spec = {.codec = FSH_CODEC_RAW,
                              .width = 32,
                              .height = 32,
                              .channels = 3,
                              .class_count = 3,
                              .train_count = 16,
                              .val_count = 5,
                              .shard_count = 1};
    const char *shards = test_path(folder, "set");
    dataset_make(shards, &spec);
    RunResult result = TRAIN(0, "--epochs", "1", shards, test_path(folder, "out"));
    run_result_free(&result);
    Safetensors *file = NULL;
    FshError error = {0};
    assert_ok(safetensors_open(&file, test_path(folder, "out/last.safetensors"), &error), &error);
    assert_int_equal(safetensors_count(file), 122); /* len(torchvision.models.resnet18().state_dict()) */
    const SafetensorsEntry *entry = safetensors_find(file, "layer2.0.downsample.0.weight");
    assert_non_null(entry);
    const uint64_t shape[] = {128, 64, 1, 1};
    assert_memory_equal(entry->shape, shape, sizeof shape);
    entry = safetensors_find(file, "fc.weight");
    assert_int_equal(entry->shape[0], 3);
    assert_int_equal(entry->shape[1], 512);
    entry = safetensors_find(file, "bn1.num_batches_tracked");
    assert_int_equal(entry->type, SAFETENSORS_I64);
    int64_t steps;
    memcpy(&steps, entry->data, sizeof steps);
    assert_int_equal(steps, 2); /* 16 samples, batches of 8 */
    assert_string_equal(safetensors_metadata(file, "model"), "resnet18");
    assert_string_equal(safetensors_metadata(file, "epoch"), "0"); /* as in summary.csv */
    assert_string_equal(safetensors_metadata(file, "steps"), "2");
    safetensors_close(&file);
}

TEST_IN_FOLDER(test_the_same_seed_gives_the_same_weights_whatever_the_workers, folder)
{
    const char *shards = pack_colours(folder, 40, 8);
    static const char *const runs[][3] = {{"a", "7", "1"}, {"b", "7", "1"}, {"c", "7", "3"}, {"d", "8", "1"}};
    for (size_t i = 0; i < 4; i++) {
        RunResult result = TRAIN(0, "--jobs", "2", "--model", "conv8", "--epochs", "2", "--seed", runs[i][1],
                                 "--workers", runs[i][2], shards, test_path(folder, "%s", runs[i][0]));
        run_result_free(&result);
    }
    assert_same_file(folder, "a", "b", true);
    assert_same_file(folder, "a", "c", true);
    assert_same_file(folder, "a", "d", false);
}

TEST_IN_FOLDER(test_cache_says_how_much_of_the_dataset_is_in_memory, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "none"));
    assert_contains_not(result.err, "resident");
    run_result_free(&result);
    const char *const hows[] = {"ram", "lock"}; /* files this small may be locked by anyone */
    for (size_t i = 0; i < 2; i++) {
        char whole[32], line[128];
        const char *splits[] = {"train", "val"};
        result = TRAIN(0, "--model", "conv8", "--epochs", "1", "--cache", hows[i], shards,
                       test_path(folder, "%s", hows[i]));
        for (size_t s = 0; s < 2; s++) {
            uint64_t bytes = 0;
            for (uint32_t n = 0; n < train_plain.shard_count; n++)
                bytes += test_file_size(test_path(folder, "set/%s-%05u-of-%05u.fshard", splits[s],
                                                  (unsigned)n, (unsigned)train_plain.shard_count));
            (void)progress_format_bytes(whole, sizeof whole, bytes);
            (void)snprintf(line, sizeof line, "%s: %s of %s resident%s\n", splits[s], whole, whole,
                           i ? ", locked" : "");
            assert_contains(result.err, line);
        }
        run_result_free(&result);
        assert_same_file(folder, "none", hows[i], true);
        result = TRAIN(0, "--evaluate", "--weights", test_path(folder, "none/last.safetensors"), "--cache",
                       hows[i], shards);
        assert_contains(result.err, line);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_pixels_for_a_gpu_without_one_are_refused, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    REFUSED(2, "--cache gpu: keeps pixels in the memory of a GPU, and the device is cpu; use --device cuda",
            out, "--cache", "gpu", "--device", "cpu", shards);
    REFUSED(2, "--decode gpu: decodes on a GPU, and the device is cpu; use --device cuda", out, "--decode",
            "gpu", "--device", "cpu", shards);
    REFUSED(2, "--decode gpu: with --cache gpu", out, "--decode", "gpu", "--cache", "gpu", shards);
    SAYS(2, "--cache gpu: leaves --bench-loader nothing to measure", "--cache", "gpu", "--bench-loader",
         shards);
    SAYS(2, "--decode gpu: leaves --bench-loader nothing to measure", "--decode", "gpu", "--bench-loader",
         shards);
    REFUSED(2, "--cache: 'disk'", out, "--cache", "disk", shards);
    REFUSED(2, "--decode gpu: with --cache pixels every image is decoded once", out, "--decode", "gpu",
            "--cache", "pixels", shards);
    SAYS(2, "--cache pixels: no file is read while the loader is measured", "--cache", "pixels",
         "--bench-loader", "--drop-caches", shards);
}

TEST_IN_FOLDER(test_training_goes_on_from_given_weights, folder)
{
    const char *shards = pack_colours(folder, 40, 8);
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "8", shards, test_path(folder, "a"));
    run_result_free(&result);
    /* One epoch at next to no learning rate stays where the first run ended. */
    result = TRAIN(0, "--model", "conv8", "--epochs", "1", "--lr", "1e-8", "--json", "--weights",
                   test_path(folder, "a/model_best.safetensors"), shards, test_path(folder, "b"));
    json_t *object = read_json(result.out);
    assert_true(number_of(object, "best_top1") > 90);
    json_decref(object);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_evaluation_takes_the_network_that_the_weights_name, folder)
{
    const char *shards = pack_colours(folder, 8, 2), *weights = test_path(folder, "a/last.safetensors");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--weights", weights, shards);
    assert_contains(result.err, "network: conv8");
    run_result_free(&result);
    result = TRAIN(1, "--evaluate", "--model", "resnet18", "--weights", weights, shards);
    assert_contains(result.err, "a/last.safetensors: these are weights of conv8; say --model conv8");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_network_gone_bad_has_a_loss_of_null, folder)
{
    const char *shards = make_set(folder, &train_plain), *weights = test_path(folder, "out/last.safetensors");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "out"));
    run_result_free(&result);
    size_t length = 0;
    forget_checksums(weights);
    char *bytes = test_file_read(weights, &length);
    memset(bytes + length - 4, 0xFF, 4); /* NaN: the last bias */
    test_file_write(weights, bytes, length);
    free(bytes);
    result = TRAIN(0, "--model", "conv8", "--evaluate", "--json", "--weights", weights, shards);
    json_t *object = read_json(result.out);
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(number_of(object, "top1") == 0);
    json_decref(object);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_weights_are_evaluated_at_their_own_size, folder)
{
    const char *shards = make_set(folder, &train_plain), *weights = test_path(folder, "out/last.safetensors");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", "--train-crop-size", "24",
                             "--val-resize-size", "28", shards, test_path(folder, "out"));
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--weights", weights, shards);
    assert_contains(result.err, "evaluation: short edge to 28, centre 24 pixels");
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--val-crop-size", "20", "--weights", weights, shards);
    assert_contains(result.err, "centre 20 pixels"); /* what is said wins */
    run_result_free(&result);
}

/* Weights that were trained with views of one kind are evaluated with them, to the digit. */
static void evaluate_as_trained(TestFolder *folder, const char *interpolation)
{
    const char *shards = test_path(folder, "set"), *weights = test_path(folder, "out/last.safetensors");
    RunResult result =
        TRAIN(0, "--model", "conv8", "--epochs", "1", "--train-crop-size", "24", "--crop-pct", "0.85",
              "--force", "--interpolation", interpolation, shards, test_path(folder, "out"));
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--json", "--weights", weights, shards);
    assert_contains(result.err, "short edge to 28, centre 24 pixels");
    assert_contains(result.err, interpolation);
    json_t *object = read_json(result.out);
    const double trained = summary_number(test_path(folder, "out"), 0, "eval_loss");
    assert_true(fabs(number_of(object, "loss") - trained) < 1e-4);
    json_decref(object);
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--interpolation", "bilinear", "--weights", weights, shards);
    assert_contains_not(result.err, interpolation); /* what is said wins */
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--crop-pct", "0.75", "--weights", weights, shards);
    assert_contains(result.err, "short edge to 32, centre 24 pixels");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_weights_are_evaluated_with_their_own_interpolation, folder)
{
    (void)make_set(folder, &train_plain);
    evaluate_as_trained(folder, "bicubic");
    evaluate_as_trained(folder, "lanczos");
}

/* Returns the mean recall of a table of classes: the top-1 where all have as many samples. */
static double mean_recall(const char *path)
{
    char *text = test_file_read(path, NULL);
    double sum = 0, recall = 0;
    int classes = 0;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'), classes++) {
        assert_int_equal(sscanf(line + 1, "%*d,%*[^,],%*d,%*d,%*d,%lf", &recall), 1);
        sum += recall;
    }
    free(text);
    return sum / classes;
}

/* Images of noise, of which an epoch more is as likely to be worse. */
TEST_IN_FOLDER(test_tables_of_classes_are_of_the_best_and_of_the_last_evaluation, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 32;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "6", "--lr", "0.1", "--lr-scheduler",
                             "constant", "--model-ema", "--model-ema-decay", "0.5", "--json", shards, out);
    json_t *object = read_json(result.out);
    const double best = mean_recall(test_path(folder, "out/per_class_best.csv")),
                 average = mean_recall(test_path(folder, "out/per_class_ema.csv")),
                 last = mean_recall(test_path(folder, "out/per_class.csv"));
    assert_true(fabs(best - number_of(object, "best_top1")) < 1e-3);
    assert_true(fabs(average - number_of(object, "best_ema_top1")) < 1e-3);
    assert_true(fabs(last - summary_number(out, 5, "ema_top1")) < 1e-3);
    json_decref(object);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_without_a_val_split_it_trains_and_says_so, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 0;
    RunResult result =
        TRAIN(0, "--model", "conv8", "--epochs", "1", make_set(folder, &spec), test_path(folder, "out"));
    assert_contains(result.err, "training without evaluation");
    assert_contains_not(result.out, "best top-1");
    assert_int_equal(test_count_files(test_path(folder, "out")), 5 + REPORT_FILES); /* no model_best */
    run_result_free(&result);
}

TEST_IN_FOLDER(test_the_log_says_why_no_gpu_computes, folder)
{
    const char *shards = make_set(folder, &train_plain);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "-1", 1), 0);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", shards);
    assert_contains(result.err, " ahead; no "); /* "NVIDIA GPU found", or that it is hidden */
    assert_contains_not(result.err, "warning");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--device", "cpu", "--model", "conv8", shards);
    assert_contains(result.err, " ahead\n");
    run_result_free(&result);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

TEST_IN_FOLDER(test_an_interpolation_that_was_chosen_is_shown, folder)
{
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", "--interpolation", "bicubic", shards);
    assert_contains(result.err, "moved by up to 4 pixels, bicubic, flip");
    assert_contains(result.err, "centre 32 pixels, bicubic\n");
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--model", "conv8", shards);
    assert_contains_not(result.err, "bilinear");
    assert_contains_not(result.err, "bicubic");
    run_result_free(&result);
}

/* Checks that two files of weights hold the same tensors; their headers name the datasets. */
static void assert_same_tensors(const char *a, const char *b)
{
    size_t a_bytes = 0, b_bytes = 0;
    char *left = test_file_read(a, &a_bytes), *right = test_file_read(b, &b_bytes);
    const uint64_t header = 8 + load_le64((const uint8_t *)left);
    assert_int_equal(a_bytes, b_bytes);
    assert_true(header < a_bytes);
    assert_memory_equal(left + header, right + header, a_bytes - header);
    free(left);
    free(right);
}

/* Packed without a look at the pixels, they get ImageNet's mean, too: nothing but the reading differs. */
TEST_IN_FOLDER(test_class_folders_are_trained_on_without_packing, folder)
{
    (void)pack_colours(folder, 12, 5);
    const char *images = test_path(folder, "images"), *unmeasured = test_path(folder, "unmeasured");
    RunResult result = run_program(NULL, "fpack", "-q", "--no-check", images, unmeasured, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    const char *packed_output = test_path(folder, "packed"), *output = test_path(folder, "out");
    TRAINED("--model", "conv8", "--epochs", "2", "--batch-size", "8", "--workers", "2", unmeasured,
            packed_output);
    result =
        TRAIN(0, "--model", "conv8", "--epochs", "2", "--batch-size", "8", "--workers", "2", images, output);
    assert_contains(result.err, "files that nobody has packed: fpack makes a dataset of them");
    assert_contains(result.err, "ImageNet's mean and deviation, for nobody has measured the files");
    assert_contains(result.err, "split train: 36 samples");
    assert_contains(result.err, "split val: 15 samples");
    run_result_free(&result);
    char *packed = summary_without_time(packed_output), *plain = summary_without_time(output);
    assert_string_equal(plain, packed);
    free(packed);
    free(plain);
    assert_same_tensors(test_path(folder, "packed/last.safetensors"),
                        test_path(folder, "out/last.safetensors"));
}

TEST_IN_FOLDER(test_a_file_that_is_no_image_is_skipped_and_fpack_lists_it, folder)
{
    (void)pack_colours(folder, 12, 5);
    const char *images = test_path(folder, "images");
    test_file_write_text(test_path(folder, "images/train/red/none.psd"), "no image");
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "1", "--batch-size", "37", "--on-error",
                             "skip", images, test_path(folder, "out"));
    char line[4096];
    (void)snprintf(line, sizeof line,
                   "1 sample could not be read, skipped; fpack %s lists all and leaves them out", images);
    assert_contains(result.err, line);
    run_result_free(&result);
}

/* Returns the number of epochs that a run has finished. */
static size_t epochs_of(const char *output)
{
    char *summary = summary_without_time(output);
    const size_t lines = count_lines(summary);
    free(summary);
    return lines - 1;
}

TEST_IN_FOLDER(test_an_image_that_cannot_be_read_obeys_on_error, folder)
{
    (void)pack_colours(folder, 6, 2);
    const char *images = test_path(folder, "images"), *output = test_path(folder, "out"),
               *skipped = test_path(folder, "skipped");
    test_file_write_text(test_path(folder, "images/train/red/003.jpg"), "no image");
    SAYS(1, "images/train/red/003.jpg: not an image", "--model", "conv8", "--epochs", "1", "--batch-size",
         "4", images, output);
    assert_int_equal(epochs_of(output), 0);
    SAYS(1, "images/train/red/003.jpg: not an image", "--model", "conv8", "--epochs", "1", "--batch-size",
         "4", "--on-error", "skip", images, skipped);
    assert_int_equal(epochs_of(skipped), 1);
}

TEST_IN_FOLDER(test_folders_can_be_given_by_name, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result =
        TRAIN(0, "--shards", shards, "--output", out, "--model", "conv8", "--epochs", "1", "--quiet");
    assert_string_equal(result.err, "");
    assert_contains(result.out, "out/last.safetensors");
    run_result_free(&result);
}

/* ---- the log, as who is new to it reads it ---- */

static RunResult train_classes(TestFolder *folder, int classes, const char *verbosity)
{
    char name[32];
    (void)snprintf(name, sizeof name, "classes%d%s", classes, verbosity);
    DatasetSpec spec = train_plain;
    spec.class_count = classes;
    const char *shards = test_path(folder, "set%s", name);
    dataset_make(shards, &spec);
    return TRAIN(0, "--model", "conv8", "--epochs", "3", verbosity, shards, test_path(folder, "out%s", name));
}

static void assert_tells_top5(TestFolder *folder, int classes, bool tells)
{
    RunResult result = train_classes(folder, classes, "--no-tensorboard");
    const char *out = test_path(folder, "outclasses%d--no-tensorboard", classes);
    char *page = test_file_read(test_path(folder, "outclasses%d--no-tensorboard/report.html", classes), NULL);
    const struct {
        const char *text, *word;
    } told[] = {{result.err, "Acc@5"}, {result.out, "top-5"}, {page, "top-5<"}, {page, "Top-5 accuracy"}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if ((strstr(told[i].text, told[i].word) != NULL) != tells)
            fail_msg("%d classes: '%s' is %s in\n%s", classes, told[i].word, tells ? "not" : "",
                     told[i].text);
    (void)summary_number(out, 0, "eval_top5"); /* for programs */
    RunResult evaluated = TRAIN(0, "--evaluate", "--weights",
                                test_path(folder, "outclasses%d--no-tensorboard/last.safetensors", classes),
                                test_path(folder, "setclasses%d--no-tensorboard", classes));
    assert_int_equal(strstr(evaluated.out, "top-5") != NULL, tells);
    assert_contains(evaluated.out, "top-1 ");
    run_result_free(&evaluated);
    run_result_free(&result);
    free(page);
}

TEST_IN_FOLDER(test_top5_is_told_from_ten_classes_on, folder)
{
    assert_tells_top5(folder, 9, false);
    assert_tells_top5(folder, 10, true);
}

TEST_IN_FOLDER(test_a_log_tells_the_time_that_is_left_and_no_digests, folder)
{
    RunResult result = train_classes(folder, 3, "--no-html");
    assert_contains(result.err, "\tETA ");
    assert_contains_not(result.err, ", order ");
    for (int epoch = 0; epoch < 3; epoch++) {
        char head[32], line[256];
        (void)snprintf(head, sizeof head, "\nepoch %d (%d of 3): ", epoch, epoch + 1);
        const char *at = strstr(result.err, head);
        assert_non_null(at);
        (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        if (epoch < 2)
            assert_contains(line, " left");
        else
            assert_contains_not(line, " left");
    }
    run_result_free(&result);
    result = train_classes(folder, 3, "--verbose");
    assert_contains(result.err, ", order ");
    run_result_free(&result);
}
