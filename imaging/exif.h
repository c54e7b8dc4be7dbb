/* exif.h - the one thing of EXIF that changes pixels: orientation. Bytes may be hostile; nothing outside them
 * is read. Source: EXIF 2.32, section 4.6 (TIFF 6.0 structure). */
#ifndef FSHARD_IMAGING_EXIF_H
#define FSHARD_IMAGING_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes of "Exif\0\0" a block has in front of its TIFF header: 6 (JPEG's APP1, some WebP and HEIF
 * files) or 0. */
size_t exif_prefix_bytes(const void *bytes, size_t length);

/* bytes: an EXIF block, with "Exif\0\0" in front or without.
 * Returns 1..8; 1 when the tag is absent or its value is nonsense. *damaged_ret is set to true when the block
 * contradicts itself, and left alone otherwise. */
uint8_t exif_orientation(const void *bytes, size_t length, bool *damaged_ret);

/* Makes the block say orientation 1, whatever it said, in place: for pixels that are turned already. A block
 * without the tag says so by that. False: the block is too damaged to tell what a reader would find in it (no
 * TIFF header, a folder outside it or cut short); it is not to be passed on. The thumbnail's own orientation,
 * in the second folder, stays. */
bool exif_make_upright(uint8_t *bytes, size_t length);

/* The same for tiff:Orientation of an XMP packet (XMP part 2, 3.2), as an attribute or as an element. */
void xmp_make_upright(char *text, size_t length);

#endif
