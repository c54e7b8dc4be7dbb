/* The backward node of a norm behind which a convolution of 1 x 1 stands. Two ways: cuDNN makes the
 * convolution's data gradient, and the norm's own passes read it; or one kernel of our own makes the data
 * gradient and the norm's sums of it, so that a tensor of x's size is neither written nor read. At small
 * sizes, where a norm's passes are one launch and find their operands in the cache, the first way takes less
 * time; so both are timed. */
#include "trainer/backend/cuda/lowering/norm_step.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/kernels/kernels_pointwise_gradient.h"
#include "trainer/backend/cuda/lowering/cudnn_convolution.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* The number changes with the kernels: times of others do not count. */
#define TIMED_AS "convolution and norm 1: "

/* Up to so many channels of dy our own kernel is taken where ways are not timed: with 512 of them cuDNN
 * and the norm's passes take less time on an H200 (docs/measurements/2026-11-24-step.md). */
enum { OWN_CHANNELS = 256 };

static const Epilogue no_epilogue = {EPILOGUE_NONE, {NULL}, 0};

/* What a step keeps. */
typedef struct ConvNormPlan {
    CudaBackend *backend;
    Convolution convolution; /* of which g is the data gradient, as cuDNN makes it */
    const CudnnPlan *cudnn;  /* of the backend's; released */
    CudnnPack pack;          /* owned */
    bool own;                /* our own kernel does it */
} ConvNormPlan;

static void free_plan(void *plan)
{
    ConvNormPlan *owned = plan;
    cudnn_pack_free(&owned->pack);
    cudnn_cache_release(owned->backend->plans, owned->cudnn);
    free(owned);
}

/* Enqueues the norm's passes over the data gradient that g holds. Others read g where there was an addend or
 * a second part, and where the norm makes no dx (OP_NORM_POOL); else it stays as it is. */
static FshStatus enqueue_norm(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    const Step *step = context;
    const NormTensors tensors = norm_step_backward_tensors(step);
    const NormActivation activation = norm_step_activation(step);
    NormGradient gradient = norm_step_gradient(step, out(step, NORM_BACK_G));
    if (gradient.dx && !gradient.y && !tensors.signs && !gradient.dy2)
        gradient.g = NULL;
    return CUDA_TRY(kernel_batch_norm_backward(&gradient, &tensors, &activation, scratch, stream), error);
}

/* Enqueues our own kernel, and the pass that makes dx of its g. */
static FshStatus enqueue_own(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    const Step *step = context;
    const NormTensors tensors = norm_step_backward_tensors(step);
    const NormActivation activation = norm_step_activation(step), none = {0};
    NormGradient gradient = norm_step_gradient(step, out(step, NORM_BACK_G));
    FshStatus status =
        CUDA_TRY(kernel_pointwise_gradient(in(step, NORM_BACK_DY), in(step, NORM_BACK_CONV_WEIGHT), &gradient,
                                           &tensors, &activation, scratch, stream),
                 error);
    if (status || !gradient.dx)
        return status;
    gradient.dy2 = gradient.y = gradient.g = NULL;
    gradient.part = NORM_GRADIENT_X;
    return CUDA_TRY(kernel_batch_norm_backward(&gradient, &tensors, &none, NULL, stream), error);
}

/* ---- which way ---- */

/* Sets the milliseconds of one of the two enqueue functions. */
static FshStatus milliseconds_of(CudaBackend *backend, const Step *step, const char *pattern, const char *way,
                                 const Trial *trial, double *milliseconds_ret, FshError *error)
{
    char name[TRIAL_NAME_BYTES];
    const DeviceTensor *y = maybe_in(step, NORM_BACK_Y), *dy2 = maybe_in(step, NORM_BACK_DY2);
    const bool whole = dy2 && device_tensor_rows(dy2) == device_tensor_rows(in(step, NORM_BACK_X));
    const char *wide = whole ? " dy2" : dy2 ? " strided dy2" : "";
    return trial_milliseconds(backend,
                              trial_name(name, TIMED_AS "%s%s%s%s%s", pattern, way, wide,
                                         y ? y->element == ELEMENT_U8 ? " signs" : " y" : "",
                                         maybe_out(step, NORM_BACK_DX) ? "" : " g alone"),
                              trial, milliseconds_ret, error);
}

