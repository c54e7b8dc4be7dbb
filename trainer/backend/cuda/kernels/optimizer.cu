/* optimizer.cu - the update of all parameters. They are cut into pieces of UPDATE_PIECE elements, one for
 * each block, listed in a table in device memory: small tensors (biases, norms) cost a block, not a launch.
 * Everything that happens to an element happens while it is in registers: gradient unscaled, moments, weight,
 * lookahead, average, narrow copies.
 *
 * The host knows nothing about a run. The first launch decides: whether the loss is finite, whether this run
 * only accumulates, whether the gradient overflowed, what the scale becomes, and the gradient's factor.
 * Clipping, loss scaling and lars need the gradient's norm for that, so the launch is then a pass over the
 * gradient whose last block decides; otherwise it is one block. The second launch, the update, carries out
 * the decision, and measures the norm in passing if it was not needed before. lamb needs norms in the middle:
 * its update is two launches. muon's matrices have theirs between the products of lowering_muon.c, and sam
 * has its own in sam.cu.
 *
 * Bytes for a parameter (gradient g bytes, narrow copy c): sgd 16 + g + c, adam 24 + g + c, clipping or
 * scaling + g, lars + 4 + g, lamb 36 + g + c, accumulation + 4, average + 8, lookahead + 8 every so many
 * updates.
 *
 * Order and precision are those of cpu_update.c, except for multiplications and additions that the compiler
 * fuses. Norms: a sum of squares in float64 for each piece, added in the order of the pieces. */
#include "trainer/backend/cuda/kernels/muon_elements.cuh"
#include "trainer/backend/cuda/kernels/optimizer_elements.cuh"

using namespace fshard;

namespace
{

/* Blocks on one multiprocessor, which limits registers: 1,024 threads with three or four 16-byte loads each
 * keep the memory busy. */
constexpr int blocks_at_once = 4;

/* ---- the work on a piece ---- */

struct Accumulate {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float g[Width];
        if (at.decision.first_micro)
            G::load_from(at, i, g);
        else
            load_sum<G>(at, i, g);
        store_slot(at, SLOT_ACCUMULATED, i, g);
    }
};

/* Makes the gradient what ranks exchange. */
struct Join {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float g[Width];
        if (at.decision.first_micro)
            G::load_from(at, i, g);
        else
            load_sum<G>(at, i, g);
#pragma unroll
        for (int k = 0; k < Width; k++)
            g[k] *= at.decision.factor;
        store_rows<typename G::Element>(at, at.tensor.gradient, at.tensor.gradient_pitch, i, g);
    }
};

struct Measure {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 4; /* there are no stores that loads must wait for */
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        float g[Width];
        load_sum<G>(at, i, g);
        add_squares(sums[OF_GRADIENT], g);
        if (at.launch.optimizer.kind == OPTIMIZER_LARS) {
            float w[Width];
            load_values(at, i, w);
            add_squares(sums[OF_WEIGHT], w);
        }
    }
};

/* Updates the average of a buffer, which begins as the buffer's value at the first update. */
struct AverageBuffer {
    static constexpr bool reads_gradient = false;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float x[Width], mean[Width];
        load_values(at, i, x);
        load_follower(at, SLOT_EMA, i, x, mean);
        if (!at.decision.begins)
            average(mean, x, at.decision.ema_share);
        store_slot(at, SLOT_EMA, i, mean);
    }
};

struct Sgd {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    static constexpr bool is_first = true, is_last = true, trusts = false;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        const Constants &c = at.launch.constants;
        const float decay = at.decay(), trust = (float)at.trust, rate = at.rate(at.decision.learning_rate),
                    shrink = at.shrink(), momentum = at.decision.momentum;
        float g[Width], v[Width], w[Width], old[Width];
        take_gradient<G>(at, i, g);
        load_values(at, i, w);
        load_slot(at, SLOT_MOMENTUM_BUFFER, i, v);
        if (at.launch.measures)
            add_squares(sums[OF_GRADIENT], g);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float d = (g[k] + decay * w[k]) * trust;
            old[k] = w[k];
            v[k] = momentum * v[k] + d;
            w[k] = shrink * w[k] - rate * (c.nesterov ? d + momentum * v[k] : v[k]);
        }
        store_slot(at, SLOT_MOMENTUM_BUFFER, i, v);
        finish(at, i, old, w);
    }
};

