/* mirror_avx2.c - mirrors sixteen bytes at a time: sixteen gray pixels, or five RGB pixels and one byte that
 * the next store overwrites. */
#include "imaging/mirror.h"

#include <immintrin.h>

static void store(uint8_t *to, __m128i bytes)
{
    _mm_storeu_si128((__m128i *)(void *)to, bytes);
}

static __m128i load(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Writes the last five pixels of source as the first of target, in two overlapping halves of 8 bytes: here no
 * later store would overwrite a sixteenth byte. */
static void mirror_last_five(const uint8_t *source_end, uint8_t *target)
{
    const __m128i reverse = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
    __m128i pixels = _mm_shuffle_epi8(load(source_end - 16), reverse);
    _mm_storel_epi64((__m128i *)(void *)target, pixels);
    _mm_storel_epi64((__m128i *)(void *)(target + 7), _mm_srli_si128(pixels, 7));
}

void image_mirror_row_avx2(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target)
{
    const __m128i reverse_gray = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m128i reverse_rgb = _mm_setr_epi8(-1, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    size_t x = 0;
    for (; channels == 1 && x + 16 <= width; x += 16)
        store(target + width - x - 16, _mm_shuffle_epi8(load(source + x), reverse_gray));
    /* five pixels from x on; the byte before them in target and the byte after them in source belong to a
     * sixth */
    for (; channels == 3 && x + 6 <= width; x += 5)
        store(target + 3 * (width - x - 5) - 1, _mm_shuffle_epi8(load(source + 3 * x), reverse_rgb));
    if (channels == 3 && width >= 6)
        mirror_last_five(source + 3 * width, target);
    else
        image_mirror_row_portable(source + x * channels, width - x, channels, target);
}
