/* fverify on WebDataset tars that no fpack has made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tar/tar_write.h"
#include "tests/tools/sources.h"

static void add(TarWriter *writer, const char *name, const void *bytes, size_t length)
{
    FshError error = {0};
    assert_ok(tar_writer_add(writer, name, bytes, length, 0, NULL, &error), &error);
}

/* Writes FOLDER/name of `count` samples from number `first` on: a JPEG of 40 x 30, and a class of two.
 * Returns its path. */
static const char *write_tar(TestFolder *folder, const char *name, unsigned first, unsigned count)
{
    const char *path = test_path(folder, "%s", name), *image = test_path(folder, "made/x.jpg");
    TarWriter *writer = NULL;
    FshError error = {0};
    test_file_write_text(path, ""); /* makes its folder */
    assert_ok(tar_writer_open(&writer, path, 0, &error), &error);
    for (unsigned i = first; i < first + count; i++) {
        char entry[32];
        size_t length = 0;
        source_jpeg(image, 40, 30, 3, 1 + i);
        char *bytes = test_file_read(image, &length);
        (void)snprintf(entry, sizeof entry, "%06u.cls", i);
        add(writer, entry, i % 2 ? "1" : "0", 1);
        (void)snprintf(entry, sizeof entry, "%06u.jpg", i);
        add(writer, entry, bytes, length);
        free(bytes);
    }
    assert_ok(tar_writer_finish(&writer, &error), &error);
    return path;
}

TEST_IN_FOLDER(test_tars_are_checked_as_one_dataset, folder)
{
    const char *tars = test_path(folder, "tars"),
               *braces = test_path(folder, "tars/train-{000000..000001}.tar");
    const char *one = write_tar(folder, "tars/train-000000.tar", 0, 3);
    (void)write_tar(folder, "tars/train-000001.tar", 3, 2);
    const char *const paths[] = {tars, braces, one};
    for (size_t i = 0; i < 3; i++) {
        RunResult result = run_expecting(0, "fverify", "--decode", paths[i], NULL);
        assert_contains(result.out, ": tar, 2 classes");
        assert_contains(result.out, i < 2 ? "5 images decoded" : "3 images decoded");
        assert_contains(result.out, "40 wide, 30 high; none gray"); /* no one had told */
        assert_contains_not(result.out, "checksums");
        run_result_free(&result);
        run_ok("fverify", paths[i], NULL);
        run_ok("fverify", "--quick", paths[i], NULL);
    }
    RunResult result = run_expecting(0, "fverify", "--list", tars, NULL);
    assert_contains(result.out, "train\t4\t000004\t0\t0\timage\t0x0x0\tjpeg\t");
    run_result_free(&result);
    run_ok("fverify", "--extract", test_path(folder, "out"), tars, NULL);
    assert_int_equal(test_count_files(test_path(folder, "out")), 5);
    run_ok("fverify", "--html", test_path(folder, "page.html"), tars, NULL);
    run_ok("fverify", "--sheet", test_path(folder, "sheet.jpg"), tars, NULL);
}

