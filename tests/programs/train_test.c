/* ftrain from outside: what it learns, what it leaves, what it refuses. */
#include "tests/support/support.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/progress.h"
#include "common/random.h"
#include "imaging/encode.h"
#include "tests/trainer/dataset_support.h"
#include "trainer/loop/safetensors.h"

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

/* ---- images that are easy to tell apart: red, green and blue noise ---- */

enum { EDGE = 32, CLASSES = 3 };

static void write_image(ImageEncoder *encoder, const char *path, int label, uint32_t seed)
{
    Image image = {0};
    Buffer file = {0};
    FshError error = {0};
    Random random;
    assert_ok(image_reserve(&image, EDGE, EDGE, 3, &error), &error);
    random_start(&random, seed, (uint64_t)label);
    for (size_t i = 0; i < (size_t)EDGE * EDGE * 3; i++)
        image.pixels[i] = (uint8_t)(random_below(&random, 100) + (i % 3 == (size_t)label ? 80 : 40));
    assert_ok(image_encode(encoder, &image,
                           &(ImageEncodeOptions){
                               .format = IMAGE_JPEG, .quality = 90, .subsampling = IMAGE_SUBSAMPLING_444},
                           &file, &error),
              &error);
    test_file_write(path, file.bytes, file.length);
    buffer_free(&file);
    image_free(&image);
}

/* Class folders under train/ and val/, then fpack: returns the dataset. */
static const char *pack_colours(TestFolder *folder, int train_count, int val_count)
{
    static const char *const names[CLASSES] = {"red", "green", "blue"};
    ImageEncoder *encoder = NULL;
    FshError error = {0};
    assert_ok(image_encoder_new(&encoder, &error), &error);
    for (int label = 0; label < CLASSES; label++) {
        for (int i = 0; i < train_count; i++)
            write_image(encoder, test_path(folder, "images/train/%s/%03d.jpg", names[label], i), label,
                        (uint32_t)i);
        for (int i = 0; i < val_count; i++)
            write_image(encoder, test_path(folder, "images/val/%s/%03d.jpg", names[label], i), label,
                        1000 + (uint32_t)i);
    }
    image_encoder_free(&encoder);
    const char *shards = test_path(folder, "shards");
    RunResult result = run_program(NULL, "fpack", "-q", test_path(folder, "images"), shards, NULL);
    if (result.exit_status != 0)
        fail_msg("fpack: %s", result.err);
    run_result_free(&result);
    return shards;
}

/* ---- running ---- */

/* With one thread: these networks are small, and threads that wait for each other take long on a busy machine. */
static RunResult expect_train(int exit_status, const RunOptions *options, const char *const *arguments)
{
    enum { ARGUMENTS_MAX = 32 };
    const char *all[ARGUMENTS_MAX] = {"--jobs", "1"};
    size_t count = 2;
    for (; *arguments; arguments++) {
        if (strcmp(*arguments, "--jobs") == 0)
            count = 0; /* the test's own, which comes first */
        assert_true(count + 1 < ARGUMENTS_MAX);
        all[count++] = *arguments;
    }
    RunResult result = run_program_arguments(options, "ftrain", all);
    if (result.exit_status != exit_status)
        fail_msg("exit status %d, not %d\n%s%s", result.exit_status, exit_status, result.out, result.err);
    return result;
}

#define TRAIN(exit_status, ...) expect_train((exit_status), NULL, (const char *const[]){__VA_ARGS__, NULL})

/* It fails as told, with `part` in its message, and leaves nothing at `output`. */
static void expect_refusal(int exit_status, const char *part, const char *output,
                           const char *const *arguments)
{
    RunResult result = expect_train(exit_status, NULL, arguments);
    assert_contains(result.err, part);
    assert_contains(result.err, "ftrain: ");
    assert_string_equal(result.out, "");
    assert_int_equal(test_count_files(output), 0);
    run_result_free(&result);
}

#define REFUSED(exit_status, part, output, ...)                                                              \
    expect_refusal((exit_status), (part), (output), (const char *const[]){__VA_ARGS__, output, NULL})

/* ---- learning ---- */

