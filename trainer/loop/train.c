#include "trainer/loop/train.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "common/interrupt.h"
#include "common/json_text.h"
#include "common/progress.h"
#include "trainer/loop/describe.h"
#include "trainer/loop/session.h"
#include "trainer/loop/weights.h"
#include "trainer/report/run_record.h"

typedef struct Training {
    Session session;
    Record record;
    uint64_t log_interval;
    double start_seconds;
    uint64_t steps_done; /* over all epochs */
    double step_seconds; /* spent in training steps, waiting included */
    double evaluation_seconds;
    uint64_t images; /* trained */
    bool evaluated;  /* at least once; then best_* hold */
    uint64_t best_epoch;
    double best_top1, best_top5;
    bool best_stale, last_stale; /* what is on disk is not the newest: a save has failed */
} Training;

/* One epoch under way. */
typedef struct Epoch {
    uint64_t number;
    Metrics metrics;
    double start_seconds, data_seconds;
    double learning_rate; /* of the last step */
} Epoch;

/* ---- saving: never a reason to stop ---- */

static FshStatus save_weights(Training *training, const char *name, uint64_t epoch, double top1,
                              FshError *error)
{
    char path[PATH_MAX];
    const Session *session = &training->session;
    const WeightsInfo info = {.model = session->plan.model->name,
                              .dataset_id = fsh_manifest(session->data.dataset)->id,
                              .epoch = epoch,
                              .steps = training->steps_done,
                              .top1 = top1};
    FshStatus status = record_path(&training->record, path, sizeof path, name, error);
    if (!status)
        status = weights_save(path, session->network.state, network_graph(&session->network), &info, error);
    return status;
}

static void try_save(Training *training, const char *name, uint64_t epoch, double top1, bool *stale)
{
    FshError error = {0};
    *stale = save_weights(training, name, epoch, top1, &error) != FSH_OK;
    if (*stale)
        console_warning(&training->session.console,
                        "%s; the file before it, if any, is untouched, training goes on", error.message);
}

static void warn_of(Training *training, FshStatus status, const FshError *error)
{
    if (status)
        console_warning(&training->session.console, "%s; training goes on", error->message);
}

/* ---- one epoch ---- */

static StepReport report_step(const Training *training, const Epoch *epoch, uint64_t step, const Metrics *now,
                              double seconds, double data_seconds)
{
    const TrainPlan *plan = &training->session.plan;
    double elapsed = progress_now_seconds() - epoch->start_seconds, done = (double)(step + 1);
    uint64_t remaining = plan->epochs * plan->steps_per_epoch - training->steps_done;
    return (StepReport){
        .epoch = epoch->number,
        .epochs = plan->epochs,
        .step = step,
        .steps = plan->steps_per_epoch,
        .seconds_now = seconds,
        .seconds_mean = elapsed / done,
        .data_now = data_seconds,
        .data_mean = epoch->data_seconds / done,
        .loss_now = metrics_loss(now),
        .loss_mean = metrics_loss(&epoch->metrics),
        .top1_now = metrics_top1(now),
        .top1_mean = metrics_top1(&epoch->metrics),
        .top5_now = metrics_top5(now),
        .top5_mean = metrics_top5(&epoch->metrics),
        .learning_rate = epoch->learning_rate,
        .images_per_second = elapsed > 0 ? done * (double)plan->train_spec.batch / elapsed : 0,
        .remaining_seconds = (double)remaining * elapsed / done,
    };
}

static FshStatus check_loss(const Training *training, const Epoch *epoch, uint64_t step, double loss,
                            FshError *error)
{
    if (isfinite(loss))
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "loss is %g in epoch %" PRIu64 ", step %" PRIu64 ", at learning rate %.4g: training has diverged; "
        "lower --lr (it peaks at %.4g) or raise --lr-warmup-epochs",
        loss, epoch->number, step, epoch->learning_rate, training->session.plan.schedule.base);
}

static FshStatus train_step(Training *training, Epoch *epoch, uint64_t step, FshError *error)
{
    Session *session = &training->session;
    const Batch *batch;
    double start = progress_now_seconds(), waited_before = loader_wait_seconds(session->train), loss = 0;
    FshStatus status = loader_next(session->train, &batch, error);
    if (status)
        return status;
    double data_seconds = loader_wait_seconds(session->train) - waited_before;
    epoch->data_seconds += data_seconds;
    epoch->learning_rate = schedule_at(&session->plan.schedule, training->steps_done);
    Metrics now = {0};
    if (batch->valid_count > 0) /* a batch of nothing but skipped samples has no mean loss */
        status = network_train(&session->network, batch, epoch->learning_rate, &now, &loss, error);
    if (!status)
        status = check_loss(training, epoch, step, loss, error);
    if (status)
        return status;
    metrics_merge(&epoch->metrics, &now);
    training->steps_done++;
    training->images += batch->valid_count;
    session_tell_problems(session);

    double seconds = progress_now_seconds() - start;
    const StepReport report = report_step(training, epoch, step, &now, seconds, data_seconds);
    if (step % training->log_interval == 0 || step + 1 == session->plan.steps_per_epoch) {
        FshError record_error = {0};
        if (!session->console.terminal)
            console_step(&session->console, &report);
        warn_of(training, record_step(&training->record, &report, &record_error), &record_error);
    }
    console_progress(&session->console, &report);
    return FSH_OK;
}

