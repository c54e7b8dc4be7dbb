/* Evaluation at most a fifth of the time, in as many epochs as that allows. */
#include "trainer/plan/evaluation_interval.h"

#include "tests/support/support.h"

static uint64_t count_slowly(uint64_t interval, uint64_t from, uint64_t epochs)
{
    uint64_t count = 0;
    for (uint64_t next = from + 1; next <= epochs; next++)
        count += evaluation_is_due(interval, next, epochs);
    return count;
}

TEST(test_evaluations_are_counted_as_they_come)
{
    for (uint64_t epochs = 1; epochs <= 24; epochs++)
        for (uint64_t interval = 0; interval <= epochs + 1; interval++)
            for (uint64_t from = 0; from <= epochs; from++)
                assert_int_equal(evaluation_count(interval, from, epochs),
                                 count_slowly(interval, from, epochs));
}

/* Returns the evaluations' share of the time from the first epoch on. */
static double share_of(double evaluation, uint64_t interval, uint64_t epochs)
{
    const double seconds = evaluation * (double)(1 + count_slowly(interval, 1, epochs));
    return seconds / (seconds + (double)epochs);
}

TEST(test_evaluation_takes_at_most_a_fifth)
{
    for (uint64_t epochs = 1; epochs <= 300; epochs += 13)
        for (int hundredths = 0; hundredths < 4000; hundredths += 37) {
            const double evaluation = hundredths / 100.0;
            const uint64_t interval = evaluation_interval_choose(1, evaluation, 0, epochs);
            assert_in_range(interval, 1, epochs);
            if (interval < epochs)
                assert_true(share_of(evaluation, interval, epochs) <= 0.2);
            if (interval > 1) /* no more seldom than it must be */
                assert_true(share_of(evaluation, interval - 1, epochs) > 0.2);
        }
}

TEST(test_examples)
{
    assert_int_equal(evaluation_interval_choose(10, 1, 0, 100), 1);
    assert_int_equal(evaluation_interval_choose(10, 2.5, 0, 100), 1); /* a fifth exactly */
    assert_int_equal(evaluation_interval_choose(8.5, 16, 0, 16),
                     16); /* the trial's: the first and the last */
    assert_int_equal(evaluation_interval_choose(0, 1, 0, 10), 10);
    assert_int_equal(evaluation_interval_choose(10, 4.9, 0, 100), 2);
    assert_int_equal(evaluation_interval_choose(10, 5, 0, 100), 3);
}
