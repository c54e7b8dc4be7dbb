#include "common/display_names.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"

enum { FILE_BYTES_MAX = 64 << 20, NAME_BYTES_MAX = 1024 };

/* A class that the file names; texts are not NUL-terminated. */
typedef struct Told {
    const char *id, *name; /* id NULL: named by place only */
    size_t id_bytes, name_bytes;
    size_t place;
} Told;

typedef struct Table {
    Told *items;
    size_t count;
    bool is_list; /* every line, or entry, is a name, and its place says of which class */
} Table;

/* ---- text ---- */

static Told read_line(const char *line, size_t bytes, size_t place)
{
    while (bytes && isspace((unsigned char)line[bytes - 1]))
        bytes--;
    while (bytes && isspace((unsigned char)*line)) {
        line++;
        bytes--;
    }
    const char *tab = memchr(line, '\t', bytes);
    size_t id_bytes = tab ? (size_t)(tab - line) : 0;
    while (!tab && id_bytes < bytes && line[id_bytes] != ' ' && line[id_bytes] != ',')
        id_bytes++;
    size_t begin = id_bytes + (id_bytes < bytes);
    while (begin < bytes && isspace((unsigned char)line[begin]))
        begin++;
    return (Told){
        .id = line, .id_bytes = id_bytes, .name = line + begin, .name_bytes = bytes - begin, .place = place};
}

/* Reads lines of the form ID NAME, ID<tab>NAME or ID,NAME. whole: each line is a name. gapless: an empty line
 * before the last is an error, for those after it would name others. */
static FshStatus read_lines(const char *path, const char *text, size_t bytes, bool whole, bool gapless,
                            Table *table, FshError *error)
{
    size_t most = 1, place = 0, line = 0, gap = 0;
    for (size_t i = 0; i < bytes; i++)
        most += text[i] == '\n';
    free(table->items);
    *table = (Table){.items = calloc(most, sizeof *table->items), .is_list = whole};
    if (!table->items)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    for (size_t at = 0, end; at < bytes; at = end + 1) {
        const char *line_end = memchr(text + at, '\n', bytes - at);
        end = line_end ? (size_t)(line_end - text) : bytes;
        Told told = read_line(text + at, end - at, place);
        const size_t length = told.name_bytes + (size_t)(told.name - told.id);
        line++;
        if (!length) {
            gap = gap ? gap : line;
            continue;
        }
        if (gapless && gap)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "%s: line %zu is empty, and the lines of a list name the values 0, 1, 2, …; "
                                 "take it away, or write there what the value %zu is called",
                                 path, gap, gap - 1);
        if (whole)
            told = (Told){.name = told.id, .name_bytes = length, .place = place};
        table->items[table->count++] = told;
        place++;
    }
    return FSH_OK;
}

/* ---- JSON ---- */

static Told told_by(const char *id, const json_t *name, size_t place)
{
    return (Told){.id = id,
                  .id_bytes = id ? strlen(id) : 0,
                  .name = json_string_value(name),
                  .name_bytes = json_string_length(name),
                  .place = place};
}

/* Adds an entry, which is a name or a list of id and name. Returns false if it is neither. */
static bool add_entry(Table *table, const char *key, const json_t *value, size_t place)
{
    const json_t *first = json_array_get(value, 0), *second = json_array_get(value, 1);
    if (json_is_string(value))
        table->items[table->count++] = told_by(key, value, place);
    else if (json_is_string(first) && json_is_string(second))
        table->items[table->count++] = told_by(json_string_value(first), second, place);
    else
        return false;
    return true;
}

/* Returns whether key is a place: digits only, a number below count; sets *place_ret. */
static bool is_place(const char *key, size_t count, size_t *place_ret)
{
    char *end = NULL;
    const unsigned long long number = isdigit((unsigned char)*key) ? strtoull(key, &end, 10) : 0;
    *place_ret = (size_t)number;
    return end && !*end && number < count;
}

static FshStatus read_json(const char *path, json_t *root, Table *table, FshError *error)
{
    const size_t count = json_is_array(root) ? json_array_size(root) : json_object_size(root);
    bool good = true, places = true;
    *table = (Table){.items = calloc(count + 1, sizeof *table->items)};
    if (!table->items)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; json_is_array(root) && i < count && good; i++)
        good = add_entry(table, NULL, json_array_get(root, i), i);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        size_t place = 0;
        places = is_place(key, count, &place) && places;
        good = good && add_entry(table, key, value, place);
    }
    if (!good)
        return fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "%s: an entry is neither a name nor a list of id and name, as {\"0\": [\"n01440764\", "
            "\"tench\"]} has them",
            path);
    table->is_list = places;
    return FSH_OK;
}

/* ---- matching ---- */

static int compare_told(const void *a, const void *b)
{
    const Told *left = a, *right = b;
    const size_t shorter = left->id_bytes < right->id_bytes ? left->id_bytes : right->id_bytes;
    const int order = shorter ? memcmp(left->id, right->id, shorter) : 0;
    return order ? order : (left->id_bytes > right->id_bytes) - (left->id_bytes < right->id_bytes);
}

static FshStatus keep_name(const char *path, const Told *told, char **name, size_t *named, FshError *error)
{
    for (size_t i = 0; i < told->name_bytes; i++) {
        if ((unsigned char)told->name[i] < ' ' || told->name[i] == 0x7f)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "%s: the name of class %zu holds a control character", path, told->place);
    }
    if (told->name_bytes > NAME_BYTES_MAX)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: the name of class %zu takes more than %d bytes",
                             path, told->place, NAME_BYTES_MAX);
    json_t *text = json_stringn(told->name, told->name_bytes);
    if (!text)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: the name of class %zu is not UTF-8", path,
                             told->place);
    json_decref(text);
    *name = strndup(told->name, told->name_bytes);
    *named += told->name_bytes > 0;
    return *name ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

