/* class_names.h - the names of a network's classes, in the order of its logits.
 *
 * Weights have them in their metadata as the text of a JSON array of strings, since safetensors metadata
 * holds only strings, and names may have commas, quotes and any UTF-8.
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
    size_t count; /* 0: unknown */
} ClassNames;

/* Reads the list from the text of a JSON array of strings. FSH_ERR_CORRUPT: the text is something else. On
 * failure nothing is held. */
FshStatus class_names_parse(ClassNames *names, const char *text, FshError *error);
/* Returns the list as the text of a JSON array; free it. In a name that is not UTF-8 each byte above 127
 * becomes "?". NULL: no memory. */
char *class_names_text(const char *const *names, size_t count);
/* Copies a dataset's names as they would be read back from weights (class_names_text). FSH_ERR_MEMORY. */
FshStatus class_names_copy(ClassNames *names, const char *const *from, size_t count, FshError *error);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void class_names_free(ClassNames *names);

/* Maps the classes of a dataset to those of weights. */
typedef struct ClassMap {
    int32_t *places; /* [count]: index of the dataset's class i among those of the weights; -1: unknown to
                      * them; owned */
    size_t count;    /* classes of the dataset */
    size_t missing;  /* how many of them the weights do not know */
    bool same;       /* both lists are the same, name by name */
} ClassMap;

/* Finds each name of the dataset among those of the weights. FSH_ERR_MISMATCH: the lists differ, and one of
 * them has a name twice. On failure nothing is held. */
FshStatus class_map_make(ClassMap *map, const ClassNames *dataset, const ClassNames *weights,
                         FshError *error);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void class_map_free(ClassMap *map);

/* Writes the first names of a that b lacks, in quotes, and the number of others: "'cat', 'dog' and 7 more";
 * "none" if there is no such name. Characters that a terminal does not print become "?". Returns text. */
const char *class_names_only_in(const ClassNames *a, const ClassNames *b, char *text, size_t text_bytes);

#endif
