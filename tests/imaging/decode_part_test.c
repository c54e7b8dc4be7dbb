/* Parts of JPEGs: the pixels of a whole decode, bit for bit, whatever the sampling, the coding and the
 * scale. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/imaging/decode_tools.h"

typedef struct PartTools {
    Image whole, part;
} PartTools;

static bool same_pixels(const Image *whole, const Image *part, const ImagePlace *place)
{
    size_t row_bytes = (size_t)part->width * part->channels;
    size_t left = place->left, right = left + part->width;
    if (part->channels != whole->channels || right > whole->width ||
        place->top + part->height > whole->height)
        return false;
    /* what libjpeg gives beside the part, to whole blocks, is of no use, and may differ in its first and last
     * columns */
    for (size_t y = 0; y < part->height; y++)
        if (memcmp(part->pixels + y * row_bytes,
                   whole->pixels + ((place->top + y) * whole->width + left) * whole->channels,
                   row_bytes) != 0)
            return false;
    return true;
}

/* Cuts the wanted part out of the decoded one into wanted_pixels and sets *place to where it lies in the
 * whole image; the decoded part must hold it. */
static void cut(const Image *part, const ImagePart *wanted, ImagePlace *place, uint32_t whole_width,
                uint32_t whole_height, Image *wanted_pixels)
{
    uint32_t left = wanted->left * place->eighths / 8, top = wanted->top * place->eighths / 8;
    uint32_t right = ((wanted->left + wanted->width) * place->eighths + 7) / 8;
    uint32_t bottom = ((wanted->top + wanted->height) * place->eighths + 7) / 8;
    right = right < whole_width ? right : whole_width;
    bottom = bottom < whole_height ? bottom : whole_height;
    assert_true(place->left <= left && place->top <= top);
    assert_true(place->left + part->width >= right && place->top + part->height >= bottom);
    assert_ok(image_reserve(wanted_pixels, right - left, bottom - top, part->channels, NULL), NULL);
    for (uint32_t y = top; y < bottom; y++)
        memcpy(wanted_pixels->pixels + (size_t)(y - top) * (right - left) * part->channels,
               part->pixels +
                   ((size_t)(y - place->top) * part->width + (left - place->left)) * part->channels,
               (size_t)(right - left) * part->channels);
    *place = (ImagePlace){left, top, place->eighths};
}

static ImagePart draw_part(Random *random, uint32_t width, uint32_t height)
{
    ImagePart part = {.left = random_below(random, width), .top = random_below(random, height)};
    part.width = 1 + random_below(random, width - part.left);
    part.height = 1 + random_below(random, height - part.top);
    return part;
}

/* Decodes some parts of tools->file, which is width x height, at every scale and compares them with the whole
 * image. Returns false with a message where one differs. */
static bool check_parts(DecodeTools *tools, uint32_t width, uint32_t height, uint32_t channels, int parts,
                        char *message, size_t message_bytes)
{
    Image whole = {0}, part = {0}, wanted_pixels = {0};
    Random random;
    bool good = true;
    random_start(&random, 3, random_stream(width, height));
    for (uint32_t eighths = 8; eighths >= 1 && good; eighths /= 2) {
        const ImageDecodeOptions options = {
            .channels = channels, .least_width = width * eighths / 8, .least_height = height * eighths / 8};
        assert_ok(image_decode(tools->decoder, tools->file.bytes, tools->file.length, &options, &whole, NULL,
                               &tools->error),
                  &tools->error);
        for (int i = 0; i < parts && good; i++) {
            const ImagePart wanted = draw_part(&random, width, height);
            ImagePlace place;
            assert_ok(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options,
                                        width, height, &wanted, &part, &place, &tools->error),
                      &tools->error);
            assert_true(place.eighths == eighths || !options.least_width || !options.least_height);
            cut(&part, &wanted, &place, whole.width, whole.height, &wanted_pixels);
            good = same_pixels(&whole, &wanted_pixels, &place);
            if (!good)
                (void)snprintf(message, message_bytes, "%u x %u at (%u, %u) of %u x %u at %u/8", wanted.width,
                               wanted.height, wanted.left, wanted.top, width, height, place.eighths);
        }
    }
    image_free(&whole);
    image_free(&part);
    image_free(&wanted_pixels);
    return good;
}

