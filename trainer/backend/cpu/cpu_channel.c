#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

static const CpuChannelKernels *kernels_of(const CpuStep *step)
{
    return step->kernels->channel;
}

/* Returns the channels of an image [.., C]. */
static int64_t channels_of(const Tensor *image)
{
    return image->shape[image->rank - 1];
}

static int64_t pixels_of(const Tensor *image)
{
    return tensor_count(image) / channels_of(image);
}

/* ---- sums over pixels ----
 *
 * Each part has in scratch `width` floats for a block of rows and `width` doubles for all of them; the parts
 * are added in their order. */

typedef struct SumPlan {
    int64_t width; /* sums */
    int64_t parts;
} SumPlan;

/* Returns the size of both vectors in floats, rounded up to whole cache lines. */
static int64_t part_floats(const SumPlan *plan)
{
    return (3 * plan->width + 15) / 16 * 16;
}

static FshStatus plan_sums(CpuStep *step, int64_t width, int64_t parts, FshError *error)
{
    SumPlan *plan = step->plan = malloc(sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    *plan = (SumPlan){width, parts};
    step->scratch_bytes = (uint64_t)(parts * part_floats(plan)) * sizeof(float);
    return FSH_OK;
}

static double *part_sums(const CpuStep *step, int64_t part)
{
    return (double *)(void *)((float *)step->program->scratch + part * part_floats(step->plan));
}

static float *part_block(const CpuStep *step, int64_t part)
{
    const SumPlan *plan = step->plan;
    return (float *)(void *)(part_sums(step, part) + plan->width);
}

static void clear_sums(const CpuStep *step)
{
    const SumPlan *plan = step->plan;
    for (int64_t part = 0; part < plan->parts; part++)
        memset(part_sums(step, part), 0, (size_t)plan->width * sizeof(double));
}

/* Adds up sums first..first + count of the parts begin..begin + parts and writes them to `to`, which may be
 * NULL. */
static void gather_sums(const CpuStep *step, int64_t begin, int64_t parts, int64_t first, int64_t count,
                        float *to)
{
    for (int64_t c = 0; to && c < count; c++) {
        double sum = 0;
        for (int64_t part = begin; part < begin + parts; part++)
            sum += part_sums(step, part)[first + c];
        to[c] = (float)sum;
    }
}

/* ---- scale ---- */

static void scale_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->scale(cpu_read(step, 0, begin), step->node->as.scale.factor, cpu_write(step, 0, begin),
                         end - begin);
}

static FshStatus scale_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), scale_part, step);
    return FSH_OK;
}

/* ---- channel scale ---- */

static void channel_scale_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0)), first = begin * channels;
    (void)part;
    kernels_of(step)->scale(cpu_read(step, CHANNEL_X, first), step->inputs[CHANNEL_FACTORS],
                            cpu_read(step, CHANNEL_ADDEND, first), cpu_write(step, 0, first), end - begin,
                            channels);
}

static FshStatus channel_scale_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), channel_scale_part, step);
    return FSH_OK;
}

static FshStatus channel_scale_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_sums(step, channels_of(cpu_input(step, 0)), step->program->backend->threads, error);
}

static void channel_scale_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0)), first = begin * channels;
    kernels_of(step)->scale_backward(cpu_read(step, CHANNEL_BACK_DY, first),
                                     cpu_read(step, CHANNEL_BACK_X, first),
                                     step->inputs[CHANNEL_BACK_FACTORS], cpu_write(step, 0, first),
                                     end - begin, channels, part_block(step, part), part_sums(step, part));
}

static FshStatus channel_scale_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    (void)error;
    clear_sums(step);
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), channel_scale_backward_part, step);
    gather_sums(step, 0, plan->parts, 0, plan->width, step->outputs[CHANNEL_BACK_DFACTORS]);
    return FSH_OK;
}

/* ---- channel multiply: a channel scale with factors of each sample ---- */

/* Each image is summed in so many pieces, whatever the threads. */
enum { PIECES = 8 };

/* Finds the pixels of piece i, counted over all images: *first and *count in image *sample. */
static void piece_pixels(const Tensor *image, int64_t i, int64_t *sample, int64_t *first, int64_t *count)
{
    const int64_t pixels = image->shape[1] * image->shape[2], piece = i % PIECES;
    *sample = i / PIECES;
    *first = *sample * pixels + pixels * piece / PIECES;
    *count = pixels * (piece + 1) / PIECES - pixels * piece / PIECES;
}

static void channel_multiply_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *image = cpu_input(step, 0);
    const int64_t channels = channels_of(image);
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        int64_t sample, first, count;
        piece_pixels(image, i, &sample, &first, &count);
        kernels_of(step)->scale(cpu_read(step, 0, first * channels),
                                (const float *)step->inputs[CHANNEL_FACTORS] + sample * channels, NULL,
                                cpu_write(step, 0, first * channels), count, channels);
    }
}

static FshStatus channel_multiply_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, cpu_input(step, 0)->shape[0] * PIECES, channel_multiply_part, step);
    return FSH_OK;
}

