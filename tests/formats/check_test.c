#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/shard.h"
#include "tests/formats/samples.h"

static const DatasetPlan plan = {.train_count = 30, .val_count = 6, .shard_count = 3};

/* ---- problems, kept as lines "file|record|key|source|reason" ---- */

typedef struct Problems {
    char text[16384];
    size_t length;
    uint64_t count;
} Problems;

static void keep(const FshProblem *problem, void *context)
{
    Problems *problems = context;
    assert_true(problem->status < 0);
    problems->length += (size_t)snprintf(
        problems->text + problems->length, sizeof problems->text - problems->length, "%s|%lld|%s|%s|%s\n",
        problem->file, (long long)problem->record, problem->key ? problem->key : "",
        problem->source ? problem->source : "", problem->reason);
    problems->count++;
}

/* Checks with one and with four threads, which must say the same. */
static Problems check(const char *path, FshCheckLevel level)
{
    Problems alone = {0}, many = {0};
    FshError error = {0};
    uint64_t count = 0;
    assert_ok(fsh_check(path, level, 1, keep, &alone, &count, &error), &error);
    assert_int_equal(count, alone.count);
    assert_ok(fsh_check(path, level, 4, keep, &many, &count, &error), &error);
    assert_string_equal(alone.text, many.text);
    return alone;
}

#define TRAIN(n) "train-0000" #n "-of-00003.fshard"

static const char *make(TestFolder *folder)
{
    samples_write_dataset(&plan, folder->path);
    return folder->path;
}

/* Returns the byte offset of the first place in the file that holds `bytes`. */
static int64_t find_bytes(const char *path, const void *bytes, size_t length)
{
    size_t file_length = 0;
    char *text = test_file_read(path, &file_length);
    const char *found = memmem(text, file_length, bytes, length);
    assert_non_null(found);
    int64_t offset = found - text;
    free(text);
    return offset;
}

/* ---- what is whole ---- */

TEST_IN_FOLDER(test_a_whole_dataset_has_no_problem, folder)
{
    const char *path = make(folder);
    for (int level = FSH_CHECK_QUICK; level <= FSH_CHECK_RECORDS; level++) {
        Problems problems = check(path, (FshCheckLevel)level);
        assert_string_equal(problems.text, "");
        problems = check(test_path(folder, "dataset.json"), (FshCheckLevel)level);
        assert_string_equal(problems.text, "");
        problems = check(test_path(folder, TRAIN(1)), (FshCheckLevel)level);
        assert_string_equal(problems.text, "");
    }
}

/* ---- damage within a file ---- */

TEST_IN_FOLDER(test_a_damaged_record_is_named, folder)
{
    const char *path = make(folder), *shard = test_path(folder, TRAIN(1));
    MadeSample made;
    sample_make(&made, &plan, "train", 13);
    test_file_flip_byte(shard, find_bytes(shard, made.payloads[0], made.sample.fields[0].bytes));
    sample_free(&made);
    for (int level = FSH_CHECK_QUICK; level <= FSH_CHECK_RECORDS; level++) {
        Problems problems = check(path, (FshCheckLevel)level);
        assert_int_equal(problems.count, 1);
        assert_contains(problems.text, TRAIN(1) "|3|cat/image-13|train/cat/image-13.jpg|CRC32C is ");
    }
    /* A reader hears of it in the same words, with the whole path. */
    FshError error = {0};
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_sample_verify(fsh_split(dataset, "train"), 13, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, test_path(folder, TRAIN(1) " record 3 at byte "));
    assert_contains(error.message, "key cat/image-13");
    fsh_close(&dataset);
}

/* Each bit of a small shard is changed in turn; the levels, which take turns too, must find every change. */
TEST_IN_FOLDER(test_every_changed_bit_is_found, folder)
{
    static const DatasetPlan small = {.train_count = 2, .payload_bytes_max = 100};
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    size_t length = 0;
    samples_write_file(&small, "train", path, 0, 0, 2, NULL);
    char *bytes = test_file_read(path, &length);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        uint64_t count = 0;
        FshError error = {0};
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        test_file_write(path, bytes, length);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        assert_ok(
            fsh_check(path, bit % 2 ? FSH_CHECK_QUICK : FSH_CHECK_CONTENTS, 1, NULL, NULL, &count, &error),
            &error);
        if (count == 0)
            fail_msg("a change of bit %zu of byte %zu is not found", bit % 8, bit / 8);
    }
    free(bytes);
}

