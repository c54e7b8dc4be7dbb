/* fpack: what is taken for a class, a split and an image, and what is left out or refused. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/sources.h"
#include "tools/pack/pack_found.h"

static bool permissions_bind, png_is_readable;

/* Formats that other programs read and these do not. */
TEST_IN_FOLDER(test_names_of_formats_that_are_not_read_are_no_notes, folder)
{
    source_jpeg(test_path(folder, "photos/a/1.jpg"), 20, 10, 3, 1);
    test_file_write_text(test_path(folder, "photos/a/2.QOI"), "qoif");
    test_file_write_text(test_path(folder, "photos/a/3.ico"), "icon");
    test_file_write_text(test_path(folder, "photos/a/notes.txt"), "text");
    static const char *const programs[] = {"fpack", "fresize"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        RunResult result = run_expecting(1, programs[i], test_path(folder, "photos"),
                                         test_path(folder, "made-%s", programs[i]), NULL);
        assert_contains(result.err, "2.QOI: not an image of a known format");
        assert_contains(result.err, "3.ico: not an image of a known format");
        assert_contains_not(result.err, "notes.txt");
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_content_says_what_a_file_is, folder)
{
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
    assert_contains(result.err, "2 files are no image");
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

/* Sparse files, of which one would have taken all memory, and the other ended the run. */
TEST_IN_FOLDER(test_files_too_long_for_an_image_are_left_out_unread, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    test_file_write_text(test_path(folder, "photos/cat/huge.jpg"), "");
    test_file_write_text(test_path(folder, "photos/dog/tera.jpg"), "");
    if (truncate(test_path(folder, "photos/cat/huge.jpg"), INT64_C(5) << 30) ||
        truncate(test_path(folder, "photos/dog/tera.jpg"), INT64_C(3) << 40)) {
        print_message("skipped: no such files on this file system\n");
        skip();
    }
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err,
                    "cat/huge.jpg: 5368709120 bytes, and at most 2214592512 are read; raise --max-pixels");
    assert_contains(result.err, "dog/tera.jpg: 3298534883328 bytes");
    run_result_free(&result);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "cat/0 0\ncat/1 0\ncat/2 0\ndog/0 1\ndog/1 1\n");
    free(list);
    run_ok("fverify", packed, NULL);
    result =
        run_expecting(1, "fpack", "--dedupe", "--max-size", "20", source, test_path(folder, "small"), NULL);
    assert_contains(result.err, "dog/tera.jpg: 3298534883328 bytes");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_damaged_images_are_reported_and_left_out, folder)
{
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

TEST(test_options_of_other_packers_are_translated)
{
    static const char *const names[][2] = {{"--workers", "--jobs"},
                                           {"--num-workers", "--jobs"},
                                           {"--num_workers", "--jobs"},
                                           {"--overwrite", "--force"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "no such option; fpack calls it %s\n", names[i][1]);
        RunResult result = run_expecting(2, "fpack", names[i][0], "a", "b", NULL);
        assert_contains(result.err, expected);
        run_result_free(&result);
    }
}

/* There, the next run would find a file that is not fpack's, and refuse. */
TEST_IN_FOLDER(test_a_report_in_the_dataset_is_refused, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    assert_int_equal(symlink("shards", test_path(folder, "link")), 0);
    const char *const reports[] = {test_path(folder, "shards/bad.jsonl"),
                                   test_path(folder, "shards/deep/bad.jsonl"),
                                   test_path(folder, "other/../shards/bad.jsonl")};
    for (size_t i = 0; i < 3; i++) {
        RunResult result = run_expecting(2, "fpack", "--report", reports[i], source, packed, NULL);
        assert_contains(result.err, reports[i]);
        assert_contains(result.err, "choose a name outside");
        run_result_free(&result);
        assert_false(access(packed, F_OK) == 0);
        test_file_write_text(test_path(folder, "other/x"), "the folder of the third");
    }
    run_ok("fpack", "--report", test_path(folder, "shards.jsonl"), source, packed, NULL);
    RunResult result = run_expecting(2, "fpack", "--report", test_path(folder, "link/bad.jsonl"), "--force",
                                     source, packed, NULL);
    run_result_free(&result);
    run_ok("fpack", "--report", test_path(folder, "shards.jsonl"), "--force", source, packed, NULL);
}

TEST_IN_FOLDER(test_split_0_is_none, folder)
{
    const char *source = test_path(folder, "photos");
    source_two_classes(source);
    run_ok("fpack", "--split", "0", source, test_path(folder, "zero"), NULL);
    run_ok("fpack", source, test_path(folder, "none"), NULL);
    char *difference = test_tree_difference(test_path(folder, "zero"), test_path(folder, "none"));
    assert_null(difference);
}

TEST(test_version_names_the_libraries_whatever_else_is_given)
{
    static const char *const programs[] = {"fpack", "fverify", "fresize"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        RunResult result = run_expecting(0, programs[i], "--quiet", "--version", NULL);
        assert_contains(result.out, "libjpeg-turbo ");
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_a_report_replaces_reports_only, folder)
{
    const char *source = test_path(folder, "photos"), *mine = test_path(folder, "thesis.tex");
    const char *report = test_path(folder, "bad.jsonl");
    source_two_classes(source);
    test_file_write_text(test_path(folder, "photos/cat/bad.jpg"), "text");
    test_file_write_text(mine, "years of work");
    RunResult result = run_expecting(1, "fpack", "--report", mine, source, test_path(folder, "p1"), NULL);
    assert_contains(result.err, "is no report of fpack");
    run_result_free(&result);
    assert_int_equal(test_file_size(mine), 13);
    result = run_expecting(1, "fpack", "--report", test_path(folder, "nowhere/bad.jsonl"), source,
                           test_path(folder, "p1"), NULL);
    assert_contains(result.err, "nowhere/bad.jsonl: cannot be written: there is no folder ");
    run_result_free(&result);
    assert_false(access(test_path(folder, "p1"), F_OK) == 0);
    for (int run = 0; run < 2; run++) {
        result = run_expecting(1, "fpack", "--report", report, source, test_path(folder, "p%d", run), NULL);
        assert_contains(result.err, "1 left out");
        run_result_free(&result);
    }
    result = run_expecting(1, "fpack", "--force", "--report", mine, source, test_path(folder, "p0"), NULL);
    run_result_free(&result);
    char *difference = test_tree_difference(mine, report);
    assert_null(difference);
}

TEST_IN_FOLDER(test_names_that_are_no_utf8, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    source_jpeg(test_path(folder, "photos/cat/caf\xe9.jpg"), 20, 10, 3, 1);
    test_file_write_text(test_path(folder, "photos/cat/bad\xe9.jpg"), "text");
    RunResult result = run_expecting(1, "fpack", "--json", source, packed, NULL);
    json_decref(json_of(result.out));
    run_result_free(&result);
    packed_assert_copies(packed, source);
    run_ok("fverify", "--json", packed, NULL);
    /* Names of classes stand in JSON, which has no way to write these. */
    source_class(source, "\xe9", 1);
    result = run_expecting(1, "fpack", "--force", source, packed, NULL);
    assert_contains(result.err, "UTF-8");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 6); /* the old dataset is as it was */
}

TEST_IN_FOLDER(test_no_check_packs_what_has_a_header, folder)
{
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

TEST_IN_FOLDER(test_images_above_max_pixels_are_left_out, folder)
{
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

TEST_IN_FOLDER(test_split_folders_and_their_aliases, folder)
{
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
    source_two_classes(test_path(folder, "long/training"));
    source_class(test_path(folder, "long/testing"), "cat", 2);
    run_ok("fpack", test_path(folder, "long"), test_path(folder, "packed"), NULL);
    assert_int_equal(packed_count(test_path(folder, "packed"), "train"), 5);
    assert_int_equal(packed_count(test_path(folder, "packed"), "test"), 2);
    /* Two folders for one split. */
    source_class(test_path(folder, "s0/valid"), "dog", 1);
    RunResult result = run_expecting(1, "fpack", test_path(folder, "s0"), test_path(folder, "never"), NULL);
    assert_contains(result.err, "both 'val' and 'valid'");
    run_result_free(&result);
    assert_false(access(test_path(folder, "never"), F_OK) == 0);
}

TEST_IN_FOLDER(test_a_class_called_train_is_a_class, folder)
{
    const char *source = test_path(folder, "vehicles"), *packed = test_path(folder, "shards");
    source_class(source, "car", 2);
    source_class(source, "train", 2);
    run_ok("fpack", source, packed, NULL);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "car/0 0\ncar/1 0\ntrain/0 1\ntrain/1 1\n");
    free(list);
}

TEST_IN_FOLDER(test_a_class_of_val_that_train_lacks_is_named, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "bird", 1);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "'bird'");
    assert_contains(result.err, "val");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

TEST_IN_FOLDER(test_images_without_a_class_are_left_out, folder)
{
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
    assert_contains(result.err, "photos/val: its images (1) lie in no class folder");
    run_result_free(&result);
}

/* ImageNet's flat val: the reason stands at the end, and not behind a line for each of 50,000 images. */
TEST_IN_FOLDER(test_a_flat_val_is_told_in_few_lines, folder)
{
    const char *source = test_path(folder, "photos"), *never = test_path(folder, "never");
    source_two_classes(test_path(folder, "photos/train"));
    for (unsigned i = 0; i < 12; i++)
        source_jpeg(test_path(folder, "photos/val/%02u.jpg", i), 20, 10, 3, i);
    RunResult result = run_expecting(1, "fpack", source, never, NULL);
    assert_contains(result.err, "val/02.jpg: lies in no class folder; left out\n");
    assert_contains_not(result.err, "val/03.jpg");
    assert_contains(result.err,
                    "fpack: and 9 more, not shown: --report lists them all, --verbose shows them\n");
    assert_contains(result.err, "photos/val: its images (12) lie in no class folder");
    run_result_free(&result);
    result = run_expecting(1, "fpack", "--verbose", source, never, NULL);
    assert_contains(result.err, "val/11.jpg: lies in no class folder; left out\n");
    run_result_free(&result);
}

/* A class that is called Test and has images in it is one, beside a class. */
TEST_IN_FOLDER(test_splits_in_capitals_are_warned_about, folder)
{
    source_two_classes(test_path(folder, "photos/Train"));
    source_class(test_path(folder, "photos"), "owl", 1);
    source_class(test_path(folder, "photos"), "Test", 3);
    RunResult result =
        run_expecting(0, "fpack", test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "fpack: warning: ");
    assert_contains(result.err,
                    "photos: 'Train' is taken for a class, of which all its images are; if it is a "
                    "split, call the folder train, in small letters\n");
    assert_contains_not(result.err, "'Test'");
    assert_contains_not(result.err, "--pairs");
    run_result_free(&result);
}

/* Where no folder can be a class, images lie in splits; beside folders of splits they do, too. */
TEST_IN_FOLDER(test_flat_splits_in_capitals_are_warned_about, folder)
{
    const char *photos = test_path(folder, "photos");
    source_class(photos, "Train", 4);
    source_class(photos, "Val", 4);
    RunResult result = run_expecting(0, "fpack", photos, test_path(folder, "a"), NULL);
    assert_contains(result.err, "photos: 'Train' is taken for a class, of which all its images are; if it is "
                                "a split, call the folder train, in small letters, and put its images into "
                                "folders of their classes\n");
    assert_contains(result.err, "photos: 'Val' is taken for a class");
    assert_contains_not(result.err, "--pairs"); /* of the same names */
    run_result_free(&result);
    source_two_classes(test_path(folder, "photos/train"));
    result = run_expecting(0, "fpack", photos, test_path(folder, "b"), NULL);
    assert_contains(result.err, "photos: 'Val' lies beside the splits");
    assert_contains_not(result.err, "'Train'");
    run_result_free(&result);
}

/* Beside folders of splits it is no class, and what to do is said all the same. */
TEST_IN_FOLDER(test_a_split_in_capitals_beside_others_is_warned_about, folder)
{
    const char *photos = test_path(folder, "photos"), *shards = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos/train"));
    source_two_classes(test_path(folder, "photos/VAL"));
    source_two_classes(test_path(folder, "photos/Training"));
    RunResult result = run_expecting(0, "fpack", photos, shards, NULL);
    assert_contains(result.err, "photos: 'VAL' lies beside the splits, and its images are left alone; if it "
                                "is one, call the folder val, in small letters\n");
    assert_contains_not(result.err, "'Training'"); /* train is there */
    run_result_free(&result);
}

TEST_IN_FOLDER(test_empty_classes_and_single_classes_are_warned_about, folder)
{
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

TEST_IN_FOLDER(test_a_split_that_takes_nothing_is_warned_about, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    const char *warning = "no val split was made: every class has fewer than 2 images";
    source_jpeg(test_path(folder, "photos/cat/1.jpg"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "photos/dog/2.jpg"), 20, 10, 3, 2);
    RunResult result = run_expecting(0, "fpack", "--split", "0.1", source, packed, NULL);
    assert_contains(result.err, warning);
    run_result_free(&result);
    source_jpeg(test_path(folder, "photos/dog/3.jpg"), 20, 10, 3, 3);
    result = run_expecting(0, "fpack", "--force", "--split", "0.1", source, packed, NULL);
    assert_contains_not(result.err, "no val split");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "val"), 1);
}

