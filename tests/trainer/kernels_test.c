/* Every compiled variant of the CPU backend's loops against the baseline, to the bit, on random values, odd widths and unaligned
 * memory; and nothing written outside of the outputs. `kernels_test time` also times them. */
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

/* Inputs, and outputs with guards around them; `out` starts one float off alignment. */
typedef struct Bench {
    float *in[BUFFERS];
    uint8_t *bytes;
    float *out[2]; /* of VALUES, behind GUARD values */
    uint8_t *index;
    double *sums;
    float *block;
} Bench;

static float *floats(Random *random, size_t count)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(random);
    return values;
}

static Bench bench_new(void)
{
    Bench bench;
    Random random;
    random_start(&random, 5, 0);
    for (int i = 0; i < BUFFERS; i++)
        bench.in[i] = floats(&random, VALUES);
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
    for (int i = 0; i < BUFFERS; i++)
        free(bench->in[i]);
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

static float *output(const Bench *bench, int i)
{
    return bench->out[i] + GUARD + 1;
}

typedef struct Size {
    int64_t rows, width;
} Size;
static const Size sizes[] = {{1, 1}, {70, 3}, {33, 64}, {32, 96}, {65, 70}, {70, 200}, {7, 17}, {3, 128}};

static NormForward forward_of(const Bench *b, int flags)
{
    return (NormForward){.x = b->in[0],
                         .addend = flags & 1 ? b->in[1] : NULL,
                         .y = output(b, 0),
                         .mean = b->in[2],
                         .scale = b->in[3],
                         .bias = b->in[4],
                         .relu = flags & 2,
                         .slope = flags & 4 ? 0.2F : 0};
}

static NormBackward backward_of(const Bench *b, int flags)
{
    return (NormBackward){.dy = b->in[5],
                          .x = b->in[0],
                          .y = flags & 1 ? b->in[1] : NULL,
                          .g = flags & 8 ? output(b, 1) : NULL,
                          .dx = output(b, 0),
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
    k->normalize(b->bytes, b->in[3], b->in[4], output(b, 0), s.rows, s.width);
}

static void run_add(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    if (flags) { /* in place */
        memcpy(output(b, 0), b->in[0], (size_t)count * sizeof(float));
        k->add(output(b, 0), b->in[1], output(b, 0), count);
    } else {
        k->add(b->in[0], b->in[1], output(b, 0), count);
    }
}

static void run_relu(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu(b->in[0], output(b, 0), s.rows * s.width, flags ? 0.2F : 0);
}

static void run_relu_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->relu_backward(b->in[0], b->in[1], output(b, 0), s.rows * s.width, flags ? 0.2F : 0);
}

static void run_norm_sums(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->norm_sums(b->in[0], b->in[2], s.rows, s.width, b->block, b->sums);
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
    if (flags & 8)
        norm.g = b->in[6];
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
        k->max_pool(&shape, b->in[0], row, output(b, 0) + at, b->index + at);
    }
}

static void run_max_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (size_t i = 0; i < VALUES; i++)
        b->index[i] = b->bytes[i] % 9;
    for (int64_t row = 0; row < shape.in_height; row++)
        k->max_pool_backward(&shape, b->in[0], b->index, row,
                             output(b, 0) + row * shape.in_width * shape.channels);
}

static void run_avg_pool(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.out_height; row++)
        k->avg_pool(&shape, b->in[0], row, output(b, 0) + row * shape.out_width * shape.channels);
}

static void run_avg_pool_backward(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const PoolShape shape = pool_of(s, flags);
    for (int64_t row = 0; row < shape.in_height; row++)
        k->avg_pool_backward(&shape, b->in[0], row, output(b, 0) + row * shape.in_width * shape.channels);
}

static void run_row_mean(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->row_mean(b->in[0], s.rows, s.width, output(b, 0));
}

static void run_scale(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    k->scale(b->in[0], 0.3F, output(b, 0), s.rows * s.width);
}

