/* session_evaluate.c - runs the evaluation split through the network, and measures what comes out. */
#include <stdlib.h>
#include <string.h>

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

/* Forgets the counts of each set of masks, where there are several. */
static FshStatus reset_set_counts(Session *session, uint64_t classes, FshError *error)
{
    const size_t count = session->data.sets.count;
    FshStatus status = FSH_OK;
    if (count < 2)
        return FSH_OK;
    if (!session->set_counts && !(session->set_counts = calloc(count, sizeof *session->set_counts)))
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the counts of %zu sets", count);
    for (size_t i = 0; i < count && !status; i++)
        status = class_counts_reset(&session->set_counts[i], classes, error);
    return status;
}

/* Forgets the counts of an earlier evaluation. */
static FshStatus reset_counts(Session *session, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    const uint64_t classes = (uint64_t)plan->evaluation_spec.classes;
    if (plan_is_pairs(plan) || plan->label_kind == LABELS_NUMBERS)
        return FSH_OK;
    if (plan_is_masks(plan)) {
        FshStatus status = class_counts_reset(&session->class_counts, classes, error);
        session->class_counts.pixels = true;
        return status ? status : reset_set_counts(session, classes, error);
    }
    return plan->label_kind == LABELS_MANY
               ? label_scores_reset(&session->label_scores, plan->evaluation_count, classes, error)
               : class_counts_reset(&session->class_counts, classes, error);
}

static void set_label_metrics(const LabelScores *scores, Metrics *metrics)
{
    metrics_set(metrics, METRIC_MAP, scores->mean_average_precision);
    metrics_set(metrics, METRIC_F1, scores->f1);
    metrics_set(metrics, METRIC_F1_MICRO, scores->f1_micro);
}

static void set_pixel_metrics(const ClassCounts *counts, Metrics *metrics)
{
    metrics_set(metrics, METRIC_MIOU, class_counts_mean_iou(counts));
    metrics_set(metrics, METRIC_PIXEL_ACCURACY, class_counts_accuracy(counts));
}

/* Sets what the pixels of all masks are measured by. */
static FshStatus set_mask_metrics(const Session *session, Metrics *sets, Metrics *metrics, FshError *error)
{
    if (!class_counts_any(&session->class_counts))
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: no pixel of the masks of split '%s' has a class: there is nothing to measure",
            fsh_path(session->data.dataset), session->data.evaluation->info->name);
    set_pixel_metrics(&session->class_counts, metrics);
    if (!session->set_counts)
        sets[0] = *metrics;
    for (size_t i = 0; session->set_counts && i < session->data.sets.count; i++)
        if (class_counts_any(&session->set_counts[i]))
            set_pixel_metrics(&session->set_counts[i], &sets[i]);
    return FSH_OK;
}

/* Measures the several labels of each set. */
static FshStatus measure_sets(Session *session, Metrics *sets, FshError *error)
{
    const SetOrder *order = loader_sampler(session->evaluation)->sets;
    FshStatus status = FSH_OK;
    for (size_t i = 0; order && i < order->count && !status; i++) {
        if (!sets[i].count)
            continue;
        status =
            label_scores_measure_part(&session->label_scores, order->firsts[i], order->firsts[i + 1], error);
        set_label_metrics(&session->label_scores, &sets[i]);
    }
    return status;
}

