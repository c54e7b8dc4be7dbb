#include "common/crc32c.h"

#include <pthread.h>

#include "common/bytes.h"

enum { BYTE_VALUES = 256, SLICES = 8 };
static const uint32_t polynomial = 0x82F63B78U; /* bit-reflected */

/* table[k][b]: the register after byte b and k zero bytes, from a register of 0. Constant once it is made. */
static uint32_t table[SLICES][BYTE_VALUES];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

/* Makes the table, about 10 microseconds. Only a processor without the instruction for it needs it. */
static void make_table(void)
{
    for (uint32_t byte = 0; byte < BYTE_VALUES; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (polynomial & (0U - (crc & 1)));
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (int byte = 0; byte < BYTE_VALUES; byte++) {
            const uint32_t crc = table[slice - 1][byte];
            table[slice][byte] = crc >> 8 ^ table[0][crc & 0xFF];
        }
}

/* Slices by eight (Kounavis and Berry, "A systematic approach to building high performance software-based CRC
 * generators", 2005): eight independent table look-ups advance the CRC by eight bytes. */
uint32_t fsh_crc32c_portable(uint32_t crc, const void *bytes, size_t length)
{
    const uint8_t *next = bytes;
    (void)pthread_once(&table_made, make_table);
    crc = ~crc;
    for (; length >= 8; length -= 8, next += 8) {
        uint32_t low = crc ^ load_le32(next), high = load_le32(next + 4);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^
              table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; length; length--, next++) {
        crc = crc >> 8 ^ table[0][(crc ^ *next) & 0xFF];
    }
    return ~crc;
}

uint32_t fsh_crc32c(uint32_t crc, const void *bytes, size_t length)
{
    return fsh_crc32c_sse42_available() ? fsh_crc32c_sse42(crc, bytes, length)
                                        : fsh_crc32c_portable(crc, bytes, length);
}

/* Returns a * b modulo the polynomial; both are bit-reflected: the highest bit is the coefficient of x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0U - (a >> 31));
        b = b >> 1 ^ (polynomial & (0U - (b & 1)));
    }
    return product;
}

/* Advances `first` over n bytes by multiplying with x^(8n), a product of x^8, x^16, x^32, … The inversions at
 * both ends cancel. */
uint32_t fsh_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    uint32_t power = 0x00800000U; /* x^8 */
    for (; second_bytes; second_bytes >>= 1) {
        if (second_bytes & 1)
            first = multiply(power, first);
        power = multiply(power, power);
    }
    return first ^ second;
}
