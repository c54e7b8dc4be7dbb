/* plan_training.c - decides loss, optimizer and schedule. */
#include <math.h>

#include "trainer/plan/train_plan.h"

static const double lr_of_moments = 0.001; /* adam, adamw, lamb: PyTorch's and NAFNet's */

/* ---- loss ---- */

static FshStatus plan_loss(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->recipe.loss = options->loss != OPTION_AUTO ? (LossKind)options->loss
                        : plan_is_pairs(plan)        ? LOSS_CHARBONNIER
                                                     : LOSS_CROSS_ENTROPY;
    const bool of_classes = plan->recipe.loss == LOSS_CROSS_ENTROPY || plan->recipe.loss == LOSS_BCE;
    if (of_classes == plan_is_pairs(plan))
        return fsh_error_set(error, FSH_ERR_USAGE, "--loss: %s is for %s, and this dataset holds %s",
                             loss_names[plan->recipe.loss], of_classes ? "classes" : "pairs",
                             of_classes ? "pairs" : "classes");
    plan->recipe.label_smoothing = plan_is_pairs(plan) ? 0 : (float)options->label_smoothing;
    plan->recipe.mixes = !plan_is_pairs(plan) && options->augment && options->mixing.probability > 0 &&
                         (options->mixing.mixup_alpha > 0 || options->mixing.cutmix_alpha > 0);
    return FSH_OK;
}

/* ---- optimizer ---- */

static OptimizerKind choose_optimizer(const TrainPlan *plan, const TrainOptions *options)
{
    if (options->optimizer != OPTION_AUTO)
        return (OptimizerKind)options->optimizer;
    return plan_is_pairs(plan) ? OPTIMIZER_ADAMW : OPTIMIZER_SGD;
}

static double choose_decay(const TrainPlan *plan, const TrainOptions *options, OptimizerKind kind)
{
    if (train_given(options, &options->weight_decay))
        return options->weight_decay;
    if (plan_is_pairs(plan))
        return 0;
    return kind == OPTIMIZER_ADAMW ? 0.05 : options->weight_decay;
}

