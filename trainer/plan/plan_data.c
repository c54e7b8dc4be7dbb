#include "trainer/plan/plan_data.h"

#include <string.h>

#include "common/cpu.h"
#include "trainer/data/pixel_source.h"
#include "trainer/plan/train_plan.h"

DataOptions data_options_default(void)
{
    return (DataOptions){
        .train_split = "train",
        .labels.kind = OPTION_AUTO,
        .on_error = TRAIN_STOP,
        .cache = OPTION_AUTO,
        .decode = DECODE_CPU,
        .store = store_options_default(),
    };
}

static const char *const on_error_choices[] = {"stop", "skip", NULL};
static const char *const decode_choices[] = {"cpu", "gpu", NULL};

/* clang-format off */
size_t data_options_rows(DataOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "train-split", .kind = OPTION_TEXT, .value = &o->train_split, .argument = "NAME",
         .group = "Splits and labels",
         .uses = USE_SAMPLES,
         .help = "the split to learn from"},
        {.name = "val-split", .kind = OPTION_TEXT, .value = &o->val_split, .argument = "NAME",
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "the split to evaluate on; val, else test, unless given"},
        {.name = "labels", .kind = OPTION_TEXT, .value = &o->labels.path, .argument = "FILE",
         .marks = OPTION_FREE, .uses = USE_DATASET,
         .help = "labels beside SHARDS: CSV or JSON lines of a record's key and its class, its classes, or "
                 "numbers"},
        {.name = "val-labels", .kind = OPTION_TEXT, .value = &o->labels.evaluation_path, .argument = "FILE",
         .marks = OPTION_FREE, .uses = USE_DATASET,
         .help = "the same for the split to evaluate on, where they are in another file"},
        {.name = "label-columns", .kind = OPTION_TEXT, .value = &o->labels.columns, .argument = "NAMES",
         .uses = USE_DATASET,
         .help = "columns of --labels that count, by the header, with commas; else all but the key"},
        {.name = "label-names", .kind = OPTION_TEXT, .value = &o->labels.names, .argument = "FILE",
         .marks = OPTION_FREE, .uses = USE_DATASET,
         .help = "the classes of --labels in their order, a line for each"},
        {.name = "problem-type", .kind = OPTION_CHOICE, .value = &o->labels.kind, .argument = "TYPE",
         .choices = label_kind_names, .has_auto = true, .uses = USE_DATASET,
         .help = "what an image of --labels has: one class, any number of them, or numbers; auto: as the "
                 "file looks, and a CSV of numbers looks like classes"},
        {.name = "on-error", .kind = OPTION_CHOICE, .value = &o->on_error, .argument = "WHAT",
         .group = "Loading",
         .choices = on_error_choices, .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_DATASET,
         .help = "when a sample cannot be read: stop, or skip it and name it (exit status 1)"},
        {.name = "workers", .kind = OPTION_INTEGER, .value = &o->workers, .argument = "N", .maximum = 1024,
         .marks = OPTION_FREE,
         .help = "threads that decode and augment ahead of training; 0: as many as it takes, so that "
                 "training does not wait"},
        {.name = "cache", .kind = OPTION_CHOICE, .value = &o->cache, .argument = "HOW",
         .has_auto = true, .choices = pixel_source_caches, .marks = OPTION_FREE | OPTION_ALIKE,
         .uses = USE_DATASET,
         .help = pixel_source_caches_help},
        {.name = "decode", .kind = OPTION_CHOICE, .value = &o->decode, .argument = "WHERE",
         .choices = decode_choices, .uses = USE_SAMPLES,
         .help = "who decodes the JPEG files of training: the loader's threads (cpu), or nvJPEG (gpu), "
                 "whose pixels differ by a few levels"},
        {.name = "bench-loader", .kind = OPTION_FLAG, .value = &o->bench_loader,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "run the loader alone: images/s, MB/s, time by stage, and what bounds it"},
        {.name = "drop-caches", .kind = OPTION_FLAG, .value = &o->drop_caches,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_BENCH,
         .help = "for --bench-loader: forget the files' pages first, so that the disk is measured too"},
        STORE_ROWS(&o->store, USE_DATASET | USE_LIST),
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

