#include "tools/job/labels.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/file.h"

enum { LABELS_BYTES_MAX = 1 << 30 };

typedef enum Form { FORM_UNKNOWN, FORM_TABS, FORM_COMMAS, FORM_WORDS, FORM_LABEL_ONLY } Form;

/* For messages; indexed by Form. */
static const char *const form_words[] = {"", "NAME<tab>LABEL", "NAME,LABEL", "NAME LABEL", "LABEL"};

typedef struct Label {
    const char *name; /* "" in FORM_LABEL_ONLY */
    const char *label;
    uint64_t line;
} Label;

struct Labels {
    Buffer text; /* the file; names and labels point into it */
    Form form;
    Label *entries; /* by name, one for each; in FORM_LABEL_ONLY in the file's order */
    size_t count, capacity;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- one line: text that is cut up in place ---- */

/* Cuts blanks off both ends. */
static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* Cuts the first word off *rest, NULL where there is none. */
static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, " \t");
    if (!*word)
        return NULL;
    size_t length = strcspn(word, " \t");
    *rest = word + length + (word[length] != '\0');
    word[length] = '\0';
    return word;
}

static size_t count_words(const char *text)
{
    size_t count = 0;
    for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
        text += strcspn(text, " \t");
        count++;
    }
    return count;
}

/* Cuts the first column off *rest, which is NULL after the last. Returns it; NULL: quotes that do not close
 * or are doubled. */
static char *next_column(char **rest, char separator)
{
    char *column = *rest, *end = NULL;
    if (separator == ',' && *column == '"') {
        end = strchr(++column, '"');
        if (!end || (end[1] && end[1] != separator))
            return NULL;
        *end++ = '\0';
    } else {
        end = column + strcspn(column, separator == ',' ? "," : "\t");
    }
    *rest = *end ? end + 1 : NULL;
    *end = '\0';
    return trim(column);
}

/* Returns the length of the first word where the column is "WORD x y x y", once or more; 0 where it is not.
 * *same_ret: all words are the same. Kaggle's boxes: one for each object, in the validation set all of one
 * class. */
static size_t length_before_boxes(const char *column, bool *same_ret)
{
    enum { NUMBERS_OF_A_BOX = 4 };
    size_t first_bytes = strcspn(column, " \t"), words = 0;
    *same_ret = true;
    for (const char *word = column; *word; words++) {
        size_t bytes = strcspn(word, " \t");
        if (words % (NUMBERS_OF_A_BOX + 1) == 0)
            *same_ret = *same_ret && bytes == first_bytes && memcmp(word, column, bytes) == 0;
        else if (strspn(word, "0123456789.-") != bytes)
            return 0;
        word += bytes;
        word += strspn(word, " \t");
    }
    return words > 1 && words % (NUMBERS_OF_A_BOX + 1) == 0 ? first_bytes : 0;
}

/* ---- what is wrong with it ---- */

/* Returns why a label cannot name a class folder; NULL: it can. */
static const char *label_problem(const char *label)
{
    if (!*label)
        return "is empty";
    if (*label == '.')
        return "begins with \".\"";
    if (strlen(label) > NAME_MAX)
        return "is longer than a folder's name can be";
    for (const char *c = label; *c; c++) {
        if (*c == '/')
            return "holds \"/\"";
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            return "holds a control character";
    }
    return NULL;
}

