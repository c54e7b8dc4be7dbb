/* Planes of JPEGs: the pixels of libjpeg, bit for bit, whatever the part; and the Y4M files that hold
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/random.h"
#include "imaging/y4m.h"
#include "tests/imaging/decode_tools.h"

/* Makes tools->file, a JPEG, the Y4M of its planes. */
static void make_y4m(DecodeTools *tools, PlanesChroma expected)
{
    Buffer file = {0};
    uint8_t *planes = NULL;
    PlanesChroma chroma = PLANES_GRAY;
    assert_ok(image_probe(tools->decoder, tools->file.bytes, tools->file.length, &tools->info, &tools->error),
              &tools->error);
    assert_true(planes_of_jpeg(tools->decoder, &tools->info, &chroma));
    assert_int_equal(chroma, expected);
    assert_ok(y4m_begin(&file, chroma, tools->info.width, tools->info.height, &planes, &tools->error),
              &tools->error);
    assert_int_equal(file.length, y4m_bytes(chroma, tools->info.width, tools->info.height));
    assert_ok(planes_read_jpeg(tools->decoder, planes, &tools->error), &tools->error);
    buffer_free(&tools->file);
    tools->file = file;
}

static void compare_parts(DecodeTools *tools, const Image *whole, uint32_t channels, Random *random)
{
    Image part = {0};
    for (int i = 0; i < 30; i++) {
        const ImageDecodeOptions options = {.channels = channels};
        ImagePart wanted = {.left = random_below(random, whole->width),
                            .top = random_below(random, whole->height)};
        ImagePlace place;
        wanted.width = 1 + random_below(random, whole->width - wanted.left);
        wanted.height = 1 + random_below(random, whole->height - wanted.top);
        assert_ok(image_decode_part(tools->decoder, tools->file.bytes, tools->file.length, &options,
                                    whole->width, whole->height, &wanted, &part, &place, &tools->error),
                  &tools->error);
        assert_true(place.left == wanted.left && place.top == wanted.top && place.eighths == 8);
        assert_true(part.width == wanted.width && part.height == wanted.height && part.channels == channels);
        for (uint32_t y = 0; y < part.height; y++)
            assert_memory_equal(part.pixels + (size_t)y * part.width * channels,
                                whole->pixels +
                                    ((size_t)(wanted.top + y) * whole->width + wanted.left) * channels,
                                (size_t)part.width * channels);
    }
    image_free(&part);
}

DECODE_TEST(test_planes_become_the_pixels_of_libjpeg, tools)
{
    static const struct {
        MakeJpeg kind;
        PlanesChroma chroma;
    } kinds[] = {{{.colours = MAKE_RGB, .across = 2, .down = 2}, PLANES_420},
                 {{.colours = MAKE_RGB, .across = 2, .down = 2, .progressive = true}, PLANES_420},
                 {{.colours = MAKE_RGB, .across = 1, .down = 1}, PLANES_444},
                 {{.colours = MAKE_GRAY}, PLANES_GRAY}};
    /* several tiles of columns; edges within blocks; the smallest whose chroma is upsampled */
    static const uint32_t sizes[][2] = {{601, 40}, {213, 117}, {64, 64}, {17, 30}, {5, 2}, {300, 9}};
    Random random;
    random_start(&random, 5, 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            MakeJpeg kind = kinds[k].kind;
            Image whole[2] = {{0}};
            kind.width = sizes[i][0];
            kind.height = sizes[i][1];
            make_plain_jpeg(tools, kind);
            for (uint32_t c = 0; c < 2; c++)
                assert_ok(image_decode(tools->decoder, tools->file.bytes, tools->file.length,
                                       &(ImageDecodeOptions){.channels = 1 + 2 * c}, &whole[c], NULL,
                                       &tools->error),
                          &tools->error);
            make_y4m(tools, kinds[k].chroma);
            decode_file(tools);
            assert_int_equal(tools->info.format, IMAGE_Y4M);
            expect_shape(tools, kind.width, kind.height, kinds[k].chroma == PLANES_GRAY ? 1 : 3);
            for (uint32_t c = 0; c < 2; c++) {
                compare_parts(tools, &whole[c], 1 + 2 * c, &random);
                image_free(&whole[c]);
            }
        }
}

DECODE_TEST(test_jpegs_without_such_planes_are_told, tools)
{
    static const MakeJpeg kinds[] = {{.colours = MAKE_RGB, .across = 2, .down = 1, .width = 40, .height = 40},
                                     {.colours = MAKE_RGB, .across = 1, .down = 2, .width = 40, .height = 40},
                                     {.colours = MAKE_RGB, .across = 2, .down = 2, .width = 4, .height = 40},
                                     {.colours = MAKE_RGB, .across = 2, .down = 2, .width = 40, .height = 1}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        PlanesChroma chroma;
        make_plain_jpeg(tools, kinds[k]);
        assert_ok(
            image_probe(tools->decoder, tools->file.bytes, tools->file.length, &tools->info, &tools->error),
            &tools->error);
        if (planes_of_jpeg(tools->decoder, &tools->info, &chroma))
            fail_msg("kind %zu is said to have planes", k);
    }
}