TEST_IN_FOLDER(test_every_damaged_file_is_listed_in_order, folder)
{
    const char *path = make(folder);
    test_file_flip_byte(test_path(folder, TRAIN(0)), 20);
    test_file_flip_byte(test_path(folder, TRAIN(2)), -100);
    test_file_flip_byte(test_path(folder, "val-00000-of-00001.fshard"), 70);
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 3);
    const char *first = strstr(problems.text, TRAIN(0) "|-1|||header: CRC32C");
    const char *second = strstr(problems.text, TRAIN(2) "|-1|||footer: CRC32C");
    const char *third = strstr(problems.text, "val-00000-of-00001.fshard|-1|||header: CRC32C");
    assert_true(first && second && third && first < second && second < third);
    assert_contains(second, "10 intact records can be recovered");
}

/* A writer of another kind could make a file whose sums are right and whose content is not. */
TEST_IN_FOLDER(test_an_index_that_lies_is_found, folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    const DatasetPlan small = {.train_count = 3};
    size_t length = 0;
    FshError error = {0};
    samples_write_file(&small, "train", path, 0, 0, 3, NULL);
    char *text = test_file_read(path, &length);
    uint8_t *bytes = (uint8_t *)text, *footer = bytes + length - SHARD_FOOTER_BYTES;
    uint8_t *index = bytes + load_le64(footer + 24);
    store_le64(index + INDEX_ROW_BYTES + 16, 2); /* label of row 1; the record says 1 */
    store_le32(footer + 48, fsh_crc32c(0, index, (size_t)3 * INDEX_ROW_BYTES));
    store_le32(footer + 124, fsh_crc32c(0, footer, 124));
    test_file_write(path, bytes, length);
    Problems problems = check(path, FSH_CHECK_RECORDS);
    assert_int_equal(problems.count, 1);
    assert_contains(problems.text, "|1|cat/image-1|train/cat/image-1.jpg|its index row says");
    FshDataset *dataset = NULL;
    FshSample sample;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "record 1");
    fsh_close(&dataset);

    store_le64(index + INDEX_ROW_BYTES + 16, SAMPLES_CLASS_COUNT); /* no such class */
    store_le32(footer + 48, fsh_crc32c(0, index, (size_t)3 * INDEX_ROW_BYTES));
    store_le32(footer + 124, fsh_crc32c(0, footer, 124));
    test_file_write(path, bytes, length);
    problems = check(path, FSH_CHECK_QUICK);
    assert_contains(problems.text, "|1|||index row 1: label 3 is out of range");
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_CORRUPT);

    store_le64(index + INDEX_ROW_BYTES + 16, 1);
    store_le32(index + INDEX_ROW_BYTES + 28, 1); /* reserved */
    store_le32(footer + 48, fsh_crc32c(0, index, (size_t)3 * INDEX_ROW_BYTES));
    store_le32(footer + 124, fsh_crc32c(0, footer, 124));
    test_file_write(path, bytes, length);
    problems = check(path, FSH_CHECK_QUICK);
    assert_contains(problems.text, "|1|||index row 1: reserved bytes are not zero: of a later version");
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_UNSUPPORTED);
    free(text);
}

TEST_IN_FOLDER(test_an_index_row_over_two_records_is_found, folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    const DatasetPlan small = {.train_count = 3};
    size_t length = 0;
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshSample sample;
    samples_write_file(&small, "train", path, 0, 0, 3, NULL);
    char *text = test_file_read(path, &length);
    uint8_t *bytes = (uint8_t *)text, *footer = bytes + length - SHARD_FOOTER_BYTES;
    uint64_t index_offset = load_le64(footer + 24);
    uint8_t *index = bytes + index_offset;
    IndexRow first = fsh_index_row_load(index), second = fsh_index_row_load(index + INDEX_ROW_BYTES);
    IndexRow third = fsh_index_row_load(index + (size_t)2 * INDEX_ROW_BYTES);
    first.record_bytes += second.record_bytes;
    fsh_index_row_store(index, &first);
    fsh_index_row_store(index + INDEX_ROW_BYTES, &third);
    FshHash128 hash;
    memcpy(hash.bytes, footer + 64, sizeof hash.bytes);
    uint32_t crc = fsh_crc32c(0, index, (size_t)2 * INDEX_ROW_BYTES);
    fsh_shard_store_footer(index + (size_t)2 * INDEX_ROW_BYTES, 2, FSH_RECORD_ALIGNED, index_offset, crc,
                           &hash);
    test_file_write(path, bytes, index_offset + (uint64_t)2 * INDEX_ROW_BYTES + SHARD_FOOTER_BYTES);
    free(text);
    Problems problems = check(path, FSH_CHECK_RECORDS);
    assert_contains(problems.text, "|0|bee/image-0|train/bee/image-0.png|its index row says");
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), 0, &sample, &error), FSH_ERR_CORRUPT);
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, &error), &error);
    fsh_close(&dataset);
}

