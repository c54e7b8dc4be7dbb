/* cache_folder.h - where a program keeps what it could make or fetch again.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_COMMON_CACHE_FOLDER_H
#define FSHARD_COMMON_CACHE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes $XDG_CACHE_HOME/fshard, or ~/.cache/fshard (XDG Base Directory Specification: a path that is not
 * absolute is ignored). Makes no folder. Returns false if this user has neither, or the path is too long. */
bool cache_folder_find(char *path, size_t path_bytes);

#endif
