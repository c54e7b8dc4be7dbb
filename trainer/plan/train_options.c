#include "trainer/plan/train_options.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/augment.h"
#include "trainer/data/pixel_source.h"
#include "trainer/data/random_erasing.h"
#include "trainer/checkpoint/run_state.h"
#include "trainer/plan/train_hints.h"

static const char summary[] =
    "Train a network on a dataset that fpack made, classes or pairs of images, or evaluate one. Every "
    "default is meant "
    "to work: the size of the images, the number of classes and how to normalise them come from the dataset.";

static const char usage[] = "[OPTIONS] SHARDS [OUTPUT]";

static const char examples[] =
    "  ftrain shards/ out/                                   resnet18, defaults for all else\n"
    "  ftrain --model resnet9 --amp bf16 --epochs 10 cifar10/ out/\n"
    "  ftrain --gpus all --model resnet50 shards/ out/       on every GPU of this machine\n"
    "  ftrain --model unet pairs/ out/                       blurry and sharp: PSNR, SSIM\n"
    "  ftrain --dry-run shards/                              the network, its memory, the steps, the time\n"
    "  ftrain --resume auto shards/ out/                     go on, or begin\n"
    "  ftrain --evaluate --weights out/model_best.safetensors shards/\n"
    "  ftrain --weights out/model_best.safetensors --predict classes/ photos/    any images, unpacked\n"
    "  ftrain --weights out/model_best.safetensors --predict restored/ pairs/\n"
    "  ftrain --recipe rsb-a3 shards/ out/                   as others have trained; --list-recipes\n"
    "  ftrain --print-config --model resnet50 > run.toml; ftrain --config run.toml shards/ out/\n"
    "  ftrain --list-models\n";

TrainOptions train_options_default(void)
{
    return (TrainOptions){
        .verdict = true,
        .train_split = "train",
        .on_error = TRAIN_STOP,
        .cache = PIXEL_CACHE_NONE,
        .decode = DECODE_CPU,
        .device = OPTION_AUTO,
        .amp = OPTION_AUTO,
        .predict_format = OPTION_AUTO,
        .cudnn_benchmark = true,
        .epochs = 16,
        .grad_accum_steps = 1,
        .loss = OPTION_AUTO,
        .label_smoothing = 0.1,
        .train_crop_mode = OPTION_AUTO,
        .scale = "0.35:1",
        .ratio = "0.75:1.3333",
        .views = augmentation_default(),
        .mixing = mixing_default(),
        .sampling = sampling_default(),
        .ranks = rank_options_default(),
        .update = update_options_default(),
        .schedule = schedule_options_default(),
        .augment = true,
        .log_interval = 50,
        .tensorboard = true,
        .html = true,
    };
}

static const char *const on_error_choices[] = {"stop", "skip", NULL};
static const char *const decode_choices[] = {"cpu", "gpu", NULL};
static const char *const predict_choices[] = {"csv", "jsonl", "png", "jpeg", NULL};
static const char *const device_choices[] = {"cpu", "cuda", NULL};
static const char *const amp_choices[] = {"off", "bf16", "fp16", NULL};

enum { PART_ROWS_MAX = 32 }; /* in all parts except the networks */
enum { EDGE_MAX = 4096, BATCH_MAX = 1 << 20, EPOCHS_MAX = 1000000 };

/* Returns the place of the value in the struct of options, in bytes. */
static size_t place_of(const TrainOptions *options, const void *value)
{
    return (size_t)((const char *)value - (const char *)options);
}

/* Writes a row for each option of the networks, with its value in options. Returns their number. */
static size_t network_rows(TrainOptions *options, Option *rows)
{
    ModelValues *values = &options->network;
    const ModelOption *option = NULL;
    size_t count = 0;
    for (; (option = model_option(count)); count++) {
        rows[count] = option->row;
        rows[count].value = &values->at[count];
    }
    return count;
}

static size_t view_rows(TrainOptions *options, Option *rows)
{
    return augmentation_rows(&options->views, rows);
}

static size_t auto_augment_part_rows(TrainOptions *options, Option *rows)
{
    return auto_augment_rows(&options->views.auto_augment, rows);
}

static size_t erasing_part_rows(TrainOptions *options, Option *rows)
{
    return random_erasing_rows(&options->views.erasing, rows);
}

static size_t mixing_part_rows(TrainOptions *options, Option *rows)
{
    return mixing_rows(&options->mixing, rows);
}

