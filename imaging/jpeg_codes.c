#include "imaging/jpeg_codes.h"

#include <string.h>

/* Returns whether codes were made of this table, and makes them if not. */
static bool codes_are_made(JpegCodes *codes, const JHUFF_TBL *table)
{
    if (codes->made && memcmp(codes->counts, table->bits, sizeof codes->counts) == 0 &&
        memcmp(codes->symbols, table->huffval, sizeof codes->symbols) == 0)
        return true;
    memcpy(codes->counts, table->bits, sizeof codes->counts);
    memcpy(codes->symbols, table->huffval, sizeof codes->symbols);
    memset(codes->look_bits, 0, sizeof codes->look_bits);
    int32_t code = 0, index = 0;
    for (int bits = 1; bits <= CODES_BITS_MAX; bits++, code <<= 1) {
        codes->offset[bits] = index - code;
        for (int i = 0; i < table->bits[bits]; i++, code++, index++) {
            if (bits > CODES_LOOKUP_BITS)
                continue;
            const int shift = CODES_LOOKUP_BITS - bits;
            memset(codes->look_bits + (code << shift), bits, (size_t)1 << shift);
            memset(codes->look_symbol + (code << shift), table->huffval[index], (size_t)1 << shift);
        }
        codes->past[bits] = code << (CODES_BITS_MAX - bits);
    }
    codes->made = true;
    return false;
}

void dc_codes_make(DcCodes *dc, const JHUFF_TBL *table)
{
    if (codes_are_made(&dc->codes, table))
        return;
    for (unsigned i = 0; i < CODES_LOOKUPS; i++) {
        const unsigned size = dc->codes.look_symbol[i] & 15U, bits = dc->codes.look_bits[i] + size;
        const bool fits = dc->codes.look_bits[i] && bits <= CODES_LOOKUP_BITS;
        const unsigned rest = fits ? i >> (CODES_LOOKUP_BITS - bits) & ((1U << size) - 1) : 0;
        dc->look[i] = (DcLook){.value = fits ? (int16_t)jpeg_codes_value(rest, size) : 0,
                               .bits = fits ? (uint8_t)bits : 0};
    }
}

/* Fills the look-ups that begin with a symbol and its value, the first of which is index. */
static void fill_symbol(AcPair *pairs, unsigned index, unsigned code_bits, unsigned symbol)
{
    const unsigned size = symbol & 15, run = symbol >> 4, bits = code_bits + size;
    const bool ends = size == 0 && run != 15;
    if (bits > CODES_LOOKUP_BITS)
        return;
    const unsigned count = 1U << (CODES_LOOKUP_BITS - bits);
    AcPair pair = {.first_place = (uint8_t)(ends ? 0 : run),
                   .second_place = (uint8_t)(ends ? 0 : run),
                   .advance = (uint8_t)(ends ? CODES_BLOCK_END : run + 1),
                   .bits = (uint8_t)bits & 15,
                   .first_bits = (uint8_t)bits & 15};
    for (unsigned rest = 0; rest < 1U << size; rest++) {
        pair.first = pair.second = (int16_t)jpeg_codes_value(rest, size);
        for (unsigned i = 0; i < count; i++)
            pairs[index++] = pair;
    }
}

/* Returns what the first symbol of a pair advances the place by. The end alone has value and place 0. */
static unsigned first_advance(const AcPair *pair)
{
    return pair->first == 0 && pair->first_place == 0 ? CODES_BLOCK_END : pair->first_place + 1U;
}

/* Joins a symbol with the one that follows it in the same look-up, if that lies in it as a whole. */
static void join_next(AcPair *pair, const AcPair *next)
{
    const unsigned bits = (unsigned)pair->first_bits + next->first_bits, before = first_advance(pair);
    if (!pair->first_bits || !next->first_bits || bits > CODES_LOOKUP_BITS || before == CODES_BLOCK_END)
        return;
    const unsigned advance = first_advance(next);
    if (advance != CODES_BLOCK_END) {
        pair->second = next->first;
        pair->second_place = (uint8_t)(before + next->first_place);
    }
    pair->advance = (uint8_t)(before + advance);
    pair->bits = (uint8_t)bits & 15;
}

void ac_codes_make(AcCodes *ac, const JHUFF_TBL *table)
{
    if (codes_are_made(&ac->codes, table))
        return;
    ac->has_skips = false;
    memset(ac->pairs, 0, sizeof ac->pairs);
    for (unsigned bits = 1, code = 0, index = 0; bits <= CODES_LOOKUP_BITS; bits++, code <<= 1) {
        for (unsigned i = 0; i < table->bits[bits]; i++, code++)
            fill_symbol(ac->pairs, code << (CODES_LOOKUP_BITS - bits), bits, table->huffval[index++]);
    }
    for (unsigned i = 0; i < CODES_LOOKUPS; i++) /* what is said of the first symbols stays */
        join_next(&ac->pairs[i], &ac->pairs[i << ac->pairs[i].first_bits & (CODES_LOOKUPS - 1)]);
}

void ac_codes_make_skips(AcCodes *ac)
{
    for (unsigned i = 0; i < CODES_LOOKUPS && !ac->has_skips; i++) {
        unsigned bits = 0, advance = 0, before = 0;
        while (advance < CODES_BLOCK_END) {
            const AcPair *next = &ac->pairs[i << bits & (CODES_LOOKUPS - 1)];
            if (!next->first_bits || bits + next->first_bits > CODES_LOOKUP_BITS)
                break;
            before = advance;
            advance += first_advance(next);
            bits += next->first_bits;
        }
        ac->skips[i] = (AcSkip){(uint8_t)bits, (uint8_t)advance, (uint8_t)before};
    }
    ac->has_skips = true;
}
