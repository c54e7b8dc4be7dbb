/* 3 x 3 convolutions and their gradients as products of warp groups (implicit_gemm.cu,
 * implicit_gemm_weight.cu) against sums in double precision, at some places of each tensor and at all its
 * edges; the same bits twice. Needs a GPU; leaves with 77 where there is none. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "tests/trainer/narrow_image.h"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"
#include "trainer/backend/cuda/kernels/kernels_pixel_gemm.h"

enum { SIDE = 3, PLACES = 3000, WEIGHT_PLACES = 200 };

typedef struct Shape {
    int64_t samples, height, width, in, out; /* height and width: of x */
    int64_t padding;
} Shape;

/* Of every kind: one step of 16 channels and many, parts of channels, weights that stay and that do not,
 * by one block and by two, an even number of tiles and an odd one, tiles of one image and of several, edges
 * that a tile crosses. */
static const Shape shapes[] = {
    {1, 8, 8, 8, 8, 1},         {2, 16, 16, 20, 21, 1},     {5, 9, 33, 16, 72, 1},
    {3, 5, 7, 100, 12, 1},      {64, 32, 32, 16, 16, 1},    {64, 32, 32, 61, 66, 1},
    {64, 32, 32, 101, 106, 1},  {64, 16, 16, 151, 156, 1},  {64, 8, 8, 241, 246, 1},
    {64, 8, 8, 286, 286, 1},    {7, 8, 8, 512, 40, 1},      {16, 40, 40, 64, 64, 1},
    {32, 20, 20, 128, 128, 1},  {200, 10, 10, 256, 256, 1}, {3, 17, 56, 130, 70, 1},
    {300, 4, 4, 48, 520, 1},    {1, 300, 200, 24, 24, 1},   {401, 16, 16, 96, 90, 1},
    {399, 16, 16, 100, 100, 1}, {265, 20, 20, 128, 128, 1}, {2, 3, 3, 16, 24, 0},
    {64, 26, 26, 64, 128, 0},   {301, 10, 10, 256, 512, 0}, {5, 9, 34, 40, 72, 0},
    {2, 1, 1, 16, 24, 2},       {33, 14, 23, 72, 40, 2},    {64, 12, 12, 128, 256, 0},
};

/* The two operands of a result. */
typedef struct Operands {
    const NarrowImage *a, *b;
    int64_t padding;
} Operands;

static double first_at(const Operands *operands, int64_t n, int64_t row, int64_t column, int64_t c)
{
    return narrow_image_at(operands->a, operands->a->bits, n, row, column, c);
}

static double second_at(const Operands *operands, int64_t n, int64_t row, int64_t column, int64_t c)
{
    return narrow_image_at(operands->b, operands->b->bits, n, row, column, c);
}

/* Each returns one number of a result: of x and weight, dy and weight, dy and x. */
static ProductSums sum_forward(const void *operands, int64_t n, int64_t row, int64_t column, int64_t o)
{
    const Operands *of = operands;
    ProductSums sums = {0, 0};
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int64_t c = 0; c < of->a->tensor.shape[3]; c++)
                product_sums_add(&sums, first_at(of, n, row + i - of->padding, column + j - of->padding, c) *
                                            second_at(of, o, i, j, c));
    return sums;
}

static ProductSums sum_data(const void *operands, int64_t n, int64_t row, int64_t column, int64_t c)
{
    const Operands *of = operands;
    ProductSums sums = {0, 0};
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int64_t o = 0; o < of->a->tensor.shape[3]; o++)
                product_sums_add(&sums, first_at(of, n, row + of->padding - i, column + of->padding - j, o) *
                                            second_at(of, o, i, j, c));
    return sums;
}

