/* norm_pair.cu - two batch norms in a row. What is between them is made where the second's sums are, so it is
 * not read for these again. Bytes moved for large images, in tensors of x's size: forward, with the sums of x
 * known, x, the addend and y, then y and z: 5, where two norms move 6. Backward dz and y; these, dy2, x and
 * g; g, x and dx: 10, where two norms move 12. For small images all is one launch, which reads what stays in
 * shared memory once. No atomics: the same input gives the same bits. */
#include "trainer/backend/cuda/kernels/kernels_norm_pair.h"

#include "trainer/backend/cuda/kernels/batch_norm_operands.cuh"
#include "trainer/backend/cuda/kernels/batch_norm_passes.cuh"
#include "trainer/backend/cuda/kernels/kernels_norm_pool.h"
#include "trainer/backend/cuda/kernels/rows_pair.cuh"

using namespace fshard;

namespace
{

/* ---- forward ---- */

/* Makes y of x and the addend, and terms of its moments, as MomentsTerm does. y is in row.x then. */
template <typename T, Addend kind> struct ResultTerm {
    static constexpr int sums = 2, unroll = 4, resident = 2;
    using First = Apply<T, kind, OP_RELU, false>;
    First first;
    template <int Width> struct Row : First::template Row<Width> {
        __device__ void read(const ResultTerm &term, const Spot &at)
        {
            First::template Row<Width>::read(term.first, at);
        }
    };
    template <int Width> struct Columns {
        typename First::template Columns<Width> of_first;
        float origin[Width];
        __device__ Columns(const Affine<Width> &known, const float *origins) : of_first(known)
        {
            load(origins, origin);
        }
        __device__ Columns(const ResultTerm &term, int c) : of_first(term.first, c, false)
        {
            Row<Width> row;
            row.read(term, Spot{0, c, c});
            unpack(term.first.result(of_first, row), origin);
        }
    };
    template <int Width>
    __device__ void add(const Columns<Width> &columns, Row<Width> &row, int64_t i,
                        float (&sum)[sums][Width]) const
    {
        float values[Width];
        row.x = first.result(columns.of_first, row);
        put(first.y + i, row.x);
        unpack(row.x, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float value = values[k] - columns.origin[k];
            sum[0][k] += value;
            sum[1][k] = fmaf(value, value, sum[1][k]);
        }
    }
};

/* Pieces of a row: x, which y takes the place of, and the addend. */
template <typename T, Addend kind> struct ForwardPair {
    static constexpr int width = vector_width<T>, first_sums = 2, second_sums = 2,
                         vectors = kind == Addend::none ? 1 : 2;
    using Piece = Raw<T, width>;
    using Map = Apply<T, Addend::none, OP_RELU, false>;
    static __device__ constexpr int begin(int)
    {
        return 0;
    }
    static __device__ constexpr int end(int phase)
    {
        return phase == PAIR_SECOND ? vectors : 1;
    }
    MomentsTerm<T> first_term;
    ResultTerm<T, kind> second_term;
    Map map;
    Moments first_moments, second_moments;
    __device__ const T *addend(const Spot &at) const
    {
        const auto &first = second_term.first;
        if constexpr (kind == Addend::narrower)
            return at.c < first.addend_pitch ? first.addend + at.row * first.addend_pitch + at.c : nullptr;
        return first.addend + at.element;
    }
    __device__ void bring(Piece *slot, int v, const Spot &at, int phase) const
    {
        copy_16(slot, v == 1 ? addend(at) : (phase == PAIR_MAP ? map.x : first_term.x) + at.element);
    }
    __device__ auto first_row(const Piece *slot, int) const
    {
        typename MomentsTerm<T>::template Row<width> row;
        row.x = *slot;
        return row;
    }
    __device__ auto second_row(const Piece *slot, int stride) const
    {
        typename ResultTerm<T, kind>::template Row<width> row;
        row.x = slot[0];
        if constexpr (kind != Addend::none)
            row.addend = slot[stride];
        return row;
    }
    template <typename Row> __device__ void keep_row(const Row &row, Piece *slot, int) const
    {
        *slot = row.x;
    }
    __device__ auto map_row(const Piece *slot, int) const
    {
        typename Map::template Row<width> row;
        row.x = *slot;
        return row;
    }
    struct Early {
        float origin, addend, weight, bias, second_weight, second_bias;
        Moments::Before before, second_before;
    };
    /* origin: that of the sums; scale and shift: of the map that comes next */
    template <int Channels> struct Kept {
        alignas(32) float origin[Channels], scale[Channels], shift[Channels];
    };
    __device__ Early fetch(int c, bool is_channel, bool first) const
    {
        const auto &norm = second_term.first.norm;
        float added = 0;
        if constexpr (kind != Addend::none)
            if (c < second_term.first.addend_channels)
                added = (float)second_term.first.addend[c];
        return {(float)first_term.x[c],
                added,
                norm.weight[c],
                norm.bias[c],
                map.norm.weight[c],
                map.norm.bias[c],
                first_moments.before(c, is_channel && first),
                second_moments.before(c, is_channel && first)};
    }
    template <int Channels> __device__ void keep(Kept<Channels> &kept, const Early &early, int k) const
    {
        kept.origin[k] = early.origin;
    }
    template <int Channels> __device__ auto first_columns(const Kept<Channels> &kept, int k, int) const
    {
        return typename MomentsTerm<T>::template Columns<width>(kept.origin + k);
    }
    /* Sets the scale and the shift of a norm of the sums about origin. */
    template <int Channels>
    static __device__ void set(Kept<Channels> &kept, int k, int c, float origin, const double *sums,
                               const Moments &moments, const Moments::Before &before, float weight,
                               float bias, bool is_channel, bool first)
    {
        double mean, variance;
        const float inverse = moments_about((double)origin, sums, moments, is_channel, &mean, &variance);
        affine_of(weight, bias, (float)mean, inverse, &kept.scale[k], &kept.shift[k]);
        if (first)
            moments.set(c, before, mean, variance, inverse, is_channel);
    }
    template <int Channels>
    __device__ void finish_first(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums,
                                 bool is_channel, bool first) const
    {
        set(kept, k, c, early.origin, sums, first_moments, early.before, early.weight, early.bias, is_channel,
            first);
        kept.origin[k] = (float)(T)(fmaf(early.origin, kept.scale[k], kept.shift[k]) + early.addend);
    }
    template <int Channels> __device__ auto second_columns(const Kept<Channels> &kept, int k, int) const
    {
        const Affine<width> affine(kept.scale + k, kept.shift + k);
        return typename ResultTerm<T, kind>::template Columns<width>(affine, kept.origin + k);
    }
    template <int Channels>
    __device__ void finish_second(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums,
                                  bool is_channel, bool first) const
    {
        set(kept, k, c, kept.origin[k], sums, second_moments, early.second_before, early.second_weight,
            early.second_bias, is_channel, first);
    }
    template <int Channels> __device__ auto map_columns(const Kept<Channels> &kept, int k) const
    {
        return typename Map::template Columns<width>(Affine<width>(kept.scale + k, kept.shift + k));
    }
};

/* The operands of a forward call. */
struct ForwardOperands {
    const NormPair *pair;
    const NormRunning *first_running, *second_running;
    const DeviceTensor *sums, *addend, *y, *z;
};

template <typename T, Addend kind>
cudaError_t forward(const ForwardOperands &of, void *scratch, cudaStream_t stream)
{
    const NormTensors *first = &of.pair->first, *second = &of.pair->second;
    const NormActivation none = {};
    ForwardPair<T, kind> pass = {};
    pass.first_term.x = data_of<T>(first->x);
    auto &made = pass.second_term.first;
    made.norm = norm_of(first, &none);
    made.x = data_of<T>(first->x);
    made.addend = maybe_data<T>(of.addend);
    made.addend_pitch = of.addend ? (int)of.addend->pitch : 0;
    made.addend_channels = of.addend ? (int)device_tensor_channels(of.addend) : 0;
    made.y = data_of<T>(of.y);
    pass.map.norm = norm_of(second, &of.pair->activation);
    pass.map.x = made.y;
    pass.map.y = data_of<T>(of.z);
    pass.first_moments = moments_of(first, of.first_running);
    pass.second_moments = moments_of(second, of.second_running);
    if (run_pair<T>(pass, first->x, scratch, stream))
        return cudaGetLastError();
    cudaError_t code = cudaSuccess;
    if (of.sums)
        code = kernel_batch_norm_sum_statistics(first, of.first_running, of.sums, stream);
    else
        sum_rows<T>(pass.first_term, FinishMoments<T>{made.x, pass.first_moments}, first->x, scratch, stream);
    if (code != cudaSuccess)
        return code;
    sum_rows<T>(pass.second_term, FinishMoments<T>{made.y, pass.second_moments}, first->x, scratch, stream);
    run_map<T, 4>(pass.map, first->x, stream);
    return cudaGetLastError();
}

/* ---- backward ---- */

/* Makes dy of dz and y, and g = dy + dy2, with the terms of the first norm's sums, as BackwardTerm has them.
 * g is in row.x then, y's place. */
template <typename T, Second second> struct GradientTerm {
    static constexpr int sums = 2, unroll = 2, resident = 2;
    using Behind = Backward<T, Gate::x>; /* of the second norm, whose x is y */
    Behind behind;
    Norm norm;
    const T *x, *dy2;
    int dy2_pitch, channels;
    T *g;
    template <int Width> struct Row : Behind::template Row<Width> {
        Raw<T, Width> first_x, dy2;
        __device__ void read(const GradientTerm &term, const Spot &at)
        {
            Behind::template Row<Width>::read(term.behind, at);
            first_x = fetch<T, Width>(term.x + at.element);
            if constexpr (second == Second::like_x)
                dy2 = fetch_last<T, Width>(term.dy2 + at.element);
            if constexpr (second == Second::wider)
                dy2 = fetch_part<T, Width>(term.dy2 + at.row * term.dy2_pitch, term.dy2_pitch, term.channels,
                                           at.c);
        }
    };
    template <int Width> struct Columns {
        typename Behind::template Columns<Width> of_second;
        float mean[Width];
        int channels; /* from c on */
        __device__ Columns(const typename Behind::template Columns<Width> &known, const float *means,
                           int channels_left)
            : of_second(known), channels(channels_left)
        {
            load(means, mean);
        }
        __device__ Columns(const GradientTerm &term, int c)
            : of_second(term.behind, c, false), channels(term.channels - c)
        {
            load(term.norm.mean + c, mean);
        }
    };
    template <int Width>
    __device__ void add(const Columns<Width> &columns, Row<Width> &row, int64_t i,
                        float (&sum)[sums][Width]) const
    {
        float gradients[Width], values[Width], more[Width];
        behind.gradients_of(columns.of_second, row, gradients);
        unpack(row.first_x, values);
        if constexpr (second != Second::none)
            unpack(row.dy2, more);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            if constexpr (second == Second::like_x)
                gradients[k] += more[k];
            if constexpr (second == Second::wider)
                gradients[k] += k < columns.channels ? more[k] : 0;
            sum[0][k] += gradients[k];
            sum[1][k] = fmaf(gradients[k], values[k] - columns.mean[k], sum[1][k]);
        }
        row.x = pack<T, Width>(gradients);
        put(g + i, row.x);
    }
};

