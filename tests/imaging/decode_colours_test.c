/* Decoding what libjpeg-turbo alone cannot: CMYK, profiles, PNG and other formats. These tests skip where the
 * plugin is not built. */
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/icc.h"
#include "imaging/image_plugin.h"
#include "tests/imaging/decode_tools.h"

/* ---- colours that need libvips ---- */

DECODE_TEST(test_cmyk_and_ycck_become_rgb, tools)
{
    need_libvips();
    /* Adobe stores inks inverted: 255 is none. No ink, cyan, magenta, black. */
    static const uint8_t inks[4][4] = {
        {255, 255, 255, 255}, {0, 255, 255, 255}, {255, 0, 255, 255}, {255, 255, 255, 0}};
    uint8_t pixels[16 * 64 * 4];
    for (size_t i = 0; i < sizeof pixels / 4; i++)
        memcpy(pixels + 4 * i, inks[i % 64 / 16], 4);
    for (MakeColours colours = MAKE_CMYK; colours <= MAKE_YCCK; colours++) {
        make_jpeg(
            &(MakeJpeg){.width = 64, .height = 16, .colours = colours, .pixels = pixels, .quality = 100},
            &tools->file);
        decode_file(tools);
        expect_shape(tools, 64, 16, 3);
        assert_int_equal(tools->info.quirks, IMAGE_QUIRK_CMYK);
        const uint8_t *row = tools->image.pixels + 8 * 64 * 3;
        expect_near(row + 8 * 3, 255, 255, 255, 3);
        expect_near(row + 24 * 3, 0, 170, 235, 45); /* printed cyan */
        expect_near(row + 40 * 3, 235, 0, 140, 45); /* printed magenta */
        expect_near(row + 56 * 3, 40, 35, 35, 40);  /* printed black */
    }
    make_jpeg(
        &(MakeJpeg){.width = 64, .height = 16, .colours = MAKE_CMYK, .pixels = pixels, .orientation = 6},
        &tools->file);
    decode_file(tools);
    expect_shape(tools, 16, 64, 3);
    tools->file.length = tools->file.length * 2 / 3;
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
}

DECODE_TEST(test_profile_is_converted_when_asked, tools)
{
    uint8_t icc[1024], pixels[32 * 32 * 3];
    for (size_t i = 0; i < sizeof pixels; i += 3)
        memcpy(pixels + i, (uint8_t[]){80, 180, 80}, 3);
    size_t length = make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", icc);
    MakeJpeg options = {.width = 32,
                        .height = 32,
                        .colours = MAKE_RGB,
                        .pixels = pixels,
                        .quality = 100,
                        .icc = icc,
                        .icc_length = length};
    make_jpeg(&options, &tools->file);
    decode_file(tools);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ICC);
    expect_near(tools->image.pixels, 80, 180, 80, 3);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true}), &tools->error);
    uint8_t converted[3];
    memcpy(converted, tools->image.pixels, 3);
    assert_in_range(converted[0], 0, 50); /* less red: this green lies at the edge of sRGB */
    assert_in_range(converted[1], 175, 190);
    /* the same, later */
    uint8_t *bytes = tools->file.bytes;
    assert_ok(image_decode(tools->decoder, bytes, tools->file.length,
                           &(ImageDecodeOptions){.convert_icc = true, .defer_icc = true}, &tools->image, NULL,
                           &tools->error),
              &tools->error);
    expect_near(tools->image.pixels, 80, 180, 80, 3);
    assert_ok(image_convert_profile(tools->decoder, &tools->image, &tools->error), &tools->error);
    assert_memory_equal(tools->image.pixels, converted, 3);
    assert_ok(image_convert_profile(tools->decoder, &tools->image, &tools->error), &tools->error);
    assert_memory_equal(tools->image.pixels, converted, 3); /* only once */
    /* a profile that calls itself sRGB changes nothing */
    options.icc_length = make_icc(false, MAKE_CURVE_GAMMA, "sRGB IEC61966-2.1", icc);
    make_jpeg(&options, &tools->file);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true}), &tools->error);
    assert_int_equal(tools->info.quirks, 0);
    expect_near(tools->image.pixels, 80, 180, 80, 3);
    /* one for other colours is ignored */
    options.icc_length = make_icc(true, MAKE_CURVE_GAMMA, "gray", icc);
    make_jpeg(&options, &tools->file);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true}), &tools->error);
    expect_near(tools->image.pixels, 80, 180, 80, 3);
}

