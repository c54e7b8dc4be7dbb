#include "tests/trainer/narrow_image.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"

NarrowImage narrow_image_make(ElementType element, const int64_t shape[4], int64_t rows, double deviation,
                              Random *random)
{
    const int64_t pitch = padded_channels(shape[3]), inner = shape[1] * shape[2];
    const size_t count = (size_t)(rows * inner * pitch);
    NarrowImage image = {.bits = calloc(count, sizeof *image.bits)};
    assert_non_null(image.bits);
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(deviation * (double)random_normal(random));
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

void narrow_image_free(NarrowImage *image)
{
    gpu_check(cudaFree(image->tensor.data));
    free(image->bits);
}

size_t narrow_image_bytes(const DeviceTensor *tensor)
{
    return (size_t)device_tensor_stored(tensor) * sizeof(uint16_t);
}

double narrow_image_at(const NarrowImage *image, const uint16_t *bits, int64_t n, int64_t row, int64_t column,
                       int64_t channel)
{
    const DeviceTensor *t = &image->tensor;
    if (row < 0 || row >= t->shape[1] || column < 0 || column >= t->shape[2])
        return 0;
    return (double)narrow_value(t->element,
                                bits[((n * t->shape[1] + row) * t->shape[2] + column) * t->pitch + channel]);
}

void product_sums_add(ProductSums *sums, double product)
{
    sums->sum += product;
    sums->sizes += fabs(product);
}

void narrow_image_compare(const char *what, const NarrowImage *result, NarrowSum *sum, const void *context,
                          int places, Random *random)
{
    const DeviceTensor *t = &result->tensor;
    const double epsilon = t->element == ELEMENT_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    uint16_t *found = gpu_read(t->data, narrow_image_bytes(t));
    for (int place = 0; place < places; place++) {
        int64_t where[4];
        for (int axis = 0; axis < 4; axis++) {
            const int64_t drawn = (int64_t)random_below(random, (uint32_t)t->shape[axis] + 2) - 1;
            where[axis] = drawn < 0 ? 0 : drawn >= t->shape[axis] ? t->shape[axis] - 1 : drawn;
        }
        const double value = narrow_image_at(result, found, where[0], where[1], where[2], where[3]);
        const ProductSums wanted = sum(context, where[0], where[1], where[2], where[3]);
        if (!(fabs(value - wanted.sum) <= epsilon * fabs(wanted.sum) + 1e-5 * wanted.sizes + 1e-6))
            fail_msg("%s, element %d, at %lld %lld %lld %lld: %.9g, not %.9g", what, t->element,
                     (long long)where[0], (long long)where[1], (long long)where[2], (long long)where[3],
                     value, wanted.sum);
    }
    const int64_t inner = t->shape[1] * t->shape[2] * t->pitch;
    for (int64_t i = 0; i < device_tensor_stored(t); i++)
        if ((i % t->pitch >= t->shape[3] || i / inner >= t->shape[0]) && (found[i] & 0x7FFF) != 0)
            fail_msg("%s: padding at %lld is not 0", what, (long long)i);
    free(found);
}

void narrow_image_run_twice(cudaError_t (*run)(const void *context), const void *context,
                            const NarrowImage *result)
{
    const size_t bytes = narrow_image_bytes(&result->tensor);
    uint16_t *found[2];
    for (int time = 0; time < 2; time++) {
        gpu_check(cudaMemset(result->tensor.data, 0xFF, bytes));
        gpu_check(run(context));
        found[time] = gpu_read(result->tensor.data, bytes);
    }
    assert_memory_equal(found[0], found[1], bytes);
    free(found[0]);
    free(found[1]);
}

DeviceTensor narrow_image_moments(const NarrowImage *y)
{
    return (DeviceTensor){.data = gpu_filled(4 * (size_t)y->tensor.pitch, 0xFFFF),
                          .element = ELEMENT_F32,
                          .rank = 2,
                          .shape = {2, y->tensor.shape[3]},
                          .pitch = y->tensor.pitch,
                          .rows = 2};
}

void narrow_image_compare_moments(const char *what, const NarrowImage *y, const DeviceTensor *sums)
{
    const DeviceTensor *t = &y->tensor;
    const size_t pitch = (size_t)t->pitch;
    uint16_t *bits = gpu_read(t->data, narrow_image_bytes(t));
    float *found = gpu_read(sums->data, 2 * pitch * sizeof *found);
    for (size_t c = 0; c < pitch; c++) {
        ProductSums wanted[2] = {{0, 0}, {0, 0}};
        for (int64_t row = 0; row < t->rows; row++) {
            const double value = (double)narrow_value(t->element, bits[(size_t)row * pitch + c]);
            product_sums_add(&wanted[0], value);
            product_sums_add(&wanted[1], value * value);
        }
        for (size_t k = 0; k < 2; k++)
            if (!(fabs((double)found[k * pitch + c] - wanted[k].sum) <= 1e-5 * wanted[k].sizes + 1e-6))
                fail_msg("%s: sum %zu of channel %zu is %.9g, not %.9g", what, k, c,
                         (double)found[k * pitch + c], wanted[k].sum);
    }
    free(bits);
    free(found);
}
