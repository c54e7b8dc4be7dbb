/* Convolutions of few channels and their gradients (direct.cu, direct_weight.cu) against sums in double
 * precision, with zeros and with the mirrored image around them; the same bits twice. Needs a GPU; leaves
 * with 77 where there is none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "tests/trainer/narrow_image.h"
#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"

enum { PLACES = 3000, WEIGHT_PLACES = 300 };
static const float slope = 0.2F;

typedef struct Shape {
    int64_t samples, height, width, in, out;
    Direct direct;
} Shape;

#define CONVOLUTION(kernel_, stride_, padding_, reflects_)                                                   \
    {                                                                                                        \
        .kernel = (kernel_), .stride = (stride_), .padding = (padding_), .reflects = (reflects_)             \
    }

/* conv8's eight layers and nafnet's first and last; each edge of the kernel with both strides; a tile of one
 * image and of several, images of many tiles, of a pixel's width, of less than a product; one to four chunks
 * of channels; more chunks than warps have pairs for; one pixel; bytes of two and four channels; windows of
 * one channel in one image, in several and in a part, with a padding of 2, with a column that none meets. */
static const Shape shapes[] = {
    {301, 28, 28, 1, 3, CONVOLUTION(3, 2, 1, true)},   {301, 14, 14, 3, 3, CONVOLUTION(3, 1, 1, true)},
    {301, 14, 14, 3, 8, CONVOLUTION(3, 2, 1, true)},   {301, 7, 7, 8, 8, CONVOLUTION(3, 1, 1, true)},
    {301, 7, 7, 8, 16, CONVOLUTION(3, 2, 1, true)},    {2050, 4, 4, 16, 16, CONVOLUTION(3, 1, 1, true)},
    {301, 4, 4, 16, 32, CONVOLUTION(3, 2, 1, true)},   {2050, 2, 2, 32, 32, CONVOLUTION(3, 1, 1, true)},
    {2, 256, 200, 3, 32, CONVOLUTION(3, 1, 1, false)}, {2, 200, 256, 32, 3, CONVOLUTION(3, 1, 1, false)},
    {3, 9, 33, 20, 24, CONVOLUTION(3, 2, 1, false)},   {3, 130, 70, 24, 12, CONVOLUTION(3, 2, 1, false)},
    {5, 1, 40, 8, 8, CONVOLUTION(1, 1, 0, false)},     {5, 31, 30, 8, 32, CONVOLUTION(1, 2, 0, false)},
    {2, 40, 1, 16, 8, CONVOLUTION(2, 1, 1, false)},    {4, 15, 16, 16, 16, CONVOLUTION(2, 2, 0, false)},
    {3, 90, 61, 9, 17, CONVOLUTION(4, 2, 1, false)},   {3, 20, 20, 32, 16, CONVOLUTION(4, 1, 2, false)},
    {3, 40, 40, 8, 8, CONVOLUTION(5, 1, 2, false)},    {3, 41, 39, 16, 8, CONVOLUTION(5, 2, 2, true)},
    {700, 5, 6, 8, 16, CONVOLUTION(5, 1, 2, true)},    {1, 12, 13, 32, 32, CONVOLUTION(3, 1, 1, true)},
    {530, 32, 32, 3, 16, CONVOLUTION(3, 1, 1, false)}, {9, 33, 32, 32, 32, CONVOLUTION(3, 2, 1, false)},
    {3, 65, 66, 32, 32, CONVOLUTION(3, 1, 0, false)},  {1, 3, 3, 8, 8, CONVOLUTION(3, 1, 0, false)},
    {3, 8, 8, 32, 32, CONVOLUTION(5, 1, 2, true)},     {3, 8, 9, 32, 32, CONVOLUTION(5, 2, 2, false)},
    {3, 1, 1, 2, 8, CONVOLUTION(3, 1, 1, false)},      {5, 20, 20, 4, 8, CONVOLUTION(3, 2, 1, false)},
    {2, 90, 300, 1, 32, CONVOLUTION(3, 1, 1, false)},  {700, 9, 8, 1, 16, CONVOLUTION(3, 2, 0, false)},
    {3, 12, 17, 1, 12, CONVOLUTION(3, 1, 2, true)},    {1, 1, 1, 1, 8, CONVOLUTION(3, 2, 1, false)},
    {5, 14, 14, 1, 20, CONVOLUTION(3, 2, 1, true)},
};

