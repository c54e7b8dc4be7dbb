/* Encoding: what comes back from the decoder is what went in, as far as JPEG keeps it. */
#include <stdlib.h>
#include <string.h>

#include "imaging/decode.h"
#include "imaging/encode.h"
#include "imaging/image_plugin.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

typedef struct Tools {
    ImageDecoder *decoder;
    ImageEncoder *encoder;
    Image image, back;
    Buffer file;
    ImageInfo info;
    FshError error;
} Tools;

static int setup(void **state)
{
    Tools *tools = calloc(1, sizeof *tools);
    *state = tools;
    return !tools || image_decoder_new(&tools->decoder, &tools->error) ||
           image_encoder_new(&tools->encoder, &tools->error);
}

static int teardown(void **state)
{
    Tools *tools = *state;
    image_decoder_free(&tools->decoder);
    image_encoder_free(&tools->encoder);
    assert_null(tools->encoder);
    image_free(&tools->image);
    image_free(&tools->back);
    buffer_free(&tools->file);
    free(tools);
    return 0;
}

static void fill(Tools *tools, uint32_t width, uint32_t height, uint32_t channels)
{
    uint8_t *pixels = make_pixels(width, height, channels);
    assert_ok(image_reserve(&tools->image, width, height, channels, &tools->error), &tools->error);
    memcpy(tools->image.pixels, pixels, (size_t)width * height * channels);
    free(pixels);
}

static FshStatus encode(Tools *tools, ImageEncodeOptions options)
{
    return image_encode(tools->encoder, &tools->image, &options, &tools->file, &tools->error);
}

static FshStatus encode_jpeg(Tools *tools, int quality, ImageSubsampling subsampling)
{
    return encode(tools,
                  (ImageEncodeOptions){.format = IMAGE_JPEG, .quality = quality, .subsampling = subsampling});
}

static double decode_back(Tools *tools)
{
    const Image *image = &tools->image;
    assert_ok(image_decode(tools->decoder, tools->file.bytes, tools->file.length, &(ImageDecodeOptions){0},
                           &tools->back, &tools->info, &tools->error),
              &tools->error);
    assert_int_equal(tools->back.width, image->width);
    assert_int_equal(tools->back.height, image->height);
    assert_int_equal(tools->back.channels, image->channels);
    return psnr(image->pixels, tools->back.pixels, (size_t)image->width * image->height * image->channels);
}

TEST_WITH(test_jpeg_keeps_pixels_and_channels, setup, teardown, Tools *tools)
{
    static const uint32_t edges[][2] = {{1, 1}, {7, 5}, {16, 16}, {213, 160}};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (uint32_t channels = 1; channels <= 3; channels += 2) {
            fill(tools, edges[i][0], edges[i][1], channels);
            assert_ok(encode_jpeg(tools, 95, IMAGE_SUBSAMPLING_444), &tools->error);
            assert_true(decode_back(tools) > 38);
            assert_int_equal(tools->info.format, IMAGE_JPEG);
            assert_int_equal(tools->info.quirks, channels == 1 ? IMAGE_QUIRK_GRAY : 0);
        }
    }
}

/* Returns the sampling factors of Y: the byte of SOF0 after the number of components and the first's id. */
static unsigned luma_factors(const Buffer *file)
{
    const uint8_t *sof = memmem(file->bytes, file->length, "\xff\xc0\0\x11\x08", 5);
    assert_non_null(sof);
    return sof[11];
}

TEST_WITH(test_subsampling_is_as_asked, setup, teardown, Tools *tools)
{
    fill(tools, 64, 48, 3);
    assert_ok(encode_jpeg(tools, 90, IMAGE_SUBSAMPLING_420), &tools->error);
    assert_int_equal(luma_factors(&tools->file), 0x22);
    assert_ok(encode_jpeg(tools, 90, IMAGE_SUBSAMPLING_444), &tools->error);
    assert_int_equal(luma_factors(&tools->file), 0x11);
}

/* Noise at quality 100 is larger than the first buffer: it grows while libjpeg writes. */
TEST_WITH(test_large_file_makes_the_buffer_grow, setup, teardown, Tools *tools)
{
    assert_ok(image_reserve(&tools->image, 600, 500, 3, &tools->error), &tools->error);
    test_fill_noise(tools->image.pixels, 600, 500, 1);
    assert_ok(encode_jpeg(tools, 100, IMAGE_SUBSAMPLING_444), &tools->error);
    assert_true(tools->file.length > 400000);
    assert_true(decode_back(tools) > 35);
    size_t large = tools->file.length;
    fill(tools, 20, 20, 3); /* and the same buffer serves a small one */
    assert_ok(encode_jpeg(tools, 50, IMAGE_SUBSAMPLING_420), &tools->error);
    assert_true(tools->file.length < large / 100);
    assert_true(decode_back(tools) > 25);
}

TEST_WITH(test_too_long_an_edge_is_refused, setup, teardown, Tools *tools)
{
    assert_ok(image_reserve(&tools->image, 65501, 1, 1, &tools->error), &tools->error);
    memset(tools->image.pixels, 0, 65501);
    assert_int_equal(encode_jpeg(tools, 90, IMAGE_SUBSAMPLING_420), FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "65500");
    test_jpeg_keeps_pixels_and_channels(tools); /* the encoder lives on */
}

