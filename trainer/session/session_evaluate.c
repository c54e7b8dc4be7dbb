/* session_evaluate.c - runs the evaluation split through the network, and measures what comes out. */
#include "common/interrupt.h"
#include "trainer/session/session.h"

/* Calls the visitor, with pixels read back if the device made them. */
static FshStatus visit(Session *session, NetworkWeights weights, const SessionVisitor *visitor,
                       const Batch *batch, const Evaluated *evaluated, FshError *error)
{
    Batch seen = *batch;
    FshStatus status =
        batch->recipes ? network_read_pixels(&session->network, weights, batch, &seen.pixels, error) : FSH_OK;
    return status ? status : visitor->visit(visitor->context, &seen, evaluated, error);
}

/* Notes what the network says of the samples of a batch, where they have several labels. */
static void note_scores(Session *session, const Batch *batch, const Evaluated *evaluated)
{
    const uint64_t classes = session->label_scores.classes;
    for (int64_t i = 0; i < session->plan.evaluation_spec.batch && classes; i++)
        if (batch->valid[i] > 0)
            label_scores_add(&session->label_scores, batch->samples[i],
                             evaluated->output + (uint64_t)i * classes,
                             batch->targets + (uint64_t)i * classes);
}

/* Forgets the counts of an earlier evaluation. */
static FshStatus reset_counts(Session *session, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    const uint64_t classes = (uint64_t)plan->evaluation_spec.classes;
    if (plan_is_pairs(plan) || plan->label_kind == LABELS_NUMBERS)
        return FSH_OK;
    return plan->label_kind == LABELS_MANY
               ? label_scores_reset(&session->label_scores, plan->evaluation_count, classes, error)
               : class_counts_reset(&session->class_counts, classes, error);
}

/* Adds up the counts of all ranks, and measures what several labels are measured by. */
static FshStatus finish_counts(Session *session, Metrics *metrics, FshError *error)
{
    LabelScores *scores = &session->label_scores;
    Communicator *communicator = session->communicator;
    FshStatus status = FSH_OK;
    if (communicator && session->class_counts.value_count)
        status = communicator_sum_u64(communicator, session->class_counts.values,
                                      session->class_counts.value_count, error);
    if (!status && communicator && scores->word_count)
        status = communicator_sum_u64(communicator, scores->words, scores->word_count, error);
    if (!status && scores->word_count)
        status = label_scores_measure(scores, error);
    if (status || !scores->word_count)
        return status;
    metrics_set(metrics, METRIC_MAP, scores->mean_average_precision);
    metrics_set(metrics, METRIC_F1, scores->f1);
    metrics_set(metrics, METRIC_F1_MICRO, scores->f1_micro);
    return FSH_OK;
}

/* Counts the samples of a batch by class and prediction. */
static FshStatus count_classes(Session *session, const Batch *batch, const Evaluated *evaluated,
                               FshError *error)
{
    const uint64_t classes = session->class_counts.classes;
    FshStatus status = FSH_OK;
    for (int64_t i = 0; i < session->plan.evaluation_spec.batch && classes && !status; i++) {
        if (batch->labels[i] >= 0)
            status =
                class_counts_add(&session->class_counts, batch->labels[i],
                                 class_of_logits(evaluated->output + (uint64_t)i * classes, classes), error);
    }
    return status;
}

FshStatus session_evaluate(Session *session, NetworkWeights weights, const SessionVisitor *visitor,
                           Metrics *metrics, FshError *error)
{
    const uint64_t steps = session->plan.evaluation_steps;
    FshStatus status = FSH_OK;
    Communicator *communicator = session->communicator;
    *metrics = (Metrics){0};
    status = reset_counts(session, error);
    loader_start(session->evaluation, 0, steps);
    for (uint64_t step = 0; !status && step < steps; step++) {
        const Batch *batch;
        Evaluated evaluated = {0};
        if (interrupt_requested()) /* this rank's share ends here; all ranks learn of it after the last
                                    * batch */
            status = fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while evaluating");
        if (!status)
            status = loader_next(session->evaluation, &batch, error);
        if (!status && batch->valid_count) /* a batch of only skipped samples is not evaluated */
            status = network_evaluate(&session->network, weights, batch, metrics, &evaluated, error);
        if (!status && batch->valid_count)
            status = count_classes(session, batch, &evaluated, error);
        if (!status && batch->valid_count)
            note_scores(session, batch, &evaluated);
        if (!status && batch->valid_count && visitor && visitor->visit)
            status = visit(session, weights, visitor, batch, &evaluated, error);
        session_tell_problems(session);
        console_evaluating(&session->console, step, steps);
    }
    status = ranks_agree(communicator, status, error);
    if (!status)
        status = ranks_sum_metrics(communicator, metrics, error);
    if (!status)
        status = finish_counts(session, metrics, error);
    if (!status && metrics->count == 0)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "%s: no sample of split '%s' could be read; see fverify",
                          fsh_path(session->data.dataset), session->data.evaluation->info->name);
    return status;
}
