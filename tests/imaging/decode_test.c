/* Decoding JPEGs: every kind that a folder of photographs holds, each made here, whole and damaged. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "imaging/image_plugin.h"
#include "imaging/orient.h"
#include "tests/imaging/decode_tools.h"

DECODE_TEST(test_kinds_of_jpeg, tools)
{
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
        make_plain_jpeg(tools, *options);
        decode_file(tools);
        expect_shape(tools, options->width, options->height, rows[i].channels);
        assert_int_equal(tools->info.quirks, rows[i].quirks);
        assert_int_equal(tools->info.channels, rows[i].channels);
        uint8_t *pixels = make_pixels(options->width, options->height, rows[i].channels);
        assert_true(psnr(pixels, tools->image.pixels,
                         (size_t)options->width * options->height * rows[i].channels) > 36);
        free(pixels);
    }
}

/* Pixels come to the memory that was lent if they fit and need no further step. After a file for which the
 * decoder exchanged images, nobody writes to memory lent before, which is freed here. */
DECODE_TEST(test_pixels_go_to_memory_that_is_lent, tools)
{
    static const struct {
        MakeJpeg options;
        size_t bytes; /* lent */
        bool in_place;
    } rows[] = {
        {{.width = 61, .height = 47, .colours = MAKE_RGB}, 61 * 47 * 3, true},
        {{.width = 61, .height = 47, .colours = MAKE_RGB}, 61 * 47 * 3 - 1, false},
        {{.width = 61, .height = 47, .colours = MAKE_RGB, .orientation = 6}, 61 * 47 * 3, false},
        {{.width = 61, .height = 47, .colours = MAKE_RGB, .orientation = 8}, 61 * 47 * 3, false},
        {{.width = 16, .height = 16, .colours = MAKE_GRAY}, 4096, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Image own = {0};
        uint8_t *lent = aligned_alloc(64, (rows[i].bytes + 127) / 64 * 64);
        assert_non_null(lent);
        lent[rows[i].bytes] = 0x5A;
        make_plain_jpeg(tools, rows[i].options);
        assert_ok(image_decode(tools->decoder, tools->file.bytes, tools->file.length,
                               &(ImageDecodeOptions){0}, &own, NULL, &tools->error),
                  &tools->error);
        image_lend(&tools->image, lent, rows[i].bytes);
        decode_file(tools);
        assert_int_equal(tools->image.pixels == lent, rows[i].in_place);
        assert_int_equal(tools->image.lent, rows[i].in_place);
        expect_shape(tools, own.width, own.height, own.channels);
        assert_memory_equal(tools->image.pixels, own.pixels, (size_t)own.width * own.height * own.channels);
        assert_int_equal(lent[rows[i].bytes], 0x5A);
        if (tools->image.lent)
            image_free(&tools->image);
        free(lent);
        image_free(&own);
    }
}

DECODE_TEST(test_channels_are_what_is_asked_for, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_GRAY});
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.channels = 3}), &tools->error);
    expect_shape(tools, 20, 10, 3);
    for (size_t i = 0; i < 200; i++)
        assert_true(tools->image.pixels[3 * i] == tools->image.pixels[3 * i + 2]);
    assert_int_equal(tools->info.channels, 1); /* what the file has */
    make_plain_jpeg(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_RGB});
    decode_file(tools);
    Image luma = {0};
    assert_ok(image_convert_channels(&tools->image, 1, &luma, NULL), &tools->error);
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.channels = 1}), &tools->error);
    expect_shape(tools, 20, 10, 1);
    assert_true(psnr(luma.pixels, tools->image.pixels, 200) > 45);
    image_free(&luma);
}

/* The picture is made so that each corner differs: orientation N of what is stored must look like the upright
 * one. */
DECODE_TEST(test_exif_orientation_is_applied, tools)
{
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
        decode_file(tools);
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

DECODE_TEST(test_corrupt_exif_is_a_warning, tools)
{
    static const char blocks[][16] = {"Exif\0\0II*\0\xff\xff\xff\x7f", "Exif\0\0MM\0*\0\0\0\x08\xff",
                                      "Exif\0\0", "Exif\0\0XX*\0\x08\0\0\0"};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        make_plain_jpeg(tools, (MakeJpeg){.width = 16,
                                          .height = 16,
                                          .colours = MAKE_RGB,
                                          .exif = blocks[i],
                                          .exif_length = i == 2 ? 6 : 15});
        decode_file(tools);
        expect_shape(tools, 16, 16, 3);
        assert_int_equal(tools->info.orientation, 1);
        assert_int_equal(tools->info.quirks, IMAGE_QUIRK_WARNING);
    }
}

