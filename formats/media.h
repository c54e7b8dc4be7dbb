/* media.h - the extensions of images in tars and LMDBs of others, and NumPy's .npy. */
#ifndef FSHARD_FORMATS_MEDIA_H
#define FSHARD_FORMATS_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/fshard.h"

/* Returns "jpg", "png", …, without a dot; "npy" for raw. */
const char *fsh_codec_extension(FshCodec codec);
/* Returns whether a file of this extension (lower case, not NUL-terminated) is an image. npy is not among
 * them: its header tells. */
bool fsh_extension_is_image(const char *extension, size_t bytes);

/* NumPy's .npy, versions 1 to 3 (numpy.lib.format): uint8, C order, (height, width) or (height, width, 1 to
 * 4). */
typedef struct NpyArray {
    uint32_t height, width;
    uint8_t channels;
    size_t data_at; /* the pixels run from here to the end */
} NpyArray;
/* Reads a .npy of bytes into *array_ret. Returns false for another type or shape, for no .npy, and for a
 * damaged one. */
bool fsh_npy_parse(const uint8_t *bytes, size_t length, NpyArray *array_ret);
enum { NPY_HEADER_BYTES = 128 };
/* Writes a header of version 1.0; it has NPY_HEADER_BYTES for every size. */
void fsh_npy_store_header(uint8_t header[NPY_HEADER_BYTES], uint32_t height, uint32_t width,
                          uint8_t channels);

#endif