static ProductSums sum_weight(const void *operands, int64_t o, int64_t i, int64_t j, int64_t c)
{
    const Operands *of = operands;
    const int64_t *shape = of->a->tensor.shape;
    ProductSums sums = {0, 0};
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t row = 0; row < shape[1]; row++)
            for (int64_t column = 0; column < shape[2]; column++)
                product_sums_add(&sums,
                                 first_at(of, n, row, column, o) *
                                     second_at(of, n, row + i - of->padding, column + j - of->padding, c));
    return sums;
}

enum { X, WEIGHT, Y, IMAGES };

/* What a kernel gets. sums: those of y and of its squares, or NULL. by_pixels: it is pixel_gemm.cu's. */
typedef struct Call {
    const NarrowImage *images[IMAGES];
    bool by_pixels;
    const DeviceTensor *sums;
    void *scratch;
} Call;

static cudaError_t run_forward(const void *context)
{
    const Call *call = context;
    return (call->by_pixels ? kernel_pixel_gemm : kernel_implicit_gemm)(
        &call->images[X]->tensor, &call->images[WEIGHT]->tensor, &call->images[Y]->tensor, call->sums,
        call->scratch, NULL);
}

static cudaError_t run_data(const void *context)
{
    const Call *call = context;
    return (call->by_pixels ? kernel_pixel_gemm_backward_data : kernel_implicit_gemm_backward_data)(
        &call->images[Y]->tensor, &call->images[WEIGHT]->tensor, &call->images[X]->tensor, NULL);
}

static cudaError_t run_weight(const void *context)
{
    const Call *call = context;
    return (call->by_pixels ? kernel_pixel_gemm_backward_weight : kernel_implicit_gemm_backward_weight)(
        &call->images[Y]->tensor, &call->images[X]->tensor, &call->images[WEIGHT]->tensor, call->scratch,
        NULL);
}

/* Computes y with its sums, and expects the same y as without, and the sums of what it has. */
static void try_sums(const char *what, const Call *call)
{
    const NarrowImage *y = call->images[Y];
    const DeviceTensor *t = &y->tensor;
    uint16_t *alone = gpu_read(t->data, narrow_image_bytes(t));
    const DeviceTensor sums = narrow_image_moments(y);
    Call with_sums = *call;
    with_sums.sums = &sums;
    with_sums.scratch = gpu_filled((call->by_pixels ? kernel_pixel_gemm_sums_scratch_bytes(t)
                                                    : kernel_implicit_gemm_sums_scratch_bytes(t)) /
                                       2,
                                   0xFFFF);
    narrow_image_run_twice(run_forward, &with_sums, y);
    uint16_t *with = gpu_read(t->data, narrow_image_bytes(t));
    assert_memory_equal(with, alone, narrow_image_bytes(t));
    narrow_image_compare_moments(what, y, &sums);
    free(alone);
    free(with);
    gpu_check(cudaFree(sums.data));
    gpu_check(cudaFree(with_sums.scratch));
}

typedef enum Kind { FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT } Kind;

/* Returns whether the kernel of a kind takes the images. */
static bool fits(const Call *call, Kind kind)
{
    const DeviceTensor *x = &call->images[X]->tensor, *weight = &call->images[WEIGHT]->tensor,
                       *y = &call->images[Y]->tensor;
    if (!call->by_pixels)
        return kernel_implicit_gemm_fits(x, weight, y);
    return kind == FORWARD         ? kernel_pixel_gemm_fits(x, weight, y)
           : kind == DATA_GRADIENT ? kernel_pixel_gemm_backward_fits(y, weight, x)
                                   : kernel_pixel_gemm_weight_fits(y, x, weight);
}