/* Adds up the counts of all ranks, and measures what several labels are measured by. */
static FshStatus finish_counts(Session *session, Metrics *sets, Metrics *metrics, FshError *error)
{
    LabelScores *scores = &session->label_scores;
    Communicator *communicator = session->communicator;
    FshStatus status = FSH_OK;
    for (size_t i = 0; session->set_counts && i < session->data.sets.count; i++)
        class_counts_merge(&session->class_counts, &session->set_counts[i]);
    for (size_t i = 0; communicator && session->set_counts && i < session->data.sets.count && !status; i++)
        status = communicator_sum_u64(communicator, session->set_counts[i].values,
                                      session->set_counts[i].value_count, error);
    if (!status && communicator && session->class_counts.value_count)
        status = communicator_sum_u64(communicator, session->class_counts.values,
                                      session->class_counts.value_count, error);
    if (!status && communicator && scores->word_count)
        status = communicator_sum_u64(communicator, scores->words, scores->word_count, error);
    if (!status && scores->word_count)
        status = measure_sets(session, sets, error);
    if (!status && scores->word_count)
        status = label_scores_measure(scores, error);
    if (!status && scores->word_count)
        set_label_metrics(scores, metrics);
    if (!status && plan_is_masks(&session->plan))
        status = set_mask_metrics(session, sets, metrics, error);
    return status;
}

/* Returns the metrics of each set, all zero; one where there is one set. *sets_ret stays the session's. */
static FshStatus reset_sets(Session *session, NetworkWeights weights, Metrics **sets_ret, FshError *error)
{
    const size_t count = session->data.sets.count > 1 ? session->data.sets.count : 1;
    Metrics **sets = &session->set_metrics[weights];
    if (!*sets && !(*sets = calloc(count, sizeof **sets)))
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the metrics of %zu sets", count);
    memset(*sets, 0, count * sizeof **sets);
    *sets_ret = *sets;
    return FSH_OK;
}

/* Returns the metrics of the set that the step is of. */
static Metrics *metrics_of_step(const Session *session, Metrics *sets, uint64_t step)
{
    const Sampler *sampler = loader_sampler(session->evaluation);
    return sampler->sets ? &sets[set_order_find(sampler->sets, step * sampler->batch * sampler->world_size)]
                         : sets;
}

/* Adds up the metrics of all ranks by set, and those of the sets in *metrics. */
static FshStatus sum_sets(Session *session, Metrics *sets, Metrics *metrics, FshError *error)
{
    const SetOrder *order = loader_sampler(session->evaluation)->sets;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < (order ? order->count : 1) && !status; i++) {
        status = ranks_sum_metrics(session->communicator, &sets[i], error);
        metrics_merge(metrics, &sets[i]);
    }
    return status;
}

/* Counts the samples of a batch of a set, or their pixels, by class and prediction. */
static FshStatus count_classes(Session *session, size_t set, const Batch *batch, const Evaluated *evaluated,
                               FshError *error)
{
    const uint64_t classes = session->class_counts.classes;
    const size_t pixels = (size_t)batch->width * batch->height;
    FshStatus status = FSH_OK;
    if (plan_is_masks(&session->plan)) /* whole images come one to a batch */
        return class_counts_add_mask(session->set_counts ? &session->set_counts[set] : &session->class_counts,
                                     batch->target, evaluated->classes, pixels, error);
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
    Metrics *sets = NULL;
    *metrics = (Metrics){0};
    status = reset_sets(session, weights, &sets, error);
    if (!status)
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
            status = network_evaluate(&session->network, weights, batch, metrics_of_step(session, sets, step),
                                      &evaluated, error);
        if (!status && batch->valid_count)
            status = count_classes(session, (size_t)(metrics_of_step(session, sets, step) - sets), batch,
                                   &evaluated, error);
        if (!status && batch->valid_count)
            note_scores(session, batch, &evaluated);
        if (!status && batch->valid_count && visitor && visitor->visit)
            status = visit(session, weights, visitor, batch, &evaluated, error);
        session_tell_problems(session);
        console_evaluating(&session->console, step, steps);
    }
    status = ranks_agree(communicator, status, error);
    if (!status)
        status = sum_sets(session, sets, metrics, error);
    if (!status)
        status = finish_counts(session, sets, metrics, error);
    if (!status && metrics->count == 0)
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "%s: no sample of split '%s' could be read; see fverify",
                          fsh_path(session->data.dataset), session->data.evaluation->info->name);
    return status;
}
