#include "tests/imaging/make_odd.h"

#include <stdlib.h>
#include <string.h>

static void append(Buffer *out, const void *bytes, size_t length)
{
    if (buffer_append(out, bytes, length, NULL))
        abort();
}

static void put(Buffer *out, size_t count, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                              (uint8_t)(value >> 24)};
    append(out, bytes, count);
}

/* ---- TIFF ---- */

enum { TIFF_SHORT = 3, TIFF_LONG = 4, TIFF_RATIONAL = 5, TIFF_TAGS = 13, TIFF_HEADER_BYTES = 8 };

typedef struct Tag {
    uint16_t number, type;
    uint32_t count, value; /* or, of what does not fit, where it is */
} Tag;

void make_tiff(const MakeTiff *options, Buffer *out)
{
    static const uint32_t reference[] = {0, 1, 255, 1, 128, 1, 255, 1, 128, 1, 255, 1};
    const uint32_t bits_at = TIFF_HEADER_BYTES, extra_at = bits_at + 2 * options->samples;
    const uint32_t reference_at = extra_at + 2 * MAKE_TIFF_EXTRA_MAX,
                   strip_at = reference_at + sizeof reference;
    const uint32_t folder_at = strip_at + (uint32_t)options->strip_bytes,
                   bits = options->bits ? options->bits : 8;
    const uint32_t extra = options->extra[0] | (uint32_t)options->extra[1] << 16;
    const Tag tags[TIFF_TAGS] = {
        {256, TIFF_SHORT, 1, options->width},
        {257, TIFF_SHORT, 1, options->height},
        {258, TIFF_SHORT, options->samples, options->samples > 2 ? bits_at : bits | bits << 16},
        {259, TIFF_SHORT, 1, options->compression},
        {262, TIFF_SHORT, 1, options->photometric},
        {273, TIFF_LONG, 1, strip_at},
        {277, TIFF_SHORT, 1, options->samples},
        {278, TIFF_SHORT, 1, options->height},
        {279, TIFF_LONG, 1, (uint32_t)options->strip_bytes},
        {284, TIFF_SHORT, 1, 1},
        {338, TIFF_SHORT, (uint32_t)options->extra_count, options->extra_count > 2 ? extra_at : extra},
        {530, TIFF_SHORT, 2, options->across | (uint32_t)options->down << 16},
        {532, TIFF_RATIONAL, 6, reference_at},
    };
    uint32_t tags_count = 0;
    out->length = 0;
    append(out, "II*\0", 4);
    put(out, 4, folder_at);
    for (size_t i = 0; i < options->samples; i++)
        put(out, 2, bits);
    for (size_t i = 0; i < MAKE_TIFF_EXTRA_MAX; i++)
        put(out, 2, options->extra[i]);
    for (size_t i = 0; i < sizeof reference / sizeof reference[0]; i++)
        put(out, 4, reference[i]);
    append(out, options->strip, options->strip_bytes);
    put(out, 2, 0); /* how many tags: below */
    for (size_t i = 0; i < TIFF_TAGS; i++) {
        if ((tags[i].number == 338 && !options->extra_count) || (tags[i].number >= 530 && !options->across))
            continue;
        put(out, 2, tags[i].number);
        put(out, 2, tags[i].type);
        put(out, 4, tags[i].count);
        put(out, 4, tags[i].value);
        tags_count++;
    }
    put(out, 4, 0);
    out->bytes[folder_at] = (uint8_t)tags_count;
}

/* ---- GIF ---- */

void make_gif(uint16_t width, uint16_t height, const uint8_t *pixels, Buffer *out, size_t *codes_at_ret)
{
    enum { LITERAL_BITS = 7, CLEAR = 128, END = 129, BLOCK = 127 };
    const size_t count = (size_t)width * height;
    out->length = 0;
    append(out, "GIF89a", 6);
    put(out, 2, width);
    put(out, 2, height);
    put(out, 3, 0xF6); /* a table of 128 colours */
    for (uint32_t i = 0; i < CLEAR; i++)
        put(out, 3, i * 2 * 0x010101);
    put(out, 1, 0x2C);
    put(out, 4, 0);
    put(out, 2, width);
    put(out, 2, height);
    put(out, 2, LITERAL_BITS << 8); /* no table of its own; then the bits of a pixel */
    *codes_at_ret = out->length;
    for (size_t i = 0; i < count; i += BLOCK - 1) { /* the table is emptied before codes would take 9 bits */
        const size_t pixels_count = count - i < BLOCK - 1 ? count - i : BLOCK - 1;
        put(out, 1, (uint32_t)pixels_count + 1);
        put(out, 1, CLEAR);
        append(out, pixels + i, pixels_count);
    }
    put(out, 1, 1);
    put(out, 1, END);
    put(out, 2, 0x3B00);
}

/* ---- TGA ---- */

void make_tga(uint8_t type, uint16_t width, uint16_t height, uint8_t depth, const void *bytes, size_t length,
              Buffer *out)
{
    enum { TOP_DOWN = 0x20 };
    out->length = 0;
    put(out, 3, (uint32_t)type << 16);
    put(out, 4, 0);
    put(out, 4, 0);
    put(out, 1, 0);
    put(out, 2, width);
    put(out, 2, height);
    put(out, 1, depth);
    put(out, 1, TOP_DOWN);
    append(out, bytes, length);
}
