/* plan_schedule.c - the options of learning rate, plateau and early stopping, and what they decide. */
#include "trainer/plan/plan_schedule.h"

#include <math.h>
#include <string.h>

#include "trainer/plan/train_hints.h"
#include "trainer/plan/train_plan.h"

static const double lr_of_moments = 0.001; /* of all but sgd, sgdw and lars: PyTorch's, NAFNet's */

enum { EPOCHS_MAX = 1000000 };

/* What can be watched, in the order of Metric. */
static const char *const metric_choices[] = {"loss", "top1",     "top5", "psnr", "ssim", "map",
                                             "f1",   "f1_micro", "mae",  "rmse", "miou", "pixel_accuracy",
                                             NULL};
static const Metric metrics_of_choices[] = {METRIC_LOSS, METRIC_TOP1, METRIC_TOP5, METRIC_PSNR,
                                            METRIC_SSIM, METRIC_MAP,  METRIC_F1,   METRIC_F1_MICRO,
                                            METRIC_MAE,  METRIC_RMSE, METRIC_MIOU, METRIC_PIXEL_ACCURACY};
static const char *const schedule_unit_choices[] = {"step", "epoch", NULL};
static const char *const threshold_mode_choices[] = {"rel", "abs", NULL};

ScheduleOptions schedule_options_default(void)
{
    return (ScheduleOptions){
        .lr_base = 0.2,
        .lr_scheduler = SCHEDULE_COSINE,
        .lr_unit = UNIT_STEP,
        .lr_warmup_epochs = 5,
        .lr_warmup_method = WARMUP_LINEAR,
        .lr_warmup_factor = 0.01,
        .lr_step_size = 30,
        .lr_gamma = 0.1,
        .lr_power = 1,
        .lr_flat = 0.75,
        .lr_pct_start = 0.3,
        .lr_div_factor = 25,
        .lr_final_div_factor = 1e4,
        .cycle_momentum = true,
        .base_momentum = 0.85,
        .max_momentum = 0.95,
        .plateau_metric = OPTION_AUTO,
        .plateau_factor = 0.1,
        .plateau_patience = 10,
        .plateau_threshold = 1e-4,
        .plateau_threshold_mode = THRESHOLD_RELATIVE,
        .early_stop_metric = OPTION_AUTO,
    };
}

