/* ftrain from outside: weights on datasets of other classes. */
#include "tests/programs/train_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/random.h"
#include "trainer/checkpoint/safetensors.h"

static const DatasetSpec four = {.codec = FSH_CODEC_RAW,
                                 .width = 32,
                                 .height = 32,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 80,
                                 .val_count = 16,
                                 .shard_count = 1};

/* Trains on FOLDER/set until the classes are told apart; returns the weights. */
static const char *train_four(TestFolder *folder)
{
    (void)make_set(folder, &four);
    TRAINED("--model", "conv8", "--epochs", "6", "--no-aug", test_path(folder, "set"),
            test_path(folder, "run"));
    assert_true(summary_number(test_path(folder, "run"), 5, "eval_top1") == 100);
    return test_path(folder, "run/last.safetensors");
}

/* Makes FOLDER/NAME. */
static const char *make_other(TestFolder *folder, const char *name, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "%s", name);
    dataset_make(path, spec);
    return path;
}

/* Writes the weights without metadata, as another program would, and returns the path. */
static const char *without_metadata(TestFolder *folder, const char *weights)
{
    const char *path = test_path(folder, "plain.safetensors");
    size_t length = 0;
    char *bytes = test_file_read(weights, &length), *end = NULL;
    uint64_t header = 0;
    memcpy(&header, bytes, sizeof header);
    char *metadata = memmem(bytes, 8 + header, "\"__metadata__\":{", 16);
    assert_non_null(metadata);
    for (end = metadata + 16; *end != '}' || end[-1] != '"' || end[1] != ','; end++)
        ;
    memset(metadata, ' ', (size_t)(end + 2 - metadata));
    test_file_write(path, bytes, length);
    free(bytes);
    return path;
}

/* Writes the weights as PyTorch would: each name with `prefix` before it, no metadata, and without the
 * tensors of `dropped`. */
static const char *rewritten(TestFolder *folder, const char *weights, const char *prefix, const char *dropped)
{
    const char *path = test_path(folder, "rewritten.safetensors"), *key;
    size_t length = 0, data = 0;
    char *bytes = test_file_read(weights, &length), name[256];
    uint64_t header_bytes = 0;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    json_t *header = json_loadb(bytes + 8, header_bytes, 0, NULL), *made = json_object(), *value;
    char *out = calloc(1, 2 * length + 65536), *tensors = calloc(1, length);
    assert_true(header && made && out && tensors);
    json_object_foreach(header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0 || strncmp(key, dropped, strlen(dropped)) == 0)
            continue;
        json_t *offsets = json_object_get(value, "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                     count = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
        memcpy(tensors + data, bytes + 8 + header_bytes + begin, count);
        (void)snprintf(name, sizeof name, "%s%s", prefix, key);
        (void)json_object_set_new(made, name,
                                  json_pack("{s:O, s:O, s:[I, I]}", "dtype", json_object_get(value, "dtype"),
                                            "shape", json_object_get(value, "shape"), "data_offsets",
                                            (json_int_t)data, (json_int_t)data + (json_int_t)count));
        data += count;
    }
    char *text = json_dumps(made, JSON_COMPACT);
    header_bytes = strlen(text);
    memcpy(out, &header_bytes, sizeof header_bytes);
    memcpy(out + 8, text, header_bytes);
    memcpy(out + 8 + header_bytes, tensors, data);
    test_file_write(path, out, 8 + header_bytes + data);
    json_decref(header);
    json_decref(made);
    free(text);
    free(tensors);
    free(out);
    free(bytes);
    return path;
}

static double top1_of(const RunResult *result)
{
    json_t *object = read_json(result->out);
    const double top1 = number_of(object, "top1");
    json_decref(object);
    return top1;
}

TEST_IN_FOLDER(test_weights_are_evaluated_by_the_names_of_classes, folder)
{
    DatasetSpec spec = four;
    const char *weights = train_four(folder);
    spec.backwards = true;
    const char *other = make_other(folder, "backwards", &spec), *csv = test_path(folder, "a.csv");
    RunResult result = TRAIN(0, "--json", "--export", csv, "--weights", weights, other);
    assert_true(top1_of(&result) == 100);
    assert_contains(result.err, "classes: 4, found by their names among the 4 of the weights");
    run_result_free(&result);
    /* The first sample is of label 0 there, which is the last class. */
    char *text = test_file_read(csv, NULL);
    assert_contains(text, "class00/000000,class03,class03,");
    free(text);
    /* Decoded once, the labels are kept beside the pixels. */
    result = TRAIN(0, "--json", "--evaluate", "--cache", "pixels", "--weights", weights, other);
    assert_true(top1_of(&result) == 100);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_part_of_the_classes_is_evaluated_among_all, folder)
{
    DatasetSpec spec = four;
    const char *weights = train_four(folder), *csv = test_path(folder, "a.csv");
    spec.class_count = 3;
    const char *part = make_other(folder, "part", &spec);
    RunResult result = TRAIN(0, "--json", "--export", csv, "--weights", weights, part);
    assert_true(top1_of(&result) == 100);
    assert_contains(result.err, "classes: 3, found by their names among the 4 of the weights");
    assert_contains(result.err, "/part, 3 classes");
    run_result_free(&result);
    spec.class_count = 1;
    result = TRAIN(0, "--json", "--evaluate", "--weights", weights, make_other(folder, "one", &spec));
    assert_true(top1_of(&result) == 100);
    run_result_free(&result);
    char *text = test_file_read(csv, NULL);
    assert_contains(text, "class03"); /* the network may still take an image for one of it */
    free(text);
}