/* As libvips reads it, too, where it is there. */
TEST_WITH(test_png_is_lossless, setup, teardown, Tools *tools)
{
    static const uint32_t edges[][2] = {{1, 1}, {61, 47}, {2, 300}, {900, 700}};
    const ImagePlugin *plugin = NULL;
    FshError none = {0};
    (void)image_plugin_load(&plugin, &none);
    for (size_t i = 0; i < 2 * sizeof edges / sizeof edges[0]; i++) {
        const uint32_t width = edges[i / 2][0], height = edges[i / 2][1], channels = i % 2 ? 1 : 3;
        if (i / 2 == 3) { /* noise, of which no compression gets rid: several IDAT chunks */
            assert_ok(image_reserve(&tools->image, width, height, channels, &tools->error), &tools->error);
            test_fill_noise(tools->image.pixels, width * channels / 3, height, 7);
        } else {
            fill(tools, width, height, channels);
        }
        assert_ok(encode(tools, (ImageEncodeOptions){.format = IMAGE_PNG}), &tools->error);
        assert_true(decode_back(tools) == 99);
        assert_int_equal(tools->info.format, IMAGE_PNG);
        assert_int_equal(tools->info.quirks, channels == 1 ? IMAGE_QUIRK_GRAY : 0);
        if (!plugin)
            continue;
        assert_ok(plugin->decode(tools->file.bytes, tools->file.length, IMAGE_PNG, &(ImageDecodeOptions){0},
                                 &tools->back, &tools->info, NULL, NULL, &tools->error),
                  &tools->error);
        assert_int_equal(tools->info.quirks, channels == 1 ? IMAGE_QUIRK_GRAY : 0);
        assert_memory_equal(tools->back.pixels, tools->image.pixels, (size_t)width * height * channels);
    }
}

/* Lossy at every quality, gray as RGB, and nothing in the file but pixels. */
TEST_WITH(test_webp_is_lossy_and_plain, setup, teardown, Tools *tools)
{
    static const int qualities[] = {30, 90, 100};
    size_t before = 0;
    for (size_t i = 0; i < sizeof qualities / sizeof qualities[0]; i++) {
        fill(tools, 213, 160, 3);
        FshStatus status = encode(tools, (ImageEncodeOptions){.format = IMAGE_WEBP, .quality = qualities[i]});
        if (status == FSH_ERR_UNSUPPORTED) {
            print_message("built without libvips: skipped\n");
            skip();
        }
        assert_ok(status, &tools->error);
        assert_true(decode_back(tools) > 30);
        assert_int_equal(tools->info.format, IMAGE_WEBP);
        assert_memory_equal(tools->file.bytes + 12, "VP8 ", 4);
        assert_int_equal(tools->info.quirks, 0);
        assert_true(tools->file.length > before);
        before = tools->file.length;
    }
    fill(tools, 40, 30, 1);
    assert_ok(encode(tools, (ImageEncodeOptions){.format = IMAGE_WEBP, .quality = 100}), &tools->error);
    assert_ok(image_decode(tools->decoder, tools->file.bytes, tools->file.length, &(ImageDecodeOptions){0},
                           &tools->back, &tools->info, &tools->error),
              &tools->error);
    assert_int_equal(tools->back.channels, 3);
    for (size_t i = 0; i < (size_t)40 * 30; i++)
        assert_in_range(tools->back.pixels[3 * i] + 4 - tools->image.pixels[i], 0, 8);
    fill(tools, 16384, 1, 3);
    assert_int_equal(encode(tools, (ImageEncodeOptions){.format = IMAGE_WEBP, .quality = 90}),
                     FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "16384 x 1 pixels: WebP holds at most 16383");
}

/* libwebp reads a simple file and libvips one with metadata: both the same pixels. A damaged one is libvips'
 * to name. */
TEST_WITH(test_simple_webp_is_read_as_libvips_reads_it, setup, teardown, Tools *tools)
{
    static const char exif[] = "II*\0\10\0\0\0\0\0\0\0";
    const ImageMetadata metadata = {.exif = {exif, sizeof exif - 1}};
    const ImageEncodeOptions simple = {.format = IMAGE_WEBP, .quality = 80};
    const ImageEncodeOptions extended = {.format = IMAGE_WEBP, .quality = 80, .metadata = &metadata};
    fill(tools, 213, 161, 3);
    FshStatus status = encode(tools, simple);
    if (status == FSH_ERR_UNSUPPORTED) {
        print_message("built without libvips: skipped\n");
        skip();
    }
    assert_ok(status, &tools->error);
    (void)decode_back(tools);
    const ImageInfo info = tools->info;
    image_exchange(&tools->image, &tools->back);
    Image pixels = {0};
    image_exchange(&tools->image, &pixels);
    const size_t whole = tools->file.length;
    for (size_t length = whole - 1; length > whole / 2; length -= 97) {
        assert_int_equal(image_decode(tools->decoder, tools->file.bytes, length, &(ImageDecodeOptions){0},
                                      &tools->back, NULL, &tools->error),
                         FSH_ERR_CORRUPT);
        assert_contains(tools->error.message, "damaged");
    }
    fill(tools, 213, 161, 3);
    assert_ok(encode(tools, extended), &tools->error);
    assert_memory_equal(tools->file.bytes + 12, "VP8X", 4);
    (void)decode_back(tools);
    assert_memory_equal(&tools->info, &info, sizeof info);
    assert_memory_equal(tools->back.pixels, pixels.pixels, (size_t)213 * 161 * 3);
    image_free(&pixels);
}

TEST_WITH(test_formats_without_a_writer_are_refused, setup, teardown, Tools *tools)
{
    fill(tools, 8, 8, 3);
    assert_int_equal(encode(tools, (ImageEncodeOptions){.format = IMAGE_GIF}), FSH_ERR_UNSUPPORTED);
    assert_contains(tools->error.message, "no writer for gif");
}
