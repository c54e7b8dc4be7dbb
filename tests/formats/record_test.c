#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/record.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.train_count = 5};

/* Parses a copy of exactly `length` bytes, so that a sanitizer sees every read outside. */
static FshStatus parse_exact(const uint8_t *bytes, size_t length)
{
    FshSample sample;
    RecordHead head;
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, bytes, length);
    FshStatus status = fsh_record_parse(exact, length, FSH_RECORD_ALIGNED, &sample, &head, NULL);
    if (status == FSH_OK) {
        uint8_t sum = 0;
        assert_true(head.record_bytes <= length);
        for (unsigned i = 0; i < sample.field_count; i++) {
            const uint8_t *data = sample.fields[i].data;
            for (size_t j = 0; j < sample.fields[i].bytes; j++) {
                sum += data[j];
            }
            for (size_t j = 0; j < sample.fields[i].source_bytes; j++) {
                sum += (uint8_t)sample.fields[i].source[j];
            }
        }
        for (size_t j = 0; j < sample.key_bytes; j++) {
            sum += (uint8_t)sample.key[j];
        }
        (void)fsh_record_verify(exact, &sample, &head, NULL);
        exact[0] = sum; /* read for its own sake */
    }
    free(exact);
    return status;
}

TEST(test_hostile_lengths_in_a_record_are_refused)
{
    static const uint64_t values[] = {0,
                                      1,
                                      63,
                                      64,
                                      65,
                                      128,
                                      0x7F,
                                      0xFF,
                                      0x7FFF,
                                      0xFFFF,
                                      0x10000,
                                      0x7FFFFFFF,
                                      0xFFFFFFC0,
                                      0xFFFFFFFF,
                                      UINT64_C(1) << 32,
                                      UINT64_MAX / 2,
                                      UINT64_MAX / 2 + 1,
                                      UINT64_MAX - 63,
                                      UINT64_MAX};
    /* harmless: some other values leave a good record, such as another label or a key that takes its bytes
     * from the padding. */
    static const struct {
        size_t at, bytes;
        bool harmless;
    } places[] = {
        {0, 4, false},   {8, 8, false},   {16, 8, true},  {24, 4, false}, {28, 2, true},  {30, 1, false},
        {31, 1, false},  {40, 8, false},  {64, 8, false}, {72, 8, false}, {80, 4, true},  {84, 4, true},
        {88, 1, true},   {89, 1, true},   {90, 1, false}, {91, 1, false}, {92, 2, true},  {94, 2, false},
        {96, 8, false},  {104, 8, false}, {112, 4, true}, {116, 4, true}, {120, 1, true}, {121, 1, true},
        {122, 1, false}, {124, 2, true},
    };
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS};
    for (uint64_t index = 0; index < 4; index++) {
        MadeSample made;
        FshError error = {0};
        sample_make(&made, &plan, "train", index);
        size_t length = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
        uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length), *changed = malloc(length);
        assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
        assert_int_equal(parse_exact(record, length), FSH_OK);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                memcpy(changed, record, length);
                for (size_t b = 0; b < places[p].bytes; b++) {
                    changed[places[p].at + b] = (uint8_t)(values[v] >> 8 * b);
                }
                bool same = memcmp(changed, record, length) == 0;
                /* A payload may be shorter within its last 64 bytes. */
                bool length_at = places[p].at == 72 || places[p].at == 104;
                bool as_long = length_at && values[v] && values[v] < length &&
                               align_up(values[v]) == align_up(load_le64(record + places[p].at));
                if (parse_exact(changed, length) == FSH_OK && !same && !places[p].harmless && !as_long)
                    fail_msg("offset %zu: %llu is taken", places[p].at, (unsigned long long)values[v]);
            }
        }
        for (size_t cut = 0; cut < length; cut++) {
            assert_int_not_equal(parse_exact(record, cut), FSH_OK);
        }
        sample_free(&made);
        free(record);
        free(changed);
    }
}

/* A record whose payloads were put to their places beforehand, in memory that held something else, is the
 * same. */
TEST(test_payloads_that_lie_in_place_make_the_same_record)
{
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS};
    for (uint64_t index = 0; index < 8; index++) {
        MadeSample made;
        FshError error = {0};
        sample_make(&made, &plan, "train", index);
        const size_t length = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
        uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length),
                *in_place = aligned_alloc(FSH_ALIGNMENT, length);
        assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
        FshSample sample = made.sample;
        memset(in_place, 0xA5, length);
        for (unsigned i = 0; i < sample.field_count; i++) {
            FshField *field = &sample.fields[i];
            uint8_t *place = in_place + fsh_record_payload_offset(&sample, i);
            assert_memory_equal(record + (place - in_place), field->data, field->bytes);
            field->data = memcpy(place, field->data, field->bytes);
        }
        assert_ok(fsh_record_build(&sample, FSH_RECORD_ALIGNED, in_place, length, &error), &error);
        assert_memory_equal(record, in_place, length);
        sample_free(&made);
        free(record);
        free(in_place);
    }
}

