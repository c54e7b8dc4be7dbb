/* Formats by their first bytes, names, pixels in memory, orientation, EXIF and ICC blocks. */
#include <stdlib.h>
#include <string.h>

#include "imaging/exif.h"
#include "imaging/icc.h"
#include "imaging/image.h"
#include "imaging/orient.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

#define BYTES(text) text, sizeof(text) - 1

TEST(test_formats_are_known_by_their_first_bytes)
{
    static const struct {
        const char *bytes;
        size_t length;
        ImageFormat format;
    } rows[] = {
        {BYTES("\xff\xd8\xff\xe0"), IMAGE_JPEG},
        {BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), IMAGE_PNG},
        {BYTES("RIFF\x10\0\0\0WEBPVP8 "), IMAGE_WEBP},
        {BYTES("RIFF\x10\0\0\0WAVEfmt "), IMAGE_UNKNOWN},
        {BYTES("xxxx\x10\0\0\0WEBPVP8 "), IMAGE_UNKNOWN},
        {BYTES("II*\0\x08\0\0\0"), IMAGE_TIFF},
        {BYTES("MM\0*\0\0\0\x08"), IMAGE_TIFF},
        {BYTES("GIF89a\x01\0\x01\0"), IMAGE_GIF},
        {BYTES("BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"), IMAGE_BMP},
        {BYTES("BMW is a maker of cars and so on"), IMAGE_UNKNOWN},
        {BYTES("P6\n640 480\n255\n"), IMAGE_PNM},
        {BYTES("P5 # comment\n"), IMAGE_PNM},
        {BYTES("P5 in the list"), IMAGE_UNKNOWN},
        {BYTES("P8\n640 480\n"), IMAGE_UNKNOWN},
        {BYTES("\0\0\0\x1c"
               "ftypavif\0\0\0\0"),
         IMAGE_HEIF},
        {BYTES("\0\0\0\x1c"
               "ftypmp42\0\0\0\0"),
         IMAGE_UNKNOWN},
        {BYTES("\0\0\0\x0cjP  \r\n\x87\n"), IMAGE_JPEG2000},
        {BYTES("\xff\x0a\xcb\x06\x01\xc8\x07\x49\x71\x13\0\x80"), IMAGE_OTHER}, /* JPEG XL */
        {BYTES("\xff\n\xe9t\xe9, a text in Latin-1\r\n\tthat begins with a letter of its own\n"),
         IMAGE_UNKNOWN},
        {BYTES("\xff\x0a"), IMAGE_UNKNOWN},
        {BYTES("<html><body>"), IMAGE_UNKNOWN},
        {BYTES(""), IMAGE_UNKNOWN},
        {BYTES("\xff"), IMAGE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        /* an allocation of exactly this size: a read past it shows under ASan */
        uint8_t *bytes = malloc(rows[i].length + (rows[i].length == 0));
        assert_non_null(bytes);
        memcpy(bytes, rows[i].bytes, rows[i].length);
        if (image_sniff(bytes, rows[i].length) != rows[i].format)
            fail_msg("row %zu: %s", i, image_format_name(image_sniff(bytes, rows[i].length)));
        free(bytes);
    }
}

TEST(test_names_of_images)
{
    assert_true(image_name_is_image("a/b/n01440764_10026.JPEG"));
    assert_true(image_name_is_image("x.TiFf"));
    assert_int_equal(image_name_format("x.y/z.webp"), IMAGE_WEBP);
    assert_false(image_name_is_image("x.jpg/README"));
    assert_false(image_name_is_image("jpg"));
    assert_false(image_name_is_image("a/.png")); /* a hidden file, not an extension */
    assert_false(image_name_is_image("notes.txt"));
    assert_int_equal(image_name_format("x.apng"), IMAGE_PNG);
    assert_int_equal(image_name_format("x.mpo"), IMAGE_JPEG);
    assert_int_equal(image_name_format("x.ICO"), IMAGE_OTHER); /* not read, and not to be passed over */
    assert_int_equal(image_name_format("x.qoi"), IMAGE_OTHER);
}

TEST(test_quirks_have_names)
{
    assert_string_equal(image_quirk_name(IMAGE_QUIRK_EXTENSION), "extension");
    assert_string_equal(image_quirk_name(IMAGE_QUIRK_WARNING), "warning");
    assert_string_equal(image_quirk_name((ImageQuirk)(1u << (IMAGE_QUIRK_COUNT - 1))), "animation");
}

TEST(test_impossible_size_is_refused)
{
    Image image = {0};
    FshError error = {0};
    assert_int_equal(image_reserve(&image, UINT32_MAX, UINT32_MAX, 3, &error), FSH_ERR_MEMORY);
    assert_contains(error.message, "4294967295");
    assert_null(image.pixels);
    assert_int_equal(image_reserve(&image, 3, 2, 3, &error), FSH_OK);
    assert_int_equal((uintptr_t)image.pixels % 64, 0);
    image_free(&image);
}

