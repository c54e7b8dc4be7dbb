#include "trainer/backend/cuda/lowering/convolution_ways.h"

#include <stdio.h>

#include "trainer/backend/cuda/lowering/direct_step.h"
#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/patch_step.h"
#include "trainer/backend/cuda/lowering/stem_step.h"

/* Returns how x lies once it is normalised. */
static DeviceTensor image_of(const DeviceTensor *x, const DeviceTensor *y)
{
    DeviceTensor image = *x;
    if (x->element == ELEMENT_U8) { /* FUSE_NORMALIZE_CONV */
        image.element = y->element;
        image.pitch = padded_channels(x->shape[3]);
    }
    return image;
}

Convolution convolution_of(const Step *step)
{
    const Conv2d *conv = &step->node->as.conv.options;
    const ConvolutionShape shape = {conv->stride, conv->padding};
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return (Convolution){CONVOLUTION_BACKWARD_DATA, *out(step, 0), *in(step, CONV_DATA_WEIGHT),
                             *in(step, CONV_DATA_DY), shape};
    case OP_CONV2D_BACKWARD_WEIGHT:
        return (Convolution){CONVOLUTION_BACKWARD_WEIGHT,
                             image_of(in(step, CONV_WEIGHT_X), in(step, CONV_WEIGHT_DY)),
                             *out(step, CONV_WEIGHT_DWEIGHT), *in(step, CONV_WEIGHT_DY), shape};
    default:
        return (Convolution){CONVOLUTION_FORWARD, image_of(in(step, CONV_X), out(step, CONV_Y)),
                             *in(step, CONV_WEIGHT), *out(step, CONV_Y), shape};
    }
}

/* The time of a kernel that has next to nothing to do, between others of a graph. */
static const double milliseconds_of_start = 0.003;

/* Returns the milliseconds of a pass of our own over y, at four fifths of the memory's rate. writes: the pass
 * writes y, too. */
static double milliseconds_of_pass(const DeviceTensor *y, bool writes)
{
    int device = 0, clock_kilohertz = 0, bus_bits = 0;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&clock_kilohertz, cudaDevAttrMemoryClockRate, device);
    (void)cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device);
    const double bytes_per_millisecond = 2.0 * clock_kilohertz * bus_bits / 8 * 0.8;
    const double bytes = (double)device_tensor_bytes(y) * (writes ? 2 : 1);
    return bytes_per_millisecond > 0 ? bytes / bytes_per_millisecond + milliseconds_of_start : 0;
}

void convolution_cut_patches(const Step *step, ConvolutionPlan *plan)
{
    plan->way = WAY_PATCHES;
    plan->own_image = plan->own_weight = true;
    plan->patches = patch_step_convolution(step, &plan->convolution);
}

/* ---- cuDNN ---- */

/* Takes the plan with the epilogue if there is one and it does not cost more than a pass over y. */
static void try_epilogue(CudaBackend *backend, ConvolutionPlan *plan, bool trial)
{
    const CudnnPlan *with_epilogue = NULL;
    FshError ignored = {0};
    if (cudnn_convolution_get(backend, &plan->convolution, &plan->possible, trial, &with_epilogue, &ignored))
        return;
    const double plain = cudnn_plan_milliseconds(plan->cudnn), fused = cudnn_plan_milliseconds(with_epilogue);
    plan->fused = !(plain > 0 && fused > plain + milliseconds_of_pass(&plan->convolution.y,
                                                                      epilogue_adds_bias(&plan->possible)));
    cudnn_cache_release(backend->plans, plan->fused ? plan->cudnn : with_epilogue);
    if (plan->fused)
        plan->cudnn = with_epilogue;
}

static uint64_t own_image_bytes(const ConvolutionPlan *plan)
{
    return plan->own_image ? device_tensor_room_bytes(&plan->convolution.x) : 0;
}

uint64_t convolution_own_bytes(const ConvolutionPlan *plan)
{
    return own_image_bytes(plan) +
           (plan->own_weight ? device_tensor_room_bytes(&plan->convolution.weight) : 0);
}

void convolution_place_own(ConvolutionPlan *plan, void *memory)
{
    if (plan->own_image)
        plan->convolution.x.data = memory;
    if (plan->own_weight)
        plan->convolution.weight.data = (char *)memory + own_image_bytes(plan);
}

static const char *const epilogue_names[] = {[EPILOGUE_NONE] = "",
                                             [EPILOGUE_SUMS] = ", with sums",
                                             [EPILOGUE_BIAS] = ", with bias",
                                             [EPILOGUE_BIAS_RELU] = ", with bias and ReLU"};

static FshStatus choose_cudnn(CudaBackend *backend, ConvolutionPlan *plan, FshError *error)
{
    void *lent = NULL; /* scratch memory is not there yet, and candidates are timed */
    const bool trial = plan->timed && !cuda_memory_new(&lent, convolution_own_bytes(plan), "a trial", error);
    convolution_place_own(plan, lent);
    FshStatus status =
        cudnn_convolution_get(backend, &plan->convolution, &epilogue_none, trial, &plan->cudnn, error);
    if (!status && plan->possible.kind != EPILOGUE_NONE)
        try_epilogue(backend, plan, trial);
    cuda_memory_free(&lent);
    return status;
}

