/* train_steps.c - training steps: begun in order, ended in order, as many under way at a time as the network
 * takes.
 *
 * On a device that works on its own, step k + 1 is enqueued before the results of step k are read. Everything
 * that depends on a result (metrics, the log, the check for divergence) concerns the step that has ended. So
 * does RunState: a checkpoint is written only when no step is under way. */
#include "trainer/loop/train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "trainer/session/run_resume.h"
#include "trainer/session/ranks_weights.h"
#include "trainer/report/verdict.h"

enum { KEYS_SHOWN = 4, SKIPPED_UPDATES_MAX = 100 };

FshStatus training_open_steps(Training *training, FshError *error)
{
    const size_t batch = (size_t)training->session.plan.train_spec.batch;
    for (size_t i = 0; i < NETWORK_STEPS_AHEAD; i++) {
        training->notes[i].samples = calloc(batch, sizeof *training->notes[i].samples);
        if (!training->notes[i].samples)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a batch of %zu samples", batch);
    }
    return FSH_OK;
}

void training_close_steps(Training *training)
{
    for (size_t i = 0; i < NETWORK_STEPS_AHEAD; i++) {
        free(training->notes[i].samples);
        training->notes[i] = (StepNote){0};
    }
}

/* ---- reports and checks ---- */

FshStatus training_check_weights(Training *training, FshError *error)
{
    Session *session = &training->session;
    const uint64_t steps = training->state.steps_done;
    char advice[300];
    (void)snprintf(
        advice, sizeof advice,
        " at step %" PRIu64 " of the run, and were at step %" PRIu64
        ": its device computes otherwise, or its memory is damaged; --resume auto goes on from the last "
        "checkpoint, where all had the same",
        steps, training->alike_steps);
    FshStatus status = ranks_check_weights(session->communicator, session->network.state,
                                           network_graph(&session->network), advice, error);
    if (!status)
        training->alike_steps = steps;
    return status;
}

static StepReport report_step(const Training *training, const Epoch *epoch, uint64_t step, const Metrics *now,
                              double seconds, double data_seconds)
{
    const TrainPlan *plan = &training->session.plan;
    const RunState *state = &training->state;
    const double done = (double)(step + 1);
    const uint64_t remaining = plan->total_steps - state->steps_done;
    return (StepReport){
        .epoch = state->epoch,
        .epochs = plan->epochs,
        .step = step,
        .steps = plan_epoch_steps(plan, state->epoch),
        .iteration = plan_iterations(plan, plan_steps_before(plan, state->epoch) + step + 1),
        .iterations = plan_iterations(plan, plan->total_steps),
        .seconds_now = seconds,
        .seconds_mean = state->epoch_seconds / done,
        .data_now = data_seconds,
        .data_mean = state->epoch_wait_seconds / done,
        .now = *now,
        .mean = state->metrics,
        .learning_rate = epoch->learning_rate,
        .gradient_norm = epoch->gradient_norm,
        .images_per_second =
            state->epoch_seconds > 0 ? done * (double)plan_total_batch(plan) / state->epoch_seconds : 0,
        .remaining_seconds = (double)remaining * state->epoch_seconds / done,
        .remaining_evaluation_seconds = training_evaluation_left(training),
    };
}

/* Writes "a/b, a/c and 62 more" to text. */
static void list_keys(const Training *training, const StepNote *note, char *text, size_t text_bytes)
{
    const int64_t count = training->session.plan.train_spec.batch;
    size_t length = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < count && i < KEYS_SHOWN && length < text_bytes; i++) {
        size_t bytes = 0;
        const char *key = session_key(training->session.data.train, note->samples[i], &bytes);
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%.*s", i ? ", " : "",
                                   (int)(bytes < 100 ? bytes : 100), key);
    }
    if (count > KEYS_SHOWN && length < text_bytes)
        (void)snprintf(text + length, text_bytes - length, " and %lld more", (long long)(count - KEYS_SHOWN));
}

