/* Decoding: every kind of file that a folder of photographs holds, each made here, and what becomes of it.
 * Tests that need libvips skip with a message where the plugin is not built. */
#include <stdlib.h>
#include <string.h>

#include "imaging/decode.h"
#include "imaging/icc.h"
#include "imaging/orient.h"
#include "imaging/image_plugin.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

typedef struct Tools {
    ImageDecoder *decoder;
    Image image;
    Buffer file;
    ImageInfo info;
    FshError error;
} Tools;

static int setup(void **state)
{
    Tools *tools = calloc(1, sizeof *tools);
    *state = tools;
    return !tools || image_decoder_new(&tools->decoder, &tools->error);
}

static int teardown(void **state)
{
    Tools *tools = *state;
    image_decoder_free(&tools->decoder);
    assert_null(tools->decoder);
    image_free(&tools->image);
    buffer_free(&tools->file);
    free(tools);
    return 0;
}

static void need_libvips(void)
{
    const ImagePlugin *plugin = NULL;
    FshError error = {0};
    if (image_plugin_load(&plugin, &error)) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
}

/* A copy of exactly the file's length: a read behind it shows under ASan. */
static FshStatus decode_with(Tools *tools, const ImageDecodeOptions *options)
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

static void decode(Tools *tools)
{
    FshStatus status = decode_with(tools, &(ImageDecodeOptions){0});
    assert_ok(status, &tools->error);
}

static void expect_shape(const Tools *tools, uint32_t width, uint32_t height, uint32_t channels)
{
    assert_int_equal(tools->image.width, width);
    assert_int_equal(tools->image.height, height);
    assert_int_equal(tools->image.channels, channels);
    assert_int_equal(tools->info.width, width);
    assert_int_equal(tools->info.height, height);
}

static void expect_near(const uint8_t *pixel, int red, int green, int blue, int tolerance)
{
    assert_in_range(pixel[0], red < tolerance ? 0 : red - tolerance, red + tolerance);
    assert_in_range(pixel[1], green < tolerance ? 0 : green - tolerance, green + tolerance);
    assert_in_range(pixel[2], blue < tolerance ? 0 : blue - tolerance, blue + tolerance);
}

/* ---- JPEG ---- */

static void make_plain(Tools *tools, MakeJpeg options)
{
    static const uint32_t channels[] = {1, 3, 4, 4};
    uint8_t *pixels = make_pixels(options.width, options.height, channels[options.colours]);
    options.pixels = pixels;
    make_jpeg(&options, &tools->file);
    free(pixels);
}

static void test_kinds_of_jpeg(void **state)
{
    Tools *tools = *state;
    static const struct {
        MakeJpeg options;
        uint32_t channels, quirks;
    } rows[] = {
        {{.width = 61, .height = 47, .colours = MAKE_RGB}, 3, 0},
        {{.width = 61, .height = 47, .colours = MAKE_GRAY}, 1, IMAGE_QUIRK_GRAY},
        {{.width = 61, .height = 47, .colours = MAKE_RGB, .progressive = true}, 3, IMAGE_QUIRK_PROGRESSIVE},
        {{.width = 61, .height = 47, .colours = MAKE_RGB, .arithmetic = true}, 3, IMAGE_QUIRK_ARITHMETIC},
        {{.width = 61, .height = 47, .colours = MAKE_GRAY, .arithmetic = true, .progressive = true},
         1,
         IMAGE_QUIRK_GRAY | IMAGE_QUIRK_ARITHMETIC | IMAGE_QUIRK_PROGRESSIVE},
        {{.width = 1, .height = 1, .colours = MAKE_RGB}, 3, 0},
        {{.width = 3000, .height = 1, .colours = MAKE_RGB}, 3, 0},
        {{.width = 1, .height = 3000, .colours = MAKE_GRAY}, 1, IMAGE_QUIRK_GRAY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const MakeJpeg *options = &rows[i].options;
        make_plain(tools, *options);
        decode(tools);
        expect_shape(tools, options->width, options->height, rows[i].channels);
        assert_int_equal(tools->info.quirks, rows[i].quirks);
        assert_int_equal(tools->info.channels, rows[i].channels);
        uint8_t *pixels = make_pixels(options->width, options->height, rows[i].channels);
        assert_true(psnr(pixels, tools->image.pixels,
                         (size_t)options->width * options->height * rows[i].channels) > 36);
        free(pixels);
    }
}

static void test_channels_are_what_is_asked_for(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_GRAY});
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.channels = 3}), &tools->error);
    expect_shape(tools, 20, 10, 3);
    for (size_t i = 0; i < 200; i++)
        assert_true(tools->image.pixels[3 * i] == tools->image.pixels[3 * i + 2]);
    assert_int_equal(tools->info.channels, 1); /* what the file has */
    make_plain(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_RGB});
    decode(tools);
    Image luma = {0};
    assert_ok(image_convert_channels(&tools->image, 1, &luma, NULL), &tools->error);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.channels = 1}), &tools->error);
    expect_shape(tools, 20, 10, 1);
    assert_true(psnr(luma.pixels, tools->image.pixels, 200) > 45);
    image_free(&luma);
}

