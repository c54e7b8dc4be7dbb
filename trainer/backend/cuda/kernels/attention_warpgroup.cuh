/* attention_warpgroup.cuh - attention on Hopper's matrix units, for heads of 64 channels in 16 bits. For
 * attention_warpgroup.cu alone.
 *
 * What attention_tiles.cuh says of order holds here: a warp group owns 64 rows of a head and meets all rows
 * of the other side, up to 64 at a time; scores are never in memory, sums of blocks neither; the same input
 * gives the same bits. The copy engine brings rows and takes results; of the last tile the products are only
 * as wide as it is, in steps of 16 rows. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WARPGROUP_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WARPGROUP_CUH

#include "trainer/backend/cuda/kernels/attention_rows.cuh"
#include "trainer/backend/cuda/kernels/tensor_copy.cuh"
#include "trainer/backend/cuda/kernels/warpgroup.cuh"

namespace fshard
{

constexpr int channels = 64, channel_columns = channels / 8;
constexpr int tile_rows = 64;
constexpr int forward_groups = 2;
/* Of the pipe: one tile is worked on, the others are on their way. */
constexpr int forward_stages = 3, backward_stages = 2;
/* Whose numbers fit beside the tiles; from some 3,300 on two blocks are on a multiprocessor, not three. */
constexpr int tokens_most = 4096;

/* 64 rows of a matrix, and of two. */
template <typename T> struct alignas(1024) Rows {
    T values[tile_rows * channels];
};
template <typename T> struct Pair {
    Rows<T> first, second;
};

/* The tensors as the copy engine sees them: x and dx [N, T, 3 C], y and dy [N, T, C]. */
struct Maps {
    CUtensorMap x, y, dy, dx;
};

/* Tiles of the other side on their way through shared memory. */
template <typename T, int Stages> struct Pipe {
    Pair<T> tiles[Stages];
    CopyBarrier full[Stages], empty[Stages], own; /* own: of the rows of the own side */
};

/* ---- the pipe ---- */

/* Makes the barriers, for so many groups that take tiles; then all threads meet. */
template <typename T, int Stages> __device__ void open_pipe(Pipe<T, Stages> &pipe, int groups)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < Stages; s++) {
            barrier_init(&pipe.full[s], 1);
            barrier_init(&pipe.empty[s], (unsigned)groups * group_threads / 32);
        }
        barrier_init(&pipe.own, 1);
        barriers_to_copies();
    }
    __syncthreads();
}

/* Calls step(row, pair, whole, columns) for each tile of so many tokens, once the group's own rows are there.
 * columns: how many eights of rows are computed; whole: all of them are there. One thread has fetch(row,
 * pair, barrier) begin to bring the rows from `row` on, both matrices. */
template <typename T, int Stages, typename Fetch, typename Do>
__device__ void for_tiles(Pipe<T, Stages> &pipe, int tokens, Fetch fetch, Do step)
{
    const int tiles = (tokens + tile_rows - 1) / tile_rows;
    const auto begin = [&](int tile) {
        const int s = tile % Stages, use = tile / Stages;
        if (threadIdx.x > 0 || tile >= tiles)
            return;
        if (use > 0)
            barrier_wait(&pipe.empty[s], (unsigned)(use - 1) % 2);
        barrier_expect(&pipe.full[s], sizeof(Pair<T>));
        fetch(tile * tile_rows, pipe.tiles[s], &pipe.full[s]);
    };
    const auto take = [&](int tile, auto whole, auto columns) {
        const int s = tile % Stages;
        begin(tile + Stages - 1);
        barrier_wait(&pipe.own, 0);
        barrier_wait(&pipe.full[s], (unsigned)(tile / Stages) % 2);
        __syncwarp(); /* lanes may leave a wait one by one; products are the whole warp's */
        step(tile * tile_rows, pipe.tiles[s], whole, columns);
        if (threadIdx.x % 32 == 0)
            barrier_arrive(&pipe.empty[s]);
    };
    for (int tile = 0; tile < Stages - 1; tile++)
        begin(tile);
    int tile = 0;
    for (; (tile + 1) * tile_rows <= tokens; tile++)
        take(tile, std::true_type{}, std::integral_constant<int, 8>{});
    const int rest = tokens - tile * tile_rows;
    if (rest > 48)
        take(tile, std::false_type{}, std::integral_constant<int, 8>{});
    else if (rest > 32)
        take(tile, std::false_type{}, std::integral_constant<int, 6>{});
    else if (rest > 16)
        take(tile, std::false_type{}, std::integral_constant<int, 4>{});
    else if (rest > 0)
        take(tile, std::false_type{}, std::integral_constant<int, 2>{});
}

/* ---- products ---- */

/* Begins to compute the products of the group's rows with a tile's. */
template <typename T, int Columns>
__device__ void begin_products(const T *own, const T *tile, Sums<Columns> &sums)
{
    const uint64_t left = rows_descriptor(own), right = rows_descriptor(tile);
#pragma unroll
    for (int step = 0; step < channels / 16; step++)
        multiply_shared<0, 0>(T{}, sums, left + step * columns_16, right + step * columns_16, step > 0);
    products_end();
}

