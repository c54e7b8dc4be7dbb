#include "trainer/data/random_erasing.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

enum { WIDTH = 64, HEIGHT = 48, DRAWS = 4000 };

static const RandomErasing erasing = {.probability = 0.25,
                                      .scale_min = 0.02,
                                      .scale_max = 0.33,
                                      .ratio_min = 0.3,
                                      .ratio_max = 3.3,
                                      .deviation = {50, 10, 20}};
static const uint8_t mean[4] = {120, 100, 90};

static ErasingPlan make_plan(const RandomErasing *options, uint64_t draw, Random *random)
{
    ErasingPlan plan;
    random_start(random, 3, draw);
    random_erasing_plan(options, WIDTH, HEIGHT, random, &plan);
    return plan;
}

TEST(test_rectangles_keep_probability_scale_and_ratio)
{
    int erased = 0;
    double smallest = 1, largest = 0, flattest = 10, tallest = 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        Random random;
        ErasingPlan plan = make_plan(&erasing, draw, &random);
        if (!plan.width)
            continue;
        erased++;
        assert_true(plan.height > 0 && plan.left + plan.width <= WIDTH && plan.top + plan.height <= HEIGHT);
        double scale = (double)plan.width * plan.height / (WIDTH * HEIGHT),
               ratio = (double)plan.height / plan.width;
        smallest = fmin(smallest, scale);
        largest = fmax(largest, scale);
        flattest = fmin(flattest, ratio);
        tallest = fmax(tallest, ratio);
    }
    assert_true(erased > DRAWS * 0.22 && erased < DRAWS * 0.28);
    assert_true(smallest > 0.017 && smallest < 0.03 && largest < 0.35 && largest > 0.3);
    assert_true(flattest > 0.25 && flattest < 0.4 && tallest < 3.8 && tallest > 2.8);
}

/* Asserts that nothing outside of the rectangle is touched. *inside_mean and *inside_deviation are those of
 * the fill's first channel; *one_colour says whether the fill has one colour. */
static void check_fill(ErasingFill fill, double *inside_mean, double *inside_deviation, bool *one_colour)
{
    RandomErasing options = erasing;
    options.probability = 1;
    options.scale_min = options.scale_max = 0.3;
    options.fill = fill;
    Random random;
    ErasingPlan plan = make_plan(&options, 5, &random);
    assert_true(plan.width > 0);
    static uint8_t pixels[HEIGHT * WIDTH * 3];
    memset(pixels, 7, sizeof pixels);
    random_erasing_apply(&options, &plan, mean, pixels, WIDTH, 3, &random);
    double sum = 0, squares = 0;
    const uint8_t *first = pixels + ((size_t)plan.top * WIDTH + plan.left) * 3;
    *one_colour = true;
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++) {
            const uint8_t *pixel = pixels + ((size_t)y * WIDTH + x) * 3;
            if (x < plan.left || x >= plan.left + plan.width || y < plan.top || y >= plan.top + plan.height) {
                assert_memory_equal(pixel, "\7\7\7", 3);
                continue;
            }
            *one_colour = *one_colour && memcmp(pixel, first, 3) == 0;
            sum += pixel[0];
            squares += (double)pixel[0] * pixel[0];
        }
    double count = (double)plan.width * plan.height;
    *inside_mean = sum / count;
    *inside_deviation = sqrt(squares / count - *inside_mean * *inside_mean);
    if (fill == ERASING_CONST)
        assert_memory_equal(first, mean, 3);
}

TEST(test_fills_are_mean_colour_or_noise)
{
    double inside_mean, deviation;
    bool one_colour;
    check_fill(ERASING_CONST, &inside_mean, &deviation, &one_colour);
    assert_true(one_colour);
    check_fill(ERASING_RAND, &inside_mean, &deviation, &one_colour);
    assert_true(one_colour && inside_mean != mean[0]);
    check_fill(ERASING_PIXEL, &inside_mean, &deviation, &one_colour);
    assert_false(one_colour);
    assert_true(fabs(inside_mean - mean[0]) < 10 && fabs(deviation - 50) < 8);
}

TEST(test_no_probability_erases_nothing)
{
    RandomErasing options = erasing;
    options.probability = 0;
    for (uint64_t draw = 0; draw < 100; draw++) {
        Random random;
        assert_int_equal(make_plan(&options, draw, &random).width, 0);
    }
}
