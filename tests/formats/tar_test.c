/* Tars: those of ours written and read, those of others read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tar/tar_write.h"
#include "formats/names.h"
#include "tests/formats/samples.h"
#include "tests/formats/test_tar.h"

/* ---- ours, written and read ---- */

TEST_IN_FOLDER(test_what_is_written_is_read, folder)
{
    static const DatasetPlan plans[] = {
        {.container = FSH_CONTAINER_TAR, .train_count = 700, .val_count = 9},
        {.container = FSH_CONTAINER_TAR, .kind = FSH_KIND_PAIRS, .train_count = 30, .val_count = 3},
        {.container = FSH_CONTAINER_TAR, .train_count = 1},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        FshError error = {0};
        const char *path = test_path(folder, "%zu", i);
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(&plans[i], path);
        FshDataset *dataset = test_dataset_open(path);
        samples_assert_split(dataset, &plans[i], "train", plans[i].train_count);
        for (uint64_t j = 0; j < plans[i].train_count; j++)
            assert_ok(fsh_sample_verify(fsh_split(dataset, "train"), j, &error), &error);
        if (plans[i].val_count)
            samples_assert_split(dataset, &plans[i], "val", plans[i].val_count);
        fsh_close(&dataset);
        /* dataset.json; a tar, its .idx and a -wids.json for each split. */
        assert_int_equal(test_count_files(path), plans[i].val_count ? 7 : 4);
        for (FshCheckLevel level = FSH_CHECK_QUICK; level <= FSH_CHECK_RECORDS; level++) {
            uint64_t problems = 0;
            assert_ok(fsh_check(path, level, 2, NULL, NULL, &problems, &error), &error);
            assert_int_equal(problems, 0);
        }
    }
}

TEST_IN_FOLDER(test_a_tar_of_ours_alone_tells_the_same, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR, .train_count = 40};
    const char *path = test_path(folder, "train-000000.tar");
    samples_write_file(&plan, "train", path, 0, 0, plan.train_count, NULL);
    FshDataset *dataset = test_dataset_open(path);
    samples_assert_split(dataset, &plan, "train", plan.train_count);
    assert_int_equal(fsh_manifest(dataset)->class_count, SAMPLES_CLASS_COUNT);
    for (size_t i = 0; i < SAMPLES_CLASS_COUNT; i++)
        assert_string_equal(fsh_manifest(dataset)->class_names[i], samples_class_names[i]);
    fsh_close(&dataset);
}

static FshStatus put(FshWriter *writer, const char *key, const char *source, FshError *error)
{
    FshSample sample = {.key = key,
                        .key_bytes = strlen(key),
                        .label = 1,
                        .field_count = 1,
                        .fields = {{.data = JPEG,
                                    .bytes = sizeof JPEG - 1,
                                    .width = 3,
                                    .height = 2,
                                    .channels = 3,
                                    .codec = FSH_CODEC_JPEG,
                                    .source = source,
                                    .source_bytes = strlen(source)}}};
    return fsh_writer_put(writer, &sample, error);
}

TEST_IN_FOLDER(test_strange_names_come_back, folder)
{
    static const char *const names[] = {
        "a.b/c.d.e",        "100%",      "two words", "__meta__", "quote\"d\\back", "latin\xE9/\xFF.",
        "snow\xE2\x98\x83", "tab\there", "a.b/c%2Ed", ".hidden"};
    FshError error = {0};
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR};
    FshWriterOptions options = samples_writer_options(&plan, "train", 0);
    FshWriter *writer = NULL;
    const char *path = test_path(folder, "train-000000.tar");
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(put(writer, names[i], names[i], &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    FshDataset *dataset = test_dataset_open(path);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        FshSample sample;
        test_sample_get(dataset, "train", i, &sample);
        assert_key(&sample, names[i]);
        assert_int_equal(sample.fields[0].source_bytes, strlen(names[i]));
        assert_memory_equal(sample.fields[0].source, names[i], strlen(names[i]));
    }
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_what_a_tar_cannot_tell_is_refused, folder)
{
    static const char *const keys[] = {"../up", "/root", "folder/", "a/../b"};
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR};
    FshWriterOptions options = samples_writer_options(&plan, "train", 0);
    for (size_t i = 0; i <= sizeof keys / sizeof *keys; i++) {
        FshError error = {0};
        FshWriter *writer = NULL;
        bool twice = i == sizeof keys / sizeof *keys;
        assert_ok(fsh_writer_open(&writer, test_path(folder, "train-000000.tar"), &options, &error), &error);
        assert_ok(put(writer, twice ? "same" : keys[i], "", &error), &error);
        if (twice)
            assert_ok(put(writer, "same", "", &error), &error);
        assert_int_equal(fsh_writer_finish(writer, NULL, &error), FSH_ERR_MISMATCH);
        assert_contains(error.message, twice ? "same" : keys[i]);
        fsh_writer_close(&writer);
        assert_int_equal(test_count_files(folder->path), 0);
    }
}