/* clang-format off */
size_t schedule_options_rows(ScheduleOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "lr", .kind = OPTION_REAL, .value = &o->lr, .argument = "X", .maximum = 1e6,
         .group = "Learning rate",
         .help = "highest learning rate; 0: for sgd, sgdw and lars --lr-base times batch size / 256, for "
                 "muon 0.02 where --muon-adjust-lr is not match_rms_adamw, else 0.001"},
        {.name = "lr-base", .kind = OPTION_REAL, .value = &o->lr_base, .argument = "X", .maximum = 1e6,
         .help = "highest learning rate for a batch of 256 images"},
        {.name = "lr-scheduler", .kind = OPTION_CHOICE, .value = &o->lr_scheduler, .argument = "NAME",
         .alias = "sched", .choices = schedule_names, .hints = train_schedule_hints,
         .help = "what the learning rate does after the warm-up"},
        {.name = "lr-unit", .kind = OPTION_CHOICE, .value = &o->lr_unit, .argument = "UNIT",
         .choices = schedule_unit_choices,
         .help = "the learning rate changes at each step, or at each epoch"},
        {.name = "lr-warmup-epochs", .kind = OPTION_REAL, .value = &o->lr_warmup_epochs, .argument = "X",
         .maximum = EPOCHS_MAX, .alias = "warmup-epochs", .marks = OPTION_VARIES,
         .help = "epochs in which the learning rate rises to its highest; unless given 5, at most a fifth "
                 "of all"},
        {.name = "lr-warmup-iters", .kind = OPTION_INTEGER, .value = &o->lr_warmup_iters, .argument = "N",
         .maximum = 1e12, .alias = "warmup-iter",
         .help = "the same in iterations (updates); 0: --lr-warmup-epochs says it"},
        {.name = "lr-warmup-method", .kind = OPTION_CHOICE, .value = &o->lr_warmup_method, .argument = "NAME",
         .choices = warmup_names,
         .help = "how it rises"},
        {.name = "lr-warmup-decay", .kind = OPTION_REAL, .value = &o->lr_warmup_factor, .argument = "X",
         .maximum = 1,
         .help = "where it begins to rise, as a part of the highest"},
        {.name = "lr-step-size", .kind = OPTION_INTEGER, .value = &o->lr_step_size, .argument = "N",
         .group = "Learning rate of some schedules",
         .minimum = 1,
         .maximum = 1e12,
         .help = "for step: epochs between two drops; with --iters or --val-every iterations"},
        {.name = "lr-milestones", .kind = OPTION_TEXT, .value = &o->lr_milestones, .argument = "N,N,...",
         .alias = "milestones",
         .help = "for step: the epochs (iterations) at which it drops, in place of --lr-step-size"},
        {.name = "lr-gamma", .kind = OPTION_REAL, .value = &o->lr_gamma, .argument = "X", .maximum = 1,
         .help = "for step: what each drop multiplies by"},
        {.name = "lr-power", .kind = OPTION_REAL, .value = &o->lr_power, .argument = "X", .minimum = 0.01,
         .maximum = 100,
         .help = "for polynomial: the power"},
        {.name = "lr-flat", .kind = OPTION_REAL, .value = &o->lr_flat, .argument = "X", .maximum = 0.999,
         .help = "for flat-cosine: the part of the steps after the warm-up that keep the highest"},
        {.name = "lr-pct-start", .kind = OPTION_REAL, .value = &o->lr_pct_start, .argument = "X",
         .minimum = 0.001, .maximum = 1,
         .help = "for one-cycle: the part of the steps in which the learning rate rises"},
        {.name = "lr-div-factor", .kind = OPTION_REAL, .value = &o->lr_div_factor, .argument = "X",
         .minimum = 1, .maximum = 1e9,
         .help = "for one-cycle: what the highest is divided by at the first step"},
        {.name = "lr-final-div-factor", .kind = OPTION_REAL, .value = &o->lr_final_div_factor,
         .argument = "X", .minimum = 1e-9, .maximum = 1e12,
         .help = "for one-cycle: what that is divided by at the last step"},
        {.name = "cycle-momentum", .kind = OPTION_FLAG, .value = &o->cycle_momentum,
         .help = "for one-cycle: momentum (or the first beta) falls while the learning rate rises, and rises "
                 "while it falls"},
        {.name = "base-momentum", .kind = OPTION_REAL, .value = &o->base_momentum, .argument = "X",
         .maximum = 0.9999,
         .help = "for one-cycle: the lowest momentum"},
        {.name = "max-momentum", .kind = OPTION_REAL, .value = &o->max_momentum, .argument = "X",
         .maximum = 0.9999,
         .help = "for one-cycle: the highest momentum"},
        {.name = "lr-min", .kind = OPTION_REAL, .value = &o->lr_min, .argument = "X", .maximum = 1e6,
         .help = "where cosine, linear, polynomial, flat-cosine and plateau end"},
        {.name = "plateau-metric", .kind = OPTION_CHOICE, .value = &o->plateau_metric, .argument = "NAME",
         .group = "Plateaus",
         .choices = metric_choices, .has_auto = true,
         .help = "for plateau: what must get better"},
        {.name = "plateau-factor", .kind = OPTION_REAL, .value = &o->plateau_factor, .argument = "X",
         .minimum = 1e-6, .maximum = 0.999999,
         .help = "for plateau: what each drop multiplies by"},
        {.name = "plateau-patience", .kind = OPTION_INTEGER, .value = &o->plateau_patience, .argument = "N",
         .maximum = EPOCHS_MAX, .alias = "patience-epochs",
         .help = "for plateau: evaluations in a row without improvement that are borne"},
        {.name = "plateau-threshold", .kind = OPTION_REAL, .value = &o->plateau_threshold, .argument = "X",
         .maximum = 1e6,
         .help = "for plateau: by how much a measure must be better to count"},
        {.name = "plateau-threshold-mode", .kind = OPTION_CHOICE, .value = &o->plateau_threshold_mode,
         .argument = "MODE", .choices = threshold_mode_choices,
         .help = "for plateau: the threshold is relative or absolute"},
        {.name = "plateau-cooldown", .kind = OPTION_INTEGER, .value = &o->plateau_cooldown, .argument = "N",
         .maximum = EPOCHS_MAX,
         .help = "for plateau: evaluations after a drop that do not count"},
        {.name = "early-stop-patience", .kind = OPTION_INTEGER, .value = &o->early_stop_patience,
         .group = "Early stopping",
         .argument = "N",
         .maximum = EPOCHS_MAX,
         .help = "stop after so many evaluations without improvement; 0: never"},
        {.name = "early-stop-min-delta", .kind = OPTION_REAL, .value = &o->early_stop_min_delta,
         .argument = "X",
         .maximum = 1e6,
         .help = "by how much a measure must be better to count, for early stopping"},
        {.name = "early-stop-metric", .kind = OPTION_CHOICE, .value = &o->early_stop_metric,
         .argument = "NAME",
         .choices = metric_choices, .has_auto = true,
         .help = "what must improve"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

/* ---- learning rate ---- */

/* Returns the learning rate of sgd for the total batch. */
static double rate_of_momentum(const TrainPlan *plan, const TrainOptions *options)
{
    const double batches = (double)options->training.grad_accum_steps;
    return options->schedule.lr_base * (double)plan_total_batch(plan) * batches / 256;
}

static double choose_rate(const TrainPlan *plan, const TrainOptions *options)
{
    const ScheduleOptions *own = &options->schedule;
    const OptimizerKind kind = plan->recipe.optimizer.kind;
    if (own->lr > 0)
        return own->lr;
    if (kind == OPTIMIZER_MUON)
        return plan_muon_rate(plan, lr_of_moments);
    if (!optimizer_has_momentum(kind))
        return lr_of_moments;
    return rate_of_momentum(plan, options);
}

/* Returns the passes of the run over the training split. */
static double run_epochs(const TrainPlan *plan, const TrainOptions *options)
{
    return plan->steps_per_pass ? (double)plan->total_steps / (double)plan->steps_per_pass
                                : (double)options->training.epochs;
}

/* Returns the steps of the warm-up that is given in epochs, or chosen. epochs: passes of the run. */
static uint64_t warmup_of_epochs(const TrainPlan *plan, double warmup_epochs, uint64_t update_steps)
{
    const double updates = (double)plan->steps_per_pass / (double)update_steps;
    if (plan->schedule.hold_steps) /* in whole epochs */
        return (uint64_t)llround(warmup_epochs) * plan->steps_per_epoch;
    return (uint64_t)llround(warmup_epochs * updates) * update_steps;
}

double plan_warmup_epochs(const TrainPlan *plan, const TrainOptions *options)
{
    const ScheduleOptions *own = &options->schedule;
    return train_given(options, &own->lr_warmup_epochs)
               ? own->lr_warmup_epochs
               : fmin(own->lr_warmup_epochs, 0.2 * run_epochs(plan, options));
}

static FshStatus plan_warmup(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const ScheduleOptions *own = &options->schedule;
    Schedule *schedule = &plan->schedule;
    const uint64_t update_steps = (uint64_t)options->training.grad_accum_steps; /* which have one rate */
    const uint64_t total = schedule->total_steps;
    const double epochs = run_epochs(plan, options), warmup_epochs = plan_warmup_epochs(plan, options);
    if (schedule->kind == SCHEDULE_ONE_CYCLE) /* it rises by itself */
        return FSH_OK;
    if (own->lr_warmup_iters && schedule->hold_steps)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-warmup-iters: with --lr-unit epoch the warm-up is in whole epochs; give "
                             "--lr-warmup-epochs");
    schedule->warmup_steps = own->lr_warmup_iters ? (uint64_t)own->lr_warmup_iters * update_steps
                                                  : warmup_of_epochs(plan, warmup_epochs, update_steps);
    if (plan->train_count && own->lr_warmup_iters && schedule->warmup_steps >= total)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-warmup-iters: %lld leaves nothing of %llu iterations",
                             (long long)own->lr_warmup_iters, (unsigned long long)(total / update_steps));
    if (!own->lr_warmup_iters && warmup_epochs >= epochs)
        return fsh_error_set(error, FSH_ERR_USAGE, "--lr-warmup-epochs: %g leaves nothing of %g epochs",
                             warmup_epochs, epochs);
    if (schedule->warmup_steps >= total) /* rounded up, it must leave at least one update */
        schedule->warmup_steps = total > update_steps ? total - update_steps : 0;
    return FSH_OK;
}

