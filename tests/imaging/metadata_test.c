/* What a file carries besides pixels: read, made to fit turned pixels, written into each format. */
#include <stdlib.h>
#include <string.h>

#include "imaging/camera_raw.h"
#include "imaging/decode.h"
#include "imaging/encode.h"
#include "imaging/exif.h"
#include "tests/imaging/decode_tools.h"

/* ---- EXIF and XMP that fit turned pixels ---- */

TEST(test_exif_is_made_upright_in_both_byte_orders)
{
    uint8_t block[70] = "Exif\0", expected[64];
    for (int big = 0; big <= 1; big++) {
        for (uint8_t value = 0; value <= 9; value++) { /* nonsense too */
            size_t length = make_exif(value, big, block + 6);
            (void)make_exif(1, big, expected);
            assert_true(exif_make_upright(block, length + 6));
            assert_memory_equal(block + 6, expected, length);
            (void)make_exif(value, big, block + 6);
            assert_true(exif_make_upright(block + 6, length));
            assert_memory_equal(block + 6, expected, length);
        }
        /* a tag of another type becomes a SHORT, and a second one is not forgotten */
        uint8_t two[64];
        size_t length = make_exif(6, big, two), entry = 10;
        memcpy(two + entry + 12, two + entry, 12);
        two[big ? 9 : 8] = 2;
        two[entry + 12 + (big ? 3 : 2)] = 1; /* BYTE */
        assert_true(exif_make_upright(two, length + 12));
        assert_memory_equal(two + entry, expected + entry, 12);
        assert_memory_equal(two + entry + 12, expected + entry, 12);
    }
}

TEST(test_exif_without_the_tag_stays_as_it_is)
{
    uint8_t block[64], same[64];
    size_t length = make_exif(6, true, block);
    block[11] = 0x0F; /* Make */
    memcpy(same, block, length);
    assert_true(exif_make_upright(block, length));
    assert_memory_equal(block, same, length);
}

/* Every prefix, every byte changed to every value: upright as our own reader sees it, or refused; nothing is
 * touched outside (ASan watches). */
TEST(test_hostile_exif_is_upright_or_refused)
{
    uint8_t whole[70] = "Exif\0";
    size_t length = 6 + make_exif(6, false, whole + 6), refused_count = 0;
    for (size_t cut = 0; cut <= length; cut++) {
        uint8_t *bytes = malloc(cut + (cut == 0));
        assert_non_null(bytes);
        memcpy(bytes, whole, cut);
        assert_int_equal(exif_make_upright(bytes, cut),
                         cut >= length - 4); /* but for the next folder's offset */
        free(bytes);
    }
    for (size_t at = 0; at < length; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t *bytes = malloc(length);
            assert_non_null(bytes);
            memcpy(bytes, whole, length);
            bytes[at] = (uint8_t)value;
            bool damaged = false;
            if (!exif_make_upright(bytes, length))
                refused_count++;
            else if (exif_orientation(bytes, length, &damaged) != 1 || damaged)
                fail_msg("byte %zu = %u", at, value);
            free(bytes);
        }
    }
    assert_true(refused_count > 1000);
}

