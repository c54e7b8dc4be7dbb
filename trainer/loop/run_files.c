#include "trainer/loop/run_files.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/json_text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/deciding_options.h"
#include "trainer/loop/run_resume.h"
#include "trainer/checkpoint/weights.h"

static const char *file_name(RunFile file)
{
    const char *const names[] = {[RUN_LAST] = record_last_name,
                                 [RUN_BEST] = record_best_name,
                                 [RUN_AVERAGE] = record_average_name,
                                 [RUN_CHECKPOINT] = record_checkpoint_name};
    return names[file];
}

FshStatus run_files_open(RunFiles *files, Session *session, const Record *record, const TrainOptions *options,
                         FshError *error)
{
    *files = (RunFiles){.session = session,
                        .record = record,
                        .options = deciding_options(options),
                        .history = options->checkpoint.hist};
    return files->options ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options");
}

void run_files_close(RunFiles *files)
{
    json_decref(files->options);
    *files = (RunFiles){0};
}

/* ---- saving ---- */

static void note_failure(RunFiles *files, bool *stale, FshStatus status, const FshError *error)
{
    *stale = status != FSH_OK;
    if (status)
        console_warning(&files->session->console,
                        "%s; the file before it, if any, is untouched, training goes on", error->message);
}

static FshStatus save_weights(RunFiles *files, const char *name, const RunState *state,
                              const Metrics *metrics, bool averaged, FshError *error)
{
    char path[PATH_MAX];
    Session *session = files->session;
    const TrainPlan *plan = &session->plan;
    const bool evaluated = metrics && metrics_has(metrics, plan->main_metric);
    WeightsInfo info = {
        .model = plan->model->name,
        .spec = &plan->train_spec,
        .crop = plan->model->task == TASK_CLASSIFICATION ? plan->evaluation_augmentation.size : 0,
        .resize = plan->model->task == TASK_CLASSIFICATION ? plan->evaluation_augmentation.resize : 0,
        .interpolation = plan->model->task == TASK_CLASSIFICATION
                             ? interpolation_names[plan->evaluation_augmentation.interpolation]
                             : NULL,
        .dataset_id = fsh_manifest(session->data.dataset)->id,
        .epoch = state->epoch,
        .steps = state->steps_done,
        .metric_name = evaluated ? metric_names[plan->main_metric] : NULL,
        .metric = evaluated ? metrics_value(metrics, plan->main_metric) : 0,
        .channels = session->data.channels,
        .class_names = (const char *const *)session->data.class_names,
        .class_count = (size_t)session->data.class_count};
    memcpy(info.mean, plan->recipe.mean, sizeof info.mean);
    memcpy(info.deviation, plan->recipe.deviation, sizeof info.deviation);
    FshStatus status = record_path(files->record, path, sizeof path, name, error);
    if (!status)
        status = weights_save(path, averaged ? session->network.average : session->network.state,
                              averaged ? session->network.evaluation[NETWORK_AVERAGED][0].graph
                                       : network_graph(&session->network),
                              &info, error);
    return status;
}

void run_files_save_weights(RunFiles *files, RunFile file, const RunState *state, const Metrics *metrics)
{
    FshError error = {0};
    if (!files->record)
        return;
    FshStatus status = save_weights(files, file_name(file), state, metrics, file == RUN_AVERAGE, &error);
    note_failure(files, &files->stale_of[file], status, &error);
}

static json_t *checkpoint_object(const RunFiles *files, const RunState *state)
{
    const TrainingData *data = &files->session->data;
    const RunShape shape = run_shape(files->session);
    json_t *run = run_state_object(state);
    char *names = class_names_text((const char *const *)data->class_names, (size_t)data->class_count);
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:o}", "version", CHECKPOINT_VERSION, "model",
                  files->session->plan.model->name, "dataset", fsh_manifest(data->dataset)->id, "class_names",
                  names ? names : "", "ranks", (json_int_t)shape.ranks, "batch", (json_int_t)shape.batch,
                  "steps", (json_int_t)shape.steps, "options", files->options, "run", run);
    if (!names) { /* no memory */
        json_decref(object);
        object = NULL;
    }
    free(names);
    return object;
}

static FshStatus save_checkpoint(RunFiles *files, const char *name, const RunState *state, FshError *error)
{
    char path[PATH_MAX];
    json_t *notes = checkpoint_object(files, state);
    FshStatus status = notes ? record_path(files->record, path, sizeof path, name, error)
                             : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    if (!status)
        status = checkpoint_save(path, files->session->network.state, network_graph(&files->session->network),
                                 notes, error);
    json_decref(notes);
    return status;
}

