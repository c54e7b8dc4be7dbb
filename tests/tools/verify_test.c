/* fverify: what is whole passes, and whatever is wrong is named by file, record, key and source. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/sources.h"

/* Packs photos/ of five images into shards/. */
static const char *make_dataset(TestFolder *folder)
{
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "dog", 1);
    const char *packed = test_path(folder, "shards");
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    return packed;
}

/* Returns where the payload of a sample begins in its shard. */
static int64_t payload_offset(const char *shard, uint64_t index)
{
    FshDataset *dataset = packed_open(shard);
    FshSample sample;
    size_t length = 0;
    char *bytes = test_file_read(shard, &length);
    assert_ok(fsh_sample_get(fsh_split(dataset, fsh_manifest(dataset)->splits[0].name), index, &sample, NULL),
              NULL);
    const char *found = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(found);
    int64_t offset = found - bytes;
    free(bytes);
    fsh_close(&dataset);
    return offset;
}

TEST_IN_FOLDER(test_a_good_dataset_passes_by_every_name, folder)
{
    const char *packed = make_dataset(folder);
    const char *const paths[] = {packed, test_path(folder, "shards/"),
                                 test_path(folder, "shards/dataset.json"),
                                 test_path(folder, "shards/train-00000-of-00001.fshard")};
    for (size_t i = 0; i < 4; i++) {
        RunResult result = run_expecting(0, "fverify", "--decode", paths[i], NULL);
        assert_contains(result.out, ": ok; ");
        assert_contains(result.out, i < 3 ? "6 images decoded" : "5 images decoded");
        assert_contains(result.out, "cat");
        assert_contains(result.out, "jpeg");
        assert_string_equal(result.err, "");
        run_result_free(&result);
        static const char *const lesser[] = {"--quick", "-v"};
        for (size_t j = 0; j < 2; j++) {
            result = run_expecting(0, "fverify", lesser[j], paths[i], NULL);
            assert_contains(result.out, "images were not decoded");
            run_result_free(&result);
        }
    }
    const char *lmdb = test_path(folder, "lmdb");
    run_ok("fpack", "--format", "lmdb", test_path(folder, "photos"), lmdb, NULL);
    run_ok("fverify", lmdb, test_path(folder, "lmdb/train.lmdb"), NULL);
    /* The one file of an LMDB, in its folder or by itself, as MDB_NOSUBDIR has it. */
    size_t length = 0;
    char *bytes = test_file_read(test_path(folder, "lmdb/train.lmdb/data.mdb"), &length);
    test_file_write(test_path(folder, "alone"), bytes, length);
    const char *jpeg = memmem(bytes, length, "\xff\xd8\xff", 3);
    assert_non_null(jpeg);
    const int64_t in_a_record = jpeg - bytes + 99;
    free(bytes);
    const char *const files[] = {test_path(folder, "lmdb/train.lmdb/data.mdb"), test_path(folder, "alone")};
    for (size_t i = 0; i < 2; i++) {
        RunResult result = run_expecting(0, "fverify", "--decode", files[i], NULL);
        assert_contains(result.out, "lmdb, 2 classes");
        assert_contains(result.out, "5 images decoded");
        run_result_free(&result);
    }
    test_file_flip_byte(files[1], in_a_record);
    RunResult damaged = run_expecting(1, "fverify", files[1], NULL);
    assert_contains(damaged.out, "alone record 1, key cat/1, source");
    run_result_free(&damaged);
    RunResult result = run_expecting(0, "fverify", "-q", packed, NULL);
    assert_string_equal(result.out, "");
    run_result_free(&result);
}

/* A terminal would obey control characters, which change its colours at best. Names here hold ESC [ in one
 * byte and two, and a line break. */
