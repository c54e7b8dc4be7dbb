/* WebDataset's convention on top of a tar: https://github.com/webdataset/webdataset, "The WebDataset
 * Format". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/hash_set.h"
#include "formats/json_scan.h"
#include "formats/media.h"
#include "formats/names.h"
#include "formats/sample_table.h"
#include "formats/webdataset.h"
#include "formats/xxh3.h"
#include "tar/tar_parse.h"

/* ---- names ---- */

/* Splits a path as webdataset does: all up to the first dot of the last part, and what comes after. Returns
 * false if the member belongs to no sample. */
static bool split_member_path(const char *path, size_t bytes, size_t *key_bytes, const char **suffix)
{
    const char *slash = memrchr(path, '/', bytes);
    const char *base = slash ? slash + 1 : path;
    const char *dot = memchr(base, '.', (size_t)(path + bytes - base));
    if (!dot || dot == base)
        return false;
    *key_bytes = (size_t)(dot - path);
    *suffix = dot + 1;
    return true;
}

/* Returns whether webdataset passes over a member: "__NAME__", or what is in a folder of such a name. */
static bool is_meta_path(const char *path)
{
    if (strncmp(path, "__", 2) != 0)
        return false;
    size_t bytes = strcspn(path, "/");
    return bytes >= 4 && path[bytes - 1] == '_' && path[bytes - 2] == '_';
}

/* Returns whether a path is absolute, or has a part "..": unpacking it is not safe. */
static bool is_unsafe_path(const char *path)
{
    const char *part = path;
    for (;;) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 2 && memcmp(part, "..", 2) == 0)
            return true;
        if (!part[bytes])
            return path[0] == '/';
        part += bytes + 1;
    }
}

static FshStatus append_percent(Buffer *path, unsigned char c, FshError *error)
{
    static const char digits[] = "0123456789ABCDEF";
    char text[3] = {'%', digits[c >> 4], digits[c & 15]};
    return buffer_append(path, text, sizeof text, error);
}

FshStatus fsh_webdataset_key_encode(const char *key, size_t key_bytes, Buffer *path, FshError *error)
{
    const char *slash = memrchr(key, '/', key_bytes);
    size_t base_at = slash ? (size_t)(slash + 1 - key) : 0;
    FshStatus status = FSH_OK;
    path->length = 0;
    for (size_t i = 0; i < key_bytes && !status; i++) {
        unsigned char c = (unsigned char)key[i];
        bool encoded = c == '%' || c <= ' ' || c == 0x7F || (c == '.' && i >= base_at) ||
                       (i == 0 && c == '_' && key_bytes > 1 && key[1] == '_');
        status = encoded ? append_percent(path, c, error) : buffer_append(path, &c, 1, error);
    }
    size_t length = path->length;
    if (!status)
        status = buffer_append(path, "", 1, error);
    if (status)
        return status;
    path->length = length;
    if (base_at == key_bytes || length > UINT16_MAX || is_unsafe_path((const char *)path->bytes) ||
        strncmp((const char *)path->bytes, "./", 2) == 0)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "key %.*s: a tar takes no path that is absolute, has \"..\" in it or ends in '/'", (int)key_bytes,
            key);
    return FSH_OK;
}

/* ---- grouping ---- */

typedef struct Member {
    bool there;
    uint64_t offset, bytes;
} Member;

typedef struct Grouping {
    SampleTable *table;
    const uint8_t *bytes;
    bool fields_known; /* expected by the caller, or those of the first sample */
    bool want_classes;
    bool begin_again; /* a .cls is a name, after others were taken for numbers */
    HashSet names;    /* record: the label of each */
    /* the sample in hand */
    Buffer key;
    bool begun;
    unsigned images; /* bit i: field i is there */
    FieldRow fields[FSH_FIELDS_MAX];
    Member label, note;
    uint64_t member_count;
    Buffer scratch, encoded;
} Grouping;

static FshStatus fail_sample(const Grouping *grouping, FshStatus status, FshError *error)
{
    if (status == FSH_ERR_MEMORY)
        return status;
    (void)fsh_error_prepend(error, "sample %.*s", (int)grouping->key.length,
                            (const char *)grouping->key.bytes);
    return status;
}

/* Finds the field of an image, *field_ret, by what stands before the extension: "left" in "left.png"; "image"
 * where nothing does. */
