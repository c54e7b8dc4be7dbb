/* Shrinking by planes, against planes that libjpeg decodes in full and this test resamples by the formula. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <stdio.h>

#include <jpeglib.h>

#include "common/random.h"
#include "imaging/jpeg_shrink.h"
#include "imaging/y4m.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

typedef struct Tools {
    JpegShrinker *shrinker;
    JpegDecoder *decoder;
    JpegEncoder *encoder;
    Buffer file, out;
    ImageInfo info;
    JpegShrinkReport report;
    FshError error;
} Tools;

static int setup(void **state)
{
    Tools *tools = calloc(1, sizeof *tools);
    *state = tools;
    return !tools || jpeg_shrinker_new(&tools->shrinker, &tools->error) ||
           jpeg_decoder_new(&tools->decoder, &tools->error) ||
           jpeg_encoder_new(&tools->encoder, &tools->error);
}

static int teardown(void **state)
{
    Tools *tools = *state;
    jpeg_shrinker_free(&tools->shrinker);
    jpeg_decoder_free(&tools->decoder);
    jpeg_encoder_free(&tools->encoder);
    buffer_free(&tools->file);
    buffer_free(&tools->out);
    free(tools);
    return 0;
}

/* ---- JPEGs of every kind, by libjpeg directly ---- */

typedef struct Kind {
    const char *name;
    uint32_t channels;
    int horizontal, vertical; /* Y's sampling factors */
    bool progressive, arithmetic;
    unsigned restart; /* in MCUs */
    int colour;       /* both sampling factors of Cb, Cr has 1; 0: 1 */
} Kind;

static const Kind kinds[] = {
    {"gray", 1, 1, 1, false, false, 0, 0},
    {"gray with factors", 1, 2, 2, false, false, 0, 0},
    {"444", 3, 1, 1, false, false, 0, 0},
    {"422", 3, 2, 1, false, false, 0, 0},
    {"420", 3, 2, 2, false, false, 0, 0},
    {"440", 3, 1, 2, false, false, 0, 0},
    {"411", 3, 4, 1, false, false, 0, 0},
    {"441", 3, 1, 4, false, false, 0, 0},
    {"420 progressive", 3, 2, 2, true, false, 0, 0},
    {"444 progressive", 3, 1, 1, true, false, 0, 0},
    {"420 arithmetic", 3, 2, 2, false, true, 0, 0},
    {"422 with restarts", 3, 2, 1, false, false, 3, 0},
    {"Cb finer than Y", 3, 1, 1, false, false, 0, 2},
    {"Cb finer than Y, progressive", 3, 1, 2, true, false, 0, 2},
};
enum { KINDS_COUNT = sizeof kinds / sizeof kinds[0] };

/* Compresses the pixels to a JPEG of that kind in file; frees the pixels. */
static void make_from(const Kind *kind, uint32_t width, uint32_t height, uint8_t *pixels, Buffer *file)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &length);
    cinfo.image_width = width;
    cinfo.image_height = height;
    cinfo.input_components = (int)kind->channels;
    cinfo.in_color_space = kind->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, 98, TRUE);
    cinfo.comp_info[0].h_samp_factor = kind->horizontal;
    cinfo.comp_info[0].v_samp_factor = kind->vertical;
    if (kind->colour)
        cinfo.comp_info[1].h_samp_factor = cinfo.comp_info[1].v_samp_factor = kind->colour;
    cinfo.arith_code = kind->arithmetic;
    cinfo.restart_interval = kind->restart;
    if (kind->progressive)
        jpeg_simple_progression(&cinfo);
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < height) {
        JSAMPROW row = pixels + (size_t)cinfo.next_scanline * width * kind->channels;
        (void)jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    file->length = 0;
    assert_int_equal(buffer_append(file, bytes, length, NULL), FSH_OK);
    free(bytes);
    free(pixels);
}

static void make(const Kind *kind, uint32_t width, uint32_t height, Buffer *file)
{
    make_from(kind, width, height, make_pixels(width, height, kind->channels), file);
}

