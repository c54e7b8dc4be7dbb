/* shrink.h - one image file in memory made smaller: bytes in, bytes out, no file system.
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

/* What is done to every image of a run; two runs with equal recipes give equal files. */
typedef struct ShrinkRecipe {
    uint32_t max_size; /* of the short edge, or the long one */
    bool long_edge;
    ResampleFilter filter;
    /* Of everything that is written: JPEG, PNG or WebP; IMAGE_UNKNOWN: keep (shrink_format_for). */
    ImageFormat format;
    int quality;                  /* of JPEG and WebP, 1..100 */
    ImageSubsampling subsampling; /* of JPEG; WebP has 4:2:0 only */
    bool ignore_orientation;
    bool ignore_icc; /* leave colours as they are, as Pillow does, instead of converting them to sRGB */
    /* EXIF, XMP and profile are written too, and colours left as they are, which the profile explains (but
     * CMYK becomes sRGB and loses it); else nothing but pixels is written. EXIF fits the pixels: see
     * image_decoder_metadata. */
    bool keep_metadata;
    uint32_t min_size;   /* images whose short edge as displayed is below this are left out; 0: none are */
    bool exact;          /* decode in full; else a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size */
    uint64_t max_pixels; /* larger images are refused by their header */
} ShrinkRecipe;

typedef enum ShrinkAction {
    SHRINK_COPIED,    /* small enough and in order: the bytes are the source's, metadata included */
    SHRINK_CONVERTED, /* small enough, but of another format, orientation or colours */
    SHRINK_RESIZED,
    SHRINK_TOO_SMALL, /* below min_size: nothing is decoded and no bytes come out. Not a failure */
} ShrinkAction;

typedef struct ShrunkImage {
    ShrinkAction action;
    ImageFormat format;     /* of the bytes: JPEG, PNG or WebP */
    ImageInfo info;         /* of the source; filled as far as known after a failure, too */
    uint32_t width, height; /* as written */
    const uint8_t *bytes;   /* the worker's, or the source's own (SHRINK_COPIED) */
    size_t length;
    /* by the clock: header and decoding; resampling and colours; encoding */
    double decode_seconds, resample_seconds, encode_seconds;
} ShrunkImage;

typedef struct ShrinkWorker ShrinkWorker;

FshStatus shrink_worker_new(ShrinkWorker **worker, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void shrink_worker_free(ShrinkWorker **worker);

/* What `keep` writes for an image of this format:
 *   JPEG, PNG, WebP              the same
 *   HEIF, JPEG 2000, others      JPEG: photographs, of which there is no writer here
 *   GIF, BMP, TIFF, PNM          PNG: lossless ones, of which there is no writer here
 * WebP is written lossy, from a lossless one too. */
ImageFormat shrink_format_for(ImageFormat format);

/* The longest file of max_pixels: 16-bit RGB with alpha, not compressed, and 64 MiB around it. Longer ones
 * need not be read (file_read_most). */
uint64_t shrink_most_bytes(const ShrinkRecipe *recipe);

/* format: what the output's name promises (JPEG, PNG or WebP: it wins over the content, so a PNG that is
 * called .JPEG becomes a JPEG); IMAGE_UNKNOWN: shrink_format_for its content. recipe->format, where it is
 * set, wins over both. Already small enough: copied byte for byte unless format, orientation or colours
 * (CMYK) must change. Alpha is composited over white, whatever is written; of an animation the first frame is
 * taken, and the quirk told. Every image is decoded, those that are copied too: what comes out can be read.
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MISMATCH (max_pixels, or too long an edge for WebP),
 * FSH_ERR_MEMORY are about this image; messages do not name it. */
FshStatus shrink_image(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                       const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error);

/* What shrink_image would do, by the header alone: action, format, info, width and height. */
FshStatus shrink_image_plan(ShrinkWorker *worker, const void *bytes, size_t length, ImageFormat format,
                            const ShrinkRecipe *recipe, ShrunkImage *resized, FshError *error);

/* Returns the recipe as JSON, as a destination or a dataset keeps it: a new reference, or NULL out of memory.
 * tool: the program that makes the images smaller, "fresize" or "fpack". */
json_t *shrink_recipe_json(const ShrinkRecipe *recipe, const char *tool);

#endif
