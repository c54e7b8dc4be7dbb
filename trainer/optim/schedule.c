#include "trainer/optim/schedule.h"

#include <math.h>
#include <string.h>

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
    return schedule->base * pow(schedule->gamma, floor(step / (double)schedule->step_size));
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

const char *const schedule_names[] = {"constant", "step", "cosine", "linear", NULL};

static double (*const forms[])(const Schedule *schedule, double step,
                               double progress) = {constant_at, step_at, cosine_at, linear_at};

ScheduleKind schedule_find(const char *name)
{
    int kind = 0;
    while (kind < SCHEDULE_KIND_COUNT && strcmp(schedule_names[kind], name) != 0)
        kind++;
    return (ScheduleKind)kind;
}

double schedule_at(const Schedule *schedule, uint64_t step)
{
    if (step < schedule->warmup_steps) {
        double risen = (double)step / (double)schedule->warmup_steps;
        return schedule->base * (schedule->warmup_factor + (1 - schedule->warmup_factor) * risen);
    }
    if (step > schedule->total_steps)
        step = schedule->total_steps;
    double after = (double)(step - schedule->warmup_steps);
    double length = (double)(schedule->total_steps - schedule->warmup_steps);
    return forms[schedule->kind](schedule, after, length > 0 ? after / length : 1);
}