/* ---- planes, as libjpeg decodes them in full ---- */

typedef struct DecodedPlanes {
    uint32_t count, width[3], height[3];
    double covered_width[3], covered_height[3];
    size_t stride[3];
    uint8_t *samples[3];
} DecodedPlanes;

static void read_planes(const Buffer *file, DecodedPlanes *planes)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->bytes, file->length);
    (void)jpeg_read_header(&cinfo, TRUE);
    cinfo.raw_data_out = TRUE;
    (void)jpeg_start_decompress(&cinfo);
    *planes = (DecodedPlanes){.count = (uint32_t)cinfo.num_components};
    JSAMPROW rows[3][32];
    JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};
    for (uint32_t i = 0; i < planes->count; i++) {
        const jpeg_component_info *component = &cinfo.comp_info[i];
        planes->width[i] = component->downsampled_width;
        planes->height[i] = component->downsampled_height;
        planes->covered_width[i] =
            (double)cinfo.image_width * component->h_samp_factor / cinfo.max_h_samp_factor;
        planes->covered_height[i] =
            (double)cinfo.image_height * component->v_samp_factor / cinfo.max_v_samp_factor;
        planes->stride[i] = (size_t)cinfo.image_width + 64;
        planes->samples[i] = calloc((size_t)cinfo.image_height + 64, planes->stride[i]);
        assert_non_null(planes->samples[i]);
    }
    for (uint32_t group = 0; cinfo.output_scanline < cinfo.output_height; group++) {
        for (uint32_t i = 0; i < planes->count; i++) {
            uint32_t count = (uint32_t)cinfo.comp_info[i].v_samp_factor * 8;
            for (uint32_t y = 0; y < count; y++)
                rows[i][y] = planes->samples[i] + (group * count + y) * planes->stride[i];
        }
        (void)jpeg_read_raw_data(&cinfo, arrays, (JDIMENSION)cinfo.max_v_samp_factor * 8);
    }
    (void)jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

static void free_planes(DecodedPlanes *planes)
{
    for (uint32_t i = 0; i < planes->count; i++)
        free(planes->samples[i]);
}

/* ---- resampling by the formula ---- */

static double lanczos(double x)
{
    if (x == 0)
        return 1;
    return fabs(x) < 3 ? 3 * sin(M_PI * x) * sin(M_PI * x / 3) / (M_PI * M_PI * x * x) : 0;
}

/* Returns one output sample: the `count` values at `from`, `step` apart, weighted by a Lanczos filter around
 * `centre`; an output is `scale` inputs wide. */
static double resample_one(const double *from, size_t step, uint32_t count, double centre, double scale)
{
    double filter_scale = scale < 1 ? 1 : scale, sum = 0, weights = 0;
    for (uint32_t i = 0; i < count; i++) {
        double weight = lanczos((i + 0.5 - centre) / filter_scale);
        sum += weight * from[i * step];
        weights += weight;
    }
    return sum / weights;
}

static double *make_doubles(size_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

/* Resamples plane `index` of source to width x height samples that cover the plane's first extent_x x
 * extent_y samples. The caller frees the result. */
static double *resample_plane(const DecodedPlanes *source, uint32_t index, uint32_t width, uint32_t height,
                              double extent_x, double extent_y)
{
    uint32_t from_width = source->width[index], from_height = source->height[index];
    double *input = make_doubles((size_t)from_width * from_height);
    double *between = make_doubles((size_t)width * from_height);
    double *result = make_doubles((size_t)width * height);
    for (uint32_t y = 0; y < from_height; y++) {
        for (uint32_t x = 0; x < from_width; x++)
            input[y * from_width + x] = source->samples[index][y * source->stride[index] + x];
    }
    for (uint32_t y = 0; y < from_height; y++) {
        for (uint32_t x = 0; x < width; x++)
            between[y * width + x] = resample_one(input + (size_t)y * from_width, 1, from_width,
                                                  (x + 0.5) * extent_x / width, extent_x / width);
    }
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++)
            result[y * width + x] = resample_one(between + x, width, from_height,
                                                 (y + 0.5) * extent_y / height, extent_y / height);
    }
    free(input);
    free(between);
    return result;
}

