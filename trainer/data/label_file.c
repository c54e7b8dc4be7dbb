#include "trainer/data/label_file.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/image_names.h"
#include "common/text.h"
#include "formats/names.h"
#include "formats/xxh3.h"
#include "trainer/data/label_internal.h"

static const uint64_t label_bytes_max = (uint64_t)1 << 32;
enum { NAME_BYTES_MAX = 1024, KEY_BYTES_MAX = 65535 };

const char *const label_kind_names[] = {"single-label", "multi-label", "regression", NULL};

/* A key in the hash table. */
typedef struct LabelSlot {
    uint64_t hash; /* of the key without its extension */
    uint64_t row;  /* from 1; 0: free */
} LabelSlot;

/* ---- texts ---- */

LabelText label_trim(LabelText text)
{
    while (text.bytes && text_is_blank(text.text[text.bytes - 1]))
        text.bytes--;
    while (text.bytes && text_is_blank(*text.text)) {
        text.text++;
        text.bytes--;
    }
    return text;
}

bool label_text_is(LabelText text, const char *word)
{
    return text_is_same(text.text, text.bytes, word, strlen(word));
}

bool label_file_is_key_name(const char *name, size_t bytes)
{
    static const char *const names[] = {
        "key",       "filename",  "file", "filepath", "path",  "image", "imagename", "imageid", "imageindex",
        "imagepath", "imagefile", "img",  "imgname",  "imgid", "id",    "name",      "fname"};
    char plain[16];
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] == ' ' || name[i] == '_' || name[i] == '-')
            continue;
        if (length == sizeof plain)
            return false;
        plain[length++] = (char)tolower((unsigned char)name[i]);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (text_is_same(plain, length, names[i], strlen(names[i])))
            return true;
    return false;
}

bool label_columns_name(const char *columns, LabelText name)
{
    while (columns && *columns) {
        const size_t bytes = strcspn(columns, ",");
        if (text_is_same(columns, bytes, name.text, name.bytes))
            return true;
        columns += bytes + (columns[bytes] == ',');
    }
    return false;
}

FshStatus label_refuse(const LabelReader *reader, FshError *error, const char *format, ...)
{
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start stands in the line above */
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s:%llu: %s", reader->file->path,
                         (unsigned long long)reader->line, text);
}

/* Returns the end of the line that begins at reader->at, counting the line breaks in quotes. */
static char *find_line_end(LabelReader *reader, bool quotes)
{
    char *end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    end = end ? end : reader->end;
    if (!quotes || !memchr(reader->at, '"', (size_t)(end - reader->at)))
        return end;
    bool quoted = false;
    for (end = reader->at; end < reader->end && (quoted || *end != '\n'); end++) {
        quoted = quoted != (*end == '"');
        reader->breaks += *end == '\n';
    }
    return end;
}

bool label_next_line(LabelReader *reader, bool quotes, LabelText *line)
{
    while (reader->at < reader->end) {
        reader->line += 1 + reader->breaks;
        reader->breaks = 0;
        char *begin = reader->at, *end = find_line_end(reader, quotes);
        *line = label_trim((LabelText){begin, (size_t)(end - begin)});
        reader->at = end + (end < reader->end);
        if (line->bytes && *line->text != '#')
            return true;
    }
    return false;
}

/* ---- rows ---- */

/* Makes room for one more item of an array. */
static FshStatus make_room(void **items, uint64_t count, uint64_t *most, size_t item_bytes, FshError *error)
{
    if (count < *most)
        return FSH_OK;
    const uint64_t more = *most ? *most * 2 : 1024;
    void *grown = realloc(*items, more * item_bytes);
    if (!grown)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for labels");
    *items = grown;
    *most = more;
    return FSH_OK;
}

FshStatus label_add_row(LabelReader *reader, LabelText key, FshError *error)
{
    LabelFile *file = reader->file;
    while (key.bytes > 2 && key.text[0] == '.' && key.text[1] == '/') {
        key.text += 2;
        key.bytes -= 2;
    }
    if (!key.bytes || key.bytes > KEY_BYTES_MAX)
        return label_refuse(reader, error, key.bytes ? "a key of %zu bytes" : "has no key", key.bytes);
    FshStatus status =
        make_room((void **)&file->rows, file->row_count, &reader->rows_most, sizeof *file->rows, error);
    if (status)
        return status;
    const bool numbers = file->kind == LABELS_NUMBERS;
    file->rows[file->row_count] =
        (LabelRow){.key_at = (uint64_t)(key.text - (char *)file->text.bytes),
                   .key_bytes = (uint32_t)key.bytes,
                   .first = numbers ? file->row_count * file->own.count : file->member_count,
                   .line = reader->line};
    file->row_count++;
    return FSH_OK;
}

