/* Every kernel against the portable one, on random and edge shapes: the same bytes, and none outside the
 * target. `resample_kernels_test time` prints how fast each is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "common/random.h"
#include "imaging/resample_axis.h"
#include "imaging/resample_kernels.h"
#include "tests/support/support.h"

enum { GUARD_BYTES = 128, GUARD = 0xA5 };

/* Returns `bytes` bytes of noise and the slack after them that kernels may read; the caller frees them. */
static uint8_t *make_source(Random *random, size_t bytes, size_t slack)
{
    uint8_t *source = malloc(bytes + slack);
    assert_non_null(source);
    for (size_t i = 0; i < bytes + slack; i++) {
        uint32_t value = random_u32(random);
        source[i] = (uint8_t)(value & 0x300   ? value
                              : value & 0x400 ? 255
                                              : 0); /* many extremes: they overflow first */
    }
    return source;
}

static uint8_t *make_target(size_t bytes)
{
    uint8_t *target = malloc(bytes + GUARD_BYTES);
    assert_non_null(target);
    memset(target, GUARD, bytes + GUARD_BYTES);
    return target;
}

static void check_guard(const uint8_t *target, size_t bytes, const ResampleKernels *kernels, const char *pass)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (target[bytes + i] != GUARD)
            fail_msg("%s: %s writes %zu bytes behind its target", kernels->name, pass, i + 1);
    }
}

static void check_horizontal(const ResampleKernels *kernels, const ResampleAxis *axis,
                             const ResampleAxisKey *key, Random *random)
{
    uint32_t channels = random_below(random, 2) ? 3 : 1, rows = 1 + random_below(random, 20);
    size_t row_bytes = (size_t)key->source_size * channels, target_row_bytes = (size_t)axis->count * channels;
    uint8_t *source = make_source(random, row_bytes * rows, RESAMPLE_SLACK_BYTES);
    uint8_t *expected = make_target(target_row_bytes * rows), *target = make_target(target_row_bytes * rows);
    resample_kernels_portable.horizontal(axis, source, row_bytes, rows, channels, expected, target_row_bytes);
    kernels->horizontal(axis, source, row_bytes, rows, channels, target, target_row_bytes);
    if (memcmp(target, expected, target_row_bytes * rows) != 0)
        fail_msg("%s: horizontal, %u to %u pixels, box %g to %g, %s, %u rows, %u channels: differs",
                 kernels->name, key->source_size, key->target_size, key->begin, key->end,
                 resample_filter_names[key->filter], rows, channels);
    check_guard(target, target_row_bytes * rows, kernels, "horizontal");
    free(source);
    free(expected);
    free(target);
}

/* Compares a kernel's vertical pass with the portable one. The rows have no slack, so that a read outside
 * them shows under ASan. */
static void check_vertical(const ResampleKernels *kernels, const ResampleAxis *axis,
                           const ResampleAxisKey *key, Random *random)
{
    size_t row_bytes = 1 + random_below(random, random_below(random, 2) ? 300 : 70);
    uint8_t *source = make_source(random, row_bytes * key->source_size, 0);
    uint8_t *expected = make_target(row_bytes), *target = make_target(row_bytes);
    for (uint32_t y = 0; y < axis->count; y++) {
        const uint8_t *rows = source + axis->first[y] * row_bytes;
        resample_kernels_portable.vertical(axis, y, rows, row_bytes, expected);
        kernels->vertical(axis, y, rows, row_bytes, target);
        if (memcmp(target, expected, row_bytes) != 0)
            fail_msg("%s: vertical, %u to %u rows, output %u, %zu bytes wide, %s: differs", kernels->name,
                     key->source_size, key->target_size, y, row_bytes, resample_filter_names[key->filter]);
        check_guard(target, row_bytes, kernels, "vertical");
    }
    free(source);
    free(expected);
    free(target);
}

static ResampleAxisKey random_key(Random *random)
{
    ResampleAxisKey key = {.filter = (ResampleFilter)random_below(random, RESAMPLE_LANCZOS + 1)};
    uint32_t most = random_below(random, 8) == 0 ? 2000 : 90;
    key.source_size = 1 + random_below(random, most);
    key.target_size = 1 + random_below(random, random_below(random, 4) == 0 ? 200 : key.source_size);
    key.begin = 0;
    key.end = (float)key.source_size;
    if (random_below(random, 3) == 0) { /* a part of it */
        key.begin = (float)(random_uniform(random) * 0.5f * (float)key.source_size);
        key.end = key.begin + ((float)key.source_size - key.begin) * (0.1f + 0.9f * random_uniform(random));
    }
    return key;
}

TEST(test_kernels_give_the_portable_bytes)
{
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if (!(*kernels)->supported()) {
            print_message("%s: not supported here, not tested\n", (*kernels)->name);
            continue;
        }
        Random random;
        random_start(&random, 2, 0);
        ResampleAxisCache cache = {0};
        for (unsigned i = 0; i < 1500; i++) {
            ResampleAxisKey key = random_key(&random);
            const ResampleAxis *axis = NULL;
            FshError error = {0};
            assert_ok(resample_axis_get(&cache, &key, *kernels, &axis, &error), &error);
            check_horizontal(*kernels, axis, &key, &random);
            check_vertical(*kernels, axis, &key, &random);
        }
        resample_axis_cache_clear(&cache);
    }
}

