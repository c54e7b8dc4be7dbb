#include "trainer/backend/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

static const CpuKernels *kernels_of(const CpuStep *step)
{
    return step->program->backend->kernels;
}

/* ---- fill --------------------------------------------------------------------------------------------------------- */

FshStatus cpu_fill_run(CpuStep *step, FshError *error)
{
    float *y = step->outputs[0];
    (void)error;
    for (int64_t i = 0, count = tensor_count(cpu_output(step, 0)); i < count; i++)
        y[i] = step->node->as.fill.value;
    return FSH_OK;
}

/* ---- normalize: (x - mean) / deviation as x * scale + shift --------------------------------------------------------- */

enum { NORMALIZE_PIXELS = 16 }; /* taken as one row, so that three channels fill vectors */

typedef struct NormalizePlan {
    float scale[NORMALIZE_PIXELS * GRAPH_CHANNELS_MAX], shift[NORMALIZE_PIXELS * GRAPH_CHANNELS_MAX];
} NormalizePlan;

FshStatus cpu_normalize_prepare(CpuStep *step, FshError *error)
{
    const int64_t channels = cpu_input(step, 0)->shape[3];
    NormalizePlan *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    for (int64_t i = 0; i < NORMALIZE_PIXELS * channels; i++) {
        const double deviation = (double)step->node->as.normalize.deviation[i % channels];
        plan->scale[i] = (float)(1 / deviation);
        plan->shift[i] = (float)(-(double)step->node->as.normalize.mean[i % channels] / deviation);
    }
    return FSH_OK;
}

static void normalize_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const NormalizePlan *plan = step->plan;
    const int64_t channels = cpu_input(step, 0)->shape[3], width = NORMALIZE_PIXELS * channels;
    const uint8_t *x = step->inputs[0];
    float *y = step->outputs[0];
    const int64_t rows = (end - begin) / NORMALIZE_PIXELS, rest = (end - begin) % NORMALIZE_PIXELS;
    (void)part;
    kernels_of(step)->normalize(x + begin * channels, plan->scale, plan->shift, y + begin * channels, rows,
                                width);
    const int64_t done = (begin + rows * NORMALIZE_PIXELS) * channels;
    kernels_of(step)->normalize(x + done, plan->scale, plan->shift, y + done, 1, rest * channels);
}

FshStatus cpu_normalize_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(x) / x->shape[3], normalize_part, step);
    return FSH_OK;
}

/* ---- ReLU, add ------------------------------------------------------------------------------------------------------ */

static void relu_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const float *x = step->inputs[0];
    float *y = step->outputs[0];
    (void)part;
    kernels_of(step)->relu(x + begin, y + begin, end - begin, step->node->as.relu.slope);
}

FshStatus cpu_relu_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), relu_part, step);
    return FSH_OK;
}

static void relu_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const float *dy = step->inputs[0], *y = step->inputs[1];
    float *dx = step->outputs[0];
    (void)part;
    kernels_of(step)->relu_backward(dy + begin, y + begin, dx + begin, end - begin,
                                    step->node->as.relu.slope);
}

FshStatus cpu_relu_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), relu_backward_part, step);
    return FSH_OK;
}

static void add_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const float *a = step->inputs[0], *b = step->inputs[1];
    float *y = step->outputs[0];
    (void)part;
    kernels_of(step)->add(a + begin, b + begin, y + begin, end - begin);
}

FshStatus cpu_add_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), add_part, step);
    return FSH_OK;
}

/* ---- flatten: [pixels, channels] of each sample transposed -------------------------------------------------------- */

/* to[j * rows + i] = from[i * columns + j] for each of the samples. */
typedef struct Transposition {
    const float *from;
    float *to;
    int64_t rows, columns;
} Transposition;

static void transpose_part(void *context, int part, int64_t begin, int64_t end)
{
    const Transposition *t = context;
    const int64_t size = t->rows * t->columns;
    (void)part;
    for (int64_t sample = begin; sample < end; sample++) {
        const float *from = t->from + sample * size;
        float *to = t->to + sample * size;
        for (int64_t j = 0; j < t->columns; j++)
            for (int64_t i = 0; i < t->rows; i++)
                to[j * t->rows + i] = from[i * t->columns + j];
    }
}

static void transpose(const CpuStep *step, int64_t samples, int64_t rows, int64_t columns)
{
    Transposition transposition = {step->inputs[0], step->outputs[0], rows, columns};
    if (transposition.from == transposition.to)
        return; /* the memory plan made it a view: one row or one column */
    cpu_parallel(step->program->backend, samples, transpose_part, &transposition);
}

FshStatus cpu_flatten_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, 0);
    (void)error;
    transpose(step, x->shape[0], x->shape[1] * x->shape[2], x->shape[3]);
    return FSH_OK;
}

FshStatus cpu_flatten_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *dx = cpu_output(step, 0);
    (void)error;
    transpose(step, dx->shape[0], dx->shape[3], dx->shape[1] * dx->shape[2]);
    return FSH_OK;
}
