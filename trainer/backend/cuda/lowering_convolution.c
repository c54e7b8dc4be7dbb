/* Convolutions: cuDNN's plans (cudnn_cache.h), and own kernels around them or in their place.
 *
 * To cuDNN every dimension is what lies in memory: of narrow tensors the padded channels, whose zeros add nothing. */
#include "trainer/backend/cuda/lowering.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/kernels_convolution.h"
#include "trainer/backend/cuda/kernels_norm.h"
#include "trainer/backend/cuda/kernels_pointwise.h"

/* Stems of smaller kernels than FOLDED_KERNEL_MIN gain less from folding than the pass over the image costs. */
enum { TIMED_CANDIDATES = 10, FOLDED_KERNEL_MIN = 5 };
static const uint64_t convolution_workspace_limit_bytes = UINT64_C(2) << 30;

static const cudnnDataType_t cudnn_types[] = {
    [ELEMENT_F32] = CUDNN_DATA_FLOAT, [ELEMENT_BF16] = CUDNN_DATA_BFLOAT16, [ELEMENT_F16] = CUDNN_DATA_HALF};

/* Which tensors are x, weight and y of the convolution y = x * weight; one of them is the result. */
typedef struct Convolution {
    ConvolutionKind kind;
    DeviceTensor x, weight, y;
    ConvolutionShape shape;
} Convolution;

typedef enum ConvolutionWay {
    WAY_CUDNN,
    WAY_FOLDED,    /* cuDNN on what kernel_fold_image makes of x */
    WAY_DEPTHWISE, /* own kernels */
} ConvolutionWay;

/* What a step keeps. */
typedef struct ConvolutionPlan {
    ConvolutionWay way;
    Convolution convolution; /* as cuDNN sees it */
    bool own_image,
        own_weight; /* x, the weight lie in the step's scratch memory, in this order; workspace behind them */
    Fold fold;
    Depthwise depthwise;
    const CudnnPlan *cudnn; /* the backend's */
    CudnnPack pack;         /* owned */
    bool makes_sums;        /* cuDNN's plan yields output 1, the sums for a norm */
} ConvolutionPlan;

static void free_plan(void *plan)
{
    ConvolutionPlan *owned = plan;
    cudnn_pack_free(&owned->pack);
    free(owned);
}

static Convolution convolution_of(const Step *step)
{
    const ConvolutionShape shape = {step->node->as.conv.stride, step->node->as.conv.padding};
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return (Convolution){CONVOLUTION_BACKWARD_DATA, *out(step, 0), *in(step, 1), *in(step, 0), shape};
    case OP_CONV2D_BACKWARD_WEIGHT:
        return (Convolution){CONVOLUTION_BACKWARD_WEIGHT, *in(step, 1), *out(step, 0), *in(step, 0), shape};
    default:
        return (Convolution){CONVOLUTION_FORWARD, *in(step, 0), *in(step, 1), *out(step, 0), shape};
    }
}

/* ---- which way ---- */

static bool is_depthwise(const Step *step, const Convolution *convolution)
{
    const Conv2d *conv = &step->node->as.conv;
    const Depthwise depthwise = {conv->kernel, conv->stride, conv->padding};
    return conv->groups > 1 && conv->groups == convolution->x.shape[3] &&
           conv->groups == convolution->y.shape[3] && kernel_depthwise_fits(&depthwise);
}

/* Channels of a group must lie where cuDNN looks for them: nothing is padded between groups. */
static bool groups_fit(const Step *step, const Convolution *convolution)
{
    const int64_t groups = step->node->as.conv.groups, in_group = convolution->x.shape[3] / groups;
    return !element_is_narrow(convolution->x.element) ||
           (in_group % PADDED_CHANNELS == 0 && convolution->y.shape[3] % PADDED_CHANNELS == 0);
}

static bool is_stem(const Step *step, const Convolution *convolution)
{
    const Conv2d *conv = &step->node->as.conv;
    return element_is_narrow(convolution->x.element) && convolution->kind != CONVOLUTION_BACKWARD_DATA &&
           conv->groups <= 1 && conv->stride == 2 && conv->kernel >= FOLDED_KERNEL_MIN &&
           convolution->x.shape[3] <= FOLD_CHANNELS_MAX;
}

/* A tensor of y's type whose channels need no padding. */
static DeviceTensor loose_tensor(ElementType element, int64_t outermost, int64_t height, int64_t width,
                                 int64_t channels)
{
    return (DeviceTensor){.element = element,
                          .rank = 4,
                          .shape = {outermost, height, width, channels},
                          .pitch = channels,
                          .rows = outermost * height * width};
}