/* Our own conversion against libvips', which is Little CMS'. */
DECODE_TEST(test_own_conversion_agrees_with_libvips, tools)
{
    need_libvips();
    const ImagePlugin *plugin = NULL;
    Image theirs = {0};
    IccConversion conversion = {0};
    uint8_t icc[1024];
    assert_ok(image_plugin_load(&plugin, &tools->error), &tools->error);
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        /* for gray of gamma 1 Little CMS interpolates too coarsely in the dark: 6 becomes 37, and should
         * become 42 */
        for (MakeCurve curve = channels == 1 ? MAKE_CURVE_TABLE : MAKE_CURVE_GAMMA;
             curve <= MAKE_CURVE_PARAMETRIC; curve++) {
            size_t length = make_icc(channels == 1, curve, "Wide", icc), count = (size_t)64 * 64 * channels;
            assert_ok(image_reserve(&tools->image, 64, 64, channels, &tools->error), &tools->error);
            assert_ok(image_reserve(&theirs, 64, 64, channels, &tools->error), &tools->error);
            uint8_t noise[64 * 64 * 3];
            test_fill_noise(noise, 64, 64, 7);
            memcpy(tools->image.pixels, noise, count);
            memcpy(theirs.pixels, noise, count);
            assert_true(icc_conversion_prepare(icc, length, channels, &conversion));
            assert_false(icc_conversion_prepare(icc, length, 4 - channels, &conversion));
            icc_conversion_apply(&conversion, &tools->image);
            assert_ok(plugin->convert_to_srgb(&theirs, icc, length, &tools->error), &tools->error);
            size_t apart = 0; /* Little CMS computes with 14 bits after the point: in the dark that shows */
            for (size_t i = 0; i < count; i++) {
                int difference = abs(tools->image.pixels[i] - theirs.pixels[i]);
                apart += difference > 1;
                if (difference > 2)
                    fail_msg("%u channels, curve %u, sample %zu: %d becomes %d, with libvips %d", channels,
                             curve, i, noise[i], tools->image.pixels[i], theirs.pixels[i]);
            }
            assert_true(apart < count / 200);
        }
    }
    image_free(&theirs);
}

DECODE_TEST(test_gray_profile_leaves_gray, tools)
{
    uint8_t icc[1024], pixels[16 * 16];
    memset(pixels, 128, sizeof pixels);
    size_t length = make_icc(true, MAKE_CURVE_GAMMA, "Linear gray", icc);
    make_jpeg(&(MakeJpeg){.width = 16,
                          .height = 16,
                          .colours = MAKE_GRAY,
                          .pixels = pixels,
                          .icc = icc,
                          .icc_length = length},
              &tools->file);
    for (uint32_t channels = 0; channels <= 3; channels += 3) {
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true, .channels = channels}),
                  &tools->error);
        expect_shape(tools, 16, 16, channels ? 3 : 1);
        assert_in_range(tools->image.pixels[0], 180, 195); /* linear 0.5 is 188 in sRGB */
    }
}

DECODE_TEST(test_useless_profile_is_an_error_that_spares_the_pixels, tools)
{
    need_libvips();
    uint8_t icc[1024];
    size_t length = make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", icc);
    memset(icc + 132, 0, 12 * 9); /* no tags left */
    make_plain_jpeg(
        tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_RGB, .icc = icc, .icc_length = length});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true}), FSH_ERR_CORRUPT);
    uint8_t *pixels = make_pixels(16, 16, 3);
    assert_true(psnr(pixels, tools->image.pixels, 16 * 16 * 3) > 36);
    free(pixels);
    decode_file(tools);
}

/* ---- PNG, by libvips ---- */

static void decode_png(DecodeTools *tools, const MakePng *options)
{
    make_png(options, &tools->file);
    decode_file(tools);
    assert_int_equal(tools->info.format, IMAGE_PNG);
}

