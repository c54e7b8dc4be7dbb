/* start_runs.h - the runs of a sweep (sweep.h), each a process of its own: one after the other, or with
 * --gpus one on each GPU.
 *
 * This process starts them, waits, and tells what has become of each; its log is OUTPUT/NAME.log. A run that
 * fails costs the others nothing. A signal that asks to stop is passed on, and the same command goes on
 * later: runs that have ended are not run again. Children whose parent is killed are asked to stop by the
 * system.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_START_RUNS_H
#define FSHARD_TRAINER_START_RUNS_H

#include "trainer/plan/train_options.h"
#include "trainer/ranks/rank_place.h"
#include "trainer/study/sweep.h"

/* Runs the sweep that the options ask for, and compares its runs: a table on standard output, and
 * OUTPUT/compare.html. Every combination of values is planned first, so that one that cannot be trained is
 * told before any is. In each process that was started *child_ret is set to true, and *options to those of
 * its run, which it then is to do; their texts belong to *sweep, which the caller closes, here and there. In
 * the parent *child_ret is false, and *partial_ret is set to whether a run has failed. With --dry-run it
 * says which runs there are, once they are planned. FSH_ERR_USAGE, FSH_ERR_MISMATCH: see sweep.h; fails as
 * plan_make. FSH_ERR_EXISTS: another sweep is at work there. FSH_ERR_INTERRUPTED. FSH_ERR_SYSTEM: a process
 * cannot be started. */
FshStatus start_runs(TrainOptions *options, const RankPlace *place, Sweep *sweep, bool *child_ret,
                     bool *partial_ret, FshError *error);

#endif
