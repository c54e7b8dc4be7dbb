/* attention_whole.cuh - the gradient of attention where all rows of a head lie in shared memory: up to some
 * 240 of 64 channels. For attention_tiles.cu alone.
 *
 * A block has a head. Its warps own 16 keys each, make the shares and their gradients once, and leave these
 * in shared memory, where, as owners of 16 queries, they read them again for the gradient of the queries:
 * five products where attention_tiles.cuh makes seven, no sum of blocks, and one meeting of the warps
 * between. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WHOLE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ATTENTION_WHOLE_CUH

#include "trainer/backend/cuda/kernels/attention_tiles.cuh"

namespace fshard
{

constexpr int whole_warps_most = 14; /* two blocks of seven are then on a processor, by their registers */

/* How the shared memory is divided; rows are the tokens, up to a multiple of own_rows. */
template <typename T, int Channels> struct WholeHead {
    static constexpr int pitch = Tile<T, Channels>::pitch;
    T *queries, *keys, *gradients; /* [rows][pitch] */
    T *slopes;                     /* [rows] keys by [slope_pitch(rows)] queries */
    float *log_sums, *means;       /* [rows]; the first in base two */

    static __host__ __device__ int slope_pitch(int rows)
    {
        return rows + 8; /* an odd number of 16 bytes: eight rows lie in different banks */
    }
    static __host__ __device__ size_t bytes(int rows)
    {
        return (size_t)rows * ((size_t)(3 * pitch + slope_pitch(rows)) * sizeof(T) + 2 * sizeof(float));
    }
    __device__ WholeHead(void *memory, int rows)
        : queries(static_cast<T *>(memory)), keys(queries + rows * pitch), gradients(keys + rows * pitch),
          slopes(gradients + rows * pitch),
          log_sums(reinterpret_cast<float *>(slopes + rows * slope_pitch(rows))), means(log_sums + rows)
    {
    }
};

/* Computes the gradients of the warp's keys and values, and leaves the slopes of their products with all
 * queries in head.slopes. */
template <typename T, int Channels>
__device__ void whole_keys(const Attention<T> &a, const WholeHead<T, Channels> &head, const Spot16 &at,
                           int rows)
{
    constexpr int pitch = WholeHead<T, Channels>::pitch;
    const float factor = a.factor * to_base_two;
    Own<Channels> values;
    Sums<Channels / 8> of_keys = {}, of_values = {};
    read_own<Channels>(HeadRows<T>{a.x + place_in_x<Channels>(a, at, 2), a.x_pitch}, at, a.tokens, values);
    for (int row = 0; row < rows; row += 16) {
        Sums<2> shares = {}, slopes = {};
        Own<Channels> keys; /* read anew each time: registers are scarcer */
        read_own<Channels>(HeadRows<T>{head.keys, pitch}, at, rows, keys);
        add_products<Channels>(keys, head.queries + row * pitch, 16, at, shares);
        add_products<Channels>(values, head.gradients + row * pitch, 16, at, slopes);
#pragma unroll
        for (int column = 0; column < 2; column++) {
            const int query = row + column * 8 + at.quarter * 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is_key = at.row + at.group + i / 2 * 8 < a.tokens;
                const float share =
                    is_key ? power_of_two(fmaf(shares[column][i], factor, -head.log_sums[query + i % 2]))
                           : 0.0F;
                shares[column][i] = share;
                slopes[column][i] = share * (slopes[column][i] - head.means[query + i % 2]);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int key = at.row + at.group + half * 8;
                const float two[2] = {slopes[column][half * 2], slopes[column][half * 2 + 1]};
                *reinterpret_cast<unsigned *>(head.slopes + key * head.slope_pitch(rows) + query) =
                    pack<T, 2>(two).words[0];
            }
        }
        add_weighted<Channels>(shares, head.gradients + row * pitch, 16, at, of_values);
        add_weighted<Channels>(slopes, head.queries + row * pitch, 16, at, of_keys);
    }
    const float factors[2] = {a.factor, a.factor}, ones[2] = {1, 1};
    write_own<Channels>(of_keys, factors, at, a.tokens, a.dx + place_in_x<Channels>(a, at, 1), a.x_pitch);
    write_own<Channels>(of_values, ones, at, a.tokens, a.dx + place_in_x<Channels>(a, at, 2), a.x_pitch);
}

/* Computes the gradients of the warp's queries from head.slopes. */
template <typename T, int Channels>
__device__ void whole_queries(const Attention<T> &a, const WholeHead<T, Channels> &head, const Spot16 &at,
                              int rows)
{
    const int part = at.lane / 8, r = at.lane % 8;
    const float factors[2] = {a.factor, a.factor};
    Sums<Channels / 8> sums = {};
    for (int row = 0; row < rows; row += 16) {
        unsigned slopes[4];
        load_transposed(slopes, head.slopes + (row + part / 2 * 8 + r) * head.slope_pitch(rows) + at.row +
                                    part % 2 * 8);
        add_weighted_rows<Channels>(slopes, head.keys + row * WholeHead<T, Channels>::pitch, at, sums);
    }
    write_own<Channels>(sums, factors, at, a.tokens, a.dx + place_in_x<Channels>(a, at, 0), a.x_pitch);
}

/* Computes dx of a head. Shared memory: WholeHead::bytes of the rows. */
template <typename T, int Channels>
__global__ void __launch_bounds__(whole_warps_most * 32) attend_whole_backward(Attention<T> a, int rows)
{
    extern __shared__ uint4 memory[];
    const WholeHead<T, Channels> head(memory, rows);
    const int first_row = (int)threadIdx.x / 32 * own_rows, stride = (int)blockDim.x / 32 * own_rows;
    Spot16 at = spot_of_warp(a);
    const int64_t numbers = (int64_t)(at.sample * a.heads + at.head) * a.tokens;
    const HeadRows<T> gradients = {a.dy + place_in_y<Channels>(a, at), a.y_pitch};
    fetch_rows<Channels>(HeadRows<T>{a.x + place_in_x<Channels>(a, at, 0), a.x_pitch}, 0, a.tokens,
                         head.queries, rows);
    fetch_rows<Channels>(HeadRows<T>{a.x + place_in_x<Channels>(a, at, 1), a.x_pitch}, 0, a.tokens, head.keys,
                         rows);
    fetch_rows<Channels>(gradients, 0, a.tokens, head.gradients, rows);
    copies_close();
    for (at.row = first_row; at.row < rows; at.row += stride) {
        Own<Channels> of_dy;
        float means[2];
        read_own<Channels>(gradients, at, a.tokens, of_dy);
        make_means<Channels>(a, at, of_dy, means);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row + at.group + half * 8;
            if (at.quarter == 0) {
                head.log_sums[row] = row < a.tokens ? a.log_sums[numbers + row] * to_base_two : INFINITY;
                head.means[row] = means[half];
            }
        }
    }
    copies_wait<0>();
    __syncthreads();
    for (at.row = first_row; at.row < rows; at.row += stride)
        whole_keys(a, head, at, rows);
    __syncthreads();
    for (at.row = first_row; at.row < rows; at.row += stride)
        whole_queries(a, head, at, rows);
}

} // namespace fshard

#endif
