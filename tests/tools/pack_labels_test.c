/* fpack: labels from files, lists, chosen classes, and what is there twice. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/sources.h"

static void assert_list(const char *packed, const char *split, const char *expected)
{
    char *list = packed_list(packed, split);
    assert_string_equal(list, expected);
    free(list);
}

/* Asserts the classes of a dataset: "cat,dog". */
static void assert_classes(const char *packed, const char *expected)
{
    char names[512] = "";
    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    size_t used = 0;
    for (size_t i = 0; i < manifest->class_count; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "," : "",
                                 manifest->class_names[i]);
    fsh_close(&dataset);
    assert_string_equal(names, expected);
}

static void expect_error(int exit_status, const char *option, const char *value, const char *source,
                         const char *packed, const char *text)
{
    RunResult result = run_expecting(exit_status, "fpack", option, value, source, packed, NULL);
    assert_contains(result.err, text);
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

/* ---- --labels ---- */

/* Makes train/cat, train/dog, and three images in val. */
static void source_flat_val(TestFolder *folder)
{
    source_two_classes(test_path(folder, "set/train"));
    for (unsigned i = 1; i <= 3; i++)
        source_jpeg(test_path(folder, "set/val/ILSVRC2012_val_%08u.JPEG", i), 30, 20, 3, i);
}

TEST_IN_FOLDER(test_a_flat_val_gets_its_labels_from_a_file, folder)
{
    static const char *const files[] = {
        "ImageId,PredictionString\nILSVRC2012_val_00000001,dog 1 2 3 4\nILSVRC2012_val_00000003,dog 1 2 3 4\n"
        "ILSVRC2012_val_00000002,cat 1 2 3 4\n",
        "ILSVRC2012_val_00000001.JPEG 1\nILSVRC2012_val_00000002.JPEG 0\nILSVRC2012_val_00000003.JPEG 1\n",
        "dog\ncat\ndog\n", /* the Nth image */
    };
    source_flat_val(folder);
    for (size_t i = 0; i < 3; i++) {
        const char *packed = test_path(folder, "shards%zu", i), *labels = test_path(folder, "labels%zu", i);
        test_file_write_text(labels, files[i]);
        run_ok("fpack", "--labels", labels, test_path(folder, "set"), packed, NULL);
        assert_classes(packed, "cat,dog");
        assert_list(packed, "train", "cat/0 0\ncat/1 0\ncat/2 0\ndog/0 1\ndog/1 1\n");
        assert_list(packed, "val",
                    "ILSVRC2012_val_00000001 1\nILSVRC2012_val_00000002 0\nILSVRC2012_val_00000003 1\n");
        run_ok("fverify", packed, NULL);
    }
    /* The same from a pipe, as <(command) is one, and from standard input. */
    char fpack[1024];
    (void)snprintf(fpack, sizeof fpack, "%s/fpack", getenv("FSHARD_BIN"));
    static const char *const piped[] = {"/dev/stdin", "-"};
    for (size_t i = 0; i < 2; i++) {
        const char *packed = test_path(folder, "piped%zu", i);
        run_forget(run_expecting(0, "/bin/sh", "-c", "cat \"$4\" | \"$0\" --labels \"$1\" \"$2\" \"$3\"",
                                 fpack, piped[i], test_path(folder, "set"), packed,
                                 test_path(folder, "labels1"), NULL));
        assert_list(packed, "val",
                    "ILSVRC2012_val_00000001 1\nILSVRC2012_val_00000002 0\nILSVRC2012_val_00000003 1\n");
    }
    json_t *manifest = packed_manifest(test_path(folder, "shards0"));
    const json_t *options = json_object_get(json_object_get(manifest, "provenance"), "options");
    assert_string_equal(json_string_value(json_object_get(options, "labels")), test_path(folder, "labels0"));
    json_decref(manifest);
}

/* Tiny ImageNet: val/images/val_0.JPEG and val/val_annotations.txt. */
TEST_IN_FOLDER(test_a_flat_val_may_lie_in_one_folder, folder)
{
    source_two_classes(test_path(folder, "set/train"));
    source_jpeg(test_path(folder, "set/val/images/val_0.jpg"), 30, 20, 3, 1);
    test_file_write_text(test_path(folder, "set/val/val_annotations.txt"), "val_0.jpg\tdog\t0\t0\t63\t63\n");
    RunResult result = run_expecting(1, "fpack", test_path(folder, "set"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "class 'images' of val is missing from train");
    assert_contains(result.err, "say with --labels what its images are");
    run_result_free(&result);
    run_ok("fpack", "--labels", test_path(folder, "set/val/val_annotations.txt"), test_path(folder, "set"),
           test_path(folder, "shards"), NULL);
    assert_list(test_path(folder, "shards"), "val", "images/val_0 1\n");
}

TEST_IN_FOLDER(test_labels_alone_make_classes, folder)
{
    const char *labels = test_path(folder, "labels.txt");
    for (unsigned i = 0; i < 3; i++)
        source_jpeg(test_path(folder, "flat/%u.jpg", i), 30, 20, 3, i);
    test_file_write_text(labels, "0.jpg\twhite cat\n1.jpg\tapple\n2.jpg\twhite cat\n");
    run_ok("fpack", "--labels", labels, test_path(folder, "flat"), test_path(folder, "names"), NULL);
    assert_classes(test_path(folder, "names"), "apple,white cat");
    assert_list(test_path(folder, "names"), "train", "0 1\n1 0\n2 1\n");
    test_file_write_text(labels, "0.jpg 2\n1.jpg 0\n2.jpg 2\n");
    run_ok("fpack", "--labels", labels, test_path(folder, "flat"), test_path(folder, "numbers"), NULL);
    assert_classes(test_path(folder, "numbers"), "0,1,2");
    assert_list(test_path(folder, "numbers"), "train", "0 2\n1 0\n2 2\n");
    source_jpeg(test_path(folder, "deep/images/0.jpg"), 30, 20, 3, 1); /* one folder, and no class */
    run_ok("fpack", "--labels", labels, test_path(folder, "deep"), test_path(folder, "one"), NULL);
    assert_list(test_path(folder, "one"), "train", "images/0 2\n");
}

TEST_IN_FOLDER(test_labels_that_do_not_fit_are_refused, folder)
{
    const char *labels = test_path(folder, "labels.txt"), *packed = test_path(folder, "shards");
    source_flat_val(folder);
    test_file_write_text(labels, "ILSVRC2012_val_00000001.JPEG fish\n");
    expect_error(1, "--labels", labels, test_path(folder, "set"), packed,
                 "val/ILSVRC2012_val_00000001.JPEG: its label 'fish'");
    test_file_write_text(labels, "ILSVRC2012_val_00000001.JPEG 2\n");
    expect_error(1, "--labels", labels, test_path(folder, "set"), packed, "numbers count from 0");
    /* ILSVRC's own numbers are not those of the folders: taken for them, all labels would be wrong. */
    test_file_write_text(labels, "1\n0\n1\n");
    expect_error(1, "--labels", labels, test_path(folder, "set"), packed, "has numbers of its own");
    expect_error(1, "--labels", test_path(folder, "nowhere"), test_path(folder, "set"), packed, "nowhere");
    /* The other way round: class folders need none, and a dataset has them. */
    source_two_classes(test_path(folder, "tree"));
    expect_error(2, "--labels", labels, test_path(folder, "tree"), packed, "lie in class folders already");
    run_ok("fpack", test_path(folder, "tree"), test_path(folder, "dataset"), NULL);
    expect_error(2, "--labels", labels, test_path(folder, "dataset"), packed, "every sample has a label");
}

TEST_IN_FOLDER(test_an_image_without_a_label_is_left_out, folder)
{
    const char *labels = test_path(folder, "labels.txt"), *packed = test_path(folder, "shards");
    source_flat_val(folder);
    test_file_write_text(labels, "ILSVRC2012_val_00000001.JPEG cat\nILSVRC2012_val_00000003.JPEG cat\n");
    RunResult result = run_expecting(1, "fpack", "--labels", labels, test_path(folder, "set"), packed, NULL);
    assert_contains(result.err, "val/ILSVRC2012_val_00000002.JPEG: has no label in ");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "val"), 2);
}

