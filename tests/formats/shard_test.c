#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.train_count = 5};

/* Writes one shard of the small plan and returns its path. */
static const char *write_small_shard(TestFolder *folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    samples_write_file(&small_plan, "train", path, 0, 0, small_plan.train_count, NULL);
    return path;
}

static void count_problem(const FshProblem *problem, void *context)
{
    (void)problem;
    (*(uint64_t *)context)++;
}

static uint64_t count_problems(const char *path, FshCheckLevel level)
{
    FshError error = {0};
    uint64_t visited = 0, counted = 0;
    assert_ok(fsh_check(path, level, 1, count_problem, &visited, &counted, &error), &error);
    assert_int_equal(visited, counted);
    return counted;
}

/* ---- round trips ---- */

TEST_IN_FOLDER(test_what_is_written_is_read, folder)
{
    static const DatasetPlan plans[] = {
        {.train_count = 50, .val_count = 9, .shard_count = 4},
        {.kind = FSH_KIND_PAIRS, .train_count = 30, .val_count = 3, .shard_count = 3},
        {.train_count = 1},
        {.train_count = 3, .shard_count = 5}, /* some shards are empty */
        {.train_count = 0, .val_count = 2},
        {.train_count = 40, .payload_bytes_max = 300000}, /* several batches */
        {.train_count = 50, .val_count = 9, .shard_count = 4, .form = FSH_RECORD_COMPACT},
        {.kind = FSH_KIND_PAIRS, .train_count = 30, .shard_count = 3, .form = FSH_RECORD_COMPACT},
        {.train_count = 3, .shard_count = 5, .form = FSH_RECORD_COMPACT},
        {.train_count = 40, .payload_bytes_max = 300000, .form = FSH_RECORD_COMPACT},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        FshError error = {0};
        FshDataset *dataset = NULL;
        const char *path = test_path(folder, "%zu", i);
        test_file_write_text(test_path(folder, "%zu/.keep", i), "");
        samples_write_dataset(&plans[i], path);
        assert_ok(fsh_open(&dataset, path, &error), &error);
        samples_assert_split(dataset, &plans[i], "train", plans[i].train_count);
        if (plans[i].val_count)
            samples_assert_split(dataset, &plans[i], "val", plans[i].val_count);
        assert_null(fsh_split(dataset, "test"));
        assert_string_equal(fsh_path(dataset), path);
        fsh_close(&dataset);
        assert_null(dataset);
        fsh_close(&dataset);
        assert_int_equal(count_problems(path, FSH_CHECK_QUICK), 0);
        assert_int_equal(count_problems(path, FSH_CHECK_RECORDS), 0);
    }
}

TEST_IN_FOLDER(test_a_shard_alone_knows_its_dataset, folder)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, write_small_shard(folder), &error), &error);
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_string_equal(manifest->files_id, SAMPLES_ID);
    assert_int_equal(manifest->kind, FSH_KIND_CLASSES);
    assert_int_equal(manifest->class_count, SAMPLES_CLASS_COUNT);
    assert_string_equal(manifest->class_names[2], samples_class_names[2]);
    assert_int_equal(manifest->splits[0].class_counts[0], 2);
    assert_int_equal(manifest->splits[0].class_counts[2], 1);
    assert_int_equal(manifest->statistics.channels, 0);
    samples_assert_split(dataset, &small_plan, "train", 5);
    char where[128];
    assert_string_equal(fsh_sample_where(fsh_split(dataset, "train"), 3, where, sizeof where),
                        "train-00000-of-00001.fshard record 3");
    fsh_close(&dataset);
}