TEST_IN_FOLDER(test_a_source_without_images_is_explained, folder)
{
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
    assert_contains(result.err, "none of its files (1) is an image");
    run_result_free(&result);

    source_jpeg(test_path(folder, "flat/x.jpg"), 20, 10, 3, 1);
    result = run_expecting(1, "fpack", test_path(folder, "flat"), packed, NULL);
    assert_contains(
        result.err,
        "its images (1) lie in it directly; pack the folder above it, or say with --labels what they are");
    run_result_free(&result);

    source_jpeg(test_path(folder, "unclassed/train/x.jpg"), 20, 10, 3, 1);
    result = run_expecting(1, "fpack", test_path(folder, "unclassed"), packed, NULL);
    assert_contains(result.err, "no class folder");
    run_result_free(&result);

    test_file_write_text(test_path(folder, "bad/a/x.jpg"), "text");
    result = run_expecting(1, "fpack", test_path(folder, "bad"), packed, NULL);
    assert_contains(result.err, "none of its samples (1) can be packed");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0); /* nothing was made in all this */
}

TEST_IN_FOLDER(test_unreadable_files_are_reported_and_left_out, folder)
{
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
    result = run_expecting(1, "fpack", "--force", "--on-error", "skip", source, packed, NULL);
    assert_contains(result.err, "cat/0.jpg: cannot open: Permission denied; left out");
    assert_int_equal(packed_count(packed, "train"), 4);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_file_that_changed_since_it_was_listed_is_refused, folder)
{
    Buffer buffer = {0};
    FshError error = {0};
    int opened = -1;
    test_file_write_text(test_path(folder, "a/x.jpg"), "12345");
    assert_ok(source_open(folder->path, &opened, &error), &error);
    assert_ok(source_read(opened, "a/x.jpg", 5, &buffer, &error), &error);
    assert_int_equal(buffer.length, 5);
    assert_memory_equal(buffer.bytes, "12345", 5);
    assert_int_equal(source_read(opened, "a/x.jpg", 4, &buffer, &error), FSH_ERR_MISMATCH); /* it grew */
    assert_int_equal(source_read(opened, "a/x.jpg", 6, &buffer, &error), FSH_ERR_MISMATCH); /* it shrank */
    assert_contains(error.message, "changed since it was listed");
    assert_int_equal(source_read(opened, "a/y.jpg", 6, &buffer, &error), FSH_ERR_NOT_FOUND);
    assert_ok(source_read_start(opened, "a/x.jpg", 3, &buffer, &error), &error);
    assert_int_equal(buffer.length, 3);
    buffer_free(&buffer);
    (void)close(opened);
}

