/* image.h - pixels in memory, and what the header of an image file says about them. */
#ifndef FSHARD_IMAGING_IMAGE_H
#define FSHARD_IMAGING_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Formats, known by the first bytes of a file; its extension is never trusted. */
typedef enum ImageFormat {
    IMAGE_UNKNOWN = 0,
    IMAGE_JPEG,
    IMAGE_PNG,
    IMAGE_WEBP,
    IMAGE_TIFF,
    IMAGE_GIF,
    IMAGE_BMP,
    IMAGE_PNM,
    IMAGE_Y4M,  /* planes as they are: y4m.h */
    IMAGE_HEIF, /* HEIC and AVIF */
    IMAGE_JPEG2000,
    IMAGE_TGA,   /* has no magic: image_is_tga */
    IMAGE_OTHER, /* libvips may know it */
} ImageFormat;

/* Returns "jpeg", "png", …, "unknown"; static. */
const char *image_format_name(ImageFormat format);
/* Returns the usual extension of this format with its dot: ".jpg"; static. */
const char *image_format_extension(ImageFormat format);

/* Returns whether the name ends as images of datasets do (.jpg .jpeg .jpe .jfif .png .webp .bmp .tif .tiff
 * .gif .ppm .pgm .pnm .pbm .heic .heif .avif .jp2 .tga and more, any case), so that a walk can tell images
 * from notes. Extensions of formats that are not read here, such as .ico and .qoi, count too. The content
 * decides later what the file is. */
bool image_name_is_image(const char *path);
/* Returns the format that the name's extension promises: IMAGE_OTHER for an image format without a name here,
 * IMAGE_UNKNOWN for any other name. */
ImageFormat image_name_format(const char *path);

/* 8-bit pixels, HWC interleaved, rows without padding: pixels[(y * width + x) * channels + c]. 64-byte
 * aligned, owned. An Image is kept and reused for file after file; only image_reserve grows it. */
typedef struct Image {
    uint8_t *pixels;
    uint32_t width, height;
    uint32_t channels; /* 1 gray or 3 RGB */
    size_t capacity_bytes;
    bool lent; /* pixels belong to someone else and have room for capacity_bytes: see image_lend */
} Image;

/* Sets the shape and makes room; the pixels are undefined afterwards. FSH_ERR_MEMORY: overflow or no
 * memory. */
FshStatus image_reserve(Image *image, uint32_t width, uint32_t height, uint32_t channels, FshError *error);
void image_free(Image *image);
/* Makes the image use memory of the caller, 64-byte aligned, in place of its own, which is freed. An image
 * that does not fit, or that must be turned or converted, ends in memory of its own, so compare image->pixels
 * with what was lent. image_free ends the loan. */
void image_lend(Image *image, void *pixels, size_t capacity_bytes);
/* Exchanges the two images, pixels and all. */
void image_exchange(Image *a, Image *b);

/* Pixels that someone else owns, laid out as those of an Image but with rows that begin stride_bytes apart: a
 * whole image, or a part of one in place. */
typedef struct ImageView {
    const uint8_t *pixels;
    size_t stride_bytes;
    uint32_t width, height;
    uint32_t channels; /* 1 or 3 */
} ImageView;

/* Returns a view of the whole image. */
ImageView image_view(const Image *image);

/* Returns a view of the part of `view` from (left, top) on, width x height, which must lie in it. Copies
 * nothing. */
ImageView image_view_part(const ImageView *view, uint32_t left, uint32_t top, uint32_t width,
                          uint32_t height);

/* Copies the view's pixels to image, which is set to its size. FSH_ERR_MEMORY. */
FshStatus image_copy_view(Image *image, const ImageView *view, FshError *error);

/* Facts about a file that are worth telling the user; a set of bits. */
typedef enum ImageQuirk {
    /* the extension does not match the content (set by whoever knows the name) */
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
    IMAGE_QUIRK_ANIMATION = 1u << 11, /* a GIF, WebP or PNG of several frames; the first is taken */
} ImageQuirk;
#define IMAGE_QUIRK_COUNT 12

/* Returns the name of one bit: "gray", "cmyk", …; static. */
const char *image_quirk_name(ImageQuirk quirk);

typedef struct ImageInfo {
    ImageFormat format;
    uint32_t width, height; /* as displayed: after EXIF orientation */
    uint32_t stored_width, stored_height;
    uint32_t channels;   /* after decoding: 1 if gray, else 3 */
    uint8_t orientation; /* EXIF 1..8; 1 when absent or nonsense */
    uint32_t quirks;     /* ImageQuirk bits known so far */
} ImageInfo;

#define IMAGE_SNIFF_BYTES 64 /* the first bytes of a file are enough to tell */

/* Returns the format by magic bytes alone; IMAGE_UNKNOWN for text, empty files and what no decoder here
 * reads. */
ImageFormat image_sniff(const void *bytes, size_t length);

/* Returns whether bytes that image_sniff does not know may be a TGA. Its header has no magic, so its fields
 * are checked against each other; a few other files would pass. Call it only for files that are images by
 * name. */
bool image_is_tga(const void *bytes, size_t length);

/* Returns by which whole factor the second size is the first one enlarged on both edges; 0 if there is none,
 * or if it is 1. */
uint32_t image_whole_factor(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height);

#endif
