#include "tools/pack/pack_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void names_free(NameList *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    *list = (NameList){0};
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

FshStatus names_take(NameList *list, char *name, FshError *error)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        char **names = reallocarray(list->names, capacity, sizeof *names);
        if (!names) {
            free(name);
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for names");
        }
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count++] = name;
    return FSH_OK;
}

FshStatus names_add(NameList *list, const char *name, FshError *error)
{
    char *copy = strdup(name);
    return copy ? names_take(list, copy, error)
                : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
}

FshStatus names_add_numbers(NameList *list, uint64_t count, const char *what, FshError *error)
{
    FshStatus status = FSH_OK;
    if (count > NAMES_NUMBERS_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: label %llu: numbers of classes are below %d", what,
                             (unsigned long long)count - 1, NAMES_NUMBERS_MAX);
    for (uint64_t i = 0; i < count && !status; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%llu", (unsigned long long)i);
        status = names_add(list, name, error);
    }
    return status;
}

void names_sort(NameList *list)
{
    if (list->count)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
}

bool names_find(const NameList *list, const char *name, size_t *index_ret)
{
    char **found =
        list->count ? bsearch(&name, list->names, list->count, sizeof *list->names, compare_names) : NULL;
    if (found && index_ret)
        *index_ret = (size_t)(found - list->names);
    return found != NULL;
}

bool names_parse_number(const char *text, uint64_t *number_ret)
{
    const size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 7 || text[length] || (text[0] == '0' && length > 1))
        return false;
    *number_ret = strtoull(text, NULL, 10);
    return *number_ret < NAMES_NUMBERS_MAX;
}
