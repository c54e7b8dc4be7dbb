#include "tools/job/part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"

/* ---- which part ---- */

TEST(test_a_part_is_read_as_index_and_count)
{
    static const struct {
        const char *text;
        Part part;
    } cases[] = {{"1/1", {1, 1}},
                 {"3/8", {3, 8}},
                 {"8/8", {8, 8}},
                 {"65536/65536", {65536, 65536}},
                 {"01/02", {1, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Part part = {0};
        FshError error = {0};
        assert_ok(part_parse("--part", cases[i].text, &part, &error), &error);
        assert_int_equal(part.index, cases[i].part.index);
        assert_int_equal(part.count, cases[i].part.count);
    }
}

TEST(test_anything_else_is_refused)
{
    static const char *const texts[] = {"",
                                        "3",
                                        "/",
                                        "3/",
                                        "/8",
                                        "0/8",
                                        "9/8",
                                        "0/0",
                                        "1/65537",
                                        "-1/8",
                                        "+1/8",
                                        " 1/8",
                                        "1/8 ",
                                        "1/8/2",
                                        "a/b",
                                        "4294967297/4294967298",
                                        "1/4294967297",
                                        "Auto",
                                        "1.0/2"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Part part = {7, 7};
        FshError error = {0};
        char quoted[64];
        (void)snprintf(quoted, sizeof quoted, "--part: '%s' is no part", texts[i]);
        assert_int_equal(part_parse("--part", texts[i], &part, &error), FSH_ERR_USAGE);
        assert_contains(error.message, quoted);
        assert_int_equal(part.count, 0);
    }
}

/* Sets Slurm's variables; unsets those whose value is NULL. */
static void set_variables(const char *const values[5])
{
    static const char *const names[5] = {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN",
                                         "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP",
                                         "SLURM_ARRAY_TASK_COUNT"};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]), 0);
}

