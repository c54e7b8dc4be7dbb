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
#include "trainer/backend/cuda/kernels/attention_rows.cuh"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"

namespace fshard
{

constexpr int tile_rows = 32; /* of the other side */
constexpr int tile_columns = tile_rows / 8;
constexpr int warps_most = 8;

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
        pack_weights<T>(weights, step, a);
        add_weighted_rows<Channels>(a, matrix + step * 16 * Tile<T, Channels>::pitch, at, sums);
    }
}

/* ---- forward ---- */

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
        add_scores<true>(scores, a.factor * to_base_two, rows, at, softmax, sums);
        add_weighted<Channels>(scores, tile.second, rows, at, sums);
        __syncthreads(); /* the tile is free for the one after the next */
    }
    float shares[2];
    finish_softmax(a, at, softmax, shares);
    write_own<Channels>(sums, shares, at, a.tokens, a.y + place_in_y<Channels>(a, at), a.y_pitch);
}

/* ---- backward ---- */

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
    if (!of_keys)
        query_numbers<Channels>(a, at, second, log_sums, means);
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
                const float share = c < rows ? power_of_two(fmaf(shares[column][i], factor, -log_sum)) : 0.0F;
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
