#include "trainer/study/study_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/options_config.h"
#include "trainer/plan/train_options.h"
#include "trainer/report/run_record.h"

enum { ARGUMENTS_BYTES_MAX = 1 << 20 };
static const char arguments_name[] = "args.json";

bool study_run_is_there(const char *folder)
{
    char path[PATH_MAX];
    return !file_join(path, sizeof path, folder, arguments_name, NULL) && file_exists(path);
}

/* ---- what was asked for ---- */

/* Adds the defaults of options that the run's version did not have, and removes what says how or where,
 * not what comes out, and the seed. Returns 0 on success. */
static int complete_options(json_t *options)
{
    TrainOptions defaults = train_options_default();
    Option rows[TRAIN_OPTION_ROWS];
    char name[64];
    train_options_rows(&defaults, rows);
    const OptionTable table = train_options_table(rows);
    json_t *plain = options_config_object(&table, OPTION_NOT_IN_FILE);
    const int failed = json_object_update_missing(options, plain);
    json_decref(plain);
    for (const Option *row = rows; row->name; row++) {
        if (!(row->marks & OPTION_FREE) && strcmp(row->name, "seed") != 0)
            continue;
        (void)json_object_del(options, options_python_name(row->name, name, sizeof name));
    }
    return failed;
}

/* Sets run->options. What the program has chosen stands for what was left open: two runs with 64 images in a
 * batch are alike, whether 64 was asked for or not. */
static FshStatus take_options(StudyRun *run, FshError *error)
{
    const json_t *chosen = json_object_get(run->arguments, "chosen");
    json_t *value;
    const char *name;
    run->options = json_copy(json_object_get(run->arguments, "options"));
    if (!run->options)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", run->folder);
    json_object_foreach((json_t *)chosen, name, value)
    {
        const bool counts = strcmp(name, "classes") == 0; /* the network's; the option is a file of them */
        const bool asked = !counts && json_object_get(run->options, name) != NULL;
        if ((asked || strcmp(name, "ranks") == 0) && json_object_set(run->options, name, value))
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", run->folder);
    }
    run->seed = json_integer_value(json_object_get(run->options, "seed"));
    const json_int_t iterations = json_integer_value(json_object_get(run->options, "iters"));
    run->counts_iterations =
        iterations > 0 || json_integer_value(json_object_get(run->options, "val_every")) > 0;
    run->planned = run->counts_iterations
                       ? (uint64_t)iterations
                       : (uint64_t)json_integer_value(json_object_get(run->options, "epochs"));
    const json_int_t update = json_integer_value(json_object_get(run->options, "grad_accum_steps"));
    run->epoch_iterations = (double)json_integer_value(json_object_get(chosen, "steps_per_epoch")) /
                            (update > 1 ? (double)update : 1);
    run->dataset = json_string_value(json_object_get(chosen, "dataset_id"));
    run->choice = json_string_value(json_object_get(json_object_get(chosen, "choice"), "val_digest"));
    if (complete_options(run->options))
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", run->folder);
    if (iterations > 0) /* then epochs decide nothing */
        (void)json_object_del(run->options, "epochs");
    return FSH_OK;
}

static FshStatus read_arguments(StudyRun *run, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, run->folder, arguments_name, error);
    if (status)
        return status;
    if (!file_exists(path))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no run of ftrain: there is no %s in it",
                             run->folder, arguments_name);
    run->arguments = json_file_load(path, ARGUMENTS_BYTES_MAX);
    if (!json_is_object(json_object_get(run->arguments, "options")) ||
        !json_is_object(json_object_get(run->arguments, "chosen")))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: is none of ftrain's", path);
    return take_options(run, error);
}

/* ---- what came of it ---- */

const double *study_run_column(const StudyRun *run, const char *name)
{
    return run_table_column(&run->history.epochs, name);
}

double study_run_iterations_of(const StudyRun *run, double epochs)
{
    return floor(epochs * run->epoch_iterations);
}

