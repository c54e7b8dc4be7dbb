#include "trainer/loop/run_report.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/options_config.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/plan/evaluation_interval.h"
#include "trainer/report/findings.h"
#include "trainer/report/html_report.h"
#include "trainer/report/tensorboard.h"
#include "trainer/report/timm_config.h"

static const double page_interval_seconds = 10; /* between two pages of a run that goes on */

enum { SHOWN_IMAGES = 4, FACTS_MAX = 160, FACT_TEXT = 256 };

typedef struct FactList {
    ReportFact facts[FACTS_MAX];
    char *texts; /* [FACTS_MAX][2][FACT_TEXT] */
    size_t count;
} FactList;

struct RunReport {
    Session *session;
    const Record *record;
    const TrainOptions *options;
    const RunState *state; /* where the run stands; borrowed */
    TensorBoard *board;    /* NULL: not wanted, or it failed to open */
    bool html;
    bool warned_board, warned_html, warned_findings, warned_classes;
    bool batch_shown;
    Findings *findings;            /* of the last evaluation; made by run_report_visitor */
    FactList run, changed;         /* changed: options that are not the defaults */
    char verdict[512];             /* of the last epoch; "" before the first */
    bool live;                     /* the page that was written last says that the run goes on */
    double page_end, page_seconds; /* when the page was last written, and how long that took */
};

/* ---- warnings ---- */

static void warn_once(RunReport *report, bool *warned, FshStatus status, const FshError *error)
{
    if (status && !*warned)
        console_warning(&report->session->console, "%s; training goes on", error->message);
    *warned = status != FSH_OK;
}

/* ---- facts ---- */

FSH_PRINTF(3, 4) static void add_fact(FactList *list, const char *name, const char *format, ...);

static void add_fact(FactList *list, const char *name, const char *format, ...)
{
    if (list->count == FACTS_MAX || !list->texts)
        return;
    char *name_text = list->texts + 2 * list->count * FACT_TEXT, *value_text = name_text + FACT_TEXT;
    va_list arguments;
    (void)snprintf(name_text, FACT_TEXT, "%s", name);
    va_start(arguments, format);
    (void)vsnprintf(value_text, FACT_TEXT, format, arguments);
    va_end(arguments);
    list->facts[list->count++] = (ReportFact){name_text, value_text};
}

/* Lists the sets, where there are several. */
static void list_sets(FactList *list, const TrainingData *data)
{
    const TrainingSets *sets = &data->sets;
    for (size_t i = 0; i < sets->count && sets->count > 1; i++) {
        char name[FACT_TEXT];
        const uint64_t samples = set_samples(data->train, i);
        (void)snprintf(name, sizeof name, "set %.200s", sets->names[i]);
        add_fact(list, name, "%" PRIu64 " sample%s, %" PRIu64 " in an epoch, %" PRIu64 " to evaluate on",
                 samples, text_plural(samples),
                 sets->weights ? set_draws(sets->weights[i], samples) : samples,
                 data->evaluation ? set_samples(data->evaluation, i) : 0);
    }
}