TEST_IN_FOLDER(test_classes_that_the_weights_do_not_know_are_refused, folder)
{
    DatasetSpec spec = four;
    const char *weights = train_four(folder);
    spec.renamed = "scorpion";
    const char *other = make_other(folder, "renamed", &spec), *csv = test_path(folder, "a.csv");
    static const char told[] = "1 of its 4 classes is not among the 4 of ", *const uses[] = {"--evaluate",
                                                                                             "--export"};
    for (size_t i = 0; i < 2; i++) {
        RunResult result = i ? TRAIN(1, uses[i], csv, "--weights", weights, other)
                             : TRAIN(1, uses[i], "--weights", weights, other);
        assert_contains(result.err, told);
        assert_contains(result.err, "'scorpion'; the weights alone know 'class00'");
        assert_string_equal(result.out, "");
        run_result_free(&result);
    }
    assert_int_equal(access(csv, F_OK), -1);
}

TEST_IN_FOLDER(test_training_on_the_same_classes_keeps_what_was_learnt, folder)
{
    DatasetSpec spec = four;
    const char *weights = train_four(folder), *next = test_path(folder, "next/last.safetensors");
    spec.backwards = true;
    const char *other = make_other(folder, "backwards", &spec);
    SAYS(0, "classes: 4, found by their names among the 4 of the weights", "--epochs", "1", "--lr", "1e-9",
         "--model", "conv8", "--weights", weights, other, test_path(folder, "next"));
    assert_true(summary_number(test_path(folder, "next"), 0, "eval_top1") == 100);
    /* What it writes has the order of its own dataset. */
    RunResult result = TRAIN(0, "--json", "--evaluate", "--weights", next, other);
    assert_true(top1_of(&result) == 100);
    assert_contains_not(result.err, "classes: 4, found");
    run_result_free(&result);
    result = TRAIN(0, "--json", "--evaluate", "--weights", next, test_path(folder, "set"));
    assert_true(top1_of(&result) == 100);
    run_result_free(&result);
    /* A part of the classes takes its rows. */
    spec.class_count = 3;
    spec.backwards = false;
    SAYS(0, "classes: 3, found by their names among the 4 of the weights", "--epochs", "1", "--lr", "1e-9",
         "--model", "conv8", "--weights", weights, make_other(folder, "part", &spec),
         test_path(folder, "three"));
    assert_true(summary_number(test_path(folder, "three"), 0, "eval_top1") == 100);
}

TEST_IN_FOLDER(test_training_on_other_classes_begins_a_new_last_layer, folder)
{
    DatasetSpec spec = four;
    const char *weights = train_four(folder);
    spec.renamed = "scorpion";
    const char *other = make_other(folder, "renamed", &spec);
    SAYS(0,
         "classes: 1 of 4 is not among the 4 of the weights: 'scorpion'; the weights alone know 'class00'; "
         "model.33 begins anew",
         "--seed", "7", "--epochs", "1", "--lr", "1e-9", "--model", "conv8", "--weights", weights, other,
         test_path(folder, "next"));
    assert_true(summary_number(test_path(folder, "next"), 0, "eval_top1") < 100);
}

TEST_IN_FOLDER(test_weights_without_names_are_taken_and_the_log_says_that, folder)
{
    DatasetSpec spec = four;
    const char *plain = without_metadata(folder, train_four(folder));
    spec.renamed = "scorpion";
    const char *other = make_other(folder, "renamed", &spec);
    RunResult result = TRAIN(0, "--json", "--evaluate", "--model", "conv8", "--weights", plain, other);
    assert_true(top1_of(&result) == 100);
    assert_contains(result.err, "plain.safetensors: of another program");
    assert_contains(result.err, "that they are these, in this order, was not checked");
    run_result_free(&result);
    SAYS(0, "that they are these, in this order, was not checked", "--epochs", "1", "--model", "conv8",
         "--weights", plain, other, test_path(folder, "next"));
}

