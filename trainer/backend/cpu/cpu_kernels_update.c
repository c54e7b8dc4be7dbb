/* Compiled once for each instruction set, with FSHARD_UPDATE_KERNELS the name of its table. */
#include "trainer/backend/cpu/cpu_kernels_update.h"

#include <math.h>

extern const CpuUpdateKernels FSHARD_UPDATE_KERNELS;

/* Returns the sum over the lanes. Value i joined lane i mod SQUARE_LANES: the order of the sum is the same
 * for every width of vectors. */
static double sum_lanes(const double *lanes)
{
    double sum = 0;
    for (int j = 0; j < SQUARE_LANES; j++)
        sum += lanes[j];
    return sum;
}

static double sum_squares(const float *x, int64_t count)
{
    double lanes[SQUARE_LANES] = {0};
    const int64_t whole = count / SQUARE_LANES * SQUARE_LANES;
    for (int64_t i = 0; i < whole; i += SQUARE_LANES)
#pragma omp simd
        for (int j = 0; j < SQUARE_LANES; j++)
            lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (int64_t i = whole; i < count; i++)
        lanes[i - whole] += (double)x[i] * (double)x[i];
    return sum_lanes(lanes);
}

static void gradient(const float *g, const float *accumulated, float factor, float *y, int64_t count)
{
    if (accumulated) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = (g[i] + accumulated[i]) * factor;
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = g[i] * factor;
}

static void average(const float *w, float share, float *mean, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        mean[i] += share * (w[i] - mean[i]);
}

/* Updates w and v by SGD. The step is copied, so that no store can change it and its numbers stay in
 * registers. */
static void sgd(const SgdStep *step, float *w, float *v, const float *g, int64_t count)
{
    const SgdStep s = *step;
    if (s.nesterov) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float d = (g[i] + s.decay * w[i]) * s.trust;
            v[i] = s.momentum * v[i] + d;
            w[i] = s.shrink * w[i] - s.rate * (d + s.momentum * v[i]);
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        v[i] = s.momentum * v[i] + (g[i] + s.decay * w[i]) * s.trust;
        w[i] = s.shrink * w[i] - s.rate * v[i];
    }
}

static void adam(const AdamStep *step, float *w, float *m, float *s, const float *g, int64_t count)
{
    const AdamStep a = *step;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const float kept = w[i] * a.shrink, d = g[i] + a.decay * kept;
        m[i] = a.beta1 * m[i] + a.one_minus_beta1 * d;
        s[i] = a.beta2 * s[i] + a.one_minus_beta2 * (d * d);
        w[i] = kept - a.rate * ((a.of_m * m[i] + a.of_g * d) / (sqrtf(s[i]) * a.inverse_root + a.epsilon));
    }
}

static inline float lamb_direction(const AdamStep *a, float w, float m, float s)
{
    return a->correction * m / (sqrtf(s) * a->inverse_root + a->epsilon) + a->decay * w;
}

static void lamb_moments(const AdamStep *step, const float *w, float *m, float *s, const float *g,
                         int64_t count, double squares[2])
{
    enum { BLOCK = 16 * SQUARE_LANES };
    const AdamStep a = *step;
    double of_w[SQUARE_LANES] = {0}, of_u[SQUARE_LANES] = {0};
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t size = count - done < BLOCK ? count - done : BLOCK;
        float u[BLOCK];
        for (int64_t i = size; i < BLOCK; i++)
            u[i] = 0;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            const int64_t k = done + i;
            m[k] = a.beta1 * m[k] + a.one_minus_beta1 * g[k];
            s[k] = a.beta2 * s[k] + a.one_minus_beta2 * (g[k] * g[k]);
            u[i] = lamb_direction(&a, w[k], m[k], s[k]);
        }
        for (int64_t i = 0; i < size; i += SQUARE_LANES) {
            const int lanes = (int)(size - i < SQUARE_LANES ? size - i : SQUARE_LANES);
#pragma omp simd
            for (int j = 0; j < SQUARE_LANES; j++)
                of_u[j] += (double)u[i + j] * (double)u[i + j];
#pragma omp simd
            for (int j = 0; j < lanes; j++)
                of_w[j] += (double)w[done + i + j] * (double)w[done + i + j];
        }
    }
    squares[0] = sum_lanes(of_w);
    squares[1] = sum_lanes(of_u);
}

static void lamb_apply(const AdamStep *step, float rate, float *w, const float *m, const float *s,
                       int64_t count)
{
    const AdamStep a = *step;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        w[i] -= rate * lamb_direction(&a, w[i], m[i], s[i]);
}

static void muon_step(float momentum, bool nesterov, float *v, const float *g, float *step, int64_t count)
{
    const float ahead = nesterov ? momentum : 1, own = nesterov ? 1 : 0;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        v[i] = momentum * v[i] + g[i];
        step[i] = own * g[i] + ahead * v[i];
    }
}

static void muon_apply(float kept, float far, float *w, const float *step, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        w[i] = kept * w[i] - far * step[i];
}

const CpuUpdateKernels FSHARD_UPDATE_KERNELS = {
    .sum_squares = sum_squares,
    .gradient = gradient,
    .average = average,
    .sgd = sgd,
    .adam = adam,
    .lamb_moments = lamb_moments,
    .lamb_apply = lamb_apply,
    .muon_step = muon_step,
    .muon_apply = muon_apply,
};