/* Reads --lr-milestones. */
static FshStatus plan_milestones(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const ScheduleOptions *own = &options->schedule;
    const bool counts = plan_counts_iterations(plan);
    const uint64_t unit = counts ? plan->iteration_steps : plan->steps_per_pass;
    Schedule *schedule = &plan->schedule;
    double numbers[SCHEDULE_MILESTONES_MAX];
    size_t count = 0;
    FshStatus status = train_options_numbers("lr-milestones", own->lr_milestones, 1, 1e12, numbers,
                                             SCHEDULE_MILESTONES_MAX, &count, error);
    for (size_t i = 0; i < count && !status; i++) {
        const uint64_t step = (uint64_t)numbers[i] * unit;
        schedule->milestones[schedule->milestone_count++] = step;
        if (numbers[i] != floor(numbers[i]) || (i && numbers[i] <= numbers[i - 1]))
            status =
                fsh_error_set(error, FSH_ERR_USAGE,
                              "--lr-milestones: '%s' is not a list of whole numbers, each larger than the "
                              "one before",
                              own->lr_milestones);
        else if (plan->train_count && step >= plan->total_steps)
            status = fsh_error_set(error, FSH_ERR_USAGE, "--lr-milestones: the run ends before %s %.0f",
                                   counts ? "iteration" : "epoch", numbers[i]);
    }
    return status;
}

