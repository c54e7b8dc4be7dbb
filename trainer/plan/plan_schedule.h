/* plan_schedule.h - the options of learning rate, plateau and early stopping. plan_schedule.c has their rows,
 * and the one place that reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_SCHEDULE_H
#define FSHARD_TRAINER_PLAN_PLAN_SCHEDULE_H

#include "common/options.h"
#include "trainer/optim/schedule.h"

/* Values of options with choices, in the order of their names. */
typedef enum TrainUnit { UNIT_STEP, UNIT_EPOCH } TrainUnit;
typedef enum ThresholdMode { THRESHOLD_RELATIVE, THRESHOLD_ABSOLUTE } ThresholdMode;

typedef struct ScheduleOptions {
    double lr; /* 0: lr_base for each 256 images of the batch */
    double lr_base;
    int lr_scheduler;     /* ScheduleKind */
    int lr_unit;          /* TrainUnit */
    int lr_warmup_method; /* WarmupKind */
    double lr_warmup_epochs, lr_warmup_factor;
    int64_t lr_warmup_iters;   /* 0: lr_warmup_epochs says it */
    int64_t lr_step_size;      /* epochs, or iterations where the run is counted in them */
    const char *lr_milestones; /* N,N,… likewise; NULL: lr_step_size says it */
    double lr_gamma, lr_min, lr_power, lr_flat;
    double lr_pct_start, lr_div_factor, lr_final_div_factor;
    bool cycle_momentum;
    double base_momentum, max_momentum;
    int plateau_metric;         /* Metric; auto */
    int plateau_threshold_mode; /* ThresholdMode */
    double plateau_factor, plateau_threshold;
    int64_t plateau_patience, plateau_cooldown;
    int64_t early_stop_patience; /* evaluations; 0: none */
    double early_stop_min_delta;
    int early_stop_metric; /* Metric; auto */
} ScheduleOptions;

/* Returns the defaults. */
ScheduleOptions schedule_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t schedule_options_rows(ScheduleOptions *options, Option *rows);

#endif
