/* Our reader of Huffman codes against libjpeg's own, coefficient by coefficient, and what comes of damaged
 * files by our decoder against libjpeg alone. */
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "imaging/decode.h"
#include "imaging/jpeg_decode.h"
#include "tests/imaging/jpeg_both.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"

typedef struct Tools {
    JpegHuffman *huffman;
    JpegDecoder *decoder;
    Buffer file, changed;
    JpegReading alone, ours;
    Image image;
    Random random;
} Tools;

static int setup(void **state)
{
    FshError error = {0};
    Tools *tools = calloc(1, sizeof *tools);
    *state = tools;
    if (!tools)
        return -1;
    random_start(&tools->random, 16, 0);
    return jpeg_huffman_new(&tools->huffman, &error) || jpeg_decoder_new(&tools->decoder, &error);
}

static int teardown(void **state)
{
    Tools *tools = *state;
    jpeg_huffman_free(&tools->huffman);
    jpeg_decoder_free(&tools->decoder);
    buffer_free(&tools->file);
    buffer_free(&tools->changed);
    buffer_free(&tools->alone.values);
    buffer_free(&tools->ours.values);
    image_free(&tools->image);
    free(tools);
    return 0;
}

/* ---- files ---- */

typedef struct Kind {
    int channels;             /* 1, 3, 4 */
    int horizontal, vertical; /* the first component's sampling factors */
    unsigned restart;         /* in MCUs; 0: none */
    bool optimised;           /* Huffman tables made for the file */
} Kind;

static const Kind kinds[] = {
    {1, 1, 1, 0, false}, {1, 2, 2, 0, true},  {3, 1, 1, 0, false}, {3, 2, 1, 0, true},
    {3, 2, 2, 0, false}, {3, 2, 2, 0, true},  {3, 1, 2, 3, true},  {3, 4, 1, 0, true},
    {3, 2, 2, 1, true},  {3, 1, 1, 7, false}, {4, 1, 1, 0, true},  {4, 2, 2, 2, false},
};
enum { KINDS_COUNT = sizeof kinds / sizeof kinds[0] };

/* Compresses noise of that many bits over a smooth picture. */
static void make(Tools *tools, const Kind *kind, uint32_t width, uint32_t height, int quality, unsigned noise)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    uint8_t *pixels = make_pixels(width, height, (uint32_t)kind->channels);
    for (size_t i = 0; i < (size_t)width * height * (size_t)kind->channels; i++)
        pixels[i] ^= (uint8_t)(random_u32(&tools->random) & ((1U << noise) - 1));
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &length);
    cinfo.image_width = width;
    cinfo.image_height = height;
    cinfo.input_components = kind->channels;
    cinfo.in_color_space = kind->channels == 1 ? JCS_GRAYSCALE : kind->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, quality, TRUE);
    cinfo.comp_info[0].h_samp_factor = kind->horizontal;
    cinfo.comp_info[0].v_samp_factor = kind->vertical;
    cinfo.restart_interval = kind->restart;
    cinfo.optimize_coding = kind->optimised;
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < height) {
        JSAMPROW row = pixels + (size_t)cinfo.next_scanline * width * (size_t)kind->channels;
        (void)jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    tools->file.length = 0;
    assert_int_equal(buffer_append(&tools->file, bytes, length, NULL), FSH_OK);
    free(bytes);
    free(pixels);
}

/* Fills a block with coefficients of any size at the wanted share of its places, in 1/256. */
static void fill_block(Random *random, unsigned share, JCOEF *block)
{
    block[0] = (JCOEF)((int)(random_u32(random) % 2047) - 1023);
    for (int k = 1; k < DCTSIZE2; k++) {
        const unsigned size = 1 + random_u32(random) % 10;
        const int value = (int)(random_u32(random) % (1U << size)) * (random_u32(random) % 2 ? 1 : -1);
        block[k] = random_u32(random) % 256 < share ? (JCOEF)value : 0;
    }
    if (random_u32(random) % 4 == 0)
        block[DCTSIZE2 - 1] = 1; /* the block ends without a code for its end */
}

/* Writes an image of random coefficients: every size, long runs of zeros, blocks that are full. */
static void make_of_coefficients(Tools *tools, uint32_t blocks_across, uint32_t blocks_down, bool optimised)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &length);
    cinfo.image_width = blocks_across * DCTSIZE;
    cinfo.image_height = blocks_down * DCTSIZE;
    cinfo.input_components = 1;
    cinfo.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&cinfo);
    cinfo.optimize_coding = optimised;
#if JPEG_LIB_VERSION >= 70
    cinfo.jpeg_width = cinfo.image_width;
    cinfo.jpeg_height = cinfo.image_height;
    cinfo.min_DCT_h_scaled_size = cinfo.min_DCT_v_scaled_size = DCTSIZE;
