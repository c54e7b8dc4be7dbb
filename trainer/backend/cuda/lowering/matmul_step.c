#include "trainer/backend/cuda/lowering/matmul_step.h"

#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

MatmulStep matmul_step_of(const Step *step)
{
    const OpKind op = step->node->op;
    const bool scales = op == OP_SCALED_LINEAR, is_forward = op == OP_LINEAR || op == OP_CONV2D || scales,
               of_weight = op == OP_LINEAR_BACKWARD_WEIGHT || op == OP_CONV2D_BACKWARD_WEIGHT ||
                           op == OP_SCALED_LINEAR_BACKWARD_WEIGHT;
    return (MatmulStep){.kind = is_forward  ? MATMUL_FORWARD
                                : of_weight ? MATMUL_WEIGHT_GRADIENT
                                            : MATMUL_DATA_GRADIENT,
                        .a = in(step, 0),
                        .b = scales ? out(step, LINEAR_SCALED_WEIGHT) : in(step, 1),
                        .result = out(step, 0),
                        .addend = op == OP_LINEAR || scales ? maybe_in(step, LINEAR_ADDEND) : NULL};
}

FshStatus matmul_step_plan(CudaBackend *backend, const MatmulStep *product, MatmulPlan **plan_ret,
                           FshError *error)
{
    const DeviceTensor *a = product->a, *b = product->b, *result = product->result;
    const bool of_weight = product->kind == MATMUL_WEIGHT_GRADIENT;
    const MatmulShape shape = {.rows = result->rows,
                               .columns = result->pitch,
                               .inner = of_weight ? a->rows : a->pitch,
                               .pitch_a = a->pitch,
                               .pitch_b = b->pitch,
                               .pitch_result = result->pitch,
                               .operands = a->element,
                               .result = result->element,
                               .transpose_a = of_weight,
                               .transpose_b = product->kind == MATMUL_FORWARD,
                               .bias = product->bias != NULL,
                               .addend = product->addend != NULL,
                               .tf32 = backend->tf32};
    return matmul_plan_new(plan_ret, backend->cublas_lt, &shape, error);
}

FshStatus matmul_step_run(const MatmulStep *product, const MatmulPlan *plan, void *workspace,
                          cudaStream_t stream, FshError *error)
{
    const MatmulOperands operands = {.a = product->a->data,
                                     .b = product->b->data,
                                     .bias = product->bias ? product->bias->data : NULL,
                                     .addend = product->addend ? product->addend->data : NULL,
                                     .result = product->result->data,
                                     .workspace = workspace};
    return matmul_plan_run(plan, &operands, stream, error);
}

/* A way on its trial. */
typedef struct Way {
    const MatmulStep *product;
    const MatmulPlan *plan;
} Way;

static FshStatus enqueue_way(const void *context, void *workspace, cudaStream_t stream, FshError *error)
{
    const Way *way = context;
    return matmul_step_run(way->product, way->plan, workspace, stream, error);
}

double matmul_step_choose(CudaBackend *backend, const MatmulStep *product, MatmulPlan *plan, int most,
                          int *way_ret)
{
    double least = 0;
    *way_ret = 0;
    for (int way = 0; way < matmul_plan_ways(plan) && way < most; way++) {
        char text[256];
        const Way tried = {product, plan};
        FshError ignored = {0};
        double milliseconds = 0;
        matmul_plan_take(plan, way);
        const Trial trial = {enqueue_way, &tried, matmul_plan_workspace_bytes(plan)};
        if (trial_milliseconds(backend, matmul_plan_text(plan, text, sizeof text), &trial, &milliseconds,
                               &ignored) == FSH_OK &&
            (least == 0 || milliseconds < least)) {
            least = milliseconds;
            *way_ret = way;
        }
    }
    matmul_plan_take(plan, *way_ret);
    return least;
}
