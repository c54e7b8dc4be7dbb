/* A batch norm and a max pool of its result (norm_pool.cu) against their definition: both pools, all types,
 * even and odd sizes, and nothing written elsewhere. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_norm_pool.h"

enum { GUARD_BYTES = 1024, GUARD_BYTE = 0x5A };

typedef struct Case {
    int images, height, width, channels;
    int kernel; /* 3, with a padding of 1, or 2 */
    ElementType element;
    OpKind op;
    float slope;
} Case;

enum { WEIGHT, BIAS, MEAN, INVERSE, DWEIGHT, DBIAS, VECTORS };

/* Operands and, as floats, their values. */
typedef struct Operands {
    DeviceTensor x, dx, y, extreme, index, g, v[VECTORS];
    float *x_values, *g_values, *vectors[VECTORS];
} Operands;

static size_t bytes_of(const DeviceTensor *tensor)
{
    const size_t each = tensor->element == ELEMENT_U8 ? 1 : tensor->element == ELEMENT_F32 ? 4 : 2;
    return (size_t)device_tensor_stored(tensor) * each;
}

/* Gives the tensor memory with a guard behind it: of the values, or, where there are none, filled like it. */
static void place(DeviceTensor *tensor, const float *values)
{
    const size_t bytes = bytes_of(tensor), count = (size_t)device_tensor_stored(tensor);
    unsigned char *memory = malloc(bytes + GUARD_BYTES);
    assert_non_null(memory);
    memset(memory, GUARD_BYTE, bytes + GUARD_BYTES);
    for (size_t i = 0; i < count && values; i++) {
        const uint16_t bits = tensor->element == ELEMENT_F32 ? 0 : narrow_bits(tensor->element, values[i]);
        if (tensor->element == ELEMENT_F32)
            memcpy(memory + 4 * i, &values[i], 4);
        else
            memcpy(memory + 2 * i, &bits, 2);
    }
    tensor->data = gpu_copy_of(memory, bytes + GUARD_BYTES);
    free(memory);
}

/* Returns the values of a tensor, and checks what lies behind it; the caller frees them. */
static float *values_of(const DeviceTensor *tensor)
{
    const size_t bytes = bytes_of(tensor), count = (size_t)device_tensor_stored(tensor);
    unsigned char *memory = gpu_read(tensor->data, bytes + GUARD_BYTES);
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(memory[bytes + i], GUARD_BYTE);
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = 0;
        if (tensor->element == ELEMENT_U8) {
            values[i] = memory[i];
        } else if (tensor->element == ELEMENT_F32) {
            memcpy(&values[i], memory + 4 * i, 4);
        } else {
            memcpy(&bits, memory + 2 * i, 2);
            values[i] = narrow_value(tensor->element, bits);
        }
    }
    free(memory);
    return values;
}

/* Returns random values that every type has, some of them equal. */
static float *numbers_for(const DeviceTensor *tensor, Random *random)
{
    const size_t count = (size_t)device_tensor_stored(tensor);
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((int)random_below(random, 255) - 127) / 32;
    return values;
}

static void make_vectors(const Case *c, Operands *o, Random *random)
{
    for (int v = 0; v < VECTORS; v++) {
        o->v[v] = (DeviceTensor){.element = ELEMENT_F32,
                                 .rank = 1,
                                 .shape = {c->channels},
                                 .pitch = padded_channels(c->channels),
                                 .rows = 1};
        o->vectors[v] = calloc((size_t)o->v[v].pitch, sizeof(float));
        assert_non_null(o->vectors[v]);
        for (int i = 0; i < c->channels; i++)
            o->vectors[v][i] = v == INVERSE            ? 0.5F + random_uniform(random)
                               : v == WEIGHT && i == 3 ? 0
                                                       : random_normal(random);
        place(&o->v[v], o->vectors[v]);
    }
}

static void make_operands(const Case *c, Operands *o)
{
    Random random;
    const int lost = c->kernel == 3 ? 0 : 1;
    const int64_t out_height = (c->height - lost - 1) / 2 + 1, out_width = (c->width - lost - 1) / 2 + 1;
    random_start(&random, (uint64_t)c->height * 1000 + (uint64_t)c->width, (uint64_t)c->channels);
    o->x = o->dx = gpu_image_of(c->element, c->images, c->height, c->width, c->channels);
    o->y = o->extreme = o->g = gpu_image_of(c->element, c->images, out_height, out_width, c->channels);
    o->index = gpu_image_of(ELEMENT_U8, c->images, out_height, out_width, c->channels);
    o->x_values = numbers_for(&o->x, &random);
    o->g_values = numbers_for(&o->g, &random);
    place(&o->x, o->x_values);
    place(&o->g, o->g_values);
    place(&o->dx, NULL);
    place(&o->y, NULL);
    place(&o->extreme, NULL);
    place(&o->index, NULL);
    make_vectors(c, o, &random);
}

