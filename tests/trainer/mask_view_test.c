/* How an image and its mask are resized, cropped, flipped and padded: alike, the mask by the nearest
 * pixel, as Pillow takes it (golden/make_nearest.py), with 255 outside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "trainer/data/augment.h"

enum { SIZE = 48, OUTSIDE = 255 };

static const Augmentation scaled = {.mode = CROP_SCALED,
                                    .size = SIZE,
                                    .channels = 3,
                                    .scale_min = 0.5,
                                    .scale_max = 2,
                                    .flip_probability = 0.5,
                                    .fill = {10, 20, 30}};

static CropPlan make_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, uint64_t draw)
{
    Random random;
    CropPlan plan;
    random_start(&random, 3, random_stream(0, draw));
    augment_plan(augmentation, width, height, &random, &plan);
    return plan;
}

TEST(test_the_nearest_pixels_are_pillows)
{
    json_t *document = golden_load("nearest.json"), *c, *place;
    size_t i, x;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const uint32_t from = (uint32_t)golden_integer(c, "from"), to = (uint32_t)golden_integer(c, "to");
        uint8_t row[256], *target = malloc((size_t)to * to);
        assert_non_null(target);
        for (uint32_t k = 0; k < from; k++)
            row[k] = (uint8_t)k;
        const ImageView along = {.pixels = row,
                                 .stride_bytes = from,
                                 .width = from,
                                 .height = 1,
                                 .channels = 1},
                        down = {.pixels = row, .stride_bytes = 1, .width = 1, .height = from, .channels = 1};
        const Augmentation augmentation = {.mode = CROP_SCALED, .size = to, .channels = 3};
        const CropPlan wide = {.resized_width = to, .resized_height = to, .window = {0, 0, to, to}};
        augment_render_mask(&augmentation, &wide, &along, OUTSIDE, target);
        json_array_foreach(json_object_get(c, "places"), x, place)
        {
            assert_int_equal(target[x], json_integer_value(place));
        }
        assert_int_equal(x, to);
        augment_render_mask(&augmentation, &wide, &down, OUTSIDE, target);
        for (x = 0; x < to; x++)
            assert_int_equal(target[x * to],
                             json_integer_value(json_array_get(json_object_get(c, "places"), x)));
        free(target);
    }
    assert_true(i >= 10);
    json_decref(document);
}

/* Draws an image of rectangles of one colour each, and the mask that tells which. */
static void draw(uint32_t width, uint32_t height, uint8_t *pixels, uint8_t *values)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            const uint8_t value = (uint8_t)((x / 13 + y / 11 * 3) % 5);
            values[y * width + x] = value;
            for (uint32_t c = 0; c < 3; c++)
                pixels[(y * width + x) * 3 + c] = (uint8_t)(50 * value + 7 * c + 20);
        }
}

/* Returns whether all pixels around (x, y) have its value: its colour was not mixed with another. */
static bool is_inside(const uint8_t *mask, uint32_t x, uint32_t y)
{
    enum { FAR = 3 };
    for (int dy = -FAR; dy <= FAR; dy++)
        for (int dx = -FAR; dx <= FAR; dx++) {
            const int64_t at_x = (int64_t)x + dx, at_y = (int64_t)y + dy;
            if (at_x < 0 || at_y < 0 || at_x >= SIZE || at_y >= SIZE ||
                mask[at_y * SIZE + at_x] != mask[y * SIZE + x])
                return false;
        }
    return true;
}

