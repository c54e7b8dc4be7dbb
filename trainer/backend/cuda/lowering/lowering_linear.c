#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>

#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/lowering/matmul_step.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"

/* A narrow bias is the State's narrow copy. Where plans are timed, those of large products are, too:
 * cuBLASLt's first proposal is not always its fastest. */

static void free_plan(void *plan)
{
    MatmulPlan *owned = plan;
    matmul_plan_free(&owned);
}

/* Below so many products of numbers the first proposal is taken untimed. */
static const double products_timed = 1e9;

/* Returns the product of a step. */
static MatmulStep product_of(const Step *step)
{
    return (MatmulStep){step, step->node->op == OP_LINEAR ? maybe_in(step, CONV_BIAS) : NULL};
}

/* Takes the fastest of the plan's ways. */
static void choose_way(CudaBackend *backend, Step *step, MatmulPlan *plan)
{
    int way = 0;
    const MatmulStep product = product_of(step);
    const double milliseconds = matmul_step_choose(backend, &product, plan, MATMUL_WAYS_MAX, &way);
    (void)snprintf(step->told, sizeof step->told, "cuBLASLt's proposal %d of %d, %.3f ms", way + 1,
                   matmul_plan_ways(plan), milliseconds);
}

static FshStatus linear_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const OpKind op = step->node->op;
    FshStatus status = FSH_OK;
    for (int i = 1; i < step->node->input_count && !status; i++)
        if (node_reads_copy(program->base.graph, step->node, i))
            status = lowering_narrow_weight(program, step, i, error);
    if (status)
        return status;
    const MatmulStep product = product_of(step);
    const DeviceTensor *a = in(step, 0), *result = out(step, 0);
    const bool is_weight_gradient = op == OP_LINEAR_BACKWARD_WEIGHT;
    MatmulPlan *plan = NULL;
    if (is_weight_gradient && maybe_out(step, CONV_WEIGHT_DBIAS))
        want_scratch(step, kernel_column_scratch_bytes(a));
    status = matmul_step_plan(program_backend(program), &product, &plan, error);
    if (status)
        return status;
    step_own(step, plan, free_plan);
    if (program_backend(program)->benchmark &&
        (double)result->rows * (double)result->pitch * (double)(is_weight_gradient ? a->rows : a->pitch) >=
            products_timed)
        choose_way(program_backend(program), step, plan);
    (void)snprintf(step->engine, sizeof step->engine, "cublaslt%s%s%s", product.bias ? "+bias" : "",
                   op == OP_LINEAR && maybe_in(step, LINEAR_ADDEND) ? "+add" : "",
                   is_weight_gradient && maybe_out(step, CONV_WEIGHT_DBIAS) ? " bias-gradient" : "");
    want_scratch(step, matmul_plan_workspace_bytes(plan));
    return FSH_OK;
}

static FshStatus linear(const Step *step, cudaStream_t stream, FshError *error)
{
    const MatmulStep product = product_of(step);
    FshStatus status = matmul_step_run(&product, step->plan, step->scratch, stream, error);
    if (!status && step->node->op == OP_LINEAR_BACKWARD_WEIGHT && maybe_out(step, CONV_WEIGHT_DBIAS))
        status = CUDA_TRY(
            kernel_column_sum(in(step, CONV_WEIGHT_DY), out(step, CONV_WEIGHT_DBIAS), step->scratch, stream),
            error);
    return status;
}

const LoweringRow lowering_linear[] = {
    {OP_LINEAR, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_LINEAR_BACKWARD_DATA, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_LINEAR_BACKWARD_WEIGHT, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_KIND_COUNT, {NULL}},
};
