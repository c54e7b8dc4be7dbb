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

/* What part.c reads. */
static const char *const variables[] = {"SLURM_ARRAY_TASK_ID",
                                        "SLURM_ARRAY_TASK_MIN",
                                        "SLURM_ARRAY_TASK_MAX",
                                        "SLURM_ARRAY_TASK_STEP",
                                        "SLURM_ARRAY_TASK_COUNT",
                                        "JOB_COMPLETION_INDEX",
                                        "BATCH_TASK_INDEX",
                                        "BATCH_TASK_COUNT",
                                        "AWS_BATCH_JOB_ARRAY_INDEX",
                                        "AWS_BATCH_JOB_ARRAY_SIZE",
                                        "PBS_ARRAY_INDEX",
                                        "PBS_ARRAYID",
                                        "SGE_TASK_ID",
                                        "SGE_TASK_FIRST",
                                        "SGE_TASK_LAST",
                                        "SGE_TASK_STEPSIZE",
                                        "LSB_JOBINDEX",
                                        "LSB_JOBINDEX_END",
                                        "LSB_JOBINDEX_STEP"};

/* Makes the environment that of a task: "NAME=value NAME=value", and nothing else of the above. "": none. */
static void set_environment(const char *task)
{
    char *words = strdup(task), *rest = NULL;
    assert_non_null(words);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        assert_int_equal(unsetenv(variables[i]), 0);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = 0;
        assert_int_equal(setenv(word, equals + 1, 1), 0);
    }
    free(words);
}

/* Returns what Slurm sets for a task of first-last:step, as one text until the next call. */
static const char *slurm(const char *id, const char *first, const char *last, const char *step,
                         const char *count)
{
    static char text[256];
    (void)snprintf(text, sizeof text,
                   "SLURM_ARRAY_TASK_ID=%s SLURM_ARRAY_TASK_MIN=%s SLURM_ARRAY_TASK_MAX=%s "
                   "SLURM_ARRAY_TASK_STEP=%s SLURM_ARRAY_TASK_COUNT=%s",
                   id, first, last, step, count);
    return text;
}

static void assert_part(const char *environment, const char *text, Part expected)
{
    Part part = {0};
    FshError error = {0};
    set_environment(environment);
    const FshStatus status = part_parse("--part", text, &part, &error);
    if (status || part.index != expected.index || part.count != expected.count)
        fail_msg("%s: --part %s is %u/%u (%s), not %u/%u", environment, text, part.index, part.count,
                 error.message, expected.index, expected.count);
    set_environment("");
}