static void list_run(RunReport *report)
{
    const Session *session = report->session;
    const TrainPlan *plan = &session->plan;
    FactList *list = &report->run;
    add_fact(list, "network", "%s, %.2f M parameters", plan->model->name,
             (double)graph_parameter_count(network_graph(&session->network)) / 1e6);
    if (plan->preset)
        add_fact(list, "recipe", "%s", json_string_value(json_object_get(plan->preset, "name")));
    add_fact(list, "dataset", "%s", fsh_path(session->data.dataset));
    list_sets(list, &session->data);
    add_fact(list, "training samples", "%" PRIu64, plan->train_count);
    add_fact(list, "evaluation samples", "%" PRIu64, plan->evaluation_count);
    if (!plan_is_pairs(plan))
        add_fact(list, "classes", "%lld", (long long)session->data.class_count);
    add_fact(list, "image size", "%u px", plan->train_augmentation.size);
    add_fact(list, "batch", "%lld", (long long)plan->train_spec.batch);
    if (plan->world_size > 1)
        add_fact(list, "ranks",
                 "%" PRIu64 ", with that batch each; examples are of the samples that the first evaluated",
                 plan->world_size);
    add_fact(list, "optimizer", "%s, learning rate %.4g", optimizer_names[plan->recipe.optimizer.kind],
             plan->schedule.base);
    char norms[PLAN_NORMS_BYTES];
    if (plan_describe_norms(plan, norms))
        add_fact(list, "batch norms", "statistics of %s", norms);
    add_fact(list, "precision", "%s", data_type_name(plan->recipe.compute_type));
    add_fact(list, "device", "%s", backend_description(session->network.backend));
    if (session->network.average)
        add_fact(list, "classes and examples", "of the averaged weights");
    add_fact(list, "seed", "%" PRIu64, plan->seed);
    add_fact(list, "ftrain", "%s", FSHARD_VERSION);
}

static FshStatus list_changed(RunReport *report, FshError *error)
{
    TrainOptions given = *report->options, plain = train_options_default();
    Option given_rows[TRAIN_OPTION_ROWS], plain_rows[TRAIN_OPTION_ROWS];
    train_options_rows(&given, given_rows);
    train_options_rows(&plain, plain_rows);
    const OptionTable given_table = train_options_table(given_rows),
                      plain_table = train_options_table(plain_rows);
    json_t *now = options_config_object(&given_table, OPTION_NOT_IN_FILE);
    json_t *before = options_config_object(&plain_table, OPTION_NOT_IN_FILE);
    FshStatus status = FSH_OK;
    const char *name;
    json_t *value;
    if (!now || !before)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options");
    json_object_foreach(now, name, value)
    {
        const json_t *plain_value = status ? value : json_object_get(before, name);
        if (json_equal(value, plain_value))
            continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        add_fact(&report->changed, name, "%s",
                 json_is_string(value) ? json_string_value(value)
                 : text                ? text
                                       : "?");
        free(text);
    }
    json_decref(now);
    json_decref(before);
    return status;
}

/* ---- opening and closing ---- */

/* Writes config.json, by which timm finds the network beside model.safetensors. */
static FshStatus write_config(RunReport *report, FshError *error)
{
    const Session *session = report->session;
    const TrainPlan *plan = &session->plan;
    char path[PATH_MAX];
    const TimmConfig config = {.architecture = plan->model->name,
                               .classes = (uint64_t)session->data.class_count,
                               .class_names = (const char *const *)session->data.class_names,
                               .channels = session->data.channels,
                               .height = plan->evaluation_augmentation.size,
                               .width = plan->evaluation_augmentation.size,
                               .resize_px = plan->evaluation_augmentation.resize,
                               .interpolation =
                                   interpolation_names[plan->evaluation_augmentation.interpolation],
                               .mean = plan->recipe.mean,
                               .deviation = plan->recipe.deviation};
    FshStatus status = record_path(report->record, path, sizeof path, "config.json", error);
    return status ? status : timm_config_write(&config, path, error);
}

FshStatus run_report_open(RunReport **report_ret, Session *session, const Record *record,
                          const TrainOptions *options, const RunState *state, FshError *error)
{
    FshError written = {0};
    RunReport *report = *report_ret = calloc(1, sizeof *report);
    if (!report)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the report");
    *report = (RunReport){.session = session,
                          .record = record,
                          .options = options,
                          .state = state,
                          .html = options->report.html};
    report->run.texts = calloc(2 * FACTS_MAX, FACT_TEXT);
    report->changed.texts = calloc(2 * FACTS_MAX, FACT_TEXT);
    report->batch_shown = state->steps_done > 0;
    list_run(report);
    FshStatus status = list_changed(report, error);
    if (status) {
        run_report_close(report_ret);
        return status;
    }
    if (options->report.tensorboard && !state->finished) /* a finished run has nothing to add */
        warn_once(report, &report->warned_board,
                  tensorboard_open(&report->board, record->folder,
                                   state->steps_done ? state->steps_done + 1 : 0, &written),
                  &written);
    bool warned = false;
    if (!plan_has_targets(&report->session->plan))
        warn_once(report, &warned, write_config(report, &written), &written);
    return FSH_OK;
}

