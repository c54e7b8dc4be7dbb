/* 3 x 3 convolutions and their gradients as products of warp groups (implicit_gemm.cu,
 * implicit_gemm_weight.cu) against sums in double precision, at some places of each tensor and at all its
 * edges; the same bits twice. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"

enum { SIDE = 3, PLACES = 3000, WEIGHT_PLACES = 200 };

typedef struct Shape {
    int64_t samples, height, width, in, out;
} Shape;

/* Of every kind: one step of 16 channels and many, parts of channels, weights that stay and that do not,
 * by one block and by two, an even number of tiles and an odd one, tiles of one image and of several, edges
 * that a tile crosses. */
static const Shape shapes[] = {
    {1, 8, 8, 8, 8},        {2, 16, 16, 20, 21},     {5, 9, 33, 16, 72},      {3, 5, 7, 100, 12},
    {64, 32, 32, 16, 16},   {64, 32, 32, 61, 66},    {64, 32, 32, 101, 106},  {64, 16, 16, 151, 156},
    {64, 8, 8, 241, 246},   {64, 8, 8, 286, 286},    {7, 8, 8, 512, 40},      {16, 40, 40, 64, 64},
    {32, 20, 20, 128, 128}, {200, 10, 10, 256, 256}, {3, 17, 56, 130, 70},    {300, 4, 4, 48, 520},
    {1, 300, 200, 24, 24},  {401, 16, 16, 96, 90},   {399, 16, 16, 100, 100}, {265, 20, 20, 128, 128},
};

/* Numbers of a tensor, here and there. */
typedef struct Image {
    DeviceTensor tensor;
    uint16_t *bits;
} Image;

/* Returns a tensor of numbers of that size, with zeros as padding; rows: of the first axis, with its
 * padding. */
static Image make_image(ElementType element, const int64_t shape[4], int64_t rows, double size,
                        Random *random)
{
    const int64_t pitch = padded_channels(shape[3]), inner = shape[1] * shape[2];
    const size_t count = (size_t)(rows * inner * pitch);
    Image image = {.bits = calloc(count, sizeof *image.bits)};
    assert_non_null(image.bits);
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(size * (double)random_normal(random));
        const bool real =
            (int64_t)(i % (size_t)pitch) < shape[3] && (int64_t)(i / (size_t)(inner * pitch)) < shape[0];
        if (real && fabsf(value) > 1e-3F)
            image.bits[i] = narrow_bits(element, value);
    }
    image.tensor = (DeviceTensor){.data = gpu_copy_of(image.bits, count * sizeof *image.bits),
                                  .element = element,
                                  .rank = 4,
                                  .shape = {shape[0], shape[1], shape[2], shape[3]},
                                  .pitch = pitch,
                                  .rows = rows * inner};
    return image;
}

static void free_image(Image *image)
{
    gpu_check(cudaFree(image->tensor.data));
    free(image->bits);
}

static size_t bytes_of(const DeviceTensor *tensor)
{
    return (size_t)device_tensor_stored(tensor) * sizeof(uint16_t);
}

/* Returns the number at these places; 0 outside the image. */
static double at(const Image *image, const uint16_t *bits, int64_t n, int64_t row, int64_t column, int64_t c)
{
    const DeviceTensor *t = &image->tensor;
    if (row < 0 || row >= t->shape[1] || column < 0 || column >= t->shape[2])
        return 0;
    return (double)narrow_value(t->element,
                                bits[((n * t->shape[1] + row) * t->shape[2] + column) * t->pitch + c]);
}

typedef struct Sums {
    double sum, sizes;
} Sums;

static void add(Sums *sums, double product)
{
    sums->sum += product;
    sums->sizes += fabs(product);
}

/* Each returns one number of a result, and the sum of its products' sizes. */
static Sums sum_forward(const Image *x, const Image *weight, int64_t n, int64_t row, int64_t column,
                        int64_t o)
{
    Sums sums = {0, 0};
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int64_t c = 0; c < x->tensor.shape[3]; c++)
                add(&sums,
                    at(x, x->bits, n, row + i - 1, column + j - 1, c) * at(weight, weight->bits, o, i, j, c));
    return sums;
}

static Sums sum_data(const Image *dy, const Image *weight, int64_t n, int64_t row, int64_t column, int64_t c)
{
    Sums sums = {0, 0};
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int64_t o = 0; o < dy->tensor.shape[3]; o++)
                add(&sums, at(dy, dy->bits, n, row + 1 - i, column + 1 - j, o) *
                               at(weight, weight->bits, o, i, j, c));
    return sums;
}

static Sums sum_weight(const Image *dy, const Image *x, int64_t o, int64_t i, int64_t j, int64_t c)
{
    Sums sums = {0, 0};
    const int64_t *shape = dy->tensor.shape;
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t row = 0; row < shape[1]; row++)
            for (int64_t column = 0; column < shape[2]; column++)
                add(&sums,
                    at(dy, dy->bits, n, row, column, o) * at(x, x->bits, n, row + i - 1, column + j - 1, c));
    return sums;
}

