/* The update: all parameters, cut into chunks of UPDATE_CHUNK elements, which threads take one by one.
 * Whatever happens to a chunk (gradient scaled, moments, weights, lookahead, average) happens while it lies
 * in the first-level cache, so each array crosses the memory bus once in a pass; clipping, loss scaling and
 * lars need a norm first, and read the gradient twice; lamb needs one in the middle, and reads weights and
 * moments twice. Floors, in bytes for a parameter:
 *
 *   sgd 20, adam and adamw 28, lars 28, lamb 40; clipping or loss scaling + 4; accumulation + 4, and 8 to 12
 *   in each run that only accumulates; average + 8; lookahead + 8 every so many updates; several ranks that
 *   accumulate + 8. What sam adds: cpu_update_sam.c.
 *
 * Norms are sums over chunks, in the chunks' order: the same for any number of threads. */
#include "trainer/backend/cpu/cpu_update.h"

#include "trainer/graph/muon.h"
#include "trainer/ranks/communicator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- preparing ---- */

static float *variable_values(const CpuProgram *program, TensorId id)
{
    const CpuState *state = (const CpuState *)program->base.state;
    return (float *)(state->values + program->variables[id]->offset_bytes);
}

/* Returns the number of floats of a variable, its layout's padding included: that is zero in gradient, weight
 * and state, and stays zero. */
static int64_t variable_count(const CpuProgram *program, TensorId id)
{
    return (int64_t)(dnn_layout_bytes(program->variables[id]->layout) / sizeof(float));
}

static void add_segment(const CpuProgram *program, UpdatePlan *plan, const MuonRule *rule, TensorId parameter)
{
    const CpuState *state = (const CpuState *)program->base.state;
    const Tensor *tensor = graph_tensor(program->base.graph, parameter);
    const int64_t count = variable_count(program, parameter);
    plan->segments[plan->segment_count++] = (Segment){
        .w = variable_values(program, parameter),
        .g = (float *)(state->gradients + program->variables[parameter]->offset_bytes),
        .count = count,
        .first_chunk = plan->chunk_count,
        .chunk_count = (count + UPDATE_CHUNK - 1) / UPDATE_CHUNK,
        .decays = tensor->decays,
        .rate = tensor->rate,
        .decay = tensor->decays ? tensor->decay : 0,
        .trust = 1,
        .matrix = tensor->muon ? plan->matrix_count++ : -1,
        .scale = tensor->muon ? muon_scale(rule, tensor) : 1,
        .rows = (double)muon_rows(tensor),
    };
    plan->chunk_count += (count + UPDATE_CHUNK - 1) / UPDATE_CHUNK;
}

static void add_slot(const CpuProgram *program, UpdatePlan *plan, TensorId id, const int64_t *segment_of)
{
    const Graph *graph = program->base.graph;
    const TensorId of = graph_tensor(graph, id)->of;
    const OptimizerSlot slot = graph_optimizer_slot(graph, id);
    if (graph_tensor(graph, of)->role == TENSOR_PARAMETER) {
        plan->segments[segment_of[of]].slots[slot] = variable_values(program, id);
        return;
    }
    float *value = variable_values(program, of); /* slots of a buffer follow each other */
    if (!plan->buffer_count || plan->buffers[plan->buffer_count - 1].value != value)
        plan->buffers[plan->buffer_count++] =
            (FollowedBuffer){.value = value, .count = variable_count(program, of)};
    plan->buffers[plan->buffer_count - 1].slots[slot] = variable_values(program, id);
}

static void release_plan(CpuStep *step)
{
    UpdatePlan *plan = step->plan;
    cpu_muon_free(&plan->muon);
    free(plan->segments);
    free(plan->buffers);
}

static uint64_t room_bytes(const CpuStep *step)
{
    return (uint64_t)step->program->backend->threads * UPDATE_CHUNK * sizeof(float);
}

/* Returns the bytes of scratch memory in front of Muon's. */
static uint64_t own_bytes(const CpuStep *step)
{
    const UpdatePlan *plan = step->plan;
    return (room_bytes(step) + (uint64_t)plan->chunk_count * SUM_COUNT * sizeof(double) + 63) / 64 * 64;
}

