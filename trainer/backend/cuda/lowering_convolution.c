/* Convolutions: cuDNN's plans (cudnn_cache.h), and own kernels around them.
 *
 * To cuDNN every dimension is what lies in memory: of narrow tensors the padded channels, whose zeros add nothing. */
#include "trainer/backend/cuda/kernels_norm.h"
#include "trainer/backend/cuda/lowering.h"
#include "trainer/backend/cuda/state.h"

#include <stdlib.h>

enum { TIMED_CANDIDATES = 10 };
static const uint64_t convolution_workspace_limit_bytes = UINT64_C(2) << 30;

static const cudnnDataType_t cudnn_types[] = {
    [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_BF16] = CUDNN_DATA_BFLOAT16, [ELEMENT_F16] = CUDNN_DATA_HALF};

/* What a step keeps: whose plan it runs, and the addresses. */
typedef struct ConvolutionPlan {
    const CudnnPlan *cudnn; /* the backend's */
    CudnnPack pack;         /* owned */
} ConvolutionPlan;

static void free_plan(void *plan)
{
    ConvolutionPlan *owned = plan;
    cudnn_pack_free(&owned->pack);
    free(owned);
}

/* NHWC and OHWI are N, C, H, W and K, C, R, S to cuDNN, with strides that say how they lie. */
static int convolution_tensor(CudnnPlan *plan, const DeviceTensor *tensor)
{
    const int64_t pixels = tensor->shape[1] * tensor->shape[2];
    return cudnn_plan_tensor(
        plan, cudnn_types[tensor->element],
        (int64_t[4]){tensor->rows / pixels, tensor->pitch, tensor->shape[1], tensor->shape[2]});
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

/* float32: TF32 only where it is allowed. Narrow types have the matrix units in any case. */
static CudnnPolicy policy_of(const CudaBackend *backend, ElementType element)
{
    uint32_t refused = CUDNN_NOTES_OF_TRANSFORMS;
    if (!element_is_narrow(element) && !backend->tf32)
        refused |= CUDNN_NOTES_OF_TF32;
    if (backend->deterministic)
        refused |= CUDNN_NOTES_OF_CHANCE;
    return (CudnnPolicy){refused, backend->benchmark ? TIMED_CANDIDATES : 1,
                         convolution_workspace_limit_bytes};
}

/* Weights are float32 in the State; beside narrow activations their narrow copy stands in. */
static FshStatus narrow_weight(const CudaProgram *program, Step *step, ElementType element, FshError *error)
{
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT || !element_is_narrow(element))
        return FSH_OK;
    const Tensor *weight = graph_tensor(program->base.graph, step->node->inputs[1]);
    const DeviceTensor *narrow = cuda_state_narrow(program->base.state, weight->name, element, error);
    if (!narrow)
        return error->status;
    step->inputs[1] = *narrow;
    return FSH_OK;
}

static FshStatus convolution_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    CudaBackend *backend = program_backend(program);
    if (step->node->as.conv.groups > 1)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no convolution in groups; use --device cpu");
    ConvolutionPlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a convolution");
    step_own(step, plan, free_plan);
    const ElementType element = in(step, 0)->element;
    CudnnPlan *described = NULL;
    FshStatus status = narrow_weight(program, step, element, error);
    if (!status)
        status = cudnn_plan_new(&described, &backend->cudnn, error);
    if (status)
        return status;
    const Convolution convolution = convolution_of(step);
    const ConvolutionShape shape = {step->node->as.conv.stride, step->node->as.conv.padding};
    int x = convolution_tensor(described, convolution.x);
    int weight = convolution_tensor(described, convolution.weight);
    int y = convolution_tensor(described, convolution.y);
    cudnn_plan_convolution(described, convolution.kind, x, weight, y, &shape);
    const CudnnPolicy policy = policy_of(backend, element);
    void *const data[] = {convolution.x->data, convolution.weight->data, convolution.y->data};
    const CudnnTrial trial = {data, backend->stream};
    status = cudnn_cache_get(backend->plans, &described, &policy, backend->benchmark ? &trial : NULL,
                             &plan->cudnn, error);
    if (status)
        return status;
    want_scratch(step, cudnn_plan_workspace_bytes(plan->cudnn));
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        want_scratch(step, kernel_column_scratch_bytes(convolution.y));
    return FSH_OK;
}

static FshStatus convolution_bind(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    ConvolutionPlan *plan = step->plan;
    const Convolution convolution = convolution_of(step);
    void *const data[] = {convolution.x->data, convolution.weight->data, convolution.y->data};
    return cudnn_pack_new(&plan->pack, plan->cudnn, data, step->scratch, error);
}

/* y's bias, or the gradient of the bias from that of y. */
static FshStatus convolution(const Step *step, cudaStream_t stream, FshError *error)
{
    const ConvolutionPlan *plan = step->plan;
    FshStatus status = cudnn_plan_run(plan->cudnn, plan->pack, error);
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
