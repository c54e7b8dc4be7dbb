/* The data gradient of a 1 x 1 convolution with the sums of the norm in front of it (pointwise_gradient.cu)
 * against the same in float64 on the CPU, for all instances, with and without whole tiles and with one and
 * several tiles for each of the kernel's teams. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise_gradient.h"

enum { GUARD = 512 }; /* elements after a result */
static const uint16_t poison = 0x7E7E, mark = 0x5A5A;

/* ---- narrow numbers ---- */

/* Returns the digits after the leading one. */
static int digits_of(ElementType element)
{
    return element == ELEMENT_BF16 ? 7 : 10;
}

/* ---- a case ---- */

typedef enum Place { OWN, OF_DY2, OF_Y } Place; /* where g lies */

typedef struct Case {
    int rows, from, channels;
    ElementType element;
    bool has_dy2, has_y;
    OpKind op;
    float slope;
    Place place;
} Case;

/* A narrow matrix on both sides. */
typedef struct Matrix {
    DeviceTensor tensor;
    uint16_t *bits;
    float *values;
} Matrix;

static Matrix make_matrix(const Case *c, Random *random, int rows, int channels, float scale, bool filter)
{
    const size_t count = (size_t)rows * (size_t)channels;
    Matrix m = {.bits = malloc((count + GUARD) * sizeof *m.bits), .values = malloc(count * sizeof *m.values)};
    assert_non_null(m.bits);
    assert_non_null(m.values);
    for (size_t i = 0; i < count; i++) {
        const float value = scale * random_normal(random);
        m.bits[i] = narrow_bits(c->element, fabsf(value) < 1e-3F ? 0 : value);
        m.values[i] = narrow_value(c->element, m.bits[i]);
    }
    for (size_t i = count; i < count + GUARD; i++)
        m.bits[i] = mark;
    m.tensor = (DeviceTensor){.data = gpu_copy_of(m.bits, (count + GUARD) * sizeof *m.bits),
                              .element = c->element,
                              .rank = 4,
                              .shape = {rows, 1, 1, channels},
                              .pitch = channels,
                              .rows = rows,
                              .is_filter = filter};
    return m;
}

static void free_matrix(Matrix *m)
{
    (void)cudaFree(m->tensor.data);
    free(m->bits);
    free(m->values);
}

typedef struct Vector {
    DeviceTensor tensor;
    float *values;
} Vector;

static Vector make_vector(Random *random, int channels, float middle, float around)
{
    Vector v = {.values = malloc((size_t)channels * sizeof *v.values)};
    assert_non_null(v.values);
    for (int i = 0; i < channels; i++)
        v.values[i] = middle + around * (2 * random_uniform(random) - 1);
    v.tensor = (DeviceTensor){.data = gpu_copy_of(v.values, (size_t)channels * sizeof *v.values),
                              .element = ELEMENT_F32,
                              .rank = 1,
                              .shape = {channels},
                              .pitch = channels,
                              .rows = 1};
    return v;
}

static void free_vector(Vector *v)
{
    (void)cudaFree(v->tensor.data);
    free(v->values);
}

enum { WEIGHT, BIAS, MEAN, INVERSE, DWEIGHT, DBIAS, ZERO, VECTORS };
enum { DY, FILTER, X, DY2, Y, G, MATRICES };

typedef struct Operands {
    Matrix m[MATRICES];
    Vector v[VECTORS];
} Operands;

static void make_operands(const Case *c, Operands *o)
{
    Random random;
    random_start(&random, (uint64_t)c->rows, (uint64_t)c->from << 32 | (uint64_t)c->channels);
    o->m[DY] = make_matrix(c, &random, c->rows, c->from, 1, false);
    o->m[FILTER] = make_matrix(c, &random, c->from, c->channels, 1 / sqrtf((float)c->from), true);
    for (int i = X; i < MATRICES; i++)
        o->m[i] = make_matrix(c, &random, c->rows, c->channels, 1, false);
    o->v[WEIGHT] = make_vector(&random, c->channels, 0, 1.5F);
    o->v[BIAS] = make_vector(&random, c->channels, 0, 0.5F);
    o->v[MEAN] = make_vector(&random, c->channels, 0, 1);
    o->v[INVERSE] = make_vector(&random, c->channels, 1, 0.5F);
    for (int i = DWEIGHT; i < VECTORS; i++)
        o->v[i] = make_vector(&random, c->channels, 1e6F, 1);
    const size_t count = (size_t)c->rows * (size_t)c->channels;
    for (size_t i = 0; i < count; i++)
        o->m[G].bits[i] = poison;
    gpu_check(
        cudaMemcpy(o->m[G].tensor.data, o->m[G].bits, count * sizeof *o->m[G].bits, cudaMemcpyHostToDevice));
}