static FshStatus bind_scratch(CpuStep *step, FshError *error)
{
    const UpdatePlan *plan = step->plan;
    return cpu_muon_bind_scratch(plan->muon, step->program->scratch + own_bytes(step), error);
}

static FshStatus update_prepare(CpuStep *step, FshError *error)
{
    const CpuProgram *program = step->program;
    const Graph *graph = program->base.graph;
    const size_t tensors = graph_tensor_count(graph);
    const MuonRule *rule = &step->node->as.update.muon;
    int64_t *segment_of = calloc(tensors, sizeof *segment_of);
    UpdatePlan *plan = step->plan = calloc(1, sizeof *plan);
    if (plan) {
        step->release = release_plan;
        plan->segments = calloc(tensors, sizeof *plan->segments);
        plan->buffers = calloc(tensors, sizeof *plan->buffers);
    }
    if (!segment_of || !plan || !plan->segments || !plan->buffers) {
        free(segment_of);
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for the update of %zu tensors", tensors);
    }
    for (size_t i = 0; i < tensors; i++)
        if (graph_tensor(graph, (TensorId)i)->role == TENSOR_PARAMETER &&
            graph_gradient(graph, (TensorId)i) != TENSOR_NONE) {
            segment_of[i] = plan->segment_count;
            add_segment(program, plan, rule, (TensorId)i);
        }
    for (size_t i = 0; i < tensors; i++)
        if (graph_tensor(graph, (TensorId)i)->role == TENSOR_OPTIMIZER)
            add_slot(program, plan, (TensorId)i, segment_of);
    free(segment_of);
    step->scratch_bytes = own_bytes(step);
    if (step->node->as.update.kind != OPTIMIZER_MUON)
        return FSH_OK;
    FshStatus status = cpu_muon_new(&plan->muon, program, rule, error);
    if (status)
        return status;
    step->scratch_bytes += cpu_muon_scratch_bytes(plan->muon);
    step->bind_scratch = bind_scratch;
    return FSH_OK;
}

/* ---- passes over the chunks ---- */

static void pass_part(void *context, int part, int64_t begin, int64_t end)
{
    const UpdateRun *run = context;
    float *room = (float *)run->step->program->scratch + (int64_t)part * UPDATE_CHUNK;
    for (int64_t i = 0; i < run->plan->segment_count; i++) {
        const Segment *s = &run->plan->segments[i];
        const ChunkWork work = run->matrix_work && s->matrix >= 0 ? run->matrix_work : run->work;
        const int64_t from = begin > s->first_chunk ? begin : s->first_chunk;
        const int64_t last = s->first_chunk + s->chunk_count, to = end < last ? end : last;
        for (int64_t chunk = from; chunk < to; chunk++) {
            const int64_t first = (chunk - s->first_chunk) * UPDATE_CHUNK;
            work(run, s, first, s->count - first < UPDATE_CHUNK ? s->count - first : UPDATE_CHUNK, chunk,
                 room);
        }
    }
}

void cpu_update_pass(UpdateRun *run, ChunkWork work)
{
    run->work = work;
    cpu_parallel(run->step->program->backend, run->plan->chunk_count, pass_part, run);
}

double *cpu_update_sums(const UpdateRun *run, int which)
{
    return run->sums + which * run->plan->chunk_count;
}

double cpu_update_segment_sum(const UpdateRun *run, const Segment *segment, int which)
{
    const double *sums = cpu_update_sums(run, which) + segment->first_chunk;
    double sum = 0;
    for (int64_t i = 0; i < segment->chunk_count; i++)
        sum += sums[i];
    return sum;
}

double cpu_update_gradient_square(const UpdateRun *run)
{
    double sum = 0;
    for (int64_t i = 0; i < run->plan->chunk_count; i++)
        sum += cpu_update_sums(run, OF_GRADIENT)[i];
    return sum;
}

/* Returns what was accumulated and is to be added to the gradient; NULL: nothing. */
static const float *accumulated(const UpdateRun *run, const Segment *s, int64_t first)
{
    return s->slots[SLOT_ACCUMULATED] && !run->joined ? s->slots[SLOT_ACCUMULATED] + first : NULL;
}

