/* Compiled once for each instruction set and type of activations, with FSHARD_POOL_KERNELS the name of its
 * table. */
#include "trainer/backend/cpu/cpu_kernels_pool.h"

#include <float.h>

#include "trainer/backend/cpu/cpu_kernels_value.h"

enum { CHANNEL_BLOCK = 64 }; /* accumulators that stay in registers or L1 */

extern const CpuPoolKernels FSHARD_POOL_KERNELS;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Finds the input pixels first..end that window `out` covers along one axis. */
static void window(int64_t out, int64_t in_size, const PoolShape *shape, int64_t *first, int64_t *end)
{
    const int64_t start = out * shape->stride - shape->padding;
    *first = larger(start, 0);
    *end = smaller(start + shape->kernel, in_size);
}

/* Finds the windows first..end that cover input pixel `in` along one axis. */
static void covering(int64_t in, int64_t out_size, const PoolShape *shape, int64_t *first, int64_t *end)
{
    const int64_t position = in + shape->padding;
    *first = position < shape->kernel ? 0 : (position - shape->kernel) / shape->stride + 1;
    *end = smaller(position / shape->stride + 1, out_size);
}

/* What a block of channels of one window has: its largest value, and where in the window it lies. */
typedef struct Largest {
    float value[CHANNEL_BLOCK];
    int32_t place[CHANNEL_BLOCK];
} Largest;

/* Finds the largest of sign * value in a window, for `size` channels from `block` on. The first of equals
 * stays; NaN wins, as in PyTorch. */
static inline Largest largest_of(const PoolShape *s, const Value *x, int64_t out_row, int64_t out_column,
                                 int64_t block, int64_t size, const float *sign)
{
    Largest largest;
    int64_t row_first, row_end, column_first, column_end;
    window(out_row, s->in_height, s, &row_first, &row_end);
    window(out_column, s->in_width, s, &column_first, &column_end);
    for (int64_t c = 0; c < CHANNEL_BLOCK; c++) {
        largest.value[c] = -FLT_MAX;
        largest.place[c] = -1;
    }
    for (int64_t row = row_first; row < row_end; row++)
        for (int64_t column = column_first; column < column_end; column++) {
            const Value *pixel = x + (row * s->in_width + column) * s->channels + block;
            const int32_t here = (int32_t)((row - out_row * s->stride + s->padding) * s->kernel + column -
                                           out_column * s->stride + s->padding);
#pragma omp simd
            for (int64_t c = 0; c < size; c++) {
                const float value = sign[c] * load(pixel[c]);
                const bool wins = value > largest.value[c] || largest.place[c] < 0 || value != value;
                largest.value[c] = wins ? value : largest.value[c];
                largest.place[c] = wins ? here : largest.place[c];
            }
        }
    return largest;
}

static void max_pool(const PoolShape *s, const void *values, int64_t out_row, void *result, uint8_t *index)
{
    const Value *x = values;
    Value *y = result;
    const int64_t channels = s->channels;
    float sign[CHANNEL_BLOCK];
    for (int64_t c = 0; c < CHANNEL_BLOCK; c++)
        sign[c] = 1;
    for (int64_t column = 0; column < s->out_width; column++, y += channels, index += channels)
        for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
            const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
            const Largest largest = largest_of(s, x, out_row, column, block, size, sign);
            for (int64_t c = 0; c < size; c++) {
                y[block + c] = store(largest.value[c]);
                index[block + c] = (uint8_t)largest.place[c];
            }
        }
}

static void norm_pool(const PoolShape *s, const NormPool *norm, const void *values, int64_t out_row,
                      void *result, void *extremes, uint8_t *index)
{
    const Value *x = values;
    Value *y = result, *extreme = extremes;
    const int64_t channels = s->channels;
    const float slope = norm->slope;
    for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
        const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
        const float *mean = norm->mean + block, *scale = norm->scale + block, *bias = norm->bias + block;
        float sign[CHANNEL_BLOCK];
        for (int64_t c = 0; c < size; c++)
            sign[c] = scale[c] < 0 ? -1.0F : 1.0F;
        for (int64_t column = 0; column < s->out_width; column++) {
            const Largest largest = largest_of(s, x, out_row, column, block, size, sign);
            const int64_t at = column * channels + block;
#pragma omp simd
            for (int64_t c = 0; c < size; c++) {
                const float value = sign[c] * largest.value[c];
                const float n = (value - mean[c]) * scale[c] + bias[c];
                extreme[at + c] = store(value);
                y[at + c] = store(!(n < 0) ? n : slope == 0 ? 0 : slope * n);
                index[at + c] = (uint8_t)largest.place[c];
            }
        }
    }
}

/* Adds, for `size` channels from `block` on, what the windows over an input pixel have as the gradient of
 * their largest value, where that is the pixel. It gathers: each input pixel is written once, by one
 * thread. */
