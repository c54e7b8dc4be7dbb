/* Convolutions: cuDNN's plans (cudnn_convolution.h), and own kernels around them or in their place. */
#include "trainer/backend/cuda/lowering/lowering.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/lowering/convolution_ways.h"
#include "trainer/backend/cuda/lowering/direct_step.h"
#include "trainer/backend/cuda/lowering/group_step.h"
#include "trainer/backend/cuda/lowering/patch_step.h"
#include "trainer/backend/cuda/lowering/stem_step.h"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"
#include "trainer/backend/cuda/lowering/weight_copies.h"

enum { TIMED_PROGRAMS = 8 };
static void free_plan(void *plan)
{
    ConvolutionPlan *owned = plan;
    cudnn_pack_free(&owned->pack);
    matmul_plan_free(&owned->product);
    cudnn_cache_release(owned->backend->plans, owned->cudnn);
    free(owned);
}

/* ---- which way ---- */

/* Returns whether the channels of each group lie where cuDNN looks for them: nothing may be padded between
 * groups. */
static bool groups_fit(const Step *step, const Convolution *convolution)
{
    const int64_t groups = step->node->as.conv.options.groups, in_group = convolution->x.shape[3] / groups;
    return !element_is_narrow(convolution->x.element) ||
           (in_group % PADDED_CHANNELS == 0 && convolution->y.shape[3] % PADDED_CHANNELS == 0);
}

static bool is_stem(const Step *step, const Convolution *convolution)
{
    return element_is_narrow(convolution->x.element) && convolution->kind != CONVOLUTION_BACKWARD_DATA &&
           conv2d_is_stem(&step->node->as.conv.options, convolution->x.shape[3]);
}

/* Sets the convolution that cuDNN is to compute in place of the node's. */
static void fold(ConvolutionPlan *plan, const Conv2d *conv)
{
    Convolution *convolution = &plan->convolution;
    const DeviceTensor *y = &convolution->y;
    plan->way = WAY_FOLDED;
    plan->own_image = plan->own_weight = true;
    plan->fold = fold_of(conv->kernel, conv->padding);
    const int64_t taps = plan->fold.taps;
    const int64_t channels = taps * FOLDED_CHANNELS;
    convolution->x =
        device_tensor_loose(y->element, y->shape[0], y->shape[1] + taps - 1, y->shape[2], channels);
    convolution->weight = device_tensor_loose(y->element, y->pitch, taps, 1, channels);
    convolution->shape = (ConvolutionShape){.stride = 1, .padding = 0};
}

static void join_groups(ConvolutionPlan *plan, int64_t joined)
{
    const DeviceTensor *weight = &plan->convolution.weight;
    plan->way = WAY_JOINED;
    plan->own_weight = true;
    plan->convolution.weight = device_tensor_loose(plan->convolution.y.element, weight->shape[0],
                                                   weight->shape[1], weight->shape[2], joined);
}

/* ---- cuDNN's plans ---- */

/* Finds what cuDNN could do with y on its way to memory. It has epilogues for narrow types. It makes sums by
 * atomics, in another order each time. It compiles kernels with a leaky ReLU when it is asked for them, 0.1
 * to 2 s for each, which pays where plans are timed and kept; those with a bias alone or a plain ReLU are
 * there. */
static FshStatus find_epilogue(const CudaProgram *program, Step *step, ConvolutionPlan *plan, FshError *error)
{
    const DeviceTensor *y = &plan->convolution.y, *sums = maybe_out(step, CONV_SUMS);
    if (step->node->op != OP_CONV2D || !element_is_narrow(y->element))
        return FSH_OK;
    const bool relu = step->node->as.conv.relu;
    const float slope = relu ? step->node->as.conv.slope : 0;
    if (node_reads_copy(program->base.graph, step->node, CONV_BIAS) && (slope == 0 || plan->timed)) {
        const DeviceTensor bias = *in(step, CONV_BIAS); /* our own pass would add the float32 one */
        FshStatus status = lowering_narrow_weight(program, step, CONV_BIAS, error);
        if (status)
            return status;
        plan->possible = (Epilogue){relu ? EPILOGUE_BIAS_RELU : EPILOGUE_BIAS, *in(step, CONV_BIAS), slope};
        step->inputs[CONV_BIAS] = bias;
    } else if (sums && !maybe_in(step, CONV_BIAS) && !program_backend(program)->deterministic &&
               sums->pitch == y->pitch) {
        plan->possible = (Epilogue){EPILOGUE_SUMS, *sums, 0};
    }
    return FSH_OK;
}