/* A pattern opens shards without their manifest: all of a split, or some. */
TEST_IN_FOLDER(test_shards_of_a_list_are_one_split, folder)
{
    const DatasetPlan plan = {.train_count = 30, .val_count = 4, .shard_count = 3};
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshSample sample;
    char where[128];
    samples_write_dataset(&plan, folder->path);
    assert_int_equal(remove(test_path(folder, "dataset.json")), 0);
    const char *all = test_path(folder, "train-{00000..00002}-of-00003.fshard");
    assert_ok(fsh_open(&dataset, all, &error), &error);
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_string_equal(manifest->files_id, SAMPLES_ID);
    assert_int_equal(manifest->split_count, 1);
    assert_int_equal(manifest->splits[0].file_count, 3);
    uint64_t labelled = 0;
    for (size_t i = 0; i < manifest->class_count; i++)
        labelled += manifest->splits[0].class_counts[i];
    assert_int_equal(labelled, 30 - 4); /* every seventh has no label */
    samples_assert_split(dataset, &plan, "train", 30);
    fsh_close(&dataset);
    assert_int_equal(count_problems(all, FSH_CHECK_RECORDS), 0);

    assert_ok(fsh_open(&dataset, test_path(folder, "train-{00000,00002}-of-00003.fshard"), &error), &error);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 20);
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 10, &sample, &error), &error);
    assert_int_equal(sample.index, 10); /* of what is open */
    sample.index = 20;
    sample_assert_equal(&sample, &plan, "train", 20);
    assert_contains(fsh_sample_where(fsh_split(dataset, "train"), 19, where, sizeof where),
                    "train-00002-of-00003.fshard record 9");
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_lists_that_are_no_split_are_refused, folder)
{
    const DatasetPlan plan = {.train_count = 30, .val_count = 4, .shard_count = 3};
    static const struct {
        const char *list;
        FshStatus status;
        const char *message;
    } rows[] = {
        {"train-{00000,00000}-of-00003.fshard", FSH_ERR_MISMATCH,
         "name each shard of a split once, in order"},
        {"train-{00002,00001}-of-00003.fshard", FSH_ERR_MISMATCH, "and comes after"},
        {"{train-00000-of-00003,val-00000-of-00001}.fshard", FSH_ERR_CORRUPT, "val-00000-of-00001.fshard: "},
        {"train-{00000..00003}-of-00003.fshard", FSH_ERR_NOT_FOUND,
         "train-00003-of-00003.fshard: no such file"},
        {"{dataset.json,train-00000-of-00003.fshard}", FSH_ERR_UNSUPPORTED, "open one dataset at a time"},
    };
    samples_write_dataset(&plan, folder->path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FshError error = {0};
        FshDataset *dataset = NULL;
        assert_int_equal(fsh_open(&dataset, test_path(folder, "%s", rows[i].list), &error), rows[i].status);
        assert_contains(error.message, rows[i].message);
        assert_null(dataset);
    }
}

TEST_IN_FOLDER(test_payloads_are_aligned, folder)
{
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS, .train_count = 20};
    FshError error = {0};
    FshDataset *dataset = NULL;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    for (uint64_t i = 0; i < plan.train_count; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(fsh_split(dataset, "train"), i, &sample, &error), &error);
        for (unsigned f = 0; f < sample.field_count; f++) {
            assert_int_equal((uintptr_t)sample.fields[f].data % FSH_ALIGNMENT, 0);
        }
    }
    fsh_close(&dataset);
}

/* ---- damage ---- */

TEST_IN_FOLDER(test_torn_shard_is_recognised, folder)
{
    const char *path = write_small_shard(folder);
    size_t bytes = 0;
    char *whole = test_file_read(path, &bytes);
    for (size_t length = bytes; length-- > 0;) {
        /* Every boundary and its neighbours; the bytes between are like them. */
        if (length % FSH_ALIGNMENT > 1 && length % FSH_ALIGNMENT < FSH_ALIGNMENT - 1)
            continue;
        FshError error = {0};
        FshDataset *dataset = NULL;
        test_file_write(path, whole, length);
        FshStatus status = fsh_open(&dataset, path, &error);
        if (status == FSH_OK)
            fail_msg("opened with %zu of %zu bytes", length, bytes);
        assert_null(dataset);
        assert_true(length < 8 ? status == FSH_ERR_UNSUPPORTED : status == FSH_ERR_CORRUPT);
        if (length >= 512)
            assert_contains(error.message, "torn");
        assert_int_equal(count_problems(path, FSH_CHECK_RECORDS), 1);
    }
    free(whole);
}

