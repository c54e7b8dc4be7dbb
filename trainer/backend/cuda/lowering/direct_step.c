#include "trainer/backend/cuda/lowering/direct_step.h"

#include <stdio.h>

#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/device/stream_time.h"

/* The number changes with the kernels: times of others do not count. */
#define TIMED_AS "direct kernel 5: "

bool direct_step_fits(const Step *step, Direct *direct)
{
    const Conv2d *conv = &step->node->as.conv.options;
    *direct = (Direct){conv->kernel, conv->stride, conv->padding};
    if (conv->groups > 1)
        return false;
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return kernel_direct_fits(out(step, 0), in(step, 1), in(step, 0), direct);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return kernel_direct_fits(in(step, 1), out(step, 0), in(step, 0), direct);
    default:
        return kernel_direct_fits(in(step, 0), in(step, 1), out(step, 0), direct) &&
               (!maybe_out(step, 1) || out(step, 1)->pitch == out(step, 0)->pitch);
    }
}

uint64_t direct_step_scratch_bytes(const Step *step, const Direct *direct)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return 0;
    case OP_CONV2D_BACKWARD_WEIGHT:
        return kernel_direct_scratch_bytes(in(step, 0), in(step, 1), direct);
    default:
        return maybe_out(step, 1) ? kernel_direct_sums_scratch_bytes(out(step, 0)) : 0;
    }
}

FshStatus direct_step_run(const Step *step, const Direct *direct, void *scratch, cudaStream_t stream,
                          FshError *error)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return CUDA_TRY(kernel_direct_backward_data(in(step, 0), in(step, 1), direct, out(step, 0), stream),
                        error);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return CUDA_TRY(
            kernel_direct_backward_weight(in(step, 0), in(step, 1), direct, out(step, 0), scratch, stream),
            error);
    default:
        return CUDA_TRY(kernel_direct(in(step, 0), in(step, 1), maybe_in(step, 2),
                                      step->node->as.conv.relu ? step->node->as.conv.slope : 1, direct,
                                      out(step, 0), maybe_out(step, 1), scratch, stream),
                        error);
    }
}

typedef struct Timed {
    const Step *step;
    const Direct *direct;
    void *scratch;
} Timed;

static FshStatus enqueue_timed(const void *context, cudaStream_t stream, FshError *error)
{
    const Timed *timed = context;
    return direct_step_run(timed->step, timed->direct, timed->scratch, stream, error);
}

FshStatus direct_step_milliseconds(CudaBackend *backend, const Step *step, const Direct *direct,
                                   const char *pattern, double *milliseconds_ret, FshError *error)
{
    char name[1200];
    const bool sums = step->node->op == OP_CONV2D && maybe_out(step, 1);
    int length = snprintf(name, sizeof name, TIMED_AS "%s%s", pattern, sums ? "and sums" : "");
    const bool named = length > 0 && (size_t)length < sizeof name;
    if (named && cudnn_cache_recall(backend->plans, name, milliseconds_ret))
        return FSH_OK;
    Timed timed = {step, direct, NULL};
    const StreamWork work = {enqueue_timed, &timed};
    FshStatus status = cuda_memory_new(&timed.scratch, direct_step_scratch_bytes(step, direct),
                                       "scratch memory to try a convolution in", error);
    if (!status)
        status = stream_time(&work, backend->stream, milliseconds_ret, error);
    if (!status && named)
        cudnn_cache_remember(backend->plans, name, *milliseconds_ret);
    cuda_memory_free(&timed.scratch);
    return status;
}