/* ---- the steps ---- */

/* The passes of our own that the convolution's launch leaves to do: over y, or, for the bias gradient, over
 * dy. */
typedef struct Passes {
    bool bias, relu, sums, bias_gradient; /* bias: with the activation, if there is one */
} Passes;

/* Returns the passes that are left. Kernels for depthwise convolutions add the bias and make its gradient;
 * those for few channels add the bias, activate and make the sums; those for 3 x 3 and for stems make the
 * sums. */
static Passes passes_left(const Step *step, const ConvolutionPlan *plan)
{
    const bool forward = step->node->op == OP_CONV2D, depthwise = plan->way == WAY_DEPTHWISE;
    const bool direct = plan->way == WAY_DIRECT;
    const bool added = plan->fused && epilogue_adds_bias(&plan->possible);
    const bool makes_sums = direct || plan->way == WAY_IMPLICIT || plan->way == WAY_STEM ||
                            (plan->fused && plan->possible.kind == EPILOGUE_SUMS);
    return (Passes){.bias = forward && maybe_in(step, CONV_BIAS) && !depthwise && !direct && !added,
                    .relu = forward && step->node->as.conv.relu && depthwise,
                    .sums = forward && maybe_out(step, CONV_SUMS) && !makes_sums,
                    .bias_gradient = step->node->op == OP_CONV2D_BACKWARD_WEIGHT &&
                                     maybe_out(step, CONV_WEIGHT_DBIAS) && !depthwise};
}

static const char *const way_names[] = {
    [WAY_CUDNN] = "cudnn",         [WAY_FOLDED] = "folded-cudnn", [WAY_PATCHES] = "patches-cudnn",
    [WAY_JOINED] = "joined-cudnn", [WAY_DEPTHWISE] = "depthwise", [WAY_DIRECT] = "direct",
    [WAY_IMPLICIT] = "implicit",   [WAY_STEM] = "stem",           [WAY_MATMUL] = "cublaslt"};
static const char *const fused_names[] = {[EPILOGUE_NONE] = "",
                                          [EPILOGUE_SUMS] = "+sums",
                                          [EPILOGUE_BIAS] = "+bias",
                                          [EPILOGUE_BIAS_RELU] = "+bias+relu"};

/* Names what `convolution` enqueues, for program_node_engine. */
static void name_engine(Step *step, const ConvolutionPlan *plan)
{
    const Passes left = passes_left(step, plan);
    const bool cast = plan->own_weight && plan->way == WAY_CUDNN;
    (void)snprintf(step->engine, sizeof step->engine, "%s%s%s%s%s%s%s", way_names[plan->way],
                   fused_names[plan->fused ? plan->possible.kind : EPILOGUE_NONE], cast ? " cast" : "",
                   left.bias ? " bias" : "", left.relu ? " relu" : "", left.sums ? " sums" : "",
                   left.bias_gradient ? " bias-gradient" : "");
}

static FshStatus prepare_depthwise(Step *step, ConvolutionPlan *plan)
{
    const Conv2d *conv = &step->node->as.conv.options;
    plan->way = WAY_DEPTHWISE;
    plan->depthwise = (Depthwise){conv->kernel, conv->stride, conv->padding};
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT)
        want_scratch(step, kernel_depthwise_scratch_bytes(in(step, CONV_WEIGHT_DY), &plan->depthwise));
    (void)snprintf(step->told, sizeof step->told, "own depthwise kernel");
    name_engine(step, plan);
    return FSH_OK;
}

