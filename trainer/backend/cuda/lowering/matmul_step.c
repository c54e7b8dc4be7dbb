#include "trainer/backend/cuda/lowering/matmul_step.h"

#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

static bool is_forward(const Step *step)
{
    return step->node->op == OP_LINEAR || step->node->op == OP_CONV2D;
}

static bool is_weight_gradient(const Step *step)
{
    return step->node->op == OP_LINEAR_BACKWARD_WEIGHT || step->node->op == OP_CONV2D_BACKWARD_WEIGHT;
}

static const DeviceTensor *addend_of(const Step *step)
{
    return step->node->op == OP_LINEAR ? maybe_in(step, LINEAR_ADDEND) : NULL;
}

FshStatus matmul_step_plan(CudaBackend *backend, const MatmulStep *product, MatmulPlan **plan_ret,
                           FshError *error)
{
    const Step *step = product->step;
    const DeviceTensor *a = in(step, 0), *b = in(step, 1), *result = out(step, 0);
    MatmulShape shape = {.rows = result->rows,
                         .columns = result->pitch,
                         .inner = a->pitch,
                         .pitch_a = a->pitch,
                         .pitch_b = b->pitch,
                         .pitch_result = result->pitch,
                         .operands = a->element,
                         .result = result->element,
                         .tf32 = backend->tf32};
    if (is_weight_gradient(step)) { /* dweight = dy' x */
        shape.inner = a->rows;
        shape.transpose_a = true;
    } else if (is_forward(step)) { /* else dx = dy weight */
        shape.transpose_b = true;
        shape.bias = product->bias != NULL;
        shape.addend = addend_of(step) != NULL;
    }
    return matmul_plan_new(plan_ret, backend->cublas_lt, &shape, error);
}

FshStatus matmul_step_run(const MatmulStep *product, const MatmulPlan *plan, void *workspace,
                          cudaStream_t stream, FshError *error)
{
    const Step *step = product->step;
    const DeviceTensor *addend = addend_of(step);
    const MatmulOperands operands = {.a = in(step, 0)->data,
                                     .b = in(step, 1)->data,
                                     .bias = product->bias ? product->bias->data : NULL,
                                     .addend = addend ? addend->data : NULL,
                                     .result = out(step, 0)->data,
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
