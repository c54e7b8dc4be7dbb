/* png_filter.h - the five filters of PNG rows (PNG third edition, 9). Internal to imaging.
 *
 * A pixel is pixel_bytes long, 1 to 8 (1 where several pixels share a byte). The row above the first one is
 * zeros, which NULL stands for. */
#ifndef FSHARD_IMAGING_PNG_FILTER_H
#define FSHARD_IMAGING_PNG_FILTER_H

#include <stddef.h>
#include <stdint.h>

typedef enum PngFilter {
    PNG_FILTER_NONE,
    PNG_FILTER_SUB,
    PNG_FILTER_UP,
    PNG_FILTER_AVERAGE,
    PNG_FILTER_PAETH,
    PNG_FILTERS_COUNT,
} PngFilter;

/* The fast functions read, but do not write, up to this many bytes behind a row. */
enum { PNG_FILTER_SLACK = 8 };

/* Undoes the filter of a row of `length` bytes, a multiple of pixel_bytes. above: the row above, undone
 * already. to: another row, or `row` itself. */
void png_unfilter(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                  size_t pixel_bytes, uint8_t *to);
/* Does the same byte by byte: the reference. */
void png_unfilter_plain(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                        size_t pixel_bytes, uint8_t *to);

/* Applies the filter to a row. to: another row. */
void png_filter(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length, size_t pixel_bytes,
                uint8_t *to);

/* Writes the row to `to` by the filter after which its bytes have the least entropy. libpng's rule, the least
 * sum of absolute values, makes files 0.3 % larger. trial: room for another row. Returns the filter. */
PngFilter png_filter_best(const uint8_t *row, const uint8_t *above, size_t length, size_t pixel_bytes,
                          uint8_t *trial, uint8_t *to);

#endif
