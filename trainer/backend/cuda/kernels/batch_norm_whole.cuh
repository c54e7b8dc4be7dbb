/* batch_norm_whole.cuh - batch norm of small images: its terms and maps (batch_norm_passes.cuh) as passes for
 * rows_whole.cuh, and what is kept between sums and map. Synced: each channel's sums become means over the
 * ranks between the two; one block of the channel sends, all wait. These are kernels of their own: the others
 * keep their registers. For batch_norm.cu alone. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_WHOLE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_WHOLE_CUH

#include "trainer/backend/cuda/kernels/batch_norm_passes.cuh"
#include "trainer/backend/cuda/kernels/peers.cuh"
#include "trainer/backend/cuda/kernels/rows_whole.cuh"

namespace fshard
{

/* What a pass knows of the other ranks. */
template <bool Synced> struct PeersOf {
    using Number = uint32_t; /* of the exchange */
    PeerBoxes boxes;
    __device__ Number number() const
    {
        return peer_number(boxes);
    }
};
template <> struct PeersOf<false> {
    struct Number {
    };
    __device__ Number number() const
    {
        return {};
    }
};

template <typename T, Addend kind, OpKind activation, bool Synced> struct ForwardPass {
    using Piece = Raw<T, vector_width<T>>;
    static constexpr int mapped = kind == Addend::none ? 1 : 2, vectors = mapped;
    static constexpr bool fits = sizeof(T) == 2 || kind != Addend::narrower; /* rows must be whole vectors */
    static constexpr bool alike_on_ranks = Synced;
    using Map = Apply<T, kind, activation, false>;
    MomentsTerm<T> term;
    Map map;
    Moments moments;
    PeersOf<Synced> peers;
    __device__ const T *source(int v, const Spot &at) const
    {
        if (v == 0)
            return term.x + at.element;
        if constexpr (kind == Addend::narrower)
            return at.c < map.addend_pitch ? map.addend + at.row * map.addend_pitch + at.c : nullptr;
        return map.addend + at.element;
    }
    __device__ void bring(Piece *slot, int v, const Spot &at, bool) const
    {
        copy_16(slot, source(v, at));
    }
    __device__ auto term_row(const Piece *slot, int) const
    {
        typename MomentsTerm<T>::template Row<vector_width<T>> row;
        row.x = *slot;
        return row;
    }
    template <typename Row> __device__ void keep_row(const Row &, Piece *) const
    {
    }
    __device__ auto map_row(const Piece *slot, int stride) const
    {
        typename Map::template Row<vector_width<T>> row;
        row.x = slot[0];
        if constexpr (kind != Addend::none)
            row.addend = slot[stride];
        return row;
    }
    struct Early {
        float origin, weight, bias;
        Moments::Before before;
        typename PeersOf<Synced>::Number number;
    };
    template <int Channels> struct Kept {
        alignas(32) float origin[Channels], scale[Channels], shift[Channels];
    };
    __device__ Early fetch(int c, bool is_channel, bool first) const
    {
        return {(float)term.x[c], map.norm.weight[c], map.norm.bias[c],
                moments.before(c, is_channel && first), peers.number()};
    }
    template <int Channels> __device__ void keep(Kept<Channels> &kept, const Early &early, int k) const
    {
        kept.origin[k] = early.origin;
    }
    template <int Channels> __device__ auto term_columns(const Kept<Channels> &kept, int k, int) const
    {
        return typename MomentsTerm<T>::template Columns<vector_width<T>>(kept.origin + k);
    }
    template <int Channels>
    __device__ void finish(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums,
                           bool is_channel, bool first) const
    {
        double mean, variance;
        float inverse = moments_about((double)early.origin, sums, moments, is_channel, &mean, &variance);
        if constexpr (Synced) {
            double means[2] = {mean, variance + mean * mean};
            peer_mean_of_channel(peers.boxes, early.number, c, first, means);
            mean = means[0];
            variance = fmax(means[1] - mean * mean, 0.0);
            inverse = is_channel ? (float)rsqrt(variance + moments.epsilon) : 0;
        }
        affine_of(early.weight, early.bias, (float)mean, inverse, &kept.scale[k], &kept.shift[k]);
        if (first)
            moments.set(c, early.before, mean, variance, inverse, is_channel);
    }
    template <int Channels> __device__ auto map_columns(const Kept<Channels> &kept, int k) const
    {
        const Affine<vector_width<T>> affine(kept.scale + k, kept.shift + k);
        return typename Map::template Columns<vector_width<T>>(affine);
    }
};

