#include "trainer/backend/cuda/lowering.h"
#include "trainer/backend/cuda/kernels_norm.h"

/* cuDNN's plans: plain float32 sums that come out the same each time. Candidates only matter when they are
 * timed. */
enum { TIMED_CANDIDATES = 8 };
static const uint64_t convolution_workspace_limit_bytes = UINT64_C(2) << 30;

static const cudnnDataType_t cudnn_types[] = {
    [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_U8] = CUDNN_DATA_UINT8, [ELEMENT_I64] = CUDNN_DATA_INT64};

/* NHWC and OHWI are N, C, H, W and K, C, R, S to cuDNN, with strides that say how they lie. */
static int convolution_tensor(CudnnPlan *plan, const DeviceTensor *tensor)
{
    const int64_t dimensions[4] = {tensor->shape[0], tensor->shape[3], tensor->shape[1], tensor->shape[2]};
    return cudnn_plan_tensor(plan, cudnn_types[tensor->element], dimensions);
}

/* Which of a node's tensors are x, weight and y of the convolution y = x * weight; one of them is the result.
 */
typedef struct Convolution {
    ConvolutionKind kind;
    const DeviceTensor *x, *weight, *y;
} Convolution;

static Convolution convolution_of(const Step *step)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return (Convolution){CONVOLUTION_BACKWARD_DATA, .x = out(step, 0), .weight = in(step, 1),
                             .y = in(step, 0)};
    case OP_CONV2D_BACKWARD_WEIGHT:
        return (Convolution){CONVOLUTION_BACKWARD_WEIGHT, .x = in(step, 1), .weight = out(step, 0),
                             .y = in(step, 0)};
    default:
        return (Convolution){CONVOLUTION_FORWARD, .x = in(step, 0), .weight = in(step, 1), .y = out(step, 0)};
    }
}

static void free_plan(void *plan)
{
    CudnnPlan *owned = plan;
    cudnn_plan_free(&owned);
}

static FshStatus convolution_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const CudaBackend *backend = program_backend(program);
    const Convolution convolution = convolution_of(step);
    if (step->node->as.conv.groups > 1)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no convolution in groups; use --device cpu");
    const ConvolutionShape shape = {step->node->as.conv.stride, step->node->as.conv.padding};
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TF32 | CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE,
                                backend->benchmark ? TIMED_CANDIDATES : 1, convolution_workspace_limit_bytes};
    CudnnPlan *plan = NULL;
    FshStatus status = cudnn_plan_new(&plan, &backend->cudnn, error);
    if (status)
        return status;
    step_own(step, plan, free_plan);
    int x = convolution_tensor(plan, convolution.x);
    int weight = convolution_tensor(plan, convolution.weight);
    int y = convolution_tensor(plan, convolution.y);
    cudnn_plan_convolution(plan, convolution.kind, x, weight, y, &shape);
    status = cudnn_plan_build(plan, &policy, error);
    want_scratch(step, cudnn_plan_workspace_bytes(plan));
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        want_scratch(step, kernel_column_scratch_bytes(convolution.y));
    return status;
}

static FshStatus convolution_bind(const CudaProgram *program, Step *step, FshError *error)
{
    const Convolution convolution = convolution_of(step);
    void *const data[] = {convolution.x->data, convolution.weight->data, convolution.y->data};
    FshStatus status = cudnn_plan_bind(step->plan, data, step->scratch, error);
    if (!status && cudnn_plan_candidates(step->plan) > 1)
        status = cudnn_plan_choose(step->plan, program_backend(program)->stream, error);
    return status;
}

/* y's bias, or the gradient of the bias from that of y. */
static FshStatus convolution(const Step *step, cudaStream_t stream, FshError *error)
{
    FshStatus status = cudnn_plan_run(step->plan, error);
    if (!status && step->node->op == OP_CONV2D && maybe_in(step, 2))
        status = CUDA_TRY(kernel_add_bias(out(step, 0), in(step, 2), stream), error);
    if (!status && step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        status = CUDA_TRY(kernel_column_sum(in(step, 0), out(step, 1), step->scratch, stream), error);
    return status;
}

const LoweringRow lowering_convolution[] = {
    {OP_CONV2D, {convolution_prepare, convolution_bind, convolution}},
    {OP_CONV2D_BACKWARD_DATA, {convolution_prepare, convolution_bind, convolution}},
    {OP_CONV2D_BACKWARD_WEIGHT, {convolution_prepare, convolution_bind, convolution}},
    {OP_KIND_COUNT, {NULL}},
};
