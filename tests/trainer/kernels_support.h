/* kernels_support.h - every loop of the CPU backend (kernels.h) as a row of a table, and the memory that rows
 * are run on. */
#ifndef FSHARD_TESTS_TRAINER_KERNELS_SUPPORT_H
#define FSHARD_TESTS_TRAINER_KERNELS_SUPPORT_H

#include "trainer/backend/cpu/cpu_kernels.h"

enum { ROWS = 70, WIDTH_MAX = 200, GUARD = 32, VALUES = ROWS * WIDTH_MAX, BUFFERS = 8 };
#define GUARD_VALUE 12345.5F

/* Inputs, and outputs with guards around them; `out` starts one float off alignment. Values that activations
 * are made of are bf16's, so that both types read the same ones. */
typedef struct Bench {
    DataType type; /* of activations */
    float *in[BUFFERS];
    uint16_t *in_bf16[BUFFERS]; /* the same */
    uint8_t *bytes;
    float *out[2]; /* of VALUES, after GUARD values */
    uint8_t *index;
    double *sums;
    float *block;
} Bench;

Bench kernel_bench_new(DataType type);
void kernel_bench_free(Bench *bench);
/* Sets outputs and sums to what a case starts with. */
void kernel_bench_reset(Bench *bench);
/* Returns element `index` of output i, in the type of the bench. */
void *kernel_output(const Bench *bench, int i, int64_t index);

/* Rounds to the nearest bf16, ties to even, by the definition and not by bits as the kernels do. */
float bf16_rounded(float value);

typedef struct Size {
    int64_t rows, width;
} Size;
extern const Size kernel_sizes[];
extern const int kernel_size_count;

typedef struct Kernel {
    const char *name;
    void (*run)(const CpuKernels *k, const Bench *b, Size s, int flags); /* flags: which variation */
    int variations;                                                      /* flags go from 0 to below it */
    bool is_window; /* the size's width is channels; its rows do not count */
    bool is_f32;    /* what it writes, whatever the type of activations */
} Kernel;
/* Do what the row "depthwise" does: as it does, some places of a row side by side, and each by itself. */
void kernel_gather(const CpuKernels *k, const Bench *b, Size s, int flags);
void kernel_gather_apart(const CpuKernels *k, const Bench *b, Size s, int flags);
extern const Kernel kernels[];
extern const int kernel_count;

#endif