struct Adam {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    static constexpr bool is_first = true, is_last = true, trusts = false;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        const Constants &c = at.launch.constants;
        const Decision &d = at.decision;
        const float decay = at.decay(), rate = at.rate(d.adam.rate), shrink = at.shrink(),
                    root = (float)d.adam.inverse_root, epsilon = (float)d.adam.epsilon,
                    of_m = (float)d.adam.of_m, of_g = (float)d.adam.of_g;
        float g[Width], m[Width], s[Width], w[Width], old[Width];
        take_gradient<G>(at, i, g);
        load_values(at, i, w);
        load_slot(at, SLOT_EXP_AVG, i, m);
        load_slot(at, SLOT_EXP_AVG_SQ, i, s);
        if (at.launch.measures)
            add_squares(sums[OF_GRADIENT], g);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float kept = w[k] * shrink, decayed = g[k] + decay * kept;
            old[k] = w[k];
            m[k] = d.beta1 * m[k] + d.one_minus_beta1 * decayed;
            s[k] = c.beta2 * s[k] + c.one_minus_beta2 * (decayed * decayed);
            w[k] = kept - rate * ((of_m * m[k] + of_g * decayed) / (sqrtf(s[k]) * root + epsilon));
        }
        store_slot(at, SLOT_EXP_AVG, i, m);
        store_slot(at, SLOT_EXP_AVG_SQ, i, s);
        finish(at, i, old, w);
    }
};

__device__ float lamb_direction(const Place &at, float w, float m, float s)
{
    const AdamNumbers &a = at.decision.adam;
    return (float)a.correction * m / (sqrtf(s) * (float)a.inverse_root + (float)a.epsilon) + at.decay() * w;
}

struct LambMoments {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    static constexpr bool is_first = true, is_last = false, trusts = true;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        const Constants &c = at.launch.constants;
        const Decision &d = at.decision;
        float g[Width], m[Width], s[Width], w[Width], u[Width];
        take_gradient<G>(at, i, g);
        load_values(at, i, w);
        load_slot(at, SLOT_EXP_AVG, i, m);
        load_slot(at, SLOT_EXP_AVG_SQ, i, s);
        if (at.launch.measures)
            add_squares(sums[OF_GRADIENT], g);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            m[k] = d.beta1 * m[k] + d.one_minus_beta1 * g[k];
            s[k] = c.beta2 * s[k] + c.one_minus_beta2 * (g[k] * g[k]);
            u[k] = lamb_direction(at, w[k], m[k], s[k]);
        }
        add_squares(sums[OF_WEIGHT], w);
        add_squares(sums[OF_DIRECTION], u);
        store_slot(at, SLOT_EXP_AVG, i, m);
        store_slot(at, SLOT_EXP_AVG_SQ, i, s);
    }
};

struct LambApply {
    static constexpr bool reads_gradient = false;
    static constexpr int vectors_at_once = 1;
    static constexpr bool is_first = false, is_last = true, trusts = false;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        const float rate = at.rate(at.decision.learning_rate * at.trust);
        float m[Width], s[Width], w[Width], old[Width];
        load_values(at, i, w);
        load_slot(at, SLOT_EXP_AVG, i, m);
        load_slot(at, SLOT_EXP_AVG_SQ, i, s);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            old[k] = w[k];
            w[k] -= rate * lamb_direction(at, w[k], m[k], s[k]);
        }
        finish(at, i, old, w);
    }
};

/* ---- trust ---- */

/* Returns timm's trust ratio: 1 if either norm is 0. */
__device__ double trust_of(double numerator, double denominator)
{
    return numerator > 0 && denominator > 0 ? numerator / denominator : 1;
}

