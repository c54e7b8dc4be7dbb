/* planes.h - images as luma and chroma apart, as a JPEG holds them, and the RGB that libjpeg makes of them,
 * bit for bit: its "fancy" upsampling of 4:2:0 and its conversion from YCbCr (JFIF, ITU-T T.871), in its own
 * fixed-point arithmetic.
 *
 * Memory: Y [height, width], then Cb and Cr [height, width] each, of 4:2:0 halved both ways and rounded up;
 * rows without padding, planes one after the other.
 *
 *   if (!image_probe(decoder, bytes, length, &info, &error) && planes_of_jpeg(decoder, &info, &chroma))
 *       status = planes_read_jpeg(decoder, memory, &error);    // [planes_bytes(chroma, width, height)]
 *   status = planes_expand(&planes, &part, 3, &image, &error); // any part of it, at any time
 *
 * Threads: any; one ImageDecoder per thread. */
#ifndef FSHARD_IMAGING_PLANES_H
#define FSHARD_IMAGING_PLANES_H

#include "imaging/decode.h"

typedef enum PlanesChroma {
    PLANES_GRAY, /* Y alone */
    PLANES_420,
    PLANES_444,
} PlanesChroma;

/* The planes of an image; borrowed. */
typedef struct Planes {
    const uint8_t *bytes; /* [planes_bytes] */
    uint32_t width, height;
    PlanesChroma chroma;
} Planes;

/* Returns the bytes of all planes of an image of width x height pixels. */
uint64_t planes_bytes(PlanesChroma chroma, uint32_t width, uint32_t height);

/* Returns whether planes of that chroma become the pixels that libjpeg makes: it upsamples 4:2:0 of fewer
 * than 5 columns or 2 rows in another way. */
bool planes_expandable(PlanesChroma chroma, uint32_t width, uint32_t height);

/* Returns whether the image that image_probe has just read with this decoder is a JPEG whose planes are
 * those of an upright image: gray, 4:2:0 or 4:4:4. Sets *chroma_ret. info: of that image_probe. */
bool planes_of_jpeg(ImageDecoder *decoder, const ImageInfo *info, PlanesChroma *chroma_ret);

/* Decodes the planes of that JPEG to `to`. FSH_ERR_CORRUPT: truncated or damaged; FSH_ERR_MEMORY. */
FshStatus planes_read_jpeg(ImageDecoder *decoder, uint8_t *to, FshError *error);

/* Fills `to` with the planes of an image, as libjpeg makes them of pixels before it encodes them: a halved
 * chroma sample is the mean of its four, of which those beyond an edge are the edge's. A gray image has
 * PLANES_GRAY, one with colours another chroma. */
void planes_of_image(const Image *image, PlanesChroma chroma, uint8_t *to);

/* Makes the pixels of a part, which must lie in the image: channels 3, RGB; 1, luma alone. FSH_ERR_MEMORY. */
FshStatus planes_expand(const Planes *planes, const ImagePart *part, uint32_t channels, Image *image,
                        FshError *error);

#endif
