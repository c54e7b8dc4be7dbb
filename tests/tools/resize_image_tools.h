/* resize_image_tools.h - what the tests of shrink_image share: a file, what it became, and what that must be.
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TOOLS_RESIZE_IMAGE_TOOLS_H
#define FSHARD_TESTS_TOOLS_RESIZE_IMAGE_TOOLS_H

#include "imaging/decode.h"
#include "tests/imaging/decode_tools.h"
#include "tests/imaging/make_images.h"
#include "tests/support/support.h"
#include "imaging/shrink.h"

typedef struct ResizeTools {
    ShrinkWorker *worker;
    ImageDecoder *decoder; /* of what came out */
    ShrinkRecipe recipe;
    Buffer file;
    ShrunkImage resized;
    Image image; /* what came out, as it is stored */
    ImageInfo info;
    ImageMetadata metadata;
    FshError error;
} ResizeTools;

/* 30 pixels on the short edge, quality 95. */
extern const ShrinkRecipe resize_usual_recipe;

/* Sets *state to a ResizeTools *, with the usual recipe. */
int resize_tools_setup(void **state);
int resize_tools_teardown(void **state);

/* Each fills tools->file: with a JPEG (of a smooth picture unless pixels are given), a smooth RGB PNG, a
 * smooth picture in one of our formats, or these bytes. */
void take_jpeg(ResizeTools *tools, MakeJpeg options);
void take_png(ResizeTools *tools, uint32_t width, uint32_t height);
void take_encoded(ResizeTools *tools, ImageFormat format, uint32_t width, uint32_t height,
                  const ImageMetadata *metadata);
void take_bytes(ResizeTools *tools, const void *from, size_t length);

/* Runs shrink_image on tools->file. What comes out is decoded as it is stored. */
FshStatus resize_as(ResizeTools *tools, ImageFormat promised);
/* Runs shrink_image with nothing promised; fails unless this comes out. */
void expect(ResizeTools *tools, ShrinkAction action, ImageFormat format, uint32_t width, uint32_t height,
            uint32_t channels);
void expect_failure(ResizeTools *tools, FshStatus status, const char *message);
/* Asserts a pixel of what came out, within 12 levels. */
void expect_pixel(const ResizeTools *tools, uint32_t x, uint32_t y, int red, int green, int blue);

#endif