static FshStatus fail_diverged(Training *training, const StepNote *note, double loss, FshError *error)
{
    char keys[512], text[1024];
    const RunState *state = &training->state;
    list_keys(training, note, keys, sizeof keys);
    const bool saved = run_files_save_diverged(&training->files, state, note->samples, loss);
    if (!training_writes(training)) { /* all ranks have the same loss */
        ranks_leave_to_first(training->session.communicator, error);
        return FSH_ERR_MISMATCH;
    }
    verdict_of_divergence(&(DivergenceFacts){.loss = loss,
                                             .skipped = training->updates_missed,
                                             .epoch = state->epoch,
                                             .step = state->step,
                                             .rate = note->learning_rate,
                                             .peak_rate = training->session.plan.schedule.base,
                                             .samples = keys,
                                             .folder = training->record.folder,
                                             .saved = saved},
                          text, sizeof text);
    return fsh_error_set(error, FSH_ERR_MISMATCH, "%s", text);
}

/* Fails if the loss is not finite, or too many updates in a row were skipped. With a loss scale a step that
 * overflows is skipped and the scale falls: that is no divergence unless it continues. Where ranks
 * accumulate, the loss is this rank's own, and the gradient's norm 0: the step that updates tells all. */
static FshStatus check_loss(Training *training, const StepNote *note, const StepResult *result,
                            FshError *error)
{
    const bool scales = training->session.plan.recipe.optimizer.loss_scaling;
    if (result->updated)
        training->updates_missed = 0;
    else if (!isfinite(result->gradient_norm)) /* otherwise gradients are being accumulated, which says
                                                * nothing */
        training->updates_missed++;
    const bool refused = !isfinite(result->loss) && !isfinite(result->gradient_norm);
    if ((scales || !refused) && training->updates_missed < SKIPPED_UPDATES_MAX)
        return FSH_OK;
    return fail_diverged(training, note, result->loss, error);
}

/* Returns the learning rate of a step, which is that of the first of its update; a plateau schedule takes
 * over where the warm-up ends. */
double training_learning_rate(const Training *training, uint64_t steps_done)
{
    const TrainPlan *plan = &training->session.plan;
    const uint64_t step = steps_done - steps_done % run_shape(&training->session).accumulation;
    const bool warm = step >= plan->schedule.warmup_steps;
    return plan_uses_plateau(plan) && warm ? training->state.plateau.rate
                                           : schedule_at(&plan->schedule, step);
}

static double momentum_of(const Training *training, uint64_t number)
{
    const Schedule *schedule = &training->session.plan.schedule;
    const uint64_t step = number - number % run_shape(&training->session).accumulation;
    return schedule->cycles_momentum ? schedule_momentum_at(schedule, step) : 0;
}

/* Returns whether a step has two runs: in every sam_interval-th update, as MosaicML Composer counts them. */
static bool perturbs(const Training *training, uint64_t number)
{
    const Optimizer *optimizer = &training->session.plan.recipe.optimizer;
    const uint64_t update = number / run_shape(&training->session).accumulation;
    return optimizer->sam_rho > 0 && (update + 1) % (uint64_t)optimizer->sam_interval == 0;
}

/* ---- one step ---- */

