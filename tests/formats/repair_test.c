/* fsh_repair: what a torn or damaged shard still holds comes back, record by record, and what is lost is
 * told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/bytes.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/formats/samples.h"

enum { SAMPLES = 7, LOSSES_MAX = 64, EDGE_STEP = 97 };
static const DatasetPlan plan = {.train_count = SAMPLES};

typedef struct Losses {
    FshLoss losses[LOSSES_MAX];
    char keys[LOSSES_MAX][64], reasons[LOSSES_MAX][256];
    size_t count;
    uint64_t bytes, end; /* of the last one: they come in order and do not overlap */
} Losses;

static void keep(const FshLoss *loss, void *context)
{
    Losses *losses = context;
    assert_true(losses->count < LOSSES_MAX);
    assert_true(loss->bytes > 0 && loss->offset >= losses->end);
    (void)snprintf(losses->keys[losses->count], 64, "%.*s", (int)loss->key_bytes, loss->key ? loss->key : "");
    (void)snprintf(losses->reasons[losses->count], 256, "%s", loss->reason);
    losses->losses[losses->count++] = *loss;
    losses->bytes += loss->bytes;
    losses->end = loss->offset + loss->bytes;
}

/* A whole shard and where its records are. */
typedef struct Whole {
    const char *path;
    char *bytes;
    size_t length;
    ShardView view;
    uint64_t ends[SAMPLES]; /* of each record */
} Whole;

static Whole make_whole_of(TestFolder *folder, FshRecordForm form)
{
    const DatasetPlan own = {.train_count = SAMPLES, .form = form};
    const uint8_t *rows = NULL;
    Buffer own_rows = {0};
    Whole whole = {.path = test_path(folder, "train-00000-of-00001.fshard")};
    bool torn = true;
    samples_write_file(&own, "train", whole.path, 0, 0, SAMPLES, NULL);
    whole.bytes = test_file_read(whole.path, &whole.length);
    assert_ok(fsh_shard_parse_header(&whole.view, (const uint8_t *)whole.bytes, whole.length, NULL), NULL);
    assert_ok(fsh_shard_parse_footer(&whole.view, &torn, NULL), NULL);
    assert_ok(fsh_shard_rows(&whole.view, &own_rows, &rows, NULL), NULL);
    for (size_t i = 0; i < SAMPLES; i++) {
        IndexRow row = fsh_index_row_load(rows + i * INDEX_ROW_BYTES);
        whole.ends[i] = row.offset + row.record_bytes;
    }
    buffer_free(&own_rows);
    return whole;
}

static Whole make_whole(TestFolder *folder)
{
    return make_whole_of(folder, FSH_RECORD_ALIGNED);
}

static void expect_problems(const char *path, uint64_t expected)
{
    uint64_t count = 0;
    FshError error = {0};
    assert_ok(fsh_check(path, FSH_CHECK_RECORDS, 1, NULL, NULL, &count, &error), &error);
    assert_int_equal(count, expected);
}

/* Opens the repaired shard, which must be whole, and expects these samples of the plan in it. */
static void expect_samples(const char *path, const bool *kept)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    expect_problems(path, 0);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    const FshSplit *split = fsh_split(dataset, "train");
    uint64_t at = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        FshSample sample;
        if (!kept[i])
            continue;
        assert_ok(fsh_sample_get(split, at, &sample, &error), &error);
        sample.index = i;
        sample_assert_equal(&sample, &plan, "train", i);
        at++;
    }
    assert_int_equal(split->sample_count, at);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_a_shard_cut_anywhere_gives_back_every_record_before_the_cut, folder)
{
    Whole whole = make_whole(folder);
    const char *torn = test_path(folder, "torn.fshard"), *repaired = test_path(folder, "repaired.fshard");
    unsigned repaired_count = 0;
    for (size_t cut = 0; cut < whole.length; cut += cut + EDGE_STEP < whole.length ? EDGE_STEP : 1) {
        Losses losses = {0};
        FshRepairReport report;
        FshError error = {0};
        bool kept[SAMPLES];
        uint64_t count = 0, kept_end = whole.view.header_bytes;
        for (size_t i = 0; i < SAMPLES; i++) {
            kept[i] = whole.ends[i] <= cut;
            count += kept[i];
            kept_end = kept[i] ? whole.ends[i] : kept_end;
        }
        test_file_write(torn, whole.bytes, cut);
        FshStatus status = fsh_repair(torn, repaired, keep, &losses, &report, &error);
        if (cut < whole.view.header_bytes) {
            assert_int_equal(status, FSH_ERR_CORRUPT);
            assert_contains(error.message, "pack it again");
            assert_int_equal(test_count_files(folder->path), 2);
            continue;
        }
        assert_ok(status, &error);
        assert_false(report.indexed);
        assert_int_equal(report.record_count, count);
        assert_int_equal(report.lost_bytes, cut - kept_end);
        assert_int_equal(losses.bytes, report.lost_bytes);
        assert_int_equal(losses.count, report.lost_ranges);
        expect_samples(repaired, kept);
        if (count == SAMPLES) { /* only index and footer were lost: it is what it was */
            size_t length = 0;
            char *bytes = test_file_read(repaired, &length);
            assert_int_equal(length, whole.length);
            assert_memory_equal(bytes, whole.bytes, length);
            free(bytes);
        }
        assert_int_equal(remove(repaired), 0);
        repaired_count++;
    }
    assert_true(repaired_count > 20);
    free(whole.bytes);
}

