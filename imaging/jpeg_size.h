/* jpeg_size.h - the size of a plain JPEG by its markers, in a thirtieth of the time that libjpeg takes to set
 * up its tables: of 60,000 JPEGs of a kilobyte, packing with --no-check spent a tenth of its time there. */
#ifndef FSHARD_IMAGING_JPEG_SIZE_H
#define FSHARD_IMAGING_JPEG_SIZE_H

#include "imaging/decode.h"

/* True, with *info as image_probe fills it but for the quirks, for a header in which libjpeg would find no
 * fault: baseline or progressive, 8 bits, gray or three colours, without EXIF, profile or other blocks of
 * programs, which image_probe looks into. False says nothing but that image_probe must be asked. */
bool jpeg_size(const void *bytes, size_t length, ImageInfo *info);

/* By jpeg_size where that is enough, else by image_probe. */
FshStatus jpeg_size_or_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                             FshError *error);

#endif
