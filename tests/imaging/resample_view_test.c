/* Resampling a part where it lies, and from right to left: what resample gives for a copy of it. */
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "imaging/mirror.h"
#include "imaging/resample_kernels.h"
#include "tests/support/support.h"

typedef struct ViewTools {
    Resampler *resampler;
    Image copy, expected;
    uint8_t *pixels, *target; /* exactly as long as they need be: ASan sees a byte too many */
} ViewTools;

static void draw(uint8_t *pixels, size_t bytes, uint64_t stream)
{
    Random random;
    random_start(&random, 8, stream);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)random_u32(&random);
}

/* Checks that a view of width x height at (left, top) of a whole_width x whole_height image resamples as a
 * copy of its pixels does. */
static void check_view(ViewTools *tools, uint32_t whole_width, uint32_t whole_height, uint32_t left,
                       uint32_t top, uint32_t width, uint32_t height, uint32_t channels,
                       uint32_t target_width, uint32_t target_height)
{
    FshError error = {0};
    size_t stride = (size_t)whole_width * channels,
           target_bytes = (size_t)target_width * target_height * channels;
    tools->pixels = realloc(tools->pixels, stride * whole_height);
    tools->target = realloc(tools->target, target_bytes);
    assert_non_null(tools->pixels);
    assert_non_null(tools->target);
    draw(tools->pixels, stride * whole_height, width);
    const ImageView view = {.pixels = tools->pixels + top * stride + (size_t)left * channels,
                            .stride_bytes = stride,
                            .width = width,
                            .height = height,
                            .channels = channels};
    assert_ok(image_reserve(&tools->copy, width, height, channels, &error), &error);
    for (uint32_t y = 0; y < height; y++)
        memcpy(tools->copy.pixels + (size_t)y * width * channels, view.pixels + y * stride,
               (size_t)width * channels);
    assert_ok(resample(tools->resampler, &tools->copy, NULL, target_width, target_height, RESAMPLE_BILINEAR,
                       &tools->expected, &error),
              &error);
    assert_ok(resample_view(tools->resampler, &view, NULL, target_width, target_height, RESAMPLE_BILINEAR,
                            NULL, false, tools->target, &error),
              &error);
    assert_memory_equal(tools->target, tools->expected.pixels, target_bytes);
    assert_ok(resample_view(tools->resampler, &view, NULL, target_width, target_height, RESAMPLE_BILINEAR,
                            NULL, true, tools->target, &error),
              &error);
    size_t row_bytes = (size_t)target_width * channels;
    uint8_t *row = malloc(row_bytes);
    assert_non_null(row);
    for (uint32_t y = 0; y < target_height; y++) {
        image_mirror_row_portable(tools->expected.pixels + y * row_bytes, target_width, channels, row);
        assert_memory_equal(tools->target + y * row_bytes, row, row_bytes);
    }
    free(row);
}

/* A window of the target: those pixels of the whole. */
TEST(test_a_window_is_a_part_of_the_whole)
{
    enum { WIDTH = 90, HEIGHT = 70, TARGET_WIDTH = 61, TARGET_HEIGHT = 47 };
    Image source = {0}, whole = {0}, part = {0};
    FshError error = {0};
    Resampler *resampler = NULL;
    assert_ok(resampler_new(&resampler, &error), &error);
    assert_ok(image_reserve(&source, WIDTH, HEIGHT, 3, &error), &error);
    draw(source.pixels, (size_t)WIDTH * HEIGHT * 3, 1);
    assert_ok(
        resample(resampler, &source, NULL, TARGET_WIDTH, TARGET_HEIGHT, RESAMPLE_BILINEAR, &whole, &error),
        &error);
    const ImageView view = image_view(&source);
    const ResampleWindow windows[] = {{0, 0, 61, 47}, {14, 7, 32, 32}, {60, 0, 1, 47}, {0, 46, 61, 1}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const ResampleWindow *window = &windows[i];
        assert_ok(image_reserve(&part, window->width, window->height, 3, &error), &error);
        assert_ok(resample_view(resampler, &view, NULL, TARGET_WIDTH, TARGET_HEIGHT, RESAMPLE_BILINEAR,
                                window, false, part.pixels, &error),
                  &error);
        for (uint32_t y = 0; y < window->height; y++)
            assert_memory_equal(part.pixels + (size_t)y * window->width * 3,
                                whole.pixels + ((size_t)(window->top + y) * TARGET_WIDTH + window->left) * 3,
                                (size_t)window->width * 3);
    }
    const ResampleWindow outside = {30, 0, 32, 47};
    assert_int_equal(resample_view(resampler, &view, NULL, TARGET_WIDTH, TARGET_HEIGHT, RESAMPLE_BILINEAR,
                                   &outside, false, part.pixels, &error),
                     FSH_ERR_MISMATCH);
    image_free(&source);
    image_free(&whole);
    image_free(&part);
    resampler_free(&resampler);
}

TEST(test_a_view_gives_what_its_copy_gives)
{
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if (!(*kernels)->supported())
            continue;
        ViewTools tools = {0};
        FshError error = {0};
        assert_ok(resampler_new(&tools.resampler, &error), &error);
        resampler_use_kernels(tools.resampler, *kernels);
        for (uint32_t channels = 1; channels <= 3; channels += 2) {
            check_view(&tools, 90, 70, 13, 7, 50, 40, channels, 32, 32);  /* smaller */
            check_view(&tools, 90, 70, 40, 30, 50, 40, channels, 64, 64); /* larger, to the last pixel */
            check_view(&tools, 90, 70, 3, 5, 32, 40, channels, 32, 20);   /* height alone */
            check_view(&tools, 90, 70, 3, 5, 40, 32, channels, 20, 32);   /* width alone */
            check_view(&tools, 90, 70, 3, 5, 33, 31, channels, 33, 31);   /* neither */
            check_view(&tools, 90, 70, 0, 0, 90, 70, channels, 45, 35);   /* all of it */
            check_view(&tools, 5, 5, 4, 4, 1, 1, channels, 7, 3);         /* a pixel */
            check_view(&tools, 9, 300, 2, 100, 3, 200, channels, 2, 2);
        }
        image_free(&tools.copy);
        image_free(&tools.expected);
        free(tools.pixels);
        free(tools.target);
        resampler_free(&tools.resampler);
    }
}
