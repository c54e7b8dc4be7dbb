#include "imaging/png_chunks.h"

#include <stdbool.h>
#include <string.h>

#include <libdeflate.h>

#include "common/bytes.h"

enum {
    CHUNK_BYTES = 12, /* length, type, checksum */
    IHDR_BYTES = 13,
    TEXTS_MAX = 8, /* libvips warns from 21 on */
    TEXT_BYTES_MAX = 1 << 20,
};

static bool is_letter(uint8_t byte)
{
    return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
}

bool png_chunk_read(const uint8_t *bytes, size_t length, size_t at, PngChunk *chunk)
{
    if (length < CHUNK_BYTES || at > length - CHUNK_BYTES)
        return false;
    chunk->length = load_be32(bytes + at);
    chunk->type = bytes + at + 4;
    chunk->data = bytes + at + 8;
    if (chunk->length > length - CHUNK_BYTES - at)
        return false;
    for (size_t i = 0; i < 4; i++) {
        if (!is_letter(chunk->type[i]))
            return false;
    }
    chunk->next = at + CHUNK_BYTES + chunk->length;
    return libdeflate_crc32(0, chunk->type, chunk->length + 4) == load_be32(bytes + chunk->next - 4);
}

bool png_chunk_is(const PngChunk *chunk, const char *type)
{
    return memcmp(chunk->type, type, 4) == 0;
}

unsigned png_samples_count(PngColour colour)
{
    static const unsigned samples[] = {
        [PNG_GRAY] = 1, [PNG_RGB] = 3, [PNG_PALETTE] = 1, [PNG_GRAY_ALPHA] = 2, [PNG_RGB_ALPHA] = 4};
    return samples[colour];
}

/* ---- chunks that change no pixel: each returns whether libpng takes it without a word ---- */

/* Gamma and colours are taken if they are those of sRGB, with which they cannot contradict each other. */
static bool gamma_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    (void)chunks;
    return chunk->length == 4 && load_be32(chunk->data) == 45455;
}

static bool primaries_are_known(const PngChunks *chunks, const PngChunk *chunk)
{
    static const uint32_t srgb[] = {31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000};
    (void)chunks;
    if (chunk->length != sizeof srgb)
        return false;
    for (size_t i = 0; i < sizeof srgb / sizeof srgb[0]; i++) {
        if (load_be32(chunk->data + 4 * i) != srgb[i])
            return false;
    }
    return true;
}

static bool intent_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    (void)chunks;
    return chunk->length == 1 && chunk->data[0] < 4;
}

static bool bits_are_known(const PngChunks *chunks, const PngChunk *chunk)
{
    const bool palette = chunks->colour == PNG_PALETTE;
    if (chunk->length != (palette ? 3 : png_samples_count(chunks->colour)))
        return false;
    for (size_t i = 0; i < chunk->length; i++) {
        if (chunk->data[i] == 0 || chunk->data[i] > (palette ? 8 : chunks->bit_depth))
            return false;
    }
    return true;
}

static bool background_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    if (chunks->colour == PNG_PALETTE)
        return chunk->length == 1 && chunk->data[0] < chunks->palette_count;
    if (chunks->bit_depth < 8 || chunk->length != (chunks->colour & PNG_RGB ? 6 : 2))
        return false;
    for (size_t i = 0; i < chunk->length && chunks->bit_depth == 8; i += 2) {
        if (chunk->data[i] != 0)
            return false;
    }
    return true;
}

static bool density_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    (void)chunks;
    return chunk->length == 9;
}

static bool time_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    const uint8_t *data = chunk->data; /* year (2 bytes), month, day, hour, minute, second */
    (void)chunks;
    return chunk->length == 7 && data[2] >= 1 && data[2] <= 12 && data[3] >= 1 && data[3] <= 31 &&
           data[4] < 24 && data[5] < 60 && data[6] <= 60;
}

/* XMP may stand in a text too. */
static bool text_is_known(const PngChunks *chunks, const PngChunk *chunk)
{
    (void)chunks;
    const uint8_t *end = memchr(chunk->data, 0, chunk->length < 80 ? chunk->length : 80);
    return chunk->length <= TEXT_BYTES_MAX && end && end > chunk->data && memcmp(chunk->data, "XML", 3) != 0;
}

typedef enum Place { BEFORE_PALETTE, AFTER_PALETTE, BEFORE_PIXELS, ANYWHERE } Place;

static const struct {
    const char type[5];
    Place place;
    unsigned most;
    bool (*is_known)(const PngChunks *chunks, const PngChunk *chunk);
} kinds[] = {
    {"gAMA", BEFORE_PALETTE, 1, gamma_is_known},
    {"cHRM", BEFORE_PALETTE, 1, primaries_are_known},
    {"sRGB", BEFORE_PALETTE, 1, intent_is_known},
    {"sBIT", BEFORE_PALETTE, 1, bits_are_known},
    {"bKGD", AFTER_PALETTE, 1, background_is_known},
    {"pHYs", BEFORE_PIXELS, 1, density_is_known},
    {"tIME", ANYWHERE, 1, time_is_known},
    {"tEXt", ANYWHERE, TEXTS_MAX, text_is_known},
};
enum { KINDS_COUNT = sizeof kinds / sizeof kinds[0] };

/* Returns whether libpng takes the chunk without a word. counts: how many of each kind there were so far.
 * after_pixels: it stands behind them. */
