/* pixel_sums: the fast way gives what the definition says, up to the most it may be asked for. */
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "imaging/pixel_sums.h"

typedef void (*SumPixels)(const uint8_t *bytes, size_t block_count, uint32_t sums[PIXEL_SUM_LANES],
                          uint32_t squares[PIXEL_SUM_LANES]);

static void expect_same(SumPixels sum_pixels, const uint8_t *bytes, size_t block_count)
{
    uint32_t sums[2][PIXEL_SUM_LANES], squares[2][PIXEL_SUM_LANES];
    memset(sums, 0xEE, sizeof sums);
    memset(squares, 0xEE, sizeof squares);
    pixel_sums_portable(bytes, block_count, sums[0], squares[0]);
    sum_pixels(bytes, block_count, sums[1], squares[1]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    assert_memory_equal(squares[0], squares[1], sizeof squares[0]);
}

/* Checks one way of summing in memory of exactly that length, at every alignment that matters. */
static void check_way(SumPixels sum_pixels)
{
    Random random;
    random_start(&random, 1, 2);
    for (size_t block_count = 0; block_count < 9; block_count++) {
        for (size_t begin = 0; begin < 17; begin++) {
            const size_t length = block_count * PIXEL_SUM_LANES;
            uint8_t *memory = malloc(begin + length + 1);
            for (size_t i = 0; i < begin + length; i++)
                memory[i] = (uint8_t)random_u32(&random);
            expect_same(sum_pixels, memory + begin, block_count);
            free(memory);
        }
    }
    const size_t most = (size_t)PIXEL_SUM_BLOCKS_MAX * PIXEL_SUM_LANES;
    uint8_t *white = malloc(most);
    memset(white, 0xFF, most);
    expect_same(sum_pixels, white, PIXEL_SUM_BLOCKS_MAX);
    expect_same(sum_pixels, white, PIXEL_SUM_BLOCKS_MAX - 1);
    free(white);
}

TEST(test_each_way_gives_the_sums_of_each_lane)
{
    check_way(pixel_sums);
#ifdef FSHARD_RESAMPLE_X86
    if (__builtin_cpu_supports("avx2"))
        check_way(pixel_sums_avx2);
#endif
}

TEST(test_the_definition_is_of_lanes_and_squares)
{
    uint8_t bytes[3 * PIXEL_SUM_LANES];
    uint32_t sums[PIXEL_SUM_LANES], squares[PIXEL_SUM_LANES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i % PIXEL_SUM_LANES + 100 * (i / PIXEL_SUM_LANES));
    pixel_sums_portable(bytes, 3, sums, squares);
    for (uint32_t lane = 0; lane < PIXEL_SUM_LANES; lane++) {
        assert_int_equal(sums[lane], 3 * lane + 300);
        assert_int_equal(squares[lane],
                         lane * lane + (lane + 100) * (lane + 100) + (lane + 200) * (lane + 200));
    }
    uint8_t white[PIXEL_SUM_LANES];
    memset(white, 0xFF, sizeof white);
    pixel_sums_portable(white, 1, sums, squares);
    assert_int_equal((uint64_t)squares[0] * PIXEL_SUM_BLOCKS_MAX >> 32, 0); /* the bound is one */
}
