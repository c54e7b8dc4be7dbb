#include "tests/trainer/kernels_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"

float bf16_rounded(float value)
{
    if (isnan(value) || isinf(value) || value == 0)
        return value;
    const double unit = ldexp(1, ilogb((double)value) - 7); /* of the last place of eight significant bits */
    return (float)(rint((double)value / unit) * unit);
}

static uint16_t upper_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float *floats(Random *random, size_t count)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = bf16_rounded(random_normal(random));
    return values;
}

static uint16_t *halves(const float *values, size_t count)
{
    uint16_t *result = malloc(count * sizeof *result);
    assert_non_null(result);
    for (size_t i = 0; i < count; i++)
        result[i] = upper_half(values[i]);
    return result;
}

Bench kernel_bench_new(DataType type)
{
    Bench bench = {.type = type};
    Random random;
    random_start(&random, 5, 0);
    for (int i = 0; i < BUFFERS; i++) {
        bench.in[i] = floats(&random, VALUES);
        bench.in_bf16[i] = halves(bench.in[i], VALUES);
    }
    for (int i = 0; i < 2; i++)
        bench.out[i] = malloc((VALUES + 2 * GUARD + 1) * sizeof(float));
    bench.bytes = malloc(VALUES);
    bench.index = malloc(VALUES);
    bench.sums = malloc(2 * WIDTH_MAX * sizeof *bench.sums);
    bench.block = malloc(2 * WIDTH_MAX * sizeof *bench.block);
    assert_true(bench.out[0] && bench.out[1] && bench.bytes && bench.index && bench.sums && bench.block);
    for (size_t i = 0; i < VALUES; i++)
        bench.bytes[i] = (uint8_t)random_below(&random, 256);
    return bench;
}

void kernel_bench_free(Bench *bench)
{
    for (int i = 0; i < BUFFERS; i++) {
        free(bench->in[i]);
        free(bench->in_bf16[i]);
    }
    free(bench->out[0]);
    free(bench->out[1]);
    free(bench->bytes);
    free(bench->index);
    free(bench->sums);
    free(bench->block);
}

void kernel_bench_reset(Bench *bench)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < VALUES + 2 * GUARD + 1; k++)
            bench->out[i][k] = GUARD_VALUE;
    memset(bench->index, 0xEE, VALUES);
    for (int i = 0; i < 2 * WIDTH_MAX; i++)
        bench->sums[i] = 0.25 * i;
}

/* Returns element `index` of input i, in the type of the bench. */
static const void *input(const Bench *bench, int i, int64_t index)
{
    return bench->type == DATA_BF16 ? (const void *)(bench->in_bf16[i] + index)
                                    : (const void *)(bench->in[i] + index);
}

void *kernel_output(const Bench *bench, int i, int64_t index)
{
    float *first = bench->out[i] + GUARD + 1;
    return bench->type == DATA_BF16 ? (void *)((uint16_t *)(void *)first + index) : (void *)(first + index);
}

/* Returns output i, for values that are f32 whatever the type of activations. */
static float *f32_output(const Bench *bench, int i)
{
    return bench->out[i] + GUARD + 1;
}

const Size kernel_sizes[] = {{1, 1}, {70, 3}, {33, 64}, {32, 96}, {65, 70}, {70, 200}, {7, 17}, {3, 128}};

enum {
    FORWARD_FLAGS = 8,
    BACKWARD_FLAGS = 16,
    FUNCTIONS = 3
}; /* functions: by the numbers after the flags */

/* Returns the activation of norms with these flags, of which there are `count`. */
static OpKind activation_of(int flags, int count)
{
    static const OpKind functions[FUNCTIONS] = {OP_GELU, OP_SILU, OP_MISH};
    return flags >= count ? functions[flags - count] : flags & 2 ? OP_RELU : 0;
}

static NormForward forward_of(const Bench *b, int number)
{
    const int flags = number < FORWARD_FLAGS ? number : 0;
    return (NormForward){.x = input(b, 0, 0),
                         .addend = flags & 1 ? input(b, 1, 0) : NULL,
                         .y = kernel_output(b, 0, 0),
                         .mean = b->in[2],
                         .scale = b->in[3],
                         .bias = b->in[4],
                         .activation = activation_of(number, FORWARD_FLAGS),
                         .slope = flags & 4 ? 0.2F : 0};
}

