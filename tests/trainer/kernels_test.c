/* Every compiled variant of the CPU backend's loops against the baseline, to the bit, on random values, odd
 * widths and unaligned memory, and nothing written outside of the outputs; the bf16 loops against the f32
 * ones with what they write rounded. `kernels_test time` also times them. */
#include "tests/trainer/kernels_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "common/random.h"
#include "tests/support/support.h"
#include "trainer/backend/pointwise_math.h"

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

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
        if (got->out[0][i] != GUARD_VALUE || got->out[0][VALUES + GUARD + 1 + i] != GUARD_VALUE)
            fail_msg("%s, %s: writes outside of its output", what, variant->name);
}

static int compare_variants(DataType type)
{
    Bench wanted = kernel_bench_new(type), got = kernel_bench_new(type);
    int compared = 0;
    for (int v = 1; cpu_kernels_variant(type, v); v++)
        for (int k = 0; k < kernel_count; k++)
            for (int i = 0; i < kernel_size_count; i++)
                for (int flags = 0; flags < kernels[k].variations; flags++) {
                    kernel_bench_reset(&wanted);
                    kernel_bench_reset(&got);
                    kernels[k].run(cpu_kernels_variant(type, 0), &wanted, kernel_sizes[i], flags);
                    kernels[k].run(cpu_kernels_variant(type, v), &got, kernel_sizes[i], flags);
                    compare(&wanted, &got, kernels[k].name, cpu_kernels_variant(type, v), kernel_sizes[i],
                            flags);
                    compared++;
                }
    kernel_bench_free(&wanted);
    kernel_bench_free(&got);
    return compared;
}

TEST(test_variants_agree_to_the_bit)
{
    if (compare_variants(DATA_F32) + compare_variants(DATA_BF16) == 0)
        skip(); /* this machine runs the baseline only */
}

static void compare_gathers(DataType type)
{
    Bench wanted = kernel_bench_new(type), got = kernel_bench_new(type);
    for (int v = 0; cpu_kernels_variant(type, v); v++)
        for (int i = 0; i < kernel_size_count; i++)
            for (int flags = 0; flags < 2; flags++) {
                const CpuKernels *variant = cpu_kernels_variant(type, v);
                kernel_bench_reset(&wanted);
                kernel_bench_reset(&got);
                kernel_gather_apart(variant, &wanted, kernel_sizes[i], flags);
                kernel_gather(variant, &got, kernel_sizes[i], flags);
                compare(&wanted, &got, "depthwise, places side by side", variant, kernel_sizes[i], flags);
            }
    kernel_bench_free(&wanted);
    kernel_bench_free(&got);
}

TEST(test_places_side_by_side_have_the_bits_of_places_alone)
{
    compare_gathers(DATA_F32);
    compare_gathers(DATA_BF16);
}

/* ---- bf16 ---- */

/* Asserts that outputs of f32, rounded, are those of bf16, and that sums and indices are the same. */
static void compare_rounded(const Bench *wanted, const Bench *got, const Kernel *kernel, Size s, int flags)
{
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < VALUES; k++) {
            const float exact = wanted->out[i][GUARD + 1 + k];
            if (exact == GUARD_VALUE)
                continue; /* not an output of this kernel and size */
            const float value =
                kernel->is_f32 ? got->out[i][GUARD + 1 + k]
                               : from_bits((uint32_t) * (const uint16_t *)kernel_output(got, i, k) << 16);
            const float right = kernel->is_f32 ? exact : bf16_rounded(exact);
            if (value != right)
                fail_msg("%s for %lld x %lld, variation %d: element %lld is %.9g, not %.9g", kernel->name,
                         (long long)s.rows, (long long)s.width, flags, (long long)k, (double)value,
                         (double)right);
        }
    assert_memory_equal(wanted->index, got->index, VALUES);
    assert_memory_equal(wanted->sums, got->sums, 2 * WIDTH_MAX * sizeof *got->sums);
}

