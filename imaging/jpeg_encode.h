/* jpeg_encode.h - pixels to baseline JPEG by libjpeg-turbo. Internal to imaging; programs use encode.h.
 * Threads: one JpegEncoder per thread. */
#ifndef FSHARD_IMAGING_JPEG_ENCODE_H
#define FSHARD_IMAGING_JPEG_ENCODE_H

#include "imaging/encode.h"

typedef struct JpegEncoder JpegEncoder;

FshStatus jpeg_encoder_new(JpegEncoder **jpeg, FshError *error);
void jpeg_encoder_free(JpegEncoder **jpeg);

/* As image_encode_jpeg. */
FshStatus jpeg_encoder_encode(JpegEncoder *jpeg, const Image *image, int quality,
                              ImageSubsampling subsampling, Buffer *out, FshError *error);

#endif
