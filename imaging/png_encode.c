#include "imaging/png_encode.h"

#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "common/bytes.h"
#include "imaging/png_chunks.h"
#include "imaging/png_filter.h"

enum { LEVEL = 6 };

/* A chunk holds less than 2 GiB; readers that take one at a time are served better by short ones. */
enum { IDAT_BYTES_MAX = 1 << 20 };

struct PngEncoder {
    struct libdeflate_compressor *deflater;
    Buffer raw;    /* rows with their filters, and room for the trial of another */
    Buffer stream; /* raw, compressed; or a profile */
};

FshStatus png_encoder_new(PngEncoder **png_ret, FshError *error)
{
    PngEncoder *png = calloc(1, sizeof *png);
    if (png)
        png->deflater = libdeflate_alloc_compressor(LEVEL);
    if (!png || !png->deflater)
        png_encoder_free(&png);
    *png_ret = png;
    return png ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an encoder of PNG");
}

void png_encoder_free(PngEncoder **png)
{
    if (!*png)
        return;
    libdeflate_free_compressor((*png)->deflater);
    buffer_free(&(*png)->raw);
    buffer_free(&(*png)->stream);
    free(*png);
    *png = NULL;
}

/* Appends a chunk whose data are two parts, head and rest. */
static FshStatus append_chunk(Buffer *out, const char *type, const void *head, size_t head_bytes,
                              const void *rest, size_t rest_bytes, FshError *error)
{
    uint8_t number[4];
    const size_t start = out->length + sizeof number;
    store_be32(number, (uint32_t)(head_bytes + rest_bytes));
    FshStatus status = buffer_reserve(out, start + 4 + head_bytes + rest_bytes + sizeof number, error);
    if (status)
        return status;
    (void)buffer_append(out, number, sizeof number, error); /* there is room for all of it */
    (void)buffer_append(out, type, 4, error);
    (void)buffer_append(out, head, head_bytes, error);
    (void)buffer_append(out, rest, rest_bytes, error);
    store_be32(number, libdeflate_crc32(0, out->bytes + start, out->length - start));
    return buffer_append(out, number, sizeof number, error);
}

/* Compresses bytes into png->stream, as zlib does. */
static FshStatus compress_bytes(PngEncoder *png, const void *bytes, size_t length, FshError *error)
{
    const size_t most = libdeflate_zlib_compress_bound(png->deflater, length);
    png->stream.length = 0;
    FshStatus status = buffer_reserve(&png->stream, most, error);
    if (!status)
        png->stream.length = libdeflate_zlib_compress(png->deflater, bytes, length, png->stream.bytes, most);
    return status;
}

static bool is_there(const ImageBlock *block)
{
    return block->bytes && block->length;
}

/* Appends the blocks. The profile must precede the pixels. */
static FshStatus append_metadata(PngEncoder *png, const ImageMetadata *metadata, Buffer *out, FshError *error)
{
    static const char icc_head[] = "ICC profile\0"; /* profile name, method 0: zlib */
    /* keyword, not compressed, no language, no translation */
    static const char xmp_head[] = "XML:com.adobe.xmp\0\0\0\0";
    const size_t most = (size_t)256 << 20; /* chunk lengths have 31 bits; real metadata is far below that */
    const ImageBlock *const blocks[] = {&metadata->icc, &metadata->exif, &metadata->xmp};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (blocks[i]->length > most)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%zu bytes of metadata are too many for a PNG",
                                 blocks[i]->length);
    }
    if (is_there(&metadata->icc)) {
        status = compress_bytes(png, metadata->icc.bytes, metadata->icc.length, error);
        if (!status)
            status = append_chunk(out, "iCCP", icc_head, sizeof icc_head, png->stream.bytes,
                                  png->stream.length, error);
    }
    if (!status && is_there(&metadata->exif))
        status = append_chunk(out, "eXIf", NULL, 0, metadata->exif.bytes, metadata->exif.length, error);
    if (!status && is_there(&metadata->xmp))
        status = append_chunk(out, "iTXt", xmp_head, sizeof xmp_head, metadata->xmp.bytes,
                              metadata->xmp.length, error);
    return status;
}

