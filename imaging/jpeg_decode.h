/* jpeg_decode.h - JPEG to pixels by libjpeg-turbo. Internal to imaging; programs use decode.h.
 *
 *   jpeg_decoder_header(jpeg, bytes, length, strict, &info, &error);     // takes no memory for pixels
 *   jpeg_decoder_pixels(jpeg, channels, least_width, least_height, &image, &error);
 *
 * The bytes must stay until the pixels are read. Threads: one JpegDecoder per thread. */
#ifndef FSHARD_IMAGING_JPEG_DECODE_H
#define FSHARD_IMAGING_JPEG_DECODE_H

#include "imaging/image.h"
#include "imaging/metadata.h"

typedef struct JpegDecoder JpegDecoder;

FshStatus jpeg_decoder_new(JpegDecoder **jpeg, FshError *error);
void jpeg_decoder_free(JpegDecoder **jpeg);

/* Reads up to the first scan and fills info. strict: damage fails, here and in the pixels.
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED (12-bit, lossless). info is filled as far as known in any case. */
FshStatus jpeg_decoder_header(JpegDecoder *jpeg, const void *bytes, size_t length, bool strict,
                              ImageInfo *info, FshError *error);

/* After a header that succeeded and whose quirks do not say CMYK (that is libvips' work). channels 1 or 3.
 * Scales by 1/2, 1/4 or 1/8 while at least least_width x least_height (as stored, 0: full size) remain.
 * Pixels are as stored: the caller applies the orientation. info's quirks gain IMAGE_QUIRK_WARNING if libjpeg
 * warned. */
FshStatus jpeg_decoder_pixels(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width,
                              uint32_t least_height, Image *image, ImageInfo *info, FshError *error);

/* The embedded ICC profile of the file whose header was read last; NULL if there is none or it is for other
 * colours than the file has. The decoder's own, until its next header. */
const void *jpeg_decoder_profile(const JpegDecoder *jpeg, size_t *length_ret);

/* What the file whose header was read last carries: its first EXIF and XMP blocks, and the profile as
 * jpeg_decoder_profile gives it. The decoder's own, until its next header. */
void jpeg_decoder_metadata(const JpegDecoder *jpeg, ImageMetadata *metadata);

/* "libjpeg-turbo 2.1.5"; static. */
const char *jpeg_library_version(void);

#endif