static NormBackward backward_of(const Bench *b, int number)
{
    const int flags = number < BACKWARD_FLAGS ? number : 8;
    return (NormBackward){.dy = input(b, 5, 0),
                          .x = input(b, 0, 0),
                          .y = flags & 1 ? input(b, 1, 0) : NULL,
                          .g = flags & 8 ? kernel_output(b, 1, 0) : NULL,
                          .dx = kernel_output(b, 0, 0),
                          .mean = b->in[2],
                          .scale = b->in[3],
                          .bias = b->in[4],
                          .activation = activation_of(number, BACKWARD_FLAGS),
                          .slope = flags & 4 ? 0.2F : 0,
                          .from_g = b->in[6],
                          .from_x = b->in[7],
                          .constant = b->in[2]};
}

/* ---- one run function for each kernel; flags select its variations ---- */

static void run_normalize(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->normalize(b->bytes, b->in[3], b->in[4], kernel_output(b, 0, 0), s.rows, s.width);
}

static void run_from_f32(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->from_f32(b->in[0], kernel_output(b, 0, 0), s.rows * s.width);
}

static void run_to_f32(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->to_f32(input(b, 0, 0), f32_output(b, 0), s.rows * s.width);
}

static void run_transpose(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->transpose(input(b, 0, 0), s.rows, s.width, kernel_output(b, 0, 0));
}

static void run_add(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    if (flags) { /* in place */
        memcpy(kernel_output(b, 0, 0), input(b, 0, 0), (size_t)count * data_type_bytes(b->type));
        k->add(kernel_output(b, 0, 0), input(b, 1, 0), kernel_output(b, 0, 0), count);
    } else {
        k->add(input(b, 0, 0), input(b, 1, 0), kernel_output(b, 0, 0), count);
    }
}

static void run_sum(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *const terms[] = {input(b, 0, 0), input(b, 1, 0), input(b, 5, 0)};
    k->sum(terms, flags + 1, kernel_output(b, 0, 0), s.rows * s.width);
}

static void run_relu(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu(input(b, 0, 0), kernel_output(b, 0, 0), s.rows * s.width, flags ? 0.2F : 0);
}

static void run_relu_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu_backward(input(b, 0, 0), input(b, 1, 0), kernel_output(b, 0, 0), s.rows * s.width,
                     flags ? 0.2F : 0);
}

static void run_norm_sums(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->norm_sums(input(b, 0, 0), b->in[2], s.rows, s.width, b->block, b->sums);
}

static void run_norm_forward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const NormForward norm = forward_of(b, flags);
    k->norm_forward(&norm, s.rows / 3, s.rows - s.rows / 3, s.width);
}

static void run_norm_backward_sums(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const NormBackward norm = backward_of(b, flags);
    k->norm_backward_sums(&norm, s.rows / 3, s.rows - s.rows / 3, s.width, b->block, b->sums);
}

static void run_norm_backward_apply(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    NormBackward norm = backward_of(b, flags & ~8);
    if (flags & 8) { /* a gradient that the first pass stored */
        memcpy(kernel_output(b, 1, 0), input(b, 6, 0), (size_t)(s.rows * s.width) * data_type_bytes(b->type));
        norm.g = kernel_output(b, 1, 0);
    }
    k->norm_backward_apply(&norm, s.rows / 3, s.rows - s.rows / 3, s.width);
}

/* Returns the shape of a pool on a 9 x 7 image of s.width channels. */
static PoolShape pool_of(Size s, int flags)
{
    static const int64_t windows[][3] = {{3, 2, 1}, {2, 2, 0}, {3, 1, 1}, {5, 3, 2}};
    const int64_t kernel = windows[flags][0], stride = windows[flags][1], padding = windows[flags][2];
    return (PoolShape){s.width,
                       9,
                       7,
                       (9 + 2 * padding - kernel) / stride + 1,
                       (7 + 2 * padding - kernel) / stride + 1,
                       kernel,
                       stride,
                       padding,
                       false};
}

static void run_max_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.out_height; row++) {
        const int64_t at = row * shape.out_width * shape.channels;
        k->pool->max_pool(&shape, input(b, 0, 0), row, kernel_output(b, 0, at), b->index + at);
    }
}

static void run_max_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (size_t i = 0; i < VALUES; i++)
        b->index[i] = b->bytes[i] % 9;
    for (int64_t row = 0; row < shape.in_height; row++)
        k->pool->max_pool_backward(&shape, input(b, 0, 0), b->index, row,
                                   kernel_output(b, 0, row * shape.in_width * shape.channels));
}

