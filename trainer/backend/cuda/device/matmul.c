#include "trainer/backend/cuda/device/matmul.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What NVIDIA advises for Hopper; small products need far less. */
static const uint64_t workspace_limit_bytes = UINT64_C(32) << 20;
static const uint32_t alignment_bytes = 16;

struct MatmulPlan {
    cublasLtHandle_t cublas_lt;
    MatmulShape shape;
    cublasLtMatmulDesc_t operation;
    /* cuBLASLt thinks in columns: a row-major matrix is to it the transposed one, so it is asked for
     * result' = b' a', and its first operand is our b. */
    cublasLtMatrixLayout_t b, a, result;
    cublasLtMatmulHeuristicResult_t ways[MATMUL_WAYS_MAX];
    int way_count, way;
};

static const cudaDataType_t cuda_types[ELEMENT_TYPE_COUNT] = {
    [ELEMENT_F32] = CUDA_R_32F, [ELEMENT_BF16] = CUDA_R_16BF, [ELEMENT_F16] = CUDA_R_16F};

/* Makes the layout of a row-major [rows, columns] matrix, or of a batch of them. */
static FshStatus make_layout(cublasLtMatrixLayout_t *layout, ElementType element, int64_t rows,
                             int64_t columns, int64_t pitch, int64_t batch, FshError *error)
{
    const int32_t count = (int32_t)batch;
    const int64_t stride = rows * pitch;
    FshStatus status = CUBLAS_TRY(
        cublasLtMatrixLayoutCreate(layout, cuda_types[element], (uint64_t)columns, (uint64_t)rows, pitch),
        error);
    if (status || batch <= 1)
        return status;
    status = CUBLAS_TRY(
        cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        error);
    return status
               ? status
               : CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(
                                *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                            error);
}

static FshStatus set_operation(const MatmulPlan *plan, cublasLtMatmulDescAttributes_t name, const void *value,
                               size_t bytes, FshError *error)
{
    return CUBLAS_TRY(cublasLtMatmulDescSetAttribute(plan->operation, name, value, bytes), error);
}

static FshStatus describe(MatmulPlan *plan, FshError *error)
{
    const MatmulShape *shape = &plan->shape;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cublasComputeType_t compute =
        shape->tf32 && shape->operands == ELEMENT_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    FshStatus status = CUBLAS_TRY(cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F), error);
    if (!status && shape->transpose_b)
        status = set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed, error);
    if (!status && shape->transpose_a)
        status = set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof transposed, error);
    if (!status && shape->bias)
        status = set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, error);
    if (!status)
        status =
            make_layout(&plan->a, shape->operands, shape->transpose_a ? shape->inner : shape->rows,
                        shape->transpose_a ? shape->rows : shape->inner, shape->pitch_a, shape->batch, error);
    if (!status)
        status = make_layout(&plan->b, shape->operands, shape->transpose_b ? shape->columns : shape->inner,
                             shape->transpose_b ? shape->inner : shape->columns, shape->pitch_b, shape->batch,
                             error);
    if (!status)
        status = make_layout(&plan->result, shape->result, shape->rows, shape->columns, shape->pitch_result,
                             shape->batch, error);
    return status;
}

static FshStatus find_ways(MatmulPlan *plan, FshError *error)
{
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* and none; not in place, whose order is chance */
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t preference = NULL;
    FshStatus status = CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference), error);
    if (!status)
        status = CUBLAS_TRY(
            cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_limit_bytes, sizeof workspace_limit_bytes),
            error);
    if (!status)
        status = CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference,
                                                                 CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                                 &reductions, sizeof reductions),
                            error);
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0] && !status; i++)
        status = CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment_bytes,
                                                                 sizeof alignment_bytes),
                            error);
    if (!status)
        status = CUBLAS_TRY(cublasLtMatmulAlgoGetHeuristic(plan->cublas_lt, plan->operation, plan->b, plan->a,
                                                           plan->result, plan->result, preference,
                                                           MATMUL_WAYS_MAX, plan->ways, &plan->way_count),
                            error);
    int usable = 0;
    for (int i = 0; i < plan->way_count; i++)
        if (plan->ways[i].state == CUBLAS_STATUS_SUCCESS)
            plan->ways[usable++] = plan->ways[i];
    plan->way_count = usable;
    if (!status && usable == 0)
        status = fsh_error_set(error, FSH_ERR_LIBRARY, "cublasLtMatmulAlgoGetHeuristic: no algorithm");
    if (preference)
        (void)cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

