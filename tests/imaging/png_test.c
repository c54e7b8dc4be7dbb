/* PNG without libvips: the pixels are libvips' own, and what libpng would speak of is left to libvips. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/walk.h"
#include "imaging/image_plugin.h"
#include "imaging/png_decode.h"
#include "imaging/png_filter.h"
#include "tests/imaging/decode_tools.h"

static void fill_noise(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(seed >> 56);
    }
}

/* ---- filters ---- */

enum { ROW_PIXELS = 37, ROW_BYTES_MAX = ROW_PIXELS * 8 };

/* Byte by byte, by several bytes at once, and in place; what a filter has done is undone. */
TEST(test_filters_are_undone_as_by_the_plain_function)
{
    static const size_t pixel_bytes[] = {1, 2, 3, 4, 6, 8};
    uint8_t rows[2][ROW_BYTES_MAX + PNG_FILTER_SLACK], filtered[ROW_BYTES_MAX + PNG_FILTER_SLACK];
    uint8_t plain[ROW_BYTES_MAX + PNG_FILTER_SLACK], fast[ROW_BYTES_MAX + PNG_FILTER_SLACK];
    for (uint32_t round = 0; round < 40; round++) {
        fill_noise(rows[0], sizeof rows[0], round);
        fill_noise(rows[1], sizeof rows[1], round + 100);
        for (size_t i = 0; i < sizeof rows[0] && round % 2; i++) /* extremes, where sums pass 255 */
            rows[1][i] = rows[1][i] < 128 ? 0 : 255;
        for (size_t i = 0; i < sizeof pixel_bytes / sizeof pixel_bytes[0]; i++) {
            const size_t length = ROW_PIXELS * pixel_bytes[i];
            for (int filter = 0; filter < 2 * PNG_FILTERS_COUNT; filter++) {
                const uint8_t *above = filter % 2 ? rows[0] : NULL;
                const PngFilter kind = (PngFilter)(filter / 2);
                png_unfilter_plain(kind, rows[1], above, length, pixel_bytes[i], plain);
                png_unfilter(kind, rows[1], above, length, pixel_bytes[i], fast);
                assert_memory_equal(fast, plain, length);
                memcpy(fast, rows[1], sizeof fast);
                png_unfilter(kind, fast, above, length, pixel_bytes[i], fast);
                assert_memory_equal(fast, plain, length);
                png_filter(kind, rows[1], above, length, pixel_bytes[i], filtered);
                png_unfilter_plain(kind, filtered, above, length, pixel_bytes[i], plain);
                assert_memory_equal(plain, rows[1], length);
            }
        }
    }
}

TEST(test_best_filter_leaves_the_fewest_different_bytes)
{
    enum { LENGTH = 300 };
    uint8_t row[LENGTH], above[LENGTH], trial[LENGTH], to[LENGTH];
    fill_noise(above, LENGTH, 3);
    memcpy(row, above, LENGTH);
    assert_int_equal(png_filter_best(row, above, LENGTH, 3, trial, to), PNG_FILTER_UP);
    for (size_t i = 0; i < LENGTH; i++)
        assert_int_equal(to[i], 0);
    for (size_t i = 0; i < LENGTH; i++)
        row[i] = (uint8_t)(i * 5);
    assert_int_equal(png_filter_best(row, above, LENGTH, 3, trial, to), PNG_FILTER_SUB);
    assert_int_equal(to[LENGTH - 1], 15);
    memset(row, 9, LENGTH);
    assert_int_equal(png_filter_best(row, above, LENGTH, 3, trial, to), PNG_FILTER_NONE);
    assert_memory_equal(to, row, LENGTH);
}

/* ---- against libvips ---- */

typedef struct Peers {
    PngDecoder *png;
    const ImagePlugin *plugin;
    Image here, there;
    ImageInfo info, info_there;
    FshError error;
} Peers;

static void peers_open(Peers *peers)
{
    *peers = (Peers){0};
    assert_ok(png_decoder_new(&peers->png, &peers->error), &peers->error);
    need_libvips();
    assert_ok(image_plugin_load(&peers->plugin, &peers->error), &peers->error);
}

static void peers_close(Peers *peers)
{
    png_decoder_free(&peers->png);
    assert_null(peers->png);
    image_free(&peers->here);
    image_free(&peers->there);
}

