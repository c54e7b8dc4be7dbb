/* PSNR and SSIM against an implementation in NumPy that looks at each window by itself
 * (golden/make_golden_optim.py). */
#include "trainer/report/image_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "tests/support/support.h"
#include "tests/trainer/golden.h"

static int64_t clip(int64_t value)
{
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

/* Draws the golden file's images: waves with grain. */
static void make_images(const ImageSize *size, uint8_t *a, uint8_t *b)
{
    const size_t count = (size_t)size->width * size->height * size->channels;
    double *grain[2] = {malloc(count * sizeof(double)), malloc(count * sizeof(double))};
    assert_true(grain[0] && grain[1]);
    golden_uniform("a", grain[0], count);
    golden_uniform("b", grain[1], count);
    for (size_t i = 0; i < count; i++) {
        const int64_t row = (int64_t)(i / ((size_t)size->width * size->channels));
        const int64_t column = (int64_t)(i / size->channels % size->width);
        const int64_t wave = 128 + (row * 13 + column * 7) % 90 - (column * 5) % 60;
        const int64_t first = (int64_t)((grain[0][i] + 1) * 128), second = (int64_t)((grain[1][i] + 1) * 128);
        a[i] = (uint8_t)clip(wave + first / 8);
        b[i] = (uint8_t)clip(wave + first / 16 + second / 6);
    }
    free(grain[0]);
    free(grain[1]);
}

typedef struct Pair {
    ImageSize size;
    uint8_t *a, *b;
} Pair;

static Pair pair_new(uint32_t width, uint32_t height, uint32_t channels)
{
    const size_t bytes = (size_t)width * height * channels;
    Pair pair = {{width, height, channels}, malloc(bytes), malloc(bytes)};
    assert_true(pair.a && pair.b);
    make_images(&pair.size, pair.a, pair.b);
    return pair;
}

static void pair_free(Pair *pair)
{
    free(pair->a);
    free(pair->b);
}

static double psnr_of(const Pair *pair, const ImageMetricOptions *options)
{
    FshError error = {0};
    double value = 0;
    assert_ok(image_metrics_psnr(pair->a, pair->b, &pair->size, options, &value, &error), &error);
    return value;
}

static double ssim_of(const Pair *pair, const ImageMetricOptions *options)
{
    FshError error = {0};
    double value = 0;
    assert_ok(image_metrics_ssim(pair->a, pair->b, &pair->size, options, &value, &error), &error);
    return value;
}

TEST(test_metrics_agree_with_numpy)
{
    json_t *document = golden_load("image_metrics.json"), *c;
    size_t i;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        int64_t shape[4];
        golden_shape(c, shape);
        Pair pair = pair_new((uint32_t)shape[1], (uint32_t)shape[0], (uint32_t)shape[2]);
        const ImageMetricOptions options = {(uint32_t)golden_integer(c, "crop_border"),
                                            golden_integer(c, "y_channel") != 0};
        const double of_psnr = fabs(psnr_of(&pair, &options) / golden_real(c, "psnr") - 1);
        const double of_ssim = fabs(ssim_of(&pair, &options) / golden_real(c, "ssim") - 1);
        print_message("  %-40s psnr %.1e, ssim %.1e\n", golden_text(c, "name"), of_psnr, of_ssim);
        assert_true(golden_real(c, "ssim") > 0.1 && golden_real(c, "ssim") < 0.999);
        assert_true(of_psnr < 1e-9 && of_ssim < 1e-9);
        pair_free(&pair);
    }
    assert_true(i == 14);
    json_decref(document);
}

TEST(test_equal_images_are_infinitely_near)
{
    Pair pair = pair_new(20, 15, 3);
    memcpy(pair.b, pair.a, (size_t)20 * 15 * 3);
    for (int luma = 0; luma < 2; luma++) {
        const ImageMetricOptions options = {0, luma};
        assert_true(isinf(psnr_of(&pair, &options)) && psnr_of(&pair, &options) > 0);
        assert_true(fabs(ssim_of(&pair, &options) - 1) < 1e-12);
    }
    pair_free(&pair);
}

TEST(test_the_border_does_not_count)
{
    Pair pair = pair_new(30, 30, 3);
    const ImageMetricOptions options = {3, false};
    const double psnr = psnr_of(&pair, &options), ssim = ssim_of(&pair, &options);
    for (size_t row = 0; row < 30; row++)
        for (size_t column = 0; column < 30; column++)
            if (row < 3 || row >= 27 || column < 3 || column >= 27)
                memset(pair.b + (row * 30 + column) * 3, 255, 3);
    assert_true(psnr_of(&pair, &options) == psnr && ssim_of(&pair, &options) == ssim);
    assert_true(psnr_of(&pair, &(ImageMetricOptions){2, false}) != psnr);
    pair_free(&pair);
}

TEST(test_a_level_apart_is_48_decibels)
{
    Pair pair = pair_new(12, 12, 3);
    for (size_t i = 0; i < (size_t)12 * 12 * 3; i++) {
        pair.a[i] = 100;
        pair.b[i] = 101;
    }
    assert_true(fabs(psnr_of(&pair, &(ImageMetricOptions){0, false}) - 20 * log10(255)) < 1e-12);
    pair_free(&pair);
}

TEST(test_images_too_small_are_refused)
{
    Pair pair = pair_new(18, 11, 3);
    FshError error = {0};
    double value = 7;
    const ImageMetricOptions one = {1, false}, six = {6, false}, largest = {UINT32_MAX, false};
    assert_int_equal(image_metrics_ssim(pair.a, pair.b, &pair.size, &one, &value, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message,
                        "an image of 18 x 11 pixels without a border of 1 is too small to be compared; it "
                        "needs 11 x 11");
    assert_int_equal(image_metrics_psnr(pair.a, pair.b, &pair.size, &six, &value, &error), FSH_ERR_MISMATCH);
    assert_int_equal(image_metrics_psnr(pair.a, pair.b, &pair.size, &largest, &value, &error),
                     FSH_ERR_MISMATCH);
    assert_true(value == 7);
    pair_free(&pair);
}

/* Prints times for `image_metrics_test time`. */
static void time_metrics(void)
{
    Pair pair = pair_new(1280, 720, 3);
    const ImageMetricOptions options = {0};
    double times[3] = {progress_now_seconds()};
    (void)psnr_of(&pair, &options);
    times[1] = progress_now_seconds();
    (void)ssim_of(&pair, &options);
    times[2] = progress_now_seconds();
    print_message("1280 x 720: psnr %.1f ms, ssim %.1f ms\n", 1e3 * (times[1] - times[0]),
                  1e3 * (times[2] - times[1]));
    pair_free(&pair);
}

int test_program_arguments(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "time") != 0)
        return test_take_pattern(argc, argv);
    time_metrics();
    return 0;
}
