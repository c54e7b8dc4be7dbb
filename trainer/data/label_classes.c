#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "trainer/data/label_file.h"

enum { LIST_BYTES_MAX = 64 << 20 };

/* A class as a file, or the list, names it. */
typedef struct NamedClass {
    const char *name; /* borrowed */
    size_t mention;   /* its place among all that are named */
    size_t number;    /* of the class; set by number_classes */
} NamedClass;

void label_names_free(LabelNames *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (LabelNames){0};
}

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of classes");
}

/* ---- orders ---- */

static int compare_bytes(const void *a, const void *b)
{
    return strcmp(((const NamedClass *)a)->name, ((const NamedClass *)b)->name);
}

static int compare_mentions(const void *a, const void *b)
{
    const size_t left = ((const NamedClass *)a)->mention, right = ((const NamedClass *)b)->mention;
    return left < right ? -1 : left > right;
}

static int compare_numbers(const void *a, const void *b)
{
    const char *left = ((const NamedClass *)a)->name, *right = ((const NamedClass *)b)->name;
    const unsigned long long x = strtoull(left, NULL, 10), y = strtoull(right, NULL, 10);
    return x < y ? -1 : x > y ? 1 : strcmp(left, right);
}

static bool is_whole_number(const char *name)
{
    enum { DIGITS_MAX = 18 };
    const size_t digits = strspn(name, "0123456789");
    return digits > 0 && digits <= DIGITS_MAX && !name[digits];
}

/* ---- the list ---- */

/* Reads a list of names, a line for each, in their order. */
static FshStatus read_list(const char *path, LabelNames *names, FshError *error)
{
    Buffer text = {0};
    FshStatus status = file_read_most(path, LIST_BYTES_MAX, &text, error);
    size_t most = 1;
    for (size_t i = 0; i < text.length && !status; i++)
        most += text.bytes[i] == '\n';
    *names = (LabelNames){.names = status ? NULL : calloc(most, sizeof *names->names)};
    if (!status && !names->names)
        status = out_of_memory(error);
    const char *at = (const char *)text.bytes, *end = at + text.length;
    while (!status && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at)), *next = line_end ? line_end + 1 : end;
        const char *stop = line_end ? line_end : end;
        at = text_skip_blanks(at, stop);
        while (stop > at && text_is_blank(stop[-1]))
            stop--;
        char *name = stop > at ? text_copy(at, (size_t)(stop - at)) : NULL;
        if (name)
            names->names[names->count++] = name;
        else if (stop > at)
            status = out_of_memory(error);
        at = next;
    }
    buffer_free(&text);
    if (!status && !names->count)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: names no class", path);
    return status;
}

/* ---- settling ---- */

/* Checks that the files say things of one kind. */
static FshStatus check_alike(LabelFile *files, size_t count, FshError *error)
{
    for (size_t i = 1; i < count; i++) {
        LabelFile *first = &files[0], *other = &files[i];
        const bool numbers = first->kind == LABELS_NUMBERS;
        bool same = numbers == (other->kind == LABELS_NUMBERS);
        for (size_t k = 0; same && numbers && k < first->own.count; k++)
            same =
                first->own.count == other->own.count && strcmp(first->own.names[k], other->own.names[k]) == 0;
        if (!same)
            return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: its labels are not like those of %s: %s",
                                 other->path, first->path,
                                 numbers && other->kind == LABELS_NUMBERS ? "other columns"
                                                                          : "numbers and classes");
        if (first->kind != other->kind) /* one class at a time here, several there */
            first->kind = other->kind = LABELS_MANY;
    }
    return FSH_OK;
}

/* Lists what all files name, by their names and each once, with the place of its first mention. */
static size_t list_once(const LabelFile *files, size_t count, NamedClass *classes)
{
    size_t mentions = 0, once = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < files[i].own.count; k++, mentions++)
            classes[mentions] = (NamedClass){.name = files[i].own.names[k], .mention = mentions};
    qsort(classes, mentions, sizeof *classes, compare_bytes);
    for (size_t i = 0; i < mentions; i++) {
        if (once && strcmp(classes[once - 1].name, classes[i].name) == 0) {
            if (classes[i].mention < classes[once - 1].mention)
                classes[once - 1].mention = classes[i].mention;
            continue;
        }
        classes[once++] = classes[i];
    }
    return once;
}