/* Adds the chunk's gradient to what is accumulated, in a run without an update. */
static void accumulate_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                             int64_t chunk, float *room)
{
    float *sum = s->slots[SLOT_ACCUMULATED] + first;
    (void)chunk;
    (void)room;
    if (run->first_micro)
        memcpy(sum, s->g + first, (size_t)count * sizeof *sum);
    else
        run->kernels->gradient(s->g + first, sum, 1, sum, count);
}

/* Adds what was accumulated to the chunk's gradient, where it lies. */
static void join_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                       float *room)
{
    (void)chunk;
    (void)room;
    run->kernels->gradient(s->g + first, accumulated(run, s, first), 1, s->g + first, count);
}

/* Takes the sums of squares of the accumulated gradient and, for LARS, of the weight, before the update. */
static void measure_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                          float *room)
{
    const float *g = s->g + first;
    if (accumulated(run, s, first)) {
        run->kernels->gradient(g, accumulated(run, s, first), 1, room, count);
        g = room;
    }
    cpu_update_sums(run, OF_GRADIENT)[chunk] = run->kernels->sum_squares(g, count);
    if (run->optimizer->kind == OPTIMIZER_LARS)
        cpu_update_sums(run, OF_WEIGHT)[chunk] = run->kernels->sum_squares(s->w + first, count);
}

/* Returns what the update takes for the gradient: the memory where it lies, or the room of this thread. */
const float *cpu_update_gradient(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                                 int64_t chunk, float *room)
{
    const float *g = s->g + first;
    if (accumulated(run, s, first) || run->factor != 1) {
        run->kernels->gradient(g, accumulated(run, s, first), run->factor, room, count);
        g = room;
    }
    if (run->measures)
        cpu_update_sums(run, OF_GRADIENT)[chunk] = run->kernels->sum_squares(g, count);
    return g;
}

/* Starts lookahead's and the average's copies as the weights, before the first update. */
void cpu_update_begin_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count)
{
    if (run->updates > 0)
        return;
    if (s->slots[SLOT_SLOW])
        memcpy(s->slots[SLOT_SLOW] + first, s->w + first, (size_t)count * sizeof *s->w);
    if (s->slots[SLOT_EMA])
        memcpy(s->slots[SLOT_EMA] + first, s->w + first, (size_t)count * sizeof *s->w);
}

void cpu_update_end_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count)
{
    float *w = s->w + first;
    if (run->looks_ahead) {
        float *slow = s->slots[SLOT_SLOW] + first;
        run->kernels->average(w, (float)run->optimizer->lookahead_alpha, slow, count);
        memcpy(w, slow, (size_t)count * sizeof *w);
    }
    if (s->slots[SLOT_EMA])
        run->kernels->average(w, run->ema_share, s->slots[SLOT_EMA] + first, count);
}

static void sgd_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                      float *room)
{
    const Optimizer *o = run->optimizer;
    const SgdStep sgd = {.rate = (float)(run->rate * s->rate),
                         .momentum = (float)o->momentum,
                         .decay = optimizer_decouples(o->kind) ? 0 : (float)(o->weight_decay * s->decay),
                         .shrink = (float)(1 - decoupled_decay(o, run->rate) * s->rate * s->decay),
                         .trust = (float)s->trust,
                         .nesterov = o->nesterov};
    const float *g = cpu_update_gradient(run, s, first, count, chunk, room);
    cpu_update_begin_chunk(run, s, first, count);
    run->kernels->sgd(&sgd, s->w + first, s->slots[SLOT_MOMENTUM_BUFFER] + first, g, count);
    cpu_update_end_chunk(run, s, first, count);
}

static AdamStep adam_step(const UpdateRun *run, const Segment *s)
{
    const Optimizer *o = run->optimizer;
    const AdamNumbers *a = &run->adam;
    return (AdamStep){.beta1 = (float)o->beta1,
                      .one_minus_beta1 = (float)(1 - o->beta1),
                      .beta2 = (float)o->beta2,
                      .one_minus_beta2 = (float)(1 - o->beta2),
                      .inverse_root = (float)a->inverse_root,
                      .epsilon = (float)a->epsilon,
                      .of_m = (float)a->of_m,
                      .of_g = (float)a->of_g,
                      .decay = optimizer_decouples(o->kind) ? 0 : (float)(o->weight_decay * s->decay),
                      .shrink = (float)(1 - a->decoupled * s->rate * s->decay),
                      .rate = (float)(a->rate * s->rate),
                      .correction = (float)a->correction};
}