static FshStatus shrink(Tools *tools, const JpegShrinkOptions *options)
{
    FshStatus status = jpeg_decoder_header(tools->decoder, tools->file.bytes, tools->file.length, false,
                                           &tools->info, &tools->error);
    if (status)
        return status;
    return jpeg_shrink(tools->shrinker, tools->decoder, tools->encoder, options, &tools->out, &tools->report,
                       &tools->error);
}

/* Shrinks a picture of that kind and returns the lowest signal to noise ratio of its planes against the
 * formula. */
static double compare(Tools *tools, const Kind *kind, uint32_t width, uint32_t height,
                      const JpegShrinkOptions *options)
{
    DecodedPlanes source, result;
    make(kind, width, height, &tools->file);
    assert_ok(shrink(tools, options), &tools->error);
    read_planes(&tools->file, &source);
    read_planes(&tools->out, &result);
    assert_int_equal(result.count, kind->channels);
    assert_int_equal(result.width[0], options->width);
    assert_int_equal(result.height[0], options->height);
    double worst = 99;
    for (uint32_t i = 0; i < result.count; i++) {
        uint32_t divisor = i && options->subsampling == IMAGE_SUBSAMPLING_420 ? 2 : 1;
        assert_int_equal(result.width[i], (options->width + divisor - 1) / divisor);
        assert_int_equal(result.height[i], (options->height + divisor - 1) / divisor);
        double extent_x = source.covered_width[i] * result.width[i] * divisor / options->width;
        double extent_y = source.covered_height[i] * result.height[i] * divisor / options->height;
        double *expected = resample_plane(&source, i, result.width[i], result.height[i], extent_x, extent_y);
        double error = 0;
        for (uint32_t y = 0; y < result.height[i]; y++) {
            for (uint32_t x = 0; x < result.width[i]; x++) {
                double value = fmin(255, fmax(0, expected[y * result.width[i] + x]));
                double difference = result.samples[i][y * result.stride[i] + x] - value;
                error += difference * difference;
            }
        }
        error /= (double)result.width[i] * result.height[i];
        double decibels = error > 0 ? 10 * log10(255.0 * 255.0 / error) : 99;
        worst = decibels < worst ? decibels : worst;
        free(expected);
    }
    free_planes(&source);
    free_planes(&result);
    return worst;
}

/* Shrinks tools->file to planes and returns the largest difference of a sample from the formula's. */
static double compare_planes(Tools *tools, uint32_t count, const JpegShrinkOptions *options)
{
    DecodedPlanes source;
    Planes result;
    ImageInfo info;
    double worst = 0;
    read_planes(&tools->file, &source);
    assert_ok(jpeg_decoder_header(tools->decoder, tools->file.bytes, tools->file.length, true, &tools->info,
                                  &tools->error),
              &tools->error);
    assert_ok(jpeg_shrink_planes(tools->shrinker, tools->decoder, options, &tools->out, &tools->report,
                                 &tools->error),
              &tools->error);
    assert_ok(y4m_open(tools->out.bytes, tools->out.length, &info, &result, &tools->error), &tools->error);
    assert_int_equal(result.chroma, count == 1                                      ? PLANES_GRAY
                                    : options->subsampling == IMAGE_SUBSAMPLING_420 ? PLANES_420
                                                                                    : PLANES_444);
    const uint8_t *sample = result.bytes;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t divisor = i && result.chroma == PLANES_420 ? 2 : 1;
        const uint32_t width = (options->width + divisor - 1) / divisor,
                       height = (options->height + divisor - 1) / divisor;
        double *expected = resample_plane(&source, i, width, height,
                                          source.covered_width[i] * width * divisor / options->width,
                                          source.covered_height[i] * height * divisor / options->height);
        for (uint32_t k = 0; k < width * height; k++)
            worst = fmax(worst, fabs(*sample++ - fmin(255, fmax(0, expected[k]))));
        free(expected);
    }
    free_planes(&source);
    return worst;
}