static void assert_no_part(const char *environment, const char *text, const char *message)
{
    Part part = {7, 7};
    FshError error = {0};
    set_environment(environment);
    assert_int_equal(part_parse("--part", text, &part, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "--part: ");
    assert_contains(error.message, message);
    assert_int_equal(part.count, 0);
    set_environment("");
}

TEST(test_auto_is_the_task_of_a_slurm_array)
{
    assert_part(slurm("1", "1", "8", "1", "8"), "auto", (Part){1, 8});
    assert_part(slurm("8", "1", "8", "1", "8"), "auto", (Part){8, 8});
    assert_part(slurm("0", "0", "7", "1", "8"), "auto", (Part){1, 8});
    assert_part(slurm("5", "5", "5", "1", "1"), "auto", (Part){1, 1});
    assert_part(slurm("8", "0", "12", "4", "4"), "auto", (Part){3, 4});
    assert_part(slurm("8", "0", "15", "4", "4"), "auto",
                (Part){3, 4}); /* --array=0-15:4, were MAX as written */
    assert_part(slurm("4294967295", "4294967294", "4294967295", "1", "2"), "auto", (Part){2, 2});
    assert_part("SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=4", "auto", (Part){3, 4});
    assert_part(slurm("3", "1", "8", "1", "8"), "auto/8", (Part){3, 8});
}

TEST(test_auto_is_the_task_of_other_arrays)
{
    static const struct {
        const char *environment, *text;
        Part part;
    } cases[] = {
        {"JOB_COMPLETION_INDEX=0", "auto/8", {1, 8}},
        {"JOB_COMPLETION_INDEX=7", "auto/8", {8, 8}},
        {"AWS_BATCH_JOB_ARRAY_INDEX=0 AWS_BATCH_JOB_ARRAY_SIZE=4", "auto", {1, 4}},
        {"AWS_BATCH_JOB_ARRAY_INDEX=3 AWS_BATCH_JOB_ARRAY_SIZE=4", "auto", {4, 4}},
        {"AWS_BATCH_JOB_ARRAY_INDEX=3 AWS_BATCH_JOB_ARRAY_SIZE=4", "auto/4", {4, 4}},
        {"AWS_BATCH_JOB_ARRAY_INDEX=3", "auto/4", {4, 4}}, /* older ones set no size */
        {"BATCH_TASK_INDEX=0 BATCH_TASK_COUNT=2", "auto", {1, 2}},
        {"BATCH_TASK_INDEX=1 BATCH_TASK_COUNT=2", "auto", {2, 2}},
        {"PBS_ARRAY_INDEX=1", "auto/3", {1, 3}},
        {"PBS_ARRAY_INDEX=3", "auto/3", {3, 3}},
        {"PBS_ARRAYID=2", "auto/3", {2, 3}},
        {"SGE_TASK_ID=2 SGE_TASK_FIRST=2 SGE_TASK_LAST=10 SGE_TASK_STEPSIZE=4", "auto", {1, 3}},
        {"SGE_TASK_ID=10 SGE_TASK_FIRST=2 SGE_TASK_LAST=11 SGE_TASK_STEPSIZE=4", "auto", {3, 3}},
        {"LSB_JOBINDEX=1 LSB_JOBINDEX_END=10 LSB_JOBINDEX_STEP=1", "auto", {1, 10}},
        {"LSB_JOBINDEX=9 LSB_JOBINDEX_END=10 LSB_JOBINDEX_STEP=2", "auto", {5, 5}},
        {"LSB_JOBINDEX=9", "auto/9", {9, 9}},
        /* one within another: that which tells counts is believed */
        {"JOB_COMPLETION_INDEX=5 SGE_TASK_ID=1 SGE_TASK_FIRST=1 SGE_TASK_LAST=2 SGE_TASK_STEPSIZE=1",
         "auto",
         {1, 2}},
        {"PBS_ARRAYID=0 BATCH_TASK_INDEX=0 BATCH_TASK_COUNT=2", "auto", {1, 2}},
        {"PBS_ARRAYID=2 PBS_ARRAY_INDEX=2", "auto/2", {2, 2}},
        /* no array's job */
        {"SGE_TASK_ID=undefined LSB_JOBINDEX=0 JOB_COMPLETION_INDEX=1", "auto/2", {2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_part(cases[i].environment, cases[i].text, cases[i].part);
}

TEST(test_auto_is_refused_where_the_slurm_array_is_none)
{
    assert_no_part("", "auto",
                   "none of these says that this is one: SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX");
    assert_no_part("", "auto/8", "LSB_JOBINDEX; elsewhere give the part as 3/8");
    assert_no_part("SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MAX=8", "auto", "SLURM_ARRAY_TASK_MIN is not set");
    assert_no_part("SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=1", "auto", "SLURM_ARRAY_TASK_MAX is not set");
    assert_no_part(slurm("", "1", "8", "1", "8"), "auto", "SLURM_ARRAY_TASK_ID is '', which is no number");
    assert_no_part(slurm("1", "one", "8", "1", "8"), "auto", "SLURM_ARRAY_TASK_MIN is 'one'");
    assert_no_part(slurm("1", "1", "8", "-1", "8"), "auto", "SLURM_ARRAY_TASK_STEP is '-1'");
    assert_no_part(slurm("1", "1", "4294967296", "1", "8"), "auto", "SLURM_ARRAY_TASK_MAX is '4294967296'");
    assert_no_part(slurm("0", "1", "8", "1", "8"), "auto", "0 is none of 1-8:1");
    assert_no_part(slurm("9", "1", "8", "1", "8"), "auto", "9 is none of 1-8:1");
    assert_no_part(slurm("3", "1", "9", "4", "3"), "auto", "3 is none of 1-9:4");
    assert_no_part(slurm("1", "1", "8", "0", "8"), "auto", "1 is none of 1-8:0");
    assert_no_part(slurm("1", "8", "1", "1", "8"), "auto", "1 is none of 8-1:1");
    assert_no_part(slurm("3", "1", "7", "1", "3"), "auto",
                   "has 3 tasks, not all of 1-7:1"); /* --array=1,3,7 */
    assert_no_part(slurm("3", "1", "65537", "1", "65537"), "auto", "has 65537 tasks; at most 65536 parts");
    assert_no_part("SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=4294967295", "auto",
                   "has 4294967296 tasks");
    assert_no_part(slurm("3", "1", "8", "1", "8"), "auto/9", "'auto/9', but the Slurm array has 8 tasks");
}

TEST(test_half_an_array_or_two_that_differ_are_refused)
{
    static const struct {
        const char *environment, *text, *message;
    } cases[] = {
        {"JOB_COMPLETION_INDEX=0", "auto",
         "Kubernetes does not tell how many tasks its array (completionMode: Indexed) has; say it: auto/8"},
        {"PBS_ARRAY_INDEX=1", "auto", "PBS does not tell how many"},
        {"PBS_ARRAYID=1", "auto", "Torque does not tell how many"},
        {"AWS_BATCH_JOB_ARRAY_INDEX=1", "auto", "AWS Batch does not tell how many"},
        {"BATCH_TASK_INDEX=1", "auto", "Google Cloud Batch does not tell how many"},
        {"LSB_JOBINDEX=1", "auto", "LSF does not tell how many"},
        {"SGE_TASK_ID=1 SGE_TASK_LAST=2", "auto/2", "SGE_TASK_FIRST is not set"},
        {"SGE_TASK_ID=1 SGE_TASK_FIRST=1", "auto/2", "SGE_TASK_LAST is not set"},
        {"AWS_BATCH_JOB_ARRAY_SIZE=4", "auto", "none of these says that this is one"},
        {"SGE_TASK_ID=undefined LSB_JOBINDEX=0", "auto", "none of these says that this is one"},
        {"JOB_COMPLETION_INDEX=8", "auto/8", "JOB_COMPLETION_INDEX 8 is none of 0-7:1"},
        {"JOB_COMPLETION_INDEX=-1", "auto/8", "JOB_COMPLETION_INDEX is '-1'"},
        {"JOB_COMPLETION_INDEX=", "auto/8", "JOB_COMPLETION_INDEX is ''"},
        {"PBS_ARRAY_INDEX=0", "auto/8", "PBS_ARRAY_INDEX 0 is none of 1-8:1"}, /* qsub -J 0-7 */
        {"PBS_ARRAY_INDEX=9", "auto/8", "PBS_ARRAY_INDEX 9 is none of 1-8:1"},
        {"AWS_BATCH_JOB_ARRAY_INDEX=4 AWS_BATCH_JOB_ARRAY_SIZE=4", "auto", "4 is none of 0-3:1"},
        {"AWS_BATCH_JOB_ARRAY_INDEX=0 AWS_BATCH_JOB_ARRAY_SIZE=0", "auto", "0 is none of 0--1:1"},
        {"AWS_BATCH_JOB_ARRAY_INDEX=1 AWS_BATCH_JOB_ARRAY_SIZE=4", "auto/8",
         "'auto/8', but the AWS Batch array has 4 tasks"},
        {"BATCH_TASK_INDEX=2 BATCH_TASK_COUNT=two", "auto", "BATCH_TASK_COUNT is 'two'"},
        {"SGE_TASK_ID=3 SGE_TASK_FIRST=2 SGE_TASK_LAST=10 SGE_TASK_STEPSIZE=4", "auto",
         "3 is none of 2-10:4"},
        {"LSB_JOBINDEX=2 LSB_JOBINDEX_END=10 LSB_JOBINDEX_STEP=2", "auto", "2 is none of 1-10:2"},
        {"LSB_JOBINDEX=11 LSB_JOBINDEX_END=10", "auto", "11 is none of 1-10:1"},
        {"BATCH_TASK_INDEX=0 BATCH_TASK_COUNT=2 LSB_JOBINDEX=2 LSB_JOBINDEX_END=2", "auto",
         "BATCH_TASK_INDEX tells part 1/2 and LSB_JOBINDEX tells part 2/2"},
        {"PBS_ARRAYID=2 PBS_ARRAY_INDEX=1", "auto/2", "PBS_ARRAY_INDEX tells part 1/2 and PBS_ARRAYID"},
        {"JOB_COMPLETION_INDEX=0", "auto/0", "'auto/0' is no part"},
        {"JOB_COMPLETION_INDEX=0", "auto/65537", "'auto/65537' is no part"},
        {"JOB_COMPLETION_INDEX=0", "auto/", "'auto/' is no part"},
        {"JOB_COMPLETION_INDEX=0", "aut/8", "'aut/8' is no part"},
        {"JOB_COMPLETION_INDEX=0", "autos/8", "'autos/8' is no part"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_no_part(cases[i].environment, cases[i].text, cases[i].message);
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
