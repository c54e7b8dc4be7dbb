/* jpeg_plain.h - tells JPEG files that every decoder reads alike, the GPU's too.
 *
 * Baseline (SOF0), 8 bits, one scan of gray or of Y, Cb and Cr, chroma at most halved each way, upright.
 * Anything else (progressive, CMYK, RGB inside, 4:1:1, gray with sampling factors, turned by EXIF, without
 * its tables of quantisation) is for the decoder in imaging/, which knows it all.
 *
 * Threads: no state. Bytes may be hostile; nothing outside them is read. */
#ifndef FSHARD_TRAINER_DATA_JPEG_PLAIN_H
#define FSHARD_TRAINER_DATA_JPEG_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the file is plain, and then sets *width_ret and *height_ret. */
bool jpeg_is_plain(const void *bytes, size_t length, uint32_t *width_ret, uint32_t *height_ret);

#endif
