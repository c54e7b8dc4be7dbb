#include "formats/record.h"

#include "formats/metadata.h"
#include "formats/names.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/mapped_pages.h"

/* Offsets in the header and in a field row; fshard(5). */
enum {
    AT_CRC = 4,
    AT_RECORD_BYTES = 8,
    AT_LABEL = 16,
    AT_HEADER_BYTES = 24,
    AT_KEY_BYTES = 28,
    AT_FIELD_COUNT = 30,
    AT_RESERVED = 31,
    AT_UNPACKED = 32, /* u32 for each of FSH_FIELDS_MAX fields */
    ROW_OFFSET = 0,
    ROW_BYTES = 8,
    ROW_WIDTH = 16,
    ROW_HEIGHT = 20,
    ROW_CHANNELS = 24,
    ROW_CODEC = 25,
    ROW_COMPRESSION = 26,
    ROW_RESERVED_8 = 27,
    ROW_SOURCE_BYTES = 28,
    ROW_RESERVED_16 = 30,
};

static const uint8_t record_magic[4] = {'F', 'R', 'E', 'C'};

/* ---- writing ---- */

/* Returns whether width * height * channels is bytes. */
static bool is_raw_size(uint32_t width, uint32_t height, uint8_t channels, uint64_t bytes)
{
    uint64_t pixels = (uint64_t)width * height; /* cannot overflow */
    uint64_t product;
    return !__builtin_mul_overflow(pixels, (uint64_t)channels, &product) && product == bytes;
}

static FshStatus check_compression(const FshField *field, unsigned index, FshError *error)
{
    if (field->compression != FSH_COMPRESSION_NONE && field->compression != FSH_COMPRESSION_ZSTD)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: compression %d is unknown", index,
                             (int)field->compression);
    if (field->compression == FSH_COMPRESSION_NONE && field->unpacked_bytes &&
        field->unpacked_bytes != field->bytes)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "field %u: %zu bytes that are not compressed, and %zu unpacked", index,
                             field->bytes, field->unpacked_bytes);
    if (field->compression == FSH_COMPRESSION_ZSTD &&
        (field->unpacked_bytes < 1 || field->unpacked_bytes > FSH_UNPACKED_BYTES_MAX))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: %zu bytes unpacked; 1 to %d are possible",
                             index, field->unpacked_bytes, FSH_UNPACKED_BYTES_MAX);
    return FSH_OK;
}

static FshStatus check_field(const FshField *field, unsigned index, FshError *error)
{
    if (!field->data || field->bytes == 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u is empty", index);
    if (field->channels < 1 || field->channels > FSH_CHANNELS_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: %u channels; 1 to %d are possible", index,
                             field->channels, FSH_CHANNELS_MAX);
    if (!fsh_codec_known((unsigned)field->codec))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: codec %d is unknown", index,
                             (int)field->codec);
    FshStatus status = check_compression(field, index, error);
    if (status)
        return status;
    size_t raw_bytes = field->compression ? field->unpacked_bytes : field->bytes;
    if (field->codec == FSH_CODEC_RAW &&
        !is_raw_size(field->width, field->height, field->channels, raw_bytes))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "field %u: %zu bytes are not %" PRIu32 " x %" PRIu32 " x %u", index, raw_bytes,
                             field->width, field->height, field->channels);
    if (field->source_bytes > UINT16_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "field %u: source path of %zu bytes; at most %d are possible", index,
                             field->source_bytes, UINT16_MAX);
    if (field->source_bytes && memchr(field->source, 0, field->source_bytes))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: source path with a zero byte", index);
    return FSH_OK;
}

/* Checks what must hold for a sample to have a record of either form. */
static FshStatus check_sample(const FshSample *sample, FshError *error)
{
    if (sample->field_count < 1 || sample->field_count > FSH_FIELDS_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%u fields; 1 to %d are possible", sample->field_count,
                             FSH_FIELDS_MAX);
    if (sample->key_bytes < 1 || sample->key_bytes > UINT16_MAX || memchr(sample->key, 0, sample->key_bytes))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "key of %zu bytes: 1 to %d without a zero byte are possible", sample->key_bytes,
                             UINT16_MAX);
    if (sample->label < FSH_NO_LABEL)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "label %" PRId64 " is out of range", sample->label);
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        FshStatus status = check_field(field, i, error);
        if (status)
            return status;
        /* Each below the limit before they are added, so that nothing overflows. */
        if (field->bytes >= RECORD_BYTES_MAX)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "field %u: %zu bytes are too many", i,
                                 field->bytes);
    }
    return FSH_OK;
}

/* Returns the bytes of an aligned record's header. */
static uint64_t header_bytes_of(const FshSample *sample)
{
    uint64_t bytes =
        RECORD_HEADER_BYTES + (uint64_t)sample->field_count * FIELD_ROW_BYTES + sample->key_bytes;
    for (unsigned i = 0; i < sample->field_count; i++)
        bytes += sample->fields[i].source_bytes;
    return align_up(bytes);
}

