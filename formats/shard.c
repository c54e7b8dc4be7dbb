#include "formats/shard.h"

#include <inttypes.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/metadata.h"
#include "formats/record.h"

/* Offsets in header and footer; fshard(5). */
enum {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_SHARD_INDEX = 16,
    AT_SHARD_COUNT = 20,
    AT_METADATA_BYTES = 24,
    AT_DICTIONARY_BYTES = 28,
    AT_RECORD_FORM = 32,
    AT_HEADER_RESERVED = 36,
    AT_HEADER_CRC = 60,

    AT_FOOTER_BYTES = 12,
    AT_RECORD_COUNT = 16,
    AT_INDEX_OFFSET = 24,
    AT_INDEX_BYTES = 32,
    AT_FILE_BYTES = 40,
    AT_INDEX_CRC = 48,
    AT_FOOTER_RESERVED_1 = 52,
    AT_HASH = 64,
    AT_FOOTER_RESERVED_2 = 80,
    AT_FOOTER_CRC = 124,

    ROW_OFFSET = 0,
    ROW_RECORD_BYTES = 8,
    ROW_LABEL = 16,
    ROW_CRC = 24,
    ROW_RESERVED = 28,

    COMPACT_ROW_RECORD_BYTES = 0,
    COMPACT_ROW_LABEL = 4,
    COMPACT_ROW_CRC = 8,
};

static const uint8_t header_magic[8] = {0x89, 'F', 'S', 'H', 'A', 'R', 'D', '\n'};
static const uint8_t footer_magic[8] = {'F', 'S', 'H', 'A', 'R', 'D', 'N', 'D'};

/* ---- index rows ---- */

void fsh_index_row_store(uint8_t *at, const IndexRow *row)
{
    store_le64(at + ROW_OFFSET, row->offset);
    store_le64(at + ROW_RECORD_BYTES, row->record_bytes);
    store_le64(at + ROW_LABEL, (uint64_t)row->label);
    store_le32(at + ROW_CRC, row->crc);
    store_le32(at + ROW_RESERVED, 0);
}

IndexRow fsh_index_row_load(const uint8_t *at)
{
    return (IndexRow){
        .offset = load_le64(at + ROW_OFFSET),
        .record_bytes = load_le64(at + ROW_RECORD_BYTES),
        .label = (int64_t)load_le64(at + ROW_LABEL),
        .crc = load_le32(at + ROW_CRC),
    };
}

static IndexRow load_compact_row(const uint8_t *at, uint64_t offset)
{
    return (IndexRow){
        .offset = offset,
        .record_bytes = load_le32(at + COMPACT_ROW_RECORD_BYTES),
        .label = (int32_t)load_le32(at + COMPACT_ROW_LABEL),
        .crc = load_le32(at + COMPACT_ROW_CRC),
    };
}

static size_t row_bytes_of(FshRecordForm form)
{
    return form == FSH_RECORD_COMPACT ? COMPACT_ROW_BYTES : INDEX_ROW_BYTES;
}

size_t fsh_shard_pack_rows(uint8_t *rows, uint64_t count, FshRecordForm form)
{
    for (uint64_t i = 0; i < count && form == FSH_RECORD_COMPACT; i++) {
        const IndexRow row = fsh_index_row_load(rows + i * INDEX_ROW_BYTES);
        uint8_t *at = rows + i * COMPACT_ROW_BYTES;
        store_le32(at + COMPACT_ROW_RECORD_BYTES, (uint32_t)row.record_bytes);
        store_le32(at + COMPACT_ROW_LABEL, (uint32_t)row.label);
        store_le32(at + COMPACT_ROW_CRC, row.crc);
    }
    return (size_t)count * row_bytes_of(form);
}

/* ---- header ---- */

uint32_t fsh_shard_header_bytes(size_t metadata_bytes, size_t dictionary_bytes)
{
    return (uint32_t)(align_up(SHARD_HEADER_BYTES + metadata_bytes) + align_up(dictionary_bytes));
}

/* Returns the CRC32C of a header, over all but the CRC itself. */
static uint32_t header_crc(const uint8_t *header, uint32_t header_bytes)
{
    uint32_t crc = fsh_crc32c(0, header, AT_HEADER_CRC);
    return fsh_crc32c(crc, header + SHARD_HEADER_BYTES, header_bytes - SHARD_HEADER_BYTES);
}

