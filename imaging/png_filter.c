#include "imaging/png_filter.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Returns which of left, above and above left is nearest to left + above - corner. */
static inline uint8_t paeth(uint8_t left, uint8_t above, uint8_t corner)
{
    const int16_t to_left = (int16_t)abs(above - corner), to_above = (int16_t)abs(left - corner);
    const int16_t to_corner = (int16_t)abs(left + above - 2 * corner);
    const uint8_t other = to_above <= to_corner ? above : corner;
    return to_left <= to_above && to_left <= to_corner ? left : other;
}

static inline uint8_t average(uint8_t left, uint8_t above)
{
    return (uint8_t)((left + above) >> 1);
}

/* Returns the filter that does the same to a row without one above. The average of a byte and 0 is its half,
 * for which there is none. */
static PngFilter without_above(PngFilter filter)
{
    if (filter == PNG_FILTER_PAETH)
        return PNG_FILTER_SUB;
    return filter == PNG_FILTER_UP ? PNG_FILTER_NONE : filter;
}

/* ---- undoing ---- */

void png_unfilter_plain(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                        size_t pixel_bytes, uint8_t *to)
{
    if (!above)
        filter = without_above(filter);
    for (size_t i = 0; i < length; i++) {
        const uint8_t left = i >= pixel_bytes ? to[i - pixel_bytes] : 0;
        const uint8_t up = above ? above[i] : 0,
                      corner = above && i >= pixel_bytes ? above[i - pixel_bytes] : 0;
        uint8_t guess = 0;
        if (filter == PNG_FILTER_SUB)
            guess = left;
        else if (filter == PNG_FILTER_UP)
            guess = up;
        else if (filter == PNG_FILTER_AVERAGE)
            guess = average(left, up);
        else if (filter == PNG_FILTER_PAETH)
            guess = paeth(left, up, corner);
        to[i] = (uint8_t)(row[i] + guess);
    }
}

#ifdef __SSE2__

/* Loads a pixel, and what follows it up to 4 or 8 bytes. */
static inline __m128i load_pixel(const uint8_t *at, size_t pixel_bytes)
{
    int32_t four = 0;
    if (pixel_bytes > 4)
        return _mm_loadl_epi64((const __m128i *)(const void *)at);
    memcpy(&four, at, sizeof four);
    return _mm_cvtsi32_si128(four);
}

static inline void store_pixel(uint8_t *to, __m128i pixel, size_t pixel_bytes)
{
    int64_t eight = _mm_cvtsi128_si32(pixel);
    if (pixel_bytes > 4)
        _mm_storel_epi64((__m128i *)(void *)&eight, pixel);
    memcpy(to, &eight, pixel_bytes);
}

static inline __m128i absolute(__m128i x)
{
    return _mm_max_epi16(x, _mm_sub_epi16(_mm_setzero_si128(), x));
}

static inline __m128i choose(__m128i where, __m128i one, __m128i other)
{
    return _mm_or_si128(_mm_and_si128(where, one), _mm_andnot_si128(where, other));
}

/* Undoes Sub, Average or Paeth pixel by pixel; inlined for each pixel_bytes. */
static inline void unfilter_pixels(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                                   size_t pixel_bytes, uint8_t *to)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i left = zero, corner = zero; /* 8-bit for Sub and Average, 16-bit for Paeth */
    if (filter == PNG_FILTER_SUB) {
        for (size_t i = 0; i < length; i += pixel_bytes) {
            left = _mm_add_epi8(left, load_pixel(row + i, pixel_bytes));
            store_pixel(to + i, left, pixel_bytes);
        }
    } else if (filter == PNG_FILTER_AVERAGE) {
        for (size_t i = 0; i < length; i += pixel_bytes) {
            const __m128i up = above ? load_pixel(above + i, pixel_bytes) : zero;
            /* the instruction rounds up, PNG down */
            const __m128i odd = _mm_and_si128(_mm_xor_si128(left, up), _mm_set1_epi8(1));
            left = _mm_add_epi8(_mm_sub_epi8(_mm_avg_epu8(left, up), odd), load_pixel(row + i, pixel_bytes));
            store_pixel(to + i, left, pixel_bytes);
        }
    } else if (filter == PNG_FILTER_PAETH) {
        for (size_t i = 0; i < length; i += pixel_bytes) {
            const __m128i up = _mm_unpacklo_epi8(load_pixel(above + i, pixel_bytes), zero);
            const __m128i rise = _mm_sub_epi16(up, corner), run = _mm_sub_epi16(left, corner);
            const __m128i to_left = absolute(rise), to_up = absolute(run);
            const __m128i to_corner = absolute(_mm_add_epi16(rise, run));
            const __m128i least = _mm_min_epi16(to_corner, _mm_min_epi16(to_left, to_up));
            const __m128i guess = choose(_mm_cmpeq_epi16(least, to_left), left,
                                         choose(_mm_cmpeq_epi16(least, to_up), up, corner));
            const __m128i read = _mm_unpacklo_epi8(load_pixel(row + i, pixel_bytes), zero);
            left = _mm_and_si128(_mm_add_epi16(guess, read), _mm_set1_epi16(255));
            corner = up;
            store_pixel(to + i, _mm_packus_epi16(left, zero), pixel_bytes);
        }
    }
}