static FshStatus find_field(Grouping *grouping, const char *name, size_t bytes, unsigned *field_ret,
                            FshError *error)
{
    SampleTable *table = grouping->table;
    if (bytes == 0) {
        name = "image";
        bytes = strlen(name);
    }
    for (unsigned i = 0; i < table->field_count; i++) {
        if (strlen(table->field_names[i]) == bytes && memcmp(table->field_names[i], name, bytes) == 0) {
            *field_ret = i;
            return FSH_OK;
        }
    }
    if (grouping->fields_known)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "has an image \"%.*s\", which the first sample (or the manifest) does not have",
                             (int)bytes, name);
    *field_ret = table->field_count;
    return fsh_table_name_field(table, name, bytes, error);
}

/* Reads a number in *label_ret, as webdataset's int() does; blanks around it were removed before. */
static bool parse_label(const char *text, size_t bytes, int64_t *label_ret)
{
    JsonSlice slice = {.kind = JSON_SCAN_NUMBER, .text = text, .bytes = bytes};
    return bytes && bytes < 20 && fsh_json_slice_integer(&slice, label_ret);
}

/* What a .json is asked for when the tar is opened. */
typedef struct NoteFacts {
    bool has_label;
    int64_t label;
    JsonSlice key, class_name;
} NoteFacts;

static bool read_note_facts(const Grouping *grouping, NoteFacts *facts)
{
    static const char *const label_names[] = {"label", "cls"};
    const char *text = (const char *)grouping->bytes + grouping->note.offset;
    size_t bytes = (size_t)grouping->note.bytes;
    JsonScan scan = fsh_json_scan(text, bytes);
    JsonSlice name, value;
    *facts = (NoteFacts){0};
    while (fsh_json_scan_next(&scan, &name, &value)) {
        for (size_t i = 0; i < sizeof label_names / sizeof *label_names; i++) {
            if (!facts->has_label && fsh_json_slice_is(&name, label_names[i]))
                facts->has_label = fsh_json_slice_integer(&value, &facts->label);
        }
        if (value.kind == JSON_SCAN_TEXT && fsh_json_slice_is(&name, "key"))
            facts->key = value;
        else if (value.kind == JSON_SCAN_TEXT && fsh_json_slice_is(&name, "class_name"))
            facts->class_name = value;
    }
    return !scan.broken;
}

/* Writes the text of a slice to grouping->scratch, *bytes_ret bytes. */
static FshStatus unescape(Grouping *grouping, const JsonSlice *slice, size_t *bytes_ret, FshError *error)
{
    FshStatus status = buffer_reserve(&grouping->scratch, slice->bytes + 1, error);
    if (!status && !fsh_json_slice_unescape(slice, (char *)grouping->scratch.bytes, bytes_ret))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, ".json with a wrong escape");
    return status;
}

/* Replaces *key by the key before fsh_webdataset_key_encode, if the note has one that encodes to the key in
 * the tar. */
static FshStatus true_key(Grouping *grouping, const NoteFacts *facts, const char **key, size_t *key_bytes,
                          FshError *error)
{
    size_t bytes = 0;
    if (!facts->key.bytes || !memchr(grouping->key.bytes, '%', grouping->key.length))
        return FSH_OK;
    FshStatus status = unescape(grouping, &facts->key, &bytes, error);
    if (status)
        return status;
    const char *plain = (const char *)grouping->scratch.bytes;
    status = fsh_webdataset_key_encode(plain, bytes, &grouping->encoded, NULL);
    if (!status && grouping->encoded.length == grouping->key.length &&
        memcmp(grouping->encoded.bytes, grouping->key.bytes, grouping->key.length) == 0) {
        *key = plain;
        *key_bytes = bytes;
    }
    return status == FSH_ERR_MEMORY ? status : FSH_OK;
}

/* Copies the sources of a sample to the table: with escapes they cannot be lent out where they stand. */
static FshStatus add_sources(Grouping *grouping, uint64_t sample, FshError *error)
{
    SampleTable *table = grouping->table;
    FshStatus status = FSH_OK;
    for (unsigned i = 0; i < table->field_count && !status; i++) {
        JsonSlice object, name, value;
        size_t bytes = 0;
        const char *text = (const char *)grouping->bytes + grouping->note.offset;
        if (fsh_note_object(text, (size_t)grouping->note.bytes, table->field_names[i], &object)) {
            JsonScan scan = fsh_json_scan(object.text, object.bytes);
            while (fsh_json_scan_next(&scan, &name, &value) && !status) {
                if (value.kind == JSON_SCAN_TEXT && fsh_json_slice_is(&name, "source"))
                    status = unescape(grouping, &value, &bytes, error);
            }
        }
        if (!status && bytes > UINT16_MAX)
            status = fsh_error_set(error, FSH_ERR_CORRUPT, ".json with a source of %zu bytes", bytes);
        uint8_t length[2] = {(uint8_t)bytes, (uint8_t)(bytes >> 8)};
        if (!status)
            status = buffer_append(&table->text, length, sizeof length, error);
        if (!status)
            status = buffer_append(&table->text, grouping->scratch.bytes, bytes, error);
    }
    fsh_table_row(table, sample)->with_sources = true;
    return status;
}

