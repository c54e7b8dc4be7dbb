/* BasicSR's LMDBs: https://github.com/XPixelGroup/BasicSR, docs/DatasetPreparation.md, "LMDB Description". */

#include "formats/basicsr.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "common/file.h"
#include "formats/lmdb_reader.h"
#include "formats/sample_table.h"

/* ---- meta_info.txt ---- */

static bool take_number(const char **at, const char *end, uint64_t *number_ret)
{
    const char *begin = *at;
    uint64_t number = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        number = number * 10 + (uint64_t)(**at - '0');
        if (number > UINT32_MAX)
            return false;
    }
    *number_ret = number;
    return *at > begin;
}

/* Reads "(h,w,c)" after the name into line's sizes, which stay 0 where there is none. Returns false if
 * something else is there. */
static bool read_shape(const char *at, const char *end, MetaLine *line)
{
    uint64_t numbers[3];
    at = text_skip_blanks(at, end);
    if (at == end || *at != '(')
        return true;
    at++;
    for (int i = 0; i < 3; i++) {
        at = text_skip_blanks(at, end);
        if (!take_number(&at, end, &numbers[i]) || at == end || *at++ != (i < 2 ? ',' : ')'))
            return false;
    }
    if (numbers[2] < 1 || numbers[2] > FSH_CHANNELS_MAX)
        return false;
    line->height = (uint32_t)numbers[0];
    line->width = (uint32_t)numbers[1];
    line->channels = (uint8_t)numbers[2];
    return true;
}

FshStatus fsh_meta_line_next(const char *text, size_t bytes, size_t *offset, MetaLine *line, FshError *error)
{
    *line = (MetaLine){0};
    while (*offset < bytes) {
        const char *begin = text + *offset, *limit = text + bytes;
        const char *end = memchr(begin, '\n', bytes - *offset);
        const size_t line_at = *offset;
        *offset = end ? (size_t)(end + 1 - text) : bytes;
        end = end ? end : limit;
        const char *at = begin;
        at = text_skip_blanks(at, end);
        if (at == end)
            continue;
        /* BasicSR's reader takes all before the first dot as the key. */
        const char *dot = memchr(begin, '.', (size_t)(end - begin));
        const char *shape = memchr(begin, '(', (size_t)(end - begin));
        *line = (MetaLine){.key = begin, .key_bytes = dot ? (size_t)(dot - begin) : 0};
        if (!dot || dot == begin || memchr(begin, 0, (size_t)(end - begin)) ||
            (shape && (shape < dot || !read_shape(shape, end, line)))) {
            line->key = NULL;
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 BASICSR_META_NAME
                                 " at byte %zu: a line is \"KEY.png (height,width,channels) LEVEL\"",
                                 line_at);
        }
        return FSH_OK;
    }
    return FSH_OK;
}

/* ---- keys ---- */

enum { LMDB_KEY_BYTES_MAX = 511 };

FshStatus fsh_basicsr_key_encode(const char *key, size_t key_bytes, Buffer *out, FshError *error)
{
    FshStatus status = FSH_OK;
    out->length = 0;
    for (size_t i = 0; i < key_bytes && !status; i++) {
        static const char digits[] = "0123456789ABCDEF";
        unsigned char c = (unsigned char)key[i];
        char text[3] = {(char)c, digits[c >> 4], digits[c & 15]};
        bool encoded = c == '%' || c == '.' || c < ' ' || c >= 0x7F;
        text[0] = encoded ? '%' : text[0];
        status = buffer_append(out, text, encoded ? 3 : 1, error);
    }
    if (!status && out->length > LMDB_KEY_BYTES_MAX)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "key of %zu bytes; an LMDB takes %d", out->length,
                               LMDB_KEY_BYTES_MAX);
    return status;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Replaces each %XX in key by its byte, in place, and returns the new length. A % that begins no %XX
 * stays. */
