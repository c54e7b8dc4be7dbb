/* batch_norm_passes.cuh - the arithmetic of batch norm for each element and each channel: terms of sums, what
 * is done with the sums, and maps, in the form that rows.cuh runs over a matrix. batch_norm_whole.cuh
 * combines them. For batch_norm.cu, norm_gate.cu, norm_pair.cu and norm_pool.cuh. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_PASSES_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_PASSES_CUH

#include "trainer/backend/cuda/kernels/rows.cuh"
#include "trainer/backend/cuda/kernels/strided_rows.cuh"
#include "trainer/backend/pointwise_math.h"
#include "trainer/graph/graph_ops.h"

namespace fshard
{

/* ---- sums ---- */

template <typename T> struct SumTerm {
    static constexpr int sums = 1, unroll = 4, resident = 4;
    const T *x;
    template <int Width> struct Columns {
        __device__ Columns(const SumTerm &, int)
        {
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> x;
        template <typename Term> __device__ void read(const Term &term, const Spot &at)
        {
            x = fetch<T, Width>(term.x + at.element);
        }
    };
    template <int Width>
    __device__ void add(const Columns<Width> &, const Row<Width> &row, int64_t,
                        float (&sum)[sums][Width]) const
    {
        float values[Width];
        unpack(row.x, values);
#pragma unroll
        for (int k = 0; k < Width; k++)
            sum[0][k] += values[k];
    }
};

/* Terms x - x[0, c] and its square: shifting by a value of the channel keeps the variance exact even if
 * values are far from 0. */
template <typename T> struct MomentsTerm {
    static constexpr int sums = 2, unroll = 4, resident = 4;
    const T *x;
    template <int Width> struct Columns {
        float shift[Width];
        __device__ explicit Columns(const float *shifts)
        {
            load(shifts, shift);
        }
        __device__ Columns(const MomentsTerm &term, int c)
        {
            unpack(fetch<T, Width>(term.x + c), shift);
        }
    };
    template <int Width> using Row = typename SumTerm<T>::template Row<Width>;
    template <int Width>
    __device__ void add(const Columns<Width> &columns, const Row<Width> &row, int64_t,
                        float (&sum)[sums][Width]) const
    {
        float values[Width];
        unpack(row.x, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float value = values[k] - columns.shift[k];
            sum[0][k] += value;
            sum[1][k] = fmaf(value, value, sum[1][k]);
        }
    }
};

/* What the batch's statistics are written to. The running mean is that of x + bias if the layer before the
 * norm has a bias that was left out. */
struct Moments {
    double inverse_rows, unbiasing, epsilon, momentum; /* unbiasing: rows / (rows - 1) */
    const float *bias;                                 /* may be NULL */
    float *mean, *inverse_deviation, *running_mean, *running_var;
    /* The channel's running statistics before this batch. */
    struct Before {
        float mean, var, bias;
    };
    __device__ Before before(int c, bool is_channel) const
    {
        return is_channel ? Before{running_mean[c], running_var[c], bias ? bias[c] : 0} : Before{};
    }
    __device__ void set(int c, const Before &was, double batch_mean, double variance, float inverse,
                        bool is_channel) const
    {
        mean[c] = (float)batch_mean;
        inverse_deviation[c] = inverse;
        if (!is_channel)
            return;
        const double moved = batch_mean + (double)was.bias;
        running_mean[c] = (float)((1 - momentum) * (double)was.mean + momentum * moved);
        running_var[c] = (float)((1 - momentum) * (double)was.var + momentum * variance * unbiasing);
    }
};

/* Computes mean and variance from sums about a shift. Returns the inverse of the deviation. */
__device__ inline float moments_about(double shift, const double *sums, const Moments &moments,
                                      bool is_channel, double *mean, double *variance)
{
    const double shifted = sums[0] * moments.inverse_rows;
    *mean = shift + shifted;
    *variance = fmax(sums[1] * moments.inverse_rows - shifted * shifted, 0.0);
    return is_channel ? (float)rsqrt(*variance + moments.epsilon) : 0;
}

template <typename T> struct FinishMoments {
    const T *x;
    Moments moments;
    __device__ void operator()(int c, const double *sums, bool is_channel) const
    {
        double mean, variance;
        const float inverse = moments_about((double)(float)x[c], sums, moments, is_channel, &mean, &variance);
        moments.set(c, moments.before(c, is_channel), mean, variance, inverse, is_channel);
    }
};

/* The sums over rows of x and of its squares, and what is made of them. */
struct SumsOfX {
    const float *sum, *squares;
    int channels;
    Moments moments;
};

/* Computes the sums of x and of its squares from those about the shift. */
template <typename T> struct FinishChannelSums {
    const T *x;
    double rows;
    float *sum, *squares;
    __device__ void operator()(int c, const double *sums, bool) const
    {
        const double shift = (double)(float)x[c];
        sum[c] = (float)(sums[0] + rows * shift);
        squares[c] = (float)(sums[1] + 2 * shift * sums[0] + rows * shift * shift);
    }
};

/* Computes the means of x and of its square from the sums about the shift. */
template <typename T> struct FinishMeans {
    const T *x;
    double inverse_rows;
    double *mean, *square;
    __device__ void operator()(int c, const double *sums, bool) const
    {
        const double shifted = sums[0] * inverse_rows, exact = (double)(float)x[c] + shifted;
        mean[c] = exact;
        square[c] = fmax(sums[1] * inverse_rows - shifted * shifted, 0.0) + exact * exact;
    }
};

/* ---- forward ---- */

/* What apply and backward need to know of the channels. slope: that of OP_RELU; 1 without activation, for
 * which OP_RELU stands, too. */
struct Norm {
    const float *weight, *bias, *mean, *inverse_deviation;
    float slope;
};

/* Returns what an activation makes of the norm's result, for a T. */
template <typename T, OpKind activation> __device__ inline float activated(float value, float slope)
{
#define RETURN(KIND, function, narrow)                                                                       \
    if constexpr (activation == OP_##KIND)                                                                   \
        return sizeof(T) == 2 ? narrow(value) : function(value);
    POINTWISE_ACTIVATIONS(RETURN)
#undef RETURN
    return value > 0 ? value : slope * value;
}

/* Returns the gradient of the norm's result. For OP_RELU the activation's result does in place of `value`. */
template <typename T, OpKind activation>
__device__ inline float gated(float gradient, float value, float slope)
{
#define RETURN(KIND, function, narrow)                                                                       \
    if constexpr (activation == OP_##KIND)                                                                   \
        return gradient * (sizeof(T) == 2 ? narrow##_slope(value) : function##_slope(value));
    POINTWISE_ACTIVATIONS(RETURN)
#undef RETURN
    return value > 0 ? gradient : slope * gradient;
}

/* Writes the norm of a channel as x * scale + shift. Forward and backward use the same bits, so that they
 * agree where the activation is on. */
__device__ inline void affine_of(float weight, float bias, float mean, float inverse, float *scale,
                                 float *shift)
{
    *scale = weight * inverse;
    *shift = (float)((double)bias - (double)mean * (double)*scale);
}

/* Scales and shifts of channels c..c + Width. */
template <int Width> struct Affine {
    float scale[Width], shift[Width];
    __device__ Affine(const float *scales, const float *shifts)
    {
        load(scales, scale);
        load(shifts, shift);
    }
    __device__ Affine(const Norm &norm, int c)
    {
        float mean[Width], inverse[Width];
        load(norm.mean + c, mean);
        load(norm.inverse_deviation + c, inverse);
        set(norm, c, mean, inverse);
    }
    __device__ Affine(const Norm &norm, int c, const float (&mean)[Width], const float (&inverse)[Width])
    {
        set(norm, c, mean, inverse);
    }
    __device__ void set(const Norm &norm, int c, const float (&mean)[Width], const float (&inverse)[Width])
    {
        float weight[Width], bias[Width];
        load(norm.weight + c, weight);
        load(norm.bias + c, bias);
#pragma unroll
        for (int k = 0; k < Width; k++)
            affine_of(weight[k], bias[k], mean[k], inverse[k], &scale[k], &shift[k]);
    }
    __device__ float of(float x, int k) const
    {
        return fmaf(x, scale[k], shift[k]);
    }
};

/* Statistics of channels c..c + Width from the sums of x and of its squares; every thread of a channel
 * computes the same.
 *
 * Sums of squares in float32 lose digits if the mean is many deviations away from 0. The relative error of 1
 * / deviation, with cuDNN's way imitated on the CPU (sums over 128 pixels, added up in float32 one by one),
 * for 819,200 values in f16, rms and worst of 24 channels:
 *
 *     mean / deviation                              3         10          30          100
 *     cuDNN's sums                          2e-5 4e-5  1e-4 3e-4   2e-3 3e-3  1.3e-2 3e-2
 *     own (direct.cu: joined in float64)         6e-7       5e-6        6e-5         5e-4
 *     f16: rounding of one value, deviations     6e-4       2e-3        5e-3         2e-2
 *
 * So up to 100 deviations the rounding of each value to f16 is a larger error than that of the sums. Without
 * conv-statistics the sums are shifted by a value of the channel (MomentsTerm), and exact. */
template <int Width> struct FromSums {
    float mean[Width], inverse[Width];
    __device__ FromSums(const SumsOfX &sums, int c, bool first)
    {
        float sum[Width], squares[Width];
        load(sums.sum + c, sum);
        load(sums.squares + c, squares);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const double exact = (double)sum[k] * sums.moments.inverse_rows;
            const double variance = fmax((double)squares[k] * sums.moments.inverse_rows - exact * exact, 0.0);
            mean[k] = (float)exact;
            inverse[k] = c + k < sums.channels ? 1 / sqrtf((float)(variance + sums.moments.epsilon)) : 0;
            if (first)
                sums.moments.set(c + k, sums.moments.before(c + k, c + k < sums.channels), exact, variance,
                                 inverse[k], c + k < sums.channels);
        }
    }
};

/* ---- signs ---- */

/* Where bits tell which values were above 0: bit i % 32 of word i / 32 is that of value i. Rows have no
 * padding, and a thread has 8 values, a byte. */
constexpr int signs_in_word = 32;

/* Returns the bits of narrow values in order, from bit 0 on. */
template <typename T> __device__ inline unsigned signs_of(const Raw<T, 8> &values)
{
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const unsigned zeros = 0;
    unsigned signs = 0;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const unsigned above = __hgt2_mask(*reinterpret_cast<const Pair *>(&values.words[w]),
                                           *reinterpret_cast<const Pair *>(&zeros));
        signs |= (above & 1U << 2 * w) | (above >> 16 & 2U << 2 * w);
    }
    return signs;
}

/* Makes a number above 0, or 0, of each bit of the word that has the bits of element i and the next ones. */
template <int Width> __device__ inline void results_of(unsigned word, int64_t i, float (&results)[Width])
{
    const unsigned signs = word >> (unsigned)(i % signs_in_word);
#pragma unroll
    for (int k = 0; k < Width; k++)
        results[k] = signs >> k & 1 ? 1.0F : 0.0F;
}

/* ---- forward ---- */

/* narrower: it has fewer channels than x; the missing ones add 0. */
enum class Addend { none, like_x, narrower };

template <typename T, Addend kind, OpKind activation, bool HasSums> struct Apply {
    Norm norm;
    const T *x, *addend;
    int addend_pitch, addend_channels;
    T *y;
    unsigned char *signs; /* of y, or NULL; of a narrow y with an addend like x */
    SumsOfX sums;         /* with HasSums: norm.mean and norm.inverse_deviation are made from it */
    template <int Width> struct Columns {
        Affine<Width> affine;
        __device__ explicit Columns(const Affine<Width> &known) : affine(known)
        {
        }
        __device__ Columns(const Apply &map, int c, bool first) : affine(of(map, c, first))
        {
        }
        static __device__ Affine<Width> of(const Apply &map, int c, bool first)
        {
            if constexpr (HasSums) {
                const FromSums<Width> statistics(map.sums, c, first);
                return Affine<Width>(map.norm, c, statistics.mean, statistics.inverse);
            } else {
                return Affine<Width>(map.norm, c);
            }
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> x, addend;
        __device__ void read(const Apply &map, const Spot &at)
        {
            x = fetch_last<T, Width>(map.x + at.element);
            if constexpr (kind == Addend::like_x)
                addend = fetch_last<T, Width>(map.addend + at.element);
            if constexpr (kind == Addend::narrower)
                addend = fetch_part<T, Width>(map.addend + at.row * map.addend_pitch, map.addend_pitch,
                                              map.addend_channels, at.c);
        }
    };
    template <int Width>
    __device__ Raw<T, Width> result(const Columns<Width> &columns, const Row<Width> &row) const
    {
        float values[Width], addends[Width];
        unpack(row.x, values);
        if constexpr (kind != Addend::none)
            unpack(row.addend, addends);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            float value = columns.affine.of(values[k], k);
            if constexpr (kind != Addend::none)
                value += addends[k];
            values[k] = activated<T, activation>(value, norm.slope);
        }
        return pack<T, Width>(values);
    }
    template <int Width>
    __device__ void write(const Columns<Width> &columns, const Row<Width> &row, int64_t i) const
    {
        const Raw<T, Width> made = result(columns, row);
        put(y + i, made);
        if constexpr (kind == Addend::like_x && sizeof(T) == 2)
            if (signs)
                signs[i / SIGNS_IN_BYTE] = (unsigned char)signs_of<T>(made);
    }
};

template <typename T> struct AddBias {
    T *y;
    const float *bias;
    float slope; /* 1: no activation */
    template <int Width> struct Columns {
        float bias[Width];
        __device__ Columns(const AddBias &map, int c, bool)
        {
            load(map.bias + c, bias);
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> y;
        __device__ void read(const AddBias &map, const Spot &at)
        {
            y = fetch_last<T, Width>(map.y + at.element);
        }
    };
    template <int Width>
    __device__ void write(const Columns<Width> &columns, const Row<Width> &row, int64_t i) const
    {
        float values[Width];
        unpack(row.y, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float value = values[k] + columns.bias[k];
            values[k] = value > 0 ? value : slope * value;
        }
        put(y + i, values);
    }
};

/* ---- backward ---- */

/* The tensor that tells where the activation was on, or where its slope is taken. signs: of y; with g
 * stored. */
enum class Gate { x, y, signs };

/* The second part of dy. wider: it has more channels than x, which are ignored. strided: it has every second
 * row and column; it adds 0 elsewhere. */
enum class Second { none, like_x, wider, strided };

/* Terms g and g * (x - mean), with g = (dy + dy2) through the activation. With Stores, g is also written to
 * term.g; it stays in the row in any case. With Sampled, dx of the elements from dx_from on, of rows that the
 * statistics are not of, is written too. */
template <typename T, Gate gate, OpKind activation, Second second, bool Stores, bool Sampled = false>
struct BackwardTerm {
    static constexpr int sums = 2, unroll = second != Second::none || gate != Gate::x ? 2 : 4, resident = 2;
    struct EveryRow {
    };
    Norm norm;
    const T *dy, *dy2, *x, *y;
    const unsigned *signs;
    int dy2_pitch, channels;
    T *g, *dx; /* dx: with Sampled */
    int64_t dx_from;
    std::conditional_t<second == Second::strided, StridedRows, EveryRow> places; /* of dy2 */
    /* Returns where a strided dy2 has the values of a spot; NULL: it has none. */
    __device__ const T *strided(const Spot &at) const
    {
        const int row = places.of(at.row);
        return row < 0 ? nullptr : dy2 + (int64_t)row * dy2_pitch + at.c;
    }
    template <int Width> struct Columns {
        float mean[Width];
        Affine<Width> affine;
        int channels; /* from c on */
        __device__ Columns(const float *means, const Affine<Width> &known, int channels_left)
            : affine(known), channels(channels_left)
        {
            load(means, mean);
        }
        __device__ Columns(const BackwardTerm &term, int c)
            : affine(term.norm, c), channels(term.channels - c)
        {
            load(term.norm.mean + c, mean);
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> dy, dy2, x, y;
        unsigned signs; /* the word with those of the row's values */
        __device__ void read(const BackwardTerm &term, const Spot &at)
        {
            /* With g written, dy and dy2 are not read again. */
            dy = Stores ? fetch_last<T, Width>(term.dy + at.element) : fetch<T, Width>(term.dy + at.element);
            x = fetch<T, Width>(term.x + at.element);
            if constexpr (second == Second::like_x)
                dy2 = fetch_last<T, Width>(term.dy2 + at.element);
            if constexpr (second == Second::wider)
                dy2 = fetch_part<T, Width>(term.dy2 + at.row * term.dy2_pitch, term.dy2_pitch, term.channels,
                                           at.c);
            if constexpr (second == Second::strided) {
                const T *from = term.strided(at);
                dy2 = from ? fetch_last<T, Width>(from) : Raw<T, Width>{};
            }
            if constexpr (gate == Gate::y)
                y = Stores ? fetch_last<T, Width>(term.y + at.element) : fetch<T, Width>(term.y + at.element);
            if constexpr (gate == Gate::signs)
                signs = term.signs[at.element / signs_in_word];
        }
    };
    template <int Width>
    __device__ void add(const Columns<Width> &columns, Row<Width> &row, int64_t i,
                        float (&sum)[sums][Width]) const
    {
        float gradients[Width], values[Width], more[Width], results[Width];
        unpack(row.dy, gradients);
        unpack(row.x, values);
        if constexpr (second != Second::none)
            unpack(row.dy2, more);
        if constexpr (gate == Gate::y)
            unpack(row.y, results);
        if constexpr (gate == Gate::signs)
            results_of(row.signs, i, results);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            if constexpr (second == Second::like_x || second == Second::strided)
                gradients[k] += more[k];
            if constexpr (second == Second::wider)
                gradients[k] += k < columns.channels ? more[k] : 0;
            const float result = gate == Gate::x ? columns.affine.of(values[k], k) : results[k];
            gradients[k] = gated<T, activation>(gradients[k], result, norm.slope);
            sum[0][k] += gradients[k];
            sum[1][k] = fmaf(gradients[k], values[k] - columns.mean[k], sum[1][k]);
        }
        if constexpr (Stores) {
            row.dy = pack<T, Width>(gradients);
            put(g + i, row.dy);
        }
        if constexpr (Sampled) {
            if (i < dx_from)
                return;
#pragma unroll
            for (int k = 0; k < Width; k++)
                gradients[k] *= columns.affine.scale[k];
            put(dx + i, gradients);
        }
    }
};

struct FinishBackward {
    const float *inverse_deviation;
    float *dweight, *dbias, *zero; /* zero may be NULL */
    __device__ void operator()(int c, const double *sums, bool) const
    {
        set(c, (float)(sums[1] * (double)inverse_deviation[c]), (float)sums[0]);
    }
    __device__ void set(int c, float of_weight, float of_bias) const
    {
        dweight[c] = of_weight;
        dbias[c] = of_bias;
        if (zero)
            zero[c] = 0;
    }
};

/* Computes dx = from_g * g + from_x * x + constant, from_g being the norm's scale. inverse_rows: 0 if the
 * statistics are not the batch's. */
__device__ inline void gradient_of(float scale, float mean, float inverse, float dweight, float dbias,
                                   double inverse_rows, float *from_x, float *constant)
{
    const double spread = -(double)scale * inverse_rows;
    const double slope = spread * (double)inverse * (double)dweight;
    *from_x = (float)slope;
    *constant = (float)(spread * (double)dbias - slope * (double)mean);
}

/* Of an activation that is not OP_RELU, g is stored by the sums (BackwardTerm), so none is left to pass. */
template <typename T, Gate gate> struct Backward {
    Norm norm;
    const T *dy, *x, *y;
    const float *dweight, *dbias;
    double inverse_rows;
    T *dx;
    template <int Width> struct Columns {
        Affine<Width> affine;
        float from_x[Width], constant[Width];
        __device__ Columns(const Affine<Width> &known, const float *from_xs, const float *constants)
            : affine(known)
        {
            load(from_xs, from_x);
            load(constants, constant);
        }
        __device__ Columns(const Backward &map, int c, bool) : affine(map.norm, c)
        {
            float mean[Width], inverse[Width], dweight[Width], dbias[Width];
            load(map.norm.mean + c, mean);
            load(map.norm.inverse_deviation + c, inverse);
            load(map.dweight + c, dweight);
            load(map.dbias + c, dbias);
#pragma unroll
            for (int k = 0; k < Width; k++)
                gradient_of(affine.scale[k], mean[k], inverse[k], dweight[k], dbias[k], map.inverse_rows,
                            &from_x[k], &constant[k]);
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> dy, x, y;
        __device__ void read(const Backward &map, const Spot &at)
        {
            dy = fetch_last<T, Width>(map.dy + at.element);
            x = fetch_last<T, Width>(map.x + at.element);
            if constexpr (gate == Gate::y)
                y = fetch_last<T, Width>(map.y + at.element);
        }
    };
    template <int Width>
    __device__ void gradients_of(const Columns<Width> &columns, const Row<Width> &row,
                                 float (&gradients)[Width]) const
    {
        float values[Width], results[Width];
        unpack(row.dy, gradients);
        unpack(row.x, values);
        if constexpr (gate == Gate::y)
            unpack(row.y, results);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            const float result = gate == Gate::y ? results[k] : columns.affine.of(values[k], k);
            const float g = gated<T, OP_RELU>(gradients[k], result, norm.slope);
            gradients[k] =
                fmaf(columns.affine.scale[k], g, fmaf(columns.from_x[k], values[k], columns.constant[k]));
        }
    }
    template <int Width>
    __device__ void write(const Columns<Width> &columns, const Row<Width> &row, int64_t i) const
    {
        float gradients[Width];
        gradients_of(columns, row, gradients);
        put(dx + i, gradients);
    }
};

} // namespace fshard

#endif