typedef Sums SumOne(const Image *a, const Image *b, int64_t n, int64_t row, int64_t column, int64_t channel);

/* Compares a result with the sums at drawn places, the first and the last of each axis more often than
 * others; all of its padding is zeros. */
static void compare(const char *what, const Shape *s, const Image *result, SumOne *sum_one, const Image *a,
                    const Image *b, int places, Random *random)
{
    const DeviceTensor *t = &result->tensor;
    const double epsilon = t->element == ELEMENT_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    uint16_t *found = gpu_read(t->data, bytes_of(t));
    for (int place = 0; place < places; place++) {
        int64_t where[4];
        for (int axis = 0; axis < 4; axis++) {
            const int64_t drawn = (int64_t)random_below(random, (uint32_t)t->shape[axis] + 2) - 1;
            where[axis] = drawn < 0 ? 0 : drawn >= t->shape[axis] ? t->shape[axis] - 1 : drawn;
        }
        const double value = at(result, found, where[0], where[1], where[2], where[3]);
        const Sums wanted = sum_one(a, b, where[0], where[1], where[2], where[3]);
        if (!(fabs(value - wanted.sum) <= epsilon * fabs(wanted.sum) + 1e-5 * wanted.sizes + 1e-6))
            fail_msg(
                "%s of %lld x %lld x %lld, %lld to %lld, element %d, at %lld %lld %lld %lld: %.9g, not %.9g",
                what, (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->in,
                (long long)s->out, t->element, (long long)where[0], (long long)where[1], (long long)where[2],
                (long long)where[3], value, wanted.sum);
    }
    const int64_t inner = t->shape[1] * t->shape[2] * t->pitch;
    for (int64_t i = 0; i < device_tensor_stored(t); i++)
        if ((i % t->pitch >= t->shape[3] || i / inner >= t->shape[0]) && (found[i] & 0x7FFF) != 0)
            fail_msg("%s of %lld to %lld: padding at %lld is not 0", what, (long long)s->in,
                     (long long)s->out, (long long)i);
    free(found);
}

/* Runs a kernel twice, on memory full of NaN, and expects the same bits. */
static void run_twice(cudaError_t (*run)(Image *const *images, void *scratch), Image *const *images,
                      Image *result, void *scratch)
{
    const size_t bytes = bytes_of(&result->tensor);
    gpu_check(cudaMemset(result->tensor.data, 0xFF, bytes));
    gpu_check(run(images, scratch));
    uint16_t *first = gpu_read(result->tensor.data, bytes);
    gpu_check(cudaMemset(result->tensor.data, 0xFF, bytes));
    gpu_check(run(images, scratch));
    uint16_t *second = gpu_read(result->tensor.data, bytes);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
}

enum { X, WEIGHT, Y, IMAGES };

/* The sums of y and of its squares, and scratch for them. */
typedef struct Moments {
    DeviceTensor sums;
    void *scratch;
} Moments;

static cudaError_t run_forward(Image *const *images, void *scratch)
{
    (void)scratch;
    return kernel_implicit_gemm(&images[X]->tensor, &images[WEIGHT]->tensor, &images[Y]->tensor, NULL, NULL,
                                NULL);
}

static cudaError_t run_with_sums(Image *const *images, void *moments)
{
    const Moments *m = moments;
    return kernel_implicit_gemm(&images[X]->tensor, &images[WEIGHT]->tensor, &images[Y]->tensor, &m->sums,
                                m->scratch, NULL);
}

static cudaError_t run_data(Image *const *images, void *scratch)
{
    (void)scratch;
    return kernel_implicit_gemm_backward_data(&images[Y]->tensor, &images[WEIGHT]->tensor, &images[X]->tensor,
                                              NULL);
}

static cudaError_t run_weight(Image *const *images, void *scratch)
{
    return kernel_implicit_gemm_backward_weight(&images[Y]->tensor, &images[X]->tensor,
                                                &images[WEIGHT]->tensor, scratch, NULL);
}

/* Computes y with its sums, and expects the same y as without, and the sums of what it has. */
static void try_sums(const Shape *s, Image *const *images, Image *y)
{
    const DeviceTensor *t = &y->tensor;
    const size_t pitch = (size_t)t->pitch;
    uint16_t *alone = gpu_read(t->data, bytes_of(t));
    Moments moments = {{.data = gpu_filled(4 * pitch, 0xFFFF),
                        .element = ELEMENT_F32,
                        .rank = 2,
                        .shape = {2, t->shape[3]},
                        .pitch = t->pitch,
                        .rows = 2},
                       gpu_filled(kernel_implicit_gemm_sums_scratch_bytes(t) / 2, 0xFFFF)};
    run_twice(run_with_sums, images, y, &moments);
    uint16_t *with = gpu_read(t->data, bytes_of(t));
    float *sums = gpu_read(moments.sums.data, 2 * pitch * sizeof *sums);
    assert_memory_equal(with, alone, bytes_of(t));
    for (size_t c = 0; c < pitch; c++) {
        Sums wanted[2] = {{0, 0}, {0, 0}};
        for (int64_t row = 0; row < t->rows; row++) {
            const double value = (double)narrow_value(t->element, with[(size_t)row * pitch + c]);
            add(&wanted[0], value);
            add(&wanted[1], value * value);
        }
        for (size_t k = 0; k < 2; k++)
            if (!(fabs((double)sums[k * pitch + c] - wanted[k].sum) <= 1e-5 * wanted[k].sizes + 1e-6))
                fail_msg("%lld x %lld x %lld, %lld to %lld: sum %zu of channel %zu is %.9g, not %.9g",
                         (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->in,
                         (long long)s->out, k, c, (double)sums[k * pitch + c], wanted[k].sum);
    }
    free(alone);
    free(with);
    free(sums);
    gpu_check(cudaFree(moments.sums.data));
    gpu_check(cudaFree(moments.scratch));
}

typedef enum Kind { FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT } Kind;

static void try(const Shape *s, ElementType element, Kind kind)
{
    Random random;
    random_start(&random, (uint64_t)s->in, (uint64_t)s->out);
    const int64_t of_x[] = {s->samples, s->height, s->width, s->in},
                  of_y[] = {s->samples, s->height, s->width, s->out},
                  of_weight[] = {s->out, SIDE, SIDE, s->in};
    Image x = make_image(element, of_x, s->samples, 1, &random),
          y = make_image(element, of_y, s->samples, 1, &random),
          weight = make_image(element, of_weight, padded_channels(s->out), 0.3, &random);
    Image *const images[IMAGES] = {&x, &weight, &y};
    if (!kernel_implicit_gemm_fits(&x.tensor, &weight.tensor, &y.tensor))
        fail_msg("%lld to %lld do not fit", (long long)s->in, (long long)s->out);
    if (kind == FORWARD) {
        run_twice(run_forward, images, &y, NULL);
        compare("y", s, &y, sum_forward, &x, &weight, PLACES, &random);
        try_sums(s, images, &y);
    } else if (kind == DATA_GRADIENT) {
        run_twice(run_data, images, &x, NULL);
        compare("dx", s, &x, sum_data, &y, &weight, PLACES, &random);
    } else {
        void *scratch = gpu_filled(kernel_implicit_gemm_scratch_bytes(&y.tensor, &x.tensor) / 2, 0xFFFF);
        run_twice(run_weight, images, &weight, scratch);
        compare("dweight", s, &weight, sum_weight, &y, &x, WEIGHT_PLACES, &random);
        gpu_check(cudaFree(scratch));
    }
    free_image(&x);
    free_image(&weight);
    free_image(&y);
}

/* Skips where the card is no Hopper: the kernels say so themselves. */
static bool is_there(void)
{
    const DeviceTensor x = {.element = ELEMENT_F16, .rank = 4, .shape = {1, 8, 8, 8}, .pitch = 8, .rows = 64},
                       weight = {
                           .element = ELEMENT_F16, .rank = 4, .shape = {8, 3, 3, 8}, .pitch = 8, .rows = 72};
    return kernel_implicit_gemm_fits(&x, &weight, &x);
}

static void try_all(Kind kind)
{
    if (!is_there())
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        try(&shapes[i], ELEMENT_F16, kind);
        try(&shapes[i], ELEMENT_BF16, kind);
    }
}

TEST(test_convolutions_are_the_sums)
{
    try_all(FORWARD);
}

TEST(test_data_gradients_are_the_sums)
{
    try_all(DATA_GRADIENT);
}

TEST(test_weight_gradients_are_the_sums)
{
    try_all(WEIGHT_GRADIENT);
}

TEST(test_what_does_not_fit_is_refused)
{
    if (!is_there())
        skip();
    DeviceTensor x = {.element = ELEMENT_F16, .rank = 4, .shape = {1, 8, 8, 8}, .pitch = 8, .rows = 64},
                 weight = {.element = ELEMENT_F16, .rank = 4, .shape = {8, 5, 5, 8}, .pitch = 8, .rows = 200};
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &x));
    assert_int_equal(kernel_implicit_gemm(&x, &weight, &x, NULL, NULL, NULL), cudaErrorNotSupported);
    weight.shape[1] = weight.shape[2] = SIDE;
    weight.shape[3] = weight.pitch = 16;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &x)); /* of a group */
    weight.shape[3] = weight.pitch = 8;
    x.element = weight.element = ELEMENT_F32;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &x));
}
