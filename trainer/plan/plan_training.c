/* plan_training.c - decides the loss; optimizer and schedule have files of their own. */
#include "trainer/plan/train_plan.h"

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
    plan->recipe.weighs_classes = plan->class_weights != NULL;
    plan->recipe.mixes = !plan_is_pairs(plan) && options->augment && options->mixing.probability > 0 &&
                         (options->mixing.mixup_alpha > 0 || options->mixing.cutmix_alpha > 0);
    return FSH_OK;
}

FshStatus plan_training(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->epochs = (uint64_t)options->epochs;
    plan_precision(plan, options);
    plan->sync_bn = options->sync_bn;
    plan->recipe.sync_norms = options->sync_bn && plan->world_size > 1;
    FshStatus status = plan_loss(plan, options, error);
    if (!status)
        status = plan_optimizer(plan, options, error);
    if (!status)
        status = plan_schedule(plan, options, error);
    if (!status)
        status = plan_watch(plan, options, error);
    return status;
}