/* Pieces of a row: dz; y, which g takes the place of; x; dy2. */
template <typename T, Second second> struct BackwardPair {
    static constexpr int width = vector_width<T>, first_sums = 2, second_sums = 2,
                         vectors = second == Second::none ? 3 : 4;
    enum { DZ, Y, X, DY2 };
    using Piece = Raw<T, width>;
    using FirstTerm = BackwardTerm<T, Gate::x, OP_RELU, Second::none, false>;
    using SecondTerm = GradientTerm<T, second>;
    using Map = Backward<T, Gate::x>;
    static __device__ constexpr int begin(int phase)
    {
        return phase == PAIR_MAP ? Y : DZ;
    }
    static __device__ constexpr int end(int phase)
    {
        return phase == PAIR_FIRST ? Y + 1 : phase == PAIR_SECOND ? vectors : X + 1;
    }
    FirstTerm first_term;
    SecondTerm second_term;
    Map map;
    FinishBackward of_second, of_first;
    __device__ const T *source(int v, const Spot &at, int phase) const
    {
        if (v == DZ)
            return first_term.dy + at.element;
        if (v == Y)
            return (phase == PAIR_MAP ? second_term.g : first_term.x) + at.element;
        if (v == X)
            return second_term.x + at.element;
        if constexpr (second == Second::wider)
            return second_term.dy2 + at.row * second_term.dy2_pitch + at.c;
        return second_term.dy2 + at.element;
    }
    __device__ void bring(Piece *slot, int v, const Spot &at, int phase) const
    {
        copy_16(slot, source(v, at, phase));
    }
    __device__ auto first_row(const Piece *slot, int stride) const
    {
        typename FirstTerm::template Row<width> row;
        row.dy = slot[DZ * stride];
        row.x = slot[Y * stride];
        return row;
    }
    __device__ auto second_row(const Piece *slot, int stride) const
    {
        typename SecondTerm::template Row<width> row;
        row.dy = slot[DZ * stride];
        row.x = slot[Y * stride];
        row.first_x = slot[X * stride];
        if constexpr (second != Second::none)
            row.dy2 = slot[DY2 * stride];
        return row;
    }
    template <typename Row> __device__ void keep_row(const Row &row, Piece *slot, int stride) const
    {
        slot[Y * stride] = row.x;
    }
    __device__ auto map_row(const Piece *slot, int stride) const
    {
        typename Map::template Row<width> row;
        row.dy = slot[Y * stride];
        row.x = slot[X * stride];
        return row;
    }
    struct Early {
        float weight, bias, mean, inverse, second_weight, second_bias, second_mean, second_inverse;
    };
    /* mean: that of the sums; the others: of the map that comes next */
    template <int Channels> struct Kept {
        alignas(32) float mean[Channels], scale[Channels], shift[Channels], from_x[Channels],
            constant[Channels];
    };
    __device__ Early fetch(int c, bool, bool) const
    {
        const Norm &first = second_term.norm, &behind = first_term.norm;
        return {first.weight[c],  first.bias[c],  first.mean[c],  first.inverse_deviation[c],
                behind.weight[c], behind.bias[c], behind.mean[c], behind.inverse_deviation[c]};
    }
    template <int Channels> __device__ void keep(Kept<Channels> &kept, const Early &early, int k) const
    {
        kept.mean[k] = early.second_mean;
        affine_of(early.second_weight, early.second_bias, early.second_mean, early.second_inverse,
                  &kept.scale[k], &kept.shift[k]);
    }
    template <int Channels> __device__ auto first_columns(const Kept<Channels> &kept, int k, int c) const
    {
        const Affine<width> affine(kept.scale + k, kept.shift + k);
        return typename FirstTerm::template Columns<width>(kept.mean + k, affine, second_term.channels - c);
    }
    template <int Channels>
    __device__ void finish_first(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums,
                                 bool, bool first) const
    {
        const float dbias = (float)sums[0], dweight = (float)(sums[1] * (double)early.second_inverse);
        gradient_of(kept.scale[k], early.second_mean, early.second_inverse, dweight, dbias, map.inverse_rows,
                    &kept.from_x[k], &kept.constant[k]);
        kept.mean[k] = early.mean;
        if (first)
            of_second.set(c, dweight, dbias);
    }
    /* Returns the columns of a map that makes a norm's dx. */
    template <int Channels> __device__ auto map_columns(const Kept<Channels> &kept, int k) const
    {
        const Affine<width> affine(kept.scale + k, kept.shift + k);
        return typename Map::template Columns<width>(affine, kept.from_x + k, kept.constant + k);
    }
    template <int Channels> __device__ auto second_columns(const Kept<Channels> &kept, int k, int c) const
    {
        return typename SecondTerm::template Columns<width>(map_columns(kept, k), kept.mean + k,
                                                            second_term.channels - c);
    }
    template <int Channels>
    __device__ void finish_second(Kept<Channels> &kept, const Early &early, int k, int c, const double *sums,
                                  bool, bool first) const
    {
        const float dbias = (float)sums[0], dweight = (float)(sums[1] * (double)early.inverse);
        affine_of(early.weight, early.bias, early.mean, early.inverse, &kept.scale[k], &kept.shift[k]);
        gradient_of(kept.scale[k], early.mean, early.inverse, dweight, dbias, map.inverse_rows,
                    &kept.from_x[k], &kept.constant[k]);
        if (first)
            of_first.set(c, dweight, dbias);
    }
};

