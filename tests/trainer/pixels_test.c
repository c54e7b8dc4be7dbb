/* The arithmetic of a backend's own pixels, done here in loops, against the loader's rendering: the same bytes. */
#include "trainer/backend/pixels.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/pixels_support.h"
#include "trainer/backend/pixel_math.h"

/* ---- what the kernels do ---- */

static void fill_axis(const PixelAxis *axis, uint32_t part, uint32_t resized, uint32_t window)
{
    for (uint32_t i = 0; i < axis->outputs; i++)
        pixel_axis_fill(axis, part, resized, window, i);
}

static void render(const PixelsCase *test, unsigned side, unsigned i, uint8_t *pixels)
{
    const PixelRecipe *recipe = &test->recipes[i];
    const PixelBatch *batch = &test->batch;
    if (recipe->offset_bytes[side] == PIXELS_NONE) {
        for (size_t k = 0; k < (size_t)batch->width * batch->height; k++)
            memcpy(pixels + k * batch->channels, batch->fill, batch->channels);
        return;
    }
    const uint32_t outputs[2] = {recipe->transpose ? batch->height : batch->width,
                                 recipe->transpose ? batch->width : batch->height};
    const uint32_t parts[2] = {recipe->part_width, recipe->part_height},
                   resized[2] = {recipe->resized_width, recipe->resized_height},
                   windows[2] = {recipe->window_left, recipe->window_top};
    PixelAxis axes[2];
    uint32_t *words[2];
    for (int a = 0; a < 2; a++) {
        words[a] = malloc(pixel_axis_words(outputs[a], (uint32_t)pixel_taps(parts[a], resized[a])) *
                          sizeof(uint32_t));
        assert_non_null(words[a]);
        axes[a] = pixel_axis_at(words[a], outputs[a]);
        if (pixel_is_resampled(recipe))
            fill_axis(&axes[a], parts[a], resized[a], windows[a]);
    }
    for (uint32_t y = 0; y < batch->height; y++)
        for (uint32_t x = 0; x < batch->width; x++)
            pixel_render(recipe, test->stored + recipe->offset_bytes[side], recipe->channels[side],
                         batch->width, batch->height, batch->channels, &axes[0], &axes[1], x, y,
                         pixels + ((size_t)y * batch->width + x) * batch->channels);
    free(words[0]);
    free(words[1]);
}

static uint64_t luma_sum(const PixelBatch *batch, const uint8_t *pixels)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < (size_t)batch->width * batch->height; k++, pixels += batch->channels)
        sum += batch->channels == 1 ? pixels[0] : colour_luma(pixels);
    return sum;
}

static void change_colours(const PixelBatch *batch, const PixelColours *colours, uint8_t *pixels)
{
    const size_t count = (size_t)batch->width * batch->height;
    for (uint32_t s = 0; s < colours->step_count; s++) {
        const int mean = colour_mean(luma_sum(batch, pixels), count);
        for (size_t k = 0; k < count; k++)
            colour_step_pixel((ColourStep)colours->steps[s], colours->factors[s], mean,
                              pixels + k * batch->channels, batch->channels);
    }
    for (uint32_t y = 0; y < batch->height; y++)
        for (uint32_t x = 0; x < batch->width; x++)
            pixel_finish(colours, batch->seed, batch->erased_deviation, batch->width, batch->channels, x, y,
                         pixels + ((size_t)y * batch->width + x) * batch->channels);
}

static void mix(const PixelBatch *batch, unsigned i, uint8_t *first, uint8_t *second)
{
    for (size_t k = 0; k < (size_t)batch->width * batch->height * batch->channels; k++) {
        const uint32_t pixel = (uint32_t)(k / batch->channels), x = pixel % batch->width,
                       y = pixel / batch->width;
        const uint8_t a = first[k], b = second[k];
        first[k] = pixel_mixed(&batch->colours[i], x, y, a, b);
        second[k] = pixel_mixed(&batch->colours[i + 1], x, y, b, a);
    }
}

static void test_recipes_give_the_loaders_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        PixelsCase test;
        for (unsigned number = 0; pixels_case_make(&test, seed, number); number++) {
            const PixelBatch *batch = &test.batch;
            const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
            uint8_t *pixels = malloc(bytes * PIXELS_COUNT);
            assert_non_null(pixels);
            for (unsigned side = 0; side < test.sides; side++) {
                for (unsigned i = 0; i < PIXELS_COUNT; i++)
                    render(&test, side, i, pixels + i * bytes);
                for (unsigned i = 0; i < PIXELS_COUNT && side == 0 && batch->colours; i++)
                    if (test.recipes[i].offset_bytes[0] != PIXELS_NONE)
                        change_colours(batch, &batch->colours[i], pixels + i * bytes);
                for (unsigned i = 0; i < PIXELS_COUNT && side == 0 && batch->colours; i += 2)
                    mix(batch, i, pixels + i * bytes, pixels + (i + 1) * bytes);
                pixels_case_compare(&test, side, pixels);
            }
            free(pixels);
            pixels_case_free(&test);
        }
    }
}

/* ---- the interface on a backend that has none ---- */

static void test_the_cpu_backend_has_no_store(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipes_give_the_loaders_bytes),
        cmocka_unit_test(test_the_cpu_backend_has_no_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
