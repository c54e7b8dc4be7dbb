#include "imaging/encode.h"

#include <stdlib.h>

#include "imaging/jpeg_encode.h"
#include "imaging/image_plugin.h"

struct ImageEncoder {
    JpegEncoder *jpeg;
    const ImagePlugin *plugin; /* NULL until an image needs it */
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
    free(*encoder);
    *encoder = NULL;
}

FshStatus image_encode_jpeg(ImageEncoder *encoder, const Image *image, int quality,
                            ImageSubsampling subsampling, Buffer *out, FshError *error)
{
    return jpeg_encoder_encode(encoder->jpeg, image, quality, subsampling, NULL, out, error);
}

FshStatus image_encode_png(ImageEncoder *encoder, const Image *image, Buffer *out, FshError *error)
{
    FshStatus status = encoder->plugin ? FSH_OK : image_plugin_load(&encoder->plugin, error);
    return status ? status : encoder->plugin->encode_png(image, out, error);
}