static void free_operands(Operands *o)
{
    void *const images[6] = {o->x.data, o->dx.data, o->y.data, o->extreme.data, o->index.data, o->g.data};
    for (int i = 0; i < 6; i++)
        gpu_check(cudaFree(images[i]));
    for (int v = 0; v < VECTORS; v++) {
        gpu_check(cudaFree(o->v[v].data));
        free(o->vectors[v]);
    }
    free(o->x_values);
    free(o->g_values);
}

static NormTensors tensors_of(const Operands *o)
{
    return (NormTensors){.x = &o->x,
                         .weight = &o->v[WEIGHT],
                         .bias = &o->v[BIAS],
                         .mean = &o->v[MEAN],
                         .inverse_deviation = &o->v[INVERSE]};
}

static PoolShape pool_of(const Case *c)
{
    return (PoolShape){c->kernel, 2, c->kernel == 3 ? 1 : 0, false};
}

/* What a window has by definition. */
typedef struct Wanted {
    float extreme;
    int place;
} Wanted;

static Wanted wanted_of(const Case *c, const Operands *o, int64_t n, int64_t h, int64_t w, int64_t channel)
{
    const int padding = c->kernel == 3 ? 1 : 0;
    const float sign = o->vectors[WEIGHT][channel] * o->vectors[INVERSE][channel] < 0 ? -1.0F : 1.0F;
    Wanted wanted = {0, -1};
    for (int i = 0; i < c->kernel * c->kernel; i++) {
        const int64_t row = 2 * h - padding + i / c->kernel, column = 2 * w - padding + i % c->kernel;
        if (row < 0 || row >= c->height || column < 0 || column >= c->width)
            continue;
        const float x = o->x_values[((n * c->height + row) * c->width + column) * c->channels + channel];
        if (wanted.place < 0 || sign * x > sign * wanted.extreme)
            wanted = (Wanted){x, i};
    }
    return wanted;
}

/* Returns half of what two neighbours of the type's values near 1 are apart, and some. */
static double rounding(ElementType element)
{
    return element == ELEMENT_BF16 ? 4e-3 : element == ELEMENT_F16 ? 5e-4 : 2e-6;
}

static void check_forward(const Case *c, const Operands *o)
{
    float *y = values_of(&o->y), *extreme = values_of(&o->extreme), *index = values_of(&o->index);
    for (int64_t i = 0; i < device_tensor_stored(&o->y); i++) {
        const int64_t channel = i % c->channels, pixel = i / c->channels, w = pixel % o->y.shape[2],
                      h = pixel / o->y.shape[2] % o->y.shape[1], n = pixel / o->y.shape[2] / o->y.shape[1];
        const Wanted wanted = wanted_of(c, o, n, h, w, channel);
        const double scale = (double)o->vectors[WEIGHT][channel] * (double)o->vectors[INVERSE][channel];
        const double distance = (double)wanted.extreme - (double)o->vectors[MEAN][channel],
                     result = distance * scale + (double)o->vectors[BIAS][channel];
        const double activated = c->op && result < 0 ? (double)c->slope * result : result;
        const double most = fabs(activated) * rounding(c->element) +
                            1e-6 * (1 + fabs(scale) * (fabs(distance) + fabs((double)wanted.extreme)));
        if (extreme[i] != wanted.extreme || (int)index[i] != wanted.place ||
            !(fabs((double)y[i] - activated) <= most))
            fail_msg("%d x %d x %d x %d, kernel %d, element %d: place %lld: extreme %g at %g and y %g, not "
                     "%g at %d and %g",
                     c->images, c->height, c->width, c->channels, c->kernel, c->element, (long long)i,
                     (double)extreme[i], (double)index[i], (double)y[i], (double)wanted.extreme, wanted.place,
                     activated);
    }
    free(y);
    free(extreme);
    free(index);
}