TEST_IN_FOLDER(test_damaged_records_are_left_out_by_the_index_and_named, folder)
{
    Whole whole = make_whole(folder);
    const char *repaired = test_path(folder, "repaired.fshard");
    const bool kept[SAMPLES] = {true, true, false, true, true, false, true};
    Losses losses = {0};
    FshRepairReport report;
    FshError error = {0};
    test_file_flip_byte(whole.path, (int64_t)whole.ends[1] + 200); /* in record 2, after its magic */
    test_file_flip_byte(whole.path, (int64_t)whole.ends[4]);       /* the magic of record 5 */
    assert_ok(fsh_repair(whole.path, repaired, keep, &losses, &report, &error), &error);
    assert_true(report.indexed);
    assert_int_equal(report.record_count, SAMPLES - 2);
    assert_int_equal(losses.count, 2);
    assert_int_equal(losses.losses[0].offset, whole.ends[1]);
    assert_int_equal(losses.losses[0].bytes, whole.ends[2] - whole.ends[1]);
    assert_string_equal(losses.keys[0], "däwg/image-2");
    assert_contains(losses.reasons[0], "CRC32C is ");
    assert_int_equal(losses.losses[1].offset, whole.ends[4]);
    assert_string_equal(losses.keys[1], "");
    assert_contains(losses.reasons[1], "is no record: magic");
    expect_samples(repaired, kept);
    free(whole.bytes);
}

/* Without an index the next record is found by looking for it; a length that lies does not lead astray. */
TEST_IN_FOLDER(test_records_are_found_behind_damage_without_an_index, folder)
{
    Whole whole = make_whole(folder);
    const char *repaired = test_path(folder, "repaired.fshard");
    const bool kept[SAMPLES] = {false, true, true, true, false, false, true};
    Losses losses = {0};
    FshRepairReport report;
    FshError error = {0};
    test_file_flip_byte(whole.path, whole.view.header_bytes + 40);
    test_file_flip_byte(whole.path, (int64_t)whole.ends[3] + 9); /* record_bytes of record 4 */
    test_file_flip_byte(whole.path, (int64_t)whole.ends[4] + 4); /* the CRC of record 5 */
    test_file_flip_byte(whole.path, -3);                         /* the footer's CRC */
    assert_ok(fsh_repair(whole.path, repaired, keep, &losses, &report, &error), &error);
    assert_false(report.indexed);
    assert_int_equal(report.record_count, 4);
    assert_int_equal(losses.count, 3); /* record 0; 4 with 5; what was the index */
    assert_int_equal(losses.losses[1].offset, whole.ends[3]);
    assert_int_equal(losses.losses[1].bytes, whole.ends[5] - whole.ends[3]);
    assert_int_equal(losses.losses[2].offset, whole.ends[6]);
    expect_samples(repaired, kept);
    free(whole.bytes);
}

