/* train_options.h - what the user can say to ftrain: one struct with the defaults, and the table that fills it.
 *
 * A number of 0 means "chosen from the dataset or the machine" where the help says so; train_plan.h chooses. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_OPTIONS_H
#define FSHARD_TRAINER_LOOP_TRAIN_OPTIONS_H

#include "common/program.h"

typedef struct TrainOptions {
    ProgramOptions program;
    bool force, list_models, evaluate, nesterov, augment;
    bool lr_warmup_given, hflip_given, model_given; /* these mean something else when they were not given */

    const char *shards, *output;         /* given as options, or as arguments (main) */
    const char *train_split, *val_split; /* val_split NULL: val, else test */
    const char *on_error;                /* "stop", "skip" */
    int64_t workers;                     /* loader threads; 0: chosen */
    const char *cache;                   /* "none", "ram", "lock" */

    const char *model;
    const char *weights; /* NULL: drawn from the seed */
    const char *device;  /* "auto", "cpu", "cuda" */

    int64_t epochs;
    int64_t batch_size, val_batch_size; /* 0: chosen */
    double lr;                          /* 0: lr_base for each 256 images of the batch */
    double lr_base;
    const char *lr_scheduler;
    double lr_warmup_epochs;
    int64_t lr_step_size; /* epochs */
    double lr_gamma, lr_min, lr_power;
    double momentum, weight_decay, label_smoothing;
    int64_t seed;
    int64_t log_interval; /* steps */

    int64_t train_crop_size, val_resize_size, val_crop_size; /* pixels; 0: chosen */
    const char *train_crop_mode;                             /* "auto" or one of crop_mode_names */
    const char *scale, *ratio;                               /* MIN:MAX */
    int64_t crop_padding;                                    /* pixels; 0: an eighth of the crop */
    double hflip_prob;
} TrainOptions;

/* The defaults. */
TrainOptions train_options_default(void);

/* The rows; the last is empty. Points into options. rows has room for TRAIN_OPTION_ROWS. */
enum { TRAIN_OPTION_ROWS = 64 };
void train_options_rows(TrainOptions *options, Option *rows);

extern const char train_summary[], train_usage[], train_examples[];

/* "0.25:1" as two numbers with low <= MIN <= MAX <= high. FSH_ERR_USAGE names the option. */
FshStatus train_options_range(const char *name, const char *text, double low, double high,
                              double *minimum_ret, double *maximum_ret, FshError *error);

#endif
