#include "imaging/image_webp.h"

#include <string.h>

#include <webp/decode.h>
#include <webp/encode.h>

#include "common/bytes.h"
#include "imaging/orient.h"

enum { RIFF_BYTES = 12, CHUNK_BYTES = 8 };

bool webp_probe_simple(const uint8_t *bytes, size_t length, ImageInfo *info)
{
    WebPBitstreamFeatures features;
    if (length < RIFF_BYTES + CHUNK_BYTES ||
        (memcmp(bytes + RIFF_BYTES, "VP8 ", 4) != 0 && memcmp(bytes + RIFF_BYTES, "VP8L", 4) != 0))
        return false;
    const size_t chunk_bytes = load_le32(bytes + RIFF_BYTES + 4);
    if (load_le32(bytes + 4) != length - CHUNK_BYTES ||
        chunk_bytes + chunk_bytes % 2 != length - RIFF_BYTES - CHUNK_BYTES ||
        WebPGetFeatures(bytes, length, &features) != VP8_STATUS_OK || features.has_alpha ||
        features.has_animation)
        return false;
    *info = (ImageInfo){.format = IMAGE_WEBP,
                        .width = (uint32_t)features.width,
                        .height = (uint32_t)features.height,
                        .stored_width = (uint32_t)features.width,
                        .stored_height = (uint32_t)features.height,
                        .channels = 3,
                        .orientation = 1};
    return true;
}

FshStatus webp_decode_simple(const uint8_t *bytes, size_t length, const ImageInfo *info, Image *image,
                             bool *done_ret, FshError *error)
{
    const size_t row_bytes = (size_t)info->width * 3;
    *done_ret = false;
    FshStatus status = image_reserve(image, info->width, info->height, 3, error);
    if (!status) /* edges have 14 bits */
        *done_ret =
            WebPDecodeRGBInto(bytes, length, image->pixels, row_bytes * info->height, (int)row_bytes) != NULL;
    return status;
}

FshStatus webp_encode(const Image *image, int quality, Buffer *out, FshError *error)
{
    WebPConfig config;
    WebPPicture picture;
    WebPMemoryWriter writer;
    Image colours = {0};
    if (image->width > WEBP_MAX_DIMENSION || image->height > WEBP_MAX_DIMENSION)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%u x %u pixels: WebP holds at most %d on an edge",
                             image->width, image->height, WEBP_MAX_DIMENSION);
    if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, (float)quality) || !WebPPictureInit(&picture))
        return fsh_error_set(error, FSH_ERR_LIBRARY, "libwebp is of another version than its headers were");
    WebPMemoryWriterInit(&writer);
    picture.width = (int)image->width;
    picture.height = (int)image->height;
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &writer;
    FshStatus status = image->channels == 3 ? FSH_OK : image_convert_channels(image, 3, &colours, error);
    const uint8_t *pixels = image->channels == 3 ? image->pixels : colours.pixels;
    if (!status &&
        (!WebPPictureImportRGB(&picture, pixels, picture.width * 3) || !WebPEncode(&config, &picture)))
        status = fsh_error_set(error, FSH_ERR_LIBRARY, "libwebp cannot encode it (its error %d)",
                               (int)picture.error_code);
    out->length = 0;
    if (!status)
        status = buffer_append(out, writer.mem, writer.size, error);
    WebPMemoryWriterClear(&writer);
    WebPPictureFree(&picture);
    image_free(&colours);
    return status;
}