FshStatus label_end_row(LabelReader *reader, FshError *error)
{
    const LabelFile *file = reader->file;
    const LabelRow *row = &file->rows[file->row_count - 1];
    if (file->kind == LABELS_NUMBERS && row->count < file->own.count)
        return label_refuse(reader, error, "has %u numbers, and the lines before %zu", row->count,
                            file->own.count);
    reader->any_list = reader->any_list || row->count > 1;
    if (!row->count && !reader->first_empty)
        reader->first_empty = reader->line;
    return FSH_OK;
}

FshStatus label_add_place(LabelReader *reader, uint32_t place, FshError *error)
{
    LabelFile *file = reader->file;
    LabelRow *row = &file->rows[file->row_count - 1];
    for (uint32_t i = 0; i < row->count; i++)
        if (file->members[row->first + i] == place)
            return FSH_OK; /* said twice */
    FshStatus status = make_room((void **)&file->members, file->member_count, &reader->members_most,
                                 sizeof *file->members, error);
    if (!status) {
        file->members[file->member_count++] = place;
        row->count++;
    }
    return status;
}

FshStatus label_add_class(LabelReader *reader, LabelText name, FshError *error)
{
    uint32_t place = 0;
    FshStatus status = label_find_name(reader, name, &place, error);
    return status ? status : label_add_place(reader, place, error);
}

FshStatus label_add_number(LabelReader *reader, LabelText number, const char *what, FshError *error)
{
    LabelFile *file = reader->file;
    LabelRow *row = &file->rows[file->row_count - 1];
    char text[64], *end = text;
    (void)snprintf(text, sizeof text, "%.*s", (int)(number.bytes < sizeof text ? number.bytes : 0),
                   number.text);
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite((float)value))
        return label_refuse(reader, error, "%s is '%.*s', not a number", what,
                            (int)(number.bytes < 40 ? number.bytes : 40), number.text);
    FshStatus status = make_room((void **)&file->numbers, row->first + row->count, &reader->numbers_most,
                                 sizeof *file->numbers, error);
    if (!status)
        file->numbers[row->first + row->count++] = (float)value;
    return status;
}

/* ---- names ---- */

static uint64_t slot_of_name(const LabelReader *reader, LabelText name)
{
    uint64_t slot = XXH3_64bits(name.text, name.bytes) & (reader->name_slot_count - 1);
    for (uint32_t place; (place = reader->name_slots[slot]);
         slot = (slot + 1) & (reader->name_slot_count - 1)) {
        const char *known = reader->file->own.names[place - 1];
        if (strncmp(known, name.text, name.bytes) == 0 && !known[name.bytes])
            break;
    }
    return slot;
}

/* Makes the table of names so large that it stays half empty. */
static FshStatus grow_names(LabelReader *reader, FshError *error)
{
    const LabelNames *own = &reader->file->own;
    if (2 * (own->count + 1) <= reader->name_slot_count)
        return FSH_OK;
    reader->name_slot_count = reader->name_slot_count ? 2 * reader->name_slot_count : 256;
    free(reader->name_slots);
    reader->name_slots = calloc(reader->name_slot_count, sizeof *reader->name_slots);
    if (!reader->name_slots)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of classes");
    for (size_t i = 0; i < own->count; i++)
        reader->name_slots[slot_of_name(reader, (LabelText){own->names[i], strlen(own->names[i])})] =
            (uint32_t)i + 1;
    return FSH_OK;
}

FshStatus label_find_name(LabelReader *reader, LabelText name, uint32_t *place_ret, FshError *error)
{
    LabelNames *own = &reader->file->own;
    FshStatus status = grow_names(reader, error);
    if (status)
        return status;
    const uint64_t slot = slot_of_name(reader, name);
    if (reader->name_slots[slot]) {
        *place_ret = reader->name_slots[slot] - 1;
        return FSH_OK;
    }
    if (!name.bytes || name.bytes > NAME_BYTES_MAX || memchr(name.text, '\0', name.bytes))
        return label_refuse(reader, error, "a label of %zu bytes", name.bytes);
    char *copy = text_copy(name.text, name.bytes);
    status = copy ? make_room((void **)&own->names, own->count, &reader->name_room, sizeof *own->names, error)
                  : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of classes");
    if (!status && !text_is_utf8(copy))
        status = label_refuse(reader, error, "a label that is not UTF-8");
    if (status) {
        free(copy);
        return status;
    }
    own->names[own->count++] = copy;
    reader->name_slots[slot] = (uint32_t)own->count;
    *place_ret = (uint32_t)own->count - 1;
    return FSH_OK;
}