static const ImageSubsampling subsamplings[] = {IMAGE_SUBSAMPLING_420, IMAGE_SUBSAMPLING_444};

static void check_kinds(Tools *tools, uint32_t margin, const uint32_t (*sizes)[4], size_t sizes_count,
                        double least)
{
    for (size_t k = 0; k < KINDS_COUNT; k++) {
        for (size_t s = 0; s < sizes_count; s++) {
            for (size_t i = 0; i < 2; i++) {
                JpegShrinkOptions options = {.width = sizes[s][2],
                                             .height = sizes[s][3],
                                             .margin = margin,
                                             .filter = RESAMPLE_LANCZOS,
                                             .quality = 100,
                                             .subsampling = subsamplings[i]};
                double decibels = compare(tools, &kinds[k], sizes[s][0], sizes[s][1], &options);
                if (decibels < least)
                    fail_msg("%s, %u x %u to %u x %u, %s: %.1f dB", kinds[k].name, sizes[s][0], sizes[s][1],
                             sizes[s][2], sizes[s][3], i ? "444" : "420", decibels);
            }
        }
    }
}

TEST_WITH(test_planes_are_resampled_as_the_formula_says, setup, teardown, Tools *tools)
{
    static const uint32_t sizes[][4] = {{101, 67, 40, 27}, {64, 48, 31, 24}, {33, 90, 32, 88},
                                        {50, 50, 7, 9},    {17, 300, 5, 91}, {300, 8, 111, 3}};
    check_kinds(tools, 0, sizes, sizeof sizes / sizeof sizes[0], 50);
}

/* Rounded after each of the two passes: at most a level and a little away. */
TEST_WITH(test_planes_are_given_as_they_are, setup, teardown, Tools *tools)
{
    for (size_t k = 0; k < KINDS_COUNT; k++) {
        for (size_t i = 0; i < 2; i++) {
            const JpegShrinkOptions options = {
                .width = 41, .height = 27, .filter = RESAMPLE_LANCZOS, .subsampling = subsamplings[i]};
            make(&kinds[k], 103, 67, &tools->file);
            const double worst = compare_planes(tools, kinds[k].channels, &options);
            if (worst > 1.5)
                fail_msg("%s, %s: %.2f levels away", kinds[k].name, i ? "444" : "420", worst);
        }
    }
}

/* Chroma of 4:2:0 that libjpeg would repeat in place of upsampling it becomes 4:4:4. */
TEST_WITH(test_planes_too_small_for_420_are_444, setup, teardown, Tools *tools)
{
    static const uint32_t sizes[][2] = {{4, 9}, {9, 1}, {5, 2}};
    static const PlanesChroma chromas[] = {PLANES_444, PLANES_444, PLANES_420};
    make(&kinds[4], 90, 90, &tools->file);
    for (size_t i = 0; i < 3; i++) {
        const JpegShrinkOptions options = {.width = sizes[i][0], .height = sizes[i][1]};
        Planes result;
        ImageInfo info;
        assert_ok(jpeg_decoder_header(tools->decoder, tools->file.bytes, tools->file.length, true,
                                      &tools->info, &tools->error),
                  &tools->error);
        assert_ok(jpeg_shrink_planes(tools->shrinker, tools->decoder, &options, &tools->out, &tools->report,
                                     &tools->error),
                  &tools->error);
        assert_ok(y4m_open(tools->out.bytes, tools->out.length, &info, &result, &tools->error),
                  &tools->error);
        assert_int_equal(result.chroma, chromas[i]);
    }
}

/* Decoded at 1/2 to 1/8: another low pass, but of the same picture, in the same place. */
TEST_WITH(test_scaled_decoding_keeps_the_picture, setup, teardown, Tools *tools)
{
    static const uint32_t sizes[][4] = {{203, 135, 40, 27}, {411, 300, 31, 24}, {333, 520, 16, 25}};
    check_kinds(tools, 2, sizes, sizeof sizes / sizeof sizes[0], 42);
}

