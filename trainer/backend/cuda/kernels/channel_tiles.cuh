/* channel_tiles.cuh - tiles of [samples, rows, channels] in which each thread keeps its channels, so that
 * factors and sums over rows stay in registers.
 *
 * A block takes a strip, some rows of one sample, and some vectors of channels (mostly all of a row).
 * Neighbouring threads take neighbouring vectors, then those of the next row. Sums over rows are joined in
 * shared memory lane by lane; each strip writes one partial sum for each channel, and a second launch joins
 * the strips in float64, a warp for each channel. Shapes alone decide the tiles: the same input gives the
 * same bits on any card. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_TILES_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_TILES_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Calls launch(T{}, width) with the storage type and a std::integral_constant<int>, the elements of one
 * access. Narrow rows are padded to whole vectors; f32 rows that are not whole vectors are accessed element
 * by element. */
template <typename Launch> cudaError_t with_vectors(const DeviceTensor *tensor, bool f32_fits, Launch launch)
{
    return with_storage(tensor, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, float>) {
            if (f32_fits)
                launch(zero, std::integral_constant<int, 4>{});
            else
                launch(zero, std::integral_constant<int, 1>{});
        } else {
            launch(zero, std::integral_constant<int, vector_width<T>>{});
        }
    });
}

/* Returns the elements of one access in with_vectors. */
inline int vector_width_of(const DeviceTensor *tensor, bool f32_fits)
{
    return element_is_narrow(tensor->element) ? 8 : f32_fits ? 4 : 1;
}

struct ChannelTiles {
    int64_t rows, rows_per_strip; /* of a sample */
    unsigned samples, strips;     /* strips of one sample */
    int columns;                  /* vectors in a row */
    int columns_per_block;
    unsigned column_blocks;
    int lanes; /* rows that a block works on at a time */
};

/* Rows of a thread whose loads are under way at once. */
constexpr int rows_in_flight = 2;

/* Blocks that a multiprocessor runs at a time: of kernels that map values, and of those that keep sums, whose
 * registers allow no more. */
constexpr int mapping_blocks = 4, summing_blocks = 3;

/* Returns tiles for so many blocks of each multiprocessor of an H200. */
inline ChannelTiles channel_tiles(int64_t samples, int64_t rows, int64_t columns, int blocks = mapping_blocks)
{
    const int64_t blocks_wanted = 132 * blocks;
    ChannelTiles t = {};
    t.rows = rows;
    t.samples = (unsigned)samples;
    t.columns = (int)columns;
    t.columns_per_block = columns < block_threads ? (int)columns : block_threads;
    t.column_blocks = (unsigned)((columns + t.columns_per_block - 1) / t.columns_per_block);
    t.lanes = block_threads / t.columns_per_block;
    int64_t strips = blocks_wanted / (samples * t.column_blocks),
            rows_least = (int64_t)t.lanes * rows_in_flight;
    int64_t strips_most = (rows + rows_least - 1) / rows_least;
    strips = strips < strips_most ? strips : strips_most;
    strips = strips > 1 ? strips : 1;
    t.rows_per_strip = (rows + strips - 1) / strips;
    t.strips = (unsigned)((rows + t.rows_per_strip - 1) / t.rows_per_strip);
    return t;
}

inline dim3 channel_tiles_grid(const ChannelTiles &t)
{
    return dim3(t.strips * t.samples, t.column_blocks);
}

/* Where a thread works: at rows first, first + lanes, … before end, counted over all samples. A thread
 * without work has first = end. */
struct ChannelPlace {
    int64_t first, end;
    unsigned sample, strip;
    int column, lane;
};

__device__ inline ChannelPlace channel_place(const ChannelTiles &t)
{
    ChannelPlace p;
    p.sample = blockIdx.x / t.strips;
    p.strip = blockIdx.x % t.strips;
    p.lane = (int)threadIdx.x / t.columns_per_block;
    p.column = (int)(blockIdx.y * (unsigned)t.columns_per_block) + (int)threadIdx.x % t.columns_per_block;
    int64_t of_sample = (int64_t)p.sample * t.rows, begin = (int64_t)p.strip * t.rows_per_strip;
    p.end = of_sample + min(begin + t.rows_per_strip, t.rows);
    bool works = p.lane < t.lanes && p.column < t.columns;
    p.first = works ? of_sample + begin + p.lane : p.end;
    return p;
}

