/* plan_describe.c - prints the plan in a few lines. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "trainer/graph/muon.h"
#include "trainer/plan/recipe.h"

typedef struct Teller {
    void (*print)(void *context, const char *line);
    void *context;
} Teller;

/* A line under construction. */
typedef struct Line {
    char text[768];
    size_t length;
} Line;

FSH_PRINTF(2, 3) static void say(Line *line, const char *format, ...);

static void say(Line *line, const char *format, ...)
{
    va_list arguments;
    if (line->length >= sizeof line->text)
        return;
    va_start(arguments, format);
    const int wrote =
        vsnprintf(line->text + line->length, sizeof line->text - line->length, format, arguments);
    va_end(arguments);
    line->length += wrote > 0 ? (size_t)wrote : 0;
}

static void tell(const Teller *teller, Line *line)
{
    teller->print(teller->context, line->text);
    *line = (Line){0};
}

static void tell_dataset(const Teller *teller, const TrainPlan *plan, const TrainingData *data)
{
    Line line = {0};
    say(&line, "dataset: %s, ", fsh_path(data->dataset));
    if (plan_is_pairs(plan))
        say(&line, "pairs (%s to %s), ", data->input_name, data->target_name);
    else if (plan_is_masks(plan) && !data->inputs_alone)
        say(&line, "images and masks (%s, %s), %lld classes, ", data->input_name, data->target_name,
            (long long)data->class_count);
    else
        say(&line, "%zu %s, ", data->inputs_alone ? (size_t)data->class_count : data->own_class_count,
            data->label_kind != LABELS_NUMBERS ? "classes"
            : data->own_class_count == 1       ? "number of each image"
                                               : "numbers of each image");
    say(&line, "%s, short edge %s%u pixels", data->channels == 1 ? "gray" : "colour",
        data->uniform ? "" : "about ", data->short_edge);
    tell(teller, &line);
    const bool files =
        !data->inputs_alone && fsh_container_has(fsh_manifest(data->dataset)->container, FSH_HAS_FILES);
    if (files) {
        say(&line, "files that nobody has packed: fpack makes a dataset of them, which is read faster, has "
                   "been verified, and tells its mean and deviation");
        tell(teller, &line);
    }
    if (!data->measured && !plan_is_pairs(plan)) {
        say(&line, "normalisation: ImageNet's mean and deviation, for %s",
            files ? "nobody has measured the files" : "the dataset has none (fpack --no-check)");
        tell(teller, &line);
    }
}

/* Tells what each of several sets has, and how often it is drawn. */
static void tell_sets(const Teller *teller, const TrainingData *data)
{
    const TrainingSets *sets = &data->sets;
    Line line = {0};
    for (size_t i = 0; i < sets->count && sets->count > 1; i++) {
        say(&line, "set %s: ", sets->names[i]);
        if (data->train) {
            const uint64_t samples = set_samples(data->train, i);
            say(&line, "%" PRIu64 " sample%s of %s", samples, text_plural(samples), data->train->info->name);
            if (sets->weights)
                say(&line, ", weight %g: %" PRIu64 " in an epoch", sets->weights[i],
                    set_draws(sets->weights[i], samples));
        }
        if (data->evaluation && set_samples(data->evaluation, i))
            say(&line, "%s%" PRIu64 " of %s", data->train ? ", " : "", set_samples(data->evaluation, i),
                data->evaluation->info->name);
        else if (data->evaluation)
            say(&line, ", none to evaluate on");
        tell(teller, &line);
    }
}

/* Adds that the dataset has other splits than those in hand, whose samples a file of keys may mean. */
static void say_other_splits(Line *line, const TrainingData *data)
{
    const FshManifest *manifest = fsh_manifest(data->dataset);
    size_t count = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const char *name = manifest->splits[i].name;
        const bool open = (data->train && strcmp(data->train->info->name, name) == 0) ||
                          (data->evaluation && strcmp(data->evaluation->info->name, name) == 0);
        if (!open)
            say(line, "%s%s", count++ ? ", " : "; not looked at: the other samples, of ", name);
    }
}