DECODE_TEST(test_a_damaged_scan_gives_no_planes, tools)
{
    uint8_t planes[64 * 64 * 2];
    PlanesChroma chroma;
    make_plain_jpeg(tools,
                    (MakeJpeg){.colours = MAKE_RGB, .across = 2, .down = 2, .width = 64, .height = 64});
    tools->file.length /= 2;
    assert_ok(image_probe(tools->decoder, tools->file.bytes, tools->file.length, &tools->info, &tools->error),
              &tools->error);
    assert_true(planes_of_jpeg(tools->decoder, &tools->info, &chroma));
    assert_int_equal(planes_read_jpeg(tools->decoder, planes, &tools->error), FSH_ERR_CORRUPT);
}

DECODE_TEST(test_damaged_and_foreign_y4ms_are_refused, tools)
{
#define Y4M(header, samples) header "\nFRAME\n" samples
    static const struct {
        const char *file, *says;
        FshStatus status;
    } files[] = {
        {Y4M("YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL", "12345678"), "", FSH_OK},
        {Y4M("YUV4MPEG2 H2 W4 F25:1 A0:0 Ip XHello Cmono XCOLORRANGE=FULL", "12345678"), "", FSH_OK},
        {Y4M("YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL", "1234567"), "has 8 bytes of samples, not 7",
         FSH_ERR_CORRUPT},
        {Y4M("YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL", "123456789"), "not 9", FSH_ERR_CORRUPT},
        {Y4M("YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL", "12345678FRAME\n12345678"), "several frames",
         FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W4 H2 Cmono", "12345678"), "full range", FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=LIMITED", "12345678"), "full range", FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W4 H2 It Cmono XCOLORRANGE=FULL", "12345678"), "interlaced", FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W4 H2 C422 XCOLORRANGE=FULL", "1234567812345678"), "C422", FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W4 H2 C420p10 XCOLORRANGE=FULL", "1234567812345678"), "C420p10", FSH_ERR_UNSUPPORTED},
        {Y4M("YUV4MPEG2 W0 H2 Cmono XCOLORRANGE=FULL", ""), "damaged", FSH_ERR_CORRUPT},
        {Y4M("YUV4MPEG2 W4x H2 Cmono XCOLORRANGE=FULL", "12345678"), "damaged", FSH_ERR_CORRUPT},
        {Y4M("YUV4MPEG2 W99999999999999999999 H2 Cmono XCOLORRANGE=FULL", "1"), "damaged", FSH_ERR_CORRUPT},
        {Y4M("YUV4MPEG2 H2 Cmono XCOLORRANGE=FULL", "12345678"), "damaged", FSH_ERR_CORRUPT},
        {"YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL\n12345678", "damaged", FSH_ERR_CORRUPT},
        {"YUV4MPEG2 W4 H2 Cmono XCOLORRANGE=FULL", "damaged", FSH_ERR_CORRUPT},
    };
#undef Y4M
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tools->error = (FshError){0};
        const FshStatus status = image_decode(tools->decoder, files[i].file, strlen(files[i].file),
                                              &(ImageDecodeOptions){0}, &tools->image, NULL, &tools->error);
        if (status != files[i].status || !strstr(tools->error.message, files[i].says))
            fail_msg("file %zu: %d, \"%s\"", i, (int)status, tools->error.message);
    }
}

/* Returns how far a sample is from the mean of T.871's formula (weights, and an offset) over the pixels of
 * its square of `edge` x `edge`; those beyond the image are its edge's. */
static double away(const Image *image, uint32_t x, uint32_t y, uint32_t edge, const double weights[4],
                   uint8_t sample)
{
    double sum = 0;
    for (uint32_t i = 0; i < edge * edge; i++) {
        uint32_t column = x * edge + i % edge, row = y * edge + i / edge;
        column = column < image->width ? column : image->width - 1;
        row = row < image->height ? row : image->height - 1;
        const uint8_t *pixel = image->pixels + ((size_t)row * image->width + column) * 3;
        sum += weights[0] * pixel[0] + weights[1] * pixel[1] + weights[2] * pixel[2] + weights[3];
    }
    return fabs(sample - sum / (edge * edge));
}

DECODE_TEST(test_planes_of_pixels_are_those_of_the_standard, tools)
{
    static const double weights[3][4] = {
        {0.299, 0.587, 0.114, 0}, {-0.168736, -0.331264, 0.5, 128}, {0.5, -0.418688, -0.081312, 128}};
    static const PlanesChroma chromas[] = {PLANES_444, PLANES_420};
    enum { WIDTH = 37, HEIGHT = 23 };
    uint8_t planes[3 * WIDTH * HEIGHT];
    Random random;
    random_start(&random, 871, 0);
    assert_ok(image_reserve(&tools->image, WIDTH, HEIGHT, 3, &tools->error), &tools->error);
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 3; i++) /* among them black, white and pure colours */
        tools->image.pixels[i] =
            (uint8_t)(random_below(&random, 3) ? random_u32(&random) : random_below(&random, 2) * 255);
    for (size_t i = 0; i < 2; i++) {
        planes_of_image(&tools->image, chromas[i], planes);
        const uint8_t *sample = planes;
        for (uint32_t plane = 0; plane < 3; plane++) {
            const uint32_t edge = plane && chromas[i] == PLANES_420 ? 2 : 1;
            for (uint32_t y = 0; y < (HEIGHT + edge - 1) / edge; y++)
                for (uint32_t x = 0; x < (WIDTH + edge - 1) / edge;
                     x++) /* four are rounded, then their mean */
                    assert_true(away(&tools->image, x, y, edge, weights[plane], *sample++) <=
                                (edge == 1 ? 0.51 : 1.01));
        }
        assert_int_equal(sample - planes, planes_bytes(chromas[i], WIDTH, HEIGHT));
    }
}
