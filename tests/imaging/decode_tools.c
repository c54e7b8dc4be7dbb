#include "tests/imaging/decode_tools.h"

#include <stdlib.h>
#include <string.h>

#include "imaging/image_plugin.h"

int decode_setup(void **state)
{
    DecodeTools *tools = calloc(1, sizeof *tools);
    *state = tools;
    return !tools || image_decoder_new(&tools->decoder, &tools->error);
}

int decode_teardown(void **state)
{
    DecodeTools *tools = *state;
    image_decoder_free(&tools->decoder);
    assert_null(tools->decoder);
    image_free(&tools->image);
    buffer_free(&tools->file);
    free(tools);
    return 0;
}

void need_libvips(void)
{
    const ImagePlugin *plugin = NULL;
    FshError error = {0};
    if (image_plugin_load(&plugin, &error)) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
}

/* Decodes a copy of exactly the file's length, so that a read past it shows under ASan. */
FshStatus decode_with(DecodeTools *tools, const ImageDecodeOptions *options)
{
    uint8_t *bytes = malloc(tools->file.length + (tools->file.length == 0));
    assert_non_null(bytes);
    if (tools->file.length)
        memcpy(bytes, tools->file.bytes, tools->file.length);
    tools->error = (FshError){0};
    FshStatus status = image_decode(tools->decoder, bytes, tools->file.length, options, &tools->image,
                                    &tools->info, &tools->error);
    free(bytes);
    assert_int_equal(status, tools->error.status);
    assert_int_equal(status != FSH_OK, tools->error.message[0] != '\0');
    return status;
}

void decode_file(DecodeTools *tools)
{
    FshStatus status = decode_with(tools, &(ImageDecodeOptions){0});
    assert_ok(status, &tools->error);
}

void expect_shape(const DecodeTools *tools, uint32_t width, uint32_t height, uint32_t channels)
{
    assert_int_equal(tools->image.width, width);
    assert_int_equal(tools->image.height, height);
    assert_int_equal(tools->image.channels, channels);
    assert_int_equal(tools->info.width, width);
    assert_int_equal(tools->info.height, height);
}

void expect_near(const uint8_t *pixel, int red, int green, int blue, int tolerance)
{
    assert_in_range(pixel[0], red < tolerance ? 0 : red - tolerance, red + tolerance);
    assert_in_range(pixel[1], green < tolerance ? 0 : green - tolerance, green + tolerance);
    assert_in_range(pixel[2], blue < tolerance ? 0 : blue - tolerance, blue + tolerance);
}

void make_plain_jpeg(DecodeTools *tools, MakeJpeg options)
{
    static const uint32_t channels[] = {1, 3, 4, 4};
    uint8_t *pixels = make_pixels(options.width, options.height, channels[options.colours]);
    options.pixels = pixels;
    make_jpeg(&options, &tools->file);
    free(pixels);
}
