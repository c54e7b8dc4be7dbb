#include "trainer/session/run_resume.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/options_value.h"
#include "common/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/deciding_options.h"
#include "trainer/plan/plan_chosen.h"
#include "trainer/report/run_record.h"
#include "trainer/session/session_weights.h"

static const char auto_word[] = "auto"; /* in place of a path: what lies in OUTPUT, or a new run */

static const char *word_at(size_t i)
{
    return i == 0 ? auto_word : NULL;
}

/* Checks that a path that is nearly "auto" exists: else that was meant. */
static FshStatus check_not_misspelt(const char *path, FshError *error)
{
    char near[sizeof auto_word];
    if (file_exists(path) || !*options_names_near(path, word_at, near, sizeof near))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "--resume: '%s' is no checkpoint or output folder that exists; did you mean %s?",
                         path, near);
}

FshStatus run_resume_find(const TrainOptions *options, char *buffer, size_t buffer_bytes, FshError *error)
{
    buffer[0] = '\0';
    if (!options->checkpoint.resume)
        return FSH_OK;
    if (strcmp(options->checkpoint.resume, auto_word) == 0) {
        if (!options->output)
            return FSH_OK;
        FshStatus status = file_join(buffer, buffer_bytes, options->output, record_checkpoint_name, error);
        if (!status && !file_exists(buffer))
            buffer[0] = '\0';
        return status;
    }
    if (file_is_folder(options->checkpoint.resume))
        return file_join(buffer, buffer_bytes, options->checkpoint.resume, record_checkpoint_name, error);
    if ((size_t)snprintf(buffer, buffer_bytes, "%s", options->checkpoint.resume) >= buffer_bytes)
        return fsh_error_set(error, FSH_ERR_USAGE, "--resume: the path is too long");
    return check_not_misspelt(buffer, error);
}

