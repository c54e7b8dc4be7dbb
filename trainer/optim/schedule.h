/* schedule.h - the learning rate of each step, a closed form of the step alone.
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
 *
 * As in torchvision's reference scripts the schedule behind the warm-up starts anew where the warm-up ends. A
 * schedule or warm-up by epochs keeps for a whole epoch the rate of its first step, as a scheduler does that
 * steps once an epoch. A rate that follows what was measured is plateau.h's, behind a warm-up of this one.
 * Pure functions: any step at any time, which is what resuming needs. */
#ifndef FSHARD_TRAINER_OPTIM_SCHEDULE_H
#define FSHARD_TRAINER_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "common/error.h"

typedef enum ScheduleKind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_POLYNOMIAL,
    SCHEDULE_KIND_COUNT
} ScheduleKind;

/* "constant", "step", "cosine", "linear", "polynomial", NULL: in enum order, for the option table. */
extern const char *const schedule_names[];

/* SCHEDULE_KIND_COUNT if there is none of this name. */
ScheduleKind schedule_find(const char *name);

typedef enum WarmupKind { WARMUP_LINEAR, WARMUP_COSINE, WARMUP_KIND_COUNT } WarmupKind;
extern const char *const warmup_names[]; /* "linear", "cosine", NULL */

typedef struct Schedule {
    ScheduleKind kind;
    double base;    /* the peak */
    double minimum; /* where cosine, linear and polynomial end */
    WarmupKind warmup;
    double warmup_factor;  /* the first step's share of base */
    uint64_t total_steps;  /* warm-up included */
    uint64_t warmup_steps; /* less than total_steps */
    uint64_t step_size;    /* SCHEDULE_STEP: steps between two drops, > 0 */
    double gamma;          /* SCHEDULE_STEP: what each drop multiplies by */
    double power;          /* SCHEDULE_POLYNOMIAL: > 0 */
    /* The rate moves at each step (0), or every so many: at the start of each epoch. */
    uint64_t hold_steps;        /* behind the warm-up */
    uint64_t warmup_hold_steps; /* in the warm-up */
} Schedule;

/* Learning rate for step 0..total_steps-1; beyond them, that of the end. */
double schedule_at(const Schedule *schedule, uint64_t step);

#endif
