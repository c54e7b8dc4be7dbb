/* basicsr.h - the folders of BasicSR's LMDBs: meta_info.txt, keys, and the table of their samples. */
#ifndef FSHARD_FORMATS_BASICSR_H
#define FSHARD_FORMATS_BASICSR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/sample_table.h"

#define BASICSR_META_NAME "meta_info.txt"

/* A line of meta_info.txt: "KEY.png (h,w,c) 1". What stands after the name may be missing: 0 then. */
typedef struct MetaLine {
    const char *key;
    size_t key_bytes;
    uint32_t height, width;
    uint8_t channels;
} MetaLine;
/* Reads the line at *offset and moves *offset past it; empty lines are passed over. line->key is NULL at the
 * end. FSH_ERR_CORRUPT names the line's byte. */
FshStatus fsh_meta_line_next(const char *text, size_t bytes, size_t *offset, MetaLine *line, FshError *error);

/* One folder of BasicSR: data.mdb and meta_info.txt in memory. */
typedef struct BasicsrSide {
    const char *name; /* of the field */
    const uint8_t *data;
    uint64_t data_bytes;
    const char *meta;
    size_t meta_bytes;
} BasicsrSide;
/* Fills *table with samples in the order of the first side's meta_info.txt. decode: %XX in keys stands for a
 * byte, as fsh_basicsr_key_encode writes it. FSH_ERR_MISMATCH: a key that one side has and another has not,
 * or that is there twice; FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY. */
FshStatus fsh_basicsr_table(SampleTable *table, const BasicsrSide *sides, size_t side_count, bool decode,
                            FshError *error);
/* Writes to out the key as BasicSR's reader takes it: '%', dots, control characters, and bytes that are not
 * ASCII become %XX. FSH_ERR_MISMATCH: longer than LMDB takes, 511 bytes; FSH_ERR_MEMORY. */
FshStatus fsh_basicsr_key_encode(const char *key, size_t key_bytes, Buffer *out, FshError *error);

#endif