TEST_IN_FOLDER(test_the_same_samples_give_the_same_bytes, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR, .train_count = 50};
    FshFileInfo infos[2];
    for (int i = 0; i < 2; i++) {
        FshError error = {0};
        assert_ok(file_make_folders(test_path(folder, "%d", i), &error), &error);
        samples_write_file(&plan, "train", test_path(folder, "%d/train-000000.tar", i), 0, 0, 50, &infos[i]);
    }
    char *difference = test_tree_difference(test_path(folder, "0"), test_path(folder, "1"));
    assert_null(difference);
    assert_true(fsh_hash_equal(&infos[0].hash, &infos[1].hash));
    assert_int_equal(infos[0].bytes, test_file_size(test_path(folder, "0/train-000000.tar")));
    free(infos[0].name);
    free(infos[1].name);
}

TEST_IN_FOLDER(test_a_flipped_byte_is_found, folder)
{
    FshError error = {0};
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR, .train_count = 3};
    samples_write_dataset(&plan, folder->path);
    const char *path = test_path(folder, "train-000000.tar");
    uint64_t bytes = test_file_size(path);
    for (uint64_t at = 0; at < bytes; at += 7) {
        uint64_t problems = 0;
        test_file_flip_byte(path, (int64_t)at);
        assert_ok(fsh_check(folder->path, FSH_CHECK_QUICK, 1, NULL, NULL, &problems, &error), &error);
        if (!problems)
            fail_msg("byte %" PRIu64 " of %" PRIu64 " was flipped, and nobody saw it", at, bytes);
        test_file_flip_byte(path, (int64_t)at);
    }
    FshDataset *dataset = test_dataset_open(folder->path);
    FshSample sample;
    test_sample_get(dataset, "train", 1, &sample);
    char *text = test_file_read(path, NULL);
    const char *image = memmem(text, bytes, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(image);
    int64_t at = image - text;
    free(text);
    fsh_close(&dataset);
    test_file_flip_byte(path, at);
    dataset = test_dataset_open(folder->path);
    assert_int_equal(fsh_sample_verify(fsh_split(dataset, "train"), 1, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "train-000000.tar record 1");
    assert_contains(error.message, "CRC32C");
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_the_index_of_dali_leads_to_the_members, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR, .train_count = 5};
    const char *path = test_path(folder, "train-000000.tar");
    samples_write_file(&plan, "train", path, 0, 0, 5, NULL);
    char *index = test_file_read(test_path(folder, "train-000000.idx"), NULL);
    char *tar = test_file_read(path, NULL);
    assert_contains(index, "v1.2 5\n");
    char *line = strchr(index, '\n') + 1;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        unsigned long long offset = strtoull(strtok_r(NULL, " \n", &rest), NULL, 10);
        unsigned long long bytes = strtoull(strtok_r(NULL, " \n", &rest), NULL, 10);
        const char *name = strtok_r(NULL, " \n", &rest);
        assert_string_equal(strchr(name, '.') + 1, word);
        if (strcmp(word, "cls") == 0) {
            assert_int_equal(bytes, 1);
            assert_in_range(tar[offset], '0', '2');
        } else if (strcmp(word, "json") == 0) {
            assert_memory_equal(tar + offset, "{\"fshard\": 1", 12);
            assert_int_equal(tar[offset + bytes - 1], '\n');
        } else if (strcmp(word, "npy") == 0) {
            assert_memory_equal(tar + offset, "\x93NUMPY", 6);
        } else {
            assert_string_equal(word, "jpg");
        }
    }
    free(index);
    free(tar);
}