DECODE_TEST(test_scaled_decode_keeps_enough_pixels, tools)
{
    static const struct {
        uint8_t orientation;
        uint32_t least_width, least_height, width, height;
    } rows[] = {
        {1, 100, 80, 100, 80},   {1, 101, 80, 200, 160}, {1, 100, 81, 200, 160},  {1, 1, 1, 50, 40},
        {1, 400, 320, 400, 320}, {1, 201, 10, 400, 320}, {1, 500, 500, 400, 320}, {1, 0, 0, 400, 320},
        {6, 80, 101, 160, 200},  {6, 80, 100, 80, 100},  {6, 100, 80, 160, 200}, /* as displayed */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_plain_jpeg(
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
    make_plain_jpeg(tools, (MakeJpeg){.width = 400, .height = 320, .colours = MAKE_RGB});
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.least_width = 100, .least_height = 80}),
              &tools->error);
    assert_true(psnr(small, tools->image.pixels, 100 * 80 * 3) > 36);
    free(small);
}

DECODE_TEST(test_truncated_jpeg_fails_unless_allowed, tools)
{
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
        decode_file(tools); /* the decoder lives on */
        assert_false(tools->info.quirks & IMAGE_QUIRK_WARNING);
    }
}

/* Cut anywhere, the header included: never a crash, never pixels that were not in the file. */
DECODE_TEST(test_every_cut_fails_cleanly, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 24, .height = 16, .colours = MAKE_RGB, .orientation = 6});
    size_t whole = tools->file.length;
    for (size_t length = 0; length < whole; length++) {
        tools->file.length = length;
        assert_int_not_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_OK);
    }
    tools->file.length = whole;
    decode_file(tools);
}

DECODE_TEST(test_damaged_scan_fails_unless_allowed, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 200, .height = 160, .colours = MAKE_RGB});
    memset(tools->file.bytes + tools->file.length * 7 / 10, 0xFE, 64); /* all ones: no such Huffman code */
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "corrupt JPEG data");
    assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
}

/* Cuts a JPEG before its scan of this number, from 0 on, and closes it properly. */
static void cut_scans(DecodeTools *tools, size_t scans_count)
{
    static const uint8_t end[] = {0xFF, 0xD9};
    const uint8_t *at = tools->file.bytes, *file_end = at + tools->file.length;
    for (size_t i = 0; i <= scans_count; i++) {
        at = memmem(at + 2, (size_t)(file_end - at) - 2, "\xff\xda", 2);
        assert_non_null(at);
    }
    tools->file.length = (size_t)(at - tools->file.bytes);
    assert_ok(buffer_append(&tools->file, end, sizeof end, &tools->error), &tools->error);
}

/* libjpeg warns of none of these, and makes the rest up. */
DECODE_TEST(test_missing_scans_are_damage, tools)
{
    static const struct {
        MakeJpeg options;
        size_t scans_count;
    } rows[] = {
        {{.width = 64, .height = 48, .colours = MAKE_RGB, .progressive = true}, 10},
        {{.width = 64, .height = 48, .colours = MAKE_GRAY, .progressive = true}, 6},
        {{.width = 64, .height = 48, .colours = MAKE_RGB, .progressive = true, .arithmetic = true}, 10},
        {{.width = 64, .height = 48, .colours = MAKE_RGB, .separate_scans = true}, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_plain_jpeg(tools, rows[i].options);
        decode_file(tools);
        for (size_t kept = 1; kept < rows[i].scans_count; kept++) {
            make_plain_jpeg(tools, rows[i].options);
            cut_scans(tools, kept);
            assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
            assert_contains(tools->error.message, "scans are missing");
            assert_ok(decode_with(tools, &(ImageDecodeOptions){.allow_truncated = true}), &tools->error);
            assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING);
        }
    }
}

/* A scan is out of step where its decoding did not need all its bytes. After the last scan such bytes may be
 * padding. */
DECODE_TEST(test_scans_out_of_step_are_damage, tools)
{
    static const uint8_t junk[] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int is_last = 0; is_last <= 1; is_last++) {
        make_plain_jpeg(tools,
                        (MakeJpeg){.width = 64, .height = 48, .colours = MAKE_GRAY, .progressive = true});
        const uint8_t *at = tools->file.bytes, *end = at + tools->file.length;
        for (int i = 0; i < 2; i++) { /* before the second scan's tables, or its header */
            at = memmem(at + 2, (size_t)(end - at) - 2, i ? "\xff\xc4" : "\xff\xda", 2);
            assert_non_null(at);
        }
        const size_t place = is_last ? tools->file.length - 2 : (size_t)(at - tools->file.bytes);
        Buffer longer = {0};
        assert_ok(buffer_append(&longer, tools->file.bytes, place, &tools->error), &tools->error);
        assert_ok(buffer_append(&longer, junk, sizeof junk, &tools->error), &tools->error);
        assert_ok(
            buffer_append(&longer, tools->file.bytes + place, tools->file.length - place, &tools->error),
            &tools->error);
        buffer_free(&tools->file);
        tools->file = longer;
        assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), is_last ? FSH_OK : FSH_ERR_CORRUPT);
        assert_true(tools->info.quirks & IMAGE_QUIRK_WARNING || !is_last);
    }
}

