/* plan_check.c - refuses options that would do nothing, since their user counts on them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "trainer/graph/muon.h"
#include "trainer/plan/recipe.h"

typedef struct Facts {
    const TrainPlan *plan;
    const TrainOptions *options;
} Facts;

static bool is_pairs(const Facts *f)
{
    return plan_is_pairs(f->plan);
}

static bool is_masks(const Facts *f)
{
    return plan_is_masks(f->plan);
}

/* Returns whether the network tells something of whole images: classes or numbers. */
static bool is_classes(const Facts *f)
{
    return !plan_has_targets(f->plan);
}

static bool is_resized(const Facts *f)
{
    return !is_pairs(f);
}

static bool has_no_masks(const Facts *f)
{
    return !is_masks(f);
}

static bool tells_classes(const Facts *f)
{
    return plan_is_classes(f->plan);
}

static bool smooths(const Facts *f)
{
    return tells_classes(f) || is_masks(f);
}

static bool is_single_label(const Facts *f)
{
    return tells_classes(f) && f->plan->label_kind == LABELS_ONE;
}

static bool is_multi_label(const Facts *f)
{
    return tells_classes(f) && f->plan->label_kind == LABELS_MANY;
}

static bool has_labels(const Facts *f)
{
    return f->options->data.labels.path != NULL;
}

static bool has_schedule(const Facts *f, ScheduleKind kind)
{
    return f->plan->schedule.kind == kind;
}

static bool is_by_epochs(const Facts *f)
{
    return !plan_counts_iterations(f->plan);
}

static bool has_epochs(const Facts *f)
{
    return !f->options->training.iters;
}

static bool has_interval(const Facts *f)
{
    return !f->options->training.val_every;
}

static bool warms_by_epochs(const Facts *f)
{
    return !f->options->schedule.lr_warmup_iters;
}

static bool has_no_milestones(const Facts *f)
{
    return !f->options->schedule.lr_milestones;
}

static bool has_no_part(const Facts *f)
{
    return !(f->options->image.crop_pct > 0);
}

static bool takes_resize(const Facts *f)
{
    return !has_no_part(f) || plan_takes_resize(f->options);
}

static bool takes_crop(const Facts *f)
{
    return !f->plan->crop_follows;
}

static bool is_step(const Facts *f)
{
    return has_schedule(f, SCHEDULE_STEP);
}

static bool is_polynomial(const Facts *f)
{
    return has_schedule(f, SCHEDULE_POLYNOMIAL);
}

static bool is_flat_cosine(const Facts *f)
{
    return has_schedule(f, SCHEDULE_FLAT_COSINE);
}

static bool is_one_cycle(const Facts *f)
{
    return has_schedule(f, SCHEDULE_ONE_CYCLE);
}

static bool has_no_cycle(const Facts *f)
{
    return !is_one_cycle(f);
}

static bool cycles_momentum(const Facts *f)
{
    return f->plan->schedule.cycles_momentum;
}

static bool is_plateau(const Facts *f)
{
    return plan_uses_plateau(f->plan);
}

static bool has_end(const Facts *f)
{
    return has_schedule(f, SCHEDULE_COSINE) || has_schedule(f, SCHEDULE_LINEAR) || is_polynomial(f) ||
           is_flat_cosine(f) || is_plateau(f);
}

static bool has_warmup(const Facts *f)
{
    return f->plan->schedule.warmup_steps > 0;
}

static bool changes_rate(const Facts *f)
{
    return has_warmup(f) || has_schedule(f, SCHEDULE_COSINE) || has_schedule(f, SCHEDULE_LINEAR) ||
           is_polynomial(f) || is_flat_cosine(f) || is_one_cycle(f);
}

static bool has_optimizer(const Facts *f, OptimizerKind kind)
{
    return f->plan->recipe.optimizer.kind == kind;
}

static bool keeps_momentum(const Facts *f)
{
    return !cycles_momentum(f);
}

static bool is_muon(const Facts *f)
{
    return has_optimizer(f, OPTIMIZER_MUON);
}

/* Returns whether something is moved by this rule: all, or what is not Muon's. */
static bool has_rule(const Facts *f, OptimizerKind kind)
{
    return muon_rest_kind(&f->plan->recipe.optimizer) == kind;
}

static bool has_nesterov(const Facts *f)
{
    return has_optimizer(f, OPTIMIZER_SGD) || has_optimizer(f, OPTIMIZER_SGDW) || is_muon(f);
}

