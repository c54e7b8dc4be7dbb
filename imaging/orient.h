/* orient.h - turns and mirrors pixels, and changes their channels. Internal to imaging. */
#ifndef FSHARD_IMAGING_ORIENT_H
#define FSHARD_IMAGING_ORIENT_H

#include "imaging/image.h"

/* Writes source into target (another image, reserved here) as a viewer shows an image of this EXIF
 * orientation, 1..8. */
FshStatus image_orient(const Image *source, uint8_t orientation, Image *target, FshError *error);

/* Writes source with the given channels (1 or 3) into target. Gray is the luma of ITU-R 601, rounded as in
 * JPEG and in Pillow's convert("L"); RGB repeats gray. */
FshStatus image_convert_channels(const Image *source, uint32_t channels, Image *target, FshError *error);

/* Composites a row of pixels over white. from: `channels` colours (1 or 3) and alpha for each pixel; to: the
 * colours alone. */
void image_over_white(const uint8_t *from, uint32_t width, uint32_t channels, uint8_t *to);

#endif