TEST(test_xmp_is_made_upright)
{
    static const struct {
        const char *before, *after;
    } rows[] = {
        {"<x tiff:Orientation=\"6\" tiff:Make=\"6\"/>", "<x tiff:Orientation=\"1\" tiff:Make=\"6\"/>"},
        {"<x tiff:Orientation = '8'/>", "<x tiff:Orientation = '1'/>"},
        {"<tiff:Orientation>3</tiff:Orientation>", "<tiff:Orientation>1</tiff:Orientation>"},
        {"<tiff:Orientation/>6", "<tiff:Orientation/>6"},
        {"tiff:Orientation=\"", "tiff:Orientation=\""},
        {"tiff:Orientation", "tiff:Orientation"},
        {"Orientation=\"6\"", "Orientation=\"6\""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = strlen(rows[i].before);
        char *text = malloc(length + (length == 0)); /* no NUL at the end */
        assert_non_null(text);
        memcpy(text, rows[i].before, length);
        xmp_make_upright(text, length);
        assert_memory_equal(text, rows[i].after, length);
        free(text);
    }
}

/* ---- through files ---- */

static const char xmp[] = "<x:xmpmeta tiff:Orientation=\"6\">\xc3\xa9</x:xmpmeta>";
static const char upright_xmp[] = "<x:xmpmeta tiff:Orientation=\"1\">\xc3\xa9</x:xmpmeta>";

/* Encodes a smooth picture with this metadata into tools->file. */
static void encode_with(DecodeTools *tools, ImageFormat format, uint32_t channels,
                        const ImageMetadata *metadata)
{
    ImageEncoder *encoder = NULL;
    Image image = {0};
    uint8_t *pixels = make_pixels(30, 20, channels);
    assert_ok(image_encoder_new(&encoder, &tools->error), &tools->error);
    assert_ok(image_reserve(&image, 30, 20, channels, &tools->error), &tools->error);
    memcpy(image.pixels, pixels, (size_t)30 * 20 * channels);
    const ImageEncodeOptions options = {
        .format = format, .quality = 90, .subsampling = IMAGE_SUBSAMPLING_444, .metadata = metadata};
    assert_ok(image_encode(encoder, &image, &options, &tools->file, &tools->error), &tools->error);
    image_encoder_free(&encoder);
    image_free(&image);
    free(pixels);
}

static void expect_block(const ImageBlock *block, const void *bytes, size_t length)
{
    assert_int_equal(block->length, length);
    if (length)
        assert_memory_equal(block->bytes, bytes, length);
    else
        assert_null(block->bytes);
}

DECODE_TEST(test_every_format_carries_metadata_there_and_back, tools)
{
    static const ImageFormat formats[] = {IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
    uint8_t exif[64], upright[64], icc[1024];
    size_t exif_length = make_exif(6, false, exif),
           icc_length = make_icc(false, MAKE_CURVE_GAMMA, "Wide", icc);
    (void)make_exif(1, false, upright);
    const ImageMetadata metadata = {
        .exif = {exif, exif_length}, .icc = {icc, icc_length}, .xmp = {xmp, sizeof xmp - 1}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i] != IMAGE_JPEG)
            need_libvips();
        ImageMetadata back = {0};
        encode_with(tools, formats[i], 3, &metadata);
        assert_ok(
            decode_with(tools, &(ImageDecodeOptions){.ignore_orientation = true, .keep_metadata = true}),
            &tools->error);
        assert_int_equal(tools->info.format, formats[i]);
        assert_int_equal(tools->info.quirks, IMAGE_QUIRK_ICC | IMAGE_QUIRK_ORIENTATION);
        assert_int_equal(tools->image.width, 30);
        image_decoder_metadata(tools->decoder, &back);
        expect_block(&back.exif, exif, exif_length);
        expect_block(&back.icc, icc, icc_length);
        expect_block(&back.xmp, xmp, sizeof xmp - 1);

        /* turned pixels have metadata that says so; converted colours have no profile */
        assert_ok(decode_with(tools, &(ImageDecodeOptions){.convert_icc = true, .keep_metadata = true}),
                  &tools->error);
        expect_shape(tools, 20, 30, 3);
        image_decoder_metadata(tools->decoder, &back);
        expect_block(&back.exif, upright, exif_length);
        expect_block(&back.icc, NULL, 0);
        expect_block(&back.xmp, upright_xmp, sizeof upright_xmp - 1);

        assert_ok(decode_with(tools, &(ImageDecodeOptions){0}), &tools->error); /* nobody asked */
        image_decoder_metadata(tools->decoder, &back);
        assert_null(back.exif.bytes);
    }
}

DECODE_TEST(test_each_block_alone_and_none, tools)
{
    need_libvips();
    static const ImageFormat formats[] = {IMAGE_PNG, IMAGE_WEBP};
    uint8_t exif[64], icc[1024];
    size_t exif_length = make_exif(1, true, exif),
           icc_length = make_icc(false, MAKE_CURVE_TABLE, "Wide", icc);
    for (size_t i = 0; i < 8; i++) {
        unsigned set = (unsigned)i / 2;
        ImageMetadata metadata = {0}, back = {0};
        if (set == 1)
            metadata.exif = (ImageBlock){exif, exif_length};
        if (set == 2)
            metadata.icc = (ImageBlock){icc, icc_length};
        if (set == 3)
            metadata.xmp = (ImageBlock){xmp, 7}; /* odd: WebP fills it up */
        encode_with(tools, formats[i % 2], 3, &metadata);
        size_t length = tools->file.length;
        assert_ok(
            decode_with(tools, &(ImageDecodeOptions){.ignore_orientation = true, .keep_metadata = true}),
            &tools->error);
        image_decoder_metadata(tools->decoder, &back);
        expect_block(&back.exif, metadata.exif.bytes, metadata.exif.length);
        expect_block(&back.icc, metadata.icc.bytes, metadata.icc.length);
        expect_block(&back.xmp, metadata.xmp.bytes, metadata.xmp.length);
        encode_with(tools, formats[i % 2], 3, NULL);
        assert_int_equal(tools->file.length == length, set == 0);
    }
}

/* A profile beyond one stored block of zlib; its table comes after 64 kB of nothing. */
DECODE_TEST(test_long_profile_is_written_into_png, tools)
{
    need_libvips();
    enum { LONG = 200000 };
    uint8_t *icc = calloc(1, LONG);
    assert_non_null(icc);
    (void)make_icc(false, MAKE_CURVE_GAMMA, "Wide", icc);
    icc[0] = 0;
    icc[1] = LONG >> 16;
    icc[2] = (uint8_t)(LONG >> 8);
    icc[3] = (uint8_t)LONG;
    ImageMetadata back = {0};
    encode_with(tools, IMAGE_PNG, 3, &(ImageMetadata){.icc = {icc, LONG}});
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.keep_metadata = true}), &tools->error);
    image_decoder_metadata(tools->decoder, &back);
    expect_block(&back.icc, icc, LONG);
    free(icc);
}