static size_t decode_key(char *key, size_t bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        int high = key[i] == '%' && i + 2 < bytes ? hex_digit(key[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(key[i + 2]) : -1;
        bool encoded = low >= 0 && (high || low);
        key[length++] = encoded ? (char)(high << 4 | low) : key[i];
        i += encoded ? 2 : 0;
    }
    return length;
}

/* ---- databases ---- */

typedef struct Entries {
    Buffer list; /* LmdbEntry each, keys in byte order */
    size_t count;
} Entries;

static FshStatus visit(const LmdbEntry *entry, void *context, FshError *error)
{
    Entries *entries = context;
    entries->count++;
    return buffer_append(&entries->list, entry, sizeof *entry, error);
}

static const LmdbEntry *entry_at(const Entries *entries, size_t index)
{
    return (const LmdbEntry *)(const void *)entries->list.bytes + index;
}

static int compare_key(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

/* Returns the index of the key, or the count of entries where it is not there. */
static size_t find_key(const Entries *entries, const char *key, size_t key_bytes)
{
    size_t low = 0, high = entries->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const LmdbEntry *entry = entry_at(entries, middle);
        int order = compare_key(entry->key, entry->key_bytes, key, key_bytes);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return entries->count;
}

static FshStatus fail_key(const char *side, const char *key, size_t key_bytes, const char *what,
                          FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: key \"%.*s\" %s", side, (int)key_bytes, key, what);
}

/* Adds a sample for each line of the first side, in the order of the lines. */
static FshStatus add_first_side(SampleTable *table, const BasicsrSide *side, const Entries *entries,
                                FshError *error)
{
    size_t offset = 0;
    MetaLine line = {0};
    FshStatus status = FSH_OK;
    uint8_t *seen = calloc(entries->count + 1, 1);
    if (!seen)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    while (!status && !(status = fsh_meta_line_next(side->meta, side->meta_bytes, &offset, &line, error)) &&
           line.key) {
        size_t index = find_key(entries, line.key, line.key_bytes);
        if (index == entries->count)
            status = fail_key(side->name, line.key, line.key_bytes,
                              "is in " BASICSR_META_NAME ", but not in the LMDB", error);
        else if (seen[index])
            status =
                fail_key(side->name, line.key, line.key_bytes, "is in " BASICSR_META_NAME " twice", error);
        if (!status)
            status = fsh_table_add(table, line.key, line.key_bytes, error);
        if (status)
            break;
        seen[index] = 1;
        *fsh_table_fields(table, table->sample_count - 1) =
            (FieldRow){.offset = entry_at(entries, index)->offset,
                       .bytes = entry_at(entries, index)->bytes,
                       .width = line.width,
                       .height = line.height,
                       .channels = line.channels};
        status = fsh_table_label(table, table->sample_count - 1, FSH_NO_LABEL, error);
    }
    for (size_t i = 0; i < entries->count && !status; i++) {
        const LmdbEntry *entry = entry_at(entries, i);
        if (!seen[i])
            status = fail_key(side->name, entry->key, entry->key_bytes,
                              "is in the LMDB, but not in " BASICSR_META_NAME, error);
    }
    free(seen);
    return status;
}

/* Adds another side, which must have the same keys as the first, and takes its sizes. */
static FshStatus add_side(SampleTable *table, size_t field, const BasicsrSide *sides, const Entries *entries,
                          const uint32_t *sample_of_first, const Entries *first, FshError *error)
{
    const BasicsrSide *side = &sides[field];
    size_t offset = 0;
    MetaLine line = {0};
    FshStatus status = FSH_OK;
    size_t common = entries->count < first->count ? entries->count : first->count;
    for (size_t i = 0; i < common; i++) {
        const LmdbEntry *mine = entry_at(entries, i), *other = entry_at(first, i);
        int order = compare_key(mine->key, mine->key_bytes, other->key, other->key_bytes);
        if (order < 0)
            return fail_key(sides[0].name, mine->key, mine->key_bytes, "is missing; the other side has it",
                            error);
        if (order > 0)
            return fail_key(side->name, other->key, other->key_bytes, "is missing; the other side has it",
                            error);
        FieldRow *row = &fsh_table_fields(table, sample_of_first[i])[field];
        row->offset = mine->offset;
        row->bytes = mine->bytes;
    }
    if (entries->count != first->count) {
        bool more = entries->count > common;
        const LmdbEntry *orphan = entry_at(more ? entries : first, common);
        return fail_key(more ? sides[0].name : side->name, orphan->key, orphan->key_bytes,
                        "is missing; the other side has it", error);
    }
    while (!(status = fsh_meta_line_next(side->meta, side->meta_bytes, &offset, &line, error)) && line.key) {
        size_t index = find_key(entries, line.key, line.key_bytes);
        if (index == entries->count)
            return fail_key(side->name, line.key, line.key_bytes,
                            "is in " BASICSR_META_NAME ", but not in the LMDB", error);
        FieldRow *row = &fsh_table_fields(table, sample_of_first[index])[field];
        row->width = line.width;
        row->height = line.height;
        row->channels = line.channels;
    }
    return status;
}

FshStatus fsh_basicsr_table(SampleTable *table, const BasicsrSide *sides, size_t side_count, bool decode,
                            FshError *error)
{
    const char *names[FSH_FIELDS_MAX] = {0};
    Entries first = {0}, entries = {0};
    uint32_t *sample_of_first = NULL; /* of the first side's i-th key */
    *table = (SampleTable){.label_max = FSH_NO_LABEL};
    for (size_t i = 0; i < side_count && i < FSH_FIELDS_MAX; i++) {
        names[i] = sides[i].name;
    }
    FshStatus status = fsh_table_name_fields(table, names, side_count, error);
    if (!status)
        status = fsh_lmdb_walk(sides[0].data, sides[0].data_bytes, visit, &first, error);
    if (status && side_count)
        (void)fsh_error_prepend(error, "%s", sides[0].name);
    if (!status && first.count > UINT32_MAX)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%zu samples", first.count);
    if (!status)
        status = add_first_side(table, &sides[0], &first, error);
    if (!status)
        sample_of_first = calloc(first.count + 1, sizeof *sample_of_first);
    if (!status && !sample_of_first)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (uint64_t i = 0; i < table->sample_count && !status; i++) {
        const SampleRow *row = fsh_table_row(table, i);
        sample_of_first[find_key(&first, (const char *)table->text.bytes + row->text_at, row->key_bytes)] =
            (uint32_t)i;
    }
    for (size_t i = 1; i < side_count && !status; i++) {
        entries.list.length = entries.count = 0;
        status = fsh_lmdb_walk(sides[i].data, sides[i].data_bytes, visit, &entries, error);
        if (status)
            (void)fsh_error_prepend(error, "%s", sides[i].name);
        else
            status = add_side(table, i, sides, &entries, sample_of_first, &first, error);
    }
    for (uint64_t i = 0; i < table->sample_count && !status && decode; i++) {
        SampleRow *row = fsh_table_row(table, i);
        row->key_bytes = (uint16_t)decode_key((char *)table->text.bytes + row->text_at, row->key_bytes);
    }
    free(sample_of_first);
    buffer_free(&first.list);
    buffer_free(&entries.list);
    if (status)
        fsh_table_free(table);
    return status;
}