__device__ double lars_trust(const Launch &launch, const UpdateTensor &tensor, float factor)
{
    const Optimizer &o = launch.optimizer;
    const double epsilon = 1e-8; /* timm's */
    const double weight = sqrt(tensor_square(launch, tensor, OF_WEIGHT));
    const double norm = sqrt(tensor_square(launch, tensor, OF_GRADIENT)) * (double)factor;
    return norm > 0 ? trust_of(weight * o.trust_coefficient,
                               norm + weight * o.weight_decay * (double)tensor.decay + epsilon)
                    : 1;
}

__device__ double lamb_trust(const Launch &launch, const UpdateTensor &tensor)
{
    return trust_of(sqrt(tensor_square(launch, tensor, OF_WEIGHT)),
                    sqrt(tensor_square(launch, tensor, OF_DIRECTION)));
}

/* Computes the trust of all tensors, a warp for each in turn. For the last block. */
template <bool Lars> __device__ void find_trusts(const Launch &launch, float factor)
{
    for (int64_t k = threadIdx.x / 32; k < launch.table.parameter_count; k += block_warps) {
        const UpdateTensor &tensor = launch.table.tensors[k];
        double trust = 1;
        if (tensor.decays)
            trust = Lars ? lars_trust(launch, tensor, factor) : lamb_trust(launch, tensor);
        if (threadIdx.x % 32 == 0)
            launch.trusts[k] = trust;
    }
}

/* ---- one run ---- */

/* All numbers of a run. They are read together, before the first is written. 0: absent. */
struct Counters {
    float learning_rate, loss, step, micro, scale, tracker, momentum;

    __device__ explicit Counters(const UpdateNumbers &n)
        : learning_rate(*n.learning_rate), loss(n.loss ? *n.loss : 0), step(*n.step),
          micro(n.micro ? *n.micro : 0), scale(n.scale ? *n.scale : 1), tracker(n.tracker ? *n.tracker : 0),
          momentum(n.momentum ? *n.momentum : 0)
    {
    }
};

/* Does GradScaler.update: torch/amp/grad_scaler.py, ATen's _amp_update_scale_. */
__device__ void move_scale(const Launch &launch, const Counters &counters, bool overflowed)
{
    const Optimizer &o = launch.optimizer;
    float scale = counters.scale, tracker = overflowed ? 0 : counters.tracker + 1;
    if (overflowed) {
        scale = (float)((double)scale * o.scale_backoff);
    } else if (tracker >= (float)o.scale_interval) {
        const float grown = (float)((double)scale * o.scale_growth);
        scale = isfinite(grown) ? grown : scale;
        tracker = 0;
    }
    *launch.numbers.scale = scale;
    *launch.numbers.tracker = tracker;
}

__device__ float clip_factor(const Optimizer &o, double norm)
{
    const double factor = o.clip_norm / (norm + 1e-6); /* the epsilon of clip_grad_norm_ */
    return factor < 1 ? (float)factor : isnan(factor) ? NAN : 1;
}

__device__ double ema_decay_of(const Optimizer &o, int64_t updates_before)
{
    const double warm = (double)(1 + updates_before) / (double)(10 + updates_before);
    return o.ema_warmup && warm < o.ema_decay ? warm : o.ema_decay;
}

/* Returns whether the loss stops the update. With a loss scale it does not: the gradient tells, and the scale
 * must learn of it. */
__device__ bool loss_is_no_number(const Launch &launch, const Counters &counters)
{
    return !launch.numbers.scale && !isfinite(counters.loss);
}

__device__ bool only_accumulates(const Launch &launch, const Counters &counters)
{
    return launch.run == UPDATE_ACCUMULATES ||
           (launch.run == UPDATE_DECIDES && launch.numbers.micro &&
            counters.micro + 1 < (float)launch.optimizer.accumulation_steps);
}

