/* jpeg_encode.h - pixels to baseline JPEG by libjpeg-turbo. Internal to imaging; programs use encode.h.
 * Threads: one JpegEncoder per thread. */
#ifndef FSHARD_IMAGING_JPEG_ENCODE_H
#define FSHARD_IMAGING_JPEG_ENCODE_H

#include "imaging/encode.h"
#include "imaging/image_metadata.h"

typedef struct JpegEncoder JpegEncoder;

FshStatus jpeg_encoder_new(JpegEncoder **jpeg, FshError *error);
void jpeg_encoder_free(JpegEncoder **jpeg);

/* Encodes image as image_encode does with IMAGE_JPEG. metadata (NULL: none) goes into APP1 and APP2 markers.
 * A block that these cannot hold is left out: EXIF above 65527 bytes, XMP above 65502, a profile above 255
 * markers (16.7 MB). */
FshStatus jpeg_encoder_encode(JpegEncoder *jpeg, const Image *image, int quality,
                              ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                              FshError *error);

/* Samples of one colour plane. Each row has room for whole blocks of eight; the caller fills the rest of the
 * last block with the last sample. */
typedef struct JpegSamples {
    uint8_t *samples;    /* libjpeg only reads them */
    size_t stride_bytes; /* at least the width rounded up to 8 */
} JpegSamples;

/* Encodes colour planes: one (gray), or Y, Cb and Cr, the latter two halved in both directions (rounded up)
 * with IMAGE_SUBSAMPLING_420. width and height are those of the image and of Y. metadata and errors as with
 * jpeg_encoder_encode. */
FshStatus jpeg_encoder_encode_planes(JpegEncoder *jpeg, const JpegSamples *planes, uint32_t planes_count,
                                     uint32_t width, uint32_t height, int quality,
                                     ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                                     FshError *error);

#endif
