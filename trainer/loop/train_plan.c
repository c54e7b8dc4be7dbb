#include "trainer/loop/train_plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/cpu.h"

enum {
    BATCH_DEFAULT = 64,
    BATCH_LEAST = 8,      /* batch norm wants a few images */
    STEPS_WANTED = 20,    /* in an epoch: with fewer, nothing is learnt in the default number of epochs */
    CROP_USED_WHOLE = 64, /* images up to this edge are used as they are */
    CROP_STEP = 32,       /* larger ones in multiples of what resnets halve */
    CROP_LARGEST = 224,   /* torchvision's */
    PAD_UP_TO = 40,       /* crops up to this edge: MNIST's and CIFAR's kind, where rrc cuts off too much */
    BATCHES_AHEAD = 3,
};

static uint32_t minimum_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

static uint32_t choose_crop(const Classification *data)
{
    uint32_t edge = data->short_edge ? data->short_edge : 1;
    if (edge > CROP_USED_WHOLE)
        edge = minimum_u32(edge / CROP_STEP * CROP_STEP, CROP_LARGEST);
    return edge;
}

/* Photographs lose a margin, as in torchvision's 256 to 224, but are not enlarged for it: small images are used whole. */
static uint32_t choose_resize(const Classification *data, uint32_t crop)
{
    uint32_t wanted = (uint32_t)lround(crop * 8.0 / 7.0);
    uint32_t available = data->short_edge > crop ? data->short_edge : crop;
    return minimum_u32(wanted, available);
}

static FshStatus plan_sizes(TrainPlan *plan, const TrainOptions *options, const Classification *data,
                            FshError *error)
{
    uint32_t train_crop = options->train_crop_size ? (uint32_t)options->train_crop_size : 0;
    uint32_t crop = options->val_crop_size ? (uint32_t)options->val_crop_size : train_crop;
    uint32_t resize = (uint32_t)options->val_resize_size;
    if (!crop)
        crop = resize ? minimum_u32(resize, choose_crop(data)) : choose_crop(data);
    if (!train_crop)
        train_crop = crop;
    if (!resize)
        resize = choose_resize(data, crop);
    if (resize < crop)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--val-resize-size: %u is less than the crop of %u pixels; lower --val-crop-size too", resize,
            crop);
    plan->evaluation_augmentation =
        (Augmentation){.mode = CROP_CENTER, .size = crop, .resize = resize, .channels = data->channels};
    plan->train_augmentation = (Augmentation){.mode = CROP_CENTER,
                                              .size = train_crop,
                                              .resize = (uint32_t)lround((double)train_crop * resize / crop),
                                              .channels = data->channels};
    return FSH_OK;
}

static CropMode choose_mode(const TrainOptions *options, uint32_t crop)
{
    for (int mode = 0; mode < CROP_MODE_COUNT; mode++)
        if (strcmp(options->train_crop_mode, crop_mode_names[mode]) == 0)
            return (CropMode)mode;
    return crop <= PAD_UP_TO ? CROP_PADDED : CROP_RESIZED;
}

static FshStatus plan_augmentation(TrainPlan *plan, const TrainOptions *options, const Classification *data,
                                   FshError *error)
{
    Augmentation *train = &plan->train_augmentation;
    FshStatus status =
        train_options_range("scale", options->scale, 1e-3, 1, &train->scale_min, &train->scale_max, error);
    if (!status)
        status = train_options_range("ratio", options->ratio, 0.01, 100, &train->ratio_min, &train->ratio_max,
                                     error);
    if (status || !options->augment)
        return status;
    train->mode = choose_mode(options, train->size);
    train->padding = options->crop_padding ? (uint32_t)options->crop_padding : train->size / 8;
    if (train->padding >= train->size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--crop-padding: %u is not less than the crop of %u pixels", train->padding,
                             train->size);
    /* A mirrored 3 is no 3: gray sets are digits, letters and scans more often than not. */
    train->flip_probability = options->hflip_given || data->channels == 3 ? options->hflip_prob : 0;
    return FSH_OK;
}

/* ---- batches and steps ---- */

