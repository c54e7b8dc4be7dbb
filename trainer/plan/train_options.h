/* train_options.h - the options of ftrain: a struct with the defaults, and the table that fills it.
 *
 * A number of 0 means "chosen from the dataset or the machine" if the help says so; train_plan.h chooses.
 * Names are those of torchvision's reference scripts and of timm, if either has the option. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_OPTIONS_H
#define FSHARD_TRAINER_PLAN_TRAIN_OPTIONS_H

#include "common/program.h"
#include "trainer/data/augment.h"
#include "trainer/data/mixing.h"
#include "trainer/data/sampler.h"
#include "trainer/models/models.h"
#include "trainer/plan/plan_optimizer.h"
#include "trainer/plan/plan_schedule.h"
#include "trainer/ranks/rank_options.h"
#include "trainer/ranks/rank_place.h"

enum { TRAIN_OPTION_ROWS = 192, TRAIN_OPTIONS_BYTES = 2048 };

/* Values of options with choices, in the order of their names; "auto" is OPTION_AUTO. */
typedef enum TrainOnError { TRAIN_STOP, TRAIN_SKIP } TrainOnError;
typedef enum TrainDecode { DECODE_CPU, DECODE_GPU } TrainDecode;
typedef enum TrainDevice { DEVICE_CPU, DEVICE_CUDA } TrainDevice;
typedef enum TrainAmp { AMP_OFF, AMP_BF16, AMP_FP16 } TrainAmp;
typedef enum PredictFormat { PREDICT_CSV, PREDICT_JSONL, PREDICT_PNG, PREDICT_JPEG } PredictFormat;

/* Ordered by theme: there is only one, so its padding does not matter. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct TrainOptions {
    ProgramOptions program;
    /* not an option: this process's place among the ranks of the run; world_size 0: the only one
     * (session.h) */
    RankPlace place;
    int cores; /* not an option: of this host, this rank's share (session_cores.h); 0: all */
    struct ImageSource
        *images; /* not an option either: images that --predict has found (image_source.h); NULL: a
                         * dataset */
    const json_t
        *preset; /* not an option: the values of the recipe (OptionArguments.preset), borrowed; NULL: none */
    const char *config; /* a file of values (options_config.h) */
    const char *recipe; /* recipe.h */
    bool print_config, list_recipes, force, list_models, evaluate, bench_loader, drop_caches, verdict;

    /* Data */
    const char *shards, *output;         /* given as options, or as arguments (main) */
    const char *train_split, *val_split; /* val_split NULL: val, else test */
    int on_error;                        /* TrainOnError */
    int64_t workers;                     /* loader threads; 0: chosen */
    int decode;                          /* TrainDecode: of JPEG files */
    int cache;                           /* place in pixel_source_caches */

    /* Network */
    const char *model;   /* NULL: resnet18, or unet for pairs */
    const char *weights; /* NULL: drawn from the seed */
    int device;          /* TrainDevice; auto */
    RankOptions ranks;   /* rank_options_rows */
    int amp;             /* TrainAmp; auto */
    bool tf32, cudnn_benchmark, sync_bn;
    const char *no_fuse; /* NAME,NAME; NULL: use all fusions of the backend */
    ModelValues network; /* the networks' own options: --width, --depth, … (models.h) */
    const char *predict, *export_path;
    int predict_format;         /* PredictFormat; auto */
    const char *files_from;     /* a list of images that are not packed; NULL: all images */
    int64_t tile, tile_overlap; /* pixels; tile 0: whole images if memory allows */

    /* Training */
    int64_t epochs;
    int64_t batch_size, val_batch_size; /* 0: chosen */
    int64_t val_interval;               /* epochs; 0: chosen */
    int64_t grad_accum_steps;
    int loss; /* LossKind; auto */
    double label_smoothing;
    const char *class_weights; /* "balanced" or a file; NULL: all alike */
    UpdateOptions update;      /* update_options_rows */
    ScheduleOptions schedule;  /* schedule_options_rows */
    int64_t seed;
    bool deterministic;

    /* Images */
    Augmentation views; /* its own options (augmentation_rows) and --noise; the rest is planned */
    Mixing mixing;
    Sampling sampling;
    int64_t train_crop_size, val_resize_size, val_crop_size; /* pixels; 0: chosen */
    double crop_pct;                                         /* val_crop_size / val_resize_size; 0: chosen */
    const char *progressive;                                 /* FROM:TO */
    const char *progressive_epochs; /* FIRST:LAST; NULL: the first and last third keep their size */
    int train_crop_mode;            /* CropMode; auto */
    const char *scale, *ratio;      /* MIN:MAX */
    int64_t crop_padding;           /* pixels; 0: an eighth of the crop */
    const char *color_jitter; /* BRIGHTNESS:CONTRAST:SATURATION:HUE, or one number for the first three */
    bool augment, flip_tta;
    int64_t crop_border;
    bool y_channel;

    /* Records */
    int64_t log_interval;        /* steps */
    int64_t profile;             /* steps to measure; 0: none */
    const char *resume;          /* "auto" or a path; NULL: begin anew */
    int64_t checkpoint_hist;     /* how many best epochs keep their weights */
    int64_t checkpoint_interval; /* steps between two checkpoints within an epoch; 0: only at its end */
    bool tensorboard, html;

    /* Not an option: whether the user gave a value, by its place in this struct; see train_given. */
    bool given[TRAIN_OPTIONS_BYTES];
    bool typed[TRAIN_OPTIONS_BYTES]; /* the same, on the command line; see train_typed */
} TrainOptions;

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

/* Return the text of a value of --device ("auto", "cpu", "cuda"), --amp and --predict-format. */
const char *train_device_name(int device);
const char *train_amp_name(int amp);
const char *predict_format_name(int format);

/* Returns the whole table, which points to rows. A program that takes --recipe sets its find_preset. */
OptionTable train_options_table(const Option *rows);

/* Reads "0.25:1" as two numbers with low <= MIN <= MAX <= high. FSH_ERR_USAGE names the option. */
FshStatus train_options_range(const char *name, const char *text, double low, double high,
                              double *minimum_ret, double *maximum_ret, FshError *error);
/* Reads "1,1,1,28" or "0.4:0.4": at most `most` numbers separated by : or , each in low..high; sets
 * *count_ret. FSH_ERR_USAGE names the option. */
FshStatus train_options_numbers(const char *name, const char *text, double low, double high, double *numbers,
                                size_t most, size_t *count_ret, FshError *error);

#endif