void run_files_save_checkpoint(RunFiles *files, const RunState *state)
{
    FshError error = {0};
    if (!files->record)
        return;
    FshStatus status = save_checkpoint(files, record_checkpoint_name, state, &error);
    note_failure(files, &files->stale_of[RUN_CHECKPOINT], status, &error);
}

bool run_files_weights_stale(const RunFiles *files)
{
    return files->stale_of[RUN_LAST] || files->stale_of[RUN_BEST] || files->stale_of[RUN_AVERAGE];
}

bool run_files_stale(const RunFiles *files)
{
    return run_files_weights_stale(files) || files->stale_of[RUN_CHECKPOINT];
}

/* ---- the best epochs ---- */

static void kept_name(char *name, size_t name_bytes, uint64_t epoch)
{
    (void)snprintf(name, name_bytes, "checkpoint-%" PRIu64 ".safetensors", epoch);
}

/* Returns the index of the epoch to drop next: the one with the lowest value, of equal ones the oldest. */
static size_t worst_kept(const RunState *state)
{
    size_t worst = 0;
    for (size_t i = 1; i < state->kept_count; i++)
        if (state->kept[i].value < state->kept[worst].value)
            worst = i;
    return worst;
}

static FshStatus drop_worst(const RunFiles *files, RunState *state, FshError *error)
{
    char name[64], path[PATH_MAX];
    const size_t worst = worst_kept(state);
    kept_name(name, sizeof name, state->kept[worst].epoch);
    FshStatus status = record_path(files->record, path, sizeof path, name, error);
    if (!status && unlink(path) && errno != ENOENT)
        status = fsh_error_system(error, errno, "%s: cannot remove", path);
    if (!status)
        memmove(&state->kept[worst], &state->kept[worst + 1],
                (--state->kept_count - worst) * sizeof *state->kept);
    return status;
}

void run_files_keep(RunFiles *files, RunState *state, const Metrics *metrics)
{
    const size_t most = (size_t)files->history; /* at most KEPT_EPOCHS_MAX */
    const Metric main_metric = files->session->plan.main_metric;
    if (!metrics && files->session->evaluation)
        return; /* with evaluation, only evaluated epochs are kept */
    /* Without evaluation newer epochs count as better. */
    const double value = metrics ? metrics_value(metrics, main_metric) : (double)state->epoch;
    char name[64];
    FshError error = {0};
    FshStatus status = FSH_OK;
    if (!most || !files->record)
        return;
    while (!status && state->kept_count > most) /* the run was resumed with a lower --checkpoint-hist */
        status = drop_worst(files, state, &error);
    if (!status && state->kept_count == most && value < state->kept[worst_kept(state)].value)
        return;
    kept_name(name, sizeof name, state->epoch);
    if (!status)
        status = save_weights(files, name, state, metrics, false, &error);
    if (!status && state->kept_count == most)
        status = drop_worst(files, state, &error);
    if (!status)
        state->kept[state->kept_count++] = (KeptEpoch){state->epoch, value};
    else
        console_warning(&files->session->console, "%s; training goes on", error.message);
}

/* ---- divergence ---- */

static json_t *diverged_object(const RunFiles *files, const RunState *state, const uint64_t *batch_samples,
                               double loss)
{
    json_t *samples = json_array();
    for (int64_t i = 0; i < files->session->plan.train_spec.batch; i++) {
        size_t bytes = 0;
        const char *key = session_key(files->session->data.train, batch_samples[i], &bytes);
        char text[4096];
        (void)snprintf(text, sizeof text, "%.*s", (int)bytes, key);
        (void)json_array_append_new(
            samples, json_pack("{s:I, s:o}", "index", (json_int_t)batch_samples[i], "key", json_text(text)));
    }
    json_t *number = isfinite(loss) ? json_real(loss)
                                    : json_string(isnan(loss) ? "nan"
                                                  : loss > 0  ? "inf"
                                                              : "-inf");
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "epoch", (json_int_t)state->epoch, "step",
                     (json_int_t)state->step, "steps_done", (json_int_t)state->steps_done, "loss", number,
                     "samples", samples);
}

bool run_files_save_diverged(RunFiles *files, const RunState *state, const uint64_t *batch_samples,
                             double loss)
{
    char path[PATH_MAX];
    FshError error = {0};
    if (!files->record)
        return false;
    json_t *object = diverged_object(files, state, batch_samples, loss);
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    FshStatus status = save_checkpoint(files, record_diverged_name, state, &error);
    if (!status)
        status = text ? record_path(files->record, path, sizeof path, "diverged.json", &error)
                      : fsh_error_set(&error, FSH_ERR_MEMORY, "diverged.json: out of memory");
    if (!status)
        status = file_write_atomic(path, text, strlen(text), true, true, &error);
    if (status)
        console_warning(&files->session->console, "%s", error.message);
    free(text);
    json_decref(object);
    return !status;
}
