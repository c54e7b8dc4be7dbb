/* Images folded from their bytes (stem.cu): the bits of images that are normalised first, and zeros where the
 * padding is. Needs a GPU; leaves with 77 where there is none. */
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"

enum { SAMPLES = 3, GUARD = 64 };
static const uint16_t mark = 0x5A5A;
static const float mean[] = {123.675F, 116.28F, 103.53F, 0}, deviation[] = {58.395F, 57.12F, 57.375F, 255};

typedef struct Case {
    int height, width, channels, kernel, padding;
} Case;

static DeviceTensor tensor_of(ElementType element, const int64_t shape[4], int64_t pitch)
{
    return (DeviceTensor){.element = element,
                          .rank = 4,
                          .shape = {shape[0], shape[1], shape[2], shape[3]},
                          .pitch = pitch,
                          .rows = shape[0] * shape[1] * shape[2]};
}

/* Returns memory for the tensor, full of marks, with more of them behind it. */
static void *marks_for(const DeviceTensor *tensor)
{
    return gpu_filled((size_t)device_tensor_stored(tensor) + GUARD, mark);
}

/* Compares with the normalised image: row i and pixel j of `folded` have squares j to j + taps - 1. */
static void compare(const Case *c, const Fold *fold, const DeviceTensor *folded, const uint16_t *found,
                    const uint16_t *normalized)
{
    for (int64_t at = 0; at < device_tensor_stored(folded); at++) {
        const int64_t channel = at % folded->pitch, pixel = at / folded->pitch;
        const int64_t j = pixel % folded->shape[2], i = pixel / folded->shape[2] % folded->shape[1],
                      sample = pixel / folded->shape[2] / folded->shape[1];
        const int64_t tap = channel / FOLDED_CHANNELS, in_square = channel % FOLDED_CHANNELS;
        const int64_t row = 2 * i - fold->front + in_square / 8,
                      column = 2 * (j + tap) - fold->front + in_square / 4 % 2;
        const bool inside = row >= 0 && row < c->height && column >= 0 && column < c->width;
        const uint16_t wanted =
            inside ? normalized[((sample * c->height + row) * c->width + column) * PADDED_CHANNELS +
                                in_square % 4]
                   : 0;
        if (found[at] != wanted)
            fail_msg(
                "%d x %d x %d, kernel %d: sample %lld, row %lld, pixel %lld, channel %lld: %04x, not %04x",
                c->height, c->width, c->channels, c->kernel, (long long)sample, (long long)i, (long long)j,
                (long long)channel, found[at], wanted);
    }
}

static void try(const Case *c, ElementType element, Random *random)
{
    const Fold fold = fold_of(c->kernel, c->padding);
    const int64_t rows = (c->height + 2 * c->padding - c->kernel) / 2 + 1,
                  columns = (c->width + 2 * c->padding - c->kernel) / 2 + 1,
                  channels = fold.taps * FOLDED_CHANNELS;
    const int64_t shape[4] = {SAMPLES, c->height, c->width, c->channels};
    DeviceTensor x = tensor_of(ELEMENT_U8, shape, c->channels),
                 normalized = tensor_of(element, shape, PADDED_CHANNELS),
                 folded = tensor_of(element, (int64_t[]){SAMPLES, rows + fold.taps - 1, columns, channels},
                                    channels);
    const size_t bytes = (size_t)device_tensor_stored(&x), count = (size_t)device_tensor_stored(&folded);
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)random_below(random, 256);
    x.data = gpu_copy_of(pixels, bytes);
    normalized.data = marks_for(&normalized);
    gpu_check(kernel_normalize(&x, mean, deviation, &normalized, NULL));
    uint16_t *values = gpu_read(normalized.data, (size_t)device_tensor_stored(&normalized) * sizeof *values);
    uint16_t *found[2];
    for (int of_bytes = 0; of_bytes < 2; of_bytes++) {
        folded.data = marks_for(&folded);
        gpu_check(of_bytes ? kernel_fold_bytes(&x, mean, deviation, &fold, &folded, NULL)
                           : kernel_fold_image(&normalized, &fold, &folded, NULL));
        found[of_bytes] = gpu_read(folded.data, (count + GUARD) * sizeof *found[of_bytes]);
        for (size_t i = 0; i < GUARD; i++)
            assert_int_equal(found[of_bytes][count + i], mark);
        gpu_check(cudaFree(folded.data));
    }
    compare(c, &fold, &folded, found[1], values);
    assert_memory_equal(found[0], found[1], count * sizeof *found[0]);
    free(found[0]);
    free(found[1]);
    free(values);
    free(pixels);
    gpu_check(cudaFree(x.data));
    gpu_check(cudaFree(normalized.data));
}

/* Odd sizes, images smaller than the kernel, rows of more pixels than a block has, few and many taps. */
TEST(test_bytes_are_folded_as_their_normalised_image_is)
{
    static const Case cases[] = {{160, 160, 3, 7, 3}, {64, 64, 3, 7, 3},  {33, 47, 3, 7, 3},
                                 {32, 31, 1, 7, 3},   {28, 28, 4, 5, 2},  {9, 13, 2, 5, 0},
                                 {3, 2, 3, 7, 3},     {17, 501, 3, 7, 3}, {5, 1030, 4, 11, 5},
                                 {40, 300, 3, 9, 1},  {70, 66, 3, 63, 0}, {1, 300, 1, 127, 63}};
    Random random;
    random_start(&random, 3, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        try(&cases[i], ELEMENT_F16, &random);
        try(&cases[i], ELEMENT_BF16, &random);
    }
}

TEST(test_kernels_with_too_many_taps_are_refused)
{
    const DeviceTensor x = tensor_of(ELEMENT_U8, (int64_t[]){1, 300, 300, 3}, 3);
    const Fold fold = fold_of(129, 0);
    const DeviceTensor folded =
        tensor_of(ELEMENT_F16, (int64_t[]){1, 86 + fold.taps - 1, 86, fold.taps * FOLDED_CHANNELS},
                  fold.taps * FOLDED_CHANNELS);
    assert_int_equal(kernel_fold_bytes(&x, mean, deviation, &fold, &folded, NULL), cudaErrorNotSupported);
}
