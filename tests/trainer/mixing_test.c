/* Mixing: shares, boxes, chances. That pixels are timm's is colour_test.c's. */
#include "trainer/data/mixing.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

enum { WIDTH = 40, HEIGHT = 30, DRAWS = 20000 };

static MixPlan make_plan(const Mixing *mixing, uint64_t draw)
{
    Random random;
    MixPlan plan;
    random_start(&random, 11, draw);
    mixing_plan(mixing, WIDTH, HEIGHT, &random, &plan);
    return plan;
}

/* Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)). */
TEST(test_shares_are_beta_distributed)
{
    const double alphas[] = {0.05, 0.2, 0.8, 1, 2, 8};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        double sum = 0, squares = 0, fourths = 0, a = alphas[i];
        Random random;
        random_start(&random, 1, i);
        for (int draw = 0; draw < DRAWS; draw++) {
            double share = mixing_draw_beta(a, &random);
            assert_true(share >= 0 && share <= 1);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
            fourths += pow(share - 0.5, 4);
        }
        double variance = 1 / (4 * (2 * a + 1)), fourth = 3 / (16 * (2 * a + 1) * (2 * a + 3));
        assert_true(fabs(sum / DRAWS - 0.5) < 4 * sqrt(variance / DRAWS));
        assert_true(fabs(squares / DRAWS / variance - 1) < 0.04);
        assert_true(fabs(fourths / DRAWS / fourth - 1) < 0.08);
    }
}

TEST(test_a_tiny_alpha_leaves_images_as_they_are)
{
    Random random;
    random_start(&random, 1, 1);
    int ones = 0;
    for (int i = 0; i < 1000; i++) {
        double share = mixing_draw_beta(1e-6, &random);
        assert_true(share >= 0 && share <= 1);
        ones += share > 0.5;
    }
    assert_true(ones > 400 && ones < 600);
}

TEST(test_chances_decide_what_is_mixed)
{
    const Mixing both = {
        .mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.6, .switch_probability = 0.3};
    int mixed = 0, cut = 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        MixPlan plan = make_plan(&both, draw);
        mixed += plan.share < 1;
        cut += plan.cut;
    }
    /* a share can round to 1, a box be empty */
    assert_true(fabs((double)mixed / DRAWS - 0.6) < 0.02);
    assert_true(fabs((double)cut / DRAWS - 0.18) < 0.01);
    const Mixing cutmix = {.cutmix_alpha = 1, .probability = 1}, mixup = {.mixup_alpha = 1, .probability = 1},
                 none = {.mixup_alpha = 1, .cutmix_alpha = 1};
    for (uint64_t draw = 0; draw < 100; draw++) {
        assert_true(make_plan(&cutmix, draw).cut);
        assert_false(make_plan(&mixup, draw).cut);
        assert_true(make_plan(&none, draw).share == 1);
    }
}

/* Both images together hold what they held, and the share is the box's. */
TEST(test_a_cut_exchanges_its_box)
{
    const Mixing cutmix = {.cutmix_alpha = 1, .probability = 1};
    static uint8_t first[HEIGHT * WIDTH * 3], second[HEIGHT * WIDTH * 3];
    double sum = 0;
    for (uint64_t draw = 0; draw < 500; draw++) {
        MixPlan plan = make_plan(&cutmix, draw);
        memset(first, 1, sizeof first);
        memset(second, 2, sizeof second);
        mixing_apply(&plan, WIDTH, HEIGHT, 3, first, second);
        size_t own = 0;
        for (uint32_t y = 0; y < HEIGHT; y++)
            for (uint32_t x = 0; x < WIDTH; x++) {
                size_t at = ((size_t)y * WIDTH + x) * 3;
                bool inside = x >= plan.left && x < plan.right && y >= plan.top && y < plan.bottom;
                assert_int_equal(first[at], inside ? 2 : 1);
                assert_int_equal(second[at + 2], inside ? 1 : 2);
                own += !inside;
            }
        assert_true(fabs((double)plan.share - (double)own / (WIDTH * HEIGHT)) < 1e-6);
        sum += (double)plan.share;
    }
    assert_true(sum / 500 > 0.5 && sum / 500 < 0.75); /* boxes lose what lies beyond the edges */
}

TEST(test_plans_follow_from_their_stream_alone)
{
    const Mixing mixup = {.mixup_alpha = 0.2, .probability = 1};
    assert_true(make_plan(&mixup, 4).share == make_plan(&mixup, 4).share);
    assert_true(make_plan(&mixup, 4).share != make_plan(&mixup, 5).share);
}
