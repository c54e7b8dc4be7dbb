/* image_metadata_write.h - sets the metadata of an encoded PNG or WebP to exactly what is asked for. Internal
 * to imaging.
 *
 * libvips 8.14 cannot do this. It adds metadata of its own: a resolution of 25.4 dpi to each PNG, an EXIF
 * block with that to each WebP. It passes a given EXIF block through libexif, which adds tags and loses
 * unknown ones, and writes it into a PNG twice; it writes XMP into a chunk that the XMP specification does
 * not define. The functions here write the blocks byte for byte, and nothing else. Sources: PNG third
 * edition, 11.3 (iCCP, eXIf, iTXt); XMP part 3, 1.1.5 (PNG); RFC 9649, 2.5 to 2.7 (WebP). */
#ifndef FSHARD_IMAGING_IMAGE_METADATA_WRITE_H
#define FSHARD_IMAGING_IMAGE_METADATA_WRITE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"

/* Remove from `file` all chunks that the pixels do not need, then add the blocks of metadata (NULL or empty
 * blocks: none). file: as our encoder wrote it, gray or RGB, WebP lossy. FSH_ERR_MEMORY. FSH_ERR_LIBRARY: the
 * file is not built as expected. FSH_ERR_MISMATCH: a block or the file is larger than 256 MiB and there is
 * metadata. */
FshStatus metadata_write_png(Buffer *file, const ImageMetadata *metadata, FshError *error);
FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error);

#endif
