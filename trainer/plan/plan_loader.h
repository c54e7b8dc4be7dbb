/* plan_loader.h - what a split's loader is made from, once the plan is made. ftrain and the loader for other
 * programs (trainer/library) get the same batches because both ask here.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_LOADER_H
#define FSHARD_TRAINER_PLAN_PLAN_LOADER_H

#include "trainer/data/loader.h"
#include "trainer/plan/train_plan.h"

/* Fills options with what the loader of a split is made from, all but its source: records. They borrow from
 * plan and data, and point into *sizes_ret, which the caller frees with free(). FSH_ERR_MEMORY. */
FshStatus plan_loader_options(const TrainPlan *plan, const TrainingData *data, bool training,
                              LoaderOptions *options, uint32_t **sizes_ret, FshError *error);

#endif
