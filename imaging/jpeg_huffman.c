#include "imaging/jpeg_huffman.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/file.h"
#include "imaging/jpeg_codes.h"

enum {
    LAST_PLACE = DCTSIZE2 - 1,
    /* Zeros after the codes. Whether codes went past their end is looked at after each MCU, of at most 10
     * blocks of 64 symbols of 31 bits. */
    PADDING_BYTES = 4096,
    REFILLED_BITS = 56, /* at least, in the buffer after a refill */
    LOOKUPS_AT_ONCE = (REFILLED_BITS - CODES_LOOKUP_BITS) / CODES_LOOKUP_BITS, /* a DC look-up goes before */
};

/* The head of libjpeg's own module, as jpegint.h has had it from version 6b to libjpeg-turbo 3; that header
 * is not installed. A module is called by these two pointers. Of what follows libjpeg reads a flag, "no
 * more data", which lies elsewhere in version 3; here all of it is zero. */
struct jpeg_entropy_decoder {
    void (*start_pass)(j_decompress_ptr cinfo);
    boolean (*decode_mcu)(j_decompress_ptr cinfo, JBLOCKROW *blocks);
    void *zeros[6];
};

/* The next bits, the first on top. */
typedef struct Bits {
    uint64_t bits;
    unsigned count;
    const uint8_t *next; /* byte to go into the buffer */
} Bits;

/* How a block of an MCU is read. */
typedef struct BlockPlan {
    const DcCodes *dc;
    AcCodes *ac;
    int32_t *last_dc;
    bool skips; /* its AC coefficients are not wanted */
} BlockPlan;

struct JpegHuffman {
    struct jpeg_entropy_decoder module;    /* first: libjpeg's pointer to it is ours to this */
    struct jpeg_entropy_decoder *replaced; /* libjpeg's */
    DcCodes dc[NUM_HUFF_TBLS];
    AcCodes ac[NUM_HUFF_TBLS];
    BlockPlan plans[D_MAX_BLOCKS_IN_MCU];
    int plans_count;
    int32_t last_dc[MAX_COMPS_IN_SCAN];
    Buffer codes; /* of a restart interval or else of the scan, then PADDING_BYTES */
    Bits at;
    uint64_t scan_mcus, interval_mcus; /* still to be read */
    unsigned next_restart;             /* number of the next restart marker, 0..7 */
    bool gave_up;
};

