/* fpack: another dataset as the source, and images that are made smaller on the way in. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/sources.h"

/* ---- what two datasets have in common ---- */

static bool find_key(const FshSplit *split, const FshSample *like, FshSample *found)
{
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshError error = {0};
        assert_ok(fsh_sample_get(split, i, found, &error), &error);
        if (found->key_bytes == like->key_bytes && memcmp(found->key, like->key, like->key_bytes) == 0)
            return true;
    }
    return false;
}

static void assert_same_field(const FshField *a, const FshField *b)
{
    assert_int_equal(a->codec, b->codec);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
    assert_int_equal(a->source_bytes, b->source_bytes);
    assert_memory_equal(a->source, b->source, a->source_bytes);
}

/* Asserts that two datasets have the same splits, classes and samples, in any order. */
static void assert_same_samples(const char *path, const char *other_path)
{
    FshDataset *dataset = packed_open(path), *other = packed_open(other_path);
    const FshManifest *manifest = fsh_manifest(dataset), *other_manifest = fsh_manifest(other);
    assert_int_equal(manifest->kind, other_manifest->kind);
    assert_int_equal(manifest->split_count, other_manifest->split_count);
    assert_int_equal(manifest->class_count, other_manifest->class_count);
    for (size_t i = 0; i < manifest->class_count; i++)
        assert_string_equal(manifest->class_names[i], other_manifest->class_names[i]);
    for (size_t s = 0; s < manifest->split_count; s++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[s].name);
        const FshSplit *other_split = fsh_split(other, manifest->splits[s].name);
        assert_non_null(other_split);
        assert_int_equal(split->sample_count, other_split->sample_count);
        for (uint64_t i = 0; i < split->sample_count; i++) {
            FshSample sample, found = {0};
            FshError error = {0};
            assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
            if (!find_key(other_split, &sample, &found))
                fail_msg("%s lacks %.*s", other_path, (int)sample.key_bytes, sample.key);
            assert_int_equal(sample.label, found.label);
            assert_int_equal(sample.field_count, found.field_count);
            for (unsigned f = 0; f < sample.field_count; f++)
                assert_same_field(&sample.fields[f], &found.fields[f]);
        }
    }
    fsh_close(&dataset);
    fsh_close(&other);
}

static void source_two_splits(const char *root)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/train", root);
    source_two_classes(path);
    (void)snprintf(path, sizeof path, "%s/val", root);
    source_class(path, "cat", 2);
    source_class(path, "dog", 1);
}

/* ---- a dataset ---- */

TEST_IN_FOLDER(test_a_dataset_is_packed_again_with_all_that_it_has, folder)
{
    const char *first = test_path(folder, "first"), *lmdb = test_path(folder, "lmdb");
    const char *small = test_path(folder, "small");
    source_two_splits(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), first, NULL);
    run_ok("fpack", "--format", "lmdb", first, lmdb, NULL);
    run_ok("fpack", "--shard-size", "4096", "--shuffle", "7", lmdb, small, NULL);
    assert_same_samples(first, lmdb);
    assert_same_samples(first, small);
    run_ok("fverify", lmdb, NULL);
    run_ok("fverify", small, NULL);
    char *order = packed_list(first, "train"), *shuffled = packed_list(small, "train");
    assert_string_not_equal(order, shuffled);
    free(order);
    free(shuffled);
}

TEST_IN_FOLDER(test_a_single_file_of_a_dataset_is_a_dataset, folder)
{
    source_two_splits(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "first"), NULL);
    run_ok("fpack", "--format", "lmdb", test_path(folder, "photos"), test_path(folder, "lmdb"), NULL);
    run_ok("fpack", test_path(folder, "first/val-00000-of-00001.fshard"), test_path(folder, "a"), NULL);
    run_ok("fpack", test_path(folder, "lmdb/val.lmdb"), test_path(folder, "b"), NULL);
    assert_same_samples(test_path(folder, "a"), test_path(folder, "b"));
    char *list = packed_list(test_path(folder, "a"), "val");
    assert_string_equal(list, "cat/0 0\ncat/1 0\ndog/0 1\n");
    free(list);
    /* Into the folder that it lies in: that would replace what is being read. */
    RunResult result =
        run_expecting(2, "fpack", "--force", test_path(folder, "first/val-00000-of-00001.fshard"),
                      test_path(folder, "first"), NULL);
    assert_contains(result.err, "lies in it");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_packing_again_does_not_depend_on_threads, folder)
{
    const char *one = test_path(folder, "one"), *four = test_path(folder, "four");
    source_two_splits(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "first"), NULL);
    run_ok("fpack", "-j", "1", "--store", "raw", "--split", "0.5", test_path(folder, "first"), one, NULL);
    run_ok("fpack", "-j", "4", "--store", "raw", "--split", "0.5", test_path(folder, "first"), four, NULL);
    char *difference = test_tree_difference(one, four);
    assert_null(difference);
}

