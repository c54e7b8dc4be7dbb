#include "imaging/image_metadata_write.h"

#include <string.h>

static bool is_there(const ImageBlock *block)
{
    return block->bytes && block->length;
}

/* Returns FSH_ERR_MISMATCH for a block or file above 256 MiB. Chunk lengths have 31 bits in PNG and 32 in
 * WebP; real metadata is far below that. */
static FshStatus check_lengths(const Buffer *file, const ImageMetadata *metadata, FshError *error)
{
    const size_t most = (size_t)256 << 20;
    const size_t lengths[] = {metadata->exif.length, metadata->icc.length, metadata->xmp.length,
                              file->length};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (lengths[i] > most)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%zu bytes of metadata or pixels are too many to be written together",
                                 lengths[i]);
    }
    return FSH_OK;
}

static bool is_empty(const ImageMetadata *metadata)
{
    return !metadata || !(is_there(&metadata->icc) || is_there(&metadata->exif) || is_there(&metadata->xmp));
}

/* Inserts `length` bytes at `at` into file. Returns where they begin, or NULL without memory. */
static uint8_t *open_gap(Buffer *file, size_t at, size_t length, FshError *error)
{
    if (buffer_reserve(file, file->length + length, error))
        return NULL;
    memmove(file->bytes + at + length, file->bytes + at, file->length - at);
    file->length += length;
    return file->bytes + at;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t length)
{
    if (length)
        memcpy(to, bytes, length);
    return to + length;
}

/* ---- PNG ---- */

enum { PNG_SIGNATURE_BYTES = 8, PNG_HEADER_END = PNG_SIGNATURE_BYTES + 12 + 13, PNG_CHUNK_BYTES = 12 };

static uint8_t *put_be32(uint8_t *to, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *to++ = (uint8_t)(value >> shift);
    return to;
}

/* Returns the CRC-32 of ISO 3309, computed half a byte at a time: table[n] is n after four zero bits. */
static uint32_t crc32_of(const uint8_t *bytes, size_t length)
{
    static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                       0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static uint8_t *begin_chunk(uint8_t *to, size_t length, const char *type)
{
    return put(put_be32(to, (uint32_t)length), type, 4);
}

/* Appends the checksum of a chunk whose data of `length` bytes ends at `end`. Returns the new end. */
static uint8_t *end_chunk(uint8_t *end, size_t length)
{
    return put_be32(end, crc32_of(end - length - 4, length + 4));
}

enum { STORED_MAX = 65535, STORED_HEAD_BYTES = 5 };

/* Returns the bytes of a zlib stream (RFC 1950) of stored blocks. A profile is a few kB, of which compression
 * would save a fifth. */
static size_t zlib_stored_bytes(size_t length)
{
    return 2 + (length + STORED_MAX - 1) / STORED_MAX * STORED_HEAD_BYTES + length + 4;
}

static uint8_t *put_zlib_stored(uint8_t *to, const uint8_t *bytes, size_t length)
{
    uint32_t low = 1, high = 0; /* Adler-32 */
    for (size_t i = 0; i < length; i++) {
        low = (low + bytes[i]) % 65521;
        high = (high + low) % 65521;
    }
    to = put(to, "\x78\x01", 2);
    for (size_t at = 0; at < length; at += STORED_MAX) {
        size_t part = length - at < STORED_MAX ? length - at : STORED_MAX;
        const uint8_t head[STORED_HEAD_BYTES] = {at + part == length, (uint8_t)part, (uint8_t)(part >> 8),
                                                 (uint8_t)~part, (uint8_t)(~part >> 8)};
        to = put(put(to, head, sizeof head), bytes + at, part);
    }
    return put_be32(to, high << 16 | low);
}

static const char icc_head[] = "ICC profile\0"; /* profile name, method 0: zlib */
static const char xmp_head[] =
    "XML:com.adobe.xmp\0\0\0\0"; /* keyword, not compressed, no language, no translation */

static size_t get_be32(const uint8_t *from)
{
    return (size_t)from[0] << 24 | (size_t)from[1] << 16 | (size_t)from[2] << 8 | from[3];
}

/* Keeps only the critical chunks, whose names begin with a capital: header, pixels, end. */
static FshStatus strip_png(Buffer *file, FshError *error)
{
    size_t from = PNG_SIGNATURE_BYTES, to = from;
    while (from + PNG_CHUNK_BYTES <= file->length) {
        size_t length = get_be32(file->bytes + from);
        if (length > file->length - from - PNG_CHUNK_BYTES)
            break;
        if (!(file->bytes[from + 4] & 0x20)) {
            memmove(file->bytes + to, file->bytes + from, PNG_CHUNK_BYTES + length);
            to += PNG_CHUNK_BYTES + length;
        }
        from += PNG_CHUNK_BYTES + length;
    }
    if (from != file->length || to < PNG_HEADER_END || memcmp(file->bytes + 12, "IHDR", 4) != 0)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "the PNG that was written is not built as one");
    file->length = to;
    return FSH_OK;
}

