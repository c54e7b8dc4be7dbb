/* fpack: WebDataset tars that no fpack has made, as the source. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tar/tar_write.h"
#include "tests/tools/sources.h"

/* Writes a tar as webdataset.ShardWriter makes them, each counting from 0: count images, labels from
 * first_label on. */
static void source_tar(TestFolder *folder, const char *path, unsigned count, unsigned first_label)
{
    TarWriter *writer = NULL;
    FshError error = {0};
    assert_ok(tar_writer_open(&writer, path, 0, &error), &error);
    for (unsigned i = 0; i < count; i++) {
        char name[32], label[16];
        const char *image = test_path(folder, "one.jpg");
        size_t length = 0;
        source_jpeg(image, 60, 40, 3, 100 * first_label + i);
        char *bytes = test_file_read(image, &length);
        (void)snprintf(name, sizeof name, "%06u.jpg", i);
        assert_ok(tar_writer_add(writer, name, bytes, length, 0, NULL, &error), &error);
        free(bytes);
        (void)snprintf(name, sizeof name, "%06u.cls", i);
        (void)snprintf(label, sizeof label, "%u", first_label + i);
        assert_ok(tar_writer_add(writer, name, label, strlen(label), 0, NULL, &error), &error);
    }
    assert_ok(tar_writer_finish(&writer, &error), &error);
}

TEST_IN_FOLDER(test_tars_are_packed, folder)
{
    const char *tars = test_path(folder, "tars"), *packed = test_path(folder, "shards");
    test_file_write_text(test_path(folder, "tars/notes.txt"), "");
    source_tar(folder, test_path(folder, "tars/set-train-000000.tar"), 2, 0);
    source_tar(folder, test_path(folder, "tars/set-train-000001.tar"), 3, 1);
    source_tar(folder, test_path(folder, "tars/set-train-000002.tar"), 1, 2);
    source_tar(folder, test_path(folder, "tars/set-val-000000.tar"), 1, 3);
    static const char train[] = "000000 0\n000001 1\n000000~2 1\n000001~2 2\n000002 3\n000000~3 2\n";
    RunResult result = run_expecting(0, "fpack", tars, packed, NULL);
    assert_contains(result.err, "numbered 3 keys that another sample of the split has, "
                                "such as 000000~2");
    run_result_free(&result);
    char *list = packed_list(packed, "train"), *val = packed_list(packed, "val");
    assert_string_equal(list, train);
    assert_string_equal(val, "000000 3\n");
    free(list);
    free(val);
    run_ok("fverify", "--decode", packed, NULL);
    /* Several in one word, as webdataset has it. */
    static const char *const words[] = {"%s/set-train-{000000..000002}.tar",
                                        "%s/set-train-000000.tar::%s/set-train-000001.tar::%s/"
                                        "set-train-000002.tar"};
    for (size_t i = 0; i < 2; i++) {
        char word[1024];
        (void)snprintf(word, sizeof word, words[i], tars, tars, tars);
        run_ok("fpack", word, test_path(folder, "word%zu", i), NULL);
        list = packed_list(test_path(folder, "word%zu", i), "train");
        assert_string_equal(list, train);
        free(list);
    }
    /* Without a path, content says what an image is. */
    run_ok("fpack", "--max-size", "20", "--split", "0.3", tars, test_path(folder, "small"), NULL);
    FshDataset *dataset = packed_open(test_path(folder, "small"));
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 0, &sample, NULL), NULL);
    assert_int_equal(sample.fields[0].height, 20);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_JPEG);
    fsh_close(&dataset);
}

/* Packs a part of FOLDER/set-train-….tar, changes one pixel in the first tar, whose size stays, and packs
 * again: the rest must not be added to the part, so the result equals a fresh packing. */
