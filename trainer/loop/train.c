#include "trainer/loop/train.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/session/describe.h"
#include "trainer/session/ranks_alike.h"
#include "trainer/session/ranks_weights.h"
#include "trainer/plan/evaluation_interval.h"
#include "trainer/loop/run_output.h"
#include "trainer/session/run_space.h"
#include "trainer/loop/train_internal.h"

double training_seconds(const Training *training)
{
    return progress_now_seconds() - training->start_seconds;
}

/* Returns the interval in force: the plan's, or the chosen one; 0: none was chosen yet. */
static uint64_t evaluation_interval(const Training *training)
{
    const uint64_t planned = training->session.plan.evaluation_interval;
    return planned ? planned : training->state.evaluation_interval;
}

double training_evaluation_left(const Training *training)
{
    const Session *session = &training->session;
    const RunState *state = &training->state;
    const uint64_t count = session->evaluation ? evaluation_count(evaluation_interval(training), state->epoch,
                                                                  session->plan.epochs)
                                               : 0;
    return state->last_evaluation_seconds * (double)count;
}

void training_warn_of(Training *training, FshStatus status, const FshError *error)
{
    if (status)
        console_warning(&training->session.console, "%s; training goes on", error->message);
}

/* ---- one epoch ---- */

bool training_is_better(const Training *training, const Metrics *metrics, const BestEpoch *than)
{
    const Metric metric = training->session.plan.main_metric;
    const double value = metrics_value(metrics, metric), other = metrics_value(&than->metrics, metric);
    const bool better = metric_rises(metric) ? value > other : value < other;
    return !than->any || better || (isnan(other) && !isnan(value));
}

/* Waits for the file of the best weights. Where they could not be saved, makes *saved those on disk again. */
static void settle_best(Training *training, RunFile file, BestEpoch *saved)
{
    run_files_settle_file(&training->files, file);
    if (training->files.stale_of[file])
        *saved = training->best_before[file];
}

/* Waits for all that is being saved. */
static void settle_files(Training *training)
{
    run_files_settle(&training->files);
    settle_best(training, RUN_BEST, &training->state.saved);
    settle_best(training, RUN_AVERAGE, &training->state.saved_average);
}

/* Returns whether these are the best weights so far. Saves them if they are better than those on disk, which
 * may be older than the best: a save that failed is made up for by a later epoch. */
static bool save_if_best(Training *training, RunFile file, const Metrics *metrics, BestEpoch *best,
                         BestEpoch *saved)
{
    const BestEpoch now = {.any = true, .epoch = training->state.epoch, .metrics = *metrics};
    const bool is_best = training_is_better(training, metrics, best);
    if (is_best)
        *best = now;
    settle_best(training, file, saved);
    if (!training_is_better(training, metrics, saved))
        return is_best;
    training->best_before[file] = *saved;
    *saved = now;
    run_files_save_weights(&training->files, file, &training->state, metrics);
    return is_best;
}

/* Prints what the evaluation of a set alone has given. */
static void tell_set(Session *session, const char *what, size_t set, const Metrics *metrics)
{
    char name[120];
    if (!metrics->count)
        return;
    (void)snprintf(name, sizeof name, "%s%.100s", what, session->data.sets.names[set]);
    console_evaluated(&session->console, name, metrics, "");
}

static FshStatus evaluate_weights(Training *training, NetworkWeights weights, Metrics *metrics,
                                  FshError *error)
{
    Session *session = &training->session;
    RunState *state = &training->state;
    const double start = progress_now_seconds();
    const SessionVisitor visitor = run_report_visitor(training->report);
    FshStatus status = session_evaluate(session, weights, &visitor, metrics, error);
    state->evaluation_seconds += progress_now_seconds() - start;
    if (status == FSH_ERR_INTERRUPTED)
        return training_stop_for_signal(training, error);
    if (status) {
        (void)training_keep_learnt(training);
        return status;
    }
    const bool averaged = weights == NETWORK_AVERAGED;
    const bool best =
        averaged ? save_if_best(training, RUN_AVERAGE, metrics, &state->best_average, &state->saved_average)
                 : save_if_best(training, RUN_BEST, metrics, &state->best, &state->saved);
    if (best)
        run_report_best(training->report, averaged);
    for (size_t i = 0; i < session->data.sets.count && session->data.sets.count > 1; i++)
        tell_set(session, averaged ? "EMA " : "", i, &session->set_metrics[weights][i]);
    console_evaluated(&session->console, averaged ? "EMA" : "", metrics, best ? " (best)" : "");
    return FSH_OK;
}

