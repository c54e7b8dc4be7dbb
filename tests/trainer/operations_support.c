#include "tests/trainer/operations_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/picture.h"
#include "trainer/backend/pixel_operations.h"
#include "trainer/data/auto_augment.h"

static const uint32_t sizes[][2] = {{224, 224}, {1, 1}, {2, 3}, {3, 2}, {1, 9}, {17, 5}, {32, 32}, {33, 65}};
enum { SIZES = sizeof sizes / sizeof *sizes, ARGUMENTS = 5, LARGE_EDGE = 200 };

static const char *const policies[] = {
    "ra", "ta_wide", "imagenet", "original", "3a", "rand-m9-mstd0.5-inc1", "rand-m10-n8", "rand-n2-p1"};
enum { POLICIES = sizeof policies / sizeof *policies };

static const uint8_t fill[4] = {124, 7, 255, 0};

/* Arguments of an operation: nothing, what policies draw, their ends, and beyond. */
static const double arguments[OPERATION_COUNT][ARGUMENTS] = {
    [OPERATION_ROTATE] = {0, -17.25, 29.999, 90, 135},
    [OPERATION_POSTERIZE] = {0, 1, 4, 7, 8},
    [OPERATION_SOLARIZE] = {0, 1, 127.5, 128, 256},
    [OPERATION_SOLARIZE_ADD] = {0, 1, 55, 110, 128},
    [OPERATION_COLOUR] = {0, 0.1, 0.73, 1, 1.99},
    [OPERATION_CONTRAST] = {0, 0.1, 0.73, 1, 1.99},
    [OPERATION_BRIGHTNESS] = {0, 0.1, 0.73, 1, 1.99},
    [OPERATION_SHARPNESS] = {0, 0.1, 0.73, 1, 1.99},
    [OPERATION_SHEAR_X] = {0, -0.99, 0.3, 0.0371, -0.11},
    [OPERATION_SHEAR_Y] = {0, -0.99, 0.3, 0.0371, -0.11},
    [OPERATION_TRANSLATE_X] = {0, 1, -2.5, 0.45, 400},
    [OPERATION_TRANSLATE_Y] = {0, 1, -2.5, 0.45, 400},
    [OPERATION_BLUR] = {0.1, 0.5, 1, 1.99, 7},
};

/* Draws image i: a picture, noise of all levels, noise of some, or one colour. */
static void draw_image(const PixelBatch *batch, uint64_t i, uint8_t *pixels)
{
    const size_t count = (size_t)batch->width * batch->height * batch->channels;
    Random random;
    random_start(&random, 3, i);
    if (i % 4 == 0) {
        picture_draw(batch->width, batch->height, batch->channels, (uint32_t)i, pixels);
        return;
    }
    for (size_t k = 0; k < count; k++) {
        const uint32_t drawn = random_u32(&random);
        const uint32_t level = 31 * (uint32_t)(k % batch->channels + 1);
        pixels[k] = (uint8_t)(i % 4 == 1 ? drawn : i % 4 == 2 ? level + (drawn >> 24) / 3 : level);
    }
}

/* Returns the steps of image i: each operation with each argument, then those that a policy draws. */
static ImageSteps steps_of(const PixelBatch *batch, uint64_t i)
{
    const uint64_t single = (uint64_t)OPERATION_COUNT * ARGUMENTS, own = i % (single + POLICIES);
    ImageSteps steps = {.count = 1};
    if (own < single) {
        const ImageOperation operation = (ImageOperation)(own / ARGUMENTS);
        steps.steps[0] = (ImageStep){operation, arguments[operation][own % ARGUMENTS]};
        steps.black = i / single % 2;
        return steps;
    }
    AutoAugment policy = {.ra_magnitude = 9};
    FshError error = {0};
    Random random;
    random_start(&random, 7, i);
    assert_ok(auto_augment_parse(policies[own - single], &policy, &error), &error);
    auto_augment_draw(&policy, batch->width, batch->height, &random, &steps);
    return steps;
}