void run_report_close(RunReport **report_ret)
{
    RunReport *report = *report_ret;
    if (!report)
        return;
    tensorboard_close(&report->board);
    findings_free(&report->findings);
    free(report->run.texts);
    free(report->changed.texts);
    free(report);
    *report_ret = NULL;
}

/* ---- TensorBoard ---- */

static void scalar(RunReport *report, const char *group, const char *name, uint64_t step, double value)
{
    char tag[PATH_MAX + 64];
    FshError error = {0};
    if (!report->board)
        return;
    (void)snprintf(tag, sizeof tag, "%s/%s", group, name);
    warn_once(report, &report->warned_board, tensorboard_scalar(report->board, tag, step, value, &error),
              &error);
}

static void image(RunReport *report, const char *group, size_t number, const char *name, uint64_t step,
                  const ImageView *view)
{
    char tag[96];
    FshError error = {0};
    if (!report->board || !view->pixels)
        return;
    (void)snprintf(tag, sizeof tag, "%s/%zu%s%s", group, number, *name ? "/" : "", name);
    warn_once(report, &report->warned_board, tensorboard_image(report->board, tag, step, view, &error),
              &error);
}

static void metrics(RunReport *report, const char *group, uint64_t step, const Metrics *values)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (metrics_has(values, (Metric)i))
            scalar(report, group, metric_names[i], step, metrics_value(values, (Metric)i));
}

/* The same of each of several sets, "val/NAME/top1". */
static void metrics_of_sets(RunReport *report, const char *group, uint64_t step, const Metrics *values)
{
    const TrainingSets *sets = &report->session->data.sets;
    for (size_t i = 0; i < sets->count && sets->count > 1; i++) {
        char name[PATH_MAX + 32];
        (void)snprintf(name, sizeof name, "%s/%s", group, sets->names[i]);
        if (values[i].count)
            metrics(report, name, step, &values[i]);
    }
}

static void write_running(RunReport *report, uint64_t epoch, uint64_t step, double remaining_seconds);

/* Returns the seconds since the page was written; a very large number if it never was. */
static double page_age(const RunReport *report)
{
    return progress_now_seconds() - report->page_end;
}

void run_report_step(RunReport *report, const StepReport *step, uint64_t steps_done)
{
    if (!report)
        return;
    metrics(report, "train", steps_done, &step->now);
    scalar(report, "train", "lr", steps_done, step->learning_rate);
    scalar(report, "train", "images_per_second", steps_done, step->images_per_second);
    if (!isnan(step->gradient_norm))
        scalar(report, "train", "gradient_norm", steps_done, step->gradient_norm);
    /* Takes at most a hundredth of the time, however long the page is. */
    if (report->html && page_age(report) >= fmax(page_interval_seconds, 100 * report->page_seconds))
        write_running(report, step->epoch, step->step + 1,
                      step->remaining_seconds + step->remaining_evaluation_seconds);
}

static ImageView view_of(const uint8_t *pixels, const Batch *batch, uint32_t channels, size_t number)
{
    const size_t stride = (size_t)batch->width * channels;
    return (ImageView){pixels ? pixels + number * stride * batch->height : NULL, stride, batch->width,
                       batch->height, channels};
}

static void show_sample(RunReport *report, size_t number, const ImageView *input, const ImageView *target)
{
    image(report, "train/samples", number, target->pixels ? "input" : "", 1, input);
    image(report, "train/samples", number, "target", 1, target);
}

