/* resize_state.h - the destination's memory: what recipe made it, so that the same command resumes and another is refused.
 *
 * DST/.fresize.json holds the recipe, the source, and whether the run came to its end. It is there before the first image
 * is. An output is finished if its modification time is its source's, as exactly as its file system keeps times: it gets that time under its
 * temporary name, before it gets its own, so there is no journal that could disagree with the files. */
#ifndef FSHARD_RESIZE_STATE_H
#define FSHARD_RESIZE_STATE_H

#include "tools/resize/resize_plan.h"
#include "tools/resize/resize_image.h"

#define RESIZE_STATE_NAME ".fresize.json"

/* Looks only. *resume_ret: an earlier run with the same recipe and source is there and is to be continued.
 * FSH_ERR_USAGE: destination and source lie in each other. FSH_ERR_EXISTS: the destination is a file; or it holds files
 * and no state, or another recipe's or source's, and force is not set. */
FshStatus resize_state_check(const char *destination, const char *source, const ResizeRecipe *recipe,
                             bool force, bool *resume_ret, FshError *error);

/* Makes the destination and its state; leftovers of killed runs go. Unless it is to be resumed, files that
 * look finished are marked as not (their time is set to now): they may be of another recipe. */
FshStatus resize_state_begin(const char *destination, const char *source, const ResizeRecipe *recipe,
                             const ResizePlan *plan, bool resume, FshError *error);

/* All is written: waits for the disk, then notes that the tree is complete. */
FshStatus resize_state_finish(const char *destination, const char *source, const ResizeRecipe *recipe,
                              FshError *error);

/* Whether the output of this source is there already. path: the output's. */
bool resize_state_is_finished(const char *path, const FileEntry *source);

#endif
