/* plan_training.c - decides batches, steps and the loss; optimizer and schedule have files of their own. */
#include "trainer/plan/plan_training.h"

#include <string.h>

#include "trainer/data/sampler.h"
#include "trainer/plan/train_hints.h"
#include "trainer/plan/train_plan.h"

enum {
    BATCH_MAX = 1 << 20,
    EPOCHS_MAX = 1000000,
    BATCH_DEFAULT = 64,
    BATCH_OF_PAIRS = 16,
    BATCH_LEAST = 8,   /* batch norm needs a few images */
    STEPS_WANTED = 20, /* in an epoch: with fewer, the default number of epochs teaches nothing */
    /* with more than the usual images: fewer updates are not worth a GPU's speed */
    STEPS_WANTED_OF_LARGE = 64,
};

TrainingOptions training_options_default(void)
{
    return (TrainingOptions){
        .epochs = 16,
        .grad_accum_steps = 1,
        .loss = OPTION_AUTO,
        .label_smoothing = 0.1,
        .bce_target_thresh = 1,
        .norm_sample = 1,
    };
}

/* clang-format off */
size_t training_options_rows(TrainingOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "epochs", .kind = OPTION_INTEGER, .value = &o->epochs, .argument = "N", .minimum = 1,
         .maximum = EPOCHS_MAX, .group = "Training",
         .uses = USE_LEARN,
         .help = "passes over the training split"},
        {.name = "iters", .kind = OPTION_INTEGER, .value = &o->iters, .argument = "N", .maximum = 1e12,
         .alias = "total-iter",
         .uses = USE_LEARN,
         .help = "iterations (updates) in place of --epochs; schedules, log and tables count in them then"},
        {.name = "batch-size", .letter = 'b', .kind = OPTION_INTEGER, .value = &o->batch_size,
         .argument = "N",
         .maximum = BATCH_MAX,
         .help = "images in a step; 0: 64 (16 for pairs and masks), fewer where the split is small; on a GPU "
                 "as many as it needs to reach 90 % of its best rate with the network"},
        {.name = "val-batch-size", .kind = OPTION_INTEGER, .value = &o->val_batch_size, .argument = "N",
         .maximum = BATCH_MAX,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_NETWORK,
         .help = "images in a step of evaluation; 0: as in training"},
        {.name = "val-interval", .kind = OPTION_INTEGER, .value = &o->val_interval, .argument = "N",
         .maximum = EPOCHS_MAX,
         .uses = USE_LEARN,
         .help = "epochs between two evaluations; the last epoch is always evaluated; 0: 1, or, for pairs "
                 "and masks, as many as keep "
                 "evaluation under a fifth of the time"},
        {.name = "val-every", .kind = OPTION_INTEGER, .value = &o->val_every, .argument = "N",
         .maximum = 1e12, .alias = "val-freq",
         .uses = USE_LEARN,
         .help = "iterations between two evaluations, in place of --val-interval"},
        {.name = "grad-accum-steps", .kind = OPTION_INTEGER, .value = &o->grad_accum_steps, .argument = "N",
         .minimum = 1, .maximum = 65536,
         .uses = USE_LEARN,
         .help = "batches whose gradients are averaged for one update"},
        {.name = "seed", .kind = OPTION_INTEGER, .value = &o->seed, .argument = "N",
         .maximum = 9007199254740992.0,
         .uses = USE_SAMPLES,
         .help = "decides first weights, order and augmentation: the same seed gives the same result"},
        {.name = "sync-bn", .kind = OPTION_FLAG, .value = &o->sync_bn, .alias = "sync-batchnorm",
         .uses = USE_LEARN,
         .help = "batch norms of training take mean and variance over the batches of all ranks, as one "
                 "process with the total batch does"},
        {.name = "norm-sample", .kind = OPTION_INTEGER, .value = &o->norm_sample, .argument = "N",
         .minimum = 1, .maximum = BATCH_MAX,
         .uses = USE_LEARN,
         .help = "batch norms of training take mean and variance of one image in N of the batch, and "
                 "normalise all by them: faster, and not the same network; 1: of all"},
        {.name = "loss", .kind = OPTION_CHOICE, .value = &o->loss, .argument = "NAME", .group = "Loss",
         .choices = loss_names, .has_auto = true, .hints = train_loss_hints,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "auto: cross-entropy, of masks that of pixels, for several labels bce, for numbers mse, for "
                 "pairs charbonnier"},
        {.name = "bce-target-thresh", .kind = OPTION_REAL, .value = &o->bce_target_thresh, .argument = "X",
         .maximum = 1,
         .uses = USE_LEARN,
         .help = "for --loss bce: targets of mixed and smoothed labels above X become 1, others 0; 1: as "
                 "they are"},
        {.name = "bce-sum", .kind = OPTION_FLAG, .value = &o->bce_sum,
         .uses = USE_LEARN | USE_EVALUATE,
         .help = "for --loss bce: the sum over the classes, not their mean"},
        {.name = "label-smoothing", .kind = OPTION_REAL, .value = &o->label_smoothing, .argument = "X",
         .maximum = 0.99, .alias = "smoothing",
         .uses = USE_LEARN, .marks = OPTION_VARIES,
         .help = "part of each label that is spread over all classes; unless given 0.1, of several labels "
                 "and masks 0"},
        {.name = "class-weights", .kind = OPTION_TEXT, .value = &o->class_weights, .argument = "HOW",
         .alias = "class-weight",
         .uses = USE_LEARN,
         .help = "how much each class counts in the loss of training: balanced, by how many images it has, "
                 "or a file with a line CLASS WEIGHT for each"},
        {.name = "pos-weight", .kind = OPTION_TEXT, .value = &o->pos_weight, .argument = "HOW",
         .uses = USE_LEARN,
         .help = "with several labels: how much an image that has a class counts in the class's loss beside "
                 "one that has not: balanced, a number, or a file with a line CLASS WEIGHT for each"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

/* ---- batches and steps ---- */

/* Sets *share_ret to what one rank takes of `total` images: with --parallel dp its part, else all. option:
 * who says the total. */
static FshStatus share_batch(const TrainOptions *options, const void *option, int64_t total, uint64_t ranks,
                             uint64_t *share_ret, FshError *error)
{
    const bool divides = options->ranks.parallel == RANK_PARALLEL_DP;
    const uint64_t images = (uint64_t)total, below = images / ranks * ranks;
    *share_ret = divides ? images / ranks : images;
    if (!divides || below == images)
        return FSH_OK;
    if (below == 0)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--%s: %llu is the total (--parallel dp), and there are %llu ranks; give %llu, or "
            "start fewer",
            train_option_name(options, option), (unsigned long long)images, (unsigned long long)ranks,
            (unsigned long long)ranks);
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "--%s: %llu is the total (--parallel dp), which %llu ranks cannot share alike; %llu "
                         "and %llu are nearest",
                         train_option_name(options, option), (unsigned long long)images,
                         (unsigned long long)ranks, (unsigned long long)below,
                         (unsigned long long)(below + ranks));
}

