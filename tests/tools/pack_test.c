/* fpack: what goes into a dataset, under which key and label, and what is left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "tests/tools/sources.h"

static bool permissions_bind, png_is_readable;

static void test_shards_hold_the_bytes_of_the_files(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    source_jpeg(test_path(folder, "photos/dog/deep/down.jpeg"), 17, 23, 1, 5);
    run_ok("fpack", source, packed, NULL);
    packed_assert_copies(packed, source);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "cat/0 0\ncat/1 0\ncat/2 0\ndog/0 1\ndog/1 1\ndog/deep/down 1\n");
    free(list);

    FshDataset *dataset = packed_open(packed);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 5, &sample, NULL), NULL);
    assert_int_equal(sample.fields[0].width, 17);
    assert_int_equal(sample.fields[0].height, 23);
    assert_int_equal(sample.fields[0].channels, 1);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_JPEG);
    const FshStatistics *statistics = &fsh_manifest(dataset)->statistics;
    assert_int_equal(statistics->channels, 3);
    assert_int_equal(statistics->width_min, 17);
    assert_int_equal(statistics->width_max, 42);
    assert_int_equal(statistics->height_min, 23);
    assert_int_equal(statistics->height_max, 30);
    fsh_close(&dataset);
    /* Nothing else is left in the folder: no mark, no progress. */
    assert_int_equal(test_count_files(packed), 2);
    run_ok("fverify", packed, NULL);
}

static void test_lmdb_holds_the_same_samples_in_the_same_order(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos");
    const char *shards = test_path(folder, "shards"), *lmdb = test_path(folder, "lmdb");
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "dog", 2);
    run_ok("fpack", "--shuffle", "4", source, shards, NULL);
    run_ok("fpack", "--shuffle=4", "--format", "lmdb", source, lmdb, NULL);
    for (int split = 0; split < 2; split++) {
        const char *name = split ? "val" : "train";
        char *in_shards = packed_list(shards, name), *in_lmdb = packed_list(lmdb, name);
        assert_string_equal(in_shards, in_lmdb);
        assert_true(in_shards[0] != '\0');
        free(in_shards);
        free(in_lmdb);
    }
    packed_assert_copies(lmdb, source);
    assert_int_equal(test_count_files(lmdb), 3);
    run_ok("fverify", lmdb, NULL);
}

static void test_any_number_of_threads_gives_the_same_bytes(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos");
    source_class(source, "cat", 40);
    source_class(source, "dog", 30);
    test_file_write_text(test_path(folder, "photos/dog/9.jpg"), "no photograph");
    static const char *const ways[][4] = {
        {"shards", "copy"}, {"shards", "raw"}, {"lmdb", "copy"}, {"lmdb", "raw"}};
    for (size_t way = 0; way < 4; way++) {
        const char *one = test_path(folder, "one%zu", way), *many = test_path(folder, "many%zu", way);
        RunResult first = run_expecting(1, "fpack", "-j1", "--format", ways[way][0], "--store", ways[way][1],
                                        "--shard-size", "16K", "--split", "0.2", source, one, NULL);
        RunResult second = run_expecting(1, "fpack", "-j5", "--format", ways[way][0], "--store", ways[way][1],
                                         "--shard-size", "16K", "--split", "0.2", source, many, NULL);
        char *difference = test_tree_difference(one, many);
        if (difference)
            fail_msg("%s, %s: %s", ways[way][0], ways[way][1], difference);
        run_result_free(&first);
        run_result_free(&second);
    }
    /* Several shards each, or this proves little. */
    assert_true(test_count_files(test_path(folder, "one0")) > 5);
}