/* Numbers that contradict each other only in a sum that wraps, or not at all but for the layout being
 * tight. */
TEST(test_forged_layouts_are_refused)
{
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS};
    MadeSample made;
    FshError error = {0};
    sample_make(&made, &plan, "train", 1); /* two fields that are not raw: their lengths are free */
    size_t length = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
    uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length), *forged = calloc(1, length + 64);
    assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
    uint64_t header_bytes = load_le32(record + 24);

    memcpy(forged, record, length);
    store_le64(forged + 72, UINT64_MAX - 63); /* ends 64 bytes before it begins */
    store_le64(forged + 96, header_bytes - 64);
    store_le64(forged + 104, length - header_bytes + 64);
    assert_int_equal(parse_exact(forged, length), FSH_ERR_CORRUPT);

    /* 64 bytes of nothing between the header and the first payload. */
    memset(forged, 0, length + 64);
    memcpy(forged, record, header_bytes);
    memcpy(forged + header_bytes + 64, record + header_bytes, length - header_bytes);
    store_le64(forged + 8, length + 64);
    store_le32(forged + 24, (uint32_t)header_bytes + 64);
    store_le64(forged + 64, load_le64(record + 64) + 64);
    store_le64(forged + 96, load_le64(record + 96) + 64);
    assert_int_equal(parse_exact(forged, length + 64), FSH_ERR_CORRUPT);

    /* And after the last. */
    memset(forged, 0, length + 64);
    memcpy(forged, record, length);
    store_le64(forged + 8, length + 64);
    assert_int_equal(parse_exact(forged, length + 64), FSH_ERR_CORRUPT);
    free(record);
    free(forged);
    sample_free(&made);
}

TEST(test_reserved_bytes_are_of_a_later_version)
{
    MadeSample made;
    FshError error = {0};
    FshSample sample;
    RecordHead head;
    sample_make(&made, &small_plan, "train", 1);
    size_t length = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
    uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length);
    static const size_t reserved[] = {31, 36, 63, 64 + 27, 64 + 30, 64 + 31};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
        record[reserved[i]] = 1;
        assert_int_equal(fsh_record_parse(record, length, FSH_RECORD_ALIGNED, &sample, &head, &error),
                         FSH_ERR_UNSUPPORTED);
    }
    assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
    record[64 + 26] = FSH_COMPRESSION_ZSTD + 1;
    assert_int_equal(fsh_record_parse(record, length, FSH_RECORD_ALIGNED, &sample, &head, &error),
                     FSH_ERR_UNSUPPORTED);
    free(record);
    sample_free(&made);
}

/* What stands in the padding is covered by the CRC, but a writer with the wrong idea could put anything
 * there. */
TEST(test_padding_that_is_not_zero_is_corrupt)
{
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS};
    MadeSample made;
    FshError error = {0};
    sample_make(&made, &plan, "train", 1);
    size_t length = fsh_record_bytes(&made.sample, FSH_RECORD_ALIGNED);
    uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length);
    assert_ok(fsh_record_build(&made.sample, FSH_RECORD_ALIGNED, record, length, &error), &error);
    FshSample sample;
    RecordHead head;
    assert_ok(fsh_record_parse(record, length, FSH_RECORD_ALIGNED, &sample, &head, &error), &error);
    assert_ok(fsh_record_verify(record, &sample, &head, &error), &error);
    const uint8_t *data[2] = {sample.fields[0].data, sample.fields[1].data};
    const size_t places[] = {(size_t)(data[0] - record) - 1,                      /* after the source paths */
                             (size_t)(data[0] - record) + sample.fields[0].bytes, /* between the payloads */
                             length - 1,                                          /* at the end */
                             (size_t)((const uint8_t *)sample.key - record) + 1,  /* a zero byte in the key */
                             (size_t)((const uint8_t *)sample.fields[1].source - record) +
                                 1}; /* and in a source path */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t kept = record[places[i]];
        record[places[i]] = i < 3 ? 1 : 0;
        store_le32(record + 4, fsh_crc32c(0, record + 8, length - 8));
        assert_ok(fsh_record_parse(record, length, FSH_RECORD_ALIGNED, &sample, &head, &error), &error);
        if (fsh_record_verify(record, &sample, &head, &error) != FSH_ERR_CORRUPT)
            fail_msg("place %zu is taken", i);
        record[places[i]] = kept;
    }
    free(record);
    sample_free(&made);
}

