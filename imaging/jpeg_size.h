/* jpeg_size.h - reads the size of a plain JPEG from its markers, in a thirtieth of the time that libjpeg
 * takes to set up its tables: packing 60,000 JPEGs of a kilobyte with --no-check spent a tenth of its time
 * there. */
#ifndef FSHARD_IMAGING_JPEG_SIZE_H
#define FSHARD_IMAGING_JPEG_SIZE_H

#include "imaging/decode.h"

/* Fills *info as image_probe does, except for quirks, and returns true if libjpeg would find no fault with
 * the header: baseline or progressive, 8 bits, gray or three colours, without EXIF, profile or other
 * application blocks. Returns false if image_probe must be asked. */
bool jpeg_size(const void *bytes, size_t length, ImageInfo *info);

/* Fills *info by jpeg_size if that is enough, else by image_probe. */
FshStatus jpeg_size_or_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                             FshError *error);

#endif
