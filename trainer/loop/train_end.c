/* train_end.c - how a run ends: its checkpoint, also where a signal stops it; the result, the verdict, what
 * is missing. */
#include "trainer/loop/train_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/text.h"
#include "trainer/report/run_history.h"
#include "trainer/report/verdict.h"
#include "trainer/session/describe.h"
#include "trainer/session/ranks_weights.h"

/* ---- what is kept ---- */

/* Makes one rank's state that of all. Returns whether it can be saved: a rank that is lost is reported by the
 * next exchange. */
static bool share_accumulated(Training *training)
{
    Session *session = &training->session;
    FshError error = {0};
    FshStatus status = ranks_share_accumulated(session->communicator, session->network.state,
                                               network_graph(&session->network), &error);
    if (status && !communicator_is_broken(session->communicator))
        training_warn_of(training, status, &error);
    return !status;
}

void training_save_checkpoint_at(Training *training, const RunState *at, bool writes)
{
    RunState state = *at;
    training->saved = true;
    training->state.seconds = state.seconds = training_seconds(training);
    (void)ranks_sum_metrics(training->session.communicator, &state.metrics,
                            NULL); /* a lost rank is reported by the next exchange */
    if (share_accumulated(training) && writes)
        run_files_save_checkpoint(&training->files, &state);
}

void training_save_checkpoint(Training *training)
{
    training_save_checkpoint_at(training, &training->state, true);
}

/* Saves checkpoint and weights. Returns false if the disk would not take them. */
static bool save_learnt(Training *training)
{
    training_save_checkpoint(training);
    run_files_save_weights(&training->files, RUN_LAST, &training->state, NULL);
    run_files_settle(&training->files);
    return !run_files_stale(&training->files);
}

bool training_keep_learnt(Training *training)
{
    FshError error = {0};
    if (training_check_weights(training, &error) != FSH_ERR_MISMATCH) /* a lost rank is reported elsewhere */
        return save_learnt(training);
    if (training_writes(training))
        console_warning(&training->session.console, "%s; nothing is saved", error.message);
    return false;
}

/* Writes "epoch 3 after 12 steps", or "iteration 20012". */
static void say_place(const Training *training, char *text, size_t text_bytes)
{
    const TrainPlan *plan = &training->session.plan;
    const RunState *state = &training->state;
    if (plan_counts_iterations(plan))
        (void)snprintf(text, text_bytes, "iteration %" PRIu64, plan_iterations(plan, state->steps_done));
    else
        (void)snprintf(text, text_bytes, "epoch %" PRIu64 " after %" PRIu64 " step%s", state->epoch,
                       state->step, text_plural(state->step));
}

FshStatus training_stop_for_signal(Training *training, FshError *error)
{
    char place[80];
    if (training_check_weights(training, error) ==
        FSH_ERR_MISMATCH) /* a lost rank is reported by those that wait */
        return FSH_ERR_MISMATCH;
    (void)save_learnt(training);
    say_place(training, place, sizeof place);
    if (!training_writes(training)) {
        ranks_leave_to_first(training->session.communicator, error);
        return FSH_ERR_INTERRUPTED;
    }
    return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted in %s; %s %s/%s%s", place,
                         run_files_stale(&training->files) ? "the state could NOT be saved to"
                                                           : "the state is in",
                         training->record.folder, record_checkpoint_name,
                         run_files_stale(&training->files) ? "" : "; --resume auto goes on");
}

/* ---- what is said ---- */

static double loader_share(const Training *training)
{
    const RunState *state = &training->state;
    return state->step_seconds > 0 ? 100 * state->wait_seconds / state->step_seconds : 0;
}

static bool is_raw(const FshSplit *split)
{
    FshSample sample;
    return fsh_sample_get(split, 0, &sample, NULL) == FSH_OK && sample.fields[0].codec == FSH_CODEC_RAW;
}

void training_say_verdict(const Training *training, char *text, size_t text_bytes)
{
    const Session *session = &training->session;
    const TrainPlan *plan = &session->plan;
    verdict_of_speed(&(SpeedFacts){.step_seconds = training->state.step_seconds,
                                   .waited_percent = loader_share(training),
                                   .cuda = plan->device == DEVICE_CUDA,
                                   .compute_type = plan->recipe.compute_type,
                                   .workers = plan->workers_most,
                                   .cores = plan->cores,
                                   .raw = is_raw(session->data.train),
                                   .cache_gpu = plan->source->residence == PIXELS_ON_DEVICE,
                                   .cache_pixels = plan->source->residence == PIXELS_IN_RAM},
                     text, text_bytes);
}