void fsh_shard_store_header(uint8_t *header, const char *metadata, size_t metadata_bytes,
                            const void *dictionary, size_t dictionary_bytes, FshRecordForm form,
                            uint32_t shard_index, uint32_t shard_count)
{
    uint32_t header_bytes = fsh_shard_header_bytes(metadata_bytes, dictionary_bytes);
    memset(header, 0, header_bytes);
    memcpy(header, header_magic, sizeof header_magic);
    store_le32(header + AT_VERSION, FSH_FORMAT_VERSION);
    store_le32(header + AT_HEADER_BYTES, header_bytes);
    store_le32(header + AT_SHARD_INDEX, shard_index);
    store_le32(header + AT_SHARD_COUNT, shard_count);
    store_le32(header + AT_METADATA_BYTES, (uint32_t)metadata_bytes);
    store_le32(header + AT_DICTIONARY_BYTES, (uint32_t)dictionary_bytes);
    store_le32(header + AT_RECORD_FORM, (uint32_t)form);
    memcpy(header + SHARD_HEADER_BYTES, metadata, metadata_bytes);
    if (dictionary_bytes)
        memcpy(header + align_up(SHARD_HEADER_BYTES + metadata_bytes), dictionary, dictionary_bytes);
    store_le32(header + AT_HEADER_CRC, header_crc(header, header_bytes));
}

bool fsh_shard_sniff(const uint8_t *bytes, uint64_t length)
{
    return length >= sizeof header_magic && memcmp(bytes, header_magic, sizeof header_magic) == 0;
}

FshStatus fsh_shard_parse_header(ShardView *view, const uint8_t *bytes, uint64_t length, FshError *error)
{
    *view = (ShardView){.bytes = bytes, .file_bytes = length};
    if (length == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is empty");
    if (length < SHARD_HEADER_BYTES)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%" PRIu64 " bytes are too few for a shard", length);
    if (!fsh_shard_sniff(bytes, length))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is no shard: wrong magic");
    uint32_t version = load_le32(bytes + AT_VERSION);
    if (version != FSH_FORMAT_VERSION)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "version %" PRIu32 " of the format; this program knows %d", version,
                             FSH_FORMAT_VERSION);
    uint32_t header_bytes = load_le32(bytes + AT_HEADER_BYTES);
    uint32_t metadata_bytes = load_le32(bytes + AT_METADATA_BYTES);
    uint32_t dictionary_bytes = load_le32(bytes + AT_DICTIONARY_BYTES);
    if (metadata_bytes < METADATA_BYTES_MIN || metadata_bytes > METADATA_BYTES_MAX ||
        dictionary_bytes > FSH_DICTIONARY_BYTES_MAX ||
        header_bytes != fsh_shard_header_bytes(metadata_bytes, dictionary_bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "header of %" PRIu32 " bytes with metadata of %" PRIu32
                             " and a dictionary of %" PRIu32,
                             header_bytes, metadata_bytes, dictionary_bytes);
    if (header_bytes > length)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "cut short in its header: %" PRIu64 " of %" PRIu32 " bytes", length,
                             header_bytes);
    uint32_t crc = header_crc(bytes, header_bytes), stored = load_le32(bytes + AT_HEADER_CRC);
    if (crc != stored)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "header: CRC32C is %08" PRIx32 ", stored %08" PRIx32,
                             crc, stored);
    if (load_le32(bytes + AT_RECORD_FORM) > FSH_RECORD_COMPACT ||
        !bytes_are_zero(bytes + AT_HEADER_RESERVED, AT_HEADER_CRC - AT_HEADER_RESERVED))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "header: a form of records or reserved bytes of a later version");
    size_t metadata_end = SHARD_HEADER_BYTES + (size_t)metadata_bytes;
    size_t dictionary_begin = (size_t)align_up(metadata_end);
    size_t dictionary_end = dictionary_begin + dictionary_bytes;
    if (!bytes_are_zero(bytes + metadata_end, dictionary_begin - metadata_end) ||
        !bytes_are_zero(bytes + dictionary_end, header_bytes - dictionary_end))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "header: padding is not zero");
    view->header_bytes = header_bytes;
    view->record_form = (FshRecordForm)load_le32(bytes + AT_RECORD_FORM);
    view->shard_index = load_le32(bytes + AT_SHARD_INDEX);
    view->shard_count = load_le32(bytes + AT_SHARD_COUNT);
    view->metadata = (const char *)bytes + SHARD_HEADER_BYTES;
    view->metadata_bytes = metadata_bytes;
    view->dictionary = bytes + dictionary_begin;
    view->dictionary_bytes = dictionary_bytes;
    if (view->shard_index >= view->shard_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "header: shard %" PRIu32 " of %" PRIu32,
                             view->shard_index, view->shard_count);
    return FSH_OK;
}

