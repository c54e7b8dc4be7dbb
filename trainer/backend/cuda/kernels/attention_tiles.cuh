/* attention_tiles.cuh - attention on the matrix units, for heads of 32 and 64 channels in 16 bits. For
 * attention_tiles.cu alone.
 *
 * A warp owns 16 rows of a head, in registers: queries, or, for the gradients of keys and values, keys. It
 * meets all rows of the other side tile by tile, which the block brings to shared memory, the next tile while
 * it works on this one. So scores are never in memory: the backward pass makes them again, from the sums
 * that the forward pass leaves (Dao 2023, "FlashAttention-2"), once for the gradients of queries and once for
 * those of keys and values. That is seven products where one pass would make five, and no sum of blocks:
 * there are no atomics, and the same input gives the same bits.
 *
 * Fragments are those of matrix_units.cuh: of 16 x 8 sums a lane holds rows group and group + 8. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_TILES_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_TILES_CUH

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{

constexpr int own_rows = 16;  /* of a warp */
constexpr int tile_rows = 32; /* of the other side */
constexpr int tile_columns = tile_rows / 8;
constexpr int warps_most = 8;
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

/* ---- tiles ---- */

/* One tile of two matrices of the other side, and two numbers for each of its rows. Rows are 16 bytes longer
 * than they need be, so that the same channels of eight rows lie in different banks. */
template <typename T, int Channels> struct Tile {
    static constexpr int pitch = Channels + 8;
    alignas(16) T first[tile_rows * pitch], second[tile_rows * pitch];
    float log_sums[tile_rows], means[tile_rows];
};

/* Begins to bring `count` rows to shared memory, those beyond the last as zeros. */
template <int Channels, typename T>
__device__ void fetch_rows(const HeadRows<T> &rows, int row, int tokens, T *to, int count = tile_rows)
{
    constexpr int vectors = Channels / 8;
    for (int i = (int)threadIdx.x; i < count * vectors; i += (int)blockDim.x) {
        const int r = i / vectors, c = i % vectors * 8;
        copy_16(to + r * Tile<T, Channels>::pitch + c,
                row + r < tokens ? rows.first + (row + r) * rows.pitch + c : nullptr);
    }
}

/* Adds to sums the products of the warp's rows with the first `rows` of Columns * 8 rows of a matrix in
 * shared memory, which lie as those of a tile. */
template <int Channels, typename T, int Columns>
__device__ void add_products(const Own<Channels> &own, const T *matrix, int rows, const Spot16 &at,
                             float (&sums)[Columns][4])
{
    const int part = at.lane / 8, r = at.lane % 8;
#pragma unroll
    for (int column = 0; column < Columns; column += 2) {
        if (column * 8 >= rows)
            continue;
#pragma unroll
        for (int step = 0; step < Channels / 16; step++) {
            unsigned b[4];
            load_matrices(b, matrix + ((column + part / 2) * 8 + r) * Tile<T, Channels>::pitch + step * 16 +
                                 part % 2 * 8);
            multiply_add(T{}, sums[column], own[step], make_uint2(b[0], b[1]));
            multiply_add(T{}, sums[column + 1], own[step], make_uint2(b[2], b[3]));
        }
    }
}

/* Adds to sums 16 rows of a matrix in shared memory, each times its weight for the warp's rows: weights as
 * the left operand of products. */
template <int Channels, typename T>
__device__ void add_weighted_rows(const unsigned (&weights)[4], const T *matrix, const Spot16 &at,
                                  Sums<Channels / 8> &sums)
{
    const int part = at.lane / 8, r = at.lane % 8;
#pragma unroll
    for (int column = 0; column < Channels / 8; column += 2) {
        unsigned b[4];
        load_transposed(b, matrix + (part % 2 * 8 + r) * Tile<T, Channels>::pitch + (column + part / 2) * 8);
        multiply_add(T{}, sums[column], weights, make_uint2(b[0], b[1]));
        multiply_add(T{}, sums[column + 1], weights, make_uint2(b[2], b[3]));
    }
}

