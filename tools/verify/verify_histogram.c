#include "tools/verify/verify_histogram.h"

/* 0, 1, 2, 4, 8, then 16, 24, 32, 48 … */
enum { SINGLE_BINS = 5 };

uint64_t histogram_bin_begin(size_t bin)
{
    if (bin == 0)
        return 0;
    if (bin >= HISTOGRAM_BINS)
        return UINT64_MAX;
    if (bin < SINGLE_BINS)
        return UINT64_C(1) << (bin - 1);
    const size_t half = bin - SINGLE_BINS;
    return half % 2 ? UINT64_C(24) << half / 2 : UINT64_C(16) << half / 2;
}

/* Returns the bin whose beginning is the last that is not above the value. */
static size_t bin_of(uint64_t value)
{
    if (value == 0)
        return 0;
    const unsigned power = 63 - (unsigned)__builtin_clzll(value);
    const size_t bin =
        power < SINGLE_BINS - 1 ? power + 1 : SINGLE_BINS + 2 * (power - 4) + (value >> (power - 1) & 1);
    return bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1;
}

void histogram_merge(Histogram *histogram, const Histogram *other)
{
    if (other->count == 0)
        return;
    for (size_t i = 0; i < HISTOGRAM_BINS; i++)
        histogram->counts[i] += other->counts[i];
    if (histogram->count == 0 || other->minimum < histogram->minimum)
        histogram->minimum = other->minimum;
    if (other->maximum > histogram->maximum)
        histogram->maximum = other->maximum;
    histogram->sum += other->sum;
    histogram->count += other->count;
}

void histogram_add(Histogram *histogram, uint64_t value)
{
    histogram->counts[bin_of(value)]++;
    if (histogram->count == 0 || value < histogram->minimum)
        histogram->minimum = value;
    if (value > histogram->maximum)
        histogram->maximum = value;
    histogram->sum += value;
    histogram->count++;
}

void histogram_range(const Histogram *histogram, size_t *begin_ret, size_t *end_ret)
{
    size_t begin = 0, end = HISTOGRAM_BINS;
    *begin_ret = *end_ret = 0;
    if (histogram->count == 0)
        return;
    while (histogram->counts[begin] == 0)
        begin++;
    while (histogram->counts[end - 1] == 0)
        end--;
    *begin_ret = begin;
    *end_ret = end;
}
