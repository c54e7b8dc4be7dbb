/* resize_state.h - the destination's memory: by what recipe it was made, from what, and which outputs are
 * done.
 *
 * A folder DST has it in DST/.fresize, a tar DIR/NAME.tar in DIR/.NAME.tar.fresize:
 *   recipe.json           recipe, source, and whether a run came to its end; there before the first output is
 *   outputs.ledger        the outputs (resize_ledger.h); part-2-of-4.ledger those of a part
 *   part-2-of-4.json      how many images of how many bytes that part saw in the whole source
 *   lock, part-2-of-4.lock
 *   images.tar            a tar that is not finished
 *
 * One run writes a destination at a time, or several parts of it: a run without --part locks out all others,
 * and a part all runs of the same part and those without. */
#ifndef FSHARD_RESIZE_STATE_H
#define FSHARD_RESIZE_STATE_H

#include <jansson.h>

#include "common/options.h"
#include "tools/resize/resize_ledger.h"
#include "tools/resize/resize_options.h"

#define RESIZE_STATE_FOLDER ".fresize"
#define RESIZE_TAR_NAME     "images.tar"

/* Returns whether a destination is a tar: its name ends in ".tar". */
bool resize_state_is_tar(const char *destination);

/* Writes to name where a part of the destination goes: a folder's into the folder, a tar's into a tar of its
 * own, x-2-of-4.tar for x.tar. FSH_ERR_USAGE: the name is too long. */
FshStatus resize_state_part_name(const char *destination, Part part, char name[PATH_MAX], FshError *error);

typedef struct ResizeState {
    char folder[PATH_MAX];
    char source[PATH_MAX]; /* without links; "": it is gone */
    uint8_t recipe[LEDGER_RECIPE_BYTES];
    bool is_tar;
    bool resume;     /* an earlier run with the same recipe and source is there and goes on */
    bool fresh;      /* nothing was there */
    bool finished;   /* a tar that is whole: there is nothing to write */
    int locks[2];    /* descriptors; -1: none */
    Ledger *ledger;  /* that is written */
    Ledger **others; /* that are read only, later ones first: in a part, that of the whole */
    size_t others_count;
} ResizeState;

/* Fills folder and is_tar of a zeroed state, and looks at nothing. The folder is DST/.fresize, or
 * DIR/.NAME.tar.fresize. FSH_ERR_USAGE: the path is too long. */
FshStatus resize_state_place(ResizeState *state, const char *destination, FshError *error);

/* Looks only: fills folder, is_tar, resume, fresh, finished. What is known of a tar that is gone, finished or
 * not, binds nothing: it is made from the beginning. FSH_ERR_USAGE: destination and source lie in each other,
 * or the source was made from the destination by an earlier run.
 * FSH_ERR_EXISTS: the destination is a file, or a tar that is not known to be finished; or it holds files and
 * no state, or another recipe's or source's, and force is not set. */
FshStatus resize_state_check(ResizeState *state, const ResizeOptions *options, FshError *error);

/* Returns whether a run of fresize into this folder or tar has not come to its end: as a source it may lack
 * images that nobody will miss. */
bool resize_state_is_unfinished(const char *path);

/* Refuses a report in the destination, where it would be taken for what fresize did not write, or in its
 * state. FSH_ERR_USAGE. */
FshStatus resize_state_refuse_report(const ResizeOptions *options, FshError *error);

/* Makes the destination, its state and its locks, after resize_state_check, and looks again, now that nobody
 * else writes. A run of the whole takes over what parts before it have done. Nothing that is finished is
 * written. FSH_ERR_EXISTS: another process is at it; or the tar has not the length that was written. */
FshStatus resize_state_begin(ResizeState *state, const ResizeOptions *options, FshError *error);

/* Opens what there is, to be read, after resize_state_check, for dry runs. FSH_ERR_EXISTS as above. */
FshStatus resize_state_look(ResizeState *state, const ResizeOptions *options, FshError *error);

/* Opens what a finished or stopped run left, to be read; for --check. FSH_ERR_NOT_FOUND: fresize has not made
 * this. */
FshStatus resize_state_open(ResizeState *state, const ResizeOptions *options, FshError *error);

/* Stores, into each option whose `given` is there and false, what recipe.json of destination says of it: a
 * check asks for what the destination was made by. What recipe.json does not say, or not as the option takes
 * it, stays. Texts point into *recipe_ret, which is the caller's to json_decref; NULL where there is none:
 * the check will tell. FSH_ERR_USAGE: the path is too long; FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus recipe_fill_options(const Option *options, const char *destination, json_t **recipe_ret,
                              FshError *error);

/* Notes what this part's scan of the source found, and then compares it with the other parts', so that of two
 * that come at the same time one sees the other: parts that saw another source would leave images out, or do
 * them twice. FSH_ERR_MISMATCH. */
FshStatus resize_state_note_part(const ResizeState *state, Part part, uint64_t images_count,
                                 uint64_t images_bytes, FshError *error);

/* Finds the row of an output, by whichever run made it, and the path of its source. *found_ret: there is one.
 */
FshStatus resize_state_find(const ResizeState *state, const char *target, bool *found_ret, LedgerRow *row,
                            char source[PATH_MAX], FshError *error);

/* Calls visit for the rows of all runs that the state knows. */
FshStatus resize_state_each(const ResizeState *state, LedgerVisit visit, void *context, FshError *error);
uint64_t resize_state_count(const ResizeState *state);

/* Returns whether a row is of a source of this size and time. */
bool resize_row_is_current(const LedgerRow *row, uint64_t source_bytes, int64_t source_modified_ns);

/* Returns whether the output would be written into the source, by a link in the destination. */
bool resize_state_leads_to_source(const ResizeState *state, const char *output);

/* Waits for the disk when all is written, then notes that the output is complete. */
FshStatus resize_state_finish(const ResizeState *state, const ResizeOptions *options, FshError *error);

/* Removes a destination that was made for nothing (the source had no image), if nothing but the state is in
 * it. */
void resize_state_undo(ResizeState *state, const char *destination);

/* Gives up locks and memory. Safe on a zeroed state, and twice. */
void resize_state_close(ResizeState *state);

#endif
