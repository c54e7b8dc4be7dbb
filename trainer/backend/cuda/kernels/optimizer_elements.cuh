/* optimizer_elements.cuh - parameters of the update's launches (optimizer.cu), and how they read and write
 * the elements of a piece. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_OPTIMIZER_ELEMENTS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_OPTIMIZER_ELEMENTS_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_update.h"

namespace fshard
{

/* The sums of squares that each piece writes. */
enum Sum { OF_GRADIENT, OF_WEIGHT, OF_DIRECTION, SUM_COUNT };

enum Action { NOTHING, ACCUMULATE, UPDATE };

/* What the first launch decides for the others. */
struct Decision {
    double learning_rate;
    Action action;
    bool first_micro; /* the first of the runs that accumulate */
    bool begins;      /* the first update of all */
    bool looks_ahead; /* this update is followed by a lookahead step */
    float factor;     /* the update's gradient is the accumulated one times this */
    float ema_share;  /* 1 - decay of this update */
    AdamNumbers adam; /* of kinds with momentum: `decoupled` alone */
    float momentum, beta1, one_minus_beta1;
};

struct Control {
    Decision decision;
    unsigned arrivals;
};
constexpr uint64_t control_bytes = (sizeof(Control) + 15) / 16 * 16;

/* Returns where the trusts of a table lie: behind its control. */
__host__ __device__ inline double *trusts_of(const UpdateTable &table)
{
    return reinterpret_cast<double *>(static_cast<char *>(table.control) + control_bytes);
}

/* The optimizer's constants in the form that the arithmetic uses. */
struct Constants {
    float decay, beta2, one_minus_beta2, alpha;
    bool nesterov;
};

inline Constants constants_of(const Optimizer *o)
{
    return {optimizer_decouples(o->kind) ? 0 : (float)o->weight_decay, (float)o->beta2, (float)(1 - o->beta2),
            (float)o->lookahead_alpha, o->nesterov};
}

/* The parameter of every launch. */
struct Launch {
    Optimizer optimizer;
    Constants constants;
    UpdateTable table;
    UpdateNumbers numbers;
    Control *control;
    double *trusts;  /* [parameter_count], of this run; of Muon's matrices: 1 / the norm of the step */
    double *renorms; /* [parameter_count], of this run: factors of Muon's matrices */
    double *sums;    /* [SUM_COUNT][parameter_pieces] */
    char *matrices;  /* Muon's, in scratch memory */
    UpdateRun run;
    bool measures;     /* the update measures the gradient's norm */
    bool trusting;     /* lars, lamb */
    bool has_matrices; /* muon: some of the parameters are its own */
};

/* ---- elements ---- */

/* A piece of a tensor during an update. */
struct Place {
    const Launch &launch;
    const Decision &decision;
    const UpdateTensor &tensor;
    const UpdatePiece &piece;
    double trust;

    __device__ float decay() const
    {
        return launch.constants.decay * tensor.decay;
    }
    /* Returns a learning rate of all parameters as this one takes it. */
    __device__ float rate(double of_all) const
    {
        return (float)(of_all * (double)tensor.rate);
    }
    /* Returns what is left of a weight by decoupled decay. */
    __device__ float shrink() const
    {
        return (float)(1 - decision.adam.decoupled * (double)tensor.rate * (double)tensor.decay);
    }
};

/* Walks over the elements of a piece, from the i-th on, in rows of another pitch. */
struct PitchedElement {
    int64_t row;
    int column, channels, pitch;

    __device__ PitchedElement(const Place &at, int i, int pitch) : channels(at.tensor.channels), pitch(pitch)
    {
        const unsigned past = (unsigned)(at.piece.column + i), rows = past / (unsigned)channels;
        row = at.piece.row + rows;
        column = (int)(past - rows * (unsigned)channels);
    }
    __device__ int64_t next()
    {
        const int64_t index = row * pitch + column;
        if (++column == channels) {
            column = 0;
            row++;
        }
        return index;
    }
};

template <typename T, int Width>
__device__ void store_rows(const Place &at, void *to, int pitch, int i, const float (&values)[Width])
{
    T *data = static_cast<T *>(to);
    if (pitch == at.tensor.channels) {
        store(data + at.piece.first + i, values);
        return;
    }
    PitchedElement element(at, i, pitch);
#pragma unroll
    for (int k = 0; k < Width; k++)
        data[element.next()] = (T)values[k];
}

/* How a gradient is read: by its type, and whether its rows have a pitch of their own. */
template <typename T, bool Pitched> struct Gradient {
    using Element = T;
    template <int Width> __device__ static void load_from(const Place &at, int i, float (&g)[Width])
    {
        const T *data = static_cast<const T *>(at.tensor.gradient);
        if (!Pitched) {
            load(data + at.piece.first + i, g);
            return;
        }
        PitchedElement element(at, i, at.tensor.gradient_pitch);
#pragma unroll
        for (int k = 0; k < Width; k++)
            g[k] = (float)data[element.next()];
    }
};

template <int Width> __device__ void load_slot(const Place &at, OptimizerSlot slot, int i, float (&x)[Width])
{
    load(at.tensor.slots[slot] + at.piece.first + i, x);
}

