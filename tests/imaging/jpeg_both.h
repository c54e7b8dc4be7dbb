/* jpeg_both.h - a JPEG read by libjpeg alone, and by libjpeg with our reader of Huffman codes: they must be
 * equal.
 *
 *   JpegReading alone = {0}, ours = {0};
 *   jpeg_read_both_ways(&(JpegWanted){.eighths = 8}, bytes, length, NULL, &alone);
 *   jpeg_read_both_ways(&(JpegWanted){.eighths = 8}, bytes, length, huffman, &ours);
 *   … unless ours.gave_up: jpeg_readings_equal(&alone, &ours) … */
#ifndef FSHARD_TESTS_IMAGING_JPEG_BOTH_H
#define FSHARD_TESTS_IMAGING_JPEG_BOTH_H

#include "common/file.h"
#include "imaging/jpeg_huffman.h"

typedef struct JpegWanted {
    unsigned eighths;     /* of the size; 0: coefficients */
    bool own_colours;     /* the file's, not RGB or gray */
    bool strict;          /* damage is an error */
    uint64_t most_pixels; /* of the whole image; larger ones are refused; 0: no limit */
} JpegWanted;

typedef struct JpegReading {
    FshStatus status;
    FshError error;
    uint64_t warnings_count;
    Buffer values; /* pixels, or JCOEFs: component by component, row by row of whole MCUs */
    bool attached, gave_up;
} JpegReading;

/* Reads the JPEG, with huffman or, NULL, without. The caller frees reading->values, which may be reused. */
void jpeg_read_both_ways(const JpegWanted *wanted, const void *bytes, size_t length, JpegHuffman *huffman,
                         JpegReading *reading);

/* Returns whether both ended alike: status, message, warnings and, of what was read, every value. */
bool jpeg_readings_equal(const JpegReading *a, const JpegReading *b);

#endif