/* The whole resampler on images without slack, of one pixel to a few: what kernels may read after a row they
 * get. */
TEST(test_small_images_are_read_within_their_bounds)
{
    Image source = {0}, expected = {0}, target = {0};
    Resampler *resampler = NULL, *portable = NULL;
    FshError error = {0};
    assert_ok(resampler_new(&resampler, &error), &error);
    assert_ok(resampler_new(&portable, &error), &error);
    resampler_use_kernels(portable, &resample_kernels_portable);
    Random random;
    random_start(&random, 3, 0);
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if (!(*kernels)->supported())
            continue;
        resampler_use_kernels(resampler, *kernels);
        for (unsigned i = 0; i < 800; i++) {
            uint32_t width = 1 + random_below(&random, 40), height = 1 + random_below(&random, 40);
            uint32_t channels = i % 2 ? 3 : 1;
            source = (Image){.width = width, .height = height, .channels = channels};
            source.pixels = make_source(&random, (size_t)width * height * channels, 0);
            uint32_t to_width = 1 + random_below(&random, 30), to_height = 1 + random_below(&random, 30);
            assert_ok(
                resample(resampler, &source, NULL, to_width, to_height, RESAMPLE_LANCZOS, &target, &error),
                &error);
            assert_ok(
                resample(portable, &source, NULL, to_width, to_height, RESAMPLE_LANCZOS, &expected, &error),
                &error);
            if (memcmp(target.pixels, expected.pixels, (size_t)to_width * to_height * channels) != 0)
                fail_msg("%s: %u x %u x %u to %u x %u", (*kernels)->name, width, height, channels, to_width,
                         to_height);
            free(source.pixels);
        }
    }
    image_free(&expected);
    image_free(&target);
    resampler_free(&resampler);
    resampler_free(&portable);
}

TEST(test_angles_are_those_of_the_librarys_sine)
{
    enum { STEPS = 10000 };
    for (int i = -STEPS; i <= STEPS; i++) {
        const double radians = M_PI * i / STEPS;
        const ResampleAngle angle = resample_angle(radians);
        assert_true(fabs(angle.sine - sin(radians)) < 2e-15);
        assert_true(fabs(angle.cosine - cos(radians)) < 2e-15);
    }
}

/* Hostile sizes: an axis here takes 3 MB, the cache of them no more than its limit and those in use. */
TEST(test_cached_weights_stay_within_their_limit)
{
    ResampleAxisCache cache = {0};
    const ResampleAxis *axes[RESAMPLE_CACHE_KEPT] = {0};
    FshError error = {0};
    size_t largest = 0;
    for (uint32_t i = 0; i < 30; i++) {
        ResampleAxisKey key = {65500 - i, 160, 0, (float)(65500 - i), RESAMPLE_LANCZOS, 0, 0, false};
        size_t place = i % RESAMPLE_CACHE_KEPT;
        assert_ok(resample_axis_get(&cache, &key, &resample_kernels_portable, &axes[place], &error), &error);
        size_t bytes = (size_t)axes[place]->stride * axes[place]->count * sizeof(int32_t);
        largest = bytes > largest ? bytes : largest;
        assert_true(cache.bytes <= RESAMPLE_CACHE_BYTES + RESAMPLE_CACHE_KEPT * (largest + 4096));
        for (uint32_t k = 0; k < RESAMPLE_CACHE_KEPT && k <= i; k++) { /* those in use are still there */
            assert_int_equal(axes[k]->count, 160);
            assert_int_equal(axes[k]->first[0], 0);
        }
    }
    for (uint32_t i = 0; i < RESAMPLE_CACHE_KEPT; i++) { /* small ones push the large ones out */
        ResampleAxisKey key = {100, 50 - i, 0, 100, RESAMPLE_BOX, 0, 0, false};
        assert_ok(resample_axis_get(&cache, &key, &resample_kernels_portable, &axes[i], &error), &error);
    }
    assert_true(cache.bytes <= RESAMPLE_CACHE_BYTES);
    resample_axis_cache_clear(&cache);
}

/* Prints the best time of each kernel for 500 x 375 RGB to 213 x 160 by Lanczos: ImageNet's commonest
 * size. */
static void time_kernels(void)
{
    Image source = {0}, target = {0};
    Random random;
    random_start(&random, 4, 0);
    (void)image_reserve(&source, 500, 375, 3, NULL);
    for (size_t i = 0; i < (size_t)500 * 375 * 3; i++)
        source.pixels[i] = (uint8_t)random_u32(&random);
    for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
        if (!(*kernels)->supported())
            continue;
        Resampler *resampler = NULL;
        (void)resampler_new(&resampler, NULL);
        resampler_use_kernels(resampler, *kernels);
        double best = 1;
        for (unsigned i = 0; i < 200; i++) {
            double start = progress_now_seconds();
            (void)resample(resampler, &source, NULL, 213, 160, RESAMPLE_LANCZOS, &target, NULL);
            double seconds = progress_now_seconds() - start;
            best = seconds < best ? seconds : best;
        }
        (void)printf("%-10s 500x375 to 213x160 lanczos: %.3f ms, %.0f images/s\n", (*kernels)->name,
                     best * 1e3, 1 / best);
        resampler_free(&resampler);
    }
    image_free(&source);
    image_free(&target);
}

int test_program_arguments(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "time") != 0)
        return test_take_pattern(argc, argv);
    time_kernels();
    return 0;
}
