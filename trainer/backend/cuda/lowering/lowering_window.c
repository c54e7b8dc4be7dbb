#include "trainer/backend/cuda/lowering/lowering.h"

PoolShape lowering_pool_shape(const Pool2d *pool)
{
    return (PoolShape){(int)pool->kernel, (int)pool->stride, (int)pool->padding, pool->ceil};
}

static PoolShape pool_shape(const Step *step)
{
    return lowering_pool_shape(&step->node->as.pool);
}

static FshStatus max_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(
        kernel_max_pool(in(step, 0), &pool, out(step, MAX_POOL_Y), out(step, MAX_POOL_INDEX), stream), error);
}

static FshStatus max_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_max_pool_backward(in(step, MAX_POOL_BACK_DY), in(step, MAX_POOL_BACK_INDEX), &pool,
                                             out(step, 0), stream),
                    error);
}

static FshStatus avg_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_avg_pool(in(step, 0), &pool, out(step, 0), stream), error);
}

static FshStatus avg_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    const PoolShape pool = pool_shape(step);
    return CUDA_TRY(kernel_avg_pool_backward(in(step, 0), &pool, out(step, 0), stream), error);
}

static FshStatus global_avg_pool_prepare(const CudaProgram *program, Step *step, FshError *error)
{
    (void)program;
    (void)error;
    want_scratch(step, kernel_global_avg_pool_scratch_bytes(in(step, 0)));
    return FSH_OK;
}

static FshStatus global_avg_pool(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_global_avg_pool(in(step, 0), out(step, 0), step->scratch, stream), error);
}

static FshStatus global_avg_pool_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_global_avg_pool_backward(in(step, 0), out(step, 0), stream), error);
}

static FshStatus reflection_pad(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_reflection_pad(in(step, 0), (int)step->node->as.pad.padding, out(step, 0), stream),
                    error);
}

static FshStatus reflection_pad_backward(const Step *step, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(
        kernel_reflection_pad_backward(in(step, 0), (int)step->node->as.pad.padding, out(step, 0), stream),
        error);
}

const LoweringRow lowering_window[] = {
    {OP_MAX_POOL, {.enqueue = max_pool}},
    {OP_MAX_POOL_BACKWARD, {.enqueue = max_pool_backward}},
    {OP_AVG_POOL, {.enqueue = avg_pool}},
    {OP_AVG_POOL_BACKWARD, {.enqueue = avg_pool_backward}},
    {OP_GLOBAL_AVG_POOL, {.prepare = global_avg_pool_prepare, .enqueue = global_avg_pool}},
    {OP_GLOBAL_AVG_POOL_BACKWARD, {.enqueue = global_avg_pool_backward}},
    {OP_REFLECTION_PAD, {.enqueue = reflection_pad}},
    {OP_REFLECTION_PAD_BACKWARD, {.enqueue = reflection_pad_backward}},
    {OP_KIND_COUNT, {NULL}},
};
