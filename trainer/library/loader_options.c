#include "trainer/library/loader_options.h"

#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"

/* Returns whether the option's value lies in the part of the options that begins there. */
static bool lies_in(const Option *row, const void *part, size_t bytes)
{
    const char *value = row->value, *begin = part;
    return value >= begin && value < begin + bytes;
}

/* Returns whether the option says which samples there are, or how they are seen, in training or in
 * evaluation. */
static bool is_of_loader(const TrainOptions *o, const Option *row, bool training)
{
    const bool parts =
        lies_in(row, &o->image, sizeof o->image) || lies_in(row, &o->views, sizeof o->views) ||
        lies_in(row, &o->mixing, sizeof o->mixing) || lies_in(row, &o->sampling, sizeof o->sampling) ||
        lies_in(row, &o->choice, sizeof o->choice) || lies_in(row, &o->data.labels, sizeof o->data.labels);
    /* How many epochs there are counts where images grow with them. */
    if (row->value == &o->training.epochs)
        return training;
    if (row->value == &o->image.crop_border || row->value == &o->image.y_channel)
        return false; /* of metrics */
    return parts && (!row->uses || (row->uses & (unsigned)(training ? USE_BENCH : USE_EVALUATE)));
}

/* Keeps a copy of a text, whose value may outlive the caller's. Returns NULL without memory. */
static const char *keep(LoaderSettings *settings, const char *text)
{
    char *copy = strdup(text);
    char **texts = realloc(settings->texts, (settings->text_count + 1) * sizeof *texts);
    if (texts)
        settings->texts = texts;
    if (!copy || !texts) {
        free(copy);
        return NULL;
    }
    return settings->texts[settings->text_count++] = copy;
}

static FshStatus store(LoaderSettings *settings, const OptionTable *table, const FshLoaderOption *given,
                       bool training, FshError *error)
{
    TrainOptions *options = &settings->options;
    const char *text = keep(settings, given->value);
    char *name = (char *)keep(settings, given->name);
    if (!text || !name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for options");
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    FshStatus status = options_store(table, name, text, error);
    if (status)
        return status;
    for (const Option *row = table->options; row->name; row++) {
        if (strcmp(row->name, name) != 0 && (!row->alias || strcmp(row->alias, name) != 0))
            continue;
        if (!is_of_loader(options, row, training))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--%s: does nothing for %s; it takes ftrain's options of images, "
                                 "augmentation, samples and labels",
                                 row->name, training ? "a loader" : "a loader of evaluation");
        *row->typed = true; /* so that plan_check refuses it where it does nothing */
    }
    return FSH_OK;
}

static FshStatus check_config(const FshLoaderConfig *config, FshError *error)
{
    enum { EDGE_MAX = 4096, WORKERS_MAX = 1024, AHEAD_MAX = 1024, BATCH_MOST = 1 << 20 };
    if (!config->shards || !config->split)
        return fsh_error_set(error, FSH_ERR_USAGE, "a loader needs a dataset and the name of a split");
    if (!config->world_size || config->rank >= config->world_size)
        return fsh_error_set(error, FSH_ERR_USAGE, "rank %llu is none of %llu ranks",
                             (unsigned long long)config->rank, (unsigned long long)config->world_size);
    if (config->batch > BATCH_MOST || config->workers > WORKERS_MAX || config->ahead > AHEAD_MAX ||
        config->size > EDGE_MAX)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "a batch has at most %d samples, a crop %d pixels; there are at most %d workers and "
            "%d batches ahead",
            BATCH_MOST, EDGE_MAX, WORKERS_MAX, AHEAD_MAX);
    if (config->seed > (uint64_t)INT64_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "seed: %llu is more than %lld",
                             (unsigned long long)config->seed, (long long)INT64_MAX);
    if (config->keep_last && config->training && config->world_size > 1)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "drop_last: the last batch of an epoch has too few samples for %llu ranks, which "
            "would get different numbers of batches; drop it",
            (unsigned long long)config->world_size);
    return FSH_OK;
}

FshStatus loader_settings_read(LoaderSettings *settings, const FshLoaderConfig *config, FshError *error)
{
    TrainOptions *options = &settings->options;
    Option rows[TRAIN_OPTION_ROWS];
    const bool training = config->training != 0;
    FshStatus status = check_config(config, error);
    if (status)
        return status;
    *options = train_options_default();
    train_options_rows(options, rows);
    const OptionTable table = train_options_table(rows);
    options->shards = keep(settings, config->shards);
    options->data.train_split = keep(settings, config->split);
    if (!options->shards || !options->data.train_split)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for options");
    options->data.bench_loader = training; /* a loader alone, without a network to train */
    options->inference.evaluate = !training;
    options->data.on_error = config->skip_bad ? TRAIN_SKIP : TRAIN_STOP;
    options->data.workers = config->workers;
    options->training.seed = (int64_t)config->seed;
    options->training.batch_size = (int64_t)config->batch;
    options->training.val_batch_size = (int64_t)config->batch;
    options->image.augment = config->augment != 0;
    options->place = (RankPlace){.rank = config->rank, .world_size = config->world_size};
    const uint64_t local = config->local_world ? config->local_world : 1;
    options->cores = cpu_jobs(0) / (int)(local < 1024 ? local : 1024);
    options->cores = options->cores < 1 ? 1 : options->cores;
    for (size_t i = 0; i < config->option_count && !status; i++)
        status = store(settings, &table, &config->options[i], training, error);
    if (!status && config->size &&
        (options->image.train_crop_size || options->image.val_crop_size || options->image.progressive))
        status = fsh_error_set(error, FSH_ERR_USAGE, "size: an option says the size of images already");
    if (!status && config->size)
        *(training ? &options->image.train_crop_size : &options->image.val_crop_size) = config->size;
    return status;
}

void loader_settings_free(LoaderSettings *settings)
{
    for (size_t i = 0; i < settings->text_count; i++)
        free(settings->texts[i]);
    free(settings->texts);
    *settings = (LoaderSettings){0};
}