/* ---- those of others ---- */

TEST_IN_FOLDER(test_every_tar_tells_names_of_classes, folder)
{
    static const char *const notes[] = {"{\"class_name\": \"bee\"}", "{\"class_name\": \"cat\"}"};
    assert_ok(file_make_folders(test_path(folder, "tars"), NULL), NULL);
    for (int i = 0; i < 2; i++) {
        TestTar tar = {0};
        test_tar_add_text(&tar, "x.jpg", JPEG);
        test_tar_add_text(&tar, "x.cls", i ? "1" : "0");
        test_tar_add_text(&tar, "x.json", notes[i]);
        (void)test_tar_save(&tar, folder, i ? "tars/train-1.tar" : "tars/train-0.tar");
    }
    FshDataset *dataset = test_dataset_open(test_path(folder, "tars"));
    assert_int_equal(fsh_manifest(dataset)->class_count, 2);
    assert_string_equal(fsh_manifest(dataset)->class_names[0], "bee");
    assert_string_equal(fsh_manifest(dataset)->class_names[1], "cat");
    fsh_close(&dataset);
}

/* Saves samples KEY.jpg with a text KEY.cls each, or where the text is NULL a KEY.json with a number. Keys
 * differ where counts do. */
static void save_classes(TestFolder *folder, const char *name, const char *const *classes, size_t count)
{
    TestTar tar = {0};
    for (size_t i = 0; i < count; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%zu of %zu.jpg", i, count);
        test_tar_add_text(&tar, path, JPEG);
        (void)snprintf(path, sizeof path, "%zu of %zu.%s", i, count, classes[i] ? "cls" : "json");
        test_tar_add_text(&tar, path, classes[i] ? classes[i] : "{\"label\": 1}");
    }
    (void)test_tar_save(&tar, folder, name);
}

static void assert_class(const FshDataset *dataset, const char *split, uint64_t index, const char *name)
{
    FshSample sample;
    test_sample_get(dataset, split, index, &sample);
    assert_int_equal(fsh_sample_label(fsh_split(dataset, split), index), sample.label);
    if (!name) {
        assert_int_equal(sample.label, FSH_NO_LABEL);
        return;
    }
    assert_in_range(sample.label, 0, fsh_manifest(dataset)->class_count - 1);
    assert_string_equal(fsh_manifest(dataset)->class_names[sample.label], name);
}

