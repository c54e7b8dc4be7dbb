#include "trainer/plan/train_plan.h"

#include <math.h>

#include "common/cpu.h"
#include "trainer/data/sampler.h"

enum {
    BATCH_DEFAULT = 64,
    BATCH_OF_PAIRS = 16,
    BATCH_LEAST = 8,   /* batch norm needs a few images */
    STEPS_WANTED = 20, /* in an epoch: with fewer, the default number of epochs teaches nothing */
    BATCHES_AHEAD = 3,
    /* a batch of small images is made so fast that workers would wait for each other */
    BATCHES_AHEAD_SMALL = 8,
    SMALL_EDGE = 96,
};

FshStatus plan_model(const TrainOptions *options, FshKind kind, const Model **model_ret, FshError *error)
{
    char names[512];
    const char *name = options->model ? options->model : kind == FSH_KIND_PAIRS ? "unet" : "resnet18";
    *model_ret = model_find(name);
    if (!*model_ret)
        return fsh_error_set(error, FSH_ERR_USAGE, "--model: '%s' is none of the networks: %s", name,
                             model_names(names, sizeof names));
    return FSH_OK;
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

/* Returns how many images a rank takes in a step where nobody says it: with --parallel dp its share of what
 * one process would take. */
static uint64_t choose_batch(const TrainPlan *plan)
{
    const bool pairs = plan_is_pairs(plan);
    const uint64_t least = pairs ? 1 : BATCH_LEAST, sharing = plan->divides_batch ? plan->world_size : 1;
    const uint64_t samples = plan->train_count / (plan->world_size / sharing);
    uint64_t batch = pairs ? BATCH_OF_PAIRS : BATCH_DEFAULT;
    while (samples && batch > least && batch * STEPS_WANTED > samples)
        batch /= 2;
    if (samples && batch > samples)
        batch = samples;
    return batch < sharing ? 1 : batch / sharing;
}

static FshStatus plan_batch(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const bool pairs = plan_is_pairs(plan);
    const uint64_t ranks = plan->world_size, share = plan->train_count / ranks; /* of each rank */
    uint64_t batch = 0, evaluation_batch = 0;
    FshStatus status = share_batch(options, &options->batch_size, options->batch_size, ranks, &batch, error);
    if (!status && !pairs) /* they are evaluated one by one */
        status = share_batch(options, &options->val_batch_size, options->val_batch_size, ranks,
                             &evaluation_batch, error);
    if (status)
        return status;
    if (plan->train_count && !share)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%llu ranks and %llu training samples; start fewer ranks",
                             (unsigned long long)ranks, (unsigned long long)plan->train_count);
    if (batch > share && plan->train_count && ranks > 1)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--batch-size: %llu on each of %llu ranks is more than the %llu training samples; use "
            "%llu or less",
            (unsigned long long)batch, (unsigned long long)ranks, (unsigned long long)plan->train_count,
            (unsigned long long)share);
    if (batch > share && plan->train_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--batch-size: %llu is more than the %llu training samples; use %llu or less",
                             (unsigned long long)batch, (unsigned long long)plan->train_count,
                             (unsigned long long)plan->train_count);
    plan->batch_is_chosen = !batch;
    if (!batch)
        batch = choose_batch(plan);
    if (pairs)
        evaluation_batch = 1; /* their sizes differ */
    plan->train_spec.batch = (int64_t)batch;
    plan->evaluation_spec.batch = (int64_t)(evaluation_batch ? evaluation_batch : batch);
    plan->steps_per_epoch = sampler_step_count(&(Sampler){.sample_count = plan->train_count,
                                                          .batch = batch,
                                                          .world_size = ranks,
                                                          .update_steps = (uint64_t)options->grad_accum_steps,
                                                          .training = true});
    const uint64_t evaluated = (uint64_t)plan->evaluation_spec.batch * ranks; /* in a step */
    plan->evaluation_steps = (plan->evaluation_count + evaluated - 1) / evaluated;
    if (plan->train_count &&
        (uint64_t)options->grad_accum_steps > plan->steps_per_epoch * (uint64_t)options->epochs)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--grad-accum-steps: %lld is more than the %llu steps of all epochs",
                             (long long)options->grad_accum_steps,
                             (unsigned long long)(plan->steps_per_epoch * (uint64_t)options->epochs));
    return FSH_OK;
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
    if (pairs) { /* the largest size, so that the memory shown is enough */
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

static int count_cores(const TrainOptions *options)
{
    return options->cores ? options->cores : cpu_jobs(0);
}

int plan_threads(const TrainOptions *options)
{
    return options->program.jobs ? cpu_jobs(options->program.jobs) : count_cores(options);
}

void plan_threads_of(TrainPlan *plan, const TrainOptions *options)
{
    plan->threads = plan_threads(options);
    plan->cores = count_cores(options);
    const int half = plan->threads / 2;
    plan->workers = options->workers ? (int)options->workers : half < 1 ? 1 : half;
}

/* Checks the options that a source of pixels requires. */
static FshStatus check_source(const TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const PixelSourceType *source = plan->source;
    if (source->gpu_work && options->bench_loader)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: leaves --bench-loader nothing to measure; use %s",
                             source->option, source->instead);
    if (source->recipes && options->views.interpolation != INTERPOLATION_BILINEAR)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: a GPU resizes with bilinear interpolation alone; use %s, or --interpolation "
            "bilinear",
            source->option, source->instead);
    if (source->recipes && options->views.auto_augment.text)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: a GPU has no operations of --auto-augment yet; use %s, or leave --auto-augment out",
            source->option, source->instead);
    if (source->residence == PIXELS_IN_RAM && options->drop_caches)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: no file is read while the loader is measured, so --drop-caches does "
                             "nothing; give one of the two",
                             source->option);
    if (source->gpu_work && plan->device != DEVICE_CUDA)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s, and the device is %s; use --device cuda, or %s",
                             source->option, source->gpu_work, train_device_name(plan->device),
                             source->instead);
    return FSH_OK;
}