/* Chooses the evaluation interval from the times of the epoch and of its evaluation, for all ranks and for
 * good: a resumed run finds it in its checkpoint. */
static FshStatus choose_interval(Training *training, FshError *error)
{
    Session *session = &training->session;
    RunState *state = &training->state;
    char training_text[32], evaluation_text[32], when[96];
    const uint64_t epochs = session->plan.epochs;
    if (evaluation_interval(training) || state->epoch + 1 >= epochs)
        return FSH_OK;
    uint64_t interval = evaluation_interval_choose(state->epoch_seconds, state->last_evaluation_seconds,
                                                   state->epoch, epochs);
    FshStatus status = ranks_max_count(session->communicator, &interval, error);
    if (status)
        return status;
    state->evaluation_interval = interval;
    if (interval == 1)
        return FSH_OK;
    (void)progress_format_duration(training_text, sizeof training_text, state->epoch_seconds);
    (void)progress_format_duration(evaluation_text, sizeof evaluation_text, state->last_evaluation_seconds);
    if (interval < epochs && plan_counts_iterations(&session->plan))
        (void)snprintf(when, sizeof when, "every %" PRIu64 " iterations from here on, and after the last",
                       plan_iterations(&session->plan, interval * session->plan.steps_per_epoch));
    else if (interval < epochs)
        (void)snprintf(when, sizeof when, "every %" PRIu64 " epochs from here on, and after the last",
                       interval);
    else
        (void)snprintf(when, sizeof when, "after the last epoch alone from here on");
    console_line(&session->console,
                 "evaluation takes %s, an epoch's training %s: evaluated %s (--val-interval 1: every epoch)",
                 evaluation_text, training_text, when);
    return FSH_OK;
}

/* Returns whether the epoch in hand is evaluated. */
static bool evaluates_epoch(const Training *training)
{
    const Session *session = &training->session;
    return session->evaluation &&
           evaluation_is_due(evaluation_interval(training), training->state.epoch + 1, session->plan.epochs);
}

/* Evaluates the weights and their average, if an evaluation is due. writes: without evaluation the average is
 * saved. */
static FshStatus evaluate_epoch(Training *training, EpochReport *report, bool writes, FshError *error)
{
    Session *session = &training->session;
    const bool average = session->network.average != NULL;
    const bool due = evaluates_epoch(training);
    const bool saves = average && !session->evaluation && writes;
    FshStatus status = (average && due) || saves ? network_take_average(&session->network, error) : FSH_OK;
    if (!status && saves)
        run_files_save_weights(&training->files, RUN_AVERAGE, &training->state, NULL);
    if (status || !due)
        return status;
    const double before = training->state.evaluation_seconds;
    status = ranks_share_buffers(session->communicator, session->network.state,
                                 network_graph(&session->network), error);
    if (!status && average)
        status = ranks_share_buffers(session->communicator, session->network.average,
                                     session->network.evaluation[NETWORK_AVERAGED][0].graph, error);
    if (status)
        return status;
    status = evaluate_weights(training, NETWORK_TRAINED, &report->evaluation, error);
    report->evaluated = !status;
    if (!status && average)
        status = evaluate_weights(training, NETWORK_AVERAGED, &report->average, error);
    report->averaged = average && !status;
    report->evaluation_seconds = training->state.evaluation_seconds - before;
    if (status)
        return status;
    training->state.last_evaluation_seconds = report->evaluation_seconds;
    return choose_interval(training, error);
}

