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
    return CUDA_TRY(kernel_concat(in(step, CONCAT_A), in(step, CONCAT_B), out(step, 0), stream), error);
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

static FshStatus gate_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    if (maybe_out(step, GATE_MEANS))
        want_scratch(step, kernel_gate_scratch_bytes(out(step, GATE_PRODUCTS)));
    return FSH_OK;
}

static FshStatus gate(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_gate(in(step, 0), out(step, GATE_PRODUCTS), maybe_out(step, GATE_MEANS),
                                step->scratch, stream),
                    error);
}

/* Returns the operands of an OP_GATE_BACKWARD. */
static GateGradient gate_gradient(const Step *step)
{
    return (GateGradient){.dy = in(step, GATE_BACK_DY),
                          .x = in(step, GATE_BACK_X),
                          .dx = out(step, GATE_BACK_DX),
                          .factors = maybe_in(step, GATE_BACK_FACTORS),
                          .dmeans = maybe_in(step, GATE_BACK_DMEANS),
                          .sums = maybe_out(step, GATE_BACK_DBIAS)};
}

static FshStatus gate_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    const GateGradient gradient = gate_gradient(step);
    (void)program;
    (void)error;
    want_scratch(step, kernel_gate_backward_scratch_bytes(&gradient));
    return FSH_OK;
}

static FshStatus gate_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const GateGradient gradient = gate_gradient(step);
    return CUDA_TRY(kernel_gate_backward(&gradient, step->scratch, stream), error);
}

/* ---- channel scale and channel multiply: the shape of the factors tells them apart ---- */

static FshStatus channel_scale(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *addend = step->node->op == OP_CHANNEL_SCALE ? maybe_in(step, CHANNEL_ADDEND) : NULL;
    return CUDA_TRY(
        kernel_channel_scale(in(step, CHANNEL_X), in(step, CHANNEL_FACTORS), addend, out(step, 0), stream),
        error);
}

static FshStatus channel_scale_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step,
                 kernel_channel_scale_scratch_bytes(in(step, CHANNEL_BACK_X), in(step, CHANNEL_BACK_FACTORS),
                                                    maybe_out(step, CHANNEL_BACK_DBIAS)));
    return FSH_OK;
}

static FshStatus channel_scale_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_channel_scale_backward(
                        in(step, CHANNEL_BACK_DY), in(step, CHANNEL_BACK_X), in(step, CHANNEL_BACK_FACTORS),
                        maybe_out(step, CHANNEL_BACK_DX), maybe_out(step, CHANNEL_BACK_DFACTORS),
                        maybe_out(step, CHANNEL_BACK_DBIAS), step->scratch, stream),
                    error);
}

/* ---- layer norm ---- */

static FshStatus layer_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    const LayerNormTensors tensors = {.x = in(step, LAYER_NORM_X),
                                      .weight = in(step, LAYER_NORM_WEIGHT),
                                      .mean = out(step, LAYER_NORM_MEAN),
                                      .inverse_deviation = out(step, LAYER_NORM_INVERSE_DEVIATION)};
    return CUDA_TRY(kernel_layer_norm(&tensors, in(step, LAYER_NORM_BIAS), step->node->as.layer_norm.epsilon,
                                      out(step, LAYER_NORM_Y), stream),
                    error);
}

static FshStatus layer_norm_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_layer_norm_scratch_bytes(in(step, LAYER_NORM_BACK_X)));
    return FSH_OK;
}

static FshStatus layer_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const LayerNormTensors tensors = {.x = in(step, LAYER_NORM_BACK_X),
                                      .weight = in(step, LAYER_NORM_BACK_WEIGHT),
                                      .mean = in(step, LAYER_NORM_BACK_MEAN),
                                      .inverse_deviation = in(step, LAYER_NORM_BACK_INVERSE_DEVIATION)};
    return CUDA_TRY(kernel_layer_norm_backward(
                        in(step, LAYER_NORM_BACK_DY), &tensors, maybe_in(step, LAYER_NORM_BACK_ADDEND),
                        maybe_out(step, LAYER_NORM_BACK_DX), maybe_out(step, LAYER_NORM_BACK_DWEIGHT),
                        maybe_out(step, LAYER_NORM_BACK_DBIAS), step->scratch, stream),
                    error);
}

/* ---- response norm ---- */

static FshStatus response_norm_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    const int x = step->node->op == OP_RESPONSE_NORM ? RESPONSE_NORM_X : RESPONSE_NORM_BACK_X;
    want_scratch(step, kernel_response_norm_scratch_bytes(in(step, x)));
    return FSH_OK;
}

static FshStatus response_norm(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_response_norm(in(step, RESPONSE_NORM_X), in(step, RESPONSE_NORM_WEIGHT),
                                         in(step, RESPONSE_NORM_BIAS), step->node->as.layer_norm.epsilon,
                                         out(step, RESPONSE_NORM_Y), out(step, RESPONSE_NORM_NORMS),
                                         step->scratch, stream),
                    error);
}

static FshStatus response_norm_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const ResponseNormTensors tensors = {.dy = in(step, RESPONSE_NORM_BACK_DY),
                                         .x = in(step, RESPONSE_NORM_BACK_X),
                                         .weight = in(step, RESPONSE_NORM_BACK_WEIGHT),
                                         .norms = in(step, RESPONSE_NORM_BACK_NORMS)};
    return CUDA_TRY(kernel_response_norm_backward(
                        &tensors, step->node->as.layer_norm.epsilon, maybe_out(step, RESPONSE_NORM_BACK_DX),
                        maybe_out(step, RESPONSE_NORM_BACK_DWEIGHT),
                        maybe_out(step, RESPONSE_NORM_BACK_DBIAS), step->scratch, stream),
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
    {OP_GATE, {.prepare = gate_prepare, .enqueue = gate}},
    {OP_GATE_BACKWARD, {.prepare = gate_backward_prepare, .enqueue = gate_backward}},
    {OP_LAYER_NORM, {.enqueue = layer_norm}},
    {OP_LAYER_NORM_BACKWARD, {.prepare = layer_norm_backward_prepare, .enqueue = layer_norm_backward}},
    {OP_PIXEL_SHUFFLE, {.enqueue = pixel_shuffle}},
    {OP_PIXEL_UNSHUFFLE, {.enqueue = pixel_unshuffle}},
    {OP_RESPONSE_NORM, {.prepare = response_norm_prepare, .enqueue = response_norm}},
    {OP_RESPONSE_NORM_BACKWARD, {.prepare = response_norm_prepare, .enqueue = response_norm_backward}},
    {OP_KIND_COUNT, {NULL}},
};
