/* train_plan.h - the plan: everything that a run will do, decided before it begins from the options, the
 * dataset and the machine.
 *
 * The plan chooses what the user left open, and plan_describe prints it: image size, batch, optimizer,
 * learning rate, augmentation, loader threads. No later code reads the options again. An option that would do
 * nothing is refused, so that its user does not count on it, and all such options at once.
 *
 * Files: train_plan.c (network, batches, the whole), plan_device.c (backend, precision), plan_images.c
 * (sizes, augmentation), plan_length.c (epochs or iterations), plan_training.c (loss, optimizer, schedule),
 * plan_check.c (options that would do nothing), plan_describe.c. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_PLAN_H
#define FSHARD_TRAINER_PLAN_TRAIN_PLAN_H

#include <jansson.h>
#include <limits.h>

#include "trainer/backend/backend.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"
#include "trainer/data/pixel_source.h"
#include "trainer/data/sampler.h"
#include "trainer/data/training_data.h"
#include "trainer/report/metrics.h"
#include "trainer/plan/train_options.h"
#include "trainer/models/models.h"
#include "trainer/optim/early_stop.h"
#include "trainer/optim/plateau.h"
#include "trainer/optim/schedule.h"

enum { PLAN_EDGES_MAX = 64 };

/* The edge of training images over the epochs: `from` up to epoch `first`, `to` from epoch `last` on, and
 * between them linear, in multiples of `step`. */
typedef struct Progression {
    uint32_t from, to, step;
    double first, last;
} Progression;

/* plan_make writes the parts in this order; each may read those above. session.c then writes recipe.mean and
 * .deviation (those of weights that are evaluated), and plan_fusions recipe.fusions.
 *
 * Ordered by who writes it: there is only one, so its padding does not matter. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct TrainPlan {
    /* plan_make itself, first: model, device, rank, counts, seed, threads, cores, workers, workers_most,
     * skip_bad; then plan_source: cache, source, cache_follows */
    const Model *model;
    /* batch: plan_batch, with steps_per_pass and evaluation_steps; the rest: plan_network, last of all.
     * Batch, size, channels, classes. The size is the largest of training; in the evaluation of pairs it is
     * one image of the largest size. */
    ModelSpec train_spec, evaluation_spec;
    ModelRecipe recipe; /* plan_training; mean and deviation: plan_network */
    int device;         /* TrainDevice; OPTION_AUTO if nothing is computed */
    /* plan_images, from here to edge_count, with flip_tta, shift_tta, crop_border, y_channel,
     * learns_positions, crop_follows */
    Augmentation train_augmentation, evaluation_augmentation;
    Mixing mixing;
    Sampling sampling;
    LabelKind label_kind; /* TrainingData's, as the weights; borrowed */
    const float *class_weights, *positive_weights;
    Progression progression;        /* from = to: one size */
    uint32_t edges[PLAN_EDGES_MAX]; /* all edges of training, ascending; none without a training split */
    size_t edge_count;
    uint8_t fill[4]; /* the dataset's mean as a pixel, for padding and skipped samples */
    /* of this process; batches of the specs are those of one rank, steps those of all */
    uint64_t rank, world_size;
    bool divides_batch;                        /* --batch-size is the total of all ranks */
    bool batch_is_chosen;                      /* nobody has said it; plan_batch */
    uint64_t device_batch;                     /* what suits the GPU, if batch_is_chosen; 0: not known */
    BatchCost device_cost;                     /* of device_batch */
    bool batch_is_kept;                        /* of the run that goes on, if batch_is_chosen */
    uint64_t train_count, evaluation_count;    /* samples; 0 if there is no such split */
    uint64_t pass_count;                       /* places of a pass over the training split: train_count, or
                                                * what the weights of several sets make of it */
    uint64_t steps_per_pass, evaluation_steps; /* over the training split; over the evaluation split */
    /* plan_length: the run goes in `epochs` stretches of steps_per_epoch steps, the last of which ends with
     * total_steps. They are passes over the training split, unless the run is counted in iterations. */
    uint64_t epochs, steps_per_epoch, total_steps;
    uint64_t iteration_steps;     /* of an iteration, which is an update; 0: the run is counted in epochs */
    uint64_t evaluation_interval; /* epochs; 0: chosen after the first evaluation */
    Schedule schedule;
    PlateauOptions plateau;
    Metric plateau_metric;
    EarlyStopOptions early_stop; /* patience 0: none */
    Metric early_stop_metric;
    Metric main_metric; /* decides which epoch is "best" */
    bool sync_bn;       /* asked for; recipe.sync_norms: and there are several ranks */
    bool flip_tta, y_channel;
    bool learns_positions; /* in training and evaluation, so that both have images of one size */
    bool crop_follows;     /* so that a recipe's crop of evaluation has given way to the user's of training */
    uint32_t shift_tta;    /* pixels; 0: images are evaluated where they are, alone */
    uint32_t crop_border;
    uint64_t seed;
    int threads;          /* for computing, of this rank */
    int cores;            /* that this rank may use, regardless of --jobs */
    int workers;          /* of the loader, of this rank, at first */
    int workers_most;     /* as many as it may have, by what is waited for */
    size_t batches_ahead; /* plan_make, once plan_images has chosen the size */
    bool skip_bad, deterministic, tf32;
    bool precision_chosen; /* the user did not choose recipe.compute_type */
    const json_t *preset;  /* plan_make: the recipe (recipe.h) of the options, borrowed; NULL: none */
    char preset_idle[256]; /* plan_check: options of it that do nothing here; "": none */
    FshCache cache;
    const PixelSourceType *source; /* of training's pixels; for evaluation see plan_evaluation_source */
    /* --cache is open: session_feed.h decides once the run is measured, and sets source */
    bool cache_follows;
} TrainPlan;

