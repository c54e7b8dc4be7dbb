#include "trainer/study/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/deciding_options.h"
#include "trainer/plan/recipe.h"
#include "trainer/report/run_record.h"
#include "trainer/study/compare.h"
#include "trainer/study/study_run.h"

bool sweep_is_wanted(const TrainOptions *options)
{
    return options->study.sweep.count > 0 || options->study.seeds > 0;
}

/* ---- axes ---- */

static const Option *find_option(const Option *rows, const char *name)
{
    for (const Option *row = rows; row->name; row++) {
        const char *a = row->name, *b = name;
        while (*a && *b && *a == (*b == '_' ? '-' : *b)) {
            a++;
            b++;
        }
        if (!*a && !*b)
            return row;
    }
    return NULL;
}

/* Checks that a sweep may change the option. */
static FshStatus check_option(const Sweep *sweep, const Option *option, const char *name, FshError *error)
{
    if (!option)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--sweep: there is no option '%s'; its own name is wanted: lr=0.1,0.2", name);
    if ((option->marks & OPTION_NOT_IN_FILE) || strcmp(option->name, "output") == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: --%s is the same for all runs", option->name);
    if (strcmp(option->name, "gpus") == 0)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--sweep: --gpus says how many runs go on at a time; each has one GPU");
    if (*option->typed)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: --sweep gives its values", option->name);
    for (size_t a = 0; a < sweep->axis_count; a++)
        if (strcmp(sweep->axes[a].option, option->name) == 0)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--sweep: %s is there twice; give all its values at once", option->name);
    return FSH_OK;
}

/* Splits "0.1,0.2" in place. */
static FshStatus split_values(SweepAxis *axis, char *text, FshError *error)
{
    size_t most = 1;
    for (const char *at = text; *at; at++)
        most += *at == ',';
    axis->count = 0;
    axis->values = calloc(most, sizeof *axis->values);
    if (!axis->values)
        return fsh_error_set(error, FSH_ERR_MEMORY, "--sweep: out of memory");
    for (char *rest = text, *value = strsep(&rest, ","); value; value = strsep(&rest, ",")) {
        if (!*value)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--sweep: %s has an empty value; values are separated by commas",
                                 axis->option);
        axis->values[axis->count++] = value;
    }
    return FSH_OK;
}

static FshStatus check_once(const SweepAxis *axis, FshError *error)
{
    for (size_t i = 0; i < axis->count; i++)
        for (size_t j = i + 1; j < axis->count; j++)
            if (strcmp(axis->values[i], axis->values[j]) == 0)
                return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: %s is to be %s twice", axis->option,
                                     axis->values[i]);
    return FSH_OK;
}

/* Checks each value by storing it. */
static FshStatus check_values(const SweepAxis *axis, const TrainOptions *options, FshError *error)
{
    TrainOptions copy = *options;
    Option rows[TRAIN_OPTION_ROWS];
    FshStatus status = FSH_OK;
    train_options_rows(&copy, rows);
    const OptionTable table = train_options_table(rows);
    for (size_t i = 0; i < axis->count && !status; i++)
        status = options_store(&table, axis->option, axis->values[i], error);
    return status ? fsh_error_prepend(error, "--sweep") : FSH_OK;
}

/* Adds the axis of "lr=0.1,0.2". */
static FshStatus add_axis(Sweep *sweep, const TrainOptions *options, const char *text, FshError *error)
{
    TrainOptions copy = *options;
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&copy, rows);
    if (sweep->axis_count == SWEEP_AXES_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: %d options at most", SWEEP_AXES_MAX);
    SweepAxis *axis = &sweep->axes[sweep->axis_count];
    axis->text = text_copy(text, strlen(text));
    if (!axis->text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "--sweep: out of memory");
    char *equals = strchr(axis->text, '=');
    if (!equals)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: '%s' is not NAME=VALUE,VALUE,...", text);
    *equals = '\0';
    const char *name = strncmp(axis->text, "--", 2) == 0 ? axis->text + 2 : axis->text;
    const Option *option = find_option(rows, name);
    FshStatus status = check_option(sweep, option, name, error);
    if (status)
        return status;
    axis->option = option->name;
    sweep->axis_count++;
    status = split_values(axis, equals + 1, error);
    if (!status)
        status = check_once(axis, error);
    return status ? status : check_values(axis, options, error);
}

/* ---- runs ---- */

/* Appends ",lr=0.1" to the name, with "_" for what a folder's name would not bear. */
static size_t extend_name(char *name, size_t length, const char *option, const char *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:+-%";
    const size_t before = length;
    length += (size_t)snprintf(name + length, NAME_MAX + 1 - length, "%s%s=", length ? "," : "", option);
    for (; *value && length < NAME_MAX; value++)
        name[length++] = strchr(plain, *value) ? *value : '_';
    if (length >= NAME_MAX)
        return before; /* too long: told by name_run */
    name[length] = '\0';
    return length;
}