DECODE_TEST(test_profile_of_other_colours_is_left_out, tools)
{
    need_libvips();
    uint8_t icc[1024];
    size_t length = make_icc(true, MAKE_CURVE_GAMMA, "Gray", icc);
    ImageMetadata back = {0};
    encode_with(tools, IMAGE_WEBP, 3,
                &(ImageMetadata){.icc = {icc, length}}); /* for gray, in a file of RGB */
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.keep_metadata = true}), &tools->error);
    image_decoder_metadata(tools->decoder, &back);
    expect_block(&back.icc, NULL, 0);
}

DECODE_TEST(test_damaged_exif_is_left_out_where_pixels_are_turned, tools)
{
    static const ImageDecodeOptions options[] = {{.keep_metadata = true},
                                                 {.keep_metadata = true, .ignore_orientation = true}};
    uint8_t exif[64];
    size_t length = make_exif(6, false, exif);
    exif[8] = 200; /* entries, of which one is there */
    for (size_t i = 0; i < 2; i++) {
        ImageMetadata back = {0};
        encode_with(tools, IMAGE_JPEG, 1, &(ImageMetadata){.exif = {exif, length}});
        assert_ok(decode_with(tools, &options[i]), &tools->error);
        assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING);
        image_decoder_metadata(tools->decoder, &back);
        expect_block(&back.exif, exif, i == 0 ? 0 : length);
    }
}

/* PNG allows one eXIf chunk, and libvips 8.14 wrote two. */
DECODE_TEST(test_each_block_is_written_once, tools)
{
    need_libvips();
    uint8_t exif[64];
    size_t length = make_exif(1, false, exif);
    encode_with(tools, IMAGE_PNG, 3, &(ImageMetadata){.exif = {exif, length}});
    const uint8_t *first = memmem(tools->file.bytes, tools->file.length, "eXIf", 4);
    assert_non_null(first);
    size_t rest = tools->file.length - (size_t)(first - tools->file.bytes) - 4;
    assert_null(memmem(first + 4, rest, "eXIf", 4));
    assert_null(memmem(tools->file.bytes, tools->file.length, "pHYs", 4)); /* no invented resolution */
    assert_memory_equal(first + 4, exif, length);
}

/* ---- camera raw ---- */

typedef struct Entry {
    uint16_t tag, type;
    uint32_t value;
} Entry;

/* Writes a little-endian TIFF with this folder. Returns its length. */
static size_t make_tiff(const Entry *entries, size_t count, uint8_t *bytes)
{
    uint8_t *to = bytes;
    memcpy(to, "II*\0\x08\0\0\0", 8);
    to += 8;
    *to++ = (uint8_t)count;
    *to++ = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t fields[] = {entries[i].tag | (uint32_t)entries[i].type << 16, 1, entries[i].value};
        for (size_t k = 0; k < 12; k++)
            *to++ = (uint8_t)(fields[k / 4] >> (8 * (k % 4)));
    }
    memset(to, 0, 4);
    return (size_t)(to + 4 - bytes);
}

DECODE_TEST(test_camera_raw_is_told_from_tiff, tools)
{
    enum { SHORT = 3, LONG = 4, BYTE = 1, ASCII = 2 };
    static const struct {
        const char *name;
        Entry entries[4];
        size_t count;
        bool is_raw;
    } rows[] = {
        {"DNG", {{0x0100, SHORT, 64}, {0xC612, BYTE, 0x401}}, 2, true},
        {"NEF", {{0x00FE, LONG, 1}, {0x010F, ASCII, 0x4B494E}, {0x014A, LONG, 900}}, 3, true},
        {"TIFF/EP", {{0x0106, SHORT, 32803}}, 1, true},
        {"a camera's TIFF", {{0x00FE, LONG, 0}, {0x010F, ASCII, 0x4B494E}, {0x014A, LONG, 900}}, 3, false},
        {"a thumbnail", {{0x00FE, LONG, 1}, {0x010F, ASCII, 0x4B494E}}, 2, false},
        {"a pyramid", {{0x00FE, LONG, 1}, {0x014A, LONG, 900}}, 2, false},
        {"plain", {{0x0100, SHORT, 64}, {0x0106, SHORT, 2}}, 2, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bytes[128];
        size_t length = make_tiff(rows[i].entries, rows[i].count, bytes);
        for (size_t cut = 0; cut <= length; cut++) {
            uint8_t *exact = malloc(cut + (cut == 0));
            assert_non_null(exact);
            memcpy(exact, bytes, cut);
            bool is_raw = camera_raw_is(exact, cut);
            free(exact);
            if ((is_raw && !rows[i].is_raw) || (cut == length && is_raw != rows[i].is_raw))
                fail_msg("%s, %zu of %zu bytes", rows[i].name, cut, length);
        }
        if (!rows[i].is_raw)
            continue;
        tools->file.length = 0;
        assert_int_equal(buffer_append(&tools->file, bytes, length, NULL), FSH_OK);
        assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
        assert_contains(tools->error.message, "camera's raw file");
    }
    assert_true(camera_raw_is("II*\0\x10\0\0\0CR\x02\0\0\0\0\0", 16));
    assert_false(camera_raw_is("II*\0\x10\0\0\0CREAM\0\0\0", 16));
}
