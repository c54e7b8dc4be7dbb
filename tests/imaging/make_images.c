#include "tests/imaging/make_images.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "common/bytes.h"

static void append(Buffer *out, const void *bytes, size_t length)
{
    if (buffer_append(out, bytes, length, NULL))
        abort();
}

static void put_be(uint8_t *to, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(value >> (8 * (count - 1 - i)));
}

/* ---- JPEG ---- */

size_t make_exif(uint8_t orientation, bool big_endian, uint8_t *bytes)
{
    static const uint8_t big[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0,
                                  3,   0,   0, 0,  1, 0, 0, 0, 0, 0, 0,    0,    0};
    static const uint8_t little[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3,
                                     0,   1,   0,  0, 0, 0, 0, 0, 0, 0, 0,    0,    0};
    memcpy(bytes, big_endian ? big : little, sizeof big);
    bytes[big_endian ? 19 : 18] = orientation;
    return sizeof big;
}

enum { BOMB_SCANS = 1 + 63 * 11 };

/* Fills scans so that each bit of each coefficient has a scan of its own. */
static void fill_bomb(jpeg_scan_info *scans)
{
    *scans++ = (jpeg_scan_info){.comps_in_scan = 1, .Ss = 0, .Se = 0, .Ah = 0, .Al = 0};
    for (int k = 1; k < 64; k++) {
        *scans++ = (jpeg_scan_info){.comps_in_scan = 1, .Ss = k, .Se = k, .Ah = 0, .Al = 10};
        for (int bit = 9; bit >= 0; bit--)
            *scans++ = (jpeg_scan_info){.comps_in_scan = 1, .Ss = k, .Se = k, .Ah = bit + 1, .Al = bit};
    }
}

static void write_markers(struct jpeg_compress_struct *cinfo, const MakeJpeg *options)
{
    if (options->orientation) {
        uint8_t block[70] = "Exif\0";
        size_t length = 6 + make_exif(options->orientation, options->orientation % 2 == 0, block + 6);
        jpeg_write_marker(cinfo, JPEG_APP0 + 1, block, (unsigned)length);
    }
    if (options->exif)
        jpeg_write_marker(cinfo, JPEG_APP0 + 1, options->exif, (unsigned)options->exif_length);
    if (options->icc)
        jpeg_write_icc_profile(cinfo, options->icc, (unsigned)options->icc_length);
}

void make_jpeg(const MakeJpeg *options, Buffer *out)
{
    static const J_COLOR_SPACE spaces[] = {JCS_GRAYSCALE, JCS_RGB, JCS_CMYK, JCS_CMYK};
    static const int components[] = {1, 3, 4, 4};
    jpeg_scan_info scans[BOMB_SCANS];
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &bytes, &length);
    cinfo.image_width = options->width;
    cinfo.image_height = options->height;
    cinfo.input_components = components[options->colours];
    cinfo.in_color_space = spaces[options->colours];
    jpeg_set_defaults(&cinfo);
    if (options->colours == MAKE_YCCK)
        jpeg_set_colorspace(&cinfo, JCS_YCCK);
    jpeg_set_quality(&cinfo, options->quality ? options->quality : 95, TRUE);
    cinfo.arith_code = options->arithmetic;
    if (options->across && options->down) {
        cinfo.comp_info[0].h_samp_factor = options->across;
        cinfo.comp_info[0].v_samp_factor = options->down;
    }
    if (options->progressive)
        jpeg_simple_progression(&cinfo);
    if (options->scan_bomb) {
        fill_bomb(scans);
        cinfo.scan_info = scans;
        cinfo.num_scans = BOMB_SCANS;
    }
    if (options->separate_scans) {
        for (int i = 0; i < 3; i++)
            scans[i] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {i}, .Se = 63};
        cinfo.scan_info = scans;
        cinfo.num_scans = 3;
    }
    jpeg_start_compress(&cinfo, TRUE);
    write_markers(&cinfo, options);
    size_t row_bytes = (size_t)options->width * (size_t)cinfo.input_components;
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW row = (JSAMPROW)(options->pixels + cinfo.next_scanline * row_bytes);
        (void)jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    out->length = 0;
    append(out, bytes, length);
    free(bytes);
}

/* ---- PNG ---- */

static uint32_t crc32_of(const uint8_t *bytes, size_t length)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static void append_chunk(Buffer *out, const char *type, const void *bytes, size_t length)
{
    uint8_t number[4];
    put_be(number, 4, (uint32_t)length);
    append(out, number, 4);
    size_t begin = out->length;
    append(out, type, 4);
    append(out, bytes, length);
    put_be(number, 4, crc32_of(out->bytes + begin, out->length - begin));
    append(out, number, 4);
}

