/* plan_device.c - decides how the device is opened, and the precision that it computes in. */
#include <stdlib.h>

#include "common/cpu.h"
#include "common/file.h"
#include "trainer/plan/train_plan.h"

/* Writes $XDG_CACHE_HOME/fshard, or ~/.cache/fshard (XDG Base Directory Specification: a path that is not
 * absolute is ignored). Returns false if this user has neither. */
static bool find_cache(char *path, size_t path_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        return file_join(path, path_bytes, cache, "fshard", NULL) == FSH_OK;
    if (home && home[0] == '/')
        return file_join(path, path_bytes, home, ".cache/fshard", NULL) == FSH_OK;
    return false;
}

void plan_backend(PlanBackend *backend, const TrainOptions *options)
{
    /* Timing several algorithms chooses by chance. */
    const bool benchmark = train_given(options, &options->cudnn_benchmark) || !options->deterministic
                               ? options->cudnn_benchmark
                               : false;
    backend->options = (BackendOptions){
        .threads = plan_threads(options),
        .benchmark = benchmark,
        .deterministic = options->deterministic,
        .tf32 = options->tf32,
        .device_index = options->ranks.gpu >= 0 ? options->ranks.gpu : (int)options->place.local_rank};
    if (find_cache(backend->plan_cache, sizeof backend->plan_cache))
        backend->options.plan_cache = backend->plan_cache;
}

static const DataType types[] = {[AMP_OFF] = DATA_F32, [AMP_BF16] = DATA_BF16, [AMP_FP16] = DATA_F16};

const char *plan_amp_name(DataType type)
{
    int amp = 0;
    while (types[amp] != type)
        amp++;
    return train_amp_name(amp);
}

/* Chooses the precision. cuDNN's fused engines for batch norm are for fp16; networks without batch norm use
 * bf16, which needs no loss scale. */
void plan_precision(TrainPlan *plan, const TrainOptions *options)
{
    const bool automatic = options->amp == OPTION_AUTO;
    plan->recipe.compute_type = automatic ? DATA_F32 : types[options->amp];
    if (automatic && plan->device == DEVICE_CUDA)
        plan->recipe.compute_type = plan->model->batch_norm ? DATA_F16 : DATA_BF16;
    plan->tf32 = options->tf32;
    plan->deterministic = options->deterministic;
    plan->precision_chosen = automatic;
}

FshStatus plan_fusions(TrainPlan *plan, const TrainOptions *options, unsigned there, FshError *error)
{
    plan->recipe.fusions = there;
    FshStatus status =
        fusions_leave_out(&plan->recipe.fusions, options->no_fuse, train_device_name(plan->device), error);
    return status ? fsh_error_prepend(error, "--no-fuse") : FSH_OK;
}