/* The convolution that cuDNN is to do in place of the node's. */
static void fold(ConvolutionPlan *plan, const Conv2d *conv)
{
    Convolution *convolution = &plan->convolution;
    const DeviceTensor *y = &convolution->y;
    plan->way = WAY_FOLDED;
    plan->own_image = plan->own_weight = true;
    plan->fold = fold_of(conv->kernel, conv->padding);
    const int64_t taps = plan->fold.taps;
    convolution->x = loose_tensor(y->element, y->shape[0], y->shape[1] + taps - 1, y->shape[2] + taps - 1,
                                  FOLDED_CHANNELS);
    convolution->weight = loose_tensor(y->element, y->pitch, taps, taps, FOLDED_CHANNELS);
    convolution->shape = (ConvolutionShape){.stride = 1, .padding = 0};
}

/* ---- cuDNN's plans ---- */

/* NHWC and OHWI are N, C, H, W and K, C, R, S to cuDNN, with strides that say how they lie. */
static int convolution_tensor(CudnnPlan *plan, const DeviceTensor *tensor)
{
    const int64_t pixels = tensor->shape[1] * tensor->shape[2];
    return cudnn_plan_tensor(
        plan, cudnn_types[tensor->element],
        (int64_t[4]){tensor->rows / pixels, tensor->pitch, tensor->shape[1], tensor->shape[2]});
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

enum { ADDRESSES = 5 };

/* By the ids of get_plan's pattern. sums: [2, pitch of y] or NULL. */
static void addresses_of(const Convolution *convolution, const DeviceTensor *sums, void *addresses[ADDRESSES])
{
    addresses[0] = convolution->x.data;
    addresses[1] = convolution->weight.data;
    addresses[2] = convolution->y.data;
    addresses[3] = sums ? sums->data : NULL;
    addresses[4] = sums ? (float *)sums->data + sums->pitch : NULL;
}

static FshStatus describe(const CudaBackend *backend, const Convolution *convolution,
                          const DeviceTensor *sums, CudnnPlan **plan, FshError *error)
{
    FshStatus status = cudnn_plan_new(plan, &backend->cudnn, error);
    if (status)
        return status;
    CudnnPlan *described = *plan;
    int x = convolution_tensor(described, &convolution->x);
    int weight = convolution_tensor(described, &convolution->weight);
    int y = convolution_tensor(described, &convolution->y);
    cudnn_plan_convolution(described, convolution->kind, x, weight, y, &convolution->shape);
    if (sums) {
        const int64_t channels[4] = {1, sums->pitch, 1, 1};
        int sum = cudnn_plan_tensor(described, CUDNN_DATA_FLOAT, channels);
        int square_sum = cudnn_plan_tensor(described, CUDNN_DATA_FLOAT, channels);
        cudnn_plan_statistics(described, y, sum, square_sum);
    }
    return FSH_OK;
}

static FshStatus want_plan(CudaBackend *backend, const Convolution *convolution, const DeviceTensor *sums,
                           FshError *error)
{
    CudnnPlan *described = NULL;
    const CudnnPolicy policy = policy_of(backend, convolution->x.element);
    FshStatus status = describe(backend, convolution, sums, &described, error);
    return status ? status : cudnn_cache_want(backend->plans, &described, &policy, backend->benchmark, error);
}

/* trial: whether all addresses are known and candidates may be timed on them. */
static FshStatus get_plan(CudaBackend *backend, const Convolution *convolution, const DeviceTensor *sums,
                          bool trial, const CudnnPlan **plan, FshError *error)
{
    CudnnPlan *described = NULL;
    void *addresses[ADDRESSES];
    FshStatus status = describe(backend, convolution, sums, &described, error);
    if (status)
        return status;
    addresses_of(convolution, sums, addresses);
    const CudnnPolicy policy = policy_of(backend, convolution->x.element);
    const CudnnTrial on_these = {addresses, backend->stream};
    return cudnn_cache_get(backend->plans, &described, &policy,
                           trial && backend->benchmark ? &on_these : NULL, plan, error);
}

/* Milliseconds for a pass over y to make its sums: at the greater part of what the memory moves. */
static double milliseconds_of_sums(const DeviceTensor *y)
{
    int device = 0, clock_kilohertz = 0, bus_bits = 0;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&clock_kilohertz, cudaDevAttrMemoryClockRate, device);
    (void)cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device);
    const double bytes_per_millisecond = 2.0 * clock_kilohertz * bus_bits / 8 * 0.8;
    return bytes_per_millisecond > 0 ? (double)device_tensor_bytes(y) / bytes_per_millisecond : 0;
}

/* The sums that cuDNN may make with y; NULL: none are asked for, or it cannot. It makes them by atomics, in another order each
 * time. */
