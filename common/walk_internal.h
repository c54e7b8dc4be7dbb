/* walk_internal.h - shared by the cursor (walk.c) and the list (walk_list.c) only. */
#ifndef FSHARD_COMMON_WALK_INTERNAL_H
#define FSHARD_COMMON_WALK_INTERNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    WALK_FULL_BYTES = 2 * PATH_MAX, /* root and path, with room for the name that makes them too long */
    WALK_REASON_BYTES = 256
};

/* Makes room for one more item in a growing array. Returns false without memory. */
bool walk_grow(void **items, size_t count, size_t *capacity, size_t item_bytes);

/* Returns whether a system's failure may be temporary. A name that is too long, or a circle of links, is
 * not. */
bool walk_is_passing(int system_errno);

/* Writes "cannot be read: Permission denied" (system_errno 0: only `what`) to WALK_REASON_BYTES of buffer;
 * returns buffer. */
const char *walk_reason(char *buffer, const char *what, int system_errno);

#endif
