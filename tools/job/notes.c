#include "tools/job/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FshStatus notes_add(NoteList *list, FshStatus status, const char *path, const char *reason, FshError *error)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        Note *items = reallocarray(list->items, capacity, sizeof *items);
        if (!items)
            goto out_of_memory;
        list->items = items;
        list->capacity = capacity;
    }
    Note note = {.status = status, .path = strdup(path), .reason = strdup(reason)};
    if (!note.path || !note.reason) {
        free(note.path);
        free(note.reason);
        goto out_of_memory;
    }
    list->items[list->count++] = note;
    return FSH_OK;

out_of_memory:
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

FshStatus notes_addf(NoteList *list, FshStatus status, FshError *error, const char *path, const char *format,
                     ...)
{
    char *reason = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&reason, format, arguments);
    va_end(arguments);
    if (length < 0)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    FshStatus result = notes_add(list, status, path, reason, error);
    free(reason);
    return result;
}

void notes_free(NoteList *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].path);
        free(list->items[i].reason);
    }
    free(list->items);
    *list = (NoteList){0};
}
