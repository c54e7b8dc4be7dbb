/* plan_length.c - how long the run is, and in which stretches: epochs, or so many iterations. */
#include <inttypes.h>
#include <stdio.h>

#include "trainer/plan/train_plan.h"

bool plan_counts_iterations(const TrainPlan *plan)
{
    return plan->iteration_steps > 0;
}

uint64_t plan_epoch_steps(const TrainPlan *plan, uint64_t epoch)
{
    const uint64_t begin = epoch * plan->steps_per_epoch;
    if (begin >= plan->total_steps)
        return 0;
    const uint64_t left = plan->total_steps - begin;
    return left < plan->steps_per_epoch ? left : plan->steps_per_epoch;
}

uint64_t plan_steps_before(const TrainPlan *plan, uint64_t epoch)
{
    const uint64_t begin = epoch * plan->steps_per_epoch;
    return begin < plan->total_steps ? begin : plan->total_steps;
}

uint64_t plan_iterations(const TrainPlan *plan, uint64_t steps)
{
    return plan->iteration_steps ? steps / plan->iteration_steps : 0;
}

const char *plan_epoch_text(const TrainPlan *plan, uint64_t epoch, char *text, size_t text_bytes)
{
    if (plan_counts_iterations(plan))
        (void)snprintf(text, text_bytes, "iteration %" PRIu64,
                       plan_iterations(plan, plan_steps_before(plan, epoch + 1)));
    else
        (void)snprintf(text, text_bytes, "epoch %" PRIu64, epoch);
    return text;
}

const char *plan_place_text(const TrainPlan *plan, uint64_t epoch, char *text, size_t text_bytes)
{
    if (plan_counts_iterations(plan))
        (void)snprintf(text, text_bytes, "iteration %" PRIu64 " of %" PRIu64,
                       plan_iterations(plan, plan_steps_before(plan, epoch + 1)),
                       plan_iterations(plan, plan->total_steps));
    else
        (void)snprintf(text, text_bytes, "epoch %" PRIu64 " (%" PRIu64 " of %" PRIu64 ")", epoch, epoch + 1,
                       plan->epochs);
    return text;
}

/* Sets the run's length where it is counted in iterations. An iteration is an update, so that it takes the
 * same images however they are dealt out. */
static void plan_iterations_of(TrainPlan *plan, const TrainOptions *options)
{
    const uint64_t update = (uint64_t)options->training.grad_accum_steps, pass = plan->steps_per_pass;
    plan->iteration_steps = update;
    plan->total_steps = options->training.iters ? (uint64_t)options->training.iters * update
                                                : (uint64_t)options->training.epochs * pass;
    uint64_t every = options->training.val_every ? (uint64_t)options->training.val_every * update
                                                 : (pass + update - 1) / update * update;
    every = every < plan->total_steps ? every : plan->total_steps;
    plan->steps_per_epoch = every;
    plan->epochs = (plan->total_steps + every - 1) / every;
}

FshStatus plan_length(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->epochs = (uint64_t)options->training.epochs;
    plan->steps_per_epoch = plan->steps_per_pass;
    plan->total_steps = plan->epochs * plan->steps_per_pass;
    if (!plan->train_count)
        return FSH_OK;
    if (options->training.iters || options->training.val_every)
        plan_iterations_of(plan, options);
    if ((uint64_t)options->training.grad_accum_steps <= plan->total_steps)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "--grad-accum-steps: %lld is more than the %" PRIu64 " steps of all epochs",
                         (long long)options->training.grad_accum_steps, plan->total_steps);
}