/* Copies the names in the order in which the classes stand. */
static FshStatus copy_names(const NamedClass *classes, size_t count, LabelNames *names, FshError *error)
{
    names->names = calloc(count + 1, sizeof *names->names);
    for (size_t i = 0; names->names && i < count; i++) {
        names->names[i] = text_copy(classes[i].name, strlen(classes[i].name));
        if (!names->names[i])
            return out_of_memory(error);
        names->count++;
    }
    return names->names ? FSH_OK : out_of_memory(error);
}

/* Sets names to those of the classes in their order. classes: by their names. */
static FshStatus order_names(const LabelFile *files, NamedClass *classes, size_t count, LabelNames *names,
                             FshError *error)
{
    bool numbers = true;
    for (size_t i = 0; i < count; i++)
        numbers = numbers && is_whole_number(classes[i].name);
    if (files->columns)
        qsort(classes, count, sizeof *classes, compare_mentions);
    else if (numbers)
        qsort(classes, count, sizeof *classes, compare_numbers);
    return copy_names(classes, count, names, error);
}

/* Replaces the members of a file, places among its own names, by those among names. index: of names, by their
 * bytes. */
static FshStatus renumber(LabelFile *file, const NamedClass *index, size_t count, const char *list,
                          FshError *error)
{
    uint32_t *places = calloc(file->own.count + 1, sizeof *places);
    FshStatus status = places ? FSH_OK : out_of_memory(error);
    for (size_t i = 0; i < file->own.count && !status; i++) {
        const NamedClass wanted = {.name = file->own.names[i]};
        const NamedClass *found = bsearch(&wanted, index, count, sizeof *index, compare_bytes);
        if (found)
            places[i] = (uint32_t)found->number;
        else
            status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: the class '%.200s' is not in %s", file->path,
                                   wanted.name, list);
    }
    for (uint64_t i = 0; i < file->member_count && !status; i++)
        file->members[i] = places[file->members[i]];
    free(places);
    return status;
}

/* Lists the names by their bytes, with their numbers. FSH_ERR_CORRUPT: one is there twice. */
static FshStatus index_names(const LabelNames *names, const char *list, NamedClass *index, FshError *error)
{
    for (size_t i = 0; i < names->count; i++)
        index[i] = (NamedClass){.name = names->names[i], .mention = i, .number = i};
    qsort(index, names->count, sizeof *index, compare_bytes);
    for (size_t i = 1; i < names->count; i++)
        if (strcmp(index[i - 1].name, index[i].name) == 0)
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: names the class '%.200s' twice",
                                 list ? list : "labels", index[i].name);
    return FSH_OK;
}

FshStatus label_files_settle(LabelFile *files, size_t count, const char *list, LabelNames *names_ret,
                             FshError *error)
{
    size_t most = 0;
    *names_ret = (LabelNames){0};
    FshStatus status = check_alike(files, count, error);
    for (size_t i = 0; i < count; i++)
        most += files[i].own.count;
    NamedClass *classes = calloc(most + 1, sizeof *classes), *index = NULL;
    if (!status && !classes)
        status = out_of_memory(error);
    if (!status && list && files->kind == LABELS_NUMBERS)
        status = fsh_error_set(error, FSH_ERR_USAGE, "--label-names: numbers have no classes");
    if (!status && list)
        status = read_list(list, names_ret, error);
    else if (!status)
        status = order_names(files, classes, list_once(files, count, classes), names_ret, error);
    if (!status) {
        index = calloc(names_ret->count + 1, sizeof *index);
        status = index ? index_names(names_ret, list, index, error) : out_of_memory(error);
    }
    for (size_t i = 0; i < count && !status; i++)
        status = renumber(&files[i], index, names_ret->count, list, error);
    free(classes);
    free(index);
    if (status)
        label_names_free(names_ret);
    return status;
}