DECODE_TEST(test_parts_are_those_of_the_whole, tools)
{
    static const MakeJpeg kinds[] = {
        {.colours = MAKE_RGB, .across = 2, .down = 2},
        {.colours = MAKE_RGB, .across = 2, .down = 1},
        {.colours = MAKE_RGB, .across = 1, .down = 2},
        {.colours = MAKE_RGB, .across = 1, .down = 1},
        {.colours = MAKE_RGB, .across = 4, .down = 1},
        {.colours = MAKE_GRAY},
        {.colours = MAKE_RGB, .progressive = true},
        {.colours = MAKE_RGB, .across = 2, .down = 1, .progressive = true},
        {.colours = MAKE_RGB, .arithmetic = true},
    };
    static const uint32_t sizes[][2] = {{160, 160}, {213, 117}, {64, 64}, {17, 300},
                                        {300, 9},   {1, 1},     {8, 3}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (uint32_t channels = 1; channels <= 3; channels += 2) {
                MakeJpeg kind = kinds[k];
                char message[128] = "";
                kind.width = sizes[i][0];
                kind.height = sizes[i][1];
                make_plain_jpeg(tools, kind);
                if (!check_parts(tools, kind.width, kind.height, channels, 40, message, sizeof message))
                    fail_msg("kind %zu, %u channels: %s", k, channels, message);
            }
}

/* A damaged scan below the part is not read; the same damage within it is. */
DECODE_TEST(test_what_lies_below_the_part_is_not_read, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 160, .height = 160, .colours = MAKE_RGB});
    tools->file.length /= 2;
    Image image = {0};
    ImagePlace place;
    const ImageDecodeOptions options = {.channels = 3};
    const ImagePart above = {.left = 0, .top = 0, .width = 160, .height = 16};
    const ImagePart below = {.left = 0, .top = 0, .width = 160, .height = 160};
    assert_ok(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options, 160, 160,
                                &above, &image, &place, &tools->error),
              &tools->error);
    assert_int_equal(image.height, 16);
    assert_int_equal(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options, 160,
                                       160, &below, &image, &place, &tools->error),
                     FSH_ERR_CORRUPT);
    /* and the decoder is as good as new */
    make_plain_jpeg(tools, (MakeJpeg){.width = 20, .height = 10, .colours = MAKE_RGB});
    decode_file(tools);
    expect_shape(tools, 20, 10, 3);
    image_free(&image);
}

DECODE_TEST(test_a_turned_image_comes_whole, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB, .orientation = 6});
    decode_file(tools);
    expect_shape(tools, 60, 90, 3);
    Image image = {0};
    ImagePlace place;
    const ImagePart part = {.left = 20, .top = 30, .width = 10, .height = 10};
    assert_ok(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length,
                                &(ImageDecodeOptions){.channels = 3, .least_width = 8, .least_height = 12},
                                60, 90, &part, &image, &place, &tools->error),
              &tools->error);
    assert_int_equal(place.left, 0);
    assert_int_equal(place.top, 0);
    assert_int_equal(place.eighths, 8);
    assert_int_equal(image.width, 60);
    assert_memory_equal(image.pixels, tools->image.pixels, (size_t)60 * 90 * 3);
    image_free(&image);
}

DECODE_TEST(test_a_part_of_another_size_is_refused, tools)
{
    make_plain_jpeg(tools, (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    Image image = {0};
    ImagePlace place;
    const ImageDecodeOptions options = {.channels = 3};
    const ImagePart part = {.left = 0, .top = 0, .width = 10, .height = 10},
                    outside = {.left = 81, .top = 0, .width = 10, .height = 10};
    assert_int_equal(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options, 90,
                                       61, &part, &image, &place, &tools->error),
                     FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "it is 90 x 60 pixels, not 90 x 61 as its record says");
    assert_int_equal(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options, 90,
                                       60, &outside, &image, &place, &tools->error),
                     FSH_ERR_MISMATCH);
    image_free(&image);
}

/* $FSHARD_DATA/imagenet-sample/train: photographs as cameras and editors wrote them. */
DECODE_TEST(test_parts_of_photographs_are_those_of_the_whole, tools)
{
    const char *data = getenv("FSHARD_DATA");
    char folder[512], pattern[600];
    if (!data) {
        print_message("skipped: FSHARD_DATA is not set\n");
        return;
    }
    (void)snprintf(folder, sizeof folder, "%s/imagenet-sample/train", data);
    (void)snprintf(pattern, sizeof pattern,
                   "find %s -name '*.JPEG' -o -name '*.jpg' | sort | awk 'NR %% 10 == 0'", folder);
    FILE *names = popen(pattern, "r"); /* NOLINT(cert-env33-c) */
    assert_non_null(names);
    char path[512];
    int checked = 0;
    while (fgets(path, sizeof path, names)) {
        path[strcspn(path, "\n")] = '\0';
        size_t length;
        char *bytes = test_file_read(path, &length), message[128] = "";
        tools->file.length = 0;
        assert_ok(buffer_append(&tools->file, bytes, length, &tools->error), &tools->error);
        free(bytes);
        assert_ok(image_probe(tools->decoder, tools->file.bytes, length, &tools->info, &tools->error),
                  &tools->error);
        if (tools->info.orientation != 1 || (tools->info.quirks & IMAGE_QUIRK_CMYK) ||
            tools->info.format != IMAGE_JPEG)
            continue;
        if (!check_parts(tools, tools->info.width, tools->info.height, 3, 4, message, sizeof message))
            fail_msg("%s: %s", path, message);
        checked++;
    }
    (void)pclose(names);
    print_message("%d photographs\n", checked);
    assert_true(checked > 0);
}