/* The picture is made so that each corner differs: orientation N of what is stored must look like the upright
 * one. */
static void test_exif_orientation_is_applied(void **state)
{
    Tools *tools = *state;
    Image upright = {0}, stored = {0};
    assert_ok(image_reserve(&stored, 48, 32, 3, NULL), &tools->error);
    uint8_t *pixels = make_pixels(48, 32, 3);
    memcpy(stored.pixels, pixels, 48 * 32 * 3);
    free(pixels);
    for (uint8_t orientation = 1; orientation <= 8; orientation++) {
        make_jpeg(&(MakeJpeg){.width = 48,
                              .height = 32,
                              .colours = MAKE_RGB,
                              .pixels = stored.pixels,
                              .orientation = orientation},
                  &tools->file);
        assert_ok(image_orient(&stored, orientation, &upright, NULL), &tools->error);
        decode(tools);
        expect_shape(tools, orientation < 5 ? 48 : 32, orientation < 5 ? 32 : 48, 3);
        assert_int_equal(tools->info.orientation, orientation);
        assert_int_equal(tools->info.stored_width, 48);
        assert_int_equal(tools->info.quirks, orientation == 1 ? 0 : IMAGE_QUIRK_ORIENTATION);
        assert_true(psnr(upright.pixels, tools->image.pixels, 48 * 32 * 3) > 36);
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.ignore_orientation = true}), &tools->error);
        assert_int_equal(tools->image.width, 48);
        assert_true(psnr(stored.pixels, tools->image.pixels, 48 * 32 * 3) > 36);
    }
    image_free(&upright);
    image_free(&stored);
}

static void test_corrupt_exif_is_a_warning(void **state)
{
    Tools *tools = *state;
    static const char blocks[][16] = {"Exif\0\0II*\0\xff\xff\xff\x7f", "Exif\0\0MM\0*\0\0\0\x08\xff",
                                      "Exif\0\0", "Exif\0\0XX*\0\x08\0\0\0"};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        make_plain(tools, (MakeJpeg){.width = 16,
                                     .height = 16,
                                     .colours = MAKE_RGB,
                                     .exif = blocks[i],
                                     .exif_length = i == 2 ? 6 : 15});
        decode(tools);
        expect_shape(tools, 16, 16, 3);
        assert_int_equal(tools->info.orientation, 1);
        assert_int_equal(tools->info.quirks, IMAGE_QUIRK_WARNING);
    }
}

static void test_scaled_decode_keeps_enough_pixels(void **state)
{
    Tools *tools = *state;
    static const struct {
        uint8_t orientation;
        uint32_t least_width, least_height, width, height;
    } rows[] = {
        {1, 100, 80, 100, 80},   {1, 101, 80, 200, 160}, {1, 100, 81, 200, 160},  {1, 1, 1, 50, 40},
        {1, 400, 320, 400, 320}, {1, 201, 10, 400, 320}, {1, 500, 500, 400, 320}, {1, 0, 0, 400, 320},
        {6, 80, 100, 80, 100},   {6, 100, 80, 160, 200}, /* as displayed */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_plain(
            tools,
            (MakeJpeg){.width = 400, .height = 320, .colours = MAKE_RGB, .orientation = rows[i].orientation});
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.least_width = rows[i].least_width,
                                                           .least_height = rows[i].least_height}),
                  &tools->error);
        assert_int_equal(tools->image.width, rows[i].width);
        assert_int_equal(tools->image.height, rows[i].height);
        assert_int_equal(tools->info.stored_width, 400); /* the file's own size, whatever came out */
    }
    uint8_t *small = make_pixels(100, 80, 3);
    make_plain(tools, (MakeJpeg){.width = 400, .height = 320, .colours = MAKE_RGB});
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.least_width = 100, .least_height = 80}),
              &tools->error);
    assert_true(psnr(small, tools->image.pixels, 100 * 80 * 3) > 36);
    free(small);
}