static FshStatus name_run(const Sweep *sweep, SweepRun *run, const char *output, FshError *error)
{
    enum { SUFFIX_BYTES = 8 }; /* ".log" and more */
    char number[32];
    size_t length = 0, parts = 0;
    for (size_t a = 0; a < sweep->axis_count; a++) {
        const size_t before = length;
        length = extend_name(run->name, length, sweep->axes[a].option, sweep->axes[a].values[run->places[a]]);
        parts += length > before;
    }
    if (sweep->seeds) {
        const size_t before = length;
        (void)snprintf(number, sizeof number, "%" PRId64, run->seed);
        length = extend_name(run->name, length, "seed", number);
        parts += length > before;
    }
    if (parts < sweep->axis_count + (sweep->seeds > 0) || length + SUFFIX_BYTES > NAME_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: the name of a run's folder is too long: %s...",
                             run->name);
    return file_join(run->folder, sizeof run->folder, output, run->name, error);
}

static FshStatus check_names(const Sweep *sweep, FshError *error)
{
    for (size_t i = 0; i < sweep->count; i++)
        for (size_t j = i + 1; j < sweep->count; j++)
            if (strcmp(sweep->runs[i].name, sweep->runs[j].name) == 0)
                return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: two runs would have the folder %s",
                                     sweep->runs[i].name);
    return FSH_OK;
}

static bool sweeps_seeds(const Sweep *sweep)
{
    for (size_t a = 0; a < sweep->axis_count; a++)
        if (strcmp(sweep->axes[a].option, "seed") == 0)
            return true;
    return false;
}

static FshStatus make_runs(Sweep *sweep, const TrainOptions *options, FshError *error)
{
    size_t combinations = 1;
    if (sweeps_seeds(sweep) && options->study.seeds)
        return fsh_error_set(error, FSH_ERR_USAGE, "--seeds: --sweep gives the seeds already");
    sweep->seeds = sweeps_seeds(sweep) ? 0 : options->study.seeds ? (size_t)options->study.seeds : 1;
    for (size_t a = 0; a < sweep->axis_count && combinations <= SWEEP_RUNS_MAX; a++)
        combinations *= sweep->axes[a].count;
    sweep->count = combinations * (sweep->seeds ? sweep->seeds : 1);
    if (combinations > SWEEP_RUNS_MAX || sweep->count > SWEEP_RUNS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "--sweep: more than %d runs", SWEEP_RUNS_MAX);
    sweep->runs = calloc(sweep->count, sizeof *sweep->runs);
    if (!sweep->runs)
        return fsh_error_set(error, FSH_ERR_MEMORY, "--sweep: out of memory for %zu runs", sweep->count);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < sweep->count && !status; i++) {
        const size_t seeds = sweep->seeds ? sweep->seeds : 1;
        size_t rest = i / seeds;
        SweepRun *run = &sweep->runs[i];
        run->seed = options->training.seed + (int64_t)(i % seeds);
        for (size_t a = sweep->axis_count; a-- > 0; rest /= sweep->axes[a].count)
            run->places[a] = rest % sweep->axes[a].count;
        status = name_run(sweep, run, options->output, error);
    }
    return status ? status : check_names(sweep, error);
}

/* Refuses what is for one run alone. */
static FshStatus check_uses(const TrainOptions *options, FshError *error)
{
    const struct {
        bool given;
        const char *name;
    } alone[] = {
        {options->inference.evaluate, "evaluate"},  {options->inference.predict, "predict"},
        {options->inference.export_path, "export"}, {options->data.bench_loader, "bench-loader"},
        {options->checkpoint.resume, "resume"},     {options->ranks.max_restarts > 0, "max-restarts"},
        {options->ranks.elastic, "elastic"},
    };
    const char *const what = options->study.sweep.count ? "--sweep" : "--seeds";
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i].given)
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s: not together with %s%s", alone[i].name, what,
                                 options->checkpoint.resume ? ", whose runs go on by themselves" : "");
    if (!options->output)
        return fsh_error_set(error, FSH_ERR_USAGE, "OUTPUT is missing, the folder for the folders of %s",
                             what);
    if (study_run_is_there(options->output))
        return fsh_error_set(
            error, FSH_ERR_EXISTS,
            "%s: holds a run; %s wants a folder of its own, with a folder in it for each run",
            options->output, what);
    return FSH_OK;
}

FshStatus sweep_open(Sweep *sweep, const TrainOptions *options, FshError *error)
{
    *sweep = (Sweep){0};
    FshStatus status = check_uses(options, error);
    for (size_t i = 0; i < options->study.sweep.count && !status; i++) {
        status = add_axis(sweep, options, options->study.sweep.items[i], error);
        if (!status)
            recipe_forget(options, sweep->axes[i].option);
    }
    if (!status)
        status = make_runs(sweep, options, error);
    if (status)
        sweep_close(sweep);
    return status;
}

void sweep_close(Sweep *sweep)
{
    for (size_t a = 0; a < SWEEP_AXES_MAX; a++) {
        free(sweep->axes[a].values);
        free(sweep->axes[a].text);
    }
    free(sweep->runs);
    *sweep = (Sweep){0};
}