/* Applies an evaluation to the epochs to come: plateau schedule and early stopping. */
static void look_at(Training *training, const EpochReport *report)
{
    const TrainPlan *plan = &training->session.plan;
    RunState *state = &training->state;
    if (!report->evaluated)
        return;
    if (plan_uses_plateau(plan) && state->steps_done > plan->schedule.warmup_steps &&
        plateau_step(&state->plateau, &plan->plateau,
                     metrics_value(&report->evaluation, plan->plateau_metric)))
        console_line(&training->session.console,
                     "%s has stopped getting better: learning rate %.4g from here on",
                     metric_names[plan->plateau_metric], state->plateau.rate);
    if (plan->early_stop.patience)
        training->stopped_early =
            early_stop_step(&state->early_stop, &plan->early_stop,
                            metrics_value(&report->evaluation, plan->early_stop_metric));
}

/* Prints the line of an epoch, with ", 4:10 left" unless it is the last, and with --verbose ", order 6be5…"
 * to compare runs by. */
static void tell_epoch(Training *training, const EpochReport *report)
{
    const TrainPlan *plan = &training->session.plan;
    char order[32] = "", left[48] = "", duration[32], place[80], shown[48] = "";
    const uint64_t steps = plan_epoch_steps(plan, report->epoch),
                   done = plan_steps_before(plan, report->epoch + 1);
    const double seconds = report->step_seconds / (double)steps * (double)(plan->total_steps - done) +
                           training_evaluation_left(training);
    if (metrics_has(&report->train, plan->main_metric))
        (void)snprintf(shown, sizeof shown, ", %s %.2f", metric_titles[plan->main_metric],
                       metrics_value(&report->train, plan->main_metric));
    if (training->verbose)
        (void)snprintf(order, sizeof order, ", order %016" PRIx64, report->order_digest);
    if (report->epoch + 1 < plan->epochs)
        (void)snprintf(left, sizeof left, ", %s left",
                       progress_format_duration(duration, sizeof duration, seconds));
    console_line(&training->session.console, "%s: loss %.4f%s, %.0f images/s, waited for data %.1f %%%s%s",
                 plan_place_text(plan, report->epoch, place, sizeof place),
                 metrics_value(&report->train, METRIC_LOSS), shown, report->images_per_second,
                 report->step_seconds > 0 ? 100 * report->loader_wait_seconds / report->step_seconds : 0,
                 left, order);
}

/* Fails if every sample of the epoch was skipped: there is no loss to report, and the next epoch would have
 * no more. */
static FshStatus check_learnt(const Training *training, const Epoch *epoch, const Metrics *total,
                              FshError *error)
{
    const Session *session = &training->session;
    const FshSplit *split = session->data.train;
    const uint64_t taken = epoch->steps * plan_total_batch(&session->plan);
    uint64_t samples = epoch->samples;
    if (total->count || !epoch->steps)
        return FSH_OK;
    FshStatus status = ranks_sum_count(session->communicator, &samples, error);
    if (status || samples)
        return status;
    return fsh_error_set(error, FSH_ERR_CORRUPT,
                         "epoch %" PRIu64 ": of the %" PRIu64 " samples that it took from split '%s' none "
                         "could be read, so that nothing was learnt; fverify names what is wrong with them",
                         training->state.epoch, taken < split->sample_count ? taken : split->sample_count,
                         split->info->name);
}

/* The digest of an epoch's order, summed up by a thread beside the steps: 50,000 samples take 14 ms. */
typedef struct OrderDigest {
    Sampler sampler; /* a copy: the loader may give way to another within the epoch, with what it borrows */
    uint64_t pass, value;
    pthread_t thread;
    bool started;
} OrderDigest;

static void *sum_order(void *context)
{
    OrderDigest *digest = context;
    digest->value = sampler_order_digest(&digest->sampler, digest->pass);
    return NULL;
}

/* Begins the digest of the pass in which the epoch's steps end. Sums it up at once where the loader may give
 * way (session_feed.h) and has orders of classes or sets, which go with it. */
static void start_order_digest(OrderDigest *digest, const Training *training)
{
    const Session *session = &training->session;
    const uint64_t done = plan_steps_before(&session->plan, training->state.epoch + 1);
    *digest = (OrderDigest){.sampler = *loader_sampler(session->train),
                            .pass = (done - 1) / loader_step_count(session->train)};
    const bool borrows = digest->sampler.classes || digest->sampler.sets;
    digest->started = !(borrows && session->plan.cache_follows) &&
                      pthread_create(&digest->thread, NULL, sum_order, digest) == 0;
    if (!digest->started)
        (void)sum_order(digest);
}

