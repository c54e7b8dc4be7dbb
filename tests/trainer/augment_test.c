#include "trainer/data/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

enum { SIZE = 32 };

static const Augmentation resized = {
    .mode = CROP_RESIZED,
    .size = SIZE,
    .channels = 3,
    .scale_min = 0.25,
    .scale_max = 1,
    .ratio_min = 0.75,
    .ratio_max = 4.0 / 3,
    .flip_probability = 0.5,
};

static const uint32_t sizes[][2] = {{1, 1},   {1, 1000}, {1000, 1},  {2, 3},     {31, 33},
                                    {32, 32}, {64, 64},  {500, 375}, {375, 500}, {2000, 100}};
enum { SIZES = sizeof sizes / sizeof *sizes, DRAWS = 300 };

static CropPlan make_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, uint64_t draw)
{
    Random random;
    CropPlan plan;
    random_start(&random, 1, random_stream(0, draw));
    augment_plan(augmentation, width, height, &random, &plan);
    return plan;
}

/* ---- plans ---- */

TEST(test_every_box_lies_within_the_image)
{
    for (int mode = 0; mode < CROP_MODE_COUNT; mode++)
        for (size_t i = 0; i < SIZES; i++)
            for (uint64_t draw = 0; draw < DRAWS; draw++) {
                Augmentation augmentation = resized;
                augmentation.mode = (CropMode)mode;
                augmentation.resize = SIZE + (uint32_t)(draw % 9);
                augmentation.padding = 4;
                CropPlan plan = make_plan(&augmentation, sizes[i][0], sizes[i][1], draw);
                assert_true(plan.box.left >= 0 && plan.box.top >= 0);
                assert_true(plan.box.right <= sizes[i][0] && plan.box.bottom <= sizes[i][1]);
                assert_true(plan.box.left < plan.box.right && plan.box.top < plan.box.bottom);
                assert_true(abs(plan.shift_x) <= 4 && abs(plan.shift_y) <= 4);
            }
}

TEST(test_rounding_puts_no_edge_outside)
{
    for (uint32_t edge = 1; edge < 2000; edge++) {
        const Augmentation whole = {.mode = CROP_CENTER, .size = 28, .resize = 28, .channels = 3};
        CropPlan plan = make_plan(&whole, edge, edge, 0);
        assert_true(plan.box.right <= edge && plan.box.bottom <= edge);
    }
}

TEST(test_random_parts_keep_scale_and_ratio)
{
    double smallest = 1, largest = 0, flattest = 10, tallest = 0;
    int flips = 0;
    for (uint64_t draw = 0; draw < 2000; draw++) {
        CropPlan plan = make_plan(&resized, 640, 480, draw);
        double width = plan.box.right - plan.box.left, height = plan.box.bottom - plan.box.top;
        double scale = width * height / (640.0 * 480), ratio = width / height;
        smallest = fmin(smallest, scale);
        largest = fmax(largest, scale);
        flattest = fmin(flattest, ratio);
        tallest = fmax(tallest, ratio);
        flips += plan.flip;
    }
    /* A pixel's rounding beyond the limits at most; and the limits are reached. */
    assert_true(smallest > 0.248 && smallest < 0.27);
    assert_true(largest <= 1 && largest > 0.93);
    assert_true(flattest > 0.745 && flattest < 0.77);
    assert_true(tallest < 1.34 && tallest > 1.3);
    assert_true(flips > 900 && flips < 1100);
}

TEST(test_an_image_too_long_for_any_try_gives_its_centre)
{
    Augmentation augmentation = resized;
    augmentation.scale_min = 1; /* the whole area, of which no ratio allowed is possible */
    CropPlan wide = make_plan(&augmentation, 1000, 30, 0), tall = make_plan(&augmentation, 30, 1000, 0);
    assert_true(wide.box.top == 0 && wide.box.bottom == 30 && wide.box.left == 480 && wide.box.right == 520);
    assert_true(tall.box.left == 0 && tall.box.right == 30 && tall.box.top == 480 && tall.box.bottom == 520);
}

TEST(test_the_centre_is_torchvisions)
{
    /* Resize(256) of 500 x 375: int(256 * 500 / 375) = 341 x 256; CenterCrop(224): left round(58.5) = 58,
     * top 16. */
    const Augmentation center = {.mode = CROP_CENTER, .size = 224, .resize = 256, .channels = 3};
    CropPlan plan = make_plan(&center, 500, 375, 0);
    assert_true(fabs(plan.box.left * 341 / 500 - 58) < 1e-9);
    assert_true(fabs(plan.box.right * 341 / 500 - 282) < 1e-9);
    assert_true(fabs(plan.box.top * 256 / 375 - 16) < 1e-9);
    assert_true(fabs(plan.box.bottom * 256 / 375 - 240) < 1e-9);
    assert_false(plan.flip);
}