static void test_raw_holds_the_pixels(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    source_jpeg(test_path(folder, "photos/cat/gray.jpg"), 20, 10, 1, 3);
    run_ok("fpack", "--store", "raw", source, packed, NULL);

    FshDataset *dataset = packed_open(packed);
    const FshSplit *train = fsh_split(dataset, "train");
    ImageDecoder *decoder = NULL;
    Image image = {0};
    FshError error = {0};
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_int_equal(train->sample_count, 6);
    for (uint64_t i = 0; i < train->sample_count; i++) {
        FshSample sample;
        size_t length = 0;
        assert_ok(fsh_sample_get(train, i, &sample, &error), &error);
        const FshField *field = &sample.fields[0];
        char *file = test_file_read(test_path(folder, "photos/%.*s", (int)field->source_bytes, field->source),
                                    &length);
        const ImageDecodeOptions options = {.channels = 3};
        assert_ok(image_decode(decoder, file, length, &options, &image, NULL, &error), &error);
        free(file);
        assert_int_equal(field->codec, FSH_CODEC_RAW);
        assert_int_equal(field->channels, 3); /* the gray one too: every sample has the same channels */
        assert_int_equal(field->width, image.width);
        assert_int_equal(field->height, image.height);
        assert_int_equal(field->bytes, (size_t)image.width * image.height * 3);
        assert_memory_equal(field->data, image.pixels, field->bytes);
    }
    image_free(&image);
    image_decoder_free(&decoder);
    fsh_close(&dataset);
}

static void test_raw_stays_gray_where_every_image_is(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "digits"), *packed = test_path(folder, "shards");
    source_jpeg(test_path(folder, "digits/0/a.jpg"), 20, 10, 1, 3);
    source_jpeg(test_path(folder, "digits/1/b.jpg"), 20, 10, 1, 4);
    run_ok("fpack", "--store", "raw", source, packed, NULL);
    FshDataset *dataset = packed_open(packed);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, NULL), NULL);
    assert_int_equal(sample.fields[0].channels, 1);
    assert_int_equal(sample.fields[0].bytes, 200);
    assert_int_equal(fsh_manifest(dataset)->statistics.channels, 1);
    fsh_close(&dataset);
}

static void test_statistics_are_those_of_the_training_pixels(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "raw");
    source_two_classes(test_path(folder, "photos/train"));
    source_jpeg(test_path(folder, "photos/train/cat/gray.jpg"), 33, 10, 1, 3);
    source_class(test_path(folder, "photos/val"), "cat", 4);
    run_ok("fpack", "--store", "raw", source, packed, NULL);
    FshDataset *dataset = packed_open(packed);
    const FshSplit *train = fsh_split(dataset, "train");
    double sum[3] = {0}, squares[3] = {0}, count = 0;
    for (uint64_t i = 0; i < train->sample_count; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(train, i, &sample, NULL), NULL);
        const uint8_t *pixels = sample.fields[0].data;
        for (size_t at = 0; at < sample.fields[0].bytes; at++) {
            sum[at % 3] += pixels[at] / 255.0;
            squares[at % 3] += pixels[at] / 255.0 * (pixels[at] / 255.0);
        }
        count += (double)sample.fields[0].bytes / 3;
    }
    const FshStatistics *statistics = &fsh_manifest(dataset)->statistics;
    for (int channel = 0; channel < 3; channel++) {
        double mean = sum[channel] / count;
        assert_true(fabs(statistics->mean[channel] - mean) < 1e-7);
        assert_true(fabs(statistics->standard_deviation[channel] -
                         sqrt(squares[channel] / count - mean * mean)) < 1e-7);
        assert_true(mean > 0.1 && mean < 0.9);
    }
    /* The same from copies, where gray images are one channel. */
    const char *copies = test_path(folder, "copies");
    run_ok("fpack", source, copies, NULL);
    FshDataset *copied = packed_open(copies);
    for (int channel = 0; channel < 3; channel++)
        assert_true(fabs(fsh_manifest(copied)->statistics.mean[channel] - statistics->mean[channel]) < 1e-8);
    fsh_close(&copied);
    fsh_close(&dataset);
}