/* Odd variations have no activation. */
static void run_norm_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    static const float slopes[] = {0, 1, 0.2F, 1};
    const NormPool norm = {b->in[2], b->in[3], b->in[4], slopes[flags]};
    for (int64_t row = 0; row < shape.out_height; row++) {
        const int64_t at = row * shape.out_width * shape.channels;
        k->pool->norm_pool(&shape, &norm, input(b, 0, 0), row, kernel_output(b, 0, at),
                           kernel_output(b, 1, at), b->index + at);
    }
}

static void run_norm_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    const NormPoolGradient norm = {b->in[2], b->in[3], b->in[4], b->in[5]};
    for (size_t i = 0; i < VALUES; i++)
        b->index[i] = b->bytes[i] % 9;
    for (int64_t row = 0; row < shape.in_height; row++) {
        const int64_t at = row * shape.in_width * shape.channels;
        k->pool->norm_pool_backward(&shape, &norm, input(b, 0, 0), b->index, row, input(b, 1, at),
                                    kernel_output(b, 0, at));
    }
}

static void run_avg_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.out_height; row++)
        k->pool->avg_pool(&shape, input(b, 0, 0), row,
                          kernel_output(b, 0, row * shape.out_width * shape.channels));
}

static void run_avg_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.in_height; row++)
        k->pool->avg_pool_backward(&shape, input(b, 0, 0), row,
                                   kernel_output(b, 0, row * shape.in_width * shape.channels));
}

static void run_row_mean(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->row_mean(input(b, 0, 0), s.rows, s.width, kernel_output(b, 0, 0));
}

static void run_scale(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->scale(input(b, 0, 0), 0.3F, kernel_output(b, 0, 0), s.rows * s.width);
}

static void run_sgd(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const SgdStep step = {.rate = 0.1F,
                          .momentum = 0.9F,
                          .decay = 0.01F,
                          .shrink = flags & 2 ? 0.99F : 1,
                          .trust = flags & 2 ? 0.3F : 1,
                          .nesterov = flags & 1};
    memcpy(f32_output(b, 0), b->in[0], (size_t)count * sizeof(float));
    memcpy(f32_output(b, 1), b->in[1], (size_t)count * sizeof(float));
    k->update->sgd(&step, f32_output(b, 0), f32_output(b, 1), b->in[2], count);
}

static AdamStep adam_of(int flags)
{
    return (AdamStep){.beta1 = 0.9F,
                      .one_minus_beta1 = 0.1F,
                      .beta2 = 0.99F,
                      .one_minus_beta2 = 0.01F,
                      .inverse_root = 2,
                      .epsilon = 1e-6F,
                      .decay = flags ? 0.01F : 0,
                      .shrink = flags ? 1 : 0.999F,
                      .rate = 0.1F,
                      .correction = 3};
}

