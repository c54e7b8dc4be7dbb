#include "trainer/backend/cuda/lowering/implicit_step.h"

#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"
#include "trainer/backend/cuda/kernels/kernels_pixel_gemm.h"
#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/lowering/trial.h"

/* The numbers change with the kernels: times of others do not count. */
static const char *const timed_as[] = {
    [IMPLICIT_TILES] = "implicit gemm 8: ", [IMPLICIT_PIXELS] = "pixel gemm 2: "};

static bool fits_pixels(const Step *step)
{
    /* Of few images most of the 256 rows of a product would be empty: that is not even timed. */
    enum { IMAGES_LEAST = 160 };
    const bool fills = in(step, 0)->shape[0] >= IMAGES_LEAST;
    switch (step->node->op) {
    case OP_CONV2D:
        return fills && kernel_pixel_gemm_fits(in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y));
    case OP_CONV2D_BACKWARD_DATA:
        return fills && kernel_pixel_gemm_backward_fits(in(step, CONV_DATA_DY), in(step, CONV_DATA_WEIGHT),
                                                        out(step, 0));
    default: /* which sums 64 images at a time */
        return kernel_pixel_gemm_weight_fits(in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X),
                                             out(step, CONV_WEIGHT_DWEIGHT));
    }
}

static bool fits_tiles(const Step *step)
{
    switch (step->node->op) {
    case OP_CONV2D:
        return kernel_implicit_gemm_fits(in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y));
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

bool implicit_step_fits(const Step *step, ImplicitKernel kernel)
{
    const Conv2d *conv = &step->node->as.conv.options;
    if (conv->kernel != 3 || conv->stride != 1 || conv->groups != 1 ||
        (makes_sums(step) && (maybe_in(step, CONV_BIAS) || /* it is added behind them */
                              out(step, CONV_SUMS)->pitch != out(step, CONV_Y)->pitch)))
        return false;
    return kernel == IMPLICIT_PIXELS ? fits_pixels(step) : fits_tiles(step);
}

uint64_t implicit_step_scratch_bytes(const Step *step, ImplicitKernel kernel)
{
    const bool pixels = kernel == IMPLICIT_PIXELS;
    if (step->node->op == OP_CONV2D_BACKWARD_WEIGHT)
        return pixels ? kernel_pixel_gemm_weight_scratch_bytes()
                      : kernel_implicit_gemm_scratch_bytes(in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X));
    if (!makes_sums(step))
        return 0;
    return pixels ? kernel_pixel_gemm_sums_scratch_bytes(out(step, CONV_Y))
                  : kernel_implicit_gemm_sums_scratch_bytes(out(step, CONV_Y));
}

FshStatus implicit_step_run(const Step *step, ImplicitKernel kernel, void *scratch, cudaStream_t stream,
                            FshError *error)
{
    const bool pixels = kernel == IMPLICIT_PIXELS;
    switch (step->node->op) {
    case OP_CONV2D:
        return CUDA_TRY((pixels ? kernel_pixel_gemm : kernel_implicit_gemm)(
                            in(step, CONV_X), in(step, CONV_WEIGHT), out(step, CONV_Y),
                            maybe_out(step, CONV_SUMS), scratch, stream),
                        error);
    case OP_CONV2D_BACKWARD_DATA:
        return CUDA_TRY((pixels ? kernel_pixel_gemm_backward_data : kernel_implicit_gemm_backward_data)(
                            in(step, CONV_DATA_DY), in(step, CONV_DATA_WEIGHT), out(step, 0), stream),
                        error);
    default:
        return CUDA_TRY((pixels ? kernel_pixel_gemm_backward_weight : kernel_implicit_gemm_backward_weight)(
                            in(step, CONV_WEIGHT_DY), in(step, CONV_WEIGHT_X), out(step, CONV_WEIGHT_DWEIGHT),
                            scratch, stream),
                        error);
    }
}

typedef struct Timed {
    const Step *step;
    ImplicitKernel kernel;
} Timed;

static FshStatus enqueue_timed(const void *context, void *scratch, cudaStream_t stream, FshError *error)
{
    const Timed *timed = context;
    return implicit_step_run(timed->step, timed->kernel, scratch, stream, error);
}

FshStatus implicit_step_milliseconds(CudaBackend *backend, const Step *step, ImplicitKernel kernel,
                                     const char *pattern, double *milliseconds_ret, FshError *error)
{
    char name[TRIAL_NAME_BYTES];
    const Timed timed = {step, kernel};
    const Trial trial = {enqueue_timed, &timed, implicit_step_scratch_bytes(step, kernel)};
    return trial_milliseconds(
        backend, trial_name(name, "%s%s%s", timed_as[kernel], pattern, makes_sums(step) ? "; with sums" : ""),
        &trial, milliseconds_ret, error);
}