static FshStatus stop_for_signal(Training *training, uint64_t epoch, uint64_t step, FshError *error)
{
    try_save(training, record_last_name, epoch, -1, &training->last_stale);
    return fsh_error_set(error, FSH_ERR_INTERRUPTED,
                         "interrupted in epoch %" PRIu64 " after step %" PRIu64 "; %s %s/%s", epoch, step,
                         training->last_stale ? "the weights could NOT be saved to" : "the weights are in",
                         training->record.folder, record_last_name);
}

static FshStatus train_epoch(Training *training, Epoch *epoch, FshError *error)
{
    uint64_t steps = training->session.plan.steps_per_epoch;
    FshStatus status = FSH_OK;
    for (uint64_t step = 0; !status && step < steps; step++) {
        status = train_step(training, epoch, step, error);
        if (!status && interrupt_requested())
            return stop_for_signal(training, epoch->number, step, error);
    }
    training->step_seconds += progress_now_seconds() - epoch->start_seconds;
    return status;
}

static FshStatus evaluate_epoch(Training *training, const Epoch *epoch, EpochReport *report, FshError *error)
{
    Session *session = &training->session;
    Metrics metrics;
    double start = progress_now_seconds();
    FshStatus status = session_evaluate(session, &metrics, error);
    if (status == FSH_ERR_INTERRUPTED)
        return stop_for_signal(training, epoch->number, session->plan.steps_per_epoch - 1, error);
    if (status) {
        /* A sample that cannot be evaluated is no reason to lose what was learnt. */
        try_save(training, record_last_name, epoch->number, -1, &training->last_stale);
        return status;
    }
    training->evaluation_seconds += progress_now_seconds() - start;
    report->evaluated = true;
    report->eval_loss = metrics_loss(&metrics);
    report->eval_top1 = metrics_top1(&metrics);
    report->eval_top5 = metrics_top5(&metrics);
    bool better = !training->evaluated || report->eval_top1 > training->best_top1;
    if (better) {
        training->evaluated = true;
        training->best_epoch = epoch->number;
        training->best_top1 = report->eval_top1;
        training->best_top5 = report->eval_top5;
        try_save(training, record_best_name, epoch->number, report->eval_top1, &training->best_stale);
    }
    console_evaluated(&session->console, report->eval_top1, report->eval_top5, report->eval_loss,
                      better ? " (best)" : "");
    return FSH_OK;
}

static FshStatus run_epoch(Training *training, uint64_t number, FshError *error)
{
    Session *session = &training->session;
    Epoch epoch = {.number = number, .start_seconds = progress_now_seconds()};
    FshStatus status = train_epoch(training, &epoch, error);
    if (status)
        return status;
    double train_seconds = progress_now_seconds() - epoch.start_seconds;
    EpochReport report = {
        .epoch = number,
        .train_loss = metrics_loss(&epoch.metrics),
        .train_top1 = metrics_top1(&epoch.metrics),
        .train_top5 = metrics_top5(&epoch.metrics),
        .learning_rate = epoch.learning_rate,
        .images_per_second = train_seconds > 0 ? (double)epoch.metrics.count / train_seconds : 0,
        .loader_wait_seconds = epoch.data_seconds,
        .order_digest = sampler_order_digest(loader_sampler(session->train), number),
    };
    console_line(&session->console,
                 "epoch %" PRIu64 " of %" PRIu64
                 ": loss %.4f, top-1 %.2f, %.0f images/s, waited for data %.1f %%, order "
                 "%016" PRIx64,
                 number, session->plan.epochs, report.train_loss, report.train_top1, report.images_per_second,
                 train_seconds > 0 ? 100 * epoch.data_seconds / train_seconds : 0, report.order_digest);
    if (session->evaluation)
        status = evaluate_epoch(training, &epoch, &report, error);
    if (status)
        return status;
    try_save(training, record_last_name, number, report.evaluated ? report.eval_top1 : -1,
             &training->last_stale);
    report.seconds = progress_now_seconds() - training->start_seconds;
    FshError record_error = {0};
    warn_of(training, record_epoch(&training->record, &report, &record_error), &record_error);
    return FSH_OK;
}

/* ---- the end ---- */

static double loader_share(const Training *training)
{
    return training->step_seconds > 0
               ? 100 * loader_wait_seconds(training->session.train) / training->step_seconds
               : 0;
}

