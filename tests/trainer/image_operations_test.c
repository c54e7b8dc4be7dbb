/* Operations' pixels: those of timm and torchvision on PIL images, bit for bit
 * (golden/make_operations.py). */
#include "trainer/data/image_operations.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/picture.h"

static ImageOperation find_operation(const char *name)
{
    for (int i = 0; i < OPERATION_COUNT; i++)
        if (strcmp(image_operation_names[i], name) == 0)
            return (ImageOperation)i;
    fail_msg("no operation has the name %s", name);
    return OPERATION_COUNT;
}

/* Narrows the picture's levels as make_operations.py does. */
static void narrow_levels(const ImageCanvas *canvas)
{
    const size_t count = (size_t)canvas->width * canvas->height * canvas->channels;
    for (size_t i = 0; i < count; i++)
        canvas->pixels[i] = (uint8_t)(i % canvas->channels == 1 ? 90 + (canvas->pixels[i] >> 3)
                                                                : 40 + (canvas->pixels[i] >> 1));
}

static void expect_pixels(const json_t *spec, const uint8_t *pixels, size_t bytes)
{
    char what[128], hash[32];
    (void)snprintf(what, sizeof what, "%s by %g, %lld x %lld x %lld, bicubic %d", golden_text(spec, "op"),
                   json_number_value(json_object_get(spec, "argument")),
                   (long long)golden_integer(spec, "width"), (long long)golden_integer(spec, "height"),
                   (long long)golden_integer(spec, "channels"),
                   json_is_true(json_object_get(spec, "bicubic")));
    const json_t *first = json_object_get(spec, "first");
    assert_true(json_array_size(first) >= 24);
    for (size_t i = 0; i < json_array_size(first); i++)
        if (json_integer_value(json_array_get(first, i)) != pixels[i])
            fail_msg("%s: value %zu is %u, not %lld", what, i, pixels[i],
                     (long long)json_integer_value(json_array_get(first, i)));
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, picture_hash(pixels, bytes));
    if (strcmp(hash, golden_text(spec, "hash")) != 0)
        fail_msg("%s: pixels differ behind the first", what);
}

static void check_pixels(const json_t *spec)
{
    ImageCanvas canvas = {.width = (uint32_t)golden_integer(spec, "width"),
                          .height = (uint32_t)golden_integer(spec, "height"),
                          .channels = (uint32_t)golden_integer(spec, "channels"),
                          .bicubic = json_is_true(json_object_get(spec, "bicubic")),
                          .fill = {124, 116, 104}};
    const size_t bytes = (size_t)canvas.width * canvas.height * canvas.channels;
    const ImageStep step = {find_operation(golden_text(spec, "op")),
                            json_number_value(json_object_get(spec, "argument"))};
    canvas.pixels = malloc(bytes);
    canvas.scratch = malloc(bytes);
    assert_non_null(canvas.pixels);
    assert_non_null(canvas.scratch);
    picture_draw(canvas.width, canvas.height, canvas.channels, 0, canvas.pixels);
    if (json_is_true(json_object_get(spec, "narrow")))
        narrow_levels(&canvas);
    image_operation_apply(&step, &canvas);
    expect_pixels(spec, canvas.pixels, bytes);
    free(canvas.pixels);
    free(canvas.scratch);
}

TEST(test_operations_are_timms_and_torchvisions)
{
    json_t *golden = golden_load("operations.json"), *spec;
    size_t index;
    unsigned cases[OPERATION_COUNT] = {0};
    json_array_foreach(json_object_get(golden, "pixels"), index, spec)
    {
        check_pixels(spec);
        cases[find_operation(golden_text(spec, "op"))]++;
    }
    for (int i = 0; i < OPERATION_COUNT; i++)
        assert_true(cases[i] >= 4);
    json_decref(golden);
}

/* A sanitizer sees what is read or written outside. Inverted twice, an image is what it was. */
TEST(test_operations_take_images_of_any_size)
{
    static const double arguments[] = {0, 0.1, 1.9, 60, 300};
    for (uint32_t size = 0; size < 5 * 5; size++)
        for (int i = 0; i < OPERATION_COUNT * 5; i++) {
            ImageCanvas canvas = {.width = size % 5 + 1,
                                  .height = size / 5 + 1,
                                  .channels = i % 2 ? 3 : 1,
                                  .bicubic = i % 3 == 0};
            const size_t bytes = (size_t)canvas.width * canvas.height * canvas.channels;
            const ImageStep step = {(ImageOperation)(i / 5),
                                    arguments[i % 5] + (i / 5 == OPERATION_BLUR ? 0.1 : 0)},
                            inverted = {OPERATION_INVERT, 0};
            uint8_t *changed = malloc(bytes), *other = malloc(bytes), *scratch = malloc(bytes);
            assert_true(changed && other && scratch);
            picture_draw(canvas.width, canvas.height, canvas.channels, size, changed);
            canvas.pixels = changed;
            canvas.scratch = scratch;
            image_operation_apply(&step, &canvas);
            memcpy(other, changed, bytes);
            image_operation_apply(&inverted, &canvas);
            image_operation_apply(&inverted, &canvas);
            assert_memory_equal(changed, other, bytes);
            free(changed);
            free(other);
            free(scratch);
        }
}
