/* train_plan.h - everything that a run will do, decided before it begins: from the options, the dataset and
 * the machine.
 *
 * What the user left open is chosen here, and told by plan_describe: image size, batch, optimizer, learning
 * rate, augmentation, loader threads. Nothing later looks at the options again. An option that would do
 * nothing is refused, so that nobody believes in it.
 *
 * Files: train_plan.c (network, batches, the whole), plan_device.c (backend, precision), plan_images.c
 * (sizes, augmentation), plan_training.c (loss, optimizer, schedule), plan_check.c (options that would do
 * nothing), plan_describe.c. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_PLAN_H
#define FSHARD_TRAINER_PLAN_TRAIN_PLAN_H

#include <limits.h>

#include "trainer/backend/backend.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"
#include "trainer/data/pixel_source.h"
#include "trainer/data/training_data.h"
#include "trainer/report/metrics.h"
#include "trainer/plan/train_options.h"
#include "trainer/models/models.h"
#include "trainer/optim/early_stop.h"
#include "trainer/optim/plateau.h"
#include "trainer/optim/schedule.h"

enum { PLAN_EDGES_MAX = 64 };

/* The edge of training images over the epochs: `from` up to epoch `first`, `to` from epoch `last` on, between
 * them along a line, in whole `step`s. */
typedef struct Progression {
    uint32_t from, to, step;
    double first, last;
} Progression;

typedef struct TrainPlan {
    const Model *model;
    /* Batch, size, channels, classes. Training's size is the largest; evaluation of pairs: one image, of the
     * largest size. */
    ModelSpec train_spec, evaluation_spec;
    ModelRecipe recipe;
    int device; /* TrainDevice; OPTION_AUTO where nothing is computed */
    Augmentation train_augmentation, evaluation_augmentation;
    Mixing mixing;
    Progression progression;        /* from = to: one size */
    uint32_t edges[PLAN_EDGES_MAX]; /* all that training sees, ascending; none without a training split */
    size_t edge_count;
    uint8_t fill[4]; /* the dataset's mean as a pixel: what padding and skipped samples show */
    /* of this process; batches of the specs are each rank's, steps are everybody's */
    uint64_t rank, world_size;
    uint64_t train_count, evaluation_count; /* samples; 0 where there is no such split */
    uint64_t epochs, steps_per_epoch, evaluation_steps;
    uint64_t evaluation_interval; /* epochs; 0: found by the first evaluation */
    Schedule schedule;
    bool uses_plateau; /* behind the warm-up: the schedule is constant then */
    PlateauOptions plateau;
    Metric plateau_metric;
    EarlyStopOptions early_stop; /* patience 0: none */
    Metric early_stop_metric;
    Metric main_metric; /* what "best" means */
    bool flip_tta, y_channel;
    uint32_t crop_border;
    uint64_t seed;
    int threads; /* of computing, of this rank */
    int cores;   /* that this rank may use, whatever --jobs says */
    int workers; /* of the loader, of this rank */
    size_t batches_ahead;
    bool skip_bad, deterministic, tf32;
    bool precision_chosen; /* recipe.compute_type is not the user's */
    FshCache cache;
    const PixelSourceType *source; /* of training's pixels; see plan_evaluation_source */
} TrainPlan;

/* options->device is that of the backend that is open, or OPTION_AUTO. FSH_ERR_USAGE: options that contradict each
 * other or would do nothing. FSH_ERR_MISMATCH: fewer samples than a batch, images smaller than a crop. model:
 * chosen by plan_model. */
FshStatus plan_make(TrainPlan *plan, const TrainOptions *options, const Model *model,
                    const TrainingData *data, FshError *error);

/* Returns where the pixels of evaluation come from: from plan->source where that serves evaluation in the
 * size that images have there, else from records. */
const PixelSourceType *plan_evaluation_source(const TrainPlan *plan);

/* The network that options name, or the default for the kind of dataset. FSH_ERR_USAGE: there is none of that
 * name. */
FshStatus plan_model(const TrainOptions *options, FshKind kind, const Model **model_ret, FshError *error);

/* --jobs, or the cores of this host, which its ranks share. */
int plan_threads(const TrainOptions *options);

/* What a backend is opened with. options.plan_cache points to plan_cache: it must not move. */
typedef struct PlanBackend {
    BackendOptions options;
    char plan_cache[PATH_MAX]; /* the folder for the plans of CUDA's libraries */
} PlanBackend;
void plan_backend(PlanBackend *backend, const TrainOptions *options);
/* recipe.fusions: `there`, those of the backend, less --no-fuse. FSH_ERR_USAGE: a name that is none of
 * them. */
FshStatus plan_fusions(TrainPlan *plan, const TrainOptions *options, unsigned there, FshError *error);
/* "off", "bf16", "fp16" */
const char *plan_amp_name(DataType type);
/* Returns true if the network restores images: its dataset holds pairs. */
bool plan_is_pairs(const TrainPlan *plan);
/* Images in a step of all ranks. */
uint64_t plan_total_batch(const TrainPlan *plan);

/* Edge of the training images of an epoch. */
uint32_t plan_edge(const TrainPlan *plan, uint64_t epoch);

/* The plan in a few lines of text for the log, each line passed to print without its end. */
void plan_describe(const TrainPlan *plan, const TrainingData *data,
                   void (*print)(void *context, const char *line), void *context);

/* ---- parts of plan_make ---- */

FshStatus plan_images(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                      FshError *error);
void plan_precision(TrainPlan *plan, const TrainOptions *options);
FshStatus plan_training(TrainPlan *plan, const TrainOptions *options, FshError *error);
/* Every option that was given is looked at by what makes of it. */
FshStatus plan_check(const TrainPlan *plan, const TrainOptions *options, FshError *error);

#endif
