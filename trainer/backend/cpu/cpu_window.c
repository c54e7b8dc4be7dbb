#include "trainer/backend/cpu/cpu_internal.h"

#include <string.h>

/* ---- pools: rows of images, divided over the threads ---- */

CpuPoolImages cpu_pool_images(const Pool2d *pool, const Tensor *in, const Tensor *out)
{
    const int64_t channels = in->shape[3];
    return (CpuPoolImages){.shape = {channels, in->shape[1], in->shape[2], out->shape[1], out->shape[2],
                                     pool->kernel, pool->stride, pool->padding, pool->ceil},
                           .in_size = in->shape[1] * in->shape[2] * channels,
                           .out_size = out->shape[1] * out->shape[2] * channels,
                           .in_row = in->shape[2] * channels,
                           .out_row = out->shape[2] * channels};
}

typedef struct PoolJob {
    const CpuStep *step;
    CpuPoolImages images;
} PoolJob;

static PoolJob pool_job(const CpuStep *step, const Tensor *in, const Tensor *out)
{
    return (PoolJob){step, cpu_pool_images(&step->node->as.pool, in, out)};
}

static void max_pool_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolJob *job = context;
    const CpuStep *step = job->step;
    (void)part;
    for (int64_t i = begin; i < end; i++)
        step->kernels->pool->max_pool(
            &job->images.shape, cpu_read(step, 0, i / job->images.shape.out_height * job->images.in_size),
            i % job->images.shape.out_height, cpu_write(step, 0, i * job->images.out_row),
            cpu_write(step, MAX_POOL_INDEX, i * job->images.out_row));
}

static FshStatus max_pool_run(CpuStep *step, FshError *error)
{
    PoolJob job = pool_job(step, cpu_input(step, 0), cpu_output(step, 0));
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * job.images.shape.out_height,
                 max_pool_part, &job);
    return FSH_OK;
}

static void max_pool_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolJob *job = context;
    const CpuStep *step = job->step;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / job->images.shape.in_height * job->images.out_size;
        step->kernels->pool->max_pool_backward(&job->images.shape, cpu_read(step, MAX_POOL_BACK_DY, image),
                                               cpu_read(step, MAX_POOL_BACK_INDEX, image),
                                               i % job->images.shape.in_height,
                                               cpu_write(step, 0, i * job->images.in_row));
    }
}

static FshStatus max_pool_backward_run(CpuStep *step, FshError *error)
{
    PoolJob job = pool_job(step, cpu_output(step, 0), cpu_input(step, 0));
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * job.images.shape.in_height,
                 max_pool_backward_part, &job);
    return FSH_OK;
}

static void avg_pool_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolJob *job = context;
    const CpuStep *step = job->step;
    (void)part;
    for (int64_t i = begin; i < end; i++)
        step->kernels->pool->avg_pool(
            &job->images.shape, cpu_read(step, 0, i / job->images.shape.out_height * job->images.in_size),
            i % job->images.shape.out_height, cpu_write(step, 0, i * job->images.out_row));
}

static FshStatus avg_pool_run(CpuStep *step, FshError *error)
{
    PoolJob job = pool_job(step, cpu_input(step, 0), cpu_output(step, 0));
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * job.images.shape.out_height,
                 avg_pool_part, &job);
    return FSH_OK;
}

static void avg_pool_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const PoolJob *job = context;
    const CpuStep *step = job->step;
    (void)part;
    for (int64_t i = begin; i < end; i++)
        step->kernels->pool->avg_pool_backward(
            &job->images.shape, cpu_read(step, 0, i / job->images.shape.in_height * job->images.out_size),
            i % job->images.shape.in_height, cpu_write(step, 0, i * job->images.in_row));
}

static FshStatus avg_pool_backward_run(CpuStep *step, FshError *error)
{
    PoolJob job = pool_job(step, cpu_output(step, 0), cpu_input(step, 0));
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * job.images.shape.in_height,
                 avg_pool_backward_part, &job);
    return FSH_OK;
}

/* ---- global average pool ---- */

static void global_avg_pool_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *image = cpu_input(step, 0);
    const int64_t pixels = image->shape[1] * image->shape[2], channels = image->shape[3];
    (void)part;
    for (int64_t n = begin; n < end; n++)
        step->kernels->row_mean(cpu_read(step, 0, n * pixels * channels), pixels, channels,
                                cpu_write(step, 0, n * channels));
}

static FshStatus global_avg_pool_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0], global_avg_pool_part, step);
    return FSH_OK;
}

