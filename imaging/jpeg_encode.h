/* jpeg_encode.h - pixels to baseline JPEG by libjpeg-turbo. Internal to imaging; programs use encode.h.
 * Threads: one JpegEncoder per thread. */
#ifndef FSHARD_IMAGING_JPEG_ENCODE_H
#define FSHARD_IMAGING_JPEG_ENCODE_H

#include "imaging/encode.h"
#include "imaging/metadata.h"

typedef struct JpegEncoder JpegEncoder;

FshStatus jpeg_encoder_new(JpegEncoder **jpeg, FshError *error);
void jpeg_encoder_free(JpegEncoder **jpeg);

/* As image_encode with IMAGE_JPEG. metadata (NULL: none) goes into APP1 and APP2 markers; a block that these cannot hold
 * is left out: EXIF above 65527 bytes, XMP above 65502, a profile above 255 markers (16.7 MB). */
FshStatus jpeg_encoder_encode(JpegEncoder *jpeg, const Image *image, int quality,
                              ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                              FshError *error);

#endif
