#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "formats/json_scan.h"
#include "trainer/data/label_internal.h"

/* What a line of JSON lines says. */
typedef struct JsonLine {
    JsonSlice key;
    bool has_key, has_labels;
} JsonLine;

static bool is_label_name(const LabelReader *reader, const JsonSlice *name)
{
    static const char *const names[] = {"label", "labels", "class", "classes", "target", "targets"};
    if (reader->options->columns)
        return label_columns_name(reader->options->columns, (LabelText){(char *)name->text, name->bytes});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fsh_json_slice_is(name, names[i]))
            return true;
    return false;
}

static bool is_target_name(const JsonSlice *name)
{
    return fsh_json_slice_is(name, "target") || fsh_json_slice_is(name, "targets");
}

/* Resolves escapes in place, within the file's text. */
static FshStatus take_text(const LabelReader *reader, const JsonSlice *slice, LabelText *text,
                           FshError *error)
{
    *text = (LabelText){(char *)slice->text, slice->bytes};
    if (slice->escaped && !fsh_json_slice_unescape(slice, text->text, &text->bytes))
        return label_refuse(reader, error, "a text with a wrong escape");
    return FSH_OK;
}

/* Names the numbers of a line: "target", or "target0", "target1"; of later lines too, which have no more. */
static FshStatus name_number(LabelReader *reader, const JsonSlice *name, size_t number, bool listed,
                             FshError *error)
{
    LabelFile *file = reader->file;
    char text[80];
    uint32_t place = 0;
    if (file->row_count > 1)
        return file->rows[file->row_count - 1].count < file->own.count
                   ? FSH_OK
                   : label_refuse(reader, error, "has more than the %zu numbers of the lines before",
                                  file->own.count);
    const int named = name->bytes < 48 ? (int)name->bytes : 48;
    const int bytes = listed ? snprintf(text, sizeof text, "%.*s%zu", named, name->text, number)
                             : snprintf(text, sizeof text, "%.*s", named, name->text);
    return label_find_name(reader, (LabelText){text, (size_t)bytes}, &place, error);
}

/* Adds one label: a text, or a number, which is a class's name unless numbers are what is to be told. */
static FshStatus add_value(LabelReader *reader, const JsonSlice *name, const JsonSlice *value, size_t number,
                           bool listed, FshError *error)
{
    LabelText text;
    if (value->kind != JSON_SCAN_TEXT && value->kind != JSON_SCAN_NUMBER)
        return label_refuse(reader, error, "'%.*s' has '%.*s', which is no label", (int)name->bytes,
                            name->text, (int)(value->bytes < 40 ? value->bytes : 40), value->text);
    FshStatus status = take_text(reader, value, &text, error);
    if (status)
        return status;
    if (reader->file->kind != LABELS_NUMBERS)
        return label_add_class(reader, label_trim(text), error);
    status = name_number(reader, name, number, listed, error);
    return status ? status : label_add_number(reader, text, "a target", error);
}

/* Adds the values of a list: scanned as members of an object would be, one by one. */
static FshStatus add_list(LabelReader *reader, const JsonSlice *name, const JsonSlice *list, FshError *error)
{
    const char *at = list->text + 1, *end = list->text + list->bytes - 1;
    FshStatus status = FSH_OK;
    reader->any_list = true;
    for (size_t number = 0; !status; number++) {
        JsonSlice value = {.kind = JSON_SCAN_NUMBER};
        at = text_skip_blanks(at, end);
        if (at == end)
            break;
        if (number && *at++ != ',')
            return label_refuse(reader, error, "'%.*s' is a list without a comma between its values",
                                (int)name->bytes, name->text);
        at = text_skip_blanks(at, end);
        const bool quoted = at < end && *at == '"';
        value.text = at += quoted;
        while (at < end && (quoted ? *at != '"' : *at != ',' && !text_is_blank(*at))) {
            value.escaped = value.escaped || *at == '\\';
            at += *at == '\\' && at + 1 < end ? 2 : 1;
        }
        value.bytes = (size_t)(at - value.text);
        if (quoted)
            value.kind = JSON_SCAN_TEXT;
        else if (!value.bytes || (*value.text != '-' && (*value.text < '0' || *value.text > '9')))
            value.kind = JSON_SCAN_OTHER;
        at += quoted && at < end;
        status = add_value(reader, name, &value, number, true, error);
    }
    return status;
}

