/* Every compiled variant of the CPU backend's loops against the baseline, to the bit, on random values, odd widths and unaligned
 * memory, and nothing written outside of the outputs; the bf16 loops against the f32 ones with what they write rounded.
 * `kernels_test time` also times them. */
#include "trainer/backend/cpu/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "common/random.h"
#include "tests/support/support.h"

enum { ROWS = 70, WIDTH_MAX = 200, GUARD = 32, VALUES = ROWS * WIDTH_MAX, BUFFERS = 8 };
static const float guard_value = 12345.5F;

/* Inputs, and outputs with guards around them; `out` starts one float off alignment. Values that activations are made of are
 * bf16's, so that both types read the same ones. */
typedef struct Bench {
    DataType type; /* of activations */
    float *in[BUFFERS];
    uint16_t *in_bf16[BUFFERS]; /* the same */
    uint8_t *bytes;
    float *out[2]; /* of VALUES, behind GUARD values */
    uint8_t *index;
    double *sums;
    float *block;
} Bench;

/* To the nearest bf16, of two as near the even one: by the definition, not by bits as the kernels do. */
static float rounded(float value)
{
    if (isnan(value) || isinf(value) || value == 0)
        return value;
    const double unit = ldexp(1, ilogb((double)value) - 7); /* of the last place of eight significant bits */
    return (float)(rint((double)value / unit) * unit);
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
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
        values[i] = rounded(random_normal(random));
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

static Bench bench_new(DataType type)
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

static void bench_free(Bench *bench)
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

/* Outputs and sums as a case starts with them. */
static void bench_reset(Bench *bench)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < VALUES + 2 * GUARD + 1; k++)
            bench->out[i][k] = guard_value;
    memset(bench->index, 0xEE, VALUES);
    for (int i = 0; i < 2 * WIDTH_MAX; i++)
        bench->sums[i] = 0.25 * i;
}

/* Element `index` of activations in and out, in the type of the bench. */
static const void *input(const Bench *bench, int i, int64_t index)
{
    return bench->type == DATA_BF16 ? (const void *)(bench->in_bf16[i] + index)
                                    : (const void *)(bench->in[i] + index);
}

static void *output(const Bench *bench, int i, int64_t index)
{
    float *first = bench->out[i] + GUARD + 1;
    return bench->type == DATA_BF16 ? (void *)((uint16_t *)(void *)first + index) : (void *)(first + index);
}

/* What is f32 whatever the type of activations. */
static float *f32_output(const Bench *bench, int i)
{
    return bench->out[i] + GUARD + 1;
}

typedef struct Size {
    int64_t rows, width;
} Size;
static const Size sizes[] = {{1, 1}, {70, 3}, {33, 64}, {32, 96}, {65, 70}, {70, 200}, {7, 17}, {3, 128}};

static NormForward forward_of(const Bench *b, int flags)
{
    return (NormForward){.x = input(b, 0, 0),
                         .addend = flags & 1 ? input(b, 1, 0) : NULL,
                         .y = output(b, 0, 0),
                         .mean = b->in[2],
                         .scale = b->in[3],
                         .bias = b->in[4],
                         .relu = flags & 2,
                         .slope = flags & 4 ? 0.2F : 0};
}

static NormBackward backward_of(const Bench *b, int flags)
{
    return (NormBackward){.dy = input(b, 5, 0),
                          .x = input(b, 0, 0),
                          .y = flags & 1 ? input(b, 1, 0) : NULL,
                          .g = flags & 8 ? output(b, 1, 0) : NULL,
                          .dx = output(b, 0, 0),
                          .mean = b->in[2],
                          .scale = b->in[3],
                          .bias = b->in[4],
                          .relu = flags & 2,
                          .slope = flags & 4 ? 0.2F : 0,
                          .from_g = b->in[6],
                          .from_x = b->in[7],
                          .constant = b->in[2]};
}

/* ---- one run function for each kernel; flags select its variations ------------------------------------------------------ */

static void run_normalize(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->normalize(b->bytes, b->in[3], b->in[4], output(b, 0, 0), s.rows, s.width);
}

static void run_from_f32(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->from_f32(b->in[0], output(b, 0, 0), s.rows * s.width);
}

static void run_to_f32(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->to_f32(input(b, 0, 0), f32_output(b, 0), s.rows * s.width);
}

