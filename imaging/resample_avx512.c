/* resample_avx512.c - resampling with AVX-512 VNNI, the portable kernels' results bit for bit.
 *
 * vpdpbusd multiplies four unsigned bytes with four signed ones and adds all four products to a 32-bit sum.
 * Pixels are unsigned bytes; a weight is written in three signed digits, weight = d2 * 2^16 + d1 * 2^8 + d0
 * with -128 <= d < 128, which holds all weights below 1.98. So four taps take three instructions for 16 sums.
 * Each digit has a sum of its own; they are joined at the end, modulo 2^32 as the portable sum is.
 *
 * On some processors vectors of 512 bits lower the clock of the whole core, which costs Huffman decoding in
 * the same thread more than they save: resizing JPEGs by planes is 6 % faster with 256 bits. Only the
 * horizontal pass over RGB, where four rows at once halve the work, keeps 512.
 *
 * Packed weights: for each 4 taps, 4 digits d0, 4 digits d1, 4 digits d2, 4 zeros. */
#include "imaging/resample_kernels.h"

#include <immintrin.h>
#include <string.h>

enum {
    DIGITS = 3,
    DIGIT_BITS = 8,
    ROUNDING = 1 << (RESAMPLE_PRECISION_BITS - 1),
    GROUP_TAPS = 4,
    GROUP_BYTES = 16,
    LANE_ROWS = 4, /* a quarter of a vector for each row */
    GRAY_OUTPUTS = 4,
    COLUMNS_AT_ONCE = 32,
};

static bool supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static void pack(const int32_t *weights, uint32_t stride, uint8_t *packed)
{
    for (uint32_t k = 0; k < stride; k += GROUP_TAPS, packed += GROUP_BYTES) {
        memset(packed, 0, GROUP_BYTES);
        for (uint32_t i = 0; i < GROUP_TAPS; i++) {
            int32_t rest = weights[k + i];
            for (uint32_t digit = 0; digit < DIGITS; digit++) {
                int32_t value = (rest & 0xFF) - (rest & 0x80) * 2; /* the low byte as a signed number */
                packed[digit * GROUP_TAPS + i] = (uint8_t)value;
                rest = (rest - value) >> DIGIT_BITS;
            }
        }
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

static __m512i broadcast_4_512(const uint8_t *bytes)
{
    int32_t four = 0;
    memcpy(&four, bytes, sizeof four);
    return _mm512_set1_epi32(four);
}

static __m256i load_32(const uint8_t *bytes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

static __m256i broadcast_4(const uint8_t *bytes)
{
    int32_t four = 0;
    memcpy(&four, bytes, sizeof four);
    return _mm256_set1_epi32(four);
}

static __m256i join(const __m256i sums[DIGITS])
{
    __m256i sum = _mm256_add_epi32(sums[0], _mm256_slli_epi32(sums[1], DIGIT_BITS));
    return _mm256_add_epi32(sum, _mm256_slli_epi32(sums[2], 2 * DIGIT_BITS));
}

static __m256i round_off(__m256i sum)
{
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(ROUNDING)), RESAMPLE_PRECISION_BITS);
}

static __m256i finish(const __m256i sums[DIGITS])
{
    return round_off(join(sums));
}

/* Joins the sums of the digits into results below 256 in 32 bits; negative ones are not clamped yet. */
static __m512i finish_512(const __m512i sums[DIGITS])
{
    __m512i sum = _mm512_add_epi32(sums[0], _mm512_slli_epi32(sums[1], DIGIT_BITS));
    sum = _mm512_add_epi32(sum, _mm512_slli_epi32(sums[2], 2 * DIGIT_BITS));
    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(ROUNDING));
    return _mm512_srai_epi32(sum, RESAMPLE_PRECISION_BITS);
}

/* ---- horizontal ---- */

/* Loads 16 bytes from the same place of four rows. Broadcasts under a mask use the load ports; inserting
 * would compete with the shuffles. */
static __m512i load_rows(const uint8_t *from, size_t stride_bytes)
{
    __m512i rows = _mm512_broadcast_i32x4(load_16(from));
    rows = _mm512_mask_broadcast_i32x4(rows, 0x00F0, load_16(from + stride_bytes));
    rows = _mm512_mask_broadcast_i32x4(rows, 0x0F00, load_16(from + 2 * stride_bytes));
    return _mm512_mask_broadcast_i32x4(rows, 0xF000, load_16(from + 3 * stride_bytes));
}

static inline void store_pixel(uint8_t *to, int pixel, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, &pixel, 4);
    else
        memcpy(to, &pixel, 3);
}