typedef enum Operand { X, WEIGHT, Y, OPERANDS } Operand;

typedef struct Call {
    const Shape *shape;
    const NarrowImage *images[OPERANDS];
    DeviceTensor bias; /* data NULL: none */
    const float *biases;
    const DeviceTensor *sums; /* or NULL */
    void *scratch;
} Call;

static double number(const Call *call, Operand operand, int64_t n, int64_t row, int64_t column, int64_t c)
{
    return narrow_image_at(call->images[operand], call->images[operand]->bits, n, row, column, c);
}

/* Returns the position of x that position h, counted from the first pixel, shows; below 0: none. */
static int64_t shown(const Call *call, int64_t h, int64_t count)
{
    if (h >= 0 && h < count)
        return h;
    return !call->shape->direct.reflects ? -1 : h < 0 ? -h : 2 * (count - 1) - h;
}

static ProductSums sum_forward(const void *context, int64_t n, int64_t row, int64_t column, int64_t o)
{
    const Call *call = context;
    const Direct *d = &call->shape->direct;
    ProductSums sums = {0, 0};
    if (call->bias.data)
        product_sums_add(&sums, (double)call->biases[o]);
    for (int64_t i = 0; i < d->kernel; i++)
        for (int64_t j = 0; j < d->kernel; j++) {
            const int64_t h = shown(call, row * d->stride - d->padding + i, call->shape->height),
                          w = shown(call, column * d->stride - d->padding + j, call->shape->width);
            for (int64_t c = 0; c < call->shape->in; c++)
                product_sums_add(&sums, number(call, X, n, h, w, c) * number(call, WEIGHT, o, i, j, c));
        }
    if (call->bias.data && sums.sum < 0)
        sums.sum *= (double)slope;
    return sums;
}

/* Adds up the taps that meet a pixel of x which lies at (h, w), maybe outside. */
static ProductSums sum_met(const Call *call, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const Direct *d = &call->shape->direct;
    ProductSums sums = {0, 0};
    for (int64_t i = 0; i < d->kernel; i++)
        for (int64_t j = 0; j < d->kernel; j++) {
            const int64_t row = h + d->padding - i, column = w + d->padding - j;
            if (row < 0 || column < 0 || row % d->stride != 0 || column % d->stride != 0)
                continue;
            for (int64_t o = 0; o < call->shape->out; o++)
                product_sums_add(&sums, number(call, Y, n, row / d->stride, column / d->stride, o) *
                                            number(call, WEIGHT, o, i, j, c));
        }
    return sums;
}

static ProductSums sum_data(const void *context, int64_t n, int64_t row, int64_t column, int64_t c)
{
    const Call *call = context;
    const int64_t padding = call->shape->direct.padding, height = call->shape->height,
                  width = call->shape->width;
    ProductSums sums = {0, 0};
    if (!call->shape->direct.reflects)
        return sum_met(call, n, row, column, c);
    for (int64_t h = -padding; h < height + padding; h++)
        for (int64_t w = -padding; w < width + padding; w++)
            if (shown(call, h, height) == row && shown(call, w, width) == column) {
                const ProductSums met = sum_met(call, n, h, w, c);
                sums.sum += met.sum;
                /* each is rounded to 16 bits before they are added: compare allows for 1e-5 of their sizes */
                const int digits = call->images[X]->tensor.element == ELEMENT_BF16 ? 8 : 11;
                sums.sizes += met.sizes + fabs(met.sum) * ldexp(1, -digits) / 1e-5;
            }
    return sums;
}

static ProductSums sum_weight(const void *context, int64_t o, int64_t i, int64_t j, int64_t c)
{
    const Call *call = context;
    const Direct *d = &call->shape->direct;
    const int64_t *shape = call->images[Y]->tensor.shape;
    ProductSums sums = {0, 0};
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t row = 0; row < shape[1]; row++)
            for (int64_t column = 0; column < shape[2]; column++)
                product_sums_add(
                    &sums,
                    number(call, Y, n, row, column, o) *
                        number(call, X, n, shown(call, row * d->stride - d->padding + i, call->shape->height),
                               shown(call, column * d->stride - d->padding + j, call->shape->width), c));
    return sums;
}

