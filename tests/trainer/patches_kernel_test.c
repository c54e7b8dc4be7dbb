/* Patches of images and filters without padding (patches.cu), element by element, with kernels that overlap
 * and that do not. Needs a GPU; leaves with 77 where there is none. */
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

enum { SAMPLES = 3, OUT = 24, GUARD = 64 };
static const uint16_t mark = 0x5A5A;

typedef struct Case {
    int height, width, channels, kernel, stride, padding;
} Case;

/* A narrow tensor whose bits are on both sides; `rows` pixels of `channels` channels. */
typedef struct Bits {
    DeviceTensor tensor;
    uint16_t *values;
    size_t count;
} Bits;

/* Makes a tensor of random bits, or of marks, with marks behind it. */
static Bits make_bits(Random *random, const int64_t shape[4], int64_t pitch, bool filter)
{
    Bits b = {.count = (size_t)(shape[0] * shape[1] * shape[2] * pitch)};
    b.values = malloc((b.count + GUARD) * sizeof *b.values);
    assert_non_null(b.values);
    for (size_t i = 0; i < b.count + GUARD; i++)
        b.values[i] = random && i < b.count ? (uint16_t)random_below(random, 65536) : mark;
    b.tensor = (DeviceTensor){.data = gpu_copy_of(b.values, (b.count + GUARD) * sizeof *b.values),
                              .element = ELEMENT_BF16,
                              .rank = 4,
                              .shape = {shape[0], shape[1], shape[2], shape[3]},
                              .pitch = pitch,
                              .rows = shape[0] * shape[1] * shape[2],
                              .is_filter = filter};
    return b;
}

static void free_bits(Bits *b)
{
    gpu_check(cudaFree(b->tensor.data));
    free(b->values);
}

/* Reads the tensor back, and checks that nothing was written behind it. */
static void read_bits(Bits *b)
{
    free(b->values);
    b->values = gpu_read(b->tensor.data, (b->count + GUARD) * sizeof *b->values);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(b->values[b->count + i], mark);
}

/* Returns element i of the patch at (row, column) of a sample. */
static uint16_t patch_element(const Case *c, const Bits *x, int64_t sample, int64_t row, int64_t column,
                              int i)
{
    const int tap = i / c->channels;
    const int64_t y = row * c->stride - c->padding + tap / c->kernel,
                  across = column * c->stride - c->padding + tap % c->kernel;
    if (tap >= c->kernel * c->kernel || y < 0 || y >= c->height || across < 0 || across >= c->width)
        return 0;
    return x->values[((sample * c->height + y) * c->width + across) * x->tensor.pitch + i % c->channels];
}

static void try_image(const Case *c, Random *random)
{
    const int64_t rows = (c->height + 2 * c->padding - c->kernel) / c->stride + 1,
                  columns = (c->width + 2 * c->padding - c->kernel) / c->stride + 1,
                  channels = padded_channels((int64_t)c->kernel * c->kernel * c->channels);
    const Patches of = {c->kernel, c->stride, c->padding};
    Bits x = make_bits(random, (int64_t[]){SAMPLES, c->height, c->width, c->channels}, PADDED_CHANNELS,
                       false),
         patches = make_bits(NULL, (int64_t[]){SAMPLES, rows, columns, channels}, channels, false);
    gpu_check(kernel_cut_patches(&x.tensor, &of, &patches.tensor, NULL));
    read_bits(&patches);
    const uint16_t *found = patches.values;
    for (int64_t sample = 0; sample < SAMPLES; sample++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t column = 0; column < columns; column++)
                for (int i = 0; i < (int)channels; i++)
                    assert_int_equal(*found++, patch_element(c, &x, sample, row, column, i));
    free_bits(&x);
    free_bits(&patches);
}

/* Flattens a filter, and back. */
static void try_filter(const Case *c, Random *random)
{
    const int taps = c->kernel * c->kernel;
    const int64_t flat_channels = padded_channels((int64_t)taps * c->channels);
    const int64_t shape[4] = {OUT, c->kernel, c->kernel, c->channels};
    Bits weight = make_bits(random, shape, PADDED_CHANNELS, true),
         flat = make_bits(NULL, (int64_t[]){OUT, 1, 1, flat_channels}, flat_channels, false),
         again = make_bits(NULL, shape, PADDED_CHANNELS, true);
    gpu_check(kernel_flatten_filter(&weight.tensor, &flat.tensor, NULL));
    gpu_check(kernel_unflatten_filter(&flat.tensor, &again.tensor, NULL));
    read_bits(&flat);
    read_bits(&again);
    for (int o = 0; o < OUT; o++) {
        for (int i = 0; i < (int)flat_channels; i++) {
            const int tap = i / c->channels;
            const uint16_t wanted =
                tap < taps ? weight.values[(o * taps + tap) * PADDED_CHANNELS + i % c->channels] : 0;
            assert_int_equal(flat.values[o * flat_channels + i], wanted);
        }
        for (int i = 0; i < taps * PADDED_CHANNELS; i++) {
            const int at = o * taps * PADDED_CHANNELS + i;
            assert_int_equal(again.values[at], i % PADDED_CHANNELS < c->channels ? weight.values[at] : 0);
        }
    }
    free_bits(&weight);
    free_bits(&flat);
    free_bits(&again);
}

TEST(test_every_element_is_where_it_belongs)
{
    static const Case cases[] = {{32, 48, 3, 16, 16, 0}, {17, 21, 3, 4, 4, 0}, {8, 8, 1, 8, 8, 0},
                                 {28, 28, 1, 3, 1, 0},   {15, 13, 3, 3, 2, 1}, {9, 9, 4, 2, 1, 0},
                                 {7, 5, 2, 5, 3, 2},     {1, 1, 3, 3, 1, 1}};
    Random random;
    random_start(&random, 3, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        try_image(&cases[i], &random);
        try_filter(&cases[i], &random);
    }
}