/* Makes room for the names of all labels so far. */
static FshStatus reserve_class_names(SampleTable *table, FshError *error)
{
    const size_t count = (size_t)table->label_max + 1, before = table->class_name_count;
    if (count <= before)
        return FSH_OK;
    char **grown = reallocarray(table->class_names, count, sizeof *grown);
    if (!grown)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    memset(grown + before, 0, (count - before) * sizeof *grown);
    table->class_names = grown;
    table->class_name_count = count;
    return FSH_OK;
}

/* Remembers the name of the sample's class, once for each class. */
static FshStatus add_class_name(Grouping *grouping, const NoteFacts *facts, int32_t label, FshError *error)
{
    SampleTable *table = grouping->table;
    size_t bytes = 0;
    FshStatus status = reserve_class_names(table, error);
    if (status || table->class_names[label] || !facts->class_name.bytes)
        return status;
    status = unescape(grouping, &facts->class_name, &bytes, error);
    if (status)
        return status;
    table->class_names[label] = text_copy((const char *)grouping->scratch.bytes, bytes);
    return table->class_names[label] ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
}

static bool class_is_named(const SampleTable *table, int64_t label)
{
    return label >= 0 && (uint64_t)label < table->class_name_count && table->class_names[label];
}

enum { CLASS_NAME_BYTES_MAX = 255 };

/* Sets *label_ret to the label of a name: how many other names came before it. */
static FshStatus label_by_name(Grouping *grouping, const char *name, size_t bytes, int64_t *label_ret,
                               FshError *error)
{
    SampleTable *table = grouping->table;
    FshHash128 hash;
    hash = fsh_hash_bytes(name, bytes);
    FshStatus status = hash_set_reserve(&grouping->names, 1, error);
    if (status)
        return status;
    *label_ret = (int64_t)table->class_name_count;
    const HashSetEntry *known = hash_set_meet(&grouping->names, &hash, table->class_name_count, 0);
    if (known) {
        *label_ret = (int64_t)known->record;
        return FSH_OK;
    }
    if (table->class_name_count == FOREIGN_CLASSES_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "more than %d names of classes",
                             FOREIGN_CLASSES_MAX);
    table->label_max = (int32_t)*label_ret;
    status = reserve_class_names(table, error);
    if (status)
        return status;
    char *copy = text_copy(name, bytes);
    table->class_names[*label_ret] = copy;
    const char *const names[] = {copy};
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (bytes > CLASS_NAME_BYTES_MAX || memchr(name, 0, bytes) || fsh_names_check("classes", names, 1, NULL))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "its .cls at byte %" PRIu64
                             " is neither a whole number nor a name: UTF-8 of at most %d bytes",
                             grouping->label.offset, CLASS_NAME_BYTES_MAX);
    return FSH_OK;
}

/* Reads a sample's .cls into *label_ret: a number or, in a tar that has names in any, a name. */
static FshStatus read_cls(Grouping *grouping, int64_t *label_ret, FshError *error)
{
    const Member *cls = &grouping->label;
    const char *text = (const char *)grouping->bytes + cls->offset;
    size_t bytes = (size_t)cls->bytes;
    char number[24];
    while (bytes && text_is_blank(text[0])) {
        text++;
        bytes--;
    }
    while (bytes && text_is_blank(text[bytes - 1])) {
        bytes--;
    }
    const bool is_number = parse_label(text, bytes, label_ret);
    if (is_number && !grouping->table->names_are_labels)
        return FSH_OK;
    if (bytes == 0 || !grouping->want_classes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its .cls at byte %" PRIu64 " is no whole number",
                             cls->offset);
    if (!grouping->table->names_are_labels) {
        grouping->begin_again = true;
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its .cls is a name, those before it are numbers");
    }
    if (is_number) { /* "007" is class 7 where all are numbers: so is its name */
        bytes = (size_t)snprintf(number, sizeof number, "%" PRId64, *label_ret);
        text = number;
        if (*label_ret < 0)
            return FSH_OK;
    }
    return label_by_name(grouping, text, bytes, label_ret, error);
}