/* ---- footer ---- */

void fsh_shard_store_footer(uint8_t *footer, uint64_t record_count, FshRecordForm form, uint64_t index_offset,
                            uint32_t index_crc, const FshHash128 *hash)
{
    uint64_t index_bytes = record_count * row_bytes_of(form);
    memset(footer, 0, SHARD_FOOTER_BYTES);
    memcpy(footer, footer_magic, sizeof footer_magic);
    store_le32(footer + AT_VERSION, FSH_FORMAT_VERSION);
    store_le32(footer + AT_FOOTER_BYTES, SHARD_FOOTER_BYTES);
    store_le64(footer + AT_RECORD_COUNT, record_count);
    store_le64(footer + AT_INDEX_OFFSET, index_offset);
    store_le64(footer + AT_INDEX_BYTES, index_bytes);
    store_le64(footer + AT_FILE_BYTES, align_up(index_offset + index_bytes) + SHARD_FOOTER_BYTES);
    store_le32(footer + AT_INDEX_CRC, index_crc);
    memcpy(footer + AT_HASH, hash->bytes, sizeof hash->bytes);
    store_le32(footer + AT_FOOTER_CRC, fsh_crc32c(0, footer, AT_FOOTER_CRC));
}

FshStatus fsh_shard_parse_footer(ShardView *view, bool *torn_ret, FshError *error)
{
    uint64_t length = view->file_bytes;
    *torn_ret = true;
    if (length % FSH_ALIGNMENT || length < (uint64_t)view->header_bytes + SHARD_FOOTER_BYTES ||
        memcmp(view->bytes + length - SHARD_FOOTER_BYTES, footer_magic, sizeof footer_magic) != 0)
        return fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "no footer: the shard is torn, cut short or never finished; copy it again, or save what "
            "is whole with fverify --repair OUT");
    *torn_ret = false;
    uint64_t footer_offset = length - SHARD_FOOTER_BYTES;
    const uint8_t *footer = view->bytes + footer_offset;
    uint32_t crc = fsh_crc32c(0, footer, AT_FOOTER_CRC), stored = load_le32(footer + AT_FOOTER_CRC);
    if (crc != stored)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "footer: CRC32C is %08" PRIx32 ", stored %08" PRIx32,
                             crc, stored);
    if (load_le32(footer + AT_VERSION) != FSH_FORMAT_VERSION ||
        load_le32(footer + AT_FOOTER_BYTES) != SHARD_FOOTER_BYTES ||
        !bytes_are_zero(footer + AT_FOOTER_RESERVED_1, AT_HASH - AT_FOOTER_RESERVED_1) ||
        !bytes_are_zero(footer + AT_FOOTER_RESERVED_2, AT_FOOTER_CRC - AT_FOOTER_RESERVED_2))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "footer: of a later version");
    uint64_t file_bytes = load_le64(footer + AT_FILE_BYTES);
    if (file_bytes != length)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "has %" PRIu64 " bytes, not the %" PRIu64 " its footer says", length,
                             file_bytes);
    uint64_t record_count = load_le64(footer + AT_RECORD_COUNT);
    uint64_t index_offset = load_le64(footer + AT_INDEX_OFFSET);
    uint64_t index_bytes = load_le64(footer + AT_INDEX_BYTES);
    /* Bounds first, so that the sums below cannot overflow. */
    if (record_count > UINT32_MAX || index_bytes != record_count * row_bytes_of(view->record_form) ||
        index_offset > footer_offset || index_offset < view->header_bytes || index_offset % FSH_ALIGNMENT ||
        align_up(index_offset + index_bytes) != footer_offset)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "footer: %" PRIu64 " records with an index of %" PRIu64 " bytes at %" PRIu64
                             " contradict a footer at %" PRIu64,
                             record_count, index_bytes, index_offset, footer_offset);
    uint64_t index_end = index_offset + index_bytes;
    if (!bytes_are_zero(view->bytes + index_end, (size_t)(footer_offset - index_end)))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "index: padding is not zero");
    view->record_count = record_count;
    view->index_offset = index_offset;
    view->footer_offset = footer_offset;
    view->index = view->bytes + index_offset;
    view->index_bytes = index_bytes;
    view->index_crc = load_le32(footer + AT_INDEX_CRC);
    memcpy(view->hash.bytes, footer + AT_HASH, sizeof view->hash.bytes);
    return FSH_OK;
}