void png_unfilter(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                  size_t pixel_bytes, uint8_t *to)
{
    if (!above)
        filter = without_above(filter);
    if (filter == PNG_FILTER_NONE) {
        memmove(to, row, length);
    } else if (filter == PNG_FILTER_UP) {
        for (size_t i = 0; i < length; i++)
            to[i] = (uint8_t)(row[i] + above[i]);
    } else if (pixel_bytes == 3) {
        unfilter_pixels(filter, row, above, length, 3, to);
    } else if (pixel_bytes == 4) {
        unfilter_pixels(filter, row, above, length, 4, to);
    } else if (pixel_bytes == 6) {
        unfilter_pixels(filter, row, above, length, 6, to);
    } else if (pixel_bytes == 8) {
        unfilter_pixels(filter, row, above, length, 8, to);
    } else {
        png_unfilter_plain(filter, row, above, length, pixel_bytes, to);
    }
}

#else

void png_unfilter(PngFilter filter, const uint8_t *row, const uint8_t *above, size_t length,
                  size_t pixel_bytes, uint8_t *to)
{
    png_unfilter_plain(filter, row, above, length, pixel_bytes, to);
}

#endif

/* ---- applying ---- */

void png_filter(PngFilter filter, const uint8_t *restrict row, const uint8_t *restrict above, size_t length,
                size_t pixel_bytes, uint8_t *restrict to)
{
    if (!above)
        filter = without_above(filter);
    for (size_t i = 0; i < pixel_bytes && i < length; i++) { /* nothing is to their left */
        const uint8_t up = above ? above[i] : 0;
        static const uint8_t shift[] = {
            [PNG_FILTER_UP] = 0, [PNG_FILTER_AVERAGE] = 1, [PNG_FILTER_PAETH] = 0};
        const uint8_t guess = filter >= PNG_FILTER_UP ? up >> shift[filter] : 0;
        to[i] = (uint8_t)(row[i] - guess);
    }
    if (filter == PNG_FILTER_NONE) {
        memcpy(to, row, length);
    } else if (filter == PNG_FILTER_SUB) {
        for (size_t i = pixel_bytes; i < length; i++)
            to[i] = (uint8_t)(row[i] - row[i - pixel_bytes]);
    } else if (filter == PNG_FILTER_UP) {
        for (size_t i = pixel_bytes; i < length; i++)
            to[i] = (uint8_t)(row[i] - above[i]);
    } else if (filter == PNG_FILTER_AVERAGE && above) {
        for (size_t i = pixel_bytes; i < length; i++)
            to[i] = (uint8_t)(row[i] - average(row[i - pixel_bytes], above[i]));
    } else if (filter == PNG_FILTER_AVERAGE) {
        for (size_t i = pixel_bytes; i < length; i++)
            to[i] = (uint8_t)(row[i] - average(row[i - pixel_bytes], 0));
    } else {
        for (size_t i = pixel_bytes; i < length; i++)
            to[i] = (uint8_t)(row[i] - paeth(row[i - pixel_bytes], above[i], above[i - pixel_bytes]));
    }
}

/* Returns the sum over all values of n log2 n, where n bytes have the value. The entropy of the bytes is a
 * constant less this. The logarithm is a straight line between powers of 2, so that all machines agree. */
static uint64_t order_of(const uint8_t *row, size_t length)
{
    enum { VALUES = 256, PARTS = 4 }; /* equal bytes in a row would wait for each other's count */
    uint32_t counts[PARTS][VALUES] = {{0}};
    uint64_t sum = 0;
    size_t i = 0;
    for (; i + PARTS <= length; i += PARTS) {
        for (size_t part = 0; part < PARTS; part++)
            counts[part][row[i + part]]++;
    }
    for (; i < length; i++)
        counts[0][row[i]]++;
    for (size_t value = 0; value < VALUES; value++) {
        const uint64_t n =
            (uint64_t)counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value];
        if (n) {
            const unsigned whole = 63u - (unsigned)__builtin_clzll(n);
            sum += n * whole + 2 * (n - ((uint64_t)1 << whole));
        }
    }
    return sum;
}

PngFilter png_filter_best(const uint8_t *row, const uint8_t *above, size_t length, size_t pixel_bytes,
                          uint8_t *trial, uint8_t *to)
{
    PngFilter best = PNG_FILTER_NONE;
    uint64_t most = order_of(row, length);
    memcpy(to, row, length);
    for (int filter = PNG_FILTER_SUB; filter < PNG_FILTERS_COUNT; filter++) {
        png_filter((PngFilter)filter, row, above, length, pixel_bytes, trial);
        const uint64_t order = order_of(trial, length);
        if (order > most) {
            most = order;
            best = (PngFilter)filter;
            memcpy(to, trial, length);
        }
    }
    return best;
}
