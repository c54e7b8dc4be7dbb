/* Gradients of norms whose second part has every second row and column (strided_rows.cuh): the bits that they
 * have of the same part with zeros between, in all instances, and nothing written elsewhere. Needs a GPU;
 * leaves with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise_gradient.h"

enum { GUARD = 512 }; /* elements after a result */
static const uint16_t mark = 0x5A5A;

typedef enum GateOf { OF_X, OF_Y, OF_SIGNS } GateOf;

typedef struct Case {
    int images, height, width, channels;
    int from;    /* channels of the dy of a convolution of 1 x 1 behind the norm; 0: there is none */
    int sampled; /* images that the statistics are of; 0: all */
    ElementType element;
    GateOf gate;
    OpKind op;
} Case;

enum { DY, FILTER, X, Y, PART, WHOLE, G, DX, MATRICES }; /* PART, WHOLE: dy2, without zeros and with */
enum { WEIGHT, BIAS, MEAN, INVERSE, DWEIGHT, DBIAS, ZERO, VECTORS };

typedef struct Operands {
    DeviceTensor m[MATRICES], v[VECTORS], signs;
    void *scratch;
} Operands;

static DeviceTensor image_of(ElementType element, int64_t n, int64_t h, int64_t w, int64_t channels)
{
    return (DeviceTensor){.element = element,
                          .rank = 4,
                          .shape = {n, h, w, channels},
                          .pitch = padded_channels(channels),
                          .rows = n * h * w};
}

/* Returns random numbers, zeros where channels are padded, and marks behind. random: NULL: marks alone. */
static uint16_t *numbers_for(const DeviceTensor *tensor, Random *random)
{
    const size_t count = (size_t)device_tensor_stored(tensor);
    uint16_t *bits = malloc((count + GUARD) * sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; i < count + GUARD; i++)
        bits[i] = mark;
    if (!random)
        return bits;
    uint16_t some[1 << 12];
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const float value = random_normal(random);
        some[i] = fabsf(value) < 1e-3F ? 0 : narrow_bits(tensor->element, value);
    }
    for (size_t i = 0; i < count; i++) {
        const bool is_number = (int64_t)i % tensor->pitch < device_tensor_channels(tensor);
        bits[i] = is_number ? some[(uint32_t)(i * 2654435761U) >> 20] : 0;
    }
    return bits;
}

static void upload(DeviceTensor *tensor, const uint16_t *bits)
{
    tensor->data = gpu_copy_of(bits, ((size_t)device_tensor_stored(tensor) + GUARD) * sizeof *bits);
}

/* Puts the pixels of the part among zeros. */
static void spread(const Case *c, const DeviceTensor *part, const uint16_t *bits, uint16_t *whole)
{
    const int64_t pitch = part->pitch;
    for (int64_t n = 0; n < c->images; n++)
        for (int64_t h = 0; h < c->height; h++)
            for (int64_t w = 0; w < c->width; w++, whole += pitch)
                if (h % 2 || w % 2)
                    memset(whole, 0, (size_t)pitch * sizeof *whole);
                else
                    memcpy(whole, bits + ((n * part->shape[1] + h / 2) * part->shape[2] + w / 2) * pitch,
                           (size_t)pitch * sizeof *whole);
}

static void make_second_parts(const Case *c, Operands *o, Random *random)
{
    uint16_t *part = numbers_for(&o->m[PART], random), *whole = numbers_for(&o->m[WHOLE], NULL);
    spread(c, &o->m[PART], part, whole);
    upload(&o->m[PART], part);
    upload(&o->m[WHOLE], whole);
    free(part);
    free(whole);
}

static void make_signs(const Case *c, Operands *o, const uint16_t *y)
{
    const size_t count = (size_t)device_tensor_stored(&o->m[Y]);
    unsigned char *bits = calloc(count / 8 + 1, 1);
    assert_non_null(bits);
    for (size_t i = 0; i < count; i++)
        bits[i / 8] |= (unsigned char)((narrow_value(c->element, y[i]) > 0) << i % 8);
    o->signs = image_of(ELEMENT_U8, c->images, c->height, c->width, c->channels / 8);
    o->signs.pitch = c->channels / 8;
    o->signs.data = gpu_copy_of(bits, count / 8);
    free(bits);
}

static void make_vectors(const Case *c, Operands *o, Random *random)
{
    const size_t pitch = (size_t)padded_channels(c->channels);
    float *values = calloc(pitch, sizeof *values);
    assert_non_null(values);
    for (int v = 0; v < VECTORS; v++) {
        for (int i = 0; i < c->channels; i++)
            values[i] = (v == INVERSE ? 1.0F : 0.0F) + random_uniform(random) - 0.5F;
        o->v[v] = (DeviceTensor){.data = gpu_copy_of(values, pitch * sizeof *values),
                                 .element = ELEMENT_F32,
                                 .rank = 1,
                                 .shape = {c->channels},
                                 .pitch = (int64_t)pitch,
                                 .rows = 1};
    }
    free(values);
}