/* ---- keys ---- */

/* Returns the bytes of a key before the extension of an image. */
static size_t stem_bytes(const char *key, size_t bytes)
{
    enum { LONGEST = 5 };
    char name[LONGEST + 3] = "x";
    size_t dot = bytes;
    for (size_t i = 1; i <= LONGEST + 1 && i < bytes && key[bytes - i] != '/'; i++)
        if (key[bytes - i] == '.') {
            dot = bytes - i;
            break;
        }
    if (dot == bytes || dot == 0 || key[dot - 1] == '/')
        return bytes;
    if (bytes - dot == 4 && (memcmp(key + dot, ".jpg", 4) == 0 || memcmp(key + dot, ".png", 4) == 0))
        return dot; /* most are */
    memcpy(name + 1, key + dot, bytes - dot);
    name[1 + bytes - dot] = '\0';
    return image_name_kind(name) ? dot : bytes;
}

static const char *key_of(const LabelFile *file, const LabelRow *row)
{
    return (const char *)file->text.bytes + row->key_at;
}

/* Puts the keys into the table. FSH_ERR_CORRUPT: two are the same. */
static FshStatus index_keys(LabelFile *file, FshError *error)
{
    enum { AHEAD = 8 };
    uint64_t hashes[AHEAD] = {0};
    file->slot_count = 1024;
    while (file->slot_count < 2 * file->row_count)
        file->slot_count *= 2;
    file->slots = calloc(file->slot_count, sizeof *file->slots);
    if (!file->slots)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for its keys", file->path);
    for (uint64_t i = 0; i < file->row_count + AHEAD; i++) {
        if (i >= AHEAD) { /* whose slot has come into the cache meanwhile */
            const LabelRow *row = &file->rows[i - AHEAD];
            const uint64_t hash = hashes[i % AHEAD];
            uint64_t slot = hash & (file->slot_count - 1);
            for (; file->slots[slot].row; slot = (slot + 1) & (file->slot_count - 1)) {
                const LabelRow *other = &file->rows[file->slots[slot].row - 1];
                if (file->slots[slot].hash == hash &&
                    text_is_same(key_of(file, row), row->key_bytes, key_of(file, other), other->key_bytes))
                    return fsh_error_set(error, FSH_ERR_CORRUPT,
                                         "%s:%llu: the key '%.*s' came in line %llu before", file->path,
                                         (unsigned long long)row->line, (int)row->key_bytes,
                                         key_of(file, row), (unsigned long long)other->line);
            }
            file->slots[slot] = (LabelSlot){hash, i - AHEAD + 1};
        }
        if (i < file->row_count) {
            const LabelRow *row = &file->rows[i];
            const char *key = key_of(file, row);
            hashes[i % AHEAD] = XXH3_64bits(key, stem_bytes(key, row->key_bytes));
            __builtin_prefetch(&file->slots[hashes[i % AHEAD] & (file->slot_count - 1)], 1);
        }
    }
    return FSH_OK;
}

/* Returns the row whose key without its extension is `stem`: the one whose whole key is `whole`, else the
 * only one. NULL: there is none, or there are several. */
static const LabelRow *find_stem(const LabelFile *file, const char *stem, size_t bytes, const char *whole,
                                 size_t whole_bytes)
{
    const uint64_t hash = XXH3_64bits(stem, bytes);
    const LabelRow *found = NULL;
    bool several = false;
    for (uint64_t slot = hash & (file->slot_count - 1); file->slots[slot].row;
         slot = (slot + 1) & (file->slot_count - 1)) {
        const LabelRow *row = &file->rows[file->slots[slot].row - 1];
        if (file->slots[slot].hash != hash || row->key_bytes < bytes ||
            memcmp(key_of(file, row), stem, bytes) != 0)
            continue;
        if (text_is_same(key_of(file, row), row->key_bytes, whole, whole_bytes))
            return row;
        several = found != NULL;
        found = row;
    }
    return several ? NULL : found;
}

static const LabelRow *find_key(const LabelFile *file, const char *key, size_t bytes)
{
    const size_t stem = stem_bytes(key, bytes);
    const LabelRow *row = find_stem(file, key, bytes, key, bytes);
    return row || stem == bytes ? row : find_stem(file, key, stem, key, bytes);
}

