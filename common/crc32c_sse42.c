/* crc32c_sse42.c - CRC32C by the crc32 instruction, three streams at a time.
 *
 * The instruction takes 8 bytes in 3 cycles, and a new one can start each cycle: three independent streams
 * over three neighbouring blocks keep it busy. With blocks A, B, C of n bytes and their CRCs a (from the
 * register so far), b and c (from 0), the register after all three is a * x^(16n) + b * x^(8n) + c modulo the
 * polynomial. One carry-less multiplication by a constant advances a CRC over a block, and the crc32
 * instruction reduces the product: crc32(0, clmul(a, k)) = a * k * x^33, so k = x^(16n - 33), bit-reflected
 * (Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", Intel 2011). */
#include "common/crc32c.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

/* Long blocks for bulk, short ones so that little is left to a single stream. */
enum { LONG_BYTES = 2048, SHORT_BYTES = 256 };

/* x^(16n - 33) and x^(8n - 33) modulo the polynomial, bit-reflected, for n as above. */
static const uint32_t long_over_two = 0x82F89C77, long_over_one = 0xA51B6135;
static const uint32_t short_over_two = 0xDD7E3B0C, short_over_one = 0xB9E02B86;

bool fsh_crc32c_sse42_available(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

static inline uint64_t load_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Returns the register after 3 * block_bytes bytes. Inlined, so that block_bytes is a constant for the
 * compiler. */
__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t
three_blocks(uint64_t a, const uint8_t *next, size_t block_bytes, uint32_t over_two, uint32_t over_one)
{
    uint64_t b = 0, c = 0;
    for (const uint8_t *end = next + block_bytes; next < end; next += 8) {
        a = _mm_crc32_u64(a, load_word(next));
        b = _mm_crc32_u64(b, load_word(next + block_bytes));
        c = _mm_crc32_u64(c, load_word(next + 2 * block_bytes));
    }
    __m128i moved_a =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi32_si128((int)over_two), 0);
    __m128i moved_b =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi32_si128((int)over_one), 0);
    uint64_t product = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(moved_a, moved_b));
    return _mm_crc32_u64(0, product) ^ c;
}

__attribute__((target("sse4.2,pclmul"))) uint32_t fsh_crc32c_sse42(uint32_t crc, const void *bytes,
                                                                   size_t length)
{
    const uint8_t *next = bytes;
    uint64_t state = ~crc;
    for (; length >= (size_t)3 * LONG_BYTES; length -= (size_t)3 * LONG_BYTES, next += 3 * LONG_BYTES) {
        state = three_blocks(state, next, LONG_BYTES, long_over_two, long_over_one);
    }
    for (; length >= (size_t)3 * SHORT_BYTES; length -= (size_t)3 * SHORT_BYTES, next += 3 * SHORT_BYTES) {
        state = three_blocks(state, next, SHORT_BYTES, short_over_two, short_over_one);
    }
    for (; length >= 8; length -= 8, next += 8) {
        state = _mm_crc32_u64(state, load_word(next));
    }
    for (; length; length--, next++) {
        state = _mm_crc32_u8((uint32_t)state, *next);
    }
    return ~(uint32_t)state;
}

#else

bool fsh_crc32c_sse42_available(void)
{
    return false;
}

uint32_t fsh_crc32c_sse42(uint32_t crc, const void *bytes, size_t length)
{
    return fsh_crc32c_portable(crc, bytes, length);
}

#endif