static const DeviceTensor *place_of_g(const Case *c, const Operands *o)
{
    return &o->m[c->place == OF_DY2 ? DY2 : c->place == OF_Y ? Y : G].tensor;
}

/* signs: of y, read in place of it; or NULL. */
static cudaError_t run(const Case *c, const Operands *o, const DeviceTensor *signs, void *scratch)
{
    const NormTensors tensors = {.x = &o->m[X].tensor,
                                 .weight = &o->v[WEIGHT].tensor,
                                 .bias = &o->v[BIAS].tensor,
                                 .mean = &o->v[MEAN].tensor,
                                 .inverse_deviation = &o->v[INVERSE].tensor,
                                 .signs = signs};
    const NormActivation activation = {c->op, c->slope};
    const NormGradient gradient = {.dy2 = c->has_dy2 ? &o->m[DY2].tensor : NULL,
                                   .y = c->has_y && !signs ? &o->m[Y].tensor : NULL,
                                   .g = place_of_g(c, o),
                                   .dweight = &o->v[DWEIGHT].tensor,
                                   .dbias = &o->v[DBIAS].tensor,
                                   .zero = &o->v[ZERO].tensor,
                                   .batch_statistics = true};
    return kernel_pointwise_gradient(&o->m[DY].tensor, &o->m[FILTER].tensor, &gradient, &tensors, &activation,
                                     scratch, NULL);
}

/* Computes d of a row, and of how large terms. */
static void products_of(const Case *c, const Operands *o, int row, double *d, double *terms)
{
    for (int n = 0; n < c->channels; n++)
        d[n] = terms[n] = 0;
    for (int k = 0; k < c->from; k++) {
        const double dy = (double)o->m[DY].values[(size_t)row * (size_t)c->from + (size_t)k];
        const float *weights = o->m[FILTER].values + (size_t)k * (size_t)c->channels;
        for (int n = 0; n < c->channels; n++) {
            const double product = dy * (double)weights[n];
            d[n] += product;
            terms[n] += fabs(product);
        }
    }
}

/* Returns whether the activation was on, as affine_of has it. */
static bool is_on(const Case *c, const Operands *o, size_t i, int n)
{
    if (c->op != OP_RELU)
        return true;
    if (c->has_y)
        return o->m[Y].values[i] > 0;
    const float scale = o->v[WEIGHT].values[n] * o->v[INVERSE].values[n];
    const float shift = (float)((double)o->v[BIAS].values[n] - (double)o->v[MEAN].values[n] * (double)scale);
    return fmaf(o->m[X].values[i], scale, shift) > 0;
}

static void fail_at(const Case *c, const char *what, int row, int n, double found, double wanted)
{
    fail_msg("%d x %d -> %d, element %d, dy2 %d, y %d, slope %g, place %d: %s at row %d, channel %d: %.9g, "
             "not %.9g",
             c->rows, c->from, c->channels, c->element, c->has_dy2, c->has_y, (double)c->slope, c->place,
             what, row, n, found, wanted);
}

/* Compares g and the sums. sums: f64 [4, channels]: of g and of g * (x - mean), and how far off they may
 * be. */