/* Returns the floats of scratch memory for this many sums. */
inline int64_t channel_partial_count(const ChannelTiles &t, int sums, int64_t channels)
{
    return (int64_t)t.samples * sums * channels * t.strips;
}

/* Adds up the lanes of the block. Returns true, with the sums, in the first lane's threads that have a
 * column. All threads of the block must call it. */
template <int Sums, int Width>
__device__ bool channel_sum_lanes(const ChannelTiles &t, const ChannelPlace &p, float (&sums)[Sums][Width])
{
    __shared__ float lanes[Sums][Width][block_threads];
    int thread = (int)threadIdx.x;
#pragma unroll
    for (int s = 0; s < Sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++)
            lanes[s][k][thread] = sums[s][k];
    __syncthreads();
    for (int count = t.lanes; count > 1;) {
        int half = (count + 1) / 2;
        if (p.lane < count - half)
            for (int s = 0; s < Sums; s++)
#pragma unroll
                for (int k = 0; k < Width; k++)
                    lanes[s][k][thread] += lanes[s][k][thread + half * t.columns_per_block];
        count = half;
        __syncthreads();
    }
    if (p.lane != 0 || p.column >= t.columns)
        return false;
#pragma unroll
    for (int s = 0; s < Sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++)
            sums[s][k] = lanes[s][k][thread];
    return true;
}

/* Does the same, and writes the sums to partial [samples, Sums, channels, strips]. */
template <int Sums, int Width>
__device__ void channel_leave_partial(const ChannelTiles &t, const ChannelPlace &p, int channels,
                                      float (&sums)[Sums][Width], float *partial)
{
    if (!channel_sum_lanes(t, p, sums))
        return;
#pragma unroll
    for (int s = 0; s < Sums; s++)
#pragma unroll
        for (int k = 0; k < Width; k++) {
            int64_t c = (int64_t)p.column * Width + k;
            if (c < channels)
                partial[(((int64_t)p.sample * Sums + s) * channels + c) * t.strips + p.strip] = sums[s][k];
        }
}

/* Where channel_join writes the sums of partial [samples, Sums, channels, strips]: to[s] [samples, channels],
 * NULL: not wanted. Each sample's channels from `channels` to `written` become 0. */
template <int Sums> struct ChannelSums {
    float *to[Sums];
    int64_t samples;
    int channels, written, strips;
};

template <int Sums>
__global__ void __launch_bounds__(block_threads)
    channel_join_kernel(const float *partial, const __grid_constant__ ChannelSums<Sums> sums)
{
    int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = (int)threadIdx.x % 32, c = (int)(warp % sums.written);
    int64_t row = warp / sums.written, sample = row / Sums; /* row of [samples, Sums] */
    int s = (int)(row % Sums);
    if (sample >= sums.samples || !sums.to[s])
        return;
    double sum = 0;
    if (c < sums.channels) {
        const float *strips = partial + (row * sums.channels + c) * sums.strips;
        for (int i = lane; i < sums.strips; i += 32)
            sum += (double)strips[i];
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xFFFFFFFFU, sum, offset);
    }
    if (lane == 0)
        sums.to[s][sample * sums.channels + c] = (float)sum;
}

template <int Sums>
void channel_join(const float *partial, const ChannelSums<Sums> &sums, cudaStream_t stream)
{
    int64_t warps = sums.samples * Sums * sums.written, warps_per_block = block_threads / 32;
    channel_join_kernel<Sums>
        <<<(unsigned)((warps + warps_per_block - 1) / warps_per_block), block_threads, 0, stream>>>(partial,
                                                                                                    sums);
}

} // namespace fshard

#endif