/* In one of the tars: numbers are names too then, in all of them. */
TEST_IN_FOLDER(test_a_cls_may_name_its_class, folder)
{
    static const char *const train_0[] = {"3", " cat\n", "bee", "cat", NULL, "03"};
    static const char *const train_1[] = {"7", "3"};
    static const char *const val[] = {"tabby cat", "ant", "cat"};
    static const char *const sorted[] = {"3", "7", "ant", "bee", "cat", "tabby cat"};
    assert_ok(file_make_folders(test_path(folder, "tars"), NULL), NULL);
    save_classes(folder, "tars/train-0.tar", train_0, 6);
    save_classes(folder, "tars/train-1.tar", train_1, 2);
    save_classes(folder, "tars/val-0.tar", val, 3);
    FshDataset *dataset = test_dataset_open(test_path(folder, "tars"));
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_int_equal(manifest->class_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(manifest->class_names[i], sorted[i]);
    assert_class(dataset, "train", 0, "3");
    assert_class(dataset, "train", 1, "cat");
    assert_class(dataset, "train", 2, "bee");
    assert_class(dataset, "train", 3, "cat");
    assert_class(dataset, "train", 4, NULL); /* a .json's number is no name */
    assert_class(dataset, "train", 5, "3");
    assert_class(dataset, "train", 6, "7");
    assert_class(dataset, "train", 7, "3");
    assert_class(dataset, "val", 0, "tabby cat");
    assert_class(dataset, "val", 1, "ant");
    assert_class(dataset, "val", 2, "cat");
    assert_int_equal(fsh_split(dataset, "train")->info->class_counts[0], 3);
    assert_int_equal(fsh_split(dataset, "val")->info->class_counts[4], 1);
    fsh_close(&dataset);
    FshError error = {0};
    uint64_t problem_count = 1;
    assert_ok(fsh_check(test_path(folder, "tars"), FSH_CHECK_RECORDS, 2, NULL, NULL, &problem_count, &error),
              &error);
    assert_int_equal(problem_count, 0);
}

TEST_IN_FOLDER(test_many_names_are_told_apart, folder)
{
    enum { COUNT = 500 };
    static char texts[COUNT][16];
    const char *classes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "class %03d", i * 7 % 250);
        classes[i] = texts[i];
    }
    save_classes(folder, "many.tar", classes, COUNT);
    FshDataset *dataset = test_dataset_open(test_path(folder, "many.tar"));
    assert_int_equal(fsh_manifest(dataset)->class_count, 250);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_class(dataset, "train", i, texts[i]);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_neighbours_of_one_stem_are_a_sample, folder)
{
    TestTar tar = {0};
    test_tar_add_text(&tar, "README", "no dot: no sample");
    test_tar_add_text(&tar, "./a/000.JPG", JPEG);
    test_tar_add_text(&tar, "./a/000.cls", " 4\n");
    test_tar_add_text(&tar, "./a/000.txt", "a caption");
    test_tar_add_text(&tar, "./a/001.png", PNG);
    test_tar_add_text(&tar, "./a/001.json", "{\"text\": \"x\", \"label\": 2}");
    test_tar_add_text(&tar, "__meta__/x.jpg", JPEG);
    test_tar_add_text(&tar, "only.txt", "text without an image");
    test_tar_add_text(&tar, "a/002.jpg", JPEG);
    test_tar_add_text(&tar, "a/._002.jpg", "of macOS");
    FshDataset *dataset = test_dataset_open(test_tar_save(&tar, folder, "shard-000000.tar"));
    const FshManifest *manifest = fsh_manifest(dataset);
    FshSample sample;
    assert_int_equal(manifest->kind, FSH_KIND_CLASSES);
    assert_int_equal(manifest->container, FSH_CONTAINER_TAR);
    assert_string_equal(manifest->field_names[0], "image");
    assert_int_equal(manifest->class_count, 5);
    assert_string_equal(manifest->class_names[4], "4");
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 3);
    assert_int_equal(fsh_split(dataset, "train")->info->class_counts[4], 1);
    test_sample_get(dataset, "train", 0, &sample);
    assert_key(&sample, "a/000");
    assert_int_equal(sample.label, 4);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_JPEG);
    assert_int_equal(sample.fields[0].width, 0);
    assert_int_equal(sample.fields[0].bytes, strlen(JPEG));
    assert_memory_equal(sample.fields[0].data, JPEG, strlen(JPEG));
    test_sample_get(dataset, "train", 1, &sample);
    assert_int_equal(sample.label, 2);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_PNG);
    test_sample_get(dataset, "train", 2, &sample);
    assert_key(&sample, "a/002");
    assert_int_equal(sample.label, FSH_NO_LABEL);
    assert_int_equal(fsh_sample_label(fsh_split(dataset, "train"), 0), 4);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_several_images_are_pairs, folder)
{
    TestTar tar = {0};
    test_tar_add_text(&tar, "000.sharp.png", PNG);
    test_tar_add_text(&tar, "000.blurry.png", PNG "2");
    test_tar_add_text(&tar, "000.cls", "1");
    test_tar_add_text(&tar, "001.blurry.png", PNG "3"); /* in another order */
    test_tar_add_text(&tar, "001.sharp.png", PNG "45");
    FshDataset *dataset = test_dataset_open(test_tar_save(&tar, folder, "x.tar"));
    const FshManifest *manifest = fsh_manifest(dataset);
    FshSample sample;
    assert_int_equal(manifest->kind, FSH_KIND_PAIRS);
    assert_int_equal(manifest->field_count, 2);
    assert_string_equal(manifest->field_names[0], "sharp");
    test_sample_get(dataset, "train", 1, &sample);
    assert_int_equal(sample.field_count, 2);
    assert_int_equal(sample.fields[0].bytes, strlen(PNG "45"));
    assert_int_equal(sample.fields[1].bytes, strlen(PNG "3"));
    assert_int_equal(sample.label, FSH_NO_LABEL);
    fsh_close(&dataset);
}

