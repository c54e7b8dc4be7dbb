/* attention_rows.cuh - what the attentions on the matrix units have in common: the rows that a warp owns, in
 * registers, and their softmax. For attention_tiles.cu and attention_warpgroup.cu alone.
 *
 * In FlashAttention's words shares are P, slopes dS, means D (or delta), log_sums L. Fragments are those of
 * matrix_units.cuh: of 16 x 8 sums a lane holds rows group and group + 8. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_ROWS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_ROWS_CUH

#include "trainer/backend/cuda/kernels/kernels_tokens.h"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{

constexpr int own_rows = 16; /* of a warp */
/* Exponentials are powers of two: e^x = 2^(x * to_base_two). */
constexpr float to_base_two = 1.44269504F, from_base_two = 0.693147181F;

/* What lies where, and what is computed. Pointers are to the first sample's. */
template <typename T> struct Attention {
    const T *x; /* [N, T, 1, 3 C] */
    T *y;       /* [N, T, 1, C]: written forward */
    float *log_sums;
    const T *dy;
    T *dx;
    float *means;              /* [N, heads, T]: of a query, the mean of its shares' gradients */
    int tokens, heads, blocks; /* blocks: of a head */
    int64_t x_pitch, y_pitch;
    float factor; /* of the products of queries and keys */
};

/* Returns what a forward launch knows, and every one of the gradient. */
template <typename T>
Attention<T> attention_of(const DeviceTensor *x, int64_t heads, const DeviceTensor *y,
                          const DeviceTensor *log_sums)
{
    Attention<T> a = {};
    a.x = data_of<T>(x);
    a.y = data_of<T>(y);
    a.log_sums = data_of<float>(log_sums);
    a.tokens = (int)x->shape[1];
    a.heads = (int)heads;
    a.x_pitch = x->pitch;
    a.y_pitch = y->pitch;
    a.factor = 1 / sqrtf((float)(x->shape[3] / 3 / heads));
    return a;
}

/* The same for the gradient; dy lies as y does. */
template <typename T>
Attention<T> attention_of_gradient(const AttentionGradient *gradient, const DeviceTensor *dx, void *means)
{
    Attention<T> a = attention_of<T>(gradient->x, gradient->heads, gradient->y, gradient->log_sums);
    a.dy = data_of<T>(gradient->dy);
    a.dx = data_of<T>(dx);
    a.means = static_cast<float *>(means);
    return a;
}

/* The rows of one head: its first token's, and their distance. */
template <typename T> struct HeadRows {
    const T *first;
    int64_t pitch;
};

/* Which rows a warp has. */
struct Spot16 {
    int sample, head, row; /* row: the first */
    int lane, group, quarter;
};

template <typename T> __device__ Spot16 spot_of_warp(const Attention<T> &a)
{
    const int head = (int)blockIdx.x / a.blocks, block = (int)blockIdx.x % a.blocks;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    return {head / a.heads, head % a.heads, (block * warps + warp) * own_rows, lane, lane / 4, lane % 4};
}

/* third: 0 for queries, 1 for keys, 2 for values. */
template <int Channels, typename T>
__device__ int64_t place_in_x(const Attention<T> &a, const Spot16 &at, int third)
{
    return (int64_t)at.sample * a.tokens * a.x_pitch + (third * a.heads + at.head) * Channels;
}

template <int Channels, typename T> __device__ int64_t place_in_y(const Attention<T> &a, const Spot16 &at)
{
    return (int64_t)at.sample * a.tokens * a.y_pitch + at.head * Channels;
}

/* The warp's rows as the left operand of products, for each 16 channels. */
template <int Channels> using Own = unsigned[Channels / 16][4];
/* Sums of 16 rows and eight columns each. */
template <int Columns> using Sums = float[Columns][4];

template <int Channels, typename T>
__device__ void read_own(const HeadRows<T> &rows, const Spot16 &at, int tokens, Own<Channels> &own)
{
#pragma unroll
    for (int step = 0; step < Channels / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = at.row + at.group + i % 2 * 8, c = step * 16 + at.quarter * 2 + i / 2 * 8;
            own[step][i] =
                row < tokens ? *reinterpret_cast<const unsigned *>(rows.first + row * rows.pitch + c) : 0;
        }
}

/* Writes factor * sums, to rows that are there. */
template <int Channels, typename T>
__device__ void write_own(const Sums<Channels / 8> &sums, const float (&factors)[2], const Spot16 &at,
                          int tokens, T *first, int64_t pitch)
{
#pragma unroll
    for (int column = 0; column < Channels / 8; column++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row + at.group + half * 8;
            const float two[2] = {sums[column][half * 2] * factors[half],
                                  sums[column][half * 2 + 1] * factors[half]};
            if (row < tokens)
                *reinterpret_cast<unsigned *>(first + row * pitch + column * 8 + at.quarter * 2) =
                    pack<T, 2>(two).words[0];
        }
}