static void run_sgd(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const SgdStep step = {0.1F, 0.9F, 0.01F, flags & 2 ? 0.3F : 1, flags & 1};
    memcpy(output(b, 0), b->in[0], (size_t)count * sizeof(float));
    memcpy(output(b, 1), b->in[1], (size_t)count * sizeof(float));
    k->update->sgd(&step, output(b, 0), output(b, 1), b->in[2], count);
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
    memcpy(output(b, 0), b->in[1], (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        output(b, 1)[i] = b->in[2][i] * b->in[2][i];
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
    k->update->adam(&step, b->in[6], output(b, 0), output(b, 1), b->in[3], count);
    add_weights(b, count);
}

static void run_lamb(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    const int64_t count = s.rows * s.width;
    const AdamStep step = adam_of(flags);
    start_moments(b, count);
    memcpy(b->in[6], b->in[0], (size_t)count * sizeof(float));
    k->update->lamb_moments(&step, b->in[6], output(b, 0), output(b, 1), b->in[3], count, b->sums);
    k->update->lamb_apply(&step, 0.1F, b->in[6], output(b, 0), output(b, 1), count);
    add_weights(b, count);
}

static void run_gradient(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    k->update->gradient(b->in[0], flags ? b->in[1] : NULL, 0.3F, output(b, 0), s.rows * s.width);
}

static void run_average(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    memcpy(output(b, 0), b->in[0], (size_t)(s.rows * s.width) * sizeof(float));
    k->update->average(b->in[1], 0.01F, output(b, 0), s.rows * s.width);
}

static void run_sum_squares(const CpuKernels *k, const Bench *b, Size s, int flags)
{
    (void)flags;
    b->sums[0] = k->update->sum_squares(b->in[0], s.rows * s.width);
}

static const struct Kernel {
    const char *name;
    void (*run)(const CpuKernels *k, const Bench *b, Size s, int flags);
    int variations;
    bool is_window; /* the size's width is channels; its rows do not count */
} kernels[] = {
    {"normalize", run_normalize, 1, false},
    {"add", run_add, 2, false},
    {"relu", run_relu, 2, false},
    {"relu_backward", run_relu_backward, 2, false},
    {"norm_sums", run_norm_sums, 1, false},
    {"norm_forward", run_norm_forward, 8, false},
    {"norm_backward_sums", run_norm_backward_sums, 16, false},
    {"norm_backward_apply", run_norm_backward_apply, 16, false},
    {"max_pool", run_max_pool, 4, true},
    {"max_pool_backward", run_max_pool_backward, 4, true},
    {"avg_pool", run_avg_pool, 4, true},
    {"avg_pool_backward", run_avg_pool_backward, 4, true},
    {"row_mean", run_row_mean, 1, false},
    {"scale", run_scale, 1, false},
    {"sgd", run_sgd, 4, false},
    {"adam", run_adam, 2, false},
    {"lamb", run_lamb, 2, false},
    {"gradient", run_gradient, 2, false},
    {"average", run_average, 1, false},
    {"sum_squares", run_sum_squares, 1, false},
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

static void test_variants_agree_to_the_bit(void **state)
{
    Bench wanted = bench_new(), got = bench_new();
    int compared = 0;
    (void)state;
    for (int v = 1; cpu_kernels_variant(v); v++)
        for (int k = 0; k < KERNEL_COUNT; k++)
            for (int i = 0; i < SIZE_COUNT; i++)
                for (int flags = 0; flags < kernels[k].variations; flags++) {
                    bench_reset(&wanted);
                    bench_reset(&got);
                    kernels[k].run(cpu_kernels_variant(0), &wanted, sizes[i], flags);
                    kernels[k].run(cpu_kernels_variant(v), &got, sizes[i], flags);
                    compare(&wanted, &got, kernels[k].name, cpu_kernels_variant(v), sizes[i], flags);
                    compared++;
                }
    bench_free(&wanted);
    bench_free(&got);
    if (!compared)
        skip(); /* this machine runs the baseline only */
}

/* ---- what the baseline means -------------------------------------------------------------------------------------------- */

static void test_relu_keeps_nan_and_zero(void **state)
{
    const float x[4] = {-1, 0, 2, NAN};
    float y[4];
    (void)state;
    for (int v = 0; cpu_kernels_variant(v); v++) {
        cpu_kernels_variant(v)->relu(x, y, 4, 0);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 2 && isnan(y[3]));
        cpu_kernels_variant(v)->relu(x, y, 4, 0.5F);
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
    for (int v = 0; cpu_kernels_variant(v); v++) {
        cpu_kernels_variant(v)->max_pool(&shape, equal, 0, &y, &index);
        assert_true(y == 3 && index == 0);
        cpu_kernels_variant(v)->max_pool(&shape, with_nan, 0, &y, &index);
        assert_true(isnan(y));
        cpu_kernels_variant(v)->max_pool(&shape, lowest, 0, &y, &index);
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
    for (int v = 0; cpu_kernels_variant(v); v++) {
        double sums[2] = {0, 0};
        cpu_kernels_variant(v)->norm_sums(x, &shift, COUNT, 1, block, sums);
        assert_true(fabs(sums[0] - sum) < 1e-3 && fabs(sums[1] / square - 1) < 1e-6);
    }
}

static void test_sum_of_squares_is_finite_where_every_value_is(void **state)
{
    float values[37];
    (void)state;
    for (int v = 0; cpu_kernels_variant(v); v++) {
        const CpuUpdateKernels *k = cpu_kernels_variant(v)->update;
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
    Bench bench = bench_new();
    for (int k = 0; k < KERNEL_COUNT; k++)
        for (int v = 0; cpu_kernels_variant(v); v++) {
            const Size size = {70, kernels[k].is_window ? 128 : 192};
            double best = INFINITY;
            for (int repeat = 0; repeat < 200; repeat++) {
                const double before = progress_now_seconds();
                kernels[k].run(cpu_kernels_variant(v), &bench, size, 0);
                best = fmin(best, progress_now_seconds() - before);
            }
            printf("%-22s %-10s %8.2f us\n", kernels[k].name, cpu_kernels_variant(v)->name, best * 1e6);
        }
    bench_free(&bench);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants_agree_to_the_bit),
        cmocka_unit_test(test_relu_keeps_nan_and_zero),
        cmocka_unit_test(test_max_pool_takes_the_first_of_equals_and_nan),
        cmocka_unit_test(test_sums_hold_where_the_mean_is_large),
        cmocka_unit_test(test_sum_of_squares_is_finite_where_every_value_is),
    };
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        time_kernels();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
