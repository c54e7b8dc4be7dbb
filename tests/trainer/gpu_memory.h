/* gpu_memory.h - memory of the GPU and numbers of 16 bits, for tests of kernels. What fails ends the test. */
#ifndef FSHARD_TESTS_TRAINER_GPU_MEMORY_H
#define FSHARD_TESTS_TRAINER_GPU_MEMORY_H

#include <cuda_runtime_api.h>

#include "trainer/backend/cuda/kernels/kernels.h"

/* Fails the running test with what CUDA says unless the call succeeded. */
void gpu_check(cudaError_t code);
/* Returns a copy of the values on the GPU, zeros where values is NULL; cudaFree frees it. */
void *gpu_copy_of(const void *values, size_t bytes);
/* Returns memory on the GPU in which every 16 bits are value; cudaFree frees it. */
void *gpu_filled(size_t count, uint16_t value);
/* Returns an image [n, h, w, channels] without padding, whose data are NULL. */
DeviceTensor gpu_image_of(ElementType element, int64_t n, int64_t h, int64_t w, int64_t channels);
/* Returns a copy of the GPU's memory; the caller frees it. */
void *gpu_read(const void *memory, size_t bytes);
/* Returns the number that the bits of a bf16 or f16 are; of f16, infinity too is NaN. */
float narrow_value(ElementType element, uint16_t bits);
/* Returns the bits of value without the digits that the type does not have. |value| is above 2^-14, or is
 * 0. */
uint16_t narrow_bits(ElementType element, float value);

#endif
