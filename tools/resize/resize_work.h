/* resize_work.h - the middle of a run: one image, or one pair, from its source to bytes that are written or
 * ready to be. Internal to resize.c. */
#ifndef FSHARD_RESIZE_WORK_H
#define FSHARD_RESIZE_WORK_H

#include "tools/job/read_ahead.h"
#include "tools/resize/resize.h"
#include "tools/resize/resize_state.h"

enum { RESIZE_KEPT_BYTES = 4 << 20 }; /* a buffer that grew beyond is given back */

/* What one thread keeps from image to image; two of each for the two images of a pair. */
typedef struct ResizeThread {
    ShrinkWorker *workers[2];
    Buffer files[2];
    FileMapping mapping; /* dry runs: of a file, the header is enough */
    ReadAhead ahead;
    double stage_seconds[RESIZE_STAGE_COUNT];
} ResizeThread;

FshStatus resize_thread_init(ResizeThread *thread, bool pairs, FshError *error);
void resize_thread_free(ResizeThread *thread);

/* One image, from its name to the line that tells of it. */
typedef struct ResizeResult {
    const char *path;      /* in the source: the item's, or the partner's */
    char target[PATH_MAX]; /* below the destination */
    ImageFormat format;    /* that target's name promises */
    bool begins_as_mask;   /* of a pair of images: it may be a mask (imaging/mask.h) */
    bool is_mask;          /* the values are classes: only shrink_mask touches it */
    bool is_other;         /* no image, and its name did not say so: nothing to tell */
    ResizeOutcome outcome;
    bool is_outside;   /* an image below neither side's folder: left alone, and counted */
    bool is_unplaced;  /* FAILED, having no partner or no label; or outside */
    bool is_unread;    /* FAILED, as the system could not read it: another time it may */
    FshError reason;   /* FAILED */
    ShrunkImage image; /* its bytes are gone when the thread goes on */
    uint64_t bytes_before;
    int64_t modified_ns;
    bool unlinked; /* copied though a link was asked for */
    bool is_new;   /* an output that the ledger does not know yet: row */
    LedgerRow row;
    Buffer output; /* for a tar: the bytes, until it is their turn; kept from item to item */
} ResizeResult;

/* What goes through the pool. */
typedef struct ResizeSlot {
    ResizeItem item;
    bool conflict; /* its target was given away before, to owner ("": it is not known to whom) */
    char owner[PATH_MAX];
    bool done;               /* known when it was taken; content was not loaded */
    char ahead[2][PATH_MAX]; /* what to ask for when a side is read: paths in the source; "": nothing */
    char partner[PATH_MAX];
    ResizeResult results[2];
    size_t results_count; /* 2: a pair; 0: a partner, whose first side brings it along */
} ResizeSlot;

void resize_slot_free(void *memory);

typedef struct ResizeJob {
    const ResizeOptions *options;
    const ResizeState *state;
    bool sorted; /* the source is in byte order: every name in it is another file's own */
} ResizeJob;

/* Clears a result for the image of this side, 0 where there are none. FSH_ERR_MEMORY: its name would be too
 * long. */
FshStatus resize_result_begin(const ResizeJob *job, size_t side, const char *path, const char *name,
                              ResizeResult *result, FshError *error);

/* Sets *done_ret to whether the output stands there with the size and the time that it was given, made from a
 * source of this size and result's time. FSH_ERR_EXISTS: a tar holds the output, made from another source. */
FshStatus resize_is_done(const ResizeJob *job, const ResizeResult *result, uint64_t source_bytes,
                         bool *done_ret, FshError *error);

/* Returns whether there is, or in a dry run would be, something to write. */
bool resize_has_output(const ResizeResult *result);

/* Sets *is_image_ret to whether a file begins as an image does, whatever its name. FSH_ERR_SYSTEM,
 * FSH_ERR_MEMORY: it could not be read; messages do not name it. */
FshStatus resize_is_image_by_content(const char *path, bool *is_image_ret, FshError *error);

/* Does the slot's item, whose first result has begun. What is wrong with an image stands in its result; a
 * failure that is returned is the destination's. */
FshStatus resize_work(const ResizeJob *job, ResizeThread *thread, ResizeSlot *slot, FshError *error);

#endif