TEST(test_auto_is_the_task_of_a_slurm_array)
{
    static const struct {
        const char *values[5];
        Part part;
    } cases[] = {
        {{"1", "1", "8", "1", "8"}, {1, 8}},
        {{"8", "1", "8", "1", "8"}, {8, 8}},
        {{"0", "0", "7", "1", "8"}, {1, 8}},
        {{"5", "5", "5", "1", "1"}, {1, 1}},
        {{"8", "0", "12", "4", "4"}, {3, 4}},
        {{"8", "0", "15", "4", "4"}, {3, 4}}, /* --array=0-15:4, were MAX told as written */
        {{"3", "1", "4", NULL, NULL}, {3, 4}},
        {{"4294967295", "4294967294", "4294967295", "1", "2"}, {2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Part part = {0};
        FshError error = {0};
        set_variables(cases[i].values);
        assert_ok(part_parse("--part", "auto", &part, &error), &error);
        assert_int_equal(part.index, cases[i].part.index);
        assert_int_equal(part.count, cases[i].part.count);
    }
    set_variables((const char *const[5]){0});
}

TEST(test_auto_is_refused_where_the_array_is_none)
{
    static const struct {
        const char *values[5];
        const char *message;
    } cases[] = {
        {{NULL, NULL, NULL, NULL, NULL}, "SLURM_ARRAY_TASK_ID is not set"},
        {{"1", NULL, "8", "1", "8"}, "SLURM_ARRAY_TASK_MIN is not set"},
        {{"1", "1", NULL, "1", "8"}, "SLURM_ARRAY_TASK_MAX is not set"},
        {{"", "1", "8", "1", "8"}, "SLURM_ARRAY_TASK_ID is '', which is no number"},
        {{"1", "one", "8", "1", "8"}, "SLURM_ARRAY_TASK_MIN is 'one'"},
        {{"1", "1", "8", "-1", "8"}, "SLURM_ARRAY_TASK_STEP is '-1'"},
        {{"1", "1", "4294967296", "1", "8"}, "SLURM_ARRAY_TASK_MAX is '4294967296'"},
        {{"0", "1", "8", "1", "8"}, "0 is none of 1-8:1"},
        {{"9", "1", "8", "1", "8"}, "9 is none of 1-8:1"},
        {{"3", "1", "9", "4", "3"}, "3 is none of 1-9:4"},
        {{"1", "1", "8", "0", "8"}, "1 is none of 1-8:0"},
        {{"1", "8", "1", "1", "8"}, "1 is none of 8-1:1"},
        {{"3", "1", "7", "1", "3"}, "has 3 tasks, not all of 1-7:1"}, /* --array=1,3,7 */
        {{"3", "1", "65537", "1", "65537"}, "has 65537 tasks; at most 65536 parts"},
        {{"3", "0", "4294967295", "1", NULL}, "has 4294967296 tasks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Part part = {0};
        FshError error = {0};
        set_variables(cases[i].values);
        assert_int_equal(part_parse("--part", "auto", &part, &error), FSH_ERR_USAGE);
        assert_contains(error.message, "--part: ");
        assert_contains(error.message, cases[i].message);
        assert_int_equal(part.count, 0);
    }
    set_variables((const char *const[5]){0});
}

/* ---- what is in it ---- */

typedef struct Items {
    uint64_t *bytes, count;
} Items;

static PartScan *scanned(const Items *items)
{
    PartScan *scan = malloc(sizeof *scan);
    assert_non_null(scan);
    memset(scan, 0xff, sizeof *scan); /* init must not need it zeroed */
    part_scan_init(scan);
    for (uint64_t i = 0; i < items->count; i++)
        part_scan_add(scan, items->bytes[i]);
    return scan;
}

/* Asserts that parts are disjoint, complete, in order, and that each part's bytes differ from its share by at
 * most `slack`. */
static void assert_parts(const PartScan *scan, const Items *items, uint32_t count, uint64_t slack)
{
    double total = 0;
    for (uint64_t i = 0; i < items->count; i++)
        total += (double)(items->bytes[i] ? items->bytes[i] : 1);
    uint64_t next = 0;
    for (uint32_t index = 1; index <= count; index++) {
        uint64_t begin = UINT64_MAX, end = UINT64_MAX;
        part_scan_range(scan, (Part){index, count}, &begin, &end);
        assert_true(begin == next && end >= begin);
        next = end;
        double bytes = 0;
        for (uint64_t i = begin; i < end; i++)
            bytes += (double)(items->bytes[i] ? items->bytes[i] : 1);
        double difference = bytes - total / count;
        assert_true((difference < 0 ? -difference : difference) <= (double)slack + 1); /* 1: whole bytes */
    }
    assert_int_equal(next, items->count);
}

static uint64_t largest(const Items *items)
{
    uint64_t most = 1;
    for (uint64_t i = 0; i < items->count; i++)
        most = items->bytes[i] > most ? items->bytes[i] : most;
    return most;
}

/* Returns the bytes of the `length` neighbours that have most. */
static uint64_t largest_run(const Items *items, uint64_t length)
{
    uint64_t most = 0, sum = 0;
    for (uint64_t i = 0; i < items->count; i++) {
        sum += items->bytes[i] ? items->bytes[i] : 1;
        if (i >= length)
            sum -= items->bytes[i - length] ? items->bytes[i - length] : 1;
        most = sum > most ? sum : most;
    }
    return most;
}

TEST(test_parts_are_disjoint_complete_and_balanced_within_an_item)
{
    static const uint32_t parts[] = {1, 2, 3, 7, 8, 64, 1000, 65536};
    Random random;
    random_start(&random, 9, 0);
    for (int round = 0; round < 40; round++) {
        uint64_t bytes[3000];
        Items items = {bytes, random_below(&random, round % 2 ? 3000 : 20)};
        for (uint64_t i = 0; i < items.count; i++)
            bytes[i] = random_below(&random, 10) ? random_below(&random, 200000) : 0;
        PartScan *scan = scanned(&items);
        assert_int_equal(scan->count, items.count);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            assert_parts(scan, &items, parts[i], largest(&items));
        free(scan);
    }
}

TEST(test_equal_items_are_dealt_out_evenly)
{
    uint64_t bytes[10] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    const Items items = {bytes, 10};
    static const uint64_t ends[] = {3, 7, 10};
    PartScan *scan = scanned(&items);
    for (uint32_t index = 1; index <= 3; index++) {
        uint64_t begin = 0, end = 0;
        part_scan_range(scan, (Part){index, 3}, &begin, &end);
        assert_int_equal(begin, index == 1 ? 0 : ends[index - 2]);
        assert_int_equal(end, ends[index - 1]);
    }
    free(scan);
}

TEST(test_of_two_borders_as_near_the_lower_is_taken)
{
    uint64_t bytes[3] = {2, 2, 2}, begin = 9, end = 9;
    const Items items = {bytes, 3};
    PartScan *scan = scanned(&items);
    part_scan_range(scan, (Part){1, 2}, &begin, &end);
    assert_int_equal(begin, 0);
    assert_int_equal(end, 1);
    free(scan);
}

TEST(test_one_giant_item_is_in_one_part_alone)
{
    for (uint64_t giant = 0; giant < 100; giant++) {
        uint64_t bytes[100];
        const Items items = {bytes, 100};
        for (uint64_t i = 0; i < items.count; i++)
            bytes[i] = i == giant ? UINT64_C(1) << 40 : 1000;
        PartScan *scan = scanned(&items);
        assert_parts(scan, &items, 8, bytes[giant]);
        int with_giant = 0, with_others = 0;
        for (uint32_t index = 1; index <= 8; index++) {
            uint64_t begin = 0, end = 0;
            part_scan_range(scan, (Part){index, 8}, &begin, &end);
            bool has = begin <= giant && giant < end;
            with_giant += has;
            with_others += !has && end > begin;
            assert_true(!has || end - begin == 1);
        }
        assert_int_equal(with_giant, 1);
        assert_true(with_others <= 2); /* those before, those after */
        free(scan);
    }
}

TEST(test_empty_items_are_shared_out_too)
{
    uint64_t bytes[800] = {0};
    const Items items = {bytes, 800};
    PartScan *scan = scanned(&items);
    for (uint32_t index = 1; index <= 8; index++) {
        uint64_t begin = 0, end = 0;
        part_scan_range(scan, (Part){index, 8}, &begin, &end);
        assert_int_equal(end - begin, 100);
    }
    free(scan);
}

TEST(test_no_part_is_all_of_it_and_nothing_has_empty_parts)
{
    uint64_t bytes[3] = {1, 2, 3}, begin = 9, end = 9;
    const Items items = {bytes, 3}, none = {bytes, 0};
    PartScan *scan = scanned(&items);
    part_scan_range(scan, (Part){0}, &begin, &end);
    assert_int_equal(begin, 0);
    assert_int_equal(end, 3);
    free(scan);
    scan = scanned(&none);
    assert_parts(scan, &none, 5, 0);
    free(scan);
}

/* Around each doubling of the stride, the scan holds what it would if it had known. */
TEST(test_many_items_are_balanced_within_a_stride)
{
    static const uint64_t counts[] = {
        PART_SCAN_STEPS - 1, PART_SCAN_STEPS,         PART_SCAN_STEPS + 1,     2 * PART_SCAN_STEPS - 1,
        2 * PART_SCAN_STEPS, 2 * PART_SCAN_STEPS + 1, 5 * PART_SCAN_STEPS + 3, 16 * PART_SCAN_STEPS + 1};
    static const uint64_t strides[] = {1, 1, 2, 2, 2, 4, 8, 32};
    Random random;
    random_start(&random, 10, 0);
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++) {
        Items items = {malloc(counts[at] * sizeof *items.bytes), counts[at]};
        assert_non_null(items.bytes);
        for (uint64_t i = 0; i < items.count; i++)
            items.bytes[i] = random_below(&random, 200000);
        PartScan *scan = scanned(&items);
        assert_int_equal(scan->stride, strides[at]);
        uint64_t sum = 0;
        for (uint64_t i = 0; i < items.count; i++) {
            if (i % scan->stride == 0)
                assert_int_equal(scan->bytes_before[i / scan->stride], sum);
            sum += items.bytes[i] ? items.bytes[i] : 1;
        }
        assert_int_equal(scan->sums_count, (items.count + scan->stride - 1) / scan->stride);
        assert_int_equal(scan->bytes, sum);
        static const uint32_t parts[] = {1, 3, 8, 1000};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            assert_parts(scan, &items, parts[i], largest_run(&items, scan->stride));
        free(scan);
        free(items.bytes);
    }
}

TEST(test_sizes_beyond_64_bits_in_all_lose_no_item)
{
    uint64_t bytes[6] = {UINT64_MAX / 2, 5, UINT64_MAX / 2, UINT64_MAX, 7, UINT64_MAX};
    const Items items = {bytes, 6};
    PartScan *scan = scanned(&items);
    assert_true(scan->bytes == UINT64_MAX && scan->bytes_before[3] == UINT64_MAX);
    uint64_t next = 0;
    for (uint32_t index = 1; index <= 65536; index++) {
        uint64_t begin = 0, end = 0;
        part_scan_range(scan, (Part){index, 65536}, &begin, &end);
        assert_true(begin == next && end >= begin);
        next = end;
    }
    assert_int_equal(next, 6);
    free(scan);
}