static void adam_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count, int64_t chunk,
                       float *room)
{
    const AdamStep adam = adam_step(run, s);
    const float *g = cpu_update_gradient(run, s, first, count, chunk, room);
    cpu_update_begin_chunk(run, s, first, count);
    run->kernels->adam(&adam, s->w + first, s->slots[SLOT_EXP_AVG] + first, s->slots[SLOT_EXP_AVG_SQ] + first,
                       g, count);
    cpu_update_end_chunk(run, s, first, count);
}

static void lamb_moments_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                               int64_t chunk, float *room)
{
    const AdamStep adam = adam_step(run, s);
    const float *g = cpu_update_gradient(run, s, first, count, chunk, room);
    double squares[2];
    cpu_update_begin_chunk(run, s, first, count);
    run->kernels->lamb_moments(&adam, s->w + first, s->slots[SLOT_EXP_AVG] + first,
                               s->slots[SLOT_EXP_AVG_SQ] + first, g, count, squares);
    cpu_update_sums(run, OF_WEIGHT)[chunk] = squares[0];
    cpu_update_sums(run, OF_DIRECTION)[chunk] = squares[1];
}

static void lamb_apply_chunk(const UpdateRun *run, const Segment *s, int64_t first, int64_t count,
                             int64_t chunk, float *room)
{
    const AdamStep adam = adam_step(run, s);
    (void)chunk;
    (void)room;
    run->kernels->lamb_apply(&adam, (float)(run->rate * s->rate * s->trust), s->w + first,
                             s->slots[SLOT_EXP_AVG] + first, s->slots[SLOT_EXP_AVG_SQ] + first, count);
    cpu_update_end_chunk(run, s, first, count);
}

/* ---- the kinds ---- */

/* Returns the ratio of two norms; 1 where either is 0, as timm does. */
static double trust_of(double numerator, double denominator)
{
    return numerator > 0 && denominator > 0 ? numerator / denominator : 1;
}

static void find_lars_trust(const UpdateRun *run)
{
    const Optimizer *o = run->optimizer;
    const double epsilon = 1e-8; /* timm's */
    for (int64_t i = 0; i < run->plan->segment_count; i++) {
        Segment *s = &run->plan->segments[i];
        const double weight = sqrt(cpu_update_segment_sum(run, s, OF_WEIGHT));
        const double norm = sqrt(cpu_update_segment_sum(run, s, OF_GRADIENT)) * (double)run->factor;
        if (s->decays)
            s->trust = norm > 0 ? trust_of(weight * o->trust_coefficient,
                                           norm + weight * o->weight_decay * s->decay + epsilon)
                                : 1;
    }
}

static void find_lamb_trust(const UpdateRun *run)
{
    for (int64_t i = 0; i < run->plan->segment_count; i++) {
        Segment *s = &run->plan->segments[i];
        if (s->decays)
            s->trust = trust_of(sqrt(cpu_update_segment_sum(run, s, OF_WEIGHT)),
                                sqrt(cpu_update_segment_sum(run, s, OF_DIRECTION)));
    }
}

static void find_adam_numbers(UpdateRun *run)
{
    run->adam = adam_numbers(run->optimizer, run->rate, (double)(run->updates + 1));
}

static void update_sgd(UpdateRun *run)
{
    cpu_update_pass(run, sgd_chunk);
}

static void update_lars(UpdateRun *run)
{
    find_lars_trust(run);
    cpu_update_pass(run, sgd_chunk);
}

static void update_adam(UpdateRun *run)
{
    find_adam_numbers(run);
    cpu_update_pass(run, adam_chunk);
}

