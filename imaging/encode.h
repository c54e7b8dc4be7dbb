/* encode.h - 8-bit pixels to image bytes. Threads: one ImageEncoder per thread. */
#ifndef FSHARD_IMAGING_ENCODE_H
#define FSHARD_IMAGING_ENCODE_H

#include "common/file.h"
#include "imaging/image.h"

typedef struct ImageEncoder ImageEncoder;

FshStatus image_encoder_new(ImageEncoder **encoder, FshError *error);
void image_encoder_free(ImageEncoder **encoder);

typedef enum ImageSubsampling { IMAGE_SUBSAMPLING_420, IMAGE_SUBSAMPLING_444 } ImageSubsampling;

/* Appends nothing: out's length is set to the file's. quality 1..100. Baseline, standard Huffman tables
 * (optimised ones cost ten times the time for 5 % of the bytes), no metadata. FSH_ERR_MISMATCH: an edge above
 * 65500. */
FshStatus image_encode_jpeg(ImageEncoder *encoder, const Image *image, int quality,
                            ImageSubsampling subsampling, Buffer *out, FshError *error);

/* Through the libvips plugin; lossless. */
FshStatus image_encode_png(ImageEncoder *encoder, const Image *image, Buffer *out, FshError *error);

#endif