static void expect_a_new_start(TestFolder *folder, const char *source, const char *packed, unsigned round)
{
    const char *tar = test_path(folder, "moving/set-train-000000.tar");
    const uint64_t before = test_file_size(tar);
    size_t length = 0;
    run_ok("fpack", "--no-check", "--shard-size", "4096", "--part", "1/2", source, packed, NULL);
    char *bytes = test_file_read(tar, &length);
    bytes[1200 + round] ^= 1; /* in the pixels of the first image */
    FILE *stream = fopen(tar, "r+e");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    free(bytes);
    assert_int_equal(test_file_size(tar), before);
    run_ok("fpack", "--no-check", "--shard-size", "4096", source, packed, NULL);
    run_ok("fpack", "--no-check", "--shard-size", "4096", source, test_path(folder, "fresh-%u", round), NULL);
    char *difference = test_tree_difference(packed, test_path(folder, "fresh-%u", round));
    if (difference)
        fail_msg("%s: %s", source, difference);
}

TEST_IN_FOLDER(test_tars_that_were_written_again_are_packed_again, folder)
{
    test_file_write_text(test_path(folder, "moving/notes.txt"), "");
    source_tar(folder, test_path(folder, "moving/set-train-000000.tar"), 6, 0);
    source_tar(folder, test_path(folder, "moving/set-train-000001.tar"), 6, 6);
    expect_a_new_start(folder, test_path(folder, "moving"), test_path(folder, "a"), 0);
    expect_a_new_start(folder, test_path(folder, "moving/set-train-{000000..000001}.tar"),
                       test_path(folder, "b"), 1);
    expect_a_new_start(folder, test_path(folder, "moving/set-train-000000.tar"), test_path(folder, "c"), 2);
}

/* A dry run counted the classes of samples that have none. */
TEST_IN_FOLDER(test_a_dry_run_of_samples_without_labels, folder)
{
    const char *tar = test_path(folder, "some.tar");
    TarWriter *writer = NULL;
    FshError error = {0};
    size_t length = 0;
    source_jpeg(test_path(folder, "one.jpg"), 60, 40, 3, 1);
    char *bytes = test_file_read(test_path(folder, "one.jpg"), &length);
    assert_ok(tar_writer_open(&writer, tar, 0, &error), &error);
    assert_ok(tar_writer_add(writer, "a.jpg", bytes, length, 0, NULL, &error), &error);
    assert_ok(tar_writer_add(writer, "a.cls", "0", 1, 0, NULL, &error), &error);
    assert_ok(tar_writer_add(writer, "b.jpg", bytes, length, 0, NULL, &error), &error);
    assert_ok(tar_writer_finish(&writer, &error), &error);
    free(bytes);
    RunResult result =
        run_expecting(0, "fpack", "--dry-run", "--json", tar, test_path(folder, "packed"), NULL);
    json_t *json = json_of(result.out);
    const json_t *train = json_object_get(json_object_get(json, "splits"), "train");
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "classes"), "0")), 1);
    json_decref(json);
    run_result_free(&result);
}

/* A tar that was forgotten beside class folders is no dataset. */
TEST_IN_FOLDER(test_a_tree_with_a_tar_in_it_is_a_tree, folder)
{
    source_two_classes(test_path(folder, "photos"));
    test_file_write_text(test_path(folder, "photos/images.tar"), "what was downloaded");
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    assert_int_equal(packed_count(test_path(folder, "shards"), "train"), 5);
}

/* ---- --labels ---- */

/* Writes FOLDER/name.tar of images a, b, c and d, and returns its path; those in `labelled` have a class of
 * that digit. */
static const char *source_unlabelled(TestFolder *folder, const char *name, const char *labelled)
{
    const char *tar = test_path(folder, "%s.tar", name);
    TarWriter *writer = NULL;
    FshError error = {0};
    assert_ok(tar_writer_open(&writer, tar, 0, &error), &error);
    for (unsigned i = 0; i < 4; i++) {
        char member[16];
        size_t length = 0;
        source_jpeg(test_path(folder, "one.jpg"), 60, 40, 3, i);
        char *bytes = test_file_read(test_path(folder, "one.jpg"), &length);
        (void)snprintf(member, sizeof member, "%c.jpg", 'a' + i);
        assert_ok(tar_writer_add(writer, member, bytes, length, 0, NULL, &error), &error);
        free(bytes);
        (void)snprintf(member, sizeof member, "%c.cls", 'a' + i);
        if (labelled[i] != '-')
            assert_ok(tar_writer_add(writer, member, &labelled[i], 1, 0, NULL, &error), &error);
    }
    assert_ok(tar_writer_finish(&writer, &error), &error);
    return tar;
}

