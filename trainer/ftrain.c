/* ftrain.c - the program ftrain: trains a network on a dataset that fpack made. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/options_config.h"
#include "common/program.h"
#include "formats/fshard.h"
#include "imaging/decode.h"
#include "stores/store.h"
#include "trainer/session/describe.h"
#include "trainer/inference/export_onnx.h"
#include "trainer/inference/predict_images.h"
#include "trainer/session/ranks_agree.h"
#include "trainer/plan/recipe.h"
#include "trainer/plan/train_use.h"
#include "trainer/loop/train.h"
#include "trainer/start_ranks.h"
#include "trainer/start_runs.h"
#include "trainer/study/compare.h"

/* Returns whether the text comes from --config; arguments on the command line win over it. */
static bool is_from_file(const OptionArguments *arguments, const char *text)
{
    const char *key;
    json_t *value;
    json_object_foreach(arguments->config, key, value)
    {
        if (text && json_string_value(value) == text)
            return true;
    }
    return false;
}

/* Marks the option whose value is at `value` as typed, so that args.json holds it. */
static void note_given(const OptionTable *table, const void *value)
{
    for (const Option *option = table->options; option->name; option++)
        if (option->value == value)
            *option->given = *option->typed = true;
}

static bool holds_manifest(const char *folder)
{
    char path[PATH_MAX];
    return file_join(path, sizeof path, folder, FSH_MANIFEST_NAME, NULL) == FSH_OK && file_exists(path);
}

/* Returns how many of the arguments are datasets, where the first is one: all but OUTPUT, which is the last.
 * A call that writes nothing may leave it out. */
static size_t count_sets(const TrainOptions *options, const OptionArguments *arguments, bool output_open)
{
    const unsigned use = train_use(options);
    const size_t count = arguments->count;
    if (!(use & (USE_SAMPLES | USE_EVALUATE)) || count < 2)
        return 1;
    const bool has_output =
        output_open &&
        (use == USE_TRAIN || (use == USE_DRY_RUN && !holds_manifest(arguments->items[count - 1])));
    return has_output ? count - 1 : count;
}

/* Takes SHARDS, the datasets beside it, and OUTPUT, which are given as arguments or as options, but not as
 * both. */
static FshStatus take_arguments(TrainOptions *options, const OptionTable *table,
                                const OptionArguments *arguments, FshError *error)
{
    const bool shards_open = !options->shards || is_from_file(arguments, options->shards),
               output_open = !options->output || is_from_file(arguments, options->output);
    size_t next = 0, sets = 0;
    FshStatus status = FSH_OK;
    if (shards_open && arguments->count) {
        sets = count_sets(options, arguments, output_open);
        options->shards = arguments->items[next++];
        note_given(table, &options->shards);
        if (options->sets.more.count && !train_typed(options, &options->sets.more))
            options->sets.more.count = 0; /* a file's, beside its own SHARDS */
    }
    for (; next < sets && !status; next++)
        status = options_store(table, "more-shards", arguments->items[next], error);
    if (sets > 1)
        note_given(table, &options->sets.more);
    if (status)
        return status;
    if (output_open && next < arguments->count) {
        options->output = arguments->items[next++];
        note_given(table, &options->output);
    }
    if (next < arguments->count)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "'%s': one argument too many: SHARDS and OUTPUT are known already",
                             arguments->items[next]);
    return FSH_OK;
}

static bool uses_weights(const TrainOptions *options)
{
    return (train_use(options) & (USE_EVALUATE | USE_PREDICTS | USE_ONNX)) != 0;
}

/* Refuses two of the options that each do one thing and end the program: the second would be ignored. */
static FshStatus check_uses(const TrainOptions *options, FshError *error)
{
    const char *name = train_use_name(options);
    const struct {
        bool wanted;
        const char *name;
    } others[] = {{options->program.dry_run, "--dry-run"},
                  {options->data.bench_loader, "--bench-loader"},
                  {options->inference.evaluate && !(train_use(options) & USE_PREDICTS), "--evaluate"},
                  {options->inference.export_onnx != NULL, "--export-onnx"},
                  {options->list_models, "--list-models"},
                  {options->list_recipes, "--list-recipes"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].wanted && strcmp(others[i].name, name) != 0)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: not together with %s; give one of them",
                                 others[i].name, name);
    return FSH_OK;
}

