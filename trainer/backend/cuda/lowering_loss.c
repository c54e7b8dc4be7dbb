#include "trainer/backend/cuda/lowering.h"
#include "trainer/backend/cuda/kernels_loss.h"

static FshStatus loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    if (maybe_in(step, 2))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the CUDA backend has no mixed labels yet; train without mixup and cutmix");
    want_scratch(step, kernel_softmax_cross_entropy_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus loss(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_softmax_cross_entropy(in(step, 0), in(step, 1), step->node->as.loss.smoothing,
                                                 out(step, 0), out(step, 1), step->scratch, stream),
                    error);
}

static FshStatus loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_softmax_cross_entropy_backward(in(step, 0), in(step, 1), in(step, 2),
                                                          step->node->as.loss.smoothing, out(step, 0),
                                                          stream),
                    error);
}

const LoweringRow lowering_loss[] = {
    {OP_SOFTMAX_CROSS_ENTROPY, {.prepare = loss_prepare, .enqueue = loss}},
    {OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, {.enqueue = loss_backward}},
    {OP_KIND_COUNT, {NULL}},
};
