/* class_names.h - the names of the classes that a network tells apart, in the order of its logits.
 *
 * Weights carry them in their metadata as "classes", a JSON array of strings, because a safetensors file holds strings alone:
 * names may have commas, quotes and any UTF-8.
 *
 * Threads: constant once made. */
#ifndef FSHARD_TRAINER_LOOP_CLASS_NAMES_H
#define FSHARD_TRAINER_LOOP_CLASS_NAMES_H

#include <stddef.h>

#include "common/error.h"

typedef struct ClassNames {
    char **names; /* [count], owned; UTF-8 */
    size_t count; /* 0: not known */
} ClassNames;

/* Reads the list from the text of a JSON array of strings. FSH_ERR_CORRUPT: the text is something else. On failure nothing is
 * held. */
FshStatus class_names_parse(ClassNames *names, const char *text, FshError *error);
/* Returns the list as the text of a JSON array; free it. A name that is no UTF-8 has "?" for its bytes above 127. NULL: no
 * memory. */
char *class_names_text(const char *const *names, size_t count);
/* Frees what it owns and zeroes it; zeroed is fine. */
void class_names_free(ClassNames *names);

#endif