static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static json_t *read_json(const char *text)
{
    json_error_t problem;
    json_t *object = json_loads(text, 0, &problem);
    if (!object)
        fail_msg("no JSON: %s in '%s'", problem.text, text);
    return object;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void check_records(TestFolder *folder, size_t epochs)
{
    char *text = test_file_read(test_path(folder, "out/args.json"), NULL);
    json_t *object = read_json(text);
    assert_string_equal(json_string_value(json_object_get(json_object_get(object, "options"), "model")),
                        "conv8");
    assert_int_equal((int)number_of(json_object_get(object, "chosen"), "classes"), CLASSES);
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

/* The first epoch with the highest eval_top1 in summary.csv. */
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

static void test_folders_of_images_are_packed_and_learnt(void **state)
{
    TestFolder *folder = *state;
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
    json_decref(evaluated);
    json_decref(object);
    run_result_free(&result);
    assert_int_equal(test_count_files(output), 6); /* three tables, best, last, checkpoint */
}

static void test_resnet18_trains_and_leaves_torchvisions_names(void **state)
{
    TestFolder *folder = *state;
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

/* ---- the same result ---- */

static void assert_same_file(TestFolder *folder, const char *a, const char *b, bool same)
{
    size_t a_bytes = 0, b_bytes = 0;
    char *a_text = test_file_read(test_path(folder, "%s/last.safetensors", a), &a_bytes);
    char *b_text = test_file_read(test_path(folder, "%s/last.safetensors", b), &b_bytes);
    bool equal = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    free(a_text);
    free(b_text);
    if (equal != same)
        fail_msg("%s and %s: weights are %s", a, b, equal ? "the same" : "different");
}

static void test_the_same_seed_gives_the_same_weights_whatever_the_workers(void **state)
{
    TestFolder *folder = *state;
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

/* ---- weights from elsewhere ---- */

static void test_training_goes_on_from_given_weights(void **state)
{
    TestFolder *folder = *state;
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

static void test_weights_of_another_network_are_refused(void **state)
{
    TestFolder *folder = *state;
    const char *shards = pack_colours(folder, 8, 2), *out = test_path(folder, "b");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    const char *weights = test_path(folder, "a/last.safetensors");
    REFUSED(1, "a/last.safetensors: has no tensor conv1.weight; it holds conv8", out, "--weights", weights,
            shards);
    test_file_truncate(weights, -5);
    REFUSED(1, "last.safetensors: ", out, "--model", "conv8", "--weights", weights, shards);
    REFUSED(1, "No such file", out, "--model", "conv8", "--weights", test_path(folder, "none"), shards);
}

/* Changes the first `from` in a file to `to`, which is as long. */
static void replace_in_file(const char *path, const char *from, const char *to)
{
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    char *at = memmem(bytes, length, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    for (size_t i = 0; to[i]; i++)
        at[i] = to[i];
    test_file_write(path, bytes, length);
    free(bytes);
}

static void test_weights_that_nearly_fit_are_refused(void **state)
{
    TestFolder *folder = *state;
    const char *shards = pack_colours(folder, 8, 2), *out = test_path(folder, "b");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    const char *weights = test_path(folder, "a/last.safetensors");
    REFUSED(1, "model.33.weight is [3, 128], the network has [3, 512]", out, "--model", "conv8",
            "--train-crop-size", "64", "--weights", weights, shards);
    replace_in_file(weights, "\"model.1.weight\":{\"dtype\":\"F32\"",
                    "\"model.1.weight\":{\"dtype\":\"I32\"");
    REFUSED(1, "model.1.weight is I32; weights are floating-point numbers", out, "--model", "conv8",
            "--weights", weights, shards);
    replace_in_file(weights, "\"model.1.weight\":{\"dtype\":\"I32\"",
                    "\"model.1.weight\":{\"dtype\":\"F32\"");
    /* A counter by another name is a tensor that the network does not have. */
    replace_in_file(weights, "model.2.num_batches_tracked", "model.2.num_batches_counted");
    REFUSED(1, "the network has no tensor model.2.num_batches_counted", out, "--model", "conv8", "--weights",
            weights, shards);
}

static void test_evaluation_takes_the_network_that_the_weights_name(void **state)
{
    TestFolder *folder = *state;
    const char *shards = pack_colours(folder, 8, 2), *weights = test_path(folder, "a/last.safetensors");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "a"));
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--weights", weights, shards);
    assert_contains(result.err, "network: conv8");
    run_result_free(&result);
    result = TRAIN(1, "--evaluate", "--model", "resnet18", "--weights", weights, shards);
    assert_contains(result.err, "a/last.safetensors: these are conv8 weights; add --model conv8");
    run_result_free(&result);
}

/* ---- what is refused, before anything is written ---- */

static const DatasetSpec plain = {.codec = FSH_CODEC_RAW,
                                  .width = 32,
                                  .height = 32,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 40,
                                  .val_count = 8,
                                  .shard_count = 2};

static const char *make_set(TestFolder *folder, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    return path;
}

static void test_a_missing_dataset_is_refused(void **state)
{
    TestFolder *folder = *state;
    REFUSED(1, "No such file", test_path(folder, "out"), test_path(folder, "none"));
}

static void test_pairs_for_a_classifier_are_refused(void **state)
{
    DatasetSpec pairs = plain;
    pairs.kind = FSH_KIND_PAIRS;
    TestFolder *folder = *state;
    REFUSED(1, "holds pairs of images", test_path(folder, "out"), "--model", "resnet18",
            make_set(folder, &pairs));
}

static void test_classes_for_a_restorer_are_refused(void **state)
{
    TestFolder *folder = *state;
    REFUSED(1, "pairs", test_path(folder, "out"), "--model", "unet", make_set(folder, &plain));
}

static void test_one_class_is_refused(void **state)
{
    DatasetSpec spec = plain;
    spec.class_count = 1;
    TestFolder *folder = *state;
    REFUSED(1, "at least two class folders", test_path(folder, "out"), make_set(folder, &spec));
}

static void test_splits_of_different_classes_are_refused(void **state)
{
    DatasetSpec spec = plain;
    spec.classes_apart = true;
    TestFolder *folder = *state;
    REFUSED(1, "split 'val' has images of class 'class03', split 'train' has none", test_path(folder, "out"),
            make_set(folder, &spec));
}

/* In an LMDB: the labels of shards stand in their index, too, which fsh_open checks. */
static void test_a_label_out_of_range_is_refused_with_its_place(void **state)
{
    enum { LABEL_AT = 16 }; /* in a record, fshard(5) */
    TestFolder *folder = *state;
    (void)pack_colours(folder, 4, 2);
    const char *set = test_path(folder, "lmdb"), *file = test_path(folder, "lmdb/train.lmdb/data.mdb");
    RunResult result =
        run_program(NULL, "fpack", "-q", "--format", "lmdb", test_path(folder, "images"), set, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    size_t length = 0;
    char *bytes = test_file_read(file, &length), *record = memmem(bytes, length, "FREC", 4);
    assert_non_null(record);
    assert_in_range(record[LABEL_AT], 0, CLASSES - 1);
    record[LABEL_AT] = CLASSES;
    test_file_write(file, bytes, length);
    free(bytes);
    REFUSED(1, "label 3 in a dataset of 1 fields and 3 classes", test_path(folder, "out"), "--model", "conv8",
            set);
}

static void test_a_missing_split_is_refused_by_name(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    REFUSED(1, "has no split 'validation'; it has: train, val", out, "--val-split", "validation", shards);
    REFUSED(1, "has no split 'all'; it has: train, val", out, "--train-split", "all", shards);
}

static void test_fewer_samples_than_a_batch_are_refused(void **state)
{
    TestFolder *folder = *state;
    REFUSED(1, "--batch-size: 41 is more than the 40 training samples; use 40 or less",
            test_path(folder, "out"), "--batch-size", "41", make_set(folder, &plain));
}

static void test_a_model_that_does_not_fit_the_images_is_refused(void **state)
{
    TestFolder *folder = *state;
    REFUSED(1, "ftrain: images of 2 x 2 pixels: conv8: model.", test_path(folder, "out"), "--model", "conv8",
            "--train-crop-size", "2", "--val-crop-size", "2", make_set(folder, &plain));
}

static void test_an_unknown_model_is_refused_with_the_known_ones(void **state)
{
    TestFolder *folder = *state;
    REFUSED(2, "--model: 'resnet19' is none of the networks: conv8, toynet, resnet9, resnet18",
            test_path(folder, "out"), "--model", "resnet19", make_set(folder, &plain));
}

static void test_options_that_contradict_are_usage_errors(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    REFUSED(2, "--lr-warmup-epochs: 3 leaves nothing of 3 epochs", out, "--epochs", "3", "--lr-warmup-epochs",
            "3", shards);
    REFUSED(2, "--scale: '0.5' is not MIN:MAX", out, "--scale", "0.5", shards);
    REFUSED(2, "--scale: '0.9:0.1' is not MIN:MAX", out, "--scale", "0.9:0.1", shards);
    REFUSED(2, "--ratio: '1:x' is not MIN:MAX", out, "--ratio", "1:x", shards);
    REFUSED(2, "--val-resize-size: 20 is less than the crop of 30", out, "--val-resize-size", "20",
            "--val-crop-size", "30", shards);
    REFUSED(2, "--crop-padding: 32 is not less than the crop", out, "--crop-padding", "32", shards);
    REFUSED(2, "--evaluate needs --weights", out, "--evaluate", shards);
    REFUSED(2, "SHARDS and OUTPUT are known already", out, "--shards", shards, "--output", out, "third");
    REFUSED(2, "--epochs: '0' is not a whole number", out, "--epochs", "0", shards);
}

static void test_cuda_on_a_machine_without_it_is_refused(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    RunResult result = run_program(NULL, "ftrain", "--model", "conv8", "--epochs", "1", "--device", "cuda",
                                   shards, out, NULL);
    bool there = result.exit_status == 0;
    if (!there) {
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, "ftrain: ");
        assert_contains(result.err, "cuda");
        assert_contains(result.err, "--device cpu"); /* what to do */
        assert_int_equal(test_count_files(out), 0);
        run_result_free(&result);
        /* Said before an output that cannot be used either. */
        test_file_write_text(test_path(folder, "out/note.txt"), "mine");
        result = TRAIN(1, "--model", "conv8", "--device", "cuda", shards, out);
        assert_contains(result.err, "--device cpu");
    }
    run_result_free(&result);
    if (there)
        skip();
}

static void test_an_output_that_exists_is_refused_without_force(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    const char *note = test_path(folder, "out/note.txt"),
               *stale = test_path(folder, "out/model_best.safetensors");
    test_file_write_text(note, "mine");
    test_file_write_text(stale, "of an earlier run");
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "1", shards, out);
    assert_contains(result.err, "out: exists and is not empty");
    assert_contains(result.err, "--force");
    assert_int_equal(test_count_files(out), 2);
    run_result_free(&result);

    result = TRAIN(0, "--model", "conv8", "--epochs", "1", "--force", shards, out);
    run_result_free(&result);
    char *text = test_file_read(note, NULL);
    assert_string_equal(text, "mine");
    free(text);
    assert_true(test_file_size(stale) > 1000);
    assert_int_equal(test_count_files(out), 7);

    result = TRAIN(1, "--model", "conv8", shards, note);
    assert_contains(result.err, "note.txt: is a file");
    run_result_free(&result);
}

static void test_the_dataset_is_checked_before_the_output(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "out/note.txt"), "mine");
    RunResult result = TRAIN(1, "--model", "conv8", out, shards); /* swapped */
    assert_contains(result.err, "dataset.json");
    assert_contains_not(result.err, "--force");
    run_result_free(&result);

    result = TRAIN(1, "--model", "conv8", shards, shards);
    assert_contains(result.err, "it is a dataset, not an output folder; the order is ftrain SHARDS OUTPUT");
    assert_contains_not(result.err, "--force");
    run_result_free(&result);

    result = TRAIN(1, "--model", "conv8", "--batch-size", "41", shards, out);
    assert_contains(result.err, "--batch-size: 41");
    run_result_free(&result);

    result = TRAIN(0, "--dry-run", "--model", "conv8", shards, out);
    run_result_free(&result);
}

/* ---- shards that are not what they were ---- */

static void test_a_torn_shard_is_refused(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain);
    test_file_truncate(test_path(folder, "set/train-00001-of-00002.fshard"), -1000);
    REFUSED(1, "train-00001-of-00002.fshard", test_path(folder, "out"), shards);
}