/* Returns the sum of a row over the four lanes that hold it, in all of them. */
__device__ inline float row_sum(float value)
{
    value += __shfl_xor_sync(0xFFFFFFFFU, value, 1);
    return value + __shfl_xor_sync(0xFFFFFFFFU, value, 2);
}

__device__ inline float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}

/* Makes 16 of the weights for the warp's rows, from step * 16 on, the left operand of products. */
template <typename T, int Columns>
__device__ void pack_weights(const Sums<Columns> &weights, int step, unsigned (&operand)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float two[2] = {weights[step * 2 + i / 2][i % 2 * 2], weights[step * 2 + i / 2][i % 2 * 2 + 1]};
        operand[i] = pack<T, 2>(two).words[0];
    }
}

/* ---- softmax ---- */

/* Returns 2^x; 0 for what is below 2^-126. */
__device__ inline float power_of_two(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* What a lane knows of its two rows: the greatest score so far, in base two, and the sum of the exponentials
 * of its own scores above that. */
struct Softmax {
    float greatest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/* Makes of the products with a tile's keys their exponentials, and scales what was summed before. factor: of
 * the products, to base two, above 0. masked: only the first `keys` are there. */
template <bool masked, int Keys, int Columns>
__device__ void add_scores(Sums<Keys> &scores, float factor, int keys, const Spot16 &at, Softmax &softmax,
                           Sums<Columns> &sums)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float greatest = -INFINITY;
#pragma unroll
        for (int column = 0; column < Keys; column++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &score = scores[column][half * 2 + i];
                if (masked && column * 8 + at.quarter * 2 + i >= keys)
                    score = -INFINITY;
                greatest = fmaxf(greatest, score);
            }
        greatest = fmaxf(softmax.greatest[half], row_max(greatest) * factor);
        const float shrink = power_of_two(softmax.greatest[half] - greatest);
        softmax.greatest[half] = greatest;
        softmax.sum[half] *= shrink;
#pragma unroll
        for (int column = 0; column < Keys; column++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &score = scores[column][half * 2 + i];
                score = power_of_two(fmaf(score, factor, -greatest));
                softmax.sum[half] += score;
            }
#pragma unroll
        for (int column = 0; column < Columns; column++) {
            sums[column][half * 2] *= shrink;
            sums[column][half * 2 + 1] *= shrink;
        }
    }
}

/* Sets shares to what the warp's two sums of exponentials are divided by, and writes their logarithms. */
template <typename T>
__device__ void finish_softmax(const Attention<T> &a, const Spot16 &at, const Softmax &softmax,
                               float (&shares)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = row_sum(softmax.sum[half]);
        const int row = at.row + at.group + half * 8;
        shares[half] = 1 / sum;
        if (row < a.tokens && at.quarter == 0)
            a.log_sums[(int64_t)(at.sample * a.heads + at.head) * a.tokens + row] =
                (softmax.greatest[half] + log2f(sum)) * from_base_two;
    }
}

/* ---- gradient ---- */

/* Returns the sum of the products of what two registers hold. */
template <typename T> __device__ float product_of_two(unsigned left, unsigned right)
{
    Raw<T, 2> a, b;
    float x[2], y[2];
    a.words[0] = left;
    b.words[0] = right;
    unpack(a, x);
    unpack(b, y);
    return fmaf(x[0], y[0], x[1] * y[1]);
}

/* Sets means of the warp's queries to the sums of dy * y. */
template <int Channels, typename T>
__device__ void make_means(const Attention<T> &a, const Spot16 &at, const Own<Channels> &of_dy,
                           float (&means)[2])
{
    Own<Channels> of_y;
    read_own<Channels>(HeadRows<T>{a.y + place_in_y<Channels>(a, at), a.y_pitch}, at, a.tokens, of_y);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = 0;
#pragma unroll
        for (int step = 0; step < Channels / 16; step++)
            sum += product_of_two<T>(of_dy[step][half], of_y[step][half]) +
                   product_of_two<T>(of_dy[step][half + 2], of_y[step][half + 2]);
        means[half] = row_sum(sum);
    }
}

/* Sets what is known of the warp's queries: their log_sums, in base two, infinity where there is no query,
 * and their means, which a.means gets too. */
template <int Channels, typename T>
__device__ void query_numbers(const Attention<T> &a, const Spot16 &at, const Own<Channels> &of_dy,
                              float (&log_sums)[2], float (&means)[2])
{
    const int64_t numbers = (int64_t)(at.sample * a.heads + at.head) * a.tokens;
    make_means<Channels>(a, at, of_dy, means);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = at.row + at.group + half * 8;
        log_sums[half] = row < a.tokens ? a.log_sums[numbers + row] * to_base_two : INFINITY;
        if (row < a.tokens && at.quarter == 0)
            a.means[numbers + row] = means[half];
    }
}

} // namespace fshard

#endif