/* Adds to sums the first `rows` of Columns * 8 rows, each times its weight. */
template <int Channels, typename T, int Columns>
__device__ void add_weighted(const float (&weights)[Columns][4], const T *matrix, int rows, const Spot16 &at,
                             Sums<Channels / 8> &sums)
{
#pragma unroll
    for (int step = 0; step < Columns / 2; step++) {
        if (step * 16 >= rows)
            continue;
        unsigned a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float two[2] = {weights[step * 2 + i / 2][i % 2 * 2],
                                  weights[step * 2 + i / 2][i % 2 * 2 + 1]};
            a[i] = pack<T, 2>(two).words[0];
        }
        add_weighted_rows<Channels>(a, matrix + step * 16 * Tile<T, Channels>::pitch, at, sums);
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

/* ---- forward ---- */

/* What a lane knows of its two rows: the greatest score so far, in base two, and the sum of the exponentials
 * of its own scores above that. */
struct Softmax {
    float greatest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/* Makes of the products with a tile's keys their exponentials, and scales what was summed before. factor: of
 * the products, to base two. */
template <int Columns>
__device__ void add_scores(Sums<tile_columns> &scores, float factor, int keys, const Spot16 &at,
                           Softmax &softmax, Sums<Columns> &sums)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float greatest = softmax.greatest[half];
#pragma unroll
        for (int column = 0; column < tile_columns; column++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &score = scores[column][half * 2 + i];
                score = column * 8 + at.quarter * 2 + i < keys ? score * factor : -INFINITY;
                greatest = fmaxf(greatest, score);
            }
        greatest = row_max(greatest);
        const float shrink = exp2f(softmax.greatest[half] - greatest);
        softmax.greatest[half] = greatest;
        softmax.sum[half] *= shrink;
#pragma unroll
        for (int column = 0; column < tile_columns; column++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &score = scores[column][half * 2 + i];
                score = exp2f(score - greatest);
                softmax.sum[half] += score;
            }
#pragma unroll
        for (int column = 0; column < Columns; column++) {
            sums[column][half * 2] *= shrink;
            sums[column][half * 2 + 1] *= shrink;
        }
    }
}

template <typename T, int Channels>
__global__ void __launch_bounds__(warps_most * 32) attend_tiles(Attention<T> a)
{
    __shared__ Tile<T, Channels> tiles[2];
    const Spot16 at = spot_of_warp(a);
    const HeadRows<T> queries = {a.x + place_in_x<Channels>(a, at, 0), a.x_pitch},
                      keys = {a.x + place_in_x<Channels>(a, at, 1), a.x_pitch},
                      values = {a.x + place_in_x<Channels>(a, at, 2), a.x_pitch};
    Own<Channels> own;
    Sums<Channels / 8> sums = {};
    Softmax softmax;
    const auto fetch = [&](int row) {
        Tile<T, Channels> &tile = tiles[row / tile_rows % 2];
        if (row < a.tokens) {
            fetch_rows<Channels>(keys, row, a.tokens, tile.first);
            fetch_rows<Channels>(values, row, a.tokens, tile.second);
        }
        copies_close();
    };
    fetch(0);
    read_own<Channels>(queries, at, a.tokens, own);
    for (int row = 0; row < a.tokens; row += tile_rows) {
        const Tile<T, Channels> &tile = tiles[row / tile_rows % 2];
        const int rows = a.tokens - row < tile_rows ? a.tokens - row : tile_rows;
        fetch(row + tile_rows);
        copies_wait<1>();
        __syncthreads();
        Sums<tile_columns> scores = {};
        add_products<Channels>(own, tile.first, rows, at, scores);
        add_scores(scores, a.factor * to_base_two, rows, at, softmax, sums);
        add_weighted<Channels>(scores, tile.second, rows, at, sums);
        __syncthreads(); /* the tile is free for the one after the next */
    }
    float shares[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = row_sum(softmax.sum[half]);
        const int row = at.row + at.group + half * 8;
        shares[half] = 1 / sum;
        if (row < a.tokens && at.quarter == 0)
            a.log_sums[(int64_t)(at.sample * a.heads + at.head) * a.tokens + row] =
                (softmax.greatest[half] + log2f(sum)) * from_base_two;
    }
    write_own<Channels>(sums, shares, at, a.tokens, a.y + place_in_y<Channels>(a, at), a.y_pitch);
}