/* ---- --files-from ---- */

/* As `find SRC` gives them; but SRC/SRC/… is a path below SRC, where there is one. */
TEST_IN_FOLDER(test_a_list_may_name_the_source_in_its_paths, folder)
{
    static const char *const sources[] = {"sets/photos", "sets/photos/", "./sets/photos"};
    source_class(test_path(folder, "sets/photos"), "cat", 2);
    source_class(test_path(folder, "sets/photos"), "dog", 1);
    source_class(test_path(folder, "sets/photos/sets/photos"), "dog", 1);
    for (size_t i = 0; i < 3; i++) {
        char text[256];
        const char *packed = test_path(folder, "shards-%zu", i), *source = sources[i];
        const char *slash = i == 1 ? "" : "/";
        (void)snprintf(text, sizeof text, "%s%scat/1.jpg\tone\ncat/0.jpg\ttwo\n%s%sdog/0.jpg\ttwo\n", source,
                       slash, source, slash);
        test_file_write_text(test_path(folder, "list"), text);
        const char *const arguments[] = {"--files-from", "list", source, packed, NULL};
        RunResult result = run_program_arguments(&(RunOptions){.folder = folder->path}, "fpack", arguments);
        if (result.exit_status)
            fail_msg("%s: %s", source, result.err);
        run_result_free(&result);
        assert_list(packed, "train", "cat/1 0\ncat/0 1\nsets/photos/dog/0 1\n");
    }
}

