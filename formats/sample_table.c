#include "formats/sample_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/mapped_pages.h"
#include "formats/json_scan.h"
#include "formats/media.h"
#include "formats/names.h"

/* ---- the table ---- */

SampleRow *fsh_table_row(const SampleTable *table, uint64_t sample)
{
    return (SampleRow *)(void *)table->samples.bytes + sample;
}

FieldRow *fsh_table_fields(const SampleTable *table, uint64_t sample)
{
    return (FieldRow *)(void *)table->fields.bytes + sample * table->field_count;
}

FshStatus fsh_table_add(SampleTable *table, const char *key, size_t key_bytes, FshError *error)
{
    if (key_bytes < 1 || key_bytes > UINT16_MAX || memchr(key, 0, key_bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "a key of %zu bytes, or with a zero byte", key_bytes);
    SampleRow row = {.text_at = table->text.length, .label = FSH_NO_LABEL, .key_bytes = (uint16_t)key_bytes};
    static const FieldRow none[FSH_FIELDS_MAX];
    FshStatus status = buffer_append(&table->text, key, key_bytes, error);
    if (!status)
        status = buffer_append(&table->samples, &row, sizeof row, error);
    if (!status)
        status = buffer_append(&table->fields, none, table->field_count * sizeof *none, error);
    if (!status)
        table->sample_count++;
    return status;
}

FshStatus fsh_table_name_field(SampleTable *table, const char *name, size_t bytes, FshError *error)
{
    if (table->field_count == FSH_FIELDS_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "more than %d images", FSH_FIELDS_MAX);
    char *copy = text_copy(name, bytes);
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    const char *const names[] = {copy};
    FshStatus status = fsh_names_check("images", names, 1, NULL);
    if (status == FSH_OK)
        table->field_names[table->field_count++] = copy;
    else if (status == FSH_ERR_MEMORY)
        (void)fsh_error_set(error, status, "out of memory");
    else
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "has an image \"%s\", a name that is empty or not UTF-8: rename it", copy);
    if (status)
        free(copy);
    return status;
}

FshStatus fsh_table_name_fields(SampleTable *table, const char *const *names, size_t count, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = fsh_table_name_field(table, names[i], strlen(names[i]), error);
    }
    return status;
}

FshStatus fsh_table_label(SampleTable *table, uint64_t sample, int64_t label, FshError *error)
{
    if (label < FSH_NO_LABEL)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "label %" PRId64, label);
    if (label >= FOREIGN_CLASSES_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "label %" PRId64 "; labels below %d are possible",
                             label, FOREIGN_CLASSES_MAX);
    fsh_table_row(table, sample)->label = (int32_t)label;
    if (label > table->label_max)
        table->label_max = (int32_t)label;
    return FSH_OK;
}

void fsh_table_free(SampleTable *table)
{
    for (unsigned i = 0; i < table->field_count; i++) {
        free(table->field_names[i]);
    }
    for (size_t i = 0; i < table->class_name_count; i++) {
        free(table->class_names[i]);
    }
    free(table->class_names);
    buffer_free(&table->samples);
    buffer_free(&table->fields);
    buffer_free(&table->text);
    *table = (SampleTable){0};
}

/* ---- notes: the .json that fshard writes beside its images in a tar ---- */

typedef struct Note {
    JsonSlice source, crc, codec;
    int64_t width, height, channels; /* 0: not told */
} Note;

static void read_count(const JsonSlice *value, int64_t most, int64_t *count_ret)
{
    int64_t count = 0;
    if (fsh_json_slice_integer(value, &count) && count >= 0 && count <= most)
        *count_ret = count;
}

/* Reads a note of ours. Returns true where the object says all that such a note does. */
static bool read_note(const char *text, size_t bytes, Note *note)
{
    JsonScan scan = fsh_json_scan(text, bytes);
    JsonSlice name, value;
    *note = (Note){0};
    while (fsh_json_scan_next(&scan, &name, &value)) {
        if (fsh_json_slice_is(&name, "width"))
            read_count(&value, UINT32_MAX, &note->width);
        else if (fsh_json_slice_is(&name, "height"))
            read_count(&value, UINT32_MAX, &note->height);
        else if (fsh_json_slice_is(&name, "channels"))
            read_count(&value, FSH_CHANNELS_MAX, &note->channels);
        else if (fsh_json_slice_is(&name, "source") && value.kind == JSON_SCAN_TEXT)
            note->source = value;
        else if (fsh_json_slice_is(&name, "crc32c") && value.kind == JSON_SCAN_TEXT)
            note->crc = value;
        else if (fsh_json_slice_is(&name, "codec") && value.kind == JSON_SCAN_TEXT)
            note->codec = value;
    }
    return note->crc.bytes == 8;
}

/* Returns whether a member's name, with its escapes, is `expected`. */
static bool name_is(const JsonSlice *name, const char *expected)
{
    size_t bytes = 0;
    if (!name->escaped)
        return fsh_json_slice_is(name, expected);
    char *plain = malloc(name->bytes + 1);
    bool equal = plain && fsh_json_slice_unescape(name, plain, &bytes) && bytes == strlen(expected) &&
                 memcmp(plain, expected, bytes) == 0;
    free(plain);
    return equal;
}

