/* resample_avx2.c - resampling with 256-bit vectors, the portable kernels' results bit for bit.
 *
 * AVX2 multiplies 32-bit numbers slowly, and 16-bit pairs fast (pmaddwd). So a weight is split into two
 * 16-bit digits, weight = high * 2^15 + low with 0 <= low < 2^15; each digit has a sum of its own, and the
 * two are joined at the end. All arithmetic is modulo 2^32, as the portable sum is; nothing is rounded on the
 * way.
 *
 * Packed weights: for each 4 taps, 4 low digits, then 4 high ones, 16 bits each. */
#include "imaging/resample_kernels.h"

#include <immintrin.h>
#include <string.h>

enum {
    LOW_BITS = 15,
    ROUNDING = 1 << (RESAMPLE_PRECISION_BITS - 1),
    GROUP_TAPS = 4,
    GROUP_BYTES = 16,
    ROWS_AT_ONCE = 4,
    GRAY_ROWS = 2,
    GRAY_OUTPUTS = 4,
    COLUMNS_AT_ONCE = 32,
};

static bool supported(void)
{
    return __builtin_cpu_supports("avx2");
}

static void pack(const int32_t *weights, uint32_t stride, uint8_t *packed)
{
    for (uint32_t k = 0; k < stride; k += GROUP_TAPS, packed += GROUP_BYTES) {
        int16_t digits[2 * GROUP_TAPS];
        for (uint32_t i = 0; i < GROUP_TAPS; i++) {
            digits[i] = (int16_t)(weights[k + i] & ((1 << LOW_BITS) - 1));
            digits[GROUP_TAPS + i] = (int16_t)(weights[k + i] >> LOW_BITS);
        }
        memcpy(packed, digits, sizeof digits);
    }
}

static const uint8_t *packed_of(const ResampleAxis *axis, uint32_t output)
{
    return axis->packed + (size_t)output * axis->stride * sizeof(int32_t);
}

static __m128i load_16(const uint8_t *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

static __m256i load_32(const uint8_t *bytes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

/* Joins the sums of the two digits. The result is not clamped yet. */
static __m256i join(__m256i low, __m256i high)
{
    return _mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low);
}

/* ---- horizontal ---- */

/* Resamples `rows` RGB rows; rows is a constant at each call, so that the loops over it are unrolled. The
 * lower half of a vector holds taps 0 and 1, the upper one taps 2 and 3, each as pairs for red, green, blue,
 * nothing. */
static inline __attribute__((always_inline)) void rgb_rows(const ResampleAxis *axis, const uint8_t *source,
                                                           size_t source_stride_bytes, int rows,
                                                           uint8_t *target, size_t target_stride_bytes)
{
    const __m256i spread =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /* taps 0, 1 */
                         6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i low_pairs = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256i high_pairs = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
    for (uint32_t i = 0; i < axis->count; i++) {
        const uint8_t *weights = packed_of(axis, i), *from = source + (size_t)axis->first[i] * 3;
        __m256i low[ROWS_AT_ONCE], high[ROWS_AT_ONCE];
        for (int r = 0; r < rows; r++)
            low[r] = high[r] = _mm256_setzero_si256();
        for (uint32_t k = 0; k < axis->length[i];
             k += GROUP_TAPS, weights += GROUP_BYTES, from += 3 * GROUP_TAPS) {
            __m256i digits = _mm256_broadcastsi128_si256(load_16(weights));
            __m256i low_weights = _mm256_permutevar8x32_epi32(digits, low_pairs);
            __m256i high_weights = _mm256_permutevar8x32_epi32(digits, high_pairs);
            for (int r = 0; r < rows; r++) {
                __m256i bytes = _mm256_broadcastsi128_si256(load_16(from + (size_t)r * source_stride_bytes));
                __m256i pixels = _mm256_shuffle_epi8(bytes, spread);
                low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pixels, low_weights));
                high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pixels, high_weights));
            }
        }
        for (int r = 0; r < rows; r++) {
            __m256i both = join(low[r], high[r]);
            __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
            sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(ROUNDING)), RESAMPLE_PRECISION_BITS);
            sum = _mm_packs_epi32(sum, sum);
            uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
            memcpy(target + (size_t)r * target_stride_bytes + (size_t)i * 3, &pixel, 3);
        }
    }
}

