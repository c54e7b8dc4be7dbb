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

#include "common/cpu.h"
#include "common/file.h"
#include "common/json_text.h"
#include "trainer/backend/pixels.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/deciding_options.h"
#include "trainer/plan/plan_chosen.h"
#include "trainer/session/run_resume.h"
#include "trainer/checkpoint/weights.h"

static const char *file_name(RunFile file)
{
    const char *const names[] = {[RUN_LAST] = record_last_name,
                                 [RUN_BEST] = record_best_name,
                                 [RUN_AVERAGE] = record_average_name,
                                 [RUN_CHECKPOINT] = record_checkpoint_name};
    return names[file];
}

/* A file to save, and all that its thread needs: nothing here changes while training goes on. */
typedef struct SaveJob {
    RunFile file;
    char path[PATH_MAX];
    State *state;
    RunCopy *copy; /* which state belongs to; NULL: to the session */
    const Graph *graph;
    WeightsInfo info;
    ModelSpec spec;      /* info's */
    char *notes;         /* of a checkpoint; NULL: weights */
    char link[PATH_MAX]; /* that shall point to the file beside it; "": none */
} SaveJob;

/* Returns the file that model.safetensors, which timm looks for in a folder, is a link to: the best weights,
 * or the last of a run without evaluation. */
static RunFile linked_file(const Session *session)
{
    return session->evaluation ? RUN_BEST : RUN_LAST;
}

/* Makes the link to the file beside it, if that is there; else removes one that points to nothing. A file
 * system without links goes without. */
static void link_beside(const char *link, RunFile file)
{
    char target[PATH_MAX];
    struct stat entry;
    const char *slash = strrchr(link, '/');
    if (snprintf(target, sizeof target, "%.*s%s", slash ? (int)(slash + 1 - link) : 0, link,
                 file_name(file)) >= (int)sizeof target)
        return;
    if (file_exists(target))
        (void)!symlink(file_name(file), link); /* EEXIST: it is there */
    else if (lstat(link, &entry) == 0 && S_ISLNK(entry.st_mode) && !file_exists(link))
        (void)unlink(link);
}

/* Sets the path of the link; "": the run has none, for timm has no network for pairs and masks. */
static FshStatus link_path(const RunFiles *files, char *path, size_t path_bytes, FshError *error)
{
    path[0] = '\0';
    return plan_has_targets(&files->session->plan)
               ? FSH_OK
               : record_path(files->record, path, path_bytes, record_link_name, error);
}

FshStatus run_files_open(RunFiles *files, Session *session, const Record *record, const TrainOptions *options,
                         FshError *error)
{
    *files = (RunFiles){.session = session,
                        .record = record,
                        .options = deciding_options(options),
                        .chosen = plan_chosen(&session->plan, options),
                        .history = options->checkpoint.hist};
    if (!files->options || !files->chosen)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options");
    if (record && run_writer_new(&files->writer, NULL))
        files->writer = NULL;
    char link[PATH_MAX] = "";
    if (record && !link_path(files, link, sizeof link, NULL) && link[0])
        link_beside(link, linked_file(session)); /* an earlier part of the run may have lacked the time */
    return FSH_OK;
}

void run_files_close(RunFiles *files)
{
    run_files_settle(files);
    run_writer_free(&files->writer);
    for (int i = 0; i < RUN_COPIES; i++) {
        state_free(&files->trained[i].state);
        state_free(&files->averaged[i].state);
    }
    json_decref(files->options);
    json_decref(files->chosen);
    *files = (RunFiles){0};
}

/* ---- saving ---- */

static FshStatus write_job(void *context, FshError *error)
{
    const SaveJob *job = context;
    FshStatus status = job->notes ? checkpoint_save(job->path, job->state, job->graph, job->notes, error)
                                  : weights_save(job->path, job->state, job->graph, &job->info, error);
    if (!status && job->link[0])
        link_beside(job->link, job->file);
    return status;
}

static void free_job(SaveJob *job)
{
    if (job)
        free(job->notes);
    free(job);
}

static void note_result(RunFiles *files, RunFile file, FshStatus status, const FshError *error)
{
    files->stale_of[file] = status != FSH_OK;
    if (status)
        console_warning(&files->session->console,
                        "%s; the file before it, if any, is untouched, training goes on", error->message);
}

/* Notes what has been written by now. */
static void take_results(RunFiles *files)
{
    RunWritten written;
    while (files->writer && run_writer_next(files->writer, &written)) {
        SaveJob *job = written.job;
        files->pending[job->file]--;
        job->copy->jobs--;
        note_result(files, job->file, written.status, &written.error);
        free_job(job);
    }
}

void run_files_settle(RunFiles *files)
{
    if (files->writer)
        run_writer_wait(files->writer);
    take_results(files);
}

void run_files_settle_file(RunFiles *files, RunFile file)
{
    take_results(files);
    while (files->pending[file] > 0) {
        run_writer_wait_one(files->writer);
        take_results(files);
    }
}

