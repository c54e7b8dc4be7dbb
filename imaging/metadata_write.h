/* metadata_write.h - puts metadata into a PNG or WebP that was written without. Internal to imaging.
 *
 * Not left to libvips, because it rewrites EXIF by libexif (a resolution of 25.4 dpi and other tags are invented, what
 * libexif does not know is lost), libvips 8.14 writes eXIf into a PNG twice, and XMP in a chunk that the XMP specification
 * does not know. Here blocks are written byte for byte.
 * Sources: PNG third edition, 11.3 (iCCP, eXIf, iTXt); XMP part 3, 1.1.5 (PNG); RFC 9649, 2.5 to 2.7 (WebP). */
#ifndef FSHARD_IMAGING_METADATA_WRITE_H
#define FSHARD_IMAGING_METADATA_WRITE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/metadata.h"

/* file: as our encoder wrote it, without metadata. Blocks that are NULL or empty are left out.
 * FSH_ERR_MEMORY. FSH_ERR_LIBRARY: file is not built as the encoder builds it. FSH_ERR_MISMATCH: more than 1 GiB. */
FshStatus metadata_write_png(Buffer *file, const ImageMetadata *metadata, FshError *error);
FshStatus metadata_write_webp(Buffer *file, const Image *image, const ImageMetadata *metadata,
                              FshError *error);

#endif
