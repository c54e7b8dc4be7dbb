#include "trainer/loop/train_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/optim/schedule.h"

const char train_summary[] =
    "Train an image classifier on a dataset that fpack made, or evaluate one. Every default is meant to "
    "work: "
    "the size of the images, the number of classes and how to normalise them come from the dataset.";

const char train_usage[] = "[OPTIONS] SHARDS [OUTPUT]";

const char train_examples[] =
    "  ftrain shards/ out/                                   resnet18, defaults for all else\n"
    "  ftrain --model conv8 --epochs 8 shards/ out/\n"
    "  ftrain --dry-run shards/                              the network, its memory, the steps\n"
    "  ftrain --evaluate --weights out/model_best.safetensors shards/\n"
    "  ftrain --list-models\n";

TrainOptions train_options_default(void)
{
    return (TrainOptions){
        .train_split = "train",
        .on_error = "stop",
        .cache = "none",
        .model = "resnet18",
        .device = "auto",
        .epochs = 16,
        .lr_base = 0.5,
        .lr_scheduler = "cosine",
        .lr_warmup_epochs = 5,
        .lr_step_size = 30,
        .lr_gamma = 0.1,
        .lr_power = 1,
        .momentum = 0.9,
        .weight_decay = 5e-4,
        .label_smoothing = 0.1,
        .nesterov = true,
        .train_crop_mode = "auto",
        .scale = "0.35:1",
        .ratio = "0.75:1.3333",
        .hflip_prob = 0.5,
        .augment = true,
        .log_interval = 50,
    };
}

static const char *const on_error_choices[] = {"stop", "skip", NULL};
static const char *const cache_choices[] = {"none", "ram", "lock", NULL};
static const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};
static const char *const crop_mode_choices[] = {"auto", "rrc", "pad", "center", NULL};

enum { EDGE_MAX = 4096, BATCH_MAX = 1 << 20, EPOCHS_MAX = 1000000 };