static cudaError_t run_forward(const void *context)
{
    const Call *call = context;
    return kernel_direct(&call->images[X]->tensor, &call->images[WEIGHT]->tensor,
                         call->bias.data ? &call->bias : NULL, call->bias.data ? slope : 1,
                         &call->shape->direct, &call->images[Y]->tensor, call->sums, call->scratch, NULL);
}

static cudaError_t run_data(const void *context)
{
    const Call *call = context;
    return kernel_direct_backward_data(&call->images[Y]->tensor, &call->images[WEIGHT]->tensor,
                                       &call->shape->direct, &call->images[X]->tensor, NULL);
}

static cudaError_t run_weight(const void *context)
{
    const Call *call = context;
    return kernel_direct_backward_weight(&call->images[Y]->tensor, &call->images[X]->tensor,
                                         &call->shape->direct, &call->images[WEIGHT]->tensor, call->scratch,
                                         NULL);
}

typedef enum Kind { FORWARD, WITH_BIAS_AND_SUMS, DATA_GRADIENT, WEIGHT_GRADIENT } Kind;

/* Computes y with a bias, an activation, and the sums of y. numbers: what the sums are of: the call, or where
 * it reads bytes another one with their numbers. */
static void try_with_bias(const char *what, Call *call, Call *numbers, Random *random)
{
    const NarrowImage *y = call->images[Y];
    float biases[DIRECT_CHANNELS_MAX] = {0};
    for (int64_t o = 0; o < y->tensor.shape[3]; o++)
        biases[o] = random_normal(random);
    const DeviceTensor sums = narrow_image_moments(y);
    call->biases = biases;
    call->bias = (DeviceTensor){.data = gpu_copy_of(biases, sizeof biases), .element = ELEMENT_F32};
    call->sums = &sums;
    numbers->biases = call->biases;
    numbers->bias = call->bias;
    call->scratch = gpu_filled(
        kernel_direct_sums_scratch_bytes(&call->images[X]->tensor, &y->tensor, &call->shape->direct) / 2,
        0xFFFF);
    narrow_image_run_twice(run_forward, call, y);
    narrow_image_compare(what, y, sum_forward, numbers, PLACES, random);
    narrow_image_compare_moments(what, y, &sums);
    gpu_check(cudaFree(call->bias.data));
    gpu_check(cudaFree(sums.data));
    gpu_check(cudaFree(call->scratch));
}

/* Makes x, y and the weights of a shape in images. */
static void make_operands(NarrowImage images[OPERANDS], const Shape *s, ElementType element, Random *random)
{
    const Direct *d = &s->direct;
    const int64_t of_x[] = {s->samples, s->height, s->width, s->in},
                  of_y[] = {s->samples, (s->height + 2 * d->padding - d->kernel) / d->stride + 1,
                            (s->width + 2 * d->padding - d->kernel) / d->stride + 1, s->out},
                  of_weight[] = {s->out, d->kernel, d->kernel, s->in};
    images[X] = narrow_image_make(element, of_x, s->samples, 1, random);
    images[Y] = narrow_image_make(element, of_y, s->samples, 1, random);
    images[WEIGHT] = narrow_image_make(element, of_weight, padded_channels(s->out), 0.3, random);
}

static void free_operands(NarrowImage images[OPERANDS])
{
    for (int i = 0; i < OPERANDS; i++)
        narrow_image_free(&images[i]);
}