static void try(const Shape *s, ElementType element, Kind kind, bool by_pixels)
{
    Random random;
    random_start(&random, (uint64_t)s->in, (uint64_t)s->out);
    const int64_t of_x[] = {s->samples, s->height, s->width, s->in},
                  of_y[] = {s->samples, s->height + 2 * s->padding - 2, s->width + 2 * s->padding - 2,
                            s->out},
                  of_weight[] = {s->out, SIDE, SIDE, s->in};
    NarrowImage x = narrow_image_make(element, of_x, s->samples, 1, &random),
                y = narrow_image_make(element, of_y, s->samples, 1, &random),
                weight = narrow_image_make(element, of_weight, padded_channels(s->out), 0.3, &random);
    Call call = {{&x, &weight, &y}, by_pixels, NULL, NULL};
    char what[120];
    static const char *const names[] = {"y", "dx", "dweight"};
    (void)snprintf(what, sizeof what, "%s of %lld x %lld x %lld, %lld to %lld, padding %lld", names[kind],
                   (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->in,
                   (long long)s->out, (long long)s->padding);
    if (!fits(&call, kind))
        fail_msg("%s does not fit", what);
    if (kind == FORWARD) {
        narrow_image_run_twice(run_forward, &call, &y);
        narrow_image_compare(what, &y, sum_forward, &(Operands){&x, &weight, s->padding}, PLACES, &random);
        try_sums(what, &call);
    } else if (kind == DATA_GRADIENT) {
        narrow_image_run_twice(run_data, &call, &x);
        narrow_image_compare(what, &x, sum_data, &(Operands){&y, &weight, s->padding}, PLACES, &random);
    } else {
        call.scratch = gpu_filled((by_pixels ? kernel_pixel_gemm_weight_scratch_bytes()
                                             : kernel_implicit_gemm_scratch_bytes(&y.tensor, &x.tensor)) /
                                      2,
                                  0xFFFF);
        narrow_image_run_twice(run_weight, &call, &weight);
        narrow_image_compare(what, &weight, sum_weight, &(Operands){&y, &x, s->padding}, WEIGHT_PLACES,
                             &random);
        gpu_check(cudaFree(call.scratch));
    }
    narrow_image_free(&x);
    narrow_image_free(&weight);
    narrow_image_free(&y);
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
        try(&shapes[i], ELEMENT_F16, kind, false);
        try(&shapes[i], ELEMENT_BF16, kind, false);
    }
}

/* By pixels: blocks that share pixels (an even number of parts of the channels), that share weights, and that
 * are alone; one block of images, an odd and an even number of them, the last one full and not, one that has
 * none; all paddings, pixels of one tap alone, as many pixels as there may be. */
static void try_pixels(Kind kind)
{
    static const Shape by_pixels[] = {
        {512, 10, 10, 256, 256, 1}, {512, 5, 5, 512, 512, 1},   {1024, 10, 10, 256, 512, 0},
        {300, 12, 12, 128, 256, 0}, {700, 7, 3, 128, 128, 1},   {255, 6, 5, 384, 128, 2},
        {1, 1, 1, 128, 384, 2},     {513, 16, 16, 128, 128, 1}, {40, 3, 4, 128, 384, 0},
        {768, 8, 8, 241, 246, 1},   {300, 16, 16, 151, 156, 1}, {520, 8, 8, 111, 70, 1},
        {260, 9, 5, 8, 24, 0},      {3, 8, 8, 286, 201, 1},     {300, 12, 12, 64, 128, 1},
        {520, 3, 3, 8, 8, 1},       {40, 8, 8, 40, 8, 1},       {513, 5, 5, 64, 96, 1},
    };
    if (!is_there())
        skip();
    for (size_t i = 0; i < sizeof by_pixels / sizeof *by_pixels; i++) {
        try(&by_pixels[i], ELEMENT_F16, kind, true);
        try(&by_pixels[i], ELEMENT_BF16, kind, true);
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

/* Of one tile a tap and of several, of which some lie in three clusters and more, and others end where a
 * cluster does; images that fill the last step, and that do not; all paddings. */
TEST(test_weight_gradients_by_pixels_are_the_sums)
{
    static const Shape of_weights[] = {
        {512, 10, 10, 256, 256, 1}, {300, 5, 5, 512, 512, 1}, {100, 7, 3, 256, 256, 0},
        {65, 12, 12, 256, 512, 0},  {160, 2, 3, 256, 256, 2}, {128, 6, 6, 768, 256, 1},
        {64, 12, 12, 256, 1792, 0}, /* a cluster has 96 of the 100 steps of a tile */
    };
    if (!is_there())
        skip();
    for (size_t i = 0; i < sizeof of_weights / sizeof *of_weights; i++) {
        try(&of_weights[i], ELEMENT_F16, WEIGHT_GRADIENT, true);
        try(&of_weights[i], ELEMENT_BF16, WEIGHT_GRADIENT, true);
    }
}

TEST(test_convolutions_by_pixels_are_the_sums)
{
    try_pixels(FORWARD);
}

TEST(test_data_gradients_by_pixels_are_the_sums)
{
    try_pixels(DATA_GRADIENT);
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
    DeviceTensor y = x;
    y.shape[1] = 6;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &y)); /* of two paddings */
    y.shape[1] = y.shape[2] = 7;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &y)); /* of half a pixel */
    y.shape[1] = y.shape[2] = 12;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &y));
    x.element = weight.element = ELEMENT_F32;
    assert_false(kernel_implicit_gemm_fits(&x, &weight, &x));
}

