/* implicit_gemm_block.cuh - shared by implicit_gemm.cu, pixel_gemm.cu and pixel_gemm_weight.cu, whose blocks
 * are two warp groups that compute, with rows of 64 in a left operand, and one that has things copied: how
 * weights lie in shared memory, who gives slots back, how the sums of 64 rows are written, and the moments of
 * what is written. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_BLOCK_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_BLOCK_CUH

#include "trainer/backend/cuda/kernels/implicit_gemm.cuh"

namespace fshard
{
namespace implicit
{

constexpr int columns_most = 128; /* of a product */
constexpr int groups = 2, threads = (groups + 1) * group_threads,
              computing_warps = groups * group_threads / 32;
/* Of a block's 65,536 registers, for a thread that has things copied and one that computes. */
constexpr int copier_registers = 40, computer_registers = 232;

/* How the weights of a tap and of 64 channels lie: forward, a row is 64 input channels of an output channel;
 * backward, it is 64 of the channels that are written, of one of those that are summed, with the next 64 in a
 * block of their own. */
template <int Columns, bool Backward> struct Weights {
    static constexpr int box_rows = Backward ? chunk : Columns;
    static constexpr int boxes = Backward ? (Columns + chunk - 1) / chunk : 1;
    static constexpr int box_bytes = box_rows * place_bytes, bytes = boxes * box_bytes;
    /* From 16 of those that are summed to the next 16. */
    static constexpr int of_sixteen = (Backward ? sixteen * place_bytes : sixteen * 2) / piece_bytes;
};

/* A place in a ring, and how often it was gone around, as barriers count it. */
struct Turn {
    int slot = 0;
    unsigned parity = 0;

    __device__ void next(int slots)
    {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* Gives back a slot, to all blocks that fill it, when its products are computed; NULL: none. */
__device__ inline void give_back(CopyBarrier *empty, int peers)
{
    if (!empty || (int)threadIdx.x % 32 != 0)
        return;
    barrier_arrive(empty);
    if (peers > 1)
        barrier_arrive_at(cluster_rank() ^ 1, empty);
}

/* Describes weights [channels, 3, 3, channels] to the copy engine, in boxes of so many rows of a tap. */
inline cudaError_t make_weight_map(CUtensorMap *map, const DeviceTensor *weight, int box_rows)
{
    const cuuint64_t filter = (cuuint64_t)weight->pitch * sizeof(uint16_t);
    return make_map<3>(map, weight->element, weight->data,
                       {(cuuint64_t)weight->pitch, (cuuint64_t)weight->rows / taps, taps},
                       {filter * taps, filter}, {chunk, (cuuint32_t)box_rows, 1});
}

/* ---- what is written ---- */

/* Exchanges among the four threads of a quad: each gives pair q of 4 pieces, q its number, and gets the 4
 * pairs of piece q. */
__device__ inline void gather_piece(unsigned (&pairs)[4])
{
    const int quarter = (int)threadIdx.x % 4;
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int low = distance == 1 ? 2 * k : k, high = low + distance;
            const bool upper = (quarter & distance) != 0;
            const unsigned got = __shfl_xor_sync(0xFFFFFFFFU, upper ? pairs[low] : pairs[high], distance);
            if (upper)
                pairs[low] = got;
            else
                pairs[high] = got;
        }
}

template <typename T> __device__ unsigned pair_bits(T first, T second)
{
    return (unsigned)__builtin_bit_cast(unsigned short, first) |
           (unsigned)__builtin_bit_cast(unsigned short, second) << 16;
}

/* Returns the row that a thread has of 64, low or high: 8 rows lie between them. */
__device__ inline int row_of_square(int low)
{
    return (int)threadIdx.x / 32 % 4 * 16 + low * 8 + (int)threadIdx.x % 32 / 4;
}

/* Writes a row's sums: 64 bytes in four threads of a warp. to: its first channel; inside: there is such a
 * row; count: of channels. */
template <typename T, int Columns, int Low>
__device__ void write_row(T *to, bool inside, int count, const float (&sums)[Columns / 8][4])
{
#pragma unroll
    for (int four = 0; four < Columns / piece; four += 4) {
        unsigned pairs[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (four + k < Columns / piece)
                pairs[k] = pair_bits((T)sums[four + k][2 * Low], (T)sums[four + k][2 * Low + 1]);
        gather_piece(pairs);
        const int channel = (four + (int)threadIdx.x % 4) * piece;
        if (inside && channel < count)
            *reinterpret_cast<uint4 *>(to + channel) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

/* ---- its moments ---- */

/* Moments of a block: of each warp, two of each pair of columns in each lane. */
template <int Columns> struct Moments {
    static constexpr int per_lane = Columns / sixteen, floats = computing_warps * per_lane * 32;
    static constexpr int room =
        (floats * (int)sizeof(float) + pattern_bytes - 1) / pattern_bytes * pattern_bytes;
};

/* Adds up eight numbers over the eight lanes of a warp whose last two bits are alike: returns number i where
 * the other bits are i, the highest first. */
__device__ inline float scatter_sums(float (&eight)[8])
{
#pragma unroll
    for (int left = 4; left > 0; left /= 2)
#pragma unroll
        for (int i = 0; i < left; i++) {
            const bool upper = ((int)threadIdx.x & 4 * left) != 0;
            const float given = upper ? eight[i] : eight[left + i], kept = upper ? eight[left + i] : eight[i];
            eight[i] = kept + __shfl_xor_sync(0xFFFFFFFFU, given, 4 * left);
        }
    return eight[0];
}

/* Adds a tile's numbers, as they are written, to the moments of this lane: of each 16 columns, lane 16 k + 8
 * j + 4 e + q has column 8 j + 2 q + e, k = 0: of the numbers, 1: of their squares. inside: which of this
 * thread's pixels exist. */
template <typename T, int Columns, int Squares>
__device__ void add_moments(float *of_warp, const float (&sums)[Squares][Columns / 8][4],
                            const bool (&inside)[Squares][2])
{
#pragma unroll
    for (int two = 0; two < Columns / sixteen; two++) {
        float eight[8] = {};
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < Squares; i++)
#pragma unroll
                for (int low = 0; low < 2; low++) {
                    const float written = (float)(T)sums[i][2 * two + k / 2][2 * low + k % 2],
                                value = inside[i][low] ? written : 0;
                    eight[k] += value;
                    eight[4 + k] += value * value;
                }
        of_warp[two * 32 + (int)threadIdx.x % 32] += scatter_sums(eight);
    }
}

/* Leaves the moments of a block's `count` channels, which its warps have, in to [2, pitch]. */
template <int Columns> __device__ void leave_moments(float *to, int pitch, int count, const float *of_warps)
{
    computers_meet<groups>();
    for (int i = (int)threadIdx.x; i < 2 * Columns; i += groups * group_threads) {
        const int lane = i % 32, squares = lane / 16,
                  column = i / 32 * sixteen + lane / 8 % 2 * 8 + lane % 4 * 2 + lane / 4 % 2;
        float sum = 0;
        for (int warp = 0; warp < computing_warps; warp++)
            sum += of_warps[warp * Moments<Columns>::per_lane * 32 + i];
        if (column < count)
            to[squares * pitch + column] = sum;
    }
}

} // namespace implicit
} // namespace fshard

#endif
