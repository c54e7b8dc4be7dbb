/* path.h - paths as text: nothing here looks at a file system. */
#ifndef FSHARD_COMMON_PATH_H
#define FSHARD_COMMON_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a part of the path is "..". */
bool path_goes_up(const char *path);

/* Whether path is folder, or below it. Both without links, "." and ".." parts. */
bool path_lies_in(const char *path, const char *folder);

/* Drops "." parts and doubled slashes, also at both ends, in place, so that equal paths have equal names. */
void path_clean(char *path);

/* Bytes of path in front of its extension's dot; all of it where there is none. A dot that begins a name is
 * no extension's. */
size_t path_stem_bytes(const char *path);

/* Returns whether a text that is no file's path names several files, as webdataset spells them:
 * x-{000..127}.tar, a.tar::b.tar. */
bool path_names_several(const char *text);

#endif