/* Returns whether nothing but the kernels for few channels does the step: cuDNN neither mirrors images nor
 * reads bytes, but for stems. */
static bool is_direct_alone(const Step *step, const Convolution *convolution)
{
    const DeviceTensor *x = step->node->op == OP_CONV2D                   ? in(step, CONV_X)
                            : step->node->op == OP_CONV2D_BACKWARD_WEIGHT ? in(step, CONV_WEIGHT_X)
                                                                          : NULL;
    return step->node->as.conv.options.reflects ||
           (x && x->element == ELEMENT_U8 && !is_stem(step, convolution));
}

static FshStatus prepare_direct(Step *step, ConvolutionPlan *plan, FshError *error)
{
    if (!direct_step_fits(step, &plan->direct))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: cuda has no kernel for this convolution of mirrored images or bytes; use "
                             "--no-fuse pad-conv,normalize-conv",
                             step->node->name);
    plan->way = WAY_DIRECT;
    want_scratch(step, direct_step_scratch_bytes(step, &plan->direct));
    (void)snprintf(step->told, sizeof step->told, "own kernel for few channels");
    name_engine(step, plan);
    return FSH_OK;
}

/* Returns whether timing plans pays. Whole images are evaluated one at a time, each in its own size: after
 * the first sizes, timing ten ways for another one takes far longer than the best of them saves. */
static bool pays_to_time(const CudaProgram *program, const Convolution *convolution)
{
    const Graph *graph = program->base.graph;
    size_t n = 0;
    while (n < graph_node_count(graph) && graph_node(graph, (NodeId)n)->op != OP_UPDATE)
        n++;
    return n < graph_node_count(graph) || convolution->y.shape[0] > 1 ||
           program_backend(program)->program_count <= TIMED_PROGRAMS;
}

/* Leaves the sums out where the norm that follows makes statistics and result in one launch: it does so in
 * less time than the sums cost the convolution: pyramidnet-110-270 at batch 64, whose norms all do, 5,158
 * images/s without any sums, 4,962 with; resnet50 at 160 px 11,867 and 11,576 at batch 64, but 16,755 and
 * 17,230 at 512 (H200, 2026-11-21); conv8, of kernels for few channels, 5,934,000 and 5,726,000
 * (2026-11-29). */
static void leave_out_sums(const CudaProgram *program, Step *step)
{
    if (step->node->op == OP_CONV2D && maybe_out(step, CONV_SUMS) &&
        kernel_batch_norm_is_whole(out(step, CONV_Y)) &&
        !lowering_sums_are_wanted(program, step->node->outputs[CONV_SUMS]))
        step->outputs[CONV_SUMS].data = NULL; /* the norm's step looks here */
}

/* Asks for cuDNN's plans of the convolution as it stands. */
static FshStatus want_cudnn(const ConvolutionPlan *plan, FshError *error)
{
    FshStatus status =
        cudnn_convolution_want(plan->backend, &plan->convolution, &epilogue_none, plan->timed, error);
    return !status && plan->possible.kind != EPILOGUE_NONE
               ? cudnn_convolution_want(plan->backend, &plan->convolution, &plan->possible, plan->timed,
                                        error)
               : status;
}