bool run_resume_lies_in(const char *checkpoint, const char *folder)
{
    char own[PATH_MAX];
    struct stat there, here;
    const char *slash = strrchr(checkpoint, '/');
    const size_t length = slash ? (size_t)(slash - checkpoint) + 1 : 0;
    if (length >= sizeof own)
        return false;
    (void)snprintf(own, sizeof own, "%.*s", (int)length, length ? checkpoint : "");
    return stat(length ? own : ".", &there) == 0 && stat(folder, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

/* ---- shapes ---- */

enum { COUNT_MAX = 1 << 20 }; /* of ranks, of images in a batch, of steps in an update */

RunShape run_shape(const Session *session)
{
    const TrainPlan *plan = &session->plan;
    const int64_t accumulation = plan->recipe.optimizer.accumulation_steps;
    return (RunShape){.ranks = plan->world_size,
                      .batch = (uint64_t)plan->train_spec.batch,
                      .accumulation = accumulation > 1 ? (uint64_t)accumulation : 1,
                      .steps = plan->steps_per_epoch};
}

uint64_t run_shape_images(const RunShape *shape)
{
    return shape->ranks * shape->batch * shape->accumulation;
}

/* Returns a count of the notes from 1 to `most`, or `missing` where they have none, as those of earlier
 * versions. */
static uint64_t count_of(const json_t *notes, const char *name, uint64_t most, uint64_t missing)
{
    const json_t *value = json_object_get(notes, name);
    const json_int_t count = json_is_integer(value) ? json_integer_value(value) : 0;
    return count > 0 && (uint64_t)count <= most ? (uint64_t)count : missing;
}

RunShape run_shape_noted(const json_t *notes)
{
    const json_t *options = json_object_get(notes, "options");
    return (RunShape){.ranks = count_of(notes, "ranks", COUNT_MAX, 1),
                      .batch =
                          count_of(notes, "batch", COUNT_MAX, count_of(options, "batch_size", COUNT_MAX, 0)),
                      .accumulation = count_of(options, "grad_accum_steps", COUNT_MAX, 1),
                      .steps = count_of(notes, "steps", INT64_MAX, 0)};
}

void run_resume_take(const char *path, TrainOptions *options)
{
    json_t *notes = NULL;
    options->weights = NULL;
    if (checkpoint_notes(path, &notes, NULL))
        return;
    const RunShape was = run_shape_noted(notes);
    options->run_batch = was.batch;
    options->run_ranks = was.ranks;
    json_decref(notes);
}

/* Returns the shape of the run that has left the notes. batch 0: it was chosen, by a version that did not
 * note it. */
static RunShape noted_shape(const json_t *notes, const Session *session)
{
    const RunShape now = run_shape(session);
    const uint64_t samples = session->plan.pass_count;
    RunShape was = run_shape_noted(notes);
    if (!was.batch && was.ranks == now.ranks)
        was.batch = now.batch;
    const bool counts = plan_counts_iterations(&session->plan); /* steps may be those of several passes */
    if (!was.steps || (was.steps > samples && !counts))
        was.steps = was.batch ? samples / (was.batch * was.ranks) : 0;
    return was;
}

/* Writes what would make an update of `images`: "--batch-size 12 or --grad-accum-steps 4". */
static void say_what_fits(const RunShape *now, uint64_t images, char *text, size_t text_bytes)
{
    const uint64_t of_batch = now->ranks * now->accumulation, of_steps = now->ranks * now->batch;
    int length = 0;
    if (images % of_batch == 0)
        length = snprintf(text, text_bytes, "--batch-size %" PRIu64, images / of_batch);
    if (images % of_steps == 0)
        (void)snprintf(text + length, text_bytes - (size_t)length, "%s--grad-accum-steps %" PRIu64,
                       length ? " or " : "", images / of_steps);
    else if (!length && images % now->ranks == 0)
        (void)snprintf(text, text_bytes, "--batch-size %" PRIu64 " --grad-accum-steps 1",
                       images / now->ranks);
    else if (!length)
        (void)snprintf(text, text_bytes, "as many ranks as divide %" PRIu64, images);
}

/* Checks that each update of the run takes as many images as it would have taken. */
static FshStatus check_shape(const char *path, const RunShape *was, const RunShape *now, FshError *error)
{
    char fits[128];
    if (!was->batch)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: the run had %" PRIu64 " rank%s, this one has %" PRIu64
            ", and its version has not noted the batch size that it chose; start as many, or begin "
            "a new run with --weights",
            path, was->ranks, text_plural(was->ranks), now->ranks);
    const uint64_t before = run_shape_images(was), after = run_shape_images(now);
    say_what_fits(now, before, fits, sizeof fits);
    if (before != after)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: each update of the run took %" PRIu64 " images (ranks x batch size x accumulation: "
            "%" PRIu64 " x %" PRIu64 " x %" PRIu64 "), and would take %" PRIu64 " (%" PRIu64 " x %" PRIu64
            " x %" PRIu64 ") now; start with %s, or begin a new run with --weights",
            path, before, was->ranks, was->batch, was->accumulation, after, now->ranks, now->batch,
            now->accumulation, fits);
    return FSH_OK;
}

/* Checks that the updates of the run end with its epochs, where they would end now. counted: the notes say
 * how many steps its epochs have. */
static FshStatus check_epochs(const char *path, const RunShape *was, const RunShape *now, bool counted,
                              FshError *error)
{
    const uint64_t epoch_before = was->steps * was->ranks * was->batch,
                   epoch_after = now->steps * now->ranks * now->batch;
    const bool ends_amid = was->steps % was->accumulation != 0;
    if (epoch_before == epoch_after && !(ends_amid && was->accumulation != now->accumulation))
        return FSH_OK;
    if (!counted && ends_amid)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: is of an earlier version of ftrain, whose epochs of %" PRIu64
                             " images ended amid an update; this version's end with one; end the run with "
                             "that version, or begin a new run with --weights",
                             path, epoch_before);
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: the updates of the run do not end where its epochs of %" PRIu64
                         " images end, and would take other images now (epochs of %" PRIu64
                         "); start as it was started, or begin a new run with --weights",
                         path, epoch_before, epoch_after);
}

