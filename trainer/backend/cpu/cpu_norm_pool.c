#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>

/* A batch norm whose result goes to a max pool alone: the statistics of a batch norm, then a pool that
 * normalises what it has found; rows of images, divided over the threads. Backward the norm's sums are made
 * of the pool's tensors, by OP_BATCH_NORM_BACKWARD, and what is left is dx. */

typedef struct PoolWork {
    const CpuStep *step;
    CpuPoolImages images;
    NormPool norm;
    NormPoolGradient gradient;
} PoolWork;

static void forward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolWork *work = context;
    const CpuStep *step = work->step;
    (void)part;
    for (int64_t i = begin; i < end; i++)
        step->kernels->pool->norm_pool(
            &work->images.shape, &work->norm,
            cpu_read(step, NORM_X, i / work->images.shape.out_height * work->images.in_size),
            i % work->images.shape.out_height, cpu_write(step, NORM_Y, i * work->images.out_row),
            cpu_write(step, NORM_POOL_EXTREME, i * work->images.out_row),
            cpu_write(step, NORM_POOL_INDEX, i * work->images.out_row));
}

static FshStatus norm_pool_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, NORM_X), *y = cpu_output(step, NORM_Y);
    FshStatus status = cpu_norm_statistics(step, error);
    if (status)
        return status;
    const CpuNormChannels channels = cpu_norm_channels(step);
    PoolWork work = {.step = step, .images = cpu_pool_images(&step->node->as.norm.pool, x, y)};
    work.norm = (NormPool){channels.mean, channels.scale, channels.bias,
                           step->node->as.norm.activation ? step->node->as.norm.slope : 1};
    cpu_parallel(step->program->backend, x->shape[0] * work.images.shape.out_height, forward_part, &work);
    return FSH_OK;
}

/* ---- backward ---- */

enum { FROM_G, FROM_X, CONSTANT, VECTORS };

static FshStatus backward_prepare(CpuStep *step, FshError *error)
{
    (void)error;
    step->scratch_bytes = (uint64_t)(VECTORS * cpu_input(step, NORM_POOL_BACK_X)->shape[3]) * sizeof(float);
    return FSH_OK;
}

static void backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolWork *work = context;
    const CpuStep *step = work->step;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / work->images.shape.in_height * work->images.out_size,
                      row = i * work->images.in_row;
        step->kernels->pool->norm_pool_backward(
            &work->images.shape, &work->gradient, cpu_read(step, NORM_POOL_BACK_G, image),
            cpu_read(step, NORM_POOL_BACK_INDEX, image), i % work->images.shape.in_height,
            cpu_read(step, NORM_POOL_BACK_X, row), cpu_write(step, 0, row));
    }
}

static FshStatus norm_pool_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, NORM_POOL_BACK_X);
    const int64_t channels = x->shape[3];
    const double pixels = (double)tensor_count(x) / (double)channels;
    const float *weight = step->inputs[NORM_POOL_BACK_WEIGHT],
                *inverse_deviation = step->inputs[NORM_POOL_BACK_INVERSE_DEVIATION],
                *dweight = step->inputs[NORM_POOL_BACK_DWEIGHT], *dbias = step->inputs[NORM_POOL_BACK_DBIAS];
    float *vectors = (float *)step->program->scratch, *from_g = vectors + FROM_G * channels,
          *from_x = vectors + FROM_X * channels, *constant = vectors + CONSTANT * channels;
    (void)error;
    for (int64_t c = 0; c < channels; c++) {
        const double inverse = (double)inverse_deviation[c], factor = (double)weight[c] * inverse;
        from_g[c] = (float)factor;
        from_x[c] = (float)(-factor * inverse * (double)dweight[c] / pixels);
        constant[c] = (float)(-factor * (double)dbias[c] / pixels);
    }
    PoolWork work = {.step = step,
                     .images =
                         cpu_pool_images(&step->node->as.norm.pool, x, cpu_input(step, NORM_POOL_BACK_G))};
    work.gradient = (NormPoolGradient){step->inputs[NORM_POOL_BACK_MEAN], from_g, from_x, constant};
    cpu_parallel(step->program->backend, x->shape[0] * work.images.shape.in_height, backward_part, &work);
    return FSH_OK;
}

const CpuOp cpu_ops_norm_pool[] = {
    {OP_NORM_POOL, .prepare = cpu_norm_prepare, .run = norm_pool_run},
    {OP_NORM_POOL_BACKWARD, .prepare = backward_prepare, .run = norm_pool_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
