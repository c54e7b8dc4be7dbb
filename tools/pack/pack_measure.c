#include "tools/pack/pack_measure.h"

FshStatus measure_field(Measurer *measurer, const FshSplit *split, const FshSample *sample, unsigned index,
                        bool sums_pixels, PixelStatistics *statistics, FshError *error)
{
    const FshField *field = &sample->fields[index];
    const bool mask = fsh_is_mask(fsh_manifest(split->dataset)->kind, index);
    const void *data = NULL;
    size_t bytes = 0;
    const bool told = field->width && field->height && field->channels;
    if (told)
        stats_add_size(statistics, field->width, field->height, field->channels);
    if (told && !sums_pixels && !mask)
        return FSH_OK;
    FshStatus status = measurer->unpacker ? FSH_OK : fsh_unpacker_new(&measurer->unpacker, error);
    if (!status)
        status = fsh_field_unpack(measurer->unpacker, split, field, &data, &bytes, error);
    if (!status && mask) {
        bool ignored = false;
        if (!measurer->decoder)
            status = image_decoder_new(&measurer->decoder, error);
        if (!status)
            status = image_decode_mask(measurer->decoder, data, bytes, 0, &measurer->image, error);
        if (!status)
            stats_add_mask(statistics, &measurer->image, &ignored);
        return status;
    }
    if (!status && field->codec == FSH_CODEC_RAW) {   /* its size is told, and was checked */
        const Image raw = {.pixels = (uint8_t *)data, /* is only read */
                           .width = field->width,
                           .height = field->height,
                           .channels = field->channels};
        if (raw.channels != 1 && raw.channels != 3)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%u channels, not 1 or 3", (unsigned)raw.channels);
        stats_add_pixels(statistics, &raw);
        return FSH_OK;
    }
    if (!status && !measurer->decoder)
        status = image_decoder_new(&measurer->decoder, error);
    const ImageDecodeOptions options = {.max_pixels = told ? (uint64_t)field->width * field->height : 0};
    if (!status)
        status = image_decode(measurer->decoder, data, bytes, &options, &measurer->image, NULL, error);
    if (!status && !told)
        stats_add_size(statistics, measurer->image.width, measurer->image.height, measurer->image.channels);
    if (!status && sums_pixels)
        stats_add_pixels(statistics, &measurer->image);
    return status;
}

void measurer_free(Measurer *measurer)
{
    image_decoder_free(&measurer->decoder);
    fsh_unpacker_free(&measurer->unpacker);
    image_free(&measurer->image);
    *measurer = (Measurer){0};
}
