#include "trainer/backend/cuda/lowering/cudnn_convolution.h"

enum { TIMED_CANDIDATES = 16 };
static const uint64_t convolution_workspace_limit_bytes = UINT64_C(2) << 30;

static const cudnnDataType_t cudnn_types[] = {
    [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_BF16] = CUDNN_DATA_BFLOAT16, [ELEMENT_F16] = CUDNN_DATA_HALF};

/* Adds a tensor to the plan. NHWC and OHWI are N, C, H, W and K, C, R, S to cuDNN, with strides that say how
 * they lie. */
static int convolution_tensor(CudnnPlan *plan, const DeviceTensor *tensor)
{
    const int64_t pixels = tensor->shape[1] * tensor->shape[2];
    return cudnn_plan_tensor(
        plan, cudnn_types[tensor->element],
        (int64_t[4]){tensor->rows / pixels, tensor->pitch, tensor->shape[1], tensor->shape[2]});
}

/* Returns which plans are allowed. float32: TF32 only where it is allowed. Narrow types have the matrix units
 * in any case. */
static CudnnPolicy policy_of(const CudaBackend *backend, ElementType element, bool timed)
{
    uint32_t refused = CUDNN_NOTES_OF_TRANSFORMS;
    if (!element_is_narrow(element) && !backend->tf32)
        refused |= CUDNN_NOTES_OF_TF32;
    if (backend->deterministic)
        refused |= CUDNN_NOTES_OF_CHANCE;
    return (CudnnPolicy){refused, timed ? TIMED_CANDIDATES : 1, convolution_workspace_limit_bytes};
}

void cudnn_convolution_addresses(const Convolution *convolution, const Epilogue *epilogue,
                                 void *addresses[CONVOLUTION_ADDRESSES])
{
    const DeviceTensor *tensor = &epilogue->tensor;
    addresses[0] = convolution->x.data;
    addresses[1] = convolution->weight.data;
    addresses[2] = convolution->y.data;
    addresses[3] = tensor->data;
    addresses[4] = epilogue->kind == EPILOGUE_SUMS ? (float *)tensor->data + tensor->pitch : NULL;
}

const Epilogue epilogue_none = {EPILOGUE_NONE, {NULL}, 0};

bool epilogue_adds_bias(const Epilogue *epilogue)
{
    return epilogue->kind == EPILOGUE_BIAS || epilogue->kind == EPILOGUE_BIAS_RELU;
}

/* Describes the convolution and its epilogue to cuDNN. The tensors' ids are the places of their addresses. */
static FshStatus describe(const CudaBackend *backend, const Convolution *convolution,
                          const Epilogue *epilogue, CudnnPlan **plan, FshError *error)
{
    FshStatus status = cudnn_plan_new(plan, &backend->cudnn, error);
    if (status)
        return status;
    CudnnPlan *described = *plan;
    const DeviceTensor *of_y = &convolution->y;
    const int64_t channels[4] = {1, of_y->pitch, 1, 1};
    const int64_t image[4] = {of_y->shape[0], of_y->pitch, of_y->shape[1], of_y->shape[2]};
    int x = convolution_tensor(described, &convolution->x);
    int weight = convolution_tensor(described, &convolution->weight);
    int y = convolution_tensor(described, of_y);
    if (epilogue_adds_bias(epilogue)) {
        int bias = cudnn_plan_tensor(described, cudnn_types[epilogue->tensor.element], channels);
        int products = cudnn_plan_virtual(described, CUDNN_DATA_FLOAT, image);
        int sums =
            epilogue->kind == EPILOGUE_BIAS ? y : cudnn_plan_virtual(described, CUDNN_DATA_FLOAT, image);
        cudnn_plan_convolution(described, convolution->kind, x, weight, products, &convolution->shape);
        cudnn_plan_bias(described, products, bias, sums);
        if (epilogue->kind == EPILOGUE_BIAS_RELU)
            cudnn_plan_relu(described, sums, epilogue->slope, y);
        return FSH_OK;
    }
    cudnn_plan_convolution(described, convolution->kind, x, weight, y, &convolution->shape);
    if (epilogue->kind == EPILOGUE_SUMS) {
        int sum = cudnn_plan_tensor(described, CUDNN_DATA_FLOAT, channels);
        int square_sum = cudnn_plan_tensor(described, CUDNN_DATA_FLOAT, channels);
        cudnn_plan_statistics(described, y, sum, square_sum);
    }
    return FSH_OK;
}

FshStatus cudnn_convolution_want(CudaBackend *backend, const Convolution *convolution,
                                 const Epilogue *epilogue, bool timed, FshError *error)
{
    CudnnPlan *described = NULL;
    const CudnnPolicy policy = policy_of(backend, convolution->x.element, timed);
    FshStatus status = describe(backend, convolution, epilogue, &described, error);
    return status ? status : cudnn_cache_want(backend->plans, &described, &policy, timed, error);
}

FshStatus cudnn_convolution_get(CudaBackend *backend, const Convolution *convolution,
                                const Epilogue *epilogue, bool trial, const CudnnPlan **plan, FshError *error)
{
    CudnnPlan *described = NULL;
    void *addresses[CONVOLUTION_ADDRESSES];
    FshStatus status = describe(backend, convolution, epilogue, &described, error);
    if (status)
        return status;
    cudnn_convolution_addresses(convolution, epilogue, addresses);
    const CudnnPolicy policy = policy_of(backend, convolution->x.element, trial);
    const CudnnTrial on_these = {addresses, backend->stream};
    return cudnn_cache_get(backend->plans, &described, &policy, trial ? &on_these : NULL, plan, error);
}
