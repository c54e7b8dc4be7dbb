/* name_list.h - a file with a name on each line, and where a name stands in it.
 *
 * Blanks around a name, empty lines, and anything after a tab are passed over, as by fpack --classes.
 * Threads: constant once read, but for the marks of name_list_meet, which any number of threads may set. */
#ifndef FSHARD_TRAINER_DATA_NAME_LIST_H
#define FSHARD_TRAINER_DATA_NAME_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/hash_set.h"

typedef struct ListedName {
    const char *text; /* in the list's bytes, NUL-terminated */
    size_t bytes;
    uint64_t line; /* from 1 on */
} ListedName;

typedef struct NameList {
    Buffer bytes, names; /* of the file; ListedName each */
    size_t count;
    HashSet set;       /* of the names: the first place of each in the list */
    atomic_uchar *met; /* [count], of first places */
} NameList;

/* Reads the file at path, which may be a pipe. extensions: a name is also found without what stands behind
 * its last dot. FSH_ERR_MISMATCH: it names nothing. FSH_ERR_CORRUPT: a zero byte in it. FSH_ERR_NOT_FOUND,
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY. On failure nothing is held. */
FshStatus name_list_read(NameList *list, const char *path, bool extensions, FshError *error);
/* Frees what the list owns; zeroed is fine. */
void name_list_free(NameList *list);

/* Returns a name of the list. */
const ListedName *name_list_at(const NameList *list, size_t index);
/* Returns whether the list has the name, and sets *index_ret to its first place there. */
bool name_list_find(const NameList *list, const char *name, size_t bytes, size_t *index_ret);
/* Returns whether the list has the name, and marks it as met. */
bool name_list_meet(const NameList *list, const char *name, size_t bytes);
/* Returns whether a name of the list was met. */
bool name_list_is_met(const NameList *list, size_t index);

#endif