TEST_IN_FOLDER(test_a_list_says_what_where_and_in_which_order, folder)
{
    const char *list = test_path(folder, "list.tsv"), *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos"));
    source_jpeg(test_path(folder, "photos/val/x.jpg"), 30, 20, 3, 1);
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "dog/1.jpg\tone\n./cat//0.jpg\ttwo\tmore\r\n\nval/x.jpg\tone\n%s/photos/cat/2.jpg\tone",
                   folder->path);
    test_file_write_text(list, text);
    run_ok("fpack", "--files-from", list, test_path(folder, "photos"), packed, NULL);
    assert_classes(packed, "one,two");
    assert_list(packed, "train", "dog/1 0\ncat/0 1\ncat/2 0\n");
    assert_list(packed, "val", "x 0\n");
    run_ok("fverify", packed, NULL);
    /* Full paths anywhere: a list does not walk what it is below of. */
    (void)snprintf(text, sizeof text, "%s/photos/cat/2.jpg\tone\n", folder->path);
    test_file_write_text(test_path(folder, "full.tsv"), text);
    run_ok("fpack", "--files-from", test_path(folder, "full.tsv"), "/", test_path(folder, "of-root"), NULL);
    assert_int_equal(packed_count(test_path(folder, "of-root"), "train"), 1);
    /* The same from standard input. */
    char fpack[1024];
    (void)snprintf(fpack, sizeof fpack, "%s/fpack", getenv("FSHARD_BIN"));
    run_forget(run_expecting(0, "/bin/sh", "-c", "exec \"$0\" --files-from - \"$1\" \"$2\" < \"$3\"", fpack,
                             test_path(folder, "photos"), test_path(folder, "piped"), list, NULL));
    assert_list(test_path(folder, "piped"), "train", "dog/1 0\ncat/0 1\ncat/2 0\n");
    RunResult result = run_expecting(1, "fpack", "--files-from", "-", test_path(folder, "photos"),
                                     test_path(folder, "nothing"), NULL);
    assert_contains(result.err, "standard input: the list is empty");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_numbers_in_a_list_are_classes, folder)
{
    const char *list = test_path(folder, "list.tsv");
    source_two_classes(test_path(folder, "photos"));
    test_file_write_text(list, "dog/1.jpg\t3\ncat/0.jpg\t0\n");
    run_ok("fpack", "--files-from", list, test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    assert_classes(test_path(folder, "shards"), "0,1,2,3");
    assert_list(test_path(folder, "shards"), "train", "dog/1 3\ncat/0 0\n");
    /* With names for them. */
    test_file_write_text(test_path(folder, "classes"), "w\nx\ny\na\n");
    run_ok("fpack", "--files-from", list, "--classes", test_path(folder, "classes"),
           test_path(folder, "photos"), test_path(folder, "named"), NULL);
    assert_classes(test_path(folder, "named"), "w,x,y,a");
    assert_list(test_path(folder, "named"), "train", "dog/1 3\ncat/0 0\n");
    test_file_write_text(test_path(folder, "classes"), "w\nx\n");
    RunResult result =
        run_expecting(1, "fpack", "--files-from", list, "--classes", test_path(folder, "classes"),
                      test_path(folder, "photos"), test_path(folder, "x"), NULL);
    assert_contains(result.err, "the label of dog/1 is 3, and ");
    assert_contains(result.err, "names 2 classes, counted from 0");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_what_a_list_cannot_mean_is_told_and_left_out, folder)
{
    const char *list = test_path(folder, "list.tsv"), *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos"));
    source_jpeg(test_path(folder, "outside.jpg"), 30, 20, 3, 1);
    test_file_write_text(test_path(folder, "photos/dog/text.jpg"), "text");
    test_file_write_text(list, "cat/0.jpg\tcat\n"
                               "cat/nowhere.jpg\tcat\n"
                               "../outside.jpg\tcat\n"
                               "/etc/passwd\tcat\n"
                               "cat\tcat\n"
                               "cat/./0.jpg\tcat\n"
                               "dog/text.jpg\tdog\n");
    RunResult result =
        run_expecting(1, "fpack", "--files-from", list, test_path(folder, "photos"), packed, NULL);
    assert_contains(result.err, "cat/nowhere.jpg: line 2 of ");
    assert_contains(result.err, ": is not there; left out");
    assert_contains(result.err, "../outside.jpg: line 3 of ");
    assert_contains(result.err, ": leads outside of the source; left out");
    assert_contains(result.err, "/etc/passwd: line 4 of ");
    assert_contains(result.err, "cat: line 5 of ");
    assert_contains(result.err, ": is no file; left out");
    assert_contains(result.err, "cat/0.jpg: line 6 of ");
    assert_contains(result.err, ": is in line 1 of the list already; left out");
    assert_contains(result.err, "dog/text.jpg: ");
    run_result_free(&result);
    assert_list(packed, "train", "cat/0 0\n");
}

TEST_IN_FOLDER(test_a_list_that_is_none_is_refused, folder)
{
    const char *list = test_path(folder, "list.tsv"), *packed = test_path(folder, "shards");
    const char *photos = test_path(folder, "photos");
    static const char *const lists[][2] = {
        {"", "the list is empty"},
        {"\n\n", "the list is empty"},
        {"cat/0.jpg\n", "line 1 has no tab: a line is PATH<tab>LABEL"},
        {"cat/0.jpg\tcat\ncat/1.jpg\t \n", "line 2 has no label"},
        {"\tcat\n", "line 1 has no path"},
        {"cat/0.jpg\tcat\ncat/0.jpg\tdog\n",
         "line 2 gives cat/0.jpg the label dog, and line 1 the label cat"},
        {"x.jpg\tcat\n", "none of the files in it (1) can be packed"},
    };
    source_two_classes(photos);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        test_file_write_text(list, lists[i][0]);
        expect_error(1, "--files-from", list, photos, packed, lists[i][1]);
    }
    expect_error(1, "--files-from", test_path(folder, "nowhere"), photos, packed, "nowhere");
    expect_error(1, "--files-from", list, test_path(folder, "no-source"), packed, "no-source");
    static const char *const wrong[][4] = {{"--pairs", "cat:dog"}, {"--labels", "x"}};
    for (size_t i = 0; i < 2; i++) {
        RunResult result =
            run_expecting(2, "fpack", "--files-from", list, wrong[i][0], wrong[i][1], photos, packed, NULL);
        run_result_free(&result);
    }
}

