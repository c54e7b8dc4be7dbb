/* jpeg_markers.h - what is of use in a JPEG's APP1 and APP2 markers: the first EXIF block, the first XMP
 * block, the colour profile. Internal to imaging.
 *
 * libjpeg can save markers itself, in a list that it walks to the end for each one that it adds: a file of
 * 242 kB with 60,000 empty markers took 20 seconds. Here each is looked at once, where it lies, and only
 * those three are kept. */
#ifndef FSHARD_IMAGING_JPEG_MARKERS_H
#define FSHARD_IMAGING_JPEG_MARKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* jpeglib.h needs FILE */

#include <jpeglib.h>

#include "common/file.h"
#include "imaging/image_metadata.h"

enum { JPEG_ICC_PARTS_MAX = 255 }; /* a part's number is one byte, from 1 on */

/* Blocks point into the file's bytes. Zeroed before each file. */
typedef struct JpegMarkers {
    ImageBlock exif, xmp;                         /* without their signatures */
    ImageBlock icc_parts[JPEG_ICC_PARTS_MAX + 1]; /* by number */
    unsigned icc_count;                           /* of parts, as the first one says; 0: no profile */
    bool icc_damaged;                             /* parts contradict each other */
} JpegMarkers;

/* Reads the marker that libjpeg has come to, APP1 or APP2, from a source in memory: for
 * jpeg_set_marker_processor. Returns what libjpeg wants of such a function. */
boolean jpeg_markers_take(JpegMarkers *markers, j_decompress_ptr cinfo);

/* Joins the profile's parts in `profile`, which is empty after if there is no profile, or one with parts
 * missing, twice there or in dispute; the latter sets *damaged_ret, and nothing clears it. FSH_ERR_MEMORY. */
FshStatus jpeg_markers_join_profile(const JpegMarkers *markers, Buffer *profile, bool *damaged_ret,
                                    FshError *error);

#endif
