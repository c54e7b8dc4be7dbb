/* resize_range.h - which items of the source are a part's. */
#ifndef FSHARD_RESIZE_RANGE_H
#define FSHARD_RESIZE_RANGE_H

#include "tools/resize/resize_options.h"

typedef struct ResizeRange {
    uint64_t begin, end;                 /* items of the source, in its order; those of the part */
    uint64_t source_count, source_bytes; /* of all items */
} ResizeRange;

/* Looks at the sizes of the whole source, in its order, for options->part. Failures are the source's as a
 * whole; FSH_ERR_MEMORY, FSH_ERR_INTERRUPTED. */
FshStatus resize_range_find(const ResizeOptions *options, ResizeRange *range, FshError *error);

#endif