#endif
    jvirt_barray_ptr array = cinfo.mem->request_virt_barray((j_common_ptr)&cinfo, JPOOL_IMAGE, TRUE,
                                                            blocks_across, blocks_down, 1);
    jpeg_write_coefficients(&cinfo, &array);
    for (JDIMENSION y = 0; y < blocks_down; y++) {
        JBLOCKARRAY rows = cinfo.mem->access_virt_barray((j_common_ptr)&cinfo, array, y, 1, TRUE);
        for (JDIMENSION x = 0; x < blocks_across; x++)
            fill_block(&tools->random, 1U << (x + y) % 9, rows[0][x]);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    tools->file.length = 0;
    assert_int_equal(buffer_append(&tools->file, bytes, length, NULL), FSH_OK);
    free(bytes);
}

/* ---- files in order ---- */

/* Reads the file both ways, and expects that ours reads it to the end, with the same values. */
static void expect_same(Tools *tools, unsigned eighths)
{
    const JpegWanted wanted = {.eighths = eighths, .strict = true};
    jpeg_read_both_ways(&wanted, tools->file.bytes, tools->file.length, NULL, &tools->alone);
    jpeg_read_both_ways(&wanted, tools->file.bytes, tools->file.length, tools->huffman, &tools->ours);
    assert_int_equal(tools->alone.status, FSH_OK);
    assert_true(tools->ours.attached);
    assert_false(tools->ours.gave_up);
    assert_true(tools->alone.values.length > 0);
    assert_true(jpeg_readings_equal(&tools->alone, &tools->ours));
}

TEST_WITH(test_coefficients_are_those_of_libjpeg, setup, teardown, Tools *tools)
{
    static const uint32_t sizes[][2] = {{1, 1}, {8, 8}, {17, 33}, {123, 77}};
    static const int qualities[] = {1, 50, 90, 100};
    for (size_t kind = 0; kind < KINDS_COUNT; kind++) {
        for (size_t size = 0; size < 4; size++) {
            for (size_t i = 0; i < 4; i++) {
                make(tools, &kinds[kind], sizes[size][0], sizes[size][1], qualities[i], 2 * (unsigned)i + 1);
                expect_same(tools, 0);
            }
        }
    }
}

TEST_WITH(test_any_coefficients_are_read, setup, teardown, Tools *tools)
{
    for (uint32_t i = 0; i < 40; i++) {
        make_of_coefficients(tools, 1 + i % 13, 1 + i % 7, i % 2);
        expect_same(tools, 0);
        expect_same(tools, 1); /* passes all but the first of each block */
    }
}

TEST_WITH(test_pixels_at_every_scale_are_those_of_libjpeg, setup, teardown, Tools *tools)
{
    for (size_t kind = 0; kind < KINDS_COUNT; kind++) {
        make(tools, &kinds[kind], 131, 90, 92, 5);
        for (unsigned eighths = 1; eighths <= 8; eighths *= 2)
            expect_same(tools, eighths);
    }
}

/* ---- damaged files ---- */

/* Decodes tools->changed by our decoder and by libjpeg alone, which must end alike. Returns whether it
 * could be decoded. */
static bool expect_like_libjpeg(Tools *tools, bool strict)
{
    const JpegWanted wanted = {.eighths = 8, .strict = strict};
    const Buffer *file = &tools->changed;
    ImageInfo info;
    FshError error = {0};
    jpeg_read_both_ways(&wanted, file->bytes, file->length, NULL, &tools->alone);
    FshStatus status = jpeg_decoder_header(tools->decoder, file->bytes, file->length, strict, &info, &error);
    if (!status)
        status = jpeg_decoder_pixels(tools->decoder, info.channels, 0, 0, &tools->image, &info, &error);
    assert_int_equal(status, tools->alone.status);
    assert_string_equal(error.message, tools->alone.error.message);
    if (status)
        return false;
    assert_int_equal((info.quirks & IMAGE_QUIRK_WARNING) != 0, tools->alone.warnings_count != 0);
    const size_t length = (size_t)tools->image.width * tools->image.height * tools->image.channels;
    assert_int_equal(length, tools->alone.values.length);
    assert_memory_equal(tools->image.pixels, tools->alone.values.bytes, length);
    return true;
}