size_t fsh_record_payload_offset(const FshSample *sample, unsigned index)
{
    uint64_t offset = header_bytes_of(sample);
    for (unsigned i = 0; i < index; i++)
        offset += align_up(sample->fields[i].bytes);
    return (size_t)offset;
}

/* Computes how long a sample's record is: *record_bytes_ret. */
static FshStatus measure(const FshSample *sample, FshRecordForm form, uint64_t *record_bytes_ret,
                         FshError *error)
{
    FshStatus status = check_sample(sample, error);
    if (status || form == FSH_RECORD_COMPACT)
        return status ? status : fsh_compact_measure(sample, record_bytes_ret, error);
    uint64_t record_bytes = header_bytes_of(sample);
    for (unsigned i = 0; i < sample->field_count; i++)
        record_bytes += align_up(sample->fields[i].bytes);
    *record_bytes_ret = record_bytes;
    if (record_bytes >= RECORD_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "record of %" PRIu64 " bytes is too large",
                             record_bytes);
    return FSH_OK;
}

size_t fsh_record_bytes(const FshSample *sample, FshRecordForm form)
{
    uint64_t record_bytes = 0;
    return measure(sample, form, &record_bytes, NULL) ? 0 : (size_t)record_bytes;
}

static void store_aligned(const FshSample *sample, uint8_t *bytes, size_t record_bytes)
{
    const uint64_t header_bytes = header_bytes_of(sample);
    memset(bytes, 0, (size_t)header_bytes);
    memcpy(bytes, record_magic, sizeof record_magic);
    store_le64(bytes + AT_RECORD_BYTES, record_bytes);
    store_le64(bytes + AT_LABEL, (uint64_t)sample->label);
    store_le32(bytes + AT_HEADER_BYTES, (uint32_t)header_bytes);
    store_le16(bytes + AT_KEY_BYTES, (uint16_t)sample->key_bytes);
    bytes[AT_FIELD_COUNT] = (uint8_t)sample->field_count;
    uint8_t *row = bytes + RECORD_HEADER_BYTES;
    uint8_t *text = row + (size_t)sample->field_count * FIELD_ROW_BYTES;
    memcpy(text, sample->key, sample->key_bytes);
    text += sample->key_bytes;
    uint64_t offset = header_bytes;
    for (unsigned i = 0; i < sample->field_count; i++, row += FIELD_ROW_BYTES) {
        const FshField *field = &sample->fields[i];
        store_le64(row + ROW_OFFSET, offset);
        store_le64(row + ROW_BYTES, field->bytes);
        store_le32(row + ROW_WIDTH, field->width);
        store_le32(row + ROW_HEIGHT, field->height);
        row[ROW_CHANNELS] = field->channels;
        row[ROW_CODEC] = (uint8_t)field->codec;
        row[ROW_COMPRESSION] = (uint8_t)field->compression;
        if (field->compression)
            store_le32(bytes + AT_UNPACKED + 4 * (size_t)i, (uint32_t)field->unpacked_bytes);
        store_le16(row + ROW_SOURCE_BYTES, (uint16_t)field->source_bytes);
        if (field->source_bytes)
            memcpy(text, field->source, field->source_bytes);
        text += field->source_bytes;
        uint64_t padded = align_up(field->bytes);
        if (field->data != bytes + offset)
            memcpy(bytes + offset, field->data, field->bytes);
        memset(bytes + offset + field->bytes, 0, (size_t)(padded - field->bytes));
        offset += padded;
    }
    store_le32(bytes + AT_CRC, fsh_crc32c(0, bytes + AT_RECORD_BYTES, record_bytes - AT_RECORD_BYTES));
}

FshStatus fsh_record_build(const FshSample *sample, FshRecordForm form, void *record, size_t record_bytes,
                           FshError *error)
{
    uint64_t bytes_needed = 0;
    FshStatus status = measure(sample, form, &bytes_needed, error);
    if (status)
        return status;
    if (record_bytes != bytes_needed)
        return fsh_error_set(error, FSH_ERR_USAGE, "record buffer of %zu bytes, not the %" PRIu64 " it takes",
                             record_bytes, bytes_needed);
    if (form == FSH_RECORD_COMPACT)
        fsh_compact_store(sample, record, record_bytes);
    else
        store_aligned(sample, record, record_bytes);
    return FSH_OK;
}

/* ---- reading ---- */

