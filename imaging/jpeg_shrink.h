/* jpeg_shrink.h - a JPEG made smaller without leaving its own colour space.
 *
 *   status = jpeg_decoder_header(decoder, bytes, length, false, &info, &error);
 *   if (!status && jpeg_decoder_planes_count(decoder))
 *       status = jpeg_shrink(shrinker, decoder, encoder, &options, &out, &report, &error);
 *
 * Decoding, resampling and encoding work on planes: each of Y, Cb and Cr is decoded at the smallest DCT scale
 * that its target needs, and resampled with Pillow's weights straight to the size that the encoder wants. The
 * steps that a detour through RGB would add (upsampling, conversion there and back, subsampling) are left
 * out: they cost time, and round four times. Where the source's colour is subsampled and the target's too, a
 * colour sample is filtered once instead of three times.
 *
 * Rows go through the vertical and the horizontal pass while they are in the first-level cache; no more
 * source rows are held than the filter reaches. Colour is sited in the centre, as libjpeg does it: a halved
 * sample covers columns 2j and 2j + 1.
 *
 * Measured on 286 ImageNet photographs (300 files for the rate), margin 2, against Pillow's full decoding and
 * Lanczos:
 *
 *   short edge                            64 px          160 px          256 px
 *   quality 100, 4:4:4    planes    47.7 dB (41.4)   48.9 dB (39.6)   48.9 dB (41.7)     mean (worst)
 *                         over RGB  48.0 dB (42.0)   51.0 dB (46.2)   51.3 dB (47.0)
 *   quality 90, 4:2:0     planes    33.1 dB          34.9 dB          35.6 dB
 *                         over RGB  33.0 dB          34.8 dB          35.5 dB
 *   images/s of one core  planes                     845              (libjpeg's decode and encode alone:
 *                         840) over RGB                   710
 *
 * The loss at quality 100 is rounding (the passes run in another order than Pillow's) and, for 4:2:0 files,
 * the smoothing of colour by libjpeg's upsampling. Both are far below what quality 90 takes.
 *
 * Threads: one JpegShrinker per thread; it keeps weights and buffers from image to image. */
#ifndef FSHARD_IMAGING_JPEG_SHRINK_H
#define FSHARD_IMAGING_JPEG_SHRINK_H

#include "imaging/jpeg_decode.h"
#include "imaging/jpeg_encode.h"
#include "imaging/resample_kernels.h"

typedef struct JpegShrinker JpegShrinker;

FshStatus jpeg_shrinker_new(JpegShrinker **shrinker, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void jpeg_shrinker_free(JpegShrinker **shrinker);

typedef struct JpegShrinkOptions {
    uint32_t width, height; /* of the result as stored; the caller handles orientation */
    /* Each plane is decoded at the smallest of 1/8, 1/4 and 1/2 that leaves `margin` times its target's
     * edges; 0: in full. */
    uint32_t margin;
    ResampleFilter filter;
    int quality; /* 1..100 */
    ImageSubsampling subsampling;
    const ImageMetadata *metadata; /* NULL: none */
} JpegShrinkOptions;

/* Seconds that each phase took, and warnings. */
typedef struct JpegShrinkReport {
    uint32_t quirks; /* IMAGE_QUIRK_WARNING if libjpeg warned, else 0 */
    double decode_seconds, resample_seconds, encode_seconds;
} JpegShrinkReport;

/* Makes the JPEG smaller whose header `decoder` has read, to the size in options, and writes it to out. Fills
 * report after a failure too. FSH_ERR_CORRUPT: truncated or damaged, as if strict; FSH_ERR_MISMATCH: an empty
 * size, or an edge above 65500; FSH_ERR_UNSUPPORTED: no planes, or no header waiting; FSH_ERR_MEMORY. */
FshStatus jpeg_shrink(JpegShrinker *shrinker, JpegDecoder *decoder, JpegEncoder *encoder,
                      const JpegShrinkOptions *options, Buffer *out, JpegShrinkReport *report,
                      FshError *error);

/* Does the same, and writes the planes themselves as a Y4M file (y4m.h), not encoded: quality and metadata
 * are not read. 4:2:0 that is too small to be expanded again (planes_expandable) becomes 4:4:4. */
FshStatus jpeg_shrink_planes(JpegShrinker *shrinker, JpegDecoder *decoder, const JpegShrinkOptions *options,
                             Buffer *out, JpegShrinkReport *report, FshError *error);

/* Makes the shrinker use these kernels. For tests. */
void jpeg_shrinker_use_kernels(JpegShrinker *shrinker, const ResampleKernels *kernels);

#endif