TEST(test_bf16_rounds_what_f32_computes)
{
    Bench wanted = kernel_bench_new(DATA_F32), got = kernel_bench_new(DATA_BF16);
    for (int k = 0; k < kernel_count; k++)
        for (int i = 0; i < kernel_size_count; i++)
            for (int flags = 0; flags < kernels[k].variations; flags++) {
                kernel_bench_reset(&wanted);
                kernel_bench_reset(&got);
                kernels[k].run(cpu_kernels_variant(DATA_F32, 0), &wanted, kernel_sizes[i], flags);
                kernels[k].run(cpu_kernels_variant(DATA_BF16, 0), &got, kernel_sizes[i], flags);
                compare_rounded(&wanted, &got, &kernels[k], kernel_sizes[i], flags);
            }
    kernel_bench_free(&wanted);
    kernel_bench_free(&got);
}

TEST(test_bf16_rounds_to_even_and_keeps_nan_and_infinity)
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
    for (int v = 0; cpu_kernels_variant(DATA_BF16, v); v++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const float from = from_bits(cases[i].from);
            uint16_t to = 1;
            cpu_kernels_variant(DATA_BF16, v)->from_f32(&from, &to, 1);
            assert_int_equal(to, cases[i].to);
        }
}

/* ---- what the baseline means ---- */

TEST(test_relu_keeps_nan_and_zero)
{
    const float x[4] = {-1, 0, 2, NAN};
    float y[4];
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        cpu_kernels_variant(DATA_F32, v)->relu(x, y, 4, 0);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 2 && isnan(y[3]));
        cpu_kernels_variant(DATA_F32, v)->relu(x, y, 4, 0.5F);
        assert_true(y[0] == -0.5F && y[1] == 0 && y[2] == 2 && isnan(y[3]));
    }
}

TEST(test_max_pool_takes_the_first_of_equals_and_nan)
{
    const PoolShape shape = {1, 2, 2, 1, 1, 2, 2, 0, false};
    const float equal[4] = {3, 3, 1, 3}, with_nan[4] = {3, NAN, 9, 1},
                lowest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    float y;
    uint8_t index;
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        cpu_kernels_variant(DATA_F32, v)->pool->max_pool(&shape, equal, 0, &y, &index);
        assert_true(y == 3 && index == 0);
        cpu_kernels_variant(DATA_F32, v)->pool->max_pool(&shape, with_nan, 0, &y, &index);
        assert_true(isnan(y));
        cpu_kernels_variant(DATA_F32, v)->pool->max_pool(&shape, lowest, 0, &y, &index);
        assert_true(y == -INFINITY && index == 0);
    }
}

/* Where the norm falls, the smallest value counts. */
TEST(test_norm_pool_takes_the_first_of_equals_and_nan)
{
    const PoolShape shape = {1, 2, 2, 1, 1, 2, 2, 0, false};
    const float mean = 1, falling = -2, bias = 3, equal[4] = {5, -3, 1, -3}, with_nan[4] = {3, NAN, -9, 1};
    const NormPool norm = {&mean, &falling, &bias, 0};
    float y, extreme;
    uint8_t index;
    for (int v = 0; cpu_kernels_variant(DATA_F32, v); v++) {
        const CpuPoolKernels *pool = cpu_kernels_variant(DATA_F32, v)->pool;
        pool->norm_pool(&shape, &norm, equal, 0, &y, &extreme, &index);
        assert_true(y == 11 && extreme == -3 && index == 1);
        pool->norm_pool(&shape, &norm, with_nan, 0, &y, &extreme, &index);
        assert_true(isnan(y) && isnan(extreme));
    }
}

