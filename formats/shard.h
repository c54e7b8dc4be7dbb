/* shard.h - the bytes of a shard: header, index, footer. Layouts are in fshard(5).
 *
 * Parsers are pure functions of (bytes, length): they never read outside, keep no state, and can be fuzzed.
 * Their messages name no file: the caller prepends it. Pointers in their results lie in the bytes they were
 * given. */
#ifndef FSHARD_FORMATS_SHARD_H
#define FSHARD_FORMATS_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"

enum {
    SHARD_HEADER_BYTES = 64,
    SHARD_FOOTER_BYTES = 128,
    INDEX_ROW_BYTES = 32,
    COMPACT_ROW_BYTES = 12, /* in shards of compact records; they are read into rows of INDEX_ROW_BYTES */
};

typedef struct IndexRow {
    uint64_t offset; /* of the record, in its file */
    uint64_t record_bytes;
    int64_t label;
    uint32_t crc;
} IndexRow;

void fsh_index_row_store(uint8_t *at, const IndexRow *row);
IndexRow fsh_index_row_load(const uint8_t *at);

/* A shard in memory. */
typedef struct ShardView {
    const uint8_t *bytes;
    uint64_t file_bytes;
    /* from the header */
    uint32_t header_bytes, shard_index, shard_count;
    FshRecordForm record_form;
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
    /* from the footer */
    uint64_t record_count, index_offset, footer_offset;
    const uint8_t *index; /* record_count rows of index_bytes in all */
    uint64_t index_bytes;
    uint32_t index_crc;
    FshHash128 hash;
} ShardView;

bool fsh_shard_sniff(const uint8_t *bytes, uint64_t length);
/* Reads the header, and sets bytes and file_bytes. Checks the header's CRC. */
FshStatus fsh_shard_parse_header(ShardView *view, const uint8_t *bytes, uint64_t length, FshError *error);
/* Reads the footer; to be called after the header was. A missing footer is FSH_ERR_CORRUPT and *torn_ret. */
FshStatus fsh_shard_parse_footer(ShardView *view, bool *torn_ret, FshError *error);
/* Checks the index, after the footer: its CRC, that its rows cover the records without gaps, and that labels
 * are below class_count (below 0 for 0 classes). class_counts, if not NULL, is added to. On failure *row_ret,
 * if not NULL, is the row or -1. */
FshStatus fsh_shard_check_index(const ShardView *view, uint64_t class_count, uint64_t *class_counts,
                                int64_t *row_ret, FshError *error);
/* Sets *rows_ret to the rows of the index, of INDEX_ROW_BYTES each; to be called after the index was checked.
 * They lie in the file or, of compact ones, in *own_rows (the caller's to free). FSH_ERR_MEMORY. */
FshStatus fsh_shard_rows(const ShardView *view, Buffer *own_rows, const uint8_t **rows_ret, FshError *error);
/* Brings rows of INDEX_ROW_BYTES into the form in which a shard has them, in place. Returns their bytes. */
size_t fsh_shard_pack_rows(uint8_t *rows, uint64_t count, FshRecordForm form);
/* Returns the number of intact records from the front of a shard whose header is good; needs no index. */
uint64_t fsh_shard_count_intact(const ShardView *view);

/* Returns the header_bytes of a shard with this metadata and dictionary. */
uint32_t fsh_shard_header_bytes(size_t metadata_bytes, size_t dictionary_bytes);
/* Writes header_bytes bytes. */
void fsh_shard_store_header(uint8_t *header, const char *metadata, size_t metadata_bytes,
                            const void *dictionary, size_t dictionary_bytes, FshRecordForm form,
                            uint32_t shard_index, uint32_t shard_count);
/* Writes SHARD_FOOTER_BYTES. */
void fsh_shard_store_footer(uint8_t *footer, uint64_t record_count, FshRecordForm form, uint64_t index_offset,
                            uint32_t index_crc, const FshHash128 *hash);

#endif
