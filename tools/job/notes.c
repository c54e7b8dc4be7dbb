#include "tools/job/notes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"
#include "common/program.h"

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

void note_print(FILE *stream, const char *before, const char *path, const char *reason, const char *after)
{
    (void)fprintf(stream, "%s: ", before);
    program_print_text(stream, path);
    (void)fputs(": ", stream);
    program_print_text(stream, reason);
    (void)fputs(after, stream);
}

json_t *note_json(const char *kind, const char *path, const char *reason)
{
    return json_pack("{s:s, s:o, s:o}", "kind", kind, "path", json_text(path), "reason", json_text(reason));
}

void note_tell_left_out(NoteTeller *teller, const char *path, const char *reason)
{
    enum { SHOWN = 100 };
    teller->count++;
    if (teller->count <= SHOWN || teller->verbose)
        note_print(stderr, teller->program, path, reason, "; left out\n");
    else if (teller->count == SHOWN + 1)
        (void)fprintf(stderr, "%s: and more, not shown: --report lists them all, --verbose shows them\n",
                      teller->program);
}
