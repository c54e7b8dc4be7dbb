#include "imaging/gif_check.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HEADER_BYTES = 13, /* signature and screen */
    DESCRIPTOR_BYTES = 10,
    HAS_COLOURS = 0x80,
    EXTENSION = 0x21,
    IMAGE = 0x2C,
    TRAILER = 0x3B,
    CODES_MAX = 4096,
    CODE_BITS_MAX = 12,
    NO_CODE = CODES_MAX,
};

typedef struct GifCodes {
    const uint8_t *bytes;
    size_t length, at;
    size_t block_left; /* not yet read, of the current block */
    uint32_t bits;     /* read and not yet used, the next one lowest */
    unsigned bits_count;
} GifCodes;

/* Returns the bytes of the colour table that a packed field announces. */
static size_t table_bytes(uint8_t packed)
{
    return packed & HAS_COLOURS ? (size_t)3 << ((packed & 7) + 1) : 0;
}

/* Returns the position after the sub-blocks that begin at `at` and their empty terminator. */
static size_t skip_blocks(const uint8_t *bytes, size_t length, size_t at)
{
    while (at < length && bytes[at])
        at += (size_t)bytes[at] + 1;
    return at + 1;
}

static bool next_byte(GifCodes *codes, uint8_t *byte_ret)
{
    if (codes->block_left == 0) {
        if (codes->at >= codes->length || codes->bytes[codes->at] == 0)
            return false;
        codes->block_left = codes->bytes[codes->at++];
    }
    if (codes->at >= codes->length)
        return false;
    codes->block_left--;
    *byte_ret = codes->bytes[codes->at++];
    return true;
}

static bool next_code(GifCodes *codes, unsigned code_bits, unsigned *code_ret)
{
    while (codes->bits_count < code_bits) {
        uint8_t byte = 0;
        if (!next_byte(codes, &byte))
            return false;
        codes->bits |= (uint32_t)byte << codes->bits_count;
        codes->bits_count += 8;
    }
    *code_ret = codes->bits & ((1u << code_bits) - 1);
    codes->bits >>= code_bits;
    codes->bits_count -= code_bits;
    return true;
}

/* Follows the codes until they stand for `wanted` pixels. FSH_ERR_CORRUPT: an impossible code, or too few. */
static FshStatus follow(GifCodes *codes, unsigned literal_bits, uint64_t wanted, FshError *error)
{
    uint16_t pixels[CODES_MAX]; /* how many a code stands for */
    const unsigned clear = 1u << literal_bits, end = clear + 1;
    unsigned next = clear + 2, code_bits = literal_bits + 1, previous = NO_CODE, code = 0;
    uint64_t count = 0;
    for (unsigned i = 0; i < clear; i++)
        pixels[i] = 1;
    while (count < wanted && next_code(codes, code_bits, &code) && code != end) {
        if (code == clear) {
            next = clear + 2;
            code_bits = literal_bits + 1;
            previous = NO_CODE;
            continue;
        }
        /* a code may be used in the very step that defines it */
        const bool is_made_now = code == next && previous != NO_CODE && next < CODES_MAX;
        if ((code >= next && !is_made_now) || (previous == NO_CODE && code > clear))
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "damaged (a code that does not exist, after %llu pixels of %llu)",
                                 (unsigned long long)count, (unsigned long long)wanted);
        if (previous != NO_CODE && next < CODES_MAX) {
            pixels[next++] = (uint16_t)(pixels[previous] + 1);
            if (next == 1u << code_bits && code_bits < CODE_BITS_MAX)
                code_bits++;
        }
        count += pixels[code];
        previous = code;
    }
    return count >= wanted ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_CORRUPT,
                                           "damaged or truncated (%llu of its %llu pixels are there)",
                                           (unsigned long long)count, (unsigned long long)wanted);
}

FshStatus gif_check(const void *file, size_t length, FshError *error)
{
    const uint8_t *bytes = file;
    size_t at = HEADER_BYTES;
    if (length < HEADER_BYTES)
        return FSH_OK;
    at += table_bytes(bytes[10]);
    while (at < length && bytes[at] != IMAGE && bytes[at] != TRAILER) /* stray bytes are passed over */
        at = bytes[at] == EXTENSION ? skip_blocks(bytes, length, at + 2) : at + 1;
    if (at >= length || length - at < DESCRIPTOR_BYTES || bytes[at] == TRAILER)
        return FSH_OK;
    const uint8_t *descriptor = bytes + at;
    const uint64_t width = descriptor[5] | (unsigned)descriptor[6] << 8;
    const uint64_t height = descriptor[7] | (unsigned)descriptor[8] << 8;
    at += DESCRIPTOR_BYTES + table_bytes(descriptor[9]);
    if (at >= length)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "truncated (its pixels are not there)");
    const unsigned literal_bits = bytes[at++];
    if (literal_bits == 0 || literal_bits >= CODE_BITS_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "damaged (codes of %u bits)", literal_bits);
    GifCodes codes = {.bytes = bytes, .length = length, .at = at};
    return follow(&codes, literal_bits, width * height, error);
}