/* ---- files that do not belong ---- */

TEST_IN_FOLDER(test_missing_truncated_and_left_over_files_are_named, folder)
{
    const char *path = make(folder);
    FshError error = {0};
    FshDataset *dataset = NULL;
    test_file_copy(test_path(folder, TRAIN(0)), test_path(folder, "old-00000-of-00001.fshard"));
    assert_int_equal(unlink(test_path(folder, TRAIN(0))), 0);
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, TRAIN(0));
    test_file_truncate(test_path(folder, TRAIN(2)), -64);
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 3);
    assert_contains(problems.text, TRAIN(0) "|-1|||missing");
    assert_contains(problems.text, TRAIN(2) "|-1|||no footer: the shard is torn");
    assert_contains(problems.text, "10 intact records");
    assert_contains(problems.text, "old-00000-of-00001.fshard|-1|||is not in the manifest");
}

TEST_IN_FOLDER(test_swapped_shards_are_named, folder)
{
    const char *path = make(folder);
    FshError error = {0};
    FshDataset *dataset = NULL;
    assert_int_equal(rename(test_path(folder, TRAIN(0)), test_path(folder, "x")), 0);
    assert_int_equal(rename(test_path(folder, TRAIN(1)), test_path(folder, TRAIN(0))), 0);
    assert_int_equal(rename(test_path(folder, "x"), test_path(folder, TRAIN(1))), 0);
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 2);
    assert_contains(problems.text, TRAIN(0) "|-1|||is shard 1 of 3 by its header, not 0 of 3");
    assert_contains(problems.text, TRAIN(1) "|-1|||is shard 0 of 3 by its header, not 1 of 3");
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, TRAIN(0));
    assert_contains(error.message, "swapped");
}

TEST_IN_FOLDER(test_a_shard_copied_over_another_is_named, folder)
{
    const char *path = folder->path;
    samples_write_dataset(&(DatasetPlan){.train_count = 120, .shard_count = 3}, path);
    test_file_copy(test_path(folder, TRAIN(0)), test_path(folder, TRAIN(2)));
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 2);
    assert_contains(problems.text, TRAIN(2) "|-1|||is shard 0 of 3 by its header, not 2 of 3");
    assert_contains(problems.text, TRAIN(2) "|-1|||holds the same bytes as " TRAIN(0));
    problems = check(path, FSH_CHECK_RECORDS);
    assert_int_equal(problems.count, 2 + 40);
    assert_contains(problems.text, "the same key as " TRAIN(0) " record 0\n");
    assert_contains(problems.text, "the same key as " TRAIN(0) " record 39\n");
}

TEST_IN_FOLDER(test_a_shard_of_another_dataset_or_split_is_named, folder)
{
    const char *path = make(folder);
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&plan, "train", 1);
    options.dataset_id = "ffffffffffffffffffffffffffffffff";
    options.force = true;
    assert_ok(fsh_writer_open(&writer, test_path(folder, TRAIN(1)), &options, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    test_file_copy(test_path(folder, TRAIN(0)), test_path(folder, "val-00000-of-00001.fshard"));
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_contains(problems.text, TRAIN(1) "|-1|||belongs to another dataset: id ffffffff");
    assert_contains(problems.text, "val-00000-of-00001.fshard|-1|||belongs to split train, not val");
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, TRAIN(1));
    assert_contains(error.message, "another dataset");
}