static void global_avg_pool_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *image = cpu_output(step, 0);
    const int64_t pixels = image->shape[1] * image->shape[2], channels = image->shape[3];
    (void)part;
    for (int64_t i = begin; i < end; i++)
        step->kernels->scale(cpu_read(step, 0, i / pixels * channels), 1 / (float)pixels,
                             cpu_write(step, 0, i * channels), channels);
}

static FshStatus global_avg_pool_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *image = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, image->shape[0] * image->shape[1] * image->shape[2],
                 global_avg_pool_backward_part, step);
    return FSH_OK;
}

/* ---- reflection pad: the edge itself is not repeated ---- */

/* Returns where pixel `at` of the padded axis comes from: -1 is 1, size is size - 2. */
static int64_t reflected(int64_t at, int64_t padding, int64_t size)
{
    const int64_t position = at - padding;
    return position < 0 ? -position : position >= size ? 2 * (size - 1) - position : position;
}

/* Finds the places of the padded axis that pixel `at` goes to: itself and up to two images. Returns their
 * number. */
static int reflections(int64_t at, int64_t padding, int64_t size, int64_t places[3])
{
    int count = 0;
    places[count++] = at + padding;
    if (at >= 1 && at <= padding)
        places[count++] = padding - at;
    if (at <= size - 2 && at >= size - 1 - padding)
        places[count++] = padding + 2 * (size - 1) - at;
    return count;
}

static void reflection_pad_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *in = cpu_input(step, 0), *out = cpu_output(step, 0);
    const int64_t height = in->shape[1], width = in->shape[2], channels = in->shape[3];
    const int64_t padding = step->node->as.pad.padding;
    const size_t pixel_bytes = (size_t)channels * data_type_bytes(in->type);
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t sample = i / out->shape[1], row = reflected(i % out->shape[1], padding, height);
        const char *x = cpu_read(step, 0, (sample * height + row) * width * channels);
        char *y = cpu_write(step, 0, i * out->shape[2] * channels);
        memcpy(y + (size_t)padding * pixel_bytes, x, (size_t)width * pixel_bytes);
        for (int64_t column = 0; column < padding; column++) {
            const int64_t right = out->shape[2] - 1 - column;
            memcpy(y + (size_t)column * pixel_bytes,
                   x + (size_t)reflected(column, padding, width) * pixel_bytes, pixel_bytes);
            memcpy(y + (size_t)right * pixel_bytes,
                   x + (size_t)reflected(right, padding, width) * pixel_bytes, pixel_bytes);
        }
    }
}

static FshStatus reflection_pad_run(CpuStep *step, FshError *error)
{
    const Tensor *out = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, out->shape[0] * out->shape[1], reflection_pad_part, step);
    return FSH_OK;
}

static void reflection_pad_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *in = cpu_output(step, 0), *out = cpu_input(step, 0);
    const int64_t height = in->shape[1], width = in->shape[2], channels = in->shape[3];
    const int64_t padding = step->node->as.pad.padding;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / height * out->shape[1] * out->shape[2] * channels;
        int64_t rows[3], columns[3];
        const int row_count = reflections(i % height, padding, height, rows);
        for (int64_t column = 0; column < width; column++) {
            const int column_count = reflections(column, padding, width, columns);
            const void *places[9];
            for (int k = 0; k < row_count * column_count; k++)
                places[k] = cpu_read(
                    step, 0,
                    image + (rows[k / column_count] * out->shape[2] + columns[k % column_count]) * channels);
            step->kernels->sum(places, row_count * column_count,
                               cpu_write(step, 0, (i * width + column) * channels), channels);
        }
    }
}

static FshStatus reflection_pad_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *in = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, in->shape[0] * in->shape[1], reflection_pad_backward_part, step);
    return FSH_OK;
}

const CpuOp cpu_ops_window[] = {
    {OP_MAX_POOL, .run = max_pool_run},
    {OP_MAX_POOL_BACKWARD, .run = max_pool_backward_run},
    {OP_AVG_POOL, .run = avg_pool_run},
    {OP_AVG_POOL_BACKWARD, .run = avg_pool_backward_run},
    {OP_GLOBAL_AVG_POOL, .run = global_avg_pool_run},
    {OP_GLOBAL_AVG_POOL_BACKWARD, .run = global_avg_pool_backward_run},
    {OP_REFLECTION_PAD, .run = reflection_pad_run},
    {OP_REFLECTION_PAD_BACKWARD, .run = reflection_pad_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