/* Shows a few images of a batch whose pixels are made on the GPU, by rendering them on the host too. */
static void show_rendered(RunReport *report, const Batch *batch)
{
    const Session *session = report->session;
    const uint32_t channels = session->data.channels;
    const bool pairs = session->data.kind == FSH_KIND_PAIRS;
    const size_t count = (size_t)session->plan.train_spec.batch,
                 bytes = (size_t)batch->width * batch->height * channels;
    uint8_t *pixels = malloc(2 * bytes);
    FshError error = {0};
    for (size_t i = 0; pixels && i < count && i < SHOWN_IMAGES; i++) {
        if (!(batch->valid[i] > 0) ||
            loader_image(session->train, batch, i, pixels, pairs ? pixels + bytes : NULL, &error))
            continue;
        const ImageView input = view_of(pixels, batch, channels, 0),
                        target = view_of(pairs ? pixels + bytes : NULL, batch, channels, 0);
        show_sample(report, i, &input, &target);
    }
    free(pixels);
}

void run_report_batch(RunReport *report, const Batch *batch)
{
    if (!report)
        return;
    const uint32_t channels = report->session->data.channels;
    const size_t count = (size_t)report->session->plan.train_spec.batch;
    if (report->batch_shown)
        return;
    report->batch_shown = true;
    if (batch->recipes)
        show_rendered(report, batch);
    for (size_t i = 0; i < count && i < SHOWN_IMAGES && !batch->recipes; i++) {
        /* Classes are no colours: masks are not shown. */
        const uint8_t *targets = plan_is_masks(&report->session->plan) ? NULL : batch->target;
        const ImageView input = view_of(batch->pixels, batch, channels, i),
                        target = view_of(targets, batch, channels, i);
        show_sample(report, i, &input, &target);
    }
}

/* ---- evaluation ---- */

static FshStatus visit_class(RunReport *report, const Batch *batch, const Evaluated *evaluated, size_t i,
                             FshError *error)
{
    const Session *session = report->session;
    const uint64_t classes = (uint64_t)session->data.class_count;
    const ImageView pixels = view_of(batch->pixels, batch, session->data.channels, i);
    int64_t prediction = 0;
    double probability = 0;
    size_t key_bytes = 0;
    const char *key = session_key(session->data.evaluation, batch->samples[i], &key_bytes);
    findings_predict(evaluated->output + i * classes, classes, &prediction, &probability);
    return findings_add_class(report->findings, key, key_bytes, &pixels, batch->labels[i], prediction,
                              probability, error);
}

static FshStatus visit_pair(RunReport *report, const Batch *batch, const Evaluated *evaluated,
                            FshError *error)
{
    const Session *session = report->session;
    const uint32_t channels = session->data.channels;
    const ImageView input = view_of(batch->pixels, batch, channels, 0),
                    target = view_of(batch->target, batch, channels, 0),
                    output = view_of(evaluated->restored, batch, channels, 0);
    size_t key_bytes = 0;
    const char *key = session_key(session->data.evaluation, batch->samples[0], &key_bytes);
    return findings_add_pair(report->findings, key, key_bytes, &input, &output, &target, evaluated->psnr,
                             evaluated->input_psnr, error);
}

static FshStatus visit(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error)
{
    RunReport *report = context;
    FshStatus status = FSH_OK;
    FshError failure = {0};
    if (!report->findings)
        return FSH_OK;
    if (plan_is_pairs(&report->session->plan))
        status = visit_pair(report, batch, evaluated, &failure);
    for (size_t i = 0; batch->labels && !status && i < (size_t)report->session->plan.evaluation_spec.batch;
         i++)
        if (batch->labels[i] >= 0)
            status = visit_class(report, batch, evaluated, i, &failure);
    (void)error; /* the lack of something to show does not stop an evaluation */
    if (status)
        findings_free(&report->findings);
    warn_once(report, &report->warned_findings, status, &failure);
    return FSH_OK;
}