TEST_IN_FOLDER(test_split_draws_a_datasets_train_and_val_anew, folder)
{
    const char *again = test_path(folder, "again");
    source_two_splits(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "first"), NULL);
    RunResult result = run_expecting(0, "fpack", "--split", "0.4", test_path(folder, "first"), again, NULL);
    assert_contains(result.err, "--split: puts back the val split that is there: 3 samples for train");
    assert_contains(result.err, "numbered 3 keys that another sample of the split has");
    run_result_free(&result);
    assert_int_equal(packed_count(again, "train"), 5); /* of 5 cats and 3 dogs */
    assert_int_equal(packed_count(again, "val"), 3);
    run_ok("fverify", again, NULL); /* no key is there twice */
    char *train = packed_list(again, "train"), *val = packed_list(again, "val");
    assert_non_null(strstr(test_path(folder, "%s%s", train, val), "cat/1~2 0\n"));
    free(train);
    free(val);
}

TEST_IN_FOLDER(test_raw_pixels_stay_pixels, folder)
{
    const char *raw = test_path(folder, "raw"), *again = test_path(folder, "again");
    source_two_classes(test_path(folder, "photos"));
    run_ok("fpack", "--store", "raw", test_path(folder, "photos"), raw, NULL);
    run_ok("fpack", raw, again, NULL);
    assert_same_samples(raw, again);
    run_ok("fpack", "--store", "raw", "--format", "lmdb", raw, test_path(folder, "third"), NULL);
    assert_same_samples(raw, test_path(folder, "third"));
    run_ok("fpack", "--no-check", raw, test_path(folder, "fourth"), NULL);
    assert_same_samples(raw, test_path(folder, "fourth"));
}

static uint64_t compressed_count(const char *path)
{
    uint64_t count = 0;
    FshDataset *dataset = packed_open(path);
    const FshSplit *split = fsh_split(dataset, "train");
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(split, i, &sample, NULL), NULL);
        count += sample.fields[0].compression == FSH_COMPRESSION_ZSTD;
    }
    fsh_close(&dataset);
    return count;
}

TEST_IN_FOLDER(test_compressed_fields_are_unpacked_on_the_way_in, folder)
{
    const char *photos = test_path(folder, "photos");
    source_class(photos, "cat", 40);
    source_class(photos, "dog", 40);
    source_jpeg(test_path(folder, "photos/dog/large.jpg"), 600, 400, 3, 1);
    run_ok("fpack", photos, test_path(folder, "copy"), NULL);
    run_ok("fpack", "--store", "raw", photos, test_path(folder, "raw"), NULL);
    run_ok("fpack", "--store", "zstd", photos, test_path(folder, "zstd"), NULL);
    run_ok("fpack", "--store", "copy", "--dictionary", photos, test_path(folder, "small"), NULL);
    assert_true(compressed_count(test_path(folder, "zstd")) > 0);
    assert_true(compressed_count(test_path(folder, "small")) > 0);
    run_ok("fpack", test_path(folder, "zstd"), test_path(folder, "raw-again"), NULL);
    assert_same_samples(test_path(folder, "raw"), test_path(folder, "raw-again"));
    run_ok("fpack", test_path(folder, "small"), test_path(folder, "copy-again"), NULL);
    assert_same_samples(test_path(folder, "copy"), test_path(folder, "copy-again"));
}

/* Gray pixels beside colours have three channels in a raw dataset, as gray files would; a copy keeps them
 * gray. */
