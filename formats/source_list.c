#include "formats/source_list.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "formats/xxh3.h"

enum {
    VERSION = 1,
    HEAD_BYTES = 64,
    HASH_BYTES = 16,
    ROW_HEAD_BYTES = 4,   /* key_bytes, key_place */
    ROW_FIELD_BYTES = 36, /* of each field */
    KEY_ALONE = 0xffff,   /* key_place of a key that is not part of the first path */
};

static const uint8_t magic[8] = {0x89, 'F', 'S', 'H', 'S', 'R', 'C', '\n'};

uint64_t fsh_source_hash(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

const char *fsh_sources_name(char *buffer, size_t buffer_bytes, const char *name)
{
    (void)snprintf(buffer, buffer_bytes, ".%s" FSH_SOURCES_SUFFIX, name);
    return buffer;
}

/* ---- writing ---- */

FshStatus fsh_sources_add(Buffer *rows, const SourceRecord *record, FshError *error)
{
    uint8_t bytes[ROW_HEAD_BYTES + FSH_FIELDS_MAX * ROW_FIELD_BYTES] = {0}, *at = bytes + ROW_HEAD_BYTES;
    const SourceField *first = &record->fields[0];
    const char *place =
        first->path_bytes ? memmem(first->path, first->path_bytes, record->key, record->key_bytes) : NULL;
    store_le16(bytes, (uint16_t)record->key_bytes);
    store_le16(bytes + 2, place ? (uint16_t)(place - first->path) : KEY_ALONE);
    for (unsigned i = 0; i < record->field_count; i++, at += ROW_FIELD_BYTES) {
        const SourceField *field = &record->fields[i];
        store_le64(at, field->bytes);
        store_le64(at + 8, (uint64_t)field->modified_ns);
        store_le64(at + 16, field->hash);
        store_le32(at + 24, field->width);
        store_le32(at + 28, field->height);
        at[32] = field->channels;
        store_le16(at + 34, (uint16_t)field->path_bytes);
    }
    FshStatus status = buffer_append(rows, bytes, (size_t)(at - bytes), error);
    if (!status && !place)
        status = buffer_append(rows, record->key, record->key_bytes, error);
    for (unsigned i = 0; i < record->field_count && !status; i++)
        status = buffer_append(rows, record->fields[i].path, record->fields[i].path_bytes, error);
    return status;
}

FshStatus fsh_sources_save(const char *folder, const char *name, const SourcesHead *head, const Buffer *rows,
                           FshError *error)
{
    uint8_t bytes[HEAD_BYTES] = {0};
    char hidden[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX], path[PATH_MAX];
    Buffer file = {0};
    memcpy(bytes, magic, sizeof magic);
    store_le32(bytes + 8, VERSION);
    store_le32(bytes + 12, head->field_count);
    store_le64(bytes + 16, head->record_count);
    store_le64(bytes + 24, rows->length);
    memcpy(bytes + 32, head->shard_hash.bytes, HASH_BYTES);
    store_le32(bytes + 48, (uint32_t)head->root_bytes);
    store_le32(bytes + 52, (uint32_t)head->statistics_bytes);
    FshStatus status =
        file_join(path, sizeof path, folder, fsh_sources_name(hidden, sizeof hidden, name), error);
    if (!status)
        status = buffer_reserve(
            &file, HEAD_BYTES + head->root_bytes + head->statistics_bytes + rows->length + HASH_BYTES, error);
    if (!status)
        status = buffer_append(&file, bytes, sizeof bytes, error);
    if (!status)
        status = buffer_append(&file, head->root, head->root_bytes, error);
    if (!status)
        status = buffer_append(&file, head->statistics, head->statistics_bytes, error);
    if (!status)
        status = buffer_append(&file, rows->bytes, rows->length, error);
    if (!status) {
        const FshHash128 hash = fsh_hash_bytes(file.bytes, file.length);
        status = buffer_append(&file, hash.bytes, HASH_BYTES, error);
    }
    if (!status)
        status = file_write_atomic(path, file.bytes, file.length, true, true, error);
    buffer_free(&file);
    return status;
}

/* ---- reading ---- */

static FshStatus refuse(const char *what, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s", what);
}

FshStatus fsh_sources_parse(SourcesView *view, const uint8_t *bytes, uint64_t length, FshError *error)
{
    *view = (SourcesView){0};
    if (length < HEAD_BYTES + HASH_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return refuse("is no list of sources", error);
    if (load_le32(bytes + 8) != VERSION)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "version %" PRIu32 " of the format; this program knows %d", load_le32(bytes + 8),
                             VERSION);
    const FshHash128 hash = fsh_hash_bytes(bytes, (size_t)length - HASH_BYTES);
    if (memcmp(hash.bytes, bytes + length - HASH_BYTES, HASH_BYTES) != 0)
        return refuse("its XXH3-128 is not the one at its end: bytes were changed", error);
    const uint64_t root_bytes = load_le32(bytes + 48), statistics_bytes = load_le32(bytes + 52);
    const uint64_t rows_bytes = load_le64(bytes + 24), room = length - HEAD_BYTES - HASH_BYTES;
    if (root_bytes + statistics_bytes > room || rows_bytes != room - root_bytes - statistics_bytes)
        return refuse("its lengths are not those of the file", error);
    const uint32_t field_count = load_le32(bytes + 12);
    if (field_count < 1 || field_count > FSH_FIELDS_MAX)
        return refuse("it has no fields, or too many", error);
    if (!bytes_are_zero(bytes + 56, 8))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "reserved bytes are not zero: of a later version");
    view->head = (SourcesHead){.field_count = field_count,
                               .record_count = load_le64(bytes + 16),
                               .root = (const char *)bytes + HEAD_BYTES,
                               .root_bytes = (size_t)root_bytes,
                               .statistics = (const char *)bytes + HEAD_BYTES + root_bytes,
                               .statistics_bytes = (size_t)statistics_bytes};
    memcpy(view->head.shard_hash.bytes, bytes + 32, HASH_BYTES);
    view->at = bytes + HEAD_BYTES + root_bytes + statistics_bytes;
    view->end = view->at + rows_bytes;
    /* So that nobody takes memory for records that cannot be there. */
    if (view->head.record_count > rows_bytes / (ROW_HEAD_BYTES + ROW_FIELD_BYTES * (uint64_t)field_count))
        return refuse("it has fewer rows than it says", error);
    return FSH_OK;
}

