/* resample_kernels.h - the two inner loops of resampling, as a table with one row for each instruction set.
 * Internal.
 *
 * The portable row is the definition; every other row gives the same bytes
 * (tests/imaging/resample_kernels_test.c holds them against each other). Weights are 22-bit fixed point: a
 * sum of weight * pixel, plus a half, shifted down by 22 and clamped to 0..255, is the result, in 32-bit
 * arithmetic throughout. */
#ifndef FSHARD_IMAGING_RESAMPLE_KERNELS_H
#define FSHARD_IMAGING_RESAMPLE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "imaging/resample.h"
#include "imaging/resample_weights.h"

enum {
    RESAMPLE_TAPS_MULTIPLE = 16, /* kernels may take this many weights at once */
    /* A horizontal kernel may read this far beyond the last byte it needs; the values do not matter. */
    RESAMPLE_SLACK_BYTES = 64 + 3 * RESAMPLE_TAPS_MULTIPLE,
};

/* One axis: for each output, the source positions it is made from and their weights. */
typedef struct ResampleAxis {
    uint32_t count; /* outputs */
    /* distance between the weights of two outputs; a multiple of RESAMPLE_TAPS_MULTIPLE */
    uint32_t stride;
    uint32_t *first;  /* [count] first source position */
    uint32_t *length; /* [count] how many weights are used, 1..stride; the rest are 0 */
    int32_t *weights; /* [count][stride] */
    uint8_t *packed;  /* [count][stride * 4 bytes], 64-byte aligned: the weights as the kernels' pack wrote
                      * them */
} ResampleAxis;

typedef struct ResampleKernels {
    const char *name; /* "portable", "avx2", … */
    bool (*supported)(void);

    /* Rewrites the `stride` weights of one output into the form that these kernels read; NULL: they read
     * plain weights. */
    void (*pack)(const int32_t *weights, uint32_t stride, uint8_t *packed);

    /* Resamples `rows` rows of source to axis->count pixels each. RESAMPLE_SLACK_BYTES after the last source
     * row must be readable. */
    void (*horizontal)(const ResampleAxis *axis, const uint8_t *source, size_t source_stride_bytes,
                       uint32_t rows, uint32_t channels, uint8_t *target, size_t target_stride_bytes);

    /* Computes one output row from axis->length[output] rows; source is the first of them, row
     * axis->first[output]. Reads and writes nothing outside rows. */
    void (*vertical)(const ResampleAxis *axis, uint32_t output, const uint8_t *source, size_t row_bytes,
                     uint8_t *target);
} ResampleKernels;

extern const ResampleKernels resample_kernels_portable;
#ifdef FSHARD_RESAMPLE_X86
extern const ResampleKernels resample_kernels_avx2;
extern const ResampleKernels resample_kernels_avx512; /* with VNNI */
#endif

/* All rows of the table, fastest first, NULL-terminated. This processor may not support some. */
extern const ResampleKernels *const resample_kernels_all[];

/* Returns the fastest kernels that this processor supports. */
const ResampleKernels *resample_kernels_best(void);

/* Makes a resampler use these kernels. For tests and benchmarks. */
void resampler_use_kernels(Resampler *resampler, const ResampleKernels *kernels);

#endif