/* One pixel, thin strips, hardly smaller, far smaller: right sizes, and (box) no output without a source. */
TEST_WITH(test_edges_of_one_and_extreme_shapes, setup, teardown, Tools *tools)
{
    static const uint32_t sizes[][4] = {{2, 2, 1, 1},       {3, 3, 1, 1},       {1, 1, 1, 1},
                                        {1, 900, 1, 300},   {900, 1, 450, 1},   {9, 2000, 5, 1111},
                                        {1999, 7, 571, 2},  {100, 100, 99, 99}, {481, 33, 479, 33},
                                        {2000, 1500, 3, 2}, {41, 41, 13, 13}};
    for (size_t k = 0; k < KINDS_COUNT; k++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            for (int filter = RESAMPLE_BOX; filter <= RESAMPLE_LANCZOS; filter++) {
                JpegShrinkOptions options = {.width = sizes[s][2],
                                             .height = sizes[s][3],
                                             .margin = 2 * (uint32_t)(filter % 2),
                                             .filter = (ResampleFilter)filter,
                                             .quality = 95,
                                             .subsampling = subsamplings[s % 2]};
                if (filter == RESAMPLE_BOX) /* the same file for all filters */
                    make(&kinds[k], sizes[s][0], sizes[s][1], &tools->file);
                assert_ok(shrink(tools, &options), &tools->error);
                Image image = {0};
                ImageInfo info;
                assert_ok(jpeg_decoder_header(tools->decoder, tools->out.bytes, tools->out.length, true,
                                              &info, &tools->error),
                          &tools->error);
                assert_int_equal(info.width, sizes[s][2]);
                assert_int_equal(info.height, sizes[s][3]);
                assert_ok(
                    jpeg_decoder_pixels(tools->decoder, info.channels, 0, 0, &image, &info, &tools->error),
                    &tools->error);
                assert_int_equal(info.quirks & IMAGE_QUIRK_WARNING, 0);
                image_free(&image);
            }
        }
    }
}

static void check_flat(Tools *tools, const Kind *kind, const JpegShrinkOptions *options)
{
    Image back = {0};
    ImageInfo info;
    assert_ok(shrink(tools, options), &tools->error);
    assert_ok(
        jpeg_decoder_header(tools->decoder, tools->out.bytes, tools->out.length, true, &info, &tools->error),
        &tools->error);
    assert_ok(jpeg_decoder_pixels(tools->decoder, 3, 0, 0, &back, &info, &tools->error), &tools->error);
    for (size_t i = 0; i < (size_t)back.width * back.height; i++) {
        const uint8_t *pixel = back.pixels + 3 * i;
        if (abs(pixel[0] - 0xD2) > 3 || abs(pixel[1] - 0x3C) > 3 || abs(pixel[2] - 0x64) > 3)
            fail_msg("%s, %s, width %u: pixel %zu is %u %u %u", kind->name,
                     resample_filter_names[options->filter], options->width, i, pixel[0], pixel[1], pixel[2]);
    }
    image_free(&back);
}

/* A flat colour stays that colour up to the last sample, whatever the edges: the weights are normalised
 * there, and an odd edge's halved sample, whose centre may lie beyond the last one of a 4:1:1 file, has
 * something to take. */
TEST_WITH(test_flat_colour_reaches_the_edges, setup, teardown, Tools *tools)
{
    static const uint8_t colour[3] = {0xD2, 0x3C, 0x64};
    enum { WIDTH = 24, HEIGHT = 37 }; /* 19 of 24: such a centre */
    for (size_t k = 2; k < KINDS_COUNT; k++) {
        uint8_t *flat = malloc((size_t)WIDTH * HEIGHT * 3);
        assert_non_null(flat);
        for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++)
            memcpy(flat + 3 * i, colour, sizeof colour);
        make_from(&kinds[k], WIDTH, HEIGHT, flat, &tools->file);
        for (int filter = RESAMPLE_BOX; filter <= RESAMPLE_LANCZOS; filter++) {
            for (uint32_t width = 17; width <= WIDTH; width++) {
                JpegShrinkOptions options = {.width = width,
                                             .height = 35,
                                             .filter = (ResampleFilter)filter,
                                             .quality = 100,
                                             .subsampling = subsamplings[width == 20]};
                check_flat(tools, &kinds[k], &options);
            }
        }
    }
}

