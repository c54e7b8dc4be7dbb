/* resize.h - a tree of images into the same tree, smaller: the whole of fresize but its options.
 *
 *   source --take--> slot --work--> slot --deliver--> tar, ledger, report, summary
 *   (walk, tar)      (any thread: read, resize,       (in the source's order)
 *    in order         write a file)
 *
 * Threads: one run at a time for each destination (resize_state.h sees to it). */
#ifndef FSHARD_RESIZE_H
#define FSHARD_RESIZE_H

#include <limits.h>

#include "tools/resize/resize_options.h"

/* What became of one image. */
typedef enum ResizeOutcome {
    RESIZE_OUTCOME_RESIZED,
    RESIZE_OUTCOME_CONVERTED, /* small enough, but another format, orientation or colours */
    RESIZE_OUTCOME_COPIED,
    RESIZE_OUTCOME_LINKED,
    RESIZE_OUTCOME_DONE_BEFORE, /* by an earlier run over the same destination */
    RESIZE_OUTCOME_TOO_SMALL,   /* below --min-size: left out as asked */
    RESIZE_OUTCOME_FAILED,
    RESIZE_OUTCOME_COUNT,
} ResizeOutcome;

/* Where the threads' time went. */
typedef enum ResizeStage {
    RESIZE_STAGE_FINDING, /* walking folders, reading a tar or a list */
    RESIZE_STAGE_READING,
    RESIZE_STAGE_DECODING,
    RESIZE_STAGE_RESAMPLING,
    RESIZE_STAGE_ENCODING,
    RESIZE_STAGE_WRITING,
    RESIZE_STAGE_COUNT,
} ResizeStage;

typedef struct ResizeSummary {
    Part part;                                     /* that was done; count 0: the whole */
    uint64_t outcome_counts[RESIZE_OUTCOME_COUNT]; /* images; both of a pair count */
    uint64_t quirk_counts[IMAGE_QUIRK_COUNT];
    uint64_t bytes_before, bytes_after; /* of the images written in this run */
    uint64_t other_count;               /* files that are no images */
    uint64_t outside_count;             /* images below neither side's folder */
    char outside_first[PATH_MAX];       /* the first of them */
    uint64_t unmarked_count;            /* tars of the source without an end marker */
    char unmarked_first[PATH_MAX];      /* the first of them */
    uint64_t hidden_count;              /* names that begin with "." */
    uint64_t unread_count;              /* failed, folders too, as the system could not read them */
    uint64_t untold_count;              /* failed, and on_failure was not called: see resize_run */
    uint64_t mixed_pairs_count;         /* pairs of one gray and one coloured side */
    uint64_t masked_pairs_count; /* pairs of which one side alone begins as a mask does (imaging/mask.h) */
    uint64_t unlinked_count;     /* copied though a link was asked for: the file system refused */
    bool stopped;                /* before the end of the source */
    bool source_unfinished;      /* a run of fresize into the source has not come to its end */
    uint64_t files_left;         /* of it, then; 0: not known */
    double seconds;              /* of the run */
    double stage_seconds[RESIZE_STAGE_COUNT]; /* of all threads together */
} ResizeSummary;

uint64_t resize_summary_images(const ResizeSummary *summary); /* all outcomes */

/* Is called for each image that was left out, one at a time, in the source's order. */
typedef void (*ResizeOnFailure)(const char *path, const char *reason, void *context);

/* Makes the images of the source smaller, or does a part of them. The summary counts what was done, also
 * after a failure or an interrupt. FSH_ERR_INTERRUPTED: what is written is whole, the same call goes on.
 * FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM: the destination cannot be written. FSH_ERR_SYSTEM too where the system
 * could not read something of the source, unless skip_unread: the destination is not finished, and the same
 * call goes on with it; a tar, whose files have an order, ends before it. Other images that cannot be read
 * are no failure (see outcome_counts) unless fail_on_error. on_failure hears of the first three images that
 * have no side, partner or label (verbose: of all). FSH_ERR_NOT_FOUND: there is no image in the source, or
 * none of them has such a place; nothing was made. */
FshStatus resize_run(const ResizeOptions *options, ResizeOnFailure on_failure, void *context,
                     ResizeSummary *summary, FshError *error);

#endif
