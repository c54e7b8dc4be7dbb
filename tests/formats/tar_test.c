#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tar_write.h"
#include "formats/internal.h"
#include "tests/formats/samples.h"

/* ---- tars made here ---- */

typedef struct TestTar {
    Buffer bytes, scratch;
} TestTar;

static void add(TestTar *tar, const char *path, const void *bytes, size_t length)
{
    FshError error = {0};
    size_t at = 0;
    assert_ok(tar_entry_append(&tar->bytes, &tar->scratch, path, bytes, length, 0, &at, &error), &error);
}

static void add_text(TestTar *tar, const char *path, const char *text)
{
    add(tar, path, text, strlen(text));
}

/* Writes it with its end marker and forgets it. */
static const char *save(TestTar *tar, TestFolder *folder, const char *name)
{
    FshError error = {0};
    const char *path = test_path(folder, "%s", name);
    assert_ok(tar_end_append(&tar->bytes, &error), &error);
    test_file_write(path, tar->bytes.bytes, tar->bytes.length);
    buffer_free(&tar->bytes);
    buffer_free(&tar->scratch);
    return path;
}

#define JPEG "\xFF\xD8\xFF picture"
#define PNG  "\x89PNG\r\n\x1A\n picture"

static FshDataset *open_good(const char *path)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static void assert_refused(const char *path, FshStatus status, const char *part)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    FshStatus found = fsh_open(&dataset, path, &error);
    if (found != status)
        fail_msg("%s gives %d: %s", path, found, error.message);
    assert_null(dataset);
    assert_contains(error.message, part);
    assert_contains(error.message, path);
}

static void get(const FshDataset *dataset, const char *split, uint64_t index, FshSample *sample)
{
    FshError error = {0};
    assert_non_null(fsh_split(dataset, split));
    assert_ok(fsh_sample_get(fsh_split(dataset, split), index, sample, &error), &error);
}

static void assert_key(const FshSample *sample, const char *key)
{
    assert_int_equal(sample->key_bytes, strlen(key));
    assert_memory_equal(sample->key, key, sample->key_bytes);
}

/* ---- ours, written and read ---- */