/* Resize(64) of 500 x 375: int(64 * 500 / 375) = 85 x 64; RandomCrop(56) has 30 x 9 places. */
TEST(test_squares_come_from_anywhere)
{
    enum { PLACES_X = 30, PLACES_Y = 9, SQUARES = 20000 };
    const Augmentation square = {.mode = CROP_KEPT_RATIO, .size = 56, .resize = 64, .channels = 3};
    int found[PLACES_Y][PLACES_X] = {{0}};
    for (uint64_t draw = 0; draw < SQUARES; draw++) {
        CropPlan plan = make_plan(&square, 500, 375, draw);
        assert_int_equal(plan.resized_width, 85);
        assert_int_equal(plan.resized_height, 64);
        assert_true(plan.window.width == 56 && plan.window.height == 56);
        assert_in_range(plan.window.left, 0, PLACES_X - 1);
        assert_in_range(plan.window.top, 0, PLACES_Y - 1);
        assert_true(fabs(plan.box.left * 85 / 500 - plan.window.left) < 1e-9);
        assert_true(fabs(plan.box.bottom * 64 / 375 - plan.window.top - 56) < 1e-9);
        found[plan.window.top][plan.window.left]++;
    }
    /* The mean is 74, and 5 deviations are 43. */
    for (int y = 0; y < PLACES_Y; y++)
        for (int x = 0; x < PLACES_X; x++)
            assert_in_range(found[y][x], 31, 117);
}

TEST(test_plans_follow_from_their_stream_alone)
{
    CropPlan first = make_plan(&resized, 640, 480, 5), again = make_plan(&resized, 640, 480, 5);
    CropPlan other = make_plan(&resized, 640, 480, 6);
    assert_memory_equal(&first.box, &again.box, sizeof first.box);
    assert_memory_not_equal(&first.box, &other.box, sizeof first.box);
}

TEST(test_the_least_size_still_gives_the_crop)
{
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        CropPlan plan = make_plan(&resized, 640, 480, draw);
        uint32_t width, height;
        augment_least_size(&resized, &plan, 640, 480, &width, &height);
        assert_true((plan.box.right - plan.box.left) * width / 640 >= SIZE);
        assert_true((plan.box.bottom - plan.box.top) * height / 480 >= SIZE);
        assert_true(width <= 640 && height <= 480);
    }
    /* An image smaller than the crop is needed whole. */
    CropPlan plan = make_plan(&resized, 20, 20, 0);
    uint32_t width, height;
    augment_least_size(&resized, &plan, 20, 20, &width, &height);
    assert_int_equal(width, 20);
    assert_int_equal(height, 20);
}

/* ---- pixels ---- */

typedef struct Bench {
    Augmenter *augmenter;
    Image image;
    uint8_t target[SIZE * SIZE * 3];
} Bench;

static int make_bench(void **state)
{
    Bench *bench = calloc(1, sizeof *bench);
    FshError error = {0};
    if (!bench || augmenter_new(&bench->augmenter, &error))
        return -1;
    *state = bench;
    return 0;
}

static int free_bench(void **state)
{
    Bench *bench = *state;
    augmenter_free(&bench->augmenter);
    image_free(&bench->image);
    free(bench);
    return 0;
}

static void fill_image(Bench *bench, uint32_t width, uint32_t height, uint32_t channels)
{
    FshError error = {0};
    assert_ok(image_reserve(&bench->image, width, height, channels, &error), &error);
    for (size_t i = 0; i < (size_t)width * height * channels; i++)
        bench->image.pixels[i] = (uint8_t)(i * 7 + i / 31);
}

static void render(Bench *bench, const Augmentation *augmentation, const CropPlan *plan)
{
    FshError error = {0};
    const ImageView view = image_view(&bench->image);
    assert_ok(augment_render(bench->augmenter, augmentation, plan, &view, &(ImagePlace){.eighths = 8},
                             bench->target, &error),
              &error);
}

TEST_WITH(test_an_image_of_the_right_size_is_copied, make_bench, free_bench, Bench *bench)
{
    const Augmentation center = {.mode = CROP_CENTER, .size = SIZE, .resize = SIZE, .channels = 3};
    fill_image(bench, SIZE, SIZE, 3);
    CropPlan plan = make_plan(&center, SIZE, SIZE, 0);
    render(bench, &center, &plan);
    assert_memory_equal(bench->target, bench->image.pixels, sizeof bench->target);
}