/* Returns the steps of the whole run in a shape: its updates are the same in all. */
static uint64_t steps_of_shape(const TrainPlan *plan, const RunShape *shape)
{
    return plan_counts_iterations(plan) ? plan->total_steps / plan->iteration_steps * shape->accumulation
                                        : plan->epochs * shape->steps;
}

/* Returns the steps of the run up to where the state stands. The last epoch may be a shorter one. */
static uint64_t steps_at(const RunState *state, const RunShape *shape, uint64_t total)
{
    const uint64_t steps = state->epoch * shape->steps + state->step;
    return steps < total ? steps : total;
}

/* Checks that the state stands at a place that the run has. */
static FshStatus check_place(const char *path, const RunState *state, const RunShape *was,
                             const TrainPlan *plan, FshError *error)
{
    const uint64_t epochs = plan->epochs, total = steps_of_shape(plan, was);
    if (state->epoch > epochs || state->step > was->steps || (state->epoch == epochs && state->step > 0) ||
        state->steps_done != steps_at(state, was, total))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "%s: stands at epoch %" PRIu64 ", step %" PRIu64 ", %" PRIu64
                             " steps in all: no place in this run",
                             path, state->epoch, state->step, state->steps_done);
    return FSH_OK;
}

/* Sets the state back to its last update, and makes it count the steps of its shape now. */
static void step_to_update(RunState *state, const TrainPlan *plan, const RunShape *was, const RunShape *now)
{
    state->step = state->step / was->accumulation * now->accumulation;
    state->steps_done = steps_at(state, now, steps_of_shape(plan, now));
}

/* Writes the line that tells what differs from before: "" if nothing does. */
static void write_difference(const Session *session, const RunShape *before, char *text, size_t text_bytes)
{
    const RunShape now = run_shape(session);
    text[0] = '\0';
    if (before->ranks == now.ranks && before->batch == now.batch && before->accumulation == now.accumulation)
        return;
    const int length =
        snprintf(text, text_bytes,
                 "ranks x batch size x accumulation: %" PRIu64 " x %" PRIu64 " x %" PRIu64 ", and %" PRIu64
                 " x %" PRIu64 " x %" PRIu64 " before: each update takes the same images",
                 now.ranks, now.batch, now.accumulation, before->ranks, before->batch, before->accumulation);
    const bool sync = session->plan.sync_bn;
    const BatchNorm norm = {.training = true, .sample = session->plan.recipe.norm_sample};
    const uint64_t sees = (uint64_t)batch_norm_sampled(&norm, (int64_t)now.batch) * (sync ? now.ranks : 1),
                   saw = (uint64_t)batch_norm_sampled(&norm, (int64_t)before->batch) *
                         (sync ? before->ranks : 1);
    if (session->plan.model->batch_norm && sees != saw && length > 0 && (size_t)length < text_bytes)
        (void)snprintf(text + length, text_bytes - (size_t)length,
                       "; but batch norm sees %s batches from here on, of %" PRIu64
                       " images instead of %" PRIu64,
                       sees > saw ? "larger" : "smaller", sees, saw);
}

void run_resume_tell(Session *session, const char *path, const RunState *state, const RunShape *before)
{
    const TrainPlan *plan = &session->plan;
    const bool counts = plan_counts_iterations(plan);
    char difference[400];
    write_difference(session, before, difference, sizeof difference);
    if (state->finished) {
        console_line(&session->console,
                     "%s: the run ended after %" PRIu64
                     " %s; nothing is left to do; --force without --resume begins anew",
                     path, counts ? plan_iterations(plan, state->steps_done) : state->epoch,
                     counts ? "iterations" : "epochs");
        return;
    }
    if (counts)
        console_line(&session->console, "goes on from %s: iteration %" PRIu64, path,
                     plan_iterations(plan, state->steps_done));
    else
        console_line(&session->console, "goes on from %s: epoch %" PRIu64 ", step %" PRIu64, path,
                     state->epoch, state->step);
    if (difference[0])
        console_line(&session->console, "%s", difference);
}

/* ---- the same run ---- */