uint64_t plan_usual_batch(const TrainPlan *plan)
{
    return plan_has_targets(plan) ? BATCH_OF_PAIRS : BATCH_DEFAULT;
}

/* Returns how many images a rank takes in a step where nobody says it: with --parallel dp its share of what
 * one process would take. A run that goes on keeps its own, where there are as many ranks. */
static uint64_t choose_batch(TrainPlan *plan, const TrainOptions *options)
{
    const uint64_t usual = plan_usual_batch(plan), least = plan_has_targets(plan) ? 1 : BATCH_LEAST,
                   sharing = plan->divides_batch ? plan->world_size : 1;
    const uint64_t samples = plan->pass_count / (plan->world_size / sharing);
    uint64_t batch = options->device_batch > usual ? options->device_batch : usual;
    plan->batch_is_kept = options->run_batch && options->run_ranks == plan->world_size &&
                          options->run_batch <= plan->pass_count / plan->world_size;
    plan->device_batch = options->device_batch;
    plan->device_cost = options->device_cost;
    if (plan->batch_is_kept)
        return options->run_batch;
    while (samples && batch > usual && batch * STEPS_WANTED_OF_LARGE > samples)
        batch /= 2;
    while (samples && batch > least && batch * STEPS_WANTED > samples)
        batch /= 2;
    if (samples && batch > samples)
        batch = samples;
    return batch < sharing ? 1 : batch / sharing;
}

