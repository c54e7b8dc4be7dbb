/* exif.h - the one thing of EXIF that changes pixels: orientation. Bytes may be hostile; nothing outside them
 * is read. Source: EXIF 2.32, section 4.6 (TIFF 6.0 structure). */
#ifndef FSHARD_IMAGING_EXIF_H
#define FSHARD_IMAGING_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* bytes: an EXIF block, with "Exif\0\0" in front (JPEG's APP1) or without (PNG's eXIf, WebP's EXIF).
 * Returns 1..8; 1 when the tag is absent or its value is nonsense. *damaged_ret is set to true when the block
 * contradicts itself, and left alone otherwise. */
uint8_t exif_orientation(const void *bytes, size_t length, bool *damaged_ret);

#endif