/* ---- index ---- */

FshStatus fsh_shard_check_index(const ShardView *view, uint64_t class_count, uint64_t *class_counts,
                                int64_t *row_ret, FshError *error)
{
    int64_t unused_row;
    if (!row_ret)
        row_ret = &unused_row;
    *row_ret = -1;
    const bool compact = view->record_form == FSH_RECORD_COMPACT;
    const uint64_t least_bytes = compact ? COMPACT_BYTES_MIN : RECORD_BYTES_MIN,
                   unaligned = compact ? 0 : FSH_ALIGNMENT - 1;
    const size_t row_bytes = row_bytes_of(view->record_form);
    uint32_t crc = fsh_crc32c(0, view->index, (size_t)view->index_bytes);
    if (crc != view->index_crc)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "index: CRC32C is %08" PRIx32 ", stored %08" PRIx32, crc,
                             view->index_crc);
    uint64_t expected_offset = view->header_bytes;
    const uint8_t *at = view->index;
    for (uint64_t i = 0; i < view->record_count; i++, at += row_bytes) {
        IndexRow row = compact ? load_compact_row(at, expected_offset) : fsh_index_row_load(at);
        uint64_t room = view->index_offset - expected_offset; /* the row before has kept it from wrapping */
        if (row.offset != expected_offset || row.record_bytes > room || row.record_bytes < least_bytes ||
            row.record_bytes & unaligned) {
            *row_ret = (int64_t)i;
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "index row %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
                                 " do not follow the record before, which ends at %" PRIu64,
                                 i, row.record_bytes, row.offset, expected_offset);
        }
        if (!compact && load_le32(at + ROW_RESERVED)) {
            *row_ret = (int64_t)i;
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "index row %" PRIu64 ": reserved bytes are not zero: of a later version", i);
        }
        if (row.label < FSH_NO_LABEL || row.label >= (int64_t)class_count) {
            *row_ret = (int64_t)i;
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "index row %" PRIu64 ": label %" PRId64
                                 " is out of range: there are %" PRIu64 " classes",
                                 i, row.label, class_count);
        }
        if (class_counts && row.label >= 0)
            class_counts[row.label]++;
        expected_offset += row.record_bytes;
    }
    if (align_up(expected_offset) != view->index_offset)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "index: its %" PRIu64 " records end at %" PRIu64
                             ", the index begins at %" PRIu64,
                             view->record_count, expected_offset, view->index_offset);
    if (compact &&
        !bytes_are_zero(view->bytes + expected_offset, (size_t)(view->index_offset - expected_offset)))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "padding before the index is not zero");
    return FSH_OK;
}

FshStatus fsh_shard_rows(const ShardView *view, Buffer *own_rows, const uint8_t **rows_ret, FshError *error)
{
    *rows_ret = view->index;
    if (view->record_form != FSH_RECORD_COMPACT)
        return FSH_OK;
    FshStatus status = buffer_reserve(own_rows, (size_t)view->record_count * INDEX_ROW_BYTES, error);
    uint64_t offset = view->header_bytes;
    for (uint64_t i = 0; i < view->record_count && !status; i++) {
        const IndexRow row = load_compact_row(view->index + i * COMPACT_ROW_BYTES, offset);
        fsh_index_row_store(own_rows->bytes + i * INDEX_ROW_BYTES, &row);
        offset += row.record_bytes;
    }
    if (!status)
        own_rows->length = (size_t)view->record_count * INDEX_ROW_BYTES;
    *rows_ret = own_rows->bytes;
    return status;
}

uint64_t fsh_shard_count_intact(const ShardView *view)
{
    uint64_t count = 0;
    uint64_t offset = view->header_bytes;
    FshSample sample;
    RecordHead head;
    while (offset < view->file_bytes &&
           fsh_record_parse(view->bytes + offset, view->file_bytes - offset, view->record_form, &sample,
                            &head, NULL) == FSH_OK &&
           fsh_record_verify(view->bytes + offset, &sample, &head, NULL) == FSH_OK) {
        count++;
        offset += head.record_bytes;
    }
    return count;
}
