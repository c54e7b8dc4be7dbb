/* Files that a library reads wrongly, or goes on reading where they are damaged: each made here. Where Pillow
 * has an opinion, ours is the same. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/image_plugin.h"
#include "tests/imaging/decode_tools.h"
#include "tests/imaging/make_odd.h"

static void set_file(DecodeTools *tools, const void *bytes, size_t length)
{
    tools->file.length = 0;
    assert_ok(buffer_append(&tools->file, bytes, length, &tools->error), &tools->error);
}

static void expect_damage(DecodeTools *tools)
{
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "damaged");
}

/* ---- PBM, PGM, PPM ---- */

DECODE_TEST(test_netpbm_samples_are_scaled_to_8_bits, tools)
{
    static const struct {
        const char *file;
        size_t length;
        uint32_t width, height, channels;
        uint8_t pixels[12];
    } rows[] = {
#define ROW(text, ...) {(text), sizeof(text) - 1, __VA_ARGS__}
        ROW("P1\n3 2\n1 0 1 011", 3, 2, 1, {0, 255, 0, 255, 0, 0}),
        ROW("P4\n3 2\n\xA0\x60", 3, 2, 1, {0, 255, 0, 255, 0, 0}),
        ROW("P2 # gray\n2 # of\n2\n15\n0 1\n7 # and a comment\n 15", 2, 2, 1, {0, 17, 119, 255}),
        ROW("P5\n2 2\n15\n\0\1\7\x0f", 2, 2, 1, {0, 17, 119, 255}),
        ROW("P5\n2 1\n15\n\x10\xff", 2, 1, 1, {255, 255}), /* above the largest */
        ROW("P5 2 1 255 \x20\x0a", 2, 1, 1, {32, 10}),     /* white space is a sample, too */
        ROW("P5\n2 1\n65535\n\x80\x80\xff\xff", 2, 1, 1, {128, 255}),
        ROW("P5\n2 1\n1000\n\1\xf4\x03\xe8", 2, 1, 1, {128, 255}),
        ROW("P3\r\n2 1\r\n3\r\n0 1 2 3 0 3\r\n", 2, 1, 3, {0, 85, 170, 255, 0, 255}),
        ROW("P6\n#\n1 1\n255\nabc and what follows", 1, 1, 3, {'a', 'b', 'c'}),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_file(tools, rows[i].file, rows[i].length);
        decode_file(tools);
        expect_shape(tools, rows[i].width, rows[i].height, rows[i].channels);
        assert_memory_equal(tools->image.pixels, rows[i].pixels,
                            (size_t)rows[i].width * rows[i].height * rows[i].channels);
    }
}

DECODE_TEST(test_netpbm_that_lacks_samples_is_damaged, tools)
{
    static const struct {
        const char *file;
        size_t length, least; /* the shortest that is whole; below, all are damaged */
    } rows[] = {
#define ROW(text, cut) {(text), sizeof(text) - 1, sizeof(text) - 1 - (cut)}
        ROW("P1\n3 2\n1 0 1 0 1 1", 0),   ROW("P4\n3 2\n\xA0\x60", 0),         ROW("P2\n2 2\n9\n0 1 2 3", 0),
        ROW("P5\n2 2\n9\n\0\1\2\3", 0),   ROW("P3\n2 1\n9\n1 2 3 4 5 6\n", 1), ROW("P6\n1 1\n9\n\1\2\3", 0),
        ROW("P5\n2 1\n999\n\1\2\3\4", 0),
#undef ROW
    };
    static const char *const bad[] = {
        "P2\n2 1\n9\n1 x",    "P2\n2 1\n9\n1 10",        "P1\n2 1\n12", "P5\n0 1\n9\n", "P5\n1 1\n0\n1",
        "P5\n1 1\n65536\n11", "P5\n99999999999 1\n9\n1", "P5\n1 1\n9x", "P5\n#"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t length = 4; length <= rows[i].length; length++) {
            set_file(tools, rows[i].file, length);
            if (length >= rows[i].least)
                decode_file(tools);
            else
                assert_int_not_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_OK);
        }
        set_file(tools, rows[i].file, rows[i].least - 1);
        expect_damage(tools);
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        set_file(tools, bad[i], strlen(bad[i]));
        assert_int_not_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_OK);
    }
}

/* ---- GIF ---- */

