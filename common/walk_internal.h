/* walk_internal.h - what the cursor (walk.c) and the list (walk_list.c) share. For these two only. */
#ifndef FSHARD_COMMON_WALK_INTERNAL_H
#define FSHARD_COMMON_WALK_INTERNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    WALK_FULL_BYTES = 2 * PATH_MAX, /* root and path, with room for the name that makes them too long */
    WALK_REASON_BYTES = 256
};

/* Room for one more in a growing array; false: out of memory. */
bool walk_grow(void **items, size_t count, size_t *capacity, size_t item_bytes);

/* Whether a failure of the system may be over another time: a name that is too long, or links in a circle,
 * stay so. */
bool walk_is_passing(int system_errno);

/* "cannot be read: Permission denied" (system_errno 0: what alone) into WALK_REASON_BYTES; returns buffer. */
const char *walk_reason(char *buffer, const char *what, int system_errno);

#endif
