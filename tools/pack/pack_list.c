/* pack_list.c - --files-from: a list of images and their labels, in the order that it has.
 *
 * A line is a path below the source, a tab, and a label: a name, or a number where all of them are. Further
 * columns are passed over. What stands in the list and cannot be used is told, and left out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/path.h"
#include "tools/pack/pack_keyed.h"

enum { LIST_BYTES_MAX = 1 << 30 };

typedef struct Line {
    char *path; /* as written, then relative to the source; in the list's text */
    const char *label;
    uint64_t number; /* from 1 */
} Line;

typedef struct List {
    const char *name; /* for messages */
    Buffer text;
    Line *lines;
    uint64_t count;
    FshStatus *failures; /* of each line, after looking */
    int *errnos;
} List;

/* ---- reading ---- */

static FshStatus read_text(List *list, const char *path, FshError *error)
{
    FshStatus status = file_read_stream(path, LIST_BYTES_MAX, &list->text, error);
    if (!status && memchr(list->text.bytes, '\0', list->text.length))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: is no text", list->name);
    return status ? status : buffer_append(&list->text, "\n", 2, error); /* and a NUL */
}

static char *trim(char *text)
{
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length && text[length - 1] == ' ')
        text[--length] = '\0';
    return text;
}

static FshStatus read_line(List *list, char *line, uint64_t number, FshError *error)
{
    char *tab = strchr(line, '\t');
    if (!tab)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %llu has no tab: a line is PATH<tab>LABEL",
                             list->name, (unsigned long long)number);
    *tab = '\0';
    char *label = tab + 1;
    label[strcspn(label, "\t")] = '\0';
    label = trim(label);
    if (!*label || !*line)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %llu has no %s", list->name,
                             (unsigned long long)number, *line ? "label" : "path");
    list->lines[list->count++] = (Line){.path = line, .label = label, .number = number};
    return FSH_OK;
}