static void keep_reason(const FshProblem *problem, void *context)
{
    (void)snprintf(context, 1024, "%s", problem->reason);
}

TEST_IN_FOLDER(test_intact_records_of_a_torn_shard_are_counted, folder)
{
    const char *path = write_small_shard(folder);
    FshError error = {0};
    char reason[1024];
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 3, &sample, &error), &error);
    char *whole = test_file_read(path, NULL);
    /* Where record 3 is: found by its key, so that the layout is not assumed. */
    size_t key_at = 0;
    while (memcmp(whole + key_at, sample.key, sample.key_bytes) != 0) {
        key_at++;
    }
    fsh_close(&dataset);
    free(whole);
    test_file_truncate(path, (int64_t)key_at);
    assert_ok(fsh_check(path, FSH_CHECK_QUICK, 1, keep_reason, reason, NULL, &error), &error);
    assert_contains(reason, "torn");
    assert_contains(reason, "3 intact records can be recovered");
}

static void expect_every_changed_byte_is_found(TestFolder *folder, FshRecordForm form)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    const DatasetPlan plan = {.train_count = small_plan.train_count, .form = form};
    samples_write_file(&plan, "train", path, 0, 0, plan.train_count, NULL);
    size_t bytes = 0;
    char *whole = test_file_read(path, &bytes);
    size_t records_begin = load_le32((const uint8_t *)whole + 12);
    size_t records_end = load_le64((const uint8_t *)whole + bytes - SHARD_FOOTER_BYTES + 24);
    for (size_t i = 0; i < bytes; i++) {
        static const char changes[] = {(char)0xFF, 1};
        for (size_t c = 0; c < sizeof changes; c++) {
            char kept = whole[i];
            whole[i] ^= changes[c];
            test_file_write(path, whole, bytes);
            whole[i] = kept;
            if (count_problems(path, c ? FSH_CHECK_QUICK : FSH_CHECK_RECORDS) == 0)
                fail_msg("a change of byte %zu is not found", i);
            /* Opening looks at all but the records; reading what is damaged may fail, but not crash. */
            FshError error = {0};
            FshDataset *dataset = NULL;
            FshStatus status = fsh_open(&dataset, path, &error);
            if (status == FSH_OK && (i < records_begin || i >= records_end))
                fail_msg("opened with byte %zu changed", i);
            for (uint64_t j = 0; status == FSH_OK && j < small_plan.train_count; j++) {
                FshSample sample;
                (void)fsh_sample_get(fsh_split(dataset, "train"), j, &sample, &error);
                (void)fsh_sample_verify(fsh_split(dataset, "train"), j, &error);
            }
            fsh_close(&dataset);
        }
    }
    free(whole);
    assert_int_equal(remove(path), 0);
}

TEST_IN_FOLDER(test_every_changed_byte_is_found, folder)
{
    expect_every_changed_byte_is_found(folder, FSH_RECORD_ALIGNED);
    expect_every_changed_byte_is_found(folder, FSH_RECORD_COMPACT);
}

TEST_IN_FOLDER(test_changed_record_fails_to_verify_by_name, folder)
{
    const char *path = write_small_shard(folder);
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshSample sample;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 4, &sample, &error), &error);
    char *whole = test_file_read(path, NULL);
    int64_t at = 0;
    while (memcmp(whole + at, sample.fields[0].data, sample.fields[0].bytes) != 0) {
        at++;
    }
    fsh_close(&dataset);
    free(whole);
    test_file_flip_byte(path, at);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_ok(fsh_sample_verify(fsh_split(dataset, "train"), 3, &error), &error);
    assert_int_equal(fsh_sample_verify(fsh_split(dataset, "train"), 4, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, path);
    assert_contains(error.message, "record 4");
    assert_contains(error.message, "key cat/image-4");
    assert_contains(error.message, "CRC32C");
    fsh_close(&dataset);
}