/* Makes the plan. options->compute.device must be that of the open backend, or OPTION_AUTO; model: from
 * plan_model. FSH_ERR_USAGE: options that contradict each other or would do nothing. FSH_ERR_MISMATCH: fewer
 * samples than a batch, fewer steps than are to be measured or make an update, images smaller than a crop. */
FshStatus plan_make(TrainPlan *plan, const TrainOptions *options, const Model *model,
                    const TrainingData *data, FshError *error);

/* Returns the source of evaluation's pixels: plan->source if it serves evaluation at the size of the images
 * there, else records. */
const PixelSourceType *plan_evaluation_source(const TrainPlan *plan);

/* Returns whether batches from the source are, byte for byte, those that are decoded at each use, where no
 * image of the training split has a longer short edge (pixels). */
bool plan_source_is_alike(const TrainPlan *plan, const PixelSourceType *source, uint32_t short_edge);

/* Sets *model_ret to the network that options name, or the default for the kind of dataset. FSH_ERR_USAGE:
 * there is none of that name. */
FshStatus plan_model(const TrainOptions *options, FshKind kind, const Model **model_ret, FshError *error);

/* Returns --jobs, or this rank's share of the host's cores. */
int plan_threads(const TrainOptions *options);
/* Sets threads, cores, workers and workers_most of the plan; plan_make does so. */
void plan_threads_of(TrainPlan *plan, const TrainOptions *options);

/* Options for opening a backend. options.plan_cache points to plan_cache, so the struct must not move. */
typedef struct PlanBackend {
    BackendOptions options;
    char plan_cache[PATH_MAX]; /* the folder for the plans of CUDA's libraries */
} PlanBackend;
void plan_backend(PlanBackend *backend, const TrainOptions *options);
/* Sets recipe.fusions to `there`, the fusions of the backend, without those of --no-fuse. FSH_ERR_USAGE: an
 * unknown name. */
FshStatus plan_fusions(TrainPlan *plan, const TrainOptions *options, unsigned there, FshError *error);
/* Returns the choice of --amp that computes in this type, and its name: "off", "bf16", "fp16"; static. */
int plan_amp_choice(DataType type);
const char *plan_amp_name(DataType type);
/* Returns whether the network restores images, so that its dataset holds pairs. */
bool plan_is_pairs(const TrainPlan *plan);
/* Returns whether the network tells the class of each pixel, so that its dataset holds masks. */
bool plan_is_masks(const TrainPlan *plan);
/* Returns whether the network tells classes of images, one or several; else it restores images, tells
 * those of pixels, or numbers. */
bool plan_is_classes(const TrainPlan *plan);
/* Returns whether an image's target is as large as the image, a restored one or a mask: it is evaluated
 * whole. */
bool plan_has_targets(const TrainPlan *plan);
/* Returns the kind of dataset that the network takes. */
FshKind plan_kind_of(const Model *model);
/* Returns whether the learning rate follows measures (plateau.h) after the warm-up. */
bool plan_uses_plateau(const TrainPlan *plan);
/* Returns the batch that is chosen for one process where neither device nor set says otherwise. */
uint64_t plan_usual_batch(const TrainPlan *plan);
/* Returns how many images all ranks take in a step. */
uint64_t plan_total_batch(const TrainPlan *plan);