/* Counts the step as done and reports it. */
static void note_step(Training *training, const Epoch *epoch, const StepNote *note, const Metrics *now)
{
    Session *session = &training->session;
    RunState *state = &training->state;
    const uint64_t step = state->step;
    const double end = progress_now_seconds(), seconds = end - training->lap_seconds;
    training->lap_seconds = end;
    state->steps_done++;
    state->step++;
    state->images += note->valid_count * session->plan.world_size;
    session_tell_problems(session);
    state->step_seconds += seconds;
    if (state->steps_done <= training->profile_first) {
        training->profile_before += seconds;
        training->profile_before_count++;
    }
    state->wait_seconds += note->data_seconds;
    session_feed_note(&training->feed, state->steps_done - 1,
                      seconds - note->data_seconds - note->write_seconds);
    state->epoch_seconds += seconds;
    state->epoch_wait_seconds += note->data_seconds;
    StepReport report = report_step(training, epoch, step, now, seconds, note->data_seconds);
    /* of an epoch the first and then every so many; of iterations, whose stretches are of any length, the
     * first of the run and those that divide */
    const uint64_t done = state->steps_done;
    const bool due = report.iterations
                         ? done == session->plan.iteration_steps || done % training->log_interval == 0
                         : step % training->log_interval == 0;
    if (due || step + 1 == report.steps) {
        FshError error = {0};
        /* Sums over all ranks. If one is lost, the next step reports it. */
        (void)ranks_sum_metrics(session->communicator, &report.now, NULL);
        (void)ranks_sum_metrics(session->communicator, &report.mean, NULL);
        if (!session->console.terminal)
            console_step(&session->console, &report);
        if (training_writes(training))
            training_warn_of(training, record_step(&training->record, &report, &error), &error);
        run_report_step(training->report, &report, state->steps_done);
    }
    console_progress(&session->console, &report);
}

/* Ends the oldest step that is under way. */
static FshStatus end_step(Training *training, Epoch *epoch, FshError *error)
{
    const StepNote *note = &training->notes[training->first_note];
    Metrics now = {0};
    StepResult result = {.gradient_norm = NAN, .updated = true};
    FshStatus status =
        note->runs ? network_end_step(&training->session.network, &now, &result, error) : FSH_OK;
    training->first_note = (training->first_note + 1) % NETWORK_STEPS_AHEAD;
    training->under_way--;
    if (!status)
        status = ranks_check_there(training->session.communicator, error);
    if (!status)
        status = check_loss(training, note, &result, error);
    if (status)
        return status;
    epoch->learning_rate = note->learning_rate;
    epoch->gradient_norm = result.gradient_norm;
    epoch->steps++;
    epoch->samples += note->valid_count;
    if (isfinite(result.loss))
        metrics_merge(&training->state.metrics, &now);
    note_step(training, epoch, note, &now);
    if (training->profile_count > 0 &&
        training->state.steps_done == training->profile_first + training->profile_count)
        training_end_profile(training);
    return FSH_OK;
}

/* Ends the run after a failure to get a batch, here or on another rank, or after a signal. Steps begun before
 * are ended and count, unless one of them fails, whose error is then reported, or a rank has ended in the
 * middle of one. */
static FshStatus stop_for_failure(Training *training, Epoch *epoch, FshStatus failed, FshError *error)
{
    FshError later = {0};
    FshStatus status = FSH_OK;
    const Communicator *communicator = training->session.communicator;
    if (communicator && communicator_is_broken(communicator))
        return failed;
    while (!status && training->under_way > 0)
        status = end_step(training, epoch, &later);
    if (status) {
        *error = later;
        return status;
    }
    if (failed == FSH_ERR_INTERRUPTED)
        return training_stop_for_signal(training, error);
    if (training->state.steps_done > 0 && training_keep_learnt(training) && training_writes(training))
        console_warning(&training->session.console,
                        "what was learnt before the error below is saved; --resume auto goes on from there%s",
                        failed == FSH_ERR_CORRUPT && !training->session.plan.skip_bad
                            ? ", with --on-error skip without what cannot be read"
                            : "");
    return failed;
}

static StepNote *next_note(Training *training)
{
    return &training->notes[(training->first_note + training->under_way) % NETWORK_STEPS_AHEAD];
}

/* Takes the next batch and writes it; nothing runs yet. Either all ranks go on from here or none does, since
 * a rank that runs a step waits for the others' gradients. */
