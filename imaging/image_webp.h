/* image_webp.h - WebP by libwebp itself, which libvips uses too. Part of the libvips plugin.
 *
 * A simple file (RFC 9649, 2.5 and 2.6: one chunk of pixels, without alpha, metadata or animation) gives the
 * same pixels in half of the time. libvips reads all others, and says what is wrong with those that are
 * damaged.
 *
 * Threads: all functions may be called from any. */
#ifndef FSHARD_IMAGING_IMAGE_WEBP_H
#define FSHARD_IMAGING_IMAGE_WEBP_H

#include <stdbool.h>

#include "common/file.h"
#include "imaging/image.h"

/* Returns whether the bytes are a simple file, whole by its lengths, and fills info. */
bool webp_probe_simple(const uint8_t *bytes, size_t length, ImageInfo *info);

/* Decodes a simple file, whose info this is. *done_ret is false where it is damaged. FSH_ERR_MEMORY. */
FshStatus webp_decode_simple(const uint8_t *bytes, size_t length, const ImageInfo *info, Image *image,
                             bool *done_ret, FshError *error);

/* Encodes gray or RGB as a simple lossy file into out and sets its length. FSH_ERR_MISMATCH: an edge above
 * 16383. FSH_ERR_MEMORY. */
FshStatus webp_encode(const Image *image, int quality, Buffer *out, FshError *error);

#endif
