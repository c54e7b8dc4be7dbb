/* pixel_sums.h - sums of bytes and of their squares, for mean and deviation: what fpack looks at each pixel
 * with.
 *
 * Threads: no state. */
#ifndef FSHARD_IMAGING_PIXEL_SUMS_H
#define FSHARD_IMAGING_PIXEL_SUMS_H

#include <stddef.h>
#include <stdint.h>

enum {
    /* A multiple of 1 and 3 channels and of a vector's width: lane i always holds channel i % channels, so
     * there is no shuffle. */
    PIXEL_SUM_LANES = 48,
    /* More could overflow a lane of squares: 66051 * 255 * 255 < 2^32. */
    PIXEL_SUM_BLOCKS_MAX = 66051,
};

/* Lane by lane over block_count blocks of PIXEL_SUM_LANES bytes, at most PIXEL_SUM_BLOCKS_MAX. */
void pixel_sums(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                uint32_t squares[PIXEL_SUM_LANES]);

/* The definition, which the fast one is held against. */
void pixel_sums_portable(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                         uint32_t squares[PIXEL_SUM_LANES]);

#ifdef FSHARD_RESAMPLE_X86
/* Only where the processor has AVX2. */
void pixel_sums_avx2(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                     uint32_t squares[PIXEL_SUM_LANES]);
#endif

#endif
