/* image_plugin.h - the interface between imaging and libvips, so that programs start in a millisecond and run
 * without libvips.
 *
 * libfshard-vips.so exports one symbol, IMAGE_PLUGIN_SYMBOL, of type ImagePluginOpen. It is loaded
 * (common/plugin.h says from where) at the first image that needs it (decode.h).
 *
 * All functions may be called from any thread. Messages do not name the file. */
#ifndef FSHARD_IMAGING_IMAGE_PLUGIN_H
#define FSHARD_IMAGING_IMAGE_PLUGIN_H

#include "common/file.h"
#include "imaging/decode.h"
#include "imaging/encode.h"
#include "imaging/image.h"

/* Raise it with any change of the struct below, of ImageFormat, Image, ImageInfo, ImageMetadata, Buffer or
 * FshError. */
#define IMAGE_PLUGIN_VERSION 4
#define IMAGE_PLUGIN_SYMBOL  "fshard_image_plugin"
#define IMAGE_PLUGIN_FILE    "libfshard-vips.so"

typedef struct ImagePlugin {
    uint32_t version;    /* the IMAGE_PLUGIN_VERSION that it was built with */
    const char *library; /* "libvips 8.14.1" */

    /* Does what image_probe does, for bytes that image_sniff called `format`. */
    FshStatus (*probe)(const void *bytes, size_t length, ImageFormat format, ImageInfo *info,
                       FshError *error);

    /* Does what image_decode does, with three differences: pixels are as stored (orientation not applied),
     * channels are the file's (1 or 3), and least_width and least_height of options are ignored. With
     * options->keep_metadata it fills metadata with the file's blocks, kept in room. */
    FshStatus (*decode)(const void *bytes, size_t length, ImageFormat format,
                        const ImageDecodeOptions *options, Image *image, ImageInfo *info,
                        ImageMetadata *metadata, Buffer *room, FshError *error);

    /* Converts pixels from the colours of an ICC profile to sRGB, in place; gray stays gray. FSH_ERR_CORRUPT:
     * an unusable profile. */
    FshStatus (*convert_to_srgb)(Image *image, const void *profile, size_t length, FshError *error);

    /* Does what image_encode does for WebP, without metadata. */
    FshStatus (*encode)(const Image *image, const ImageEncodeOptions *options, Buffer *out, FshError *error);
} ImagePlugin;

/* Returns the plugin, or NULL if the library cannot start or has another version. Idempotent. */
typedef const ImagePlugin *(*ImagePluginOpen)(uint32_t version);

/* Loads the plugin and sets *plugin; it stays loaded until the process ends. FSH_ERR_UNSUPPORTED: it is not
 * there; the message says how to get it. */
FshStatus image_plugin_load(const ImagePlugin **plugin, FshError *error);

#endif
