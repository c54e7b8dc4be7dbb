/* make_images.h - image files for tests, made on the spot: every kind of JPEG and PNG that the decoders must
 * know.
 *
 * Failures end the test program: they are mistakes in a test. Buffers are the caller's. */
#ifndef FSHARD_TESTS_IMAGING_MAKE_IMAGES_H
#define FSHARD_TESTS_IMAGING_MAKE_IMAGES_H

#include "common/file.h"
#include "imaging/image.h"

typedef enum MakeColours { MAKE_GRAY, MAKE_RGB, MAKE_CMYK, MAKE_YCCK } MakeColours;

typedef struct MakeJpeg {
    uint32_t width, height;
    MakeColours colours;
    int quality;           /* 0: 95 */
    const uint8_t *pixels; /* width * height * (1, 3 or 4) bytes; CMYK as Adobe stores it: 255 is no ink */
    int across, down;      /* luma's sampling factors, RGB; 0: 2 */
    bool progressive, arithmetic;
    bool scan_bomb;      /* gray only: more than 500 scans */
    bool separate_scans; /* RGB only: sequential, a scan for each component */
    uint8_t orientation; /* 0: no EXIF; else an EXIF block with this value */
    const void *exif;    /* another APP1 block, "Exif\0\0" included; NULL: none */
    size_t exif_length;
    const void *icc; /* an ICC profile; NULL: none */
    size_t icc_length;
} MakeJpeg;

void make_jpeg(const MakeJpeg *options, Buffer *out);

/* Writes the EXIF block of MakeJpeg.orientation, without "Exif\0\0". Returns its length; bytes has room for
 * 64. */
size_t make_exif(uint8_t orientation, bool big_endian, uint8_t *bytes);

typedef struct MakePng {
    uint32_t width, height;
    uint8_t bit_depth;   /* 1, 2, 4, 8, 16 */
    uint8_t colour_type; /* 0 gray, 2 RGB, 3 palette, 4 gray + alpha, 6 RGB + alpha */
    const uint8_t *rows; /* height rows of packed samples, big endian, each filled up to a byte */
    const uint8_t *palette;
    size_t palette_count; /* entries of 3 bytes */
    const uint8_t *transparency;
    size_t transparency_length;
    const uint8_t *exif;
    size_t exif_length;
} MakePng;

/* Writes a PNG whose pixels are stored, not compressed. */
void make_png(const MakePng *options, Buffer *out);

/* Inserts a chunk with a right checksum into a PNG, before the first chunk of type `before`. */
void make_png_chunk(Buffer *file, const char *before, const char *type, const void *bytes, size_t length);

/* Makes the checksums of all chunks of a PNG right, as far as they can be found. */
void make_png_sums(Buffer *file);

typedef enum MakeCurve {
    MAKE_CURVE_GAMMA,      /* 2.2 for RGB, 1 for gray */
    MAKE_CURVE_TABLE,      /* 40 samples of a square */
    MAKE_CURVE_PARAMETRIC, /* sRGB's own, type 3 */
} MakeCurve;

/* Writes a profile of Adobe-RGB-like colours (wide green), or of gray. Readers take it for sRGB where
 * description is "sRGB". Returns its length; bytes has room for 1024. */
size_t make_icc(bool gray, MakeCurve curve, const char *description, uint8_t *bytes);

/* Changes the size a JPEG's or PNG's header claims. */
void patch_size(Buffer *file, uint32_t width, uint32_t height);

/* Returns a smooth picture of 4 channels at most, different in each corner and channel. The caller frees its
 * width * height * channels bytes. */
uint8_t *make_pixels(uint32_t width, uint32_t height, uint32_t channels);

/* Returns the peak signal to noise ratio of two arrays, in decibels; 99 where they are equal. */
double psnr(const uint8_t *a, const uint8_t *b, size_t count);

#endif