static void make_operands(const Case *c, Operands *o)
{
    Random random;
    random_start(&random, (uint64_t)c->images * (uint64_t)c->height * (uint64_t)c->width,
                 (uint64_t)c->channels);
    const DeviceTensor whole = image_of(c->element, c->images, c->height, c->width, c->channels);
    for (int i = 0; i < MATRICES; i++)
        o->m[i] = whole;
    o->m[PART] = image_of(c->element, c->images, (c->height + 1) / 2, (c->width + 1) / 2, c->channels);
    if (c->from) {
        o->m[DY] = image_of(c->element, c->images, c->height, c->width, c->from);
        o->m[FILTER] = image_of(c->element, c->from, 1, 1, c->channels);
        o->m[FILTER].is_filter = true;
    }
    for (int i = 0; i < MATRICES; i++) {
        if (i == PART || i == WHOLE)
            continue;
        uint16_t *bits = numbers_for(&o->m[i], &random);
        upload(&o->m[i], bits);
        if (i == Y)
            make_signs(c, o, bits);
        free(bits);
    }
    make_second_parts(c, o, &random);
    make_vectors(c, o, &random);
    uint64_t scratch_bytes = kernel_column_scratch_bytes(&whole);
    if (c->from && kernel_pointwise_gradient_scratch_bytes(&whole) > scratch_bytes)
        scratch_bytes = kernel_pointwise_gradient_scratch_bytes(&whole);
    o->scratch = gpu_copy_of(NULL, scratch_bytes);
}

static void free_operands(Operands *o)
{
    for (int i = 0; i < MATRICES; i++)
        gpu_check(cudaFree(o->m[i].data));
    for (int i = 0; i < VECTORS; i++)
        gpu_check(cudaFree(o->v[i].data));
    gpu_check(cudaFree(o->signs.data));
    gpu_check(cudaFree(o->scratch));
}

static cudaError_t run(const Case *c, const Operands *o, const DeviceTensor *dy2)
{
    const NormTensors tensors = {.x = &o->m[X],
                                 .weight = &o->v[WEIGHT],
                                 .bias = &o->v[BIAS],
                                 .mean = &o->v[MEAN],
                                 .inverse_deviation = &o->v[INVERSE],
                                 .signs = c->gate == OF_SIGNS ? &o->signs : NULL};
    const NormActivation activation = {c->op, 0};
    const NormGradient gradient = {.dy = c->from ? NULL : &o->m[DY],
                                   .dy2 = dy2,
                                   .y = c->gate == OF_Y ? &o->m[Y] : NULL,
                                   .dx = c->from ? NULL : &o->m[DX],
                                   .g = &o->m[G],
                                   .dweight = &o->v[DWEIGHT],
                                   .dbias = &o->v[DBIAS],
                                   .zero = &o->v[ZERO],
                                   .batch_statistics = true,
                                   .sampled_rows = (int64_t)c->sampled * c->height * c->width};
    return c->from ? kernel_pointwise_gradient(&o->m[DY], &o->m[FILTER], &gradient, &tensors, &activation,
                                               o->scratch, NULL)
                   : kernel_batch_norm_backward(&gradient, &tensors, &activation, o->scratch, NULL);
}

/* What a run has written, with what lies behind it. */
typedef struct Results {
    uint16_t *g, *dx;
    float *sums[2];
} Results;

static Results results_of(const Case *c, const Operands *o, const DeviceTensor *dy2)
{
    const size_t bytes = (size_t)device_tensor_stored(&o->m[G]) * sizeof(uint16_t),
                 guarded = bytes + GUARD * sizeof(uint16_t),
                 sum_bytes = (size_t)o->v[DBIAS].pitch * sizeof(float);
    gpu_check(cudaMemset(o->m[G].data, 0xFF, bytes));
    gpu_check(cudaMemset(o->m[DX].data, 0xFF, bytes));
    gpu_check(cudaMemset(o->v[DBIAS].data, 0xFF, sum_bytes));
    gpu_check(cudaMemset(o->v[DWEIGHT].data, 0xFF, sum_bytes));
    gpu_check(run(c, o, dy2));
    gpu_check(cudaDeviceSynchronize());
    return (Results){gpu_read(o->m[G].data, guarded),
                     gpu_read(o->m[DX].data, guarded),
                     {gpu_read(o->v[DBIAS].data, sum_bytes), gpu_read(o->v[DWEIGHT].data, sum_bytes)}};
}

static void free_results(Results *results)
{
    free(results->g);
    free(results->dx);
    free(results->sums[0]);
    free(results->sums[1]);
}

