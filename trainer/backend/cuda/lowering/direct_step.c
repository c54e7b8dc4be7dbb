#include "trainer/backend/cuda/lowering/direct_step.h"

#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* The number changes with the kernels: times of others do not count. */
#define TIMED_AS "direct kernel 10: "

bool direct_step_fits(const Step *step, Direct *direct)
{
    const Conv2d *conv = &step->node->as.conv.options;
    const Normalization *pixels = &step->node->as.conv.pixels;
    *direct =
        (Direct){conv->kernel, conv->stride, conv->padding, conv->reflects, pixels->mean, pixels->deviation};
    if (conv->groups > 1)
        return false;
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return kernel_direct_fits(out(step, 0), in(step, CONV_DATA_WEIGHT), in(step, CONV_DATA_DY), direct);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return kernel_direct_fits(in(step, CONV_WEIGHT_X), out(step, CONV_WEIGHT_DWEIGHT),
                                  in(step, CONV_WEIGHT_DY), direct);
    default:
        return kernel_direct_fits(in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y), direct) &&
               (!maybe_out(step, CONV_SUMS) || out(step, CONV_SUMS)->pitch == out(step, CONV_Y)->pitch);
    }
}

uint64_t direct_step_scratch_bytes(const Step *step, const Direct *direct)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return 0;
    case OP_CONV2D_BACKWARD_WEIGHT:
        return kernel_direct_scratch_bytes(in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X), direct);
    default:
        return maybe_out(step, CONV_SUMS)
                   ? kernel_direct_sums_scratch_bytes(in(step, CONV_X), out(step, CONV_Y), direct)
                   : 0;
    }
}

FshStatus direct_step_run(const Step *step, const Direct *direct, void *scratch, cudaStream_t stream,
                          FshError *error)
{
    switch (step->node->op) {
    case OP_CONV2D_BACKWARD_DATA:
        return CUDA_TRY(kernel_direct_backward_data(in(step, CONV_DATA_DY), in(step, CONV_DATA_WEIGHT),
                                                    direct, out(step, 0), stream),
                        error);
    case OP_CONV2D_BACKWARD_WEIGHT:
        return CUDA_TRY(kernel_direct_backward_weight(in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X),
                                                      direct, out(step, CONV_WEIGHT_DWEIGHT), scratch,
                                                      stream),
                        error);
    default:
        return CUDA_TRY(kernel_direct(in(step, CONV_X), in(step, CONV_WEIGHT), maybe_in(step, CONV_BIAS),
                                      step->node->as.conv.relu ? step->node->as.conv.slope : 1, direct,
                                      out(step, CONV_Y), maybe_out(step, CONV_SUMS), scratch, stream),
                        error);
    }
}

typedef struct Timed {
    const Step *step;
    const Direct *direct;
} Timed;

static FshStatus enqueue_timed(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    const Timed *timed = context;
    return direct_step_run(timed->step, timed->direct, scratch, stream, error);
}

FshStatus direct_step_milliseconds(CudaBackend *backend, const Step *step, const Direct *direct,
                                   const char *pattern, double *milliseconds_ret, FshError *error)
{
    char name[TRIAL_NAME_BYTES];
    const bool sums = step->node->op == OP_CONV2D && maybe_out(step, CONV_SUMS);
    const Timed timed = {step, direct};
    const Trial trial = {enqueue_timed, &timed, direct_step_scratch_bytes(step, direct)};
    return trial_milliseconds(backend, trial_name(name, TIMED_AS "%s%s", pattern, sums ? "and sums" : ""),
                              &trial, milliseconds_ret, error);
}
