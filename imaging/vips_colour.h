/* vips_colour.h - colours of libvips' images: everything becomes 8-bit gray or sRGB. Part of the libvips
 * plugin.
 *
 * Intermediate images belong to a pool, an array of VIPS_COLOUR_POOL images that begins with NULLs and whose
 * owner frees them (vips_object_local_array).
 *
 * Threads: an image belongs to one thread at a time; failures go by vips_notes.h. */
#ifndef FSHARD_IMAGING_VIPS_COLOUR_H
#define FSHARD_IMAGING_VIPS_COLOUR_H

#include <vips/vips.h>

#include "imaging/decode.h"

enum { VIPS_COLOUR_POOL = 8 };

bool vips_colour_is_cmyk(const VipsImage *image);
/* Returns how many channels are colours: all but alpha. */
unsigned vips_colour_bands(VipsImage *image);
/* Returns whether the colours are of no device (Lab, XYZ). Decoding converts them, and their profile no
 * longer applies. */
bool vips_colour_is_device_independent(const VipsImage *image);

/* Converts to sRGB by the embedded profile. Returns 0, or another number if the profile is unusable, where
 * libvips warns and takes another. */
int vips_colour_by_profile(VipsImage *from, VipsImage **to);

/* Builds the pipeline that gives 8 bits, gray or RGB, perhaps followed by alpha. *to is set to its end,
 * owned by the pool. Marks info with a warning where a profile is unusable. FSH_ERR_UNSUPPORTED: samples
 * without a fixed range, or other channels; FSH_ERR_LIBRARY. */
FshStatus vips_colour_pipeline(VipsImage *from, VipsImage **pool, const ImageDecodeOptions *options,
                               bool drop_alpha, ImageInfo *info, VipsImage **to, FshError *error);

#endif
