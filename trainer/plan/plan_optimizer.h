/* plan_optimizer.h - the options of the optimizer and of what goes with it: clipping, Lookahead, the average
 * of the weights, the scale of the loss. plan_optimizer.c has their rows, and the one place that reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_OPTIMIZER_H
#define FSHARD_TRAINER_PLAN_PLAN_OPTIMIZER_H

#include "common/options.h"

typedef struct UpdateOptions {
    int optimizer; /* OptimizerKind; auto */
    double momentum, weight_decay, optimizer_epsilon, trust_coefficient, clip_grad;
    bool nesterov;
    const char *betas; /* BETA1:BETA2 */
    double sam;        /* rho; 0: none */
    int64_t sam_interval;
    int64_t lookahead_steps;
    double lookahead_alpha;
    bool model_ema, model_ema_warmup;
    double model_ema_decay;
    double loss_scale; /* fp16: the first; 0: none */
    /* which parameters are trained, and how fast (parameter_rules.h); NULL: none are named */
    const char *freeze, *lr_of;
    double layer_decay; /* 1: none */
    bool head_only;
} UpdateOptions;

/* Returns the defaults. */
UpdateOptions update_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t update_options_rows(UpdateOptions *options, Option *rows);

#endif