TEST_WITH(test_a_flip_mirrors_each_row, make_bench, free_bench, Bench *bench)
{
    const Augmentation center = {
        .mode = CROP_CENTER, .size = SIZE, .resize = SIZE, .channels = 3, .flip_probability = 1};
    fill_image(bench, SIZE, SIZE, 3);
    CropPlan plan = make_plan(&center, SIZE, SIZE, 0);
    assert_true(plan.flip);
    render(bench, &center, &plan);
    for (size_t y = 0; y < SIZE; y++)
        for (size_t x = 0; x < SIZE; x++)
            assert_memory_equal(bench->target + (y * SIZE + x) * 3,
                                bench->image.pixels + (y * SIZE + SIZE - 1 - x) * 3, 3);
}

static size_t reflect(long at)
{
    return (size_t)(at < 0 ? -at : at >= SIZE ? 2 * SIZE - 2 - at : at);
}

TEST_WITH(test_a_moved_image_is_mirrored_at_its_edges, make_bench, free_bench, Bench *bench)
{
    const Augmentation pad = {.mode = CROP_PADDED,
                              .size = SIZE,
                              .resize = SIZE,
                              .channels = 3,
                              .padding = 5,
                              .flip_probability = 0.5};
    fill_image(bench, SIZE, SIZE, 3);
    bool corners[4] = {false};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        CropPlan plan = make_plan(&pad, SIZE, SIZE, draw);
        render(bench, &pad, &plan);
        corners[(plan.shift_x > 0) * 2 + (plan.shift_y > 0)] = true;
        for (long y = 0; y < SIZE; y++)
            for (long x = 0; x < SIZE; x++) {
                long unflipped = plan.flip ? SIZE - 1 - x : x;
                size_t from = reflect(y + plan.shift_y) * SIZE + reflect(unflipped + plan.shift_x);
                assert_memory_equal(bench->target + (y * SIZE + x) * 3, bench->image.pixels + from * 3, 3);
            }
    }
    assert_true(corners[0] && corners[1] && corners[2] && corners[3]);
}

TEST_WITH(test_the_centre_crop_equals_resize_then_crop, make_bench, free_bench, Bench *bench)
{
    const Augmentation center = {.mode = CROP_CENTER, .size = SIZE, .resize = 40, .channels = 3};
    fill_image(bench, 150, 100, 3);
    CropPlan plan = make_plan(&center, 150, 100, 0);
    render(bench, &center, &plan);
    Resampler *resampler = NULL;
    Image whole = {0};
    FshError error = {0};
    assert_ok(resampler_new(&resampler, &error), &error);
    assert_ok(resample(resampler, &bench->image, NULL, 60, 40, RESAMPLE_BILINEAR, &whole, &error), &error);
    for (size_t y = 0; y < SIZE; y++)
        assert_memory_equal(bench->target + y * SIZE * 3, whole.pixels + ((y + 4) * 60 + 14) * 3, SIZE * 3);
    image_free(&whole);
    resampler_free(&resampler);
}

TEST_WITH(test_a_scaled_decode_gives_nearly_the_same_pixels, make_bench, free_bench, Bench *bench)
{
    FshError error = {0};
    assert_ok(image_reserve(&bench->image, 256, 256, 3, &error), &error);
    test_fill_gradient(bench->image.pixels, 256, 256, 3);
    Image half = {0};
    Resampler *resampler = NULL;
    assert_ok(resampler_new(&resampler, &error), &error);
    assert_ok(resample(resampler, &bench->image, NULL, 128, 128, RESAMPLE_BOX, &half, &error), &error);
    uint8_t from_half[sizeof bench->target];
    for (uint64_t draw = 0; draw < 20; draw++) {
        CropPlan plan = make_plan(&resized, 256, 256, draw);
        render(bench, &resized, &plan);
        const ImageView view = image_view(&half);
        assert_ok(augment_render(bench->augmenter, &resized, &plan, &view, &(ImagePlace){.eighths = 4},
                                 from_half, &error),
                  &error);
        for (size_t i = 0; i < sizeof from_half; i++)
            assert_true(abs((int)from_half[i] - (int)bench->target[i]) <= 4);
    }
    image_free(&half);
    resampler_free(&resampler);
}

