#include "tools/job/codec.h"

static const struct {
    ImageFormat format;
    FshCodec codec;
} codecs[] = {
    {IMAGE_JPEG, FSH_CODEC_JPEG}, {IMAGE_PNG, FSH_CODEC_PNG}, {IMAGE_WEBP, FSH_CODEC_WEBP},
    {IMAGE_TIFF, FSH_CODEC_TIFF}, {IMAGE_GIF, FSH_CODEC_GIF}, {IMAGE_BMP, FSH_CODEC_BMP},
    {IMAGE_PNM, FSH_CODEC_PNM},
};

FshCodec codec_of_format(ImageFormat format)
{
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        if (codecs[i].format == format)
            return codecs[i].codec;
    }
    return FSH_CODEC_OTHER;
}