/* Sets *steps_ret to the steps between two drops. */
static FshStatus plan_step_size(const TrainPlan *plan, const TrainOptions *options, uint64_t *steps_ret,
                                FshError *error)
{
    const ScheduleOptions *own = &options->schedule;
    const bool counts = plan_counts_iterations(plan);
    *steps_ret = (uint64_t)own->lr_step_size * (counts ? plan->iteration_steps : plan->steps_per_pass);
    if (own->lr_milestones)
        return FSH_OK;
    if (counts && own->lr_scheduler == SCHEDULE_STEP && !train_given(options, &own->lr_step_size))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--lr-step-size: give the iterations between two drops; %lld is meant for epochs",
            (long long)own->lr_step_size);
    return FSH_OK;
}

FshStatus plan_schedule(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const ScheduleOptions *own = &options->schedule;
    const ScheduleKind kind = (ScheduleKind)own->lr_scheduler;
    const bool by_epochs = own->lr_unit == UNIT_EPOCH;
    plan->schedule = (Schedule){
        .kind = kind,
        .base = choose_rate(plan, options),
        .minimum = own->lr_min,
        .warmup = (WarmupKind)own->lr_warmup_method,
        .warmup_factor = own->lr_warmup_factor,
        .hold_steps = by_epochs ? plan->steps_per_epoch : 0,
        .warmup_hold_steps = by_epochs ? plan->steps_per_epoch : 0,
        .total_steps = plan->total_steps,
        .gamma = own->lr_gamma,
        .power = own->lr_power,
        .flat = own->lr_flat,
        .rise = own->lr_pct_start,
        .div = own->lr_div_factor,
        .final_div = own->lr_final_div_factor,
        .cycles_momentum = kind == SCHEDULE_ONE_CYCLE && own->cycle_momentum,
        .momentum_min = own->base_momentum,
        .momentum_max = own->max_momentum,
    };
    plan->recipe.optimizer.cycles_momentum = plan->schedule.cycles_momentum;
    plan_muon_rest_rate(plan, options, lr_of_moments, rate_of_momentum(plan, options));
    FshStatus status = plan_warmup(plan, options, error);
    if (!status)
        status = plan_step_size(plan, options, &plan->schedule.step_size, error);
    if (!status && own->lr_milestones)
        status = plan_milestones(plan, options, error);
    if (status || !plan->train_count)
        return status;
    if (plan->schedule.cycles_momentum && own->base_momentum > own->max_momentum)
        return fsh_error_set(error, FSH_ERR_USAGE, "--base-momentum: %g is more than --max-momentum, %g",
                             own->base_momentum, own->max_momentum);
    if (!(plan->schedule.base > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-base: 0 leaves a learning rate of 0; nothing would be learnt");
    const bool falls = kind != SCHEDULE_CONSTANT && kind != SCHEDULE_STEP && kind != SCHEDULE_ONE_CYCLE;
    if (falls && plan->schedule.minimum > plan->schedule.base)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-min: %g is more than the highest learning rate of %g",
                             plan->schedule.minimum, plan->schedule.base);
    return FSH_OK;
}

/* ---- watched metrics ---- */

/* Returns what a metric is measured on: classes, several labels, numbers, pairs, masks, from 0. */
static size_t metric_group(Metric metric)
{
    return metric == METRIC_MAP || metric == METRIC_F1 || metric == METRIC_F1_MICRO ? 1
           : metric == METRIC_MAE || metric == METRIC_RMSE                          ? 2
           : metric == METRIC_PSNR || metric == METRIC_SSIM                         ? 3
           : metric == METRIC_MIOU || metric == METRIC_PIXEL_ACCURACY               ? 4
                                                                                    : 0;
}

static FshStatus find_metric(const TrainPlan *plan, const char *option, int metric, Metric *metric_ret,
                             FshError *error)
{
    static const char *const held[] = {"classes", "several labels", "numbers", "pairs", "masks"};
    const size_t own = metric_group(plan->main_metric);
    *metric_ret = metric == OPTION_AUTO ? plan->main_metric : metrics_of_choices[metric];
    if (*metric_ret == METRIC_LOSS || metric_group(*metric_ret) == own)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s is measured on %s, and this dataset holds %s",
                         option, metric_names[*metric_ret], held[metric_group(*metric_ret)], held[own]);
}

