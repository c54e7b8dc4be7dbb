/* Files that nobody has packed, opened as a dataset. */
#include <string.h>

#include "tests/formats/test_tar.h"

static const FshSplit *only_split(const FshDataset *dataset)
{
    assert_int_equal(fsh_manifest(dataset)->split_count, 1);
    return fsh_split(dataset, "images");
}

static void assert_file(const FshSplit *split, uint64_t index, const char *key, const char *text)
{
    FshUnpacker *unpacker = NULL;
    FshSample sample;
    FshError error = {0};
    const void *bytes = NULL;
    size_t length = 0;
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
    assert_ok(fsh_sample_verify(split, index, &error), &error);
    assert_key(&sample, key);
    assert_int_equal(sample.label, FSH_NO_LABEL);
    assert_int_equal(sample.field_count, 1);
    assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[0], &bytes, &length, &error), &error);
    assert_int_equal(length, strlen(text));
    assert_memory_equal(bytes, text, length);
    fsh_unpacker_free(&unpacker);
}

TEST_IN_FOLDER(test_files_are_samples_in_their_order, folder)
{
    static const char *const paths[] = {"b/2.jpg", "a.png", "gone.jpg"};
    FshDataset *dataset = NULL;
    FshUnpacker *unpacker = NULL;
    FshSample sample;
    FshError error = {0};
    const void *bytes = NULL;
    size_t length = 0;
    test_file_write_text(test_path(folder, "a.png"), "first");
    test_file_write_text(test_path(folder, "b/2.jpg"), "second");
    assert_ok(fsh_open_files(&dataset, folder->path, paths, 3, &error), &error);
    const FshSplit *split = only_split(dataset);
    assert_int_equal(split->sample_count, 3);
    assert_file(split, 0, "b/2.jpg", "second");
    assert_file(split, 1, "a.png", "first");
    /* A file is looked for when it is wanted, and named by its path. */
    assert_ok(fsh_sample_get(split, 2, &sample, &error), &error);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    assert_int_equal(fsh_field_unpack(unpacker, split, &sample.fields[0], &bytes, &length, &error),
                     FSH_ERR_NOT_FOUND);
    assert_contains(error.message, test_path(folder, "gone.jpg"));
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
    assert_int_equal(fsh_open_files(&dataset, folder->path, paths, 0, &error), FSH_ERR_MISMATCH);
    assert_null(dataset);
}

static bool is_wanted(void *context, const char *path)
{
    (*(size_t *)context)++;
    return strcmp(path, "notes.txt") != 0;
}

TEST_IN_FOLDER(test_files_of_a_tar_keep_their_whole_names, folder)
{
    TestTar tar = {0};
    FshDataset *dataset = NULL;
    FshError error = {0};
    size_t asked = 0;
    test_tar_add_text(&tar, "./cat/1.left.jpg", JPEG);
    test_tar_add_text(&tar, "cat/1.png", PNG);
    test_tar_add_text(&tar, "cat/._1.png", "macOS");
    test_tar_add_text(&tar, "notes.txt", "no image");
    const char *path = test_tar_save(&tar, folder, "images.tar");
    assert_ok(fsh_open_tar_files(&dataset, path, is_wanted, &asked, &error), &error);
    assert_int_equal(asked, 3);
    const FshSplit *split = only_split(dataset);
    assert_int_equal(split->sample_count, 2); /* two, not one of two fields as WebDataset has it */
    assert_file(split, 0, "cat/1.left.jpg", JPEG);
    assert_file(split, 1, "cat/1.png", PNG);
    fsh_close(&dataset);
    test_file_truncate(path, 700);
    assert_int_equal(fsh_open_tar_files(&dataset, path, is_wanted, &asked, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "images.tar");
    assert_null(dataset);
}