/* Keys are paths without extension and split: valid/x and val/x would both be x. */
TEST_IN_FOLDER(test_keys_of_a_list_differ, folder)
{
    const char *list = test_path(folder, "list.tsv"), *packed = test_path(folder, "shards");
    source_jpeg(test_path(folder, "photos/val/x.jpg"), 30, 20, 3, 1);
    source_jpeg(test_path(folder, "photos/valid/x.jpg"), 30, 20, 3, 2);
    source_jpeg(test_path(folder, "photos/valid/x.png"), 30, 20, 3, 2); /* whatever its name says */
    test_file_write_text(list, "val/x.jpg\ta\nvalid/x.jpg\tb\nvalid/x.png\tb\n");
    RunResult result =
        run_expecting(0, "fpack", "--files-from", list, test_path(folder, "photos"), packed, NULL);
    assert_contains(result.err, "numbered 1 key that another sample of the split has");
    run_result_free(&result);
    assert_list(packed, "val", "x.jpg 0\nx.jpg~2 1\nx.png 1\n");
}

/* ---- --classes ---- */

static void source_three_classes(const char *root)
{
    source_two_classes(root);
    source_class(root, "eel", 2);
}

TEST_IN_FOLDER(test_chosen_classes_come_in_the_order_of_the_file, folder)
{
    const char *classes = test_path(folder, "classes.txt"), *packed = test_path(folder, "shards");
    source_three_classes(test_path(folder, "set/train"));
    source_class(test_path(folder, "set/val"), "dog", 1);
    source_class(test_path(folder, "set/val"), "fox", 1); /* not in train, and not chosen */
    test_file_write_text(classes, "eel\r\n\nwolf\ndog\tman's best friend\n");
    RunResult result =
        run_expecting(0, "fpack", "--classes", classes, test_path(folder, "set"), packed, NULL);
    assert_contains(result.err, "left out 4 images of other classes, such as train/cat/0.jpg");
    assert_contains(result.err, "1 of its 3 classes have no image, 'wolf' is the first");
    run_result_free(&result);
    assert_classes(packed, "eel,wolf,dog");
    assert_list(packed, "train", "dog/0 2\ndog/1 2\neel/0 0\neel/1 0\n");
    assert_list(packed, "val", "dog/0 2\n");
    run_ok("fverify", packed, NULL);
    /* Of a dataset as of a tree. */
    run_ok("fpack", test_path(folder, "set/train"), test_path(folder, "all"), NULL);
    run_ok("fpack", "--classes", classes, test_path(folder, "all"), test_path(folder, "some"), NULL);
    assert_classes(test_path(folder, "some"), "eel,wolf,dog");
    assert_list(test_path(folder, "some"), "train", "dog/0 2\ndog/1 2\neel/0 0\neel/1 0\n");
}