static FshStatus add_member(LabelReader *reader, const JsonSlice *name, const JsonSlice *value,
                            FshError *error)
{
    const bool list = value->kind == JSON_SCAN_OTHER && value->bytes >= 2 && *value->text == '[';
    if (list && reader->file->kind == LABELS_ONE)
        return label_refuse(reader, error,
                            "'%.*s' is a list; with --problem-type single-label an image has one",
                            (int)name->bytes, name->text);
    return list ? add_list(reader, name, value, error) : add_value(reader, name, value, 0, false, error);
}

/* Finds the key of a line, and whether it has labels. */
static FshStatus look_at(LabelReader *reader, LabelText line, JsonLine *seen, FshError *error)
{
    JsonScan scan = fsh_json_scan(line.text, line.bytes);
    JsonSlice name, value;
    *seen = (JsonLine){0};
    while (fsh_json_scan_next(&scan, &name, &value)) {
        if (is_label_name(reader, &name)) {
            seen->has_labels = true;
            if (reader->file->kind == LABEL_KIND_COUNT && is_target_name(&name) && !reader->file->row_count &&
                (value.kind == JSON_SCAN_NUMBER || (value.kind == JSON_SCAN_OTHER && *value.text == '[')))
                reader->file->kind = LABELS_NUMBERS;
        } else if (!seen->has_key && value.kind == JSON_SCAN_TEXT &&
                   (label_file_is_key_name(name.text, name.bytes) || fsh_json_slice_is(&name, "__key__"))) {
            seen->has_key = true;
            seen->key = value;
        }
    }
    if (scan.broken || text_skip_blanks(scan.next, line.text + line.bytes) != line.text + line.bytes)
        return label_refuse(reader, error, "is no JSON object");
    if (!seen->has_key)
        return label_refuse(reader, error, "has no key: a member called key, file_name, image or id");
    if (!seen->has_labels)
        return label_refuse(reader, error,
                            reader->options->columns
                                ? "has no member of --label-columns"
                                : "has no label: a member called label, labels or target");
    return FSH_OK;
}

/* Resolves the escapes of the last row's key: after its line was scanned, which they are a part of. */
static FshStatus finish_key(const LabelReader *reader, bool escaped, FshError *error)
{
    LabelFile *file = reader->file;
    LabelRow *row = &file->rows[file->row_count - 1];
    const JsonSlice raw = {
        .text = (const char *)file->text.bytes + row->key_at, .bytes = row->key_bytes, .escaped = escaped};
    LabelText key;
    FshStatus status = take_text(reader, &raw, &key, error);
    if (!status)
        row->key_bytes = (uint32_t)key.bytes;
    return status;
}

static FshStatus take_line(LabelReader *reader, LabelText line, FshError *error)
{
    JsonLine seen;
    JsonSlice name, value;
    FshStatus status = look_at(reader, line, &seen, error);
    JsonScan scan = fsh_json_scan(line.text, line.bytes);
    if (!status)
        status = label_add_row(reader, (LabelText){(char *)seen.key.text, seen.key.bytes}, error);
    while (!status && fsh_json_scan_next(&scan, &name, &value))
        if (is_label_name(reader, &name))
            status = add_member(reader, &name, &value, error);
    if (!status)
        status = finish_key(reader, seen.key.escaped, error);
    return status ? status : label_end_row(reader, error);
}

FshStatus label_read_json(LabelReader *reader, FshError *error)
{
    FshStatus status = FSH_OK;
    LabelText line;
    while (!status && label_next_line(reader, false, &line))
        status = take_line(reader, line, error);
    reader->file->columns = reader->file->kind == LABELS_NUMBERS;
    return status;
}
