/* png_chunks.h - what the chunks of a PNG say, and whether it can be read without libvips. Internal to
 * imaging.
 *
 * libpng, below libvips, is the judge of odd PNGs: it warns of chunks that it skips, goes on or refuses, and
 * its words reach the user. So a file is read here only if libpng would take all of it without a word: known
 * chunks, each once, in their places, with values in their ranges and right checksums. Everything else
 * (interlaced files, colour keys, files that are damaged or cut short, chunks that are not in the table of
 * png_chunks.c) is left to libvips, by its header or as a whole. Source: PNG third edition, 5 and 11. */
#ifndef FSHARD_IMAGING_PNG_CHUNKS_H
#define FSHARD_IMAGING_PNG_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"

typedef enum PngReader {
    PNG_BY_LIBVIPS,  /* libvips reads header and pixels */
    PNG_PIXELS_HERE, /* chunks before the pixels are for libvips to judge (a profile, EXIF, an animation); the
                       * pixels can be read here */
    PNG_WHOLLY_HERE, /* there is nothing that libpng would speak of */
} PngReader;

typedef enum PngColour {
    PNG_GRAY = 0,
    PNG_RGB = 2,
    PNG_PALETTE = 3,
    PNG_GRAY_ALPHA = 4,
    PNG_RGB_ALPHA = 6,
} PngColour;

typedef struct PngChunks {
    PngReader reader;
    uint32_t width, height; /* 1..1,000,000 */
    uint8_t bit_depth;
    PngColour colour;
    const uint8_t *palette; /* entries of 3 bytes */
    size_t palette_count;
    const uint8_t *alpha; /* of the palette's first entries; the others are opaque */
    size_t alpha_count;
    size_t pixels_at; /* offset of the first IDAT chunk */
} PngChunks;

/* A chunk of a file. */
typedef struct PngChunk {
    const uint8_t *type, *data; /* type: 4 bytes */
    size_t length;
    size_t next; /* offset of the chunk after it */
} PngChunk;
enum { PNG_SIGNATURE_BYTES = 8, PNG_EDGE_MAX = 1000000 /* libpng's own limit */ };

/* Reads the chunk at `at`. Returns whether it is whole, its type letters, and its checksum right. */
bool png_chunk_read(const uint8_t *bytes, size_t length, size_t at, PngChunk *chunk);
/* Returns whether the chunk is of this type, "IDAT" say. */
bool png_chunk_is(const PngChunk *chunk, const char *type);

/* Reads the chunks before the pixels and fills chunks, which points into bytes. Where reader is
 * PNG_BY_LIBVIPS, nothing else in it holds. */
void png_chunks_read(const uint8_t *bytes, size_t length, PngChunks *chunks);

/* Returns how many samples a pixel has in the file: 1 to 4. */
unsigned png_samples_count(PngColour colour);

/* Sets *stream_ret and *length_ret to the zlib stream of the pixels: the contents of all IDAT chunks, joined
 * in room if there are several. Checks their checksums and everything up to IEND. *stream_ret is NULL where
 * libvips has to judge. FSH_ERR_MEMORY. */
FshStatus png_chunks_pixels(const uint8_t *bytes, size_t length, const PngChunks *chunks, Buffer *room,
                            const uint8_t **stream_ret, size_t *length_ret, FshError *error);

#endif
