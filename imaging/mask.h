/* mask.h - what is done to the values of masks, the index images of segmentation: resized by the nearest
 * pixel, shown in colours.
 *
 * Threads: nothing here has a state of its own. */
#ifndef FSHARD_IMAGING_MASK_H
#define FSHARD_IMAGING_MASK_H

#include <stdbool.h>

#include "imaging/image.h"

enum { MASK_COLOURS_BYTES = 256 * 3, MASK_HEAD_BYTES = 26 };

/* Returns whether a file begins as a mask does: a PNG of a palette, or of gray of 1 to 8 bits. Of a
 * photograph in gray this is true, too. length: MASK_HEAD_BYTES are enough, fewer are none. */
bool mask_begins(const void *bytes, size_t length);

/* What a PNG of values is written as (PNG third edition, 11.2.2, 11.3.1.1). */
typedef struct MaskFormat {
    uint8_t depth;   /* bits of a value: 1, 2, 4 or 8 */
    bool is_palette; /* else gray */
    const uint8_t *palette;
    size_t palette_bytes;        /* the PLTE chunk's data: 3 bytes for each value; 0: there is none */
    const uint8_t *transparency; /* the tRNS chunk's data */
    size_t transparency_bytes;   /* 0: there is none */
} MaskFormat;

/* Fills colours with the colour map of Pascal VOC, red, green and blue for each value: the bits 0, 3, 6 … of
 * a value are the bits 7, 6, 5 … of red, the bits 1, 4, 7 … those of green, the bits 2, 5 those of blue.
 * Source: VOClabelcolormap of the VOC development kit (Everingham et al. 2010, "The Pascal Visual Object
 * Classes (VOC) Challenge"). Value 0 is black, 255 (the rim) 224, 224, 192. */
void mask_voc_colours(uint8_t colours[MASK_COLOURS_BYTES]);

/* Fills colours as mask_voc_colours, and returns the format of a PNG of 8 bits with this palette, which keeps
 * colours. */
MaskFormat mask_voc_format(uint8_t colours[MASK_COLOURS_BYTES]);

/* Makes a mask, [height, width] of values, an image of 3 channels in these colours. FSH_ERR_MEMORY. */
FshStatus mask_colour(const Image *mask, const uint8_t colours[MASK_COLOURS_BYTES], Image *image,
                      FshError *error);

/* Where the pixels of a resized row or column lie in that of the mask: Pillow's NEAREST, which adds up the
 * places of their centres (ImagingScaleAffine of src/libImaging/Geometry.c). */
typedef struct MaskNearest {
    double place, step;
    uint32_t last;
} MaskNearest;

/* Begins at pixel `first` of `to`, made of `from`. */
MaskNearest mask_nearest_from(uint32_t from, uint32_t to, uint32_t first);
/* Returns the place of the pixel, and goes on to the next one. */
uint32_t mask_nearest_next(MaskNearest *nearest);

/* Resizes a mask to width x height, each pixel the value of the one that its centre lies in: Pillow's
 * Image.resize(…, NEAREST). target is reserved here, and is another image. FSH_ERR_MEMORY. */
FshStatus mask_resize(const Image *mask, uint32_t width, uint32_t height, Image *target, FshError *error);

#endif