/* Begins to add a tile's rows to sums, each times its weight for the group's rows. */
template <int Rows16, typename T>
__device__ void begin_weighted(const unsigned (&weights)[Rows16][4], const T *tile,
                               Sums<channel_columns> &sums)
{
    const uint64_t rows = rows_descriptor(tile);
#pragma unroll
    for (int step = 0; step < Rows16; step++)
        multiply_own<1>(T{}, sums, weights[step], rows + step * rows_16, 1);
    products_end();
}

/* Makes of weights the left operand of products. */
template <typename T, int Columns>
__device__ void as_operand(const Sums<Columns> &weights, unsigned (&operand)[Columns / 2][4])
{
#pragma unroll
    for (int step = 0; step < Columns / 2; step++)
        pack_weights<T>(weights, step, operand[step]);
}

/* ---- results ---- */

/* Writes factor * sums to shared memory, as the copy engine takes them. */
template <typename T>
__device__ void put_rows(const Sums<channel_columns> &sums, const float (&factors)[2], const Spot16 &at,
                         Rows<T> &to)
{
#pragma unroll
    for (int column = 0; column < channel_columns; column++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row % group_rows + at.group + half * 8;
            const float two[2] = {sums[column][half * 2] * factors[half],
                                  sums[column][half * 2 + 1] * factors[half]};
            *reinterpret_cast<unsigned *>(vector_of(to.values, row, column) + at.quarter * 2) =
                pack<T, 2>(two).words[0];
        }
}

/* Has the group's rows written to a tensor, from channel x on, when all of them are in shared memory. */
template <typename T>
__device__ void write_rows(const CUtensorMap *map, int x, const Spot16 &at, const Rows<T> &rows)
{
    write_box(map, x, at.row / group_rows * group_rows, at.sample, &rows);
}

/* Returns whether this thread is the first of its group. */
__device__ inline bool is_first_of_group()
{
    return threadIdx.x % group_threads == 0;
}

/* ---- forward ---- */

template <typename T> struct Forward {
    Pipe<T, forward_stages> pipe;
    Rows<T> own[forward_groups]; /* queries, then results */
};

template <typename T>
__global__ void __launch_bounds__(forward_groups *group_threads, 4 / forward_groups)
    attend(Attention<T> a, const __grid_constant__ Maps maps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Forward<T> &shared = *reinterpret_cast<Forward<T> *>(memory);
    const Spot16 at = spot_of_warp(a);
    const int group = (int)threadIdx.x / group_threads, first_row = at.row / group_rows * group_rows;
    const int rows_left = a.tokens - (first_row - group * group_rows); /* from the block's first on */
    const int groups = rows_left > (forward_groups - 1) * group_rows
                           ? forward_groups
                           : (rows_left + group_rows - 1) / group_rows;
    const int x = at.head * channels, third = a.heads * channels;
    const float factor = a.factor * to_base_two;
    open_pipe(shared.pipe, groups);
    if (group >= groups)
        return;
    if (threadIdx.x == 0) {
        barrier_expect(&shared.pipe.own, (unsigned)groups * sizeof(Rows<T>));
        for (int g = 0; g < groups; g++)
            copy_box(&shared.own[g], &maps.x, x, first_row + g * group_rows, at.sample, &shared.pipe.own);
    }
    Sums<channel_columns> sums = {};
    Softmax softmax;
    const auto fetch = [&](int row, Pair<T> &pair, CopyBarrier *barrier) {
        copy_box(&pair.first, &maps.x, third + x, row, at.sample, barrier);
        copy_box(&pair.second, &maps.x, 2 * third + x, row, at.sample, barrier);
    };
    for_tiles(shared.pipe, a.tokens, fetch, [&](int row, const Pair<T> &pair, auto whole, auto columns) {
        Sums<columns.value> scores;
        unsigned weights[columns.value / 2][4];
        products_begin();
        begin_products(shared.own[group].values, pair.first.values, scores);
        products_wait<0>();
        products_of(scores);
        add_scores<!whole.value>(scores, factor, a.tokens - row, at, softmax, sums);
        as_operand<T>(scores, weights);
        products_of(sums);
        products_begin();
        begin_weighted(weights, pair.second.values, sums);
        products_wait<0>();
        products_of(sums);
    });
    float shares[2];
    finish_softmax(a, at, softmax, shares);
    group_meet(group); /* none of the group's warps reads queries any more */
    put_rows(sums, shares, at, shared.own[group]);
    shared_memory_written();
    group_meet(group);
    if (is_first_of_group()) {
        write_rows(&maps.y, x, at, shared.own[group]);
        written_boxes_wait();
    }
}

/* ---- backward ---- */

template <typename T> struct Backward {
    Pipe<T, backward_stages> pipe;
    Pair<T> own; /* queries and dy, or keys and values; then results */
};