static double images_per_second(const Training *training)
{
    const RunState *state = &training->state;
    return state->step_seconds > 0 ? (double)state->images / state->step_seconds : 0;
}

static void print_best(const Training *training, const char *what, const BestEpoch *best)
{
    char text[240], place[40];
    (void)printf("best %s%s (%s)\n", what,
                 metrics_tell(&best->metrics, training->session.data.class_count, text, sizeof text),
                 plan_epoch_text(&training->session.plan, best->epoch, place, sizeof place));
}

/* Returns whether the file is in the run's folder. A run that was resumed in another folder has left its best
 * weights in the first. */
static bool is_there(const Training *training, const char *name)
{
    char path[PATH_MAX];
    return record_path(&training->record, path, sizeof path, name, NULL) == FSH_OK && file_exists(path);
}

static void print_files(const Training *training)
{
    const RunState *state = &training->state;
    const struct {
        bool there;
        RunFile file;
        const char *name;
    } rows[] = {
        {state->saved.any, RUN_BEST, record_best_name},
        {training->session.network.average != NULL, RUN_AVERAGE, record_average_name},
        {true, RUN_LAST, record_last_name},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].there && !training->files.stale_of[rows[i].file] && is_there(training, rows[i].name))
            (void)printf("%s/%s\n", training->record.folder, rows[i].name);
}

/* Prints how long the run was and how fast. */
static void print_speed(const Training *training)
{
    const RunState *state = &training->state;
    const TrainPlan *plan = &training->session.plan;
    const bool counts = plan_counts_iterations(plan);
    const uint64_t length = counts ? plan_iterations(plan, state->steps_done) : state->epoch;
    (void)printf("%" PRIu64 " %s%s in %.1f s: %.0f images/s, evaluation %.1f s, loader-bound %.1f %%\n",
                 length, counts ? "iteration" : "epoch", text_plural(length), training_seconds(training),
                 images_per_second(training), state->evaluation_seconds, loader_share(training));
}

void training_print_result(const Training *training, bool verdict, bool quiet)
{
    const RunState *state = &training->state;
    if (state->best.any)
        print_best(training, "", &state->best);
    if (state->best_average.any)
        print_best(training, "EMA ", &state->best_average);
    if (!quiet)
        print_speed(training);
    if (verdict && !quiet) {
        char text[512];
        training_say_verdict(training, text, sizeof text);
        (void)printf("verdict: %s\n", text);
    }
    print_files(training);
}

static void set_best(json_t *object, const char *prefix, const BestEpoch *best)
{
    char name[64];
    (void)snprintf(name, sizeof name, "best_%sepoch", prefix);
    (void)json_object_set_new(object, name, json_integer((json_int_t)best->epoch));
    for (int i = METRIC_TOP1; i < METRIC_COUNT; i++) {
        (void)snprintf(name, sizeof name, "best_%s%s", prefix, metric_names[i]);
        if (metrics_has(&best->metrics, (Metric)i))
            (void)json_object_set_new(object, name, json_real(metrics_value(&best->metrics, (Metric)i)));
    }
}

/* Sets what a set's evaluation gave in an epoch, "best_top1", from the rows of metrics.jsonl. */
static void set_best_of_set(json_t *object, const RunTable *epochs, const char *group, const char *prefix,
                            const char *set, const BestEpoch *best)
{
    const double *numbers = run_table_column(epochs, "epoch");
    for (int i = METRIC_TOP1; i < METRIC_COUNT; i++) {
        char name[PATH_MAX + 64];
        (void)snprintf(name, sizeof name, "%s%s/%s", group, metric_names[i], set);
        const double *values = run_table_column(epochs, name);
        for (size_t row = 0; row < epochs->row_count && values && numbers; row++) {
            if (numbers[row] != (double)best->epoch || isnan(values[row]))
                continue;
            (void)snprintf(name, sizeof name, "best_%s%s", prefix, metric_names[i]);
            (void)json_object_set_new(object, name, json_real(values[row]));
        }
    }
}

/* Returns what the evaluation of each set alone gave in the best epochs. They may be of a part of the run
 * before it was resumed: so they come from metrics.jsonl. */