TEST(test_sums_hold_where_the_mean_is_large)
{
    enum { COUNT = 4000 };
    static float x[COUNT];
    float block[2], shift = 10000;
    Random random;
    double sum = 0, square = 0;
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

TEST(test_mean_holds_over_a_large_even_area)
{
    enum { PIXELS = 1 << 16, CHANNELS = 3 };
    float *x = malloc(PIXELS * CHANNELS * sizeof *x), y[CHANNELS];
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

TEST(test_sum_of_squares_is_finite_where_every_value_is)
{
    float values[37];
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

/* Against erfc in float64; a result in f16 is off by 2.4e-4 of itself anyhow. */
TEST(test_gelu_for_16_bits_is_near_enough)
{
    double worst = 0, worst_slope = 0, beyond = 0;
    for (int i = -80000; i <= 20000; i++) {
        const float x = (float)i * 5e-4F;
        const double below = 0.5 * erfc(-(double)x / sqrt(2)), exact = (double)x * below;
        const double slope = below + (double)x * exp(-0.5 * (double)x * (double)x) / sqrt(2 * acos(-1));
        const double off = fabs((double)gelu_narrow(x) - exact);
        if (x < -6)
            beyond = fmax(beyond, off);
        else if (i != 0)
            worst = fmax(worst, off / fabs(exact));
        worst_slope = fmax(worst_slope, fabs((double)gelu_narrow_slope(x) - slope));
    }
    print_message("  %.1e of itself, its slope %.1e, below -6 %.1e\n", worst, worst_slope, beyond);
    assert_true(worst < 1e-5 && worst_slope < 1e-5 && beyond < 1e-12);
    assert_true(gelu_narrow(0) == 0 && gelu_narrow(65504) == 65504 && fabsf(gelu_narrow(-65504)) < 1e-30F);
    assert_true(gelu_narrow_slope(65504) == 1 && fabsf(gelu_narrow_slope(-65504)) < 1e-30F);
    assert_true(isnan(gelu_narrow(NAN)) && isnan(gelu_narrow_slope(NAN)));
}

static double silu_exact(double x, double *slope)
{
    const double s = 1 / (1 + exp(-x));
    *slope = s * (1 + x * (1 - s));
    return x * s;
}

static double mish_exact(double x, double *slope)
{
    const double t = tanh(log1p(exp(x)));
    *slope = t + x * (1 - t * t) / (1 + exp(-x));
    return x * t;
}

/* Against float64; what is beyond -17 rounds to 0 in f16. */
TEST(test_silu_and_mish_for_16_bits_are_near_enough)
{
    static const struct {
        float (*function)(float), (*slope)(float);
        double (*exact)(double, double *);
    } rows[] = {{silu_narrow, silu_narrow_slope, silu_exact}, {mish_narrow, mish_narrow_slope, mish_exact}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double worst = 0, worst_slope = 0, slope;
        for (int i = -34000; i <= 34000; i++) {
            const float x = (float)i * 5e-4F;
            const double exact = rows[r].exact((double)x, &slope);
            if (i != 0)
                worst = fmax(worst, fabs((double)rows[r].function(x) / exact - 1));
            worst_slope = fmax(worst_slope, fabs((double)rows[r].slope(x) - slope));
        }
        print_message("  %.1e of itself, its slope %.1e\n", worst, worst_slope);
        assert_true(worst < 5e-6 && worst_slope < 3e-6);
        assert_true(rows[r].function(0) == 0 && rows[r].function(65504) == 65504);
        assert_true(fabsf(rows[r].function(-65504)) < 1e-30F && fabsf(rows[r].slope(-65504)) < 1e-30F);
        assert_true(rows[r].slope(65504) == 1);
        assert_true(isnan(rows[r].function(NAN)) && isnan(rows[r].slope(NAN)));
    }
}

/* ---- timing ---- */

static void time_kernels(void)
{
    static const DataType types[] = {DATA_F32, DATA_BF16};
    Bench bench = kernel_bench_new(DATA_F32);
    for (int i = 0; i < kernel_count * 2; i++)
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
    kernel_bench_free(&bench);
}

int test_program_arguments(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "time") != 0)
        return test_take_pattern(argc, argv);
    time_kernels();
    return 0;
}