/* Refuses a call that leaves out what it needs, or has an output that it would not write. */
static FshStatus check_complete(const TrainOptions *options, FshError *error)
{
    const unsigned use = train_use(options);
    const char *name = train_use_name(options);
    if (!options->shards && !options->inference.files_from && options->inference.predict)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "'%s' is taken for the folder of --predict, and IMAGES (or SHARDS) are missing: "
                             "--predict DIR IMAGES",
                             options->inference.predict);
    if (use == USE_ONNX && train_typed(options, &options->shards))
        return fsh_error_set(error, FSH_ERR_USAGE, "'%s': %s reads no images; leave SHARDS out",
                             options->shards, name);
    if (use != USE_ONNX && !options->shards && !(options->inference.files_from && (use & USE_PREDICTS)))
        return fsh_error_set(error, FSH_ERR_USAGE, "SHARDS is missing: ftrain SHARDS OUTPUT");
    if (uses_weights(options) && !options->weights)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s needs --weights FILE", name);
    if (!(use & USE_LEARN) && train_typed(options, &options->output))
        return fsh_error_set(error, FSH_ERR_USAGE, "'%s': %s trains nothing; leave OUTPUT out",
                             options->output, name);
    if (use == USE_TRAIN && !options->output)
        return fsh_error_set(error, FSH_ERR_USAGE, "OUTPUT is missing: ftrain SHARDS OUTPUT");
    return FSH_OK;
}

/* Returns whether any of the sets lies on a server. */
static bool has_address(const TrainOptions *options)
{
    bool found = store_is_address(options->shards);
    for (size_t i = 0; i < options->sets.more.count; i++)
        found = found || store_is_address(options->sets.more.items[i]);
    return found;
}

/* Refuses options of datasets on servers where all sets are folders. */
static FshStatus check_store(const TrainOptions *options, FshError *error)
{
    const StoreOptions *store = &options->data.store;
    const void *const fields[] = {&store->cache_dir, &store->cache_bytes, &store->retries,
                                  &store->timeout_seconds};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (train_typed(options, fields[i]) && !has_address(options))
            return store_options_check(store, false, error);
    return FSH_OK;
}

static FshStatus check_start(const TrainOptions *options, FshError *error)
{
    if (options->checkpoint.resume && options->weights && strcmp(options->checkpoint.resume, "auto") != 0)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--resume: --weights begins a new run; a run that goes on has its weights in its checkpoint");
    return FSH_OK;
}

/* Extends the message about a file that is no dataset: it is no image either, if images were allowed. */
static FshStatus tell_no_image(const TrainOptions *options, FshStatus status, FshError *error)
{
    char message[sizeof error->message];
    if (status != FSH_ERR_UNSUPPORTED || !(train_use(options) & USE_PREDICTS) ||
        !strstr(error->message, "is neither a shard nor a tar"))
        return status;
    memcpy(message, error->message, sizeof message);
    return fsh_error_set(error, status, "%s, nor an image", message);
}

static FshStatus predict_or_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    bool images = false;
    TrainOptions own = *options;
    FshStatus status = predict_images_wanted(options, &images, error);
    if (!status && (train_use(options) & USE_PREDICTS))
        status = train_use_take(&own, images ? USE_IMAGES : USE_PREDICT, error);
    if (status)
        return status;
    if (images)
        return predict_images(&own, partial_ret, error);
    return tell_no_image(&own, train_evaluate(&own, partial_ret, error), error);
}