/* Appends the rows as an IDAT chunk: zlib of stored blocks, each row after a filter byte of 0. */
static void append_rows(Buffer *out, const uint8_t *rows, size_t row_bytes, uint32_t height)
{
    Buffer zlib = {0};
    append(&zlib, "\x78\x01", 2);
    uint32_t a = 1, b = 0; /* Adler-32 */
    for (uint32_t y = 0; y < height; y++) {
        size_t length = row_bytes + 1;
        uint8_t head[6] = {y + 1 == height,  (uint8_t)length,         (uint8_t)(length >> 8),
                           (uint8_t)~length, (uint8_t)(~length >> 8), 0};
        append(&zlib, head, 6);
        append(&zlib, rows + y * row_bytes, row_bytes);
        b = (b + a) % 65521; /* the filter byte */
        for (size_t i = 0; i < row_bytes; i++) {
            a = (a + rows[y * row_bytes + i]) % 65521;
            b = (b + a) % 65521;
        }
    }
    uint8_t sum[4];
    put_be(sum, 4, b << 16 | a);
    append(&zlib, sum, 4);
    append_chunk(out, "IDAT", zlib.bytes, zlib.length);
    buffer_free(&zlib);
}

void make_png(const MakePng *options, Buffer *out)
{
    static const unsigned samples[] = {1, 0, 3, 1, 2, 0, 4};
    uint8_t header[13] = {0};
    put_be(header, 4, options->width);
    put_be(header + 4, 4, options->height);
    header[8] = options->bit_depth;
    header[9] = options->colour_type;
    out->length = 0;
    append(out, "\x89PNG\r\n\x1a\n", 8);
    append_chunk(out, "IHDR", header, sizeof header);
    if (options->exif)
        append_chunk(out, "eXIf", options->exif, options->exif_length);
    if (options->palette)
        append_chunk(out, "PLTE", options->palette, options->palette_count * 3);
    if (options->transparency)
        append_chunk(out, "tRNS", options->transparency, options->transparency_length);
    size_t row_bits = (size_t)options->width * options->bit_depth * samples[options->colour_type];
    append_rows(out, options->rows, (row_bits + 7) / 8, options->height);
    append_chunk(out, "IEND", "", 0);
}

void make_png_chunk(Buffer *file, const char *before, const char *type, const void *bytes, size_t length)
{
    const uint8_t *found = memmem(file->bytes, file->length, before, 4);
    Buffer rest = {0};
    if (!found)
        abort();
    const size_t at = (size_t)(found - file->bytes) - 4;
    append(&rest, file->bytes + at, file->length - at);
    file->length = at;
    append_chunk(file, type, bytes, length);
    append(file, rest.bytes, rest.length);
    buffer_free(&rest);
}

void make_png_sums(Buffer *file)
{
    enum { SIGNATURE = 8, CHUNK = 12 };
    for (size_t at = SIGNATURE; at + CHUNK <= file->length;) {
        const size_t length = load_be32(file->bytes + at);
        if (length > file->length - CHUNK - at)
            return;
        put_be(file->bytes + at + 8 + length, 4, crc32_of(file->bytes + at + 4, length + 4));
        at += CHUNK + length;
    }
}

void patch_size(Buffer *file, uint32_t width, uint32_t height)
{
    if (file->bytes[0] == 0x89) {
        put_be(file->bytes + 16, 4, width);
        put_be(file->bytes + 20, 4, height);
        put_be(file->bytes + 29, 4, crc32_of(file->bytes + 12, 17));
        return;
    }
    size_t at = 2;
    while (file->bytes[at + 1] < 0xC0 || file->bytes[at + 1] > 0xC2) /* SOF0 to SOF2 */
        at += 2 + ((size_t)file->bytes[at + 2] << 8 | file->bytes[at + 3]);
    put_be(file->bytes + at + 5, 2, height);
    put_be(file->bytes + at + 7, 2, width);
}

/* Copies the text without its NUL. */
static void put_text(uint8_t *to, const char *text)
{
    while (*text)
        *to++ = (uint8_t)*text++;
}

/* ---- ICC: the least that ICC.1 section 8 asks of an input profile with matrix and curves ---- */

static size_t put_tag(uint8_t *bytes, size_t *row, const char *name, size_t at, size_t length)
{
    put_text(bytes + *row, name);
    put_be(bytes + *row + 4, 4, (uint32_t)at);
    put_be(bytes + *row + 8, 4, (uint32_t)length);
    *row += 12;
    return (at + length + 3) / 4 * 4;
}