static const DeviceTensor *sums_of_plan(const CudaBackend *backend, const Step *step,
                                        const ConvolutionPlan *plan)
{
    const DeviceTensor *sums = step->node->op == OP_CONV2D ? maybe_out(step, 1) : NULL;
    const DeviceTensor *y = &plan->convolution.y;
    const bool able = !backend->deterministic && element_is_narrow(y->element) && !maybe_in(step, 2);
    return sums && able && sums->pitch == y->pitch ? sums : NULL;
}

/* A plan that yields the sums, too, if there is one and it does not cost more than a pass over y. */
static void try_sums(CudaBackend *backend, ConvolutionPlan *plan, const DeviceTensor *sums, bool trial)
{
    const CudnnPlan *with_sums = NULL;
    FshError ignored = {0};
    if (get_plan(backend, &plan->convolution, sums, trial, &with_sums, &ignored))
        return;
    const double plain = cudnn_plan_milliseconds(plan->cudnn), fused = cudnn_plan_milliseconds(with_sums);
    if (plain > 0 && fused > plain + milliseconds_of_sums(&plan->convolution.y))
        return;
    plan->cudnn = with_sums;
    plan->makes_sums = true;
}

static uint64_t own_image_bytes(const ConvolutionPlan *plan)
{
    return plan->own_image ? device_tensor_room_bytes(&plan->convolution.x) : 0;
}

static uint64_t own_bytes(const ConvolutionPlan *plan)
{
    return own_image_bytes(plan) +
           (plan->own_weight ? device_tensor_room_bytes(&plan->convolution.weight) : 0);
}

static void place_own(ConvolutionPlan *plan, void *memory)
{
    if (plan->own_image)
        plan->convolution.x.data = memory;
    if (plan->own_weight)
        plan->convolution.weight.data = (char *)memory + own_image_bytes(plan);
}

static FshStatus choose_cudnn(CudaBackend *backend, Step *step, ConvolutionPlan *plan, FshError *error)
{
    void *lent = NULL; /* scratch memory is not there yet, and candidates are timed */
    const bool trial = !backend->benchmark || !cuda_memory_new(&lent, own_bytes(plan), "a trial", error);
    place_own(plan, lent);
    FshStatus status = get_plan(backend, &plan->convolution, NULL, trial, &plan->cudnn, error);
    const DeviceTensor *sums = sums_of_plan(backend, step, plan);
    if (!status && sums)
        try_sums(backend, plan, sums, trial);
    cuda_memory_free(&lent);
    if (status)
        return status;
    char text[80];
    (void)snprintf(step->told, sizeof step->told, "%scuDNN %s%s", plan->way == WAY_FOLDED ? "folded, " : "",
                   cudnn_plan_describe(plan->cudnn, text, sizeof text),
                   plan->makes_sums ? ", with sums" : "");
    want_scratch(step, own_bytes(plan) + cudnn_plan_workspace_bytes(plan->cudnn));
    return FSH_OK;
}

/* ---- the steps ---- */

static FshStatus prepare_depthwise(Step *step, ConvolutionPlan *plan)
{
    const Conv2d *conv = &step->node->as.conv;
    plan->way = WAY_DEPTHWISE;
    plan->depthwise = (Depthwise){conv->kernel, conv->stride, conv->padding};
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT)
        want_scratch(step, kernel_depthwise_scratch_bytes(in(step, 0), &plan->depthwise));
    (void)snprintf(step->told, sizeof step->told, "own depthwise kernel");
    return FSH_OK;
}

/* Decides the way, and wants cuDNN's plans. */
static FshStatus convolution_want(const CudaProgram *program, Step *step, FshError *error)
{
    CudaBackend *backend = program_backend(program);
    const Conv2d *conv = &step->node->as.conv;
    ConvolutionPlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a convolution");
    step_own(step, plan, free_plan);
    plan->convolution = convolution_of(step);
    /* behind the convolution, on the same scratch memory */
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    if (step->node->op == OP_CONV2D && maybe_out(step, 1))
        want_scratch(step, kernel_column_scratch_bytes(out(step, 0)));
    if (is_depthwise(step, &plan->convolution))
        return prepare_depthwise(step, plan);
    if (conv->groups > 1 && !groups_fit(step, &plan->convolution))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no convolution in 16 bits of %lld groups of %lld channels: channels "
                             "of a group must be a "
                             "multiple of %d; use --amp off",
                             (long long)conv->groups,
                             (long long)(plan->convolution.x.shape[3] / conv->groups), PADDED_CHANNELS);
    if (step->node->op != OP_CONV2D_BACKWARD_WEIGHT) {
        FshStatus status = lowering_narrow_weight(program, step, 1, error);
        if (status)
            return status;
        plan->convolution.weight = *in(step, 1);
    }
    if (is_stem(step, &plan->convolution)) {
        fold(plan, conv);
    } else if (plan->convolution.weight.element != plan->convolution.y.element) {
        /* of groups, whose gradients are float32: cuDNN writes none from narrow images */
        plan->own_weight = true;
        plan->convolution.weight.element = plan->convolution.y.element;
    }
    const DeviceTensor *sums = sums_of_plan(backend, step, plan);
    FshStatus status = want_plan(backend, &plan->convolution, NULL, error);
    return status || !sums ? status : want_plan(backend, &plan->convolution, sums, error);
}