static void test_truncated_jpeg_fails_unless_allowed(void **state)
{
    Tools *tools = *state;
    for (int progressive = 0; progressive <= 1; progressive++) {
        uint8_t noise[200 * 160 * 3];
        test_fill_noise(noise, 200, 160, 1);
        make_jpeg(&(MakeJpeg){.width = 200,
                              .height = 160,
                              .colours = MAKE_RGB,
                              .pixels = noise,
                              .progressive = progressive},
                  &tools->file);
        size_t whole = tools->file.length;
        tools->file.length = whole * 6 / 10;
        assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
        assert_contains(tools->error.message, "premature end");
        assert_int_equal(tools->info.width, 200); /* the header was fine */
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
        expect_shape(tools, 200, 160, 3);
        assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING);
        tools->file.length = whole - 2; /* only the end marker is missing */
        assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
        tools->file.length = whole;
        decode(tools); /* the decoder lives on */
        assert_false(tools->info.quirks & IMAGE_QUIRK_WARNING);
    }
}

/* Cut anywhere, the header included: never a crash, never pixels that were not in the file. */
static void test_every_cut_fails_cleanly(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 24, .height = 16, .colours = MAKE_RGB, .orientation = 6});
    size_t whole = tools->file.length;
    for (size_t length = 0; length < whole; length++) {
        tools->file.length = length;
        assert_int_not_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_OK);
    }
    tools->file.length = whole;
    decode(tools);
}

static void test_damaged_scan_fails_unless_allowed(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 200, .height = 160, .colours = MAKE_RGB});
    memset(tools->file.bytes + tools->file.length * 7 / 10, 0xFE, 64); /* all ones: no such Huffman code */
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "corrupt JPEG data");
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
}

/* Junk between markers loses no pixel: ImageNet has such files, and every reader takes them. */
static void test_extraneous_bytes_are_a_warning(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 32, .height = 32, .colours = MAKE_RGB});
    /* behind SOI and APP0, which are 20 bytes */
    Buffer with_junk = {0};
    assert_int_equal(buffer_append(&with_junk, tools->file.bytes, 20, NULL), FSH_OK);
    assert_int_equal(buffer_append(&with_junk, "junk", 4, NULL), FSH_OK);
    assert_int_equal(buffer_append(&with_junk, tools->file.bytes + 20, tools->file.length - 20, NULL),
                     FSH_OK);
    buffer_free(&tools->file);
    tools->file = with_junk;
    decode(tools);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_WARNING);
}

static void test_12_bit_jpeg_gives_a_clear_error(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_GRAY});
    uint8_t *sof = memmem(tools->file.bytes, tools->file.length, "\xff\xc0\0\x0b\x08", 5);
    assert_non_null(sof);
    sof[1] = 0xC1; /* extended sequential, */
    sof[4] = 12;   /* 12 bits a sample */
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "12-bit");
    sof[1] = 0xC3; /* lossless */
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "lossless");
}

static void test_bombs_are_refused_by_their_header(void **state)
{
    Tools *tools = *state;
    make_plain(tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_RGB});
    patch_size(&tools->file, 60000, 60000);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "60000 x 60000");
    assert_true(tools->image.capacity_bytes < 1000000); /* before memory was taken */
    make_plain(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_RGB});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.max_pixels = 199}), FSH_ERR_MISMATCH);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.max_pixels = 200}), FSH_OK);
    make_plain(tools, (MakeJpeg){.width = 64, .height = 64, .colours = MAKE_GRAY, .scan_bomb = true});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "500 scans");
}

static void test_what_is_no_image_is_named_so(void **state)
{
    Tools *tools = *state;
    tools->file.length = 0;
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "empty");
    assert_int_equal(buffer_append(&tools->file, "hello, I am text in photo.jpg\n", 30, NULL), FSH_OK);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "not an image");
    assert_int_equal(tools->info.format, IMAGE_UNKNOWN);
    static const uint8_t only_start[] = {0xFF, 0xD8, 0xFF, 0xD9};
    tools->file.length = 0;
    assert_int_equal(buffer_append(&tools->file, only_start, sizeof only_start, NULL), FSH_OK);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
}

