/* image_metadata_write.h - puts metadata into an encoded WebP. Internal to imaging. (png_encode.h writes that
 * of a PNG by itself.)
 *
 * libvips 8.14 passes an EXIF block through libexif, which adds tags and loses unknown ones. The function
 * here writes the blocks byte for byte, and nothing else. Source: RFC 9649, 2.5 to 2.7. */
#ifndef FSHARD_IMAGING_IMAGE_METADATA_WRITE_H
#define FSHARD_IMAGING_IMAGE_METADATA_WRITE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"

/* Adds the blocks of metadata (NULL or empty blocks: none) to `file`, a simple lossy one as our encoder
 * writes it. FSH_ERR_MEMORY. FSH_ERR_LIBRARY: the file is not built so. FSH_ERR_MISMATCH: a block or the file
 * is larger than 256 MiB. */
FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error);

#endif