/* Reads the file here and, where that succeeds, by libvips, which must agree in all. Returns who reads what,
 * and PNG_BY_LIBVIPS for a file whose pixels libvips has to judge. */
static PngReader read_by_both(Peers *peers, const Buffer *file)
{
    bool done = false;
    uint8_t *bytes = malloc(file->length); /* exactly as long, for ASan */
    assert_non_null(bytes);
    memcpy(bytes, file->bytes, file->length);
    const PngReader reader = png_decoder_header(peers->png, bytes, file->length, &peers->info);
    if (reader != PNG_BY_LIBVIPS && load_be32(bytes + 16) < 5000 && load_be32(bytes + 20) < 5000)
        assert_ok(png_decoder_pixels(peers->png, &peers->here, &done, &peers->error), &peers->error);
    if (reader == PNG_WHOLLY_HERE) {
        assert_ok(peers->plugin->probe(bytes, file->length, IMAGE_PNG, &peers->info_there, &peers->error),
                  &peers->error);
        assert_memory_equal(&peers->info, &peers->info_there, sizeof peers->info);
    }
    if (done) {
        assert_ok(peers->plugin->decode(bytes, file->length, IMAGE_PNG, &(ImageDecodeOptions){0},
                                        &peers->there, &peers->info_there, NULL, NULL, &peers->error),
                  &peers->error);
        if (reader == PNG_WHOLLY_HERE)
            assert_memory_equal(&peers->info, &peers->info_there, sizeof peers->info);
        assert_int_equal(peers->here.width, peers->there.width);
        assert_int_equal(peers->here.height, peers->there.height);
        assert_int_equal(peers->here.channels, peers->there.channels);
        assert_memory_equal(peers->here.pixels, peers->there.pixels,
                            (size_t)peers->here.width * peers->here.height * peers->here.channels);
    }
    free(bytes);
    return done ? reader : PNG_BY_LIBVIPS;
}

typedef struct Kind {
    uint8_t colour, depth;
} Kind;