/* ---- the compact form ---- */

static uint8_t *build_compact(const FshSample *sample, size_t *length)
{
    FshError error = {0};
    *length = fsh_record_bytes(sample, FSH_RECORD_COMPACT);
    uint8_t *record = malloc(*length);
    assert_ok(fsh_record_build(sample, FSH_RECORD_COMPACT, record, *length, &error), &error);
    return record;
}

/* What is read is what was written, and takes no more than what fshard(5) says. */
TEST(test_a_compact_record_holds_all_of_a_sample)
{
    const DatasetPlan plans[] = {{.kind = FSH_KIND_CLASSES}, {.kind = FSH_KIND_PAIRS}};
    for (uint64_t index = 0; index < 20; index++) {
        MadeSample made;
        FshSample sample;
        RecordHead head;
        FshError error = {0};
        size_t length = 0, contents = 0;
        sample_make(&made, &plans[index % 2], "train", index);
        made.sample.fields[0].width *= made.sample.fields[0].codec == FSH_CODEC_RAW ? 1 : 100000;
        uint8_t *record = build_compact(&made.sample, &length);
        assert_ok(fsh_record_parse(record, length, FSH_RECORD_COMPACT, &sample, &head, &error), &error);
        assert_ok(fsh_record_verify(record, &sample, &head, &error), &error);
        assert_int_equal(head.record_bytes, length);
        assert_int_equal(head.label, made.sample.label);
        assert_int_equal(sample.label, made.sample.label);
        assert_int_equal(sample.key_bytes, made.sample.key_bytes);
        assert_memory_equal(sample.key, made.key, sample.key_bytes);
        assert_int_equal(sample.field_count, made.sample.field_count);
        for (unsigned i = 0; i < sample.field_count; i++) {
            const FshField *read = &sample.fields[i], *wrote = &made.sample.fields[i];
            assert_int_equal(read->bytes, wrote->bytes);
            assert_memory_equal(read->data, wrote->data, wrote->bytes);
            assert_int_equal(read->unpacked_bytes, wrote->bytes);
            assert_int_equal(read->width, wrote->width);
            assert_int_equal(read->height, wrote->height);
            assert_int_equal(read->channels, wrote->channels);
            assert_int_equal(read->codec, wrote->codec);
            assert_int_equal(read->source_bytes, wrote->source_bytes);
            assert_memory_equal(read->source, wrote->source, wrote->source_bytes);
            contents += wrote->bytes + wrote->source_bytes;
        }
        if (!made.sample.fields[0].source_bytes) /* else the key stands in the path */
            contents += sample.key_bytes;
        assert_true(length <= contents + 12 + 12 * (size_t)sample.field_count);
        /* The other form is none. */
        assert_int_equal(fsh_record_parse(record, length, FSH_RECORD_ALIGNED, &sample, &head, &error),
                         FSH_ERR_CORRUPT);
        sample_free(&made);
        free(record);
    }
}

/* Every value of every byte, in memory of exactly that length; and what is taken can be built again to the
 * same bytes: no record has two forms. */
TEST(test_no_byte_of_a_compact_record_leads_outside)
{
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS, .payload_bytes_max = 40};
    for (uint64_t index = 0; index < 5; index++) {
        MadeSample made;
        size_t length = 0, refused = 0;
        sample_make(&made, &plan, "train", index);
        uint8_t *record = build_compact(&made.sample, &length);
        for (size_t cut = 0; cut < length; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1);
            FshSample sample;
            RecordHead head;
            memcpy(exact, record, cut);
            assert_int_equal(fsh_record_parse(exact, cut, FSH_RECORD_COMPACT, &sample, &head, NULL),
                             FSH_ERR_CORRUPT);
            free(exact);
        }
        for (size_t at = 0; at < length; at++) {
            for (unsigned value = 0; value < 256; value++) {
                uint8_t kept = record[at];
                FshSample sample;
                RecordHead head;
                record[at] = (uint8_t)value;
                if (fsh_record_parse(record, length, FSH_RECORD_COMPACT, &sample, &head, NULL)) {
                    refused++;
                } else {
                    assert_true(head.record_bytes <= length);
                    head.crc = fsh_crc32c(0, record + RECORD_CRC_BEGIN,
                                          (size_t)head.record_bytes - RECORD_CRC_BEGIN);
                    if (fsh_record_verify(record, &sample, &head, NULL) == FSH_OK) {
                        size_t again_bytes = 0;
                        uint8_t *again = build_compact(&sample, &again_bytes);
                        assert_int_equal(again_bytes, head.record_bytes);
                        assert_memory_equal(again + RECORD_CRC_BEGIN, record + RECORD_CRC_BEGIN,
                                            again_bytes - RECORD_CRC_BEGIN);
                        free(again);
                    }
                }
                record[at] = kept;
            }
        }
        assert_true(refused > 1000);
        sample_free(&made);
        free(record);
    }
}