/* Decides the way, and asks for cuDNN's plans. */
static FshStatus convolution_want(const CudaProgram *program, Step *step, FshError *error)
{
    CudaBackend *backend = program_backend(program);
    const Conv2d *conv = &step->node->as.conv.options;
    ConvolutionPlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a convolution");
    step_own(step, plan, free_plan);
    plan->backend = backend;
    plan->convolution = convolution_of(step);
    plan->timed = backend->benchmark && pays_to_time(program, &plan->convolution);
    /* after the convolution, on the same scratch memory */
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT && maybe_out(step, CONV_WEIGHT_DBIAS))
        want_scratch(step, kernel_column_scratch_bytes(in(step, CONV_WEIGHT_DY)));
    if (node_is_depthwise(program->base.graph, step->node))
        return prepare_depthwise(step, plan);
    const int64_t joined = groups_joined_channels(conv, &plan->convolution.x, &plan->convolution.y);
    if (conv->groups > 1 && !joined && !groups_fit(step, &plan->convolution))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no convolution in 16 bits of %lld groups of %lld channels: channels "
                             "of a group must be a multiple of %d, or several groups together; use --amp off",
                             (long long)conv->groups,
                             (long long)(plan->convolution.x.shape[3] / conv->groups), PADDED_CHANNELS);
    if (node_reads_copy(program->base.graph, step->node, CONV_WEIGHT)) {
        FshStatus status = lowering_narrow_weight(program, step, CONV_WEIGHT, error);
        if (status)
            return status;
        plan->convolution.weight = *in(step, CONV_WEIGHT);
    }
    leave_out_sums(program, step);
    if (is_direct_alone(step, &plan->convolution))
        return prepare_direct(step, plan, error);
    if (step->node->op == OP_CONV2D && maybe_out(step, CONV_SUMS))
        want_scratch(step, kernel_column_scratch_bytes(out(step, CONV_Y)));
    if (is_stem(step, &plan->convolution)) {
        fold(plan, conv);
    } else if (joined) {
        join_groups(plan, joined);
    } else if (plan->convolution.weight.element != plan->convolution.y.element) {
        /* of groups, whose gradients are float32: cuDNN writes none from narrow images */
        plan->own_weight = true;
        plan->convolution.weight.element = plan->convolution.y.element;
    }
    FshStatus status = find_epilogue(program, step, plan, error);
    if (!status)
        status = want_cudnn(plan, error);
    if (!status && plan->way == WAY_CUDNN && patch_step_fits(step, plan->timed)) {
        ConvolutionPlan cut = *plan;
        convolution_cut_patches(step, &cut);
        plan->may_cut = want_cudnn(&cut, NULL) == FSH_OK;
    }
    return status;
}

static FshStatus convolution_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    ConvolutionPlan *plan = step->plan;
    CudaBackend *backend = program_backend(program);
    if (plan->way == WAY_DEPTHWISE || plan->way == WAY_DIRECT)
        return FSH_OK;
    FshStatus status = convolution_choose_way(backend, step, plan, error);
    if (status)
        return status;
    name_engine(step, plan);
    return FSH_OK;
}

static FshStatus convolution_bind(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    ConvolutionPlan *plan = step->plan;
    void *addresses[CONVOLUTION_ADDRESSES];
    if (!convolution_runs_cudnn(plan))
        return FSH_OK;
    convolution_place_own(plan, step->scratch);
    cudnn_convolution_addresses(&plan->convolution, plan->fused ? &plan->possible : &epilogue_none,
                                addresses);
    return cudnn_pack_new(&plan->pack, plan->cudnn, addresses,
                          (char *)step->scratch + convolution_own_bytes(plan), error);
}

static FshStatus fold_image(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                            FshError *error)
{
    const bool backward = step->node->op == OP_CONV2D_BACKWARD_WEIGHT;
    const DeviceTensor *x = backward ? in(step, CONV_WEIGHT_X) : in(step, CONV_X);
    const DeviceTensor *image = &plan->convolution.x;
    const Normalization *pixels = &step->node->as.conv.pixels;
    return x->element == ELEMENT_U8
               ? CUDA_TRY(kernel_fold_bytes(x, pixels->mean, pixels->deviation, &plan->fold, image, stream),
                          error)
               : CUDA_TRY(kernel_fold_image(x, &plan->fold, image, stream), error);
}