static void gray_row(const ResampleAxis *axis, const uint8_t *row, uint8_t *target)
{
    enum { TAPS = 16 };
    for (uint32_t i = 0; i < axis->count; i++) {
        const uint8_t *weights = packed_of(axis, i), *from = row + axis->first[i];
        __m256i low = _mm256_setzero_si256(), high = low;
        for (uint32_t k = 0; k < axis->length[i];
             k += TAPS, weights += TAPS * sizeof(int32_t), from += TAPS) {
            /* quarters of four taps in the order 0 2 | 1 3, which unpacking leaves the digits in */
            __m256i first = load_32(weights), second = load_32(weights + 32);
            __m256i pixels =
                _mm256_permute4x64_epi64(_mm256_cvtepu8_epi16(load_16(from)), _MM_SHUFFLE(3, 1, 2, 0));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, _mm256_unpacklo_epi64(first, second)));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, _mm256_unpackhi_epi64(first, second)));
        }
        __m256i both = join(low, high);
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
        target[i] = resample_clamp((int32_t)((uint32_t)_mm_cvtsi128_si32(sum) + ROUNDING));
    }
}

/* Resamples two gray rows to four outputs each. The sums of an output stay a vector until four outputs are
 * ready to be added up together. */
static void gray_block(const ResampleAxis *axis, uint32_t first_output, const uint8_t *source,
                       size_t source_stride_bytes, uint8_t *target, size_t target_stride_bytes)
{
    enum { TAPS = 16 };
    __m256i outputs[GRAY_ROWS][GRAY_OUTPUTS];
    for (uint32_t i = 0; i < GRAY_OUTPUTS; i++) {
        const uint8_t *weights = packed_of(axis, first_output + i);
        const uint8_t *from = source + axis->first[first_output + i];
        const uint32_t length = axis->length[first_output + i];
        __m256i low[GRAY_ROWS], high[GRAY_ROWS];
        for (int r = 0; r < GRAY_ROWS; r++)
            low[r] = high[r] = _mm256_setzero_si256();
        for (uint32_t k = 0; k < length; k += TAPS, weights += TAPS * sizeof(int32_t), from += TAPS) {
            __m256i first = load_32(weights), second = load_32(weights + 32);
            /* quarters of four taps, 0 2 | 1 3, put into order */
            __m256i low_weights =
                _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(first, second), _MM_SHUFFLE(3, 1, 2, 0));
            __m256i high_weights =
                _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(first, second), _MM_SHUFFLE(3, 1, 2, 0));
            for (int r = 0; r < GRAY_ROWS; r++) {
                __m256i pixels = _mm256_cvtepu8_epi16(load_16(from + (size_t)r * source_stride_bytes));
                low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pixels, low_weights));
                high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pixels, high_weights));
            }
        }
        for (int r = 0; r < GRAY_ROWS; r++)
            outputs[r][i] = join(low[r], high[r]);
    }
    for (int r = 0; r < GRAY_ROWS; r++) {
        __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32(outputs[r][0], outputs[r][1]),
                                           _mm256_hadd_epi32(outputs[r][2], outputs[r][3]));
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
        sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(ROUNDING)), RESAMPLE_PRECISION_BITS);
        sum = _mm_packs_epi32(sum, sum);
        const int pixels = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(target + (size_t)r * target_stride_bytes + first_output, &pixels, sizeof pixels);
    }
}

static void gray_rows(const ResampleAxis *axis, const uint8_t *source, size_t source_stride_bytes,
                      uint8_t *target, size_t target_stride_bytes)
{
    uint32_t i = 0;
    for (; i + GRAY_OUTPUTS <= axis->count; i += GRAY_OUTPUTS)
        gray_block(axis, i, source, source_stride_bytes, target, target_stride_bytes);
    if (i < axis->count) /* the last block overlaps the one before, and gives the same values there */
        gray_block(axis, axis->count - GRAY_OUTPUTS, source, source_stride_bytes, target,
                   target_stride_bytes);
}