static void compare(const Case *c, const Operands *o, const uint16_t *g, double *sums, double *d)
{
    double *terms = d + c->channels;
    const size_t channels = (size_t)c->channels;
    memset(sums, 0, 4 * channels * sizeof *sums);
    for (int row = 0; row < c->rows; row++) {
        products_of(c, o, row, d, terms);
        for (int n = 0; n < c->channels; n++) {
            const size_t i = (size_t)row * channels + (size_t)n, at = (size_t)n;
            const double second = c->has_dy2 ? (double)o->m[DY2].values[i] : 0, v = d[n] + second;
            const double wanted = is_on(c, o, i, n) ? v : (double)c->slope * v, all = terms[n] + fabs(second);
            const double distance = (double)o->m[X].values[i] - (double)o->v[MEAN].values[n];
            const double found = (double)narrow_value(c->element, g[i]);
            const double allowed =
                1.01 * ldexp(fabs(wanted), -digits_of(c->element) - 1) + 2e-6 * all + ldexp(1, -25);
            if (!(fabs(found - wanted) <= allowed))
                fail_at(c, "g", row, n, found, wanted);
            sums[at] += wanted;
            sums[channels + at] += wanted * distance;
            sums[2 * channels + at] += 1e-5 * fabs(wanted) + 1e-6 * all;
            sums[3 * channels + at] += (1e-5 * fabs(wanted) + 1e-6 * all) * fabs(distance);
        }
    }
    const float *dbias = gpu_read(o->v[DBIAS].tensor.data, channels * sizeof *dbias),
                *dweight = gpu_read(o->v[DWEIGHT].tensor.data, channels * sizeof *dweight),
                *zero = gpu_read(o->v[ZERO].tensor.data, channels * sizeof *zero);
    for (int n = 0; n < c->channels; n++) {
        const size_t at = (size_t)n;
        const double inverse = (double)o->v[INVERSE].values[n];
        if (!(fabs((double)dbias[n] - sums[at]) <= sums[2 * channels + at]))
            fail_at(c, "dbias", 0, n, (double)dbias[n], sums[at]);
        if (!(fabs((double)dweight[n] - inverse * sums[channels + at]) <= inverse * sums[3 * channels + at]))
            fail_at(c, "dweight", 0, n, (double)dweight[n], inverse * sums[channels + at]);
        if (zero[n] != 0)
            fail_at(c, "zero", 0, n, (double)zero[n], 0);
    }
    free((void *)dbias);
    free((void *)dweight);
    free((void *)zero);
}

/* Compares what the kernel makes with the signs of y in place of y to g, which it made with y. */
static void try_signs(const Case *c, const Operands *o, void *scratch, const uint16_t *g, size_t bytes)
{
    const size_t count = (size_t)c->rows * (size_t)c->channels;
    unsigned char *bits = calloc(count / 8, 1);
    assert_non_null(bits);
    for (size_t i = 0; i < count; i++)
        bits[i / 8] |= (unsigned char)((o->m[Y].values[i] > 0) << i % 8);
    const DeviceTensor signs = {.data = gpu_copy_of(bits, count / 8),
                                .element = ELEMENT_U8,
                                .rank = 4,
                                .shape = {c->rows, 1, 1, c->channels / 8},
                                .pitch = c->channels / 8,
                                .rows = c->rows};
    gpu_check(cudaMemset(place_of_g(c, o)->data, 0xFF, count * sizeof *g));
    gpu_check(run(c, o, &signs, scratch));
    uint16_t *with_signs = gpu_read(place_of_g(c, o)->data, bytes);
    assert_memory_equal(g, with_signs, bytes);
    free(with_signs);
    free(bits);
    gpu_check(cudaFree(signs.data));
}