/* Returns the digest; waits for it. */
static uint64_t end_order_digest(OrderDigest *digest)
{
    if (digest->started)
        (void)pthread_join(digest->thread, NULL);
    return digest->value;
}

/* Returns whether the epoch in hand saves weights and a checkpoint. Epochs that are shorter than the writing
 * of their files leave them to a later one, but for the last epoch and those whose weights are looked at. */
static bool writes_files(Training *training)
{
    const bool is_last = training->state.epoch + 1 == training->session.plan.epochs;
    return is_last || evaluates_epoch(training) || !run_files_is_behind(&training->files);
}

static FshStatus run_epoch(Training *training, FshError *error)
{
    Session *session = &training->session;
    RunState *state = &training->state;
    /* If all steps were done before the run was resumed for the evaluation: the rate of the last of them. */
    const uint64_t last = state->step ? state->steps_done - 1 : state->steps_done;
    Epoch epoch = {.learning_rate = training_learning_rate(training, last), .gradient_norm = NAN};
    OrderDigest order;
    start_order_digest(&order, training);
    FshStatus status = training_steps(training, &epoch, error);
    const uint64_t order_digest = end_order_digest(&order);
    Metrics total = state->metrics;
    if (!status)
        status = ranks_sum_metrics(session->communicator, &total, error);
    if (!status)
        status = check_learnt(training, &epoch, &total, error);
    if (status)
        return status;
    /* From here on the folder has weights, and a checkpoint before them: a run that is killed while it writes
     * the first weights can be resumed. */
    if (!training->saved)
        training_save_checkpoint(training);
    RunState learnt = *state; /* the state with which the evaluation is repeated */
    learnt.metrics = training_writes(training) ? total : (Metrics){0};
    EpochReport report = {
        .epoch = state->epoch,
        .train = total,
        .learning_rate = epoch.learning_rate,
        .images_per_second = state->epoch_seconds > 0 ? (double)total.count / state->epoch_seconds : 0,
        .step_seconds = state->epoch_seconds,
        .loader_wait_seconds = state->epoch_wait_seconds,
        .image_size = plan_edge(&session->plan, state->epoch),
        .order_digest = order_digest,
        .iteration = plan_iterations(&session->plan, plan_steps_before(&session->plan, state->epoch + 1)),
        .iterations = plan_iterations(&session->plan, session->plan.total_steps),
    };
    tell_epoch(training, &report);
    const bool writes = writes_files(training);
    status = evaluate_epoch(training, &report, writes, error);
    if (status)
        return status;
    report.set_evaluation = session->set_metrics[NETWORK_TRAINED];
    report.set_average = session->set_metrics[NETWORK_AVERAGED];
    const Metrics *metrics = report.evaluated ? &report.evaluation : NULL;
    look_at(training, &report);
    state->finished = training->stopped_early || state->epoch + 1 == session->plan.epochs;
    if (writes)
        run_files_save_weights(&training->files, RUN_LAST, state, metrics);
    run_files_keep(&training->files, state, metrics);
    report.seconds = training_seconds(training);
    FshError record_error = {0};
    if (training_writes(training))
        training_warn_of(training, record_epoch(&training->record, &report, &record_error), &record_error);
    char verdict[512];
    training_say_verdict(training, verdict, sizeof verdict);
    run_report_epoch(training->report, &report, state->steps_done, verdict);

    state->epoch++;
    state->step = 0;
    state->metrics = (Metrics){0};
    state->epoch_seconds = state->epoch_wait_seconds = 0;
    if (state->finished)
        settle_files(training);
    /* If weights could not be saved at the end, resuming saves them: it begins with the evaluation. */
    training_save_checkpoint_at(
        training, state->finished && run_files_weights_stale(&training->files) ? &learnt : state, writes);
    return FSH_OK;
}