double study_run_iteration_at(const StudyRun *run, size_t row)
{
    const double *values = study_run_column(run, run->counts_iterations ? "iteration" : "epoch");
    if (!values || row >= run->history.epochs.row_count)
        return NAN;
    return run->counts_iterations ? values[row] : study_run_iterations_of(run, values[row] + 1);
}

static const StudyTask tasks[] = {
    {"top1", "top-1", "eval_top1", true}, {"psnr", "PSNR", "train_psnr", true},
    {"map", "mAP", "eval_map", true},     {"mae", "MAE", "eval_mae", false},
    {"miou", "mIoU", "eval_miou", true},
};

static const StudyTask *find_task(const StudyRun *run)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (study_run_column(run, tasks[i].sign))
            return &tasks[i];
    return tasks;
}

/* Returns the row with the best value of the column; row_count if there is none. */
static size_t best_row(const StudyRun *run, const char *column)
{
    const double *values = study_run_column(run, column);
    const size_t rows = run->history.epochs.row_count;
    size_t best = rows;
    for (size_t i = 0; i < rows && values; i++)
        if (isfinite(values[i]) &&
            (best == rows || (run->task->rises ? values[i] > values[best] : values[i] < values[best])))
            best = i;
    return best;
}

/* Returns the last number of the column; NaN if there is none. */
static double last_value(const StudyRun *run, const char *column)
{
    const double *values = study_run_column(run, column);
    for (size_t i = run->history.epochs.row_count; values && i-- > 0;)
        if (isfinite(values[i]))
            return values[i];
    return NAN;
}

static double value_at(const StudyRun *run, const char *column, size_t row)
{
    const double *values = study_run_column(run, column);
    return values && row < run->history.epochs.row_count ? values[row] : NAN;
}

static void measure(StudyRun *run)
{
    char column[32], average[32];
    run->task = find_task(run);
    run->epochs = run->history.epochs.row_count;
    const double iterations = last_value(run, "iteration");
    run->iterations = run->counts_iterations && iterations > 0 ? (uint64_t)iterations : 0;
    (void)snprintf(column, sizeof column, "eval_%s", run->task->metric);
    (void)snprintf(average, sizeof average, "ema_%s", run->task->metric);
    const size_t best = best_row(run, column);
    run->result = (StudyResult){.best = value_at(run, column, best),
                                .best_epoch = value_at(run, "epoch", best),
                                .best_iteration = value_at(run, "iteration", best),
                                .last = last_value(run, column),
                                .last_loss = last_value(run, "eval_loss"),
                                .average = value_at(run, average, best_row(run, average)),
                                .seconds = last_value(run, "time")};
}

/* ---- a run ---- */

/* Copies the path without slashes at its end, and its last part. */
static FshStatus take_folder(StudyRun *run, const char *folder, FshError *error)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (length >= sizeof run->folder)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", folder);
    (void)snprintf(run->folder, sizeof run->folder, "%.*s", (int)length, folder);
    const char *slash = strrchr(run->folder, '/');
    (void)snprintf(run->name, sizeof run->name, "%.*s", NAME_MAX,
                   slash && slash[1] ? slash + 1 : run->folder);
    return FSH_OK;
}

FshStatus study_run_read(StudyRun *run, const char *folder, FshError *error)
{
    char path[PATH_MAX];
    *run = (StudyRun){0};
    FshStatus status = take_folder(run, folder, error);
    if (!status)
        status = read_arguments(run, error);
    if (!status)
        status = file_join(path, sizeof path, run->folder, record_metrics_name, error);
    if (!status && file_exists(path))
        status = run_history_read(&run->history, path, error);
    if (!status)
        measure(run);
    else
        study_run_free(run);
    return status;
}

void study_run_free(StudyRun *run)
{
    json_decref(run->options);
    json_decref(run->arguments);
    run_history_free(&run->history);
    *run = (StudyRun){0};
}
