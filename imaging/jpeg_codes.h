/* jpeg_codes.h - the Huffman codes of a baseline JPEG as tables to look up: code and value in one step.
 * Part of jpeg_huffman.c.
 *
 * A look-up takes the next CODES_LOOKUP_BITS bits. Of 10, 11, 12 and 13 bits, 11 were the fastest: longer
 * tables take longer to make, and photographs bring tables of their own. */
#ifndef FSHARD_IMAGING_JPEG_CODES_H
#define FSHARD_IMAGING_JPEG_CODES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h> /* jpeglib.h needs FILE */

#include <jpeglib.h>

enum {
    CODES_LOOKUP_BITS = 11,
    CODES_LOOKUPS = 1 << CODES_LOOKUP_BITS,
    CODES_BITS_MAX = 16,
    /* What the end of a block advances the place by: past the last one, from wherever. */
    CODES_BLOCK_END = 2 * DCTSIZE2,
};

/* The codes alone. */
typedef struct JpegCodes {
    UINT8 counts[CODES_BITS_MAX + 1], symbols[256]; /* as in the file: JHUFF_TBL's bits and huffval */
    uint8_t look_bits[CODES_LOOKUPS], look_symbol[CODES_LOOKUPS]; /* bits 0: a longer code */
    int32_t past[CODES_BITS_MAX + 1];   /* the first code of 16 bits that no code of this length begins */
    int32_t offset[CODES_BITS_MAX + 1]; /* of a symbol in symbols, less its code */
    bool made;
} JpegCodes;

/* A DC difference. */
typedef struct DcLook {
    int16_t value;
    uint8_t bits; /* of code and value; 0: more than CODES_LOOKUP_BITS */
} DcLook;

typedef struct DcCodes {
    JpegCodes codes;
    DcLook look[CODES_LOOKUPS];
} DcCodes;

/* One AC coefficient or two. Places are counted in zigzag order from the current one. */
typedef struct AcPair {
    int16_t first, second;             /* values; 0: a run of zeros, or the end of the block */
    uint8_t first_place, second_place; /* where only one fits, second is first again */
    uint8_t advance;                   /* to the next place */
    uint8_t bits : 4, first_bits : 4;  /* of both, of the first; 0: that has more than CODES_LOOKUP_BITS */
} AcPair;

/* As many AC coefficients as there are, without their values. */
typedef struct AcSkip {
    uint8_t bits;    /* of all; 0: the first has more than CODES_LOOKUP_BITS */
    uint8_t advance; /* to the next place */
    uint8_t before;  /* to the place from which the last of them begins */
} AcSkip;

typedef struct AcCodes {
    JpegCodes codes;
    AcPair pairs[CODES_LOOKUPS];
    AcSkip skips[CODES_LOOKUPS]; /* if has_skips */
    bool has_skips;
} AcCodes;

/* Fill the tables of one Huffman table, unless they are of the same one already. libjpeg must have found it
 * in order (its start of a scan does). */
void dc_codes_make(DcCodes *dc, const JHUFF_TBL *table);
void ac_codes_make(AcCodes *ac, const JHUFF_TBL *table);
/* Fills skips, unless they are there. */
void ac_codes_make_skips(AcCodes *ac);

/* Returns the value that `size` bits mean (ITU-T T.81, F.2.2.1: EXTEND). */
static inline int jpeg_codes_value(unsigned bits, unsigned size)
{
    return size && bits < 1U << (size - 1) ? (int)bits - (1 << size) + 1 : (int)bits;
}

#endif