SessionVisitor run_report_visitor(RunReport *report)
{
    if (!report)
        return (SessionVisitor){NULL, NULL};
    const Session *session = report->session;
    /* examples are of classes and pairs */
    if (training_data_row_width(&session->data) || plan_is_masks(&session->plan))
        return (SessionVisitor){NULL, NULL};
    const FindingsOptions options = {.pairs = plan_is_pairs(&report->session->plan),
                                     .classes = (uint64_t)session->data.class_count,
                                     .samples = session->plan.evaluation_count};
    FshError error = {0};
    findings_free(&report->findings);
    if (report->html || report->board)
        warn_once(report, &report->warned_findings, findings_new(&report->findings, &options, &error),
                  &error);
    return (SessionVisitor){visit, report};
}

static void show_examples(RunReport *report, uint64_t steps_done)
{
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    const size_t count = report->findings ? findings_examples(report->findings, examples) : 0;
    for (size_t i = 0; i < count && i < SHOWN_IMAGES; i++) {
        const struct {
            const char *name;
            const Image *image;
        } parts[] = {{"", &examples[i]->image},
                     {"input", &examples[i]->input},
                     {"output", &examples[i]->output},
                     {"target", &examples[i]->target}};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            const Image *part = parts[k].image;
            const ImageView view = {part->pixels, (size_t)part->width * part->channels, part->width,
                                    part->height, part->channels};
            image(report, plan_is_pairs(&report->session->plan) ? "val/pairs" : "val/mistakes", i,
                  parts[k].name, steps_done, &view);
        }
    }
}

/* ---- the page ---- */

static FshStatus write_page(RunReport *report, const ReportStatus *status_now, FshError *error)
{
    const Session *session = report->session;
    const TrainPlan *plan = &session->plan;
    char metrics_path[PATH_MAX], path[PATH_MAX];
    RunHistory history = {0};
    const ReportFacts facts[] = {
        {"Run", report->run.facts, report->run.count},
        {"Options that are not the defaults", report->changed.facts, report->changed.count}};
    HtmlReport page = {.title = report->record->folder,
                       .subtitle = plan->model->summary,
                       .verdict = report->verdict[0] ? report->verdict : NULL,
                       .status = *status_now,
                       .history = &history,
                       .main_metric = metric_names[plan->main_metric],
                       .top5 = metric_is_shown(METRIC_TOP5, session->data.class_count),
                       .metric_rises = metric_rises(plan->main_metric),
                       .steps_per_epoch = plan->steps_per_epoch,
                       .facts = facts,
                       .fact_tables = 2,
                       .classes = class_counts_any(&session->class_counts) ? &session->class_counts : NULL,
                       .findings = report->findings,
                       .class_names = (const char *const *)session->data.display_names,
                       .sets = session->data.sets.count > 1 ? session->data.sets.names : NULL,
                       .set_count = session->data.sets.count};
    const double begin = progress_now_seconds();
    FshStatus status =
        record_path(report->record, metrics_path, sizeof metrics_path, record_metrics_name, error);
    if (!status)
        status = record_path(report->record, path, sizeof path, "report.html", error);
    if (!status)
        status = run_history_read(&history, metrics_path, error);
    page.status.written = (int64_t)time(NULL);
    if (!status)
        status = html_report_write(&page, path, error);
    run_history_free(&history);
    report->live = status_now->state == REPORT_RUNNING;
    report->page_end = progress_now_seconds();
    report->page_seconds = report->page_end - begin;
    return status;
}

/* Writes the page of a run that goes on. */
static void write_running(RunReport *report, uint64_t epoch, uint64_t step, double remaining_seconds)
{
    const TrainPlan *plan = &report->session->plan;
    const ReportStatus now = {.state = REPORT_RUNNING,
                              .epoch = epoch,
                              .epochs = plan->epochs,
                              .step = step,
                              .steps = plan->steps_per_epoch,
                              .iteration = plan_iterations(plan, plan_steps_before(plan, epoch) + step),
                              .iterations = plan_iterations(plan, plan->total_steps),
                              .remaining_seconds = remaining_seconds};
    FshError error = {0};
    warn_once(report, &report->warned_html, write_page(report, &now, &error), &error);
}