static void compare(const Case *c, const Operands *o, const Results *found, const Results *wanted)
{
    const size_t count = (size_t)device_tensor_stored(&o->m[G]), sum_count = (size_t)o->v[DBIAS].pitch;
    for (size_t i = 0; i < count + GUARD; i++)
        if (found->g[i] != wanted->g[i] || found->dx[i] != wanted->dx[i])
            fail_msg("%d x %d x %d x %d, from %d, sampled %d, gate %d, op %d: element %zu: g %04x, not %04x; "
                     "dx %04x, not %04x",
                     c->images, c->height, c->width, c->channels, c->from, c->sampled, c->gate, c->op, i,
                     found->g[i], wanted->g[i], found->dx[i], wanted->dx[i]);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(found->g[count + i] == mark && found->dx[count + i] == mark);
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sum_count; i++)
            if (!(found->sums[s][i] == wanted->sums[s][i])) /* NaN is what nobody wrote */
                fail_msg(
                    "%d x %d x %d x %d, from %d, sampled %d, gate %d, op %d: sum %d of channel %zu: %.9g, "
                    "not %.9g",
                    c->images, c->height, c->width, c->channels, c->from, c->sampled, c->gate, c->op, s, i,
                    (double)found->sums[s][i], (double)wanted->sums[s][i]);
}

/* Tries both types, all gates, with and without the activation. */
static void try_shape(int images, int height, int width, int channels, int from, int sampled)
{
    for (int kind = 0; kind < 8; kind++) {
        const Case c = {.images = images,
                        .height = height,
                        .width = width,
                        .channels = channels,
                        .from = from,
                        .sampled = sampled,
                        .element = kind % 2 ? ELEMENT_BF16 : ELEMENT_F16,
                        .gate = kind / 2 == 1   ? OF_Y
                                : kind / 2 == 2 ? OF_SIGNS
                                                : OF_X,
                        .op = kind / 2 == 3 ? 0 : OP_RELU};
        Operands o;
        if (c.gate == OF_SIGNS && channels % 8)
            continue;
        make_operands(&c, &o);
        if (from && !kernel_pointwise_gradient_fits(&o.m[DY], &o.m[FILTER], &o.m[X])) {
            print_message("left out: %d -> %d channels, too much shared memory\n", from, channels);
            assert_int_equal(run(&c, &o, &o.m[PART]), cudaErrorNotSupported);
        } else {
            Results wanted = results_of(&c, &o, &o.m[WHOLE]), found = results_of(&c, &o, &o.m[PART]);
            compare(&c, &o, &found, &wanted);
            free_results(&wanted);
            free_results(&found);
        }
        free_operands(&o);
    }
}

/* In one launch. */
TEST(test_norms_of_small_images)
{
    static const int shapes[][4] = {{1, 2, 2, 8},    {1, 1, 9, 8},      {2, 5, 7, 64},
                                    {3, 4, 4, 24},   {3, 9, 1, 12},     {5, 6, 3, 20},
                                    {8, 10, 10, 96}, {40, 16, 16, 256}, {7, 13, 14, 31}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        try_shape(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], 0, 0);
}

/* Above 28 MiB. */
TEST(test_norms_of_large_images)
{
    try_shape(64, 61, 60, 64, 0, 0);
    try_shape(90, 40, 40, 100, 0, 0);
    try_shape(33, 15, 31, 1024, 0, 0);
}

TEST(test_norms_with_statistics_of_some_images)
{
    try_shape(8, 9, 8, 64, 0, 2);
    try_shape(64, 61, 60, 64, 0, 8);
}

TEST(test_data_gradients_joined_with_norms)
{
    static const int shapes[][5] = {{1, 2, 1, 64, 64},      {1, 1, 2, 128, 64},   {3, 5, 7, 128, 64},
                                    {2, 8, 8, 256, 128},    {9, 14, 13, 64, 128}, {11, 20, 20, 512, 256},
                                    {70, 40, 40, 256, 128}, {60, 29, 31, 64, 192}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        try_shape(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], shapes[s][4], 0);
}

/* Asserts that norms of two images of 8 x 8 x 64 refuse a second gradient of this shape. from, op: of Case.
 */
static void refuse(int from, OpKind op, const DeviceTensor *shape)
{
    const Case c = {.images = 2,
                    .height = 8,
                    .width = 8,
                    .channels = 64,
                    .from = from,
                    .element = ELEMENT_F16,
                    .gate = OF_X,
                    .op = op};
    Operands o;
    make_operands(&c, &o);
    DeviceTensor part = *shape;
    part.data = o.m[WHOLE].data;
    assert_int_equal(run(&c, &o, &part), cudaErrorNotSupported);
    free_operands(&o);
}

TEST(test_what_does_not_fit_is_refused)
{
    static const int shapes[][4] = {
        {2, 3, 4, 64}, {2, 4, 3, 64}, {1, 4, 4, 64}, {2, 4, 4, 56}, {2, 4, 8, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int from = 0; from <= 64; from += 64) {
            const DeviceTensor shape =
                image_of(ELEMENT_F16, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
            refuse(from, OP_RELU, &shape);
        }
    const DeviceTensor part = image_of(ELEMENT_F16, 2, 4, 4, 64);
    refuse(0, OP_GELU, &part);
}
