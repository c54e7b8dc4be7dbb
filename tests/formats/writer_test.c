#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.train_count = 5};

/* Writes one shard of the small plan and returns its path. */
static const char *write_small_shard(TestFolder *folder)
{
    const char *path = test_path(folder, "train-00000-of-00001.fshard");
    samples_write_file(&small_plan, "train", path, 0, 0, small_plan.train_count, NULL);
    return path;
}

static void write_both_ways(TestFolder *folder, const DatasetPlan *plan)
{
    const char *a = test_path(folder, "a.fshard"), *b = test_path(folder, "b.fshard");
    (void)remove(a);
    (void)remove(b);
    samples_write_file(plan, "train", a, 0, 0, plan->train_count, NULL);
    /* The other way of writing: records built apart, as threads do. */
    FshError error = {0};
    FshWriterOptions options = samples_writer_options(plan, "train", 0);
    FshWriter *writer = NULL;
    FshFileInfo info;
    assert_ok(fsh_writer_open(&writer, b, &options, &error), &error);
    for (uint64_t i = 0; i < plan->train_count; i++) {
        MadeSample made;
        sample_make(&made, plan, "train", i);
        size_t bytes = fsh_record_bytes(&made.sample, plan->form);
        void *record = malloc(bytes);
        memset(record, 0xA5, bytes); /* no byte of it may stay */
        assert_ok(fsh_record_build(&made.sample, plan->form, record, bytes, &error), &error);
        assert_ok(fsh_writer_put_record(writer, record, bytes, &error), &error);
        free(record);
        sample_free(&made);
    }
    assert_ok(fsh_writer_finish(writer, &info, &error), &error);
    fsh_writer_close(&writer);
    assert_string_equal(info.name, "b.fshard");
    assert_int_equal(info.sample_count, plan->train_count);
    assert_int_equal(info.bytes, test_file_size(b));
    free(info.name);
    size_t a_bytes = 0, b_bytes = 0;
    char *a_text = test_file_read(a, &a_bytes), *b_text = test_file_read(b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a_text, b_text, a_bytes);
    free(a_text);
    free(b_text);
}

TEST_IN_FOLDER(test_same_samples_give_same_bytes, folder)
{
    const DatasetPlan compact = {.train_count = 5, .form = FSH_RECORD_COMPACT};
    write_both_ways(folder, &small_plan);
    write_both_ways(folder, &compact);
}

/* Large records are written by themselves, between small ones that gather. */
TEST_IN_FOLDER(test_large_records_between_small_ones_give_the_same_bytes, folder)
{
    DatasetPlan plan = {.train_count = 60, .payload_bytes_max = 150000};
    write_both_ways(folder, &plan);
    plan.form = FSH_RECORD_COMPACT;
    write_both_ways(folder, &plan);
}

TEST_IN_FOLDER(test_nothing_stays_without_finish, folder)
{
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

TEST_IN_FOLDER(test_existing_file_needs_force, folder)
{
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

TEST_IN_FOLDER(test_samples_that_do_not_fit_are_refused_and_writing_goes_on, folder)
{
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
            field->codec = (FshCodec)10;
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

TEST_IN_FOLDER(test_writer_options_out_of_range_are_refused, folder)
{
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

/* An LMDB has no use for them; a record of the other form is none; what has no room in one is told. */
TEST_IN_FOLDER(test_compact_records_are_for_shards_and_of_one_form, folder)
{
    const DatasetPlan lmdb = {.container = FSH_CONTAINER_LMDB, .form = FSH_RECORD_COMPACT},
                      compact = {.form = FSH_RECORD_COMPACT};
    const FshWriterOptions refused = samples_writer_options(&lmdb, "train", 0),
                           options = samples_writer_options(&compact, "train", 0);
    FshWriter *writer = NULL;
    FshError error = {0};
    MadeSample made;
    assert_int_equal(fsh_writer_open(&writer, test_path(folder, "train.lmdb"), &refused, &error),
                     FSH_ERR_USAGE);
    assert_contains(error.message, "shards only");
    assert_null(writer);
    assert_ok(fsh_writer_open(&writer, test_path(folder, "x.fshard"), &options, &error), &error);
    sample_make(&made, &compact, "train", 0);
    size_t bytes = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
    void *record = malloc(bytes);
    assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, bytes, &error), &error);
    assert_int_equal(fsh_writer_put_record(writer, record, bytes, &error), FSH_ERR_CORRUPT);
    made.sample.label = (INT64_C(1) << 29) - 1;
    assert_int_equal(fsh_record_bytes(&made.sample, FSH_RECORD_COMPACT), 0);
    assert_int_equal(fsh_record_build(&made.sample, FSH_RECORD_COMPACT, record, bytes, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "too much for a compact record");
    made.sample.label--;
    assert_true(fsh_record_bytes(&made.sample, FSH_RECORD_COMPACT) > 0);
    free(record);
    sample_free(&made);
    fsh_writer_close(&writer);
    assert_int_equal(test_count_files(folder->path), 0);
}
