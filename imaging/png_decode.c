#include "imaging/png_decode.h"

#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "imaging/orient.h"
#include "imaging/png_filter.h"

/* Rows beyond RAW_MOST are libvips', which reads them strip by strip; a buffer beyond RAW_KEPT is freed after
 * its image. */
static const uint64_t RAW_MOST = (uint64_t)1 << 30, RAW_KEPT = (uint64_t)32 << 20;

struct PngDecoder {
    struct libdeflate_decompressor *inflater;
    const uint8_t *bytes; /* of the file whose header was read last; not owned */
    size_t length;
    PngChunks chunks;
    Buffer stream; /* the zlib stream, joined */
    Buffer raw;    /* rows as the stream has them: the number of a filter, then bytes */
};

FshStatus png_decoder_new(PngDecoder **png_ret, FshError *error)
{
    PngDecoder *png = calloc(1, sizeof *png);
    if (png)
        png->inflater = libdeflate_alloc_decompressor();
    if (!png || !png->inflater)
        png_decoder_free(&png);
    *png_ret = png;
    return png ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a decoder of PNG");
}

void png_decoder_free(PngDecoder **png)
{
    if (!*png)
        return;
    libdeflate_free_decompressor((*png)->inflater);
    buffer_free(&(*png)->stream);
    buffer_free(&(*png)->raw);
    free(*png);
    *png = NULL;
}

PngReader png_decoder_header(PngDecoder *png, const uint8_t *bytes, size_t length, ImageInfo *info)
{
    PngChunks *chunks = &png->chunks;
    png->bytes = bytes;
    png->length = length;
    png_chunks_read(bytes, length, chunks);
    if (chunks->reader != PNG_WHOLLY_HERE)
        return chunks->reader;
    const bool gray = !(chunks->colour & PNG_RGB);
    *info = (ImageInfo){.format = IMAGE_PNG,
                        .width = chunks->width,
                        .height = chunks->height,
                        .stored_width = chunks->width,
                        .stored_height = chunks->height,
                        .channels = gray ? 1 : 3,
                        .orientation = 1};
    info->quirks = (gray ? IMAGE_QUIRK_GRAY : 0u) |
                   (chunks->colour == PNG_PALETTE ? IMAGE_QUIRK_PALETTE : 0u) |
                   (chunks->colour >= PNG_GRAY_ALPHA || chunks->alpha ? IMAGE_QUIRK_ALPHA : 0u) |
                   (chunks->bit_depth == 16 ? IMAGE_QUIRK_16BIT : 0u);
    return PNG_WHOLLY_HERE;
}

/* ---- rows of samples to rows of pixels ---- */

/* Returns sample x of a row of 1, 2 or 4 bits. */
static inline unsigned packed_sample(const uint8_t *row, size_t x, unsigned depth)
{
    const size_t bit = x * depth;
    return row[bit / 8] >> (8 - depth - bit % 8) & ((1u << depth) - 1);
}

/* Writes gray of 1, 2 or 4 bits as 8 bits. */
static void unpack_gray(const uint8_t *row, uint32_t width, unsigned depth, uint8_t *to)
{
    const unsigned scale = 255 / ((1u << depth) - 1);
    for (uint32_t x = 0; x < width; x++)
        to[x] = (uint8_t)(packed_sample(row, x, depth) * scale);
}

/* Writes samples of 16 bits as 8, rounded: 65535 / 257 = 255. */
static void narrow_samples(const uint8_t *row, size_t samples_count, uint8_t *to)
{
    for (size_t i = 0; i < samples_count; i++)
        to[i] = (uint8_t)((((unsigned)row[2 * i] << 8 | row[2 * i + 1]) + 128) / 257);
}

/* The colours of a palette, over white. */
typedef struct Colours {
    uint8_t rgb[256][3];
} Colours;

static void make_colours(const PngChunks *chunks, Colours *colours)
{
    for (size_t i = 0; i < chunks->palette_count; i++) {
        const uint8_t *entry = chunks->palette + 3 * i;
        const uint8_t rgba[4] = {entry[0], entry[1], entry[2],
                                 i < chunks->alpha_count ? chunks->alpha[i] : 255};
        image_over_white(rgba, 1, 3, colours->rgb[i]);
    }
}

/* Returns whether all indices are in the palette. */
static bool look_up(const Colours *colours, size_t colours_count, const uint8_t *row, uint32_t width,
                    unsigned depth, uint8_t *to)
{
    bool inside = true;
    for (uint32_t x = 0; x < width; x++, to += 3) {
        const unsigned index = depth == 8 ? row[x] : packed_sample(row, x, depth);
        inside &= index < colours_count;
        memcpy(to, colours->rgb[index], 3);
    }
    return inside;
}