static void expect_labelled(TestFolder *folder, int exit_status, const char *tar, const char *labels,
                            const char *expected, const char *class_name)
{
    const char *packed = test_path(folder, "labelled");
    test_file_write_text(test_path(folder, "labels"), labels);
    RunResult result = run_expecting(exit_status, "fpack", "--force", "--labels", test_path(folder, "labels"),
                                     tar, packed, NULL);
    run_result_free(&result);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, expected);
    free(list);
    FshDataset *dataset = packed_open(packed);
    assert_string_equal(fsh_manifest(dataset)->class_names[1], class_name);
    fsh_close(&dataset);
    run_ok("fverify", "--decode", packed, NULL);
}

TEST_IN_FOLDER(test_samples_of_a_tar_get_labels_from_a_file, folder)
{
    const char *none = source_unlabelled(folder, "none", "----");
    const char *some = source_unlabelled(folder, "some", "1-0-");
    const char *names = "a.jpg owl\nb.jpg cat\nc.jpg owl\nd.jpg cat\n";
    expect_labelled(folder, 0, none, names, "a 1\nb 0\nc 1\nd 0\n", "owl");
    expect_labelled(folder, 0, none, "a,2\nb,0\nc,1\nd,0\n", "a 2\nb 0\nc 1\nd 0\n", "1");
    /* One that is in neither is left out; a label that is there stays. */
    expect_labelled(folder, 1, none, "a cat\nb owl\nc cat\n", "a 0\nb 1\nc 0\n", "owl");
    expect_labelled(folder, 0, some, "a 0\nb 2\nd 0\n", "a 1\nb 2\nc 0\nd 0\n", "1");
    const struct {
        const char *tar, *labels, *message;
        int exit_status;
    } wrong[] = {{source_unlabelled(folder, "all", "0101"), names, "every sample has a label", 2},
                 {none, "x cat\ny owl\n", "names none of the 4 samples", 1}};
    for (size_t i = 0; i < 2; i++) {
        test_file_write_text(test_path(folder, "labels"), wrong[i].labels);
        RunResult result =
            run_expecting(wrong[i].exit_status, "fpack", "--labels", test_path(folder, "labels"),
                          wrong[i].tar, test_path(folder, "wrong"), NULL);
        assert_contains(result.err, wrong[i].message);
        run_result_free(&result);
    }
}

/* Writes a tar of images of these names, up to NULL. Returns its path. */
static const char *images_tar(TestFolder *folder, const char *path, const char *const *names)
{
    TarWriter *writer = NULL;
    FshError error = {0};
    const char *image = test_path(folder, "one.jpg");
    assert_ok(tar_writer_open(&writer, path, 0, &error), &error);
    for (unsigned j = 0; names[j]; j++) {
        size_t length = 0;
        source_jpeg(image, 60 + j, 40, 3, j);
        char *bytes = test_file_read(image, &length);
        assert_ok(tar_writer_add(writer, names[j], bytes, length, 0, NULL, &error), &error);
        free(bytes);
    }
    assert_ok(tar_writer_finish(&writer, &error), &error);
    return path;
}

