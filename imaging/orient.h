/* orient.h - turning and mirroring pixels. Internal to imaging. */
#ifndef FSHARD_IMAGING_ORIENT_H
#define FSHARD_IMAGING_ORIENT_H

#include "imaging/image.h"

/* Writes source into target (reserved here, another image) as a viewer shows an image of this EXIF
 * orientation, 1..8. */
FshStatus image_orient(const Image *source, uint8_t orientation, Image *target, FshError *error);

/* Writes source with the given channels (1 or 3) into target: gray by ITU-R 601 luma, rounded as in JPEG and
 * in Pillow's convert("L"); RGB by repeating. */
FshStatus image_convert_channels(const Image *source, uint32_t channels, Image *target, FshError *error);

#endif