/* Writes what is computed of a shape to what[160]. */
static void describe(char *what, const char *name, const Shape *s)
{
    const Direct *d = &s->direct;
    (void)snprintf(
        what, 160, "%s of %lld x %lld x %lld, %lld to %lld, kernel %lld, stride %lld, padding %lld%s", name,
        (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->in, (long long)s->out,
        (long long)d->kernel, (long long)d->stride, (long long)d->padding, d->reflects ? ", mirrored" : "");
}

static void try(const Shape *s, ElementType element, Kind kind)
{
    static const char *const names[] = {"y", "y with bias", "dx", "dweight"};
    const Direct *d = &s->direct;
    Random random;
    random_start(&random, (uint64_t)s->in, (uint64_t)s->out);
    NarrowImage images[OPERANDS];
    make_operands(images, s, element, &random);
    const NarrowImage *x = &images[X], *weight = &images[WEIGHT], *y = &images[Y];
    Call call = {.shape = s, .images = {x, weight, y}};
    char what[160];
    describe(what, names[kind], s);
    if (!kernel_direct_fits(&x->tensor, &weight->tensor, &y->tensor, d))
        fail_msg("%s does not fit", what);
    if (kind == FORWARD) {
        narrow_image_run_twice(run_forward, &call, y);
        narrow_image_compare(what, y, sum_forward, &call, PLACES, &random);
    } else if (kind == WITH_BIAS_AND_SUMS) {
        try_with_bias(what, &call, &call, &random);
    } else if (kind == DATA_GRADIENT) {
        narrow_image_run_twice(run_data, &call, x);
        narrow_image_compare(what, x, sum_data, &call, PLACES, &random);
    } else {
        call.scratch = gpu_filled(kernel_direct_scratch_bytes(&y->tensor, &x->tensor, d) / 2, 0xFFFF);
        narrow_image_run_twice(run_weight, &call, weight);
        narrow_image_compare(what, weight, sum_weight, &call, WEIGHT_PLACES, &random);
        gpu_check(cudaFree(call.scratch));
    }
    free_operands(images);
}

static void try_all(Kind kind)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        try(&shapes[i], ELEMENT_F16, kind);
        try(&shapes[i], ELEMENT_BF16, kind);
    }
}

TEST(test_convolutions_are_the_sums)
{
    try_all(FORWARD);
}

TEST(test_bias_activation_and_sums_are_added)
{
    try_all(WITH_BIAS_AND_SUMS);
}

TEST(test_data_gradients_are_the_sums)
{
    try_all(DATA_GRADIENT);
}

TEST(test_weight_gradients_are_the_sums)
{
    try_all(WEIGHT_GRADIENT);
}

/* Compares dweight and y, of bytes, with the sums of the numbers that x has on the GPU; y with a bias, an
 * activation and sums, too. */
static void try_windows(NarrowImage images[OPERANDS], const Shape *s, const DeviceTensor *pixels,
                        Random *random)
{
    NarrowImage numbers = images[X], bytes = {.tensor = *pixels},
                dweight = narrow_image_make(numbers.tensor.element, images[WEIGHT].tensor.shape,
                                            padded_channels(s->out), 1, random);
    char what[160];
    numbers.bits = gpu_read(numbers.tensor.data, narrow_image_bytes(&numbers.tensor));
    Call sums = {.shape = s, .images = {&numbers, &images[WEIGHT], &images[Y]}},
         call = {.shape = s, .images = {&bytes, &dweight, &images[Y]}};
    call.scratch = gpu_filled(kernel_direct_scratch_bytes(&images[Y].tensor, pixels, &s->direct) / 2, 0xFFFF);
    narrow_image_run_twice(run_weight, &call, &dweight);
    describe(what, "dweight of bytes", s);
    narrow_image_compare(what, &dweight, sum_weight, &sums, WEIGHT_PLACES, random);
    gpu_check(cudaFree(call.scratch));
    call.images[WEIGHT] = &images[WEIGHT];
    narrow_image_run_twice(run_forward, &call, &images[Y]);
    describe(what, "y of bytes", s);
    narrow_image_compare(what, &images[Y], sum_forward, &sums, PLACES, random);
    describe(what, "y of bytes with bias", s);
    try_with_bias(what, &call, &sums, random);
    narrow_image_free(&dweight);
    free(numbers.bits);
}