FshStatus plan_batch(TrainPlan *plan, const TrainOptions *options, const TrainingData *data, FshError *error)
{
    const bool pairs = plan_has_targets(plan);
    const uint64_t ranks = plan->world_size, share = plan->pass_count / ranks; /* of each rank */
    uint64_t batch = 0, evaluation_batch = 0;
    FshStatus status = share_batch(options, &options->training.batch_size, options->training.batch_size,
                                   ranks, &batch, error);
    if (!status && !pairs) /* they are evaluated one by one */
        status = share_batch(options, &options->training.val_batch_size, options->training.val_batch_size,
                             ranks, &evaluation_batch, error);
    if (status)
        return status;
    if (plan->pass_count && !share)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%llu ranks and %llu training samples; start fewer ranks",
                             (unsigned long long)ranks, (unsigned long long)plan->pass_count);
    if (batch > share && plan->pass_count && ranks > 1)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--batch-size: %llu on each of %llu ranks is more than the %llu training samples; use "
            "%llu or less",
            (unsigned long long)batch, (unsigned long long)ranks, (unsigned long long)plan->pass_count,
            (unsigned long long)share);
    if (batch > share && plan->pass_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--batch-size: %llu is more than the %llu training samples; use %llu or less",
                             (unsigned long long)batch, (unsigned long long)plan->pass_count,
                             (unsigned long long)plan->pass_count);
    plan->batch_is_chosen = !batch;
    if (!batch)
        batch = choose_batch(plan, options);
    if (pairs)
        evaluation_batch = 1; /* their sizes differ */
    plan->train_spec.batch = (int64_t)batch;
    plan->evaluation_spec.batch = (int64_t)(evaluation_batch ? evaluation_batch : batch);
    plan->steps_per_pass =
        sampler_step_count(&(Sampler){.sample_count = plan->pass_count,
                                      .batch = batch,
                                      .world_size = ranks,
                                      .update_steps = (uint64_t)options->training.grad_accum_steps,
                                      .training = true});
    const uint64_t evaluated = (uint64_t)plan->evaluation_spec.batch * ranks; /* in a step */
    plan->evaluation_steps = data->evaluation ? set_order_steps(data->evaluation, evaluated) : 0;
    return plan_length(plan, options, error);
}

/* Returns the interval; 0: chosen later, by the clock. It is never chosen so if the number of evaluations
 * decides something, which must not depend on the speed of the machine. */
static uint64_t plan_evaluation_interval(const TrainPlan *plan, const TrainOptions *options)
{
    const bool counts = plan_uses_plateau(plan) || options->schedule.early_stop_patience > 0;
    const bool chosen_later = plan_has_targets(plan) && !counts;
    if (options->training.val_every)
        return 1;
    return options->training.val_interval ? (uint64_t)options->training.val_interval : chosen_later ? 0 : 1;
}

/* ---- loss ---- */

/* What a network may be taught to tell, and the losses for it; the first is the default. */
static const struct {
    const char *what;
    LossKind losses[4];
    size_t count;
} taught[] = {
    [LABELS_ONE] = {"classes", {LOSS_CROSS_ENTROPY, LOSS_BCE}, 2},
    [LABELS_MANY] = {"several labels", {LOSS_BCE}, 1},
    [LABELS_NUMBERS] = {"numbers", {LOSS_MSE, LOSS_L1, LOSS_HUBER}, 3},
    [LABEL_KIND_COUNT] = {"pairs", {LOSS_CHARBONNIER, LOSS_L1, LOSS_MSE, LOSS_PSNR}, 4},
    [LABEL_KIND_COUNT + 1] = {"masks", {LOSS_CROSS_ENTROPY}, 1},
};

