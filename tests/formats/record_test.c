#include <stdlib.h>
#include <string.h>

#include "formats/internal.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.train_count = 5};

/* Parses a copy of exactly `length` bytes, so that a sanitizer sees every read outside. */
static FshStatus parse_exact(const uint8_t *bytes, size_t length)
{
    FshSample sample;
    RecordHead head;
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, bytes, length);
    FshStatus status = fsh_record_parse(exact, length, &sample, &head, NULL);
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

static void test_hostile_lengths_in_a_record_are_refused(void **state)
{
    (void)state;
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
    static const struct {
        size_t at, bytes;
    } places[] = {{8, 8},  {16, 8}, {24, 4},  {28, 2},  {30, 1},  {31, 1},  {40, 8},  {64, 8},
                  {72, 8}, {80, 4}, {84, 4},  {88, 1},  {89, 1},  {90, 1},  {91, 1},  {92, 2},
                  {94, 2}, {96, 8}, {104, 8}, {112, 4}, {116, 4}, {120, 1}, {121, 1}, {124, 2}};
    const DatasetPlan plan = {.kind = FSH_KIND_PAIRS};
    for (uint64_t index = 0; index < 4; index++) {
        MadeSample made;
        FshError error = {0};
        sample_make(&made, &plan, "train", index);
        size_t length = fsh_record_bytes(&made.sample);
        uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length), *changed = malloc(length);
        assert_ok(fsh_record_build(&made.sample, record, length, &error), &error);
        assert_int_equal(parse_exact(record, length), FSH_OK);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                memcpy(changed, record, length);
                for (size_t b = 0; b < places[p].bytes; b++) {
                    changed[places[p].at + b] = (uint8_t)(values[v] >> 8 * b);
                }
                (void)parse_exact(changed, length);
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

static void test_reserved_bytes_are_of_a_later_version(void **state)
{
    (void)state;
    MadeSample made;
    FshError error = {0};
    FshSample sample;
    RecordHead head;
    sample_make(&made, &small_plan, "train", 1);
    size_t length = fsh_record_bytes(&made.sample);
    uint8_t *record = aligned_alloc(FSH_ALIGNMENT, length);
    static const size_t reserved[] = {31, 32, 63, 64 + 26, 64 + 27, 64 + 30, 64 + 31};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        assert_ok(fsh_record_build(&made.sample, record, length, &error), &error);
        record[reserved[i]] = 1;
        assert_int_equal(fsh_record_parse(record, length, &sample, &head, &error), FSH_ERR_UNSUPPORTED);
    }
    free(record);
    sample_free(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_lengths_in_a_record_are_refused),
        cmocka_unit_test(test_reserved_bytes_are_of_a_later_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
