/* png_encode.h - pixels to PNG by libdeflate. Internal to imaging; programs use encode.h.
 *
 * The filter of each row is the one that libpng would choose, and libdeflate's level 6 makes files a little
 * smaller than zlib's (what libpng and Pillow use) in a third of the time: docs/measurements has the numbers.
 *
 * Threads: one PngEncoder per thread. */
#ifndef FSHARD_IMAGING_PNG_ENCODE_H
#define FSHARD_IMAGING_PNG_ENCODE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"
#include "imaging/mask.h"

typedef struct PngEncoder PngEncoder;

FshStatus png_encoder_new(PngEncoder **png, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void png_encoder_free(PngEncoder **png);

/* Writes the image, 8-bit gray or RGB, as a PNG file to out and sets its length. The file has the chunks that
 * pixels need, and the blocks of metadata (NULL or empty blocks: none), byte for byte: iCCP, eXIf, and XMP in
 * the iTXt chunk that XMP part 3, 1.1.5 defines. FSH_ERR_MISMATCH: a block is larger than 256 MiB.
 * FSH_ERR_MEMORY. */
FshStatus png_encoder_encode(PngEncoder *png, const Image *image, const ImageMetadata *metadata, Buffer *out,
                             FshError *error);

/* Writes the values of a mask, one channel, each below 2^depth, as a PNG file of this format to out and sets
 * its length. FSH_ERR_MISMATCH: a palette without colours. FSH_ERR_MEMORY. */
FshStatus png_encoder_encode_mask(PngEncoder *png, const Image *mask, const MaskFormat *format, Buffer *out,
                                  FshError *error);

#endif
