/* ImageNet's quirks and more: files made here, through shrink_image, without the program. */
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/exif.h"
#include "imaging/orient.h"
#include "tests/tools/resize_image_tools.h"

/* ---- formats ---- */

TEST_WITH(test_png_named_jpeg_becomes_a_jpeg, resize_tools_setup, resize_tools_teardown, ResizeTools *tools)
{
    need_libvips();
    for (uint32_t size = 20; size <= 60; size += 40) { /* small enough, and not */
        take_png(tools, size, size);
        assert_ok(resize_as(tools, IMAGE_JPEG), &tools->error);
        assert_int_equal(tools->info.format, IMAGE_JPEG);
        assert_int_equal(tools->resized.action, size < 30 ? SHRINK_CONVERTED : SHRINK_RESIZED);
        expect(tools, size < 30 ? SHRINK_COPIED : SHRINK_RESIZED, IMAGE_PNG, size / 30 ? 30 : size,
               size / 30 ? 30 : size, 3); /* where no name promises anything, by content */
    }
}

static const uint8_t gif[] = {'G',  'I',  'F', '8', '9', 'a', 1,   0, 1,    0, 0x80, 0,
                              0,    255,  0,   0,   0,   0,   255, /* red, blue */
                              0x21, 0xF9, 4,   0,   10,  0,   0,   0, 0x2C, 0, 0,    0,
                              0,    1,    0,   1,   0,   0,   2,   2, 0x44, 1, 0, /* a red frame */
                              0x21, 0xF9, 4,   0,   10,  0,   0,   0, 0x2C, 0, 0,    0,
                              0,    1,    0,   1,   0,   0,   2,   2, 0x4C, 1, 0, /* a blue one */
                              0x3B};
enum { GIF_FRAME_BYTES = 23 };

TEST_WITH(test_kept_formats_stay_and_others_become_what_can_be_written, resize_tools_setup,
          resize_tools_teardown, ResizeTools *tools)
{
    need_libvips();
    static const ImageFormat ours[] = {IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
    for (size_t i = 0; i < 3; i++) {
        take_encoded(tools, ours[i], 60, 40, NULL);
        expect(tools, SHRINK_RESIZED, ours[i], 45, 30, 3);
        take_encoded(tools, ours[i], 20, 20, NULL);
        expect(tools, SHRINK_COPIED, ours[i], 20, 20, 3);
        assert_int_equal(tools->resized.length, tools->file.length);
    }
    static const char pnm[] = "P6\n2 1\n255\n\1\2\3\4\5\6";
    take_bytes(tools, pnm, sizeof pnm - 1);
    expect(tools, SHRINK_CONVERTED, IMAGE_PNG, 2, 1, 3);
    take_bytes(tools, gif, sizeof gif);
    expect(tools, SHRINK_CONVERTED, IMAGE_PNG, 1, 1, 3);
    static const ImageFormat lossless[] = {IMAGE_GIF, IMAGE_BMP, IMAGE_TIFF, IMAGE_PNM};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(shrink_format_for(lossless[i]), IMAGE_PNG);
    assert_int_equal(shrink_format_for(IMAGE_HEIF), IMAGE_JPEG);
    assert_int_equal(shrink_format_for(IMAGE_JPEG2000), IMAGE_JPEG);
}

/* Pillow refuses a file with a bad checksum wherever it is; what is copied must be readable to all. */
TEST_WITH(test_a_png_with_a_damaged_chunk_is_written_anew, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6}, exif[] = "II*\0\x08\0\0\0\0\0\0\0\0";
    const MakePng png = {.width = 2,
                         .height = 1,
                         .bit_depth = 8,
                         .colour_type = 2,
                         .rows = rows,
                         .exif = exif,
                         .exif_length = sizeof exif};
    make_png(&png, &tools->file);
    expect(tools, SHRINK_COPIED, IMAGE_PNG, 2, 1, 3);
    make_png(&png, &tools->file);
    uint8_t *chunk = memmem(tools->file.bytes, tools->file.length, "eXIf", 4);
    assert_non_null(chunk);
    chunk[4 + sizeof exif] ^= 1; /* its checksum */
    expect(tools, SHRINK_CONVERTED, IMAGE_PNG, 2, 1, 3);
    expect_pixel(tools, 1, 0, 4, 5, 6);
    assert_true(tools->resized.info.quirks & IMAGE_QUIRK_WARNING);
}

