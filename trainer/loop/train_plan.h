/* train_plan.h - everything that a run will do, decided before it begins: from the options, the dataset and the
 * machine.
 *
 * What the user left open is chosen here, and told by plan_describe: image size, batch, learning rate,
 * augmentation, loader threads. Nothing later looks at the options again. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_PLAN_H
#define FSHARD_TRAINER_LOOP_TRAIN_PLAN_H

#include "trainer/data/augment.h"
#include "trainer/data/classification.h"
#include "trainer/loop/train_options.h"
#include "trainer/models/models.h"
#include "trainer/optim/schedule.h"

typedef struct TrainPlan {
    const Model *model;
    ModelSpec train_spec, evaluation_spec; /* batch, size, channels, classes */
    ModelRecipe recipe;
    Augmentation train_augmentation, evaluation_augmentation;
    uint8_t fill[4]; /* the dataset's mean as a pixel: what padding and skipped samples show */
    uint64_t train_count, evaluation_count; /* samples; 0 where there is no such split */
    uint64_t epochs, steps_per_epoch, evaluation_steps;
    Schedule schedule;
    uint64_t seed;
    int threads; /* of computing */
    int workers; /* of the loader */
    size_t batches_ahead;
    bool skip_bad;
    FshCache cache;
} TrainPlan;

/* FSH_ERR_USAGE: options that contradict each other. FSH_ERR_NOT_FOUND: no such model. FSH_ERR_MISMATCH:
 * fewer samples than a batch. */
FshStatus plan_make(TrainPlan *plan, const TrainOptions *options, const Classification *data,
                    FshError *error);

/* The plan in a few lines of text for the log, each line passed to print without its end. */
void plan_describe(const TrainPlan *plan, const Classification *data,
                   void (*print)(void *context, const char *line), void *context);

#endif