static bool is_muon_with_sgd(const Facts *f)
{
    return is_muon(f) && has_rule(f, OPTIMIZER_SGD);
}

static bool is_lars(const Facts *f)
{
    return has_optimizer(f, OPTIMIZER_LARS);
}

static bool has_momentum(const Facts *f)
{
    return optimizer_has_momentum(f->plan->recipe.optimizer.kind) || is_muon(f);
}

static bool has_moments(const Facts *f)
{
    return !optimizer_has_momentum(muon_rest_kind(&f->plan->recipe.optimizer));
}

static bool scales_lr(const Facts *f)
{
    const bool open = is_muon(f) ? f->options->muon.rest_lr == 0 : f->options->schedule.lr == 0;
    return open && !has_moments(f);
}

static bool perturbs(const Facts *f)
{
    return f->options->update.sam > 0;
}

static bool looks_ahead(const Facts *f)
{
    return f->plan->recipe.optimizer.lookahead_steps > 0;
}

static bool trains_layers(const Facts *f)
{
    return !f->options->update.head_only;
}

static bool is_bce(const Facts *f)
{
    return f->plan->recipe.loss == LOSS_BCE;
}

static bool averages(const Facts *f)
{
    return f->options->update.model_ema;
}

static bool is_fp16(const Facts *f)
{
    return f->plan->recipe.compute_type == DATA_F16;
}

static bool is_cuda(const Facts *f)
{
    return f->plan->device == DEVICE_CUDA;
}

static bool is_cuda_f32(const Facts *f)
{
    return is_cuda(f) && f->plan->recipe.compute_type == DATA_F32;
}

static bool has_batch_norms(const Facts *f)
{
    return f->plan->model->batch_norm;
}

static bool stops_early(const Facts *f)
{
    return f->options->schedule.early_stop_patience > 0;
}

static bool is_random(const Facts *f)
{
    return f->options->image.augment;
}

static bool is_resized_crop(const Facts *f)
{
    return is_random(f) && f->plan->train_augmentation.mode == CROP_RESIZED;
}

static bool is_scaled(const Facts *f)
{
    return is_resized_crop(f) || (is_random(f) && is_masks(f));
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
    return is_random_classes(f) &&
           (f->options->mixing.mixup_alpha > 0 || f->options->mixing.cutmix_alpha > 0);
}

static bool mixes_both(const Facts *f)
{
    return is_random_classes(f) && f->options->mixing.mixup_alpha > 0 && f->options->mixing.cutmix_alpha > 0;
}

static bool flips_by_chance(const Facts *f)
{
    return is_random(f) && f->plan->train_augmentation.flip_mode == FLIP_RANDOM;
}

static bool is_ra(const Facts *f)
{
    return is_random_classes(f) && f->plan->train_augmentation.auto_augment.kind == AUTO_AUGMENT_RA;
}

static bool erases(const Facts *f)
{
    return is_random_classes(f) && f->options->views.erasing.probability > 0;
}

static bool evaluates(const Facts *f)
{
    return f->plan->evaluation_count > 0;
}

static bool has_sets(const Facts *f)
{
    return f->options->sets.more.count > 0;
}

static bool shuffles(const Facts *f)
{
    return f->plan->sampling.kind == SAMPLER_SHUFFLE;
}

static bool progresses(const Facts *f)
{
    return f->options->image.progressive != NULL;
}

/* Returns whether images are taken by batches of one size. */
static bool has_batches(const Facts *f)
{
    return f->plan->train_count > 0 || is_classes(f);
}

#define WITH_EVALUATION                                                                                      \
    "a dataset with a split to evaluate on (fpack --split 0.1 makes one, --val-split names one)"

#define AT(field) offsetof(TrainOptions, field)

