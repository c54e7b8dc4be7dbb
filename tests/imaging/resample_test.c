/* Resampling: bit for bit what Pillow does (golden/make_pillow.py), and the sizes that fresize asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/resample.h"
#include "imaging/resample_kernels.h"
#include "tests/support/support.h"

static uint32_t read_le(const uint8_t *bytes, size_t count)
{
    uint32_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static float read_float(const uint8_t *bytes)
{
    uint32_t bits = read_le(bytes, 4);
    float value = 0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Draws the picture of golden_image in make_pillow.py. */
static void golden_image(Image *image, uint32_t width, uint32_t height, uint32_t channels)
{
    assert_int_equal(image_reserve(image, width, height, channels, NULL), FSH_OK);
    uint8_t *pixel = image->pixels;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            uint32_t block = (x / 5 + y / 7) % 4;
            for (uint32_t c = 0; c < channels; c++) {
                uint32_t value = x * 7 + y * 13 + c * 29 + (x * y / 8) * 5 + (x ^ y) * 3;
                *pixel++ = (uint8_t)(block == 0 ? 0 : block == 1 ? 255 : value);
            }
        }
    }
}

enum { CASE_HEADER_BYTES = 2 + 4 * 2 + 4 * 4 };

static void check_golden(const ResampleKernels *kernels)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/tests/imaging/golden/resample_pillow.bin", getenv("FSHARD_SOURCE"));
    size_t length = 0;
    char *file = test_file_read(path, &length);
    const uint8_t *at = (const uint8_t *)file, *end = at + length;
    assert_memory_equal(at, "FGR1", 4);
    uint32_t cases_count = read_le(at + 4, 4);
    assert_true(cases_count > 50);
    at += 8;

    Resampler *resampler = NULL;
    Image source = {0}, target = {0};
    FshError error = {0};
    assert_ok(resampler_new(&resampler, &error), &error);
    resampler_use_kernels(resampler, kernels);
    for (uint32_t i = 0; i < cases_count; i++) {
        assert_true(end - at >= CASE_HEADER_BYTES);
        ResampleFilter filter = (ResampleFilter)at[0];
        uint32_t channels = at[1], width = read_le(at + 6, 2), height = read_le(at + 8, 2);
        golden_image(&source, read_le(at + 2, 2), read_le(at + 4, 2), channels);
        ResampleBox box = {read_float(at + 10), read_float(at + 14), read_float(at + 18),
                           read_float(at + 22)};
        at += CASE_HEADER_BYTES;
        assert_ok(resample(resampler, &source, &box, width, height, filter, &target, &error), &error);
        size_t bytes = (size_t)width * height * channels;
        assert_true((size_t)(end - at) >= bytes);
        if (memcmp(target.pixels, at, bytes) != 0)
            fail_msg("%s: case %u (%s, %u channels, %u x %u to %u x %u) differs from Pillow", kernels->name,
                     i, resample_filter_names[filter], channels, source.width, source.height, width, height);
        at += bytes;
    }
    assert_ptr_equal(at, end);
    image_free(&source);
    image_free(&target);
    resampler_free(&resampler);
    free(file);
}

TEST(test_pixels_are_pillows)
{
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if ((*kernels)->supported())
            check_golden(*kernels);
    }
}

TEST(test_short_edge_is_fitted_and_never_enlarged)
{
    static const struct {
        uint32_t width, height, max_size;
        bool long_edge, changes;
        uint32_t to_width, to_height;
    } rows[] = {
        {500, 375, 160, false, true, 213, 160},
        {375, 500, 160, false, true, 160, 213},
        {500, 375, 160, true, true, 160, 120},
        {375, 500, 160, true, true, 120, 160},
        {160, 160, 160, false, false, 160, 160},
        {100, 4000, 160, false, false, 100, 4000},
        {100, 4000, 160, true, true, 4, 160},
        {10000, 2, 1, false, true, 5000, 1},
        {10000, 1, 100, true, true, 100, 1}, /* never below 1 x 1 */
        {65000, 65000, 256, false, true, 256, 256},
        {5, 3, 2, false, true, 3, 2}, /* 3.33 */
        {4, 3, 2, false, true, 3, 2}, /* 2.67 */
        {5, 2, 1, false, true, 2, 1}, /* 2.5: a half goes to the even number, as Python's round takes it */
        {7, 2, 1, false, true, 4, 1}, /* 3.5 */
        {480, 640, 257, false, true, 257, 343}, /* 342.67 */
        {480, 685, 240, false, true, 240, 342}, /* 342.5 */
        {685, 480, 240, false, true, 342, 240},
        {687, 480, 240, false, true, 344, 240}, /* 343.5 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t width = 0, height = 0;
        bool changes =
            resample_fit(rows[i].width, rows[i].height, rows[i].max_size, rows[i].long_edge, &width, &height);
        assert_int_equal(changes, rows[i].changes);
        assert_int_equal(width, rows[i].to_width);
        assert_int_equal(height, rows[i].to_height);
    }
}

TEST(test_box_outside_the_image_is_refused)
{
    static const ResampleBox boxes[] = {
        {-1, 0, 4, 4}, {0, 0, 11, 4}, {0, 0, 4, 11}, {4, 0, 4, 4}, {0, 5, 4, 4}};
    Resampler *resampler = NULL;
    Image source = {0}, target = {0};
    FshError error = {0};
    assert_ok(resampler_new(&resampler, &error), &error);
    golden_image(&source, 10, 10, 3);
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++)
        assert_int_equal(resample(resampler, &source, &boxes[i], 2, 2, RESAMPLE_BOX, &target, &error),
                         FSH_ERR_MISMATCH);
    assert_int_equal(resample(resampler, &source, NULL, 0, 2, RESAMPLE_BOX, &target, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "10 x 10");
    assert_int_equal(resample(resampler, &source, NULL, 2, 2, RESAMPLE_BOX, &target, &error), FSH_OK);
    image_free(&source);
    image_free(&target);
    resampler_free(&resampler);
}

/* More sizes than the cache of weights holds, twice: what was thrown out is computed again, the same. */
TEST(test_many_sizes_give_the_same_pixels_again)
{
    enum { SIZES = 40 };
    Resampler *resampler = NULL;
    Image source = {0}, target = {0};
    uint64_t sums[SIZES] = {0};
    FshError error = {0};
    assert_ok(resampler_new(&resampler, &error), &error);
    golden_image(&source, 64, 48, 3);
    for (uint32_t i = 0; i < 2 * SIZES; i++) {
        uint32_t edge = i % SIZES + 1;
        assert_ok(resample(resampler, &source, NULL, edge, edge, RESAMPLE_LANCZOS, &target, &error), &error);
        uint64_t sum = 0;
        for (size_t k = 0; k < (size_t)edge * edge * 3; k++)
            sum = sum * 31 + target.pixels[k];
        if (i < SIZES)
            sums[edge - 1] = sum;
        else
            assert_true(sums[edge - 1] == sum);
    }
    image_free(&source);
    image_free(&target);
    resampler_free(&resampler);
}
