/* The perturbation of sharpness-aware minimisation, which program_perturb makes in place of an update, and
 * its end in the run that follows. Bytes for a parameter: 4 to measure the gradient, 20 to perturb, 8 to put
 * back. */
#include "trainer/backend/cpu/cpu_update.h"

#include <math.h>
#include <string.h>

static void measure_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                          float *room)
{
    (void)room;
    cpu_update_sums(run, OF_GRADIENT)[chunk] = run->kernels->sum_squares(s->g + first, count);
}

static void perturb_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                          float *room)
{
    (void)chunk;
    (void)room;
    memcpy(s->slots[SLOT_UNPERTURBED] + first, s->w + first, (size_t)count * sizeof *s->w);
    if (run->factor != 0)
        run->kernels->muon_apply(1, -run->factor, s->w + first, s->g + first, count);
}

static void put_back_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                           int64_t chunk, float *room)
{
    (void)run;
    (void)chunk;
    (void)room;
    memcpy(s->w + first, s->slots[SLOT_UNPERTURBED] + first, (size_t)count * sizeof *s->w);
}

void cpu_update_perturb(UpdateRun *run)
{
    const CpuStep *step = run->step;
    const float *scaler = step->inputs[UPDATE_SCALE];
    const double scale = scaler ? (double)*scaler : 1;
    cpu_update_pass(run, measure_chunk);
    const double norm =
        cpu_update_loss_is_no_number(step) ? NAN : sqrt(cpu_update_gradient_square(run)) / scale;
    *(float *)step->outputs[UPDATE_GRADIENT_NORM] = (float)norm;
    run->factor = isfinite(norm) ? (float)sam_factor(run->optimizer, norm, scale) : 0;
    cpu_update_pass(run, perturb_chunk);
    for (int64_t i = 0; i < run->plan->buffer_count; i++) {
        const FollowedBuffer *b = &run->plan->buffers[i];
        memcpy(b->slots[SLOT_UNPERTURBED], b->value, (size_t)b->count * sizeof *b->value);
    }
    *(float *)step->inputs[UPDATE_PERTURBED] = 1;
}

void cpu_update_put_back(UpdateRun *run)
{
    float *perturbed = run->step->inputs[UPDATE_PERTURBED];
    if (!perturbed || *perturbed == 0)
        return;
    cpu_update_pass(run, put_back_chunk);
    for (int64_t i = 0; i < run->plan->buffer_count; i++) {
        const FollowedBuffer *b = &run->plan->buffers[i];
        memcpy(b->value, b->slots[SLOT_UNPERTURBED], (size_t)b->count * sizeof *b->value);
    }
    *perturbed = 0;
}
