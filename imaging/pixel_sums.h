/* pixel_sums.h - sums of bytes and of their squares, from which fpack gets mean and deviation.
 *
 * Threads: no state. */
#ifndef FSHARD_IMAGING_PIXEL_SUMS_H
#define FSHARD_IMAGING_PIXEL_SUMS_H

#include <stddef.h>
#include <stdint.h>

enum {
    /* A multiple of 1 and 3 channels and of a vector's width: lane i always holds channel i % channels, so
     * nothing is shuffled. */
    PIXEL_SUM_LANES = 48,
    /* More blocks could overflow a lane of squares: 66051 * 255 * 255 < 2^32. */
    PIXEL_SUM_BLOCKS_MAX = 66051,
};

/* Sets sums and squares, lane by lane, to those of block_count blocks of PIXEL_SUM_LANES bytes. block_count:
 * at most PIXEL_SUM_BLOCKS_MAX. */
void pixel_sums(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                uint32_t squares[PIXEL_SUM_LANES]);

/* Does the same in plain C: the definition that the fast version is tested against. */
void pixel_sums_portable(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                         uint32_t squares[PIXEL_SUM_LANES]);

#ifdef FSHARD_RESAMPLE_X86
/* Does the same on processors with AVX2. */
void pixel_sums_avx2(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                     uint32_t squares[PIXEL_SUM_LANES]);
#endif

#endif
