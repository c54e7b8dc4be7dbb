/* A stem's convolution straight from bytes (stem_forward.cu): against sums in double precision of numbers
 * that need no rounding, with the sums over pixels, and nothing written elsewhere. Needs Hopper; leaves with
 * 77 where there is no GPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/stem_case.h"
#include "trainer/backend/cuda/kernels/kernels_stem.h"

typedef struct Operands {
    DeviceTensor pixels, weight, y, sums;
    uint8_t *bytes;
    uint16_t *filter;
    void *scratch;
} Operands;

static bool is_hopper(void)
{
    int major = 0, minor = 0;
    gpu_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    gpu_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return major == 9 && minor == 0;
}

static void make_operands(const Case *c, Operands *o)
{
    Random random;
    random_start(&random, (uint64_t)c->height * 1000 + (uint64_t)c->width, (uint64_t)c->channels);
    o->pixels = gpu_image_of(ELEMENT_U8, c->images, c->height, c->width, c->channels);
    o->y = gpu_image_of(c->element, c->images, (c->height - 1) / 2 + 1, (c->width - 1) / 2 + 1, CHANNELS);
    o->weight = gpu_image_of(c->element, CHANNELS, KERNEL, KERNEL, c->channels);
    o->weight.pitch = padded_channels(c->channels);
    o->weight.is_filter = true;
    o->sums = (DeviceTensor){
        .element = ELEMENT_F32, .rank = 2, .shape = {2, CHANNELS}, .pitch = CHANNELS, .rows = 2};
    const size_t bytes = (size_t)device_tensor_stored(&o->pixels),
                 numbers = (size_t)device_tensor_stored(&o->weight);
    o->bytes = malloc(bytes);
    o->filter = calloc(numbers, sizeof *o->filter);
    assert_true(o->bytes && o->filter);
    for (size_t i = 0; i < bytes; i++)
        o->bytes[i] = (uint8_t)random_below(&random, 256);
    for (size_t i = 0; i < numbers; i++)
        if (i % (size_t)o->weight.pitch < (size_t)c->channels)
            o->filter[i] = narrow_bits(c->element, (float)((int)random_below(&random, 255) - 127) / 32);
    o->pixels.data = gpu_copy_of(o->bytes, bytes);
    o->weight.data = gpu_copy_of(o->filter, numbers * sizeof *o->filter);
    o->y.data = gpu_filled((size_t)device_tensor_stored(&o->y) + GUARD, mark);
    o->sums.data = gpu_filled(2 * CHANNELS * 2 + GUARD, mark);
    o->scratch = gpu_filled((size_t)kernel_stem_scratch_bytes() / 2 + GUARD, mark);
}

static void free_operands(Operands *o)
{
    void *const memories[] = {o->pixels.data, o->weight.data, o->y.data, o->sums.data, o->scratch};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        gpu_check(cudaFree(memories[i]));
    free(o->bytes);
    free(o->filter);
}

static Stem stem_of(const Operands *o, bool summed)
{
    return (Stem){.pixels = &o->pixels,
                  .mean = mean,
                  .deviation = deviation,
                  .weight = &o->weight,
                  .y = &o->y,
                  .sums = summed ? &o->sums : NULL};
}

/* Returns what y has for a channel of a pixel, and adds the sizes of its terms to *size. */
static double result_at(const Case *c, const Operands *o, int64_t n, int64_t h, int64_t w, int64_t channel,
                        double *size)
{
    double sum = 0;
    for (int tap = 0; tap < TAPS; tap++)
        for (int i = 0; i < c->channels; i++) {
            const double term =
                stem_number(c, o->bytes, n, h, w, tap, i) *
                (double)narrow_value(c->element, o->filter[(channel * TAPS + tap) * o->weight.pitch + i]);
            sum += term;
            *size += fabs(term);
        }
    return sum;
}

