#include "trainer/plan/plan_chosen.h"

#include "common/options_config.h"
#include "trainer/plan/deciding_options.h"

enum { CHOICES_MAX = 32 };

/* The options with what the plan has chosen, and the values of which these are. */
typedef struct Choices {
    TrainOptions options;
    const void *fields[CHOICES_MAX];
    size_t count;
} Choices;

static void note(Choices *choices, const void *field)
{
    if (choices->count < CHOICES_MAX)
        choices->fields[choices->count++] = field;
}

static void choose_real(Choices *choices, bool open, double *field, double value)
{
    if (!open)
        return;
    *field = value;
    note(choices, field);
}

static void choose_count(Choices *choices, bool open, int64_t *field, int64_t value)
{
    if (!open)
        return;
    *field = value;
    note(choices, field);
}

static void choose_one(Choices *choices, bool open, int *field, int value)
{
    if (!open || *field != OPTION_AUTO)
        return;
    *field = value;
    note(choices, field);
}

static void choose_text(Choices *choices, bool open, const char **field, const char *value)
{
    if (!open)
        return;
    *field = value;
    note(choices, field);
}

static bool is_open(const Choices *choices, const void *field)
{
    return !train_given(&choices->options, field);
}

static void choose_update(Choices *choices, const TrainPlan *plan)
{
    UpdateOptions *update = &choices->options.update;
    MuonOptions *muon = &choices->options.muon;
    const Optimizer *o = &plan->recipe.optimizer;
    const bool is_muon = o->kind == OPTIMIZER_MUON;
    const UpdateOptions whole = plan_update_options(plan, &choices->options, o->kind);
    choose_one(choices, true, &update->optimizer, (int)o->kind);
    choose_real(choices, is_open(choices, &update->momentum), &update->momentum, whole.momentum);
    choose_text(choices, is_open(choices, &update->betas), &update->betas, whole.betas);
    choose_real(choices, is_open(choices, &update->optimizer_epsilon), &update->optimizer_epsilon,
                whole.optimizer_epsilon);
    choose_real(choices, is_open(choices, &update->weight_decay), &update->weight_decay, whole.weight_decay);
    choose_count(choices, is_open(choices, &update->lookahead_steps), &update->lookahead_steps,
                 whole.lookahead_steps);
    choose_real(choices, is_muon && is_open(choices, &muon->rest_weight_decay), &muon->rest_weight_decay,
                o->weight_decay);
    choose_real(choices, is_muon && muon->rest_lr == 0, &muon->rest_lr,
                plan->schedule.base * o->muon.rest_rate);
}

static void choose_schedule(Choices *choices, const TrainPlan *plan)
{
    ScheduleOptions *schedule = &choices->options.schedule;
    choose_real(choices, is_open(choices, &schedule->lr_warmup_epochs), &schedule->lr_warmup_epochs,
                plan_warmup_epochs(plan, &choices->options));
    choose_real(choices, schedule->lr == 0, &schedule->lr, plan->schedule.base);
    choose_one(choices, true, &schedule->plateau_metric, plan_metric_choice(plan->plateau_metric));
    choose_one(choices, true, &schedule->early_stop_metric, plan_metric_choice(plan->early_stop_metric));
}

static void choose_images(Choices *choices, const TrainPlan *plan)
{
    ImageOptions *image = &choices->options.image;
    const Augmentation *train = &plan->train_augmentation, *evaluation = &plan->evaluation_augmentation;
    const bool classes = !plan_has_targets(plan), crops = classes && image->augment;
    choose_count(choices, !image->train_crop_size && !image->progressive, &image->train_crop_size,
                 train->size);
    choose_count(choices, !image->val_crop_size && classes, &image->val_crop_size, evaluation->size);
    choose_count(choices, !image->val_resize_size && classes && !(image->crop_pct > 0),
                 &image->val_resize_size, evaluation->resize);
    choose_count(choices, !image->crop_padding && crops && train->mode == CROP_PADDED, &image->crop_padding,
                 train->padding);
    choose_one(choices, crops, &image->train_crop_mode, (int)train->mode);
    choose_text(choices, is_open(choices, &image->scale), &image->scale,
                plan_scale_text(plan, &choices->options));
    choose_real(choices, image->augment && is_open(choices, &choices->options.views.flip_probability),
                &choices->options.views.flip_probability, train->flip_probability);
}

json_t *plan_chosen(const TrainPlan *plan, const TrainOptions *options)
{
    Choices choices = {.options = *options};
    TrainOptions *own = &choices.options;
    choose_text(&choices, !own->model, &own->model, plan->model->name);
    choose_one(&choices, true, &own->training.loss, (int)plan->recipe.loss);
    choose_real(&choices, is_open(&choices, &own->training.label_smoothing), &own->training.label_smoothing,
                plan->recipe.label_smoothing > 0 ? own->training.label_smoothing : 0);
    choose_one(&choices, true, &own->compute.amp, plan_amp_choice(plan->recipe.compute_type));
    choose_update(&choices, plan);
    choose_schedule(&choices, plan);
    choose_images(&choices, plan);
    json_t *all = deciding_options(own), *chosen = json_object();
    int failed = !all || !chosen;
    for (size_t i = 0; i < choices.count && !failed; i++) {
        char name[64];
        (void)options_python_name(train_option_name(own, choices.fields[i]), name, sizeof name);
        failed = json_object_set(chosen, name, json_object_get(all, name));
    }
    json_decref(all);
    if (!failed)
        return chosen;
    json_decref(chosen);
    return NULL;
}
