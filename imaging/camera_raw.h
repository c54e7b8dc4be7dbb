/* camera_raw.h - cameras' own raw files, which are TIFF by their first bytes: a decoder of TIFF finds a
 * thumbnail in the first folder, not the photograph. Bytes may be hostile. Internal to imaging. Sources: DNG
 * 1.6, chapter 4 (DNGVersion); TIFF/EP (ISO 12234-2), 5.2 (a reduced image in IFD0, the raw one in a SubIFD;
 * PhotometricInterpretation 32803); Canon CR2 by its own magic. */
#ifndef FSHARD_IMAGING_CAMERA_RAW_H
#define FSHARD_IMAGING_CAMERA_RAW_H

#include <stdbool.h>
#include <stddef.h>

/* bytes: a whole file, or as much as there is of it, that begins as TIFF does. Looks at its header and first
 * folder. */
bool camera_raw_is(const void *bytes, size_t length);

#endif