/* Checks dx, in which x may lie no more, against sums of g over the windows whose extreme a pixel is. */
static void check_backward(const Case *c, const Operands *o, const DeviceTensor *dx)
{
    const int padding = c->kernel == 3 ? 1 : 0;
    const size_t count = (size_t)device_tensor_stored(&o->x);
    double *sums = calloc(count, sizeof *sums);
    float *found = values_of(dx);
    assert_non_null(sums);
    for (int64_t i = 0; i < device_tensor_stored(&o->g); i++) {
        const int64_t channel = i % c->channels, pixel = i / c->channels, w = pixel % o->y.shape[2],
                      h = pixel / o->y.shape[2] % o->y.shape[1], n = pixel / o->y.shape[2] / o->y.shape[1];
        const int place = wanted_of(c, o, n, h, w, channel).place;
        const int64_t row = 2 * h - padding + place / c->kernel, column = 2 * w - padding + place % c->kernel;
        sums[((n * c->height + row) * c->width + column) * c->channels + channel] += (double)o->g_values[i];
    }
    const double pixels = (double)count / c->channels;
    for (size_t i = 0; i < count; i++) {
        const size_t channel = i % (size_t)c->channels;
        const double inverse = (double)o->vectors[INVERSE][channel],
                     scale = (double)o->vectors[WEIGHT][channel] * inverse,
                     distance = ((double)o->x_values[i] - (double)o->vectors[MEAN][channel]) * inverse;
        const double of_sums =
                         (double)o->vectors[DBIAS][channel] + distance * (double)o->vectors[DWEIGHT][channel],
                     wanted = scale * (sums[i] - of_sums / pixels);
        const double most = fabs(wanted) * rounding(c->element) +
                            1e-6 * (0.1 + fabs(scale) * (fabs(sums[i]) + fabs(of_sums)));
        if (!(fabs((double)found[i] - wanted) <= most))
            fail_msg("%d x %d x %d x %d, kernel %d, element %d: dx %zu: %g, not %g", c->images, c->height,
                     c->width, c->channels, c->kernel, c->element, i, (double)found[i], wanted);
    }
    free(sums);
    free(found);
}

static cudaError_t run_backward(const Case *c, const Operands *o, const DeviceTensor *dx)
{
    const NormTensors tensors = tensors_of(o);
    const PoolShape pool = pool_of(c);
    return kernel_norm_pool_backward(&o->g, &o->index, &tensors, &o->v[DWEIGHT], &o->v[DBIAS], &pool, dx,
                                     NULL);
}

static cudaError_t run_forward(const Case *c, const Operands *o)
{
    const NormTensors tensors = tensors_of(o);
    const NormActivation activation = {c->op, c->slope};
    const PoolShape pool = pool_of(c);
    const NormPooled pooled = {&o->y, &o->extreme, &o->index};
    return kernel_norm_pool(&tensors, &activation, &pool, &pooled, NULL);
}

static void try_case(const Case *c)
{
    Operands o;
    make_operands(c, &o);
    gpu_check(run_forward(c, &o));
    gpu_check(cudaDeviceSynchronize());
    check_forward(c, &o);
    gpu_check(run_backward(c, &o, &o.dx));
    gpu_check(cudaDeviceSynchronize());
    check_backward(c, &o, &o.dx);
    gpu_check(run_backward(c, &o, &o.x)); /* in place */
    gpu_check(cudaDeviceSynchronize());
    check_backward(c, &o, &o.x);
    free_operands(&o);
}

TEST(test_pools_of_norms)
{
    static const int shapes[][4] = {{1, 1, 1, 8},   {1, 2, 2, 8},    {2, 3, 5, 16},   {3, 8, 8, 24},
                                    {2, 9, 16, 64}, {1, 17, 4, 128}, {2, 26, 25, 32}, {1, 40, 41, 72}};
    static const ElementType elements[] = {ELEMENT_F16, ELEMENT_BF16, ELEMENT_F32};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 18; kind++) {
            const Case c = {.images = shapes[s][0],
                            .height = shapes[s][1],
                            .width = shapes[s][2],
                            .channels = shapes[s][3],
                            .kernel = kind % 2 ? 3 : 2,
                            .element = elements[kind / 2 % 3],
                            .op = kind / 6 == 2 ? 0 : OP_RELU,
                            .slope = kind / 6 == 1 ? 0.25F : 0};
            if (c.kernel == 3 || (c.height > 1 && c.width > 1))
                try_case(&c);
        }
}

/* The largest is no number where one of them is none, and so is what comes of it. */
TEST(test_what_is_no_number_passes)
{
    static const ElementType elements[] = {ELEMENT_F16, ELEMENT_BF16, ELEMENT_F32};
    for (int kind = 0; kind < 3; kind++) {
        const Case c = {1, 4, 4, 8, 3, elements[kind], OP_RELU, 0};
        const float none = NAN;
        const uint16_t narrow_none = kind ? 0x7FC0 : 0x7E00;
        const size_t bytes = kind == 2 ? 4 : 2,
                     at = ((size_t)5 * 8 + 2) * bytes; /* pixel 1, 1: of all windows */
        Operands o;
        make_operands(&c, &o);
        gpu_check(cudaMemcpy((char *)o.x.data + at, kind == 2 ? (const void *)&none : &narrow_none, bytes,
                             cudaMemcpyHostToDevice));
        gpu_check(run_forward(&c, &o));
        gpu_check(cudaDeviceSynchronize());
        float *extreme = values_of(&o.extreme), *y = values_of(&o.y);
        for (int i = 0; i < 4 * 8; i++)
            assert_true((isnan(extreme[i]) != 0) == (i % 8 == 2) && (isnan(y[i]) != 0) == (i % 8 == 2));
        free(extreme);
        free(y);
        free_operands(&o);
    }
}