/* A 3 x 2 image with pixels 1..6, and how a viewer shows it: EXIF 2.32, figure 6. */
TEST(test_orientations_place_pixels)
{
    static const uint8_t stored[] = {1, 2, 3, 4, 5, 6};
    static const struct {
        uint32_t width;
        uint8_t shown[6];
    } rows[9] = {
        [1] = {3, {1, 2, 3, 4, 5, 6}}, [2] = {3, {3, 2, 1, 6, 5, 4}}, [3] = {3, {6, 5, 4, 3, 2, 1}},
        [4] = {3, {4, 5, 6, 1, 2, 3}}, [5] = {2, {1, 4, 2, 5, 3, 6}}, [6] = {2, {4, 1, 5, 2, 6, 3}},
        [7] = {2, {6, 3, 5, 2, 4, 1}}, [8] = {2, {3, 6, 2, 5, 1, 4}},
    };
    Image source = {0}, target = {0};
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        assert_int_equal(image_reserve(&source, 3, 2, channels, NULL), FSH_OK);
        for (size_t i = 0; i < 6; i++)
            memset(source.pixels + i * channels, stored[i], channels);
        for (uint8_t orientation = 1; orientation <= 8; orientation++) {
            assert_int_equal(image_orient(&source, orientation, &target, NULL), FSH_OK);
            assert_int_equal(target.width, rows[orientation].width);
            assert_int_equal(target.height, 6 / rows[orientation].width);
            for (size_t i = 0; i < 6; i++)
                assert_int_equal(target.pixels[i * channels + channels - 1], rows[orientation].shown[i]);
        }
    }
    image_free(&source);
    image_free(&target);
}

TEST(test_gray_and_rgb_become_each_other)
{
    static const uint8_t rgb[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 20, 30};
    static const uint8_t luma[] = {76, 150, 29, 255, 18};
    Image source = {0}, target = {0};
    assert_int_equal(image_reserve(&source, 5, 1, 3, NULL), FSH_OK);
    memcpy(source.pixels, rgb, sizeof rgb);
    assert_int_equal(image_convert_channels(&source, 1, &target, NULL), FSH_OK);
    assert_memory_equal(target.pixels, luma, sizeof luma);
    assert_int_equal(image_convert_channels(&target, 3, &source, NULL), FSH_OK);
    assert_int_equal(source.channels, 3);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(source.pixels[i], luma[i / 3]);
    image_free(&source);
    image_free(&target);
}

TEST(test_exif_orientation_in_both_byte_orders)
{
    uint8_t bytes[64];
    for (int big = 0; big <= 1; big++) {
        for (uint8_t value = 1; value <= 8; value++) {
            bool damaged = false;
            size_t length = make_exif(value, big, bytes);
            assert_int_equal(exif_orientation(bytes, length, &damaged), value);
            assert_false(damaged);
        }
    }
}

/* Every prefix, every byte changed to every value: an answer from 1 to 8, and no read outside (ASan watches).
 */
TEST(test_hostile_exif_is_harmless)
{
    uint8_t whole[64] = "Exif\0";
    size_t length = 6 + make_exif(6, false, whole + 6);
    for (size_t cut = 0; cut <= length; cut++) {
        uint8_t *bytes = malloc(cut + (cut == 0));
        assert_non_null(bytes);
        memcpy(bytes, whole, cut);
        bool damaged = false;
        uint8_t orientation = exif_orientation(bytes, cut, &damaged);
        assert_in_range(orientation, 1, 8);
        if (cut < length - 4) /* only the offset of the next folder may be missing */
            assert_true(damaged);
        free(bytes);
    }
    for (size_t at = 0; at < length; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t *bytes = malloc(length);
            assert_non_null(bytes);
            memcpy(bytes, whole, length);
            bytes[at] = (uint8_t)value;
            bool damaged = false;
            assert_in_range(exif_orientation(bytes, length, &damaged), 1, 8);
            free(bytes);
        }
    }
    uint8_t bytes[64];
    bool damaged = false;
    length = make_exif(9, true, bytes);
    assert_int_equal(exif_orientation(bytes, length, &damaged), 1);
    assert_true(damaged);
}

TEST(test_profiles_say_what_they_are)
{
    uint8_t bytes[1024];
    size_t length = make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", bytes);
    assert_true(icc_profile_matches(bytes, length, 3));
    assert_false(icc_profile_matches(bytes, length, 1));
    assert_false(icc_profile_is_srgb(bytes, length));
    length = make_icc(true, MAKE_CURVE_GAMMA, "sRGB gray", bytes);
    assert_true(icc_profile_matches(bytes, length, 1));
    assert_true(icc_profile_is_srgb(bytes, length));
}

TEST(test_curve_longer_than_its_tag_is_refused)
{
    IccConversion conversion = {0};
    uint8_t bytes[1024];
    size_t length = make_icc(false, MAKE_CURVE_TABLE, "Wide RGB", bytes);
    uint8_t *curve = memmem(bytes, length, "curv", 4);
    assert_non_null(curve);
    assert_true(icc_conversion_prepare(bytes, length, 3, &conversion));
    curve[11]++;
    assert_false(icc_conversion_prepare(bytes, length, 3, &conversion));
}

/* Cut anywhere, every byte changed to a few values: an answer, and no read outside (ASan watches). */
TEST(test_hostile_profiles_are_harmless)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    IccConversion conversion = {0};
    uint8_t whole[1024];
    for (MakeCurve curve = MAKE_CURVE_GAMMA; curve <= MAKE_CURVE_PARAMETRIC; curve++) {
        size_t length = make_icc(false, curve, "Wide RGB", whole);
        assert_true(icc_conversion_prepare(whole, length, 3, &conversion));
        for (size_t cut = 0; cut < length; cut++) {
            uint8_t *bytes = malloc(cut + (cut == 0));
            assert_non_null(bytes);
            memcpy(bytes, whole, cut);
            assert_false(icc_profile_is_srgb(bytes, cut));
            (void)icc_profile_matches(bytes, cut, 1);
            (void)icc_conversion_prepare(bytes, cut, 3, &conversion);
            free(bytes);
        }
        for (size_t at = 0; at < length; at++) {
            for (size_t i = 0; i < sizeof values; i++) {
                uint8_t *bytes = malloc(length);
                assert_non_null(bytes);
                memcpy(bytes, whole, length);
                bytes[at] = values[i];
                (void)icc_profile_is_srgb(bytes, length);
                (void)icc_conversion_prepare(bytes, length, 3, &conversion);
                free(bytes);
            }
        }
    }
}