TEST_IN_FOLDER(test_gray_pixels_become_three_channels_beside_colours, folder)
{
    static const uint8_t gray[2] = {7, 9}, colours[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t widened[6] = {7, 7, 7, 9, 9, 9};
    static const char *const classes[] = {"a"};
    const char *mixed = test_path(folder, "train-00000-of-00001.fshard");
    FshWriter *writer = shard_writer(mixed, classes, 1);
    FshError error = {0};
    for (uint8_t channels = 1; channels <= 3; channels += 2) {
        const FshSample sample = {.key = channels == 1 ? "gray" : "rgb",
                                  .key_bytes = channels == 1 ? 4 : 3,
                                  .field_count = 1,
                                  .fields = {{.data = channels == 1 ? gray : colours,
                                              .bytes = 2 * (size_t)channels,
                                              .width = 2,
                                              .height = 1,
                                              .channels = channels,
                                              .codec = FSH_CODEC_RAW,
                                              .source = "",
                                              .source_bytes = 0}}};
        assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    }
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    for (int raw = 0; raw < 2; raw++) {
        const char *packed = test_path(folder, "packed%d", raw);
        run_ok("fpack", "--store", raw ? "raw" : "copy", mixed, packed, NULL);
        FshDataset *dataset = packed_open(packed);
        FshSample sample;
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 0, &sample, &error), &error);
        assert_int_equal(sample.fields[0].channels, raw ? 3 : 1);
        assert_int_equal(sample.fields[0].bytes, raw ? 6 : 2);
        assert_memory_equal(sample.fields[0].data, raw ? widened : gray, sample.fields[0].bytes);
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, &error), &error);
        assert_memory_equal(sample.fields[0].data, colours, 6);
        fsh_close(&dataset);
        run_ok("fverify", packed, NULL);
    }
}

TEST_IN_FOLDER(test_pairs_of_a_dataset_stay_pairs, folder)
{
    const char *first = test_path(folder, "first");
    for (uint32_t i = 0; i < 4; i++) {
        source_jpeg(test_path(folder, "src/blur/%u.jpg", i), 40, 30, 3, i);
        source_jpeg(test_path(folder, "src/sharp/%u.jpg", i), 40, 30, 3, 10 + i);
    }
    run_ok("fpack", "--pairs", "blur:sharp", test_path(folder, "src"), first, NULL);
    run_ok("fpack", "--format", "lmdb", first, test_path(folder, "again"), NULL);
    assert_same_samples(first, test_path(folder, "again"));
    /* The other order is that of the tree in the other order. */
    run_ok("fpack", "--pairs", "sharp:blur", first, test_path(folder, "turned"), NULL);
    run_ok("fpack", "--pairs", "sharp:blur", test_path(folder, "src"), test_path(folder, "tree"), NULL);
    assert_same_samples(test_path(folder, "tree"), test_path(folder, "turned"));
    RunResult result =
        run_expecting(2, "fpack", "--pairs", "blur:clear", first, test_path(folder, "x"), NULL);
    assert_contains(result.err, "has no field 'clear'; it has blur:sharp");
    run_result_free(&result);
    source_two_classes(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "classes"), NULL);
    result = run_expecting(2, "fpack", "--pairs", "blur:sharp", test_path(folder, "classes"),
                           test_path(folder, "x"), NULL);
    assert_contains(result.err, "is a dataset of classes, which holds no pairs");
    run_result_free(&result);
    assert_false(access(test_path(folder, "x"), F_OK) == 0);
}

TEST_IN_FOLDER(test_a_damaged_record_is_left_out, folder)
{
    const char *first = test_path(folder, "first"), *again = test_path(folder, "again");
    const char *shard = test_path(folder, "first/train-00000-of-00001.fshard");
    source_two_classes(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), first, NULL);
    FshDataset *dataset = packed_open(first);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, NULL), NULL);
    size_t length = 0;
    char *bytes = test_file_read(shard, &length);
    char *at = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(at);
    at[sample.fields[0].bytes / 2] ^= 1;
    test_file_write(shard, bytes, length);
    free(bytes);
    fsh_close(&dataset);
    RunResult result = run_expecting(1, "fpack", first, again, NULL);
    assert_contains(result.err, "cat/1.jpg: ");
    assert_contains(result.err, "CRC32C");
    run_result_free(&result);
    assert_int_equal(packed_count(again, "train"), 4);
}

