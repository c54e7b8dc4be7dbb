/* schedule.h - the learning rate of each step, as a closed formula of the step.
 *
 *   warm-up     steps 0..w-1, with f the first step's share (0: from zero):
 *     linear    base * (f + (1 - f) * t / w)                              LinearLR
 *     cosine    base * (f + (1 - f) * (1 - cos(pi t / w)) / 2)
 *   then, with s = t - w and p = s / (total - w):
 *   constant    base
 *   step        base * gamma ^ floor(s / step_size)                       torch.optim.lr_scheduler.StepLR
 *   cosine      min + (base - min) * (1 + cos(pi p)) / 2                  CosineAnnealingLR (Loshchilov and
 *                                                                         Hutter 2017)
 *   linear      base + (min - base) * p                                   with a warm-up from zero one cycle,
 *               as FFCV's
 *   polynomial  min + (base - min) * (1 - p) ^ power                      PolynomialLR
 *   flat-cosine base while p < flat, then with q = (p - flat) / (1 - flat):
 *               min + (base - min) * (1 + cos(pi q)) / 2                  fastai's fit_flat_cos
 *   one-cycle   with u = rise * n - 1, n the steps: half a cosine from base / div up to base at step u, then
 *               half a cosine down to base / div / final_div at the last step, and the momentum along the
 *               same halves from momentum_max to momentum_min and back    OneCycleLR (Smith 2018)
 *   plateau     base, which plateau.h lowers by what is measured          ReduceLROnPlateau
 *
 * As in torchvision's reference scripts, the schedule starts anew where the warm-up ends. A schedule or
 * warm-up by epochs keeps the rate of an epoch's first step for the whole epoch, like a scheduler that steps
 * once an epoch. Pure functions: any step at any time, as resuming needs. */
#ifndef FSHARD_TRAINER_OPTIM_SCHEDULE_H
#define FSHARD_TRAINER_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { SCHEDULE_MILESTONES_MAX = 32 };

typedef enum ScheduleKind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_POLYNOMIAL,
    SCHEDULE_FLAT_COSINE,
    SCHEDULE_ONE_CYCLE,
    SCHEDULE_PLATEAU,
    SCHEDULE_KIND_COUNT
} ScheduleKind;

/* Names in enum order, for the option table: "constant", "step", "cosine", …, NULL. */
extern const char *const schedule_names[];

typedef enum WarmupKind { WARMUP_LINEAR, WARMUP_COSINE, WARMUP_KIND_COUNT } WarmupKind;
extern const char *const warmup_names[]; /* "linear", "cosine", NULL */

typedef struct Schedule {
    ScheduleKind kind;
    double base;    /* the peak */
    double minimum; /* the rate at which cosine, linear and polynomial end */
    WarmupKind warmup;
    double warmup_factor;  /* the first step's share of base */
    uint64_t total_steps;  /* warm-up included */
    uint64_t warmup_steps; /* less than total_steps */
    uint64_t step_size;    /* SCHEDULE_STEP: steps between two drops, > 0 */
    /* SCHEDULE_STEP: in place of step_size, the steps at which the rate drops, ascending, counted from the
     * beginning of the run as MultiStepLR does; 0 of them: step_size says it */
    uint64_t milestones[SCHEDULE_MILESTONES_MAX];
    size_t milestone_count;
    double gamma; /* SCHEDULE_STEP: multiplies the rate at each drop */
    double power; /* SCHEDULE_POLYNOMIAL: > 0 */
    double flat;  /* SCHEDULE_FLAT_COSINE: the share of the steps after the warm-up; 0 <= flat < 1 */
    /* SCHEDULE_ONE_CYCLE, which has no warm-up: the part of the steps in which the rate rises, at most 1;
     * what divides the highest rate at the first step, and what divides that at the last; all above 0 */
    double rise, div, final_div;
    bool cycles_momentum;
    double momentum_min, momentum_max;
    /* How many steps keep one rate, so that it changes at the start of each epoch; 0: it changes at each
     * step. */
    uint64_t hold_steps;        /* after the warm-up */
    uint64_t warmup_hold_steps; /* in the warm-up */
} Schedule;

/* Returns the learning rate of step 0..total_steps-1; for later steps that of the end. */
double schedule_at(const Schedule *schedule, uint64_t step);
/* Returns the momentum (sgd's, or beta1) of a step, with cycles_momentum. */
double schedule_momentum_at(const Schedule *schedule, uint64_t step);

#endif
