/* The weight gradient of a stem, straight from its pool's gradient (stem_gradient.cu): against the sums over
 * all pixels of the dx that norm_pool.cu makes, and nothing written elsewhere. Needs a GPU; leaves with 77
 * where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/stem_case.h"
#include "trainer/backend/cuda/kernels/kernels_norm_pool.h"
#include "trainer/backend/cuda/kernels/kernels_stem_gradient.h"

enum { WEIGHT, MEAN, INVERSE, DWEIGHT, DBIAS, VECTORS };

typedef struct Operands {
    DeviceTensor pixels, x, dx, g, index, filter, v[VECTORS];
    uint8_t *bytes;
    void *scratch;
} Operands;

static void fill_narrow(DeviceTensor *tensor, Random *random)
{
    const size_t count = (size_t)device_tensor_stored(tensor);
    uint16_t *bits = malloc((count + 1) * sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; i < count; i++)
        bits[i] = narrow_bits(tensor->element, (float)((int)random_below(random, 255) - 127) / 32);
    tensor->data = gpu_copy_of(bits, count * sizeof *bits);
    free(bits);
}

static void fill_vectors(Operands *o, Random *random)
{
    float values[CHANNELS];
    for (int v = 0; v < VECTORS; v++) {
        for (int c = 0; c < CHANNELS; c++)
            values[c] = v == INVERSE ? 0.5F + random_uniform(random) : random_normal(random);
        o->v[v] = (DeviceTensor){.data = gpu_copy_of(values, sizeof values),
                                 .element = ELEMENT_F32,
                                 .rank = 1,
                                 .shape = {CHANNELS},
                                 .pitch = CHANNELS,
                                 .rows = 1};
    }
}

/* Fills bytes, and the index with a place of each window that lies in x. */
static void fill_bytes(Operands *o, Random *random)
{
    const size_t count = (size_t)device_tensor_stored(&o->pixels),
                 windows = (size_t)device_tensor_stored(&o->index);
    uint8_t *places = malloc(windows);
    o->bytes = malloc(count);
    assert_true(o->bytes && places);
    for (size_t i = 0; i < count; i++)
        o->bytes[i] = (uint8_t)random_below(random, 256);
    for (size_t i = 0; i < windows; i++) {
        const int64_t pixel = (int64_t)i / CHANNELS, w = pixel % o->index.shape[2],
                      h = pixel / o->index.shape[2] % o->index.shape[1];
        int64_t row, column;
        do {
            places[i] = (uint8_t)random_below(random, 9);
            row = 2 * h - 1 + places[i] / 3;
            column = 2 * w - 1 + places[i] % 3;
        } while (row < 0 || row >= o->x.shape[1] || column < 0 || column >= o->x.shape[2]);
    }
    o->pixels.data = gpu_copy_of(o->bytes, count);
    o->index.data = gpu_copy_of(places, windows);
    free(places);
}

static void make_operands(const Case *c, Operands *o)
{
    Random random;
    const int64_t height = (c->height - 1) / 2 + 1, width = (c->width - 1) / 2 + 1;
    const int64_t out_height = (height - 1) / 2 + 1, out_width = (width - 1) / 2 + 1;
    random_start(&random, (uint64_t)c->height * 1000 + (uint64_t)c->width, (uint64_t)c->channels);
    o->pixels = gpu_image_of(ELEMENT_U8, c->images, c->height, c->width, c->channels);
    o->x = o->dx = gpu_image_of(c->element, c->images, height, width, CHANNELS);
    o->g = gpu_image_of(c->element, c->images, out_height, out_width, CHANNELS);
    o->index = gpu_image_of(ELEMENT_U8, c->images, out_height, out_width, CHANNELS);
    o->filter = gpu_image_of(c->element, CHANNELS, KERNEL, KERNEL, c->channels);
    o->filter.pitch = padded_channels(c->channels);
    o->filter.is_filter = true;
    fill_narrow(&o->x, &random);
    fill_narrow(&o->g, &random);
    o->dx.data = gpu_copy_of(NULL, (size_t)device_tensor_stored(&o->dx) * 2);
    o->filter.data = gpu_filled((size_t)device_tensor_stored(&o->filter) + GUARD, mark);
    o->scratch = gpu_filled((size_t)kernel_stem_gradient_scratch_bytes() / 2 + GUARD, mark);
    fill_bytes(o, &random);
    fill_vectors(o, &random);
}