/* Describes the run on the first rank; the others have nothing to add, and are not met. */
static FshStatus describe_as_rank(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    if (place->rank == 0)
        return describe_run(options, error);
    if (rank_place_speaks(place))
        (void)fprintf(stderr, "ftrain: rank %llu: rank 0 says what the run would do (--dry-run)\n",
                      (unsigned long long)place->rank);
    return FSH_OK;
}

static FshStatus do_what_is_asked(const TrainOptions *options, const RankPlace *place, bool *partial_ret,
                                  FshError *error)
{
    if (options->data.bench_loader)
        return train_bench_loader(options, partial_ret, error);
    if (options->inference.export_onnx) /* one rank writes the file */
        return place->rank == 0 ? export_onnx(options, error) : FSH_OK;
    if (uses_weights(options))
        return predict_or_evaluate(options, partial_ret, error);
    if (options->program.dry_run)
        return describe_as_rank(options, place, error);
    return train_run(options, partial_ret, error);
}

/* Runs as a rank. Rank 0 prints for all; the others print only warnings and failures of their own, with their
 * rank. */
static FshStatus run_as_rank(const TrainOptions *options, const RankPlace *place, bool *partial_ret,
                             FshError *error)
{
    if (place->rank > 0 && !freopen("/dev/null", "w", stdout))
        return fsh_error_system(error, errno, "/dev/null: cannot be opened");
    return do_what_is_asked(options, place, partial_ret, error);
}

/* Ends this rank with its failure. The message names the rank, unless the option table does; nothing is
 * printed if another rank reports the same failure. Wrong options are reported by every rank: they have not
 * met yet, and one rank alone may have them. */
static FshStatus tell_as_rank(FshStatus status, const OptionTable *table, const RankPlace *place,
                              FshError *error)
{
    if (status && place->world_size > 1 && strcmp(error->message, ranks_told_elsewhere) == 0)
        (void)!freopen("/dev/null", "w", stderr);
    else if (status && place->world_size > 1 && !table->speaker) /* a rank that --gpus has started */
        (void)fsh_error_prepend(error, "rank %llu", (unsigned long long)place->rank);
    return status;
}

/* The datasets that lie on servers, as they are kept here: SHARDS, then those beside it. */
typedef struct FetchedSets {
    StoreFolder *folders;
    const char **paths, **names; /* of all sets, fetched or not */
    size_t count;
} FetchedSets;

