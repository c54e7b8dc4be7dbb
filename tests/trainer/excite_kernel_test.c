/* The layers of squeeze and excitation in one launch and their gradients in two (excite.cu,
 * excite_weights.cu), each stage against float64 from what the stage before has left: sizes that fill no
 * vector, more images than blocks share, padding, and bits that depend on no other image. Needs a GPU; leaves
 * with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_excite.h"

enum { GUARD_BYTES = 256, MARK = 0xFF };

typedef struct Case {
    int images, channels, hidden;
    OpKind activation;
    ElementType element;
} Case;

/* A matrix on the GPU, and its numbers as they lie there. */
typedef struct Matrix {
    DeviceTensor tensor;
    float *values; /* [rows, pitch] */
} Matrix;

static size_t bytes_of(const Matrix *m)
{
    return (size_t)device_tensor_stored(&m->tensor) * (element_is_narrow(m->tensor.element) ? 2 : 4);
}

/* Makes a matrix of random numbers, or with scale 0 one of marks, which are no numbers, with marks behind
 * it. weight: narrow, its rows are padded as well. */
static Matrix make(ElementType element, int rows, int columns, bool weight, float scale, Random *random)
{
    const bool narrow = element_is_narrow(element);
    const int64_t pitch = narrow ? padded_channels(columns) : columns,
                  stored = narrow && weight ? padded_channels(rows) : rows;
    Matrix m = {
        .tensor = {.element = element, .rank = 2, .shape = {rows, columns}, .pitch = pitch, .rows = stored},
        .values = calloc((size_t)(stored * pitch), sizeof(float))};
    const size_t bytes = bytes_of(&m);
    unsigned char *memory = malloc(bytes + GUARD_BYTES);
    assert_true(m.values && memory);
    memset(memory, MARK, bytes + GUARD_BYTES);
    for (int64_t i = 0; i < stored * pitch && scale > 0; i++) {
        const float drawn = scale * random_normal(random);
        const bool here = i / pitch < rows && i % pitch < columns && fabsf(drawn) > 1e-4F;
        const uint16_t bits = narrow_bits(narrow ? element : ELEMENT_BF16, here ? drawn : 0);
        m.values[i] = !here ? 0 : narrow ? narrow_value(element, bits) : drawn;
        if (narrow)
            memcpy(memory + 2 * i, &bits, sizeof bits);
        else
            memcpy(memory + 4 * i, &m.values[i], sizeof(float));
    }
    m.tensor.data = gpu_copy_of(memory, bytes + GUARD_BYTES);
    free(memory);
    return m;
}

/* Reads the matrix back. Checks that its padding is 0, and that nothing was written behind it. */
static void read_back(const Case *c, Matrix *m, const char *name)
{
    const size_t bytes = bytes_of(m);
    unsigned char *memory = gpu_read(m->tensor.data, bytes + GUARD_BYTES);
    for (int64_t i = 0; i < device_tensor_stored(&m->tensor); i++) {
        uint16_t bits;
        memcpy(&bits, memory + 2 * i, sizeof bits);
        if (element_is_narrow(m->tensor.element))
            m->values[i] = narrow_value(m->tensor.element, bits);
        else
            memcpy(&m->values[i], memory + 4 * i, sizeof(float));
        const bool padding = i / m->tensor.pitch >= m->tensor.shape[0] ||
                             i % m->tensor.pitch >= device_tensor_channels(&m->tensor);
        if (!isfinite(m->values[i]) || (padding && m->values[i] != 0))
            fail_msg("%d x %d, %d hidden, element %d: %s[%lld] is %g", c->images, c->channels, c->hidden,
                     c->element, name, (long long)i, (double)m->values[i]);
    }
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(memory[bytes + i], MARK);
    free(memory);
}

static void free_matrix(Matrix *m)
{
    gpu_check(cudaFree(m->tensor.data));
    free(m->values);
}

static double at(const Matrix *m, int row, int column)
{
    return (double)m->values[row * m->tensor.pitch + column];
}

/* ---- float64 ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double activation(OpKind op, double x)
{
    return op == OP_GELU   ? x * 0.5 * erfc(-x / sqrt(2))
           : op == OP_SILU ? x * sigmoid(x)
           : op == OP_MISH ? x * tanh(log1p(exp(x)))
                           : fmax(x, 0);
}

static double slope(OpKind op, double x)
{
    const double s = sigmoid(x), t = tanh(log1p(exp(x)));
    return op == OP_GELU   ? 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1))
           : op == OP_SILU ? s * (1 + x * (1 - s))
           : op == OP_MISH ? t + x * s * (1 - t * t)
                           : x > 0;
}

/* A sum of products, and of their sizes. */
typedef struct Sum {
    double value, size;
} Sum;

