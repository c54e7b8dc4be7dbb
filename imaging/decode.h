/* decode.h - image bytes to 8-bit pixels.
 *
 * JPEG goes straight through libjpeg-turbo, PBM, PGM and PPM are read here; everything else, CMYK and YCCK
 * JPEGs, and colour profiles of unusual kinds (icc.h) go through libvips, which is a plugin
 * (libfshard-vips.so) loaded at the first such image: programs start in a millisecond, and a machine without
 * libvips still trains on JPEG and raw. Without the plugin such an image is FSH_ERR_UNSUPPORTED, and the
 * message says how to get it.
 *
 * One rule of colours, for every format:
 *   gray stays gray (channels 1) unless RGB is asked for, then r = g = b; palette is expanded; CMYK and YCCK
 * are converted to sRGB by their profile, or by libvips' default one (Adobe's inversion undone); 16-bit keeps
 * the high byte (rounded); alpha is composited over white, as a page shows it (Pillow's convert("RGB") drops
 * it and shows what was hidden); an embedded ICC profile is applied if convert_icc is set, else ignored, as
 * Pillow does.
 *
 * EXIF orientation is applied unless ignore_orientation: the result is what a viewer shows.
 *
 * Where the file is to be made smaller, image_convert_profile after the resampling has fewer pixels to do
 * than convert_icc. Threads: one ImageDecoder per thread. */
#ifndef FSHARD_IMAGING_DECODE_H
#define FSHARD_IMAGING_DECODE_H

#include "imaging/image.h"
#include "imaging/image_metadata.h"

typedef struct ImageDecoder ImageDecoder;
typedef struct JpegDecoder JpegDecoder; /* jpeg_decode.h */

FshStatus image_decoder_new(ImageDecoder **decoder, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void image_decoder_free(ImageDecoder **decoder);

#define IMAGE_MAX_PIXELS_DEFAULT ((uint64_t)1 << 28) /* 268 megapixels: refuses decompression bombs */

typedef struct ImageDecodeOptions {
    uint32_t channels; /* 1 or 3; 0: 1 for gray images, else 3 */
    bool ignore_orientation;
    bool convert_icc;     /* apply an embedded profile (to sRGB) */
    bool keep_metadata;   /* image_decoder_metadata is to be asked */
    bool defer_icc;       /* with convert_icc, where it can wait (JPEG): leave it to image_convert_profile */
    bool allow_truncated; /* false: a JPEG that ends early, or has corrupt data, fails; true: what is there,
                             and a warning */
    uint64_t max_pixels;  /* 0: IMAGE_MAX_PIXELS_DEFAULT; checked before memory is taken */
    /* Scaled decode, JPEG only: the result may be smaller than the image by a factor 1/2, 1/4, 1/8, as long
     * as it keeps at least this many pixels on each edge (as displayed). 0: full size. Others decode in full.
     */
    uint32_t least_width, least_height;
} ImageDecodeOptions;

/* The header alone: format, size, orientation, quirks. Takes no memory for pixels. */
FshStatus image_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                      FshError *error);

/* FSH_ERR_MISMATCH, with the message of image_decode, if the header claims more than max_pixels (0:
 * IMAGE_MAX_PIXELS_DEFAULT). */
FshStatus image_check_size(const ImageInfo *info, uint64_t max_pixels, FshError *error);

/* Decodes into image (reserved here, kept by the caller for the next). info may be NULL; it is filled even
 * where decoding fails after the header. FSH_ERR_CORRUPT: truncated or damaged; FSH_ERR_UNSUPPORTED: no
 * image, 12-bit JPEG, a camera's raw file (camera_raw.h), or a format no decoder here reads;
 * FSH_ERR_MISMATCH: more than max_pixels; FSH_ERR_MEMORY. Messages do not name the file: the caller knows it
 * and prepends. */
FshStatus image_decode(ImageDecoder *decoder, const void *bytes, size_t length,
                       const ImageDecodeOptions *options, Image *image, ImageInfo *info, FshError *error);

/* A part of an image: pixels of its full size, as displayed. */
typedef struct ImagePart {
    uint32_t left, top, width, height;
} ImagePart;

/* Where the pixels of a decoded part lie: the first is pixel (left, top) of the image at eighths/8 of its
 * size. */
typedef struct ImagePlace {
    uint32_t left, top, eighths;
} ImagePlace;

/* image_decode for one who needs no more than `part`: image holds that, and maybe more; place says where it
 * lies. An upright JPEG is transformed only there (in whole blocks), and not read behind the part's last row:
 * damage further down is not seen. Everything else is decoded whole, and in full size if it is not upright.
 * Pixels are those of image_decode, bit for bit. convert_icc and keep_metadata must not be set.
 * FSH_ERR_MISMATCH also where the image is not width x height as displayed: the part was chosen for
 * another. */
FshStatus image_decode_part(ImageDecoder *decoder, const void *bytes, size_t length,
                            const ImageDecodeOptions *options, uint32_t width, uint32_t height,
                            const ImagePart *part, Image *image, ImagePlace *place, FshError *error);

/* What the image that was decoded last carries, after an image_decode with keep_metadata that succeeded: of
 * JPEG, PNG, WebP, HEIF; of TIFF profile and XMP, not its own tags of the camera. It fits the pixels that
 * came out: EXIF and XMP say orientation 1 unless ignore_orientation was set (in HEIF always: its pixels come
 * turned), and an EXIF block too damaged for that is left out; the profile is left out if convert_icc was
 * set, and if the pixels are of other colours than the file's (CMYK, Lab). Blocks are the decoder's, until
 * its next image. */
void image_decoder_metadata(const ImageDecoder *decoder, ImageMetadata *metadata);

/* Past image_decode: jpeg_shrink takes the planes of the JPEG whose header image_probe has read. The decoder
 * of that, which stays this one's; and what image_decoder_metadata is then to give, as after image_decode
 * with these options. */
JpegDecoder *image_decoder_jpeg(ImageDecoder *decoder);
FshStatus image_decoder_fit_metadata(ImageDecoder *decoder, const ImageDecodeOptions *options,
                                     const ImageInfo *info, FshError *error);

/* Converts image, which the last image_decode gave or which was resampled from that, from its embedded
 * profile to sRGB. Does nothing where there is nothing left to do. FSH_ERR_CORRUPT: the profile is unusable;
 * the pixels are untouched. */
FshStatus image_convert_profile(ImageDecoder *decoder, Image *image, FshError *error);

/* "libjpeg-turbo 2.1.5, libvips 8.14.1" (the latter loads the plugin), for --version. Returns buffer. */
const char *image_library_versions(char *buffer, size_t buffer_bytes);

#endif