/* The operands of a backward call. */
struct BackwardOperands {
    const NormPair *pair;
    const DeviceTensor *dz;
    const NormGradient *first;
    const DeviceTensor *second_dweight, *second_dbias;
};

/* Returns the map that makes dx of dy and x. */
template <typename T>
Backward<T, Gate::x> gradient_map(const Norm &norm, const DeviceTensor *dy, const DeviceTensor *x,
                                  const DeviceTensor *dweight, const DeviceTensor *dbias,
                                  const DeviceTensor *dx)
{
    Backward<T, Gate::x> map = {};
    map.norm = norm;
    map.dy = data_of<T>(dy);
    map.x = data_of<T>(x);
    map.dweight = data_of<float>(dweight);
    map.dbias = data_of<float>(dbias);
    map.inverse_rows = 1.0 / (double)device_tensor_rows(x);
    map.dx = maybe_data<T>(dx);
    return map;
}

template <typename T, Second second>
cudaError_t backward(const BackwardOperands &of, void *scratch, cudaStream_t stream)
{
    const NormTensors *first = &of.pair->first, *behind = &of.pair->second;
    const NormGradient *gradient = of.first;
    const NormActivation none = {};
    BackwardPair<T, second> pass = {};
    pass.first_term.norm = norm_of(behind, &of.pair->activation);
    pass.first_term.dy = data_of<T>(of.dz);
    pass.first_term.x = data_of<T>(behind->x);
    pass.first_term.channels = (int)device_tensor_channels(first->x);
    auto &term = pass.second_term;
    term.behind =
        gradient_map<T>(pass.first_term.norm, of.dz, behind->x, of.second_dweight, of.second_dbias, nullptr);
    term.norm = norm_of(first, &none);
    term.x = data_of<T>(first->x);
    term.dy2 = maybe_data<T>(gradient->dy2);
    term.dy2_pitch = gradient->dy2 ? (int)gradient->dy2->pitch : 0;
    term.channels = pass.first_term.channels;
    term.g = data_of<T>(gradient->g);
    pass.map =
        gradient_map<T>(term.norm, gradient->g, first->x, gradient->dweight, gradient->dbias, gradient->dx);
    pass.of_second = {pass.first_term.norm.inverse_deviation, data_of<float>(of.second_dweight),
                      data_of<float>(of.second_dbias), nullptr};
    pass.of_first = {term.norm.inverse_deviation, data_of<float>(gradient->dweight),
                     data_of<float>(gradient->dbias), maybe_data<float>(gradient->zero)};
    if (run_pair<T>(pass, first->x, scratch, stream))
        return cudaGetLastError();
    sum_rows<T>(pass.first_term, pass.of_second, first->x, scratch, stream);
    sum_rows<T>(term, pass.of_first, first->x, scratch, stream);
    run_map<T, 4>(pass.map, first->x, stream);
    return cudaGetLastError();
}

