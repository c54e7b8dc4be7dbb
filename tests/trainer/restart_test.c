/* Which ends of ranks lead to a restart, and how often. */
#include "tests/support/support.h"
#include "trainer/restart.h"

static const LaunchEnd killed = {.exit_status = 137, .lost_rank = 1, .lost = true};
static const RestartPoint nowhere, step_10 = {.there = true, .steps = 10},
                                   step_20 = {.there = true, .steps = 20};

/* Asserts the decision, and what is said about it. */
static void expect(Restarts *restarts, const LaunchEnd *end, const RestartPoint *here, bool again,
                   const char *says)
{
    char text[256];
    assert_int_equal(restarts_decide(restarts, end, here, text, sizeof text), again);
    if (*says)
        assert_contains(text, says);
    else
        assert_string_equal(text, "");
}

TEST(test_ranks_that_were_lost_are_started_again_as_often_as_wanted)
{
    Restarts restarts = {.most = 2};
    expect(&restarts, &killed, &nowhere, true,
           "restart 1 of 2: all ranks go on from the beginning, for there is no checkpoint yet");
    expect(&restarts, &killed, &step_10, true, "restart 2 of 2: all ranks go on from step 10");
    expect(&restarts, &killed, &step_20, false, "no restart: all 2 of --max-restarts have been made");
}

TEST(test_no_step_is_where_two_restarts_begin)
{
    Restarts restarts = {.most = 5};
    expect(&restarts, &killed, &nowhere, true, "restart 1 of 5");
    expect(&restarts, &killed, &nowhere, false,
           "no restart: the last one began there too, from the beginning");
    restarts = (Restarts){.most = 5};
    expect(&restarts, &killed, &step_10, true, "restart 1 of 5");
    expect(&restarts, &killed, &step_10, false, "no restart: the last one began there too, from step 10");
    expect(&restarts, &killed, &step_20, true, "restart 2 of 5: all ranks go on from step 20");
    RestartPoint evaluated = step_20;
    evaluated.epoch++;
    expect(&restarts, &killed, &evaluated, true, "restart 3 of 5: all ranks go on from step 20");
}

TEST(test_an_elastic_run_leaves_out_a_rank_that_does_not_get_on)
{
    Restarts restarts = {.most = 5, .elastic = true, .left_out = -1};
    const LaunchEnd elsewhere = {.exit_status = 1, .lost_rank = -1, .lost = true};
    expect(&restarts, &killed, &step_10, true, "restart 1 of 5: all ranks go on from step 10");
    assert_int_equal(restarts.left_out, -1);
    expect(&restarts, &killed, &step_10, true, "restart 2 of 5: the other ranks go on from step 10");
    assert_int_equal(restarts.left_out, 1);
    expect(&restarts, &killed, &step_20, true, "restart 3 of 5: all ranks go on from step 20");
    assert_int_equal(restarts.left_out, -1);
    expect(&restarts, &elsewhere, &step_20, false, "no restart: the last one began there too, from step 20");
}

TEST(test_other_ends_are_no_reason_to_start_again)
{
    const LaunchEnd well = {.lost_rank = -1}, failed = {.exit_status = 1, .lost_rank = -1, .failed = true};
    LaunchEnd both = killed;
    Restarts restarts = {.most = 5}, none = {.most = 0};
    both.failed = true;
    expect(&restarts, &well, &step_10, false, "");
    expect(&restarts, &failed, &step_10, false, "");
    expect(&restarts, &both, &step_10, false, "no restart: a rank has failed by itself or was asked to stop");
    expect(&none, &killed, &step_10, false, "");
    assert_int_equal(restarts.done, 0);
}