bool fsh_note_object(const char *text, size_t bytes, const char *field_name, JsonSlice *object_ret)
{
    JsonScan scan = fsh_json_scan(text, bytes);
    JsonSlice name, value;
    bool ours = false, has_fields = false, found = false;
    while (fsh_json_scan_next(&scan, &name, &value)) {
        ours |= fsh_json_slice_is(&name, "fshard");
        if (!fsh_json_slice_is(&name, "fields") || value.kind != JSON_SCAN_OBJECT)
            continue;
        has_fields = true;
        JsonScan fields = fsh_json_scan(value.text, value.bytes);
        JsonSlice field, object;
        while (fsh_json_scan_next(&fields, &field, &object)) {
            if (object.kind == JSON_SCAN_OBJECT && name_is(&field, field_name)) {
                *object_ret = object;
                found = true;
            }
        }
    }
    if (!has_fields) {
        *object_ret = (JsonSlice){.kind = JSON_SCAN_OBJECT, .text = text, .bytes = bytes};
        found = true;
    }
    return ours && found;
}

/* Reads what the sample's note says of a field. Returns false where there is none. */
static bool find_note(const SampleTable *table, const FileMapping *side, const SampleRow *row, unsigned field,
                      Note *note)
{
    JsonSlice object;
    *note = (Note){0};
    if (!row->note_bytes)
        return false;
    const char *text = (const char *)side->bytes + row->note_at;
    mapped_pages_note(text, row->note_bytes);
    return fsh_note_object(text, row->note_bytes, table->field_names[field], &object) &&
           read_note(object.text, object.bytes, note);
}

/* ---- reading ---- */

static FshStatus set_field(const SampleTable *table, const FileMapping *side, const SampleRow *row,
                           const FieldRow *stored, unsigned index, FshField *field, FshError *error)
{
    NpyArray array;
    Note note;
    const uint8_t *bytes = side->bytes + stored->offset;
    mapped_pages_note(bytes, stored->bytes);
    if (stored->bytes == 0)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "field \"%s\" is empty", table->field_names[index]);
    *field = (FshField){.data = bytes,
                        .bytes = (size_t)stored->bytes,
                        .width = stored->width,
                        .height = stored->height,
                        .channels = stored->channels,
                        .codec = fsh_codec_sniff(bytes, (size_t)stored->bytes)};
    if (find_note(table, side, row, index, &note)) {
        field->width = (uint32_t)note.width;
        field->height = (uint32_t)note.height;
        field->channels = (uint8_t)note.channels;
        for (unsigned codec = FSH_CODEC_JPEG; codec <= FSH_CODEC_OTHER; codec++) {
            if (fsh_codec_known(codec) && fsh_json_slice_is(&note.codec, fsh_codec_name((FshCodec)codec)))
                field->codec = (FshCodec)codec;
        }
        if (!note.source.escaped && note.source.bytes <= UINT16_MAX) {
            field->source = note.source.text;
            field->source_bytes = note.source.bytes;
        }
    }
    if (fsh_npy_parse(bytes, (size_t)stored->bytes, &array)) {
        field->data = bytes + array.data_at;
        field->bytes -= array.data_at;
        field->width = array.width;
        field->height = array.height;
        field->channels = array.channels;
        field->codec = FSH_CODEC_RAW;
    }
    field->unpacked_bytes = field->bytes;
    return FSH_OK;
}

FshStatus fsh_table_sample(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           FshSample *sample, FshError *error)
{
    const SampleRow *row = fsh_table_row(table, record);
    const FieldRow *fields = fsh_table_fields(table, record);
    const uint8_t *text = table->text.bytes + row->text_at;
    FshStatus status = FSH_OK;
    sample->label = row->label;
    sample->key = (const char *)text;
    sample->key_bytes = row->key_bytes;
    sample->field_count = table->field_count;
    text += row->key_bytes;
    for (unsigned i = 0; i < table->field_count && !status; i++) {
        FshField *field = &sample->fields[i];
        status = set_field(table, sides[i], row, &fields[i], i, field, error);
        if (row->with_sources && !status) {
            field->source_bytes = load_le16(text);
            field->source = (const char *)text + 2;
            text += 2 + field->source_bytes;
        }
    }
    return status;
}

FshStatus fsh_table_verify(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           bool must, FshError *error)
{
    const SampleRow *row = fsh_table_row(table, record);
    const FieldRow *fields = fsh_table_fields(table, record);
    for (unsigned i = 0; i < table->field_count; i++) {
        static const char digits[] = "0123456789abcdef";
        Note note;
        if (!find_note(table, sides[i], row, i, &note)) {
            if (must)
                return fsh_error_set(error, FSH_ERR_CORRUPT,
                                     "field \"%s\": no .json beside it tells its CRC32C, as fpack's do",
                                     table->field_names[i]);
            continue;
        }
        uint32_t crc = fsh_crc32c(0, sides[i]->bytes + fields[i].offset, (size_t)fields[i].bytes);
        char computed[9] = {0};
        for (int digit = 0; digit < 8; digit++) {
            computed[digit] = digits[crc >> (28 - 4 * digit) & 15];
        }
        if (memcmp(computed, note.crc.text, 8) != 0)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "field \"%s\": CRC32C is %s, its .json says %.8s",
                                 table->field_names[i], computed, note.crc.text);
    }
    return FSH_OK;
}