static void make_image(OperationsCase *test, uint64_t i, bool bicubic, uint8_t *scratch)
{
    const PixelBatch *batch = &test->batch;
    const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
    PixelOperations *operations = &test->operations[i];
    ImageCanvas canvas = {.pixels = test->expected + i * bytes,
                          .scratch = scratch,
                          .width = batch->width,
                          .height = batch->height,
                          .channels = batch->channels,
                          .bicubic = bicubic};
    const ImageSteps steps = steps_of(batch, i);
    memcpy(canvas.fill, fill, sizeof fill);
    test->recipes[i] = (PixelRecipe){.offset_bytes = {i * bytes, PIXELS_NONE},
                                     .width = batch->width,
                                     .height = batch->height,
                                     .channels = {(uint8_t)batch->channels, 0},
                                     .filter = bicubic ? RESAMPLE_BICUBIC : RESAMPLE_BILINEAR,
                                     .part_width = batch->width,
                                     .part_height = batch->height,
                                     .resized_width = batch->width,
                                     .resized_height = batch->height};
    draw_image(batch, i, test->stored + i * bytes);
    memcpy(canvas.pixels, test->stored + i * bytes, bytes);
    auto_augment_apply(&steps, &canvas);
    *operations = (PixelOperations){.count = steps.count};
    if (!steps.black)
        memcpy(operations->fill, fill, sizeof fill);
    for (unsigned s = 0; s < steps.count; s++)
        image_operation_plan(&steps.steps[s], batch->width, batch->height, &operations->steps[s]);
}

bool operations_case_make(OperationsCase *test, unsigned number)
{
    enum { FEW = 1, MANY = 4 };
    const unsigned size = number / 4;
    const uint32_t channels = number % 2 ? 1 : 3;
    const bool bicubic = number / 2 % 2;
    *test = (OperationsCase){0};
    if (size >= SIZES)
        return false;
    test->large = sizes[size][0] >= LARGE_EDGE;
    test->batch =
        (PixelBatch){.count = (uint64_t)(OPERATION_COUNT * ARGUMENTS + POLICIES) * (test->large ? FEW : MANY),
                     .width = sizes[size][0],
                     .height = sizes[size][1],
                     .channels = channels};
    (void)snprintf(test->name, sizeof test->name, "%u x %u x %u, %s", test->batch.width, test->batch.height,
                   channels, bicubic ? "bicubic" : "bilinear");
    const uint64_t count = test->batch.count;
    const size_t bytes = (size_t)test->batch.width * test->batch.height * channels;
    uint8_t *scratch = malloc(bytes);
    test->stored_bytes = count * bytes;
    test->stored = malloc(test->stored_bytes);
    test->expected = malloc(test->stored_bytes);
    test->recipes = calloc(count, sizeof *test->recipes);
    test->operations = calloc(count, sizeof *test->operations);
    assert_non_null(scratch);
    assert_non_null(test->stored);
    assert_non_null(test->expected);
    assert_non_null(test->recipes);
    assert_non_null(test->operations);
    for (uint64_t i = 0; i < count; i++)
        make_image(test, i, bicubic, scratch);
    free(scratch);
    test->batch.recipes = test->recipes;
    test->batch.operations = test->operations;
    return true;
}

void operations_case_free(OperationsCase *test)
{
    free(test->stored);
    free(test->expected);
    free(test->recipes);
    free(test->operations);
    *test = (OperationsCase){0};
}

void operations_case_compare(const OperationsCase *test, const uint8_t *pixels)
{
    const size_t bytes = (size_t)test->batch.width * test->batch.height * test->batch.channels;
    for (size_t k = 0; k < test->stored_bytes; k++)
        if (pixels[k] != test->expected[k])
            fail_msg("%s: value %zu of image %zu, whose first of %u operations is %s, is %u, not %u",
                     test->name, k % bytes, k / bytes, test->operations[k / bytes].count,
                     image_operation_names[test->operations[k / bytes].steps[0].operation], pixels[k],
                     test->expected[k]);
}

/* ---- what the kernel does ---- */

void operations_apply(const PixelBatch *batch, uint64_t i, uint32_t threads, uint8_t *pixels)
{
    const PixelOperations *operations = &batch->operations[i];
    const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
    uint8_t *scratch = malloc(bytes);
    PixelOperationShared shared;
    assert_non_null(scratch);
    PixelOperationImage image = {.from = pixels,
                                 .to = scratch,
                                 .width = batch->width,
                                 .height = batch->height,
                                 .channels = batch->channels,
                                 .bicubic = batch->recipes[i].filter != RESAMPLE_BILINEAR};
    memcpy(image.fill, operations->fill, sizeof image.fill);
    memset(scratch, 0xA5, bytes); /* what an earlier image has left */
    memset(&shared, 0xA5, sizeof shared);
    for (uint32_t s = 0; s < operations->count; s++) {
        const PixelOperation *step = &operations->steps[s];
        for (uint32_t phase = 0; phase < pixel_operation_phases(step); phase++) {
            for (uint32_t thread = 0; thread < threads; thread++)
                pixel_operation_work(step, phase, &image, &shared, thread, threads);
            pixel_operation_turn(step, &image);
        }
    }
    for (uint32_t thread = 0; thread < threads; thread++)
        pixel_operation_end(&image, pixels, thread, threads);
    free(scratch);
}