static size_t sampling_part_rows(TrainOptions *options, Option *rows)
{
    return sampling_rows(&options->sampling, rows);
}

static size_t rank_rows(TrainOptions *options, Option *rows)
{
    return rank_options_rows(&options->ranks, rows);
}

static size_t update_rows(TrainOptions *options, Option *rows)
{
    return update_options_rows(&options->update, rows);
}

static size_t schedule_rows(TrainOptions *options, Option *rows)
{
    return schedule_options_rows(&options->schedule, rows);
}

/* Parts that define their rows in their own code; each function writes them and returns their number. In the
 * table a row without a name, with the part in its marks, stands for them; its uses are those of the rows
 * that name none. */
enum {
    PART_NETWORKS,
    PART_VIEWS,
    PART_AUTO_AUGMENT,
    PART_ERASING,
    PART_MIXING,
    PART_SAMPLING,
    PART_RANKS,
    PART_OPTIMIZER,
    PART_SCHEDULE
};
static size_t (*const parts[])(TrainOptions *options, Option *rows) = {
    [PART_AUTO_AUGMENT] = auto_augment_part_rows,
    [PART_NETWORKS] = network_rows,
    [PART_VIEWS] = view_rows,
    [PART_ERASING] = erasing_part_rows,
    [PART_MIXING] = mixing_part_rows,
    [PART_SAMPLING] = sampling_part_rows,
    [PART_RANKS] = rank_rows,
    [PART_OPTIMIZER] = update_rows,
    [PART_SCHEDULE] = schedule_rows,
};

