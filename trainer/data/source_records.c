/* Records, decoded at each use. Raw pixels are rendered from where they lie in the mapping. */
#include "trainer/data/pixel_source.h"

const PixelSourceType source_records = {
    .name = "records",
    .evaluates = true,
    .whole = true,
    .chunk = 16,
    .bytes = sizeof(PixelSource),
    .load = pixel_source_cache_files,
    .tell = pixel_source_tell_files,
    .prefetch = pixel_source_prefetch_record,
    .open_sample = pixel_source_open_record,
    .render = pixel_source_render_here,
};
