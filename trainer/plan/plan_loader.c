#include "trainer/plan/plan_loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists the image edge of each epoch, up to the last that differs from the one before. *sizes_ret is owned by
 * the caller. */
static FshStatus list_sizes(const TrainPlan *plan, uint32_t **sizes_ret, size_t *count_ret, FshError *error)
{
    const size_t count = plan->edge_count > 1 ? (size_t)ceil(plan->progression.last) + 1 : 0;
    *count_ret = count;
    *sizes_ret = calloc(count + 1, sizeof **sizes_ret);
    for (size_t epoch = 0; *sizes_ret && epoch < count; epoch++)
        (*sizes_ret)[epoch] = plan_edge(plan, epoch);
    return *sizes_ret ? FSH_OK
                      : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the sizes of the epochs");
}

FshStatus plan_loader_options(const TrainPlan *plan, const TrainingData *data, bool training,
                              LoaderOptions *options, uint32_t **sizes_ret, FshError *error)
{
    *sizes_ret = NULL;
    *options = (LoaderOptions){
        .split = training ? data->train : data->evaluation,
        .kind = data->kind,
        .input_field = data->input_field,
        .target_field = data->target_field,
        .mask_classes = data->kind == FSH_KIND_MASKS ? (uint32_t)data->class_count : 0,
        .label_places = data->label_places,
        .labels = training_data_labels(data, training),
        .row_width = training_data_row_width(data),
        .inputs_alone = data->inputs_alone,
        .augmentation = training ? plan->train_augmentation : plan->evaluation_augmentation,
        .batch = (uint64_t)(training ? plan->train_spec.batch : plan->evaluation_spec.batch),
        .rank = plan->rank,
        .world_size = plan->world_size,
        .update_steps = (uint64_t)plan->recipe.optimizer.accumulation_steps,
        .seed = plan->seed,
        .training = training,
        .workers = plan->workers,
        .workers_most = plan->workers_most,
        .batches_ahead = plan->batches_ahead,
        .skip_bad = plan->skip_bad,
        .measure = training && plan->cache_follows,
    };
    memcpy(options->fill, plan->fill, sizeof options->fill);
    if (!training)
        return FSH_OK;
    options->sampling = plan->sampling;
    options->set_weights = data->sets.weights;
    options->mixing = plan->recipe.mixes ? plan->mixing : (Mixing){0};
    FshStatus status = list_sizes(plan, sizes_ret, &options->epoch_size_count, error);
    options->epoch_sizes = *sizes_ret;
    return status;
}