/* Refuses to hold files that nobody has packed in memory. */
static FshStatus check_cache(const TrainPlan *plan, const TrainingData *data, FshError *error)
{
    if (plan->cache == FSH_CACHE_NONE || !data->dataset ||
        !fsh_container_has(fsh_manifest(data->dataset)->container, FSH_HAS_FILES))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "%s: files that nobody has packed are not held in memory by --cache ram and lock; "
                         "--cache pixels decodes them once, or pack them (fpack)",
                         fsh_path(data->dataset));
}

/* Chooses the source of pixels. --cache names a cache of files, or a source. */
static FshStatus plan_source(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                             FshError *error)
{
    const char *cache = pixel_source_caches[options->cache];
    const PixelSourceType *records = pixel_source_type("records"),
                          *cached = pixel_source_of_option("cache", cache),
                          *decoding = options->decode == DECODE_GPU ? pixel_source_type("nvjpeg") : NULL;
    if (!cached)
        (void)fsh_cache_from_name(cache, &plan->cache);
    if (cached && decoding)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--decode gpu: with --cache %s every image is decoded once, by the CPU; give one of the two",
            cache);
    plan->source = cached ? cached : decoding ? decoding : records;
    FshStatus status = check_source(plan, options, error);
    if (!status)
        status = check_cache(plan, data, error);
    if (!plan->train_count && !plan->source->evaluates)
        plan->source = records;
    return status;
}

const PixelSourceType *plan_evaluation_source(const TrainPlan *plan)
{
    const bool whole = plan->evaluation_augmentation.mode == CROP_WHOLE;
    return plan->source->evaluates && (plan->source->whole || !whole) ? plan->source
                                                                      : pixel_source_type("records");
}

/* Returns the interval; 0: chosen later, by the clock. It is never chosen so if the number of evaluations
 * decides something, which must not depend on the speed of the machine. */
static uint64_t plan_evaluation_interval(const TrainPlan *plan, const TrainOptions *options)
{
    const bool counts = plan_uses_plateau(plan) || options->schedule.early_stop_patience > 0;
    const bool chosen_later = plan_is_pairs(plan) && !counts;
    return options->val_interval ? (uint64_t)options->val_interval : chosen_later ? 0 : 1;
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
        .device = options->device,
        .train_count = data->train ? data->train->sample_count : 0,
        .class_weights = data->class_weights,
        .evaluation_count = data->evaluation ? data->evaluation->sample_count : 0,
        .seed = (uint64_t)options->seed,
        .batches_ahead = BATCHES_AHEAD,
        .skip_bad = options->on_error == TRAIN_SKIP,
        .preset = options->preset,
    };
    plan_threads_of(plan, options);
    FshStatus status = plan_source(plan, options, data, error);
    if (!status)
        status = plan_batch(plan, options, error);
    if (!status)
        status = plan_training(plan, options, error);
    plan->evaluation_interval = plan_evaluation_interval(plan, options);
    if (!status)
        status = plan_images(plan, options, data, error);
    if (!status && plan->train_augmentation.size <= SMALL_EDGE)
        plan->batches_ahead = BATCHES_AHEAD_SMALL;
    if (!status)
        status = plan_check(plan, options, error);
    if (!status)
        plan_network(plan, options, data);
    return status;
}
