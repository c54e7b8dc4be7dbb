/* pack_measure.h - sizes and sums of pixels of images that a dataset holds already, by decoding what is
 * stored.
 *
 * Threads: one Measurer per thread. */
#ifndef FSHARD_PACK_MEASURE_H
#define FSHARD_PACK_MEASURE_H

#include "imaging/decode.h"
#include "tools/job/stats.h"

/* Zeroed at first; its parts are made when they are needed. */
typedef struct Measurer {
    ImageDecoder *decoder;
    FshUnpacker *unpacker;
    Image image;
} Measurer;

/* Adds the size of field `index` of a sample to the statistics, by decoding where the record does not
 * tell it, and with sums_pixels its pixels; of a mask its classes, and never pixels. FSH_ERR_CORRUPT,
 * FSH_ERR_MEMORY, … as unpacking and decoding fail. */
FshStatus measure_field(Measurer *measurer, const FshSplit *split, const FshSample *sample, unsigned index,
                        bool sums_pixels, PixelStatistics *statistics, FshError *error);
/* Frees what the measurer holds, and empties it. */
void measurer_free(Measurer *measurer);

#endif