TEST_IN_FOLDER(test_where_it_comes_from_stays_known, folder)
{
    source_two_classes(test_path(folder, "photos"));
    run_ok("fresize", "--max-size", "20", test_path(folder, "photos"), test_path(folder, "resized"), NULL);
    run_ok("fpack", test_path(folder, "resized"), test_path(folder, "first"), NULL);
    run_ok("fpack", test_path(folder, "first"), test_path(folder, "again"), NULL);
    run_ok("fpack", "--max-size", "10", test_path(folder, "again"), test_path(folder, "smaller"), NULL);
    json_t *manifest = packed_manifest(test_path(folder, "again"));
    json_t *recipe = json_object_get(json_object_get(manifest, "provenance"), "recipe");
    assert_int_equal(json_integer_value(json_object_get(recipe, "max_size")), 20);
    const json_t *from = json_object_get(json_object_get(manifest, "provenance"), "from");
    assert_string_equal(json_string_value(json_object_get(from, "source")), test_path(folder, "resized"));
    json_decref(manifest);
    manifest = packed_manifest(test_path(folder, "smaller"));
    recipe = json_object_get(json_object_get(manifest, "provenance"), "recipe");
    assert_int_equal(json_integer_value(json_object_get(recipe, "max_size")), 10);
    assert_string_equal(json_string_value(json_object_get(recipe, "filter")), "lanczos");
    recipe = json_object_get(recipe, "before");
    assert_int_equal(json_integer_value(json_object_get(recipe, "max_size")), 20);
    json_decref(manifest);
}

TEST_IN_FOLDER(test_files_that_are_no_dataset_are_refused, folder)
{
    test_file_write_text(test_path(folder, "notes.txt"),
                         "this is no dataset, whatever it is called, and long "
                         "enough to be looked at for what it is");
    const char *const sources[] = {test_path(folder, "notes.txt"), test_path(folder, "nowhere"),
                                   test_path(folder, "x-{000..003}.tar")};
    for (size_t i = 0; i < 3; i++) {
        RunResult result = run_expecting(1, "fpack", sources[i], test_path(folder, "shards"), NULL);
        assert_contains(result.err, sources[i]);
        run_result_free(&result);
    }
    assert_false(access(test_path(folder, "shards"), F_OK) == 0);
}

/* ---- smaller ---- */

TEST_IN_FOLDER(test_max_size_packs_what_fresize_would_have_written, folder)
{
    const char *photos = test_path(folder, "photos");
    static const char *const recipes[][5] = {
        {"--max-size", "48", NULL},
        {"--max-size", "48", "--edge", "long", NULL},
        {"--max-size", "48", "--exact", "--filter=bicubic", NULL},
        {"--max-size", "48", "--quality", "50", NULL},
    };
    source_jpeg(test_path(folder, "photos/a/large.jpg"), 400, 300, 3, 1);
    source_jpeg(test_path(folder, "photos/a/small.jpg"), 40, 30, 3, 2);
    source_jpeg(test_path(folder, "photos/b/gray.jpg"), 101, 350, 1, 3);
    source_jpeg_turned(test_path(folder, "photos/b/turned.jpg"), 200, 100, 6, 4);
    if (png_is_supported())
        source_png(test_path(folder, "photos/b/graphic.png"), 200, 130, 3, 5);
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        const char *const *recipe = recipes[i];
        const char *resized = test_path(folder, "resized%zu", i), *two = test_path(folder, "two%zu", i);
        const char *one = test_path(folder, "one%zu", i);
        const char *third = recipe[2] ? recipe[2] : "-j2", *fourth = recipe[2] ? recipe[3] : "-q";
        run_ok("fresize", recipe[0], recipe[1], third, fourth, photos, resized, NULL);
        run_ok("fpack", resized, two, NULL);
        run_ok("fpack", recipe[0], recipe[1], third, fourth, photos, one, NULL);
        assert_same_samples(one, two);
        run_ok("fverify", one, NULL);
        /* Raw: the pixels of those files. */
        run_ok("fpack", "--store", "raw", resized, test_path(folder, "raw-two%zu", i), NULL);
        run_ok("fpack", "--store", "raw", recipe[0], recipe[1], third, fourth, photos,
               test_path(folder, "raw-one%zu", i), NULL);
        assert_same_samples(test_path(folder, "raw-one%zu", i), test_path(folder, "raw-two%zu", i));
    }
}

