#include "imaging/mask_decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "common/bytes.h"
#include "common/file.h"
#include "imaging/exif.h"
#include "imaging/png_chunks.h"
#include "imaging/png_filter.h"

enum {
    IHDR_BYTES = 13,
    PASSES = 7,
    ROW_MOST_OF_STREAM = 1032 /* bytes that deflate makes of one, at most */
};

struct MaskDecoder {
    struct libdeflate_decompressor *inflater;
    Buffer stream; /* the zlib stream, joined */
    Buffer raw;    /* rows as the stream has them: the number of a filter, then bytes */
};

/* A buffer beyond this is freed after its image. */
static const uint64_t RAW_KEPT = (uint64_t)32 << 20;

/* What a file says of itself before its pixels. */
typedef struct MaskHeader {
    uint32_t width, height;
    uint8_t depth; /* bits of a value: 1, 2, 4 or 8 */
    bool interlaced, is_palette;
} MaskHeader;

/* The pixels of one pass: x = x0 + i * dx, y = y0 + j * dy. */
typedef struct Pass {
    uint32_t x0, y0, dx, dy;
} Pass;
static const Pass adam7[PASSES] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                   {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
static const Pass whole = {0, 0, 1, 1};

FshStatus mask_decoder_new(MaskDecoder **masks_ret, FshError *error)
{
    MaskDecoder *masks = calloc(1, sizeof *masks);
    if (masks)
        masks->inflater = libdeflate_alloc_decompressor();
    if (!masks || !masks->inflater)
        mask_decoder_free(&masks);
    *masks_ret = masks;
    return masks ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a decoder of masks");
}

void mask_decoder_free(MaskDecoder **masks)
{
    if (!*masks)
        return;
    libdeflate_free_decompressor((*masks)->inflater);
    buffer_free(&(*masks)->stream);
    buffer_free(&(*masks)->raw);
    free(*masks);
    *masks = NULL;
}

/* ---- chunks ---- */

static FshStatus refuse(FshError *error, const char *what)
{
    return fsh_error_set(
        error, FSH_ERR_UNSUPPORTED,
        "a mask is a PNG of a palette or of gray of 1 to 8 bits, whose values are the classes "
        "of its pixels; this one %s",
        what);
}

static FshStatus damaged(FshError *error, const char *what)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "the PNG is damaged: %s", what);
}

static FshStatus read_header(const uint8_t *bytes, size_t length, size_t *next_ret, MaskHeader *header,
                             FshError *error)
{
    static const char *const colours[] = {
        [PNG_RGB] = "has colours (RGB): make one number of each colour first",
        [PNG_GRAY_ALPHA] = "has an alpha channel: leave it out",
        [PNG_RGB_ALPHA] = "has colours and alpha (RGBA): make one number of each colour first"};
    PngChunk chunk;
    if (!png_chunk_read(bytes, length, PNG_SIGNATURE_BYTES, &chunk) || !png_chunk_is(&chunk, "IHDR") ||
        chunk.length != IHDR_BYTES)
        return damaged(error, "it does not begin with a sound IHDR");
    const uint8_t *data = chunk.data;
    const uint8_t depth = data[8], colour = data[9];
    *header = (MaskHeader){.width = load_be32(data),
                           .height = load_be32(data + 4),
                           .depth = depth,
                           .interlaced = data[12] == 1,
                           .is_palette = colour == PNG_PALETTE};
    *next_ret = chunk.next;
    if (colour <= PNG_RGB_ALPHA && colours[colour])
        return refuse(error, colours[colour]);
    if ((colour != PNG_GRAY && colour != PNG_PALETTE) || data[10] || data[11] || data[12] > 1)
        return damaged(error, "its IHDR is none that PNG has");
    if (depth == 16 && colour == PNG_GRAY)
        return refuse(error, "has 16 bits a pixel: write it with 8");
    if (depth != 1 && depth != 2 && depth != 4 && depth != 8)
        return damaged(error, "its IHDR is none that PNG has");
    return header->width >= 1 && header->width <= PNG_EDGE_MAX && header->height >= 1 &&
                   header->height <= PNG_EDGE_MAX
               ? FSH_OK
               : damaged(error, "its size is none that PNG has");
}