/* Filters the rows and compresses them into png->stream. */
static FshStatus compress_pixels(PngEncoder *png, const Image *image, FshError *error)
{
    const size_t row_bytes = (size_t)image->width * image->channels;
    const size_t raw_bytes = (row_bytes + 1) * image->height;
    FshStatus status = buffer_reserve(&png->raw, raw_bytes + row_bytes, error);
    if (status)
        return status;
    const uint8_t *row = image->pixels, *above = NULL;
    uint8_t *to = png->raw.bytes, *trial = to + raw_bytes;
    for (uint32_t y = 0; y < image->height; y++, to += row_bytes + 1) {
        to[0] = (uint8_t)png_filter_best(row, above, row_bytes, image->channels, trial, to + 1);
        above = row;
        row += row_bytes;
    }
    return compress_bytes(png, png->raw.bytes, raw_bytes, error);
}

/* Packs the values into rows of depth bits a value, unfiltered (PNG third edition, 12.7: filters seldom help
 * indices), and compresses them into png->stream. */
static FshStatus compress_values(PngEncoder *png, const Image *mask, unsigned depth, FshError *error)
{
    const size_t row_bytes = ((size_t)mask->width * depth + 7) / 8,
                 raw_bytes = (row_bytes + 1) * mask->height;
    FshStatus status = buffer_reserve(&png->raw, raw_bytes, error);
    if (status)
        return status;
    memset(png->raw.bytes, 0, raw_bytes);
    const uint8_t *values = mask->pixels;
    uint8_t *to = png->raw.bytes + 1;
    for (uint32_t y = 0; y < mask->height; y++, to += row_bytes + 1, values += mask->width) {
        for (size_t x = 0; x < mask->width; x++)
            to[x * depth / 8] |= (uint8_t)(values[x] << (8 - depth - x * depth % 8));
    }
    return compress_bytes(png, png->raw.bytes, raw_bytes, error);
}

/* Begins a file: signature and header. */
static FshStatus append_head(const Image *image, uint8_t depth, PngColour colour, Buffer *out,
                             FshError *error)
{
    uint8_t header[13] = {[8] = depth, [9] = (uint8_t)colour};
    store_be32(header, image->width);
    store_be32(header + 4, image->height);
    out->length = 0;
    FshStatus status = buffer_append(out, "\x89PNG\r\n\x1a\n", 8, error);
    return status ? status : append_chunk(out, "IHDR", header, sizeof header, NULL, 0, error);
}

/* Ends a file with what is in png->stream. */
static FshStatus append_stream(const PngEncoder *png, Buffer *out, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t at = 0; !status && at < png->stream.length; at += IDAT_BYTES_MAX) {
        const size_t rest = png->stream.length - at;
        status = append_chunk(out, "IDAT", NULL, 0, png->stream.bytes + at,
                              rest < IDAT_BYTES_MAX ? rest : IDAT_BYTES_MAX, error);
    }
    return status ? status : append_chunk(out, "IEND", NULL, 0, NULL, 0, error);
}

FshStatus png_encoder_encode(PngEncoder *png, const Image *image, const ImageMetadata *metadata, Buffer *out,
                             FshError *error)
{
    FshStatus status = append_head(image, 8, image->channels == 1 ? PNG_GRAY : PNG_RGB, out, error);
    if (!status && metadata)
        status = append_metadata(png, metadata, out, error);
    if (!status)
        status = compress_pixels(png, image, error);
    return status ? status : append_stream(png, out, error);
}

FshStatus png_encoder_encode_mask(PngEncoder *png, const Image *mask, const MaskFormat *format, Buffer *out,
                                  FshError *error)
{
    if (format->is_palette && !format->palette_bytes)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "the mask's palette has no colours");
    FshStatus status =
        append_head(mask, format->depth, format->is_palette ? PNG_PALETTE : PNG_GRAY, out, error);
    if (!status && format->is_palette)
        status = append_chunk(out, "PLTE", NULL, 0, format->palette, format->palette_bytes, error);
    if (!status && format->transparency_bytes)
        status = append_chunk(out, "tRNS", NULL, 0, format->transparency, format->transparency_bytes, error);
    if (!status)
        status = compress_values(png, mask, format->depth, error);
    return status ? status : append_stream(png, out, error);
}