/* Returns the copy that has been taken of the State as it is now; NULL: there is none. */
static RunCopy *find_copy(RunCopy copies[RUN_COPIES], uint64_t changes)
{
    for (int i = 0; i < RUN_COPIES; i++)
        if (copies[i].taken && copies[i].changes == changes)
            return &copies[i];
    return NULL;
}

bool run_files_is_behind(RunFiles *files)
{
    if (!files->writer || files->history > 0)
        return false;
    take_results(files);
    bool reads = false;
    for (int i = 0; i < RUN_COPIES; i++)
        reads = reads || files->trained[i].jobs > 0;
    return reads && !find_copy(files->trained, state_changes(files->session->network.state));
}

/* Returns whether a further copy of the State takes at most half of the memory that is free. */
static bool has_room(const RunFiles *files, const State *state)
{
    MemoryUse use = {0};
    uint64_t free_bytes = 0;
    state_memory(state, &use);
    if (backend_free_memory(files->session->network.backend, &free_bytes, NULL)) /* the CPU */
        free_bytes = cpu_free_memory_bytes(1);
    return memory_total(&use) <= free_bytes / 2;
}

/* Returns a copy whose State nobody reads, waiting for one if need be; NULL: there is no memory. */
static RunCopy *free_copy(RunFiles *files, RunCopy copies[RUN_COPIES], State *state)
{
    for (;;) {
        bool any = false;
        take_results(files);
        for (int i = 0; i < RUN_COPIES; i++) {
            RunCopy *copy = &copies[i];
            if (!copy->state && !copy->impossible)
                copy->impossible =
                    (i > 0 && !has_room(files, state)) || state_copy_new(&copy->state, state, NULL);
            if (copy->state && copy->jobs == 0)
                return copy;
            any = any || copy->state;
        }
        if (!any)
            return NULL;
        run_writer_wait_one(files->writer);
    }
}

/* Returns a copy of the State as it is now. NULL: there is no memory for one, or it could not be taken. */
static RunCopy *copy_now(RunFiles *files, RunCopy copies[RUN_COPIES], State *state)
{
    const uint64_t changes = state_changes(state);
    if (!files->writer)
        return NULL;
    RunCopy *copy = find_copy(copies, changes);
    if (copy)
        return copy;
    copy = free_copy(files, copies, state);
    if (!copy)
        return NULL;
    copy->taken = !state_copy_take(copy->state, state, NULL);
    copy->changes = changes;
    return copy->taken ? copy : NULL;
}

/* Saves a job, which it takes over: from a copy on the writer's thread, or here and now. */
static void save(RunFiles *files, SaveJob *job)
{
    FshError error = {0};
    const bool averaged = job->file == RUN_AVERAGE;
    RunCopy *copy = copy_now(files, averaged ? files->averaged : files->trained, job->state);
    take_results(files);
    if (copy) {
        State *live = job->state;
        job->state = copy->state;
        job->copy = copy;
        if (!run_writer_add(files->writer, write_job, job, NULL)) {
            files->pending[job->file]++;
            copy->jobs++;
            return;
        }
        job->state = live;
    }
    run_files_settle(files); /* files keep their order */
    note_result(files, job->file, write_job(job, &error), &error);
    free_job(job);
}

/* Makes a job of the file of this name; the caller adds what it holds. */
static FshStatus new_job(const RunFiles *files, const char *name, RunFile file, SaveJob **job_ret,
                         FshError *error)
{
    Session *session = files->session;
    const bool averaged = file == RUN_AVERAGE;
    SaveJob *job = calloc(1, sizeof *job);
    *job_ret = NULL;
    if (!job)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    job->file = file;
    job->state = averaged ? session->network.average : session->network.state;
    job->graph =
        averaged ? session->network.evaluation[NETWORK_AVERAGED][0].graph : network_graph(&session->network);
    FshStatus status = record_path(files->record, job->path, sizeof job->path, name, error);
    if (status)
        free_job(job);
    else
        *job_ret = job;
    return status;
}

static FshStatus weights_job(const RunFiles *files, const char *name, RunFile file, const RunState *state,
                             const Metrics *metrics, SaveJob **job_ret, FshError *error)
{
    const Session *session = files->session;
    const TrainPlan *plan = &session->plan;
    const bool evaluated = metrics && metrics_has(metrics, plan->main_metric);
    const bool classes = plan->model->task == TASK_CLASSIFICATION;
    FshStatus status = new_job(files, name, file, job_ret, error);
    if (status)
        return status;
    SaveJob *job = *job_ret;
    job->spec = plan->train_spec;
    job->info = (WeightsInfo){
        .model = plan->model->name,
        .spec = &job->spec,
        .crop = classes ? plan->evaluation_augmentation.size : 0,
        .resize = classes ? plan->evaluation_augmentation.resize : 0,
        .interpolation = classes ? interpolation_names[plan->evaluation_augmentation.interpolation] : NULL,
        .problem_type =
            session->data.label_kind != LABELS_ONE ? label_kind_names[session->data.label_kind] : NULL,
        .dataset_id = fsh_manifest(session->data.dataset)->id,
        .epoch = state->epoch,
        .steps = state->steps_done,
        .metric_name = evaluated ? metric_names[plan->main_metric] : NULL,
        .metric = evaluated ? metrics_value(metrics, plan->main_metric) : 0,
        .channels = session->data.channels,
        .class_names = (const char *const *)session->data.class_names,
        .class_count = (size_t)session->data.class_count};
    memcpy(job->info.mean, plan->recipe.mean, sizeof job->info.mean);
    memcpy(job->info.deviation, plan->recipe.deviation, sizeof job->info.deviation);
    return FSH_OK;
}