static void tell_labels(const Teller *teller, const TrainingData *data)
{
    const TrainingLabels *labels = &data->labels;
    const LabelFit *fit = &labels->fit;
    Line line = {0};
    if (!labels->path)
        return;
    say(&line, "labels: %s, %s, of %" PRIu64 " records", labels->path, label_kind_names[labels->kind],
        fit->records);
    tell(teller, &line);
    if (!fit->unused)
        return;
    say(&line, "labels: %" PRIu64 " of %" PRIu64 " lines are of no record here: %s%s", fit->unused, fit->rows,
        fit->first_unused, fit->unused > LABEL_KEYS_TOLD ? ", …" : "");
    say_other_splits(&line, data);
    tell(teller, &line);
}

/* Returns how many samples an epoch of training with repeats has. */
static uint64_t distinct_samples(const TrainPlan *plan)
{
    const uint64_t places = plan->steps_per_pass * plan_total_batch(plan),
                   repeats = (uint64_t)plan->sampling.repeats;
    return (places + repeats - 1) / repeats;
}

static void tell_splits(const Teller *teller, const TrainPlan *plan, const TrainingData *data)
{
    Line line = {0};
    if (data->train) {
        say(&line, "split %s: %" PRIu64 " sample%s, ", data->train->info->name, plan->train_count,
            text_plural(plan->train_count));
        if (plan->pass_count != plan->train_count)
            say(&line, "%" PRIu64 " drawn in an epoch, ", plan->pass_count);
        say(&line, "%" PRIu64 " step%s of %" PRIu64, plan->steps_per_pass, text_plural(plan->steps_per_pass),
            plan_total_batch(plan));
        if (plan->sampling.kind == SAMPLER_SHUFFLE && plan->sampling.repeats <= 1) {
            const uint64_t left_out = plan->pass_count - plan->steps_per_pass * plan_total_batch(plan);
            say(&line, " (%" PRIu64 " sample%s left out of each epoch)", left_out, text_plural(left_out));
        }
        if (plan->recipe.optimizer.accumulation_steps > 1)
            say(&line, ", %lld steps for an update: %lld images",
                (long long)plan->recipe.optimizer.accumulation_steps,
                (long long)plan->recipe.optimizer.accumulation_steps * (long long)plan_total_batch(plan));
        if (plan->sampling.kind == SAMPLER_BALANCED)
            say(&line, ", each class equally often");
        if (plan->sampling.repeats > 1)
            say(&line, ", each sample %lld times: %" PRIu64 " of them in an epoch",
                (long long)plan->sampling.repeats, distinct_samples(plan));
        tell(teller, &line);
    }
    if (data->evaluation)
        say(&line, "split %s: %" PRIu64 " sample%s, for evaluation", data->evaluation->info->name,
            plan->evaluation_count, text_plural(plan->evaluation_count));
    else
        say(&line, "no split 'val' or 'test': training without evaluation; fpack --split 0.1 makes one");
    tell(teller, &line);
}

void plan_describe_batch(const TrainPlan *plan, void (*print)(void *context, const char *line), void *context)
{
    const Teller teller = {print, context};
    Line line = {0};
    const uint64_t batch = (uint64_t)plan->train_spec.batch, wanted = plan->device_batch;
    if (!plan->batch_is_chosen || plan->batch_is_kept || !wanted)
        return;
    const double share = batch_rate_share(&plan->device_cost, batch);
    say(&line,
        "batch: %" PRIu64 " images, with which a GPU reaches about %.0f %% of its best rate for this network",
        batch, 100 * share);
    if (batch * (plan->divides_batch ? plan->world_size : 1) < wanted)
        say(&line, "; the split is small, else it would be %" PRIu64, wanted);
    else if (share < 0.9 && wanted < BATCH_CHOSEN_MOST)
        say(&line, "; its memory holds no larger one");
    say(&line, " (--batch-size)");
    tell(&teller, &line);
}

