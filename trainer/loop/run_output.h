/* run_output.h - the folder that a run writes into: whether it may, and that no other run does.
 *
 * checkpoint: what run_files_find has found, "" where the run begins. Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_OUTPUT_H
#define FSHARD_TRAINER_LOOP_RUN_OUTPUT_H

#include "common/folder_lock.h"
#include "trainer/plan/train_options.h"
#include "trainer/report/console.h"

/* Returns whether the checkpoint lies in the output: the run in there goes on. */
bool run_output_goes_on(const TrainOptions *options, const char *checkpoint);

/* Returns whether what is in the folder may go: what was asked for, or nothing that was learnt. */
bool run_output_may_empty(const TrainOptions *options, const char *checkpoint);

/* Warns where the folder's lock is held, but guards nothing: its file system knows no locks. */
void run_output_warn(Console *console, const FolderLock *lock, const char *folder);

/* Takes the output for this run, before what takes long: looks whether it may write there, makes it, locks
 * it. FSH_ERR_EXISTS: a run is at work there, which the message names whatever it has left so far; or what is
 * there is not to be replaced. Nothing is made in a folder that is refused. A file system without locks is a
 * warning. *made_ret: the folder is there only now. */
FshStatus run_output_claim(FolderLock *lock, Console *console, const TrainOptions *options,
                           const char *checkpoint, bool *made_ret, FshError *error);

#endif
