#include "tools/verify/verify_pixels.h"

#include <inttypes.h>
#include <string.h>

#include "imaging/mask.h"

void pixel_reader_free(PixelReader *reader)
{
    image_decoder_free(&reader->decoder);
    resampler_free(&reader->resampler);
    fsh_unpacker_free(&reader->unpacker);
    image_free(&reader->decoded);
    image_free(&reader->coloured);
}

FshStatus pixel_reader_bytes(PixelReader *reader, const FshSplit *split, const FshField *field,
                             const void **data_ret, size_t *bytes_ret, FshError *error)
{
    FshStatus status = reader->unpacker ? FSH_OK : fsh_unpacker_new(&reader->unpacker, error);
    return status ? status : fsh_field_unpack(reader->unpacker, split, field, data_ret, bytes_ret, error);
}

FshStatus pixel_reader_decode(PixelReader *reader, const FshField *field, const void *data, size_t bytes,
                              uint32_t least_edge, ImageInfo *info_ret, FshError *error)
{
    if (field->codec == FSH_CODEC_RAW) {
        const uint64_t expected = (uint64_t)field->width * field->height * field->channels;
        if (field->width == 0 || field->height == 0 || bytes != expected)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "%zu bytes are not %" PRIu32 "x%" PRIu32 "x%u pixels", bytes, field->width,
                                 field->height, (unsigned)field->channels);
        if (field->channels != 1 && field->channels != 3)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%u channels, not 1 or 3",
                                 (unsigned)field->channels);
        FshStatus reserved =
            image_reserve(&reader->decoded, field->width, field->height, field->channels, error);
        if (!reserved)
            memcpy(reader->decoded.pixels, data, bytes);
        return reserved;
    }
    FshStatus status = reader->decoder ? FSH_OK : image_decoder_new(&reader->decoder, error);
    /* The record's own size is the limit: an image that is larger is wrong, however much memory there is. */
    const ImageDecodeOptions options = {.max_pixels = (uint64_t)field->width * field->height,
                                        .least_width = least_edge,
                                        .least_height = least_edge};
    return status ? status
                  : image_decode(reader->decoder, data, bytes, &options, &reader->decoded, info_ret, error);
}

FshStatus pixel_reader_mask(PixelReader *reader, const void *data, size_t bytes, uint64_t max_pixels,
                            FshError *error)
{
    FshStatus status = reader->decoder ? FSH_OK : image_decoder_new(&reader->decoder, error);
    return status ? status
                  : image_decode_mask(reader->decoder, data, bytes, max_pixels, &reader->decoded, error);
}

FshStatus pixel_reader_colour_mask(PixelReader *reader, const void *data, size_t bytes, uint64_t max_pixels,
                                   FshError *error)
{
    uint8_t colours[MASK_COLOURS_BYTES];
    FshStatus status = pixel_reader_mask(reader, data, bytes, max_pixels, error);
    mask_voc_colours(colours);
    if (!status)
        status = mask_colour(&reader->decoded, colours, &reader->coloured, error);
    if (status)
        return status;
    const Image values = reader->decoded;
    reader->decoded = reader->coloured;
    reader->coloured = values;
    return FSH_OK;
}

FshStatus pixel_reader_shrink(PixelReader *reader, uint32_t edge, bool stretch, Image *thumbnail,
                              FshError *error)
{
    const Image *from = &reader->decoded;
    uint32_t width = edge, height = edge;
    if (!stretch && !resample_fit(from->width, from->height, edge, true, &width, &height)) {
        width = from->width;
        height = from->height;
    }
    FshStatus status = reader->resampler ? FSH_OK : resampler_new(&reader->resampler, error);
    return status
               ? status
               : resample(reader->resampler, from, NULL, width, height, RESAMPLE_BILINEAR, thumbnail, error);
}
