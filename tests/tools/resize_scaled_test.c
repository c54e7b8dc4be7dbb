/* What decoding at a fraction of the size may change: hardly anything. Every orientation, straight by planes
 * and over RGB. */
#include <stdlib.h>
#include <string.h>

#include "tests/tools/resize_image_tools.h"

static uint8_t *copy_pixels(const Image *image, size_t *length)
{
    *length = (size_t)image->width * image->height * image->channels;
    uint8_t *pixels = malloc(*length);
    assert_non_null(pixels);
    memcpy(pixels, image->pixels, *length);
    return pixels;
}

/* Compares with the exact way at sizes that no fraction divides: the last column and row are covered in part,
 * and turning moves them to the front. */
static void check_against_exact(ResizeTools *tools, MakeJpeg options)
{
    take_jpeg(tools, options);
    tools->recipe.max_size = 16;
    tools->recipe.quality = 100;
    tools->recipe.subsampling = IMAGE_SUBSAMPLING_444;
    tools->recipe.exact = true;
    assert_ok(resize_as(tools, IMAGE_UNKNOWN), &tools->error);
    size_t length = 0, exact_length = 0;
    uint8_t *exact = copy_pixels(&tools->image, &exact_length);
    uint32_t width = tools->image.width, height = tools->image.height;
    tools->recipe.exact = false;
    assert_ok(resize_as(tools, IMAGE_UNKNOWN), &tools->error);
    uint8_t *fast = copy_pixels(&tools->image, &length);
    assert_int_equal(tools->image.width, width);
    assert_int_equal(tools->image.height, height);
    double decibels = psnr(fast, exact, length);
    if (length != exact_length || decibels < 42)
        fail_msg("%u x %u, orientation %u: %.1f dB", options.width, options.height, options.orientation,
                 decibels);
    free(exact);
    free(fast);
}

TEST_WITH(test_scaled_decoding_moves_nothing_in_any_orientation, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    for (uint8_t orientation = 1; orientation <= 8; orientation++) {
        check_against_exact(
            tools,
            (MakeJpeg){
                .width = 259, .height = 257, .colours = MAKE_RGB, .quality = 98, .orientation = orientation});
        check_against_exact(tools, (MakeJpeg){.width = 131,
                                              .height = 203,
                                              .colours = MAKE_GRAY,
                                              .quality = 98,
                                              .orientation = orientation});
    }
}
