/* Class folders that nobody has packed, opened as a dataset. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/formats/test_tar.h"

static void write_text(TestFolder *folder, const char *path)
{
    test_file_write_text(test_path(folder, "%s", path), path);
}

/* Opens the folder, which must work. */
static FshDataset *open_classes(TestFolder *folder)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    assert_true(fsh_container_has(fsh_manifest(dataset)->container, FSH_HAS_FILES));
    assert_int_equal(fsh_manifest(dataset)->kind, FSH_KIND_CLASSES);
    return dataset;
}

static void assert_classes(const FshDataset *dataset, const char *names)
{
    char joined[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < fsh_manifest(dataset)->class_count && length < sizeof joined; i++)
        length += (size_t)snprintf(joined + length, sizeof joined - length, "%s ",
                                   fsh_manifest(dataset)->class_names[i]);
    assert_string_equal(joined, names);
}

/* Asserts that sample `index` of the split is the file at path, which write_text wrote, with this label. */
static void assert_image(const FshDataset *dataset, const char *split_name, uint64_t index, const char *path,
                         int64_t label)
{
    const FshSplit *split = fsh_split(dataset, split_name);
    FshUnpacker *unpacker = NULL;
    FshSample sample;
    FshError error = {0};
    const void *bytes = NULL;
    size_t length = 0;
    assert_non_null(split);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
    assert_ok(fsh_sample_verify(split, index, &error), &error);
    assert_key(&sample, path);
    assert_int_equal(sample.label, label);
    assert_int_equal(fsh_sample_label(split, index), label);
    assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[0], &bytes, &length, &error), &error);
    assert_int_equal(length, strlen(path));
    assert_memory_equal(bytes, path, length);
    fsh_unpacker_free(&unpacker);
}

