/* attention_warpgroup_whole.cuh - the gradient of attention where all rows of a head lie in shared memory: up
 * to 256 of 64 channels. For attention_warpgroup.cu alone. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WARPGROUP_WHOLE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WARPGROUP_WHOLE_CUH

#include "trainer/backend/cuda/kernels/attention_warpgroup.cuh"

namespace fshard
{

/* All rows of a head, and the slopes of the products of its keys with 64 queries, for two turns. */
template <typename T, int Groups> struct Whole {
    Rows<T> queries[Groups], keys[Groups], values[Groups], gradients[Groups];
    Rows<T> slopes[2][Groups]; /* of a group's keys: [64 keys][64 queries] */
    float log_sums[Groups * group_rows], means[Groups * group_rows];
    CopyBarrier full;
};

/* Brings the rows; one thread calls it. */
template <typename T, int Groups>
__device__ void bring_head(const Attention<T> &a, const Maps &maps, const Spot16 &at, Whole<T, Groups> &head)
{
    const int x = at.head * channels, third = a.heads * channels;
    barrier_expect(&head.full, 4 * sizeof head.queries);
    for (int g = 0; g < Groups; g++) {
        const int row = g * group_rows;
        copy_box(&head.queries[g], &maps.x, x, row, at.sample, &head.full);
        copy_box(&head.keys[g], &maps.x, third + x, row, at.sample, &head.full);
        copy_box(&head.values[g], &maps.x, 2 * third + x, row, at.sample, &head.full);
        copy_box(&head.gradients[g], &maps.dy, x, row, at.sample, &head.full);
    }
}

/* Waits for the rows and sets the numbers of all queries: log_sums in base two. Those of queries that are not
 * there are zeros. Two threads have a row. */
template <typename T, int Groups>
__device__ void make_numbers(const Attention<T> &a, const Spot16 &at, Whole<T, Groups> &head)
{
    constexpr int vectors = channels / 8 / 2;
    const int row = (int)threadIdx.x / 2, part = (int)threadIdx.x % 2 * vectors;
    const bool is_there = row < a.tokens;
    const T *y = a.y + place_in_y<channels>(a, at) + row * a.y_pitch;
    Raw<T, 8> of_y[vectors];
    float sum = 0;
#pragma unroll
    for (int v = 0; v < vectors && is_there; v++)
        of_y[v] = *reinterpret_cast<const Raw<T, 8> *>(y + (part + v) * 8);
    const float log_sum =
        is_there ? a.log_sums[(int64_t)(at.sample * a.heads + at.head) * a.tokens + row] * to_base_two : 0;
    barrier_wait(&head.full, 0);
#pragma unroll
    for (int v = 0; v < vectors && is_there; v++) {
        float left[8], right[8];
        unpack(of_y[v], left);
        unpack(*reinterpret_cast<const Raw<T, 8> *>(
                   vector_of(head.gradients[row / group_rows].values, row % group_rows, part + v)),
               right);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(left[i], right[i], sum);
    }
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
    if (part == 0) {
        head.log_sums[row] = log_sum;
        head.means[row] = sum;
    }
}

/* What a group knows of its keys. */
struct OfKeys {
    Sums<channel_columns> keys = {}, values = {};
};

/* Meets Columns * 8 queries from first on: adds to the gradients of the group's keys and values, and leaves
 * the slopes. */