/* Changes a manifest in a way that is consistent in itself. */
typedef void (*EditManifest)(FshManifest *manifest);

static void count_train_otherwise(FshManifest *manifest)
{
    manifest->splits[0].class_counts[0]--;
}

static void count_val_otherwise(FshManifest *manifest)
{
    manifest->splits[1].class_counts[2]--;
}

static void move_a_sample(FshManifest *manifest)
{
    manifest->splits[0].files[0].sample_count--;
    manifest->splits[0].files[1].sample_count++;
}

static void lengthen_a_file(FshManifest *manifest)
{
    manifest->splits[0].files[1].bytes++;
}

static void change_a_hash(FshManifest *manifest)
{
    manifest->splits[0].files[1].hash.bytes[7] ^= 1;
}

TEST_IN_FOLDER(test_a_manifest_that_the_files_contradict_is_found, folder)
{
    static const struct {
        EditManifest edit;
        uint64_t count;
        const char *problem;
        bool opens; /* labels are not counted on opening */
    } edits[] = {
        {count_train_otherwise, 1,
         "dataset.json|-1|||split train, class bee: the manifest says 7 samples, the labels 8", true},
        {count_val_otherwise, 1,
         "dataset.json|-1|||split val, class däwg: the manifest says 1 samples, the labels 2", true},
        {move_a_sample, 2, TRAIN(0) "|-1|||holds 10 samples, not the 9 the manifest says", false},
        {lengthen_a_file, 1, TRAIN(1) "|-1|||has ", false},
        {change_a_hash, 1, TRAIN(1) "|-1|||XXH3-128 in its footer is ", false},
    };
    const char *path = make(folder);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        FshError error = {0};
        FshDataset *dataset = NULL;
        FshManifest good, edited;
        assert_ok(fsh_manifest_load(&good, path, &error), &error);
        assert_ok(fsh_manifest_load(&edited, path, &error), &error);
        edits[i].edit(&edited);
        assert_ok(fsh_manifest_save(&edited, path, true, &error), &error);
        Problems problems = check(path, FSH_CHECK_QUICK);
        assert_int_equal(problems.count, edits[i].count);
        assert_contains(problems.text, edits[i].problem);
        FshStatus status = fsh_open(&dataset, path, &error);
        assert_int_equal(status, edits[i].opens ? FSH_OK : FSH_ERR_CORRUPT);
        if (!edits[i].opens)
            assert_contains(error.message, path);
        fsh_close(&dataset);
        assert_ok(fsh_manifest_save(&good, path, true, &error), &error);
        fsh_manifest_free(&good);
        fsh_manifest_free(&edited);
    }
}

TEST_IN_FOLDER(test_keys_that_are_there_twice_are_named, folder)
{
    const char *path = test_path(folder, "a.fshard");
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&(DatasetPlan){0}, "train", 0);
    MadeSample made;
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    for (uint64_t i = 0; i < 400; i++) {
        sample_make(&made, &plan, "train", i == 399 ? 77 : i);
        assert_ok(fsh_writer_put(writer, &made.sample, &error), &error);
        sample_free(&made);
    }
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    Problems problems = check(path, FSH_CHECK_RECORDS);
    assert_int_equal(problems.count, 1);
    assert_contains(problems.text,
                    "a.fshard|399|däwg/image-77|train/däwg/image-77.jpg|the same key as a.fshard record 77");
}

/* ---- manifests that cannot be used ---- */

TEST_IN_FOLDER(test_a_damaged_manifest_is_named_once, folder)
{
    const char *path = make(folder);
    test_file_write_text(test_path(folder, "dataset.json"), "{");
    Problems problems = check(path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 1);
    assert_contains(problems.text, "dataset.json|-1|||line 1: ");
}

TEST_IN_FOLDER(test_shards_are_checked_without_their_manifest, folder)
{
    const char *path = make(folder);
    test_file_flip_byte(test_path(folder, TRAIN(1)), -1);
    test_file_write_text(test_path(folder, "dataset.json"), "{\"format\":");
    Problems problems = check(path, FSH_CHECK_RECORDS);
    assert_int_equal(problems.count, 2);
    assert_contains(problems.text, "dataset.json|-1|||");
    assert_contains(problems.text, TRAIN(1) "|-1|||footer: CRC32C");
    assert_int_equal(unlink(test_path(folder, "dataset.json")), 0);
    problems = check(path, FSH_CHECK_RECORDS);
    assert_int_equal(problems.count, 2);
    assert_contains(problems.text, "dataset.json|-1|||missing");
    assert_contains(problems.text, TRAIN(1) "|-1|||footer: CRC32C");
}