/* A bit of the pixels of a sample. */
static void spoil_sample(TestFolder *folder, const char *split_name, uint64_t index)
{
    FshDataset *dataset = NULL;
    FshSample sample;
    FshError error = {0};
    size_t length = 0;
    char where[128];
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    const FshSplit *split = fsh_split(dataset, split_name);
    assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
    (void)fsh_sample_where(split, index, where, sizeof where); /* "val-00000-of-00002.fshard record 3" */
    const char *shard = test_path(folder, "set/%.*s", (int)strcspn(where, " "), where);
    char *bytes = test_file_read(shard, &length);
    const char *at = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(at);
    test_file_flip_byte(shard, at - bytes + 1000);
    free(bytes);
    fsh_close(&dataset);
}

static void test_a_record_gone_bad_stops_with_its_name_or_is_skipped(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
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
    assert_contains(result.err, "1 samples could not be read");
    assert_contains(result.out, "best top-1");
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
    run_result_free(&result);
}

static void test_a_bad_sample_in_evaluation_does_not_cost_what_was_learnt(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    spoil_sample(folder, "val", 3);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", shards, out);
    assert_contains(result.err, "val-00000-of-00002.fshard record 3");
    run_result_free(&result);
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
}

static void test_a_network_gone_bad_has_a_loss_of_null(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *weights = test_path(folder, "out/last.safetensors");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "out"));
    run_result_free(&result);
    size_t length = 0;
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