TEST_IN_FOLDER(test_control_characters_of_names_reach_no_terminal, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "sha\x1b[1mrds");
    source_class(test_path(folder, "photos/train"), "cat\x1b[31m", 2);
    source_class(test_path(folder, "photos"), "out\nside\xc2\x9b", 1);
    RunResult result = run_expecting(0, "fpack", source, packed, NULL);
    assert_contains(result.err, "warning: cat?[31m: the only class");
    assert_contains(result.err, "warning: out?side?/0.jpg: outside train, val and test, as 1 image in all");
    assert_contains(result.err, "fpack: ");
    assert_contains_not(result.err, "\x1b");
    run_result_free(&result);
    const char *shard = test_path(folder, "sha\x1b[1mrds/train-00000-of-00001.fshard");
    test_file_flip_byte(shard, payload_offset(shard, 1) + 300);
    result = run_expecting(1, "fverify", packed, shard, NULL);
    assert_contains(result.out, "  cat?[31m                            2\n");
    assert_contains(result.out, "key cat?[31m/1, source train/cat?[31m/1.jpg: ");
    assert_contains(result.out, "/sha?[1mrds: ");
    assert_contains_not(result.out, "\x1b");
    run_result_free(&result);
}

/* Writes a shard of records that are whole and hold no image. */
static void write_undecodable(const char *path, unsigned count)
{
    static const char *const classes[] = {"cat"};
    FshWriter *writer = shard_writer(path, classes, 1);
    FshError error = {0};
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        FshSample sample = {
            .key = key, .key_bytes = (size_t)snprintf(key, sizeof key, "%u", i), .field_count = 1};
        sample.fields[0] = (FshField){.data = "text",
                                      .bytes = 4,
                                      .width = 1,
                                      .height = 1,
                                      .channels = 3,
                                      .codec = FSH_CODEC_JPEG,
                                      .source = key,
                                      .source_bytes = sample.key_bytes};
        assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    }
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
}

/* A wrong column of a disk, say: a look through all problems for each problem would be 16 times the time
 * here, not 4. */
TEST_IN_FOLDER(test_many_problems_take_no_more_time_each, folder)
{
    double seconds[2];
    for (unsigned i = 0; i < 2; i++) {
        const char *shard = test_path(folder, "train-00000-of-00001.fshard");
        (void)unlink(shard);
        write_undecodable(shard, i ? 80000 : 20000);
        RunResult result = run_expecting(1, "fverify", "--decode", shard, NULL);
        assert_contains(result.out, i ? "80,000 problems" : "20,000 problems");
        seconds[i] = result.seconds;
        run_result_free(&result);
    }
    if (seconds[1] > 8 * seconds[0] + 1)
        fail_msg("%.2f s for 20,000 problems, %.2f s for 80,000", seconds[0], seconds[1]);
}

