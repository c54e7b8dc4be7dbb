#include "tests/programs/train_support.h"

#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "imaging/encode.h"

/* ---- datasets ---- */

static void write_image(ImageEncoder *encoder, const char *path, int label, uint32_t seed)
{
    Image image = {0};
    Buffer file = {0};
    FshError error = {0};
    Random random;
    assert_ok(image_reserve(&image, COLOURS_EDGE, COLOURS_EDGE, 3, &error), &error);
    random_start(&random, seed, (uint64_t)label);
    for (size_t i = 0; i < (size_t)COLOURS_EDGE * COLOURS_EDGE * 3; i++)
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

const char *pack_named(TestFolder *folder, const char *const names[COLOURS], int train_count, int val_count)
{
    ImageEncoder *encoder = NULL;
    FshError error = {0};
    assert_ok(image_encoder_new(&encoder, &error), &error);
    for (int label = 0; label < COLOURS; label++) {
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

const char *pack_colours(TestFolder *folder, int train_count, int val_count)
{
    static const char *const names[COLOURS] = {"red", "green", "blue"};
    return pack_named(folder, names, train_count, val_count);
}

const DatasetSpec train_plain = {.codec = FSH_CODEC_RAW,
                                 .width = 32,
                                 .height = 32,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 40,
                                 .val_count = 8,
                                 .shard_count = 2};

const DatasetSpec train_negatives = {.codec = FSH_CODEC_RAW,
                                     .width = 32,
                                     .height = 32,
                                     .channels = 3,
                                     .class_count = 4,
                                     .train_count = 24,
                                     .val_count = 5,
                                     .shard_count = 2,
                                     .kind = FSH_KIND_PAIRS,
                                     .grow = 6};

const DatasetSpec train_few_pairs = {.codec = FSH_CODEC_RAW,
                                     .width = 16,
                                     .height = 16,
                                     .channels = 3,
                                     .class_count = 2,
                                     .train_count = 4,
                                     .shard_count = 1,
                                     .kind = FSH_KIND_PAIRS};

const char *make_set(TestFolder *folder, const DatasetSpec *spec)
{
    const char *path = test_path(folder, "set");
    dataset_make(path, spec);
    return path;
}

void spoil_sample(TestFolder *folder, const char *split_name, uint64_t index)
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

/* ---- running ---- */

RunResult expect_train(int exit_status, const RunOptions *options, const char *const *arguments)
{
    enum { ARGUMENTS_MAX = 48 };
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

RunResult stop_train(const char *stop_at, int signal_number, int exit_status, const char *const *arguments)
{
    const RunOptions stops = {.stop_at = stop_at};
    RunningProgram running = run_start(&stops, "ftrain", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, signal_number);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, exit_status);
    return result;
}

void kill_train(const char *const *arguments)
{
    RunResult result = stop_train("stopped/checkpoint.safetensors", SIGKILL, 128 + SIGKILL, arguments);
    run_result_free(&result);
}

void expect_refusal(int exit_status, const char *part, const char *output, const char *const *arguments)
{
    RunResult result = expect_train(exit_status, NULL, arguments);
    assert_contains(result.err, part);
    assert_contains(result.err, "ftrain: ");
    assert_string_equal(result.out, "");
    assert_int_equal(test_count_files(output), 0);
    run_result_free(&result);
}

/* ---- what it has left ---- */

double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

json_t *read_json(const char *text)
{
    json_error_t problem;
    json_t *object = json_loads(text, 0, &problem);
    if (!object)
        fail_msg("no JSON: %s in '%s'", problem.text, text);
    return object;
}

json_t *read_json_file(const char *path)
{
    char *text = test_file_read(path, NULL);
    json_t *object = read_json(text);
    free(text);
    return object;
}

size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* Returns the index of a column; fails the test where there is none. */
static size_t column_of(const char *head, const char *name)
{
    const size_t length = strlen(name);
    for (size_t column = 0;; column++) {
        const size_t width = strcspn(head, ",\n");
        if (width == length && memcmp(head, name, length) == 0)
            return column;
        if (head[width] != ',')
            fail_msg("summary.csv has no column %s", name);
        head += width + 1;
    }
}

double summary_number(const char *output, size_t row, const char *column)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/summary.csv", output);
    char *text = test_file_read(path, NULL);
    const char *at = text;
    const size_t place = column_of(text, column);
    for (size_t i = 0; i <= row; i++) {
        at = strchr(at, '\n');
        assert_non_null(at);
        at++;
    }
    for (size_t i = 0; i < place; i++) {
        at += strcspn(at, ",\n");
        assert_int_equal(*at, ',');
        at++;
    }
    char *end = NULL;
    const double value = strtod(at, &end);
    if (end == at)
        fail_msg("row %zu of %s has no %s", row, path, column);
    free(text);
    return value;
}

char *summary_without_time(const char *output)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/summary.csv", output);
    char *text = test_file_read(path, NULL), *to = text;
    /* "epoch,time,…", or "epoch,iteration,time,…" */
    const int before = strncmp(text, "epoch,iteration,", strlen("epoch,iteration,")) == 0 ? 2 : 1;
    for (const char *at = text; *at;) {
        for (int column = 0; column < before; column++) {
            *to++ = *at++;
            while (*at != ',')
                *to++ = *at++;
        }
        for (at++; *at != ','; at++)
            ;
        while (*at && *at != '\n')
            *to++ = *at++;
        if (*at)
            *to++ = *at++;
    }
    *to = '\0';
    return text;
}

bool same_bytes(const char *a, const char *b)
{
    size_t a_bytes = 0, b_bytes = 0;
    char *a_text = test_file_read(a, &a_bytes), *b_text = test_file_read(b, &b_bytes);
    const bool same = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    free(a_text);
    free(b_text);
    return same;
}

void assert_same_file(TestFolder *folder, const char *a, const char *b, bool same)
{
    const bool equal =
        same_bytes(test_path(folder, "%s/last.safetensors", a), test_path(folder, "%s/last.safetensors", b));
    if (equal != same)
        fail_msg("%s and %s: weights are %s", a, b, equal ? "the same" : "different");
}

void forget_checksums(const char *path)
{
    replace_in_file(path, "fshard.header_xxh3", "others.header_xxh3");
    replace_in_file(path, "fshard.tensors_xxh3", "others.tensors_xxh3");
}

void replace_in_file(const char *path, const char *from, const char *to)
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
