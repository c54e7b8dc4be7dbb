/* resize_image.h - one image file in memory made smaller: bytes in, bytes out, no file system.
 *
 *   ResizeWorker *worker = NULL;
 *   FshStatus status = resize_worker_new(&worker, &error);
 *   if (!status) status = resize_image(worker, bytes, length, IMAGE_JPEG, &recipe, &resized, &error);
 *   … resized.bytes, valid until the worker's next image …
 *   resize_worker_free(&worker);
 *
 * Threads: one ResizeWorker per thread. It keeps its decoder, encoder and buffers from image to image. */
#ifndef FSHARD_RESIZE_IMAGE_H
#define FSHARD_RESIZE_IMAGE_H

#include "imaging/encode.h"
#include "imaging/image.h"
#include "imaging/resample.h"

/* What is done to every image of a run; two runs with equal recipes give equal files. */
typedef struct ResizeRecipe {
    uint32_t max_size; /* of the short edge, or the long one */
    bool long_edge;
    ResampleFilter filter;
    int quality; /* of JPEG, 1..100 */
    ImageSubsampling subsampling;
    bool ignore_orientation;
    bool ignore_icc;     /* leave colours as they are, as Pillow does, instead of converting them to sRGB */
    bool exact;          /* decode in full; else a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size */
    uint64_t max_pixels; /* larger images are refused by their header */
} ResizeRecipe;

typedef enum ResizeAction {
    RESIZE_COPIED,    /* small enough and in order: the bytes are the source's */
    RESIZE_CONVERTED, /* small enough, but of another format, orientation or colours */
    RESIZE_RESIZED,
} ResizeAction;

typedef struct ResizedImage {
    ResizeAction action;
    ImageFormat format;     /* of the bytes: JPEG or PNG */
    ImageInfo info;         /* of the source; filled as far as known after a failure, too */
    uint32_t width, height; /* as written */
    const uint8_t *bytes;   /* the worker's, or the source's own (RESIZE_COPIED) */
    size_t length;
} ResizedImage;

typedef struct ResizeWorker ResizeWorker;

FshStatus resize_worker_new(ResizeWorker **worker, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void resize_worker_free(ResizeWorker **worker);

/* The format an image of this format is written in where its name leaves it open: JPEG for photographs' formats (JPEG,
 * WebP, HEIF, JPEG 2000), PNG for the others. */
ImageFormat resize_format_for(ImageFormat format);

/* format: IMAGE_JPEG or IMAGE_PNG, what the file's name promises; IMAGE_UNKNOWN: resize_format_for its content.
 * Every image is decoded, those that are copied too: what comes out can be read. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED,
 * FSH_ERR_MISMATCH (max_pixels), FSH_ERR_MEMORY are about this image; messages do not name it. */
FshStatus resize_image(ResizeWorker *worker, const void *bytes, size_t length, ImageFormat format,
                       const ResizeRecipe *recipe, ResizedImage *resized, FshError *error);

/* What resize_image would do, by the header alone: action, format, info, width and height. */
FshStatus resize_image_plan(ResizeWorker *worker, const void *bytes, size_t length, ImageFormat format,
                            const ResizeRecipe *recipe, ResizedImage *resized, FshError *error);

#endif
