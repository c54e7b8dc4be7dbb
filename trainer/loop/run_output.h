/* run_output.h - claims the folder that a run writes to: checks that it may, and that no other run does.
 *
 * checkpoint: what run_resume_find has found, "" if the run begins anew. Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_OUTPUT_H
#define FSHARD_TRAINER_LOOP_RUN_OUTPUT_H

#include "common/folder_lock.h"
#include "trainer/plan/train_options.h"
#include "trainer/report/console.h"

/* Returns whether the checkpoint lies in the output folder: the run in there goes on. */
bool run_output_goes_on(const TrainOptions *options, const char *checkpoint);

/* Returns whether files in the folder may be removed: with --force, or if they hold nothing that was
 * learnt. */
bool run_output_may_empty(const TrainOptions *options, const char *checkpoint);

/* Warns if the folder's lock is held but guards nothing, because its file system has no locks. */
void run_output_warn(Console *console, const FolderLock *lock, const char *folder);

/* Claims the output folder before anything slow is done: checks that the run may write there, makes it, and
 * locks it. Sets *made_ret to true if it made the folder. FSH_ERR_EXISTS: another run is at work there (the
 * message says so, whatever that run has left so far), or existing files may not be replaced. Makes nothing
 * in a folder that it refuses. Only warns if the file system has no locks. */
FshStatus run_output_claim(FolderLock *lock, Console *console, const TrainOptions *options,
                           const char *checkpoint, bool *made_ret, FshError *error);

#endif
