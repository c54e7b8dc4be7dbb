/* target_math.h - the losses of rows of targets (graph_target_loss), of one value, for the CPU and CUDA.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_BACKEND_TARGET_MATH_H
#define FSHARD_TRAINER_BACKEND_TARGET_MATH_H

#include <math.h>

#include "common/philox.h" /* FSH_HOST_DEVICE */
#include "trainer/graph/graph_ops.h"

/* Returns what a target becomes: smoothed and, where the loss binarizes, 0 or 1; of numbers itself. */
FSH_HOST_DEVICE static inline double target_of(const TargetLoss *loss, float target)
{
    if (loss->kind != LOSS_BCE)
        return (double)target;
    const double smooth = (double)target * (1 - (double)loss->smoothing) + (double)loss->smoothing / 2;
    return !loss->binarizes ? smooth : smooth > (double)loss->threshold ? 1 : 0;
}

/* Returns the loss of x beside target t. positive: the weight of what is there, for LOSS_BCE: log(1 +
 * exp(-|x|)) overflows for no x. */
FSH_HOST_DEVICE static inline double target_term(LossKind kind, float x, double t, double positive)
{
    const double d = (double)x - t, away = fabs(d);
    switch (kind) {
    case LOSS_BCE:
        return (1 - t) * (double)x +
               (1 + (positive - 1) * t) * ((double)(x < 0 ? -x : 0) + (double)log1pf(expf(-fabsf(x))));
    case LOSS_MSE:
        return d * d;
    case LOSS_L1:
        return away;
    default: /* LOSS_HUBER */
        return away <= 1 ? d * d / 2 : away - 0.5;
    }
}

/* Returns the derivative of target_term by x. */
FSH_HOST_DEVICE static inline double target_slope(LossKind kind, float x, double t, double positive)
{
    const double d = (double)x - t;
    if (kind == LOSS_BCE) {
        const float small = expf(-fabsf(x));
        const double below = (double)((x < 0 ? 1 : small) / (1 + small)); /* 1 - sigmoid(x) */
        return 1 - t - (1 + (positive - 1) * t) * below;
    }
    if (kind == LOSS_MSE)
        return 2 * d;
    if (kind == LOSS_HUBER && fabs(d) <= 1)
        return d;
    return d > 0 ? 1 : d < 0 ? -1 : d; /* NaN stays NaN */
}

#endif
