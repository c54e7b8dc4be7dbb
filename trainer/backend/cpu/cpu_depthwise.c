#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

/* Depthwise convolutions and their gradients, by loops over channels side by side (cpu_kernels_depthwise.h).
 *
 * For large kernels on NHWC without AVX-512 oneDNN 2.6 makes a matrix of each channel and multiplies it, 49
 * by 1, which is ten times as slow and more; with AVX-512 it has loops, which for 7 x 7 take three times as
 * long as these (docs/measurements/2026-11-28-cpu-pointwise.md). For 3 x 3 its loops are the faster ones. So
 * weights of large kernels lie as the loops here want them, taps, then channels; of the others those that
 * oneDNN would have so. In bf16 oneDNN's forward passes and gradients of images take a third of the time of
 * these, but its gradients of weights 5 to 30 times as long. */

enum { KERNEL_MIN = 7 };

typedef struct DepthwisePlan {
    DepthwiseShape shape;
    int64_t batch, source_height, result_height;
    int64_t parts; /* of the weight's gradient, each a thread's sum */
    DepthwiseMeeting *meetings;
    int32_t *counts;
    bool *alike;
    DepthwiseRun *runs;
} DepthwisePlan;

bool cpu_is_depthwise(const DnnConvolution *c)
{
    return c->groups > 1 && c->groups == c->in_channels && c->in_channels == c->out_channels;
}

bool cpu_depthwise_lays_weight(const DnnConvolution *c)
{
    return cpu_is_depthwise(c) && c->kernel >= KERNEL_MIN;
}

bool cpu_depthwise_wins(const DnnConvolution *c, const DnnLayout *weights)
{
    return cpu_is_depthwise(c) && c->type == DATA_F32 && dnn_layout_is_by_taps(weights);
}

bool cpu_depthwise_gradient_wins(const DnnConvolution *c, const DnnLayout *weights)
{
    return cpu_depthwise_wins(c, weights) || cpu_depthwise_lays_weight(c);
}

/* Writes what meets along an axis: by places of the output, or, backward, of the input. */
static void find_meetings(const DnnConvolution *c, int64_t in_size, int64_t out_size, bool backward,
                          DepthwiseMeeting *meetings, int32_t *counts)
{
    for (int64_t out = 0; out < out_size; out++)
        for (int64_t tap = 0; tap < c->kernel; tap++) {
            const int64_t in = out * c->stride - c->padding + tap, place = backward ? in : out;
            if (in < 0 || in >= in_size)
                continue;
            meetings[place * c->kernel + counts[place]++] =
                (DepthwiseMeeting){(int32_t)tap, (int32_t)(backward ? out : in)};
        }
}

DepthwiseRun cpu_depthwise_run(const DepthwiseShape *s, int32_t tap)
{
    DepthwiseRun run = {0};
    for (int64_t place = 0; place < s->result_width; place++)
        for (int32_t k = 0; k < s->columns.counts[place]; k++) {
            const DepthwiseMeeting *meeting = &s->columns.meetings[place * s->kernel + k];
            if (meeting->tap != tap)
                continue;
            if (run.end == 0) {
                run.first = place;
                run.source = meeting->source;
            } else if (place > run.first) {
                run.stride = (meeting->source - run.source) / (place - run.first);
            }
            run.end = place + 1;
        }
    return run;
}

bool cpu_depthwise_are_alike(const DepthwiseShape *s, int64_t place)
{
    const DepthwiseMeeting *columns = s->columns.meetings + place * s->kernel;
    const int32_t count = s->columns.counts[place];
    if (place + DEPTHWISE_PLACES > s->result_width)
        return false;
    for (int64_t p = 1; p < DEPTHWISE_PLACES; p++) {
        const DepthwiseMeeting *others = columns + p * s->kernel;
        if (s->columns.counts[place + p] != count)
            return false;
        for (int32_t k = 0; k < count; k++)
            if (others[k].tap != columns[k].tap || others[k].source != columns[k].source + p)
                return false;
    }
    return true;
}

static void release(CpuStep *step)
{
    DepthwisePlan *plan = step->plan;
    free(plan->meetings);
    free(plan->counts);
    free(plan->alike);
    free(plan->runs);
}

/* Computes rows begin..end of all images. */
static void gather_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const DepthwisePlan *plan = step->plan;
    const DepthwiseShape *s = &plan->shape;
    const bool forward = step->node->op == OP_CONV2D;
    const float *weight = step->inputs[forward ? (int)CONV_WEIGHT : (int)CONV_DATA_WEIGHT];
    const float *bias = forward ? step->inputs[CONV_BIAS] : NULL;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const int64_t image = row / plan->result_height;
        step->kernels->depthwise->gather(
            s, cpu_read(step, 0, image * plan->source_height * s->source_width * s->channels), weight, bias,
            row % plan->result_height, cpu_write(step, 0, row * s->result_width * s->channels));
    }
    if (forward && step->node->as.conv.relu) {
        void *y = cpu_write(step, 0, begin * s->result_width * s->channels);
        step->kernels->relu(y, y, (end - begin) * s->result_width * s->channels, step->node->as.conv.slope);
    }
}