/* Fetches the sets that are on servers. Processes that are started later hold them too. */
static FshStatus fetch_sets(TrainOptions *options, const OptionTable *table, const RankPlace *place,
                            FetchedSets *fetched, FshError *error)
{
    const size_t count = 1 + options->sets.more.count;
    StoreOptions store = options->data.store;
    FshStatus status = FSH_OK;
    if (!has_address(options))
        return FSH_OK;
    fetched->folders = calloc(count, sizeof *fetched->folders);
    fetched->paths = calloc(count, sizeof *fetched->paths);
    fetched->names = calloc(count, sizeof *fetched->names);
    if (!fetched->folders || !fetched->paths || !fetched->names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu datasets", count);
    store.speaker = table->speaker ? table->speaker : table->program;
    store.quiet = options->program.quiet || place->local_rank > 0;
    for (; fetched->count < count && !status; fetched->count++) {
        const size_t i = fetched->count;
        const char *path = i ? options->sets.more.items[i - 1] : options->shards;
        fetched->folders[i] = (StoreFolder)STORE_FOLDER_NONE;
        fetched->paths[i] = fetched->names[i] = path;
        if (!store_is_address(path))
            continue;
        status = store_open(&fetched->folders[i], path, &store, error);
        fetched->paths[i] = fetched->folders[i].path;
    }
    options->fetched = fetched->paths;
    options->fetched_names = fetched->names;
    return status;
}

static void close_fetched(FetchedSets *fetched)
{
    for (size_t i = 0; i < fetched->count; i++)
        store_close(&fetched->folders[i]);
    free(fetched->folders);
    free((void *)fetched->paths);
    free((void *)fetched->names);
    *fetched = (FetchedSets){0};
}

static FshStatus check_and_run(const ProgramContext *context, RankPlace *place, bool *partial_ret,
                               FshError *error)
{
    TrainOptions *options = context->settings;
    StartedRank started = {.reports = false};
    Sweep sweep = {0};
    FetchedSets fetched = {0};
    bool is_run = true; /* one run, and not a sweep of them */
    FshStatus status = rank_place_from_environment(place, &options->ranks, error);
    start_ranks_take_wanted(options, place);
    if (!status)
        status = check_start(options, error);
    if (!status && sweep_is_wanted(options))
        status = start_runs(options, place, &sweep, &is_run, partial_ret, error);
    if (!is_run)
        goto done;
    if (!status)
        status = start_ranks_check(options, place, error);
    if (!status)
        status = fetch_sets(options, context->table, place, &fetched, error);
    if (!status && options->ranks.gpus)
        status = start_ranks(options, place, &started, error);
    if (!status)
        status = start_ranks_share(options, place, error);
    if (!status) {
        interrupt_install_requeue();
        status = run_as_rank(options, place, partial_ret, error);
    }
    status = recipe_explain(options, status, error);
    start_ranks_report(&started, status ? error->status : FSH_OK);
done:
    sweep_close(&sweep);
    close_fetched(&fetched);
    return tell_as_rank(status, context->table, place, error);
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    TrainOptions *options = context->settings;
    RankPlace place = {0};
    FshStatus status = FSH_OK;
    options->preset = context->arguments->preset;
    if (!options->study.compare) /* whose arguments are runs */
        status = take_arguments(options, context->table, context->arguments, error);
    if (!status && options->print_config) {
        options_config_print(context->table, OPTION_NOT_IN_FILE, options->preset, stdout);
        return FSH_OK;
    }
    if (!status)
        status = check_uses(options, error);
    if (!status && !(train_use(options) & (USE_COMPARE | USE_LIST)))
        status = check_complete(options, error);
    if (!status)
        status = check_store(options, error);
    if (!status)
        status = train_use_take(options, train_use(options), error);
    if (status)
        return status;
    if (options->study.compare)
        return compare_runs(options, context->arguments->items, context->arguments->count, error);
    if (options->list_recipes)
        return recipe_list(options->program.json, stdout, error);
    if (options->list_models) {
        FetchedSets fetched = {0};
        status = fetch_sets(options, context->table, &place, &fetched, error);
        status = status ? status : describe_models(options, error);
        close_fetched(&fetched);
        return status;
    }
    return check_and_run(context, &place, partial_ret, error);
}

/* Limits how long OpenMP threads spin at the end of a parallel region, unless the user has set either
 * variable. By libgomp's default they spin until the scheduler takes their core away; if anything else runs
 * on the cores (the loader's workers do), the thread that they wait for may be the one without a core: an
 * epoch of 10 s took 58 s beside a load of 10 on 2 cores. A short spin costs an idle machine nothing
 * measurable. libgomp reads the variable when it is loaded, later, with the CPU backend's plugin. */
static void limit_spinning(void)
{
    if (!getenv("OMP_WAIT_POLICY"))
        (void)setenv("GOMP_SPINCOUNT", "1000", 0);
}

/* Writes "ftrain: rank N" to text if a launcher has started several ranks. Returns false otherwise, also if
 * the launcher's environment is invalid, which is reported elsewhere. */
static bool name_speaker(char *text, size_t text_bytes)
{
    RankPlace place = {0};
    if (rank_place_from_environment(&place, NULL, NULL) || place.world_size < 2)
        return false;
    (void)snprintf(text, text_bytes, "ftrain: rank %llu", (unsigned long long)place.rank);
    return true;
}

int main(int argc, char **argv)
{
    char speaker[48];
    limit_spinning();
    TrainOptions options = train_options_default();
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&options, rows);
    OptionTable table = train_options_table(rows);
    table.find_preset = recipe_read;
    if (name_speaker(speaker, sizeof speaker))
        table.speaker = speaker;
    return program_main(argc, argv, &table, &options, image_library_versions, run);
}