int plan_metric_choice(Metric metric)
{
    int choice = 0;
    while (metric_choices[choice] && metrics_of_choices[choice] != metric)
        choice++;
    return metric_choices[choice] ? choice : OPTION_AUTO;
}

FshStatus plan_watch(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const ScheduleOptions *own = &options->schedule;
    plan->main_metric = plan_is_pairs(plan)                  ? METRIC_PSNR
                        : plan_is_masks(plan)                ? METRIC_MIOU
                        : plan->label_kind == LABELS_MANY    ? METRIC_MAP
                        : plan->label_kind == LABELS_NUMBERS ? METRIC_MAE
                                                             : METRIC_TOP1;
    FshStatus status = find_metric(plan, "plateau-metric", own->plateau_metric, &plan->plateau_metric, error);
    if (!status)
        status =
            find_metric(plan, "early-stop-metric", own->early_stop_metric, &plan->early_stop_metric, error);
    if (status)
        return status;
    plan->plateau = (PlateauOptions){
        .higher_is_better = metric_rises(plan->plateau_metric),
        .threshold_is_absolute = own->plateau_threshold_mode == THRESHOLD_ABSOLUTE,
        .threshold = own->plateau_threshold,
        .factor = own->plateau_factor,
        .patience = own->plateau_patience,
        .cooldown = own->plateau_cooldown,
        .minimum = own->lr_min,
    };
    plan->early_stop = (EarlyStopOptions){
        .higher_is_better = metric_rises(plan->early_stop_metric),
        .patience = own->early_stop_patience,
        .min_delta = own->early_stop_min_delta,
    };
    const bool watches = own->early_stop_patience > 0 || plan_uses_plateau(plan);
    if (watches && plan->train_count && !plan->evaluation_count)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--%s: needs a split for evaluation, and there is none; fpack --split 0.1 makes one",
            plan_uses_plateau(plan) ? "lr-scheduler plateau" : "early-stop-patience");
    return FSH_OK;
}