/* Brings the numbers of all queries, up to a whole tile of them, to shared memory: log_sums in base two.
 * Those of queries that are not there are zeros. */
template <typename T>
__device__ void bring_numbers(const Attention<T> &a, int64_t numbers, int rows, float *log_sums, float *means)
{
    for (int t = (int)threadIdx.x; t < rows; t += (int)blockDim.x) {
        log_sums[t] = t < a.tokens ? a.log_sums[numbers + t] * to_base_two : 0;
        means[t] = t < a.tokens ? a.means[numbers + t] : 0;
    }
}

/* Computes the gradients of keys and values, of_keys, from a.means, or makes these and the gradients of
 * queries. A query that is not there is zeros, as are its numbers, and adds nothing to any gradient. Shared
 * memory: Backward, then, of_keys, two numbers for each row of the tiles. */
template <typename T, bool of_keys>
__global__ void __launch_bounds__(group_threads, 3)
    attend_backward(Attention<T> a, const __grid_constant__ Maps maps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Backward<T> &shared = *reinterpret_cast<Backward<T> *>(memory);
    const int padded = (a.tokens + tile_rows - 1) / tile_rows * tile_rows;
    float *all_log_sums = reinterpret_cast<float *>(&shared + 1), *all_means = all_log_sums + padded;
    const Spot16 at = spot_of_warp(a);
    const int64_t numbers = (int64_t)(at.sample * a.heads + at.head) * a.tokens;
    const int first_row = at.row / group_rows * group_rows;
    const int x = at.head * channels, third = a.heads * channels;
    const float factor = a.factor * to_base_two;
    Sums<channel_columns> of_first = {}, of_second = {};
    float log_sums[2] = {}, means[2] = {};
    const auto fetch_two = [&](bool keys, int row, Pair<T> &pair, CopyBarrier *barrier) {
        copy_box(&pair.first, &maps.x, keys ? third + x : x, row, at.sample, barrier);
        if (keys)
            copy_box(&pair.second, &maps.x, 2 * third + x, row, at.sample, barrier);
        else
            copy_box(&pair.second, &maps.dy, x, row, at.sample, barrier);
    };
    if (of_keys)
        bring_numbers(a, numbers, padded, all_log_sums, all_means);
    open_pipe(shared.pipe, 1);
    if (threadIdx.x == 0) {
        barrier_expect(&shared.pipe.own, sizeof shared.own);
        fetch_two(of_keys, first_row, shared.own, &shared.pipe.own);
    }
    if (!of_keys) {
        Own<channels> of_dy;
        read_own<channels>(HeadRows<T>{a.dy + place_in_y<channels>(a, at), a.y_pitch}, at, a.tokens, of_dy);
        query_numbers<channels>(a, at, of_dy, log_sums, means);
    }
    for_tiles(
        shared.pipe, a.tokens,
        [&](int row, Pair<T> &pair, CopyBarrier *barrier) { fetch_two(!of_keys, row, pair, barrier); },
        [&](int row, const Pair<T> &pair, auto whole, auto columns) {
            Sums<columns.value> shares, slopes;
            unsigned weights[columns.value / 2][4], slopes_operand[columns.value / 2][4];
            products_begin();
            begin_products(shared.own.first.values, pair.first.values, shares);
            begin_products(shared.own.second.values, pair.second.values, slopes);
            products_wait<0>();
            products_of(shares);
            products_of(slopes);
#pragma unroll
            for (int column = 0; column < columns.value; column++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int c = row + column * 8 + at.quarter * 2 + i % 2;
                    const float log_sum = of_keys ? all_log_sums[c] : log_sums[i / 2];
                    const float mean = of_keys ? all_means[c] : means[i / 2];
                    const bool is_there = of_keys || whole.value || c < a.tokens;
                    float &share = shares[column][i];
                    share = is_there ? power_of_two(fmaf(share, factor, -log_sum)) : 0.0F;
                    slopes[column][i] = share * (slopes[column][i] - mean);
                }
            as_operand<T>(slopes, slopes_operand);
            if (of_keys)
                as_operand<T>(shares, weights);
            products_of(of_first);
            products_of(of_second);
            products_begin();
            if (of_keys)
                begin_weighted(weights, pair.second.values, of_second);
            begin_weighted(slopes_operand, pair.first.values, of_first);
            products_wait<0>();
            products_of(of_first);
            if (of_keys)
                products_of(of_second);
        });
    const float factors[2] = {a.factor, a.factor}, ones[2] = {1, 1};
    group_meet(0); /* none of the group's warps reads its own rows any more */
    put_rows(of_first, factors, at, shared.own.first);
    if (of_keys)
        put_rows(of_second, ones, at, shared.own.second);
    shared_memory_written();
    group_meet(0);
    if (is_first_of_group()) {
        write_rows(&maps.dx, of_keys ? third + x : x, at, shared.own.first);
        if (of_keys)
            write_rows(&maps.dx, 2 * third + x, at, shared.own.second);
        written_boxes_wait();
    }
}

} // namespace fshard

#endif
