/* plan_device.c - decides how the device is opened, and the precision that it computes in. */
#include "trainer/plan/plan_device.h"

#include <string.h>

#include "common/cache_folder.h"
#include "common/cpu.h"
#include "trainer/plan/train_hints.h"
#include "trainer/plan/train_plan.h"

ComputeOptions compute_options_default(void)
{
    return (ComputeOptions){
        .device = OPTION_AUTO,
        .amp = OPTION_AUTO,
        .cudnn_benchmark = true,
    };
}

static const char *const device_choices[] = {"cpu", "cuda", NULL};
static const char *const amp_choices[] = {"off", "bf16", "fp16", NULL};

const char *train_device_name(int device)
{
    return device == OPTION_AUTO ? "auto" : device_choices[device];
}

const char *train_amp_name(int amp)
{
    return amp == OPTION_AUTO ? "auto" : amp_choices[amp];
}

/* clang-format off */
size_t compute_options_rows(ComputeOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "device", .kind = OPTION_CHOICE, .value = &o->device, .argument = "NAME", .has_auto = true,
         .group = "Device and precision",
         .choices = device_choices, .hints = train_device_hints, .marks = OPTION_FREE,
         .help = "where to compute; cuda is the first GPU of CUDA_VISIBLE_DEVICES; auto: cuda if this "
                 "build and this machine have it"},
        {.name = "amp", .kind = OPTION_CHOICE, .value = &o->amp, .argument = "TYPE", .has_auto = true,
         .choices = amp_choices, .hints = train_amp_hints, .uses = USE_NETWORK,
         .help = "type of activations and products: off is float32; auto: on a GPU fp16, or bf16 for "
                 "networks without batch norm, else off"},
        {.name = "tf32", .kind = OPTION_FLAG, .value = &o->tf32, .alias = "allow-tf32", .uses = USE_NETWORK,
         .help = "on a GPU, with --amp off: products round what they multiply to TF32, which is much "
                 "faster"},
        {.name = "cudnn-benchmark", .kind = OPTION_FLAG, .value = &o->cudnn_benchmark, .marks = OPTION_FREE,
         .uses = USE_NETWORK,
         .help = "on a GPU: time the ways to compute each convolution and keep the fastest; off with "
                 "--deterministic unless given"},
        {.name = "deterministic", .kind = OPTION_FLAG, .value = &o->deterministic, .uses = USE_NETWORK,
         .help = "the same bits in every run on this machine; the CPU does so always"},
        {.name = "no-fuse", .kind = OPTION_TEXT, .value = &o->no_fuse, .argument = "NAME,NAME,...",
         .uses = USE_NETWORK,
         .help = "rewrites of the network to leave out, for measuring: norm-relu, norm-add-relu, "
                 "norm-add, bias-norm, conv-statistics, gradient-add, pad-add, conv-bias-relu, "
                 "images-again, linear-add, norm-function, norm-gate, gradient-conv, "
                 "norm-signs, function-bias, normalize-conv, gradient-stride, norm-pool, "
                 "stem-gradient, gate-mean, pad-conv, cast-loss, linear-scale"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

void plan_backend(PlanBackend *backend, const TrainOptions *options)
{
    /* Timing several algorithms chooses by chance. */
    const bool benchmark =
        train_given(options, &options->compute.cudnn_benchmark) || !options->compute.deterministic
            ? options->compute.cudnn_benchmark
            : false;
    backend->options = (BackendOptions){
        .threads = plan_threads(options),
        .benchmark = benchmark,
        .deterministic = options->compute.deterministic,
        .tf32 = options->compute.tf32,
        .device_index = options->ranks.gpu >= 0 ? options->ranks.gpu : (int)options->place.local_rank};
    if (cache_folder_find(backend->plan_cache, sizeof backend->plan_cache))
        backend->options.plan_cache = backend->plan_cache;
}

static const DataType types[] = {[AMP_OFF] = DATA_F32, [AMP_BF16] = DATA_BF16, [AMP_FP16] = DATA_F16};

int plan_amp_choice(DataType type)
{
    int amp = 0;
    while (amp < AMP_FP16 && types[amp] != type)
        amp++;
    return amp;
}

const char *plan_amp_name(DataType type)
{
    return train_amp_name(plan_amp_choice(type));
}

/* Chooses the precision. cuDNN's fused engines for batch norm are for fp16; networks without batch norm use
 * bf16, which needs no loss scale. */
void plan_precision(TrainPlan *plan, const TrainOptions *options)
{
    const bool automatic = options->compute.amp == OPTION_AUTO;
    plan->recipe.compute_type = automatic ? DATA_F32 : types[options->compute.amp];
    if (automatic && plan->device == DEVICE_CUDA)
        plan->recipe.compute_type = plan->model->batch_norm ? DATA_F16 : DATA_BF16;
    plan->tf32 = options->compute.tf32;
    plan->deterministic = options->compute.deterministic;
    plan->precision_chosen = automatic;
}

FshStatus plan_fusions(TrainPlan *plan, const TrainOptions *options, unsigned there, FshError *error)
{
    plan->recipe.fusions = there;
    FshStatus status = fusions_leave_out(&plan->recipe.fusions, options->compute.no_fuse,
                                         train_device_name(plan->device), error);
    return status ? fsh_error_prepend(error, "--no-fuse") : FSH_OK;
}
