/* image_metadata_write.h - sets the metadata of an encoded WebP to exactly what is asked for. Internal to
 * imaging. (png_encode.h writes that of a PNG by itself.)
 *
 * libvips 8.14 cannot do this. It adds an EXIF block with a resolution of 25.4 dpi, and passes a given EXIF
 * block through libexif, which adds tags and loses unknown ones. The function here writes the blocks byte for
 * byte, and nothing else. Source: RFC 9649, 2.5 to 2.7. */
#ifndef FSHARD_IMAGING_IMAGE_METADATA_WRITE_H
#define FSHARD_IMAGING_IMAGE_METADATA_WRITE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"

/* Removes from `file` all chunks that the pixels do not need, then adds the blocks of metadata (NULL or empty
 * blocks: none). file: as our encoder wrote it, lossy. FSH_ERR_MEMORY. FSH_ERR_LIBRARY: the file is not built
 * as expected. FSH_ERR_MISMATCH: a block or the file is larger than 256 MiB and there is metadata. */
FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error);

#endif
