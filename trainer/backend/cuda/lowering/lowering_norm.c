#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"

static NormActivation norm_activation(const Step *step)
{
    return (NormActivation){step->node->as.norm.relu, step->node->as.norm.slope};
}

static FshStatus batch_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)error;
    if (step->node->op == OP_BATCH_NORM && maybe_in(step, 6)) {
        const NodeId maker = graph_tensor(program->base.graph, step->node->inputs[6])->producer;
        if (!maybe_out(&program->steps[maker], 1))
            step->inputs[6].data = NULL; /* the convolution leaves the sums out */
    }
    want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus batch_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const BatchNorm *options = &step->node->as.norm.options;
    const NormTensors tensors = {.x = in(step, 0),
                                 .weight = in(step, 1),
                                 .bias = in(step, 2),
                                 .mean = out(step, 1),
                                 .inverse_deviation = out(step, 2)};
    const NormRunning running = {.mean = in(step, 3),
                                 .var = in(step, 4),
                                 .bias = maybe_in(step, 7),
                                 .epsilon = options->epsilon,
                                 .momentum = options->momentum};
    const NormActivation activation = norm_activation(step);
    FshStatus status = FSH_OK;
    if (options->training && maybe_in(step, 6))
        return CUDA_TRY(kernel_batch_norm_apply_sums(&tensors, &running, in(step, 6), &activation,
                                                     maybe_in(step, 5), out(step, 0), stream),
                        error);
    if (options->training)
        return CUDA_TRY(kernel_batch_norm_forward(&tensors, &running, &activation, maybe_in(step, 5),
                                                  out(step, 0), step->scratch, stream),
                        error);
    status = CUDA_TRY(kernel_batch_norm_running(&tensors, &running, stream), error);
    if (!status)
        status = CUDA_TRY(
            kernel_batch_norm_apply(&tensors, &activation, maybe_in(step, 5), out(step, 0), stream), error);
    return status;
}

static FshStatus batch_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, 1),
                                 .weight = in(step, 2),
                                 .bias = in(step, 3),
                                 .mean = in(step, 4),
                                 .inverse_deviation = in(step, 5)};
    const NormGradient gradient = {.dy = in(step, 0),
                                   .dy2 = maybe_in(step, 7),
                                   .y = maybe_in(step, 6),
                                   .dx = maybe_out(step, 0),
                                   .dweight = out(step, 1),
                                   .dbias = out(step, 2),
                                   .g = maybe_out(step, 3),
                                   .zero = maybe_out(step, 4),
                                   .batch_statistics = step->node->as.norm.options.training};
    const NormActivation activation = norm_activation(step);
    return CUDA_TRY(kernel_batch_norm_backward(&gradient, &tensors, &activation, step->scratch, stream),
                    error);
}

const LoweringRow lowering_norm[] = {
    {OP_BATCH_NORM, {.prepare = batch_norm_prepare, .enqueue = batch_norm}},
    {OP_BATCH_NORM_BACKWARD, {.prepare = batch_norm_prepare, .enqueue = batch_norm_backward}},
    {OP_KIND_COUNT, {NULL}},
};
