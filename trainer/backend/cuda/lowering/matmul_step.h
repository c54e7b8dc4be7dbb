/* matmul_step.h - a step that is a product of two of its tensors through cuBLASLt (matmul.h): a linear layer,
 * a convolution of 1 x 1, a gradient of either.
 *
 * y [.., out] = x [.., in] weight' + bias + addend, of matrices and images alike. Padded channels are part of
 * the product: what pads one operand is 0 and so is what it yields, so that narrow results need no pass of
 * their own for their padding. A bias is of the result's type: cuBLASLt adds no other.
 *
 * Threads: that of the backend. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_MATMUL_STEP_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_MATMUL_STEP_H

#include "trainer/backend/cuda/device/matmul.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"

/* The product of a step. bias is added to each row of a forward one, addend to all of it; each may be
 * NULL. */
typedef struct MatmulStep {
    enum {
        MATMUL_FORWARD,         /* y = x weight' + bias + addend */
        MATMUL_DATA_GRADIENT,   /* dx = dy weight */
        MATMUL_WEIGHT_GRADIENT, /* dweight = dy' x */
    } kind;
    const DeviceTensor *a, *b, *result; /* operands in the order above */
    const DeviceTensor *bias, *addend;
} MatmulStep;

/* Returns the product of the step's first two inputs, or of x and the scaled weight, without a bias: what the
 * node computes where it is an OP_LINEAR, OP_SCALED_LINEAR, OP_CONV2D or a gradient of one. */
MatmulStep matmul_step_of(const Step *step);
/* Makes the plan of the product, with cuBLASLt's first proposal. Fails as matmul_plan_new. */
FshStatus matmul_step_plan(CudaBackend *backend, const MatmulStep *product, MatmulPlan **plan_ret,
                           FshError *error);
/* Takes the fastest of the plan's first `most` ways, known from an earlier start or measured now on the
 * step's tensors; one that does not run is left out. Returns its milliseconds; 0: none runs. *way_ret:
 * which. */
double matmul_step_choose(CudaBackend *backend, const MatmulStep *product, MatmulPlan *plan, int most,
                          int *way_ret);
FshStatus matmul_step_run(const MatmulStep *product, const MatmulPlan *plan, void *workspace,
                          cudaStream_t stream, FshError *error);

#endif