DECODE_TEST(test_damaged_gif_codes_are_noticed, tools)
{
    enum { WIDTH = 40, HEIGHT = 30, BAD_CODE = 0xFF };
    uint8_t pixels[WIDTH * HEIGHT];
    size_t at = 0;
    need_libvips();
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i % 128);
    make_gif(WIDTH, HEIGHT, pixels, &tools->file, &at);
    decode_file(tools);
    expect_shape(tools, WIDTH, HEIGHT, 3);
    for (size_t i = 0; i < sizeof pixels; i++)
        assert_int_equal(tools->image.pixels[3 * i], pixels[i] * 2);
    const size_t whole = tools->file.length;
    static const struct {
        size_t place; /* after the first code */
        uint8_t code;
    } rows[] = {{200, BAD_CODE}, {5, BAD_CODE}, {300, 129} /* the end, too early */, {1, 129}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_gif(WIDTH, HEIGHT, pixels, &tools->file, &at);
        tools->file.bytes[at + rows[i].place] = rows[i].code;
        expect_damage(tools);
    }
    make_gif(WIDTH, HEIGHT, pixels, &tools->file, &at);
    tools->file.bytes[at + 128] = 0; /* a block's length: no more of them */
    expect_damage(tools);
    for (size_t cut = 3; cut < whole - at; cut += 50) { /* the last two tell that all has come */
        make_gif(WIDTH, HEIGHT, pixels, &tools->file, &at);
        tools->file.length = whole - cut - 2;
        assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    }
}

/* ---- TIFF ---- */

enum { MINISBLACK = 1, RGB = 2, SEPARATED = 5, YCBCR = 6, UNCOMPRESSED = 1, GROUP4 = 4, PACKBITS = 32773 };

/* Samples that are not said to be alpha are none. */
DECODE_TEST(test_tiff_samples_without_a_meaning_are_left_out, tools)
{
    need_libvips();
    static const struct {
        uint16_t samples, photometric, extra_count;
        uint16_t extra[2];
        uint32_t channels;
        uint8_t pixel[3]; /* of samples 10, 60, 110, 160, 210 */
    } rows[] = {
        {4, RGB, 1, {0}, 3, {10, 60, 110}},
        {5, RGB, 2, {0, 0}, 3, {10, 60, 110}},
        {5, RGB, 2, {2, 0}, 3, {101, 133, 164}}, /* over white */
        {4, RGB, 1, {2}, 3, {101, 133, 164}},
        {4, RGB, 0, {0}, 3, {101, 133, 164}}, /* no word of it: alpha */
        {2, MINISBLACK, 1, {0}, 1, {10}},
        {3, MINISBLACK, 2, {0, 0}, 1, {10}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t strip[4 * 5];
        for (size_t at = 0; at < sizeof strip; at++)
            strip[at] = (uint8_t)(10 + 50 * (at % rows[i].samples));
        make_tiff(&(MakeTiff){.width = 2,
                              .height = 2,
                              .samples = rows[i].samples,
                              .photometric = rows[i].photometric,
                              .compression = UNCOMPRESSED,
                              .extra_count = rows[i].extra_count,
                              .extra = {rows[i].extra[0], rows[i].extra[1]},
                              .strip = strip,
                              .strip_bytes = (size_t)4 * rows[i].samples},
                  &tools->file);
        decode_file(tools);
        expect_shape(tools, 2, 2, rows[i].channels);
        for (uint32_t c = 0; c < rows[i].channels; c++)
            assert_in_range(tools->image.pixels[c], rows[i].pixel[c] - 1, rows[i].pixel[c] + 1);
        assert_int_equal((tools->info.quirks & IMAGE_QUIRK_ALPHA) != 0, rows[i].pixel[0] == 101);
    }
}

/* A block of across * down Y, one Cb and one Cr: a red that libtiff makes of 76, 85, 255. */
DECODE_TEST(test_ycbcr_tiff_becomes_rgb_whatever_its_sampling, tools)
{
    need_libvips();
    static const uint16_t samplings[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 2}, {4, 4}};
    enum { EDGE = 8 };
    for (size_t i = 0; i < sizeof samplings / sizeof samplings[0]; i++) {
        const uint16_t across = samplings[i][0], down = samplings[i][1];
        uint8_t strip[EDGE * EDGE * 3], *to = strip;
        for (size_t block = 0; block < (size_t)(EDGE / across) * (EDGE / down); block++) {
            memset(to, 76, (size_t)across * down);
            to += (size_t)across * down;
            *to++ = 85;
            *to++ = 255;
        }
        make_tiff(&(MakeTiff){.width = EDGE,
                              .height = EDGE,
                              .samples = 3,
                              .photometric = YCBCR,
                              .compression = UNCOMPRESSED,
                              .across = across,
                              .down = down,
                              .strip = strip,
                              .strip_bytes = (size_t)(to - strip)},
                  &tools->file);
        decode_file(tools);
        expect_shape(tools, EDGE, EDGE, 3);
        for (size_t pixel = 0; pixel < (size_t)EDGE * EDGE; pixel++)
            expect_near(tools->image.pixels + 3 * pixel, 254, 0, 0, 2);
        tools->file.bytes[4] = 0xFF; /* the folder is elsewhere */
        assert_int_not_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_OK);
    }
}