/* Computes dweight and y of bytes, and of the numbers that x has on the GPU, and expects the same bits. */
static void expect_same_bits(NarrowImage images[OPERANDS], const Shape *s, const DeviceTensor *pixels,
                             Random *random)
{
    const NarrowImage *x = &images[X], *weight = &images[WEIGHT], *y = &images[Y];
    void *scratch = gpu_filled(kernel_direct_scratch_bytes(&y->tensor, pixels, &s->direct) / 2, 0xFFFF);
    uint16_t *found[4];
    for (int i = 0; i < 2; i++) { /* the weights' gradient first: y is what it reads */
        NarrowImage dweight =
            narrow_image_make(x->tensor.element, weight->tensor.shape, padded_channels(s->out), 1, random);
        gpu_check(kernel_direct_backward_weight(&y->tensor, i ? &x->tensor : pixels, &s->direct,
                                                &dweight.tensor, scratch, NULL));
        found[i] = gpu_read(dweight.tensor.data, narrow_image_bytes(&dweight.tensor));
        narrow_image_free(&dweight);
    }
    for (int i = 0; i < 2; i++) {
        gpu_check(kernel_direct(i ? &x->tensor : pixels, &weight->tensor, NULL, 1, &s->direct, &y->tensor,
                                NULL, NULL, NULL));
        found[2 + i] = gpu_read(y->tensor.data, narrow_image_bytes(&y->tensor));
    }
    assert_memory_equal(found[0], found[1], narrow_image_bytes(&weight->tensor));
    assert_memory_equal(found[2], found[3], narrow_image_bytes(&y->tensor));
    for (int i = 0; i < 4; i++)
        free(found[i]);
    gpu_check(cudaFree(scratch));
}

/* Compares what is made of bytes with what is made of the numbers that they become; of windows, whose
 * products are added up in another order, with the sums. */
static void try_bytes(const Shape *s, ElementType element)
{
    static const float mean[] = {120, 100.5F, 7, 255}, deviation[] = {60, 50, 70.25F, 1};
    Shape of_bytes = *s;
    of_bytes.direct.mean = mean;
    of_bytes.direct.deviation = deviation;
    Random random;
    random_start(&random, (uint64_t)s->in, (uint64_t)s->height);
    NarrowImage images[OPERANDS];
    make_operands(images, s, element, &random);
    const NarrowImage *x = &images[X], *weight = &images[WEIGHT], *y = &images[Y];
    const size_t count = (size_t)(s->samples * s->height * s->width * s->in);
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)random_below(&random, 256);
    DeviceTensor pixels = x->tensor;
    pixels.data = gpu_copy_of(bytes, count);
    pixels.element = ELEMENT_U8;
    pixels.pitch = s->in;
    gpu_check(kernel_normalize(&pixels, mean, deviation, &x->tensor, NULL));
    assert_int_equal(
        kernel_direct_backward_data(&y->tensor, &weight->tensor, &of_bytes.direct, &pixels, NULL),
        cudaErrorNotSupported);
    if (s->in == 1 && s->direct.kernel == 3)
        try_windows(images, &of_bytes, &pixels, &random);
    else
        expect_same_bits(images, &of_bytes, &pixels, &random);
    free(bytes);
    gpu_check(cudaFree(pixels.data));
    free_operands(images);
}

TEST(test_bytes_are_the_numbers_that_they_become)
{
    int tried = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].in <= 4) {
            try_bytes(&shapes[i], ELEMENT_F16);
            try_bytes(&shapes[i], ELEMENT_BF16);
            tried++;
        }
    assert_true(tried > 3);
}

TEST(test_what_does_not_fit_is_refused)
{
    DeviceTensor x = {.element = ELEMENT_F16, .rank = 4, .shape = {1, 8, 8, 8}, .pitch = 8, .rows = 64},
                 weight = {.element = ELEMENT_F16, .rank = 4, .shape = {8, 3, 3, 8}, .pitch = 8, .rows = 72};
    assert_true(kernel_direct_fits(&x, &weight, &x, &(Direct)CONVOLUTION(3, 1, 1, true)));
    assert_false(kernel_direct_fits(&x, &weight, &x, &(Direct)CONVOLUTION(3, 3, 1, false)));
    assert_false(kernel_direct_fits(&x, &weight, &x, &(Direct)CONVOLUTION(3, 1, 8, true)));
    DeviceTensor large = x;
    large.shape[1] = large.shape[2] = 96;
    large.rows = 96 * 96;
    assert_true(kernel_direct_fits(&large, &weight, &large, &(Direct)CONVOLUTION(3, 1, 1, false)));
    assert_false(kernel_direct_fits(&large, &weight, &large, &(Direct)CONVOLUTION(3, 1, 1, true)));
    assert_int_equal(
        kernel_direct_backward_data(&large, &weight, &(Direct)CONVOLUTION(3, 1, 1, true), &large, NULL),
        cudaErrorNotSupported);
    x.element = weight.element = ELEMENT_F32;
    assert_false(kernel_direct_fits(&x, &weight, &x, &(Direct)CONVOLUTION(3, 1, 1, false)));
}
