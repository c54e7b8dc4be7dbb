/* image_plugin.h - the line between imaging and libvips, so that programs start in a millisecond and run
 * without it.
 *
 * libfshard-vips.so exports one symbol, IMAGE_PLUGIN_SYMBOL, of type ImagePluginOpen. It is loaded
 * (common/plugin.h says from where) at the first image that libjpeg-turbo alone cannot do.
 *
 * All functions may be called from any thread. Messages do not name the file. */
#ifndef FSHARD_IMAGING_IMAGE_PLUGIN_H
#define FSHARD_IMAGING_IMAGE_PLUGIN_H

#include "common/file.h"
#include "imaging/decode.h"
#include "imaging/encode.h"
#include "imaging/image.h"

/* Changes with any struct below, and with ImageFormat, Image, ImageInfo, ImageMetadata, Buffer and
 * FshError. */
#define IMAGE_PLUGIN_VERSION 3
#define IMAGE_PLUGIN_SYMBOL  "fshard_image_plugin"
#define IMAGE_PLUGIN_FILE    "libfshard-vips.so"

typedef struct ImagePlugin {
    uint32_t version;    /* IMAGE_PLUGIN_VERSION it was built with */
    const char *library; /* "libvips 8.14.1" */

    /* As image_probe, for bytes that image_sniff called `format`. */
    FshStatus (*probe)(const void *bytes, size_t length, ImageFormat format, ImageInfo *info,
                       FshError *error);

    /* As image_decode, with three differences: pixels are as stored (orientation not applied), channels are
     * what the file has (1 or 3), options' least_width and least_height are ignored.
     * metadata is filled where options->keep_metadata: as the file has it, in room. */
    FshStatus (*decode)(const void *bytes, size_t length, ImageFormat format,
                        const ImageDecodeOptions *options, Image *image, ImageInfo *info,
                        ImageMetadata *metadata, Buffer *room, FshError *error);

    /* Pixels of an ICC profile's colours to sRGB, in place; gray stays gray. FSH_ERR_CORRUPT: an unusable
     * profile. */
    FshStatus (*convert_to_srgb)(Image *image, const void *profile, size_t length, FshError *error);

    /* As image_encode, PNG or WebP, with whatever metadata the library makes up. */
    FshStatus (*encode)(const Image *image, const ImageEncodeOptions *options, Buffer *out, FshError *error);
} ImagePlugin;

/* Returns NULL if the library cannot start, or if version is not its own. Idempotent. */
typedef const ImagePlugin *(*ImagePluginOpen)(uint32_t version);

/* Loads the plugin; it stays loaded until the process ends. FSH_ERR_UNSUPPORTED, with the way to get it. */
FshStatus image_plugin_load(const ImagePlugin **plugin, FshError *error);

#endif
