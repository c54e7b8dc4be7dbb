/* resolve.h - tells where a path leads that may not be there yet. */
#ifndef FSHARD_COMMON_RESOLVE_H
#define FSHARD_COMMON_RESOLVE_H

#include <limits.h>
#include <stdbool.h>

/* Writes to resolved the real path of what exists of path, and the rest as given: "/data/x" for "/link/x"
 * whose x is yet to be made. Returns false where that cannot be found out; errno may say why. */
bool path_resolve(const char *path, char resolved[PATH_MAX]);

#endif