/* Tells what was chosen of the dataset. */
static void tell_choice(const Teller *teller, const TrainPlan *plan, const TrainingData *data)
{
    const SampleChoice *choice = &data->choice;
    Line line = {0};
    if (!choice->made)
        return;
    say(&line, "chosen: ");
    if (data->train)
        say(&line, "%" PRIu64 " of %" PRIu64 " samples of %s", plan->train_count, choice->train_of,
            data->train->info->name);
    if (data->evaluation)
        say(&line, "%s%" PRIu64 " of %" PRIu64 " samples of %s", data->train ? ", " : "",
            plan->evaluation_count, choice->evaluation_of, data->evaluation->info->name);
    if (choice->class_count < choice->class_of)
        say(&line, ", %zu of %zu classes", choice->class_count, choice->class_of);
    say(&line, ", in %.2f s; digest %s", choice->seconds, choice->digest);
    tell(teller, &line);
    if (choice->limit_is_idle) {
        say(&line, "chosen: --limit leaves out none: %s",
            data->class_count > 1 ? "it counts samples of each class, and no class has more"
                                  : "the split has no more");
        tell(teller, &line);
    }
    if (choice->left_out[0]) {
        say(&line,
            "chosen: no sample of %s, which the network does not have (--classes FILE says which it has)",
            choice->left_out);
        tell(teller, &line);
    }
    if (choice->empty[0]) {
        say(&line, "chosen: no sample to train on of %s, which the network has all the same", choice->empty);
        tell(teller, &line);
    }
    if (choice->unread) {
        say(&line, "chosen: left out %" PRIu64 " record%s without a key; see fverify", choice->unread,
            text_plural(choice->unread));
        tell(teller, &line);
    }
    if (choice->unmet[0]) {
        say(&line, "chosen: %s", choice->unmet);
        say_other_splits(&line, data);
        tell(teller, &line);
    }
}

static void say_colours(Line *line, const TrainPlan *plan)
{
    const Augmentation *train = &plan->train_augmentation;
    const ColourJitter *jitter = &train->jitter;
    if (train->auto_augment.kind != AUTO_AUGMENT_NONE)
        say(line, ", %s", train->auto_augment.text);
    if (train->auto_augment.kind == AUTO_AUGMENT_RA)
        say(line, " of magnitude %lld", (long long)train->auto_augment.ra_magnitude);
    if (train->auto_augment.kind != AUTO_AUGMENT_NONE && plan->source->recipes)
        say(line, " on the GPU");
    if (jitter->brightness > 0 || jitter->contrast > 0 || jitter->saturation > 0 || jitter->hue > 0)
        say(line, ", colour jitter %g:%g:%g:%g", jitter->brightness, jitter->contrast, jitter->saturation,
            jitter->hue);
    if (train->noise > 0)
        say(line, ", noise up to %g", train->noise);
    if (train->erasing.probability > 0)
        say(line, ", random erasing %g", train->erasing.probability);
    if (plan->recipe.mixes && plan->mixing.mixup_alpha > 0)
        say(line, ", mixup %g", plan->mixing.mixup_alpha);
    if (plan->recipe.mixes && plan->mixing.cutmix_alpha > 0)
        say(line, ", cutmix %g", plan->mixing.cutmix_alpha);
    if (plan->recipe.mixes && plan->mixing.mode == MIXING_BATCH)
        say(line, " (one draw for a batch)");
}

/* Adds the interpolation where it is not the default. */
static void say_interpolation(Line *line, const Augmentation *augmentation)
{
    if (augmentation->interpolation != INTERPOLATION_BILINEAR)
        say(line, ", %s", interpolation_names[augmentation->interpolation]);
}

/* Returns whether images of that short edge have to be enlarged. */
static bool enlarges(const TrainPlan *plan, const TrainingData *data, uint32_t edge)
{
    return !plan_has_targets(plan) && data->short_edge && edge > data->short_edge;
}

/* Tells of images that are smaller than what the network is to see of them: they are enlarged, which costs
 * time and teaches nothing. what: the size that they lack; use: what takes them as they are, by `options`. */
