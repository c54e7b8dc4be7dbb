/* Compiled once for each instruction set and type of activations, with FSHARD_CHANNEL_KERNELS the name of its
 * table. */
#include "trainer/backend/cpu/cpu_kernels_channel.h"

#include <math.h>
#include <string.h>

#include "trainer/backend/cpu/cpu_kernels_value.h"
#include "trainer/backend/pointwise_math.h"

enum {
    BLOCK_ROWS = 32, /* summed in float before they join a double */
    /* partial sums along a row: the same for all instruction sets, so that they agree to the bit */
    LANES = 16
};

extern const CpuChannelKernels FSHARD_CHANNEL_KERNELS;

static void flush(const float *block, int64_t count, double *sums)
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
        sums[c] += (double)block[c];
}

static void scale(const void *values, const float *weight, const void *addends, void *result, int64_t rows,
                  int64_t width)
{
    const Value *x = values, *addend = addends;
    Value *y = result;
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        if (addend) {
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                y[c] = store(load(x[c]) * weight[c] + load(addend[c]));
            addend += width;
            continue;
        }
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = store(load(x[c]) * weight[c]);
    }
}

static void scale_shift(const void *values, const float *weight, const float *shift, void *result,
                        int64_t rows, int64_t width)
{
    const Value *x = values;
    Value *y = result;
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = store(load(x[c]) * weight[c] + shift[c]);
    }
}

static void scale_backward(const void *gradients, const void *values, const float *weight, void *result,
                           int64_t rows, int64_t width, float *block, double *sums)
{
    const Value *dy = gradients, *x = values;
    Value *dx = result;
    for (int64_t done = 0; done < rows; done += BLOCK_ROWS) {
        memset(block, 0, (size_t)width * sizeof *block);
        for (int64_t end = smaller(rows, done + BLOCK_ROWS), r = done; r < end; r++) {
            if (dx) {
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    const float gradient = load(dy[c]);
                    block[c] += gradient * load(x[c]);
                    dx[c] = store(gradient * weight[c]);
                }
                dx += width;
            } else {
#pragma omp simd
                for (int64_t c = 0; c < width; c++)
                    block[c] += load(dy[c]) * load(x[c]);
            }
            dy += width;
            x += width;
        }
        flush(block, width, sums);
    }
}

static void gate(const void *values, void *result, int64_t rows, int64_t width)
{
    const Value *x = values;
    Value *y = result;
    for (int64_t r = 0; r < rows; r++, x += 2 * width, y += width) {
        const Value *second = x + width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = store(load(x[c]) * load(second[c]));
    }
}

static void gate_backward(const void *gradients, const void *values, void *result, int64_t rows,
                          int64_t width)
{
    const Value *dy = gradients, *x = values;
    Value *dx = result;
    for (int64_t r = 0; r < rows; r++, dy += width, x += 2 * width, dx += 2 * width) {
        const Value *second = x + width;
        Value *second_dx = dx + width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            const float a = load(x[c]), b = load(second[c]), gradient = load(dy[c]);
            dx[c] = store(gradient * b);
            second_dx[c] = store(gradient * a);
        }
    }
}

/* ---- layer norm ---- */

