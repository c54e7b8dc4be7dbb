/* label_internal.h - what label_file.c (keys, classes), label_csv.c and label_json.c (the lines) share.
 *
 * Threads: as label_file.h. */
#ifndef FSHARD_TRAINER_DATA_LABEL_INTERNAL_H
#define FSHARD_TRAINER_DATA_LABEL_INTERNAL_H

#include <stdbool.h>

#include "trainer/data/label_file.h"

typedef struct LabelText {
    char *text;
    size_t bytes;
} LabelText;

/* A file while it is read. */
typedef struct LabelReader {
    LabelFile *file;
    const LabelFileOptions *options;
    char *at, *end;                                 /* what is left of the text */
    uint64_t line;                                  /* of what was taken last, from 1 */
    uint64_t breaks;                                /* in its quotes */
    uint64_t rows_most, members_most, numbers_most; /* room taken */
    uint64_t name_room;                             /* of file->own.names */
    uint32_t *name_slots;                           /* a hash table of them: places from 1, 0: free */
    uint64_t name_slot_count;                       /* a power of two */
    /* What the rows were like, for a file whose kind nobody told. */
    bool any_list;
    uint64_t first_empty; /* the line of the first row without a label; 0: none */
} LabelReader;

/* Takes the next line that says something, without its end and blanks around it; returns false after the
 * last. A line break in quotes is part of a line where `quotes`. */
bool label_next_line(LabelReader *reader, bool quotes, LabelText *line);
/* Sets the message of a line that cannot be read, which begins with PATH:LINE, and returns
 * FSH_ERR_CORRUPT. */
FshStatus label_refuse(const LabelReader *reader, FshError *error, const char *format, ...) FSH_PRINTF(3, 4);

/* Begins the row of a key, which points into the file's text. */
FshStatus label_add_row(LabelReader *reader, LabelText key, FshError *error);
/* Adds a class to the last row. FSH_ERR_CORRUPT: it is no UTF-8. */
FshStatus label_add_class(LabelReader *reader, LabelText name, FshError *error);
/* Adds class `place` of file->own to the last row. */
FshStatus label_add_place(LabelReader *reader, uint32_t place, FshError *error);
/* Adds a number to the last row. FSH_ERR_CORRUPT: it is none. what: its column. */
FshStatus label_add_number(LabelReader *reader, LabelText number, const char *what, FshError *error);
/* Ends the last row, whose labels are all there. FSH_ERR_CORRUPT: it has fewer numbers than those before. */
FshStatus label_end_row(LabelReader *reader, FshError *error);
/* Sets *place_ret to the place of a name among file->own, where it is added if it is new. */
FshStatus label_find_name(LabelReader *reader, LabelText name, uint32_t *place_ret, FshError *error);

/* Return a text without the blanks at both ends; whether it is this word. */
LabelText label_trim(LabelText text);
bool label_text_is(LabelText text, const char *word);
/* Returns whether options.columns, a list with commas, names the column. */
bool label_columns_name(const char *columns, LabelText name);

/* Read the rows of a CSV, and of JSON lines. */
FshStatus label_read_csv(LabelReader *reader, FshError *error);
FshStatus label_read_json(LabelReader *reader, FshError *error);

#endif