static void run_transpose(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->transpose(input(b, 0, 0), s.rows, s.width, output(b, 0, 0));
}

static void run_add(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    if (flags) { /* in place */
        memcpy(output(b, 0, 0), input(b, 0, 0), (size_t)count * data_type_bytes(b->type));
        k->add(output(b, 0, 0), input(b, 1, 0), output(b, 0, 0), count);
    } else {
        k->add(input(b, 0, 0), input(b, 1, 0), output(b, 0, 0), count);
    }
}

static void run_sum(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *const terms[] = {input(b, 0, 0), input(b, 1, 0), input(b, 5, 0)};
    k->sum(terms, flags + 1, output(b, 0, 0), s.rows * s.width);
}

static void run_relu(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu(input(b, 0, 0), output(b, 0, 0), s.rows * s.width, flags ? 0.2F : 0);
}

static void run_relu_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu_backward(input(b, 0, 0), input(b, 1, 0), output(b, 0, 0), s.rows * s.width, flags ? 0.2F : 0);
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
        memcpy(output(b, 1, 0), input(b, 6, 0), (size_t)(s.rows * s.width) * data_type_bytes(b->type));
        norm.g = output(b, 1, 0);
    }
    k->norm_backward_apply(&norm, s.rows / 3, s.rows - s.rows / 3, s.width);
}

/* A 9 x 7 image of at most 200 / 7 channels, so that a row fits. */
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
                       padding};
}

static void run_max_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.out_height; row++) {
        const int64_t at = row * shape.out_width * shape.channels;
        k->max_pool(&shape, input(b, 0, 0), row, output(b, 0, at), b->index + at);
    }
}

static void run_max_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (size_t i = 0; i < VALUES; i++)
        b->index[i] = b->bytes[i] % 9;
    for (int64_t row = 0; row < shape.in_height; row++)
        k->max_pool_backward(&shape, input(b, 0, 0), b->index, row,
                             output(b, 0, row * shape.in_width * shape.channels));
}

static void run_avg_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.out_height; row++)
        k->avg_pool(&shape, input(b, 0, 0), row, output(b, 0, row * shape.out_width * shape.channels));
}

static void run_avg_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.in_height; row++)
        k->avg_pool_backward(&shape, input(b, 0, 0), row,
                             output(b, 0, row * shape.in_width * shape.channels));
}

static void run_row_mean(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->row_mean(input(b, 0, 0), s.rows, s.width, output(b, 0, 0));
}

static void run_scale(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->scale(input(b, 0, 0), 0.3F, output(b, 0, 0), s.rows * s.width);
}

