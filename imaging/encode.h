/* encode.h - 8-bit pixels to image bytes. Threads: one ImageEncoder per thread. */
#ifndef FSHARD_IMAGING_ENCODE_H
#define FSHARD_IMAGING_ENCODE_H

#include "common/file.h"
#include "imaging/image.h"
#include "imaging/image_metadata.h"
#include "imaging/mask.h"

typedef struct ImageEncoder ImageEncoder;
typedef struct JpegEncoder JpegEncoder; /* jpeg_encode.h */

FshStatus image_encoder_new(ImageEncoder **encoder, FshError *error);
void image_encoder_free(ImageEncoder **encoder);

typedef enum ImageSubsampling { IMAGE_SUBSAMPLING_420, IMAGE_SUBSAMPLING_444 } ImageSubsampling;

typedef struct ImageEncodeOptions {
    ImageFormat format;            /* IMAGE_JPEG, IMAGE_PNG or IMAGE_WEBP */
    int quality;                   /* of JPEG and WebP, 1..100 */
    ImageSubsampling subsampling;  /* of JPEG */
    const ImageMetadata *metadata; /* written with the pixels, byte for byte, and nothing else; NULL: none */
} ImageEncodeOptions;

/* Encodes image into out and sets its length.
 *
 *   JPEG  libjpeg-turbo, baseline, standard Huffman tables (optimised ones cost ten times the time for 5 % of
 *         the bytes). A metadata block that its markers cannot hold is left out (jpeg_encode.h).
 *   PNG   libdeflate; lossless.
 *   WebP  libwebp; lossy, at quality 100 too (which is libwebp's finest, not its lossless form); always
 *         4:2:0, and RGB: gray comes back with r = g = b.
 *
 * FSH_ERR_MISMATCH: an edge above 65500 (JPEG) or 16383 (WebP). FSH_ERR_UNSUPPORTED: another format, or WebP
 * without the libvips plugin. FSH_ERR_MEMORY. */
FshStatus image_encode(ImageEncoder *encoder, const Image *image, const ImageEncodeOptions *options,
                       Buffer *out, FshError *error);

/* Encodes the values of a mask, one channel, as a PNG of this format into out and sets its length
 * (png_encode.h). FSH_ERR_MISMATCH: a palette without colours. FSH_ERR_MEMORY. */
FshStatus image_encode_mask(ImageEncoder *encoder, const Image *mask, const MaskFormat *format, Buffer *out,
                            FshError *error);

/* Returns the JPEG encoder, for jpeg_shrink, which has planes instead of an image. It stays owned by this
 * encoder. */
JpegEncoder *image_encoder_jpeg(ImageEncoder *encoder);

#endif