/* Each row has two lines: the option, and its help. */
/* clang-format off */
void train_options_rows(TrainOptions *o, Option *rows)
{
    const Option table[] = {
        {.name = "shards", .kind = OPTION_TEXT, .value = &o->shards, .argument = "DIR", .alias = "data-dir",
         .group = "Data",
         .marks = OPTION_FREE,
         .help = "the dataset, if it is not the first argument"},
        {.name = "output", .kind = OPTION_TEXT, .value = &o->output, .argument = "DIR", .alias = "output-dir",
         .marks = OPTION_FREE, .uses = USE_LEARN,
         .help = "where weights, tables and log go, if it is not the second argument"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &o->force,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LEARN | USE_PREDICTS,
         .help = "use an output folder that is not empty, and replace an earlier run's files in it"},
        {.name = "recipe", .kind = OPTION_TEXT, .value = &o->recipe, .argument = "NAME",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "values for options as others have trained, by name (see --list-recipes) or from a file; "
                 "--config and the command line win"},
        {.name = "list-recipes", .kind = OPTION_FLAG, .value = &o->list_recipes,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "list the recipes with what they are and where they come from"},
        {.name = "config", .kind = OPTION_TEXT, .value = &o->config, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "values for options from a TOML or JSON file, args.json of a run too; the command line "
                 "wins"},
        {.name = "print-config", .kind = OPTION_FLAG, .value = &o->print_config,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "print all options as they are in force, as such a file, and leave"},
        {.name = "train-split", .kind = OPTION_TEXT, .value = &o->train_split, .argument = "NAME",
         .uses = USE_SAMPLES,
         .help = "the split to learn from"},
        {.name = "val-split", .kind = OPTION_TEXT, .value = &o->val_split, .argument = "NAME",
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "the split to evaluate on; val, else test, unless given"},
        {.name = "on-error", .kind = OPTION_CHOICE, .value = &o->on_error, .argument = "WHAT",
         .choices = on_error_choices,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_DATASET,
         .help = "when a sample cannot be read: stop, or skip it and name it (exit status 1)"},
        {.name = "workers", .kind = OPTION_INTEGER, .value = &o->workers, .argument = "N", .maximum = 1024,
         .marks = OPTION_FREE,
         .help = "threads that decode and augment ahead of training; 0: half the cores"},
        {.name = "cache", .kind = OPTION_CHOICE, .value = &o->cache, .argument = "HOW",
         .choices = pixel_source_caches,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_DATASET,
         .help = pixel_source_caches_help},
        {.name = "decode", .kind = OPTION_CHOICE, .value = &o->decode, .argument = "WHERE",
         .choices = decode_choices,
         .uses = USE_SAMPLES,
         .help = "who decodes the JPEG files of training: the loader's threads (cpu), or nvJPEG (gpu), whose"
                 " pixels "
                 "differ by a few levels"},
        {.name = "bench-loader", .kind = OPTION_FLAG, .value = &o->bench_loader,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "run the loader alone: images/s, MB/s, time by stage, and what bounds it"},
        {.name = "drop-caches", .kind = OPTION_FLAG, .value = &o->drop_caches,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_BENCH,
         .help = "for --bench-loader: forget the files' pages first, so that the disk is measured too"},

        {.name = "model", .letter = 'm', .kind = OPTION_TEXT, .value = &o->model, .argument = "NAME",
         .alias = "arch", .group = "Network",
         .help = "the network; see --list-models; resnet18, or unet for pairs, unless given; --evaluate "
                 "takes the one that the weights name"},
        {.name = "list-models", .kind = OPTION_FLAG, .value = &o->list_models,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "list the networks with parameters and GFLOP, for SHARDS if given"},
        {.name = "", .marks = PART_NETWORKS, .uses = USE_NETWORK},
        {.name = "weights", .kind = OPTION_TEXT, .value = &o->weights, .argument = "FILE",
         .marks = OPTION_FREE,
         .help = "start from, evaluate or predict with these weights (safetensors with the names of "
                 "torchvision, timm, NAFNet)"},
        {.name = "evaluate", .kind = OPTION_FLAG, .value = &o->evaluate, .alias = "test-only",
         .marks = OPTION_FREE | OPTION_ALIKE | OPTION_NOT_IN_FILE,
         .help = "evaluate --weights and leave; writes nothing"},
        {.name = "predict", .kind = OPTION_TEXT, .value = &o->predict, .argument = "DIR",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "with --weights: predicted classes as a table, or restored images, into DIR; SHARDS may be "
                 "a folder of "
                 "images, a tar, or an image too"},
        {.name = "export", .kind = OPTION_TEXT, .value = &o->export_path, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "with --weights: a table with a row for each sample of the evaluation split, or for each "
                 "image"},
        {.name = "predict-format", .kind = OPTION_CHOICE, .value = &o->predict_format, .argument = "FORMAT",
         .choices = predict_choices, .has_auto = true,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "tables as csv or jsonl (auto: csv), restored images as png or jpeg (auto: by the name of "
                 "the input)"},
        {.name = "files-from", .kind = OPTION_TEXT, .value = &o->files_from, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "predict the images below SHARDS (or here) that FILE lists, a path a line; -: standard "
                 "input"},
        {.name = "tile", .kind = OPTION_INTEGER, .value = &o->tile, .argument = "PX", .maximum = 16384,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "restore images in squares of this edge; 0: whole, or in the largest that fit into memory"},
        {.name = "tile-overlap", .kind = OPTION_INTEGER, .value = &o->tile_overlap, .argument = "PX",
         .maximum = 4096,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_PREDICTS,
         .help = "pixels that neighbouring tiles share, so that no seam is seen; 0: 128, but half of a tile "
                 "at most"},
        {.name = "device", .kind = OPTION_CHOICE, .value = &o->device, .argument = "NAME",
         .choices = device_choices, .has_auto = true, .hints = train_device_hints,
         .marks = OPTION_FREE,
         .help = "where to compute; cuda is the first GPU of CUDA_VISIBLE_DEVICES; auto: cuda if this build "
                 "and this "
                 "machine have it"},
        {.name = "amp", .kind = OPTION_CHOICE, .value = &o->amp, .argument = "TYPE",
         .choices = amp_choices, .has_auto = true, .hints = train_amp_hints,
         .uses = USE_NETWORK,
         .help = "type of activations and products: off is float32; auto: on a GPU fp16, or bf16 for "
                 "networks "
                 "without batch norm, else off"},
        {.name = "tf32", .kind = OPTION_FLAG, .value = &o->tf32, .alias = "allow-tf32",
         .uses = USE_NETWORK,
         .help = "on a GPU, with --amp off: products round what they multiply to TF32, which is much faster"},
        {.name = "cudnn-benchmark", .kind = OPTION_FLAG, .value = &o->cudnn_benchmark,
         .marks = OPTION_FREE, .uses = USE_NETWORK,
         .help = "on a GPU: time the ways to compute each convolution and keep the fastest; off with "
                 "--deterministic unless given"},
        {.name = "no-fuse", .kind = OPTION_TEXT, .value = &o->no_fuse, .argument = "NAME,NAME,...",
         .uses = USE_NETWORK,
         .help = "rewrites of the network to leave out, for measuring: norm-relu, norm-add-relu, norm-add, "
                 "bias-norm, "
                 "conv-statistics, gradient-add, pad-add, conv-bias-relu, images-again"},

        {.name = "sync-bn", .kind = OPTION_FLAG, .value = &o->sync_bn, .alias = "sync-batchnorm",
         .uses = USE_LEARN,
         .help = "batch norms of training take mean and variance over the batches of all ranks, as one "
                 "process with the total batch does"},

        {.name = "", .marks = PART_RANKS},

        {.name = "epochs", .kind = OPTION_INTEGER, .value = &o->epochs, .argument = "N", .minimum = 1,
         .maximum = EPOCHS_MAX, .group = "Training",
         .uses = USE_LEARN,
         .help = "passes over the training split"},
        {.name = "batch-size", .letter = 'b', .kind = OPTION_INTEGER, .value = &o->batch_size,
         .argument = "N",
         .maximum = BATCH_MAX,
         .help = "images in a step; 0: 64 (16 for pairs), fewer where the split is small"},
        {.name = "val-batch-size", .kind = OPTION_INTEGER, .value = &o->val_batch_size, .argument = "N",
         .maximum = BATCH_MAX,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_NETWORK,
         .help = "images in a step of evaluation; 0: as in training"},
        {.name = "val-interval", .kind = OPTION_INTEGER, .value = &o->val_interval, .argument = "N",
         .maximum = EPOCHS_MAX,
         .uses = USE_LEARN,
         .help = "epochs between two evaluations; the last epoch is always evaluated; 0: 1, or, for pairs, "
                 "as many as keep "
                 "evaluation under a fifth of the time"},
        {.name = "grad-accum-steps", .kind = OPTION_INTEGER, .value = &o->grad_accum_steps, .argument = "N",
         .minimum = 1, .maximum = 65536,
         .uses = USE_LEARN,
         .help = "batches whose gradients are averaged for one update"},
        {.name = "loss", .kind = OPTION_CHOICE, .value = &o->loss, .argument = "NAME",
         .choices = loss_names, .has_auto = true, .hints = train_loss_hints,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "auto: cross-entropy, or for pairs charbonnier"},
        {.name = "label-smoothing", .kind = OPTION_REAL, .value = &o->label_smoothing, .argument = "X",
         .maximum = 0.99, .alias = "smoothing",
         .uses = USE_LEARN,
         .help = "part of each label that is spread over all classes"},
        {.name = "class-weights", .kind = OPTION_TEXT, .value = &o->class_weights, .argument = "HOW",
         .alias = "class-weight",
         .uses = USE_LEARN,
         .help = "how much each class counts in the loss of training: balanced, by how many images it has, "
                 "or a file with a line CLASS WEIGHT for each"},
        {.name = "", .marks = PART_OPTIMIZER, .uses = USE_LEARN},
        {.name = "seed", .kind = OPTION_INTEGER, .value = &o->seed, .argument = "N",
         .maximum = 9007199254740992.0,
         .uses = USE_SAMPLES,
         .help = "decides first weights, order and augmentation: the same seed gives the same result"},
        {.name = "deterministic", .kind = OPTION_FLAG, .value = &o->deterministic,
         .uses = USE_NETWORK,
         .help = "the same bits in every run on this machine; the CPU does so always"},

        {.name = "", .marks = PART_SCHEDULE, .uses = USE_LEARN},

        {.name = "train-crop-size", .kind = OPTION_INTEGER, .value = &o->train_crop_size, .argument = "PX",
         .maximum = EDGE_MAX, .group = "Images",
         .help = "edge of the square that the network sees in training; 0: from the dataset"},
        {.name = "progressive", .kind = OPTION_TEXT, .value = &o->progressive, .argument = "FROM:TO",
         .help = "edge that grows with the epochs, in steps of 32 pixels (8 below 64)"},
        {.name = "progressive-epochs", .kind = OPTION_TEXT, .value = &o->progressive_epochs,
         .argument = "FIRST:LAST",
         .uses = USE_SAMPLES,
         .help = "the epochs between which it grows; the second third unless given"},
        {.name = "val-resize-size", .kind = OPTION_INTEGER, .value = &o->val_resize_size, .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "short edge that images get before evaluation; 0: from the dataset"},
        {.name = "val-crop-size", .kind = OPTION_INTEGER, .value = &o->val_crop_size, .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "edge of the centre square that is evaluated; 0: as in training; pairs are evaluated "
                 "whole"},
        {.name = "crop-pct", .kind = OPTION_REAL, .value = &o->crop_pct, .argument = "X", .maximum = 1,
         .help = "part of the short edge that the centre square of evaluation is, in place of "
                 "--val-resize-size; 0: from the dataset"},
        {.name = "train-crop-mode", .kind = OPTION_CHOICE, .value = &o->train_crop_mode, .argument = "MODE",
         .choices = crop_mode_names, .has_auto = true,
         .uses = USE_SAMPLES,
         .help = "rrc: random part, resized; pad: the centre, moved; center: no chance; auto: pad up to "
                 "40 pixels, else rrc"},
        {.name = "scale", .kind = OPTION_TEXT, .value = &o->scale, .argument = "MIN:MAX",
         .alias = "rrc-scale",
         .uses = USE_SAMPLES,
         .help = "for rrc: part of the image's area"},
        {.name = "ratio", .kind = OPTION_TEXT, .value = &o->ratio, .argument = "MIN:MAX",
         .alias = "rrc-ratio",
         .uses = USE_SAMPLES,
         .help = "for rrc: width / height of the part"},
        {.name = "crop-padding", .kind = OPTION_INTEGER, .value = &o->crop_padding, .argument = "PX",
         .maximum = EDGE_MAX,
         .uses = USE_SAMPLES,
         .help = "for pad: how far images are moved; 0: an eighth of the crop"},
        {.name = "", .marks = PART_VIEWS, .uses = USE_SAMPLES},
        {.name = "", .marks = PART_AUTO_AUGMENT, .uses = USE_SAMPLES},
        {.name = "color-jitter", .kind = OPTION_TEXT, .value = &o->color_jitter, .argument = "B:C:S:H",
         .uses = USE_SAMPLES,
         .help = "brightness, contrast, saturation, hue as torchvision's ColorJitter; one number is for "
                 "the first three"},
        {.name = "", .marks = PART_ERASING, .uses = USE_SAMPLES},
        {.name = "noise", .kind = OPTION_REAL, .value = &o->views.noise, .argument = "X", .maximum = 255,
         .uses = USE_SAMPLES,
         .help = "for pairs: noise on the input alone, of a deviation drawn up to this, in grey levels of "
                 "255"},
        {.name = "", .marks = PART_MIXING, .uses = USE_SAMPLES},
        {.name = "", .marks = PART_SAMPLING, .uses = USE_SAMPLES},
        {.name = "aug", .kind = OPTION_FLAG, .value = &o->augment,
         .uses = USE_SAMPLES,
         .help = "random crops, flips and all else in training; --no-aug sees each image as evaluation "
                 "does"},
        {.name = "flip-tta", .kind = OPTION_FLAG, .value = &o->flip_tta,
         .uses = USE_NETWORK,
         .help = "evaluate each image and its mirror image, and average"},
        {.name = "crop-border", .kind = OPTION_INTEGER, .value = &o->crop_border, .argument = "PX",
         .maximum = 1024,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "pairs: pixels at each edge that PSNR and SSIM leave out"},
        {.name = "y-channel", .kind = OPTION_FLAG, .value = &o->y_channel,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "pairs: PSNR and SSIM of luma (ITU-R 601) alone"},

        {.name = "log-interval", .kind = OPTION_INTEGER, .value = &o->log_interval, .argument = "N",
         .minimum = 1,
         .maximum = 1e9, .alias = "print-freq", .group = "Run",
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_LEARN,
         .help = "steps between two lines of the log"},
        {.name = "profile", .kind = OPTION_INTEGER, .value = &o->profile, .argument = "N", .maximum = 1e6,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_TRAIN,
         .help = "measure N steps in the middle of training layer by layer, into PROFILE.txt; 0: none"},
        {.name = "resume", .kind = OPTION_TEXT, .value = &o->resume, .argument = "PATH",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LEARN,
         .help = "go on from a checkpoint (file or output folder); auto: from the output's own if it has "
                 "one"},
        {.name = "checkpoint-interval", .kind = OPTION_INTEGER, .value = &o->checkpoint_interval,
         .argument = "N",
         .maximum = 1e9,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_LEARN,
         .help = "steps between two checkpoints within an epoch; 0: at its end, and when stopped"},
        {.name = "checkpoint-hist", .kind = OPTION_INTEGER, .value = &o->checkpoint_hist, .argument = "N",
         .maximum = KEPT_EPOCHS_MAX,
         .marks = OPTION_FREE, .uses = USE_LEARN,
         .help = "keep the weights of the N best epochs too, as checkpoint-EPOCH.safetensors"},
        {.name = "tensorboard", .kind = OPTION_FLAG, .value = &o->tensorboard,
         .marks = OPTION_FREE, .uses = USE_LEARN,
         .help = "write event files for TensorBoard"},
        {.name = "html", .kind = OPTION_FLAG, .value = &o->html,
         .marks = OPTION_FREE, .uses = USE_LEARN,
         .help = "write report.html while the run goes on, and at its end"},
        {.name = "verdict", .kind = OPTION_FLAG, .value = &o->verdict,
         .marks = OPTION_FREE, .uses = USE_LEARN,
         .help = "say at the end what bounded the speed, and what to do about it"},

        PROGRAM_OPTIONS(&o->program),
        {0},
    };
    _Static_assert(sizeof table / sizeof *table + MODEL_OPTIONS_MAX + PART_ROWS_MAX <= TRAIN_OPTION_ROWS,
                   "TRAIN_OPTION_ROWS is too small");
    Option *row = rows;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const bool part = table[i].name && !*table[i].name;
        size_t count = part ? parts[table[i].marks](o, row) : 1;
        if (!part)
            *row = table[i];
        for (; count > 0; count--, row++)
            row->uses = row->uses ? row->uses : table[i].uses;
    }
    _Static_assert(offsetof(TrainOptions, given) <= TRAIN_OPTIONS_BYTES, "TRAIN_OPTIONS_BYTES is too small");
    for (row = rows; row->name; row++) {
        row->given = &o->given[place_of(o, row->value)];
        row->typed = &o->typed[place_of(o, row->value)];
    }
}
/* clang-format on */