template <int Width>
__device__ void store_slot(const Place &at, OptimizerSlot slot, int i, const float (&x)[Width])
{
    store(at.tensor.slots[slot] + at.piece.first + i, x);
}

template <int Width> __device__ void load_values(const Place &at, int i, float (&w)[Width])
{
    load(at.tensor.values + at.piece.first + i, w);
}

/* Loads the gradient plus what was accumulated before. */
template <typename G, int Width> __device__ void load_sum(const Place &at, int i, float (&g)[Width])
{
    G::load_from(at, i, g);
    if (!at.tensor.slots[SLOT_ACCUMULATED] || at.launch.run == UPDATE_JOINED)
        return;
    float accumulated[Width];
    load_slot(at, SLOT_ACCUMULATED, i, accumulated);
#pragma unroll
    for (int k = 0; k < Width; k++)
        g[k] += accumulated[k];
}

/* Loads the gradient that the update uses. */
template <typename G, int Width> __device__ void take_gradient(const Place &at, int i, float (&g)[Width])
{
    load_sum<G>(at, i, g);
#pragma unroll
    for (int k = 0; k < Width; k++)
        g[k] *= at.decision.factor;
}

template <int Width> __device__ void add_squares(double &sum, const float (&x)[Width])
{
#pragma unroll
    for (int k = 0; k < Width; k++)
        sum += (double)x[k] * (double)x[k];
}

template <int Width> __device__ void average(float (&mean)[Width], const float (&w)[Width], float share)
{
#pragma unroll
    for (int k = 0; k < Width; k++)
        mean[k] += share * (w[k] - mean[k]);
}

/* Loads the slow weights or the average; before the first update these are the old weights. */
template <int Width>
__device__ void load_follower(const Place &at, OptimizerSlot slot, int i, const float (&old)[Width],
                              float (&x)[Width])
{
    if (!at.decision.begins) {
        load_slot(at, slot, i, x);
        return;
    }
#pragma unroll
    for (int k = 0; k < Width; k++)
        x[k] = old[k];
}

/* Writes the weights w, or the values of a buffer, and their narrow copies. */
template <int Width> __device__ void store_values(const Place &at, int i, const float (&w)[Width])
{
    const UpdateTensor &t = at.tensor;
    store(t.values + at.piece.first + i, w);
#pragma unroll
    for (int k = 0; k < UPDATE_COPIES_MAX; k++) {
        if (!t.copies[k])
            continue;
        if (t.copy_elements[k] == ELEMENT_BF16)
            store_rows<__nv_bfloat16>(at, t.copies[k], t.copy_pitch, i, w);
        else
            store_rows<__half>(at, t.copies[k], t.copy_pitch, i, w);
    }
}

/* Writes the weights w, their followers (slow weights, average) and their narrow copies. old: the weights
 * before. */
template <int Width>
__device__ void finish(const Place &at, int i, const float (&old)[Width], float (&w)[Width])
{
    const UpdateTensor &t = at.tensor;
    float follower[Width];
    if (t.slots[SLOT_SLOW] && (at.decision.looks_ahead || at.decision.begins)) {
        load_follower(at, SLOT_SLOW, i, old, follower);
        if (at.decision.looks_ahead) {
            average(follower, w, at.launch.constants.alpha);
#pragma unroll
            for (int k = 0; k < Width; k++)
                w[k] = follower[k];
        }
        store_slot(at, SLOT_SLOW, i, follower);
    }
    if (t.slots[SLOT_EMA]) {
        load_follower(at, SLOT_EMA, i, old, follower);
        average(follower, w, at.decision.ema_share);
        store_slot(at, SLOT_EMA, i, follower);
    }
    store_values(at, i, w);
}

/* Works through the piece in vectors of four, since pieces begin at 16-byte boundaries, then through the rest
 * one by one. */
template <typename Work, typename G> __device__ void walk_with(const Place &at, double (&sums)[SUM_COUNT])
{
    const int whole = at.piece.count / 4 * 4, left = whole + (int)threadIdx.x;
#pragma unroll Work::vectors_at_once
    for (int i = 4 * (int)threadIdx.x; i < whole; i += 4 * block_threads)
        Work::template step<4, G>(at, i, sums);
    if (left < at.piece.count)
        Work::template step<1, G>(at, left, sums);
}

/* Chooses the storage of the gradient outside the loop. */
template <typename Work> __device__ void walk(const Place &at, double (&sums)[SUM_COUNT])
{
    const UpdateTensor &t = at.tensor;
    const bool pitched = t.gradient_pitch != t.channels;
    if (t.gradient_element == ELEMENT_F32 || !Work::reads_gradient)
        walk_with<Work, Gradient<float, false>>(at, sums);
    else if (t.gradient_element == ELEMENT_BF16 && pitched)
        walk_with<Work, Gradient<__nv_bfloat16, true>>(at, sums);
    else if (t.gradient_element == ELEMENT_BF16)
        walk_with<Work, Gradient<__nv_bfloat16, false>>(at, sums);
    else if (pitched)
        walk_with<Work, Gradient<__half, true>>(at, sums);
    else
        walk_with<Work, Gradient<__half, false>>(at, sums);
}

} // namespace fshard

#endif