/* Compact records begin anywhere, end without padding and have no length of their own. */
TEST_IN_FOLDER(test_compact_records_come_back_whatever_is_cut_or_damaged, folder)
{
    Whole whole = make_whole_of(folder, FSH_RECORD_COMPACT);
    const char *torn = test_path(folder, "torn.fshard"), *repaired = test_path(folder, "repaired.fshard");
    unsigned complete = 0;
    for (size_t cut = whole.view.header_bytes; cut <= whole.length; cut++) {
        FshRepairReport report;
        FshError error = {0};
        bool kept[SAMPLES];
        uint64_t count = 0;
        for (size_t i = 0; i < SAMPLES; i++)
            count += kept[i] = whole.ends[i] <= cut;
        test_file_write(torn, whole.bytes, cut);
        assert_ok(fsh_repair(torn, repaired, NULL, NULL, &report, &error), &error);
        assert_int_equal(report.record_count, count);
        if (count == SAMPLES && cut <= whole.view.index_offset)
            assert_int_equal(report.lost_bytes, 0);
        if (count == SAMPLES) {
            size_t length = 0;
            char *bytes = test_file_read(repaired, &length);
            assert_int_equal(length, whole.length);
            assert_memory_equal(bytes, whole.bytes, length);
            free(bytes);
            complete++;
        } else if (cut % 16 == 0) {
            expect_samples(repaired, kept);
        }
        assert_int_equal(remove(repaired), 0);
    }
    assert_true(complete > 100);

    /* Record 0's key, record 4's numbers and record 5's CRC; once with the index, once without. */
    const bool kept[SAMPLES] = {false, true, true, true, false, false, true};
    test_file_flip_byte(whole.path, (int64_t)whole.view.header_bytes + 25);
    test_file_flip_byte(whole.path, (int64_t)whole.ends[3] + 9);
    test_file_flip_byte(whole.path, (int64_t)whole.ends[4] + 4);
    for (int indexed = 1; indexed >= 0; indexed--) {
        Losses losses = {0};
        FshRepairReport report;
        FshError error = {0};
        if (!indexed)
            test_file_flip_byte(whole.path, -3); /* the footer's CRC */
        assert_ok(fsh_repair(whole.path, repaired, keep, &losses, &report, &error), &error);
        assert_int_equal(report.indexed, indexed);
        assert_int_equal(report.record_count, 4);
        assert_int_equal(losses.count,
                         3); /* 4 and 5 are one range without an index, and then there is what was one */
        assert_int_equal(losses.losses[1].offset, whole.ends[3]);
        assert_int_equal(losses.losses[1].bytes, whole.ends[indexed ? 4 : 5] - whole.ends[3]);
        expect_samples(repaired, kept);
        assert_int_equal(remove(repaired), 0);
    }
    free(whole.bytes);
}

TEST_IN_FOLDER(test_nothing_is_ever_written_in_place, folder)
{
    Whole whole = make_whole(folder);
    FshError error = {0};
    assert_int_equal(fsh_repair(whole.path, whole.path, NULL, NULL, NULL, &error), FSH_ERR_EXISTS);
    size_t length = 0;
    char *bytes = test_file_read(whole.path, &length);
    assert_int_equal(length, whole.length);
    assert_memory_equal(bytes, whole.bytes, length);
    free(bytes);
    assert_int_equal(
        fsh_repair(test_path(folder, "nowhere"), test_path(folder, "x"), NULL, NULL, NULL, &error),
        FSH_ERR_NOT_FOUND);
    interrupt_simulate(2);
    assert_int_equal(fsh_repair(whole.path, test_path(folder, "x"), NULL, NULL, NULL, &error),
                     FSH_ERR_INTERRUPTED);
    interrupt_simulate(0);
    assert_int_equal(test_count_files(folder->path), 1);
    free(whole.bytes);
}

TEST_IN_FOLDER(test_an_intact_shard_comes_back_as_it_is, folder)
{
    Whole whole = make_whole(folder);
    const char *repaired = test_path(folder, "repaired.fshard");
    FshRepairReport report;
    FshError error = {0};
    size_t length = 0;
    assert_ok(fsh_repair(whole.path, repaired, NULL, NULL, &report, &error), &error);
    assert_int_equal(report.lost_bytes, 0);
    assert_int_equal(report.record_count, SAMPLES);
    char *bytes = test_file_read(repaired, &length);
    assert_int_equal(length, whole.length);
    assert_memory_equal(bytes, whole.bytes, length);
    free(bytes);
    free(whole.bytes);
}

enum { CANDIDATE_STEP = 128 };

/* Writes the beginning of a record, within CANDIDATE_STEP bytes, that claims `left` bytes and is sound but
 * for its CRC. */
