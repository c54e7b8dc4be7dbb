/* Compact records: numbers of seven bits a byte, the key within the source path, nothing padded. They are for
 * samples so small that the 64-byte form's header and padding would be a third of them, and whose payloads
 * are unpacked anyway. */
#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/record.h"

enum {
    AT_CRC = 4,
    AT_NUMBERS = RECORD_CRC_BEGIN,
    NUMBER_BYTES_MAX = 5, /* 32 bits */
    /* A field's byte: codec, compression, channels - 1. */
    CODEC_MASK = 15,
    COMPRESSION_SHIFT = 4,
    COMPRESSION_MASK = 3,
    CHANNELS_SHIFT = 6,
};

static const uint8_t compact_magic[4] = {'F', 'R', 'e', 'c'};

/* ---- writing ---- */

/* Returns 1 + the offset at which the source path of field 0 first has the key in it; 0: nowhere. */
static uint32_t find_key(const FshSample *sample)
{
    const FshField *first = &sample->fields[0];
    const char *found = first->source_bytes
                            ? memmem(first->source, first->source_bytes, sample->key, sample->key_bytes)
                            : NULL;
    return found ? (uint32_t)(found - first->source) + 1 : 0;
}

/* Returns label and number of fields in one number, which takes one byte where there are at most 15
 * classes. */
static uint64_t first_number(const FshSample *sample)
{
    return ((uint64_t)sample->label + 1) * FSH_FIELDS_MAX + sample->field_count - 1;
}

static uint8_t *store_number(uint8_t *at, uint32_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static size_t number_bytes(uint64_t value)
{
    size_t bytes = 1;
    for (; value >= 0x80; value >>= 7)
        bytes++;
    return bytes;
}

FshStatus fsh_compact_measure(const FshSample *sample, uint64_t *bytes_ret, FshError *error)
{
    const uint32_t key_place = find_key(sample);
    uint64_t bytes = AT_NUMBERS + number_bytes(first_number(sample)) + number_bytes(sample->key_bytes) +
                     number_bytes(key_place);
    bytes += key_place ? 0 : sample->key_bytes;
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        bytes += 1 + number_bytes(field->width) + number_bytes(field->height) + number_bytes(field->bytes) +
                 number_bytes(field->source_bytes) + field->source_bytes + field->bytes;
        if (field->compression)
            bytes += number_bytes(field->unpacked_bytes);
    }
    *bytes_ret = bytes;
    if (bytes > UINT32_MAX || first_number(sample) > UINT32_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%" PRIu64 " bytes with label %" PRId64 " are too much for a compact record",
                             bytes, sample->label);
    return FSH_OK;
}

void fsh_compact_store(const FshSample *sample, uint8_t *bytes, size_t record_bytes)
{
    const uint32_t key_place = find_key(sample);
    uint8_t *at = bytes + AT_NUMBERS;
    memcpy(bytes, compact_magic, sizeof compact_magic);
    at = store_number(at, (uint32_t)first_number(sample));
    at = store_number(at, (uint32_t)sample->key_bytes);
    at = store_number(at, key_place);
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        *at++ = (uint8_t)((unsigned)field->codec | (unsigned)field->compression << COMPRESSION_SHIFT |
                          (field->channels - 1U) << CHANNELS_SHIFT);
        at = store_number(at, field->width);
        at = store_number(at, field->height);
        at = store_number(at, (uint32_t)field->bytes);
        if (field->compression)
            at = store_number(at, (uint32_t)field->unpacked_bytes);
        at = store_number(at, (uint32_t)field->source_bytes);
    }
    if (!key_place) {
        memcpy(at, sample->key, sample->key_bytes);
        at += sample->key_bytes;
    }
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        if (field->source_bytes)
            memcpy(at, field->source, field->source_bytes);
        at += field->source_bytes;
    }
    for (unsigned i = 0; i < sample->field_count; i++) {
        const FshField *field = &sample->fields[i];
        memcpy(at, field->data, field->bytes);
        at += field->bytes;
    }
    store_le32(bytes + AT_CRC, fsh_crc32c(0, bytes + RECORD_CRC_BEGIN, record_bytes - RECORD_CRC_BEGIN));
}

/* ---- reading ---- */

/* What is left to read. A number that is not whole, not in its shortest form or above 32 bits makes it bad,
 * for good. */
typedef struct Cursor {
    const uint8_t *at, *end;
    bool bad;
} Cursor;

static uint8_t take_byte(Cursor *cursor)
{
    if (cursor->at == cursor->end) {
        cursor->bad = true;
        return 0;
    }
    return *cursor->at++;
}

static uint32_t take_number(Cursor *cursor)
{
    uint64_t value = 0;
    uint8_t byte = take_byte(cursor);
    if (byte < 0x80) /* nearly all of them */
        return byte;
    value = byte & 0x7F;
    for (unsigned i = 1; i < NUMBER_BYTES_MAX; i++) {
        byte = take_byte(cursor);
        value |= (uint64_t)(byte & 0x7F) << 7 * i;
        if (byte < 0x80) {
            cursor->bad |= byte == 0 || value > UINT32_MAX;
            return (uint32_t)value;
        }
    }
    cursor->bad = true;
    return 0;
}

