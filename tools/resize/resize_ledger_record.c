#include "tools/resize/resize_ledger_record.h"

#include <string.h>

#include "formats/xxh3.h"

static const char magic[LEDGER_MAGIC_BYTES + 1] = "fshldgr1";

static void store_number(uint8_t *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t load_number(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number;
}

void ledger_hash(const void *bytes, size_t length, uint8_t hash[16])
{
    const FshHash128 stored = fsh_hash_bytes(bytes, length);
    memcpy(hash, stored.bytes, sizeof stored.bytes);
}

/* ---- records ---- */

/* Fills in length and kind, then the checksum of all after it. */
static void seal_record(uint8_t *record, size_t length, LedgerKind kind)
{
    store_number(record + 8, (uint64_t)length | (uint64_t)kind << 32);
    store_number(record, XXH3_64bits(record + 8, length - 8));
}

bool ledger_record_read(const uint8_t *bytes, size_t length, LedgerRecord *record)
{
    if (length < LEDGER_RECORD_HEAD_BYTES)
        return false;
    const uint64_t head = load_number(bytes + 8);
    *record = (LedgerRecord){.kind = (LedgerKind)(head >> 32), .length = (uint32_t)head};
    const bool is_row = record->kind == LEDGER_ROW && record->length >= LEDGER_ROW_BYTES + 2 &&
                        record->length <= LEDGER_RECORD_BYTES_MAX;
    const bool is_commit = record->kind == LEDGER_COMMIT && record->length == LEDGER_COMMIT_BYTES;
    if ((!is_row && !is_commit) || record->length > length ||
        load_number(bytes) != XXH3_64bits(bytes + 8, record->length - 8))
        return false;
    if (is_commit) {
        record->begin = load_number(bytes + LEDGER_RECORD_HEAD_BYTES);
        record->tar_offset = load_number(bytes + LEDGER_RECORD_HEAD_BYTES + 8);
        return true;
    }
    record->row.source_bytes = load_number(bytes + 16);
    record->row.source_modified_ns = (int64_t)load_number(bytes + 24);
    record->row.bytes = load_number(bytes + 32);
    memcpy(record->row.hash, bytes + 40, sizeof record->row.hash);
    record->source = (const char *)bytes + LEDGER_ROW_BYTES;
    const size_t paths_bytes = record->length - LEDGER_ROW_BYTES,
                 source_bytes = strnlen(record->source, paths_bytes) + 1;
    record->target = record->source + source_bytes;
    return source_bytes < paths_bytes &&
           strnlen(record->target, paths_bytes - source_bytes) + 1 == paths_bytes - source_bytes;
}

bool ledger_record_may_be_commit(const uint8_t *bytes)
{
    return load_number(bytes + 8) == (LEDGER_COMMIT_BYTES | (uint64_t)LEDGER_COMMIT << 32);
}

size_t ledger_record_length(const uint8_t *bytes)
{
    return (uint32_t)load_number(bytes + 8);
}

const char *ledger_record_target(const uint8_t *bytes)
{
    const char *source = (const char *)bytes + LEDGER_ROW_BYTES;
    return source + strlen(source) + 1;
}

size_t ledger_record_make_row(uint8_t bytes[LEDGER_RECORD_BYTES_MAX], const char *target, const char *source,
                              const LedgerRow *row)
{
    const size_t target_bytes = strlen(target) + 1, source_bytes = strlen(source) + 1;
    const size_t length = LEDGER_ROW_BYTES + source_bytes + target_bytes;
    if (length > LEDGER_RECORD_BYTES_MAX)
        return 0;
    store_number(bytes + 16, row->source_bytes);
    store_number(bytes + 24, (uint64_t)row->source_modified_ns);
    store_number(bytes + 32, row->bytes);
    memcpy(bytes + 40, row->hash, sizeof row->hash);
    memcpy(bytes + LEDGER_ROW_BYTES, source, source_bytes);
    memcpy(bytes + LEDGER_ROW_BYTES + source_bytes, target, target_bytes);
    seal_record(bytes, length, LEDGER_ROW);
    return length;
}

void ledger_record_make_commit(uint8_t bytes[LEDGER_COMMIT_BYTES], uint64_t begin, uint64_t tar_offset)
{
    store_number(bytes + LEDGER_RECORD_HEAD_BYTES, begin);
    store_number(bytes + LEDGER_RECORD_HEAD_BYTES + 8, tar_offset);
    seal_record(bytes, LEDGER_COMMIT_BYTES, LEDGER_COMMIT);
}

/* ---- the header ---- */

void ledger_header_make(uint8_t bytes[LEDGER_HEADER_BYTES], const uint8_t recipe[LEDGER_RECIPE_BYTES],
                        uint64_t settled_end)
{
    memcpy(bytes, magic, LEDGER_MAGIC_BYTES);
    memcpy(bytes + LEDGER_MAGIC_BYTES, recipe, LEDGER_RECIPE_BYTES);
    store_number(bytes + LEDGER_HEADER_BYTES - 16, settled_end);
    store_number(bytes + LEDGER_HEADER_BYTES - 8, XXH3_64bits(bytes, LEDGER_HEADER_BYTES - 8));
}

bool ledger_header_is_ours(const uint8_t bytes[LEDGER_HEADER_BYTES])
{
    return memcmp(bytes, magic, LEDGER_MAGIC_BYTES) == 0;
}

bool ledger_header_is_whole(const uint8_t bytes[LEDGER_HEADER_BYTES])
{
    return load_number(bytes + LEDGER_HEADER_BYTES - 8) == XXH3_64bits(bytes, LEDGER_HEADER_BYTES - 8);
}

const uint8_t *ledger_header_recipe(const uint8_t bytes[LEDGER_HEADER_BYTES])
{
    return bytes + LEDGER_MAGIC_BYTES;
}

uint64_t ledger_header_settled_end(const uint8_t bytes[LEDGER_HEADER_BYTES])
{
    return load_number(bytes + LEDGER_HEADER_BYTES - 16);
}