/* libvips hears of these from libtiff and goes on. */
DECODE_TEST(test_what_libtiff_calls_an_error_is_damage, tools)
{
    need_libvips();
    /* "Bad code word at line 6"; runs of 64 and 100, where the strip has room for 128 */
    static const uint8_t fax[] = {0xF2, 0x13, 0x77, 1, 0xF2, 0x13, 0x77, 1}, runs[] = {0xC1, 7, 0x9D, 9};
    static const struct {
        uint16_t width, height, bits, compression;
        const uint8_t *strip;
        size_t strip_bytes;
    } rows[] = {{64, 16, 1, GROUP4, fax, sizeof fax}, {128, 1, 8, PACKBITS, runs, sizeof runs}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_tiff(&(MakeTiff){.width = rows[i].width,
                              .height = rows[i].height,
                              .samples = 1,
                              .bits = rows[i].bits,
                              .photometric = MINISBLACK,
                              .compression = rows[i].compression,
                              .strip = rows[i].strip,
                              .strip_bytes = rows[i].strip_bytes},
                  &tools->file);
        expect_damage(tools);
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
        assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING);
    }
}

/* ---- PNG ---- */

static void break_checksum(DecodeTools *tools, const char *chunk)
{
    uint8_t *at = memmem(tools->file.bytes, tools->file.length, chunk, 4);
    assert_non_null(at);
    const size_t length = (size_t)at[-2] << 8 | at[-1];
    at[4 + length] ^= 1;
}

static void make_odd_png(DecodeTools *tools)
{
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6}, colour[] = {0, 1, 0, 2, 0, 3};
    static const uint8_t exif[] = "II*\0\x08\0\0\0\0\0\0\0\0";
    make_png(&(MakePng){.width = 2,
                        .height = 1,
                        .bit_depth = 8,
                        .colour_type = 2,
                        .rows = rows,
                        .transparency = colour,
                        .transparency_length = sizeof colour,
                        .exif = exif,
                        .exif_length = sizeof exif},
             &tools->file);
}

DECODE_TEST(test_png_chunks_with_a_bad_checksum, tools)
{
    need_libvips();
    make_odd_png(tools);
    decode_file(tools);
    assert_false(tools->info.quirks & IMAGE_QUIRK_WARNING);
    make_odd_png(tools);
    break_checksum(tools, "eXIf"); /* no pixel depends on it */
    decode_file(tools);
    assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING);
    static const char *const vital[] = {"IHDR", "tRNS", "IDAT"};
    for (size_t i = 0; i < sizeof vital / sizeof vital[0]; i++) {
        make_odd_png(tools);
        break_checksum(tools, vital[i]);
        expect_damage(tools);
    }
}

/* ---- TGA ---- */

DECODE_TEST(test_tga_is_read, tools)
{
    need_libvips();
    static const uint8_t bgr[] = {1, 2, 3, 40, 50, 60}, gray[] = {9, 200}, runs[] = {0x81, 5, 6, 7};
    static const uint8_t bgra[] = {0, 0, 200, 255, 0, 0, 0, 0};
    make_tga(2, 2, 1, 24, bgr, sizeof bgr, &tools->file);
    decode_file(tools);
    expect_shape(tools, 2, 1, 3);
    assert_int_equal(tools->info.format, IMAGE_TGA);
    assert_memory_equal(tools->image.pixels, ((uint8_t[]){3, 2, 1, 60, 50, 40}), 6);
    make_tga(3, 2, 1, 8, gray, sizeof gray, &tools->file);
    decode_file(tools);
    expect_shape(tools, 2, 1, 1);
    assert_memory_equal(tools->image.pixels, gray, 2);
    make_tga(10, 2, 1, 24, runs, sizeof runs, &tools->file);
    decode_file(tools);
    assert_memory_equal(tools->image.pixels, ((uint8_t[]){7, 6, 5, 7, 6, 5}), 6);
    make_tga(2, 2, 1, 32, bgra, sizeof bgra, &tools->file);
    tools->file.bytes[17] |= 8; /* bits of alpha */
    decode_file(tools);
    assert_memory_equal(tools->image.pixels, ((uint8_t[]){200, 0, 0, 255, 255, 255}), 6);
    make_tga(2, 200, 100, 24, bgr, sizeof bgr, &tools->file);
    expect_damage(tools);
    make_tga(3, 2, 1, 16, bgr, 4, &tools->file);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "gray TGA with alpha");
}