static void add(Sum *sum, double a, double b)
{
    sum->value += a * b;
    sum->size += fabs(a * b);
}

/* Returns how far off a sum in float32 may be that is then rounded `times` to the storage type. */
static double allowed(const Case *c, Sum sum, int times)
{
    const double epsilon = c->element == ELEMENT_BF16  ? ldexp(1, -8)
                           : c->element == ELEMENT_F16 ? ldexp(1, -11)
                                                       : 1e-6;
    return times * epsilon * fabs(sum.value) + 3e-6 * sum.size + 2e-7;
}

static void expect(const Case *c, const char *name, int row, int column, double found, double wanted,
                   double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("%d x %d, %d hidden, op %d, element %d: %s[%d, %d] is %.9g, not %.9g within %.1e", c->images,
                 c->channels, c->hidden, c->activation, c->element, name, row, column, found, wanted,
                 tolerance);
}

/* ---- a case ---- */

typedef struct Tensors {
    Matrix x, weight1, bias1, weight2, bias2, dgates; /* given */
    Matrix gates, sums, hidden, dlogits, dsums, dx;   /* made */
    Matrix dweight1, dbias1, dweight2, dbias2;
} Tensors;

/* Makes what is [images, ..] with rows of marks. */
static void make_results(const Case *c, int images, Tensors *t)
{
    const ElementType e = c->element;
    t->gates = make(ELEMENT_F32, images, c->channels, false, 0, NULL);
    t->sums = make(e, images, c->hidden, false, 0, NULL);
    t->hidden = make(e, images, c->hidden, false, 0, NULL);
    t->dlogits = make(e, images, c->channels, false, 0, NULL);
    t->dsums = make(e, images, c->hidden, false, 0, NULL);
    t->dx = make(e, images, c->channels, false, 0, NULL);
}

static Tensors make_tensors(const Case *c, Random *random)
{
    const ElementType e = c->element;
    const int wide = e == ELEMENT_F32 ? c->channels : (int)padded_channels(c->channels),
              hidden = e == ELEMENT_F32 ? c->hidden : (int)padded_channels(c->hidden);
    Tensors t = {.x = make(e, c->images, c->channels, false, 1, random),
                 .weight1 = make(e, c->hidden, c->channels, true, 1 / sqrtf((float)c->channels), random),
                 .bias1 = make(ELEMENT_F32, 1, c->hidden, false, 0.5F, random),
                 .weight2 = make(e, c->channels, c->hidden, true, 2 / sqrtf((float)c->hidden), random),
                 .bias2 = make(ELEMENT_F32, 1, c->channels, false, 0.5F, random),
                 .dgates = make(ELEMENT_F32, c->images, c->channels, false, 1, random),
                 .dweight1 = make(e, c->hidden, c->channels, true, 0, NULL),
                 .dbias1 = make(ELEMENT_F32, 1, hidden, false, 0, NULL), /* written up to the pitch */
                 .dweight2 = make(e, c->channels, c->hidden, true, 0, NULL),
                 .dbias2 = make(ELEMENT_F32, 1, wide, false, 0, NULL)};
    make_results(c, c->images, &t);
    return t;
}

static void run(const Case *c, const Tensors *t, bool frozen)
{
    const ExciteLayers layers = {&t->weight1.tensor, &t->weight2.tensor, &t->bias1.tensor, &t->bias2.tensor,
                                 c->activation};
    const ExciteGradient gradient = {&t->dgates.tensor,  &t->gates.tensor, &t->sums.tensor,
                                     &t->dlogits.tensor, &t->dsums.tensor, &t->dx.tensor};
    const ExciteWeights weights[2] = {
        {&t->dsums.tensor, &t->x.tensor, frozen ? NULL : &t->dweight1.tensor, &t->dbias1.tensor},
        {&t->dlogits.tensor, &t->hidden.tensor, &t->dweight2.tensor, frozen ? NULL : &t->dbias2.tensor}};
    gpu_check(
        kernel_excite(&t->x.tensor, &layers, &t->gates.tensor, &t->sums.tensor, &t->hidden.tensor, NULL));
    gpu_check(kernel_excite_backward(&gradient, &layers, NULL));
    gpu_check(kernel_excite_weights(weights, NULL));
}