/* Takes `bytes` bytes of the rows: *text_ret. Returns false if there are not so many. */
static bool take(SourcesView *view, size_t bytes, const uint8_t **text_ret)
{
    *text_ret = view->at;
    if ((size_t)(view->end - view->at) < bytes)
        return false;
    view->at += bytes;
    return true;
}

FshStatus fsh_sources_next(SourcesView *view, SourceRecord *record, FshError *error)
{
    static const char cut[] = "a row is cut short";
    const uint8_t *head = NULL, *fields = NULL, *text = NULL;
    const unsigned field_count = view->head.field_count;
    if (view->next >= view->head.record_count || !take(view, ROW_HEAD_BYTES, &head) ||
        !take(view, (size_t)field_count * ROW_FIELD_BYTES, &fields))
        return refuse(cut, error);
    const uint16_t place = load_le16(head + 2);
    *record = (SourceRecord){.key_bytes = load_le16(head), .field_count = field_count};
    if (record->key_bytes == 0)
        return refuse("a key is empty", error);
    if (place == KEY_ALONE) {
        if (!take(view, record->key_bytes, &text))
            return refuse(cut, error);
        record->key = (const char *)text;
    }
    for (unsigned i = 0; i < field_count; i++, fields += ROW_FIELD_BYTES) {
        SourceField *field = &record->fields[i];
        *field = (SourceField){.bytes = load_le64(fields),
                               .modified_ns = (int64_t)load_le64(fields + 8),
                               .hash = load_le64(fields + 16),
                               .width = load_le32(fields + 24),
                               .height = load_le32(fields + 28),
                               .channels = fields[32],
                               .path_bytes = load_le16(fields + 34)};
        if (fields[33] || !take(view, field->path_bytes, &text))
            return refuse(cut, error);
        field->path = (const char *)text;
    }
    if (!record->key) {
        if (place + record->key_bytes > record->fields[0].path_bytes)
            return refuse("a key is no part of its path", error);
        record->key = record->fields[0].path + place;
    }
    view->next++;
    if (view->next == view->head.record_count && view->at != view->end)
        return refuse("there are more rows than it says", error);
    return FSH_OK;
}