static FshStatus run_epochs(Training *training, FshError *error)
{
    Session *session = &training->session;
    const RunState *state = &training->state;
    const TrainPlan *plan = &session->plan;
    const uint64_t first = plan_steps_before(plan, state->epoch) + state->step;
    FshStatus status = FSH_OK;
    loader_start(session->train, first, plan->total_steps - first);
    session_feed_start(&training->feed, session, first);
    if (!session->console.quiet) /* on a CPU a step may take minutes */
        interrupt_say("ftrain: ends after this step and saves its state", session->console.terminal);
    while (!status && !state->finished && state->epoch < plan->epochs)
        status = run_epoch(training, error);
    interrupt_say(NULL, false);
    console_clear(&session->console);
    if (!status && training->stopped_early)
        console_line(&session->console, "stopped early: %s has not got better in %lld epoch%s",
                     metric_names[plan->early_stop_metric], (long long)plan->early_stop.patience,
                     text_plural((uint64_t)plan->early_stop.patience));
    return status;
}

/* ---- a run ---- */

/* Opens the run's own folder, or the one in which an earlier part of the run has left its checkpoint. */
static FshStatus open_record(Training *training, const TrainOptions *options, const char *checkpoint,
                             FshError *error)
{
    Session *session = &training->session;
    const RunState *state = &training->state;
    const RecordShape shape = {.main_metric = session->plan.main_metric,
                               .averaged = session->network.average != NULL,
                               .iterations = plan_counts_iterations(&session->plan),
                               .sets = session->data.sets.count > 1 ? session->data.sets.names : NULL,
                               .set_count = session->data.sets.count};
    const uint64_t steps_now = run_shape(session).accumulation, steps_before = training->before.accumulation;
    /* the tables count the steps of before */
    const uint64_t step = steps_now == steps_before ? state->step : state->step / steps_now * steps_before;
    char *arguments = NULL;
    FshStatus status = describe_arguments(options, session, &arguments, error);
    if (!status && run_output_goes_on(options, checkpoint))
        status =
            record_resume(&training->record, options->output, &shape, arguments, state->epoch, step, error);
    else if (!status)
        status = record_open(&training->record, options->output, run_output_may_empty(options, checkpoint),
                             &shape, arguments, error);
    free(arguments);
    return status;
}

/* Checks that all ranks have read the same checkpoint, and notes its step. */
static FshStatus check_same_place(Training *training, FshError *error)
{
    const RunState *state = &training->state;
    Session *session = &training->session;
    json_t *facts = json_pack("{s:I, s:I}", "epoch to go on from", (json_int_t)state->epoch,
                              "step to go on from", (json_int_t)state->step);
    FshStatus status = ranks_check_facts(session->communicator, facts, error);
    if (!status)
        status = ranks_check_weights(
            session->communicator, session->network.state, network_graph(&session->network),
            " in the checkpoint; --resume must name the same file on all hosts", error);
    training->alike_steps = state->steps_done;
    return status;
}

/* Opens the session: data and network. */
static FshStatus open_session(Training *training, const TrainOptions *options, const char *checkpoint,
                              FshError *error)
{
    TrainOptions own = *options;
    if (checkpoint[0])
        run_resume_take(checkpoint, &own);
    return session_open(&training->session, &own, SESSION_TRAIN, error);
}

/* Sets the state to that of the checkpoint or to the beginning, and checks that the disk has room for the
 * run's files. */
static FshStatus open_state(Training *training, const TrainOptions *options, const char *checkpoint,
                            FshError *error)
{
    Session *session = &training->session;
    RunState *state = &training->state;
    FshStatus status = FSH_OK;
    state->plateau = plateau_start(session->plan.schedule.base);
    training->before = run_shape(session);
    if (checkpoint[0])
        status = run_resume(checkpoint, session, options, state, &training->before, error);
    if (session->plan.rank > 0)
        state->metrics = (Metrics){0}; /* rank 0 alone keeps what was counted before */
    if (!status && training_writes(training) && !state->finished)
        status = run_space_check(session, options, options->output, error);
    return status ? status : training_open_steps(training, error);
}

static void tell_plan(Training *training, const TrainOptions *options, const char *checkpoint)
{
    Session *session = &training->session;
    session_describe(session);
    if (checkpoint[0])
        run_resume_tell(session, checkpoint, &training->state, &training->before);
    else
        session_describe_begin(session);
    if (options->program.verbose && training_writes(training)) {
        describe_network(session, true, stderr);
        describe_plans(session, stderr);
    }
}