template <int Columns, typename T, int Groups>
__device__ void meet_queries(const Attention<T> &a, const Spot16 &at, int first, Whole<T, Groups> &head,
                             OfKeys &of)
{
    const int group = at.row / group_rows, tile = first / group_rows, inside = first % group_rows;
    const T *queries = head.queries[tile].values + inside * channels,
            *gradients = head.gradients[tile].values + inside * channels;
    const float factor = a.factor * to_base_two;
    Sums<Columns> shares, slopes;
    unsigned weights[Columns / 2][4], slopes_operand[Columns / 2][4];
    products_begin();
    begin_products(head.keys[group].values, queries, shares);
    begin_products(head.values[group].values, gradients, slopes);
    products_wait<0>();
    products_of(shares);
    products_of(slopes);
#pragma unroll
    for (int column = 0; column < Columns; column++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = first + column * 8 + at.quarter * 2 + i % 2;
            const bool is_there = at.row + at.group + i / 2 * 8 < a.tokens;
            float &share = shares[column][i];
            share = is_there ? power_of_two(fmaf(share, factor, -head.log_sums[query])) : 0.0F;
            slopes[column][i] = share * (slopes[column][i] - head.means[query]);
        }
    as_operand<T>(shares, weights);
    as_operand<T>(slopes, slopes_operand);
#pragma unroll
    for (int step = 0; step < Columns / 2; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = at.row % group_rows + at.group + i % 2 * 8;
            const int column = inside / 8 + step * 2 + i / 2;
            T *place = vector_of(head.slopes[tile % 2][group].values, row, column) + at.quarter * 2;
            *reinterpret_cast<unsigned *>(place) = slopes_operand[step][i];
        }
    products_of(of.values);
    products_of(of.keys);
    products_begin();
    begin_weighted(weights, gradients, of.values);
    begin_weighted(slopes_operand, queries, of.keys);
    products_wait<0>();
    products_of(of.values);
    products_of(of.keys);
}

/* Computes the gradients of a tile of queries from the slopes of all keys. */
template <typename T, int Groups>
__device__ void of_queries(int tile, const Whole<T, Groups> &head, Sums<channel_columns> &sums)
{
    products_begin();
#pragma unroll
    for (int g = 0; g < Groups; g++) {
        const uint64_t slopes = rows_descriptor(&head.slopes[tile % 2][g]),
                       keys = rows_descriptor(&head.keys[g]);
#pragma unroll
        for (int step = 0; step < group_rows / 16; step++)
            multiply_shared<1, 1>(T{}, sums, slopes + step * rows_16, keys + step * rows_16, g + step > 0);
    }
    products_end();
    products_wait<0>();
    products_of(sums);
}

/* Computes dx of a head, of which each group has 64 keys: five products where attend_backward makes seven,
 * since the slopes of all keys meet in shared memory, where the groups in turn make the gradients of 64
 * queries of them. */
template <typename T, int Groups>
__global__ void __launch_bounds__(Groups *group_threads, Groups > 2 ? 1 : 4 - Groups)
    attend_whole_backward(Attention<T> a, const __grid_constant__ Maps maps)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Whole<T, Groups> &head = *reinterpret_cast<Whole<T, Groups> *>(memory);
    const Spot16 at = spot_of_warp(a);
    const int group = (int)threadIdx.x / group_threads;
    const int x = at.head * channels, third = a.heads * channels;
    const float factors[2] = {a.factor, a.factor}, ones[2] = {1, 1};
    OfKeys of;
    if (threadIdx.x == 0) {
        barrier_init(&head.full, 1);
        barriers_to_copies();
        bring_head(a, maps, at, head);
    }
    __syncthreads();
    make_numbers(a, at, head);
    __syncthreads();
#pragma unroll 1
    for (int tile = 0; tile < Groups; tile++) {
        const int first = tile * group_rows, rows = a.tokens - first;
        if (rows > 16)
            meet_queries<4>(a, at, first, head, of);
        else
            meet_queries<2>(a, at, first, head, of);
        if (rows > 48)
            meet_queries<4>(a, at, first + 32, head, of);
        else if (rows > 32)
            meet_queries<2>(a, at, first + 32, head, of);
        shared_memory_written();
        __syncthreads(); /* slopes are there; the tile's queries are not read any more */
        if (group == tile) {
            Sums<channel_columns> sums;
            of_queries(tile, head, sums);
            put_rows(sums, factors, at, head.queries[tile]);
            shared_memory_written();
            group_meet(group);
            if (is_first_of_group())
                write_box(&maps.dx, x, first, at.sample, &head.queries[tile]);
        }
    }
    put_rows(of.keys, factors, at, head.gradients[group]);
    put_rows(of.values, ones, at, head.values[group]);
    shared_memory_written();
    group_meet(group);
    if (is_first_of_group()) {
        write_rows(&maps.dx, third + x, at, head.gradients[group]);
        write_rows(&maps.dx, 2 * third + x, at, head.values[group]);
        written_boxes_wait();
    }
}

} // namespace fshard

#endif