static void tell_enlarged(const Teller *teller, const TrainingData *data, uint32_t edge, const char *what,
                          const char *use, const char *options)
{
    Line line = {0};
    say(&line,
        "the images are smaller than %s of %u pixels, and are enlarged: pack them with a short edge of %u "
        "or more (fresize --max-size), or %s at %u (%s)",
        what, edge, edge, use, data->short_edge, options);
    tell(teller, &line);
}

/* Tells of square crops from anywhere that the resized images leave no room for. */
static void tell_no_room(const Teller *teller, const Augmentation *train)
{
    Line line = {0};
    if (train->mode != CROP_KEPT_RATIO || train->resize > train->size)
        return;
    say(&line,
        "the short edge becomes as long as the crop, %u pixels: crops differ along the long edge alone, and "
        "those of a square image not at all; use a larger --val-resize-size, which training follows, "
        "smaller crops (--train-crop-size, --val-crop-size), or --train-crop-mode rrc",
        train->size);
    tell(teller, &line);
}

static uint32_t largest_edge(const TrainPlan *plan)
{
    return plan->edge_count ? plan->edges[plan->edge_count - 1] : 0;
}

static void tell_views(const Teller *teller, const TrainPlan *plan, const TrainingData *data)
{
    const Augmentation *train = &plan->train_augmentation;
    const Progression *sizes = &plan->progression;
    Line line = {0};
    if (sizes->from == sizes->to)
        say(&line, "images: %u pixels", train->size);
    else
        say(&line, "images: %u to %u pixels from epoch %g to %g", sizes->from, sizes->to, sizes->first,
            sizes->last);
    if (train->mode == CROP_RESIZED)
        say(&line, ", random resized crop (scale %g to %g, ratio %.3g to %.3g)", train->scale_min,
            train->scale_max, train->ratio_min, train->ratio_max);
    else if (train->mode == CROP_PADDED)
        say(&line, ", moved by up to %u pixels", train->padding);
    else if (train->mode == CROP_KEPT_RATIO)
        say(&line, ", short edge %u, a square from anywhere", train->resize);
    else if (train->mode == CROP_RANDOM)
        say(&line, ", cropped as they are");
    else if (train->mode == CROP_SCALED)
        say(&line, ", resized by %g to %g, cropped or padded", train->scale_min, train->scale_max);
    else
        say(&line, ", centre crop");
    say_interpolation(&line, train);
    if (train->flip_mode == FLIP_ALTERNATING)
        say(&line, ", flip %s", flip_mode_names[train->flip_mode]);
    else if (train->flip_probability > 0)
        say(&line, ", flip %g", train->flip_probability);
    else
        say(&line, ", no flip");
    if (train->vertical_flip_probability > 0 || train->transpose_probability > 0)
        say(&line, ", upside down %g, quarter turns %g", train->vertical_flip_probability,
            train->transpose_probability);
    say_colours(&line, plan);
    tell(teller, &line);
    tell_no_room(teller, train);
    if (enlarges(plan, data, largest_edge(plan)))
        tell_enlarged(teller, data, largest_edge(plan), "the crop", "train", "--train-crop-size");
}

static void say_precision(Line *line, const TrainPlan *plan)
{
    const DataType type = plan->recipe.compute_type;
    say(line, ", precision %s%s", type == DATA_F32 ? "float32" : plan_amp_name(type),
        plan->tf32 ? " with TF32 products" : "");
    if (plan->precision_chosen && type != DATA_F32)
        say(line, " (--amp off for float32)");
    if (plan->deterministic)
        say(line, ", deterministic");
}

