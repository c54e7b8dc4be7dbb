/* decode.h - image bytes to 8-bit pixels.
 *
 * libjpeg-turbo decodes JPEG, libdeflate the PNGs that have nothing odd (png_chunks.h), the reader in
 * pnm_decode.h PBM, PGM and PPM, and that in y4m.h Y4M. Everything else, CMYK and YCCK JPEGs, and colour
 * profiles of unusual kinds (icc.h) go through libvips. libvips is a plugin (libfshard-vips.so) that is
 * loaded at the first image that needs it: programs start in a millisecond, and a machine without libvips
 * still trains on JPEG, PNG and raw. Without the plugin such an image is FSH_ERR_UNSUPPORTED, and the message
 * says how to get it.
 *
 * Colours follow one rule for every format:
 *   - gray stays gray (channels 1) unless RGB is asked for, then r = g = b;
 *   - a palette is expanded;
 *   - CMYK and YCCK become sRGB by their profile, or by libvips' default one (Adobe's inversion undone);
 *   - 16 bits become 8, rounded;
 *   - alpha is composited over white, as a page shows it (Pillow's convert("RGB") drops alpha and so shows
 *     what was hidden);
 *   - an embedded ICC profile is applied if convert_icc is set, else ignored, as Pillow does.
 *
 * EXIF orientation is applied unless ignore_orientation is set: the result is what a viewer shows.
 *
 * When an image is also made smaller, call image_convert_profile after resampling instead of setting
 * convert_icc: there are fewer pixels to convert. Threads: one ImageDecoder per thread. */
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
    bool keep_metadata;   /* keep the metadata for image_decoder_metadata */
    bool defer_icc;       /* with convert_icc, where it can wait (JPEG): leave it to image_convert_profile */
    bool allow_truncated; /* what a JPEG that ends early or has corrupt data gives. False: FSH_ERR_CORRUPT;
                           * true: the pixels that are there, and a warning */
    uint64_t max_pixels;  /* 0: IMAGE_MAX_PIXELS_DEFAULT; checked before memory is taken */
    /* Scaled decode, JPEG only: the result may be smaller than the image by a factor of 1/2, 1/4 or 1/8, as
     * long as it keeps at least this many pixels on each edge (as displayed). 0: full size. Other formats are
     * decoded at full size. */
    uint32_t least_width, least_height;
} ImageDecodeOptions;

/* Reads the header alone and fills info: format, size, orientation, quirks. Allocates no pixels. */
FshStatus image_probe(ImageDecoder *decoder, const void *bytes, size_t length, ImageInfo *info,
                      FshError *error);

/* Returns FSH_ERR_MISMATCH, with the message of image_decode, if the header claims more than max_pixels (0:
 * IMAGE_MAX_PIXELS_DEFAULT). */
FshStatus image_check_size(const ImageInfo *info, uint64_t max_pixels, FshError *error);

/* Decodes into image, which is reserved here and kept by the caller for the next file. info may be NULL; it
 * is filled even if decoding fails after the header. FSH_ERR_CORRUPT: truncated or damaged;
 * FSH_ERR_UNSUPPORTED: no image, 12-bit JPEG, a camera's raw file (camera_raw.h), or a format no decoder here
 * reads; FSH_ERR_MISMATCH: more than max_pixels; FSH_ERR_MEMORY. Messages do not name the file: the caller
 * prepends its name. */
FshStatus image_decode(ImageDecoder *decoder, const void *bytes, size_t length,
                       const ImageDecodeOptions *options, Image *image, ImageInfo *info, FshError *error);

/* A rectangle of an image, in pixels of the full size as displayed. */
typedef struct ImagePart {
    uint32_t left, top, width, height;
} ImagePart;

/* Where a decoded part lies: its first pixel is pixel (left, top) of the image scaled to eighths/8. */
typedef struct ImagePlace {
    uint32_t left, top, eighths;
} ImagePlace;

/* Decodes at least `part` of an image into `image`; `place` is set to where the decoded pixels lie. The
 * pixels are those of image_decode, bit for bit. An upright JPEG is transformed only there (in whole blocks)
 * and not read beyond the part's last row, so damage further down is not noticed. Every other image is
 * decoded whole, and at full size if it is not upright. convert_icc and keep_metadata must not be set. Errors
 * are those of image_decode; FSH_ERR_MISMATCH also if the image is not width x height as displayed, since the
 * part was chosen for another image. */
FshStatus image_decode_part(ImageDecoder *decoder, const void *bytes, size_t length,
                            const ImageDecodeOptions *options, uint32_t width, uint32_t height,
                            const ImagePart *part, Image *image, ImagePlace *place, FshError *error);

/* Decodes an index image, the mask of a segmentation, into image: one channel of the file's own values,
 * which are never looked up in a palette, scaled or colour-managed (mask_decode.h). FSH_ERR_UNSUPPORTED:
 * it is none: not a PNG, or one with colours, alpha or 16 bits, or turned by EXIF. FSH_ERR_CORRUPT;
 * FSH_ERR_MISMATCH: more than max_pixels (0: IMAGE_MAX_PIXELS_DEFAULT); FSH_ERR_MEMORY. Messages do not
 * name the file. */
FshStatus image_decode_mask(ImageDecoder *decoder, const void *bytes, size_t length, uint64_t max_pixels,
                            Image *image, FshError *error);

/* Fills metadata with the blocks of the last image that image_decode decoded with keep_metadata: of JPEG,
 * PNG, WebP and HEIF all; of TIFF the profile and XMP, but not the camera's own tags. The blocks fit the
 * decoded pixels. EXIF and XMP say orientation 1 unless ignore_orientation was set (in HEIF always: its
 * pixels come turned); an EXIF block too damaged to be changed is left out. The profile is left out if
 * convert_icc was set, or if the pixels no longer have the file's colours (CMYK, Lab). The blocks belong to
 * the decoder and are valid until its next image. */
void image_decoder_metadata(const ImageDecoder *decoder, ImageMetadata *metadata);

/* Returns the JpegDecoder whose header image_probe has read, for jpeg_shrink, which takes the planes of a
 * JPEG instead of its pixels. The decoder stays owned by this ImageDecoder. */
/* Prepares what image_decoder_metadata gives, as image_decode with these options would. For jpeg_shrink,
 * which does not call image_decode. FSH_ERR_MEMORY. */
JpegDecoder *image_decoder_jpeg(ImageDecoder *decoder);
FshStatus image_decoder_fit_metadata(ImageDecoder *decoder, const ImageDecodeOptions *options,
                                     const ImageInfo *info, FshError *error);

/* Converts image from the embedded profile of the last decoded file to sRGB. image: the pixels of the last
 * image_decode, resampled or not. Does nothing if nothing is left to convert. FSH_ERR_CORRUPT: the profile is
 * unusable; the pixels are untouched. */
FshStatus image_convert_profile(ImageDecoder *decoder, Image *image, FshError *error);

/* Writes "libjpeg-turbo 2.1.5, libdeflate 1.14, libvips 8.14.1" to buffer for --version, and returns buffer.
 * Loads the plugin. */
const char *image_library_versions(char *buffer, size_t buffer_bytes);

#endif