/* Writes the classes of the last evaluation to a file of that name. Of pairs and numbers there are none. */
static FshStatus write_classes(RunReport *report, const char *name, FshError *error)
{
    const Session *session = report->session;
    char path[PATH_MAX];
    if (!plan_is_classes(&session->plan) && !plan_is_masks(&session->plan))
        return FSH_OK;
    FshStatus status = record_path(report->record, path, sizeof path, name, error);
    const char *const *names = (const char *const *)session->data.display_names;
    if (!status && session->label_scores.word_count)
        return label_scores_write(&session->label_scores, names, path, error);
    return status ? status : class_table_write(&session->class_counts, names, path, error);
}

/* Returns the seconds from the end of an epoch to the end of the run, as the log prints them. */
static double remaining_after(const RunReport *report, const EpochReport *epoch)
{
    const TrainPlan *plan = &report->session->plan;
    const RunState *state = report->state;
    const uint64_t next = epoch->epoch + 1, interval = plan->evaluation_interval ? plan->evaluation_interval
                                                                                 : state->evaluation_interval;
    const uint64_t evaluations =
        report->session->evaluation ? evaluation_count(interval, next, plan->epochs) : 0;
    const uint64_t steps = plan_epoch_steps(plan, epoch->epoch),
                   left = plan->total_steps - plan_steps_before(plan, next);
    return epoch->step_seconds / (double)steps * (double)left +
           state->last_evaluation_seconds * (double)evaluations;
}

void run_report_best(RunReport *report, bool averaged)
{
    FshError error = {0};
    if (report)
        warn_once(
            report, &report->warned_classes,
            write_classes(report, averaged ? record_average_classes_name : record_best_classes_name, &error),
            &error);
}

void run_report_epoch(RunReport *report, const EpochReport *epoch, uint64_t steps_done, const char *verdict)
{
    if (!report)
        return;
    FshError error = {0};
    metrics(report, "epoch", steps_done, &epoch->train);
    if (epoch->evaluated)
        metrics(report, "val", steps_done, &epoch->evaluation);
    if (epoch->averaged)
        metrics(report, "ema", steps_done, &epoch->average);
    if (epoch->evaluated)
        metrics_of_sets(report, "val", steps_done, epoch->set_evaluation);
    if (epoch->averaged)
        metrics_of_sets(report, "ema", steps_done, epoch->set_average);
    if (epoch->evaluated) /* otherwise they are from an earlier epoch */
        show_examples(report, steps_done);
    if (epoch->evaluated)
        warn_once(report, &report->warned_classes, write_classes(report, record_classes_name, &error),
                  &error);
    (void)snprintf(report->verdict, sizeof report->verdict, "%s", verdict);
    if (report->html && page_age(report) >= 20 * report->page_seconds) /* short epochs do not get a page
                                                                        * each */
        write_running(report, epoch->epoch + 1, 0, remaining_after(report, epoch));
}

void run_report_end(RunReport *report, const RunState *state, const char *why)
{
    if (!report || !report->live)
        return;
    const TrainPlan *plan = &report->session->plan;
    const ReportStatus end = {.state = state->finished ? REPORT_FINISHED : REPORT_STOPPED,
                              .epoch = state->epoch,
                              .epochs = plan->epochs,
                              .step = state->step,
                              .steps = plan->steps_per_epoch,
                              .iteration = plan_iterations(plan, state->steps_done),
                              .iterations = plan_iterations(plan, plan->total_steps),
                              .why = why && *why ? why : NULL};
    FshError error = {0};
    warn_once(report, &report->warned_html, write_page(report, &end, &error), &error);
}
