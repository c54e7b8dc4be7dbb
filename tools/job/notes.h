/* notes.h - what did not go into the dataset, and why: a list of (path, reason).
 *
 * A list belongs to one thread at a time. */
#ifndef FSHARD_TOOLS_JOB_NOTES_H
#define FSHARD_TOOLS_JOB_NOTES_H

#include <stddef.h>

#include "common/error.h"

typedef struct Note {
    FshStatus status; /* the kind of reason; FSH_OK in a warning */
    char *path;       /* relative to the source; "" where it is about the whole */
    char *reason;     /* "premature end of JPEG data" */
} Note;

typedef struct NoteList {
    Note *items; /* owned, and their strings */
    size_t count, capacity;
} NoteList;

/* Copies path and reason. FSH_ERR_MEMORY. */
FshStatus notes_add(NoteList *list, FshStatus status, const char *path, const char *reason, FshError *error);

/* As notes_add with the reason made from a format. */
FshStatus notes_addf(NoteList *list, FshStatus status, FshError *error, const char *path, const char *format,
                     ...) FSH_PRINTF(5, 6);

/* Frees and empties. */
void notes_free(NoteList *list);

#endif
