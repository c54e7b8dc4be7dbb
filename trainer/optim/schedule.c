#include "trainer/optim/schedule.h"

#include <math.h>
#include <stddef.h>

static const double pi = 3.14159265358979323846;

static double constant_at(const Schedule *schedule, double step, double progress)
{
    (void)step;
    (void)progress;
    return schedule->base;
}

static double step_at(const Schedule *schedule, double step, double progress)
{
    (void)progress;
    size_t passed = 0;
    while (passed < schedule->milestone_count &&
           (double)schedule->milestones[passed] <= step + (double)schedule->warmup_steps)
        passed++;
    if (schedule->milestone_count)
        return schedule->base * pow(schedule->gamma, (double)passed);
    return schedule->base * pow(schedule->gamma, floor(step / (double)schedule->step_size));
}

static double flat_cosine_at(const Schedule *schedule, double step, double progress)
{
    const double fallen = (progress - schedule->flat) / (1 - schedule->flat);
    (void)step;
    return schedule->minimum +
           (schedule->base - schedule->minimum) * (1 + cos(pi * (fallen > 0 ? fallen : 0))) / 2;
}

static double cosine_at(const Schedule *schedule, double step, double progress)
{
    (void)step;
    return schedule->minimum + (schedule->base - schedule->minimum) * (1 + cos(pi * progress)) / 2;
}

static double linear_at(const Schedule *schedule, double step, double progress)
{
    (void)step;
    return schedule->base + (schedule->minimum - schedule->base) * progress;
}

static double polynomial_at(const Schedule *schedule, double step, double progress)
{
    (void)step;
    return schedule->minimum + (schedule->base - schedule->minimum) * pow(1 - progress, schedule->power);
}

/* Returns how far a cycle has come from its low point (0) to its peak (1), and sets *falls to whether it is
 * on the way down. */
static double cycle_height(const Schedule *schedule, double step, bool *falls)
{
    const double last = (double)schedule->total_steps - 1, peak = schedule->rise * (last + 1) - 1;
    *falls = step > peak;
    const double from = *falls ? peak : 0, to = *falls ? last : peak;
    const double share = to > from ? (step - from) / (to - from) : 1;
    const double risen = (1 - cos(pi * (share < 1 ? share : 1))) / 2;
    return *falls ? 1 - risen : risen;
}

static double one_cycle_at(const Schedule *schedule, double step, double progress)
{
    bool falls;
    const double height = cycle_height(schedule, step, &falls);
    const double low = schedule->base / schedule->div / (falls ? schedule->final_div : 1);
    (void)progress;
    return low + (schedule->base - low) * height;
}

const char *const schedule_names[] = {"constant",    "step",      "cosine",  "linear", "polynomial",
                                      "flat-cosine", "one-cycle", "plateau", NULL};
const char *const warmup_names[] = {"linear", "cosine", NULL};

static double (*const forms[])(const Schedule *schedule, double step, double progress) = {
    [SCHEDULE_CONSTANT] = constant_at,     [SCHEDULE_STEP] = step_at,
    [SCHEDULE_COSINE] = cosine_at,         [SCHEDULE_LINEAR] = linear_at,
    [SCHEDULE_POLYNOMIAL] = polynomial_at, [SCHEDULE_FLAT_COSINE] = flat_cosine_at,
    [SCHEDULE_ONE_CYCLE] = one_cycle_at,   [SCHEDULE_PLATEAU] = constant_at,
};

/* Returns the last step at which the rate changed. */
static uint64_t held(uint64_t step, uint64_t hold_steps)
{
    return hold_steps ? step / hold_steps * hold_steps : step;
}

static double warmup_at(const Schedule *schedule, uint64_t step)
{
    const double risen = (double)held(step, schedule->warmup_hold_steps) / (double)schedule->warmup_steps;
    const double share = schedule->warmup == WARMUP_COSINE ? (1 - cos(pi * risen)) / 2 : risen;
    return schedule->base * (schedule->warmup_factor + (1 - schedule->warmup_factor) * share);
}

double schedule_at(const Schedule *schedule, uint64_t step)
{
    if (step < schedule->warmup_steps)
        return warmup_at(schedule, step);
    if (step > schedule->total_steps)
        step = schedule->total_steps;
    step = held(step, schedule->hold_steps);
    /* A warm-up may end in the middle of an epoch. */
    double after = step > schedule->warmup_steps ? (double)(step - schedule->warmup_steps) : 0;
    double length = (double)(schedule->total_steps - schedule->warmup_steps);
    return forms[schedule->kind](schedule, after, length > 0 ? after / length : 1);
}

double schedule_momentum_at(const Schedule *schedule, uint64_t step)
{
    bool falls;
    const double height = cycle_height(schedule, (double)held(step, schedule->hold_steps), &falls);
    return schedule->momentum_max + (schedule->momentum_min - schedule->momentum_max) * height;
}