static void check(const Case *c, const Operands *o, bool summed)
{
    const size_t stored = (size_t)device_tensor_stored(&o->y),
                 scratch = (size_t)kernel_stem_scratch_bytes() / 2;
    const double rounding = c->element == ELEMENT_BF16 ? 4e-3 : 5e-4;
    double sums[2][CHANNELS] = {{0}}, sizes[2][CHANNELS] = {{0}};
    uint16_t *found = gpu_read(o->y.data, (stored + GUARD) * 2),
             *behind = gpu_read((uint16_t *)o->scratch + scratch, GUARD * sizeof *behind),
             *behind_sums = gpu_read((uint16_t *)o->sums.data + 2 * CHANNELS * 2, GUARD * sizeof *behind);
    float *found_sums = gpu_read(o->sums.data, 2 * CHANNELS * sizeof *found_sums);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(found[stored + i] == mark && behind[i] == mark && behind_sums[i] == mark);
    for (size_t i = 0; i < stored; i++) {
        const int64_t pixel = (int64_t)i / CHANNELS, w = pixel % o->y.shape[2],
                      h = pixel / o->y.shape[2] % o->y.shape[1], n = pixel / o->y.shape[2] / o->y.shape[1];
        double size = 0;
        const double wanted = result_at(c, o, n, h, w, (int64_t)i % CHANNELS, &size),
                     value = (double)narrow_value(c->element, found[i]);
        if (!(fabs(value - wanted) <= fabs(wanted) * rounding + 1e-6 * size + 4e-8))
            fail_msg("%d x %d x %d x %d, element %d: image %d, row %d, column %d, channel %d: %g, not %g",
                     c->images, c->height, c->width, c->channels, c->element, (int)n, (int)h, (int)w,
                     (int)(i % CHANNELS), value, wanted);
        sums[0][i % CHANNELS] += value;
        sums[1][i % CHANNELS] += value * value;
        sizes[0][i % CHANNELS] += fabs(value);
        sizes[1][i % CHANNELS] += value * value;
    }
    for (int s = 0; s < 2 * CHANNELS && summed; s++)
        assert_true(fabs((double)found_sums[s] - sums[s / CHANNELS][s % CHANNELS]) <=
                    1e-5 * sizes[s / CHANNELS][s % CHANNELS]);
    free(found);
    free(behind);
    free(behind_sums);
    free(found_sums);
}

/* The last three have several tiles for each block: 300 and 900, of a few pixels each, and 400. */
TEST(test_results_of_stems)
{
    if (!is_hopper())
        skip();
    static const int shapes[][4] = {{1, 7, 9, 3},   {1, 32, 32, 3},  {2, 33, 34, 1},
                                    {3, 64, 40, 4}, {2, 75, 134, 1}, {5, 70, 66, 3},
                                    {300, 7, 9, 3}, {900, 5, 6, 2},  {16, 130, 131, 3}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int way = 0; way < 4; way++) {
            const Case c = {shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3],
                            way % 2 ? ELEMENT_BF16 : ELEMENT_F16};
            Operands o;
            make_operands(&c, &o);
            const Stem stem = stem_of(&o, way / 2);
            assert_true(kernel_stem_fits(&stem));
            gpu_check(cudaMemset(o.scratch, 0xFF, (size_t)kernel_stem_scratch_bytes())); /* NaN */
            gpu_check(kernel_stem(&stem, o.scratch, NULL));
            gpu_check(cudaDeviceSynchronize());
            check(&c, &o, way / 2);
            free_operands(&o);
        }
}

/* The same bits twice: deterministic runs take this kernel, too. */
TEST(test_the_same_result_twice)
{
    const Case c = {40, 96, 96, 3, ELEMENT_F16};
    Operands o;
    if (!is_hopper())
        skip();
    make_operands(&c, &o);
    const Stem stem = stem_of(&o, true);
    const size_t bytes = (size_t)device_tensor_stored(&o.y) * 2, of_sums = 2 * CHANNELS * sizeof(float);
    void *y[2], *sums[2];
    for (int time = 0; time < 2; time++) {
        gpu_check(cudaMemset(o.scratch, time ? 0xFF : 0x5A, (size_t)kernel_stem_scratch_bytes()));
        gpu_check(kernel_stem(&stem, o.scratch, NULL));
        gpu_check(cudaDeviceSynchronize());
        y[time] = gpu_read(o.y.data, bytes);
        sums[time] = gpu_read(o.sums.data, of_sums);
    }
    assert_memory_equal(y[0], y[1], bytes);
    assert_memory_equal(sums[0], sums[1], of_sums);
    for (int time = 0; time < 2; time++) {
        free(y[time]);
        free(sums[time]);
    }
    free_operands(&o);
}

TEST(test_other_shapes_are_refused)
{
    const Case c = {1, 32, 32, 3, ELEMENT_F16};
    Operands o;
    make_operands(&c, &o);
    DeviceTensor changed[6] = {o.pixels, o.y, o.weight, o.weight, o.sums, o.pixels};
    changed[0].shape[1] += 2;
    changed[1].element = ELEMENT_F32;
    changed[2].shape[1] = 5;
    changed[3].element = ELEMENT_BF16;
    changed[4].pitch++;
    changed[5].pitch++;
    for (int i = 0; i < 6; i++) {
        Stem stem = stem_of(&o, true);
        stem.pixels = i == 0 || i == 5 ? &changed[i] : stem.pixels;
        stem.y = i == 1 ? &changed[1] : stem.y;
        stem.weight = i == 2 || i == 3 ? &changed[i] : stem.weight;
        stem.sums = i == 4 ? &changed[4] : stem.sums;
        assert_int_equal(kernel_stem(&stem, o.scratch, NULL), cudaErrorNotSupported);
    }
    free_operands(&o);
}