static FshStatus read_lines(List *list, FshError *error)
{
    char *text = (char *)list->text.bytes;
    uint64_t most = 0, number = 0;
    FshStatus status = FSH_OK;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        most++;
    list->lines = calloc(most + 1, sizeof *list->lines);
    list->failures = calloc(most + 1, sizeof *list->failures);
    list->errnos = calloc(most + 1, sizeof *list->errnos);
    if (!list->lines || !list->failures || !list->errnos)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", list->name);
    for (char *line = text, *end = NULL; !status && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        number++;
        if (end > line && end[-1] == '\r')
            end[-1] = '\0';
        if (*line)
            status = read_line(list, line, number, error);
    }
    if (!status && list->count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: the list is empty", list->name);
    return status;
}

/* ---- paths ---- */

/* Drops "." parts and doubled slashes, in place; false where the path leads outside, or nowhere. */
static bool normalise(char *path)
{
    if (!path || *path == '/' || path_goes_up(path))
        return false;
    path_clean(path);
    return *path != '\0';
}

/* Returns the relative path of a full path below the source; others as they are. */
static char *below(char *path, const char *root)
{
    const size_t length = strlen(root);
    const bool ends = length && root[length - 1] == '/'; /* "/", the root of all */
    return path && strncmp(path, root, length) == 0 && (ends || path[length] == '/')
               ? path + length + strspn(path + length, "/")
               : path;
}

/* For sorting. */
typedef struct LinePlace {
    const Line *line;
} LinePlace;

static int compare_lines(const void *a, const void *b)
{
    const Line *left = ((const LinePlace *)a)->line, *right = ((const LinePlace *)b)->line;
    int order = strcmp(left->path, right->path);
    return order ? order : (left->number > right->number) - (left->number < right->number);
}

/* Finds lines whose path an earlier line has: one image is one sample. first_ret[i]: the number of that line,
 * 0 where there is none. */
static FshStatus find_repeated(const List *list, uint64_t *first_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    LinePlace *sorted = calloc(list->count + 1, sizeof *sorted);
    if (!sorted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", list->name);
    for (uint64_t i = 0; i < list->count; i++)
        sorted[i].line = &list->lines[i];
    qsort(sorted, list->count, sizeof *sorted, compare_lines);
    const Line *first = sorted[0].line;
    for (uint64_t i = 1; i < list->count && !status; i++) {
        const Line *line = sorted[i].line;
        if (strcmp(line->path, first->path) != 0)
            first = line;
        else if (strcmp(line->label, first->label) != 0)
            status = fsh_error_set(error, FSH_ERR_CORRUPT,
                                   "%s: line %llu gives %s the label %s, and line %llu the label %s",
                                   list->name, (unsigned long long)line->number, line->path, line->label,
                                   (unsigned long long)first->number, first->label);
        else
            first_ret[line - list->lines] = first->number;
    }
    free(sorted);
    return status;
}

/* ---- files ---- */

typedef struct LookJob {
    PackFound *found;
    List *list;
} LookJob;

static FshStatus look(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    (void)error;
    const LookJob *job = context;
    List *list = job->list;
    FileEntry *file = &job->found->files.files[item];
    struct stat facts;
    if (list->failures[item])
        return FSH_OK;
    if (fstatat(job->found->folder, file->path, &facts, 0)) {
        const bool stays = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP;
        list->failures[item] = stays ? FSH_ERR_NOT_FOUND : FSH_ERR_SYSTEM;
        list->errnos[item] = errno;
    } else if (!S_ISREG(facts.st_mode)) {
        list->failures[item] = FSH_ERR_UNSUPPORTED;
    } else {
        file->bytes = (uint64_t)facts.st_size;
        file->modified_ns = file_time_ns(facts.st_mtim);
    }
    return FSH_OK;
}

static FshStatus note_failure(PackFound *found, const List *list, uint64_t i, uint64_t first, FshError *error)
{
    const Line *line = &list->lines[i];
    const FshStatus failure = first ? FSH_ERR_EXISTS : list->failures[i];
    char reason[256];
    if (first)
        (void)snprintf(reason, sizeof reason, "is in line %llu of the list already",
                       (unsigned long long)first);
    else if (failure == FSH_ERR_MISMATCH)
        (void)snprintf(reason, sizeof reason, "leads outside of the source");
    else if (failure == FSH_ERR_UNSUPPORTED)
        (void)snprintf(reason, sizeof reason, "is no file");
    else if (list->errnos[i] == ENOENT || list->errnos[i] == ENOTDIR)
        (void)snprintf(reason, sizeof reason, "is not there");
    else
        (void)snprintf(reason, sizeof reason, "cannot be read: %s", strerror(list->errnos[i]));
    return notes_addf(&found->notes->left_out, failure, error, line->path, "line %llu of %s: %s",
                      (unsigned long long)line->number, list->name, reason);
}

/* Returns a listed path as it is below the source: `find SRC` gives SRC with each. A relative path is taken
 * to begin with SRC only if SRC/path is not there. root: SRC as the system has it; "": that is not known. */
static char *drop_source(const PackFound *found, char *path, const char *root)
{
    struct stat facts;
    if (!path || *path == '/')
        return *root ? below(path, root) : path;
    char *rest = below(path, found->options->source);
    return rest == path || !*rest || fstatat(found->folder, path, &facts, 0) == 0 ? path : rest;
}

/* Takes the files of the list, in its order, as a walk would have listed them. */
static FshStatus take_files(PackFound *found, List *list, FshError *error)
{
    char root[PATH_MAX];
    if (!realpath(found->root, root))
        root[0] = '\0';
    found->files.files = calloc(list->count + 1, sizeof *found->files.files);
    found->files.count = found->item_count = list->count;
    if (!found->files.files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", list->name);
    for (uint64_t i = 0; i < list->count; i++) {
        Line *line = &list->lines[i];
        line->path = drop_source(found, line->path, root);
        list->failures[i] = normalise(line->path) ? FSH_OK : FSH_ERR_MISMATCH;
        found->files.files[i].path = line->path;
    }
    LookJob job = {.found = found, .list = list};
    return pool_run(found->options->jobs, list->count, look, &job, error);
}

/* Marks what cannot be used, and keeps the labels of the others. */
static FshStatus take_labels(PackFound *found, const List *list, FshError *error)
{
    uint64_t *first = calloc(list->count + 1, sizeof *first);
    found->list_labels = calloc(list->count + 1, sizeof *found->list_labels);
    FshStatus status = first && found->list_labels
                           ? find_repeated(list, first, error)
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", list->name);
    for (uint64_t i = 0; i < list->count && !status; i++) {
        if (first[i] || list->failures[i])
            status = note_failure(found, list, i, first[i], error);
        else
            found->list_labels[i] = list->lines[i].label;
    }
    free(first);
    return status;
}

static const char *list_name(const PackOptions *options)
{
    return strcmp(options->files_from, "-") == 0 ? "standard input" : options->files_from;
}

FshStatus find_list(PackFound *found, FshError *error)
{
    const PackOptions *options = found->options;
    List list = {.name = list_name(options)};
    FshStatus status = read_text(&list, options->files_from, error);
    if (!status)
        status = read_lines(&list, error);
    if (!status)
        status = take_files(found, &list, error);
    if (!status)
        status = take_labels(found, &list, error);
    found->list_text = list.text; /* paths and labels point into it */
    free(list.lines);
    free(list.failures);
    free(list.errnos);
    return status;
}

/* ---- samples ---- */

FshStatus key_list(PackKeyed *keyed, FshError *error)
{
    const PackFound *found = keyed->found;
    const char *name = list_name(keyed->found->options);
    FshStatus status = keyed_reserve(keyed, found->files.count, error);
    const char **texts = status ? NULL : calloc(found->files.count + 1, sizeof *texts);
    if (!status && !texts)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    for (uint64_t i = 0; i < found->files.count && !status; i++) {
        const char *path = found->files.files[i].path, *slash = strchr(path, '/');
        if (!found->list_labels[i])
            continue;
        const PackSplitIndex split = slash ? pack_split_by_name(path, (size_t)(slash - path)) : PACK_SPLITS;
        const char *key = split == PACK_SPLITS ? path : slash + 1;
        texts[keyed->sample_count] = found->list_labels[i];
        keyed_add_sample(keyed, key, pack_stem_bytes(key), 0, split == PACK_SPLITS ? PACK_TRAIN : split, &i);
    }
    if (!status)
        status = key_label_by_texts(keyed, texts, name, error);
    if (!status)
        status = key_mend(keyed, error);
    if (!status && keyed->sample_count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: none of the files in it (%llu) can be packed; paths are below %s", name,
                               (unsigned long long)found->files.count, found->root);
    free((void *)texts);
    return status;
}
