/* cpu_kernels_update.h - the loops of the update: what happens to a stretch of a parameter, its gradient and
 * its optimizer's state. cpu_update.c calls them one after the other on stretches that stay in the
 * first-level cache, so that each array crosses the memory bus once however many of them there are.
 *
 * Compiled once for each instruction set like cpu_kernels.c, with the same promise: all variants give the
 * same bits. Sums of squares run in double over SQUARE_LANES sums side by side: they are finite exactly where
 * every value is.
 *
 * In place: only what is named as changed; arrays do not overlap otherwise. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_UPDATE_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_KERNELS_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

enum { SQUARE_LANES = 16 };

/* v = momentum v + d; w = shrink w - rate * (nesterov ? d + momentum v : v), with d = (g + decay w) * trust
 */
typedef struct SgdStep {
    float rate, momentum, decay, shrink, trust;
    bool nesterov;
} SgdStep;

/* adam: w *= shrink; g += decay w; w -= rate * (of_m m + of_g g) / (sqrt(s) * inverse_root + epsilon), with
 * m and s as in graph_optimizer.h (AdamNumbers).
 * lamb: u = correction * m / (sqrt(s) * inverse_root + epsilon) + decay w. */
typedef struct AdamStep {
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float inverse_root, epsilon, decay;
    float shrink, rate, of_m, of_g; /* adam */
    float correction;               /* lamb: 1 / (1 - beta1^t) */
} AdamStep;

typedef struct CpuUpdateKernels {
    double (*sum_squares)(const float *x, int64_t count);
    /* Computes y = (g + accumulated) * factor; accumulated may be NULL. */
    void (*gradient)(const float *g, const float *accumulated, float factor, float *y, int64_t count);
    /* Moves the average: average += share * (w - average). */
    void (*average)(const float *w, float share, float *average, int64_t count);
    void (*sgd)(const SgdStep *step, float *w, float *v, const float *g, int64_t count);
    void (*adam)(const AdamStep *step, float *w, float *m, float *s, const float *g, int64_t count);
    /* Moves m and s, and takes the sums of squares of w and of u. */
    void (*lamb_moments)(const AdamStep *step, const float *w, float *m, float *s, const float *g,
                         int64_t count, double squares[2]);
    /* Computes w -= rate * u. */
    void (*lamb_apply)(const AdamStep *step, float rate, float *w, const float *m, const float *s,
                       int64_t count);
    /* Moves a momentum, v = momentum v + g, and makes the step nesterov ? g + momentum v : v. */
    void (*muon_step)(float momentum, bool nesterov, float *v, const float *g, float *step, int64_t count);
    /* Computes w = kept w - far step. */
    void (*muon_apply)(float kept, float far, float *w, const float *step, int64_t count);
} CpuUpdateKernels;

#endif
