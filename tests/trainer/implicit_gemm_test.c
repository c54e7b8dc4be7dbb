/* 3 x 3 convolutions and their gradients as products of warp groups (implicit_gemm.cu,
 * implicit_gemm_weight.cu) against sums in double precision, at some places of each tensor and at all its
 * edges; the same bits twice. Needs a GPU; leaves with 77 where there is none. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "tests/trainer/narrow_image.h"
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

/* The two operands of a result. */
typedef struct Operands {
    const NarrowImage *a, *b;
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
                product_sums_add(&sums,
                                 first_at(of, n, row + i - 1, column + j - 1, c) * second_at(of, o, i, j, c));
    return sums;
}

static ProductSums sum_data(const void *operands, int64_t n, int64_t row, int64_t column, int64_t c)
{
    const Operands *of = operands;
    ProductSums sums = {0, 0};
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int64_t o = 0; o < of->a->tensor.shape[3]; o++)
                product_sums_add(&sums,
                                 first_at(of, n, row + 1 - i, column + 1 - j, o) * second_at(of, o, i, j, c));
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
                product_sums_add(&sums, first_at(of, n, row, column, o) *
                                            second_at(of, n, row + i - 1, column + j - 1, c));
    return sums;
}

enum { X, WEIGHT, Y, IMAGES };

/* What a kernel gets. sums: those of y and of its squares, or NULL. */
typedef struct Call {
    const NarrowImage *images[IMAGES];
    const DeviceTensor *sums;
    void *scratch;
} Call;

static cudaError_t run_forward(const void *context)
{
    const Call *call = context;
    return kernel_implicit_gemm(&call->images[X]->tensor, &call->images[WEIGHT]->tensor,
                                &call->images[Y]->tensor, call->sums, call->scratch, NULL);
}

static cudaError_t run_data(const void *context)
{
    const Call *call = context;
    return kernel_implicit_gemm_backward_data(&call->images[Y]->tensor, &call->images[WEIGHT]->tensor,
                                              &call->images[X]->tensor, NULL);
}

static cudaError_t run_weight(const void *context)
{
    const Call *call = context;
    return kernel_implicit_gemm_backward_weight(&call->images[Y]->tensor, &call->images[X]->tensor,
                                                &call->images[WEIGHT]->tensor, call->scratch, NULL);
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
    with_sums.scratch = gpu_filled(kernel_implicit_gemm_sums_scratch_bytes(t) / 2, 0xFFFF);
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

static void try(const Shape *s, ElementType element, Kind kind)
{
    Random random;
    random_start(&random, (uint64_t)s->in, (uint64_t)s->out);
    const int64_t of_x[] = {s->samples, s->height, s->width, s->in},
                  of_y[] = {s->samples, s->height, s->width, s->out},
                  of_weight[] = {s->out, SIDE, SIDE, s->in};
    NarrowImage x = narrow_image_make(element, of_x, s->samples, 1, &random),
                y = narrow_image_make(element, of_y, s->samples, 1, &random),
                weight = narrow_image_make(element, of_weight, padded_channels(s->out), 0.3, &random);
    Call call = {{&x, &weight, &y}, NULL, NULL};
    char what[120];
    static const char *const names[] = {"y", "dx", "dweight"};
    (void)snprintf(what, sizeof what, "%s of %lld x %lld x %lld, %lld to %lld", names[kind],
                   (long long)s->samples, (long long)s->height, (long long)s->width, (long long)s->in,
                   (long long)s->out);
    if (!kernel_implicit_gemm_fits(&x.tensor, &weight.tensor, &y.tensor))
        fail_msg("%s does not fit", what);
    if (kind == FORWARD) {
        narrow_image_run_twice(run_forward, &call, &y);
        narrow_image_compare(what, &y, sum_forward, &(Operands){&x, &weight}, PLACES, &random);
        try_sums(what, &call);
    } else if (kind == DATA_GRADIENT) {
        narrow_image_run_twice(run_data, &call, &x);
        narrow_image_compare(what, &x, sum_data, &(Operands){&y, &weight}, PLACES, &random);
    } else {
        call.scratch = gpu_filled(kernel_implicit_gemm_scratch_bytes(&y.tensor, &x.tensor) / 2, 0xFFFF);
        narrow_image_run_twice(run_weight, &call, &weight);
        narrow_image_compare(what, &weight, sum_weight, &(Operands){&y, &x}, WEIGHT_PLACES, &random);
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
