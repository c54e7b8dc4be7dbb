/* The arithmetic of a backend's own pixels, done here in loops, against the loader's rendering: the same
 * bytes. */
#include "trainer/backend/pixels.h"

#include <stdlib.h>
#include <string.h>

#include "imaging/resample_axis.h"
#include "tests/support/support.h"
#include "tests/trainer/pixels_support.h"
#include "trainer/backend/pixel_math.h"

TEST(test_recipes_give_the_loaders_bytes)
{
    for (uint64_t seed = 1; seed < 3; seed++) {
        PixelsCase test;
        for (unsigned number = 0; pixels_case_make(&test, seed, number); number++) {
            const PixelBatch *batch = &test.batch;
            const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
            uint8_t *pixels = malloc(bytes * PIXELS_COUNT);
            assert_non_null(pixels);
            for (unsigned side = 0; side < 2 * test.sides; side++) {
                memset(pixels, 0x5A, bytes * PIXELS_COUNT);
                pixels_apply(batch, test.stored, side / 2, side % 2, pixels);
                pixels_case_compare(&test, side / 2, pixels);
            }
            free(pixels);
            pixels_case_free(&test);
        }
    }
}

/* Asserts that a kernel's weights of an axis are the resampler's. */
static void compare_axis(ResampleAxisCache *cache, uint32_t part, uint32_t resized, uint32_t window,
                         uint32_t outputs, ResampleFilter filter)
{
    const ResampleAxisKey key = {part, resized, 0, (float)part, filter, window, outputs, false};
    const ResampleAxis *expected = NULL;
    FshError error = {0};
    assert_ok(resample_axis_get(cache, &key, &resample_kernels_portable, &expected, &error), &error);
    const uint64_t taps = pixel_taps(part, resized, filter);
    uint32_t *words = malloc(pixel_axis_words(outputs, (uint32_t)taps) * sizeof *words);
    assert_non_null(words);
    const PixelAxis axis = pixel_axis_at(words, outputs);
    for (uint32_t i = 0; i < outputs; i++) {
        pixel_axis_fill(&axis, part, resized, window, filter, i);
        assert_true(axis.length[i] <= taps);
        assert_int_equal(axis.first[i], expected->first[i]);
        assert_int_equal(axis.length[i], expected->length[i]);
        for (uint32_t k = 0; k < axis.length[i]; k++)
            if (axis.weights[(size_t)k * outputs + i] != expected->weights[(size_t)i * expected->stride + k])
                fail_msg("%s, %u to %u, output %u of %u from %u: weight %u is %d, not %d",
                         resample_filter_names[filter], part, resized, i, outputs, window, k,
                         axis.weights[(size_t)k * outputs + i],
                         expected->weights[(size_t)i * expected->stride + k]);
    }
    free(words);
}

TEST(test_axes_have_the_resamplers_weights)
{
    static const uint32_t extremes[][2] = {{1, 1}, {1, 300}, {300, 1}, {2, 3}, {65500, 7}, {5000, 224}};
    ResampleAxisCache cache = {0};
    Random random;
    random_start(&random, 5, 0);
    for (int filter = RESAMPLE_BOX; filter <= RESAMPLE_LANCZOS; filter++) {
        for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++)
            compare_axis(&cache, extremes[i][0], extremes[i][1], 0, extremes[i][1], (ResampleFilter)filter);
        for (int i = 0; i < 500; i++) {
            const uint32_t part = 1 + random_below(&random, i % 8 ? 90 : 2000),
                           resized = 1 + random_below(&random, i % 4 ? part : 300),
                           window = random_below(&random, resized),
                           outputs = 1 + random_below(&random, resized - window);
            compare_axis(&cache, part, resized, window, outputs, (ResampleFilter)filter);
        }
    }
    resample_axis_cache_clear(&cache);
}

/* ---- the interface on a backend that has none ---- */

TEST(test_the_cpu_backend_has_no_store)
{
    Backend *backend = NULL;
    PixelStore *store = NULL;
    FshError error = {0};
    uint64_t bytes = 0;
    assert_int_equal(backend_open(&backend, "cpu", &(BackendOptions){.threads = 1}, &error), FSH_OK);
    assert_int_equal(pixel_store_new(&store, backend, 100, &error), FSH_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "--device cuda"));
    assert_null(store);
    assert_int_equal(backend_free_memory(backend, &bytes, &error), FSH_ERR_UNSUPPORTED);
    pixel_store_free(&store);
    backend_close(&backend);
}
