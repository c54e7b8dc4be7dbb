/* jpeg_size: what it says of a header is what libjpeg says, and where libjpeg finds a fault it says
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "tests/imaging/make_images.h"
#include "tests/support/support.h"
#include "imaging/jpeg_size.h"

static Buffer make(const MakeJpeg *options)
{
    Buffer file = {0};
    MakeJpeg jpeg = *options;
    uint8_t *pixels = make_pixels(jpeg.width, jpeg.height, jpeg.colours == MAKE_GRAY ? 1 : 3);
    jpeg.pixels = pixels;
    make_jpeg(&jpeg, &file);
    free(pixels);
    return file;
}

/* Returns whether jpeg_size knows the size. The bytes lie at the end of memory of their own, so that reading
 * on is seen. */
static bool check(ImageDecoder *decoder, const uint8_t *bytes, size_t length)
{
    ImageInfo quick = {0}, probed = {0};
    FshError error = {0};
    uint8_t *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy + 1, bytes, length);
    const bool known = jpeg_size(copy + 1, length, &quick);
    if (known) {
        assert_ok(image_probe(decoder, copy + 1, length, &probed, &error), &error);
        assert_int_equal(quick.format, probed.format);
        assert_int_equal(quick.width, probed.width);
        assert_int_equal(quick.height, probed.height);
        assert_int_equal(quick.stored_width, probed.stored_width);
        assert_int_equal(quick.stored_height, probed.stored_height);
        assert_int_equal(quick.channels, probed.channels);
        assert_int_equal(quick.orientation, probed.orientation);
    }
    free(copy);
    return known;
}

/* Returns the length of a JPEG's header, which the first scan ends. */
static size_t header_length(const Buffer *file)
{
    size_t at = 2;
    while (file->bytes[at + 1] != 0xDA)
        at += 2 + (size_t)(file->bytes[at + 2] << 8 | file->bytes[at + 3]);
    return at + 2 + (size_t)(file->bytes[at + 2] << 8 | file->bytes[at + 3]);
}

static const MakeJpeg plain[] = {
    {.width = 37, .height = 21, .colours = MAKE_RGB},
    {.width = 300, .height = 2, .colours = MAKE_GRAY},
    {.width = 64, .height = 64, .colours = MAKE_RGB, .progressive = true},
    {.width = 9, .height = 9, .colours = MAKE_RGB, .across = 1, .down = 1},
};

TEST_WITH(test_plain_jpegs_have_the_size_that_libjpeg_finds, NULL, NULL, ImageDecoder *decoder)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        Buffer file = make(&plain[i]);
        assert_true(check(decoder, file.bytes, file.length));
        buffer_free(&file);
    }
}

TEST_WITH(test_a_cut_header_is_not_known, NULL, NULL, ImageDecoder *decoder)
{
    Buffer file = make(&plain[0]);
    const size_t header_bytes = header_length(&file);
    for (size_t length = 0; length < header_bytes; length++)
        assert_false(check(decoder, file.bytes, length));
    assert_true(check(decoder, file.bytes, header_bytes));
    buffer_free(&file);
}

/* Each byte of the header takes every value. */
TEST_WITH(test_a_changed_header_is_known_only_where_libjpeg_reads_it_alike, NULL, NULL, ImageDecoder *decoder)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        Buffer file = make(&plain[i]);
        size_t known_count = 0;
        const size_t header_bytes = header_length(&file);
        for (size_t at = 0; at < header_bytes; at++) {
            const uint8_t kept = file.bytes[at];
            for (unsigned value = 0; value < 256; value++) {
                file.bytes[at] = (uint8_t)value;
                known_count += check(decoder, file.bytes, file.length);
            }
            file.bytes[at] = kept;
        }
        assert_true(known_count > header_bytes && known_count < 256 * header_bytes);
        buffer_free(&file);
    }
}

TEST_WITH(test_what_is_not_plain_is_left_to_libjpeg, NULL, NULL, ImageDecoder *decoder)
{
    const MakeJpeg odd[] = {
        {.width = 30, .height = 20, .colours = MAKE_RGB, .orientation = 6},
        {.width = 30, .height = 20, .colours = MAKE_RGB, .icc = "profile", .icc_length = 7},
        {.width = 30, .height = 20, .colours = MAKE_RGB, .arithmetic = true},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        Buffer file = make(&odd[i]);
        ImageInfo info = {0};
        FshError error = {0};
        assert_false(check(decoder, file.bytes, file.length));
        assert_ok(jpeg_size_or_probe(decoder, file.bytes, file.length, &info, &error), &error);
        assert_int_equal(info.width, odd[i].orientation ? 20 : 30);
        buffer_free(&file);
    }
}

int test_group_setup(void **state)
{
    return image_decoder_new((ImageDecoder **)state, NULL);
}

int test_group_teardown(void **state)
{
    image_decoder_free((ImageDecoder **)state);
    return 0;
}
