#include "trainer/backend/cuda/lowering/lowering.h"

#include "trainer/backend/cuda/kernels/kernels_stem_gradient.h"

static StemGradient stem_of(const Step *step)
{
    const Normalization *pixels = &step->node->as.conv.pixels;
    return (StemGradient){
        .pixels = in(step, STEM_BACK_PIXELS),
        .mean = pixels->mean,
        .deviation = pixels->deviation,
        .norm = {.x = in(step, NORM_POOL_BACK_X),
                 .weight = in(step, NORM_POOL_BACK_WEIGHT),
                 .mean = in(step, NORM_POOL_BACK_MEAN),
                 .inverse_deviation = in(step, NORM_POOL_BACK_INVERSE_DEVIATION)},
        .g = in(step, NORM_POOL_BACK_G),
        .index = in(step, NORM_POOL_BACK_INDEX),
        .dweight = in(step, NORM_POOL_BACK_DWEIGHT),
        .dbias = in(step, NORM_POOL_BACK_DBIAS),
        .filter = out(step, 0),
    };
}

static FshStatus stem_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const StemGradient stem = stem_of(step);
    (void)program;
    if (!kernel_stem_gradient_fits(&stem))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda has no one kernel for this stem on this GPU; use --no-fuse stem-gradient");
    want_scratch(step, kernel_stem_gradient_scratch_bytes());
    return FSH_OK;
}

static FshStatus stem_backward_weight(const Step *step, cudaStream_t stream, FshError *error)
{
    const StemGradient stem = stem_of(step);
    return CUDA_TRY(kernel_stem_gradient(&stem, step->scratch, stream), error);
}

const LoweringRow lowering_stem[] = {
    {OP_STEM_BACKWARD_WEIGHT, {.prepare = stem_prepare, .enqueue = stem_backward_weight}},
    {OP_KIND_COUNT, {NULL}},
};
