#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_loss.h"

static void free_arrivals(void *arrivals)
{
    (void)cudaFree(arrivals);
}

/* Allocates the counter by which the blocks of a loss know the last of them: the step's own, and 0 between
 * runs. */
static FshStatus own_arrivals(const CudaProgram *program, Step *step, FshError *error)
{
    void *arrivals = NULL;
    FshStatus status = cuda_memory_new(&arrivals, sizeof(unsigned), "a loss", error);
    if (status)
        return status;
    step_own(step, arrivals, free_arrivals);
    return CUDA_TRY(cudaMemsetAsync(arrivals, 0, sizeof(unsigned), program_backend(program)->stream), error);
}

/* ---- classes ---- */

/* Collects the targets of a loss. first: the place of the labels among the inputs. */
static ClassTargets targets_of(const Step *step, int first)
{
    const OpKind op = step->node->op;
    return (ClassTargets){.labels = in(step, first),
                          .labels_mixed = maybe_in(step, first + 1),
                          .mix = maybe_in(step, first + 2),
                          .weights = maybe_in(step, first + 3),
                          .smoothing = (double)step->node->as.loss.smoothing,
                          .threshold = (double)step->node->as.loss.threshold,
                          .binarizes = step->node->as.loss.binarizes,
                          .sums = step->node->as.loss.sums,
                          .binary = op == OP_BINARY_CROSS_ENTROPY || op == OP_BINARY_CROSS_ENTROPY_BACKWARD};
}

static FshStatus class_loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    want_scratch(step, kernel_class_loss_scratch_bytes(in(step, 0)));
    return own_arrivals(program, step, error);
}

static FshStatus class_loss(const Step *step, cudaStream_t stream, FshError *error)
{
    const ClassTargets targets = targets_of(step, 1);
    return CUDA_TRY(kernel_class_loss(&targets, in(step, CLASS_LOSS_LOGITS), out(step, CLASS_LOSS_LOSS),
                                      out(step, CLASS_LOSS_PROBABILITIES), step->scratch, step->plan, stream),
                    error);
}

static FshStatus class_loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const ClassTargets targets = targets_of(step, 2);
    return CUDA_TRY(kernel_class_loss_backward(&targets, in(step, CLASS_LOSS_BACK_DLOSS),
                                               in(step, CLASS_LOSS_BACK_PROBABILITIES), out(step, 0), stream),
                    error);
}

/* ---- rows of targets ---- */

/* Collects the operands. first: the place of x among the inputs. */
static RowTargets rows_of(const Step *step, int first)
{
    return (RowTargets){.x = in(step, first),
                        .targets = in(step, first + 1),
                        .valid = in(step, first + 2),
                        .weights = maybe_in(step, first + 3),
                        .positive_weights = maybe_in(step, first + 4),
                        .loss = step->node->as.target_loss};
}

static FshStatus target_loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    want_scratch(step, kernel_target_loss_scratch_bytes(in(step, TARGET_LOSS_X)));
    return own_arrivals(program, step, error);
}

static FshStatus target_loss(const Step *step, cudaStream_t stream, FshError *error)
{
    const RowTargets rows = rows_of(step, TARGET_LOSS_X);
    return CUDA_TRY(kernel_target_loss(&rows, out(step, 0), step->scratch, step->plan, stream), error);
}

static FshStatus target_loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const RowTargets rows = rows_of(step, TARGET_LOSS_BACK_X);
    return CUDA_TRY(
        kernel_target_loss_backward(&rows, in(step, TARGET_LOSS_BACK_DLOSS), out(step, 0), stream), error);
}

/* ---- images ---- */

static FshStatus pixel_loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    want_scratch(step, kernel_pixel_loss_scratch_bytes(in(step, 0)));
    return own_arrivals(program, step, error);
}

static FshStatus pixel_loss(const Step *step, cudaStream_t stream, FshError *error)
{
    const PixelImages images = {in(step, PIXEL_LOSS_PREDICTION), in(step, PIXEL_LOSS_TARGET),
                                maybe_in(step, PIXEL_LOSS_VALID), step->node->as.pixel_loss.kind};
    return CUDA_TRY(kernel_pixel_loss(&images, out(step, PIXEL_LOSS_LOSS), out(step, PIXEL_LOSS_ERRORS),
                                      step->scratch, step->plan, stream),
                    error);
}

static FshStatus pixel_loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const PixelImages images = {in(step, PIXEL_LOSS_BACK_PREDICTION), in(step, PIXEL_LOSS_BACK_TARGET),
                                maybe_in(step, PIXEL_LOSS_BACK_VALID), step->node->as.pixel_loss.kind};
    return CUDA_TRY(kernel_pixel_loss_backward(&images, in(step, PIXEL_LOSS_BACK_DLOSS),
                                               in(step, PIXEL_LOSS_BACK_ERRORS), out(step, 0), stream),
                    error);
}

/* ---- masks ---- */

static FshStatus mask_loss_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    want_scratch(step, kernel_mask_loss_scratch_bytes(in(step, MASK_LOSS_MASK)));
    return own_arrivals(program, step, error);
}

static FshStatus mask_loss(const Step *step, cudaStream_t stream, FshError *error)
{
    const MaskImages images = {in(step, MASK_LOSS_LOGITS), in(step, MASK_LOSS_MASK),
                               maybe_in(step, MASK_LOSS_VALID), (double)step->node->as.mask_loss.smoothing};
    return CUDA_TRY(kernel_mask_loss(&images, out(step, MASK_LOSS_LOSS), out(step, MASK_LOSS_CLASSES),
                                     out(step, MASK_LOSS_SUMS), step->scratch, step->plan, stream),
                    error);
}

static FshStatus mask_loss_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const MaskImages images = {in(step, MASK_LOSS_BACK_LOGITS), in(step, MASK_LOSS_BACK_MASK),
                               maybe_in(step, MASK_LOSS_BACK_VALID),
                               (double)step->node->as.mask_loss.smoothing};
    return CUDA_TRY(kernel_mask_loss_backward(&images, in(step, MASK_LOSS_BACK_DLOSS),
                                              in(step, MASK_LOSS_BACK_SUMS), out(step, 0), stream),
                    error);
}

const LoweringRow lowering_loss[] = {
    {OP_SOFTMAX_CROSS_ENTROPY, {.prepare = class_loss_prepare, .enqueue = class_loss}},
    {OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, {.enqueue = class_loss_backward}},
    {OP_BINARY_CROSS_ENTROPY, {.prepare = class_loss_prepare, .enqueue = class_loss}},
    {OP_BINARY_CROSS_ENTROPY_BACKWARD, {.enqueue = class_loss_backward}},
    {OP_TARGET_LOSS, {.prepare = target_loss_prepare, .enqueue = target_loss}},
    {OP_TARGET_LOSS_BACKWARD, {.enqueue = target_loss_backward}},
    {OP_PIXEL_LOSS, {.prepare = pixel_loss_prepare, .enqueue = pixel_loss}},
    {OP_PIXEL_LOSS_BACKWARD, {.enqueue = pixel_loss_backward}},
    {OP_MASK_LOSS, {.prepare = mask_loss_prepare, .enqueue = mask_loss}},
    {OP_MASK_LOSS_BACKWARD, {.enqueue = mask_loss_backward}},
    {OP_KIND_COUNT, {NULL}},
};
