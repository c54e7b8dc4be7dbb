/* fuzz_mend of targets whose input is a shard: checksums and lengths, from the inside out. */
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/fuzz/fuzz.h"

/* Where mending writes; fshard(5). */
enum {
    AT_HEADER_BYTES = 12,
    AT_METADATA_BYTES = 24,
    AT_DICTIONARY_BYTES = 28,
    AT_RECORD_FORM = 32,
    AT_HEADER_CRC = 60,

    AT_RECORD_COUNT = 16,
    AT_INDEX_OFFSET = 24,
    AT_INDEX_BYTES = 32,
    AT_FILE_BYTES = 40,
    AT_INDEX_CRC = 48,
    AT_FOOTER_CRC = 124,

    AT_RECORD_CRC = 4,
    AT_RECORD_BYTES = 8,
    AT_ROW_CRC = 24,
    AT_COMPACT_ROW_CRC = 8,
};

static void mend_records(uint8_t *bytes, size_t length, uint8_t *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        uint8_t *at = rows + i * INDEX_ROW_BYTES;
        IndexRow row = fsh_index_row_load(at);
        if (row.offset > length || row.record_bytes > length - row.offset ||
            row.record_bytes < RECORD_BYTES_MIN)
            continue;
        uint8_t *record = bytes + row.offset;
        store_le64(record + AT_RECORD_BYTES, row.record_bytes);
        uint32_t crc = fsh_crc32c(0, record + AT_RECORD_BYTES, (size_t)row.record_bytes - AT_RECORD_BYTES);
        store_le32(record + AT_RECORD_CRC, crc);
        store_le32(at + AT_ROW_CRC, crc);
    }
}

/* Renews the checksums of compact records and the index rows that repeat them. The records follow each other
 * from the header's end; each record's length tells where the next begins. */
static void mend_compact(uint8_t *bytes, size_t length, uint8_t *rows, size_t row_count)
{
    uint64_t offset = load_le32(bytes + AT_HEADER_BYTES);
    for (size_t i = 0; i < row_count && offset < length; i++) {
        FshSample sample;
        RecordHead head;
        uint8_t *record = bytes + offset, *at = rows + i * COMPACT_ROW_BYTES;
        if (fsh_record_parse(record, length - offset, FSH_RECORD_COMPACT, &sample, &head, NULL))
            return;
        uint32_t crc = fsh_crc32c(0, record + RECORD_CRC_BEGIN, (size_t)head.record_bytes - RECORD_CRC_BEGIN);
        store_le32(record + AT_RECORD_CRC, crc);
        store_le32(at, (uint32_t)head.record_bytes);
        store_le32(at + AT_COMPACT_ROW_CRC, crc);
        offset += head.record_bytes;
    }
}

static void mend_footer(uint8_t *bytes, size_t length, uint32_t choice)
{
    uint8_t *footer = bytes + length - SHARD_FOOTER_BYTES;
    const bool compact = load_le32(bytes + AT_RECORD_FORM) == FSH_RECORD_COMPACT;
    const size_t row_bytes = compact ? COMPACT_ROW_BYTES : INDEX_ROW_BYTES;
    uint64_t offset = load_le64(footer + AT_INDEX_OFFSET), room = length - SHARD_FOOTER_BYTES;
    if (choice & 1)
        store_le64(footer + AT_FILE_BYTES, length);
    if (choice & 2)
        store_le64(footer + AT_INDEX_BYTES, load_le64(footer + AT_RECORD_COUNT) * row_bytes);
    uint64_t index_bytes = load_le64(footer + AT_INDEX_BYTES);
    if (offset <= room && index_bytes <= room - offset) {
        if (choice & 4)
            (compact ? mend_compact : mend_records)(bytes, length, bytes + offset,
                                                    (size_t)index_bytes / row_bytes);
        store_le32(footer + AT_INDEX_CRC, fsh_crc32c(0, bytes + offset, (size_t)index_bytes));
    }
    store_le32(footer + AT_FOOTER_CRC, fsh_crc32c(0, footer, AT_FOOTER_CRC));
}

void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    if (length < SHARD_HEADER_BYTES + SHARD_FOOTER_BYTES)
        return;
    mend_footer(bytes, length, choice);
    if (choice & 8)
        store_le32(bytes + AT_HEADER_BYTES,
                   fsh_shard_header_bytes(load_le32(bytes + AT_METADATA_BYTES) & 0xFFFFFF,
                                          load_le32(bytes + AT_DICTIONARY_BYTES) & 0xFFFFF));
    uint32_t header_bytes = load_le32(bytes + AT_HEADER_BYTES);
    if (header_bytes >= SHARD_HEADER_BYTES && header_bytes <= length) {
        uint32_t crc = fsh_crc32c(0, bytes, AT_HEADER_CRC);
        crc = fsh_crc32c(crc, bytes + SHARD_HEADER_BYTES, header_bytes - SHARD_HEADER_BYTES);
        store_le32(bytes + AT_HEADER_CRC, crc);
    }
}
