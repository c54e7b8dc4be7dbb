#include "trainer/report/findings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

static Findings *make(FindingsOptions options)
{
    Findings *findings = NULL;
    FshError error = {0};
    assert_ok(findings_new(&findings, &options, &error), &error);
    return findings;
}

static void add_class(Findings *findings, const char *key, const ImageView *view, int64_t label,
                      int64_t prediction, double probability)
{
    FshError error = {0};
    assert_ok(findings_add_class(findings, key, strlen(key), view, label, prediction, probability, &error),
              &error);
}

static uint8_t grey[64 * 64];
static const ImageView small = {grey, 64, 64, 64, 1};

TEST(test_what_is_no_class_is_refused)
{
    Findings *findings = make((FindingsOptions){.classes = 3});
    add_class(findings, "no label", &small, -1, 1, 0.5);
    FshError error = {0};
    assert_int_equal(findings_add_class(findings, "e", 1, &small, 3, 0, 0.5, &error), FSH_ERR_MISMATCH);
    assert_int_equal(findings_add_class(findings, "e", 1, &small, 0, -1, 0.5, &error), FSH_ERR_MISMATCH);
    findings_free(&findings);
    assert_null(findings);
    findings_free(&findings);
}

TEST(test_the_most_certain_mistakes_are_kept)
{
    static const double probabilities[] = {0.3, 0.9, 0.5, 0.9, 0.8, 0.1, NAN, 0.95};
    Findings *findings = make((FindingsOptions){.classes = 2, .examples = 4});
    for (size_t i = 0; i < 8; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%zu", i);
        add_class(findings, key, &small, i % 2, 1 - i % 2, probabilities[i]);
        add_class(findings, "right", &small, 1, 1, 0.99);
    }
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    static const char *const expected[] = {"k7", "k1", "k3", "k4"};
    assert_int_equal(findings_examples(findings, examples), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(examples[i]->key, expected[i]);
        assert_int_equal(examples[i]->reason, EXAMPLE_WRONG);
        assert_int_equal(examples[i]->image.width, 64);
    }
    assert_true(examples[0]->label == 1 && examples[0]->prediction == 0 && examples[0]->probability == 0.95);
    findings_free(&findings);
}

TEST(test_large_images_are_shrunk_and_cut_ones_kept)
{
    static uint8_t pixels[100 * 50 * 3];
    test_fill_gradient(pixels, 100, 50, 0);
    const ImageView whole = {pixels, 300, 100, 50, 3}, part = image_view_part(&whole, 10, 10, 20, 20);
    Findings *findings = make((FindingsOptions){.classes = 2, .edge_px = 40});
    add_class(findings, "large", &whole, 0, 1, 0.9);
    add_class(findings, "part", &part, 0, 1, 0.8);
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    assert_int_equal(findings_examples(findings, examples), 2);
    assert_true(examples[0]->image.width == 40 && examples[0]->image.height == 20);
    assert_true(examples[1]->image.width == 20 && examples[1]->image.height == 20);
    assert_memory_equal(examples[1]->image.pixels + 60, part.pixels + 300, 60);
    findings_free(&findings);
}

/* Returns the gain of one of 40 pairs: 0, 1, … 39 but for two. */
static double gain_of(int pair)
{
    return pair == 17 ? -3 : pair == 5 ? 100 : pair;
}

static void add_pair(Findings *findings, int pair, const ImageView *input, const ImageView *target)
{
    char key[16];
    FshError error = {0};
    (void)snprintf(key, sizeof key, "p%d", pair);
    assert_ok(
        findings_add_pair(findings, key, strlen(key), input, input, target, 20 + gain_of(pair), 20, &error),
        &error);
}

TEST(test_pairs_are_spread_and_extreme)
{
    Findings *findings = make((FindingsOptions){.pairs = true, .samples = 40, .examples = 8});
    for (int i = 0; i < 40; i++)
        add_pair(findings, i, &small, &small);
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    static const struct {
        const char *key;
        ExampleReason reason;
    } expected[] = {{"p15", EXAMPLE_SPREAD},     {"p25", EXAMPLE_SPREAD},    {"p35", EXAMPLE_SPREAD},
                    {"p17", EXAMPLE_LEAST_GAIN}, {"p0", EXAMPLE_LEAST_GAIN}, {"p5", EXAMPLE_MOST_GAIN},
                    {"p39", EXAMPLE_MOST_GAIN}}; /* p5 is the first of the spread ones, too */
    assert_int_equal(findings_examples(findings, examples), 7);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(examples[i]->key, expected[i].key);
        assert_int_equal(examples[i]->reason, expected[i].reason);
    }
    assert_true(examples[3]->psnr == 17 && examples[3]->input_psnr == 20);
    findings_free(&findings);
}

TEST(test_few_pairs_are_shown_once)
{
    Findings *findings = make((FindingsOptions){.pairs = true, .samples = 2});
    add_pair(findings, 0, &small, &small);
    add_pair(findings, 1, &small, &small);
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    assert_int_equal(findings_examples(findings, examples), 2);
    assert_string_equal(examples[0]->key, "p0");
    assert_string_equal(examples[1]->key, "p1");
    findings_free(&findings);
}

TEST(test_pairs_are_cut_where_they_differ)
{
    static uint8_t input[200 * 120], target[200 * 120];
    for (size_t y = 100; y < 120; y++) /* the lower right corner */
        memset(target + y * 200 + 170, 255, 30);
    const ImageView a = {input, 200, 200, 120, 1}, b = {target, 200, 200, 120, 1};
    Findings *findings = make((FindingsOptions){.pairs = true, .samples = 1, .edge_px = 32});
    add_pair(findings, 0, &a, &b);
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    assert_int_equal(findings_examples(findings, examples), 1);
    assert_true(examples[0]->target.width == 32 && examples[0]->target.height == 32);
    assert_int_equal(examples[0]->target.pixels[32 * 32 - 1], 255);
    assert_int_equal(examples[0]->target.pixels[12 * 32 + 2], 255);
    assert_int_equal(examples[0]->target.pixels[11 * 32 + 2], 0);
    assert_int_equal(examples[0]->input.pixels[32 * 32 - 1], 0);
    FshError error = {0};
    assert_int_equal(findings_add_pair(findings, "k", 1, &a, &a, &small, 1, 1, &error), FSH_ERR_MISMATCH);
    findings_free(&findings);
}

TEST(test_the_prediction_is_the_highest_logit)
{
    static const struct {
        float logits[3];
        int64_t prediction;
        double probability;
    } rows[] = {{{0, 0, 0}, 0, 1.0 / 3},
                {{1000, 999, -INFINITY}, 0, 0.731058578630005},
                {{-2, 3, 3}, 1, 1 / (2 + 0.006737946999085467)},
                {{NAN, 1, 1}, 1, 0.5},
                {{NAN, NAN, NAN}, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t prediction = -1;
        double probability = -1;
        findings_predict(rows[i].logits, 3, &prediction, &probability);
        assert_int_equal(prediction, rows[i].prediction);
        assert_true(fabs(probability - rows[i].probability) < 1e-8);
    }
}

TEST(test_without_bounds_nothing_is_made)
{
    Findings *findings = NULL;
    FshError error = {0};
    const FindingsOptions many = {.classes = 2, .examples = FINDINGS_EXAMPLES_MAX + 1};
    assert_int_equal(findings_new(&findings, &many, &error), FSH_ERR_USAGE);
    assert_null(findings);
}