TEST_IN_FOLDER(test_classes_choose_among_labels, folder)
{
    const char *classes = test_path(folder, "classes.txt"), *labels = test_path(folder, "labels.txt");
    source_flat_val(folder);
    test_file_write_text(classes, "dog\n");
    test_file_write_text(labels, "ILSVRC2012_val_00000001.JPEG cat\nILSVRC2012_val_00000002.JPEG dog\n"
                                 "ILSVRC2012_val_00000003.JPEG newt\n");
    RunResult result = run_expecting(0, "fpack", "--classes", classes, "--labels", labels,
                                     test_path(folder, "set"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "5 images of other classes");
    run_result_free(&result);
    assert_list(test_path(folder, "shards"), "train", "dog/0 0\ndog/1 0\n");
    assert_list(test_path(folder, "shards"), "val", "ILSVRC2012_val_00000002 0\n");
}

TEST_IN_FOLDER(test_a_list_of_classes_that_is_none_is_refused, folder)
{
    const char *classes = test_path(folder, "classes.txt"), *packed = test_path(folder, "shards");
    static const char *const lists[][2] = {
        {"", "names no class"},
        {"cat\ndog\ncat\n", "the class 'cat' is there twice, as names 1 and 3"},
        {"Cat\nDog\n", "has no image of any of the 2 classes"},
    };
    source_two_classes(test_path(folder, "photos"));
    for (size_t i = 0; i < 3; i++) {
        test_file_write_text(classes, lists[i][0]);
        expect_error(1, "--classes", classes, test_path(folder, "photos"), packed, lists[i][1]);
    }
    RunResult result = run_expecting(2, "fpack", "--pairs", "cat:dog", "--classes", classes,
                                     test_path(folder, "photos"), packed, NULL);
    run_result_free(&result);
}

/* ---- --dedupe ---- */

TEST_IN_FOLDER(test_the_first_of_equal_images_stays, folder)
{
    const char *packed = test_path(folder, "shards"), *report = test_path(folder, "twice.jsonl");
    source_two_classes(test_path(folder, "set/train"));
    source_class(test_path(folder, "set/test"), "cat", 1);
    source_class(test_path(folder, "set/val"), "fish", 1);
    source_class(test_path(folder, "set/train"), "fish", 0);
    source_jpeg(test_path(folder, "set/train/fish/0.jpg"), 50, 50, 3, 9);
    test_file_copy(test_path(folder, "set/train/cat/1.jpg"), test_path(folder, "set/train/cat/again.png"));
    test_file_copy(test_path(folder, "set/train/cat/1.jpg"), test_path(folder, "set/train/dog/cat.jpg"));
    test_file_copy(test_path(folder, "set/train/dog/0.jpg"), test_path(folder, "set/val/dog/0.jpg"));
    test_file_copy(test_path(folder, "set/val/fish/0.jpg"), test_path(folder, "set/test/fish/0.jpg"));
    /* The same size and another content. */
    test_file_copy(test_path(folder, "set/train/dog/1.jpg"), test_path(folder, "set/train/dog/like.jpg"));
    size_t length = 0;
    char *bytes = test_file_read(test_path(folder, "set/train/dog/like.jpg"), &length);
    bytes[length - 3] ^= 1;
    test_file_write(test_path(folder, "set/train/dog/like.jpg"), bytes, length);
    free(bytes);
    RunResult result = run_expecting(0, "fpack", "--dedupe", "--no-check", "--report", report, "--json",
                                     test_path(folder, "set"), packed, NULL);
    assert_contains(result.err, "train/cat/again.png: has the same content as train/cat/1.jpg; left out");
    assert_contains(result.err, "train/dog/cat.jpg: has the same content as train/cat/1.jpg, which is of "
                                "another class: cat; left out");
    assert_contains(result.err, "val/dog/0.jpg: has the same content as train/dog/0.jpg; left out");
    assert_contains(result.err, "test/fish/0.jpg: has the same content as val/fish/0.jpg; left out");
    json_t *json = json_of(result.out);
    assert_int_equal(json_array_size(json_object_get(json, "left_out")), 4);
    const json_t *counts = json_object_get(json, "duplicates");
    assert_int_equal(json_integer_value(json_object_get(counts, "train")), 2);
    assert_int_equal(json_integer_value(json_object_get(counts, "val")), 1);
    assert_int_equal(json_integer_value(json_object_get(counts, "test")), 1);
    json_decref(json);
    assert_contains(result.err, "--dedupe: left out 2 of train, 1 of val, 1 of test\n");
    assert_contains(result.err, "--dedupe: leaves no sample of 1 class in val, 'dog' is the first");
    assert_contains(result.err, "--dedupe: leaves no sample of 1 class in test, 'fish' is the first");
    assert_contains_not(result.err, "in train, '");
    run_result_free(&result);
    char *text = test_file_read(report, NULL);
    assert_contains(text, "\"kind\":\"duplicate\"");
    free(text);
    assert_list(packed, "train", "cat/0 0\ncat/1 0\ncat/2 0\ndog/0 1\ndog/1 1\ndog/like 1\nfish/0 2\n");
    assert_list(packed, "val", "fish/0 2\n");
    assert_list(packed, "test", "cat/0 0\n");
    /* Without --dedupe all of them are there, and again after a detour over a dataset they go. */
    run_ok("fpack", "--no-check", test_path(folder, "set"), test_path(folder, "all"), NULL);
    assert_int_equal(packed_count(test_path(folder, "all"), "train"), 9);
    run_ok("fpack", "--no-check", "--dedupe", test_path(folder, "all"), test_path(folder, "fewer"), NULL);
    assert_list(test_path(folder, "fewer"), "train",
                "cat/0 0\ncat/1 0\ncat/2 0\ndog/0 1\ndog/1 1\ndog/like 1\nfish/0 2\n");
}

TEST_IN_FOLDER(test_a_split_of_duplicates_alone_is_refused, folder)
{
    const char *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "set/train"));
    source_class(test_path(folder, "set/val"), "cat", 0);
    source_class(test_path(folder, "set/val"), "dog", 0);
    test_file_copy(test_path(folder, "set/train/cat/0.jpg"), test_path(folder, "set/val/cat/0.jpg"));
    test_file_copy(test_path(folder, "set/train/dog/0.jpg"), test_path(folder, "set/val/dog/0.jpg"));
    RunResult result = run_expecting(1, "fpack", "--dedupe", test_path(folder, "set"), packed, NULL);
    assert_contains(result.err, "val/cat/0.jpg: has the same content as train/cat/0.jpg; left out");
    assert_contains(result.err, "set: --dedupe leaves nothing of val: all of its 2 samples");
    assert_int_equal(access(packed, F_OK), -1);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_dedupe_says_when_nothing_is_there_twice, folder)
{
    source_two_classes(test_path(folder, "photos"));
    RunResult result =
        run_expecting(0, "fpack", "--dedupe", test_path(folder, "photos"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "--dedupe: found nothing twice\n");
    assert_contains_not(result.err, "warning");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_pairs_are_equal_when_both_sides_are, folder)
{
    const char *packed = test_path(folder, "shards");
    for (uint32_t i = 0; i < 3; i++) {
        source_jpeg(test_path(folder, "src/blur/%u.jpg", i), 40, 30, 3, 5);
        source_jpeg(test_path(folder, "src/sharp/%u.jpg", i), 40, 30, 3, i == 2 ? 7 : 6);
    }
    RunResult result =
        run_expecting(0, "fpack", "--dedupe", "--pairs", "gopro", test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "blur/1.jpg: has the same content as blur/0.jpg; left out");
    run_result_free(&result);
    assert_list(packed, "train", "0 -1\n2 -1\n");
}

TEST_IN_FOLDER(test_dedupe_does_not_depend_on_threads, folder)
{
    source_slow_class(test_path(folder, "photos"), "a", 40, 20, 20);
    source_slow_class(test_path(folder, "photos"), "b", 40, 30, 20);
    run_ok("fpack", "-j", "1", "--dedupe", test_path(folder, "photos"), test_path(folder, "one"), NULL);
    run_ok("fpack", "-j", "4", "--dedupe", test_path(folder, "photos"), test_path(folder, "four"), NULL);
    char *difference = test_tree_difference(test_path(folder, "one"), test_path(folder, "four"));
    assert_null(difference);
    assert_list(test_path(folder, "one"), "train", "a/00000 0\nb/00000 1\n");
}

/* ---- --pairs by name ---- */

TEST_IN_FOLDER(test_presets_name_the_sides, folder)
{
    static const char *const presets[][3] = {
        {"gopro", "blur", "sharp"}, {"nafnet", "input", "target"}, {"basicsr", "lq", "gt"}};
    for (size_t i = 0; i < 3; i++) {
        const char *packed = test_path(folder, "shards%zu", i);
        source_jpeg(test_path(folder, "%s/train/seq/%s/1.jpg", presets[i][0], presets[i][1]), 40, 30, 3, 1);
        source_jpeg(test_path(folder, "%s/train/seq/%s/1.jpg", presets[i][0], presets[i][2]), 40, 30, 3, 2);
        run_ok("fpack", "--pairs", presets[i][0], test_path(folder, "%s", presets[i][0]), packed, NULL);
        FshDataset *dataset = packed_open(packed);
        assert_string_equal(fsh_manifest(dataset)->field_names[0], presets[i][1]);
        assert_string_equal(fsh_manifest(dataset)->field_names[1], presets[i][2]);
        fsh_close(&dataset);
        assert_list(packed, "train", "seq/1 -1\n");
    }
    RunResult result = run_expecting(2, "fpack", "--pairs", "sidd", test_path(folder, "gopro"),
                                     test_path(folder, "x"), NULL);
    assert_contains(result.err, "'sidd' is neither A:B nor one of gopro, nafnet, basicsr");
    run_result_free(&result);
}