/* Joins the IDAT chunks that follow the header in masks->stream. Chunks that PNG lets a reader pass over
 * change no value. */
static FshStatus join_stream(MaskDecoder *masks, const uint8_t *bytes, size_t length, size_t at,
                             FshError *error)
{
    PngChunk chunk;
    bool ended = false, misread = false;
    masks->stream.length = 0;
    for (; !ended; at = chunk.next) {
        FshStatus status = FSH_OK;
        if (!png_chunk_read(bytes, length, at, &chunk))
            return damaged(error, "it is cut short, or a chunk's checksum is wrong");
        ended = png_chunk_is(&chunk, "IEND");
        if (png_chunk_is(&chunk, "IDAT"))
            status = buffer_append(&masks->stream, chunk.data, chunk.length, error);
        else if (png_chunk_is(&chunk, "eXIf") && exif_orientation(chunk.data, chunk.length, &misread) != 1)
            status = refuse(error, "is turned by its EXIF orientation: write it upright");
        else if (!ended && !png_chunk_is(&chunk, "PLTE") && !(chunk.type[0] & 0x20))
            status = damaged(error, "it has a vital chunk that PNG does not know");
        if (status)
            return status;
    }
    return FSH_OK;
}

/* ---- rows ---- */

static uint32_t pass_count(uint32_t length, uint32_t first, uint32_t step)
{
    return length > first ? (length - first + step - 1) / step : 0;
}

/* Returns the bytes of a pass in the stream: a filter's number before each row. */
static uint64_t pass_bytes(const MaskHeader *header, const Pass *pass)
{
    const uint64_t columns = pass_count(header->width, pass->x0, pass->dx);
    const uint64_t rows = pass_count(header->height, pass->y0, pass->dy);
    return columns ? rows * ((columns * header->depth + 7) / 8 + 1) : 0;
}

/* Undoes the filters of a pass in raw, in place, and puts its values where they belong. Returns whether the
 * filters are those that PNG has. */
static bool write_pass(const MaskHeader *header, const Pass *pass, uint8_t *raw, Image *image)
{
    const uint32_t columns = pass_count(header->width, pass->x0, pass->dx),
                   rows = columns ? pass_count(header->height, pass->y0, pass->dy) : 0;
    const size_t row_bytes = ((size_t)columns * header->depth + 7) / 8;
    const unsigned depth = header->depth, most = (1u << depth) - 1;
    const uint8_t *above = NULL;
    for (uint32_t j = 0; j < rows; j++, raw += row_bytes + 1) {
        const uint32_t y = pass->y0 + j * pass->dy;
        uint8_t *row = raw + 1, *to = image->pixels + (size_t)y * image->width + pass->x0;
        if (raw[0] >= PNG_FILTERS_COUNT)
            return false;
        png_unfilter((PngFilter)raw[0], row, above, row_bytes, 1, row);
        above = row;
        for (size_t i = 0; i < columns; i++)
            to[i * pass->dx] = (uint8_t)(row[i * depth / 8] >> (8 - depth - i * depth % 8) & most);
    }
    return true;
}

