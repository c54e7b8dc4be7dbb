/* elastic.h - a run that goes on with another number of ranks (--elastic): how the images of an update are
 * dealt out anew, so that each update takes the same.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_ELASTIC_H
#define FSHARD_TRAINER_ELASTIC_H

#include "trainer/session/run_resume.h"

/* Returns the most ranks, at most `usable` (> 0), that can share each update of a run of that shape alike;
 * `usable` for a shape that is not known (batch 0). */
uint64_t elastic_ranks(const RunShape *was, uint64_t usable);

/* Deals the images of an update of `was` to `ranks`, which divides them: sets *now_ret but for its steps. The
 * batch stays as it is if the accumulation can follow. Else it becomes smaller, but not less than half,
 * for that takes no more memory; else larger. */
void elastic_deal(const RunShape *was, uint64_t ranks, RunShape *now_ret);

/* Sets *was_ret to the shape of the run that the options go on with: that of its checkpoint; else, for a run
 * that begins, that which the options give to `ranks` ranks. batch 0: it is not known before the run begins.
 * Fails as run_resume_find and checkpoint_notes. */
FshStatus elastic_find(const TrainOptions *options, uint64_t ranks, RunShape *was_ret, FshError *error);

/* Changes the batch size and the accumulation of the options to those of a run of shape `was` on `ranks`
 * ranks; a --val-batch-size that is a total becomes a multiple of them. FSH_ERR_MISMATCH: they cannot share
 * an update alike; the message says how many can. */
FshStatus elastic_apply(const RunShape *was, uint64_t ranks, TrainOptions *options, FshError *error);

#endif