/* What could not be looked at has no counts. */
TEST_IN_FOLDER(test_nothing_is_claimed_of_what_cannot_be_opened, folder)
{
    const char *nowhere = test_path(folder, "nowhere");
    RunResult result = run_expecting(1, "fverify", nowhere, NULL);
    assert_contains(result.out, "nowhere: ");
    assert_contains(result.out, "No such file or directory");
    assert_contains_not(result.out, "decoded");
    assert_contains_not(result.out, "checksums");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_json_says_it_all, folder)
{
    const char *packed = make_dataset(folder);
    RunResult result =
        run_expecting(1, "fverify", "--json", "--decode", packed, test_path(folder, "nowhere"), NULL);
    json_t *json = json_of(result.out);
    assert_false(json_is_true(json_object_get(json, "ok")));
    json_t *good = json_array_get(json_object_get(json, "datasets"), 0);
    json_t *bad = json_array_get(json_object_get(json, "datasets"), 1);
    assert_true(json_is_true(json_object_get(good, "ok")));
    assert_int_equal(json_array_size(json_object_get(good, "problems")), 0);
    json_t *train = json_object_get(json_object_get(good, "splits"), "train");
    assert_int_equal(json_integer_value(json_object_get(train, "samples")), 5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "classes"), "cat")), 3);
    json_t *images = json_object_get(good, "images");
    assert_int_equal(json_integer_value(json_object_get(images, "decoded")), 6);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(images, "width"), 1)), 42);
    assert_false(json_is_true(json_object_get(bad, "ok")));
    assert_int_equal(json_array_size(json_object_get(bad, "problems")), 1);
    json_decref(json);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_flipped_byte_is_named_by_shard_record_key_and_source, folder)
{
    const char *packed = make_dataset(folder);
    const char *shard = test_path(folder, "shards/train-00000-of-00001.fshard");
    test_file_flip_byte(shard, payload_offset(shard, 3) + 300);
    RunResult result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out,
                    "train-00000-of-00001.fshard record 3, key dog/0, source train/dog/0.jpg: CRC32C is ");
    assert_contains_not(result.out, "record 2");
    assert_contains_not(result.out, "record 4");
    assert_contains_not(result.out, "val-0");
    assert_contains(result.out, "1 problem;");
    run_result_free(&result);
    /* --quick sees by the file's checksum that something is wrong, and then looks where. */
    result = run_expecting(1, "fverify", "--quick", packed, NULL);
    assert_contains(result.out, "train-00000-of-00001.fshard record 3, key dog/0");
    run_result_free(&result);
    result = run_expecting(1, "fverify", "--json", shard, NULL);
    json_t *json = json_of(result.out);
    json_t *problems = json_object_get(json_array_get(json_object_get(json, "datasets"), 0), "problems");
    json_t *problem = json_array_get(problems, 0);
    for (size_t i = 0; i < json_array_size(problems); i++) {
        if (json_is_integer(json_object_get(json_array_get(problems, i), "record")))
            problem = json_array_get(problems, i);
    }
    assert_int_equal(json_integer_value(json_object_get(problem, "record")), 3);
    assert_string_equal(json_string_value(json_object_get(problem, "key")), "dog/0");
    assert_string_equal(json_string_value(json_object_get(problem, "source")), "train/dog/0.jpg");
    json_decref(json);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_record_is_named_once_though_it_does_not_decode_either, folder)
{
    const char *packed = make_dataset(folder);
    const char *shard = test_path(folder, "shards/train-00000-of-00001.fshard");
    test_file_flip_byte(shard, payload_offset(shard, 2)); /* no JPEG any more */
    RunResult result = run_expecting(1, "fverify", "--decode", packed, NULL);
    assert_contains(result.out, "record 2, key cat/2, source train/cat/2.jpg: CRC32C is ");
    assert_contains(result.out, "1 problem;");
    assert_contains(result.out, "5 images decoded");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_an_image_that_does_not_decode_is_found_though_its_checksum_is_right, folder)
{
    const char *packed = test_path(folder, "shards");
    source_two_classes(test_path(folder, "photos"));
    test_file_truncate(test_path(folder, "photos/cat/1.jpg"), -200);
    run_ok("fpack", "--no-check", test_path(folder, "photos"), packed, NULL);
    run_ok("fverify", "--quick", packed, NULL);
    RunResult result = run_expecting(1, "fverify", "--decode", packed, NULL);
    assert_contains(result.out, "record 1, key cat/1, source cat/1.jpg: ");
    assert_contains(result.out, "1 problem;");
    assert_contains(result.out, "4 images decoded");
    run_result_free(&result);
    /* In LMDB too. */
    const char *lmdb = test_path(folder, "lmdb");
    run_ok("fpack", "--no-check", "--format", "lmdb", test_path(folder, "photos"), lmdb, NULL);
    result = run_expecting(1, "fverify", "--decode", lmdb, NULL);
    assert_contains(result.out, "train.lmdb record 1, key cat/1, source cat/1.jpg: ");
    run_result_free(&result);
}

