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

void histogram_add(Histogram *histogram, uint64_t value)
{
    size_t bin = 0;
    while (bin + 1 < HISTOGRAM_BINS && value >= histogram_bin_begin(bin + 1))
        bin++;
    histogram->counts[bin]++;
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
