#include "trainer/data/worker_control.h"

#include <math.h>

enum {
    HOLD_FIRST = 8, /* windows before a change that was taken back is tried again */
    HOLD_MOST = 4096,
};

/* Shares of a window. */
static const double waits_much = 0.02;    /* of the consumer: the number of workers is wrong */
static const double waits_little = 0.005; /* of the consumer: fewer are enough */
static const double rests_much = 0.3;     /* of the workers that take part: more are no use */
/* Times the samples a second before: what a change has to reach. */
static const double least_rate[WORKER_CHANGES] = {[WORKERS_JOIN] = 1.005, [WORKERS_REST] = 0.98};
/* Times the workers that the consumer's speed asks for. */
static const double join_reserve = 1.25, rest_reserve = 1.5;

WorkerControl worker_control_start(int active, int most)
{
    return (WorkerControl){.active = active, .most = most, .settles = true};
}

void worker_control_restart(WorkerControl *control)
{
    control->settles = true;
}

/* Begins a trial with so many workers, at least one and at most all. */
static void try_workers(WorkerControl *control, WorkerChange change, double workers,
                        const WorkerShares *shares)
{
    const double most = control->most;
    control->trial = change;
    control->active_before = control->active;
    control->before = *shares;
    control->settles = true;
    control->active = workers < 1 ? 1 : workers < most ? (int)workers : control->most;
}

/* Ends the trial: keeps its number of workers, or goes back and waits, longer each time. */
static void end_trial(WorkerControl *control, const WorkerShares *shares)
{
    const WorkerChange change = control->trial;
    const WorkerShares *before = &control->before;
    uint32_t *last = &control->last_hold[change];
    const bool starves = change == WORKERS_REST && shares->consumer_waits > waits_much &&
                         shares->consumer_waits > before->consumer_waits;
    control->trial = WORKERS_STAY;
    if (shares->rate >= least_rate[change] * before->rate && !starves) {
        *last = 0;
        return;
    }
    control->active = control->active_before;
    control->settles = true;
    *last = *last == 0 ? HOLD_FIRST : *last < HOLD_MOST ? 2 * *last : HOLD_MOST;
    control->held[change] = *last;
}

/* Begins a trial if one of the two sides waits. Where both do, they are in each other's way. */
static void look_for_change(WorkerControl *control, const WorkerShares *shares)
{
    const double busy = control->active * (1 - shares->workers_wait);
    const double wanted = ceil(join_reserve * busy / fmax(1 - shares->consumer_waits, 0.01)),
                 enough = ceil(rest_reserve * busy) + 1;
    const bool rest = shares->workers_wait > rests_much &&
                      enough<control->active, starves = shares->consumer_waits> waits_much;
    if (rest && (starves || shares->consumer_waits < waits_little) && !control->held[WORKERS_REST])
        try_workers(control, WORKERS_REST, enough, shares);
    else if (starves && control->active < control->most && !control->held[WORKERS_JOIN])
        try_workers(control, WORKERS_JOIN, fmax(control->active + 1, wanted), shares);
}

bool worker_control_step(WorkerControl *control, const WorkerWindow *window)
{
    const int before = control->active;
    const WorkerShares shares = {.rate = (double)window->samples / window->seconds,
                                 .consumer_waits = window->consumer_waited / window->seconds,
                                 .workers_wait =
                                     fmin(1, window->workers_waited / (window->seconds * control->active))};
    if (window->longest_pause > window->seconds / 2)
        return false;
    if (control->settles) {
        control->settles = false;
        return false;
    }
    for (int change = 0; change < WORKER_CHANGES; change++)
        control->held[change] -= control->held[change] > 0;
    if (control->trial != WORKERS_STAY)
        end_trial(control, &shares);
    if (control->active == before)
        look_for_change(control, &shares);
    return control->active != before;
}