/* Says what cuDNN does, for people. */
static void tell_cudnn(Step *step, const ConvolutionPlan *plan)
{
    char text[80];
    (void)snprintf(step->told, sizeof step->told, "%scuDNN %s%s",
                   plan->way == WAY_FOLDED    ? "folded, "
                   : plan->way == WAY_PATCHES ? "patches, "
                   : plan->way == WAY_JOINED  ? "groups joined, "
                                              : "",
                   cudnn_plan_describe(plan->cudnn, text, sizeof text),
                   epilogue_names[plan->fused ? plan->possible.kind : EPILOGUE_NONE]);
}

/* What a way does of the passes over y. */
typedef enum Done { NOTHING, BIAS_ADDED, SUMS_MADE } Done;

/* Returns the milliseconds of our own passes over y, for a bias and sums, that are left. */
static double milliseconds_of_passes(const Step *step, const DeviceTensor *y, Done done)
{
    if (step->node->op != OP_CONV2D)
        return 0;
    return (maybe_in(step, CONV_BIAS) && done != BIAS_ADDED ? milliseconds_of_pass(y, true) : 0) +
           (maybe_out(step, CONV_SUMS) && done != SUMS_MADE ? milliseconds_of_pass(y, false) : 0);
}

/* Returns the milliseconds of cuDNN's plan with the passes before and after it; 0: it was not timed. */
static double cudnn_milliseconds(const Step *step, const ConvolutionPlan *plan)
{
    const double milliseconds = cudnn_plan_milliseconds(plan->cudnn);
    if (!plan->timed || milliseconds <= 0)
        return 0;
    return milliseconds + plan->cut_milliseconds +
           (plan->fused ? 0 : milliseconds_of_passes(step, &plan->convolution.y, NOTHING));
}

/* Takes cuDNN's plan over patches if there is one and it is faster, or if plans are not timed. */
static void try_patches(CudaBackend *backend, Step *step, ConvolutionPlan *plan)
{
    ConvolutionPlan cut = *plan;
    FshError ignored = {0};
    bool better = !plan->timed;
    cut.cudnn = NULL;
    cut.fused = false;
    convolution_cut_patches(step, &cut);
    if (choose_cudnn(backend, &cut, &ignored))
        return;
    if (plan->timed && !patch_step_milliseconds(backend, step, &cut.patches, &cut.convolution.x,
                                                &cut.cut_milliseconds, &ignored)) {
        const double with = cudnn_milliseconds(step, &cut);
        better = with > 0 && with < cudnn_milliseconds(step, plan);
    }
    cudnn_cache_release(backend->plans, better ? plan->cudnn : cut.cudnn);
    if (better)
        *plan = cut;
}

/* ---- or our own kernels for few channels ---- */

/* Up to so many pairs of channels our own kernel is taken where plans are not timed: cuDNN is far from the
 * memory's speed there; above nobody knows. */
enum { DIRECT_CHANNEL_PAIRS = 256 };

/* Returns whether our own kernel takes less time than cuDNN's plan, each with the passes that it leaves to
 * do. */
static bool direct_is_faster(CudaBackend *backend, const Step *step, const ConvolutionPlan *plan,
                             double *milliseconds)
{
    const double theirs = cudnn_milliseconds(step, plan);
    FshError ignored = {0};
    if (theirs <= 0)
        return convolution_of(step).x.pitch * plan->convolution.y.pitch <= DIRECT_CHANNEL_PAIRS;
    return !direct_step_milliseconds(backend, step, &plan->direct, cudnn_plan_text(plan->cudnn), milliseconds,
                                     &ignored) &&
           *milliseconds < theirs;
}

static void try_direct(CudaBackend *backend, Step *step, ConvolutionPlan *plan)
{
    double milliseconds = 0;
    if ((plan->way != WAY_CUDNN && plan->way != WAY_PATCHES) || !direct_step_fits(step, &plan->direct) ||
        !direct_is_faster(backend, step, plan, &milliseconds))
        return;
    const double theirs = cudnn_milliseconds(step, plan);
    plan->way = WAY_DIRECT;
    plan->fused = false;
    want_scratch(step, direct_step_scratch_bytes(step, &plan->direct));
    if (milliseconds > 0)
        (void)snprintf(step->told, sizeof step->told, "own kernel for few channels, %.3f ms; cuDNN %.3f ms",
                       milliseconds, theirs);
    else
        (void)snprintf(step->told, sizeof step->told, "own kernel for few channels");
}

/* ---- or our own kernels for 3 x 3 ---- */

/* Takes the faster of our own kernels where it takes less time than cuDNN's plan, each with the passes that
 * it leaves to do. */