static void update_lamb(UpdateRun *run)
{
    find_adam_numbers(run);
    cpu_update_pass(run, lamb_moments_chunk);
    find_lamb_trust(run);
    cpu_update_pass(run, lamb_apply_chunk);
}

/* Returns the update of a kind; those that are not here are Adam's, with numbers of their own. */
static void (*update_of(OptimizerKind kind))(UpdateRun *run)
{
    return kind == OPTIMIZER_LARS         ? update_lars
           : kind == OPTIMIZER_LAMB       ? update_lamb
           : optimizer_has_momentum(kind) ? update_sgd
                                          : update_adam;
}

/* ---- one run ---- */

/* Moves the loss scale as GradScaler.update does: torch/amp/grad_scaler.py, _amp_update_scale_ of ATen. */
static void move_scale(const Optimizer *o, bool overflowed, float *scale, float *tracker)
{
    if (overflowed) {
        *scale = (float)((double)*scale * o->scale_backoff);
        *tracker = 0;
        return;
    }
    *tracker += 1;
    if (*tracker < (float)o->scale_interval)
        return;
    const float grown = (float)((double)*scale * o->scale_growth);
    *scale = isfinite(grown) ? grown : *scale;
    *tracker = 0;
}

static float clip_factor(const Optimizer *o, double norm)
{
    const double factor = o->clip_norm / (norm + 1e-6); /* clip_grad_norm_'s epsilon */
    return factor < 1 ? (float)factor : isnan(factor) ? NAN : 1;
}

static void average_buffers(const UpdateRun *run)
{
    for (int64_t i = 0; i < run->plan->buffer_count; i++) {
        const FollowedBuffer *b = &run->plan->buffers[i];
        float *ema = b->slots[SLOT_EMA];
        if (ema && run->updates == 0)
            memcpy(ema, b->value, (size_t)b->count * sizeof *ema);
        else if (ema)
            run->kernels->average(b->value, run->ema_share, ema, b->count);
    }
}

static double ema_decay_of(const Optimizer *o, int64_t updates_before)
{
    const double warm = (double)(1 + updates_before) / (double)(10 + updates_before);
    return o->ema_warmup && warm < o->ema_decay ? warm : o->ema_decay;
}

bool cpu_update_loss_is_no_number(const CpuStep *step)
{
    const float *loss = step->inputs[UPDATE_LOSS];
    return !step->inputs[UPDATE_SCALE] && loss && !isfinite(*loss);
}

/* Adds this run's gradient to those before, if another run is to come before the update. Returns whether that
 * is so. Where the loss is no number it adds nothing: one process tells so at once (*norm_ret is NaN). Ranks
 * exchange nothing here, so one of them must not stop alone: it makes the counter negative, and the exchange
 * of the last run tells all. */
static bool only_accumulates(UpdateRun *run, float *norm_ret)
{
    const bool alone = !run->step->program->backend->communicator;
    float *micro = run->step->inputs[UPDATE_MICRO];
    if (!micro || fabsf(*micro) + 1 >= (float)run->optimizer->accumulation_steps)
        return false;
    const bool is_number = !cpu_update_loss_is_no_number(run->step);
    run->first_micro = *micro == 0;
    if (is_number)
        cpu_update_pass(run, accumulate_chunk);
    else if (alone)
        *norm_ret = NAN;
    if (is_number || !alone)
        *micro = *micro < 0 || !is_number ? -(fabsf(*micro) + 1) : *micro + 1;
    return true;
}

/* Makes gradients and loss their means over several ranks. All gradients lie in one piece, paddings of
 * layouts included, which are zeros everywhere. */
static FshStatus share_gradients(const CpuStep *step, FshError *error)
{
    const CpuState *state = (const CpuState *)step->program->base.state;
    Communicator *communicator = step->program->backend->communicator;
    FshStatus status = communicator_mean_f32(communicator, (float *)state->gradients,
                                             state->trained_bytes / sizeof(float), error);
    if (!status && step->inputs[UPDATE_LOSS])
        status = communicator_mean_f32(communicator, step->inputs[UPDATE_LOSS], 1, error);
    return status;
}

/* Makes the gradient that ranks share the sum of all runs since the last update, and shares it. If the loss
 * of one of these runs was no number, on any rank, the loss of this one becomes so on all. */
