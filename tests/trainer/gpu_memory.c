#include "tests/trainer/gpu_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

void gpu_check(cudaError_t code)
{
    if (code != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(code));
}

void *gpu_copy_of(const void *values, size_t bytes)
{
    void *memory = NULL;
    gpu_check(cudaMalloc(&memory, bytes));
    gpu_check(values ? cudaMemcpy(memory, values, bytes, cudaMemcpyHostToDevice)
                     : cudaMemset(memory, 0, bytes));
    return memory;
}

void *gpu_filled(size_t count, uint16_t value)
{
    uint16_t *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = value;
    void *memory = gpu_copy_of(values, count * sizeof *values);
    free(values);
    return memory;
}

void *gpu_read(const void *memory, size_t bytes)
{
    void *values = malloc(bytes);
    assert_non_null(values);
    gpu_check(cudaMemcpy(values, memory, bytes, cudaMemcpyDeviceToHost));
    return values;
}

float narrow_value(ElementType element, uint16_t bits)
{
    if (element == ELEMENT_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float value = exponent == 31 ? NAN
                        : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                       : ldexpf((float)mantissa, -24);
    return bits & 0x8000 ? -value : value;
}

uint16_t narrow_bits(ElementType element, float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    if (element == ELEMENT_BF16 || value == 0)
        return (uint16_t)(wide >> 16);
    const uint32_t exponent = (wide >> 23 & 255) - 127 + 15;
    return (uint16_t)((wide >> 16 & 0x8000) | exponent << 10 | (wide >> 13 & 1023));
}

DeviceTensor gpu_image_of(ElementType element, int64_t n, int64_t h, int64_t w, int64_t channels)
{
    return (DeviceTensor){
        .element = element, .rank = 4, .shape = {n, h, w, channels}, .pitch = channels, .rows = n * h * w};
}
