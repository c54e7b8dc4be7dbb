/* gif_check.h - checks that the first image of a GIF is complete. Bytes may be hostile; nothing outside them
 * is read. Internal to imaging.
 *
 * libvips' reader (libnsgif) lets a damaged image end at the damage, as a browser would: the rest keeps the
 * colour of the background, and nothing is reported. gif_check follows the LZW codes without making pixels.
 * Source: GIF89a specification, sections 17 to 26 and appendix F. */
#ifndef FSHARD_IMAGING_GIF_CHECK_H
#define FSHARD_IMAGING_GIF_CHECK_H

#include <stddef.h>

#include "common/error.h"

/* Returns FSH_ERR_CORRUPT for a code that does not exist or for fewer pixels than the image has. Returns
 * FSH_OK also if no image is found, which libvips reports. */
FshStatus gif_check(const void *file, size_t length, FshError *error);

#endif