static FshStatus plan_optimizer(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const OptimizerKind kind = choose_optimizer(plan, options);
    double betas[2] = {0, 0};
    size_t count = 0;
    FshStatus status =
        train_options_numbers("opt-betas", options->betas, 0, 0.9999999, betas, 2, &count, error);
    if (status)
        return status;
    if (count != 2)
        return fsh_error_set(error, FSH_ERR_USAGE, "--opt-betas: '%s' is not B1:B2", options->betas);
    const bool fp16 = plan->recipe.compute_type == DATA_F16;
    plan->recipe.optimizer = (Optimizer){
        .kind = kind,
        .momentum = options->momentum,
        .nesterov = kind == OPTIMIZER_SGD && options->nesterov && options->momentum > 0,
        .beta1 = betas[0],
        .beta2 = betas[1],
        .epsilon = options->optimizer_epsilon,
        .trust_coefficient = options->trust_coefficient,
        .weight_decay = choose_decay(plan, options, kind),
        .clip_norm = options->clip_grad,
        .lookahead_steps = options->lookahead_steps,
        .lookahead_alpha = options->lookahead_alpha,
        .accumulation_steps = options->grad_accum_steps,
        .ema_decay = options->model_ema ? options->model_ema_decay : 0,
        .ema_warmup = options->model_ema_warmup,
        .loss_scaling = fp16 && options->loss_scale > 0,
        .scale_init = options->loss_scale,
        .scale_growth = 2,
        .scale_backoff = 0.5,
        .scale_interval = 2000,
        .learning_rate = TENSOR_NONE,
    };
    if (options->nesterov && train_given(options, &options->nesterov) && options->momentum == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--nesterov: wants --momentum above 0");
    return FSH_OK;
}

/* ---- learning rate ---- */

static double choose_rate(const TrainPlan *plan, const TrainOptions *options)
{
    const OptimizerKind kind = plan->recipe.optimizer.kind;
    if (options->lr > 0)
        return options->lr;
    if (kind != OPTIMIZER_SGD && kind != OPTIMIZER_LARS)
        return lr_of_moments;
    return options->lr_base * (double)plan_total_batch(plan) * (double)options->grad_accum_steps / 256;
}

static FshStatus plan_warmup(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const double epochs = (double)options->epochs;
    const double warmup_epochs = train_given(options, &options->lr_warmup_epochs)
                                     ? options->lr_warmup_epochs
                                     : fmin(options->lr_warmup_epochs, 0.2 * epochs);
    if (warmup_epochs >= epochs)
        return fsh_error_set(error, FSH_ERR_USAGE, "--lr-warmup-epochs: %g leaves nothing of %lld epochs",
                             warmup_epochs, (long long)options->epochs);
    Schedule *schedule = &plan->schedule;
    schedule->warmup_steps = (uint64_t)llround(warmup_epochs * (double)plan->steps_per_epoch);
    if (schedule->hold_steps) /* in whole epochs */
        schedule->warmup_steps = (uint64_t)llround(warmup_epochs) * plan->steps_per_epoch;
    if (schedule->warmup_steps >= schedule->total_steps) /* rounded up, it must leave at least one step */
        schedule->warmup_steps = schedule->total_steps ? schedule->total_steps - 1 : 0;
    return FSH_OK;
}

static FshStatus plan_schedule(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->uses_plateau = options->lr_scheduler == TRAIN_PLATEAU;
    const ScheduleKind kind = plan->uses_plateau ? SCHEDULE_CONSTANT : (ScheduleKind)options->lr_scheduler;
    const bool by_epochs = options->lr_unit == UNIT_EPOCH;
    plan->schedule = (Schedule){
        .kind = kind,
        .base = choose_rate(plan, options),
        .minimum = options->lr_min,
        .warmup = (WarmupKind)options->lr_warmup_method,
        .warmup_factor = options->lr_warmup_factor,
        .hold_steps = by_epochs ? plan->steps_per_epoch : 0,
        .warmup_hold_steps = by_epochs ? plan->steps_per_epoch : 0,
        .total_steps = plan->epochs * plan->steps_per_epoch,
        .step_size = (uint64_t)options->lr_step_size * plan->steps_per_epoch,
        .gamma = options->lr_gamma,
        .power = options->lr_power,
    };
    FshStatus status = plan_warmup(plan, options, error);
    if (status || !plan->train_count)
        return status;
    if (!(plan->schedule.base > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-base: 0 leaves a learning rate of 0; nothing would be learnt");
    const bool falls = plan->uses_plateau || (kind != SCHEDULE_CONSTANT && kind != SCHEDULE_STEP);
    if (falls && plan->schedule.minimum > plan->schedule.base)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-min: %g is more than the highest learning rate of %g",
                             plan->schedule.minimum, plan->schedule.base);
    return FSH_OK;
}

/* ---- watched metrics ---- */

static FshStatus find_metric(const TrainPlan *plan, const char *option, int metric, Metric *metric_ret,
                             FshError *error)
{
    *metric_ret = metric == OPTION_AUTO ? plan->main_metric : (Metric)metric;
    const bool of_pairs = *metric_ret == METRIC_PSNR || *metric_ret == METRIC_SSIM;
    if (*metric_ret == METRIC_LOSS || of_pairs == plan_is_pairs(plan))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s is measured on %s, and this dataset holds %s",
                         option, metric_names[*metric_ret], of_pairs ? "pairs" : "classes",
                         of_pairs ? "classes" : "pairs");
}

static FshStatus plan_watch(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->main_metric = plan_is_pairs(plan) ? METRIC_PSNR : METRIC_TOP1;
    FshStatus status =
        find_metric(plan, "plateau-metric", options->plateau_metric, &plan->plateau_metric, error);
    if (!status)
        status = find_metric(plan, "early-stop-metric", options->early_stop_metric, &plan->early_stop_metric,
                             error);
    if (status)
        return status;
    plan->plateau = (PlateauOptions){
        .higher_is_better = metric_rises(plan->plateau_metric),
        .threshold_is_absolute = options->plateau_threshold_mode == THRESHOLD_ABSOLUTE,
        .threshold = options->plateau_threshold,
        .factor = options->plateau_factor,
        .patience = options->plateau_patience,
        .cooldown = options->plateau_cooldown,
        .minimum = options->lr_min,
    };
    plan->early_stop = (EarlyStopOptions){
        .higher_is_better = metric_rises(plan->early_stop_metric),
        .patience = options->early_stop_patience,
        .min_delta = options->early_stop_min_delta,
    };
    const bool watches = options->early_stop_patience > 0 || plan->uses_plateau;
    if (watches && plan->train_count && !plan->evaluation_count)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--%s: needs a split for evaluation, and there is none; fpack --split 0.1 makes one",
            plan->uses_plateau ? "lr-scheduler plateau" : "early-stop-patience");
    return FSH_OK;
}

FshStatus plan_training(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->epochs = (uint64_t)options->epochs;
    plan_precision(plan, options);
    FshStatus status = plan_loss(plan, options, error);
    if (!status)
        status = plan_optimizer(plan, options, error);
    if (!status)
        status = plan_schedule(plan, options, error);
    if (!status)
        status = plan_watch(plan, options, error);
    return status;
}
