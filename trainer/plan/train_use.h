/* train_use.h - what ftrain is asked to do, and the options that this does not read.
 *
 * The rows say which uses read an option (Option.uses). One that is typed for another use is refused, since
 * its user counts on it. A file of options is written for several uses, args.json for training above all:
 * what it gives for another use is left aside.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_USE_H
#define FSHARD_TRAINER_PLAN_TRAIN_USE_H

#include "trainer/plan/train_options.h"

/* Returns the OptionUse that the options ask for; USE_PREDICTS for predictions, since only the input tells
 * whether it is a dataset. */
unsigned train_use(const TrainOptions *options);
/* Returns the option that asks for it, "--evaluate"; "training". */
const char *train_use_name(const TrainOptions *options);

/* Sets every option that `use` does not read to its default, as if it had not been given. FSH_ERR_USAGE: some
 * were typed; the message names them all. */
FshStatus train_use_take(TrainOptions *options, unsigned use, FshError *error);

#endif
