#include "trainer/plan/train_plan.h"

#include <math.h>

FshStatus plan_model(const TrainOptions *options, FshKind kind, const Model **model_ret, FshError *error)
{
    char names[512];
    const char *name = options->model           ? options->model
                       : kind == FSH_KIND_PAIRS ? "unet"
                       : kind == FSH_KIND_MASKS ? "unet_segmentation"
                                                : "resnet18";
    *model_ret = model_find(name);
    if (*model_ret)
        return FSH_OK;
    return *model_names_near(name, names, sizeof names)
               ? fsh_error_set(error, FSH_ERR_USAGE,
                               "--model: '%s' is none of the networks; did you mean %s? --list-models lists "
                               "them all",
                               name, names)
               : fsh_error_set(error, FSH_ERR_USAGE,
                               "--model: '%s' is none of the networks; --list-models lists them", name);
}

/* ---- batches and steps ---- */

uint64_t plan_total_batch(const TrainPlan *plan)
{
    return (uint64_t)plan->train_spec.batch * plan->world_size;
}

bool plan_uses_plateau(const TrainPlan *plan)
{
    return plan->schedule.kind == SCHEDULE_PLATEAU;
}

bool plan_is_pairs(const TrainPlan *plan)
{
    return plan->model->task == TASK_RESTORATION;
}

bool plan_is_masks(const TrainPlan *plan)
{
    return plan->model->task == TASK_SEGMENTATION;
}

bool plan_is_classes(const TrainPlan *plan)
{
    return plan->model->task == TASK_CLASSIFICATION && plan->label_kind != LABELS_NUMBERS;
}

bool plan_has_targets(const TrainPlan *plan)
{
    return plan->model->task != TASK_CLASSIFICATION;
}

FshKind plan_kind_of(const Model *model)
{
    static const FshKind kinds[] = {[TASK_CLASSIFICATION] = FSH_KIND_CLASSES,
                                    [TASK_RESTORATION] = FSH_KIND_PAIRS,
                                    [TASK_SEGMENTATION] = FSH_KIND_MASKS};
    return kinds[model->task];
}

/* ---- the network ---- */

static void plan_spec(const TrainOptions *options, const TrainingData *data, ModelSpec *spec)
{
    spec->channels = data->channels;
    spec->classes = data->class_count;
    spec->options = options->network;
}

static void plan_network(TrainPlan *plan, const TrainOptions *options, const TrainingData *data)
{
    plan_spec(options, data, &plan->train_spec);
    plan_spec(options, data, &plan->evaluation_spec);
    plan->train_spec.training = true;
    plan->train_spec.height = plan->train_spec.width = plan->train_augmentation.size;
    plan->evaluation_spec.height = plan->evaluation_spec.width = plan->evaluation_augmentation.size;
    const bool pairs = plan_is_pairs(plan);
    if (plan_has_targets(plan)) { /* the largest size, so that the memory shown is enough */
        const int64_t crop = plan->train_augmentation.size;
        plan->evaluation_spec.height = data->height_max ? data->height_max : crop;
        plan->evaluation_spec.width = data->width_max ? data->width_max : crop;
    }
    for (uint32_t c = 0; c < data->channels; c++) {
        /* Pairs stay in 0..1, so that what is added to the input has its scale. */
        plan->recipe.mean[c] = pairs ? 0 : data->mean[c];
        plan->recipe.deviation[c] = pairs ? 1 : data->standard_deviation[c];
        plan->fill[c] = (uint8_t)fmin(255, fmax(0, nearbyint(data->mean[c] * 255)));
    }
}

FshStatus plan_make(TrainPlan *plan, const TrainOptions *options, const Model *model,
                    const TrainingData *data, FshError *error)
{
    const RankPlace *place = &options->place;
    *plan = (TrainPlan){
        .model = model,
        .rank = place->rank,
        .world_size = place->world_size ? place->world_size : 1,
        .divides_batch = options->ranks.parallel == RANK_PARALLEL_DP,
        .device = options->compute.device,
        .train_count = data->train ? data->train->sample_count : 0,
        .pass_count = data->train ? set_order_places(data->train, data->sets.weights) : 0,
        .label_kind = data->label_kind,
        .class_weights = data->class_weights,
        .positive_weights = data->positive_weights,
        .recipe.rows = training_data_row_width(data) > 0,
        .evaluation_count = data->evaluation ? data->evaluation->sample_count : 0,
        .seed = (uint64_t)options->training.seed,
        .skip_bad = options->data.on_error == TRAIN_SKIP,
        .preset = options->preset,
    };
    plan_threads_of(plan, options);
    FshStatus status = plan_source(plan, options, data, error);
    if (!status)
        status = plan_batch(plan, options, data, error);
    if (!status)
        status = plan_training(plan, options, error);
    if (!status)
        status = plan_images(plan, options, data, error);
    if (!status)
        plan_batches_ahead(plan, data);
    if (!status)
        status = plan_check(plan, options, error);
    if (!status)
        plan_network(plan, options, data);
    return status;
}