TEST(test_numbers_that_are_too_long_or_too_large_are_refused)
{
    static const struct {
        /* after the checksum: label and fields, key_bytes, key_place, one field, key, payload */
        const char *numbers;
        size_t bytes;
        FshStatus status;
    } records[] = {
        {"\x08\x01\x00\x02\x01\x01\x01\x00kp", 10, FSH_OK},
        {"\xFF\xFF\xFF\xFF\x0F\x01\x00", 7, FSH_ERR_CORRUPT}, /* eight fields, of which none is there */
        {"\xF8\xFF\xFF\xFF\x0F\x01\x00\x02\x01\x01\x01\x00kp", 14, FSH_OK},          /* label 2^29 - 2 */
        {"\x80\x80\x80\x80\x10\x01\x00\x02\x01\x01\x01\x00kp", 14, FSH_ERR_CORRUPT}, /* one more */
        {"\x88\x00\x01\x00\x02\x01\x01\x01\x00kp", 11, FSH_ERR_CORRUPT},             /* 8 in two bytes */
        {"\x08\x01\x00\x02\xFF\xFF\xFF\xFF\x0F\x01\x01\x00kp", 14, FSH_OK},          /* the greatest width */
        {"\x08\x01\x00\x02\x80\x80\x80\x80\x10\x01\x01\x00kp", 14, FSH_ERR_CORRUPT},
        {"\x08\x01\x00\x02\x80\x80\x80\x80\x80\x01\x01\x01\x00kp", 15, FSH_ERR_CORRUPT},
        {"\x08\x00\x00\x02\x01\x01\x01\x00kp", 10, FSH_ERR_CORRUPT},         /* no key */
        {"\x08\x01\x01\x02\x01\x01\x01\x00kp", 10, FSH_ERR_CORRUPT},         /* a key in no path */
        {"\x08\x01\x02\x02\x01\x01\x01\x01kp", 10, FSH_ERR_CORRUPT},         /* and past its end */
        {"\x08\x01\x00\x02\x01\x01\x00\x00kp", 10, FSH_ERR_CORRUPT},         /* an empty field */
        {"\x08\x01\x00\x22\x01\x01\x01\x01\x00kp", 11, FSH_ERR_UNSUPPORTED}, /* compression 2 */
        {"\x08\x01\x00\x0A\x01\x01\x01\x00kp", 10, FSH_ERR_UNSUPPORTED},     /* codec 10 */
        {"\x08\x01\x00\x12\x01\x01\x01\x00\x00kp", 11, FSH_ERR_CORRUPT},     /* compressed from nothing */
        {"\x08\x01\x00\x01\x02\x01\x01\x00kp", 10, FSH_ERR_CORRUPT},         /* two raw pixels in a byte */
    };
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        const size_t length = 8 + records[i].bytes;
        uint8_t *record = malloc(length);
        FshSample sample;
        RecordHead head;
        memcpy(record, "FRec\0\0\0\0", 8); // NOLINT(bugprone-not-null-terminated-result): it has its length
        memcpy(record + 8, records[i].numbers, records[i].bytes);
        FshStatus status = fsh_record_parse(record, length, FSH_RECORD_COMPACT, &sample, &head, NULL);
        if (status != records[i].status)
            fail_msg("record %zu: status %d", i, (int)status);
        free(record);
    }
}

/* The key is looked for in the path; wherever it could stand twice there is one place for it. */
TEST(test_a_key_elsewhere_than_where_a_writer_puts_it_is_corrupt)
{
    static const uint8_t payload[] = {1};
    FshSample sample = {.label = 0, .key = "ab", .key_bytes = 2, .field_count = 1};
    RecordHead head;
    FshError error = {0};
    size_t length = 0;
    sample.fields[0] = (FshField){.data = payload,
                                  .bytes = 1,
                                  .width = 1,
                                  .height = 1,
                                  .channels = 3,
                                  .codec = FSH_CODEC_JPEG,
                                  .source = "ab/ab.jpg",
                                  .source_bytes = 9};
    uint8_t *record = build_compact(&sample, &length);
    assert_int_equal(record[10], 1); /* the first place */
    record[10] = 4;
    store_le32(record + 4, fsh_crc32c(0, record + 8, length - 8));
    assert_ok(fsh_record_parse(record, length, FSH_RECORD_COMPACT, &sample, &head, &error), &error);
    assert_int_equal(fsh_record_verify(record, &sample, &head, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "key");
    free(record);
}