FshStatus metadata_write_png(Buffer *file, const ImageMetadata *metadata, FshError *error)
{
    FshStatus status = strip_png(file, error);
    if (status || is_empty(metadata))
        return status;
    status = check_lengths(file, metadata, error);
    if (status)
        return status;
    size_t icc = is_there(&metadata->icc) ? sizeof icc_head + zlib_stored_bytes(metadata->icc.length) : 0;
    size_t exif = is_there(&metadata->exif) ? metadata->exif.length : 0;
    size_t xmp = is_there(&metadata->xmp) ? sizeof xmp_head + metadata->xmp.length : 0;
    size_t total = icc + exif + xmp + (size_t)PNG_CHUNK_BYTES * ((icc > 0) + (exif > 0) + (xmp > 0));
    uint8_t *to = open_gap(file, PNG_HEADER_END, total, error); /* the profile must precede palette and
                                                                 * pixels */
    if (!to)
        return FSH_ERR_MEMORY;
    if (icc) {
        to = put(begin_chunk(to, icc, "iCCP"), icc_head, sizeof icc_head);
        to = end_chunk(put_zlib_stored(to, metadata->icc.bytes, metadata->icc.length), icc);
    }
    if (exif)
        to = end_chunk(put(begin_chunk(to, exif, "eXIf"), metadata->exif.bytes, exif), exif);
    if (xmp) {
        to = put(begin_chunk(to, xmp, "iTXt"), xmp_head, sizeof xmp_head);
        (void)end_chunk(put(to, metadata->xmp.bytes, metadata->xmp.length), xmp);
    }
    return FSH_OK;
}

/* ---- WebP ---- */

enum { RIFF_HEADER_BYTES = 12, RIFF_CHUNK_BYTES = 8, VP8X_BYTES = 10 };
enum { WEBP_HAS_XMP = 0x04, WEBP_HAS_EXIF = 0x08, WEBP_HAS_ICC = 0x20 };

static uint8_t *put_le(uint8_t *to, size_t count, size_t value)
{
    for (size_t i = 0; i < count; i++)
        *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

/* Returns the bytes of a block's chunk, with the byte that pads an odd length; 0 for an empty block. */
static size_t riff_bytes(const ImageBlock *block)
{
    return is_there(block) ? RIFF_CHUNK_BYTES + block->length + block->length % 2 : 0;
}

static uint8_t *put_riff(uint8_t *to, const char *type, const ImageBlock *block)
{
    if (!is_there(block))
        return to;
    to = put(put_le(put(to, type, 4), 4, block->length), block->bytes, block->length);
    return put(to, "", block->length % 2);
}

static size_t get_le32(const uint8_t *from)
{
    return from[0] | (size_t)from[1] << 8 | (size_t)from[2] << 16 | (size_t)from[3] << 24;
}

static void set_riff_length(Buffer *file)
{
    (void)put_le(file->bytes + 4, 4, file->length - RIFF_CHUNK_BYTES);
}

/* Keeps only the chunk with the pixels, which makes the file a simple lossy one. */
static FshStatus strip_webp(Buffer *file, FshError *error)
{
    size_t at = RIFF_HEADER_BYTES;
    while (at + RIFF_CHUNK_BYTES <= file->length) {
        size_t length = get_le32(file->bytes + at + 4), whole = RIFF_CHUNK_BYTES + length + length % 2;
        if (whole > file->length - at)
            break;
        if (memcmp(file->bytes + at, "VP8 ", 4) == 0) {
            memmove(file->bytes + RIFF_HEADER_BYTES, file->bytes + at, whole);
            file->length = RIFF_HEADER_BYTES + whole;
            set_riff_length(file);
            return FSH_OK;
        }
        at += whole;
    }
    return fsh_error_set(error, FSH_ERR_LIBRARY, "the WebP that was written is not built as a lossy one");
}

FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error)
{
    FshStatus status = strip_webp(file, error);
    if (status || is_empty(metadata))
        return status;
    status = check_lengths(file, metadata, error);
    if (status)
        return status;
    size_t before = riff_bytes(&metadata->icc);
    size_t behind = riff_bytes(&metadata->exif) + riff_bytes(&metadata->xmp);
    uint8_t *to = open_gap(file, file->length, behind, error);
    if (!to)
        return FSH_ERR_MEMORY;
    (void)put_riff(put_riff(to, "EXIF", &metadata->exif), "XMP ", &metadata->xmp);
    to = open_gap(file, RIFF_HEADER_BYTES, RIFF_CHUNK_BYTES + VP8X_BYTES + before, error);
    if (!to)
        return FSH_ERR_MEMORY;
    unsigned flags = (is_there(&metadata->icc) ? WEBP_HAS_ICC : 0u) |
                     (is_there(&metadata->exif) ? WEBP_HAS_EXIF : 0u) |
                     (is_there(&metadata->xmp) ? WEBP_HAS_XMP : 0u);
    to = put_le(put_le(put(to, "VP8X", 4), 4, VP8X_BYTES), 4, flags);
    to = put_le(put_le(to, 3, image->width - 1), 3, image->height - 1);
    (void)put_riff(to, "ICCP", &metadata->icc);
    set_riff_length(file);
    return FSH_OK;
}