static void run_sgd(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const SgdStep step = {0.1F, 0.9F, 0.01F, flags & 2 ? 0.3F : 1, flags & 1};
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

/* Second moments are not negative: in[2] becomes its square. */
static void start_moments(const Bench *b, int64_t count)
{
    memcpy(f32_output(b, 0), b->in[1], (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        f32_output(b, 1)[i] = b->in[2][i] * b->in[2][i];
}

/* The weights go to where no output is compared: in[6] is a copy of in[0] then, and joins the sums. */
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

/* ---- loops over pixels (kernels_channel.h) ------------------------------------------------------------------------------ */

static void run_channel_scale(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *x = input(b, 0, 0);
    if (flags & 2) { /* in place */
        memcpy(output(b, 0, 0), x, (size_t)(s.rows * s.width) * data_type_bytes(b->type));
        x = output(b, 0, 0);
    }
    k->channel->scale(x, b->in[3], flags & 1 ? input(b, 1, 0) : NULL, output(b, 0, 0), s.rows, s.width);
}

static void run_channel_scale_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->channel->scale_backward(input(b, 0, 0), input(b, 1, 0), b->in[3], flags ? output(b, 0, 0) : NULL,
                               s.rows, s.width, b->block, b->sums);
}

/* Rows of a gate, whose input is twice as wide. */
static int64_t gate_rows(Size s)
{
    return (s.rows + 1) / 2;
}

static void run_gate(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->channel->gate(input(b, 0, 0), output(b, 0, 0), gate_rows(s), s.width);
}

static void run_gate_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const void *x = input(b, 0, 0);
    if (flags) { /* over x */
        memcpy(output(b, 0, 0), x, (size_t)(gate_rows(s) * 2 * s.width) * data_type_bytes(b->type));
        x = output(b, 0, 0);
    }
    k->channel->gate_backward(input(b, 1, 0), x, output(b, 0, 0), gate_rows(s), s.width);
}

/* Means and deviations go to sums, where they are compared as f32 whatever the type. */
static void run_layer_norm(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t first = s.rows / 3;
    const LayerNormRows norm = {.x = input(b, 0, 0),
                                .weight = b->in[3],
                                .bias = b->in[4],
                                .y = output(b, 0, 0),
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
                                .dx = flags ? output(b, 0, 0) : NULL};
    k->channel->layer_norm_backward(&norm, s.rows / 3, s.rows - s.rows / 3, s.width, b->block, b->sums);
}

static const struct Kernel {
    const char *name;
    void (*run)(const CpuKernels *k, const Bench *b, Size s, int flags);
    int variations;
    bool is_window; /* the size's width is channels; its rows do not count */
    bool is_f32;    /* what it writes, whatever the type of activations */
} kernels[] = {
    {"normalize", run_normalize, 1, false, false},
    {"from_f32", run_from_f32, 1, false, false},
    {"to_f32", run_to_f32, 1, false, true},
    {"transpose", run_transpose, 1, false, false},
    {"add", run_add, 2, false, false},
    {"sum", run_sum, 3, false, false},
    {"relu", run_relu, 2, false, false},
    {"relu_backward", run_relu_backward, 2, false, false},
    {"norm_sums", run_norm_sums, 1, false, false},
    {"norm_forward", run_norm_forward, 8, false, false},
    {"norm_backward_sums", run_norm_backward_sums, 16, false, false},
    {"norm_backward_apply", run_norm_backward_apply, 16, false, false},
    {"max_pool", run_max_pool, 4, true, false},
    {"max_pool_backward", run_max_pool_backward, 4, true, false},
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
    {"sgd", run_sgd, 4, false, true},
    {"adam", run_adam, 2, false, true},
    {"lamb", run_lamb, 2, false, true},
    {"gradient", run_gradient, 2, false, true},
    {"average", run_average, 1, false, true},
    {"sum_squares", run_sum_squares, 1, false, true},
};
enum { KERNEL_COUNT = sizeof kernels / sizeof *kernels, SIZE_COUNT = sizeof sizes / sizeof *sizes };

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void compare(const Bench *wanted, const Bench *got, const char *what, const CpuKernels *variant,
                    Size s, int flags)
{
    const size_t bytes = (VALUES + 2 * GUARD + 1) * sizeof(float);
    if (!same_bits(wanted->out[0], got->out[0], bytes) || !same_bits(wanted->out[1], got->out[1], bytes) ||
        !same_bits(wanted->index, got->index, VALUES) ||
        !same_bits(wanted->sums, got->sums, 2 * WIDTH_MAX * sizeof *got->sums))
        fail_msg("%s, %s: differs from the baseline for %lld x %lld, variation %d", what, variant->name,
                 (long long)s.rows, (long long)s.width, flags);
    for (int i = 0; i < GUARD; i++)
        if (got->out[0][i] != guard_value || got->out[0][VALUES + GUARD + 1 + i] != guard_value)
            fail_msg("%s, %s: writes outside of its output", what, variant->name);
}

static int compare_variants(DataType type)
{
    Bench wanted = bench_new(type), got = bench_new(type);
    int compared = 0;
    for (int v = 1; cpu_kernels_variant(type, v); v++)
        for (int k = 0; k < KERNEL_COUNT; k++)
            for (int i = 0; i < SIZE_COUNT; i++)
                for (int flags = 0; flags < kernels[k].variations; flags++) {
                    bench_reset(&wanted);
                    bench_reset(&got);
                    kernels[k].run(cpu_kernels_variant(type, 0), &wanted, sizes[i], flags);
                    kernels[k].run(cpu_kernels_variant(type, v), &got, sizes[i], flags);
                    compare(&wanted, &got, kernels[k].name, cpu_kernels_variant(type, v), sizes[i], flags);
                    compared++;
                }
    bench_free(&wanted);
    bench_free(&got);
    return compared;
}

static void test_variants_agree_to_the_bit(void **state)
{
    (void)state;
    if (compare_variants(DATA_F32) + compare_variants(DATA_BF16) == 0)
        skip(); /* this machine runs the baseline only */
}

/* ---- bf16 --------------------------------------------------------------------------------------------------------------- */

/* Outputs of f32 rounded are those of bf16; sums and indices are the same. */
static void compare_rounded(const Bench *wanted, const Bench *got, const struct Kernel *kernel, Size s,
                            int flags)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < VALUES; k++) {
            const float exact = wanted->out[i][GUARD + 1 + k];
            if (exact == guard_value)
                continue; /* not an output of this kernel and size */
            const float value = kernel->is_f32
                                    ? got->out[i][GUARD + 1 + k]
                                    : from_bits((uint32_t) * (const uint16_t *)output(got, i, k) << 16);
            const float right = kernel->is_f32 ? exact : rounded(exact);
            if (value != right)
                fail_msg("%s for %lld x %lld, variation %d: element %lld is %.9g, not %.9g", kernel->name,
                         (long long)s.rows, (long long)s.width, flags, (long long)k, (double)value,
                         (double)right);
        }
    assert_memory_equal(wanted->index, got->index, VALUES);
    assert_memory_equal(wanted->sums, got->sums, 2 * WIDTH_MAX * sizeof *got->sums);
}