TEST_IN_FOLDER(test_weights_of_a_wrapped_network_are_taken, folder)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};
    const char *weights = train_four(folder);
    for (size_t i = 0; i < 2; i++) {
        RunResult result = TRAIN(0, "--json", "--evaluate", "--model", "conv8", "--weights",
                                 rewritten(folder, weights, prefixes[i], "none"), test_path(folder, "set"));
        assert_true(top1_of(&result) == 100);
        run_result_free(&result);
    }
}

/* To train from it; to evaluate it says nothing. */
TEST_IN_FOLDER(test_a_backbone_begins_a_new_last_layer, folder)
{
    const char *weights = train_four(folder), *set = test_path(folder, "set");
    const char *backbone = rewritten(folder, weights, "", "model.33.");
    SAYS(0, "model.33 begins anew", "--epochs", "1", "--lr", "1e-9", "--model", "conv8", "--weights",
         backbone, set, test_path(folder, "next"));
    SAYS(1, "has no tensor model.33.", "--evaluate", "--model", "conv8", "--weights", backbone, set);
    SAYS(1, "has no tensor ", "--epochs", "1", "--model", "conv8", "--weights",
         rewritten(folder, weights, "", "model.1"), set, test_path(folder, "other"));
}

TEST_IN_FOLDER(test_a_folder_of_a_run_is_no_file_of_weights, folder)
{
    (void)train_four(folder);
    SAYS(2, "/run is a folder; its weights are ", "--evaluate", "--weights", test_path(folder, "run"),
         test_path(folder, "set"));
    SAYS(2, "/run/model_best.safetensors", "--evaluate", "--weights", test_path(folder, "run"),
         test_path(folder, "set"));
    SAYS(2, "/set is a folder; name a file of weights", "--evaluate", "--weights", test_path(folder, "set"),
         test_path(folder, "set"));
}

TEST_IN_FOLDER(test_evaluation_of_the_trained_split_is_warned_of, folder)
{
    const char *set = make_set(folder, &four);
    SAYS(0, "warning: split 'train' is trained on and evaluated", "--epochs", "1", "--model", "conv8",
         "--val-split", "train", set, test_path(folder, "a"));
    RunResult result = TRAIN(0, "--epochs", "1", "--model", "conv8", set, test_path(folder, "b"));
    assert_contains_not(result.err, "is trained on and evaluated");
    run_result_free(&result);
}

/* The sets that dataset_make makes have one id, as if somebody had renamed a class in the set. */
TEST_IN_FOLDER(test_a_run_does_not_go_on_with_other_classes, folder)
{
    DatasetSpec spec = four;
    (void)train_four(folder);
    const char *run = test_path(folder, "run");
    spec.renamed = "scorpion";
    SAYS(1, "which alone has 'scorpion'; the run alone had 'class00'; begin a new run with --weights",
         "--resume", "auto", "--model", "conv8", "--epochs", "6", "--no-aug",
         make_other(folder, "renamed", &spec), run);
    spec.renamed = NULL;
    spec.backwards = true;
    SAYS(1, "they stand in another order", "--resume", "auto", "--model", "conv8", "--epochs", "6",
         "--no-aug", make_other(folder, "backwards", &spec), run);
}

/* Flips a bit of the file at the place that `turn` draws, of the header's for each third; runs; and flips it
 * back. What is said names the file, and the tensor if the bit is of one. */
static void expect_told(const char *path, uint64_t turn, const char *const *arguments)
{
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    uint64_t header_bytes = 0;
    Random random;
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    random_start(&random, 3, turn);
    const size_t place = random_below(&random, turn % 3 ? (uint32_t)length : 8 + (uint32_t)header_bytes);
    const char bit = (char)(1 << random_below(&random, 8));
    bytes[place] ^= bit;
    test_file_write(path, bytes, length);
    RunResult result = expect_train(1, NULL, arguments);
    assert_contains(result.err, strrchr(path, '/') + 1);
    if (place >= 8 + header_bytes)
        assert_contains(result.err, ": damaged: tensor ");
    assert_string_equal(result.out, "");
    run_result_free(&result);
    bytes[place] ^= bit;
    test_file_write(path, bytes, length);
    free(bytes);
}