static FshStatus parse_field(Cursor *cursor, unsigned index, FshField *field, FshError *error)
{
    const unsigned kind = take_byte(cursor);
    const unsigned compression = kind >> COMPRESSION_SHIFT & COMPRESSION_MASK;
    field->codec = (FshCodec)(kind & CODEC_MASK);
    field->compression = (FshCompression)compression;
    field->channels = (uint8_t)((kind >> CHANNELS_SHIFT) + 1);
    field->width = take_number(cursor);
    field->height = take_number(cursor);
    field->bytes = take_number(cursor);
    field->unpacked_bytes = compression ? take_number(cursor) : field->bytes;
    field->source_bytes = take_number(cursor);
    if (cursor->bad)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: its numbers are damaged", index);
    if (compression > FSH_COMPRESSION_ZSTD)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "field %u: compression %u of a later version", index,
                             compression);
    if (field->bytes == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u is empty", index);
    if (compression && (field->unpacked_bytes < 1 || field->unpacked_bytes > FSH_UNPACKED_BYTES_MAX))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: %zu bytes unpacked", index,
                             field->unpacked_bytes);
    if (field->source_bytes > UINT16_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field %u: source path of %zu bytes", index,
                             field->source_bytes);
    return fsh_field_check_codec(field, index, error);
}

FshStatus fsh_compact_parse(const uint8_t *bytes, uint64_t available, FshSample *sample, RecordHead *head,
                            FshError *error)
{
    if (available < COMPACT_BYTES_MIN)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%" PRIu64 " bytes are too few for a record", available);
    if (memcmp(bytes, compact_magic, sizeof compact_magic) != 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "is no compact record: magic %02x%02x%02x%02x", bytes[0],
                             bytes[1], bytes[2], bytes[3]);
    Cursor cursor = {.at = bytes + AT_NUMBERS, .end = bytes + available};
    const uint32_t first = take_number(&cursor), key_bytes = take_number(&cursor),
                   key_place = take_number(&cursor);
    const unsigned field_count = first % FSH_FIELDS_MAX + 1;
    if (cursor.bad)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its numbers are damaged");
    if (key_bytes < 1 || key_bytes > UINT16_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "key of %" PRIu32 " bytes", key_bytes);
    /* All of them below 2^32, of which there are few: nothing overflows. */
    uint64_t text_bytes = key_place ? 0 : key_bytes, payload_bytes = 0;
    for (unsigned i = 0; i < field_count; i++) {
        FshStatus status = parse_field(&cursor, i, &sample->fields[i], error);
        if (status)
            return status;
        text_bytes += sample->fields[i].source_bytes;
        payload_bytes += sample->fields[i].bytes;
    }
    if (key_place && (uint64_t)key_place - 1 + key_bytes > sample->fields[0].source_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "key of %" PRIu32 " bytes at %" PRIu32 " of a path of %zu", key_bytes,
                             key_place - 1, sample->fields[0].source_bytes);
    const uint64_t record_bytes = (uint64_t)(cursor.at - bytes) + text_bytes + payload_bytes;
    if (record_bytes > available || record_bytes > UINT32_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "its parts take %" PRIu64 " bytes, with %" PRIu64 " there", record_bytes,
                             available);
    const char *text = (const char *)cursor.at;
    const uint8_t *payload = cursor.at + text_bytes;
    sample->label = (int64_t)(first / FSH_FIELDS_MAX) - 1;
    sample->field_count = field_count;
    sample->key = key_place ? text + key_place - 1 : text;
    sample->key_bytes = key_bytes;
    text += key_place ? 0 : key_bytes;
    for (unsigned i = 0; i < field_count; i++) {
        FshField *field = &sample->fields[i];
        field->source = text;
        field->data = payload;
        text += field->source_bytes;
        payload += field->bytes;
    }
    *head = (RecordHead){.record_bytes = record_bytes,
                         .label = sample->label,
                         .crc = load_le32(bytes + AT_CRC),
                         .form = FSH_RECORD_COMPACT};
    return FSH_OK;
}

bool fsh_compact_has_key_in_place(const FshSample *sample)
{
    const uint32_t place = find_key(sample);
    return !place || sample->key == sample->fields[0].source + place - 1;
}

const uint8_t *fsh_compact_find(const uint8_t *bytes, uint64_t length)
{
    /* A piece at a time: a sanitizer's memmem looks at all it is given, however near the place is that it
     * finds. */
    enum { PIECE_BYTES = 4096 };
    const uint8_t *found = NULL;
    for (uint64_t at = 0; at < length && !found; at += PIECE_BYTES) {
        const uint64_t left = length - at, most = PIECE_BYTES + sizeof compact_magic - 1;
        found = memmem(bytes + at, (size_t)(left < most ? left : most), compact_magic, sizeof compact_magic);
    }
    return found;
}