static FshStatus run_gather(CpuStep *step, FshError *error)
{
    const DepthwisePlan *plan = step->plan;
    (void)error;
    cpu_parallel(step->program->backend, plan->batch * plan->result_height, gather_part, step);
    return FSH_OK;
}

/* Returns the floats of a part's sums: the weight's, then the bias's. */
static int64_t part_floats(const DepthwisePlan *plan)
{
    return (plan->shape.kernel * plan->shape.kernel + 1) * plan->shape.channels;
}

/* Sums over the images of parts begin..end, which do not depend on who computes them. */
static void gradient_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const DepthwisePlan *plan = step->plan;
    const DepthwiseShape *s = &plan->shape;
    const int64_t taps = s->kernel * s->kernel * s->channels;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        float *sums = (float *)step->program->scratch + i * part_floats(plan);
        memset(sums, 0, (size_t)part_floats(plan) * sizeof *sums);
        for (int64_t image = plan->batch * i / plan->parts; image < plan->batch * (i + 1) / plan->parts;
             image++)
            for (int64_t row = 0; row < plan->result_height; row++)
                step->kernels->depthwise->add_gradient(
                    s,
                    cpu_read(step, CONV_WEIGHT_X,
                             image * plan->source_height * s->source_width * s->channels),
                    cpu_read(step, CONV_WEIGHT_DY,
                             (image * plan->result_height + row) * s->result_width * s->channels),
                    row, sums, step->outputs[CONV_WEIGHT_DBIAS] ? sums + taps : NULL);
    }
}

static FshStatus run_gradient(CpuStep *step, FshError *error)
{
    const DepthwisePlan *plan = step->plan;
    const int64_t taps = plan->shape.kernel * plan->shape.kernel * plan->shape.channels;
    const float *sums = (const float *)step->program->scratch;
    float *dweight = step->outputs[CONV_WEIGHT_DWEIGHT], *dbias = step->outputs[CONV_WEIGHT_DBIAS];
    (void)error;
    cpu_parallel(step->program->backend, plan->parts, gradient_part, step);
    for (int64_t k = 0; k < taps; k++) {
        float sum = 0;
        for (int64_t i = 0; i < plan->parts; i++)
            sum += sums[i * part_floats(plan) + k];
        dweight[k] = sum;
    }
    for (int64_t c = 0; dbias && c < plan->shape.channels; c++) {
        float sum = 0;
        for (int64_t i = 0; i < plan->parts; i++)
            sum += sums[i * part_floats(plan) + taps + c];
        dbias[c] = sum;
    }
    return FSH_OK;
}

FshStatus cpu_depthwise_prepare(CpuStep *step, const DnnConvolution *c, FshError *error)
{
    const bool backward = step->node->op == OP_CONV2D_BACKWARD_DATA,
               of_weight = step->node->op == OP_CONV2D_BACKWARD_WEIGHT;
    const int64_t height = backward ? c->in_height : c->out_height,
                  width = backward ? c->in_width : c->out_width;
    const int threads = step->program->backend->threads;
    DepthwisePlan *plan = step->plan = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    step->release = release;
    plan->meetings = calloc((size_t)((height + width) * c->kernel), sizeof *plan->meetings);
    plan->counts = calloc((size_t)(height + width), sizeof *plan->counts);
    plan->alike = calloc((size_t)width, sizeof *plan->alike);
    plan->runs = calloc((size_t)c->kernel, sizeof *plan->runs);
    if (!plan->meetings || !plan->counts || !plan->alike || !plan->runs)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    find_meetings(c, c->in_height, c->out_height, backward, plan->meetings, plan->counts);
    find_meetings(c, c->in_width, c->out_width, backward, plan->meetings + height * c->kernel,
                  plan->counts + height);
    plan->batch = c->batch;
    plan->source_height = backward ? c->out_height : c->in_height;
    plan->result_height = height;
    plan->parts = c->batch < threads ? c->batch : threads;
    plan->shape = (DepthwiseShape){.channels = c->in_channels,
                                   .kernel = c->kernel,
                                   .source_width = backward ? c->out_width : c->in_width,
                                   .result_width = width,
                                   .rows = {plan->meetings, plan->counts},
                                   .columns = {plan->meetings + height * c->kernel, plan->counts + height},
                                   .alike = plan->alike,
                                   .runs = plan->runs};
    for (int64_t place = 0; !of_weight && place < width; place++)
        plan->alike[place] = cpu_depthwise_are_alike(&plan->shape, place);
    for (int32_t tap = 0; of_weight && tap < c->kernel; tap++)
        plan->runs[tap] = cpu_depthwise_run(&plan->shape, tap);
    step->engine = "depthwise";
    step->run = of_weight ? run_gradient : run_gather;
    if (of_weight) {
        step->kernels = cpu_kernels(step->program->backend, c->type); /* the result is f32 */
        step->scratch_bytes = (uint64_t)(plan->parts * part_floats(plan)) * sizeof(float);
    }
    return FSH_OK;
}
