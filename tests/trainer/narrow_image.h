/* narrow_image.h - tensors of 16 bits here and on the GPU, and their comparison with sums in double
 * precision, for tests of convolution kernels. What fails ends the test. */
#ifndef FSHARD_TESTS_TRAINER_NARROW_IMAGE_H
#define FSHARD_TESTS_TRAINER_NARROW_IMAGE_H

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "trainer/backend/cuda/kernels/kernels.h"

/* bits: what the tensor held when it was made; owned, as the tensor's data is. */
typedef struct NarrowImage {
    DeviceTensor tensor;
    uint16_t *bits;
} NarrowImage;

/* Returns an image of normal numbers of that deviation, with zeros as padding. rows: of the first axis, with
 * its padding. */
NarrowImage narrow_image_make(ElementType element, const int64_t shape[4], int64_t rows, double deviation,
                              Random *random);
void narrow_image_free(NarrowImage *image);
/* Returns the bytes of the tensor, padding included. */
size_t narrow_image_bytes(const DeviceTensor *tensor);
/* Returns the number at these places of the image, whose bits are these; 0 outside. */
double narrow_image_at(const NarrowImage *image, const uint16_t *bits, int64_t n, int64_t row, int64_t column,
                       int64_t channel);

/* The sum of products, and of their sizes. */
typedef struct ProductSums {
    double sum, sizes;
} ProductSums;

void product_sums_add(ProductSums *sums, double product);

/* Returns what a result is at one place. */
typedef ProductSums NarrowSum(const void *context, int64_t n, int64_t row, int64_t column, int64_t channel);

/* Compares a result with the sums at so many drawn places, the first and the last of each axis more often
 * than others; all of its padding is zeros. what: names it in messages. */
void narrow_image_compare(const char *what, const NarrowImage *result, NarrowSum *sum, const void *context,
                          int places, Random *random);
/* Runs a kernel twice, on memory full of NaN, and expects the same bits. */
void narrow_image_run_twice(cudaError_t (*run)(const void *context), const void *context,
                            const NarrowImage *result);
/* Returns sums f32 [2, pitch of y] of NaN; cudaFree frees their data. */
DeviceTensor narrow_image_moments(const NarrowImage *y);
/* Compares sums f32 [2, pitch of y] with the sums of y and of its squares. */
void narrow_image_compare_moments(const char *what, const NarrowImage *y, const DeviceTensor *sums);

#endif