static void test_an_evaluation_of_nothing_is_no_result(void **state)
{
    DatasetSpec spec = plain;
    spec.val_count = 2;
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    spoil_sample(folder, "val", 0);
    spoil_sample(folder, "val", 1);
    RunResult result = TRAIN(1, "--model", "conv8", "--epochs", "2", "--on-error", "skip", shards, out);
    assert_contains(result.err, "no sample of split 'val' could be read");
    assert_string_equal(result.out, "");
    run_result_free(&result);
}

static void test_without_a_val_split_it_trains_and_says_so(void **state)
{
    DatasetSpec spec = plain;
    spec.val_count = 0;
    TestFolder *folder = *state;
    RunResult result =
        TRAIN(0, "--model", "conv8", "--epochs", "1", make_set(folder, &spec), test_path(folder, "out"));
    assert_contains(result.err, "training without evaluation");
    assert_contains_not(result.out, "best top-1");
    assert_int_equal(test_count_files(test_path(folder, "out")), 5); /* no model_best */
    run_result_free(&result);
}

/* ---- memory ---- */

static void test_cache_says_how_much_of_the_dataset_is_in_memory(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain);
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
            for (uint32_t n = 0; n < plain.shard_count; n++)
                bytes += test_file_size(test_path(folder, "set/%s-%05u-of-%05u.fshard", splits[s],
                                                  (unsigned)n, (unsigned)plain.shard_count));
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
    result = TRAIN(2, "--cache", "disk", shards, test_path(folder, "out"));
    assert_contains(result.err, "--cache");
    run_result_free(&result);
}

