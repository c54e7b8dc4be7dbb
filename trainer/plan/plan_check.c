/* Options that would do nothing: whoever gives one believes in it. */
#include <string.h>

#include "trainer/plan/train_plan.h"

typedef struct Facts {
    const TrainPlan *plan;
    const TrainOptions *options;
} Facts;

static bool is_pairs(const Facts *f)
{
    return f->plan->model->task == TASK_RESTORATION;
}

static bool is_classes(const Facts *f)
{
    return !is_pairs(f);
}

static bool has_schedule(const Facts *f, ScheduleKind kind)
{
    return f->plan->schedule.kind == kind && !f->plan->uses_plateau;
}

static bool is_step(const Facts *f)
{
    return has_schedule(f, SCHEDULE_STEP);
}

static bool is_polynomial(const Facts *f)
{
    return has_schedule(f, SCHEDULE_POLYNOMIAL);
}

static bool is_plateau(const Facts *f)
{
    return f->plan->uses_plateau;
}

static bool has_end(const Facts *f)
{
    return has_schedule(f, SCHEDULE_COSINE) || has_schedule(f, SCHEDULE_LINEAR) || is_polynomial(f) ||
           is_plateau(f);
}

static bool has_warmup(const Facts *f)
{
    return f->plan->schedule.warmup_steps > 0;
}

static bool changes_rate(const Facts *f)
{
    return has_warmup(f) || has_schedule(f, SCHEDULE_COSINE) || has_schedule(f, SCHEDULE_LINEAR) ||
           is_polynomial(f);
}

static bool has_optimizer(const Facts *f, OptimizerKind kind)
{
    return f->plan->recipe.optimizer.kind == kind;
}

static bool is_sgd(const Facts *f)
{
    return has_optimizer(f, OPTIMIZER_SGD);
}

static bool is_lars(const Facts *f)
{
    return has_optimizer(f, OPTIMIZER_LARS);
}

static bool has_momentum(const Facts *f)
{
    return is_sgd(f) || is_lars(f);
}

static bool has_moments(const Facts *f)
{
    return !has_momentum(f);
}

static bool scales_lr(const Facts *f)
{
    return has_momentum(f) && f->options->lr == 0;
}

static bool looks_ahead(const Facts *f)
{
    return f->plan->recipe.optimizer.lookahead_steps > 0;
}

static bool averages(const Facts *f)
{
    return f->options->model_ema;
}

static bool is_fp16(const Facts *f)
{
    return f->plan->recipe.compute_type == DATA_F16;
}

static bool is_cuda(const Facts *f)
{
    return strcmp(f->plan->device, "cuda") == 0;
}

static bool is_cuda_f32(const Facts *f)
{
    return is_cuda(f) && f->plan->recipe.compute_type == DATA_F32;
}

static bool stops_early(const Facts *f)
{
    return f->options->early_stop_patience > 0;
}

static bool is_random(const Facts *f)
{
    return f->options->augment;
}

static bool is_resized_crop(const Facts *f)
{
    return is_random(f) && f->plan->train_augmentation.mode == CROP_RESIZED;
}

static bool is_padded(const Facts *f)
{
    return is_random(f) && f->plan->train_augmentation.mode == CROP_PADDED;
}

static bool is_random_classes(const Facts *f)
{
    return is_random(f) && is_classes(f);
}

static bool is_random_pairs(const Facts *f)
{
    return is_random(f) && is_pairs(f);
}

static bool mixes(const Facts *f)
{
    return is_random_classes(f) && (f->options->mixup_alpha > 0 || f->options->cutmix_alpha > 0);
}

static bool mixes_both(const Facts *f)
{
    return is_random_classes(f) && f->options->mixup_alpha > 0 && f->options->cutmix_alpha > 0;
}

static bool erases(const Facts *f)
{
    return is_random_classes(f) && f->options->random_erase > 0;
}

static bool evaluates(const Facts *f)
{
    return f->plan->evaluation_count > 0;
}

static bool progresses(const Facts *f)
{
    return f->options->progressive != NULL;
}

static bool benches(const Facts *f)
{
    return f->options->bench_loader;
}

static bool smooths(const Facts *f)
{
    return is_classes(f);
}

#define WITH_EVALUATION                                                                                      \
    "a dataset with a split to evaluate on (fpack --split 0.1 makes one, --val-split names one)"