static void tell_evaluation(const Teller *teller, const TrainPlan *plan, const TrainingData *data)
{
    const Augmentation *evaluation = &plan->evaluation_augmentation;
    Line line = {0};
    if (plan_is_pairs(plan)) {
        say(&line, "evaluation: whole images, PSNR and SSIM on %s", plan->y_channel ? "luma" : "RGB");
        if (plan->crop_border)
            say(&line, " without %u pixels at the edges", plan->crop_border);
    } else if (plan_is_masks(plan)) {
        say(&line, "evaluation: whole images, mean IoU over all pixels of the split but those of 255");
    } else {
        say(&line, "evaluation: short edge to %u, centre %u pixels", evaluation->resize, evaluation->size);
        if (plan->crop_follows)
            say(&line, " as in training (%s learns positions)", plan->model->name);
        say_interpolation(&line, evaluation);
    }
    if (plan->flip_tta)
        say(&line, ", mean with the mirror image");
    if (plan->shift_tta)
        say(&line, ", mean with itself moved by %u pixel%s both ways", plan->shift_tta,
            text_plural(plan->shift_tta));
    if (!plan->train_count)
        say_precision(&line, plan);
    tell(teller, &line);
    /* Files of images have not been looked at; that training enlarges them as much has been told. */
    if (data->evaluation && !data->inputs_alone && enlarges(plan, data, evaluation->resize) &&
        evaluation->resize > largest_edge(plan))
        tell_enlarged(teller, data, evaluation->resize, "evaluation's short edge", "evaluate",
                      plan->model->learns_positions ? "--val-resize-size"
                                                    : "--val-resize-size, --val-crop-size");
}

static void say_muon(Line *line, const MuonRule *m)
{
    say(line, "muon momentum %g%s, %lld steps, %s%s, weight decay %g; for the rest ", m->momentum,
        m->nesterov ? " (Nesterov)" : "", (long long)m->steps, muon_scale_names[m->scale],
        m->renorm ? ", renorm" : "", m->weight_decay);
    if (m->rest_rate != 1)
        say(line, "%.4g times the learning rate, ", m->rest_rate);
}

static void say_optimizer(Line *line, const Optimizer *o)
{
    const OptimizerKind rule = muon_rest_kind(o);
    if (o->kind == OPTIMIZER_MUON)
        say_muon(line, &o->muon);
    say(line, "%s", optimizer_names[rule]);
    if (optimizer_has_momentum(rule))
        say(line, " momentum %g%s", o->momentum, o->nesterov ? " (Nesterov)" : "");
    else
        say(line, " betas %g:%g", o->beta1, o->beta2);
    say(line, ", weight decay %g", o->weight_decay);
    if (o->clip_norm > 0)
        say(line, ", gradients clipped at %g", o->clip_norm);
    if (o->sam_rho > 0)
        say(line, ", sam %g", o->sam_rho);
    if (o->sam_rho > 0 && o->sam_interval > 1)
        say(line, " every %lld updates", (long long)o->sam_interval);
    if (o->lookahead_steps > 0)
        say(line, ", lookahead %lld:%g", (long long)o->lookahead_steps, o->lookahead_alpha);
    if (o->ema_decay > 0)
        say(line, ", average of weights %g%s", o->ema_decay, o->ema_warmup ? " (warm-up)" : "");
}

static void say_rules(Line *line, const ParameterRules *rules)
{
    if (rules->head_only)
        say(line, ", the last linear layer alone");
    if (rules->freeze)
        say(line, ", without %s", rules->freeze);
    if (rules->rates)
        say(line, ", learning rates %s", rules->rates);
    if (rules->layer_decay < 1)
        say(line, ", layer decay %g", rules->layer_decay);
}

/* Adds the range of the weights. */
static void say_class_weights(Line *line, const float *weights, int64_t classes)
{
    double least = (double)weights[0], most = least;
    for (int64_t c = 1; c < classes; c++) {
        least = fmin(least, (double)weights[c]);
        most = fmax(most, (double)weights[c]);
    }
    say(line, ", classes weighted from %.3g to %.3g", least, most);
}

static void say_length(Line *line, const TrainPlan *plan)
{
    if (!plan_counts_iterations(plan)) {
        say(line, "training: %" PRIu64 " epoch%s", plan->epochs, text_plural(plan->epochs));
        return;
    }
    const uint64_t iterations = plan_iterations(plan, plan->total_steps);
    say(line, "training: %" PRIu64 " iteration%s", iterations, text_plural(iterations));
    if (plan->steps_per_pass)
        say(line, " (%.4g epochs)", (double)plan->total_steps / (double)plan->steps_per_pass);
    if (plan->evaluation_count && plan->evaluation_interval)
        say(line, ", evaluated every %" PRIu64,
            plan_iterations(plan, plan->evaluation_interval * plan->steps_per_epoch));
}