/* ---- JPEG through libvips ---- */

DECODE_TEST(test_damaged_cmyk_jpeg_is_noticed, tools)
{
    need_libvips();
    make_plain_jpeg(tools, (MakeJpeg){.width = 200, .height = 160, .colours = MAKE_CMYK});
    decode_file(tools);
    memset(tools->file.bytes + tools->file.length * 7 / 10, 0xFE, 64);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "corrupt JPEG data");
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
}

/* ---- reasons ---- */

enum { REASON_FILES = 3, REASON_THREADS = 4, REASON_ROUNDS = 150 };

typedef struct Reasons {
    const Buffer *files;    /* [REASON_FILES] */
    const FshError *errors; /* of each, alone */
    unsigned wrong_count;
    char wrong[256];
} Reasons;

static void *collect_reasons(void *context)
{
    Reasons *reasons = context;
    ImageDecoder *decoder = NULL;
    Image image = {0};
    (void)image_decoder_new(&decoder, NULL);
    for (size_t i = 0; decoder && i < REASON_ROUNDS; i++) {
        const size_t file = i % REASON_FILES;
        FshError error = {0};
        (void)image_decode(decoder, reasons->files[file].bytes, reasons->files[file].length,
                           &(ImageDecodeOptions){0}, &image, NULL, &error);
        if (strcmp(error.message, reasons->errors[file].message) == 0)
            continue;
        reasons->wrong_count++;
        (void)snprintf(reasons->wrong, sizeof reasons->wrong, "'%.100s' in place of '%.100s'", error.message,
                       reasons->errors[file].message);
    }
    image_free(&image);
    image_decoder_free(&decoder);
    return NULL;
}

/* libvips has one buffer of errors for all threads. */
DECODE_TEST(test_each_thread_hears_its_own_reason, tools)
{
    Buffer files[REASON_FILES] = {{0}};
    FshError errors[REASON_FILES] = {{0}};
    pthread_t threads[REASON_THREADS];
    Reasons reasons[REASON_THREADS];
    need_libvips();
    make_odd_png(tools);
    break_checksum(tools, "IHDR");
    assert_ok(buffer_append(&files[0], tools->file.bytes, tools->file.length, &tools->error), &tools->error);
    make_odd_png(tools);
    assert_ok(buffer_append(&files[1], tools->file.bytes, tools->file.length - 20, &tools->error),
              &tools->error);
    static const char webp[] = "RIFF\x20\0\0\0WEBPVP8 \x14\0\0\0............";
    assert_ok(buffer_append(&files[2], webp, sizeof webp, &tools->error), &tools->error);
    for (size_t i = 0; i < REASON_FILES; i++)
        assert_int_not_equal(image_decode(tools->decoder, files[i].bytes, files[i].length,
                                          &(ImageDecodeOptions){0}, &tools->image, NULL, &errors[i]),
                             FSH_OK);
    assert_string_not_equal(errors[0].message, errors[1].message);
    assert_string_not_equal(errors[1].message, errors[2].message);
    for (size_t i = 0; i < REASON_THREADS; i++) {
        reasons[i] = (Reasons){.files = files, .errors = errors};
        assert_int_equal(pthread_create(&threads[i], NULL, collect_reasons, &reasons[i]), 0);
    }
    unsigned wrong_count = 0;
    for (size_t i = 0; i < REASON_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        wrong_count += reasons[i].wrong_count;
        if (reasons[i].wrong_count)
            print_message("%s\n", reasons[i].wrong);
    }
    assert_int_equal(wrong_count, 0);
    for (size_t i = 0; i < REASON_FILES; i++)
        buffer_free(&files[i]);
}