static FshStatus plan_batch(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    uint64_t batch = (uint64_t)options->batch_size;
    if (batch > plan->train_count && plan->train_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--batch-size: %llu is more than the %llu training samples; use %llu or less",
                             (unsigned long long)batch, (unsigned long long)plan->train_count,
                             (unsigned long long)plan->train_count);
    if (!batch) {
        batch = BATCH_DEFAULT;
        while (plan->train_count && batch > BATCH_LEAST && batch * STEPS_WANTED > plan->train_count)
            batch /= 2;
        if (plan->train_count && batch > plan->train_count)
            batch = plan->train_count;
    }
    uint64_t evaluation_batch = options->val_batch_size ? (uint64_t)options->val_batch_size : batch;
    plan->train_spec.batch = (int64_t)batch;
    plan->evaluation_spec.batch = (int64_t)evaluation_batch;
    plan->steps_per_epoch = plan->train_count / batch;
    plan->evaluation_steps = (plan->evaluation_count + evaluation_batch - 1) / evaluation_batch;
    return FSH_OK;
}

static FshStatus plan_schedule(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    double epochs = (double)options->epochs;
    double warmup_epochs =
        options->lr_warmup_given ? options->lr_warmup_epochs : fmin(options->lr_warmup_epochs, 0.2 * epochs);
    if (warmup_epochs >= epochs)
        return fsh_error_set(error, FSH_ERR_USAGE, "--lr-warmup-epochs: %g leaves nothing of %lld epochs",
                             warmup_epochs, (long long)options->epochs);
    double batch = (double)plan->train_spec.batch;
    plan->epochs = (uint64_t)options->epochs;
    uint64_t total_steps = plan->epochs * plan->steps_per_epoch;
    uint64_t warmup_steps = (uint64_t)llround(warmup_epochs * (double)plan->steps_per_epoch);
    if (warmup_steps >= total_steps) /* rounded up: one step at least is behind it */
        warmup_steps = total_steps ? total_steps - 1 : 0;
    plan->schedule = (Schedule){
        .kind = schedule_find(options->lr_scheduler),
        .base = options->lr > 0 ? options->lr : options->lr_base * batch / 256,
        .minimum = options->lr_min,
        .warmup_factor = 0.01,
        .total_steps = total_steps,
        .warmup_steps = warmup_steps,
        .step_size = (uint64_t)options->lr_step_size * plan->steps_per_epoch,
        .gamma = options->lr_gamma,
        .power = options->lr_power,
    };
    if (plan->train_count && !(plan->schedule.base > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-base: 0 leaves a learning rate of 0; nothing would be learnt");
    bool falls = plan->schedule.kind == SCHEDULE_COSINE || plan->schedule.kind == SCHEDULE_LINEAR ||
                 plan->schedule.kind == SCHEDULE_POLYNOMIAL;
    if (plan->train_count && falls && plan->schedule.minimum > plan->schedule.base)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--lr-min: %g is more than the highest learning rate of %g",
                             plan->schedule.minimum, plan->schedule.base);
    return FSH_OK;
}

static void plan_network(TrainPlan *plan, const TrainOptions *options, const Classification *data)
{
    ModelSpec *const specs[] = {&plan->train_spec, &plan->evaluation_spec};
    const Augmentation *const views[] = {&plan->train_augmentation, &plan->evaluation_augmentation};
    for (int i = 0; i < 2; i++) {
        specs[i]->height = specs[i]->width = views[i]->size;
        specs[i]->channels = data->channels;
        specs[i]->classes = data->class_count;
    }
    plan->train_spec.training = true;
    for (uint32_t c = 0; c < data->channels; c++) {
        plan->recipe.mean[c] = data->mean[c];
        plan->recipe.deviation[c] = data->standard_deviation[c];
        plan->fill[c] = (uint8_t)fmin(255, fmax(0, nearbyint(data->mean[c] * 255)));
    }
    plan->recipe.label_smoothing = (float)options->label_smoothing;
    plan->recipe.optimizer = (Optimizer){.momentum = options->momentum,
                                         .weight_decay = options->weight_decay,
                                         .nesterov = options->nesterov && options->momentum > 0,
                                         .learning_rate = TENSOR_NONE};
}

static FshStatus find_model(const char *name, const Model **model_ret, FshError *error)
{
    char names[512];
    *model_ret = model_find(name);
    if (!*model_ret)
        return fsh_error_set(error, FSH_ERR_USAGE, "--model: '%s' is none of the networks: %s", name,
                             model_names(names, sizeof names));
    return FSH_OK;
}

FshStatus plan_make(TrainPlan *plan, const TrainOptions *options, const Classification *data, FshError *error)
{
    *plan = (TrainPlan){
        .train_count = data->train ? data->train->sample_count : 0,
        .evaluation_count = data->evaluation ? data->evaluation->sample_count : 0,
        .seed = (uint64_t)options->seed,
        .threads = cpu_jobs(options->program.jobs),
        .batches_ahead = BATCHES_AHEAD,
        .skip_bad = strcmp(options->on_error, "skip") == 0,
    };
    int half = plan->threads / 2;
    plan->workers = options->workers ? (int)options->workers : half < 1 ? 1 : half;
    if (!fsh_cache_from_name(options->cache, &plan->cache))
        return fsh_error_set(error, FSH_ERR_USAGE, "--cache: '%s' is none of none, ram, lock",
                             options->cache);
    FshStatus status = find_model(options->model, &plan->model, error);
    if (!status)
        status = plan_sizes(plan, options, data, error);
    if (!status)
        status = plan_augmentation(plan, options, data, error);
    if (!status)
        status = plan_batch(plan, options, error);
    if (!status)
        status = plan_schedule(plan, options, error);
    if (!status)
        plan_network(plan, options, data);
    return status;
}

/* ---- telling ---- */

typedef struct Teller {
    void (*print)(void *context, const char *line);
    void *context;
} Teller;

FSH_PRINTF(2, 3) static void tell(const Teller *teller, const char *format, ...);

static void tell(const Teller *teller, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    teller->print(teller->context, line);
}

static void tell_augmentation(const Teller *teller, const TrainPlan *plan)
{
    const Augmentation *train = &plan->train_augmentation, *evaluation = &plan->evaluation_augmentation;
    char how[128] = "";
    if (train->mode == CROP_RESIZED)
        (void)snprintf(how, sizeof how, "random resized crop (scale %g to %g, ratio %.3g to %.3g)",
                       train->scale_min, train->scale_max, train->ratio_min, train->ratio_max);
    else if (train->mode == CROP_PADDED)
        (void)snprintf(how, sizeof how, "moved by up to %u pixels", train->padding);
    else
        (void)snprintf(how, sizeof how, "centre crop");
    if (train->flip_probability > 0)
        tell(teller, "images: %u pixels, %s, flip %g", train->size, how, train->flip_probability);
    else
        tell(teller, "images: %u pixels, %s, no flip", train->size, how);
    tell(teller, "evaluation: short edge to %u, centre %u pixels", evaluation->resize, evaluation->size);
}

void plan_describe(const TrainPlan *plan, const Classification *data,
                   void (*print)(void *context, const char *line), void *context)
{
    const Teller teller = {print, context};
    const char *path = fsh_path(data->dataset);
    tell(&teller, "dataset: %s, %lld classes, %s, short edge %s%u pixels", path, (long long)data->class_count,
         data->channels == 1 ? "gray" : "colour", data->uniform ? "" : "about ", data->short_edge);
    if (!data->measured)
        tell(&teller,
             "normalisation: ImageNet's mean and deviation, for the dataset has none (fpack --no-check)");
    if (data->train)
        tell(&teller, "split %s: %llu samples, %llu steps of %lld (%llu samples left out of each epoch)",
             data->train->info->name, (unsigned long long)plan->train_count,
             (unsigned long long)plan->steps_per_epoch, (long long)plan->train_spec.batch,
             (unsigned long long)(plan->train_count % (uint64_t)plan->train_spec.batch));
    if (data->evaluation)
        tell(&teller, "split %s: %llu samples, for evaluation", data->evaluation->info->name,
             (unsigned long long)plan->evaluation_count);
    else
        tell(&teller, "no split 'val' or 'test': training without evaluation; fpack --split 0.1 makes one");
    if (!data->train) {
        const Augmentation *evaluation = &plan->evaluation_augmentation;
        tell(&teller, "evaluation: short edge to %u, centre %u pixels", evaluation->resize, evaluation->size);
        return;
    }
    tell_augmentation(&teller, plan);
    tell(&teller,
         "training: %llu epochs, sgd momentum %g%s, weight decay %g, label smoothing %g, learning rate %.4g "
         "(%s, "
         "warm-up %llu steps), seed %llu",
         (unsigned long long)plan->epochs, plan->recipe.optimizer.momentum,
         plan->recipe.optimizer.nesterov ? " (Nesterov)" : "", plan->recipe.optimizer.weight_decay,
         (double)plan->recipe.label_smoothing, plan->schedule.base, schedule_names[plan->schedule.kind],
         (unsigned long long)plan->schedule.warmup_steps, (unsigned long long)plan->seed);
}
