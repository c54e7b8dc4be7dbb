/* gif_check.h - whether the first image of a GIF is all there. Bytes may be hostile; nothing outside them is
 * read. Internal to imaging.
 *
 * libvips' reader (libnsgif) takes a damaged image for one that ends there, as a browser would show it: what
 * follows the damage is left in the background's colour, and nothing is said. Here the LZW codes are
 * followed, without their pixels. Source: GIF89a specification, sections 17 to 26 and appendix F. */
#ifndef FSHARD_IMAGING_GIF_CHECK_H
#define FSHARD_IMAGING_GIF_CHECK_H

#include <stddef.h>

#include "common/error.h"

/* FSH_ERR_CORRUPT: a code that does not exist, or fewer pixels than the image has. FSH_OK also where no image
 * is found, which is libvips' to tell. */
FshStatus gif_check(const void *file, size_t length, FshError *error);

#endif