/* ---- stopped and squeezed ---- */

/* num_batches_tracked of conv8's first norm. */
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

/* A long run over 40 steps an epoch gets the signal; what it says and what it has saved must agree to the step. */
static void stop_with(TestFolder *folder, const char *shards, int signal_number, int exit_status,
                      uint64_t files)
{
    const char *out = test_path(folder, "out%d", signal_number);
    const char *weights = test_path(folder, "out%d/last.safetensors", signal_number);
    const char *const arguments[] = {"--jobs", "1",        "--model", "conv8",     "--batch-size",
                                     "1",      "--epochs", "1000000", "--lr-base", "0.01",
                                     shards,   out,        NULL};
    RunningProgram running = run_start(NULL, "ftrain", arguments);
    assert_true(wait_for_file(weights, 30));
    assert_int_equal(kill(running.process, signal_number), 0);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, exit_status);
    unsigned long long epoch, step;
    const char *message = strstr(result.err, "interrupted in epoch ");
    assert_non_null(message);
    assert_int_equal(sscanf(message, "interrupted in epoch %llu after %llu steps", &epoch, &step), 2);
    assert_int_equal(steps_of(weights), epoch * 40 + step);
    run_result_free(&result);
    result = TRAIN(0, "--model", "conv8", "--evaluate", "--val-split", "train", "--weights", weights, shards);
    run_result_free(&result);
    assert_int_equal(test_count_files(out), files); /* no temporary file among them */
}