/* The name of the first sample that another split holds too comes from a tar, not from a record. */
TEST_IN_FOLDER(test_content_in_two_tars_is_listed_with_both_places, folder)
{
    const char *photos = test_path(folder, "photos");
    (void)write_tar(folder, "tars/train-000000.tar", 0, 3);
    (void)write_tar(folder, "tars/val-000000.tar", 2, 2);
    RunResult result = run_expecting(1, "fverify", test_path(folder, "tars"), NULL);
    assert_contains(result.out, "val-000000.tar record 0, key 000002: the same content is in another split: "
                                "train-000000.tar record 2, key 000002");
    assert_contains(result.out, "1 problem;");
    run_result_free(&result);
    run_ok("fverify", "--no-overlap", test_path(folder, "tars"), NULL);
    /* Those that fpack has written, too. */
    source_jpeg(test_path(folder, "photos/train/cat/a.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "photos/val/cat/b.jpg"), 40, 30, 3, 1);
    run_ok("fpack", "--format", "tar", photos, test_path(folder, "packed"), NULL);
    result = run_expecting(1, "fverify", test_path(folder, "packed"), NULL);
    assert_contains(result.out, "val-000000.tar record 0, key cat/b, source val/cat/b.jpg: the same content "
                                "is in another split: train-000000.tar record 0, key cat/a");
    run_result_free(&result);
}

/* Where every image of a tar was left out it is empty, and so may be the next. */
TEST_IN_FOLDER(test_tars_of_nothing_are_no_copies, folder)
{
    const char *packed = test_path(folder, "packed");
    for (unsigned i = 0; i < 6; i++)
        source_jpeg(test_path(folder, "photos/cat/%u.jpg", i), i ? 90 : 40, 60, 3, i);
    RunResult result = run_expecting(1, "fpack", "--format", "tar", "--shard-size", "4096", "--max-pixels",
                                     "3000", test_path(folder, "photos"), packed, NULL);
    assert_contains(result.err, "5 left out");
    run_result_free(&result);
    assert_true(test_file_size(test_path(folder, "packed/train-000001.tar")) <= 10240);
    assert_int_equal(test_file_size(test_path(folder, "packed/train-000001.tar")),
                     test_file_size(test_path(folder, "packed/train-000002.tar")));
    run_ok("fverify", "--decode", packed, NULL);
}

TEST_IN_FOLDER(test_pairs_in_two_lmdbs_of_basicsr_are_listed, folder)
{
    static const char *const sides[] = {"train/lq/1", "train/gt/1", "val/lq/9", "val/gt/9"};
    for (unsigned i = 0; i < 4; i++)
        source_jpeg(test_path(folder, "pairs/%s.jpg", sides[i]), 40, 30, 3, 1 + i % 2);
    run_ok("fpack", "--layout", "basicsr", "--pairs", "basicsr", test_path(folder, "pairs"),
           test_path(folder, "packed"), NULL);
    RunResult result = run_expecting(1, "fverify", test_path(folder, "packed"), NULL);
    assert_contains(result.out, "val.basicsr record 0, key 9: the same content is in another split: "
                                "train.basicsr record 0, key 1");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_damage_in_a_tar_is_named, folder)
{
    const char *tars = test_path(folder, "tars");
    (void)write_tar(folder, "tars/train-000000.tar", 0, 3);
    const char *second = write_tar(folder, "tars/train-000001.tar", 3, 2);
    test_file_flip_byte(second, 1024 + 512); /* the JPEG's first byte */
    RunResult result = run_expecting(1, "fverify", "--decode", tars, NULL);
    assert_contains(result.out, "train-000001.tar record 0, key 000003");
    assert_contains(result.out, "1 problem;");
    run_result_free(&result);
    test_file_truncate(second, 2000);
    result = run_expecting(1, "fverify", tars, NULL);
    assert_contains(result.out, "train-000001.tar: byte ");
    assert_contains(result.out, "cut short; copy or download it again\n");
    run_result_free(&result);
    result = run_expecting(1, "fpack", tars, test_path(folder, "none"), NULL);
    assert_contains(result.err, "train-000001.tar: byte ");
    assert_contains(result.err, "cut short; copy or download it again\n");
    run_result_free(&result);
    result = run_expecting(1, "ftrain", "--dry-run", tars, NULL);
    assert_contains(result.err, "train-000001.tar: byte ");
    assert_contains(result.err, "cut short; copy or download it again\n");
    run_result_free(&result);
}

/* Checks that fverify counts so many samples, files and samples of a class in the split train of a set.
 * Returns its problems, for json_decref. */
static json_t *expect_counted(const char *set, int samples, int files, const char *class_name, int of_class)
{
    RunResult result = run_expecting(1, "fverify", "--json", "--no-overlap", set, NULL);
    json_t *report = json_of(result.out);
    json_t *dataset = json_array_get(json_object_get(report, "datasets"), 0);
    json_t *train = json_object_get(json_object_get(dataset, "splits"), "train");
    json_t *problems = json_incref(json_object_get(dataset, "problems"));
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), samples);
    assert_int_equal(json_integer_value(json_object_get(train, "files")), files);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "classes"), class_name)),
                     of_class);
    json_decref(report);
    run_result_free(&result);
    return problems;
}

