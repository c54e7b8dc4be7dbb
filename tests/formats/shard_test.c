#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/bytes.h"
#include "formats/crc32c.h"
#include "formats/internal.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.train_count = 5};

/* One shard of the small plan; returns its path. */
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

static void test_what_is_written_is_read(void **state)
{
    static const DatasetPlan plans[] = {
        {.train_count = 50, .val_count = 9, .shard_count = 4},
        {.kind = FSH_KIND_PAIRS, .train_count = 30, .val_count = 3, .shard_count = 3},
        {.train_count = 1},
        {.train_count = 3, .shard_count = 5}, /* some shards are empty */
        {.train_count = 0, .val_count = 2},
        {.train_count = 40, .payload_bytes_max = 300000}, /* several batches */
    };
    TestFolder *folder = *state;
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

static void test_a_shard_alone_knows_its_dataset(void **state)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, write_small_shard(*state), &error), &error);
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_string_equal(manifest->id, SAMPLES_ID);
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

static void test_payloads_are_aligned(void **state)
{
    TestFolder *folder = *state;
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

static void test_same_samples_give_same_bytes(void **state)
{
    TestFolder *folder = *state;
    const char *a = test_path(folder, "a.fshard"), *b = test_path(folder, "b.fshard");
    samples_write_file(&small_plan, "train", a, 0, 0, 5, NULL);
    /* The other way of writing: records built apart, as threads do. */
    FshError error = {0};
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    FshWriter *writer = NULL;
    FshFileInfo info;
    assert_ok(fsh_writer_open(&writer, b, &options, &error), &error);
    for (uint64_t i = 0; i < 5; i++) {
        MadeSample made;
        sample_make(&made, &small_plan, "train", i);
        size_t bytes = fsh_record_bytes(&made.sample);
        void *record = aligned_alloc(FSH_ALIGNMENT, bytes);
        memset(record, 0xA5, bytes); /* no byte of it may stay */
        assert_ok(fsh_record_build(&made.sample, record, bytes, &error), &error);
        assert_ok(fsh_writer_put_record(writer, record, bytes, &error), &error);
        free(record);
        sample_free(&made);
    }
    assert_ok(fsh_writer_finish(writer, &info, &error), &error);
    fsh_writer_close(&writer);
    assert_string_equal(info.name, "b.fshard");
    assert_int_equal(info.sample_count, 5);
    assert_int_equal(info.bytes, test_file_size(b));
    free(info.name);
    size_t a_bytes = 0, b_bytes = 0;
    char *a_text = test_file_read(a, &a_bytes), *b_text = test_file_read(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a_text, b_text, a_bytes);
    free(a_text);
    free(b_text);
}

/* ---- damage ---- */

static void test_torn_shard_is_recognised(void **state)
{
    const char *path = write_small_shard(*state);
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

static void test_intact_records_of_a_torn_shard_are_counted(void **state)
{
    const char *path = write_small_shard(*state);
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

static void test_every_changed_byte_is_found(void **state)
{
    const char *path = write_small_shard(*state);
    size_t bytes = 0;
    char *whole = test_file_read(path, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        static const char changes[] = {(char)0xFF, 1};
        for (size_t c = 0; c < sizeof changes; c++) {
            char kept = whole[i];
            whole[i] ^= changes[c];
            test_file_write(path, whole, bytes);
            whole[i] = kept;
            if (count_problems(path, c ? FSH_CHECK_QUICK : FSH_CHECK_RECORDS) == 0)
                fail_msg("a change of byte %zu is not found", i);
            /* Reading what is damaged may fail; it may not crash. */
            FshError error = {0};
            FshDataset *dataset = NULL;
            if (fsh_open(&dataset, path, &error) == FSH_OK) {
                FshSample sample;
                for (uint64_t j = 0; j < small_plan.train_count; j++) {
                    (void)fsh_sample_get(fsh_split(dataset, "train"), j, &sample, &error);
                    (void)fsh_sample_verify(fsh_split(dataset, "train"), j, &error);
                }
            }
            fsh_close(&dataset);
        }
    }
    free(whole);
}

static void test_changed_record_fails_to_verify_by_name(void **state)
{
    TestFolder *folder = *state;
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

/* ---- large files ---- */

/* A shard whose second record begins beyond 4 GiB; the first is a hole. */
static void test_offsets_beyond_4_gib(void **state)
{
    TestFolder *folder = *state;
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    FshError error = {0};
    Metadata metadata;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    assert_ok(fsh_metadata_make(&metadata, options.dataset_id, options.split, options.kind,
                                options.field_names, options.field_count, options.class_names,
                                options.class_count, &error),
              &error);
    uint32_t header_bytes = fsh_shard_header_bytes(metadata.text_bytes);
    uint8_t *header = malloc(header_bytes);
    fsh_shard_store_header(header, metadata.text, metadata.text_bytes, 0, 1);

    /* 65536 x 65537 gray pixels: more than 2^32 bytes. Built small, then stretched by hand. */
    static uint8_t huge[RECORD_BYTES_MIN];
    uint8_t pixel = 0;
    FshSample first = {.label = 1, .key = "huge", .key_bytes = 4, .field_count = 1};
    first.fields[0] = (FshField){
        .data = &pixel, .bytes = 1, .width = 1, .height = 1, .channels = 1, .codec = FSH_CODEC_RAW};
    assert_ok(fsh_record_build(&first, huge, sizeof huge, &error), &error);
    uint64_t huge_bytes = (uint64_t)65536 * 65537, huge_record_bytes = 128 + huge_bytes;
    store_le64(huge + 8, huge_record_bytes);
    store_le64(huge + 72, huge_bytes);
    store_le32(huge + 80, 65536);
    store_le32(huge + 84, 65537);

    MadeSample made;
    sample_make(&made, &small_plan, "train", 1);
    size_t small_bytes = fsh_record_bytes(&made.sample);
    uint8_t *small = malloc(small_bytes);
    assert_ok(fsh_record_build(&made.sample, small, small_bytes, &error), &error);

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
    fsh_shard_store_footer(footer, 2, index_offset, fsh_crc32c(0, index, sizeof index), &(FshHash128){{0}});

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

/* ---- writing, the other ways ---- */

static void test_nothing_stays_without_finish(void **state)
{
    TestFolder *folder = *state;
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    MadeSample made;
    sample_make(&made, &small_plan, "train", 0);
    assert_ok(fsh_writer_open(&writer, test_path(folder, "a.fshard"), &options, &error), &error);
    assert_ok(fsh_writer_put(writer, &made.sample, &error), &error);
    assert_false(file_exists(test_path(folder, "a.fshard")));
    fsh_writer_close(&writer);
    assert_null(writer);
    fsh_writer_close(&writer);
    assert_int_equal(test_count_files(folder->path), 0);
    sample_free(&made);
}

static void test_existing_file_needs_force(void **state)
{
    TestFolder *folder = *state;
    const char *path = write_small_shard(folder);
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    assert_int_equal(fsh_writer_open(&writer, path, &options, &error), FSH_ERR_EXISTS);
    assert_null(writer);
    assert_contains(error.message, path);
    options.force = true;
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 0);
    fsh_close(&dataset);
    assert_int_equal(test_count_files(folder->path), 1);
}

static void test_samples_that_do_not_fit_are_refused_and_writing_goes_on(void **state)
{
    TestFolder *folder = *state;
    const char *path = test_path(folder, "a.fshard");
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    MadeSample made;
    static char long_text[70000];
    memset(long_text, 'k', sizeof long_text);
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    for (int wrong = 0; wrong < 13; wrong++) {
        sample_make(&made, &small_plan, "train", 0); /* raw */
        FshSample *sample = &made.sample;
        FshField *field = &sample->fields[0];
        switch (wrong) {
        case 0:
            sample->label = SAMPLES_CLASS_COUNT;
            break;
        case 1:
            sample->label = -2;
            break;
        case 2:
            sample->field_count = 2;
            sample->fields[1] = *field;
            break;
        case 3:
            sample->field_count = 0;
            break;
        case 4:
            field->bytes--;
            break;
        case 5:
            field->width = UINT32_MAX;
            field->height = UINT32_MAX;
            break;
        case 6:
            field->channels = 5;
            break;
        case 7:
            field->codec = (FshCodec)9;
            break;
        case 8:
            sample->key_bytes = 0;
            break;
        case 9:
            sample->key = long_text;
            sample->key_bytes = 65536;
            break;
        case 10:
            made.key[1] = '\0';
            break;
        case 11:
            field->source = long_text;
            field->source_bytes = 65536;
            break;
        default:
            field->codec = FSH_CODEC_JPEG;
            field->bytes = 0;
            break;
        }
        error = (FshError){0};
        if (fsh_writer_put(writer, sample, &error) != FSH_ERR_MISMATCH)
            fail_msg("case %d is taken", wrong);
        assert_contains(error.message, path);
        sample_free(&made);
    }
    sample_make(&made, &small_plan, "train", 0);
    assert_ok(fsh_writer_put(writer, &made.sample, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    assert_int_equal(fsh_writer_put(writer, &made.sample, &error), FSH_ERR_USAGE);
    assert_int_equal(fsh_writer_finish(writer, NULL, &error), FSH_ERR_USAGE);
    fsh_writer_close(&writer);
    sample_free(&made);
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 1);
    fsh_close(&dataset);
}

static void test_writer_options_out_of_range_are_refused(void **state)
{
    TestFolder *folder = *state;
    for (int wrong = 0; wrong < 10; wrong++) {
        FshError error = {0};
        FshWriter *writer = NULL;
        FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
        const char *twice[2] = {"same", "same"};
        switch (wrong) {
        case 0:
            options.dataset_id = "0123";
            break;
        case 1:
            options.dataset_id = "0123456789ABCDEF0123456789ABCDEF";
            break;
        case 2:
            options.split = "../train";
            break;
        case 3:
            options.split = "";
            break;
        case 4:
            options.shard_index = 1;
            break;
        case 5:
            options.class_count = 0;
            break;
        case 6:
            options.class_names = twice;
            options.class_count = 2;
            break;
        case 7:
            options.kind = (FshKind)3;
            break;
        case 8:
            options.container = (FshContainer)0;
            break;
        default:
            options.field_names = twice;
            options.field_count = 2;
            break;
        }
        assert_int_equal(fsh_writer_open(&writer, test_path(folder, "a.fshard"), &options, &error),
                         FSH_ERR_USAGE);
        assert_null(writer);
        assert_int_not_equal(error.message[0], 0);
    }
    assert_int_equal(test_count_files(folder->path), 0);
}

static void test_sample_beyond_the_end_is_not_found(void **state)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    FshSample sample;
    assert_ok(fsh_open(&dataset, write_small_shard(*state), &error), &error);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), 5, &sample, &error), FSH_ERR_NOT_FOUND);
    assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), UINT64_MAX, &sample, &error),
                     FSH_ERR_NOT_FOUND);
    fsh_close(&dataset);
}

