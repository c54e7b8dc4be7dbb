/* camera_raw.h - recognises the raw files of cameras. By its first bytes such a file is a TIFF, so a TIFF
 * decoder would find the thumbnail in the first folder, not the photograph. Bytes may be hostile. Internal to
 * imaging. Sources: DNG 1.6, chapter 4 (DNGVersion); TIFF/EP (ISO 12234-2), 5.2 (a reduced image in IFD0, the
 * raw one in a SubIFD; PhotometricInterpretation 32803); Canon CR2 by its own magic. */
#ifndef FSHARD_IMAGING_CAMERA_RAW_H
#define FSHARD_IMAGING_CAMERA_RAW_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a file that begins as a TIFF is a camera's raw file, by its header and first folder. bytes:
 * the whole file or its beginning. */
bool camera_raw_is(const void *bytes, size_t length);

#endif