static void test_sizes_are_as_displayed(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_jpeg_turned(test_path(folder, "photos/a/1.jpg"), 40, 30, 1, 3);
    source_jpeg_turned(test_path(folder, "photos/a/6.jpg"), 40, 30, 6, 3);
    source_jpeg_turned(test_path(folder, "photos/b/6.jpg"), 40, 30, 6, 3);
    for (int check = 0; check < 2; check++) {
        run_ok("fpack", "--force", check ? "--check" : "--no-check", source, packed, NULL);
        FshDataset *dataset = packed_open(packed);
        for (uint64_t i = 0; i < 3; i++) {
            FshSample sample;
            assert_ok(fsh_sample_get(fsh_split(dataset, "train"), i, &sample, NULL), NULL);
            assert_int_equal(sample.fields[0].width, i ? 30 : 40);
            assert_int_equal(sample.fields[0].height, i ? 40 : 30);
        }
        fsh_close(&dataset);
    }
    run_ok("fverify", packed, NULL);
}

static void test_content_says_what_a_file_is(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    if (!png_is_readable)
        skip();
    source_jpeg(test_path(folder, "photos/a/really_jpeg.png"), 20, 10, 3, 1);
    source_png(test_path(folder, "photos/a/really_png.jpg"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "photos/b/frame.0001"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "photos/b/frame.0002"), 20, 10, 3, 2);
    test_file_write_text(test_path(folder, "photos/b/notes.txt"), "not an image");
    test_file_write_text(test_path(folder, "photos/README"), "");
    RunResult result = run_expecting(0, "fpack", source, packed, NULL);
    assert_contains(result.err, "2 files that are no image");
    run_result_free(&result);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "a/really_jpeg 0\na/really_png 0\nb/frame.0001 1\nb/frame.0002 1\n");
    free(list);
    packed_assert_copies(packed, source);
    FshDataset *dataset = packed_open(packed);
    for (uint64_t i = 0; i < 2; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), i, &sample, NULL), NULL);
        assert_int_equal(sample.fields[0].codec, i ? FSH_CODEC_PNG : FSH_CODEC_JPEG);
    }
    fsh_close(&dataset);
    run_ok("fverify", packed, NULL);
}

static void test_damaged_images_are_reported_and_left_out(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    const char *report = test_path(folder, "bad.jsonl");
    source_two_classes(source);
    test_file_truncate(test_path(folder, "photos/cat/1.jpg"), -200);
    test_file_write_text(test_path(folder, "photos/dog/text.jpg"), "this is no photograph");
    test_file_write_text(test_path(folder, "photos/dog/void.jpg"), "");
    RunResult result = run_expecting(1, "fpack", "--report", report, "--json", source, packed, NULL);
    assert_contains(result.err, "cat/1.jpg: ");
    assert_contains(result.err, "dog/text.jpg: ");
    assert_contains(result.err, "dog/void.jpg: ");
    assert_contains(result.err, "left out");
    assert_contains_not(result.err, "cat/0.jpg");
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "cat/0 0\ncat/2 0\ndog/0 1\ndog/1 1\n");
    free(list);
    run_ok("fverify", packed, NULL);

    json_t *json = json_of(result.out);
    assert_int_equal(json_array_size(json_object_get(json, "left_out")), 3);
    assert_int_equal(json_integer_value(json_object_get(json, "samples")), 4);
    json_decref(json);
    char *text = test_file_read(report, NULL);
    char *line = strtok(text, "\n");
    json = json_of(line);
    assert_string_equal(json_string_value(json_object_get(json, "path")), "cat/1.jpg");
    assert_true(json_string_length(json_object_get(json, "reason")) > 10);
    json_decref(json);
    assert_non_null(strtok(NULL, "\n"));
    assert_non_null(strtok(NULL, "\n"));
    assert_null(strtok(NULL, "\n"));
    free(text);
    run_result_free(&result);
}