TEST_IN_FOLDER(test_what_cannot_be_checked_is_an_error, folder)
{
    FshError error = {0};
    assert_int_equal(fsh_check(folder->path, FSH_CHECK_QUICK, 1, NULL, NULL, NULL, &error),
                     FSH_ERR_NOT_FOUND);
    assert_contains(error.message, folder->path);
    assert_int_equal(fsh_check(test_path(folder, "none"), FSH_CHECK_QUICK, 1, NULL, NULL, NULL, &error),
                     FSH_ERR_NOT_FOUND);
    test_file_write_text(test_path(folder, "a.jpg"), "picture");
    assert_int_equal(fsh_check(test_path(folder, "a.jpg"), FSH_CHECK_QUICK, 1, NULL, NULL, NULL, &error),
                     FSH_ERR_UNSUPPORTED);
}

TEST_IN_FOLDER(test_an_interrupt_ends_the_check, folder)
{
    FshError error = {0};
    const char *path = make(folder);
    interrupt_simulate(SIGINT);
    FshStatus status = fsh_check(path, FSH_CHECK_RECORDS, 2, NULL, NULL, NULL, &error);
    interrupt_simulate(0);
    assert_int_equal(status, FSH_ERR_INTERRUPTED);
}

/* ---- LMDB ---- */

TEST_IN_FOLDER(test_damage_in_an_lmdb_is_named, folder)
{
    const DatasetPlan lmdb_plan = {.container = FSH_CONTAINER_LMDB, .train_count = 30, .val_count = 6};
    MadeSample made;
    samples_write_dataset(&lmdb_plan, folder->path);
    const char *data = test_path(folder, "train.lmdb/data.mdb");
    sample_make(&made, &lmdb_plan, "train", 13);
    int64_t offset = find_bytes(data, made.payloads[0], made.sample.fields[0].bytes);
    sample_free(&made);
    test_file_flip_byte(data, offset);
    for (int level = FSH_CHECK_QUICK; level <= FSH_CHECK_RECORDS; level++) {
        Problems problems = check(folder->path, (FshCheckLevel)level);
        assert_int_equal(problems.count, 1);
        assert_contains(problems.text, "train.lmdb|13|cat/image-13|train/cat/image-13.jpg|CRC32C is ");
    }
    test_file_flip_byte(data, offset);
    Problems problems = check(folder->path, FSH_CHECK_RECORDS);
    assert_string_equal(problems.text, "");

    test_file_flip_byte(data, 4096 - 1); /* a byte that nothing reads */
    problems = check(folder->path, FSH_CHECK_QUICK);
    assert_contains(problems.text, "train.lmdb|-1|||XXH3-128 is ");
    /* Also where something else is wrong with the file. */
    FshError error = {0};
    FshManifest manifest;
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    manifest.splits[0].files[0].bytes++;
    assert_ok(fsh_manifest_save(&manifest, folder->path, true, &error), &error);
    problems = check(folder->path, FSH_CHECK_QUICK);
    assert_int_equal(problems.count, 2);
    assert_contains(problems.text, "train.lmdb|-1|||has ");
    assert_contains(problems.text, "train.lmdb|-1|||XXH3-128 is ");
    manifest.splits[0].files[0].bytes--;
    assert_ok(fsh_manifest_save(&manifest, folder->path, true, &error), &error);
    fsh_manifest_free(&manifest);
    test_file_flip_byte(data, 4096 - 1);
    test_file_flip_byte(data, 16);
    problems = check(folder->path, FSH_CHECK_QUICK);
    assert_contains(problems.text, "train.lmdb|-1|||is no LMDB");
    test_file_truncate(data, -4096);
    assert_int_equal(unlink(test_path(folder, "val.lmdb/data.mdb")), 0);
    problems = check(folder->path, FSH_CHECK_QUICK);
    assert_contains(problems.text, "train.lmdb|-1|||");
    assert_contains(problems.text, "val.lmdb|-1|||missing");
}