/* Gives each class the name of its id in the table; of two entries for one class the first in the file
 * counts. */
static FshStatus name_by_id(const char *path, Table *table, char *const *ids, size_t count, char **names,
                            size_t *named, FshError *error)
{
    Told *sorted = calloc(table->count + 1, sizeof *sorted);
    size_t known = 0;
    FshStatus status = FSH_OK;
    if (!sorted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < table->count; i++) {
        if (table->items[i].id && table->items[i].name_bytes)
            sorted[known++] = table->items[i];
    }
    if (known)
        qsort(sorted, known, sizeof *sorted, compare_told);
    for (size_t i = 0; i < count && !status && known; i++) {
        const Told wanted = {.id = ids[i], .id_bytes = strlen(ids[i])};
        const Told *found = bsearch(&wanted, sorted, known, sizeof *sorted, compare_told);
        while (found && found > sorted && compare_told(found - 1, &wanted) == 0)
            found--;
        if (found)
            status = keep_name(path, found, &names[i], named, error);
    }
    free(sorted);
    return status;
}

static FshStatus name_by_place(const char *path, const Table *table, char **names, size_t *named,
                               FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < table->count && !status; i++) {
        free(names[table->items[i].place]);
        names[table->items[i].place] = NULL;
        status = keep_name(path, &table->items[i], &names[table->items[i].place], named, error);
    }
    return status;
}

static FshStatus fill(char **names, size_t count, FshError *error)
{
    for (size_t i = 0; i < count; i++) {
        if (!names[i] && !(names[i] = calloc(1, 1)))
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of classes");
    }
    return FSH_OK;
}

/* Does what display_names_read does; fewer: a list by place may have fewer names than there are ids,
 * so that its length does not tell of an empty line in it. */
static FshStatus read_names(const char *path, char *const *ids, size_t count, bool by_place, bool fewer,
                            char ***names_ret, size_t *named_ret, FshError *error)
{
    Buffer text = {0};
    Table table = {0};
    json_error_t where;
    json_t *root = NULL;
    char **names = calloc(count + 1, sizeof(char *));
    *names_ret = NULL;
    *named_ret = 0;
    FshStatus status = names ? file_read_stream(path, FILE_BYTES_MAX, &text, error)
                             : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (status)
        goto done;
    const char *bytes = (const char *)text.bytes;
    size_t begin = text.length >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    const char *lines = bytes + begin;
    const size_t lines_bytes = text.length - begin;
    while (begin < text.length && isspace((unsigned char)bytes[begin]))
        begin++;
    const bool is_json = begin < text.length && (bytes[begin] == '{' || bytes[begin] == '[');
    if (is_json) {
        root = json_text_load(lines, lines_bytes, 0, &where);
        status = root
                     ? read_json(path, root, &table, error)
                     : fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %d: %s", path, where.line, where.text);
    } else {
        status = read_lines(path, lines, lines_bytes, false, false, &table, error);
    }
    if (!status)
        status = name_by_id(path, &table, ids, count, names, named_ret, error);
    if (!status && !*named_ret && by_place && !is_json)
        status = read_lines(path, lines, lines_bytes, true, fewer, &table, error);
    if (!status && !*named_ret && by_place && table.is_list &&
        (table.count == count || (fewer && table.count < count)))
        status = name_by_place(path, &table, names, named_ret, error);
    if (!status && !*named_ret && by_place)
        status = fsh_error_set(
            error, FSH_ERR_CORRUPT,
            "%s: names none of the classes (%s%s%s): no id of theirs is in it, and %zu entries are "
            "no list of %zu",
            path, count ? ids[0] : "", count > 1 ? ", " : "", count > 1 ? ids[1] : "", table.count, count);
    if (!status)
        status = fill(names, count, error);
done:
    buffer_free(&text);
    free(table.items);
    json_decref(root);
    if (status) {
        display_names_free(names, count);
        names = NULL;
    }
    *names_ret = names;
    return status;
}

FshStatus display_names_read(const char *path, char *const *ids, size_t count, bool by_place,
                             char ***names_ret, size_t *named_ret, FshError *error)
{
    return read_names(path, ids, count, by_place, false, names_ret, named_ret, error);
}

/* Refuses two values of one name. */
static FshStatus check_differ(const char *path, char *const *names, size_t count, FshError *error)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return fsh_error_set(error, FSH_ERR_CORRUPT,
                                     "%s: the values %zu and %zu are both called '%s'", path, k, i, names[i]);
    return FSH_OK;
}

FshStatus display_names_of_values(const char *path, size_t most, char ***names_ret, size_t *count_ret,
                                  FshError *error)
{
    char numbers[256][4], *ids[256] = {NULL};
    size_t named = 0, count = 0;
    most = most > 256 ? 256 : most;
    for (size_t i = 0; i < most; i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "%u", (unsigned)i & 255U);
        ids[i] = numbers[i];
    }
    *count_ret = 0;
    FshStatus status = read_names(path, ids, most, true, true, names_ret, &named, error);
    char **names = *names_ret;
    for (size_t i = 0; i < most && !status; i++)
        count = names[i][0] ? i + 1 : count;
    for (size_t i = 0; i < count && !status; i++) {
        if (names[i][0])
            continue;
        free(names[i]);
        names[i] = strdup(ids[i]);
        if (!names[i])
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    if (!status)
        status = check_differ(path, names, count, error);
    if (status) {
        display_names_free(names, most);
        *names_ret = NULL;
        return status;
    }
    for (size_t i = count; i < most; i++) {
        free(names[i]);
        names[i] = NULL;
    }
    *count_ret = count;
    return FSH_OK;
}

void display_names_free(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}