/* As tar and fresize make them of folders. */
TEST_IN_FOLDER(test_class_folders_in_a_tar_are_classes, folder)
{
    static const struct {
        const char *names[5], *train, *val, *first_class;
    } cases[] = {
        {{"cat/x.jpg", "cat/y.jpg", "owl/x.jpg"}, "cat/x 0\ncat/y 0\nowl/x 1\n", NULL, "cat"},
        {{"train/owl/x.jpg", "train/cat/deep/x.jpg", "valid/cat/x.jpg"},
         "owl/x 1\ncat/deep/x 0\n",
         "cat/x 0\n",
         "cat"},
        {{"./photos/train/10/x.jpg", "photos/train/9/x.jpg", "photos/val/9/x.jpg"},
         "10/x 0\n9/x 1\n",
         "9/x 1\n",
         "10"}, /* names, in byte order, as those of folders */
        {{"photos/owl/x.jpg", "photos/cat/x.jpg"}, "owl/x 1\ncat/x 0\n", NULL, "cat"},
        {{"test/cat/x.jpg", "train/cat/x.jpg"}, "cat/x 0\n", NULL, "cat"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *packed = test_path(folder, "packed%zu", i);
        run_ok("fpack", images_tar(folder, test_path(folder, "case%zu.tar", i), cases[i].names), packed,
               NULL);
        char *list = packed_list(packed, "train");
        assert_string_equal(list, cases[i].train);
        free(list);
        FshDataset *dataset = packed_open(packed);
        assert_string_equal(fsh_manifest(dataset)->class_names[0], cases[i].first_class);
        assert_true(!fsh_split(dataset, "val") == !cases[i].val);
        fsh_close(&dataset);
        if (cases[i].val) {
            list = packed_list(packed, "val");
            assert_string_equal(list, cases[i].val);
            free(list);
        }
        run_ok("fverify", "--decode", packed, NULL);
    }
    /* What tar makes of folders is what the folders are. */
    source_jpeg(test_path(folder, "tree/train/cat/a.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "tree/train/owl/b.jpg"), 41, 30, 3, 2);
    source_jpeg(test_path(folder, "tree/val/owl/c.jpg"), 42, 30, 3, 3);
    run_ok("fresize", "--max-size", "20", test_path(folder, "tree"), test_path(folder, "small.tar"), NULL);
    run_ok("fresize", "--max-size", "20", test_path(folder, "tree"), test_path(folder, "small"), NULL);
    static const char *const splits[] = {"train", "val"};
    run_ok("fpack", test_path(folder, "small.tar"), test_path(folder, "from-tar"), NULL);
    run_ok("fpack", test_path(folder, "small"), test_path(folder, "from-tree"), NULL);
    for (size_t i = 0; i < 2; i++) {
        char *one = packed_list(test_path(folder, "from-tar"), splits[i]),
             *other = packed_list(test_path(folder, "from-tree"), splits[i]);
        assert_string_equal(one, other);
        free(one);
        free(other);
    }
}

TEST_IN_FOLDER(test_splits_in_capitals_in_a_tar_are_warned_about, folder)
{
    static const char *const names[] = {"Train/cat/x.jpg", "Train/owl/x.jpg", "VAL/cat/y.jpg",
                                        "Test/z.jpg",      "owl/z.jpg",       NULL},
                             *const flat[] = {"photos/Train/x.jpg", "photos/Val/y.jpg", NULL};
    const char *tar = images_tar(folder, test_path(folder, "photos.tar"), names);
    RunResult result = run_expecting(0, "fpack", tar, test_path(folder, "shards"), NULL);
    assert_contains(result.err,
                    "photos.tar: 'Train' is taken for a class, of which all its images are; if it "
                    "is a split, call the folder train, in small letters\n");
    assert_contains(result.err, "photos.tar: 'VAL' is taken for a class");
    assert_contains_not(result.err, "'Test'"); /* of images */
    run_result_free(&result);
    result = run_expecting(0, "fpack", images_tar(folder, test_path(folder, "flat.tar"), flat),
                           test_path(folder, "other"), NULL);
    assert_contains(result.err, "flat.tar: 'Train' is taken for a class");
    assert_contains(result.err, "flat.tar: 'Val' is taken for a class");
    run_result_free(&result);
}

/* Beside folders of splits it is no class, so that no sample gets one: the folder that it is about is named,
 * and is left alone where its split is there. */
TEST_IN_FOLDER(test_a_split_in_capitals_beside_others_in_a_tar_is_named, folder)
{
    static const char *const beside[] = {"photos/train/cat/x.jpg", "photos/VAL/cat/y.jpg", NULL},
                             *const flat[] = {"train/cat/x.jpg", "Val/y.jpg", NULL},
                             *const there[] = {"train/cat/x.jpg", "Training/cat/y.jpg", NULL};
    const char *never = test_path(folder, "never");
    RunResult result =
        run_expecting(1, "fpack", images_tar(folder, test_path(folder, "a.tar"), beside), never, NULL);
    assert_contains(result.err, "a.tar: 'VAL' lies beside the splits, and its images have neither split nor "
                                "class; if it is one, call the folder val, in small letters");
    run_result_free(&result);
    result = run_expecting(1, "fpack", images_tar(folder, test_path(folder, "b.tar"), flat), never, NULL);
    assert_contains(result.err, "b.tar: 'Val' lies beside the splits");
    run_result_free(&result);
    result = run_expecting(1, "fpack", images_tar(folder, test_path(folder, "c.tar"), there), never, NULL);
    assert_contains(result.err, "c.tar: none of its samples (2) has a label");
    run_result_free(&result);
}

/* What has neither label nor source, and what has sides of two sizes. */
TEST_IN_FOLDER(test_what_a_tar_does_not_tell_is_no_part_of_a_message, folder)
{
    static const struct {
        const char *names[4], *message;
    } cases[] = {
        {{"x.jpg", "y.jpg"}, "and they are no pairs: say with --labels what they are"},
        {{"cat/x.jpg", "y.jpg"},
         "and they are no pairs: their folders are no CLASS/ or SPLIT/CLASS/ throughout"},
        {{"cat/x.jpg", "train/cat/y.jpg"},
         "and they are no pairs: their folders are no CLASS/ or SPLIT/CLASS/ throughout; say with --labels"},
        {{"train/x.jpg", "val/y.jpg"},
         "and they are no pairs: their folders are no CLASS/ or SPLIT/CLASS/ throughout; say with --labels"},
        {{"photos/train/x.jpg", "photos/val/y.jpg"},
         "and they are no pairs: their folders are no CLASS/ or SPLIT/CLASS/ throughout; say with --labels"},
        {{"photos/train/cat/x.jpg", "photos/val/cat/y.jpg", "photos/stray.jpg"},
         "and they are no pairs: their folders are no CLASS/ or SPLIT/CLASS/ throughout; say with --labels"},
        {{"x.a.jpg", "x.b.jpg"}, "x: sizes differ: a is 60x40, b is 61x40; left out"},
        {{"train/cat/x.jpg", "val/cat/x.jpg", "val/dog/x.jpg"}, "class 'dog' of val is missing from train"},
        {{"train/cat/x.jpg", "val/cat/x.jpg", "valid/cat/y.jpg"},
         "both 'val' and 'valid' are there; keep one as the val split"},
        {{"train/blurry/x.jpg", "train/sharp/x.jpg"},
         "its folders look like the sides of pairs, not like classes; unpack it and pack that folder with "
         "--pairs blurry:sharp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *tar = images_tar(folder, test_path(folder, "%zu.tar", i), cases[i].names);
        RunResult result = run_expecting(1, "fpack", tar, test_path(folder, "never"), NULL);
        assert_contains(result.err, cases[i].message);
        run_result_free(&result);
    }
}

/* Folders are asked of tars alone: what fpack has packed tells its classes. */
TEST_IN_FOLDER(test_a_shard_without_labels_gets_no_classes_of_its_keys, folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard"),
               *image = test_path(folder, "one.jpg");
    static const char *const keys[] = {"cat/x", "owl/x"}, *const classes[] = {"bee"};
    FshError error = {0};
    size_t length = 0;
    source_jpeg(image, 60, 40, 3, 1);
    char *bytes = test_file_read(image, &length);
    FshWriter *writer = shard_writer(path, classes, 1);
    for (size_t i = 0; i < 2; i++) {
        const FshSample sample = {
            .label = FSH_NO_LABEL,
            .key = keys[i],
            .key_bytes = strlen(keys[i]),
            .field_count = 1,
            .fields = {{.data = bytes,
                        .bytes = length,
                        .width = 60,
                        .height = 40,
                        .channels = 3,
                        .codec = FSH_CODEC_JPEG}},
        };
        assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    }
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    free(bytes);
    RunResult result = run_expecting(1, "fpack", path, test_path(folder, "never"), NULL);
    assert_contains(result.err, "none of its samples (2) has a label");
    run_result_free(&result);
}