static void horizontal(const ResampleAxis *axis, const uint8_t *source, size_t source_stride_bytes,
                       uint32_t rows, uint32_t channels, uint8_t *target, size_t target_stride_bytes)
{
    uint32_t y = 0;
    for (; channels == 3 && y + ROWS_AT_ONCE <= rows; y += ROWS_AT_ONCE)
        rgb_rows(axis, source + y * source_stride_bytes, source_stride_bytes, ROWS_AT_ONCE,
                 target + y * target_stride_bytes, target_stride_bytes);
    for (; channels == 1 && axis->count >= GRAY_OUTPUTS && y + GRAY_ROWS <= rows; y += GRAY_ROWS)
        gray_rows(axis, source + y * source_stride_bytes, source_stride_bytes,
                  target + y * target_stride_bytes, target_stride_bytes);
    for (; y < rows; y++) {
        const uint8_t *from = source + y * source_stride_bytes;
        uint8_t *to = target + y * target_stride_bytes;
        if (channels == 3)
            rgb_rows(axis, from, source_stride_bytes, 1, to, target_stride_bytes);
        else
            gray_row(axis, from, to);
    }
}

/* ---- vertical ---- */

static __m256i finish(__m256i low, __m256i high)
{
    __m256i sum = _mm256_add_epi32(join(low, high), _mm256_set1_epi32(ROUNDING));
    return _mm256_srai_epi32(sum, RESAMPLE_PRECISION_BITS);
}

static __m256i broadcast_pair(const uint8_t *digits)
{
    int32_t pair = 0;
    memcpy(&pair, digits, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Computes 32 columns. Rows are interleaved in twos to form pairs; unpacking and packing both stay within
 * half a vector, so the order comes out right. */
static void vertical_block(const uint8_t *weights, uint32_t length, const uint8_t *source, size_t row_bytes,
                           uint8_t *target)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i low[4] = {zero, zero, zero, zero}, high[4] = {zero, zero, zero, zero};
    for (uint32_t k = 0; k < length; k += 2) {
        const uint8_t *digits = weights + k / GROUP_TAPS * GROUP_BYTES + k % GROUP_TAPS * sizeof(int16_t);
        const __m256i low_weights = broadcast_pair(digits);
        const __m256i high_weights = broadcast_pair(digits + GROUP_TAPS * sizeof(int16_t));
        const uint8_t *row = source + k * row_bytes;
        __m256i first = load_32(row), second = load_32(k + 1 < length ? row + row_bytes : row);
        __m256i left = _mm256_unpacklo_epi8(first, second), right = _mm256_unpackhi_epi8(first, second);
        const __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                  _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
        for (int i = 0; i < 4; i++) {
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(pairs[i], low_weights));
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(pairs[i], high_weights));
        }
    }
    __m256i left = _mm256_packs_epi32(finish(low[0], high[0]), finish(low[1], high[1]));
    __m256i right = _mm256_packs_epi32(finish(low[2], high[2]), finish(low[3], high[3]));
    _mm256_storeu_si256((__m256i *)(void *)target, _mm256_packus_epi16(left, right));
}

static void vertical(const ResampleAxis *axis, uint32_t output, const uint8_t *source, size_t row_bytes,
                     uint8_t *target)
{
    if (row_bytes < COLUMNS_AT_ONCE) { /* too narrow for a vector */
        resample_kernels_portable.vertical(axis, output, source, row_bytes, target);
        return;
    }
    const uint8_t *weights = packed_of(axis, output);
    uint32_t length = axis->length[output];
    size_t x = 0;
    for (; x + COLUMNS_AT_ONCE <= row_bytes; x += COLUMNS_AT_ONCE)
        vertical_block(weights, length, source + x, row_bytes, target + x);
    if (x < row_bytes) { /* the last block overlaps the one before, and gives the same values there */
        x = row_bytes - COLUMNS_AT_ONCE;
        vertical_block(weights, length, source + x, row_bytes, target + x);
    }
}

const ResampleKernels resample_kernels_avx2 = {
    .name = "avx2", .supported = supported, .pack = pack, .horizontal = horizontal, .vertical = vertical};