static bool is_known(const PngChunks *chunks, const PngChunk *chunk, bool after_pixels,
                     unsigned counts[KINDS_COUNT])
{
    for (size_t i = 0; i < KINDS_COUNT; i++) {
        if (!png_chunk_is(chunk, kinds[i].type))
            continue;
        if ((after_pixels && kinds[i].place != ANYWHERE) ||
            (kinds[i].place == BEFORE_PALETTE && chunks->palette_count) || counts[i]++ == kinds[i].most)
            return false;
        return kinds[i].is_known(chunks, chunk);
    }
    return false;
}

/* ---- chunks on which pixels depend ---- */

static bool read_ihdr(const PngChunk *chunk, PngChunks *chunks)
{
    /* for each colour type, the bit depths as bits */
    static const uint32_t depths[] = {[PNG_GRAY] = 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8 | 1u << 16,
                                      [PNG_RGB] = 1u << 8 | 1u << 16,
                                      [PNG_PALETTE] = 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8,
                                      [PNG_GRAY_ALPHA] = 1u << 8 | 1u << 16,
                                      [PNG_RGB_ALPHA] = 1u << 8 | 1u << 16};
    if (!png_chunk_is(chunk, "IHDR") || chunk->length != IHDR_BYTES)
        return false;
    const uint8_t *data = chunk->data;
    chunks->width = load_be32(data);
    chunks->height = load_be32(data + 4);
    chunks->bit_depth = data[8];
    chunks->colour = (PngColour)data[9];
    return chunks->width >= 1 && chunks->width <= PNG_EDGE_MAX && chunks->height >= 1 &&
           chunks->height <= PNG_EDGE_MAX && data[9] <= PNG_RGB_ALPHA && data[8] <= 16 &&
           (depths[data[9]] >> data[8] & 1) != 0 && data[10] == 0 && data[11] == 0 && data[12] == 0;
}

static bool read_palette(const PngChunk *chunk, PngChunks *chunks)
{
    const size_t most = chunks->colour == PNG_PALETTE ? (size_t)1 << chunks->bit_depth : 256;
    if (!(chunks->colour & PNG_RGB) || chunks->palette_count || chunks->alpha_count || chunk->length == 0 ||
        chunk->length % 3 != 0 || chunk->length / 3 > most)
        return false;
    chunks->palette = chunk->data;
    chunks->palette_count = chunk->length / 3;
    return true;
}

static bool read_transparency(const PngChunk *chunk, PngChunks *chunks)
{
    if (chunks->colour != PNG_PALETTE || chunks->alpha_count || chunk->length == 0 ||
        chunk->length > chunks->palette_count)
        return false;
    chunks->alpha = chunk->data;
    chunks->alpha_count = chunk->length;
    return true;
}

/* Returns whether a chunk of this type may change pixels or how they are read: its name begins with a
 * capital, or it is tRNS. */
static bool is_vital(const PngChunk *chunk)
{
    return !(chunk->type[0] & 0x20) || png_chunk_is(chunk, "tRNS");
}

void png_chunks_read(const uint8_t *bytes, size_t length, PngChunks *chunks)
{
    unsigned counts[KINDS_COUNT] = {0};
    PngChunk chunk;
    *chunks = (PngChunks){.reader = PNG_BY_LIBVIPS};
    if (!png_chunk_read(bytes, length, PNG_SIGNATURE_BYTES, &chunk) || !read_ihdr(&chunk, chunks))
        return;
    PngReader reader = PNG_WHOLLY_HERE;
    size_t at = chunk.next;
    for (;; at = chunk.next) {
        const bool sound = png_chunk_read(bytes, length, at, &chunk);
        if (!sound)
            return;
        if (png_chunk_is(&chunk, "IDAT"))
            break;
        if (is_vital(&chunk)) {
            if (!(png_chunk_is(&chunk, "PLTE") && read_palette(&chunk, chunks)) &&
                !(png_chunk_is(&chunk, "tRNS") && read_transparency(&chunk, chunks)))
                return;
        } else if (!is_known(chunks, &chunk, false, counts)) {
            reader = PNG_PIXELS_HERE;
        }
    }
    if (chunks->colour == PNG_PALETTE && !chunks->palette_count)
        return;
    chunks->pixels_at = at;
    chunks->reader = reader;
}

FshStatus png_chunks_pixels(const uint8_t *bytes, size_t length, const PngChunks *chunks, Buffer *room,
                            const uint8_t **stream_ret, size_t *length_ret, FshError *error)
{
    unsigned counts[KINDS_COUNT] = {0};
    PngChunk chunk;
    const uint8_t *only = NULL;
    bool whole = false;
    size_t at = chunks->pixels_at;
    *stream_ret = NULL;
    room->length = 0;
    for (size_t parts = 0; png_chunk_read(bytes, length, at, &chunk) && png_chunk_is(&chunk, "IDAT");
         parts++) {
        at = chunk.next;
        if (parts == 0) {
            only = chunk.data;
            *length_ret = chunk.length;
            continue;
        }
        FshStatus status = parts == 1 ? buffer_append(room, only, *length_ret, error) : FSH_OK;
        if (!status)
            status = buffer_append(room, chunk.data, chunk.length, error);
        if (status)
            return status;
        only = NULL;
    }
    for (; !whole && png_chunk_read(bytes, length, at, &chunk); at = chunk.next) {
        whole = png_chunk_is(&chunk, "IEND") && chunk.length == 0;
        if (!whole && !is_known(chunks, &chunk, true, counts))
            return FSH_OK;
    }
    if (!whole)
        return FSH_OK;
    *stream_ret = only ? only : room->bytes;
    if (!only)
        *length_ret = room->length;
    return FSH_OK;
}