static void try_implicit(CudaBackend *backend, Step *step, ConvolutionPlan *plan)
{
    static const char *const names[] = {[IMPLICIT_TILES] = "own kernel for 3 x 3",
                                        [IMPLICIT_PIXELS] = "own kernel for 3 x 3 by pixels"};
    const double theirs = cudnn_milliseconds(step, plan);
    double least = theirs;
    FshError ignored = {0};
    if (plan->way != WAY_CUDNN || theirs <= 0)
        return;
    for (ImplicitKernel kernel = 0; kernel < IMPLICIT_KERNELS; kernel++) {
        double own = 0;
        if (!implicit_step_fits(step, kernel) ||
            implicit_step_milliseconds(backend, step, kernel, cudnn_plan_text(plan->cudnn), &own, &ignored))
            continue;
        own += milliseconds_of_passes(step, &plan->convolution.y, SUMS_MADE);
        if (own >= least)
            continue;
        least = own;
        plan->way = WAY_IMPLICIT;
        plan->implicit = kernel;
    }
    if (plan->way != WAY_IMPLICIT)
        return;
    plan->fused = false;
    want_scratch(step, implicit_step_scratch_bytes(step, plan->implicit));
    (void)snprintf(step->told, sizeof step->told, "%s, %.3f ms; cuDNN %.3f ms", names[plan->implicit], least,
                   theirs);
}

/* ---- or our own kernel for stems of bytes ---- */

/* Takes our own kernel where it takes less time than cuDNN's plan with the pass that folds images for that,
 * or where plans are not timed. */
static void try_stem(CudaBackend *backend, Step *step, ConvolutionPlan *plan)
{
    if (plan->way != WAY_FOLDED || !stem_step_fits(step))
        return;
    const double alone = cudnn_milliseconds(step, plan),
                 theirs = alone > 0 ? alone + milliseconds_of_pass(&plan->convolution.x, false) : 0;
    double own = 0;
    FshError ignored = {0};
    if ((theirs > 0 && (stem_step_milliseconds(backend, step, cudnn_plan_text(plan->cudnn), &own, &ignored) ||
                        own >= theirs)))
        return;
    plan->way = WAY_STEM;
    plan->fused = plan->own_image = plan->own_weight = false;
    want_scratch(step, stem_step_scratch_bytes(step));
    if (own > 0)
        (void)snprintf(step->told, sizeof step->told, "own kernel for stems, %.3f ms; folded, cuDNN %.3f ms",
                       own, theirs);
    else
        (void)snprintf(step->told, sizeof step->told, "own kernel for stems");
}

/* ---- or a product, of 1 x 1 ---- */

/* So many of cuBLASLt's ways are tried: the later ones are seldom the fastest, and a network has a hundred
 * such layers. */
enum { MATMUL_WAYS_TRIED = 4 };

MatmulStep convolution_product(const Step *step, const ConvolutionPlan *plan)
{
    MatmulStep product = matmul_step_of(step);
    product.bias = plan->possible.kind == EPILOGUE_BIAS ? &plan->possible.tensor : NULL;
    return product;
}

/* Takes cuBLASLt where it takes less time than cuDNN's plan, each with the passes that it leaves to do. */
static void try_matmul(CudaBackend *backend, Step *step, ConvolutionPlan *plan)
{
    const double theirs = cudnn_milliseconds(step, plan);
    const MatmulStep product = convolution_product(step, plan);
    FshError ignored = {0};
    int way = 0;
    if (plan->way != WAY_CUDNN || theirs <= 0 || !conv2d_is_pointwise(&step->node->as.conv.options) ||
        !element_is_narrow(plan->convolution.x.element) || in(step, 0)->element != in(step, 1)->element ||
        plan->own_weight || matmul_step_plan(backend, &product, &plan->product, &ignored))
        return;
    const double alone = matmul_step_choose(backend, &product, plan->product, MATMUL_WAYS_TRIED, &way),
                 own = alone + milliseconds_of_passes(step, &plan->convolution.y,
                                                      product.bias ? BIAS_ADDED : NOTHING);
    if (alone <= 0 || own >= theirs) {
        matmul_plan_free(&plan->product);
        return;
    }
    plan->way = WAY_MATMUL;
    plan->fused = product.bias != NULL;
    want_scratch(step, matmul_plan_workspace_bytes(plan->product));
    (void)snprintf(step->told, sizeof step->told, "cuBLASLt's proposal %d of %d, %.3f ms; cuDNN %.3f ms",
                   way + 1, matmul_plan_ways(plan->product), own, theirs);
}

bool convolution_runs_cudnn(const ConvolutionPlan *plan)
{
    return plan->way == WAY_CUDNN || plan->way == WAY_FOLDED || plan->way == WAY_PATCHES ||
           plan->way == WAY_JOINED;
}

FshStatus convolution_choose_way(CudaBackend *backend, Step *step, ConvolutionPlan *plan, FshError *error)
{
    FshStatus status = choose_cudnn(backend, plan, error);
    if (status)
        return status;
    if (plan->may_cut)
        try_patches(backend, step, plan);
    tell_cudnn(step, plan);
    try_direct(backend, step, plan);
    try_implicit(backend, step, plan);
    try_stem(backend, step, plan);
    try_matmul(backend, step, plan);
    if (convolution_runs_cudnn(plan))
        want_scratch(step, convolution_own_bytes(plan) + cudnn_plan_workspace_bytes(plan->cudnn));
    return FSH_OK;
}
