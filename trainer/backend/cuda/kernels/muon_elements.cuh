/* muon_elements.cuh - what the update does to the elements of a matrix that Muon moves: MuonStep before the
 * products that make the step orthogonal, MuonApply after them. The step lies in bf16 in scratch memory
 * (MuonMatrix). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MUON_ELEMENTS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MUON_ELEMENTS_CUH

#include "trainer/backend/cuda/kernels/optimizer_sums.cuh"
#include "trainer/graph/muon.h"

namespace fshard
{

/* Calls visit(place, first, count) for each stretch of the Width elements from the index-th on: `count` of
 * them, from the first-th on, lie at `place` in one row of the matrix. Four lie in one row where four divides
 * its columns, since vectors begin at multiples of four. */
template <int Width, typename Visit>
__device__ void visit_rows(const MuonMatrix &matrix, unsigned index, Visit visit)
{
    const unsigned columns = (unsigned)matrix.columns, pitch = (unsigned)matrix.pitch;
    if (columns % Width == 0) {
        visit((int64_t)(index / columns) * pitch + index % columns, 0, Width);
        return;
    }
#pragma unroll
    for (int k = 0; k < Width; k++)
        visit((int64_t)((index + k) / columns) * pitch + (index + k) % columns, k, 1);
}

__device__ inline unsigned index_of(const Place &at, int i)
{
    return (unsigned)at.piece.first + (unsigned)i;
}

/* Moves the momentum, and writes the step that is to become orthogonal. */
struct MuonStep {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        const MuonRule &rule = at.launch.optimizer.muon;
        const MuonMatrix &matrix = at.tensor.matrix;
        __nv_bfloat16 *steps =
            reinterpret_cast<__nv_bfloat16 *>(at.launch.matrices + matrix.step_offset_bytes);
        const float momentum = at.launch.numbers.momentum ? at.decision.momentum : (float)rule.momentum;
        float g[Width], v[Width], u[Width];
        take_gradient<G>(at, i, g);
        load_slot(at, SLOT_MOMENTUM_BUFFER, i, v);
        if (at.launch.measures)
            add_squares(sums[OF_GRADIENT], g);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            v[k] = momentum * v[k] + g[k];
            u[k] = rule.nesterov ? g[k] + momentum * v[k] : v[k];
        }
        add_squares(sums[OF_DIRECTION], u);
        store_slot(at, SLOT_MOMENTUM_BUFFER, i, v);
        visit_rows<Width>(matrix, index_of(at, i), [&](int64_t place, int first, int count) {
            if (count == Width)
                store(steps + place, u);
            else
                steps[place] = (__nv_bfloat16)u[first];
        });
        if (rule.renorm) {
            float w[Width];
            load_values(at, i, w);
            add_squares(sums[OF_WEIGHT], w);
        }
    }
};

/* Moves the weights by the orthogonal step. */
struct MuonApply {
    static constexpr bool reads_gradient = false;
    static constexpr int vectors_at_once = 1;
    static constexpr bool is_first = false, is_last = false, trusts = false;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        const MuonMatrix &matrix = at.tensor.matrix;
        const __nv_bfloat16 *results =
            reinterpret_cast<const __nv_bfloat16 *>(at.launch.matrices + matrix.result_offset_bytes);
        const double rate = (double)at.rate(at.decision.learning_rate),
                     decay = at.launch.optimizer.muon.weight_decay * (double)at.tensor.decay;
        const float kept = (float)(at.launch.renorms[at.piece.tensor] * (1 - rate * decay)),
                    far = (float)(rate * (double)matrix.scale);
        float w[Width], old[Width], o[Width];
        load_values(at, i, w);
        visit_rows<Width>(matrix, index_of(at, i), [&](int64_t place, int first, int count) {
            if (count == Width)
                load(results + place, o);
            else
                o[first] = (float)results[place];
        });
#pragma unroll
        for (int k = 0; k < Width; k++) {
            old[k] = w[k];
            w[k] = w[k] * kept - far * o[k];
        }
        finish(at, i, old, w);
    }
};

/* Finds what Muon's matrices and their steps are multiplied by. For the last block. */
__device__ inline void find_muon_factors(const Launch &launch)
{
    for (int64_t k = threadIdx.x / 32; k < launch.table.parameter_count; k += block_warps) {
        const UpdateTensor &tensor = launch.table.tensors[k];
        const bool renorm = launch.optimizer.muon.renorm;
        if (!tensor.matrix.pitch)
            continue;
        const double norm = sqrt(tensor_square(launch, tensor, OF_DIRECTION)),
                     weight = renorm ? sqrt(tensor_square(launch, tensor, OF_WEIGHT)) : 0;
        if (threadIdx.x % 32 == 0) {
            launch.trusts[k] = 1 / fmax(norm, MUON_EPSILON);
            launch.renorms[k] = weight > 0 ? sqrt((double)tensor.matrix.rows) / weight : 1;
        }
    }
}

} // namespace fshard

#endif