bool train_given(const TrainOptions *options, const void *field)
{
    return options->given[place_of(options, field)];
}

bool train_typed(const TrainOptions *options, const void *field)
{
    return options->typed[place_of(options, field)];
}

const char *train_option_name(const TrainOptions *options, const void *field)
{
    TrainOptions copy;
    Option rows[TRAIN_OPTION_ROWS];
    const Option *row = rows;
    train_options_rows(&copy, rows);
    while (place_of(&copy, row->value) != place_of(options, field))
        row++;
    return row->name;
}

const char *train_device_name(int device)
{
    return device == OPTION_AUTO ? "auto" : device_choices[device];
}

const char *train_amp_name(int amp)
{
    return amp == OPTION_AUTO ? "auto" : amp_choices[amp];
}

const char *predict_format_name(int format)
{
    return format == OPTION_AUTO ? "auto" : predict_choices[format];
}

OptionTable train_options_table(const Option *rows)
{
    return (OptionTable){.program = "ftrain",
                         .summary = summary,
                         .usage = usage,
                         .options = rows,
                         .foreign = train_foreign,
                         .answers = train_answers,
                         .examples = examples,
                         .config = "config",
                         .preset = "recipe",
                         .arguments_max = 2};
}

/* Reads a plain number at *text and advances *text past it. Returns false if there is none. */
static bool read_number(const char **text, double *value_ret)
{
    char *stop = NULL;
    *value_ret = strtod(*text, &stop);
    const bool read = stop != *text && isfinite(*value_ret);
    *text = stop;
    return read;
}

FshStatus train_options_numbers(const char *name, const char *text, double low, double high, double *numbers,
                                size_t most, size_t *count_ret, FshError *error)
{
    const char *at = text;
    for (*count_ret = 0; *count_ret < most;) {
        double number = 0;
        if (!read_number(&at, &number) || number < low || number > high)
            break;
        numbers[(*count_ret)++] = number;
        if (*at == '\0')
            return FSH_OK;
        if (*at != ',' && *at != ':')
            break;
        at++;
    }
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "--%s: '%s' is not a list of at most %zu numbers from %g to %g", name, text, most,
                         low, high);
}

FshStatus train_options_range(const char *name, const char *text, double low, double high,
                              double *minimum_ret, double *maximum_ret, FshError *error)
{
    double numbers[2];
    size_t count = 0;
    if (train_options_numbers(name, text, low, high, numbers, 2, &count, NULL) || count != 2 ||
        numbers[0] > numbers[1])
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is not MIN:MAX with %g <= MIN <= MAX <= %g",
                             name, text, low, high);
    *minimum_ret = numbers[0];
    *maximum_ret = numbers[1];
    return FSH_OK;
}
