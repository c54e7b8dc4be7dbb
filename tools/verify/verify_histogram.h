/* verify_histogram.h - how many values lie in which range. */
#ifndef FSHARD_VERIFY_VERIFY_HISTOGRAM_H
#define FSHARD_VERIFY_VERIFY_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { HISTOGRAM_BINS = 40 };

/* Zeroed: empty. */
typedef struct Histogram {
    uint64_t counts[HISTOGRAM_BINS];
    uint64_t minimum, maximum, sum, count; /* of all values; minimum 0 while count is */
} Histogram;

/* Counts a value. Bin 0 is for 0; then one for 1, one for 2 to 3 … up to 15; then two for each doubling, and
 * all above in the last. */
void histogram_add(Histogram *histogram, uint64_t value);
/* Adds all counts of the other histogram. */
void histogram_merge(Histogram *histogram, const Histogram *other);
/* Returns the first value of a bin; of bin HISTOGRAM_BINS UINT64_MAX. */
uint64_t histogram_bin_begin(size_t bin);
/* Finds the bins from the first to the last that hold something: *begin_ret .. *end_ret - 1; both 0 where
 * none does. */
void histogram_range(const Histogram *histogram, size_t *begin_ret, size_t *end_ret);

#endif
