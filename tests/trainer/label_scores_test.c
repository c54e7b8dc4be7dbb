/* What several labels are measured by, against the definitions of scikit-learn's average_precision_score and
 * f1_score; the numbers were worked out from the definitions. */
#include "trainer/report/label_scores.h"

#include <math.h>

#include "tests/support/support.h"

enum { SAMPLES = 6, CLASSES = 4 };

/* Of class 0 two samples have one score, of class 2 none has the class; sample 5 is not evaluated. */
static const float logits[SAMPLES * CLASSES] = {2,  -1, 0.5F, 3, 1,  1, -0.5F, -2, 1, 0, -1, 0.25F,
                                                -1, 2,  -2,   1, -3, 4, -3,    -1, 9, 9, 9,  9},
                                    targets[SAMPLES * CLASSES] = {1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1,
                                                                  1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};

static void note(LabelScores *scores, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        label_scores_add(scores, i, logits + i * CLASSES, targets + i * CLASSES);
}

TEST(test_average_precision_is_that_of_its_definition)
{
    static const double ap[] = {100 * (1 / 3.0 + 2 / 9.0 + 0.25), 100 * (0.25 + 1 / 3.0), NAN,
                                100 * (1 / 6.0 + 0.2)};
    static const double f1[] = {80 * 5 / 6.0, 80, 0, 40};
    FshError error = {0};
    LabelScores scores = {0};
    assert_ok(label_scores_reset(&scores, SAMPLES, CLASSES, &error), &error);
    note(&scores, 0, 5);
    assert_ok(label_scores_measure(&scores, &error), &error);
    assert_int_equal(scores.evaluated, 5);
    for (int k = 0; k < CLASSES; k++) {
        assert_true(isnan(ap[k]) ? isnan(scores.rows[k].average_precision)
                                 : fabs(scores.rows[k].average_precision - ap[k]) < 1e-9);
        assert_true(fabs(scores.rows[k].f1 - f1[k]) < 1e-9);
    }
    assert_true(fabs(scores.mean_average_precision - (ap[0] + ap[1] + ap[3]) / 3) < 1e-9);
    assert_true(fabs(scores.f1 - (f1[0] + f1[1] + f1[3]) / 4) < 1e-9);
    assert_true(fabs(scores.f1_micro - 100 * 2 * 5 / 17.0) < 1e-9);
    label_scores_free(&scores);
}

/* Ranks that have evaluated other samples add up their words. */
TEST(test_parts_add_up)
{
    FshError error = {0};
    LabelScores whole = {0}, parts[2] = {{0}, {0}};
    assert_ok(label_scores_reset(&whole, SAMPLES, CLASSES, &error), &error);
    note(&whole, 0, SAMPLES);
    for (int i = 0; i < 2; i++) {
        assert_ok(label_scores_reset(&parts[i], SAMPLES, CLASSES, &error), &error);
        note(&parts[i], i ? 3 : 0, i ? SAMPLES : 3);
    }
    for (size_t i = 0; i < whole.word_count; i++)
        assert_true(whole.words[i] == parts[0].words[i] + parts[1].words[i]);
    label_scores_free(&whole);
    label_scores_free(&parts[0]);
    label_scores_free(&parts[1]);
}

TEST(test_scores_that_are_no_numbers_are_the_least)
{
    FshError error = {0};
    LabelScores scores = {0};
    const float bad[] = {NAN, -1e30F, -INFINITY}, hot[] = {0, 1, 0};
    assert_ok(label_scores_reset(&scores, 3, 1, &error), &error);
    for (uint64_t i = 0; i < 3; i++)
        label_scores_add(&scores, i, &bad[i], &hot[i]);
    assert_ok(label_scores_measure(&scores, &error), &error);
    assert_true(scores.mean_average_precision == 100);
    assert_int_equal(scores.rows[0].taken, 0);
    label_scores_free(&scores);
}