TEST(test_statistics_of_sums)
{
    enum { CHANNELS = 24, ROWS = 50 };
    float sums[2 * CHANNELS], running[2][CHANNELS], bias[CHANNELS];
    const DeviceTensor vector = {
        .element = ELEMENT_F32, .rank = 1, .shape = {CHANNELS}, .pitch = CHANNELS, .rows = 1};
    DeviceTensor x = gpu_image_of(ELEMENT_F16, 1, 5, 10, CHANNELS), mean = vector, inverse = vector,
                 of_running[2] = {vector, vector}, of_bias = vector, of_sums = vector;
    of_sums.rank = 2;
    of_sums.shape[0] = of_sums.rows = 2;
    of_sums.shape[1] = CHANNELS;
    for (int c = 0; c < CHANNELS; c++) {
        sums[c] = (float)(c - 9);
        sums[CHANNELS + c] = sums[c] * sums[c] / ROWS + 3 + (float)c;
        running[0][c] = 0.5F * (float)c;
        running[1][c] = 1 + (float)c;
        bias[c] = 2;
    }
    place(&mean, NULL);
    place(&inverse, NULL);
    place(&of_running[0], running[0]);
    place(&of_running[1], running[1]);
    place(&of_bias, bias);
    place(&of_sums, sums);
    const NormTensors tensors = {.x = &x, .mean = &mean, .inverse_deviation = &inverse};
    const NormRunning all = {
        .mean = &of_running[0], .var = &of_running[1], .bias = &of_bias, .epsilon = 1e-5, .momentum = 0.1};
    gpu_check(kernel_batch_norm_sum_statistics(&tensors, &all, &of_sums, NULL));
    gpu_check(cudaDeviceSynchronize());
    float *found[4] = {values_of(&mean), values_of(&inverse), values_of(&of_running[0]),
                       values_of(&of_running[1])};
    for (int c = 0; c < CHANNELS; c++) {
        const double average = (double)sums[c] / ROWS, variance = (3.0 + c) / ROWS;
        assert_true(fabs((double)found[0][c] - average) <= 1e-6);
        assert_true(fabs((double)found[1][c] * sqrt(variance + 1e-5) - 1) <= 1e-5);
        assert_true(fabs((double)found[2][c] - (0.9 * (double)running[0][c] + 0.1 * (average + 2))) <= 1e-5);
        assert_true(fabs((double)found[3][c] -
                         (0.9 * (double)running[1][c] + 0.1 * variance * ROWS / (ROWS - 1))) <= 1e-5);
    }
    void *const memories[6] = {mean.data,          inverse.data, of_running[0].data,
                               of_running[1].data, of_bias.data, of_sums.data};
    for (int i = 0; i < 4; i++)
        free(found[i]);
    for (int i = 0; i < 6; i++)
        gpu_check(cudaFree(memories[i]));
}

TEST(test_what_does_not_fit_is_refused)
{
    Operands o;
    const Case c = {1, 8, 8, 16, 3, ELEMENT_F16, OP_RELU, 0},
               gelu = {1, 8, 8, 16, 3, ELEMENT_F16, OP_GELU, 0};
    make_operands(&c, &o);
    const NormTensors tensors = tensors_of(&o);
    const NormActivation relu = {OP_RELU, 0};
    const NormPooled pooled = {&o.y, &o.extreme, &o.index};
    const PoolShape pools[] = {
        {3, 1, 1, false}, {3, 2, 0, false}, {2, 2, 1, false}, {5, 2, 2, false}, {3, 2, 1, true}};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        assert_int_equal(kernel_norm_pool(&tensors, &relu, &pools[i], &pooled, NULL), cudaErrorNotSupported);
        assert_int_equal(kernel_norm_pool_backward(&o.g, &o.index, &tensors, &o.v[DWEIGHT], &o.v[DBIAS],
                                                   &pools[i], &o.dx, NULL),
                         cudaErrorNotSupported);
    }
    assert_int_equal(run_forward(&gelu, &o), cudaErrorNotSupported);
    DeviceTensor small[3] = {o.y, o.extreme, o.index};
    const PoolShape pool = pool_of(&c);
    for (int i = 0; i < 3; i++) {
        small[i].shape[1]--;
        const NormPooled too_small = {i == 0 ? &small[0] : &o.y, i == 1 ? &small[1] : &o.extreme,
                                      i == 2 ? &small[2] : &o.index};
        assert_int_equal(kernel_norm_pool(&tensors, &relu, &pool, &too_small, NULL), cudaErrorNotSupported);
    }
    free_operands(&o);
}
