#include "trainer/backend/cuda/lowering/lowering.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"
#include "trainer/backend/pointwise_math.h"

static FshStatus fill(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_fill(out(step, 0), step->node->as.fill.value, stream), error);
}

static FshStatus cast(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_cast(in(step, 0), out(step, 0), stream), error);
}

static FshStatus scale(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_scale(in(step, 0), step->node->as.scale.factor, out(step, 0), stream), error);
}

static FshStatus normalize(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_normalize(in(step, 0), step->node->as.normalize.mean,
                                     step->node->as.normalize.deviation, out(step, 0), stream),
                    error);
}

static FshStatus relu(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_relu(in(step, 0), step->node->as.relu.slope, out(step, 0), stream), error);
}

static FshStatus relu_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_relu_backward(in(step, RELU_BACK_DY), in(step, RELU_BACK_Y),
                                         step->node->as.relu.slope, out(step, 0), stream),
                    error);
}

static FshStatus pointwise(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_pointwise(step->node->op, in(step, 0), out(step, 0), stream), error);
}

static FshStatus pointwise_backward_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    if (maybe_out(step, POINTWISE_BACK_DBIAS))
        want_scratch(step, kernel_column_scratch_bytes(out(step, POINTWISE_BACK_DX)));
    return FSH_OK;
}

static FshStatus pointwise_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const DeviceTensor *dy = in(step, POINTWISE_BACK_DY), *x = in(step, POINTWISE_BACK_X),
                       *dx = out(step, POINTWISE_BACK_DX), *sums = maybe_out(step, POINTWISE_BACK_DBIAS);
    const OpKind op = step->node->op;
    return sums ? CUDA_TRY(kernel_pointwise_backward_sums(op, dy, x, dx, sums, step->scratch, stream), error)
                : CUDA_TRY(kernel_pointwise_backward(op, dy, x, dx, stream), error);
}

static FshStatus add(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_add(in(step, ADD_A), in(step, ADD_B), out(step, 0), stream), error);
}

static FshStatus flatten(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_flatten(in(step, 0), out(step, 0), stream), error);
}

static FshStatus flatten_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_flatten_backward(in(step, 0), out(step, 0), stream), error);
}

#define POINTWISE_ROWS(KIND, function, narrow)                                                               \
    {OP_##KIND, {.enqueue = pointwise}},                                                                     \
        {OP_##KIND##_BACKWARD, {.prepare = pointwise_backward_prepare, .enqueue = pointwise_backward}},

const LoweringRow lowering_pointwise[] = {
    POINTWISE_FUNCTIONS(POINTWISE_ROWS) /* each with its comma */
    {OP_FILL, {.enqueue = fill}},
    {OP_CAST, {.enqueue = cast}},
    {OP_NORMALIZE, {.enqueue = normalize}},
    {OP_RELU, {.enqueue = relu}},
    {OP_RELU_BACKWARD, {.enqueue = relu_backward}},
    {OP_SCALE, {.enqueue = scale}},
    {OP_ADD, {.enqueue = add}},
    {OP_FLATTEN, {.enqueue = flatten}},
    {OP_FLATTEN_BACKWARD, {.enqueue = flatten_backward}},
    {OP_KIND_COUNT, {NULL}},
};
