#include "trainer/backend/cuda/lowering/implicit_step.h"

#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"
#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* The number changes with the kernels: times of others do not count. */
#define TIMED_AS "implicit gemm 7: "

bool implicit_step_fits(const Step *step)
{
    const Conv2d *conv = &step->node->as.conv.options;
    if (conv->kernel != 3 || conv->stride != 1 || conv->padding != 1 || conv->groups != 1)
        return false;
    switch (step->node->op) {
    case OP_CONV2D:
        return kernel_implicit_gemm_fits(in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y)) &&
               (!maybe_out(step, CONV_SUMS) || (!maybe_in(step, CONV_BIAS) && /* it is added behind them */
                                                out(step, CONV_SUMS)->pitch == out(step, CONV_Y)->pitch));
    case OP_CONV2D_BACKWARD_DATA:
        return kernel_implicit_gemm_fits(out(step, 0), in(step, CONV_DATA_WEIGHT), in(step, CONV_DATA_DY));
    default:
        return kernel_implicit_gemm_fits(in(step, CONV_WEIGHT_X), out(step, CONV_WEIGHT_DWEIGHT),
                                         in(step, CONV_WEIGHT_DY));
    }
}

/* Returns whether the step is a convolution that makes sums of its result. */
static bool makes_sums(const Step *step)
{
    return step->node->op == OP_CONV2D && maybe_out(step, CONV_SUMS);
}

uint64_t implicit_step_scratch_bytes(const Step *step)
{
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT)
        return kernel_implicit_gemm_scratch_bytes(in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X));
    return makes_sums(step) ? kernel_implicit_gemm_sums_scratch_bytes(out(step, CONV_Y)) : 0;
}

FshStatus implicit_step_run(const Step *step, void *scratch, cudaStream_t stream, FshError *error)
{
    switch (step->node->op) {
    case OP_CONV2D:
        return CUDA_TRY(kernel_implicit_gemm(in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y),
                                             maybe_out(step, CONV_SUMS), scratch, stream),
                        error);
    case OP_CONV2D_BACKWARD_DATA:
        return CUDA_TRY(kernel_implicit_gemm_backward_data(in(step, CONV_DATA_DY), in(step, CONV_DATA_WEIGHT),
                                                           out(step, 0), stream),
                        error);
    default:
        return CUDA_TRY(kernel_implicit_gemm_backward_weight(in(step, CONV_WEIGHT_DY),
                                                             in(step, CONV_WEIGHT_X),
                                                             out(step, CONV_WEIGHT_DWEIGHT), scratch, stream),
                        error);
    }
}

static FshStatus enqueue_timed(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    return implicit_step_run(context, scratch, stream, error);
}

FshStatus implicit_step_milliseconds(CudaBackend *backend, const Step *step, const char *pattern,
                                     double *milliseconds_ret, FshError *error)
{
    char name[TRIAL_NAME_BYTES];
    const Trial trial = {enqueue_timed, step, implicit_step_scratch_bytes(step)};
    return trial_milliseconds(
        backend, trial_name(name, TIMED_AS "%s%s", pattern, makes_sums(step) ? "; with sums" : ""), &trial,
        milliseconds_ret, error);
}