static void test_no_check_packs_what_has_a_header(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    test_file_truncate(test_path(folder, "photos/cat/1.jpg"), -200);
    run_ok("fpack", "--no-check", source, packed, NULL);
    assert_int_equal(packed_count(packed, "train"), 5);
    packed_assert_copies(packed, source);
    json_t *manifest = packed_manifest(packed);
    json_t *mean = json_object_get(json_object_get(manifest, "statistics"), "mean");
    assert_true(json_number_value(json_array_get(mean, 0)) == 0); /* not measured */
    json_decref(manifest);
}

static void test_images_above_max_pixels_are_left_out(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos");
    source_jpeg(test_path(folder, "photos/a/small.jpg"), 20, 20, 3, 1);
    source_jpeg(test_path(folder, "photos/b/large.jpg"), 21, 20, 3, 1);
    source_jpeg(test_path(folder, "photos/b/small.jpg"), 20, 20, 3, 1);
    static const char *const ways[][2] = {{"--check", "copy"}, {"--no-check", "copy"}, {"--check", "raw"}};
    for (size_t way = 0; way < 3; way++) {
        const char *packed = test_path(folder, "shards%zu", way);
        RunResult result = run_expecting(1, "fpack", "--max-pixels", "400", ways[way][0], "--store",
                                         ways[way][1], source, packed, NULL);
        assert_contains(result.err, "b/large.jpg: ");
        assert_int_equal(packed_count(packed, "train"), 2);
        run_result_free(&result);
    }
}

static void test_split_folders_and_their_aliases(void **state)
{
    TestFolder *folder = *state;
    static const char *const aliases[] = {"val", "valid", "validation"};
    for (size_t i = 0; i < 3; i++) {
        const char *source = test_path(folder, "s%zu", i), *packed = test_path(folder, "p%zu", i);
        source_two_classes(test_path(folder, "s%zu/train", i));
        source_class(test_path(folder, "s%zu/%s", i, aliases[i]), "dog", 1);
        source_class(test_path(folder, "s%zu/test", i), "cat", 2);
        run_ok("fpack", source, packed, NULL);
        assert_int_equal(packed_count(packed, "train"), 5);
        assert_int_equal(packed_count(packed, "test"), 2);
        char *list = packed_list(packed, "val");
        assert_string_equal(list, "dog/0 1\n"); /* the class index is train's, though val has no cat */
        free(list);
    }
    /* Two folders for one split. */
    source_class(test_path(folder, "s0/valid"), "dog", 1);
    RunResult result = run_expecting(1, "fpack", test_path(folder, "s0"), test_path(folder, "never"), NULL);
    assert_contains(result.err, "both 'val' and 'valid'");
    run_result_free(&result);
    assert_false(access(test_path(folder, "never"), F_OK) == 0);
}

static void test_a_class_called_train_is_a_class(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "vehicles"), *packed = test_path(folder, "shards");
    source_class(source, "car", 2);
    source_class(source, "train", 2);
    run_ok("fpack", source, packed, NULL);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "car/0 0\ncar/1 0\ntrain/0 1\ntrain/1 1\n");
    free(list);
}

static void test_a_class_of_val_that_train_lacks_is_named(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "bird", 1);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "'bird'");
    assert_contains(result.err, "val");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

static void test_images_without_a_class_are_left_out(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos/train"));
    source_jpeg(test_path(folder, "photos/train/stray.jpg"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "photos/extra/outside.jpg"), 20, 10, 3, 1);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "train/stray.jpg: lies in no class folder");
    assert_contains(result.err, "warning: extra/outside.jpg");
    assert_int_equal(packed_count(packed, "train"), 5);
    run_result_free(&result);
    /* A whole split without classes is an error, not a thousand lines. */
    source_jpeg(test_path(folder, "photos/val/1.jpg"), 20, 10, 3, 1);
    result = run_expecting(1, "fpack", source, test_path(folder, "other"), NULL);
    assert_contains(result.err, "photos/val: its 1 images lie in no class folder");
    run_result_free(&result);
}