/* ---- shards as hostile bytes ---- */

/* Reads all that opening reads and then every record, from a copy of exactly `length` bytes, so that a
 * sanitizer sees every read outside. */
static FshStatus read_exact(const uint8_t *bytes, size_t length)
{
    ShardView view;
    Metadata metadata = {0};
    bool torn = false;
    uint8_t *exact = malloc(length);
    memcpy(exact, bytes, length);
    FshStatus status = fsh_shard_parse_header(&view, exact, length, NULL);
    if (!status)
        status = fsh_metadata_parse(&metadata, view.metadata, view.metadata_bytes, NULL, NULL);
    if (!status)
        status = fsh_shard_parse_footer(&view, &torn, NULL);
    if (!status)
        status = fsh_shard_check_index(&view, metadata.class_count, NULL, NULL, NULL);
    for (uint64_t i = 0; !status && i < view.record_count; i++) {
        IndexRow row = fsh_index_row_load(view.index + i * INDEX_ROW_BYTES);
        FshSample sample;
        RecordHead head;
        if (fsh_record_parse(exact + row.offset, row.record_bytes, FSH_RECORD_ALIGNED, &sample, &head,
                             NULL) == FSH_OK)
            (void)fsh_record_verify(exact + row.offset, &sample, &head, NULL);
    }
    (void)fsh_shard_count_intact(&view);
    fsh_metadata_free(&metadata);
    free(exact);
    return status;
}

/* Makes all sums right again after a change, as far as the lengths still make sense. */
static void mend_sums(uint8_t *bytes, size_t length, size_t header_bytes, size_t index_offset)
{
    uint8_t *footer = bytes + length - SHARD_FOOTER_BYTES;
    store_le32(bytes + 60, fsh_crc32c(fsh_crc32c(0, bytes, 60), bytes + 64, header_bytes - 64));
    store_le32(footer + 48, fsh_crc32c(0, bytes + index_offset, small_plan.train_count * INDEX_ROW_BYTES));
    store_le32(footer + 124, fsh_crc32c(0, footer, 124));
}