/* Writes a row of samples, whose filter is undone, as pixels. narrow: room for a row of 8-bit samples.
 * Returns whether a palette has all of its indices. */
static bool write_row(const PngChunks *chunks, const Colours *colours, const uint8_t *row, uint8_t *narrow,
                      uint8_t *to)
{
    const uint32_t width = chunks->width;
    const unsigned samples = png_samples_count(chunks->colour);
    const bool has_alpha = samples % 2 == 0;
    if (chunks->colour == PNG_PALETTE)
        return look_up(colours, chunks->palette_count, row, width, chunks->bit_depth, to);
    if (chunks->bit_depth < 8)
        unpack_gray(row, width, chunks->bit_depth, to);
    else if (chunks->bit_depth == 16)
        narrow_samples(row, (size_t)width * samples, has_alpha ? narrow : to);
    if (has_alpha)
        image_over_white(chunks->bit_depth == 16 ? narrow : row, width, samples - 1, to);
    return true;
}

/* Undoes the filters in raw, which are row_bytes and one byte apart, and writes pixels. Returns whether
 * filters and indices are those of a sound file. */
static bool write_pixels(const PngChunks *chunks, uint8_t *raw, size_t row_bytes, uint8_t *narrow,
                         Image *image)
{
    const size_t bits = (size_t)png_samples_count(chunks->colour) * chunks->bit_depth;
    const size_t pixel_bytes = bits < 8 ? 1 : bits / 8;
    const size_t image_row_bytes = (size_t)image->width * image->channels;
    const bool as_it_is = bits == (size_t)8 * image->channels && chunks->bit_depth == 8;
    Colours colours = {0};
    const uint8_t *above = NULL;
    bool sound = true;
    make_colours(chunks, &colours);
    for (uint32_t y = 0; y < image->height && sound; y++, raw += row_bytes + 1) {
        uint8_t *to = image->pixels + y * image_row_bytes, *row = as_it_is ? to : raw + 1;
        if (raw[0] >= PNG_FILTERS_COUNT)
            return false;
        png_unfilter((PngFilter)raw[0], raw + 1, above, row_bytes, pixel_bytes, row);
        sound = as_it_is || write_row(chunks, &colours, row, narrow, to);
        above = row;
    }
    return sound;
}

/* Returns whether zlib would take the window that the stream's header names: what lies farther back than that
 * is an error there. Writers of small images name small ones. */
static bool window_reaches(const uint8_t *stream, size_t length, uint64_t raw_bytes)
{
    const unsigned window_bits = length < 2 ? 0 : (stream[0] >> 4) + 8u;
    return window_bits == 15 ||
           (window_bits >= 8 && window_bits < 15 && raw_bytes <= (uint64_t)1 << window_bits);
}

FshStatus png_decoder_pixels(PngDecoder *png, Image *image, bool *done_ret, FshError *error)
{
    const PngChunks *chunks = &png->chunks;
    const uint64_t row_bits = (uint64_t)chunks->width * png_samples_count(chunks->colour) * chunks->bit_depth;
    const size_t row_bytes = (size_t)((row_bits + 7) / 8);
    const uint64_t raw_bytes = (uint64_t)chunks->height * (row_bytes + 1);
    const size_t narrow_bytes = (size_t)chunks->width * 4;
    const uint8_t *stream = NULL;
    size_t length = 0, taken = 0, made = 0;
    *done_ret = false;
    if (chunks->reader == PNG_BY_LIBVIPS || raw_bytes > RAW_MOST)
        return FSH_OK;
    FshStatus status =
        png_chunks_pixels(png->bytes, png->length, chunks, &png->stream, &stream, &length, error);
    /* deflate makes at most 1032 bytes of one */
    if (status || !stream || raw_bytes / 1032 > length || !window_reaches(stream, length, raw_bytes))
        return status;
    status = buffer_reserve(&png->raw, (size_t)raw_bytes + PNG_FILTER_SLACK + narrow_bytes, error);
    if (!status)
        status = image_reserve(image, chunks->width, chunks->height, chunks->colour & PNG_RGB ? 3 : 1, error);
    if (status)
        return status;
    uint8_t *raw = png->raw.bytes;
    if (libdeflate_zlib_decompress_ex(png->inflater, stream, length, raw, (size_t)raw_bytes, &taken, &made) ==
            LIBDEFLATE_SUCCESS &&
        taken == length && made == raw_bytes)
        *done_ret = write_pixels(chunks, raw, row_bytes, raw + raw_bytes + PNG_FILTER_SLACK, image);
    if (png->raw.capacity > RAW_KEPT)
        buffer_free(&png->raw);
    return FSH_OK;
}