static void check_forward(const Case *c, const Tensors *t)
{
    for (int n = 0; n < c->images; n++) {
        for (int j = 0; j < c->hidden; j++) {
            Sum sum = {0, 0};
            add(&sum, at(&t->bias1, 0, j), 1);
            for (int k = 0; k < c->channels; k++)
                add(&sum, at(&t->x, n, k), at(&t->weight1, j, k));
            expect(c, "sums", n, j, at(&t->sums, n, j), sum.value, allowed(c, sum, 1));
            const double wanted = activation(c->activation, at(&t->sums, n, j));
            expect(c, "hidden", n, j, at(&t->hidden, n, j), wanted,
                   allowed(c, (Sum){wanted, 3 * fabs(wanted)}, 1));
        }
        for (int k = 0; k < c->channels; k++) {
            Sum sum = {0, 0};
            add(&sum, at(&t->bias2, 0, k), 1);
            for (int j = 0; j < c->hidden; j++)
                add(&sum, at(&t->hidden, n, j), at(&t->weight2, k, j));
            /* the sum is rounded; the sigmoid's slope is at most 1 / 4 */
            expect(c, "gates", n, k, at(&t->gates, n, k), sigmoid(sum.value), allowed(c, sum, 1) / 4 + 3e-7);
        }
    }
}

static void check_backward(const Case *c, const Tensors *t)
{
    for (int n = 0; n < c->images; n++) {
        for (int k = 0; k < c->channels; k++) {
            const double gate = at(&t->gates, n, k), wanted = at(&t->dgates, n, k) * gate * (1 - gate);
            expect(c, "dlogits", n, k, at(&t->dlogits, n, k), wanted,
                   allowed(c, (Sum){wanted, fabs(at(&t->dgates, n, k))}, 1));
        }
        for (int j = 0; j < c->hidden; j++) {
            Sum sum = {0, 0};
            const double factor = slope(c->activation, at(&t->sums, n, j));
            for (int k = 0; k < c->channels; k++)
                add(&sum, at(&t->dlogits, n, k), at(&t->weight2, k, j));
            /* the product is rounded, and what comes through the activation; a slope may be near 0 */
            const double tolerance =
                fabs(factor) * allowed(c, sum, 2) + 2e-5 * fabs(sum.value) + allowed(c, (Sum){0, 0}, 0);
            expect(c, "dsums", n, j, at(&t->dsums, n, j), sum.value * factor, tolerance);
        }
        for (int k = 0; k < c->channels; k++) {
            Sum sum = {0, 0};
            for (int j = 0; j < c->hidden; j++)
                add(&sum, at(&t->dsums, n, j), at(&t->weight1, j, k));
            expect(c, "dx", n, k, at(&t->dx, n, k), sum.value, allowed(c, sum, 1));
        }
    }
}

/* Checks weight = left' right, and bias, the sums of left's columns. */
static void check_layer(const Case *c, const char *name, const Matrix *left, const Matrix *right,
                        const Matrix *weight, const Matrix *bias)
{
    for (int row = 0; row < (int)left->tensor.shape[1]; row++) {
        Sum bias_sum = {0, 0};
        for (int n = 0; n < c->images; n++)
            add(&bias_sum, at(left, n, row), 1);
        expect(c, name, row, -1, at(bias, 0, row), bias_sum.value, allowed(c, bias_sum, 0));
        for (int column = 0; column < (int)right->tensor.shape[1]; column++) {
            Sum sum = {0, 0};
            for (int n = 0; n < c->images; n++)
                add(&sum, at(left, n, row), at(right, n, column));
            expect(c, name, row, column, at(weight, row, column), sum.value, allowed(c, sum, 1));
        }
    }
    for (int64_t row = left->tensor.shape[1]; row < bias->tensor.shape[1]; row++)
        assert_true(bias->values[row] == 0);
}

/* Returns `image` of a matrix, in the same memory. */
static Matrix image_of(const Matrix *m, int image)
{
    Matrix one = *m;
    const size_t each = element_is_narrow(m->tensor.element) ? 2 : 4;
    one.tensor.data = (char *)m->tensor.data + (size_t)(image * m->tensor.pitch) * each;
    one.tensor.shape[0] = one.tensor.rows = 1;
    return one;
}