/* Returns the options of the notes with the number of images in a batch and of batches in an update of
 * now, which check_shape compares, and with the evaluation interval of now if both mean 1: earlier
 * versions had 0 as their default. NULL: no memory. */
static json_t *comparable_options(const json_t *notes, const json_t *now, const Session *session)
{
    static const char *const of_shape[] = {"batch_size", "grad_accum_steps"};
    json_t *options = json_copy(json_object_get(notes, "options"));
    const json_t *interval = json_object_get(options, "val_interval");
    int failed = !options;
    for (int i = 0; i < 2 && !failed; i++)
        failed = json_object_set(options, of_shape[i], json_object_get(now, of_shape[i]));
    if (!failed && session->plan.evaluation_interval == 1 && json_is_integer(interval) &&
        json_integer_value(interval) <= 1)
        failed = json_object_set(options, "val_interval", json_object_get(now, "val_interval"));
    if (!failed)
        return options;
    json_decref(options);
    return NULL;
}

/* Checks that the options that decide the result are the same. */
static FshStatus check_options(const char *path, const Session *session, const TrainOptions *options,
                               const json_t *notes, FshError *error)
{
    static const DifferenceWords words = {"--", " ", " (was ", ")", true};
    const TrainOptions defaults = train_options_default();
    const char *slash = strrchr(path, '/');
    char differences[700] = "", last[PATH_MAX];
    json_t *now = deciding_options(options), *plain = deciding_options(&defaults),
           *chosen = plan_chosen(&session->plan, options),
           *before = now ? comparable_options(notes, now, session) : NULL;
    FshStatus status = now && plain && chosen && before
                           ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status)
        deciding_differences(&(DecidedOptions){.options = now, .chosen = chosen},
                             &(DecidedOptions){.options = before, .chosen = json_object_get(notes, "chosen")},
                             plain, &words, differences, sizeof differences);
    (void)snprintf(last, sizeof last, " %.*s/last.safetensors", slash ? (int)(slash - path) : 1,
                   slash ? path : ".");
    if (!file_exists(last + 1))
        last[0] = '\0';
    if (differences[0])
        status =
            fsh_error_set(error, FSH_ERR_MISMATCH,
                          "%s: the run had other options: %s; give the same, or begin a new run in another "
                          "folder from what this one has learnt: --weights%s",
                          path, differences, last);
    json_decref(plain);
    json_decref(chosen);
    json_decref(before);
    json_decref(now);
    return status;
}

/* Checks that the run took the same samples of the dataset. Where it did not, the options tell why, or the
 * files that they name. */
static FshStatus check_choice(const char *path, const Session *session, const TrainOptions *options,
                              const json_t *notes, FshError *error)
{
    const char *before =
        json_string_value(json_object_get(notes, "choice")); /* missing in older checkpoints */
    if (strcmp(before ? before : "", session->data.choice.digest) == 0)
        return FSH_OK;
    FshStatus status = check_options(path, session, options, notes, error);
    return status
               ? status
               : fsh_error_set(error, FSH_ERR_MISMATCH,
                               "%s: the run took other samples of %s: the files that --where and --classes "
                               "name have changed since; give them as they were, or begin a new run with "
                               "--weights",
                               path, fsh_path(session->data.dataset));
}

/* Checks that the labels beside the dataset are those of the run. */
static FshStatus check_labels(const char *path, const Session *session, const json_t *notes, FshError *error)
{
    const char *labels = json_string_value(json_object_get(notes, "labels")); /* missing in older ones */
    const bool had = labels && *labels, has = session->data.labels.path != NULL;
    if (strcmp(had ? labels : "", session->data.labels.digest) != 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: is of a run %s", path,
                             had && has
                                 ? "with other labels than those of --labels; begin a new run with --weights"
                             : had ? "with labels of a file; give it those, --labels FILE"
                                   : "without --labels; leave it out, or begin a new run with --weights");
    return FSH_OK;
}

/* Returns whether the notes have the set among theirs. */
static bool has_set(const json_t *sets, const char *id)
{
    const json_t *set;
    size_t i;
    json_array_foreach((json_t *)sets, i, set)
    {
        const char *its = json_string_value(json_array_get(set, 1));
        if (its && strcmp(its, id) == 0)
            return true;
    }
    return false;
}

