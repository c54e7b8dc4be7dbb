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
 * which lies as the result does). A transposed operand lies in memory the other way around: a as [inner,
 * rows], b as [columns, inner]. */
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

/* Makes a plan, the first that cuBLASLt proposes. FSH_ERR_MEMORY, FSH_ERR_LIBRARY. */
FshStatus matmul_plan_new(MatmulPlan **plan, cublasLtHandle_t cublas_lt, const MatmulShape *shape,
                          FshError *error);
void matmul_plan_free(MatmulPlan **plan);
uint64_t matmul_plan_workspace_bytes(const MatmulPlan *plan);
/* Device addresses, 16-byte aligned; bias and addend are ignored where the shape has none. */
typedef struct MatmulOperands {
    const void *a, *b, *bias, *addend;
    void *result, *workspace;
} MatmulOperands;
FshStatus matmul_plan_run(const MatmulPlan *plan, const MatmulOperands *operands, cudaStream_t stream,
                          FshError *error);

#endif