TEST_IN_FOLDER(test_max_size_takes_a_dataset_too, folder)
{
    source_class(test_path(folder, "photos"), "cat", 3);
    source_jpeg(test_path(folder, "photos/dog/large.jpg"), 200, 160, 3, 1);
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "files"), NULL);
    run_ok("fpack", "--max-size", "20", test_path(folder, "photos"), test_path(folder, "one"), NULL);
    run_ok("fpack", "--max-size", "20", test_path(folder, "files"), test_path(folder, "two"), NULL);
    assert_same_samples(test_path(folder, "one"), test_path(folder, "two"));
    if (!png_is_supported())
        skip();
    /* Raw pixels become smaller without the loss of another JPEG. */
    run_ok("fpack", "--store", "raw", test_path(folder, "photos"), test_path(folder, "raw"), NULL);
    run_ok("fpack", "--max-size", "30", test_path(folder, "raw"), test_path(folder, "small"), NULL);
    FshDataset *dataset = packed_open(test_path(folder, "small"));
    for (uint64_t i = 0; i < 4; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), i, &sample, NULL), NULL);
        assert_int_equal(sample.fields[0].height, 30);
        assert_int_equal(sample.fields[0].codec, i < 3 ? FSH_CODEC_RAW : FSH_CODEC_PNG);
    }
    fsh_close(&dataset);
    run_ok("fverify", test_path(folder, "small"), NULL);
}

TEST_IN_FOLDER(test_pairs_of_two_sizes_do_not_become_equal, folder)
{
    source_jpeg(test_path(folder, "src/a/good.jpg"), 80, 60, 3, 1);
    source_jpeg(test_path(folder, "src/b/good.jpg"), 80, 60, 3, 2);
    source_jpeg(test_path(folder, "src/a/scaled.jpg"), 80, 60, 3, 1);
    source_jpeg(test_path(folder, "src/b/scaled.jpg"), 40, 30, 3, 2);
    RunResult result = run_expecting(1, "fpack", "--pairs", "a:b", "--max-size", "20",
                                     test_path(folder, "src"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "b/scaled.jpg: sizes differ: a is 80x60, b is 40x30; without --max-size "
                                "--pair-scale 2 packs such pairs, "
                                "with the smaller side named first; left out");
    run_result_free(&result);
    FshDataset *dataset = packed_open(test_path(folder, "shards"));
    FshSample sample;
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 1);
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 0, &sample, NULL), NULL);
    assert_int_equal(sample.fields[1].height, 20);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_damaged_images_are_not_made_smaller, folder)
{
    source_two_classes(test_path(folder, "photos"));
    test_file_truncate(test_path(folder, "photos/cat/1.jpg"), -200);
    test_file_write_text(test_path(folder, "photos/dog/text.jpg"), "this is no photograph");
    RunResult result = run_expecting(1, "fpack", "--max-size", "20", test_path(folder, "photos"),
                                     test_path(folder, "shards"), NULL);
    assert_contains(result.err, "cat/1.jpg: ");
    assert_contains(result.err, "dog/text.jpg: ");
    run_result_free(&result);
    assert_int_equal(packed_count(test_path(folder, "shards"), "train"), 4);
}

TEST_IN_FOLDER(test_how_is_no_use_without_how_small, folder)
{
    source_two_classes(test_path(folder, "photos"));
    static const char *const options[] = {"--edge=long", "--filter=box", "--quality=80", "--exact"};
    for (size_t i = 0; i < 4; i++) {
        RunResult result = run_expecting(2, "fpack", options[i], test_path(folder, "photos"),
                                         test_path(folder, "shards"), NULL);
        assert_contains(result.err, "give --max-size too");
        run_result_free(&result);
    }
}