static void test_what_is_written_is_read(void **state)
{
    static const DatasetPlan plans[] = {
        {.container = FSH_CONTAINER_TAR, .train_count = 700, .val_count = 9},
        {.container = FSH_CONTAINER_TAR, .kind = FSH_KIND_PAIRS, .train_count = 30, .val_count = 3},
        {.container = FSH_CONTAINER_TAR, .train_count = 1},
    };
    TestFolder *folder = *state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        FshError error = {0};
        const char *path = test_path(folder, "%zu", i);
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(&plans[i], path);
        FshDataset *dataset = open_good(path);
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

static void test_a_tar_of_ours_alone_tells_the_same(void **state)
{
    TestFolder *folder = *state;
    const DatasetPlan plan = {.container = FSH_CONTAINER_TAR, .train_count = 40};
    const char *path = test_path(folder, "train-000000.tar");
    samples_write_file(&plan, "train", path, 0, 0, plan.train_count, NULL);
    FshDataset *dataset = open_good(path);
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

static void test_strange_names_come_back(void **state)
{
    static const char *const names[] = {
        "a.b/c.d.e",        "100%",      "two words", "__meta__", "quote\"d\\back", "latin\xE9/\xFF.",
        "snow\xE2\x98\x83", "tab\there", "a.b/c%2Ed", ".hidden"};
    TestFolder *folder = *state;
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
    FshDataset *dataset = open_good(path);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        FshSample sample;
        get(dataset, "train", i, &sample);
        assert_key(&sample, names[i]);
        assert_int_equal(sample.fields[0].source_bytes, strlen(names[i]));
        assert_memory_equal(sample.fields[0].source, names[i], strlen(names[i]));
    }
    fsh_close(&dataset);
}

static void test_what_a_tar_cannot_tell_is_refused(void **state)
{
    static const char *const keys[] = {"../up", "/root", "folder/", "a/../b"};
    TestFolder *folder = *state;
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

static void test_the_same_samples_give_the_same_bytes(void **state)
{
    TestFolder *folder = *state;
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

static void test_a_flipped_byte_is_found(void **state)
{
    TestFolder *folder = *state;
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
    FshDataset *dataset = open_good(folder->path);
    FshSample sample;
    get(dataset, "train", 1, &sample);
    char *text = test_file_read(path, NULL);
    const char *image = memmem(text, bytes, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(image);
    int64_t at = image - text;
    free(text);
    fsh_close(&dataset);
    test_file_flip_byte(path, at);
    dataset = open_good(folder->path);
    assert_int_equal(fsh_sample_verify(fsh_split(dataset, "train"), 1, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "train-000000.tar record 1");
    assert_contains(error.message, "CRC32C");
    fsh_close(&dataset);
}

static void test_the_index_of_dali_leads_to_the_members(void **state)
{
    TestFolder *folder = *state;
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

static void test_neighbours_of_one_stem_are_a_sample(void **state)
{
    TestFolder *folder = *state;
    TestTar tar = {0};
    add_text(&tar, "README", "no dot: no sample");
    add_text(&tar, "./a/000.JPG", JPEG);
    add_text(&tar, "./a/000.cls", " 4\n");
    add_text(&tar, "./a/000.txt", "a caption");
    add_text(&tar, "./a/001.png", PNG);
    add_text(&tar, "./a/001.json", "{\"text\": \"x\", \"label\": 2}");
    add_text(&tar, "__meta__/x.jpg", JPEG);
    add_text(&tar, "only.txt", "text without an image");
    add_text(&tar, "a/002.jpg", JPEG);
    add_text(&tar, "a/._002.jpg", "of macOS");
    FshDataset *dataset = open_good(save(&tar, folder, "shard-000000.tar"));
    const FshManifest *manifest = fsh_manifest(dataset);
    FshSample sample;
    assert_int_equal(manifest->kind, FSH_KIND_CLASSES);
    assert_int_equal(manifest->container, FSH_CONTAINER_TAR);
    assert_string_equal(manifest->field_names[0], "image");
    assert_int_equal(manifest->class_count, 5);
    assert_string_equal(manifest->class_names[4], "4");
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 3);
    assert_int_equal(fsh_split(dataset, "train")->info->class_counts[4], 1);
    get(dataset, "train", 0, &sample);
    assert_key(&sample, "a/000");
    assert_int_equal(sample.label, 4);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_JPEG);
    assert_int_equal(sample.fields[0].width, 0);
    assert_int_equal(sample.fields[0].bytes, strlen(JPEG));
    assert_memory_equal(sample.fields[0].data, JPEG, strlen(JPEG));
    get(dataset, "train", 1, &sample);
    assert_int_equal(sample.label, 2);
    assert_int_equal(sample.fields[0].codec, FSH_CODEC_PNG);
    get(dataset, "train", 2, &sample);
    assert_key(&sample, "a/002");
    assert_int_equal(sample.label, FSH_NO_LABEL);
    assert_int_equal(fsh_sample_label(fsh_split(dataset, "train"), 0), 4);
    fsh_close(&dataset);
}

static void test_several_images_are_pairs(void **state)
{
    TestFolder *folder = *state;
    TestTar tar = {0};
    add_text(&tar, "000.sharp.png", PNG);
    add_text(&tar, "000.blurry.png", PNG "2");
    add_text(&tar, "000.cls", "1");
    add_text(&tar, "001.blurry.png", PNG "3"); /* in another order */
    add_text(&tar, "001.sharp.png", PNG "45");
    FshDataset *dataset = open_good(save(&tar, folder, "x.tar"));
    const FshManifest *manifest = fsh_manifest(dataset);
    FshSample sample;
    assert_int_equal(manifest->kind, FSH_KIND_PAIRS);
    assert_int_equal(manifest->field_count, 2);
    assert_string_equal(manifest->field_names[0], "sharp");
    get(dataset, "train", 1, &sample);
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
    add_text(&tar, path, JPEG);
    (void)save(&tar, folder, name);
}

static void test_names_of_tars_tell_the_split(void **state)
{
    TestFolder *folder = *state;
    FshSample sample;
    save_one(folder, "imagenet-val-000000.tar", "v0");
    save_one(folder, "imagenet-train-000001.tar", "t1");
    save_one(folder, "imagenet-train-000000.tar", "t0");
    FshDataset *dataset = open_good(folder->path);
    assert_int_equal(fsh_manifest(dataset)->split_count, 2);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 2);
    get(dataset, "train", 0, &sample);
    assert_key(&sample, "t0");
    get(dataset, "train", 1, &sample);
    assert_key(&sample, "t1");
    get(dataset, "val", 0, &sample);
    assert_key(&sample, "v0");
    fsh_close(&dataset);
    dataset = open_good(test_path(folder, "imagenet-train-{000000..000001}.tar"));
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

static void test_samples_that_contradict_are_named(void **state)
{
    TestFolder *folder = *state;
    TestTar tar = {0};
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.cls", "three");
    assert_refused(save(&tar, folder, "1.tar"), FSH_ERR_CORRUPT, "sample 000");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.png", PNG);
    assert_refused(save(&tar, folder, "2.tar"), FSH_ERR_CORRUPT, "two images");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "001.mask.png", PNG);
    assert_refused(save(&tar, folder, "3.tar"), FSH_ERR_MISMATCH, "sample 001");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.mask.png", PNG);
    add_text(&tar, "001.jpg", JPEG);
    assert_refused(save(&tar, folder, "4.tar"), FSH_ERR_MISMATCH, "mask");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.cls", "99999999");
    assert_refused(save(&tar, folder, "5.tar"), FSH_ERR_UNSUPPORTED, "label 99999999");
    add_text(&tar, "../000.jpg", JPEG);
    assert_refused(save(&tar, folder, "6.tar"), FSH_ERR_CORRUPT, "\"..\"");
    add_text(&tar, "000.txt", "nothing but text");
    assert_refused(save(&tar, folder, "7.tar"), FSH_ERR_UNSUPPORTED, "no sample");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.json", "{\"label\": 3");
    assert_refused(save(&tar, folder, "8.tar"), FSH_ERR_CORRUPT, "no JSON object");
    assert_refused(test_path(folder, "9.tar.gz"), FSH_ERR_UNSUPPORTED, "compressed");
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

static void test_what_cannot_be_opened_is_a_problem(void **state)
{
    TestFolder *folder = *state;
    TestTar tar = {0};
    add_text(&tar, "000.txt", "nothing but text");
    const char *path = save(&tar, folder, "text.tar");
    assert_refused(path, FSH_ERR_UNSUPPORTED, "holds no sample with an image");
    assert_one_problem(path, "text.tar", FSH_ERR_UNSUPPORTED, "holds no sample with an image");
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "001.\xFF.jpg", JPEG);
    path = save(&tar, folder, "mixed.tar");
    assert_refused(path, FSH_ERR_MISMATCH, "sample 001");
    assert_one_problem(path, "mixed.tar", FSH_ERR_MISMATCH, "sample 001");
    add_text(&tar, "000.left\xFF.jpg", JPEG);
    path = save(&tar, folder, "name.tar");
    assert_refused(path, FSH_ERR_UNSUPPORTED, "not UTF-8");
    assert_one_problem(path, "name.tar", FSH_ERR_UNSUPPORTED, "sample 000: has an image \"left\xFF\"");
}

/* Each of these tars is good by itself. */
static void test_tars_of_other_images_are_told(void **state)
{
    static const char *const others[][2] = {
        {"000.left.jpg", "000.middle.jpg"}, {"000.left.jpg", NULL}, {"000.left.jpg", "000.jpg"}};
    TestFolder *folder = *state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        TestTar tar = {0};
        add_text(&tar, "100.left.jpg", JPEG);
        add_text(&tar, "100.right.jpg", JPEG "r");
        (void)save(&tar, folder, "train-000000.tar");
        add_text(&tar, "200.right.jpg", JPEG "2r"); /* in another order */
        add_text(&tar, "200.left.jpg", JPEG "2l");
        (void)save(&tar, folder, "train-000001.tar");
        FshDataset *dataset = open_good(folder->path);
        fsh_close(&dataset);
        assert_int_equal(check_told(folder->path).count, 0);
        add_text(&tar, others[i][0], JPEG);
        if (others[i][1])
            add_text(&tar, others[i][1], PNG);
        (void)save(&tar, folder, "train-000002.tar");
        FshError error = {0};
        assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_MISMATCH);
        assert_contains(error.message, "train-000002.tar");
        assert_one_problem(folder->path, "train-000002.tar", FSH_ERR_MISMATCH, "those of the first file");
        assert_int_equal(remove(test_path(folder, "train-000002.tar")), 0);
    }
}

/* ---- the format ---- */

static void test_long_names_and_all_formats_of_gnu_tar(void **state)
{
    static const char *const formats[] = {"v7", "oldgnu", "gnu", "ustar", "pax"};
    TestFolder *folder = *state;
    char name[200];
    memset(name, 'x', sizeof name);
    (void)snprintf(name + 120, sizeof name - 120, "/%s",
                   "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy.jpg");
    name[60] = '/';
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *source = test_path(folder, "source%zu", i);
        bool is_short = strcmp(formats[i], "v7") == 0;
        test_file_write_text(test_path(folder, "source%zu/%s", i, is_short ? "short.jpg" : name), JPEG);
        const char *tar = test_path(folder, "%zu.tar", i);
        char option[32];
        (void)snprintf(option, sizeof option, "--format=%s", formats[i]);
        const char *const arguments[] = {option, "-cf", tar, "-C", source, ".", NULL};
        RunResult result = run_program_arguments(NULL, "/usr/bin/tar", arguments);
        if (result.exit_status == 126 || result.exit_status == 127)
            skip();
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
        FshDataset *dataset = open_good(tar);
        FshSample sample;
        get(dataset, "train", 0, &sample);
        assert_int_equal(sample.key_bytes, strlen(is_short ? "short" : name) - (is_short ? 0 : 4));
        assert_memory_equal(sample.key, is_short ? "short" : name, sample.key_bytes);
        assert_memory_equal(sample.fields[0].data, JPEG, strlen(JPEG));
        fsh_close(&dataset);
    }
}