/* Places beyond the block, which runs in damaged files reach, are its last one: as in libjpeg. */
static const uint8_t natural_order[DCTSIZE2 + 2 * 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34,
    27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

FshStatus jpeg_huffman_new(JpegHuffman **huffman_ret, FshError *error)
{
    *huffman_ret = calloc(1, sizeof **huffman_ret);
    return *huffman_ret ? FSH_OK
                        : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a reader of Huffman codes");
}

void jpeg_huffman_free(JpegHuffman **huffman)
{
    if (*huffman)
        buffer_free(&(*huffman)->codes);
    free(*huffman);
    *huffman = NULL;
}

bool jpeg_huffman_gave_up(const JpegHuffman *huffman)
{
    return huffman->gave_up;
}

/* ---- from marker to marker ---- */

/* Copies the codes up to the next marker, without the zeros after each 0xFF. Returns where the marker is, or
 * NULL: there is none. */
static const uint8_t *unstuff(const uint8_t *bytes, const uint8_t *end, Buffer *to)
{
    const uint64_t ones = UINT64_MAX / 255, tops = ones << 7;
    uint8_t *next = to->bytes;
    while (end - bytes >= 2) {
        uint64_t word;
        if (end - bytes >= (ptrdiff_t)sizeof word) {
            memcpy(&word, bytes, sizeof word);
            if (!((~word - ones) & word & tops)) { /* no byte of it is 0xFF */
                memcpy(next, &word, sizeof word);
                next += sizeof word;
                bytes += sizeof word;
                continue;
            }
        }
        while (bytes[0] != 0xFF && end - bytes > 2)
            *next++ = *bytes++;
        if (bytes[0] != 0xFF)
            return NULL;
        if (bytes[1] != 0) {
            to->length = (size_t)(next - to->bytes);
            return bytes;
        }
        *next++ = 0xFF;
        bytes += 2;
    }
    return NULL;
}

/* Takes the codes up to the next marker, where it leaves the source. Returns false, and leaves the source
 * where it was, if they are not in order. */
static bool begin_interval(JpegHuffman *huffman, j_decompress_ptr cinfo)
{
    struct jpeg_source_mgr *source = cinfo->src;
    const uint8_t *end = source->next_input_byte + source->bytes_in_buffer;
    const uint8_t *marker = unstuff(source->next_input_byte, end, &huffman->codes);
    if (!marker)
        return false;
    memset(huffman->codes.bytes + huffman->codes.length, 0, PADDING_BYTES);
    memset(huffman->last_dc, 0, sizeof huffman->last_dc);
    huffman->at = (Bits){.next = huffman->codes.bytes};
    huffman->interval_mcus = cinfo->restart_interval ? cinfo->restart_interval : UINT64_MAX;
    source->next_input_byte = marker;
    source->bytes_in_buffer = (size_t)(end - marker);
    return true;
}

/* Returns whether all bits were used but for those that fill the last byte. */
static bool interval_is_used(const JpegHuffman *huffman)
{
    const uint8_t *end = huffman->codes.bytes + huffman->codes.length;
    const int64_t left = (end - huffman->at.next) * 8 + (int64_t)huffman->at.count;
    return left >= 0 && left < 8;
}

/* Passes the restart marker that must be next. Returns false if codes or marker are not in order. */
static bool next_interval(JpegHuffman *huffman, j_decompress_ptr cinfo)
{
    struct jpeg_source_mgr *source = cinfo->src;
    if (!interval_is_used(huffman) || source->bytes_in_buffer < 2 ||
        source->next_input_byte[1] != JPEG_RST0 + huffman->next_restart)
        return false;
    source->next_input_byte += 2;
    source->bytes_in_buffer -= 2;
    huffman->next_restart = (huffman->next_restart + 1) & 7;
    return begin_interval(huffman, cinfo);
}

/* ---- codes ---- */

/* These are compiled twice, for any processor and for those that shift by any register. */
#define INLINED static inline __attribute__((always_inline))

INLINED void refill(Bits *at)
{
    at->bits |= load_be64(at->next) >> at->count;
    at->next += (63 - at->count) >> 3;
    at->count |= REFILLED_BITS;
}

INLINED unsigned peek(const Bits *at)
{
    return (unsigned)(at->bits >> (64 - CODES_LOOKUP_BITS));
}

INLINED void use(Bits *at, unsigned count)
{
    at->bits <<= count;
    at->count -= count;
}

/* Reads a symbol and its value, of any length: at most 31 bits. Returns the symbol, or -1: no such code. */
__attribute__((noinline)) static int read_symbol(const JpegCodes *codes, Bits *at, int *value_ret)
{
    const int32_t top = (int32_t)(at->bits >> (64 - CODES_BITS_MAX));
    unsigned bits = codes->look_bits[peek(at)];
    int symbol = codes->look_symbol[peek(at)];
    if (!bits) {
        for (bits = CODES_LOOKUP_BITS + 1; bits <= CODES_BITS_MAX && top >= codes->past[bits];)
            bits++;
        if (bits > CODES_BITS_MAX)
            return -1;
        symbol = codes->symbols[((top >> (CODES_BITS_MAX - bits)) + codes->offset[bits]) & 255];
    }
    const unsigned size = (unsigned)symbol & 15;
    use(at, bits);
    *value_ret = size ? jpeg_codes_value((unsigned)(at->bits >> (64 - size)), size) : 0;
    use(at, size);
    return symbol;
}

/* Reads a DC difference into *last. Returns false: no such code, or a sum that no JPEG has. Leaves enough
 * bits for LOOKUPS_AT_ONCE. */
INLINED bool read_dc(const DcCodes *dc, Bits *at, int32_t *last)
{
    refill(at);
    const DcLook look = dc->look[peek(at)];
    int difference = look.value;
    if (__builtin_expect(look.bits != 0, 1)) {
        use(at, look.bits);
    } else {
        Bits copy = *at; /* whose address may be known elsewhere: *at stays in registers */
        if (read_symbol(&dc->codes, &copy, &difference) < 0)
            return false;
        *at = copy;
        refill(at);
    }
    return !__builtin_add_overflow(*last, difference, last);
}

/* Reads an AC symbol of any length. block: NULL: its value is not wanted. Returns false: no such code. */
INLINED bool read_one_ac(const AcCodes *ac, Bits *at, unsigned *place, JCOEF *block)
{
    int value = 0;
    refill(at);
    Bits copy = *at;
    const int symbol = read_symbol(&ac->codes, &copy, &value);
    *at = copy;
    if (symbol < 0)
        return false;
    if ((symbol & 15) == 0) {
        *place += symbol >> 4 == 15 ? 16 : CODES_BLOCK_END;
        return true;
    }
    *place += (unsigned)symbol >> 4;
    if (block)
        block[natural_order[*place]] = (JCOEF)value;
    ++*place;
    return true;
}

/* Reads the AC coefficients of a block of zeros. Returns false: no such code.
 *
 * Each look-up writes two coefficients, without asking whether there are two: one alone is written twice, and
 * the end of the block as a 0 where there is one. A second one that lies beyond the block is the next
 * block's, and is written before the first, which has its place then. */
INLINED bool read_ac(const AcCodes *ac, Bits *at, JCOEF *block)
{
    unsigned place = 1;
    for (;; refill(at)) {
        for (int i = 0; i < LOOKUPS_AT_ONCE; i++) {
            const AcPair pair = ac->pairs[peek(at)];
            if (__builtin_expect(!pair.bits, 0)) {
                if (!read_one_ac(ac, at, &place, block))
                    return false;
                if (place > LAST_PLACE)
                    return true;
                break;
            }
            const unsigned first = place + pair.first_place;
            block[natural_order[place + pair.second_place]] = pair.second;
            block[natural_order[first]] = pair.first;
            place += pair.advance;
            if (place > LAST_PLACE) {
                use(at, first >= LAST_PLACE ? pair.first_bits : pair.bits);
                return true;
            }
            use(at, pair.bits);
        }
    }
}

/* Passes the AC coefficients of a block. Returns false: no such code. */
INLINED bool skip_ac(const AcCodes *ac, Bits *at)
{
    unsigned place = 1;
    for (;; refill(at)) {
        for (int i = 0; i < LOOKUPS_AT_ONCE; i++) {
            const AcSkip skip = ac->skips[peek(at)];
            /* the last of them must begin within the block */
            if (__builtin_expect(!skip.bits || place + skip.before > LAST_PLACE, 0)) {
                if (!read_one_ac(ac, at, &place, NULL))
                    return false;
                if (place > LAST_PLACE)
                    return true;
                break;
            }
            use(at, skip.bits);
            place += skip.advance;
            if (place > LAST_PLACE)
                return true;
        }
    }
}

/* Reads an MCU. blocks: NULL: passes it. Returns false: no such code. */
INLINED bool read_mcu(JpegHuffman *huffman, JBLOCKROW *blocks)
{
    Bits at = huffman->at;
    for (int i = 0; i < huffman->plans_count; i++) {
        const BlockPlan *plan = &huffman->plans[i];
        if (!read_dc(plan->dc, &at, plan->last_dc))
            return false;
        if (blocks)
            (*blocks[i])[0] = (JCOEF)*plan->last_dc;
        if (!(blocks && !plan->skips ? read_ac(plan->ac, &at, *blocks[i]) : skip_ac(plan->ac, &at)))
            return false;
    }
    huffman->at = at;
    return true;
}

static bool read_mcu_portable(JpegHuffman *huffman, JBLOCKROW *blocks)
{
    return read_mcu(huffman, blocks);
}

#ifdef __x86_64__
__attribute__((target("bmi2"))) static bool read_mcu_bmi2(JpegHuffman *huffman, JBLOCKROW *blocks)
{
    return read_mcu(huffman, blocks);
}
#endif

/* ---- libjpeg's module ---- */

/* Reads the next MCU. blocks: NULL: passes it. Returns false if the scan is not in order. */
static bool next_mcu(JpegHuffman *huffman, j_decompress_ptr cinfo, JBLOCKROW *blocks)
{
    if (huffman->interval_mcus == 0 && !next_interval(huffman, cinfo))
        return false;
    for (int i = 0; !blocks && i < huffman->plans_count; i++)
        ac_codes_make_skips(huffman->plans[i].ac);
#ifdef __x86_64__
    const bool whole =
        __builtin_cpu_supports("bmi2") ? read_mcu_bmi2(huffman, blocks) : read_mcu_portable(huffman, blocks);
#else
    const bool whole = read_mcu_portable(huffman, blocks);
#endif
    const uint8_t *end = huffman->codes.bytes + huffman->codes.length;
    if (!whole || huffman->at.next > end + sizeof(uint64_t))
        return false;
    huffman->interval_mcus--;
    return --huffman->scan_mcus || interval_is_used(huffman);
}

static JpegGuard *guard_of(j_decompress_ptr cinfo)
{
    return (JpegGuard *)(void *)cinfo->err;
}

static boolean on_mcu(j_decompress_ptr cinfo, JBLOCKROW *blocks)
{
    JpegHuffman *huffman = (JpegHuffman *)(void *)cinfo->entropy;
    if (!next_mcu(huffman, cinfo, blocks)) {
        huffman->gave_up = true;
        jpeg_guard_fail(guard_of(cinfo), fsh_error_set(guard_of(cinfo)->error, FSH_ERR_CORRUPT,
                                                       "its Huffman codes are not in order"));
    }
    return TRUE;
}

static bool is_skipped(const jpeg_component_info *component)
{
#if JPEG_LIB_VERSION >= 70
    return component->DCT_h_scaled_size == 1 && component->DCT_v_scaled_size == 1;
#else
    return component->DCT_scaled_size == 1;
#endif
}

/* Finds how each block of an MCU is read, and makes the tables for it. */
static void plan_blocks(JpegHuffman *huffman, j_decompress_ptr cinfo)
{
    huffman->plans_count = cinfo->blocks_in_MCU;
    for (int i = 0; i < cinfo->blocks_in_MCU; i++) {
        const int member = cinfo->MCU_membership[i];
        const jpeg_component_info *component = cinfo->cur_comp_info[member];
        DcCodes *dc = &huffman->dc[component->dc_tbl_no];
        AcCodes *ac = &huffman->ac[component->ac_tbl_no];
        dc_codes_make(dc, cinfo->dc_huff_tbl_ptrs[component->dc_tbl_no]);
        ac_codes_make(ac, cinfo->ac_huff_tbl_ptrs[component->ac_tbl_no]);
        if (is_skipped(component))
            ac_codes_make_skips(ac);
        huffman->plans[i] = (BlockPlan){dc, ac, &huffman->last_dc[member], is_skipped(component)};
    }
}

/* Starts the scan: libjpeg's own module does, which checks the tables; then this one takes its place, if the
 * codes up to the first marker are in order. */
static void on_start_pass(j_decompress_ptr cinfo)
{
    JpegHuffman *huffman = (JpegHuffman *)(void *)cinfo->entropy;
    cinfo->entropy = huffman->replaced;
    cinfo->entropy->start_pass(cinfo);
    /* A lossless JPEG, which libjpeg-turbo 3 reads, has none. libjpeg has proved no AC table of it, and its
     * module is another. */
    if (!cinfo->cur_comp_info[0]->quant_table)
        return;
    JpegGuard *guard = guard_of(cinfo);
    if (buffer_reserve(&huffman->codes, cinfo->src->bytes_in_buffer + PADDING_BYTES, guard->error))
        jpeg_guard_fail(guard, FSH_ERR_MEMORY);
    plan_blocks(huffman, cinfo);
    huffman->scan_mcus = (uint64_t)cinfo->MCUs_per_row * cinfo->MCU_rows_in_scan;
    huffman->next_restart = 0;
    if (begin_interval(huffman, cinfo))
        cinfo->entropy = &huffman->module;
}

void jpeg_huffman_attach(JpegHuffman *huffman, j_decompress_ptr cinfo)
{
    huffman->gave_up = false;
    if (cinfo->progressive_mode || cinfo->arith_code || cinfo->data_precision != 8 ||
        cinfo->comps_in_scan != cinfo->num_components || cinfo->Ss != 0 || cinfo->Se != LAST_PLACE ||
        cinfo->Ah != 0 || cinfo->Al != 0)
        return;
    huffman->module = (struct jpeg_entropy_decoder){on_start_pass, on_mcu, {NULL}};
    huffman->replaced = cinfo->entropy;
    cinfo->entropy = &huffman->module;
}
