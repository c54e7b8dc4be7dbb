/* resize_check.h - does the destination hold what the source says now? Nothing is written.
 *
 * Each image of the source is looked up in the ledger: by size and time it must be the one that was read, and
 * its output must be there with the bytes that were written (XXH3-128). Then the other way round: what stands
 * in the destination without a row, and rows whose source is gone. A tar is read first: of each name in it a
 * hash is kept, twice, 16 to 32 bytes each. Every image of the source is good, or has one finding. */
#ifndef FSHARD_RESIZE_CHECK_H
#define FSHARD_RESIZE_CHECK_H

#include <stdio.h>

#include "tools/resize/resize_options.h"

typedef enum ResizeFinding {
    RESIZE_FINDING_MISSING, /* an image of the source without output */
    RESIZE_FINDING_STALE,   /* the source has changed since */
    RESIZE_FINDING_DAMAGED, /* the output is not what was written */
    RESIZE_FINDING_EXTRA,   /* a file in the destination that fresize did not write */
    RESIZE_FINDING_GONE,    /* an output whose source is no longer there */
    RESIZE_FINDING_COUNT,
} ResizeFinding;

/* "missing", "stale", "damaged", "extra", "source gone". */
extern const char *const resize_finding_names[RESIZE_FINDING_COUNT];

typedef struct ResizeCheckSummary {
    uint64_t images_count; /* of the source */
    uint64_t good_count;   /* with a current, undamaged output, or left out by --min-size */
    uint64_t finding_counts[RESIZE_FINDING_COUNT];
    bool is_tar;    /* the destination: it can only be written anew as a whole */
    uint64_t bytes; /* of outputs read */
    double seconds;
} ResizeCheckSummary;

/* Is called for one finding at a time: for the source's images in their order, and for what else stands in
 * the destination, of a tar before the images, of a folder after them. path: the image's, or the path below
 * DST. */
typedef void (*ResizeOnFinding)(ResizeFinding finding, const char *path, const char *reason, void *context);

/* Compares a destination with its source, and fills *summary. FSH_ERR_NOT_FOUND: fresize has not made the
 * destination. FSH_ERR_EXISTS: the destination was made by another recipe or from another source, or is being
 * written. */
FshStatus resize_check(const ResizeOptions *options, ResizeOnFinding on_finding, void *context,
                       ResizeCheckSummary *summary, FshError *error);

/* Prints a few lines, the last of which says what to do, if there is anything. The second prints the members
 * and the end of a JSON object that was begun, with a newline. */
void resize_check_print(FILE *stream, const char *program, const ResizeCheckSummary *summary);
FshStatus resize_check_print_json(FILE *stream, const ResizeCheckSummary *summary, FshError *error);

#endif