static FshStatus convolution_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    ConvolutionPlan *plan = step->plan;
    return plan->way == WAY_DEPTHWISE ? FSH_OK : choose_cudnn(program_backend(program), step, plan, error);
}

static FshStatus convolution_bind(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    ConvolutionPlan *plan = step->plan;
    void *addresses[ADDRESSES];
    if (plan->way == WAY_DEPTHWISE)
        return FSH_OK;
    place_own(plan, step->scratch);
    addresses_of(&plan->convolution, plan->makes_sums ? out(step, 1) : NULL, addresses);
    return cudnn_pack_new(&plan->pack, plan->cudnn, addresses, (char *)step->scratch + own_bytes(plan),
                          error);
}

static FshStatus run_depthwise(const Step *step, const Depthwise *depthwise, cudaStream_t stream,
                               FshError *error)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return CUDA_TRY(
            kernel_depthwise_backward_data(in(step, 0), in(step, 1), depthwise, out(step, 0), stream), error);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return CUDA_TRY(kernel_depthwise_backward_weight(in(step, 0), in(step, 1), depthwise, out(step, 0),
                                                         step->scratch, stream),
                        error);
    default:
        return CUDA_TRY(kernel_depthwise(in(step, 0), in(step, 1), depthwise, out(step, 0), stream), error);
    }
}

/* cuDNN, with what goes into a stem and comes out of it. */
static FshStatus run_cudnn(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                           FshError *error)
{
    const Convolution *convolution = &plan->convolution;
    const bool folded = plan->way == WAY_FOLDED, backward = step->node->op == OP_CONV2D_BACKWARD_WEIGHT;
    FshStatus status = FSH_OK;
    if (folded)
        status = CUDA_TRY(
            kernel_fold_image(backward ? in(step, 1) : in(step, 0), &plan->fold, &convolution->x, stream),
            error);
    if (!status && folded && !backward)
        status = CUDA_TRY(kernel_fold_weight(in(step, 1), &plan->fold, &convolution->weight, stream), error);
    if (!status)
        status = cudnn_plan_run(plan->cudnn, plan->pack, error);
    if (!status && folded && backward)
        status =
            CUDA_TRY(kernel_unfold_weight(&convolution->weight, &plan->fold, out(step, 0), stream), error);
    if (!status && !folded && plan->own_weight)
        status = CUDA_TRY(kernel_cast(&convolution->weight, out(step, 0), stream), error);
    return status;
}

/* y's bias and sums, or the gradient of the bias from that of y. */
static FshStatus convolution(const Step *step, cudaStream_t stream, FshError *error)
{
    const ConvolutionPlan *plan = step->plan;
    const OpKind op = step->node->op;
    FshStatus status = plan->way == WAY_DEPTHWISE ? run_depthwise(step, &plan->depthwise, stream, error)
                                                  : run_cudnn(step, plan, stream, error);
    if (!status && op == OP_CONV2D && maybe_in(step, 2))
        status = CUDA_TRY(kernel_add_bias(out(step, 0), in(step, 2), stream), error);
    if (!status && op == OP_CONV2D && maybe_out(step, 1) && !plan->makes_sums)
        status = CUDA_TRY(kernel_channel_sums(out(step, 0), out(step, 1), step->scratch, stream), error);
    if (!status && op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, 1))
        status = CUDA_TRY(kernel_column_sum(in(step, 0), out(step, 1), step->scratch, stream), error);
    return status;
}

/* The same for all: want decides. */
#define CONVOLUTION_LOWERING                                                                                 \
    {                                                                                                        \
        convolution_want, convolution_prepare, convolution_bind, convolution                                 \
    }

const LoweringRow lowering_convolution[] = {
    {OP_CONV2D, CONVOLUTION_LOWERING},
    {OP_CONV2D_BACKWARD_DATA, CONVOLUTION_LOWERING},
    {OP_CONV2D_BACKWARD_WEIGHT, CONVOLUTION_LOWERING},
    {OP_KIND_COUNT, {NULL}},
};