/* Fails because the run is on another dataset, and tells which sets are others where there are several. */
static FshStatus tell_dataset(const char *path, const TrainingData *data, const json_t *notes,
                              FshError *error)
{
    const json_t *sets = json_object_get(notes, "sets"), *set;
    char had[300] = "", others[300] = "";
    size_t i;
    if (!sets && data->sets.count == 1)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: is of a run on another dataset than %s", path,
                             fsh_path(data->dataset));
    json_array_foreach((json_t *)sets, i, set)
    {
        const char *name = json_string_value(json_array_get(set, 0));
        (void)snprintf(had + strlen(had), sizeof had - strlen(had), "%s%s", i ? ", " : "", name ? name : "?");
    }
    for (i = 0; i < data->sets.count; i++)
        if (!has_set(sets, fsh_manifest(fsh_member(data->dataset, i))->id))
            (void)snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s",
                           others[0] ? ", " : "", data->sets.names[i]);
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: is of a run on other sets than %s: it had %s%s%s; give the same in the same "
                         "order, or begin a new run with --weights",
                         path, fsh_path(data->dataset), sets ? had : "one dataset",
                         sets && others[0] ? ", and not " : "", sets ? others : "");
}

/* Checks that the notes are of this run: its network, classes, dataset and options. */
static FshStatus check_same_run(const char *path, const Session *session, const TrainOptions *options,
                                const json_t *notes, FshError *error)
{
    const char *dataset = json_string_value(json_object_get(notes, "dataset"));
    const char *model = json_string_value(json_object_get(notes, "model"));
    const char *classes = json_string_value(json_object_get(notes, "class_names")); /* missing in older
                                                                                     * checkpoints */
    if (json_integer_value(json_object_get(notes, "version")) != CHECKPOINT_VERSION)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is of another version of ftrain", path);
    if (!model || strcmp(model, session->plan.model->name) != 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: is of a run of %.64s, not of %s", path,
                             model ? model : "?", session->plan.model->name);
    const FshManifest *manifest = fsh_manifest(session->data.dataset);
    /* Checkpoints of earlier versions have files_id, which covers no content. */
    const bool same_dataset =
        dataset && (strcmp(dataset, manifest->id) == 0 || strcmp(dataset, manifest->files_id) == 0);
    const bool several = session->data.sets.count > 1 || json_object_get(notes, "sets");
    FshStatus status = same_dataset ? check_choice(path, session, options, notes, error)
                       : several    ? tell_dataset(path, &session->data, notes, error)
                                    : FSH_OK; /* other classes say more */
    if (!status && classes)
        status = session_check_classes(session, path, classes, error);
    if (!status && !same_dataset)
        status = tell_dataset(path, &session->data, notes, error);
    if (!status)
        status = check_labels(path, session, notes, error);
    return status ? status : check_options(path, session, options, notes, error);
}

FshStatus run_resume(const char *path, Session *session, const TrainOptions *options, RunState *state,
                     RunShape *before_ret, FshError *error)
{
    json_t *notes = NULL;
    const RunShape now = run_shape(session);
    FshStatus status = checkpoint_notes(path, &notes, error);
    if (!status)
        status = check_same_run(path, session, options, notes, error);
    *before_ret = noted_shape(notes, session);
    bool at_update = before_ret->accumulation != now.accumulation;
    if (!status)
        status = check_shape(path, before_ret, &now, error);
    if (!status)
        status = check_epochs(path, before_ret, &now, run_shape_noted(notes).steps != 0, error);
    if (!status)
        status = run_state_read(state, path, json_object_get(notes, "run"), error);
    if (!status)
        status = check_place(path, state, before_ret, &session->plan, error);
    if (!status && session->network.state)
        status = checkpoint_load(path, session->network.state, network_graph(&session->network), &at_update,
                                 error);
    if (!status && at_update)
        step_to_update(state, &session->plan, before_ret, &now);
    json_decref(notes);
    return status;
}
