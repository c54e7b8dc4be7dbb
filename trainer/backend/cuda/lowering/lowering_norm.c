#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"

static NormActivation norm_activation(const Step *step)
{
    return (NormActivation){step->node->as.norm.relu, step->node->as.norm.slope};
}

static FshStatus batch_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    if (step->node->as.norm.options.sync && program_backend(program)->ranks)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "--sync-bn is for --device cpu as yet");
    if (step->node->op == OP_BATCH_NORM && maybe_in(step, NORM_SUMS)) {
        const NodeId maker = graph_tensor(program->base.graph, step->node->inputs[NORM_SUMS])->producer;
        if (!maybe_out(&program->steps[maker], CONV_SUMS))
            step->inputs[NORM_SUMS].data = NULL; /* the convolution leaves the sums out */
    }
    want_scratch(step, kernel_column_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus batch_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const BatchNorm *options = &step->node->as.norm.options;
    const NormTensors tensors = {.x = in(step, NORM_X),
                                 .weight = in(step, NORM_WEIGHT),
                                 .bias = in(step, NORM_BIAS),
                                 .mean = out(step, NORM_MEAN),
                                 .inverse_deviation = out(step, NORM_INVERSE_DEVIATION)};
    const NormRunning running = {.mean = in(step, NORM_RUNNING_MEAN),
                                 .var = in(step, NORM_RUNNING_VAR),
                                 .bias = maybe_in(step, NORM_LAYER_BIAS),
                                 .epsilon = options->epsilon,
                                 .momentum = options->momentum};
    const NormActivation activation = norm_activation(step);
    FshStatus status = FSH_OK;
    if (options->training && maybe_in(step, NORM_SUMS))
        return CUDA_TRY(kernel_batch_norm_apply_sums(&tensors, &running, in(step, NORM_SUMS), &activation,
                                                     maybe_in(step, NORM_ADDEND), out(step, NORM_Y), stream),
                        error);
    if (options->training)
        return CUDA_TRY(kernel_batch_norm_forward(&tensors, &running, &activation,
                                                  maybe_in(step, NORM_ADDEND), out(step, 0), step->scratch,
                                                  stream),
                        error);
    status = CUDA_TRY(kernel_batch_norm_running(&tensors, &running, stream), error);
    if (!status)
        status = CUDA_TRY(kernel_batch_norm_apply(&tensors, &activation, maybe_in(step, NORM_ADDEND),
                                                  out(step, NORM_Y), stream),
                          error);
    return status;
}

static FshStatus batch_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const NormTensors tensors = {.x = in(step, NORM_BACK_X),
                                 .weight = in(step, NORM_BACK_WEIGHT),
                                 .bias = in(step, NORM_BACK_BIAS),
                                 .mean = in(step, NORM_BACK_MEAN),
                                 .inverse_deviation = in(step, NORM_BACK_INVERSE_DEVIATION)};
    const NormGradient gradient = {.dy = in(step, NORM_BACK_DY),
                                   .dy2 = maybe_in(step, NORM_BACK_DY2),
                                   .y = maybe_in(step, NORM_BACK_Y),
                                   .dx = maybe_out(step, NORM_BACK_DX),
                                   .dweight = out(step, NORM_BACK_DWEIGHT),
                                   .dbias = out(step, NORM_BACK_DBIAS),
                                   .g = maybe_out(step, NORM_BACK_G),
                                   .zero = maybe_out(step, NORM_BACK_DLAYER_BIAS),
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