static void test_empty_classes_and_single_classes_are_warned_about(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    assert_int_equal(mkdir(test_path(folder, "photos/bird"), 0777), 0);
    RunResult result = run_expecting(0, "fpack", source, packed, NULL);
    assert_contains(result.err, "warning: bird: ");
    run_result_free(&result);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "cat/0 1\ncat/1 1\ncat/2 1\ndog/0 2\ndog/1 2\n");
    free(list);
    json_t *manifest = packed_manifest(packed);
    json_t *split = json_array_get(json_object_get(manifest, "splits"), 0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(split, "class_counts"), 0)), 0);
    json_decref(manifest);
    run_ok("fverify", packed, NULL);

    source_class(test_path(folder, "one"), "cat", 2);
    result = run_expecting(0, "fpack", test_path(folder, "one"), test_path(folder, "p1"), NULL);
    assert_contains(result.err, "the only class");
    run_result_free(&result);
}

static void test_keys_that_would_clash_keep_their_extension(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_class(source, "a", 1);
    source_jpeg(test_path(folder, "photos/b/x.jpg"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "photos/b/x.jpeg"), 20, 10, 3, 2);
    source_jpeg(test_path(folder, "photos/b/x.jpg.jpg"), 20, 10, 3, 3);
    run_ok("fpack", source, packed, NULL);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "a/0 0\nb/x.jpeg 1\nb/x.jpg 1\nb/x.jpg.jpg 1\n");
    free(list);
}