FshStatus fsh_field_check_codec(const FshField *field, unsigned index, FshError *error)
{
    if (field->channels < 1 || field->channels > FSH_CHANNELS_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: %u channels", index, field->channels);
    if (!fsh_codec_known((unsigned)field->codec))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "field %u: codec %d is unknown to this version",
                             index, (int)field->codec);
    if (field->codec == FSH_CODEC_RAW &&
        !is_raw_size(field->width, field->height, field->channels, field->unpacked_bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "field %u: %zu bytes are not %" PRIu32 " x %" PRIu32 " x %u", index,
                             field->unpacked_bytes, field->width, field->height, field->channels);
    return FSH_OK;
}

/* Reads one field row. *next_payload is where its payload must begin, and is moved past it. */
static FshStatus parse_row(const uint8_t *bytes, const uint8_t *row, unsigned index, uint64_t record_bytes,
                           uint64_t *next_payload, FshField *field, FshError *error)
{
    uint64_t offset = load_le64(row + ROW_OFFSET), payload_bytes = load_le64(row + ROW_BYTES);
    uint32_t unpacked_bytes = load_le32(bytes + AT_UNPACKED + 4 * (size_t)index);
    unsigned compression = row[ROW_COMPRESSION];
    if (compression > FSH_COMPRESSION_ZSTD || row[ROW_RESERVED_8] || load_le16(row + ROW_RESERVED_16))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "field %u: compression %u or reserved bytes of a later version", index,
                             compression);
    if (offset != *next_payload)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: payload at %" PRIu64 ", not at %" PRIu64,
                             index, offset, *next_payload);
    /* offset <= record_bytes holds: it is the end of the payload before. */
    if (payload_bytes == 0 || payload_bytes > record_bytes - offset)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: %" PRIu64 " bytes in a record of %" PRIu64,
                             index, payload_bytes, record_bytes);
    if (compression == FSH_COMPRESSION_NONE ? unpacked_bytes != 0
                                            : unpacked_bytes < 1 || unpacked_bytes > FSH_UNPACKED_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "field %u: %" PRIu32 " bytes unpacked, with compression %u", index,
                             unpacked_bytes, compression);
    *field = (FshField){
        .data = bytes + offset,
        .bytes = (size_t)payload_bytes,
        .unpacked_bytes = compression ? unpacked_bytes : (size_t)payload_bytes,
        .compression = (FshCompression)compression,
        .width = load_le32(row + ROW_WIDTH),
        .height = load_le32(row + ROW_HEIGHT),
        .channels = row[ROW_CHANNELS],
        .codec = (FshCodec)row[ROW_CODEC],
        .source_bytes = load_le16(row + ROW_SOURCE_BYTES),
    };
    *next_payload =
        align_up(offset + payload_bytes); /* both are multiples of 64 or below record_bytes, which is one */
    return fsh_field_check_codec(field, index, error);
}

/* Returns whether a field from field_count on has a length. All eight are looked at, whatever field_count is:
 * that is a handful of instructions, while a loop of unknown length halves the speed of reading small
 * records. */
static bool has_unpacked_behind(const uint8_t *bytes, unsigned field_count)
{
    uint32_t any = 0;
    for (unsigned i = 0; i < FSH_FIELDS_MAX; i++) {
        any |= i < field_count ? 0 : load_le32(bytes + AT_UNPACKED + 4 * (size_t)i);
    }
    return any != 0;
}

static FshStatus parse_aligned(const uint8_t *bytes, uint64_t available, FshSample *sample, RecordHead *head,
                               FshError *error)
{
    if (available < RECORD_BYTES_MIN)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%" PRIu64 " bytes are too few for a record", available);
    if (memcmp(bytes, record_magic, sizeof record_magic) != 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is no record: magic %02x%02x%02x%02x", bytes[0],
                             bytes[1], bytes[2], bytes[3]);
    uint64_t record_bytes = load_le64(bytes + AT_RECORD_BYTES);
    uint32_t header_bytes = load_le32(bytes + AT_HEADER_BYTES);
    int64_t label = (int64_t)load_le64(bytes + AT_LABEL);
    size_t key_bytes = load_le16(bytes + AT_KEY_BYTES);
    unsigned field_count = bytes[AT_FIELD_COUNT];
    if (record_bytes < RECORD_BYTES_MIN || record_bytes > available || record_bytes >= RECORD_BYTES_MAX ||
        record_bytes % FSH_ALIGNMENT)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "record_bytes is %" PRIu64 ", with %" PRIu64 " bytes there", record_bytes,
                             available);
    if (field_count < 1 || field_count > FSH_FIELDS_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field_count is %u", field_count);
    if (label < FSH_NO_LABEL)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "label is %" PRId64, label);
    if (key_bytes == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "key is empty");
    if (bytes[AT_RESERVED] || has_unpacked_behind(bytes, field_count))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "reserved bytes are not zero: of a later version");
    uint64_t text_offset = RECORD_HEADER_BYTES + (uint64_t)field_count * FIELD_ROW_BYTES;
    if (header_bytes > record_bytes || header_bytes % FSH_ALIGNMENT || text_offset + key_bytes > header_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "header_bytes is %" PRIu32, header_bytes);

    sample->label = label;
    sample->field_count = field_count;
    sample->key = (const char *)bytes + text_offset;
    sample->key_bytes = key_bytes;
    text_offset += key_bytes;
    uint64_t next_payload = header_bytes;
    for (unsigned i = 0; i < field_count; i++) {
        FshField *field = &sample->fields[i];
        FshStatus status = parse_row(bytes, bytes + RECORD_HEADER_BYTES + (size_t)i * FIELD_ROW_BYTES, i,
                                     record_bytes, &next_payload, field, error);
        if (status)
            return status;
        field->source = (const char *)bytes + text_offset;
        text_offset += field->source_bytes;
        if (text_offset > header_bytes)
            break;
    }
    if (align_up(text_offset) != header_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "header_bytes is %" PRIu32 ", its parts take %" PRIu64,
                             header_bytes, align_up(text_offset));
    if (next_payload != record_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "record_bytes is %" PRIu64 ", its parts take %" PRIu64,
                             record_bytes, next_payload);
    *head = (RecordHead){.record_bytes = record_bytes,
                         .label = label,
                         .crc = load_le32(bytes + AT_CRC),
                         .form = FSH_RECORD_ALIGNED};
    return FSH_OK;
}

