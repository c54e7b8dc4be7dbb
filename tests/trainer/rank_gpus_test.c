/* The value of --gpus: a number, all, or a list of GPUs. */
#include "tests/support/support.h"
#include "trainer/ranks/rank_gpus.h"

#include <stdlib.h>

/* Asserts which GPUs the ranks take where there are `there`. */
static void expect_gpus(const char *text, int there, int count, const int *numbers)
{
    RankGpus gpus;
    FshError error = {0};
    assert_ok(rank_gpus_read(&gpus, text, &error), &error);
    assert_ok(rank_gpus_settle(&gpus, there, &error), &error);
    assert_int_equal(gpus.count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(gpus.numbers[i], numbers[i]);
}

TEST(test_ranks_take_the_gpus_of_a_number_or_a_list)
{
    expect_gpus("3", 4, 3, (int[]){0, 1, 2});
    expect_gpus("all", 2, 2, (int[]){0, 1});
    expect_gpus("5,0,2", 6, 3, (int[]){5, 0, 2});
    expect_gpus("2,", 3, 1, (int[]){2});
    expect_gpus("0,", 1, 1, (int[]){0});
}

TEST(test_all_is_no_more_than_a_run_may_have)
{
    RankGpus gpus;
    assert_int_equal(rank_gpus_read(&gpus, "all", NULL), FSH_OK);
    assert_int_equal(rank_gpus_settle(&gpus, 1000, NULL), FSH_OK);
    assert_int_equal(gpus.count, RANKS_MAX);
    assert_int_equal(gpus.numbers[RANKS_MAX - 1], RANKS_MAX - 1);
}

TEST(test_a_gpu_that_is_left_out_takes_no_rank)
{
    RankGpus gpus;
    assert_int_equal(rank_gpus_read(&gpus, "4", NULL), FSH_OK);
    assert_int_equal(rank_gpus_settle(&gpus, 4, NULL), FSH_OK);
    rank_gpus_leave_out(&gpus, 1);
    rank_gpus_leave_out(&gpus, 2);
    assert_int_equal(gpus.count, 2);
    assert_int_equal(gpus.numbers[0], 0);
    assert_int_equal(gpus.numbers[1], 2);
    assert_true(gpus.listed);
}

static void expect_refused(const char *text, FshStatus expected, const char *says)
{
    RankGpus gpus;
    FshError error = {0};
    FshStatus status = rank_gpus_read(&gpus, text, &error);
    if (!status)
        status = rank_gpus_settle(&gpus, 4, &error);
    if (status != expected)
        fail_msg("--gpus %s: status %d (%s)", text, status, error.message);
    assert_contains(error.message, says);
}

TEST(test_what_is_no_list_of_gpus_is_refused)
{
    static const char *const none[] = {"", "-1", "two", "+2", " 2", "2 ", "257", "99999", "1e1", "0x2"};
    static const char *const lists[] = {",",     ",1",  "0,,2",  "0, 1",   "0,-1",
                                        "0,2,,", "0,x", "0;1,2", "0,99999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        expect_refused(none[i], FSH_ERR_USAGE, "' is neither a number from 1 to 256, nor all, nor a list");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        expect_refused(lists[i], FSH_ERR_USAGE, "' is no list: ");
    expect_refused("0", FSH_ERR_USAGE, "GPU 0 alone is --gpus 0, ");
    expect_refused("0,2,0", FSH_ERR_USAGE, "'0,2,0' names GPU 0 twice");
}

TEST(test_a_gpu_that_is_not_there_is_named)
{
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    expect_refused("5", FSH_ERR_MISMATCH, "--gpus: 5, and there are 4 that this process may use");
    expect_refused("0,4", FSH_ERR_MISMATCH, "--gpus: GPU 4 is wanted (the first is 0), and there are 4");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3b", 1);
    expect_refused("9", FSH_ERR_MISMATCH, "may use (CUDA_VISIBLE_DEVICES is GPU-8f3b)");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
}
