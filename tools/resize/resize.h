/* resize.h - a tree of images into the same tree, smaller: the whole of fresize but its options.
 *
 * Threads: one run at a time for each destination. */
#ifndef FSHARD_RESIZE_H
#define FSHARD_RESIZE_H

#include "tools/resize/resize_image.h"

typedef struct ResizeOptions {
    const char *source, *destination;
    const char *report; /* JSON lines; NULL: none */
    ResizeRecipe recipe;
    bool force, dry_run, quiet;
    bool fail_on_error; /* stop at the first image that cannot be read */
    int jobs;
} ResizeOptions;

/* What became of one image. */
typedef enum ResizeOutcome {
    RESIZE_OUTCOME_RESIZED,
    RESIZE_OUTCOME_CONVERTED, /* small enough, but another format, orientation or colours */
    RESIZE_OUTCOME_COPIED,
    RESIZE_OUTCOME_DONE_BEFORE, /* by an earlier run over the same destination */
    RESIZE_OUTCOME_FAILED,
    RESIZE_OUTCOME_COUNT,
} ResizeOutcome;

/* "resized", "converted", "copied", "done before", "failed". */
extern const char *const resize_outcome_names[RESIZE_OUTCOME_COUNT];

typedef struct ResizeSummary {
    uint64_t images_count; /* in the source, those that cannot be read included */
    uint64_t outcome_counts[RESIZE_OUTCOME_COUNT];
    uint64_t quirk_counts[IMAGE_QUIRK_COUNT];
    uint64_t bytes_before, bytes_after; /* of the images written in this run */
    uint64_t other_count;               /* files that are no images */
    uint64_t hidden_count;              /* names that begin with "." */
    double seconds;
} ResizeSummary;

/* Called for each image that could not be read, one at a time: first what the walk could not follow or enter, then the
 * images, both in byte order of their paths. */
typedef void (*ResizeOnFailure)(const char *path, const char *reason, void *context);

/* Runs. The summary counts what was done, also after a failure or an interrupt. FSH_ERR_INTERRUPTED: what is written is
 * whole, the same call goes on. FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM: the destination cannot be written. Images that cannot be
 * read are no failure (see outcome_counts) unless fail_on_error. */
FshStatus resize_run(const ResizeOptions *options, ResizeOnFailure on_failure, void *context,
                     ResizeSummary *summary, FshError *error);

#endif
