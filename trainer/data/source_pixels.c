/* Images that lie decoded in RAM (--cache pixels). */
#include "trainer/data/decoded_split.h"

static FshStatus measure(PixelSource *source, FshError *error)
{
    return decoded_split_measure(&((DecodedSource *)source)->split, &source->options, &decoded_rows, error);
}

static FshStatus open_sample(const PixelSource *source, SampleLoader *samples, uint64_t epoch,
                             uint64_t sample, SampleInfo *info, FshError *error)
{
    const DecodedSplit *split = decoded_split_of(source);
    const DecodedImage *images = NULL;
    ImageView views[2];
    FshStatus status = decoded_split_find(split, sample, &images, error);
    if (status)
        return status;
    for (unsigned side = 0; side < split->sides; side++)
        views[side] = (ImageView){.pixels = split->memory + images[side].offset_bytes,
                                  .stride_bytes = (size_t)images[side].width * images[side].channels,
                                  .width = images[side].width,
                                  .height = images[side].height,
                                  .channels = images[side].channels};
    *info = (SampleInfo){
        .label = decoded_split_label(split, sample), .width = images[0].width, .height = images[0].height};
    sample_loader_open_decoded(samples, epoch, sample, views);
    return FSH_OK;
}

const PixelSourceType source_pixels = {
    .name = "pixels",
    .option = "--cache pixels",
    .instead = "--cache ram",
    .loaded = "in memory, decoded",
    .residence = PIXELS_IN_RAM,
    .evaluates = true,
    .whole = true,
    .chunk = 16,
    .bytes = sizeof(DecodedSource),
    .measure = measure,
    .load = decoded_source_load_ram,
    .tell = decoded_source_tell,
    .ram_bytes = decoded_source_ram_bytes,
    .close = decoded_source_close,
    .prefetch = decoded_source_prefetch,
    .open_sample = open_sample,
    .render = pixel_source_render_here,
};