static const struct Rule {
    size_t option; /* place of its value in TrainOptions */
    bool (*useful)(const Facts *facts);
    const char *when;
} rules[] = {
    {AT(schedule.lr_unit), is_by_epochs, "runs that are counted in epochs, not in iterations"},
    {AT(schedule.lr_unit), changes_rate,
     "a learning rate that changes by steps: a warm-up, cosine, linear, polynomial, flat-cosine or "
     "one-cycle"},
    {AT(schedule.lr_warmup_epochs), has_no_cycle,
     "schedules that do not rise by themselves, as one-cycle does"},
    {AT(schedule.lr_warmup_iters), has_no_cycle,
     "schedules that do not rise by themselves, as one-cycle does"},
    {AT(schedule.lr_pct_start), is_one_cycle, "--lr-scheduler one-cycle"},
    {AT(schedule.lr_div_factor), is_one_cycle, "--lr-scheduler one-cycle"},
    {AT(schedule.lr_final_div_factor), is_one_cycle, "--lr-scheduler one-cycle"},
    {AT(schedule.cycle_momentum), is_one_cycle, "--lr-scheduler one-cycle"},
    {AT(schedule.base_momentum), cycles_momentum, "--lr-scheduler one-cycle with --cycle-momentum"},
    {AT(schedule.max_momentum), cycles_momentum, "--lr-scheduler one-cycle with --cycle-momentum"},
    {AT(schedule.lr_step_size), is_step, "--lr-scheduler step"},
    {AT(schedule.lr_milestones), is_step, "--lr-scheduler step"},
    {AT(schedule.lr_step_size), has_no_milestones, "runs without --lr-milestones"},
    {AT(schedule.lr_warmup_epochs), warms_by_epochs, "runs without --lr-warmup-iters"},
    {AT(training.epochs), has_epochs, "runs without --iters"},
    {AT(training.val_interval), has_interval, "runs without --val-every"},
    {AT(image.val_resize_size), has_no_part, "evaluation without --crop-pct"},
    {AT(image.val_resize_size), takes_resize, "the recipe's own crop"},
    {AT(image.val_crop_size), takes_crop, "the recipe's own size of training"},
    {AT(schedule.lr_power), is_polynomial, "--lr-scheduler polynomial"},
    {AT(schedule.lr_flat), is_flat_cosine, "--lr-scheduler flat-cosine"},
    {AT(schedule.lr_min), has_end, "--lr-scheduler cosine, linear, polynomial, flat-cosine and plateau"},
    {AT(schedule.plateau_metric), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.plateau_factor), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.plateau_patience), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.plateau_threshold), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.plateau_threshold_mode), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.plateau_cooldown), is_plateau, "--lr-scheduler plateau"},
    {AT(schedule.lr_gamma), is_step, "--lr-scheduler step"},
    {AT(schedule.lr_warmup_method), has_warmup, "a warm-up (--lr-warmup-epochs)"},
    {AT(schedule.lr_warmup_factor), has_warmup, "a warm-up (--lr-warmup-epochs)"},
    {AT(schedule.lr_base), scales_lr, "sgd, sgdw and lars without --lr, --muon-rest sgd without --rest-lr"},
    {AT(update.momentum), has_momentum, "--opt sgd, sgdw, lars and muon"},
    {AT(update.momentum), keeps_momentum,
     "runs without --cycle-momentum, which --lr-scheduler one-cycle has"},
    {AT(update.nesterov), has_nesterov, "--opt sgd, sgdw and muon"},
    {AT(muon.rest), is_muon, "--opt muon"},
    {AT(muon.adjust), is_muon, "--opt muon"},
    {AT(muon.ns_steps), is_muon, "--opt muon"},
    {AT(muon.renorm), is_muon, "--opt muon"},
    {AT(muon.rest_lr), is_muon, "--opt muon"},
    {AT(muon.rest_momentum), is_muon_with_sgd, "--opt muon with --muon-rest sgd"},
    {AT(muon.rest_momentum), keeps_momentum,
     "runs without --cycle-momentum, which --lr-scheduler one-cycle has"},
    {AT(muon.rest_weight_decay), is_muon, "--opt muon"},
    {AT(update.trust_coefficient), is_lars, "--opt lars"},
    {AT(update.betas), has_moments, "--opt other than sgd, sgdw and lars, and --muon-rest other than sgd"},
    {AT(update.optimizer_epsilon), has_moments,
     "--opt other than sgd, sgdw and lars, and --muon-rest other than sgd"},
    {AT(update.sam_interval), perturbs, "--sam"},
    {AT(update.lookahead_alpha), looks_ahead, "--lookahead"},
    {AT(update.head_only), is_classes, "classes; --freeze names what stays as it is"},
    {AT(update.freeze), trains_layers, "runs without --head-only"},
    {AT(update.layer_decay), trains_layers, "runs without --head-only"},
    {AT(update.model_ema_decay), averages, "--model-ema"},
    {AT(update.model_ema_warmup), averages, "--model-ema"},
    {AT(update.loss_scale), is_fp16, "--amp fp16"},
    {AT(compute.tf32), is_cuda_f32, "--device cuda with --amp off"},
    {AT(compute.cudnn_benchmark), is_cuda, "--device cuda"},
    {AT(training.sync_bn), has_batch_norms, "networks with batch norms"},
    {AT(training.norm_sample), has_batch_norms, "networks with batch norms"},
    {AT(schedule.early_stop_min_delta), stops_early, "--early-stop-patience"},
    {AT(schedule.early_stop_metric), stops_early, "--early-stop-patience"},
    {AT(training.label_smoothing), smooths, "classes and masks"},
    {AT(training.bce_target_thresh), is_bce, "--loss bce"},
    {AT(training.bce_sum), is_bce, "--loss bce"},
    {AT(training.class_weights), tells_classes, "classes"},
    {AT(training.pos_weight), is_multi_label, "images of several labels (--labels)"},
    {AT(data.labels.evaluation_path), has_labels, "--labels"},
    {AT(data.labels.evaluation_path), evaluates, WITH_EVALUATION},
    {AT(data.labels.columns), has_labels, "--labels"},
    {AT(data.labels.names), has_labels, "--labels"},
    {AT(data.labels.kind), has_labels, "--labels"},
    {AT(image.train_crop_mode), is_random_classes, "classes, and not with --no-aug"},
    {AT(image.scale), is_scaled,
     "random resized crops (--train-crop-mode rrc) and masks, and not with --no-aug"},
    {AT(image.ratio), is_resized_crop, "random resized crops (--train-crop-mode rrc), and not with --no-aug"},
    {AT(image.crop_padding), is_padded, "padded crops (--train-crop-mode pad), and not with --no-aug"},
    {AT(views.interpolation), is_resized, "classes and masks; pairs are not resized"},
    {AT(views.flip_mode), is_random_classes, "classes, and not with --no-aug"},
    {AT(views.flip_probability), flips_by_chance,
     "random views, and not with --no-aug or --flip alternating"},
    {AT(views.vertical_flip_probability), is_random_pairs, "pairs, and not with --no-aug"},
    {AT(views.transpose_probability), is_random_pairs, "pairs, and not with --no-aug"},
    {AT(views.auto_augment.text), is_random_classes, "classes, and not with --no-aug"},
    {AT(views.auto_augment.ra_magnitude), is_ra, "--auto-augment ra"},
    {AT(image.color_jitter), is_random, "random views, and not with --no-aug"},
    {AT(views.erasing.probability), is_random_classes, "classes, and not with --no-aug"},
    {AT(views.erasing.fill), erases, "--random-erase"},
    {AT(views.noise), is_random_pairs, "pairs, and not with --no-aug"},
    {AT(mixing.mixup_alpha), is_random_classes, "classes, and not with --no-aug"},
    {AT(mixing.cutmix_alpha), is_random_classes, "classes, and not with --no-aug"},
    {AT(mixing.probability), mixes, "--mixup-alpha or --cutmix-alpha"},
    {AT(mixing.switch_probability), mixes_both, "--mixup-alpha and --cutmix-alpha together"},
    {AT(mixing.mode), mixes, "--mixup-alpha or --cutmix-alpha"},
    {AT(sets.weights), has_sets, "several datasets: ftrain SHARDS MORE OUTPUT"},
    {AT(sets.weights), shuffles, "--sampler shuffle; balanced draws by class, whatever the set"},
    {AT(sampling.kind), is_single_label, "classes, where each image has one"},
    {AT(sampling.repeats), is_random, "random views, and not with --no-aug"},
    {AT(training.batch_size), has_batches, "training and classes; pairs and masks are evaluated one by one"},
    {AT(image.train_crop_size), has_batches, "training and classes; pairs and masks are evaluated whole"},
    {AT(image.progressive), has_batches, "training and classes; pairs and masks are evaluated whole"},
    {AT(image.val_resize_size), is_classes, "classes; pairs and masks are evaluated whole"},
    {AT(image.crop_pct), is_classes, "classes; pairs and masks are evaluated whole"},
    {AT(image.val_crop_size), is_classes, "classes; pairs and masks are evaluated whole"},
    {AT(training.val_batch_size), is_classes, "classes; pairs and masks are evaluated one by one"},
    {AT(image.flip_tta), has_no_masks, "classes and pairs"},
    {AT(image.crop_border), is_pairs, "pairs"},
    {AT(image.y_channel), is_pairs, "pairs"},
    /* Without an evaluation split the weights' file still has the evaluation sizes. */
    {AT(training.val_interval), evaluates, WITH_EVALUATION},
    {AT(training.val_every), evaluates, WITH_EVALUATION},
    {AT(image.progressive), is_by_epochs, "runs that are counted in epochs, not in iterations"},
    {AT(training.val_batch_size), evaluates, WITH_EVALUATION},
    {AT(image.flip_tta), evaluates, WITH_EVALUATION},
    {AT(image.shift_tta), is_classes, "classes; pairs are evaluated where they are"},
    {AT(image.shift_tta), evaluates, WITH_EVALUATION},
    {AT(image.crop_border), evaluates, WITH_EVALUATION},
    {AT(image.y_channel), evaluates, WITH_EVALUATION},
    {AT(image.progressive_step), progresses, "--progressive"},
    {AT(image.progressive_epochs), progresses, "--progressive"},
};