static const Kind kinds[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                             {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
enum { KINDS = sizeof kinds / sizeof kinds[0], EDGE = 23 };

/* Writes a file of noise; a palette has all its colours, the first of them transparent in part. */
static void make_kind(const Kind *kind, Buffer *file)
{
    uint8_t rows[EDGE * EDGE * 8], palette[256 * 3], alpha[100];
    const size_t colours = kind->colour == 3 ? (size_t)1 << kind->depth : 0;
    fill_noise(rows, sizeof rows, kind->colour * 20u + kind->depth);
    fill_noise(palette, sizeof palette, 5);
    fill_noise(alpha, sizeof alpha, 6);
    make_png(&(MakePng){.width = EDGE,
                        .height = EDGE,
                        .bit_depth = kind->depth,
                        .colour_type = kind->colour,
                        .rows = rows,
                        .palette = colours ? palette : NULL,
                        .palette_count = colours,
                        .transparency = colours ? alpha : NULL,
                        .transparency_length = colours < sizeof alpha ? colours : sizeof alpha},
             file);
}

TEST(test_all_kinds_are_read_as_libvips_reads_them)
{
    Peers peers;
    Buffer file = {0};
    peers_open(&peers);
    for (size_t i = 0; i < KINDS; i++) {
        make_kind(&kinds[i], &file);
        assert_int_equal(read_by_both(&peers, &file), PNG_WHOLLY_HERE);
    }
    buffer_free(&file);
    peers_close(&peers);
}

/* Each of the 65,536 values. */
TEST(test_16_bits_are_rounded_as_libvips_rounds_them)
{
    Peers peers;
    Buffer file = {0};
    uint8_t *rows = malloc((size_t)1 << 17);
    assert_non_null(rows);
    for (size_t i = 0; i < (size_t)1 << 16; i++) {
        rows[2 * i] = (uint8_t)(i >> 8);
        rows[2 * i + 1] = (uint8_t)i;
    }
    peers_open(&peers);
    make_png(&(MakePng){.width = 256, .height = 256, .bit_depth = 16, .colour_type = 0, .rows = rows}, &file);
    assert_int_equal(read_by_both(&peers, &file), PNG_WHOLLY_HERE);
    free(rows);
    buffer_free(&file);
    peers_close(&peers);
}

/* A chunk of each type that is known, and of others; where libpng would speak, libvips is asked. */
TEST(test_chunks_that_libpng_speaks_of_are_left_to_libvips)
{
    static const struct {
        const char *type, *bytes;
        size_t length;
        const char *before;
        PngReader reader;
    } rows[] = {
#define ROW(type, bytes, before, reader) {type, bytes, sizeof(bytes) - 1, before, reader}
        ROW("gAMA", "\0\0\xb1\x8f", "IDAT", PNG_WHOLLY_HERE),
        ROW("gAMA", "\0\0\xb1\x90", "IDAT", PNG_PIXELS_HERE),
        ROW("gAMA", "\0\0\xb1", "IDAT", PNG_PIXELS_HERE),
        ROW("gAMA", "\0\0\xb1\x8f", "IEND", PNG_BY_LIBVIPS),
        ROW("cHRM",
            "\0\0\x7a\x26\0\0\x80\x84\0\0\xfa\0\0\0\x80\xe8\0\0\x75\x30\0\0\xea\x60\0\0\x3a\x98\0\0\x17\x70",
            "IDAT", PNG_WHOLLY_HERE),
        ROW("cHRM",
            "\0\0\x7a\x26\0\0\x80\x84\0\0\xfa\0\0\0\x80\xe8\0\0\x75\x30\0\0\xea\x60\0\0\x3a\x98\0\0\x17\x71",
            "IDAT", PNG_PIXELS_HERE),
        ROW("sRGB", "\3", "IDAT", PNG_WHOLLY_HERE),
        ROW("sRGB", "\4", "IDAT", PNG_PIXELS_HERE),
        ROW("sBIT", "\5\6\7", "IDAT", PNG_WHOLLY_HERE),
        ROW("sBIT", "\5\0\7", "IDAT", PNG_PIXELS_HERE),
        ROW("sBIT", "\5\x09\7", "IDAT", PNG_PIXELS_HERE),
        ROW("bKGD", "\0\1\0\2\0\3", "IDAT", PNG_WHOLLY_HERE),
        ROW("bKGD", "\0\1\1\2\0\3", "IDAT", PNG_PIXELS_HERE),
        ROW("pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", "IDAT", PNG_WHOLLY_HERE),
        ROW("pHYs", "\0\0\x0b\x13\0\0\x0b\x13", "IDAT", PNG_PIXELS_HERE),
        ROW("tIME", "\x07\xea\1\1\0\0\0", "IDAT", PNG_WHOLLY_HERE),
        ROW("tIME", "\x07\xea\1\1\0\0\0", "IEND", PNG_WHOLLY_HERE),
        ROW("tIME", "\x07\xea\x0d\1\0\0\0", "IDAT", PNG_PIXELS_HERE),
        ROW("tIME", "\x07\xea\x0d\1\0\0\0", "IEND", PNG_BY_LIBVIPS),
        ROW("tEXt", "Software\0me", "IDAT", PNG_WHOLLY_HERE),
        ROW("tEXt", "Software\0me", "IEND", PNG_WHOLLY_HERE),
        ROW("tEXt", "XML:com.adobe.xmp\0<x/>", "IDAT", PNG_PIXELS_HERE),
        ROW("tEXt", "no end", "IDAT", PNG_PIXELS_HERE),
        ROW("zTXt", "Software\0\0...", "IDAT", PNG_PIXELS_HERE),
        ROW("iCCP", "ICC\0\0...", "IDAT", PNG_PIXELS_HERE),
        ROW("eXIf", "II*\0\x08\0\0\0\0\0\0\0\0\0", "IDAT", PNG_PIXELS_HERE),
        ROW("acTL", "\0\0\0\1\0\0\0\0", "IDAT", PNG_PIXELS_HERE),
        ROW("cICP", "\1\x0d\0\1", "IDAT", PNG_PIXELS_HERE),
        ROW("PLTE", "\1\2\3", "IDAT", PNG_WHOLLY_HERE), /* a suggestion */
        ROW("PLTE", "\1\2", "IDAT", PNG_BY_LIBVIPS),
        ROW("tRNS", "\0\1\0\2\0\3", "IDAT", PNG_BY_LIBVIPS),
        ROW("IDAT", "", "IDAT", PNG_WHOLLY_HERE),
        ROW("IDAT", "x", "IEND", PNG_BY_LIBVIPS),
        ROW("ABCD", "x", "IDAT", PNG_BY_LIBVIPS),
        ROW("abCD", "x", "IDAT", PNG_PIXELS_HERE),
        ROW("4bCD", "x", "IDAT", PNG_BY_LIBVIPS),
#undef ROW
    };
    Peers peers;
    Buffer file = {0};
    peers_open(&peers);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_kind(&(Kind){2, 8}, &file);
        make_png_chunk(&file, rows[i].before, rows[i].type, rows[i].bytes, rows[i].length);
        if (read_by_both(&peers, &file) != rows[i].reader)
            fail_msg("row %zu: a chunk %s", i, rows[i].type);
        if (rows[i].reader != PNG_WHOLLY_HERE || strcmp(rows[i].type, "tEXt") == 0 || rows[i].type[0] == 'I')
            continue;
        make_png_chunk(&file, rows[i].before, rows[i].type, rows[i].bytes, rows[i].length); /* once more */
        assert_int_not_equal(read_by_both(&peers, &file), PNG_WHOLLY_HERE);
    }
    buffer_free(&file);
    peers_close(&peers);
}

TEST(test_files_cut_short_or_with_wrong_sums_are_left_to_libvips)
{
    Peers peers;
    Buffer file = {0};
    peers_open(&peers);
    make_kind(&(Kind){2, 8}, &file);
    const size_t whole = file.length;
    for (file.length = 8; file.length < whole; file.length++)
        assert_int_equal(read_by_both(&peers, &file), PNG_BY_LIBVIPS);
    for (size_t at = 8; at < whole; at += 7) {
        make_kind(&(Kind){2, 8}, &file);
        file.bytes[at] ^= 4;
        assert_int_equal(read_by_both(&peers, &file), PNG_BY_LIBVIPS);
    }
    buffer_free(&file);
    peers_close(&peers);
}

/* Whatever is read here after bytes were changed and checksums made right again, libvips reads alike. */
TEST(test_changed_files_are_read_alike_or_not_at_all)
{
    enum { ROUNDS = 4000 };
    Peers peers;
    Buffer file = {0};
    unsigned read_count = 0;
    uint64_t state = 1;
    peers_open(&peers);
    for (size_t round = 0; round < ROUNDS; round++) {
        make_kind(&kinds[round % KINDS], &file);
        if (round % 3 == 0)
            make_png_chunk(&file, "IDAT", "pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
        if (round % 3 == 1)
            make_png_chunk(&file, "IDAT", "tEXt", "a\0b", 3);
        for (size_t change = 0; change <= round % 2; change++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const size_t area = state >> 60 < 12 ? 120 : file.length; /* mostly in the chunks */
            file.bytes[8 + (state >> 33) % ((area < file.length ? area : file.length) - 8)] ^=
                (uint8_t)(1u << (state >> 57 & 7));
        }
        make_png_sums(&file);
        read_count += read_by_both(&peers, &file) != PNG_BY_LIBVIPS;
    }
    assert_in_range(read_count, ROUNDS / 100, ROUNDS / 2);
    buffer_free(&file);
    peers_close(&peers);
}

/* PngSuite and what else lies there. */
TEST(test_odd_files_are_read_as_libvips_reads_them)
{
    const char *data = getenv("FSHARD_DATA");
    Peers peers;
    FileList list = {0};
    Buffer file = {0};
    unsigned counts[PNG_WHOLLY_HERE + 1] = {0};
    if (!data) {
        print_message("skipped: no FSHARD_DATA\n");
        skip();
    }
    peers_open(&peers);
    assert_ok(walk_files(data, 1, &list, &peers.error), &peers.error);
    for (uint64_t i = 0; i < list.count; i++) {
        char path[1024];
        if (strncmp(list.files[i].path, "odd", 3) != 0)
            continue;
        assert_ok(file_join(path, sizeof path, data, list.files[i].path, &peers.error), &peers.error);
        assert_ok(file_read(path, &file, &peers.error), &peers.error);
        if (image_sniff(file.bytes, file.length) == IMAGE_PNG)
            counts[read_by_both(&peers, &file)]++;
    }
    assert_true(counts[PNG_WHOLLY_HERE] >= 30);
    assert_true(counts[PNG_PIXELS_HERE] >= 5);
    file_list_free(&list);
    buffer_free(&file);
    peers_close(&peers);
}
