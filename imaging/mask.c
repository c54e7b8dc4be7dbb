#include "imaging/mask.h"

#include <string.h>

#include "imaging/png_chunks.h"

bool mask_begins(const void *bytes, size_t length)
{
    enum { DEPTH_AT = 24, COLOUR_AT = 25 }; /* signature, length and type of IHDR, width, height */
    const uint8_t *head = bytes;
    return length >= MASK_HEAD_BYTES && image_sniff(bytes, length) == IMAGE_PNG &&
           (head[COLOUR_AT] == PNG_PALETTE || (head[COLOUR_AT] == PNG_GRAY && head[DEPTH_AT] <= 8));
}

void mask_voc_colours(uint8_t colours[MASK_COLOURS_BYTES])
{
    memset(colours, 0, MASK_COLOURS_BYTES);
    for (unsigned value = 0; value < 256; value++) {
        for (unsigned bit = 0; bit < 8; bit++)
            colours[value * 3 + bit % 3] |= (uint8_t)((value >> bit & 1) << (7 - bit / 3));
    }
}

MaskFormat mask_voc_format(uint8_t colours[MASK_COLOURS_BYTES])
{
    mask_voc_colours(colours);
    return (MaskFormat){
        .depth = 8, .is_palette = true, .palette = colours, .palette_bytes = MASK_COLOURS_BYTES};
}

FshStatus mask_colour(const Image *mask, const uint8_t colours[MASK_COLOURS_BYTES], Image *image,
                      FshError *error)
{
    const size_t count = (size_t)mask->width * mask->height;
    FshStatus status = image_reserve(image, mask->width, mask->height, 3, error);
    for (size_t i = 0; i < count && !status; i++)
        memcpy(image->pixels + i * 3, colours + (size_t)mask->pixels[i] * 3, 3);
    return status;
}

MaskNearest mask_nearest_from(uint32_t from, uint32_t to, uint32_t first)
{
    MaskNearest nearest = {.step = (double)from / to, .last = from - 1};
    nearest.place = nearest.step * 0.5;
    for (uint32_t i = 0; i < first; i++)
        nearest.place += nearest.step;
    return nearest;
}

uint32_t mask_nearest_next(MaskNearest *nearest)
{
    const double place = nearest->place;
    nearest->place += nearest->step;
    return place < nearest->last ? (uint32_t)place : nearest->last;
}

FshStatus mask_resize(const Image *mask, uint32_t width, uint32_t height, Image *target, FshError *error)
{
    FshStatus status = image_reserve(target, width, height, 1, error);
    if (status)
        return status;
    const MaskNearest columns = mask_nearest_from(mask->width, width, 0);
    MaskNearest rows = mask_nearest_from(mask->height, height, 0);
    uint8_t *to = target->pixels;
    for (uint32_t y = 0; y < height; y++, to += width) {
        const uint8_t *row = mask->pixels + (size_t)mask_nearest_next(&rows) * mask->width;
        MaskNearest at = columns;
        for (uint32_t x = 0; x < width; x++)
            to[x] = row[mask_nearest_next(&at)];
    }
    return FSH_OK;
}