DECODE_TEST(test_palette_png_is_expanded, tools)
{
    need_libvips();
    static const uint8_t palette[] = {10, 20, 30, 200, 100, 50, 1, 2, 3, 255, 255, 0};
    static const uint8_t rows[] = {0x1B, 0xE4}; /* 2 bits: 0 1 2 3, 3 2 1 0 */
    static const uint8_t transparency[] = {255, 0};
    MakePng options = {.width = 4,
                       .height = 2,
                       .bit_depth = 2,
                       .colour_type = 3,
                       .rows = rows,
                       .palette = palette,
                       .palette_count = 4};
    decode_png(tools, &options);
    expect_shape(tools, 4, 2, 3);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_PALETTE);
    assert_memory_equal(tools->image.pixels, palette, sizeof palette);
    assert_memory_equal(tools->image.pixels + 12, palette + 9, 3);
    options.transparency = transparency; /* entry 1 is clear: white shows through */
    options.transparency_length = 2;
    decode_png(tools, &options);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_PALETTE | IMAGE_QUIRK_ALPHA);
    expect_near(tools->image.pixels, 10, 20, 30, 0);
    expect_near(tools->image.pixels + 3, 255, 255, 255, 0);
    expect_near(tools->image.pixels + 6, 1, 2, 3, 0);
}

DECODE_TEST(test_alpha_is_composited_over_white, tools)
{
    need_libvips();
    static const uint8_t rows[] = {100, 50, 0, 255, 100, 50, 0, 0, 100, 50, 0, 129, 0, 0, 0, 1};
    static const uint8_t expected[] = {100, 50, 0, 255, 255, 255, 177, 151, 126, 254, 254, 254};
    decode_png(tools, &(MakePng){.width = 4, .height = 1, .bit_depth = 8, .colour_type = 6, .rows = rows});
    expect_shape(tools, 4, 1, 3);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ALPHA);
    assert_memory_equal(tools->image.pixels, expected, sizeof expected);
    static const uint8_t gray_rows[] = {100, 255, 100, 0, 100, 129};
    static const uint8_t gray_expected[] = {100, 255, 177};
    decode_png(tools,
               &(MakePng){.width = 3, .height = 1, .bit_depth = 8, .colour_type = 4, .rows = gray_rows});
    expect_shape(tools, 3, 1, 1);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ALPHA | IMAGE_QUIRK_GRAY);
    assert_memory_equal(tools->image.pixels, gray_expected, sizeof gray_expected);
}

DECODE_TEST(test_16_bits_are_rounded_to_8, tools)
{
    need_libvips();
    /* v / 257: 128 is 0.498, 129 is 0.502, 65535 is 255 */
    static const uint8_t rows[] = {0, 128, 0, 129, 0x80, 0x80, 0xFF, 0xFF, 0xFF, 0x7E, 0xFF, 0x7F};
    static const uint8_t expected[] = {0, 1, 128, 255, 254, 255};
    decode_png(tools, &(MakePng){.width = 6, .height = 1, .bit_depth = 16, .colour_type = 0, .rows = rows});
    expect_shape(tools, 6, 1, 1);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_16BIT | IMAGE_QUIRK_GRAY);
    assert_memory_equal(tools->image.pixels, expected, sizeof expected);
    decode_png(tools, &(MakePng){.width = 2, .height = 1, .bit_depth = 16, .colour_type = 2, .rows = rows});
    expect_shape(tools, 2, 1, 3);
    assert_memory_equal(tools->image.pixels, expected, sizeof expected);
    static const uint8_t with_alpha[] = {0x64, 0x64, 0x32, 0x32, 0, 0, 0x80, 0x80};
    decode_png(tools,
               &(MakePng){.width = 1, .height = 1, .bit_depth = 16, .colour_type = 6, .rows = with_alpha});
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_16BIT | IMAGE_QUIRK_ALPHA);
    expect_near(tools->image.pixels, 177, 152, 127, 0);
}

DECODE_TEST(test_gray_and_bilevel_png_stay_gray, tools)
{
    need_libvips();
    static const uint8_t bits[] = {0xA0, 0x50};
    static const uint8_t expected[] = {255, 0, 255, 0, 0, 255, 0, 255};
    decode_png(tools, &(MakePng){.width = 4, .height = 2, .bit_depth = 1, .colour_type = 0, .rows = bits});
    expect_shape(tools, 4, 2, 1);
    assert_memory_equal(tools->image.pixels, expected, sizeof expected);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.channels = 3}), &tools->error);
    expect_shape(tools, 4, 2, 3);
    expect_near(tools->image.pixels + 21, 255, 255, 255, 0);
}

