/* file_decoder.c - FshDecoder: image files to pixels, for programs that read records themselves. */
#include <stdlib.h>
#include <string.h>

#include "imaging/decode.h"
#include "trainer/library/fshard_loader.h"

struct FshDecoder {
    ImageDecoder *decoder;
    Image image;
};

FshStatus fsh_decoder_open(FshDecoder **decoder, FshError *error)
{
    *decoder = calloc(1, sizeof **decoder);
    if (!*decoder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a decoder");
    FshStatus status = image_decoder_new(&(*decoder)->decoder, error);
    if (status)
        fsh_decoder_close(decoder);
    return status;
}

void fsh_decoder_close(FshDecoder **decoder)
{
    if (!*decoder)
        return;
    image_decoder_free(&(*decoder)->decoder);
    image_free(&(*decoder)->image);
    free(*decoder);
    *decoder = NULL;
}

FshStatus fsh_decoder_decode(FshDecoder *decoder, const void *bytes, size_t length, uint32_t width,
                             uint32_t height, uint32_t channels, uint8_t *pixels, FshError *error)
{
    ImageInfo info;
    Image *image = &decoder->image;
    if (channels != 1 && channels != 3)
        return fsh_error_set(error, FSH_ERR_USAGE, "images have 1 or 3 channels, not %u", channels);
    FshStatus status = image_decode(decoder->decoder, bytes, length,
                                    &(ImageDecodeOptions){.channels = channels}, image, &info, error);
    if (status)
        return status;
    if (image->width != width || image->height != height || image->channels != channels)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "decodes to %u x %u x %u pixels, its record says %u x %u x %u", image->height,
                             image->width, image->channels, height, width, channels);
    memcpy(pixels, image->pixels, (size_t)width * height * channels);
    return FSH_OK;
}

FshStatus fsh_decoder_decode_mask(FshDecoder *decoder, const void *bytes, size_t length, uint32_t width,
                                  uint32_t height, uint8_t *values, FshError *error)
{
    Image *image = &decoder->image;
    FshStatus status = image_decode_mask(decoder->decoder, bytes, length, 0, image, error);
    if (status)
        return status;
    if (image->width != width || image->height != height)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "decodes to %u x %u values, its record says %u x %u",
                             image->height, image->width, height, width);
    memcpy(values, image->pixels, (size_t)width * height);
    return FSH_OK;
}