static bool is_header(const char *name)
{
    static const char *const headers[] = {"file",     "file_name", "filename", "id",   "image",
                                          "image_id", "imageid",   "img",      "name", "path"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (strcasecmp(name, headers[i]) == 0)
            return true;
    return false;
}

static Form form_of(const char *line)
{
    if (strchr(line, '\t'))
        return FORM_TABS;
    if (strchr(line, ','))
        return FORM_COMMAS;
    return count_words(line) == 1 ? FORM_LABEL_ONLY : FORM_WORDS;
}

/* ---- reading ---- */

static FshStatus add(Labels *labels, Label entry, const char *path, FshError *error)
{
    const char *problem = label_problem(entry.label);
    if (problem)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %llu: the label \"%s\" %s", path,
                             (unsigned long long)entry.line, entry.label, problem);
    while (entry.name[0] == '.' && entry.name[1] == '/')
        entry.name += 2 + strspn(entry.name + 2, "/");
    if (labels->form != FORM_LABEL_ONLY && !*entry.name)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %llu: the name is empty", path,
                             (unsigned long long)entry.line);
    if (labels->count == labels->capacity) {
        size_t capacity = labels->capacity ? 2 * labels->capacity : 1024;
        Label *grown =
            capacity > SIZE_MAX / sizeof *grown ? NULL : realloc(labels->entries, capacity * sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        labels->entries = grown;
        labels->capacity = capacity;
    }
    labels->entries[labels->count++] = entry;
    return FSH_OK;
}

static FshStatus refuse_line(const Labels *labels, const char *path, uint64_t number, FshError *error)
{
    return fsh_error_set(
        error, FSH_ERR_CORRUPT, "%s: line %llu is not of the form %s, as the first line is%s", path,
        (unsigned long long)number, form_words[labels->form],
        labels->form == FORM_WORDS ? " (names with spaces need a tab before the label)" : "");
}

/* Takes name and label out of a line of columns. */
static FshStatus read_columns(Labels *labels, char *line, Label *entry, const char *path, FshError *error)
{
    char separator = labels->form == FORM_COMMAS ? ',' : '\t';
    char *name = next_column(&line, separator);
    char *label = name && line ? next_column(&line, separator) : NULL;
    if (!name || !label)
        return refuse_line(labels, path, entry->line, error);
    bool same = true;
    size_t label_bytes = length_before_boxes(label, &same);
    if (!same && label_bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %llu: boxes of different classes", path,
                             (unsigned long long)entry->line);
    if (label_bytes)
        label[label_bytes] = '\0';
    entry->name = name;
    entry->label = label;
    return FSH_OK;
}

static FshStatus read_line(Labels *labels, char *line, uint64_t number, const char *path, FshError *error)
{
    bool first = labels->form == FORM_UNKNOWN;
    if (first)
        labels->form = form_of(line);
    Label entry = {.name = "", .line = number};
    if (labels->form == FORM_TABS || labels->form == FORM_COMMAS) {
        FshStatus status = read_columns(labels, line, &entry, path, error);
        if (status || (first && is_header(entry.name)))
            return status;
    } else {
        if (count_words(line) != (labels->form == FORM_WORDS ? 2 : 1))
            return refuse_line(labels, path, number, error);
        if (labels->form == FORM_WORDS)
            entry.name = next_word(&line);
        entry.label = next_word(&line);
    }
    return add(labels, entry, path, error);
}

static FshStatus read_lines(Labels *labels, const char *path, FshError *error)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    char *text = (char *)labels->text.bytes, *end = text + labels->text.length;
    if (memchr(text, '\0', labels->text.length))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: is no text file", path);
    if (labels->text.length >= 3 && memcmp(text, byte_order_mark, 3) == 0)
        text += 3;
    *end = '\0';
    uint64_t number = 0, empty_line = 0;
    for (char *next = NULL; text < end; text = next) {
        char *line_end = memchr(text, '\n', (size_t)(end - text));
        line_end = line_end ? line_end : end;
        next = line_end + 1;
        *line_end = '\0';
        if (line_end > text && line_end[-1] == '\r')
            line_end[-1] = '\0';
        number++;
        char *line = text + strspn(text, " \t");
        if (!*line || *line == '#') {
            empty_line = *line || !labels->count ? empty_line : number;
            continue;
        }
        FshStatus status = read_line(labels, text, number, path, error);
        if (status)
            return status;
        if (labels->form == FORM_LABEL_ONLY && empty_line)
            return fsh_error_set(
                error, FSH_ERR_CORRUPT,
                "%s: line %llu is empty, and labels without names are told apart by their line alone", path,
                (unsigned long long)empty_line);
    }
    if (!labels->count)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: holds no label", path);
    return FSH_OK;
}

