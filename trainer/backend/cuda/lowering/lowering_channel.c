#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_channel.h"

/* ---- boxes and shuffles ---- */

static FshStatus zero_pad(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_zero_pad(in(step, 0), step->node->as.box.first_channel, out(step, 0), stream),
                    error);
}

static FshStatus crop(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_crop(in(step, 0), step->node->as.box.first_channel, out(step, 0), stream), error);
}

static FshStatus concat(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_concat(in(step, 0), in(step, 1), out(step, 0), stream), error);
}

static FshStatus pixel_shuffle(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_pixel_shuffle(in(step, 0), step->node->as.shuffle.factor, out(step, 0), stream),
                    error);
}

static FshStatus pixel_unshuffle(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_pixel_unshuffle(in(step, 0), step->node->as.shuffle.factor, out(step, 0), stream),
                    error);
}

/* ---- gate ---- */

static FshStatus gate(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_gate(in(step, 0), out(step, 0), stream), error);
}

static FshStatus gate_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_gate_backward(in(step, 0), in(step, 1), out(step, 0), stream), error);
}

/* ---- channel scale and channel multiply: the shape of the factors tells them apart ---- */

static FshStatus channel_scale(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *addend = step->node->op == OP_CHANNEL_SCALE ? maybe_in(step, 2) : NULL;
    return CUDA_TRY(kernel_channel_scale(in(step, 0), in(step, 1), addend, out(step, 0), stream), error);
}

static FshStatus channel_scale_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_channel_scale_scratch_bytes(in(step, 1), in(step, 2)));
    return FSH_OK;
}

static FshStatus channel_scale_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_channel_scale_backward(in(step, 0), in(step, 1), in(step, 2), maybe_out(step, 0),
                                                  maybe_out(step, 1), step->scratch, stream),
                    error);
}

/* ---- layer norm ---- */

static FshStatus layer_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const LayerNormTensors tensors = {
        .x = in(step, 0), .weight = in(step, 1), .mean = out(step, 1), .inverse_deviation = out(step, 2)};
    return CUDA_TRY(
        kernel_layer_norm(&tensors, in(step, 2), step->node->as.layer_norm.epsilon, out(step, 0), stream),
        error);
}

static FshStatus layer_norm_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_layer_norm_scratch_bytes(in(step, 1)));
    return FSH_OK;
}

static FshStatus layer_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const LayerNormTensors tensors = {
        .x = in(step, 1), .weight = in(step, 2), .mean = in(step, 3), .inverse_deviation = in(step, 4)};
    return CUDA_TRY(kernel_layer_norm_backward(in(step, 0), &tensors, maybe_in(step, 5), maybe_out(step, 0),
                                               maybe_out(step, 1), maybe_out(step, 2), step->scratch, stream),
                    error);
}

const LoweringRow lowering_channel[] = {
    {OP_ZERO_PAD, {.enqueue = zero_pad}},
    {OP_CROP, {.enqueue = crop}},
    {OP_CONCAT, {.enqueue = concat}},
    {OP_CHANNEL_SCALE, {.enqueue = channel_scale}},
    {OP_CHANNEL_SCALE_BACKWARD,
     {.prepare = channel_scale_backward_prepare, .enqueue = channel_scale_backward}},
    {OP_CHANNEL_MULTIPLY, {.enqueue = channel_scale}},
    {OP_CHANNEL_MULTIPLY_BACKWARD,
     {.prepare = channel_scale_backward_prepare, .enqueue = channel_scale_backward}},
    {OP_GATE, {.enqueue = gate}},
    {OP_GATE_BACKWARD, {.enqueue = gate_backward}},
    {OP_LAYER_NORM, {.enqueue = layer_norm}},
    {OP_LAYER_NORM_BACKWARD, {.prepare = layer_norm_backward_prepare, .enqueue = layer_norm_backward}},
    {OP_PIXEL_SHUFFLE, {.enqueue = pixel_shuffle}},
    {OP_PIXEL_UNSHUFFLE, {.enqueue = pixel_unshuffle}},
    {OP_KIND_COUNT, {NULL}},
};
