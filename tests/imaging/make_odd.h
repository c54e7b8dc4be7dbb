/* make_odd.h - TIFF, GIF and TGA files for tests, made on the spot, whole or damaged. Failures end the test
 * program. */
#ifndef FSHARD_TESTS_IMAGING_MAKE_ODD_H
#define FSHARD_TESTS_IMAGING_MAKE_ODD_H

#include "common/file.h"

enum { MAKE_TIFF_EXTRA_MAX = 4 };

typedef struct MakeTiff {
    uint16_t width, height;
    uint16_t samples; /* of a pixel, 8 bits each unless bits says otherwise */
    uint16_t bits;    /* 0: 8 */
    uint16_t photometric, compression;
    size_t extra_count; /* of the tag ExtraSamples; 0: no tag */
    uint16_t extra[MAKE_TIFF_EXTRA_MAX];
    uint16_t across, down; /* of the tag YCbCrSubSampling; 0: no tag */
    const void *strip;     /* one, compressed as it says */
    size_t strip_bytes;
} MakeTiff;

/* Writes a little-endian TIFF. */
void make_tiff(const MakeTiff *options, Buffer *out);

/* Writes a GIF with one image of 128 grays, in LZW codes of 8 bits that never use the table. pixels has width
 * * height bytes below 128. *codes_at_ret is the offset of the codes, which stand in blocks of 127 (a byte of
 * length before each). */
void make_gif(uint16_t width, uint16_t height, const uint8_t *pixels, Buffer *out, size_t *codes_at_ret);

/* Writes an 18-byte header of this image type and depth, then the bytes, first row first. */
void make_tga(uint8_t type, uint16_t width, uint16_t height, uint8_t depth, const void *bytes, size_t length,
              Buffer *out);

#endif