static void free_operands(Operands *o)
{
    void *const memories[7] = {o->pixels.data, o->x.data,      o->dx.data, o->g.data,
                               o->index.data,  o->filter.data, o->scratch};
    for (int i = 0; i < 7; i++)
        gpu_check(cudaFree(memories[i]));
    for (int v = 0; v < VECTORS; v++)
        gpu_check(cudaFree(o->v[v].data));
    free(o->bytes);
}

static NormTensors norm_of(const Operands *o)
{
    return (NormTensors){
        .x = &o->x, .weight = &o->v[WEIGHT], .mean = &o->v[MEAN], .inverse_deviation = &o->v[INVERSE]};
}

static StemGradient stem_of(const Operands *o)
{
    return (StemGradient){.pixels = &o->pixels,
                          .mean = mean,
                          .deviation = deviation,
                          .norm = norm_of(o),
                          .g = &o->g,
                          .index = &o->index,
                          .dweight = &o->v[DWEIGHT],
                          .dbias = &o->v[DBIAS],
                          .filter = &o->filter};
}

/* Returns dx as norm_pool.cu makes it; the caller frees it. */
static float *gradient_of_x(const Operands *o)
{
    const size_t count = (size_t)device_tensor_stored(&o->dx);
    const NormTensors norm = norm_of(o);
    const PoolShape pool = {3, 2, 1, false};
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    gpu_check(kernel_norm_pool_backward(&o->g, &o->index, &norm, &o->v[DWEIGHT], &o->v[DBIAS], &pool, &o->dx,
                                        NULL));
    gpu_check(cudaDeviceSynchronize());
    uint16_t *bits = gpu_read(o->dx.data, count * sizeof *bits);
    for (size_t i = 0; i < count; i++)
        values[i] = narrow_value(o->dx.element, bits[i]);
    free(bits);
    return values;
}

/* Adds to sums [CHANNELS][TAPS][4] what pixel (h, w) of x in image n gives, and to sizes its size. */
static void add_pixel(const Case *c, const Operands *o, const float *dx, int64_t n, int64_t h, int64_t w,
                      double *sums, double *sizes)
{
    for (int tap = 0; tap < TAPS; tap++)
        for (int i = 0; i < c->channels; i++) {
            const double number = stem_number(c, o->bytes, n, h, w, tap, i);
            for (int channel = 0; channel < CHANNELS; channel++) {
                sums[(channel * TAPS + tap) * 4 + i] += (double)dx[channel] * number;
                sizes[(channel * TAPS + tap) * 4 + i] += fabs((double)dx[channel] * number);
            }
        }
}

static void check(const Case *c, const Operands *o, const float *dx)
{
    const size_t count = (size_t)CHANNELS * TAPS * 4, stored = (size_t)device_tensor_stored(&o->filter),
                 scratch = (size_t)kernel_stem_gradient_scratch_bytes() / 2;
    const double rounding = c->element == ELEMENT_BF16 ? 4e-3 : 5e-4;
    double *sums = calloc(count, sizeof *sums), *sizes = calloc(count, sizeof *sizes);
    uint16_t *found = gpu_read(o->filter.data, (stored + GUARD) * 2),
             *behind = gpu_read((uint16_t *)o->scratch + scratch, GUARD * sizeof *behind);
    assert_true(sums && sizes);
    for (int64_t i = 0; i < o->x.rows; i++)
        add_pixel(c, o, dx + i * CHANNELS, i / o->x.shape[2] / o->x.shape[1],
                  i / o->x.shape[2] % o->x.shape[1], i % o->x.shape[2], sums, sizes);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(found[stored + i] == mark && behind[i] == mark);
    for (size_t i = 0; i < stored; i++) {
        const size_t channel = i % (size_t)o->filter.pitch, at = i / (size_t)o->filter.pitch * 4 + channel;
        const bool is_number = channel < (size_t)c->channels;
        const double wanted = is_number ? sums[at] : 0, value = (double)narrow_value(c->element, found[i]);
        /* 4e-8: half of what small numbers of f16 are apart, and some */
        if (!(fabs(value - wanted) <= fabs(wanted) * rounding + (is_number ? 4e-8 + 1e-6 * sizes[at] : 0)))
            fail_msg("%d x %d x %d x %d, element %d: filter %zu, tap %zu, channel %zu: %g, not %g", c->images,
                     c->height, c->width, c->channels, c->element, at / 4 / TAPS, at / 4 % TAPS, channel,
                     value, wanted);
    }
    free(sums);
    free(sizes);
    free(found);
    free(behind);
}

