/* Depthwise convolutions of 3 x 3 and 7 x 7 at stride 1 (depthwise_strips.cuh), forward, data and weight
 * gradient, against plain sums in float64 on the CPU: images smaller than the kernel, widths that strips of
 * 4, 5 and 7 do not divide, channels of one and of several slabs, other paddings than half the kernel. Needs
 * a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

enum { GUARD = 512 };

/* A tensor on both sides; on the device GUARD more elements follow, which stay as they are. */
typedef struct Array {
    DeviceTensor tensor;
    size_t count;
    float *values;
} Array;

static size_t bytes_of(const Array *a, size_t elements)
{
    return elements * (a->tensor.element == ELEMENT_BF16 ? 2 : 4);
}

/* Draws values that bf16 holds, too. */
static Array make_array(Random *random, ElementType element, const int64_t shape[4], bool poisoned)
{
    Array a = {.tensor = {.element = element,
                          .rank = 4,
                          .shape = {shape[0], shape[1], shape[2], shape[3]},
                          .pitch = shape[3],
                          .rows = shape[0] * shape[1] * shape[2]},
               .count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3])};
    a.values = malloc((a.count + GUARD) * sizeof *a.values);
    char *stored = malloc(bytes_of(&a, a.count + GUARD));
    assert_non_null(a.values);
    assert_non_null(stored);
    for (size_t i = 0; i < a.count + GUARD; i++) {
        const float value = poisoned ? 12345 : random_normal(random);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits &= 0xFFFF0000U;
        memcpy(&a.values[i], &bits, sizeof bits);
        if (element == ELEMENT_BF16)
            ((uint16_t *)(void *)stored)[i] = (uint16_t)(bits >> 16);
        else
            ((uint32_t *)(void *)stored)[i] = bits;
    }
    a.tensor.data = gpu_copy_of(stored, bytes_of(&a, a.count + GUARD));
    free(stored);
    return a;
}

static void free_array(Array *a)
{
    (void)cudaFree(a->tensor.data);
    free(a->values);
}

/* Returns what the device holds; the caller frees it. Asserts that the guard is what it was. */
static float *read_array(const Array *a)
{
    float *values = gpu_read(a->tensor.data, bytes_of(a, a->count + GUARD));
    if (a->tensor.element == ELEMENT_BF16) {
        uint16_t *stored = (uint16_t *)(void *)values;
        values = malloc((a->count + GUARD) * sizeof *values);
        assert_non_null(values);
        for (size_t i = 0; i < a->count + GUARD; i++)
            values[i] = narrow_value(ELEMENT_BF16, stored[i]);
        free(stored);
    }
    assert_memory_equal(values + a->count, a->values + a->count, GUARD * sizeof *values);
    return values;
}

/* Of images, and the kernel's edge. */
typedef struct Shape {
    int64_t samples, height, width, channels, kernel, padding;
} Shape;

/* Returns the place of an element in images of these sizes, [N, H, W, C]. */
static int64_t place_of(const int64_t *sizes, int64_t n, int64_t y, int64_t x, int64_t c)
{
    return ((n * sizes[1] + y) * sizes[2] + x) * sizes[3] + c;
}

enum { X, WEIGHT, BIAS, DY, Y, DX, DWEIGHT, DBIAS, ARRAYS };

/* Computes y, dx, dweight and dbias into sums[Y] to sums[DBIAS]. */
static void compute(const Shape *s, const Array *arrays, double *const *sums)
{
    const float *x = arrays[X].values, *weight = arrays[WEIGHT].values, *dy = arrays[DY].values;
    const int64_t kernel = s->kernel, taps = kernel * kernel;
    const int64_t *in = arrays[X].tensor.shape, *out = arrays[DY].tensor.shape;
    for (int64_t n = 0; n < out[0]; n++)
        for (int64_t h = 0; h < out[1]; h++)
            for (int64_t w = 0; w < out[2]; w++)
                for (int64_t c = 0; c < out[3]; c++) {
                    const int64_t at = place_of(out, n, h, w, c);
                    sums[Y][at] += (double)arrays[BIAS].values[c];
                    sums[DBIAS][c] += (double)dy[at];
                    for (int64_t tap = 0; tap < taps; tap++) {
                        const int64_t row = h + tap / kernel - s->padding,
                                      column = w + tap % kernel - s->padding;
                        if (row < 0 || row >= in[1] || column < 0 || column >= in[2])
                            continue;
                        const int64_t from = place_of(in, n, row, column, c);
                        sums[Y][at] += (double)x[from] * (double)weight[c * taps + tap];
                        sums[DX][from] += (double)dy[at] * (double)weight[c * taps + tap];
                        sums[DWEIGHT][c * taps + tap] += (double)dy[at] * (double)x[from];
                    }
                }
}