/* Sets the moments to in[1] and, as second moments are not negative, the square of in[2]. */
static void start_moments(const Bench *b, int64_t count)
{
    memcpy(f32_output(b, 0), b->in[1], (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        f32_output(b, 1)[i] = b->in[2][i] * b->in[2][i];
}

/* Adds the weights, which the kernel wrote over in[6], to the sums, as no output has place for them. */
static void add_weights(const Bench *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        b->sums[i % WIDTH_MAX] += (double)b->in[6][i];
}

static void run_adam(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const AdamStep step = adam_of(flags);
    start_moments(b, count);
    memcpy(b->in[6], b->in[0], (size_t)count * sizeof(float));
    k->update->adam(&step, b->in[6], f32_output(b, 0), f32_output(b, 1), b->in[3], count);
    add_weights(b, count);
}

static void run_lamb(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const AdamStep step = adam_of(flags);
    start_moments(b, count);
    memcpy(b->in[6], b->in[0], (size_t)count * sizeof(float));
    k->update->lamb_moments(&step, b->in[6], f32_output(b, 0), f32_output(b, 1), b->in[3], count, b->sums);
    k->update->lamb_apply(&step, 0.1F, b->in[6], f32_output(b, 0), f32_output(b, 1), count);
    add_weights(b, count);
}

static void run_gradient(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->update->gradient(b->in[0], flags ? b->in[1] : NULL, 0.3F, f32_output(b, 0), s.rows * s.width);
}

static void run_average(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    memcpy(f32_output(b, 0), b->in[0], (size_t)(s.rows * s.width) * sizeof(float));
    k->update->average(b->in[1], 0.01F, f32_output(b, 0), s.rows * s.width);
}

static void run_sum_squares(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    b->sums[0] = k->update->sum_squares(b->in[0], s.rows * s.width);
}

/* ---- loops over pixels (kernels_channel.h) ---- */

static void run_channel_scale(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *x = input(b, 0, 0);
    if (flags & 2) { /* in place */
        memcpy(kernel_output(b, 0, 0), x, (size_t)(s.rows * s.width) * data_type_bytes(b->type));
        x = kernel_output(b, 0, 0);
    }
    k->channel->scale(x, b->in[3], flags & 1 ? input(b, 1, 0) : NULL, kernel_output(b, 0, 0), s.rows,
                      s.width);
}

static void run_channel_scale_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->channel->scale_backward(input(b, 0, 0), input(b, 1, 0), b->in[3],
                               flags ? kernel_output(b, 0, 0) : NULL, s.rows, s.width, b->block, b->sums);
}

/* Returns the rows of a gate, whose input is twice as wide. */
static int64_t gate_rows(Size s)
{
    return (s.rows + 1) / 2;
}

static void run_gate(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->channel->gate(input(b, 0, 0), kernel_output(b, 0, 0), gate_rows(s), s.width);
}

static void run_gate_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *x = input(b, 0, 0);
    if (flags) { /* over x */
        memcpy(kernel_output(b, 0, 0), x, (size_t)(gate_rows(s) * 2 * s.width) * data_type_bytes(b->type));
        x = kernel_output(b, 0, 0);
    }
    k->channel->gate_backward(input(b, 1, 0), x, kernel_output(b, 0, 0), gate_rows(s), s.width);
}

/* Runs the layer norm; copies means and deviations to sums, where they are compared as f32 whatever the
 * type. */
static void run_layer_norm(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t first = s.rows / 3;
    const LayerNormRows norm = {.x = input(b, 0, 0),
                                .weight = b->in[3],
                                .bias = b->in[4],
                                .y = kernel_output(b, 0, 0),
                                .mean = b->block,
                                .inverse = b->block + ROWS,
                                .epsilon = 1e-6F};
    (void)flags;
    k->channel->layer_norm(&norm, first, s.rows - first, s.width);
    for (int64_t r = first; r < s.rows; r++) {
        b->sums[r] = (double)norm.mean[r];
        b->sums[ROWS + r] = (double)norm.inverse[r];
    }
}

static void run_layer_norm_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const LayerNormRows norm = {.x = input(b, 0, 0),
                                .dy = input(b, 1, 0),
                                .weight = b->in[3],
                                .mean = b->in[4],
                                .inverse = b->in[5],
                                .addend = flags == 2 ? input(b, 2, 0) : NULL,
                                .dx = flags ? kernel_output(b, 0, 0) : NULL};
    k->channel->layer_norm_backward(&norm, s.rows / 3, s.rows - s.rows / 3, s.width, b->block, b->sums);
}

/* ---- depthwise ---- */

enum { TAPS = 3, DEPTH_ROWS = 4, DEPTH_COLUMNS = 11 };

/* A kernel of 3 x 3, padded by one, over images of 4 x 11: of a row's places the second begins as many as are
 * computed side by side, and those behind them are computed one by one, as the first is. */
typedef struct DepthwiseCase {
    DepthwiseMeeting meetings[2][DEPTH_COLUMNS * TAPS];
    int32_t counts[2][DEPTH_COLUMNS];
    bool alike[DEPTH_COLUMNS];
    DepthwiseRun runs[TAPS];
    DepthwiseShape shape;
} DepthwiseCase;

static void make_depthwise(DepthwiseCase *c, int64_t channels)
{
    const int32_t sizes[2] = {DEPTH_ROWS, DEPTH_COLUMNS};
    memset(c->counts, 0, sizeof c->counts);
    for (int axis = 0; axis < 2; axis++)
        for (int32_t place = 0; place < sizes[axis]; place++)
            for (int32_t tap = 0; tap < TAPS; tap++)
                if (place + tap >= 1 && place + tap <= sizes[axis])
                    c->meetings[axis][place * TAPS + c->counts[axis][place]++] =
                        (DepthwiseMeeting){tap, place + tap - 1};
    c->shape = (DepthwiseShape){.channels = channels,
                                .kernel = TAPS,
                                .source_width = DEPTH_COLUMNS,
                                .result_width = DEPTH_COLUMNS,
                                .rows = {c->meetings[0], c->counts[0]},
                                .columns = {c->meetings[1], c->counts[1]},
                                .alike = c->alike,
                                .runs = c->runs};
    for (int64_t place = 0; place < DEPTH_COLUMNS; place++)
        c->alike[place] = cpu_depthwise_are_alike(&c->shape, place);
    for (int32_t tap = 0; tap < TAPS; tap++)
        c->runs[tap] = cpu_depthwise_run(&c->shape, tap);
}