/* Decides in a run that adds this rank's gradient to the sum. The host counts such runs, so all count. */
__device__ Decision decide_to_accumulate(const Launch &launch, const Counters &counters)
{
    const bool refused = loss_is_no_number(launch, counters);
    const float count = fabsf(counters.micro) + 1;
    Decision decision = {};
    *launch.numbers.micro = refused || counters.micro < 0 ? -count : count;
    decision.first_micro = counters.micro == 0;
    decision.action = refused ? NOTHING : ACCUMULATE;
    return decision;
}

/* Sets the numbers by which the kind moves the weights. */
__device__ void decide_numbers(const Launch &launch, const Counters &counters, Decision &decision,
                               int64_t updates)
{
    Optimizer o = launch.optimizer;
    if (launch.numbers.momentum)
        o.momentum = o.beta1 = (double)counters.momentum;
    decision.momentum = (float)o.momentum;
    decision.beta1 = (float)o.beta1;
    decision.one_minus_beta1 = (float)(1 - o.beta1);
    decision.adam.decoupled = decoupled_decay(&o, decision.learning_rate);
    if (!optimizer_has_momentum(o.kind))
        decision.adam = adam_numbers(&o, decision.learning_rate, (double)(updates + 1));
}

/* Decides, in one thread, and moves all counters. square: that of the gradient before it is multiplied by the
 * factor, if it was measured. */
__device__ Decision decide(const Launch &launch, const Counters &counters, double square)
{
    const Optimizer &o = launch.optimizer;
    const UpdateNumbers &n = launch.numbers;
    const int64_t updates = (int64_t)counters.step;
    Decision decision = {};
    *n.gradient_norm = *n.updated = 0;
    if (launch.run == UPDATE_ACCUMULATES)
        return decide_to_accumulate(launch, counters);
    if (launch.run == UPDATE_JOINED)
        *n.micro = 0;
    if (loss_is_no_number(launch, counters)) {
        *n.gradient_norm = NAN;
        return decision;
    }
    decision.first_micro = n.micro && counters.micro == 0;
    if (only_accumulates(launch, counters)) {
        *n.micro = counters.micro + 1;
        decision.action = ACCUMULATE;
        return decision;
    }
    if (n.micro)
        *n.micro = 0;
    const double micro_steps =
        o.accumulation_steps > 1 && launch.run != UPDATE_JOINED ? (double)o.accumulation_steps : 1;
    decision.factor = (float)(1 / ((double)counters.scale * micro_steps));
    if (!launch.measures) {
        const double norm = sqrt(square) * (double)decision.factor;
        *n.gradient_norm = (float)norm;
        if (n.scale)
            move_scale(launch, counters, !isfinite(norm));
        if (n.scale && !isfinite(norm))
            return decision;
        if (o.clip_norm > 0)
            decision.factor *= clip_factor(o, norm);
    }
    decision.action = UPDATE;
    decision.begins = updates == 0;
    decision.looks_ahead = o.lookahead_steps && (updates + 1) % o.lookahead_steps == 0;
    decision.ema_share = (float)(1 - ema_decay_of(o, updates));
    decision.learning_rate = (double)counters.learning_rate;
    decide_numbers(launch, counters, decision, updates);
    *n.step = counters.step + 1;
    *n.updated = 1;
    return decision;
}

__global__ void decide_kernel(const __grid_constant__ Launch launch)
{
    launch.control->decision = decide(launch, Counters(launch.numbers), 0);
}

__global__ void __launch_bounds__(block_threads, blocks_at_once)
    join_kernel(const __grid_constant__ Launch launch, float *loss)
{
    const float micro = *launch.numbers.micro;
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    Decision decision = {};
    double none[SUM_COUNT] = {};
    decision.first_micro = micro == 0;
    decision.factor = 1 / (float)launch.optimizer.accumulation_steps;
    walk<Join>({launch, decision, tensor, piece, 1}, none);
    if (blockIdx.x == 0 && threadIdx.x == 0 && loss && micro < 0)
        *loss = NAN;
}