/* Returns whether our own kernel is taken: where it fits, and, if plans are timed, takes less time. */
static bool choose_own(CudaBackend *backend, Step *step, const ConvNormPlan *plan)
{
    FshError untimed = {0};
    double own = 0, norm = 0;
    const double convolution = cudnn_plan_milliseconds(plan->cudnn);
    const char *pattern = cudnn_plan_text(plan->cudnn);
    if (!kernel_pointwise_gradient_fits(in(step, NORM_BACK_DY), in(step, NORM_BACK_CONV_WEIGHT),
                                        in(step, NORM_BACK_X)))
        return false;
    if (!backend->benchmark || convolution <= 0)
        return in(step, NORM_BACK_DY)->pitch <= OWN_CHANNELS;
    const Trial of_own = {enqueue_own, step, step->scratch_bytes},
                of_norm = {enqueue_norm, step, step->scratch_bytes};
    if (milliseconds_of(backend, step, pattern, " own", &of_own, &own, &untimed) ||
        milliseconds_of(backend, step, pattern, "", &of_norm, &norm, &untimed)) {
        (void)snprintf(step->told, sizeof step->told, "cuDNN, since ways could not be timed: %.60s",
                       untimed.message);
        return false;
    }
    (void)snprintf(step->told, sizeof step->told, "own kernel %.3f ms; cuDNN %.3f ms and norm %.3f ms", own,
                   convolution, norm);
    return own < convolution + norm;
}

/* ---- the steps ---- */

static FshStatus conv_norm_want(const CudaProgram *program, Step *step, FshError *error)
{
    CudaBackend *backend = program_backend(program);
    ConvNormPlan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a gradient");
    step_own(step, plan, free_plan);
    plan->backend = backend;
    FshStatus status = lowering_narrow_weight(program, step, NORM_BACK_CONV_WEIGHT, error);
    if (status)
        return status;
    plan->convolution = (Convolution){CONVOLUTION_BACKWARD_DATA,
                                      *out(step, NORM_BACK_G),
                                      *in(step, NORM_BACK_CONV_WEIGHT),
                                      *in(step, NORM_BACK_DY),
                                      {.stride = 1, .padding = 0}};
    return cudnn_convolution_want(backend, &plan->convolution, &no_epilogue, backend->benchmark, error);
}

static FshStatus conv_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    ConvNormPlan *plan = step->plan;
    CudaBackend *backend = program_backend(program);
    char text[80];
    FshStatus status = cudnn_convolution_get(backend, &plan->convolution, &no_epilogue, backend->benchmark,
                                             &plan->cudnn, error);
    if (status)
        return status;
    want_scratch(step, kernel_column_scratch_bytes(in(step, NORM_BACK_X)));
    want_scratch(step, kernel_pointwise_gradient_scratch_bytes(in(step, NORM_BACK_X)));
    plan->own = choose_own(backend, step, plan);
    if (!plan->own)
        want_scratch(step, cudnn_plan_workspace_bytes(plan->cudnn));
    if (!*step->told)
        (void)snprintf(step->told, sizeof step->told, "%s%s", plan->own ? "own kernel" : "cuDNN ",
                       plan->own ? "" : cudnn_plan_describe(plan->cudnn, text, sizeof text));
    (void)snprintf(step->engine, sizeof step->engine, "%s", plan->own ? "own" : "cudnn norm");
    return FSH_OK;
}

static FshStatus conv_norm_bind(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    ConvNormPlan *plan = step->plan;
    void *addresses[CONVOLUTION_ADDRESSES];
    if (plan->own)
        return FSH_OK;
    cudnn_convolution_addresses(&plan->convolution, &no_epilogue, addresses);
    return cudnn_pack_new(&plan->pack, plan->cudnn, addresses, step->scratch, error);
}

static FshStatus conv_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const ConvNormPlan *plan = step->plan;
    if (plan->own)
        return enqueue_own(step, step->scratch, stream, error);
    FshStatus status = cudnn_plan_run(plan->cudnn, plan->pack, cuda_cudnn_of(plan->backend, stream), error);
    return status ? status : enqueue_norm(step, step->scratch, stream, error);
}

const LoweringRow lowering_conv_norm[] = {
    {OP_CONV_NORM_BACKWARD, {conv_norm_want, conv_norm_prepare, conv_norm_bind, conv_norm_backward}},
    {OP_KIND_COUNT, {NULL}},
};