static void test_a_tar_without_its_end_is_read_and_a_cut_one_is_not(void **state)
{
    TestFolder *folder = *state;
    TestTar tar = {0};
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "001.jpg", JPEG);
    const char *path = save(&tar, folder, "a.tar");
    test_file_truncate(path, -1024);
    FshDataset *dataset = open_good(path);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 2);
    fsh_close(&dataset);
    test_file_truncate(path, -1);
    assert_refused(path, FSH_ERR_CORRUPT, "cut short");
    test_file_truncate(path, 1024 + 100);
    assert_refused(path, FSH_ERR_CORRUPT, "byte 1024: the file ends");
}

static void test_more_after_the_end_is_told(void **state)
{
    TestFolder *folder = *state;
    FshError error = {0};
    TestTar tar = {0};
    add_text(&tar, "000.jpg", JPEG);
    assert_ok(tar_end_append(&tar.bytes, &error), &error);
    add_text(&tar, "001.jpg", JPEG);
    assert_refused(save(&tar, folder, "joined.tar"), FSH_ERR_CORRUPT, "after the end marker");
}

/* Puts a field into a header and makes its checksum right. */
static void patch_header(uint8_t *header, size_t at, const void *field, size_t bytes)
{
    uint32_t sum = 0;
    memcpy(header + at, field, bytes);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

static void test_hostile_headers_are_refused(void **state)
{
    static const struct {
        size_t at, bytes;
        const char *field, *part;
        FshStatus status;
    } rows[] = {
        {124, 12, "77777777777", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\x80\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFE\x01", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "wrong size", FSH_ERR_CORRUPT},
        {124, 12, "0000x000001", "wrong size", FSH_ERR_CORRUPT},
        {156, 1, "S", "sparse", FSH_ERR_UNSUPPORTED},
        {156, 1, "x", "wrong record", FSH_ERR_CORRUPT},
        {156, 1, "g", "wrong record", FSH_ERR_CORRUPT},
        {156, 1, "L", "byte 1024: header with a wrong checksum", FSH_ERR_CORRUPT}, /* a name, and no member */
    };
    TestFolder *folder = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTar tar = {0};
        FshError error = {0};
        add_text(&tar, "000.jpg", JPEG);
        patch_header(tar.bytes.bytes, rows[i].at, rows[i].field, rows[i].bytes);
        const char *path = save(&tar, folder, "hostile.tar");
        FshDataset *dataset = NULL;
        FshStatus status = fsh_open(&dataset, path, &error);
        if (status != rows[i].status)
            fail_msg("row %zu gives %d: %s", i, status, error.message);
        assert_contains(error.message, rows[i].part);
        assert_contains(error.message, "byte ");
    }
}

static void test_a_pax_header_is_checked(void **state)
{
    static const struct {
        const char *records, *part;
        FshStatus status;
    } rows[] = {
        {"9999 path=x\n", "wrong record", FSH_ERR_CORRUPT},
        {"99999999999999999999 path=x\n", "wrong record", FSH_ERR_CORRUPT},
        {"3 x\n", "wrong record", FSH_ERR_CORRUPT},
        {"12 path=abc.", "wrong record", FSH_ERR_CORRUPT},
        {"8 path=\n", "a name of 0 bytes", FSH_ERR_CORRUPT},
        {"12 size=abc\n", "wrong size", FSH_ERR_CORRUPT},
        {"29 size=18446744073709551615\n", "cut short", FSH_ERR_CORRUPT},
        {"22 GNU.sparse.major=1\n", "sparse", FSH_ERR_UNSUPPORTED},
    };
    TestFolder *folder = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTar tar = {0};
        FshError error = {0};
        add_text(&tar, "header", rows[i].records);
        patch_header(tar.bytes.bytes, 156, "x", 1);
        add_text(&tar, "000.jpg", JPEG);
        const char *path = save(&tar, folder, "hostile.tar");
        FshDataset *dataset = NULL;
        FshStatus status = fsh_open(&dataset, path, &error);
        if (status != rows[i].status)
            fail_msg("row %zu gives %d: %s", i, status, error.message);
        assert_contains(error.message, rows[i].part);
    }
}

