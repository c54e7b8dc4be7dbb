/* mask_decode.h - index images, the masks of segmentation: PNGs whose values are classes. Internal to
 * imaging; programs use image_decode_mask (decode.h).
 *
 *   mask_decoder_new(&masks, &error);
 *   mask_decode(masks, bytes, length, max_pixels, &image, &error);   // image: [height, width] of values
 *   mask_decoder_free(&masks);
 *
 * A value is what stands in the file: the index into a palette, or gray of 1, 2, 4 or 8 bits. It is never
 * looked up, scaled or colour-managed, whatever other chunks say of colours. Interlaced files are read,
 * too. Source: PNG third edition, 7 to 9.
 *
 * Threads: one MaskDecoder per thread. */
#ifndef FSHARD_IMAGING_MASK_DECODE_H
#define FSHARD_IMAGING_MASK_DECODE_H

#include "imaging/image.h"
#include "imaging/mask.h"

typedef struct MaskDecoder MaskDecoder;

/* FSH_ERR_MEMORY. On failure *masks is NULL. */
FshStatus mask_decoder_new(MaskDecoder **masks, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void mask_decoder_free(MaskDecoder **masks);

/* Decodes the values into image, of one channel. FSH_ERR_UNSUPPORTED: no index image (another format,
 * colours, alpha, 16 bits), or an EXIF block turns it; FSH_ERR_CORRUPT: damaged or cut short;
 * FSH_ERR_MISMATCH: more than max_pixels; FSH_ERR_MEMORY. Messages do not name the file. */
FshStatus mask_decode(MaskDecoder *masks, const void *bytes, size_t length, uint64_t max_pixels, Image *image,
                      FshError *error);

/* Reads what the PNG's values are written as, and its size, *width_ret x *height_ret; format points into
 * bytes. Errors as of mask_decode, but for damaged pixels. */
FshStatus mask_read_format(const void *bytes, size_t length, uint64_t max_pixels, MaskFormat *format,
                           uint32_t *width_ret, uint32_t *height_ret, FshError *error);

#endif