void train_options_rows(TrainOptions *o, Option *rows)
{
    const Option table[] = {
        {.name = "shards",
         .kind = OPTION_TEXT,
         .value = &o->shards,
         .argument = "DIR",
         .alias = "data-dir",
         .help = "the dataset, if it is not the first argument",
         .group = "Data"},
        {.name = "output",
         .kind = OPTION_TEXT,
         .value = &o->output,
         .argument = "DIR",
         .alias = "output-dir",
         .help = "where weights, tables and log go, if it is not the second argument"},
        {.name = "force",
         .letter = 'f',
         .kind = OPTION_FLAG,
         .value = &o->force,
         .help = "use an output folder that is not empty, and replace an earlier run's files in it"},
        {.name = "train-split",
         .kind = OPTION_TEXT,
         .value = &o->train_split,
         .argument = "NAME",
         .help = "the split to learn from"},
        {.name = "val-split",
         .kind = OPTION_TEXT,
         .value = &o->val_split,
         .argument = "NAME",
         .help = "the split to evaluate on; val, else test, unless given"},
        {.name = "on-error",
         .kind = OPTION_CHOICE,
         .value = &o->on_error,
         .argument = "WHAT",
         .choices = on_error_choices,
         .help = "when a sample cannot be read: stop, or skip it and name it (exit status 1)"},
        {.name = "workers",
         .kind = OPTION_INTEGER,
         .value = &o->workers,
         .argument = "N",
         .maximum = 1024,
         .help = "threads that decode and augment ahead of training; 0: half the cores"},
        {.name = "cache",
         .kind = OPTION_CHOICE,
         .value = &o->cache,
         .argument = "HOW",
         .choices = cache_choices,
         .help =
             "before the first step: none, bring the dataset into memory (ram), or lock it there too (lock)"},

        {.name = "model",
         .letter = 'm',
         .kind = OPTION_TEXT,
         .value = &o->model,
         .argument = "NAME",
         .alias = "arch",
         .given = &o->model_given,
         .help =
             "the network; see --list-models; with --evaluate, the one that the weights name unless given",
         .group = "Network"},
        {.name = "list-models",
         .kind = OPTION_FLAG,
         .value = &o->list_models,
         .help = "list the networks with parameters and GFLOP, for SHARDS if given"},
        {.name = "weights",
         .kind = OPTION_TEXT,
         .value = &o->weights,
         .argument = "FILE",
         .help = "start from, or evaluate, these weights (safetensors with torchvision's names)"},
        {.name = "evaluate",
         .kind = OPTION_FLAG,
         .value = &o->evaluate,
         .alias = "test-only",
         .help = "evaluate --weights and leave; writes nothing"},
        {.name = "device",
         .kind = OPTION_CHOICE,
         .value = &o->device,
         .argument = "NAME",
         .choices = device_choices,
         .help = "where to compute; auto: cuda if this build and this machine have it"},

        {.name = "epochs",
         .kind = OPTION_INTEGER,
         .value = &o->epochs,
         .argument = "N",
         .minimum = 1,
         .maximum = EPOCHS_MAX,
         .help = "passes over the training split",
         .group = "Training"},
        {.name = "batch-size",
         .letter = 'b',
         .kind = OPTION_INTEGER,
         .value = &o->batch_size,
         .argument = "N",
         .maximum = BATCH_MAX,
         .help = "images in a step; 0: 64, fewer where the split is small"},
        {.name = "val-batch-size",
         .kind = OPTION_INTEGER,
         .value = &o->val_batch_size,
         .argument = "N",
         .maximum = BATCH_MAX,
         .help = "images in a step of evaluation; 0: as in training"},
        {.name = "lr",
         .kind = OPTION_REAL,
         .value = &o->lr,
         .argument = "X",
         .maximum = 1e6,
         .help = "highest learning rate; 0: --lr-base times batch size / 256"},
        {.name = "lr-base",
         .kind = OPTION_REAL,
         .value = &o->lr_base,
         .argument = "X",
         .maximum = 1e6,
         .help = "highest learning rate for a batch of 256 images"},
        {.name = "lr-scheduler",
         .kind = OPTION_CHOICE,
         .value = &o->lr_scheduler,
         .argument = "NAME",
         .alias = "sched",
         .choices = schedule_names,
         .help = "what the learning rate does after the warm-up, step by step"},
        {.name = "lr-warmup-epochs",
         .kind = OPTION_REAL,
         .value = &o->lr_warmup_epochs,
         .argument = "X",
         .given = &o->lr_warmup_given,
         .alias = "warmup-epochs",
         .maximum = EPOCHS_MAX,
         .help =
             "epochs in which the learning rate rises to its highest; at most a fifth of all unless given"},
        {.name = "lr-step-size",
         .kind = OPTION_INTEGER,
         .value = &o->lr_step_size,
         .argument = "N",
         .minimum = 1,
         .maximum = EPOCHS_MAX,
         .help = "for --lr-scheduler step: epochs between two drops"},
        {.name = "lr-gamma",
         .kind = OPTION_REAL,
         .value = &o->lr_gamma,
         .argument = "X",
         .maximum = 1,
         .help = "for --lr-scheduler step: what each drop multiplies by"},
        {.name = "lr-min",
         .kind = OPTION_REAL,
         .value = &o->lr_min,
         .argument = "X",
         .maximum = 1e6,
         .help = "where cosine, linear and polynomial end"},
        {.name = "lr-power",
         .kind = OPTION_REAL,
         .value = &o->lr_power,
         .argument = "X",
         .minimum = 0.01,
         .maximum = 100,
         .help = "for --lr-scheduler polynomial: the power; 1 is a line"},
        {.name = "momentum",
         .kind = OPTION_REAL,
         .value = &o->momentum,
         .argument = "X",
         .maximum = 0.9999,
         .help = "of stochastic gradient descent"},
        {.name = "nesterov",
         .kind = OPTION_FLAG,
         .value = &o->nesterov,
         .help = "Nesterov's form of momentum"},
        {.name = "weight-decay",
         .kind = OPTION_REAL,
         .value = &o->weight_decay,
         .argument = "X",
         .alias = "wd",
         .maximum = 1,
         .help = "on weights; norms and biases have none"},
        {.name = "label-smoothing",
         .kind = OPTION_REAL,
         .value = &o->label_smoothing,
         .argument = "X",
         .alias = "smoothing",
         .maximum = 0.99,
         .help = "part of each label that is spread over all classes"},
        {.name = "seed",
         .kind = OPTION_INTEGER,
         .value = &o->seed,
         .argument = "N",
         .maximum = 9007199254740992.0,
         .help = "decides first weights, order and augmentation: the same seed gives the same result"},
        {.name = "log-interval",
         .kind = OPTION_INTEGER,
         .value = &o->log_interval,
         .argument = "N",
         .minimum = 1,
         .maximum = 1e9,
         .alias = "print-freq",
         .help = "steps between two lines of the log"},

        {.name = "train-crop-size",
         .kind = OPTION_INTEGER,
         .value = &o->train_crop_size,
         .argument = "PX",
         .maximum = EDGE_MAX,
         .group = "Images",
         .help = "edge of the square that the network sees in training; 0: from the dataset"},
        {.name = "val-resize-size",
         .kind = OPTION_INTEGER,
         .value = &o->val_resize_size,
         .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "short edge that images get before evaluation; 0: from the dataset"},
        {.name = "val-crop-size",
         .kind = OPTION_INTEGER,
         .value = &o->val_crop_size,
         .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "edge of the centre square that is evaluated; 0: as in training"},
        {.name = "train-crop-mode",
         .kind = OPTION_CHOICE,
         .value = &o->train_crop_mode,
         .argument = "MODE",
         .choices = crop_mode_choices,
         .help = "rrc: random part, resized; pad: whole image, moved; center: no chance; auto: pad up to 40 "
                 "pixels, "
                 "else rrc"},
        {.name = "scale",
         .kind = OPTION_TEXT,
         .value = &o->scale,
         .argument = "MIN:MAX",
         .alias = "rrc-scale",
         .help = "for rrc: part of the image's area"},
        {.name = "ratio",
         .kind = OPTION_TEXT,
         .value = &o->ratio,
         .argument = "MIN:MAX",
         .alias = "rrc-ratio",
         .help = "for rrc: width / height of the part"},
        {.name = "crop-padding",
         .kind = OPTION_INTEGER,
         .value = &o->crop_padding,
         .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "for pad: how far images are moved; 0: an eighth of the crop"},
        {.name = "hflip-prob",
         .kind = OPTION_REAL,
         .value = &o->hflip_prob,
         .argument = "P",
         .alias = "hflip",
         .given = &o->hflip_given,
         .maximum = 1,
         .help = "probability of a flip left to right; none on gray images (digits, scans) unless given"},
        {.name = "aug",
         .kind = OPTION_FLAG,
         .value = &o->augment,
         .help = "random crops and flips in training; --no-aug sees each image as evaluation does"},
        PROGRAM_OPTIONS(&o->program),
        {0},
    };
    _Static_assert(sizeof table / sizeof *table <= TRAIN_OPTION_ROWS, "TRAIN_OPTION_ROWS is too small");
    memcpy(rows, table, sizeof table);
}

/* A plain number at text, up to the character `end`. */
static bool read_number(const char *text, char end, double *value_ret)
{
    char *stop = NULL;
    *value_ret = strtod(text, &stop);
    return stop != text && *stop == end && isfinite(*value_ret);
}

FshStatus train_options_range(const char *name, const char *text, double low, double high,
                              double *minimum_ret, double *maximum_ret, FshError *error)
{
    const char *colon = strchr(text, ':');
    if (!colon || !read_number(text, ':', minimum_ret) || !read_number(colon + 1, '\0', maximum_ret) ||
        *minimum_ret < low || *maximum_ret > high || *minimum_ret > *maximum_ret)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is not MIN:MAX with %g <= MIN <= MAX <= %g",
                             name, text, low, high);
    return FSH_OK;
}
