#include "tests/tools/resize_image_tools.h"

#include <stdlib.h>
#include <string.h>

#include "imaging/encode.h"
#include "imaging/image_plugin.h"

const ShrinkRecipe resize_usual_recipe = {
    .max_size = 30, .filter = RESAMPLE_LANCZOS, .quality = 95, .max_pixels = IMAGE_MAX_PIXELS_DEFAULT};

int resize_tools_setup(void **state)
{
    ResizeTools *tools = calloc(1, sizeof *tools);
    *state = tools;
    if (tools)
        tools->recipe = resize_usual_recipe;
    return !tools || shrink_worker_new(&tools->worker, &tools->error) ||
           image_decoder_new(&tools->decoder, &tools->error);
}

int resize_tools_teardown(void **state)
{
    ResizeTools *tools = *state;
    shrink_worker_free(&tools->worker);
    image_decoder_free(&tools->decoder);
    buffer_free(&tools->file);
    image_free(&tools->image);
    free(tools);
    return 0;
}

/* ---- files ---- */

void take_jpeg(ResizeTools *tools, MakeJpeg options)
{
    static const uint32_t channels[] = {1, 3, 4, 4};
    uint8_t *pixels = make_pixels(options.width, options.height, channels[options.colours]);
    options.pixels = options.pixels ? options.pixels : pixels;
    make_jpeg(&options, &tools->file);
    free(pixels);
}

void take_png(ResizeTools *tools, uint32_t width, uint32_t height)
{
    uint8_t *pixels = make_pixels(width, height, 3);
    make_png(&(MakePng){.width = width, .height = height, .bit_depth = 8, .colour_type = 2, .rows = pixels},
             &tools->file);
    free(pixels);
}

void take_encoded(ResizeTools *tools, ImageFormat format, uint32_t width, uint32_t height,
                  const ImageMetadata *metadata)
{
    ImageEncoder *encoder = NULL;
    Image image = {0};
    uint8_t *pixels = make_pixels(width, height, 3);
    assert_ok(image_encoder_new(&encoder, &tools->error), &tools->error);
    assert_ok(image_reserve(&image, width, height, 3, &tools->error), &tools->error);
    memcpy(image.pixels, pixels, (size_t)width * height * 3);
    const ImageEncodeOptions options = {.format = format, .quality = 95, .metadata = metadata};
    assert_ok(image_encode(encoder, &image, &options, &tools->file, &tools->error), &tools->error);
    image_encoder_free(&encoder);
    image_free(&image);
    free(pixels);
}

void take_bytes(ResizeTools *tools, const void *from, size_t length)
{
    tools->file.length = 0;
    assert_ok(buffer_append(&tools->file, from, length, &tools->error), &tools->error);
}

/* ---- what becomes of them ---- */

/* Resizes a copy of exactly the file's length, so that a read past it shows under ASan. */
FshStatus resize_as(ResizeTools *tools, ImageFormat promised)
{
    uint8_t *exact = malloc(tools->file.length);
    assert_non_null(exact);
    memcpy(exact, tools->file.bytes, tools->file.length);
    tools->error = (FshError){0};
    FshStatus status = shrink_image(tools->worker, exact, tools->file.length, promised, &tools->recipe,
                                    &tools->resized, &tools->error);
    assert_int_equal(status, tools->error.status);
    if (!status && tools->resized.action != SHRINK_TOO_SMALL) {
        const ImageDecodeOptions options = {.ignore_orientation = true, .keep_metadata = true};
        assert_ok(image_decode(tools->decoder, tools->resized.bytes, tools->resized.length, &options,
                               &tools->image, &tools->info, &tools->error),
                  &tools->error);
        image_decoder_metadata(tools->decoder, &tools->metadata);
        assert_int_equal(tools->info.format, tools->resized.format);
        assert_int_equal(tools->image.width, tools->resized.width);
        assert_int_equal(tools->image.height, tools->resized.height);
    }
    free(exact);
    return status;
}

void expect(ResizeTools *tools, ShrinkAction action, ImageFormat format, uint32_t width, uint32_t height,
            uint32_t channels)
{
    assert_ok(resize_as(tools, IMAGE_UNKNOWN), &tools->error);
    if (tools->resized.action != action || tools->info.format != format || tools->image.width != width ||
        tools->image.height != height || tools->image.channels != channels)
        fail_msg("action %d, %s %u x %u x %u", (int)tools->resized.action,
                 image_format_name(tools->info.format), tools->image.width, tools->image.height,
                 tools->image.channels);
}

void expect_failure(ResizeTools *tools, FshStatus status, const char *message)
{
    assert_int_equal(resize_as(tools, IMAGE_UNKNOWN), status);
    assert_contains(tools->error.message, message);
}

void expect_pixel(const ResizeTools *tools, uint32_t x, uint32_t y, int red, int green, int blue)
{
    const uint8_t *pixel = tools->image.pixels + ((size_t)y * tools->image.width + x) * 3;
    const int wanted[] = {red, green, blue};
    assert_int_equal(tools->image.channels, 3);
    for (size_t c = 0; c < 3; c++) {
        if (abs(pixel[c] - wanted[c]) > 12)
            fail_msg("(%u, %u) is %u %u %u, expected %d %d %d", x, y, pixel[0], pixel[1], pixel[2], red,
                     green, blue);
    }
}
