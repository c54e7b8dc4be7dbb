/* Compiled once for each instruction set and type of activations (kernels_value.h), with FSHARD_KERNELS the
 * name of its table and FSHARD_KERNELS_NAME its text. Loops carry `omp simd`: outputs may be an input's
 * memory, element by element, which it allows. */
#include "trainer/backend/cpu/cpu_kernels_tables.h"

#include <string.h>

#include "trainer/backend/cpu/cpu_kernels_value.h"
#include "trainer/backend/pointwise_math.h"

extern const CpuChannelKernels FSHARD_CHANNEL_KERNELS;
extern const CpuDepthwiseKernels FSHARD_DEPTHWISE_KERNELS;
extern const CpuPoolKernels FSHARD_POOL_KERNELS;

enum {
    BLOCK_ROWS = 32,    /* summed in float before they join a double: an error of some 1e-7 relative */
    CHANNEL_BLOCK = 64, /* of means: accumulators that stay in registers or L1 */
};

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

/* ---- means ---- */

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
    .row_mean = row_mean,
    .scale = scale_by,
    .channel = &FSHARD_CHANNEL_KERNELS,
    .depthwise = &FSHARD_DEPTHWISE_KERNELS,
    .pool = &FSHARD_POOL_KERNELS,
    .update = &FSHARD_UPDATE_KERNELS,
};