static size_t put_xyz(uint8_t *bytes, size_t *row, const char *name, size_t at, const double xyz[3])
{
    put_text(bytes + at, "XYZ ");
    for (size_t i = 0; i < 3; i++)
        put_be(bytes + at + 8 + 4 * i, 4, (uint32_t)(int32_t)lrint(xyz[i] * 65536));
    return put_tag(bytes, row, name, at, 20);
}

/* Writes a curve; returns its length. */
static size_t put_curve(uint8_t *to, MakeCurve curve, bool gray)
{
    static const double srgb[] = {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045};
    enum { SAMPLES = 40 };
    if (curve == MAKE_CURVE_PARAMETRIC) {
        put_text(to, "para");
        to[9] = 3;
        for (size_t i = 0; i < 5; i++)
            put_be(to + 12 + 4 * i, 4, (uint32_t)lrint(srgb[i] * 65536));
        return 32;
    }
    put_text(to, "curv");
    put_be(to + 8, 4, curve == MAKE_CURVE_GAMMA ? 1 : SAMPLES);
    if (curve == MAKE_CURVE_GAMMA) { /* 8.8 fixed point */
        put_be(to + 12, 2, gray ? 0x0100 : 0x0233);
        return 14;
    }
    for (uint32_t i = 0; i < SAMPLES; i++)
        put_be(to + 12 + 2 * i, 2, (uint32_t)lrint(65535.0 * i * i / ((SAMPLES - 1) * (SAMPLES - 1))));
    return 12 + 2 * SAMPLES;
}

size_t make_icc(bool gray, MakeCurve curve, const char *description, uint8_t *bytes)
{
    static const double white[3] = {0.9642, 1.0, 0.8249};
    static const double red[3] = {0.6097, 0.3111, 0.0195}, green[3] = {0.2053, 0.6257, 0.0609},
                        blue[3] = {0.1492, 0.0632, 0.7446};
    memset(bytes, 0, 1024);
    size_t tags = gray ? 4 : 9, row = 132, at = 132 + tags * 12;
    put_be(bytes + 128, 4, (uint32_t)tags);
    /* textDescriptionType of version 2: length, ASCII, then 78 bytes of nothing */
    size_t text = strlen(description) + 1;
    put_text(bytes + at, "desc");
    put_be(bytes + at + 8, 4, (uint32_t)text);
    memcpy(bytes + at + 12, description, text);
    at = put_tag(bytes, &row, "desc", at, 12 + text + 78);
    put_text(bytes + at, "text");
    put_text(bytes + at + 8, "none");
    at = put_tag(bytes, &row, "cprt", at, 13);
    at = put_xyz(bytes, &row, "wtpt", at, white);
    size_t curve_at = at, curve_length = put_curve(bytes + at, curve, gray);
    at = put_tag(bytes, &row, gray ? "kTRC" : "rTRC", at, curve_length);
    if (!gray) {
        (void)put_tag(bytes, &row, "gTRC", curve_at, curve_length);
        (void)put_tag(bytes, &row, "bTRC", curve_at, curve_length);
        at = put_xyz(bytes, &row, "rXYZ", at, red);
        at = put_xyz(bytes, &row, "gXYZ", at, green);
        at = put_xyz(bytes, &row, "bXYZ", at, blue);
    }
    put_be(bytes, 4, (uint32_t)at);
    put_be(bytes + 8, 4, 0x02100000);
    put_text(bytes + 12, gray ? "mntrGRAYXYZ " : "mntrRGB XYZ ");
    put_text(bytes + 36, "acsp");
    put_be(bytes + 68, 4, 0xF6D6); /* the illuminant, D50 */
    put_be(bytes + 72, 4, 0x10000);
    put_be(bytes + 76, 4, 0xD32D);
    return at;
}

/* ---- pixels ---- */

uint8_t *make_pixels(uint32_t width, uint32_t height, uint32_t channels)
{
    uint8_t *pixels = malloc((size_t)width * height * channels);
    if (!pixels)
        abort();
    uint8_t *to = pixels;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            double u = (double)x / width, v = (double)y / height;
            const double values[4] = {40 + 180 * u, 30 + 200 * v, 220 - 150 * u * v, 128 + 60 * u - 60 * v};
            for (uint32_t c = 0; c < channels; c++)
                *to++ = (uint8_t)values[c];
        }
    }
    return pixels;
}

double psnr(const uint8_t *a, const uint8_t *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum > 0 ? fmin(99, 10 * log10(255.0 * 255.0 * (double)count / sum)) : 99;
}