static void save_one(TestFolder *folder, const char *name, const char *key)
{
    TestTar tar = {0};
    char path[64];
    (void)snprintf(path, sizeof path, "%s.jpg", key);
    test_tar_add_text(&tar, path, JPEG);
    (void)test_tar_save(&tar, folder, name);
}

TEST_IN_FOLDER(test_names_of_tars_tell_the_split, folder)
{
    FshSample sample;
    save_one(folder, "imagenet-val-000000.tar", "v0");
    save_one(folder, "imagenet-train-000001.tar", "t1");
    save_one(folder, "imagenet-train-000000.tar", "t0");
    FshDataset *dataset = test_dataset_open(folder->path);
    assert_int_equal(fsh_manifest(dataset)->split_count, 2);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 2);
    test_sample_get(dataset, "train", 0, &sample);
    assert_key(&sample, "t0");
    test_sample_get(dataset, "train", 1, &sample);
    assert_key(&sample, "t1");
    test_sample_get(dataset, "val", 0, &sample);
    assert_key(&sample, "v0");
    fsh_close(&dataset);
    dataset = test_dataset_open(test_path(folder, "imagenet-train-{000000..000001}.tar"));
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 2);
    fsh_close(&dataset);
    FshError error = {0};
    assert_int_equal(fsh_open(&dataset, test_path(folder, "imagenet-train-{000000..000002}.tar"), &error),
                     FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "imagenet-train-000002.tar");
    save_one(folder, "more-000000.tar", "m0");
    assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "more-000000.tar");
}

TEST_IN_FOLDER(test_samples_that_contradict_are_named, folder)
{
    TestTar tar = {0};
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.cls", "\xFFthree");
    assert_open_refused(test_tar_save(&tar, folder, "1.tar"), FSH_ERR_CORRUPT,
                        "sample 000: its .cls at byte 1536 is neither a whole number nor a name");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.cls", " \n");
    assert_open_refused(test_tar_save(&tar, folder, "1.tar"), FSH_ERR_CORRUPT, "is no whole number");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.png", PNG);
    assert_open_refused(test_tar_save(&tar, folder, "2.tar"), FSH_ERR_CORRUPT, "two images");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "001.mask.png", PNG);
    assert_open_refused(test_tar_save(&tar, folder, "3.tar"), FSH_ERR_MISMATCH, "sample 001");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.mask.png", PNG);
    test_tar_add_text(&tar, "001.jpg", JPEG);
    assert_open_refused(test_tar_save(&tar, folder, "4.tar"), FSH_ERR_MISMATCH, "mask");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.cls", "99999999");
    assert_open_refused(test_tar_save(&tar, folder, "5.tar"), FSH_ERR_UNSUPPORTED, "label 99999999");
    test_tar_add_text(&tar, "../000.jpg", JPEG);
    assert_open_refused(test_tar_save(&tar, folder, "6.tar"), FSH_ERR_CORRUPT, "\"..\"");
    test_tar_add_text(&tar, "000.txt", "nothing but text");
    assert_open_refused(test_tar_save(&tar, folder, "7.tar"), FSH_ERR_UNSUPPORTED, "no sample");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.json", "{\"label\": 3");
    assert_open_refused(test_tar_save(&tar, folder, "8.tar"), FSH_ERR_CORRUPT, "no JSON object");
    assert_open_refused(test_path(folder, "9.tar.gz"), FSH_ERR_UNSUPPORTED, "compressed");
}

