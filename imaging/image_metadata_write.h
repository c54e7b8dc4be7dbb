/* image_metadata_write.h - makes the metadata of a PNG or WebP exactly what is asked for. Internal to
 * imaging.
 *
 * Not left to libvips, because 8.14 writes some of its own, asked or not: a resolution of 25.4 dpi into each
 * PNG, an EXIF block with that into each WebP. Given an EXIF block it passes it through libexif, which adds
 * tags and loses those it does not know, and writes it into a PNG twice; XMP goes into a chunk that the XMP
 * specification does not know. Here blocks are written byte for byte, and nothing else. Sources: PNG third
 * edition, 11.3 (iCCP, eXIf, iTXt); XMP part 3, 1.1.5 (PNG); RFC 9649, 2.5 to 2.7 (WebP). */
#ifndef FSHARD_IMAGING_IMAGE_METADATA_WRITE_H
#define FSHARD_IMAGING_IMAGE_METADATA_WRITE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"

/* file: as our encoder wrote it, gray or RGB, WebP lossy. Whatever is not needed for the pixels goes;
 * metadata comes (NULL, and blocks that are empty: none). FSH_ERR_MEMORY. FSH_ERR_LIBRARY: file is not built
 * as such a file is. FSH_ERR_MISMATCH: a block or the file is larger than 256 MiB and there is metadata. */
FshStatus metadata_write_png(Buffer *file, const ImageMetadata *metadata, FshError *error);
FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error);

#endif