/* Measures the pieces of parameters, then decides. Counters move only after all blocks have read them. */
__global__ void __launch_bounds__(block_threads, blocks_at_once)
    measure_kernel(const __grid_constant__ Launch launch)
{
    __shared__ Decision decision;
    const bool lars = launch.optimizer.kind == OPTIMIZER_LARS;
    const Counters counters(launch.numbers);
    const bool updates = !loss_is_no_number(launch, counters) && !only_accumulates(launch, counters);
    if (updates) {
        const UpdatePiece piece = launch.table.pieces[blockIdx.x];
        const UpdateTensor tensor = launch.table.tensors[piece.tensor];
        const Decision none = {};
        double sums[SUM_COUNT] = {};
        walk<Measure>({launch, none, tensor, piece, 1}, sums);
        leave_sum(launch, OF_GRADIENT, sums[OF_GRADIENT]);
        if (lars)
            leave_sum(launch, OF_WEIGHT, sums[OF_WEIGHT]);
    }
    if (!block_is_last(&launch.control->arrivals))
        return;
    const double square = updates ? gradient_square(launch) : 0;
    if (threadIdx.x == 0)
        launch.control->decision = decision = decide(launch, counters, square);
    __syncthreads();
    if (lars && decision.action == UPDATE)
        find_trusts<true>(launch, decision.factor);
}

/* Works on the pieces of parameters, and of buffers too if Work is the last. Muon: its matrices among them
 * have work of their own. */
template <typename Work, bool Muon>
__global__ void __launch_bounds__(block_threads, blocks_at_once)
    update_kernel(const __grid_constant__ Launch launch)
{
    const Decision decision = launch.control->decision;
    if (decision.action == NOTHING || (decision.action == ACCUMULATE && !Work::is_first))
        return;
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    const bool trusted = launch.trusting && tensor.gradient && !Work::trusts;
    const Place at = {launch, decision, tensor, piece, trusted ? launch.trusts[piece.tensor] : 1};
    double sums[SUM_COUNT] = {};
    if (decision.action == ACCUMULATE) {
        if (tensor.gradient)
            walk<Accumulate>(at, sums);
        return;
    }
    const bool is_matrix = Muon && tensor.matrix.pitch;
    if (is_matrix)
        walk<MuonStep>(at, sums);
    else if (tensor.gradient)
        walk<Work>(at, sums);
    else if (tensor.slots[SLOT_EMA])
        walk<AverageBuffer>(at, sums);
    const bool measures = launch.measures && Work::is_first;
    if (!measures && !Work::trusts && !Muon)
        return;
    if (tensor.gradient && measures)
        leave_sum(launch, OF_GRADIENT, sums[OF_GRADIENT]);
    if (is_matrix || (tensor.gradient && Work::trusts)) {
        leave_sum(launch, OF_WEIGHT, sums[OF_WEIGHT]);
        leave_sum(launch, OF_DIRECTION, sums[OF_DIRECTION]);
    }
    if (!block_is_last(&launch.control->arrivals))
        return;
    if (measures) {
        const double square = gradient_square(launch);
        if (threadIdx.x == 0)
            *launch.numbers.gradient_norm = (float)sqrt(square);
    }
    if (Work::trusts)
        find_trusts<false>(launch, 1);
    if (Muon)
        find_muon_factors(launch);
}

/* Works on the pieces of Muon's matrices, once their steps are orthogonal. */
__global__ void __launch_bounds__(block_threads, blocks_at_once)
    muon_apply_kernel(const __grid_constant__ Launch launch)
{
    const Decision decision = launch.control->decision;
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    double none[SUM_COUNT] = {};
    if (decision.action == UPDATE && tensor.matrix.pitch)
        walk<MuonApply>({launch, decision, tensor, piece, 1}, none);
}