template <typename T, Gate gate, OpKind activation, Second second, bool Stores, bool Synced>
struct BackwardPass {
    /* The g that was stored has passed the activation. */
    static constexpr Gate map_gate = Stores ? Gate::x : gate;
    using Piece = Raw<T, vector_width<T>>;
    /* pieces in order: dy (or g), x; y, or the word of signs; dy2 */
    static constexpr int mapped = map_gate == Gate::y ? 3 : 2, with_y = gate == Gate::x ? 2 : 3,
                         vectors = with_y + (second != Second::none ? 1 : 0);
    static constexpr bool fits = sizeof(T) == 2 || second != Second::wider; /* rows must be whole vectors */
    static constexpr bool alike_on_ranks = Synced;
    using Term = BackwardTerm<T, gate, activation, second, Stores>;
    Term term;
    Backward<T, map_gate> map;
    FinishBackward finish_first;
    PeersOf<Synced> peers;
    __device__ const T *source(int v, const Spot &at, bool again) const
    {
        if (v == 0)
            return (Stores && again ? term.g : term.dy) + at.element;
        if (v < with_y)
            return (v == 1 ? term.x : term.y) + at.element;
        if constexpr (second == Second::wider)
            return term.dy2 + at.row * term.dy2_pitch + at.c;
        if constexpr (second == Second::strided)
            return term.strided(at);
        return term.dy2 + at.element;
    }
    __device__ void bring(Piece *slot, int v, const Spot &at, bool again) const
    {
        if (gate == Gate::signs && v == 2)
            copy_4(slot, term.signs + at.element / signs_in_word);
        else
            copy_16(slot, source(v, at, again));
    }
    __device__ auto term_row(const Piece *slot, int stride) const
    {
        typename Term::template Row<vector_width<T>> row;
        row.dy = slot[0];
        row.x = slot[stride];
        if constexpr (gate == Gate::y)
            row.y = slot[2 * stride];
        if constexpr (gate == Gate::signs)
            row.signs = slot[2 * stride].words[0];
        if constexpr (second != Second::none)
            row.dy2 = slot[with_y * stride];
        return row;
    }
    template <typename Row> __device__ void keep_row(const Row &row, Piece *slot) const
    {
        if constexpr (Stores)
            *slot = row.dy;
    }
    __device__ auto map_row(const Piece *slot, int stride) const
    {
        typename Backward<T, map_gate>::template Row<vector_width<T>> row;
        row.dy = slot[0];
        row.x = slot[stride];
        if constexpr (map_gate == Gate::y)
            row.y = slot[2 * stride];
        return row;
    }
    struct Early {
        float weight, bias, mean, inverse;
        typename PeersOf<Synced>::Number number;
    };
    template <int Channels> struct Kept {
        alignas(32) float mean[Channels], scale[Channels], shift[Channels], from_x[Channels],
            constant[Channels];
    };
    __device__ Early fetch(int c, bool, bool) const
    {
        const Norm &norm = term.norm;
        return {norm.weight[c], norm.bias[c], norm.mean[c], norm.inverse_deviation[c], peers.number()};
    }
    template <int Channels> __device__ void keep(Kept<Channels> &kept, const Early &early, int k) const
    {
        kept.mean[k] = early.mean;
        affine_of(early.weight, early.bias, early.mean, early.inverse, &kept.scale[k], &kept.shift[k]);
    }
    template <int Channels> __device__ auto term_columns(const Kept<Channels> &kept, int k, int c) const
    {
        const Affine<vector_width<T>> affine(kept.scale + k, kept.shift + k);
        return typename Term::template Columns<vector_width<T>>(kept.mean + k, affine, term.channels - c);
    }
    template <int Channels>
    __device__ void finish(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums, bool,
                           bool first) const
    {
        double of_g[2] = {sums[0], sums[1] * (double)early.inverse};
        if constexpr (Synced)
            peer_mean_of_channel(peers.boxes, early.number, c, first, of_g);
        const float dbias = (float)of_g[0], dweight = (float)of_g[1];
        gradient_of(kept.scale[k], early.mean, early.inverse, dweight, dbias, map.inverse_rows,
                    &kept.from_x[k], &kept.constant[k]);
        if (first)
            finish_first.set(c, dweight, dbias);
    }
    template <int Channels> __device__ auto map_columns(const Kept<Channels> &kept, int k) const
    {
        const Affine<vector_width<T>> affine(kept.scale + k, kept.shift + k);
        return typename Backward<T, map_gate>::template Columns<vector_width<T>>(affine, kept.from_x + k,
                                                                                 kept.constant + k);
    }
};

} // namespace fshard

#endif
