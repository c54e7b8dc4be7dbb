/* matmul.h - products of row-major matrices through cuBLASLt, for linear layers and for Muon.
 *
 * Float32 sums; of cuBLASLt's ways to join partial sums only those that give the same bits each time.
 * Threads: a plan belongs to one thread. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_MATMUL_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_MATMUL_H

#include "trainer/backend/cuda/device/device.h"
#include "trainer/backend/cuda/kernels/kernels.h"

typedef struct MatmulPlan MatmulPlan;

/* result [rows, columns] = a [rows, inner] b [inner, columns] (+ bias [columns] on every row) (+ addend,
 * which lies as the result does, and may be it). A transposed operand lies in memory the other way around: a
 * as [inner, rows], b as [columns, inner]. */
typedef struct MatmulShape {
    int64_t rows, columns, inner;
    int64_t pitch_a, pitch_b, pitch_result; /* elements from one row in memory to the next */
    ElementType operands, result;           /* f32 and f32; bf16 or f16, and the same or f32 */
    bool transpose_a, transpose_b;
    bool bias; /* of the result's type */
    bool addend;
    bool tf32;                   /* f32 operands may be rounded to TF32 */
    float factor, addend_factor; /* of a b, and of the addend; 0 means 1 */
    /* So many products of one shape; the matrices of each operand lie one after the other without gaps. 0
     * means 1. */
    int64_t batch;
} MatmulShape;

enum { MATMUL_WAYS_MAX = 8 };

/* Makes a plan with the first of the ways that cuBLASLt proposes, which matmul_plan_take may replace by
 * another. FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
FshStatus matmul_plan_new(MatmulPlan **plan, cublasLtHandle_t cublas_lt, const MatmulShape *shape,
                          FshError *error);
void matmul_plan_free(MatmulPlan **plan);
/* Returns how many ways there are, at most MATMUL_WAYS_MAX, the likely fastest first. */
int matmul_plan_ways(const MatmulPlan *plan);
void matmul_plan_take(MatmulPlan *plan, int way);
/* Writes what the time of the plan's way depends on but the machine, in one line. Returns text. */
const char *matmul_plan_text(const MatmulPlan *plan, char *text, size_t text_bytes);
/* Returns the workspace that the plan's way needs. */
uint64_t matmul_plan_workspace_bytes(const MatmulPlan *plan);

/* Device addresses, 16-byte aligned; bias and addend are ignored where the shape has none. */
typedef struct MatmulOperands {
    const void *a, *b, *bias, *addend;
    void *result, *workspace;
} MatmulOperands;
FshStatus matmul_plan_run(const MatmulPlan *plan, const MatmulOperands *operands, cudaStream_t stream,
                          FshError *error);

#endif