TEST_WITH(test_every_kernel_writes_the_same_file, setup, teardown, Tools *tools)
{
    Buffer expected = {0};
    Random random;
    random_start(&random, 7, 0);
    for (unsigned i = 0; i < 60; i++) {
        uint32_t width = 2 + random_below(&random, 400), height = 2 + random_below(&random, 400);
        JpegShrinkOptions options = {.width = 1 + random_below(&random, width),
                                     .height = 1 + random_below(&random, height),
                                     .margin = 2,
                                     .filter = (ResampleFilter)random_below(&random, RESAMPLE_LANCZOS + 1),
                                     .quality = 90,
                                     .subsampling = subsamplings[i % 2]};
        make(&kinds[i % KINDS_COUNT], width, height, &tools->file);
        jpeg_shrinker_use_kernels(tools->shrinker, &resample_kernels_portable);
        assert_ok(shrink(tools, &options), &tools->error);
        expected.length = 0;
        assert_ok(buffer_append(&expected, tools->out.bytes, tools->out.length, &tools->error),
                  &tools->error);
        for (const ResampleKernels *const *kernels = resample_kernels_all; *kernels; kernels++) {
            if (!(*kernels)->supported())
                continue;
            jpeg_shrinker_use_kernels(tools->shrinker, *kernels);
            assert_ok(shrink(tools, &options), &tools->error);
            if (tools->out.length != expected.length ||
                memcmp(tools->out.bytes, expected.bytes, expected.length) != 0)
                fail_msg("%s: %u x %u to %u x %u differs", (*kernels)->name, width, height, options.width,
                         options.height);
        }
    }
    buffer_free(&expected);
}

TEST_WITH(test_truncated_file_is_corrupt_and_the_next_is_fine, setup, teardown, Tools *tools)
{
    JpegShrinkOptions options = {
        .width = 30, .height = 20, .margin = 2, .filter = RESAMPLE_LANCZOS, .quality = 90};
    for (size_t k = 0; k < KINDS_COUNT; k++) {
        make(&kinds[k], 151, 101, &tools->file);
        size_t whole = tools->file.length;
        for (unsigned part = 1; part < 16; part++) {
            tools->file.length = whole * part / 16;
            FshStatus status = shrink(tools, &options);
            if (status != FSH_ERR_CORRUPT)
                fail_msg("%s, %u/16 of it: status %d", kinds[k].name, part, status);
        }
        tools->file.length = whole - 2; /* no end marker */
        assert_int_equal(shrink(tools, &options), FSH_ERR_CORRUPT);
        tools->file.length = whole;
        assert_ok(shrink(tools, &options), &tools->error);
    }
}

/* Whatever is in the file: an error or a picture, no access outside (under ASan). */
TEST_WITH(test_damaged_bytes_are_survived, setup, teardown, Tools *tools)
{
    Random random;
    random_start(&random, 8, 0);
    unsigned refused = 0;
    for (unsigned i = 0; i < 40 * KINDS_COUNT; i++) {
        if (i % 40 == 0)
            make(&kinds[i / 40], 97, 61, &tools->file);
        size_t at = random_below(&random, (uint32_t)tools->file.length);
        uint8_t kept = tools->file.bytes[at];
        tools->file.bytes[at] ^= (uint8_t)(1 + random_below(&random, 255));
        FshStatus status = jpeg_decoder_header(tools->decoder, tools->file.bytes, tools->file.length, false,
                                               &tools->info, &tools->error);
        if (!status && (uint64_t)tools->info.width * tools->info.height < 1 << 22) {
            JpegShrinkOptions options = {
                .width = 20, .height = 13, .margin = 2, .filter = RESAMPLE_LANCZOS, .quality = 90};
            status = jpeg_shrink(tools->shrinker, tools->decoder, tools->encoder, &options, &tools->out,
                                 &tools->report, &tools->error);
        }
        refused += status != FSH_OK;
        tools->file.bytes[at] = kept;
    }
    assert_true(refused > 20);
}

