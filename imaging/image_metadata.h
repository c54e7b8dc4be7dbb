/* image_metadata.h - what an image file carries besides pixels: EXIF, colour profile, XMP. */
#ifndef FSHARD_IMAGING_IMAGE_METADATA_H
#define FSHARD_IMAGING_IMAGE_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "common/file.h"

typedef struct ImageBlock {
    const void *bytes; /* NULL: there is none; not owned */
    size_t length;
} ImageBlock;

/* Blocks as the file has them, hostile bytes included. Each is passed on whole and unread. */
typedef struct ImageMetadata {
    ImageBlock exif; /* begins with the TIFF header ("II*\0" or "MM\0*"), without JPEG's "Exif\0\0" */
    ImageBlock icc;  /* the profile, joined from its parts */
    ImageBlock xmp;  /* the packet, without JPEG's "http://ns.adobe.com/xap/1.0/\0" */
} ImageMetadata;

/* Fills upright with metadata for pixels that are turned already: copies of EXIF and XMP that say orientation
 * 1 (exif_make_upright), kept in room, and the same profile. A damaged EXIF block is left out. The tags for
 * size and thumbnail stay unchanged. upright may be metadata. FSH_ERR_MEMORY. */
FshStatus image_metadata_upright(const ImageMetadata *metadata, Buffer *room, ImageMetadata *upright,
                                 FshError *error);

#endif