/* Samples of the split whose key begins with "CLASS/". */
static unsigned count_class(const char *list, const char *class_name)
{
    unsigned count = 0;
    for (const char *line = list; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        count += strncmp(line, class_name, strlen(class_name)) == 0 && line[strlen(class_name)] == '/';
    return count;
}

static void test_split_is_stratified_and_repeatable(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos");
    source_class(source, "many", 20);
    source_class(source, "few", 2);
    source_class(source, "one", 1);
    run_ok("fpack", "--split", "0.2", source, test_path(folder, "p1"), NULL);
    run_ok("fpack", "--split", "0.2", "--seed", "0", source, test_path(folder, "p2"), NULL);
    run_ok("fpack", "--split", "0.2", "--seed", "9", source, test_path(folder, "p3"), NULL);
    char *train = packed_list(test_path(folder, "p1"), "train"),
         *val = packed_list(test_path(folder, "p1"), "val");
    assert_int_equal(count_class(val, "many"), 4);
    assert_int_equal(count_class(train, "many"), 16);
    assert_int_equal(count_class(val, "few"), 1);
    assert_int_equal(count_class(train, "few"), 1);
    assert_int_equal(count_class(val, "one"), 0);
    assert_int_equal(count_class(train, "one"), 1);
    char *difference = test_tree_difference(test_path(folder, "p1"), test_path(folder, "p2"));
    assert_null(difference);
    char *other = packed_list(test_path(folder, "p3"), "val");
    assert_string_not_equal(val, other);
    for (char *line = strtok(val, "\n"); line; line = strtok(NULL, "\n"))
        assert_contains_not(train, line);
    free(other);
    free(train);
    free(val);
}

static void test_split_of_a_source_that_has_val_is_refused(void **state)
{
    TestFolder *folder = *state;
    source_two_classes(test_path(folder, "photos/train"));
    source_two_classes(test_path(folder, "photos/val"));
    RunResult result = run_expecting(2, "fpack", "--split", "0.1", test_path(folder, "photos"),
                                     test_path(folder, "shards"), NULL);
    assert_contains(result.err, "--split");
    run_result_free(&result);
}

static void test_limit_takes_from_all_classes(void **state)
{
    TestFolder *folder = *state;
    source_class(test_path(folder, "photos/train"), "many", 10);
    source_class(test_path(folder, "photos/train"), "few", 2);
    source_class(test_path(folder, "photos/val"), "many", 3);
    run_ok("fpack", "--limit", "6", test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    char *train = packed_list(test_path(folder, "shards"), "train");
    assert_int_equal(count_class(train, "few"), 2);
    assert_int_equal(count_class(train, "many"), 4);
    assert_int_equal(packed_count(test_path(folder, "shards"), "val"), 3);
    free(train);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_shuffle_changes_the_order_and_nothing_else(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos");
    source_class(source, "a", 10);
    source_class(source, "b", 10);
    run_ok("fpack", source, test_path(folder, "plain"), NULL);
    run_ok("fpack", "--shuffle", "1", source, test_path(folder, "one"), NULL);
    run_ok("fpack", "--shuffle", "2", source, test_path(folder, "two"), NULL);
    char *lists[3] = {packed_list(test_path(folder, "plain"), "train"),
                      packed_list(test_path(folder, "one"), "train"),
                      packed_list(test_path(folder, "two"), "train")};
    assert_string_not_equal(lists[0], lists[1]);
    assert_string_not_equal(lists[1], lists[2]);
    char *lines[3][20];
    for (int list = 0; list < 3; list++) {
        size_t count = 0;
        for (char *line = strtok(lists[list], "\n"); line && count < 20; line = strtok(NULL, "\n"))
            lines[list][count++] = line;
        assert_int_equal(count, 20);
        qsort(lines[list], count, sizeof lines[list][0], compare_lines);
        for (size_t i = 0; i < count; i++)
            assert_string_equal(lines[list][i], lines[0][i]);
    }
    packed_assert_copies(test_path(folder, "two"), source);
    for (int list = 0; list < 3; list++)
        free(lists[list]);
}

static void test_a_source_without_images_is_explained(void **state)
{
    TestFolder *folder = *state;
    const char *packed = test_path(folder, "shards");
    RunResult result = run_expecting(1, "fpack", test_path(folder, "missing"), packed, NULL);
    assert_contains(result.err, "missing");
    run_result_free(&result);

    assert_int_equal(mkdir(test_path(folder, "empty"), 0777), 0);
    result = run_expecting(1, "fpack", test_path(folder, "empty"), packed, NULL);
    assert_contains(result.err, "/empty/train/CLASS/x.jpg");
    assert_contains(result.err, "holds no file");
    run_result_free(&result);

    test_file_write_text(test_path(folder, "texts/a/note.txt"), "text");
    result = run_expecting(1, "fpack", test_path(folder, "texts"), packed, NULL);
    assert_contains(result.err, "none of its 1 files is an image");
    run_result_free(&result);

    source_jpeg(test_path(folder, "flat/x.jpg"), 20, 10, 3, 1);
    result = run_expecting(1, "fpack", test_path(folder, "flat"), packed, NULL);
    assert_contains(result.err, "its 1 images lie elsewhere");
    run_result_free(&result);

    source_jpeg(test_path(folder, "unclassed/train/x.jpg"), 20, 10, 3, 1);
    result = run_expecting(1, "fpack", test_path(folder, "unclassed"), packed, NULL);
    assert_contains(result.err, "no class folder");
    run_result_free(&result);

    test_file_write_text(test_path(folder, "bad/a/x.jpg"), "text");
    result = run_expecting(1, "fpack", test_path(folder, "bad"), packed, NULL);
    assert_contains(result.err, "none of its 1 samples can be packed");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0); /* nothing was made in all this */
}

static void test_unreadable_files_are_reported_and_left_out(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    assert_int_equal(symlink("nowhere.jpg", test_path(folder, "photos/cat/link.jpg")), 0);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "cat/link.jpg: link to nothing");
    assert_int_equal(packed_count(packed, "train"), 5);
    run_result_free(&result);
    if (!permissions_bind)
        skip();
    assert_int_equal(chmod(test_path(folder, "photos/cat/0.jpg"), 0), 0);
    result = run_expecting(1, "fpack", "--force", source, packed, NULL);
    assert_contains(result.err, "cat/0.jpg: cannot open: Permission denied; left out");
    assert_int_equal(packed_count(packed, "train"), 4);
    run_result_free(&result);
}

static void test_dry_run_writes_nothing(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    RunResult result = run_expecting(0, "fpack", "--dry-run", "--json", source, packed, NULL);
    json_t *json = json_of(result.out);
    json_t *train = json_object_get(json_object_get(json, "splits"), "train");
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), 5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "classes"), "cat")), 3);
    json_decref(json);
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

