#include "trainer/session/expect.h"

#include "common/progress.h"
#include "trainer/plan/evaluation_interval.h"

enum { TRIES = 2 }; /* the first try is slower: memory is touched, code is made */

static FshStatus time_training(Session *session, double *seconds_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    loader_start(session->train, 0, TRIES);
    for (int i = 0; !status && i < TRIES; i++) {
        const double start = progress_now_seconds();
        const Batch *batch = NULL;
        Metrics metrics = {0};
        StepResult result;
        status = loader_next(session->train, &batch, error);
        if (!status && batch && batch->valid_count)
            status = session_write_step(session, batch, &(StepRates){0}, error);
        if (!status && batch && batch->valid_count) {
            status = network_begin_step(&session->network, batch, error);
            if (!status)
                status = network_end_step(&session->network, &metrics, &result, error);
        }
        *seconds_ret = progress_now_seconds() - start;
    }
    return status;
}

static FshStatus time_evaluation(Session *session, double *seconds_ret, FshError *error)
{
    const uint64_t steps = session->plan.evaluation_steps < TRIES ? session->plan.evaluation_steps : TRIES;
    FshStatus status = FSH_OK;
    loader_start(session->evaluation, 0, steps);
    for (uint64_t i = 0; !status && i < steps; i++) {
        const double start = progress_now_seconds();
        const Batch *batch = NULL;
        Metrics metrics = {0};
        status = loader_next(session->evaluation, &batch, error);
        if (!status && batch && batch->valid_count)
            status = network_evaluate(&session->network, NETWORK_TRAINED, batch, &metrics, NULL, error);
        *seconds_ret = progress_now_seconds() - start;
    }
    return status;
}

/* Returns the work of an epoch's images relative to the first epoch's. */
static double relative_work(const Session *session, uint64_t epoch)
{
    const TrainPlan *plan = &session->plan;
    const Graph *first = NULL, *its = NULL;
    for (size_t i = 0; i < plan->edge_count; i++) {
        first = plan->edges[i] == plan_edge(plan, 0) ? session->network.train[i].graph : first;
        its = plan->edges[i] == plan_edge(plan, epoch) ? session->network.train[i].graph : its;
    }
    return first && its ? (double)graph_forward_flops(its) / (double)graph_forward_flops(first) : 1;
}

/* Returns the passes of a step: those of sam are timed without their second one. */
static double passes_of_step(const Optimizer *optimizer)
{
    return optimizer->sam_rho > 0 ? 1 + 1 / (double)optimizer->sam_interval : 1;
}

FshStatus expect_time(Session *session, ExpectedTime *expected, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    double evaluation_step = 0;
    *expected = (ExpectedTime){0};
    FshStatus status = time_training(session, &expected->step_seconds, error);
    expected->step_seconds *= passes_of_step(&plan->recipe.optimizer);
    if (!status && session->evaluation)
        status = time_evaluation(session, &evaluation_step, error);
    for (uint64_t epoch = 0; !status && epoch < plan->epochs; epoch++)
        expected->training_seconds +=
            expected->step_seconds * relative_work(session, epoch) * (double)plan_epoch_steps(plan, epoch);
    const double one = evaluation_step * (double)plan->evaluation_steps * (session->network.average ? 2 : 1);
    uint64_t evaluations = evaluation_count(plan->evaluation_interval, 0, plan->epochs);
    if (!plan->evaluation_interval && plan->epochs) { /* the first evaluation, and the interval that follows
                                                       * from it */
        const uint64_t interval = evaluation_interval_choose(
            expected->training_seconds / (double)plan->epochs, one, 0, plan->epochs);
        evaluations = 1 + evaluation_count(interval, 1, plan->epochs);
    }
    expected->evaluation_seconds = one * (double)evaluations;
    return status;
}
