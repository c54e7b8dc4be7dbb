/* evaluate.c - ftrain --evaluate, --predict, --export: runs weights on the evaluation split. */
#include <inttypes.h>
#include <string.h>

#include "common/json_text.h"
#include "common/progress.h"
#include "common/text.h"
#include "trainer/session/describe.h"
#include "trainer/loop/predict.h"
#include "trainer/loop/run_output.h"
#include "trainer/loop/train.h"

static void set_all_metrics(json_t *object, const Metrics *metrics)
{
    for (int i = 0; object && i < METRIC_COUNT; i++)
        if (metrics_has(metrics, (Metric)i))
            (void)json_object_set_new(object, metric_names[i],
                                      json_number(metrics_value(metrics, (Metric)i)));
}

/* Returns what the evaluation of each set alone has given. */
static json_t *sets_json(const Session *session)
{
    const TrainingSets *sets = &session->data.sets;
    json_t *array = json_array();
    for (size_t i = 0; i < sets->count; i++) {
        const Metrics *metrics = &session->set_metrics[NETWORK_TRAINED][i];
        json_t *object =
            json_pack("{s:o, s:I}", "name", json_text(sets->names[i]), "samples", (json_int_t)metrics->count);
        set_all_metrics(object, metrics);
        (void)json_array_append_new(array, object);
    }
    return array;
}

static FshStatus print_json(const TrainOptions *options, const Session *session, const Metrics *metrics,
                            uint64_t skipped, double seconds, FshError *error)
{
    json_t *object = json_pack("{s:o, s:I, s:I, s:o}", "weights", json_text(options->weights), "samples",
                               (json_int_t)metrics->count, "skipped_samples", (json_int_t)skipped, "seconds",
                               json_measured(seconds));
    set_all_metrics(object, metrics);
    if (object && session->data.sets.count > 1)
        (void)json_object_set_new(object, "sets", sets_json(session));
    if (object && class_counts_any(&session->class_counts))
        (void)json_object_set_new(
            object, "classes",
            class_table_json(&session->class_counts, (const char *const *)session->data.display_names));
    if (object && session->label_scores.word_count)
        (void)json_object_set_new(
            object, "classes",
            label_scores_json(&session->label_scores, (const char *const *)session->data.display_names));
    return describe_print_json(object, error);
}

/* Prints a line for each set, if there are several. */
static void print_sets(const Session *session)
{
    const TrainingSets *sets = &session->data.sets;
    char text[240];
    for (size_t i = 0; i < sets->count && sets->count > 1; i++) {
        const Metrics *metrics = &session->set_metrics[NETWORK_TRAINED][i];
        (void)printf("%s: %s, loss %.4f on %" PRIu64 " sample%s\n", sets->names[i],
                     metrics_tell(metrics, session->data.class_count, text, sizeof text),
                     metrics_value(metrics, METRIC_LOSS), metrics->count, text_plural(metrics->count));
    }
}

static void print_text(const Metrics *metrics, int64_t classes, double seconds)
{
    char text[240];
    (void)printf("%s, loss %.4f on %" PRIu64 " sample%s in %.1f s\n",
                 metrics_tell(metrics, classes, text, sizeof text), metrics_value(metrics, METRIC_LOSS),
                 metrics->count, text_plural(metrics->count), seconds);
}

/* Refuses options that apply only to plain images and do nothing for a dataset. */
static FshStatus check_packed(const TrainOptions *options, const Session *session, FshError *error)
{
    const bool classes = session->plan.model->task == TASK_CLASSIFICATION;
    const int format = options->inference.format;
    const char *alone = options->inference.tile           ? "--tile"
                        : options->inference.tile_overlap ? "--tile-overlap"
                                                          : NULL;
    if (alone)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: %s is a dataset, whose images are taken whole; give a folder of images",
                             alone, options->shards);
    if (format == OPTION_AUTO || format == PREDICT_CSV || format == (classes ? PREDICT_JSONL : PREDICT_PNG))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "--predict-format: of a dataset, %s",
                         classes                         ? "classes are told as csv or jsonl"
                         : plan_is_masks(&session->plan) ? "masks are png, and their table is csv"
                                                         : "restored pairs are png, and their table is csv");
}

FshStatus train_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Session session;
    Metrics metrics;
    Predictor *predictor = NULL;
    FshStatus status = session_open(&session, options, SESSION_EVALUATE, error);
    if (status)
        return status;
    session_describe(&session);
    if (options->program.verbose && session.plan.rank == 0 && session.evaluation)
        describe_plans(&session, stderr);
    if (!session.evaluation)
        status =
            fsh_error_set(error, FSH_ERR_NOT_FOUND,
                          "%s: has no split 'val' or 'test'; --val-split names another", options->shards);
    if (!status)
        status = check_packed(options, &session, error);
    if (!status && (options->inference.predict || options->inference.export_path))
        status =
            predictor_new(&predictor, &session, options->inference.predict, options->inference.export_path,
                          options->inference.format == PREDICT_JSONL, options->force, error);
    if (!status && predictor)
        run_output_warn(&session.console, predictor_lock(predictor), options->inference.predict);
    if (!status)
        status = session_cache(&session, error);
    const double start = progress_now_seconds();
    const SessionVisitor visitor = {predictor_visit, predictor};
    if (!status)
        status = session_evaluate(&session, NETWORK_TRAINED, predictor ? &visitor : NULL, &metrics, error);
    const double seconds = progress_now_seconds() - start;
    console_clear(&session.console);
    if (!status && predictor)
        status = predictor_finish(predictor, error);
    if (!status && predictor && predictor_formula_count(predictor))
        console_warning(&session.console,
                        "%" PRIu64 " cells of the CSV begin with =, +, - or @, which spreadsheets run as "
                        "formulas: import them there as text",
                        predictor_formula_count(predictor));
    uint64_t skipped = session_problem_count(&session);
    if (!status)
        status = ranks_sum_count(session.communicator, &skipped, error);
    if (status)
        goto done;
    *partial_ret = skipped > 0;
    if (session.plan.rank > 0)
        goto done; /* rank 0 prints */
    if (options->program.json)
        status = print_json(options, &session, &metrics, skipped, seconds, error);
    else {
        print_sets(&session);
        print_text(&metrics, session.data.class_count, seconds);
    }
done:
    if (status)
        status = ranks_explain(session.communicator, status, error);
    if (status)
        ranks_tell_once(session.communicator, error);
    predictor_free(&predictor);
    session_close(&session);
    return status;
}