static void compare(const Shape *s, const char *name, const Array *a, const double *wanted, double tolerance)
{
    float *got = read_array(a);
    double difference = 0, size = 0;
    for (size_t i = 0; i < a->count; i++) {
        difference += pow((double)got[i] - wanted[i], 2);
        size += wanted[i] * wanted[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(size)))
        fail_msg("%lld x %lld x %lld x %lld, %lld taps wide, padding %lld: %s is off by %.1e",
                 (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->channels,
                 (long long)s->kernel, (long long)s->padding, name, sqrt(difference / size));
    free(got);
}

/* Runs all three twice: the second time makes the same bits. */
static void run(Array *a, const Depthwise *depthwise, void *scratch)
{
    float *first[ARRAYS] = {NULL};
    for (int time = 0; time < 2; time++) {
        gpu_check(kernel_depthwise(&a[X].tensor, &a[WEIGHT].tensor, &a[BIAS].tensor, depthwise, &a[Y].tensor,
                                   NULL));
        gpu_check(
            kernel_depthwise_backward_data(&a[DY].tensor, &a[WEIGHT].tensor, depthwise, &a[DX].tensor, NULL));
        gpu_check(kernel_depthwise_backward_weight(&a[DY].tensor, &a[X].tensor, depthwise, &a[DWEIGHT].tensor,
                                                   &a[DBIAS].tensor, scratch, NULL));
        for (int i = Y; i < ARRAYS; i++) {
            float *values = read_array(&a[i]);
            if (time)
                assert_memory_equal(values, first[i], a[i].count * sizeof *values);
            free(first[i]);
            first[i] = values;
        }
    }
    for (int i = Y; i < ARRAYS; i++)
        free(first[i]);
}

static void compare_shape(const Shape *s, ElementType element)
{
    static const char *const names[ARRAYS] = {
        [Y] = "y", [DX] = "dx", [DWEIGHT] = "dweight", [DBIAS] = "dbias"};
    const int64_t in[4] = {s->samples, s->height, s->width, s->channels},
                  out[4] = {s->samples, s->height + 2 * s->padding - s->kernel + 1,
                            s->width + 2 * s->padding - s->kernel + 1, s->channels},
                  weight[4] = {s->channels, s->kernel, s->kernel, 1}, vector[4] = {1, 1, 1, s->channels};
    const int64_t *shapes[ARRAYS] = {in, weight, vector, out, out, in, weight, vector};
    const Depthwise depthwise = {s->kernel, 1, s->padding};
    double *sums[ARRAYS] = {NULL};
    Array a[ARRAYS];
    const int guard = 0x5A;
    Random random;
    random_start(&random, (uint64_t)s->width, (uint64_t)s->channels);
    for (int i = 0; i < ARRAYS; i++) {
        const bool of_weight = shapes[i] != in && shapes[i] != out;
        a[i] = make_array(&random, of_weight ? ELEMENT_F32 : element, shapes[i], i >= Y);
        sums[i] = calloc(a[i].count, sizeof *sums[i]);
        assert_non_null(sums[i]);
    }
    const size_t scratch_bytes = kernel_depthwise_scratch_bytes(&a[DY].tensor, &depthwise);
    unsigned char *guarded = malloc(scratch_bytes + GUARD);
    assert_non_null(guarded);
    memset(guarded, guard, scratch_bytes + GUARD);
    void *scratch = gpu_copy_of(guarded, scratch_bytes + GUARD);
    run(a, &depthwise, scratch);
    unsigned char *after = gpu_read(scratch, scratch_bytes + GUARD);
    assert_memory_equal(after + scratch_bytes, guarded + scratch_bytes, GUARD);
    free(after);
    free(guarded);
    compute(s, a, sums);
    for (int i = Y; i < ARRAYS; i++)
        compare(s, names[i], &a[i], sums[i], a[i].tensor.element == ELEMENT_BF16 ? 4e-3 : 1e-5);
    for (int i = 0; i < ARRAYS; i++) {
        free_array(&a[i]);
        free(sums[i]);
    }
    (void)cudaFree(scratch);
}

static void compare_shapes(const Shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        compare_shape(&shapes[i], ELEMENT_F32);
        compare_shape(&shapes[i], ELEMENT_BF16);
    }
}

TEST(test_kernels_of_seven_are_right_at_any_size)
{
    static const Shape shapes[] = {{1, 1, 1, 136, 7, 3},  {3, 13, 9, 24, 7, 3},  {2, 5, 70, 8, 7, 3},
                                   {2, 12, 12, 96, 7, 3}, {5, 7, 7, 40, 7, 3},   {2, 4, 5, 768, 7, 3},
                                   {1, 33, 20, 8, 7, 3},  {9, 8, 8, 64, 7, 3},   {2, 9, 8, 40, 7, 0},
                                   {1, 3, 8, 40, 7, 6},   {16, 56, 56, 96, 7, 3}}; /* several steps a block */
    compare_shapes(shapes, sizeof shapes / sizeof *shapes);
}

TEST(test_kernels_of_three_are_right_at_any_size)
{
    static const Shape shapes[] = {{1, 1, 1, 136, 3, 1},  {3, 13, 9, 24, 3, 1},   {2, 5, 70, 64, 3, 1},
                                   {2, 12, 10, 96, 3, 1}, {5, 7, 7, 72, 3, 1},    {16, 32, 32, 512, 3, 1},
                                   {1, 65, 33, 8, 3, 1},  {2, 64, 256, 64, 3, 1}, {2, 6, 9, 24, 3, 0},
                                   {2, 4, 5, 72, 3, 2},   {1, 9, 260, 8, 3, 1},   {16, 64, 64, 64, 3, 1}};
    compare_shapes(shapes, sizeof shapes / sizeof *shapes);
}