/* Every byte of a small tar changed, and every length of it: an answer, and no crash. */
static void test_no_byte_makes_it_read_outside(void **state)
{
    (void)state;
    TestTar tar = {0};
    FshError error = {0};
    add_text(&tar, "000.jpg", JPEG);
    add_text(&tar, "000.cls", "1");
    add_text(&tar, "000.json", "{\"fshard\": 1, \"key\": \"0\\u0030\", \"label\": 1}");
    assert_ok(tar_end_append(&tar.bytes, &error), &error);
    for (size_t i = 0; i < tar.bytes.length; i++) {
        static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF, '\\', '"'};
        uint8_t before = tar.bytes.bytes[i];
        for (size_t j = 0; j < sizeof values; j++) {
            SampleTable table;
            tar.bytes.bytes[i] = values[j];
            if (fsh_tar_table(&table, tar.bytes.bytes, tar.bytes.length, NULL, 0, NULL) == FSH_OK)
                fsh_table_free(&table);
        }
        tar.bytes.bytes[i] = before;
    }
    for (size_t length = 0; length <= tar.bytes.length; length++) {
        SampleTable table;
        uint8_t *copy = malloc(length + 1); /* of its own, so that a byte too far is seen */
        memcpy(copy, tar.bytes.bytes, length);
        uint8_t *exact = realloc(copy, length ? length : 1);
        if (fsh_tar_table(&table, exact, length, NULL, 0, NULL) == FSH_OK)
            fsh_table_free(&table);
        free(exact);
    }
    buffer_free(&tar.bytes);
    buffer_free(&tar.scratch);
}