TEST_WITH(test_files_without_such_planes_are_told, setup, teardown, Tools *tools)
{
    JpegShrinkOptions options = {.width = 8, .height = 8, .filter = RESAMPLE_LANCZOS, .quality = 90};
    uint8_t *pixels = make_pixels(16, 16, 4);
    static const MakeColours colours[] = {MAKE_CMYK, MAKE_YCCK};
    for (size_t i = 0; i < 2; i++) {
        make_jpeg(&(MakeJpeg){.width = 16, .height = 16, .colours = colours[i], .pixels = pixels},
                  &tools->file);
        assert_int_equal(shrink(tools, &options), FSH_ERR_UNSUPPORTED);
        assert_int_equal(jpeg_decoder_planes_count(tools->decoder), 0);
    }
    free(pixels);
    make(&kinds[2], 16, 16, &tools->file);
    assert_ok(shrink(tools, &options), &tools->error);
    assert_int_equal(jpeg_shrink(tools->shrinker, tools->decoder, tools->encoder, &options, &tools->out,
                                 &tools->report, &tools->error),
                     FSH_ERR_UNSUPPORTED); /* its header is used up */
    options.width = 0;
    assert_int_equal(shrink(tools, &options), FSH_ERR_MISMATCH);
}

TEST_WITH(test_scan_bomb_is_refused, setup, teardown, Tools *tools)
{
    uint8_t *pixels = make_pixels(64, 64, 1);
    make_jpeg(
        &(MakeJpeg){.width = 64, .height = 64, .colours = MAKE_GRAY, .pixels = pixels, .scan_bomb = true},
        &tools->file);
    free(pixels);
    JpegShrinkOptions options = {.width = 8, .height = 8, .filter = RESAMPLE_LANCZOS, .quality = 90};
    assert_int_equal(shrink(tools, &options), FSH_ERR_CORRUPT);
    assert_contains(tools->error.message, "bomb");
}

TEST_WITH(test_metadata_goes_along, setup, teardown, Tools *tools)
{
    uint8_t *pixels = make_pixels(64, 48, 3);
    make_jpeg(&(MakeJpeg){.width = 64, .height = 48, .colours = MAKE_RGB, .pixels = pixels, .orientation = 6},
              &tools->file);
    free(pixels);
    ImageMetadata metadata;
    assert_ok(jpeg_decoder_header(tools->decoder, tools->file.bytes, tools->file.length, false, &tools->info,
                                  &tools->error),
              &tools->error);
    jpeg_decoder_metadata(tools->decoder, &metadata);
    assert_non_null(metadata.exif.bytes);
    metadata.xmp = (ImageBlock){"<x:xmpmeta/>", 12};
    JpegShrinkOptions options = {
        .width = 32, .height = 24, .filter = RESAMPLE_LANCZOS, .quality = 90, .metadata = &metadata};
    assert_ok(jpeg_shrink(tools->shrinker, tools->decoder, tools->encoder, &options, &tools->out,
                          &tools->report, &tools->error),
              &tools->error);
    uint8_t exif[64];
    size_t exif_length = metadata.exif.length;
    assert_true(exif_length <= sizeof exif);
    memcpy(exif, metadata.exif.bytes, exif_length);
    assert_ok(jpeg_decoder_header(tools->decoder, tools->out.bytes, tools->out.length, true, &tools->info,
                                  &tools->error),
              &tools->error);
    assert_int_equal(tools->info.orientation, 6);
    jpeg_decoder_metadata(tools->decoder, &metadata);
    assert_int_equal(metadata.exif.length, exif_length);
    assert_memory_equal(metadata.exif.bytes, exif, exif_length);
    assert_int_equal(metadata.xmp.length, 12);
    assert_memory_equal(metadata.xmp.bytes, "<x:xmpmeta/>", 12);
    assert_null(metadata.icc.bytes);
}