static FshStatus open_files(Training *training, const TrainOptions *options, const char *checkpoint,
                            FshError *error)
{
    Session *session = &training->session;
    const bool writes = training_writes(training);
    FshStatus status = writes ? open_record(training, options, checkpoint, error) : FSH_OK;
    if (!status)
        status = run_files_open(&training->files, session, writes ? &training->record : NULL, options, error);
    if (!status && writes && !training->state.finished) /* a finished run has nothing to show */
        status =
            run_report_open(&training->report, session, &training->record, options, &training->state, error);
    return status;
}

/* Opens the session and, in the output folder that it claims, the state of the run. Sets checkpoint, of
 * PATH_MAX bytes, to that which the run goes on from, or to "", and *made_folder_ret. Every rank calls it. */
static FshStatus prepare_run(Training *training, const TrainOptions *options, char *checkpoint,
                             bool *made_folder_ret, FshError *error)
{
    Session *session = &training->session;
    FshStatus status = run_resume_find(options, checkpoint, PATH_MAX, error);
    if (!status)
        status = open_session(training, options, checkpoint, error);
    /* After the dataset: if the two arguments are swapped, the error should say that. Before the checkpoint
     * is read: a running run has not written its last one. */
    if (!status && training_writes(training))
        status =
            run_output_claim(&training->lock, &session->console, options, checkpoint, made_folder_ret, error);
    if (session->communicator)
        status = ranks_agree(session->communicator, status, error);
    if (!status)
        status = ranks_agree(session->communicator, open_state(training, options, checkpoint, error), error);
    return status ? status : check_same_place(training, error);
}

FshStatus train_run(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Training training = {.record = RECORD_NONE,
                         .lock = FOLDER_LOCK_NONE,
                         .verbose = options->program.verbose,
                         .log_interval = (uint64_t)options->report.log_interval,
                         .checkpoint_interval = (uint64_t)options->checkpoint.interval};
    Session *session = &training.session;
    RunState *state = &training.state;
    bool made_folder = false;
    char checkpoint[PATH_MAX] = "";
    FshStatus status = prepare_run(&training, options, checkpoint, &made_folder, error);
    if (status)
        goto done;
    tell_plan(&training, options, checkpoint);
    training.stopped_early = state->finished && state->epoch < session->plan.epochs;
    if (!state->finished)
        status = session_cache(session, error);
    if (status)
        goto done; /* nothing was written, and no file of an earlier run removed */
    status = open_files(&training, options, checkpoint, error);
    if (session->communicator)
        status = ranks_agree(session->communicator, status, error);
    if (options->report.profile)
        training_plan_profile(&training, (uint64_t)options->report.profile);
    training.start_seconds = progress_now_seconds() - state->seconds;
    if (!status && !checkpoint[0] && !options->weights)
        status = session_find_first_weight(session, error);
    if (!status)
        status = run_epochs(&training, error);
    run_files_settle(&training.files);
    uint64_t skipped = session_problem_count(session);
    if (!status)
        status = ranks_sum_count(session->communicator, &skipped, error);
    if (status)
        goto done;
    const bool writes = training_writes(&training);
    *partial_ret = writes ? training_tell_losses(&training, skipped) : skipped > 0;
    if (!writes)
        goto done;
    if (options->program.json)
        status = training_print_json(&training, skipped, error);
    else
        training_print_result(&training, options->report.verdict, options->program.quiet);
done:
    if (status)
        status = ranks_explain(session->communicator, status, error);
    training_close_steps(&training);
    run_report_end(training.report, state,
                   status                   ? error ? error->message : NULL
                   : training.stopped_early ? "It had stopped getting better (--early-stop-patience)."
                                            : NULL);
    run_report_close(&training.report);
    run_files_close(&training.files);
    record_close(&training.record);
    folder_lock_release(&training.lock);
    if (status)
        ranks_tell_once(session->communicator, error);
    session_close(session);
    if (status && made_folder)
        (void)rmdir(options->output); /* fails if the folder is not empty, as intended */
    return status;
}