/* ---- parts ---- */

static void test_braces_are_those_of_braceexpand(void **state)
{
    /* What python3 -c 'import braceexpand; print(*braceexpand.braceexpand("…"))' says. */
    static const struct {
        const char *text, *paths;
    } rows[] = {
        {"a.tar", "a.tar"},
        {"x-{000..003}.tar", "x-000.tar x-001.tar x-002.tar x-003.tar"},
        {"x-{8..11}", "x-8 x-9 x-10 x-11"},
        {"x-{08..11}", "x-08 x-09 x-10 x-11"},
        {"{3..1}", "3 2 1"},
        {"{0..10..5}", "0 5 10"},
        {"{a,b}{1..2}", "a1 a2 b1 b2"},
        {"{a,b{1..2},c}x", "ax b1x b2x cx"},
        {"{a,}x", "ax x"},
        {"{train,val}-{0..1}.tar::y.tar", "train-0.tar train-1.tar val-0.tar val-1.tar y.tar"},
        {"no{brace", "no{brace"},
        {"one{x}", "one{x}"},
        {"{}", "{}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FshError error = {0};
        char **paths = NULL, joined[512] = "";
        size_t count = 0;
        assert_ok(fsh_brace_expand(rows[i].text, &paths, &count, &error), &error);
        for (size_t j = 0; j < count; j++) {
            size_t length = strlen(joined);
            (void)snprintf(joined + length, sizeof joined - length, "%s%s", j ? " " : "", paths[j]);
        }
        assert_string_equal(joined, rows[i].paths);
        fsh_names_free(paths, count);
    }
    FshError error = {0};
    char **paths = NULL;
    size_t count = 0;
    assert_int_equal(fsh_brace_expand("{0..9999}{0..9999}", &paths, &count, &error), FSH_ERR_USAGE);
    assert_null(paths);
}

static void test_json_is_scanned(void **state)
{
    static const char text[] =
        " {\"a\" : \"x\\\"y\\u00e9\\ud83d\\ude00\\udcff\", \"b\":[1,{\"c\":\"}\"}], \"n\" : -12 ,\"t\":true}";
    (void)state;
    JsonScan scan = fsh_json_scan(text, sizeof text - 1);
    JsonSlice name, value;
    char plain[64];
    size_t bytes = 0;
    int64_t number = 0;
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_is(&name, "a") && value.escaped);
    assert_true(fsh_json_slice_unescape(&value, plain, &bytes));
    static const char expected[] = "x\"y\xC3\xA9\xF0\x9F\x98\x80\xFF";
    assert_int_equal(bytes, sizeof expected - 1);
    assert_memory_equal(plain, expected, bytes);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_int_equal(value.kind, JSON_SCAN_OTHER);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_integer(&value, &number));
    assert_int_equal(number, -12);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_is(&name, "t"));
    assert_false(fsh_json_scan_next(&scan, &name, &value));
    assert_false(scan.broken);
    static const char *const wrong[] = {
        "",           "[1]",         "{\"a\"}",     "{\"a\":1",   "{\"a\":\"x}", "{\"a\":1,,}",
        "{\"a\":[1}", "{\"a\":\"\\", "{\"a\":1 2}", "{\"a\":1,}", "{a:1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scan = fsh_json_scan(wrong[i], strlen(wrong[i]));
        while (fsh_json_scan_next(&scan, &name, &value)) {
        }
        if (!scan.broken && i != 6) /* brackets are only counted */
            fail_msg("%s was taken for JSON", wrong[i]);
    }
}