static void test_bf16_rounds_what_f32_computes(void **state)
{
    Bench wanted = bench_new(DATA_F32), got = bench_new(DATA_BF16);
    (void)state;
    for (int k = 0; k < KERNEL_COUNT; k++)
        for (int i = 0; i < SIZE_COUNT; i++)
            for (int flags = 0; flags < kernels[k].variations; flags++) {
                bench_reset(&wanted);
                bench_reset(&got);
                kernels[k].run(cpu_kernels_variant(DATA_F32, 0), &wanted, sizes[i], flags);
                kernels[k].run(cpu_kernels_variant(DATA_BF16, 0), &got, sizes[i], flags);
                compare_rounded(&wanted, &got, &kernels[k], sizes[i], flags);
            }
    bench_free(&wanted);
    bench_free(&got);
}

static void test_bf16_rounds_to_even_and_keeps_nan_and_infinity(void **state)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        {0x3F800000, 0x3F80}, /* 1 */
        {0x3F808000, 0x3F80}, /* between 1 and the next: to the even one */
        {0x3F808001, 0x3F81}, {0x3F818000, 0x3F82}, {0x3F817FFF, 0x3F81},
        {0x7F7FFFFF, 0x7F80}, /* the largest float is nearer to infinity */
        {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x80000000, 0x8000},
        {0x00000001, 0x0000}, {0x00008001, 0x0001}, /* below the normal ones */
        {0x7F800001, 0x7FC0},                       /* NaN with a payload that would be cut off */
        {0xFFFFFFFF, 0xFFFF},                       /* NaN that would be rounded to zero */
    };
    (void)state;
    for (int v = 0; cpu_kernels_variant(DATA_BF16, v); v++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const float from = from_bits(cases[i].from);
            uint16_t to = 1;
            cpu_kernels_variant(DATA_BF16, v)->from_f32(&from, &to, 1);
            assert_int_equal(to, cases[i].to);
        }
}

/* ---- what the baseline means -------------------------------------------------------------------------------------------- */

static void test_relu_keeps_nan_and_zero(void **state)
{
    const float x[4] = {-1, 0, 2, NAN};
    float y[4];
    (void)state;
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        cpu_kernels_variant(DATA_F32, v)->relu(x, y, 4, 0);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 2 && isnan(y[3]));
        cpu_kernels_variant(DATA_F32, v)->relu(x, y, 4, 0.5F);
        assert_true(y[0] == -0.5F && y[1] == 0 && y[2] == 2 && isnan(y[3]));
    }
}

static void test_max_pool_takes_the_first_of_equals_and_nan(void **state)
{
    const PoolShape shape = {1, 2, 2, 1, 1, 2, 2, 0};
    const float equal[4] = {3, 3, 1, 3}, with_nan[4] = {3, NAN, 9, 1},
                lowest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    float y;
    uint8_t index;
    (void)state;
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        cpu_kernels_variant(DATA_F32, v)->max_pool(&shape, equal, 0, &y, &index);
        assert_true(y == 3 && index == 0);
        cpu_kernels_variant(DATA_F32, v)->max_pool(&shape, with_nan, 0, &y, &index);
        assert_true(isnan(y));
        cpu_kernels_variant(DATA_F32, v)->max_pool(&shape, lowest, 0, &y, &index);
        assert_true(y == -INFINITY && index == 0);
    }
}

