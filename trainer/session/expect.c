#include "trainer/session/expect.h"

#include <math.h>
#include <sys/resource.h>

#include "common/progress.h"
#include "trainer/plan/evaluation_interval.h"

/* The first try is slower: memory is touched, code is made. One on the CPU that takes so long is enough. */
enum { TRIES = 2, LONG_SECONDS = 3 };

/* Where a try stands. */
typedef struct Try {
    double begin, loaded; /* seconds: when it began, and when its batch was there */
    double kernel;        /* the kernel's seconds until then */
    double seconds;       /* that it took */
} Try;

/* Returns the seconds that the kernel has worked for this process. */
static double kernel_seconds(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0
               ? (double)usage.ru_stime.tv_sec + 1e-6 * (double)usage.ru_stime.tv_usec
               : 0;
}

static FshStatus begin_try(Loader *loader, Try *own, const Batch **batch_ret, FshError *error)
{
    own->begin = progress_now_seconds();
    const FshStatus status = loader_next(loader, batch_ret, error);
    own->loaded = progress_now_seconds();
    own->kernel = kernel_seconds();
    return status;
}

/* Ends a try. Returns whether it is enough: it took long on the CPU, and not for its images. What the kernel
 * then did is mostly to give memory out for the first time, and is taken off. */
static bool end_try(const Session *session, Try *own)
{
    const double now = progress_now_seconds(), step = now - own->loaded;
    own->seconds = now - own->begin;
    if (session->plan.device != DEVICE_CPU || step < LONG_SECONDS || step < own->loaded - own->begin)
        return false;
    own->seconds = fmax(step / 2, step - (kernel_seconds() - own->kernel) / session->plan.threads);
    return true;
}

static FshStatus time_training(Session *session, double *seconds_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    Try own = {0};
    loader_start(session->train, 0, TRIES);
    for (int i = 0; !status && i < TRIES; i++) {
        const Batch *batch = NULL;
        Metrics metrics = {0};
        StepResult result;
        status = begin_try(session->train, &own, &batch, error);
        if (!status && batch && batch->valid_count)
            status = session_write_step(session, batch, &(StepRates){0}, error);
        if (!status && batch && batch->valid_count) {
            status = network_begin_step(&session->network, batch, error);
            if (!status)
                status = network_end_step(&session->network, &metrics, &result, error);
        }
        if (end_try(session, &own))
            break;
    }
    *seconds_ret = own.seconds;
    return status;
}

static FshStatus time_evaluation(Session *session, double *seconds_ret, FshError *error)
{
    const uint64_t steps = session->plan.evaluation_steps < TRIES ? session->plan.evaluation_steps : TRIES;
    FshStatus status = FSH_OK;
    Try own = {0};
    loader_start(session->evaluation, 0, steps);
    for (uint64_t i = 0; !status && i < steps; i++) {
        const Batch *batch = NULL;
        Metrics metrics = {0};
        status = begin_try(session->evaluation, &own, &batch, error);
        if (!status && batch && batch->valid_count)
            status = network_evaluate(&session->network, NETWORK_TRAINED, batch, &metrics, NULL, error);
        if (end_try(session, &own))
            break;
    }
    *seconds_ret = own.seconds;
    return status;
}

/* Returns the FLOP of a forward pass at an epoch's image size. */
static double forward_flops(const Session *session, uint64_t epoch)
{
    const TrainPlan *plan = &session->plan;
    double flops = 0;
    for (size_t i = 0; i < plan->edge_count; i++)
        if (plan->edges[i] == plan_edge(plan, epoch))
            flops = (double)graph_forward_flops(session->network.train[i].graph);
    return flops;
}

double expect_step_flops(const Session *session)
{
    return 3 * forward_flops(session, 0);
}

/* Returns the work of an epoch's images relative to the first epoch's. */
static double relative_work(const Session *session, uint64_t epoch)
{
    const double first = forward_flops(session, 0), its = forward_flops(session, epoch);
    return first > 0 && its > 0 ? its / first : 1;
}

/* Returns the passes of a step: those of sam are timed without their second one. */
static double passes_of_step(const Optimizer *optimizer)
{
    return optimizer->sam_rho > 0 ? 1 + 1 / (double)optimizer->sam_interval : 1;
}

/* Returns the seconds of an epoch's steps from number `first` on. */
static double epoch_seconds(const Session *session, double step_seconds, uint64_t epoch, uint64_t first)
{
    const uint64_t steps = plan_epoch_steps(&session->plan, epoch);
    return first < steps ? step_seconds * relative_work(session, epoch) * (double)(steps - first) : 0;
}

/* Returns how many evaluations are left, each of which takes `one` second and comes after an epoch of
 * `between` seconds. */
static uint64_t evaluations_left(const TrainPlan *plan, const RunState *from, double between, double one)
{
    const uint64_t known = plan->evaluation_interval ? plan->evaluation_interval : from->evaluation_interval;
    if (known || from->epoch >= plan->epochs)
        return evaluation_count(known, from->epoch, plan->epochs);
    /* the next evaluation, and the interval that follows from it */
    const uint64_t interval = evaluation_interval_choose(between, one, from->epoch, plan->epochs);
    return 1 + evaluation_count(interval, from->epoch + 1, plan->epochs);
}

FshStatus expect_time(Session *session, const RunState *from, ExpectedTime *expected, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    double evaluation_step = 0, whole = 0;
    *expected = (ExpectedTime){0};
    FshStatus status = time_training(session, &expected->step_seconds, error);
    expected->step_seconds *= passes_of_step(&plan->recipe.optimizer);
    if (!status && session->evaluation)
        status = time_evaluation(session, &evaluation_step, error);
    if (status || from->finished)
        return status;
    for (uint64_t epoch = 0; epoch < plan->epochs; epoch++) {
        whole += epoch_seconds(session, expected->step_seconds, epoch, 0);
        if (epoch >= from->epoch)
            expected->training_seconds +=
                epoch_seconds(session, expected->step_seconds, epoch, epoch == from->epoch ? from->step : 0);
    }
    const double one = evaluation_step * (double)plan->evaluation_steps * (session->network.average ? 2 : 1);
    if (plan->epochs)
        expected->evaluation_seconds =
            one * (double)evaluations_left(plan, from, whole / (double)plan->epochs, one);
    return FSH_OK;
}