/* Computes the gradient, with other numbers where it goes and NaN in the scratch memory before. stages: of
 * products of warps; 0: as the card does it. */
static void run(int stages, const Operands *o)
{
    const StemGradient stem = stem_of(o);
    gpu_check(cudaMemset(o->filter.data, 0x5A, (size_t)device_tensor_stored(&o->filter) * 2));
    gpu_check(cudaMemset(o->scratch, 0xFF, (size_t)kernel_stem_gradient_scratch_bytes()));
    gpu_check(stages ? kernel_stem_gradient_by_warps(&stem, stages, o->scratch, NULL)
                     : kernel_stem_gradient(&stem, o->scratch, NULL));
    gpu_check(cudaDeviceSynchronize());
}

/* The last three have several tiles for each block: 300 and 900, of a few pixels each, and 400. */
TEST(test_gradients_of_stems)
{
    static const int shapes[][4] = {{1, 7, 9, 3},   {1, 32, 32, 3},  {2, 33, 34, 1},
                                    {3, 64, 40, 4}, {2, 75, 134, 1}, {5, 70, 66, 3},
                                    {300, 7, 9, 3}, {900, 5, 6, 3},  {16, 130, 131, 2}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const Case c = {shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3],
                            bf16 ? ELEMENT_BF16 : ELEMENT_F16};
            Operands o;
            make_operands(&c, &o);
            float *dx = gradient_of_x(&o);
            for (int stages = 0; stages <= 2; stages++) {
                run(stages, &o);
                check(&c, &o, dx);
            }
            free(dx);
            free_operands(&o);
        }
}

TEST(test_the_same_gradient_twice)
{
    const Case c = {40, 96, 96, 3, ELEMENT_F16};
    Operands o;
    make_operands(&c, &o);
    const size_t bytes = (size_t)device_tensor_stored(&o.filter) * 2;
    for (int stages = 0; stages <= 2; stages++) {
        run(stages, &o);
        void *first = gpu_read(o.filter.data, bytes);
        run(stages, &o);
        void *second = gpu_read(o.filter.data, bytes);
        assert_memory_equal(first, second, bytes);
        free(first);
        free(second);
    }
    free_operands(&o);
}

TEST(test_other_shapes_are_refused)
{
    const Case c = {1, 32, 32, 3, ELEMENT_F16};
    Operands o;
    make_operands(&c, &o);
    DeviceTensor changed[7] = {o.pixels, o.x, o.g, o.filter, o.index, o.pixels, o.filter};
    changed[0].shape[1] += 2;
    changed[1].element = ELEMENT_F32;
    changed[2].shape[2]--;
    changed[3].shape[1] = 5;
    changed[4].shape[0]++;
    changed[5].pitch++;
    changed[6].shape[3]--;
    for (int i = 0; i < 7; i++) {
        StemGradient stem = stem_of(&o);
        stem.pixels = i == 0 || i == 5 ? &changed[i] : stem.pixels;
        stem.norm.x = i == 1 ? &changed[1] : stem.norm.x;
        stem.g = i == 2 ? &changed[2] : stem.g;
        stem.filter = i == 3 || i == 6 ? &changed[i] : stem.filter;
        stem.index = i == 4 ? &changed[4] : stem.index;
        assert_int_equal(kernel_stem_gradient(&stem, o.scratch, NULL), cudaErrorNotSupported);
    }
    free_operands(&o);
}