static bool is_loss_of(size_t row, LossKind loss)
{
    bool found = false;
    for (size_t i = 0; i < taught[row].count; i++)
        found = found || taught[row].losses[i] == loss;
    return found;
}

/* Sets the loss. FSH_ERR_USAGE: it is for another kind of dataset; the message names the first that it is
 * for. */
static FshStatus choose_loss(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const size_t row = plan_is_pairs(plan)   ? LABEL_KIND_COUNT
                       : plan_is_masks(plan) ? LABEL_KIND_COUNT + 1
                                             : (size_t)plan->label_kind;
    const bool chosen = options->training.loss == OPTION_AUTO;
    size_t other = 0;
    plan->recipe.loss = chosen ? taught[row].losses[0] : (LossKind)options->training.loss;
    if (is_loss_of(row, plan->recipe.loss))
        return FSH_OK;
    if (is_loss_of(LABEL_KIND_COUNT, plan->recipe.loss))
        other = LABEL_KIND_COUNT; /* pairs, which have had it longer */
    while (!is_loss_of(other, plan->recipe.loss))
        other++;
    return fsh_error_set(error, FSH_ERR_USAGE, "--loss: %s is for %s, and this dataset holds %s",
                         loss_names[plan->recipe.loss], taught[other].what, taught[row].what);
}

static FshStatus plan_loss(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const bool given = train_given(options, &options->training.label_smoothing);
    const bool smooths =
        plan_is_masks(plan) ? given : plan_is_classes(plan) && (plan->label_kind == LABELS_ONE || given);
    FshStatus status = choose_loss(plan, options, error);
    if (status)
        return status;
    plan->recipe.label_smoothing = smooths ? (float)options->training.label_smoothing : 0;
    plan->recipe.bce_threshold = (float)options->training.bce_target_thresh;
    plan->recipe.bce_binarizes = options->training.bce_target_thresh < 1;
    plan->recipe.bce_sums = options->training.bce_sum;
    plan->recipe.weighs_classes = plan->class_weights != NULL;
    plan->recipe.weighs_positives = plan->positive_weights != NULL;
    plan->recipe.mixes = !plan_has_targets(plan) && options->image.augment &&
                         options->mixing.probability > 0 &&
                         (options->mixing.mixup_alpha > 0 || options->mixing.cutmix_alpha > 0);
    return FSH_OK;
}

/* Decides of which images batch norms take their statistics; plan_batch has decided how many there are. */
static FshStatus plan_norms(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const int64_t sample = options->training.norm_sample;
    plan->sync_bn = options->training.sync_bn;
    plan->recipe.sync_norms = options->training.sync_bn && plan->world_size > 1;
    plan->recipe.norm_sample = (int)sample;
    if (!plan->model->batch_norm || !plan->train_count)
        return FSH_OK;
    if (sample > 1 && options->data.on_error == TRAIN_SKIP)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--norm-sample: with --on-error skip an image that is left out, which has one "
                             "colour, would count among the few that the statistics are of; give --on-error "
                             "stop, or take --norm-sample away");
    if (sample <= plan->train_spec.batch)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "--norm-sample: there is no one image in %lld in a batch of %lld; give %lld or "
                         "less, or a larger --batch-size",
                         (long long)sample, (long long)plan->train_spec.batch,
                         (long long)plan->train_spec.batch);
}

FshStatus plan_training(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan_precision(plan, options);
    FshStatus status = plan_norms(plan, options, error);
    if (!status)
        status = plan_loss(plan, options, error);
    if (!status)
        status = plan_optimizer(plan, options, error);
    if (!status)
        status = plan_schedule(plan, options, error);
    if (!status)
        status = plan_watch(plan, options, error);
    if (!status)
        plan->evaluation_interval = plan_evaluation_interval(plan, options);
    return status;
}
