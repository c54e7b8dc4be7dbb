/* display_names.h - what people call classes whose own names are ids: "tench, Tinca tinca" for n01440764.
 *
 * Files that tell it: ImageNet's words.txt (ID<tab>NAME) and Kaggle's LOC_synset_mapping.txt (ID NAME),
 * ID,NAME tables, JSON indexes ({"0": ["n01440764", "tench"], …}, {"n01440764": "tench", …}, {"0":
 * "tench", …}, ["tench", …]), and plain lists of as many lines as there are classes, in their order. A
 * file that tells of more classes is fine.
 *
 * $FSHARD_CLASS_NAMES may name such a file once for all: it is asked by id alone, and what it does not
 * know stays without. */
#ifndef FSHARD_COMMON_DISPLAY_NAMES_H
#define FSHARD_COMMON_DISPLAY_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define DISPLAY_NAMES_VARIABLE "FSHARD_CLASS_NAMES"

/* Reads what the file at path calls the classes ids[0..count). *names_ret: count strings, "" where it does
 * not tell; free with display_names_free. *named_ret: for how many it does. by_place: a plain list may
 * name them by their place. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM; FSH_ERR_CORRUPT: no text, or no name for
 * any. */
FshStatus display_names_read(const char *path, char *const *ids, size_t count, bool by_place,
                             char ***names_ret, size_t *named_ret, FshError *error);

void display_names_free(char **names, size_t count);

#endif