TEST_WITH(test_gray_becomes_rgb_and_rgb_becomes_luma, make_bench, free_bench, Bench *bench)
{
    Augmentation center = {.mode = CROP_CENTER, .size = SIZE, .resize = SIZE, .channels = 3};
    fill_image(bench, SIZE, SIZE, 1);
    CropPlan plan = make_plan(&center, SIZE, SIZE, 0);
    render(bench, &center, &plan);
    for (size_t i = 0; i < SIZE * SIZE; i++)
        for (size_t c = 0; c < 3; c++)
            assert_int_equal(bench->target[i * 3 + c], bench->image.pixels[i]);
    center.channels = 1;
    fill_image(bench, SIZE, SIZE, 3);
    static const uint8_t colours[] = {255, 0, 0,  0,  255, 0,  0,   0,   255, 1,  2,  3,
                                      250, 3, 99, 17, 200, 31, 128, 127, 129, 90, 14, 201};
    memcpy(bench->image.pixels, colours, sizeof colours);
    render(bench, &center, &plan);
    static const uint8_t luma[] = {76, 150, 29, 2, 88, 126, 128, 58}; /* Pillow's convert("L") */
    assert_memory_equal(bench->target, luma, sizeof luma);
}

/* ---- pairs' crops ---- */

static const Augmentation anyhow = {.mode = CROP_RANDOM,
                                    .size = SIZE,
                                    .channels = 3,
                                    .flip_probability = 0.5,
                                    .vertical_flip_probability = 0.5,
                                    .transpose_probability = 0.5};

TEST_WITH(test_a_square_is_laid_all_eight_ways, make_bench, free_bench, Bench *bench)
{
    int ways[8] = {0};
    fill_image(bench, 60, 45, 3);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        CropPlan plan = make_plan(&anyhow, 60, 45, draw);
        ImagePart part;
        augment_part(&anyhow, &plan, 60, 45, &part);
        assert_true(part.width == SIZE && part.height == SIZE && part.left + SIZE <= 60 &&
                    part.top + SIZE <= 45);
        render(bench, &anyhow, &plan);
        ways[plan.flip * 4 + plan.vertical_flip * 2 + plan.transpose]++;
        for (uint32_t y = 0; y < SIZE; y++)
            for (uint32_t x = 0; x < SIZE; x++) {
                uint32_t column = plan.transpose ? y : x, row = plan.transpose ? x : y;
                column = plan.flip ? SIZE - 1 - column : column;
                row = plan.vertical_flip ? SIZE - 1 - row : row;
                size_t from = ((size_t)(part.top + row) * 60 + part.left + column) * 3;
                assert_memory_equal(bench->target + (y * SIZE + x) * 3, bench->image.pixels + from, 3);
            }
    }
    for (int i = 0; i < 8; i++)
        assert_true(ways[i] > DRAWS / 8 / 2);
}

TEST(test_crops_come_from_everywhere)
{
    bool left[60 - SIZE + 1] = {false}, top[45 - SIZE + 1] = {false};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        CropPlan plan = make_plan(&anyhow, 60, 45, draw);
        left[(int)plan.box.left] = top[(int)plan.box.top] = true;
    }
    for (size_t i = 0; i < sizeof left; i++)
        assert_true(left[i]);
    for (size_t i = 0; i < sizeof top; i++)
        assert_true(top[i]);
}

/* ---- sizes, noise ---- */

TEST(test_another_size_scales_what_is_counted_in_pixels)
{
    const Augmentation pad = {.mode = CROP_PADDED, .size = 32, .resize = 36, .padding = 4, .channels = 3};
    Augmentation half = augment_at_size(&pad, 16), same = augment_at_size(&pad, 32);
    assert_int_equal(half.size, 16);
    assert_int_equal(half.resize, 18);
    assert_int_equal(half.padding, 2);
    assert_int_equal(same.resize, 36);
    Augmentation one = augment_at_size(&pad, 1);
    assert_int_equal(one.padding, 0);
    assert_true(one.resize >= 1);
}

TEST(test_noise_has_the_deviation_asked_for)
{
    enum { COUNT = 40000 };
    uint8_t *values = malloc(COUNT);
    assert_non_null(values);
    memset(values, 128, COUNT);
    Random random;
    random_start(&random, 1, 2);
    augment_add_noise(values, COUNT, 12, &random);
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        sum += values[i];
        squares += (values[i] - 128.0) * (values[i] - 128.0);
    }
    assert_true(fabs(sum / COUNT - 128) < 0.3);
    assert_true(fabs(sqrt(squares / COUNT) - 12) < 0.3);
    memset(values, 255, COUNT); /* and does not run over */
    augment_add_noise(values, COUNT, 12, &random);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] > 150);
    free(values);
}
