#include "imaging/pixel_sums.h"

#include <string.h>

void pixel_sums_portable(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                         uint32_t squares[PIXEL_SUM_LANES])
{
    memset(sums, 0, PIXEL_SUM_LANES * sizeof *sums);
    memset(squares, 0, PIXEL_SUM_LANES * sizeof *squares);
    for (size_t block = 0; block < block_count; block++, bytes += PIXEL_SUM_LANES) {
        for (size_t lane = 0; lane < PIXEL_SUM_LANES; lane++) {
            uint32_t value = bytes[lane];
            sums[lane] += value;
            squares[lane] += value * value;
        }
    }
}

void pixel_sums(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                uint32_t squares[PIXEL_SUM_LANES])
{
#ifdef FSHARD_RESAMPLE_X86
    if (__builtin_cpu_supports("avx2")) {
        pixel_sums_avx2(bytes, block_count, sums, squares);
        return;
    }
#endif
    pixel_sums_portable(bytes, block_count, sums, squares);
}