/* Checks that there is one problem, of a file that is cut short. */
static void expect_cut(json_t *problems, const char *file)
{
    const json_t *problem = json_array_get(problems, 0);
    assert_int_equal(json_array_size(problems), 1);
    assert_string_equal(json_string_value(json_object_get(problem, "file")), file);
    assert_contains(json_string_value(json_object_get(problem, "reason")), "cut short");
    json_decref(problems);
}

/* Of three tars one is cut in the image of its last sample, then in the header of its first: the others are
 * counted, and so is what lies before the cut. */
TEST_IN_FOLDER(test_what_can_be_read_beside_a_torn_tar_is_counted, folder)
{
    const char *tars = test_path(folder, "tars");
    (void)write_tar(folder, "tars/train-000000.tar", 0, 3);
    const char *torn = write_tar(folder, "tars/train-000001.tar", 3, 4);
    (void)write_tar(folder, "tars/train-000002.tar", 7, 2);
    test_file_truncate(torn, -1792); /* the end marker, and some of the last member */
    expect_cut(expect_counted(tars, 8, 3, "0", 4), "train-000001.tar");
    run_ok("fverify", test_path(folder, "tars/train-{000000..000002..2}.tar"), NULL);
    RunResult result = run_expecting(1, "fverify", "--decode", tars, NULL);
    assert_contains(result.out, "8 images decoded");
    run_result_free(&result);
    result = run_expecting(1, "fverify", torn, NULL); /* by itself, too */
    assert_contains(result.out, "  train          1              3 ");
    run_result_free(&result);
    test_file_truncate(torn, 100);
    expect_cut(expect_counted(tars, 5, 2, "0", 3), "train-000001.tar");
    test_file_truncate(test_path(folder, "tars/train-000000.tar"), 100);
    test_file_truncate(test_path(folder, "tars/train-000002.tar"), 100);
    result = run_expecting(1, "fverify", tars, NULL); /* nothing is left: no table */
    assert_contains_not(result.out, "samples ");
    assert_contains(result.out, "3 problems");
    run_result_free(&result);
}

/* The same of tars that a dataset.json lists; of one that is not there, too. */
TEST_IN_FOLDER(test_what_can_be_read_of_listed_tars_is_counted, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed"),
               *torn = test_path(folder, "packed/train-000001.tar");
    for (unsigned i = 0; i < 8; i++)
        source_jpeg(test_path(folder, "photos/%s/%u.jpg", i % 2 ? "cat" : "dog", i), 40, 30, 3, 1 + i);
    run_ok("fpack", "--format", "tar", "--shard-size", "10K", photos, packed, NULL);
    RunResult result = run_expecting(0, "fverify", "--json", packed, NULL);
    json_t *report = json_of(result.out);
    const json_t *dataset = json_array_get(json_object_get(report, "datasets"), 0);
    const json_t *train = json_object_get(json_object_get(dataset, "splits"), "train");
    const int files = (int)json_integer_value(json_object_get(train, "files"));
    assert_true(files >= 3);
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), 8);
    json_decref(report);
    run_result_free(&result);
    const uint64_t whole = test_file_size(torn);
    const uint64_t first = test_file_size(test_path(folder, "packed/train-000000.tar"));
    assert_int_equal(first, whole);  /* two samples each, whose second is cut */
    test_file_truncate(torn, -1792); /* the end marker, and some of the last member */
    expect_cut(expect_counted(packed, 7, files, "cat", 3), "train-000001.tar");
    test_file_truncate(torn, 100);
    expect_cut(expect_counted(packed, 6, files - 1, "cat", 2), "train-000001.tar");
    assert_int_equal(unlink(torn), 0);
    json_t *problems = expect_counted(packed, 6, files - 1, "cat", 2);
    assert_int_equal(json_array_size(problems), 1);
    json_decref(problems);
}

