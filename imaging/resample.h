/* resample.h - separable resampling with antialiasing, in Pillow's arithmetic.
 *
 * Coefficients, rounding (22-bit fixed point, 8-bit intermediate) and box handling are those of Pillow's
 * Image.resize up to version 12 (https://github.com/python-pillow/Pillow, src/libImaging/Resample.c describes
 * the method; 13 takes the vertical pass first where an image is more than twice as high as wide, which
 * rounds differently there): results are identical to Pillow's, bit for bit, for 8-bit gray and RGB.
 * torchvision on PIL images gives the same pixels.
 *
 * Threads: one Resampler per thread; it keeps coefficients and scratch memory from image to image. */
#ifndef FSHARD_IMAGING_RESAMPLE_H
#define FSHARD_IMAGING_RESAMPLE_H

#include "imaging/image.h"

typedef enum ResampleFilter {
    RESAMPLE_BOX,
    RESAMPLE_BILINEAR, /* a triangle as wide as the scale: antialiased */
    RESAMPLE_BICUBIC,  /* a = -0.5 */
    RESAMPLE_LANCZOS,  /* three lobes */
} ResampleFilter;

/* "box", "bilinear", … in enum order, NULL-terminated; for option tables. */
extern const char *const resample_filter_names[];

typedef struct Resampler Resampler;

FshStatus resampler_new(Resampler **resampler, FshError *error);
void resampler_free(Resampler **resampler);

/* A part of the source in pixels. Edges may be fractions; 0 <= left < right <= width, and so for top and
 * bottom. */
typedef struct ResampleBox {
    double left, top, right, bottom;
} ResampleBox;

/* Resamples the box of source (NULL: all of it) to width x height into target, which is reserved here and
 * gets source's channels. source and target are different images. FSH_ERR_MISMATCH: an empty box or size.
 * FSH_ERR_MEMORY. */
FshStatus resample(Resampler *resampler, const Image *source, const ResampleBox *box, uint32_t width,
                   uint32_t height, ResampleFilter filter, Image *target, FshError *error);

/* A rectangle of the target, in pixels. */
typedef struct ResampleWindow {
    uint32_t left, top, width, height;
} ResampleWindow;

/* Resamples pixels that lie anywhere into memory of the caller. window (NULL: all): only this part of the
 * width x height pixels is computed, with the same values as in the whole. target: [height, width, channels]
 * of the window. mirrored: flips the result left to right, at no cost. Errors as resample. */
FshStatus resample_view(Resampler *resampler, const ImageView *source, const ResampleBox *box, uint32_t width,
                        uint32_t height, ResampleFilter filter, const ResampleWindow *window, bool mirrored,
                        uint8_t *target, FshError *error);

/* Sets *width_ret and *height_ret to the size of an image of width x height whose short edge (long edge, if
 * long_edge) is to be at most max_size: never larger than it was, at least 1 x 1, the other edge rounded to
 * the nearest pixel (a half to the even number, as Python's round and so most scripts around Pillow do).
 * Returns false if the image fits already. */
bool resample_fit(uint32_t width, uint32_t height, uint32_t max_size, bool long_edge, uint32_t *width_ret,
                  uint32_t *height_ret);

#endif