FshStatus matmul_plan_new(MatmulPlan **plan, cublasLtHandle_t cublas_lt, const MatmulShape *shape,
                          FshError *error)
{
    *plan = calloc(1, sizeof **plan);
    if (!*plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a matrix product's plan");
    (*plan)->cublas_lt = cublas_lt;
    (*plan)->shape = *shape;
    FshStatus status = describe(*plan, error);
    if (!status)
        status = find_ways(*plan, error);
    if (status) {
        matmul_plan_free(plan);
        return fsh_error_prepend(error, "product of %" PRId64 " x %" PRId64 " and %" PRId64 " x %" PRId64,
                                 shape->rows, shape->inner, shape->inner, shape->columns);
    }
    return FSH_OK;
}

void matmul_plan_free(MatmulPlan **plan)
{
    if (!*plan)
        return;
    if ((*plan)->operation)
        (void)cublasLtMatmulDescDestroy((*plan)->operation);
    if ((*plan)->a)
        (void)cublasLtMatrixLayoutDestroy((*plan)->a);
    if ((*plan)->b)
        (void)cublasLtMatrixLayoutDestroy((*plan)->b);
    if ((*plan)->result)
        (void)cublasLtMatrixLayoutDestroy((*plan)->result);
    free(*plan);
    *plan = NULL;
}

int matmul_plan_ways(const MatmulPlan *plan)
{
    return plan->way_count;
}

void matmul_plan_take(MatmulPlan *plan, int way)
{
    plan->way = way;
}

const char *matmul_plan_text(const MatmulPlan *plan, char *text, size_t text_bytes)
{
    const MatmulShape *shape = &plan->shape;
    (void)snprintf(text, text_bytes,
                   "cuBLASLt %zu: %" PRId64 " products of %" PRId64 " x %" PRId64 " x %" PRId64
                   ", pitches %" PRId64 " %" PRId64 " %" PRId64 ", types %d %d, %d%d%d%d%d, way %d",
                   cublasLtGetVersion(), shape->batch > 1 ? shape->batch : 1, shape->rows, shape->inner,
                   shape->columns, shape->pitch_a, shape->pitch_b, shape->pitch_result, (int)shape->operands,
                   (int)shape->result, shape->transpose_a, shape->transpose_b, shape->bias, shape->addend,
                   shape->tf32, plan->way);
    return text;
}

uint64_t matmul_plan_workspace_bytes(const MatmulPlan *plan)
{
    return plan->ways[plan->way].workspaceSize;
}

FshStatus matmul_plan_run(const MatmulPlan *plan, const MatmulOperands *operands, cudaStream_t stream,
                          FshError *error)
{
    const MatmulShape *shape = &plan->shape;
    const float factor = shape->factor != 0 ? shape->factor : 1,
                of_addend = shape->addend_factor != 0 ? shape->addend_factor : 1,
                addend_factor = shape->addend ? of_addend : 0;
    const void *addend = plan->shape.addend ? operands->addend : operands->result;
    FshStatus status = FSH_OK;
    if (plan->shape.bias)
        status = set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands->bias,
                               sizeof operands->bias, error);
    if (!status)
        status = CUBLAS_TRY(cublasLtMatmul(plan->cublas_lt, plan->operation, &factor, operands->b, plan->b,
                                           operands->a, plan->a, &addend_factor, addend, plan->result,
                                           operands->result, plan->result, &plan->ways[plan->way].algo,
                                           operands->workspace, plan->ways[plan->way].workspaceSize, stream),
                            error);
    return status;
}
