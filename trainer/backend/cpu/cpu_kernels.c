/* Compiled once for each instruction set and type of activations (kernels_value.h), with FSHARD_KERNELS the
 * name of its table and FSHARD_KERNELS_NAME its text. Loops carry `omp simd`: outputs may be an input's
 * memory, element by element, which it allows. */
#include "trainer/backend/cpu/cpu_kernels_tables.h"

#include <float.h>
#include <string.h>

#include "trainer/backend/cpu/cpu_kernels_value.h"
#include "trainer/backend/pointwise_math.h"

extern const CpuChannelKernels FSHARD_CHANNEL_KERNELS;
extern const CpuDepthwiseKernels FSHARD_DEPTHWISE_KERNELS;

enum {
    BLOCK_ROWS = 32,    /* summed in float before they join a double: an error of some 1e-7 relative */
    CHANNEL_BLOCK = 64, /* of pools and sums: accumulators that stay in registers or L1 */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void normalize(const uint8_t *x, const float *scale, const float *shift, void *result, int64_t rows,
                      int64_t width)
{
    Value *y = result;
    for (int64_t r = 0; r < rows; r++, x += width, y += width)
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            y[c] = store((float)x[c] * scale[c] + shift[c]);
}

static void from_f32(const float *x, void *result, int64_t count)
{
    Value *y = result;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = store(x[i]);
}

static void to_f32(const void *values, float *y, int64_t count)
{
    const Value *x = values;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = load(x[i]);
}

static void transpose(const void *values, int64_t rows, int64_t columns, void *result)
{
    const Value *x = values;
    Value *y = result;
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            y[j * rows + i] = x[i * columns + j];
}

static void add(const void *left, const void *right, void *sum, int64_t count)
{
    const Value *a = left, *b = right;
    Value *y = sum;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = store(load(a[i]) + load(b[i]));
}

static void sum_of(const void *const *terms, int term_count, void *result, int64_t count)
{
    Value *y = result;
    for (int64_t block = 0; block < count; block += CHANNEL_BLOCK) {
        const int64_t size = smaller(CHANNEL_BLOCK, count - block);
        float sum[CHANNEL_BLOCK] = {0};
        for (int k = 0; k < term_count; k++) {
            const Value *x = (const Value *)terms[k] + block;
#pragma omp simd
            for (int64_t i = 0; i < size; i++)
                sum[i] += load(x[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            y[block + i] = store(sum[i]);
    }
}

static void relu(const void *values, void *result, int64_t count, float slope)
{
    const Value *x = values;
    Value *y = result;
    if (slope == 0) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = load(x[i]) < 0 ? 0 : x[i]; /* this way round NaN stays NaN */
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = load(x[i]) < 0 ? store(slope * load(x[i])) : x[i];
}

static void relu_backward(const void *gradient, const void *values, void *result, int64_t count, float slope)
{
    const Value *dy = gradient, *y = values;
    Value *dx = result;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        dx[i] = load(y[i]) > 0 ? dy[i] : store(slope * load(dy[i]));
}

/* ---- functions of one value ---- */

static void pointwise(OpKind op, const void *values, void *result, int64_t count)
{
    const Value *x = values;
    Value *y = result;
#define LOOP(KIND, function, narrow)                                                                         \
    if (op == OP_##KIND) {                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[i] = store(function(load(x[i])));          \
    }
    POINTWISE_FUNCTIONS(LOOP)
#undef LOOP
}

static void pointwise_backward(OpKind op, const void *gradient, const void *values, void *result,
                               int64_t count)
{
    const Value *dy = gradient, *x = values;
    Value *dx = result;
#define LOOP(KIND, function, narrow)                                                                         \
    if (op == OP_##KIND##_BACKWARD) {                                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) dx[i] =                                      \
            store(load(dy[i]) * function##_slope(load(x[i])));                                               \
    }
    POINTWISE_FUNCTIONS(LOOP)
#undef LOOP
}

/* ---- batch norm ---- */

static void flush(const float *block, int64_t width, double *sums)
{
#pragma omp simd
    for (int64_t c = 0; c < 2 * width; c++)
        sums[c] += (double)block[c];
}

static void norm_sums(const void *values, const float *shift, int64_t rows, int64_t width, float *block,
                      double *sums)
{
    const Value *x = values;
    float *first = block, *second = block + width;
    for (int64_t done = 0; done < rows; done += BLOCK_ROWS) {
        memset(block, 0, (size_t)(2 * width) * sizeof *block);
        for (int64_t end = smaller(rows, done + BLOCK_ROWS), r = done; r < end; r++, x += width)
#pragma omp simd
            for (int64_t c = 0; c < width; c++) {
                float difference = load(x[c]) - shift[c];
                first[c] += difference;
                second[c] += difference * difference;
            }
        flush(block, width, sums);
    }
}

static inline float activate(float value, OpKind activation, float slope)
{
#define RETURN(KIND, function, narrow)                                                                       \
    if (activation == OP_##KIND)                                                                             \
        return function(value);
    POINTWISE_ACTIVATIONS(RETURN)
#undef RETURN
    return activation != OP_RELU || !(value < 0) ? value : slope == 0 ? 0 : slope * value;
}

/* Computes rows of the norm. What follows width is constant at each call, so that no loop has a branch. */
static inline void norm_forward_rows(const NormForward *norm, int64_t first, int64_t rows, int64_t width,
                                     bool has_addend, OpKind activation, bool is_leaky)
{
    const float *mean = norm->mean, *scale = norm->scale, *bias = norm->bias;
    const float slope = is_leaky ? norm->slope : 0;
    for (int64_t r = first; r < first + rows; r++) {
        const Value *x = (const Value *)norm->x + r * width;
        const Value *addend = has_addend ? (const Value *)norm->addend + r * width : x;
        Value *y = (Value *)norm->y + r * width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            float value = (load(x[c]) - mean[c]) * scale[c] + bias[c];
            if (has_addend)
                value += load(addend[c]);
            y[c] = store(activate(value, activation, slope));
        }
    }
}

static void norm_forward(const NormForward *norm, int64_t first, int64_t rows, int64_t width)
{
    const bool is_leaky = norm->slope != 0;
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND:                                                                                          \
        norm_forward_rows(norm, first, rows, width, false, OP_##KIND, false);                                \
        break;
    switch (norm->activation) {
        POINTWISE_ACTIVATIONS(CASE)
    case OP_RELU:
        if (norm->addend && !is_leaky)
            norm_forward_rows(norm, first, rows, width, true, OP_RELU, false);
        else if (norm->addend)
            norm_forward_rows(norm, first, rows, width, true, OP_RELU, true);
        else if (!is_leaky)
            norm_forward_rows(norm, first, rows, width, false, OP_RELU, false);
        else
            norm_forward_rows(norm, first, rows, width, false, OP_RELU, true);
        break;
    default: /* none */
        if (norm->addend)
            norm_forward_rows(norm, first, rows, width, true, (OpKind)0, false);
        else
            norm_forward_rows(norm, first, rows, width, false, (OpKind)0, false);
        break;
    }
#undef CASE
}

/* How the gradient passes the activation: OP_RELU by the norm's result, made of x again, or by y; the others
 * by their slope at the norm's result. */
enum { GATE_NONE, GATE_X, GATE_Y, GATE_FUNCTION };
#define GATE_OF(kind) (GATE_FUNCTION + (int)(kind))

static inline float gated(int gate, float dy, float x_minus_mean, float y, float scale, float bias,
                          float slope)
{
    const float value = gate == GATE_Y ? y : x_minus_mean * scale + bias;
    const float off = slope * dy;
#define RETURN(KIND, function, narrow)                                                                       \
    if (gate == GATE_OF(OP_##KIND))                                                                          \
        return dy * function##_slope(value);
    POINTWISE_ACTIVATIONS(RETURN)
#undef RETURN
    return gate == GATE_NONE || value > 0 ? dy : off;
}

static inline void norm_backward_sums_rows(const NormBackward *norm, int64_t first, int64_t rows,
                                           int64_t width, float *block, double *sums, int gate, bool stores,
                                           bool has_second)
{
    const float *mean = norm->mean, *scale = norm->scale, *bias = norm->bias;
    const float slope = norm->slope; /* a copy: stores in the loop cannot change it */
    float *sum_g = block, *sum_gx = block + width;
    for (int64_t done = first; done < first + rows; done += BLOCK_ROWS) {
        memset(block, 0, (size_t)(2 * width) * sizeof *block);
        for (int64_t end = smaller(first + rows, done + BLOCK_ROWS), r = done; r < end; r++) {
            const Value *dy = (const Value *)norm->dy + r * width, *x = (const Value *)norm->x + r * width;
            const Value *y = gate == GATE_Y ? (const Value *)norm->y + r * width : x;
            const Value *dy2 = has_second ? (const Value *)norm->dy2 + r * width : dy;
            Value *g = stores ? (Value *)norm->g + r * width : NULL;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) {
                const float difference = load(x[c]) - mean[c];
                const float gradient = has_second ? load(dy[c]) + load(dy2[c]) : load(dy[c]);
                const float value = gated(gate, gradient, difference, load(y[c]), scale[c], bias[c], slope);
                if (stores)
                    g[c] = store(value);
                sum_g[c] += value;
                sum_gx[c] += value * difference;
            }
        }
        flush(block, width, sums);
    }
}

static inline void norm_backward_sums_gated(const NormBackward *norm, int64_t first, int64_t rows,
                                            int64_t width, float *block, double *sums, int gate)
{
    if (norm->dy2)
        norm_backward_sums_rows(norm, first, rows, width, block, sums, gate, true, true);
    else if (norm->g)
        norm_backward_sums_rows(norm, first, rows, width, block, sums, gate, true, false);
    else
        norm_backward_sums_rows(norm, first, rows, width, block, sums, gate, false, false);
}

/* The same with a function of one value, whose g always has a place. */
static inline void norm_backward_sums_function(const NormBackward *norm, int64_t first, int64_t rows,
                                               int64_t width, float *block, double *sums, int gate)
{
    if (norm->dy2)
        norm_backward_sums_rows(norm, first, rows, width, block, sums, gate, true, true);
    else
        norm_backward_sums_rows(norm, first, rows, width, block, sums, gate, true, false);
}

static int gate_of(const NormBackward *norm)
{
    if (!norm->activation)
        return GATE_NONE;
    if (norm->activation != OP_RELU)
        return GATE_OF(norm->activation);
    return norm->y ? GATE_Y : GATE_X;
}

static void norm_backward_sums(const NormBackward *norm, int64_t first, int64_t rows, int64_t width,
                               float *block, double *sums)
{
    switch (gate_of(norm)) {
    case GATE_NONE:
        norm_backward_sums_gated(norm, first, rows, width, block, sums, GATE_NONE);
        break;
    case GATE_X:
        norm_backward_sums_gated(norm, first, rows, width, block, sums, GATE_X);
        break;
    case GATE_Y:
        norm_backward_sums_gated(norm, first, rows, width, block, sums, GATE_Y);
        break;
#define CASE(KIND, function, narrow)                                                                         \
    case GATE_OF(OP_##KIND):                                                                                 \
        norm_backward_sums_function(norm, first, rows, width, block, sums, GATE_OF(OP_##KIND));              \
        break;
        POINTWISE_ACTIVATIONS(CASE)
#undef CASE
    default: /* graph_fuse puts no other activation there */
        break;
    }
}

static inline void norm_backward_apply_rows(const NormBackward *norm, int64_t first, int64_t rows,
                                            int64_t width, int gate)
{
    const float *mean = norm->mean, *scale = norm->scale, *bias = norm->bias;
    const float *from_g = norm->from_g, *from_x = norm->from_x, *constant = norm->constant;
    const float slope = norm->slope;
    for (int64_t r = first; r < first + rows; r++) {
        const Value *dy = (const Value *)(norm->g ? norm->g : norm->dy) + r * width;
        const Value *x = (const Value *)norm->x + r * width;
        const Value *y = gate == GATE_Y ? (const Value *)norm->y + r * width : x;
        Value *dx = (Value *)norm->dx + r * width;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            const float difference = load(x[c]) - mean[c];
            const float g = gated(gate, load(dy[c]), difference, load(y[c]), scale[c], bias[c], slope);
            dx[c] = store(from_g[c] * g + (from_x[c] * difference + constant[c]));
        }
    }
}

static void norm_backward_apply(const NormBackward *norm, int64_t first, int64_t rows, int64_t width)
{
    switch (norm->g ? GATE_NONE : gate_of(norm)) { /* a stored g is gated already */
    case GATE_NONE:
        norm_backward_apply_rows(norm, first, rows, width, GATE_NONE);
        break;
    case GATE_X:
        norm_backward_apply_rows(norm, first, rows, width, GATE_X);
        break;
    default:
        norm_backward_apply_rows(norm, first, rows, width, GATE_Y);
        break;
    }
}

/* ---- pools ---- */

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

static void max_pool(const PoolShape *s, const void *values, int64_t out_row, void *result, uint8_t *index)
{
    const Value *x = values;
    Value *y = result;
    int64_t row_first, row_end, column_first, column_end;
    const int64_t channels = s->channels;
    window(out_row, s->in_height, s, &row_first, &row_end);
    for (int64_t out_column = 0; out_column < s->out_width; out_column++, y += channels, index += channels) {
        window(out_column, s->in_width, s, &column_first, &column_end);
        for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
            const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
            float best[CHANNEL_BLOCK];
            int32_t where[CHANNEL_BLOCK];
            for (int64_t c = 0; c < CHANNEL_BLOCK; c++) {
                best[c] = -FLT_MAX;
                where[c] = -1;
            }
            for (int64_t row = row_first; row < row_end; row++)
                for (int64_t column = column_first; column < column_end; column++) {
                    const Value *pixel = x + (row * s->in_width + column) * channels + block;
                    const int32_t here = (int32_t)((row - out_row * s->stride + s->padding) * s->kernel +
                                                   column - out_column * s->stride + s->padding);
#pragma omp simd
                    for (int64_t c = 0; c < size; c++) {
                        /* The first of equals stays; NaN wins, as in PyTorch. */
                        const float value = load(pixel[c]);
                        const bool wins = value > best[c] || where[c] < 0 || value != value;
                        best[c] = wins ? value : best[c];
                        where[c] = wins ? here : where[c];
                    }
                }
            for (int64_t c = 0; c < size; c++) {
                y[block + c] = store(best[c]);
                index[block + c] = (uint8_t)where[c];
            }
        }
    }
}

/* Gathers instead of scattering: each input pixel is written once, by one thread. */
static void max_pool_backward(const PoolShape *s, const void *gradient, const uint8_t *index, int64_t in_row,
                              void *result)
{
    const Value *dy = gradient;
    Value *dx = result;
    int64_t row_first, row_end, column_first, column_end;
    const int64_t channels = s->channels;
    covering(in_row, s->out_height, s, &row_first, &row_end);
    for (int64_t in_column = 0; in_column < s->in_width; in_column++, dx += channels) {
        covering(in_column, s->out_width, s, &column_first, &column_end);
        for (int64_t block = 0; block < channels; block += CHANNEL_BLOCK) {
            const int64_t size = smaller(CHANNEL_BLOCK, channels - block);
            float sum[CHANNEL_BLOCK] = {0};
            for (int64_t row = row_first; row < row_end; row++)
                for (int64_t column = column_first; column < column_end; column++) {
                    const int64_t at = (row * s->out_width + column) * channels + block;
                    const int32_t here = (int32_t)((in_row - row * s->stride + s->padding) * s->kernel +
                                                   in_column - column * s->stride + s->padding);
#pragma omp simd
                    for (int64_t c = 0; c < size; c++)
                        sum[c] += index[at + c] == here ? load(dy[at + c]) : 0;
                }
            for (int64_t c = 0; c < size; c++)
                dx[block + c] = store(sum[c]);
        }
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

static void row_mean(const void *values, int64_t rows, int64_t width, void *result)
{
    /* Blocks of rows in float, blocks in double: the sum of a large, even area in float alone is off by
     * 1e-5. */
    const Value *x = values;
    Value *y = result;
    for (int64_t first = 0; first < width; first += CHANNEL_BLOCK) {
        const int64_t count = smaller(CHANNEL_BLOCK, width - first);
        double sums[CHANNEL_BLOCK] = {0};
        for (int64_t done = 0; done < rows; done += BLOCK_ROWS) {
            float block[CHANNEL_BLOCK] = {0};
            for (int64_t end = smaller(rows, done + BLOCK_ROWS), r = done; r < end; r++) {
#pragma omp simd
                for (int64_t c = 0; c < count; c++)
                    block[c] += load(x[r * width + first + c]);
            }
#pragma omp simd
            for (int64_t c = 0; c < count; c++)
                sums[c] += (double)block[c];
        }
#pragma omp simd
        for (int64_t c = 0; c < count; c++)
            y[first + c] = store((float)(sums[c] / (double)rows));
    }
}

static void scale_by(const void *values, float factor, void *result, int64_t count)
{
    const Value *x = values;
    Value *y = result;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        y[i] = store(factor * load(x[i]));
}

extern const CpuUpdateKernels FSHARD_UPDATE_KERNELS; /* of kernels_update.c, for the same instruction set */

const CpuKernels FSHARD_KERNELS = {
    .name = FSHARD_KERNELS_NAME,
    .normalize = normalize,
    .from_f32 = from_f32,
    .to_f32 = to_f32,
    .transpose = transpose,
    .add = add,
    .sum = sum_of,
    .relu = relu,
    .relu_backward = relu_backward,
    .pointwise = pointwise,
    .pointwise_backward = pointwise_backward,
    .norm_sums = norm_sums,
    .norm_forward = norm_forward,
    .norm_backward_sums = norm_backward_sums,
    .norm_backward_apply = norm_backward_apply,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .avg_pool = avg_pool,
    .avg_pool_backward = avg_pool_backward,
    .row_mean = row_mean,
    .scale = scale_by,
    .channel = &FSHARD_CHANNEL_KERNELS,
    .depthwise = &FSHARD_DEPTHWISE_KERNELS,
    .update = &FSHARD_UPDATE_KERNELS,
};
