#include "tools/pack/pack_settings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/file.h"
#include "tools/job/destination.h"

const char *const settings_formats[] = {"shards", "lmdb", "tar", NULL};
const char *const settings_layouts[] = {"fshard", "basicsr", NULL};
const char *const settings_edges[] = {"short", "long", NULL};
const char *const settings_on_error[] = {"stop", "skip", NULL};

/* Refuses options that do not go together. */
static FshStatus check_usage(const Settings *settings, const PackOptions *options, FshError *error)
{
    const char *one = NULL, *other = NULL;
    if (options->field_count) {
        one = options->masks ? "--masks" : "--pairs and --fields";
        other = options->labels                           ? "--labels"
                : options->files_from                     ? "--files-from"
                : options->classes                        ? "--classes"
                : options->class_names && !options->masks ? "--class-names"
                                                          : NULL;
    } else if (options->labels && options->files_from) {
        one = "--labels";
        other = "--files-from";
    }
    if (other)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s", one,
                             options->masks
                                 ? "classes are values of pixels; leave out --labels, --files-from "
                                   "and --classes"
                             : options->field_count ? "pairs have no classes; leave out --labels, "
                                                      "--files-from, --classes and --class-names"
                                                    : "a list of --files-from has labels itself");
    if (options->pair_scale > 1 && !options->field_count)
        return fsh_error_set(error, FSH_ERR_USAGE, "--pair-scale: is of pairs; give --pairs LOW:HIGH too");
    if (options->pair_scale > 1 && options->resize.max_size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--pair-scale: --max-size makes each image smaller by its own factor; leave out "
                             "one of them");
    if (options->masks && (options->pair_scale > 1 || options->resize.max_size))
        return fsh_error_set(error, FSH_ERR_USAGE, "--masks: %s; leave out %s",
                             options->pair_scale > 1
                                 ? "an image and its mask are of one size"
                                 : "masks are stored as they are, and ftrain resizes them",
                             options->pair_scale > 1 ? "--pair-scale" : "--max-size");
    if (options->masks && !fsh_container_has(options->container, FSH_HAS_METADATA))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--masks: only --format shards and lmdb note that a field is a mask");
    if (settings->seed_given && !options->limit && !(options->val_fraction > 0))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--seed: says which samples --split and --limit choose; give one of them (the "
                             "order goes by --shuffle SEED)");
    if (settings->update && settings->append)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--update and --append: one at a time; --append adds another folder, --update "
                             "follows the one that was packed");
    if ((settings->update || settings->append) && (options->force || options->part.count))
        return fsh_error_set(
            error, FSH_ERR_USAGE, "--%s: does not go with %s", settings->update ? "update" : "append",
            options->force ? "--force, which packs anew" : "--part; one machine packs what has changed");
    if (settings->checksum && !settings->update)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--checksum: says how --update tells changed files; give --update too");
    if (settings->shard_size_given && !pack_is_cut(options))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--shard-size: a split is one LMDB, whatever its size; leave it out, or use "
                             "--format shards or tar");
    return FSH_OK;
}

/* Refuses a destination in a side's folder: it would be taken for images of the side. */
static FshStatus check_outside(const PackOptions *options, size_t field, FshError *error)
{
    char side[PATH_MAX];
    FshError failure = {0};
    FshStatus status = file_join(side, sizeof side, options->root, options->side_folders[field], error);
    if (!status && destination_check_outside(side, options->destination, &failure))
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: lies in the folder of '%s'; choose one outside",
                               options->destination, options->field_names[field]);
    return status;
}

/* Fills fresize's recipe, with its defaults where fpack has no option. */
static FshStatus take_recipe(const Settings *settings, ShrinkRecipe *recipe, FshError *error)
{
    *recipe = (ShrinkRecipe){.max_size = (uint32_t)settings->max_size,
                             .long_edge = settings->edge == SETTINGS_LONG,
                             .filter = (ResampleFilter)settings->filter,
                             .format = settings->store == PACK_STORE_YUV420 ? IMAGE_Y4M : IMAGE_UNKNOWN,
                             .quality = (int)settings->quality,
                             .subsampling = IMAGE_SUBSAMPLING_420,
                             .exact = settings->exact,
                             .max_pixels = (uint64_t)settings->max_pixels};
    return settings->sizing && !settings->max_size
               ? fsh_error_set(error, FSH_ERR_USAGE,
                               "--edge, --filter and --exact say how images are made smaller; give "
                               "--max-size too")
               : FSH_OK;
}

/* Fills how samples are stored; refuses an option that would do nothing. */
static FshStatus take_store(const Settings *settings, PackOptions *options, FshError *error)
{
    options->store = (PackStore)settings->store;
    const bool automatic = options->store == PACK_STORE_AUTO;
    const bool compresses = options->store == PACK_STORE_ZSTD || settings->dictionary;
    const char *message = NULL;
    if (automatic && !settings->raw_under && !settings->budget)
        message = "--store auto: give --raw-under or --budget, or both: what shall be stored raw";
    else if (!automatic && (settings->raw_under || settings->budget))
        message = "--raw-under and --budget choose between raw and copy: give --store auto too";
    else if (settings->quality_given && !settings->max_size && options->store != PACK_STORE_JPEG)
        message = "--quality: nothing is encoded; give --max-size too, or --store jpeg";
    else if (settings->quality_given && options->store == PACK_STORE_YUV420)
        message = "--quality: --store yuv420 keeps planes, also of smaller images, and encodes nothing";
    else if (settings->dictionary &&
             (automatic || options->store == PACK_STORE_RAW || options->store == PACK_STORE_YUV420))
        message =
            "--dictionary: raw pixels and planes are mapped as they are; use --store zstd, copy or jpeg";
    else if (!fsh_container_has(options->container, FSH_HAS_RAW) &&
             ((options->store != PACK_STORE_COPY && options->store != PACK_STORE_JPEG) || compresses))
        message = "--layout basicsr: holds image files: --store copy or jpeg, no --dictionary; "
                  "pixels go into --format lmdb, with --store raw or zstd";
    else if (!fsh_container_has(options->container, FSH_HAS_COMPRESSION) && compresses)
        message =
            "--format tar: holds files as others read them, not compressed: no --store zstd, no --dictionary";
    else if (settings->dictionary_size_given && !settings->dictionary)
        message = "--dictionary-size: give --dictionary too";
    else if (settings->level_given && !compresses)
        message = "--level: nothing is compressed; give --store zstd or --dictionary too";
    return message ? fsh_error_set(error, FSH_ERR_USAGE, "%s", message) : FSH_OK;
}