TEST_IN_FOLDER(test_a_flipped_bit_in_a_file_of_a_run_is_told, folder)
{
    enum { TURNS = 24 };
    (void)train_four(folder);
    const char *set = test_path(folder, "set"), *run = test_path(folder, "run"),
               *next = test_path(folder, "next");
    const char *checkpoint = test_path(folder, "run/checkpoint.safetensors"),
               *best = test_path(folder, "run/model_best.safetensors"),
               *last = test_path(folder, "run/last.safetensors");
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        expect_told(checkpoint, turn,
                    (const char *[]){"--resume", "auto", "--model", "conv8", "--epochs", "6", "--no-aug", set,
                                     run, NULL});
        expect_told(best, turn,
                    (const char *[]){"--evaluate", "--model", "conv8", "--weights", best, set, NULL});
        expect_told(
            last, turn,
            (const char *[]){"--epochs", "1", "--model", "conv8", "--weights", last, set, next, NULL});
    }
    assert_int_equal(test_count_files(next), 0);
    /* As they were, they are taken. */
    TRAINED("--resume", "auto", "--model", "conv8", "--epochs", "6", "--no-aug", set, run);
    TRAINED("--evaluate", "--weights", best, set);
    TRAINED("--epochs", "1", "--model", "conv8", "--weights", last, set, next);
}

TEST_IN_FOLDER(test_weights_of_another_network_name_it, folder)
{
    const char *weights = train_four(folder), *plain = without_metadata(folder, weights);
    const char *set = test_path(folder, "set"), *out = test_path(folder, "next");
    static const char told[] = ".safetensors: these are weights of conv8; say --model conv8";
    REFUSED(1, told, out, "--model", "resnet18", "--weights", weights, set);
    REFUSED(1, told, out, "--weights", weights, set);
    REFUSED(1, told, out, "--model", "resnet18", "--weights", plain, set);
    SAYS(1, told, "--evaluate", "--model", "resnet9", "--weights", weights, set);
    SAYS(1, told, "--evaluate", "--model", "resnet9", "--weights", plain, set);
    SAYS(1, told, "--evaluate", "--weights", plain, set);
}

TEST_IN_FOLDER(test_the_log_says_which_weights_were_loaded, folder)
{
    const char *weights = train_four(folder), *set = test_path(folder, "set");
    SAYS(0, "run/last.safetensors: conv8, 4 classes, epoch 5, top1 100.00", "--evaluate", "--weights",
         weights, set);
    SAYS(0, "run/last.safetensors: conv8, 4 classes, epoch 5, top1 100.00", "--epochs", "1", "--model",
         "conv8", "--weights", weights, set, test_path(folder, "next"));
}

/* Reads a tensor of a file of weights; the caller frees it. */
static float *tensor_of(const char *weights, const char *name, size_t count)
{
    FshError error = {0};
    Safetensors *file = NULL;
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    assert_ok(safetensors_open(&file, weights, &error), &error);
    assert_ok(safetensors_read_f32(safetensors_find(file, name), values, count, &error), &error);
    safetensors_close(&file);
    return values;
}

/* Asserts that two files have the same tensor, or another one. */
static void assert_alike(const char *a, const char *b, const char *name, size_t count, bool alike)
{
    float *first = tensor_of(a, name, count), *second = tensor_of(b, name, count);
    assert_int_equal(memcmp(first, second, count * sizeof *first) == 0, alike);
    free(first);
    free(second);
}

/* They follow neither from the seed nor from the number of threads; weights that are given keep theirs. */
TEST_IN_FOLDER(test_the_first_filters_of_airbench_follow_from_the_images, folder)
{
    enum { FILTERS = 24 * 12, HEAD = 4 * 256 };
    DatasetSpec others = four;
    const char *set = make_set(folder, &four), *a = test_path(folder, "a/last.safetensors");
    others.train_count = 60;
    const char *other = make_other(folder, "other", &others);
    const char *b = test_path(folder, "b/last.safetensors"), *c = test_path(folder, "c/last.safetensors"),
               *d = test_path(folder, "d/last.safetensors");
    TRAINED("--jobs", "1", "--model", "airbench94", "--epochs", "1", "--batch-size", "40", "--seed", "1", set,
            test_path(folder, "a"));
    TRAINED("--jobs", "3", "--model", "airbench94", "--epochs", "1", "--batch-size", "40", "--seed", "2", set,
            test_path(folder, "b"));
    TRAINED("--model", "airbench94", "--epochs", "1", "--batch-size", "40", other, test_path(folder, "c"));
    TRAINED("--weights", a, "--model", "airbench94", "--epochs", "1", "--batch-size", "40", other,
            test_path(folder, "d"));
    assert_alike(a, b, "whiten.weight", FILTERS, true);
    assert_alike(a, b, "head.weight", HEAD, false);
    assert_alike(a, c, "whiten.weight", FILTERS, false);
    assert_alike(a, d, "whiten.weight", FILTERS, true);
}
