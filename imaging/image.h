/* image.h - pixels in memory, and what a file of pixels says about itself before it is decoded. */
#ifndef FSHARD_IMAGING_IMAGE_H
#define FSHARD_IMAGING_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Known by their first bytes; the name's extension is never trusted. */
typedef enum ImageFormat {
    IMAGE_UNKNOWN = 0,
    IMAGE_JPEG,
    IMAGE_PNG,
    IMAGE_WEBP,
    IMAGE_TIFF,
    IMAGE_GIF,
    IMAGE_BMP,
    IMAGE_PNM,
    IMAGE_HEIF, /* HEIC and AVIF */
    IMAGE_JPEG2000,
    IMAGE_TGA,   /* has no first bytes of its own: image_is_tga */
    IMAGE_OTHER, /* libvips may know it */
} ImageFormat;

/* "jpeg", "png", …, "unknown"; static. */
const char *image_format_name(ImageFormat format);
/* The extension a file of this format usually has, with dot: ".jpg". */
const char *image_format_extension(ImageFormat format);

/* Names that a dataset's images end in (.jpg .jpeg .jpe .jfif .png .webp .bmp .tif .tiff .gif .ppm .pgm .pnm
 * .pbm .heic .heif .avif .jp2 .tga and more, any case), so that a walk can tell images from notes; those of
 * formats that are not read here, such as .ico and .qoi, among them. Content decides later what they are. */
bool image_name_is_image(const char *path);
/* The format that such a name promises, IMAGE_OTHER of one without a name here; IMAGE_UNKNOWN for any other
 * name. */
ImageFormat image_name_format(const char *path);

/* 8-bit pixels, HWC interleaved, rows without padding: pixels[(y * width + x) * channels + c]. 64-byte
 * aligned, owned. An Image is kept and reused for file after file; only image_reserve grows it. */
typedef struct Image {
    uint8_t *pixels;
    uint32_t width, height;
    uint32_t channels; /* 1 gray or 3 RGB */
    size_t capacity_bytes;
    bool lent; /* pixels are someone else's, with room for capacity_bytes: see image_lend */
} Image;

/* Sets the shape and makes room; contents are undefined after. FSH_ERR_MEMORY on overflow or no memory. */
FshStatus image_reserve(Image *image, uint32_t width, uint32_t height, uint32_t channels, FshError *error);
void image_free(Image *image);
/* Lets the image use memory that stays the lender's, 64-byte aligned, instead of its own, which is freed:
 * what fits is decoded there. An image that does not fit, or that must be turned or converted, ends in memory
 * of its own, so pixels must be compared with what was lent. image_free ends the loan. */
void image_lend(Image *image, void *pixels, size_t capacity_bytes);
void image_exchange(Image *a, Image *b);

/* Pixels that someone else owns, laid out as an Image's but for rows that begin stride_bytes apart: a whole
 * image, or a part of one where it lies. */
typedef struct ImageView {
    const uint8_t *pixels;
    size_t stride_bytes;
    uint32_t width, height;
    uint32_t channels; /* 1 or 3 */
} ImageView;

ImageView image_view(const Image *image);

/* The part of view from (left, top) on, width x height, which must lie in it. Nothing is copied. */
ImageView image_view_part(const ImageView *view, uint32_t left, uint32_t top, uint32_t width,
                          uint32_t height);

/* Copies view's pixels to image, which becomes of its size. FSH_ERR_MEMORY. */
FshStatus image_copy_view(Image *image, const ImageView *view, FshError *error);

/* Things worth telling the user about a file; a set of bits. */
typedef enum ImageQuirk {
    /* content is not what the name's extension says (set by whoever knows the name) */
    IMAGE_QUIRK_EXTENSION = 1u << 0,
    IMAGE_QUIRK_GRAY = 1u << 1,
    IMAGE_QUIRK_CMYK = 1u << 2, /* CMYK or YCCK, Adobe-inverted or not */
    IMAGE_QUIRK_PALETTE = 1u << 3,
    IMAGE_QUIRK_ALPHA = 1u << 4,
    IMAGE_QUIRK_16BIT = 1u << 5,       /* more than 8 bits a channel */
    IMAGE_QUIRK_ORIENTATION = 1u << 6, /* EXIF orientation other than 1 */
    IMAGE_QUIRK_ICC = 1u << 7,         /* an embedded profile that is not sRGB */
    IMAGE_QUIRK_PROGRESSIVE = 1u << 8,
    IMAGE_QUIRK_ARITHMETIC = 1u << 9,
    IMAGE_QUIRK_WARNING = 1u << 10,   /* the decoder warned: extraneous bytes, bad EXIF … */
    IMAGE_QUIRK_ANIMATION = 1u << 11, /* a GIF, WebP or PNG of several frames, of which the first is taken */
} ImageQuirk;
#define IMAGE_QUIRK_COUNT 12

/* "gray", "cmyk", … for one bit. */
const char *image_quirk_name(ImageQuirk quirk);

typedef struct ImageInfo {
    ImageFormat format;
    uint32_t width, height; /* as displayed: after EXIF orientation */
    uint32_t stored_width, stored_height;
    uint32_t channels;   /* what decoding gives: 1 if gray, else 3 */
    uint8_t orientation; /* EXIF 1..8; 1 when absent or nonsense */
    uint32_t quirks;     /* ImageQuirk bits known so far */
} ImageInfo;

#define IMAGE_SNIFF_BYTES 64 /* the first bytes of a file are enough to tell */

/* By magic bytes alone; IMAGE_UNKNOWN for text, empty files and what no decoder here could read. */
ImageFormat image_sniff(const void *bytes, size_t length);

/* Whether bytes that image_sniff does not know may be a TGA: its header has no magic, but its fields fit each
 * other. Only for files that are images by their name; a few others would pass. */
bool image_is_tga(const void *bytes, size_t length);

/* Returns how many times as wide and as high as the first size the second is; 0: no whole number of times, or
 * once. */
uint32_t image_whole_factor(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height);

#endif
