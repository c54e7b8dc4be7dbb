/* Muon's part of an update: momentum and step of each matrix in the pass that moves the rest; then the
 * products (cpu_muon.c); then a pass that moves the matrices. Bytes for a parameter beside the products': 20,
 * and 12. */
#include "trainer/backend/cpu/cpu_update.h"

#include <math.h>

void cpu_update_matrix_step(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                            int64_t chunk, float *room)
{
    const MuonRule *rule = &run->optimizer->muon;
    const float *g = cpu_update_gradient(run, s, first, count, chunk, room);
    float *step = cpu_muon_direction(run->plan->muon, s->matrix) + first;
    run->kernels->muon_step((float)rule->momentum, rule->nesterov, s->slots[SLOT_MOMENTUM_BUFFER] + first, g,
                            step, count);
    cpu_update_sums(run, OF_DIRECTION)[chunk] = run->kernels->sum_squares(step, count);
    if (rule->renorm)
        cpu_update_sums(run, OF_WEIGHT)[chunk] = run->kernels->sum_squares(s->w + first, count);
}

/* Returns what a matrix is multiplied by before its step. */
static double renorm_of(const UpdateRun *run, const Segment *s)
{
    const double weight = run->optimizer->muon.renorm ? sqrt(cpu_update_segment_sum(run, s, OF_WEIGHT)) : 0;
    return weight > 0 ? sqrt(s->rows) / weight : 1;
}

static void apply_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                        float *room)
{
    const double rate = run->rate * s->rate, decay = run->optimizer->muon.weight_decay * s->decay;
    (void)chunk;
    (void)room;
    cpu_update_begin_chunk(run, s, first, count);
    run->kernels->muon_apply((float)(s->trust * (1 - rate * decay)), (float)(rate * s->scale), s->w + first,
                             cpu_muon_direction(run->plan->muon, s->matrix) + first, count);
    cpu_update_end_chunk(run, s, first, count);
}

static void leave_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                        float *room)
{
    (void)run, (void)s, (void)first, (void)count, (void)chunk, (void)room;
}

FshStatus cpu_update_matrices(UpdateRun *run, FshError *error)
{
    const UpdatePlan *plan = run->plan;
    for (int64_t i = 0; i < plan->segment_count; i++) {
        Segment *s = &plan->segments[i];
        if (s->matrix < 0)
            continue;
        const double norm = sqrt(cpu_update_segment_sum(run, s, OF_DIRECTION));
        s->trust = renorm_of(run, s);
        FshStatus status = cpu_muon_orthogonalize(plan->muon, s->matrix, norm, error);
        if (status)
            return status;
    }
    run->matrix_work = apply_chunk;
    cpu_update_pass(run, leave_chunk);
    return FSH_OK;
}