static void test_npy_headers_are_read(void **state)
{
    (void)state;
    uint8_t bytes[NPY_HEADER_BYTES + 24];
    NpyArray array;
    fsh_npy_store_header(bytes, 2, 4, 3);
    assert_true(fsh_npy_parse(bytes, sizeof bytes, &array));
    assert_int_equal(array.height, 2);
    assert_int_equal(array.width, 4);
    assert_int_equal(array.channels, 3);
    assert_int_equal(array.data_at, NPY_HEADER_BYTES);
    assert_false(fsh_npy_parse(bytes, sizeof bytes - 1, &array));
    for (size_t length = 0; length < NPY_HEADER_BYTES; length++)
        assert_false(fsh_npy_parse(bytes, length, &array));
    char *type = memmem(bytes, sizeof bytes, "|u1", 3);
    memcpy(type, "<f4", 3);
    assert_false(fsh_npy_parse(bytes, sizeof bytes, &array));
}

int main(void)
{
#define with_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        with_folder(test_what_is_written_is_read),
        with_folder(test_a_tar_of_ours_alone_tells_the_same),
        with_folder(test_strange_names_come_back),
        with_folder(test_what_a_tar_cannot_tell_is_refused),
        with_folder(test_the_same_samples_give_the_same_bytes),
        with_folder(test_a_flipped_byte_is_found),
        with_folder(test_the_index_of_dali_leads_to_the_members),
        with_folder(test_neighbours_of_one_stem_are_a_sample),
        with_folder(test_several_images_are_pairs),
        with_folder(test_names_of_tars_tell_the_split),
        with_folder(test_samples_that_contradict_are_named),
        with_folder(test_what_cannot_be_opened_is_a_problem),
        with_folder(test_tars_of_other_images_are_told),
        with_folder(test_long_names_and_all_formats_of_gnu_tar),
        with_folder(test_a_tar_without_its_end_is_read_and_a_cut_one_is_not),
        with_folder(test_more_after_the_end_is_told),
        with_folder(test_hostile_headers_are_refused),
        with_folder(test_a_pax_header_is_checked),
        cmocka_unit_test(test_no_byte_makes_it_read_outside),
        cmocka_unit_test(test_braces_are_those_of_braceexpand),
        cmocka_unit_test(test_json_is_scanned),
        cmocka_unit_test(test_npy_headers_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
