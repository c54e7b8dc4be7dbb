/* Policies: their draws are distributed as 10,000 of timm's and torchvision's
 * (golden/make_operations.py). */
#include "trainer/data/auto_augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"

enum { WIDTH = 64, HEIGHT = 48, DRAWS = 10000, VALUES_MAX = 2 * DRAWS };

static AutoAugment read_policy(const char *text)
{
    AutoAugment policy = auto_augment_default();
    FshError error = {0};
    assert_ok(auto_augment_parse(text, &policy, &error), &error);
    return policy;
}

/* All arguments that one operation got. */
typedef struct Drawn {
    size_t count;
    double values[VALUES_MAX];
} Drawn;

static Drawn *draw_all(const AutoAugment *policy)
{
    Drawn *drawn = calloc(OPERATION_COUNT, sizeof *drawn);
    assert_non_null(drawn);
    for (uint64_t i = 0; i < DRAWS; i++) {
        Random random;
        ImageSteps steps;
        random_start(&random, 5, i);
        auto_augment_draw(policy, WIDTH, HEIGHT, &random, &steps);
        for (unsigned k = 0; k < steps.count; k++) {
            Drawn *of = &drawn[steps.steps[k].operation];
            assert_true(of->count < VALUES_MAX);
            of->values[of->count++] = steps.steps[k].argument;
        }
    }
    return drawn;
}

static int compare_values(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void expect_near(double value, double expected, double tolerance, const char *policy, const char *name,
                        const char *what)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%s, %s: %s is %g, not %g (+- %g)", policy, name, what, value, expected, tolerance);
}

/* Holds one operation's arguments to the golden ones: five standard errors of two samples. Where magnitudes
 * are fixed or come in bins, the values are the same ones. */
static void expect_drawn(const char *policy, const char *name, Drawn *drawn, const json_t *expected)
{
    enum { FEW = 100 };
    const double count = (double)golden_integer(expected, "count"),
                 deviation = golden_real(expected, "deviation");
    const double n = (double)drawn->count;
    double sum = 0, squares = 0;
    size_t different = 1;
    expect_near(n, count, 5 * sqrt(n + count), policy, name, "the number of draws");
    qsort(drawn->values, drawn->count, sizeof *drawn->values, compare_values);
    for (size_t i = 0; i < drawn->count; i++) {
        sum += drawn->values[i];
        squares += drawn->values[i] * drawn->values[i];
        different += i && drawn->values[i] - drawn->values[i - 1] > 1e-4;
    }
    const double mean = sum / n, own = sqrt(fmax(0, squares / n - mean * mean));
    expect_near(mean, golden_real(expected, "mean"), 5 * deviation * sqrt(1 / n + 1 / count) + 1e-5, policy,
                name, "the mean");
    expect_near(own, deviation, 0.2 * deviation + 1e-5, policy, name, "the deviation");
    if (strstr(policy, "mstd") || golden_integer(expected, "different") > FEW)
        return;
    expect_near((double)different, (double)golden_integer(expected, "different"), 0, policy, name,
                "the number of values");
    expect_near(drawn->values[0], golden_real(expected, "least"), 1e-5, policy, name, "the least");
    expect_near(drawn->values[drawn->count - 1], golden_real(expected, "most"), 1e-5, policy, name,
                "the most");
}

static void check_policy(const json_t *golden)
{
    const char *text = golden_text(golden, "policy");
    const json_t *operations = json_object_get(golden, "operations");
    const AutoAugment policy = read_policy(text);
    Drawn *drawn = draw_all(&policy);
    assert_int_equal(golden_integer(golden, "draws"), DRAWS);
    for (int i = 0; i < OPERATION_COUNT; i++) {
        const json_t *expected = json_object_get(operations, image_operation_names[i]);
        if (expected)
            expect_drawn(text, image_operation_names[i], &drawn[i], expected);
        else
            expect_near((double)drawn[i].count, 0, 0, text, image_operation_names[i], "the number of draws");
    }
    free(drawn);
}

