/* display_names.h - names for people of classes whose own names are ids: "tench, Tinca tinca" for n01440764.
 *
 * Files that give them: ImageNet's words.txt (ID<tab>NAME) and Kaggle's LOC_synset_mapping.txt (ID NAME),
 * ID,NAME tables, JSON indexes ({"0": ["n01440764", "tench"], …}, {"n01440764": "tench", …}, {"0": "tench",
 * …}, ["tench", …]), and plain lists with as many lines as there are classes, in their order. A file may name
 * more classes.
 *
 * $FSHARD_CLASS_NAMES may name such a file for all programs: it is searched by id only, and unknown classes
 * keep no name. */
#ifndef FSHARD_COMMON_DISPLAY_NAMES_H
#define FSHARD_COMMON_DISPLAY_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define DISPLAY_NAMES_VARIABLE "FSHARD_CLASS_NAMES"

/* Reads the names of the classes ids[0..count) from the file at path. Sets *names_ret to count strings, ""
 * for a class without a name; free them with display_names_free. Sets *named_ret to how many have one.
 * by_place: a plain list may name classes by their place. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM; FSH_ERR_CORRUPT:
 * no text, or no name for any class. */
FshStatus display_names_read(const char *path, char *const *ids, size_t count, bool by_place,
                             char ***names_ret, size_t *named_ret, FshError *error);

/* Reads what the values 0, 1, 2 … of masks are called from the file at path: a plain list in their order,
 * NUMBER NAME tables, or JSON as above. Sets *names_ret to *count_ret names, at most `most`, all different; a
 * value that a table passes over has its number for a name. Free with display_names_free. As
 * display_names_read fails; FSH_ERR_CORRUPT also of an empty line within a list. */
FshStatus display_names_of_values(const char *path, size_t most, char ***names_ret, size_t *count_ret,
                                  FshError *error);

void display_names_free(char **names, size_t count);

#endif