/* Writes a dataset of one shard with one record as given, and the manifest that fits it. Returns its path. */
static const char *write_record(TestFolder *folder, const char *name, const FshSample *sample,
                                size_t field_count)
{
    static const char *const fields[] = {"a", "b"};
    static const char *const classes[] = {"cat", "dog"};
    const char *shard = test_path(folder, "%s-train-00000-of-00001.fshard", name);
    const bool pairs = field_count > 1;
    const FshWriterOptions options = {.container = FSH_CONTAINER_SHARDS,
                                      .dataset_id = "00112233445566778899aabbccddeeff",
                                      .split = "train",
                                      .kind = pairs ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                                      .field_names = fields,
                                      .field_count = field_count,
                                      .class_names = pairs ? NULL : classes,
                                      .class_count = pairs ? 0 : 2,
                                      .shard_count = 1};
    FshWriter *writer = NULL;
    FshError error = {0};
    assert_ok(fsh_writer_open(&writer, shard, &options, &error), &error);
    assert_ok(fsh_writer_put(writer, sample, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    return shard;
}

TEST_IN_FOLDER(test_an_image_unlike_its_record_is_found, folder)
{
    size_t length = 0;
    source_jpeg(test_path(folder, "x.jpg"), 40, 30, 3, 1);
    char *bytes = test_file_read(test_path(folder, "x.jpg"), &length);
    const FshSample good = {.label = 1,
                            .key = "dog/x",
                            .key_bytes = 5,
                            .field_count = 1,
                            .fields = {{.data = bytes,
                                        .bytes = length,
                                        .width = 40,
                                        .height = 30,
                                        .channels = 3,
                                        .codec = FSH_CODEC_JPEG,
                                        .source = "x.jpg",
                                        .source_bytes = 5}}};
    run_ok("fverify", "--decode", write_record(folder, "good", &good, 1), NULL);
    FshSample wide = good, flat = good, channels = good, codec = good, pair = good;
    wide.fields[0].width = 41;
    flat.fields[0].height = 0;
    channels.fields[0].channels = 1;
    codec.fields[0].codec = FSH_CODEC_PNG;
    pair.label = FSH_NO_LABEL;
    pair.field_count = 2;
    pair.fields[1] = (FshField){
        .data = bytes, .bytes = 12, .width = 2, .height = 2, .channels = 3, .codec = FSH_CODEC_RAW};
    const struct {
        const char *name;
        const FshSample *sample;
        const char *reason;
    } wrong[] = {{"wide", &wide, "the image is 40x30, its record says 41x30"},
                 {"flat", &flat, "the image is 40x30, its record says 40x0"},
                 {"channels", &channels, "the image has 3 channels, its record says 1"},
                 {"codec", &codec, "the image is jpeg, its record says png"},
                 {"pair", &pair, "sizes differ: a is 40x30, b is 2x2"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        RunResult result = run_expecting(
            1, "fverify", "--decode",
            write_record(folder, wrong[i].name, wrong[i].sample, wrong[i].sample->field_count), NULL);
        assert_contains(result.out, "record 0, key dog/x");
        assert_contains(result.out, wrong[i].reason);
        run_result_free(&result);
    }
    free(bytes);
}

TEST_IN_FOLDER(test_a_shard_cut_short_is_named_and_the_others_are_still_checked, folder)
{
    const char *packed = make_dataset(folder);
    const char *shard = test_path(folder, "shards/val-00000-of-00001.fshard");
    test_file_truncate(test_path(folder, "shards/train-00000-of-00001.fshard"), -1000);
    RunResult result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out, "train-00000-of-00001.fshard: ");
    assert_contains(result.out, "can be recovered");
    assert_contains_not(result.out, "val-00000-of-00001.fshard:");
    run_result_free(&result);
    test_file_flip_byte(shard, payload_offset(shard, 0) + 250);
    result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out, "train-00000-of-00001.fshard: ");
    assert_contains(result.out, "val-00000-of-00001.fshard record 0, key dog/0, source val/dog/0.jpg: ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_missing_shard_is_named, folder)
{
    const char *packed = make_dataset(folder);
    assert_int_equal(unlink(test_path(folder, "shards/val-00000-of-00001.fshard")), 0);
    static const char *const levels[] = {"-v", "--quick"};
    for (size_t i = 0; i < 2; i++) {
        RunResult result = run_expecting(1, "fverify", levels[i], packed, NULL);
        assert_contains(result.out, "val-00000-of-00001.fshard: ");
        assert_contains(result.out, "1 problem;");
        run_result_free(&result);
    }
}

/* Replaces the first `from` in dataset.json. */
static void edit_manifest(TestFolder *folder, const char *from, const char *to)
{
    const char *path = test_path(folder, "shards/dataset.json");
    char *text = test_file_read(path, NULL);
    char *found = strstr(text, from);
    assert_non_null(found);
    *found = '\0';
    const char *rest = found + strlen(from);
    char *edited = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&edited, &length);
    assert_non_null(stream);
    (void)fprintf(stream, "%s%s%s", text, to, rest);
    assert_int_equal(fclose(stream), 0);
    test_file_write(path, edited, length);
    free(edited);
    free(text);
}

TEST_IN_FOLDER(test_an_edited_manifest_is_found, folder)
{
    const char *packed = make_dataset(folder);
    char *original = test_file_read(test_path(folder, "shards/dataset.json"), NULL);
    static const struct {
        const char *from, *to;
        const char *message;
    } edits[] = {
        {"\"cat\"", "\"cow\"", "\"classes\" by its checksum"},
        {"\"samples\": 5", "\"samples\": 4", "\"splits\" by its checksum"},
        {"\"xxh3_128\": \"", "\"xxh3_128\": \"0", "\"splits\" by its checksum"},
        {"\n  \"id\": \"", "\n  \"id\": \"f", "\"id\" by its checksum"},
        {"\"version\": 2\n", "\"version\": 1\n", "\"version\" by its checksum"},
        {"{", "[", "line 2"},
        {"      40,\n", "      39,\n", "\"statistics.width\" by its checksum"},
    };
    if (!strstr(original, "\n    \"width\": [\n      40,\n"))
        fail_msg("statistics look otherwise:\n%s", original);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        test_file_write_text(test_path(folder, "shards/dataset.json"), original);
        edit_manifest(folder, edits[i].from, edits[i].to);
        RunResult result = run_expecting(1, "fverify", packed, NULL);
        assert_contains(result.out, "shards: dataset.json: ");
        assert_contains(result.out, edits[i].message);
        run_result_free(&result);
        result = run_expecting(1, "fverify", "--quick", packed, NULL);
        run_result_free(&result);
    }
    free(original);
}

TEST_IN_FOLDER(test_an_unfinished_dataset_is_called_so, folder)
{
    make_dataset(folder);
    test_file_write_text(test_path(folder, "begun/.fpack-unfinished"), "0");
    RunResult result = run_expecting(1, "fverify", test_path(folder, "begun"), NULL);
    assert_contains(result.out, "unfinished");
    assert_contains(result.out, "the same fpack command goes on");
    run_result_free(&result);
    assert_int_equal(unlink(test_path(folder, "shards/dataset.json")), 0);
    result = run_expecting(1, "fverify", test_path(folder, "shards"), NULL);
    assert_contains(result.out, "dataset.json: missing");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_what_is_no_dataset_is_a_problem, folder)
{
    test_file_write_text(test_path(folder, "text"), "text");
    test_file_write_text(test_path(folder, "text.fshard"), "text");
    test_file_write_text(test_path(folder, "some/file"), "text");
    const char *const paths[] = {test_path(folder, "text"), test_path(folder, "text.fshard"),
                                 test_path(folder, "some"), test_path(folder, "nothing")};
    for (size_t i = 0; i < 4; i++) {
        RunResult result = run_expecting(1, "fverify", paths[i], NULL);
        assert_contains(result.out, paths[i]);
        assert_ptr_equal(strchr(result.out, '\n') + 1,
                         strchr(result.out, '\0')); /* the problem, and no more */
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_wrong_usage_is_refused, folder)
{
    const char *packed = make_dataset(folder);
    const char *const wrong[][3] = {
        {NULL}, {"--fast", packed}, {"-j", "-1", packed}, {"--quick=yes", packed}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        RunResult result = run_expecting(2, "fverify", wrong[i][0], wrong[i][1], wrong[i][2], NULL);
        assert_contains(result.err, "fverify: ");
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_a_full_standard_output_is_a_failure, folder)
{
    const char *packed = make_dataset(folder);
    const RunOptions options = {.stdout_path = "/dev/full"};
    RunResult result = run_program(&options, "fverify", packed, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "standard output");
    run_result_free(&result);
}