/* ---- backward ---- */

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

/* Computes the gradients of keys and values, of_keys, from a.means, or makes these and the gradients of
 * queries. */
template <typename T, int Channels, bool of_keys>
__global__ void __launch_bounds__(warps_most * 32) attend_tiles_backward(Attention<T> a)
{
    __shared__ Tile<T, Channels> tiles[2];
    const Spot16 at = spot_of_warp(a);
    const HeadRows<T> queries = {a.x + place_in_x<Channels>(a, at, 0), a.x_pitch},
                      keys = {a.x + place_in_x<Channels>(a, at, 1), a.x_pitch},
                      values = {a.x + place_in_x<Channels>(a, at, 2), a.x_pitch},
                      gradients = {a.dy + place_in_y<Channels>(a, at), a.y_pitch};
    const int64_t numbers = (int64_t)(at.sample * a.heads + at.head) * a.tokens;
    const float factor = a.factor * to_base_two;
    Own<Channels> first, second; /* queries and dy; or keys and values */
    Sums<Channels / 8> of_first = {}, of_second = {};
    float log_sums[2] = {}, means[2] = {};
    const auto fetch = [&](int row) {
        Tile<T, Channels> &tile = tiles[row / tile_rows % 2];
        if (row < a.tokens) {
            fetch_rows<Channels>(of_keys ? queries : keys, row, a.tokens, tile.first);
            fetch_rows<Channels>(of_keys ? gradients : values, row, a.tokens, tile.second);
            for (int i = (int)threadIdx.x; of_keys && i < tile_rows; i += (int)blockDim.x) {
                const bool is_there = row + i < a.tokens;
                tile.log_sums[i] = is_there ? a.log_sums[numbers + row + i] * to_base_two : INFINITY;
                tile.means[i] = is_there ? a.means[numbers + row + i] : 0;
            }
        }
        copies_close();
    };
    fetch(0);
    read_own<Channels>(of_keys ? keys : queries, at, a.tokens, first);
    read_own<Channels>(of_keys ? values : gradients, at, a.tokens, second);
    if (!of_keys) {
        make_means<Channels>(a, at, second, means);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row + at.group + half * 8;
            log_sums[half] = row < a.tokens ? a.log_sums[numbers + row] * to_base_two : INFINITY;
            if (row < a.tokens && at.quarter == 0)
                a.means[numbers + row] = means[half];
        }
    }
    for (int row = 0; row < a.tokens; row += tile_rows) {
        const Tile<T, Channels> &tile = tiles[row / tile_rows % 2];
        const int rows = a.tokens - row < tile_rows ? a.tokens - row : tile_rows;
        fetch(row + tile_rows);
        copies_wait<1>();
        __syncthreads();
        Sums<tile_columns> shares = {}, slopes = {};
        add_products<Channels>(first, tile.first, rows, at, shares);
        add_products<Channels>(second, tile.second, rows, at, slopes);
#pragma unroll
        for (int column = 0; column < tile_columns; column++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = column * 8 + at.quarter * 2 + i % 2;
                const float log_sum = of_keys ? tile.log_sums[c] : log_sums[i / 2];
                const float mean = of_keys ? tile.means[c] : means[i / 2];
                const float share = c < rows ? exp2f(fmaf(shares[column][i], factor, -log_sum)) : 0.0F;
                shares[column][i] = share;
                slopes[column][i] = share * (slopes[column][i] - mean);
            }
        if (of_keys)
            add_weighted<Channels>(shares, tile.second, rows, at, of_second);
        add_weighted<Channels>(slopes, tile.first, rows, at, of_first);
        __syncthreads(); /* the tile is free for the one after the next */
    }
    const float factors[2] = {a.factor, a.factor}, ones[2] = {1, 1};
    write_own<Channels>(of_first, factors, at, a.tokens, a.dx + place_in_x<Channels>(a, at, of_keys ? 1 : 0),
                        a.x_pitch);
    if (of_keys)
        write_own<Channels>(of_second, ones, at, a.tokens, a.dx + place_in_x<Channels>(a, at, 2), a.x_pitch);
}

} // namespace fshard

#endif
