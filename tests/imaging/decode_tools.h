/* decode_tools.h - what the tests of decoding share: a decoder, a file, and what it became. */
#ifndef FSHARD_TESTS_IMAGING_DECODE_TOOLS_H
#define FSHARD_TESTS_IMAGING_DECODE_TOOLS_H

#include "imaging/decode.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

typedef struct DecodeTools {
    ImageDecoder *decoder;
    Image image;
    Buffer file;
    ImageInfo info;
    FshError error;
} DecodeTools;

/* Make and free the test's DecodeTools, *state. */
int decode_setup(void **state);
int decode_teardown(void **state);
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define DECODE_TEST(name, tools) TEST_WITH(name, decode_setup, decode_teardown, DecodeTools *tools)

/* Skips the test, with a message, where the plugin is not there. */
void need_libvips(void);

/* Decodes tools->file into image and info. A failure has a message, a success has none. */
FshStatus decode_with(DecodeTools *tools, const ImageDecodeOptions *options);
/* Decodes tools->file with the default options; fails the test on errors. */
void decode_file(DecodeTools *tools);

/* Asserts the size of the image and its info, and the image's channels. */
void expect_shape(const DecodeTools *tools, uint32_t width, uint32_t height, uint32_t channels);
void expect_near(const uint8_t *pixel, int red, int green, int blue, int tolerance);

/* Fills tools->file by make_jpeg with a smooth picture, which becomes the options' pixels. */
void make_plain_jpeg(DecodeTools *tools, MakeJpeg options);

#endif