static void test_a_signal_ends_it_with_weights_on_disk(void **state)
{
    stop_with(*state, make_set(*state, &plain), SIGINT, 130, 6);
}

static void test_a_signal_ends_training_without_evaluation_too(void **state)
{
    DatasetSpec spec = plain;
    spec.val_count = 0;
    stop_with(*state, make_set(*state, &spec), SIGTERM, 75, 5);
}

static void test_a_full_disk_costs_a_warning_and_not_the_run(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    /* Room for the tables and two or three times the 85 kB that conv8's weights take. */
    const RunOptions options = {.limit_disk = true, .disk_bytes = 260000};
    const char *const arguments[] = {"--model", "conv8", "--epochs", "4", shards, out, NULL};
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
    assert_true(test_count_files(out) <= 6);
}

static void test_a_disk_that_is_full_from_the_start_leaves_nothing(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--model", "conv8", "--epochs", "1", shards, test_path(folder, "was"));
    run_result_free(&result);
    /* Full at once, and full behind args.json. */
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

static void test_a_loss_that_is_no_number_stops_with_advice(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain);
    RunResult result = TRAIN(1, "--model", "conv8", "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs",
                             "50", shards, test_path(folder, "out"));
    assert_contains(result.err, "training has diverged; lower --lr");
    assert_contains(result.err, "samples: ");
    assert_true(test_file_size(test_path(folder, "out/diverged.safetensors")) > 1000);
    char *text = test_file_read(test_path(folder, "out/diverged.json"), NULL);
    json_t *object = read_json(text);
    assert_true(json_array_size(json_object_get(object, "samples")) > 0);
    json_decref(object);
    free(text);
    run_result_free(&result);
}

/* ---- telling without doing ---- */

static void test_a_dry_run_prints_the_network_and_writes_nothing(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--dry-run", "--epochs", "3", shards, out);
    assert_contains(result.out, "layer4.1.conv2");
    assert_contains(result.out, "11178564"); /* torchvision.models.resnet18(num_classes=4) */
    assert_contains(result.out, "training, 32 pixels, activations");
    assert_contains(result.out, "3 epochs of 5 steps: 15 steps in all; evaluation 1 steps");
    assert_int_equal(test_count_files(out), 0);
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--json", shards);
    json_t *object = read_json(result.out);
    assert_int_equal((int)number_of(json_object_get(object, "chosen"), "parameters"), 11178564);
    json_decref(object);
    run_result_free(&result);
}

static void test_list_models_gives_parameters_and_flops(void **state)
{
    (void)state;
    RunResult result = TRAIN(0, "--list-models");
    assert_contains(result.out, "conv8");
    assert_contains(result.out, "11.69 M"); /* resnet18 for ImageNet */
    run_result_free(&result);
}

/* What --dry-run --json says was chosen, for a dataset whose manifest has no mean and deviation. */
static void check_stand_in(TestFolder *folder, uint8_t channels, double mean, double deviation)
{
    DatasetSpec spec = plain;
    spec.unmeasured = true;
    spec.channels = channels;
    const char *shards = test_path(folder, "set%d", channels);
    dataset_make(shards, &spec);
    RunResult result = TRAIN(0, "--dry-run", "--json", "--model", "conv8", shards);
    assert_contains(result.err, "ImageNet's mean and deviation, for the dataset has none");
    json_t *object = read_json(result.out), *chosen = json_object_get(object, "chosen");
    assert_true(json_number_value(json_array_get(json_object_get(chosen, "mean"), 0)) == mean);
    assert_true(json_number_value(json_array_get(json_object_get(chosen, "std"), 0)) == deviation);
    json_decref(object);
    run_result_free(&result);
}