/* Returns whether the run is counted in iterations (--iters, --val-every). */
bool plan_counts_iterations(const TrainPlan *plan);
/* Returns the steps of an epoch, and of all epochs before it. */
uint64_t plan_epoch_steps(const TrainPlan *plan, uint64_t epoch);
uint64_t plan_steps_before(const TrainPlan *plan, uint64_t epoch);
/* Returns how many iterations so many steps are; 0 where the run is counted in epochs. */
uint64_t plan_iterations(const TrainPlan *plan, uint64_t steps);
/* Writes what an epoch is called at its end, "epoch 3" or "iteration 20000". Returns text. */
const char *plan_epoch_text(const TrainPlan *plan, uint64_t epoch, char *text, size_t text_bytes);
/* Writes the same with how many there are, "epoch 3 (4 of 20)" or "iteration 500 of 2000", to text and
 * returns it: epochs are numbered from 0, as in all tables, and counted from 1. */
const char *plan_place_text(const TrainPlan *plan, uint64_t epoch, char *text, size_t text_bytes);

/* Returns the edge of the training images of an epoch. */
uint32_t plan_edge(const TrainPlan *plan, uint64_t epoch);

/* Passes the plan in a few lines of text for the log to print, each without its line end. */
void plan_describe(const TrainPlan *plan, const TrainingData *data,
                   void (*print)(void *context, const char *line), void *context);

enum { PLAN_NORMS_BYTES = 192 };
/* Writes of what batch norms take their statistics: "one image in 8 (8 of 64) of each batch". Returns whether
 * that is another than usual. */
bool plan_describe_norms(const TrainPlan *plan, char text[PLAN_NORMS_BYTES]);

/* Passes the line that tells where the batch comes from, if a GPU has a say in it: part of plan_describe. */
void plan_describe_batch(const TrainPlan *plan, void (*print)(void *context, const char *line),
                         void *context);

/* ---- parts of plan_make ---- */

/* Chooses the source of pixels. --cache names a cache of files, or a source. */
FshStatus plan_source(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                      FshError *error);
/* Decides how many batches the loader makes ahead, from their size. */
void plan_batches_ahead(TrainPlan *plan, const TrainingData *data);
/* Decides the batch of a rank, and the steps of an epoch. */
FshStatus plan_batch(TrainPlan *plan, const TrainOptions *options, const TrainingData *data, FshError *error);
FshStatus plan_images(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                      FshError *error);
/* Returns whether --val-resize-size counts: not a recipe's whose crop has given way to one of the user's, for
 * the two belong together. */
bool plan_takes_resize(const TrainOptions *options);
void plan_precision(TrainPlan *plan, const TrainOptions *options);
FshStatus plan_length(TrainPlan *plan, const TrainOptions *options, FshError *error);
FshStatus plan_training(TrainPlan *plan, const TrainOptions *options, FshError *error);
/* Decide the optimizer, then the learning rate, then plateau and early stopping: parts of plan_training. */
FshStatus plan_optimizer(TrainPlan *plan, const TrainOptions *options, FshError *error);
/* Of plan_optimizer and plan_schedule, for muon: its rule, from the optimizer that would be there without it;
 * its learning rate; and that of the rest, as a part of it. rate_of_moments, rate_of_momentum: what adamw and
 * sgd get where none is given. */
void plan_muon(TrainPlan *plan, const TrainOptions *options);
double plan_muon_rate(const TrainPlan *plan, double rate_of_moments);
void plan_muon_rest_rate(TrainPlan *plan, const TrainOptions *options, double rate_of_moments,
                         double rate_of_momentum);
FshStatus plan_schedule(TrainPlan *plan, const TrainOptions *options, FshError *error);
/* Return what options leave open as the plan has it: the optimizer's options with the defaults of its kind,
 * the epochs of the warm-up where no iterations say it, the text of --scale, and the choice of
 * --plateau-metric and --early-stop-metric that is the metric. */
UpdateOptions plan_update_options(const TrainPlan *plan, const TrainOptions *options, OptimizerKind kind);
double plan_warmup_epochs(const TrainPlan *plan, const TrainOptions *options);
const char *plan_scale_text(const TrainPlan *plan, const TrainOptions *options);
int plan_metric_choice(Metric metric);
FshStatus plan_watch(TrainPlan *plan, const TrainOptions *options, FshError *error);
/* Refuses every given option that the plan does not use, and notes those of a recipe; where nothing is
 * trained, every typed one. FSH_ERR_MISMATCH: more steps are to be measured than there are. */
FshStatus plan_check(TrainPlan *plan, const TrainOptions *options, FshError *error);

#endif
