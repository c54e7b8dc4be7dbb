/* train_options.h - the options of ftrain: a struct with the defaults, and the table that fills it.
 *
 * A number of 0 means "chosen from the dataset or the machine" if the help says so; train_plan.h chooses.
 * Names are those of torchvision's reference scripts and of timm, if either has the option. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_OPTIONS_H
#define FSHARD_TRAINER_PLAN_TRAIN_OPTIONS_H

#include "common/program.h"
#include "trainer/checkpoint/checkpoint_options.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"
#include "trainer/data/sample_choice.h"
#include "trainer/data/sampler.h"
#include "trainer/data/training_data.h"
#include "trainer/models/models.h"
#include "trainer/plan/batch_choice.h"
#include "trainer/plan/inference_options.h"
#include "trainer/plan/plan_data.h"
#include "trainer/plan/plan_device.h"
#include "trainer/plan/plan_images.h"
#include "trainer/plan/plan_muon.h"
#include "trainer/plan/plan_optimizer.h"
#include "trainer/plan/plan_schedule.h"
#include "trainer/plan/plan_sets.h"
#include "trainer/plan/plan_training.h"
#include "trainer/plan/study_options.h"
#include "trainer/ranks/rank_options.h"
#include "trainer/ranks/rank_place.h"
#include "trainer/report/report_options.h"

enum { TRAIN_OPTION_ROWS = 256, TRAIN_OPTIONS_BYTES = 4096 };

/* Ordered by theme: there is only one, so its padding does not matter. A part has its rows and its defaults
 * where it is read. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct TrainOptions {
    ProgramOptions program;
    /* not an option: this process's place among the ranks of the run; world_size 0: the only one
     * (session.h) */
    RankPlace place;
    int cores; /* not an option: of this host, this rank's share (session_cores.h); 0: all */
    /* not options either: what --batch-size is where it is open. Images that the GPU takes well in a step
     * (session_batch.h), 0: 64; images of a rank in a step, and how many ranks, of the run that goes on, 0:
     * there is none */
    uint64_t device_batch, run_batch, run_ranks;
    BatchCost device_cost; /* of device_batch */
    /* not an option either: images that --predict has found (image_source.h); NULL: a dataset */
    struct ImageSource *images;
    /* not an option: the values of the recipe (OptionArguments.preset), borrowed; NULL: none */
    const json_t *preset;

    const char *shards, *output; /* given as options, or as arguments (main) */
    const char *config;          /* a file of values (options_config.h) */
    const char *recipe;          /* recipe.h */
    bool print_config, list_recipes, force, list_models;
    DataOptions data;
    SetOptions sets; /* beside shards */
    ChoiceOptions choice;

    const char *model;   /* NULL: resnet18, or unet for pairs */
    const char *weights; /* NULL: drawn from the seed */
    ModelValues network; /* the networks' own options: --width, --depth, … (models.h) */
    InferenceOptions inference;
    ComputeOptions compute;
    RankOptions ranks;

    TrainingOptions training;
    UpdateOptions update;
    MuonOptions muon;
    ScheduleOptions schedule;

    ImageOptions image;
    Augmentation views; /* its own options (augmentation_rows); the rest is planned */
    Mixing mixing;
    Sampling sampling;

    ReportOptions report;
    CheckpointOptions checkpoint;
    StudyOptions study;

    /* Not options: where `shards` and the sets beside it lie here, if any of them is at an address, and what
     * they are called; or NULL. */
    const char *const *fetched, *const *fetched_names;
    /* Not an option: whether the user gave a value, by its place in this struct; see train_given. */
    bool given[TRAIN_OPTIONS_BYTES];
    bool typed[TRAIN_OPTIONS_BYTES]; /* the same, on the command line; see train_typed */
} TrainOptions;

_Static_assert(offsetof(TrainOptions, given) <= TRAIN_OPTIONS_BYTES,
               "each option has a place in given and typed");

/* Returns the defaults. */
TrainOptions train_options_default(void);

/* Writes the rows, the last of which is empty, to rows, which has room for TRAIN_OPTION_ROWS. They point into
 * options. */
void train_options_rows(TrainOptions *options, Option *rows);

/* Returns whether the user gave the option whose value is *field, a member of *options, on the command line
 * or in a file: train_given(options, &options->lr). */
bool train_given(const TrainOptions *options, const void *field);
/* Returns whether the user gave it on the command line. */
bool train_typed(const TrainOptions *options, const void *field);
/* Returns the name of the option whose value is *field, a member of *options. For messages. */
const char *train_option_name(const TrainOptions *options, const void *field);

/* Returns the dataset that the options name, for a network that takes this kind (0: any), with a split to
 * train on. */
TrainingDataSource train_options_source(const TrainOptions *options, FshKind kind);

/* Returns the whole table, which points to rows. A program that takes --recipe sets its find_preset. */
OptionTable train_options_table(const Option *rows);

/* Reads "0.25:1", or "25%:100%" where high is at most 1, as two numbers with low <= MIN <= MAX <= high.
 * FSH_ERR_USAGE names the option. */
FshStatus train_options_range(const char *name, const char *text, double low, double high,
                              double *minimum_ret, double *maximum_ret, FshError *error);
/* Reads "1,1,1,28" or "0.4:0.4": at most `most` numbers separated by : or , each in low..high, or percentages
 * as train_options_range takes them; sets *count_ret. FSH_ERR_USAGE names the option. */
FshStatus train_options_numbers(const char *name, const char *text, double low, double high, double *numbers,
                                size_t most, size_t *count_ret, FshError *error);

#endif