static void test_what_is_no_dataset_is_refused_by_kind(void **state)
{
    TestFolder *folder = *state;
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

static void test_populate_reads_every_file(void **state)
{
    TestFolder *folder = *state;
    const DatasetPlan plan = {.train_count = 40, .shard_count = 3, .payload_bytes_max = 100000};
    FshError error = {0};
    FshDataset *dataset = NULL;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    assert_ok(fsh_split_populate(fsh_split(dataset, "train"), 2, &error), &error);
    /* A file that was cut short meanwhile is a failure here, and not a death by SIGBUS. */
    test_file_truncate(test_path(folder, "train-00001-of-00003.fshard"), 100);
    assert_int_equal(fsh_split_populate(fsh_split(dataset, "train"), 2, &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "train-00001-of-00003.fshard");
    fsh_close(&dataset);
}

#define with_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_folder(test_what_is_written_is_read),
        with_folder(test_a_shard_alone_knows_its_dataset),
        with_folder(test_payloads_are_aligned),
        with_folder(test_same_samples_give_same_bytes),
        with_folder(test_torn_shard_is_recognised),
        with_folder(test_intact_records_of_a_torn_shard_are_counted),
        with_folder(test_every_changed_byte_is_found),
        with_folder(test_changed_record_fails_to_verify_by_name),
        with_folder(test_offsets_beyond_4_gib),
        with_folder(test_nothing_stays_without_finish),
        with_folder(test_existing_file_needs_force),
        with_folder(test_samples_that_do_not_fit_are_refused_and_writing_goes_on),
        with_folder(test_writer_options_out_of_range_are_refused),
        with_folder(test_sample_beyond_the_end_is_not_found),
        with_folder(test_what_is_no_dataset_is_refused_by_kind),
        with_folder(test_populate_reads_every_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