/* Runs twice where g is no operand: the same bits. */
static void try(const Case *c)
{
    Operands o;
    void *scratch = NULL;
    make_operands(c, &o);
    const size_t count = (size_t)c->rows * (size_t)c->channels, bytes = (count + GUARD) * sizeof(uint16_t);
    const uint64_t scratch_bytes = kernel_pointwise_gradient_scratch_bytes(&o.m[X].tensor);
    double *sums = malloc(6 * (size_t)c->channels * sizeof *sums);
    assert_non_null(sums);
    gpu_check(cudaMalloc(&scratch, scratch_bytes + GUARD));
    gpu_check(cudaMemset(scratch, 0xFF, scratch_bytes + GUARD));
    if (!kernel_pointwise_gradient_fits(&o.m[DY].tensor, &o.m[FILTER].tensor, &o.m[X].tensor)) {
        printf("left out: %d -> %d channels, too much shared memory\n", c->from, c->channels);
        assert_int_equal(run(c, &o, NULL, scratch), cudaErrorNotSupported);
    } else {
        gpu_check(run(c, &o, NULL, scratch));
        gpu_check(cudaDeviceSynchronize());
        uint16_t *g = gpu_read(place_of_g(c, &o)->data, bytes);
        compare(c, &o, g, sums, sums + 4 * c->channels);
        for (size_t i = count; i < count + GUARD; i++)
            assert_int_equal(g[i], mark);
        unsigned char *after = gpu_read((char *)scratch + scratch_bytes, GUARD);
        for (int i = 0; i < GUARD; i++)
            assert_int_equal(after[i], 0xFF);
        free(after);
        if (c->place == OWN) {
            gpu_check(run(c, &o, NULL, scratch));
            uint16_t *again = gpu_read(place_of_g(c, &o)->data, bytes);
            assert_memory_equal(g, again, bytes);
            free(again);
        }
        if (c->place == OWN && c->has_y)
            try_signs(c, &o, scratch, g, bytes);
        free(g);
    }
    free(sums);
    gpu_check(cudaFree(scratch));
    for (int i = 0; i < MATRICES; i++)
        free_matrix(&o.m[i]);
    for (int i = 0; i < VECTORS; i++)
        free_vector(&o.v[i]);
}

/* Tries both types, all operands, places and activations. */
static void try_shape(int rows, int from, int channels)
{
    static const struct {
        bool has_dy2, has_y;
        OpKind op;
        float slope;
        Place place;
    } kinds[] = {{true, true, OP_RELU, 0, OF_DY2},
                 {true, true, OP_RELU, 0.1F, OF_Y},
                 {true, true, OP_RELU, 0, OWN},
                 {false, true, OP_RELU, 0, OF_Y},
                 {true, false, OP_RELU, 0.1F, OF_DY2},
                 {false, false, OP_RELU, 0, OWN},
                 {false, false, 0, 0, OWN},
                 {true, true, 0, 0, OWN}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            try(&(Case){.rows = rows,
                        .from = from,
                        .channels = channels,
                        .element = bf16 ? ELEMENT_BF16 : ELEMENT_F16,
                        .has_dy2 = kinds[k].has_dy2,
                        .has_y = kinds[k].has_y,
                        .op = kinds[k].op,
                        .slope = kinds[k].slope,
                        .place = kinds[k].place});
}

TEST(test_few_rows)
{
    static const int rows[] = {1, 31, 32, 33, 63, 65, 200};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        try_shape(rows[r], 64, 128);
        try_shape(rows[r], 128, 64);
    }
}

TEST(test_channels)
{
    static const int channels[][2] = {{64, 64},   {64, 256},  {128, 512},  {192, 192}, {256, 64},
                                      {320, 384}, {512, 128}, {256, 1024}, {1024, 128}};
    for (size_t s = 0; s < sizeof channels / sizeof *channels; s++)
        try_shape(333, channels[s][0], channels[s][1]);
}

/* Each team has several tiles. */
TEST(test_many_rows)
{
    static const int shapes[][3] = {{20001, 64, 256}, {4001, 256, 1024}, {1601, 512, 2048}, {52000, 192, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            try(&(Case){.rows = shapes[s][0],
                        .from = shapes[s][1],
                        .channels = shapes[s][2],
                        .element = bf16 ? ELEMENT_BF16 : ELEMENT_F16,
                        .has_dy2 = true,
                        .has_y = true,
                        .op = OP_RELU,
                        .place = bf16 ? OWN : OF_DY2});
}

TEST(test_what_does_not_fit_is_refused)
{
    static const int shapes[][2] = {{32, 64}, {64, 96}, {2048, 512}, {100, 128}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const Case c = {.rows = 40, .from = shapes[s][0], .channels = shapes[s][1], .element = ELEMENT_F16};
        Operands o;
        make_operands(&c, &o);
        assert_false(kernel_pointwise_gradient_fits(&o.m[DY].tensor, &o.m[FILTER].tensor, &o.m[X].tensor));
        assert_int_equal(run(&c, &o, NULL, NULL), cudaErrorNotSupported);
        for (int i = 0; i < MATRICES; i++)
            free_matrix(&o.m[i]);
        for (int i = 0; i < VECTORS; i++)
            free_vector(&o.v[i]);
    }
}
