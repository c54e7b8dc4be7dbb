/* class_names.h - the names of the classes that a network tells apart, in the order of its logits.
 *
 * Weights carry them in their metadata as "classes", a JSON array of strings, because a safetensors file
 * holds strings alone: names may have commas, quotes and any UTF-8.
 *
 * Threads: constant once made. */
#ifndef FSHARD_TRAINER_CHECKPOINT_CLASS_NAMES_H
#define FSHARD_TRAINER_CHECKPOINT_CLASS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct ClassNames {
    char **names; /* [count], owned; UTF-8 */
    size_t count; /* 0: not known */
} ClassNames;

/* Reads the list from the text of a JSON array of strings. FSH_ERR_CORRUPT: the text is something else. On
 * failure nothing is held. */
FshStatus class_names_parse(ClassNames *names, const char *text, FshError *error);
/* Returns the list as the text of a JSON array; free it. A name that is no UTF-8 has "?" for its bytes above
 * 127. NULL: no memory. */
char *class_names_text(const char *const *names, size_t count);
/* Copies a dataset's names as they would come back from weights (class_names_text). FSH_ERR_MEMORY. */
FshStatus class_names_copy(ClassNames *names, const char *const *from, size_t count, FshError *error);
/* Frees what it owns and zeroes it; zeroed is fine. */
void class_names_free(ClassNames *names);

/* Where the classes of a dataset stand among those of weights. */
typedef struct ClassMap {
    int32_t *places; /* [count], owned: of the dataset's class i; -1: the weights do not know it */
    size_t count;    /* classes of the dataset */
    size_t missing;  /* of them, those that the weights do not know */
    bool same;       /* both lists are the same, name by name */
} ClassMap;

/* Finds each name of the dataset among those of the weights. FSH_ERR_MISMATCH: lists that differ, of which
 * one has a name twice. On failure nothing is held. */
FshStatus class_map_make(ClassMap *map, const ClassNames *dataset, const ClassNames *weights,
                         FshError *error);
/* Frees what it owns and zeroes it; zeroed is fine. */
void class_map_free(ClassMap *map);

/* Writes the first names of a that b has not, in quotes, and how many more there are: "'cat', 'dog' and 7
 * more"; "none" if there is no such name. Returns text. What a terminal would not print stands as "?". */
const char *class_names_only_in(const ClassNames *a, const ClassNames *b, char *text, size_t text_bytes);

#endif