/* ---- what fsh_check says of them ---- */

/* A copy of the last problem, and how many there were. */
typedef struct Told {
    FshStatus status;
    char file[64], reason[256];
    uint64_t count;
} Told;

static void note_problem(const FshProblem *problem, void *context)
{
    Told *told = context;
    told->status = problem->status;
    (void)snprintf(told->file, sizeof told->file, "%s", problem->file);
    (void)snprintf(told->reason, sizeof told->reason, "%s", problem->reason);
    told->count++;
}

static Told check_told(const char *path)
{
    Told told = {0};
    FshError error = {0};
    uint64_t count = 0;
    assert_ok(fsh_check(path, FSH_CHECK_RECORDS, 2, note_problem, &told, &count, &error), &error);
    assert_int_equal(count, told.count);
    return told;
}

static void assert_one_problem(const char *path, const char *file, FshStatus status, const char *part)
{
    Told told = check_told(path);
    assert_int_equal(told.count, 1);
    assert_string_equal(told.file, file);
    assert_int_equal(told.status, status);
    assert_contains(told.reason, part);
}

TEST_IN_FOLDER(test_what_cannot_be_opened_is_a_problem, folder)
{
    TestTar tar = {0};
    test_tar_add_text(&tar, "000.txt", "nothing but text");
    const char *path = test_tar_save(&tar, folder, "text.tar");
    assert_open_refused(path, FSH_ERR_UNSUPPORTED, "holds no sample with an image");
    assert_one_problem(path, "text.tar", FSH_ERR_UNSUPPORTED, "holds no sample with an image");
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "001.\xFF.jpg", JPEG);
    path = test_tar_save(&tar, folder, "mixed.tar");
    assert_open_refused(path, FSH_ERR_MISMATCH, "sample 001");
    assert_one_problem(path, "mixed.tar", FSH_ERR_MISMATCH, "sample 001");
    test_tar_add_text(&tar, "000.left\xFF.jpg", JPEG);
    path = test_tar_save(&tar, folder, "name.tar");
    assert_open_refused(path, FSH_ERR_UNSUPPORTED, "not UTF-8");
    assert_one_problem(path, "name.tar", FSH_ERR_UNSUPPORTED, "sample 000: has an image \"left\xFF\"");
}

/* Each of these tars is good by itself. */
TEST_IN_FOLDER(test_tars_of_other_images_are_told, folder)
{
    static const char *const others[][2] = {
        {"000.left.jpg", "000.middle.jpg"}, {"000.left.jpg", NULL}, {"000.left.jpg", "000.jpg"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        TestTar tar = {0};
        test_tar_add_text(&tar, "100.left.jpg", JPEG);
        test_tar_add_text(&tar, "100.right.jpg", JPEG "r");
        (void)test_tar_save(&tar, folder, "train-000000.tar");
        test_tar_add_text(&tar, "200.right.jpg", JPEG "2r"); /* in another order */
        test_tar_add_text(&tar, "200.left.jpg", JPEG "2l");
        (void)test_tar_save(&tar, folder, "train-000001.tar");
        FshDataset *dataset = test_dataset_open(folder->path);
        fsh_close(&dataset);
        assert_int_equal(check_told(folder->path).count, 0);
        test_tar_add_text(&tar, others[i][0], JPEG);
        if (others[i][1])
            test_tar_add_text(&tar, others[i][1], PNG);
        (void)test_tar_save(&tar, folder, "train-000002.tar");
        FshError error = {0};
        assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_MISMATCH);
        assert_contains(error.message, "train-000002.tar");
        assert_one_problem(folder->path, "train-000002.tar", FSH_ERR_MISMATCH, "those of the first file");
        assert_int_equal(remove(test_path(folder, "train-000002.tar")), 0);
    }
}
