/* Images that lie in RAM as a JPEG of 4:2:0 has them (--cache planes): Y, then Cb and Cr halved both ways, in
 * half the memory of --cache pixels. Each crop becomes RGB at its use, by the upsampling and the conversion
 * of libjpeg in its own arithmetic: pixels are those of --cache pixels, bit for bit. Images that are no such
 * JPEG (gray, 4:4:4, turned by EXIF, PNG, …), and those of a network that takes gray, are kept as pixels. */
#include <string.h>

#include "imaging/y4m.h"
#include "trainer/data/decoded_split.h"

/* ---- from the file ---- */

/* Returns whether the field is an image of 4:2:0 that its decoder can give as planes: a JPEG, whose header
 * has been read then, or a Y4M, to whose planes *stored points then. */
static bool has_planes(SampleLoader *samples, unsigned side, Planes *stored)
{
    const FshField *field = sample_loader_field(samples, side);
    ImageDecoder *decoder = sample_loader_decoder(samples);
    ImageInfo info;
    PlanesChroma chroma = PLANES_GRAY;
    *stored = (Planes){0};
    if (field->codec == FSH_CODEC_Y4M) {
        chroma = y4m_open(field->data, field->bytes, &info, stored, NULL) ? PLANES_GRAY : stored->chroma;
    } else if (field->codec != FSH_CODEC_JPEG ||
               image_probe(decoder, field->data, field->bytes, &info, NULL) ||
               !planes_of_jpeg(decoder, &info, &chroma)) {
        return false;
    }
    return chroma == PLANES_420 && info.width == field->width && info.height == field->height &&
           planes_expandable(chroma, info.width, info.height);
}

static FshStatus measure_planes(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                                FshError *error)
{
    Planes stored;
    FshStatus status = decoded_rows.measure(samples, side, decoded, image, error);
    image->expands = !status && decoded == 3 && has_planes(samples, side, &stored);
    if (image->expands)
        image->bytes = planes_bytes(PLANES_420, image->width, image->height);
    return status;
}

static FshStatus write_planes(SampleLoader *samples, unsigned side, uint32_t decoded,
                              const DecodedImage *image, uint8_t *to, FshError *error)
{
    Planes stored;
    FshStatus status = FSH_OK;
    if (!image->expands)
        return decoded_rows.write(samples, side, decoded, image, to, error);
    if (!has_planes(samples, side, &stored))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "the file has changed since it was measured");
    else if (stored.bytes)
        memcpy(to, stored.bytes, image->bytes);
    else
        status = planes_read_jpeg(sample_loader_decoder(samples), to, error);
    return sample_loader_end(samples, side, status, error);
}

/* ---- to RGB ---- */

static FshStatus expand(const ImageView *stored, const ImagePart *part, Image *image, FshError *error)
{
    const Planes planes = {
        .bytes = stored->pixels, .width = stored->width, .height = stored->height, .chroma = PLANES_420};
    return planes_expand(&planes, part, 3, image, error);
}

/* ---- the row ---- */

static const DecodedForm form = {measure_planes, write_planes, expand};

static FshStatus measure(PixelSource *source, FshError *error)
{
    return decoded_split_measure(&((DecodedSource *)source)->split, &source->options, &form, error);
}

const PixelSourceType source_planes = {
    .name = "planes",
    .option = "--cache planes",
    .instead = "--cache ram",
    .loaded = "in memory, as planes",
    .residence = PIXELS_IN_RAM,
    .evaluates = true,
    .whole = true,
    .chunk = 16,
    .bytes = sizeof(DecodedSource),
    .measure = measure,
    .load = decoded_source_load_ram,
    .tell = decoded_source_tell,
    .extent = decoded_source_extent,
    .ram_bytes = decoded_source_ram_bytes,
    .close = decoded_source_close,
    .prefetch = decoded_source_prefetch,
    .open_sample = decoded_source_open_sample,
    .render = pixel_source_render_here,
};
