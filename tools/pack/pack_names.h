/* pack_names.h - a list of names, each its own string. A list belongs to one thread at a time. */
#ifndef FSHARD_TOOLS_PACK_NAME_LIST_H
#define FSHARD_TOOLS_PACK_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct NameList {
    char **names; /* owned */
    size_t count, capacity;
} NameList;

enum { NAMES_NUMBERS_MAX = 1 << 20 };

/* Appends a copy of the name. FSH_ERR_MEMORY. */
FshStatus names_add(NameList *list, const char *name, FshError *error);
/* Appends the string itself, which is the list's from here on: on failure it is freed. FSH_ERR_MEMORY. */
FshStatus names_take(NameList *list, char *name, FshError *error);
/* Appends "0", "1", … count of them: classes that have no other name. FSH_ERR_MISMATCH, beginning with what:
 * more than NAMES_NUMBERS_MAX. */
FshStatus names_add_numbers(NameList *list, uint64_t count, const char *what, FshError *error);
/* Sorts the names by their bytes. */
void names_sort(NameList *list);
/* Returns whether a sorted list has the name; *index_ret, which may be NULL: where. */
bool names_find(const NameList *list, const char *name, size_t *index_ret);
/* Frees and empties. */
void names_free(NameList *list);

/* Reads a number as we write class numbers into *number_ret: digits, no zero before others, below
 * NAMES_NUMBERS_MAX. Returns false where text is something else. */
bool names_parse_number(const char *text, uint64_t *number_ret);

#endif