/* Returns whether the weight gradient by pixels takes a shape. */
static bool fits_weight(const Shape *s)
{
    const int64_t more = 2 * s->padding - 2, height = s->height + more, width = s->width + more;
    const DeviceTensor x = {.element = ELEMENT_F16,
                            .rank = 4,
                            .shape = {s->samples, s->height, s->width, s->in},
                            .pitch = s->in,
                            .rows = s->samples * s->height * s->width},
                       dy = {.element = ELEMENT_F16,
                             .rank = 4,
                             .shape = {s->samples, height, width, s->out},
                             .pitch = s->out,
                             .rows = s->samples * height * width},
                       dweight = {.element = ELEMENT_F16,
                                  .rank = 4,
                                  .shape = {s->out, SIDE, SIDE, s->in},
                                  .pitch = s->in,
                                  .rows = s->out * SIDE * SIDE};
    return kernel_pixel_gemm_weight_fits(&dy, &x, &dweight);
}

TEST(test_what_does_not_fit_pixels_is_refused)
{
    if (!is_there())
        skip();
    DeviceTensor x = {.element = ELEMENT_F16, .rank = 4, .shape = {1, 16, 16, 8}, .pitch = 8, .rows = 256},
                 y = x,
                 weight = {.element = ELEMENT_F16, .rank = 4, .shape = {8, 3, 3, 8}, .pitch = 8, .rows = 72};
    assert_true(kernel_pixel_gemm_fits(&x, &weight, &y));
    y.shape[1] = y.shape[2] = 18;
    assert_false(kernel_pixel_gemm_fits(&x, &weight, &y)); /* too many pixels */
    assert_int_equal(kernel_pixel_gemm(&x, &weight, &y, NULL, NULL, NULL), cudaErrorNotSupported);
    assert_true(kernel_pixel_gemm_backward_fits(&y, &weight, &x));
    assert_false(kernel_pixel_gemm_backward_fits(&x, &weight, &y));
    assert_int_equal(kernel_pixel_gemm_backward_data(&x, &weight, &y, NULL), cudaErrorNotSupported);
    assert_true(fits_weight(&(Shape){64, 12, 12, 256, 1792, 0}));
    assert_false(fits_weight(&(Shape){64, 12, 12, 256, 2048, 0})); /* three tiles of a cluster */
    assert_false(fits_weight(&(Shape){64, 12, 12, 128, 256, 0}));
    assert_false(fits_weight(&(Shape){1000, 1, 1, 256, 256, 1})); /* taps without pixels */
    assert_false(fits_weight(&(Shape){40, 3, 3, 256, 256, 0}));   /* fewer steps than clusters */
}