static void gather_rows(const CpuKernels *k, const Bench *b, const DepthwiseCase *c, bool has_bias)
{
    for (int64_t row = 0; row < DEPTH_ROWS; row++)
        k->depthwise->gather(&c->shape, input(b, 0, 0), b->in[3], has_bias ? b->in[4] : NULL, row,
                             kernel_output(b, 0, row * DEPTH_COLUMNS * c->shape.channels));
}

void kernel_gather(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    DepthwiseCase c;
    make_depthwise(&c, s.width);
    gather_rows(k, b, &c, flags);
}

void kernel_gather_apart(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    DepthwiseCase c;
    make_depthwise(&c, s.width);
    assert_true(c.alike[1] && !c.alike[0]);
    memset(c.alike, 0, sizeof c.alike);
    gather_rows(k, b, &c, flags);
}

static void run_depthwise_gradient(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    DepthwiseCase c;
    make_depthwise(&c, s.width);
    memset(f32_output(b, 0), 0, (size_t)(TAPS * TAPS * s.width) * sizeof(float));
    memset(f32_output(b, 1), 0, (size_t)s.width * sizeof(float));
    for (int64_t row = 0; row < DEPTH_ROWS; row++)
        k->depthwise->add_gradient(&c.shape, input(b, 0, 0), input(b, 1, row * DEPTH_COLUMNS * s.width), row,
                                   f32_output(b, 0), flags ? f32_output(b, 1) : NULL);
}

const Kernel kernels[] = {
    {"normalize", run_normalize, 1, false, false},
    {"from_f32", run_from_f32, 1, false, false},
    {"to_f32", run_to_f32, 1, false, true},
    {"transpose", run_transpose, 1, false, false},
    {"add", run_add, 2, false, false},
    {"sum", run_sum, 3, false, false},
    {"relu", run_relu, 2, false, false},
    {"relu_backward", run_relu_backward, 2, false, false},
    {"norm_sums", run_norm_sums, 1, false, false},
    {"norm_forward", run_norm_forward, FORWARD_FLAGS + FUNCTIONS, false, false},
    {"norm_backward_sums", run_norm_backward_sums, BACKWARD_FLAGS + FUNCTIONS, false, false},
    {"norm_backward_apply", run_norm_backward_apply, BACKWARD_FLAGS, false, false},
    {"max_pool", run_max_pool, 4, true, false},
    {"max_pool_backward", run_max_pool_backward, 4, true, false},
    {"norm_pool", run_norm_pool, 4, true, false},
    {"norm_pool_backward", run_norm_pool_backward, 4, true, false},
    {"avg_pool", run_avg_pool, 4, true, false},
    {"avg_pool_backward", run_avg_pool_backward, 4, true, false},
    {"row_mean", run_row_mean, 1, false, false},
    {"scale", run_scale, 1, false, false},
    {"channel_scale", run_channel_scale, 4, false, false},
    {"channel_scale_backward", run_channel_scale_backward, 2, false, false},
    {"gate", run_gate, 1, false, false},
    {"gate_backward", run_gate_backward, 2, false, false},
    {"layer_norm", run_layer_norm, 1, false, false},
    {"layer_norm_backward", run_layer_norm_backward, 3, false, false},
    {"depthwise", kernel_gather, 2, true, false},
    {"depthwise_gradient", run_depthwise_gradient, 2, true, true},
    {"sgd", run_sgd, 4, false, true},
    {"adam", run_adam, 2, false, true},
    {"lamb", run_lamb, 2, false, true},
    {"gradient", run_gradient, 2, false, true},
    {"average", run_average, 1, false, true},
    {"sum_squares", run_sum_squares, 1, false, true},
};
const int kernel_count = sizeof kernels / sizeof *kernels,
          kernel_size_count = sizeof kernel_sizes / sizeof *kernel_sizes;