TEST_IN_FOLDER(test_hostile_numbers_with_right_sums_are_refused, folder)
{
    static const uint64_t values[] = {0,
                                      1,
                                      31,
                                      32,
                                      63,
                                      64,
                                      65,
                                      96,
                                      128,
                                      192,
                                      256,
                                      4096,
                                      0x7FFFFFFF,
                                      0xFFFFFFC0,
                                      0xFFFFFFFF,
                                      UINT64_C(1) << 32,
                                      UINT64_C(1) << 59,
                                      UINT64_MAX / 2,
                                      UINT64_MAX / 2 + 1,
                                      UINT64_MAX - 127,
                                      UINT64_MAX - 63,
                                      UINT64_MAX - 31,
                                      UINT64_MAX};
    size_t length = 0;
    char *text = test_file_read(write_small_shard(folder), &length);
    const uint8_t *whole = (const uint8_t *)text;
    uint8_t *changed = malloc(length);
    size_t header_bytes = load_le32(whole + 12);
    size_t footer = length - SHARD_FOOTER_BYTES, index = load_le64(whole + footer + 24);
    const struct {
        size_t at, bytes;
    } places[] = {
        {8, 4},
        {12, 4},
        {16, 4},
        {24, 4},
        {28, 4},
        {56, 4}, /* header */
        {index, 8},
        {index + 8, 8},
        {index + 28, 4}, /* first row */
        {index + 64, 8},
        {index + 72, 8},
        {index + 128, 8},
        {index + 136, 8},                         /* a middle and the last row */
        {index + 5 * (size_t)INDEX_ROW_BYTES, 4}, /* padding */
        {footer + 8, 4},
        {footer + 12, 4},
        {footer + 16, 8},
        {footer + 24, 8}, /* footer */
        {footer + 32, 8},
        {footer + 40, 8},
        {footer + 52, 4},
        {footer + 80, 8},
    };
    assert_int_equal(read_exact(whole, length), FSH_OK);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            memcpy(changed, whole, length);
            for (size_t b = 0; b < places[p].bytes; b++) {
                changed[places[p].at + b] = (uint8_t)(values[v] >> 8 * b);
            }
            if (memcmp(changed, whole, length) == 0)
                continue;
            mend_sums(changed, length, header_bytes, index);
            if (read_exact(changed, length) == FSH_OK)
                fail_msg("offset %zu: %llu is taken", places[p].at, (unsigned long long)values[v]);
        }
    }
    /* Labels: a class that there is not. */
    static const int64_t labels[] = {SAMPLES_CLASS_COUNT, -2, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        memcpy(changed, whole, length);
        store_le64(changed + index + 16, (uint64_t)labels[i]);
        mend_sums(changed, length, header_bytes, index);
        assert_int_equal(read_exact(changed, length), FSH_ERR_CORRUPT);
    }
    /* A first record so long that the sum of offset and length wraps to 64 bytes before it; all else adds
     * up. */
    memcpy(changed, whole, length);
    uint64_t second = load_le64(whole + index + INDEX_ROW_BYTES),
             third = load_le64(whole + index + 2 * INDEX_ROW_BYTES);
    assert_true(second > header_bytes);
    store_le64(changed + index + 8, UINT64_MAX - 63);
    store_le64(changed + index + INDEX_ROW_BYTES, header_bytes - 64);
    store_le64(changed + index + INDEX_ROW_BYTES + 8, third - header_bytes + 64);
    mend_sums(changed, length, header_bytes, index);
    assert_int_equal(read_exact(changed, length), FSH_ERR_CORRUPT);
    /* 64 bytes more between records and index, or between index and footer. */
    uint8_t *longer = calloc(1, length + 64);
    memcpy(longer, whole, index);
    memcpy(longer + index + 64, whole + index, length - index);
    store_le64(longer + footer + 64 + 24, index + 64);
    store_le64(longer + footer + 64 + 40, length + 64);
    mend_sums(longer, length + 64, header_bytes, index + 64);
    assert_int_equal(read_exact(longer, length + 64), FSH_ERR_CORRUPT);
    memset(longer, 0, length + 64);
    memcpy(longer, whole, footer);
    memcpy(longer + footer + 64, whole + footer, SHARD_FOOTER_BYTES);
    store_le64(longer + footer + 64 + 40, length + 64);
    mend_sums(longer, length + 64, header_bytes, index);
    assert_int_equal(read_exact(longer, length + 64), FSH_ERR_CORRUPT);
    free(longer);
    free(changed);
    free(text);
}

/* ---- large files ---- */

