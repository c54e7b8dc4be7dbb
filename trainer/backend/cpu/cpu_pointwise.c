#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/backend/pointwise_math.h"

/* graph_ops.h's order, by which op_pointwise.c finds the gradient of a function. */
#define IS_FOLLOWED(KIND, function, narrow)                                                                  \
    _Static_assert((int)OP_##KIND##_BACKWARD == (int)OP_##KIND + 1, "a _BACKWARD follows its op");
POINTWISE_FUNCTIONS(IS_FOLLOWED)
#undef IS_FOLLOWED

/* ---- fill ---- */

static FshStatus fill_run(CpuStep *step, FshError *error)
{
    float *y = step->outputs[0];
    (void)error;
    for (int64_t i = 0, count = tensor_count(cpu_output(step, 0)); i < count; i++)
        y[i] = step->node->as.fill.value;
    return FSH_OK;
}

/* ---- cast ---- */

/* Casts from or to f32: between two narrower types there is no cast (graph_cast). */
static void cast_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const CpuBackend *backend = step->program->backend;
    const DataType from = cpu_input(step, 0)->type, to = cpu_output(step, 0)->type;
    (void)part;
    if (to == DATA_F32)
        cpu_kernels(backend, from)->to_f32(cpu_read(step, 0, begin), cpu_write(step, 0, begin), end - begin);
    else
        cpu_kernels(backend, to)->from_f32(cpu_read(step, 0, begin), cpu_write(step, 0, begin), end - begin);
}

static FshStatus cast_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), cast_part, step);
    return FSH_OK;
}

/* ---- normalize: (x - mean) / deviation as x * scale + shift ---- */

enum { NORMALIZE_PIXELS = 16 }; /* taken as one row, so that three channels fill vectors */

typedef struct NormalizePlan {
    float scale[NORMALIZE_PIXELS * GRAPH_CHANNELS_MAX], shift[NORMALIZE_PIXELS * GRAPH_CHANNELS_MAX];
} NormalizePlan;

static FshStatus normalize_prepare(CpuStep *step, FshError *error)
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
    const int64_t rows = (end - begin) / NORMALIZE_PIXELS, rest = (end - begin) % NORMALIZE_PIXELS;
    (void)part;
    step->kernels->normalize(cpu_read(step, 0, begin * channels), plan->scale, plan->shift,
                             cpu_write(step, 0, begin * channels), rows, width);
    const int64_t done = (begin + rows * NORMALIZE_PIXELS) * channels;
    step->kernels->normalize(cpu_read(step, 0, done), plan->scale, plan->shift, cpu_write(step, 0, done), 1,
                             rest * channels);
}

static FshStatus normalize_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(x) / x->shape[3], normalize_part, step);
    return FSH_OK;
}

/* ---- ReLU, functions of one value, add ---- */

static void relu_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->relu(cpu_read(step, 0, begin), cpu_write(step, 0, begin), end - begin,
                        step->node->as.relu.slope);
}

static FshStatus relu_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), relu_part, step);
    return FSH_OK;
}

static void relu_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->relu_backward(cpu_read(step, RELU_BACK_DY, begin), cpu_read(step, RELU_BACK_Y, begin),
                                 cpu_write(step, 0, begin), end - begin, step->node->as.relu.slope);
}

static FshStatus relu_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), relu_backward_part, step);
    return FSH_OK;
}

static void pointwise_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->pointwise(step->node->op, cpu_read(step, 0, begin), cpu_write(step, 0, begin),
                             end - begin);
}

static FshStatus pointwise_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), pointwise_part, step);
    return FSH_OK;
}

static void pointwise_backward_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->pointwise_backward(step->node->op, cpu_read(step, POINTWISE_BACK_DY, begin),
                                      cpu_read(step, POINTWISE_BACK_X, begin), cpu_write(step, 0, begin),
                                      end - begin);
}

static FshStatus pointwise_backward_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), pointwise_backward_part, step);
    return FSH_OK;
}

static void add_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    (void)part;
    step->kernels->add(cpu_read(step, ADD_A, begin), cpu_read(step, ADD_B, begin), cpu_write(step, 0, begin),
                       end - begin);
}

static FshStatus add_run(CpuStep *step, FshError *error)
{
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(cpu_output(step, 0)), add_part, step);
    return FSH_OK;
}

/* ---- flatten: [pixels, channels] of each sample transposed ---- */

typedef struct Transposition {
    const CpuStep *step;
    int64_t rows, columns; /* of one sample */
} Transposition;

static void transpose_part(void *context, int part, int64_t begin, int64_t end)
{
    const Transposition *t = context;
    const int64_t size = t->rows * t->columns;
    (void)part;
    for (int64_t sample = begin; sample < end; sample++)
        t->step->kernels->transpose(cpu_read(t->step, 0, sample * size), t->rows, t->columns,
                                    cpu_write(t->step, 0, sample * size));
}

static void transpose(const CpuStep *step, int64_t samples, int64_t rows, int64_t columns)
{
    Transposition transposition = {step, rows, columns};
    if (step->inputs[0] == step->outputs[0])
        return; /* the memory plan made it a view: one row or one column */
    cpu_parallel(step->program->backend, samples, transpose_part, &transposition);
}

static FshStatus flatten_run(CpuStep *step, FshError *error)
{
    const Tensor *x = cpu_input(step, 0);
    (void)error;
    transpose(step, x->shape[0], x->shape[1] * x->shape[2], x->shape[3]);
    return FSH_OK;
}

static FshStatus flatten_backward_run(CpuStep *step, FshError *error)
{
    const Tensor *dx = cpu_output(step, 0);
    (void)error;
    transpose(step, dx->shape[0], dx->shape[3], dx->shape[1] * dx->shape[2]);
    return FSH_OK;
}

#define POINTWISE_ROWS(KIND, function, narrow)                                                               \
    {OP_##KIND, .run = pointwise_run}, {OP_##KIND##_BACKWARD, .run = pointwise_backward_run},

const CpuOp cpu_ops_pointwise[] = {
    POINTWISE_FUNCTIONS(POINTWISE_ROWS) /* each with its comma */
    {OP_FILL, .run = fill_run},
    {OP_CAST, .run = cast_run},
    {OP_NORMALIZE, .prepare = normalize_prepare, .run = normalize_run},
    {OP_RELU, .run = relu_run},
    {OP_RELU_BACKWARD, .run = relu_backward_run},
    {OP_ADD, .run = add_run},
    {OP_FLATTEN, .run = flatten_run},
    {OP_FLATTEN_BACKWARD, .run = flatten_backward_run},
    {OP_KIND_COUNT, NULL, NULL},
};
