#include "imaging/image_metadata_write.h"

#include <string.h>

#include "common/bytes.h"

static bool is_there(const ImageBlock *block)
{
    return block->bytes && block->length;
}

/* Returns FSH_ERR_MISMATCH for a block or file above 256 MiB. Chunk lengths have 32 bits; real metadata is
 * far below that. */
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

static void set_riff_length(Buffer *file)
{
    (void)put_le(file->bytes + 4, 4, file->length - RIFF_CHUNK_BYTES);
}

/* Returns whether the file is one chunk of lossy pixels. */
static bool is_simple(const Buffer *file)
{
    if (file->length < RIFF_HEADER_BYTES + RIFF_CHUNK_BYTES ||
        memcmp(file->bytes + RIFF_HEADER_BYTES, "VP8 ", 4) != 0)
        return false;
    const size_t length = load_le32(file->bytes + RIFF_HEADER_BYTES + 4);
    return length + length % 2 == file->length - RIFF_HEADER_BYTES - RIFF_CHUNK_BYTES;
}

FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error)
{
    if (is_empty(metadata))
        return FSH_OK;
    if (!is_simple(file))
        return fsh_error_set(error, FSH_ERR_LIBRARY,
                             "the WebP that was written is not built as a simple lossy one");
    FshStatus status = check_lengths(file, metadata, error);
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
