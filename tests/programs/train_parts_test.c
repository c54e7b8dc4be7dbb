/* ftrain from outside: parts of a network are trained alone. */
#include "tests/programs/train_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/safetensors.h"

static const DatasetSpec two = {.codec = FSH_CODEC_RAW,
                                .width = 32,
                                .height = 32,
                                .channels = 3,
                                .class_count = 2,
                                .train_count = 40,
                                .val_count = 8,
                                .shard_count = 1};

static float *read_values(const Safetensors *file, const char *name, size_t *count_ret)
{
    const SafetensorsEntry *entry = safetensors_find(file, name);
    FshError error = {0};
    if (!entry) {
        fail_msg("no tensor %s", name);
        return NULL;
    }
    float *values = malloc(entry->count * sizeof *values);
    assert_non_null(values);
    assert_int_equal(safetensors_read_f32(entry, values, entry->count, &error), FSH_OK);
    *count_ret = entry->count;
    return values;
}

/* Asserts that two files of weights differ in a tensor, or do not. */
static void expect_moved(const char *before, const char *after, const char *name, bool moved)
{
    Safetensors *files[2] = {NULL, NULL};
    FshError error = {0};
    size_t counts[2] = {0, 0};
    assert_int_equal(safetensors_open(&files[0], before, &error), FSH_OK);
    assert_int_equal(safetensors_open(&files[1], after, &error), FSH_OK);
    float *a = read_values(files[0], name, &counts[0]), *b = read_values(files[1], name, &counts[1]);
    assert_int_equal(counts[0], counts[1]);
    if ((memcmp(a, b, counts[0] * sizeof *a) != 0) != moved)
        fail_msg("%s: %s %s", after, name, moved ? "is as before" : "has moved");
    free(a);
    free(b);
    safetensors_close(&files[0]);
    safetensors_close(&files[1]);
}

static const char *train_whole(TestFolder *folder)
{
    (void)make_set(folder, &two);
    TRAINED("--model", "conv8", "--epochs", "1", "--no-aug", test_path(folder, "set"),
            test_path(folder, "whole"));
    return test_path(folder, "whole/last.safetensors");
}

TEST_IN_FOLDER(test_the_head_alone_is_trained, folder)
{
    static const char *const files[] = {"last", "model_ema"};
    const char *before = train_whole(folder);
    SAYS(0, " of them trained", "--model", "conv8", "--weights", before, "--head-only", "--model-ema",
         "--epochs", "2", "--no-aug", test_path(folder, "set"), test_path(folder, "head"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *after = test_path(folder, "head/%s.safetensors", files[i]);
        expect_moved(before, after, "model.33.weight", true);
        expect_moved(before, after, "model.29.weight", false);
        expect_moved(before, after, "model.2.weight", false);
        expect_moved(before, after, "model.2.running_mean", false);
    }
}

#define PARTS                                                                                                \
    "--jobs", "1", "--model", "conv8", "--weights", before, "--freeze", "model.1,model.2,model.30",          \
        "--lr-of", "model.33=3", "--opt", "nadamw", "--lr-scheduler", "one-cycle", "--epochs", "3",          \
        "--no-aug"

TEST_IN_FOLDER(test_a_run_with_frozen_layers_goes_on_bit_for_bit, folder)
{
    const char *before = train_whole(folder), *set = test_path(folder, "set");
    const char *whole = test_path(folder, "a"), *stopped = test_path(folder, "b");
    const char *const first[] = {PARTS, "--checkpoint-interval", "2", set, stopped, NULL};
    TRAINED(PARTS, set, whole);
    RunResult killed = stop_train("b/checkpoint.safetensors", SIGKILL, 128 + SIGKILL, first);
    run_result_free(&killed);
    TRAINED(PARTS, "--resume", "auto", set, stopped);
    expect_moved(before, test_path(folder, "b/last.safetensors"), "model.1.weight", false);
    expect_moved(before, test_path(folder, "b/last.safetensors"), "model.2.running_var", false);
    expect_moved(before, test_path(folder, "b/last.safetensors"), "model.5.weight", true);
    expect_moved(test_path(folder, "a/last.safetensors"), test_path(folder, "b/last.safetensors"),
                 "model.33.weight", false);
    expect_moved(test_path(folder, "a/last.safetensors"), test_path(folder, "b/last.safetensors"),
                 "model.5.weight", false);
}

TEST_IN_FOLDER(test_patterns_that_match_nothing_are_refused, folder)
{
    REFUSED(2, "--freeze: 'modl.1' matches no parameter; did you mean model.1?", test_path(folder, "out"),
            "--model", "conv8", "--freeze", "modl.1", make_set(folder, &two));
    REFUSED(2, "--freeze: does nothing here; it is for runs without --head-only", test_path(folder, "out"),
            "--model", "conv8", "--head-only", "--freeze", "model.1", test_path(folder, "set"));
}