DECODE_TEST(test_png_orientation_is_applied, tools)
{
    need_libvips();
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6};
    static const uint8_t turned[] = {4, 1, 5, 2, 6, 3};
    uint8_t exif[64];
    size_t length = make_exif(6, true, exif);
    MakePng options = {.width = 3,
                       .height = 2,
                       .bit_depth = 8,
                       .colour_type = 0,
                       .rows = rows,
                       .exif = exif,
                       .exif_length = length};
    decode_png(tools, &options);
    expect_shape(tools, 2, 3, 1);
    assert_memory_equal(tools->image.pixels, turned, 6);
    assert_true(tools->info.quirks & IMAGE_QUIRK_ORIENTATION);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.ignore_orientation = true}), &tools->error);
    assert_memory_equal(tools->image.pixels, rows, 6);
}

DECODE_TEST(test_damaged_png_fails, tools)
{
    need_libvips();
    uint8_t *pixels = make_pixels(64, 64, 3);
    MakePng options = {.width = 64, .height = 64, .bit_depth = 8, .colour_type = 2, .rows = pixels};
    make_png(&options, &tools->file);
    tools->file.length /= 2;
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    tools->file.length = 20;
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    make_png(&options, &tools->file);
    patch_size(&tools->file, 60000, 60000);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_MISMATCH);
    decode_png(tools, &options);
    assert_memory_equal(tools->image.pixels, pixels, 64 * 64 * 3);
    free(pixels);
}

static const uint8_t bmp[] = {'B', 'M', 62, 0, 0, 0, 0, 0,  0, 0, 54, 0, 0,  0,  40, 0,  0,  0,  2,  0, 0,
                              0,   1,   0,  0, 0, 1, 0, 32, 0, 0, 0,  0, 0,  8,  0,  0,  0,  0,  0,  0, 0,
                              0,   0,   0,  0, 0, 0, 0, 0,  0, 0, 0,  0, 30, 20, 10, 64, 60, 50, 40, 9};

/* A BMP of 32 bits whose fourth bytes are junk: they are no alpha, as its header has no mask for one. */
DECODE_TEST(test_fourth_byte_of_a_plain_bmp_is_no_alpha, tools)
{
    need_libvips();
    assert_int_equal(buffer_append(&tools->file, bmp, sizeof bmp, NULL), FSH_OK);
    FshStatus status = decode_with(tools, &(ImageDecodeOptions){0});
    if (status == FSH_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", tools->error.message); /* libvips without ImageMagick */
        skip();
    }
    assert_ok(status, &tools->error);
    expect_shape(tools, 2, 1, 3);
    assert_memory_equal(tools->image.pixels, ((const uint8_t[]){10, 20, 30, 40, 50, 60}), 6);
}

/* ImageMagick, which reads BMP for libvips, aborts in OpenMP threads beyond the number of cores. */
DECODE_TEST(test_bmp_is_read_in_any_thread, folder)
{
    need_libvips();
    atomic_uint decoded = 0, refused = 0;
    int threads = 3 * omp_get_num_procs();
#pragma omp parallel num_threads(threads)
    {
        ImageDecoder *decoder = NULL;
        Image image = {0};
        FshStatus status = image_decoder_new(&decoder, NULL);
        if (!status)
            status = image_decode(decoder, bmp, sizeof bmp, &(ImageDecodeOptions){0}, &image, NULL, NULL);
        if (!status && memcmp(image.pixels, ((const uint8_t[]){10, 20, 30, 40, 50, 60}), 6) == 0)
            atomic_fetch_add(&decoded, 1);
        if (status == FSH_ERR_UNSUPPORTED) /* libvips without ImageMagick */
            atomic_fetch_add(&refused, 1);
        image_free(&image);
        image_decoder_free(&decoder);
    }
    assert_int_equal(atomic_load(&decoded) + atomic_load(&refused), threads);
}

DECODE_TEST(test_pnm_is_read, tools)
{
    need_libvips();
    assert_int_equal(buffer_append(&tools->file, "P6\n2 1\n255\n\1\2\3\4\5\6", 17, NULL), FSH_OK);
    decode_file(tools);
    expect_shape(tools, 2, 1, 3);
    assert_int_equal(tools->info.format, IMAGE_PNM);
    assert_memory_equal(tools->image.pixels, "\1\2\3\4\5\6", 6);
}