FshStatus fsh_record_parse(const uint8_t *bytes, uint64_t available, FshRecordForm form, FshSample *sample,
                           RecordHead *head, FshError *error)
{
    mapped_pages_note(bytes, available);
    return form == FSH_RECORD_COMPACT ? fsh_compact_parse(bytes, available, sample, head, error)
                                      : parse_aligned(bytes, available, sample, head, error);
}

uint32_t fsh_record_crc(const uint8_t *bytes)
{
    mapped_pages_note(bytes, COMPACT_BYTES_MIN);
    return load_le32(bytes + AT_CRC);
}

int64_t fsh_record_label(const uint8_t *bytes)
{
    mapped_pages_note(bytes, RECORD_BYTES_MIN);
    return (int64_t)load_le64(bytes + AT_LABEL);
}

/* Returns whether nothing stands in a record that nobody would see: no zero byte in key or sources, zeros as
 * padding or, in a compact record, the key where a writer puts it. The texts follow each other, and the look
 * ends at the first zero byte: so nobody can make it long where records overlap. */
static bool has_clean_texts(const FshSample *sample, FshRecordForm form)
{
    const FshField *last = &sample->fields[sample->field_count - 1];
    const char *text_end = last->source + last->source_bytes;
    const char *payload = (const char *)sample->fields[0].data;
    if (memchr(sample->key, 0, sample->key_bytes))
        return false;
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        if (field->source_bytes && memchr(field->source, 0, field->source_bytes))
            return false;
    }
    if (form == FSH_RECORD_COMPACT)
        return fsh_compact_has_key_in_place(sample);
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        const uint8_t *end = (const uint8_t *)field->data + field->bytes;
        if (!bytes_are_zero(end, (size_t)(align_up(field->bytes) - field->bytes)))
            return false;
    }
    return bytes_are_zero((const uint8_t *)text_end, (size_t)(payload - text_end));
}

FshStatus fsh_record_verify_crc(const FshSample *sample, const RecordHead *head, uint32_t crc,
                                FshError *error)
{
    if (crc != head->crc)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "CRC32C is %08" PRIx32 ", stored %08" PRIx32, crc,
                             head->crc);
    if (!has_clean_texts(sample, head->form))
        return fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "padding is not zero, a path has a zero byte, or the key is not where it should be");
    return FSH_OK;
}

FshStatus fsh_record_verify(const uint8_t *bytes, const FshSample *sample, const RecordHead *head,
                            FshError *error)
{
    uint32_t crc = fsh_crc32c(0, bytes + RECORD_CRC_BEGIN, (size_t)head->record_bytes - RECORD_CRC_BEGIN);
    return fsh_record_verify_crc(sample, head, crc, error);
}

FshStatus fsh_record_fits(const FshSample *sample, const Metadata *metadata, FshError *error)
{
    if (sample->field_count != metadata->field_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%u fields in a dataset of %zu", sample->field_count,
                             metadata->field_count);
    if (metadata->kind != FSH_KIND_CLASSES && sample->label != FSH_NO_LABEL)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "label %" PRId64 " in a dataset of %s", sample->label,
                             fsh_kind_name(metadata->kind));
    if (metadata->kind == FSH_KIND_CLASSES && sample->label >= (int64_t)metadata->class_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "label %" PRId64 " is out of range: there are %zu classes", sample->label,
                             metadata->class_count);
    return FSH_OK;
}