/* Decodes the planes of tools->changed, gray, by our decoder, and by libjpeg alone as pixels. */
static void expect_planes_like_libjpeg(Tools *tools)
{
    static const uint32_t full[JPEG_PLANES_MAX] = {8, 8, 8};
    const JpegWanted wanted = {.eighths = 8};
    const Buffer *file = &tools->changed;
    ImageInfo info;
    FshError error = {0};
    JpegPlane plane;
    uint32_t quirks = 0;
    jpeg_read_both_ways(&wanted, file->bytes, file->length, NULL, &tools->alone);
    if (tools->alone.status)
        return;
    assert_int_equal(jpeg_decoder_header(tools->decoder, file->bytes, file->length, false, &info, &error),
                     FSH_OK);
    assert_int_equal(jpeg_decoder_planes_count(tools->decoder), 1);
    jpeg_decoder_plane(tools->decoder, 0, 8, &plane);
    uint8_t *rows = calloc(plane.group_rows, plane.row_bytes);
    assert_non_null(rows);
    assert_int_equal(jpeg_decoder_planes_start(tools->decoder, full, false, &error), FSH_OK);
    for (uint32_t group = 0; group < jpeg_decoder_groups_count(tools->decoder); group++) {
        uint8_t *const to[JPEG_PLANES_MAX] = {rows};
        const size_t strides[JPEG_PLANES_MAX] = {plane.row_bytes};
        assert_int_equal(jpeg_decoder_planes_next(tools->decoder, to, strides, &quirks, &error), FSH_OK);
        for (uint32_t y = 0; y < plane.group_rows && group * plane.group_rows + y < plane.height; y++)
            assert_memory_equal(rows + y * plane.row_bytes,
                                tools->alone.values.bytes +
                                    (size_t)(group * plane.group_rows + y) * plane.width,
                                plane.width);
    }
    assert_int_equal(quirks != 0, tools->alone.warnings_count != 0);
    free(rows);
}

static void copy_file(Tools *tools, size_t length)
{
    tools->changed.length = 0;
    assert_int_equal(buffer_append(&tools->changed, tools->file.bytes, length, NULL), FSH_OK);
}

/* Returns where the codes begin: after the header of the scan. */
static size_t codes_start(const Buffer *file)
{
    size_t at = 2;
    while (file->bytes[at + 1] != 0xDA)
        at += 2 + ((size_t)file->bytes[at + 2] << 8 | file->bytes[at + 3]);
    return at + 2 + ((size_t)file->bytes[at + 2] << 8 | file->bytes[at + 3]);
}

TEST_WITH(test_damage_is_told_as_by_libjpeg, setup, teardown, Tools *tools)
{
    unsigned decoded = 0, refused = 0;
    for (size_t kind = 0; kind < KINDS_COUNT; kind++) {
        if (kinds[kind].channels == 4)
            continue;
        make(tools, &kinds[kind], 90, 70, 90, 4);
        const size_t start = codes_start(&tools->file);
        for (int i = 0; i < 120; i++) {
            copy_file(tools, tools->file.length);
            const size_t at = start + random_u32(&tools->random) % (tools->file.length - start);
            if (i % 3 == 0)
                tools->changed.length = at;
            else if (i % 3 == 1)
                tools->changed.bytes[at] ^= (uint8_t)(1U << random_u32(&tools->random) % 8);
            else
                tools->changed.bytes[at] = 0xFF;
            refused += !expect_like_libjpeg(tools, true);
            decoded += expect_like_libjpeg(tools, false);
            if (kinds[kind].channels == 1)
                expect_planes_like_libjpeg(tools);
        }
    }
    assert_true(decoded > 100 && refused > 100); /* both were there to be seen */
}

/* Puts bytes into a copy of the file, at a place. */
static void insert(Tools *tools, size_t at, const void *bytes, size_t length)
{
    copy_file(tools, at);
    assert_int_equal(buffer_append(&tools->changed, bytes, length, NULL), FSH_OK);
    assert_int_equal(buffer_append(&tools->changed, tools->file.bytes + at, tools->file.length - at, NULL),
                     FSH_OK);
}

TEST_WITH(test_what_lies_between_markers_is_left_to_libjpeg, setup, teardown, Tools *tools)
{
    static const Kind kind = {3, 2, 2, 4, false};
    make(tools, &kind, 160, 160, 90, 3);
    size_t restart = codes_start(&tools->file);
    while (tools->file.bytes[restart] != 0xFF || (tools->file.bytes[restart + 1] & 0xF8) != 0xD0)
        restart++;
    const size_t end = tools->file.length - 2; /* the marker of its end */
    insert(tools, restart, "\xFF", 1);         /* bytes of filling are allowed */
    assert_true(expect_like_libjpeg(tools, true));
    insert(tools, end, "\xFF\xFF", 2);
    assert_true(expect_like_libjpeg(tools, true));
    insert(tools, end, "between", 7);
    (void)expect_like_libjpeg(tools, true);
    assert_true(expect_like_libjpeg(tools, false));
    insert(tools, restart, "between", 7);
    (void)expect_like_libjpeg(tools, true);
    assert_true(expect_like_libjpeg(tools, false));
    copy_file(tools, tools->file.length);
    tools->changed.bytes[restart + 1] ^= 3; /* another number */
    assert_false(expect_like_libjpeg(tools, true));
    assert_true(expect_like_libjpeg(tools, false));
}