void run_files_save_weights(RunFiles *files, RunFile file, const RunState *state, const Metrics *metrics)
{
    FshError error = {0};
    SaveJob *job = NULL;
    if (!files->record)
        return;
    FshStatus status = weights_job(files, file_name(file), file, state, metrics, &job, &error);
    if (!status && file == linked_file(files->session))
        status = link_path(files, job->link, sizeof job->link, &error);
    if (status) {
        free_job(job);
        note_result(files, file, status, &error);
    } else
        save(files, job);
}

/* Returns the ids of the sets by their names, in their order: what --resume tells where they are others. */
static json_t *set_ids(const TrainingData *data)
{
    json_t *array = json_array();
    for (size_t i = 0; i < data->sets.count; i++)
        (void)json_array_append_new(array, json_pack("[o, s]", json_text(data->sets.names[i]),
                                                     fsh_manifest(fsh_member(data->dataset, i))->id));
    return array;
}

static json_t *checkpoint_object(const RunFiles *files, const RunState *state)
{
    const TrainingData *data = &files->session->data;
    const RunShape shape = run_shape(files->session);
    json_t *run = run_state_object(state);
    char *names = class_names_text((const char *const *)data->class_names, (size_t)data->class_count);
    json_t *object = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:O, s:o}", "version", CHECKPOINT_VERSION,
        "model", files->session->plan.model->name, "dataset", fsh_manifest(data->dataset)->id, "choice",
        data->choice.digest, "labels", data->labels.digest, "class_names", names ? names : "", "ranks",
        (json_int_t)shape.ranks, "batch", (json_int_t)shape.batch, "steps", (json_int_t)shape.steps,
        "options", files->options, "chosen", files->chosen, "run", run);
    if (!names) { /* no memory */
        json_decref(object);
        object = NULL;
    }
    if (object && data->sets.count > 1)
        (void)json_object_set_new(object, "sets", set_ids(data));
    free(names);
    return object;
}

static FshStatus checkpoint_job(const RunFiles *files, const char *name, const RunState *state,
                                SaveJob **job_ret, FshError *error)
{
    FshStatus status = new_job(files, name, RUN_CHECKPOINT, job_ret, error);
    if (status)
        return status;
    json_t *notes = checkpoint_object(files, state);
    (*job_ret)->notes = notes ? checkpoint_format(notes) : NULL;
    json_decref(notes);
    if ((*job_ret)->notes)
        return FSH_OK;
    free_job(*job_ret);
    *job_ret = NULL;
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
}

void run_files_save_checkpoint(RunFiles *files, const RunState *state)
{
    FshError error = {0};
    SaveJob *job = NULL;
    if (!files->record)
        return;
    FshStatus status = checkpoint_job(files, record_checkpoint_name, state, &job, &error);
    if (status)
        note_result(files, RUN_CHECKPOINT, status, &error);
    else
        save(files, job);
}

/* Writes a job, after all that is being written, and takes it over. */
static FshStatus write_now(RunFiles *files, SaveJob *job, FshError *error)
{
    run_files_settle(files);
    FshStatus status = write_job(job, error);
    free_job(job);
    return status;
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
    const double measured = metrics ? metrics_value(metrics, main_metric) : (double)state->epoch;
    const double value = metrics && !metric_rises(main_metric) ? -measured : measured;
    char name[64];
    FshError error = {0};
    SaveJob *job = NULL;
    FshStatus status = FSH_OK;
    if (!most || !files->record)
        return;
    while (!status && state->kept_count > most) /* the run was resumed with a lower --checkpoint-hist */
        status = drop_worst(files, state, &error);
    if (!status && state->kept_count == most && value < state->kept[worst_kept(state)].value)
        return;
    kept_name(name, sizeof name, state->epoch);
    if (!status)
        status = weights_job(files, name, RUN_LAST, state, metrics, &job, &error);
    if (!status)
        status = write_now(files, job, &error);
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
    SaveJob *job = NULL;
    FshStatus status = checkpoint_job(files, record_diverged_name, state, &job, &error);
    if (!status)
        status = write_now(files, job, &error);
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