static void forge_aligned(uint8_t *at, size_t left)
{
    enum { AT_BYTES = 8, AT_FIELD_BYTES = RECORD_HEADER_BYTES + 8, PAYLOAD_AT = 128 };
    const FshSample sample = {
        .key = "k",
        .key_bytes = 1,
        .field_count = 1,
        .fields = {{.data = (const uint8_t *)"x", .bytes = 1, .channels = 3, .codec = FSH_CODEC_JPEG}}};
    uint8_t record[RECORD_BYTES_MIN];
    FshError error = {0};
    assert_ok(fsh_record_build(&sample, FSH_RECORD_ALIGNED, record, sizeof record, &error), &error);
    memcpy(at, record, PAYLOAD_AT);
    store_le64(at + AT_BYTES, left);
    store_le64(at + AT_FIELD_BYTES, left - PAYLOAD_AT);
}

static void forge_compact(uint8_t *at, size_t left)
{
    /* magic, CRC; label and field_count, key_bytes, key_place; codec and channels, width, height; bytes
     * follow. */
    const uint8_t begin[] = {'F', 'R', 'e', 'c', 0, 0, 0, 0, 8, 1, 0, FSH_CODEC_JPEG | 2 << 6, 9, 9};
    uint8_t numbers[8] = {0};
    size_t count = 0, payload_bytes = 0, before = 0;
    do { /* until the number takes as many bytes as it was thought to */
        before = count;
        payload_bytes = left - sizeof begin - before - 2;
        count = 0;
        for (size_t value = payload_bytes; value; value >>= 7)
            numbers[count++] = (uint8_t)((value & 0x7F) | (value >> 7 ? 0x80 : 0));
    } while (count != before);
    memcpy(at, begin, sizeof begin);
    memcpy(at + sizeof begin, numbers, count);
    at[sizeof begin + count] = 0; /* source_bytes */
    at[sizeof begin + count + 1] = 'k';
}

/* Repairs a shard whose `length` bytes after the header (a multiple of CANDIDATE_STEP) hold a seeming record
 * at every step, each as long as all the rest. Returns the processor seconds that fsh_repair took. */
static double repair_overlapping(TestFolder *folder, const Whole *whole, size_t length)
{
    const char *hostile = test_path(folder, "hostile.fshard");
    const char *repaired = test_path(folder, "repaired.fshard");
    const size_t header_bytes = whole->view.header_bytes;
    const FshRecordForm form = whole->view.record_form;
    uint8_t *bytes = calloc(1, header_bytes + length);
    FshError error = {0};
    memcpy(bytes, whole->bytes, header_bytes);
    for (size_t at = 0; at < length; at += CANDIDATE_STEP) {
        uint8_t *candidate = bytes + header_bytes + at;
        FshSample found;
        RecordHead head;
        if (form == FSH_RECORD_COMPACT)
            forge_compact(candidate, length - at);
        else if (length - at >= RECORD_BYTES_MIN)
            forge_aligned(candidate, length - at);
        else
            continue;
        assert_ok(fsh_record_parse(candidate, length - at, form, &found, &head, &error), &error);
        assert_int_equal(head.record_bytes, length - at);
    }
    test_file_write(hostile, bytes, header_bytes + length);
    free(bytes);
    FshRepairReport report;
    clock_t begin = clock();
    assert_ok(fsh_repair(hostile, repaired, NULL, NULL, &report, &error), &error);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(report.record_count, 0);
    assert_int_equal(report.lost_bytes, length);
    assert_int_equal(remove(repaired), 0);
    return seconds;
}

/* Eight times the bytes take eight times as long, where each record's own CRC would take 64 times as long. */
TEST_IN_FOLDER(test_records_that_claim_all_the_rest_do_not_hold_up_the_search, folder)
{
    static const FshRecordForm forms[] = {FSH_RECORD_ALIGNED, FSH_RECORD_COMPACT};
    enum { SMALL_BYTES = 1 << 20, TIMES = 8, TIMES_MAX = 24 };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        Whole whole = make_whole_of(folder, forms[i]);
        double small = repair_overlapping(folder, &whole, SMALL_BYTES);
        double large = repair_overlapping(folder, &whole, (size_t)SMALL_BYTES * TIMES);
        if (large > small * TIMES_MAX)
            fail_msg("form %d: %.3f s for %d bytes, %.3f s for %d times as many", (int)forms[i], small,
                     SMALL_BYTES, large, TIMES);
        free(whole.bytes);
        assert_int_equal(remove(whole.path), 0);
    }
}