static const struct Rule {
    const char *option;
    bool (*useful)(const Facts *facts);
    const char *when;
} rules[] = {
    {"lr-unit", changes_rate,
     "a learning rate that changes by steps: a warm-up, cosine, linear or polynomial"},
    {"lr-step-size", is_step, "--lr-scheduler step"},
    {"lr-power", is_polynomial, "--lr-scheduler polynomial"},
    {"lr-min", has_end, "--lr-scheduler cosine, linear, polynomial and plateau"},
    {"plateau-metric", is_plateau, "--lr-scheduler plateau"},
    {"plateau-factor", is_plateau, "--lr-scheduler plateau"},
    {"plateau-patience", is_plateau, "--lr-scheduler plateau"},
    {"plateau-threshold", is_plateau, "--lr-scheduler plateau"},
    {"plateau-threshold-mode", is_plateau, "--lr-scheduler plateau"},
    {"plateau-cooldown", is_plateau, "--lr-scheduler plateau"},
    {"lr-gamma", is_step, "--lr-scheduler step"},
    {"lr-warmup-method", has_warmup, "a warm-up (--lr-warmup-epochs)"},
    {"lr-warmup-decay", has_warmup, "a warm-up (--lr-warmup-epochs)"},
    {"lr-base", scales_lr, "sgd and lars without --lr"},
    {"momentum", has_momentum, "--opt sgd and lars"},
    {"nesterov", is_sgd, "--opt sgd"},
    {"trust-coefficient", is_lars, "--opt lars"},
    {"opt-betas", has_moments, "--opt adam, adamw and lamb"},
    {"opt-eps", has_moments, "--opt adam, adamw and lamb"},
    {"lookahead-alpha", looks_ahead, "--lookahead"},
    {"model-ema-decay", averages, "--model-ema"},
    {"model-ema-warmup", averages, "--model-ema"},
    {"loss-scale", is_fp16, "--amp fp16"},
    {"tf32", is_cuda_f32, "--device cuda with --amp off"},
    {"cudnn-benchmark", is_cuda, "--device cuda"},
    {"early-stop-min-delta", stops_early, "--early-stop-patience"},
    {"early-stop-metric", stops_early, "--early-stop-patience"},
    {"label-smoothing", smooths, "classes"},
    {"train-crop-mode", is_random_classes, "classes, and not with --no-aug"},
    {"scale", is_resized_crop, "random resized crops (--train-crop-mode rrc), and not with --no-aug"},
    {"ratio", is_resized_crop, "random resized crops (--train-crop-mode rrc), and not with --no-aug"},
    {"crop-padding", is_padded, "padded crops (--train-crop-mode pad), and not with --no-aug"},
    {"hflip-prob", is_random, "random views, and not with --no-aug"},
    {"vflip-prob", is_random_pairs, "pairs, and not with --no-aug"},
    {"rotate-prob", is_random_pairs, "pairs, and not with --no-aug"},
    {"color-jitter", is_random, "random views, and not with --no-aug"},
    {"random-erase", is_random_classes, "classes, and not with --no-aug"},
    {"random-erase-mode", erases, "--random-erase"},
    {"noise", is_random_pairs, "pairs, and not with --no-aug"},
    {"mixup-alpha", is_random_classes, "classes, and not with --no-aug"},
    {"cutmix-alpha", is_random_classes, "classes, and not with --no-aug"},
    {"mixup-prob", mixes, "--mixup-alpha or --cutmix-alpha"},
    {"mixup-switch-prob", mixes_both, "--mixup-alpha and --cutmix-alpha together"},
    {"val-resize-size", is_classes, "classes; pairs are evaluated whole"},
    {"val-crop-size", is_classes, "classes; pairs are evaluated whole"},
    {"val-batch-size", is_classes, "classes; pairs are evaluated one by one"},
    {"crop-border", is_pairs, "pairs"},
    {"y-channel", is_pairs, "pairs"},
    /* Without a split the sizes of evaluation stand in the weights' file all the same. */
    {"val-interval", evaluates, WITH_EVALUATION},
    {"val-batch-size", evaluates, WITH_EVALUATION},
    {"flip-tta", evaluates, WITH_EVALUATION},
    {"crop-border", evaluates, WITH_EVALUATION},
    {"y-channel", evaluates, WITH_EVALUATION},
    {"progressive-epochs", progresses, "--progressive"},
    {"drop-caches", benches, "--bench-loader"},
};

FshStatus plan_check(const TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const Facts facts = {plan, options};
    const uint64_t steps = plan->epochs * plan->steps_per_epoch;
    /* Evaluation and prediction take what training was given (a config file), and use what they need. */
    if (!plan->train_count)
        return FSH_OK;
    if ((uint64_t)options->profile > steps)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--profile: %lld is more than the %llu steps of all epochs",
                             (long long)options->profile, (unsigned long long)steps);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (train_options_given(options, rules[i].option) && !rules[i].useful(&facts))
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s: does nothing here; it is for %s",
                                 rules[i].option, rules[i].when);
    return FSH_OK;
}
