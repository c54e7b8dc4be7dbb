/* plan_training.h - the options of what is learned and in which steps: epochs, batches, the loss.
 * plan_training.c has their rows, and the one place that reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_TRAINING_H
#define FSHARD_TRAINER_PLAN_PLAN_TRAINING_H

#include "common/options.h"

typedef struct TrainingOptions {
    int64_t epochs;
    int64_t batch_size, val_batch_size; /* 0: chosen */
    int64_t val_interval;               /* epochs; 0: chosen */
    int64_t iters, val_every;           /* iterations, which are updates; 0: counted in epochs */
    int64_t grad_accum_steps;
    int loss;                                  /* LossKind; auto */
    double label_smoothing, bce_target_thresh; /* thresh 1: none */
    bool bce_sum;
    const char *class_weights; /* "balanced" or a file; NULL: all alike */
    const char *pos_weight;    /* "balanced", a number or a file; NULL: 1 */
    int64_t seed;
    bool sync_bn;
    int64_t norm_sample; /* 1: statistics of all images */
} TrainingOptions;

/* Returns the defaults. */
TrainingOptions training_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t training_options_rows(TrainingOptions *options, Option *rows);

#endif
