/* Images that lie in RAM as a JPEG has them (--cache planes). */
#include "trainer/data/decoded_planes.h"

const PixelSourceType source_planes = {
    .name = "planes",
    .option = "--cache planes",
    .instead = "--cache ram",
    .loaded = "in memory",
    .residence = PIXELS_IN_RAM,
    .evaluates = true,
    .whole = true,
    .chunk = 16,
    .bytes = sizeof(DecodedSource),
    .measure = decoded_planes_measure,
    .load = decoded_source_load_ram,
    .tell = decoded_source_tell,
    .extent = decoded_source_extent,
    .ram_bytes = decoded_source_ram_bytes,
    .close = decoded_source_close,
    .prefetch = decoded_source_prefetch,
    .open_sample = decoded_source_open_sample,
    .render = pixel_source_render_here,
};