/* Finds the row of a key that has a folder before it. */
static const LabelRow *find_in(const LabelFile *file, const char *folder, const char *key, size_t key_bytes)
{
    char path[PATH_MAX];
    const size_t folder_bytes = strlen(folder);
    if (folder_bytes + 1 + key_bytes > sizeof path)
        return NULL;
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): a key has its length */
    memcpy(path, folder, folder_bytes);
    path[folder_bytes] = '/';
    memcpy(path + folder_bytes + 1, key, key_bytes);
    return find_key(file, path, folder_bytes + 1 + key_bytes);
}

/* Finds the row of a record by its key with folders before it, the set's name among them: the most exact one
 * that there is. So folders of splits win over a set that is called as one. */
static const LabelRow *find_of_set(const LabelFile *file, const char *set, const char *split, const char *key,
                                   size_t key_bytes)
{
    char folder[PATH_MAX];
    const LabelRow *row = NULL;
    if ((size_t)snprintf(folder, sizeof folder, "%s/%s", set, split) < sizeof folder)
        row = find_in(file, folder, key, key_bytes);
    if (!row)
        row = find_in(file, split, key, key_bytes);
    return row ? row : find_in(file, set, key, key_bytes);
}

const LabelRow *label_file_find(const LabelFile *file, const char *set, const char *split, const char *key,
                                size_t key_bytes)
{
    size_t name = key_bytes;
    while (name > 0 && key[name - 1] != '/')
        name--;
    const LabelRow *row = set ? find_of_set(file, set, split, key, key_bytes) : NULL;
    if (!row)
        row = find_key(file, key, key_bytes);
    if (!row)
        row = find_in(file, split, key, key_bytes);
    if (!row && name && set)
        row = find_in(file, set, key + name, key_bytes - name);
    return row || !name ? row : find_key(file, key + name, key_bytes - name);
}

bool label_file_has_folder(const LabelFile *file, const char *folder)
{
    const size_t bytes = strlen(folder);
    for (uint64_t i = 0; i < file->row_count; i++) {
        const char *key = key_of(file, &file->rows[i]);
        if (file->rows[i].key_bytes > bytes && key[bytes] == '/' && memcmp(key, folder, bytes) == 0)
            return true;
    }
    return false;
}

/* ---- reading ---- */

/* Decides of what kind the labels are, once all are there. */
static FshStatus settle_kind(LabelReader *reader, FshError *error)
{
    LabelFile *file = reader->file;
    if (!file->row_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: has no labels", file->path);
    if (file->kind == LABELS_MANY || file->kind == LABELS_NUMBERS)
        return FSH_OK;
    file->kind = reader->any_list && reader->options->kind < 0 ? LABELS_MANY : LABELS_ONE;
    reader->line = reader->first_empty;
    return file->kind == LABELS_ONE && reader->first_empty ? label_refuse(reader, error, "has no label")
                                                           : FSH_OK;
}

FshStatus label_file_read(LabelFile *file, const char *path, const LabelFileOptions *options, FshError *error)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    *file =
        (LabelFile){.path = path, .kind = options->kind < 0 ? LABEL_KIND_COUNT : (LabelKind)options->kind};
    LabelReader reader = {.file = file, .options = options};
    FshStatus status = file_read_stream(path, label_bytes_max, &file->text, error);
    if (!status)
        status = buffer_append(&file->text, "", 1, error); /* numbers end before it */
    if (!status) {
        file->text.length--;
        const FshHash128 hash = fsh_hash_bytes(file->text.bytes, file->text.length);
        fsh_hash_format(&hash, file->digest);
        reader.at = (char *)file->text.bytes;
        reader.end = reader.at + file->text.length;
        if (file->text.length >= 3 && memcmp(reader.at, byte_order_mark, 3) == 0)
            reader.at += 3;
        const char *first = text_skip_blanks(reader.at, reader.end);
        status = first < reader.end && *first == '{' ? label_read_json(&reader, error)
                                                     : label_read_csv(&reader, error);
    }
    if (!status)
        status = settle_kind(&reader, error);
    if (!status)
        status = index_keys(file, error);
    free(reader.name_slots);
    if (status)
        label_file_free(file);
    return status;
}

void label_file_free(LabelFile *file)
{
    free(file->rows);
    free(file->members);
    free(file->numbers);
    free(file->slots);
    label_names_free(&file->own);
    buffer_free(&file->text);
    *file = (LabelFile){0};
}