static FshStatus read_values(MaskDecoder *masks, const MaskHeader *header, Image *image, FshError *error)
{
    const Pass *passes = header->interlaced ? adam7 : &whole;
    const size_t count = header->interlaced ? PASSES : 1;
    uint64_t raw_bytes = 0;
    size_t taken = 0, made = 0;
    for (size_t i = 0; i < count; i++)
        raw_bytes += pass_bytes(header, &passes[i]);
    if (raw_bytes / ROW_MOST_OF_STREAM > masks->stream.length)
        return damaged(error, "it has fewer pixels than its header says");
    FshStatus status = buffer_reserve(&masks->raw, (size_t)raw_bytes + PNG_FILTER_SLACK, error);
    if (!status)
        status = image_reserve(image, header->width, header->height, 1, error);
    if (status)
        return status;
    uint8_t *raw = masks->raw.bytes;
    bool sound = libdeflate_zlib_decompress_ex(masks->inflater, masks->stream.bytes, masks->stream.length,
                                               raw, (size_t)raw_bytes, &taken, &made) == LIBDEFLATE_SUCCESS &&
                 made == raw_bytes;
    for (size_t i = 0; i < count && sound; i++) {
        sound = write_pass(header, &passes[i], raw, image);
        raw += pass_bytes(header, &passes[i]);
    }
    if (masks->raw.capacity > RAW_KEPT)
        buffer_free(&masks->raw);
    return sound ? FSH_OK : damaged(error, "its pixels cannot be decompressed");
}

/* Checks that the file is a PNG of values within max_pixels, and reads its header; *next_ret: where the next
 * chunk begins. */
static FshStatus open_file(const void *bytes, size_t length, uint64_t max_pixels, size_t *next_ret,
                           MaskHeader *header, FshError *error)
{
    const ImageFormat format = image_sniff(bytes, length);
    char what[96];
    if (length == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "the file is empty");
    if (format != IMAGE_PNG) {
        (void)snprintf(what, sizeof what, "is %s%s", image_format_name(format),
                       format == IMAGE_JPEG ? ", which changes values: write it as PNG from where it was made"
                                            : ": write it as PNG");
        return refuse(error, format == IMAGE_UNKNOWN ? "is no image of a known format" : what);
    }
    FshStatus status = read_header(bytes, length, next_ret, header, error);
    if (!status && (uint64_t)header->width * header->height > max_pixels)
        status =
            fsh_error_set(error, FSH_ERR_MISMATCH,
                          "the header claims %" PRIu32 " x %" PRIu32
                          " pixels, more than the limit of %" PRIu64 "; raise --max-pixels if that is true",
                          header->width, header->height, max_pixels);
    return status;
}

FshStatus mask_decode(MaskDecoder *masks, const void *bytes, size_t length, uint64_t max_pixels, Image *image,
                      FshError *error)
{
    MaskHeader header = {0};
    size_t next = 0;
    FshStatus status = open_file(bytes, length, max_pixels, &next, &header, error);
    if (!status)
        status = join_stream(masks, bytes, length, next, error);
    return status ? status : read_values(masks, &header, image, error);
}

FshStatus mask_read_format(const void *bytes, size_t length, uint64_t max_pixels, MaskFormat *format,
                           uint32_t *width_ret, uint32_t *height_ret, FshError *error)
{
    MaskHeader header = {0};
    PngChunk chunk = {0};
    bool misread = false;
    size_t at = 0;
    FshStatus status = open_file(bytes, length, max_pixels, &at, &header, error);
    if (status)
        return status;
    *format = (MaskFormat){.depth = header.depth, .is_palette = header.is_palette};
    *width_ret = header.width;
    *height_ret = header.height;
    for (;; at = chunk.next) {
        if (!png_chunk_read(bytes, length, at, &chunk))
            return damaged(error, "it is cut short, or a chunk's checksum is wrong");
        if (png_chunk_is(&chunk, "IDAT") || png_chunk_is(&chunk, "IEND"))
            break;
        if (png_chunk_is(&chunk, "eXIf") && exif_orientation(chunk.data, chunk.length, &misread) != 1)
            return refuse(error, "is turned by its EXIF orientation: write it upright");
        if (png_chunk_is(&chunk, "PLTE")) {
            format->palette = chunk.data;
            format->palette_bytes = chunk.length;
        } else if (png_chunk_is(&chunk, "tRNS")) {
            format->transparency = chunk.data;
            format->transparency_bytes = chunk.length;
        }
    }
    return FSH_OK;
}
