/* image_tiff.h - reads by libtiff itself the TIFFs that libvips reads wrongly or refuses. Internal to the
 * plugin.
 *
 * libvips takes the samples that follow the colours for alpha whatever the file says (ExtraSamples), passes
 * YCbCr on as if it were RGB, and refuses subsampled YCbCr and tiles of separate planes. Source: TIFF 6.0,
 * sections 18 and 21. */
#ifndef FSHARD_IMAGING_IMAGE_TIFF_H
#define FSHARD_IMAGING_IMAGE_TIFF_H

#include <stdbool.h>
#include <stddef.h>

#include <vips/vips.h>

#include "common/error.h"

typedef struct TiffFacts {
    bool needs_libtiff; /* libvips would give wrong pixels: open the file with tiff_open */
    int samples_count;  /* samples of a pixel */
    int kept_count;     /* samples that are colours or alpha; 0: unknown */
} TiffFacts;

/* Fills facts from the first folder, with zeros if libtiff cannot open the file. */
void tiff_describe(const void *bytes, size_t length, TiffFacts *facts);

/* Opens a file that needs_libtiff as an image of 8-bit RGB, alpha laid over white, not turned, with
 * orientation, profile and XMP. with_pixels: decodes now; else the pixels are black. strict: damage fails.
 * FSH_ERR_CORRUPT, with the reason. */
FshStatus tiff_open(const void *bytes, size_t length, bool with_pixels, bool strict, VipsImage **image,
                    FshError *error);

#endif
