#include "trainer/data/decoded_planes.h"

#include <string.h>

#include "imaging/y4m.h"

/* Returns whether the field is an image whose planes its decoder can give: a JPEG, whose header has been read
 * then, or a Y4M, to whose planes *stored points then. Sets *chroma_ret. */
static bool find_planes(SampleLoader *samples, unsigned side, Planes *stored, PlanesChroma *chroma_ret)
{
    const FshField *field = sample_loader_field(samples, side);
    ImageDecoder *decoder = sample_loader_decoder(samples);
    ImageInfo info;
    *stored = (Planes){0};
    if (field->codec == FSH_CODEC_Y4M) {
        if (y4m_open(field->data, field->bytes, &info, stored, NULL))
            return false;
        *chroma_ret = stored->chroma;
    } else if (field->codec != FSH_CODEC_JPEG ||
               image_probe(decoder, field->data, field->bytes, &info, NULL) ||
               !planes_of_jpeg(decoder, &info, chroma_ret)) {
        return false;
    }
    return info.width == field->width && info.height == field->height &&
           planes_expandable(*chroma_ret, info.width, info.height) &&
           planes_bytes(*chroma_ret, info.width, info.height) <=
               UINT32_MAX; /* places have 32 bits in kernels */
}

static FshStatus measure(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                         FshError *error)
{
    Planes stored;
    PlanesChroma chroma;
    FshStatus status = decoded_rows.measure(samples, side, decoded, image, error);
    if (status || decoded != 3 || !find_planes(samples, side, &stored, &chroma) || chroma == PLANES_444)
        return status;
    image->expands = chroma == PLANES_420;
    image->channels = chroma == PLANES_GRAY ? 1 : 3;
    image->bytes = planes_bytes(chroma, image->width, image->height);
    return FSH_OK;
}

static FshStatus write(SampleLoader *samples, unsigned side, uint32_t decoded, const DecodedImage *image,
                       uint8_t *to, FshError *error)
{
    Planes stored;
    PlanesChroma chroma = PLANES_GRAY;
    FshStatus status = FSH_OK;
    if (!image->expands)
        return decoded_rows.write(samples, side, image->channels == 1 ? 1 : decoded, image, to, error);
    if (!find_planes(samples, side, &stored, &chroma) || chroma != PLANES_420)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "the file has changed since it was measured");
    else if (stored.bytes)
        memcpy(to, stored.bytes, image->bytes);
    else
        status = planes_read_jpeg(sample_loader_decoder(samples), to, error);
    return sample_loader_end(samples, side, status, error);
}

static FshStatus expand(const ImageView *stored, const ImagePart *part, Image *image, FshError *error)
{
    const Planes planes = {
        .bytes = stored->pixels, .width = stored->width, .height = stored->height, .chroma = PLANES_420};
    return planes_expand(&planes, part, 3, image, error);
}

const DecodedForm decoded_planes = {measure, write, expand};

FshStatus decoded_planes_measure(PixelSource *source, FshError *error)
{
    return decoded_split_measure(&((DecodedSource *)source)->split, &source->options, &decoded_planes, error);
}