static void test_wrong_usage_is_refused(void **state)
{
    TestFolder *folder = *state;
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    const char *const wrong[][5] = {
        {NULL},
        {source},
        {source, packed, packed},
        {"--src", source, source, packed},
        {"--pairs", "a", source, packed},
        {"--pairs", "a:a", source, packed},
        {"--pairs", "a:b:c", source, packed},
        {"--fields", "a:b/c", source, packed},
        {"--split", "0", source, packed},
        {"--split", "1", source, packed},
        {"--split", "a tenth", source, packed},
        {"--format", "tar", source, packed},
        {"--store", "zip", source, packed},
        {"--shard-size", "1", source, packed},
        {"--limit", "-1", source, packed},
        {"--max-pixels", "0", source, packed},
        {"--jobs", "many", source, packed},
        {"--unheard-of", source, packed},
        {source, source},
        {source, test_path(folder, "photos/shards")},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        RunResult result =
            run_expecting(2, "fpack", wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], NULL);
        assert_contains(result.err, "fpack: ");
        assert_string_equal(result.out, "");
        run_result_free(&result);
    }
    assert_false(access(packed, F_OK) == 0);
    /* --src and --dst are as good as arguments. */
    run_ok("fpack", "--dst", packed, source, NULL);
    run_ok("fpack", "--src", source, "--dst", test_path(folder, "shards2"), NULL);
    char *difference = test_tree_difference(packed, test_path(folder, "shards2"));
    assert_null(difference);
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

int main(void)
{
    permissions_bind = test_bind_to_permissions();
    png_is_readable = source_png_is_readable();
    const struct CMUnitTest tests[] = {
        in_folder(test_shards_hold_the_bytes_of_the_files),
        in_folder(test_lmdb_holds_the_same_samples_in_the_same_order),
        in_folder(test_any_number_of_threads_gives_the_same_bytes),
        in_folder(test_raw_holds_the_pixels),
        in_folder(test_raw_stays_gray_where_every_image_is),
        in_folder(test_statistics_are_those_of_the_training_pixels),
        in_folder(test_sizes_are_as_displayed),
        in_folder(test_content_says_what_a_file_is),
        in_folder(test_damaged_images_are_reported_and_left_out),
        in_folder(test_no_check_packs_what_has_a_header),
        in_folder(test_images_above_max_pixels_are_left_out),
        in_folder(test_split_folders_and_their_aliases),
        in_folder(test_a_class_called_train_is_a_class),
        in_folder(test_a_class_of_val_that_train_lacks_is_named),
        in_folder(test_images_without_a_class_are_left_out),
        in_folder(test_empty_classes_and_single_classes_are_warned_about),
        in_folder(test_keys_that_would_clash_keep_their_extension),
        in_folder(test_split_is_stratified_and_repeatable),
        in_folder(test_split_of_a_source_that_has_val_is_refused),
        in_folder(test_limit_takes_from_all_classes),
        in_folder(test_shuffle_changes_the_order_and_nothing_else),
        in_folder(test_a_source_without_images_is_explained),
        in_folder(test_unreadable_files_are_reported_and_left_out),
        in_folder(test_dry_run_writes_nothing),
        in_folder(test_wrong_usage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
