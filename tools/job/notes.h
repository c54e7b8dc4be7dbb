/* notes.h - what was left out, or found fault with, and why: (path, reason, kind), in a list, as a line for
 * people and as JSON.
 *
 * A list or a teller belongs to one thread at a time. */
#ifndef FSHARD_TOOLS_JOB_NOTES_H
#define FSHARD_TOOLS_JOB_NOTES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* Appends a note; path and reason are copied. FSH_ERR_MEMORY. */
FshStatus notes_add(NoteList *list, FshStatus status, const char *path, const char *reason, FshError *error);

/* Does what notes_add does, with a reason that is made from a format. */
FshStatus notes_addf(NoteList *list, FshStatus status, FshError *error, const char *path, const char *format,
                     ...) FSH_PRINTF(5, 6);

/* Frees what the list holds, and empties it. */
void notes_free(NoteList *list);

/* Prints "BEFORE: PATH: REASON" + after, control characters as "?". */
void note_print(FILE *stream, const char *before, const char *path, const char *reason, const char *after);

/* Returns {"kind", "path", "reason"}, the caller's; NULL: out of memory. */
json_t *note_json(const char *kind, const char *path, const char *reason);

/* Tells on stderr, quiet or not, of inputs left out: "fpack: PATH: REASON; left out". The first hundred, or
 * all if verbose: a wrong folder gives thousands. Zeroed but for program and verbose. */
typedef struct NoteTeller {
    const char *program;
    bool verbose;
    uint64_t count; /* told of so far, shown or not */
} NoteTeller;
void note_tell_left_out(NoteTeller *teller, const char *path, const char *reason);

#endif