static FshStatus channel_multiply_backward_prepare(CpuStep *step, FshError *error)
{
    const Tensor *image = cpu_input(step, 0);
    return plan_sums(step, channels_of(image), image->shape[0] * PIECES, error);
}

static void channel_multiply_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *image = cpu_input(step, 0);
    const int64_t channels = channels_of(image);
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        int64_t sample, first, count;
        piece_pixels(image, i, &sample, &first, &count);
        kernels_of(step)->scale_backward(
            cpu_read(step, CHANNEL_BACK_DY, first * channels),
            cpu_read(step, CHANNEL_BACK_X, first * channels),
            (const float *)step->inputs[CHANNEL_BACK_FACTORS] + sample * channels,
            cpu_write(step, 0, first * channels), count, channels, part_block(step, i), part_sums(step, i));
    }
}

static FshStatus channel_multiply_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t samples = cpu_input(step, 0)->shape[0];
    float *ds = step->outputs[CHANNEL_BACK_DFACTORS];
    (void)error;
    clear_sums(step);
    cpu_parallel(step->program->backend, plan->parts, channel_multiply_backward_part, step);
    for (int64_t n = 0; ds && n < samples; n++)
        gather_sums(step, n * PIECES, PIECES, 0, plan->width, ds + n * plan->width);
    return FSH_OK;
}

/* ---- gate ---- */

static void gate_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_output(step, 0));
    (void)part;
    kernels_of(step)->gate(cpu_read(step, 0, 2 * begin * channels), cpu_write(step, 0, begin * channels),
                           end - begin, channels);
}

static FshStatus gate_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_output(step, 0)), gate_part, step);
    return FSH_OK;
}

static void gate_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const int64_t channels = channels_of(cpu_input(step, 0));
    (void)part;
    kernels_of(step)->gate_backward(cpu_read(step, 0, begin * channels),
                                    cpu_read(step, GATE_BACK_X, 2 * begin * channels),
                                    cpu_write(step, 0, 2 * begin * channels), end - begin, channels);
}

static FshStatus gate_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), gate_backward_part, step);
    return FSH_OK;
}

/* ---- layer norm ---- */

static void layer_norm_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const LayerNormRows norm = {.x = step->inputs[0],
                                .weight = step->inputs[LAYER_NORM_WEIGHT],
                                .bias = step->inputs[LAYER_NORM_BIAS],
                                .y = step->outputs[0],
                                .mean = step->outputs[LAYER_NORM_MEAN],
                                .inverse = step->outputs[LAYER_NORM_INVERSE_DEVIATION],
                                .epsilon = step->node->as.layer_norm.epsilon};
    (void)part;
    kernels_of(step)->layer_norm(&norm, begin, end - begin, channels_of(cpu_input(step, 0)));
}

static FshStatus layer_norm_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), layer_norm_part, step);
    return FSH_OK;
}

static FshStatus layer_norm_backward_prepare(CpuStep *step, FshError *error)
{
    return plan_sums(step, 2 * channels_of(cpu_input(step, 0)), step->program->backend->threads, error);
}

static void layer_norm_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const LayerNormRows norm = {.dy = step->inputs[0],
                                .x = step->inputs[LAYER_NORM_BACK_X],
                                .weight = step->inputs[LAYER_NORM_BACK_WEIGHT],
                                .mean = step->inputs[LAYER_NORM_BACK_MEAN],
                                .inverse = step->inputs[LAYER_NORM_BACK_INVERSE_DEVIATION],
                                .addend = step->inputs[LAYER_NORM_BACK_ADDEND],
                                .dx = step->outputs[0]};
    kernels_of(step)->layer_norm_backward(&norm, begin, end - begin, channels_of(cpu_input(step, 0)),
                                          part_block(step, part), part_sums(step, part));
}

static FshStatus layer_norm_backward_run(CpuStep *step, FshError *error)
{
    const SumPlan *plan = step->plan;
    const int64_t channels = plan->width / 2;
    (void)error;
    clear_sums(step);
    cpu_parallel(step->program->backend, pixels_of(cpu_input(step, 0)), layer_norm_backward_part, step);
    gather_sums(step, 0, plan->parts, 0, channels, step->outputs[LAYER_NORM_BACK_DWEIGHT]);
    gather_sums(step, 0, plan->parts, channels, channels, step->outputs[LAYER_NORM_BACK_DBIAS]);
    return FSH_OK;
}

const CpuOp cpu_ops_channel[] = {
    {OP_SCALE, .run = scale_run},
    {OP_CHANNEL_SCALE, .run = channel_scale_run},
    {OP_CHANNEL_SCALE_BACKWARD, .prepare = channel_scale_backward_prepare, .run = channel_scale_backward_run},
    {OP_CHANNEL_MULTIPLY, .run = channel_multiply_run},
    {OP_CHANNEL_MULTIPLY_BACKWARD, .prepare = channel_multiply_backward_prepare,
     .run = channel_multiply_backward_run},
    {OP_GATE, .run = gate_run},
    {OP_GATE_BACKWARD, .run = gate_backward_run},
    {OP_LAYER_NORM, .run = layer_norm_run},
    {OP_LAYER_NORM_BACKWARD, .prepare = layer_norm_backward_prepare, .run = layer_norm_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