static void tell_training(const Teller *teller, const TrainPlan *plan)
{
    const ModelRecipe *recipe = &plan->recipe;
    Line line = {0};
    say_length(&line, plan);
    say(&line, ", %s", loss_names[plan->recipe.loss]);
    if (recipe->label_smoothing > 0)
        say(&line, " (label smoothing %g)", (double)recipe->label_smoothing);
    if (recipe->loss == LOSS_BCE && recipe->bce_binarizes)
        say(&line, " of targets above %g", (double)recipe->bce_threshold);
    if (recipe->loss == LOSS_BCE && recipe->bce_sums)
        say(&line, ", summed over classes");
    if (plan->class_weights)
        say_class_weights(&line, plan->class_weights, plan->train_spec.classes);
    say(&line, ", ");
    say_optimizer(&line, &recipe->optimizer);
    say_rules(&line, &recipe->rules);
    tell(teller, &line);
    if (!plan->preset && plan->model->recipe && recipe->optimizer.kind == OPTIMIZER_SGD) {
        say(&line, "%s was published with adamw: --recipe %s, or --opt adamw --weight-decay 0.05",
            plan->model->name, plan->model->recipe);
        tell(teller, &line);
    }
    say(&line, "learning rate: %.4g, %s", plan->schedule.base, schedule_names[plan->schedule.kind]);
    if (plan->schedule.warmup_steps)
        say(&line, ", warm-up %" PRIu64 " step%s", plan->schedule.warmup_steps,
            text_plural(plan->schedule.warmup_steps));
    if (plan->schedule.cycles_momentum)
        say(&line, ", momentum %g to %g", plan->schedule.momentum_max, plan->schedule.momentum_min);
    if (plan->early_stop.patience)
        say(&line, "; stops after %lld epoch%s without better %s", (long long)plan->early_stop.patience,
            text_plural((uint64_t)plan->early_stop.patience), metric_names[plan->early_stop_metric]);
    say(&line, "; seed %" PRIu64, plan->seed);
    say_precision(&line, plan);
    if (recipe->optimizer.loss_scaling)
        say(&line, ", loss scale %g", recipe->optimizer.scale_init);
    tell(teller, &line);
    char norms[PLAN_NORMS_BYTES];
    if (plan_describe_norms(plan, norms)) {
        say(&line, "batch norms: statistics of %s", norms);
        tell(teller, &line);
    }
}

bool plan_describe_norms(const TrainPlan *plan, char text[PLAN_NORMS_BYTES])
{
    const ModelRecipe *recipe = &plan->recipe;
    const BatchNorm norm = {.training = true, .sample = recipe->norm_sample};
    char sampled[96] = "";
    if (recipe->norm_sample > 1)
        (void)snprintf(sampled, sizeof sampled, "one image in %d (%lld of %lld) of ", recipe->norm_sample,
                       (long long)batch_norm_sampled(&norm, plan->train_spec.batch),
                       (long long)plan->train_spec.batch);
    (void)snprintf(text, PLAN_NORMS_BYTES, "%s%s", sampled,
                   recipe->sync_norms     ? "the batches of all ranks"
                   : plan->sync_bn        ? "this process's batch: --sync-bn is for several ranks"
                   : plan->world_size > 1 ? "each rank's batch"
                                          : "each batch");
    return plan->sync_bn || recipe->norm_sample > 1;
}

void plan_describe(const TrainPlan *plan, const TrainingData *data,
                   void (*print)(void *context, const char *line), void *context)
{
    const Teller teller = {print, context};
    recipe_describe(plan, print, context);
    tell_dataset(&teller, plan, data);
    tell_sets(&teller, data);
    tell_labels(&teller, data);
    tell_splits(&teller, plan, data);
    tell_choice(&teller, plan, data);
    if (data->train)
        plan_describe_batch(plan, print, context);
    if (data->train)
        tell_views(&teller, plan, data);
    tell_evaluation(&teller, plan, data);
    if (data->train)
        tell_training(&teller, plan);
}