static FshStatus join_ranks(UpdateRun *run, FshError *error)
{
    const CpuStep *step = run->step;
    float *micro = step->inputs[UPDATE_MICRO], *loss = step->inputs[UPDATE_LOSS];
    if (!step->program->backend->communicator)
        return FSH_OK;
    if (micro && *micro != 0)
        cpu_update_pass(run, join_chunk);
    if (micro && *micro < 0 && loss)
        *loss = NAN;
    run->joined = true;
    return share_gradients(step, error);
}

/* Measures the gradient where clipping, loss scaling or lars need its norm before the update. Returns whether
 * the update may be done. */
static bool measure(UpdateRun *run, float *norm_ret)
{
    const Optimizer *o = run->optimizer;
    float *scale = run->step->inputs[UPDATE_SCALE];
    if (run->measures)
        return true;
    cpu_update_pass(run, measure_chunk);
    const double norm = sqrt(cpu_update_gradient_square(run)) * (double)run->factor;
    *norm_ret = (float)norm;
    if (scale)
        move_scale(o, !isfinite(norm), scale, run->step->inputs[UPDATE_TRACKER]);
    if (scale && !isfinite(norm))
        return false;
    if (o->clip_norm > 0)
        run->factor *= clip_factor(o, norm);
    return true;
}

static FshStatus update_run(CpuStep *step, FshError *error)
{
    const Optimizer *o = &step->node->as.update;
    Optimizer own = *o; /* as this run has it, and as that of the rest where it is muon's */
    const CpuProgram *program = step->program;
    const float *momentum = step->inputs[UPDATE_MOMENTUM];
    float *steps = step->inputs[UPDATE_STEP], *scale = step->inputs[UPDATE_SCALE],
          *micro = step->inputs[UPDATE_MICRO];
    float *norm_ret = step->outputs[UPDATE_GRADIENT_NORM], *updated_ret = step->outputs[UPDATE_UPDATED];
    UpdateRun run = {.step = step,
                     .plan = step->plan,
                     .optimizer = &own,
                     .kernels = program->backend->kernels->update,
                     .updates = (int64_t)*steps,
                     .rate = (double)*(const float *)step->inputs[UPDATE_LEARNING_RATE],
                     .sums = (double *)(program->scratch + room_bytes(step))};
    own.kind = muon_rest_kind(o);
    if (momentum)
        own.momentum = own.beta1 = own.muon.momentum = (double)*momentum;
    *norm_ret = *updated_ret = 0;
    if (program->perturbs) {
        cpu_update_perturb(&run);
        return FSH_OK;
    }
    cpu_update_put_back(&run);
    if (only_accumulates(&run, norm_ret))
        return FSH_OK;
    FshStatus status = join_ranks(&run, error);
    if (status)
        return status;
    if (cpu_update_loss_is_no_number(step)) {
        *norm_ret = NAN;
        return FSH_OK;
    }
    if (micro)
        *micro = 0;
    const double micro_steps = o->accumulation_steps > 1 ? (double)o->accumulation_steps : 1;
    run.factor = (float)(1 / ((scale ? (double)*scale : 1) * micro_steps));
    run.measures = o->clip_norm == 0 && !scale && o->kind != OPTIMIZER_LARS;
    run.looks_ahead = o->lookahead_steps && (run.updates + 1) % o->lookahead_steps == 0;
    run.ema_share = (float)(1 - ema_decay_of(o, run.updates));
    if (!measure(&run, norm_ret))
        return FSH_OK;
    run.matrix_work = run.plan->muon ? cpu_update_matrix_step : NULL;
    update_of(own.kind)(&run);
    if (run.plan->muon)
        status = cpu_update_matrices(&run, error);
    if (status)
        return status;
    average_buffers(&run);
    if (run.measures)
        *norm_ret = (float)sqrt(cpu_update_gradient_square(&run));
    *steps += 1;
    *updated_ret = 1;
    return FSH_OK;
}

const CpuOp cpu_ops_update[] = {
    {OP_UPDATE, .prepare = update_prepare, .run = update_run},
    {OP_KIND_COUNT, NULL, NULL},
};