/* Makes the image and the weight that cuDNN reads in place of the step's. */
static FshStatus make_operands(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                               FshError *error)
{
    const DeviceTensor *image = &plan->convolution.x, *weight = &plan->convolution.weight;
    FshStatus status = FSH_OK;
    const bool backward = step->node->op == OP_CONV2D_BACKWARD_WEIGHT;
    if (plan->way == WAY_FOLDED)
        status = fold_image(step, plan, stream, error);
    else if (plan->way == WAY_PATCHES)
        status = patch_step_image(step, &plan->patches, image, stream, error);
    if (status || backward)
        return status;
    if (plan->way == WAY_FOLDED)
        return CUDA_TRY(kernel_fold_weight(in(step, CONV_WEIGHT), &plan->fold, weight, stream), error);
    if (plan->way == WAY_PATCHES)
        return CUDA_TRY(kernel_flatten_filter(in(step, CONV_WEIGHT), weight, stream), error);
    return plan->way == WAY_JOINED ? groups_join(step, weight, stream, error) : FSH_OK;
}

/* Makes the step's weight gradient of the one that cuDNN has written. */
static FshStatus take_gradient(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                               FshError *error)
{
    const DeviceTensor *from = &plan->convolution.weight, *to = out(step, CONV_WEIGHT_DWEIGHT);
    switch (plan->way) {
    case WAY_FOLDED:
        return CUDA_TRY(kernel_unfold_weight(from, &plan->fold, to, stream), error);
    case WAY_PATCHES:
        return CUDA_TRY(kernel_unflatten_filter(from, to, stream), error);
    case WAY_JOINED:
        return groups_split(step, from, stream, error);
    default:
        return plan->own_weight ? CUDA_TRY(kernel_cast(from, to, stream), error) : FSH_OK;
    }
}

/* Runs cuDNN, with the passes before and after it. */
static FshStatus run_cudnn(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                           FshError *error)
{
    FshStatus status = make_operands(step, plan, stream, error);
    if (!status)
        status = cudnn_plan_run(plan->cudnn, plan->pack, cuda_cudnn_of(plan->backend, stream), error);
    return !status && step->node->op == OP_CONV2D_BACKWARD_WEIGHT ? take_gradient(step, plan, stream, error)
                                                                  : status;
}

static FshStatus run_product(const Step *step, const ConvolutionPlan *plan, cudaStream_t stream,
                             FshError *error)
{
    const MatmulStep product = convolution_product(step, plan);
    return matmul_step_run(&product, plan->product, step->scratch, stream, error);
}

/* Runs the convolution, then the passes that are left: bias, activation and sums of y, or the bias gradient
 * from dy. */
static FshStatus convolution(const Step *step, cudaStream_t stream, FshError *error)
{
    const ConvolutionPlan *plan = step->plan;
    const Passes left = passes_left(step, plan);
    const float slope = step->node->as.conv.slope;
    FshStatus status =
        plan->way == WAY_DEPTHWISE  ? depthwise_run(step, &plan->depthwise, stream, error)
        : plan->way == WAY_DIRECT   ? direct_step_run(step, &plan->direct, step->scratch, stream, error)
        : plan->way == WAY_IMPLICIT ? implicit_step_run(step, plan->implicit, step->scratch, stream, error)
        : plan->way == WAY_STEM     ? stem_step_run(step, step->scratch, stream, error)
        : plan->way == WAY_MATMUL   ? run_product(step, plan, stream, error)
                                    : run_cudnn(step, plan, stream, error);
    if (!status && left.bias)
        status = CUDA_TRY(kernel_add_bias(out(step, CONV_Y), in(step, CONV_BIAS),
                                          step->node->as.conv.relu ? slope : 1, stream),
                          error);
    if (!status && left.relu)
        status = CUDA_TRY(kernel_relu(out(step, CONV_Y), slope, out(step, CONV_Y), stream), error);
    if (!status && left.sums)
        status = CUDA_TRY(kernel_channel_sums(out(step, CONV_Y), out(step, CONV_SUMS), step->scratch, stream),
                          error);
    if (!status && left.bias_gradient)
        status = CUDA_TRY(
            kernel_column_sum(in(step, CONV_WEIGHT_DY), out(step, CONV_WEIGHT_DBIAS), step->scratch, stream),
            error);
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