/* ---- threads ---- */

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
    /* A GPU leaves all cores but that of the thread which feeds it. */
    const int first = plan->device == DEVICE_CUDA ? plan->threads - 1 : plan->threads / 2;
    plan->workers = options->data.workers ? (int)options->data.workers : first < 1 ? 1 : first;
    plan->workers_most = options->data.workers ? plan->workers : plan->threads;
}

void plan_batches_ahead(TrainPlan *plan, const TrainingData *data)
{
    enum {
        LEAST = 3,
        /* a batch of small images is made so fast that workers would wait for each other */
        LEAST_SMALL = 8,
        SMALL_EDGE = 96,
        /* a GPU takes batches faster than the system wakes a thread whose core was taken away */
        MOST = 16,
        RING_BYTES = 128 << 20,
    };
    const uint64_t size = plan->train_augmentation.size,
                   channels = data->channels * (plan_is_pairs(plan) ? 2U : 1U) + plan_is_masks(plan),
                   bytes = (uint64_t)plan->train_spec.batch * size * size * channels,
                   room = bytes && plan->device == DEVICE_CUDA ? RING_BYTES / bytes : 0;
    plan->batches_ahead = size <= SMALL_EDGE ? LEAST_SMALL : LEAST;
    if (room > plan->batches_ahead)
        plan->batches_ahead = room < MOST ? room : MOST;
}

/* ---- the source of pixels ---- */

/* Checks the options that a source of pixels requires. */
static FshStatus check_source(const TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const PixelSourceType *source = plan->source;
    if (source->gpu_work && options->data.bench_loader)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: leaves --bench-loader nothing to measure; use %s",
                             source->option, source->instead);
    if (source->residence == PIXELS_IN_RAM && options->data.drop_caches)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: no file is read while the loader is measured, so --drop-caches does "
                             "nothing; give one of the two",
                             source->option);
    if (source->recipes && plan_is_masks(plan))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: a GPU makes no masks; use %s", source->option,
                             source->instead);
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

FshStatus plan_source(TrainPlan *plan, const TrainOptions *options, const TrainingData *data, FshError *error)
{
    const bool automatic = options->data.cache == OPTION_AUTO;
    const char *cache = pixel_source_caches[automatic ? PIXEL_CACHE_NONE : options->data.cache];
    const PixelSourceType *records = pixel_source_type("records"),
                          *cached = pixel_source_of_option("cache", cache),
                          *decoding = options->data.decode == DECODE_GPU ? pixel_source_type("nvjpeg") : NULL;
    if (!cached)
        (void)fsh_cache_from_name(cache, &plan->cache);
    if (cached && decoding)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--decode gpu: with --cache %s every image is decoded once, by the CPU; give one of the two",
            cache);
    plan->source = cached ? cached : decoding ? decoding : records;
    plan->cache_follows = automatic && !decoding && plan->train_count && !options->data.bench_loader;
    FshStatus status = check_source(plan, options, error);
    if (!status)
        status = check_cache(plan, data, error);
    if (!plan->train_count && !plan->source->evaluates)
        plan->source = records;
    return status;
}

/* Returns whether the loader decodes no image of this short edge (pixels) at a part of its size for
 * training. */
static bool decodes_in_full(const TrainPlan *plan, uint32_t short_edge)
{
    return plan->train_augmentation.mode != CROP_RESIZED || short_edge / 2 < plan->edges[0];
}

bool plan_source_is_alike(const TrainPlan *plan, const PixelSourceType *source, uint32_t short_edge)
{
    const Augmentation *train = &plan->train_augmentation;
    if (!decodes_in_full(plan, short_edge))
        return false;
    return !source->recipes || (plan->device == DEVICE_CUDA && !plan_is_masks(plan) && !(train->noise > 0) &&
                                !(train->erasing.probability > 0 && train->erasing.fill == ERASING_PIXEL));
}

const PixelSourceType *plan_evaluation_source(const TrainPlan *plan)
{
    const bool whole = plan->evaluation_augmentation.mode == CROP_WHOLE;
    return plan->source->evaluates && (plan->source->whole || !whole) ? plan->source
                                                                      : pixel_source_type("records");
}
