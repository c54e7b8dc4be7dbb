/* jpeg_decode.h - JPEG to pixels by libjpeg-turbo. Internal to imaging; programs use decode.h.
 *
 *   jpeg_decoder_header(jpeg, bytes, length, strict, &info, &error);     // takes no memory for pixels
 *   jpeg_decoder_pixels(jpeg, channels, least_width, least_height, &image, &error);
 *
 * or, instead of pixels, the colour planes as the file has them, without upsampling and conversion:
 *
 *   jpeg_decoder_plane(jpeg, 0, 4, &plane);                              // its shape at 4/8
 *   jpeg_decoder_planes_start(jpeg, eighths, &error);
 *   for (group = 0; group < jpeg_decoder_groups_count(jpeg); group++)
 *       jpeg_decoder_planes_next(jpeg, rows, strides, &error);
 *
 * The bytes must stay until the pixels are read. Threads: one JpegDecoder per thread. */
#ifndef FSHARD_IMAGING_JPEG_DECODE_H
#define FSHARD_IMAGING_JPEG_DECODE_H

#include "imaging/decode.h"

FshStatus jpeg_decoder_new(JpegDecoder **jpeg, FshError *error);
void jpeg_decoder_free(JpegDecoder **jpeg);

/* Reads up to the first scan and fills info as far as known, also on failure. strict: damage fails, here and
 * in the pixels. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED (12-bit, lossless). */
FshStatus jpeg_decoder_header(JpegDecoder *jpeg, const void *bytes, size_t length, bool strict,
                              ImageInfo *info, FshError *error);

/* Decodes the pixels as stored: the caller applies the orientation. Call it after a header that succeeded and
 * whose quirks do not say CMYK (libvips decodes that). channels: 1 or 3. Scales by 1/2, 1/4 or 1/8 while at
 * least least_width x least_height (as stored, 0: full size) remain. Adds IMAGE_QUIRK_WARNING to info's
 * quirks if libjpeg warned. */
FshStatus jpeg_decoder_pixels(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width,
                              uint32_t least_height, Image *image, ImageInfo *info, FshError *error);

/* Reads the whole file and keeps no pixels, after a header that succeeded, of CMYK too; afterwards only a new
 * header may follow. FSH_ERR_CORRUPT where reading the pixels would fail so. */
FshStatus jpeg_decoder_check(JpegDecoder *jpeg, ImageInfo *info, FshError *error);

/* Does what jpeg_decoder_pixels does for a part alone: see image_decode_part. */
FshStatus jpeg_decoder_part(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width, uint32_t least_height,
                            const ImagePart *part, Image *image, ImagePlace *place, ImageInfo *info,
                            FshError *error);

/* Returns the ICC profile of the file whose header was read last, or NULL if there is none or it is for other
 * colours than the file's. The bytes are the decoder's, until its next header. */
const void *jpeg_decoder_profile(const JpegDecoder *jpeg, size_t *length_ret);

/* Fills metadata for the file whose header was read last: its first EXIF and XMP blocks, and the profile that
 * jpeg_decoder_profile returns. The bytes are the decoder's, until its next header. */
void jpeg_decoder_metadata(const JpegDecoder *jpeg, ImageMetadata *metadata);

enum {
    JPEG_PLANES_MAX = 3,
    JPEG_GROUP_ROWS_MAX = 32, /* sampling factors go to 4, blocks have 8 rows */
};

/* One colour plane, decoded at eighths/8 of its stored size. */
typedef struct JpegPlane {
    uint32_t width, height; /* samples */
    /* How many samples the image covers. It may end in the middle of the last column and row. */
    double covered_width, covered_height;
    uint32_t row_bytes; /* room for a decoded row of whole blocks; at least width */
    /* rows of one jpeg_decoder_planes_next; the last group may go beyond height */
    uint32_t group_rows;
} JpegPlane;

/* Returns how many planes jpeg_decoder_planes_start would give, after a header that succeeded. 1: gray; 3: Y,
 * Cb and Cr; 0: no such planes (RGB or CMYK inside), or the pixels were read already. */
uint32_t jpeg_decoder_planes_count(const JpegDecoder *jpeg);

/* Fills plane with the shape of plane `index` at eighths/8; eighths: 1, 2, 4 or 8. */
void jpeg_decoder_plane(const JpegDecoder *jpeg, uint32_t index, uint32_t eighths, JpegPlane *plane);

/* Returns how many calls of jpeg_decoder_planes_next the image takes. */
uint32_t jpeg_decoder_groups_count(const JpegDecoder *jpeg);

/* Begins to decode planes, plane i at eighths[i]/8. strict: damage fails. */
FshStatus jpeg_decoder_planes_start(JpegDecoder *jpeg, const uint32_t eighths[JPEG_PLANES_MAX], bool strict,
                                    FshError *error);

/* Decodes the next group_rows rows of each plane i, to rows[i] and on, strides[i] (at least row_bytes) apart.
 * The call for the last group reads to the end of the file, and adds IMAGE_QUIRK_WARNING to *quirks if
 * libjpeg warned. FSH_ERR_CORRUPT: truncated or damaged. After a failure too, only a new header may
 * follow. */
FshStatus jpeg_decoder_planes_next(JpegDecoder *jpeg, uint8_t *const rows[JPEG_PLANES_MAX],
                                   const size_t strides[JPEG_PLANES_MAX], uint32_t *quirks, FshError *error);

/* Returns "libjpeg-turbo 2.1.5"; static. */
const char *jpeg_library_version(void);

#endif