/* Puts the sample into the table; facts are empty where they were not needed. */
static FshStatus add_sample(Grouping *grouping, const NoteFacts *facts, int64_t label, bool escaped,
                            FshError *error)
{
    SampleTable *table = grouping->table;
    const char *key = (const char *)grouping->key.bytes;
    size_t key_bytes = grouping->key.length;
    FshStatus status = true_key(grouping, facts, &key, &key_bytes, error);
    if (!status)
        status = fsh_table_add(table, key, key_bytes, error);
    if (status)
        return status;
    uint64_t sample = table->sample_count - 1;
    SampleRow *row = fsh_table_row(table, sample);
    memcpy(fsh_table_fields(table, sample), grouping->fields, table->field_count * sizeof *grouping->fields);
    if (grouping->note.there && grouping->note.bytes <= UINT32_MAX) {
        row->note_at = grouping->note.offset;
        row->note_bytes = (uint32_t)grouping->note.bytes;
        if (escaped)
            status = add_sources(grouping, sample, error);
    }
    if (!status)
        status = fsh_table_label(table, sample, label, error);
    if (!status && label >= 0 && grouping->want_classes && !table->names_are_labels)
        status = add_class_name(grouping, facts, (int32_t)label, error);
    return status;
}

/* Ends the sample begun. Its members are ignored if none of them is an image. */
static FshStatus finish_sample(Grouping *grouping, FshError *error)
{
    SampleTable *table = grouping->table;
    const Member *note = &grouping->note, *cls = &grouping->label;
    const char *text = (const char *)grouping->bytes;
    if (!grouping->begun)
        return FSH_OK;
    grouping->begun = false;
    if (!grouping->images) {
        table->ignored_count += grouping->member_count;
        return FSH_OK;
    }
    grouping->fields_known = true;
    for (unsigned i = 0; i < table->field_count; i++) {
        if (!(grouping->images >> i & 1))
            return fsh_error_set(error, FSH_ERR_MISMATCH, "has no image \"%s\"", table->field_names[i]);
    }
    bool labelled = table->field_count == 1; /* pairs have no labels */
    int64_t label = FSH_NO_LABEL;
    FshStatus status = labelled && cls->there ? read_cls(grouping, &label, error) : FSH_OK;
    if (status)
        return status;
    NoteFacts facts = {0};
    bool escaped = note->there && note->bytes && memchr(text + note->offset, '\\', (size_t)note->bytes);
    bool needed = (labelled && !cls->there) || memchr(grouping->key.bytes, '%', grouping->key.length) ||
                  (labelled && grouping->want_classes && !class_is_named(table, label));
    if (note->there && needed && !read_note_facts(grouping, &facts) && labelled && !cls->there)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "its .json at byte %" PRIu64 " is no JSON object",
                             note->offset);
    if (labelled && !cls->there && facts.has_label && !table->names_are_labels) /* a number is no name */
        label = facts.label;
    return add_sample(grouping, &facts, label, escaped, error);
}

static FshStatus take_once(Member *member, const TarMember *from, const char *what, FshError *error)
{
    if (member->there)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "has two %s, the second at byte %" PRIu64, what,
                             from->content);
    *member = (Member){.there = true, .offset = from->content, .bytes = from->bytes};
    return FSH_OK;
}

static FshStatus take_image(Grouping *grouping, const TarMember *member, const char *name, size_t name_bytes,
                            FshError *error)
{
    unsigned field = 0;
    FshStatus status = find_field(grouping, name, name_bytes, &field, error);
    if (!status && grouping->images >> field & 1)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "has two images \"%s\", the second at byte %" PRIu64,
                               grouping->table->field_names[field], member->content);
    if (status)
        return status;
    grouping->images |= 1U << field;
    grouping->fields[field] = (FieldRow){.offset = member->content, .bytes = member->bytes};
    return FSH_OK;
}

enum { EXTENSION_BYTES_MAX = 8 };