TEST(test_image_and_mask_are_of_one_place)
{
    static const uint32_t sizes[][2] = {{97, 61}, {30, 90}, {64, 64}, {20, 20}};
    Augmenter *augmenter = NULL;
    FshError error = {0};
    uint64_t compared = 0, padded = 0, flipped = 0;
    assert_ok(augmenter_new(&augmenter, &error), &error);
    for (uint64_t i = 0; i < 200; i++) {
        const uint32_t width = sizes[i % 4][0], height = sizes[i % 4][1];
        uint8_t *pixels = malloc((size_t)width * height * 3), *values = malloc((size_t)width * height),
                image[SIZE * SIZE * 3], mask[SIZE * SIZE];
        assert_true(pixels && values);
        draw(width, height, pixels, values);
        const ImageView view = {pixels, (size_t)width * 3, width, height, 3},
                        own = {values, width, width, height, 1};
        const ImagePlace whole = {.eighths = 8};
        const CropPlan plan = make_plan(&scaled, width, height, i);
        flipped += plan.flip;
        memset(image, 1, sizeof image);
        memset(mask, 77, sizeof mask);
        assert_ok(augment_render(augmenter, &scaled, &plan, &view, &whole, image, &error), &error);
        augment_render_mask(&scaled, &plan, &own, OUTSIDE, mask);
        for (uint32_t y = 0; y < SIZE; y++)
            for (uint32_t x = 0; x < SIZE; x++) {
                const uint8_t *pixel = image + (y * SIZE + x) * 3, value = mask[y * SIZE + x];
                const bool outside = x >= plan.window.width || y >= plan.window.height;
                assert_int_equal(outside, value == OUTSIDE);
                if (outside) {
                    padded++;
                    assert_memory_equal(pixel, scaled.fill, 3);
                } else if (is_inside(mask, x, y)) {
                    compared++;
                    for (int c = 0; c < 3; c++)
                        assert_int_equal(pixel[c], 50 * value + 7 * c + 20);
                }
            }
        free(pixels);
        free(values);
    }
    assert_true(compared > 50000 && padded > 20000 && flipped > 70 && flipped < 130);
    augmenter_free(&augmenter);
}

/* Factors reach their limits, and windows lie within what is resized, anywhere in it. */
TEST(test_windows_lie_within_the_resized_image)
{
    double least = 10, most = 0;
    uint32_t leftmost = UINT32_MAX, rightmost = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        const CropPlan plan = make_plan(&scaled, 100, 60, i);
        const double factor = plan.resized_width / 100.0;
        least = fmin(least, factor);
        most = fmax(most, factor);
        assert_true(fabs(plan.resized_height - 60 * factor) <= 1);
        assert_true(plan.window.left + plan.window.width <= plan.resized_width);
        assert_true(plan.window.top + plan.window.height <= plan.resized_height);
        assert_int_equal(plan.window.width, plan.resized_width < SIZE ? plan.resized_width : SIZE);
        assert_int_equal(plan.window.height, plan.resized_height < SIZE ? plan.resized_height : SIZE);
        leftmost = plan.window.left < leftmost ? plan.window.left : leftmost;
        rightmost = plan.window.left > rightmost ? plan.window.left : rightmost;
    }
    assert_true(least >= 0.5 && least < 0.51 && most <= 2 && most > 1.99);
    assert_true(leftmost == 0 && rightmost > 140);
}

TEST(test_gray_images_become_colour_and_back_with_their_padding)
{
    Augmenter *augmenter = NULL;
    FshError error = {0};
    const uint8_t gray[4] = {100, 100, 100, 100},
                  colour[12] = {90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90};
    const CropPlan plan = {.resized_width = 2, .resized_height = 2, .window = {0, 0, 2, 2}};
    const ImagePlace whole = {.eighths = 8};
    uint8_t target[4 * 4 * 3];
    assert_ok(augmenter_new(&augmenter, &error), &error);
    Augmentation view = {.mode = CROP_SCALED, .size = 4, .channels = 3, .fill = {1, 2, 3}};
    const ImageView of_gray = {gray, 2, 2, 2, 1}, of_colour = {colour, 6, 2, 2, 3};
    assert_ok(augment_render(augmenter, &view, &plan, &of_gray, &whole, target, &error), &error);
    static const uint8_t row[] = {100, 100, 100, 100, 100, 100, 1, 2, 3, 1, 2, 3};
    assert_memory_equal(target, row, sizeof row);
    assert_memory_equal(target + 3 * sizeof row, "\1\2\3\1\2\3\1\2\3\1\2\3", sizeof row);
    view.channels = 1;
    assert_ok(augment_render(augmenter, &view, &plan, &of_colour, &whole, target, &error), &error);
    assert_memory_equal(target, "\132\132\1\1\132\132\1\1\1\1\1\1", 12);
    augmenter_free(&augmenter);
}

TEST(test_whole_masks_are_copied)
{
    uint8_t values[6] = {0, 1, 2, 255, 4, 5}, target[6];
    const ImageView view = {values, 3, 3, 2, 1};
    const Augmentation whole = {.mode = CROP_WHOLE, .channels = 3};
    augment_render_mask(&whole, &(CropPlan){0}, &view, OUTSIDE, target);
    assert_memory_equal(target, values, sizeof values);
}