static json_t *best_of_sets(Training *training)
{
    const TrainingSets *sets = &training->session.data.sets;
    const RunState *state = &training->state;
    char path[PATH_MAX];
    FshError error = {0};
    RunHistory history = {0};
    json_t *array = json_array();
    FshStatus status = file_join(path, sizeof path, training->record.folder, record_metrics_name, &error);
    status = status ? status : run_history_read(&history, path, &error);
    if (status)
        console_warning(&training->session.console, "the sets' metrics are not in the report: %s",
                        error.message);
    for (size_t i = 0; i < sets->count && array; i++) {
        json_t *object = json_pack("{s:o}", "name", json_text(sets->names[i]));
        if (object && state->best.any)
            set_best_of_set(object, &history.epochs, "eval_", "", sets->names[i], &state->best);
        if (object && state->best_average.any)
            set_best_of_set(object, &history.epochs, "ema_", "ema_", sets->names[i], &state->best_average);
        (void)json_array_append_new(array, object);
    }
    run_history_free(&history);
    return array;
}

FshStatus training_print_json(Training *training, uint64_t skipped, FshError *error)
{
    const RunState *state = &training->state;
    json_t *object = json_pack(
        "{s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:i, s:s, s:b, s:I}", "output",
        json_text(training->record.folder), "model", training->session.plan.model->name, "epochs",
        (json_int_t)state->epoch, "seconds", json_measured(training_seconds(training)), "images_per_second",
        json_measured(images_per_second(training)), "evaluation_seconds",
        json_measured(state->evaluation_seconds), "loader_bound_percent",
        json_measured(loader_share(training)), "workers", loader_active_workers(training->session.train),
        "fed_from", training->session.plan.source->name, "stopped_early", training->stopped_early,
        "skipped_samples", (json_int_t)skipped);
    const int norm_sample = training->session.plan.recipe.norm_sample;
    if (object && norm_sample > 1) /* another network than the one of that name */
        (void)json_object_set_new(object, "norm_sample", json_integer(norm_sample));
    if (object && state->best.any)
        set_best(object, "", &state->best);
    if (object && state->best_average.any)
        set_best(object, "ema_", &state->best_average);
    if (object && training->session.data.sets.count > 1 && state->best.any)
        (void)json_object_set_new(object, "sets", best_of_sets(training));
    return describe_print_json(object, error);
}

/* Warns, and returns true, if weights better than those on disk could not be saved. */
static bool tell_lost(Training *training, const char *name, const BestEpoch *best, const BestEpoch *saved)
{
    const Metric metric = training->session.plan.main_metric;
    const TrainPlan *plan = &training->session.plan;
    char held[64] = "is not there", place[40];
    if (!best->any || !training_is_better(training, &best->metrics, saved))
        return false;
    if (saved->any)
        (void)snprintf(held, sizeof held, "holds those of %s",
                       plan_epoch_text(plan, saved->epoch, place, sizeof place));
    console_warning(&training->session.console,
                    "the weights of %s, the best (%s %.2f), could not be saved: %s/%s %s",
                    plan_epoch_text(plan, best->epoch, place, sizeof place), metric_titles[metric],
                    metrics_value(&best->metrics, metric), training->record.folder, name, held);
    return true;
}

bool training_tell_losses(Training *training, uint64_t skipped)
{
    Session *session = &training->session;
    const bool stale = run_files_stale(&training->files);
    if (stale)
        console_warning(&session->console, "%s: the newest weights could not be saved; make room, then %s",
                        training->record.folder,
                        is_there(training, record_checkpoint_name)
                            ? "--resume auto or train again"
                            : "train again with --force: there is no checkpoint to go on from");
    if (skipped) {
        const FshDataset *dataset = session->data.dataset;
        const bool files = fsh_container_has(fsh_manifest(dataset)->container, FSH_HAS_FILES);
        console_warning(&session->console,
                        "%" PRIu64 " sample%s could not be read, skipped; %s %s lists all%s", skipped,
                        text_plural(skipped), files ? "fpack" : "fverify", fsh_path(dataset),
                        files ? " and leaves them out" : "");
    }
    const RunState *state = &training->state;
    const bool lost = tell_lost(training, record_best_name, &state->best, &state->saved);
    const bool lost_average =
        tell_lost(training, record_average_name, &state->best_average, &state->saved_average);
    return stale || skipped || lost || lost_average;
}
