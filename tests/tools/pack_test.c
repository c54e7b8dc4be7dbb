/* fpack: what a dataset holds of the images that went into it: bytes, pixels, keys, labels, order,
 * statistics. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "tests/tools/sources.h"

TEST_IN_FOLDER(test_shards_hold_the_bytes_of_the_files, folder)
{
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
    assert_int_equal(test_count_files(packed), 3); /* manifest, a shard and its sources */
    run_ok("fverify", packed, NULL);
}

TEST_IN_FOLDER(test_lmdb_holds_the_same_samples_in_the_same_order, folder)
{
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

TEST_IN_FOLDER(test_any_number_of_threads_gives_the_same_bytes, folder)
{
    const char *source = test_path(folder, "photos");
    source_class(source, "cat", 40);
    source_class(source, "dog", 30);
    test_file_write_text(test_path(folder, "photos/dog/9.jpg"), "no photograph");
    static const char *const ways[][3] = {{"shards", "copy", "--shard-size=16K"},
                                          {"shards", "raw", "--shard-size=16K"},
                                          {"lmdb", "copy", "--seed=3"},
                                          {"lmdb", "raw", "--seed=3"}};
    for (size_t way = 0; way < 4; way++) {
        const char *one = test_path(folder, "one%zu", way), *many = test_path(folder, "many%zu", way);
        RunResult first = run_expecting(1, "fpack", "-j1", "--format", ways[way][0], "--store", ways[way][1],
                                        ways[way][2], "--split", "0.2", source, one, NULL);
        RunResult second = run_expecting(1, "fpack", "-j5", "--format", ways[way][0], "--store", ways[way][1],
                                         ways[way][2], "--split", "0.2", source, many, NULL);
        char *difference = test_tree_difference(one, many);
        if (difference)
            fail_msg("%s, %s: %s", ways[way][0], ways[way][1], difference);
        run_result_free(&first);
        run_result_free(&second);
    }
    /* Several shards each, or this proves little. */
    assert_true(test_count_files(test_path(folder, "one0")) > 5);
}

TEST_IN_FOLDER(test_raw_holds_the_pixels, folder)
{
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

TEST_IN_FOLDER(test_raw_stays_gray_where_every_image_is, folder)
{
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

TEST_IN_FOLDER(test_statistics_are_those_of_the_training_pixels, folder)
{
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

TEST_IN_FOLDER(test_sizes_are_as_displayed, folder)
{
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

TEST_IN_FOLDER(test_the_recipe_of_fresize_is_kept, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    test_file_write_text(test_path(folder, "photos/.fresize/recipe.json"),
                         "{\"max_size\": 160, \"complete\": true}");
    RunResult result = run_expecting(0, "fpack", source, packed, NULL);
    assert_contains_not(result.err, "warning");
    run_result_free(&result);
    json_t *manifest = packed_manifest(packed);
    json_t *recipe = json_object_get(json_object_get(manifest, "provenance"), "recipe");
    assert_int_equal(json_integer_value(json_object_get(recipe, "max_size")), 160);
    json_decref(manifest);
    test_file_write_text(test_path(folder, "photos/.fresize/recipe.json"), "{\"complete\": false}");
    result = run_expecting(0, "fpack", "--force", source, packed, NULL);
    assert_contains(result.err, "fresize did not come to its end here");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_keys_that_would_clash_keep_their_extension, folder)
{
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

/* Returns the samples of the split whose key begins with "CLASS/". */
static unsigned count_class(const char *list, const char *class_name)
{
    unsigned count = 0;
    for (const char *line = list; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        count += strncmp(line, class_name, strlen(class_name)) == 0 && line[strlen(class_name)] == '/';
    return count;
}

TEST_IN_FOLDER(test_split_is_stratified_and_repeatable, folder)
{
    const char *source = test_path(folder, "photos");
    source_class(source, "many", 20);
    source_class(source, "few", 2);
    source_class(source, "one", 1);
    run_ok("fpack", "--split", "0.2", source, test_path(folder, "p1"), NULL);
    run_ok("fpack", "--split", "20%", "--seed", "0", source, test_path(folder, "p2"), NULL);
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

TEST_IN_FOLDER(test_split_of_a_source_that_has_val_is_refused, folder)
{
    source_two_classes(test_path(folder, "photos/train"));
    source_two_classes(test_path(folder, "photos/val"));
    RunResult result = run_expecting(2, "fpack", "--split", "0.1", test_path(folder, "photos"),
                                     test_path(folder, "shards"), NULL);
    assert_contains(result.err, "--split");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_the_id_follows_input_and_options, folder)
{
    source_two_classes(test_path(folder, "photos"));
    source_two_classes(test_path(folder, "copy"));
    const char *source = test_path(folder, "photos");
    char *ids[5];
    run_ok("fpack", source, test_path(folder, "p0"), NULL);
    run_ok("fpack", "-j3", test_path(folder, "copy"), test_path(folder, "p1"), NULL);
    run_ok("fpack", "--shuffle", "3", source, test_path(folder, "p2"), NULL);
    run_ok("fpack", "--no-check", source, test_path(folder, "p3"), NULL);
    source_jpeg(test_path(folder, "photos/cat/1.jpg"), 50, 30, 3, 1); /* the same name, another size */
    run_ok("fpack", source, test_path(folder, "p4"), NULL);
    for (size_t i = 0; i < 5; i++)
        ids[i] = packed_id(test_path(folder, "p%zu", i));
    assert_string_equal(ids[0], ids[1]);
    for (size_t i = 2; i < 5; i++) {
        for (size_t j = 0; j < i; j++)
            assert_true(j == 1 || strcmp(ids[i], ids[j]) != 0);
    }
    for (size_t i = 0; i < 5; i++)
        free(ids[i]);
}

/* Writes a JPEG file of `bytes` bytes: what follows its end nobody looks at. */
static void write_padded_jpeg(const char *path, uint32_t seed, size_t bytes)
{
    size_t length = 0;
    source_jpeg(path, 40, 30, 3, seed);
    char *file = test_file_read(path, &length);
    assert_true(length <= bytes);
    assert_non_null(file = realloc(file, bytes));
    memset(file + length, 0, bytes - length);
    test_file_write(path, file, bytes);
    free(file);
}

/* In 32 of 33 images, and in the last byte of one. */
TEST_IN_FOLDER(test_other_bytes_of_the_same_sizes_give_another_id, folder)
{
    static const char *const forms[][5] = {
        {"--format", "shards"},
        {"--format", "lmdb"},
        {"--format", "tar"},
        {"--layout", "basicsr", "--pairs", "a:b"},
        {"--format", "shards", "--no-check"},
    };
    enum { IMAGES = 33, SETS = 3, IMAGE_BYTES = 4096 };
    for (unsigned set = 0; set < SETS; set++) {
        for (unsigned i = 0; i < IMAGES; i++) {
            for (unsigned side = 0; side < 2; side++) {
                const char *path = test_path(folder, "photos-%u/%c/%02u.jpg", set, "ab"[side], i);
                write_padded_jpeg(path, set == 1 && i ? 1000 + i : i, IMAGE_BYTES);
                if (set == 2 && i == 7 && side == 1)
                    test_file_flip_byte(path, IMAGE_BYTES - 1);
            }
        }
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char *ids[SETS + 1];
        for (unsigned set = 0; set <= SETS; set++) { /* the last is the first again */
            const char *packed = test_path(folder, "packed-%zu-%u", i, set);
            const char *arguments[16] = {"-q", set == SETS ? "-j1" : "-j3"};
            size_t count = 2;
            for (size_t a = 0; forms[i][a]; a++)
                arguments[count++] = forms[i][a];
            arguments[count++] = test_path(folder, "photos-%u", set % SETS);
            arguments[count++] = packed;
            RunResult result = run_program_arguments(NULL, "fpack", arguments);
            assert_int_equal(result.exit_status, 0);
            run_result_free(&result);
            ids[set] = packed_id(packed);
            FshDataset *dataset = packed_open(packed);
            assert_string_equal(fsh_manifest(dataset)->id, ids[set]);
            fsh_close(&dataset);
        }
        assert_string_equal(ids[0], ids[SETS]);
        assert_string_not_equal(ids[0], ids[1]);
        assert_string_not_equal(ids[0], ids[2]);
        for (unsigned set = 0; set <= SETS; set++)
            free(ids[set]);
    }
}

TEST_IN_FOLDER(test_limit_takes_from_all_classes, folder)
{
    source_class(test_path(folder, "photos/train"), "a-many", 10);
    source_class(test_path(folder, "photos/train"), "few", 2);
    source_class(test_path(folder, "photos/val"), "a-many", 3);
    run_ok("fpack", "--limit", "6", test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    char *train = packed_list(test_path(folder, "shards"), "train");
    assert_int_equal(count_class(train, "few"), 2);
    assert_int_equal(count_class(train, "a-many"), 4);
    assert_int_equal(packed_count(test_path(folder, "shards"), "val"), 3);
    free(train);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

TEST_IN_FOLDER(test_shuffle_changes_the_order_and_nothing_else, folder)
{
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

TEST_IN_FOLDER(test_dry_run_writes_nothing, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    RunResult result = run_expecting(0, "fpack", "--dry-run", "--json", source, packed, NULL);
    json_t *json = json_of(result.out);
    json_t *train = json_object_get(json_object_get(json, "splits"), "train");
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), 5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "classes"), "cat")), 3);
    assert_true(json_is_true(json_object_get(json, "dry_run")));
    json_decref(json);
    run_result_free(&result);
    static const char *const loudness[] = {"-v", "-q"}; /* the plan is what is asked for */
    for (size_t i = 0; i < 2; i++) {
        result = run_expecting(0, "fpack", "-n", loudness[i], source, packed, NULL);
        assert_contains(result.err, "shards: would hold 5 samples (train 5; 2 classes) in 1 shard, ");
        run_result_free(&result);
    }
    assert_false(access(packed, F_OK) == 0);
    result = run_expecting(0, "fpack", "-q", "--json", source, packed, NULL);
    assert_string_equal(result.err, "");
    json = json_of(result.out);
    assert_true(json_is_false(json_object_get(json, "dry_run")));
    json_decref(json);
    run_result_free(&result);
}