static FshStatus take_batch(Training *training, uint64_t number, const Batch **batch_ret, StepNote *note,
                            FshError *error)
{
    Session *session = &training->session;
    const double waited_before = loader_wait_seconds(session->train);
    FshStatus status = loader_next(session->train, batch_ret, error);
    const Batch *batch = *batch_ret;
    note->data_seconds = loader_wait_seconds(session->train) - waited_before;
    note->learning_rate = training_learning_rate(training, number);
    /* A batch of only skipped samples has no mean loss, but other ranks may wait for this one's gradient. */
    const StepRates rates = {note->learning_rate, momentum_of(training, number)};
    const double begin = progress_now_seconds();
    if (!status && (batch->valid_count > 0 || session->communicator))
        status = session_write_step(session, batch, &rates, error);
    note->write_seconds = progress_now_seconds() - begin;
    if (!status) {
        /* fewer, if images that the device refused cannot be decoded here either */
        note->valid_count = batch->valid_count;
        note->runs = batch->valid_count > 0 || session->communicator;
    }
    return ranks_agree(session->communicator, status, error);
}

/* Lets the way in which the run is fed be changed, if that is due. */
static FshStatus look_at_feed(Training *training, FshError *error)
{
    const RunState *state = &training->state;
    if (training->under_way > 0 || !session_feed_is_due(&training->feed, state->steps_done))
        return FSH_OK;
    const FeedMoment now = {state->steps_done, state->step_seconds, state->wait_seconds,
                            session_feed_processor_seconds()};
    const FshStatus status = session_feed_look(&training->feed, &training->session, &now, error);
    training->lap_seconds = progress_now_seconds(); /* it is no part of the step */
    return status;
}

static FshStatus begin_step(Training *training, Epoch *epoch, FshError *error)
{
    Session *session = &training->session;
    StepNote *note = next_note(training);
    const Batch *batch = NULL;
    if (training->under_way == 0)
        training->lap_seconds = progress_now_seconds();
    const uint64_t number = training->state.steps_done + training->under_way;
    FshStatus status = look_at_feed(training, error);
    if (!status)
        status = take_batch(training, number, &batch, note, error);
    if (status)
        return stop_for_failure(training, epoch, status, error);
    memcpy(note->samples, batch->samples, (size_t)session->plan.train_spec.batch * sizeof *note->samples);
    session->network.measures = training_profiles(training, number);
    session->network.perturbs = perturbs(training, number);
    if (note->runs)
        status = network_begin_step(&session->network, batch, error);
    if (status)
        return status;
    run_report_batch(training->report, batch);
    training->under_way++;
    return FSH_OK;
}

/* ---- the steps of an epoch ---- */

/* Returns whether no further step may begin until those under way have ended: the state after the last one is
 * needed (for a checkpoint or a signal), the last update was skipped, so that the run may have to stop at
 * that very step, or a step is measured, or the loader may be changed. */
static bool holds_back(const Training *training)
{
    const uint64_t interval = training->checkpoint_interval,
                   begun = training->state.step + training->under_way;
    const uint64_t number = training->state.steps_done + training->under_way;
    return ranks_interrupted(training->session.communicator) || training->updates_missed > 0 ||
           (interval && begun % interval == 0) || training_profiles(training, number) ||
           training_profiles(training, number - 1) || session_feed_is_due(&training->feed, number) ||
           session_feed_is_alone(&training->feed, number - 1);
}

FshStatus training_steps(Training *training, Epoch *epoch, FshError *error)
{
    const uint64_t steps = plan_epoch_steps(&training->session.plan, training->state.epoch),
                   interval = training->checkpoint_interval;
    const size_t ahead = network_steps_ahead(&training->session.network);
    const RunState *state = &training->state;
    while (state->step < steps) {
        const bool may_begin = training->under_way < ahead && state->step + training->under_way < steps;
        if (training->under_way == 0 || (may_begin && !holds_back(training))) {
            FshStatus status = begin_step(training, epoch, error);
            if (status)
                return status;
            continue;
        }
        FshStatus status = end_step(training, epoch, error);
        if (status)
            return status;
        if (training->under_way > 0)
            continue;
        if (ranks_interrupted(training->session.communicator))
            return training_stop_for_signal(training, error);
        if (!interval || state->step % interval != 0 || state->step == steps)
            continue;
        status = training_check_weights(training, error);
        if (status)
            return status;
        training_save_checkpoint(training);
    }
    return training_check_weights(training, error);
}
