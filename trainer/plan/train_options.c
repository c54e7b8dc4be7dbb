#include "trainer/plan/train_options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/plan/recipe.h"
#include "trainer/plan/train_hints.h"

static const char summary[] = "Train a network on a dataset that fpack made, classes, pairs of images, or "
                              "images and masks, or evaluate "
                              "one. Every default is meant to work: the size of the images, the number of "
                              "classes and how to normalise them come from the dataset.";

static const char usage[] = "[OPTIONS] SHARDS... [OUTPUT]";

static const char examples[] =
    "  ftrain shards/ out/                                   resnet18, defaults for all else\n"
    "  ftrain --model resnet9 --amp bf16 --epochs 10 cifar10/ out/\n"
    "  ftrain --gpus all --model resnet50 shards/ out/       on every GPU of this machine\n"
    "  ftrain --model unet pairs/ out/                       blurry and sharp: PSNR, SSIM\n"
    "  ftrain masks/ out/                                    a class for each pixel: mean IoU\n"
    "  ftrain --dry-run shards/                              the network, its memory, the steps, the time\n"
    "  ftrain --set-weights 1,0.5 shards/ more/ out/         two datasets, half of the second in an epoch\n"
    "  ftrain --resume auto shards/ out/                     go on, or begin\n"
    "  ftrain --evaluate --weights out/model_best.safetensors shards/\n"
    "  ftrain --weights out/model_best.safetensors --predict classes/ photos/    any images, unpacked\n"
    "  ftrain --weights out/model_best.safetensors --predict restored/ pairs/\n"
    "  ftrain --recipe rsb-a3 shards/ out/                   as others have trained; --list-recipes\n"
    "  ftrain --print-config --model resnet50 > run.toml; ftrain --config run.toml shards/ out/\n"
    "  ftrain --sweep lr=0.1,0.2,0.4 --seeds 3 shards/ out/  nine runs, compared\n"
    "  ftrain --compare --output compare.html out/ out2/     curves and options of several runs\n"
    "  ftrain --list-models\n";

TrainOptions train_options_default(void)
{
    return (TrainOptions){
        .data = data_options_default(),
        .inference = inference_options_default(),
        .compute = compute_options_default(),
        .ranks = rank_options_default(),
        .training = training_options_default(),
        .update = update_options_default(),
        .muon = muon_options_default(),
        .schedule = schedule_options_default(),
        .image = image_options_default(),
        .views = augmentation_default(),
        .mixing = mixing_default(),
        .sampling = sampling_default(),
        .report = report_options_default(),
        .checkpoint = checkpoint_options_default(),
    };
}

/* Returns the place of the value in the struct of options, in bytes. */
static size_t place_of(const TrainOptions *options, const void *value)
{
    return (size_t)((const char *)value - (const char *)options);
}

/* Copies rows and returns their number. */
static size_t add(Option *rows, const Option *own, size_t count)
{
    memcpy(rows, own, count * sizeof *own);
    return count;
}

static const char *suggest_recipe(size_t index)
{
    return recipe_files[index].name;
}

static const char *suggest_model(size_t index)
{
    const Model *model = model_at(index);
    return model ? model->name : NULL;
}

/* Each row has two lines: the option, and its help. */
/* clang-format off */
/* Writes the rows of what a run is of. */
static size_t start_rows(TrainOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "shards", .kind = OPTION_TEXT, .value = &o->shards, .argument = "DIR", .alias = "data-dir",
         .group = "Data",
         .marks = OPTION_FREE, .uses = USE_ANY | USE_LIST,
         .help = "the dataset, if it is not the first argument"},
        {.name = "output", .kind = OPTION_TEXT, .value = &o->output, .argument = "DIR", .alias = "output-dir",
         .marks = OPTION_FREE, .uses = USE_LEARN | USE_COMPARE,
         .help = "where weights, tables and log go, if it is not the second argument"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &o->force,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LEARN | USE_PREDICTS | USE_COMPARE | USE_ONNX,
         .help = "use an output folder that is not empty, and replace an earlier run's files in it"},
        {.name = "recipe", .kind = OPTION_TEXT, .value = &o->recipe, .argument = "NAME",
         .group = "Recipes and files of options",
         .suggest = suggest_recipe, .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_ANY,
         .help = "values for options as others have trained, by name (see --list-recipes) or from a file; "
                 "--config and the command line win"},
        {.name = "list-recipes", .kind = OPTION_FLAG, .value = &o->list_recipes,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LIST,
         .help = "list the recipes with what they are and where they come from"},
        {.name = "config", .kind = OPTION_TEXT, .value = &o->config, .argument = "FILE",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_ANY | USE_ONNX,
         .help = "values for options from a TOML or JSON file, args.json of a run too; the command line "
                 "wins"},
        {.name = "print-config", .kind = OPTION_FLAG, .value = &o->print_config,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE,
         .help = "print all options as they are in force, as such a file, and leave"},
    };
    return add(rows, own, sizeof own / sizeof *own);
}