static inline void add_gradients(const PoolShape *s, const Value *dy, const uint8_t *index, int64_t in_row,
                                 int64_t in_column, int64_t block, int64_t size, float *sum)
{
    int64_t row_first, row_end, column_first, column_end;
    covering(in_row, s->out_height, s, &row_first, &row_end);
    covering(in_column, s->out_width, s, &column_first, &column_end);
    for (int64_t row = row_first; row < row_end; row++)
        for (int64_t column = column_first; column < column_end; column++) {
            const int64_t at = (row * s->out_width + column) * s->channels + block;
            const int32_t here = (int32_t)((in_row - row * s->stride + s->padding) * s->kernel + in_column -
                                           column * s->stride + s->padding);
#pragma omp simd
            for (int64_t c = 0; c < size; c++)
                sum[c] += index[at + c] == here ? load(dy[at + c]) : 0;
        }
}

static void max_pool_backward(const PoolShape *s, const void *gradient, const uint8_t *index, int64_t in_row,
                              void *result)
{
    Value *dx = result;
    const int64_t channels = s->channels;
    for (int64_t column = 0; column < s->in_width; column++, dx += channels)
        for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
            const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
            float sum[CHANNEL_BLOCK] = {0};
            add_gradients(s, gradient, index, in_row, column, block, size, sum);
            for (int64_t c = 0; c < size; c++)
                dx[block + c] = store(sum[c]);
        }
}

static void norm_pool_backward(const PoolShape *s, const NormPoolGradient *norm, const void *g,
                               const uint8_t *index, int64_t in_row, const void *values, void *result)
{
    const Value *x = values;
    Value *dx = result;
    const int64_t channels = s->channels;
    for (int64_t column = 0; column < s->in_width; column++, x += channels, dx += channels)
        for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
            const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
            const float *mean = norm->mean + block, *from_g = norm->from_g + block,
                        *from_x = norm->from_x + block, *constant = norm->constant + block;
            float sum[CHANNEL_BLOCK] = {0};
            add_gradients(s, g, index, in_row, column, block, size, sum);
#pragma omp simd
            for (int64_t c = 0; c < size; c++)
                dx[block + c] =
                    store(from_g[c] * sum[c] + (from_x[c] * (load(x[block + c]) - mean[c]) + constant[c]));
        }
}

/* Computes y = share * the sum of pixels [row_first, row_end) x [column_first, column_end) of an image of
 * `width` pixels a row. */
static void window_sum(const Value *x, int64_t width, int64_t channels, int64_t row_first, int64_t row_end,
                       int64_t column_first, int64_t column_end, float share, Value *y)
{
    for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
        const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
        float sum[CHANNEL_BLOCK] = {0};
        for (int64_t row = row_first; row < row_end; row++)
            for (int64_t column = column_first; column < column_end; column++) {
                const Value *pixel = x + (row * width + column) * channels + block;
#pragma omp simd
                for (int64_t c = 0; c < size; c++)
                    sum[c] += load(pixel[c]);
            }
#pragma omp simd
        for (int64_t c = 0; c < size; c++)
            y[block + c] = store(sum[c] * share);
    }
}

/* Returns what one pixel of a window counts in the window's mean. */
static float window_share(const PoolShape *s, int64_t out_row, int64_t out_column)
{
    if (!s->ceil)
        return 1 / (float)(s->kernel * s->kernel);
    return 1 / (float)(smaller(s->kernel, s->in_height - out_row * s->stride) *
                       smaller(s->kernel, s->in_width - out_column * s->stride));
}

static void avg_pool(const PoolShape *s, const void *x, int64_t out_row, void *y)
{
    int64_t row_first, row_end, column_first, column_end;
    window(out_row, s->in_height, s, &row_first, &row_end);
    for (int64_t out_column = 0; out_column < s->out_width; out_column++) {
        window(out_column, s->in_width, s, &column_first, &column_end);
        window_sum(x, s->in_width, s->channels, row_first, row_end, column_first, column_end,
                   window_share(s, out_row, out_column), (Value *)y + out_column * s->channels);
    }
}

static void avg_pool_backward(const PoolShape *s, const void *dy, int64_t in_row, void *dx)
{
    int64_t row_first, row_end, column_first, column_end;
    covering(in_row, s->out_height, s, &row_first, &row_end);
    for (int64_t in_column = 0; in_column < s->in_width; in_column++) {
        covering(in_column, s->out_width, s, &column_first, &column_end);
        window_sum(dy, s->out_width, s->channels, row_first, row_end, column_first, column_end,
                   window_share(s, row_first, column_first), (Value *)dx + in_column * s->channels);
    }
}

const CpuPoolKernels FSHARD_POOL_KERNELS = {.max_pool = max_pool,
                                            .max_pool_backward = max_pool_backward,
                                            .norm_pool = norm_pool,
                                            .norm_pool_backward = norm_pool_backward,
                                            .avg_pool = avg_pool,
                                            .avg_pool_backward = avg_pool_backward};
