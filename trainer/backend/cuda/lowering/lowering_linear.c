#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>

#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/lowering/trial.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"

/* y [.., out] = x [.., in] weight' + bias + addend, of matrices and images alike.
 *
 * Padded channels are part of the product: what pads one operand is 0 and so is what it yields, so that
 * narrow results need no pass of their own for their padding. A narrow bias is the State's narrow copy, since
 * cuBLASLt adds one of the result's type.
 *
 * Where plans are timed, those of large products are, too: cuBLASLt's first proposal is not always its
 * fastest. */

static void free_plan(void *plan)
{
    MatmulPlan *owned = plan;
    matmul_plan_free(&owned);
}

/* Below so many products of numbers the first proposal is taken untimed. */
static const double products_timed = 1e9;

static MatmulOperands operands_of(const Step *step, void *workspace)
{
    const bool forward = step->node->op == OP_LINEAR;
    return (MatmulOperands){.a = in(step, 0)->data,
                            .b = in(step, 1)->data,
                            .bias = forward ? in(step, CONV_BIAS)->data : NULL,
                            .addend = forward ? in(step, LINEAR_ADDEND)->data : NULL,
                            .result = out(step, 0)->data,
                            .workspace = workspace};
}

/* A way on its trial. */
typedef struct Way {
    const Step *step;
    const MatmulPlan *plan;
} Way;

static FshStatus enqueue_way(const void *context, void *workspace, cudaStream_t stream, FshError *error)
{
    const Way *way = context;
    const MatmulOperands operands = operands_of(way->step, workspace);
    return matmul_plan_run(way->plan, &operands, stream, error);
}

/* Sets *milliseconds_ret to the time of the plan's way: the one that is known, or one that is measured now on
 * the step's tensors. */
static FshStatus time_of_way(CudaBackend *backend, const Step *step, const MatmulPlan *plan,
                             double *milliseconds_ret, FshError *error)
{
    char text[256];
    const Way way = {step, plan};
    const Trial trial = {enqueue_way, &way, matmul_plan_workspace_bytes(plan)};
    return trial_milliseconds(backend, matmul_plan_text(plan, text, sizeof text), &trial, milliseconds_ret,
                              error);
}

/* Takes the fastest of the plan's ways; one that does not run is left out. */
static void choose_way(CudaBackend *backend, Step *step, MatmulPlan *plan)
{
    double least = 0;
    int fastest = 0;
    for (int way = 0; way < matmul_plan_ways(plan); way++) {
        FshError ignored = {0};
        double milliseconds = 0;
        matmul_plan_take(plan, way);
        if (time_of_way(backend, step, plan, &milliseconds, &ignored) == FSH_OK &&
            (least == 0 || milliseconds < least)) {
            least = milliseconds;
            fastest = way;
        }
    }
    matmul_plan_take(plan, fastest);
    (void)snprintf(step->told, sizeof step->told, "cuBLASLt's proposal %d of %d, %.3f ms", fastest + 1,
                   matmul_plan_ways(plan), least);
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
    /* All three are a product of their first two inputs. */
    const DeviceTensor *a = in(step, 0), *b = in(step, 1), *result = out(step, 0);
    MatmulShape shape = {.rows = result->rows,
                         .columns = result->pitch,
                         .inner = a->pitch,
                         .pitch_a = a->pitch,
                         .pitch_b = b->pitch,
                         .pitch_result = result->pitch,
                         .operands = a->element,
                         .result = result->element,
                         .tf32 = program_backend(program)->tf32};
    if (op == OP_LINEAR_BACKWARD_WEIGHT) { /* dweight = dy' x */
        shape.inner = a->rows;
        shape.transpose_a = true;
        if (maybe_out(step, CONV_WEIGHT_DBIAS))
            want_scratch(step, kernel_column_scratch_bytes(a));
    } else if (op == OP_LINEAR) { /* else dx = dy weight */
        shape.transpose_b = true;
        shape.bias = maybe_in(step, CONV_BIAS) != NULL;
        shape.addend = maybe_in(step, LINEAR_ADDEND) != NULL;
    }
    MatmulPlan *plan = NULL;
    status = matmul_plan_new(&plan, program_backend(program)->cublas_lt, &shape, error);
    if (status)
        return status;
    step_own(step, plan, free_plan);
    if (program_backend(program)->benchmark &&
        (double)shape.rows * (double)shape.columns * (double)shape.inner >= products_timed)
        choose_way(program_backend(program), step, plan);
    (void)snprintf(step->engine, sizeof step->engine, "cublaslt%s%s%s", shape.bias ? "+bias" : "",
                   shape.addend ? "+add" : "",
                   op == OP_LINEAR_BACKWARD_WEIGHT && maybe_out(step, CONV_WEIGHT_DBIAS) ? " bias-gradient"
                                                                                         : "");
    want_scratch(step, matmul_plan_workspace_bytes(plan));
    return FSH_OK;
}

static FshStatus linear(const Step *step, cudaStream_t stream, FshError *error)
{
    const MatmulOperands operands = operands_of(step, step->scratch);
    FshStatus status = matmul_plan_run(step->plan, &operands, stream, error);
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