static void test_probe_reads_the_header_only(void **state)
{
    Tools *tools = *state;
    make_plain(
        tools,
        (MakeJpeg){.width = 40, .height = 30, .colours = MAKE_RGB, .orientation = 8, .progressive = true});
    assert_ok(
        image_probe(tools->decoder, tools->file.bytes, tools->file.length / 2, &tools->info, &tools->error),
        &tools->error);
    assert_int_equal(tools->info.format, IMAGE_JPEG);
    assert_int_equal(tools->info.width, 30);
    assert_int_equal(tools->info.height, 40);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_PROGRESSIVE | IMAGE_QUIRK_ORIENTATION);
}

/* ---- colours that need libvips ---- */

static void test_cmyk_and_ycck_become_rgb(void **state)
{
    Tools *tools = *state;
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
        decode(tools);
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
    decode(tools);
    expect_shape(tools, 16, 64, 3);
    tools->file.length = tools->file.length * 2 / 3;
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
}

static void test_profile_is_converted_when_asked(void **state)
{
    Tools *tools = *state;
    need_libvips();
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
    decode(tools);
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
static void test_own_conversion_agrees_with_libvips(void **state)
{
    Tools *tools = *state;
    need_libvips();
    const ImagePlugin *plugin = NULL;
    Image theirs = {0};
    IccConversion conversion = {0};
    uint8_t icc[1024];
    assert_ok(image_plugin_load(&plugin, &tools->error), &tools->error);
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        /* for gray of gamma 1 Little CMS interpolates too coarsely in the dark: 6 becomes 37, and should become 42 */
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
            size_t apart = 0; /* Little CMS computes with 14 bits behind the point: in the dark that shows */
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

static void test_gray_profile_leaves_gray(void **state)
{
    Tools *tools = *state;
    need_libvips();
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

static void test_useless_profile_is_an_error_that_spares_the_pixels(void **state)
{
    Tools *tools = *state;
    need_libvips();
    uint8_t icc[1024];
    size_t length = make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", icc);
    memset(icc + 132, 0, 12 * 9); /* no tags left */
    make_plain(tools,
               (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_RGB, .icc = icc, .icc_length = length});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true}), FSH_ERR_CORRUPT);
    uint8_t *pixels = make_pixels(16, 16, 3);
    assert_true(psnr(pixels, tools->image.pixels, 16 * 16 * 3) > 36);
    free(pixels);
    decode(tools);
}

/* ---- PNG, by libvips ---- */

static void decode_png(Tools *tools, const MakePng *options)
{
    make_png(options, &tools->file);
    decode(tools);
    assert_int_equal(tools->info.format, IMAGE_PNG);
}

static void test_palette_png_is_expanded(void **state)
{
    Tools *tools = *state;
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

static void test_alpha_is_composited_over_white(void **state)
{
    Tools *tools = *state;
    need_libvips();
    static const uint8_t rows[] = {100, 50, 0, 255, 100, 50, 0, 0, 100, 50, 0, 128, 0, 0, 0, 1};
    static const uint8_t expected[] = {100, 50, 0, 255, 255, 255, 177, 152, 127, 254, 254, 254};
    decode_png(tools, &(MakePng){.width = 4, .height = 1, .bit_depth = 8, .colour_type = 6, .rows = rows});
    expect_shape(tools, 4, 1, 3);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ALPHA);
    assert_memory_equal(tools->image.pixels, expected, sizeof expected);
    static const uint8_t gray_rows[] = {100, 255, 100, 0, 100, 128};
    static const uint8_t gray_expected[] = {100, 255, 177};
    decode_png(tools,
               &(MakePng){.width = 3, .height = 1, .bit_depth = 8, .colour_type = 4, .rows = gray_rows});
    expect_shape(tools, 3, 1, 1);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ALPHA | IMAGE_QUIRK_GRAY);
    assert_memory_equal(tools->image.pixels, gray_expected, sizeof gray_expected);
}

