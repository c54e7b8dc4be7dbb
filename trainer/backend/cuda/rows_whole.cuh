/* rows_whole.cuh - sums over the rows of a matrix and the map that needs them, in one launch, for matrices so small that the launches
 * take as long as the bytes do.
 *
 * All blocks run at the same time and wait for each other between the two (a cooperative launch: it is refused where they do not fit, and
 * then sums and map are launched one by one, rows.cuh). A block takes a few columns of channels, so that what it joins after the wait,
 * the partial sums of its own channels, is little; in the map each thread goes back over the rows it summed, which lie in the caches
 * yet. Sums have one order, fixed by the shapes. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_ROWS_WHOLE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_ROWS_WHOLE_CUH

#include <cooperative_groups.h>

#include "trainer/backend/cuda/rows.cuh"

namespace fshard
{

/* Columns of a block; blocks of a multiprocessor: waiting costs more than a second one gives (pyramidnet at batch 64: 12.65 ms a step with
 * two, 12.32 with one, 12.41 with one of twice the threads; H200, 2026-11-21). */
constexpr int whole_columns = 4, whole_resident = 1;
constexpr int64_t whole_bytes_most = 16 << 20; /* of a matrix: operands stay in an L2 cache of 50 MB */

inline Deal deal_whole(const DeviceTensor *x, int width)
{
    Deal d = deal(x, width);
    const int64_t columns = x->pitch / width;
    d.blocks_x = (unsigned)((columns + whole_columns - 1) / whole_columns);
    d.threads_x = (unsigned)((columns + d.blocks_x - 1) / d.blocks_x);
    d.threads_y = block_threads / d.threads_x;
    d.lines = (d.rows + d.threads_y - 1) / d.threads_y;
    const int64_t blocks = whole_resident * multiprocessors / (int64_t)d.blocks_x;
    d.blocks_y = (unsigned)(blocks < d.lines ? blocks : d.lines);
    return d;
}

/* A Pass has a term, a map (rows.cuh), and Kept, what a block keeps of its channels in shared memory: keep(kept, k, c) before anything
 * is written, finish(kept, k, c, sums, c < channels, first) with the sums of channel c, the block's k-th (first: in one block for each
 * channel), and map_of(kept, c) for a block whose first channel is c. */
template <int Width, typename Pass>
__global__ void __launch_bounds__(block_threads, whole_resident)
    whole_kernel(const Pass pass, const Deal d, float *partial, int channels)
{
    using Term = decltype(pass.term);
    using Map = decltype(pass.map);
    constexpr int sums = Term::sums, unroll = 4, channels_most = whole_columns * Width;
    __shared__ double strips[sums][block_threads];
    __shared__ typename Pass::template Kept<channels_most> kept;
    const unsigned block = blockIdx.x / d.blocks_x;
    const int first_channel = (int)((blockIdx.x % d.blocks_x) * d.threads_x) * Width;
    const int c = first_channel + (int)threadIdx.x * Width,
              thread = (int)(threadIdx.y * d.threads_x + threadIdx.x);
    const int own = min((int)d.threads_x * Width, d.pitch - first_channel); /* channels of the block */
    if (thread < own)
        pass.keep(kept, thread, first_channel + thread);
    leave_partial_sums<Width>(pass.term, d, partial);
    cooperative_groups::this_grid().sync();

    const int strip_count = (int)(d.threads_x * d.threads_y) / own, strip = thread / own, k = thread % own;
    if (strip < strip_count) {
        double sum[sums] = {};
#pragma unroll 4
        for (unsigned p = (unsigned)strip; p < d.blocks_y; p += (unsigned)strip_count)
#pragma unroll
            for (int s = 0; s < sums; s++)
                sum[s] += (double)__ldcg(partial + ((int64_t)p * sums + s) * d.pitch + first_channel + k);
#pragma unroll
        for (int s = 0; s < sums; s++)
            strips[s][thread] = sum[s];
    }
    __syncthreads();
    if (thread < own) {
        double sum[sums] = {};
        for (int i = 0; i < strip_count; i++)
#pragma unroll
            for (int s = 0; s < sums; s++)
                sum[s] += strips[s][i * own + thread];
        pass.finish(kept, thread, first_channel + thread, sum, first_channel + thread < channels, block == 0);
    }
    __syncthreads();
    if (c >= d.pitch)
        return;
    const Map map = pass.map_of(kept, first_channel);
    const typename Map::template Columns<Width> columns(map, c, false);
    const int64_t step = (int64_t)d.blocks_y * d.threads_y;
    for (int64_t row = ((d.lines - 1 - block) * d.threads_y + threadIdx.y) % step; row < d.rows;
         row += unroll * step) {
        typename Map::template Row<Width> rows[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (row + u * step < d.rows)
                rows[u].read(map, spot(d, row + u * step, c));
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (row + u * step < d.rows)
                map.write(columns, rows[u], spot(d, row + u * step, c).element);
    }
}

/* Whether matrix and card are fit for it; then *d says how. The kernels' launch bounds promise whole_resident blocks. */
template <typename T> bool is_whole(const DeviceTensor *x, Deal *d)
{
    constexpr int width = vector_width<T>;
    int device = 0, there = 0, cooperates = 0;
    if (width_for<T>(x) != width || device_tensor_stored(x) * (int64_t)sizeof(T) > whole_bytes_most)
        return false;
    *d = deal_whole(x, width);
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&there, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
           cooperates && d->blocks_y > 0 &&
           (int64_t)there * whole_resident >= (int64_t)d->blocks_x * d->blocks_y;
}

/* True where it was launched; false where it cannot be: nothing was done then. scratch: as sum_rows. */
template <typename T, typename Pass>
bool run_whole(const Pass &pass, const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    const auto kernel = whole_kernel<vector_width<T>, Pass>;
    Deal d = {};
    if (!is_whole<T>(x, &d))
        return false;
    float *partial = static_cast<float *>(scratch);
    int channels = (int)device_tensor_channels(x);
    Pass copy = pass;
    void *arguments[] = {&copy, &d, &partial, &channels};
    const bool launched =
        cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(kernel), dim3(d.blocks_x * d.blocks_y),
                                    dim3(d.threads_x, d.threads_y), arguments, 0, stream) == cudaSuccess;
    if (!launched)
        (void)cudaGetLastError();
    return launched;
}

} // namespace fshard

#endif