/* Writes the rows of the network, and one for each option of the networks' own. */
static size_t network_rows(TrainOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "model", .letter = 'm', .kind = OPTION_TEXT, .value = &o->model, .argument = "NAME",
         .alias = "arch", .group = "Network", .suggest = suggest_model, .uses = USE_ANY | USE_ONNX,
         .help = "the network; see --list-models; resnet18, unet for pairs or unet_segmentation for masks, "
                 "unless given; --evaluate "
                 "takes the one that the weights name"},
        {.name = "list-models", .kind = OPTION_FLAG, .value = &o->list_models,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LIST,
         .help = "list the networks with parameters and GFLOP, for SHARDS if given"},
        {.name = "weights", .kind = OPTION_TEXT, .value = &o->weights, .argument = "FILE",
         .marks = OPTION_FREE, .uses = USE_ANY | USE_ONNX,
         .help = "start from, evaluate, export or predict with these weights (safetensors with the names of "
                 "torchvision, timm, NAFNet)"},
    };
    size_t count = add(rows, own, sizeof own / sizeof *own);
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)); i++, count++) {
        rows[count] = option->row;
        rows[count].value = &o->network.at[i];
        rows[count].uses = USE_NETWORK | USE_ONNX;
        rows[count].group = "Networks' own options";
    }
    return count;
}

static size_t program_rows(TrainOptions *o, Option *rows)
{
    const Option own[] = {PROGRAM_OPTIONS(&o->program)};
    return add(rows, own, sizeof own / sizeof *own);
}
/* clang-format on */

/* Gives the uses to those of `count` rows that name none. Returns the place after them. */
static Option *take(Option *rows, size_t count, unsigned uses)
{
    for (size_t i = 0; i < count; i++)
        rows[i].uses = rows[i].uses ? rows[i].uses : uses;
    return rows + count;
}

void train_options_rows(TrainOptions *o, Option *rows)
{
    Option *at = rows;
    at = take(at, start_rows(o, at), 0);
    at = take(at, set_options_rows(&o->sets, at), USE_ANY);
    at = take(at, data_options_rows(&o->data, at), USE_ANY);
    at = take(at, choice_rows(&o->choice, at), USE_ANY);
    at = take(at, network_rows(o, at), USE_ANY);
    at = take(at, inference_options_rows(&o->inference, at), USE_ANY);
    at = take(at, compute_options_rows(&o->compute, at), USE_ANY);
    at = take(at, rank_options_rows(&o->ranks, at), USE_ANY);
    at = take(at, training_options_rows(&o->training, at), USE_ANY);
    at = take(at, update_options_rows(&o->update, at), USE_LEARN);
    at = take(at, muon_options_rows(&o->muon, at), USE_LEARN);
    at = take(at, schedule_options_rows(&o->schedule, at), USE_LEARN);
    at = take(at, image_options_rows(&o->image, at), USE_ANY);
    at = take(at, augmentation_rows(&o->views, at), USE_SAMPLES);
    at = take(at, auto_augment_rows(&o->views.auto_augment, at), USE_SAMPLES);
    at = take(at, random_erasing_rows(&o->views.erasing, at), USE_SAMPLES);
    at = take(at, mixing_rows(&o->mixing, at), USE_SAMPLES);
    at = take(at, sampling_rows(&o->sampling, at), USE_SAMPLES);
    at = take(at, report_options_rows(&o->report, at), USE_LEARN);
    at = take(at, checkpoint_options_rows(&o->checkpoint, at), USE_LEARN);
    at = take(at, study_options_rows(&o->study, at), 0);
    at = take(at, program_rows(o, at), 0);
    *at = (Option){0};
    for (at = rows; at->name; at++) {
        at->given = &o->given[place_of(o, at->value)];
        at->typed = &o->typed[place_of(o, at->value)];
    }
}

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

TrainingDataSource train_options_source(const TrainOptions *options, FshKind kind)
{
    return (TrainingDataSource){.path = options->fetched ? options->fetched[0] : options->shards,
                                .more_paths =
                                    options->fetched ? options->fetched + 1 : options->sets.more.items,
                                .more_count = options->sets.more.count,
                                .names = options->fetched_names,
                                .kind = kind,
                                .train_split = options->data.train_split,
                                .evaluation_split = options->data.val_split,
                                .choice = &options->choice,
                                .labels = &options->data.labels,
                                .seed = (uint64_t)options->training.seed};
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
                         .arguments_max = SIZE_MAX}; /* of --compare; main counts those of others */
}

/* Reads a plain number, or a percentage of a share, at *text and advances *text past it. Returns false if
 * there is none. */
static bool read_number(const char **text, bool share, double *value_ret)
{
    const size_t bytes = strcspn(*text, ",:");
    char percentage[64], *stop = NULL;
    if (share && bytes && bytes < sizeof percentage && (*text)[bytes - 1] == '%') {
        (void)snprintf(percentage, sizeof percentage, "%.*s", (int)bytes, *text);
        *text += bytes;
        return options_parse_percent(percentage, value_ret);
    }
    *value_ret = strtod(*text, &stop);
    const bool read = stop != *text && isfinite(*value_ret);
    *text = stop;
    return read;
}

FshStatus train_options_numbers(const char *name, const char *text, double low, double high, double *numbers,
                                size_t most, size_t *count_ret, FshError *error)
{
    const char *at = text;
    const bool share = low >= 0 && high <= 1;
    for (*count_ret = 0; *count_ret < most;) {
        double number = 0;
        if (!read_number(&at, share, &number) || number < low || number > high)
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
