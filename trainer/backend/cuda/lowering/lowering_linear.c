#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>

#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_scaled_filter.h"
#include "trainer/backend/cuda/lowering/matmul_step.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"

/* A narrow bias is the State's narrow copy, or what the layer has scaled. Where plans are timed, those of
 * large products are, too: cuBLASLt's first proposal is not always its fastest. */

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
    MatmulStep product = matmul_step_of(step);
    if (step->node->op == OP_LINEAR)
        product.bias = maybe_in(step, CONV_BIAS);
    else if (step->node->op == OP_SCALED_LINEAR)
        product.bias = maybe_out(step, LINEAR_SCALED_BIAS);
    return product;
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
    FshStatus status = FSH_OK;
    for (int i = 1; i < step->node->input_count && !status; i++)
        if (node_reads_copy(program->base.graph, step->node, i))
            status = lowering_narrow_weight(program, step, i, error);
    if (status)
        return status;
    const MatmulStep product = product_of(step);
    const bool sums =
        product.kind == MATMUL_WEIGHT_GRADIENT && maybe_out(step, CONV_WEIGHT_DBIAS); /* of dy */
    MatmulPlan *plan = NULL;
    if (sums)
        want_scratch(step, kernel_column_scratch_bytes(product.a));
    status = matmul_step_plan(program_backend(program), &product, &plan, error);
    if (status)
        return status;
    step_own(step, plan, free_plan);
    if (program_backend(program)->benchmark &&
        (double)product.result->rows * (double)product.result->pitch *
                (double)(product.kind == MATMUL_WEIGHT_GRADIENT ? product.a->rows : product.a->pitch) >=
            products_timed)
        choose_way(program_backend(program), step, plan);
    (void)snprintf(step->engine, sizeof step->engine, "cublaslt%s%s%s", product.bias ? "+bias" : "",
                   product.addend ? "+add" : "", sums ? " bias-gradient" : "");
    want_scratch(step, matmul_plan_workspace_bytes(plan));
    return FSH_OK;
}

static FshStatus linear(const Step *step, cudaStream_t stream, FshError *error)
{
    const MatmulStep product = product_of(step);
    FshStatus status = matmul_step_run(&product, step->plan, step->scratch, stream, error);
    if (!status && product.kind == MATMUL_WEIGHT_GRADIENT && maybe_out(step, CONV_WEIGHT_DBIAS))
        status = CUDA_TRY(kernel_column_sum(product.a, out(step, CONV_WEIGHT_DBIAS), step->scratch, stream),
                          error);
    return status;
}

static FshStatus scaled_linear(const Step *step, cudaStream_t stream, FshError *error)
{
    const ScaledFilter filter = {.weight = in(step, CONV_WEIGHT),
                                 .bias = maybe_in(step, CONV_BIAS),
                                 .factors = in(step, LINEAR_FACTORS)};
    FshStatus status = CUDA_TRY(kernel_scale_filter(&filter, out(step, LINEAR_SCALED_WEIGHT),
                                                    maybe_out(step, LINEAR_SCALED_BIAS), stream),
                                error);
    return status ? status : linear(step, stream, error);
}

/* The gradients of the scaled weight and bias lie where those of weight and bias will. */
static FshStatus scaled_linear_backward_weight(const Step *step, cudaStream_t stream, FshError *error)
{
    const ScaledFilter filter = {.weight = in(step, SCALED_LINEAR_BACK_WEIGHT),
                                 .bias = maybe_in(step, SCALED_LINEAR_BACK_BIAS),
                                 .factors = in(step, SCALED_LINEAR_BACK_FACTORS)};
    FshStatus status = linear(step, stream, error);
    return status ? status
                  : CUDA_TRY(kernel_scale_filter_backward(&filter, out(step, CONV_WEIGHT_DWEIGHT),
                                                          maybe_out(step, CONV_WEIGHT_DBIAS),
                                                          out(step, SCALED_LINEAR_BACK_DFACTORS), stream),
                             error);
}

const LoweringRow lowering_linear[] = {
    {OP_LINEAR, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_LINEAR_BACKWARD_DATA, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_LINEAR_BACKWARD_WEIGHT, {.prepare = linear_prepare, .enqueue = linear}},
    {OP_SCALED_LINEAR, {.prepare = linear_prepare, .enqueue = scaled_linear}},
    {OP_SCALED_LINEAR_BACKWARD_WEIGHT, {.prepare = linear_prepare, .enqueue = scaled_linear_backward_weight}},
    {OP_KIND_COUNT, {NULL}},
};
