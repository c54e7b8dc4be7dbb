#include "trainer/backend/cuda/lowering/stem_step.h"

#include "trainer/backend/cuda/kernels/kernels_stem.h"
#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* The number changes with the kernel: times of others do not count. */
#define TIMED_AS "stem 2: "

static Stem stem_of(const Step *step)
{
    const Normalization *pixels = &step->node->as.conv.pixels;
    return (Stem){.pixels = in(step, CONV_X),
                  .mean = pixels->mean,
                  .deviation = pixels->deviation,
                  .weight = in(step, CONV_WEIGHT),
                  .y = out(step, CONV_Y),
                  .sums = maybe_out(step, CONV_SUMS)};
}

bool stem_step_fits(const Step *step)
{
    const Conv2d *conv = &step->node->as.conv.options;
    if (step->node->op != OP_CONV2D || maybe_in(step, CONV_BIAS) || step->node->as.conv.relu ||
        conv->kernel != 7 || conv->stride != 2 || conv->padding != 3 || conv->groups > 1 || conv->reflects)
        return false;
    const Stem stem = stem_of(step);
    return kernel_stem_fits(&stem);
}

uint64_t stem_step_scratch_bytes(const Step *step)
{
    return maybe_out(step, CONV_SUMS) ? kernel_stem_scratch_bytes() : 0;
}

FshStatus stem_step_run(const Step *step, void *scratch, cudaStream_t stream, FshError *error)
{
    const Stem stem = stem_of(step);
    return CUDA_TRY(kernel_stem(&stem, scratch, stream), error);
}

static FshStatus enqueue_timed(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    return stem_step_run(context, scratch, stream, error);
}

FshStatus stem_step_milliseconds(CudaBackend *backend, const Step *step, const char *pattern,
                                 double *milliseconds_ret, FshError *error)
{
    char name[TRIAL_NAME_BYTES];
    const int64_t *pixels = in(step, CONV_X)->shape;
    const Trial trial = {enqueue_timed, step, stem_step_scratch_bytes(step)};
    return trial_milliseconds(backend,
                              trial_name(name, TIMED_AS "%s; of %lld %lld %lld%s", pattern,
                                         (long long)pixels[1], (long long)pixels[2], (long long)pixels[3],
                                         maybe_out(step, CONV_SUMS) ? "; with sums" : ""),
                              &trial, milliseconds_ret, error);
}