TEST_IN_FOLDER(test_class_folders_are_a_training_split, folder)
{
    static const char *const paths[] = {"cat/2.jpg", "cat/sub/1.PNG",   "cat-big/1.webp",
                                        "notes.txt", "dog/.hidden.jpg", "dog/readme.txt",
                                        "stray.jpg", ".git/x/1.jpg"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        write_text(folder, paths[i]);
    FshDataset *dataset = open_classes(folder);
    assert_classes(dataset, "cat cat-big dog ");
    assert_int_equal(fsh_manifest(dataset)->split_count, 1);
    const FshSplit *train = fsh_split(dataset, "train");
    assert_int_equal(train->sample_count, 3);
    assert_image(dataset, "train", 0, "cat-big/1.webp", 1); /* '-' comes before '/' */
    assert_image(dataset, "train", 1, "cat/2.jpg", 0);
    assert_image(dataset, "train", 2, "cat/sub/1.PNG", 0);
    assert_int_equal(train->info->class_counts[0], 2);
    assert_int_equal(train->info->class_counts[2], 0);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_split_folders_share_their_classes, folder)
{
    static const char *const paths[] = {"train/b/1.jpg", "train/a/1.jpg",   "train/c/1.jpg",
                                        "valid/c/1.jpg", "testing/b/1.jpg", "other/x/1.txt"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        write_text(folder, paths[i]);
    FshDataset *dataset = open_classes(folder);
    assert_classes(dataset, "a b c ");
    assert_int_equal(fsh_manifest(dataset)->split_count, 3);
    assert_image(dataset, "train", 0, "train/a/1.jpg", 0);
    assert_image(dataset, "train", 1, "train/b/1.jpg", 1);
    assert_image(dataset, "val", 0, "valid/c/1.jpg", 2);
    assert_image(dataset, "test", 0, "testing/b/1.jpg", 1);
    fsh_close(&dataset);
}

/* Names are those that fpack takes for images without a look inside. */
TEST_IN_FOLDER(test_files_of_all_names_of_images_are_samples, folder)
{
    static const char *const paths[] = {"a/1.apng", "a/2.QOI", "a/3.psd", "a/4", "a/5.bin"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        write_text(folder, paths[i]);
    FshDataset *dataset = open_classes(folder);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_image(dataset, "train", i, paths[i], 0);
    fsh_close(&dataset);
}

static void assert_refused(TestFolder *folder, const char *message)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_MISMATCH);
    assert_null(dataset);
    assert_contains(error.message, message);
}

TEST_IN_FOLDER(test_two_folders_of_one_split_are_refused, folder)
{
    write_text(folder, "train/a/1.jpg");
    write_text(folder, "val/a/1.jpg");
    write_text(folder, "validation/a/1.jpg");
    assert_refused(folder, ": both 'val' and 'validation' are there; keep one as the val split");
}

TEST_IN_FOLDER(test_images_beside_a_split_are_refused, folder)
{
    write_text(folder, "train/a/1.jpg");
    write_text(folder, "dog/1.jpg");
    assert_refused(folder, "/dog: its images lie beside train/, in no split; move them, or pack with fpack");
}

/* Nobody has two of a split. */
TEST_IN_FOLDER(test_a_split_in_capitals_beside_others_is_refused, folder)
{
    write_text(folder, "train/a/1.jpg");
    write_text(folder, "VAL/a/1.jpg");
    assert_refused(folder, "/VAL: its images lie beside train/, in no split; if it is one, call the folder "
                           "val, in small letters");
    write_text(folder, "validation/a/1.jpg");
    assert_refused(folder, "/VAL: its images lie beside train/, in no split; move them, or pack with fpack");
}

TEST_IN_FOLDER(test_a_split_without_class_folders_is_refused, folder)
{
    write_text(folder, "train/a/1.jpg");
    write_text(folder, "val/1.jpg");
    assert_refused(folder, "/val: its images lie in no class folder, those of train/ do; move them");
}

TEST_IN_FOLDER(test_a_class_may_be_called_train, folder)
{
    write_text(folder, "train/1.jpg");
    write_text(folder, "bus/1.jpg");
    FshDataset *dataset = open_classes(folder);
    assert_classes(dataset, "bus train ");
    assert_image(dataset, "train", 1, "train/1.jpg", 1);
    fsh_close(&dataset);
}

/* Whoever adds an image goes on with another dataset. */
TEST_IN_FOLDER(test_the_id_is_that_of_the_names, folder)
{
    char id[33];
    write_text(folder, "a/1.jpg");
    write_text(folder, "b/1.jpg");
    FshDataset *dataset = open_classes(folder);
    memcpy(id, fsh_manifest(dataset)->id, sizeof id);
    fsh_close(&dataset);
    dataset = open_classes(folder);
    assert_string_equal(fsh_manifest(dataset)->id, id);
    fsh_close(&dataset);
    write_text(folder, "b/2.jpg");
    dataset = open_classes(folder);
    assert_string_not_equal(fsh_manifest(dataset)->id, id);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_an_image_that_goes_away_is_named, folder)
{
    FshUnpacker *unpacker = NULL;
    FshSample sample;
    FshError error = {0};
    const void *bytes = NULL;
    size_t length = 0;
    write_text(folder, "a/1.jpg");
    FshDataset *dataset = open_classes(folder);
    const FshSplit *train = fsh_split(dataset, "train");
    assert_int_equal(unlink(test_path(folder, "a/1.jpg")), 0);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    assert_ok(fsh_sample_get(train, 0, &sample, &error), &error);
    assert_int_equal(fsh_field_unpack(unpacker, train, &sample.fields[0], &bytes, &length, &error),
                     FSH_ERR_NOT_FOUND);
    assert_contains(error.message, test_path(folder, "a/1.jpg"));
    assert_int_equal(fsh_split_cache(train, FSH_CACHE_RAM, 1, &error), FSH_ERR_UNSUPPORTED);
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_folders_without_images_are_no_dataset, folder)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    uint64_t problems = 0;
    write_text(folder, "a/notes.txt");
    write_text(folder, "1.jpg");
    assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_NOT_FOUND);
    assert_null(dataset);
    /* Files of others have nothing to prove. */
    write_text(folder, "a/1.jpg");
    assert_int_equal(fsh_check(folder->path, FSH_CHECK_QUICK, 1, NULL, NULL, &problems, &error),
                     FSH_ERR_NOT_FOUND);
}