enum { RULES = sizeof rules / sizeof *rules };

/* Adds the name of an option that the recipe gives in vain: with --opt sgd, the betas of its own. What does
 * not fit is left out. */
static void note_idle(TrainPlan *plan, const char *name)
{
    const size_t length = strlen(plan->preset_idle);
    (void)snprintf(plan->preset_idle + length, sizeof plan->preset_idle - length, "%s%s", length ? ", " : "",
                   name);
}

/* Notes what the recipe gives for options that the network lacks. */
static void note_foreign(TrainPlan *plan, const TrainOptions *options)
{
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)); i++)
        if (!model_has_option(plan->model, option) && recipe_gives(options, &options->network.at[i]))
            note_idle(plan, option->row.name);
}

/* Returns whether the rule's option was given and does nothing here, by this rule first. */
static bool is_idle(const Facts *facts, size_t rule, bool trains)
{
    const void *option = (const char *)facts->options + rules[rule].option;
    const bool counts = trains ? train_given(facts->options, option) : train_typed(facts->options, option);
    for (size_t i = 0; i < rule && counts; i++)
        if (rules[i].option == rules[rule].option && !rules[i].useful(facts))
            return false;
    return counts && !rules[rule].useful(facts);
}

/* Refuses the options of all rules that are idle: those that are for the same in one sentence. */
static FshStatus refuse_idle(const TrainOptions *options, bool idle[RULES], FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < RULES; i++) {
        char names[512] = "", text[800];
        size_t length = 0, count = 0;
        for (size_t k = i; k < RULES && idle[i]; k++) {
            if (!idle[k] || strcmp(rules[k].when, rules[i].when) != 0)
                continue;
            if (length < sizeof names)
                length +=
                    (size_t)snprintf(names + length, sizeof names - length, "%s--%s", count ? ", " : "",
                                     train_option_name(options, (const char *)options + rules[k].option));
            idle[k] = k == i; /* of the others this tells */
            count++;
        }
        if (!count)
            continue;
        (void)snprintf(text, sizeof text, "%s: %s for %s", names,
                       count > 1 ? "do nothing here; they are" : "does nothing here; it is", rules[i].when);
        if (status)
            fsh_error_advise(error, "%s", text);
        else
            status = fsh_error_set(error, FSH_ERR_USAGE, "%s", text);
    }
    return status;
}

FshStatus plan_check(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const Facts facts = {plan, options};
    const uint64_t steps = plan->total_steps;
    /* A file of options is written for training: what else is done uses of it what it needs. */
    const bool trains = plan->train_count && !options->data.bench_loader;
    if (trains && (uint64_t)options->report.profile > steps)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--profile: %lld is more than the %llu steps of all epochs",
                             (long long)options->report.profile, (unsigned long long)steps);
    note_foreign(plan, options);
    bool idle[RULES];
    for (size_t i = 0; i < RULES; i++) {
        const void *option = (const char *)options + rules[i].option;
        const bool of_recipe = recipe_gives(options, option);
        idle[i] = is_idle(&facts, i, trains);
        if (idle[i] && of_recipe)
            note_idle(plan, train_option_name(options, option));
        idle[i] = idle[i] && !of_recipe;
    }
    return refuse_idle(options, idle, error);
}
