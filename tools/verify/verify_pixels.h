/* verify_pixels.h - what a field holds: its bytes, its pixels, a thumbnail of it.
 *
 * Threads: one PixelReader per thread. Zeroed to begin with; it makes what it needs when it needs it. */
#ifndef FSHARD_VERIFY_VERIFY_PIXELS_H
#define FSHARD_VERIFY_VERIFY_PIXELS_H

#include "formats/fshard.h"
#include "imaging/decode.h"
#include "imaging/resample.h"

typedef struct PixelReader {
    ImageDecoder *decoder;
    Resampler *resampler;
    FshUnpacker *unpacker;
    Image decoded, coloured; /* coloured: room for the colours of a mask */
} PixelReader;

void pixel_reader_free(PixelReader *reader);

/* Gets the codec's bytes of a field: *data_ret, borrowed until the reader's next call, and *bytes_ret. */
FshStatus pixel_reader_bytes(PixelReader *reader, const FshSplit *split, const FshField *field,
                             const void **data_ret, size_t *bytes_ret, FshError *error);

/* Decodes an image file, or raw pixels of field's geometry, in memory, to reader->decoded. least_edge: a JPEG
 * may be decoded smaller, with no edge below this; 0: in full. info_ret may be NULL; it is left alone for raw
 * pixels. */
FshStatus pixel_reader_decode(PixelReader *reader, const FshField *field, const void *data, size_t bytes,
                              uint32_t least_edge, ImageInfo *info_ret, FshError *error);

/* Decodes a mask to reader->decoded: its values, of one channel. Fails as image_decode_mask. */
FshStatus pixel_reader_mask(PixelReader *reader, const void *data, size_t bytes, uint64_t max_pixels,
                            FshError *error);

/* Decodes a mask to reader->decoded as a picture: each value in its colour of Pascal VOC (imaging/mask.h).
 * Fails as image_decode_mask. */
FshStatus pixel_reader_colour_mask(PixelReader *reader, const void *data, size_t bytes, uint64_t max_pixels,
                                   FshError *error);

/* Makes of reader->decoded the whole image in a box of edge x edge pixels: as large as fits, never enlarged;
 * with stretch exactly that size, its proportions given up. */
FshStatus pixel_reader_shrink(PixelReader *reader, uint32_t edge, bool stretch, Image *thumbnail,
                              FshError *error);

#endif
