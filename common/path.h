/* path.h - functions of paths as text; they never look at a file system. */
#ifndef FSHARD_COMMON_PATH_H
#define FSHARD_COMMON_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a part of the path is "..". */
bool path_goes_up(const char *path);

/* Returns whether path is folder, or below it. Both must be without links, "." and ".." parts. */
bool path_lies_in(const char *path, const char *folder);

/* Removes "." parts and doubled slashes, also at both ends, in place, so that equal paths have equal
 * names. */
void path_clean(char *path);

/* Returns the bytes before the dot of path's extension; all of them if there is none. A dot at the beginning
 * of a name begins no extension. */
size_t path_stem_bytes(const char *path);

/* Returns whether a text that is no path of a file names several files, in webdataset's spelling:
 * x-{000..127}.tar, a.tar::b.tar. */
bool path_names_several(const char *text);

#endif
