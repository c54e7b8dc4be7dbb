/* plan_sets.h - the options of a run on several datasets. plan_sets.c has their rows, and reads the weights.
 *
 *   ftrain a/ b/ c/ out/                          a/ is --shards, b/ and c/ are --more-shards
 *   --set-weights 1,0.5,2                         how often a sample of each comes in an epoch
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_SETS_H
#define FSHARD_TRAINER_PLAN_PLAN_SETS_H

#include "common/options.h"
#include "trainer/data/training_data.h"

typedef struct SetOptions {
    OptionList more;     /* the datasets beside SHARDS */
    const char *weights; /* NULL: each sample once */
} SetOptions;

/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t set_options_rows(SetOptions *options, Option *rows);

/* Gives the sets of open data their weights. FSH_ERR_USAGE: a text that is no list of positive numbers.
 * FSH_ERR_MISMATCH: as many numbers as there are no sets. FSH_ERR_MEMORY. */
FshStatus plan_set_weights(TrainingSets *sets, const SetOptions *options, FshError *error);

#endif