static void print_result(const Training *training)
{
    double seconds = progress_now_seconds() - training->start_seconds;
    double rate = training->step_seconds > 0 ? (double)training->images / training->step_seconds : 0;
    if (training->evaluated)
        (void)printf("best top-1 %.2f %%, top-5 %.2f %% (epoch %" PRIu64 ")\n", training->best_top1,
                     training->best_top5, training->best_epoch);
    (void)printf("%" PRIu64 " epochs in %.1f s: %.0f images/s, evaluation %.1f s, loader-bound %.1f %%\n",
                 training->session.plan.epochs, seconds, rate, training->evaluation_seconds,
                 loader_share(training));
    if (training->evaluated && !training->best_stale)
        (void)printf("%s/%s\n", training->record.folder, record_best_name);
    if (!training->last_stale)
        (void)printf("%s/%s\n", training->record.folder, record_last_name);
}

static FshStatus print_result_json(const Training *training, FshError *error)
{
    double rate = training->step_seconds > 0 ? (double)training->images / training->step_seconds : 0;
    json_t *object = json_pack(
        "{s:o, s:s, s:I, s:f, s:f, s:f, s:f, s:I}", "output", json_text(training->record.folder), "model",
        training->session.plan.model->name, "epochs", (json_int_t)training->session.plan.epochs, "seconds",
        progress_now_seconds() - training->start_seconds, "images_per_second", rate, "evaluation_seconds",
        training->evaluation_seconds, "loader_bound_percent", loader_share(training), "skipped_samples",
        (json_int_t)session_problem_count(&training->session));
    if (object && training->evaluated) {
        (void)json_object_set_new(object, "best_epoch", json_integer((json_int_t)training->best_epoch));
        (void)json_object_set_new(object, "best_top1", json_real(training->best_top1));
        (void)json_object_set_new(object, "best_top5", json_real(training->best_top5));
    }
    return describe_print_json(object, error);
}

/* True when something is missing that the user would count on. */
static bool tell_losses(Training *training)
{
    Session *session = &training->session;
    uint64_t skipped = session_problem_count(session);
    if (training->last_stale || training->best_stale)
        console_warning(&session->console,
                        "%s: the newest weights could not be saved; make room and train again",
                        training->record.folder);
    if (skipped)
        console_warning(&session->console,
                        "%" PRIu64 " samples could not be read and were skipped; fverify %s lists them",
                        skipped, fsh_path(session->data.dataset));
    return training->last_stale || training->best_stale || skipped;
}

static FshStatus run_epochs(Training *training, FshError *error)
{
    Session *session = &training->session;
    FshStatus status = FSH_OK;
    training->start_seconds = progress_now_seconds();
    loader_start(session->train, 0, session->plan.epochs * session->plan.steps_per_epoch);
    for (uint64_t number = 0; !status && number < session->plan.epochs; number++)
        status = run_epoch(training, number, error);
    console_clear(&session->console);
    return status;
}

FshStatus train_run(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Training training = {.record = RECORD_NONE, .log_interval = (uint64_t)options->log_interval};
    Session *session = &training.session;
    char *arguments = NULL;
    /* The output last: where the arguments are swapped, the dataset is what to speak of. */
    FshStatus status = session_open(session, options, error);
    if (!status)
        status = describe_arguments(options, session, &arguments, error);
    if (!status)
        status = record_open(&training.record, options->output, options->force, arguments, error);
    if (status)
        goto done;
    session_describe(session);
    if (options->program.verbose)
        describe_network(session, stderr);
    status = session_cache(session, error);
    if (!status)
        status = run_epochs(&training, error);
    if (status)
        goto done;
    *partial_ret = tell_losses(&training);
    if (options->program.json)
        status = print_result_json(&training, error);
    else
        print_result(&training);
done:
    record_close(&training.record);
    session_close(session);
    free(arguments);
    return status;
}

/* JSON knows no NaN: a network gone bad has a loss of null. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

FshStatus train_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Session session;
    Metrics metrics;
    FshStatus status = session_open(&session, options, error);
    if (status)
        return status;
    session_describe(&session);
    status = session_cache(&session, error);
    double start = progress_now_seconds();
    if (!status)
        status = session_evaluate(&session, &metrics, error);
    double seconds = progress_now_seconds() - start;
    console_clear(&session.console);
    if (status)
        goto done;
    *partial_ret = session_problem_count(&session) > 0;
    if (options->program.json)
        status =
            describe_print_json(json_pack("{s:o, s:I, s:I, s:f, s:f, s:o, s:f}", "weights",
                                          json_text(options->weights), "samples", (json_int_t)metrics.count,
                                          "skipped_samples", (json_int_t)session_problem_count(&session),
                                          "top1", metrics_top1(&metrics), "top5", metrics_top5(&metrics),
                                          "loss", number_or_null(metrics_loss(&metrics)), "seconds", seconds),
                                error);
    else
        (void)printf("top-1 %.2f %%, top-5 %.2f %%, loss %.4f on %" PRIu64 " samples in %.1f s\n",
                     metrics_top1(&metrics), metrics_top5(&metrics), metrics_loss(&metrics), metrics.count,
                     seconds);
done:
    session_close(&session);
    return status;
}