static void test_sums_hold_where_the_mean_is_large(void **state)
{
    enum { COUNT = 4000 };
    static float x[COUNT];
    float block[2], shift = 10000;
    Random random;
    double sum = 0, square = 0;
    (void)state;
    random_start(&random, 3, 0);
    for (int i = 0; i < COUNT; i++) {
        x[i] = 10000 + random_normal(&random);
        sum += (double)x[i] - 10000;
        square += ((double)x[i] - 10000) * ((double)x[i] - 10000);
    }
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        double sums[2] = {0, 0};
        cpu_kernels_variant(DATA_F32, v)->norm_sums(x, &shift, COUNT, 1, block, sums);
        assert_true(fabs(sums[0] - sum) < 1e-3 && fabs(sums[1] / square - 1) < 1e-6);
    }
}

static void test_mean_holds_over_a_large_even_area(void **state)
{
    enum { PIXELS = 1 << 16, CHANNELS = 3 };
    float *x = malloc(PIXELS * CHANNELS * sizeof *x), y[CHANNELS];
    (void)state;
    assert_non_null(x);
    for (size_t i = 0; i < PIXELS * CHANNELS; i++)
        x[i] = 0.1F + 0.7F * (float)(i % CHANNELS);
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        cpu_kernels_variant(DATA_F32, v)->row_mean(x, PIXELS, CHANNELS, y);
        for (int c = 0; c < CHANNELS; c++)
            assert_true(fabs((double)y[c] / (double)x[c] - 1) < 2e-6); /* 6e-4 where floats are added up */
    }
    free(x);
}

static void test_sum_of_squares_is_finite_where_every_value_is(void **state)
{
    float values[37];
    (void)state;
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        const CpuUpdateKernels *k = cpu_kernels_variant(DATA_F32, v)->update;
        for (int i = 0; i < 37; i++)
            values[i] = 3e38F;
        assert_true(fabs(k->sum_squares(values, 37) / (37 * 9e76) - 1) < 1e-6);
        for (int i = 0; i < 37; i++) {
            values[i] = i % 2 ? INFINITY : NAN;
            assert_false(isfinite(k->sum_squares(values, 37)));
            values[i] = 1;
        }
    }
}

/* ---- timing --------------------------------------------------------------------------------------------------------------- */

static void time_kernels(void)
{
    static const DataType types[] = {DATA_F32, DATA_BF16};
    Bench bench = bench_new(DATA_F32);
    for (int i = 0; i < KERNEL_COUNT * 2; i++)
        for (int v = 0; cpu_kernels_variant(types[i % 2], v); v++) {
            const CpuKernels *variant = cpu_kernels_variant(types[i % 2], v);
            const int k = i / 2;
            bench.type = types[i % 2];
            const Size size = {70, kernels[k].is_window ? 128 : 192};
            double best = INFINITY;
            for (int repeat = 0; repeat < 200; repeat++) {
                const double before = progress_now_seconds();
                kernels[k].run(variant, &bench, size, 0);
                best = fmin(best, progress_now_seconds() - before);
            }
            printf("%-22s %-4s %-10s %8.2f us\n", kernels[k].name, data_type_name(bench.type), variant->name,
                   best * 1e6);
        }
    bench_free(&bench);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_agree_to_the_bit),
        cmocka_unit_test(test_bf16_rounds_what_f32_computes),
        cmocka_unit_test(test_bf16_rounds_to_even_and_keeps_nan_and_infinity),
        cmocka_unit_test(test_relu_keeps_nan_and_zero),
        cmocka_unit_test(test_max_pool_takes_the_first_of_equals_and_nan),
        cmocka_unit_test(test_sums_hold_where_the_mean_is_large),
        cmocka_unit_test(test_mean_holds_over_a_large_even_area),
        cmocka_unit_test(test_sum_of_squares_is_finite_where_every_value_is),
    };
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        time_kernels();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