TEST_WITH(test_a_fixed_format_is_what_everything_becomes, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    static const ImageFormat ours[] = {IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
    for (size_t i = 0; i < 9; i++) {
        ImageFormat from = ours[i / 3], to = ours[i % 3];
        tools->recipe.format = to;
        take_encoded(tools, from, 20, 10, NULL);
        expect(tools, from == to ? SHRINK_COPIED : SHRINK_CONVERTED, to, 20, 10, 3);
        take_encoded(tools, from, 60, 40, NULL);
        expect(tools, SHRINK_RESIZED, to, 45, 30, 3);
        assert_ok(resize_as(tools, IMAGE_JPEG), &tools->error); /* whatever the name promises */
        assert_int_equal(tools->info.format, to);
    }
}

TEST_WITH(test_animations_give_their_first_frame_and_are_told, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    take_bytes(tools, gif, sizeof gif);
    expect(tools, SHRINK_CONVERTED, IMAGE_PNG, 1, 1, 3);
    expect_pixel(tools, 0, 0, 255, 0, 0);
    assert_true(tools->resized.info.quirks & IMAGE_QUIRK_ANIMATION);
    uint8_t still[sizeof gif];
    memcpy(still, gif, sizeof gif);
    still[sizeof gif - 1 - GIF_FRAME_BYTES] = 0x3B; /* ends before the second frame */
    take_bytes(tools, still, sizeof gif - GIF_FRAME_BYTES);
    expect(tools, SHRINK_CONVERTED, IMAGE_PNG, 1, 1, 3);
    assert_false(tools->resized.info.quirks & IMAGE_QUIRK_ANIMATION);

    take_encoded(tools, IMAGE_WEBP, 40, 60, NULL);
    Buffer animated = {0};
    uint8_t head[44] = "RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x27\0\0\x3b\0\0ANIM\x06\0\0\0";
    uint8_t frame[24] = "ANMF\0\0\0\0\0\0\0\0\0\0\x27\0\0\x3b\0\0\x64\0\0"; /* 100 ms */
    size_t pixels = tools->file.length - 12, frame_bytes = pixels + 16, whole = 36 + 2 * (frame_bytes + 8);
    for (size_t i = 0; i < 4; i++) {
        head[4 + i] = (uint8_t)(whole >> (8 * i));
        frame[4 + i] = (uint8_t)(frame_bytes >> (8 * i));
    }
    assert_ok(buffer_append(&animated, head, sizeof head, &tools->error), &tools->error);
    for (int i = 0; i < 2; i++) {
        assert_ok(buffer_append(&animated, frame, sizeof frame, &tools->error), &tools->error);
        assert_ok(buffer_append(&animated, tools->file.bytes + 12, pixels, &tools->error), &tools->error);
    }
    take_bytes(tools, animated.bytes, animated.length);
    buffer_free(&animated);
    expect(tools, SHRINK_RESIZED, IMAGE_WEBP, 30, 45, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_ANIMATION);
    assert_int_equal(tools->info.quirks, 0); /* and what is written is none */

    static const uint8_t control[] = {0, 0, 0, 8, 'a', 'c', 'T',  'L',  0,    0,
                                      0, 2, 0, 0, 0,   0,   0xF3, 0x8D, 0x93, 0x70};
    take_png(tools, 20, 20);
    assert_ok(buffer_reserve(&animated, tools->file.length + sizeof control, &tools->error), &tools->error);
    assert_ok(buffer_append(&animated, tools->file.bytes, 33, &tools->error), &tools->error);
    assert_ok(buffer_append(&animated, control, sizeof control, &tools->error), &tools->error);
    assert_ok(buffer_append(&animated, tools->file.bytes + 33, tools->file.length - 33, &tools->error),
              &tools->error);
    take_bytes(tools, animated.bytes, animated.length);
    buffer_free(&animated);
    expect(tools, SHRINK_COPIED, IMAGE_PNG, 20, 20, 3);
    assert_int_equal(tools->resized.info.quirks & IMAGE_QUIRK_ANIMATION, IMAGE_QUIRK_ANIMATION);
}

/* ---- colours ---- */

TEST_WITH(test_cmyk_and_ycck_lose_their_inversion, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    uint8_t *pixels = malloc((size_t)64 * 64 * 4);
    assert_non_null(pixels);
    /* above no ink, below cyan alone; as Adobe stores it: 255 is none */
    memset(pixels, 255, (size_t)64 * 64 * 4);
    for (size_t i = (size_t)32 * 64; i < (size_t)64 * 64; i++)
        pixels[4 * i] = 0;
    for (int ycck = 0; ycck <= 1; ycck++) {
        for (uint32_t max = 32; max <= 64; max += 32) {
            tools->recipe.max_size = max;
            take_jpeg(tools, (MakeJpeg){.width = 64,
                                        .height = 64,
                                        .colours = ycck ? MAKE_YCCK : MAKE_CMYK,
                                        .pixels = pixels});
            expect(tools, max == 32 ? SHRINK_RESIZED : SHRINK_CONVERTED, IMAGE_JPEG, max, max, 3);
            assert_true(tools->resized.info.quirks & IMAGE_QUIRK_CMYK);
            expect_pixel(tools, max / 2, max / 4, 255, 255, 255);
            expect_pixel(tools, max / 2, max * 3 / 4, 0, 160, 227); /* cyan in print, roughly */
        }
    }
    free(pixels);
}

TEST_WITH(test_gray_stays_gray_but_in_webp, resize_tools_setup, resize_tools_teardown, ResizeTools *tools)
{
    take_jpeg(tools, (MakeJpeg){.width = 60, .height = 40, .colours = MAKE_GRAY});
    expect(tools, SHRINK_RESIZED, IMAGE_JPEG, 45, 30, 1);
    need_libvips();
    tools->recipe.format = IMAGE_PNG;
    expect(tools, SHRINK_RESIZED, IMAGE_PNG, 45, 30, 1);
    tools->recipe.format = IMAGE_WEBP;
    expect(tools, SHRINK_RESIZED, IMAGE_WEBP, 45, 30, 3);
}

TEST_WITH(test_16_bit_palette_and_alpha_become_8_bit_pixels, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    enum { EDGE = 60 };
    uint8_t *rows = malloc((size_t)EDGE * EDGE * 8);
    assert_non_null(rows);
    for (size_t i = 0; i < (size_t)EDGE * EDGE * 3; i++) { /* 200, 100, 50 in the high bytes */
        rows[2 * i] = i % 3 == 0 ? 200 : i % 3 == 1 ? 100 : 50;
        rows[2 * i + 1] = 7;
    }
    make_png(&(MakePng){.width = EDGE, .height = EDGE, .bit_depth = 16, .colour_type = 2, .rows = rows},
             &tools->file);
    expect(tools, SHRINK_RESIZED, IMAGE_PNG, 30, 30, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_16BIT);
    assert_int_equal(tools->info.quirks, 0);
    expect_pixel(tools, 15, 15, 200, 100, 50);

    static const uint8_t palette[] = {200, 100, 50, 0, 0, 255}, clear_second[] = {255, 0};
    for (size_t i = 0; i < (size_t)EDGE * EDGE; i++)
        rows[i] = i >= (size_t)EDGE * EDGE / 2;
    MakePng options = {.width = EDGE,
                       .height = EDGE,
                       .bit_depth = 8,
                       .colour_type = 3,
                       .rows = rows,
                       .palette = palette,
                       .palette_count = 2};
    make_png(&options, &tools->file);
    expect(tools, SHRINK_RESIZED, IMAGE_PNG, 30, 30, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_PALETTE);
    expect_pixel(tools, 15, 5, 200, 100, 50);
    expect_pixel(tools, 15, 25, 0, 0, 255);
    options.transparency = clear_second;
    options.transparency_length = 2;
    make_png(&options, &tools->file);
    expect(tools, SHRINK_RESIZED, IMAGE_PNG, 30, 30, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_PALETTE | IMAGE_QUIRK_ALPHA);
    expect_pixel(tools, 15, 25, 255, 255, 255);

    for (size_t i = 0; i < (size_t)EDGE * EDGE * 4; i++) /* half-transparent black: gray over white */
        rows[i] = i % 4 == 3 ? 128 : 0;
    make_png(&(MakePng){.width = EDGE, .height = EDGE, .bit_depth = 8, .colour_type = 6, .rows = rows},
             &tools->file);
    tools->recipe.format = IMAGE_WEBP;
    expect(tools, SHRINK_RESIZED, IMAGE_WEBP, 30, 30, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_ALPHA);
    expect_pixel(tools, 15, 15, 127, 127, 127);
    free(rows);
}

TEST_WITH(test_progressive_and_arithmetic_give_the_same_pixels, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    Image baseline = {0};
    take_jpeg(tools, (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    expect(tools, SHRINK_RESIZED, IMAGE_JPEG, 45, 30, 3);
    image_exchange(&baseline, &tools->image);
    for (int kind = 1; kind <= 3; kind++) {
        bool progressive = kind & 1, arithmetic = kind & 2;
        take_jpeg(tools, (MakeJpeg){.width = 90,
                                    .height = 60,
                                    .colours = MAKE_RGB,
                                    .progressive = progressive,
                                    .arithmetic = arithmetic});
        expect(tools, SHRINK_RESIZED, IMAGE_JPEG, 45, 30, 3);
        assert_int_equal(tools->resized.info.quirks, (progressive ? IMAGE_QUIRK_PROGRESSIVE : 0) |
                                                         (arithmetic ? IMAGE_QUIRK_ARITHMETIC : 0));
        assert_int_equal(tools->info.quirks, 0);
        assert_true(psnr(baseline.pixels, tools->image.pixels, (size_t)45 * 30 * 3) > 45);
    }
    image_free(&baseline);
}

/* ---- orientation ---- */

/* Fills four quarters: red, green above; blue, white below. */
static void fill_quarters(Image *image, uint32_t edge)
{
    static const uint8_t colours[4][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {255, 255, 255}};
    assert_int_equal(image_reserve(image, edge, edge, 3, NULL), FSH_OK);
    for (uint32_t i = 0; i < edge * edge; i++)
        memcpy(image->pixels + 3 * (size_t)i, colours[2 * (i / edge * 2 / edge) + i % edge * 2 / edge], 3);
}

TEST_WITH(test_each_orientation_is_applied_and_kept_metadata_says_so, resize_tools_setup,
          resize_tools_teardown, ResizeTools *tools)
{
    Image stored = {0}, shown = {0};
    tools->recipe.subsampling = IMAGE_SUBSAMPLING_444;
    for (unsigned i = 0; i < 8 * 4; i++) {
        uint8_t orientation = (uint8_t)(1 + i / 4), said;
        bool large = i % 2, ignored = i / 2 % 2, damaged = false;
        uint32_t edge = large ? 96 : 24, new_edge = large ? 30 : 24, step = new_edge / 4;
        fill_quarters(&stored, edge);
        take_jpeg(tools, (MakeJpeg){.width = edge,
                                    .height = edge,
                                    .colours = MAKE_RGB,
                                    .quality = 100,
                                    .pixels = stored.pixels,
                                    .orientation = orientation});
        tools->recipe.keep_metadata = true;
        tools->recipe.ignore_orientation = ignored;
        expect(tools,
               large                         ? SHRINK_RESIZED
               : ignored || orientation == 1 ? SHRINK_COPIED
                                             : SHRINK_CONVERTED,
               IMAGE_JPEG, new_edge, new_edge, 3);
        assert_ok(image_orient(&stored, ignored ? 1 : orientation, &shown, &tools->error), &tools->error);
        for (uint32_t quarter = 0; quarter < 4; quarter++) {
            uint32_t x = quarter % 2, y = quarter / 2;
            const uint8_t *colour = shown.pixels + 3 * ((size_t)(y * (edge - 1)) * edge + x * (edge - 1));
            expect_pixel(tools, step + 2 * step * x, step + 2 * step * y, colour[0], colour[1], colour[2]);
        }
        assert_non_null(tools->metadata.exif.bytes);
        said = exif_orientation(tools->metadata.exif.bytes, tools->metadata.exif.length, &damaged);
        assert_int_equal(said, ignored ? orientation : 1);
        assert_false(damaged);
    }
    image_free(&stored);
    image_free(&shown);
}

TEST_WITH(test_corrupt_exif_is_a_warning_and_is_not_passed_on, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    static const char broken[] = "Exif\0\0MM\0*\0\0\0\x08\0\xff\x01\x12";
    tools->recipe.keep_metadata = true;
    take_jpeg(tools, (MakeJpeg){.width = 60,
                                .height = 40,
                                .colours = MAKE_RGB,
                                .exif = broken,
                                .exif_length = sizeof broken - 1});
    expect(tools, SHRINK_RESIZED, IMAGE_JPEG, 45, 30, 3);
    assert_int_equal(tools->resized.info.quirks, IMAGE_QUIRK_WARNING);
    assert_null(tools->metadata.exif.bytes);
    assert_int_equal(tools->info.quirks, 0);
}

/* ---- metadata ---- */

TEST_WITH(test_metadata_is_kept_or_stripped_with_the_colours_it_means, resize_tools_setup,
          resize_tools_teardown, ResizeTools *tools)
{
    need_libvips();
    static const ImageFormat ours[] = {IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
    uint8_t exif[64], icc[1024];
    const ImageMetadata metadata = {
        .exif = {exif, make_exif(1, true, exif)},
        .icc = {icc, make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", icc)},
        .xmp = {"<x:xmpmeta/>", 12},
    };
    for (size_t i = 0; i < 9; i++) {
        Image kept = {0};
        take_encoded(tools, ours[i / 3], 60, 40, &metadata);
        tools->recipe.format = ours[i % 3];
        tools->recipe.keep_metadata = true;
        expect(tools, SHRINK_RESIZED, ours[i % 3], 45, 30, 3);
        const ImageBlock *blocks[] = {&tools->metadata.exif, &tools->metadata.icc, &tools->metadata.xmp};
        const ImageBlock *wanted[] = {&metadata.exif, &metadata.icc, &metadata.xmp};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(blocks[k]->length, wanted[k]->length);
            assert_memory_equal(blocks[k]->bytes, wanted[k]->bytes, wanted[k]->length);
        }
        image_exchange(&kept, &tools->image);
        tools->recipe.keep_metadata = false;
        expect(tools, SHRINK_RESIZED, ours[i % 3], 45, 30, 3);
        assert_null(tools->metadata.exif.bytes);
        assert_null(tools->metadata.icc.bytes);
        assert_null(tools->metadata.xmp.bytes);
        assert_int_equal(tools->info.quirks, 0);
        assert_true(psnr(kept.pixels, tools->image.pixels, (size_t)45 * 30 * 3) < 35); /* became sRGB */
        tools->recipe.ignore_icc = true;
        expect(tools, SHRINK_RESIZED, ours[i % 3], 45, 30, 3);
        tools->recipe.ignore_icc = false;
        assert_true(psnr(kept.pixels, tools->image.pixels, (size_t)45 * 30 * 3) > 40); /* were left alone */
        image_free(&kept);
    }
}

/* ---- sizes ---- */

TEST_WITH(test_one_pixel_and_extreme_shapes, resize_tools_setup, resize_tools_teardown, ResizeTools *tools)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 20000}, {20000, 1}};
    for (size_t i = 0; i < 6; i++) {
        uint32_t width = shapes[i / 2][0], height = shapes[i / 2][1];
        bool is_png = i % 2;
        if (is_png)
            need_libvips();
        if (is_png)
            take_png(tools, width, height);
        else
            take_jpeg(tools, (MakeJpeg){.width = width, .height = height, .colours = MAKE_RGB});
        ImageFormat format = is_png ? IMAGE_PNG : IMAGE_JPEG;
        tools->recipe = resize_usual_recipe;
        expect(tools, SHRINK_COPIED, format, width, height, 3); /* the short edge is 1 */
        tools->recipe.long_edge = true;
        tools->recipe.max_size = 100;
        expect(tools, width + height > 2 ? SHRINK_RESIZED : SHRINK_COPIED, format, width > 100 ? 100 : 1,
               height > 100 ? 100 : 1, 3);
        tools->recipe.exact = true;
        expect(tools, width + height > 2 ? SHRINK_RESIZED : SHRINK_COPIED, format, width > 100 ? 100 : 1,
               height > 100 ? 100 : 1, 3);
    }
    tools->recipe = resize_usual_recipe; /* 20000 x 1 from the last round */
    tools->recipe.format = IMAGE_WEBP;
    expect_failure(tools, FSH_ERR_MISMATCH, "20000 x 1 pixels: WebP holds at most 16383 on an edge");
    take_png(tools, 1, 1);
    expect(tools, SHRINK_CONVERTED, IMAGE_WEBP, 1, 1, 3);
}

TEST_WITH(test_smaller_than_min_size_is_left_out_as_displayed, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    tools->recipe.min_size = 21;
    take_jpeg(tools, (MakeJpeg){.width = 20, .height = 300, .colours = MAKE_RGB, .orientation = 6});
    assert_ok(resize_as(tools, IMAGE_UNKNOWN), &tools->error);
    assert_int_equal(tools->resized.action, SHRINK_TOO_SMALL);
    assert_null(tools->resized.bytes);
    assert_int_equal(tools->resized.length, 0);
    assert_int_equal(tools->resized.width, 300); /* turned */
    assert_int_equal(tools->resized.height, 20);
    tools->file.length /= 2; /* and is not decoded */
    assert_ok(resize_as(tools, IMAGE_UNKNOWN), &tools->error);
    assert_int_equal(tools->resized.action, SHRINK_TOO_SMALL);
    tools->recipe.min_size = 20;
    take_jpeg(tools, (MakeJpeg){.width = 20, .height = 300, .colours = MAKE_RGB});
    expect(tools, SHRINK_COPIED, IMAGE_JPEG, 20, 300, 3);
}

static uint64_t peak_memory_kb(void)
{
    char *status = test_file_read("/proc/self/status", NULL);
    const char *line = strstr(status, "VmPeak:");
    uint64_t peak = line ? strtoull(line + strlen("VmPeak:"), NULL, 10) : 0;
    free(status);
    return peak;
}

TEST_WITH(test_bombs_are_refused_before_memory_is_taken, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    need_libvips();
    take_png(tools, 40, 40); /* whatever the libraries take once */
    expect(tools, SHRINK_RESIZED, IMAGE_PNG, 30, 30, 3);
    for (int is_png = 0; is_png <= 1; is_png++) {
        if (is_png)
            take_png(tools, 40, 40);
        else
            take_jpeg(tools, (MakeJpeg){.width = 40, .height = 40, .colours = MAKE_RGB});
        patch_size(&tools->file, 60000, 60000);
        uint64_t before = peak_memory_kb();
        expect_failure(tools, FSH_ERR_MISMATCH,
                       "the header claims 60000 x 60000 pixels, more than the limit of 268435456");
        assert_true(before > 0);
        assert_in_range(peak_memory_kb() - before, 0, 16 << 10); /* reserved, too, not only touched */
    }
}

TEST_WITH(test_the_longest_file_follows_from_the_pixels, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    const ShrinkRecipe none = {0}, small = {.max_pixels = 1000}, all = {.max_pixels = UINT64_MAX};
    assert_int_equal(shrink_most_bytes(&small), 8000 + (64 << 20));
    assert_int_equal(shrink_most_bytes(&none), 8 * IMAGE_MAX_PIXELS_DEFAULT + (64 << 20));
    assert_int_equal(shrink_most_bytes(&all), UINT64_MAX);
}

/* ---- what cannot be read ---- */

TEST_WITH(test_truncated_files_fail_large_and_small, resize_tools_setup, resize_tools_teardown,
          ResizeTools *tools)
{
    for (uint32_t size = 24; size <= 96; size += 72) {
        take_jpeg(tools, (MakeJpeg){.width = size, .height = size, .colours = MAKE_RGB});
        tools->file.length -= 100;
        expect_failure(tools, FSH_ERR_CORRUPT, "premature end of JPEG file");
        take_jpeg(tools, (MakeJpeg){.width = size, .height = size, .colours = MAKE_RGB, .progressive = true});
        tools->file.length /= 2;
        expect_failure(tools, FSH_ERR_CORRUPT, "");
    }
    need_libvips();
    for (uint32_t size = 24; size <= 96; size += 72) {
        take_png(tools, size, size);
        tools->file.length /= 2;
        expect_failure(tools, FSH_ERR_CORRUPT, "");
        take_encoded(tools, IMAGE_WEBP, size, size, NULL);
        tools->file.length /= 2;
        expect_failure(tools, FSH_ERR_CORRUPT, "");
    }
    take_bytes(tools, gif, 30);
    expect_failure(tools, FSH_ERR_CORRUPT, "");
}

TEST_WITH(test_12_bit_jpeg_and_camera_raw_are_refused_with_a_reason, resize_tools_setup,
          resize_tools_teardown, ResizeTools *tools)
{
    take_jpeg(tools, (MakeJpeg){.width = 16, .height = 16, .colours = MAKE_GRAY});
    uint8_t *frame = memmem(tools->file.bytes, tools->file.length, "\xff\xc0\0\x0b\x08", 5);
    assert_non_null(frame);
    frame[1] = 0xC1; /* extended sequential, */
    frame[4] = 12;   /* 12 bits a sample */
    expect_failure(tools, FSH_ERR_UNSUPPORTED, "(12-bit) cannot be read; convert it");
    take_bytes(tools, "II*\0\x10\0\0\0CR\x02\0\0\0\0\0\0\0", 18);
    expect_failure(tools, FSH_ERR_UNSUPPORTED, "a camera's raw file");
}

TEST_WITH(test_times_of_the_stages_are_told, resize_tools_setup, resize_tools_teardown, ResizeTools *tools)
{
    take_jpeg(tools, (MakeJpeg){.width = 900, .height = 700, .colours = MAKE_RGB});
    tools->recipe.exact = true;
    tools->recipe.max_size = 600;
    double start = progress_now_seconds();
    expect(tools, SHRINK_RESIZED, IMAGE_JPEG, 771, 600, 3);
    double taken = progress_now_seconds() - start;
    const ShrunkImage *resized = &tools->resized;
    assert_true(resized->decode_seconds > 0 && resized->resample_seconds > 0 && resized->encode_seconds > 0);
    assert_true(resized->decode_seconds + resized->resample_seconds + resized->encode_seconds < taken);
}