TEST(test_policies_draw_as_timms_and_torchvisions)
{
    json_t *golden = golden_load("operations.json"), *spec;
    size_t index;
    const json_t *policies = json_object_get(golden, "policies");
    assert_true(json_array_size(policies) >= 12);
    json_array_foreach(policies, index, spec) check_policy(spec);
    json_decref(golden);
}

TEST(test_no_policy_draws_nothing)
{
    const AutoAugment none = auto_augment_default();
    ImageSteps steps = {.count = 7};
    auto_augment_draw(&none, WIDTH, HEIGHT, NULL, &steps);
    assert_int_equal(steps.count, 0);
}

TEST(test_the_magnitude_of_ra_is_its_own_option)
{
    AutoAugment policy = read_policy("ra");
    policy.ra_magnitude = 30;
    Drawn *drawn = draw_all(&policy);
    for (size_t i = 0; i < drawn[OPERATION_ROTATE].count; i++)
        assert_true(fabs(drawn[OPERATION_ROTATE].values[i]) == 30);
    assert_true(drawn[OPERATION_SOLARIZE].values[0] == 0);
    free(drawn);
}

TEST(test_black_comes_in_as_with_torchvision_and_the_mean_as_with_timm)
{
    static const char *const texts[] = {"ra", "ta_wide", "imagenet", "original", "3a", "rand-m9"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint8_t pixels[4] = {200, 200, 200, 200}, scratch[4];
        const ImageCanvas canvas = {
            .pixels = pixels, .scratch = scratch, .width = 2, .height = 2, .channels = 1, .fill = {99}};
        const AutoAugment policy = read_policy(texts[i]);
        ImageSteps steps;
        Random random;
        random_start(&random, 1, 1);
        auto_augment_draw(&policy, 2, 2, &random, &steps);
        steps.count = 1;
        steps.steps[0] = (ImageStep){OPERATION_TRANSLATE_X, 1};
        auto_augment_apply(&steps, &canvas);
        const uint8_t filled = i < 3 ? 0 : 99, expected[4] = {200, filled, 200, filled};
        assert_memory_equal(pixels, expected, sizeof pixels);
    }
}

TEST(test_sections_are_timms)
{
    const AutoAugment policy = read_policy("rand-m7-n3-p0.25-mstd101-mmax12-inc1");
    assert_int_equal(policy.kind, AUTO_AUGMENT_RAND);
    assert_true(policy.magnitude == 7 && policy.layers == 3 && policy.probability == 0.25);
    assert_true(isinf(policy.deviation) && policy.magnitude_max == 12 && policy.increasing);
    const AutoAugment usual = read_policy("rand");
    assert_true(usual.magnitude == 10 && usual.layers == 2 && usual.probability == 0.5);
    assert_true(usual.deviation == 0 && usual.magnitude_max == 10 && !usual.increasing);
}

TEST(test_what_is_not_there_is_refused_by_name)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"augmix", "'augmix' is none of: ra, ta_wide, imagenet, cifar10, svhn (torchvision), original, 3a, "
                   "rand"},
        {"v0-mstd0.5", "'v0' is none of"},
        {"3a-mstd0.5", "'3a-mstd0.5': 3a has no sections"},
        {"ra-m9", "'ra-m9': ra has no sections"},
        {"rand-m9-w0", "section 'w0': 'rand' has m, n, p, mstd, mmax and inc"},
        {"rand-m9-tweights", "section 'tweights': 'rand' has"},
        {"rand-m9.5", "section 'm9.5': m wants a whole number from 0 to 100"},
        {"rand-n9", "section 'n9': n wants a whole number from 1 to 8"},
        {"rand-mstd", "section 'mstd': mstd wants a number from 0 to inf"},
        {"rand--m9", "section '': 'rand' has"},
        {"rand-m9-", "section '': 'rand' has"},
        {"rand-m9x", "section 'm9x': m wants"},
        {"original-m9", "section 'm9': 'original' has mstd alone"},
        {"randm9", "'randm9' is none of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AutoAugment policy = auto_augment_default();
        FshError error = {0};
        assert_int_equal(auto_augment_parse(cases[i].text, &policy, &error), FSH_ERR_USAGE);
        assert_contains(error.message, cases[i].message);
        assert_int_equal(policy.kind, AUTO_AUGMENT_NONE);
    }
}