TEST_IN_FOLDER(test_wrong_usage_is_refused, folder)
{
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
        {"--split", "1", source, packed},
        {"--split", "a tenth", source, packed},
        {"--format", "zip", source, packed},
        {"--store", "zip", source, packed},
        {"--shard-size", "1", source, packed},
        {"--seed", "3", source, packed},
        {"--limit", "-1", source, packed},
        {"--max-pixels", "0", source, packed},
        {"--jobs", "many", source, packed},
        {"--unheard-of", source, packed},
        {"--workers", "4", source, packed},
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
    /* Of what would do nothing it is told what it goes with. */
    RunResult result = run_expecting(2, "fpack", "--seed", "0", source, packed, NULL);
    assert_contains(result.err, "--seed: says which samples --split and --limit choose");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--format", "lmdb", "--shard-size", "256M", source, packed, NULL);
    assert_contains(result.err, "--shard-size: a split is one LMDB");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
    /* --src and --dst are as good as arguments. */
    run_ok("fpack", "--dst", packed, source, NULL);
    run_ok("fpack", "--src", source, "--dst", test_path(folder, "shards2"), NULL);
    char *difference = test_tree_difference(packed, test_path(folder, "shards2"));
    assert_null(difference);
}

int test_program_begin(void)
{
    permissions_bind = test_bind_to_permissions();
    png_is_readable = png_is_supported();
    return TEST_RUN;
}
