#include "trainer/optim/early_stop.h"

#include <math.h>

#include "tests/support/support.h"

/* Returns the index of the measure at which training stops; -1: never. */
static int stops_at(const EarlyStopOptions *options, const double *measures, int count)
{
    EarlyStop stop = {0};
    double values[EARLY_STOP_STATE];
    for (int i = 0; i < count; i++) {
        const bool stops = early_stop_step(&stop, options, measures[i]);
        early_stop_save(&stop, values); /* and go on from a checkpoint */
        stop = (EarlyStop){0};
        assert_true(early_stop_load(&stop, values));
        if (stops) {
            assert_true(early_stop_step(&stop, options, 1e9) && early_stop_step(&stop, options, -1e9));
            return i;
        }
    }
    return -1;
}

TEST(test_patience_counts_measures_in_a_row)
{
    const double losses[] = {5, 4, 4.5, 4.2, 3.9, 4, 4, 4, 1};
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 3}, losses, 9), 7);
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 2}, losses, 9), 3);
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 1}, losses, 9), 2);
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 4}, losses, 9), -1);
}

TEST(test_higher_may_be_better)
{
    const double accuracies[] = {10, 20, 19, 20, 21, 20};
    assert_int_equal(stops_at(&(EarlyStopOptions){.higher_is_better = true, .patience = 2}, accuracies, 6),
                     3);
    assert_int_equal(stops_at(&(EarlyStopOptions){.higher_is_better = true, .patience = 3}, accuracies, 6),
                     -1);
}

TEST(test_better_by_less_than_min_delta_is_not_better)
{
    /* Each is a little better than the one before; from the best that counts it is 0.5 at the third. */
    const double losses[] = {5, 4.8, 4.6, 4.4, 4.2, 4.0};
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 2, .min_delta = 0.5}, losses, 6), 2);
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 3, .min_delta = 0.5}, losses, 6), -1);
    const double exactly[] = {5, 4.5, 4};
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 1, .min_delta = 0.5}, exactly, 3), 1);
}

TEST(test_nan_is_not_better_and_infinite_can_be_saved)
{
    const double measures[] = {NAN, NAN, INFINITY, NAN, INFINITY};
    assert_int_equal(stops_at(&(EarlyStopOptions){.patience = 2}, measures, 5), 1);
    assert_int_equal(stops_at(&(EarlyStopOptions){.higher_is_better = true, .patience = 2}, measures + 1, 4),
                     3);
}

TEST(test_broken_numbers_are_not_loaded)
{
    static const double bad[][EARLY_STOP_STATE] = {
        {NAN, 0, 0, 0}, {0, INFINITY, 0, 0}, {0, 0, -1, 0}, {0, 0, 1e300, 0}};
    EarlyStop stop = {.best = 7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(early_stop_load(&stop, bad[i]));
    assert_true(stop.best == 7);
}