static void test_a_dataset_without_mean_and_deviation_gets_imagenets(void **state)
{
    check_stand_in(*state, 3, 0.485, 0.229);
    check_stand_in(*state, 1, 0.449, 0.226);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", make_set(*state, &plain));
    assert_null(strstr(result.err, "normalisation")); /* that of the dataset goes without saying */
    run_result_free(&result);
}

static void test_folders_can_be_given_by_name(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_set(folder, &plain), *out = test_path(folder, "out");
    RunResult result =
        TRAIN(0, "--shards", shards, "--output", out, "--model", "conv8", "--epochs", "1", "--quiet");
    assert_string_equal(result.err, "");
    assert_contains(result.out, "out/last.safetensors");
    run_result_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_folders_of_images_are_packed_and_learnt),
        IN_FOLDER(test_resnet18_trains_and_leaves_torchvisions_names),
        IN_FOLDER(test_the_same_seed_gives_the_same_weights_whatever_the_workers),
        IN_FOLDER(test_cache_says_how_much_of_the_dataset_is_in_memory),
        IN_FOLDER(test_training_goes_on_from_given_weights),
        IN_FOLDER(test_weights_of_another_network_are_refused),
        IN_FOLDER(test_weights_that_nearly_fit_are_refused),
        IN_FOLDER(test_evaluation_takes_the_network_that_the_weights_name),
        IN_FOLDER(test_a_missing_dataset_is_refused),
        IN_FOLDER(test_pairs_for_a_classifier_are_refused),
        IN_FOLDER(test_classes_for_a_restorer_are_refused),
        IN_FOLDER(test_one_class_is_refused),
        IN_FOLDER(test_splits_of_different_classes_are_refused),
        IN_FOLDER(test_a_label_out_of_range_is_refused_with_its_place),
        IN_FOLDER(test_a_missing_split_is_refused_by_name),
        IN_FOLDER(test_fewer_samples_than_a_batch_are_refused),
        IN_FOLDER(test_a_model_that_does_not_fit_the_images_is_refused),
        IN_FOLDER(test_an_unknown_model_is_refused_with_the_known_ones),
        IN_FOLDER(test_options_that_contradict_are_usage_errors),
        IN_FOLDER(test_cuda_on_a_machine_without_it_is_refused),
        IN_FOLDER(test_an_output_that_exists_is_refused_without_force),
        IN_FOLDER(test_the_dataset_is_checked_before_the_output),
        IN_FOLDER(test_a_torn_shard_is_refused),
        IN_FOLDER(test_a_record_gone_bad_stops_with_its_name_or_is_skipped),
        IN_FOLDER(test_a_bad_sample_in_evaluation_does_not_cost_what_was_learnt),
        IN_FOLDER(test_a_network_gone_bad_has_a_loss_of_null),
        IN_FOLDER(test_an_evaluation_of_nothing_is_no_result),
        IN_FOLDER(test_without_a_val_split_it_trains_and_says_so),
        IN_FOLDER(test_a_signal_ends_it_with_weights_on_disk),
        IN_FOLDER(test_a_signal_ends_training_without_evaluation_too),
        IN_FOLDER(test_a_full_disk_costs_a_warning_and_not_the_run),
        IN_FOLDER(test_a_disk_that_is_full_from_the_start_leaves_nothing),
        IN_FOLDER(test_a_loss_that_is_no_number_stops_with_advice),
        IN_FOLDER(test_a_dry_run_prints_the_network_and_writes_nothing),
        IN_FOLDER(test_list_models_gives_parameters_and_flops),
        IN_FOLDER(test_a_dataset_without_mean_and_deviation_gets_imagenets),
        IN_FOLDER(test_folders_can_be_given_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