/* A shard whose second record begins beyond 4 GiB; the first is a hole. */
TEST_IN_FOLDER(test_offsets_beyond_4_gib, folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    FshError error = {0};
    Metadata metadata;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    FshManifest manifest = {.id = SAMPLES_ID,
                            .kind = options.kind,
                            .field_names = (char **)options.field_names,
                            .field_count = options.field_count,
                            .class_names = (char **)options.class_names,
                            .class_count = options.class_count};
    assert_ok(fsh_metadata_make(&metadata, &manifest, options.split, &error), &error);
    uint32_t header_bytes = fsh_shard_header_bytes(metadata.text_bytes, 0);
    uint8_t *header = malloc(header_bytes);
    fsh_shard_store_header(header, metadata.text, metadata.text_bytes, NULL, 0, FSH_RECORD_ALIGNED, 0, 1);

    /* 65536 x 65537 gray pixels: more than 2^32 bytes. Built small, then stretched by hand. */
    static uint8_t huge[RECORD_BYTES_MIN];
    uint8_t pixel = 0;
    FshSample first = {.label = 1, .key = "huge", .key_bytes = 4, .field_count = 1};
    first.fields[0] = (FshField){
        .data = &pixel, .bytes = 1, .width = 1, .height = 1, .channels = 1, .codec = FSH_CODEC_RAW};
    assert_ok(fsh_record_build(&first, FSH_RECORD_ALIGNED, huge, sizeof huge, &error), &error);
    uint64_t huge_bytes = (uint64_t)65536 * 65537, huge_record_bytes = 128 + huge_bytes;
    store_le64(huge + 8, huge_record_bytes);
    store_le64(huge + 72, huge_bytes);
    store_le32(huge + 80, 65536);
    store_le32(huge + 84, 65537);

    MadeSample made;
    sample_make(&made, &small_plan, "train", 1);
    size_t small_bytes = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
    uint8_t *small = malloc(small_bytes);
    assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, small, small_bytes, &error), &error);

    uint8_t index[2 * INDEX_ROW_BYTES], footer[SHARD_FOOTER_BYTES];
    IndexRow rows[2] = {
        {.offset = header_bytes, .record_bytes = huge_record_bytes, .label = 1, .crc = fsh_record_crc(huge)},
        {.offset = header_bytes + huge_record_bytes,
         .record_bytes = small_bytes,
         .label = made.sample.label,
         .crc = fsh_record_crc(small)}};
    fsh_index_row_store(index, &rows[0]);
    fsh_index_row_store(index + INDEX_ROW_BYTES, &rows[1]);
    uint64_t index_offset = rows[1].offset + small_bytes;
    fsh_shard_store_footer(footer, 2, FSH_RECORD_ALIGNED, index_offset, fsh_crc32c(0, index, sizeof index),
                           &(FshHash128){{0}});

    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, header_bytes, file), header_bytes);
    assert_int_equal(fwrite(huge, 1, 128, file), 128);
    assert_int_equal(fseeko(file, (off_t)rows[1].offset, SEEK_SET), 0);
    assert_int_equal(fwrite(small, 1, small_bytes, file), small_bytes);
    assert_int_equal(fwrite(index, 1, sizeof index, file), sizeof index);
    assert_int_equal(fwrite(footer, 1, sizeof footer, file), sizeof footer);
    assert_int_equal(fclose(file), 0);

    FshDataset *dataset = NULL;
    FshSample sample;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    const FshSplit *split = fsh_split(dataset, "train");
    assert_true(fsh_split_bytes(split) == huge_record_bytes + small_bytes);
    assert_ok(fsh_sample_get(split, 0, &sample, &error), &error);
    assert_true(sample.fields[0].bytes == huge_bytes);
    assert_int_equal(((const uint8_t *)sample.fields[0].data)[huge_bytes - 1], 0);
    assert_ok(fsh_sample_get(split, 1, &sample, &error), &error);
    assert_int_equal(sample.key_bytes, made.sample.key_bytes);
    assert_memory_equal(sample.fields[0].data, made.sample.fields[0].data, made.sample.fields[0].bytes);
    assert_ok(fsh_sample_verify(split, 1, &error), &error);
    fsh_close(&dataset);
    fsh_metadata_free(&metadata);
    sample_free(&made);
    free(header);
    free(small);
}

/* ---- asking for what is not there ---- */

TEST_IN_FOLDER(test_sample_beyond_the_end_is_not_found, folder)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshSample sample;
    assert_ok(fsh_open(&dataset, write_small_shard(folder), &error), &error);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), 5, &sample, &error), FSH_ERR_NOT_FOUND);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), UINT64_MAX, &sample, &error),
                     FSH_ERR_NOT_FOUND);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_what_is_no_dataset_is_refused_by_kind, folder)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    test_file_write_text(test_path(folder, "a.txt"), "hello");
    test_file_write_text(test_path(folder, "empty.fshard"), "");
    assert_int_equal(fsh_open(&dataset, test_path(folder, "none"), &error), FSH_ERR_NOT_FOUND);
    assert_int_equal(fsh_open(&dataset, folder->path, &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "dataset.json");
    assert_int_equal(fsh_open(&dataset, test_path(folder, "a.txt"), &error), FSH_ERR_UNSUPPORTED);
    assert_int_equal(fsh_open(&dataset, test_path(folder, "empty.fshard"), &error), FSH_ERR_UNSUPPORTED);
    assert_null(dataset);
}