/* 125,000 of them, before the block that counts, took minutes. */
DECODE_TEST(test_a_flood_of_markers_takes_no_time, tools)
{
    enum { MARKERS_COUNT = 125000, MARKER_BYTES = 4 };
    static const uint8_t kinds[] = {0xE1, 0xE2, 0xE3, 0xE0, 0xEE, 0xFE}; /* APPn, COM */
    make_plain_jpeg(tools, (MakeJpeg){.width = 32, .height = 16, .colours = MAKE_RGB, .orientation = 6});
    for (size_t kind = 0; kind < sizeof kinds; kind++) {
        Buffer flood = {0};
        assert_ok(buffer_append(&flood, tools->file.bytes, 2, &tools->error), &tools->error);
        for (size_t i = 0; i < MARKERS_COUNT; i++)
            assert_ok(
                buffer_append(&flood, (uint8_t[]){0xFF, kinds[kind], 0, 2}, MARKER_BYTES, &tools->error),
                &tools->error);
        assert_ok(buffer_append(&flood, tools->file.bytes + 2, tools->file.length - 2, &tools->error),
                  &tools->error);
        const clock_t begin = clock();
        assert_ok(image_decode(tools->decoder, flood.bytes, flood.length, &(ImageDecodeOptions){0},
                               &tools->image, &tools->info, &tools->error),
                  &tools->error);
        assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 1);
        assert_int_equal(tools->info.orientation, 6);
        buffer_free(&flood);
    }
}

/* Junk between markers loses no pixel: ImageNet has such files, and every reader takes them. */
DECODE_TEST(test_extraneous_bytes_are_a_warning, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 32, .height = 32, .colours = MAKE_RGB});
    /* after SOI and APP0, which are 20 bytes */
    Buffer with_junk = {0};
    assert_int_equal(buffer_append(&with_junk, tools->file.bytes, 20, NULL), FSH_OK);
    assert_int_equal(buffer_append(&with_junk, "junk", 4, NULL), FSH_OK);
    assert_int_equal(buffer_append(&with_junk, tools->file.bytes + 20, tools->file.length - 20, NULL),
                     FSH_OK);
    buffer_free(&tools->file);
    tools->file = with_junk;
    decode_file(tools);
    assert_int_equal(tools->info.quirks, IMAGE_QUIRK_WARNING);
}

DECODE_TEST(test_12_bit_jpeg_gives_a_clear_error, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_GRAY});
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

DECODE_TEST(test_bombs_are_refused_by_their_header, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_RGB});
    patch_size(&tools->file, 60000, 60000);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "60000 x 60000");
    assert_true(tools->image.capacity_bytes < 1000000); /* before memory was taken */
    make_plain_jpeg(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_RGB});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.max_pixels = 199}), FSH_ERR_MISMATCH);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){.max_pixels = 200}), FSH_OK);
    make_plain_jpeg(tools, (MakeJpeg){.width = 64, .height = 64, .colours = MAKE_GRAY, .scan_bomb = true});
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "500 scans");
}

DECODE_TEST(test_what_is_no_image_is_named_so, tools)
{
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

DECODE_TEST(test_probe_reads_the_header_only, tools)
{
    make_plain_jpeg(
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

DECODE_TEST(test_missing_plugin_says_how_to_get_it_and_plain_png_needs_none, tools)
{
    /* the plugin is found beside this program, if at all: a program elsewhere is what the resize test runs.
     * Here, a broken one in the folder that is asked first. */
    TestFolder folder;
    test_folder_make(&folder);
    test_file_write_text(test_path(&folder, IMAGE_PLUGIN_FILE), "no library");
    const char *asked = getenv("FSHARD_PLUGINS");
    char *kept = asked ? strdup(asked) : NULL;
    assert_int_equal(setenv("FSHARD_PLUGINS", folder.path, 1), 0);
    static const uint8_t rows[] = {7};
    make_png(&(MakePng){.width = 1, .height = 1, .bit_depth = 8, .colour_type = 0, .rows = rows},
             &tools->file);
    decode_file(tools);
    assert_int_equal(tools->image.pixels[0], 7);
    tools->file.bytes[28] = 1; /* interlaced */
    make_png_sums(&tools->file);
    assert_int_equal(decode_with(tools, &(ImageDecodeOptions){0}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "libvips plugin");
    if (kept)
        assert_int_equal(setenv("FSHARD_PLUGINS", kept, 1), 0);
    else
        assert_int_equal(unsetenv("FSHARD_PLUGINS"), 0);
    free(kept);
    test_folder_remove(&folder);
}

DECODE_TEST(test_versions_are_named, folder)
{
    char text[128];
    assert_contains(image_library_versions(text, sizeof text), "libjpeg-turbo ");
    assert_contains(text, "libdeflate ");
    assert_contains(text, "libvips");
}