/* Resamples 4 * blocks RGB rows; blocks is a constant at each call. */
static inline __attribute__((always_inline)) void rgb_rows(const ResampleAxis *axis, const uint8_t *source,
                                                           size_t source_stride_bytes, int blocks,
                                                           uint8_t *target, size_t target_stride_bytes)
{
    enum { BLOCKS_MAX = 2 };
    /* four reds, four greens, four blues */
    const __m512i gather =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
    for (uint32_t i = 0; i < axis->count; i++) {
        const uint8_t *weights = packed_of(axis, i), *from = source + (size_t)axis->first[i] * 3;
        __m512i sums[BLOCKS_MAX][DIGITS];
        for (int b = 0; b < blocks; b++)
            sums[b][0] = sums[b][1] = sums[b][2] = _mm512_setzero_si512();
        for (uint32_t k = 0; k < axis->length[i];
             k += GROUP_TAPS, weights += GROUP_BYTES, from += 3 * GROUP_TAPS) {
            __m512i digits[DIGITS];
            for (int d = 0; d < DIGITS; d++)
                digits[d] = broadcast_4_512(weights + d * GROUP_TAPS);
            for (int b = 0; b < blocks; b++) {
                __m512i bytes =
                    load_rows(from + (size_t)(b * LANE_ROWS) * source_stride_bytes, source_stride_bytes);
                __m512i pixels = _mm512_shuffle_epi8(bytes, gather);
                for (int d = 0; d < DIGITS; d++)
                    sums[b][d] = _mm512_dpbusd_epi32(sums[b][d], pixels, digits[d]);
            }
        }
        for (int b = 0; b < blocks; b++) {
            __m512i values = _mm512_max_epi32(finish_512(sums[b]), _mm512_setzero_si512());
            const __m128i pixels = _mm512_cvtusepi32_epi8(values);
            uint8_t *to = target + (size_t)(b * LANE_ROWS) * target_stride_bytes + (size_t)i * 3;
            const size_t stored = i + 1 < axis->count ? 4 : 3; /* the next pixel overwrites the fourth byte */
            store_pixel(to, _mm_cvtsi128_si32(pixels), stored);
            store_pixel(to + target_stride_bytes, _mm_extract_epi32(pixels, 1), stored);
            store_pixel(to + 2 * target_stride_bytes, _mm_extract_epi32(pixels, 2), stored);
            store_pixel(to + 3 * target_stride_bytes, _mm_extract_epi32(pixels, 3), stored);
        }
    }
}

/* Resamples one RGB row that is left over from the groups of four. */
static void rgb_single_row(const ResampleAxis *axis, const uint8_t *row, uint8_t *target)
{
    const __m128i gather = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
    for (uint32_t i = 0; i < axis->count; i++) {
        const uint8_t *weights = packed_of(axis, i), *from = row + (size_t)axis->first[i] * 3;
        __m128i sums[DIGITS] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
        for (uint32_t k = 0; k < axis->length[i];
             k += GROUP_TAPS, weights += GROUP_BYTES, from += 3 * GROUP_TAPS) {
            __m128i pixels = _mm_shuffle_epi8(load_16(from), gather);
            for (int d = 0; d < DIGITS; d++)
                sums[d] = _mm_dpbusd_epi32(sums[d], pixels,
                                           _mm512_castsi512_si128(broadcast_4_512(weights + d * GROUP_TAPS)));
        }
        __m128i sum = _mm_add_epi32(sums[0], _mm_slli_epi32(sums[1], DIGIT_BITS));
        sum = _mm_add_epi32(sum, _mm_slli_epi32(sums[2], 2 * DIGIT_BITS));
        sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(ROUNDING)), RESAMPLE_PRECISION_BITS);
        sum = _mm_cvtusepi32_epi8(_mm_max_epi32(sum, _mm_setzero_si128()));
        uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(sum);
        memcpy(target + (size_t)i * 3, &pixel, 3);
    }
}

/* Resamples one gray row, sixteen taps at a time: in each quarter of a vector four pixels are multiplied with
 * their digits d0, d1, d2, into three sums. */