/* Sets *container by --format, or by --layout where that names a container. */
static FshStatus take_container(const Settings *settings, FshContainer *container, FshError *error)
{
    (void)fsh_container_from_name(settings_formats[settings->format], container);
    if (!fsh_container_from_name(settings_layouts[settings->layout], container))
        return FSH_OK;
    if (settings->format_given && settings->format != SETTINGS_LMDB)
        return fsh_error_set(error, FSH_ERR_USAGE, "--layout basicsr: is of LMDBs; leave out --format %s",
                             settings_formats[settings->format]);
    return FSH_OK;
}

FshStatus settings_take(const ProgramContext *context, PackOptions *options, FshError *error)
{
    const Settings *settings = context->settings;
    *options = (PackOptions){
        .source = settings->source,
        .destination = settings->destination,
        .files_from = settings->files_from,
        .labels = settings->labels,
        .classes = settings->classes,
        .class_names = settings->class_names,
        .dedupe = settings->dedupe,
        .pair_scale = (uint32_t)settings->pair_scale,
        .level = (int)settings->level,
        .raw_under = settings->raw_under,
        .budget_bytes = settings->budget,
        .dictionary_bytes = settings->dictionary ? settings->dictionary_size : 0,
        .shard_bytes = settings->shard_size,
        .val_fraction = settings->split,
        .seed = (uint64_t)settings->seed,
        .shuffle = settings->shuffle != 0,
        .shuffle_seed = (uint64_t)settings->shuffle,
        .limit = (uint64_t)settings->limit,
        .check = settings->check,
        .skip_unread = settings->on_error == SETTINGS_SKIP,
        .force = settings->force,
        .max_pixels = (uint64_t)settings->max_pixels,
        .jobs = cpu_jobs(settings->program.jobs),
        .quiet = settings->program.quiet,
    };
    if (settings->split >= 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--split: %g leaves nothing to train on: a tenth is 0.1, or 10%%",
                             settings->split);
    size_t used = 0; /* arguments that are sides of pairs */
    FshStatus status = settings_take_pairs(context, options, &used, error);
    const OptionArguments paths = {.items = context->arguments->items + used,
                                   .count = context->arguments->count - used};
    const ProgramContext rest = {.table = context->table, .settings = context->settings, .arguments = &paths};
    if (!status)
        status = program_take_paths(&rest, &options->source, &options->destination, error);
    for (size_t field = 0; field < options->field_count && options->root[0] && !status; field++)
        status = check_outside(options, field, error);
    if (!status && settings->part)
        status = part_parse("--part", settings->part, &options->part, error);
    if (!status)
        status = take_recipe(settings, &options->resize, error);
    if (!status)
        status = take_container(settings, &options->container, error);
    if (!status)
        status = take_store(settings, options, error);
    return status ? status : check_usage(settings, options, error);
}

/* ---- --merge ---- */

static size_t option_value_bytes(OptionKind kind)
{
    switch (kind) {
    case OPTION_FLAG:
        return sizeof(bool);
    case OPTION_INTEGER:
        return sizeof(int64_t);
    case OPTION_SIZE:
        return sizeof(uint64_t);
    case OPTION_REAL:
        return sizeof(double);
    case OPTION_LIST:
        return sizeof(OptionList);
    case OPTION_CHOICE:
        return sizeof(int);
    case OPTION_TEXT:
        break;
    }
    return sizeof(const char *);
}

/* Refuses options that say what goes into a dataset, where one is there already. mode: "merge", and its own
 * options. */
static FshStatus refuse_others(const ProgramContext *context, const char *mode, const char *const *allowed,
                               const char *reason, FshError *error)
{
    const Settings *settings = context->settings;
    for (const Option *option = context->table->options; option->name; option++) {
        bool known = false;
        for (size_t i = 0; allowed[i]; i++)
            known = known || strcmp(option->name, allowed[i]) == 0;
        const size_t offset = (size_t)((const char *)option->value - (const char *)settings);
        if (!known && memcmp(option->value, (const char *)settings->defaults + offset,
                             option_value_bytes(option->kind)) != 0)
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s; it does not go with --%s", option->name,
                                 reason, mode);
    }
    return FSH_OK;
}

FshStatus settings_take_merge(const ProgramContext *context, FshError *error)
{
    static const char *const allowed[] = {"merge",     "force",         "dst",           "jobs",
                                          "dry-run",   "quiet",         "verbose",       "json",
                                          "cache-dir", "fetch-retries", "fetch-timeout", NULL};
    return refuse_others(context, "merge", allowed, "was decided when the parts were packed", error);
}

FshStatus settings_take_repair(const ProgramContext *context, FshError *error)
{
    static const char *const allowed[] = {"repair-manifest", "dst",     "jobs", "dry-run",
                                          "quiet",           "verbose", "json", NULL};
    return refuse_others(context, "repair-manifest", allowed, "was decided when the dataset was packed",
                         error);
}