template <typename Work> void launch_update(const Launch &launch, cudaStream_t stream)
{
    const int64_t blocks = Work::is_last ? launch.table.piece_count : launch.table.parameter_pieces;
    if (launch.has_matrices)
        update_kernel<Work, true><<<(unsigned)blocks, block_threads, 0, stream>>>(launch);
    else
        update_kernel<Work, false><<<(unsigned)blocks, block_threads, 0, stream>>>(launch);
}

/* optimizer.kind becomes that of the rest, whose numbers the others are. */
Launch launch_of(const Optimizer *optimizer, const UpdateTable *table, const UpdateNumbers *numbers,
                 UpdateRun run, void *scratch)
{
    Launch launch = {};
    launch.run = run;
    launch.optimizer = *optimizer;
    launch.optimizer.kind = optimizer->kind == OPTIMIZER_MUON ? optimizer->muon.rest : optimizer->kind;
    launch.has_matrices = optimizer->kind == OPTIMIZER_MUON;
    launch.constants = constants_of(&launch.optimizer);
    launch.table = *table;
    launch.numbers = *numbers;
    launch.control = static_cast<Control *>(table->control);
    launch.trusts = trusts_of(*table);
    launch.renorms = launch.trusts + table->parameter_count;
    launch.sums = static_cast<double *>(scratch);
    launch.matrices = static_cast<char *>(scratch) + kernel_update_scratch_bytes(table);
    launch.measures = optimizer->clip_norm == 0 && !numbers->scale && optimizer->kind != OPTIMIZER_LARS;
    launch.trusting = optimizer->kind == OPTIMIZER_LARS || optimizer->kind == OPTIMIZER_LAMB;
    return launch;
}

} // namespace

extern "C" uint64_t kernel_update_control_bytes(int64_t parameter_count)
{
    return control_bytes + 2 * (uint64_t)parameter_count * sizeof(double);
}

extern "C" uint64_t kernel_update_scratch_bytes(const UpdateTable *table)
{
    return (SUM_COUNT * (uint64_t)table->parameter_pieces * sizeof(double) + 255) / 256 * 256;
}

extern "C" cudaError_t kernel_update(const Optimizer *optimizer, const UpdateTable *table,
                                     const UpdateNumbers *numbers, UpdateRun run, void *scratch,
                                     cudaStream_t stream)
{
    const Launch launch = launch_of(optimizer, table, numbers, run, scratch);
    if (launch.measures || run == UPDATE_ACCUMULATES)
        decide_kernel<<<1, 1, 0, stream>>>(launch);
    else
        measure_kernel<<<(unsigned)table->parameter_pieces, block_threads, 0, stream>>>(launch);
    switch (run == UPDATE_ACCUMULATES ? OPTIMIZER_SGD
                                      : launch.optimizer.kind) { /* sums are added alike by all */
    case OPTIMIZER_SGD:
    case OPTIMIZER_SGDW:
    case OPTIMIZER_LARS:
        launch_update<Sgd>(launch, stream);
        break;
    case OPTIMIZER_LAMB:
        launch_update<LambMoments>(launch, stream);
        launch_update<LambApply>(launch, stream);
        break;
    default: /* Adam's, with numbers of their own */
        launch_update<Adam>(launch, stream);
        break;
    }
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_update_muon(const Optimizer *optimizer, const UpdateTable *table,
                                          const UpdateNumbers *numbers, UpdateRun run, void *scratch,
                                          cudaStream_t stream)
{
    const Launch launch = launch_of(optimizer, table, numbers, run, scratch);
    muon_apply_kernel<<<(unsigned)table->parameter_pieces, block_threads, 0, stream>>>(launch);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_update_join(const Optimizer *optimizer, const UpdateTable *table,
                                          const UpdateNumbers *numbers, float *loss, cudaStream_t stream)
{
    Launch launch = {};
    launch.optimizer = *optimizer;
    launch.table = *table;
    launch.numbers = *numbers;
    join_kernel<<<(unsigned)table->parameter_pieces, block_threads, 0, stream>>>(launch, loss);
    return cudaGetLastError();
}
