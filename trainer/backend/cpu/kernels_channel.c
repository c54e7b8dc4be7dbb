/* Compiled once for each instruction set, with FSHARD_CHANNEL_KERNELS the name of its table. */
#include "trainer/backend/cpu/kernels_channel.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK_ROWS = 32, /* summed in float before they join a double */
    LANES =
        16 /* partial sums along a row: the same for all instruction sets, so that they agree to the bit */
};

extern const CpuChannelKernels FSHARD_CHANNEL_KERNELS;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void flush(const float *block, int64_t count, double *sums)
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
        sums[c] += (double)block[c];
}

static void scale(const float *x, const float *weight, const float *addend, float *y, int64_t rows,
                  int64_t width)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        if (addend) {
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                y[c] = x[c] * weight[c] + addend[c];
            addend += width;
            continue;
        }
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = x[c] * weight[c];
    }
}

static void scale_backward(const float *dy, const float *x, const float *weight, float *dx, int64_t rows,
                           int64_t width, float *block, double *sums)
{
    for (int64_t done = 0; done < rows; done += BLOCK_ROWS) {
        memset(block, 0, (size_t)width * sizeof *block);
        for (int64_t end = smaller(rows, done + BLOCK_ROWS), r = done; r < end; r++) {
            if (dx) {
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    const float gradient = dy[c];
                    block[c] += gradient * x[c];
                    dx[c] = gradient * weight[c];
                }
                dx += width;
            } else {
#pragma omp simd
                for (int64_t c = 0; c < width; c++)
                    block[c] += dy[c] * x[c];
            }
            dy += width;
            x += width;
        }
        flush(block, width, sums);
    }
}

static void gate(const float *x, float *y, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, x += 2 * width, y += width) {
        const float *second = x + width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = x[c] * second[c];
    }
}

static void gate_backward(const float *dy, const float *x, float *dx, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, dy += width, x += 2 * width, dx += 2 * width) {
        const float *second = x + width;
        float *second_dx = dx + width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            const float a = x[c], b = second[c];
            dx[c] = dy[c] * b;
            second_dx[c] = dy[c] * a;
        }
    }
}

/* ---- layer norm ----------------------------------------------------------------------------------------------------- */

static float lanes_sum(const float lanes[LANES])
{
    float eight[8], four[4];
    for (int i = 0; i < 8; i++)
        eight[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++)
        four[i] = eight[i] + eight[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static float row_sum(const float *x, int64_t width)
{
    float lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            lanes[i] += x[c + i];
    for (int64_t i = 0; c + i < width; i++)
        lanes[i] += x[c + i];
    return lanes_sum(lanes);
}

static float row_square_sum(const float *x, float mean, int64_t width)
{
    float lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++)
            lanes[i] += (x[c + i] - mean) * (x[c + i] - mean);
    for (int64_t i = 0; c + i < width; i++)
        lanes[i] += (x[c + i] - mean) * (x[c + i] - mean);
    return lanes_sum(lanes);
}

static void layer_norm(const LayerNormRows *norm, int64_t first, int64_t rows, int64_t width)
{
    const float *weight = norm->weight, *bias = norm->bias;
    for (int64_t r = first; r < first + rows; r++) {
        const float *x = norm->x + r * width;
        float *y = norm->y + r * width;
        const float mean = row_sum(x, width) / (float)width;
        const float variance = row_square_sum(x, mean, width) / (float)width;
        const float inverse = 1 / sqrtf(variance + norm->epsilon);
        norm->mean[r] = mean;
        norm->inverse[r] = inverse;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = (x[c] - mean) * inverse * weight[c] + bias[c];
    }
}

/* The sums over a row of g = dy * weight and of g * normalised x. */
static void row_gradient_sums(const float *dy, const float *x, const float *weight, float mean, float inverse,
                              int64_t width, float *sum_g, float *sum_gx)
{
    float g_lanes[LANES] = {0}, gx_lanes[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
#pragma omp simd
        for (int i = 0; i < LANES; i++) {
            const float g = dy[c + i] * weight[c + i];
            g_lanes[i] += g;
            gx_lanes[i] += g * ((x[c + i] - mean) * inverse);
        }
    for (int64_t i = 0; c + i < width; i++) {
        const float g = dy[c + i] * weight[c + i];
        g_lanes[i] += g;
        gx_lanes[i] += g * ((x[c + i] - mean) * inverse);
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
            const float *dy = norm->dy + r * width, *x = norm->x + r * width;
            const float mean = norm->mean[r], inverse = norm->inverse[r];
            if (norm->dx) {
                float *dx = norm->dx + r * width;
                float mean_g, mean_gx;
                row_gradient_sums(dy, x, weight, mean, inverse, width, &mean_g, &mean_gx);
                mean_g /= (float)width;
                mean_gx /= (float)width;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    const float gradient = dy[c], normalised = (x[c] - mean) * inverse;
                    dweight[c] += gradient * normalised;
                    dbias[c] += gradient;
                    dx[c] = inverse * (gradient * weight[c] - mean_g - normalised * mean_gx);
                }
                continue;
            }
#pragma omp simd
            for (int64_t c = 0; c < width; c++) {
                dweight[c] += dy[c] * ((x[c] - mean) * inverse);
                dbias[c] += dy[c];
            }
        }
        flush(block, 2 * width, sums);
    }
}

const CpuChannelKernels FSHARD_CHANNEL_KERNELS = {
    .scale = scale,
    .scale_backward = scale_backward,
    .gate = gate,
    .gate_backward = gate_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
};