static int compare_labels(const void *a, const void *b)
{
    const Label *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : (left->line > right->line) - (left->line < right->line);
}

/* Sorts by name, leaves one entry of each. */
static FshStatus index_names(Labels *labels, const char *path, FshError *error)
{
    qsort(labels->entries, labels->count, sizeof *labels->entries, compare_labels);
    size_t kept = 0;
    for (size_t i = 1; i < labels->count; i++) {
        const Label *last = &labels->entries[kept], *entry = &labels->entries[i];
        if (strcmp(last->name, entry->name) != 0)
            labels->entries[++kept] = *entry;
        else if (strcmp(last->label, entry->label) != 0)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "%s: line %llu gives %s the label %s, and line %llu the label %s", path,
                                 (unsigned long long)entry->line, entry->name, entry->label,
                                 (unsigned long long)last->line, last->label);
    }
    labels->count = kept + 1;
    return FSH_OK;
}

FshStatus labels_load(Labels **labels, const char *path, FshError *error)
{
    *labels = NULL;
    Labels *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    FshStatus status = file_read_stream(path, LABELS_BYTES_MAX, &loaded->text, error);
    if (!status) /* for the NUL at the end */
        status = buffer_reserve(&loaded->text, loaded->text.length + 1, error);
    if (!status)
        status = read_lines(loaded, path, error);
    if (!status && loaded->form != FORM_LABEL_ONLY)
        status = index_names(loaded, path, error);
    if (status)
        labels_free(&loaded);
    *labels = loaded;
    return status;
}

/* ---- finding ---- */

/* A part of a path, not NUL-terminated. */
typedef struct Name {
    const char *start;
    size_t bytes;
} Name;

static int compare_name(const void *key, const void *entry)
{
    const Name *name = key;
    const char *other = ((const Label *)entry)->name;
    int order = strncmp(name->start, other, name->bytes);
    return order ? order : -(other[name->bytes] != '\0');
}

static const char *find_name(const Labels *labels, const char *start, const char *end)
{
    Name name = {start, (size_t)(end - start)};
    const Label *found =
        bsearch(&name, labels->entries, labels->count, sizeof *labels->entries, compare_name);
    return found ? found->label : NULL;
}

/* Returns the label with the number that the name ends in; NULL: there is none. */
static const char *find_number(const Labels *labels, const char *name, const char *end)
{
    const char *digits = end;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    size_t number = 0;
    for (const char *digit = digits; digit < end && number <= labels->count; digit++)
        number = 10 * number + (size_t)(*digit - '0');
    return number >= 1 && number <= labels->count ? labels->entries[number - 1].label : NULL;
}

const char *labels_find(const Labels *labels, const char *path)
{
    while (path[0] == '.' && path[1] == '/')
        path += 2 + strspn(path + 2, "/");
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *end = path + strlen(path), *dot = strrchr(name, '.');
    const char *stem_end = dot && dot > name ? dot : end;
    if (labels->form == FORM_LABEL_ONLY)
        return find_number(labels, name, stem_end);
    const char *found = find_name(labels, path, end);
    if (!found)
        found = find_name(labels, path, stem_end);
    if (!found)
        found = find_name(labels, name, end);
    if (!found)
        found = find_name(labels, name, stem_end);
    return found;
}

bool labels_have_names(const Labels *labels)
{
    return labels->form != FORM_LABEL_ONLY;
}

void labels_free(Labels **labels)
{
    if (!*labels)
        return;
    buffer_free(&(*labels)->text);
    free((*labels)->entries);
    free(*labels);
    *labels = NULL;
}