static void gray_row(const ResampleAxis *axis, const uint8_t *row, uint8_t *target)
{
    enum { TAPS = 16 };
    const __m512i spread =
        _mm512_setr_epi32(0x03020100, 0x03020100, 0x03020100, 0x03020100, /* quarter 0: taps 0 to 3 */
                          0x07060504, 0x07060504, 0x07060504, 0x07060504, /* taps 4 to 7 */
                          0x0B0A0908, 0x0B0A0908, 0x0B0A0908, 0x0B0A0908, /* taps 8 to 11 */
                          0x0F0E0D0C, 0x0F0E0D0C, 0x0F0E0D0C, 0x0F0E0D0C);
    for (uint32_t i = 0; i < axis->count; i++) {
        const uint8_t *weights = packed_of(axis, i), *from = row + axis->first[i];
        __m512i sums = _mm512_setzero_si512();
        for (uint32_t k = 0; k < axis->length[i];
             k += TAPS, weights += TAPS * sizeof(int32_t), from += TAPS) {
            __m512i pixels = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(from)), spread);
            sums = _mm512_dpbusd_epi32(sums, pixels, _mm512_loadu_si512(weights));
        }
        __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
        __m128i digits = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        uint32_t d0 = (uint32_t)_mm_cvtsi128_si32(digits), d1 = (uint32_t)_mm_extract_epi32(digits, 1),
                 d2 = (uint32_t)_mm_extract_epi32(digits, 2);
        target[i] = resample_clamp((int32_t)(d0 + (d1 << DIGIT_BITS) + (d2 << 2 * DIGIT_BITS) + ROUNDING));
    }
}

/* Loads 16 bytes from the same place of two rows. */
static __m256i load_two_rows(const uint8_t *from, size_t stride_bytes)
{
    return _mm256_mask_broadcast_i32x4(_mm256_broadcast_i32x4(load_16(from)), 0xF0,
                                       load_16(from + stride_bytes));
}

/* Resamples four gray rows to four outputs each. Half a vector holds sixteen pixels of a row, then the four
 * sums of an output's digits, and after the addition across outputs the four results of a row. */
static void gray_block(const ResampleAxis *axis, uint32_t first_output, const uint8_t *source,
                       size_t source_stride_bytes, uint8_t *target, size_t target_stride_bytes)
{
    enum { TAPS = 16 };
    const __m256i digit_0 = _mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12);
    const __m256i digit_1 = _mm256_add_epi32(digit_0, _mm256_set1_epi32(1));
    const __m256i digit_2 = _mm256_add_epi32(digit_0, _mm256_set1_epi32(2));
    __m256i outputs[LANE_ROWS / 2][GRAY_OUTPUTS];
    for (uint32_t i = 0; i < GRAY_OUTPUTS; i++) {
        const uint8_t *weights = packed_of(axis, first_output + i);
        const uint8_t *from = source + axis->first[first_output + i];
        const uint32_t length = axis->length[first_output + i];
        __m256i sums[LANE_ROWS / 2][DIGITS];
        for (int r = 0; r < LANE_ROWS / 2; r++)
            sums[r][0] = sums[r][1] = sums[r][2] = _mm256_setzero_si256();
        for (uint32_t k = 0; k < length; k += TAPS, weights += TAPS * sizeof(int32_t), from += TAPS) {
            const __m256i left = load_32(weights), right = load_32(weights + 32);
            const __m256i digits[DIGITS] = {_mm256_permutex2var_epi32(left, digit_0, right),
                                            _mm256_permutex2var_epi32(left, digit_1, right),
                                            _mm256_permutex2var_epi32(left, digit_2, right)};
            for (int r = 0; r < LANE_ROWS / 2; r++) {
                const __m256i pixels =
                    load_two_rows(from + (size_t)(2 * r) * source_stride_bytes, source_stride_bytes);
                for (int d = 0; d < DIGITS; d++)
                    sums[r][d] = _mm256_dpbusd_epi32(sums[r][d], pixels, digits[d]);
            }
        }
        for (int r = 0; r < LANE_ROWS / 2; r++)
            outputs[r][i] = join(sums[r]);
    }
    for (int r = 0; r < LANE_ROWS / 2; r++) {
        const __m256i left = _mm256_add_epi32(_mm256_unpacklo_epi32(outputs[r][0], outputs[r][1]),
                                              _mm256_unpackhi_epi32(outputs[r][0], outputs[r][1]));
        const __m256i right = _mm256_add_epi32(_mm256_unpacklo_epi32(outputs[r][2], outputs[r][3]),
                                               _mm256_unpackhi_epi32(outputs[r][2], outputs[r][3]));
        const __m256i values = round_off(
            _mm256_add_epi32(_mm256_unpacklo_epi64(left, right), _mm256_unpackhi_epi64(left, right)));
        const __m128i pixels = _mm256_cvtusepi32_epi8(_mm256_max_epi32(values, _mm256_setzero_si256()));
        uint8_t *to = target + (size_t)(2 * r) * target_stride_bytes + first_output;
        store_pixel(to, _mm_cvtsi128_si32(pixels), 4);
        store_pixel(to + target_stride_bytes, _mm_extract_epi32(pixels, 1), 4);
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
    for (; channels == 3 && y + 2 * LANE_ROWS <= rows; y += 2 * LANE_ROWS)
        rgb_rows(axis, source + y * source_stride_bytes, source_stride_bytes, 2,
                 target + y * target_stride_bytes, target_stride_bytes);
    for (; channels == 3 && y + LANE_ROWS <= rows; y += LANE_ROWS)
        rgb_rows(axis, source + y * source_stride_bytes, source_stride_bytes, 1,
                 target + y * target_stride_bytes, target_stride_bytes);
    for (; channels == 1 && axis->count >= GRAY_OUTPUTS && y + LANE_ROWS <= rows; y += LANE_ROWS)
        gray_rows(axis, source + y * source_stride_bytes, source_stride_bytes,
                  target + y * target_stride_bytes, target_stride_bytes);
    for (; y < rows; y++) {
        const uint8_t *from = source + y * source_stride_bytes;
        uint8_t *to = target + y * target_stride_bytes;
        if (channels == 3)
            rgb_single_row(axis, from, to);
        else
            gray_row(axis, from, to);
    }
}

