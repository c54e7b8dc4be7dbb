/* exif.h - orientation, the one EXIF tag that changes pixels. Bytes may be hostile; nothing outside them is
 * read. Source: EXIF 2.32, section 4.6 (TIFF 6.0 structure). */
#ifndef FSHARD_IMAGING_EXIF_H
#define FSHARD_IMAGING_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the "Exif\0\0" that precedes the TIFF header of an EXIF block: 6 (JPEG's APP1, some
 * WebP and HEIF files) or 0. */
size_t exif_prefix_bytes(const void *bytes, size_t length);

/* Returns the orientation that an EXIF block gives, 1..8; 1 if the tag is absent or its value is invalid.
 * bytes may begin with "Exif\0\0". Sets *damaged_ret to true if the block contradicts itself, and leaves it
 * alone otherwise. */
uint8_t exif_orientation(const void *bytes, size_t length, bool *damaged_ret);

/* Sets the orientation of an EXIF block to 1, in place, for pixels that are turned already. A block without
 * the tag is left as it is. The thumbnail's own orientation, in the second folder, stays. Returns false if
 * the block is so damaged that readers may disagree about its tags (no TIFF header, a folder outside it or
 * cut short): do not pass such a block on. */
bool exif_make_upright(uint8_t *bytes, size_t length);

/* Sets tiff:Orientation of an XMP packet to 1, in place, be it an attribute or an element (XMP part 2,
 * 3.2). */
void xmp_make_upright(char *text, size_t length);

#endif
