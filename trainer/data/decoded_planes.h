/* decoded_planes.h - the form of images that are kept as a JPEG holds them: 4:2:0 as planes, Y, then Cb and
 * Cr halved both ways, in half the memory of RGB; gray as gray, in a third. Each crop becomes RGB at its use,
 * by libjpeg's own arithmetic (imaging/planes.h): pixels are those of decoded_rows, bit for bit.
 *
 * From JPEG files, and from Y4M (fpack --store yuv420). What is no such image (4:4:4, turned by EXIF, PNG,
 * …), and all of a network that takes gray, is kept as rows of pixels. */
#ifndef FSHARD_TRAINER_DATA_DECODED_PLANES_H
#define FSHARD_TRAINER_DATA_DECODED_PLANES_H

#include "trainer/data/decoded_split.h"

extern const DecodedForm decoded_planes;

/* Measures the split for that form: `measure` of a DecodedSource's row. */
FshStatus decoded_planes_measure(PixelSource *source, FshError *error);

#endif
