#include "trainer/report/metrics.h"

#include <math.h>

#include "tests/support/support.h"

enum { CLASSES = 7 };

TEST(test_top1_and_top5_count_the_labels_rank)
{
    const float logits[4 * CLASSES] = {
        1, 2, 9, 3, 4, 5, 6, /* label 2: first */
        1, 2, 9, 3, 4, 5, 6, /* label 3: fifth */
        1, 2, 9, 3, 4, 5, 6, /* label 1: sixth */
        1, 2, 9, 3, 4, 5, 6, /* padding */
    };
    const int64_t labels[] = {2, 3, 1, -1};
    Metrics metrics = {0};
    metrics_add_classes(&metrics, logits, labels, 4, CLASSES, 1.5);
    assert_int_equal(metrics.count, 3);
    assert_int_equal(metrics.sums[METRIC_TOP1], 1);
    assert_int_equal(metrics.sums[METRIC_TOP5], 2);
    assert_true(fabs(metrics_value(&metrics, METRIC_TOP1) - 100.0 / 3) < 1e-9);
    assert_true(fabs(metrics_value(&metrics, METRIC_TOP5) - 200.0 / 3) < 1e-9);
    assert_true(fabs(metrics_value(&metrics, METRIC_LOSS) - 1.5) < 1e-9);
}

TEST(test_batches_weigh_by_their_samples)
{
    const float logits[3 * CLASSES] = {0};
    const int64_t three[] = {0, 1, 2}, one[] = {-1, 0, -1};
    Metrics metrics = {0}, second = {0};
    metrics_add_classes(&metrics, logits, three, 3, CLASSES, 2);
    metrics_add_classes(&second, logits, one, 3, CLASSES, 6);
    metrics_merge(&metrics, &second);
    assert_int_equal(metrics.count, 4);
    assert_true(fabs(metrics_value(&metrics, METRIC_LOSS) - 3) < 1e-9);
}

TEST(test_equal_logits_are_no_hit_for_all)
{
    const float logits[CLASSES] = {0};
    Metrics metrics = {0};
    for (int64_t label = 0; label < CLASSES; label++)
        metrics_add_classes(&metrics, logits, &label, 1, CLASSES, 0);
    assert_int_equal(metrics.sums[METRIC_TOP1], 1);
    assert_int_equal(metrics.sums[METRIC_TOP5], 5);
}

TEST(test_nan_is_never_right)
{
    const float all_nan[CLASSES] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN}, one_nan[CLASSES] = {NAN, 5};
    const int64_t first = 0, second = 1;
    Metrics metrics = {0};
    metrics_add_classes(&metrics, all_nan, &first, 1, CLASSES, 0);
    metrics_add_classes(&metrics, one_nan, &second, 1, CLASSES, 0);
    assert_int_equal(metrics.sums[METRIC_TOP1], 0);
    assert_int_equal(metrics.sums[METRIC_TOP5], 1); /* after the NaN, before the zeros */
    metrics_add_classes(&metrics, all_nan, &first, 1, 2, 0);
    assert_int_equal(metrics.sums[METRIC_TOP5], 1); /* with two classes, too */
}

TEST(test_nothing_seen_is_zero_not_nan)
{
    const float logits[CLASSES] = {0};
    const int64_t padding = -1;
    Metrics metrics = {0};
    metrics_add_classes(&metrics, logits, &padding, 1, CLASSES, NAN);
    assert_true(metrics_value(&metrics, METRIC_LOSS) == 0 && metrics_value(&metrics, METRIC_TOP1) == 0 &&
                metrics_value(&metrics, METRIC_TOP5) == 0);
    /* Nor does it spoil what is seen later. */
    const int64_t label = 0;
    metrics_add_classes(&metrics, logits, &label, 1, CLASSES, 2);
    assert_true(metrics_value(&metrics, METRIC_LOSS) == 2);
}

TEST(test_errors_of_pairs_are_decibels)
{
    const float errors[] = {0.01F, 0.001F, 5, 0}, valid[] = {1, 1, 0, 1};
    Metrics metrics = {0};
    metrics_add_errors(&metrics, errors, valid, 4, 0.25);
    assert_int_equal(metrics.count, 3);
    assert_true(fabs(metrics_value(&metrics, METRIC_PSNR) - (20 + 30 + 100) / 3.0) < 1e-5);
    assert_true(fabs(metrics_value(&metrics, METRIC_LOSS) - 0.25) < 1e-9);
    assert_true(metrics_has(&metrics, METRIC_PSNR) && !metrics_has(&metrics, METRIC_TOP1));
}

TEST(test_metrics_rise_or_fall)
{
    assert_true(metric_rises(METRIC_PSNR) && !metric_rises(METRIC_LOSS));
}