TEST_IN_FOLDER(test_a_database_or_shard_that_is_cut_short_is_told, folder)
{
    static const char *const files[][3] = {
        {"lmdb", "train.lmdb/data.mdb", "cut short; copy it again"},
        {"shards", "train-00000-of-00001.fshard",
         "cut short or never finished; copy it again, or save what is whole "
         "with fverify --repair OUT"}};
    const char *photos = test_path(folder, "photos");
    source_two_classes(photos);
    for (size_t i = 0; i < 2; i++) {
        const char *packed = test_path(folder, "%s", files[i][0]),
                   *file = test_path(folder, "%s/%s", packed + strlen(folder->path) + 1, files[i][1]);
        run_ok("fpack", "--format", files[i][0], photos, packed, NULL);
        test_file_truncate(file, 8192);
        RunResult result = run_expecting(1, "fverify", packed, NULL);
        assert_contains(result.out, files[i][2]);
        run_result_free(&result);
    }
}

/* Between two members nothing but the end marker is missing. */
TEST_IN_FOLDER(test_a_tar_without_its_end_is_told, folder)
{
    const char *tars = test_path(folder, "tars"), *packed = test_path(folder, "packed");
    const char *tar = write_tar(folder, "tars/train-000000.tar", 0, 3);
    RunResult result = run_expecting(0, "fpack", tars, packed, NULL);
    assert_contains_not(result.err, "end marker");
    run_result_free(&result);
    test_file_truncate(tar, -1024);
    result = run_expecting(0, "fverify", tars, NULL);
    assert_contains(result.out,
                    "note     train-000000.tar: has no end marker: either its writer makes none, or ");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--force", tars, packed, NULL);
    assert_contains(result.err, "fpack: warning: train-000000.tar: 1 tar without an end marker: ");
    run_result_free(&result);
}

/* A tar of no bytes was no tar yet, or is none any more: in a list of tars it is refused by its name. */
TEST_IN_FOLDER(test_a_tar_of_no_bytes_is_refused, folder)
{
    const char *tars = test_path(folder, "tars"), *packed = test_path(folder, "packed");
    (void)write_tar(folder, "tars/train-000000.tar", 0, 3);
    test_file_write(test_path(folder, "tars/train-000001.tar"), "", 0);
    RunResult result = run_expecting(1, "fpack", tars, packed, NULL);
    assert_contains(result.err, "tars/train-000001.tar: has 0 bytes");
    assert_contains(result.err, "copy or download it again");
    assert_false(file_exists(packed));
    run_result_free(&result);
    result = run_expecting(1, "fverify", tars, NULL);
    assert_contains(result.out, "train-000001.tar: has 0 bytes");
    run_result_free(&result);
}

/* Wherever a tar that a manifest lists is cut, between two members or samples or in one, that is one problem:
 * its index, its hash and its samples are wrong for no other reason. */
TEST_IN_FOLDER(test_a_cut_of_a_listed_tar_is_one_problem, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed"),
               *tar = test_path(folder, "packed/train-000000.tar");
    source_class(photos, "cat", 2);
    source_class(photos, "dog", 1);
    run_ok("fpack", "--format", "tar", photos, packed, NULL);
    for (int64_t left = (int64_t)test_file_size(tar) - 256; left >= 0; left -= 256) {
        test_file_truncate(tar, left);
        RunResult result = run_expecting(1, "fverify", "--json", packed, NULL);
        json_t *report = json_of(result.out);
        const json_t *dataset = json_array_get(json_object_get(report, "datasets"), 0);
        expect_cut(json_incref(json_object_get(dataset, "problems")), "train-000000.tar");
        json_decref(report);
        run_result_free(&result);
    }
}

/* The manifest tells how long a tar of ours is: what one without an end marker may be need not be guessed. */
TEST_IN_FOLDER(test_a_tar_of_a_manifest_without_its_end_is_a_problem_alone, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    source_two_classes(photos);
    run_ok("fpack", "--format", "tar", photos, packed, NULL);
    test_file_truncate(test_path(folder, "packed/train-000000.tar"), -1024);
    RunResult result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out, "train-000000.tar: ");
    assert_contains_not(result.out, "end marker");
    run_result_free(&result);
}
