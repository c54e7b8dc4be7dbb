#include "imaging/encode.h"

#include <stdlib.h>

#include "imaging/image_plugin.h"
#include "imaging/jpeg_encode.h"
#include "imaging/image_metadata_write.h"
#include "imaging/png_encode.h"

struct ImageEncoder {
    JpegEncoder *jpeg;
    PngEncoder *png;           /* made when an image first needs it; NULL before */
    const ImagePlugin *plugin; /* loaded when an image first needs it; NULL before */
};

FshStatus image_encoder_new(ImageEncoder **encoder_ret, FshError *error)
{
    ImageEncoder *encoder = calloc(1, sizeof *encoder);
    FshStatus status = encoder ? jpeg_encoder_new(&encoder->jpeg, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for an encoder");
    if (status)
        image_encoder_free(&encoder);
    *encoder_ret = encoder;
    return status;
}

void image_encoder_free(ImageEncoder **encoder)
{
    if (!*encoder)
        return;
    jpeg_encoder_free(&(*encoder)->jpeg);
    png_encoder_free(&(*encoder)->png);
    free(*encoder);
    *encoder = NULL;
}

JpegEncoder *image_encoder_jpeg(ImageEncoder *encoder)
{
    return encoder->jpeg;
}

FshStatus image_encode(ImageEncoder *encoder, const Image *image, const ImageEncodeOptions *options,
                       Buffer *out, FshError *error)
{
    if (options->format == IMAGE_JPEG)
        return jpeg_encoder_encode(encoder->jpeg, image, options->quality, options->subsampling,
                                   options->metadata, out, error);
    if (options->format == IMAGE_PNG) {
        FshStatus status = encoder->png ? FSH_OK : png_encoder_new(&encoder->png, error);
        return status ? status : png_encoder_encode(encoder->png, image, options->metadata, out, error);
    }
    if (options->format != IMAGE_WEBP)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "there is no writer for %s here",
                             image_format_name(options->format));
    FshStatus status = encoder->plugin ? FSH_OK : image_plugin_load(&encoder->plugin, error);
    if (!status)
        status = encoder->plugin->encode(image, options, out, error);
    return status ? status : metadata_write_webp(out, image, options->metadata, error);
}

FshStatus image_encode_mask(ImageEncoder *encoder, const Image *mask, const MaskFormat *format, Buffer *out,
                            FshError *error)
{
    FshStatus status = encoder->png ? FSH_OK : png_encoder_new(&encoder->png, error);
    return status ? status : png_encoder_encode_mask(encoder->png, mask, format, out, error);
}