/* ---- vertical ---- */

/* Computes up to 32 columns, those of the mask. Rows are interleaved in fours, so that the four bytes of a
 * column lie side by side; unpacking and packing both stay within half a vector, so the order comes out
 * right. */
static inline void vertical_block(const uint8_t *weights, uint32_t length, const uint8_t *source,
                                  size_t row_bytes, __mmask32 columns, uint8_t *target)
{
    __m256i sums[4][DIGITS];
    for (int i = 0; i < 4; i++)
        sums[i][0] = sums[i][1] = sums[i][2] = _mm256_setzero_si256();
    for (uint32_t k = 0; k < length; k += GROUP_TAPS, weights += GROUP_BYTES) {
        __m256i rows[GROUP_TAPS];
        for (uint32_t r = 0; r < GROUP_TAPS;
             r++) { /* beyond the last row the weights are 0, and any row will do */
            uint32_t row = k + r < length ? k + r : length - 1;
            rows[r] = _mm256_maskz_loadu_epi8(columns, source + row * row_bytes);
        }
        __m256i left = _mm256_unpacklo_epi8(rows[0], rows[1]), right = _mm256_unpackhi_epi8(rows[0], rows[1]);
        __m256i lower_left = _mm256_unpacklo_epi8(rows[2], rows[3]);
        __m256i lower_right = _mm256_unpackhi_epi8(rows[2], rows[3]);
        const __m256i pixels[4] = {
            _mm256_unpacklo_epi16(left, lower_left), _mm256_unpackhi_epi16(left, lower_left),
            _mm256_unpacklo_epi16(right, lower_right), _mm256_unpackhi_epi16(right, lower_right)};
        for (int d = 0; d < DIGITS; d++) {
            __m256i digits = broadcast_4(weights + d * GROUP_TAPS);
            for (int i = 0; i < 4; i++)
                sums[i][d] = _mm256_dpbusd_epi32(sums[i][d], pixels[i], digits);
        }
    }
    __m256i left = _mm256_packs_epi32(finish(sums[0]), finish(sums[1]));
    __m256i right = _mm256_packs_epi32(finish(sums[2]), finish(sums[3]));
    _mm256_mask_storeu_epi8(target, columns, _mm256_packus_epi16(left, right));
}

static void vertical(const ResampleAxis *axis, uint32_t output, const uint8_t *source, size_t row_bytes,
                     uint8_t *target)
{
    const uint8_t *weights = packed_of(axis, output);
    uint32_t length = axis->length[output];
    size_t x = 0;
    for (; x + COLUMNS_AT_ONCE <= row_bytes; x += COLUMNS_AT_ONCE)
        vertical_block(weights, length, source + x, row_bytes, ~(__mmask32)0, target + x);
    if (x < row_bytes)
        vertical_block(weights, length, source + x, row_bytes,
                       ~(__mmask32)0 >> (COLUMNS_AT_ONCE - (row_bytes - x)), target + x);
}

const ResampleKernels resample_kernels_avx512 = {
    .name = "avx512", .supported = supported, .pack = pack, .horizontal = horizontal, .vertical = vertical};