static void test_16_bits_are_rounded_to_8(void **state)
{
    Tools *tools = *state;
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

static void test_gray_and_bilevel_png_stay_gray(void **state)
{
    Tools *tools = *state;
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

static void test_png_orientation_is_applied(void **state)
{
    Tools *tools = *state;
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

static void test_damaged_png_fails(void **state)
{
    Tools *tools = *state;
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

/* A BMP of 32 bits whose fourth bytes are zero: they are no alpha, as its header has no mask for one. */
static void test_fourth_byte_of_a_plain_bmp_is_no_alpha(void **state)
{
    Tools *tools = *state;
    need_libvips();
    static const uint8_t bmp[] = {'B', 'M', 62, 0, 0, 0, 0, 0,  0, 0, 54, 0, 0,  0,  40, 0, 0,  0,  2,  0, 0,
                                  0,   1,   0,  0, 0, 1, 0, 32, 0, 0, 0,  0, 0,  8,  0,  0, 0,  0,  0,  0, 0,
                                  0,   0,   0,  0, 0, 0, 0, 0,  0, 0, 0,  0, 30, 20, 10, 0, 60, 50, 40, 0};
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

static void test_pnm_is_read(void **state)
{
    Tools *tools = *state;
    need_libvips();
    assert_int_equal(buffer_append(&tools->file, "P6\n2 1\n255\n\1\2\3\4\5\6", 17, NULL), FSH_OK);
    decode(tools);
    expect_shape(tools, 2, 1, 3);
    assert_int_equal(tools->info.format, IMAGE_PNM);
    assert_memory_equal(tools->image.pixels, "\1\2\3\4\5\6", 6);
}

static void test_missing_plugin_says_how_to_get_it(void **state)
{
    Tools *tools = *state;
    /* the plugin is found beside this program, if at all: a program elsewhere is what the resize test runs.
     * Here, a broken one in the folder that is asked first. */
    TestFolder folder;
    test_folder_make(&folder);
    test_file_write_text(test_path(&folder, IMAGE_PLUGIN_FILE), "no library");
    const char *asked = getenv("FSHARD_PLUGINS");
    char *kept = asked ? strdup(asked) : NULL;
    assert_int_equal(setenv("FSHARD_PLUGINS", folder.path, 1), 0);
    static const uint8_t rows[] = {0};
    make_png(&(MakePng){.width = 1, .height = 1, .bit_depth = 8, .colour_type = 0, .rows = rows},
             &tools->file);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "libvips plugin");
    if (kept)
        assert_int_equal(setenv("FSHARD_PLUGINS", kept, 1), 0);
    else
        assert_int_equal(unsetenv("FSHARD_PLUGINS"), 0);
    free(kept);
    test_folder_remove(&folder);
}

static void test_versions_are_named(void **state)
{
    (void)state;
    char text[128];
    assert_contains(image_library_versions(text, sizeof text), "libjpeg-turbo ");
    assert_contains(text, "libvips");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_kinds_of_jpeg),
        TEST(test_channels_are_what_is_asked_for),
        TEST(test_exif_orientation_is_applied),
        TEST(test_corrupt_exif_is_a_warning),
        TEST(test_scaled_decode_keeps_enough_pixels),
        TEST(test_truncated_jpeg_fails_unless_allowed),
        TEST(test_every_cut_fails_cleanly),
        TEST(test_damaged_scan_fails_unless_allowed),
        TEST(test_extraneous_bytes_are_a_warning),
        TEST(test_12_bit_jpeg_gives_a_clear_error),
        TEST(test_bombs_are_refused_by_their_header),
        TEST(test_what_is_no_image_is_named_so),
        TEST(test_probe_reads_the_header_only),
        TEST(test_cmyk_and_ycck_become_rgb),
        TEST(test_profile_is_converted_when_asked),
        TEST(test_own_conversion_agrees_with_libvips),
        TEST(test_gray_profile_leaves_gray),
        TEST(test_useless_profile_is_an_error_that_spares_the_pixels),
        TEST(test_palette_png_is_expanded),
        TEST(test_alpha_is_composited_over_white),
        TEST(test_16_bits_are_rounded_to_8),
        TEST(test_gray_and_bilevel_png_stay_gray),
        TEST(test_png_orientation_is_applied),
        TEST(test_damaged_png_fails),
        TEST(test_fourth_byte_of_a_plain_bmp_is_no_alpha),
        TEST(test_pnm_is_read),
        TEST(test_missing_plugin_says_how_to_get_it),
        TEST(test_versions_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