static FshStatus take_member(Grouping *grouping, const TarMember *member, const char *suffix,
                             size_t suffix_bytes, FshError *error)
{
    NpyArray array;
    const char *dot = memrchr(suffix, '.', suffix_bytes);
    const char *last = dot ? dot + 1 : suffix;
    size_t last_bytes = (size_t)(suffix + suffix_bytes - last);
    char extension[EXTENSION_BYTES_MAX + 1] = {0};
    grouping->member_count++;
    for (size_t i = 0; i < last_bytes && last_bytes <= EXTENSION_BYTES_MAX; i++) {
        bool capital = last[i] >= 'A' && last[i] <= 'Z';
        extension[i] = capital ? (char)(last[i] - 'A' + 'a') : last[i];
    }
    if (fsh_extension_is_image(extension, strlen(extension)) ||
        (strcmp(extension, "npy") == 0 &&
         fsh_npy_parse(grouping->bytes + member->content, (size_t)member->bytes, &array)))
        return take_image(grouping, member, suffix, dot ? (size_t)(dot - suffix) : 0, error);
    if (!dot && strcmp(extension, "cls") == 0)
        return take_once(&grouping->label, member, ".cls", error);
    if (!dot && strcmp(extension, "json") == 0)
        return take_once(&grouping->note, member, ".json", error);
    grouping->table->ignored_count++;
    return FSH_OK;
}

static FshStatus add_member(Grouping *grouping, const TarMember *member, FshError *error)
{
    const char *path = member->path, *suffix = NULL;
    size_t path_bytes = member->path_bytes, key_bytes = 0;
    if (is_unsafe_path(path))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": member %s: an absolute path, or one with \"..\"",
                             member->header_offset, path);
    while (path_bytes > 2 && path[0] == '.' && path[1] == '/') { /* tar cf x.tar . */
        path += 2;
        path_bytes -= 2;
    }
    if (!member->regular)
        return FSH_OK;
    if (is_meta_path(path) || !split_member_path(path, path_bytes, &key_bytes, &suffix)) {
        grouping->table->ignored_count++;
        return FSH_OK;
    }
    FshStatus status = FSH_OK;
    if (!grouping->begun || grouping->key.length != key_bytes ||
        memcmp(grouping->key.bytes, path, key_bytes) != 0) {
        status = finish_sample(grouping, error);
        if (status)
            return fail_sample(grouping, status, error);
        grouping->key.length = 0;
        status = buffer_append(&grouping->key, path, key_bytes, error);
        grouping->begun = true;
        grouping->images = 0;
        grouping->label = grouping->note = (Member){0};
        grouping->member_count = 0;
    }
    if (!status)
        status = take_member(grouping, member, suffix, path_bytes - (size_t)(suffix - path), error);
    return status ? fail_sample(grouping, status, error) : FSH_OK;
}

/* Walks over the tar once. *named: whether a .cls names its class. If it is false and a .cls does, it becomes
 * true and the walk fails: the caller walks again. tear_ret: as fsh_webdataset_table has it. */
static FshStatus make_table(SampleTable *table, const uint8_t *bytes, uint64_t length,
                            const char *const *names, size_t name_count, bool with_class_names, bool *named,
                            FshError *tear_ret, FshError *error)
{
    Grouping grouping = {
        .table = table, .bytes = bytes, .fields_known = name_count > 0, .want_classes = with_class_names};
    TarSource source = tar_source_memory(bytes, length);
    TarCursor cursor = {.source = &source};
    TarMember member = {0};
    FshError found = {0};
    *table = (SampleTable){.label_max = FSH_NO_LABEL, .names_are_labels = *named};
    FshStatus status = fsh_table_name_fields(table, names, name_count, &found);
    do {
        if (!status)
            status = fsh_tar_next(&cursor, &member, &found);
        if (!status && member.path)
            status = add_member(&grouping, &member, &found);
    } while (!status && member.path);
    if (!status) {
        status = finish_sample(&grouping, &found);
        if (status)
            status = fail_sample(&grouping, status, &found);
    }
    table->unmarked_end = !cursor.marked_end;
    buffer_free(&grouping.key);
    buffer_free(&grouping.scratch);
    buffer_free(&grouping.encoded);
    hash_set_free(&grouping.names);
    fsh_tar_free(&cursor);
    *named = grouping.begin_again;
    if (status && status != FSH_ERR_MEMORY && !*named && tear_ret && table->sample_count) {
        *tear_ret = found;
        return FSH_OK;
    }
    if (status && error)
        *error = found;
    if (status)
        fsh_table_free(table);
    return status;
}

FshStatus fsh_webdataset_table(SampleTable *table, const uint8_t *bytes, uint64_t length,
                               const char *const *names, size_t name_count, bool with_class_names,
                               FshError *tear_ret, FshError *error)
{
    bool named = false;
    FshStatus status =
        make_table(table, bytes, length, names, name_count, with_class_names, &named, tear_ret, error);
    return named ? make_table(table, bytes, length, names, name_count, with_class_names, &named, tear_ret,
                              error)
                 : status;
}