static float lanes_sum(const float lanes[LANES])
{
    float eight[8], four[4];
    for (int i = 0; i < 8; i++)
        eight[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        four[i] = eight[i] + eight[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static float row_sum(const Value *x, int64_t width)
{
    float lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            lanes[i] += load(x[c + i]);
    for (int64_t i = 0; c + i < width; i++)
        lanes[i] += load(x[c + i]);
    return lanes_sum(lanes);
}

static float row_square_sum(const Value *x, float mean, int64_t width)
{
    float lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            lanes[i] += (load(x[c + i]) - mean) * (load(x[c + i]) - mean);
    for (int64_t i = 0; c + i < width; i++)
        lanes[i] += (load(x[c + i]) - mean) * (load(x[c + i]) - mean);
    return lanes_sum(lanes);
}

static void layer_norm(const LayerNormRows *norm, int64_t first, int64_t rows, int64_t width)
{
    const float *weight = norm->weight, *bias = norm->bias;
    for (int64_t r = first; r < first + rows; r++) {
        const Value *x = (const Value *)norm->x + r * width;
        Value *y = (Value *)norm->y + r * width;
        const float mean = row_sum(x, width) / (float)width;
        const float variance = row_square_sum(x, mean, width) / (float)width;
        const float inverse = 1 / sqrtf(variance + norm->epsilon);
        norm->mean[r] = mean;
        norm->inverse[r] = inverse;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = store((load(x[c]) - mean) * inverse * weight[c] + bias[c]);
    }
}

/* Computes the sums over a row of g = dy * weight and of g * normalised x. */
static void row_gradient_sums(const Value *dy, const Value *x, const float *weight, float mean, float inverse,
                              int64_t width, float *sum_g, float *sum_gx)
{
    float g_lanes[LANES] = {0}, gx_lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            const float g = load(dy[c + i]) * weight[c + i];
            g_lanes[i] += g;
            gx_lanes[i] += g * ((load(x[c + i]) - mean) * inverse);
        }
    for (int64_t i = 0; c + i < width; i++) {
        const float g = load(dy[c + i]) * weight[c + i];
        g_lanes[i] += g;
        gx_lanes[i] += g * ((load(x[c + i]) - mean) * inverse);
    }
    *sum_g = lanes_sum(g_lanes);
    *sum_gx = lanes_sum(gx_lanes);
}

static void layer_norm_backward(const LayerNormRows *norm, int64_t first, int64_t rows, int64_t width,
                                float *block, double *sums)
{
    const float *weight = norm->weight;
    float *dweight = block, *dbias = block + width;
    for (int64_t done = first; done < first + rows; done += BLOCK_ROWS) {
        memset(block, 0, (size_t)(2 * width) * sizeof *block);
        for (int64_t end = smaller(first + rows, done + BLOCK_ROWS), r = done; r < end; r++) {
            const Value *dy = (const Value *)norm->dy + r * width, *x = (const Value *)norm->x + r * width;
            const float mean = norm->mean[r], inverse = norm->inverse[r];
            if (norm->dx) {
                const Value *addend = norm->addend ? (const Value *)norm->addend + r * width : NULL;
                Value *dx = (Value *)norm->dx + r * width;
                float mean_g, mean_gx;
                row_gradient_sums(dy, x, weight, mean, inverse, width, &mean_g, &mean_gx);
                mean_g /= (float)width;
                mean_gx /= (float)width;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    const float gradient = load(dy[c]), normalised = (load(x[c]) - mean) * inverse;
                    dweight[c] += gradient * normalised;
                    dbias[c] += gradient;
                    dx[c] = store(inverse * (gradient * weight[c] - mean_g - normalised * mean_gx) +
                                  (addend ? load(addend[c]) : 0));
                }
                continue;
            }
#pragma omp simd
            for (int64_t c = 0; c < width; c++) {
                const float gradient = load(dy[c]);
                dweight[c] += gradient * ((load(x[c]) - mean) * inverse);
                dbias[c] += gradient;
            }
        }
        flush(block, 2 * width, sums);
    }
}

/* ---- softmax ---- */

/* Sets values to the exponentials of what they are above `above`, which no value is by more than rounding.
 * Returns their sum. */
static float exponentials(float *values, int64_t width, float above)
{
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++) {
            values[i + lane] = pointwise_exp(values[i + lane] - above);
            lanes[lane] += values[i + lane];
        }
    for (; i < width; i++) {
        values[i] = pointwise_exp(values[i] - above);
        lanes[i % LANES] += values[i];
    }
    return lanes_sum(lanes);
}

static void softmax(float *scores, int64_t rows, int64_t width, float *log_sums)
{
    for (int64_t r = 0; r < rows; r++, scores += width) {
        float greatest = scores[0];
#pragma omp simd reduction(max : greatest)
        for (int64_t i = 0; i < width; i++)
            greatest = scores[i] > greatest ? scores[i] : greatest;
        const float sum = exponentials(scores, width, greatest), share = 1 / sum;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            scores[i] *= share;
        log_sums[r] = greatest + logf(sum);
    }
}

static void softmax_again(float *scores, int64_t rows, int64_t width, const float *log_sums)
{
    for (int64_t r = 0; r < rows; r++, scores += width)
        (void)exponentials(scores, width, log_sums[r]);
}

static void softmax_backward(const float *shares, float *gradient, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, shares += width, gradient += width) {
        float lanes[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES)
#pragma omp simd
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += shares[i + lane] * gradient[i + lane];
        for (; i < width; i++)
            lanes[i % LANES] += shares[i] * gradient[i];
        const float mean = lanes_sum(lanes);
#pragma omp simd
        for (int64_t k = 0; k < width; k++)
            gradient[k] = shares[k] * (gradient[k] - mean);
    }
}

const CpuChannelKernels FSHARD_CHANNEL_KERNELS = {
    .scale = scale,
    .scale_shift = scale_shift,
    .scale_backward = scale_backward,
    .gate = gate,
    .gate_backward = gate_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .softmax = softmax,
    .softmax_again = softmax_again,
    .softmax_backward = softmax_backward,
};