static void expect_row(const Case *c, const char *name, Matrix *found, const Matrix *all, int image)
{
    read_back(c, found, name);
    if (memcmp(found->values, all->values + image * all->tensor.pitch,
               (size_t)all->tensor.pitch * sizeof(float)) != 0)
        fail_msg("%d x %d, %d hidden, element %d: %s of image %d alone differs", c->images, c->channels,
                 c->hidden, c->element, name, image);
}

/* Runs an image by itself: that a block has others, or a team of blocks one, moves no bit. */
static void check_alone(const Case *c, const Tensors *all, int image)
{
    Tensors t = *all;
    t.x = image_of(&all->x, image);
    t.dgates = image_of(&all->dgates, image);
    make_results(c, 1, &t);
    t.gates.tensor.pitch = all->gates.tensor.pitch;
    run(c, &t, false);
    expect_row(c, "gates", &t.gates, &all->gates, image);
    expect_row(c, "sums", &t.sums, &all->sums, image);
    expect_row(c, "hidden", &t.hidden, &all->hidden, image);
    expect_row(c, "dlogits", &t.dlogits, &all->dlogits, image);
    expect_row(c, "dsums", &t.dsums, &all->dsums, image);
    expect_row(c, "dx", &t.dx, &all->dx, image);
    for (Matrix *m = &t.gates; m <= &t.dx; m++)
        free_matrix(m);
}

static void read_all(const Case *c, Tensors *t)
{
    static const char *const names[] = {"gates", "sums",     "hidden", "dlogits",  "dsums",
                                        "dx",    "dweight1", "dbias1", "dweight2", "dbias2"};
    Matrix *m = &t->gates;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        read_back(c, m++, names[i]);
}

/* Without the gradients of a weight and a bias that are frozen, the others have the same bits. */
static void check_frozen(const Case *c, const Tensors *t)
{
    Tensors again = *t;
    Matrix *const written[] = {&again.dbias1, &again.dweight2};
    const Matrix *const before[] = {&t->dbias1, &t->dweight2};
    for (int i = 0; i < 2; i++) {
        written[i]->values = calloc((size_t)device_tensor_stored(&written[i]->tensor), sizeof(float));
        assert_non_null(written[i]->values);
        gpu_check(cudaMemset(written[i]->tensor.data, MARK, bytes_of(written[i])));
    }
    run(c, &again, true);
    for (int i = 0; i < 2; i++) {
        read_back(c, written[i], "a gradient beside a frozen one");
        assert_memory_equal(written[i]->values, before[i]->values,
                            (size_t)device_tensor_stored(&written[i]->tensor) * sizeof(float));
        free(written[i]->values);
    }
}

static void try(const Case *c)
{
    Random random;
    random_start(&random, (uint64_t)c->images, (uint64_t)c->channels);
    Tensors t = make_tensors(c, &random);
    run(c, &t, false);
    read_all(c, &t);
    check_forward(c, &t);
    check_backward(c, &t);
    check_layer(c, "dweight1", &t.dsums, &t.x, &t.dweight1, &t.dbias1);
    check_layer(c, "dweight2", &t.dlogits, &t.hidden, &t.dweight2, &t.dbias2);
    check_frozen(c, &t);
    check_alone(c, &t, c->images - 1);
    check_alone(c, &t, c->images / 2);
    for (Matrix *m = &t.x; m <= &t.dbias2; m++)
        free_matrix(m);
}

TEST(test_each_stage_is_right_to_the_rounding_of_its_type)
{
    static const int sizes[][3] = {{1, 64, 4},     {3, 100, 12},   {5, 27, 3},      {7, 256, 16},
                                   {32, 512, 32},  {33, 1024, 64}, {32, 2048, 128}, {130, 72, 8},
                                   {300, 256, 16}, {257, 512, 40}, {2, 2050, 130},  {2, 8192, 256}};
    static const OpKind ops[] = {OP_RELU, OP_GELU, OP_SILU, OP_MISH};
    static const ElementType elements[] = {ELEMENT_F32, ELEMENT_BF16, ELEMENT_F16};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t e = 0; e < 3; e++)
            for (size_t o = 0; o < 4; o++)
                if (s < 4 || o == (s + e) % 4)
                    try(&(Case){.images = sizes[s][0],
                                .channels = sizes[s][1],
                                .hidden = sizes[s][2],
                                .activation = ops[o],
                                .element = elements[e]});
}
