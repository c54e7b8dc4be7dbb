/* jpeg_markers.h - keeps three things of a JPEG's APP1 and APP2 markers: the first EXIF block, the first XMP
 * block, the colour profile. Internal to imaging.
 *
 * libjpeg can save markers itself, in a list that it walks to the end for each marker that it adds: a file of
 * 242 kB with 60,000 empty markers took 20 seconds. Here each marker is looked at once, in place, and only
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

/* Blocks point into the file's bytes. Zero it before each file. */
typedef struct JpegMarkers {
    ImageBlock exif, xmp;                         /* without their signatures */
    ImageBlock icc_parts[JPEG_ICC_PARTS_MAX + 1]; /* by number */
    unsigned icc_count;                           /* how many parts the first one announces; 0: no profile */
    bool icc_damaged;                             /* parts contradict each other */
} JpegMarkers;

/* Reads the marker, APP1 or APP2, at which libjpeg's memory source stands. To be called by a processor set
 * with jpeg_set_marker_processor; returns what that must return. */
boolean jpeg_markers_take(JpegMarkers *markers, j_decompress_ptr cinfo);

/* Joins the parts of the profile in `profile`, which becomes empty if there is no profile, or if parts are
 * missing, duplicate or contradictory; in the latter case *damaged_ret is set to true, and never to false.
 * FSH_ERR_MEMORY. */
FshStatus jpeg_markers_join_profile(const JpegMarkers *markers, Buffer *profile, bool *damaged_ret,
                                    FshError *error);

#endif