/* ---- both ---- */

/* Calls body with a T of 16 bits. */
template <typename Body> cudaError_t with_narrow(const DeviceTensor *x, Body body)
{
    if (x->element == ELEMENT_F16)
        return body(__half{});
    return x->element == ELEMENT_BF16 ? body(__nv_bfloat16{}) : cudaErrorNotSupported;
}

/* Returns whether tensors and activation are such as the kernels take. */
bool fits(const NormPair *pair)
{
    const NormTensors *first = &pair->first, *second = &pair->second;
    return all_f32({first->weight, first->bias, first->mean, first->inverse_deviation, second->weight,
                    second->bias, second->mean, second->inverse_deviation}) &&
           !first->signs && !second->signs && (!pair->activation.op || pair->activation.op == OP_RELU);
}

} // namespace

/* One region of partial sums for each norm. */
extern "C" uint64_t kernel_norm_pair_scratch_bytes(const DeviceTensor *x)
{
    return 2 * kernel_column_scratch_bytes(x);
}

extern "C" cudaError_t kernel_norm_pair_forward(const NormPair *pair, const NormRunning *first_running,
                                                const NormRunning *second_running, const DeviceTensor *sums,
                                                const DeviceTensor *addend, const DeviceTensor *y,
                                                const DeviceTensor *z, void *scratch, cudaStream_t stream)
{
    const DeviceTensor *x = pair->first.x;
    if (!fits(pair) || !all_f32({first_running->mean, first_running->var, first_running->bias,
                                 second_running->mean, second_running->var, second_running->bias, sums}))
        return cudaErrorNotSupported;
    const ForwardOperands of = {pair, first_running, second_running, sums, addend, y, z};
    return with_narrow(x, [&](auto zero) {
        using T = decltype(zero);
        if (!addend)
            return forward<T, Addend::none>(of, scratch, stream);
        if (device_tensor_channels(addend) == device_tensor_channels(x))
            return forward<T, Addend::like_x>(of, scratch, stream);
        return forward<T, Addend::narrower>(of, scratch, stream);
    });
}

extern "C" cudaError_t kernel_norm_pair_backward(const NormPair *pair, const DeviceTensor *dz,
                                                 const NormGradient *first,
                                                 const DeviceTensor *second_dweight,
                                                 const DeviceTensor *second_dbias, void *scratch,
                                                 cudaStream_t stream)
{
    const DeviceTensor *x = pair->first.x, *dy2 = first->dy2;
    if (!fits(pair) || !all_f32({first->dweight, first->dbias, first->zero, second_dweight, second_dbias}) ||
        !first->g || !first->dx ||
        (dy2 && (device_tensor_rows(dy2) != device_tensor_rows(x) ||
                 device_tensor_channels(dy2) < device_tensor_channels(x))))
        return cudaErrorNotSupported;
    const BackwardOperands of = {pair, dz, first, second_dweight, second_dbias};
    return with_narrow(x, [&](auto zero) {
        using T = decltype(zero);
        if (!dy2)
            return backward<T, Second::none>(of, scratch, stream);
        if (device_tensor_channels(dy2) == device_tensor_channels(x))
            return backward<T, Second::like_x>(of, scratch, stream);
        return backward<T, Second::wider>(of, scratch, stream);
    });
}