FshStatus sweep_apply(const Sweep *sweep, const SweepRun *run, TrainOptions *options, FshError *error)
{
    Option rows[TRAIN_OPTION_ROWS];
    FshStatus status = FSH_OK;
    train_options_rows(options, rows);
    const OptionTable table = train_options_table(rows);
    options->training.seed = run->seed;
    options->output = run->folder;
    for (size_t a = 0; a < sweep->axis_count && !status; a++)
        status = options_store(&table, sweep->axes[a].option, sweep->axes[a].values[run->places[a]], error);
    *find_option(rows, "seed")->given = true;
    return status;
}

/* ---- where they stand ---- */

/* Sets *notes_ret to what the checkpoint of the run says; NULL: there is none, or it cannot be read, which
 * the run itself will tell. */
static void read_notes(const SweepRun *run, json_t **notes_ret)
{
    char path[PATH_MAX];
    *notes_ret = NULL;
    if (!file_join(path, sizeof path, run->folder, record_checkpoint_name, NULL) && file_exists(path) &&
        checkpoint_notes(path, notes_ret, NULL))
        *notes_ret = NULL;
}

static bool notes_say_finished(const json_t *notes)
{
    return json_is_true(json_object_get(json_object_get(notes, "run"), "finished"));
}

void sweep_look_at(SweepRun *run)
{
    json_t *notes;
    read_notes(run, &notes);
    run->finished = notes_say_finished(notes);
    json_decref(notes);
}

/* Checks that what lies in the run's folder is this run. One that goes on is checked again, by itself. */
static FshStatus check_same(const Sweep *sweep, const SweepRun *run, const TrainOptions *options,
                            const json_t *notes, FshError *error)
{
    static const DifferenceWords words = {"--", " ", " (was ", ")", true};
    TrainOptions own = *options;
    const TrainOptions defaults = train_options_default();
    char differences[500] = "";
    FshStatus status = sweep_apply(sweep, run, &own, error);
    json_t *now = status ? NULL : deciding_options(&own),
           *plain = status ? NULL : deciding_options(&defaults);
    if (!status && (!now || !plain))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", run->folder);
    if (!status)
        deciding_differences(&(DecidedOptions){.options = now},
                             &(DecidedOptions){.options = json_object_get(notes, "options"),
                                               .chosen = json_object_get(notes, "chosen")},
                             plain, &words, differences, sizeof differences);
    if (differences[0])
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: its run has ended, and had other options: %s; give the same, another OUTPUT, or "
            "--force, which runs all again",
            run->folder, differences);
    json_decref(plain);
    json_decref(now);
    return status;
}

/* Returns whether a sweep may have left the entry of its folder: a run's folder, its log, or the page. */
static bool is_of_a_sweep(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (file_join(path, sizeof path, folder, name, NULL))
        return false;
    return strchr(name, '=') ? text_has_suffix(name, ".log") || study_run_is_there(path)
                             : strcmp(name, compare_page_name) == 0 && comparison_is_page(path);
}

/* Checks that OUTPUT is new, empty or a sweep's, to which a user may have added something; hidden files do
 * not count. */
static FshStatus check_folder(const TrainOptions *options, FshError *error)
{
    char foreign[NAME_MAX + 1] = "", page[PATH_MAX];
    bool own = false;
    FshStatus status = record_check_folder(options->output, true, error);
    if (!status)
        status = file_join(page, sizeof page, options->output, compare_page_name, error);
    if (status || options->force || !file_exists(options->output))
        return status;
    DIR *entries = opendir(options->output);
    if (!entries)
        return fsh_error_system(error, errno, "%s: cannot be read", options->output);
    for (const struct dirent *entry; !own && (entry = readdir(entries));) {
        own = is_of_a_sweep(options->output, entry->d_name);
        if (!own && entry->d_name[0] != '.')
            (void)snprintf(foreign, sizeof foreign, "%s", entry->d_name);
    }
    (void)closedir(entries);
    if (!own && foreign[0])
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: exists, is not empty (%s) and holds no runs of a sweep; choose another "
                             "output folder, or use --force",
                             options->output, foreign);
    return compare_check_page(page, false, error);
}

/* Checks that a run may begin in its folder, or begin again where it has no checkpoint to go on from. */
static FshStatus check_run_folder(const SweepRun *run, FshError *error)
{
    char checkpoint[PATH_MAX];
    const FshStatus status =
        file_join(checkpoint, sizeof checkpoint, run->folder, record_checkpoint_name, error);
    return status || file_exists(checkpoint) || record_may_begin_again(run->folder)
               ? status
               : record_check_folder(run->folder, false, error);
}

FshStatus sweep_look(Sweep *sweep, const TrainOptions *options, FshError *error)
{
    FshStatus status = check_folder(options, error);
    for (size_t i = 0; i < sweep->count && !status && !options->force; i++) {
        SweepRun *run = &sweep->runs[i];
        json_t *notes;
        read_notes(run, &notes);
        run->finished = notes_say_finished(notes);
        status = run->finished ? check_same(sweep, run, options, notes, error) : check_run_folder(run, error);
        json_decref(notes);
    }
    return status;
}
