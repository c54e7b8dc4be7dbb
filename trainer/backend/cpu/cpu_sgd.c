#include "trainer/backend/cpu/cpu.h"

#include <stdlib.h>

/* Every parameter with its gradient and momentum, laid end to end: `first` numbers elements over all of them, so that
 * threads share the work evenly whatever the parameters' sizes. */
typedef struct SgdSegment {
    float *w, *v;
    const float *g;
    int64_t first, count;
    float decay;
} SgdSegment;

typedef struct SgdPlan {
    int64_t total, segment_count;
    SgdSegment segments[];
} SgdPlan;

FshStatus cpu_sgd_prepare(CpuStep *step, FshError *error)
{
    const CpuProgram *program = step->program;
    const Graph *graph = program->base.graph;
    const CpuState *state = (const CpuState *)program->base.state;
    int64_t count = 0;
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        count += graph_tensor(graph, (TensorId)i)->role == TENSOR_OPTIMIZER;
    SgdPlan *plan = step->plan = calloc(1, sizeof *plan + (size_t)count * sizeof *plan->segments);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for %lld parameters", (long long)count);
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)i);
        if (tensor->role != TENSOR_OPTIMIZER)
            continue;
        const CpuVariable *parameter = program->variables[tensor->of];
        plan->segments[plan->segment_count++] = (SgdSegment){
            .w = (float *)(state->values + parameter->offset_bytes),
            .v = (float *)(state->values + program->variables[i]->offset_bytes),
            .g = (const float *)(state->gradients + parameter->offset_bytes),
            .first = plan->total,
            /* Padding of the layout goes along: it is zero in all three and stays zero. */
            .count = (int64_t)(dnn_layout_bytes(parameter->layout) / sizeof(float)),
            .decay = graph_tensor(graph, tensor->of)->decays ? (float)step->node->as.sgd.weight_decay : 0,
        };
        plan->total += plan->segments[plan->segment_count - 1].count;
    }
    return FSH_OK;
}

static void sgd_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const SgdPlan *plan = step->plan;
    const Sgd *sgd = &step->node->as.sgd;
    const float rate = *(const float *)step->inputs[0];
    (void)part;
    for (int64_t i = 0; i < plan->segment_count; i++) {
        const SgdSegment *s = &plan->segments[i];
        const int64_t from = begin > s->first ? begin - s->first : 0;
        const int64_t to = end < s->first + s->count ? end - s->first : s->count;
        if (from < to)
            step->program->backend->kernels->sgd(s->w + from, s->v + from, s->g + from, to - from, rate,
                                                 (float)sgd->momentum, s->decay, sgd->nesterov);
    }
}

FshStatus cpu_sgd_run(CpuStep *step, FshError *error)
{
    const SgdPlan *plan = step->plan;
    (void)error;
    cpu_parallel(step->program->backend, plan->total, sgd_part, step);
    return FSH_OK;
}
