/* shrink.h - makes an image file in memory smaller: bytes in, bytes out, no file system.
 *
 *   ShrinkWorker *worker = NULL;
 *   FshStatus status = shrink_worker_new(&worker, &error);
 *   if (!status) status = shrink_image(worker, bytes, length, IMAGE_JPEG, &recipe, &resized, &error);
 *   … resized.bytes, valid until the worker's next image …
 *   shrink_worker_free(&worker);
 *
 * Threads: one ShrinkWorker per thread. It keeps its decoder, encoder and buffers from image to image. */
#ifndef FSHARD_IMAGING_SHRINK_H
#define FSHARD_IMAGING_SHRINK_H

#include <jansson.h>

#include "imaging/encode.h"
#include "imaging/image.h"
#include "imaging/resample.h"

/* What to do to every image of a run; two runs with equal recipes give equal files. */
typedef struct ShrinkRecipe {
    uint32_t max_size; /* of the short edge, or the long one */
    bool long_edge;
    ResampleFilter filter;
    /* Format of every file written: JPEG, PNG or WebP; IMAGE_UNKNOWN: keep (shrink_format_for). IMAGE_Y4M:
     * what keep would make a smaller JPEG or WebP is given as its planes, not encoded, and a small enough
     * image stays as it is, of whatever format. */
    ImageFormat format;
    int quality;                  /* of JPEG and WebP, 1..100 */
    ImageSubsampling subsampling; /* of JPEG and Y4M; WebP has 4:2:0 only */
    bool ignore_orientation;
    bool ignore_icc; /* leave colours as they are, as Pillow does, instead of converting them to sRGB */
    /* Write EXIF, XMP and profile too, and leave colours as they are, since the profile explains them (but
     * CMYK becomes sRGB and loses its profile). False: write pixels only. EXIF is changed to fit the pixels:
     * see image_decoder_metadata. */
    bool keep_metadata;
    uint32_t min_size;   /* skip images whose short edge as displayed is below this; 0: skip none */
    bool exact;          /* decode in full; else a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size */
    uint64_t max_pixels; /* larger images are refused by their header */
} ShrinkRecipe;

typedef enum ShrinkAction {
    SHRINK_COPIED,    /* small enough and in order: the bytes are the source's, with its metadata */
    SHRINK_CONVERTED, /* small enough, but of another format, orientation or colours */
    SHRINK_RESIZED,
    SHRINK_TOO_SMALL, /* below min_size: nothing was decoded, there are no bytes. Not a failure */
} ShrinkAction;

typedef struct ShrunkImage {
    ShrinkAction action;
    ImageFormat format;     /* of the bytes: JPEG, PNG or WebP; Y4M by that recipe */
    ImageInfo info;         /* of the source; after a failure, as far as it is known */
    uint32_t width, height; /* of the file written */
    const uint8_t *bytes;   /* owned by the worker; SHRINK_COPIED: the source's own */
    size_t length;
    /* seconds of: header and decoding; resampling and colours; encoding */
    double decode_seconds, resample_seconds, encode_seconds;
} ShrunkImage;

typedef struct ShrinkWorker ShrinkWorker;

FshStatus shrink_worker_new(ShrinkWorker **worker, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void shrink_worker_free(ShrinkWorker **worker);

/* Returns the format that `keep` writes for an image of this format:
 *   JPEG, PNG, WebP              the same
 *   HEIF, JPEG 2000, others      JPEG: formats of photographs that we do not write
 *   GIF, BMP, TIFF, PNM          PNG: lossless formats that we do not write
 * WebP is always written lossy. */
ImageFormat shrink_format_for(ImageFormat format);

/* Returns the length of the longest file that needs to be read (file_read_most): max_pixels of 16-bit RGB
 * with alpha, not compressed, plus 64 MiB. */
uint64_t shrink_most_bytes(const ShrinkRecipe *recipe);

/* Makes an image smaller by the recipe and fills resized.
 *
 * format: what the output's name promises. JPEG, PNG or WebP wins over the content, so a PNG called .JPEG
 * becomes a JPEG; IMAGE_UNKNOWN: shrink_format_for of the content. recipe->format, where it is set, wins over
 * both (but see IMAGE_Y4M). An image that is small enough is copied byte for byte unless its format,
 * orientation or colours (CMYK) must change. Alpha is composited over white, whatever the format; of an
 * animation the first frame is taken, and a quirk says so. Every image is decoded, also one that is copied,
 * so everything written can be read.
 *
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MISMATCH (max_pixels, or an edge too long for WebP) and
 * FSH_ERR_MEMORY concern this image; messages do not name it. */
FshStatus shrink_image(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                       const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error);

/* Fills action, format, info, width and height of resized as shrink_image would, by the header alone. */
FshStatus shrink_image_plan(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                            const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error);

/* Makes a mask smaller, a PNG whose values are classes, by the recipe's sizes alone, and fills resized: each
 * pixel takes the value of the nearest one (mask_resize), palette and transparency stay, and so does gray of
 * 1, 2, 4 or 8 bits. A mask that is small enough is decoded, and copied byte for byte. Errors as of
 * image_decode_mask. */
FshStatus shrink_mask(ShrinkWorker *worker, const void *bytes, size_t length, const ShrinkRecipe *recipe,
                      ShrunkImage *resized, FshError *error);

/* Fills action, format, info, width and height of resized as shrink_mask would, by what precedes the
 * values. */
FshStatus shrink_mask_plan(const void *bytes, size_t length, const ShrinkRecipe *recipe, ShrunkImage *resized,
                           FshError *error);

/* Returns the recipe as JSON, as it is kept in a destination or a dataset: a new reference, or NULL out of
 * memory. tool: the program that makes the images smaller, "fresize" or "fpack". */
json_t *shrink_recipe_json(const ShrinkRecipe *recipe, const char *tool);

#endif
